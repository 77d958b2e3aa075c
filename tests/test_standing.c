/* SPDX-License-Identifier: Apache-2.0 */
/* test_standing.c: the machine that decides which events an application is told of a peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "standing.h"

enum { NONE_TOLD = 0, STEPS = 200000 };

static struct standing standing;

static void expect(enum standing_input input, int event, enum standing_state next) {
    assert_int_equal(standing_step(&standing, input), event);
    assert_int_equal(standing.state, next);
}

static void begin(void) {
    standing = (struct standing){0};
    assert_int_equal(standing.state, STANDING_NEW);
    assert_false(standing_is_up(&standing));
}

static void test_every_cell_is_written(void **state) {
    (void)state;
    for (int s = 0; s < STANDING_STATES; s++) {
        for (int i = 0; i < STANDING_INPUTS; i++) {
            if (!standing_cell_is_set((enum standing_state)s, (enum standing_input)i))
                fail_msg("state %d input %d", s, i);
        }
    }
}

static void test_a_break_is_told_once_and_its_end_too(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_UP, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_LOST, WEIR_EVENT_DEGRADED, STANDING_DEGRADED);
    expect(STANDING_IN_LOST, NONE_TOLD, STANDING_DEGRADED);
    assert_true(standing_is_up(&standing));
    expect(STANDING_IN_UP, WEIR_EVENT_RECOVERED, STANDING_UP);
    expect(STANDING_IN_END, WEIR_EVENT_GONE, STANDING_ENDED);
    expect(STANDING_IN_LOST, NONE_TOLD, STANDING_ENDED);
    expect(STANDING_IN_END_ASKED, NONE_TOLD, STANDING_ENDED);
    expect(STANDING_IN_FORGOTTEN, NONE_TOLD, STANDING_NEW);
}

/* Its data comes before its READY, or is all that ever comes. */
static void test_data_brings_it_up(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_DATA, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_UP, NONE_TOLD, STANDING_UP);
    expect(STANDING_IN_LOST, WEIR_EVENT_DEGRADED, STANDING_DEGRADED);
    expect(STANDING_IN_DATA, NONE_TOLD, STANDING_DEGRADED);
    expect(STANDING_IN_FAILED, WEIR_EVENT_GONE, STANDING_GONE);
    expect(STANDING_IN_DATA, WEIR_EVENT_UP, STANDING_UP);
}

/* Nobody asked for a session, and none broke: that there is none is no news. */
static void test_what_nobody_asked_for_is_not_told(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_FAILED, NONE_TOLD, STANDING_NEW);
    expect(STANDING_IN_END, NONE_TOLD, STANDING_ENDED);
    begin();
    expect(STANDING_IN_END_HELD, WEIR_EVENT_GONE, STANDING_ENDED);
    begin();
    expect(STANDING_IN_UP, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_CLOSED, NONE_TOLD, STANDING_NEW); /* nothing was told of its next handle */
    expect(STANDING_IN_LOST, NONE_TOLD, STANDING_NEW);
    expect(STANDING_IN_DATA, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_CLOSED, NONE_TOLD, STANDING_NEW);
    expect(STANDING_IN_END, NONE_TOLD, STANDING_ENDED);
    expect(STANDING_IN_CLOSED, NONE_TOLD, STANDING_ENDED);
}

/* Data that is found behind the end, under a handle that nothing was told of. */
static void test_late_data_is_told_of(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_END, NONE_TOLD, STANDING_ENDED);
    expect(STANDING_IN_DATA, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_END, WEIR_EVENT_GONE, STANDING_ENDED);
}

/* An instance was told to be up, and gone: its late data bring no UP, though its handle is closed
 * meanwhile. The next handle, or instance, is not known to be up. */
static void test_that_up_was_told_is_remembered(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_UP, WEIR_EVENT_UP, STANDING_UP);
    assert_true(standing.up_told);
    expect(STANDING_IN_END, WEIR_EVENT_GONE, STANDING_ENDED);
    expect(STANDING_IN_CLOSED, NONE_TOLD, STANDING_ENDED);
    assert_true(standing.up_told);
    expect(STANDING_IN_FORGOTTEN, NONE_TOLD, STANDING_NEW);
    assert_false(standing.up_told);
    expect(STANDING_IN_UP, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_CLOSED, NONE_TOLD, STANDING_NEW);
    assert_false(standing.up_told);
}

/* A peer is up by its data alone, and the session that carried them does not come about. */
static void test_up_by_data_alone_ends(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_DATA, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_FAILED, WEIR_EVENT_GONE, STANDING_GONE);
}

/* No session could be made, and then the instance turns out to be dead. */
static void test_gone_is_told_once(void **state) {
    (void)state;
    begin();
    expect(STANDING_IN_FAILED_ASKED, WEIR_EVENT_GONE, STANDING_GONE);
    expect(STANDING_IN_END_HELD, NONE_TOLD, STANDING_ENDED);
    begin();
    expect(STANDING_IN_FAILED_ASKED, WEIR_EVENT_GONE, STANDING_GONE);
    expect(STANDING_IN_SAME, NONE_TOLD, STANDING_NEW); /* it has a handle of it, once more */
    expect(STANDING_IN_END_HELD, WEIR_EVENT_GONE, STANDING_ENDED);
    begin();
    expect(STANDING_IN_FAILED_ASKED, WEIR_EVENT_GONE, STANDING_GONE);
    expect(STANDING_IN_END_ASKED, WEIR_EVENT_GONE, STANDING_ENDED); /* asked again since */
    begin();
    expect(STANDING_IN_FAILED_ASKED, WEIR_EVENT_GONE, STANDING_GONE);
    expect(STANDING_IN_UP, WEIR_EVENT_UP, STANDING_UP);
}

static void test_a_refusal_is_told_once_until_a_session_is_up(void **state) {
    (void)state;
    for (int s = 0; s < STANDING_STATES; s++) {
        standing = (struct standing){.state = (enum standing_state)s};
        expect(STANDING_IN_REFUSAL, WEIR_EVENT_REFUSED, (enum standing_state)s);
        expect(STANDING_IN_REFUSAL, NONE_TOLD, (enum standing_state)s);
    }
    begin();
    expect(STANDING_IN_REFUSAL, WEIR_EVENT_REFUSED, STANDING_NEW);
    expect(STANDING_IN_FORGOTTEN, NONE_TOLD, STANDING_NEW);
    expect(STANDING_IN_REFUSAL, NONE_TOLD, STANDING_NEW);
    expect(STANDING_IN_UP, WEIR_EVENT_UP, STANDING_UP);
    expect(STANDING_IN_REFUSAL, WEIR_EVENT_REFUSED, STANDING_UP);
}

/* Whatever happens in whatever order: the application sees UP, then DEGRADED and RECOVERED in
 * turns, then GONE, and so on. */
static void test_the_order_of_events_holds(void **state) {
    uint64_t drawn = 88172645463325252u;
    int last = WEIR_EVENT_GONE;
    uint32_t seen[WEIR_EVENT_DEVICE_FAILED + 1] = {0};

    (void)state;
    begin();
    for (int i = 0; i < STEPS; i++) {
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        enum standing_input input = (enum standing_input)(drawn % STANDING_INPUTS);
        int event = standing_step(&standing, input);
        if (input == STANDING_IN_CLOSED ||
            (input == STANDING_IN_SAME && !standing_is_up(&standing)))
            last = WEIR_EVENT_GONE; /* what follows is of another handle, or of two */
        seen[event]++;
        switch (event) {
        case NONE_TOLD:
        case WEIR_EVENT_REFUSED:
            continue;
        case WEIR_EVENT_UP: /* or that the instance before it ended was never told */
            assert_int_equal(last, WEIR_EVENT_GONE);
            break;
        case WEIR_EVENT_DEGRADED:
            assert_true(last == WEIR_EVENT_UP || last == WEIR_EVENT_RECOVERED);
            break;
        case WEIR_EVENT_RECOVERED:
            assert_int_equal(last, WEIR_EVENT_DEGRADED);
            break;
        default:
            assert_int_equal(event, WEIR_EVENT_GONE);
        }
        last = event;
        assert_int_equal(standing_is_up(&standing), last != WEIR_EVENT_GONE);
    }
    for (int event = WEIR_EVENT_UP; event <= WEIR_EVENT_GONE; event++)
        assert_true(seen[event] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cell_is_written),
        cmocka_unit_test(test_a_break_is_told_once_and_its_end_too),
        cmocka_unit_test(test_data_brings_it_up),
        cmocka_unit_test(test_what_nobody_asked_for_is_not_told),
        cmocka_unit_test(test_late_data_is_told_of),
        cmocka_unit_test(test_up_by_data_alone_ends),
        cmocka_unit_test(test_that_up_was_told_is_remembered),
        cmocka_unit_test(test_gone_is_told_once),
        cmocka_unit_test(test_a_refusal_is_told_once_until_a_session_is_up),
        cmocka_unit_test(test_the_order_of_events_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
