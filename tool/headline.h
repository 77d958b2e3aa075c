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
    /* Where the figure has a limit of the machine: the share of it, the limit, its name. Else their
     * bench is NULL. */
    struct place share, limit, limit_name;
};

/* The machine alone, without weir. */
size_t headline_machine(const struct headline **headlines_out);
/* weir on the machine. */
size_t headline_all(const struct headline **headlines_out);

/* The summary of a suite, a line for each that was measured, and for each bench that failed. */
void headline_print(FILE *out, struct results *results);

#endif
