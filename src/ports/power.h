/* SPDX-License-Identifier: Apache-2.0 */
/* power.h: sizes of tables and rings, which are powers of two. */
#ifndef WEIR_POWER_H
#define WEIR_POWER_H

#include <stdint.h>

/* The least power of two that is not less than `least`, which is at most 2^31. */
static inline uint32_t power_of_two(uint32_t least) {
    uint32_t size = 1;
    while (size < least)
        size <<= 1;
    return size;
}

#endif
