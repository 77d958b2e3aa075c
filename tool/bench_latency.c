/* SPDX-License-Identifier: Apache-2.0 */
/* bench_latency.c: `bench write --latency`: 8 bytes there and 8 bytes back, one at a time. Half of
 * each round trip is reported, as one-way latency is everywhere. A round trip is from one submit to
 * the next: the clock is read while the bytes are under way, and costs nothing.
 *
 * notify: the write carries a notification; either side acts on that. memory: no notification,
 * either side polls the word itself, as ucx_perftest's put latency does. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "host.h"
#include "report.h"
#include "session.h"

#define WARM_UP 1000
#define SPINS   64 /* looks at the word before the session's housekeeping */

struct ping {
    struct session *session;
    struct histogram *latency;
    struct idler idler;
    struct patience patience;
    weir_segment segment;
    weir_transfer_options notify;
    const weir_transfer_options *options; /* &notify, or none */
    uint64_t *answer;                     /* our word, written by the target */
    uint64_t *word;                       /* what we send */
};

/* A pass without the answer. -1: it will not come. */
static int ping_idle(struct ping *ping) {
    host_idle(&ping->idler);
    return session_patience(ping->session, &ping->patience, *ping->word, (weir_transfer){0});
}

/* Submits the write, again and again while there is no room. It may still wait in the engine when
 * this returns. */
static int ping_send(struct ping *ping) {
    struct session *session = ping->session;
    weir_transfer transfer;
    int rc;

    ++*ping->word;
    while ((rc = weir_write(session->engine, session->peer, &ping->segment, 1, ping->options,
                            &transfer)) == WEIR_EAGAIN) {
        if (session_look(session) != 0)
            return -1;
        weir_engine_progress(session->engine);
        if (ping_idle(ping) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(session, "ping", rc);
    if (transfer.id != 0)
        weir_transfer_release(session->engine, transfer);
    return 0;
}

static int await_notify(struct ping *ping) {
    bool alone = host_cpu_count() < 2;
    weir_notification message;
    int got;

    do {
        got = session_poll(ping->session, &message);
        if (got < 0)
            return -1;
        if (got == 0 && ping_idle(ping) != 0)
            return -1;
        if (got == 0 && alone) /* the answer's sender needs our CPU */
            weir_engine_wait(ping->session->engine, NS_PER_MS);
    } while (got == 0 || proto_type(message.tag) != PROTO_PONG);
    return 0;
}

static int await_memory(struct ping *ping) {
    uint64_t want = *ping->word;

    for (;;) {
        for (unsigned i = 0; i < SPINS; i++) {
            if (__atomic_load_n(ping->answer, __ATOMIC_ACQUIRE) == want)
                return 0;
            host_relax();
        }
        weir_engine_progress(ping->session->engine);
        if (ping_idle(ping) != 0 || session_look(ping->session) != 0)
            return -1;
    }
}

static int ping_run(struct ping *ping, struct result *result) {
    const struct options *o = ping->session->options;
    int (*await)(struct ping *) = o->latency == LATENCY_MEMORY ? await_memory : await_notify;
    struct progress progress;
    uint64_t start, now, length = (uint64_t)(o->seconds * 1e9);

    for (unsigned i = 0; i < WARM_UP; i++) {
        if (ping_send(ping) != 0 || await(ping) != 0)
            return -1;
    }
    progress_begin(&progress, "latency");
    if (ping_send(ping) != 0)
        return -1;
    start = now = host_now_ns();
    while (now - start < length) {
        uint64_t before = now;
        if (await(ping) != 0 || ping_send(ping) != 0)
            return -1;
        now = host_now_ns();
        histogram_add(ping->latency, (now - before) / 2);
        result->ops++;
        progress_show(&progress, result->ops * 16, (double)(now - start) / (double)length);
    }
    progress_end(&progress);
    if (await(ping) != 0)
        return -1;
    result->seconds = (double)(now - start) / 1e9;
    result->transfers = result->ops;
    result->bytes = result->ops * 16;
    return 0;
}

static int ping_measure(struct ping *ping, struct result *result) {
    struct session *session = ping->session;
    struct proto_marked before, after;
    uint64_t cpu;

    ping->segment = (weir_segment){
        .local = session->memory, .remote = session->remote, .local_offset = 1024, .length = 8};
    ping->answer = session->base;
    ping->word = (uint64_t *)session->base + 128;
    ping->notify = (weir_transfer_options)WEIR_TRANSFER_OPTIONS_INIT;
    ping->notify.flags = WEIR_TRANSFER_NOTIFY;
    ping->notify.notify_tag = proto_tag(PROTO_PING, 0);
    ping->options = session->options->latency == LATENCY_NOTIFY ? &ping->notify : NULL;
    if (session_mark(session, &before) != 0)
        return -1;
    cpu = host_cpu_ns();
    if (ping_run(ping, result) != 0)
        return -1;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (session_mark(session, &after) != 0)
        return -1;
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    return session_close(session);
}

static int latency_run(struct session *session, struct report *report, struct result *result) {
    const struct options *o = session->options;
    struct proto_open open = {.kind = o->latency == LATENCY_MEMORY ? PROTO_KIND_PING_MEMORY
                                                                   : PROTO_KIND_PING,
                              .page_bytes = 4096,
                              .page_stride = 4096,
                              .page_count = 1,
                              .lanes = 1};
    struct ping ping = {.session = session, .latency = result->latency};
    struct limit after;

    result->limit = limits_of_latency();
    host_pin_bench(o->peer == NULL);
    if (session_start(session, o) != 0 || session_open(session, &open, 4096, SESSION_EXPORT) != 0 ||
        ping_measure(&ping, result) != 0)
        return -1;
    after = limits_of_latency();
    limit_raise(&result->limit, &after);
    if (report_add(report, result) != 0)
        return -1;
    return report_session(report, session);
}

int bench_latency(const struct options *options) {
    struct session session = {.options = options};
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct result result = {.op = "one round trip", .latency = latency, .label = "ping"};
    struct report report;
    int rc = -1;

    result.latency_of = options->latency == LATENCY_MEMORY
                            ? "half a round trip, submit to submit, both sides poll the word"
                            : "half a round trip, submit to submit, a notification each way";
    if (report_begin(&report, options) == 0 && latency != NULL)
        rc = latency_run(&session, &report, &result);
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    free(latency);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
