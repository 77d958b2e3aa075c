/* SPDX-License-Identifier: Apache-2.0 */
/* fence.c: when nothing of a peer's accesses to a region that was closed is under way any more.
 *
 * A provider that copies for its peers looks at a key when the header of an access arrives. The
 * bytes of a write go on landing after that, and those of a read are taken from memory when they
 * are sent, whatever becomes of the region meanwhile (seen with tcp of libfabric 1.17: all of
 * 64 MiB landed after fi_close(3) of the region had returned). So the peer is asked: a word of it
 * is read, by the same connection. Its provider answers in the order of its stream, so each write
 * that was on its way before the answer has landed when that is here; and the question goes behind
 * the answers that this side owes, so that each read from before has its bytes. An access whose
 * header comes later finds no region.
 *
 * Fences have numbers. A QP has one under way at most: for all releases from before it. */
#include "ofi.h"

static void ask(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    struct iovec to = {.iov_base = &device->fence_words[1],
                       .iov_len = sizeof device->fence_words[1]};
    struct fi_rma_iov from = {
        .addr = qp->there.fence_raddr, .len = to.iov_len, .key = qp->there.fence_key};
    struct fi_msg_rma read = {.msg_iov = &to,
                              .desc = &device->fence_desc,
                              .iov_count = 1,
                              .rma_iov = &from,
                              .rma_iov_count = 1,
                              .context = ofi_context(qp, OFI_KIND_FENCE, 0)};
    ssize_t rc = fi_readmsg(qp->ep, &read, FI_COMPLETION);
    if (rc == 0) {
        qp->fence_sent = device->fence;
        qp->fence_position = qp->head;
        qp->fence_turn_ns = 0;
    } else if (rc != -FI_EAGAIN)
        qp_note_failure(qp);
}

/* Whether its peer can have begun an access, also before this side was asked to connect. */
static bool concerns(const struct weir_qp *qp, uint64_t fence) {
    return qp != NULL && qp->ep != NULL && qp->link == OFI_LINK_UP && qp->fence_done < fence;
}

uint64_t fence_begin(struct weir_device *device) {
    return ++device->fence;
}

/* Where the provider had no room for the question, one from before is under way, or the QP is not
 * connected yet, it is asked with a later look. */
bool fence_look(struct weir_device *device, uint64_t fence) {
    bool over = true;
    for (uint32_t i = 0, seen = 0; seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        if (!concerns(qp, fence))
            continue;
        over = false;
        if (qp->state == OFI_READY && qp->fence_sent == qp->fence_done)
            ask(qp);
    }
    failures_see(device);
    return over;
}

/* The question is withheld where all that was posted in front of it has completed, which it does in
 * order. The answer may still be behind much that this side has to send for the peer's reads. */
static bool is_withheld(struct weir_qp *qp, uint64_t since_ns) {
    if (qp->fence_sent == qp->fence_done || (int32_t)(qp->seen - qp->fence_position) < 0)
        return false;
    if (qp->fence_turn_ns == 0)
        qp->fence_turn_ns = device_now(qp->device);
    return qp->fence_turn_ns < since_ns;
}

void fence_give_up(struct weir_device *device, uint64_t fence, uint64_t silent_ns,
                   uint64_t withheld_ns) {
    for (uint32_t i = 0, seen = 0; seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        if (concerns(qp, fence) && (qp->alive_ns < silent_ns || is_withheld(qp, withheld_ns)))
            connect_lost(qp);
    }
    failures_see(device);
    ofi_wake(device);
}

void fence_answered(struct weir_qp *qp) {
    qp->fence_done = qp->fence_sent;
}
