/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm_copy.c: the copy loops of shm, and which of them are used: that follows from what a
 * measurement finds, here with a clock that is played, and not from what CPU it is. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "os.h"
#include "shm.h"

/* ---- loops of which one knows how long they take ---- */

enum { PLAIN, WIDE, NARROW, VECTOR, LOOPS };

static uint64_t clock_ns;
static uint64_t cost_ns[LOOPS];    /* of each copy... */
static uint64_t per_kib_ns[LOOPS]; /* ...and of each KiB */
static unsigned flushes;

static uint64_t played_now(void *self) {
    (void)self;
    return clock_ns;
}

static const struct weir_env_ops played_ops = {.now = played_now};
static const struct weir_env played = {.ops = &played_ops};

static void pass(int loop, size_t length) {
    clock_ns += cost_ns[loop] + per_kib_ns[loop] * (length >> 10);
}
static void plain(void *to, const void *from, size_t length) {
    (void)to, (void)from;
    pass(PLAIN, length);
}
static void wide(void *to, const void *from, size_t length) {
    (void)to, (void)from;
    pass(WIDE, length);
}
static void narrow(void *to, const void *from, size_t length) {
    (void)to, (void)from;
    pass(NARROW, length);
}
static void vector(void *to, const void *from, size_t length) {
    (void)to, (void)from;
    pass(VECTOR, length);
}
static void flush(void *to, const void *from, size_t length) {
    (void)to, (void)from, (void)length;
    flushes++;
    clock_ns += 1000000; /* is not measured */
}

static struct copy_loops played_loops(void) {
    return (struct copy_loops){
        .plain = plain, .streams = {wide, narrow}, .vector = vector, .flush = flush};
}

static struct copy_choice choose(uint64_t plain_ns, uint64_t wide_ns, uint64_t narrow_ns,
                                 uint64_t vector_ns) {
    struct copy_loops loops = played_loops();
    struct copy_choice choice;
    per_kib_ns[PLAIN] = plain_ns;
    per_kib_ns[WIDE] = wide_ns;
    per_kib_ns[NARROW] = narrow_ns;
    per_kib_ns[VECTOR] = vector_ns;
    copy_measure(&loops, &played, &choice);
    memset(cost_ns, 0, sizeof cost_ns);
    return choice;
}

/* ---- choices ---- */

static void test_the_fastest_loop_is_chosen(void **state) {
    (void)state;
    /* Streaming is faster: the faster of the two. */
    struct copy_choice choice = choose(100, 80, 70, 50);
    assert_ptr_equal(choice.stream, narrow);
    assert_int_equal(choice.stream_bytes_min, 16384);
    assert_ptr_equal(choice.vector, vector);
    assert_int_equal(choice.vector_bytes_max, 16384);
    choice = choose(100, 70, 80, 50);
    assert_ptr_equal(choice.stream, wide);
    assert_true(flushes > 0);
    /* memcpy is faster, or as fast. */
    for (uint64_t plain_ns = 70; plain_ns <= 81; plain_ns += 11) {
        choice = choose(plain_ns, 80, 90, 81);
        assert_null(choice.stream);
        assert_true(choice.stream_bytes_min == SIZE_MAX);
        assert_null(choice.vector);
        assert_int_equal(choice.vector_bytes_max, 0);
    }
}

/* A loop that costs more at first is worth it from some size on, or up to one. */
static void test_the_threshold_is_where_it_gets_faster(void **state) {
    (void)state;
    cost_ns[WIDE] = cost_ns[NARROW] = 20 * 32;
    struct copy_choice choice = choose(100, 80, 80, 100);
    assert_int_equal(choice.stream_bytes_min, 65536);
    cost_ns[WIDE] = cost_ns[NARROW] = 20 * 128;
    choice = choose(100, 80, 80, 100);
    assert_int_equal(choice.stream_bytes_min, 262144);
    cost_ns[PLAIN] = 1000;
    choice = choose(100, 300, 300, 200);
    assert_true(choice.stream_bytes_min == SIZE_MAX);
    assert_int_equal(choice.vector_bytes_max, 8192);
}

static void test_a_cpu_without_loops_has_memcpy(void **state) {
    struct copy_loops loops = {.plain = plain};
    struct copy_choice choice;

    (void)state;
    copy_measure(&loops, &played, &choice);
    assert_null(choice.stream);
    assert_true(choice.stream_bytes_min == SIZE_MAX);
    assert_int_equal(choice.vector_bytes_max, 0);
}

/* ---- the process ---- */

static const char *variable;

static char *get(const char *name) {
    static char text[32];
    if (variable == NULL || strcmp(name, "WEIR_SHM_STREAM_BYTES") != 0)
        return NULL;
    snprintf(text, sizeof text, "%s", variable);
    return text;
}

static struct weir_env real;
static _Atomic uint32_t looks; /* at the clock */

static uint64_t counted_now(void *self) {
    (void)self;
    atomic_fetch_add(&looks, 1);
    return real.ops->now(real.self);
}

static const struct weir_env_ops counted_ops = {.now = counted_now};
static const struct weir_env counted = {.ops = &counted_ops};

static void *choose_too(void *argument) {
    (void)copy_choose(&counted, get, argument);
    return NULL;
}

/* However many devices are opened at the same time, it is measured before they have it and never
 * after. */
static void test_a_process_measures_once(void **state) {
    enum { THREADS = 4 };
    struct copy_choice choices[THREADS], again;
    pthread_t threads[THREADS];

    (void)state;
    variable = NULL;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, choose_too, &choices[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint32_t before = atomic_load(&looks);
    assert_true(before > 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(copy_choose(&counted, get, &again), 0);
    assert_int_equal(atomic_load(&looks), before);
    int same = 0;
    for (int i = 0; i < THREADS; i++)
        same += memcmp(&choices[i], &again, sizeof again) == 0;
    assert_true(same > 0);
}

static void test_the_environment_decides(void **state) {
    static const char *const wrong[] = {"", "x", "-1", "1 ", "1k", "1073741825", "\xff"};
    struct copy_choice choice;
    struct weir_device_setting setting;

    (void)state;
    variable = "0";
    assert_int_equal(copy_choose(&real, get, &choice), 0);
    assert_true(choice.stream_bytes_min == SIZE_MAX);
    variable = "32768";
    assert_int_equal(copy_choose(&real, get, &choice), 0);
    bool has_one = copy_loops().streams[0] != NULL;
    assert_true(choice.stream_bytes_min == (has_one ? 32768 : SIZE_MAX));
    assert_int_equal(choice.stream != NULL, has_one);
    copy_setting(get, &setting);
    assert_int_equal(setting.value, 32768);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        variable = wrong[i];
        assert_int_equal(copy_choose(&real, get, &choice), WEIR_EINVAL);
        copy_setting(get, &setting);
        assert_int_equal(setting.status, WEIR_EINVAL);
        assert_true(strstr(setting.note, "not a number from 0 to 1073741824") != NULL);
    }
    variable = NULL;
}

/* ---- copying ---- */

enum { AREA = 3 << 20 };

/* Every loop that there may be, at lengths and offsets that are odd and even. */
static void test_every_loop_copies_what_it_is_given(void **state) {
    static const size_t lengths[] = {4096, 4097, 12345, 16384, 16448, 65535, 65536, 1 << 20};
    struct copy_loops loops = copy_loops();
    uint8_t *from = aligned_alloc(64, AREA), *to = aligned_alloc(64, AREA);
    struct copier *copier = calloc(1, sizeof *copier);

    (void)state;
    assert_non_null(from);
    assert_non_null(to);
    assert_non_null(copier);
    for (size_t i = 0; i < AREA; i++)
        from[i] = (uint8_t)(i * 31 + (i >> 8));
    for (int which = 0; which <= COPY_STREAMS; which++) {
        copy_loop *stream = which < COPY_STREAMS ? loops.streams[which] : NULL;
        copier->choice = (struct copy_choice){
            .stream = stream,
            .stream_bytes_min = stream != NULL ? COPY_GUESS_BYTES_MIN : SIZE_MAX,
            .vector = loops.vector,
            .vector_bytes_max = loops.vector != NULL ? SIZE_MAX : 0,
        };
        for (size_t i = 0; i < 4 * sizeof lengths / sizeof *lengths; i++) {
            size_t length = lengths[i / 4], at = i % 4 == 3 ? 64 : 64 + i % 4 * 7;
            for (int round = 0; round < 2; round++) { /* cold, then hot */
                memset(to, 0xaa, AREA);
                copy_large(copier, to + at, from + 128 - i % 2, length);
                assert_memory_equal(to + at, from + 128 - i % 2, length);
                assert_int_equal(to[at - 1], 0xaa);
                assert_int_equal(to[at + length], 0xaa);
            }
        }
    }
    free(copier);
    free(from);
    free(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_loop_is_chosen),
        cmocka_unit_test(test_the_threshold_is_where_it_gets_faster),
        cmocka_unit_test(test_a_cpu_without_loops_has_memcpy),
        cmocka_unit_test(test_a_process_measures_once),
        cmocka_unit_test(test_the_environment_decides),
        cmocka_unit_test(test_every_loop_copies_what_it_is_given),
    };

    if (os_env_init(&real) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
