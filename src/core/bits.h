/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h: a set of numbers below 65,536, and the way from one to the next larger.
 *
 * A bit each, and in a summary of 16 words a bit for each word that has any: so the time to find
 * the next member is bounded, wherever it is and however many could be there. Members may come and
 * go while the set is walked: the walk goes on with the next larger of those that are there then.
 * Owns memory given at init. */
#ifndef WEIR_BITS_H
#define WEIR_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BITS_MAX = 65536, BITS_WORD = 64, BITS_SUMMARY = BITS_MAX / BITS_WORD / BITS_WORD };
#define BITS_NONE UINT32_MAX

struct bits {
    uint64_t summary[BITS_SUMMARY];
    uint64_t *words;
    uint32_t size;
    uint32_t count; /* members */
};

static inline size_t bits_bytes(uint32_t size) {
    return ((size_t)size + BITS_WORD - 1) / BITS_WORD * sizeof(uint64_t);
}

/* memory: bits_bytes(size), zeroed. size: BITS_MAX at most. */
static inline void bits_init(struct bits *bits, void *memory, uint32_t size) {
    *bits = (struct bits){.words = memory, .size = size};
}

static inline bool bits_has(const struct bits *bits, uint32_t number) {
    return (bits->words[number / BITS_WORD] >> (number % BITS_WORD) & 1) != 0;
}

static inline void bits_add(struct bits *bits, uint32_t number) {
    uint32_t word = number / BITS_WORD;
    bits->count += !bits_has(bits, number);
    bits->words[word] |= UINT64_C(1) << (number % BITS_WORD);
    bits->summary[word / BITS_WORD] |= UINT64_C(1) << (word % BITS_WORD);
}

static inline void bits_drop(struct bits *bits, uint32_t number) {
    uint32_t word = number / BITS_WORD;
    bits->count -= bits_has(bits, number);
    bits->words[word] &= ~(UINT64_C(1) << (number % BITS_WORD));
    if (bits->words[word] == 0)
        bits->summary[word / BITS_WORD] &= ~(UINT64_C(1) << (word % BITS_WORD));
}

/* The first bit from `from` on of `count` words; BITS_NONE. */
static inline uint32_t bits_scan(const uint64_t *words, uint32_t count, uint32_t from) {
    uint32_t word = from / BITS_WORD;
    if (word >= count)
        return BITS_NONE;
    uint64_t rest = words[word] & UINT64_MAX << (from % BITS_WORD);
    while (rest == 0 && ++word < count)
        rest = words[word];
    return rest == 0 ? BITS_NONE : word * BITS_WORD + (uint32_t)__builtin_ctzll(rest);
}

/* The smallest member that is not below `from`; BITS_NONE. */
static inline uint32_t bits_next(const struct bits *bits, uint32_t from) {
    if (from >= bits->size)
        return BITS_NONE;
    uint32_t word = from / BITS_WORD;
    uint32_t here = bits_scan(&bits->words[word], 1, from % BITS_WORD);
    if (here != BITS_NONE)
        return word * BITS_WORD + here;
    word = bits_scan(bits->summary, BITS_SUMMARY, word + 1);
    return word == BITS_NONE ? BITS_NONE
                             : word * BITS_WORD + (uint32_t)__builtin_ctzll(bits->words[word]);
}

#endif
