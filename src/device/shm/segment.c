/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c: making, checking and mapping segments; see segment.h. */
#define _GNU_SOURCE
#include "segment.h"
#include "file_size.h"
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/* Between what AddressSanitizer shadows and where programs are loaded: 2^33 and more pages. */
#define APART_FROM  UINT64_C(0x200000000000)
#define APART_BYTES UINT64_C(0x300000000000)
#define APART_TRIES 4
#define PAGE_BYTES  4096

int seg_error(int error) {
    switch (error) {
    case EMFILE:
    case ENFILE:
        return WEIR_EMFILE;
    case ENOMEM:
    case ENOSPC:
        return WEIR_ENOMEM;
    default:
        return WEIR_EDEVICE;
    }
}

int seg_memfd(const char *name, uint64_t bytes) {
    if (!file_may_have(bytes)) {
        errno = EFBIG;
        return WEIR_ENOMEM;
    }
    int fd = fork_memfd(name);
    if (fd < 0)
        return seg_error(errno);
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        int rc = seg_error(errno);
        fork_close(fd);
        return rc;
    }
    return fd;
}

uint64_t seg_check(int fd, uint64_t *inode_out) {
    /* Only a memfd answers F_GET_SEALS (fcntl(2)). Sealed first, sized second: the
     * size cannot change any more when it is read. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return 0;
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size <= 0)
        return 0;
    *inode_out = st.st_ino;
    return (uint64_t)st.st_size;
}

int seg_back(int fd, const struct seg_map *map, const void *from, uint64_t bytes) {
    off_t offset = (const uint8_t *)from - (const uint8_t *)map;
    return fallocate(fd, 0, offset, (off_t)bytes) == 0 ? 0 : WEIR_ENOMEM;
}

/* madvise(2): EINVAL before Linux 5.14. */
int seg_populate(void *from, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    uint64_t skip = (uintptr_t)from % PAGE_BYTES;
    uint64_t whole = (skip + bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (madvise((uint8_t *)from - skip, whole, MADV_POPULATE_WRITE) == 0)
        return 0;
    return errno == EINVAL ? WEIR_ENOTSUP : WEIR_ENOMEM;
#else
    (void)from;
    (void)bytes;
    return WEIR_ENOTSUP;
#endif
}

void *seg_mmap(void *at, uint64_t bytes, int protection, int flags, int fd) {
    fork_hold();
    flags |= fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *map = mmap(at, bytes, protection, flags, fd, 0);
    if (map != MAP_FAILED && !fork_keep_out(map, bytes)) {
        munmap(map, bytes);
        map = MAP_FAILED;
    }
    fork_release();
    return map == MAP_FAILED ? NULL : map;
}

/* At `want` if that is free. */
static struct seg_map *map_segment(int fd, uint64_t want) {
    return seg_mmap((void *)(uintptr_t)want, sizeof(struct seg_map), PROT_READ | PROT_WRITE,
                    MAP_NORESERVE, fd);
}

/* See seg_create in segment.h. */
static struct seg_map *map_apart(int fd, uint64_t random) {
    struct seg_map *map = NULL;
    for (int tries = 0; tries < APART_TRIES; tries++) {
        uint64_t want = APART_FROM + random % APART_BYTES / SHM_PAGE_MAX * SHM_PAGE_MAX;
        map = map_segment(fd, sizeof(void *) == 8 ? want : 0);
        if (map == NULL || (uintptr_t)map == want || tries == APART_TRIES - 1)
            break;
        seg_unmap(map);
        random = random * UINT64_C(0x5851f42d4c957f2d) + 1;
    }
    return map;
}

/* Backs the guard's first pages, and makes it a mapping of its own (any advice that the rest does
 * not have does that): a process that has as many as it may cannot split one any more when the
 * guard is taken away. */
static int guard_open(int fd, struct seg_map *map) {
    if (madvise(&map->guard, sizeof map->guard, MADV_RANDOM) != 0)
        return WEIR_ENOMEM;
    return seg_back(fd, map, &map->guard, SEG_OPEN_GUARD_BYTES);
}

int seg_create(uint64_t nonce, uint64_t random, int bell_fd, bool orders, struct seg_map **map_out,
               int *fd_out) {
    int fd = seg_memfd("weir-shm", sizeof(struct seg_map));
    if (fd < 0)
        return fd;
    struct seg_map *map = map_apart(fd, random);
    if (map == NULL) {
        fork_close(fd);
        return WEIR_ENOMEM;
    }
    int rc = seg_back(fd, map, map, SEG_OPEN_BYTES);
    if (rc == 0)
        rc = guard_open(fd, map);
    if (rc != 0) {
        seg_unmap(map);
        fork_close(fd);
        return rc;
    }
    map->head.nonce = map->guard.nonce = nonce;
    map->head.pid = getpid();
    map->head.bell_fd = bell_fd;
    map->head.base = (uint64_t)(uintptr_t)map;
    map->head.order = orders;
    map->head.magic = SHM_MAGIC;
    *map_out = map;
    *fd_out = fd;
    return 0;
}

int seg_attach(int fd, int32_t pid, uint64_t nonce, struct seg_map **map_out) {
    uint64_t inode;
    if (seg_check(fd, &inode) != sizeof(struct seg_map))
        return WEIR_EINVAL;
    struct seg_map *map = map_segment(fd, 0);
    if (map == NULL)
        return WEIR_ENOMEM;
    const struct seg_head *head = &map->head;
    if (head->magic != SHM_MAGIC || head->nonce != nonce || head->pid != pid) {
        seg_unmap(map);
        return WEIR_EINVAL;
    }
    *map_out = map;
    return 0;
}

void seg_unmap(struct seg_map *map) {
    munmap(map, sizeof *map);
}

/* process_vm_writev(2) and process_vm_readv(2) obey the protection that the target set. */
bool seg_revoke(struct seg_map *map) {
    return mprotect(&map->guard, sizeof map->guard, PROT_NONE) == 0;
}

uint32_t seg_notify(struct seg_map *map, uint32_t index) {
    uint32_t word = index / 64, top = word / 64;
    /* Leaf before top: the owner clears top before leaf. Bits are set again even if a
     * bit of somebody else is there already: that one may have died before it set
     * top. Every access is sequentially consistent, as is the owner's
     * set-sleeping-then-look, so one of the two sees the other. */
    atomic_fetch_or(&map->leaf[word], UINT64_C(1) << (index % 64));
    uint64_t bit = UINT64_C(1) << (word % 64);
    if ((atomic_load(&map->head.top[top]) & bit) == 0)
        atomic_fetch_or(&map->head.top[top], bit);
    return atomic_load(&map->head.sleeping);
}

void seg_rung(struct seg_map *map, uint32_t sleep) {
    atomic_compare_exchange_strong(&map->head.sleeping, &sleep, 0);
}
