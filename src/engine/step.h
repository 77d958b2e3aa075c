/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: the order of work in one step of the engine. */
#ifndef WEIR_ENGINE_STEP_H
#define WEIR_ENGINE_STEP_H

#include "state.h"

/* One round of everything. slow: look at control channel and async events too, which cost system
 * calls; otherwise only when that is due. Returns how much was done. By the thread that has the
 * engine. */
int engine_step(weir_engine *engine, bool slow);
/* Starts and cancels what other threads left, in the order in which they came; false: nothing. */
bool step_take_submitted(weir_engine *engine);

#endif
