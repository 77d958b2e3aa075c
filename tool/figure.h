/* SPDX-License-Identifier: Apache-2.0 */
/* figure.h: one measured quantity over the rounds of a suite: its text, its spread, and whether two
 * of them differ by more than that. */
#ifndef TOOL_FIGURE_H
#define TOOL_FIGURE_H

/* More than anything that is measured: a number beyond it is a file's mistake. */
#define FIGURE_MOST 1e21

enum unit {
    UNIT_RATE,    /* bytes a second */
    UNIT_PER_S,   /* operations a second */
    UNIT_NS,      /* a time */
    UNIT_MS,      /* a time */
    UNIT_S,       /* a time */
    UNIT_SHARE,   /* 1 is 100 % */
    UNIT_LIMIT,   /* of a limit: 1 is 100 %; no text tells more than REPORT_SHARE_MOST */
    UNIT_PERCENT, /* 100 is 100 % */
    UNIT_BYTES,
    UNIT_NUMBER
};

enum better { BETTER_MORE, BETTER_LESS, BETTER_NEITHER };

struct figure {
    unsigned rounds; /* that have it; 0: it was not measured */
    double median;   /* of an even number of rounds the lower of the two in the middle */
    double least, most;
};

/* Ascending. */
void figure_sort(double *values, unsigned count);

/* Sorts values. */
struct figure figure_of(double *values, unsigned count);

/* "28.1 GB/s", "1.23 us", "93.1 %", "64 KiB"; out has at least 32 bytes. */
const char *figure_text(enum unit unit, double value, char *out);
/* "±2.1 %", half of the distance between the least and the most as a share of the median; empty
 * when there is only one round, or all are alike. out has at least 32 bytes. */
const char *figure_spread_text(const struct figure *figure, char *out);

enum verdict { VERDICT_SAME, VERDICT_BETTER, VERDICT_WORSE, VERDICT_OTHER };

/* Of the second against the first: SAME unless the medians differ by more than either's least and
 * most do, which takes two rounds of both. OTHER: they differ, and neither is better. */
enum verdict figure_compare(const struct figure *first, const struct figure *second,
                            enum better better);
/* "+12 %", the second median against the first; empty when that says nothing. out has at least
 * 32 bytes. */
const char *figure_change_text(const struct figure *first, const struct figure *second, char *out);

#endif
