/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c: news from the device: completions of runs, and messages.
 *
 * Owns the routing of completions by wr_id, and the acceptance of notifications; the receives are
 * recv.c's, and the queue of held notifications deliver.c's. A received notification is *accepted*
 * when it is marked in the window of its sender: from then on it will be delivered, even if its
 * session ends. If the application's queue is full, the notification is held in its receive buffer,
 * and its credit with it: a slow application pushes back on its peers.
 */
#include "complete.h"

#include "agenda.h"
#include "cause.h"
#include "deliver.h"
#include "inboxes.h"
#include "inflight.h"
#include "notes.h"
#include "peer.h"
#include "recv.h"
#include "runs.h"
#include "session.h"
#include "tables.h"
#include "talk.h"
#include "transfer.h"

#include <assert.h>

/* Notes that this part of a notification has come. True: all its parts have. */
static bool parts_complete(struct peer *peer, const struct qp *qp, const struct wire_data *data) {
    if (data->parts == 1)
        return true;
    struct parts *parts = &peer->parts[data->number % WINDOW_SIZE];
    peer->parts_used = true;
    uint64_t epoch = peer->sessions[qp->session].epoch;
    if (parts->number != data->number || parts->epoch != epoch)
        *parts = (struct parts){.number = data->number, .epoch = epoch};
    parts->mask |= (uint16_t)(1u << qp->index);
    return __builtin_popcount(parts->mask) >= data->parts;
}

/* Moves the window on if it does not reach this number. It would stop one day at the holes that
 * numbers leave which will never come, so it follows the sender's base, as far as this number
 * needs. A message below that base may still be unpolled, on another QP, or on one without order.
 * Unpolled are at most RECEIVES_MAX notifications, and CREDIT_WORDS_WINDOW others a QP, and devices
 * poll QPs in turn. But before it was posted at last, its sender may have used all numbers that it
 * may above it. So that no message is a whole window behind, it may use fewer. */
static void make_room(struct window *window, const struct wire_data *data) {
    if (data->number - window->base <= WINDOW_SIZE || data->number <= window->base)
        return;
    uint64_t needed = (data->number - WINDOW_SIZE + 63) & ~(uint64_t)63;
    if (needed <= data->base)
        window_advance(window, needed);
}

uint32_t complete_numbers(const weir_engine *engine) {
    enum { WORD = 64, /* in which windows go on */ LEAST = 64 };
    uint32_t unpolled = RECEIVES_MAX + engine->options.qp_count * CREDIT_WORDS_WINDOW;
    _Static_assert(WINDOW_SIZE >= WORD + RECEIVES_MAX + WEIR_QPS_MAX * CREDIT_WORDS_WINDOW + LEAST,
                   "some numbers are left");
    return engine->options.qp_count == 1 && engine->caps.ordered ? WINDOW_SIZE
                                                                 : WINDOW_SIZE - WORD - unpolled;
}

/* Words, or the note of a message, that are whole and new. False: no engine says so. */
static bool take_up(weir_engine *engine, struct peer *peer, const struct qp *qp,
                    const uint8_t *bytes, const struct wire_data *data) {
    const uint8_t *payload = bytes + WIRE_DATA_SIZE;
    if (data->kind == WIRE_MESSAGE)
        return inboxes_arrived(engine, peer, payload, data->payload_length, data->tag);
    /* Words that were said before one side forgot the other are about what it forgot. */
    const struct session *session = &peer->sessions[qp->session];
    return session->life != peer->life_theirs || session->life_ours != peer->life ||
           talk_heard(engine, peer, payload, data->payload_length);
}

/* Accepts the notes of several messages, each like one that comes alone. */
static void accept_notes(weir_engine *engine, struct peer *peer, const struct qp *qp,
                         const uint8_t *bytes, const struct wire_data *data) {
    const uint8_t *in = bytes + WIRE_DATA_SIZE;
    uint32_t left = data->payload_length;
    struct wire_data one = *data;
    struct word_shared shared = {0};
    bool good = left > 0;
    for (; good && left > 0; one.number++) {
        good = word_shared_take(&in, &left, &shared);
        make_room(&peer->received, &one);
        enum window_verdict seen = good ? window_check(&peer->received, one.number) : WINDOW_SEEN;
        engine->stats.notifications_duplicate += good && seen == WINDOW_SEEN;
        engine->stats.data_malformed += seen == WINDOW_BEYOND; /* as one that comes alone */
        if (!good || seen != WINDOW_NEW)
            continue;
        window_mark(&peer->received, one.number);
        if (!standing_is_up(&peer->standing))
            deliver_tell(engine, peer, peer->sessions[qp->session].retired);
        good = inboxes_arrived(engine, peer, shared.note, shared.length, shared.tag);
    }
    if (!good) {
        engine->stats.data_malformed++;
        note_broken(engine, peer, qp->session);
    }
}

/* Accepts a notification, or another of its kind, that is whole and new. True: the buffer is held.
 */
static bool accept_notify(weir_engine *engine, struct peer *peer, struct qp *qp, uint32_t buffer,
                          const struct wire_data *data) {
    if (data->kind == WIRE_NOTES) {
        accept_notes(engine, peer, qp, recv_buffer(engine, qp, buffer), data);
        return false;
    }
    make_room(&peer->received, data);
    switch (window_check(&peer->received, data->number)) {
    case WINDOW_SEEN:
        engine->stats.notifications_duplicate++;
        return false;
    case WINDOW_BEYOND:
        engine->stats.data_malformed++;
        return false;
    case WINDOW_NEW:
        break;
    }
    if (!parts_complete(peer, qp, data))
        return false;
    window_mark(&peer->received, data->number);
    if (data->kind != WIRE_NOTIFY) {
        if (data->kind == WIRE_MESSAGE && !standing_is_up(&peer->standing))
            deliver_tell(engine, peer, peer->sessions[qp->session].retired);
        if (!take_up(engine, peer, qp, recv_buffer(engine, qp, buffer), data)) {
            engine->stats.data_malformed++;
            note_broken(engine, peer, qp->session);
        }
        return false;
    }
    if (!standing_is_up(&peer->standing))
        deliver_tell(engine, peer, peer->sessions[qp->session].retired);
    if (engine->held_count == 0 && deliver(engine, peer, 0, recv_buffer(engine, qp, buffer)))
        return false;
    deliver_later(engine, peer, qp, buffer);
    return true;
}

/* Delivers held notifications, the oldest first, as far as the application's queue has room. */
void complete_held(weir_engine *engine) {
    while (engine->held_count > 0) {
        struct held held = engine->held[engine->held_head];
        struct qp *qp = &engine->qps[held.qp];
        struct peer *peer = peer_at(engine, held.peer);
        if (held.from == 0)
            deliver_tell(engine, peer, true); /* its handle may be another than when it came */
        if (!deliver(engine, peer, held.from, recv_buffer(engine, qp, held.buffer)))
            return;
        engine->held_head = (engine->held_head + 1) % engine->held_max;
        engine->held_count--;
        qp->held--;
        peer->held--;
        peer_forget(engine, peer);
        recv_taken(engine, qp, held.life, held.buffer, CREDIT_NOTES);
        session_qp_free(engine, qp);
    }
    /* The engine's own notifications to itself wait behind these. */
    struct peer *self = engine->self != NONE ? peer_at(engine, engine->self) : NULL;
    if (self != NULL && self->lists[LIST_CREDITS].count > 0)
        run_later(engine, self);
    else
        atomic_store(&engine->held_some, false);
}

/* Decodes a message and takes account of its credits. False: no engine sends such a message, or
 * its sender had no credit for it. Each message takes a receive that other peers may need. */
static bool message_is_good(weir_engine *engine, struct qp *qp, uint32_t buffer,
                            const struct weir_cqe *cqe, struct wire_data *data) {
    return !cqe->has_imm && cqe->byte_length <= MESSAGE_BYTES &&
           wire_data_decode(recv_buffer(engine, qp, buffer), cqe->byte_length, data) == WEIR_OK &&
           data->parts <= peer_at(engine, qp->peer)->sessions[qp->session].qp_used &&
           credit_hear(&qp->credit, data->credit) &&
           (data->kind == WIRE_CREDIT || credit_arrived(&qp->credit, wire_data_class(data->kind)));
}

static void message(weir_engine *engine, struct qp *qp, uint32_t buffer,
                    const struct weir_cqe *cqe) {
    struct peer *peer = peer_at(engine, qp->peer);
    struct wire_data data;
    uint32_t life = qp->life;
    if (!message_is_good(engine, qp, buffer, cqe, &data)) {
        engine->stats.data_malformed++;
        recv_return(engine, qp, life, buffer);
        if (qp_lives_still(qp, life))
            note_broken(engine, peer, qp->session);
        return;
    }
    const struct session *session = &peer->sessions[qp->session];
    if (!session->up && !session->retired && qp->connected)
        note_heard(engine, peer, qp->session);
    if (peer_pending(peer) > 0)
        run_later(engine, peer);
    if (data.kind == WIRE_CREDIT) {
        recv_return(engine, qp, life, buffer);
    } else if (!accept_notify(engine, peer, qp, buffer, &data)) {
        recv_taken(engine, qp, life, buffer, wire_data_class(data.kind));
    }
}

/* The beacon's flush ends the send queue only. Receives flush in their own time, and among their
 * completions may be messages that the sender counts as delivered. So the drain goes on when the
 * beacon and every receive of the QP's own queue are back. */
static void drain_beacon(weir_engine *engine, struct qp *qp) {
    if (qp->beacon_back && qp->recvs == 0 && qp->drain.state == DRAIN_BEACON)
        drain_feed(engine, qp, DRAIN_EV_BEACON_FLUSHED);
}

static void recv_complete(weir_engine *engine, const struct weir_cqe *cqe) {
    uint32_t index = route_qp(cqe->wr_id);
    uint32_t buffer = (uint32_t)route_seq(cqe->wr_id) & ((1u << RECV_BUFFER_BITS) - 1);
    uint32_t life = (uint32_t)(route_seq(cqe->wr_id) >> RECV_BUFFER_BITS);
    if (engine->caps.srq) {
        buffer = (uint32_t)route_seq(cqe->wr_id);
        if (index != ROUTE_QP_SRQ || !receives_back(&engine->receives, buffer)) {
            engine->stats.completions_stale++;
            return;
        }
        engine->stats.receives_lost = engine->receives.lost;
        index = cqe->status == WEIR_CQE_OK ? qp_tag_index(cqe->qp_tag) : NONE;
    }
    struct qp *qp = index < engine->qps_max ? &engine->qps[index] : NULL;
    bool current =
        qp != NULL && qp->qp != NULL &&
        (engine->caps.srq ? qp_has_tag(qp, cqe->qp_tag) : (qp->life & RECV_LIFE_MASK) == life);
    if (current && !engine->caps.srq && qp->recvs > 0)
        qp->recvs--;
    if (current)
        qp->gave = true;
    if (cqe->status != WEIR_CQE_OK || !current) {
        if (cqe->status == WEIR_CQE_OK)
            engine->stats.completions_stale++;
        if (engine->caps.srq)
            recv_return(engine, NULL, 0, buffer);
        else if (current && qp_lives(qp)) /* the QP failed by itself */
            note_broken(engine, peer_at(engine, qp->peer), qp->session);
        if (current)
            drain_beacon(engine, qp);
        return;
    }
    if (qp->session != NONE) {
        message(engine, qp, buffer, cqe);
    } else { /* it has no peer that could have sent one */
        engine->stats.completions_stale++;
        recv_return(engine, qp, qp->life, buffer);
    }
    drain_beacon(engine, qp);
}

/* The error of the transfer whose run an error completion names; 0: the session broke, and the
 * transfer is as innocent as the others. */
static int culprit_error(uint32_t status) {
    switch (status) {
    case WEIR_CQE_LOCAL_PROT:
        return WEIR_EINVAL;
    case WEIR_CQE_REMOTE_ACCESS:
        return WEIR_EREMOTE;
    case WEIR_CQE_LENGTH:
        return WEIR_ETOOBIG;
    default:
        return 0;
    }
}

/* A read or write failed alone, on a device that isolates: its transfer ends with the error, when
 * the rest of it is over, and nobody else notices. */
static void run_fails(weir_engine *engine, struct qp *qp, uint64_t seq, uint32_t index, int error) {
    struct transfer *transfer = &engine->transfers[index];
    if (!ledger_fail(&qp->ledger, seq)) {
        engine->stats.completions_stale++;
        return;
    }
    if (transfer->state == TR_PARKED)
        transfer->result = transfer->result != 0 ? transfer->result : error;
    else
        transfer_stop(engine, transfer, error);
    qp->blocked = false;
    qp->refusals = 0;
    runs_retire(engine, qp);
}

static void run_complete(weir_engine *engine, const struct weir_cqe *cqe) {
    uint32_t index = route_qp(cqe->wr_id);
    uint64_t seq = route_seq(cqe->wr_id);
    struct qp *qp = index < engine->qps_max ? &engine->qps[index] : NULL;
    const struct ledger_run *run =
        qp != NULL && qp->qp != NULL ? ledger_peek(&qp->ledger, seq) : NULL;
    if (run == NULL) {
        engine->stats.completions_stale++;
        return;
    }
    qp->gave = true;
    if (cqe->status == WEIR_CQE_OK) {
        if (!ledger_complete(&qp->ledger, seq, engine->caps.ordered)) {
            engine->stats.completions_stale++;
            return;
        }
        qp->blocked = false;
        qp->refusals = 0;
        runs_retire(engine, qp);
        return;
    }
    /* The run is accounted for when the QP is gone: until then only its culprit is kept. */
    int error = culprit_error(cqe->status);
    if (engine->caps.isolates && error != 0 && run->transfer != LEDGER_NO_TRANSFER &&
        run->bytes > 0) {
        run_fails(engine, qp, seq, run->transfer, error);
        return;
    }
    if (error != 0 && run->transfer != LEDGER_NO_TRANSFER &&
        engine->transfers[run->transfer].result == 0)
        engine->transfers[run->transfer].result = error;
    if (error != 0 && run->transfer != LEDGER_NO_TRANSFER && qp->session != NONE)
        cause_own(engine, peer_at(engine, qp->peer), qp->session, error,
                  &engine->transfers[run->transfer]);
    if (cqe->status == WEIR_CQE_RETRY && qp->session != NONE)
        cause_unanswered(engine, peer_at(engine, qp->peer), qp->session);
    note_broken(engine, peer_at(engine, qp->peer), qp->session);
}

static void beacon_complete(weir_engine *engine, const struct weir_cqe *cqe) {
    uint32_t index = route_qp(cqe->wr_id);
    struct qp *qp = index < engine->qps_max ? &engine->qps[index] : NULL;
    if (qp == NULL || qp->qp == NULL || qp->life != (uint32_t)route_seq(cqe->wr_id)) {
        engine->stats.completions_stale++;
        return;
    }
    if (!qp->beacon_back)
        engine->stats.beacons_flushed++;
    qp->beacon_back = true;
    drain_beacon(engine, qp);
}

static void take(weir_engine *engine, const struct weir_cqe *cqe) {
    switch (route_kind(cqe->wr_id)) {
    case ROUTE_RUN:
        run_complete(engine, cqe);
        break;
    case ROUTE_BEACON:
        beacon_complete(engine, cqe);
        break;
    case ROUTE_RECV:
        recv_complete(engine, cqe);
        break;
    default:
        engine->stats.completions_stale++;
    }
}

/* Takes up to `most` completions from the device, in one call of it. Returns how many there were;
 * negative: the device failed. */
static int poll_batch(weir_engine *engine, int most) {
    int count = engine->device_ops->poll(engine->device, engine->cqes, most);
    if (count <= 0) {
        if (count < 0)
            session_device_failed(engine);
        return count;
    }
    inflight_peak(engine);
    engine->polled += (uint64_t)count;
    for (int i = 0; i < count; i++)
        take(engine, &engine->cqes[i]);
    inflight_returned(engine);
    return count;
}

static int batch_size(int left) {
    return left < POLL_BATCH ? left : POLL_BATCH;
}

int complete_poll(weir_engine *engine, int budget) {
    int total = 0, most, count;
    do {
        most = batch_size(budget - total);
        count = poll_batch(engine, most);
        total += count > 0 ? count : 0;
    } while (__builtin_expect(count == most && total < budget, 0));
    return total;
}

int complete_rest(weir_engine *engine, int budget, bool *emptied_out) {
    int total = 0, count = 1;
    while (total < budget && count > 0) {
        count = poll_batch(engine, batch_size(budget - total));
        total += count > 0 ? count : 0;
    }
    *emptied_out = count <= 0;
    return total;
}
