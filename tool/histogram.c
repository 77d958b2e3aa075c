/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.c: see histogram.h. */
#include "histogram.h"

#include <assert.h>

/* Above 63 the highest bit and the five below it name the bucket: value >> shift is 32..63,
 * and each further shift continues 32 buckets on. */
static unsigned bucket_of(uint64_t value) {
    unsigned shift;

    if (value < 2 * HISTOGRAM_PARTS)
        return (unsigned)value;
    shift = 63u - (unsigned)__builtin_clzll(value) - 5u;
    return shift * HISTOGRAM_PARTS + (unsigned)(value >> shift);
}

/* The largest value that falls into a bucket. */
static uint64_t bucket_top(unsigned bucket) {
    unsigned shift;

    if (bucket < 2 * HISTOGRAM_PARTS)
        return bucket;
    shift = bucket / HISTOGRAM_PARTS - 1;
    return (((uint64_t)(bucket - shift * HISTOGRAM_PARTS) + 1) << shift) - 1;
}

void histogram_add(struct histogram *histogram, uint64_t value) {
    histogram->buckets[bucket_of(value)]++;
    histogram->count++;
    if (value > histogram->max)
        histogram->max = value;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    if (from->max > into->max)
        into->max = from->max;
}

uint64_t histogram_quantile(const struct histogram *histogram, unsigned permille_tenths) {
    uint64_t rank, seen = 0;

    assert(permille_tenths <= 10000);
    if (histogram->count == 0)
        return 0;
    /* count stays far below 2^64 / 10,000: one addition a nanosecond for 20 days. */
    rank = (histogram->count * permille_tenths + 9999) / 10000;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank && seen > 0)
            return bucket_top(i) < histogram->max ? bucket_top(i) : histogram->max;
    }
    return histogram->max;
}
