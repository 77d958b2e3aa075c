/* SPDX-License-Identifier: Apache-2.0 */
/* cause.h: why a session broke. */
#ifndef WEIR_ENGINE_CAUSE_H
#define WEIR_ENGINE_CAUSE_H

#include "state.h"

void cause_own(weir_engine *engine, struct peer *peer, uint32_t number, int error,
               const struct transfer *culprit);
/* The session is broken on purpose: it was begun in a life that is over. */
void cause_outlived(weir_engine *engine, struct peer *peer, uint32_t number);
/* The session's target did not answer. That it broke may be known already, and just not why. */
void cause_unanswered(weir_engine *engine, struct peer *peer, uint32_t number);
/* The remote says why it broke our session `epoch`. */
void cause_told(struct peer *peer, uint64_t epoch, int reason);
/* The link carries: the next session need not wait long. */
void cause_no_trouble(const weir_engine *engine, struct peer *peer);

#endif
