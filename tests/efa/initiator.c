/* SPDX-License-Identifier: Apache-2.0 */
/* initiator.c: the operations of a NIC's own user, from the queue to their completions.
 *
 *   submitted ─take─► known to a link ─► its packets, each answered ─finish─► late ─► CQ
 *
 * Transfers are cut into packets; those of all transfers to a peer take turns. An operation whose
 * packet was answered with an error sends no more, and ends when what it has sent is answered. */
#define _GNU_SOURCE
#include <string.h>

#include "nic.h"

/* Ids begin with the generation, so that those of finished operations are nobody's. */
static uint64_t id_of(const struct op *op) {
    return ((uint64_t)op->generation << 32) | op->index;
}

static struct op *op_of(struct nic *nic, uint64_t id) {
    uint64_t index = id & UINT32_MAX;
    if (index >= nic->habits->tx_size)
        return NULL;
    struct op *op = &nic->endpoint->ops[index];
    return op->link != NULL && op->generation == id >> 32 ? op : NULL;
}

static struct ops *queue_of(const struct op *op) {
    return op->kind == KIND_SEND ? &op->link->messages : &op->link->transfers;
}

static uint32_t *unanswered_of(const struct op *op) {
    return op->kind == KIND_SEND ? &op->link->sends : &op->link->chunks;
}

void initiator_take(struct nic *nic) {
    struct endpoint *endpoint = nic->endpoint;
    struct ops taken = TAILQ_HEAD_INITIALIZER(taken);
    pthread_mutex_lock(&endpoint->lock);
    TAILQ_CONCAT(&taken, &endpoint->submitted, queued);
    pthread_mutex_unlock(&endpoint->lock);
    struct op *op;
    while ((op = TAILQ_FIRST(&taken)) != NULL) {
        TAILQ_REMOVE(&taken, op, queued);
        const struct address *to = &op->peer->address;
        op->link = link_of(nic, to->token, to->qpn, to->connid);
        TAILQ_INSERT_TAIL(&op->link->known, op, known);
        TAILQ_INSERT_TAIL(queue_of(op), op, queued);
        link_make_busy(nic, op->link);
        if (op->len > (op->kind == KIND_SEND ? SEND_MAX : MESSAGE_MAX))
            initiator_finish(nic, op, STATUS_BAD_LENGTH);
    }
}

/* ---- bytes of the user's buffers, with mr_lock held ---- */

/* Moves bytes at that offset of the operation, out of its buffers or into them. */
static bool move(struct nic *nic, struct op *op, uint64_t offset, uint8_t *bytes, size_t len,
                 bool written) {
    for (int i = 0; i < IOVS_MAX && len != 0; i++) {
        const struct segment *segment = &op->segments[i];
        if (offset >= segment->len) {
            offset -= segment->len;
            continue;
        }
        size_t some = segment->len - offset < len ? (size_t)(segment->len - offset) : len;
        if (!mr_is_local(nic->endpoint->domain, segment, written))
            return false;
        if (written)
            move_bytes(nic, segment->base + offset, bytes, some);
        else if (!move_bytes(nic, bytes, segment->base + offset, some))
            memset(bytes, 0, some); /* unmapped, and anything */
        bytes += some;
        len -= some;
        offset = 0;
    }
    return len == 0;
}

/* ---- packets ---- */

static const uint8_t type_of[] = {
    [KIND_SEND] = PACKET_SEND, [KIND_WRITE] = PACKET_WRITE, [KIND_READ] = PACKET_READ};

/* It sends no more. */
static void stop(struct nic *nic, struct op *op, enum status status) {
    if (op->status == STATUS_OK)
        op->status = status;
    if (!op->all_sent)
        TAILQ_REMOVE(queue_of(op), op, queued);
    op->all_sent = true;
    if (op->outstanding == 0)
        initiator_finish(nic, op, op->status);
}

size_t initiator_gather(struct nic *nic, struct op *op, struct wire *wire_out) {
    uint64_t most = op->kind == KIND_SEND ? SEND_MAX : nic->habits->chunk_bytes;
    uint64_t left = op->len - op->sent;
    size_t len = (size_t)(left < most ? left : most);
    bool fine = true;
    memset(wire_out, 0, sizeof *wire_out);
    wire_out->type = type_of[op->kind];
    wire_out->id = id_of(op);
    wire_out->offset = op->sent;
    wire_out->total = op->len;
    wire_out->remote = op->remote;
    wire_out->key = op->key;
    wire_out->len = (uint32_t)len;
    wire_out->data = op->data;
    wire_out->has_data = op->has_data;
    if (op->injected) {
        memcpy(nic->out.bytes, op->inject, len);
    } else if (op->kind != KIND_READ) {
        struct domain *domain = nic->endpoint->domain;
        pthread_mutex_lock(&domain->mr_lock);
        fine = move(nic, op, op->sent, nic->out.bytes, len, false);
        pthread_mutex_unlock(&domain->mr_lock);
    }
    if (!fine) {
        op->status = STATUS_INVALID_LKEY;
        stop(nic, op, STATUS_INVALID_LKEY);
    }
    return len;
}

void initiator_sent(struct nic *nic, struct op *op, size_t len) {
    (void)nic;
    struct ops *queue = queue_of(op);
    op->sent += len;
    op->outstanding++;
    ++*unanswered_of(op);
    TAILQ_REMOVE(queue, op, queued);
    op->all_sent = op->sent == op->len;
    if (!op->all_sent)
        TAILQ_INSERT_TAIL(queue, op, queued);
}

static bool land(struct nic *nic, struct op *op, const struct packet *packet) {
    const struct wire *wire = &packet->wire;
    struct domain *domain = nic->endpoint->domain;
    if (wire->offset > op->len || wire->len > op->len - wire->offset)
        return false;
    pthread_mutex_lock(&domain->mr_lock);
    bool fine = move(nic, op, wire->offset, (uint8_t *)(uintptr_t)packet->bytes, wire->len, true);
    pthread_mutex_unlock(&domain->mr_lock);
    return fine;
}

void initiator_answered(struct nic *nic, const struct packet *packet) {
    const struct wire *wire = &packet->wire;
    struct op *op = op_of(nic, wire->id);
    if (op == NULL || op->outstanding == 0)
        return;
    op->link->heard = true;
    op->outstanding--;
    --*unanswered_of(op);
    enum status status = wire->status;
    if (status == STATUS_OK && op->kind == KIND_READ && !land(nic, op, packet))
        status = STATUS_INVALID_LKEY;
    if (status != STATUS_OK)
        stop(nic, op, status);
    else if (op->all_sent && op->outstanding == 0)
        initiator_finish(nic, op, op->status);
}

bool initiator_wants(struct nic *nic, const struct wire *wire) {
    return op_of(nic, wire->id) != NULL;
}

/* ---- completions ---- */

void initiator_finish(struct nic *nic, struct op *op, enum status status) {
    struct link *link = op->link;
    if (!op->all_sent)
        TAILQ_REMOVE(queue_of(op), op, queued);
    op->all_sent = true;
    *unanswered_of(op) -= op->outstanding;
    op->outstanding = 0;
    TAILQ_REMOVE(&link->known, op, known);
    op->link = NULL;
    op->generation++;
    op->status = status;
    if (nic->habits->forgets != 0 && ++nic->finished == nic->habits->forgets)
        return;
    op->due_ns = nic->now_ns;
    if (draw_percent(&nic->draws, nic->habits->late))
        op->due_ns += NS_PER_US * draw_below(&nic->draws, nic->habits->late_us);
    TAILQ_INSERT_TAIL(&nic->late, op, queued);
    nic_due(nic, op->due_ns);
}

static void complete(struct nic *nic, struct op *op) {
    static const uint64_t flags[] = {[KIND_SEND] = FI_SEND | FI_MSG,
                                     [KIND_WRITE] = FI_WRITE | FI_RMA,
                                     [KIND_READ] = FI_READ | FI_RMA};
    struct endpoint *endpoint = nic->endpoint;
    struct completion completion = {.endpoint = endpoint};
    completion.entry.op_context = op->context;
    completion.entry.flags = flags[op->kind];
    completion.entry.prov_errno = (int)op->status;
    completion.entry.err = status_to_errno((int)op->status);
    if (op->status == STATUS_OK)
        nic->counts.completed++;
    else
        nic->counts.errors++;
    pthread_mutex_lock(&endpoint->lock);
    contexts_remove(endpoint, op->context);
    context_scribble(endpoint, op->context);
    atomic_fetch_sub(&op->peer->inflight, 1);
    op->peer = NULL;
    TAILQ_INSERT_HEAD(&endpoint->free, op, queued);
    pthread_mutex_unlock(&endpoint->lock);
    cq_push(endpoint->tx_cq, &completion);
}

void initiator_flush(struct nic *nic) {
    for (int i = 0; i < LINKS; i++) {
        struct link *link;
        SLIST_FOREACH(link, &nic->links[i], found) {
            while (!TAILQ_EMPTY(&link->known))
                initiator_finish(nic, TAILQ_FIRST(&link->known), STATUS_FLUSHED);
        }
    }
}

void initiator_complete(struct nic *nic) {
    struct op *op, *next;
    for (op = TAILQ_FIRST(&nic->late); op != NULL; op = next) {
        next = TAILQ_NEXT(op, queued);
        if (op->due_ns > nic->now_ns) {
            nic_due(nic, op->due_ns);
            continue;
        }
        TAILQ_REMOVE(&nic->late, op, queued);
        complete(nic, op);
    }
}
