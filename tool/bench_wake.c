/* SPDX-License-Identifier: Apache-2.0 */
/* bench_wake.c: `bench wake`: what an idle engine costs, and how fast it is back.
 *
 * A child process opens an engine and sleeps in weir_engine_wait. For one half of the time nobody
 * does anything: the child's CPU time over that half is what being idle costs. For the other half
 * this process sends a notification every WAKE_PERIOD_NS, whose tag is when it was sent; the
 * child takes it as soon as it is awake, and counts how long ago that was. Both read the clock of
 * the one host that they run on. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "child.h"
#include "diagnose.h"
#include "host.h"
#include "report.h"
#include "weir.h"

#define WAKE_PERIOD_NS (2 * NS_PER_MS)
#define WAKE_PATIENCE  (5 * NS_PER_S)
#define SLEEP_MAX_NS   (3600 * NS_PER_S)
#define SLEEPER_FAILED (-2)

/* Tags that are no time. IDLE begins the idle half, BUSY ends it, END ends the run. */
enum { TAG_IDLE = 1, TAG_BUSY, TAG_END, TAG_TIMES };

/* The sleeper's report at the end. */
struct slept {
    struct histogram latency;
    uint64_t idle_ns; /* how long, and the CPU time in it */
    uint64_t idle_cpu_ns;
    uint64_t busy_ns;
    uint64_t busy_cpu_ns;
};

static int write_all(int fd, const void *bytes, size_t length) {
    const char *at = bytes;

    while (length > 0) {
        ssize_t wrote = write(fd, at, length);
        if (wrote <= 0)
            return -1;
        at += wrote;
        length -= (size_t)wrote;
    }
    return 0;
}

static int read_all(int fd, void *bytes, size_t length) {
    char *at = bytes;

    while (length > 0) {
        ssize_t got = read(fd, at, length);
        if (got <= 0)
            return -1;
        at += got;
        length -= (size_t)got;
    }
    return 0;
}

/* ---- the child ---------------------------------------------------------- */

/* Takes everything there is; true: that was the end. */
static bool sleeper_take(weir_engine *engine, struct slept *slept, uint64_t *since_ns,
                         uint64_t *since_cpu_ns) {
    weir_notification message;

    while (weir_notification_take(engine, &message) == 0) {
        uint64_t now = host_now_ns(), cpu;
        if (message.tag >= TAG_TIMES) {
            histogram_add(&slept->latency, now - message.tag);
            continue;
        }
        cpu = host_cpu_ns();
        if (message.tag == TAG_BUSY) {
            slept->idle_ns = now - *since_ns;
            slept->idle_cpu_ns = cpu - *since_cpu_ns;
        } else if (message.tag == TAG_END) {
            slept->busy_ns = now - *since_ns;
            slept->busy_cpu_ns = cpu - *since_cpu_ns;
            return true;
        }
        *since_ns = now;
        *since_cpu_ns = cpu;
    }
    return false;
}

static int sleeper_run(const struct options *options, int out) {
    weir_engine_options engine_options = WEIR_ENGINE_OPTIONS_INIT;
    static struct slept slept; /* 16 KiB: not on the stack */
    char address[WEIR_ADDRESS_MAX] = "";
    uint64_t since_ns = 0, since_cpu_ns = 0;
    weir_engine *engine;
    int rc;

    engine_options.device = options->device;
    rc = weir_engine_open(&engine_options, &engine);
    if (rc != 0) {
        diagnose_open(options, &engine_options, rc);
        return EXIT_FAILED;
    }
    if (weir_engine_address(engine, address, sizeof(address)) != 0 ||
        write_all(out, address, sizeof(address)) != 0)
        return EXIT_FAILED;
    while (!sleeper_take(engine, &slept, &since_ns, &since_cpu_ns)) {
        if (weir_engine_wait(engine, SLEEP_MAX_NS) < 0)
            return EXIT_FAILED;
    }
    if (write_all(out, &slept, sizeof(slept)) != 0)
        return EXIT_FAILED;
    weir_engine_close(engine);
    return EXIT_OK;
}

struct sleeper {
    const struct options *options;
    int ends[2]; /* of the pipe that its words come out of */
};

static int sleeper_begin(void *context) {
    const struct sleeper *sleeper = context;

    host_pin(host_cpu_count() > 1 ? host_cpu(1) : -1);
    close(sleeper->ends[0]);
    return sleeper_run(sleeper->options, sleeper->ends[1]);
}

/* The child; its words come out of *from_out. -1: none, which was complained of. */
static int sleeper_start(const struct options *options, int *from_out) {
    struct sleeper sleeper = {.options = options};
    int pid;

    if (pipe(sleeper.ends) != 0)
        return complain("the sleeper cannot be started: %s", strerror(errno));
    pid = child_fork(sleeper_begin, &sleeper);
    close(sleeper.ends[1]);
    if (pid < 0)
        close(sleeper.ends[0]);
    *from_out = sleeper.ends[0];
    return pid;
}

/* ---- this process ------------------------------------------------------- */

static void pause_ns(uint64_t ns) {
    struct timespec pause = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    nanosleep(&pause, NULL);
}

/* tag TAG_TIMES: the time. */
static int wake(weir_engine *engine, weir_peer peer, uint64_t tag) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    int rc;

    weir_engine_progress(engine);
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag == TAG_TIMES ? host_now_ns() : tag;
    rc = weir_write(engine, peer, NULL, 0, &options, &transfer);
    if (rc == 0 && transfer.id != 0) {
        rc = weir_transfer_wait(engine, transfer, WAKE_PATIENCE);
        weir_transfer_release(engine, transfer);
    }
    return rc == 0 ? 0 : complain("wake: %s", weir_strerror(rc));
}

static int wake_all(weir_engine *engine, weir_peer peer, struct report *report,
                    uint64_t *cpu_ns_out) {
    const struct options *options = report->options;
    uint64_t half = (uint64_t)(options->seconds * 1e9 / 2), start, cpu;

    if (wake(engine, peer, TAG_IDLE) != 0)
        return -1;
    pause_ns(half);
    if (wake(engine, peer, TAG_BUSY) != 0)
        return -1;
    start = host_now_ns();
    cpu = host_cpu_ns();
    do {
        pause_ns(WAKE_PERIOD_NS);
        if (host_interrupted())
            return complain("interrupted");
        if (wake(engine, peer, TAG_TIMES) != 0)
            return -1;
    } while (host_now_ns() - start < half);
    *cpu_ns_out = host_cpu_ns() - cpu;
    pause_ns(WAKE_PERIOD_NS);
    if (report_granted(report, engine, peer) != 0) /* the sleeper's end takes the session along */
        return -1;
    return wake(engine, peer, TAG_END);
}

static int wake_report(struct report *report, struct slept *slept, uint64_t cpu_ns) {
    struct result result = {.label = "wake",
                            .op = "one notification to a sleeping engine",
                            .latency = &slept->latency,
                            .latency_of = "from before the submit to taken by the woken thread",
                            .ops = slept->latency.count,
                            .transfers = slept->latency.count,
                            .cpu_initiator_ns = cpu_ns,
                            .cpu_target_ns = slept->busy_cpu_ns};
    double idle = (double)slept->idle_cpu_ns / (double)(slept->idle_ns > 0 ? slept->idle_ns : 1);

    result.seconds = (double)slept->busy_ns / 1e9;
    result.extra =
        json_pack("{s:f, s:I, s:I}", "idle_cpu_fraction", idle, "idle_ns",
                  (json_int_t)slept->idle_ns, "idle_cpu_ns", (json_int_t)slept->idle_cpu_ns);
    if (report_add(report, &result) != 0)
        return -1;
    fprintf(report_out(report->options), "  asleep and left alone: %.3f %% CPU over %.1f s\n",
            100 * idle, (double)slept->idle_ns / 1e9);
    return 0;
}

static int wake_run(const struct options *options, struct report *report, int from) {
    weir_engine_options engine_options = WEIR_ENGINE_OPTIONS_INIT;
    static struct slept slept;
    char address[WEIR_ADDRESS_MAX];
    uint64_t cpu_ns = 0;
    weir_engine *engine;
    weir_peer peer;
    int rc;

    if (read_all(from, address, sizeof(address)) != 0)
        return SLEEPER_FAILED;
    host_pin(host_cpu_count() > 1 ? host_cpu(0) : -1);
    engine_options.device = options->device;
    rc = weir_engine_open(&engine_options, &engine);
    if (rc != 0)
        return diagnose_open(options, &engine_options, rc);
    rc = weir_peer_open(engine, address, &peer);
    if (rc != 0)
        rc = complain("peer: %s", weir_strerror(rc));
    else
        rc = wake_all(engine, peer, report, &cpu_ns);
    if (rc == 0 && read_all(from, &slept, sizeof(slept)) != 0)
        rc = complain("the sleeper ended early");
    if (rc == 0)
        rc = wake_report(report, &slept, cpu_ns);
    if (rc == 0)
        rc = report_counters(report, engine);
    if (rc == 0)
        rc = report_settings(report, &engine_options);
    weir_engine_close(engine);
    return rc;
}

int bench_wake(const struct options *options) {
    struct report report;
    int rc = -1, from = -1, status, pid;

    if (report_begin(&report, options) == 0) {
        pid = sleeper_start(options, &from);
        if (pid > 0) {
            rc = wake_run(options, &report, from);
            close(from);
            if (rc != 0 && rc != SLEEPER_FAILED)
                kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            /* One that ended by itself has said why, and one line is enough. */
            if (rc == SLEEPER_FAILED && !(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILED))
                complain("the sleeper did not start");
        }
    }
    if (rc == 0)
        rc = report_end(&report);
    report_free(&report);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
