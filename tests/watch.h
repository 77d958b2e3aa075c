/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h: counts what a test does behind its back: system calls and allocations.
 *
 * System calls are counted by a child process that traces the calling thread
 * (ptrace(2)), allocations by this program's own malloc and its kind, which the
 * library under test is bound to as well. Both count only between watch_begin and
 * watch_end, on the thread that opened the watch. A process that makes no system call
 * is not slowed down.
 *
 * Clocks that the kernel keeps out of the vDSO on this machine are not counted: whether
 * reading one is a system call is not up to the program. */
#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_CALLS_MAX = 1024 }; /* numbers above it are counted together, as the last */

struct watch_counts {
    uint32_t calls; /* all */
    uint32_t calls_of[WATCH_CALLS_MAX];
    uint32_t allocations; /* malloc, calloc, realloc, free and aligned ones */
};

/* False: this process may not be traced here, or runs under valgrind. */
bool watch_open(void);
void watch_close(void);

void watch_begin(void);
/* Valid until the next watch_begin. */
const struct watch_counts *watch_end(void);

/* Whether allocations are counted: not with sanitizers, which have their own malloc, nor
 * with a C library that offers no other name for it. */
bool watch_sees_allocations(void);

#endif
