/* SPDX-License-Identifier: Apache-2.0 */
/* pacer.h: operations of one size, each at a place of its own, made at a steady rate or as many as
 * go, over a session. They are writes, reads, or messages to an inbox.
 *
 * One thread. Each pass reads the clock once, lands what has ended, and submits what is due, up to
 * a burst at once when it is behind. An operation has ended at the first pass that sees it, and
 * those before it: its latency is never too short, and too long by the time of a pass. */
#ifndef TOOL_PACER_H
#define TOOL_PACER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"
#include "host.h"
#include "pace.h"
#include "report.h"
#include "session.h"

struct pacer_flight; /* one operation under way */

struct pacer {
    struct session *session;
    const struct options *options; /* --size and --window */
    enum op_kind op;
    uint32_t inbox; /* of messages: whose number, and our seat there */
    uint64_t seat;
    struct pacer_flight *flights;
    weir_segment *segments;
    struct pace pace;
    uint64_t start_ns, cut_ns;  /* cut: nothing is submitted from there on */
    uint64_t submitted, landed; /* operations of this run */
    uint64_t sent;              /* messages of all runs */
    uint64_t eagain;
    struct histogram *latency; /* NULL: as many as go, none is due */
    struct idler idler;
    struct patience patience;
    struct progress progress;
    atomic_uint_fast64_t *shown; /* NULL, or the bytes that have landed, now and then */
    bool sleeps; /* while its window is full: there are more processes than processors */
};

/* From one operation's place to the next one's. */
uint64_t pacer_stride(const struct options *options);
/* The memory that the target opens for writes or reads. */
struct proto_open pacer_open(const struct options *options, enum op_kind op);

/* Fills in the flights of a pacer whose session is open; the members above them are set. 0, or -1
 * after complaining. pacer_free is harmless after either, and once more. */
int pacer_init(struct pacer *pacer);
void pacer_free(struct pacer *pacer);

/* The operations of `pace`, from start_ns, which is now or was not long ago, to the end of the last
 * one's period, or of the last one, if that is later. Once the load is cut off, cut_ns after the
 * start, nothing more is submitted. How long it took goes to *length_out. */
int pacer_run(struct pacer *pacer, uint64_t start_ns, uint64_t *length_out);
/* As many as go, for so long: the rate, in bytes a second. */
int pacer_unpaced(struct pacer *pacer, uint64_t start_ns, uint64_t length_ns, double *rate_out);

#endif
