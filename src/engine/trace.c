/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: see trace.h. Owns the clock of records: the environment's, which all processes of this
 * host have. Called by who has the engine. */
#include "trace.h"

enum {
    CALM_MS = 1000, /* without it: then it begins */
    MOST = 32 /* words of one peer, and of all visitors, that are recorded in a second: a crowd of
               * them, or one that says two in turn, is not all that there is */
};
_Static_assert(TRACE_qp_refuses - TRACE_no_credits + 1 == TRACE_OFTEN_KINDS, "they are together");

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

/* By the coarse clock of the last look. */
bool trace_often(const weir_engine *engine, struct peer *peer, enum trace_kind kind) {
    uint32_t *last = &peer->often_ms[kind - TRACE_no_credits];
    uint32_t now = (uint32_t)(engine->look_tick / 1000000) | 1, before = *last;
    *last = now;
    return before == 0 || now - before >= CALM_MS;
}

/* Whether one more is recorded in this second. */
static bool one_more(const weir_engine *engine, struct trace_rate *rate) {
    uint32_t second = (uint32_t)(engine->look_tick / UINT64_C(1000000000));
    if (rate->second != second)
        rate->count = 0;
    rate->second = second;
    return rate->count++ < MOST;
}

bool trace_is_new(const weir_engine *engine, struct peer *peer, enum trace_kind kind, uint64_t type,
                  uint64_t epoch) {
    uint64_t *last = &peer->words_last[kind == TRACE_said], word = type << 56 ^ epoch;
    bool is_new = *last != word;
    *last = word;
    return is_new && one_more(engine, &peer->words);
}

bool trace_visitors(weir_engine *engine) {
    return one_more(engine, &engine->visits);
}
