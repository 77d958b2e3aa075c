/* SPDX-License-Identifier: Apache-2.0 */
/* effects.h: what a peer's endpoint asks for, and what was noted of peers, performed. */
#ifndef WEIR_ENGINE_EFFECTS_H
#define WEIR_ENGINE_EFFECTS_H

#include "state.h"

/* Performs what was noted of all peers, and what is noted meanwhile. A break stays, and what is
 * performed behind it, while noted_break says that nobody has asked why: look_perform. */
void effects_perform_all(weir_engine *engine);
static inline void effects_perform(weir_engine *engine) {
    if (__builtin_expect(engine->noted_head != NONE, 0))
        effects_perform_all(engine);
}
/* The endpoint of the peer, whose instance is known, hears of this. Performs no notes. */
void effects_event(weir_engine *engine, struct peer *peer, const struct ep_event *event);
/* The peer's timer is due. */
void effects_timer(weir_engine *engine, struct peer *peer);

/* The engine leaves: BYE to all, every session retired. */
void effects_leave(weir_engine *engine);

#endif
