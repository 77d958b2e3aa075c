/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: work requests to the provider, and what becomes of them.
 *
 * Owns the account of slots: a QP takes no more than its granted depth, and all together no more
 * than the endpoint's queue has beside what control.c may use. A slot is free again when its
 * completion was polled, or is not to be.
 *
 * A WR that this side can refuse is not sent. A message is copied behind its header. A WR whose
 * error leaves open whether its packets are still under way is told when they cannot be any more.
 */
#include <string.h>

#include "efa.h"

static bool is_possible(const struct weir_device *device, const struct weir_wr *wr) {
    const struct weir_device_caps *caps = &device->caps;
    return wr->opcode < WEIR_OPCODES && wr->length <= caps->message_bytes_max && wr->pieces == 0 &&
           ((wr->flags & WEIR_WR_INLINE) == 0 || wr->length == 0) &&
           (wr->opcode != WEIR_OP_SEND || wr->length <= EFA_PAYLOAD_MAX);
}

/* ---- to the provider ---- */

/* The payload of a message goes behind its header, and is the device's from then on. */
static void write_message(struct weir_qp *qp, const struct weir_wr *wr, uint32_t number) {
    uint8_t *buffer = send_buffer(qp->device, number);
    struct efa_header header = {.kind = EFA_MESSAGE,
                                .to_cookie = qp->there.cookie,
                                .to_index = qp->there.index,
                                .from_cookie = qp->cookie,
                                .from_index = qp->index};
    efa_header_write(&header, buffer);
    if (wr->length > 0)
        memcpy(buffer + EFA_HEADER_BYTES, (const void *)(uintptr_t)wr->laddr, wr->length);
}

static ssize_t give_message(struct weir_device *device, uint32_t number) {
    struct efa_op *op = &device->ops[number];
    struct iovec from = {.iov_base = send_buffer(device, number),
                         .iov_len = EFA_HEADER_BYTES + op->length};
    struct fi_msg message = {.msg_iov = &from,
                             .desc = &device->buffers_desc,
                             .iov_count = 1,
                             .addr = av_address(device, op->qp->peer),
                             .context = &op->context};
    return fi_sendmsg(device->ep, &message, FI_COMPLETION);
}

static ssize_t give(struct weir_device *device, uint32_t number) {
    struct efa_op *op = &device->ops[number];
    if (op->is_message)
        return give_message(device, number);
    struct iovec local = {.iov_base = (void *)(uintptr_t)op->laddr, .iov_len = op->length};
    struct fi_rma_iov remote = {.addr = op->raddr, .len = op->length, .key = op->key};
    struct fi_msg_rma access = {.msg_iov = &local,
                                .desc = &op->desc,
                                .iov_count = 1,
                                .addr = av_address(device, op->qp->peer),
                                .rma_iov = &remote,
                                .rma_iov_count = 1,
                                .context = &op->context};
    if (op->opcode == WEIR_OP_READ)
        return fi_readmsg(device->ep, &access, FI_COMPLETION);
    return fi_writemsg(device->ep, &access, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/* To the provider: 0, or why not, a negated errno of libfabric's. */
static ssize_t try_to_give(struct weir_device *device, uint32_t number) {
    struct efa_op *op = &device->ops[number];
    ssize_t rc = give(device, number);
    if (EFA_LIKELY(rc == 0)) {
        op->state = EFA_OP_SENT;
        op->looks = 0;
        op->qp->sent++;
    }
    device->refusals += rc == -FI_EAGAIN;
    return rc;
}

/* ---- what it refuses ---- */

/* A provider that refuses now and then is asked some times, and one that has no room hardly is. */
#define RECENT_NS UINT64_C(1000000)
enum { TRIES = 16 };

static void refused_join(struct weir_device *device, uint32_t at) {
    struct efa_line *line = &device->refused;
    device->peers[at].next_refused = EFA_NONE;
    if (line->first == EFA_NONE)
        line->first = at;
    else
        device->peers[line->last].next_refused = at;
    line->last = at;
    line->count++;
}

static uint32_t refused_first(struct weir_device *device) {
    struct efa_line *line = &device->refused;
    uint32_t at = line->first;
    line->first = device->peers[at].next_refused;
    line->count--;
    return at;
}

static void refused_leave(struct weir_device *device, uint32_t wanted) {
    for (uint32_t left = device->refused.count; left > 0; left--) {
        uint32_t at = refused_first(device);
        if (at != wanted)
            refused_join(device, at);
    }
}

/* The refused ops of a peer go to the provider in the order in which they were posted, as far as it
 * takes them. An op is off the list before it is over: lists have the same links. */
static void give_refused(struct weir_device *device, struct efa_peer *peer, uint32_t *tries_io) {
    uint32_t tries = device->now_ns - peer->refused_ns < RECENT_NS ? TRIES : 1;
    while (peer->refused.first != EFA_NONE && tries > 0 && *tries_io > 0) {
        ssize_t rc = try_to_give(device, peer->refused.first);
        if (rc == -FI_EAGAIN) {
            tries--;
            --*tries_io;
            continue;
        }
        uint32_t op = ops_pop(device, &peer->refused);
        peer->refused_ns = device->now_ns;
        if (rc != 0)
            op_done(device, op, WEIR_CQE_DEVICE);
    }
    peer->retry_ns = device->now_ns + retry_pause(device, peer->refused_ns);
}

/* Peers have turns: a provider may have room for one, and for another not, with which it shakes
 * hands, say, or which is not ready. */
uint64_t post_refused(struct weir_device *device) {
    uint32_t tries = TRIES;
    uint64_t soon = UINT64_MAX;
    if (device->refused.count > 0 && device->now_ns < device->refused.retry_ns)
        return device->refused.retry_ns;
    for (uint32_t left = device->refused.count; left > 0; left--) {
        uint32_t at = refused_first(device);
        struct efa_peer *peer = &device->peers[at];
        if (tries > 0 && peer->retry_ns <= device->now_ns)
            give_refused(device, peer, &tries);
        if (peer->refused.first == EFA_NONE)
            continue;
        refused_join(device, at);
        soon = peer->retry_ns < soon ? peer->retry_ns : soon;
    }
    device->refused.retry_ns = soon;
    return soon;
}

void post_withdraw(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    struct efa_list kept = {EFA_NONE, EFA_NONE};
    uint32_t status = qp->state == EFA_ERROR ? WEIR_CQE_FLUSHED : WEIR_CQE_RETRY;
    if (qp->peer == EFA_NONE || device->peers[qp->peer].refused.first == EFA_NONE)
        return;
    struct efa_peer *peer = &device->peers[qp->peer];
    for (uint32_t op; (op = ops_pop(device, &peer->refused)) != EFA_NONE;) {
        if (device->ops[op].qp == qp)
            op_done(device, op, status);
        else
            ops_push(device, &kept, op);
    }
    peer->refused = kept;
    if (kept.first == EFA_NONE)
        refused_leave(device, qp->peer);
}

static void refuse(struct weir_device *device, uint32_t number) {
    struct efa_op *op = &device->ops[number];
    struct efa_peer *peer = &device->peers[op->qp->peer];
    if (peer->refused.first == EFA_NONE) {
        refused_join(device, op->qp->peer);
        peer->refused_ns = peer->retry_ns = device->refused.retry_ns = device->now_ns;
        device_due(device, device->now_ns);
    }
    op->state = EFA_OP_REFUSED;
    ops_push(device, &peer->refused, number);
}

/* ---- posts ---- */

/* The end of a WR, as far as this side knows it: an enum weir_cqe_status, OK for an empty one,
 * which is over at once and has nothing to be told of; or that it has to be sent. */
enum { TO_BE_SENT = 64 };
static uint32_t judge(struct weir_qp *qp, const struct weir_wr *wr, struct efa_op *op) {
    const struct fabric_memory *memory = &qp->device->memory;
    if (link_is_shut(&qp->link))
        return WEIR_CQE_RETRY;
    if (wr->length > 0 && !fabric_region_holds(memory, wr->lkey, wr->laddr, wr->length, &op->desc))
        return WEIR_CQE_LOCAL_PROT;
    if (wr->opcode == WEIR_OP_SEND)
        return TO_BE_SENT;
    if (wr->length == 0)
        return WEIR_CQE_OK;
    return fabric_import_holds(memory, wr->rkey, wr->raddr, wr->length, &op->key)
               ? TO_BE_SENT
               : WEIR_CQE_REMOTE_ACCESS;
}

static int post_ready(struct weir_qp *qp, const struct weir_wr *wr) {
    struct weir_device *device = qp->device;
    if (device->free_count <= EFA_CONTROLS - device->controls)
        return WEIR_EAGAIN;
    uint32_t number = op_take(device);
    struct efa_op *op = &device->ops[number];
    op->qp = qp;
    op->wr_id = wr->wr_id;
    op->laddr = wr->laddr;
    op->raddr = wr->raddr;
    op->length = wr->length;
    op->opcode = wr->opcode;
    op->is_signalled = (wr->flags & WEIR_WR_SIGNALED) != 0;
    op->is_message = wr->opcode == WEIR_OP_SEND;
    qp->outstanding++;
    uint32_t judged = judge(qp, wr, op);
    if (EFA_UNLIKELY(judged != TO_BE_SENT)) {
        op_done(device, number, judged);
        return WEIR_OK;
    }
    if (op->is_message) {
        write_message(qp, wr, number);
        link_renew(&qp->link, device_now(device));
        if (qp->link.wants_lease)
            vqp_restless(qp);
    }
    ssize_t rc = device->peers[qp->peer].refused.first != EFA_NONE ? -FI_EAGAIN
                                                                   : try_to_give(device, number);
    if (EFA_UNLIKELY(rc == -FI_EAGAIN))
        refuse(device, number);
    else if (EFA_UNLIKELY(rc != 0))
        op_done(device, number, WEIR_CQE_DEVICE);
    return WEIR_OK;
}

static int post_late(struct weir_qp *qp, const struct weir_wr *wr) {
    kept_late(qp, wr->wr_id);
    qp->outstanding++;
    if (vqp_flushes(qp))
        vqp_news(qp);
    return WEIR_OK;
}

static int post_one(struct weir_qp *qp, const struct weir_wr *wr) {
    if (qp->outstanding >= qp->sq_depth)
        return WEIR_EAGAIN;
    if (EFA_UNLIKELY(!is_possible(qp->device, wr)))
        return WEIR_EINVAL;
    return qp->state == EFA_READY ? post_ready(qp, wr) : post_late(qp, wr);
}

int efa_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out) {
    struct weir_device *device = qp->device;
    int rc = WEIR_OK;
    *post_out = (struct weir_post){0};
    device_lock(device);
    if (EFA_UNLIKELY(qp->state != EFA_READY && qp->state != EFA_ERROR))
        rc = WEIR_EINVAL;
    while (rc == WEIR_OK && post_out->accepted < count) {
        rc = post_one(qp, &wrs[post_out->accepted]);
        post_out->accepted += rc == WEIR_OK;
    }
    device_unlock(device);
    return rc;
}

uint32_t efa_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count) {
    (void)qp, (void)span, (void)segments, (void)count;
    return 0; /* nothing completes in the post */
}

/* ---- their ends ---- */

/* A message that nobody has vouched for is held until somebody does. */
static void end(struct weir_device *device, uint32_t number, uint32_t status) {
    struct efa_op *op = &device->ops[number];
    struct weir_qp *qp = op->qp;
    qp->sent--;
    if (link_is_shut(&qp->link))
        vqp_restless(qp); /* it may have drained */
    if (op->is_message && status == WEIR_CQE_OK) {
        op->since_ns = device_now(device);
        if (!link_is_taken(&qp->link, op->since_ns)) {
            op->state = EFA_OP_HELD;
            ops_push(device, &qp->held, number);
            if (link_is_shut(&qp->link))
                post_vouch(qp, true);
            vqp_restless(qp);
            return;
        }
    }
    op_done(device, number, status);
}

void post_vouch(struct weir_qp *qp, bool is_final) {
    struct weir_device *device = qp->device;
    struct efa_list kept = {EFA_NONE, EFA_NONE};
    for (uint32_t op; (op = ops_pop(device, &qp->held)) != EFA_NONE;) {
        if (link_is_taken(&qp->link, device->ops[op].since_ns))
            op_done(device, op, WEIR_CQE_OK);
        else if (is_final)
            op_done(device, op, WEIR_CQE_RETRY);
        else
            ops_push(device, &kept, op);
    }
    qp->held = kept;
}

void post_over(struct weir_device *device, uint32_t number, const struct efa_end *how) {
    struct efa_op *op = &device->ops[number];
    if (how->is_gone)
        link_peer_gone(&op->qp->link, device_now(device));
    if (!how->is_open) {
        end(device, number, how->status);
        return;
    }
    op->state = EFA_OP_AGING;
    op->status = (uint8_t)how->status;
    op->since_ns = device_now(device);
    ops_push(device, &device->aging, number);
}

uint64_t post_age(struct weir_device *device, uint64_t now) {
    while (device->aging.first != EFA_NONE) {
        uint32_t op = device->aging.first;
        uint64_t due = device->ops[op].since_ns + EFA_QUARANTINE_NS;
        if (now < due)
            return due;
        ops_pop(device, &device->aging);
        end(device, op, device->ops[op].status);
    }
    return UINT64_MAX;
}
