/* SPDX-License-Identifier: Apache-2.0 */
/* stall.h: QPs that stand still. */
#ifndef WEIR_ENGINE_STALL_H
#define WEIR_ENGINE_STALL_H

#include "state.h"

uint64_t stall_deadline(const weir_engine *engine);
void stall_look(weir_engine *engine, bool emptied);
void stall_begin(weir_engine *engine);
/* Threads that sleep may have no deadline for a look at what was posted just now. */
static inline void stall_posted(weir_engine *engine) {
    if (__builtin_expect(!engine->posts_seen, 0))
        stall_begin(engine);
}

#endif
