/* SPDX-License-Identifier: Apache-2.0 */
/* bench_fill.c: `bench fill`: a target fills pages at random places of our memory.
 *
 * Our memory has twice as many places as there are pages. For each repetition a new random
 * choice of places goes into a list, the target is told, reads the list one-sided, and writes
 * all pages in one transfer with a notification. Then every byte is checked against the content
 * of (repetition, page), and the places that were not chosen must still hold what they held. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "content.h"
#include "host.h"
#include "report.h"
#include "session.h"

#define FILL_SEED 0x7765697200000002u

struct fill {
    struct session *session;
    struct result *result;
    uint64_t *places;   /* a permutation; the first `pages` are this repetition's */
    uint64_t *contents; /* key of what each place holds; 0: zeros still */
    uint64_t stride;
    uint64_t place_count;
    uint64_t list_read_ns;
    uint64_t write_ns;
    uint64_t generate_ns;
    uint64_t verify_ns;
    uint64_t random;
};

/* The first `pages` steps of a Fisher-Yates shuffle, on from the last permutation. */
static void choose_places(struct fill *fill, uint64_t pages) {
    uint64_t *list = (uint64_t *)(void *)((unsigned char *)fill->session->base +
                                          proto_list_offset(&fill->session->open, 0));

    for (uint64_t i = 0; i < pages; i++) {
        uint64_t other = i + random_below(&fill->random, fill->place_count - i);
        uint64_t place = fill->places[other];
        fill->places[other] = fill->places[i];
        fill->places[i] = list[i] = place;
    }
}

static uint64_t wrong_in_place(const struct fill *fill, uint64_t place) {
    const unsigned char *at = (const unsigned char *)fill->session->base + place * fill->stride;
    uint64_t length = fill->session->options->page_size, wrong = 0;

    if (fill->contents[place] != 0)
        return content_wrong(at, length, fill->contents[place]);
    for (uint64_t i = 0; i < length; i++)
        wrong += at[i] != 0;
    return wrong;
}

static void verify_places(struct fill *fill, uint64_t repetition, uint64_t pages) {
    uint64_t stream = content_key(FILL_SEED, repetition), start = host_now_ns();

    for (uint64_t i = 0; i < pages; i++)
        fill->contents[fill->places[i]] = content_key(stream, i);
    for (uint64_t place = 0; place < fill->place_count; place++)
        fill->result->wrong_bytes += wrong_in_place(fill, place);
    fill->result->checked_bytes += fill->place_count * fill->session->options->page_size;
    fill->verify_ns += host_now_ns() - start;
}

static int fill_once(struct fill *fill, uint64_t repetition) {
    struct session *session = fill->session;
    struct proto_count count = {.count = session->options->pages};
    struct proto_fill_done done;
    weir_notification message;
    uint64_t start;

    choose_places(fill, count.count);
    start = host_now_ns();
    if (session_send(session, proto_tag(PROTO_FILL, repetition), &count, sizeof(count), NULL, 0) !=
            0 ||
        session_await(session, PROTO_FILLED, &message) != 0)
        return -1;
    histogram_add(fill->result->latency, host_now_ns() - start);
    if (proto_argument(message.tag) != repetition)
        return complain("the target filled repetition %" PRIu64 " instead of %" PRIu64,
                        proto_argument(message.tag), repetition);
    verify_places(fill, repetition, count.count);
    if (session_await(session, PROTO_FILL_DONE, &message) != 0)
        return -1;
    if (message.length != sizeof(done))
        return complain("the target's answer has a wrong length");
    memcpy(&done, message.payload, sizeof(done));
    fill->list_read_ns += done.list_read_ns;
    fill->write_ns += done.write_ns;
    fill->generate_ns += done.generate_ns;
    return 0;
}

static int fill_run(struct fill *fill) {
    const struct options *o = fill->session->options;
    struct result *result = fill->result;
    struct proto_marked before, after;
    struct progress progress;
    uint64_t start, cpu;

    if (session_mark(fill->session, &before) != 0)
        return -1;
    cpu = host_cpu_ns();
    start = host_now_ns();
    progress_begin(&progress, "fill");
    for (uint64_t i = 0; i < o->repeat; i++) {
        if (fill_once(fill, i) != 0)
            return -1;
        result->bytes = (i + 1) * o->pages * o->page_size;
        progress_show(&progress, result->bytes, (double)(i + 1) / (double)o->repeat);
    }
    progress_end(&progress);
    result->seconds = (double)(host_now_ns() - start) / 1e9;
    result->cpu_initiator_ns = host_cpu_ns() - cpu;
    if (session_mark(fill->session, &after) != 0)
        return -1;
    result->cpu_target_ns = after.cpu_ns - before.cpu_ns;
    result->transfers = o->repeat;
    result->ops = o->repeat * o->pages;
    if (fill->write_ns > 0)
        result->limit_bytes_per_s = (double)result->bytes * 1e9 / (double)fill->write_ns;
    result->extra = json_pack(
        "{s:{s:I, s:I, s:I, s:I}, s:f}", "split", "list_read_ns", (json_int_t)fill->list_read_ns,
        "write_ns", (json_int_t)fill->write_ns, "generate_ns", (json_int_t)fill->generate_ns,
        "verify_ns", (json_int_t)fill->verify_ns, "write_bytes_per_s", result->limit_bytes_per_s);
    return 0;
}

/* The rate at which the machine copies at best into random places. */
static struct limit fill_limit(const struct fill *fill) {
    const struct options *o = fill->session->options;

    return limits_of_copy(COPY_RANDOM, o->page_size, fill->stride * fill->place_count, 1,
                          (enum memory_kind)o->memory, o->page_size <= 65536 ? LIMITS_PIECES : 1);
}

static int fill_session(struct fill *fill, struct report *report) {
    struct session *session = fill->session;
    struct limit after;
    const struct options *o = session->options;
    struct proto_open open = {.kind = PROTO_KIND_FILL,
                              .page_bytes = o->page_size,
                              .page_stride = fill->stride,
                              .page_count = fill->place_count,
                              .lanes = 1,
                              .seats = 1,
                              .list_bytes = o->pages * 8,
                              .seed = FILL_SEED};

    /* Of the yardstick's two buffers; the session's memory, at another time, is less. */
    if (host_check_memory("bench fill", 2 * proto_bytes(&open)) != 0)
        return -1;
    fill->result->limit = fill_limit(fill);
    host_pin_bench(o->peer == NULL);
    if (session_start(session, o) != 0 ||
        session_open(session, &open, proto_bytes(&open), SESSION_EXPORT) != 0 ||
        fill_run(fill) != 0 || session_close(session) != 0)
        return -1;
    after = fill_limit(fill);
    limit_raise(&fill->result->limit, &after);
    if (report_add(report, fill->result) != 0)
        return -1;
    char rate[32], share[32];
    FILE *out = report_out(o);
    fprintf(out, "  writes alone: %s%s\n", report_rate_text(fill->result->limit_bytes_per_s, rate),
            report_share_text(fill->result, share));
    fprintf(out, "    (the row is with list, notification and verification)\n");
    return report_session(report, session);
}

int bench_fill(const struct options *options) {
    struct session session = {.options = options};
    struct histogram *latency = calloc(1, sizeof(*latency));
    struct result result = {.op = "one page", .label = "fill", .latency = latency};
    struct fill fill = {.session = &session, .result = &result, .random = FILL_SEED};
    struct report report;
    int rc = -1;

    result.latency_of = "of a repetition, from asking to being notified";
    fill.place_count = 2 * options->pages;
    fill.stride = (options->page_size + 63) & ~UINT64_C(63);
    fill.places = calloc(fill.place_count, sizeof(*fill.places));
    fill.contents = calloc(fill.place_count, sizeof(*fill.contents));
    for (uint64_t i = 0; fill.places != NULL && i < fill.place_count; i++)
        fill.places[i] = i;
    if (report_begin(&report, options) == 0) {
        if (latency != NULL && fill.places != NULL && fill.contents != NULL)
            rc = fill_session(&fill, &report);
        else
            complain("out of memory");
    }
    session_end(&session);
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    free(fill.places);
    free(fill.contents);
    free(latency);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
