/* SPDX-License-Identifier: Apache-2.0 */
/* bench_limits.c: `bench limits`: the yardsticks of machine_limits.h, size by size. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "host.h"
#include "report.h"

#define SIZE_FIRST 8
#define SIZE_LAST  (4u << 20)
#define EACH_NS    (20 * NS_PER_MS)
#define WARM_NS    (50 * NS_PER_MS)
#define LINE       64
#define COLD_SIZE  (64u << 10)
#define COLD_NS    (300 * NS_PER_MS)

static void row_print(FILE *out, const char *label, const double *rates, size_t count) {
    char text[32];

    fprintf(out, "%-12s", label);
    for (size_t i = 0; i < count; i++)
        fprintf(out, " %18s", rates[i] > 0 ? report_rate_text(rates[i], text) : "-");
    fputc('\n', out);
    fflush(out);
}

/* A rate that was not measured is 0, and null in JSON. */
static json_t *rate_json(double rate) {
    return rate > 0 ? json_real(rate) : json_null();
}

/* Rates by size, all hot: memcpy, non-temporal, process_vm_writev. */
static json_t *sizes_measure(FILE *out) {
    json_t *rows = json_array();

    fprintf(out, "%-12s %18s %18s %18s\n", "hot", "memcpy", "non-temporal", "process_vm_writev");
    /* The first 50 ms on a CPU that slept are slower: they are nobody's. */
    (void)limits_copy(COPY_MEMCPY, COPY_IN_TURN, SIZE_FIRST, 0, 1, WARM_NS);
    for (uint64_t size = SIZE_FIRST; size <= SIZE_LAST && !host_interrupted(); size *= 2) {
        char label[32];
        double rates[3] = {limits_copy(COPY_MEMCPY, COPY_IN_TURN, size, 0, 1, EACH_NS)};

        if (limits_has_stream() && size >= LINE)
            rates[1] = limits_copy(COPY_STREAM, COPY_IN_TURN, size, 0, 1, EACH_NS);
        rates[2] = limits_vm_write(size, 1, EACH_NS);
        row_print(out, options_size_text(size, label), rates, 3);
        json_array_append_new(
            rows, json_pack("{s:I, s:o, s:o, s:o}", "size", (json_int_t)size, "memcpy_bytes_per_s",
                            rate_json(rates[0]), "nontemporal_bytes_per_s", rate_json(rates[1]),
                            "process_vm_writev_bytes_per_s", rate_json(rates[2])));
    }
    fprintf(out, "  hot: in turn through buffers that stay in the caches\n"
                 "  non-temporal: lines of 64 bytes past the caches, and a fence after each\n"
                 "    copy; a small copy takes as long as its fence\n"
                 "  process_vm_writev: one call for each copy\n");
    return rows;
}

int bench_limits(const struct options *options) {
    FILE *out = report_out(options);
    struct report report;
    double cold[2] = {0}, line;
    char span[32], label[64], text[32];
    int rc = -1;

    if (report_begin(&report, options) != 0 ||
        host_check_memory("bench limits", 2 * options->cold) != 0)
        goto out;
    if (report_set(&report, "hot", sizes_measure(out)) != 0)
        goto out;
    cold[0] = limits_copy(COPY_MEMCPY, COPY_RANDOM, COLD_SIZE, options->cold, 1, COLD_NS);
    if (limits_has_stream())
        cold[1] = limits_copy(COPY_STREAM, COPY_RANDOM, COLD_SIZE, options->cold, 1, COLD_NS);
    options_size_text(options->cold, span);
    snprintf(label, sizeof(label), "64 KiB cold");
    row_print(out, label, cold, 2);
    fprintf(out, "  (random places of two buffers of %s)\n", span);
    line = limits_line(COLD_NS);
    fprintf(out, "cache line between two CPUs, one way: %s\n",
            line > 0 ? report_time_text(line, text) : "only one CPU here");
    rc = report_set(&report, "cold_64k",
                    json_pack("{s:I, s:o, s:o}", "span_bytes", (json_int_t)options->cold,
                              "memcpy_bytes_per_s", rate_json(cold[0]), "nontemporal_bytes_per_s",
                              rate_json(cold[1])));
    if (rc == 0)
        rc = report_set(&report, "cache_line_ns", rate_json(line));
    if (rc == 0 && host_interrupted())
        rc = complain("interrupted");
    if (rc == 0)
        rc = report_end(&report);
out:
    report_free(&report);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
