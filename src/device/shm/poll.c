/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c: completions, asynchronous events and sleeping.
 *
 * Owns the list of QPs that may have completions (ready) and of those with untold
 * events (async). Senders mark a QP in the pending words of our segment; a poll
 * moves marked QPs to the ready list and serves that in turn, a bounded number of
 * completions each, so that none starves the others (S18).
 *
 * A few QPs that got messages lately are *watched*: a poll looks at their rings itself,
 * and their senders mark nothing. Then one cache line goes from the sender to us for a
 * message, and not the four of ring cell and pending words. An idle poll reads the line
 * of pending words and one a watched QP. A device that sleeps watches none.
 *
 * Invariants: a QP with completions to give is marked in the segment, watched, or on
 * the ready list. Pending bits are cleared before the rings behind them are read.
 * A message found in a ring was written by another process: it is read once and checked, and
 * nonsense puts the QP in the error state. */
#define _GNU_SOURCE
#include <string.h>

#include "shm.h"

#define TURN_CQES 16 /* of one QP, before the next has its turn */

void qp_make_ready(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    if (qp->is_ready)
        return;
    qp->is_ready = true;
    qp->ready_next = NULL;
    if (device->ready_first == NULL)
        device->ready_first = qp;
    else
        device->ready_last->ready_next = qp;
    device->ready_last = qp;
    device->ready_count++;
}

static struct weir_qp *take_ready(struct weir_device *device) {
    struct weir_qp *qp = device->ready_first;
    device->ready_first = qp->ready_next;
    device->ready_count--;
    qp->is_ready = false;
    return qp;
}

void qp_raise(struct weir_qp *qp, enum weir_async_type type) {
    qp->async |= 1u << type;
    if (qp->is_async)
        return;
    qp->is_async = true;
    qp->async_next = qp->device->async_first;
    qp->device->async_first = qp;
}

/* ---- watching ---- */

/* Whether the sender has backed our ring. Before that no message is in it, and a look would back
 * it. With the first message from a peer the first one to it is near (credits), so its ring is
 * backed now, and not in the midst of traffic. */
static bool ring_is_backed(struct weir_qp *qp) {
    if (SHM_UNLIKELY(!qp->rx_backed)) {
        qp->rx_backed = atomic_load(&qp->shared->ring_backed) != 0;
        if (qp->rx_backed && qp->state == QP_READY)
            qp_ring_back(qp); /* if there is no memory, the message will say so */
    }
    return qp->rx_backed;
}

/* The next message is there, in a ring that is backed. Sequentially consistent, for
 * qp_unwatch. */
static inline bool has_message(const struct weir_qp *qp) {
    const struct seg_cell *cell =
        ring_cell(qp->rx_ring, qp->rx_cell_bytes, qp->rx_mask, qp->rx_next);
    return atomic_load(&cell->seq) == qp->rx_secret + qp->rx_next;
}

/* The sender's message first, then its look at `watched`; here `watched` first, then a
 * look for the message: one of the two sees the other. */
void qp_unwatch(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    if (!qp->is_watched)
        return;
    qp->is_watched = false;
    uint32_t at = 0;
    while (device->watched[at] != qp)
        at++;
    device->watched[at] = device->watched[--device->watched_count];
    atomic_store(&qp->shared->watched, 0);
    if (has_message(qp))
        qp_make_ready(qp);
}

/* Watches a QP whose sender has marked it, if there is a place or the QP that has one
 * got nothing for long. */
static void watch(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    if (qp->is_watched || qp->state != QP_READY || qp->rq_depth == 0 || !ring_is_backed(qp))
        return;
    if (device->watched_count == SHM_WATCHED_MAX) {
        uint32_t idlest = 0;
        for (uint32_t i = 1; i < SHM_WATCHED_MAX; i++) {
            if (device->polls - device->watched[i]->message_poll >
                device->polls - device->watched[idlest]->message_poll)
                idlest = i;
        }
        if (device->polls - device->watched[idlest]->message_poll <= SHM_WATCH_IDLE_POLLS)
            return;
        qp_unwatch(device->watched[idlest]);
    }
    qp->is_watched = true;
    qp->message_poll = device->polls;
    device->watched[device->watched_count++] = qp;
    atomic_store_explicit(&qp->shared->watched, 1, memory_order_release);
}

/* Moves watched QPs with a message to the ready list. */
static inline void look_at_watched(struct weir_device *device) {
    for (uint32_t i = 0; i < device->watched_count; i++) {
        struct weir_qp *qp = device->watched[i];
        if (has_message(qp)) {
            qp->message_poll = device->polls;
            qp_make_ready(qp);
        }
    }
}

/* Takes a QP that goes away off all lists. */
void qp_forget_ready(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    qp_unwatch(qp);
    if (qp->is_ready) {
        struct weir_qp *before = NULL, *at = device->ready_first;
        while (at != qp) {
            before = at;
            at = at->ready_next;
        }
        if (before == NULL)
            device->ready_first = qp->ready_next;
        else
            before->ready_next = qp->ready_next;
        if (device->ready_last == qp)
            device->ready_last = before;
        device->ready_count--;
    }
    if (qp->is_async) {
        struct weir_qp **at = &device->async_first;
        while (*at != qp)
            at = &(*at)->async_next;
        *at = qp->async_next;
    }
}

/* ---- completions ---- */

static int take_failed(struct weir_qp *qp, struct weir_cqe *cqe) {
    if (qp->failed_count == 0)
        return 0;
    const struct shm_failed *failed = &qp->failed[qp->failed_head];
    *cqe = (struct weir_cqe){.wr_id = failed->wr_id, .status = failed->status};
    qp->failed_head = (qp->failed_head + 1) % qp->sq_depth;
    qp->failed_count--;
    return 1;
}

/* The oldest message, into the oldest receive. */
static int take_message(struct weir_qp *qp, struct weir_cqe *cqe) {
    if (qp->rq_depth == 0 || qp->link == NULL || !ring_is_backed(qp))
        return 0;
    struct seg_cell *cell = ring_cell(qp->rx_ring, qp->rx_cell_bytes, qp->rx_mask, qp->rx_next);
    if (!has_message(qp))
        return 0;
    uint32_t length = *(volatile uint32_t *)&cell->length;
    if (qp->rx_next == qp->rx_posted || length > qp->recv_bytes_max) {
        /* No peer of this code sends without a credit or over the limit. */
        if (qp->state != QP_ERROR)
            qp_raise(qp, WEIR_ASYNC_QP_FATAL);
        qp_fail(qp);
        return 0;
    }
    const struct shm_recv *recv = &qp->recvs[qp->rx_next & qp->rx_mask];
    memcpy(recv->buffer, cell->payload, length);
    *cqe = (struct weir_cqe){.wr_id = recv->wr_id,
                             .status = WEIR_CQE_OK,
                             .byte_length = length,
                             .qp_tag = qp->tag,
                             .recv = true};
    qp->rx_next++;
    return 1;
}

/* In the error state: one posted receive that no message will come for. */
static int take_flushed(struct weir_qp *qp, struct weir_cqe *cqe) {
    if (qp->state != QP_ERROR || qp->rx_next == qp->rx_posted)
        return 0;
    *cqe = (struct weir_cqe){.wr_id = qp->recvs[qp->rx_next & qp->rx_mask].wr_id,
                             .status = WEIR_CQE_FLUSHED,
                             .recv = true};
    qp->rx_next++;
    return 1;
}

/* Up to max completions of one QP. Messages that were acknowledged before the error
 * come before anything that flushes or failed: their sender counts them as delivered,
 * and a beacon that flushes lets the QP be destroyed. So both begin only when no sender
 * is between its look at the state and its message. (Sends fail in the error state
 * only.) */
static int serve(struct weir_qp *qp, struct weir_cqe *cqes, int max) {
    int count = 0;
    if (!qp->is_flushing) {
        bool quiet = qp->state == QP_ERROR && !qp_remote_is_busy(qp);
        while (count < max && take_message(qp, &cqes[count]))
            count++;
        if (quiet && count < max)
            qp->is_flushing = true;
    }
    while (qp->is_flushing && count < max && take_failed(qp, &cqes[count]))
        count++;
    while (qp->is_flushing && count < max && take_flushed(qp, &cqes[count]))
        count++;
    /* A full turn may have left something; so has an error whose flush has to wait. */
    if (count == max || (qp->state == QP_ERROR && !qp->is_flushing))
        qp_make_ready(qp);
    return count;
}

/* Moves every QP that a sender has marked to the ready list. */
static __attribute__((noinline)) void collect(struct weir_device *device) {
    struct seg_map *map = device->map;
    for (uint32_t i = 0; i < SHM_TOP_WORDS; i++) {
        if (atomic_load_explicit(&map->head.top[i], memory_order_relaxed) == 0)
            continue;
        uint64_t words = atomic_exchange(&map->head.top[i], 0);
        for (; words != 0; words &= words - 1) {
            uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(words);
            uint64_t bits = atomic_exchange(&map->leaf[word], 0);
            for (; bits != 0; bits &= bits - 1) {
                struct weir_qp *qp = device->qps[word * 64 + (uint32_t)__builtin_ctzll(bits)];
                if (qp == NULL)
                    continue;
                watch(qp);
                qp_make_ready(qp);
            }
        }
    }
}

static inline bool is_marked(const struct weir_device *device) {
    const struct seg_head *head = &device->map->head;
    uint64_t any = 0;
#pragma GCC unroll 7 /* an idle poll is little more than this */
    for (uint32_t i = 0; i < SHM_TOP_WORDS; i++)
        any |= atomic_load(&head->top[i]);
    return any != 0;
}

/* Deaths come through the epoll descriptor, which a busy engine never sleeps on. */
static __attribute__((noinline)) void check_health(struct weir_device *device) {
    uint64_t now = device->env.ops->now(device->env.self);
    if (now - device->health_last_ns < SHM_HEALTH_PERIOD_NS)
        return;
    device->health_last_ns = now;
    link_health(device);
}

static __attribute__((noinline)) int poll_ready(struct weir_device *device,
                                                struct weir_cqe *cqes_out, int max) {
    int count = 0;
    /* One turn each: QPs that come back to the list wait for the next poll. */
    for (uint32_t turns = device->ready_count; turns > 0 && count < max; turns--) {
        int turn = max - count < TURN_CQES ? max - count : TURN_CQES;
        count += serve(take_ready(device), cqes_out + count, turn);
    }
    return count;
}

int shm_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    if (SHM_UNLIKELY(++device->polls % SHM_HEALTH_POLLS == 0))
        check_health(device);
    look_at_watched(device);
    if (is_marked(device))
        collect(device);
    if (device->ready_first == NULL)
        return 0;
    return poll_ready(device, cqes_out, max);
}

/* ---- events ---- */

int shm_events(struct weir_device *device, struct weir_async *events_out, int max) {
    int count = 0;
    if (device->opening != 0)
        link_health(device); /* QPs wait for answers */
    while (count < max && device->async_first != NULL) {
        struct weir_qp *qp = device->async_first;
        uint32_t type = (uint32_t)__builtin_ctz(qp->async);
        events_out[count++] =
            (struct weir_async){.type = type,
                                .qp_tag = qp->tag,
                                .error = type == WEIR_ASYNC_CONNECTED ? qp->connect_error : 0};
        qp->async &= qp->async - 1;
        if (qp->async == 0) {
            qp->is_async = false;
            device->async_first = qp->async_next;
        }
    }
    return count;
}

/* ---- sleeping ---- */

int shm_fd(struct weir_device *device) {
    return device->epoll_fd;
}

int shm_arm(struct weir_device *device) {
    while (device->watched_count != 0)
        qp_unwatch(device->watched[0]);
    /* Sequentially consistent, as the sender's mark and then look at sleeping. */
    device->sleep_number += 2; /* odd: never 0 */
    atomic_exchange(&device->map->head.sleeping, device->sleep_number | 1);
    if (is_marked(device) || device->ready_first != NULL || device->async_first != NULL) {
        atomic_store(&device->map->head.sleeping, 0);
        return WEIR_EAGAIN;
    }
    return 0;
}

void shm_disarm(struct weir_device *device) {
    atomic_store(&device->map->head.sleeping, 0);
    link_health(device);
}
