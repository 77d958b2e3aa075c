/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c: reads that are under way when their QP ends.
 *
 * tcp of libfabric before 1.18 has a read whose answer has begun to arrive in two places, and frees
 * it twice where its endpoint is closed meanwhile (ofiwg/libfabric, pull request 8660). From then
 * on two operations of the device share one entry, and what they send is garbage. Where the
 * connection ends by itself, each is freed once. So a connection with such a read is shut down
 * first, and what had arrived of it is taken until the provider has seen its end. That is over
 * soon: the kernel answers what comes after a shutdown with a reset. A connection whose descriptor
 * is not known (inherit.c) is closed as it is.
 *
 * Answers come in the order of the reads, and no read behind one that could not be asked is asked.
 * So only the oldest can have begun to arrive, and when the provider has told its end, none has. */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "ofi.h"

/* Looks that may bring nothing: a look is at some of the connections that have something. */
enum { IDLE_LOOKS = 16, QPS_A_LOOK = 512 };

bool reads_before(const struct weir_qp *qp, uint32_t position) {
    bool found = false;
    for (uint32_t at = qp->seen; !found && (int32_t)(at - position) < 0; at++)
        found = qp->sends[at & qp->sq_mask].reads;
    return found;
}

static bool asks(const struct weir_qp *qp) {
    return qp->fence_sent != qp->fence_done && !qp->fence_failed;
}

/* NULL: it is not under way. */
static struct ofi_send *send_at(const struct weir_qp *qp, uint32_t position) {
    uint32_t number = (position - qp->seen) & OFI_POSITION_MASK;
    return number < qp->head - qp->seen ? &qp->sends[(qp->seen + number) & qp->sq_mask] : NULL;
}

void reads_note_end(struct weir_qp *qp, uint32_t position) {
    struct ofi_send *send = send_at(qp, position);
    if (send != NULL)
        send->reads = false;
}

/* A read that failed, or could not be asked, does not arrive. */
void reads_note_failure(struct weir_qp *qp, uint32_t position) {
    struct ofi_send *send = send_at(qp, position);
    uint32_t at = qp->seen + ((position - qp->seen) & OFI_POSITION_MASK);
    if (send == NULL || !send->reads)
        return;
    send->reads = false;
    if (!reads_before(qp, at) && !(asks(qp) && (int32_t)(qp->fence_position - at) <= 0))
        qp->reads_over = true;
}

void reads_note_no_answer(struct weir_qp *qp) {
    qp->fence_failed = true;
    if (!reads_before(qp, qp->fence_position))
        qp->reads_over = true;
}

static bool are_under_way(const struct weir_qp *qp) {
    return !qp->reads_over && (asks(qp) || reads_before(qp, qp->head));
}

static int bytes_waiting(int fd) {
    int bytes = 0;
    return ioctl(fd, SIOCINQ, &bytes) == 0 ? bytes : 0;
}

/* An answer that has not begun to arrive when looks bring nothing, does not: a message that finds
 * no receive is in front of it. */
void reads_end(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    uint32_t idle = 0, idle_max = IDLE_LOOKS + device->qp_count / QPS_A_LOOK;
    if (qp->ep == NULL || qp->fd < 0 || !are_under_way(qp))
        return;
    shutdown(qp->fd, SHUT_RDWR);
    for (int before = -1; are_under_way(qp) && idle < idle_max; idle++) {
        int waiting = bytes_waiting(qp->fd);
        if (waiting != before)
            idle = 0;
        before = waiting;
        ofi_drain(device);
    }
}
