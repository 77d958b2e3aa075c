/* SPDX-License-Identifier: Apache-2.0 */
/* bench_incast.c: `bench incast`: how fast many write to one, and how evenly.
 *
 * First one sender writes to the target alone, then all of them at once; each is a process of its
 * own, with an engine of its own, and writes to memory of its own as fast as it goes. All are
 * connected before the gate opens, and a sender's rate counts from that moment until its last write
 * has ended: a sender that the system starts late, or seldom, is a slow one.
 *
 * With --op send they send messages to one inbox, all of which the target has to have taken after
 * each round, and those of each sender in their order.
 *
 * This process writes nothing. It has a session of its own with the target, whose CPU time it
 * asks for, and watches over the target and the senders. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "crew.h"
#include "host.h"
#include "machine_limits.h"
#include "pacer.h"
#include "report.h"
#include "session.h"

#define LOOK_NS (5 * NS_PER_MS) /* between two looks at the senders */
#define BEAT_NS NS_PER_S        /* a sender that waits makes progress as often as this */

/* A sender's results, in memory that the bench shares with it. */
struct sender {
    _Alignas(128) atomic_uint_fast64_t landed_bytes; /* now and then, meanwhile */
    uint64_t ops, eagain;
    uint64_t cpu_ns;
    double bytes_per_s;
    weir_engine_options asked;
    weir_engine_info counted;
    struct granted granted;
};

/* Shared with the senders. */
struct board {
    atomic_uint_fast64_t go_ns; /* when the gate was opened */
    struct sender senders[OPTIONS_SENDERS_MAX];
};

struct incast {
    const struct options *options;
    const char *address;
    struct board *board;
    struct proto_inbox inbox; /* of messages */
    uint64_t sent;            /* messages, of both rounds so far */
};

static bool sends(const struct incast *incast) {
    return incast->options->op == OP_SEND;
}

/* One place that nobody writes to, and for messages the inbox. */
static struct proto_open target_open(const struct options *o) {
    bool messages = o->op == OP_SEND;

    return (struct proto_open){.kind = messages ? PROTO_KIND_SEND : PROTO_KIND_WRITE,
                               .page_bytes = 64,
                               .page_stride = 64,
                               .page_count = 1,
                               .lanes = 1,
                               .seats = messages ? o->senders + 1 : 0,
                               .message_bytes = messages ? o->size : 0,
                               .waiting = (uint32_t)o->waiting,
                               .crowd = messages};
}

/* ---- a sender ----------------------------------------------------------- */

/* Until the gate is open, which is seen at once. */
static int wait_at(struct session *session, struct crew *crew, enum crew_gate gate) {
    uint64_t timeout_ns;

    while (!crew_is_open(crew, gate)) {
        if (session_look(session) != 0)
            return -1;
        if (weir_engine_arm(session->engine, &timeout_ns) == 0)
            host_sleep_on(crew_gate_fd(crew, gate), weir_engine_fd(session->engine),
                          timeout_ns < BEAT_NS ? timeout_ns : BEAT_NS);
    }
    return 0;
}

static int tell(struct sender *sender, const struct pacer *pacer) {
    struct session *session = pacer->session;
    int rc;

    sender->ops = pacer->landed;
    sender->eagain = pacer->eagain;
    sender->asked = session->asked;
    sender->counted = (weir_engine_info)WEIR_ENGINE_INFO_INIT;
    rc = weir_engine_query(session->engine, &sender->counted);
    if (rc != 0)
        return session_fail(session, "counters", rc);
    return granted_query(session->engine, session->peer, &sender->granted);
}

static int send_all(struct incast *incast, struct crew *crew, unsigned index,
                    struct session *session, struct pacer *pacer) {
    const struct options *o = incast->options;
    struct sender *sender = &incast->board->senders[index];
    struct proto_open open = pacer_open(o, OP_WRITE);
    uint64_t cpu, local = open.page_count * open.page_stride;

    if (sends(incast)) { /* messages have no memory of their own there */
        struct options plain = *o;
        plain.op = OP_WRITE;
        open = target_open(&plain);
    }
    pacer->shown = &sender->landed_bytes;
    pacer->sleeps = o->senders + 1 > host_cpu_count();
    if (session_join(session, o, incast->address) != 0 ||
        session_open(session, &open, local, SESSION_KEEP) != 0 || session_touch(session) != 0 ||
        pacer_init(pacer) != 0)
        return -1;
    crew_reach(crew, index, CREW_READY);
    if (wait_at(session, crew, CREW_GO) != 0)
        return -1;
    cpu = host_cpu_ns();
    if (pacer_unpaced(pacer, atomic_load(&incast->board->go_ns), (uint64_t)(o->seconds * 1e9),
                      &sender->bytes_per_s) != 0)
        return -1;
    sender->cpu_ns = host_cpu_ns() - cpu;
    if (tell(sender, pacer) != 0)
        return -1;
    crew_reach(crew, index, CREW_DONE);
    return wait_at(session, crew, CREW_LEAVE) == 0 ? session_close(session) : -1;
}

static int sender_run(struct crew *crew, unsigned index, void *context) {
    struct incast *incast = context;
    struct session session = {.options = incast->options};
    /* The one alone has a seat of its own: those of the second round count from 0, too. */
    struct pacer pacer = {.session = &session,
                          .options = incast->options,
                          .op = (enum op_kind)incast->options->op,
                          .inbox = incast->inbox.number,
                          .seat = incast->sent == 0 ? incast->options->senders : index};
    int rc = send_all(incast, crew, index, &session, &pacer);

    pacer_free(&pacer);
    session_end(&session);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

/* ---- a round ------------------------------------------------------------ */

static uint64_t landed_bytes(const struct board *board, unsigned count) {
    uint64_t sum = 0;

    for (unsigned i = 0; i < count; i++)
        sum += atomic_load_explicit(&board->senders[i].landed_bytes, memory_order_relaxed);
    return sum;
}

/* Until all senders have come so far. */
static int await(const struct incast *incast, struct session *session, struct crew *crew,
                 enum crew_stage stage, struct progress *progress) {
    double length = incast->options->seconds * 1e9;

    while (!crew_reached(crew, stage)) {
        if (crew_look(crew) != 0 || session_look(session) != 0)
            return -1;
        if (stage == CREW_DONE)
            progress_show(progress, landed_bytes(incast->board, crew->count),
                          (double)(host_now_ns() - progress->started_ns) / length);
        weir_engine_wait(session->engine, LOOK_NS);
    }
    return 0;
}

/* The target takes all messages of the round. */
static int drain(struct incast *incast, struct session *session, unsigned count) {
    struct proto_drained drained;

    for (unsigned i = 0; i < count; i++)
        incast->sent += incast->board->senders[i].ops;
    return session_drain_well(session, incast->sent, &drained);
}

/* So many senders at once. They are left as they are, at the second gate. */
static int measure(struct incast *incast, struct session *session, struct crew *crew,
                   unsigned count, uint64_t *target_cpu_ns_out) {
    struct proto_marked before, after;
    struct progress progress;
    int rc;

    memset(incast->board, 0, sizeof(*incast->board));
    if (crew_start(crew, "sender", count, sender_run, incast) != 0 ||
        await(incast, session, crew, CREW_READY, NULL) != 0 || session_mark(session, &before) != 0)
        return -1;
    progress_begin(&progress, count == 1 ? "one alone" : "together");
    atomic_store(&incast->board->go_ns, host_now_ns());
    crew_open(crew, CREW_GO);
    rc = await(incast, session, crew, CREW_DONE, &progress);
    progress_end(&progress);
    if (rc != 0 || (sends(incast) && drain(incast, session, count) != 0) ||
        session_mark(session, &after) != 0)
        return -1;
    *target_cpu_ns_out = after.cpu_ns - before.cpu_ns;
    crew_open(crew, CREW_LEAVE);
    return 0;
}

static int round_of(struct incast *incast, struct session *session, unsigned count,
                    uint64_t *target_cpu_ns_out) {
    static struct crew crew; /* 2 KiB */
    int rc = measure(incast, session, &crew, count, target_cpu_ns_out);

    if (rc != 0) /* first: a target whose clients are killed remarks on it */
        session_end(session);
    if (crew_end(&crew) != 0)
        return -1;
    return rc;
}

/* ---- what came of it ---------------------------------------------------- */

struct outcome {
    unsigned senders;
    double alone, sum, slowest, fastest; /* bytes a second */
    double fairness;                     /* Jain's index: 1, all are alike, to 1 / senders */
};

static double mean_of(const struct outcome *outcome) {
    return outcome->sum / outcome->senders;
}

static struct outcome outcome_of(const struct board *board, unsigned count, double alone) {
    struct outcome outcome = {.senders = count, .alone = alone};
    double squares = 0;

    for (unsigned i = 0; i < count; i++) {
        double rate = board->senders[i].bytes_per_s;
        outcome.sum += rate;
        squares += rate * rate;
        if (i == 0 || rate < outcome.slowest)
            outcome.slowest = rate;
        if (rate > outcome.fastest)
            outcome.fastest = rate;
    }
    outcome.fairness = outcome.sum * outcome.sum / (count * squares);
    return outcome;
}

/* All senders as one row of a table of benches. */
static void sum_senders(const struct board *board, const struct options *o, double bytes_per_s,
                        struct result *result) {
    for (unsigned i = 0; i < o->senders; i++) {
        const struct sender *sender = &board->senders[i];
        result->ops += sender->ops;
        result->eagain += sender->eagain;
        result->cpu_initiator_ns += sender->cpu_ns;
    }
    result->transfers = result->ops;
    result->bytes = result->ops * o->size;
    result->seconds = (double)result->bytes / bytes_per_s;
}

static int add_counters(struct report *report, const struct board *board, unsigned count) {
    weir_engine_info sum = WEIR_ENGINE_INFO_INIT;

    for (unsigned i = 0; i < count; i++) {
        const weir_engine_info *one = &board->senders[i].counted;
        uint64_t most = one->inflight_bytes_high_water > sum.inflight_bytes_high_water
                            ? one->inflight_bytes_high_water
                            : sum.inflight_bytes_high_water;
#define ADD_COUNTER(name, text) sum.name += one->name;
        WEIR_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
        sum.inflight_bytes_high_water = most; /* of one engine */
    }
    return report_stats(report, &sum);
}

static int add_rows(struct report *report, const struct board *board, unsigned count) {
    json_t *rows = json_array();

    for (unsigned i = 0; i < count; i++) {
        const struct sender *sender = &board->senders[i];
        const struct granted *granted = &sender->granted;
        uint64_t recoveries = granted->count > 0 ? granted->qps[0].recoveries : 0;
        json_array_append_new(
            rows, json_pack("{s:i, s:f, s:I, s:f, s:I, s:I}", "sender", (int)i, "bytes_per_s",
                            sender->bytes_per_s, "ops", (json_int_t)sender->ops, "cpu_ns_per_op",
                            (double)sender->cpu_ns / (double)sender->ops, "submits_repeated",
                            (json_int_t)sender->eagain, "recoveries", (json_int_t)recoveries));
    }
    return report_set(report, "rows", rows);
}

static json_t *outcome_json(const struct outcome *outcome) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "alone_bytes_per_s", outcome->alone,
                     "sum_bytes_per_s", outcome->sum, "slowest_bytes_per_s", outcome->slowest,
                     "fastest_bytes_per_s", outcome->fastest, "slowest_of_mean",
                     outcome->slowest / mean_of(outcome), "fairness", outcome->fairness);
}

static void print_rate(FILE *out, const char *what, double rate, double of) {
    char text[32];

    fprintf(out, "%-11s %9s %8.1f%%\n", what, report_rate_text(rate, text), 100 * rate / of);
}

static void print_outcome(FILE *out, const struct board *board, const struct outcome *outcome) {
    char name[32];

    fprintf(out, "\n%-11s %9s %9s\n", "", "bytes", "of alone");
    print_rate(out, "one alone", outcome->alone, outcome->alone);
    print_rate(out, "sum", outcome->sum, outcome->alone);
    fprintf(out, "\n%-11s %9s %9s\n", "", "bytes", "of mean");
    for (unsigned i = 0; i < outcome->senders; i++) {
        snprintf(name, sizeof(name), "sender %u", i);
        print_rate(out, name, board->senders[i].bytes_per_s, mean_of(outcome));
    }
    print_rate(out, "slowest", outcome->slowest, mean_of(outcome));
    print_rate(out, "fastest", outcome->fastest, mean_of(outcome));
    fprintf(out, "  fairness (Jain's index): %.4f; 1 is even, %.4f one that has all\n\n",
            outcome->fairness, 1.0 / outcome->senders);
}

/* ---- the bench ---------------------------------------------------------- */

static struct limit incast_limit(const struct options *o) {
    unsigned cpus = host_cpu_count();
    unsigned threads = o->senders < cpus ? (unsigned)o->senders : cpus;

    return limits_of_copy(COPY_IN_TURN, o->size, threads * o->window * pacer_stride(o), threads,
                          (enum memory_kind)o->memory, 1);
}

/* Both rounds, between two measurements of the limit. */
static int measure_both(struct incast *incast, struct session *session, struct report *report) {
    const struct options *o = incast->options;
    struct board *board = incast->board;
    struct result result = {.op = sends(incast) ? "one message" : "one write",
                            .initiator = "the senders",
                            .limit = incast_limit(o)};
    struct outcome outcome;
    struct limit after;
    double alone;

    options_size_text(o->size, result.label);
    if (round_of(incast, session, 1, &result.cpu_target_ns) != 0)
        return -1;
    alone = board->senders[0].bytes_per_s;
    if (round_of(incast, session, (unsigned)o->senders, &result.cpu_target_ns) != 0)
        return -1;
    after = incast_limit(o);
    limit_raise(&result.limit, &after);
    outcome = outcome_of(board, (unsigned)o->senders, alone);
    sum_senders(board, o, outcome.sum, &result);
    result.extra = outcome_json(&outcome);
    if (report_add(report, &result) != 0)
        return -1;
    print_outcome(report_out(o), board, &outcome);
    if (add_rows(report, board, outcome.senders) != 0 ||
        add_counters(report, board, outcome.senders) != 0 ||
        report_settings(report, &board->senders[0].asked) != 0)
        return -1;
    return report_grant(report, &board->senders[0].granted);
}

/* Of the senders, the target and this process. */
static uint64_t memory_needed(const struct options *o) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_engine_options asked = WEIR_ENGINE_OPTIONS_INIT;
    uint64_t payload = o->senders * o->window * pacer_stride(o), engine = 0;

    asked.device = o->device;
    if (weir_device_choose(&asked, &device) == 0)
        engine = device.engine_bytes;
    if (o->op == OP_SEND) {
        struct proto_open open = target_open(o);
        return payload + proto_inbox_bytes(&open) + engine;
    }
    return 2 * payload + engine;
}

static int incast_run(struct incast *incast, struct session *session, struct report *report) {
    const struct options *o = incast->options;
    const struct proto_open open = target_open(o);
    uint64_t room = crew_peers(o->device); /* this process is a peer, too */

    if (o->senders >= room)
        return complain("bench incast: the descriptors that a process may have (ulimit -n) are "
                        "enough for %" PRIu64 " senders",
                        room > 0 ? room - 1 : 0);
    if (host_check_memory("bench incast", memory_needed(o)) != 0)
        return -1;
    incast->board = host_share(sizeof(*incast->board));
    if (incast->board == NULL)
        return complain("out of memory");
    if (session_start(session, session->options) != 0 ||
        session_open(session, &open, 64, SESSION_KEEP) != 0 ||
        (sends(incast) && session_inbox(session, &incast->inbox) != 0))
        return -1;
    incast->address = session->address;
    if (measure_both(incast, session, report) != 0)
        return -1;
    return session_close(session);
}

int bench_incast(const struct options *options) {
    struct options own = *options;
    struct session session = {.options = &own};
    struct incast incast = {.options = options};
    struct report report;
    int rc = -1;

    own.sessions = options->senders + 1;
    if (report_begin(&report, options) == 0)
        rc = incast_run(&incast, &session, &report);
    session_end(&session);
    host_unmap(incast.board, sizeof(*incast.board));
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
