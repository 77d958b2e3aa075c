/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: the tool's questions to the machine: clocks, CPUs, memory, signals, and the one way in
 * which it says what went wrong. */
#ifndef TOOL_HOST_H
#define TOOL_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull

enum exit_status { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

uint64_t host_now_ns(void);
/* The cost of a look at that clock. */
uint64_t host_clock_ns(void);
/* CPU time that this process, all of its threads, has used. */
uint64_t host_cpu_ns(void);
/* That of another process of this user; 0 when there is none. */
uint64_t host_cpu_ns_of(int pid);

/* The index-th CPU that this process may run on; -1 when there are not so many. Counted at
 * the first call, before anything is pinned. */
int host_cpu(unsigned index);
unsigned host_cpu_count(void);
/* Pins the calling thread; negative: back to all CPUs that the process may run on. */
void host_pin(int cpu);
/* The calling thread to the first CPU, where there are two and the other side has the second;
 * or back to all: several benches against one target must not end up on one CPU. */
void host_pin_bench(bool alone);

/* How a thread polls that shares its CPU, perhaps with whom it waits for: after some passes
 * that found nothing it offers the CPU to others. While nobody takes it, it offers less and
 * less often, until it costs nothing. Zeroed is ready; one for each thread. */
struct idler {
    unsigned passes;
    unsigned every;
};
void host_offer_cpu(struct idler *idler);
/* One pass found nothing. */
static inline void host_idle(struct idler *idler) {
    if (++idler->passes > idler->every)
        host_offer_cpu(idler);
}

/* Memory that a new allocation can get without swapping or worse: what the kernel says is
 * available, or less where a control group allows less. UINT64_MAX: not known. */
uint64_t host_memory_available(void);
/* 0; or -1, after complaining that `what` needs so many bytes and fewer are available. The bytes
 * are those of this process and of a target on the same host. */
int host_check_memory(const char *what, uint64_t bytes);

/* Zeroed, populated, page-aligned memory; NULL when there is none. */
void *host_map(uint64_t bytes);
/* Zeroed memory that processes forked later share; NULL when there is none. host_unmap, too. */
void *host_share(uint64_t bytes);
void host_unmap(void *memory, uint64_t bytes);

/* How many descriptors this process may have open, after raising its limit as far as it may. */
uint64_t host_descriptors(void);

/* SIGINT and SIGTERM set a flag instead of ending the process; SIGPIPE is ignored. */
void host_catch_signals(void);
bool host_interrupted(void);
/* Until one of the descriptors is readable (-1: none), the time passed (UINT64_MAX: no limit), or a
 * caught signal came, also one that came before. */
void host_sleep_on(int fd, int other, uint64_t timeout_ns);

/* Prints "weir: ...", one line, on stderr. Only the first call of a process prints: a
 * later complaint is a consequence of the first. Returns -1. Any thread. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on this process and those that it forks have one complaint together. */
void host_complain_together(void);
/* Whose complaint it is that this process may make: "sender 3". */
void host_complain_as(const char *name);
/* Prints a line of one client of a server; the server goes on. Clients are not trusted: of many
 * lines in a second only some are printed, and the lines left out are counted in the next. A stderr
 * that nobody reads is not waited for. One thread. */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Between two looks at a word that another CPU will write: the looks do not pile up, and the
 * line comes sooner. */
static inline void host_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* splitmix64: a bijection of 64 bits that leaves no visible structure. */
static inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The next number of a stream; *state is the whole state. */
static inline uint64_t random64(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    return mix64(*state);
}

/* Evenly in [0, bound), to within bound / 2^32; bound is at most 2^32. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound) {
    return ((random64(state) >> 32) * bound) >> 32;
}

#endif
