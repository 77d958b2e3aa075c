/* SPDX-License-Identifier: Apache-2.0 */
/* held.c: see held.h. */
#include "held.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

static int maps_named(const char *name) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, name) != NULL;
    fclose(maps);
    return count;
}

int held_shared_maps(void) {
    return maps_named("memfd:weir");
}

int held_maps(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return -1;
#else
    return maps_named("\n");
#endif
}
