/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.h: accepted notifications on their way to the application. */
#ifndef WEIR_ENGINE_DELIVER_H
#define WEIR_ENGINE_DELIVER_H

#include "state.h"

/* Tells UP, if it was not told of the peer under its present handle. over: by something that came
 * on a session that is no more. */
void deliver_tell(weir_engine *engine, struct peer *peer, bool over);
/* Puts the notification of these bytes into the application's queue; false: full. from: the handle
 * of a peer that has ended; else 0. */
bool deliver(weir_engine *engine, struct peer *peer, uint64_t from, const uint8_t *bytes);
/* Whether notifications of the peer's present instance are held. */
bool deliver_holds(weir_engine *engine, const struct peer *peer);
/* There is no room, or others wait already: it stays in its buffer, and keeps its QP's entry. */
void deliver_later(weir_engine *engine, struct peer *peer, struct qp *qp, uint32_t buffer);
void deliver_ended(weir_engine *engine, const struct peer *peer);

/* Puts a notification of this engine's to itself into the application's queue; false: full. */
bool deliver_own(weir_engine *engine, const struct peer *peer, uint64_t tag, const uint8_t *payload,
                 uint32_t length);

#endif
