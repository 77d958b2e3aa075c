/* report.c: see report.h. Standard output has the table, unless `--json -` sends the JSON
 * there: then the table goes to stderr, so that a pipe gets nothing but JSON. */
#define _GNU_SOURCE
#include "report.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "host.h"

static FILE *table_of(const struct report *report) {
    const char *json = report->options->json;

    return json != NULL && strcmp(json, "-") == 0 ? stderr : stdout;
}

const char *report_rate_text(double bytes_per_s, char *out) {
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    unsigned unit = 0;

    while (unit < 4 && bytes_per_s >= 999.5) {
        bytes_per_s /= 1000;
        unit++;
    }
    snprintf(out, 32, "%.*f %s",
             bytes_per_s >= 99.95   ? 0
             : bytes_per_s >= 9.995 ? 1
                                    : 2,
             bytes_per_s, units[unit]);
    return out;
}

const char *report_time_text(double ns, char *out) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    unsigned unit = 0;

    while (unit < 3 && ns >= 1000) {
        ns /= 1000;
        unit++;
    }
    snprintf(out, 32, "%.*f %s", unit == 0 || ns >= 100 ? 0 : 2, ns, units[unit]);
    return out;
}

/* ---- the machine -------------------------------------------------------- */

/* The first "model name" of /proc/cpuinfo; other architectures have none. */
static void cpu_model(char *out, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(out, size, "unknown");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    fclose(file);
}

static json_t *machine_json(void) {
    struct utsname name = {.sysname = ""};
    char model[200];

    uname(&name);
    cpu_model(model, sizeof(model));
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I}", "kernel", name.release, "architecture",
                     name.machine, "cpu", model, "cpus_usable", (int)host_cpu_count(),
                     "cpus_online", (int)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE));
}

static json_t *versions_json(void) {
    return json_pack("{s:s, s:s, s:s, s:s}", "weir", weir_version(), "compiler", __VERSION__,
                     "libc", gnu_get_libc_version(), "jansson", JANSSON_VERSION);
}

static void option_json(const char *name, const char *text, void *context) {
    json_object_set_new(context, name, json_string(text));
}

/* ---- the report --------------------------------------------------------- */

int report_begin(struct report *report, const struct options *options) {
    json_t *chosen = json_object();

    *report = (struct report){.options = options};
    options_each(options, option_json, chosen);
    report->results = json_array();
    report->root = json_pack(
        "{s:s, s:o, s:o, s:o, s:s, s:O}", "bench", options_command_name(options->command),
        "options", chosen, "versions", versions_json(), "machine", machine_json(), "device",
        options->device != NULL ? options->device : "shm", "results", report->results);
    return report->root != NULL ? 0 : complain("out of memory");
}

void report_free(struct report *report) {
    json_decref(report->results);
    json_decref(report->root);
    *report = (struct report){.options = report->options};
}

int report_set(struct report *report, const char *name, json_t *value) {
    return json_object_set_new(report->root, name, value) == 0 ? 0 : complain("out of memory");
}

int report_counters(struct report *report, weir_engine *engine) {
    weir_stats stats = WEIR_STATS_INIT;
    json_t *counters = json_object();
    int rc = weir_engine_stats(engine, &stats);

    if (rc != 0) {
        json_decref(counters);
        return complain("counters: %s", weir_strerror(rc));
    }
#define SET_COUNTER(name, text)                                                                    \
    json_object_set_new(counters, #name, json_integer((json_int_t)stats.name));
    WEIR_STATS(SET_COUNTER)
#undef SET_COUNTER
    return report_set(report, "device_counters", counters);
}

/* How much of the limit was reached; 0 when none applies or none could be measured. */
static double fraction_of(const struct result *result, double bytes_per_s) {
    if (result->limit.latency_ns > 0 && result->latency != NULL && result->latency->count > 0)
        return result->limit.latency_ns / (double)histogram_quantile(result->latency, 5000);
    if (result->limit.bytes_per_s > 0)
        return (result->limit_bytes_per_s > 0 ? result->limit_bytes_per_s : bytes_per_s) /
               result->limit.bytes_per_s;
    return 0;
}

static const struct {
    const char *name;
    unsigned quantile; /* of 10,000 */
} quantiles[] = {{"p50", 5000}, {"p99", 9900}, {"p999", 9990}, {"max", 10000}};
#define QUANTILES (sizeof(quantiles) / sizeof(quantiles[0]))

static json_t *latency_json(const struct histogram *latency) {
    json_t *object = json_object();

    for (size_t i = 0; i < QUANTILES; i++)
        json_object_set_new(
            object, quantiles[i].name,
            json_integer((json_int_t)histogram_quantile(latency, quantiles[i].quantile)));
    json_object_set_new(object, "samples", json_integer((json_int_t)latency->count));
    return object;
}

static json_t *result_json(const struct result *r, double fraction) {
    double ops = r->ops > 0 ? (double)r->ops : 1, seconds = r->seconds > 0 ? r->seconds : 1e-9;
    json_t *object = json_pack(
        "{s:s, s:f, s:f, s:f, s:{s:f, s:f}, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:I}", "label",
        r->label, "ops_per_s", (double)r->ops / seconds, "transfers_per_s",
        (double)r->transfers / seconds, "bytes_per_s", (double)r->bytes / seconds, "cpu_ns_per_op",
        "initiator", (double)r->cpu_initiator_ns / ops, "target", (double)r->cpu_target_ns / ops,
        "verified", r->checked_bytes > 0 && r->wrong_bytes == 0, "checked_bytes",
        (json_int_t)r->checked_bytes, "wrong_bytes", (json_int_t)r->wrong_bytes, "ops",
        (json_int_t)r->ops, "transfers", (json_int_t)r->transfers, "bytes", (json_int_t)r->bytes,
        "seconds", r->seconds, "operation", r->op, "submits_repeated", (json_int_t)r->eagain);

    if (object == NULL)
        return NULL;
    if (r->latency != NULL) {
        json_object_set_new(object, "latency_ns", latency_json(r->latency));
        json_object_set_new(object, "latency_of", json_string(r->latency_of));
    } else {
        json_object_set_new(object, "latency_ns", json_null());
    }
    json_object_set_new(object, "fraction_of_limit",
                        fraction > 0 ? json_real(fraction) : json_null());
    if (r->limit.name[0] != '\0')
        json_object_set_new(object, "limit",
                            json_pack("{s:s, s:f, s:f}", "name", r->limit.name, "bytes_per_s",
                                      r->limit.bytes_per_s, "latency_ns", r->limit.latency_ns));
    if (r->extra != NULL)
        json_object_update(object, r->extra);
    return object;
}

/* Three digits: "1.23us", "12.3us", "123us". */
static const char *cell_time(double ns, char out[32]) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    unsigned unit = 0;

    while (unit < 3 && ns >= 999.5) {
        ns /= 1000;
        unit++;
    }
    snprintf(out, 32, "%.*f%s",
             unit == 0 || ns >= 99.95 ? 0
             : ns >= 9.995            ? 1
                                      : 2,
             ns, units[unit]);
    return out;
}

/* Header and rows fit a terminal of 80 columns, and the manual page. */
#define HEAD_FORMAT "%-8s %8s %9s %6s %6s %6s %6s %6s %6s %5s\n"

static void print_row(FILE *out, const struct result *r, double rate, double fraction) {
    double ops = r->ops > 0 ? (double)r->ops : 1;
    char text[32];

    fprintf(out, "%-8s %8.0f %9s", r->label, (double)r->ops / r->seconds,
            rate > 0 ? report_rate_text(rate, text) : "-");
    for (size_t i = 0; i < QUANTILES; i++)
        fprintf(out, " %6s",
                r->latency != NULL
                    ? cell_time((double)histogram_quantile(r->latency, quantiles[i].quantile), text)
                    : "-");
    fprintf(out, " %6s", cell_time((double)r->cpu_initiator_ns / ops, text));
    fprintf(out, " %6s", cell_time((double)r->cpu_target_ns / ops, text));
    if (fraction > 0)
        fprintf(out, " %4.*f%%\n", fraction < 0.9995 ? 1 : 0, 100 * fraction);
    else
        fprintf(out, " %5s\n", "-");
}

int report_add(struct report *report, const struct result *result) {
    FILE *out = table_of(report);
    double rate = (double)result->bytes / result->seconds;
    double fraction = fraction_of(result, rate);
    json_t *object = result_json(result, fraction);

    json_decref(result->extra);
    if (report->rows++ == 0)
        fprintf(out, HEAD_FORMAT, "", "op/s", "bytes", "p50", "p99", "p99.9", "max", "cpu/op",
                "target", "limit");
    print_row(out, result, rate, fraction);
    fflush(out);
    report->wrong_bytes += result->wrong_bytes;
    if (object == NULL || json_array_append_new(report->results, object) != 0)
        return complain("out of memory");
    return 0;
}

static void print_notes(FILE *out, const json_t *result, bool last_of_many) {
    const char *limit =
        json_string_value(json_object_get(json_object_get(result, "limit"), "name"));
    const char *of = json_string_value(json_object_get(result, "latency_of"));
    json_int_t checked = json_integer_value(json_object_get(result, "checked_bytes"));
    json_int_t wrong = json_integer_value(json_object_get(result, "wrong_bytes"));

    fprintf(out, "  an operation: %s", json_string_value(json_object_get(result, "operation")));
    if (of != NULL)
        fprintf(out, "\n  p50 to max: %s", of);
    fprintf(out, "\n  cpu/op, target: CPU time an operation, of this process and of the target");
    if (limit != NULL)
        fprintf(out, "\n  limit: share of %s%s", limit, last_of_many ? " (last row)" : "");
    if (wrong > 0)
        fprintf(out,
                "\n  VERIFICATION FAILED: %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                " bytes are wrong",
                wrong, checked);
    else if (checked > 0)
        fprintf(out, "\n  verified: all of %" JSON_INTEGER_FORMAT " bytes", checked);
    fputc('\n', out);
}

int report_end(struct report *report) {
    const char *json = report->options->json;
    size_t rows = json_array_size(report->results);
    int rc = 0;

    if (rows > 0) {
        const json_t *last = json_array_get(report->results, rows - 1);
        print_notes(table_of(report), last, rows > 1);
        /* One result stands at the top too, where a program looks first. */
        if (rows == 1) {
            json_object_update_missing(report->root, json_array_get(report->results, 0));
            json_object_del(report->root, "results");
        }
    }
    if (json != NULL && strcmp(json, "-") == 0) {
        rc = json_dumpf(report->root, stdout, JSON_INDENT(2));
        putchar('\n');
    } else if (json != NULL) {
        rc = json_dump_file(report->root, json, JSON_INDENT(2));
    }
    if (rc != 0)
        return complain("%s: cannot be written: %s", json, strerror(errno));
    if (report->wrong_bytes != 0)
        return complain("%" PRIu64 " bytes are wrong", report->wrong_bytes);
    return 0;
}

/* ---- the live line ------------------------------------------------------ */

#define PROGRESS_EVERY_NS (200 * NS_PER_MS)

void progress_begin(struct progress *progress, const char *what) {
    *progress = (struct progress){.what = what, .started_ns = host_now_ns(), .on = isatty(2)};
    progress->shown_ns = progress->started_ns;
}

void progress_show(struct progress *progress, uint64_t bytes, double fraction) {
    uint64_t now;
    double seconds;
    char rate[32], size[32];

    if (!progress->on)
        return;
    now = host_now_ns();
    if (now - progress->shown_ns < PROGRESS_EVERY_NS)
        return;
    progress->shown_ns = now;
    seconds = (double)(now - progress->started_ns) / 1e9;
    fprintf(stderr, "\r%s: %s, %s, %.0f s left\033[K", progress->what,
            options_size_text(bytes, size), report_rate_text((double)bytes / seconds, rate),
            fraction > 0 ? seconds / fraction - seconds : 0);
}

void progress_end(struct progress *progress) {
    if (progress->on)
        fputs("\r\033[K", stderr);
}
