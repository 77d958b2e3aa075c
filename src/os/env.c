/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: the environment port of Linux: clock, entropy, set-up memory.
 *
 * Owns the list of heap blocks of an environment that was opened; one that was only
 * initialised has no state. Every operation may run on any thread. Invariant: free is
 * given the same size as alloc was, which decides between the heap and a mapping of its
 * own. Mappings are not copied to a child of fork(2), which would pay for pages that it
 * does not use, and, where a device has pinned them, for a copy at once; blocks are, and
 * a child frees them by the list. Leaves to others: when memory is taken (at open and
 * registration only).
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "fork.h"
#include "os.h"

enum { ENV_CACHE_LINE = 64 };

/* In front of a heap block. */
struct block {
    _Alignas(ENV_CACHE_LINE) struct block *next;
    struct block *before;
};

/* Of an environment that was opened. */
struct keeper {
    pthread_mutex_t mutex;
    struct block *first;
};

static uint64_t env_now(void *self) {
    (void)self;
    struct timespec now;
    /* clock_gettime(2): cannot fail for CLOCK_MONOTONIC; no system call, it is in the
     * vDSO (vdso(7)). It does not run during suspend, which suits time-outs. */
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* clock_gettime(2): the time of the last tick of the kernel, 1 to 10 ms ago. It reads no counter
 * of the processor, and takes a fifth of the time of the other. */
static uint64_t env_coarse(void *self) {
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void env_entropy(void *self, void *out, size_t length) {
    (void)self;
    uint8_t *at = out;
    while (length > 0) {
        /* getrandom(2): up to 256 bytes are never cut short once the pool is up; more
         * may be, and waiting for the pool at boot may be interrupted. */
        ssize_t got = getrandom(at, length, 0);
        if (got < 0) {
            /* os_env_init saw the call work; EFAULT is a programmer's error. */
            assert(errno == EINTR);
            continue;
        }
        at += got;
        length -= (size_t)got;
    }
}

static void *map_pages(size_t bytes) {
    fork_hold();
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED && !fork_keep_out(map, bytes)) {
        munmap(map, bytes);
        map = MAP_FAILED;
    }
    fork_release();
    return map == MAP_FAILED ? NULL : map;
}

/* A fork finds the list whole, and its mutex free. */
static void list_add(struct keeper *keeper, struct block *block) {
    fork_hold();
    pthread_mutex_lock(&keeper->mutex);
    block->next = keeper->first;
    if (block->next != NULL)
        block->next->before = block;
    keeper->first = block;
    pthread_mutex_unlock(&keeper->mutex);
    fork_release();
}

static void list_remove(struct keeper *keeper, struct block *block) {
    fork_hold();
    pthread_mutex_lock(&keeper->mutex);
    if (block->before != NULL)
        block->before->next = block->next;
    else
        keeper->first = block->next;
    if (block->next != NULL)
        block->next->before = block->before;
    pthread_mutex_unlock(&keeper->mutex);
    fork_release();
}

static void *env_alloc(void *self, size_t bytes) {
    struct keeper *keeper = self;
    if (bytes >= OS_ENV_MAP_MIN) {
        return map_pages(bytes);
    }
    /* C11 7.22.3.1: the size is a multiple of the alignment. */
    size_t rounded = (bytes + ENV_CACHE_LINE - 1) & ~(size_t)(ENV_CACHE_LINE - 1);
    struct block *block = aligned_alloc(ENV_CACHE_LINE, sizeof *block + rounded);
    if (block == NULL) {
        return NULL;
    }
    memset(block, 0, sizeof *block + rounded);
    if (keeper != NULL) {
        list_add(keeper, block);
    }
    return block + 1;
}

static void env_free(void *self, void *memory, size_t bytes) {
    struct keeper *keeper = self;
    if (memory == NULL) {
        return;
    }
    if (bytes >= OS_ENV_MAP_MIN) {
        int rc = munmap(memory, bytes);
        assert(rc == 0); /* munmap(2): fails only for an address that alloc never gave */
        (void)rc;
        return;
    }
    struct block *block = (struct block *)memory - 1;
    if (keeper != NULL) {
        list_remove(keeper, block);
    }
    free(block);
}

static uint64_t env_room(void *self) {
    (void)self;
    return os_room();
}

static const struct weir_env_ops env_ops = {
    .now = env_now,
    .coarse = env_coarse,
    .entropy = env_entropy,
    .alloc = env_alloc,
    .free = env_free,
    .room = env_room,
};

int os_env_init(struct weir_env *env_out) {
    uint8_t probe;
    ssize_t got;
    do {
        got = getrandom(&probe, sizeof probe, 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof probe) {
        return WEIR_EDEVICE; /* ENOSYS: a kernel before 3.17, or a sandbox that forbids it */
    }
    *env_out = (struct weir_env){.ops = &env_ops, .self = NULL};
    return WEIR_OK;
}

int os_env_open(struct weir_env *env_out) {
    struct weir_env env;
    const int rc = os_env_init(&env);
    if (rc != WEIR_OK) {
        return rc;
    }
    struct keeper *keeper = calloc(1, sizeof *keeper);
    if (keeper == NULL) {
        return WEIR_ENOMEM;
    }
    pthread_mutex_init(&keeper->mutex, NULL);
    env.self = keeper;
    *env_out = env;
    return WEIR_OK;
}

void os_env_close(struct weir_env *env) {
    struct keeper *keeper = env->self;
    pthread_mutex_destroy(&keeper->mutex);
    free(keeper);
    *env = (struct weir_env){0};
}

void os_env_abandon(struct weir_env *env) {
    struct keeper *keeper = env->self;
    struct block *block = keeper->first;
    while (block != NULL) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    free(keeper);
    *env = (struct weir_env){0};
}
