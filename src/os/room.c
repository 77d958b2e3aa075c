/* SPDX-License-Identifier: Apache-2.0 */
/* room.c: the memory that the machine has left for this process.
 *
 * Files of the kernel are read each time: nothing is kept. See proc(5) and, in the kernel's
 * documentation, "Control Group v2".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fork.h"
#include "os.h"

enum { TEXT_BYTES = 8192 };

/* The number behind `key` in a file, times `unit`; UINT64_MAX: there is none. */
static uint64_t number_in(const char *path, const char *key, uint64_t unit) {
    char text[TEXT_BYTES];
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_CLOEXEC));
    fork_release();
    if (fd < 0)
        return UINT64_MAX;
    ssize_t length = read(fd, text, sizeof text - 1);
    fork_close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strstr(text, key);
    if (at == NULL)
        return UINT64_MAX;
    at += strlen(key);
    char *end;
    unsigned long long number = strtoull(at, &end, 10);
    return end == at || number > UINT64_MAX / unit ? UINT64_MAX : number * unit;
}

/* The rest of the limit of the control group, as a container sees its own. A cache of files counts
 * as free: the kernel takes it back when memory is needed. */
static uint64_t left_by_group(void) {
    static const char *const given_back[] = {"\nactive_file ", "\ninactive_file ",
                                             "\nslab_reclaimable "};
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "", 1);
    uint64_t used = number_in("/sys/fs/cgroup/memory.current", "", 1);
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = number_in("/sys/fs/cgroup/memory.stat", given_back[i], 1);
        if (bytes != UINT64_MAX)
            used -= bytes < used ? bytes : used;
    }
    return used < limit ? limit - used : 0;
}

uint64_t os_room(void) {
    uint64_t machine = number_in("/proc/meminfo", "MemAvailable:", 1024);
    uint64_t swap = number_in("/proc/meminfo", "SwapFree:", 1024);
    uint64_t group = left_by_group();
    if (machine != UINT64_MAX && swap != UINT64_MAX)
        machine += swap;
    return group < machine ? group : machine;
}
