/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.h: one that is no peer of anybody's, and speaks to all. See stranger.c. */
#ifndef WEIR_SIM_STRANGER_H
#define WEIR_SIM_STRANGER_H

#include "workload.h"

/* Before any engine is opened. */
void stranger_start(struct sim_run *run);
/* It hears what was said to it, answers, and says a word. */
void stranger_strike(struct sim_run *run);

#endif
