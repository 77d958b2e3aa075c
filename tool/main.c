/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the weir command: options to commands, nothing else. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "child.h"
#include "host.h"
#include "options.h"
#include "settings.h"
#include "target.h"

/* `bench write` with --latency is another bench than without. */
static int bench_write(const struct options *options) {
    return options->latency != LATENCY_NONE ? bench_latency(options) : bench_stream(options);
}

static int bench_send(const struct options *options) {
    return options->latency != LATENCY_NONE ? bench_send_latency(options)
                                            : bench_send_stream(options);
}

static int bench_sweep(const struct options *options) {
    return options->op == OP_SEND ? bench_send_stream(options) : bench_stream(options);
}

static int (*const runs[CMD_COUNT])(const struct options *options) = {
    [CMD_SERVE] = target_serve,    [CMD_INFO] = info_print,     [CMD_LIMITS] = bench_limits,
    [CMD_HISTORY] = history_print, [CMD_REPORT] = report_page,  [CMD_ALL] = bench_all,
    [CMD_WRITE] = bench_write,     [CMD_READ] = bench_stream,   [CMD_SEND] = bench_send,
    [CMD_SWEEP] = bench_sweep,     [CMD_PACE] = bench_pace,     [CMD_WAKE] = bench_wake,
    [CMD_FAULTS] = bench_faults,   [CMD_INCAST] = bench_incast, [CMD_STORM] = bench_storm,
    [CMD_FILL] = bench_fill,       [CMD_REPLAY] = bench_replay, [CMD_TRACE] = bench_trace,
};

/* A descriptor 0 to 2 that is closed would be the next one that is opened: a socket that gets
 * what is meant for standard output. The descriptors opened here instead cannot be written to. */
static void fill_standard(void) {
    int fd;

    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd >= 0)
        close(fd);
}

/* Nobody reads standard output any more. */
static bool unread(void) {
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

/* The output is out, or it is said that it is not. A reader that has seen enough ends us as it ends
 * any filter; SIGPIPE was only ignored for as long as others could have raised it. */
static int finish(int status) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    if (unread()) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    complain("standard output cannot be written");
    return EXIT_FAILED;
}

int main(int argc, char **argv) {
    struct options options;
    int status = EXIT_OK;

    fill_standard();
    switch (options_parse(argc, argv, &options)) {
    case OPTIONS_WRONG:
        return EXIT_USAGE;
    case OPTIONS_DONE:
        break;
    case OPTIONS_RUN:
        if (strncmp(argv[0], CHILD_NAME, strlen(CHILD_NAME)) != 0)
            settings_warn();
        (void)host_cpu_count(); /* before anything is pinned */
        host_catch_signals();
        status = runs[options.command](&options);
        break;
    }
    return finish(status);
}
