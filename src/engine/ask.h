/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h: peers are asked how they are, and answer. */
#ifndef WEIR_ENGINE_ASK_H
#define WEIR_ENGINE_ASK_H

#include "state.h"

/* Nothing of the peer completes: asks it how it is, unless it was just now. now: of engine_clock.
 */
void ask_peer(weir_engine *engine, struct peer *peer, uint64_t now);
/* Something completed: what was asked and heard is of the past. */
void ask_over(struct peer *peer);

/* The peer asks on this connection. */
void ask_answer(weir_engine *engine, const struct peer *peer, uint64_t conn,
                const struct wire_message *question);
/* The peer answers. */
void ask_heard(weir_engine *engine, struct peer *peer, const struct wire_message *answer);

#endif
