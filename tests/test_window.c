/* SPDX-License-Identifier: Apache-2.0 */
/* test_window.c: which notification numbers are over with (S9: exactly once). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "window.h"

enum { NUMBERS = 8000 };

static void test_S9_a_new_window(void **state) {
    struct window window = {0};

    (void)state;
    assert_int_equal(window_check(&window, 0), WINDOW_SEEN); /* 0 is no number */
    assert_int_equal(window_check(&window, 1), WINDOW_NEW);
    assert_int_equal(window_check(&window, WINDOW_SIZE), WINDOW_NEW);
    assert_int_equal(window_check(&window, WINDOW_SIZE + 1), WINDOW_BEYOND);
    assert_int_equal(window_check(&window, UINT64_MAX), WINDOW_BEYOND);
}

static void test_S9_seen_once_marked_whatever_the_order(void **state) {
    struct window window = {0};

    (void)state;
    for (uint64_t n = WINDOW_SIZE; n >= 2; n--) { /* all but the first */
        assert_int_equal(window_check(&window, n), WINDOW_NEW);
        window_mark(&window, n);
        assert_int_equal(window_check(&window, n), WINDOW_SEEN);
        assert_int_equal(window.base, 0);
    }
    assert_int_equal(window_check(&window, 1), WINDOW_NEW);
    assert_int_equal(window_check(&window, WINDOW_SIZE + 1), WINDOW_BEYOND);
    window_mark(&window, 1); /* the hole closes: the window moves by all of itself */
    assert_int_equal(window.base, WINDOW_SIZE);
    assert_int_equal(window_check(&window, WINDOW_SIZE + 1), WINDOW_NEW);
    assert_int_equal(window_check(&window, 1), WINDOW_SEEN);
}

static void test_S9_base_moves_by_whole_words(void **state) {
    struct window window = {0};

    (void)state;
    for (uint64_t n = 1; n <= 63; n++)
        window_mark(&window, n);
    assert_int_equal(window.base, 0);
    window_mark(&window, 64);
    assert_int_equal(window.base, 64);
    assert_int_equal(window_check(&window, 64 + WINDOW_SIZE), WINDOW_NEW);
    assert_int_equal(window_check(&window, 65 + WINDOW_SIZE), WINDOW_BEYOND);
}

static void test_S9_advance_leaves_no_hole(void **state) {
    struct window window = {0};

    (void)state;
    window_mark(&window, 5);
    window_mark(&window, 200);
    window_advance(&window, 127); /* a whole word of it */
    assert_int_equal(window.base, 64);
    window_advance(&window, 64);
    window_advance(&window, 0);
    window_advance(&window, 63);
    assert_int_equal(window.base, 64); /* never back */
    window_advance(&window, 128);
    assert_int_equal(window.base, 128);
    assert_int_equal(window_check(&window, 200), WINDOW_SEEN);
    assert_int_equal(window_check(&window, 199), WINDOW_NEW);
    assert_int_equal(window_check(&window, 3), WINDOW_SEEN);
    window_advance(&window, 128 + 10 * WINDOW_SIZE); /* past all of it */
    assert_int_equal(window.base, 128 + 10 * WINDOW_SIZE);
    for (uint64_t n = 1; n <= WINDOW_SIZE; n++)
        assert_int_equal(window_check(&window, window.base + n), WINDOW_NEW);
}

static void test_S9_numbers_near_the_top(void **state) {
    struct window window = {.base = UINT64_MAX - 63 - WINDOW_SIZE};

    (void)state;
    assert_int_equal(window.base % 64, 0);
    assert_int_equal(window_check(&window, UINT64_MAX), WINDOW_BEYOND);
    assert_int_equal(window_check(&window, window.base + WINDOW_SIZE), WINDOW_NEW);
    window_mark(&window, window.base + WINDOW_SIZE);
    window_advance(&window, UINT64_MAX);
    assert_int_equal(window.base, UINT64_MAX - 63);
    assert_int_equal(window_check(&window, UINT64_MAX), WINDOW_NEW);
    assert_int_equal(window_check(&window, UINT64_MAX - 63), WINDOW_SEEN);
}

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

/* Numbers come late, twice, far ahead, and some never, against one flag a number. */
static void test_S9_random_schedules_agree_with_a_flag_a_number(void **state) {
    static uint8_t over[NUMBERS + 1];

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct window window = {0};
        uint64_t told = 0; /* all numbers up to here are over */

        random_state = seed * 2862933555777941757u + 3037000493u;
        memset(over, 0, sizeof(over));
        for (uint32_t turn = 0; turn < 20000; turn++) {
            uint64_t n = window.base + 1 + draw(draw(2) ? 70 : WINDOW_SIZE);
            if (draw(20) == 0)
                n = 1 + draw(NUMBERS);
            if (n > NUMBERS)
                break;
            enum window_verdict verdict = window_check(&window, n);
            if (n > window.base + WINDOW_SIZE) {
                assert_int_equal(verdict, WINDOW_BEYOND);
            } else {
                assert_int_equal(verdict, over[n] ? WINDOW_SEEN : WINDOW_NEW);
                if (verdict == WINDOW_NEW)
                    window_mark(&window, n);
                over[n] = 1;
            }
            if (draw(50) == 0) {
                uint64_t base = draw(2) ? window.base + draw(200) : draw(NUMBERS);
                if (base > NUMBERS)
                    break;
                window_advance(&window, base);
                if ((base & ~UINT64_C(63)) > told)
                    told = base & ~UINT64_C(63);
                for (uint64_t i = 1; i <= told; i++)
                    over[i] = 1;
            }
            assert_int_equal(window.base % 64, 0);
            assert_true(window.base >= told);
        }
        for (uint64_t n = 1; n <= window.base && n <= NUMBERS; n++)
            assert_true(over[n]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S9_a_new_window),
        cmocka_unit_test(test_S9_seen_once_marked_whatever_the_order),
        cmocka_unit_test(test_S9_base_moves_by_whole_words),
        cmocka_unit_test(test_S9_advance_leaves_no_hole),
        cmocka_unit_test(test_S9_numbers_near_the_top),
        cmocka_unit_test(test_S9_random_schedules_agree_with_a_flag_a_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
