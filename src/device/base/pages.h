/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h: memory that a device allocates for its engine. Any thread. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define PAGES_BYTES      UINT64_C(4096)
#define PAGES_HUGE       (UINT64_C(2) << 20) /* memory of that length and more is large */
#define PAGES_LENGTH_MAX (UINT64_C(1) << 46)

/* The bytes to map for a length of at most PAGES_LENGTH_MAX: whole pages, or, where it is large,
 * whole huge pages. */
uint64_t pages_round(uint64_t length);
/* Zeroed, private memory, which no child of fork(2) has; bytes: from pages_round. Large memory
 * begins on a huge-page boundary, and is in huge pages where the kernel gives them. NULL: no room.
 * It goes by munmap(2). */
void *pages_map(uint64_t bytes);
/* Memory of pages_map, still zeros, is backed now, so that a lack of memory is an error here and no
 * signal later. False: there is not so much. */
bool pages_back(void *base, uint64_t bytes);

#endif
