/* SPDX-License-Identifier: Apache-2.0 */
/* nic_queue.c: the queues of the simulated NIC: completions, receives, sends.
 *
 * Owns the accounting of slots. A slot of a send queue is in use from its post
 * until a completion that covers it was polled, as with ibv_post_send(3); a post
 * beyond the granted depth is refused and counted, for the oracle. A QP that fails
 * flushes everything that it holds, in order, a little later. The file is long because
 * each way in which a slot comes back changes the same queue. */
#include <stdlib.h>
#include <string.h>

#include "nic_impl.h"

void *nic_calloc(size_t count, size_t size) {
    void *memory = calloc(count, size);

    if (memory == NULL) {
        fputs("weir-sim: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

static bool nic_fault(const struct weir_device *nic, uint32_t rate) {
    return sim_fault(nic->world, rate);
}

/* ---- completion queue, events ------------------------------------------ */

static void ring_list(struct weir_device *nic, struct nic_ring *ring) {
    ring->listed = true;
    ring->next = NULL;
    if (nic->ring_first == NULL) {
        nic->ring_first = ring;
    } else {
        nic->ring_last->next = ring;
    }
    nic->ring_last = ring;
}

static void ring_unlist(struct weir_device *nic, struct nic_ring *ring) {
    struct nic_ring *before = NULL;
    struct nic_ring *at = nic->ring_first;

    if (!ring->listed) {
        return;
    }
    while (at != ring) {
        before = at;
        at = at->next;
    }
    if (before == NULL) {
        nic->ring_first = ring->next;
    } else {
        before->next = ring->next;
    }
    if (nic->ring_last == ring) {
        nic->ring_last = before;
    }
    ring->listed = false;
}

static void ring_put(struct weir_device *nic, struct nic_ring *ring, const struct nic_cqe *cqe) {
    if (ring->count == ring->capacity) {
        uint32_t capacity = ring->capacity == 0 ? 64 : ring->capacity * 2;
        struct nic_cqe *cqes = nic_calloc(capacity, sizeof(*cqes));

        for (uint32_t i = 0; i < ring->count; i++) {
            cqes[i] = ring->cqes[(ring->head + i) & (ring->capacity - 1)];
        }
        free(ring->cqes);
        ring->cqes = cqes;
        ring->capacity = capacity;
        ring->head = 0;
    }
    ring->cqes[(ring->head + ring->count++) & (ring->capacity - 1)] = *cqe;
    if (!ring->listed) {
        ring_list(nic, ring);
    }
}

void nic_ring_free(struct nic_ring *ring) {
    free(ring->cqes);
}

void nic_rings_init(struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;

    for (uint32_t i = 0; i < 2 && nic->config->qp_rings; i++) {
        qp->rings[i].turn = (uint32_t)sim_between(&nic->world->prng, 1, nic->config->ring_turn_max);
    }
}

/* With cq_clean takes out the completions of a QP that goes; receives of a shared queue always
 * stay, or their buffers would be lost. */
static void ring_clean(struct weir_device *nic, struct nic_ring *ring, const struct weir_qp *qp) {
    uint32_t mask = ring->capacity - 1;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < ring->count; i++) {
        const struct nic_cqe *cqe = &ring->cqes[(ring->head + i) & mask];

        if (!nic->config->cq_clean || cqe->uid != qp->uid || (cqe->cqe.recv && nic->config->srq)) {
            ring->cqes[(ring->head + kept++) & mask] = *cqe;
        }
    }
    ring->count = kept;
    if (kept == 0) {
        ring_unlist(nic, ring);
    }
}

void nic_rings_fini(struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;

    if (!nic->config->qp_rings) {
        if (nic->config->cq_clean) {
            ring_clean(nic, &nic->cq, qp);
        }
        return;
    }
    for (uint32_t r = 0; r < 2; r++) {
        struct nic_ring *ring = &qp->rings[r];

        ring_clean(nic, ring, qp);
        for (uint32_t i = 0; i < ring->count; i++) {
            ring_put(nic, &nic->cq, &ring->cqes[(ring->head + i) & (ring->capacity - 1)]);
        }
        ring->count = 0;
        ring_unlist(nic, ring);
    }
}

static void cq_push(struct weir_qp *qp, const struct nic_cqe *cqe) {
    struct weir_device *nic = qp->nic;
    struct nic_ring *ring = &nic->cq;
    struct nic_cqe waits = *cqe;

    if (nic->world->trace != NULL) {
        sim_trace(nic->world, "n%u qp %u completes %s %llu, status %u", nic->node->index, cqe->qpn,
                  cqe->send ? "send" : "recv", (unsigned long long)cqe->seq, cqe->cqe.status);
    }
    if (nic->config->qp_rings) {
        ring = &qp->rings[nic->config->recv_rings && !cqe->send ? 1 : 0];
    }
    waits.at_ns = nic->world->now_ns;
    ring_put(nic, ring, &waits);
    sim_node_wake(nic->node);
}

void nic_cq_push_recv(struct weir_qp *qp, const struct nic_recv *recv, uint32_t status,
                      uint32_t length) {
    struct nic_cqe cqe = {.cqe = {.wr_id = recv->wr_id,
                                  .status = status,
                                  .byte_length = length,
                                  .qp_tag = qp->tag,
                                  .recv = true},
                          .qpn = qp->qpn,
                          .uid = qp->uid};

    cq_push(qp, &cqe);
}

static void cq_push_send(struct weir_qp *qp, uint64_t seq, uint32_t status) {
    struct nic_cqe cqe = {
        .cqe = {.wr_id = qp->entries[seq & qp->entry_mask].wr_id, .status = status},
        .qpn = qp->qpn,
        .uid = qp->uid,
        .seq = seq,
        .send = true};

    if (status != WEIR_CQE_OK) { /* as with verbs, the rest of a bad CQE is noise */
        cqe.cqe.byte_length = 0xdead;
        cqe.cqe.has_imm = true;
    }
    cq_push(qp, &cqe);
}

/* ---- receives ---------------------------------------------------------- */

void nic_recvs_init(struct nic_recvs *recvs, uint32_t depth) {
    recvs->depth = depth;
    recvs->ring = nic_calloc(depth == 0 ? 1 : depth, sizeof(*recvs->ring));
}

static bool recvs_pop(struct nic_recvs *recvs, struct nic_recv *recv_out) {
    if (recvs->count == 0) {
        return false;
    }
    *recv_out = recvs->ring[recvs->head];
    recvs->head = (recvs->head + 1) % recvs->depth;
    recvs->count--;
    return true;
}

bool nic_recv_ready(const struct weir_qp *qp) {
    return (qp->nic->config->srq ? qp->nic->srq.count : qp->rq.count) != 0;
}

bool nic_recv_take(struct weir_qp *qp, struct nic_recv *recv_out) {
    if (!recvs_pop(qp->nic->config->srq ? &qp->nic->srq : &qp->rq, recv_out)) {
        qp->nic->census.rnrs++;
        return false;
    }
    return true;
}

/* A device that is short of something refuses receives for a while: all of them. */
static bool recv_refused(struct weir_device *nic) {
    uint64_t now_ns = nic->world->now_ns;

    if (now_ns >= nic->recv_refused_until_ns && nic_fault(nic, nic->config->recv_refuse)) {
        nic->recv_refused_until_ns =
            now_ns + sim_between(&nic->world->prng, 1, nic->config->recv_refuse_ns_max);
        sim_trace(nic->world, "n%u refuses receives until %llu", nic->node->index,
                  (unsigned long long)nic->recv_refused_until_ns);
    }
    return now_ns < nic->recv_refused_until_ns;
}

int nic_post_recv(struct weir_device *nic, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey) {
    struct nic_recvs *recvs = nic->config->srq ? &nic->srq : NULL;

    if (nic->config->srq != (qp == NULL)) {
        return WEIR_EINVAL;
    }
    if (qp != NULL) {
        recvs = &qp->rq;
        if (length < qp->recv_bytes_max) {
            return WEIR_EINVAL;
        }
    }
    if (!nic_mr_covers_local(nic, lkey, (uint64_t)(uintptr_t)buffer, length)) {
        return WEIR_EINVAL;
    }
    if (qp != NULL && qp->state == SIM_QP_ERR) {
        struct nic_recv recv = {.wr_id = wr_id};

        nic_cq_push_recv(qp, &recv, WEIR_CQE_FLUSHED, 0);
        return 0;
    }
    if (recvs->count == recvs->depth || recv_refused(nic)) {
        return WEIR_EAGAIN;
    }
    recvs->ring[(recvs->head + recvs->count++) % recvs->depth] =
        (struct nic_recv){.wr_id = wr_id, .buffer = buffer, .length = length};
    return 0;
}

/* ---- send queue -------------------------------------------------------- */

static void slot_free(struct weir_qp *qp, uint64_t seq) {
    struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];

    if (!entry->freed) {
        entry->freed = true;
        qp->nic->sq_taken -= entry->shared;
        qp->sq_used--;
        qp->sq_data -= entry->bytes > 0;
        qp->sq_bytes -= entry->bytes;
    }
}

void nic_sq_leave(struct weir_qp *qp) {
    for (uint64_t seq = qp->tail; seq < qp->head; seq++) {
        slot_free(qp, seq);
    }
}

/* One WR may be longer than what is to be in flight, when it is the only one. */
static void judge_load(struct weir_device *nic) {
    uint64_t most = nic->world->config.engine.inflight_bytes_max;
    uint64_t bytes = 0;
    uint32_t data = 0;

    for (uint32_t i = 0; most != 0 && i < nic->qp_top; i++) {
        bytes += nic->qps[i] != NULL ? nic->qps[i]->sq_bytes : 0;
        data += nic->qps[i] != NULL ? nic->qps[i]->sq_data : 0;
    }
    nic->census.overloads += bytes > most && data > 1;
}

static void sq_free_polled(struct weir_qp *qp, uint64_t seq) {
    if (qp->nic->config->ordered) { /* one completion covers all before it */
        for (; qp->tail <= seq; qp->tail++) {
            slot_free(qp, qp->tail);
        }
        return;
    }
    slot_free(qp, seq);
    while (qp->tail < qp->head && qp->entries[qp->tail & qp->entry_mask].freed) {
        qp->tail++;
    }
}

/* A later WR was done in its post. The WRs before it, back to the last signalled one, give no
 * completion: their slots are free. */
static void sq_pass(struct weir_qp *qp) {
    uint64_t seq = qp->head;

    while (seq > qp->tail && !qp->entries[(seq - 1) & qp->entry_mask].signaled) {
        slot_free(qp, --seq);
    }
    while (qp->tail < qp->head && qp->entries[qp->tail & qp->entry_mask].freed) {
        qp->tail++;
    }
}

static void sq_complete(struct weir_qp *qp, uint64_t seq, uint32_t status) {
    struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];

    entry->complete = true;
    if (entry->signaled || status != WEIR_CQE_OK) {
        cq_push_send(qp, seq, status);
    } else if (!qp->nic->config->ordered) {
        sq_free_polled(qp, seq); /* nothing else will ever cover it */
    }
}

static void sq_advance(struct weir_qp *qp) {
    while (qp->done < qp->head && qp->entries[qp->done & qp->entry_mask].complete) {
        qp->done++;
    }
}

static void flush_soon(struct weir_qp *qp);

/* A packet of an unordered send was answered, or given up. */
static void sq_piece_over(struct weir_qp *qp, uint64_t seq, uint32_t status) {
    struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];

    if (entry->status == WEIR_CQE_OK) {
        entry->status = status;
    }
    if (--entry->pieces_left == 0) {
        sq_complete(qp, seq, entry->status);
        sq_advance(qp);
        if (qp->state == SIM_QP_ERR) {
            flush_soon(qp); /* the sends that were posted behind it waited for it */
        }
    }
}

void nic_sq_acknowledge(struct weir_qp *qp, uint64_t seq) {
    if (!qp->nic->config->ordered) {
        sq_piece_over(qp, seq, WEIR_CQE_OK);
        return;
    }
    while (qp->done <= seq) {
        sq_complete(qp, qp->done++, WEIR_CQE_OK);
    }
}

static void flush_recvs(struct weir_qp *qp) {
    struct nic_recv recv;

    while (recvs_pop(&qp->rq, &recv)) {
        nic_cq_push_recv(qp, &recv, WEIR_CQE_FLUSHED, 0);
    }
}

bool nic_sq_runs(const struct weir_qp *qp) {
    bool runs = false;

    for (uint64_t seq = qp->done; qp->nic->config->isolates && !qp->still && seq < qp->head;
         seq++) {
        const struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];

        runs |= entry->sent && !entry->complete;
    }
    return runs;
}

/* Where a connection ends under the WR that is just being sent, its NIC may say that this failed,
 * as Linux' siw does. qp->head: it does not. */
static uint64_t torn_seq(struct weir_qp *qp) {
    uint64_t torn = qp->head;
    for (uint64_t seq = qp->done; qp->nic->config->no_blame && seq < qp->head; seq++) {
        const struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];
        if (entry->sent && !entry->complete) {
            torn = seq;
        }
    }
    return torn < qp->head && sim_below(&qp->nic->world->prng, 2) == 0 ? torn : qp->head;
}

static void flush_now(struct weir_qp *qp) {
    if (qp->nic->config->news_first) {
        flush_recvs(qp);
    }
    if (nic_sq_runs(qp)) {
        flush_recvs(qp);
        return;
    }
    const uint64_t torn = torn_seq(qp);
    for (uint64_t seq = qp->done; seq < qp->head; seq++) {
        bool failed = qp->fail_status != WEIR_CQE_OK && seq == qp->fail_seq;
        struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];

        if (seq == torn && !entry->complete && !failed) {
            sq_complete(qp, seq, WEIR_CQE_DEVICE);
        } else if (qp->nic->config->no_blame && entry->sent && !entry->signaled && !failed) {
            entry->complete = true; /* and nothing will be heard of it */
        } else if (!entry->complete) {
            sq_complete(qp, seq, failed ? qp->fail_status : WEIR_CQE_FLUSHED);
        }
    }
    qp->done = qp->head;
    flush_recvs(qp);
}

static void flush_event(struct sim_world *world, const struct sim_event *event) {
    struct weir_qp *qp = nic_find(world, event->node, event->b, event->a);

    if (qp != NULL) {
        qp->flushing = false;
        flush_now(qp);
    }
}

static void flush_soon(struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;
    struct sim_event event = {
        .fire = flush_event, .node = nic->node->index, .b = qp->qpn, .a = qp->uid};

    if (qp->flushing) {
        return;
    }
    if (nic->config->flush_ns_max == 0) { /* before the call that asked for it returns */
        flush_now(qp);
        return;
    }
    qp->flushing = true;
    event.at_ns = nic->world->now_ns + sim_below(&nic->world->prng, nic->config->flush_ns_max + 1);
    sim_schedule(nic->world, &event);
}

static void last_wqe_event(struct sim_world *world, const struct sim_event *event) {
    struct weir_qp *qp = nic_find(world, event->node, event->b, event->a);

    if (qp != NULL) {
        nic_async_push(qp->nic, WEIR_ASYNC_LAST_WQE, qp->tag);
    }
}

static void last_wqe_soon(struct weir_qp *qp, uint64_t after_ns) {
    struct sim_event event = {.fire = last_wqe_event,
                              .node = qp->nic->node->index,
                              .b = qp->qpn,
                              .a = qp->uid,
                              .at_ns = qp->nic->world->now_ns + after_ns};

    sim_schedule(qp->nic->world, &event);
}

void nic_qp_to_error(struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;
    uint64_t flush_ns = nic->config->flush_ns_max;
    struct nic_recv recv;

    if (qp->state == SIM_QP_ERR) {
        return;
    }
    sim_trace(nic->world, "n%u qp %u in error", nic->node->index, qp->qpn);
    nic_hang_up(qp);
    qp->state = SIM_QP_ERR;
    flush_soon(qp);
    if (!nic->config->srq) {
        return;
    }
    if (nic_fault(nic, nic->config->srq_swallow) && recvs_pop(&nic->srq, &recv)) {
        nic->census.swallowed++;
    }
    switch (nic->config->last_wqe) {
    case SIM_LAST_WQE_EARLY:
        last_wqe_soon(qp, 0);
        break;
    case SIM_LAST_WQE_LATE:
        last_wqe_soon(qp, flush_ns + 1000);
        break;
    case SIM_LAST_WQE_MANY:
        last_wqe_soon(qp, 0);
        last_wqe_soon(qp, flush_ns / 2);
        last_wqe_soon(qp, flush_ns + 1000);
        break;
    default:
        break;
    }
}

void nic_qp_fail(struct weir_qp *qp) {
    if (qp->state == SIM_QP_ERR) {
        return;
    }
    nic_qp_to_error(qp);
    if (qp->nic->config->fatal_events || qp->nic->config->no_blame) {
        nic_async_push(qp->nic, WEIR_ASYNC_QP_FATAL, qp->tag);
    }
}

/* Not by the sender's own NIC, which may say what it knows. */
static bool is_found_there(uint32_t status) {
    return status != WEIR_CQE_LOCAL_PROT && status != WEIR_CQE_DEVICE;
}

void nic_sq_fail(struct weir_qp *qp, uint64_t seq, uint32_t status) {
    if (qp->nic->config->mute_errors &&
        (status == WEIR_CQE_LOCAL_PROT || status == WEIR_CQE_REMOTE_ACCESS)) {
        status = WEIR_CQE_FLUSHED;
    }
    if (qp->nic->config->no_blame && is_found_there(status)) {
        nic_qp_fail(qp);
        return;
    }
    if (qp->nic->config->isolates) {
        sq_piece_over(qp, seq, status);
        return;
    }
    if (seq < qp->head && qp->nic->config->ordered) {
        while (qp->done < seq) { /* a NAK acknowledges what came before it */
            sq_complete(qp, qp->done++, WEIR_CQE_OK);
        }
    }
    if (seq < qp->head && seq >= qp->done && !qp->entries[seq & qp->entry_mask].complete) {
        if (qp->nic->config->news_first && qp->state != SIM_QP_ERR) {
            qp->fail_seq = seq;
            qp->fail_status = status;
        } else {
            sq_complete(qp, seq, status);
            sq_advance(qp);
        }
    }
    nic_qp_fail(qp);
}

static void inject_event(struct sim_world *world, const struct sim_event *event) {
    struct weir_qp *qp = nic_find(world, event->node, event->b, event->a);

    if (qp == NULL || qp->state != SIM_QP_RTS) {
        return;
    }
    if (qp->done < qp->head && !qp->nic->config->isolates) {
        nic_sq_fail(qp, qp->done, WEIR_CQE_DEVICE);
    } else {
        nic_qp_fail(qp);
    }
}

static void inject_soon(struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;
    struct sim_event event = {
        .fire = inject_event, .node = nic->node->index, .b = qp->qpn, .a = qp->uid};

    event.at_ns =
        nic->world->now_ns + sim_below(&nic->world->prng, 4 * nic->config->latency_max_ns);
    sim_schedule(nic->world, &event);
}

/* It is being removed, and works on until it is let go of; or its QPs fail with it. */
static void nic_fail(struct weir_device *nic) {
    bool at_once = sim_below(&nic->world->prng, 2) == 0;

    nic->failed = true;
    sim_trace(nic->world, "n%u's device fails", nic->node->index);
    nic_async_push(nic, WEIR_ASYNC_DEVICE_FATAL, UINT32_MAX);
    for (uint32_t i = 0; at_once && i < nic->qp_top; i++) {
        if (nic->qps[i] != NULL) {
            inject_soon(nic->qps[i]);
        }
    }
}

static bool gather_is_legal(const struct weir_qp *qp, const struct weir_wr *wr, bool is_first) {
    const struct weir_sge *pieces = (const struct weir_sge *)(uintptr_t)wr->laddr;
    uint64_t length = 0;

    if (wr->pieces == 0) {
        return true;
    }
    if (!is_first || wr->opcode != WEIR_OP_WRITE || (wr->flags & WEIR_WR_INLINE) != 0 ||
        wr->pieces > qp->nic->config->gathers_max) {
        return false;
    }
    for (uint32_t i = 0; i < wr->pieces; i++) {
        length += pieces[i].length;
        if (pieces[i].length == 0) {
            return false;
        }
    }
    return length == wr->length;
}

/* 0, or why the WR can never be posted. */
static int wr_check(const struct weir_qp *qp, const struct weir_wr *wr, bool is_first) {
    const struct sim_nic_config *config = qp->nic->config;

    if (wr->opcode >= WEIR_OPCODES || wr->length > config->message_bytes_max ||
        ((wr->flags & WEIR_WR_INLINE) != 0 && wr->length > config->inline_bytes_max) ||
        !gather_is_legal(qp, wr, is_first)) {
        sim_violation(qp->nic->world,
                      "S15 n%u qp %u: a WR that the device's caps rule out: opcode %u, flags %u, "
                      "%u pieces, %llu bytes",
                      qp->nic->node->index, qp->qpn, wr->opcode, wr->flags, wr->pieces,
                      (unsigned long long)wr->length);
        return WEIR_EINVAL;
    }
    return 0;
}

static int sq_append(struct weir_qp *qp, const struct weir_wr *wr) {
    uint64_t seq = qp->head;
    bool shares = qp->nic->config->sq_shared != 0 && qp->state != SIM_QP_ERR;

    if (qp->sq_used >= qp->sq_depth) {
        qp->nic->census.overfills++;
        return WEIR_EAGAIN;
    }
    if (shares && qp->nic->sq_taken == qp->nic->config->sq_shared) {
        qp->nic->census.overfills++;
        return WEIR_EAGAIN;
    }
    if (qp->head - qp->tail > qp->entry_mask) {
        return WEIR_EAGAIN; /* an unordered queue whose oldest entry is still out */
    }
    qp->entries[seq & qp->entry_mask] =
        (struct nic_entry){.wr_id = wr->wr_id,
                           .signaled = (wr->flags & WEIR_WR_SIGNALED) != 0,
                           .shared = shares,
                           .bytes = wr->opcode == WEIR_OP_SEND ? 0 : wr->length};
    qp->head++;
    qp->sq_used++;
    qp->nic->sq_taken += shares;
    qp->sq_bytes += qp->entries[seq & qp->entry_mask].bytes;
    qp->sq_data += qp->entries[seq & qp->entry_mask].bytes > 0;
    judge_load(qp->nic);
    if (qp->state == SIM_QP_ERR) {
        flush_soon(qp);
    } else {
        qp->entries[seq & qp->entry_mask].sent = true;
        nic_launch(qp, seq, wr);
    }
    return 0;
}

/* Where, and with what, this post is to be refused. */
static int post_fault(const struct weir_qp *qp, uint32_t count, uint32_t *limit_out) {
    const struct sim_nic_config *config = qp->nic->config;
    int error = 0;

    if (nic_fault(qp->nic, config->post_eagain)) {
        error = WEIR_EAGAIN;
    } else if (nic_fault(qp->nic, config->post_edevice)) {
        error = WEIR_EDEVICE;
    } else if (nic_fault(qp->nic, config->post_einval)) {
        error = WEIR_EINVAL;
    }
    *limit_out = error == 0 ? count : (uint32_t)sim_below(&qp->nic->world->prng, count);
    return error;
}

/* "WwRS": writes, reads, sends; lower case: not signalled. */
static void trace_post(const struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                       const struct weir_post *post, int error) {
    char kinds[33];
    uint32_t i;

    for (i = 0; i < count && i < sizeof(kinds) - 1; i++) {
        bool signaled = (wrs[i].flags & WEIR_WR_SIGNALED) != 0;

        kinds[i] = (signaled ? "WRS?" : "wrs?")[wrs[i].opcode & 3];
    }
    kinds[i] = '\0';
    sim_trace(qp->nic->world, "n%u qp %u posts %u %s: %u accepted, %u done, %s; used %u of %u",
              qp->nic->node->index, qp->qpn, count, kinds, post->accepted, post->done,
              error == 0 ? "ok" : weir_error_name(error), qp->sq_used, qp->sq_depth);
}

int nic_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out) {
    struct weir_device *nic = qp->nic;
    bool may_inline = nic->config->completes_inline && qp->state == SIM_QP_RTS;
    uint64_t bytes = 0;
    uint32_t limit;
    int error;

    *post_out = (struct weir_post){0};
    if (count == 0) {
        return 0;
    }
    if (qp->state == SIM_QP_INIT) {
        sim_violation(nic->world, "H8 n%u posts to qp %u in INIT", nic->node->index, qp->qpn);
        return WEIR_EINVAL;
    }
    error = post_fault(qp, count, &limit);
    for (uint32_t i = 0; i < limit; i++) {
        int refused = wr_check(qp, &wrs[i], i == 0);

        bytes += wrs[i].length;
        if (refused == 0 && qp->state == SIM_QP_RTS && wrs[i].opcode != WEIR_OP_SEND &&
            wrs[i].length != 0 && nic_import_is_gone(nic, wrs[i].rkey)) {
            refused = WEIR_ESTALE;
        }
        if (refused == 0 && i != 0 && bytes > nic->config->post_bytes_max) {
            refused = WEIR_EAGAIN;
        }
        if (refused == 0 && may_inline && post_out->done == i && nic_execute_inline(qp, &wrs[i])) {
            if (nic->config->ordered) {
                sq_pass(qp);
            }
            post_out->accepted++;
            post_out->done++;
            continue;
        }
        if (refused == 0) {
            refused = sq_append(qp, &wrs[i]);
        }
        if (refused != 0) {
            error = refused;
            break;
        }
        post_out->accepted++;
    }
    if (nic->world->trace != NULL) {
        trace_post(qp, wrs, count, post_out, error);
    }
    if (nic_fault(nic, nic->config->qp_fail)) {
        inject_soon(qp);
    }
    if (!nic->failed && nic_fault(nic, nic->config->device_fail)) {
        nic_fail(nic);
    }
    return error;
}

uint32_t nic_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count) {
    const struct sim_nic_config *config = qp->nic->config;
    uint32_t done = 0;

    if (!config->completes_inline || qp->state != SIM_QP_RTS || count == 0) {
        return 0;
    }
    if (nic_fault(qp->nic, config->post_eagain)) {
        count = (uint32_t)sim_below(&qp->nic->world->prng, count);
    }
    while (done < count) {
        const weir_segment *segment = &segments[done];
        struct weir_wr wr = {.laddr = span->laddr + segment->local_offset,
                             .raddr = span->raddr + segment->remote_offset,
                             .length = segment->length,
                             .lkey = span->lkey,
                             .rkey = span->rkey,
                             .opcode = (uint8_t)span->opcode};

        if (wr.length > config->message_bytes_max || !nic_execute_inline(qp, &wr)) {
            break;
        }
        done++;
    }
    return done;
}

/* ---- polling ----------------------------------------------------------- */

/* Up to max of one ring. */
static int ring_take(struct weir_device *nic, struct nic_ring *ring, struct weir_cqe *cqes_out,
                     int max) {
    int count = 0;

    while (count < max && ring->count != 0) {
        const struct nic_cqe *cqe = &ring->cqes[ring->head];

        if (cqe->send) {
            struct weir_qp *qp = nic_find(nic->world, nic->node->index, cqe->qpn, cqe->uid);

            if (qp != NULL) {
                sq_free_polled(qp, cqe->seq);
            }
        }
        cqes_out[count++] = cqe->cqe;
        ring->head = (ring->head + 1) & (ring->capacity - 1);
        ring->count--;
    }
    return count;
}

uint64_t sim_nic_unpolled_ns(const struct weir_device *nic) {
    uint64_t longest_ns = 0;

    for (const struct nic_ring *ring = nic->ring_first; ring != NULL; ring = ring->next) {
        uint64_t since_ns = nic->world->now_ns - ring->cqes[ring->head].at_ns;

        longest_ns = since_ns > longest_ns ? since_ns : longest_ns;
    }
    return longest_ns;
}

/* One turn for each ring that holds something now; one that has more goes behind the
 * others and waits for the next poll. So fewer than max does not mean that all is polled. */
int nic_poll(struct weir_device *nic, struct weir_cqe *cqes_out, int max) {
    struct nic_ring *last = nic->ring_last;
    struct nic_ring *ring = NULL;
    int count = 0;

    while (count < max && ring != last && nic->ring_first != NULL) {
        int room = max - count;

        ring = nic->ring_first;
        if (ring->turn != 0 && (uint32_t)room > ring->turn) {
            room = (int)ring->turn;
        }
        count += ring_take(nic, ring, cqes_out + count, room);
        ring_unlist(nic, ring);
        if (ring->count != 0) {
            ring_list(nic, ring);
        }
    }
    return count;
}
