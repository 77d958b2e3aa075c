/* SPDX-License-Identifier: Apache-2.0 */
/* nic_wire.c: the data network between simulated NICs.
 *
 * Owns packets from launch to landing. A write becomes one or several packets with
 * the bytes as they were at the post; they land one by one, whether or not the
 * sender's QP or process still lives, as real packets do. Only the target's QP
 * leaving RTS or its region's release stops them, and with peer_dead_news the death of their
 * sender. Retransmission by the sender's NIC needs the sender's QP in RTS, or failures isolated.
 *
 * Ordered QPs: packets carry a PSN and are taken in PSN order only; so are answers.
 * A packet that was lost, or found nobody, is sent again after the retransmission
 * time-out, retry_count times, then the sender's QP fails (IBA 9.7.5: go-back-N;
 * later packets find a gap and wait in the same way).
 * Unordered QPs: every packet is on its own. Where failures are isolated, so is every send: it is
 * told when all of its packets have been answered or given up, also in the error state.
 * With bytes_per_us a port sends one packet behind the other, of all QPs, and takes them so: many
 * NICs that send to one wait for its port. A packet that is sent again passes no port once more.
 * With no_blame two QPs are the ends of a connection, as on iWARP: when one of them leaves RTS,
 * whatever for, it sends a last packet, at which the other one fails. That is all that a
 * sender hears of what its target refuses. Such a packet that nobody takes is given up.
 * With buffers, too, a host keeps what comes for a process that is stopped, as a kernel keeps the
 * bytes of a TCP connection. When the process goes on, all of it is taken as it came, with nobody
 * left to take it back: by QPs that are in RTS still, whether or not their other ends are there. */
#include <stdlib.h>
#include <string.h>

#include "nic_impl.h"

enum nic_packet_kind { NIC_WRITE, NIC_READ, NIC_SEND, NIC_POISON, NIC_ACK, NIC_RESPONSE, NIC_END };

#define NIC_PSN_CLOSED (UINT64_MAX / 2) /* no packet has it */

enum { HEAD_BYTES = 64 }; /* of a packet, beside its payload */

struct nic_end {
    uint32_t node;
    uint32_t qpn;
    uint64_t uid;
};

struct nic_packet {
    uint8_t kind;
    bool last; /* ends its message */
    bool wants_ack;
    bool in;         /* it has come to the port of its target */
    bool kept;       /* it is, or was, in the host of its target */
    uint32_t status; /* of an ACK: enum weir_cqe_status */
    struct nic_end from;
    struct nic_end to;
    uint32_t from_life;
    uint32_t psn_first; /* the sender's starting PSN */
    uint64_t psn;       /* packets (or answers) before this one */
    uint64_t seq;       /* the send it belongs to */
    uint64_t raddr;
    uint64_t laddr;
    uint64_t length;
    uint64_t message_raddr;  /* of the whole message, which the target checks at its first */
    uint64_t message_length; /* packet (the RETH's DMA length, IBA 9.7.4.1.5) */
    uint32_t rkey;
    uint32_t lkey;
    uint32_t attempts;
    sim_event_fn fire;       /* while it is kept: what takes it, */
    struct nic_packet *next; /* and what came behind it */
    uint8_t bytes[];
};

static void packet_arrive(struct sim_world *world, const struct sim_event *event);
static void answer_arrive(struct sim_world *world, const struct sim_event *event);

static void packet_drop(const struct sim_event *event) {
    free(event->object);
}

static uint64_t wire_latency(const struct weir_device *nic) {
    return sim_between(&nic->world->prng, nic->config->latency_min_ns, nic->config->latency_max_ns);
}

static void packet_schedule(struct sim_world *world, struct nic_packet *packet, uint64_t at_ns,
                            sim_event_fn fire) {
    struct sim_event event = {.at_ns = at_ns,
                              .fire = fire,
                              .drop = packet_drop,
                              .object = packet,
                              .a = packet->seq,
                              .node = packet->to.node,
                              .b = (uint32_t)packet->length};

    sim_schedule(world, &event);
}

static struct nic_packet *packet_make(uint64_t bytes) {
    struct nic_packet *packet = malloc(sizeof(*packet) + (size_t)bytes);

    if (packet == NULL) {
        fputs("weir-sim: out of memory\n", stderr);
        exit(2);
    }
    memset(packet, 0, sizeof(*packet));
    return packet;
}

/* ---- launching --------------------------------------------------------- */

/* How long the packet keeps a port of that NIC. */
static uint64_t port_ns(const struct weir_device *nic, const struct nic_packet *packet) {
    bool carries =
        packet->kind == NIC_WRITE || packet->kind == NIC_SEND || packet->kind == NIC_RESPONSE;

    return (HEAD_BYTES + (carries ? packet->length : 0)) * 1000 / nic->config->bytes_per_us;
}

/* When a port that is free from *free_ns on begins with a packet that is there now. */
static uint64_t port_begin(const struct weir_device *nic, const struct nic_packet *packet,
                           uint64_t *free_ns) {
    uint64_t begin = nic->world->now_ns;

    if (nic->config->bytes_per_us == 0) {
        return begin;
    }
    begin = *free_ns > begin ? *free_ns : begin;
    *free_ns = begin + port_ns(nic, packet);
    return begin;
}

/* When the front of a packet that is sent now arrives, behind those before it. */
static uint64_t wire_arrival(struct weir_device *nic, const struct nic_packet *packet,
                             uint64_t *newest_ns) {
    uint64_t at = port_begin(nic, packet, &nic->out_free_ns) + wire_latency(nic);

    if (nic->config->ordered) {
        if (at <= *newest_ns) {
            at = *newest_ns + 1;
        }
        *newest_ns = at;
    }
    return at;
}

/* Bytes of the WR from offset on, where they are, piece by piece. */
static void fetch(const struct weir_qp *qp, const struct weir_wr *wr, uint64_t offset,
                  uint64_t length, uint8_t *out) {
    const struct weir_sge whole = {.laddr = wr->laddr, .length = (uint32_t)wr->length};
    const struct weir_sge *piece =
        wr->pieces == 0 ? &whole : (const struct weir_sge *)(uintptr_t)wr->laddr;
    struct sim_world *world = qp->nic->world;

    for (; length != 0; piece++) {
        uint64_t size = wr->pieces == 0 ? wr->length : piece->length;

        if (offset >= size) {
            offset -= size;
            continue;
        }
        uint64_t some = size - offset < length ? size - offset : length;
        const void *at = (const void *)(uintptr_t)(piece->laddr + offset);

        if (world->watch.fetch != NULL) {
            world->watch.fetch(world->watch.self, qp->nic->node, at, some);
        }
        memcpy(out, at, (size_t)some);
        out += some;
        length -= some;
        offset = 0;
    }
}

/* wr names the target's own key and address. */
static struct nic_packet *launch_piece(struct weir_qp *qp, uint64_t seq, const struct weir_wr *wr,
                                       enum nic_packet_kind kind, uint64_t offset,
                                       uint64_t length) {
    struct weir_device *nic = qp->nic;
    struct sim_world *world = nic->world;
    bool carries = kind == NIC_WRITE || kind == NIC_SEND;
    struct nic_packet *packet = packet_make(carries ? length : 0);

    packet->kind = (uint8_t)kind;
    packet->last = offset + length == wr->length;
    packet->wants_ack = !nic->config->ordered || (packet->last && (wr->flags & WEIR_WR_SIGNALED));
    packet->from = (struct nic_end){nic->node->index, qp->qpn, qp->uid};
    packet->to = (struct nic_end){qp->remote_node, qp->remote_qpn, qp->remote_uid};
    packet->from_life = nic->node->life;
    packet->psn_first = qp->psn_local;
    packet->psn = qp->tx_psn++;
    packet->seq = seq;
    packet->raddr = wr->raddr + offset;
    packet->laddr = wr->laddr + offset;
    packet->length = length;
    packet->message_raddr = wr->raddr;
    packet->message_length = wr->length;
    packet->rkey = wr->rkey;
    packet->lkey = wr->lkey;
    if (carries) {
        fetch(qp, wr, offset, length, packet->bytes);
    }
    packet_schedule(world, packet, wire_arrival(nic, packet, &qp->tx_at_ns), packet_arrive);
    return packet;
}

static bool local_ok(struct weir_qp *qp, const struct weir_wr *wr) {
    const struct weir_sge *pieces = (const struct weir_sge *)(uintptr_t)wr->laddr;

    if (wr->pieces > 0) {
        bool covered = true;

        for (uint32_t i = 0; i < wr->pieces; i++) {
            covered &=
                nic_mr_covers_local(qp->nic, pieces[i].lkey, pieces[i].laddr, pieces[i].length);
        }
        return covered;
    }
    return wr->length == 0 || (wr->flags & WEIR_WR_INLINE) != 0 ||
           nic_mr_covers_local(qp->nic, wr->lkey, wr->laddr, wr->length);
}

uint32_t nic_wr_resolve(struct weir_qp *qp, const struct weir_wr *wr, struct weir_wr *wr_out) {
    *wr_out = *wr;
    if (!local_ok(qp, wr)) {
        return WEIR_CQE_LOCAL_PROT;
    }
    if (wr->opcode != WEIR_OP_SEND && wr->length != 0 &&
        !nic_import_resolve(qp->nic, wr->rkey, wr->raddr, &wr_out->rkey, &wr_out->raddr)) {
        return WEIR_CQE_REMOTE_ACCESS;
    }
    return WEIR_CQE_OK;
}

void nic_launch(struct weir_qp *qp, uint64_t seq, const struct weir_wr *posted) {
    struct weir_device *nic = qp->nic;
    struct nic_entry *entry = &qp->entries[seq & qp->entry_mask];
    struct weir_wr resolved;
    const struct weir_wr *wr = &resolved;
    uint32_t status = nic_wr_resolve(qp, posted, &resolved);
    uint64_t pieces = 1;
    uint64_t piece;

    entry->pieces_left = 1;
    if (!qp->still && sim_fault(nic->world, nic->config->still)) {
        sim_trace(nic->world, "n%u qp %u: stands still", nic->node->index, qp->qpn);
        qp->still = true;
    }
    if (qp->still) {
        return;
    }
    if (status != WEIR_CQE_OK) {
        launch_piece(qp, seq, wr, NIC_POISON, 0, wr->length)->status = status;
        return;
    }
    switch (wr->opcode) {
    case WEIR_OP_READ:
        launch_piece(qp, seq, wr, NIC_READ, 0, wr->length);
        return;
    case WEIR_OP_SEND:
        launch_piece(qp, seq, wr, NIC_SEND, 0, wr->length);
        return;
    default:
        break;
    }
    if (wr->length >= nic->config->pieces_max) {
        pieces = sim_between(&nic->world->prng, 1, nic->config->pieces_max);
    }
    entry->pieces_left = (uint32_t)pieces;
    piece = wr->length / pieces;
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t offset = i * piece;

        launch_piece(qp, seq, wr, NIC_WRITE, offset, i + 1 == pieces ? wr->length - offset : piece);
    }
}

/* The front of a packet has come. True: the port of its target is busy with it, or with others,
 * and it arrives later. */
static bool port_takes(struct sim_world *world, struct nic_packet *packet, sim_event_fn fire) {
    struct weir_device *nic = world->nodes[packet->to.node].nic;

    if (packet->in || nic == NULL || nic->config->bytes_per_us == 0) {
        return false;
    }
    packet->in = true;
    (void)port_begin(nic, packet, &nic->in_free_ns);
    packet_schedule(world, packet, nic->in_free_ns, fire);
    return true;
}

/* ---- keeping ----------------------------------------------------------- */

enum { GO_ON_NS_MAX = 2000000 };

static void kept_release(struct sim_world *world, const struct sim_event *event) {
    struct sim_node *node = &world->nodes[event->node];
    struct nic_packet *packet;

    if (node->nic == NULL || node->life != event->b) {
        return;
    }
    if (world->now_ns < node->stopped_until_ns) { /* again, before it took them */
        sim_nic_go_on(node->nic);
        return;
    }
    packet = node->nic->kept_first;
    node->nic->kept_first = node->nic->kept_last = NULL;
    while (packet != NULL) {
        struct nic_packet *next = packet->next;
        struct sim_event taken = {.object = packet, .a = packet->seq, .node = event->node};

        packet->fire(world, &taken);
        packet = next;
    }
}

/* Before the engine looks, or after its first looks. */
void sim_nic_go_on(struct weir_device *nic) {
    struct sim_world *world = nic->world;
    struct sim_event event = {.at_ns = nic->node->stopped_until_ns,
                              .fire = kept_release,
                              .node = nic->node->index,
                              .b = nic->node->life};

    if (nic->kept_first == NULL) {
        return;
    }
    event.at_ns = event.at_ns > world->now_ns ? event.at_ns : world->now_ns;
    event.at_ns += sim_below(&world->prng, 2) == 0 ? 0 : sim_below(&world->prng, GO_ON_NS_MAX);
    sim_schedule(world, &event);
}

/* True: the packet waits in the host of its target, and `fire` takes it later. */
static bool host_keeps(struct sim_world *world, struct nic_packet *packet, sim_event_fn fire) {
    struct sim_node *node = &world->nodes[packet->to.node];
    struct weir_device *nic = node->nic;
    bool stopped = world->now_ns < node->stopped_until_ns;

    if (packet->kept || nic == NULL || !nic->config->buffers ||
        (!stopped && nic->kept_first == NULL)) {
        return false;
    }
    packet->kept = true;
    packet->fire = fire;
    packet->next = NULL;
    if (nic->kept_first != NULL) {
        nic->kept_last->next = packet;
        nic->kept_last = packet;
        return true;
    }
    nic->kept_first = nic->kept_last = packet;
    sim_nic_go_on(nic);
    return true;
}

void nic_kept_free(struct weir_device *nic) {
    while (nic->kept_first != NULL) {
        struct nic_packet *packet = nic->kept_first;

        nic->kept_first = packet->next;
        free(packet);
    }
}

/* ---- answers ----------------------------------------------------------- */

/* The QP at the sending end of a packet, if it still is the one and hears of it. */
static struct weir_qp *end_ready(struct sim_world *world, const struct nic_end *end) {
    struct weir_qp *qp = nic_find(world, end->node, end->qpn, end->uid);
    bool hears = qp != NULL && (qp->state == SIM_QP_RTS || nic_sq_runs(qp));

    return hears ? qp : NULL;
}

/* The send of a packet that was given up: the oldest of the QP, as on hardware, unless each WR is
 * on its own. */
static uint64_t given_up(const struct weir_qp *qp, const struct nic_packet *packet) {
    return qp->nic->config->isolates ? packet->seq : qp->done;
}

static void answer_schedule(struct weir_qp *target, struct nic_packet *packet) {
    struct weir_device *nic = target->nic;
    uint64_t late = nic->config->late_ns_max;
    uint64_t at;

    packet->psn = target->ret_sent++;
    packet->attempts = 0;
    packet->in = packet->kept = false;
    at = wire_arrival(nic, packet, &target->ret_at_ns);
    if (late != 0 && sim_below(&nic->world->prng, 8) == 0) {
        at += sim_below(&nic->world->prng, late);
        if (nic->config->ordered) {
            target->ret_at_ns = at;
        }
    }
    packet_schedule(nic->world, packet, at, answer_arrive);
}

static void answer_status(struct weir_qp *target, const struct nic_packet *request,
                          uint32_t status) {
    struct nic_packet *answer = packet_make(0);

    *answer = *request;
    answer->kind = NIC_ACK;
    answer->from = request->to;
    answer->to = request->from;
    answer->status = status;
    answer->length = 0;
    answer_schedule(target, answer);
}

/* The answer was lost: sent again while its requester wants it. */
static void answer_lost(struct sim_world *world, struct nic_packet *packet) {
    struct weir_qp *qp = end_ready(world, &packet->to);
    const struct sim_nic_config *config = &world->config.nic[packet->to.node];

    if (qp == NULL) {
        free(packet);
        return;
    }
    if (++packet->attempts > config->retry_count) {
        sim_trace(world, "n%u qp %u: answers lost, retries exhausted", packet->to.node,
                  packet->to.qpn);
        nic_sq_fail(qp, given_up(qp, packet), WEIR_CQE_RETRY);
        free(packet);
        return;
    }
    packet->kept = false;
    packet_schedule(world, packet, world->now_ns + config->rto_ns, answer_arrive);
}

static void response_land(struct sim_world *world, struct weir_qp *qp,
                          const struct nic_packet *packet) {
    void *at = (void *)(uintptr_t)packet->laddr;

    if (packet->length == 0) {
        return;
    }
    if (world->watch.landing != NULL) {
        world->watch.landing(world->watch.self, qp->nic->node, at, packet->bytes, packet->length);
    }
    memcpy(at, packet->bytes, (size_t)packet->length);
}

static void answer_arrive(struct sim_world *world, const struct sim_event *event) {
    struct nic_packet *packet = event->object;
    struct weir_qp *qp = end_ready(world, &packet->to);

    if (port_takes(world, packet, answer_arrive)) {
        return;
    }
    if (qp == NULL) {
        free(packet);
        return;
    }
    if (!packet->kept && (world->data_cut[packet->from.node][packet->to.node] ||
                          sim_fault(world, qp->nic->config->packet_loss))) {
        answer_lost(world, packet);
        return;
    }
    if (host_keeps(world, packet, answer_arrive)) {
        return;
    }
    if (qp->nic->config->ordered && packet->psn != qp->ret_taken) {
        packet_schedule(world, packet, world->now_ns + qp->nic->config->rto_ns, answer_arrive);
        return;
    }
    qp->ret_taken++;
    if (packet->kind == NIC_RESPONSE) {
        if (!nic_mr_covers_local(qp->nic, packet->lkey, packet->laddr, packet->length) &&
            packet->length != 0) {
            nic_sq_fail(qp, packet->seq, WEIR_CQE_LOCAL_PROT);
            free(packet);
            return;
        }
        response_land(world, qp, packet);
        if (packet->last) {
            nic_sq_acknowledge(qp, packet->seq);
        }
    } else if (packet->status != WEIR_CQE_OK) {
        qp->nic->census.not_ready += packet->status == WEIR_CQE_RNR;
        nic_sq_fail(qp, packet->seq, packet->status);
    } else {
        nic_sq_acknowledge(qp, packet->seq);
    }
    free(packet);
}

/* ---- executing at the target ------------------------------------------- */

/* After a NAK a responder takes nothing more of the flow (IBA 9.9.3): what follows
 * a refused write must not overtake it. */
static void refuse(struct weir_qp *target, const struct nic_packet *packet, uint32_t status) {
    sim_trace(target->nic->world, "n%u qp %u refuses: status %u", target->nic->node->index,
              target->qpn, status);
    if (target->nic->config->no_blame) {
        nic_qp_fail(target);
        return;
    }
    answer_status(target, packet, status);
    if (target->nic->config->nak_kills_target) {
        nic_qp_fail(target);
    } else if (target->nic->config->ordered) {
        target->rx_psn = NIC_PSN_CLOSED;
    }
}

static bool land(struct weir_qp *target, const struct nic_packet *packet) {
    struct sim_world *world = target->nic->world;
    const void *bytes = packet->bytes;
    uint64_t length = packet->length;
    uint8_t *at;

    if (packet->message_length == 0) {
        return true;
    }
    at = nic_mr_target(target->nic, packet->rkey, packet->message_raddr, packet->message_length,
                       WEIR_ACCESS_REMOTE_WRITE);
    if (at == NULL) {
        return false;
    }
    at += packet->raddr - packet->message_raddr;
    if (world->watch.landing != NULL) {
        world->watch.landing(world->watch.self, target->nic->node, at, bytes, length);
    }
    memcpy(at, bytes, (size_t)length);
    return true;
}

/* True when the packet was taken. */
static bool execute_send(struct weir_qp *target, const struct nic_packet *packet) {
    struct nic_recv recv;

    if (!nic_recv_take(target, &recv)) {
        refuse(target, packet, WEIR_CQE_RNR);
        return false;
    }
    if (packet->kind == NIC_SEND) {
        if (packet->length > recv.length) {
            nic_cq_push_recv(target, &recv, WEIR_CQE_LENGTH, 0);
            refuse(target, packet, WEIR_CQE_LENGTH);
            return false;
        }
        memcpy(recv.buffer, packet->bytes, (size_t)packet->length);
    }
    nic_cq_push_recv(target, &recv, WEIR_CQE_OK,
                     packet->kind == NIC_SEND ? (uint32_t)packet->length : 0);
    return true;
}

static void respond(struct weir_qp *target, const struct nic_packet *request, const uint8_t *at,
                    uint64_t offset, uint64_t length) {
    struct nic_packet *answer = packet_make(length);

    *answer = *request;
    answer->kind = NIC_RESPONSE;
    answer->from = request->to;
    answer->to = request->from;
    answer->laddr = request->laddr + offset;
    answer->length = length;
    answer->last = offset + length == request->length;
    if (length != 0) {
        memcpy(answer->bytes, at + offset, (size_t)length);
    }
    answer_schedule(target, answer);
}

static bool execute_read(struct weir_qp *target, const struct nic_packet *packet) {
    struct weir_device *nic = target->nic;
    struct sim_world *world = nic->world;
    uint64_t length = packet->length;
    uint64_t half = nic->config->ordered && nic->config->pieces_max > 1 ? length / 2 : 0;
    const uint8_t *at = NULL;

    if (length != 0) {
        at = nic_mr_target(nic, packet->rkey, packet->raddr, length, WEIR_ACCESS_REMOTE_READ);
        if (at == NULL) {
            refuse(target, packet, WEIR_CQE_REMOTE_ACCESS);
            return false;
        }
        if (world->watch.fetch != NULL) {
            world->watch.fetch(world->watch.self, nic->node, at, length);
        }
    }
    if (half != 0) {
        respond(target, packet, at, 0, half);
    }
    respond(target, packet, at, half, length - half);
    return true;
}

static bool packet_execute(struct weir_qp *target, const struct nic_packet *packet) {
    switch (packet->kind) {
    case NIC_WRITE:
        if (!land(target, packet)) {
            refuse(target, packet, WEIR_CQE_REMOTE_ACCESS);
            return false;
        }
        break;
    case NIC_SEND:
        if (!execute_send(target, packet)) {
            return false;
        }
        break;
    case NIC_READ:
        return execute_read(target, packet);
    default: /* the sender's NIC stopped here: what it launched after it never left */
        if (target->nic->config->no_blame && packet->status == WEIR_CQE_REMOTE_ACCESS) {
            refuse(target, packet, packet->status); /* a key that the sender cannot know is none */
            return false;
        }
        answer_status(target, packet, packet->status);
        if (target->nic->config->ordered) {
            target->rx_psn = NIC_PSN_CLOSED;
        }
        return false;
    }
    if (packet->wants_ack) {
        answer_status(target, packet, WEIR_CQE_OK);
    }
    return true;
}

/* ---- arriving ---------------------------------------------------------- */

/* Nobody took the packet: again later, or the sender's QP fails. */
static void packet_lost(struct sim_world *world, struct nic_packet *packet) {
    struct weir_qp *qp = end_ready(world, &packet->from);
    const struct sim_nic_config *config = &world->config.nic[packet->from.node];

    if (qp == NULL) {
        free(packet);
        return;
    }
    if (++packet->attempts > config->retry_count) {
        sim_trace(world, "n%u qp %u: retries exhausted", packet->from.node, packet->from.qpn);
        nic_sq_fail(qp, given_up(qp, packet), WEIR_CQE_RETRY);
        free(packet);
        return;
    }
    qp->nic->census.repeats++;
    packet->kept = false;
    packet_schedule(world, packet, world->now_ns + config->rto_ns, packet_arrive);
}

/* The QP that answers a packet, or NULL. A packet that can be told apart from a stale one and must
 * never come is a violation. */
static struct weir_qp *packet_target(struct sim_world *world, const struct nic_packet *packet) {
    struct weir_qp *target = nic_find(world, packet->to.node, packet->to.qpn, packet->to.uid);

    if (target == NULL) {
        return NULL;
    }
    if (target->state == SIM_QP_INIT) {
        sim_violation(world, "H8 n%u qp %u sends before n%u qp %u can receive", packet->from.node,
                      packet->from.qpn, packet->to.node, packet->to.qpn);
        return NULL;
    }
    if (target->state != SIM_QP_RTS) {
        return NULL;
    }
    if (target->remote_uid >
        world->qp_uid) { /* a stranger's, of no QP that ever was: it drops this */
        return NULL;
    }
    if (target->remote_uid != packet->from.uid) {
        sim_violation(world, "H2 n%u qp %u sends to n%u qp %u, which belongs to another session",
                      packet->from.node, packet->from.qpn, packet->to.node, packet->to.qpn);
        return NULL;
    }
    if (target->psn_remote != packet->psn_first) {
        sim_violation(world, "H9 n%u qp %u and n%u qp %u disagree about the PSN", packet->from.node,
                      packet->from.qpn, packet->to.node, packet->to.qpn);
        return NULL;
    }
    return target;
}

static void packet_arrive(struct sim_world *world, const struct sim_event *event) {
    struct nic_packet *packet = event->object;
    const struct sim_nic_config *config = &world->config.nic[packet->from.node];
    const struct sim_node *sender = &world->nodes[packet->from.node];
    struct weir_qp *target;

    if (port_takes(world, packet, packet_arrive)) {
        return;
    }
    if (config->peer_dead_news && (!sender->alive || sender->life != packet->from_life)) {
        free(packet); /* such a device promises that the dead execute nothing */
        return;
    }
    if (!packet->kept && (world->data_cut[packet->from.node][packet->to.node] ||
                          sim_fault(world, config->packet_loss))) {
        packet_lost(world, packet);
        return;
    }
    if (host_keeps(world, packet, packet_arrive)) {
        return;
    }
    target = packet_target(world, packet);
    if (target == NULL || (target->nic->config->ordered && packet->psn != target->rx_psn)) {
        packet_lost(world, packet);
        return;
    }
    target->rx_psn++;
    (void)packet_execute(target, packet);
    free(packet);
}

/* ---- hanging up -------------------------------------------------------- */

static void end_arrive(struct sim_world *world, const struct sim_event *event) {
    struct nic_packet *packet = event->object;
    const struct sim_nic_config *config = &world->config.nic[packet->from.node];
    struct weir_qp *target = nic_find(world, packet->to.node, packet->to.qpn, packet->to.uid);
    bool is_lost = !packet->kept && (world->data_cut[packet->from.node][packet->to.node] ||
                                     sim_fault(world, config->packet_loss));

    if (target != NULL && (is_lost || target->state == SIM_QP_INIT) &&
        ++packet->attempts <= config->retry_count) {
        packet->kept = false;
        packet_schedule(world, packet, world->now_ns + config->rto_ns, end_arrive);
        return;
    }
    if (!is_lost && host_keeps(world, packet, end_arrive)) {
        return;
    }
    if (target != NULL && !is_lost && target->state == SIM_QP_RTS &&
        target->remote_uid == packet->from.uid) {
        sim_trace(world, "n%u qp %u: the other side is over", packet->to.node, packet->to.qpn);
        nic_qp_fail(target);
    }
    free(packet);
}

void nic_hang_up(const struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;
    struct nic_packet *packet;
    uint64_t at;

    if (!nic->config->no_blame || qp->state != SIM_QP_RTS) {
        return;
    }
    at = nic->world->now_ns + wire_latency(nic);
    if (sim_below(&nic->world->prng, 2) == 0) { /* in its order; else what is on the way is lost */
        at = at <= qp->tx_at_ns ? qp->tx_at_ns + 1 : at;
        at = at <= qp->ret_at_ns ? qp->ret_at_ns + 1 : at;
    }
    packet = packet_make(0);
    packet->kind = NIC_END;
    packet->from = (struct nic_end){nic->node->index, qp->qpn, qp->uid};
    packet->to = (struct nic_end){qp->remote_node, qp->remote_qpn, qp->remote_uid};
    packet_schedule(nic->world, packet, at, end_arrive);
}
