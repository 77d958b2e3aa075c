/* host.c: see host.h. Owns the signal flag and the "said already" flag, the only globals of
 * the tool beside the table of CPUs. */
#define _GNU_SOURCE
#include "host.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

static atomic_bool interrupted;
static atomic_flag complained = ATOMIC_FLAG_INIT;
static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;
static cpu_set_t cpus_allowed;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t host_now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t host_cpu_ns(void) {
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
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

void *host_map(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

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

int complain(const char *format, ...) {
    va_list arguments;

    if (atomic_flag_test_and_set(&complained))
        return -1;
    va_start(arguments, format);
    flockfile(stderr);
    fputs("weir: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(arguments);
    return -1;
}
