/* SPDX-License-Identifier: Apache-2.0 */
/* talk.h: what two engines tell each other about messages. */
#ifndef WEIR_ENGINE_TALK_H
#define WEIR_ENGINE_TALK_H

#include "state.h"

/* The peer has a turn, and a session: what waits is put where there is room, as far as this
 * processor does not copy bytes_most for it, and what is to be said is said. */
void talk_serve(weir_engine *engine, struct peer *peer, uint64_t bytes_most);
/* Words of a peer's. False: no engine says so. */
bool talk_heard(weir_engine *engine, struct peer *peer, const uint8_t *payload, uint32_t length);
/* A session is made with an instance whose life with us is this one, and was another. */
void talk_new_life(weir_engine *engine, struct peer *peer, uint64_t life);
/* A session of the peer's has drained. */
void talk_session_over(weir_engine *engine, const struct peer *peer);
/* GONE was told: all that was begun with the peer is over, and the other side hears so with the
 * next session. */
void talk_renew(weir_engine *engine, struct peer *peer);
/* The peer is given up... */
void talk_gone(weir_engine *engine, struct peer *peer);
/* ...and has drained. */
void talk_forget(weir_engine *engine, struct peer *peer);

#endif
