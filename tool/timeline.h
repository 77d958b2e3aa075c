/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h: the bytes that were completed in each step of a run, and what an outage did to them.
 *
 * Pure arithmetic: times are the caller's, in ns from the start of the run, and never fall. */
#ifndef TOOL_TIMELINE_H
#define TOOL_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

struct timeline {
    uint64_t step_ns;
    uint64_t *steps; /* bytes completed in each */
    uint64_t count;  /* steps that have begun */
    uint64_t room;
};

/* Of one fault. A gap is a time without a completion. Only that part of one counts that lies behind
 * the fault, and the last gap that counts is the one in which outage_over comes. */
struct outage {
    uint64_t at_ns;      /* the fault */
    uint64_t last_ns;    /* the last completion since, or the fault */
    uint64_t gap_ns;     /* the longest gap, */
    uint64_t gap_end_ns; /* and the completion that ended it */
    bool over;           /* the next completion is the last that counts */
    bool closed;         /* and has come */
};

void timeline_begin(struct timeline *timeline, uint64_t step_ns);
void timeline_free(struct timeline *timeline);

/* The run has come to that time: steps without a byte are there, too. 0; -1: no memory. */
int timeline_reach(struct timeline *timeline, uint64_t at_ns);
int timeline_add(struct timeline *timeline, uint64_t at_ns, uint64_t bytes);

/* The median of the steps that lie wholly between two times; 0 if there are none. -1: no memory. */
int timeline_median(const struct timeline *timeline, uint64_t from_ns, uint64_t to_ns,
                    uint64_t *median_out);

void outage_begin(struct outage *outage, uint64_t at_ns);
void outage_completion(struct outage *outage, uint64_t at_ns);
/* Nothing of the fault is left: what it broke is in place again. */
void outage_over(struct outage *outage);

/* How long after the fault the rate was back: at the first step with TIMELINE_BACK percent of
 * `median` bytes, from that one on in which the gap ended, and not before that end.
 * UINT64_MAX: not yet, or of a median of 0. */
#define TIMELINE_BACK 90
uint64_t timeline_back(const struct timeline *timeline, const struct outage *outage,
                       uint64_t median);

/* Draws the run in at most `columns` characters, each of which stands for as many steps: the fuller
 * the block, the higher the rate; a blank is no byte at all. ASCII, or UTF-8 of three bytes each.
 * out has 3 * columns + 1 bytes. Returns how many columns were drawn. */
enum timeline_letters { TIMELINE_ASCII = 0, TIMELINE_BLOCKS };
unsigned timeline_draw(const struct timeline *timeline, unsigned columns,
                       enum timeline_letters letters, char *out);
/* In which of these columns a time is drawn. */
unsigned timeline_column(const struct timeline *timeline, unsigned columns, uint64_t at_ns);

#endif
