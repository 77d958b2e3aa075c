/* SPDX-License-Identifier: Apache-2.0 */
/* content.c: see content.h. Blocks may start at any address and have any length. */
#include "content.h"

#include <string.h>

#include "host.h"

#define CONTENT_ODD 0x9e3779b97f4a7c15u
/* Words compared before looking at the outcome: long enough to vectorise, 512 bytes. */
#define CONTENT_RUN 64

static inline uint64_t content_word(uint64_t w) {
    return w ^ (w >> 32);
}

uint64_t content_key(uint64_t seed, uint64_t index) {
    return mix64(mix64(seed) ^ index);
}

void content_fill(void *out, uint64_t length, uint64_t key) {
    unsigned char *bytes = out;
    uint64_t words = length / 8;
    uint64_t last;

    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = content_word(key + i * CONTENT_ODD);
        memcpy(bytes + i * 8, &word, 8);
    }
    last = content_word(key + words * CONTENT_ODD);
    memcpy(bytes + words * 8, &last, length % 8);
}

static uint64_t wrong_slowly(const unsigned char *bytes, uint64_t length, uint64_t key) {
    uint64_t wrong = 0;

    for (uint64_t at = 0; at < length; at++) {
        uint64_t word = content_word(key + (at / 8) * CONTENT_ODD);
        unsigned char want[8];

        memcpy(want, &word, 8);
        wrong += bytes[at] != want[at % 8];
    }
    return wrong;
}

uint64_t content_wrong(const void *block, uint64_t length, uint64_t key) {
    const unsigned char *bytes = block;
    uint64_t runs = length / (8 * CONTENT_RUN);

    for (uint64_t run = 0; run < runs; run++) {
        const unsigned char *from = bytes + run * 8 * CONTENT_RUN;
        uint64_t start = key + run * CONTENT_RUN * CONTENT_ODD;
        uint64_t differs = 0;

        for (uint64_t i = 0; i < CONTENT_RUN; i++) {
            uint64_t word;
            memcpy(&word, from + i * 8, 8);
            differs |= word ^ content_word(start + i * CONTENT_ODD);
        }
        if (differs != 0)
            return wrong_slowly(bytes, length, key);
    }
    /* The tail, less than a run; it starts on a word. */
    return wrong_slowly(bytes + runs * 8 * CONTENT_RUN, length - runs * 8 * CONTENT_RUN,
                        key + runs * CONTENT_RUN * CONTENT_ODD);
}
