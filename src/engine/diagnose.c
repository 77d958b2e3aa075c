/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: what the outstanding work of a peer waits for, and the figures that prove it.
 *
 * Owns the order in which causes are looked for: from this engine outwards, and of what is posted
 * before what is not, because the one holds up the other. All is read from the tables as they are
 * now; only whether this engine was away is the watchdog's to know. Transfers of the engine's own
 * count for nothing: nobody waits for them. */
#include "diagnose.h"

#include "agenda.h"
#include "inflight.h"
#include "streams.h"
#include "tables.h"

/* ---- figures ----------------------------------------------------------- */

bool diagnose_works(const weir_engine *engine, const struct peer *peer) {
    if (peer->waits == 0 || peer_is_leaving(peer) || peer->alias != NONE)
        return false;
    if (peer->room_waits > 0)
        return true;
    for (uint8_t l = 0; l < LISTS; l++) {
        for (uint32_t i = peer->lists[l].head; i != NONE; i = engine->transfers[i].next) {
            if (engine->transfers[i].kind < TRANSFER_SKIP)
                return true;
        }
    }
    return false;
}

/* Of the list: transfers of the application's. */
static uint32_t count_of(const weir_engine *engine, const struct list *list) {
    uint32_t count = 0;
    for (uint32_t i = list->head; i != NONE; i = engine->transfers[i].next)
        count += engine->transfers[i].kind < TRANSFER_SKIP;
    return count;
}

static void count_work(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    out->pending = count_of(engine, &peer->lists[LIST_PENDING]);
    out->posted = count_of(engine, &peer->lists[LIST_POSTED]);
    out->parked = count_of(engine, &peer->lists[LIST_PARKED]);
    for (uint8_t l = LIST_CREDITS; l < LISTS; l++)
        out->credit_waits += count_of(engine, &peer->lists[l]);
    out->room_waits = peer->room_waits;
    out->waiting = out->pending + out->posted + out->parked + out->credit_waits + out->room_waits;
    const struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL; stream = stream_next(engine, stream))
        out->room_bytes += stream->waiting_bytes;
}

static void count_session(const weir_engine *engine, const struct peer *peer,
                          weir_stall_info *out) {
    const struct session *session = &peer->sessions[peer->live];
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        const struct credit *credit = &qp->credit;
        uint32_t sent = credit_between(credit->sent[CREDIT_NOTES], credit->acked[CREDIT_NOTES]);
        uint32_t window = credit->window_remote[CREDIT_NOTES];
        out->sq_used += qp->ledger.used;
        out->sq_depth += qp->ledger.depth;
        out->credits += window > sent ? window - sent : 0;
        out->credits_max += window;
        out->inflight_bytes += ledger_inflight(&qp->ledger);
    }
}

/* ---- the cause --------------------------------------------------------- */

/* Whether this side's device has something of a broken session still. */
static bool drains(const weir_engine *engine, const struct peer *peer) {
    uint32_t i = peer->lists[LIST_PARKED].head;
    while (i != NONE && engine->transfers[i].outstanding == 0)
        i = engine->transfers[i].next;
    return i != NONE;
}

static uint32_t broken(const weir_engine *engine, const struct peer *peer) {
    return drains(engine, peer) ? WEIR_STALL_DRAIN : WEIR_STALL_SETTLE;
}

static uint32_t unconnected(const weir_engine *engine, const struct peer *peer,
                            weir_stall_info *out) {
    int reason = peer_is_known(peer) ? endpoint_reason(&peer->endpoint) : 0;
    if (reason != 0) {
        out->error = reason;
        return WEIR_STALL_REFUSED;
    }
    if (out->parked == out->waiting)
        return broken(engine, peer);
    out->error = peer_is_known(peer) ? endpoint_lack(&peer->endpoint) : peer->dial_error;
    if (out->error == WEIR_ECONNECT)
        out->error = 0; /* that is what CONNECT says already */
    return WEIR_STALL_CONNECT;
}

/* A QP that the device refuses work for, though it has slots, or receives, so that nothing is sent
 * that the other side would answer. */
static bool device_refuses(const weir_engine *engine, const struct peer *peer,
                           const weir_stall_info *out) {
    const struct session *session = &peer->sessions[peer->live];
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        if ((qp->blocked && out->pending > 0) ||
            (lack_of(engine, qp)->window > 0 && out->credit_waits > 0))
            return true;
    }
    return engine->recv_short && out->credit_waits > 0;
}

/* Of the first stream whose messages wait for room. */
static uint32_t no_room(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    const struct stream *stream = stream_first(engine, peer);
    while (stream != NULL && stream->waiting.head == NONE)
        stream = stream_next(engine, stream);
    if (stream == NULL)
        return WEIR_STALL_TURN;
    out->inbox = stream->inbox;
    return stream->state == STREAM_ABSENT ? WEIR_STALL_INBOX_ABSENT : WEIR_STALL_INBOX_FULL;
}

static uint32_t connected(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    if (peer->proving)
        return WEIR_STALL_CONNECT;
    if (out->parked == out->waiting)
        return broken(engine, peer);
    if (out->sq_used > 0 && (out->posted > 0 || peer->waits_for == WEIR_WAITING_SLOTS))
        return WEIR_STALL_QP;
    if (device_refuses(engine, peer, out)) {
        out->error = WEIR_EAGAIN;
        return WEIR_STALL_DEVICE;
    }
    if (out->credit_waits > 0)
        return WEIR_STALL_CREDITS;
    if (out->room_waits > 0)
        return no_room(engine, peer, out);
    return peer->inflight_waits || peer->waits_for == WEIR_WAITING_INFLIGHT ? WEIR_STALL_INFLIGHT
                                                                            : WEIR_STALL_TURN;
}

static uint32_t cause_of(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    if (out->waiting == 0)
        return WEIR_STALL_NONE;
    if (engine->device_failed) {
        out->error = WEIR_EDEVICE;
        return WEIR_STALL_DEVICE;
    }
    if (peer->watch.absent_ns > 0) {
        out->absent_ns = peer->watch.absent_ns;
        return WEIR_STALL_HERE;
    }
    return peer->live != NONE ? connected(engine, peer, out) : unconnected(engine, peer, out);
}

void diagnose(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    const struct watch *watch = &peer->watch;
    *out = (weir_stall_info){
        .size = out->size,
        .peer = {peer->handle},
        .stalled = watch->told,
        .still_ns = watch->works ? engine_clock(engine) - watch->moved_ns : 0,
        .inflight_bytes_engine = inflight_bytes(engine),
        .inflight_bytes_max = engine->options.inflight_bytes_max,
        .completed = peer->completed,
        .stalls = watch->stalls,
        .last_cause = watch->last.cause,
        .last_error = watch->last.error,
        .last_ns = watch->last.lasted_ns,
    };
    count_work(engine, peer, out);
    if (peer->live != NONE)
        count_session(engine, peer, out);
    out->cause = cause_of(engine, peer, out);
}

/* ---- the handshake ----------------------------------------------------- */

static const char *attempt(enum ep_state state) {
    switch (state) {
    case EP_OFFERED:
        return "HELLO was said, and is not answered";
    case EP_CONFIRM:
        return "its HELLO was answered, and it does not confirm the session";
    case EP_JOINING:
    case EP_ACCEPTING:
        return "this device is connecting to its device";
    default:
        return "the next attempt is due";
    }
}

const char *diagnose_handshake(const struct peer *peer) {
    if (peer->proving)
        return "it is asked who answers at the address that it calls its own";
    if (peer_is_known(peer))
        return attempt(endpoint_waits_in(&peer->endpoint));
    switch (peer->dial) {
    case DIAL_CALLING:
        return "the address takes no connection and refuses none";
    case DIAL_ASKING:
        return "the address takes the connection, and nobody says who is there";
    case DIAL_PAUSE:
        return "nobody takes connections at the address, which is dialled again after pauses";
    case DIAL_AWAITING:
        return "no address leads to it, so it has to call";
    default:
        return "it is about to be dialled";
    }
}
