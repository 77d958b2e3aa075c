/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: work requests, done on the spot.
 *
 * Owns the path of a transfer. A post looks once at the remote QP's state word;
 * then consecutive writes between the same two regions ("a run") are checked against
 * limits held in registers and copied. All that is no run over mapped memory goes
 * through post_one: reads, messages, in-line payloads and errors WR by WR; of the WRs to
 * memory that is reached with process_vm_writev(2), one system call takes many.
 *
 * Invariants:
 *  - No WR touches memory before its lkey, rkey, rights and bounds were checked, and
 *    the region's key was seen in the target's segment in this post.
 *  - The first failure puts the QP in the error state, gives its CQE, and flushes the
 *    rest. There is room for the CQEs of sq_depth WRs; a WR that has none is refused with EAGAIN.
 *  - A post happens between busy_enter and busy_leave. The target waits for its end before it
 *    gives the QP back, and with that the ring and whatever this peer may write to (qp_destroy).
 *  - System calls on the target's process happen between call_enter and call_leave. The target
 *    waits for their end before its application has memory back that it had registered
 * (mr_release).
 *  - Messages and system calls have a full barrier before the target's state or key is looked at:
 *    the end of the ring and the release of memory make none for us.
 *  - A system call on another process's memory names a pid, which may be another program's
 *    by now (execve(2), or the number was used again). So the first thing that each such call
 *    moves is a word of the segment's guard, at its address in the owner's process (segment.c): the
 *    kernel looks the process up once a call and moves in order, so where that word cannot
 *    be moved, nothing is. An owner that goes takes the guard away (shm_revoke). Of a read it has
 * to be the segment's nonce; a write's is looked for in our own mapping of the segment.
 *
 * Left to others: giving the CQEs (poll.c), tables (memory.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shm.h"

#define VM_BATCH_WRS  256                 /* < IOV_MAX; on the stack */
#define VM_CALL_BYTES (UINT64_C(4) << 20) /* of one system call: bounds mr_release's wait */

/* ---- failing ---- */

/* Accepts WRs [0, count) as flushed, the first with `status`, as far as there is room
 * for their CQEs; returns how many. */
static uint32_t push_failed(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                            uint32_t status) {
    uint32_t room = qp->sq_depth - qp->failed_count;
    uint32_t taken = count < room ? count : room;
    for (uint32_t i = 0; i < taken; i++) {
        uint32_t at = (qp->failed_head + qp->failed_count) % qp->sq_depth;
        qp->failed[at].wr_id = wrs[i].wr_id;
        qp->failed[at].status = i == 0 ? status : WEIR_CQE_FLUSHED;
        qp->failed_count++;
    }
    if (taken != 0)
        qp_make_ready(qp);
    return taken;
}

static int post_flushed(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                        struct weir_post *post_out) {
    post_out->done = 0;
    post_out->accepted = push_failed(qp, wrs, count, WEIR_CQE_FLUSHED);
    return post_out->accepted == count ? 0 : WEIR_EAGAIN;
}

/* WR `done` failed with status, the ones before it are complete. */
static int post_failed(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count, uint32_t done,
                       uint32_t status, struct weir_post *post_out) {
    qp_fail(qp);
    post_out->done = done;
    post_out->accepted = done + push_failed(qp, wrs + done, count - done, status);
    return post_out->accepted == count ? 0 : WEIR_EAGAIN;
}

/* ---- busy ---- */

/* Inside a post: once more whether the target is there, before what it gives back without a barrier
 * for us. */
static bool busy_fence(const struct weir_qp *qp) {
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(&qp->remote->state) == qp->remote_ready;
}

/* Inside a post: system calls on the target's process begin and end. As busy_fence. */
static bool call_enter(struct weir_qp *qp) {
    atomic_fetch_or(&qp->shared->busy, SHM_BUSY_CALL);
    return atomic_load(&qp->remote->state) == qp->remote_ready;
}

static void call_leave(struct weir_qp *qp) {
    uint64_t busy = atomic_load_explicit(&qp->shared->busy, memory_order_relaxed);
    atomic_store_explicit(&qp->shared->busy, busy & ~SHM_BUSY_CALL, memory_order_release);
}

/* Messages were written. */
static void tell(struct weir_qp *qp) {
    /* Sequentially consistent behind send_message's exchange: see qp_unwatch. */
    if (atomic_load(&qp->remote->watched) != 0)
        return;
    uint32_t sleep = seg_notify(qp->link->map, qp->remote_index);
    if (sleep != 0) {
        link_ring(qp->link);
        seg_rung(qp->link->map, sleep);
    }
}

/* ---- checks ---- */

static uint32_t right_of(uint32_t opcode) {
    return opcode == WEIR_OP_READ ? WEIR_ACCESS_REMOTE_READ : WEIR_ACCESS_REMOTE_WRITE;
}

/* The WR's remote region if it may be used as the WR wants; else NULL. */
static struct shm_import *check_remote(const struct weir_qp *qp, const struct weir_wr *wr) {
    struct shm_import *import = import_find(qp->device, wr->rkey);
    if (import == NULL || import->link != qp->link ||
        (import->access & right_of(wr->opcode)) == 0 ||
        !range_inside(wr->raddr - import->base, wr->length, import->length) ||
        !import_is_live(import))
        return NULL;
    return import;
}

static bool check_local(const struct weir_qp *qp, const struct weir_wr *wr) {
    if ((wr->flags & WEIR_WR_INLINE) != 0 || wr->length == 0)
        return true; /* the payload is read now: no key needed */
    const struct shm_mr *mr = mr_find(qp->device, wr->lkey);
    return mr != NULL && range_inside(wr->laddr - mr->base, wr->length, mr->length);
}

/* ---- messages ---- */

__attribute__((noinline, cold)) bool qp_ring_back(struct weir_qp *qp) {
    if (qp->tx_backed || qp->tx_ring == NULL)
        return true;
    uint64_t bytes = ((uint64_t)qp->tx_mask + 1) * qp->tx_cell_bytes;
    if (seg_populate(qp->tx_ring, bytes) == WEIR_ENOMEM)
        return false;
    atomic_store_explicit(&qp->remote->ring_backed, 1, memory_order_release);
    qp->tx_backed = true;
    return true;
}

static uint32_t send_message(struct weir_qp *qp, const struct weir_wr *wr, bool *is_sent_out) {
    if (!check_local(qp, wr))
        return WEIR_CQE_LOCAL_PROT;
    if (!busy_fence(qp))
        return WEIR_CQE_RETRY;
    if (qp->tx_next == qp->tx_posted)
        qp->tx_posted = atomic_load_explicit(&qp->remote->posted, memory_order_acquire);
    if (qp->tx_next == qp->tx_posted || qp->tx_ring == NULL)
        return WEIR_CQE_RNR;
    if (wr->length > qp->tx_bytes_max)
        return WEIR_CQE_LENGTH;
    if (SHM_UNLIKELY(!qp->tx_backed) && !qp_ring_back(qp))
        return WEIR_CQE_RNR; /* there is no memory for messages */
    struct seg_cell *cell = ring_cell(qp->tx_ring, qp->tx_cell_bytes, qp->tx_mask, qp->tx_next);
    cell->length = (uint32_t)wr->length;
    memcpy(cell->payload, (const void *)(uintptr_t)wr->laddr, wr->length);
    atomic_exchange(&cell->seq, qp->tx_secret + qp->tx_next);
    qp->tx_next++;
    *is_sent_out = true;
    return WEIR_CQE_OK;
}

/* ---- process_vm ---- */

/* Pieces of memory here and there. The first is the proof of whose memory it is: see the top
 * of this file. */
struct vm_list {
    struct iovec local[VM_BATCH_WRS + 1];
    struct iovec remote[VM_BATCH_WRS + 1];
    unsigned long count; /* besides the proof */
};

static void vm_add(struct vm_list *list, uint64_t laddr, uint64_t raddr, uint64_t length) {
    list->count++;
    list->local[list->count] = (struct iovec){(void *)(uintptr_t)laddr, length};
    list->remote[list->count] = (struct iovec){(void *)(uintptr_t)raddr, length};
}

/* The word at `offset` of the segment, where the segment's owner has it. */
static struct iovec vm_word(const struct shm_link *link, uint64_t offset) {
    return (struct iovec){(void *)(uintptr_t)(link->base + offset), sizeof(uint64_t)};
}

/* Bytes moved, without the proof; -1 with errno. ESRCH: the process is not the peer. */
static ssize_t vm_read(const struct shm_link *link, struct vm_list *list) {
    uint64_t nonce = 0;
    list->local[0] = (struct iovec){&nonce, sizeof nonce};
    list->remote[0] = vm_word(link, offsetof(struct seg_map, guard.nonce));
    ssize_t moved =
        process_vm_readv(link->pid, list->local, list->count + 1, list->remote, list->count + 1, 0);
    if (moved < 0 && errno != EFAULT)
        return -1;
    if (moved >= (ssize_t)sizeof nonce && nonce == link->nonce)
        return moved - (ssize_t)sizeof nonce;
    errno = ESRCH;
    return -1;
}

static ssize_t vm_write(struct weir_qp *qp, struct vm_list *list) {
    uint64_t proof = ++qp->proof;
    const _Atomic uint64_t *arrived = &qp->link->map->guard.proofs[qp->remote_index].word;
    list->local[0] = (struct iovec){&proof, sizeof proof};
    list->remote[0] =
        vm_word(qp->link, (uint64_t)((const uint8_t *)arrived - (uint8_t *)qp->link->map));
    ssize_t moved = process_vm_writev(qp->link->pid, list->local, list->count + 1, list->remote,
                                      list->count + 1, 0);
    if (moved < 0 && errno != EFAULT)
        return -1;
    if (moved >= (ssize_t)sizeof proof && atomic_load(arrived) == proof)
        return moved - (ssize_t)sizeof proof;
    errno = ESRCH;
    return -1;
}

static ssize_t vm_call(struct weir_qp *qp, uint32_t opcode, struct vm_list *list) {
    ssize_t moved = opcode == WEIR_OP_READ ? vm_read(qp->link, list) : vm_write(qp, list);
    if (moved < 0 && errno == ESRCH) {
        link_mark_dead(qp->link);
        errno = ESRCH;
    }
    return moved;
}

int vm_try(const struct shm_link *link) {
    struct vm_list list = {.count = 0};
    if (link->pid == 0)
        return WEIR_EDENIED;
    if (vm_read(link, &list) == 0)
        return 0;
    return errno == ESRCH ? WEIR_EPEER : WEIR_EDENIED;
}

/* The next byte cannot be moved, and the kernel does not say whose memory is not mapped,
 * process_vm_readv(2): a byte is read where the transfer reads from. If that works, the memory
 * that the transfer writes to is not mapped. */
static uint32_t vm_fault(const struct weir_qp *qp, uint32_t opcode, uint64_t laddr,
                         uint64_t raddr) {
    bool reads_there = opcode == WEIR_OP_READ;
    uint8_t byte;
    struct vm_list list = {.count = 0};
    bool good;
    if (reads_there) {
        vm_add(&list, (uint64_t)(uintptr_t)&byte, raddr, 1);
        ssize_t moved = vm_read(qp->link, &list);
        if (moved < 0 && errno == ESRCH)
            return WEIR_CQE_RETRY; /* it died meanwhile */
        good = moved == 1;
    } else {
        struct iovec to = {&byte, 1}, from = {(void *)(uintptr_t)laddr, 1};
        good = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
    }
    return good == reads_there ? WEIR_CQE_LOCAL_PROT : WEIR_CQE_REMOTE_ACCESS;
}

/* Why a call moved nothing at all. */
static uint32_t vm_status(int error) {
    switch (error) {
    case ESRCH:
        return WEIR_CQE_RETRY;
    case EPERM:
        return WEIR_CQE_REMOTE_ACCESS;
    default:
        return WEIR_CQE_DEVICE;
    }
}

/* One WR, call by call; its key is looked at before each. */
static uint32_t vm_large(struct weir_qp *qp, const struct weir_wr *wr,
                         const struct shm_import *import) {
    for (uint64_t at = 0; at < wr->length;) {
        uint64_t left = wr->length - at;
        size_t bytes = left < VM_CALL_BYTES ? left : VM_CALL_BYTES;
        struct vm_list list;
        list.count = 0;
        vm_add(&list, wr->laddr + at, wr->raddr + at, bytes);
        if (!import_is_live(import))
            return WEIR_CQE_REMOTE_ACCESS;
        ssize_t moved = vm_call(qp, wr->opcode, &list);
        if (moved < 0)
            return vm_status(errno);
        if (moved == 0)
            return vm_fault(qp, wr->opcode, wr->laddr + at, wr->raddr + at);
        at += (uint64_t)moved;
    }
    return WEIR_CQE_OK;
}

/* vm_batch between call_enter and call_leave. */
static uint32_t vm_some(struct weir_qp *qp, const struct weir_wr **wr_io,
                        const struct weir_wr *end) {
    const struct weir_wr *first = *wr_io;
    struct vm_list list;
    uint64_t bytes = 0;
    list.count = 0;
    for (const struct weir_wr *wr = first; wr != end && list.count < VM_BATCH_WRS; wr++) {
        /* Looked up again behind call_enter: a release before it is seen here. */
        const struct shm_import *import =
            wr->opcode == first->opcode && wr->length != 0 && check_local(qp, wr)
                ? check_remote(qp, wr)
                : NULL;
        if (import == NULL || import->kind != SHM_KIND_PROCESS)
            break;
        if (wr->length > VM_CALL_BYTES - bytes) {
            if (list.count != 0)
                break;
            uint32_t status = vm_large(qp, wr, import);
            *wr_io += status == WEIR_CQE_OK;
            return status;
        }
        bytes += wr->length;
        vm_add(&list, wr->laddr, wr->raddr, wr->length);
    }
    if (list.count == 0)
        return WEIR_CQE_REMOTE_ACCESS;
    ssize_t moved = vm_call(qp, first->opcode, &list);
    if (moved < 0)
        return vm_status(errno);
    uint64_t left = (uint64_t)moved;
    for (unsigned long i = 0; i < list.count && left >= first[i].length; i++) {
        left -= first[i].length;
        ++*wr_io;
    }
    /* A part of the first: the next byte is the one that cannot be moved. */
    return *wr_io != first ? WEIR_CQE_OK
                           : vm_fault(qp, first->opcode, first->laddr + left, first->raddr + left);
}

/* Consecutive WRs to registered memory with one system call. *wr_io moves past those
 * that are complete. process_vm_writev(2): it may do a part, so the WRs that are left are
 * the caller's next round. */
static uint32_t vm_batch(struct weir_qp *qp, const struct weir_wr **wr_io,
                         const struct weir_wr *end) {
    uint32_t status = WEIR_CQE_RETRY;
    if (call_enter(qp) && !qp->link->dead)
        status = vm_some(qp, wr_io, end);
    call_leave(qp);
    return status;
}

uint32_t vm_pieces(struct weir_qp *qp, const struct weir_span *span,
                   const struct shm_import *import, const weir_segment *segments, uint32_t count) {
    struct vm_list list;
    uint64_t bytes = 0;
    uint32_t done = 0;
    list.count = 0;
    if (count > VM_BATCH_WRS)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t length = segments[i].length;
        if (length > VM_CALL_BYTES - bytes)
            return 0;
        bytes += length;
        vm_add(&list, span->laddr + segments[i].local_offset,
               span->raddr + segments[i].remote_offset, length);
    }
    /* The key is looked at behind call_enter: a release before it is seen here. */
    if (call_enter(qp) && import_is_live(import) && !qp->link->dead) {
        ssize_t moved = vm_call(qp, span->opcode, &list);
        for (uint64_t left = moved < 0 ? 0 : (uint64_t)moved;
             moved >= 0 && done < count && left >= segments[done].length; done++)
            left -= segments[done].length;
    }
    call_leave(qp);
    return done;
}

/* ---- in place ---- */

/* Whether all that is written and read lies in the memory that was written to last. */
static inline bool direct_is_inside(const struct shm_bounds *bounds,
                                    const struct weir_direct_to *to) {
    return to->rkey == bounds->keys && to->watch - bounds->remote <= bounds->remote_limit &&
           range_inside(to->raddr - bounds->remote, to->length, bounds->remote_limit + 8);
}

static inline _Atomic uint64_t *word_at(uint64_t address) {
    return (_Atomic uint64_t *)(uintptr_t)address;
}

/* All of the message but its first word. */
static inline void write_direct(struct weir_qp *qp, uint64_t raddr,
                                const struct weir_direct *direct) {
    const struct weir_bytes *part = direct->parts, *end = part + direct->count;
    for (uint64_t to = raddr + direct->payload; part != end; to += part++->length)
        copy_any(&qp->device->copier, to, (uint64_t)(uintptr_t)part->base, part->length);
    for (uint32_t i = 1; i < WEIR_DIRECT_WORDS; i++)
        atomic_store_explicit(word_at(raddr + direct->at + 8 * i), direct->words[i],
                              memory_order_relaxed);
}

/* Messages in front of the last one. */
static __attribute__((noinline)) void write_directs(struct weir_qp *qp, uint64_t raddr,
                                                    const struct weir_direct *directs,
                                                    const struct weir_direct *end) {
    for (; directs != end; directs++) {
        write_direct(qp, raddr, directs);
        atomic_store_explicit(word_at(raddr + directs->at), directs->words[0],
                              memory_order_release);
    }
}

/* Between memory that is remembered, if it is live. */
static inline __attribute__((always_inline)) bool
post_directs(struct weir_qp *qp, const struct weir_direct_to *to, const struct weir_direct *directs,
             uint32_t count, uint64_t *watch_out) {
    uint64_t busy = busy_enter(qp, qp->ordered);
    bool is_there = remote_is_ready(qp) && pair_is_live(&qp->direct);
    if (SHM_LIKELY(is_there)) {
        const struct weir_direct *last = directs;
        if (count > 1) {
            last += count - 1;
            write_directs(qp, to->raddr, directs, last);
        }
        write_direct(qp, to->raddr, last);
        /* First written, then looked, against the target's first written (its watch), then looked.
         */
        if (SHM_LIKELY(qp->ordered)) {
            atomic_store_explicit(word_at(to->raddr + last->at), last->words[0],
                                  memory_order_release);
            atomic_signal_fence(memory_order_seq_cst);
        } else {
            atomic_exchange(word_at(to->raddr + last->at), last->words[0]);
        }
        *watch_out = atomic_load(word_at(to->watch));
    }
    busy_leave(qp, busy);
    return is_there;
}

/* Remembers the memory of this key. False: it is none that may be written so. */
static bool direct_open(struct weir_qp *qp, uint32_t rkey) {
    const struct shm_import *import = import_find(qp->device, rkey);
    if (qp->state != QP_READY || import == NULL || import->link != qp->link ||
        import->kind != SHM_KIND_MAPPED || (import->access & WEIR_ACCESS_REMOTE_WRITE) == 0 ||
        import->length < 8)
        return false;
    const struct shm_bounds bounds = {
        .keys = rkey, .remote = import->base, .remote_limit = import->length - 8};
    pair_set(&qp->direct, &bounds, import);
    return true;
}

/* To memory that is not remembered, or was not live. */
static __attribute__((noinline)) int post_directs_new(struct weir_qp *qp,
                                                      const struct weir_direct_to *to,
                                                      const struct weir_direct *directs,
                                                      uint32_t count, uint64_t *watch_out) {
    return direct_open(qp, to->rkey) && direct_is_inside(&qp->direct.bounds, to) &&
                   post_directs(qp, to, directs, count, watch_out)
               ? 0
               : WEIR_EAGAIN;
}

/* A QP that is not ready remembers nothing that is live. */
int shm_post_direct(struct weir_qp *qp, const struct weir_direct_to *to,
                    const struct weir_direct *directs, uint32_t count, uint64_t *watch_out) {
    if (SHM_LIKELY(direct_is_inside(&qp->direct.bounds, to) &&
                   post_directs(qp, to, directs, count, watch_out)))
        return 0;
    return post_directs_new(qp, to, directs, count, watch_out);
}

int shm_read_direct(struct weir_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t *words_out,
                    uint32_t count) {
    const struct shm_pair *pair = &qp->direct;
    if ((rkey != pair->bounds.keys || !pair_is_live(pair)) && !direct_open(qp, rkey))
        return WEIR_EAGAIN;
    if (!range_inside(raddr - pair->bounds.remote, 8 * (uint64_t)count,
                      pair->bounds.remote_limit + 8))
        return WEIR_EAGAIN;
    uint64_t busy = busy_enter(qp, qp->ordered);
    bool is_there = remote_is_ready(qp) && pair_is_live(pair);
    for (uint32_t i = 0; is_there && i < count; i++)
        words_out[i] = atomic_load_explicit(word_at(raddr + 8 * i), memory_order_acquire);
    busy_leave(qp, busy);
    return is_there ? 0 : WEIR_EAGAIN;
}

void shm_direct_order(struct weir_device *device) {
    order_others(device->orders);
}

/* ---- one by one ---- */

static bool is_acceptable(const struct weir_wr *wr) {
    if (wr->opcode > WEIR_OP_SEND || wr->length > SHM_MESSAGE_BYTES_MAX)
        return false;
    return (wr->flags & WEIR_WR_INLINE) == 0 ||
           (wr->opcode != WEIR_OP_READ && wr->length <= SHM_INLINE_BYTES_MAX);
}

/* Instead of a status: the WR's memory over there was released before the WR was begun. */
#define RELEASED UINT32_MAX

/* Why check_remote refuses the WR. All else that is wrong with it is told first. */
static __attribute__((noinline, cold)) uint32_t refusal(const struct weir_qp *qp,
                                                        const struct weir_wr *wr) {
    const struct shm_import *import = import_find(qp->device, wr->rkey);
    return import != NULL && import->link == qp->link &&
                   (import->access & right_of(wr->opcode)) != 0 &&
                   range_inside(wr->raddr - import->base, wr->length, import->length) &&
                   import_is_released(import)
               ? RELEASED
               : WEIR_CQE_REMOTE_ACCESS;
}

/* Does the WR at *wr_io, and those after it that go with it; moves *wr_io past what is
 * complete. */
static uint32_t post_one(struct weir_qp *qp, const struct weir_wr **wr_io,
                         const struct weir_wr *end, bool *is_sent_out) {
    const struct weir_wr *wr = *wr_io;
    uint32_t status = WEIR_CQE_OK;
    if (wr->opcode == WEIR_OP_SEND) {
        status = send_message(qp, wr, is_sent_out);
    } else if (wr->length != 0) {
        if (!check_local(qp, wr))
            return WEIR_CQE_LOCAL_PROT;
        struct shm_import *import = check_remote(qp, wr);
        if (import == NULL)
            return refusal(qp, wr);
        if (import->kind == SHM_KIND_PROCESS)
            return vm_batch(qp, wr_io, end);
        if (wr->opcode == WEIR_OP_WRITE)
            copy_any(&qp->device->copier, wr->raddr, wr->laddr, wr->length);
        else
            copy_any(&qp->device->copier, wr->laddr, wr->raddr, wr->length);
        /* Released while we read: the bytes are not the target's any more. */
        load_fence();
        if (!import_is_live(import))
            return WEIR_CQE_REMOTE_ACCESS;
    }
    *wr_io += status == WEIR_CQE_OK;
    return status;
}

/* ---- runs ---- */

_Static_assert(offsetof(struct weir_wr, rkey) == offsetof(struct weir_wr, lkey) + 4, "one load");

static inline uint64_t keys_of(const struct weir_wr *wr) {
    uint64_t keys;
    memcpy(&keys, &wr->lkey, sizeof keys);
    return keys;
}

/* Whether the WR is a write over mapped memory that its keys allow; its bounds are not
 * looked at. The QP remembers the pair of regions. False: post_one finds out. */
static inline bool pair_open(struct weir_qp *qp, const struct weir_wr *wr) {
    struct shm_pair *pair = &qp->pair;
    if (wr->opcode != WEIR_OP_WRITE)
        return false;
    if (keys_of(wr) == pair->bounds.keys && pair_is_live(pair))
        return true;
    const struct shm_mr *mr = mr_find(qp->device, wr->lkey);
    const struct shm_import *import = import_find(qp->device, wr->rkey);
    if (mr == NULL || import == NULL || import->kind != SHM_KIND_MAPPED ||
        import->link != qp->link || (import->access & WEIR_ACCESS_REMOTE_WRITE) == 0 ||
        mr->length < 8 || import->length < 8 || !import_is_live(import))
        return false;
    pair_set_regions(qp, keys_of(wr), mr, import);
    return true;
}

/* Copies the WR if it is a write of 8 bytes over the pair, which is live. The empty
 * asm keeps the compiler from computing the address again from the offset that it has
 * in a register already: two instructions of twenty. */
static inline bool word_copy(const struct shm_bounds *pair, const struct weir_wr *wr) {
    uint64_t local = wr->laddr - pair->local, remote = wr->raddr - pair->remote;
    __asm__("" : "+r"(local), "+r"(remote));
    if (SHM_UNLIKELY(keys_of(wr) != pair->keys || wr->length != 8 || wr->opcode != WEIR_OP_WRITE ||
                     local > pair->local_limit || remote > pair->remote_limit))
        return false;
    copy_8(pair->remote + remote, pair->local + local);
    return true;
}

/* As many WRs as word_copy takes; returns the first that it does not. */
static inline const struct weir_wr *run_words(const struct shm_pair *pair, const struct weir_wr *wr,
                                              const struct weir_wr *end) {
    const struct shm_bounds known = pair->bounds;
    while (word_copy(&known, wr) && ++wr != end) {
    }
    return wr;
}

/* The same for any other length that post_send takes. */
static inline const struct weir_wr *run_any(struct weir_qp *qp, const struct weir_wr *wr,
                                            const struct weir_wr *end) {
    const struct shm_bounds known = qp->pair.bounds;
    do {
        if (keys_of(wr) != known.keys || wr->opcode != WEIR_OP_WRITE || !is_acceptable(wr) ||
            !range_inside(wr->laddr - known.local, wr->length, known.local_limit + 8) ||
            !range_inside(wr->raddr - known.remote, wr->length, known.remote_limit + 8) ||
            !pair_is_live(&qp->pair))
            break;
        copy_any(&qp->device->copier, wr->raddr, wr->laddr, wr->length);
    } while (++wr != end);
    return wr;
}

/* Everything on a pair of QPs that are both ready, inside a post, which it ends. count is not 0. */
static __attribute__((noinline)) int post_rest(struct weir_qp *qp, const struct weir_wr *wrs,
                                               uint32_t count, uint64_t busy,
                                               struct weir_post *post_out) {
    const struct weir_wr *wr = wrs, *end = wrs + count;
    bool is_sent = false; /* messages were written, the receiver was not told yet */
    uint32_t status = WEIR_CQE_OK;
    do {
        if (pair_open(qp, wr)) {
            const struct weir_wr *first = wr;
            wr = wr->length == 8 ? run_words(&qp->pair, wr, end) : run_any(qp, wr, end);
            if (wr != first)
                continue;
        }
        if (!is_acceptable(wr))
            break;
        status = post_one(qp, &wr, end, &is_sent);
        if (status != WEIR_CQE_OK)
            break;
    } while (wr != end);
    busy_leave(qp, busy);
    if (is_sent)
        tell(qp);
    uint32_t done = (uint32_t)(wr - wrs);
    if (status != WEIR_CQE_OK && status != RELEASED)
        return post_failed(qp, wrs, count, done, status, post_out);
    post_out->accepted = done;
    post_out->done = done;
    if (status == RELEASED)
        return WEIR_ESTALE;
    return done == count ? 0 : WEIR_EINVAL;
}

/* A post that does not find both sides ready. */
static __attribute__((noinline)) int post_broken(struct weir_qp *qp, const struct weir_wr *wrs,
                                                 uint32_t count, struct weir_post *post_out) {
    if (qp->state == QP_ERROR)
        return post_flushed(qp, wrs, count, post_out);
    if (qp->state == QP_READY)
        return post_failed(qp, wrs, count, 0, WEIR_CQE_RETRY, post_out);
    *post_out = (struct weir_post){.accepted = 0, .done = 0};
    return WEIR_EINVAL;
}

int shm_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out) {
    if (SHM_UNLIKELY(count == 0)) {
        *post_out = (struct weir_post){.accepted = 0, .done = 0};
        return 0;
    }
    if (SHM_UNLIKELY(qp->state != QP_READY))
        return post_broken(qp, wrs, count, post_out);
    uint64_t busy = busy_enter(qp, qp->ordered);
    if (SHM_UNLIKELY(!remote_is_ready(qp))) {
        busy_leave(qp, busy);
        return post_broken(qp, wrs, count, post_out);
    }
    /* The shortest road: one word between the regions of the last write. */
    if (count == 1 && keys_of(wrs) == qp->pair.bounds.keys && pair_is_live(&qp->pair) &&
        word_copy(&qp->pair.bounds, wrs)) {
        busy_leave(qp, busy);
        post_out->accepted = 1;
        post_out->done = 1;
        return 0;
    }
    return post_rest(qp, wrs, count, busy, post_out);
}

int shm_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey) {
    if (qp == NULL || qp->device != device || length < qp->recv_bytes_max)
        return WEIR_EINVAL;
    const struct shm_mr *mr = mr_find(device, lkey);
    if (mr == NULL || !range_inside((uint64_t)(uintptr_t)buffer - mr->base, length, mr->length))
        return WEIR_EINVAL;
    if (qp->rx_posted - qp->rx_next >= qp->rq_depth)
        return WEIR_EAGAIN;
    qp->recvs[qp->rx_posted & qp->rx_mask] = (struct shm_recv){.wr_id = wr_id, .buffer = buffer};
    qp->rx_posted++;
    atomic_store_explicit(&qp->shared->posted, qp->rx_posted, memory_order_release);
    if (qp->state == QP_ERROR)
        qp_make_ready(qp);
    return 0;
}
