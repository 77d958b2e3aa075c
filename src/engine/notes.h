/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h: what was found out about a peer, and is done later, at one place.
 *
 * A break, an end, a wish is found out deep inside: by a completion, a refused post, a deadline.
 * Its consequences go through the peer's endpoint, its sessions and its transfers. So it is only
 * noted where it is found, and effects_perform sees to the consequences, when nothing else is under
 * way. The notes of a peer that wait at the same time are performed in this order, which is not the
 * one in which things happen (design.md has that):
 *
 *   conn_lost    control connections that turned out to be over
 *   life         the peer's device is asked for a sign of life
 *   unanswered   sessions that had broken, and of which it turned out since that nobody answered
 *   drained      sessions whose QPs are gone
 *   dead         the instance is gone
 *   broken       sessions that broke here
 *   connected    sessions whose connect has an end
 *   heard        sessions that are up on the other side
 *   probe        what was said last may be lost: ask after the session
 *   evict        the entry is needed by another
 *   unreachable  no session came about
 *   unpark       something is known of old sessions
 *   want         transfers wait for a session
 *
 * A note is made by the thread that has the engine. The calls that may make one perform it before
 * they leave the engine, or leave it to the next step: no thread sleeps over one. Before a break is
 * performed, the control channel is looked at (look.c): what is there may say why. */
#ifndef WEIR_ENGINE_NOTES_H
#define WEIR_ENGINE_NOTES_H

#include "state.h"

/* The session breaks, by something that was seen here: from now on nothing is posted on it. number
 * may be NONE, of a QP that no session has: then nothing is noted. */
void note_broken(weir_engine *engine, struct peer *peer, uint32_t number);
void note_unanswered(weir_engine *engine, struct peer *peer, uint32_t number);
/* The QPs of the session are gone. A break of it that was noted, and not performed yet, is
 * forgotten. */
void note_drained(weir_engine *engine, struct peer *peer, uint32_t number);
void note_connected(weir_engine *engine, struct peer *peer, uint32_t number);
/* A message came in on a session that is not up here yet: it is on the other side. */
void note_heard(weir_engine *engine, struct peer *peer, uint32_t number);
void note_dead(weir_engine *engine, struct peer *peer, int error);
void note_unreachable(weir_engine *engine, struct peer *peer, int error);
void note_evict(weir_engine *engine, struct peer *peer);
void note_life(weir_engine *engine, struct peer *peer);
void note_probe(weir_engine *engine, struct peer *peer);
void note_unpark(weir_engine *engine, struct peer *peer);
/* The peer is to have a session. */
void note_want(weir_engine *engine, struct peer *peer);
/* The same of a peer without one, unless it wants one already: that is no news, so that an
 * application which asks again and again sleeps in between. */
void note_wish(weir_engine *engine, struct peer *peer);
/* Of every peer that has this connection. */
void note_conn_lost(weir_engine *engine, uint64_t conn);

static inline bool notes_waiting(const weir_engine *engine) {
    return engine->noted_head != NONE || engine->noted_break;
}
/* Takes the peer that was noted first off the list, which is not empty. Its notes stay until they
 * are performed. */
struct peer *notes_next(weir_engine *engine);
/* A break of the peer, and the notes behind it, stay until it was asked why (noted_break). */
void notes_stay(weir_engine *engine, struct peer *peer);
/* It was asked: the notes that stayed are on the list again. */
void notes_asked(weir_engine *engine);
/* The first of the sessions in *sessions, which is not 0, out of it. */
static inline uint32_t notes_session(uint8_t *sessions) {
    uint32_t number = (uint32_t)__builtin_ctz(*sessions);
    *sessions &= (uint8_t)(*sessions - 1);
    return number;
}

#endif
