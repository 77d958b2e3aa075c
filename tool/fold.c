/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c: see fold.h. */
#include "fold.h"

#include <string.h>

/* The length of the next line: up to the last space that it may end at. */
static size_t line_of(const char *text, size_t begin, size_t columns) {
    size_t end = strlen(text), at = begin;
    while (at < end) {
        size_t word = strcspn(text + at + 1, " ") + 1; /* with the space in front of it */
        if (at > begin && at + word > columns)
            break;
        at += word;
    }
    return at < end ? at : end;
}

void fold_print(FILE *out, const char *text) {
    size_t indent = strspn(text, " ");
    size_t length = line_of(text, indent, FOLD_COLUMNS);
    fprintf(out, "%.*s\n", (int)length, text);
    indent = indent + 2 < FOLD_COLUMNS ? indent + 2 : 0;
    for (text += length; *text != '\0'; text += length) {
        text += strspn(text, " ");
        length = line_of(text, 0, FOLD_COLUMNS - indent);
        fprintf(out, "%*s%.*s\n", (int)indent, "", (int)length, text);
    }
}
