/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h: moving bytes between two mapped regions, fast whatever the caches hold.
 *
 * Four ways: one move for 8 bytes; memcpy(3) in general; a plain vector loop for
 * some pages that are in a cache, where glibc's rep movsb is slower; non-temporal
 * stores when the destination is large and probably not in a cache, because those
 * do not fetch lines that are overwritten whole. Where the last two are faster, if
 * they are, differs between CPUs: it is measured (choose.c). The state of the destination's cache
 * lines is guessed from a small table of recently written blocks and a running count of copied
 * bytes: a block written within the last COPY_HOT_BYTES is taken to be cached.
 *
 * Invariants: a wrong guess costs time and nothing else. When a function here
 * returns, its stores are ordered before any later store (non-temporal ones are
 * fenced), so a message that follows makes the data visible. A copy of exactly 8
 * bytes is one load and one store. */
#ifndef SHM_COPY_H
#define SHM_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_BLOCK_BYTES     16384u
#define COPY_BLOCKS          4096u /* direct-mapped: COPY_HOT_BYTES of a contiguous buffer */
#define COPY_GUESS_BYTES_MIN 4096u /* below it memcpy is the right choice always */
#define COPY_HOT_BYTES       (UINT64_C(64) << 20)
#define COPY_TICK_BYTES      4096u /* unit of the clock in the table */
#define COPY_STREAMS         2

typedef void copy_loop(void *to, const void *from, size_t length);

/* The loops that this CPU can run. */
struct copy_loops {
    copy_loop *plain;                 /* memcpy */
    copy_loop *streams[COPY_STREAMS]; /* NULL: no more. Regions apart, length >= 64 */
    copy_loop *vector;                /* NULL: none. Both aligned to 64, a multiple of 256 */
    copy_loop *flush;                 /* both regions leave all caches */
};

/* The loops that are used, and for which lengths. */
struct copy_choice {
    copy_loop *stream;
    copy_loop *vector;
    size_t stream_bytes_min; /* into cold memory; SIZE_MAX: never */
    size_t vector_bytes_max; /* into cached memory; 0: never */
};

struct copier {
    struct copy_choice choice;
    uint64_t clock_bytes; /* copied so far by copy_large */
    struct {
        uint32_t block; /* number + 1, low 32 bits */
        uint32_t tick;  /* the clock when it was last written */
    } seen[COPY_BLOCKS];
};

struct copy_loops copy_loops(void);

/* length of at least COPY_GUESS_BYTES_MIN. */
void copy_large(struct copier *copier, void *to, const void *from, size_t length);

static inline void copy_8(uint64_t to, uint64_t from) {
    uint64_t word;
    memcpy(&word, (const void *)(uintptr_t)from, sizeof word);
    memcpy((void *)(uintptr_t)to, &word, sizeof word);
}

/* Any length; the regions do not overlap, or are the same. */
static inline void copy_any(struct copier *copier, uint64_t to_address, uint64_t from_address,
                            uint64_t length) {
    void *to = (void *)(uintptr_t)to_address;
    const void *from = (const void *)(uintptr_t)from_address;
    if (length >= COPY_GUESS_BYTES_MIN)
        copy_large(copier, to, from, length);
    else if (length == 8)
        copy_8(to_address, from_address);
    else
        memmove(to, from, length);
}

#endif
