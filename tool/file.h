/* SPDX-License-Identifier: Apache-2.0 */
/* file.h: whole files: none is ever seen half-written. */
#ifndef TOOL_FILE_H
#define TOOL_FILE_H

#include <stddef.h>

/* The file has this text, or is as it was: a temporary file beside it takes its name. A pipe or a
 * device is written to. 0, or -1 after complaining. */
int file_replace(const char *path, const char *text, size_t length);

/* A file in memory alone, empty. A descriptor, or -1 after complaining. */
int file_in_memory(const char *name);
/* The text of a file, from its beginning, as a string for free(3); -1 is no file. At most most
 * bytes; NULL after complaining. */
char *file_text(int fd, size_t most);

/* All of the text. 0, or -1 with errno. */
int file_write(int fd, const char *text, size_t length);

#endif
