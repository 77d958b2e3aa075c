/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pace.c: `bench pace`: how long operations take when they come at a steady rate.
 *
 * First as many as go are made, which gives the rate that loads are shares of; then each load in
 * turn. An operation's latency counts from the time that it was due, not from its submit: one that
 * had to wait because those before it took long, or because this process did not run, has waited
 * (a load generator that leaves this out calls a service fast that stands still: coordinated
 * omission). So the latency of a load that cannot be met grows for as long as the run lasts.
 *
 * Messages (--op send) go to an inbox of the target, which takes them as they come; after each load
 * it has to have taken all of them, each once and in their order. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "host.h"
#include "pace.h"
#include "pacer.h"
#include "report.h"
#include "session.h"

#define LATE_SHARE   4    /* after a quarter of its length more a load that is behind is cut off */
#define MISSED_SHARE 0.01 /* of the rate: more is a load that was not met */
#define LENGTH_MOST  (3600 * NS_PER_S)
#define WARM_UP_NS   (100 * NS_PER_MS)

/* ---- rows -------------------------------------------------------------- */

static const unsigned quantiles[] = {5000, 9900, 9990, 9999, 10000};
#define QUANTILES (sizeof(quantiles) / sizeof(quantiles[0]))

static void print_head(FILE *out) {
    fprintf(out, "%-9s %9s %9s %7s %7s %7s %7s %7s %7s\n", "load", "target", "achieved", "error",
            "p50", "p99", "p99.9", "p99.99", "max");
}

struct row {
    struct pace_target load;
    double target, achieved; /* bytes a second */
    uint64_t planned, made;  /* operations */
    uint64_t eagain, stalls;
    double seconds;
};

/* Below 0: slower. A load is never faster than it is paced, and what the arithmetic leaves of
 * nothing is nothing. */
static double error_of(const struct row *row) {
    double error = row->achieved / row->target - 1;

    return error > -1e-6 ? 0 : error;
}

static void print_row(FILE *out, const struct row *row, const struct histogram *latency) {
    char text[32], load[32] = "";
    double error = 100 * error_of(row);

    if (row->load.percent > 0)
        snprintf(load, sizeof(load), "%g %%", row->load.percent);
    fprintf(out, "%-9s %9s", load, report_rate_text(row->target, text));
    fprintf(out, " %9s %6.2f%%", report_rate_text(row->achieved, text),
            error > -0.005 ? 0 : error); /* and not -0.00 */
    for (size_t i = 0; i < QUANTILES; i++)
        fprintf(out, " %7s",
                report_cell_text((double)histogram_quantile(latency, quantiles[i]), text));
    fputc('\n', out);
    fflush(out);
}

static json_t *row_json(const struct row *row, const struct histogram *latency) {
    return json_pack("{s:o, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:o}", "percent",
                     row->load.percent > 0 ? json_real(row->load.percent) : json_null(),
                     "target_bytes_per_s", row->target, "achieved_bytes_per_s", row->achieved,
                     "error", error_of(row), "ops_planned", (json_int_t)row->planned, "ops",
                     (json_int_t)row->made, "submits_repeated", (json_int_t)row->eagain, "stalls",
                     (json_int_t)row->stalls, "seconds", row->seconds, "latency_ns",
                     report_latency_json(latency));
}

/* Loads that were not met, and of these: that were cut off. */
struct misses {
    unsigned missed, cut;
};

static int stalls_of(const struct pacer *pacer, uint64_t *stalls_out) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    int rc = weir_engine_query(pacer->session->engine, &info);

    if (rc != 0)
        return session_fail(pacer->session, "counters", rc);
    *stalls_out = info.stalls;
    return 0;
}

/* Until the target has taken all messages that were sent. */
static int drain(struct pacer *pacer) {
    struct proto_drained drained;

    if (pacer->op != OP_SEND)
        return 0;
    return session_drain_well(pacer->session, pacer->sent, &drained);
}

/* One load: its row goes to out and rows. */
static int pace_load(struct pacer *pacer, const struct pace_target *load, double unpaced_rate,
                     FILE *out, json_t *rows, struct misses *misses) {
    const struct options *o = pacer->options;
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct row row = {.load = *load};
    uint64_t length, planned_ns, before = 0, after = 0;
    int rc = -1;

    row.target = load->percent > 0 ? unpaced_rate * load->percent / 100 : load->bytes_per_s;
    pacer->pace = pace_plan(o->size, row.target, o->seconds);
    planned_ns = pace_length(&pacer->pace);
    pacer->latency = latency;
    pacer->eagain = 0;
    pacer->cut_ns = planned_ns + planned_ns / LATE_SHARE;
    if (latency == NULL) {
        complain("out of memory");
    } else if ((double)pacer->pace.count * pacer->pace.period_ns > (double)LENGTH_MOST) {
        complain("bench pace: %u operations of %" PRIu64 " bytes take more than an hour at that "
                 "rate",
                 PACE_LEAST, o->size);
    } else if (stalls_of(pacer, &before) == 0 && pacer_run(pacer, host_now_ns(), &length) == 0 &&
               drain(pacer) == 0 && stalls_of(pacer, &after) == 0) {
        row.planned = pacer->pace.count;
        row.made = pacer->landed;
        row.eagain = pacer->eagain;
        row.stalls = after - before;
        length = row.made == row.planned && length < planned_ns ? planned_ns : length;
        row.seconds = (double)length / 1e9;
        row.achieved = (double)(row.made * o->size) / row.seconds;
        misses->missed += error_of(&row) < -MISSED_SHARE;
        misses->cut += row.made < row.planned;
        print_row(out, &row, latency);
        rc = json_array_append_new(rows, row_json(&row, latency)) == 0 ? 0
                                                                       : complain("out of memory");
    }
    free(latency);
    return rc;
}

/* ---- a run ------------------------------------------------------------- */

static struct limit pace_limit(const struct pacer *pacer) {
    const struct options *o = pacer->options;

    return limits_of_copy(COPY_IN_TURN, o->size, o->window * pacer_stride(o), 1,
                          pacer->op == OP_SEND ? MEMORY_SHARED : (enum memory_kind)o->memory, 1);
}

static struct proto_open pace_open(const struct pacer *pacer) {
    const struct options *o = pacer->options;

    if (pacer->op != OP_SEND)
        return pacer_open(o, pacer->op);
    return (struct proto_open){.kind = PROTO_KIND_SEND,
                               .page_bytes = 64,
                               .page_stride = 64,
                               .page_count = 1,
                               .lanes = 1,
                               .seats = 1,
                               .message_bytes = o->size,
                               .waiting = (uint32_t)o->waiting};
}

static int find_inbox(struct pacer *pacer) {
    struct proto_inbox inbox;

    if (pacer->op != OP_SEND)
        return 0;
    if (session_inbox(pacer->session, &inbox) != 0)
        return -1;
    pacer->inbox = inbox.number;
    return 0;
}

/* As many as go, and their row. */
static int measure_unpaced(struct pacer *pacer, struct report *report, struct result *result,
                           double *rate_out) {
    struct proto_marked before, after;
    struct limit limit_after;
    uint64_t cpu;
    double warm;

    progress_begin(&pacer->progress, "unpaced");
    if (pacer_unpaced(pacer, host_now_ns(), WARM_UP_NS, &warm) != 0 || drain(pacer) != 0 ||
        session_mark(pacer->session, &before) != 0)
        return -1;
    cpu = host_cpu_ns();
    if (pacer_unpaced(pacer, host_now_ns(), (uint64_t)(pacer->options->seconds * 1e9), rate_out) !=
        0)
        return -1;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (drain(pacer) != 0 || session_mark(pacer->session, &after) != 0)
        return -1;
    progress_end(&pacer->progress);
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    result->ops = result->transfers = pacer->landed;
    result->bytes = result->ops * pacer->options->size;
    result->seconds = (double)result->bytes / *rate_out;
    result->eagain = pacer->eagain;
    limit_after = pace_limit(pacer);
    limit_raise(&result->limit, &limit_after);
    return report_add(report, result);
}

static int measure_loads(struct pacer *pacer, struct report *report, double rate) {
    struct pace_target targets[PACE_TARGETS_MAX];
    const char *bad;
    json_t *rows = json_array();
    FILE *out = report_out(pacer->options);
    struct misses misses = {0};
    unsigned count = 0;
    int length, rc = 0;

    if (pace_parse(pacer->options->targets, targets, &count, &bad, &length) != NULL)
        rc = complain("bench pace: --targets"); /* they were looked at with the other options */
    fputc('\n', out);
    print_head(out);
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        progress_begin(&pacer->progress, "pace");
        rc = pace_load(pacer, &targets[i], rate, out, rows, &misses);
        progress_end(&pacer->progress);
    }
    if (rc == 0 && misses.missed > 0)
        fprintf(
            out,
            "  %u of %u loads were missed by more than 1 %%; %u, behind by a quarter, cut off\n",
            misses.missed, count, misses.cut);
    if (rc == 0)
        fprintf(out,
                "  latency: from when an operation was due until it was seen to have ended\n\n");
    return report_set(report, "rows", rows) == 0 ? rc : -1;
}

static int pace_run(struct pacer *pacer, struct report *report) {
    const struct options *o = pacer->options;
    struct session *session = pacer->session;
    struct proto_open open = pace_open(pacer);
    static const char *const ops[] = {
        [OP_WRITE] = "one write", [OP_READ] = "one read", [OP_SEND] = "one message"};
    struct result result = {.op = ops[pacer->op]};
    double rate;

    options_size_text(o->size, result.label);
    uint64_t there = pacer->op == OP_SEND ? proto_inbox_bytes(&open) : o->window * pacer_stride(o);

    if (host_check_memory("bench pace", there + o->window * pacer_stride(o)) != 0)
        return -1;
    result.limit = pace_limit(pacer);
    host_pin_bench(o->peer == NULL);
    if (session_start(session, o) != 0 ||
        session_open(session, &open, o->window * pacer_stride(o), SESSION_KEEP) != 0 ||
        session_touch(session) != 0 || pacer_init(pacer) != 0 || find_inbox(pacer) != 0 ||
        measure_unpaced(pacer, report, &result, &rate) != 0 ||
        measure_loads(pacer, report, rate) != 0 || session_close(session) != 0)
        return -1;
    return report_session(report, session);
}

int bench_pace(const struct options *options) {
    struct session session = {.options = options};
    struct pacer pacer = {.session = &session, .options = options, .op = (enum op_kind)options->op};
    struct report report;
    int rc = -1;

    if (report_begin(&report, options) == 0)
        rc = pace_run(&pacer, &report);
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    pacer_free(&pacer);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
