/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h: the way in for transfers. */
#ifndef WEIR_ENGINE_SUBMIT_H
#define WEIR_ENGINE_SUBMIT_H

#include "state.h"

/* Takes over the caller's reference. Any thread. */
void submit_cancel(weir_engine *engine, struct transfer *transfer);

#endif
