/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c: messages that are written where they belong.
 *
 * Where the device reaches the memory of a peer's inbox with the processor, a message for which
 * there is room needs no record and no note: its payload is copied to its spot, and its head behind
 * it (room.h). So a message is done in the call. All that is not plain is left to submit.c's other
 * ways: messages that wait for room, an inbox that is not known yet, a peer without a session. Both
 * ways put messages in the same places, and so keep their order.
 *
 * Owns no state. A receiver that does not watch is told to look, by a word that talk.c says. */
#include "direct.h"

#include "agenda.h"
#include "lendings.h"
#include "streams.h"
#include "tables.h"

enum { PARTS = 16 }; /* of a direct message, at most */

/* Where a part is in this process. False: it is not plain, or wrong. */
static inline bool find_part(const weir_engine *engine, const weir_part *part,
                             struct weir_bytes *out, bool *registered) {
    const uint8_t *base = part->base;
    if (part->local.id != 0) {
        const struct region_local *local = region_local(&engine->regions, part->local.id);
        if (local == NULL || !local->mapped || part->length > local->length ||
            part->offset > local->length - part->length)
            return false;
        base = (const uint8_t *)(uintptr_t)local->base;
    } else {
        *registered = false;
    }
    *out = (struct weir_bytes){base + part->offset, part->length};
    return base != NULL || part->length == 0;
}

/* Their length in all; UINT64_MAX: they are left to others. */
static inline uint64_t find_parts(const weir_engine *engine, const weir_part *parts, size_t count,
                                  struct weir_bytes *out) {
    uint64_t length = 0;
    bool registered = true;
    for (size_t i = 0; i < count; i++) {
        if (!find_part(engine, &parts[i], &out[i], &registered) ||
            out[i].length > ROOM_LENGTH_MAX - length)
            return UINT64_MAX;
        length += out[i].length;
    }
    return registered || length <= WEIR_MESSAGE_COPY_MAX ? length : UINT64_MAX;
}

static inline void count_sent(weir_engine *engine, uint64_t length) {
    engine->stats.transfers_ok++;
    engine->stats.transfers_inline++;
    engine->stats.messages_sent++;
    engine->stats.message_bytes_sent += length;
}

/* Writes the head, and, behind it in one piece, `length` bytes of `count` parts, to where the next
 * message goes. There is room for it. */
static inline __attribute__((always_inline)) int
put_in_place(weir_engine *engine, struct peer *peer, struct stream *stream, struct weir_qp *qp,
             struct room_head *head, const struct weir_bytes *parts, uint32_t count,
             uint64_t length) {
    struct outbox *outbox = &stream->outbox;
    const struct outbox_place *place = outbox_filling(outbox);
    struct weir_direct direct;
    uint64_t watch;
    head->mark = outbox_mark(outbox);
    direct.parts = parts;
    direct.count = count;
    direct.rkey = stream->rmr.rkey;
    direct.raddr =
        stream->rmr.raddr + (uint64_t)place->grant.chunk * outbox->chunk_bytes + place->used;
    direct.payload = room_payload((uint32_t)length);
    direct.length = length;
    direct.watch = stream->rmr.raddr +
                   room_watch(outbox->chunk_bytes, outbox->chunk_count, place->grant.chunk);
    room_head_words(head, direct.words);
    if (engine->device_ops->post_direct(qp, &direct, &watch) != WEIR_OK)
        return DIRECT_NOT;
    /* With the first message of a place, those in front of it are shut, and the next is wanted. */
    bool tells = place->used == 0;
    stream->ahead_due |= tells;
    outbox_put(outbox, (uint32_t)length);
    if (watch != place->grant.place && !stream->look_due) {
        stream->look_due = true;
        tells = true;
    }
    if (tells)
        streams_tell(engine, peer);
    else if (!place->grant.keep)
        run_later(engine, peer); /* that turn shuts it, if no more is put there by then */
    return WEIR_OK;
}

/* Whether messages may be written to the stream's inbox. */
static inline bool is_reached(const weir_engine *engine, const struct stream *stream) {
    return stream != NULL && stream->state == STREAM_MET && stream->imported &&
           engine->device_ops->post_direct != NULL;
}

int direct_send(weir_engine *engine, struct peer *peer, uint32_t inbox, const weir_part *parts,
                size_t count, uint64_t tag) {
    struct weir_bytes bytes[PARTS];
    struct stream *stream = stream_find(engine, peer, inbox);
    if (!is_reached(engine, stream) || stream->waiting.head != NONE || count > PARTS)
        return DIRECT_NOT;
    uint64_t length = find_parts(engine, parts, count, bytes);
    struct outbox *outbox = &stream->outbox;
    if (length > stream->message_bytes_max || length > engine->post_bytes_max ||
        !outbox_room(outbox, (uint32_t)length)) {
        if (outbox->filling > 0)
            streams_tell(engine, peer); /* places that were closed over it are to be shut */
        return DIRECT_NOT;
    }
    struct room_head head = {.tag = tag, .length = (uint32_t)length};
    int rc = put_in_place(engine, peer, stream, peer->fast_qp->qp, &head, bytes, (uint32_t)count,
                          length);
    if (rc == WEIR_OK)
        count_sent(engine, length);
    return rc;
}

/* A short message is copied for less than the receiver takes to give it back. */
static bool is_lent(const weir_engine *engine, const struct stream *stream, uint32_t loan,
                    uint64_t length) {
    uint32_t index;
    return is_reached(engine, stream) && length > WEIR_MESSAGE_COPY_MAX &&
           length <= stream->message_bytes_max &&
           lending_is_read(engine, lending_of(engine, loan, &index), stream);
}

static int lend(weir_engine *engine, struct peer *peer, struct stream *stream, struct weir_qp *qp,
                uint32_t number, uint64_t length, uint64_t tag) {
    uint32_t index;
    struct lending *lending = lending_of(engine, number, &index);
    struct loan *loan = &lending->loans.at[index];
    const struct room_loan where = {.offset = loan->offset, .round = loan->round, .index = index};
    uint64_t words[ROOM_LOAN / sizeof(uint64_t)];
    const struct weir_bytes bytes = {words, sizeof(words)};
    struct room_head head = {.tag = tag, .length = (uint32_t)length, .loan = true};
    if (!outbox_room(&stream->outbox, ROOM_LOAN))
        return DIRECT_NOT;
    room_loan_encode(&where, words);
    if (put_in_place(engine, peer, stream, qp, &head, &bytes, 1, sizeof(words)) != WEIR_OK)
        return DIRECT_NOT;
    loan->state = LOAN_LENT;
    engine->stats.messages_lent++;
    return WEIR_OK;
}

int direct_lend(weir_engine *engine, struct peer *peer, const struct request *request) {
    struct stream *stream = stream_find(engine, peer, request->inbox);
    uint64_t length = request->parts->length;
    if (!is_lent(engine, stream, request->loan, length) || stream->waiting.head != NONE ||
        lend(engine, peer, stream, peer->fast_qp->qp, request->loan, length,
             request->options.notify_tag) != WEIR_OK)
        return DIRECT_NOT;
    count_sent(engine, length);
    return WEIR_OK;
}

bool direct_lend_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                         const struct transfer *transfer) {
    if (peer->live == NONE || !is_lent(engine, stream, transfer->loan, transfer->message_length))
        return false;
    struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    return qp_is_usable(qp) && lend(engine, peer, stream, qp->qp, transfer->loan,
                                    transfer->message_length, transfer->tag) == WEIR_OK;
}
