/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c: the peer that is this engine itself.
 *
 * It has an entry like others (peer_self), is there from then on, and has no session: transfers to
 * it take the same way as others up to their turn. What a device, a QP and the other side do for
 * another peer is done here, by the processor, in that turn: bytes are copied, a notification is
 * put into the application's queue, and the notes and words of messages are heard as if they had
 * come. So inboxes, streams, deadlines, cancels and completions are those of any peer.
 *
 *   PENDING ──copied──► its SEND is heard ──► TERMINAL
 *                │
 *                └──no room for the notification──► LIST_CREDITS ──room──► TERMINAL
 *
 * Memory of this engine's that is imported here names itself (region_remote.here): whether it is
 * still there is looked at when it is copied, as a device looks at a key.
 */
#include "loop.h"

#include "agenda.h"
#include "deliver.h"
#include "inboxes.h"
#include "lists.h"
#include "records.h"
#include "tables.h"
#include "talk.h"
#include "transfer.h"

enum {
    STEP_BYTES = 1 << 20, /* of one transfer, before the next has its turn */
    TURN_BYTES = 4 << 20  /* of all, before the engine looks at other things */
};

/* Why the piece cannot be copied; 0: it can. */
static int piece_error(const weir_engine *engine, const struct transfer *transfer,
                       const struct plan_piece *piece) {
    if (!engine->regions.locals[piece->local].mapped)
        return WEIR_EINVAL; /* a dma-buf: the processor has no address of it */
    if (transfer->kind != TRANSFER_PLAIN)
        return WEIR_OK; /* the inbox's memory goes when its senders have left */
    const struct region_remote *remote = &engine->regions.remotes[piece->remote];
    return region_local(&engine->regions, remote->here) != NULL ? WEIR_OK : WEIR_EREMOTE;
}

/* Copies what is next of the transfer. False: it was stopped. */
static bool copy(weir_engine *engine, struct transfer *transfer, uint64_t *bytes) {
    struct plan_limits limits = {.wrs_max = 1,
                                 .message_bytes_max = STEP_BYTES,
                                 .post_bytes_max = STEP_BYTES,
                                 .opcode = transfer->opcode};
    uint64_t end = *bytes + STEP_BYTES;
    while (!plan_done(&transfer->cursor) && *bytes < end) {
        const struct plan_cursor *at = &transfer->cursor;
        int error = piece_error(engine, transfer, &engine->blocks[at->block].pieces[at->piece]);
        if (error != WEIR_OK) {
            transfer_stop(engine, transfer, error);
            return false;
        }
        struct weir_wr wr;
        plan_fill(engine->blocks, &transfer->cursor, &limits, &wr, bytes);
        void *here = (void *)(uintptr_t)wr.laddr, *there = (void *)(uintptr_t)wr.raddr;
        bool is_read = transfer->opcode == WEIR_OP_READ;
        memmove(is_read ? here : there, is_read ? there : here, wr.length);
    }
    return true;
}

/* The bytes are in place: what comes behind them. */
static void hear_message(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    if (!inboxes_arrived(engine, peer, transfer->payload, transfer->notify_length, transfer->tag))
        engine->stats.data_malformed++;
    transfer_finish(engine, transfer, WEIR_OK);
}

static void hear_words(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    uint8_t words[WEIR_NOTIFY_MAX];
    uint32_t length = transfer->notify_length;
    memcpy(words, transfer->payload, length);
    transfer->epoch = peer->sessions[peer->live].epoch;
    transfer_finish(engine, transfer, WEIR_OK); /* the next words may use its record */
    if (!talk_heard(engine, peer, words, length))
        engine->stats.data_malformed++;
}

/* Notifications that came from others before have the room first. */
static bool deliver_note(weir_engine *engine, struct peer *peer, const struct transfer *transfer) {
    return engine->held_count == 0 &&
           deliver_own(engine, peer, transfer->tag, transfer->payload, transfer->notify_length);
}

/* As deliver_later: a taker that makes room sees that somebody waits, or its room is seen here. */
static void wait_for_room(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    list_remove(engine, transfer);
    list_push(engine, peer, transfer, LIST_CREDITS);
    engine->stats.credit_waits++;
    atomic_store(&engine->held_some, true);
    if (queue_room(&engine->notifications) != NULL)
        atomic_store(&engine->attention, true);
}

static void serve_one(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint64_t *bytes) {
    if (!copy(engine, transfer, bytes))
        return;
    if (!plan_done(&transfer->cursor)) {
        list_remove(engine, transfer);
        list_push(engine, peer, transfer, LIST_PENDING);
    } else if (transfer->kind == TRANSFER_WORDS) {
        hear_words(engine, peer, transfer);
    } else if (transfer->kind != TRANSFER_PLAIN) {
        hear_message(engine, peer, transfer);
    } else if (!transfer_notifies(transfer) || deliver_note(engine, peer, transfer)) {
        transfer_finish(engine, transfer, WEIR_OK);
    } else {
        wait_for_room(engine, peer, transfer);
    }
}

/* The first that waited for room goes before all that are pending. False: there is none, or no
 * room. */
static bool serve_waiter(weir_engine *engine, struct peer *peer) {
    struct list *waiters = &peer->lists[LIST_CREDITS];
    if (waiters->count == 0)
        return false;
    struct transfer *transfer = &engine->transfers[waiters->head];
    if (!deliver_note(engine, peer, transfer))
        return false;
    transfer_finish(engine, transfer, WEIR_OK);
    return true;
}

bool loop_serve(weir_engine *engine, struct peer *peer, uint64_t bytes_most) {
    uint64_t bytes = 0, most = bytes_most < TURN_BYTES ? bytes_most : TURN_BYTES;
    for (int budget = SERVICE_BUDGET; budget > 0 && bytes < most; budget--) {
        if (serve_waiter(engine, peer))
            continue;
        if (peer->lists[LIST_PENDING].count == 0)
            return false;
        serve_one(engine, peer, &engine->transfers[peer->lists[LIST_PENDING].head], &bytes);
        engine->worked = true;
    }
    return peer->lists[LIST_PENDING].count > 0 || peer->lists[LIST_CREDITS].count > 0;
}
