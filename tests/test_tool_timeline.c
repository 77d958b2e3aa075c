/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_timeline.c: the time-line of bench faults: steps, the rate before a fault, the gap,
 * when the rate is back, the drawing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "timeline.h"

#define STEP 10

/* A time-line of steps with so many bytes each. */
static struct timeline of_steps(const uint64_t *bytes, uint64_t count) {
    struct timeline timeline;

    timeline_begin(&timeline, STEP);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(timeline_add(&timeline, i * STEP + i % STEP, bytes[i]), 0);
    assert_int_equal(timeline.count, count);
    return timeline;
}

static void test_B8_each_byte_is_in_the_step_that_it_came_in(void **state) {
    struct timeline timeline;
    uint64_t sum = 0;

    (void)state;
    timeline_begin(&timeline, STEP);
    assert_int_equal(timeline_add(&timeline, 0, 1), 0);
    assert_int_equal(timeline_add(&timeline, STEP - 1, 2), 0);
    assert_int_equal(timeline_add(&timeline, STEP, 4), 0);
    assert_int_equal(timeline_reach(&timeline, 4 * STEP), 0);
    assert_int_equal(timeline_reach(&timeline, 0), 0);
    assert_int_equal(timeline.count, 5);
    assert_int_equal(timeline.steps[0], 3);
    assert_int_equal(timeline.steps[1], 4);
    for (uint64_t i = 2; i < 5; i++)
        assert_int_equal(timeline.steps[i], 0);
    assert_int_equal(timeline_add(&timeline, 100000 * STEP, 8), 0);
    for (uint64_t i = 0; i < timeline.count; i++)
        sum += timeline.steps[i];
    assert_int_equal(timeline.count, 100001);
    assert_int_equal(sum, 15);
    timeline_free(&timeline);
}

/* Of the steps that are wholly between two times; of an even number the lower one. */
static void test_B8_the_rate_before_is_a_median_of_whole_steps(void **state) {
    static const uint64_t bytes[] = {900, 7, 1, 5, 3, 800};
    struct timeline timeline = of_steps(bytes, 6);
    uint64_t median = 99;

    (void)state;
    assert_int_equal(timeline_median(&timeline, 1, 5 * STEP + 9, &median), 0);
    assert_int_equal(median, 3);
    assert_int_equal(timeline_median(&timeline, STEP, 4 * STEP, &median), 0);
    assert_int_equal(median, 5);
    assert_int_equal(timeline_median(&timeline, 0, 99 * STEP, &median), 0);
    assert_int_equal(median, 5);
    assert_int_equal(timeline_median(&timeline, STEP + 1, 3 * STEP - 1, &median), 0);
    assert_int_equal(median, 0);
    assert_int_equal(timeline_median(&timeline, 50 * STEP, 60 * STEP, &median), 0);
    assert_int_equal(median, 0);
    timeline_free(&timeline);
}

/* The longest time without a completion, from the fault to the first one after it is over. */
static void test_B8_a_gap_belongs_to_its_fault(void **state) {
    struct outage outage;

    (void)state;
    outage_begin(&outage, 100);
    outage_completion(&outage, 103); /* the one before may have been at 3 */
    assert_int_equal(outage.gap_ns, 3);
    outage_completion(&outage, 150);
    outage_completion(&outage, 155);
    assert_int_equal(outage.gap_ns, 47);
    assert_int_equal(outage.gap_end_ns, 150);
    outage_over(&outage);
    assert_false(outage.closed);
    outage_completion(&outage, 160);
    assert_true(outage.closed);
    outage_completion(&outage, 900);
    assert_int_equal(outage.gap_ns, 47);

    outage_begin(&outage, 1000);
    outage_over(&outage);
    outage_completion(&outage, 1700);
    outage_completion(&outage, 9000);
    assert_int_equal(outage.gap_ns, 700);
    assert_int_equal(outage.gap_end_ns, 1700);
}

/* An outage from at_ns, with one gap, which ends at gap_end_ns and is the last. */
static struct outage of_gap(uint64_t at_ns, uint64_t gap_end_ns) {
    struct outage outage;

    outage_begin(&outage, at_ns);
    outage_over(&outage);
    outage_completion(&outage, gap_end_ns);
    return outage;
}

static void test_B8_the_rate_is_back_at_nine_tenths(void **state) {
    static const uint64_t bytes[] = {100, 100, 95, 0, 89, 90, 100};
    struct timeline timeline = of_steps(bytes, 7);
    struct outage outage = of_gap(22, 42);

    (void)state;
    assert_int_equal(timeline_back(&timeline, &outage, 100), 50 - 22);
    /* Not before the gap has ended, though that step has as many bytes. */
    assert_int_equal(timeline_back(&timeline, &outage, 98), 42 - 22);
    outage = of_gap(22, 26);
    assert_int_equal(timeline_back(&timeline, &outage, 100), 26 - 22);
    /* Not at all, so far; or it cannot be said. */
    assert_true(timeline_back(&timeline, &outage, 200) == UINT64_MAX);
    assert_true(timeline_back(&timeline, &outage, 0) == UINT64_MAX);
    outage_begin(&outage, 22);
    outage_completion(&outage, 26);
    assert_true(timeline_back(&timeline, &outage, 100) == UINT64_MAX);
    timeline_free(&timeline);
}

static void test_B8_a_drawing_shows_each_rate(void **state) {
    static const uint64_t bytes[] = {0, 1, 50, 100, 0};
    struct timeline timeline = of_steps(bytes, 5);
    char out[3 * 80 + 1];

    (void)state;
    assert_int_equal(timeline_draw(&timeline, 80, TIMELINE_ASCII, out), 5);
    assert_string_equal(out, " .=# ");
    assert_int_equal(timeline_draw(&timeline, 80, TIMELINE_BLOCKS, out), 5);
    assert_string_equal(out, " \u2581\u2584\u2588 ");
    assert_int_equal(timeline_draw(&timeline, 1, TIMELINE_ASCII, out), 1);
    assert_string_equal(out, "#");
    timeline_free(&timeline);
    timeline_begin(&timeline, STEP);
    assert_int_equal(timeline_draw(&timeline, 80, TIMELINE_ASCII, out), 0);
    assert_string_equal(out, "");
    assert_int_equal(timeline_column(&timeline, 80, 7), 0);
}

/* A mark stands below the one column that its step is drawn in, and no byte is left out. */
static void test_B8_marks_stand_below_their_steps(void **state) {
    (void)state;
    for (uint64_t count = 1; count < 200; count += count < 90 ? 1 : 37) {
        for (uint64_t step = 0; step < count; step++) {
            uint64_t bytes[200] = {0};
            char out[3 * 80 + 1];
            bytes[step] = 1;
            struct timeline timeline = of_steps(bytes, count);
            unsigned columns = timeline_draw(&timeline, 80, TIMELINE_ASCII, out);
            unsigned column = timeline_column(&timeline, 80, step * STEP + STEP - 1);
            assert_int_equal(columns, count < 80 ? count : 80);
            assert_int_equal(strspn(out, " "), column);
            assert_int_equal(out[column], '#');
            assert_int_equal(strspn(out + column + 1, " "), columns - column - 1);
            timeline_free(&timeline);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B8_each_byte_is_in_the_step_that_it_came_in),
        cmocka_unit_test(test_B8_the_rate_before_is_a_median_of_whole_steps),
        cmocka_unit_test(test_B8_a_gap_belongs_to_its_fault),
        cmocka_unit_test(test_B8_the_rate_is_back_at_nine_tenths),
        cmocka_unit_test(test_B8_a_drawing_shows_each_rate),
        cmocka_unit_test(test_B8_marks_stand_below_their_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
