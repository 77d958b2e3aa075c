/* pieces.c: plain reads and writes straight from the application's segments.
 *
 * Owns the shortest road for memory that is mapped: the caller has checked bounds
 * and handles, so what is left is the state of both QPs, the keys and rights (once a
 * call, remembered by the QP for writes), and the copies. Anything else is none of
 * its business: it does nothing, and post_send finds out why. */
#include "shm.h"

static inline bool remote_is_ready(const struct weir_qp *qp) {
    return atomic_load_explicit(&qp->remote->state, memory_order_acquire) == qp->remote_ready;
}

/* The import if it is mapped, of this link, alive, and grants the right. */
static const struct shm_import *find_mapped(const struct weir_qp *qp,
                                            const struct weir_pieces *pieces, uint32_t right) {
    const struct shm_mr *mr = mr_find(qp->device, pieces->lkey);
    const struct shm_import *import = import_find(qp->device, pieces->rkey);
    if (mr == NULL || import == NULL || import->kind != SHM_KIND_MAPPED ||
        import->link != qp->link || (import->access & right) == 0 ||
        atomic_load_explicit(import->live, memory_order_acquire) != import->key)
        return NULL;
    return import;
}

static uint32_t read_pieces(struct weir_qp *qp, const struct weir_pieces *pieces) {
    const struct shm_import *import = find_mapped(qp, pieces, WEIR_ACCESS_REMOTE_READ);
    if (import == NULL)
        return 0;
    for (uint32_t i = 0; i < pieces->count; i++) {
        const weir_segment *segment = &pieces->segments[i];
        copy_any(&qp->device->copier, pieces->laddr + segment->local_offset,
                 pieces->raddr + segment->remote_offset, segment->length);
    }
    /* Released while we read: the bytes are not the target's any more. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(import->live, memory_order_acquire) == import->key ? pieces->count
                                                                                   : 0;
}

static inline void write_pieces(struct weir_qp *qp, const struct weir_pieces *pieces) {
    const weir_segment *segment = pieces->segments;
    const weir_segment *end = segment + pieces->count;
    const uint64_t laddr = pieces->laddr;
    const uint64_t raddr = pieces->raddr;
    do {
        if (segment->length == 8)
            copy_8(raddr + segment->remote_offset, laddr + segment->local_offset);
        else
            copy_any(&qp->device->copier, raddr + segment->remote_offset,
                     laddr + segment->local_offset, segment->length);
    } while (++segment != end);
}

/* Remembers the keys of a write that find_mapped allowed, as post.c does. */
static bool open_pair(struct weir_qp *qp, const struct weir_pieces *pieces, uint64_t keys) {
    const struct shm_import *import = find_mapped(qp, pieces, WEIR_ACCESS_REMOTE_WRITE);
    if (import == NULL)
        return false;
    const struct shm_mr *mr = mr_find(qp->device, pieces->lkey);
    if (mr->length >= 8 && import->length >= 8)
        qp->pair = (struct shm_pair){.keys = keys,
                                     .live = import->live,
                                     .live_key = import->key,
                                     .local = mr->base,
                                     .local_limit = mr->length - 8,
                                     .remote = import->base,
                                     .remote_limit = import->length - 8};
    return true;
}

uint32_t shm_post_pieces(struct weir_qp *qp, const struct weir_pieces *pieces) {
    if (SHM_UNLIKELY(qp->state != QP_READY || !remote_is_ready(qp) || pieces->count == 0))
        return 0;
    if (pieces->opcode != WEIR_OP_WRITE)
        return read_pieces(qp, pieces);
    uint64_t keys = (uint64_t)pieces->rkey << 32 | pieces->lkey;
    if (SHM_UNLIKELY(keys != qp->pair.keys)) {
        if (!open_pair(qp, pieces, keys))
            return 0;
    } else if (SHM_UNLIKELY(atomic_load_explicit(qp->pair.live, memory_order_acquire) !=
                            qp->pair.live_key)) {
        return 0;
    }
    write_pieces(qp, pieces);
    return pieces->count;
}
