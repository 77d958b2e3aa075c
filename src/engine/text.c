/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: see text.h. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void text_say(struct text *text, const char *format, ...) {
    va_list arguments;
    size_t at = text->length < text->size ? text->length : text->size;
    va_start(arguments, format);
    int length = vsnprintf(text->out + at, text->size - at, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->length += (size_t)length;
}
