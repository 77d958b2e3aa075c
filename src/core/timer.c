/* SPDX-License-Identifier: Apache-2.0 */
/* timer.c: see timer.h. entries[i].when_ns and .number are heap position i;
 * entries[n].place is 1 + where number n stands in the heap; 0: it is not there. */
#include "timer.h"

#include <assert.h>

size_t timers_bytes(uint32_t count) {
    return (size_t)count * sizeof(struct timer_entry);
}

void timers_init(struct timers *timers, void *memory, uint32_t count) {
    *timers = (struct timers){.entries = memory, .count = count};
}

static void put(struct timers *timers, uint32_t at, uint64_t when_ns, uint32_t number) {
    timers->entries[at].when_ns = when_ns;
    timers->entries[at].number = number;
    timers->entries[number].place = at + 1;
}

static void sift_up(struct timers *timers, uint32_t at, uint64_t when_ns, uint32_t number) {
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;
        if (timers->entries[parent].when_ns <= when_ns)
            break;
        put(timers, at, timers->entries[parent].when_ns, timers->entries[parent].number);
        at = parent;
    }
    put(timers, at, when_ns, number);
}

static void sift_down(struct timers *timers, uint32_t at, uint64_t when_ns, uint32_t number) {
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= timers->used)
            break;
        if (child + 1 < timers->used &&
            timers->entries[child + 1].when_ns < timers->entries[child].when_ns)
            child++;
        if (when_ns <= timers->entries[child].when_ns)
            break;
        put(timers, at, timers->entries[child].when_ns, timers->entries[child].number);
        at = child;
    }
    put(timers, at, when_ns, number);
}

static void drop(struct timers *timers, uint32_t number) {
    uint32_t at = timers->entries[number].place - 1;
    timers->entries[number].place = 0;
    timers->used--;
    if (at == timers->used)
        return;
    uint64_t when_ns = timers->entries[timers->used].when_ns;
    uint32_t moved = timers->entries[timers->used].number;
    if (at > 0 && when_ns < timers->entries[(at - 1) / 2].when_ns)
        sift_up(timers, at, when_ns, moved);
    else
        sift_down(timers, at, when_ns, moved);
}

void timers_set(struct timers *timers, uint32_t number, uint64_t when_ns) {
    assert(number < timers->count);
    uint32_t place = timers->entries[number].place;
    if (place != 0) {
        if (timers->entries[place - 1].when_ns == when_ns)
            return;
        drop(timers, number);
    }
    if (when_ns != UINT64_MAX)
        sift_up(timers, timers->used++, when_ns, number);
}

uint64_t timers_next(const struct timers *timers) {
    return timers->used > 0 ? timers->entries[0].when_ns : UINT64_MAX;
}

bool timers_take(struct timers *timers, uint64_t now_ns, uint32_t *number_out) {
    if (timers->used == 0 || timers->entries[0].when_ns > now_ns)
        return false;
    *number_out = timers->entries[0].number;
    drop(timers, *number_out);
    return true;
}
