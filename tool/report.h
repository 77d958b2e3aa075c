/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: results, as a table for a person and as JSON for a program, and the live line that
 * a terminal sees meanwhile. */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "histogram.h"
#include "machine_limits.h"
#include "options.h"
#include "session.h"
#include "weir.h"

struct result {
    char label[64];
    uint64_t ops;   /* segments, pages, blocks, round trips: see `op` */
    const char *op; /* what an operation is */
    uint64_t transfers;
    uint64_t bytes;
    double seconds;
    struct histogram *latency; /* may be NULL */
    const char *latency_of;    /* from what to what, and how sampled */
    const char *initiator;     /* "the senders"; NULL: this process */
    uint64_t cpu_initiator_ns;
    uint64_t cpu_target_ns;
    struct limit limit; /* name empty: none applies */
    /* Compared with the limit, in a line of its own below the table; 0: the row's rate is. */
    double limit_bytes_per_s;
    double clock_ns; /* what a look at the clock adds to each latency; 0: nothing */
    uint64_t checked_bytes;
    uint64_t wrong_bytes;
    uint64_t eagain; /* submits that were refused and repeated */
    json_t *extra;   /* more members, an object, or NULL; report_add takes it */
};

struct report {
    const struct options *options;
    json_t *root;
    json_t *results;
    unsigned rows;
    bool limit_below; /* the limit is not that of the row's rate */
    const char *initiator;
    uint64_t bytes; /* these three of all rows */
    uint64_t checked_bytes;
    uint64_t wrong_bytes;
    int json_fd;      /* -1: standard output, or none */
    bool json_is_new; /* nothing was there before, and nothing is in it */
};

/* The stream for the table and all else that a person reads: standard output, or standard error
 * where the JSON goes to standard output. */
FILE *report_out(const struct options *options);

/* All that return int: 0, or -1 after complaining. report_begin opens the --json file, which
 * is written at the very end, and stays as it was until then. */
int report_begin(struct report *report, const struct options *options);
/* Prints the row and keeps the JSON. */
int report_add(struct report *report, const struct result *result);
/* Adds a member to the JSON; takes value. */
int report_set(struct report *report, const char *name, json_t *value);
/* The initiating engine's counters; what is set of an engine with these options; what the
 * session with the peer got, and how the peer's transfers fared. report_session: all three. */
int report_counters(struct report *report, weir_engine *engine);
int report_settings(struct report *report, const weir_engine_options *options);
int report_granted(struct report *report, weir_engine *engine, weir_peer peer);
int report_session(struct report *report, const struct session *session);

/* The same of engines of other processes: the counters that they have queried, and what a session
 * got. granted_query: 0, or -1 after complaining. */
struct granted {
    weir_peer_info peer;
    weir_qp_info qps[WEIR_QPS_MAX];
    size_t count;
};
int granted_query(weir_engine *engine, weir_peer peer, struct granted *out);
int report_stats(struct report *report, const weir_engine_info *stats);
int report_grant(struct report *report, const struct granted *granted);
/* Prints what remains, writes --json. -1 too when bytes were wrong. */
int report_end(struct report *report);
/* Frees; also after report_end, and after a failure. */
void report_free(struct report *report);

/* A limit of which twice as much is reached was disturbed while it was measured: no text tells such
 * a share, only that it is more. */
#define REPORT_SHARE_MOST 2
/* How much of the limit was reached; 0 when none applies or none could be measured. */
double report_fraction(const struct result *result);
/* "45.1 % of the limit", or "over 200 % of the limit"; out has at least 32 bytes. */
const char *report_of_limit_text(double fraction, char *out);
/* The same behind ", ", or nothing; out has at least 32 bytes. */
const char *report_share_text(const struct result *result, char *out);

/* Where and with what it was measured. */
json_t *report_machine_json(void);
json_t *report_versions_json(void);

/* The percentiles of a latency, in ns, and how many samples there were. */
json_t *report_latency_json(const struct histogram *latency);

/* "12.3 GB/s" (powers of 1000, as networks count) and "12.34 us"; out has at least 32 bytes. */
const char *report_rate_text(double bytes_per_s, char *out);
const char *report_time_text(double ns, char *out);
/* Three digits: "1.23us", "12.3us", "123us"; out has at least 32 bytes. */
const char *report_cell_text(double ns, char *out);

/* The live line, on stderr when that is a terminal, at most five times a second. fraction: how
 * much of the run is done, in [0, 1]. */
struct progress {
    const char *what;
    uint64_t started_ns;
    uint64_t shown_ns;
    int on;
};
void progress_begin(struct progress *progress, const char *what);
void progress_show(struct progress *progress, uint64_t bytes, double fraction);
/* Where things are counted: "storm: 530 of 1000 up, after 0.4 s". */
void progress_count(struct progress *progress, uint64_t done, uint64_t all, const char *what);
void progress_end(struct progress *progress);

#endif
