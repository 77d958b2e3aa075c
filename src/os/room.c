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

enum { TEXT_BYTES = 4096 };

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

/* What a control group leaves of its limit, of either version. */
static uint64_t left_of(const char *limit_path, const char *used_path) {
    uint64_t limit = number_in(limit_path, "", 1), used = number_in(used_path, "", 1);
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return used < limit ? limit - used : 0;
}

uint64_t os_room(void) {
    uint64_t free_bytes = number_in("/proc/meminfo", "MemAvailable:", 1024);
    uint64_t swap_bytes = number_in("/proc/meminfo", "SwapFree:", 1024);
    uint64_t groups[] = {
        left_of("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        left_of("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    };
    uint64_t least = free_bytes;
    if (free_bytes != UINT64_MAX && swap_bytes != UINT64_MAX)
        least = free_bytes + swap_bytes;
    for (int i = 0; i < 2; i++)
        least = groups[i] < least ? groups[i] : least;
    return least;
}
