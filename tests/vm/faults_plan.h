/* SPDX-License-Identifier: Apache-2.0 */
/* faults_plan.h: which faults faulty.c injects, and when: read from the environment, drawn from
 * a seed, counted, and reported when the process ends.
 *
 * FAULTS holds words "name=value", divided by blanks:
 *
 *     seed=N       of the generator, 1 by default; the same seed draws the same
 *     NAME=RATE    for each fault below: how often, 0 to 1
 *     most=N       at most so many of each fault
 *     lost_ms=N    how long lost doorbells are kept at most, 3 by default
 *     late_ms=N    how long completions are kept at most, 3 by default
 *
 * Without FAULTS nothing is injected. A plan that cannot be parsed ends the process, loudly: a test
 * whose faults do not happen proves nothing. The report is a line of "name=count" for each fault,
 * and "splits": at how many places chains were split. It is appended to the file that FAULTS_REPORT
 * names, or goes to standard error.
 *
 * Callers see to it that one thread at a time is in here. */
#ifndef FAULTS_PLAN_H
#define FAULTS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, what happens) */
#define FAULTS(X)                                                                                  \
    X(partial, "the provider takes a part of a chain, every part in turn, then ENOMEM")            \
    X(enomem, "a chain is refused with ENOMEM")                                                    \
    X(einval, "a work request that carries bytes is refused with EINVAL")                          \
    X(lost, "a chain is taken, and reaches the device with a later post or poll")                  \
    X(never, "a chain is taken, and the QP does nothing any more until it is in error")            \
    X(late, "a completion, and what its QP completes behind it, is kept back")                     \
    X(srq, "a shared receive is refused with ENOMEM")

enum fault {
#define FAULTS_X(name, text) FAULT_##name,
    FAULTS(FAULTS_X)
#undef FAULTS_X
        FAULT_COUNT
};

/* Reads FAULTS, the first time. */
void faults_read(void);
/* Whether this fault happens now; if so it is counted. */
bool faults_draw(enum fault fault);
/* Where the provider stops taking a chain of count work requests: every k below count in turn. */
uint32_t faults_split(uint32_t count);
/* Any of count, drawn. */
uint32_t faults_pick(uint32_t count);
/* For how long this one is kept. */
uint64_t faults_delay_ns(enum fault fault);

/* For the program that runs under the faults; faulty.c exports them under its lock.
 * No more faults from here on, and how many there were. */
typedef void (*faults_stop_fn)(void);
typedef uint64_t (*faults_count_fn)(const char *name);

void faults_stop_drawing(void);
uint64_t faults_counted(const char *name);
void faults_report(void);

#endif
