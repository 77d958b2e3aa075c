/* SPDX-License-Identifier: Apache-2.0 */
/* bench_send.c: `bench send`, and `bench sweep` of messages: how fast messages go when a window of
 * them is in flight.
 *
 * Each message in flight has a place of its own in our memory, since a long one is sent from there
 * until it has arrived. The target takes messages as they come, and gives them back. It looks that
 * each thread's come in their order, each once, and with --verify at their bytes. The time counts
 * until it has taken the last one: what waits in an inbox is no result.
 *
 * As many as the inbox has room for go before the measurement: the memory that it uses was touched
 * then.
 * Threads share the session's engine and peer; thread 0 is the session's owner. */
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

/* One message is timed for so many bytes, and one in so many at least. */
#define SAMPLE_BYTES     (1u << 20)
#define SAMPLE_EVERY_MAX 64
#define SWEEP_FIRST      8
#define SWEEP_LAST       (4u << 20)
#define SETTLE_NS        (250 * NS_PER_MS)
#define SEND_SEED        0x7765697200000004u
#define LINE             64

/* One message that can be in flight. */
struct flight {
    weir_transfer transfer; /* id 0: none under way */
    uint64_t started_ns;    /* 0: not sampled */
    weir_part part;
};

struct stream;

struct worker {
    _Alignas(128) struct stream *stream;
    pthread_t thread;
    unsigned index;
    struct flight *flights;
    weir_outgoing *out; /* for a call: options->batch of them */
    weir_transfer *transfers;
    struct histogram latency;
    struct idler idler;
    struct patience patience;
    uint64_t sent;  /* since the session began */
    uint64_t first; /* of them, what was sent before the measurement */
    uint64_t moved; /* submits and landings */
    uint64_t eagain;
};

/* The data that a run's workers share; constant while they run, but for `stop`, and `progress`,
 * which is thread 0's. */
struct stream {
    const struct options *options;
    struct session *session;
    struct proto_inbox inbox;
    uint64_t size;
    uint64_t stride;
    uint64_t sample_every;
    uint64_t start_ns;
    uint64_t duration_ns;
    bool alone; /* there is one CPU */
    struct worker *workers;
    struct progress progress;
    atomic_bool stop; /* a worker failed */
};

/* ---- one message -------------------------------------------------------- */

/* Progress while waiting, for a message that is under way or for room; -1: give up. */
static int pause_worker(struct worker *worker, const struct flight *flight) {
    struct stream *stream = worker->stream;
    struct session *session = stream->session;

    if (weir_engine_progress(session->engine) == 0 && stream->alone)
        weir_engine_wait(session->engine, NS_PER_MS);
    host_idle(&worker->idler);
    if ((worker->index == 0 && session_look(session) != 0) ||
        session_patience(session, &worker->patience, worker->moved, flight->transfer) != 0)
        atomic_store(&stream->stop, true);
    return atomic_load_explicit(&stream->stop, memory_order_relaxed) ? -1 : 0;
}

/* Waits until the message has arrived. */
static int land(struct worker *worker, struct flight *flight) {
    struct session *session = worker->stream->session;
    int rc;

    while ((rc = weir_transfer_status(session->engine, flight->transfer)) == WEIR_EINPROGRESS) {
        if (pause_worker(worker, flight) != 0)
            return -1;
    }
    weir_transfer_release(session->engine, flight->transfer);
    flight->transfer.id = 0;
    if (rc != 0)
        return session_fail(session, "message", rc);
    if (flight->started_ns != 0)
        histogram_add(&worker->latency, host_now_ns() - flight->started_ns);
    worker->moved++;
    return 0;
}

/* Gives back the handles of those behind this one that have arrived: they take room of the engine,
 * which a message that is refused may wait for. */
static int land_some(struct worker *worker, uint64_t index) {
    uint64_t window = worker->stream->options->window;

    for (uint64_t i = 1; i < window; i++) {
        struct flight *flight = &worker->flights[(index + i) % window];
        if (flight->transfer.id != 0 && weir_transfer_status(worker->stream->session->engine,
                                                             flight->transfer) == WEIR_EINPROGRESS)
            return 0;
        if (flight->transfer.id != 0 && land(worker, flight) != 0)
            return -1;
    }
    return 0;
}

/* A message in a loan of weir's. EAGAIN: not now. */
static int send_loan(struct worker *worker, uint64_t tag, weir_transfer *transfer_out) {
    const struct stream *stream = worker->stream;
    struct session *session = stream->session;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_loan loan;
    int rc = weir_message_loan(session->engine, session->peer, stream->inbox.number, stream->size,
                               &loan);

    if (rc != 0)
        return rc;
    options.notify_tag = tag;
    if (stream->options->verify != 0)
        content_fill(loan.data, stream->size, content_key(SEND_SEED, tag));
    rc = weir_loan_send(session->engine, &loan, &options, transfer_out);
    if (rc != 0)
        weir_loan_return(session->engine, &loan);
    return rc;
}

/* Sends the next messages of a call, and says how many went. EAGAIN: none now. */
static inline int send_messages(struct worker *worker, const weir_outgoing *out, size_t count,
                                weir_transfer *transfers, size_t *sent_out) {
    const struct stream *stream = worker->stream;
    struct session *session = stream->session;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    if (stream->options->loan == 0 && count > 1)
        return weir_message_send_many(session->engine, session->peer, stream->inbox.number, out,
                                      count, NULL, transfers, sent_out);
    *sent_out = 1;
    if (stream->options->loan != 0)
        return send_loan(worker, out->tag, transfers);
    options.notify_tag = out->tag;
    return weir_message_send(session->engine, session->peer, stream->inbox.number, out->parts, 1,
                             &options, transfers);
}

/* Sends the next messages from places that are free, one behind the other. now: when the first is
 * sent, or 0 if it is not timed. */
static inline int launch(struct worker *worker, uint64_t index, uint64_t count, uint64_t now) {
    struct stream *stream = worker->stream;
    struct session *session = stream->session;
    uint64_t next = index + count == stream->options->window ? 0 : index + count;

    for (uint64_t i = 0; i < count; i++) {
        const struct flight *flight = &worker->flights[index + i];
        uint64_t tag = proto_message_tag(worker->index, worker->sent + i);
        worker->out[i] = (weir_outgoing){&flight->part, 1, tag};
        if (stream->options->verify != 0 && stream->options->loan == 0)
            content_fill((unsigned char *)session->base + flight->part.offset, stream->size,
                         content_key(SEND_SEED, tag));
    }
    for (size_t done = 0, sent; done < count; done += sent) {
        int rc;
        while ((rc = send_messages(worker, worker->out + done, count - done,
                                   worker->transfers + done, &sent)) == WEIR_EAGAIN) {
            worker->eagain++;
            if (land_some(worker, index + count - 1) != 0 ||
                pause_worker(worker, &worker->flights[next]) != 0)
                return -1;
        }
        if (rc != 0)
            return session_fail(session, "message", rc);
        for (size_t i = done; i < done + sent; i++) {
            worker->flights[index + i].transfer = worker->transfers[i];
            worker->flights[index + i].started_ns = i == 0 ? now : 0;
        }
        worker->sent += sent;
        worker->moved++;
    }
    if (now != 0 && worker->transfers[0].id == 0)
        histogram_add(&worker->latency, host_now_ns() - now);
    return 0;
}

static int land_all(struct worker *worker) {
    for (uint64_t i = 0; i < worker->stream->options->window; i++) {
        struct flight *flight = &worker->flights[i];
        if (flight->transfer.id != 0 && land(worker, flight) != 0)
            return -1;
    }
    return 0;
}

/* ---- a worker ----------------------------------------------------------- */

/* The clock, the end, and the chores of thread 0. 0: the run is over. A worker that the system
 * starts late sends one message all the same: a run without any measures nothing. */
static uint64_t look(struct worker *worker) {
    struct stream *stream = worker->stream;
    uint64_t now = host_now_ns(), past = now - stream->start_ns;

    if (worker->index == 0) {
        if (session_look(stream->session) != 0)
            atomic_store(&stream->stop, true);
        progress_show(&stream->progress,
                      (worker->sent - worker->first) * stream->size * stream->options->threads,
                      (double)past / (double)stream->duration_ns);
    }
    return past >= stream->duration_ns && worker->sent != worker->first ? 0 : now;
}

/* How many messages the next call sends, of `left`, and from this place on; their places are free
 * behind it. 0: give up. */
static inline uint64_t prepare(struct worker *worker, uint64_t index, uint64_t left) {
    const struct options *o = worker->stream->options;
    uint64_t count = left < o->batch ? left : o->batch;

    if (count > o->window - index)
        count = o->window - index;
    for (uint64_t i = 0; i < count; i++) {
        struct flight *flight = &worker->flights[index + i];
        if (flight->transfer.id != 0 && land(worker, flight) != 0)
            return 0;
    }
    return count;
}

static int send_loop(struct worker *worker) {
    struct stream *stream = worker->stream;
    uint64_t index = 0, until_sample = 0, now = 0;

    while (!atomic_load_explicit(&stream->stop, memory_order_relaxed)) {
        bool sampled = until_sample == 0;
        uint64_t count = prepare(worker, index, UINT64_MAX);

        if (count == 0)
            return -1;
        if (sampled) {
            now = look(worker);
            if (now == 0)
                return land_all(worker);
            until_sample = stream->sample_every;
        }
        until_sample -= until_sample < count ? until_sample : count;
        if (launch(worker, index, count, sampled ? now : 0) != 0)
            return -1;
        index = index + count == stream->options->window ? 0 : index + count;
    }
    return -1;
}

static void *worker_run(void *argument) {
    struct worker *worker = argument;

    if (send_loop(worker) != 0)
        atomic_store(&worker->stream->stop, true);
    return NULL;
}

/* So many, which are not measured. */
static int send_some(struct worker *worker, uint64_t total) {
    uint64_t index = 0;

    while (total > 0) {
        uint64_t count = prepare(worker, index, total);
        if (count == 0 || launch(worker, index, count, 0) != 0)
            return -1;
        total -= count;
        index = index + count == worker->stream->options->window ? 0 : index + count;
    }
    return land_all(worker);
}

/* Messages that are copied when they are sent need no memory that is registered. */
static int worker_init(struct stream *stream, unsigned index) {
    struct worker *worker = &stream->workers[index];
    uint64_t window = stream->options->window;

    worker->stream = stream;
    worker->index = index;
    worker->flights = calloc(window, sizeof(*worker->flights));
    worker->out = calloc(stream->options->batch, sizeof(*worker->out));
    worker->transfers = calloc(stream->options->batch, sizeof(*worker->transfers));
    if (worker->flights == NULL || worker->out == NULL || worker->transfers == NULL)
        return complain("out of memory");
    for (uint64_t i = 0; i < window; i++) {
        weir_part *part = &worker->flights[i].part;
        part->offset = (index * window + i) * stream->stride;
        part->length = stream->size;
        if (stream->size > WEIR_MESSAGE_COPY_MAX)
            part->local = stream->session->memory;
        else
            part->base = stream->session->base;
    }
    return 0;
}

/* ---- a run -------------------------------------------------------------- */

static int run_workers(struct stream *stream) {
    unsigned threads = (unsigned)stream->options->threads, started = 1;

    for (unsigned i = 0; i < threads; i++)
        stream->workers[i].first = stream->workers[i].sent;
    progress_begin(&stream->progress, options_command_name(stream->options->command));
    stream->start_ns = host_now_ns();
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

/* Until the target has taken all that was sent. */
static int drain(struct stream *stream, struct proto_drained *drained_out) {
    uint64_t sent = 0;

    for (uint64_t i = 0; i < stream->options->threads; i++)
        sent += stream->workers[i].sent;
    return session_drain_well(stream->session, sent, drained_out);
}

static int measure(struct stream *stream, struct result *result) {
    struct session *session = stream->session;
    struct proto_marked before, after;
    struct proto_drained warm, drained;
    uint64_t cpu;

    for (unsigned i = 0; i < stream->options->threads; i++) {
        if (worker_init(stream, i) != 0)
            return -1;
    }
    if (session_inbox(session, &stream->inbox) != 0 ||
        send_some(&stream->workers[0],
                  stream->inbox.chunks * proto_chunk_messages(&session->open)) != 0 ||
        drain(stream, &warm) != 0 || session_mark(session, &before) != 0)
        return -1;
    if (stream->alone) /* the processes that helped to set this up are in the way */
        host_sleep_on(-1, -1, SETTLE_NS);
    cpu = host_cpu_ns();
    if (run_workers(stream) != 0 || drain(stream, &drained) != 0)
        return -1;
    result->seconds = (double)(host_now_ns() - stream->start_ns) / 1e9;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (session_mark(session, &after) != 0)
        return -1;
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    result->checked_bytes = drained.checked_bytes - warm.checked_bytes;
    result->wrong_bytes = drained.wrong_bytes - warm.wrong_bytes;
    result->ops = result->transfers = drained.taken - warm.taken;
    result->bytes = result->ops * stream->size;
    for (uint64_t i = 0; i < stream->options->threads; i++) {
        histogram_merge(result->latency, &stream->workers[i].latency);
        result->eagain += stream->workers[i].eagain;
    }
    return 0;
}

/* A message is copied once at least, into the inbox, which is the target's and shared; but not one
 * in a loan. */
static struct limit send_limit(const struct stream *stream) {
    const struct options *o = stream->options;

    if (stream->size == 0 || o->loan != 0)
        return (struct limit){.name = ""};
    return limits_of_copy(COPY_IN_TURN, stream->size, o->threads * o->window * stream->stride,
                          (unsigned)o->threads, MEMORY_SHARED, 1);
}

/* Members of a row beside those of every result. */
static json_t *send_extra(const struct stream *stream, const struct result *result) {
    double plain = result->limit.memcpy_bytes_per_s;
    json_t *extra = json_pack("{s:I, s:{s:I, s:I}}", "size", (json_int_t)stream->size, "inbox",
                              "chunks", (json_int_t)stream->inbox.chunks, "chunk_bytes",
                              (json_int_t)stream->inbox.chunk_bytes);

    if (plain > 0) {
        json_object_set_new(extra, "memcpy_bytes_per_s", json_real(plain));
        json_object_set_new(extra, "times_memcpy",
                            json_real((double)result->bytes / result->seconds / plain));
    }
    return extra;
}

static struct proto_open send_open(const struct options *o, uint64_t size) {
    return (struct proto_open){.kind = PROTO_KIND_SEND,
                               .page_bytes = LINE,
                               .page_stride = LINE,
                               .page_count = 1,
                               .lanes = 1,
                               .seats = o->threads,
                               .seed = SEND_SEED,
                               .message_bytes = size,
                               .waiting = (uint32_t)o->waiting,
                               .hold = (uint32_t)o->hold,
                               .verify = (uint32_t)o->verify};
}

/* One size, with workers that are zeroed. */
static int send_size_with(struct stream *stream, struct report *report, struct result *result) {
    struct session *session = stream->session;
    const struct options *o = stream->options;
    struct proto_open open = send_open(o, stream->size);
    uint64_t local = o->threads * o->window * stream->stride;
    char latency_of[96] = "of a message, sent to arrived";
    struct limit after;

    if (host_check_memory(options_command_words(o->command),
                          proto_inbox_bytes(&open) + 2 * local) != 0)
        return -1;
    result->limit = send_limit(stream);
    host_pin_bench(o->peer == NULL && o->threads == 1);
    if (session_open(session, &open, local, SESSION_KEEP) != 0 || measure(stream, result) != 0 ||
        session_close(session) != 0)
        return -1;
    after = send_limit(stream);
    if (stream->size > 0)
        limit_raise(&result->limit, &after);
    result->extra = send_extra(stream, result);
    result->clock_ns = (double)host_clock_ns();
    options_size_text(stream->size, result->label);
    if (o->batch > 1)
        snprintf(latency_of, sizeof(latency_of),
                 "of a call's first message, to the call's end or its own, one in %" PRIu64,
                 stream->sample_every > o->batch ? stream->sample_every : o->batch);
    else if (stream->sample_every > 1)
        snprintf(latency_of, sizeof(latency_of),
                 "of a message, sent to arrived, one in %" PRIu64 " timed", stream->sample_every);
    result->latency_of = latency_of;
    return report_add(report, result);
}

static int send_size(struct session *session, struct report *report, uint64_t size) {
    const struct options *o = session->options;
    struct stream stream = {.options = o,
                            .session = session,
                            .size = size,
                            .stride = size == 0 ? LINE : (size + LINE - 1) & ~(uint64_t)(LINE - 1),
                            .sample_every = size == 0 ? SAMPLE_EVERY_MAX : SAMPLE_BYTES / size,
                            .duration_ns = (uint64_t)(o->seconds * 1e9),
                            .alone = host_cpu_count() < 2};
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct result result = {.op = "one message", .latency = latency};
    int rc = -1;

    if (stream.sample_every > SAMPLE_EVERY_MAX)
        stream.sample_every = SAMPLE_EVERY_MAX;
    if (stream.sample_every == 0)
        stream.sample_every = 1;
    stream.workers = aligned_alloc(128, o->threads * sizeof(*stream.workers));
    if (latency == NULL || stream.workers == NULL) {
        complain("out of memory");
    } else {
        memset(stream.workers, 0, o->threads * sizeof(*stream.workers));
        rc = send_size_with(&stream, report, &result);
        for (uint64_t i = 0; i < o->threads; i++) {
            free(stream.workers[i].flights);
            free(stream.workers[i].out);
            free(stream.workers[i].transfers);
        }
    }
    free(stream.workers);
    free(latency);
    return rc;
}

int bench_send_stream(const struct options *options) {
    struct session session = {.options = options};
    struct report report;
    int rc;

    if (report_begin(&report, options) != 0)
        return EXIT_FAILED;
    rc = session_start(&session, options);
    if (rc == 0 && options->command == CMD_SWEEP) {
        for (uint64_t size = SWEEP_FIRST; rc == 0 && size <= SWEEP_LAST; size *= 2)
            rc = send_size(&session, &report, size);
    } else if (rc == 0) {
        rc = send_size(&session, &report, options->size);
    }
    if (rc == 0)
        rc = report_session(&report, &session);
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
