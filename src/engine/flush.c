/* SPDX-License-Identifier: Apache-2.0 */
/* flush.c: waits for the ends of all that was submitted before.
 *
 * Owns the engine's `era`, which counts the flushes that have begun. Each record carries the era in
 * which it was filled, so a flush knows what was submitted before it by one comparison, and a
 * submit does nothing more for it than to copy a word; one that is done in its call has no record,
 * and copies none. A flush goes over the records once: one that is not waited for any more never is
 * again, since its next use has a later era. So what is submitted meanwhile keeps no flush waiting,
 * and between two records the flush sleeps as weir_transfer_wait does.
 */
#include "agenda.h"
#include "own.h"
#include "records.h"
#include "sleep.h"
#include "step.h"
#include "tables.h"

enum { WALK = 4096 }; /* records that are looked at while others wait for the engine */

struct flush {
    uint64_t peer_id; /* 0: all peers */
    uint64_t mark;    /* the last era that counts */
    uint32_t next;    /* records before it are not waited for */
};

/* Any thread. With the engine, what else the end of the transfer brings is there, too. */
static bool is_unfinished(weir_engine *engine, const struct flush *flush) {
    const struct transfer *transfer = &engine->transfers[flush->next];
    return atomic_load_explicit(&transfer->status, memory_order_acquire) == WEIR_EINPROGRESS &&
           atomic_load_explicit(&transfer->era, memory_order_relaxed) <= flush->mark;
}

static bool is_over(weir_engine *engine, uint64_t what) {
    return !is_unfinished(engine, (const struct flush *)(uintptr_t)what);
}

/* With the engine. The peer that the flush is about, whatever its work is under now. */
static int find_peer(weir_engine *engine, const struct flush *flush, struct peer **peer_out) {
    *peer_out = NULL;
    if (flush->peer_id == 0)
        return WEIR_OK;
    struct peer *peer = peer_find(engine, flush->peer_id);
    if (peer == NULL)
        return WEIR_ESTALE;
    *peer_out = peer_resolve(engine, peer);
    return WEIR_OK;
}

static bool is_of(weir_engine *engine, const struct flush *flush, const struct peer *peer) {
    return peer == NULL ||
           peer_resolve(engine, peer_at(engine, engine->transfers[flush->next].peer)) == peer;
}

/* With the engine. On to the first record that is waited for: EINPROGRESS. OK: there is none any
 * more. EAGAIN: others may want the engine. */
static int walk(weir_engine *engine, struct flush *flush) {
    struct peer *peer;
    int rc = find_peer(engine, flush, &peer);
    if (rc != WEIR_OK)
        return rc;
    if (atomic_load_explicit(&engine->submitted, memory_order_relaxed) != 0)
        engine_step(engine, false);
    if ((peer != NULL ? peer->waits : engine->waits) == 0)
        return WEIR_OK;
    for (uint32_t i = 0; flush->next < engine->options.transfers_max; i++, flush->next++) {
        if (i == WALK)
            return WEIR_EAGAIN;
        if (is_unfinished(engine, flush) && is_of(engine, flush, peer))
            return WEIR_EINPROGRESS;
    }
    return WEIR_OK;
}

static int walk_alone(weir_engine *engine, struct flush *flush) {
    int rc;
    do {
        own_enter(engine);
        rc = walk(engine, flush);
        own_leave(engine);
    } while (rc == WEIR_EAGAIN);
    return rc;
}

static int flush_all(weir_engine *engine, uint64_t peer_id, uint64_t timeout_ns) {
    uint64_t began = engine_clock(engine);
    struct flush flush = {.peer_id = peer_id, .mark = atomic_fetch_add(&engine->era, 1)};
    int rc;
    while ((rc = walk_alone(engine, &flush)) == WEIR_EINPROGRESS) {
        uint64_t passed = engine_clock(engine) - began;
        rc = engine_wait_until(engine, passed < timeout_ns ? timeout_ns - passed : 0, is_over,
                               (uint64_t)(uintptr_t)&flush);
        if (rc != WEIR_OK)
            return rc;
    }
    return rc;
}

int weir_peer_flush(weir_engine *engine, weir_peer peer, uint64_t timeout_ns) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    return peer.id != 0 ? flush_all(engine, peer.id, timeout_ns) : WEIR_ESTALE;
}

int weir_engine_flush(weir_engine *engine, uint64_t timeout_ns) {
    if (engine == NULL)
        return WEIR_EINVAL;
    return engine->forked ? WEIR_ECLOSED : flush_all(engine, 0, timeout_ns);
}
