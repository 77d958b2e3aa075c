/* SPDX-License-Identifier: Apache-2.0 */
/* left.h: the QPs that a closed engine could not take down. */
#ifndef WEIR_ENGINE_LEFT_H
#define WEIR_ENGINE_LEFT_H

#include "state.h"

bool left_nothing(const weir_engine *engine);
/* Goes on with an engine that was left, on its own thread; on_left closes its ports at last. */
void left_to_thread(weir_engine *engine, void (*on_left)(struct weir_ports *ports));

#endif
