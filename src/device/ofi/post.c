/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: work requests to the provider.
 *
 * Owns the account of slots: a queue takes no more than its granted depth. A slot is free again
 * when a completion that covers it was polled; the position in its context says which.
 *
 * A WR whose own memory is not registered ends its QP without a byte being sent. One whose target
 * lies outside of what was imported is sent with a key that names nothing, so that it is refused in
 * its turn, behind all that was posted before it. */
#include "ofi.h"

static bool is_possible(const struct weir_device *device, const struct weir_wr *wr) {
    const struct weir_device_caps *caps = &device->caps;
    bool is_inline = (wr->flags & WEIR_WR_INLINE) != 0;
    return wr->opcode < WEIR_OPCODES && wr->length <= caps->message_bytes_max &&
           (!is_inline || (wr->length <= caps->inline_bytes_max && wr->opcode != WEIR_OP_READ)) &&
           (wr->pieces == 0 ||
            (wr->pieces <= caps->pieces_max && wr->opcode == WEIR_OP_WRITE && !is_inline));
}

/* The local side of an operation. */
struct gathered {
    struct iovec iov[OFI_PIECES];
    void *descs[OFI_PIECES];
    size_t count;
};

/* Bytes that are copied in the post may lie in any memory. False: they are not ours to send. */
static bool gather(const struct weir_device *device, const struct weir_wr *wr,
                   struct gathered *out) {
    const struct weir_sge one = {
        .laddr = wr->laddr, .length = (uint32_t)wr->length, .lkey = wr->lkey};
    const struct weir_sge *pieces =
        wr->pieces > 0 ? (const struct weir_sge *)(uintptr_t)wr->laddr : &one;
    out->count = wr->pieces > 0 ? wr->pieces : wr->length > 0;
    for (size_t i = 0; i < out->count; i++) {
        out->descs[i] = NULL;
        if ((wr->flags & WEIR_WR_INLINE) == 0 &&
            !fabric_region_holds(&device->memory, pieces[i].lkey, pieces[i].laddr, pieces[i].length,
                                 &out->descs[i]))
            return false;
        out->iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].laddr,
                                     .iov_len = pieces[i].length};
    }
    return true;
}

#define KEY_OF_NOTHING UINT64_MAX

/* An empty access needs no key of the caller's, and the provider wants one. */
static void aim(const struct weir_qp *qp, const struct weir_wr *wr, struct fi_rma_iov *out) {
    *out = (struct fi_rma_iov){
        .addr = qp->there.fence_raddr, .len = wr->length, .key = qp->there.fence_key};
    if (wr->length == 0)
        return;
    out->addr = wr->raddr;
    if (!fabric_import_holds(&qp->device->memory, wr->rkey, wr->raddr, wr->length, &out->key))
        *out = (struct fi_rma_iov){.len = wr->length, .key = KEY_OF_NOTHING};
}

static ssize_t give_message(struct weir_qp *qp, const struct gathered *from, void *context,
                            uint64_t flags) {
    struct fi_msg message = {.msg_iov = from->iov,
                             .desc = (void **)from->descs,
                             .iov_count = from->count,
                             .context = context};
    return fi_sendmsg(qp->ep, &message, flags);
}

static bool is_read(const struct weir_wr *wr) {
    return wr->opcode == WEIR_OP_READ && wr->length > 0;
}

/* Each read has a completion, see poll.c. A negated errno of libfabric's, or a positive enum
 * weir_cqe_status: this side refuses it. */
static ssize_t give(struct weir_qp *qp, const struct weir_wr *wr) {
    struct gathered local;
    struct fi_rma_iov remote;
    void *context = ofi_context(qp, OFI_KIND_SEND, qp->head);
    bool is_signalled = (wr->flags & WEIR_WR_SIGNALED) != 0;
    uint64_t flags = is_signalled ? FI_COMPLETION | FI_DELIVERY_COMPLETE : 0;
    if (!gather(qp->device, wr, &local))
        return WEIR_CQE_LOCAL_PROT;
    if ((wr->flags & WEIR_WR_INLINE) != 0)
        flags |= FI_INJECT;
    if (wr->opcode == WEIR_OP_SEND)
        return give_message(qp, &local, context, flags);
    aim(qp, wr, &remote);
    struct fi_msg_rma message = {.msg_iov = local.iov,
                                 .desc = local.descs,
                                 .iov_count = local.count,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .context = context};
    if (is_read(wr))
        return fi_readmsg(qp->ep, &message, FI_COMPLETION);
    return fi_writemsg(qp->ep, &message, flags);
}

/* A write of one piece: the WR of most posts. */
static inline bool is_plain(const struct weir_device *device, const struct weir_wr *wr) {
    bool is_inline = (wr->flags & WEIR_WR_INLINE) != 0;
    return wr->opcode == WEIR_OP_WRITE && wr->pieces == 0 &&
           wr->length - 1 <
               (is_inline ? device->caps.inline_bytes_max : device->caps.message_bytes_max);
}

/* The flags of libfabric for those of a WR. */
static const uint64_t write_flags[] = {
    [0] = 0,
    [WEIR_WR_SIGNALED] = FI_COMPLETION | FI_DELIVERY_COMPLETE,
    [WEIR_WR_INLINE] = FI_INJECT,
    [WEIR_WR_SIGNALED | WEIR_WR_INLINE] = FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_INJECT,
};

/* Such a one, alone, to a QP that is ready, without what others take. False: it was not posted, and
 * is to be in the general way, which says why. */
static inline bool post_plain(struct weir_qp *qp, const struct weir_wr *wr) {
    const struct fabric_memory *memory = &qp->device->memory;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)wr->laddr, .iov_len = wr->length};
    struct fi_rma_iov remote = {.addr = wr->raddr, .len = wr->length};
    unsigned flags = wr->flags & (WEIR_WR_SIGNALED | WEIR_WR_INLINE);
    void *desc = NULL;
    if (((flags & WEIR_WR_INLINE) == 0 &&
         !fabric_region_holds(memory, wr->lkey, wr->laddr, wr->length, &desc)) ||
        !fabric_import_holds(memory, wr->rkey, wr->raddr, wr->length, &remote.key))
        return false;
    struct fi_msg_rma message = {.msg_iov = &iov,
                                 .desc = &desc,
                                 .iov_count = 1,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .context = ofi_context(qp, OFI_KIND_SEND, qp->head)};
    if (fi_writemsg(qp->ep, &message, write_flags[flags]) != 0)
        return false;
    qp->sends[qp->head++ & qp->sq_mask] =
        (struct ofi_send){.wr_id = wr->wr_id, .is_signalled = (flags & WEIR_WR_SIGNALED) != 0};
    return true;
}

/* One WR of a QP that may take it. In the error state it is flushed; a provider that refuses it
 * for another reason than want of room has lost the connection. */
static int post_one(struct weir_qp *qp, const struct weir_wr *wr) {
    if (qp->head - qp->tail >= qp->sq_depth)
        return WEIR_EAGAIN;
    if (OFI_UNLIKELY(!is_possible(qp->device, wr)))
        return WEIR_EINVAL;
    ssize_t rc = qp->state == OFI_READY ? give(qp, wr) : WEIR_CQE_FLUSHED;
    if (OFI_UNLIKELY(rc == -FI_EAGAIN)) {
        qp->device->refusals++;
        return WEIR_EAGAIN;
    }
    qp->sends[qp->head & qp->sq_mask] =
        (struct ofi_send){.wr_id = wr->wr_id,
                          .reads = rc == 0 && is_read(wr),
                          .is_signalled = (wr->flags & WEIR_WR_SIGNALED) != 0};
    if (OFI_UNLIKELY(rc > 0) && qp->state == OFI_READY) {
        qp->culprit = qp->head;
        qp->culprit_status = (uint32_t)rc;
    }
    qp->head++;
    if (OFI_LIKELY(rc == 0))
        return WEIR_OK;
    if (qp->state == OFI_READY) {
        qp_note_failure(qp);
        failures_see(qp->device);
    } else {
        ofi_flush(qp);
    }
    return WEIR_OK;
}

int ofi_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out) {
    struct weir_device *device = qp->device;
    int rc = WEIR_OK;
    *post_out = (struct weir_post){0};
    device_lock(device);
    if (OFI_LIKELY(count == 1 && qp->state == OFI_READY && qp->head - qp->tail < qp->sq_depth &&
                   is_plain(device, wrs)))
        post_out->accepted = post_plain(qp, wrs);
    else if (OFI_UNLIKELY(qp->state != OFI_READY && qp->state != OFI_ERROR))
        rc = WEIR_EINVAL;
    while (rc == WEIR_OK && post_out->accepted < count) {
        rc = post_one(qp, &wrs[post_out->accepted]);
        post_out->accepted += rc == WEIR_OK;
    }
    device_unlock(device);
    return rc;
}

uint32_t ofi_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count) {
    (void)qp, (void)span, (void)segments, (void)count;
    return 0; /* nothing completes in the post */
}

/* ---- receives ---- */

bool receives_give(struct weir_qp *qp) {
    for (; qp->rq_given != qp->rq_head; qp->rq_given++) {
        struct ofi_receive *receive = &qp->receives[qp->rq_given & qp->rq_mask];
        struct iovec to = {.iov_base = receive->buffer, .iov_len = receive->length};
        struct fi_msg message = {.msg_iov = &to,
                                 .desc = &receive->desc,
                                 .iov_count = 1,
                                 .context = ofi_context(qp, OFI_KIND_RECV, qp->rq_given)};
        if (fi_recvmsg(qp->ep, &message, FI_COMPLETION) != 0)
            return false;
    }
    return true;
}

/* A message that waited for a receive may have been read from its socket before, and nothing else
 * of it comes that anybody would wake for. */
static int post_recv(struct weir_qp *qp, const struct ofi_receive *receive) {
    bool may_wait = qp->rq_given == qp->rq_seen && qp->state == OFI_READY;
    if (qp->rq_head - qp->rq_tail >= qp->rq_depth)
        return WEIR_EAGAIN;
    qp->receives[qp->rq_head++ & qp->rq_mask] = *receive;
    if (qp->state == OFI_ERROR) {
        ofi_flush(qp);
    } else if (qp->ep != NULL && !receives_give(qp)) {
        qp->rq_head--; /* the others had been given */
        return WEIR_EAGAIN;
    } else if (may_wait) {
        ofi_progress(qp->device);
        failures_see(qp->device);
    }
    return WEIR_OK;
}

int ofi_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey) {
    struct ofi_receive receive = {.wr_id = wr_id, .buffer = buffer, .length = length};
    if (qp == NULL || length < qp->recv_bytes_max || wr_id > WEIR_WR_ID_MAX ||
        !fabric_region_holds(&device->memory, lkey, (uint64_t)(uintptr_t)buffer, length,
                             &receive.desc))
        return WEIR_EINVAL;
    device_lock(device);
    int rc = post_recv(qp, &receive);
    device_unlock(device);
    return rc;
}
