/* SPDX-License-Identifier: Apache-2.0 */
/* headline.c: see headline.h. One table has them all. */
#include "headline.h"

#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "report.h"

/* The members that every bench with a limit has. */
#define LIMITED(name, kind)                                                                        \
    .share = {.bench = (name), .path = "fraction_of_limit"},                                       \
    .limit = {.bench = (name), .path = "limit." kind},                                             \
    .limit_name = {.bench = (name), .path = "limit.name"}

#define ROWS(name, rows, which, member)                                                            \
    { .bench = (name), .path = (member), .pick = (which), .array = (rows) }

static const struct headline machine[] = {
    {.title = "memcpy of 64 KiB, in caches",
     .place = {.bench = "limits",
               .path = "memcpy_bytes_per_s",
               .pick = PICK_KEY,
               .array = "hot",
               .key = "size",
               .value = 65536},
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "best plain copy of 64 KiB, in caches",
     .place = {.bench = "write hot", .path = "limit.bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "memcpy of 64 KiB, random places",
     .place = {.bench = "limits", .path = "cold_64k.memcpy_bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "non-temporal copy of 64 KiB, random places",
     .place = {.bench = "limits", .path = "cold_64k.nontemporal_bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "a cache line to another CPU",
     .place = {.bench = "limits", .path = "cache_line_ns"},
     .unit = UNIT_NS,
     .better = BETTER_LESS},
};

static const struct headline headlines[] = {
    {.title = "writes of 64 KiB, in caches",
     .place = {.bench = "write hot", .path = "bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE,
     LIMITED("write hot", "bytes_per_s")},
    {.title = "writes of 64 KiB, random places",
     .place = {.bench = "write cold", .path = "bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE,
     LIMITED("write cold", "bytes_per_s")},
    {.title = "page fill, writes alone",
     .place = {.bench = "fill", .path = "write_bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE,
     LIMITED("fill", "bytes_per_s")},
    {.title = "replay of a trace, transfers alone",
     .place = {.bench = "replay", .path = "transfer_bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE,
     LIMITED("replay", "bytes_per_s")},
    {.title = "8 bytes and a notification, one way, p50",
     .place = {.bench = "latency", .path = "latency_ns.p50"},
     .unit = UNIT_NS,
     .better = BETTER_LESS,
     LIMITED("latency", "latency_ns")},
    {.title = "a message of 8 bytes, one way, p50",
     .place = {.bench = "send latency", .path = "latency_ns.p50"},
     .unit = UNIT_NS,
     .better = BETTER_LESS,
     LIMITED("send latency", "latency_ns")},
    {.title = "replay with making and checking",
     .place = {.bench = "replay", .path = "bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "a request of the replay, to notified, p50",
     .place = {.bench = "replay", .path = "latency_notified_ns.p50"},
     .unit = UNIT_NS,
     .better = BETTER_LESS},
    {.title = "a request of the replay, to notified, p99",
     .place = {.bench = "replay", .path = "latency_notified_ns.p99"},
     .unit = UNIT_NS,
     .better = BETTER_LESS},
    {.title = "writes of 8 bytes",
     .place = ROWS("sweep write", "results", PICK_FIRST, "ops_per_s"),
     .unit = UNIT_PER_S,
     .better = BETTER_MORE},
    {.title = "reads of 8 bytes",
     .place = ROWS("sweep read", "results", PICK_FIRST, "ops_per_s"),
     .unit = UNIT_PER_S,
     .better = BETTER_MORE},
    {.title = "messages of 8 bytes",
     .place = ROWS("sweep send", "results", PICK_FIRST, "ops_per_s"),
     .unit = UNIT_PER_S,
     .better = BETTER_MORE},
    {.title = "writes of 4 MiB",
     .place = ROWS("sweep write", "results", PICK_LAST, "bytes_per_s"),
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "reads of 4 MiB",
     .place = ROWS("sweep read", "results", PICK_LAST, "bytes_per_s"),
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "messages of 4 MiB",
     .place = ROWS("sweep send", "results", PICK_LAST, "bytes_per_s"),
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "p99.9 at the highest paced load",
     .place = ROWS("pace", "rows", PICK_LAST, "latency_ns.p999"),
     .unit = UNIT_NS,
     .better = BETTER_LESS},
    {.title = "the load that was missed by most",
     .place = ROWS("pace", "rows", PICK_LEAST, "error"),
     .unit = UNIT_SHARE,
     .better = BETTER_MORE},
    {.title = "a sleeping engine is awake, p50",
     .place = {.bench = "wake", .path = "latency_ns.p50"},
     .unit = UNIT_NS,
     .better = BETTER_LESS},
    {.title = "CPU of an idle engine",
     .place = {.bench = "wake", .path = "idle_cpu_fraction"},
     .unit = UNIT_SHARE,
     .better = BETTER_LESS},
    {.title = "many senders to one, all together",
     .place = {.bench = "incast", .path = "sum_bytes_per_s"},
     .unit = UNIT_RATE,
     .better = BETTER_MORE},
    {.title = "fairness among the senders (1: equal)",
     .place = {.bench = "incast", .path = "fairness"},
     .unit = UNIT_NUMBER,
     .better = BETTER_MORE},
    {.title = "handshakes of a storm",
     .place = ROWS("storm", "rows", PICK_LAST, "handshakes_per_s"),
     .unit = UNIT_PER_S,
     .better = BETTER_MORE},
    {.title = "peers of storms that failed",
     .place = ROWS("storm", "rows", PICK_SUM, "failed"),
     .unit = UNIT_NUMBER,
     .better = BETTER_LESS},
    {.title = "the longest gap of a fault",
     .place = ROWS("faults", "faults", PICK_MOST, "gap_ms"),
     .unit = UNIT_MS,
     .better = BETTER_LESS},
    {.title = "transfers lost in all faults",
     .place = ROWS("faults", "faults", PICK_SUM, "lost"),
     .unit = UNIT_NUMBER,
     .better = BETTER_LESS},
};

size_t headline_machine(const struct headline **headlines_out) {
    *headlines_out = machine;
    return sizeof(machine) / sizeof(machine[0]);
}

size_t headline_all(const struct headline **headlines_out) {
    *headlines_out = headlines;
    return sizeof(headlines) / sizeof(headlines[0]);
}

/* ---- the summary -------------------------------------------------------- */

static void print_about(FILE *out, struct results *results) {
    char cpu[128], cpus[16], kernel[64], weir[32], device[32];

    fprintf(out, "%s, %s CPUs\nLinux %s, weir %s, device %s\n",
            results_about(results, "machine.cpu", cpu, sizeof(cpu)),
            results_about(results, "machine.cpus_usable", cpus, sizeof(cpus)),
            results_about(results, "machine.kernel", kernel, sizeof(kernel)),
            results_about(results, "versions.weir", weir, sizeof(weir)),
            results_about(results, "options.device", device, sizeof(device)));
}

static void print_headline(FILE *out, struct results *results, const struct headline *headline) {
    struct figure figure = results_figure(results, &headline->place), share = {.rounds = 0};
    char value[32], spread[32], of[32];

    if (headline->share.bench != NULL)
        share = results_figure(results, &headline->share);
    if (figure.rounds == 0)
        return;
    figure_spread_text(&figure, spread);
    fprintf(out, "%-42s %10s", headline->title, figure_text(headline->unit, figure.median, value));
    if (spread[0] != '\0' || share.rounds > 0)
        fprintf(out, " %8s", spread);
    if (share.rounds > 0 && share.median > REPORT_SHARE_MOST)
        fputs("  limit disturbed", out); /* in 80 columns */
    else if (share.rounds > 0)
        fprintf(out, "  %s of limit", figure_text(UNIT_LIMIT, share.median, of));
    fputc('\n', out);
}

/* Sizes at which there are more operations a second than at the size below. */
static void print_falls(FILE *out, struct results *results, const char *bench) {
    struct place place = {
        .bench = bench, .path = "ops_per_s", .pick = PICK_KEY, .array = "results", .key = "size"};
    double *sizes = malloc(RESULTS_ROWS_MAX * sizeof(*sizes)), before = 0;
    unsigned count = sizes == NULL ? 0 : results_keys(results, bench, "results", "size", sizes);
    char text[32] = "";
    unsigned falls = 0;

    for (unsigned i = 0; i < count; i++) {
        place.value = sizes[i];
        struct figure figure = results_figure(results, &place);
        if (i > 0 && figure.median > 1.1 * before && falls++ == 0)
            figure_text(UNIT_BYTES, sizes[i], text);
        before = figure.median;
    }
    free(sizes);
    if (falls > 0)
        fprintf(out, "%s: over 10 %% more op/s than a size below at %u of %u, first %s\n", bench,
                falls, count, text);
}

void headline_print(FILE *out, struct results *results) {
    print_about(out, results);
    for (size_t i = 0; i < sizeof(headlines) / sizeof(headlines[0]); i++)
        print_headline(out, results, &headlines[i]);
    print_falls(out, results, "sweep write");
    print_falls(out, results, "sweep read");
    print_falls(out, results, "sweep send");
    for (size_t i = 0; i < results_runs(results); i++) {
        struct run run = results_run(results, i);
        if (run.failed > 0)
            fprintf(out, "FAILED: %s, %u of %u rounds: %s\n", run.name, run.failed, run.rounds,
                    run.error);
    }
}
