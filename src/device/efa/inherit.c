/* SPDX-License-Identifier: Apache-2.0 */
/* inherit.c: the descriptors that the provider opens for its device, and no child of fork(2) may
 * inherit (fork.h): as long as one is open anywhere the network card goes on for a process that is
 * dead.
 *
 * libfabric does not say which they are. They are files of /dev/infiniband that were not open
 * before. Owns nothing: the descriptors are the provider's. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "efa.h"
#include "fork.h"

/* Calls it for each descriptor of such a file. */
static void each_device_fd(void (*found)(struct weir_device *device, int fd),
                           struct weir_device *device) {
    static const char folder[] = "/dev/infiniband/";
    DIR *listing = opendir("/proc/self/fd"); /* closed below: under fork_hold */
    for (const struct dirent *at; listing != NULL && (at = readdir(listing)) != NULL;) {
        char path[sizeof folder] = "";
        ssize_t got = readlinkat(dirfd(listing), at->d_name, path, sizeof path - 1);
        if (got == (ssize_t)sizeof path - 1 && memcmp(path, folder, sizeof path - 1) == 0)
            found(device, atoi(at->d_name));
    }
    if (listing != NULL)
        closedir(listing);
}

static bool is_known(const struct weir_device *device, int fd) {
    bool known = false;
    for (uint32_t i = 0; i < device->inherited_count; i++)
        known = known || device->inherited[i].fd == fd;
    return known;
}

static void remember(struct weir_device *device, int fd) {
    if (!is_known(device, fd) && device->inherited_count < EFA_INHERITED)
        device->inherited[device->inherited_count++] = (struct efa_inherited){.fd = fd};
}

static void note(struct weir_device *device, int fd) {
    if (is_known(device, fd) || device->inherited_count == EFA_INHERITED)
        return;
    bool noted = fork_note_device(fd);
    device->inherited[device->inherited_count++] =
        (struct efa_inherited){.fd = fd, .is_noted = noted};
    device->inherit_fails = device->inherit_fails || !noted;
}

void inherit_begin(struct weir_device *device) {
    fork_hold();
    each_device_fd(remember, device);
}

bool inherit_end(struct weir_device *device) {
    each_device_fd(note, device);
    fork_release();
    return !device->inherit_fails;
}

void inherit_forget(struct weir_device *device) {
    for (uint32_t i = 0; i < device->inherited_count; i++) {
        if (device->inherited[i].is_noted)
            fork_disown(device->inherited[i].fd);
    }
    device->inherited_count = 0;
}
