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

/* Parts of a message, if it has more than one, and of all that are written at once. */
enum { PARTS = 16, PARTS_ALL = 4 * PARTS };

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

/* Their length in all; UINT64_MAX: they are left to others. before: parts that there are in `out`.
 */
static __attribute__((noinline)) uint64_t find_parts(const weir_engine *engine,
                                                     const weir_part *parts, size_t count,
                                                     struct weir_bytes *out, size_t before) {
    uint64_t length = 0;
    bool registered = true;
    if (count > PARTS || before > PARTS_ALL - PARTS || count > engine->options.segments_max ||
        (parts == NULL && count > 0))
        return UINT64_MAX;
    out += before;
    for (size_t i = 0; i < count; i++) {
        if (!find_part(engine, &parts[i], &out[i], &registered) ||
            out[i].length > ROOM_LENGTH_MAX - length)
            return UINT64_MAX;
        length += out[i].length;
    }
    return registered || length <= WEIR_MESSAGE_COPY_MAX ? length : UINT64_MAX;
}

/* Likewise, of a message, which mostly has one part. */
static inline uint64_t find(const weir_engine *engine, const weir_outgoing *message,
                            struct weir_bytes *out, size_t before) {
    const weir_part *part = message->parts;
    if (message->part_count != 1 || part == NULL || part->local.id != 0 || part->base == NULL ||
        part->length > WEIR_MESSAGE_COPY_MAX)
        return find_parts(engine, part, message->part_count, out, before);
    out[before] = (struct weir_bytes){(const uint8_t *)part->base + part->offset, part->length};
    return part->length;
}

static inline void count_sent(weir_engine *engine, uint32_t count, uint64_t bytes) {
    engine->stats.transfers_ok += count;
    engine->stats.transfers_inline += count;
    engine->stats.messages_sent += count;
    engine->stats.message_bytes_sent += bytes;
}

/* Whether messages may be written to the stream's inbox. */
static inline bool is_reached(const weir_engine *engine, const struct stream *stream) {
    return stream != NULL && stream->state == STREAM_MET && stream->imported &&
           engine->device_ops->post_direct != NULL;
}

/* The QP that messages to the peer are written over, whatever is pending there: they take no slots,
 * and their order is their stream's. NULL: none, now. */
static __attribute__((noinline)) struct weir_qp *qp_of(const weir_engine *engine,
                                                       const struct peer *peer) {
    if (peer->live == NONE || peer->proving || peer->loop || engine->closing)
        return NULL;
    const struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    return qp_is_usable(qp) ? qp->qp : NULL;
}
static inline struct weir_qp *qp_soon(const weir_engine *engine, const struct peer *peer) {
    return __builtin_expect(peer->fast_qp != NULL, 1) ? peer->fast_qp->qp : qp_of(engine, peer);
}

/* Whether the receiver has granted one of the stream's chunks again without a word: then messages
 * have room there from now on. */
static bool renew(weir_engine *engine, const struct peer *peer, struct stream *stream) {
    struct outbox *outbox = &stream->outbox;
    struct weir_qp *qp = is_reached(engine, stream) ? qp_of(engine, peer) : NULL;
    uint64_t words[ROOM_RENEWAL_WORDS];
    struct room_grant grant;
    uint32_t chunk;
    for (uint32_t i = 0; qp != NULL && outbox_had(outbox, i, &chunk); i++) {
        uint64_t line =
            stream->rmr.raddr + room_watch(outbox->chunk_bytes, outbox->chunk_count, chunk);
        if (engine->device_ops->read_direct(qp, stream->rmr.rkey, line + sizeof(uint64_t), words,
                                            ROOM_RENEWAL_WORDS) != WEIR_OK)
            return false;
        if (room_renewal_read(words, outbox_renewal_number(outbox), chunk, &grant))
            return outbox_renew(outbox, &grant);
    }
    return false;
}

bool direct_room(weir_engine *engine, const struct peer *peer, struct stream *stream,
                 uint32_t length) {
    return outbox_room(&stream->outbox, length) ||
           (renew(engine, peer, stream) && outbox_room(&stream->outbox, length));
}

/* Accounts for messages that were written to the place that is filled next: together they are so
 * long in the room. watch: as it was read behind them. */
static inline __attribute__((always_inline)) void put_done(weir_engine *engine, struct peer *peer,
                                                           struct stream *stream,
                                                           struct outbox_place *place,
                                                           uint32_t bytes, uint64_t watch) {
    /* With the first message of a place, those in front of it are shut. */
    bool ahead = outbox_halves(&stream->outbox, place, bytes);
    bool tells = place->used == 0 && outbox_shuts_now(&stream->outbox);
    outbox_fill(place, bytes);
    if (ahead && outbox_is_last(&stream->outbox) && !renew(engine, peer, stream))
        stream->ahead_due = tells = true;
    if (watch != place->grant.place && !stream->look_due) {
        stream->look_due = true;
        tells = true;
    }
    if (tells)
        streams_tell(engine, peer);
    else if (!place->grant.keep)
        run_later(engine, peer); /* that turn shuts it, if no more is put there by then */
}

/* Where so many bytes behind the ones in a place are written. */
static inline struct weir_direct_to direct_to(const struct stream *stream,
                                              const struct outbox_place *place, uint32_t bytes) {
    const struct outbox *outbox = &stream->outbox;
    uint32_t chunk = place->grant.chunk;
    return (struct weir_direct_to){
        .raddr = stream->rmr.raddr + (uint64_t)chunk * outbox->chunk_bytes + place->used,
        .length = bytes,
        .watch = stream->rmr.raddr + room_watch(outbox->chunk_bytes, outbox->chunk_count, chunk),
        .rkey = stream->rmr.rkey};
}

/* Writes messages, which together are so long in the room, to the place that is filled next. There
 * is room for them. False: nothing was done. */
static inline __attribute__((always_inline)) bool
put(weir_engine *engine, struct peer *peer, struct stream *stream, struct outbox_place *place,
    struct weir_qp *qp, const struct weir_direct *directs, uint32_t count, uint32_t bytes) {
    const struct weir_direct_to to = direct_to(stream, place, bytes);
    uint64_t watch;
    if (engine->device_ops->post_direct(qp, &to, directs, count, &watch) != WEIR_OK)
        return false;
    put_done(engine, peer, stream, place, bytes, watch);
    return true;
}

/* The message, of `count` parts, so far behind the next one that goes to the place. */
static inline __attribute__((always_inline)) struct weir_direct
direct_at(const struct outbox_place *place, uint32_t behind, struct room_head *head,
          uint32_t length, const struct weir_bytes *parts, uint32_t count) {
    struct weir_direct direct = {.parts = parts,
                                 .count = count,
                                 .at = behind,
                                 .payload = (uint64_t)behind + room_payload(length)};
    head->mark = room_mark(place->grant.secret, place->used + behind);
    room_head_words(head, direct.words);
    return direct;
}

/* A message of one part and few bytes, which has room: send_to with less to find out. False: it is
 * another. */
static inline __attribute__((always_inline)) bool send_short(weir_engine *engine, struct peer *peer,
                                                             struct stream *stream,
                                                             struct weir_qp *qp,
                                                             const weir_outgoing *message) {
    const weir_part *part = message->parts;
    struct outbox *outbox = &stream->outbox;
    struct outbox_place *place = outbox_filling(outbox);
    if (message->part_count != 1 || part == NULL || part->local.id != 0 || part->base == NULL ||
        part->length > ROOM_NEAR || part->length > stream->message_bytes_max ||
        !outbox_fits(outbox, place, ROOM_LINE))
        return false;
    uint32_t length = (uint32_t)part->length;
    const struct weir_bytes bytes = {(const uint8_t *)part->base + part->offset, length};
    struct room_head head = {.tag = message->tag, .length = length};
    const struct weir_direct direct = direct_at(place, 0, &head, length, &bytes, 1);
    if (!put(engine, peer, stream, place, qp, &direct, 1, ROOM_LINE))
        return false;
    stream->passed = stream->turns;
    count_sent(engine, 1, length);
    return true;
}

static __attribute__((noinline)) uint32_t send_to(weir_engine *engine, struct peer *peer,
                                                  struct stream *stream, struct weir_qp *qp,
                                                  const weir_outgoing *messages, uint32_t most) {
    struct weir_direct directs[DIRECT_MESSAGES];
    struct weir_bytes bytes[PARTS_ALL + DIRECT_MESSAGES];
    struct outbox *outbox = &stream->outbox;
    struct outbox_place *place = NULL;
    uint64_t left = engine->post_bytes_max, longest = stream->message_bytes_max;
    uint32_t done = 0, taken = 0, room = 0;
    size_t parts = 0;
    for (; done < most; done++) {
        const weir_outgoing *message = &messages[done];
        uint64_t length = find(engine, message, bytes, parts);
        if (length > longest || length > left)
            break;
        if (done == 0 && direct_room(engine, peer, stream, (uint32_t)length)) {
            place = outbox_filling(outbox);
            room = outbox->chunk_bytes - place->used;
        }
        uint32_t takes = room_bytes((uint32_t)length);
        if (room - taken < takes)
            break;
        struct room_head head = {.tag = message->tag, .length = (uint32_t)length};
        directs[done] = direct_at(place, taken, &head, (uint32_t)length, bytes + parts,
                                  (uint32_t)message->part_count);
        parts += message->part_count;
        taken += takes;
        left -= length;
    }
    if (done == 0) {
        if (outbox->filling > 0)
            streams_tell(engine, peer); /* places that were closed over it are to be shut */
        return 0;
    }
    if (!put(engine, peer, stream, place, qp, directs, done, taken))
        return 0;
    stream->passed = stream->turns;
    count_sent(engine, done, engine->post_bytes_max - left);
    return done;
}

uint32_t direct_send(weir_engine *engine, struct peer *peer, uint32_t inbox,
                     const weir_outgoing *messages, size_t count) {
    struct stream *stream = stream_find(engine, peer, inbox);
    struct weir_qp *qp = qp_soon(engine, peer);
    if (qp == NULL || !is_reached(engine, stream) || stream->waiting.head != NONE)
        return 0;
    if (count == 1 && send_short(engine, peer, stream, qp, messages))
        return 1;
    return send_to(engine, peer, stream, qp, messages,
                   count < DIRECT_MESSAGES ? (uint32_t)count : DIRECT_MESSAGES);
}

/* A short message is copied for less than the receiver takes to give it back. */
static bool is_lent(const weir_engine *engine, const struct stream *stream, uint32_t loan,
                    uint64_t length) {
    uint32_t index;
    return is_reached(engine, stream) && length > WEIR_MESSAGE_COPY_MAX &&
           length <= stream->message_bytes_max &&
           lending_is_read(engine, lending_of(engine, loan, &index), stream);
}

static bool lend(weir_engine *engine, struct peer *peer, struct stream *stream, struct weir_qp *qp,
                 uint32_t number, uint64_t length, uint64_t tag) {
    uint32_t index;
    struct lending *lending = lending_of(engine, number, &index);
    struct loan *loan = &lending->loans.at[index];
    const struct room_loan where = {.offset = loan->offset, .round = loan->round, .index = index};
    uint64_t words[ROOM_LOAN / sizeof(uint64_t)];
    const struct weir_bytes bytes = {words, sizeof(words)};
    struct room_head head = {.tag = tag, .length = (uint32_t)length, .loan = true};
    if (!direct_room(engine, peer, stream, ROOM_LOAN))
        return false;
    room_loan_encode(&where, words);
    struct outbox_place *place = outbox_filling(&stream->outbox);
    const struct weir_direct direct = direct_at(place, 0, &head, ROOM_LOAN, &bytes, 1);
    if (!put(engine, peer, stream, place, qp, &direct, 1, room_bytes(ROOM_LOAN)))
        return false;
    loan->state = LOAN_LENT;
    engine->stats.messages_lent++;
    return true;
}

bool direct_lend(weir_engine *engine, struct peer *peer, const struct request *request) {
    struct stream *stream = stream_find(engine, peer, request->inbox);
    uint64_t length = request->parts->length;
    struct weir_qp *qp = qp_soon(engine, peer);
    if (qp == NULL || !is_lent(engine, stream, request->loan, length) ||
        stream->waiting.head != NONE ||
        !lend(engine, peer, stream, qp, request->loan, length, request->options.notify_tag))
        return false;
    stream->passed = stream->turns;
    count_sent(engine, 1, length);
    return true;
}

bool direct_lend_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                         const struct transfer *transfer) {
    struct weir_qp *qp = qp_of(engine, peer);
    return qp != NULL && is_lent(engine, stream, transfer->loan, transfer->message_length) &&
           lend(engine, peer, stream, qp, transfer->loan, transfer->message_length, transfer->tag);
}

/* Where the bytes of a message that waits are in this process. -1: not in it, or in too many parts.
 */
static int waiting_parts(const weir_engine *engine, const struct transfer *transfer,
                         struct weir_bytes bytes[PARTS]) {
    int count = 0;
    if (transfer->notify_length > WORD_NOTE_SIZE)
        bytes[count++] = (struct weir_bytes){transfer->payload + WORD_NOTE_SIZE,
                                             transfer->notify_length - WORD_NOTE_SIZE};
    for (uint32_t b = transfer_index(engine, transfer); b != PLAN_NO_BLOCK;
         b = engine->blocks[b].next) {
        for (uint32_t i = 0; i < engine->blocks[b].count; i++) {
            const struct plan_piece *piece = &engine->blocks[b].pieces[i];
            if (count == PARTS || !engine->regions.locals[piece->local].mapped)
                return -1;
            bytes[count++] =
                (struct weir_bytes){(const uint8_t *)(uintptr_t)piece->laddr, piece->length};
        }
    }
    return count;
}

bool direct_put_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                        const struct transfer *transfer) {
    struct weir_bytes bytes[PARTS];
    uint32_t length = transfer->message_length;
    struct weir_qp *qp = qp_of(engine, peer);
    if (qp == NULL || !is_reached(engine, stream) || length > engine->post_bytes_max)
        return false;
    int count = waiting_parts(engine, transfer, bytes);
    if (count < 0)
        return false;
    struct outbox_place *place = outbox_filling(&stream->outbox);
    struct room_head head = {.tag = transfer->tag, .length = length};
    const struct weir_direct direct = direct_at(place, 0, &head, length, bytes, (uint32_t)count);
    return put(engine, peer, stream, place, qp, &direct, 1, room_bytes(length));
}
