/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h: what becomes of transfers when runs of theirs are over with. */
#ifndef WEIR_ENGINE_RUNS_H
#define WEIR_ENGINE_RUNS_H

#include "state.h"

void runs_retire(weir_engine *engine, struct qp *qp);
void runs_flush(weir_engine *engine, struct qp *qp);

#endif
