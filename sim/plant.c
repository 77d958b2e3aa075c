/* SPDX-License-Identifier: Apache-2.0 */
/* plant.c: filters between the core and the simulated NIC that misbehave as a bug
 * in the core, or in a driver, would. They prove that the oracle sees such bugs;
 * a campaign that passes with one of them in place is worth nothing.
 *
 * A filter misbehaves at fixed places of each run, so plants replay like seeds. */
#include "plant.h"

#include <string.h>

#include "nic.h"
#include "nic_impl.h"

enum { PLANT_CHAIN_MAX = 64, PLANT_PERIOD = 7 };

static const char *const NAMES[SIM_PLANT_COUNT] = {
    [SIM_PLANT_NONE] = "none",
    [SIM_PLANT_LOST_COMPLETION] = "lost-completion",
    [SIM_PLANT_EARLY_NOTIFY] = "early-notify",
    [SIM_PLANT_CROSSED_QPS] = "crossed-qps",
    [SIM_PLANT_OVERFILL] = "overfill",
    [SIM_PLANT_DOUBLE_WRITE] = "double-write",
    [SIM_PLANT_LEAKED_QP] = "leaked-qp",
    [SIM_PLANT_LOST_BUFFER] = "lost-buffer",
    [SIM_PLANT_WRONG_PSN] = "wrong-psn",
    [SIM_PLANT_LOST_MESSAGE] = "lost-message",
    [SIM_PLANT_SKIPPED_WRITE] = "skipped-write",
    [SIM_PLANT_KEPT_MEMORY] = "kept-memory",
};

const char *plant_name(uint32_t plant) {
    return NAMES[plant];
}

bool plant_find(const char *name, uint32_t *plant_out) {
    for (uint32_t i = 0; i < SIM_PLANT_COUNT; i++) {
        if (strcmp(NAMES[i], name) == 0) {
            *plant_out = i;
            return true;
        }
    }
    return false;
}

static bool plant_due(struct weir_device *nic) {
    return ++nic->plant_count % PLANT_PERIOD == 0;
}

/* One good completion is never reported. */
static int poll_lost(struct weir_device *nic, struct weir_cqe *cqes_out, int max, bool recv) {
    int count = SIM_NIC_OPS.poll(nic, cqes_out, max);

    for (int i = 0; i < count; i++) {
        if (cqes_out[i].recv == recv && cqes_out[i].status == WEIR_CQE_OK && plant_due(nic)) {
            memmove(&cqes_out[i], &cqes_out[i + 1], (size_t)(count - i - 1) * sizeof(*cqes_out));
            return count - 1;
        }
    }
    return count;
}

/* Of a send: its slots leak. */
static int poll_lost_completion(struct weir_device *nic, struct weir_cqe *cqes_out, int max) {
    return poll_lost(nic, cqes_out, max, false);
}

static int poll_lost_message(struct weir_device *nic, struct weir_cqe *cqes_out, int max) {
    return poll_lost(nic, cqes_out, max, true);
}

/* The first write of a chain is made an empty one. */
static int post_skipped_write(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                              struct weir_post *post_out) {
    struct weir_wr changed[PLANT_CHAIN_MAX];

    if (count > PLANT_CHAIN_MAX || wrs[0].opcode != WEIR_OP_WRITE || wrs[0].length == 0 ||
        !plant_due(qp->nic)) {
        return SIM_NIC_OPS.post_send(qp, wrs, count, post_out);
    }
    memcpy(changed, wrs, count * sizeof(*wrs));
    changed[0].length = 0;
    changed[0].pieces = 0;
    return SIM_NIC_OPS.post_send(qp, changed, count, post_out);
}

/* The last WR of a chain, if it is a SEND, goes first. */
static int post_early_notify(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                             struct weir_post *post_out) {
    struct weir_wr turned[PLANT_CHAIN_MAX];

    if (count < 2 || count > PLANT_CHAIN_MAX || wrs[count - 1].opcode != WEIR_OP_SEND ||
        wrs[0].pieces > 0) { /* which has to come first */
        return SIM_NIC_OPS.post_send(qp, wrs, count, post_out);
    }
    turned[0] = wrs[count - 1];
    memcpy(&turned[1], wrs, (count - 1) * sizeof(*wrs));
    return SIM_NIC_OPS.post_send(qp, turned, count, post_out);
}

/* The first WR of each chain, if it is a write and there is room, is posted once more, and gives no
 * completion. */
static int post_double_write(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                             struct weir_post *post_out) {
    int error = SIM_NIC_OPS.post_send(qp, wrs, count, post_out);
    struct weir_wr again = wrs[0];
    struct weir_post ignored;

    if (error == 0 && again.opcode == WEIR_OP_WRITE && again.length != 0 &&
        qp->sq_used + 1 < qp->sq_depth) {
        again.flags &= (uint8_t)~WEIR_WR_SIGNALED;
        (void)SIM_NIC_OPS.post_send(qp, &again, 1, &ignored);
    }
    return error;
}

/* As if QP numbers had been mixed up between two sessions. */
static int connect_crossed(struct weir_qp *qp, const struct weir_qp_path *path) {
    struct weir_qp_path crossed = *path;
    uint8_t *last = qp->nic->plant_blob;
    uint8_t other[WEIR_QP_BLOB_MAX];

    memcpy(other, last, sizeof(other));
    if (path->blob_length > WEIR_QP_BLOB_MAX) {
        return WEIR_EINVAL;
    }
    memcpy(last, path->blob, path->blob_length);
    if (other[0] != 0 && other[1] == path->blob[1] && plant_due(qp->nic)) {
        crossed.blob = other;
    }
    return SIM_NIC_OPS.qp_connect(qp, &crossed);
}

static int connect_wrong_psn(struct weir_qp *qp, const struct weir_qp_path *path) {
    struct weir_qp_path wrong = *path;

    wrong.psn_remote ^= plant_due(qp->nic) ? 1 : 0;
    return SIM_NIC_OPS.qp_connect(qp, &wrong);
}

/* The core is told of a deeper queue than there is, as if it had miscounted. */
static int create_overfill(struct weir_device *nic, const struct weir_qp_options *options,
                           struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    int error = SIM_NIC_OPS.qp_create(nic, options, granted_out, qp_out);

    if (error == 0) {
        granted_out->sq_depth += 2;
    }
    return error;
}

static int destroy_leaks(struct weir_qp *qp) {
    return plant_due(qp->nic) ? 0 : SIM_NIC_OPS.qp_destroy(qp);
}

/* A receive buffer is taken and never given to the NIC. */
static int recv_lost(struct weir_device *nic, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                     uint32_t length, uint32_t lkey) {
    return plant_due(nic) ? 0 : SIM_NIC_OPS.post_recv(nic, qp, wr_id, buffer, length, lkey);
}

/* Memory stays reachable for peers. */
static int release_kept(struct weir_device *nic, const struct weir_mr *mr) {
    return plant_due(nic) ? 0 : SIM_NIC_OPS.mr_release(nic, mr);
}

/* Only what a plant changes; plant_apply takes the rest from the NIC. */
static const struct weir_device_ops FILTERS[SIM_PLANT_COUNT] = {
    [SIM_PLANT_LOST_COMPLETION] = {.poll = poll_lost_completion},
    [SIM_PLANT_EARLY_NOTIFY] = {.post_send = post_early_notify},
    [SIM_PLANT_CROSSED_QPS] = {.qp_connect = connect_crossed},
    [SIM_PLANT_OVERFILL] = {.qp_create = create_overfill},
    [SIM_PLANT_DOUBLE_WRITE] = {.post_send = post_double_write},
    [SIM_PLANT_LEAKED_QP] = {.qp_destroy = destroy_leaks},
    [SIM_PLANT_LOST_BUFFER] = {.post_recv = recv_lost},
    [SIM_PLANT_WRONG_PSN] = {.qp_connect = connect_wrong_psn},
    [SIM_PLANT_LOST_MESSAGE] = {.poll = poll_lost_message},
    [SIM_PLANT_SKIPPED_WRITE] = {.post_send = post_skipped_write},
    [SIM_PLANT_KEPT_MEMORY] = {.mr_release = release_kept},
};

void plant_apply(uint32_t plant, struct weir_device_ops *ops_out) {
    const struct weir_device_ops *filter = &FILTERS[plant];

    *ops_out = SIM_NIC_OPS;
    if (filter->poll != NULL) {
        ops_out->poll = filter->poll;
    }
    if (filter->post_send != NULL) {
        ops_out->post_send = filter->post_send;
    }
    if (filter->post_recv != NULL) {
        ops_out->post_recv = filter->post_recv;
    }
    if (filter->qp_connect != NULL) {
        ops_out->qp_connect = filter->qp_connect;
    }
    if (filter->mr_release != NULL) {
        ops_out->mr_release = filter->mr_release;
    }
    if (filter->qp_create != NULL) {
        ops_out->qp_create = filter->qp_create;
    }
    if (filter->qp_destroy != NULL) {
        ops_out->qp_destroy = filter->qp_destroy;
    }
}
