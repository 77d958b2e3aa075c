/* SPDX-License-Identifier: Apache-2.0 */
/* look.h: when all is looked at, what time counts, and when deadlines may pass. */
#ifndef WEIR_ENGINE_LOOK_H
#define WEIR_ENGINE_LOOK_H

#include "state.h"

void look_begin(weir_engine *engine);
/* As effects_perform, of breaks, too: behind a look at what may say why. Not while a message or an
 * event is dealt with. */
void look_perform_all(weir_engine *engine);
static inline void look_perform(weir_engine *engine) {
    if (__builtin_expect(engine->noted_head != NONE || engine->noted_break, 0))
        look_perform_all(engine);
}
bool look_is_due(weir_engine *engine);
/* At everything, with `budget` completions at most. Returns how much was done. */
int look_at_all(weir_engine *engine, int budget);
/* A deadline is due: whether it may pass. looked: in this step. */
bool look_before_deadlines(weir_engine *engine, bool looked, int *done);

#endif
