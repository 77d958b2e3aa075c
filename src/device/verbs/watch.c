/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: whether a device is being removed.
 *
 * Most drivers take the device from its users at once, and their calls fail from then on
 * (poll.c). Others (Soft-RoCE) go on to work; the removal waits until the last user has closed
 * the device, and tells none. But it takes the device's file away first, and that can be seen.
 * Where that file is no entry of devtmpfs (it was made, or mounted, for a container), sysfs is
 * looked at from time to time, while the engine makes progress. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork.h"
#include "verbs.h"

#define LOOK_NS UINT64_C(1000000000)

int watch_open(const struct ibv_context *context) {
    char link[64], path[256];
    fork_hold();
    int fd = fork_own(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    fork_release();
    snprintf(link, sizeof link, "/proc/self/fd/%d", context->cmd_fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (fd >= 0 && length > 0) {
        path[length] = '\0';
        inotify_add_watch(fd, path, IN_ATTRIB | IN_DELETE_SELF); /* or not: see above */
    }
    return fd;
}

/* The watch tells also of a new owner or mode of the file, so its link count decides. */
static bool file_is_gone(const struct weir_device *device) {
    struct stat file;
    return fstat(device->choice.context->cmd_fd, &file) == 0 && file.st_nlink == 0;
}

static bool entry_is_gone(struct weir_device *device) {
    const char *path = device->choice.context->device->dev_path;
    uint64_t now = device->env.ops->now(device->env.self);
    if (path[0] == '\0' || now < device->watch_next_ns)
        return false;
    device->watch_next_ns = now + LOOK_NS;
    return access(path, F_OK) != 0 && errno == ENOENT;
}

bool watch_sees_removal(struct weir_device *device) {
    char events[1024];
    bool news = false;
    while (device->watch_fd >= 0 && read(device->watch_fd, events, sizeof events) > 0)
        news = true;
    return (news && file_is_gone(device)) || entry_is_gone(device);
}
