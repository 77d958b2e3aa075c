/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c: which copy loops this process uses: measured, or said by WEIR_SHM_STREAM_BYTES.
 *
 * Owns the variable, and the one choice of the process, which is made when its first device
 * is opened and never changes. Memory is made cold by flushing its lines (CLFLUSH), so that a
 * few hundred kilobytes do for caches of any size. The lines that a copy leaves in a cache are
 * still to be written back, and memcpy is not charged for that; nor is it praised for what the next
 * reader finds there. So another loop has to be faster by a margin.
 *
 * Left to others: the loops, and when a destination is cold (copy.c). */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "shm.h"

#define SAMPLES    11u          /* of which the median counts */
#define HOT_COPIES 32u          /* a sample of copies between caches */
#define MARGIN     32u          /* faster by a 32nd */
#define BYTES_MOST (256u << 10) /* the largest of the sizes below */
/* Source and destination do not lie at the same place in a page: some CPUs take a load for
 * one of what was just stored there. */
#define FROM_AT      (BYTES_MOST + 2048u)
#define BYTES_MAPPED (2 * BYTES_MOST + 4096u)
#define SETTING      "WEIR_SHM_STREAM_BYTES"

static const size_t cold_sizes[] = {16u << 10, 64u << 10, BYTES_MOST};
static const size_t hot_sizes[] = {4u << 10, 8u << 10, 16u << 10};
enum { COLD_SIZES = sizeof cold_sizes / sizeof *cold_sizes };
enum { HOT_SIZES = sizeof hot_sizes / sizeof *hot_sizes };

struct bench {
    const struct weir_env *env;
    copy_loop *flush; /* before each sample; NULL: many copies without */
    uint8_t *to;
    uint8_t *from;
};

/* ---- measuring ---- */

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t sample(const struct bench *bench, copy_loop *loop, size_t size) {
    const struct weir_env *env = bench->env;
    uint32_t copies = bench->flush != NULL ? 1 : HOT_COPIES;
    if (bench->flush != NULL)
        bench->flush(bench->to, bench->from, size);
    uint64_t start = env->ops->now(env->self);
    for (uint32_t i = 0; i < copies; i++)
        loop(bench->to, bench->from, size);
    return env->ops->now(env->self) - start;
}

/* The median time of each of the loops, which take turns: other work of the machine meets all of
 * them. */
static void measure(const struct bench *bench, copy_loop *const *loops, uint32_t count, size_t size,
                    uint64_t *times_out) {
    uint64_t samples[COPY_STREAMS + 1][SAMPLES];
    for (uint32_t i = 0; i < SAMPLES; i++) {
        for (uint32_t k = 0; k < count; k++)
            samples[k][i] = sample(bench, loops[k], size);
    }
    for (uint32_t k = 0; k < count; k++) {
        qsort(samples[k], SAMPLES, sizeof samples[k][0], compare);
        times_out[k] = samples[k][SAMPLES / 2];
    }
}

static bool is_faster(uint64_t time, uint64_t than) {
    return time + time / MARGIN < than;
}

/* The stream with the least time for all sizes, and the least size from which on it is
 * faster than memcpy. */
static void choose_stream(const struct bench *bench, const struct copy_loops *loops,
                          struct copy_choice *choice) {
    copy_loop *candidates[COPY_STREAMS + 1] = {loops->plain};
    uint64_t times[COLD_SIZES][COPY_STREAMS + 1], sums[COPY_STREAMS + 1] = {0};
    uint32_t count = 1, best = 1;
    while (count <= COPY_STREAMS && loops->streams[count - 1] != NULL) {
        candidates[count] = loops->streams[count - 1];
        count++;
    }
    if (count == 1)
        return;
    for (uint32_t i = 0; i < COLD_SIZES; i++) {
        measure(bench, candidates, count, cold_sizes[i], times[i]);
        for (uint32_t k = 1; k < count; k++)
            sums[k] += times[i][k];
    }
    for (uint32_t k = 2; k < count; k++) {
        if (is_faster(sums[k], sums[best]))
            best = k;
    }
    for (uint32_t i = COLD_SIZES; i > 0 && is_faster(times[i - 1][best], times[i - 1][0]); i--) {
        choice->stream = candidates[best];
        choice->stream_bytes_min = cold_sizes[i - 1];
    }
}

/* Up to which size the vector loop is faster. */
static void choose_vector(const struct bench *bench, const struct copy_loops *loops,
                          struct copy_choice *choice) {
    copy_loop *candidates[] = {loops->plain, loops->vector};
    uint64_t times[2];
    for (uint32_t i = 0; i < HOT_SIZES && loops->vector != NULL; i++) {
        measure(bench, candidates, 2, hot_sizes[i], times);
        if (!is_faster(times[1], times[0]))
            return;
        choice->vector = loops->vector;
        choice->vector_bytes_max = hot_sizes[i];
    }
}

void copy_measure(const struct copy_loops *loops, const struct weir_env *env,
                  struct copy_choice *choice_out) {
    struct copy_choice choice = {.stream_bytes_min = SIZE_MAX};
    uint8_t *memory =
        mmap(NULL, BYTES_MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        struct bench bench = {.env = env, .to = memory, .from = memory + FROM_AT};
        memset(memory, 1, BYTES_MAPPED); /* or the source would be the one zero page */
        choose_vector(&bench, loops, &choice);
        bench.flush = loops->flush;
        if (loops->flush != NULL)
            choose_stream(&bench, loops, &choice);
        munmap(memory, BYTES_MAPPED);
    }
    *choice_out = choice;
}

/* ---- the choice of the process ---- */

enum { CHOICE_NONE, CHOICE_COMING, CHOICE_MADE };
static _Atomic uint32_t choice_state;
static struct copy_choice chosen;

/* Nobody waits for another thread, which may be gone: a process may have been forked. One that
 * comes while the first one measures does so itself. */
static void choice_of_process(const struct weir_env *env, struct copy_choice *choice_out) {
    uint32_t none = CHOICE_NONE;
    if (atomic_load_explicit(&choice_state, memory_order_acquire) == CHOICE_MADE) {
        *choice_out = chosen;
        return;
    }
    struct copy_loops loops = copy_loops();
    copy_measure(&loops, env, choice_out);
    if (atomic_compare_exchange_strong(&choice_state, &none, CHOICE_COMING)) {
        chosen = *choice_out;
        atomic_store_explicit(&choice_state, CHOICE_MADE, memory_order_release);
    }
}

/* ---- the variable ---- */

static int read_bytes(const char *text, uint64_t *bytes_out) {
    if (!isdigit((unsigned char)text[0]))
        return WEIR_EINVAL;
    char *end;
    errno = 0;
    unsigned long long bytes = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || bytes > SHM_MESSAGE_BYTES_MAX)
        return WEIR_EINVAL;
    *bytes_out = bytes;
    return 0;
}

void copy_setting(char *(*get)(const char *name), struct weir_device_setting *out) {
    const char *text = get(SETTING);
    *out = (struct weir_device_setting){
        .device = "shm",
        .variable = SETTING,
        .what = "bytes of a copy into cold memory that goes past the caches; 0: none does",
        .value = UINT64_MAX,
        .fallback = UINT64_MAX,
        .most = SHM_MESSAGE_BYTES_MAX,
        .is_set = text != NULL,
    };
    if (text == NULL)
        return;
    out->status = read_bytes(text, &out->value);
    if (out->status != 0)
        snprintf(out->note, sizeof out->note, SETTING "=%.24s: not a number from 0 to %llu", text,
                 (unsigned long long)SHM_MESSAGE_BYTES_MAX);
    for (char *at = out->note; *at != '\0'; at++) { /* ASCII, whatever the locale is */
        if (*at < ' ' || *at > '~')
            *at = '?';
    }
}

int copy_choose(const struct weir_env *env, char *(*get)(const char *name),
                struct copy_choice *choice_out) {
    struct weir_device_setting setting;
    copy_setting(get, &setting);
    if (setting.status != 0)
        return setting.status;
    choice_of_process(env, choice_out);
    if (!setting.is_set)
        return 0;
    copy_loop *stream = choice_out->stream != NULL ? choice_out->stream : copy_loops().streams[0];
    choice_out->stream = setting.value == 0 ? NULL : stream;
    choice_out->stream_bytes_min = choice_out->stream != NULL ? (size_t)setting.value : SIZE_MAX;
    return 0;
}
