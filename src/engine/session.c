/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: the QPs of a session: made, connected, taken down.
 *
 * Owns the QP table (which session has which entry) and the drain of each QP: drain.h decides, this
 * file performs. An entry is free again when its QP is gone and no received message is held in its
 * buffers. Sessions are numbered as in the endpoint.
 */
#include "session.h"

#include "agenda.h"
#include "cause.h"
#include "names.h"
#include "news.h"
#include "notes.h"
#include "post.h"
#include "recv.h"
#include "runs.h"
#include "tables.h"
#include "talk.h"
#include "trace.h"
#include "transfer.h"

#include <assert.h>

static struct qp *qp_take(weir_engine *engine) {
    uint32_t index = engine->qp_free;
    if (index == NONE)
        return NULL;
    struct qp *qp = &engine->qps[index];
    engine->qp_free = qp->next_free;
    if (index >= engine->qps_used)
        engine->qps_used = index + 1;
    qp->life++;
    return qp;
}

void session_qp_free(weir_engine *engine, struct qp *qp) {
    if (qp->qp != NULL || qp->held > 0 || !qp->taken)
        return;
    qp->taken = false;
    qp->next_free = engine->qp_free;
    engine->qp_free = qp_index(engine, qp);
}

/* Asks the device again: the capacity of its completion queues changes with its QPs, and it may
 * have been found never to give the last-WQE event, for which each teardown would wait in vain.
 * Returns whether it gives one. */
static bool refresh_caps(weir_engine *engine) {
    struct weir_device_caps caps;
    engine->device_ops->query(engine->device, &caps);
    engine->caps.cq_capacity = caps.cq_capacity;
    return caps.srq && caps.last_wqe;
}

/* One QP with its receives posted. On an error the entry is free again, or its QP is
 * on its way out. */
static int make_qp(weir_engine *engine, struct peer *peer, uint32_t session, uint32_t index,
                   struct wire_qp *wire, struct qp **qp_out) {
    struct qp *qp = qp_take(engine);
    if (qp == NULL)
        return WEIR_EFULL;
    uint32_t at = qp_index(engine, qp);
    struct weir_qp_options options = {
        .tag = qp_tag(at, qp->life),
        .sq_depth = engine->options.sq_depth,
        .rq_depth = engine->caps.srq ? 0 : engine->recvs_per_qp,
        .recv_bytes_max = MESSAGE_BYTES,
    };
    struct weir_qp_granted granted = {0};
    struct weir_qp *made = NULL;
    int rc = engine->device_ops->qp_create(engine->device, &options, &granted, &made);
    qp->taken = true;
    if (rc != WEIR_OK) {
        session_qp_free(engine, qp);
        return rc;
    }
    qp->qp = made;
    bits_add(&engine->qps_made, at);
    qp->peer = peer_index(engine, peer);
    qp->session = session;
    qp->index = index;
    qp->connected = qp->connecting = qp->blocked = qp->credit_due = false;
    qp->refusals = 0;
    qp->sbufs_used = qp->sbuf_next = 0;
    qp->recvs = 0;
    credit_init(&qp->credit, (uint16_t)engine->options.recv_credits);
    *lack_of(engine, qp) = (struct lack){0};
    engine->stalls[at].head = UINT64_MAX;
    qp->beacon_back = qp->done_in_post = qp->gave = false;
    qp->sbuf_count = engine->recvs_per_qp;
    qp->granted = granted.sq_depth;
    drain_init(&qp->drain,
               &(struct drain_options){.wait_event = engine->caps.srq && engine->caps.last_wqe,
                                       .timeout_ns = engine->options.teardown_timeout_ns});
    /* One slot is the beacon's. */
    uint32_t depth = granted.sq_depth > 1 ? granted.sq_depth - 1 : 1;
    if (depth > engine->ring_size)
        depth = engine->ring_size;
    ledger_init(&qp->ledger, engine->runs + (size_t)at * engine->ring_size, depth, qp->seq_next);
    if (engine->options.signal_interval != 0)
        ledger_limit_quiet(&qp->ledger, engine->options.signal_interval - 1);
    if (engine->caps.srq)
        engine->receives.wanted += engine->recvs_per_qp;
    rc = recv_post_all(engine, qp);
    if (rc == WEIR_OK && (granted.sq_depth < 2 || granted.blob_length > WEIR_QP_BLOB_MAX))
        rc = WEIR_EDEVICE;
    if (rc != WEIR_OK) {
        qp->session = NONE;
        engine->draining++;
        drain_feed(engine, qp, DRAIN_EV_START_DIRECT);
        return rc;
    }
    engine->ports.env.ops->entropy(engine->ports.env.self, &qp->psn, sizeof(qp->psn));
    qp->psn &= 0xffffff;
    *wire = (struct wire_qp){.psn = qp->psn, .blob_length = granted.blob_length};
    memcpy(wire->blob, granted.blob, granted.blob_length);
    *qp_out = qp;
    return WEIR_OK;
}

int session_create(weir_engine *engine, struct peer *peer, uint32_t number, uint64_t epoch,
                   struct wire_qp_set *local_out) {
    struct session *session = &peer->sessions[number];
    assert(!session->used);
    if (engine->device_failed)
        return WEIR_EDEVICE;
    if (engine_now(engine) < peer->trouble_until_ns)
        return WEIR_EAGAIN; /* session_trouble: the endpoint asks again */
    *session = (struct session){.used = true, .epoch = epoch, .life_ours = peer->life};
    *local_out = (struct wire_qp_set){
        .mtu = engine->caps.mtu_max,
        .rd_atomic = engine->caps.rd_atomic_max,
        .recv_credits = engine->options.recv_credits,
        .recv_bytes_max = MESSAGE_BYTES,
        .pass = peer->pass,
        .life = peer->life,
        .ordered = engine->caps.ordered,
        .qp_count = engine->options.qp_count,
    };
    memcpy(local_out->device, engine->caps.name, sizeof(local_out->device));
    memcpy(local_out->fabric, engine->caps.fabric, sizeof(local_out->fabric));
    for (uint32_t i = 0; i < engine->options.qp_count; i++) {
        struct qp *qp;
        int rc = make_qp(engine, peer, number, i, &local_out->qps[i], &qp);
        if (rc != WEIR_OK) {
            /* The QPs made so far go without a session: the peer was not told of this one. */
            for (uint32_t k = 0; k < i; k++) {
                struct qp *other = &engine->qps[session->qps[k]];
                other->session = NONE;
                engine->draining++;
                drain_feed(engine, other, DRAIN_EV_START_DIRECT);
            }
            session->used = false;
            return rc;
        }
        session->qps[i] = qp_index(engine, qp);
        session->qp_count = session->qp_left = i + 1;
    }
    refresh_caps(engine);
    TRACE_PEER(engine, qps_made, peer, 0, epoch, session->qp_count);
    return WEIR_OK;
}

/* One window for both directions: the smaller of both sides' recv_credits. A sender has no more
 * send buffers than it posts receives, and a receiver has to know when half of the window that its
 * sender uses is owed. */
static void qp_connected(weir_engine *engine, const struct session *session, struct qp *qp) {
    uint32_t window = engine->options.recv_credits;
    if (window > session->window)
        window = session->window;
    qp->connected = true;
    credit_agree(&qp->credit, (uint16_t)window);
    recv_connected(engine, qp);
    TRACE_PEER(engine, qp_connected, peer_at(engine, qp->peer), 0, session->epoch,
               session->qp_used);
}

/* EINPROGRESS: note_connected() follows when the outcome is known. After another error some QPs
 * may still be connecting: they are taken down like the others. */
int session_connect(weir_engine *engine, struct peer *peer, const struct ep_effect *effect) {
    struct session *session = &peer->sessions[effect->session];
    session->qp_used = effect->agreed.qp_count;
    session->ordered = effect->agreed.ordered;
    session->window = effect->remote->recv_credits;
    session->epoch_remote = effect->epoch_remote;
    session->life = effect->remote->life;
    if (session->life_ours != peer->life)
        return WEIR_EAGAIN; /* talk_renew: the other side has to hear of it */
    if (session->life != peer->life_theirs)
        talk_new_life(engine, peer, session->life);
    for (uint32_t i = 0; i < session->qp_used; i++) {
        struct qp *qp = &engine->qps[session->qps[i]];
        const struct wire_qp *remote = &effect->remote->qps[i];
        struct weir_qp_path path = {
            .mtu = effect->agreed.mtu,
            .rd_atomic = effect->agreed.rd_atomic,
            .psn_local = qp->psn,
            .psn_remote = remote->psn,
            .blob_length = remote->blob_length,
            .blob = remote->blob,
            .crossing = effect->crossing,
        };
        int rc = engine->device_ops->qp_connect(qp->qp, &path);
        if (rc == WEIR_EINPROGRESS) {
            qp->connecting = true;
            session->connecting++;
        } else if (rc == WEIR_OK) {
            qp_connected(engine, session, qp);
        } else {
            return rc;
        }
    }
    session->connect_owed = session->connecting > 0;
    return session->connect_owed ? WEIR_EINPROGRESS : WEIR_OK;
}

/* A connect that qp_connect answered with EINPROGRESS has ended. */
static void connect_done(weir_engine *engine, struct qp *qp, int error) {
    struct peer *peer = peer_at(engine, qp->peer);
    if (!qp->connecting)
        return;
    qp->connecting = false;
    if (qp->session == NONE || peer->sessions[qp->session].retired) {
        /* It is on its way out, and could not be destroyed so far. */
        drain_forgive(&qp->drain);
        drain_feed(engine, qp, DRAIN_EV_TIMER);
        return;
    }
    struct session *session = &peer->sessions[qp->session];
    session->connecting--;
    if (error == WEIR_OK)
        qp_connected(engine, session, qp);
    else if (session->connect_error == WEIR_OK)
        session->connect_error = error;
    if (session->connect_owed && (session->connecting == 0 || error != WEIR_OK))
        note_connected(engine, peer, qp->session);
}

/* Whether something that we posted on this session is done. */
static bool session_proven(const weir_engine *engine, const struct session *session) {
    bool proven = false;
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        proven |= qp->done_in_post || qp->ledger.head != qp->seq_next;
    }
    return proven;
}

/* A session broke while transfers wait, because its target did not answer, or because the other
 * side broke it, perhaps for the same reason. While the data path is down and the control
 * connections go another way, one session after the other comes up, carries nothing and breaks. So
 * each waits longer than the one before it. When this has gone on for connect_timeout_ns, the
 * transfers fail as if connecting had failed. */
static void session_trouble(weir_engine *engine, struct peer *peer, const struct session *session) {
    uint64_t now = engine_now(engine);
    uint64_t first_ns = engine->options.retransmit_ns;
    if (!session->up || (session->broke_here && !session->unreachable) || peer->waits == 0 ||
        peer_is_leaving(peer))
        return;
    if (session->got_through || peer->trouble_ns == 0) {
        peer_trouble_over(peer);
        peer->trouble_ns = now;
        return;
    }
    uint32_t doublings = peer->trouble_breaks < 4 ? peer->trouble_breaks : 4;
    peer->trouble_breaks++;
    uint64_t pause_ns = first_ns << doublings, most_ns = engine->options.connect_timeout_ns / 4;
    peer->trouble_until_ns = now + (pause_ns < most_ns ? pause_ns : most_ns);
    if (now - peer->trouble_ns < engine->options.connect_timeout_ns)
        return;
    peer_trouble_over(peer);
    peer->trouble_until_ns = 0;
    transfer_fail_all(engine, peer, WEIR_ECONNECT, true);
    talk_renew(engine, peer);
    names_unreachable(engine, peer, WEIR_ECONNECT);
}

/* The remote says that a transfer of its own broke our session `epoch`, and why: none of ours did
 * it. epoch is 0 if it has none to tell; an epoch that it told before is ignored. */
void session_excuse(weir_engine *engine, struct peer *peer, uint64_t epoch, int reason) {
    bool refused = reason == WEIR_EREMOTE;
    if (epoch <= peer->excused_epoch)
        return;
    peer->excused_epoch = epoch;
    peer->told_breaks = 0;
    bool judged = true;
    for (uint32_t s = 0; s < EP_SESSIONS; s++) {
        struct session *session = &peer->sessions[s];
        if (session->used && session->epoch == epoch) {
            session->excused = true;
            session->refused |= refused;
            judged = false;
        }
    }
    transfer_excuse(engine, peer, epoch, refused, judged);
    cause_told(peer, epoch, reason);
    if (refused)
        cause_no_trouble(engine, peer);
}

void session_unanswered(weir_engine *engine, struct peer *peer, uint32_t number) {
    session_trouble(engine, peer, &peer->sessions[number]);
}

/* The live session is over, and its peer is not. This side found out, or the other side said so or
 * came with the next session. DEGRADED is told once, and RECOVERED or GONE follows. */
void session_lost(weir_engine *engine, struct peer *peer, uint32_t number) {
    const struct session *session = &peer->sessions[number];
    engine->stats.sessions_failed++;
    weir_event_type event = standing_step(&peer->standing, STANDING_IN_LOST);
    if (event != 0) {
        int unnamed = session->broke_here ? WEIR_EDEVICE : WEIR_EUNKNOWN;
        peer->cause = (struct cause){.error = session->cause != 0 ? session->cause : unnamed,
                                     .culprit = session->culprit,
                                     .epoch = session->epoch};
        peer_tell(engine, event, peer, peer->cause.error, peer->cause.culprit);
    }
}

/* A device that refuses a transfer may fail without a word to ours, and the other side says that
 * the session is over before ours finds out. So sessions that the other side breaks, one after the
 * other, are held against our transfers, if the link is known to be well, no work of theirs is done
 * meanwhile, and the other side does not blame its own (session_excuse). */
static void count_told(struct peer *peer, const struct session *session, bool proven) {
    if (peer->told_completed != peer->completed)
        peer->told_breaks = 0;
    peer->told_completed = peer->completed;
    if (session->up && !session->broke_here && proven && peer->told_breaks < BREAKS_SHARED)
        peer->told_breaks++;
}

/* The endpoint says that this session is over: drain its QPs. */
void session_retire(weir_engine *engine, struct peer *peer, uint32_t number) {
    struct session *session = &peer->sessions[number];
    if (!session->used || session->retired)
        return;
    session->retired = true;
    TRACE_PEER(engine, session_over, peer, session->cause, session->epoch, 0);
    if ((peer->live == number || session->lost) && !endpoint_gone(&peer->endpoint))
        session_lost(engine, peer, number);
    if (peer->live == number) {
        peer->live = NONE;
        peer_not_fast(peer);
    }
    bool proven = session_proven(engine, session);
    session->got_through = peer->trouble_ns == 0 || proven;
    count_told(peer, session, proven);
    transfer_park(engine, peer, session);
    session_trouble(engine, peer, session);
    bool event = refresh_caps(engine);
    for (uint32_t i = 0; i < session->qp_count; i++) {
        struct qp *qp = &engine->qps[session->qps[i]];
        qp->drain.wait_event &= event;
        qp->credit_due = qp->gave = false;
        engine->draining++;
        drain_feed(engine, qp, qp->connected ? DRAIN_EV_START : DRAIN_EV_START_DIRECT);
    }
    recv_fewer(engine);
}

/* The QP is gone: everything that it had is accounted for. */
static void qp_gone(weir_engine *engine, struct qp *qp) {
    struct peer *peer = peer_at(engine, qp->peer);
    engine->draining--;
    TRACE_PEER(engine, qp_gone, peer, 0, qp_index(engine, qp), qp->drain.forced);
    if (qp->drain.forced)
        engine->stats.teardown_forced++;
    qp->qp = NULL;
    bits_drop(&engine->qps_made, qp_index(engine, qp));
    timer_qp(engine, qp, UINT64_MAX);
    if (engine->caps.srq) {
        engine->receives.wanted -= engine->recvs_per_qp;
        if (qp->connected) /* a message may have been under way */
            receives_doubt(&engine->receives);
        recv_post_all(engine, qp);
    }
    qp->connected = false;
    runs_flush(engine, qp);
    qp->seq_next = qp->ledger.tail;
    uint32_t number = qp->session;
    qp->session = NONE;
    session_qp_free(engine, qp);
    if (number == NONE)
        return;
    struct session *session = &peer->sessions[number];
    if (--session->qp_left == 0) {
        transfer_judge(engine, peer, session);
        session->used = false;
        talk_session_over(engine, peer);
        engine->stats.sessions_retired++;
        note_drained(engine, peer, number);
    }
}

static enum drain_event post_beacon(weir_engine *engine, struct qp *qp) {
    struct weir_wr wr = {.wr_id = route_id(ROUTE_BEACON, qp_index(engine, qp), qp->life),
                         .opcode = WEIR_OP_WRITE,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post post;
    engine->device_ops->post_send(qp->qp, &wr, 1, &post);
    qp->polled_mark = engine->polled;
    return post.accepted == 1 ? DRAIN_EV_BEACON_POSTED : DRAIN_EV_BEACON_REFUSED;
}

/* Feeds one event to the QP's drain and performs what it asks for. */
void drain_feed(weir_engine *engine, struct qp *qp, enum drain_event event) {
    for (;;) {
        enum drain_action action = drain_step(&qp->drain, event, engine_now(engine));
        timer_qp(engine, qp, drain_deadline(&qp->drain));
        if (qp->drain.state == DRAIN_BEACON)
            groups_join(&engine->beacons, qp_index(engine, qp), 0);
        else
            groups_leave(&engine->beacons, qp_index(engine, qp));
        switch (action) {
        case DRAIN_DO_NOTHING:
            return;
        case DRAIN_DO_ERROR_WAIT:
            engine->device_ops->qp_error(qp->qp);
            return;
        case DRAIN_DO_ERROR_BEACON:
            engine->device_ops->qp_error(qp->qp);
            event = post_beacon(engine, qp);
            break;
        case DRAIN_DO_BEACON:
            event = post_beacon(engine, qp);
            break;
        case DRAIN_DO_DESTROY:
            event = DRAIN_EV_DESTROYED;
            if (engine->device_ops->qp_destroy(qp->qp) != WEIR_OK) {
                engine->stats.destroy_retries++;
                event = DRAIN_EV_DESTROY_REFUSED;
            }
            break;
        case DRAIN_DO_FINISH:
            qp_gone(engine, qp);
            return;
        }
    }
}

void session_qp_timer(weir_engine *engine, struct qp *qp) {
    if (qp->qp == NULL)
        return;
    if (!qp_lives(qp) && qp->gave) {
        /* The QP completed something: more messages that its peer counts as delivered may come. */
        qp->gave = false;
        drain_prolong(&qp->drain, engine_now(engine));
        timer_qp(engine, qp, drain_deadline(&qp->drain));
        return;
    }
    if (!qp_lives(qp)) {
        drain_feed(engine, qp, DRAIN_EV_TIMER);
        return;
    }
    qp->blocked = false;
    post_heal(engine, qp);
    run_later(engine, peer_at(engine, qp->peer));
}

/* Beacons behind which a whole CQ has been polled need not be waited for. The first posted is the
 * first that this is true of. */
void session_poll_marks(weir_engine *engine) {
    uint32_t first;
    while ((first = groups_first(&engine->beacons, 0)) != NONE) {
        struct qp *qp = &engine->qps[first];
        if (engine->polled - qp->polled_mark < engine->caps.cq_capacity)
            return;
        drain_feed(engine, qp, DRAIN_EV_POLLED);
    }
}

static struct qp *by_tag(weir_engine *engine, uint32_t tag) {
    uint32_t index = qp_tag_index(tag);
    if (index >= engine->qps_max || engine->qps[index].qp == NULL ||
        !qp_has_tag(&engine->qps[index], tag))
        return NULL;
    return &engine->qps[index];
}

/* For good: every session breaks, and there will be no other. */
void session_device_failed(weir_engine *engine) {
    if (engine->device_failed)
        return;
    engine->device_failed = true;
    news_event(engine, WEIR_EVENT_DEVICE_FAILED, 0, WEIR_EDEVICE, 0);
    for (uint32_t i = qp_first(engine); i != BITS_NONE; i = qp_after(engine, i))
        note_broken(engine, peer_at(engine, engine->qps[i].peer), engine->qps[i].session);
}

static void async_event(weir_engine *engine, const struct weir_async *event) {
    if (event->type == WEIR_ASYNC_DEVICE_FATAL) {
        session_device_failed(engine);
        return;
    }
    struct qp *qp = by_tag(engine, event->qp_tag);
    if (qp == NULL)
        return;
    struct peer *peer = peer_at(engine, qp->peer);
    switch (event->type) {
    case WEIR_ASYNC_LAST_WQE:
        if (!qp->drain.last_wqe)
            engine->stats.last_wqe_events++;
        drain_feed(engine, qp, DRAIN_EV_LAST_WQE);
        /* It comes only of a QP in the error state; if we did not put it there, it
         * failed by itself (IBA 1.5, 11.5.2.5). */
        if (qp_lives(qp))
            note_broken(engine, peer, qp->session);
        break;
    case WEIR_ASYNC_QP_FATAL:
        note_broken(engine, peer, qp->session);
        break;
    case WEIR_ASYNC_PEER_DEAD:
        note_dead(engine, peer, WEIR_EPEER);
        break;
    case WEIR_ASYNC_CONNECTED:
        connect_done(engine, qp, event->error);
        break;
    default:
        break;
    }
}

int session_async(weir_engine *engine) {
    struct weir_async events[ASYNC_BATCH];
    int count = engine->device_ops->events(engine->device, events, ASYNC_BATCH);
    for (int i = 0; i < count; i++)
        async_event(engine, &events[i]);
    return count > 0 ? count : 0;
}
