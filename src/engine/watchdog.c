/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c: peers for which work is outstanding, and none of it completes.
 *
 * Owns when STALLED and RESUMED are told. What completes is counted where it is found; a look
 * compares the counts with the last look's, so that work pays an increment or two. Transfers that
 * end well count (`ended`), and so do runs of transfers that had begun when a look saw one ended
 * last (`moved`): one that is long moves on. The data of a notified write that was submitted since
 * says nothing about those that wait for credits: its notification will wait behind them.
 * There is a look in each eighth of watchdog_ns while anything is outstanding anywhere, and none
 * else: the first work after that begins them (watch_begin in agenda.h). Stillness counts from the
 * look that saw the last completion, or, where nothing was outstanding to the peer, from the submit
 * that found it so (watch_begun): the application may go away right behind that. So STALLED is
 * never early, and at most two looks late, where there is a cause.
 *
 * Time in which nobody looked is this engine's own fault. When as much as half of a stall is one
 * such time, that is its cause, and when it is watchdog_ns or more, it is told even if the late
 * look finds that all had completed meanwhile: in that step, and not before (idle_step). A look
 * counts as late from LATE_NS on: steps between two looks at everything may take as long as a tick
 * of the coarse clock (look.c).
 *
 * A look is worth something when whatever had completed by the last one is taken up. An engine
 * that takes up less than comes never gets there. After half of watchdog_ns it looks all the same,
 * and a stall that such a look finds is this engine's own, and told that much later at most.
 *
 * When half of watchdog_ns has passed, the peer is asked how it is (ask.c), so that there is its
 * word, or its silence, by the time that STALLED is told. The device's counts are noted then,
 * too: the difference is the stall's.
 *
 * A look may come upon work that is about to be posted, as in the step in which a session comes up
 * at last. That is no cause, and the stall may be over: it is told with the next look that finds
 * one, or a watchdog_ns later without.
 *
 * The clock is the environment's and not engine_now, which stands still in just those times.
 * Leaves to others: what the work waits for (diagnose.c), QPs that are given up (stall.c). */
#include "watchdog.h"

#include "agenda.h"
#include "ask.h"
#include "diagnose.h"
#include "news.h"
#include "tables.h"
#include "trace.h"

#define LATE_NS UINT64_C(20000000)
enum { PUT_OFF_MAX = 8 /* looks, of which watchdog_ns has as many */ };

/* False: it is not told yet, since work is about to be posted. */
static bool tell(weir_engine *engine, struct peer *peer) {
    struct watch *watch = &peer->watch;
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    diagnose(engine, peer, &info);
    if (info.cause == WEIR_STALL_TURN && watch->put_off < PUT_OFF_MAX) {
        watch->put_off++;
        return false;
    }
    watch->put_off = 0;
    if (info.cause == WEIR_STALL_NONE) { /* it completed before the late look that tells of it */
        info.cause = WEIR_STALL_HERE;
        info.absent_ns = watch->absent_ns;
    }
    watch->told = peer_stall_handle(peer);
    watch->stalls++;
    watch->notes->last = info;
    watch->notes->step = diagnose_handshake(peer);
    watch->lasted_ns = 0;
    engine->stats.peer_stalls++;
    news_event(engine, WEIR_EVENT_STALLED, watch->told, info.error, info.cause);
    return true;
}

/* Whether the application knows the handle that STALLED would carry. */
static bool may_tell(const struct peer *peer) {
    return peer_is_leaving(peer) ? peer->refs > 0 : peer_is_told(peer);
}

/* Nothing has completed for watchdog_ns: whose fault it is, for as long as the next verdict takes.
 */
static void judge(weir_engine *engine, struct peer *peer, uint64_t now, bool behind) {
    struct watch *watch = &peer->watch;
    bool ours = watch->gap_ns >= LATE_NS && watch->gap_ns >= engine->options.watchdog_ns / 2;
    watch->absent_ns = ours ? watch->gap_ns : 0;
    watch->behind = behind && !ours;
    watch->gap_ns = 0;
    watch->from_ns = now;
    /* An application that closed its handles of the peer, and has heard of no other, hears nothing
     * of a stall either. Other events need the second half of the queue. Else it is told with the
     * next verdict. */
    if (watch->told == 0 && may_tell(peer) &&
        queue_count(&engine->events) <= engine->events.mask / 2 && !tell(engine, peer))
        watch->from_ns = now - engine->options.watchdog_ns; /* with the next look */
}

/* Counts from now on are of this stillness. */
static void count_from(weir_engine *engine, struct watch_counts *counts, uint64_t now) {
    if (counts->at_ns != 0)
        return;
    *counts = (struct watch_counts){.at_ns = now, .polled = engine->polled};
    counts->device = diagnose_counts(engine, &counts->of_device);
}

/* A look, as it is for every peer. */
struct look {
    uint64_t now, last_ns; /* this one, and the last one that anybody made at all */
    bool late;             /* nobody has looked for as long as a stall takes */
    bool behind;           /* completions have waited for half as long */
};

static bool is_late(const weir_engine *engine, uint64_t gap_ns) {
    return gap_ns >= LATE_NS && gap_ns - LATE_NS >= engine->options.watchdog_ns;
}

/* Something is outstanding, and nothing of it has completed since then. gap_ns: nobody has looked
 * for so long meanwhile. */
static void still_from(struct peer *peer, uint64_t from_ns, uint64_t gap_ns) {
    struct watch *watch = &peer->watch;
    watch->works = true;
    watch->moved_ns = watch->from_ns = from_ns;
    watch->gap_ns = gap_ns;
    watch->absent_ns = 0;
    watch->behind = false;
    watch->put_off = 0;
    watch->sessions_up = peer->sessions_up;
    if (watch->counted)
        watch->notes->counts.at_ns = 0;
    watch->counted = false;
    ask_over(peer);
}

/* All had ended, and the outstanding work began since the last look of this file. If any of it has
 * completed since, that may be just now, unless nobody looked. */
static void still_since_begun(const weir_engine *engine, struct peer *peer,
                              const struct look *look) {
    struct watch *watch = &peer->watch;
    uint64_t from_ns = watch->begun_ns < look->now ? watch->begun_ns : look->now;
    uint64_t unseen_ns = from_ns > look->last_ns ? from_ns : look->last_ns;
    bool late = is_late(engine, look->now - unseen_ns);
    watch->ended = watch->begun_ended;
    watch->moved = peer->moved;
    watch->turn++;
    if (peer->completed != watch->begun_completed && !late)
        from_ns = unseen_ns = look->now;
    still_from(peer, from_ns, look->now - unseen_ns);
}

/* True: work is outstanding. */
static bool look_at(weir_engine *engine, struct peer *peer, const struct look *look) {
    struct watch *watch = &peer->watch;
    uint64_t now = look->now;
    bool works = diagnose_works(engine, peer), begun = watch->begun_ns != 0, late = look->late;
    bool idle = watch->idle_step != 0 && watch->idle_step != engine->steps;
    if (begun || idle) { /* what there is, is new */
        peer_resumed(engine, peer);
        watch->works = false;
    }
    if (begun && !idle) {
        still_since_begun(engine, peer, look);
        late = is_late(engine, watch->gap_ns);
    } else if (watch->works && engine->watch_gap_ns > watch->gap_ns) {
        watch->gap_ns = engine->watch_gap_ns;
    }
    watch->begun_ns = watch->idle_step = 0;
    bool ended = peer->ended != watch->ended, moved = ended || peer->moved != watch->moved;
    watch->ended = peer->ended;
    watch->moved = peer->moved;
    if (watch->works && (moved || !works) && late && watch->told == 0)
        judge(engine, peer, now, false);
    if (moved || !works)
        peer_resumed(engine, peer);
    if (!works) {
        watch->works = false;
        return false;
    }
    if (moved || !watch->works) {
        watch->turn += ended || !watch->works;
        still_from(peer, now, 0);
        return true;
    }
    if (now - watch->moved_ns >= engine->options.watchdog_ns / 2) {
        ask_peer(engine, peer, now);
        count_from(engine, &watch->notes->counts, now);
        watch->counted = true;
    }
    if (now - watch->from_ns >= engine->options.watchdog_ns)
        judge(engine, peer, now, look->behind);
    return true;
}

void watchdog_look(weir_engine *engine, bool emptied) {
    if (engine->watch_next_ns == 0)
        return;
    uint64_t now = engine_clock(engine), gap_ns = now - engine->watch_last_ns;
    struct look look = {.now = now, .last_ns = engine->watch_last_ns};
    engine->watch_last_ns = now;
    if (gap_ns >= LATE_NS && gap_ns >= engine->options.watchdog_ns / 2)
        TRACE(engine, away, 0, 0, gap_ns, 0);
    if (gap_ns > engine->watch_gap_ns)
        engine->watch_gap_ns = gap_ns;
    /* A completion from before the last look may wait in the queue, as in stall.c. Behind a time
     * without looks that is long enough it makes no difference. */
    look.late = is_late(engine, gap_ns);
    if (now < engine->watch_next_ns)
        return;
    look.behind = !emptied && engine->polled - engine->watch_polled < engine->caps.cq_capacity;
    uint64_t since_ns = engine->watch_next_ns - watch_period(engine);
    if (look.behind && !look.late && now - since_ns < engine->options.watchdog_ns / 2)
        return;
    bool works = false;
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id != 0 && (peer->waits > 0 || peer->watch.works || peer->watch.begun_ns != 0))
            works |= look_at(engine, peer, &look);
    }
    engine->watch_gap_ns = 0;
    engine->watch_polled = engine->polled;
    engine->watch_next_ns = works ? now + watch_period(engine) : 0;
    engine->posts_seen &= works;
}
