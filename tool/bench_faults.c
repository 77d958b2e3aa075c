/* SPDX-License-Identifier: Apache-2.0 */
/* bench_faults.c: `bench faults`: what faults do to a stream of writes.
 *
 * The stream (flow.h) goes to a target of our own, and every byte of it is compared there. After a
 * while without one, each fault comes in its turn, and goes:
 *   - a QP error here: we write to a page of the target that refuses it (lent.h), and the QP that
 *     carried the write is broken from our side (on efa nothing is, and the write fails alone);
 *   - one there: the target writes to such a page of ours;
 *   - the target is killed, and started again at the same address, where memory is asked for anew;
 *   - the target is stopped, and continued.
 * A fault is over when its own transfer has ended and a new session is up, when the new target has
 * given memory, when the stopped one goes on. Then the stream goes on until its rate is back, and
 * is held until all is compared: what is lost is known before the next fault. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "flow.h"
#include "host.h"
#include "lent.h"
#include "report.h"
#include "session.h"
#include "timeline.h"

#define WHAT       "bench faults"
#define STOPPED_NS NS_PER_S
#define BACK_NS    (10 * NS_PER_S) /* a rate that is not back by then is said not to be */
#define UP_NS      (30 * NS_PER_S)
#define WORD_BYTES 8
#define COLUMNS    76

enum fault_kind { FAULT_HERE = 0, FAULT_THERE, FAULT_KILLED, FAULT_STOPPED, FAULT_KINDS };

struct fault {
    struct flow_counts counts;
    struct outage outage;
    uint64_t before;  /* median of the steps before it */
    uint64_t back_ns; /* UINT64_MAX: it was not back in BACK_NS */
    uint64_t replays;
    uint64_t broken;     /* sessions */
    int status;          /* of the transfer that broke a QP; 0: there was none */
    uint64_t restart_ns; /* until the new target said its address; 0: it was not killed */
};

struct faults {
    struct session session;
    struct flow flow;
    struct flow_counts calm; /* before the first fault */
    struct fault faults[FAULT_KINDS];
    weir_remote lent; /* by the target */
    struct lent page; /* that is lent to it */
    uint64_t target_cpu_ns;
    struct progress progress;
};

/* ---- the acts ----------------------------------------------------------- */

static int counters(struct faults *run, weir_engine_info *info_out) {
    int rc = weir_engine_query(run->session.engine, info_out);

    return rc == 0 ? 0 : session_fail(&run->session, WHAT, rc);
}

/* Until one session more than these counters have is up. */
static int await_up(struct faults *run, const weir_engine_info *before) {
    weir_engine_info now = WEIR_ENGINE_INFO_INIT;
    uint64_t until = flow_now(&run->flow) + UP_NS;

    do {
        if (flow_pass(&run->flow) != 0 || counters(run, &now) != 0)
            return -1;
        if (flow_now(&run->flow) >= until)
            return session_fail(&run->session, "no session in place of the one that broke",
                                WEIR_ETIMEDOUT);
    } while (now.sessions_up == before->sessions_up);
    return 0;
}

/* The target lends a page, which it then refuses. Here it is known still. */
static int prepare_here(struct faults *run) {
    struct flow *flow = &run->flow;
    int rc;

    if (flow_ask(flow, PROTO_LEND, PROTO_LENT) != 0)
        return -1;
    rc = weir_memory_import(run->session.engine, run->session.peer, flow->answer.payload,
                            flow->answer.length, &run->lent);
    if (rc != 0)
        return session_fail(&run->session, "the page that the target lends", rc);
    return flow_ask(flow, PROTO_RECALL, PROTO_RECALLED);
}

static int break_here(struct faults *run, struct fault *fault) {
    struct session *session = &run->session;
    weir_segment word = {.local = session->memory, .remote = run->lent, .length = WORD_BYTES};
    weir_transfer transfer;
    int rc;

    while ((rc = weir_write(session->engine, session->peer, &word, 1, NULL, &transfer)) ==
           WEIR_EAGAIN) {
        if (flow_pass(&run->flow) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(session, WHAT, rc);
    while ((fault->status = weir_transfer_status(session->engine, transfer)) == WEIR_EINPROGRESS) {
        if (flow_pass(&run->flow) != 0)
            return -1;
    }
    if (transfer.id != 0)
        weir_transfer_release(session->engine, transfer);
    rc = weir_remote_release(session->engine, run->lent);
    return rc == 0 ? 0 : session_fail(session, WHAT, rc);
}

/* The same with the sides changed. */
static int prepare_there(struct faults *run) {
    struct session *session = &run->session;
    int rc = lent_open(session->engine, session->options->device, &run->page);

    if (rc != 0)
        return session_fail(session, "the page that is lent to the target", rc);
    if (session_send_export(session, run->page.memory) != 0 ||
        flow_await(&run->flow, PROTO_EXPORTED) != 0)
        return -1;
    rc = -(int)(proto_argument(run->flow.answer.tag) & 0xffff);
    if (rc == 0)
        rc = lent_refuse(session->engine, &run->page);
    return rc == 0 ? 0 : session_fail(session, "the page that is lent to the target", rc);
}

static int break_there(struct faults *run, struct fault *fault) {
    int rc;

    if (flow_ask(&run->flow, PROTO_STRIKE, PROTO_STRUCK) != 0)
        return -1;
    fault->status = -(int)(proto_argument(run->flow.answer.tag) & 0xffff);
    while ((rc = lent_close(run->session.engine, &run->page)) == WEIR_EBUSY) {
        if (flow_pass(&run->flow) != 0)
            return -1;
    }
    return rc == 0 ? 0 : session_fail(&run->session, "the page that was lent to the target", rc);
}

/* Whether the refusal was of the write alone, as on a device where a WR that fails breaks nothing.
 */
static bool broke_nothing(const struct fault *fault, const weir_engine_info *before,
                          const weir_engine_info *now) {
    return fault->status == WEIR_EREMOTE && now->sessions_failed == before->sessions_failed &&
           now->sessions_up == before->sessions_up;
}

/* A QP error by a write that breaks it. */
static int act_broken(struct faults *run, struct fault *fault,
                      int (*make)(struct faults *run, struct fault *fault)) {
    weir_engine_info before = WEIR_ENGINE_INFO_INIT, now = WEIR_ENGINE_INFO_INIT;

    if (counters(run, &before) != 0 || make(run, fault) != 0 || counters(run, &now) != 0)
        return -1;
    if (fault->status == 0)
        return complain(WHAT ": a write to a page that refuses went well");
    return broke_nothing(fault, &before, &now) ? 0 : await_up(run, &before);
}

static int act_here(struct faults *run, struct fault *fault) {
    return act_broken(run, fault, break_here);
}

static int act_there(struct faults *run, struct fault *fault) {
    return act_broken(run, fault, break_there);
}

static int act_killed(struct faults *run, struct fault *fault) {
    struct session *session = &run->session;
    struct flow *flow = &run->flow;
    uint64_t killed_ns = flow_now(flow);

    flow->held = true;
    run->target_cpu_ns += host_cpu_ns_of(session->pid);
    session_kill(session);
    if (session_restart(session) != 0)
        return -1;
    fault->restart_ns = flow_now(flow) - killed_ns;
    if (flow_settle(flow) != 0)
        return -1;
    flow_forget(flow);
    if (session_reopen(session) != 0)
        return -1;
    flow->held = false;
    return 0;
}

static int act_stopped(struct faults *run, struct fault *fault) {
    int rc;

    (void)fault;
    kill(run->session.pid, SIGSTOP);
    rc = flow_for(&run->flow, STOPPED_NS);
    kill(run->session.pid, SIGCONT);
    return rc;
}

static const struct {
    const char *name;
    const char *words;
    int (*prepare)(struct faults *run); /* NULL: nothing */
    int (*act)(struct faults *run, struct fault *fault);
} kinds[FAULT_KINDS] = {
    [FAULT_HERE] = {"qp_error_here", "QP error here", prepare_here, act_here},
    [FAULT_THERE] = {"qp_error_there", "QP error at the target", prepare_there, act_there},
    [FAULT_KILLED] = {"target_killed", "target killed, restarted", NULL, act_killed},
    [FAULT_STOPPED] = {"target_stopped", "target stopped for 1 s", NULL, act_stopped},
};

/* ---- a run -------------------------------------------------------------- */

static int await_back(struct faults *run, struct fault *fault) {
    struct flow *flow = &run->flow;
    uint64_t until = flow_now(flow) + BACK_NS;

    do {
        if (flow_pass(flow) != 0)
            return -1;
        fault->back_ns = timeline_back(&flow->timeline, &flow->outage, fault->before);
    } while (flow_now(flow) < until &&
             (!flow->outage.closed || (fault->back_ns == UINT64_MAX && fault->before > 0)));
    return 0;
}

static int run_fault(struct faults *run, enum fault_kind kind) {
    struct fault *fault = &run->faults[kind];
    struct flow *flow = &run->flow;
    weir_engine_info before = WEIR_ENGINE_INFO_INIT, after = WEIR_ENGINE_INFO_INIT;
    uint64_t calm_ns = flow_now(flow), at_ns;

    if (flow_for(flow, (uint64_t)(run->session.options->seconds * 1e9)) != 0 ||
        (kinds[kind].prepare != NULL && kinds[kind].prepare(run) != 0) ||
        counters(run, &before) != 0)
        return -1;
    at_ns = flow_now(flow);
    if (timeline_median(&flow->timeline, calm_ns, at_ns, &fault->before) != 0)
        return complain("out of memory");
    flow->counts = &fault->counts;
    outage_begin(&flow->outage, at_ns);
    if (kinds[kind].act(run, fault) != 0)
        return -1;
    outage_over(&flow->outage);
    if (await_back(run, fault) != 0 || flow_drain(flow) != 0 || counters(run, &after) != 0)
        return -1;
    fault->outage = flow->outage;
    fault->replays = after.replays - before.replays;
    fault->broken = after.sessions_failed - before.sessions_failed;
    progress_show(&run->progress, after.bytes_written, (double)(kind + 1) / FAULT_KINDS);
    return 0;
}

static void add_counts(struct result *result, const struct flow_counts *counts) {
    result->ops += counts->writes;
    result->checked_bytes += counts->checked_bytes;
    result->wrong_bytes += counts->wrong_bytes;
}

static int run_all(struct faults *run, struct result *result) {
    struct flow *flow = &run->flow;
    uint64_t cpu = host_cpu_ns(), target_cpu = host_cpu_ns_of(run->session.pid);

    progress_begin(&run->progress, "faults");
    for (enum fault_kind kind = 0; kind < FAULT_KINDS; kind++) {
        if (run_fault(run, kind) != 0)
            return -1;
    }
    if (flow_for(flow, (uint64_t)(run->session.options->seconds * 1e9)) != 0 ||
        flow_drain(flow) != 0)
        return -1;
    progress_end(&run->progress);
    result->seconds = (double)flow_now(flow) / 1e9;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    result->cpu_target_ns = run->target_cpu_ns + host_cpu_ns_of(run->session.pid) - target_cpu;
    add_counts(result, &run->calm);
    for (enum fault_kind kind = 0; kind < FAULT_KINDS; kind++)
        add_counts(result, &run->faults[kind].counts);
    result->transfers = result->ops;
    result->bytes = result->ops * run->session.options->size;
    result->eagain = flow->eagain;
    return 0;
}

/* ---- the report --------------------------------------------------------- */

static double ms(uint64_t ns) {
    return (double)ns / (double)NS_PER_MS;
}

static json_t *statuses_json(const struct flow_counts *counts) {
    json_t *object = json_object();

    for (int i = 0; i < FLOW_STATUSES; i++) {
        if (counts->statuses[i] != 0)
            json_object_set_new(object, weir_error_name(-i),
                                json_integer((json_int_t)counts->statuses[i]));
    }
    return object;
}

static json_t *fault_json(enum fault_kind kind, const struct fault *fault, uint64_t step_ns) {
    const struct flow_counts *counts = &fault->counts;
    double per_s = (double)NS_PER_S / (double)step_ns;
    json_t *object = json_pack(
        "{s:s, s:f, s:f, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "name",
        kinds[kind].name, "at_ms", ms(fault->outage.at_ns), "gap_ms", ms(fault->outage.gap_ns),
        "recovered_ms", fault->back_ns != UINT64_MAX ? json_real(ms(fault->back_ns)) : json_null(),
        "before_bytes_per_s", (double)fault->before * per_s, "replays", (json_int_t)fault->replays,
        "sessions_broken", (json_int_t)fault->broken, "writes", (json_int_t)counts->writes, "lost",
        (json_int_t)counts->lost, "wrong_bytes", (json_int_t)counts->wrong_bytes, "repeated",
        (json_int_t)counts->twice, "ended", (json_int_t)counts->ended, "unanswered",
        (json_int_t)counts->unanswered, "ended_as", statuses_json(counts));

    if (object == NULL)
        return NULL;
    json_object_set_new(object, "fault_status",
                        fault->status != 0 ? json_string(weir_error_name(fault->status))
                                           : json_null());
    json_object_set_new(object, "restart_ms",
                        fault->restart_ns != 0 ? json_real(ms(fault->restart_ns)) : json_null());
    return object;
}

static int report_faults(struct faults *run, struct report *report) {
    const struct timeline *timeline = &run->flow.timeline;
    json_t *steps = json_array(), *faults = json_array();
    int rc = 0;

    for (uint64_t i = 0; i < timeline->count; i++)
        rc |= json_array_append_new(steps, json_integer((json_int_t)timeline->steps[i]));
    for (enum fault_kind kind = 0; kind < FAULT_KINDS; kind++)
        rc |=
            json_array_append_new(faults, fault_json(kind, &run->faults[kind], timeline->step_ns));
    rc |= report_set(report, "step_ms", json_integer((json_int_t)run->session.options->step));
    rc |= report_set(report, "timeline", steps);
    rc |= report_set(report, "faults", faults);
    return rc == 0 ? 0 : complain("out of memory");
}

static void print_faults(const struct faults *run, FILE *out) {
    const struct flow_counts *killed = &run->faults[FAULT_KILLED].counts;
    char text[32];

    fprintf(out, "\n%-24s %7s %7s %7s %8s %6s %6s %5s\n", "fault", "at", "gap", "back", "replays",
            "broken", "ended", "lost");
    for (enum fault_kind kind = 0; kind < FAULT_KINDS; kind++) {
        const struct fault *fault = &run->faults[kind];
        fprintf(out, "%-24s", kinds[kind].words);
        fprintf(out, " %7s", report_cell_text((double)fault->outage.at_ns, text));
        fprintf(out, " %7s", report_cell_text((double)fault->outage.gap_ns, text));
        fprintf(out, " %7s",
                fault->back_ns != UINT64_MAX ? report_cell_text((double)fault->back_ns, text)
                                             : "-");
        fprintf(out, " %8" PRIu64 " %6" PRIu64 " %6" PRIu64 " %5" PRIu64 "\n", fault->replays,
                fault->broken, fault->counts.ended, fault->counts.lost);
    }
    fprintf(out, "  gap: the longest time without a completion; of the kill, %s was the start\n",
            report_cell_text((double)run->faults[FAULT_KILLED].restart_ns, text));
    fprintf(out, "  back: until %d %% of the rate before, in a step of %" PRIu64 " ms\n",
            TIMELINE_BACK, run->session.options->step);
    fprintf(out, "  broken: sessions; ended: writes under way to the target that was killed\n");
    if (killed->unanswered > 0)
        fprintf(out, "  %" PRIu64 " more had arrived there, and were not compared any more\n",
                killed->unanswered);
}

static enum timeline_letters letters(void) {
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool utf8 = locale != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;

    if (locale != (locale_t)0)
        freelocale(locale);
    return utf8 ? TIMELINE_BLOCKS : TIMELINE_ASCII;
}

static void print_timeline(const struct faults *run, FILE *out) {
    const struct timeline *timeline = &run->flow.timeline;
    char line[3 * COLUMNS + 1], marks[COLUMNS + 1];
    unsigned columns = timeline_draw(timeline, COLUMNS, letters(), line), last = 0;

    memset(marks, ' ', sizeof(marks));
    /* Faults of one column, where one of them took that long, have their marks side by side. */
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
        unsigned at = timeline_column(timeline, COLUMNS, run->faults[kind].outage.at_ns);
        unsigned most = COLUMNS - FAULT_KINDS + kind;
        at = kind > 0 && at <= last ? last + 1 : at;
        last = at < most ? at : most;
        marks[last] = (char)('1' + kind);
    }
    fprintf(out, "\n  %s\n  %.*s\n", line, (int)last + 1, marks);
    fprintf(out, "  bytes completed over %.1f s, %.0f ms a column; 1 to %d: the faults\n\n",
            (double)(timeline->count * timeline->step_ns) / 1e9,
            ms(timeline->count * timeline->step_ns) / columns, FAULT_KINDS);
}

/* Fails a run in which a write was lost, or a notification came twice. */
static int judge(const struct faults *run) {
    uint64_t lost = run->calm.lost, twice = run->calm.twice;

    for (enum fault_kind kind = 0; kind < FAULT_KINDS; kind++) {
        lost += run->faults[kind].counts.lost;
        twice += run->faults[kind].counts.twice;
    }
    if (lost > 0)
        return complain(WHAT ": %" PRIu64 " writes that ended with success were lost", lost);
    if (twice > 0)
        return complain(WHAT ": %" PRIu64 " notifications came again", twice);
    return 0;
}

static int faults_run(struct faults *run, struct report *report) {
    const struct options *o = run->session.options;
    struct session *session = &run->session;
    struct proto_open open = {.kind = PROTO_KIND_FAULTS,
                              .page_bytes = o->size,
                              .page_stride = run->flow.stride,
                              .page_count = o->window,
                              .lanes = o->window,
                              .seed = FLOW_SEED};
    struct result result = {.op = "one write, with a notification",
                            .latency = run->flow.latency,
                            .latency_of = "of a write, submit to done"};

    options_size_text(o->size, result.label);
    if (host_check_memory(WHAT, 2 * o->window * run->flow.stride) != 0)
        return -1;
    host_pin_bench(true);
    if (session_start(session, o) != 0 ||
        session_open(session, &open, o->window * run->flow.stride, SESSION_KEEP) != 0 ||
        session_touch(session) != 0 || flow_begin(&run->flow, o->step * NS_PER_MS) != 0 ||
        run_all(run, &result) != 0 || session_close(session) != 0 ||
        report_add(report, &result) != 0)
        return -1;
    print_faults(run, report_out(o));
    print_timeline(run, report_out(o));
    return report_faults(run, report) != 0 ? -1 : report_session(report, session);
}

int bench_faults(const struct options *options) {
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct faults *run = calloc(1, sizeof(*run));
    struct report report;
    int rc = -1;

    if (report_begin(&report, options) != 0) {
        free(run);
        free(latency);
        return EXIT_FAILED;
    }
    if (run == NULL || latency == NULL) {
        complain("out of memory");
    } else {
        run->session.options = options;
        run->flow = (struct flow){.session = &run->session,
                                  .counts = &run->calm,
                                  .stride = (options->size + 63) & ~UINT64_C(63),
                                  .latency = latency};
        rc = faults_run(run, &report);
        session_end(&run->session);
        if (rc == 0)
            rc = report_end(&report);
        if (rc == 0)
            rc = judge(run);
        flow_free(&run->flow);
    }
    report_free(&report);
    free(run);
    free(latency);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
