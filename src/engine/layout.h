/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h: the memory that follows from an engine's limits. */
#ifndef WEIR_ENGINE_LAYOUT_H
#define WEIR_ENGINE_LAYOUT_H

#include "state.h"

/* Bytes of an engine of these limits; and of those, the bytes that the device has to know. */
size_t engine_bytes(const weir_engine_options *options);
uint64_t engine_pinned_bytes(const weir_engine_options *options);
/* QPs in use and as many again on their way out. */
uint32_t qps_wanted(const weir_engine_options *options);
/* Takes the arena and makes the tables in it; e->options and e->qps_max say how large. ENOMEM. */
int layout_take(weir_engine *e);

#endif
