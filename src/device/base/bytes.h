/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h: numbers in blobs, little-endian.
 *
 * Owns how a number of so many bytes lies there; how many bytes there are is looked at by the
 * caller. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdint.h>

/* Both go on behind what they put, or got. */
static inline void bytes_put(uint8_t **at, uint64_t value, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> (8 * i));
}

static inline uint64_t bytes_get(const uint8_t **at, uint32_t bytes) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)(*(*at)++) << (8 * i);
    return value;
}

#endif
