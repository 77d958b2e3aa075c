/* SPDX-License-Identifier: Apache-2.0 */
/* order.c: see order.h. Owns no state: the kernel remembers the process until it ends, or runs
 * another program. */
#define _GNU_SOURCE
#include "order.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A filter that was put up after order_open may keep the call away. Then all that is left is to
 * wait for far longer than a processor keeps a store to itself. */
#define DRAIN_NS 1000000

static long call(int command) {
    return syscall(SYS_membarrier, command, 0, 0);
}

bool order_open(void) {
    return call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0 &&
           call(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}

void order_others(bool able) {
    atomic_thread_fence(memory_order_seq_cst);
    if (able && call(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0)
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NS}, NULL);
}
