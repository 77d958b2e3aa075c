/* SPDX-License-Identifier: Apache-2.0 */
/* test_timer.c: deadlines, the nearest first (S13). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "timer.h"

enum { NUMBERS = 257 };

static struct timer_entry memory[NUMBERS];
static struct timers timers;

static void begin(void) {
    assert_int_equal(timers_bytes(NUMBERS), sizeof(memory));
    memset(memory, 0, sizeof(memory));
    timers_init(&timers, memory, NUMBERS);
}

static void test_S13_empty(void **state) {
    uint32_t number = 7;

    (void)state;
    begin();
    assert_true(timers_next(&timers) == UINT64_MAX);
    assert_false(timers_take(&timers, UINT64_MAX, &number));
    timers_set(&timers, 3, UINT64_MAX); /* clears what is not set */
    assert_true(timers_next(&timers) == UINT64_MAX);
    assert_int_equal(number, 7);
}

static void test_S13_due_at_its_time_and_not_before(void **state) {
    uint32_t number = 99;

    (void)state;
    begin();
    timers_set(&timers, 256, 100);
    assert_int_equal(timers_next(&timers), 100);
    assert_false(timers_take(&timers, 99, &number));
    assert_true(timers_take(&timers, 100, &number));
    assert_int_equal(number, 256);
    assert_false(timers_take(&timers, UINT64_MAX, &number));
    timers_set(&timers, 0, 0);
    assert_true(timers_take(&timers, 0, &number));
    assert_int_equal(number, 0);
}

static void test_S13_set_again_moves_and_clears(void **state) {
    uint32_t number;

    (void)state;
    begin();
    timers_set(&timers, 1, 10);
    timers_set(&timers, 2, 20);
    timers_set(&timers, 3, 30);
    timers_set(&timers, 1, 25);
    assert_int_equal(timers_next(&timers), 20);
    timers_set(&timers, 3, 5);
    assert_int_equal(timers_next(&timers), 5);
    timers_set(&timers, 3, 5); /* the same */
    timers_set(&timers, 2, UINT64_MAX);
    assert_int_equal(timers.used, 2);
    assert_true(timers_take(&timers, 1000, &number));
    assert_int_equal(number, 3);
    assert_true(timers_take(&timers, 1000, &number));
    assert_int_equal(number, 1);
    assert_false(timers_take(&timers, 1000, &number));
}

static void test_S13_equal_deadlines_all_come(void **state) {
    uint8_t came[NUMBERS] = {0};
    uint32_t number;

    (void)state;
    begin();
    for (uint32_t i = 0; i < NUMBERS; i++)
        timers_set(&timers, i, 42);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        assert_true(timers_take(&timers, 42, &number));
        assert_int_equal(came[number]++, 0);
    }
    assert_false(timers_take(&timers, 42, &number));
}

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

/* Against an array that is searched. */
static void test_S13_random_schedules_agree_with_a_search(void **state) {
    static uint64_t when[NUMBERS];

    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        uint64_t now = 0;

        random_state = seed * 6364136223846793005u + 17;
        begin();
        memset(when, 0xff, sizeof(when));
        for (uint32_t turn = 0; turn < 5000; turn++) {
            uint32_t n = draw(NUMBERS);
            if (draw(3) != 0) {
                when[n] = draw(6) == 0 ? UINT64_MAX : now + draw(300);
                timers_set(&timers, n, when[n]);
            } else {
                now += draw(20);
            }
            uint64_t nearest = UINT64_MAX;
            for (uint32_t i = 0; i < NUMBERS; i++)
                nearest = when[i] < nearest ? when[i] : nearest;
            assert_true(timers_next(&timers) == nearest);
            if (draw(4) == 0) {
                uint32_t number;
                bool due = timers_take(&timers, now, &number);
                assert_int_equal(due, nearest <= now);
                if (due) {
                    assert_true(when[number] == nearest);
                    when[number] = UINT64_MAX;
                }
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S13_empty),
        cmocka_unit_test(test_S13_due_at_its_time_and_not_before),
        cmocka_unit_test(test_S13_set_again_moves_and_clears),
        cmocka_unit_test(test_S13_equal_deadlines_all_come),
        cmocka_unit_test(test_S13_random_schedules_agree_with_a_search),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
