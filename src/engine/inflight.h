/* SPDX-License-Identifier: Apache-2.0 */
/* inflight.h: bytes in flight, the peers that wait for them, and what a peer waits for. */
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

void inflight_push(weir_engine *engine, struct peer *peer);
void inflight_push_front(weir_engine *engine, struct peer *peer);
struct peer *inflight_pop(weir_engine *engine);
void qp_block(weir_engine *engine, struct qp *qp);
void peer_wait_over(weir_engine *engine, struct peer *peer);
void peer_waits(weir_engine *engine, struct peer *peer, enum weir_waiting_for what);
enum weir_waiting_for peer_waiting_for(const struct peer *peer);

#endif
