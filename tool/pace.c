/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c: see pace.h. A double holds each due time to the nanosecond for 100 days. */
#include "pace.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Digits and at most one point, and the powers of 1000 of a letter behind them. False: not a
 * number, or something behind it. */
static bool parse_number(const char *text, size_t length, bool *scaled_out, double *value_out) {
    static const char letters[] = "KMGT";
    size_t digits = strspn(text, "0123456789.");
    char *end;

    *value_out = strtod(text, &end);
    *scaled_out = false;
    if (digits == 0 || end != text + digits)
        return false;
    if (digits < length) {
        const char *letter = strchr(letters, text[digits]);
        if (letter == NULL)
            return false;
        for (const char *l = letters; l <= letter; l++)
            *value_out *= 1000;
        *scaled_out = true;
        digits++;
    }
    return digits == length && isfinite(*value_out);
}

static const char *parse_one(const char *text, size_t length, struct pace_target *target) {
    bool percent = length > 0 && text[length - 1] == '%', scaled;
    double value;

    if (!parse_number(text, length - percent, &scaled, &value) || (percent && scaled))
        return "neither a percentage nor a rate such as 10G";
    if (scaled && value < 1)
        return "a rate below 1 byte a second";
    if (!scaled && (value <= 0 || value > 100))
        return "a percentage is above 0 and at most 100; a rate ends in K, M, G or T";
    *target = scaled ? (struct pace_target){.bytes_per_s = value}
                     : (struct pace_target){.percent = value};
    return NULL;
}

const char *pace_parse(const char *list, struct pace_target targets[PACE_TARGETS_MAX],
                       unsigned *count_out, const char **bad_out, int *length_out) {
    unsigned count = 0;

    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        const char *error =
            count == PACE_TARGETS_MAX ? "too many loads" : parse_one(at, length, &targets[count]);
        if (error != NULL) {
            *bad_out = at;
            *length_out = (int)length;
            return error;
        }
        count++;
        at += length;
        if (*at == '\0')
            break;
    }
    *count_out = count;
    return NULL;
}

struct pace pace_plan(uint64_t bytes, double bytes_per_s, double seconds) {
    struct pace pace = {.period_ns = (double)bytes * 1e9 / bytes_per_s};
    double count = seconds * 1e9 / pace.period_ns;

    pace.count = count < PACE_LEAST ? PACE_LEAST : (uint64_t)count;
    return pace;
}
