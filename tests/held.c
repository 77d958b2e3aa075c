/* SPDX-License-Identifier: Apache-2.0 */
/* held.c: see held.h. */
#include "held.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int held_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* It allocates nothing: a child of a process with threads calls it, too. */
static int maps_named(const char *name) {
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), count = 0;
    char line[512], byte[4096];
    size_t length = 0;
    ssize_t got;

    if (maps < 0)
        abort(); /* also in a child, which makes no claim through cmocka */
    while ((got = read(maps, byte, sizeof byte)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            if (length < sizeof line - 1)
                line[length++] = byte[i];
            if (byte[i] != '\n')
                continue;
            line[length] = 0;
            count += strstr(line, name) != NULL;
            length = 0;
        }
    }
    close(maps);
    return count;
}

int held_shared_maps(void) {
    return maps_named("memfd:weir");
}

int held_maps(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return -1;
#else
    return maps_named("");
#endif
}
