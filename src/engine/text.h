/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: a text that is put together in a caller's buffer. */
#ifndef WEIR_ENGINE_TEXT_H
#define WEIR_ENGINE_TEXT_H

#include <stddef.h>

/* The first bytes are written, as far as there is room, and all are counted. */
struct text {
    char *out;
    size_t size;
    size_t length;
};

void text_say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
