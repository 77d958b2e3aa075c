/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c: memory that a device allocates for its engine.
 *
 * Owns how it is mapped and backed. Left to others: registering it, and unmapping it. */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "fork.h"

uint64_t pages_round(uint64_t length) {
    uint64_t unit = length < PAGES_HUGE ? PAGES_BYTES : PAGES_HUGE;
    return (length + unit - 1) / unit * unit;
}

/* No child of fork(2) has it: it could be as large as all there is, and of pages that are pinned
 * for a device the kernel would make copies at the fork. NULL: no room. */
static uint8_t *map_span(uint64_t span) {
    fork_hold();
    void *map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED && !fork_keep_out(map, span)) {
        munmap(map, span);
        map = MAP_FAILED;
    }
    fork_release();
    return map == MAP_FAILED ? NULL : map;
}

void *pages_map(uint64_t bytes) {
    uint64_t span = bytes < PAGES_HUGE ? bytes : bytes + PAGES_HUGE;
    uint8_t *map = map_span(span);
    if (map == NULL || bytes < PAGES_HUGE)
        return map;
    uint64_t skip = -(uint64_t)(uintptr_t)map & (PAGES_HUGE - 1);
    if (skip != 0)
        munmap(map, skip);
    munmap(map + skip + bytes, span - skip - bytes);
    madvise(map + skip, bytes, MADV_HUGEPAGE);
    return map + skip;
}

/* madvise(2): MADV_POPULATE_WRITE since Linux 5.14; before that, private memory is backed by
 * touching it. */
bool pages_back(void *base, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
#endif
    for (uint64_t at = 0; at < bytes; at += PAGES_BYTES)
        ((volatile uint8_t *)base)[at] = 0;
    return true;
}
