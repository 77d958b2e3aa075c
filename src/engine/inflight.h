/* SPDX-License-Identifier: Apache-2.0 */
/* inflight.h: bytes in flight and shared slots, the peers that wait for them, and what a peer waits
 * for. */
#ifndef WEIR_ENGINE_INFLIGHT_H
#define WEIR_ENGINE_INFLIGHT_H

#include "state.h"

#define LINE_BIAS ((int64_t)1 << 62)

/* Bytes in flight, and the most of them at any time: looked at before some come back. */
static inline uint64_t inflight_bytes(const weir_engine *engine) {
    int64_t room = engine->inflight_room + (engine->inflight_head != NONE ? LINE_BIAS : 0);
    return (uint64_t)((int64_t)engine->options.inflight_bytes_max - room);
}
static inline void inflight_peak(weir_engine *engine) {
    uint64_t bytes = inflight_bytes(engine);
    if (bytes > engine->stats.inflight_bytes_high_water)
        engine->stats.inflight_bytes_high_water = bytes;
}

/* WRs with so many payload bytes are posted; some are not under way any more. After the last of
 * those, inflight_returned. */
static inline void inflight_take(weir_engine *engine, uint32_t slots, uint64_t bytes) {
    engine->inflight_slots -= slots;
    engine->inflight_room -= (int64_t)bytes;
}
static inline void inflight_give(weir_engine *engine, uint32_t slots, uint64_t bytes) {
    engine->inflight_slots += slots;
    engine->inflight_room += (int64_t)bytes;
}
static inline void inflight_returned(weir_engine *engine) {
    engine->inflight_due = engine->inflight_head != NONE;
}
/* One in line wants something else now: the peers behind it need not wait for what it wanted. */
static inline void inflight_changed(weir_engine *engine, const struct peer *peer) {
    engine->inflight_due |= peer->inflight_waits;
}
/* Whether this many may be posted, by anybody: nobody is in line. */
static inline bool inflight_fits(const weir_engine *engine, uint64_t bytes) {
    return (int64_t)bytes <= engine->inflight_room;
}
/* Whether this peer posts data now: all do while nobody is in line, else the first there. */
static inline bool inflight_open(const weir_engine *engine, const struct peer *peer) {
    return engine->inflight_head == NONE || engine->inflight_turn == peer_index(engine, peer);
}
/* The bytes that the first in line may post besides what is in flight; one WR may be whatever its
 * length when nothing is. */
static inline uint64_t inflight_left(const weir_engine *engine) {
    uint64_t most = engine->options.inflight_bytes_max, bytes = inflight_bytes(engine);
    return bytes < most ? most - bytes : 0;
}

/* The slots that this peer may take now, of a send queue that all peers share: none while others
 * are in line, and none while the device says that there is no room. */
static inline uint32_t inflight_slots(const weir_engine *engine, const struct peer *peer) {
    if (engine->caps.sq_shared == 0)
        return UINT32_MAX;
    return inflight_open(engine, peer) && !engine->inflight_shut ? engine->inflight_slots : 0;
}
/* Whether such a queue is what there is no room in. */
static inline bool inflight_lacks_slots(const weir_engine *engine) {
    return engine->caps.sq_shared != 0 && (engine->inflight_slots == 0 || engine->inflight_shut);
}

bool inflight_shuts(weir_engine *engine);
void inflight_timer(weir_engine *engine);
void inflight_push(weir_engine *engine, struct peer *peer);
void inflight_push_front(weir_engine *engine, struct peer *peer);
struct peer *inflight_pop(weir_engine *engine);
void qp_block(weir_engine *engine, struct qp *qp);
void peer_wait_over(weir_engine *engine, struct peer *peer);
void peer_waits(weir_engine *engine, struct peer *peer, weir_waiting_for what);
weir_waiting_for peer_waiting_for(const struct peer *peer);

#endif
