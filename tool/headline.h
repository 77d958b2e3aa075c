/* SPDX-License-Identifier: Apache-2.0 */
/* headline.h: the figures of a suite that are read first: those of its summary, and of the first
 * screen of its page. */
#ifndef TOOL_HEADLINE_H
#define TOOL_HEADLINE_H

#include <stddef.h>
#include <stdio.h>

#include "results.h"

struct headline {
    const char *title;
    struct place place;
    enum unit unit;
    enum better better;
    /* What the machine can do, and its name, where the figure has such a limit; bench NULL: none.
     */
    struct place share, limit, limit_name;
};

/* What this machine does without weir. */
size_t headline_machine(const struct headline **headlines_out);
/* What weir does. */
size_t headline_all(const struct headline **headlines_out);

/* The summary of a suite, a line for each that was measured, and for each bench that failed. */
void headline_print(FILE *out, struct results *results);

#endif
