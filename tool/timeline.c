/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c: see timeline.h. */
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 1024

void timeline_begin(struct timeline *timeline, uint64_t step_ns) {
    *timeline = (struct timeline){.step_ns = step_ns};
}

void timeline_free(struct timeline *timeline) {
    free(timeline->steps);
    timeline_begin(timeline, timeline->step_ns);
}

/* ---- steps -------------------------------------------------------------- */

int timeline_reach(struct timeline *timeline, uint64_t at_ns) {
    uint64_t count = at_ns / timeline->step_ns + 1, room = timeline->room;
    uint64_t *steps;

    if (count <= timeline->count)
        return 0;
    if (count > room) {
        for (room = room == 0 ? ROOM_FIRST : room; room < count;)
            room *= 2;
        steps = realloc(timeline->steps, room * sizeof(*steps));
        if (steps == NULL)
            return -1;
        timeline->steps = steps;
        timeline->room = room;
    }
    memset(timeline->steps + timeline->count, 0,
           (count - timeline->count) * sizeof(*timeline->steps));
    timeline->count = count;
    return 0;
}

int timeline_add(struct timeline *timeline, uint64_t at_ns, uint64_t bytes) {
    if (timeline_reach(timeline, at_ns) != 0)
        return -1;
    timeline->steps[at_ns / timeline->step_ns] += bytes;
    return 0;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

int timeline_median(const struct timeline *timeline, uint64_t from_ns, uint64_t to_ns,
                    uint64_t *median_out) {
    uint64_t step_ns = timeline->step_ns;
    uint64_t first = (from_ns + step_ns - 1) / step_ns, end = to_ns / step_ns, count;
    uint64_t *sorted;

    *median_out = 0;
    end = end < timeline->count ? end : timeline->count;
    if (first >= end)
        return 0;
    count = end - first;
    sorted = malloc(count * sizeof(*sorted));
    if (sorted == NULL)
        return -1;
    memcpy(sorted, timeline->steps + first, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    *median_out = sorted[(count - 1) / 2];
    free(sorted);
    return 0;
}

/* ---- outages ------------------------------------------------------------ */

void outage_begin(struct outage *outage, uint64_t at_ns) {
    *outage = (struct outage){.at_ns = at_ns, .last_ns = at_ns, .gap_end_ns = at_ns};
}

void outage_completion(struct outage *outage, uint64_t at_ns) {
    if (outage->closed)
        return;
    if (at_ns - outage->last_ns > outage->gap_ns) {
        outage->gap_ns = at_ns - outage->last_ns;
        outage->gap_end_ns = at_ns;
    }
    outage->last_ns = at_ns;
    outage->closed = outage->over;
}

void outage_over(struct outage *outage) {
    outage->over = true;
}

uint64_t timeline_back(const struct timeline *timeline, const struct outage *outage,
                       uint64_t median) {
    if (!outage->closed || median == 0)
        return UINT64_MAX;
    for (uint64_t i = outage->gap_end_ns / timeline->step_ns; i < timeline->count; i++) {
        uint64_t start_ns = i * timeline->step_ns;
        if ((double)timeline->steps[i] * 100 < (double)median * TIMELINE_BACK)
            continue;
        return (start_ns > outage->gap_end_ns ? start_ns : outage->gap_end_ns) - outage->at_ns;
    }
    return UINT64_MAX;
}

/* ---- a drawing ---------------------------------------------------------- */

#define LEVELS 9

static const char *const ascii[LEVELS] = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};
/* U+2581 to U+2588: the lower eighth of a block to all of it. */
static const char *const blocks[LEVELS] = {" ",
                                           "\xe2\x96\x81",
                                           "\xe2\x96\x82",
                                           "\xe2\x96\x83",
                                           "\xe2\x96\x84",
                                           "\xe2\x96\x85",
                                           "\xe2\x96\x86",
                                           "\xe2\x96\x87",
                                           "\xe2\x96\x88"};

static unsigned drawn(const struct timeline *timeline, unsigned columns) {
    return timeline->count < columns ? (unsigned)timeline->count : columns;
}

/* The mean of the steps that a column stands for. */
static double mean_of(const struct timeline *timeline, unsigned column, unsigned columns) {
    uint64_t first = column * timeline->count / columns;
    uint64_t end = (column + 1) * timeline->count / columns;
    double sum = 0;

    for (uint64_t i = first; i < end; i++)
        sum += (double)timeline->steps[i];
    return sum / (double)(end - first);
}

unsigned timeline_draw(const struct timeline *timeline, unsigned columns,
                       enum timeline_letters letters, char *out) {
    const char *const *letter = letters == TIMELINE_BLOCKS ? blocks : ascii;
    unsigned count = drawn(timeline, columns);
    double most = 0;

    for (unsigned i = 0; i < count; i++) {
        double mean = mean_of(timeline, i, count);
        most = mean > most ? mean : most;
    }
    for (unsigned i = 0; i < count; i++) {
        double mean = mean_of(timeline, i, count);
        unsigned level = mean > 0 ? 1 + (unsigned)(mean / most * (LEVELS - 2)) : 0;
        size_t length = strlen(letter[level]);
        memcpy(out, letter[level], length);
        out += length;
    }
    *out = '\0';
    return count;
}

unsigned timeline_column(const struct timeline *timeline, unsigned columns, uint64_t at_ns) {
    uint64_t count = drawn(timeline, columns), step = at_ns / timeline->step_ns;

    if (count == 0)
        return 0;
    step = step < timeline->count ? step : timeline->count - 1;
    /* The inverse of mean_of: the last column that begins at or before the step. */
    return (unsigned)(((step + 1) * count - 1) / timeline->count);
}
