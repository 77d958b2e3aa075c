/* SPDX-License-Identifier: Apache-2.0 */
/* inflight.c: bytes in flight, the peers that wait to post, and for how long.
 *
 * Owns the account of bytes in flight and, where all QPs share a send queue, of its slots; the line
 * of peers that wait for either; the account of what a peer's pending transfers wait for, and the
 * pause of a QP whose device refused WRs that had slots.
 * Invariant: while a peer is in line, inflight_room is LINE_BIAS less, so that the one comparison
 * that every post makes anyway keeps all other peers behind. Joining the line, and the turn of
 * the first in it, are turns.c's.
 */
#include "inflight.h"

#include "agenda.h"
#include "trace.h"

#include <assert.h>

#define SHUT_NS UINT64_C(10000000)

void inflight_push(weir_engine *engine, struct peer *peer) {
    uint32_t index = peer_index(engine, peer);
    peer->inflight_waits = true;
    peer->inflight_next = NONE;
    if (engine->inflight_head == NONE) {
        engine->inflight_head = index;
        engine->inflight_room -= LINE_BIAS;
    } else {
        peer_at(engine, engine->inflight_tail)->inflight_next = index;
    }
    engine->inflight_tail = index;
}

void inflight_push_front(weir_engine *engine, struct peer *peer) {
    peer->inflight_waits = true;
    peer->inflight_next = engine->inflight_head;
    if (engine->inflight_head == NONE) {
        engine->inflight_tail = peer_index(engine, peer);
        engine->inflight_room -= LINE_BIAS;
    }
    engine->inflight_head = peer_index(engine, peer);
}

/* The device refused WRs for now that had slots. True: its queue is shared and holds others, so
 * there is room when one of them is over; or, should none ever be, after a while. */
bool inflight_shuts(weir_engine *engine) {
    if (engine->inflight_slots >= engine->caps.sq_shared)
        return false;
    engine->inflight_shut = true;
    timer_line(engine, engine_now(engine) + SHUT_NS);
    return true;
}

void inflight_timer(weir_engine *engine) {
    engine->inflight_shut = false;
    inflight_returned(engine);
}

struct peer *inflight_pop(weir_engine *engine) {
    struct peer *peer = peer_at(engine, engine->inflight_head);
    engine->inflight_head = peer->inflight_next;
    peer->inflight_waits = false;
    if (engine->inflight_head == NONE) {
        engine->inflight_tail = NONE;
        engine->inflight_room += LINE_BIAS;
    }
    return peer;
}

/* The peer's next transfer has what it waited for, or does not want it any more. */
void peer_wait_over(weir_engine *engine, struct peer *peer) {
    if (peer->waits_for == WEIR_WAITING_NOTHING)
        return;
    uint64_t waited_ns = engine_now(engine) - peer->waits_since_ns;
    if (peer->waits_for == WEIR_WAITING_SLOTS)
        peer->slot_wait_ns += waited_ns;
    else
        peer->inflight_wait_ns += waited_ns;
    peer->waits_for = WEIR_WAITING_NOTHING;
}

/* The peer's next transfer waits for slots, for bytes in flight, or for its next turn. */
void peer_waits(weir_engine *engine, struct peer *peer, weir_waiting_for what) {
    assert(peer->lists[LIST_PENDING].count > 0);
    if (what == WEIR_WAITING_SLOTS) {
        engine->stats.admission_waits++;
        peer->slot_waits++;
    }
    if (peer->waits_for == what)
        return;
    peer_wait_over(engine, peer);
    if (what == WEIR_WAITING_ENGINE)
        return; /* this wait is not timed: its length is only how often progress is made */
    peer->waits_for = what;
    peer->waits_since_ns = engine_now(engine);
    if (what == WEIR_WAITING_INFLIGHT) {
        engine->stats.inflight_waits++;
        peer->inflight_waits_begun++;
        TRACE_OFTEN(engine, no_inflight, peer, 0, inflight_bytes(engine), 0);
    }
}

/* The thing that all transfers on the peer's list of pending ones wait for. */
weir_waiting_for peer_waiting_for(const struct peer *peer) {
    if (peer->live == NONE || peer->proving)
        return WEIR_WAITING_CONNECTION;
    if (peer->inflight_waits && peer->waits_for != WEIR_WAITING_SLOTS)
        return WEIR_WAITING_INFLIGHT;
    if (peer->waits_for != WEIR_WAITING_NOTHING)
        return peer->waits_for;
    return peer->runnable ? WEIR_WAITING_ENGINE : WEIR_WAITING_SLOTS;
}

/* The device refused WRs that had slots: nothing more is posted on the QP until a completion, or
 * until a pause is over. The pause doubles with each refusal in a row, RETRY_DOUBLINGS times. */
void qp_block(weir_engine *engine, struct qp *qp) {
    qp->blocked = true;
    TRACE_OFTEN(engine, qp_refuses, peer_at(engine, qp->peer), 0, qp_index(engine, qp), 0);
    timer_qp(engine, qp, engine_now(engine) + ((uint64_t)RETRY_NS << qp->refusals));
    if (qp->refusals < RETRY_DOUBLINGS)
        qp->refusals++;
}
