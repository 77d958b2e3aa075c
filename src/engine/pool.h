/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: a stack of free indices that any thread may take from and give to.
 *
 * Treiber's stack over an array of links. The head carries a counter beside the
 * index, so that a head that was taken and given back meanwhile is not mistaken
 * for the old one (ABA). Sequentially consistent: a thread that says that it waits, and
 * then finds it empty, is seen by one that gives (news_room). Written with C11 atomics rather than
 * taken from Concurrency Kit, whose inline assembly ThreadSanitizer cannot see. */
#ifndef WEIR_ENGINE_POOL_H
#define WEIR_ENGINE_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#define POOL_EMPTY UINT32_MAX

struct pool {
    _Atomic uint64_t head; /* counter << 32 | index + 1 */
    _Atomic uint32_t *links;
};

static inline void pool_give(struct pool *pool, uint32_t index) {
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_relaxed);
    uint64_t next;
    do {
        atomic_store_explicit(&pool->links[index], (uint32_t)head, memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | (index + 1);
    } while (!atomic_compare_exchange_weak_explicit(&pool->head, &head, next, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

static inline uint32_t pool_take(struct pool *pool) {
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_seq_cst);
    uint64_t next;
    do {
        if ((uint32_t)head == 0)
            return POOL_EMPTY;
        uint32_t link =
            atomic_load_explicit(&pool->links[(uint32_t)head - 1], memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | link;
    } while (!atomic_compare_exchange_weak_explicit(&pool->head, &head, next, memory_order_acquire,
                                                    memory_order_acquire));
    return (uint32_t)head - 1;
}

/* All of 0..count-1 free, lowest first. links: count of them. */
static inline void pool_init(struct pool *pool, _Atomic uint32_t *links, uint32_t count) {
    atomic_init(&pool->head, 0);
    pool->links = links;
    for (uint32_t i = count; i-- > 0;)
        pool_give(pool, i);
}

#endif
