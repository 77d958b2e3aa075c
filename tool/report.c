/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: see report.h. Standard output has the table, unless `--json -` sends the JSON
 * there: then the table goes to stderr, so that a pipe gets nothing but JSON. */
#define _GNU_SOURCE
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fold.h"
#include "host.h"
#include "settings.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

FILE *report_out(const struct options *options) {
    return options->json != NULL && strcmp(options->json, "-") == 0 ? stderr : stdout;
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

const char *report_of_limit_text(double fraction, char *out) {
    bool disturbed = fraction > REPORT_SHARE_MOST;

    snprintf(out, 32, "%s%.*f %% of the limit", disturbed ? "over " : "", disturbed ? 0 : 1,
             100 * (disturbed ? REPORT_SHARE_MOST : fraction));
    return out;
}

const char *report_share_text(const struct result *result, char *out) {
    double fraction = report_fraction(result);

    char text[32];

    out[0] = '\0';
    if (fraction > 0)
        snprintf(out, 32, ", %.29s", report_of_limit_text(fraction, text));
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

json_t *report_machine_json(void) {
    struct utsname name = {.sysname = ""};
    char model[200];

    uname(&name);
    cpu_model(model, sizeof(model));
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I}", "kernel", name.release, "architecture",
                     name.machine, "cpu", model, "cpus_usable", (int)host_cpu_count(),
                     "cpus_online", (int)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE));
}

json_t *report_versions_json(void) {
    return json_pack("{s:s, s:s, s:s, s:s}", "weir", weir_version(), "compiler", COMPILER, "libc",
                     gnu_get_libc_version(), "jansson", JANSSON_VERSION);
}

static void option_json(const struct option_value *value, void *context) {
    json_t *json = value->type == OPTION_BOOL      ? json_boolean(value->integer)
                   : value->type == OPTION_INTEGER ? json_integer((json_int_t)value->integer)
                   : value->type == OPTION_REAL    ? json_real(value->real)
                   : value->type == OPTION_WORD    ? json_string(value->word)
                                                   : json_null();

    json_object_set_new(context, value->name, json);
}

/* A number that was measured, or null. */
static json_t *measured(double value) {
    return value > 0 ? json_real(value) : json_null();
}

/* ---- the report --------------------------------------------------------- */

/* Before anything is measured: that the file cannot be written is better known now. */
static int open_json(struct report *report) {
    const char *path = report->options->json;

    if (path == NULL || strcmp(path, "-") == 0)
        return 0;
    report->json_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    report->json_is_new = report->json_fd >= 0;
    if (report->json_fd < 0 && errno == EEXIST)
        report->json_fd = open(path, O_WRONLY | O_CLOEXEC);
    return report->json_fd >= 0 ? 0 : complain("--json %s: %s", path, strerror(errno));
}

int report_begin(struct report *report, const struct options *options) {
    json_t *chosen = json_object();

    *report = (struct report){.options = options, .json_fd = -1};
    options_each(options, option_json, chosen);
    report->results = json_array();
    report->root = json_pack(
        "{s:s, s:o, s:o, s:o, s:s, s:O}", "bench", options_command_name(options->command),
        "options", chosen, "versions", report_versions_json(), "machine", report_machine_json(),
        "device", options->device != NULL ? options->device : "shm", "results", report->results);
    if (report->root == NULL)
        complain("out of memory");
    if (report->root != NULL && open_json(report) == 0)
        return 0;
    report_free(report);
    return -1;
}

void report_free(struct report *report) {
    if (report->json_fd >= 0)
        close(report->json_fd);
    if (report->json_is_new) /* and nothing was put into it */
        unlink(report->options->json);
    json_decref(report->results);
    json_decref(report->root);
    *report = (struct report){.options = report->options, .json_fd = -1};
}

int report_set(struct report *report, const char *name, json_t *value) {
    return json_object_set_new(report->root, name, value) == 0 ? 0 : complain("out of memory");
}

int report_stats(struct report *report, const weir_engine_info *stats) {
    json_t *counters = json_object();

#define SET_COUNTER(name, text)                                                                    \
    json_object_set_new(counters, #name, json_integer((json_int_t)stats->name));
    WEIR_COUNTERS(SET_COUNTER)
#undef SET_COUNTER
    return report_set(report, "device_counters", counters);
}

int report_counters(struct report *report, weir_engine *engine) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    int rc = weir_engine_query(engine, &stats);

    return rc == 0 ? report_stats(report, &stats) : complain("counters: %s", weir_strerror(rc));
}

int report_settings(struct report *report, const weir_engine_options *options) {
    return report_set(report, "settings", settings_in_force(options));
}

/* One QP. */
static json_t *qp_json(const weir_qp_info *qp) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "sq_depth", (json_int_t)qp->sq_depth,
                     "sq_high_water", (json_int_t)qp->sq_high_water, "bytes", (json_int_t)qp->bytes,
                     "partial_posts", (json_int_t)qp->partial_posts, "orphans",
                     (json_int_t)qp->orphans);
}

int granted_query(weir_engine *engine, weir_peer peer, struct granted *out) {
    int rc;

    out->peer = (weir_peer_info)WEIR_PEER_INFO_INIT;
    rc = weir_peer_query(engine, peer, &out->peer);
    for (out->count = 0; rc == 0 && out->count < WEIR_QPS_MAX; out->count++) {
        out->qps[out->count] = (weir_qp_info)WEIR_QP_INFO_INIT;
        if (weir_qp_query(engine, peer, out->count, &out->qps[out->count]) != 0)
            break;
    }
    return rc == 0 ? 0 : complain("the peer's queues: %s", weir_strerror(rc));
}

int report_grant(struct report *report, const struct granted *granted) {
    const weir_qp_info none = WEIR_QP_INFO_INIT;
    const weir_qp_info *all = granted->count > 0 ? &granted->qps[0] : &none;
    json_t *qps = json_array();

    for (size_t i = 0; i < granted->count; i++)
        json_array_append_new(qps, qp_json(&granted->qps[i]));
    return report_set(report, "granted",
                      json_pack("{s:i, s:i, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "qp_count",
                                (int)granted->peer.qp_count, "sq_depth",
                                (int)granted->peer.sq_depth, "qps", qps, "sessions",
                                (json_int_t)all->sessions, "recoveries",
                                (json_int_t)all->recoveries, "replays", (json_int_t)all->replays,
                                "admission_waits", (json_int_t)all->admission_waits,
                                "admission_wait_ns", (json_int_t)all->admission_wait_ns,
                                "inflight_waits", (json_int_t)all->inflight_waits,
                                "inflight_wait_ns", (json_int_t)all->inflight_wait_ns));
}

int report_granted(struct report *report, weir_engine *engine, weir_peer peer) {
    struct granted granted;

    return granted_query(engine, peer, &granted) == 0 ? report_grant(report, &granted) : -1;
}

int report_session(struct report *report, const struct session *session) {
    if (report_counters(report, session->engine) != 0 ||
        report_settings(report, &session->asked) != 0)
        return -1;
    return report_granted(report, session->engine, session->peer);
}

double report_fraction(const struct result *result) {
    if (result->limit.latency_ns > 0 && result->latency != NULL && result->latency->count > 0)
        return result->limit.latency_ns / (double)histogram_quantile(result->latency, 5000);
    if (result->limit.bytes_per_s > 0)
        return (result->limit_bytes_per_s > 0 ? result->limit_bytes_per_s
                                              : (double)result->bytes / result->seconds) /
               result->limit.bytes_per_s;
    return 0;
}

static const struct {
    const char *name;
    unsigned quantile; /* of 10,000 */
    bool in_json_only;
} quantiles[] = {{"p50", 5000, false},
                 {"p99", 9900, false},
                 {"p999", 9990, false},
                 {"p9999", 9999, true},
                 {"max", 10000, false}};
#define QUANTILES (sizeof(quantiles) / sizeof(quantiles[0]))

json_t *report_latency_json(const struct histogram *latency) {
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
        json_object_set_new(object, "latency_ns", report_latency_json(r->latency));
        json_object_set_new(object, "latency_of", json_string(r->latency_of));
        json_object_set_new(object, "latency_clock_ns", measured(r->clock_ns));
    } else {
        json_object_set_new(object, "latency_ns", json_null());
    }
    json_object_set_new(object, "fraction_of_limit",
                        fraction > 0 ? json_real(fraction) : json_null());
    if (r->limit.name[0] != '\0')
        json_object_set_new(object, "limit",
                            json_pack("{s:s, s:o, s:o}", "name", r->limit.name, "bytes_per_s",
                                      measured(r->limit.bytes_per_s), "latency_ns",
                                      measured(r->limit.latency_ns)));
    if (r->extra != NULL)
        json_object_update(object, r->extra);
    return object;
}

const char *report_cell_text(double ns, char *out) {
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
    for (size_t i = 0; i < QUANTILES; i++) {
        if (quantiles[i].in_json_only)
            continue;
        fprintf(out, " %6s",
                r->latency != NULL
                    ? report_cell_text(
                          (double)histogram_quantile(r->latency, quantiles[i].quantile), text)
                    : "-");
    }
    fprintf(out, " %6s", report_cell_text((double)r->cpu_initiator_ns / ops, text));
    fprintf(out, " %6s", report_cell_text((double)r->cpu_target_ns / ops, text));
    /* A rate compared in a line below the table is no share of this row's. */
    if (fraction > REPORT_SHARE_MOST && r->limit_bytes_per_s <= 0)
        fprintf(out, " %5s\n", ">200%");
    else if (fraction > 0 && r->limit_bytes_per_s <= 0)
        fprintf(out, " %4.*f%%\n", fraction < 0.9995 ? 1 : 0, 100 * fraction);
    else
        fprintf(out, " %5s\n", "-");
}

int report_add(struct report *report, const struct result *result) {
    FILE *out = report_out(report->options);
    double rate = (double)result->bytes / result->seconds;
    double fraction = report_fraction(result);
    json_t *object = result_json(result, fraction);

    json_decref(result->extra);
    if (report->rows++ == 0)
        fprintf(out, HEAD_FORMAT, "", "op/s", "bytes", "p50", "p99", "p99.9", "max", "cpu/op",
                "target", "limit");
    print_row(out, result, rate, fraction);
    fflush(out);
    report->wrong_bytes += result->wrong_bytes;
    report->checked_bytes += result->checked_bytes;
    report->bytes += result->bytes;
    report->initiator = result->initiator;
    report->limit_below = result->limit_bytes_per_s > 0;
    if (object == NULL || json_array_append_new(report->results, object) != 0)
        return complain("out of memory");
    return 0;
}

static void print_verified(FILE *out, const struct report *report) {
    if (report->wrong_bytes > 0)
        fprintf(out, "  VERIFICATION FAILED: %" PRIu64 " of %" PRIu64 " bytes are wrong\n",
                report->wrong_bytes, report->checked_bytes);
    else if (report->checked_bytes > report->bytes)
        fprintf(out, "  verified: all %" PRIu64 " bytes moved, and %" PRIu64 " left alone\n",
                report->bytes, report->checked_bytes - report->bytes);
    else if (report->checked_bytes > 0)
        fprintf(out, "  verified: all of %" PRIu64 " bytes\n", report->checked_bytes);
}

/* A line below the table: how long it is depends on the options and on the machine. */
static __attribute__((format(printf, 2, 3))) void print_note(FILE *out, const char *format, ...) {
    char line[256] = "  ";
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line + 2, sizeof(line) - 2, format, arguments);
    va_end(arguments);
    fold_print(out, line);
}

static void print_notes(const struct report *report, const json_t *result, bool last_of_many) {
    FILE *out = report_out(report->options);
    const char *limit =
        json_string_value(json_object_get(json_object_get(result, "limit"), "name"));
    const char *of = json_string_value(json_object_get(result, "latency_of"));
    double clock_ns = json_real_value(json_object_get(result, "latency_clock_ns"));

    print_note(out, "an operation: %s", json_string_value(json_object_get(result, "operation")));
    if (of != NULL)
        print_note(out, "p50 to max: %s", of);
    if (clock_ns > 0)
        print_note(out, "of each of these, reading the clock took %.0f ns", clock_ns);
    print_note(out, "cpu/op, target: CPU time an operation, of %s and of the target",
               report->initiator != NULL ? report->initiator : "this process");
    if (limit != NULL)
        print_note(out, "%s%s",
                   last_of_many          ? "limit (last row): "
                   : report->limit_below ? "limit: "
                                         : "limit: share of ",
                   limit);
}

/* All of the JSON, or none of it. A file that is there already is replaced only now. */
static int write_json(struct report *report) {
    const char *path = report->options->json;
    char *text = json_dumps(report->root, JSON_INDENT(2));
    size_t length = text != NULL ? strlen(text) : 0, at = 0;
    int rc = text != NULL ? 0 : complain("out of memory");

    if (rc == 0 && report->json_fd < 0) {
        fputs(text, stdout); /* main looks whether that went well */
        putchar('\n');
    } else if (rc == 0) {
        (void)ftruncate(report->json_fd, 0); /* a pipe or a device has no length */
        text[length++] = '\n';               /* in place of the terminator */
        while (at < length) {
            ssize_t wrote = write(report->json_fd, text + at, length - at);
            if (wrote <= 0)
                break;
            at += (size_t)wrote;
        }
        if (at < length) {
            rc = complain("--json %s: %s", path, strerror(errno));
            (void)ftruncate(report->json_fd, 0);
        }
        report->json_is_new = report->json_is_new && rc != 0;
    }
    free(text);
    return rc;
}

int report_end(struct report *report) {
    size_t rows = json_array_size(report->results);

    if (rows > 0) {
        const json_t *last = json_array_get(report->results, rows - 1);
        print_notes(report, last, rows > 1);
        print_verified(report_out(report->options), report);
        /* One result stands at the top too, where a program looks first. */
        if (rows == 1)
            json_object_update_missing(report->root, json_array_get(report->results, 0));
    }
    if (rows < 2)
        json_object_del(report->root, "results");
    if (report->options->json != NULL && write_json(report) != 0)
        return -1;
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

/* Whether a line is due. */
static int progress_due(struct progress *progress, double *seconds_out) {
    uint64_t now;

    if (!progress->on)
        return 0;
    now = host_now_ns();
    if (now - progress->shown_ns < PROGRESS_EVERY_NS)
        return 0;
    progress->shown_ns = now;
    *seconds_out = (double)(now - progress->started_ns) / 1e9;
    return 1;
}

void progress_show(struct progress *progress, uint64_t bytes, double fraction) {
    double seconds;
    char rate[32], size[32];

    if (progress_due(progress, &seconds))
        fprintf(stderr, "\r%s: %s, %s, %.0f s left\033[K", progress->what,
                options_size_text(bytes, size), report_rate_text((double)bytes / seconds, rate),
                fraction > 0 ? seconds / fraction - seconds : 0);
}

void progress_count(struct progress *progress, uint64_t done, uint64_t all, const char *what) {
    double seconds;

    if (progress_due(progress, &seconds))
        fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " %s, after %.1f s\033[K", progress->what,
                done, all, what, seconds);
}

void progress_end(struct progress *progress) {
    if (progress->on)
        fputs("\r\033[K", stderr);
}
