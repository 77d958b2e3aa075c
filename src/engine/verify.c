/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c: every invariant that an engine knows of itself, compared with its tables.
 *
 * Owns nothing, and reads only. Simulations call it after each step, tests at some places, and the
 * shipped library never.
 */
#include "engine.h"
#include "found.h"
#include "inflight.h"
#include "lendings.h"
#include "names.h"
#include "records.h"
#include "streams.h"

/* Whether this is a handle of the peer: its own, or that of another name of it. */
static bool has_handle(const weir_engine *engine, const struct peer *peer, uint64_t id) {
    const struct groups *aliases = &engine->found.aliases;
    if (id == peer->id)
        return true;
    for (uint32_t i = groups_first(aliases, peer_index(engine, peer)); i != NONE;
         i = groups_next(aliases, i)) {
        if (engine->peers[i].id == id)
            return true;
    }
    return false;
}

/* A handle names one peer, the application knows those that it has open, and nothing is done for a
 * name that nobody has. */
static const char *verify_handle(const weir_engine *engine, const struct peer *peer) {
    bool is_known = peer_is_known(peer);
    if (peer_is_there(peer) && !has_handle(engine, peer, peer->handle))
        return "peer: its events carry a handle that is not its own";
    if (peer->refs > 0 && peer->alias == NONE && is_known && !peer_is_leaving(peer) &&
        peer->told != TOLD)
        return "peer: it is open, and the application has not heard of it";
    if (!is_known && peer->refs == 0 && (peer->alias != NONE || peer->dial != DIAL_NONE))
        return "peer: an address that is not open is dialled, or names a peer";
    if (!peer_is_there(peer) || !peer->proving)
        return NULL;
    if (peer->reached)
        return "peer: its address is proven, and it is waited for that";
    if (peer->dial == DIAL_NONE || peer->dial == DIAL_AWAITING)
        return "peer: nothing is posted before its address is proven, and nobody proves it";
    return NULL;
}

/* Nearly all lists are empty, and this is called behind each step of a simulated engine. */
static const char *verify_lists(const weir_engine *engine, const struct peer *peer) {
    uint32_t total = 0, suspects = 0, credit_waits = 0;
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t count = 0;
        if (peer->lists[l].head == NONE && peer->lists[l].count == 0)
            continue;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = engine->transfers[i].next) {
            if (engine->transfers[i].list != l || ++count > engine->record_count)
                return "peer: a list is not what its members say";
            suspects += transfer_is_suspect(&engine->transfers[i]);
        }
        if (count != peer->lists[l].count)
            return "peer: a list's count is wrong";
        total += l == LIST_SHELF ? 0 : count;
        credit_waits += l < LIST_CREDITS ? 0 : count;
    }
    const char *wrong = streams_verify(engine, peer);
    if (wrong != NULL)
        return wrong;
    total += peer->room_waits;
    for (uint32_t s = peer->streams; s != STREAM_NONE; s = engine->streams[s - 1].next) {
        for (uint32_t i = engine->streams[s - 1].waiting.head; i != NONE;
             i = engine->transfers[i].next)
            suspects += transfer_is_suspect(&engine->transfers[i]);
    }
    if (credit_waits != peer->credit_waits)
        return "peer: credit_waits differs from its lists";
    if (suspects != peer->suspects)
        return "peer: suspects differ from its lists";
    return total == peer->waits ? NULL : "peer: waits differs from its lists";
}

/* Bytes in flight, and the line of peers that wait for them. */
static const char *verify_inflight(const weir_engine *engine) {
    uint64_t bytes = 0;
    uint32_t waiting = 0, in_line = 0, runs = 0, slots = 0;
    for (uint32_t i = 0; i < engine->qps_used; i++) {
        const struct ledger *ledger = &engine->qps[i].ledger;
        bytes += ledger_inflight(ledger);
        slots += ledger->used;
        for (uint64_t s = ledger->head; s < ledger->tail; s++)
            runs += ledger->runs[s & ledger->mask].bytes > 0;
    }
    if (engine->caps.sq_shared != 0 && slots != engine->caps.sq_shared - engine->inflight_slots)
        return "engine: slots of the shared queue differ from what the ledgers say";
    if (bytes != inflight_bytes(engine))
        return "engine: bytes in flight differ from what the ledgers say";
    if (bytes > engine->options.inflight_bytes_max && runs > 1)
        return "engine: more bytes in flight than there may be";
    for (uint32_t i = 0; i < engine->peers_used; i++)
        waiting += engine->peers[i].inflight_waits;
    for (uint32_t i = engine->inflight_head; i != NONE; i = engine->peers[i].inflight_next) {
        if (!engine->peers[i].inflight_waits || ++in_line > engine->peers_used)
            return "engine: who waits in line is not what peers say";
    }
    if (waiting != in_line)
        return "engine: the line is miscounted";
    if (in_line > 0 && bytes == 0 && !engine->inflight_due &&
        (engine->caps.sq_shared == 0 || slots == 0))
        return "engine: peers wait in line, and nothing is in flight";
    return NULL;
}

/* With a shared queue, every notification that peers have credits for has a receive posted. */
static const char *verify_receives(const weir_engine *engine) {
    const char *wrong = receives_verify(&engine->receives, engine->polled);
    if (wrong != NULL || !engine->caps.srq)
        return wrong;
    uint32_t credits = 0;
    for (uint32_t i = 0; i < engine->qps_used; i++) {
        const struct qp *qp = &engine->qps[i];
        if (!qp_lives(qp))
            continue;
        const struct lack *lack = lack_of(engine, qp);
        if (lack->credits[CREDIT_NOTES] + lack->credits[CREDIT_WORDS] > lack->recvs ||
            (lack->recvs > 0 && !engine->recv_short))
            return "qp: receives are missing of a queue that has what it needs";
        for (uint32_t c = 0; qp->connected && c < CREDIT_CLASSES; c++)
            credits += (uint32_t)qp->credit.window_local[c] -
                       credit_between(qp->credit.arrived[c], qp->credit.taken[c]);
    }
    if (credits > engine->receives.lists[RECEIVE_POSTED].count)
        return "engine: peers have credits that no receive is there for";
    return NULL;
}

const char *engine_verify_work(const weir_engine *engine) {
    const char *inflight = verify_inflight(engine);
    if (inflight != NULL)
        return inflight;
    for (uint32_t i = 0; i < engine->qps_used; i++) {
        const struct qp *qp = &engine->qps[i];
        const char *wrong = qp->qp != NULL ? ledger_verify(&qp->ledger) : NULL;
        bool waits = qp->qp != NULL && qp->drain.state == DRAIN_BEACON;
        if (bits_has(&engine->qps_made, i) != (qp->qp != NULL) ||
            (groups_of(&engine->beacons, i) == 0) != waits)
            return "qp: it is not among those that there are, or that wait for a beacon";
        if (wrong != NULL)
            return wrong;
        if (qp->qp != NULL && qp->ledger.depth >= qp->granted)
            return "qp: the beacon has no slot of its own";
        uint32_t missing = lack_of(engine, qp)->recvs;
        if (qp_lives(qp) && missing > 0 &&
            (engine->recv_pause_ns == 0 || qp->recvs + missing > engine->recvs_per_qp))
            return "qp: receives are missing, and nobody posts them";
    }
    const char *receives = verify_receives(engine);
    if (receives != NULL)
        return receives;
    uint32_t waits = 0;
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        const struct peer *peer = &engine->peers[i];
        waits += peer->waits;
        if (peer->id == 0)
            continue;
        const char *wrong = verify_lists(engine, peer);
        if (wrong == NULL)
            wrong = verify_handle(engine, peer);
        if (wrong == NULL && peer_is_known(peer))
            wrong = endpoint_verify(&peer->endpoint);
        if (wrong != NULL)
            return wrong;
    }
    if (waits != engine->waits)
        return "engine: waits differ from those of its peers";
    return lendings_verify(engine);
}

bool engine_is_full(const weir_engine *engine) {
    return engine->peer_free == NONE;
}

const char *engine_verify(const weir_engine *engine) {
    const char *wrong = engine_verify_work(engine);
    if (wrong == NULL)
        wrong = names_verify(engine);
    return wrong != NULL ? wrong : found_verify(engine);
}
