/* SPDX-License-Identifier: Apache-2.0 */
/* still.c: under a sanitizer, fork(2) waits until the process's other threads sleep.
 *
 * The allocators of gcc 12's sanitizers do not lock themselves for fork(2), as that of glibc does.
 * A lock of theirs that another thread holds at that moment stays locked in the child, whose first
 * allocation from there waits for ever. A thread takes such locks where it begins, too, before its
 * first own instruction. A thread that sleeps holds none.
 *
 * Threads that never sleep are waited for only so long: a test that forks amid their work has a
 * child that allocates nothing. Release builds wait for nobody. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 200, LOOKS_BEHIND_VAIN = 20, PAUSE_NS = 1000 * 1000 };

/* proc(5): "id (name) state ...". A thread that has ended meanwhile sleeps well. */
static bool sleeps(const char *id) {
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return true;
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end == NULL || strchr("StTZX", name_end[2]) != NULL;
}

static bool others_sleep(void) {
    bool all = true;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return true;
    for (const struct dirent *task; all && (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.' && atoi(task->d_name) != gettid())
            all = sleeps(task->d_name);
    }
    closedir(tasks);
    return all;
}

static bool was_in_vain; /* the wait of the fork before: looks are a millisecond and more */

static void be_still(void) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int most = was_in_vain ? LOOKS_BEHIND_VAIN : LOOKS, looks = 0;
    while (looks < most && !others_sleep()) {
        nanosleep(&pause, NULL);
        looks++;
    }
    was_in_vain = looks == most;
}

__attribute__((constructor)) static void loaded(void) {
    pthread_atfork(be_still, NULL, NULL);
}
