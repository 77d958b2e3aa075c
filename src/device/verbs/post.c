/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: work requests to the provider.
 *
 * Owns the account of slots: a send queue takes no more than its granted depth, also
 * where the provider has more room than it said. A slot is free again when a completion
 * that covers it was polled (ibv_post_send(3)); the position in its wr_id says which. */
#include <arpa/inet.h>
#include <errno.h>

#include "verbs.h"

static const enum ibv_wr_opcode opcodes[] = {
    [WEIR_OP_WRITE] = IBV_WR_RDMA_WRITE,
    [WEIR_OP_READ] = IBV_WR_RDMA_READ,
    [WEIR_OP_SEND] = IBV_WR_SEND,
};

/* Indexed by WEIR_WR_*. */
static const uint8_t send_flags[] = {
    [0] = 0,
    [WEIR_WR_SIGNALED] = IBV_SEND_SIGNALED,
    [WEIR_WR_INLINE] = IBV_SEND_INLINE,
    [WEIR_WR_SIGNALED | WEIR_WR_INLINE] = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
};

void post_prepare(struct weir_device *device) {
    for (uint32_t i = 0; i < VERBS_CHAIN; i++)
        device->wrs[i].next = i + 1 < VERBS_CHAIN ? &device->wrs[i + 1] : NULL;
}

static inline __attribute__((always_inline)) bool is_possible(const struct weir_device *device,
                                                              const struct weir_wr *wr) {
    return wr->opcode < WEIR_OPCODES && wr->length <= device->caps.message_bytes_max &&
           ((wr->flags & WEIR_WR_INLINE) == 0 ||
            (wr->length <= device->inline_bytes && wr->opcode != WEIR_OP_READ)) &&
           (VERBS_LIKELY(wr->pieces == 0) ||
            (wr->pieces <= device->caps.pieces_max && wr->opcode == WEIR_OP_WRITE &&
             (wr->flags & WEIR_WR_INLINE) == 0));
}

bool post_is_possible(const struct weir_device *device, const struct weir_wr *wr) {
    return is_possible(device, wr);
}

/* The SGEs of a write that gathers. The first WR of a post alone may: there is one list. */
static __attribute__((noinline)) void
fill_pieces(const struct weir_qp *qp, const struct weir_wr *from, struct ibv_send_wr *wr) {
    const struct weir_sge *pieces = (const struct weir_sge *)(uintptr_t)from->laddr;
    struct ibv_sge *sges = qp->device->gathered;
    for (uint32_t i = 0; i < from->pieces; i++)
        sges[i] = (struct ibv_sge){pieces[i].laddr, pieces[i].length, pieces[i].lkey};
    wr->sg_list = sges;
    wr->num_sge = from->pieces;
}

/* An empty message has no SGE: length 0 in one means 2 GiB to some hardware. */
static inline __attribute__((always_inline)) void
fill_one(const struct weir_qp *qp, const struct weir_wr *from, uint32_t position,
         struct ibv_send_wr *wr, struct ibv_sge *sge) {
    qp->ids[position & qp->id_mask] = from->wr_id;
    wr->wr_id = qp->id_base | (position & VERBS_POSITION_MASK);
    wr->sg_list = sge;
    wr->num_sge = from->length != 0;
    wr->opcode = opcodes[from->opcode];
    wr->send_flags = send_flags[from->flags & (WEIR_WR_SIGNALED | WEIR_WR_INLINE)];
    if (VERBS_UNLIKELY(from->length == 0))
        wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
    wr->wr.rdma.remote_addr = from->raddr;
    wr->wr.rdma.rkey = from->rkey;
    sge->addr = from->laddr;
    sge->length = (uint32_t)from->length;
    sge->lkey = from->lkey;
    if (VERBS_UNLIKELY(from->pieces > 0))
        fill_pieces(qp, from, wr);
}

void post_fill(const struct weir_qp *qp, const struct weir_wr *from, uint32_t position,
               struct ibv_send_wr *wr, struct ibv_sge *sge) {
    fill_one(qp, from, position, wr, sge);
}

/* Fills the first count entries of the device's chain; stops at a WR that can never be
 * accepted. Returns how many are filled. */
static uint32_t fill(const struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count) {
    struct weir_device *device = qp->device;
    for (uint32_t i = 0; i < count; i++) {
        if (VERBS_UNLIKELY(!is_possible(device, &wrs[i])))
            return i;
        fill_one(qp, &wrs[i], qp->head + i, &device->wrs[i], &device->sges[i]);
    }
    return count;
}

uint32_t post_filled(struct weir_qp *qp, uint32_t count, int *error_out) {
    struct weir_device *device = qp->device;
    struct ibv_send_wr *bad = NULL;
    struct ibv_send_wr *last = &device->wrs[count - 1];
    struct ibv_send_wr *next = last->next;
    last->next = NULL;
    *error_out = ibv_post_send(qp->ibv, device->wrs, &bad);
    last->next = next;
    if (VERBS_LIKELY(*error_out == 0))
        return count;
    /* ibv_post_send(3): the WRs before bad_wr are posted. */
    return bad >= device->wrs && bad <= last ? (uint32_t)(bad - device->wrs) : 0;
}

int post_refusal(int error) {
    switch (error < 0 ? -error : error) {
    case ENOMEM:
    case ENOSPC:
    case EAGAIN:
    case EBUSY:
        return WEIR_EAGAIN;
    case EINVAL:
    case EOPNOTSUPP:
    case E2BIG:
        return WEIR_EINVAL;
    default:
        return WEIR_EDEVICE;
    }
}

/* Out of line: the one that posts one WR has less to save then. */
static __attribute__((noinline)) int post_chain(struct weir_qp *qp, const struct weir_wr *wrs,
                                                uint32_t count, struct weir_post *post_out) {
    while (post_out->accepted < count) {
        uint32_t room = qp->sq_depth - (qp->head - qp->tail);
        uint32_t wanted = count - post_out->accepted;
        if (wanted > VERBS_CHAIN)
            wanted = VERBS_CHAIN;
        if (wanted > room)
            wanted = room;
        if (wanted == 0)
            return WEIR_EAGAIN;
        uint32_t filled = fill(qp, wrs + post_out->accepted, wanted);
        int error = 0;
        uint32_t accepted = filled > 0 ? post_filled(qp, filled, &error) : 0;
        qp->head += accepted;
        post_out->accepted += accepted;
        if (VERBS_UNLIKELY(error != 0))
            return post_refusal(error);
        if (VERBS_UNLIKELY(filled < wanted))
            return WEIR_EINVAL;
    }
    return WEIR_OK;
}

int verbs_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                    struct weir_post *post_out) {
    struct weir_device *device = qp->device;
    *post_out = (struct weir_post){0};
    if (VERBS_UNLIKELY(qp->state == QP_INIT || qp->state == QP_CONNECTING ||
                       qp->state == QP_FAILED))
        return WEIR_EINVAL;
    if (VERBS_UNLIKELY(device->fenced))
        return fence_post(qp, wrs, count, post_out);
    if (count != 1)
        return post_chain(qp, wrs, count, post_out);
    if (VERBS_UNLIKELY(qp->head - qp->tail >= qp->sq_depth))
        return WEIR_EAGAIN;
    if (VERBS_UNLIKELY(!is_possible(device, wrs)))
        return WEIR_EINVAL;
    struct ibv_send_wr *bad;
    fill_one(qp, wrs, qp->head, &device->lone_wr, &device->lone_sge);
    int error = ibv_post_send(qp->ibv, &device->lone_wr, &bad);
    if (VERBS_UNLIKELY(error != 0))
        return post_refusal(error);
    qp->head++;
    post_out->accepted = 1;
    return WEIR_OK;
}

uint32_t verbs_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                           const weir_segment *segments, uint32_t count) {
    (void)qp;
    (void)span;
    (void)segments;
    (void)count;
    return 0; /* nothing completes in the post */
}

static int post_shared(struct weir_device *device, struct ibv_recv_wr *wr) {
    struct ibv_recv_wr *bad;
    if (device->srq_used == device->srq_depth)
        return WEIR_EAGAIN;
    int error = ibv_post_srq_recv(device->srq, wr, &bad);
    if (error != 0)
        return post_refusal(error);
    device->srq_used++;
    return WEIR_OK;
}

int verbs_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                    uint32_t length, uint32_t lkey) {
    struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)buffer, .length = length, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = length != 0};
    struct ibv_recv_wr *bad;
    if ((qp == NULL) != (device->srq != NULL) || (wr_id & VERBS_ID_SEND) != 0)
        return WEIR_EINVAL;
    if (qp == NULL)
        return post_shared(device, &wr);
    if (length < qp->recv_bytes_max)
        return WEIR_EINVAL;
    if (qp->rq_used == qp->rq_depth)
        return WEIR_EAGAIN;
    int error = ibv_post_recv(qp->ibv, &wr, &bad);
    if (error != 0)
        return post_refusal(error);
    qp->rq_used++;
    return WEIR_OK;
}
