/* SPDX-License-Identifier: Apache-2.0 */
/* recv.c: receives on their way to the device, and those that it refused.
 *
 * Owns when a buffer is posted: all of a new QP's, and one for each that came back. A receive that
 * the device refuses is missing, and is tried again on one timer of the engine's, after pauses that
 * double from RECV_RETRY_NS to RECV_RETRY_NS_MOST while nothing is taken. Without a shared queue
 * each QP knows which of its buffers are missing; a shared one knows how many it wants
 * (receives.h).
 *
 * Meanwhile no message is sent that would find no receive. The credit of a message goes back when a
 * receive was posted in place of the one that it took; until then it is kept. Nor are notifications
 * sent on QPs whose queue lacks receives: the peer answers them with credit messages, which take
 * receives and no credits. The notifications that were sent before are answered by two credit
 * messages at most. If the missing receive is one that a credit message took, one more may come,
 * since that message told of half a window. CREDIT_RESERVE is for these.
 *
 * A shared queue is short while fewer are posted than the QPs that live brought. QPs that go
 * down take no more messages, so the receives that they brought are there for the others. Only
 * while it is short are credits kept and notifications held (recv_short). It may become short again
 * at any time, however long the device has refused by then. So:
 *  - what the peers may send, by the credits that they have, never exceeds the receives that are
 *    posted (engine_verify);
 *  - while it is not short, no QP that lives lacks a receive or keeps a credit;
 *  - while it is, each message of which no receive was posted in its place is counted at its QP,
 *    credit messages too, so that the QPs whose receives are missing are known.
 *
 * A session ends over this only if its receives are refused for good (EINVAL), or if the device
 * took none for connect_timeout_ns. With a shared queue the sessions whose receives are missing end
 * then. All end if no receive is left in the queue, or if the missing ones are no session's. The
 * others go on as soon as the queue is not short without those that ended.
 */
#include "recv.h"

#include "agenda.h"
#include "notes.h"

/* A receive's sequence is {life:31, buffer:13}: RECV_BUFFER_BITS. */
_Static_assert(CREDIT_WINDOW_MAX + CREDIT_BESIDE <= 1 << RECV_BUFFER_BITS,
               "every buffer has a name");

#define RECV_RETRY_NS      UINT64_C(1000000)
#define RECV_RETRY_NS_MOST UINT64_C(100000000)
/* The refusals in one call after which the device is left alone for now. A QP may need hundreds of
 * receives, and must not fail because a few were refused for a moment. */
enum { REFUSALS_MAX = 16 };

static uint64_t recv_seq(const struct qp *qp, uint32_t buffer) {
    return (qp->life & RECV_LIFE_MASK) << RECV_BUFFER_BITS | buffer;
}

static int post(weir_engine *engine, struct qp *qp, uint32_t buffer) {
    uint64_t wr_id = engine->caps.srq
                         ? route_id(ROUTE_RECV, ROUTE_QP_SRQ, buffer)
                         : route_id(ROUTE_RECV, qp_index(engine, qp), recv_seq(qp, buffer));
    int rc = engine->device_ops->post_recv(engine->device, engine->caps.srq ? NULL : qp->qp, wr_id,
                                           recv_buffer(engine, qp, buffer), MESSAGE_BYTES,
                                           engine->recv_mr.lkey);
    if (rc == WEIR_OK && !engine->caps.srq)
        qp->recvs++;
    else if (rc == WEIR_OK)
        receives_posted(&engine->receives, buffer);
    else if (engine->caps.srq)
        receives_free(&engine->receives, buffer);
    return rc;
}

/* The device refused a receive: sets the timer, unless it is set. */
static void try_later(weir_engine *engine) {
    if (engine->recv_pause_ns != 0)
        return;
    engine->recv_pause_ns = RECV_RETRY_NS;
    timer_receives(engine, engine_now(engine) + RECV_RETRY_NS);
    engine->worked = true; /* a sleeper's time-out may have to be shorter now */
}

/* ---- credits ----------------------------------------------------------- */

static void credits_back(weir_engine *engine, struct qp *qp, enum credit_class class,
                         uint32_t count) {
    qp->credit.taken[class] += count;
    if (credit_owed(&qp->credit)) {
        qp->credit_due = true;
        run_later(engine, peer_at(engine, qp->peer));
    }
}

/* Up to `count` receives were posted for messages of qp: as many of its kept credits go back. */
static void give_kept(weir_engine *engine, struct qp *qp, uint32_t count) {
    struct lack *lack = lack_of(engine, qp);
    for (uint32_t c = 0; c < CREDIT_CLASSES; c++) {
        uint32_t given = lack->credits[c] < count ? lack->credits[c] : count;
        lack->credits[c] -= given;
        count -= given;
        if (given > 0)
            credits_back(engine, qp, (enum credit_class)c, given);
    }
}

/* Holds the messages on qp: with windows of 0 it has no credits. */
static void hold(const weir_engine *engine, struct qp *qp) {
    struct lack *lack = lack_of(engine, qp);
    if (lack->window == 0) {
        lack->window = qp->credit.window_remote[CREDIT_NOTES];
        qp->credit.window_remote[CREDIT_NOTES] = qp->credit.window_remote[CREDIT_WORDS] = 0;
    }
}

static void go_on(weir_engine *engine, struct qp *qp) {
    struct lack *lack = lack_of(engine, qp);
    if (lack->window == 0)
        return;
    qp->credit.window_remote[CREDIT_NOTES] = (uint16_t)lack->window;
    qp->credit.window_remote[CREDIT_WORDS] = CREDIT_WORDS_WINDOW;
    lack->window = 0;
    run_later(engine, peer_at(engine, qp->peer));
}

/* qp is connected, and has its window. */
void recv_connected(const weir_engine *engine, struct qp *qp) {
    lack_of(engine, qp)->window = 0;
    if (engine->recv_short || lack_of(engine, qp)->recvs > 0)
        hold(engine, qp);
}

/* ---- a shared queue ---------------------------------------------------- */

/* Receives for messages of qp are missing. */
static bool misses(const weir_engine *engine, const struct qp *qp) {
    return qp_lives(qp) && lack_of(engine, qp)->recvs > 0;
}

/* Up to `count` of the receives that are missing were posted. */
static void give_shared(weir_engine *engine, uint32_t count) {
    for (uint32_t i = qp_first(engine); i != BITS_NONE && count > 0; i = qp_after(engine, i)) {
        struct qp *qp = &engine->qps[i];
        struct lack *lack = lack_of(engine, qp);
        if (!misses(engine, qp))
            continue;
        uint32_t given = lack->recvs < count ? lack->recvs : count;
        lack->recvs -= given;
        count -= given;
        give_kept(engine, qp, given);
    }
}

/* Holds the notifications of every connected QP, or lets them go on. */
static void shared_short(weir_engine *engine, bool held) {
    if (engine->recv_short == held)
        return;
    engine->recv_short = held;
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i)) {
        struct qp *qp = &engine->qps[i];
        if (!qp_carries(qp))
            continue;
        if (held)
            hold(engine, qp);
        else
            go_on(engine, qp);
    }
}

/* No QP that lives lacks a receive: the credits that were kept go back, and notifications go on. */
static void release_shared(weir_engine *engine) {
    engine->recv_refused_ns = 0;
    if (!engine->recv_short)
        return;
    give_shared(engine, UINT32_MAX);
    shared_short(engine, false);
}

/* Receives are missing: decides whether the QPs that live lack any. `made`: the QPs that are being
 * made, which go again if they do not get theirs. */
static void reckon_shared(weir_engine *engine, uint32_t made) {
    uint32_t posted = engine->receives.lists[RECEIVE_POSTED].count;
    uint32_t others = (engine->draining + made) * engine->recvs_per_qp;
    if (posted + others >= engine->receives.wanted) {
        release_shared(engine);
        return;
    }
    if (engine->recv_refused_ns == 0)
        engine->recv_refused_ns = engine_now(engine);
    shared_short(engine, true);
}

/* Posts what the shared queue lacks, until so many were refused in all. Returns the last
 * refusal, or EAGAIN for want of buffers, or OK: it has what it wants. */
static int fill_shared(weir_engine *engine, int refusals_max, uint32_t made, uint32_t *posted_out) {
    int rc = WEIR_EAGAIN;
    int refused = 0;
    uint32_t buffer;
    *posted_out = 0;
    while (refused < refusals_max && (buffer = receives_take(&engine->receives)) != RECEIVES_NONE) {
        int posted = post(engine, NULL, buffer);
        refused += posted != WEIR_OK; /* the buffer is free again, and its turn comes */
        rc = posted != WEIR_OK ? posted : WEIR_EAGAIN;
        *posted_out += posted == WEIR_OK;
    }
    bool wants = receives_short(&engine->receives);
    if (__builtin_expect(wants && refused == refusals_max, 0)) {
        try_later(engine);
        if (*posted_out > 0)
            engine->recv_refused_ns = 0;
        reckon_shared(engine, made);
    } else if (__builtin_expect(engine->recv_pause_ns != 0, 0)) {
        engine->recv_pause_ns = 0;
        timer_receives(engine, UINT64_MAX);
        release_shared(engine);
    }
    return wants ? rc : WEIR_OK;
}

/* False: a receive is missing in place of this one. */
static bool return_shared(weir_engine *engine, uint32_t buffer) {
    uint32_t posted;
    receives_free(&engine->receives, buffer);
    /* Posts also those that were refused before; if the device still refuses, one try will do. */
    fill_shared(engine, engine->recv_pause_ns != 0 ? 1 : REFUSALS_MAX, 0, &posted);
    if (__builtin_expect(!engine->recv_short, 1))
        return true;
    if (posted > 1)
        give_shared(engine, posted - 1);
    return posted > 0;
}

/* The device takes no receives: ends the sessions whose receives are missing, or all of them. */
static void give_up_shared(weir_engine *engine) {
    bool all = true;
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i))
        all &= !misses(engine, &engine->qps[i]);
    all |= engine->receives.lists[RECEIVE_POSTED].count == 0;
    engine->recv_refused_ns = 0;
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i)) {
        struct qp *qp = &engine->qps[i];
        if (qp_lives(qp) && (all || misses(engine, qp)))
            note_broken(engine, peer_at(engine, qp->peer), qp->session);
    }
}

/* QPs go down: the QPs that go on may lack nothing any more. */
void recv_fewer(weir_engine *engine) {
    if (engine->recv_short)
        reckon_shared(engine, 0);
}

/* True: something was posted, or nothing is missing any more. */
static bool retry_shared(weir_engine *engine) {
    uint32_t posted;
    int rc = fill_shared(engine, REFUSALS_MAX, 0, &posted);
    if (engine->recv_pause_ns == 0)
        return true;
    give_shared(engine, posted);
    if (engine->recv_short && (rc == WEIR_EINVAL || engine_now(engine) - engine->recv_refused_ns >=
                                                        engine->options.connect_timeout_ns))
        give_up_shared(engine);
    return posted > 0;
}

/* ---- queues of the QPs' own -------------------------------------------- */

/* The buffers of qp that are missing: the first lack_of(qp)->recvs here. */
static uint16_t *missing_of(const weir_engine *engine, const struct qp *qp) {
    return engine->recvs_missing + (size_t)(qp - engine->qps) * engine->recvs_per_qp;
}

static int post_all_own(weir_engine *engine, struct qp *qp) {
    int refused = 0;
    for (uint32_t i = 0; i < engine->recvs_per_qp && refused < REFUSALS_MAX;) {
        int rc = post(engine, qp, i);
        if (rc == WEIR_EINVAL)
            return rc;
        refused += rc != WEIR_OK;
        i += rc == WEIR_OK;
    }
    return refused < REFUSALS_MAX ? WEIR_OK : WEIR_EAGAIN;
}

static bool return_own(weir_engine *engine, struct qp *qp, uint32_t life, uint32_t buffer) {
    if (!qp_lives_still(qp, life))
        return false;
    struct lack *lack = lack_of(engine, qp);
    int rc = post(engine, qp, buffer);
    if (rc == WEIR_OK)
        return true;
    if (rc == WEIR_EINVAL) {
        note_broken(engine, peer_at(engine, qp->peer), qp->session);
        return false;
    }
    if (lack->recvs == 0)
        lack->refused_ns = engine_now(engine);
    missing_of(engine, qp)[lack->recvs++] = (uint16_t)buffer;
    hold(engine, qp);
    try_later(engine);
    return false;
}

/* Posts what qp lacks; true: something was posted. */
static bool retry_own(weir_engine *engine, struct qp *qp) {
    struct lack *lack = lack_of(engine, qp);
    bool any = false;
    int rc = WEIR_OK;
    while (lack->recvs > 0 && rc == WEIR_OK) {
        rc = post(engine, qp, missing_of(engine, qp)[lack->recvs - 1]);
        if (rc != WEIR_OK)
            break;
        any = true;
        lack->recvs--;
        lack->refused_ns = engine_now(engine);
        give_kept(engine, qp, 1);
    }
    if (lack->recvs == 0)
        go_on(engine, qp);
    if (rc == WEIR_EINVAL || (rc != WEIR_OK && engine_now(engine) - lack->refused_ns >=
                                                   engine->options.connect_timeout_ns))
        note_broken(engine, peer_at(engine, qp->peer), qp->session);
    return any;
}

/* Whether any QP lacks receives still. */
static bool retry_each(weir_engine *engine, bool *any_out) {
    bool missing = false;
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i)) {
        struct qp *qp = &engine->qps[i];
        if (!qp_lives(qp) || lack_of(engine, qp)->recvs == 0)
            continue;
        *any_out |= retry_own(engine, qp);
        missing |= lack_of(engine, qp)->recvs > 0;
    }
    return missing;
}

/* ---- both -------------------------------------------------------------- */

/* All receives of a new QP; with a shared queue, as many more as it brings, or fewer when it is
 * gone. EAGAIN: not now; a shared queue's missing receives are tried again. */
int recv_post_all(weir_engine *engine, struct qp *qp) {
    uint32_t posted;
    uint32_t made = qp->qp != NULL;
    int rc = engine->caps.srq ? fill_shared(engine, REFUSALS_MAX, made, &posted)
                              : post_all_own(engine, qp);
    return rc == WEIR_OK ? WEIR_OK : rc == WEIR_EINVAL ? WEIR_EDEVICE : WEIR_EAGAIN;
}

/* The buffer of a message that was dealt with. qp may be a later life of the entry, or be going
 * down; with a shared queue it may be NULL, if the message's QP is not known. Only a shared queue
 * wants such a buffer back. False: no receive was posted for it. */
bool recv_return(weir_engine *engine, struct qp *qp, uint32_t life, uint32_t buffer) {
    if (!engine->caps.srq)
        return return_own(engine, qp, life, buffer);
    if (__builtin_expect(return_shared(engine, buffer), 1))
        return true;
    if (qp != NULL && qp_lives_still(qp, life))
        lack_of(engine, qp)->recvs++;
    return false;
}

/* The message's credit goes back, unless a receive is missing in its place: then it is kept. */
void recv_taken(weir_engine *engine, struct qp *qp, uint32_t life, uint32_t buffer,
                enum credit_class class) {
    bool posted = recv_return(engine, qp, life, buffer);
    if (!qp_lives_still(qp, life))
        return;
    if (posted)
        credits_back(engine, qp, class, 1);
    else
        lack_of(engine, qp)->credits[class]++;
}

/* Receives that the device refused, once more. */
void recv_timer(weir_engine *engine) {
    bool any = false;
    bool missing;
    if (engine->recv_pause_ns == 0)
        return;
    if (engine->caps.srq) {
        any = retry_shared(engine);
        missing = engine->recv_pause_ns != 0;
    } else {
        missing = retry_each(engine, &any);
    }
    if (!missing) {
        engine->recv_pause_ns = 0;
        return;
    }
    uint64_t twice_ns = 2 * engine->recv_pause_ns;
    engine->recv_pause_ns = any                             ? RECV_RETRY_NS
                            : twice_ns < RECV_RETRY_NS_MOST ? twice_ns
                                                            : RECV_RETRY_NS_MOST;
    timer_receives(engine, engine_now(engine) + engine->recv_pause_ns);
}
