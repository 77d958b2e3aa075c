/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: see host.h. Owns the signal flag, whether a complaint was said and by whom, and the count
 * of remarks, the only state that files of the tool share, beside the table of CPUs. */
#define _GNU_SOURCE
#include "host.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define REMARKS_A_SECOND 8
#define SPEAKER_MAX      40
#define SAY_NS           NS_PER_S /* longer than a line takes to stderr */
#define LINE_MAX_BYTES   2048     /* of a complaint; what is longer is cut */

static atomic_bool interrupted;
/* A complaint: none yet, on its way to stderr, or out. */
enum said { SAID_NOTHING, SAID_HALF, SAID_ALL };
static atomic_int own_said;
static atomic_int *said = &own_said; /* or in memory that forked processes share */
static char speaker[SPEAKER_MAX];    /* "sender 3: ", or "" */
static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;
static cpu_set_t cpus_allowed;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now = {0};

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t host_now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t host_clock_ns(void) {
    uint64_t least = UINT64_MAX, start, now;

    /* The best of some runs: an interrupt is no part of it. */
    for (unsigned run = 0; run < 16; run++) {
        start = now = host_now_ns();
        for (unsigned i = 0; i < 64; i++)
            now = host_now_ns();
        least = now - start < least ? now - start : least;
    }
    return least / 64;
}

uint64_t host_cpu_ns(void) {
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t host_cpu_ns_of(int pid) {
    clockid_t clock;

    return clock_getcpuclockid(pid, &clock) == 0 ? clock_ns(clock) : 0;
}

static void cpus_read(void) {
    CPU_ZERO(&cpus_allowed);
    if (sched_getaffinity(0, sizeof(cpus_allowed), &cpus_allowed) != 0)
        CPU_SET(0, &cpus_allowed);
}

unsigned host_cpu_count(void) {
    pthread_once(&cpus_once, cpus_read);
    return (unsigned)CPU_COUNT(&cpus_allowed);
}

int host_cpu(unsigned index) {
    pthread_once(&cpus_once, cpus_read);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &cpus_allowed))
            continue;
        if (index == 0)
            return cpu;
        index--;
    }
    return -1;
}

void host_pin(int cpu) {
    cpu_set_t one;

    pthread_once(&cpus_once, cpus_read);
    one = cpus_allowed;
    if (cpu >= 0) {
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
    }
    /* A CPU that went offline since is no reason to stop: the thread runs unpinned. */
    (void)sched_setaffinity(0, sizeof(one), &one);
}

void host_pin_bench(bool alone) {
    host_pin(alone && host_cpu_count() > 1 ? host_cpu(0) : -1);
}

/* ---- idling ------------------------------------------------------------- */

#define IDLE_LEAST 16
#define IDLE_MOST  4096
/* A sched_yield(2) that takes no longer has found nobody else to run. */
#define YIELD_ALONE_NS (2 * NS_PER_US)

void host_offer_cpu(struct idler *idler) {
    uint64_t start = host_now_ns();

    sched_yield();
    if (host_now_ns() - start > YIELD_ALONE_NS || idler->every < IDLE_LEAST)
        idler->every = IDLE_LEAST;
    else if (idler->every < IDLE_MOST)
        idler->every *= 2;
    idler->passes = 0;
}

/* ---- memory ------------------------------------------------------------- */

/* The number behind `key` in a file of lines, times `unit`; UINT64_MAX when there is none. */
static uint64_t number_in(const char *path, const char *key, uint64_t unit) {
    FILE *file = fopen(path, "re");
    uint64_t value = UINT64_MAX;
    char line[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long number;
        if (strncmp(line, key, strlen(key)) == 0 &&
            sscanf(line + strlen(key), "%llu", &number) == 1) {
            value = number > UINT64_MAX / unit ? UINT64_MAX : number * unit;
            break;
        }
    }
    if (file != NULL)
        fclose(file);
    return value;
}

/* The memory that a control group, of either version, leaves of its limit. */
static uint64_t left_of(const char *limit_path, const char *used_path) {
    uint64_t limit = number_in(limit_path, "", 1), used = number_in(used_path, "", 1);

    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return used < limit ? limit - used : 0;
}

uint64_t host_memory_available(void) {
    uint64_t least = number_in("/proc/meminfo", "MemAvailable:", 1024);
    uint64_t groups[] = {
        left_of("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        left_of("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    };

    for (unsigned i = 0; i < 2; i++)
        least = groups[i] < least ? groups[i] : least;
    return least;
}

int host_check_memory(const char *what, uint64_t bytes) {
    uint64_t available = host_memory_available();

    if (bytes <= available)
        return 0;
    return complain("%s needs %.1f GiB of memory, and %.1f GiB are available", what,
                    (double)bytes / (1u << 30), (double)available / (1u << 30));
}

uint64_t host_descriptors(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    if (limit.rlim_cur != limit.rlim_max) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return before;
    }
    return limit.rlim_max;
}

void *host_map(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void *host_share(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void host_unmap(void *memory, uint64_t bytes) {
    if (memory != NULL)
        munmap(memory, bytes);
}

static void on_signal(int number) {
    (void)number;
    atomic_store_explicit(&interrupted, true, memory_order_relaxed);
}

void host_catch_signals(void) {
    /* No SA_RESTART: a sleep inside the engine ends early and the flag is looked at. */
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

bool host_interrupted(void) {
    return atomic_load_explicit(&interrupted, memory_order_relaxed);
}

void host_sleep_on(int fd, int other, uint64_t timeout_ns) {
    struct pollfd sources[] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    sigset_t caught, before;
    /* ppoll(2): between the look at the flag and the sleep no signal gets in. */
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &caught, &before);
    if (!host_interrupted())
        ppoll(sources, 2, timeout_ns == UINT64_MAX ? NULL : &timeout, &before);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* One write(2) a line: several processes may share stderr, and each line stays in one piece. */
static void print_line(const char *who, const char *format, va_list arguments) {
    char line[LINE_MAX_BYTES];
    size_t most = sizeof(line) - 1; /* and a newline */
    int used = snprintf(line, most, "weir: %s", who);

    vsnprintf(line + used, most - (size_t)used, format, arguments);
    strcat(line, "\n");
    fputs(line, stderr);
}

void host_complain_together(void) {
    atomic_int *shared = host_share(sizeof(*shared));

    if (shared != NULL && said == &own_said) {
        atomic_store(shared, atomic_load(said));
        said = shared;
    } else if (shared != NULL) {
        host_unmap(shared, sizeof(*shared));
    }
}

void host_complain_as(const char *name) {
    snprintf(speaker, sizeof(speaker), "%s: ", name);
}

/* A process that fails because another one does may end that one, which has to have said why. */
static void let_finish(void) {
    const struct timespec pause = {.tv_nsec = (long)NS_PER_MS};
    uint64_t until = host_now_ns() + SAY_NS;

    while (atomic_load(said) == SAID_HALF && host_now_ns() < until)
        nanosleep(&pause, NULL);
}

int complain(const char *format, ...) {
    int before = SAID_NOTHING;
    va_list arguments;

    if (!atomic_compare_exchange_strong(said, &before, SAID_HALF)) {
        let_finish();
        return -1;
    }
    va_start(arguments, format);
    print_line(speaker, format, arguments);
    va_end(arguments);
    atomic_store(said, SAID_ALL);
    return -1;
}

void remark(const char *format, ...) {
    static uint64_t since_ns, printed, left_out;
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    uint64_t now = host_now_ns();
    va_list arguments;

    if (since_ns == 0 || now - since_ns >= NS_PER_S) {
        since_ns = now;
        printed = 0;
    }
    if (printed == REMARKS_A_SECOND || poll(&out, 1, 0) != 1) {
        left_out++;
        return;
    }
    printed++;
    if (left_out > 0)
        fprintf(stderr, "weir: %" PRIu64 " lines like the next were left out\n", left_out);
    left_out = 0;
    va_start(arguments, format);
    print_line("", format, arguments);
    va_end(arguments);
}
