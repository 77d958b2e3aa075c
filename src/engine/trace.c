/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: see trace.h. Owns the clock of records: the environment's, which all processes of this
 * host have. Called by who has the engine. */
#include "trace.h"

__attribute__((noinline, cold)) void trace_add(weir_engine *engine, enum trace_kind kind,
                                               uint64_t handle, int error, uint64_t a, uint64_t b) {
    if (engine->recorder.memory == NULL)
        return;
    recorder_add(&engine->recorder,
                 &(struct record){.ns = engine->ports.env.ops->now(engine->ports.env.self),
                                  .handle = handle,
                                  .kind = kind,
                                  .error = error,
                                  .a = a,
                                  .b = b});
}

__attribute__((noinline, cold)) void trace_peer_add(weir_engine *engine, enum trace_kind kind,
                                                    const struct peer *peer, int error, uint64_t a,
                                                    uint64_t b) {
    if (engine->recorder.memory == NULL)
        return;
    recorder_name(&engine->recorder, peer->handle, peer->address);
    trace_add(engine, kind, peer->handle, error, a, b);
}

bool trace_often(const weir_engine *engine, struct peer *peer) {
    bool due = peer->trace_tick != engine->look_tick;
    peer->trace_tick = engine->look_tick;
    return due;
}
