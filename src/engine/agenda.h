/* SPDX-License-Identifier: Apache-2.0 */
/* agenda.h: what time it is, and what is to be done when. */
#ifndef WEIR_ENGINE_AGENDA_H
#define WEIR_ENGINE_AGENDA_H

#include "state.h"

/* Of the environment. Any thread. */
uint64_t engine_clock(const weir_engine *engine);
/* The engine's own time, which its time-outs go by: it stands still while nobody looks (look.h). */
uint64_t engine_now(const weir_engine *engine);
/* The absence that counts: a tenth of connect_timeout_ns. */
uint64_t engine_patience(const weir_engine *engine);
/* Somebody looks now: time passes for as long as an absence counts. */
void engine_present(weir_engine *engine);

/* Sets the timer of each to when_ns of engine_now; UINT64_MAX: never. When it is due, step.c calls
 * the module that owns it. */
void timer_transfer(weir_engine *engine, const struct transfer *transfer, uint64_t when_ns);
void timer_peer(weir_engine *engine, const struct peer *peer, uint64_t when_ns);
void timer_qp(weir_engine *engine, const struct qp *qp, uint64_t when_ns);
void timer_receives(weir_engine *engine, uint64_t when_ns);
void timer_inboxes(weir_engine *engine, uint64_t when_ns);
void timer_streams(weir_engine *engine, uint64_t when_ns);
void timer_line(weir_engine *engine, uint64_t when_ns);
/* The transfer's timer is its own deadline, which is the application's. */
void timer_own(weir_engine *engine, const struct transfer *transfer);

/* Between two looks of the watchdog's. */
uint64_t watch_period(const weir_engine *engine);
/* Work begins: the watchdog looks from now on. */
void watch_begin(weir_engine *engine);
static inline void work_begun(weir_engine *engine) {
    if (__builtin_expect(engine->watch_next_ns == 0, 0))
        watch_begin(engine);
}

/* Nothing of the application's is outstanding to the peer. */
static inline bool watch_is_idle(const struct peer *peer) {
    return peer->waits <= peer->talk.speaking;
}

/* Nothing was outstanding to the peer, and the application has submitted: a stillness may begin
 * now. hasty: by the coarse clock, which may be COARSE_NS behind. */
#define COARSE_NS UINT64_C(10000000)
static inline void watch_begun(const weir_engine *engine, struct peer *peer, bool hasty) {
    struct watch *watch = &peer->watch;
    watch->begun_ns = hasty ? engine->ports.env.ops->coarse(engine->ports.env.self) + COARSE_NS
                            : engine_clock(engine);
    watch->begun_ended = peer->ended;
    watch->begun_completed = peer->completed;
    watch->idle_step = 0;
}

/* A run of the transfer, or a part of one, completed: see watchdog.c. */
static inline void watch_run(struct peer *peer, const struct transfer *transfer) {
    bool ours = transfer->kind >= TRANSFER_SKIP; /* the engine's own */
    peer->completed += !ours;
    peer->moved += !ours && transfer->turn_begun != peer->watch.turn;
}

/* The peer may be able to post: it has a turn behind those on the run list. */
void run_later(weir_engine *engine, struct peer *peer);
/* The first on the run list, which is not empty, off it. */
struct peer *run_next(weir_engine *engine);

#endif
