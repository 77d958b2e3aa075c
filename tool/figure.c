/* SPDX-License-Identifier: Apache-2.0 */
/* figure.c: see figure.h. */
#include "figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "options.h"
#include "report.h"

static int value_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void figure_sort(double *values, unsigned count) {
    qsort(values, count, sizeof(values[0]), value_compare);
}

struct figure figure_of(double *values, unsigned count) {
    if (count == 0)
        return (struct figure){.rounds = 0};
    figure_sort(values, count);
    return (struct figure){.rounds = count,
                           .median = values[(count - 1) / 2],
                           .least = values[0],
                           .most = values[count - 1]};
}

/* Three digits and the unit that suits them. */
static const char *scaled_text(double value, const char *const *units, unsigned unit_count,
                               char *out) {
    unsigned unit = 0;

    while (unit + 1 < unit_count && value >= 999.5) {
        value /= 1000;
        unit++;
    }
    snprintf(out, 32, value < 999.5 ? "%.3g %s" : "%.0f %s", value, units[unit]);
    return out;
}

const char *figure_text(enum unit unit, double value, char *out) {
    static const char *const times[] = {"ns", "us", "ms", "s"};
    static const char *const counts[] = {"/s", "k/s", "M/s", "G/s", "T/s"};

    switch (unit) {
    case UNIT_RATE:
        return report_rate_text(value, out);
    case UNIT_NS:
        return scaled_text(value, times, 4, out);
    case UNIT_MS:
        return scaled_text(value * 1e6, times, 4, out);
    case UNIT_S:
        return scaled_text(value * 1e9, times, 4, out);
    case UNIT_BYTES:
        if (value >= 0 && value < 0x1p63)
            return options_size_text((uint64_t)value, out);
        snprintf(out, 32, "%.3g B", value);
        return out;
    case UNIT_PER_S:
        return scaled_text(value, counts, 5, out);
    case UNIT_PERCENT:
        snprintf(out, 32, "%.4g %%", value);
        return out;
    case UNIT_LIMIT:
        if (value > REPORT_SHARE_MOST) {
            snprintf(out, 32, "over %d %%", 100 * REPORT_SHARE_MOST);
            return out;
        }
        return figure_text(UNIT_SHARE, value, out);
    case UNIT_SHARE:
        value *= 100;
        if (fabs(value) < 0.005) /* and not -0.00 */
            value = 0;
        snprintf(out, 32, "%.*f %%", fabs(value) < 9.995 ? 2 : fabs(value) < 999.5 ? 1 : 0, value);
        return out;
    case UNIT_NUMBER:
        break;
    }
    snprintf(out, 32, fabs(value) < 1e9 && value == floor(value) ? "%.0f" : "%.4g", value);
    return out;
}

const char *figure_spread_text(const struct figure *figure, char *out) {
    double share = (figure->most - figure->least) / 2 / fabs(figure->median);

    out[0] = '\0';
    if (figure->rounds > 1 && isfinite(share) && figure->most > figure->least)
        snprintf(out, 32, "\302\261%.*f %%", share < 0.0995 ? 1 : 0, 100 * share);
    return out;
}

enum verdict figure_compare(const struct figure *first, const struct figure *second,
                            enum better better) {
    double difference = second->median - first->median;
    double spread = fmax(first->most - first->least, second->most - second->least);

    if (first->rounds < 2 || second->rounds < 2 || fabs(difference) <= spread)
        return VERDICT_SAME;
    if (better == BETTER_NEITHER)
        return VERDICT_OTHER;
    return (difference > 0) == (better == BETTER_MORE) ? VERDICT_BETTER : VERDICT_WORSE;
}

const char *figure_change_text(const struct figure *first, const struct figure *second, char *out) {
    double change = (second->median - first->median) / fabs(first->median);

    out[0] = '\0';
    if (first->rounds > 0 && second->rounds > 0 && isfinite(change))
        snprintf(out, 32, "%+.*f\302\240%%", fabs(change) < 0.0995 ? 1 : 0, 100 * change);
    return out;
}
