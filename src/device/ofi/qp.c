/* SPDX-License-Identifier: Apache-2.0 */
/* qp.c: queue pairs: made, broken, destroyed.
 *
 * Owns the table of QPs, and the list of those that have failed and are to be closed. A failure is
 * only noted where it is found, in the middle of the provider's completions: what it has completed
 * before counts. Left to others: how they are connected, what is posted to them. */
#include <string.h>

#include "ofi.h"
#include "power.h"

/* ---- the table ---- */

static void table_add(struct weir_device *device, struct weir_qp *qp) {
    uint32_t index = device->qp_hint;
    while (device->qps[index] != NULL)
        index = (index + 1) & (OFI_QPS_MAX - 1);
    device->qp_hint = (index + 1) & (OFI_QPS_MAX - 1);
    device->qps[index] = qp;
    device->qp_count++;
    uint64_t generation = ++device->generations[index] & OFI_GENERATION_MASK;
    qp->index = index;
    qp->id_base = generation << (OFI_INDEX_BITS + OFI_POSITION_BITS) | (uint64_t)index
                                                                           << OFI_POSITION_BITS;
}

static void table_remove(struct weir_device *device, const struct weir_qp *qp) {
    device->qps[qp->index] = NULL;
    device->qp_count--;
}

struct weir_qp *qp_of_context(const struct weir_device *device, uint64_t context) {
    uint64_t named = context & ~(UINT64_C(3) << OFI_KIND_SHIFT) & ~(uint64_t)OFI_POSITION_MASK;
    struct weir_qp *qp = device->qps[(named >> OFI_POSITION_BITS) & (OFI_QPS_MAX - 1)];
    return qp != NULL && qp->id_base == named ? qp : NULL;
}

/* ---- create ---- */

static size_t sends_bytes(const struct weir_qp *qp) {
    return ((size_t)qp->sq_mask + 1) * sizeof *qp->sends;
}

static size_t receives_bytes(const struct weir_qp *qp) {
    return ((size_t)qp->rq_mask + 1) * sizeof *qp->receives;
}

static void free_qp(struct weir_qp *qp) {
    const struct weir_env *env = &qp->device->env;
    if (qp->sends != NULL)
        env->ops->free(env->self, qp->sends, sends_bytes(qp));
    if (qp->receives != NULL)
        env->ops->free(env->self, qp->receives, receives_bytes(qp));
    env->ops->free(env->self, qp, sizeof *qp);
}

static struct weir_qp *alloc_qp(struct weir_device *device, const struct weir_qp_options *options) {
    const struct weir_env *env = &device->env;
    struct weir_qp *qp = env->ops->alloc(env->self, sizeof *qp);
    if (qp == NULL)
        return NULL;
    qp->device = device;
    qp->fd = -1;
    qp->tag = options->tag;
    qp->recv_bytes_max = options->recv_bytes_max;
    qp->sq_depth = options->sq_depth;
    qp->rq_depth = options->rq_depth;
    qp->sq_mask = power_of_two(qp->sq_depth) - 1;
    qp->rq_mask = power_of_two(qp->rq_depth + 1) - 1;
    qp->sends = env->ops->alloc(env->self, sends_bytes(qp));
    qp->receives = env->ops->alloc(env->self, receives_bytes(qp));
    if (qp->sends != NULL && qp->receives != NULL)
        return qp;
    free_qp(qp);
    return NULL;
}

static void write_granted(struct weir_qp *qp, struct weir_qp_granted *granted_out) {
    const struct weir_device *device = qp->device;
    const struct weir_env *env = &device->env;
    qp->own = (struct ofi_address){
        .port = device->port, .fence_key = device->fence_key, .fence_raddr = device->fence_raddr};
    memcpy(qp->own.ip, device->ip, sizeof qp->own.ip);
    do
        env->ops->entropy(env->self, &qp->own.cookie, sizeof qp->own.cookie);
    while (qp->own.cookie == 0);
    *granted_out = (struct weir_qp_granted){.sq_depth = qp->sq_depth, .rq_depth = qp->rq_depth};
    granted_out->blob_length = ofi_blob_write_address(&qp->own, granted_out->blob);
}

int ofi_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                  struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    if (options->sq_depth == 0 || options->sq_depth > device->caps.sq_depth_max ||
        options->rq_depth > device->caps.rq_depth_max)
        return WEIR_EINVAL;
    struct weir_qp *qp = alloc_qp(device, options);
    if (qp == NULL)
        return WEIR_ENOMEM;
    write_granted(qp, granted_out); /* before calls of others may find it */
    device_lock(device);
    int rc = device->lost                      ? WEIR_EDEVICE
             : device->qp_count == OFI_QPS_MAX ? WEIR_EFULL
                                               : stash_reserve(device, qp->sq_depth + qp->rq_depth);
    if (rc == WEIR_OK)
        table_add(device, qp);
    device_unlock(device);
    if (rc != WEIR_OK) {
        free_qp(qp);
        return rc;
    }
    *qp_out = qp;
    return WEIR_OK;
}

/* ---- error, destroy ---- */

/* Completions that the provider had before are taken first; what it says while it closes is that
 * nothing more comes. */
void qp_break(struct weir_qp *qp) {
    if (qp->state == OFI_ERROR)
        return;
    qp->state = OFI_ERROR;
    reads_end(qp);
    connect_drop(qp);
    ofi_drain(qp->device);
    ofi_flush(qp);
}

void qp_note_failure(struct weir_qp *qp) {
    if (qp->failing || qp->state != OFI_READY)
        return;
    qp->failing = true;
    qp->next_failing = qp->device->failing;
    qp->device->failing = qp;
}

void failures_see(struct weir_device *device) {
    while (device->failing != NULL) {
        struct weir_qp *qp = device->failing;
        device->failing = qp->next_failing;
        qp->failing = false;
        if (qp->state != OFI_READY)
            continue;
        qp->tells_fatal = true;
        device->untold++;
        qp_break(qp);
    }
}

int ofi_qp_error(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    device_lock(device);
    if (qp->state == OFI_CONNECTING)
        connect_end(qp, WEIR_EDEVICE);
    qp_break(qp);
    device_unlock(device);
    return WEIR_OK;
}

static void unlist_failure(struct weir_qp *qp) {
    struct weir_qp **at = &qp->device->failing;
    while (*at != NULL && *at != qp)
        at = &(*at)->next_failing;
    if (*at == qp)
        *at = qp->next_failing;
}

int ofi_qp_destroy(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    device_lock(device);
    if (qp->state == OFI_CONNECTING)
        connect_end(qp, WEIR_EDEVICE);
    qp_break(qp);
    unlist_failure(qp);
    device->untold -= qp->tells_fatal + qp->tells_connected;
    stash_forget(device, qp, qp->sq_depth + qp->rq_depth);
    table_remove(device, qp);
    device_unlock(device);
    free_qp(qp);
    return WEIR_OK;
}
