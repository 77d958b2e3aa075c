/* effects.h: the effects that a peer's endpoint machine asks for, performed. */
#ifndef WEIR_ENGINE_EFFECTS_H
#define WEIR_ENGINE_EFFECTS_H

#include "state.h"

void peer_pump(weir_engine *engine, struct peer *peer, const struct ep_event *first);
void peer_timer(weir_engine *engine, struct peer *peer);
void peer_want(weir_engine *engine, struct peer *peer);
void peer_broken(weir_engine *engine, struct peer *peer, uint32_t slot);
void peer_drained(weir_engine *engine, struct peer *peer, uint32_t slot);
void peer_connected(weir_engine *engine, struct peer *peer, uint32_t slot);
void peer_heard(weir_engine *engine, struct peer *peer, uint32_t slot);
void peer_dead(weir_engine *engine, struct peer *peer, int error);

#endif
