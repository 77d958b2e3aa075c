/* SPDX-License-Identifier: Apache-2.0 */
/* sim_kinds.c: see sim_kinds.h. */
#include "sim_kinds.h"

#include <string.h>

const struct sim_kind sim_kinds[SIM_KINDS] = {
    {"sim ordered", true, false, false, SIM_LAST_WQE_NEVER, 1, false, false, 5000, false, false},
    {"sim ordered srq", true, false, true, SIM_LAST_WQE_MANY, 3, false, false, 5000, false, false},
    {"sim inline", true, true, false, SIM_LAST_WQE_NEVER, 1, false, false, 0, false, false},
    {"sim inline srq", true, true, true, SIM_LAST_WQE_LATE, 2, false, false, 5000, false, false},
    {"sim unordered", false, false, false, SIM_LAST_WQE_NEVER, 3, false, false, 5000, false, false},
    {"sim unordered srq", false, false, true, SIM_LAST_WQE_EARLY, 2, false, false, 5000, false,
     false},
    {"sim rings", true, false, false, SIM_LAST_WQE_NEVER, 1, true, false, 5000, false, false},
    {"sim rings srq", true, false, true, SIM_LAST_WQE_LATE, 1, true, false, 0, false, false},
    {"sim receive rings", true, false, false, SIM_LAST_WQE_NEVER, 2, true, true, 0, false, false},
    {"sim inline receive rings", true, true, false, SIM_LAST_WQE_NEVER, 2, true, true, 0, false,
     false},
    {"sim unordered receive rings", false, false, false, SIM_LAST_WQE_NEVER, 3, true, true, 5000,
     false, false},
    {"sim odd", true, false, false, SIM_LAST_WQE_NEVER, 3, true, false, 5000, true, false},
    {"sim odd srq", true, false, true, SIM_LAST_WQE_MANY, 2, false, false, 0, true, false},
    {"sim no blame", true, false, false, SIM_LAST_WQE_NEVER, 2, false, false, 5000, false, true},
    {"sim no blame srq", true, false, true, SIM_LAST_WQE_LATE, 1, true, false, 0, false, true},
    {"sim odd no blame", true, false, false, SIM_LAST_WQE_NEVER, 3, true, true, 5000, true, true},
    {"sim odd inline", true, true, false, SIM_LAST_WQE_NEVER, 1, false, false, 5000, true, false},
};

/* The odd ways of a device: it may grant more than was asked for, refuse to destroy at first,
 * answer late, bound a post; and what it may leave out. */
static void config_odd(struct sim_nic_config *nic) {
    nic->grant = SIM_GRANT_MORE;
    nic->destroy_fails_max = 3;
    nic->late_ns_max = 5000;
    nic->connect_ns_max = 100000;
    nic->post_bytes_max = 1 << 20;
    nic->inline_bytes_max = 0;
    nic->mtu_max = nic->rd_atomic_max = 0;
    nic->nak_kills_target = false;
    nic->fatal_events = false;
    nic->import_maps = nic->completes_inline;
    nic->cq_clean = true; /* flushes come while it refuses to destroy */
}

void sim_kind_config(const struct sim_kind *kind, uint32_t nodes, struct sim_config *config) {
    memset(config, 0, sizeof(*config));
    config->nodes = nodes;
    config->net.latency_min_ns = config->net.latency_max_ns = 1000;
    for (uint32_t i = 0; i < nodes; i++) {
        config->nic[i] = (struct sim_nic_config){
            .ordered = kind->ordered,
            .completes_inline = kind->completes_inline,
            .srq = kind->srq,
            .last_wqe = kind->last_wqe,
            .pieces_max = kind->pieces_max,
            .gathers_max = kind->pieces_max == 1 ? 0 : 9,
            .nak_kills_target = true,
            .fatal_events = true,
            .no_blame = kind->no_blame,
            .import_maps = true,
            .sq_depth_max = 1024,
            .rq_depth_max = 1024,
            .inline_bytes_max = 256,
            .retry_count = 3,
            .message_bytes_max = 1 << 30,
            .post_bytes_max = UINT64_MAX,
            .latency_min_ns = 500,
            .latency_max_ns = 3000,
            .flush_ns_max = kind->flush_ns_max,
            .cq_clean = kind->flush_ns_max == 0, /* else flushes come too late to be seen */
            .qp_rings = kind->qp_rings,
            .recv_rings = kind->recv_rings,
            .ring_turn_max = 4,
            .rto_ns = 10000,
            .mtu_max = 4096,
            .rd_atomic_max = 16,
        };
        if (kind->is_odd) {
            config_odd(&config->nic[i]);
        }
    }
}
