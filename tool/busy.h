/* SPDX-License-Identifier: Apache-2.0 */
/* busy.h: `bench storm --seconds`: what one peer is written, while all others are idle.
 *
 * Small writes, as many in flight at a time as the other benches have by default: what an engine
 * does for each of its peers would show in their rate. */
#ifndef TOOL_BUSY_H
#define TOOL_BUSY_H

#include <stdint.h>

#include "weir.h"

#define BUSY_BYTES 8 /* of a write */

/* Memory of the one that is written. */
struct busy_memory {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
    char address[WEIR_ADDRESS_MAX]; /* its engine's */
};

/* Both return 0, or -1 after complaining. */
int busy_allocate(weir_engine *engine, struct busy_memory *memory_out);
/* Writes there for so long, behind a first write, which connects. *per_s_out: writes a second. */
int busy_write(weir_engine *engine, const struct busy_memory *memory, uint64_t ns,
               double *per_s_out);

#endif
