/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: request traces of LLM serving: one JSON object a line,
 *   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}
 * with one id for each 512 tokens of input; equal ids are equal blocks, and so the common
 * beginnings of requests are equal beginnings of their lists. */
#ifndef TOOL_TRACE_H
#define TOOL_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_BLOCK_TOKENS 512
#define TRACE_BLOCKS_MAX   16384 /* of one request; 8 Mi tokens */
#define TRACE_REQUESTS_MAX 1000000

struct trace_request {
    uint64_t arrival_ms;
    uint64_t input_length;
    uint64_t output_length;
    uint64_t first_id; /* index into trace.ids */
    uint32_t block_count;
};

struct trace {
    struct trace_request *requests;
    uint64_t *ids;
    uint64_t request_count;
    uint64_t request_space;
    uint64_t id_count;
    uint64_t id_space;
    uint32_t block_count_max;
};

/* At most requests_max requests (0: all). 0, or -1 after complaining, with the line's number.
 * Arrivals must not go back; lists may have any length up to TRACE_BLOCKS_MAX, and not none. */
int trace_load(const char *path, uint64_t requests_max, struct trace *trace_out);
void trace_free(struct trace *trace);
/* Appends a request with room for block_count ids, which the caller fills in at trace->ids +
 * first_id of the last request. NULL: out of memory. */
uint64_t *trace_append(struct trace *trace, const struct trace_request *request);

/* A trace with the statistics that trace_generate.c holds in its tables. Pure: same arguments,
 * same trace. 0, or -1 after complaining. */
int trace_generate(uint64_t requests, uint64_t seed, struct trace *trace_out);
int trace_write(const struct trace *trace, FILE *out);

/* Prints the statistics that docs/trace.md tabulates. */
int trace_describe(const struct trace *trace, FILE *out);

#endif
