/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: memory that the engine has for its own sake. */
#ifndef WEIR_ENGINE_MEMORY_H
#define WEIR_ENGINE_MEMORY_H

#include "state.h"

/* As weir_memory_allocate, from the thread that has the engine; others may have it meanwhile. Of
 * `access` WEIR_MR_LENT may be a part. */
int memory_allocate(weir_engine *engine, uint64_t length, uint32_t access, weir_memory *memory_out,
                    void **base_out);
/* As weir_memory_release, likewise. */
int memory_release(weir_engine *engine, weir_memory memory);
/* The descriptor by which a peer imports it. */
int memory_describe(weir_engine *engine, weir_memory memory, struct wire_descriptor *out);

#endif
