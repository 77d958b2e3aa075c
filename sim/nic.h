/* SPDX-License-Identifier: Apache-2.0 */
/* nic.h: the simulated NIC, as the device port and as the world sees it. */
#ifndef WEIR_SIM_NIC_H
#define WEIR_SIM_NIC_H

#include "world.h"

/* The device port. open takes the struct sim_node from env->self, so it only works
 * with the environment that world.c makes. */
extern const struct weir_device_ops SIM_NIC_OPS;

/* The things that a NIC holds now, and those done to it. */
struct sim_nic_census {
    uint32_t qps;
    uint32_t mrs;
    uint32_t recvs;     /* buffers posted to QPs, those of a shared queue not counted */
    uint32_t overfills; /* posts beyond the granted depth */
    uint32_t overloads; /* posts of more bytes than the engine is to have in flight */
    uint32_t rnrs;      /* SENDs that found no buffer */
    uint32_t not_ready; /* SENDs of this NIC that found none at their target, */
    uint32_t repeats;   /* and requests of this NIC that were sent again */
    uint32_t swallowed; /* shared buffers lost with a QP */
};

enum sim_qp_state { SIM_QP_INIT, SIM_QP_RTS, SIM_QP_ERR };

struct sim_qp_info {
    uint32_t state; /* enum sim_qp_state */
    uint32_t qpn;
    uint32_t remote_node;
    uint64_t uid;
    uint64_t remote_uid;
    uint32_t sq_used;
};

/* It failed for good, and was let go of. */
bool sim_nic_let_go(const struct weir_device *nic);
/* The resource that the node lacks now: EMFILE or ENOMEM; 0: nothing. */
int sim_nic_lack(const struct weir_device *nic);
/* How long the completion that waits for longest has waited to be polled. */
uint64_t sim_nic_unpolled_ns(const struct weir_device *nic);
void sim_nic_census(const struct weir_device *nic, struct sim_nic_census *census_out);
/* Writes the blob of a QP of this node that does not exist. Returns its length. */
uint32_t sim_nic_stray_blob(struct sim_prng *prng, uint32_t node, uint8_t *out);
/* Whether a connect is under way. */
bool sim_nic_connects(const struct weir_device *nic);
/* The first QP with number index or above: its number plus one, or 0 at the end. */
uint32_t sim_nic_qp_next(const struct weir_device *nic, uint32_t index,
                         struct sim_qp_info *info_out);
/* The process is not stopped any more: what waited for it is taken, at once or a little later. */
void sim_nic_go_on(struct weir_device *nic);
/* The process is gone: everything vanishes at once, nothing flushes. */
void sim_nic_crash(struct weir_device *nic);

#endif
