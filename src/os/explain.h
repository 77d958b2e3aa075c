/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h: the system's word on something that did not work, as a few words. It is asked
 * afterwards, so it may have changed meanwhile. */
#ifndef WEIR_OS_EXPLAIN_H
#define WEIR_OS_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why nobody can listen there: "Address already in use". Blocks for name resolution. */
void os_explain_listen(const char *address, char *why_out, size_t size);

/* Whether the text cannot be advertised, as it is no host and no "host:port"; only then *why_out is
 * written. */
bool os_explain_advertise(const char *text, char *why_out, size_t size);

/* Whether this process can hardly open another file; only then *why_out is written. */
bool os_explain_descriptors(char *why_out, size_t size);

/* Whether `bytes` are more address space than RLIMIT_AS leaves; only then *why_out is written. */
bool os_explain_address_space(uint64_t bytes, char *why_out, size_t size);

/* Whether `bytes` are more than RLIMIT_FSIZE lets a file have; only then *why_out is written. */
bool os_explain_file_size(uint64_t bytes, char *why_out, size_t size);

#endif
