/* SPDX-License-Identifier: Apache-2.0 */
/* child.h: a bench's own target, a second process of this program. */
#ifndef TOOL_CHILD_H
#define TOOL_CHILD_H

/* The name of a target that we start (argv[0]): we have warned already. */
#define CHILD_NAME "weir (target)"

#include <stddef.h>

#include "options.h"

/* Starts `weir serve` with this bench's device options, pinned to cpu (-1: nowhere), and waits
 * until it prints its address. The process dies with this one, whatever happens to it. Returns
 * its process id, or -1 after complaining. */
int child_target(const struct options *options, int cpu, char *address_out, size_t address_size);

/* 0: runs. Otherwise it is gone, and text_out (64 bytes) says how: "killed by signal 9". */
int child_gone(int pid, char *text_out);

/* Asks it to end, waits at most five seconds, then kills it; reaps it. */
void child_end(int pid);

#endif
