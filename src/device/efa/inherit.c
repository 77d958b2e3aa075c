/* SPDX-License-Identifier: Apache-2.0 */
/* inherit.c: the descriptors that libfabric has of a network card, and no child of fork(2) may
 * inherit (fork.h): as long as one is open anywhere the card goes on for a process that is dead.
 *
 * libfabric opens a card once a process, as soon as it is asked which there are, and never closes
 * it. It does not say which descriptor that is: the file is found by the card's name. All devices
 * of a process have the same.
 *
 * Owns the list of those that were noted, which only grows, under fork_hold. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "efa.h"
#include "fork.h"

enum { CARDS = 64, PATH_BYTES = 64 };

static int noted[CARDS];
static int noted_count;

/* Whether the file, /dev/infiniband/uverbsN, is that of the card. */
static bool is_of(const char *path, const char *card) {
    char name[FABRIC_NAME_MAX] = "", source[2 * PATH_BYTES];
    const char *file = strrchr(path, '/');
    snprintf(source, sizeof source, "/sys/class/infiniband_verbs/%s/ibdev",
             file != NULL ? file + 1 : path);
    FILE *stream = fopen(source, "re"); /* closed below: under fork_hold */
    if (stream == NULL)
        return false;
    bool got = fgets(name, sizeof name, stream) != NULL;
    fclose(stream);
    name[strcspn(name, "\n")] = '\0';
    return got && strcmp(name, card) == 0;
}

static bool is_noted(int fd) {
    bool found = false;
    for (int i = 0; i < noted_count; i++)
        found = found || noted[i] == fd;
    return found;
}

static bool note(int fd) {
    if (is_noted(fd))
        return true;
    if (noted_count == CARDS || !fork_note_device(fd))
        return false;
    noted[noted_count++] = fd;
    return true;
}

static bool note_all(const char *card) {
    static const char folder[] = "/dev/infiniband/uverbs";
    bool well = true;
    DIR *listing = opendir("/proc/self/fd"); /* likewise */
    if (listing == NULL)
        return false;
    for (const struct dirent *at; (at = readdir(listing)) != NULL;) {
        char path[PATH_BYTES] = "";
        ssize_t got = readlinkat(dirfd(listing), at->d_name, path, sizeof path - 1);
        if (got > 0 && strncmp(path, folder, sizeof folder - 1) == 0 && is_of(path, card))
            well = note(atoi(at->d_name)) && well;
    }
    closedir(listing);
    return well;
}

bool efa_inherit(const struct fi_info *info) {
    const char *card =
        info->nic != NULL && info->nic->device_attr != NULL ? info->nic->device_attr->name : NULL;
    if (card == NULL)
        return true; /* there is none: a provider that plays one */
    fork_hold();
    bool well = note_all(card);
    fork_release();
    return well;
}
