/* SPDX-License-Identifier: Apache-2.0 */
/* recovery.h: how long, in virtual time, a broken session takes to be as if nothing had been. */
#ifndef WEIR_SIM_RECOVERY_H
#define WEIR_SIM_RECOVERY_H

#include <stdint.h>
#include <stdio.h>

#include "world.h"

enum { RECOVERY_INITIATOR, RECOVERY_TARGET, RECOVERY_BOTH, RECOVERY_WHERE_COUNT };

struct sim_recovery {
    uint32_t where;      /* the QP broke: RECOVERY_* */
    uint64_t seen_ns;    /* after the break: an engine retired the session */
    uint64_t settled_ns; /* after the first such: both had drained, and the last QP was gone */
    uint64_t up_ns;      /* likewise: the new session was up at the initiator */
    uint64_t done_ns;    /* likewise: the last transfer had its status */
    /* Of this world, at most: */
    uint64_t leg_ns;                   /* a control message, and the step that looks at it */
    uint64_t connect_ns;               /* connecting both QPs, where that takes time */
    uint64_t drain_ns;                 /* the flushes of both */
    char violation[SIM_VIOLATION_MAX]; /* "": none */
};

/* Two engines with their default times, in the world of this profile and seed: its delays and
 * habits, but queues that hold all of 64 transfers of 64 KiB. Pure, as sim_run. */
void sim_recover(const char *profile, uint64_t seed, FILE *trace, struct sim_recovery *out);

/* Seeds first to last: a table of percentiles. False: a transfer was lost, or a property broken. */
bool sim_recovery_report(const char *profile, uint64_t first, uint64_t last, FILE *trace);

#endif
