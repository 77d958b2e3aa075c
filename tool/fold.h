/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h: text in lines that a terminal is wide enough for. */
#ifndef TOOL_FOLD_H
#define TOOL_FOLD_H

#include <stdio.h>

enum { FOLD_COLUMNS = 80 };

/* Prints the text, and a newline, in lines of up to FOLD_COLUMNS, cut between words; those behind
 * the first begin with two spaces more than it. A longer word has a line of its own. text: ASCII,
 * with its own spaces in front. */
void fold_print(FILE *out, const char *text);

#endif
