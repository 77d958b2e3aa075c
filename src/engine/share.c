/* SPDX-License-Identifier: Apache-2.0 */
/* share.c: messages that share work requests.
 *
 * Owns which may, and their posts. The notes of messages that are put together, or wait for a
 * credit, go in one SEND. A short message whose note would wait keeps its data back, too: it is of
 * no use to the receiver before the note. The data of several short ones is written by one WR,
 * which gathers it, in front of the SEND and with the same doorbell.
 *
 * The payloads of messages that follow each other in one place are written with what is between
 * them: the rest of a line, and the head of the next message (room.h). The receiver writes that
 * head when it has the note, so behind the write.
 *
 * Numbers follow each other within a SEND. Messages share where there is one QP, on devices that
 * keep order and complete later. One that was replayed, which may have broken the session, goes
 * alone, and so do all while a transfer of the peer is suspected of that. A write of several
 * messages is of none of them: if it breaks the session, that is held against each of them, and
 * each is tried alone.
 */
#include "share.h"

#include "post.h"
#include "records.h"
#include "sends.h"
#include "tables.h"
#include "transfer.h"

enum {
    DATA_MAX = 8192, /* of a message that keeps it back */
    PIECES_MAX = 16,
    CLOSING = 1 /* slot is left: an empty write closes one that the device took alone */
};
_Static_assert(2 * ROOM_LINE <= (int)MESSAGE_BYTES, "zeros for the rest of a line, and a head");

/* A write that gathers the data of messages, as far as it is filled. */
struct gather {
    struct weir_sge pieces[PIECES_MAX];
    uint32_t count;
    uint32_t messages;
    uint32_t last; /* of them: a transfer */
    uint64_t raddr, bytes;
    uint32_t rkey;
};

/* One post: that write, if it has pieces, and a SEND of notes. */
struct shared {
    struct gather data;
    uint32_t first;  /* transfer */
    uint32_t count;  /* of notes */
    uint32_t length; /* of the SEND */
};

/* Where several may overtake each other, a SEND is to use up one number: complete_numbers. */
static bool shares(const weir_engine *engine, const struct peer *peer) {
    return peer->sessions[peer->live].ordered && engine->caps.ordered &&
           engine->options.qp_count == 1 && !engine->caps.completes_inline &&
           peer->trouble_ns == 0 && !peer_is_suspicious(peer);
}

/* All of the message is one piece that was never posted, and short; and the device gathers. */
static bool keeps_data(const weir_engine *engine, const struct transfer *transfer) {
    enum { PIECES_MIN = 3 };
    return transfer->kind == TRANSFER_MESSAGE && !plan_done(&transfer->cursor) &&
           engine->caps.pieces_max >= PIECES_MIN &&
           engine->blocks[transfer_index(engine, transfer)].count == 1 &&
           transfer->cursor.offset == 0 && transfer->outstanding == 0 && transfer->result == 0 &&
           !transfer_was_replayed(transfer) && transfer->bytes <= DATA_MAX &&
           transfer->bytes <= engine->caps.message_bytes_max;
}

/* The bytes that one write may carry now. */
static uint64_t data_room(const weir_engine *engine, const struct peer *peer) {
    uint64_t room = inflight_open(engine, peer) ? inflight_left(engine) : 0;
    if (room > engine->post_bytes_max)
        room = engine->post_bytes_max;
    return room < engine->caps.message_bytes_max ? room : engine->caps.message_bytes_max;
}

bool share_waits(weir_engine *engine, const struct peer *peer, const struct transfer *transfer) {
    enum { DEPTH_MIN = 3 + CLOSING /* two messages and their write */ };
    const struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    const struct list *waiters = &peer->lists[LIST_WORDS];
    return qp->ledger.depth >= DEPTH_MIN &&
           (!credit_available(&qp->credit, CREDIT_WORDS) ||
            (waiters->count > 0 && transfer->list != LIST_WORDS &&
             engine->inflight_turn != peer_index(engine, peer))) &&
           keeps_data(engine, transfer) && shares(engine, peer) &&
           transfer->bytes <= data_room(engine, peer);
}

/* Whether the second message is in the place of the first, right behind it. */
static bool follows(const struct transfer *first, const struct transfer *second) {
    return second->stream == first->stream && second->spot.place == first->spot.place &&
           second->spot.offset == first->spot.offset + room_bytes(first->message_length);
}

/* The bytes between the data that is there and that of the next message. */
static uint64_t gather_gap(const struct gather *gather, const struct plan_piece *piece) {
    return gather->count == 0 ? 0 : piece->raddr - (gather->raddr + gather->bytes);
}

/* Whether a message's data may go behind the others'. */
static bool gather_fits(const weir_engine *engine, const struct gather *gather, uint32_t index,
                        uint64_t room) {
    const struct plan_piece *piece = &engine->blocks[index].pieces[0];
    uint32_t most = engine->caps.pieces_max < PIECES_MAX ? engine->caps.pieces_max : PIECES_MAX;
    if (gather->count > 0 &&
        (!follows(&engine->transfers[gather->last], &engine->transfers[index]) ||
         gather->count + 2 > most))
        return false;
    return gather->bytes + gather_gap(gather, piece) + piece->length <= room;
}

static void gather_add(const weir_engine *engine, struct gather *gather, uint32_t index) {
    const struct plan_piece *piece = &engine->blocks[index].pieces[0];
    uint64_t gap = gather_gap(gather, piece);
    if (gather->count == 0) {
        gather->raddr = piece->raddr;
        gather->rkey = piece->rkey;
    }
    if (gap > 0)
        gather->pieces[gather->count++] = (struct weir_sge){(uint64_t)(uintptr_t)engine->zeros,
                                                            (uint32_t)gap, engine->send_mr.lkey};
    gather->pieces[gather->count++] =
        (struct weir_sge){piece->laddr, (uint32_t)piece->length, piece->lkey};
    gather->bytes += gap + piece->length;
    gather->messages++;
    gather->last = index;
}

/* Whether the note of a message may go in one SEND with others. */
static bool may_share(const struct transfer *transfer) {
    return transfer->kind == TRANSFER_MESSAGE && !transfer_was_replayed(transfer) &&
           transfer->parts_mask == 0;
}

/* Numbers are of one SEND if they follow each other. */
static bool take_next_number(const weir_engine *engine, struct peer *peer,
                             struct transfer *transfer, uint64_t number) {
    if (transfer->number == 0 && peer->number_next != number)
        return false;
    return send_number(engine, peer, transfer) && transfer->number == number;
}

/* Writes what the first transfers of the list tell, as many as may share one SEND, each with a slot
 * of its own, and one for their data. A number is taken last: one that is not used holds up all
 * that are taken behind it. False: less than two messages. */
static bool fill(weir_engine *engine, struct peer *peer, struct qp *qp, struct shared *out) {
    uint8_t payload[WEIR_NOTIFY_MAX];
    uint32_t length = 0, most = ledger_free(&qp->ledger);
    uint64_t room = data_room(engine, peer);
    const struct transfer *head = &engine->transfers[out->first];
    for (uint32_t i = out->first; i != NONE && out->count < most; i = engine->transfers[i].next) {
        struct transfer *transfer = &engine->transfers[i];
        bool has_data = !plan_done(&transfer->cursor);
        bool writes = has_data || out->data.count > 0;
        uint32_t slots = out->count + 1 + (writes ? 1 + CLOSING : 0);
        if (!may_share(transfer) || slots > most ||
            length + WORD_NOTES_HEAD + transfer->notify_length > sizeof(payload) ||
            (has_data &&
             (!keeps_data(engine, transfer) || !gather_fits(engine, &out->data, i, room))) ||
            (out->count == 0
                 ? !send_number(engine, peer, transfer)
                 : !take_next_number(engine, peer, transfer, head->number + out->count)))
            break;
        if (has_data)
            gather_add(engine, &out->data, i);
        const struct word_shared shared = {transfer->tag, transfer->payload,
                                           transfer->notify_length};
        length += word_shared_put(&shared, payload + length);
        out->count++;
    }
    if (out->count < 2)
        return false;
    out->length = WIRE_DATA_SIZE + length;
    uint8_t *bytes = send_bytes(engine, qp, out->length);
    const struct wire_data data = {.kind = WIRE_NOTES,
                                   .parts = 1,
                                   .payload_length = (uint16_t)length,
                                   .credit = credit_to_tell(&qp->credit),
                                   .number = head->number,
                                   .base = peer->sent.base};
    wire_data_encode(&data, bytes);
    memcpy(bytes + WIRE_DATA_SIZE, payload, length);
    return true;
}

static struct weir_wr write_wr(const struct gather *gather, uint64_t wr_id) {
    return (struct weir_wr){.wr_id = wr_id,
                            .laddr = (uint64_t)(uintptr_t)gather->pieces,
                            .raddr = gather->raddr,
                            .length = gather->bytes,
                            .rkey = gather->rkey,
                            .opcode = WEIR_OP_WRITE,
                            .pieces = (uint16_t)gather->count};
}

/* The write was accepted. Its run is of no transfer. Where the SEND behind it was not accepted,
 * each message has a run besides, which lasts as long. */
static void data_posted(weir_engine *engine, const struct peer *peer, struct qp *qp,
                        const struct shared *shared, bool alone) {
    uint32_t index = shared->first, count = shared->data.messages;
    run_take(engine, qp, LEDGER_NO_TRANSFER, 1, 0, shared->data.bytes);
    for (uint32_t left = count; left > 0; index = engine->transfers[index].next) {
        struct transfer *transfer = &engine->transfers[index];
        if (plan_done(&transfer->cursor))
            continue;
        transfer->cursor.block = PLAN_NO_BLOCK;
        transfer->data_mask = transfer->parts_need = (uint16_t)(1u << qp->index);
        transfer->epoch = peer->sessions[peer->live].epoch;
        if (alone) {
            run_take(engine, qp, index, 1, 0, 0);
            transfer->outstanding++;
        }
        left--;
    }
    if (count > 1)
        engine->stats.messages_gathered += count;
    if (alone) {
        engine->stats.partial_posts++;
        engine->stats.orphans += 1 + count;
        ledger_orphan(&qp->ledger, 1 + count);
    }
}

/* Each note has a run, though there is one WR: the last run's completion is that of all. */
static void notes_posted(weir_engine *engine, const struct peer *peer, struct qp *qp,
                         const struct shared *shared, const struct weir_wr *wr) {
    uint32_t index = shared->first;
    for (uint32_t left = shared->count; left > 0; left--) {
        struct transfer *transfer = &engine->transfers[index];
        run_take(engine, qp, index, 1, left == 1 && wants_buffer(engine, wr) ? 1 : 0, 0);
        transfer->outstanding++;
        transfer->epoch = peer->sessions[peer->live].epoch;
        transfer->parts_mask = transfer->parts_need = (uint16_t)(1u << qp->index);
        index = transfer->next;
    }
    engine->stats.notes_shared += shared->count;
    run_cover(engine, qp, 1);
    send_posted(engine, qp, wr, &engine->transfers[shared->first], false);
}

uint32_t share_post(weir_engine *engine, struct peer *peer, uint8_t list, uint64_t *bytes) {
    struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    struct shared shared = {.first = peer->lists[list].head};
    struct weir_wr wrs[2];
    struct weir_post post;
    if (shared.first == NONE || engine->transfers[shared.first].next == NONE ||
        (list != LIST_WORDS && peer->lists[LIST_WORDS].count > 0) || !shares(engine, peer) ||
        !qp_is_usable(qp) || !post_heal(engine, qp) || !send_room(engine, qp) ||
        !credit_available(&qp->credit, CREDIT_WORDS) || !fill(engine, peer, qp, &shared))
        return 0;
    uint32_t count = 0, entry = qp_index(engine, qp);
    uint64_t last = qp->ledger.tail + shared.count - 1;
    if (shared.data.count > 0) {
        wrs[count++] = write_wr(&shared.data, route_id(ROUTE_RUN, entry, qp->ledger.tail));
        last++;
    }
    wrs[count] = send_wr(engine, send_bytes(engine, qp, shared.length), shared.length,
                         route_id(ROUTE_RUN, entry, last));
    wrs[count++].flags |= WEIR_WR_SIGNALED;
    engine->device_ops->post_send(qp->qp, wrs, count, &post);
    engine->stats.posts++;
    engine->stats.wrs_posted += post.accepted;
    if (post.accepted == 0)
        return 0; /* what the device says to the first one alone is heeded */
    if (shared.data.count > 0) {
        data_posted(engine, peer, qp, &shared, post.accepted < count);
        *bytes += shared.data.bytes;
    }
    if (post.accepted < count)
        return 0;
    notes_posted(engine, peer, qp, &shared, &wrs[count - 1]);
    return shared.count;
}
