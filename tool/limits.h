/* limits.h: what this machine does at best without weir, measured with the plainest loop that
 * can do it. Benches state their results as fractions of these. */
#ifndef TOOL_LIMITS_H
#define TOOL_LIMITS_H

#include <stdint.h>

enum copy_kind {
    COPY_MEMCPY = 0, /* the C library's */
    COPY_STREAM      /* non-temporal stores; only where limits_has_stream() */
};

/* A yardstick for one result. */
struct limit {
    char name[128];
    double bytes_per_s; /* 0: not a rate */
    double latency_ns;  /* 0: not a latency */
};

int limits_has_stream(void);

/* Bytes per second of copying `size` bytes at a time, by `threads` threads at once, for
 * duration_ns. span 0: always between the same two buffers; otherwise between random places,
 * aligned to 64, of two buffers of span bytes, shared out among the threads. 0: no memory. */
double limits_copy(enum copy_kind kind, uint64_t size, uint64_t span, unsigned threads,
                   uint64_t duration_ns);

/* The same of process_vm_writev(2) into a child process; one thread, same buffers. 0: not
 * permitted or no memory. */
double limits_vm_write(uint64_t size, uint64_t duration_ns);

/* Half the median round trip of a cache line between two CPUs, in ns; 0: only one CPU. */
double limits_line(uint64_t duration_ns);

/* The yardstick of copying: the better of both copies (both when cold, or of 256 KiB and more;
 * memcpy alone below), or process_vm_writev for memory that the target did not share. */
struct limit limits_of_copy(uint64_t size, uint64_t span, unsigned threads, int own_memory);
struct limit limits_of_latency(void);

#endif
