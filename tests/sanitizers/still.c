/* SPDX-License-Identifier: Apache-2.0 */
/* still.c: under a sanitizer, fork(2) waits until the process's other threads sleep.
 *
 * The allocators of gcc 12's sanitizers do not lock themselves for fork(2), as that of glibc does.
 * A lock of theirs that another thread holds at that moment stays locked in the child, whose first
 * allocation from there waits for ever. A thread takes such locks where it begins, too, before its
 * first own instruction. A thread that sleeps holds none.
 *
 * Threads that never sleep are waited for only so long, and less long the more often that was in
 * vain: a test that forks amid their work has a child that allocates nothing. Between the last look
 * and the fork a thread may wake up, so that a child is nearly always well, not always. Release
 * builds wait for nobody.
 *
 * The wait comes before the library's own handler (src/os/fork.c), or, preloaded, behind it, while
 * threads that call the library pause. It allocates nothing. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS_LEAST = 8, LOOKS_MOST = 256, PAUSE_NS = 1000 * 1000, TEXT_BYTES = 256 };

static _Atomic int looks_now = LOOKS_MOST;

/* False: the thread has ended. */
static bool read_file(int tasks, const char *id, const char *name, char text[TEXT_BYTES]) {
    char path[64];
    snprintf(path, sizeof(path), "%.20s/%s", id, name);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, TEXT_BYTES - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Adds to *turns how often the thread has had a processor. proc(5): stat is "id (name) state ...",
 * the last number of schedstat counts the turns. */
static bool sleeps(int tasks, const char *id, uint64_t *turns) {
    char text[TEXT_BYTES];
    if (!read_file(tasks, id, "stat", text))
        return true;
    const char *name_end = strrchr(text, ')');
    if (name_end != NULL && strchr("StTZX", name_end[2]) == NULL)
        return false;
    const char *last = read_file(tasks, id, "schedstat", text) ? strrchr(text, ' ') : NULL;
    if (last != NULL)
        *turns += strtoull(last, NULL, 10);
    return true;
}

struct entry { /* as getdents64(2) has it */
    uint64_t inode, offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

/* *turns: those of all threads together. */
static bool others_sleep(uint64_t *turns) {
    _Alignas(struct entry) char block[2048];
    bool all = true;
    long got;
    int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *turns = 0;
    while (all && tasks >= 0 && (got = syscall(SYS_getdents64, tasks, block, sizeof(block))) > 0) {
        for (long at = 0; all && at < got;) {
            const struct entry *entry = (const struct entry *)(const void *)(block + at);
            at += entry->size;
            if (entry->name[0] != '.' && atoi(entry->name) != gettid())
                all = sleeps(tasks, entry->name, turns);
        }
    }
    if (tasks >= 0)
        close(tasks);
    return all;
}

/* Asleep twice, and not awake between. */
static bool are_still(void) {
    uint64_t before, now;
    return others_sleep(&before) && others_sleep(&now) && before == now;
}

static void be_still(void) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const int saved = errno, most = atomic_load(&looks_now);
    int looks = 0;
    while (looks < most && !are_still()) {
        nanosleep(&pause, NULL);
        looks++;
    }
    if (looks == most)
        atomic_store(&looks_now, most / 2 > LOOKS_LEAST ? most / 2 : LOOKS_LEAST);
    else if (most < LOOKS_MOST)
        atomic_store(&looks_now, most * 2);
    errno = saved;
}

__attribute__((constructor)) static void loaded(void) {
    if (pthread_atfork(be_still, NULL, NULL) != 0)
        abort();
}
