/* SPDX-License-Identifier: Apache-2.0 */
/* test_rtt.c: after what time without an answer something is said again (W8, H7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rtt.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define LEAST  (20 * MS)
#define TIME   (10 * SECOND)

/* Says it at 0, hears nothing, and says it again, until the time is over: how often in all. */
static uint32_t says(struct rtt *rtt, uint64_t least_ns, uint64_t time_ns) {
    struct rtt_pause pause;
    uint32_t count = 1;
    rtt_say(rtt, &pause, 0, least_ns, time_ns);
    while (pause.next_ns < time_ns) {
        uint64_t now = pause.next_ns;
        rtt_say_again(rtt, &pause, now);
        assert_true(pause.next_ns > now);
        count++;
    }
    return count;
}

/* A question that is answered after so long, said again as often as it takes. */
static uint32_t ask(struct rtt *rtt, uint64_t answer_ns) {
    struct rtt_pause pause;
    uint32_t again = 0;
    rtt_say(rtt, &pause, 0, LEAST, TIME);
    while (pause.next_ns < answer_ns) {
        rtt_say_again(rtt, &pause, pause.next_ns);
        again++;
    }
    rtt_answered(rtt, &pause, answer_ns);
    assert_true(pause.next_ns == UINT64_MAX);
    return again;
}

static void test_W8_without_a_measure_the_first_pause_is_two_seconds(void **state) {
    struct rtt rtt = {0};
    struct rtt_pause pause;
    (void)state;
    rtt_say(&rtt, &pause, 7, LEAST, TIME);
    assert_int_equal(pause.next_ns, 7 + 2 * SECOND);
    rtt_say(&rtt, &pause, 7, LEAST, SECOND); /* but there is less time */
    assert_int_equal(pause.next_ns, 7 + SECOND / 5);
    rtt_say(&rtt, &pause, 7, LEAST, 10); /* hardly any */
    assert_int_equal(pause.next_ns, 7 + LEAST);
    rtt_say(&rtt, &pause, UINT64_MAX - 5, LEAST, TIME);
    assert_true(pause.next_ns == UINT64_MAX - 1);
}

static void test_H7_it_is_said_four_times_in_the_time_that_there_is(void **state) {
    (void)state;
    for (uint64_t least = 1; least < SECOND; least *= 3) {
        for (uint64_t time = 64 * least; time < 100 * SECOND; time *= 5) {
            struct rtt unknown = {0}, quick = {0}, slow = {0};
            rtt_measure(&quick, 1);
            rtt_measure(&slow, 2 * time);
            assert_true(says(&unknown, least, time) >= 4);
            assert_true(says(&quick, least, time) >= 4);
            assert_true(says(&slow, least, time) >= 4);
            assert_true(says(&slow, least, time) >= 4); /* nor do vain pauses add up */
        }
    }
}

static void test_W8_pauses_follow_how_long_answers_take(void **state) {
    struct rtt rtt = {0};
    struct rtt_pause pause;
    (void)state;
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(ask(&rtt, MS), 0);
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    assert_in_range(pause.interval_ns, LEAST, LEAST + 2 * MS);
    /* Answers begin to take 300 ms: nobody goes on to say everything twice. */
    uint32_t again = 0;
    for (uint32_t i = 0; i < 20; i++)
        again += ask(&rtt, 300 * MS);
    assert_in_range(again, 1, 6);
    assert_int_equal(ask(&rtt, 300 * MS), 0);
    for (uint32_t i = 0; i < 60; i++) /* and quick again */
        assert_int_equal(ask(&rtt, MS), 0);
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    assert_in_range(pause.interval_ns, LEAST, LEAST + 3 * MS);
}

/* One answer may have been an early one. */
static void test_W8_the_first_measures_are_not_trusted_far(void **state) {
    struct rtt rtt = {0};
    struct rtt_pause pause;
    uint64_t before = UINT64_MAX;
    (void)state;
    for (uint32_t i = 1; i <= RTT_DOUBT; i++) {
        assert_int_equal(ask(&rtt, MS / 10), 0);
        rtt_say(&rtt, &pause, 0, LEAST, TIME);
        assert_true(pause.interval_ns < before);
        assert_true(pause.interval_ns >= LEAST * RTT_UNKNOWN >> i);
        before = pause.interval_ns;
    }
}

/* Karn: which of the two was answered? */
static void test_W8_what_was_said_twice_gives_no_measure(void **state) {
    struct rtt rtt = {0};
    struct rtt_pause pause;
    (void)state;
    rtt_measure(&rtt, MS);
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    uint64_t first = pause.interval_ns;
    rtt_say_again(&rtt, &pause, first);
    rtt_answered(&rtt, &pause, first + 1);
    assert_int_equal(rtt.measures, 1);
    assert_int_equal(rtt.smooth_ns, MS);
    /* The pause that was too short is not tried again before there is one. */
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    assert_int_equal(pause.interval_ns, 2 * first);
    rtt_answered(&rtt, &pause, MS);
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    assert_true(pause.interval_ns < first);
}

/* A wait for work over there, and not for an answer, says nothing about answers. */
static void test_W8_a_drain_that_takes_long_is_no_slow_answer(void **state) {
    struct rtt rtt = {0};
    struct rtt_pause pause;
    (void)state;
    for (uint32_t i = 0; i < RTT_DOUBT; i++)
        rtt_measure(&rtt, MS);
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    uint64_t first = pause.interval_ns;
    for (uint32_t i = 0; i < 10; i++)
        rtt_say_again(NULL, &pause, pause.next_ns);
    assert_int_equal(pause.interval_ns, first << RTT_DOUBLINGS);
    rtt_say(&rtt, &pause, 0, LEAST, TIME);
    assert_int_equal(pause.interval_ns, first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W8_without_a_measure_the_first_pause_is_two_seconds),
        cmocka_unit_test(test_H7_it_is_said_four_times_in_the_time_that_there_is),
        cmocka_unit_test(test_W8_pauses_follow_how_long_answers_take),
        cmocka_unit_test(test_W8_the_first_measures_are_not_trusted_far),
        cmocka_unit_test(test_W8_what_was_said_twice_gives_no_measure),
        cmocka_unit_test(test_W8_a_drain_that_takes_long_is_no_slow_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
