/* SPDX-License-Identifier: Apache-2.0 */
/* bench_replay.c: `bench replay`: the KV-cache blocks of a request trace, from the process that
 * computed them (prefill, here) to the one that will decode with them (the target).
 *
 * The life of a request, on one of `window` seats (proto.h has the messages):
 *   ASKING     its ids are written to the target, which grants a page for each block
 *   WAITING    pages are granted; here as many source pages are needed
 *   SENDING    its blocks are made in source pages, and written one-sided into the granted
 *              pages, all in one transfer with a notification
 *   CHECKING   the target compares every byte with what the id stands for
 * Every block is made anew, also one that was sent before: the source pool is a ring, so that
 * the bytes that are sent are not those that the caches still hold.
 *
 * Two clocks never meet: latency is from arrival (or, at full speed, from taking a seat) to the
 * target's answer, both here; the notified latency is that less the time that the target says
 * the check took. Requests are taken in the order of the trace; the pools are handed out first
 * come, first served on both sides, so none starves. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "content.h"
#include "host.h"
#include "report.h"
#include "session.h"
#include "trace.h"

#define REPLAY_SEED 0x7765697200000004u
#define LIST_ENTRY  8
#define STUCK_NS    (30 * NS_PER_S)

enum seat_state { SEAT_FREE = 0, SEAT_ASKING, SEAT_WAITING, SEAT_SENDING, SEAT_CHECKING };

struct seat {
    enum seat_state state;
    uint64_t request;
    uint64_t from_ns;       /* arrival, or taken */
    uint64_t pages_first;   /* first source page, modulo the pool */
    weir_transfer transfer; /* id 0: none */
    bool checked;           /* the answer came before the transfer was looked at */
};

struct replay {
    struct session *session;
    const struct options *options;
    struct trace trace;
    struct result *result;
    struct histogram *notified;
    struct seat *seats;
    uint32_t *waiting; /* ring of seats in the order of their grants */
    uint64_t waiting_first;
    uint64_t waiting_count;
    weir_segment *segments;
    uint64_t block_bytes;
    uint64_t stride;
    uint64_t pool_pages;
    uint64_t pages_head; /* source pages [head, head + used) are taken, modulo the pool */
    uint64_t pages_used;
    uint64_t oldest; /* place in `taken` of the request that took its pages first */
    uint32_t *taken; /* ring of seats that hold source pages */
    uint64_t taken_count;
    uint64_t next; /* request */
    uint64_t done;
    uint64_t start_ns;
    uint64_t moved_ns; /* when something last happened */
    uint64_t generate_ns;
    /* Transfers overlap, so their times do not add up: the time counts in which at least one was
     * under way, less the time that making blocks took of it. */
    uint64_t transfer_ns;
    uint64_t flying;      /* transfers under way */
    uint64_t flying_from; /* since when there is at least one */
    uint64_t verify_ns;
};

static const struct trace_request *request_of(const struct replay *replay,
                                              const struct seat *seat) {
    return &replay->trace.requests[seat->request];
}

/* ---- asking ------------------------------------------------------------- */

/* When the next request may start; 0: now, as there are no arrivals at full speed. */
static uint64_t arrival_ns(const struct replay *replay) {
    const struct trace_request *requests = replay->trace.requests;
    double ms = (double)(requests[replay->next].arrival_ms - requests[0].arrival_ms);

    if (replay->options->speedup <= 0)
        return 0;
    return replay->start_ns + (uint64_t)(ms * 1e6 / replay->options->speedup);
}

static int ask(struct replay *replay, uint64_t index, uint64_t now, uint64_t arrival) {
    struct session *session = replay->session;
    struct seat *seat = &replay->seats[index];
    const struct trace_request *request = &replay->trace.requests[replay->next];
    uint64_t offset = proto_list_offset(&session->open, index);
    struct proto_count count = {.count = request->block_count};
    weir_segment list = {.local = session->memory,
                         .remote = session->remote,
                         .local_offset = offset,
                         .remote_offset = offset,
                         .length = request->block_count * LIST_ENTRY};

    *seat = (struct seat){
        .state = SEAT_ASKING, .request = replay->next, .from_ns = arrival != 0 ? arrival : now};
    replay->next++;
    memcpy((unsigned char *)session->base + offset, replay->trace.ids + request->first_id,
           request->block_count * LIST_ENTRY);
    return session_send(session, proto_tag(PROTO_REQUEST, index), &count, sizeof(count), &list, 1);
}

static int ask_all(struct replay *replay) {
    for (uint64_t i = 0; i < replay->options->window; i++) {
        uint64_t now, arrival;
        if (replay->next >= replay->trace.request_count)
            return 0;
        if (replay->seats[i].state != SEAT_FREE)
            continue;
        now = host_now_ns();
        arrival = arrival_ns(replay);
        if (arrival > now) {
            replay->moved_ns = now; /* waiting for an arrival is not being stuck */
            return 0;
        }
        if (ask(replay, i, now, arrival) != 0)
            return -1;
    }
    return 0;
}

/* ---- sending ------------------------------------------------------------ */

/* Makes the blocks in source pages and aims them at the granted pages. */
static int make_blocks(struct replay *replay, uint64_t index) {
    struct session *session = replay->session;
    struct seat *seat = &replay->seats[index];
    const struct trace_request *request = request_of(replay, seat);
    const unsigned char *granted =
        (const unsigned char *)session->base + proto_list_offset(&session->open, index);
    uint64_t start = host_now_ns(), took;

    for (uint32_t i = 0; i < request->block_count; i++) {
        uint64_t here = (seat->pages_first + i) % replay->pool_pages * replay->stride, page;
        memcpy(&page, granted + i * LIST_ENTRY, sizeof(page));
        if (page >= replay->pool_pages)
            return complain("the target granted a page that does not exist");
        content_fill((unsigned char *)session->base + here, replay->block_bytes,
                     content_key(REPLAY_SEED, replay->trace.ids[request->first_id + i]));
        replay->segments[i] = (weir_segment){.local = session->memory,
                                             .remote = session->remote,
                                             .local_offset = here,
                                             .remote_offset = page * replay->stride,
                                             .length = replay->block_bytes};
    }
    took = host_now_ns() - start;
    replay->generate_ns += took;
    replay->flying_from += took; /* as if the clock of transfers had stood still meanwhile */
    return 0;
}

static int send_blocks(struct replay *replay, uint64_t index) {
    struct session *session = replay->session;
    struct seat *seat = &replay->seats[index];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    int rc;

    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = proto_tag(PROTO_BLOCKS, index);
    if (replay->flying++ == 0)
        replay->flying_from = host_now_ns();
    while ((rc = weir_write(session->engine, session->peer, replay->segments,
                            request_of(replay, seat)->block_count, &options, &seat->transfer)) ==
           WEIR_EAGAIN) {
        replay->result->eagain++;
        weir_engine_progress(session->engine);
        if (session_look(session) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(session, "replay", rc);
    seat->state = SEAT_SENDING;
    return 0;
}

/* Seats with a grant, oldest first, as far as the source pool goes. Returns how many. */
static int send_waiting(struct replay *replay) {
    int sent = 0;

    while (replay->waiting_count > 0) {
        uint32_t index = replay->waiting[replay->waiting_first];
        struct seat *seat = &replay->seats[index];
        uint64_t blocks = request_of(replay, seat)->block_count;

        if (blocks > replay->pool_pages - replay->pages_used)
            break;
        seat->pages_first = (replay->pages_head + replay->pages_used) % replay->pool_pages;
        replay->pages_used += blocks;
        replay->taken[(replay->oldest + replay->taken_count++) % replay->options->window] = index;
        replay->waiting_first = (replay->waiting_first + 1) % replay->options->window;
        replay->waiting_count--;
        if (make_blocks(replay, index) != 0 || send_blocks(replay, index) != 0)
            return -1;
        sent++;
    }
    return sent;
}

/* ---- finishing ---------------------------------------------------------- */

static void finish_seat(struct replay *replay, struct seat *seat) {
    seat->state = SEAT_FREE;
    replay->done++;
}

/* Gives source pages back in order, once the oldest holder's transfer is done. */
static int release_pages(struct replay *replay) {
    int released = 0;

    while (replay->taken_count > 0) {
        struct seat *seat = &replay->seats[replay->taken[replay->oldest]];
        uint64_t blocks = request_of(replay, seat)->block_count;

        if (seat->state == SEAT_SENDING) {
            int rc = weir_transfer_status(replay->session->engine, seat->transfer);
            if (rc == WEIR_EINPROGRESS)
                break;
            if (seat->transfer.id != 0)
                weir_transfer_release(replay->session->engine, seat->transfer);
            if (rc != 0)
                return session_fail(replay->session, "replay", rc);
            if (--replay->flying == 0)
                replay->transfer_ns += host_now_ns() - replay->flying_from;
            seat->state = SEAT_CHECKING;
        }
        replay->pages_head = (replay->pages_head + blocks) % replay->pool_pages;
        replay->pages_used -= blocks;
        replay->oldest = (replay->oldest + 1) % replay->options->window;
        replay->taken_count--;
        if (seat->checked)
            finish_seat(replay, seat);
        released++;
    }
    return released;
}

static int on_checked(struct replay *replay, struct seat *seat, const weir_notification *message) {
    struct result *result = replay->result;
    struct proto_checked checked;
    uint64_t took = host_now_ns() - seat->from_ns, blocks = request_of(replay, seat)->block_count;

    if (message->length != sizeof(checked) || seat->checked ||
        (seat->state != SEAT_SENDING && seat->state != SEAT_CHECKING))
        return complain("the target checked a request that was not sent");
    memcpy(&checked, message->payload, sizeof(checked));
    histogram_add(result->latency, took);
    histogram_add(replay->notified, took > checked.verify_ns ? took - checked.verify_ns : 0);
    replay->verify_ns += checked.verify_ns;
    result->wrong_bytes += checked.wrong_bytes;
    result->checked_bytes += checked.checked_bytes;
    result->bytes += blocks * replay->block_bytes;
    result->ops += blocks;
    result->transfers++;
    seat->checked = true;
    if (seat->state == SEAT_CHECKING)
        finish_seat(replay, seat);
    return 0;
}

static int on_message(struct replay *replay, const weir_notification *message) {
    uint64_t index = proto_argument(message->tag);
    struct seat *seat;

    if (index >= replay->options->window)
        return complain("the target named a seat that does not exist");
    seat = &replay->seats[index];
    if (proto_type(message->tag) == PROTO_CHECKED)
        return on_checked(replay, seat, message);
    if (proto_type(message->tag) != PROTO_GRANT || seat->state != SEAT_ASKING)
        return complain("the target sent message %d, which fits nothing",
                        (int)proto_type(message->tag));
    seat->state = SEAT_WAITING;
    replay->waiting[(replay->waiting_first + replay->waiting_count++) % replay->options->window] =
        (uint32_t)index;
    return 0;
}

/* ---- the run ------------------------------------------------------------ */

/* Everything that can be done now. Returns how much was, or -1. */
static int replay_step(struct replay *replay) {
    weir_notification message;
    int got, work = 0, rc;

    while ((got = session_poll(replay->session, &message)) > 0) {
        if (on_message(replay, &message) != 0)
            return -1;
        work++;
    }
    if (got < 0)
        return -1;
    if ((rc = release_pages(replay)) < 0)
        return -1;
    work += rc;
    if (ask_all(replay) != 0)
        return -1;
    if ((rc = send_waiting(replay)) < 0)
        return -1;
    return work + rc;
}

static int replay_loop(struct replay *replay) {
    struct progress progress;
    struct idler idler = {0};
    unsigned idle = 0;

    progress_begin(&progress, "replay");
    replay->start_ns = replay->moved_ns = host_now_ns();
    while (replay->done < replay->trace.request_count) {
        int work = replay_step(replay);
        if (work < 0)
            return -1;
        if (work > 0) {
            idle = 0;
            replay->moved_ns = host_now_ns();
            progress_show(&progress, replay->result->bytes,
                          (double)replay->done / (double)replay->trace.request_count);
        } else if (++idle <= 1000 && host_cpu_count() > 1) {
            host_idle(&idler);
        } else {
            weir_engine_wait(replay->session->engine, NS_PER_MS / 4);
            if (host_now_ns() - replay->moved_ns > STUCK_NS)
                return session_fail(replay->session, "replay", WEIR_ETIMEDOUT);
        }
    }
    replay->result->seconds = (double)(host_now_ns() - replay->start_ns) / 1e9;
    progress_end(&progress);
    return 0;
}

static int replay_measure(struct replay *replay) {
    struct result *result = replay->result;
    struct proto_marked before, after;
    uint64_t cpu;

    if (session_mark(replay->session, &before) != 0)
        return -1;
    cpu = host_cpu_ns();
    if (replay_loop(replay) != 0)
        return -1;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (session_mark(replay->session, &after) != 0)
        return -1;
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    if (replay->transfer_ns > 0)
        result->limit_bytes_per_s = (double)result->bytes * 1e9 / (double)replay->transfer_ns;
    result->extra =
        json_pack("{s:I, s:I, s:{s:I, s:I, s:I}, s:f, s:{s:I, s:I, s:I, s:I}}", "requests",
                  (json_int_t)replay->done, "block_bytes", (json_int_t)replay->block_bytes, "split",
                  "generate_ns", (json_int_t)replay->generate_ns, "transfer_ns",
                  (json_int_t)replay->transfer_ns, "verify_ns", (json_int_t)replay->verify_ns,
                  "transfer_bytes_per_s", result->limit_bytes_per_s, "latency_notified_ns", "p50",
                  (json_int_t)histogram_quantile(replay->notified, 5000), "p99",
                  (json_int_t)histogram_quantile(replay->notified, 9900), "p999",
                  (json_int_t)histogram_quantile(replay->notified, 9990), "max",
                  (json_int_t)replay->notified->max);
    return session_close(replay->session);
}

static void print_split(const struct replay *replay) {
    char text[5][32];
    double bytes = (double)replay->result->bytes;
    FILE *out = report_out(replay->options);

    fprintf(out, "  %" PRIu64 " requests; generate %s (%s)\n", replay->done,
            report_time_text((double)replay->generate_ns, text[0]),
            report_rate_text(bytes * 1e9 / (double)(replay->generate_ns + 1), text[1]));
    fprintf(out, "  transfer %s (%s%s)\n", report_time_text((double)replay->transfer_ns, text[2]),
            report_rate_text(replay->result->limit_bytes_per_s, text[3]),
            report_share_text(replay->result, text[4]));
    fprintf(out, "  verify %s (%s), on the target meanwhile\n",
            report_time_text((double)replay->verify_ns, text[0]),
            report_rate_text(bytes * 1e9 / (double)(replay->verify_ns + 1), text[1]));
    fprintf(out, "  to notified: p50 %s, p99 %s\n",
            report_time_text((double)histogram_quantile(replay->notified, 5000), text[0]),
            report_time_text((double)histogram_quantile(replay->notified, 9900), text[1]));
}

static int replay_plan(struct replay *replay, struct proto_open *open) {
    const struct options *o = replay->options;

    replay->block_bytes = o->kv_bytes_per_token * TRACE_BLOCK_TOKENS;
    replay->stride = replay->block_bytes; /* 512 times something: whole cache lines */
    replay->pool_pages = o->pool / replay->stride;
    if (replay->pool_pages < replay->trace.block_count_max)
        replay->pool_pages = replay->trace.block_count_max;
    *open = (struct proto_open){.kind = PROTO_KIND_REPLAY,
                                .page_bytes = replay->block_bytes,
                                .page_stride = replay->stride,
                                .page_count = replay->pool_pages,
                                .lanes = 1,
                                .seats = o->window,
                                .list_bytes = replay->trace.block_count_max * LIST_ENTRY,
                                .seed = REPLAY_SEED};
    replay->seats = calloc(o->window, sizeof(*replay->seats));
    replay->waiting = calloc(o->window, sizeof(*replay->waiting));
    replay->taken = calloc(o->window, sizeof(*replay->taken));
    replay->segments = calloc(replay->trace.block_count_max, sizeof(*replay->segments));
    replay->notified = calloc(1, sizeof(*replay->notified));
    replay->result->latency = calloc(1, sizeof(*replay->result->latency));
    if (replay->seats == NULL || replay->waiting == NULL || replay->taken == NULL ||
        replay->segments == NULL || replay->notified == NULL || replay->result->latency == NULL)
        return complain("out of memory");
    return 0;
}

static int replay_run(struct replay *replay, struct report *report) {
    struct session *session = replay->session;
    const struct options *o = replay->options;
    struct proto_open open;

    if (trace_load(o->trace, o->requests, &replay->trace) != 0 || replay_plan(replay, &open) != 0)
        return -1;
    if (o->requests > replay->trace.request_count)
        return complain("--requests %" PRIu64 ": %s has %" PRIu64, o->requests, o->trace,
                        replay->trace.request_count);
    if (host_check_memory("bench replay", 2 * proto_bytes(&open)) != 0)
        return -1;
    replay->result->limit =
        limits_of_copy(COPY_RANDOM, replay->block_bytes, replay->pool_pages * replay->stride, 1,
                       (enum memory_kind)o->memory, 1);
    host_pin_bench(o->peer == NULL);
    if (session_start(session, o) != 0 ||
        session_open(session, &open, proto_bytes(&open), SESSION_EXPORT) != 0 ||
        session_touch(session) != 0 || replay_measure(replay) != 0)
        return -1;
    if (report_add(report, replay->result) != 0)
        return -1;
    print_split(replay);
    return report_session(report, session);
}

int bench_replay(const struct options *options) {
    struct session session = {.options = options};
    struct result result = {.op = "one block", .label = "replay"};
    struct replay replay = {.session = &session, .options = options, .result = &result};
    struct report report;
    int rc = -1;

    result.latency_of = options->speedup > 0 ? "of a request, from its arrival to verified"
                                             : "of a request, from its start to verified";
    if (report_begin(&report, options) == 0)
        rc = replay_run(&replay, &report);
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    trace_free(&replay.trace);
    free(replay.seats);
    free(replay.waiting);
    free(replay.taken);
    free(replay.segments);
    free(replay.notified);
    free(result.latency);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
