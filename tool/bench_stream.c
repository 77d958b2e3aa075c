/* SPDX-License-Identifier: Apache-2.0 */
/* bench_stream.c: `bench write`, `bench read` and `bench sweep`: how fast transfers go when a
 * window of them is in flight.
 *
 * Memory is cut into lanes, one for each segment that can be in flight: threads x window x
 * segments of them. A lane is one page when hot; when cold it is as many pages as fit, and every
 * transfer takes one of them at random, on each side. So no two transfers in flight ever touch
 * the same bytes, and each can be verified:
 *   write: new content each time; the target checks it when the notification comes, and the
 *          lane is not used again before its answer;
 *   read:  a lane of the target has at least two pages with contents of their own; reads
 *          alternate between them and are checked here.
 *
 * Threads share the session's engine, peer and memory, and all take its messages; thread 0 is the
 * session's owner.
 * The loop is kept small: of transfers below 1 MiB only some look at the clock. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "content.h"
#include "host.h"
#include "report.h"
#include "session.h"

/* One transfer is timed for so many bytes, and one in so many at least: reading the clock takes
 * as long as writing 4 KiB. */
#define SAMPLE_BYTES     (1u << 20)
#define SAMPLE_EVERY_MAX 64
#define SWEEP_FIRST      8
#define SWEEP_LAST       (4u << 20)
#define LOOKS_AT_OTHERS  1024 /* passes between two looks at what became of other flights */
#define SETTLE_NS        (250 * NS_PER_MS)
#define STREAM_SEED      0x7765697200000001u

typedef int (*submit_fn)(weir_engine *, weir_peer, const weir_segment *, size_t,
                         const weir_transfer_options *, weir_transfer *);

/* One transfer that can be in flight. */
struct flight {
    weir_transfer transfer; /* id 0: none under way */
    uint64_t started_ns;    /* 0: not sampled */
    uint64_t round;         /* of its content, when verified */
    weir_segment *segments; /* of this flight */
    atomic_bool unchecked;  /* write, verified: the target has not answered yet */
};

struct stream;

struct worker {
    _Alignas(128) struct stream *stream;
    pthread_t thread;
    unsigned index;
    struct flight *flights;
    weir_segment *segments;
    struct histogram latency;
    struct idler idler;
    struct patience patience;
    uint64_t random;
    uint64_t moved; /* submits and landings */
    uint64_t transfers;
    uint64_t eagain;
    uint64_t checked_bytes;
    uint64_t wrong_bytes;
    uint64_t end_ns;
};

/* The data that a run's workers share; constant while the workers run, but for the atomics and
 * `progress`, which is thread 0's. */
struct stream {
    const struct options *options;
    struct session *session;
    weir_engine *engine; /* the session's */
    weir_peer peer;
    uint64_t segments; /* a transfer */
    submit_fn submit;
    uint64_t size;
    uint64_t stride;
    uint64_t lane_pages;        /* here */
    uint64_t remote_lane_pages; /* there */
    uint64_t lanes;
    uint64_t sample_every;
    uint64_t start_ns;
    uint64_t duration_ns;
    bool reads;
    bool alone; /* there is one CPU */
    struct worker *workers;
    struct progress progress;
    atomic_bool stop;                               /* a worker failed */
    _Alignas(128) atomic_uint_fast64_t wrong_bytes; /* said by the target */
    atomic_uint_fast64_t checked_bytes;
};

static uint64_t first_lane(const struct worker *worker, uint64_t flight) {
    const struct options *o = worker->stream->options;

    return (worker->index * o->window + flight) * o->segments;
}

/* Which page of a lane this transfer uses, there and here. */
static uint64_t pick_page(struct worker *worker, uint64_t pages, uint64_t round) {
    if (pages == 1)
        return 0;
    return worker->stream->options->verify ? round % pages : random_below(&worker->random, pages);
}

/* ---- verification ------------------------------------------------------- */

static void make_content(const struct stream *stream, uint64_t lane, uint64_t round,
                         uint64_t remote_page, uint64_t local_offset) {
    unsigned char *base = stream->session->base;
    uint64_t page = lane * stream->remote_lane_pages + remote_page;

    content_fill(base + local_offset, stream->size,
                 content_key(content_key(STREAM_SEED, round), page));
}

static void check_read(struct worker *worker, uint64_t flight) {
    const struct stream *stream = worker->stream;
    const weir_segment *segments = worker->flights[flight].segments;
    const unsigned char *base = stream->session->base;

    for (uint64_t i = 0; i < stream->options->segments; i++)
        worker->wrong_bytes +=
            content_wrong(base + segments[i].local_offset, stream->size,
                          content_key(STREAM_SEED, segments[i].remote_offset / stream->stride));
    worker->checked_bytes += stream->options->segments * stream->size;
}

/* Takes the target's answers, of any worker's lanes. */
static void take_answers(struct stream *stream) {
    const struct options *o = stream->options;
    weir_notification message;

    while (session_take(stream->session, &message) > 0) {
        uint64_t flight = proto_argument(message.tag) / o->segments;
        struct proto_checked checked;
        if (proto_type(message.tag) != PROTO_CHECKED || message.length != sizeof(checked) ||
            flight >= o->threads * o->window)
            continue;
        memcpy(&checked, message.payload, sizeof(checked));
        atomic_fetch_add(&stream->wrong_bytes, checked.wrong_bytes);
        atomic_fetch_add(&stream->checked_bytes, checked.checked_bytes);
        atomic_store_explicit(
            &stream->workers[flight / o->window].flights[flight % o->window].unchecked, false,
            memory_order_release);
    }
}

/* ---- one transfer ------------------------------------------------------- */

/* Progress while waiting, for a flight that is under way or for room; -1: give up. The
 * driver's thread or the target, which could bring it along, may need this very CPU. */
static int pause_worker(struct worker *worker, const struct flight *flight) {
    struct stream *stream = worker->stream;

    if (weir_engine_progress(stream->session->engine) == 0 && stream->alone)
        weir_engine_wait(stream->session->engine, NS_PER_MS);
    host_idle(&worker->idler);
    if ((worker->index == 0 && session_look(stream->session) != 0) ||
        session_patience(stream->session, &worker->patience, worker->moved, flight->transfer) != 0)
        atomic_store(&stream->stop, true);
    return atomic_load_explicit(&stream->stop, memory_order_relaxed) ? -1 : 0;
}

/* Whether one of the worker's other flights has ended badly: what a flight that went well
 * still waits for may then never come. Says so. */
static bool other_failed(struct worker *worker) {
    const struct stream *stream = worker->stream;

    for (uint64_t i = 0; i < stream->options->window; i++) {
        weir_transfer transfer = worker->flights[i].transfer;
        int rc = transfer.id == 0 ? 0 : weir_transfer_status(stream->session->engine, transfer);
        if (rc != 0 && rc != WEIR_EINPROGRESS) {
            session_fail(stream->session, options_command_name(stream->options->command), rc);
            return true;
        }
    }
    return false;
}

/* Waits until the flight is over: terminal, and verified where that was asked for. */
static __attribute__((noinline)) int land_slowly(struct worker *worker, struct flight *flight) {
    struct stream *stream = worker->stream;
    weir_engine *engine = stream->session->engine;
    int rc;

    if (flight->transfer.id != 0) {
        while ((rc = weir_transfer_status(engine, flight->transfer)) == WEIR_EINPROGRESS) {
            if (pause_worker(worker, flight) != 0)
                return -1;
        }
        weir_transfer_release(engine, flight->transfer);
        flight->transfer.id = 0;
        if (rc != 0)
            return session_fail(stream->session, options_command_name(stream->options->command),
                                rc);
        if (flight->started_ns != 0)
            histogram_add(&worker->latency, host_now_ns() - flight->started_ns);
        if (stream->reads && stream->options->verify)
            check_read(worker, (uint64_t)(flight - worker->flights));
    }
    for (uint64_t looks = 1; atomic_load_explicit(&flight->unchecked, memory_order_acquire);
         looks++) {
        if (pause_worker(worker, flight) != 0 ||
            (looks % LOOKS_AT_OTHERS == 0 && other_failed(worker)))
            return -1;
        take_answers(stream);
    }
    worker->moved++;
    return 0;
}

/* Chooses pages and makes content, for those runs that need either. */
static void prepare(struct worker *worker, uint64_t index) {
    struct stream *stream = worker->stream;
    const struct options *o = stream->options;
    struct flight *flight = &worker->flights[index];
    weir_segment *segments = flight->segments;

    flight->round++;
    for (uint64_t i = 0; i < o->segments; i++) {
        uint64_t lane = first_lane(worker, index) + i;
        uint64_t there = pick_page(worker, stream->remote_lane_pages, flight->round);
        uint64_t here = pick_page(worker, stream->lane_pages, flight->round);

        segments[i].remote_offset = (lane * stream->remote_lane_pages + there) * stream->stride;
        segments[i].local_offset = (lane * stream->lane_pages + here) * stream->stride;
        if (o->verify && !stream->reads)
            make_content(stream, lane, flight->round, there, segments[i].local_offset);
    }
}

/* As land_slowly, by a shorter way for a flight that has ended well. */
static inline int land(struct worker *worker, struct flight *flight) {
    if (flight->transfer.id == 0 || flight->started_ns != 0 ||
        atomic_load_explicit(&flight->unchecked, memory_order_relaxed) ||
        weir_transfer_status(worker->stream->engine, flight->transfer) != 0)
        return land_slowly(worker, flight);
    weir_transfer_release(worker->stream->engine, flight->transfer);
    flight->transfer.id = 0;
    if (worker->stream->reads && worker->stream->options->verify)
        check_read(worker, (uint64_t)(flight - worker->flights));
    worker->moved++;
    return 0;
}

/* Gives back the handles of those behind this one that have ended: they take room of the engine,
 * which a transfer that is refused may wait for. */
static int land_some(struct worker *worker, uint64_t index) {
    uint64_t window = worker->stream->options->window;

    for (uint64_t i = 1; i < window; i++) {
        struct flight *flight = &worker->flights[(index + i) % window];
        if (flight->transfer.id != 0 &&
            weir_transfer_status(worker->stream->engine, flight->transfer) == WEIR_EINPROGRESS)
            return 0;
        if (flight->transfer.id != 0 && land_slowly(worker, flight) != 0)
            return -1;
    }
    return 0;
}

static inline int launch(struct worker *worker, uint64_t index, bool fixed,
                         weir_transfer_options *transfer) {
    struct stream *stream = worker->stream;
    const struct options *o = stream->options;
    struct flight *flight = &worker->flights[index];
    struct proto_round round;
    int rc;

    if (!fixed)
        prepare(worker, index);
    if (o->verify && !stream->reads) {
        round = (struct proto_round){.round = flight->round, .lane_count = o->segments};
        transfer->notify_tag = proto_tag(PROTO_CHECK, first_lane(worker, index));
        transfer->notify_payload = &round;
        transfer->notify_length = sizeof(round);
        atomic_store_explicit(&flight->unchecked, true, memory_order_relaxed);
    }
    while ((rc = stream->submit(stream->engine, stream->peer, flight->segments, stream->segments,
                                transfer->flags != 0 ? transfer : NULL, &flight->transfer)) ==
           WEIR_EAGAIN) {
        worker->eagain++;
        if (land_some(worker, index) != 0 ||
            pause_worker(worker, &worker->flights[(index + 1) % o->window]) != 0)
            return -1;
    }
    if (rc != 0)
        return session_fail(stream->session, options_command_name(o->command), rc);
    worker->transfers++;
    worker->moved++;
    if (flight->transfer.id == 0 && stream->reads && o->verify)
        check_read(worker, index);
    return 0;
}

/* ---- a worker ----------------------------------------------------------- */

/* The clock, the end, and the chores of thread 0. 0: the run is over. A worker that the system
 * starts late makes one transfer all the same: a run without any measures nothing. */
static uint64_t look(struct worker *worker) {
    struct stream *stream = worker->stream;
    uint64_t now = host_now_ns(), past = now - stream->start_ns;

    if (worker->index == 0) {
        if (session_look(stream->session) != 0)
            atomic_store(&stream->stop, true);
        progress_show(&stream->progress,
                      worker->transfers * stream->options->segments * stream->size *
                          stream->options->threads,
                      (double)past / (double)stream->duration_ns);
    }
    return past >= stream->duration_ns && worker->transfers != 0 ? 0 : now;
}

static int stream_loop(struct worker *worker) {
    struct stream *stream = worker->stream;
    const struct options *o = stream->options;
    weir_transfer_options transfer = WEIR_TRANSFER_OPTIONS_INIT;
    bool fixed = stream->lane_pages == 1 && stream->remote_lane_pages == 1 && !o->verify;
    uint64_t index = 0, until_sample = 0, now = 0;

    if (o->notify || (o->verify && !stream->reads)) {
        transfer.flags = WEIR_TRANSFER_NOTIFY;
        transfer.notify_tag = proto_tag(PROTO_DATA, 0);
    }
    while (!atomic_load_explicit(&stream->stop, memory_order_relaxed)) {
        struct flight *flight = &worker->flights[index];
        bool sampled = until_sample == 0;

        if ((flight->transfer.id != 0 ||
             atomic_load_explicit(&flight->unchecked, memory_order_relaxed)) &&
            land(worker, flight) != 0)
            return -1;
        if (sampled) {
            now = look(worker);
            if (now == 0)
                return 0;
            until_sample = stream->sample_every;
        }
        until_sample--;
        flight->started_ns = sampled ? now : 0;
        if (launch(worker, index, fixed, &transfer) != 0)
            return -1;
        if (sampled && flight->transfer.id == 0)
            histogram_add(&worker->latency, host_now_ns() - now);
        index = index + 1 == o->window ? 0 : index + 1;
    }
    return -1;
}

static void *worker_run(void *argument) {
    struct worker *worker = argument;
    struct stream *stream = worker->stream;
    int rc = stream_loop(worker);

    for (uint64_t i = 0; rc == 0 && i < stream->options->window; i++)
        rc = land(worker, &worker->flights[i]);
    if (rc != 0)
        atomic_store(&stream->stop, true);
    worker->end_ns = host_now_ns();
    return NULL;
}

static int worker_init(struct stream *stream, unsigned index) {
    const struct options *o = stream->options;
    struct worker *worker = &stream->workers[index];

    worker->stream = stream;
    worker->index = index;
    worker->random = mix64(index);
    worker->flights = calloc(o->window, sizeof(*worker->flights));
    worker->segments = calloc(o->window * o->segments, sizeof(*worker->segments));
    if (worker->flights == NULL || worker->segments == NULL)
        return complain("out of memory");
    for (uint64_t i = 0; i < o->window * o->segments; i++) {
        uint64_t lane = first_lane(worker, 0) + i;
        worker->segments[i] =
            (weir_segment){.local = stream->session->memory,
                           .remote = stream->session->remote,
                           .local_offset = lane * stream->lane_pages * stream->stride,
                           .remote_offset = lane * stream->remote_lane_pages * stream->stride,
                           .length = stream->size};
    }
    for (uint64_t i = 0; i < o->window; i++)
        worker->flights[i].segments = &worker->segments[i * o->segments];
    return 0;
}

/* ---- a run -------------------------------------------------------------- */

static int run_workers(struct stream *stream) {
    unsigned threads = (unsigned)stream->options->threads, started = 1;

    stream->start_ns = host_now_ns();
    progress_begin(&stream->progress, options_command_name(stream->options->command));
    for (; started < threads; started++) {
        if (pthread_create(&stream->workers[started].thread, NULL, worker_run,
                           &stream->workers[started]) != 0) {
            complain("thread %u cannot be started", started);
            atomic_store(&stream->stop, true);
            break;
        }
    }
    worker_run(&stream->workers[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(stream->workers[i].thread, NULL);
    progress_end(&stream->progress);
    return atomic_load(&stream->stop) ? -1 : 0;
}

static void sum_workers(struct stream *stream, struct result *result) {
    uint64_t end = stream->start_ns;

    result->checked_bytes = atomic_load(&stream->checked_bytes);
    result->wrong_bytes = atomic_load(&stream->wrong_bytes);
    for (uint64_t i = 0; i < stream->options->threads; i++) {
        const struct worker *worker = &stream->workers[i];
        histogram_merge(result->latency, &worker->latency);
        result->transfers += worker->transfers;
        result->eagain += worker->eagain;
        result->checked_bytes += worker->checked_bytes;
        result->wrong_bytes += worker->wrong_bytes;
        end = worker->end_ns > end ? worker->end_ns : end;
    }
    result->ops = result->transfers * stream->options->segments;
    result->bytes = result->ops * stream->size;
    result->seconds = (double)(end - stream->start_ns) / 1e9;
}

static int measure(struct stream *stream, struct result *result) {
    struct proto_marked before, after;
    uint64_t cpu;

    stream->engine = stream->session->engine;
    stream->peer = stream->session->peer;
    stream->segments = stream->options->segments;
    for (unsigned i = 0; i < stream->options->threads; i++) {
        if (worker_init(stream, i) != 0)
            return -1;
    }
    if (session_mark(stream->session, &before) != 0)
        return -1;
    if (stream->alone) /* the processes that helped to set this up are in the way */
        host_sleep_on(-1, -1, SETTLE_NS);
    cpu = host_cpu_ns();
    if (run_workers(stream) != 0)
        return -1;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (session_mark(stream->session, &after) != 0)
        return -1;
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    sum_workers(stream, result);
    return 0;
}

static void plan_lanes(struct stream *stream, const struct options *o, uint64_t size) {
    uint64_t pages, every = SAMPLE_BYTES / size / o->segments;

    stream->size = size;
    stream->stride = (size + 63) & ~UINT64_C(63);
    stream->lanes = o->threads * o->window * o->segments;
    pages = o->cold / stream->stride / stream->lanes;
    stream->lane_pages = pages == 0 ? 1 : pages;
    /* Two contents to alternate between, or a read that moved nothing would verify. */
    stream->remote_lane_pages =
        stream->reads && o->verify && stream->lane_pages == 1 ? 2 : stream->lane_pages;
    stream->sample_every = every == 0 ? 1 : every > SAMPLE_EVERY_MAX ? SAMPLE_EVERY_MAX : every;
    stream->duration_ns = (uint64_t)(o->seconds * 1e9);
}

/* The rate at which the machine copies at best the way this run does. */
static struct limit stream_limit(const struct stream *stream) {
    const struct options *o = stream->options;

    return limits_of_copy(o->cold != 0 ? COPY_RANDOM : COPY_IN_TURN, stream->size,
                          o->cold != 0 ? o->cold : stream->lanes * stream->stride,
                          (unsigned)o->threads, (enum memory_kind)o->memory, o->segments);
}

/* Of this process and of the target; the yardsticks' two buffers, at another time, are no more
 * than that, but for a size that --cold and the window do not divide. */
static uint64_t stream_memory(const struct stream *stream) {
    uint64_t span = stream->options->cold, both;

    both = stream->lanes * (stream->lane_pages + stream->remote_lane_pages) * stream->stride;
    return both > 2 * span ? both : 2 * span;
}

/* Members of a stream's row beside those of every result. */
static json_t *stream_extra(const struct stream *stream, const struct result *result) {
    double plain = result->limit.memcpy_bytes_per_s;
    json_t *extra = json_pack("{s:I}", "size", (json_int_t)stream->size);

    if (plain > 0) {
        json_object_set_new(extra, "memcpy_bytes_per_s", json_real(plain));
        json_object_set_new(extra, "times_memcpy",
                            json_real((double)result->bytes / result->seconds / plain));
    }
    return extra;
}

/* One size: session, calibration, measurement, row. */
static int stream_size(struct session *session, struct report *report, uint64_t size) {
    const struct options *o = session->options;
    struct stream stream = {.options = o,
                            .session = session,
                            .reads = o->command == CMD_READ || o->op == OP_READ,
                            .alone = host_cpu_count() < 2};
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct result result = {.op = "one segment", .latency = latency};
    struct proto_open open = {.kind = stream.reads ? PROTO_KIND_READ : PROTO_KIND_WRITE};
    struct limit after;
    char latency_of[96] = "of a transfer, submit to done";
    int rc = -1;

    stream.submit = stream.reads ? weir_read : weir_write;
    plan_lanes(&stream, o, size);
    stream.workers = aligned_alloc(128, o->threads * sizeof(*stream.workers));
    if (latency == NULL || stream.workers == NULL) {
        complain("out of memory");
        goto out;
    }
    memset(stream.workers, 0, o->threads * sizeof(*stream.workers));
    if (host_check_memory(options_command_words(o->command), stream_memory(&stream)) != 0)
        goto out;
    result.limit = stream_limit(&stream);
    host_pin_bench(o->peer == NULL && o->threads == 1);
    open.page_bytes = size;
    open.page_stride = stream.stride;
    open.page_count = stream.lanes * stream.remote_lane_pages;
    open.lanes = stream.lanes;
    open.seed = STREAM_SEED;
    if (session_open(session, &open, stream.lanes * stream.lane_pages * stream.stride,
                     SESSION_KEEP) != 0 ||
        session_touch(session) != 0)
        goto out;
    if (measure(&stream, &result) != 0 || session_close(session) != 0)
        goto out;
    after = stream_limit(&stream);
    limit_raise(&result.limit, &after);
    result.extra = stream_extra(&stream, &result);
    result.clock_ns = (double)host_clock_ns();
    options_size_text(size, result.label);
    if (stream.sample_every > 1)
        snprintf(latency_of, sizeof(latency_of),
                 "of a transfer, submit to done, one in %" PRIu64 " timed", stream.sample_every);
    result.latency_of = latency_of;
    rc = report_add(report, &result);
out:
    for (uint64_t i = 0; stream.workers != NULL && i < o->threads; i++) {
        free(stream.workers[i].flights);
        free(stream.workers[i].segments);
    }
    free(stream.workers);
    free(latency);
    return rc;
}

int bench_stream(const struct options *options) {
    struct session session = {.options = options};
    struct report report;
    int rc;

    if (report_begin(&report, options) != 0)
        return EXIT_FAILED;
    rc = session_start(&session, options);
    if (rc == 0 && options->command == CMD_SWEEP) {
        for (uint64_t size = SWEEP_FIRST; rc == 0 && size <= SWEEP_LAST; size *= 2)
            rc = stream_size(&session, &report, size);
    } else if (rc == 0) {
        rc = stream_size(&session, &report, options->size);
    }
    if (rc == 0)
        rc = report_session(&report, &session);
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
