/* SPDX-License-Identifier: Apache-2.0 */
/* machine_limits.c: see machine_limits.h. Every loop looks at the clock once a batch: of copies 1
 * MiB, but one at least and 4096 at most; 16 calls of process_vm_writev; 16 round trips of a line.
 * It ends at the first batch past its time that leaves enough slices. A rate is that of the median
 * slice of SLICE_NS: other work of the machine slows some slices, and a few slices are lucky, as no
 * run as long as a result's is. */
#define _GNU_SOURCE
#include "machine_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "histogram.h"
#include "host.h"
#include "options.h"

#define BATCH_BYTES   (1u << 20)
#define BATCH_OPS_MAX 4096
#define LIMIT_NS      (50 * NS_PER_MS)
#define STREAM_FROM   (256u << 10)
#define VECTOR_FROM   256u
/* So many slices at least: a copy that takes longer than LIMIT_NS would else be measured once. */
#define SLICES_LEAST 3
#define SLICES_MOST  64 /* later ones are not looked at */
#define SLICE_NS     (10 * NS_PER_MS)

/* The rates of the slices so far; a bench's loop feeds it after each batch. */
struct slices {
    uint64_t start_ns;
    uint64_t bytes;
    double rates[SLICES_MOST];
    unsigned count;
};

static void slices_add(struct slices *slices, uint64_t now, uint64_t bytes) {
    uint64_t took = now - slices->start_ns;

    slices->bytes += bytes;
    if (took < SLICE_NS || slices->count == SLICES_MOST)
        return;
    slices->rates[slices->count++] = (double)slices->bytes * 1e9 / (double)took;
    slices->start_ns = now;
    slices->bytes = 0;
}

static int rate_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Of an even number the lower one of the two in the middle; 0: there was none. */
static double slices_median(struct slices *slices) {
    qsort(slices->rates, slices->count, sizeof(slices->rates[0]), rate_compare);
    return slices->count == 0 ? 0 : slices->rates[(slices->count - 1) / 2];
}

int limits_has_stream(void) {
#if defined(__x86_64__)
    return 1;
#else
    return 0;
#endif
}

int limits_has_vector(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return 0;
#endif
}

static uint64_t batch_of(uint64_t size) {
    uint64_t batch = BATCH_BYTES / size;

    return batch == 0 ? 1 : batch > BATCH_OPS_MAX ? BATCH_OPS_MAX : batch;
}

/* ---- copies ------------------------------------------------------------ */

/* The destination is 64-byte aligned (copy_loop sees to that), the source any way. Reads a page
 * ahead, which cannot fault: of the loops that were tried, the best on cold memory. */
static void copy_stream(unsigned char *to, const unsigned char *from, uint64_t size) {
    uint64_t at = 0;

#if defined(__x86_64__)
    for (; at + 64 <= size; at += 64) {
        _mm_prefetch((const char *)from + at + 4096, _MM_HINT_NTA);
        for (unsigned i = 0; i < 64; i += 16) {
            __m128i piece = _mm_loadu_si128((const __m128i *)(const void *)(from + at + i));
            _mm_stream_si128((__m128i *)(void *)(to + at + i), piece);
        }
    }
    _mm_sfence();
#endif
    memcpy(to + at, from + at, size - at);
}

#if defined(__x86_64__)
__attribute__((target("avx512f")))
#endif
static void
copy_vector(unsigned char *to, const unsigned char *from, uint64_t size) {
    uint64_t at = 0;

#if defined(__x86_64__)
    for (; at + 256 <= size; at += 256) {
        __m512i a = _mm512_loadu_si512(from + at), b = _mm512_loadu_si512(from + at + 64);
        __m512i c = _mm512_loadu_si512(from + at + 128), d = _mm512_loadu_si512(from + at + 192);
        _mm512_storeu_si512(to + at, a);
        _mm512_storeu_si512(to + at + 64, b);
        _mm512_storeu_si512(to + at + 128, c);
        _mm512_storeu_si512(to + at + 192, d);
    }
#endif
    memcpy(to + at, from + at, size - at);
}

/* Through a volatile pointer, or the compiler would inline it for some sizes and drop it. */
static void *(*volatile copy_memcpy)(void *, const void *, size_t) = memcpy;

struct copier {
    pthread_t thread;
    enum copy_kind kind;
    enum copy_order order;
    int cpu;
    uint64_t size;
    uint64_t places; /* in its share of the buffers */
    uint64_t stride;
    uint64_t duration_ns;
    unsigned char *from;
    unsigned char *to;
    double bytes_per_s;
};

static void *copy_loop(void *argument) {
    struct copier *copier = argument;
    uint64_t batch = batch_of(copier->size), state = (uint64_t)copier->cpu + 1;
    struct slices slices = {.count = 0};
    uint64_t start, now, turn = 0;

    host_pin(copier->cpu);
    start = now = slices.start_ns = host_now_ns();
    while (now - start < copier->duration_ns || slices.count < SLICES_LEAST) {
        for (uint64_t i = 0; i < batch; i++) {
            uint64_t a = turn, b = turn;
            turn =
                turn + copier->stride < copier->places * copier->stride ? turn + copier->stride : 0;
            if (copier->order == COPY_RANDOM) {
                a = random_below(&state, copier->places) * copier->stride;
                b = random_below(&state, copier->places) * copier->stride;
            }
            if (copier->kind == COPY_STREAM)
                copy_stream(copier->to + a, copier->from + b, copier->size);
            else if (copier->kind == COPY_VECTOR)
                copy_vector(copier->to + a, copier->from + b, copier->size);
            else
                copy_memcpy(copier->to + a, copier->from + b, copier->size);
        }
        now = host_now_ns();
        slices_add(&slices, now, batch * copier->size);
    }
    copier->bytes_per_s = slices_median(&slices);
    return NULL;
}

/* The first copier runs on the calling thread, so that one thread needs no other. The others
 * start within some 100 us of it, a thousandth of what they measure. */
static double copy_run(struct copier *copiers, unsigned threads) {
    unsigned started = 1;
    double sum = 0;

    for (; started < threads; started++) {
        if (pthread_create(&copiers[started].thread, NULL, copy_loop, &copiers[started]) != 0)
            break;
    }
    copy_loop(&copiers[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(copiers[i].thread, NULL);
    for (unsigned i = 0; i < started; i++)
        sum += copiers[i].bytes_per_s;
    return started == threads ? sum : 0;
}

double limits_copy(enum copy_kind kind, enum copy_order order, uint64_t size, uint64_t span,
                   unsigned threads, uint64_t duration_ns) {
    uint64_t stride = (size + 63) & ~UINT64_C(63);
    uint64_t places = span / threads / stride > 0 ? span / threads / stride : 1;
    uint64_t bytes = places * stride * threads;
    unsigned char *from = host_map(bytes), *to = host_map(bytes);
    struct copier *copiers = calloc(threads, sizeof(*copiers));
    double rate = 0;

    if (from != NULL && to != NULL && copiers != NULL) {
        memset(from, 1, bytes); /* or all of it would be the one zero page */
        memset(to, 2, bytes);   /* a hypervisor may have to find its pages, however populated */
        for (unsigned i = 0; i < threads; i++)
            copiers[i] = (struct copier){.kind = kind,
                                         .order = order,
                                         .cpu = threads == 1 ? host_cpu(0) : -1,
                                         .size = size,
                                         .places = places,
                                         .stride = stride,
                                         .duration_ns = duration_ns,
                                         .from = from + i * places * stride,
                                         .to = to + i * places * stride};
        rate = copy_run(copiers, threads);
    }
    free(copiers);
    host_unmap(from, bytes);
    host_unmap(to, bytes);
    return rate;
}

/* ---- process_vm_writev -------------------------------------------------- */

/* A child that has touched its copy of the buffer, and sleeps until it is killed. */
static pid_t fork_sleeper(unsigned char *buffer, uint64_t bytes) {
    int ready[2];
    char byte = 0;
    pid_t parent = getpid(), pid;

    if (pipe(ready) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        host_pin(host_cpu(1));
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(buffer, 2, bytes);
        if (getppid() == parent && write(ready[1], &byte, 1) == 1) {
            for (;;)
                pause();
        }
        _exit(EXIT_FAILED);
    }
    close(ready[1]);
    if (pid > 0 && read(ready[0], &byte, 1) != 1) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    close(ready[0]);
    return pid;
}

static double vm_write_loop(pid_t pid, struct iovec *local, struct iovec *remote, unsigned pieces,
                            uint64_t duration_ns) {
    uint64_t start = host_now_ns(), now = start, bytes = pieces * local->iov_len;
    struct slices slices = {.start_ns = start};

    while (now - start < duration_ns || slices.count == 0) {
        /* A batch of 16 hides the clock, and lasts 15 ms or so for the largest sizes. */
        for (unsigned i = 0; i < 16; i++) {
            if (process_vm_writev(pid, local, pieces, remote, pieces, 0) != (ssize_t)bytes)
                return 0;
        }
        now = host_now_ns();
        slices_add(&slices, now, 16 * bytes);
    }
    return slices_median(&slices);
}

double limits_vm_write(uint64_t size, unsigned pieces, uint64_t duration_ns) {
    unsigned char *from = host_map(size), *to = host_map(size);
    struct iovec local[LIMITS_PIECES], remote[LIMITS_PIECES];
    double rate = 0;
    pid_t pid = -1;

    for (unsigned i = 0; i < pieces; i++) {
        local[i] = (struct iovec){.iov_base = from, .iov_len = size};
        remote[i] = (struct iovec){.iov_base = to, .iov_len = size};
    }
    if (from != NULL && to != NULL) {
        memset(from, 1, size);
        pid = fork_sleeper(to, size);
    }
    if (pid > 0) {
        host_pin(host_cpu(0));
        rate = vm_write_loop(pid, local, remote, pieces, duration_ns);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    host_unmap(from, size);
    host_unmap(to, size);
    return rate;
}

/* ---- a cache line ------------------------------------------------------- */

/* One word goes and comes on one line, or each way has a line of its own; the looks at it pause
 * or do not. Which is fastest differs from CPU to CPU. */
struct line {
    _Alignas(128) atomic_uint_fast64_t words[32]; /* [0] going; [0] or [16] coming back */
    _Alignas(128) int cpu;
    unsigned back;
    bool relax;
};

#define LINE_END UINT64_MAX

/* The word's value once it is no longer `old`. */
static uint64_t line_look(const struct line *line, unsigned word, uint64_t old) {
    uint64_t seen;

    while ((seen = atomic_load_explicit(&line->words[word], memory_order_acquire)) == old) {
        if (line->relax)
            host_relax();
    }
    return seen;
}

static void *line_partner(void *argument) {
    struct line *line = argument;
    uint64_t seen = 0;

    host_pin(line->cpu);
    while ((seen = line_look(line, 0, seen)) != LINE_END) {
        if (line->back == 0)
            seen++; /* the word that goes back is the next that we see */
        atomic_store_explicit(&line->words[line->back], seen, memory_order_release);
    }
    return NULL;
}

/* One way, in ns; 0: no second CPU. */
static double line_measure(unsigned back, bool relax, struct histogram *trips,
                           uint64_t duration_ns) {
    struct line line = {.cpu = host_cpu(1), .back = back, .relax = relax};
    uint64_t start, now, ball = 0;
    pthread_t partner;

    *trips = (struct histogram){.count = 0};
    if (line.cpu < 0 || pthread_create(&partner, NULL, line_partner, &line) != 0)
        return 0;
    host_pin(host_cpu(0));
    start = now = host_now_ns();
    while (now - start < duration_ns) {
        uint64_t before = now;
        /* The clock costs about a quarter of a round trip: 16 trips share one. */
        for (unsigned i = 0; i < 16; i++) {
            atomic_store_explicit(&line.words[0], ++ball, memory_order_release);
            ball = line_look(&line, back, back == 0 ? ball : ball - 1);
        }
        now = host_now_ns();
        histogram_add(trips, now - before);
    }
    atomic_store_explicit(&line.words[0], LINE_END, memory_order_release);
    pthread_join(partner, NULL);
    return (double)histogram_quantile(trips, 5000) / 32;
}

double limits_line(uint64_t duration_ns) {
    struct histogram *trips = calloc(1, sizeof(*trips));
    double best = 0;

    for (unsigned way = 0; trips != NULL && way < 4; way++) {
        double half = line_measure(way & 1 ? 16 : 0, (way & 2) != 0, trips, duration_ns / 4);
        if (half > 0 && (best <= 0 || half < best))
            best = half;
    }
    free(trips);
    return best;
}

/* ---- yardsticks --------------------------------------------------------- */

struct limit limits_of_copy(enum copy_order order, uint64_t size, uint64_t span, unsigned threads,
                            enum memory_kind memory, uint64_t pieces) {
    static const char *const names[COPY_KINDS] = {"memcpy", "non-temporal copy", "vector copy"};
    struct limit limit = {.bytes_per_s = 0};
    bool tried[COPY_KINDS] = {[COPY_MEMCPY] = true};
    char text[32], spread[32];
    const char *name = names[COPY_MEMCPY];

    options_size_text(size, text);
    options_size_text(span > size ? span : size, spread);
    if (memory == MEMORY_OWN) {
        pieces = pieces < LIMITS_PIECES ? pieces : LIMITS_PIECES;
        limit.bytes_per_s = limits_vm_write(size, (unsigned)pieces, LIMIT_NS);
        snprintf(limit.name, sizeof(limit.name), "process_vm_writev of %s, %" PRIu64 " a call",
                 text, pieces);
        return limit;
    }
    tried[COPY_STREAM] = limits_has_stream() && (order == COPY_RANDOM || size >= STREAM_FROM);
    tried[COPY_VECTOR] = limits_has_vector() && order == COPY_IN_TURN && size >= VECTOR_FROM;
    for (int kind = 0; kind < COPY_KINDS; kind++) {
        double rate = tried[kind]
                          ? limits_copy((enum copy_kind)kind, order, size, span, threads, LIMIT_NS)
                          : 0;
        if (kind == COPY_MEMCPY)
            limit.memcpy_bytes_per_s = rate;
        if (rate > limit.bytes_per_s) {
            limit.bytes_per_s = rate;
            name = names[kind];
        }
    }
    snprintf(limit.name, sizeof(limit.name), "%s of %s, %s %s%s", name, text,
             order == COPY_RANDOM ? "anywhere in" : "in turn through", spread,
             threads > 1 ? ", all threads" : "");
    return limit;
}

void limit_raise(struct limit *limit, const struct limit *after) {
    double memcpy_rate = limit->memcpy_bytes_per_s > after->memcpy_bytes_per_s
                             ? limit->memcpy_bytes_per_s
                             : after->memcpy_bytes_per_s;

    if (after->bytes_per_s > limit->bytes_per_s ||
        (after->latency_ns > 0 && after->latency_ns < limit->latency_ns))
        *limit = *after;
    limit->memcpy_bytes_per_s = memcpy_rate;
}

struct limit limits_of_latency(void) {
    struct limit limit = {.latency_ns = limits_line(LIMIT_NS)};

    snprintf(limit.name, sizeof(limit.name), "cache line between two CPUs, one way");
    return limit;
}
