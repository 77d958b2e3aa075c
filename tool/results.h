/* SPDX-License-Identifier: Apache-2.0 */
/* results.h: the results of a suite, as `bench all` writes them and `report` reads them:
 *
 *   {"format": 1, "started": "2026-01-31T12:00:00Z", "seconds": s, "complete": bool,
 *    "options": {"rounds": n, "quick": bool, "trace": file or null, "device": name},
 *    "versions": {...}, "machine": {...},
 *    "benches": [{"name": n, "command": words, "rounds": [
 *        {"seconds": s, "status": exit status, "error": line or null, "result": JSON or null}]}]}
 *
 * A result is that of the bench's --json. Members that are not there, and null, are figures that
 * were not measured. A member of another type than it should have, or a number that nobody can have
 * measured, is odd: the first of them is kept, for results_verdict. */
#ifndef TOOL_RESULTS_H
#define TOOL_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "figure.h"

#define RESULTS_FORMAT       1
#define RESULTS_ROUNDS_MAX   99
#define RESULTS_BENCHES_MAX  64
#define RESULTS_ROWS_MAX     1024 /* of one array with a row for each load, size, peer */
#define RESULTS_TIMELINE_MAX 65536

struct results {
    const char *path;
    json_t *root;
    char odd[256]; /* empty: nothing was */
};

/* Reads a file and looks at all but the results. 0, or -1 after complaining. */
int results_load(struct results *results, const char *path);
/* Of a root that was made here; borrows it. */
struct results results_of(json_t *root, const char *path);
void results_free(struct results *results);
/* 0, or -1 after complaining of what was odd. */
int results_verdict(const struct results *results);

/* Where in a result: in itself, in a row of one of its arrays, or in all of these. */
enum pick {
    PICK_RESULT = 0,
    PICK_KEY,   /* whose member `key` is `value` */
    PICK_INDEX, /* number `value` */
    PICK_FIRST,
    PICK_LAST,
    PICK_LEAST, /* the least of all rows */
    PICK_MOST,
    PICK_SUM
};

/* Where a figure stands in the result of each round. */
struct place {
    const char *bench;
    const char *path; /* members from the result or row on: "latency_ns.p50" */
    enum pick pick;
    const char *array;
    const char *key;
    double value;
};

struct figure results_figure(struct results *results, const struct place *place);
/* The text at a place, in the first round that has one; NULL: none. */
const char *results_text(struct results *results, const struct place *place);
/* The text or whole number of a member of the root, "machine.cpu"; out is returned. */
const char *results_about(struct results *results, const char *path, char *out, size_t size);
bool results_flag(struct results *results, const char *path);

/* The different values that key has in the rows of an array, ascending: how many, at most
 * RESULTS_ROWS_MAX. */
unsigned results_keys(struct results *results, const char *bench, const char *array,
                      const char *key, double *keys_out);
/* How many rows the longest of the rounds' arrays has, at most RESULTS_ROWS_MAX. */
unsigned results_rows(struct results *results, const char *bench, const char *array);
/* The numbers of an array, of the first round that has it; returns how many. */
unsigned results_timeline(struct results *results, const char *bench, const char *array,
                          double *values_out, unsigned most);

/* A bench of the suite, as it went. */
struct run {
    const char *name;
    const char *command;
    unsigned rounds, failed;
    double seconds;        /* of all rounds */
    const char *error;     /* the first one, or NULL */
    const json_t *options; /* of the first result, or NULL */
};
size_t results_runs(const struct results *results);
struct run results_run(const struct results *results, size_t index);

#endif
