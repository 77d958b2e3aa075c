/* SPDX-License-Identifier: Apache-2.0 */
/* nic_inline.c: what a simulated NIC does in the post, and its node's processor in the other one's
 * memory.
 *
 * No packet goes, so ports and latencies have no part in it: it takes no time. All else is sent by
 * nic_wire.c. */
#include <string.h>

#include "nic_impl.h"

/* The QP over there, if it still is the one and in RTS. */
static struct weir_qp *other_end(const struct weir_qp *qp) {
    struct weir_qp *other =
        nic_find(qp->nic->world, qp->remote_node, qp->remote_qpn, qp->remote_uid);

    return other != NULL && other->state == SIM_QP_RTS ? other : NULL;
}

static bool inline_write(struct weir_qp *target, const struct weir_wr *wr) {
    struct sim_world *world = target->nic->world;
    const void *from = (const void *)(uintptr_t)wr->laddr;
    uint8_t *to;

    if (wr->length == 0) {
        return true;
    }
    to = nic_mr_target(target->nic, wr->rkey, wr->raddr, wr->length, WEIR_ACCESS_REMOTE_WRITE);
    if (to == NULL) {
        return false;
    }
    if (world->watch.landing != NULL) {
        world->watch.landing(world->watch.self, target->nic->node, to, from, wr->length);
    }
    memmove(to, from, (size_t)wr->length);
    return true;
}

static bool inline_read(struct weir_qp *qp, struct weir_qp *target, const struct weir_wr *wr) {
    struct sim_world *world = qp->nic->world;
    uint8_t *to = (uint8_t *)(uintptr_t)wr->laddr;
    const uint8_t *from;

    if (wr->length == 0) {
        return true;
    }
    from = nic_mr_target(target->nic, wr->rkey, wr->raddr, wr->length, WEIR_ACCESS_REMOTE_READ);
    if (from == NULL) {
        return false;
    }
    if (world->watch.fetch != NULL) {
        world->watch.fetch(world->watch.self, target->nic->node, from, wr->length);
    }
    if (world->watch.landing != NULL) {
        world->watch.landing(world->watch.self, qp->nic->node, to, from, wr->length);
    }
    memmove(to, from, (size_t)wr->length);
    return true;
}

static bool inline_send(struct weir_qp *target, const struct weir_wr *wr) {
    const uint8_t *from = (const uint8_t *)(uintptr_t)wr->laddr;
    struct nic_recv recv;

    if (!nic_recv_ready(target) || wr->length > target->recv_bytes_max ||
        !nic_recv_take(target, &recv)) {
        return false;
    }
    if (wr->length != 0) {
        memcpy(recv.buffer, from, (size_t)wr->length);
    }
    nic_cq_push_recv(target, &recv, WEIR_CQE_OK, (uint32_t)wr->length);
    return true;
}

bool nic_execute_inline(struct weir_qp *qp, const struct weir_wr *posted) {
    struct weir_wr resolved;
    const struct weir_wr *wr = &resolved;
    struct sim_world *world = qp->nic->world;
    struct weir_qp *target = other_end(qp);
    bool done;

    if (posted->pieces > 0) {
        return false; /* it completes later, as a device may have it */
    }
    if (target == NULL || target->remote_uid != qp->uid || target->rx_psn != qp->tx_psn ||
        qp->done != qp->head || target->psn_remote != qp->psn_local ||
        nic_wr_resolve(qp, posted, &resolved) != WEIR_CQE_OK ||
        world->data_cut[qp->nic->node->index][qp->remote_node]) {
        return false;
    }
    switch (wr->opcode) {
    case WEIR_OP_WRITE:
        done = inline_write(target, wr);
        break;
    case WEIR_OP_READ:
        done = inline_read(qp, target, wr);
        break;
    case WEIR_OP_SEND:
        done = inline_send(target, wr);
        break;
    default:
        done = false;
        break;
    }
    if (done) {
        qp->tx_psn++;
        target->rx_psn++;
    }
    return done;
}

static bool direct_write(struct weir_qp *target, uint32_t rkey, uint64_t raddr, const void *from,
                         uint64_t length) {
    const struct weir_wr wr = {
        .laddr = (uint64_t)(uintptr_t)from, .raddr = raddr, .length = length, .rkey = rkey};

    return inline_write(target, &wr);
}

/* Whether the message lies where all of its call do, as the engine promises. */
static bool direct_lies_in(const struct weir_direct_to *to, const struct weir_direct *direct) {
    uint64_t length = 0;

    for (uint32_t i = 0; i < direct->count; i++)
        length += direct->parts[i].length;
    return direct->at % 8 == 0 && direct->at + sizeof(direct->words) <= to->length &&
           direct->payload <= to->length && length <= to->length - direct->payload;
}

static bool direct_goes(const struct weir_qp *qp) {
    return qp->nic->config->completes_inline && qp->state == SIM_QP_RTS && !qp->nic->failed;
}

/* The memory that the QP's processor reaches there, so many bytes from raddr on; NULL: it does not.
 * *target_out, *key_out and *raddr_out: as the target has it. */
static uint8_t *direct_reach(const struct weir_qp *qp, uint32_t rkey, uint64_t raddr,
                             uint64_t length, struct weir_qp **target_out, uint32_t *key_out,
                             uint64_t *raddr_out) {
    struct weir_device *nic = qp->nic;
    struct sim_world *world = nic->world;
    if (!direct_goes(qp))
        return NULL;
    *target_out = other_end(qp);
    if (*target_out == NULL || (*target_out)->remote_uid != qp->uid ||
        world->data_cut[nic->node->index][qp->remote_node] ||
        !nic_import_resolve(nic, rkey, raddr, key_out, raddr_out))
        return NULL;
    return nic_mr_target((*target_out)->nic, *key_out, *raddr_out, length,
                         WEIR_ACCESS_REMOTE_WRITE);
}

int nic_read_direct(struct weir_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t *words_out,
                    uint32_t count) {
    struct weir_qp *target;
    uint32_t key;
    uint64_t there;
    const uint8_t *from =
        direct_reach(qp, rkey, raddr, count * sizeof(*words_out), &target, &key, &there);

    if (from == NULL)
        return WEIR_EAGAIN;
    memcpy(words_out, from, count * sizeof(*words_out));
    return 0;
}

/* A processor needs no order of the QP's, and nothing of it comes later. */
int nic_post_direct(struct weir_qp *qp, const struct weir_direct_to *to,
                    const struct weir_direct *directs, uint32_t count, uint64_t *watch_out) {
    struct weir_device *nic = qp->nic;
    struct sim_world *world = nic->world;
    struct weir_qp *target;
    const uint8_t *watch;
    uint64_t raddr;
    uint32_t key;

    if (!direct_goes(qp) || sim_fault(world, nic->config->post_eagain) ||
        direct_reach(qp, to->rkey, to->raddr, to->length, &target, &key, &raddr) == NULL)
        return WEIR_EAGAIN;
    watch = nic_mr_target(target->nic, key, raddr + (to->watch - to->raddr), sizeof(*watch_out),
                          WEIR_ACCESS_REMOTE_WRITE);
    if (watch == NULL)
        return WEIR_EAGAIN;
    for (uint32_t m = 0; m < count; m++) {
        const struct weir_direct *direct = &directs[m];
        uint64_t at = raddr + direct->payload;
        if (!direct_lies_in(to, direct)) {
            sim_violation(world, "a direct message does not lie where it says");
        }
        for (uint32_t i = 0; i < direct->count; i++) {
            direct_write(target, key, at, direct->parts[i].base, direct->parts[i].length);
            at += direct->parts[i].length;
        }
        direct_write(target, key, raddr + direct->at, direct->words, sizeof(direct->words));
    }
    memcpy(watch_out, watch, sizeof(*watch_out));
    sim_trace(world, "n%u qp %u writes %u messages in %llu bytes in place, %s", nic->node->index,
              qp->qpn, count, (unsigned long long)to->length,
              *watch_out != 0 ? "watched" : "not watched");
    return 0;
}
