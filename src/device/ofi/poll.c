/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c: completions, asynchronous events and sleeping.
 *
 * Owns the stash: completions that were taken from the provider, or made here by a flush, and not
 * taken by the caller yet, in order. Each is of a WR or a receive that holds a slot until then, so
 * there is room for all that QPs can have.
 *
 * A completion says that what was posted in front of it is over, too. The target takes one stream
 * in its order, so that is so of writes and messages by themselves; that the answers to reads come
 * in their order is no promise of libfabric's, so each has a completion, which is looked for. A
 * completion that names nothing that is under way is counted and dropped. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ofi.h"

/* ---- the stash ---- */

static struct ofi_raw *stash_at(const struct weir_device *device, uint32_t number) {
    uint32_t at = device->stash_head + number;
    return &device->stash[at < device->stash_size ? at : at - device->stash_size];
}

/* Twice as long each time, so that many QPs cost no more than a copy each. */
static int grow(struct weir_device *device, uint32_t entries) {
    const struct weir_env *env = &device->env;
    uint32_t size = device->stash_size * 2 > entries ? device->stash_size * 2 : entries;
    struct ofi_raw *stash = env->ops->alloc(env->self, (size_t)size * sizeof *stash);
    if (stash == NULL)
        return WEIR_ENOMEM;
    for (uint32_t i = 0; i < device->stash_count; i++)
        stash[i] = *stash_at(device, i);
    if (device->stash != NULL)
        env->ops->free(env->self, device->stash, (size_t)device->stash_size * sizeof *stash);
    device->stash = stash;
    device->stash_size = size;
    device->stash_head = 0;
    return WEIR_OK;
}

int stash_reserve(struct weir_device *device, uint32_t entries) {
    uint32_t owed = device->stash_owed + entries;
    int rc = owed > device->stash_size ? grow(device, owed) : WEIR_OK;
    if (rc == WEIR_OK)
        device->stash_owed = owed;
    return rc;
}

void stash_forget(struct weir_device *device, const struct weir_qp *qp, uint32_t entries) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < device->stash_count; i++) {
        if (stash_at(device, i)->qp != qp)
            *stash_at(device, kept++) = *stash_at(device, i);
    }
    device->stash_count = kept;
    device->stash_owed -= entries;
}

static void stash_put(struct weir_device *device, const struct ofi_raw *raw) {
    *stash_at(device, device->stash_count++) = *raw;
}

/* ---- from the provider to the stash ---- */

/* A provider that does not complete in order is none that this device can have. */
static void sent(struct weir_qp *qp, uint32_t position) {
    if (qp->failing || qp->spoilt) { /* one that failed may be in front of it: no completion */
        reads_note_end(qp, position);
        return;
    }
    uint32_t covered = ((position - qp->seen) & OFI_POSITION_MASK) + 1;
    if (covered > qp->head - qp->seen) {
        qp->device->nonsense++;
        return;
    }
    struct ofi_send *send = &qp->sends[(qp->seen + covered - 1) & qp->sq_mask];
    if (reads_before(qp, qp->seen + covered - 1)) {
        qp->device->nonsense++;
        qp_note_failure(qp);
        return;
    }
    send->reads = false;
    if (!send->is_signalled)
        return;
    qp->seen += covered;
    stash_put(qp->device, &(struct ofi_raw){.qp = qp, .position = qp->seen - 1});
}

static void received(struct weir_qp *qp, uint32_t position, const struct fi_cq_msg_entry *entry) {
    const struct ofi_receive *receive = &qp->receives[qp->rq_seen & qp->rq_mask];
    if (qp->rq_seen == qp->rq_given || (qp->rq_seen & OFI_POSITION_MASK) != position ||
        entry->len > receive->length) {
        qp->device->nonsense++;
        qp_note_failure(qp); /* those behind it would have no turn */
        return;
    }
    stash_put(qp->device, &(struct ofi_raw){.qp = qp,
                                            .position = qp->rq_seen,
                                            .byte_length = (uint32_t)entry->len,
                                            .recv = true,
                                            .has_imm = (entry->flags & FI_REMOTE_CQ_DATA) != 0});
    qp->rq_seen++;
}

static void take(struct weir_device *device, const struct fi_cq_msg_entry *entry) {
    uint64_t context = (uint64_t)(uintptr_t)entry->op_context;
    uint32_t position = (uint32_t)context & OFI_POSITION_MASK;
    struct weir_qp *qp = qp_of_context(device, context);
    if (qp == NULL)
        return; /* it is gone */
    switch (context >> OFI_KIND_SHIFT) {
    case OFI_KIND_SEND:
        qp->alive_ns = device->alive_ns;
        sent(qp, position);
        break;
    case OFI_KIND_RECV: /* whatever a peer says, it may take nothing */
        received(qp, position, entry);
        break;
    case OFI_KIND_FENCE:
        qp->alive_ns = device->alive_ns;
        fence_answered(qp);
        break;
    default:
        device->nonsense++;
        break;
    }
}

/* An operation that did not succeed has ended its QP, whatever the provider's reason is. */
static void take_error(struct weir_device *device) {
    struct fi_cq_err_entry entry = {.err = 0};
    if (fi_cq_readerr(device->cq, &entry, 0) <= 0)
        return;
    uint64_t context = (uint64_t)(uintptr_t)entry.op_context;
    uint64_t kind = context >> OFI_KIND_SHIFT;
    struct weir_qp *qp = qp_of_context(device, context);
    if (qp == NULL)
        return;
    if (kind == OFI_KIND_SEND)
        reads_note_failure(qp, (uint32_t)context & OFI_POSITION_MASK);
    else if (kind == OFI_KIND_FENCE)
        reads_note_no_answer(qp);
    else if (qp->state != OFI_READY)
        return; /* of a call that nobody took: take_back */
    qp->spoilt = true;
    qp_note_failure(qp);
}

/* One batch, or an error, which a batch ends in front of. Whether there may be more. */
static bool take_some(struct weir_device *device) {
    struct fi_cq_msg_entry entries[OFI_POLL_BATCH];
    ssize_t got = fi_cq_read(device->cq, entries, OFI_POLL_BATCH);
    if (got == -FI_EAVAIL) {
        take_error(device);
        return true;
    }
    device->lost = got > OFI_POLL_BATCH || (got < 0 && got != -FI_EAGAIN && got != -FI_EINTR);
    if (got <= 0 || device->lost)
        return false;
    device->alive_ns = device->env.ops->coarse(device->env.self);
    for (ssize_t i = 0; i < got; i++)
        take(device, &entries[i]);
    device->is_short = got < OFI_POLL_BATCH;
    return true;
}

void ofi_progress(struct weir_device *device) {
    device->is_short = false;
    while (!device->lost && !device->is_short && take_some(device))
        continue;
}

void ofi_drain(struct weir_device *device) {
    while (!device->lost && take_some(device))
        continue;
}

/* The sends that have no completion yet. One that was not signalled may be over all the same. */
static void flush_sends(struct weir_qp *qp) {
    for (; qp->seen != qp->head; qp->seen++) {
        bool to_blame = qp->culprit_status != WEIR_CQE_OK && qp->culprit == qp->seen;
        stash_put(qp->device,
                  &(struct ofi_raw){.qp = qp,
                                    .position = qp->seen,
                                    .status = to_blame ? qp->culprit_status : WEIR_CQE_FLUSHED});
    }
}

void ofi_flush(struct weir_qp *qp) {
    flush_sends(qp);
    for (; qp->rq_seen != qp->rq_head; qp->rq_seen++)
        stash_put(qp->device,
                  &(struct ofi_raw){
                      .qp = qp, .position = qp->rq_seen, .status = WEIR_CQE_FLUSHED, .recv = true});
    qp->rq_given = qp->rq_head;
}

/* ---- to the caller ---- */

static void deliver(const struct ofi_raw *raw, struct weir_cqe *cqe_out) {
    struct weir_qp *qp = raw->qp;
    *cqe_out = (struct weir_cqe){.status = raw->status, .recv = raw->recv};
    if (raw->recv) {
        qp->rq_tail = raw->position + 1;
        cqe_out->wr_id = qp->receives[raw->position & qp->rq_mask].wr_id;
        cqe_out->byte_length = raw->byte_length;
        cqe_out->qp_tag = qp->tag;
        cqe_out->has_imm = raw->has_imm;
    } else {
        qp->tail = raw->position + 1;
        cqe_out->wr_id = qp->sends[raw->position & qp->sq_mask].wr_id;
    }
}

static int take_stashed(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    int count = 0;
    for (; count < max && device->stash_count > 0; count++) {
        deliver(stash_at(device, 0), &cqes_out[count]);
        device->stash_head =
            device->stash_head + 1 < device->stash_size ? device->stash_head + 1 : 0;
        device->stash_count--;
    }
    return count;
}

/* The kernel wakes through a descriptor that holds another one with each packet, also where nobody
 * sleeps. So the provider's are in ours from the first arm on, until nobody slept for a while. */
enum { UNHEARD_POLLS = 1000 };

/* Without room for that nobody sleeps (epoll_ctl(2): ENOMEM, ENOSPC). The provider's
 * descriptors of a lost device may stay readable for good, and must wake nobody. */
static void hear(struct weir_device *device, bool wanted) {
    bool adds = wanted;
    int fds[2] = {device->cq_fd, device->eq_fd};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        int rc = epoll_ctl(device->epoll_fd, adds ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fds[i], &event);
        wanted = wanted && (rc == 0 || errno == EEXIST);
    }
    device->is_heard = wanted;
}

int ofi_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    device_lock(device);
    polls_count(device);
    if (OFI_UNLIKELY(device->is_heard) && polls_now(device) - device->heard_at > UNHEARD_POLLS)
        hear(device, false);
    if (device->stash_count == 0) {
        ofi_progress(device);
        failures_see(device);
    }
    int count = take_stashed(device, cqes_out, max);
    bool lost = device->lost;
    device_unlock(device);
    return count == 0 && lost ? WEIR_EDEVICE : count;
}

/* Something for the caller. */
bool ofi_has_news(const struct weir_device *device) {
    return device->stash_count > 0 || device->untold > 0 || (device->lost && !device->lost_told);
}

/* All that there may be to see. */
static void look(struct weir_device *device) {
    polls_count(device);
    ofi_progress(device);
    connect_look(device);
    failures_see(device);
}

/* ---- events ---- */

static bool tell(struct weir_qp *qp, struct weir_async *event_out) {
    if (qp->tells_connected) {
        qp->tells_connected = false;
        *event_out = (struct weir_async){
            .type = WEIR_ASYNC_CONNECTED, .qp_tag = qp->tag, .error = qp->connect_result};
    } else if (qp->tells_fatal) {
        qp->tells_fatal = false;
        *event_out = (struct weir_async){.type = WEIR_ASYNC_QP_FATAL, .qp_tag = qp->tag};
    } else {
        return false;
    }
    qp->device->untold--;
    return true;
}

int ofi_events(struct weir_device *device, struct weir_async *events_out, int max) {
    int count = 0;
    device_lock(device);
    look(device);
    for (uint32_t i = 0; count < max && device->untold > 0 && i < OFI_QPS_MAX; i++) {
        while (count < max && device->qps[i] != NULL && tell(device->qps[i], &events_out[count]))
            count++;
    }
    if (count < max && device->lost && !device->lost_told) {
        device->lost_told = true;
        events_out[count++] =
            (struct weir_async){.type = WEIR_ASYNC_DEVICE_FATAL, .qp_tag = UINT32_MAX};
    }
    device_unlock(device);
    return count;
}

/* ---- sleeping ---- */

int ofi_fd(struct weir_device *device) {
    return device->epoll_fd;
}

void ofi_wake(struct weir_device *device) {
    uint64_t one = 1;
    if (!device->is_woken)
        device->is_woken = write(device->event_fd, &one, sizeof one) == sizeof one;
}

static void wake_taken(struct weir_device *device) {
    uint64_t taken;
    if (device->is_woken)
        device->is_woken = read(device->event_fd, &taken, sizeof taken) != sizeof taken;
}

/* fi_poll(3), fi_trywait: a descriptor of a provider may be slept on when that said so; some take a
 * signal back only there. */
static int try_wait(const struct weir_device *device) {
    struct fid *fids[2] = {&device->cq->fid, &device->eq->fid};
    return fi_trywait(device->fabric, fids, 2);
}

/* A caller that sleeps is woken before a peer can know that there is something. */
void ofi_serve(struct weir_device *device) {
    struct pollfd ready[2] = {{.fd = device->cq_fd, .events = POLLIN},
                              {.fd = device->eq_fd, .events = POLLIN}};
    if (device->lost || poll(ready, 2, 0) <= 0)
        return;
    ofi_wake(device);
    device->served = true;
    ofi_progress(device);
    connect_look(device);
    failures_see(device);
    if (!device->lost)
        (void)try_wait(device);
    if (!ofi_has_news(device))
        wake_taken(device);
}

/* A provider that never says that it may be slept on, and completes nothing either, is slept on all
 * the same, and looked at again when it is its turn. */
enum { TRIES = 16 };

/* Something keeps the provider from sleeping, and is not for the caller: a message that finds no
 * receive, since its sender had no credit for it. Each QP that it may be of fails. */
static void fail_starved(struct weir_device *device) {
    for (uint32_t i = 0, seen = 0; seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        if (qp != NULL && qp->rq_depth > 0 && qp->rq_given == qp->rq_seen)
            qp_note_failure(qp);
    }
    failures_see(device);
}

int ofi_arm(struct weir_device *device) {
    int rc = -FI_EAGAIN;
    device_lock(device);
    if (device->is_heard == device->lost)
        hear(device, !device->lost);
    device->heard_at = polls_now(device);
    for (int i = 0; rc != 0 && i < TRIES && !ofi_has_news(device); i++) {
        look(device);
        device->served = device->served || i > 0;
        rc = device->lost ? 0 : try_wait(device);
    }
    if (rc != 0 && !ofi_has_news(device))
        fail_starved(device);
    bool news = ofi_has_news(device) || device->is_heard == device->lost;
    if (!news)
        wake_taken(device); /* of what the caller has taken since */
    device_unlock(device);
    return news ? WEIR_EAGAIN : WEIR_OK;
}

/* All that is there is taken to the stash: descriptors that stay readable until then are not. */
void ofi_disarm(struct weir_device *device) {
    struct pollfd ready[2] = {{.fd = device->cq_fd, .events = POLLIN},
                              {.fd = device->eq_fd, .events = POLLIN}};
    device_lock(device);
    wake_taken(device);
    int tries = 0;
    for (; tries < TRIES && !device->lost && poll(ready, 2, 0) > 0; tries++) {
        look(device);
        (void)try_wait(device);
    }
    device->served = device->served || tries > 0;
    if (tries == TRIES && !ofi_has_news(device))
        fail_starved(device);
    device_unlock(device);
}

/* That the queue's descriptor is readable says that something waits to be moved. */
bool ofi_has_served(struct weir_device *device) {
    struct pollfd ready = {.fd = device->cq_fd, .events = POLLIN};
    device_lock(device);
    bool served = device->served || (!device->lost && poll(&ready, 1, 0) > 0);
    device->served = false;
    device_unlock(device);
    return served;
}

void ofi_tally(struct weir_device *device, struct weir_device_tally *out) {
    device_lock(device);
    *out = (struct weir_device_tally){.refusals = device->refusals, .nonsense = device->nonsense};
    device_unlock(device);
}
