/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: the memory that follows from an engine's limits.
 *
 * Owns the one arena that all tables of an engine lie in: its size, the place of each table, and
 * their initial state. The arena is taken at open.
 */
#include "layout.h"

#include "engine.h"
#include "found.h"
#include "names.h"
#include "power.h"
#include "records.h"

/* Hands out pieces of the arena, or, without one, only adds them up. */
struct carver {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t size) {
    void *piece = carver->base != NULL ? carver->base + carver->used : NULL;
    carver->used += (count * size + 63) & ~(size_t)63;
    return piece;
}

/* QPs in use and as many again on their way out. */
uint32_t qps_wanted(const weir_engine_options *options) {
    uint64_t qps = (uint64_t)options->peers_max * options->qp_count * 2;
    return qps < 8 ? 8 : qps > 65000 ? 65000 : (uint32_t)qps;
}

/* Takes, or measures, all that the limits call for. */
static void layout(weir_engine *e, struct carver *c) {
    const weir_engine_options *o = &e->options;
    /* Blocks of the pool. Each transfer has one block besides, so it takes at most one of these for
     * PLAN_BLOCK_PIECES pieces that it has. SPARE_BLOCKS are the reserve of the fast way. */
    uint32_t blocks = o->segments_max / PLAN_BLOCK_PIECES + SPARE_BLOCKS;
    e->block_count = blocks;
    e->ring_size = power_of_two(o->sq_depth * 2);
    e->recvs_per_qp = o->recv_credits + CREDIT_BESIDE;
    e->record_count = o->transfers_max + o->peers_max;
    e->transfers = carve(c, e->record_count, sizeof(struct transfer));
    e->streams_max = o->peers_max + INBOXES_MAX;
    e->streams = carve(c, e->streams_max, sizeof(struct stream));
    e->inboxes = carve(c, INBOXES_MAX, sizeof(struct inbox_entry));
    e->lendings = carve(c, LENDINGS_MAX, sizeof(struct lending *));
    e->transfer_pool.links = carve(c, o->transfers_max, sizeof(uint32_t));
    e->submit_next = carve(c, 2 * (size_t)o->transfers_max, sizeof(uint32_t));
    e->blocks = carve(c, (size_t)o->transfers_max + blocks, sizeof(struct plan_block));
    e->block_pool.links = carve(c, blocks, sizeof(uint32_t));
    e->peers_mask = power_of_two(o->peers_max) - 1;
    e->peers = carve(c, (size_t)e->peers_mask + 1, sizeof(struct peer));
    e->found_memory = carve(c, 1, found_bytes(o));
    e->names_memory = carve(c, 1, names_bytes(o));
    e->parts = carve(c, (size_t)o->peers_max * WINDOW_SIZE, sizeof(struct parts));
    e->watch_notes = carve(c, o->peers_max, sizeof(struct watch_notes));
    e->pile.count = 2 * o->peers_max;
    e->pile.qps = o->qp_count;
    e->pile.papers = carve(c, e->pile.count, EP_PAPERS_BYTES(o->qp_count));
    e->visitors_max = o->peers_max < VISITORS ? VISITORS : e->peers_mask + 1;
    e->visitors = carve(c, e->visitors_max, sizeof(struct visitor));
    e->pasts = carve(c, o->peers_max, sizeof(struct past));
    e->regions.locals = carve(c, o->memories_max, sizeof(struct region_local));
    e->regions.remotes = carve(c, (size_t)o->remotes_max + 1, sizeof(struct region_remote));
    e->qps = carve(c, e->qps_max, sizeof(struct qp));
    e->runs = carve(c, (size_t)e->qps_max * e->ring_size, sizeof(struct ledger_run));
    e->recv_bytes = carve(c, (size_t)e->qps_max * e->recvs_per_qp, MESSAGE_BYTES);
    e->send_bytes = carve(c, (size_t)e->qps_max * e->recvs_per_qp + SENDS_BESIDE, MESSAGE_BYTES);
    e->receives.buffers = carve(c, (size_t)e->qps_max * e->recvs_per_qp, sizeof(struct receive));
    e->held_max = e->qps_max * e->recvs_per_qp;
    e->held = carve(c, e->held_max, sizeof(struct held));
    e->lacks = carve(c, e->qps_max, sizeof(struct lack));
    e->stalls = carve(c, e->qps_max, sizeof(struct stall));
    e->qps_made.words = carve(c, 1, bits_bytes(e->qps_max));
    e->beacons.heads = carve(c, 1, groups_bytes(1, e->qps_max));
    e->recvs_missing = carve(c, (size_t)e->qps_max * e->recvs_per_qp, sizeof(uint16_t));
    e->timer_count = e->record_count + o->peers_max + e->qps_max + 4;
    e->timers.entries = carve(c, timers_bytes(e->timer_count), 1);
    e->chain = carve(c, CHAIN_MAX + 1, sizeof(struct weir_wr));
    e->notifications.mask = power_of_two(o->notifications_max) - 1;
    e->notifications.entries =
        carve(c, (size_t)e->notifications.mask + 1, sizeof(weir_notification));
    e->completions.mask = power_of_two(o->transfers_max) - 1;
    e->completions.entries = carve(c, (size_t)e->completions.mask + 1, sizeof(weir_completion));
    e->events.entries = carve(c, EVENTS_KEPT, sizeof(weir_event));
}

size_t engine_bytes(const weir_engine_options *options) {
    weir_engine measure = {.options = *options, .qps_max = qps_wanted(options)};
    measure.options.transfers_max++;
    struct carver carver = {0};
    layout(&measure, &carver);
    return sizeof(weir_engine) + carver.used;
}

uint64_t engine_pinned_bytes(const weir_engine_options *options) {
    uint64_t buffers = (uint64_t)qps_wanted(options) * (options->recv_credits + CREDIT_BESIDE);
    return (2 * buffers + SENDS_BESIDE) * MESSAGE_BYTES;
}

/* Makes every table as it is before anything was done: all entries free, all lists empty. */
static void start_tables(weir_engine *e) {
    const weir_engine_options *o = &e->options;
    pool_init(&e->transfer_pool, e->transfer_pool.links, o->transfers_max);
    pool_init(&e->block_pool, e->block_pool.links, e->block_count);
    for (uint32_t i = 0; i < o->transfers_max; i++) {
        atomic_init(&e->transfers[i].id, handle_first(i));
        atomic_init(&e->transfers[i].status, WEIR_ESTALE);
    }
    for (uint32_t i = 0; i < o->peers_max; i++)
        e->peers[i].next_free = i + 1 < o->peers_max ? i + 1 : NONE;
    e->peer_free_last = o->peers_max - 1;
    for (uint32_t i = 0; i < o->memories_max; i++)
        e->regions.locals[i].next_free = i + 1 < o->memories_max ? i + 1 : NONE;
    for (uint32_t i = 0; i < o->remotes_max; i++)
        e->regions.remotes[i].next_free = i + 1 < o->remotes_max ? i + 1 : NONE;
    for (uint32_t i = 0; i < e->qps_max; i++) {
        e->qps[i].next_free = i + 1 < e->qps_max ? i + 1 : NONE;
        e->qps[i].session = NONE;
    }
    bits_init(&e->qps_made, e->qps_made.words, e->qps_max);
    groups_init(&e->beacons, e->beacons.heads, 1, e->qps_max);
    found_start(e, e->found_memory);
    names_start(e, e->names_memory);
    e->regions.version = 1;
    e->regions.local_count = o->memories_max;
    e->regions.remote_count = o->remotes_max;
    e->peers_max = o->peers_max;
    receives_init(&e->receives, e->receives.buffers,
                  e->caps.srq ? e->qps_max * e->recvs_per_qp : 0);
    timers_init(&e->timers, e->timers.entries, e->timer_count);
    queue_init(&e->notifications, e->notifications.entries, sizeof(weir_notification),
               e->notifications.mask + 1);
    queue_init(&e->completions, e->completions.entries, sizeof(weir_completion),
               e->completions.mask + 1);
    queue_init(&e->events, e->events.entries, sizeof(weir_event), EVENTS_KEPT);
    e->spare_transfer = NONE;
    e->spare_blocks = PLAN_NO_BLOCK;
    e->spare_missing = SPARE_BLOCKS;
    records_refill(e);
    e->run_head = e->run_tail = NONE;
    e->self = NONE;
    e->import_next_ns = UINT64_MAX;
    e->noted_head = e->noted_tail = e->stays_head = NONE;
    e->inflight_head = e->inflight_tail = e->inflight_turn = NONE;
    e->inflight_room = (int64_t)o->inflight_bytes_max;
    e->inflight_slots = e->caps.sq_shared;
}

int layout_take(weir_engine *e) {
    struct carver carver = {0};
    layout(e, &carver);
    e->arena_bytes = carver.used;
    e->arena = e->ports.env.ops->alloc(e->ports.env.self, e->arena_bytes);
    if (e->arena == NULL)
        return WEIR_ENOMEM;
    carver = (struct carver){.base = e->arena};
    layout(e, &carver);
    start_tables(e);
    return WEIR_OK;
}

void engine_abandon(weir_engine *e) {
    struct weir_env env = e->ports.env;
    env.ops->free(env.self, e->arena, e->arena_bytes);
    env.ops->free(env.self, e, sizeof(*e));
}
