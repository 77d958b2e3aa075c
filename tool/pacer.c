/* SPDX-License-Identifier: Apache-2.0 */
/* pacer.c: see pacer.h. */
#include "pacer.h"

#include <stdlib.h>

#define BURST_MOST 16
#define LOOK_EVERY 1024 /* passes of a pacer that always has something to submit */

struct pacer_flight {
    weir_transfer transfer; /* id 0: it ended in its submit */
    uint64_t due_ns;
};

/* Lands what has ended, in the order of the submits. -1: one failed. */
static int land(struct pacer *pacer, uint64_t now) {
    weir_engine *engine = pacer->session->engine;

    for (; pacer->landed < pacer->submitted; pacer->landed++) {
        struct pacer_flight *flight = &pacer->flights[pacer->landed % pacer->options->window];
        if (flight->transfer.id != 0) {
            int rc = weir_transfer_status(engine, flight->transfer);
            if (rc == WEIR_EINPROGRESS)
                return 0;
            weir_transfer_release(engine, flight->transfer);
            if (rc != 0)
                return session_fail(pacer->session, options_command_name(pacer->options->command),
                                    rc);
        }
        if (pacer->latency != NULL)
            histogram_add(pacer->latency, now - flight->due_ns);
    }
    return 0;
}

/* Whether the next operation is due and has a place. Without a pace all are due. */
static inline bool is_due(const struct pacer *pacer, uint64_t now) {
    return pacer->submitted - pacer->landed < pacer->options->window &&
           pacer->submitted < pacer->pace.count &&
           pacer->start_ns + pace_due(&pacer->pace, pacer->submitted) <= now;
}

/* One operation, from or to the place. */
static int submit_one(struct pacer *pacer, uint64_t place, weir_transfer *transfer_out) {
    struct session *session = pacer->session;
    const weir_segment *segment = &pacer->segments[place];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {
        .local = segment->local, .offset = segment->local_offset, .length = segment->length};

    if (pacer->op == OP_WRITE)
        return weir_write(session->engine, session->peer, segment, 1, NULL, transfer_out);
    if (pacer->op == OP_READ)
        return weir_read(session->engine, session->peer, segment, 1, NULL, transfer_out);
    options.notify_tag = proto_message_tag(pacer->seat, pacer->sent);
    return weir_message_send(session->engine, session->peer, pacer->inbox, &part, 1, &options,
                             transfer_out);
}

/* Submits what is due. Returns how many; -1: one failed. */
static int submit(struct pacer *pacer, uint64_t now) {
    struct session *session = pacer->session;
    int count = 0;

    for (; count < BURST_MOST && is_due(pacer, now); count++) {
        uint64_t place = pacer->submitted % pacer->options->window;
        struct pacer_flight *flight = &pacer->flights[place];
        int rc = submit_one(pacer, place, &flight->transfer);
        if (rc == WEIR_EAGAIN) {
            pacer->eagain++;
            return count;
        }
        if (rc != 0)
            return session_fail(session, options_command_name(pacer->options->command), rc);
        flight->due_ns = pacer->start_ns + pace_due(&pacer->pace, pacer->submitted);
        pacer->submitted++;
        pacer->sent++;
    }
    return count;
}

/* A pass that had nothing to submit. -1: give up. */
static int idle(struct pacer *pacer, uint64_t now) {
    struct session *session = pacer->session;
    uint64_t landed = pacer->landed, first = landed % pacer->options->window;
    weir_transfer oldest = {0};

    if (pacer->sleeps && pacer->submitted - landed == pacer->options->window)
        weir_engine_wait(session->engine, 100 * NS_PER_MS);
    else
        weir_engine_progress(session->engine);
    if (landed < pacer->submitted) {
        oldest = pacer->flights[first].transfer;
        host_idle(&pacer->idler);
        if (session_patience(session, &pacer->patience, landed, oldest) != 0)
            return -1;
    }
    if (session_look(session) != 0)
        return -1;
    progress_show(&pacer->progress, landed * pacer->options->size,
                  (double)(now - pacer->start_ns) / (double)(pacer->cut_ns - pacer->start_ns));
    if (pacer->shown != NULL)
        atomic_store_explicit(pacer->shown, landed * pacer->options->size, memory_order_relaxed);
    return 0;
}

int pacer_run(struct pacer *pacer, uint64_t start_ns, uint64_t *length_out) {
    uint64_t now = host_now_ns(), look = 0;

    pacer->start_ns = start_ns;
    pacer->cut_ns += start_ns;
    pacer->submitted = pacer->landed = 0;
    while (pacer->landed < pacer->pace.count &&
           (now < pacer->cut_ns || pacer->landed == 0 || pacer->landed < pacer->submitted)) {
        int count = 0;
        if (now < pacer->cut_ns || pacer->submitted == 0)
            count = submit(pacer, now);
        if (count < 0 || ((count == 0 || ++look % LOOK_EVERY == 0) && idle(pacer, now) != 0))
            return -1;
        now = host_now_ns();
        if (land(pacer, now) != 0)
            return -1;
    }
    *length_out = now - pacer->start_ns;
    return 0;
}

int pacer_unpaced(struct pacer *pacer, uint64_t start_ns, uint64_t length_ns, double *rate_out) {
    uint64_t length;

    pacer->pace = (struct pace){.count = UINT64_MAX};
    pacer->cut_ns = length_ns;
    pacer->latency = NULL;
    pacer->eagain = 0;
    if (pacer_run(pacer, start_ns, &length) != 0)
        return -1;
    *rate_out = (double)pacer->landed * (double)pacer->options->size * 1e9 / (double)length;
    return 0;
}

uint64_t pacer_stride(const struct options *options) {
    return (options->size + 63) & ~UINT64_C(63);
}

struct proto_open pacer_open(const struct options *options, enum op_kind op) {
    return (struct proto_open){.kind = op == OP_READ ? PROTO_KIND_READ : PROTO_KIND_WRITE,
                               .page_bytes = options->size,
                               .page_stride = pacer_stride(options),
                               .page_count = options->window,
                               .lanes = options->window};
}

int pacer_init(struct pacer *pacer) {
    uint64_t window = pacer->options->window, stride = pacer_stride(pacer->options);

    pacer->flights = calloc(window, sizeof(*pacer->flights));
    pacer->segments = calloc(window, sizeof(*pacer->segments));
    if (pacer->flights == NULL || pacer->segments == NULL)
        return complain("out of memory");
    for (uint64_t i = 0; i < window; i++)
        pacer->segments[i] = (weir_segment){.local = pacer->session->memory,
                                            .remote = pacer->session->remote,
                                            .local_offset = i * stride,
                                            .remote_offset = i * stride,
                                            .length = pacer->options->size};
    return 0;
}

void pacer_free(struct pacer *pacer) {
    free(pacer->flights);
    free(pacer->segments);
    pacer->flights = NULL;
    pacer->segments = NULL;
}
