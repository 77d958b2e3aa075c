/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.h: latencies in logarithmic buckets, in the manner of HdrHistogram (Debian has no
 * C package of it).
 *
 * Values below 64 have a bucket each; above, every power of two is cut in 32 equal parts, so
 * a value read back is at most 1/32 (3.1 %) above what was put in, and never below. The
 * maximum is exact. Fixed size, no allocation, any uint64_t. */
#ifndef TOOL_HISTOGRAM_H
#define TOOL_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_PARTS   32
#define HISTOGRAM_BUCKETS (60 * HISTOGRAM_PARTS)

struct histogram {
    uint64_t count;
    uint64_t max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The value that `permille_tenths` / 10,000 of all values do not exceed: 5,000 is the median,
 * 9,990 p99.9. 0 when empty; never above max. */
uint64_t histogram_quantile(const struct histogram *histogram, unsigned permille_tenths);

#endif
