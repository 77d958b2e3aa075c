/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c: the loops and the guess when to use them; see copy.h.
 *
 * On an AMD EPYC (family 26, 1 MiB L2, 32 MiB L3), 64 KiB blocks: into a cold 1 GiB,
 * non-temporal stores reach 40 GB/s and memcpy 29 to 35 (source cached), 22 and 20
 * (source cold: reading alone is 31, and no loop of some 80 tried did better); into a set
 * of 64 MiB written in turn memcpy still wins, 54 to 40; from 128 MiB on it does not.
 * Below 16 KiB the two are equal on cold memory. On one hot buffer of 4 to 16 KiB the
 * vector loop reaches 270 GB/s and memcpy 145 to 170; at 32 KiB, 100 and 172. Other CPUs
 * differ: on an Intel Xeon with 260 MiB of L3 memcpy is the fastest into cold memory. */
#include "copy.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define PREFETCH_AHEAD 4096u /* past this page: the hardware prefetcher stops at its end */

/* The source is read once: it need not push out what the caches hold. At or past the
 * end of the source it is harmless, as it cannot fault, but costs bandwidth. */
static inline void prefetch(const uint8_t *from, size_t length) {
    for (size_t line = 0; line < length; line += 64)
        _mm_prefetch((const char *)(from + line), _MM_HINT_NTA);
}

/* Copies the first bytes so that the destination is aligned to align; returns how
 * many there were. length >= align. */
static inline size_t align_head(uint8_t *to, const uint8_t *from, size_t align) {
    size_t head = (size_t)(-(uintptr_t)to & (align - 1));
    memcpy(to, from, head);
    return head;
}

__attribute__((target("avx512f"))) static void stream_avx512(void *to_start, const void *from_start,
                                                             size_t length) {
    uint8_t *to = to_start;
    const uint8_t *from = from_start;
    size_t at = align_head(to, from, 64);
    prefetch(from, length < PREFETCH_AHEAD ? length : PREFETCH_AHEAD);
    for (; at + 256 <= length; at += 256) {
        if (at + PREFETCH_AHEAD < length)
            prefetch(from + at + PREFETCH_AHEAD, 256);
        __m512i a = _mm512_loadu_si512(from + at);
        __m512i b = _mm512_loadu_si512(from + at + 64);
        __m512i c = _mm512_loadu_si512(from + at + 128);
        __m512i d = _mm512_loadu_si512(from + at + 192);
        _mm512_stream_si512((void *)(to + at), a);
        _mm512_stream_si512((void *)(to + at + 64), b);
        _mm512_stream_si512((void *)(to + at + 128), c);
        _mm512_stream_si512((void *)(to + at + 192), d);
    }
    _mm_sfence();
    memcpy(to + at, from + at, length - at);
}

__attribute__((target("avx512f"))) static void vector_avx512(void *to_start, const void *from_start,
                                                             size_t length) {
    uint8_t *to = to_start;
    const uint8_t *from = from_start;
    for (size_t at = 0; at < length; at += 256) {
        __m512i a = _mm512_load_si512(from + at);
        __m512i b = _mm512_load_si512(from + at + 64);
        __m512i c = _mm512_load_si512(from + at + 128);
        __m512i d = _mm512_load_si512(from + at + 192);
        _mm512_store_si512((void *)(to + at), a);
        _mm512_store_si512((void *)(to + at + 64), b);
        _mm512_store_si512((void *)(to + at + 128), c);
        _mm512_store_si512((void *)(to + at + 192), d);
    }
}

__attribute__((target("avx2"))) static void stream_avx2(void *to_start, const void *from_start,
                                                        size_t length) {
    uint8_t *to = to_start;
    const uint8_t *from = from_start;
    size_t at = align_head(to, from, 32);
    prefetch(from, length < PREFETCH_AHEAD ? length : PREFETCH_AHEAD);
    for (; at + 128 <= length; at += 128) {
        if (at + PREFETCH_AHEAD < length)
            prefetch(from + at + PREFETCH_AHEAD, 128);
        __m256i a = _mm256_loadu_si256((const void *)(from + at));
        __m256i b = _mm256_loadu_si256((const void *)(from + at + 32));
        __m256i c = _mm256_loadu_si256((const void *)(from + at + 64));
        __m256i d = _mm256_loadu_si256((const void *)(from + at + 96));
        _mm256_stream_si256((void *)(to + at), a);
        _mm256_stream_si256((void *)(to + at + 32), b);
        _mm256_stream_si256((void *)(to + at + 64), c);
        _mm256_stream_si256((void *)(to + at + 96), d);
    }
    _mm_sfence();
    memcpy(to + at, from + at, length - at);
}

static void flush_one(const uint8_t *memory, size_t length) {
    for (size_t line = 0; line < length; line += 64)
        _mm_clflush(memory + line);
}

static void flush(void *to, const void *from, size_t length) {
    flush_one(to, length);
    flush_one(from, length);
    _mm_mfence();
}

static void add_loops(struct copy_loops *loops) {
    __builtin_cpu_init();
    size_t count = 0;
    loops->flush = flush;
    if (__builtin_cpu_supports("avx512f")) {
        loops->streams[count++] = stream_avx512;
        loops->vector = vector_avx512;
    }
    if (__builtin_cpu_supports("avx2"))
        loops->streams[count++] = stream_avx2;
}

#else

/* memcpy does it all. */
static void add_loops(struct copy_loops *loops) {
    (void)loops;
}

#endif

static void plain(void *to, const void *from, size_t length) {
    memmove(to, from, length);
}

struct copy_loops copy_loops(void) {
    struct copy_loops loops = {.plain = plain};
    add_loops(&loops);
    return loops;
}

/* Notes every block of [to, to + length) as written now; nonzero if the first was
 * written lately. */
static int note_blocks(struct copier *copier, uint64_t to, uint64_t length) {
    uint64_t first = to / COPY_BLOCK_BYTES, last = (to + length - 1) / COPY_BLOCK_BYTES;
    uint32_t now = (uint32_t)(copier->clock_bytes / COPY_TICK_BYTES);
    int hot = copier->seen[first % COPY_BLOCKS].block == (uint32_t)first + 1 &&
              now - copier->seen[first % COPY_BLOCKS].tick <= COPY_HOT_BYTES / COPY_TICK_BYTES;
    if (last - first >= COPY_BLOCKS)
        first = last - COPY_BLOCKS + 1;
    for (uint64_t block = first; block <= last; block++) {
        copier->seen[block % COPY_BLOCKS].block = (uint32_t)block + 1;
        copier->seen[block % COPY_BLOCKS].tick = now;
    }
    copier->clock_bytes += length;
    return hot;
}

void copy_large(struct copier *copier, void *to, const void *from, size_t length) {
    uint64_t to_address = (uint64_t)(uintptr_t)to, from_address = (uint64_t)(uintptr_t)from;
    int apart = to_address - from_address >= length && from_address - to_address >= length;
    const struct copy_choice *choice = &copier->choice;
    int hot = note_blocks(copier, to_address, length);
    if (!hot && length >= choice->stream_bytes_min && apart)
        choice->stream(to, from, length);
    else if (hot && length <= choice->vector_bytes_max && apart &&
             ((to_address | from_address) % 64 | length % 256) == 0)
        choice->vector(to, from, length);
    else
        memmove(to, from, length);
}
