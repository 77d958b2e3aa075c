/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: see file.h. */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"

#define FILE_MODE 0666

int file_write(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t wrote = write(fd, text, length);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return -1;
        text += wrote;
        length -= (size_t)wrote;
    }
    return 0;
}

/* The temporary file's mode: that of the file in whose place it comes, or of a new one. */
static mode_t mode_for(const struct stat *old, bool is_there) {
    mode_t mask = umask(0);

    umask(mask);
    return is_there ? old->st_mode & 0777 : FILE_MODE & ~mask;
}

/* Writes and closes. 0, or -1 with errno. */
static int fill(int fd, const char *text, size_t length) {
    int rc = file_write(fd, text, length), error = errno;

    if (close(fd) != 0 && rc == 0)
        return -1;
    errno = error;
    return rc;
}

int file_replace(const char *path, const char *text, size_t length) {
    struct stat old;
    bool is_there = stat(path, &old) == 0;
    char *temporary = NULL;
    int fd, rc;

    if (is_there && !S_ISREG(old.st_mode)) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
        rc = fd < 0 ? -1 : fill(fd, text, length);
        return rc == 0 ? 0 : complain("%s: %s", path, strerror(errno));
    }
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return complain("out of memory");
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        rc = complain("%s: %s", path, strerror(errno));
    } else {
        (void)fchmod(fd, mode_for(&old, is_there)); /* else it is ours alone, and no worse */
        rc = fill(fd, text, length);
        if (rc == 0)
            rc = rename(temporary, path);
        if (rc != 0) {
            complain("%s: %s", path, strerror(errno));
            unlink(temporary);
        }
    }
    free(temporary);
    return rc;
}

int file_in_memory(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC);

    return fd >= 0 ? fd : complain("a file in memory: %s", strerror(errno));
}

char *file_text(int fd, size_t most) {
    struct stat stat;
    char *text = NULL;
    size_t at = 0, size;

    if (fstat(fd, &stat) == 0 && stat.st_size >= 0 && (size_t)stat.st_size <= most)
        text = malloc((size_t)stat.st_size + 1);
    if (text == NULL) {
        complain("out of memory");
        return NULL;
    }
    size = (size_t)stat.st_size;
    while (at < size) {
        ssize_t got = pread(fd, text + at, size - at, (off_t)at);
        if (got <= 0)
            break;
        at += (size_t)got;
    }
    text[at] = '\0';
    return text;
}
