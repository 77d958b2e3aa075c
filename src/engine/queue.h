/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h: the things that the engine hands to the application, in order.
 *
 * A bounded ring of fixed-size entries. Only the thread that has the engine puts;
 * any thread takes, one at a time. Looking at an empty one is two loads. */
#ifndef WEIR_ENGINE_QUEUE_H
#define WEIR_ENGINE_QUEUE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue {
    uint8_t *entries;
    size_t entry_bytes;
    uint32_t mask;
    _Alignas(64) _Atomic uint32_t tail; /* written by the owner */
    _Alignas(64) _Atomic uint32_t head; /* written by takers */
    _Atomic uint32_t taking;
};

/* entries: capacity (a power of two) times entry_bytes. */
static inline void queue_init(struct queue *queue, void *entries, size_t entry_bytes,
                              uint32_t capacity) {
    queue->entries = entries;
    queue->entry_bytes = entry_bytes;
    queue->mask = capacity - 1;
    atomic_init(&queue->tail, 0);
    atomic_init(&queue->head, 0);
    atomic_init(&queue->taking, 0);
}

/* Where the next entry goes; NULL when full. Then queue_put shows it to takers. */
static inline void *queue_room(struct queue *queue) {
    uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    /* Sequentially consistent, as the taker's step is: see deliver_later. */
    if (tail - atomic_load(&queue->head) > queue->mask)
        return NULL;
    return queue->entries + (size_t)(tail & queue->mask) * queue->entry_bytes;
}
static inline void queue_put(struct queue *queue) {
    uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

static inline bool queue_is_empty(struct queue *queue) {
    return atomic_load_explicit(&queue->tail, memory_order_acquire) ==
           atomic_load_explicit(&queue->head, memory_order_relaxed);
}

/* Entries, which others may be taking meanwhile. */
static inline uint32_t queue_count(struct queue *queue) {
    return atomic_load_explicit(&queue->tail, memory_order_relaxed) -
           atomic_load_explicit(&queue->head, memory_order_relaxed);
}

/* The oldest entry, for this thread alone until queue_took; NULL: none. The wait
 * for another taker is as long as that one copies an entry. */
static inline const void *queue_take(struct queue *queue) {
    if (queue_is_empty(queue))
        return NULL;
    while (atomic_exchange_explicit(&queue->taking, 1, memory_order_acquire) != 0)
        sched_yield();
    if (queue_is_empty(queue)) {
        atomic_store_explicit(&queue->taking, 0, memory_order_release);
        return NULL;
    }
    uint32_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    return queue->entries + (size_t)(head & queue->mask) * queue->entry_bytes;
}
static inline void queue_took(struct queue *queue) {
    atomic_fetch_add(&queue->head, 1);
    atomic_store_explicit(&queue->taking, 0, memory_order_release);
}

#endif
