/* SPDX-License-Identifier: Apache-2.0 */
/* fork.c: see fork.h. Handlers of fork(2), and what they go by.
 *
 * Owns a bit for each descriptor of the library, in a table that grows in chunks and is read by
 * a child without locks; the list of those who watch; and the gate, one word: how many hold, and,
 * above, how many forks wait for them or are under way. All of it belongs to the process: there
 * is one, however many engines.
 *
 * The handlers are there from when the library is loaded, so that no fork that has begun without
 * them meets an engine; dlclose(3) takes them away (pthread_atfork(3) in glibc knows whose they
 * are). In a child only what signal-safety(7) allows is called, and system calls that take no
 * locks. A bare clone(2) or _Fork(3), which pthread_atfork does not see, is not seen here.
 *
 * A device is mapped by its driver's library, which tells nobody where; /proc/self/maps does. All
 * mappings of such a device are taken away, also those of other users in this process: the file
 * that a mapping is of has no name but the device's. */
#define _GNU_SOURCE
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK_WORDS = 128,
    CHUNK_FDS = CHUNK_WORDS * 64,
    CHUNKS = 4096, /* 33 million descriptors */
    YIELDS = 100,
    PAUSE_NS = 100 * 1000,
    PAUSES_MAX = 10000, /* about a second: a holder never lets go, and the fork goes on */
    DEVICES_MAX = 16,
    PATH_BYTES = 128,
    LINE_BYTES = 256
};

/* Of the gate: holders are counted below it. */
#define FORKING (UINT64_C(1) << 32)

struct chunk {
    _Atomic uint64_t open[CHUNK_WORDS];
    _Atomic uint64_t device[CHUNK_WORDS]; /* of those */
};

static struct chunk first_chunk; /* the others are never freed: threads may outlive exit(3) */
static struct chunk *_Atomic chunks[CHUNKS] = {&first_chunk};
static _Atomic uint64_t gate;
static struct fork_watch *_Atomic watches;
static _Atomic bool watches_taken;
static _Atomic bool installed;

/* ---- the gate ---------------------------------------------------------- */

static void pause_at(uint32_t turn) {
    if (turn < YIELDS) {
        sched_yield();
    } else {
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        nanosleep(&pause, NULL);
    }
}

void fork_hold(void) {
    uint64_t now = atomic_load(&gate);
    for (uint32_t turn = 0;;) {
        if (now < FORKING) {
            if (atomic_compare_exchange_weak(&gate, &now, now + 1))
                return;
            continue;
        }
        pause_at(turn++);
        now = atomic_load(&gate);
    }
}

/* In a child that a signal handler forked amid a hold the count is 0, and stays. */
void fork_release(void) {
    uint64_t now = atomic_load(&gate);
    while ((uint32_t)now != 0 && !atomic_compare_exchange_weak(&gate, &now, now - 1))
        continue;
}

/* ---- the table --------------------------------------------------------- */

static struct chunk *chunk_of(int fd) {
    if (fd < 0 || fd / CHUNK_FDS >= CHUNKS) {
        errno = EMFILE;
        return NULL;
    }
    struct chunk *_Atomic *place = &chunks[fd / CHUNK_FDS];
    struct chunk *chunk = atomic_load(place);
    if (chunk != NULL)
        return chunk;
    struct chunk *made = calloc(1, sizeof *made);
    if (made == NULL || atomic_compare_exchange_strong(place, &chunk, made))
        return made;
    free(made);
    return chunk; /* another thread's */
}

static uint32_t word_of(int fd) {
    return (uint32_t)fd % CHUNK_FDS / 64;
}

static uint64_t bit_of(int fd) {
    return UINT64_C(1) << (fd % 64);
}

bool fork_note(int fd) {
    struct chunk *chunk = chunk_of(fd);
    if (chunk != NULL)
        atomic_fetch_or(&chunk->open[word_of(fd)], bit_of(fd));
    return chunk != NULL;
}

bool fork_note_device(int fd) {
    if (!fork_note(fd))
        return false;
    atomic_fetch_or(&chunk_of(fd)->device[word_of(fd)], bit_of(fd));
    return true;
}

int fork_own(int fd) {
    if (fd < 0 || fork_note(fd))
        return fd;
    const int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* since Linux 6.3; the system may ask for it (vm.memfd_noexec) */
#endif

int fork_memfd(const char *name) {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    fork_hold();
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, flags);
    fd = fork_own(fd);
    fork_release();
    return fd;
}

void fork_disown(int fd) {
    struct chunk *chunk = fd >= 0 && fd / CHUNK_FDS < CHUNKS ? chunks[fd / CHUNK_FDS] : NULL;
    if (chunk == NULL)
        return;
    atomic_fetch_and(&chunk->device[word_of(fd)], ~bit_of(fd));
    atomic_fetch_and(&chunk->open[word_of(fd)], ~bit_of(fd));
}

void fork_close(int fd) {
    const int saved = errno;
    fork_hold();
    fork_disown(fd);
    close(fd);
    fork_release();
    errno = saved;
}

bool fork_keep_out(void *base, size_t bytes) {
    return madvise(base, bytes, MADV_DONTFORK) == 0;
}

/* ---- who watches ------------------------------------------------------- */

/* Only between fork_hold and fork_release, so that a fork finds it free. */
static void watches_lock(void) {
    while (atomic_exchange(&watches_taken, true))
        sched_yield();
}

static void watches_unlock(void) {
    atomic_store(&watches_taken, false);
}

void fork_unwatch(struct fork_watch *watch) {
    fork_hold();
    watches_lock();
    struct fork_watch *before = NULL, *at = atomic_load(&watches);
    while (at != watch) {
        before = at;
        at = at->next;
    }
    if (before != NULL)
        before->next = watch->next;
    else
        atomic_store(&watches, watch->next);
    watches_unlock();
    fork_release();
}

/* ---- mappings of devices, in a child ----------------------------------- */

struct devices {
    uint32_t count;
    char paths[DEVICES_MAX][PATH_BYTES];
};

/* Adds the path of a descriptor's file, unless it is there already. */
static void add_device(struct devices *devices, int fd) {
    char link[32] = "/proc/self/fd/", digits[12];
    size_t length = strlen(link), count = 0;
    if (devices->count == DEVICES_MAX)
        return;
    do
        digits[count++] = (char)('0' + fd % 10);
    while ((fd /= 10) != 0);
    while (count > 0)
        link[length++] = digits[--count];
    char *path = devices->paths[devices->count];
    ssize_t got = readlink(link, path, PATH_BYTES - 1);
    if (got <= 0 || path[0] != '/')
        return;
    path[got] = '\0';
    for (uint32_t i = 0; i < devices->count; i++) {
        if (strcmp(devices->paths[i], path) == 0)
            return;
    }
    devices->count++;
}

static const char *read_hex(const char *at, uintptr_t *out) {
    *out = 0;
    for (;; at++) {
        if (*at >= '0' && *at <= '9')
            *out = *out << 4 | (uintptr_t)(*at - '0');
        else if (*at >= 'a' && *at <= 'f')
            *out = *out << 4 | (uintptr_t)(*at - 'a' + 10);
        else
            return at;
    }
}

/* proc(5): "start-end rights offset device inode    path". */
static void unmap_line(const struct devices *devices, const char *line) {
    const char *path = strchr(line, '/');
    uintptr_t start, end;
    for (uint32_t i = 0; path != NULL && i < devices->count; i++) {
        if (strcmp(devices->paths[i], path) != 0)
            continue;
        const char *at = read_hex(line, &start);
        read_hex(at + 1, &end);
        munmap((void *)start, end - start);
        return;
    }
}

/* The file goes on behind what was read last, whatever is unmapped meanwhile. */
static void unmap_devices(const struct devices *devices) {
    char line[LINE_BYTES], block[1024];
    size_t length = 0;
    ssize_t got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while ((got = read(fd, block, sizeof block)) > 0 || (got < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < got; i++) {
            if (block[i] != '\n') {
                if (length < sizeof line - 1)
                    line[length++] = block[i];
                continue;
            }
            line[length] = '\0';
            length = 0;
            unmap_line(devices, line);
        }
    }
    close(fd);
}

/* ---- the handlers ------------------------------------------------------ */

static void before_fork(void) {
    atomic_fetch_add(&gate, FORKING);
    for (uint32_t turn = 0; turn < PAUSES_MAX && (uint32_t)atomic_load(&gate) != 0; turn++)
        pause_at(turn);
}

static void after_in_parent(void) {
    atomic_fetch_sub(&gate, FORKING);
}

static void close_chunk(struct chunk *chunk, int first) {
    for (int word = 0; word < CHUNK_WORDS; word++) {
        uint64_t bits = atomic_exchange(&chunk->open[word], 0);
        atomic_store(&chunk->device[word], 0);
        for (; bits != 0; bits &= bits - 1)
            close(first + word * 64 + __builtin_ctzll(bits));
    }
}

static void find_devices(const struct chunk *chunk, int first, struct devices *devices) {
    for (int word = 0; word < CHUNK_WORDS; word++) {
        for (uint64_t bits = atomic_load(&chunk->device[word]); bits != 0; bits &= bits - 1)
            add_device(devices, first + word * 64 + __builtin_ctzll(bits));
    }
}

static void after_in_child(void) {
    const int saved = errno;
    struct devices devices;
    devices.count = 0;
    atomic_store(&gate, 0);
    atomic_store(&watches_taken, false);
    struct fork_watch *watch = atomic_exchange(&watches, NULL);
    for (; watch != NULL; watch = watch->next)
        watch->in_child(watch);
    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *chunk = atomic_load(&chunks[i]);
        if (chunk == NULL)
            continue;
        find_devices(chunk, i * CHUNK_FDS, &devices);
        close_chunk(chunk, i * CHUNK_FDS);
    }
    if (devices.count > 0)
        unmap_devices(&devices);
    errno = saved;
}

static bool install(void) {
    bool done = atomic_load(&installed);
    if (!done && pthread_atfork(before_fork, after_in_parent, after_in_child) == 0)
        atomic_store(&installed, done = true);
    return done;
}

__attribute__((constructor)) static void loaded(void) {
    install();
}

bool fork_watch(struct fork_watch *watch) {
    fork_hold();
    watches_lock();
    bool done = install();
    if (done) {
        watch->next = atomic_load(&watches);
        atomic_store(&watches, watch);
    }
    watches_unlock();
    fork_release();
    return done;
}
