/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: memory that the engine has for its own sake. */
#ifndef WEIR_ENGINE_MEMORY_H
#define WEIR_ENGINE_MEMORY_H

#include "names.h"
#include "state.h"

/* As weir_memory_allocate, from the thread that has the engine; others may have it meanwhile. Of
 * `access` WEIR_MR_LENT may be a part. */
int memory_allocate(weir_engine *engine, uint64_t length, uint32_t access, weir_memory *memory_out,
                    void **base_out);
/* As weir_memory_release, likewise. */
int memory_release(weir_engine *engine, weir_memory memory);
/* As weir_memory_import, from any thread; named: the answer by which it was found, whose
 * entry has one more user then; NULL: none. ENOTREADY: that is not the answer any more. */
int memory_import(weir_engine *engine, weir_peer peer, const struct wire_descriptor *descriptor,
                  const struct name_answer *named, weir_remote *remote_out);

#endif
