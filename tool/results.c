/* SPDX-License-Identifier: Apache-2.0 */
/* results.c: see results.h. Each look at a file goes through member_of and number_of, which know
 * what is odd. */
#include "results.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "host.h"

#define NAME_MAX_LENGTH 64 /* of a member */

/* Keeps the first thing that is odd. */
static void odd(struct results *results, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void odd(struct results *results, const char *format, ...) {
    va_list arguments;

    if (results->odd[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(results->odd, sizeof(results->odd), format, arguments);
    va_end(arguments);
}

int results_verdict(const struct results *results) {
    return results->odd[0] == '\0' ? 0 : complain("%s: %s", results->path, results->odd);
}

struct results results_of(json_t *root, const char *path) {
    return (struct results){.path = path, .root = json_incref(root)};
}

void results_free(struct results *results) {
    json_decref(results->root);
    results->root = NULL;
}

/* ---- looks -------------------------------------------------------------- */

/* Follows the path of members; NULL: one is not there, or null, or odd. */
static const json_t *member_of(struct results *results, const char *bench, const json_t *from,
                               const char *path) {
    const char *at = path;

    while (from != NULL && !json_is_null(from)) {
        size_t length = strcspn(at, ".");
        char name[NAME_MAX_LENGTH];

        if (!json_is_object(from)) {
            odd(results, "%s: what has the member %s is no object", bench, path);
            return NULL;
        }
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        from = json_object_get(from, name);
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    return json_is_null(from) ? NULL : from;
}

/* Whether it is a number that can have been measured. */
static bool number_of(struct results *results, const char *bench, const char *path,
                      const json_t *json, double *value_out) {
    if (json == NULL || json_is_null(json))
        return false;
    if (!json_is_number(json)) {
        odd(results, "%s: %s is no number", bench, path);
        return false;
    }
    *value_out = json_number_value(json);
    if (fabs(*value_out) <= FIGURE_MOST)
        return true;
    odd(results, "%s: %s is %g", bench, path, *value_out);
    return false;
}

static bool number_at(struct results *results, const char *bench, const json_t *from,
                      const char *path, double *value_out) {
    return number_of(results, bench, path, member_of(results, bench, from, path), value_out);
}

/* The rounds of a bench; NULL: it is not in the file. */
static const json_t *rounds_of(const struct results *results, const char *bench) {
    const json_t *benches = json_object_get(results->root, "benches"), *one;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)benches, i, one) {
        if (strcmp(json_string_value(json_object_get(one, "name")), bench) == 0)
            return json_object_get(one, "rounds");
    }
    return NULL;
}

/* The array of a result; NULL: none. */
static const json_t *array_of(struct results *results, const char *bench, const json_t *result,
                              const char *array) {
    const json_t *rows = member_of(results, bench, result, array);

    if (rows == NULL || json_is_array(rows))
        return rows;
    odd(results, "%s: %s is no array", bench, array);
    return NULL;
}

/* ---- figures ------------------------------------------------------------ */

/* The row that a place picks by its key or its number; NULL: none. */
static const json_t *row_of(struct results *results, const struct place *place,
                            const json_t *rows) {
    size_t count = json_array_size(rows);
    double value;

    switch (place->pick) {
    case PICK_FIRST:
        return json_array_get(rows, 0);
    case PICK_LAST:
        return count == 0 ? NULL : json_array_get(rows, count - 1);
    case PICK_INDEX:
        return json_array_get(rows, (size_t)place->value);
    case PICK_KEY:
        for (size_t i = 0; i < count; i++) {
            const json_t *row = json_array_get(rows, i);
            if (number_at(results, place->bench, row, place->key, &value) &&
                fabs(value - place->value) <= 1e-9 * fabs(value))
                return row;
        }
        break;
    case PICK_RESULT:
    case PICK_LEAST:
    case PICK_MOST:
    case PICK_SUM:
        break;
    }
    return NULL;
}

/* One figure of all rows. */
static bool reduce(struct results *results, const struct place *place, const json_t *rows,
                   double *value_out) {
    double value;
    bool any = false;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (!number_at(results, place->bench, json_array_get(rows, i), place->path, &value))
            continue;
        if (!any)
            *value_out = value;
        else if (place->pick == PICK_SUM)
            *value_out += value;
        else if (place->pick == PICK_LEAST ? value < *value_out : value > *value_out)
            *value_out = value;
        any = true;
    }
    return any;
}

/* The member of one round's result. */
static bool value_in(struct results *results, const struct place *place, const json_t *result,
                     double *value_out) {
    const json_t *rows;

    if (place->pick == PICK_RESULT)
        return number_at(results, place->bench, result, place->path, value_out);
    rows = array_of(results, place->bench, result, place->array);
    if (place->pick >= PICK_LEAST)
        return reduce(results, place, rows, value_out);
    return number_at(results, place->bench, row_of(results, place, rows), place->path, value_out);
}

struct figure results_figure(struct results *results, const struct place *place) {
    const json_t *rounds = rounds_of(results, place->bench);
    double values[RESULTS_ROUNDS_MAX];
    unsigned count = 0;

    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *result = json_object_get(json_array_get(rounds, i), "result");
        count += value_in(results, place, result, &values[count]);
    }
    return figure_of(values, count);
}

const char *results_text(struct results *results, const struct place *place) {
    const json_t *rounds = rounds_of(results, place->bench);

    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *from = json_object_get(json_array_get(rounds, i), "result");
        if (place->pick != PICK_RESULT)
            from = row_of(results, place, array_of(results, place->bench, from, place->array));
        from = member_of(results, place->bench, from, place->path);
        if (json_is_string(from))
            return json_string_value(from);
        if (from != NULL)
            odd(results, "%s: %s is no string", place->bench, place->path);
    }
    return NULL;
}

/* ---- rows --------------------------------------------------------------- */

unsigned results_keys(struct results *results, const char *bench, const char *array,
                      const char *key, double *keys_out) {
    const json_t *rounds = rounds_of(results, bench);
    unsigned count = 0, kept = 0;

    /* The first round that has rows: the others ran the same command. */
    for (size_t i = 0; count == 0 && i < json_array_size(rounds); i++) {
        const json_t *result = json_object_get(json_array_get(rounds, i), "result");
        const json_t *rows = array_of(results, bench, result, array);
        for (size_t j = 0; j < json_array_size(rows) && count < RESULTS_ROWS_MAX; j++)
            count += number_at(results, bench, json_array_get(rows, j), key, &keys_out[count]);
    }
    figure_sort(keys_out, count);
    for (unsigned i = 0; i < count; i++) {
        if (kept == 0 || keys_out[i] > keys_out[kept - 1])
            keys_out[kept++] = keys_out[i];
    }
    return kept;
}

unsigned results_rows(struct results *results, const char *bench, const char *array) {
    const json_t *rounds = rounds_of(results, bench);
    size_t most = 0;

    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *result = json_object_get(json_array_get(rounds, i), "result");
        size_t count = json_array_size(array_of(results, bench, result, array));
        most = count > most ? count : most;
    }
    return most < RESULTS_ROWS_MAX ? (unsigned)most : RESULTS_ROWS_MAX;
}

unsigned results_timeline(struct results *results, const char *bench, const char *array,
                          double *values_out, unsigned most) {
    const json_t *rounds = rounds_of(results, bench);
    unsigned count = 0;

    for (size_t i = 0; count == 0 && i < json_array_size(rounds); i++) {
        const json_t *result = json_object_get(json_array_get(rounds, i), "result");
        const json_t *values = array_of(results, bench, result, array);
        for (size_t j = 0; j < json_array_size(values) && count < most; j++) {
            if (!number_of(results, bench, array, json_array_get(values, j), &values_out[count]))
                values_out[count] = 0;
            count++;
        }
    }
    return count;
}

/* ---- about -------------------------------------------------------------- */

const char *results_about(struct results *results, const char *path, char *out, size_t size) {
    const json_t *json = member_of(results, "the file", results->root, path);

    out[0] = '\0';
    if (json_is_string(json))
        snprintf(out, size, "%s", json_string_value(json));
    else if (json_is_integer(json))
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
    else if (json != NULL)
        odd(results, "%s is neither a string nor a whole number", path);
    return out;
}

bool results_flag(struct results *results, const char *path) {
    return json_is_true(member_of(results, "the file", results->root, path));
}

size_t results_runs(const struct results *results) {
    return json_array_size(json_object_get(results->root, "benches"));
}

struct run results_run(const struct results *results, size_t index) {
    const json_t *bench = json_array_get(json_object_get(results->root, "benches"), index);
    const json_t *rounds = json_object_get(bench, "rounds");
    struct run run = {.name = json_string_value(json_object_get(bench, "name")),
                      .command = json_string_value(json_object_get(bench, "command")),
                      .rounds = (unsigned)json_array_size(rounds)};

    for (size_t i = 0; i < run.rounds; i++) {
        const json_t *round = json_array_get(rounds, i);
        const json_t *options = json_object_get(json_object_get(round, "result"), "options");
        if (json_integer_value(json_object_get(round, "status")) != 0) {
            run.failed++;
            if (run.error == NULL)
                run.error = json_string_value(json_object_get(round, "error"));
        }
        if (run.options == NULL && json_is_object(options))
            run.options = options;
        run.seconds += json_number_value(json_object_get(round, "seconds"));
    }
    return run;
}

/* ---- a file ------------------------------------------------------------- */

static int check_round(const char *path, const char *bench, size_t number, const json_t *round) {
    const json_t *seconds = json_object_get(round, "seconds");
    const json_t *status = json_object_get(round, "status");
    const json_t *error = json_object_get(round, "error");
    const json_t *result = json_object_get(round, "result");

    if (!json_is_number(seconds) || json_number_value(seconds) < 0 ||
        json_number_value(seconds) > FIGURE_MOST || !json_is_integer(status))
        return complain("%s: %s, round %zu: no seconds or no status", path, bench, number);
    if (json_integer_value(status) == 0 ? !json_is_object(result) : !json_is_string(error))
        return complain("%s: %s, round %zu: neither a result nor an error", path, bench, number);
    if (result != NULL && !json_is_null(result) && !json_is_object(result))
        return complain("%s: %s, round %zu: its result is no object", path, bench, number);
    return 0;
}

static int check_bench(const char *path, size_t number, const json_t *bench) {
    const char *name = json_string_value(json_object_get(bench, "name"));
    const json_t *rounds = json_object_get(bench, "rounds"), *round;
    size_t i;

    if (name == NULL || json_string_value(json_object_get(bench, "command")) == NULL)
        return complain("%s: bench %zu has no name or no command", path, number);
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz -") != strlen(name) || strlen(name) > 32)
        return complain("%s: bench %zu has a name that is none", path, number);
    if (!json_is_array(rounds) || json_array_size(rounds) > RESULTS_ROUNDS_MAX)
        return complain("%s: %s has no rounds, or more than %d", path, name, RESULTS_ROUNDS_MAX);
    json_array_foreach((json_t *)(uintptr_t)rounds, i, round) {
        if (check_round(path, name, i + 1, round) != 0)
            return -1;
    }
    return 0;
}

/* All that functions of this file take for granted. */
static int check(const struct results *results) {
    const json_t *benches = json_object_get(results->root, "benches"), *bench;
    const json_t *format = json_object_get(results->root, "format");
    size_t i;

    if (!json_is_integer(format) || !json_is_array(benches))
        return complain("%s: not the results of `weir bench all`", results->path);
    if (json_integer_value(format) != RESULTS_FORMAT)
        return complain("%s: results of format %" JSON_INTEGER_FORMAT ", and this is %d",
                        results->path, json_integer_value(format), RESULTS_FORMAT);
    if (json_array_size(benches) > RESULTS_BENCHES_MAX)
        return complain("%s: more than %d benches", results->path, RESULTS_BENCHES_MAX);
    json_array_foreach((json_t *)(uintptr_t)benches, i, bench) {
        if (check_bench(results->path, i + 1, bench) != 0)
            return -1;
    }
    return 0;
}

int results_load(struct results *results, const char *path) {
    json_error_t error;

    *results = (struct results){.path = path};
    results->root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (results->root == NULL) {
        for (char *at = error.text; *at != '\0'; at++) /* it may quote the file */
            *at = *at < ' ' || *at > '~' ? '?' : *at;
        return error.line > 0 ? complain("%s: line %d: %s", path, error.line, error.text)
                              : complain("%s", error.text);
    }
    return check(results);
}
