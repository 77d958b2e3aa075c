/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c: ops, completions, asynchronous events and sleeping.
 *
 * Owns the table of ops: free ones in a list that gives the one back last that came back last, so
 * that a completion which the provider gives twice names one that is free, as long as not all are
 * used; and those that are done, in a list of which the caller takes. A completion that names
 * nothing is counted and dropped. Receives, and what flushes, are taken from their QPs, some at a
 * time. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "efa.h"

/* ---- ops ---- */

void ops_push(struct weir_device *device, struct efa_list *list, uint32_t op) {
    device->ops[op].next = EFA_NONE;
    if (list->first == EFA_NONE)
        list->first = op;
    else
        device->ops[list->last].next = op;
    list->last = op;
}

uint32_t ops_pop(struct weir_device *device, struct efa_list *list) {
    uint32_t op = list->first;
    if (op != EFA_NONE)
        list->first = device->ops[op].next;
    return op;
}

uint32_t op_take(struct weir_device *device) {
    uint32_t op = ops_pop(device, &device->free_ops);
    device->free_count -= op != EFA_NONE;
    return op;
}

void op_free(struct weir_device *device, uint32_t op) {
    device->ops[op].state = EFA_OP_FREE;
    device->ops[op].qp = NULL;
    ops_push(device, &device->free_ops, op);
    device->free_count++;
}

void op_done(struct weir_device *device, uint32_t number, uint32_t status) {
    struct efa_op *op = &device->ops[number];
    if (status == WEIR_CQE_OK && !op->is_signalled) {
        op->qp->outstanding--;
        op_free(device, number);
        return;
    }
    op->state = EFA_OP_DONE;
    op->status = (uint8_t)status;
    ops_push(device, &device->done, number);
}

/* The op of a context that the provider has; NULL: it names none. */
static struct efa_op *op_of(const struct weir_device *device, const void *context) {
    uint64_t offset = (uint64_t)((uintptr_t)context - (uintptr_t)device->ops);
    if (offset >= device->depth * sizeof *device->ops || offset % sizeof *device->ops != 0)
        return NULL;
    struct efa_op *op = &device->ops[offset / sizeof *device->ops];
    return op->state == EFA_OP_SENT ? op : NULL;
}

/* The same of a buffer; EFA_NONE. */
static uint32_t receive_of(const struct weir_device *device, const void *context) {
    uint64_t offset = (uint64_t)((uintptr_t)context - (uintptr_t)device->receive_contexts);
    uint64_t number = offset / sizeof *device->receive_contexts;
    return number < device->receives && offset % sizeof *device->receive_contexts == 0 &&
                   device->is_posted[number]
               ? (uint32_t)number
               : EFA_NONE;
}

/* ---- from the provider ---- */

void op_over(struct weir_device *device, uint32_t number, const struct efa_end *how) {
    struct efa_op *op = &device->ops[number];
    if (op->qp != NULL) {
        post_over(device, number, how);
        return;
    }
    control_over(device, op, how->status == WEIR_CQE_OK, how->is_gone);
    op_free(device, number);
}

static uint32_t number_of(const struct weir_device *device, const struct efa_op *op) {
    return (uint32_t)(op - device->ops);
}

/* A write may come with immediate data, which takes a receive on some network cards and writes
 * nothing to its buffer: no peer of ours sends any. */
static void take(struct weir_device *device, const struct fi_cq_msg_entry *entry) {
    static const struct efa_end well = {.status = WEIR_CQE_OK};
    struct efa_op *op = op_of(device, entry->op_context);
    uint32_t receive = receive_of(device, entry->op_context);
    bool is_immediate = (entry->flags & FI_REMOTE_CQ_DATA) != 0;
    device->nonsense += op == NULL && (receive == EFA_NONE || is_immediate);
    if (op != NULL)
        op_over(device, number_of(device, op), &well);
    else if (receive != EFA_NONE && is_immediate)
        receive_returned(device, receive);
    else if (receive != EFA_NONE)
        receive_arrived(device, receive, entry->len);
}

/* The network card's status (efa_io_defs.h of rdma-core and of libfabric); from 4096 on, the
 * provider's own. One that is not known leaves everything open. */
static struct efa_end end_of(int status) {
    switch (status) {
    case 1: /* flushed */
        return (struct efa_end){.status = WEIR_CQE_FLUSHED, .is_open = true};
    case 5: /* the local key */
        return (struct efa_end){.status = WEIR_CQE_LOCAL_PROT};
    case 6: /* the length, here or there */
    case 11:
        return (struct efa_end){.status = WEIR_CQE_LENGTH};
    case 7: /* the remote address or key */
        return (struct efa_end){.status = WEIR_CQE_REMOTE_ACCESS};
    case 9: /* there is no such endpoint */
        return (struct efa_end){.status = WEIR_CQE_RETRY, .is_gone = true};
    case 10: /* receiver not ready */
        return (struct efa_end){.status = WEIR_CQE_RNR};
    case 8: /* given up, no answer, unknown, unreachable */
    case 13:
    case 14:
    case 15:
    case 4124: /* likewise, in the provider's own words */
    case 4126:
        return (struct efa_end){.status = WEIR_CQE_RETRY, .is_open = true};
    default:
        return (struct efa_end){.status = WEIR_CQE_DEVICE, .is_open = true};
    }
}

/* The endpoint's own end: a receive is flushed, or the queue pair of the network card is broken. */
static bool is_end(int status) {
    return status == 1 || status == 2;
}

/* False: there was none. */
static bool take_error(struct weir_device *device) {
    struct fi_cq_err_entry entry = {.err = 0};
    if (fi_cq_readerr(device->cq, &entry, 0) <= 0)
        return false;
    struct efa_op *op = op_of(device, entry.op_context);
    uint32_t receive = receive_of(device, entry.op_context);
    struct efa_end how = end_of(entry.prov_errno);
    if (op != NULL)
        op_over(device, number_of(device, op), &how);
    else if (receive != EFA_NONE)
        receive_returned(device, receive);
    else
        device->nonsense++;
    device->broken = device->broken || (receive != EFA_NONE && is_end(entry.prov_errno));
    return true;
}

/* A queue that says something else than completions so often in a row is broken. */
enum { COMPLAINTS = 64 };

static bool complain(struct weir_device *device) {
    device->broken = device->broken || ++device->complaints == COMPLAINTS;
    return false;
}

/* One batch, or an error, which a batch ends in front of. False: there is no more now. */
static bool take_some(struct weir_device *device) {
    struct fi_cq_msg_entry entries[EFA_POLL_BATCH];
    ssize_t got = fi_cq_read(device->cq, entries, EFA_POLL_BATCH);
    if (got == -FI_EAVAIL)
        return take_error(device) || complain(device);
    if (got > EFA_POLL_BATCH || (got < 0 && got != -FI_EAGAIN && got != -FI_EINTR))
        return complain(device);
    device->complaints = 0;
    for (ssize_t i = 0; i < got; i++)
        take(device, &entries[i]);
    if (got > 0)
        device->taken_ns = device_now(device);
    return got > 0;
}

/* The provider's own failures, of one peer, say; the network card may be well. It ends the process
 * where there is no queue to tell them by. */
static void take_failures(struct weir_device *device) {
    struct fi_eq_err_entry failure = {.err = 0};
    uint32_t event;
    uint8_t bytes[64];
    ssize_t got = fi_eq_read(device->eq, &event, bytes, sizeof bytes, 0);
    if (got == -FI_EAVAIL && fi_eq_readerr(device->eq, &failure, 0) > 0)
        efa_ep_leave(device);
}

void device_due(struct weir_device *device, uint64_t at_ns) {
    if (at_ns < device->next_ns)
        device->next_ns = at_ns;
    if (at_ns < device->server.sleeps_until_ns) {
        device->server.sleeps_until_ns = 0;
        efa_server_wake(device);
    }
}

/* Completions from before an endpoint broke count, and are taken. False: there may be more. */
static bool take_all(struct weir_device *device) {
    uint32_t left = (device->depth + device->receives) / EFA_POLL_BATCH + 1;
    if (device->ep == NULL) {
        if (!device->lost && device_now(device) >= device->renew_ns)
            efa_server_wake(device);
        return true;
    }
    bool was_broken = false;
    while (left > 0 && take_some(device)) {
        left--;
        if (device->broken && !was_broken) {
            left = device->depth + device->receives; /* all that it had; an error is one entry */
            was_broken = true;
        }
    }
    take_failures(device);
    if (device->broken)
        efa_ep_bury(device);
    return left > 0;
}

/* Links are judged by a time at which all that had come was looked at: where more comes than the
 * queue holds, that time stands still. */
void efa_progress(struct weir_device *device) {
    uint64_t now = device_now(device);
    if (take_all(device))
        device->now_ns = now;
    device->next_ns = UINT64_MAX;
    device_due(device, receives_post(device));
    device_due(device, post_age(device, device->now_ns));
    device_due(device, post_refused(device));
    device_due(device, vqps_look(device));
    device_due(device, efa_ep_look(device));
}

/* ---- to the caller ---- */

static void take_done(struct weir_device *device, struct weir_cqe *cqe_out) {
    uint32_t number = ops_pop(device, &device->done);
    struct efa_op *op = &device->ops[number];
    *cqe_out = (struct weir_cqe){.wr_id = op->wr_id, .status = op->status};
    op->qp->outstanding--;
    op_free(device, number);
}

/* Receives of a QP in their order, then what flushes: receives, and WRs behind them. */
static bool take_of(struct weir_qp *qp, bool flushes, struct weir_cqe *cqe_out) {
    bool has_message = qp->rq_tail != qp->rq_seen;
    if (has_message || (flushes && qp->rq_tail != qp->rq_head)) {
        kept_take(qp, cqe_out);
        return true;
    }
    if (!flushes || qp->late.first == EFA_NONE)
        return false;
    *cqe_out = (struct weir_cqe){.wr_id = kept_take_late(qp), .status = WEIR_CQE_FLUSHED};
    qp->outstanding--;
    return true;
}

enum { TURN = 16 }; /* of a QP, before the next one has its turn */

static int take_news(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    struct weir_qp *qp = device->news;
    bool flushes = vqp_flushes(qp);
    int count = 0;
    while (count < max && count < TURN && take_of(qp, flushes, &cqes_out[count]))
        count++;
    device->news = qp->next_news;
    qp->has_news = false;
    if (qp->rq_tail != qp->rq_seen ||
        (flushes && (qp->rq_tail != qp->rq_head || qp->late.first != EFA_NONE)))
        vqp_news(qp);
    return count;
}

int efa_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    int count = 0;
    device_lock(device);
    device->polls++;
    device->is_armed = false;
    if (device->done.first == EFA_NONE && device->news == NULL)
        efa_progress(device);
    while (count < max && device->done.first != EFA_NONE)
        take_done(device, &cqes_out[count++]);
    while (count < max && device->news != NULL)
        count += take_news(device, cqes_out + count, max - count);
    bool lost = device->lost;
    device_unlock(device);
    return count == 0 && lost ? WEIR_EDEVICE : count;
}

bool efa_has_news(const struct weir_device *device) {
    return device->done.first != EFA_NONE || device->news != NULL || device->untold > 0 ||
           (device->lost && !device->lost_told);
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

int efa_events(struct weir_device *device, struct weir_async *events_out, int max) {
    int count = 0;
    device_lock(device);
    efa_progress(device);
    for (uint32_t i = 0; count < max && device->untold > 0 && i < device->qps_used; i++) {
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

int efa_fd(struct weir_device *device) {
    return device->epoll_fd;
}

void efa_wake(struct weir_device *device) {
    uint64_t one = 1;
    if (write(device->event_fd, &one, sizeof one) < 0)
        return; /* it is full: readable */
}

void efa_wake_taken(struct weir_device *device) {
    uint64_t taken;
    if (read(device->event_fd, &taken, sizeof taken) < 0)
        return; /* there was none */
}

/* fi_poll(3), fi_trywait: the descriptor of a queue may be slept on when that said so. */
bool efa_may_sleep(const struct weir_device *device) {
    struct fid *fid = device->ep != NULL ? &device->cq->fid : NULL;
    return device->ep == NULL || device->cq_fd < 0 || fi_trywait(device->fabric, &fid, 1) == 0;
}

enum { TRIES = 16 };

/* A completion may be of a word between devices, and nothing for the caller. Where the provider has
 * no descriptor, the thread of serve.c looks within a millisecond, and wakes. */
int efa_arm(struct weir_device *device) {
    bool may = false;
    device_lock(device);
    for (int i = 0; !may && i < TRIES && !efa_has_news(device); i++) {
        efa_progress(device);
        may = efa_may_sleep(device);
    }
    may = may && !efa_has_news(device);
    device->is_armed = may;
    device_unlock(device);
    return may ? WEIR_OK : WEIR_EAGAIN;
}

void efa_disarm(struct weir_device *device) {
    device_lock(device);
    device->is_armed = false;
    device->polls++;
    efa_wake_taken(device);
    efa_progress(device);
    (void)efa_may_sleep(device);
    device_unlock(device);
}

void efa_tally(struct weir_device *device, struct weir_device_tally *out) {
    device_lock(device);
    *out = (struct weir_device_tally){
        .refusals = device->refusals, .nonsense = device->nonsense, .renewals = device->renewals};
    device_unlock(device);
}
