/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: loading and writing traces; see trace.h. A trace file is not trusted: every type,
 * length and order is checked, and memory follows from what the file really holds. */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "host.h"

#define LINE_BYTES_MAX (1u << 20)

void trace_free(struct trace *trace) {
    free(trace->requests);
    free(trace->ids);
    *trace = (struct trace){.requests = NULL};
}

/* Room for `more` elements after `count`, at least doubling. */
static int grow(void **array, uint64_t *space, uint64_t count, uint64_t more, size_t each) {
    uint64_t want = *space < 1024 ? 1024 : *space;
    void *grown;

    if (count + more <= *space)
        return 0;
    while (want < count + more)
        want *= 2;
    grown = realloc(*array, want * each);
    if (grown == NULL)
        return -1;
    *array = grown;
    *space = want;
    return 0;
}

uint64_t *trace_append(struct trace *trace, const struct trace_request *request) {
    void *requests = trace->requests, *ids = trace->ids;
    int rc =
        grow(&requests, &trace->request_space, trace->request_count, 1, sizeof(*trace->requests));

    trace->requests = requests;
    if (rc == 0)
        rc = grow(&ids, &trace->id_space, trace->id_count, request->block_count,
                  sizeof(*trace->ids));
    trace->ids = ids;
    if (rc != 0)
        return NULL;
    trace->requests[trace->request_count] = *request;
    trace->requests[trace->request_count++].first_id = trace->id_count;
    trace->id_count += request->block_count;
    if (request->block_count > trace->block_count_max)
        trace->block_count_max = request->block_count;
    return trace->ids + trace->id_count - request->block_count;
}

static int number_of(const json_t *object, const char *name, uint64_t *value_out) {
    const json_t *member = json_object_get(object, name);

    if (!json_is_integer(member) || json_integer_value(member) < 0)
        return -1;
    *value_out = (uint64_t)json_integer_value(member);
    return 0;
}

/* NULL, or what is wrong with the line. */
static const char *append_line(struct trace *trace, const json_t *object) {
    const json_t *list = json_object_get(object, "hash_ids");
    struct trace_request request = {0};
    uint64_t *ids;

    if (number_of(object, "timestamp", &request.arrival_ms) != 0 ||
        number_of(object, "input_length", &request.input_length) != 0 ||
        number_of(object, "output_length", &request.output_length) != 0 || !json_is_array(list))
        return "timestamp, input_length, output_length or hash_ids is missing or no number";
    if (json_array_size(list) == 0 || json_array_size(list) > TRACE_BLOCKS_MAX)
        return "hash_ids has no or too many ids";
    if (trace->request_count > 0 &&
        request.arrival_ms < trace->requests[trace->request_count - 1].arrival_ms)
        return "timestamp goes back";
    request.block_count = (uint32_t)json_array_size(list);
    ids = trace_append(trace, &request);
    if (ids == NULL)
        return "out of memory";
    for (size_t i = 0; i < request.block_count; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return "hash_ids holds something that is no id";
        ids[i] = (uint64_t)json_integer_value(id);
    }
    return NULL;
}

static int load_lines(FILE *file, const char *path, uint64_t requests_max, struct trace *trace) {
    char *line = NULL;
    size_t space = 0;
    uint64_t number = 0;
    const char *wrong = NULL;
    ssize_t length;

    while (wrong == NULL && trace->request_count < requests_max &&
           (length = getline(&line, &space, file)) > 0) {
        json_t *object;
        number++;
        if (length > LINE_BYTES_MAX) {
            wrong = "line too long";
            break;
        }
        object = json_loadb(line, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
        wrong = json_is_object(object) ? append_line(trace, object) : "not a JSON object";
        json_decref(object);
    }
    free(line);
    if (wrong != NULL)
        return complain("%s:%" PRIu64 ": %s", path, number, wrong);
    if (ferror(file))
        return complain("%s: %s", path, strerror(errno));
    if (trace->request_count == 0)
        return complain("%s: no requests", path);
    return 0;
}

int trace_load(const char *path, uint64_t requests_max, struct trace *trace_out) {
    FILE *file = fopen(path, "re");
    struct trace trace = {.requests = NULL};
    int rc;

    if (file == NULL)
        return complain("%s: %s", path, strerror(errno));
    if (requests_max == 0 || requests_max > TRACE_REQUESTS_MAX)
        requests_max = TRACE_REQUESTS_MAX;
    rc = load_lines(file, path, requests_max, &trace);
    fclose(file);
    if (rc != 0)
        trace_free(&trace);
    else
        *trace_out = trace;
    return rc;
}

int trace_write(const struct trace *trace, FILE *out) {
    for (uint64_t r = 0; r < trace->request_count; r++) {
        const struct trace_request *request = &trace->requests[r];
        fprintf(out,
                "{\"timestamp\": %" PRIu64 ", \"input_length\": %" PRIu64
                ", \"output_length\": %" PRIu64 ", \"hash_ids\": [",
                request->arrival_ms, request->input_length, request->output_length);
        for (uint32_t i = 0; i < request->block_count; i++)
            fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", trace->ids[request->first_id + i]);
        fputs("]}\n", out);
    }
    if (out == stdout || (fflush(out) == 0 && !ferror(out)))
        return 0; /* of standard output main says it */
    return complain("the trace cannot be written: %s", strerror(errno));
}
