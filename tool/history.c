/* SPDX-License-Identifier: Apache-2.0 */
/* history.c: `weir trace PID`: the last changes of state of a process's engines, from outside. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "host.h"
#include "weir.h"

/* In the first line of a trace, before how many changes of state it has. */
#define COUNT_WORDS ", here the last "

static void complain_of(const struct options *options, int error) {
    const char *pid = options->files[0];

    switch (error) {
    case WEIR_ESTALE:
        if (options->engine != OPTIONS_ALL)
            complain("trace: process %s has no engine %" PRIu64, pid, options->engine);
        else
            complain("trace: process %s has no engine", pid);
        break;
    case WEIR_EPEER:
        complain("trace: there is no process %s", pid);
        break;
    case WEIR_EDENIED:
        complain("trace: process %s is not ours to look at: it takes its user, or root with "
                 "CAP_SYS_PTRACE",
                 pid);
        break;
    case WEIR_ENOTREADY:
        complain("trace: an engine of process %s is being opened", pid);
        break;
    case WEIR_ENOTSUP:
        complain("trace: the weir of process %s is another version", pid);
        break;
    default:
        complain("trace: process %s: %s (%s)", pid, weir_strerror(error), weir_error_name(error));
    }
}

/* The first line, which says how many there are here, and the last `lines` of the others. */
static void print_last(const char *text, uint64_t lines) {
    const char *head = strchr(text, '\n'), *at = text + strlen(text);
    const char *here = strstr(text, COUNT_WORDS);
    uint64_t i;

    if (head == NULL)
        return;
    for (i = 0; i <= lines && at > head + 1; i++) {
        do
            at--;
        while (at > head && at[-1] != '\n');
        if (i == lines) { /* one too many */
            at = strchr(at, '\n') + 1;
            break;
        }
    }
    if (here != NULL && here < head)
        printf("%.*s" COUNT_WORDS "%" PRIu64 "\n%s", (int)(here - text), text, i, at);
    else
        printf("%.*s%s", (int)(head + 1 - text), text, at);
}

/* One engine. ESTALE: there are not so many. */
static int print_one(const struct options *options, int64_t pid, size_t index, bool first) {
    uint32_t format = options->json_flag != 0 ? WEIR_TRACE_JSON : WEIR_TRACE_TEXT;
    size_t size = 0, length;
    char *text;
    int rc = weir_process_trace(pid, index, format, NULL, 0, &size);

    if (rc != 0)
        return rc;
    text = malloc(size);
    if (text == NULL)
        return WEIR_ENOMEM;
    rc = weir_process_trace(pid, index, format, text, size, &length);
    if (rc == 0) {
        if (!first)
            putchar('\n');
        if (options->last > 0 && format == WEIR_TRACE_TEXT)
            print_last(text, options->last);
        else
            fputs(text, stdout);
    }
    free(text);
    return rc;
}

int history_print(const struct options *options) {
    int64_t pid = (int64_t)strtoull(options->files[0], NULL, 10);
    size_t index = options->engine != OPTIONS_ALL ? (size_t)options->engine : 0;
    bool all = options->engine == OPTIONS_ALL, printed = false;
    bool one = options->json_flag != 0; /* a file has one trace */
    int rc, opening = 0;

    do {
        rc = print_one(options, pid, index++, !printed);
        printed |= rc == 0;
        opening = rc == WEIR_ENOTREADY ? rc : opening;
    } while (all && ((rc == 0 && !one) || rc == WEIR_ENOTREADY));
    if (printed && opening != 0)
        complain_of(options, opening);
    if (rc == 0 || (rc == WEIR_ESTALE && printed))
        return EXIT_OK; /* that was the last one */
    if (rc == WEIR_ESTALE && opening != 0)
        rc = opening;
    complain_of(options, rc);
    return EXIT_FAILED;
}
