/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c: a 4-ary heap of events; see heap.h. Four children a node keep a sift
 * within few cache lines, and the heap is the hottest thing in a simulation. */
#include "heap.h"

#include <stdlib.h>

enum { HEAP_ARITY = 4, HEAP_CAPACITY_FIRST = 1024 };

static bool heap_before(const struct sim_event *x, const struct sim_event *y) {
    return x->at_ns < y->at_ns || (x->at_ns == y->at_ns && x->seq < y->seq);
}

static bool heap_grow(struct sim_heap *heap) {
    size_t capacity = heap->capacity == 0 ? HEAP_CAPACITY_FIRST : heap->capacity * 2;
    struct sim_event *events = realloc(heap->events, capacity * sizeof(*events));

    if (events == NULL) {
        return false;
    }
    heap->events = events;
    heap->capacity = capacity;
    return true;
}

bool sim_heap_push(struct sim_heap *heap, const struct sim_event *event) {
    struct sim_event put = *event;
    size_t i;

    if (heap->count == heap->capacity && !heap_grow(heap)) {
        return false;
    }
    put.seq = heap->seq++;
    i = heap->count++;
    while (i > 0) {
        size_t parent = (i - 1) / HEAP_ARITY;

        if (!heap_before(&put, &heap->events[parent])) {
            break;
        }
        heap->events[i] = heap->events[parent];
        i = parent;
    }
    heap->events[i] = put;
    return true;
}

const struct sim_event *sim_heap_peek(const struct sim_heap *heap) {
    return heap->count == 0 ? NULL : &heap->events[0];
}

static void heap_sift_down(struct sim_heap *heap, const struct sim_event *put) {
    size_t i = 0;

    for (;;) {
        size_t first = i * HEAP_ARITY + 1;
        size_t last = first + HEAP_ARITY;
        size_t least = first;

        if (first >= heap->count) {
            break;
        }
        if (last > heap->count) {
            last = heap->count;
        }
        for (size_t child = first + 1; child < last; child++) {
            if (heap_before(&heap->events[child], &heap->events[least])) {
                least = child;
            }
        }
        if (!heap_before(&heap->events[least], put)) {
            break;
        }
        heap->events[i] = heap->events[least];
        i = least;
    }
    heap->events[i] = *put;
}

bool sim_heap_pop(struct sim_heap *heap, struct sim_event *event_out) {
    if (heap->count == 0) {
        return false;
    }
    *event_out = heap->events[0];
    heap->count--;
    if (heap->count > 0) {
        struct sim_event last = heap->events[heap->count];

        heap_sift_down(heap, &last);
    }
    return true;
}

void sim_heap_fini(struct sim_heap *heap) {
    for (size_t i = 0; i < heap->count; i++) {
        if (heap->events[i].drop != NULL) {
            heap->events[i].drop(&heap->events[i]);
        }
    }
    free(heap->events);
    *heap = (struct sim_heap){0};
}
