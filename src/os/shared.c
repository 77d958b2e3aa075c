/* SPDX-License-Identifier: Apache-2.0 */
/* shared.c: memory of this process that others may read, and theirs.
 *
 * An engine's recorder is a memfd, kept open, so that whoever may look at the process finds it
 * behind /proc/PID/fd, without a name or a file anywhere. Its size cannot change any more, so that
 * no reader is hit by SIGBUS. Leaves to others what is in it (core/recorder.h). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_size.h"
#include "fork.h"
#include "os.h"

#define NAME  "weir-trace"
#define LINK  "/memfd:" NAME " (deleted)"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A memfd of these bytes, all of which are backed: a page that cannot be had later is a SIGBUS.
 * *fd_out is -1 where the system has none to give to this process; then others cannot read the
 * memory. */
static int memfd_of(size_t bytes, int *fd_out) {
    *fd_out = -1;
    if (!file_may_have(bytes))
        return WEIR_OK;
    int fd = fork_memfd(NAME);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return os_fd_error(errno);
    if (fd < 0)
        return WEIR_OK; /* this system, or a rule of it, has none to give */
    bool made = ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0;
    int rc = -1;
    while (made && (rc = fallocate(fd, 0, 0, (off_t)bytes)) != 0 && errno == EINTR)
        continue;
    if (rc == 0) {
        *fd_out = fd;
        return WEIR_OK;
    }
    int error = errno;
    fork_close(fd);
    /* EPERM: a rule of this system. */
    return error == EPERM || error == ENOSYS || error == EOPNOTSUPP ? WEIR_OK : WEIR_ENOMEM;
}

int shared_open(size_t bytes, struct shared *shared_out) {
    int fd;
    int rc = memfd_of(bytes, &fd);
    if (rc != WEIR_OK)
        return rc;
    fork_hold();
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (map != MAP_FAILED && !fork_keep_out(map, bytes)) {
        munmap(map, bytes);
        map = MAP_FAILED;
    }
    fork_release();
    if (map == MAP_FAILED) {
        if (fd >= 0)
            fork_close(fd);
        return WEIR_ENOMEM;
    }
    *shared_out = (struct shared){.base = map, .bytes = bytes, .fd = fd};
    return WEIR_OK;
}

void shared_close(struct shared *shared) {
    if (shared->base == NULL)
        return;
    munmap(shared->base, shared->bytes);
    if (shared->fd >= 0)
        fork_close(shared->fd);
    shared->base = NULL;
}

/* ---- another process's ---- */

static int error_of(int error) {
    switch (error) {
    case EACCES:
    case EPERM:
        return WEIR_EDENIED;
    case EMFILE:
    case ENFILE:
        return WEIR_EMFILE;
    case ENOMEM:
        return WEIR_ENOMEM;
    default:
        return WEIR_EPEER; /* it is gone, or never was */
    }
}

/* Whether the descriptor is such a memfd; EACCES is told of. */
static bool is_shared(const char *path, int *error_io) {
    char link[sizeof(LINK)];
    ssize_t length = readlink(path, link, sizeof(link));
    if (length < 0 && (errno == EACCES || errno == EPERM))
        *error_io = WEIR_EDENIED;
    return length == sizeof(LINK) - 1 && memcmp(link, LINK, sizeof(LINK) - 1) == 0;
}

/* The index-th of them by number of descriptor; -1: there are not so many. */
static int find(DIR *directory, const char *path, size_t index, int *error_out) {
    long from = -1;
    for (size_t found = 0;; found++) {
        long next = -1;
        rewinddir(directory);
        for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
            char file[64];
            char *end;
            long number = strtol(entry->d_name, &end, 10);
            if (*end != '\0' || number <= from || (next >= 0 && number >= next))
                continue;
            snprintf(file, sizeof(file), "%s/%ld", path, number);
            if (is_shared(file, error_out))
                next = number;
        }
        if (next < 0 || found == index)
            return (int)next;
        from = next;
    }
}

static int map_file(const char *file, struct shared *shared_out) {
    struct stat st;
    fork_hold();
    /* It may be another file by now, of a kind that waits for somebody, or becomes our terminal. */
    int fd = fork_own(open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    fork_release();
    if (fd < 0)
        return errno == ENXIO ? WEIR_ESTALE : error_of(errno);
    int seals = fcntl(fd, F_GET_SEALS);
    int rc = seals >= 0 ? WEIR_ENOTREADY : WEIR_ESTALE; /* it is sealed when it has its size */
    if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        rc = map == MAP_FAILED ? error_of(errno) : WEIR_OK;
        if (rc == WEIR_OK)
            *shared_out = (struct shared){.base = map, .bytes = (size_t)st.st_size, .fd = -1};
    }
    fork_close(fd);
    return rc;
}

int shared_find(int64_t pid, size_t index, struct shared *shared_out) {
    char path[40], file[64];
    int error = WEIR_ESTALE;
    snprintf(path, sizeof(path), "/proc/%lld/fd", (long long)pid);
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    fork_release();
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL) {
        int rc = error_of(errno);
        if (fd >= 0)
            fork_close(fd);
        return rc;
    }
    int number = find(directory, path, index, &error);
    fork_hold();
    fork_disown(fd);
    closedir(directory);
    fork_release();
    if (number < 0)
        return error;
    snprintf(file, sizeof(file), "%s/%d", path, number);
    return map_file(file, shared_out);
}

void shared_forget(struct shared *shared) {
    munmap(shared->base, shared->bytes);
}
