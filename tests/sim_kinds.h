/* SPDX-License-Identifier: Apache-2.0 */
/* sim_kinds.h: the kinds of the simulated NIC that the suites of every device run on. */
#ifndef SIM_KINDS_H
#define SIM_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"

struct sim_kind {
    const char *name;
    bool ordered;
    bool isolates;
    uint32_t sq_shared;
    bool completes_inline;
    bool srq;
    uint32_t last_wqe;
    uint32_t pieces_max;
    bool qp_rings;
    bool recv_rings;
    uint64_t flush_ns_max;
    bool is_odd; /* as config_odd says */
    bool no_blame;
};

enum { SIM_KINDS = 20 };
extern const struct sim_kind sim_kinds[SIM_KINDS];

/* A world of so many nodes with such NICs. */
void sim_kind_config(const struct sim_kind *kind, uint32_t nodes, struct sim_config *config);

#endif
