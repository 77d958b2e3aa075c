/* SPDX-License-Identifier: Apache-2.0 */
/* pair.h: a conformance world of two devices of this process, in real time. */
#ifndef WEIR_CONFORMANCE_PAIR_H
#define WEIR_CONFORMANCE_PAIR_H

#include "conformance.h"

struct conformance_pair {
    const char *name;
    const struct weir_device_ops *ops;
    /* Called before device 0 or 1 is opened; NULL: nothing to do. */
    void (*choose)(const struct conformance_pair *pair, int index);
    uint32_t advance_ns;  /* what advance sleeps; 0: time passes by itself */
    bool reads_unchecked; /* as in conformance_world */
    bool sends_wait;      /* likewise */
    bool devices_talk;    /* likewise */
    bool sends_repeated;  /* as in engines_world */
    void *self;           /* the hook's own */
};

/* Runs the suite. An exit status: 0, or 77 for meson, skipped, where there is no device. */
int conformance_pair_run(const struct conformance_pair *pair);

#endif
