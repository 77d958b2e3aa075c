/* SPDX-License-Identifier: Apache-2.0 */
/* qp.c: queue pairs: made with what the provider grants, taken down.
 *
 * Owns the table of QPs, and their numbers. Left to others: how they are connected, what is
 * posted to them, which CQ has room for them (cq.c). */
#include <errno.h>
#include <string.h>

#include "power.h"
#include "verbs.h"

int verbs_error(int error) {
    switch (error < 0 ? -error : error) {
    case ENOMEM:
    case ENOSPC:
        return WEIR_ENOMEM;
    case EINVAL:
    case EFAULT:
    case E2BIG:
        return WEIR_EINVAL;
    case EBUSY:
        return WEIR_EBUSY;
    case EOPNOTSUPP:
    case ENOSYS:
        return WEIR_ENOTSUP;
    default:
        return WEIR_EDEVICE;
    }
}

/* ---- the table ---- */

static struct weir_qp **bucket_of(struct weir_device *device, uint32_t qpn) {
    return &device->buckets[qpn & (VERBS_BUCKETS - 1)];
}

struct weir_qp *qp_by_number(const struct weir_device *device, uint32_t qpn) {
    struct weir_qp *qp = device->buckets[qpn & (VERBS_BUCKETS - 1)];
    while (qp != NULL && qp->qpn != qpn)
        qp = qp->bucket_next;
    return qp;
}

static void table_add(struct weir_device *device, struct weir_qp *qp) {
    uint32_t index = device->qp_hint;
    while (device->qps[index] != NULL)
        index = (index + 1) & (VERBS_QPS_MAX - 1);
    device->qp_hint = (index + 1) & (VERBS_QPS_MAX - 1);
    device->qps[index] = qp;
    device->qp_count++;
    uint64_t generation = ++device->generations[index] & VERBS_GENERATION_MASK;
    qp->index = index;
    qp->id_base = VERBS_ID_SEND | generation << (VERBS_INDEX_BITS + VERBS_POSITION_BITS) |
                  (uint64_t)index << VERBS_POSITION_BITS;
    struct weir_qp **bucket = bucket_of(device, qp->qpn);
    qp->bucket_next = *bucket;
    *bucket = qp;
}

static void table_remove(struct weir_device *device, struct weir_qp *qp) {
    struct weir_qp **at = bucket_of(device, qp->qpn);
    while (*at != qp)
        at = &(*at)->bucket_next;
    *at = qp->bucket_next;
    device->qps[qp->index] = NULL;
    device->qp_count--;
}

/* ---- create ---- */

/* WRs of the provider's for each of ours: see fence.c. */
static uint32_t wrs_each(const struct weir_device *device) {
    return device->fenced ? 2 : 1;
}

/* CQ entries that sends of one QP may take: each WR of the provider's has one when it is
 * flushed, and iWARP's that the provider forgets have one from us (poll_flush). */
static uint32_t send_entries(const struct weir_device *device, uint32_t sq_depth) {
    return device->fenced ? 3 * sq_depth : sq_depth;
}

static struct ibv_qp *make(struct weir_device *device, const struct verbs_cq *cq, uint32_t sq_depth,
                           uint32_t rq_depth, uint32_t inline_bytes,
                           struct ibv_qp_cap *granted_out) {
    struct ibv_qp_init_attr attr = {
        .send_cq = cq->ibv,
        .recv_cq = cq->ibv,
        .srq = device->srq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = sq_depth * wrs_each(device),
                .max_recv_wr = device->srq == NULL ? rq_depth : 0,
                .max_send_sge = device->pieces,
                .max_recv_sge = device->srq == NULL ? 1 : 0,
                .max_inline_data = inline_bytes},
    };
    struct ibv_qp *qp = ibv_create_qp(device->pd, &attr);
    if (qp != NULL)
        *granted_out = attr.cap; /* ibv_create_qp(3): the actual values, at least as asked */
    return qp;
}

/* Whether a QP can be made that has so many inline bytes and SGEs. WEIR_EAGAIN: it can not. */
static int try(struct weir_device *device, uint32_t inline_bytes, uint32_t pieces,
               struct ibv_qp_cap *granted_out) {
    device->pieces = pieces;
    struct ibv_qp *qp = make(device, device->cqs[0], VERBS_DEPTH_MIN, 1, inline_bytes, granted_out);
    if (qp == NULL)
        return WEIR_EAGAIN;
    return ibv_destroy_qp(qp) == 0 ? WEIR_OK : WEIR_EDEVICE;
}

int qp_try_sizes(struct weir_device *device) {
    uint32_t wanted = device->env.wishes.inline_bytes;
    struct ibv_qp_cap granted;
    int rc;
    wanted = wanted == 0 ? VERBS_INLINE_WANTED : wanted == WEIR_INLINE_NONE ? 0 : wanted;
    while ((rc = try(device, wanted, 1, &granted)) == WEIR_EAGAIN) {
        if (wanted == 0)
            return WEIR_EDEVICE;
        wanted = wanted > 32 ? wanted / 2 : 0;
    }
    if (rc != WEIR_OK)
        return rc;
    device->inline_bytes = granted.max_inline_data < wanted ? granted.max_inline_data : wanted;
    /* No more than lie where inline bytes would: a longer WQE could cost depth. */
    uint32_t pieces = 1 + device->inline_bytes / (uint32_t)sizeof(struct ibv_sge);
    if (pieces > VERBS_PIECES)
        pieces = VERBS_PIECES;
    if (pieces > (uint32_t)device->choice.attr.max_sge)
        pieces = (uint32_t)device->choice.attr.max_sge;
    rc = pieces > 1 ? try(device, device->inline_bytes, pieces, &granted) : WEIR_EAGAIN;
    if (rc == WEIR_EDEVICE)
        return rc;
    device->pieces = rc == WEIR_OK && granted.max_inline_data >= device->inline_bytes ? pieces : 1;
    return WEIR_OK;
}

/* As deep as wanted, or as the provider can: the depth that max_qp_wr promises need not go together
 * with inline data. errno is set on failure. */
static struct ibv_qp *make_deep(struct weir_device *device, const struct verbs_cq *cq,
                                uint32_t sq_depth, uint32_t rq_depth,
                                struct ibv_qp_cap *granted_out) {
    for (;;) {
        struct ibv_qp *qp = make(device, cq, sq_depth, rq_depth, device->inline_bytes, granted_out);
        if (qp != NULL || sq_depth <= VERBS_DEPTH_MIN || (errno != ENOMEM && errno != EINVAL))
            return qp;
        sq_depth /= 2;
    }
}

static int to_init(const struct weir_device *device, struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = device->choice.pkey_index,
                               .port_num = device->choice.port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    /* iWARP knows neither of port nor of P_Key here (rdma_create_qp(3)). */
    int where = device->fenced ? 0 : IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | where);
    return error == 0 ? WEIR_OK : WEIR_EDEVICE;
}

static size_t ids_bytes(const struct weir_qp *qp) {
    return ((size_t)qp->id_mask + 1) * sizeof *qp->ids;
}

/* Entries of its CQ that the QP may fill. */
static uint32_t entries(const struct weir_qp *qp) {
    return send_entries(qp->device, qp->sq_depth) + qp->rq_depth;
}

/* The address of now is the QP's for ever: its peer is told. */
static void write_granted(struct weir_qp *qp, struct weir_qp_granted *granted_out) {
    const struct weir_env *env = &qp->device->env;
    const struct verbs_choice *choice = &qp->device->choice;
    const struct verbs_cm *cm = &qp->device->cm;
    qp->source = (struct verbs_source){
        .address = {.qpn = qp->qpn,
                    .lid = choice->port_attr.lid,
                    .fabric = (uint8_t)choice->fabric,
                    .gid = choice->gid},
        .mtu = choice->mtu,
        .gid_index = choice->gid_index,
        .grh_required = (choice->port_attr.flags & IBV_QPF_GRH_REQUIRED) != 0,
    };
    if (choice->fabric == FABRIC_IWARP) {
        qp->source.address.tcp_port = cm->port;
        qp->source.address.fence = (uint64_t)(uintptr_t)&cm->fence[0];
        qp->source.address.fence_key = cm->fence_mr->rkey;
        do
            env->ops->entropy(env->self, &qp->source.address.cookie,
                              sizeof qp->source.address.cookie);
        while (qp->source.address.cookie == 0);
    }
    *granted_out = (struct weir_qp_granted){.sq_depth = qp->sq_depth, .rq_depth = qp->rq_depth};
    granted_out->blob_length = blob_write_address(&qp->source.address, granted_out->blob);
}

/* Takes what the provider granted as the QP's size. */
static int adopt(struct weir_qp *qp, const struct ibv_qp_cap *cap, uint32_t rq_wanted) {
    const struct weir_device *device = qp->device;
    if (cap->max_inline_data < device->inline_bytes)
        return WEIR_EDEVICE;
    uint32_t depth = cap->max_send_wr / wrs_each(device);
    qp->sq_depth = depth < VERBS_DEPTH_MAX ? depth : VERBS_DEPTH_MAX;
    qp->rq_depth = device->srq != NULL ? 0 : rq_wanted;
    qp->id_mask = power_of_two(qp->sq_depth) - 1;
    return WEIR_OK;
}

/* A QP of the provider's on a CQ that has room for it. It may be granted more than was asked for,
 * and then need another CQ; that is the same each time. EFULL: no CQ has room. */
static int make_on_cq(struct weir_qp *qp, const struct weir_qp_options *options) {
    struct weir_device *device = qp->device;
    uint32_t rq_wanted = device->srq != NULL ? 0 : options->rq_depth;
    uint32_t needed = send_entries(device, options->sq_depth) + rq_wanted;
    int rc = WEIR_EFULL;
    for (int tries = 0; tries < 3; tries++) {
        struct ibv_qp_cap cap;
        qp->cq = cq_take(device, needed);
        if (qp->cq == NULL)
            return WEIR_EFULL;
        qp->ibv = make_deep(device, qp->cq, options->sq_depth, rq_wanted, &cap);
        if (qp->ibv == NULL)
            return verbs_error(errno);
        rc = adopt(qp, &cap, rq_wanted);
        needed = entries(qp);
        if (rc == WEIR_OK && needed <= qp->cq->capacity - qp->cq->used)
            return WEIR_OK;
        ibv_destroy_qp(qp->ibv);
        if (rc != WEIR_OK)
            return rc;
    }
    return WEIR_EFULL;
}

int verbs_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                    struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    const struct weir_env *env = &device->env;
    uint32_t rq_wanted = device->srq != NULL ? 0 : options->rq_depth;
    if (device->gone)
        return WEIR_EDEVICE;
    if (options->sq_depth == 0 || options->sq_depth > device->caps.sq_depth_max ||
        rq_wanted > device->caps.rq_depth_max)
        return WEIR_EINVAL;
    if (device->qp_count == VERBS_QPS_MAX)
        return WEIR_EFULL;
    if (device->port_changed) {
        if (select_refresh(&device->settings, &device->choice) != WEIR_OK)
            return WEIR_EAGAIN; /* a link that is down comes up again */
        device->port_changed = false;
    }
    struct weir_qp *qp = env->ops->alloc(env->self, sizeof *qp);
    if (qp == NULL)
        return WEIR_ENOMEM;
    qp->device = device;
    int rc = make_on_cq(qp, options);
    if (rc != WEIR_OK)
        goto free_qp;
    qp->qpn = qp->ibv->qp_num;
    qp->tag = options->tag;
    qp->culprit = UINT32_MAX;
    qp->recv_bytes_max = options->recv_bytes_max;
    rc = to_init(device, qp->ibv);
    if (rc != WEIR_OK)
        goto destroy_qp;
    qp->ids = env->ops->alloc(env->self, ids_bytes(qp));
    if (qp->ids == NULL) {
        rc = WEIR_ENOMEM;
        goto destroy_qp;
    }
    qp->ibv->qp_context = qp; /* of asynchronous events */
    cq_use(qp->cq, entries(qp));
    table_add(device, qp);
    write_granted(qp, granted_out);
    *qp_out = qp;
    return WEIR_OK;

destroy_qp:
    ibv_destroy_qp(qp->ibv);
free_qp:
    env->ops->free(env->self, qp, sizeof *qp);
    return rc;
}

/* ---- error, destroy ---- */

/* A last-WQE event comes at once, if at all: silence of so long is an answer. */
#define SILENCE_NS UINT64_C(50000000)

static uint64_t now_ns(const struct weir_device *device) {
    return device->env.ops->now(device->env.self);
}

/* Notes what a QP's end says of the device. A QP that was never
 * connected gives no last-WQE event. */
static void note_habit(const struct weir_qp *qp) {
    const struct weir_device *device = qp->device;
    bool waited = qp->error_ns != 0 && now_ns(device) - qp->error_ns >= SILENCE_NS;
    if (device->srq != NULL && qp->was_ready && (qp->last_wqe || waited))
        habit_note_last_wqe(ibv_get_device_name(device->choice.context->device), qp->last_wqe);
}

int verbs_qp_error(struct weir_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (qp->state == QP_CONNECTING) { /* when it is done */
        qp->error_wanted = true;
        if (qp->expects)
            connector_fail(qp, WEIR_EDEVICE);
        return WEIR_OK;
    }
    if (qp->state == QP_ERROR && qp->device->fenced)
        return WEIR_OK;
    qp->state = QP_ERROR;
    qp->error_ns = now_ns(qp->device);
    enum verbs_sigpipe hold = sigpipe_hold(qp->device);
    int error = ibv_modify_qp(qp->ibv, &attr, IBV_QP_STATE);
    sigpipe_release(hold);
    if (qp->device->fenced)
        fence_flush(qp);
    return error == 0 ? WEIR_OK : WEIR_EDEVICE;
}

/* Some providers leave the completions of a destroyed QP in the CQ, others take them out,
 * and with them the last word on buffers of the shared queue. So the CQ is emptied before,
 * and after: then the QP's number may come again. */
int verbs_qp_destroy(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    const struct weir_env *env = &device->env;
    if (connector_cancel(qp) != WEIR_OK || (device->fenced && cm_hangup(qp) != WEIR_OK))
        return WEIR_EBUSY;
    poll_to_stash(device, qp->cq);
    enum verbs_sigpipe hold = sigpipe_hold(device);
    int error = ibv_destroy_qp(qp->ibv);
    sigpipe_release(hold);
    /* The kernel has destroyed the QPs of a device that it took away. */
    if (error != 0 && (error != EIO || device->loss == LOSS_NONE))
        return error == EBUSY ? WEIR_EBUSY : WEIR_EDEVICE;
    poll_to_stash(device, qp->cq);
    poll_forget(device, qp);
    note_habit(qp);
    table_remove(device, qp);
    cq_leave(device, qp->cq, entries(qp));
    env->ops->free(env->self, qp->ids, ids_bytes(qp));
    env->ops->free(env->self, qp, sizeof *qp);
    return WEIR_OK;
}
