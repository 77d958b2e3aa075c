/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c: see notes.h. Owns the list of peers of which something is noted, and that of peers whose
 * breaks stay. */
#include "notes.h"

#include "found.h"
#include "tables.h"
#include "trace.h"

static void enlist(weir_engine *engine, struct peer *peer) {
    uint32_t index = peer_index(engine, peer);
    engine->worked = true; /* sleeping threads are told */
    if (peer->noted)
        return;
    peer->noted = true;
    peer->noted_next = NONE;
    if (engine->noted_tail == NONE)
        engine->noted_head = index;
    else
        peer_at(engine, engine->noted_tail)->noted_next = index;
    engine->noted_tail = index;
}

struct peer *notes_next(weir_engine *engine) {
    struct peer *peer = peer_at(engine, engine->noted_head);
    engine->noted_head = peer->noted_next;
    if (engine->noted_head == NONE)
        engine->noted_tail = NONE;
    peer->noted = false;
    return peer;
}

void notes_stay(weir_engine *engine, struct peer *peer) {
    if (peer->stays)
        return;
    peer->stays = true;
    peer->stays_next = engine->stays_head;
    engine->stays_head = peer_index(engine, peer);
}

void notes_asked(weir_engine *engine) {
    engine->noted_break = false;
    while (engine->stays_head != NONE) {
        struct peer *peer = peer_at(engine, engine->stays_head);
        engine->stays_head = peer->stays_next;
        peer->stays = false;
        enlist(engine, peer);
    }
}

void note_broken(weir_engine *engine, struct peer *peer, uint32_t number) {
    if (number == NONE || !peer->sessions[number].used || peer->sessions[number].retired)
        return;
    if (!peer->sessions[number].broke_here) /* each run and receive of it that fails says so */
        TRACE_PEER(engine, session_broken, peer, peer->sessions[number].cause,
                   peer->sessions[number].epoch, 0);
    peer->sessions[number].broke_here = true;
    if (peer->live == number) {
        peer->sessions[number].lost = true;
        peer->live = NONE;
        peer_not_fast(peer);
    }
    peer->notes.broken |= (uint8_t)(1u << number);
    engine->noted_break = true;
    enlist(engine, peer);
}

void note_unanswered(weir_engine *engine, struct peer *peer, uint32_t number) {
    peer->notes.unanswered |= (uint8_t)(1u << number);
    enlist(engine, peer);
}

void note_drained(weir_engine *engine, struct peer *peer, uint32_t number) {
    peer->notes.broken &= (uint8_t) ~(1u << number);
    peer->notes.heard &= (uint8_t) ~(1u << number);
    peer->notes.drained |= (uint8_t)(1u << number);
    TRACE_PEER(engine, session_drained, peer, 0, peer->sessions[number].epoch, 0);
    enlist(engine, peer);
}

void note_connected(weir_engine *engine, struct peer *peer, uint32_t number) {
    peer->notes.connected |= (uint8_t)(1u << number);
    enlist(engine, peer);
}

void note_heard(weir_engine *engine, struct peer *peer, uint32_t number) {
    peer->notes.heard |= (uint8_t)(1u << number);
    enlist(engine, peer);
}

void note_dead(weir_engine *engine, struct peer *peer, int error) {
    if (!peer_is_there(peer))
        return;
    peer->notes.dead = error;
    enlist(engine, peer);
}

void note_unreachable(weir_engine *engine, struct peer *peer, int error) {
    peer->notes.unreachable = error;
    enlist(engine, peer);
}

void note_evict(weir_engine *engine, struct peer *peer) {
    peer->notes.evict = true;
    enlist(engine, peer);
}

void note_life(weir_engine *engine, struct peer *peer) {
    peer->notes.life = true;
    enlist(engine, peer);
}

void note_probe(weir_engine *engine, struct peer *peer) {
    peer->notes.probe = true;
    enlist(engine, peer);
}

void note_unpark(weir_engine *engine, struct peer *peer) {
    peer->notes.unpark = true;
    enlist(engine, peer);
}

void note_want(weir_engine *engine, struct peer *peer) {
    peer->notes.want = true;
    enlist(engine, peer);
}

void note_wish(weir_engine *engine, struct peer *peer) {
    bool wants = peer_is_known(peer) ? endpoint_wants(&peer->endpoint) : peer->dial != DIAL_NONE;
    if (peer->live == NONE && !wants && !peer->notes.want)
        note_want(engine, peer);
}

void note_conn_lost(weir_engine *engine, uint64_t conn) {
    struct peer *peer;
    uint32_t at = NONE;
    while ((peer = found_by_conn(engine, conn, &at)) != NULL) {
        peer->notes.conns_lost[at % FOUND_CONNS] = conn;
        peer->notes.conn_lost = true;
        enlist(engine, peer);
    }
}
