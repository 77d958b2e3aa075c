/* SPDX-License-Identifier: Apache-2.0 */
/* complete.h: news from the device: completions of runs, and messages. */
#ifndef WEIR_ENGINE_COMPLETE_H
#define WEIR_ENGINE_COMPLETE_H

#include "state.h"

int complete_poll(weir_engine *engine, int budget);
/* Until a poll gives none, which *emptied_out says, or the budget is used. */
int complete_rest(weir_engine *engine, int budget, bool *emptied_out);
void complete_held(weir_engine *engine);
/* How many numbers may be in use for one peer, above the oldest that is not finished. */
uint32_t complete_numbers(const weir_engine *engine);

#endif
