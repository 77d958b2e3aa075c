/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.h: peers for which work is outstanding, and none of it completes. */
#ifndef WEIR_ENGINE_WATCHDOG_H
#define WEIR_ENGINE_WATCHDOG_H

#include "state.h"

/* When to look, of engine_clock; UINT64_MAX: nothing is outstanding, or watched. */
static inline uint64_t watchdog_deadline(const weir_engine *engine) {
    return engine->watch_next_ns != 0 ? engine->watch_next_ns : UINT64_MAX;
}
/* With each look at everything, behind it. emptied: the completion queue was. */
void watchdog_look(weir_engine *engine, bool emptied);

#endif
