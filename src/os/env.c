/* env.c: the environment port of Linux: clock, entropy, set-up memory.
 *
 * Owns no state, so every operation may run on any thread. Invariant: free is given
 * the same size as alloc was, which decides between the heap and a mapping of its
 * own. Leaves to others: when memory is taken (at open and registration only).
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "os.h"

enum {
    ENV_CACHE_LINE = 64,
    ENV_MAP_MIN = 1 << 17 /* from here on a mapping: zeroed by the kernel, resident on use */
};

static uint64_t env_now(void *self) {
    (void)self;
    struct timespec now;
    /* clock_gettime(2): cannot fail for CLOCK_MONOTONIC; no system call, it is in the
     * vDSO (vdso(7)). It does not run during suspend, which suits time-outs. */
    clock_gettime(CLOCK_MONOTONIC, &now);
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

static void *env_alloc(void *self, size_t bytes) {
    (void)self;
    if (bytes >= ENV_MAP_MIN) {
        void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return map == MAP_FAILED ? NULL : map;
    }
    /* C11 7.22.3.1: the size is a multiple of the alignment. */
    size_t rounded = (bytes + ENV_CACHE_LINE - 1) & ~(size_t)(ENV_CACHE_LINE - 1);
    if (rounded == 0) {
        rounded = ENV_CACHE_LINE;
    }
    void *memory = aligned_alloc(ENV_CACHE_LINE, rounded);
    if (memory != NULL) {
        memset(memory, 0, rounded);
    }
    return memory;
}

static void env_free(void *self, void *memory, size_t bytes) {
    (void)self;
    if (memory == NULL) {
        return;
    }
    if (bytes >= ENV_MAP_MIN) {
        int rc = munmap(memory, bytes);
        assert(rc == 0); /* munmap(2): fails only for an address that alloc never gave */
        (void)rc;
        return;
    }
    free(memory);
}

static const struct weir_env_ops env_ops = {
    .now = env_now,
    .entropy = env_entropy,
    .alloc = env_alloc,
    .free = env_free,
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
