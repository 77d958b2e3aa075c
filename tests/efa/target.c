/* SPDX-License-Identifier: Apache-2.0 */
/* target.c: packets of others, executed: on registered memory, and on posted receives.
 *
 * A message that finds no receive waits here for one. To its sender that is what it is on the
 * device, where the sender's NIC tries again and again: the operation goes on.
 *
 * A packet that is old when its turn comes, since a receive was long in coming, or a cable was out,
 * may have been given up by its sender, or the sender may be gone: it is asked first. So nothing
 * lands of an operation that has failed. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "nic.h"

#define OLD_NS   (50 * NS_PER_MS)
#define TRIES_NS (1 * NS_PER_MS)

/* ---- memory ---- */

static enum status write_memory(struct nic *nic, const struct packet *packet) {
    const struct wire *wire = &packet->wire;
    struct domain *domain = nic->endpoint->domain;
    enum status status = STATUS_REMOTE_BAD_ADDRESS;
    pthread_mutex_lock(&domain->mr_lock);
    if (wire->offset <= wire->total && wire->len <= wire->total - wire->offset &&
        mr_covers(domain, wire->key, wire->remote, wire->total, FI_REMOTE_WRITE)) {
        move_bytes(nic, (void *)(uintptr_t)(wire->remote + wire->offset), packet->bytes, wire->len);
        status = STATUS_OK;
    }
    pthread_mutex_unlock(&domain->mr_lock);
    return status;
}

/* FI_SEND gives the right to be read, too: the real provider asks the device for it, to emulate
 * long messages. */
enum status target_read(struct nic *nic, const struct wire *wire, void *bytes_out) {
    struct domain *domain = nic->endpoint->domain;
    enum status status = STATUS_REMOTE_BAD_ADDRESS;
    pthread_mutex_lock(&domain->mr_lock);
    if (wire->offset <= wire->total && wire->len <= wire->total - wire->offset &&
        wire->len <= CHUNK_MAX &&
        mr_covers(domain, wire->key, wire->remote, wire->total, FI_REMOTE_READ | FI_SEND)) {
        const void *from = (const void *)(uintptr_t)(wire->remote + wire->offset);
        if (!move_bytes(nic, bytes_out, from, wire->len))
            memset(bytes_out, 0, wire->len); /* unmapped, and anything */
        status = STATUS_OK;
    }
    pthread_mutex_unlock(&domain->mr_lock);
    return status;
}

/* ---- receives ---- */

static enum status scatter(struct nic *nic, const struct receive *receive,
                           const struct packet *packet) {
    struct domain *domain = nic->endpoint->domain;
    const uint8_t *bytes = packet->bytes;
    size_t left = packet->wire.len;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&domain->mr_lock);
    for (int i = 0; i < IOVS_MAX && left != 0 && status == STATUS_OK; i++) {
        const struct segment *segment = &receive->segments[i];
        size_t some = segment->len < left ? segment->len : left;
        if (some == 0)
            continue;
        if (mr_is_local(domain, segment, true))
            move_bytes(nic, segment->base, bytes, some);
        else
            status = STATUS_INVALID_LKEY;
        bytes += some;
        left -= some;
    }
    pthread_mutex_unlock(&domain->mr_lock);
    return status;
}

static void complete(struct nic *nic, const struct receive *receive, const struct packet *packet,
                     enum status status) {
    struct endpoint *endpoint = nic->endpoint;
    struct completion completion = {.endpoint = endpoint, .received = true};
    completion.entry.op_context = receive->context;
    completion.entry.flags = FI_RECV | FI_MSG;
    completion.entry.len = status == STATUS_OK ? packet->wire.len : 0;
    if (packet->wire.has_data) {
        completion.entry.flags |= FI_REMOTE_CQ_DATA;
        completion.entry.data = packet->wire.data;
    }
    completion.entry.prov_errno = (int)status;
    completion.entry.err = status_to_errno((int)status);
    if (status == STATUS_OK)
        nic->counts.completed++;
    else
        nic->counts.errors++;
    pthread_mutex_lock(&endpoint->lock);
    contexts_remove(endpoint, receive->context);
    context_scribble(endpoint, receive->context);
    pthread_mutex_unlock(&endpoint->lock);
    cq_push(endpoint->rx_cq, &completion);
}

/* The first receive is taken if it is long enough; false: there is none. */
static bool receive_first(struct endpoint *endpoint, size_t len, struct receive *receive_out) {
    pthread_mutex_lock(&endpoint->lock);
    bool is = endpoint->receives_count != 0;
    if (is)
        *receive_out = endpoint->receives[endpoint->receives_first];
    if (is && receive_out->len >= len) {
        endpoint->receives_first =
            (endpoint->receives_first + 1) % endpoint->domain->habits.rx_size;
        endpoint->receives_count--;
    }
    pthread_mutex_unlock(&endpoint->lock);
    return is;
}

/* False: it has to wait. A receive whose memory is not registered any more fails, and the next one
 * is tried. */
static bool deliver(struct nic *nic, const struct packet *packet) {
    struct receive receive;
    while (receive_first(nic->endpoint, packet->wire.len, &receive)) {
        enum status status = STATUS_REMOTE_BAD_LENGTH;
        if (receive.len >= packet->wire.len) {
            status = scatter(nic, &receive, packet);
            complete(nic, &receive, packet, status);
        }
        if (status == STATUS_INVALID_LKEY)
            continue;
        link_answer(nic, &packet->wire, PACKET_ANSWER, status);
        return true;
    }
    return false;
}

/* ---- what is old ---- */

static bool is_old(const struct nic *nic, const struct packet *packet) {
    return nic->now_ns > packet->fresh_ns && nic->now_ns - packet->fresh_ns > OLD_NS;
}

static void ask(struct nic *nic, struct packet *packet) {
    link_answer(nic, &packet->wire, PACKET_ASK, STATUS_OK);
    TAILQ_INSERT_TAIL(&nic->asked, packet, queued);
}

/* The answer: the packet's turn comes again, or it is dropped. */
static void told(struct nic *nic, const struct wire *wire) {
    struct packet *packet, *next;
    for (packet = TAILQ_FIRST(&nic->asked); packet != NULL; packet = next) {
        next = TAILQ_NEXT(packet, queued);
        if (packet->wire.id != wire->id || packet->wire.offset != wire->offset ||
            packet->wire.from_token != wire->from_token || packet->wire.from_qpn != wire->from_qpn)
            continue;
        TAILQ_REMOVE(&nic->asked, packet, queued);
        packet->fresh_ns = nic->now_ns;
        if (wire->type == PACKET_WANTED)
            target_execute(nic, packet);
        else
            packet_drop(nic, packet);
        return;
    }
}

/* ---- messages that wait ---- */

/* A copy as large as it has to be. */
static void wait_for_receive(struct nic *nic, struct packet *packet) {
    size_t len = sizeof *packet + packet->wire.len;
    struct packet *copy = allocate(len);
    memcpy(copy, packet, len);
    copy->whole = false;
    uint64_t tries =
        nic->habits->rnr_retries != 0 ? nic->habits->rnr_retries : nic->endpoint->rnr_tries;
    copy->due_ns = tries != 0 ? nic->now_ns + tries * TRIES_NS : NEVER;
    packet_drop(nic, packet);
    TAILQ_INSERT_TAIL(&nic->waiting, copy, queued);
    nic_due(nic, nic->now_ns);
}

static void drop_gone(struct nic *nic, struct packets *packets) {
    struct packet *packet, *next;
    for (packet = TAILQ_FIRST(packets); packet != NULL; packet = next) {
        const struct wire *wire = &packet->wire;
        next = TAILQ_NEXT(packet, queued);
        if (!link_is_gone(nic, link_of(nic, wire->from_token, wire->from_qpn, wire->from_connid)))
            continue;
        TAILQ_REMOVE(packets, packet, queued);
        packet_drop(nic, packet);
    }
}

static void expire(struct nic *nic) {
    struct packet *packet, *next;
    for (packet = TAILQ_FIRST(&nic->waiting); packet != NULL; packet = next) {
        next = TAILQ_NEXT(packet, queued);
        if (packet->due_ns == NEVER)
            return; /* so do all */
        if (packet->due_ns > nic->now_ns) {
            nic_due(nic, packet->due_ns);
            continue;
        }
        link_answer(nic, &packet->wire, PACKET_ANSWER, STATUS_REMOTE_RNR);
        TAILQ_REMOVE(&nic->waiting, packet, queued);
        packet_drop(nic, packet);
    }
}

void target_flush(struct nic *nic) {
    static const struct packet none;
    struct receive receive;
    while (receive_first(nic->endpoint, 0, &receive))
        complete(nic, &receive, &none, STATUS_FLUSHED);
}

void target_waiting(struct nic *nic) {
    if (!TAILQ_EMPTY(&nic->waiting) || !TAILQ_EMPTY(&nic->asked)) {
        if (nic->waiting_probe_ns <= nic->now_ns) {
            drop_gone(nic, &nic->waiting);
            drop_gone(nic, &nic->asked);
            nic->waiting_probe_ns = nic->now_ns + 10 * PROBE_NS;
        }
        nic_due(nic, nic->waiting_probe_ns);
    }
    struct receive receive;
    struct packet *packet;
    while ((packet = TAILQ_FIRST(&nic->waiting)) != NULL &&
           receive_first(nic->endpoint, SIZE_MAX, &receive)) {
        struct packet *second = TAILQ_NEXT(packet, queued);
        if (second != NULL && draw_percent(&nic->draws, nic->habits->reorder))
            packet = second;
        TAILQ_REMOVE(&nic->waiting, packet, queued);
        if (is_old(nic, packet))
            ask(nic, packet);
        else if (deliver(nic, packet))
            packet_drop(nic, packet);
        else
            TAILQ_INSERT_HEAD(&nic->waiting, packet, queued);
    }
    expire(nic);
}

/* ---- all of them ---- */

static void execute_request(struct nic *nic, struct packet *packet) {
    const struct wire *wire = &packet->wire;
    if (wire->type == PACKET_SEND && nic->habits->breaks != 0 &&
        ++nic->received >= nic->habits->breaks)
        nic->broken = true;
    if (nic->broken) {
        packet_drop(nic, packet);
        return;
    }
    if (wire->type == PACKET_SEND) {
        if (TAILQ_EMPTY(&nic->waiting) && deliver(nic, packet))
            packet_drop(nic, packet);
        else
            wait_for_receive(nic, packet);
        return;
    }
    enum status status = STATUS_OK; /* reads look when they are sent */
    if (wire->type == PACKET_WRITE)
        status = write_memory(nic, packet);
    link_answer(nic, wire, PACKET_ANSWER, status);
    packet_drop(nic, packet);
}

void target_execute(struct nic *nic, struct packet *packet) {
    const struct wire *wire = &packet->wire;
    bool ours = wire->to_connid == nic->endpoint->address.connid;
    switch (wire->type) {
    case PACKET_SEND:
    case PACKET_WRITE:
    case PACKET_READ:
        if (!ours) {
            link_answer(nic, wire, PACKET_ANSWER, STATUS_REMOTE_BAD_QPN);
            break;
        }
        if (is_old(nic, packet))
            ask(nic, packet);
        else
            execute_request(nic, packet);
        return;
    case PACKET_ANSWER:
        if (ours)
            initiator_answered(nic, packet);
        break;
    case PACKET_ASK:
        link_answer(nic, wire, ours && initiator_wants(nic, wire) ? PACKET_WANTED : PACKET_UNWANTED,
                    STATUS_OK);
        break;
    case PACKET_WANTED:
    case PACKET_UNWANTED:
        if (ours)
            told(nic, wire);
        break;
    default:
        break;
    }
    packet_drop(nic, packet);
}
