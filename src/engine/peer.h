/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h: peers that come and go: what instance each is, opening, closing, the end. */
#ifndef WEIR_ENGINE_PEER_H
#define WEIR_ENGINE_PEER_H

#include "state.h"

struct peer *peer_meet(weir_engine *engine, const uint8_t *instance, const char *address);
void peer_learned(weir_engine *engine, struct peer *peer, const uint8_t *instance);
bool peer_speaks_for(const struct peer *dialled, const struct peer *other);
void peer_reachable(weir_engine *engine, struct peer *peer);
int peer_self(weir_engine *engine, struct peer **peer_out);
int peer_open(weir_engine *engine, const char *address, weir_peer *peer_out);
void peer_gone(weir_engine *engine, struct peer *peer, int error);
void peer_unreachable(weir_engine *engine, struct peer *peer, int error);
void peer_reap(weir_engine *engine, struct peer *peer);
void peer_forget(weir_engine *engine, struct peer *peer);
void peer_closed(weir_engine *engine, struct peer *peer);
void peer_evict(weir_engine *engine);

#endif
