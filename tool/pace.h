/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h: when the operations of a paced load are due, and the list of loads to pace.
 *
 * Pure arithmetic. The k-th operation is due at start + k times the period, whatever became of the
 * ones before it, so a load that falls behind catches up, and its delay counts as latency. */
#ifndef TOOL_PACE_H
#define TOOL_PACE_H

#include <stdint.h>

#define PACE_TARGETS_MAX 64
#define PACE_LIST        "1,5,10,25,50,75,90" /* by default */

/* One load: a share of the unpaced rate, or a rate of its own. The other one is 0. */
struct pace_target {
    double percent;
    double bytes_per_s;
};

/* Reads a list of loads, separated by commas: percentages above 0 and at most 100, with or without
 * %; rates, digits with one of K, M, G or T behind them (powers of 1000), in bytes a second, 1 at
 * least. Writes count_out and as many targets. NULL, or what is wrong with the first bad one, at
 * *bad_out, whose length is *length_out. */
const char *pace_parse(const char *list, struct pace_target targets[PACE_TARGETS_MAX],
                       unsigned *count_out, const char **bad_out, int *length_out);

struct pace {
    double period_ns;
    uint64_t count; /* of operations */
};

/* The paced load of operations of so many bytes at that rate: as many as are due in that time, but
 * PACE_LEAST at least. */
#define PACE_LEAST 8
struct pace pace_plan(uint64_t bytes, double bytes_per_s, double seconds);

/* When operation k is due, from the start. */
static inline uint64_t pace_due(const struct pace *pace, uint64_t k) {
    return (uint64_t)((double)k * pace->period_ns);
}

/* From the start to the end of the last operation's period. */
static inline uint64_t pace_length(const struct pace *pace) {
    return pace_due(pace, pace->count);
}

#endif
