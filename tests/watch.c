/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: see watch.h.
 *
 * The tracer is the child and the traced is its parent, so that the test itself, with
 * its assertions, stays in the process that cmocka knows. The two share one page: the
 * parent says what is to be counted, the child writes the counts while the parent is
 * stopped. */
#define _GNU_SOURCE
#include "watch.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum answer { ASKED, ATTACHED, REFUSED };

struct shared {
    _Atomic uint32_t answer;
    _Atomic bool counting;
    _Atomic bool clock_is_call;
    _Atomic bool leave; /* at the next system call */
    struct watch_counts counts;
};

static struct shared *shared;
static pid_t tracer;
static bool counting; /* read by every allocation */
static uint32_t allocations;

/* ---- allocations ------------------------------------------------------- */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

bool watch_sees_allocations(void) {
    return true;
}

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static void note(void) {
    if (counting)
        allocations++;
}

void *malloc(size_t bytes) {
    note();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    note();
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    note();
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    note();
    return __libc_memalign(alignment, bytes);
}

void free(void *memory) {
    note();
    __libc_free(memory);
}

#else

bool watch_sees_allocations(void) {
    return false;
}

#endif

/* ---- the tracer -------------------------------------------------------- */

static void count_call(uint64_t number) {
    if (number == SYS_clock_gettime && atomic_load(&shared->clock_is_call))
        return;
    shared->counts.calls++;
    shared->counts.calls_of[number < WATCH_CALLS_MAX ? number : WATCH_CALLS_MAX - 1]++;
}

/* The traced process is stopped: looks why; returns the signal that it is to go on with. */
static long look(pid_t pid, int status) {
    int signal_number = WSTOPSIG(status);
    if (signal_number == (SIGTRAP | 0x80)) {
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0 &&
            info.op == PTRACE_SYSCALL_INFO_ENTRY && atomic_load(&shared->counting))
            count_call(info.entry.nr);
        return 0;
    }
    return status >> 16 != 0 ? 0 : signal_number; /* the stop that PTRACE_INTERRUPT made */
}

static _Noreturn void trace(pid_t pid) {
    int status;
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0) {
        atomic_store(&shared->answer, REFUSED);
        _exit(0);
    }
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
        long signal_number = look(pid, status);
        if (atomic_load(&shared->leave)) {
            ptrace(PTRACE_DETACH, pid, NULL, (void *)signal_number);
            break;
        }
        ptrace(PTRACE_SYSCALL, pid, NULL, (void *)signal_number);
        atomic_store(&shared->answer, ATTACHED);
    }
    _exit(0);
}

/* ---- the traced -------------------------------------------------------- */

bool watch_open(void) {
    if (getenv("WEIR_UNDER_VALGRIND") != NULL)
        return false;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    pid_t self = getpid();
    int ready[2];
    if (pipe(ready) != 0)
        return false;
    tracer = fork();
    if (tracer < 0)
        return false;
    if (tracer == 0) {
        char go;
        if (read(ready[0], &go, 1) != 1)
            _exit(1);
        trace(self);
    }
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, tracer, 0, 0, 0); /* Yama; without it an error that means nothing */
#endif
    bool told = write(ready[1], "g", 1) == 1;
    close(ready[0]);
    close(ready[1]);
    while (told && atomic_load(&shared->answer) == ASKED)
        usleep(1000);
    if (!told || atomic_load(&shared->answer) != ATTACHED) {
        waitpid(tracer, NULL, 0);
        tracer = 0;
        return false;
    }
    struct timespec now;
    watch_begin();
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&shared->clock_is_call, watch_end()->calls != 0);
    return true;
}

void watch_close(void) {
    if (tracer > 0) {
        atomic_store(&shared->leave, true);
        (void)getppid(); /* here it leaves */
        waitpid(tracer, NULL, 0);
    }
    tracer = 0;
    if (shared != NULL)
        munmap(shared, sizeof(*shared));
    shared = NULL;
}

void watch_begin(void) {
    memset(&shared->counts, 0, sizeof(shared->counts));
    allocations = 0;
    atomic_store(&shared->counting, true);
    counting = true;
}

const struct watch_counts *watch_end(void) {
    counting = false;
    atomic_store(&shared->counting, false);
    shared->counts.allocations = allocations;
    return &shared->counts;
}
