/* SPDX-License-Identifier: Apache-2.0 */
/* sim_kinds.c: see sim_kinds.h. */
#include "sim_kinds.h"

#include <string.h>

const struct sim_kind sim_kinds[SIM_KINDS] = {
    {.name = "sim ordered", .ordered = true, .pieces_max = 1, .flush_ns_max = 5000},
    {.name = "sim ordered srq",
     .ordered = true,
     .srq = true,
     .last_wqe = SIM_LAST_WQE_MANY,
     .pieces_max = 3,
     .flush_ns_max = 5000},
    {.name = "sim inline", .ordered = true, .completes_inline = true, .pieces_max = 1},
    {.name = "sim inline srq",
     .ordered = true,
     .completes_inline = true,
     .srq = true,
     .last_wqe = SIM_LAST_WQE_LATE,
     .pieces_max = 2,
     .flush_ns_max = 5000},
    {.name = "sim unordered", .pieces_max = 3, .flush_ns_max = 5000},
    {.name = "sim unordered srq",
     .srq = true,
     .last_wqe = SIM_LAST_WQE_EARLY,
     .pieces_max = 2,
     .flush_ns_max = 5000},
    {.name = "sim rings", .ordered = true, .pieces_max = 1, .qp_rings = true, .flush_ns_max = 5000},
    {.name = "sim rings srq",
     .ordered = true,
     .srq = true,
     .last_wqe = SIM_LAST_WQE_LATE,
     .pieces_max = 1,
     .qp_rings = true},
    {.name = "sim receive rings",
     .ordered = true,
     .pieces_max = 2,
     .qp_rings = true,
     .recv_rings = true},
    {.name = "sim inline receive rings",
     .ordered = true,
     .completes_inline = true,
     .pieces_max = 2,
     .qp_rings = true,
     .recv_rings = true},
    {.name = "sim unordered receive rings",
     .pieces_max = 3,
     .qp_rings = true,
     .recv_rings = true,
     .flush_ns_max = 5000},
    {.name = "sim odd",
     .ordered = true,
     .pieces_max = 3,
     .qp_rings = true,
     .flush_ns_max = 5000,
     .is_odd = true},
    {.name = "sim odd srq",
     .ordered = true,
     .srq = true,
     .last_wqe = SIM_LAST_WQE_MANY,
     .pieces_max = 2,
     .is_odd = true},
    {.name = "sim no blame",
     .ordered = true,
     .pieces_max = 2,
     .flush_ns_max = 5000,
     .no_blame = true},
    {.name = "sim no blame srq",
     .ordered = true,
     .srq = true,
     .last_wqe = SIM_LAST_WQE_LATE,
     .pieces_max = 1,
     .qp_rings = true,
     .no_blame = true},
    {.name = "sim odd no blame",
     .ordered = true,
     .pieces_max = 3,
     .qp_rings = true,
     .recv_rings = true,
     .flush_ns_max = 5000,
     .is_odd = true,
     .no_blame = true},
    {.name = "sim odd inline",
     .ordered = true,
     .completes_inline = true,
     .pieces_max = 1,
     .flush_ns_max = 5000,
     .is_odd = true},
    {.name = "sim isolating", .isolates = true, .pieces_max = 3, .flush_ns_max = 5000},
    {.name = "sim datagrams",
     .isolates = true,
     .sq_shared = 1024,
     .srq = true,
     .last_wqe = SIM_LAST_WQE_LATE,
     .pieces_max = 2},
    {.name = "sim odd isolating",
     .isolates = true,
     .pieces_max = 3,
     .qp_rings = true,
     .recv_rings = true,
     .flush_ns_max = 5000,
     .is_odd = true},
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
            .isolates = kind->isolates,
            .sq_shared = kind->sq_shared,
            .completes_inline = kind->completes_inline,
            .srq = kind->srq,
            .last_wqe = kind->last_wqe,
            .pieces_max = kind->pieces_max,
            .gathers_max = kind->pieces_max == 1 ? 0 : 9,
            .nak_kills_target = !kind->isolates,
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
