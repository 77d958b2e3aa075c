/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c: completions, asynchronous events and sleeping.
 *
 * Owns the stash: completions that were taken from the CQ but not yet by the caller, in
 * order. They get there when a QP is destroyed, when arming finds some, and on iWARP always. A
 * completion in the stash is still in the account of its CQ (cq.c), so there is room for it. Left
 * to others: which slots there are.
 *
 * Events, those of the completion channel too, are copied and acknowledged in the call that
 * took them: to destroy a QP, CQ or SRQ waits for the acknowledgements of what was taken
 * (ibv_get_async_event(3), ibv_get_cq_event(3)). */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>

#include "verbs.h"

/* Indexed by enum ibv_wc_status; 0 is success in both. REM_INV_REQ is what a target says
 * that cannot take a message as long as this one. */
static const uint8_t statuses[] = {
    [IBV_WC_SUCCESS] = WEIR_CQE_OK,
    [IBV_WC_LOC_LEN_ERR] = WEIR_CQE_LENGTH,
    [IBV_WC_LOC_PROT_ERR] = WEIR_CQE_LOCAL_PROT,
    [IBV_WC_WR_FLUSH_ERR] = WEIR_CQE_FLUSHED,
    [IBV_WC_REM_INV_REQ_ERR] = WEIR_CQE_REMOTE_ACCESS,
    [IBV_WC_REM_ACCESS_ERR] = WEIR_CQE_REMOTE_ACCESS,
    [IBV_WC_RETRY_EXC_ERR] = WEIR_CQE_RETRY,
    [IBV_WC_RNR_RETRY_EXC_ERR] = WEIR_CQE_RNR,
};

/* An enum ibv_port_state; -1: it cannot be had, and the device is gone, say. A system call. */
static int port_state(const struct weir_device *device) {
    struct ibv_port_attr attr;
    int error = ibv_query_port(device->choice.context, device->choice.port, &attr);
    return error == 0 ? (int)attr.state : -1;
}

bool verbs_link_is_down(struct weir_device *device) {
    int state = port_state(device);
    return state != -1 && state != IBV_PORT_ACTIVE;
}

/* LOC_QP_OP is what Soft-RoCE says of an lkey that it does not know, but also, while the
 * link is down, of a packet that it has no route for: nobody's fault. */
static uint32_t status_of_local(const struct weir_device *device) {
    return port_state(device) == IBV_PORT_ACTIVE ? WEIR_CQE_DEVICE : WEIR_CQE_RETRY;
}

static inline uint32_t status_of(const struct weir_device *device, enum ibv_wc_status status) {
    if (VERBS_LIKELY(status == IBV_WC_SUCCESS))
        return WEIR_CQE_OK;
    if (status == IBV_WC_LOC_QP_OP_ERR)
        return status_of_local(device);
    if ((uint32_t)status >= sizeof statuses || statuses[status] == WEIR_CQE_OK)
        return WEIR_CQE_DEVICE;
    return statuses[status];
}

/* ---- from the CQ to the caller ---- */

/* Finds the QP of a completion. False: its QP is gone. Of a completion that is no success only
 * wr_id, status, qp_num and vendor_err are valid (ibv_poll_cq(3)), so the wr_id says whether it is
 * of a send. */
static inline bool resolve(const struct weir_device *device, const struct ibv_wc *wc,
                           struct verbs_raw *raw) {
    uint32_t status = status_of(device, wc->status);
    if ((wc->wr_id & VERBS_ID_SEND) != 0) {
        uint32_t index =
            (uint32_t)(wc->wr_id >> VERBS_POSITION_BITS) & ((1u << VERBS_INDEX_BITS) - 1);
        struct weir_qp *qp = index < VERBS_QPS_MAX ? device->qps[index] : NULL;
        if (qp == NULL || (wc->wr_id & ~(uint64_t)VERBS_POSITION_MASK) != qp->id_base)
            return false;
        *raw = (struct verbs_raw){.qp = qp, .wr_id = wc->wr_id, .status = status};
        return true;
    }
    struct weir_qp *qp = qp_by_number(device, wc->qp_num);
    if (qp == NULL && device->srq == NULL)
        return false;
    *raw = (struct verbs_raw){.qp = qp,
                              .wr_id = wc->wr_id,
                              .status = status,
                              .tag = qp != NULL ? qp->tag : UINT32_MAX,
                              .recv = true};
    if (status == WEIR_CQE_OK) {
        raw->byte_length = wc->byte_len;
        raw->has_imm = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
    }
    return true;
}

/* Frees the slots that a completion covers. False: they were free already. */
static inline bool deliver(struct weir_device *device, const struct verbs_raw *raw,
                           struct weir_cqe *cqe) {
    struct weir_qp *qp = raw->qp;
    if (VERBS_UNLIKELY(raw->status != WEIR_CQE_OK) && device->fenced && !raw->recv && !raw->own) {
        fence_failed(qp, (uint32_t)raw->wr_id & VERBS_POSITION_MASK, raw->status);
        return false;
    }
    if (!raw->recv) {
        uint32_t position = (uint32_t)raw->wr_id & VERBS_POSITION_MASK;
        uint32_t covered = ((position - qp->tail) & VERBS_POSITION_MASK) + 1;
        if (covered > qp->head - qp->tail)
            return false;
        qp->tail += covered;
        *cqe = (struct weir_cqe){.wr_id = qp->ids[position & qp->id_mask], .status = raw->status};
        return true;
    }
    uint32_t *used = device->srq != NULL ? &device->srq_used : &qp->rq_used;
    if (*used == 0)
        return false;
    (*used)--;
    *cqe = (struct weir_cqe){.wr_id = raw->wr_id,
                             .status = raw->status,
                             .byte_length = raw->byte_length,
                             .qp_tag = raw->tag,
                             .recv = true,
                             .has_imm = raw->has_imm};
    return true;
}

/* ---- the stash ---- */

static struct verbs_raw *stash_at(const struct weir_device *device, uint32_t number) {
    uint32_t at = device->stash_head + number;
    return &device->stash[at < device->stash_size ? at : at - device->stash_size];
}

int stash_grow(struct weir_device *device, uint32_t entries) {
    const struct weir_env *env = &device->env;
    if (entries <= device->stash_size)
        return WEIR_OK;
    struct verbs_raw *stash = env->ops->alloc(env->self, (size_t)entries * sizeof *stash);
    if (stash == NULL)
        return WEIR_ENOMEM;
    for (uint32_t i = 0; i < device->stash_count; i++)
        stash[i] = *stash_at(device, i);
    if (device->stash != NULL)
        env->ops->free(env->self, device->stash, (size_t)device->stash_size * sizeof *stash);
    device->stash = stash;
    device->stash_size = entries;
    device->stash_head = 0;
    return WEIR_OK;
}

/* One batch of a CQ. How many were in it. */
static int stash_batch(struct weir_device *device, const struct verbs_cq *cq) {
    uint32_t room = device->stash_size - device->stash_count;
    int wanted = room < VERBS_POLL_BATCH ? (int)room : VERBS_POLL_BATCH;
    int got = wanted > 0 ? ibv_poll_cq(cq->ibv, wanted, device->wcs) : 0;
    for (int i = 0; i < got; i++) {
        if (resolve(device, &device->wcs[i], stash_at(device, device->stash_count)))
            device->stash_count++;
    }
    return got;
}

void poll_to_stash(struct weir_device *device, const struct verbs_cq *cq) {
    while (stash_batch(device, cq) == VERBS_POLL_BATCH)
        continue;
}

void poll_flush(struct weir_qp *qp, uint32_t position, uint32_t status) {
    struct weir_device *device = qp->device;
    poll_to_stash(device, qp->cq);
    assert(device->stash_count < device->stash_size); /* qp.c counts these, too */
    *stash_at(device, device->stash_count++) =
        (struct verbs_raw){.qp = qp,
                           .wr_id = qp->id_base | (position & VERBS_POSITION_MASK),
                           .status = status,
                           .own = true};
}

void poll_forget(struct weir_device *device, const struct weir_qp *qp) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < device->stash_count; i++) {
        struct verbs_raw *raw = stash_at(device, i);
        if (raw->qp == qp && (!raw->recv || device->srq == NULL))
            continue;
        if (raw->qp == qp)
            raw->qp = NULL; /* its tag names nobody any more, but the buffer comes back */
        *stash_at(device, kept++) = *raw;
    }
    device->stash_count = kept;
}

static __attribute__((noinline)) int take_stashed(struct weir_device *device,
                                                  struct weir_cqe *cqes_out, int max) {
    int count = 0;
    while (count < max && device->stash_count > 0) {
        if (deliver(device, stash_at(device, 0), &cqes_out[count]))
            count++;
        device->stash_head =
            device->stash_head + 1 < device->stash_size ? device->stash_head + 1 : 0;
        device->stash_count--;
    }
    return count;
}

/* ---- completions ---- */

/* Everything goes through the stash, because deliver may add to it (fence_failed). */
static __attribute__((noinline)) int poll_fenced(struct weir_device *device,
                                                 struct weir_cqe *cqes_out, int max) {
    bool failed = false;
    for (uint32_t i = 0; i < device->cq_count; i++) {
        int got = VERBS_POLL_BATCH;
        while (got == VERBS_POLL_BATCH)
            got = stash_batch(device, device->cqs[i]);
        failed |= got < 0;
    }
    int count = take_stashed(device, cqes_out, max);
    return failed && count == 0 ? WEIR_EDEVICE : count;
}

/* A batch of each CQ in turn, until all were empty or it is enough; a CQ that was not asked is
 * first the next time. */
int verbs_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    int count = 0;
    if (VERBS_UNLIKELY(device->fenced))
        return poll_fenced(device, cqes_out, max);
    if (VERBS_UNLIKELY(device->stash_count > 0))
        count = take_stashed(device, cqes_out, max);
    for (uint32_t empty = 0; count < max && empty < device->cq_count;) {
        const struct verbs_cq *cq = device->cqs[device->cq_turn];
        int wanted = max - count < VERBS_POLL_BATCH ? max - count : VERBS_POLL_BATCH;
        int got = ibv_poll_cq(cq->ibv, wanted, device->wcs);
        if (VERBS_UNLIKELY(got < 0))
            return count > 0 ? count : WEIR_EDEVICE;
        device->cq_turn = device->cq_turn + 1 < device->cq_count ? device->cq_turn + 1 : 0;
        empty = got < wanted ? empty + 1 : 0;
        for (int i = 0; i < got; i++) {
            struct verbs_raw raw;
            if (resolve(device, &device->wcs[i], &raw) && deliver(device, &raw, &cqes_out[count]))
                count++;
        }
    }
    return count;
}

/* ---- events ---- */

/* A QP that was not made in the end, and could not be destroyed, has no context. */
static struct weir_async of_qp(uint32_t type, const struct ibv_async_event *event) {
    struct weir_qp *qp = event->element.qp->qp_context;
    if (qp == NULL)
        return (struct weir_async){.type = 0};
    qp->last_wqe |= type == WEIR_ASYNC_LAST_WQE;
    return (struct weir_async){.type = type, .qp_tag = qp->tag};
}

/* The event as the engine is told it; type 0: it is not. */
static struct weir_async event_of(struct weir_device *device, const struct ibv_async_event *event) {
    switch (event->event_type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return of_qp(WEIR_ASYNC_LAST_WQE, event);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        return of_qp(WEIR_ASYNC_QP_FATAL, event);
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
        return (struct weir_async){.type = WEIR_ASYNC_DEVICE_FATAL, .qp_tag = UINT32_MAX};
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        device->port_changed = true;
        return (struct weir_async){.type = 0};
    default:
        return (struct weir_async){.type = 0};
    }
}

/* Reading events, or asking for them, fails when the device was unplugged, and its descriptors
 * stay readable for ever: nobody sleeps on them any more. verbs_events says so, once. */
static void lose_device(struct weir_device *device) {
    if (device->loss != LOSS_NONE)
        return;
    device->loss = LOSS_UNTOLD;
    epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, device->choice.context->async_fd, NULL);
    epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, device->channel->fd, NULL);
}

static bool nothing_more(int error) {
    return error == EAGAIN || error == EINTR;
}

/* A loss for good is told once. */
static bool loss_is_new(enum verbs_loss *loss) {
    bool is_new = *loss == LOSS_UNTOLD;
    if (is_new)
        *loss = LOSS_TOLD;
    return is_new;
}

int verbs_events(struct weir_device *device, struct weir_async *events_out, int max) {
    if (device->gone)
        return 0;
    if (device->removal == LOSS_NONE && watch_sees_removal(device))
        device->removal = LOSS_UNTOLD;
    int count = connector_events(device, events_out, max);
    count += cm_events(device, events_out + count, max - count);
    for (int reads = 0; count < max && reads < 4 * max; reads++) {
        struct ibv_async_event event;
        if (ibv_get_async_event(device->choice.context, &event) != 0) {
            if (!nothing_more(errno))
                lose_device(device);
            break;
        }
        struct weir_async told = event_of(device, &event);
        ibv_ack_async_event(&event);
        if (told.type != 0)
            events_out[count++] = told;
    }
    if (count < max && (loss_is_new(&device->loss) || loss_is_new(&device->removal)))
        events_out[count++] =
            (struct weir_async){.type = WEIR_ASYNC_DEVICE_FATAL, .qp_tag = UINT32_MAX};
    return count;
}

/* ---- sleeping ---- */

int verbs_fd(struct weir_device *device) {
    return device->epoll_fd;
}

/* Whether a CQ or the stash has anything for anybody. */
static bool has_completion(struct weir_device *device) {
    for (uint32_t i = 0; device->stash_count == 0 && i < device->cq_count; i++) {
        while (device->stash_count == 0 && stash_batch(device, device->cqs[i]) == VERBS_POLL_BATCH)
            continue;
    }
    return device->stash_count > 0;
}

/* Looked at before, so that arming fires for what is new only; and after, for what came
 * in between (ibv_get_cq_event(3)). */
int verbs_arm(struct weir_device *device) {
    if (device->gone)
        return WEIR_OK; /* there is nothing more to come */
    if (has_completion(device))
        return WEIR_EAGAIN;
    if (device->loss == LOSS_NONE && !cqs_arm(device))
        lose_device(device);
    if (device->loss == LOSS_UNTOLD)
        return WEIR_EAGAIN; /* there is an event to take, before anybody sleeps */
    return has_completion(device) ? WEIR_EAGAIN : WEIR_OK;
}

void verbs_disarm(struct weir_device *device) {
    if (device->gone)
        return;
    cqs_disarm(device);
    if (!nothing_more(errno))
        lose_device(device);
}
