/* SPDX-License-Identifier: Apache-2.0 */
/* stall.c: QPs that stand still: they have work, do none of it, and do not fail.
 *
 * A reliable connection answers for every work request: it completes, or fails when its retries
 * are over (IBA 1.5, 9.7.6.1.3). A device that loses count leaves the QP in RTS for ever, with all
 * work posted to it, and no peer can tell. So a QP is given up if its oldest outstanding run is the
 * same for stall_timeout_ns, and a microsecond for each byte in flight anywhere. Its session breaks
 * as if the target did not answer, and its transfers go on with the next one.
 *
 * Owns when to look, and what was seen at the last look. Looking costs nothing while nothing is
 * outstanding; the first post after that tells sleeping threads. A look that comes late, because
 * no thread made progress or the machine stood still, counts as two looks' time at most. Leaves to
 * others: QPs that connect (the endpoint's time-outs) or drain (drain.h). */
#include "stall.h"

#include "agenda.h"
#include "cause.h"
#include "inflight.h"
#include "notes.h"
#include "trace.h"

enum {
    LOOKS = 8,         /* in stall_timeout_ns */
    NS_PER_BYTE = 1000 /* 1 MB/s */
};

static uint64_t period(const weir_engine *engine) {
    return engine->options.stall_timeout_ns / LOOKS + 1;
}

/* Nothing was posted since nothing was outstanding. */
static bool at_rest(const weir_engine *engine) {
    return engine->stats.posts == engine->stall_posts;
}

uint64_t stall_deadline(const weir_engine *engine) {
    if (at_rest(engine))
        return UINT64_MAX;
    return engine->stall_next_ns != 0 ? engine->stall_next_ns : engine_now(engine) + period(engine);
}

static bool is_watched(const struct qp *qp) {
    return qp_carries(qp) && qp->session != NONE && qp->ledger.used > 0;
}

/* Whether it has stood still for too long. */
static bool look_at(const weir_engine *engine, const struct qp *qp, struct stall *stall,
                    uint64_t passed_ns) {
    if (stall->head != qp->ledger.head) {
        *stall = (struct stall){.head = qp->ledger.head};
        return false;
    }
    stall->still_ns += passed_ns;
    if (stall->bytes < inflight_bytes(engine))
        stall->bytes = inflight_bytes(engine);
    return stall->still_ns >= engine->options.stall_timeout_ns + stall->bytes * NS_PER_BYTE;
}

static void give_up(weir_engine *engine, const struct qp *qp) {
    struct peer *peer = peer_at(engine, qp->peer);
    uint32_t number = qp->session;
    if (peer->sessions[number].retired)
        return;
    engine->stats.stalls++;
    TRACE_PEER(engine, qp_still, peer, 0, qp_index(engine, qp), 0);
    cause_unanswered(engine, peer, number);
    note_broken(engine, peer, number);
}

static void look(weir_engine *engine, uint64_t passed_ns) {
    uint64_t posts = engine->stats.posts;
    bool rest = true;
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i)) {
        struct stall *stall = &engine->stalls[i];
        if (!is_watched(&engine->qps[i])) {
            stall->head = UINT64_MAX;
            continue;
        }
        rest = false;
        if (look_at(engine, &engine->qps[i], stall, passed_ns))
            give_up(engine, &engine->qps[i]);
    }
    if (rest)
        engine->stall_posts = posts;
}

static void looked(weir_engine *engine, uint64_t now) {
    engine->stall_last_ns = now;
    engine->stall_next_ns = now + period(engine);
    engine->stall_polled = engine->polled;
}

/* Something was posted after a rest: from here on there are looks, and deadlines for them. */
__attribute__((noinline, cold)) void stall_begin(weir_engine *engine) {
    if (engine->stall_next_ns == 0)
        looked(engine, engine_now(engine));
    work_begun(engine);
    engine->posts_seen = true;
    engine->worked = true;
}

/* emptied: the completion queue was, just now. A completion from before the last look may wait in
 * it, until it was emptied or as many completions were taken since as it has room for. */
void stall_look(weir_engine *engine, bool emptied) {
    if (at_rest(engine))
        return;
    uint64_t now = engine_now(engine), most_ns = 2 * period(engine);
    if (engine->stall_next_ns == 0) {
        looked(engine, now);
        return;
    }
    if (now < engine->stall_next_ns ||
        (!emptied && engine->polled - engine->stall_polled < engine->caps.cq_capacity))
        return;
    uint64_t passed_ns = now - engine->stall_last_ns;
    look(engine, passed_ns < most_ns ? passed_ns : most_ns);
    looked(engine, now);
    if (at_rest(engine)) {
        engine->stall_next_ns = 0;
        engine->posts_seen = false;
    }
}
