/* SPDX-License-Identifier: Apache-2.0 */
/* machine_limits.h: the best that this machine does without weir, measured with the plainest loop
 * that can do it. Benches state their results as fractions of these. */
#ifndef TOOL_MACHINE_LIMITS_H
#define TOOL_MACHINE_LIMITS_H

#include <stdint.h>

#include "options.h"

enum copy_kind {
    COPY_MEMCPY = 0, /* the C library's */
    COPY_STREAM,     /* non-temporal stores; only where limits_has_stream() */
    COPY_VECTOR,     /* the widest plain loads and stores; only where limits_has_vector() */
    COPY_KINDS
};

/* A yardstick for one result. */
struct limit {
    char name[128];
    double bytes_per_s;        /* 0: not a rate */
    double memcpy_bytes_per_s; /* of the C library's copy alone; 0: not a copy */
    double latency_ns;         /* 0: not a latency */
};

int limits_has_stream(void);
int limits_has_vector(void);

/* Which of the places in its buffers a copy takes: the next one, or any. */
enum copy_order { COPY_IN_TURN = 0, COPY_RANDOM };

/* Bytes per second of copying `size` bytes at a time, by `threads` threads at once, for
 * duration_ns, between places, aligned to 64, of two buffers of span bytes, shared out among
 * the threads; of one place each when span is less. The median of slices of 10 ms. 0: no memory. */
double limits_copy(enum copy_kind kind, enum copy_order order, uint64_t size, uint64_t span,
                   unsigned threads, uint64_t duration_ns);

/* The same of process_vm_writev(2) into a child process, `pieces` of `size` with one call, at
 * most LIMITS_PIECES; one thread, same buffers. 0: not permitted or no memory. */
#define LIMITS_PIECES 256
double limits_vm_write(uint64_t size, unsigned pieces, uint64_t duration_ns);

/* Half the median round trip of a cache line between two CPUs, in ns; 0: only one CPU. */
double limits_line(uint64_t duration_ns);

/* The yardstick of copying in that order: the best of the copies (non-temporal when random, or
 * of 256 KiB and more; vector in turn, from 256 B on; memcpy always), or process_vm_writev for
 * memory that the target did not share, with as many pieces to a call as a transfer has. */
struct limit limits_of_copy(enum copy_order order, uint64_t size, uint64_t span, unsigned threads,
                            enum memory_kind memory, uint64_t pieces);

/* A limit measured before a result and one measured after it: other work of the
 * machine may have held up either, so the result is compared with the better one. */
void limit_raise(struct limit *limit, const struct limit *after);
struct limit limits_of_latency(void);

#endif
