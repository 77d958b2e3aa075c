/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: the order of work in one step of the engine.
 *
 * Owns that order, and which module is called when a deadline or a turn comes. A step is made by
 * the thread that has the engine (own.h).
 */
#include "step.h"

#include "agenda.h"
#include "complete.h"
#include "effects.h"
#include "inboxes.h"
#include "inflight.h"
#include "look.h"
#include "records.h"
#include "recv.h"
#include "session.h"
#include "streams.h"
#include "transfer.h"
#include "turns.h"

/* Starts the transfers that other threads left, and does their cancels, in the order of arrival. */
bool step_take_submitted(weir_engine *engine) {
    if (atomic_load_explicit(&engine->submitted, memory_order_relaxed) == 0)
        return false;
    uint32_t newest = atomic_exchange(&engine->submitted, 0);
    uint32_t oldest = 0;
    while (newest != 0) {
        uint32_t next =
            atomic_load_explicit(&engine->submit_next[newest - 1], memory_order_relaxed);
        atomic_store_explicit(&engine->submit_next[newest - 1], oldest, memory_order_relaxed);
        oldest = newest;
        newest = next;
    }
    while (oldest != 0) {
        uint32_t entry = oldest - 1, records = engine->options.transfers_max;
        oldest = atomic_load_explicit(&engine->submit_next[entry], memory_order_relaxed);
        if (entry < records) {
            engine->stats.submit_queued++;
            struct peer *peer = transfer_start(engine, &engine->transfers[entry], false);
            if (peer != NULL)
                run_later(engine, peer);
        } else {
            transfer_cancel(engine, &engine->transfers[entry - records]);
            record_drop_ref(engine, &engine->transfers[entry - records]);
        }
    }
    return true;
}

/* Each peer that was runnable when this began gets one turn. */
static bool run_peers(weir_engine *engine) {
    if (engine->run_head == NONE)
        return false;
    uint32_t last = engine->run_tail, index;
    do {
        index = engine->run_head;
        turns_next(engine, engine->post_bytes_max);
    } while (index != last && engine->run_head != NONE);
    return true;
}

/* looked: at everything, in this step. */
static int run_timers(weir_engine *engine, bool looked) {
    uint64_t next = timers_next(&engine->timers);
    uint32_t number;
    int count = 0;
    if (next == UINT64_MAX || next > engine_now(engine) ||
        !look_before_deadlines(engine, looked, &count))
        return count;
    uint64_t now = engine_now(engine);
    /* Bounded: a timer that is set again for now may be taken again, but not without end. */
    uint32_t most = engine->timers.used;
    while (most-- > 0 && timers_take(&engine->timers, now, &number)) {
        count++;
        if (number < engine->record_count) {
            transfer_timer(engine, &engine->transfers[number]);
            continue;
        }
        number -= engine->record_count;
        if (number < engine->peers_max)
            effects_timer(engine, &engine->peers[number]);
        else if (number - engine->peers_max < engine->qps_max)
            session_qp_timer(engine, &engine->qps[number - engine->peers_max]);
        else if (number - engine->peers_max == engine->qps_max)
            inflight_timer(engine);
        else if (number - engine->peers_max == engine->qps_max + 1)
            streams_look(engine);
        else if (number - engine->peers_max == engine->qps_max + 2)
            inboxes_look(engine);
        else
            recv_timer(engine);
    }
    return count;
}

static bool nothing_in_use(const weir_engine *engine) {
    return engine->qps_made.count == 0;
}

/* A device that failed is given back when its last QP is gone: the system may wait to remove it. */
static void let_go(weir_engine *engine) {
    const struct weir_device_ops *ops = engine->device_ops;
    if (!nothing_in_use(engine) || (ops->let_go != NULL && ops->let_go(engine->device) != WEIR_OK))
        return;
    atomic_store(&engine->device_gone, true);
    engine->worked = true;
}

/* One round of everything. slow: look at control channel and async events too, which
 * cost system calls; otherwise only when that is due. Returns how much was done. */
int engine_step(weir_engine *engine, bool slow) {
    engine->steps++;
    int done = step_take_submitted(engine) ? 1 : 0;
    int budget = (int)engine->options.poll_budget;
    int polled = complete_poll(engine, budget);
    look_perform(engine);
    bool looks = look_is_due(engine) || slow;
    done += polled;
    if (looks) {
        done += look_at_all(engine, budget - polled);
        if (engine->device_failed && !atomic_load(&engine->device_gone))
            let_go(engine);
    }
    if (atomic_load_explicit(&engine->attention, memory_order_relaxed)) {
        atomic_store(&engine->attention, false);
        complete_held(engine);
        done++;
    }
    if (engine->draining > 0) {
        session_poll_marks(engine);
        look_perform(engine);
    }
    int timers = run_timers(engine, looks);
    if (timers > 0)
        look_perform(engine);
    done += timers;
    if (engine->inflight_due) {
        turns_inflight(engine);
        done++;
    }
    if (run_peers(engine))
        done++;
    look_perform(engine);
    if (engine->streams_watched > 0 && inboxes_watch_all(engine))
        done++;
    if (!engine->spare_ready)
        records_refill(engine);
    if (done > 0)
        engine->worked = true;
    return done;
}
