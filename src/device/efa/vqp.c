/* SPDX-License-Identifier: Apache-2.0 */
/* vqp.c: virtual QPs: made, connected, stopped, destroyed.
 *
 * Owns the table of them, and the lists of those that have something to poll, or to say. A QP is
 * given back when it has drained, and its peer has, or is no more, or was silent for as long as
 * link.h has it. */
#include <string.h>

#include "efa.h"

/* ---- the table ---- */

struct weir_qp *vqp_meant(const struct weir_device *device, uint32_t index, uint64_t cookie) {
    struct weir_qp *qp = index < EFA_QPS_MAX ? device->qps[index] : NULL;
    return qp != NULL && qp->cookie == cookie ? qp : NULL;
}

static void table_add(struct weir_device *device, struct weir_qp *qp) {
    uint32_t index = device->qp_hint;
    while (device->qps[index] != NULL)
        index = (index + 1) & (EFA_QPS_MAX - 1);
    device->qp_hint = (index + 1) & (EFA_QPS_MAX - 1);
    device->qps[index] = qp;
    device->qp_count++;
    device->owed += qp->rq_depth + qp->sq_depth;
    qp->index = index;
    if (index >= device->qps_used)
        device->qps_used = index + 1;
}

static void table_remove(struct weir_device *device, const struct weir_qp *qp) {
    device->qps[qp->index] = NULL;
    device->qp_count--;
    device->owed -= qp->rq_depth + qp->sq_depth;
}

/* ---- create ---- */

static void free_qp(struct weir_qp *qp) {
    const struct weir_env *env = &qp->device->env;
    env->ops->free(env->self, qp, kept_bytes(qp));
}

static struct weir_qp *alloc_qp(struct weir_device *device, const struct weir_qp_options *options) {
    const struct weir_env *env = &device->env;
    struct weir_qp wanted = {.device = device};
    kept_start(&wanted, options->rq_depth);
    struct weir_qp *qp = env->ops->alloc(env->self, kept_bytes(&wanted));
    if (qp == NULL)
        return NULL;
    *qp = wanted;
    qp->tag = options->tag;
    qp->recv_bytes_max = options->recv_bytes_max;
    qp->sq_depth = options->sq_depth;
    qp->peer = EFA_NONE;
    qp->held = (struct efa_list){EFA_NONE, EFA_NONE};
    do
        env->ops->entropy(env->self, &qp->cookie, sizeof qp->cookie);
    while (qp->cookie == 0);
    return qp;
}

/* An endpoint that is left, or gone, is followed by another one. */
static int room(const struct weir_device *device) {
    if (device->lost)
        return WEIR_EDEVICE;
    if (device->ep == NULL || device->broken || device->stops_ns != UINT64_MAX)
        return WEIR_EAGAIN;
    return device->qp_count == EFA_QPS_MAX ? WEIR_EFULL : WEIR_OK;
}

int efa_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                  struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    if (options->sq_depth == 0 || options->sq_depth > device->caps.sq_depth_max ||
        options->rq_depth > device->caps.rq_depth_max || options->recv_bytes_max > EFA_PAYLOAD_MAX)
        return WEIR_EINVAL;
    struct weir_qp *qp = alloc_qp(device, options);
    if (qp == NULL)
        return WEIR_ENOMEM;
    device_lock(device);
    struct efa_address own = {.cookie = qp->cookie};
    int rc = room(device);
    if (rc == WEIR_OK)
        rc = kept_reserve(device, device->owed + qp->rq_depth + qp->sq_depth);
    if (rc == WEIR_OK) {
        table_add(device, qp);
        own.index = qp->index;
        memcpy(own.name, device->name, sizeof own.name);
    }
    device_unlock(device);
    if (rc != WEIR_OK) {
        free_qp(qp);
        return rc;
    }
    *granted_out = (struct weir_qp_granted){.sq_depth = qp->sq_depth, .rq_depth = qp->rq_depth};
    granted_out->blob_length = efa_blob_write(&own, granted_out->blob);
    *qp_out = qp;
    return WEIR_OK;
}

/* ---- connect ---- */

static void tell_connected(struct weir_qp *qp, int result) {
    qp->connect_result = result;
    qp->tells_connected = true;
    qp->device->untold++;
}

/* The peer may have asked, or stopped, before this side knew it. */
void vqp_found(struct weir_qp *qp, uint32_t peer, int result) {
    struct weir_device *device = qp->device;
    bool connects = qp->state == EFA_CONNECTING || qp->state == EFA_INIT;
    if (qp->state == EFA_CONNECTING)
        tell_connected(qp, result);
    if (!connects || result != WEIR_OK) {
        if (peer != EFA_NONE)
            av_release(device, peer);
        if (connects)
            qp->state = EFA_FAILED;
        return;
    }
    qp->peer = peer;
    qp->state = EFA_READY;
    link_open(&qp->link, device_now(device));
    if (qp->crosses_stops || qp->stopped_cookie == qp->there.cookie)
        link_heard_stop(&qp->link, 0);
    if (qp->asked_cookie == qp->there.cookie)
        link_heard_ping(&qp->link, qp->asked);
    vqp_restless(qp);
}

int efa_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    struct weir_device *device = qp->device;
    struct efa_address there;
    int rc = efa_blob_read(path->blob, path->blob_length, &there);
    if (rc != WEIR_OK)
        return rc;
    device_lock(device);
    if (qp->state != EFA_INIT) {
        rc = qp->failed ? WEIR_EDEVICE : WEIR_EINVAL; /* with its endpoint, say: others may do */
    } else {
        qp->there = there;
        uint32_t peer = av_find(device, there.name);
        if (peer != EFA_NONE) {
            vqp_found(qp, peer, WEIR_OK);
        } else {
            rc = WEIR_EINPROGRESS;
            qp->state = EFA_CONNECTING;
            qp->next_finding = device->finding;
            device->finding = qp;
            efa_server_wake(device);
        }
    }
    device_unlock(device);
    return rc;
}

/* ---- lists ---- */

void vqp_news(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    if (qp->has_news)
        return;
    qp->has_news = true;
    qp->next_news = NULL;
    if (device->news == NULL)
        device->news = qp;
    else
        device->news_last->next_news = qp;
    device->news_last = qp;
}

static void unlist_news(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    struct weir_qp **at = &device->news, *before = NULL;
    for (; qp->has_news && *at != qp; at = &(*at)->next_news)
        before = *at;
    if (!qp->has_news)
        return;
    *at = qp->next_news;
    if (device->news_last == qp)
        device->news_last = before;
    qp->has_news = false;
}

void vqp_restless(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    device->restless_ns = 0;
    device_due(device, 0);
    if (qp->is_restless)
        return;
    qp->is_restless = true;
    qp->next_restless = device->restless;
    device->restless = qp;
}

static void unlist_restless(struct weir_qp *qp) {
    struct weir_qp **at = &qp->device->restless;
    while (qp->is_restless && *at != qp)
        at = &(*at)->next_restless;
    if (qp->is_restless)
        *at = qp->next_restless;
    qp->is_restless = false;
}

static void unlist_finding(struct weir_qp *qp) {
    struct weir_qp **at = &qp->device->finding;
    while (*at != NULL && *at != qp)
        at = &(*at)->next_finding;
    if (*at == qp)
        *at = qp->next_finding;
}

/* ---- stopping ---- */

bool vqp_is_drained(const struct weir_qp *qp) {
    return qp->sent == 0;
}

bool vqp_flushes(const struct weir_qp *qp) {
    return qp->state == EFA_ERROR &&
           (qp->buried ? vqp_is_drained(qp)
                       : link_is_over(&qp->link, qp->device->now_ns, vqp_is_drained(qp)));
}

static bool has_flushes(const struct weir_qp *qp) {
    return qp->rq_seen != qp->rq_head || qp->late.first != EFA_NONE;
}

/* When the QP wants to be looked at again. UINT64_MAX: not by itself. */
static uint64_t look(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    if (!qp->buried)
        control_say(qp);
    if (link_is_shut(&qp->link)) {
        post_withdraw(qp);
        post_vouch(qp, true);
    }
    if (vqp_flushes(qp)) {
        if (has_flushes(qp))
            vqp_news(qp);
        return !qp->buried && link_due(&qp->link, device->now_ns, true) != 0 ? 0 : UINT64_MAX;
    }
    if (qp->buried)
        return UINT64_MAX; /* until an operation of its is over */
    if (link_due(&qp->link, device->now_ns, vqp_is_drained(qp)) != 0)
        return 0; /* there was no room */
    return link_next(&qp->link, device->now_ns);
}

uint64_t vqps_look(struct weir_device *device) {
    if (device->restless == NULL)
        device->restless_ns = UINT64_MAX;
    if (device->now_ns < device->restless_ns)
        return device->restless_ns;
    uint64_t soon = UINT64_MAX;
    bool is_mute = false;
    for (struct weir_qp **at = &device->restless; *at != NULL;) {
        struct weir_qp *qp = *at;
        uint64_t next = look(qp);
        is_mute = is_mute || next == 0;
        if (next == 0)
            next = device->now_ns + retry_pause(device, device->mute_ns);
        soon = next < soon ? next : soon;
        if (next != UINT64_MAX) {
            at = &qp->next_restless;
        } else {
            *at = qp->next_restless;
            qp->is_restless = false;
        }
    }
    if (!is_mute)
        device->mute_ns = 0;
    device->restless_ns = soon;
    return soon;
}

/* Into the error state. */
static void stop(struct weir_qp *qp) {
    if (qp->state == EFA_ERROR)
        return;
    if (qp->state == EFA_CONNECTING)
        tell_connected(qp, WEIR_EDEVICE);
    qp->state = EFA_ERROR;
    link_stop(&qp->link, device_now(qp->device));
    post_withdraw(qp);
    post_vouch(qp, true);
    vqp_restless(qp);
}

void vqp_fail(struct weir_qp *qp) {
    if (qp->state == EFA_ERROR)
        return;
    qp->failed = true;
    qp->tells_fatal = true;
    qp->device->untold++;
    stop(qp);
}

void vqps_fail(struct weir_device *device) {
    for (uint32_t i = 0; i < device->qps_used; i++) {
        if (device->qps[i] != NULL && !device->qps[i]->buried)
            vqp_fail(device->qps[i]);
    }
}

void vqps_bury(struct weir_device *device) {
    vqps_fail(device);
    for (uint32_t i = 0; i < device->qps_used; i++) {
        if (device->qps[i] != NULL && !device->qps[i]->buried) {
            device->qps[i]->buried = true;
            vqp_restless(device->qps[i]); /* its flushes wait for nobody else */
        }
    }
}

int efa_qp_error(struct weir_qp *qp) {
    device_lock(qp->device);
    stop(qp);
    efa_progress(qp->device); /* says it */
    device_unlock(qp->device);
    return WEIR_OK;
}

/* ---- destroy ---- */

static void forget_done(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    struct efa_list kept = {EFA_NONE, EFA_NONE};
    for (uint32_t op; (op = ops_pop(device, &device->done)) != EFA_NONE;) {
        if (device->ops[op].qp == qp)
            op_free(device, op);
        else
            ops_push(device, &kept, op);
    }
    device->done = kept;
}

/* The engine's thread may be the only one that makes progress here. */
int efa_qp_destroy(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    device_lock(device);
    stop(qp);
    efa_progress(device);
    if (qp->finding || !vqp_flushes(qp)) {
        device_unlock(device);
        return WEIR_EBUSY;
    }
    device->untold -= (uint32_t)(qp->tells_fatal + qp->tells_connected);
    forget_done(qp);
    receive_forget(qp);
    kept_forget(qp);
    unlist_news(qp);
    unlist_restless(qp);
    unlist_finding(qp);
    table_remove(device, qp);
    if (qp->peer != EFA_NONE)
        av_release(device, qp->peer);
    device_unlock(device);
    free_qp(qp);
    return WEIR_OK;
}
