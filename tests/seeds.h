/* SPDX-License-Identifier: Apache-2.0 */
/* seeds.h: how many of its seeds a test runs: all, or a quarter with WEIR_TEST_SEEDS=part, as under
 * sanitizers (docs/testing.md). */
#ifndef WEIR_TEST_SEEDS_H
#define WEIR_TEST_SEEDS_H

#include <stdlib.h>
#include <string.h>

static inline unsigned seeds_asked(unsigned count) {
    const char *asked = getenv("WEIR_TEST_SEEDS");
    return asked != NULL && strcmp(asked, "part") == 0 ? (count + 3) / 4 : count;
}

#endif
