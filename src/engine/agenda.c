/* SPDX-License-Identifier: Apache-2.0 */
/* agenda.c: what time it is, and what is to be done when.
 *
 * Owns the engine's clock, its timers (one for each transfer, peer and QP, one for receives, one
 * for inboxes, one for streams and one for the line of inflight.c) and the run list: the peers that
 * may be able to post. Turns and deadlines that are due are step.c's, the end of an absence is
 * look.c's.
 */
#include "agenda.h"

enum { ABSENCE_SHARE = 10 };

/* ---- the clock --------------------------------------------------------- */

uint64_t engine_clock(const weir_engine *engine) {
    return engine->ports.env.ops->now(engine->ports.env.self);
}

uint64_t engine_now(const weir_engine *engine) {
    uint64_t now = engine_clock(engine);
    return (now < engine->present_until_ns ? now : engine->present_until_ns) - engine->lost_ns;
}

uint64_t engine_patience(const weir_engine *engine) {
    uint64_t patient_ns = engine->options.connect_timeout_ns / ABSENCE_SHARE;
    return patient_ns > 0 ? patient_ns : 1; /* or no time would ever pass */
}

void engine_present(weir_engine *engine) {
    uint64_t now = engine_clock(engine), patient_ns = engine_patience(engine);
    engine->present_until_ns = now < UINT64_MAX - patient_ns ? now + patient_ns : UINT64_MAX;
}

/* ---- timers ------------------------------------------------------------ */

/* If a thread may sleep until a later deadline than this one, the sleeping threads are told. The
 * first deadline ends the time in which nothing is waited for, and no thread has to look. */
static void timer_set(weir_engine *engine, uint32_t number, uint64_t when_ns) {
    timers_set(&engine->timers, number, when_ns);
    if (engine->present_until_ns == UINT64_MAX && when_ns != UINT64_MAX)
        engine_present(engine);
    if (when_ns < engine->slept_ns)
        engine->worked = true;
}

void timer_transfer(weir_engine *engine, const struct transfer *transfer, uint64_t when_ns) {
    timer_set(engine, transfer_index(engine, transfer), when_ns);
}

void timer_peer(weir_engine *engine, const struct peer *peer, uint64_t when_ns) {
    timer_set(engine, engine->record_count + peer_index(engine, peer), when_ns);
}

void timer_qp(weir_engine *engine, const struct qp *qp, uint64_t when_ns) {
    timer_set(engine, engine->record_count + engine->peers_max + qp_index(engine, qp), when_ns);
}

void timer_receives(weir_engine *engine, uint64_t when_ns) {
    timer_set(engine, engine->timer_count - 1, when_ns);
}

void timer_inboxes(weir_engine *engine, uint64_t when_ns) {
    timer_set(engine, engine->timer_count - 2, when_ns);
}

void timer_streams(weir_engine *engine, uint64_t when_ns) {
    timer_set(engine, engine->timer_count - 3, when_ns);
}

void timer_line(weir_engine *engine, uint64_t when_ns) {
    timer_set(engine, engine->timer_count - 4, when_ns);
}

void timer_own(weir_engine *engine, const struct transfer *transfer) {
    uint64_t when_ns = transfer->deadline_ns;
    if (when_ns != UINT64_MAX)
        when_ns = when_ns > engine->lost_ns ? when_ns - engine->lost_ns : 0;
    timer_transfer(engine, transfer, when_ns);
}

/* ---- work that begins -------------------------------------------------- */

enum { WATCH_LOOKS = 8 }; /* in watchdog_ns */

uint64_t watch_period(const weir_engine *engine) {
    return engine->options.watchdog_ns / WATCH_LOOKS + 1;
}

/* Threads that sleep may have no deadline for a look: they are told. */
__attribute__((noinline, cold)) void watch_begin(weir_engine *engine) {
    if (engine->options.watchdog_ns == WEIR_WATCHDOG_NONE) {
        engine->watch_next_ns = UINT64_MAX;
        return;
    }
    engine->watch_last_ns = engine_clock(engine);
    engine->watch_gap_ns = 0;
    engine->watch_next_ns = engine->watch_last_ns + watch_period(engine);
    engine->worked = true;
}

/* ---- the run list ------------------------------------------------------ */

void run_later(weir_engine *engine, struct peer *peer) {
    if (peer->runnable)
        return;
    uint32_t index = peer_index(engine, peer);
    peer->runnable = true;
    peer->run_next = NONE;
    if (engine->run_tail == NONE)
        engine->run_head = index;
    else
        engine->peers[engine->run_tail].run_next = index;
    engine->run_tail = index;
}

struct peer *run_next(weir_engine *engine) {
    struct peer *peer = &engine->peers[engine->run_head];
    engine->run_head = peer->run_next;
    if (engine->run_head == NONE)
        engine->run_tail = NONE;
    peer->runnable = false;
    return peer;
}
