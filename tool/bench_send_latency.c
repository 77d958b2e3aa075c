/* SPDX-License-Identifier: Apache-2.0 */
/* bench_send_latency.c: `bench send --latency`: a message there and a message back, one at a time.
 * Half of each round trip is reported, as one-way latency is everywhere. A round trip is from one
 * send to the next: the clock is read while the bytes are under way, and costs nothing.
 *
 * Either side has an inbox, and acts on a message when it has taken it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "host.h"
#include "report.h"
#include "session.h"

/* Round trips before those that count: so many, or for so long, whichever ends first. */
#define WARM_UP    1000
#define WARM_UP_NS UINT64_C(100000000)
#define OURS       1 /* the number of this engine's inbox: it has no other */
#define LINE       64

struct ping {
    struct session *session;
    struct histogram *latency;
    struct idler idler;
    struct patience patience;
    uint32_t theirs; /* the number of the target's inbox */
    weir_inbox inbox;
    weir_part part;
    uint64_t size;
    uint64_t sent;
    bool alone; /* there is one CPU: the answer's sender needs it */
};

/* A pass without the answer. -1: it will not come. */
static int ping_idle(struct ping *ping) {
    struct session *session = ping->session;
    weir_notification message;

    (void)session_take(session, &message); /* that the session has ended is one */
    host_idle(&ping->idler);
    if (ping->alone)
        weir_engine_wait(session->engine, NS_PER_MS);
    if (session_look(session) != 0)
        return -1;
    return session_patience(session, &ping->patience, ping->sent, (weir_transfer){0});
}

/* With --loan, in a loan. */
static int ping_post(struct ping *ping, const weir_transfer_options *options,
                     weir_transfer *transfer_out) {
    const struct session *session = ping->session;
    weir_loan loan;
    int rc;

    if (session->options->loan == 0)
        return weir_message_send(session->engine, session->peer, ping->theirs, &ping->part, 1,
                                 options, transfer_out);
    rc = weir_message_loan(session->engine, session->peer, ping->theirs, ping->size, &loan);
    if (rc != 0)
        return rc;
    rc = weir_loan_send(session->engine, &loan, options, transfer_out);
    if (rc != 0)
        weir_loan_return(session->engine, &loan);
    return rc;
}

/* Sends the message, again and again while there is no room. It may still wait in the engine when
 * this returns; its bytes do not change. */
static int ping_send(struct ping *ping) {
    struct session *session = ping->session;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    int rc;

    options.notify_tag = proto_message_tag(0, ping->sent);
    while ((rc = ping_post(ping, &options, &transfer)) == WEIR_EAGAIN) {
        weir_engine_progress(session->engine);
        if (ping_idle(ping) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(session, "ping", rc);
    if (transfer.id != 0)
        weir_transfer_release(session->engine, transfer);
    ping->sent++;
    return 0;
}

/* The answer to what was sent last. */
static int ping_await(struct ping *ping) {
    weir_engine *engine = ping->session->engine;
    weir_message message;
    int rc;

    while ((rc = weir_message_take(engine, ping->inbox, &message)) == WEIR_EAGAIN) {
        if (weir_engine_progress(engine) <= 0 && ping_idle(ping) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(ping->session, "pong", rc);
    if (message.tag != proto_message_tag(0, ping->sent - 1) || message.length != ping->size)
        return complain("the target's answer has another tag, or another length");
    rc = weir_message_give_back(engine, &message);
    return rc == 0 ? 0 : session_fail(ping->session, "pong", rc);
}

static int ping_run(struct ping *ping, struct result *result) {
    const struct options *o = ping->session->options;
    struct progress progress;
    uint64_t start, now, length = (uint64_t)(o->seconds * 1e9);

    progress_begin(&progress, "latency");
    if (ping_send(ping) != 0)
        return -1;
    start = now = host_now_ns();
    while (now - start < length) {
        uint64_t before = now;
        if (ping_await(ping) != 0 || ping_send(ping) != 0)
            return -1;
        now = host_now_ns();
        histogram_add(ping->latency, (now - before) / 2);
        result->ops++;
        progress_show(&progress, result->ops * 2 * ping->size,
                      (double)(now - start) / (double)length);
    }
    progress_end(&progress);
    if (ping_await(ping) != 0)
        return -1;
    result->seconds = (double)(now - start) / 1e9;
    result->transfers = result->ops;
    result->bytes = result->ops * 2 * ping->size;
    return 0;
}

/* All that was sent came once, and in its order. */
static int ping_drained(struct ping *ping) {
    struct proto_drained drained;

    if (session_drain(ping->session, ping->sent, &drained) != 0)
        return -1;
    return drained.misplaced == 0 && drained.taken == ping->sent
               ? 0
               : complain("%" PRIu64 " of %" PRIu64 " messages were not those that were due",
                          drained.misplaced, drained.taken);
}

static int ping_measure(struct ping *ping, struct result *result) {
    struct session *session = ping->session;
    struct proto_marked before, after;
    struct proto_inbox inbox;
    uint64_t cpu, start;

    if (ping->size > WEIR_MESSAGE_COPY_MAX)
        ping->part.local = session->memory;
    else
        ping->part.base = session->base;
    ping->part.length = ping->size;
    if (session_inbox(session, &inbox) != 0)
        return -1;
    ping->theirs = inbox.number;
    start = host_now_ns();
    for (unsigned i = 0; i < WARM_UP && host_now_ns() - start < WARM_UP_NS; i++) {
        if (ping_send(ping) != 0 || ping_await(ping) != 0)
            return -1;
    }
    if (session_mark(session, &before) != 0)
        return -1;
    cpu = host_cpu_ns();
    if (ping_run(ping, result) != 0)
        return -1;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (session_mark(session, &after) != 0 || ping_drained(ping) != 0)
        return -1;
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    return session_close(session);
}

static int open_inbox(struct ping *ping) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    int rc;

    options.number = OURS;
    options.message_bytes_max = ping->size;
    options.messages = 1; /* there is one sender */
    rc = weir_inbox_open(ping->session->engine, &options, &ping->inbox);
    return rc == 0 ? 0 : session_fail(ping->session, "inbox", rc);
}

static int latency_run(struct ping *ping, struct report *report, struct result *result) {
    struct session *session = ping->session;
    const struct options *o = session->options;
    uint64_t local = ping->size == 0 ? LINE : ping->size;
    struct proto_open open = {.kind = o->loan != 0 ? PROTO_KIND_LOAN_PING : PROTO_KIND_SEND_PING,
                              .page_bytes = LINE,
                              .page_stride = LINE,
                              .page_count = 1,
                              .lanes = 1,
                              .seats = 1,
                              .message_bytes = ping->size,
                              .answers = OURS};
    struct limit after;

    if (host_check_memory("bench send", 2 * (proto_inbox_bytes(&open) + local)) != 0)
        return -1;
    result->limit = limits_of_latency();
    host_pin_bench(o->peer == NULL);
    if (session_start(session, o) != 0 || open_inbox(ping) != 0 ||
        session_open(session, &open, local, SESSION_KEEP) != 0 || ping_measure(ping, result) != 0)
        return -1;
    after = limits_of_latency();
    limit_raise(&result->limit, &after);
    result->extra = json_pack("{s:I}", "size", (json_int_t)ping->size);
    if (report_add(report, result) != 0)
        return -1;
    return report_session(report, session);
}

int bench_send_latency(const struct options *options) {
    struct session session = {.options = options};
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct result result = {.op = "one round trip", .latency = latency, .label = "ping"};
    struct ping ping = {.session = &session,
                        .latency = latency,
                        .size = options->size,
                        .alone = host_cpu_count() < 2};
    struct report report;
    int rc = -1;

    result.latency_of = "half a round trip, send to send, a message each way";
    if (report_begin(&report, options) == 0 && latency != NULL)
        rc = latency_run(&ping, &report, &result);
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    free(latency);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
