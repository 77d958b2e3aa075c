/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h: transfers to this engine itself. */
#ifndef WEIR_ENGINE_LOOP_H
#define WEIR_ENGINE_LOOP_H

#include "state.h"

/* Does what is next of the transfers to the engine itself: up to bytes_most, and a turn's budget.
 * True: more could be done now. */
bool loop_serve(weir_engine *engine, struct peer *peer, uint64_t bytes_most);

#endif
