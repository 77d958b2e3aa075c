/* SPDX-License-Identifier: Apache-2.0 */
/* dial.h: how a peer is reached, and when one that is not reached is given up. */
#ifndef WEIR_ENGINE_DIAL_H
#define WEIR_ENGINE_DIAL_H

#include "state.h"

void dial_start(weir_engine *engine, struct peer *peer);
/* Asks at the address that the peer says is its, which the application has opened. Nothing more is
 * posted to the peer until it is known which instance answers there, or that none does. */
void dial_prove(weir_engine *engine, struct peer *peer);
void dial_again(weir_engine *engine, struct peer *peer);
void dial_end(struct peer *peer);
/* Of a peer whose instance is gone, or of an engine that closes. */
void dial_stop(weir_engine *engine, struct peer *peer);
void dial_answered(weir_engine *engine, struct peer *peer);
void dial_connected(weir_engine *engine, struct peer *peer);
bool dial_unmade(int error);
void dial_elsewhere(weir_engine *engine, struct peer *peer);
/* The peer keeps a connection that this engine dialled, and is asked for elsewhere. */
void dial_set_aside(weir_engine *engine, struct peer *peer, uint64_t conn);
/* The peer spoke on this connection, which is its own from here on. */
void dial_spoke(weir_engine *engine, struct peer *peer, uint64_t conn);
/* Asks at the peer's address who is there. */
void dial_ask_there(weir_engine *engine, struct peer *peer);
/* The connection is over: so all that have it lose it. */
void dial_closed(weir_engine *engine, uint64_t conn, int error);
/* The peer's device has answered just now. */
void dial_alive(weir_engine *engine, struct peer *peer);
void dial_timer(weir_engine *engine, struct peer *peer, uint64_t now);
/* The peer's one timer: the dial's or the endpoint's next deadline. */
void peer_set_timer(weir_engine *engine, struct peer *peer);

#endif
