/* SPDX-License-Identifier: Apache-2.0 */
/* fence.c: posts to iWARP QPs, which complete differently.
 *
 * A write or a message that completes on InfiniBand has arrived. On iWARP that means no more
 * than that its buffer may be used again (RFC 5040, 5.5: nothing is said of the other side); and
 * some devices complete it before reads that were posted before it. So behind a WR that is to be
 * signalled goes a read of a word of the target's, which is signalled in its stead: a read is
 * answered when all that was sent before it has been delivered (RFC 5040, 5.5, rules 2 and 4), and
 * reads complete in their order. The read has the position of that WR, and slots of its own, of
 * which the caller knows nothing: the queues are twice as long.
 *
 * An iWARP QP that fails is not always heard of: providers flush out of order, refuse posts in
 * the error state, or take them and never look at them again. So when the first error is seen
 * (a completion, the end of the connection, a post that is refused) the QP goes to the error
 * state, and the completions of the WRs that succeeded are taken from the CQ. All other WRs are
 * flushed here, in their order, and so are those that are posted later. The provider's account of
 * it is not passed on, but for the status of the WR that it told of first.
 *
 * Owns how a chain of the caller's becomes one of the provider's. Left to others: slots and
 * positions (post.c). */
#include <errno.h>

#include "verbs.h"

enum { CHAIN = VERBS_CHAIN / 2 };

static void fill_fence(const struct weir_qp *qp, uint32_t position, struct ibv_send_wr *wr,
                       struct ibv_sge *sge) {
    const struct verbs_cm *cm = &qp->device->cm;
    wr->wr_id = qp->id_base | (position & VERBS_POSITION_MASK);
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->opcode = IBV_WR_RDMA_READ;
    wr->send_flags = IBV_SEND_SIGNALED;
    wr->wr.rdma.remote_addr = qp->there.fence;
    wr->wr.rdma.rkey = qp->there.fence_key;
    sge->addr = (uint64_t)(uintptr_t)&cm->fence[1];
    sge->length = sizeof cm->fence[1];
    sge->lkey = cm->fence_mr->lkey;
}

/* Fills the device's chain from the first count WRs; starts[i] is the link at which WR i begins.
 * Returns how many of them can ever be accepted; *links_out is the length of the chain. */
static uint32_t fill(const struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     uint16_t starts[CHAIN], uint32_t *links_out) {
    struct weir_device *device = qp->device;
    uint32_t links = 0, i = 0;
    for (; i < count && post_is_possible(device, &wrs[i]); i++) {
        struct ibv_send_wr *wr = &device->wrs[links];
        bool signaled = (wrs[i].flags & WEIR_WR_SIGNALED) != 0;
        starts[i] = (uint16_t)links;
        post_fill(qp, &wrs[i], qp->head + i, wr, &device->sges[links]);
        links++;
        if (wr->opcode == IBV_WR_RDMA_READ && wr->num_sge == 1)
            continue;
        if (wr->opcode == IBV_WR_RDMA_READ) /* an empty one, which reads nothing */
            wr->opcode = IBV_WR_RDMA_WRITE;
        wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
        if (signaled) {
            fill_fence(qp, qp->head + i, &device->wrs[links], &device->sges[links]);
            links++;
        }
    }
    *links_out = links;
    return i;
}

/* How many of the filled WRs are in the first links of the chain, and whether the last of
 * them has lost its fence. */
static uint32_t accepted_of(const uint16_t *starts, uint32_t filled, uint32_t all, uint32_t links,
                            bool *halved_out) {
    uint32_t accepted = filled;
    while (accepted > 0 && starts[accepted - 1] >= links)
        accepted--;
    uint32_t end = accepted < filled ? starts[accepted] : all;
    *halved_out = accepted > 0 && links < end;
    return accepted;
}

static int flush(struct weir_qp *qp, uint32_t count, const struct weir_wr *wrs,
                 struct weir_post *post_out) {
    while (post_out->accepted < count) {
        if (qp->head - qp->tail >= qp->sq_depth)
            return WEIR_EAGAIN;
        qp->ids[qp->head & qp->id_mask] = wrs[post_out->accepted].wr_id;
        poll_flush(qp, qp->head, WEIR_CQE_FLUSHED);
        qp->head++;
        post_out->accepted++;
    }
    return WEIR_OK;
}

void fence_failed(struct weir_qp *qp, uint32_t position, uint32_t status) {
    if (qp->state == QP_ERROR)
        return;
    qp->culprit = position;
    qp->culprit_status = status;
    verbs_qp_error(qp);
}

void fence_flush(struct weir_qp *qp) {
    for (uint32_t position = qp->tail; position != qp->head; position++) {
        bool is_culprit = (position & VERBS_POSITION_MASK) == qp->culprit;
        poll_flush(qp, position, is_culprit ? qp->culprit_status : WEIR_CQE_FLUSHED);
    }
}

/* Whether a post was refused because the QP is in the error state. Some say ENOTCONN, others
 * EINVAL as of a WR that they do not understand. */
static bool failed_by_itself(struct weir_qp *qp, int error) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    struct ibv_qp_init_attr init;
    if (post_refusal(error) == WEIR_EAGAIN)
        return false;
    if (error == ENOTCONN || error == -ENOTCONN)
        return true;
    return ibv_query_qp(qp->ibv, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR;
}

static int post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                struct weir_post *post_out) {
    if (qp->state == QP_ERROR)
        return flush(qp, count, wrs, post_out);
    while (post_out->accepted < count) {
        uint16_t starts[CHAIN];
        uint32_t room = qp->sq_depth - (qp->head - qp->tail);
        uint32_t wanted = count - post_out->accepted;
        if (wanted > CHAIN)
            wanted = CHAIN;
        if (wanted > room)
            wanted = room;
        if (wanted == 0)
            return WEIR_EAGAIN;
        uint32_t links;
        uint32_t filled = fill(qp, wrs + post_out->accepted, wanted, starts, &links);
        int error = 0;
        uint32_t taken = links > 0 ? post_filled(qp, links, &error) : 0;
        bool halved;
        uint32_t accepted = accepted_of(starts, filled, links, taken, &halved);
        qp->head += accepted;
        post_out->accepted += accepted;
        if (halved) /* nothing would be heard of it */
            verbs_qp_error(qp);
        if (error != 0 && failed_by_itself(qp, error)) {
            verbs_qp_error(qp);
            return flush(qp, count, wrs, post_out);
        }
        if (error != 0)
            return post_refusal(error);
        if (filled < wanted)
            return WEIR_EINVAL;
    }
    return WEIR_OK;
}

int fence_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
               struct weir_post *post_out) {
    enum verbs_sigpipe hold = sigpipe_hold(qp->device);
    int rc = post(qp, wrs, count, post_out);
    sigpipe_release(hold);
    return rc;
}
