/* SPDX-License-Identifier: Apache-2.0 */
/* child.h: processes that a command starts: a bench's own target, a suite's benches, the program
 * that draws a page's plots. Each dies with this process, whatever happens to it. */
#ifndef TOOL_CHILD_H
#define TOOL_CHILD_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* argv[0] of this program as a child: its parent has warned already. */
#define CHILD_NAME   "weir ("
#define CHILD_TARGET CHILD_NAME "target)"
#define CHILD_BENCH  CHILD_NAME "bench)"

/* The program itself, for child_start. */
#define CHILD_SELF "/proc/self/exe"

/* The status of a program that was not found, or that cannot be executed: as a shell has it. */
#define CHILD_NOT_EXECUTED 127

/* Descriptors that a child gets as 0, 1 and 2; -1: the one of this process. */
struct child_files {
    int in, out, err;
};

/* Starts a program, which is looked for in PATH unless its name has a slash, pinned to cpu (-1:
 * nowhere). argv ends with NULL. Returns its process id, or -1 after complaining. */
int child_start(const char *program, char *const *argv, const struct child_files *files, int cpu);

/* Forks a process that ends with what run returns. Returns its process id, or -1 after complaining.
 */
int child_fork(int (*run)(void *context), void *context);

/* Waits until it has ended; ends it as child_end does when the time is over (UINT64_MAX: no limit)
 * or the user interrupts. Returns the status with which it ended, or 128 and the signal's number.
 */
int child_wait(int pid, uint64_t timeout_ns);

/* Starts `weir serve` with this bench's device options at an address, pinned to cpu (-1: nowhere),
 * and waits until it prints its address, for which address_out has room: `listen` may be the same.
 * Returns its process id, or -1 after complaining. */
#define CHILD_ANYWHERE "127.0.0.1:0"
int child_target(const struct options *options, const char *listen, int cpu, char *address_out,
                 size_t address_size);

/* 0: runs. Otherwise it is gone, and text_out (64 bytes) says how: "killed by signal 9". */
int child_gone(int pid, char *text_out);

/* Asks it to end, also if it is stopped; waits at most five seconds, then kills it; reaps it. */
void child_end(int pid);

/* Kills it, without asking, and reaps it. */
void child_kill(int pid);

#endif
