/* SPDX-License-Identifier: Apache-2.0 */
/* handle.h: how public ids and wr_ids are put together.
 *
 * Owns two encodings and nothing else.
 *  - A handle is {generation:44, index:20}. Generations start at 1, so 0 names
 *    nothing; at a million releases a second of one entry they last 200 days.
 *  - A wr_id is {kind:4, QP:16, sequence:44}. The sequence of the runs of a QP's entry
 *    never restarts, so a completion of a QP that is gone names no run of a newer one.
 */
#ifndef WEIR_HANDLE_H
#define WEIR_HANDLE_H

#include <stdint.h>

enum { HANDLE_INDEX_BITS = 20, HANDLE_INDEX_MASK = (1 << HANDLE_INDEX_BITS) - 1 };

static inline uint32_t handle_index(uint64_t id) {
    return (uint32_t)id & HANDLE_INDEX_MASK;
}

static inline uint64_t handle_first(uint32_t index) {
    return ((uint64_t)1 << HANDLE_INDEX_BITS) | index;
}

/* The id that the entry gets after this one was released. */
static inline uint64_t handle_next(uint64_t id) {
    uint64_t next = id + ((uint64_t)1 << HANDLE_INDEX_BITS);
    return next > HANDLE_INDEX_MASK ? next : handle_first(handle_index(id));
}

enum route_kind { ROUTE_RUN = 1, ROUTE_BEACON = 2, ROUTE_RECV = 3 };
enum { ROUTE_QP_BITS = 16, ROUTE_SEQ_BITS = 44, ROUTE_QP_SRQ = 0xffff };
#define ROUTE_SEQ_MASK (((uint64_t)1 << ROUTE_SEQ_BITS) - 1)

static inline uint64_t route_id(enum route_kind kind, uint32_t index, uint64_t seq) {
    return ((uint64_t)kind << (ROUTE_QP_BITS + ROUTE_SEQ_BITS)) |
           ((uint64_t)index << ROUTE_SEQ_BITS) | (seq & ROUTE_SEQ_MASK);
}
static inline uint32_t route_kind(uint64_t wr_id) {
    return (uint32_t)(wr_id >> (ROUTE_QP_BITS + ROUTE_SEQ_BITS));
}
static inline uint32_t route_qp(uint64_t wr_id) {
    return (uint32_t)(wr_id >> ROUTE_SEQ_BITS) & 0xffff;
}
static inline uint64_t route_seq(uint64_t wr_id) {
    return wr_id & ROUTE_SEQ_MASK;
}

#endif
