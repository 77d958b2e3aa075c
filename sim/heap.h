/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h: the future of a simulated world, a heap of events by time.
 *
 * Owns the array. Invariant: events of equal time come out in the order in which
 * they were put in (seq), so that order never depends on the heap's layout. It
 * knows nothing of what events mean; cancelling is the owner's business (an event
 * that finds its object gone does nothing). */
#ifndef WEIR_SIM_HEAP_H
#define WEIR_SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_world;
struct sim_event;

typedef void (*sim_event_fn)(struct sim_world *world, const struct sim_event *event);
typedef void (*sim_event_drop_fn)(const struct sim_event *event);

struct sim_event {
    uint64_t at_ns;
    uint64_t seq;
    sim_event_fn fire;
    sim_event_drop_fn drop; /* frees `object` when the world ends first; may be NULL */
    void *object;
    uint64_t a;
    uint32_t node;
    uint32_t b;
};

struct sim_heap {
    struct sim_event *events;
    size_t count;
    size_t capacity;
    uint64_t seq;
};

/* Puts a copy of *event in and gives it its seq. False: no memory. */
bool sim_heap_push(struct sim_heap *heap, const struct sim_event *event);
/* The earliest, or NULL. Valid until the next push or pop. */
const struct sim_event *sim_heap_peek(const struct sim_heap *heap);
/* Takes the earliest; false when there is none. */
bool sim_heap_pop(struct sim_heap *heap, struct sim_event *event_out);
/* Drops every event and frees the array. */
void sim_heap_fini(struct sim_heap *heap);

#endif
