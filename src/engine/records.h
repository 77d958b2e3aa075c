/* SPDX-License-Identifier: Apache-2.0 */
/* records.h: the records of transfers: taken, filled, found by their handles, given back. */
#ifndef WEIR_ENGINE_RECORDS_H
#define WEIR_ENGINE_RECORDS_H

#include "agenda.h"

struct request {
    const weir_segment *segments;
    size_t count;
    uint64_t peer_id;
    weir_transfer_options options;
    const weir_part *parts; /* of a message: in place of segments */
    uint32_t inbox;
    uint32_t loan;   /* the one that the message is in, plus 1; 0 */
    uint64_t number; /* of a notification that has one already; 0 */
    uint8_t opcode;
    uint32_t access; /* that the target must grant */
    bool owned;      /* by the thread that has the engine */
    bool use_spare;
    bool more;    /* messages of the same call follow, which may share its turn */
    bool took;    /* work that others had handed over was started, of any peers */
    uint8_t full; /* enum full, behind EAGAIN */
};

bool transfer_is_suspect(const struct transfer *transfer);
bool transfer_notifies(const struct transfer *transfer);
/* It was in a session that broke. From then on it takes one step at a time: a step that is done
 * need not be done again when the next session breaks, and so each takes it further. */
static inline bool transfer_was_replayed(const struct transfer *transfer) {
    return transfer->marked;
}
bool transfer_is_one_wr(const weir_engine *engine, const struct transfer *transfer);
bool transfer_all_posted(const struct transfer *transfer);

static inline void set_waiting(struct transfer *transfer, weir_waiting_for waiting) {
    atomic_store_explicit(&transfer->waiting, (uint32_t)waiting, memory_order_relaxed);
}

/* The record that a handle names; NULL: none any more. Any thread. */
struct transfer *record_find(const weir_engine *engine, uint64_t id);
/* As weir_transfer_status. Any thread. */
int record_status(const weir_engine *engine, uint64_t id);
/* With a reference: the record is not reused until record_drop_ref. Any thread. */
struct transfer *record_get(weir_engine *engine, uint64_t id);
void record_drop_ref(weir_engine *engine, struct transfer *transfer);

static inline struct plan_block *record_block_start(weir_engine *engine, uint32_t index) {
    engine->blocks[index].next = PLAN_NO_BLOCK;
    engine->blocks[index].count = 0;
    return &engine->blocks[index];
}

/* A piece of the pair, at the end of its block. */
static inline void record_add_piece(weir_engine *engine, struct plan_block *block,
                                    const struct region_pair *pair, const weir_segment *segment) {
    uint32_t local = handle_index(segment->local.id);
    uint32_t remote = handle_index(segment->remote.id);
    block->pieces[block->count++] = (struct plan_piece){
        .laddr = pair->span.laddr + segment->local_offset,
        .raddr = pair->span.raddr + segment->remote_offset,
        .length = segment->length,
        .lkey = pair->span.lkey,
        .rkey = pair->span.rkey,
        .local = local,
        .remote = remote,
    };
    atomic_fetch_add(&engine->regions.locals[local].users, 1);
    atomic_fetch_add(&engine->regions.remotes[remote].users, 1);
}

/* The memories that the piece names are not in use by it any more. */
static inline void record_drop_piece(weir_engine *engine, const struct plan_piece *piece) {
    atomic_fetch_sub(&engine->regions.locals[piece->local].users, 1);
    atomic_fetch_sub(&engine->regions.remotes[piece->remote].users, 1);
}
void record_drop_pieces(weir_engine *engine, uint32_t index);

/* A record as it is before anything was done. */
static inline __attribute__((always_inline)) void
record_init(weir_engine *engine, struct transfer *transfer, const struct peer *peer, uint8_t opcode,
            const weir_transfer_options *options) {
    atomic_store_explicit(&transfer->refs, 2, memory_order_relaxed);
    atomic_store_explicit(&transfer->waiting, WEIR_WAITING_ENGINE, memory_order_relaxed);
    atomic_store_explicit(&transfer->cancel, false, memory_order_relaxed);
    transfer->state = TR_SUBMITTED;
    transfer->opcode = opcode;
    transfer->kind = TRANSFER_PLAIN;
    transfer->loan = 0;
    transfer->breaks = 0;
    transfer->lost = 0;
    transfer->age = 0;
    transfer->replays = 0;
    transfer->flags = options->flags;
    transfer->peer = peer_index(engine, peer);
    transfer->party = peer->party;
    transfer->version = engine->regions.version;
    transfer->outstanding = 0;
    transfer->result = 0;
    transfer->epoch = 0;
    transfer->number = 0;
    transfer->data_mask = transfer->parts_need = transfer->parts_mask = 0;
    transfer->flushed = transfer->marked = false;
    transfer->deadline_ns = UINT64_MAX;
    if (options->timeout_ns != 0) {
        uint64_t now = engine_clock(engine);
        transfer->deadline_ns =
            options->timeout_ns < UINT64_MAX - now ? now + options->timeout_ns : UINT64_MAX;
    }
    if (options->flags != 0) { /* without, nobody reads these */
        transfer->user_data = options->user_data;
        transfer->tag = options->notify_tag;
    }
    transfer->notify_length = options->notify_length;
    if (options->notify_length > 0)
        memcpy(transfer->payload, options->notify_payload, options->notify_length);
    atomic_store_explicit(&transfer->era, atomic_load_explicit(&engine->era, memory_order_relaxed),
                          memory_order_relaxed);
    /* The last: a flush that sees it unfinished sees whose it is, and since when. */
    atomic_store_explicit(&transfer->status, WEIR_EINPROGRESS, memory_order_release);
}

/* A filled record that is not yet anywhere. Needs the engine or tables_lock. */
int record_fill(weir_engine *engine, struct request *request, struct transfer **out);
/* Fills the reserve of the fast way again. */
void records_refill(weir_engine *engine);

#endif
