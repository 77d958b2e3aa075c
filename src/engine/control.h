/* SPDX-License-Identifier: Apache-2.0 */
/* control.h: the messages that come on control connections. */
#ifndef WEIR_ENGINE_CONTROL_H
#define WEIR_ENGINE_CONTROL_H

#include "state.h"

int control_poll(weir_engine *engine, int budget);

#endif
