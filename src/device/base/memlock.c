/* SPDX-License-Identifier: Apache-2.0 */
/* memlock.c: how much memory this process may have pinned: RLIMIT_MEMLOCK, for those without
 * CAP_IPC_LOCK (getrlimit(2), capabilities(7)). The kernel holds what is pinned for devices
 * already (VmPin) against it, and says ENOMEM. A capability in a user namespace of its own does
 * not count. */
#define _GNU_SOURCE
#include "memlock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fork.h"

enum { CAP_IPC_LOCK_BIT = 14 };

/* The number behind a line's name; fallback: there is no such line. */
static uint64_t field(const char *text, const char *name, int base, uint64_t fallback) {
    const char *at = strstr(text, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, base) : fallback;
}

/* Whether a map of user ids is that of the first namespace: each its own. */
static bool is_first_namespace(const char *uid_map) {
    unsigned long long inside, outside, count;
    return sscanf(uid_map, "%llu %llu %llu", &inside, &outside, &count) != 3 ||
           (inside == 0 && outside == 0 && count == UINT32_MAX);
}

uint64_t memlock_left_of(uint64_t limit, const char *status, const char *uid_map) {
    uint64_t capabilities = field(status, "\nCapEff:", 16, 0);
    uint64_t pinned = field(status, "\nVmPin:", 10, 0) * 1024;
    bool may_all = (capabilities >> CAP_IPC_LOCK_BIT & 1) != 0 && is_first_namespace(uid_map);
    if (limit == (uint64_t)RLIM_INFINITY || may_all)
        return UINT64_MAX;
    return pinned < limit ? limit - pinned : 0;
}

/* To its end, or as far as there is room. */
static void read_text(const char *path, char *out, size_t size) {
    size_t length = 0;
    ssize_t got = 1;
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_CLOEXEC));
    fork_release();
    while (fd >= 0 && got > 0 && length < size - 1) {
        got = read(fd, out + length, size - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    out[length] = '\0';
    if (fd >= 0)
        fork_close(fd);
}

/* In front of what is wanted are the groups of the process, NGROUPS_MAX numbers of ten digits at
 * most (proc_pid_status(5)). */
enum { STATUS_BYTES = 65536 * 11 + 16384 };

uint64_t memlock_left(void) {
    char uid_map[128];
    struct rlimit limit;
    char *status = malloc(STATUS_BYTES);
    if (status == NULL || getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        free(status);
        return UINT64_MAX; /* nothing is known */
    }
    read_text("/proc/self/status", status, STATUS_BYTES);
    read_text("/proc/self/uid_map", uid_map, sizeof uid_map);
    uint64_t left = memlock_left_of(limit.rlim_cur, status, uid_map);
    free(status);
    return left;
}
