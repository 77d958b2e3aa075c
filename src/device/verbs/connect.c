/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c: QPs to RTR and RTS, on threads of its own.
 *
 * ibv_modify_qp(3) to RTR blocks: for RoCE the kernel resolves the peer's hardware address
 * in it, and for a neighbour that does not answer that takes seconds. Up to CONNECTORS
 * threads make these calls, one QP at a time each, so that the engine does not wait for them.
 * The threads are started when they are needed, and end when there was nothing to do for a while:
 * in a process of one thread system calls cost less, the one that posts included.
 *
 *     qp_connect: WAITING ──► RUNNING ──► DONE ──► taken as an event
 *                    └── destroyed ─────────┘
 *
 * Owns the queue of those that wait, the list of those that are done, and the eventfd that
 * says so. Invariants: a QP's connect_state and connect_next are read and written under the
 * mutex, which is never held across a call of the kernel's; while the QP waits for a call of the
 * other side's, connect_next is cm.c's, without the mutex; a RUNNING QP is its thread's, and is
 * neither destroyed nor modified by others. The transitions' attributes are fixed before a QP is
 * WAITING. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "thread.h"
#include "verbs.h"

enum { IDLE_NS = 100 * 1000 * 1000, NS_PER_S = 1000 * 1000 * 1000 };

/* ---- what a transition is made of ---- */

static struct ibv_ah_attr route_to(const struct weir_qp *qp, const struct verbs_address *there) {
    const struct verbs_settings *settings = &qp->device->settings;
    const struct verbs_source *from = &qp->source;
    struct ibv_ah_attr route = {.dlid = there->lid,
                                .sl = (uint8_t)settings->service_level,
                                .port_num = qp->device->choice.port};
    /* RoCE has nothing but the GID; InfiniBand needs it between subnets, and at ports that
     * say so. */
    if (there->fabric == FABRIC_ROCE || from->grh_required ||
        there->gid.global.subnet_prefix != from->address.gid.global.subnet_prefix) {
        route.is_global = 1;
        route.grh.dgid = there->gid;
        route.grh.sgid_index = from->gid_index;
        route.grh.hop_limit = 64;
        route.grh.traffic_class = (uint8_t)settings->traffic_class;
    }
    return route;
}

static void prepare(struct weir_qp *qp, const struct weir_qp_path *path,
                    const struct verbs_address *there) {
    const struct verbs_settings *settings = &qp->device->settings;
    qp->to_rtr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_code(path->mtu),
        .dest_qp_num = there->qpn,
        .rq_psn = path->psn_remote,
        .max_dest_rd_atomic = (uint8_t)path->rd_atomic,
        .min_rnr_timer = (uint8_t)settings->min_rnr_timer,
        .ah_attr = route_to(qp, there),
    };
    qp->to_rts = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = path->psn_local,
        .max_rd_atomic = (uint8_t)path->rd_atomic,
        .timeout = (uint8_t)settings->timeout,
        .retry_cnt = (uint8_t)settings->retry_cnt,
        .rnr_retry = (uint8_t)settings->rnr_retry,
    };
}

/* The data about the other side was checked before: EINVAL is about our own address, which a link
 * that is down for a moment may lack, and is worth another try as any EDEVICE. */
static int connect_error(int error) {
    switch (error) {
    case 0:
        return WEIR_OK;
    case ENOMEM:
        return WEIR_ENOMEM;
    case ETIMEDOUT: /* no neighbour of this address answers */
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENODATA:
    case ENOENT:
        return WEIR_EPEER;
    default:
        return WEIR_EDEVICE;
    }
}

/* Blocks. */
static int transit(struct weir_qp *qp) {
    if (qp->device->fenced)
        return cm_dial(qp);
    int error = ibv_modify_qp(qp->ibv, &qp->to_rtr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0)
        error = ibv_modify_qp(qp->ibv, &qp->to_rts,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return connect_error(error);
}

/* ---- lists ---- */

static void list_add(struct verbs_connects *list, struct weir_qp *qp) {
    qp->connect_next = NULL;
    if (list->last != NULL)
        list->last->connect_next = qp;
    else
        list->first = qp;
    list->last = qp;
    list->count++;
}

static void list_remove(struct verbs_connects *list, const struct weir_qp *qp) {
    struct weir_qp *before = NULL;
    for (struct weir_qp *at = list->first; at != qp; at = at->connect_next)
        before = at;
    if (before != NULL)
        before->connect_next = qp->connect_next;
    else
        list->first = qp->connect_next;
    if (list->last == qp)
        list->last = before;
    list->count--;
}

/* ---- the threads ---- */

static struct timespec later(long ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns;
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_nsec -= NS_PER_S;
        until.tv_sec++;
    }
    return until;
}

/* With the mutex held. False: there was nothing to do for IDLE_NS, or the device closes. */
static bool wait_for_work(struct verbs_connector *connector) {
    const struct timespec until = later(IDLE_NS);
    int rc = 0;
    connector->idle++;
    while (connector->waiting.count == 0 && !connector->closing && rc == 0)
        rc = pthread_cond_timedwait(&connector->work, &connector->mutex, &until);
    connector->idle--;
    return connector->waiting.count > 0;
}

/* With the mutex held: this is how it ended. */
static void finish(struct verbs_connector *connector, struct weir_qp *qp, int rc) {
    const uint64_t one = 1;
    qp->connect_result = rc;
    qp->connect_state = CONNECT_DONE;
    list_add(&connector->done, qp);
    ssize_t put = write(connector->event_fd, &one, sizeof one);
    (void)put; /* one for each QP at most: never full */
}

static void *connector_run(void *argument) {
    struct verbs_hand *hand = argument;
    struct verbs_connector *connector = hand->connector;
    pthread_mutex_lock(&connector->mutex);
    while (wait_for_work(connector)) {
        struct weir_qp *qp = connector->waiting.first;
        list_remove(&connector->waiting, qp);
        qp->connect_state = CONNECT_RUNNING;
        pthread_mutex_unlock(&connector->mutex);
        int rc = WEIR_OK;
        if (qp->hangs_up)
            cm_drop(qp);
        else
            rc = transit(qp);
        pthread_mutex_lock(&connector->mutex);
        finish(connector, qp, rc);
    }
    hand->state = HAND_LEFT;
    connector->thread_count--;
    pthread_mutex_unlock(&connector->mutex);
    return NULL;
}

/* With the mutex held: one more thread, if there is more to do than threads that wait. */
static void connector_hire(struct verbs_connector *connector) {
    if (connector->waiting.count <= connector->idle || connector->thread_count == CONNECTORS)
        return;
    struct verbs_hand *hand = connector->hands;
    while (hand->state == HAND_WORKS)
        hand++;
    if (hand->state == HAND_LEFT) /* it has nothing left to do but return */
        pthread_join(hand->thread, NULL);
    hand->state = HAND_NONE;
    hand->connector = connector;
    if (thread_create(&hand->thread, NULL, connector_run, hand) == 0) {
        hand->state = HAND_WORKS;
        connector->thread_count++;
    }
}

int connector_open(struct weir_device *device) {
    struct verbs_connector *connector = &device->connector;
    pthread_mutex_init(&connector->mutex, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&connector->work, &clock);
    pthread_condattr_destroy(&clock);
    /* EFD_SEMAPHORE: one read takes one QP off, eventfd(2). */
    fork_hold();
    connector->event_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
    fork_release();
    connector->open = connector->event_fd >= 0;
    return connector->open ? WEIR_OK : WEIR_EDEVICE;
}

void connector_close(struct weir_device *device) {
    struct verbs_connector *connector = &device->connector;
    if (!connector->open)
        return;
    bool join[CONNECTORS];
    pthread_mutex_lock(&connector->mutex);
    connector->closing = true;
    pthread_cond_broadcast(&connector->work);
    for (uint32_t i = 0; i < CONNECTORS; i++)
        join[i] = connector->hands[i].state != HAND_NONE;
    pthread_mutex_unlock(&connector->mutex);
    for (uint32_t i = 0; i < CONNECTORS; i++) {
        if (join[i])
            pthread_join(connector->hands[i].thread, NULL);
    }
    fork_close(connector->event_fd);
    pthread_cond_destroy(&connector->work);
    pthread_mutex_destroy(&connector->mutex);
    connector->open = false;
}

/* ---- for the thread that has the engine ---- */

bool connector_dial(struct weir_qp *qp) {
    struct verbs_connector *connector = &qp->device->connector;
    pthread_mutex_lock(&connector->mutex);
    qp->connect_state = CONNECT_WAITING;
    list_add(&connector->waiting, qp);
    connector_hire(connector);
    bool somebody = connector->thread_count > 0;
    if (!somebody) {
        list_remove(&connector->waiting, qp);
        qp->connect_state = CONNECT_NONE;
    }
    pthread_cond_signal(&connector->work);
    pthread_mutex_unlock(&connector->mutex);
    return somebody;
}

int verbs_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    struct weir_device *device = qp->device;
    struct verbs_address there;
    if (qp->state != QP_INIT || mtu_code(path->mtu) == 0 || path->mtu > qp->source.mtu ||
        path->rd_atomic == 0 || path->rd_atomic > device->caps.rd_atomic_max ||
        (path->psn_local | path->psn_remote) >> 24 != 0 ||
        blob_read_address(path->blob, path->blob_length, &there) != WEIR_OK ||
        there.fabric != qp->source.address.fabric)
        return WEIR_EINVAL;
    qp->there = there;
    qp->crosses = path->crossing;
    prepare(qp, path, &there);
    int rc = device->fenced ? cm_connect(qp) : WEIR_EAGAIN;
    if (rc != WEIR_EAGAIN)
        return rc;
    bool somebody = connector_dial(qp);
    qp->state = somebody ? QP_CONNECTING : QP_INIT;
    return somebody ? WEIR_EINPROGRESS : WEIR_EDEVICE;
}

static void hung_up(struct weir_qp *qp) {
    qp->link_id = NULL;
    qp->link = LINK_DOWN;
    qp->hangs_up = false;
    qp->state = QP_FAILED;
}

int connector_events(struct weir_device *device, struct weir_async *events_out, int max) {
    struct verbs_connector *connector = &device->connector;
    int count = 0;
    uint64_t taken;
    while (count < max && read(connector->event_fd, &taken, sizeof taken) == sizeof taken) {
        pthread_mutex_lock(&connector->mutex);
        struct weir_qp *qp = connector->done.first;
        list_remove(&connector->done, qp);
        qp->connect_state = CONNECT_NONE;
        pthread_mutex_unlock(&connector->mutex);
        if (qp->hangs_up) {
            hung_up(qp);
            continue;
        }
        if (device->fenced && !cm_dialled(qp))
            continue;
        qp->state = qp->connect_result == WEIR_OK ? QP_READY : QP_FAILED;
        qp->was_ready = qp->state == QP_READY;
        if (qp->error_wanted)
            verbs_qp_error(qp);
        events_out[count++] = (struct weir_async){
            .type = WEIR_ASYNC_CONNECTED, .qp_tag = qp->tag, .error = qp->connect_result};
    }
    return count;
}

void connector_fail(struct weir_qp *qp, int error) {
    struct verbs_connector *connector = &qp->device->connector;
    cm_give_up(qp);
    qp->expects = false;
    pthread_mutex_lock(&connector->mutex);
    finish(connector, qp, error);
    pthread_mutex_unlock(&connector->mutex);
}

void connector_hangup(struct weir_qp *qp) {
    uint32_t before = qp->state;
    qp->expects = false;
    qp->hangs_up = true;
    qp->state = QP_CONNECTING;
    if (connector_dial(qp))
        return;
    qp->hangs_up = false;
    qp->state = before;
}

/* The QP goes: nobody is told any more. EBUSY: a thread has it. */
int connector_cancel(struct weir_qp *qp) {
    struct verbs_connector *connector = &qp->device->connector;
    if (qp->state != QP_CONNECTING || qp->expects)
        return WEIR_OK;
    int rc = WEIR_OK;
    pthread_mutex_lock(&connector->mutex);
    if (qp->connect_state == CONNECT_RUNNING ||
        (qp->hangs_up && qp->connect_state != CONNECT_DONE)) {
        rc = WEIR_EBUSY;
    } else if (qp->connect_state == CONNECT_WAITING) {
        list_remove(&connector->waiting, qp);
    } else {
        uint64_t taken;
        ssize_t got = read(connector->event_fd, &taken, sizeof taken);
        (void)got; /* its own */
        list_remove(&connector->done, qp);
    }
    if (rc == WEIR_OK)
        qp->connect_state = CONNECT_NONE;
    pthread_mutex_unlock(&connector->mutex);
    if (rc == WEIR_OK && qp->hangs_up)
        hung_up(qp);
    else if (rc == WEIR_OK)
        qp->state = QP_FAILED;
    return rc;
}
