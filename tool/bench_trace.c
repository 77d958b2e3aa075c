/* SPDX-License-Identifier: Apache-2.0 */
/* bench_trace.c: `bench trace`: writes a generated trace, or describes a given one. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "host.h"
#include "trace.h"

/* ---- statistics --------------------------------------------------------- */

/* How often each id was seen: open addressing, at most half full. */
struct uses {
    uint64_t *ids;
    uint32_t *counts; /* 0: empty place */
    uint64_t mask;
    uint64_t distinct;
};

static int uses_init(struct uses *uses, uint64_t ids_max) {
    uint64_t places = 16;

    while (places < 2 * ids_max)
        places *= 2;
    *uses = (struct uses){.mask = places - 1};
    uses->ids = calloc(places, sizeof(*uses->ids));
    uses->counts = calloc(places, sizeof(*uses->counts));
    return uses->ids != NULL && uses->counts != NULL ? 0 : -1;
}

static void uses_fini(struct uses *uses) {
    free(uses->ids);
    free(uses->counts);
}

/* Where this id's count is. */
static uint32_t *uses_at(struct uses *uses, uint64_t id) {
    uint64_t at = mix64(id) & uses->mask;

    while (uses->counts[at] != 0 && uses->ids[at] != id)
        at = (at + 1) & uses->mask;
    uses->ids[at] = id;
    return &uses->counts[at];
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Sorts values. */
static void print_spread(FILE *out, const char *what, uint64_t *values, uint64_t count) {
    double sum = 0;

    if (count == 0)
        return;
    qsort(values, count, sizeof(*values), compare);
    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i];
    fprintf(out, "%-26s %10.1f %7" PRIu64 " %7" PRIu64 " %7" PRIu64 " %7" PRIu64 " %7" PRIu64 "\n",
            what, sum / (double)count, values[0], values[count / 2], values[count * 9 / 10],
            values[count * 99 / 100], values[count - 1]);
}

struct sharing {
    uint64_t longer;   /* requests that share more than their first block */
    uint64_t complete; /* whose blocks were all seen before */
};

/* Fills leading[] with how many first blocks of each request were seen before it. */
static struct sharing count_sharing(const struct trace *trace, struct uses *uses,
                                    uint64_t *leading) {
    struct sharing sharing = {0};

    for (uint64_t r = 0; r < trace->request_count; r++) {
        const struct trace_request *request = &trace->requests[r];
        const uint64_t *ids = trace->ids + request->first_id;
        uint64_t shared = 0;

        while (shared < request->block_count && *uses_at(uses, ids[shared]) != 0)
            shared++;
        for (uint32_t i = 0; i < request->block_count; i++) {
            uint32_t *count = uses_at(uses, ids[i]);
            uses->distinct += *count == 0;
            ++*count;
        }
        leading[r] = shared;
        sharing.longer += shared > 1;
        sharing.complete += shared == request->block_count;
    }
    return sharing;
}

static void print_lengths(FILE *out, const struct trace *trace, uint64_t *values) {
    uint64_t n = trace->request_count, batches = 0;
    const struct trace_request *requests = trace->requests;

    fprintf(out, "%-26s %10s %7s %7s %7s %7s %7s\n", "", "mean", "min", "p50", "p90", "p99", "max");
    for (uint64_t i = 0; i < n; i++)
        values[i] = requests[i].input_length;
    print_spread(out, "input tokens", values, n);
    for (uint64_t i = 0; i < n; i++)
        values[i] = requests[i].output_length;
    print_spread(out, "output tokens", values, n);
    for (uint64_t i = 0; i < n; i++)
        values[i] = requests[i].block_count;
    print_spread(out, "blocks of a request", values, n);
    for (uint64_t i = 0; i < n; i++) {
        /* Within a second is one batch: clocks differ by milliseconds. */
        if (i == 0 || requests[i].arrival_ms > requests[i - 1].arrival_ms + 1000)
            values[batches++] = 0;
        values[batches - 1]++;
    }
    print_spread(out, "requests of a batch", values, batches);
}

int trace_describe(const struct trace *trace, FILE *out) {
    uint64_t n = trace->request_count, once = 0, span;
    uint64_t *values = calloc(n, sizeof(*values));
    struct uses uses = {.ids = NULL};
    struct sharing sharing;
    int rc = -1;

    if (values == NULL || uses_init(&uses, trace->id_count) != 0) {
        complain("out of memory");
        goto out;
    }
    span = trace->requests[n - 1].arrival_ms - trace->requests[0].arrival_ms;
    fprintf(out, "requests %" PRIu64 " in %.1f s\n", n, (double)span / 1000);
    print_lengths(out, trace, values);
    sharing = count_sharing(trace, &uses, values);
    print_spread(out, "leading blocks seen before", values, n);
    for (uint64_t i = 0; i <= uses.mask; i++)
        once += uses.counts[i] == 1;
    fprintf(out, "blocks %" PRIu64 ", distinct %" PRIu64 ": %.1f %% new\n", trace->id_count,
            uses.distinct, 100 * (double)uses.distinct / (double)trace->id_count);
    fprintf(out, "distinct blocks used once %.1f %%\n", 100 * (double)once / (double)uses.distinct);
    fprintf(out, "requests that share more than the first block %.1f %%, all blocks %.1f %%\n",
            100 * (double)sharing.longer / (double)n, 100 * (double)sharing.complete / (double)n);
    rc = 0;
out:
    uses_fini(&uses);
    free(values);
    return rc;
}

/* ---- the command -------------------------------------------------------- */

static int write_to(const char *path, const struct trace *trace) {
    FILE *file = path != NULL ? fopen(path, "we") : stdout;
    int rc;

    if (file == NULL)
        return complain("%s: %s", path, strerror(errno));
    rc = trace_write(trace, file);
    if (path != NULL && fclose(file) != 0 && rc == 0)
        rc = complain("%s: %s", path, strerror(errno));
    return rc;
}

int bench_trace(const struct options *options) {
    struct trace trace = {.requests = NULL};
    int rc;

    if (options->describe != NULL) {
        rc = trace_load(options->describe, 0, &trace);
        if (rc == 0)
            rc = trace_describe(&trace, stdout);
    } else {
        rc = trace_generate(options->requests, options->seed, &trace);
        if (rc == 0)
            rc = write_to(options->output, &trace);
    }
    trace_free(&trace);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
