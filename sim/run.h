/* SPDX-License-Identifier: Apache-2.0 */
/* run.h: one run of a simulated world, from boot to an empty NIC. */
#ifndef WEIR_SIM_RUN_H
#define WEIR_SIM_RUN_H

#include <stdio.h>

#include "config.h"
#include "world.h"

struct sim_result {
    uint64_t events;
    uint64_t digest;
    uint64_t virtual_ns;
    uint32_t transfers_ok;
    uint32_t transfers_failed;
    uint32_t notifications;
    char violation[SIM_VIOLATION_MAX]; /* "": none */
};

/* Pure: the same config and seed give the same result and the same trace. */
void sim_run(const struct sim_config *config, uint64_t seed, FILE *trace,
             struct sim_result *result_out);

#endif
