/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h: the entries of peers, and the handles that name them. */
#ifndef WEIR_ENGINE_TABLES_H
#define WEIR_ENGINE_TABLES_H

#include "state.h"
#include <sched.h>

/* Submitters read the tables of memory and peers without the engine. The tables change only under
 * both the engine and this lock, so either is enough to read them. */
static inline void tables_lock(weir_engine *engine) {
    while (atomic_exchange_explicit(&engine->tables_lock, 1, memory_order_acquire) != 0)
        sched_yield();
}
static inline void tables_unlock(weir_engine *engine) {
    atomic_store_explicit(&engine->tables_lock, 0, memory_order_release);
}

/* The peer that a handle names; NULL: none. Needs the engine or tables_lock, as peer_resolve. */
struct peer *peer_find(weir_engine *engine, uint64_t id);
/* The peer itself, or the one that it turned out to be, until that one is GONE. */
struct peer *peer_resolve(weir_engine *engine, struct peer *peer);
/* Likewise, and until that one has drained. */
struct peer *peer_linked(weir_engine *engine, struct peer *peer);
/* An event about the peer, under the handle that the application knows it by; 0: none. */
void peer_tell(weir_engine *engine, weir_event_type type, struct peer *peer, int error,
               uint64_t value);
/* The stall of the peer that was told is over, if one was: RESUMED. GONE ends it by itself. */
void peer_resumed(weir_engine *engine, struct peer *peer);
/* The application has heard of the handle that the peer is known by now. */
static inline void peer_told(struct peer *peer) {
    if (peer->handle == peer->id)
        peer->told = TOLD;
}
/* Whether it has. */
static inline bool peer_is_told(const struct peer *peer) {
    return peer->handle != peer->id || peer->told == TOLD;
}
/* The handle of its stalls. Of one that is leaving events carried a handle that is gone; work is
 * for the next one at its address, which the entry's own handle names. */
static inline uint64_t peer_stall_handle(const struct peer *peer) {
    return peer_is_leaving(peer) ? peer->id : peer->handle;
}
/* Nothing is outstanding of what is stalled: RESUMED is told with the next step. */
void peer_stall_ends(weir_engine *engine, struct peer *peer);
/* Nothing for the peer is outstanding now: what comes in later steps is new work to the watchdog,
 * also if there is some before it looks. */
static inline void peer_idle(weir_engine *engine, struct peer *peer) {
    if (peer->waits > peer->talk.speaking || peer->watch.idle_step != 0)
        return;
    peer->watch.idle_step = engine->steps;
    if (__builtin_expect(peer->watch.told != 0, 0))
        peer_stall_ends(engine, peer);
}
bool address_dialable(const char *address);

struct peer *peer_new(weir_engine *engine, const char *address);
struct peer *peer_by_address(weir_engine *engine, const char *address);
uint32_t peer_open_alias(const weir_engine *engine, const struct peer *known);

/* Decides anew whether transfers to the peer go the fast way. */
void peer_update_fast(weir_engine *engine, struct peer *peer);
/* New transfers go the long way: peer_update_fast. */
static inline void peer_not_fast(struct peer *peer) {
    peer->fast_qp = NULL;
    peer->posts_at_once = false;
}
/* It is known who answers at the address of the peer, or that nobody does. */
void peer_proven(weir_engine *engine, struct peer *peer);

/* The descriptor by which a peer imports memory of ours. */
int local_describe(weir_engine *engine, uint64_t id, struct wire_descriptor *out);

/* Nothing is begun with this memory any more: every transfer with it is ESTALE. */
void remote_make_stale(weir_engine *engine, struct region_remote *remote);
void peer_remotes_pass(weir_engine *engine, uint64_t party, const uint8_t *instance, uint64_t heir);
void peer_party_change(weir_engine *engine, struct peer *peer);
void peer_disown(weir_engine *engine, struct peer *peer);

/* Transfers that wait to be posted. */
static inline uint32_t peer_pending(const struct peer *peer) {
    return peer->lists[LIST_PENDING].count + peer->credit_waits;
}
/* Something waits for a session, and asks for one. */
static inline bool peer_wants_session(const weir_engine *engine, const struct peer *peer) {
    return peer->lists[LIST_PENDING].count > 0 || peer->room_waits > 0 || peer->rings > 0 ||
           peer->wanted ||
           (!peer->naming.mute &&
            asked_next(&engine->names.asked, peer_index(engine, peer)) != GROUPS_NONE);
}
/* Transfers may be what breaks this peer's sessions: one chain is under way at a time. */
static inline bool peer_is_suspicious(const struct peer *peer) {
    return peer->suspects > 0 || peer->trouble_breaks >= BREAKS_SHARED;
}
/* Something came through. */
static inline void peer_trouble_over(struct peer *peer) {
    peer->trouble_ns = 0;
    peer->trouble_breaks = 0;
}

#endif
