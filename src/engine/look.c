/* SPDX-License-Identifier: Apache-2.0 */
/* look.c: when control channel and asynchronous events are looked at, what time counts, and when
 * deadlines may pass.
 *
 * To look at everything costs system calls. So most steps look at completions only. A step looks at
 * all if it is asked to, is the SLOW_EVERY-th since the last that did, or comes a tick of the
 * coarse clock later: an application that makes progress ten times a second looks at all of it each
 * time.
 *
 * A deadline is about what did not come. Arrivals while nobody looked are looked at first: a step
 * in which one is due looks at all, and no deadline passes before a look has found the end of it,
 * or, when there is always more, before as much was looked at as can have been there when the
 * deadline was seen to have passed. A step takes several looks for that, so that an application
 * which comes seldom, or takes few completions in a step, does not put deadlines off for long; and
 * not all of them, so that it gets what came in between.
 *
 * A break is performed once the control channel was looked at since it was noted. A peer that
 * leaves says BYE, and takes its QPs down then. The break is often found first, by a post or a
 * completion, and BYE has arrived by that time: it says that nothing broke. So each break costs one
 * look at the channel, and at the device's events, wherever it was found; and no more than
 * LOOKS_A_STEP, when others keep the channel full.
 *
 * Nor can others be blamed for time in which nobody was here to answer them, or to ask again. The
 * engine's time (engine_now) stands still while it is absent: from a tenth of connect_timeout_ns
 * after the last look, or after the first timer was set if nothing was waited for. So the engine's
 * time-outs take ten looks, at least, however seldom they come. Deadlines of transfers
 * are the application's own affair, and go by its clock: the engine's is put behind it by lost_ns.
 */
#include "look.h"

#include "agenda.h"
#include "complete.h"
#include "control.h"
#include "effects.h"
#include "engine.h"
#include "notes.h"
#include "session.h"
#include "stall.h"
#include "watchdog.h"

enum { MESSAGES_WAITING = 16, LOOKS_A_STEP = 16 };

/* ---- absence ----------------------------------------------------------- */

void look_begin(weir_engine *engine) {
    engine_present(engine);
    engine->looked_ns = engine_clock(engine);
}

/* While anything is waited for, a sleep is at most half as long as the absence that counts, and no
 * absence by itself. While nothing is, time passes until something is (agenda.c). */
uint64_t engine_next_deadline(weir_engine *engine) {
    uint64_t most = engine_clock(engine) + engine_patience(engine) / 2, next = 0;
    if (engine->run_head == NONE && !notes_waiting(engine) && !engine->inflight_due &&
        atomic_load(&engine->submitted) == 0 && !atomic_load(&engine->attention)) {
        uint64_t timer = timers_next(&engine->timers), stall = stall_deadline(engine);
        next = timer < stall ? timer : stall;
        if (next != UINT64_MAX)
            next += engine->lost_ns;
        uint64_t watch = watchdog_deadline(engine);
        next = next < watch ? next : watch;
        if (next != UINT64_MAX && next > most)
            next = most;
    }
    engine_present(engine);
    engine->rests = true; /* until something arrives: ask.c */
    if (next == UINT64_MAX)
        engine->present_until_ns = UINT64_MAX;
    return next;
}

/* Time was lost: sets the timers anew that are transfers' own deadlines. The timer of a parked
 * transfer bounds something else, and a transfer that is told to end has no deadline. */
static void deadlines_again(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->options.transfers_max; i++) {
        const struct transfer *transfer = &engine->transfers[i];
        if (transfer->deadline_ns != UINT64_MAX &&
            (transfer->state == TR_PENDING || transfer->state == TR_POSTED))
            timer_own(engine, transfer);
    }
}

static void come_back(weir_engine *engine) {
    uint64_t now = engine_clock(engine);
    engine->away_ns = engine->rests ? 0 : now - engine->looked_ns;
    engine->looked_ns = now;
    engine->rests = false;
    if (now > engine->present_until_ns) {
        engine->lost_ns += now - engine->present_until_ns;
        deadlines_again(engine);
    }
    engine_present(engine);
}

/* ---- looking ----------------------------------------------------------- */

/* All events of the device's that there are: a few of each QP, at most. */
static void hear_device(weir_engine *engine) {
    uint32_t most = 2 * engine->qps_max / ASYNC_BATCH + 1;
    while (most-- > 0 && session_async(engine) == ASYNC_BATCH) {
    }
}

/* Breaks were noted. The device may know that the peers are dead, too: its events name QPs, so they
 * are taken before the QPs of the sessions are gone. Connections that have ended tell of other
 * breaks, of which the device knows by then. */
static void ask_why(weir_engine *engine) {
    hear_device(engine);
    effects_perform(engine);
    for (int looks = 0; looks < LOOKS_A_STEP; looks++) {
        if (control_poll(engine, CONTROL_BUDGET) < CONTROL_BUDGET)
            break;
    }
    hear_device(engine);
    notes_asked(engine);
}

void look_perform_all(weir_engine *engine) {
    while (notes_waiting(engine)) {
        if (engine->noted_break)
            ask_why(engine);
        effects_perform(engine);
    }
}

bool look_is_due(weir_engine *engine) {
    uint64_t tick = engine->ports.env.ops->coarse(engine->ports.env.self);
    if (engine->has_fd && tick == engine->look_tick && ++engine->look_turn < SLOW_EVERY)
        return false;
    engine->look_tick = tick;
    engine->look_turn = 0;
    return true;
}

int look_at_all(weir_engine *engine, int budget) {
    come_back(engine);
    bool emptied = false;
    int polled = complete_rest(engine, budget, &emptied);
    look_perform(engine);
    int events = session_async(engine);
    look_perform(engine);
    int control = control_poll(engine, CONTROL_BUDGET);
    stall_look(engine, emptied);
    look_perform(engine);
    watchdog_look(engine, emptied);
    engine->look_ended = emptied && events < ASYNC_BATCH && control < CONTROL_BUDGET;
    return polled + events + control;
}

/* How many looks it takes, at their budgets, to see all that may wait at one time. */
static uint64_t looks_most(const weir_engine *engine) {
    uint64_t entries = (uint64_t)engine->qps_used * (engine->ring_size + engine->recvs_per_qp);
    uint64_t messages = ((uint64_t)engine->peers_used + engine->visitors_max) * MESSAGES_WAITING;
    return 2 + entries / engine->options.poll_budget + messages / CONTROL_BUDGET;
}

bool look_before_deadlines(weir_engine *engine, bool looked, int *done) {
    if (!looked)
        *done += look_at_all(engine, (int)engine->options.poll_budget);
    uint64_t most = looks_most(engine);
    for (int looks = 0; !engine->look_ended && ++engine->looks_behind < most; looks++) {
        if (looks == LOOKS_A_STEP) {
            *done += 1; /* there is more to do now */
            return false;
        }
        *done += look_at_all(engine, (int)engine->options.poll_budget);
    }
    engine->looks_behind = 0;
    return true;
}
