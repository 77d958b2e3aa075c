/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: plain reads and writes straight from the application's segments.
 *
 * Owns the shortest road for memory that is mapped: the caller has checked bounds
 * and handles, so what is left is the state of both QPs, the keys and rights (once a
 * call, remembered by the QP for writes), and the copies. Other memory takes one
 * system call, where one is enough (vm_pieces). Anything else is none of its business:
 * it does nothing, and post_send finds out why. */
#include <string.h>

#include "shm.h"

_Static_assert(offsetof(struct weir_span, rkey) == offsetof(struct weir_span, lkey) + 4,
               "one load");

/* The import if it is of this link, alive, and grants the right. */
static const struct shm_import *find_import(const struct weir_qp *qp, const struct weir_span *span,
                                            uint32_t right) {
    const struct shm_mr *mr = mr_find(qp->device, span->lkey);
    const struct shm_import *import = import_find(qp->device, span->rkey);
    if (mr == NULL || import == NULL || import->link != qp->link || (import->access & right) == 0 ||
        atomic_load_explicit(import->live, memory_order_acquire) != import->key)
        return NULL;
    return import;
}

static __attribute__((noinline)) uint32_t read_pieces(struct weir_qp *qp,
                                                      const struct weir_span *span,
                                                      const weir_segment *segments,
                                                      uint32_t count) {
    const struct shm_import *import = find_import(qp, span, WEIR_ACCESS_REMOTE_READ);
    if (import == NULL)
        return 0;
    if (import->kind != SHM_KIND_MAPPED)
        return vm_pieces(qp, span, import, segments, count);
    for (uint32_t i = 0; i < count; i++)
        copy_any(&qp->device->copier, span->laddr + segments[i].local_offset,
                 span->raddr + segments[i].remote_offset, segments[i].length);
    /* Released while we read: the bytes are not the target's any more. */
    load_fence();
    return atomic_load_explicit(import->live, memory_order_acquire) == import->key ? count : 0;
}

/* Pieces of 8 bytes, from the front; returns the first that is not. Out of line: in
 * write_any's loop the compiler would keep both lengths' addresses ready. */
static __attribute__((noinline)) const weir_segment *
write_words(uint64_t laddr, uint64_t raddr, const weir_segment *segment, const weir_segment *end) {
    while (segment != end && segment->length == 8) {
        copy_8(raddr + segment->remote_offset, laddr + segment->local_offset);
        segment++;
    }
    return segment;
}

/* Pieces of any length. */
static __attribute__((noinline)) uint32_t write_any(struct weir_qp *qp,
                                                    const struct weir_span *span,
                                                    const weir_segment *segments, uint32_t count) {
    const weir_segment *end = segments + count;
    const weir_segment *segment = segments;
    for (;;) {
        segment = write_words(span->laddr, span->raddr, segment, end);
        if (segment == end)
            return count;
        copy_any(&qp->device->copier, span->raddr + segment->remote_offset,
                 span->laddr + segment->local_offset, segment->length);
        segment++;
    }
}

/* Writes with keys that the QP does not remember: find_import checks them, and the QP remembers
 * them. */
static __attribute__((noinline)) uint32_t write_new(struct weir_qp *qp,
                                                    const struct weir_span *span,
                                                    const weir_segment *segments, uint32_t count) {
    const struct shm_import *import = find_import(qp, span, WEIR_ACCESS_REMOTE_WRITE);
    if (import == NULL)
        return 0;
    if (import->kind != SHM_KIND_MAPPED)
        return vm_pieces(qp, span, import, segments, count);
    const struct shm_mr *mr = mr_find(qp->device, span->lkey);
    if (mr->length >= 8 && import->length >= 8)
        pair_set_regions(qp, (uint64_t)span->rkey << 32 | span->lkey, mr, import);
    return write_any(qp, span, segments, count);
}

/* All that is not one write of 8 bytes with keys that the QP remembers. */
static __attribute__((noinline)) uint32_t post_any(struct weir_qp *qp, const struct weir_span *span,
                                                   const weir_segment *segments, uint32_t count) {
    if (qp->state != QP_READY)
        return 0;
    uint64_t keys, busy = busy_enter(qp, qp->ordered);
    uint32_t done = 0;
    memcpy(&keys, &span->lkey, sizeof(keys));
    if (!remote_is_ready(qp))
        done = 0;
    else if (span->opcode != WEIR_OP_WRITE)
        done = read_pieces(qp, span, segments, count);
    else if (keys == qp->pair.bounds.keys && pair_is_live(&qp->pair))
        done = write_any(qp, span, segments, count);
    else
        done = write_new(qp, span, segments, count);
    busy_leave(qp, busy);
    return done;
}

/* A QP that is not ready remembers no pair that is live, so keys and region answer for
 * its own state. One write of 8 bytes calls nothing: nothing is saved and put back. */
uint32_t shm_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count) {
    uint64_t keys;
    memcpy(&keys, &span->lkey, sizeof(keys));
    if (SHM_UNLIKELY(count != 1 || segments->length != 8 || span->opcode != WEIR_OP_WRITE ||
                     keys != qp->pair.word_keys || !pair_is_live(&qp->pair)))
        return post_any(qp, span, segments, count);
    uint64_t busy = busy_enter(qp, true);
    if (SHM_UNLIKELY(!remote_is_ready(qp))) {
        busy_leave(qp, busy);
        return 0;
    }
    copy_8(span->raddr + segments->remote_offset, span->laddr + segments->local_offset);
    busy_leave(qp, busy);
    return 1;
}
