/* SPDX-License-Identifier: Apache-2.0 */
/* cq.c: completion queues: made when QPs need them, polled in turn, given back.
 *
 * Owns the account of their entries: a QP gets a CQ that its queues cannot overflow, with all
 * that went to it before, or none. A device that grants few entries (Soft-RoCE: 32,768) so has
 * several CQs, and no fewer QPs. The completions of a shared receive queue may all come to any one
 * of them, so each keeps room for those. All wake the one completion channel.
 *
 * The first CQ lasts as long as the device. Of those without QPs one more is kept, so that a QP
 * that comes and goes does not take a CQ along each time.
 *
 * An armed CQ stays armed, whatever is polled, until its event is taken (ibv_req_notify_cq(3)):
 * so it is armed once for each event, which is a system call in some drivers. */
#include "verbs.h"

static uint32_t smaller(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

uint32_t cq_asked(const struct weir_device *device) {
    uint32_t wish = device->env.wishes.cq_depth;
    return wish != 0 ? wish : VERBS_CQ_MAX;
}

/* As large as asked for, or as the device gives, down to a bound. NULL: none. */
static struct ibv_cq *make(struct weir_device *device, struct verbs_cq *context, uint32_t least) {
    uint32_t wanted = smaller((uint32_t)device->choice.attr.max_cqe, cq_asked(device));
    struct ibv_cq *cq = NULL;
    for (; cq == NULL && wanted >= least && wanted > 0; wanted /= 2)
        cq = ibv_create_cq(device->choice.context, (int)wanted, context, device->channel, 0);
    return cq;
}

/* One more, with room for so many entries besides the shared receives. NULL: none can be had. */
static struct verbs_cq *add(struct weir_device *device, uint32_t entries) {
    const struct weir_env *env = &device->env;
    uint32_t least = smaller(cq_asked(device), VERBS_CQ_MIN);
    if (least < device->srq_depth + entries)
        least = device->srq_depth + entries;
    if (device->cq_count == VERBS_CQS_MAX)
        return NULL;
    struct verbs_cq *cq = env->ops->alloc(env->self, sizeof *cq);
    if (cq == NULL)
        return NULL;
    cq->ibv = make(device, cq, least);
    if (cq->ibv == NULL)
        goto free_cq;
    cq->capacity = smaller((uint32_t)cq->ibv->cqe, UINT64_C(2) * cq_asked(device));
    cq->used = device->srq_depth;
    if (stash_grow(device, device->cq_entries + cq->capacity) != WEIR_OK)
        goto destroy_cq;
    device->cq_entries += cq->capacity;
    device->cqs[device->cq_count++] = cq;
    return cq;

destroy_cq:
    ibv_destroy_cq(cq->ibv);
free_cq:
    env->ops->free(env->self, cq, sizeof *cq);
    return NULL;
}

static void drop(struct weir_device *device, uint32_t at) {
    struct verbs_cq *cq = device->cqs[at];
    if (ibv_destroy_cq(cq->ibv) != 0)
        return; /* it is kept, and may be used again */
    device->cq_entries -= cq->capacity;
    device->cqs[at] = device->cqs[--device->cq_count];
    device->cq_turn = 0;
    device->env.ops->free(device->env.self, cq, sizeof *cq);
}

int cqs_open(struct weir_device *device) {
    return add(device, 0) != NULL ? WEIR_OK : WEIR_EDEVICE;
}

void cqs_reserve(struct weir_device *device) {
    device->cqs[0]->used = device->srq_depth;
}

void cqs_close(struct weir_device *device) {
    for (uint32_t left = device->cq_count; left > 0; left--)
        drop(device, left - 1);
}

struct verbs_cq *cq_take(struct weir_device *device, uint32_t entries) {
    for (uint32_t i = 0; i < device->cq_count; i++) {
        struct verbs_cq *cq = device->cqs[i];
        if (entries <= cq->capacity - cq->used)
            return cq;
    }
    return add(device, entries);
}

void cq_use(struct verbs_cq *cq, uint32_t entries) {
    cq->used += entries;
    cq->qp_count++;
}

void cq_leave(struct weir_device *device, struct verbs_cq *cq, uint32_t entries) {
    uint32_t idle = 0, last = 0;
    cq->used -= entries;
    cq->qp_count--;
    for (uint32_t i = 1; i < device->cq_count; i++) {
        if (device->cqs[i]->qp_count == 0) {
            idle++;
            last = i;
        }
    }
    if (idle > 1)
        drop(device, last);
}

uint32_t cqs_capacity(const struct weir_device *device) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < device->cq_count; i++) {
        if (device->cqs[i]->capacity > most)
            most = device->cqs[i]->capacity;
    }
    uint64_t all = (uint64_t)most * device->cq_count;
    return smaller(all, UINT32_MAX);
}

bool cqs_arm(struct weir_device *device) {
    for (uint32_t i = 0; i < device->cq_count; i++) {
        struct verbs_cq *cq = device->cqs[i];
        if (!cq->armed && ibv_req_notify_cq(cq->ibv, 0) != 0)
            return false;
        cq->armed = true;
    }
    return true;
}

void cqs_disarm(struct weir_device *device) {
    struct ibv_cq *ibv;
    void *context;
    while (ibv_get_cq_event(device->channel, &ibv, &context) == 0) {
        struct verbs_cq *cq = context;
        cq->armed = false;
        ibv_ack_cq_events(ibv, 1);
    }
}
