/* SPDX-License-Identifier: Apache-2.0 */
/* timer.h: deadlines of numbered things, the nearest first.
 *
 * A binary heap over memory given at init; each number 0..count-1 has at most one
 * deadline. set and clear are O(log n), the nearest O(1). Equal deadlines come in
 * an order that depends on the calls alone. */
#ifndef WEIR_TIMER_H
#define WEIR_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer_entry {
    uint64_t when_ns;
    uint32_t number; /* heap order */
    uint32_t place;  /* of the entry's own index as a number: 1 + its heap position; 0: none */
};

struct timers {
    struct timer_entry *entries; /* count of them */
    uint32_t count;
    uint32_t used;
};

size_t timers_bytes(uint32_t count);
/* memory: timers_bytes(count), zeroed. */
void timers_init(struct timers *timers, void *memory, uint32_t count);
/* UINT64_MAX clears. */
void timers_set(struct timers *timers, uint32_t number, uint64_t when_ns);
static inline void timers_clear(struct timers *timers, uint32_t number) {
    if (timers->entries[number].place != 0)
        timers_set(timers, number, UINT64_MAX);
}
/* UINT64_MAX: none. */
uint64_t timers_next(const struct timers *timers);
/* Takes one that is due. */
bool timers_take(struct timers *timers, uint64_t now_ns, uint32_t *number_out);

#endif
