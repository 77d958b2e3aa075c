/* SPDX-License-Identifier: Apache-2.0 */
/* engines_here.h: engines over a device of this machine, all of this process, in real time. */
#ifndef WEIR_CONFORMANCE_ENGINES_HERE_H
#define WEIR_CONFORMANCE_ENGINES_HERE_H

#include "pair.h"

/* Runs the tests of engine_tests.h on a pair's devices. An exit status: 0, or 77 for meson,
 * skipped, where there is no device. */
int engines_here_run(const struct conformance_pair *pair);

#endif
