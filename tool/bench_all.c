/* SPDX-License-Identifier: Apache-2.0 */
/* bench_all.c: `bench all`: each bench of the suite as a process of its own, in rounds, so that
 * what else the machine does hits all of them alike. A bench that fails is a result as well, and
 * the others go on. results.json is written at the end, and after an interrupt; the page at the
 * end. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "child.h"
#include "file.h"
#include "headline.h"
#include "host.h"
#include "page.h"
#include "report.h"
#include "results.h"

#define ROUNDS       3
#define REQUESTS     2000 /* of the generated trace */
#define REQUESTS_FEW 100
#define TRACE_SEED   1
#define WORDS_MAX    32 /* of a command */
#define RESULT_MOST  (64u << 20)
#define ERROR_MOST   256 /* bytes of a bench's line that are kept */

#define QUICK_POOL   " --kv-bytes-per-token 64 --pool 16M"

/* The suite, in order. @ stands for the trace's file. */
static const struct bench {
    const char *name; /* in results.json */
    const char *command;
    const char *options; /* " --word value", or "" */
    const char *quick;   /* in place of these */
    bool takes_device;
} benches[] = {
    {"limits", "limits", "", " --cold 16M", false},
    {"replay", "replay", " --trace @", " --trace @" QUICK_POOL, true},
    {"latency", "write", " --latency --seconds 1", " --latency --seconds 0.05", true},
    {"send latency", "send", " --latency --seconds 1", " --latency --seconds 0.05", true},
    {"wake", "wake", " --seconds 1", " --seconds 0.1", true},
    {"fill", "fill", " --repeat 50", " --repeat 3 --pages 64", true},
    {"write hot", "write", " --seconds 1", " --seconds 0.05", true},
    {"write cold", "write", " --seconds 1 --cold 1G", " --seconds 0.05 --cold 16M", true},
    {"sweep write", "sweep", " --seconds 0.2", " --seconds 0.01", true},
    {"sweep read", "sweep", " --seconds 0.2 --op read", " --seconds 0.01 --op read", true},
    {"sweep send", "sweep", " --seconds 0.2 --op send", " --seconds 0.01 --op send", true},
    {"pace", "pace", "", " --seconds 0.05", true},
    {"incast", "incast", "", " --senders 3 --seconds 0.1", true},
    {"storm", "storm", "", " --peers 20", true},
    {"faults", "faults", "", " --seconds 0.1", true},
};
#define BENCHES (sizeof(benches) / sizeof(benches[0]))

struct suite {
    const struct options *options;
    unsigned rounds;
    uint64_t start_ns;
    char *trace, *results, *page; /* files */
    json_t *root, *runs;          /* runs: root's "benches", borrowed */
    unsigned done, failed;
};

/* ---- one bench ---------------------------------------------------------- */

/* Cuts text into words at its spaces, in place; returns how many. */
static unsigned cut(char *text, const char *trace, const char **words, unsigned most) {
    unsigned count = 0;
    char *rest;

    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < most;
         word = strtok_r(NULL, " ", &rest))
        words[count++] = strcmp(word, "@") == 0 ? trace : word;
    return count;
}

/* The last line of a bench's standard error that complains, without "weir: "; or, without one, what
 * is known. Characters other than plain ones are replaced. */
static json_t *error_line(char *text, int status) {
    char line[ERROR_MOST], *from = NULL, *rest;

    for (char *at = strtok_r(text, "\n", &rest); at != NULL; at = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(at, "weir: ", 6) == 0)
            from = at + 6;
    }
    if (from == NULL && status == 0)
        return json_string("no result");
    if (from == NULL)
        return json_sprintf("ended with status %d", status);
    snprintf(line, sizeof(line), "%s", from);
    for (char *at = line; *at != '\0'; at++)
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    return json_string(line);
}

/* The round of a bench that has ended. */
static json_t *round_json(int out, int err, int status, double seconds) {
    char *text = file_text(out, RESULT_MOST), *said = file_text(err, RESULT_MOST);
    json_t *result = text != NULL ? json_loads(text, 0, NULL) : NULL, *error = NULL;

    if ((status != 0 || result == NULL) && said != NULL)
        error = error_line(said, status);
    if (result == NULL && status == 0)
        status = EXIT_FAILED;
    free(text);
    free(said);
    return json_pack("{s:f, s:i, s:o?, s:o?}", "seconds", seconds, "status", status, "error", error,
                     "result", result);
}

/* Runs it; NULL: it could not be started, which was complained of. */
static json_t *bench_run(const struct suite *suite, const struct bench *bench) {
    const struct options *o = suite->options;
    const char *argv[WORDS_MAX] = {CHILD_BENCH, "bench", bench->command, "--json", "-"};
    char *words = strdup(o->quick != 0 ? bench->quick : bench->options);
    int out = file_in_memory("result"), err = file_in_memory("error"), pid = -1;
    uint64_t start = host_now_ns();
    json_t *round = NULL;
    unsigned count = 5;

    if (words == NULL) {
        complain("out of memory");
    } else if (out >= 0 && err >= 0) {
        count += cut(words, suite->trace, argv + count, WORDS_MAX - count - 3);
        if (bench->takes_device && o->device != NULL) {
            argv[count++] = "--device";
            argv[count++] = o->device;
        }
        pid = child_start(CHILD_SELF, (char *const *)(uintptr_t)argv,
                          &(struct child_files){-1, out, err}, -1);
    }
    if (pid > 0) {
        int status = child_wait(pid, UINT64_MAX);
        round = round_json(out, err, status, (double)(host_now_ns() - start) / 1e9);
    }
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    free(words);
    return round;
}

/* ---- the suite ---------------------------------------------------------- */

/* "bench write --seconds 1", with the file of the trace. */
static char *command_text(const struct suite *suite, const struct bench *bench) {
    const char *options = suite->options->quick != 0 ? bench->quick : bench->options;
    const char *at = strchr(options, '@');
    const char *device = bench->takes_device ? suite->options->device : NULL;
    char *text = NULL;

    if (asprintf(&text, "bench %s%.*s%s%s%s%s", bench->command,
                 at != NULL ? (int)(at - options) : (int)strlen(options), options,
                 at != NULL ? suite->trace : "", at != NULL ? at + 1 : "",
                 device != NULL ? " --device " : "", device != NULL ? device : "") < 0)
        return NULL;
    return text;
}

static int suite_begin(struct suite *suite) {
    const struct options *o = suite->options;
    char started[32];
    time_t now = time(NULL);
    struct tm utc;

    strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    suite->runs = json_array();
    for (size_t i = 0; i < BENCHES; i++) {
        char *command = command_text(suite, &benches[i]);
        json_array_append_new(suite->runs, json_pack("{s:s, s:s, s:[]}", "name", benches[i].name,
                                                     "command", command, "rounds"));
        free(command);
    }
    suite->root = json_pack(
        "{s:i, s:s, s:{s:i, s:b, s:s?, s:s}, s:o, s:o, s:o}", "format", RESULTS_FORMAT, "started",
        started, "options", "rounds", (int)suite->rounds, "quick", (int)o->quick, "trace", o->trace,
        "device", o->device != NULL ? o->device : "shm", "versions", report_versions_json(),
        "machine", report_machine_json(), "benches", suite->runs);
    if (suite->root == NULL || json_array_size(suite->runs) != BENCHES)
        return complain("bench all: no memory, or the name of a file is no UTF-8");
    suite->start_ns = host_now_ns();
    return 0;
}

/* false: errno says why. */
static bool is_directory(const char *path) {
    struct stat stat_of;

    if (stat(path, &stat_of) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(stat_of.st_mode);
}

/* The directory, and a trace if none was named. */
static int suite_files(struct suite *suite) {
    const struct options *o = suite->options;

    if (mkdir(o->out, 0777) != 0 && (errno != EEXIST || !is_directory(o->out)))
        return complain("bench all --out %s: %s", o->out, strerror(errno));
    if (access(o->out, W_OK | X_OK) != 0)
        return complain("bench all --out %s: %s", o->out, strerror(errno));
    if (asprintf(&suite->results, "%s/results.json", o->out) < 0 ||
        asprintf(&suite->page, "%s/report.html", o->out) < 0 ||
        asprintf(&suite->trace, "%s%s", o->trace != NULL ? o->trace : o->out,
                 o->trace != NULL ? "" : "/trace.jsonl") < 0)
        return complain("out of memory");
    if (o->trace != NULL)
        return 0;
    return bench_trace(&(struct options){.command = CMD_TRACE,
                                         .requests = o->quick != 0 ? REQUESTS_FEW : REQUESTS,
                                         .seed = TRACE_SEED,
                                         .output = suite->trace}) == EXIT_OK
               ? 0
               : -1;
}

/* All benches once. -1: interrupted, or one could not be started. */
static int suite_round(struct suite *suite, unsigned round) {
    for (size_t i = 0; i < BENCHES; i++) {
        json_t *rounds = json_object_get(json_array_get(suite->runs, i), "rounds"), *one;

        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\rround %u of %u: %s\033[K", round + 1, suite->rounds,
                    benches[i].name);
        one = bench_run(suite, &benches[i]);
        if (isatty(STDERR_FILENO))
            fputs("\r\033[K", stderr);
        if (host_interrupted()) {
            json_decref(one); /* of a bench that was cut short */
            return complain("interrupted");
        }
        if (one == NULL)
            return -1;
        suite->done++;
        suite->failed += json_integer_value(json_object_get(one, "status")) != 0;
        if (json_array_append_new(rounds, one) != 0)
            return complain("out of memory");
    }
    return 0;
}

/* results.json, then the page: the figures are not lost when the page cannot be made. */
static int suite_write(struct suite *suite, bool complete) {
    double seconds = (double)(host_now_ns() - suite->start_ns) / 1e9;
    struct results results = results_of(suite->root, suite->results), *file = &results;
    char *text = NULL;
    int rc = -1;

    if (json_object_set_new(suite->root, "complete", json_boolean(complete)) == 0 &&
        json_object_set_new(suite->root, "seconds", json_real(seconds)) == 0)
        text = json_dumps(suite->root, JSON_INDENT(1));
    if (text == NULL)
        complain("out of memory");
    else
        rc = file_replace(suite->results, text, strlen(text));
    free(text);
    if (rc == 0 && complete) {
        headline_print(stdout, &results);
        fflush(stdout);
        rc = page_write(&file, 1, suite->page);
        if (rc == 0)
            printf("report: %s\n", suite->page);
    }
    results_free(&results);
    return rc;
}

int bench_all(const struct options *options) {
    struct suite suite = {.options = options};
    int rc;

    suite.rounds = options->rounds != 0  ? (unsigned)options->rounds
                   : options->quick != 0 ? 1
                                         : ROUNDS;
    rc = suite_files(&suite);
    if (rc == 0)
        rc = suite_begin(&suite);
    if (rc == 0) {
        for (unsigned round = 0; rc == 0 && round < suite.rounds; round++)
            rc = suite_round(&suite, round);
        if (suite.done > 0 && suite_write(&suite, rc == 0) != 0)
            rc = -1;
    }
    if (rc == 0 && suite.failed > 0)
        rc = complain("bench all: %u of %u runs failed", suite.failed, suite.done);
    json_decref(suite.root);
    free(suite.trace);
    free(suite.results);
    free(suite.page);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
