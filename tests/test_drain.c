/* SPDX-License-Identifier: Apache-2.0 */
/* test_drain.c: the machine that takes one QP down (T1, T2, T4, T9). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "drain.h"

#define TIMEOUT_NS UINT64_C(4000000000)
#define NEVER      UINT64_MAX

static struct drain drain;
static uint64_t now;

static void begin(bool wait_event) {
    const struct drain_options options = {.wait_event = wait_event, .timeout_ns = TIMEOUT_NS};

    now = 1000;
    drain_init(&drain, &options);
    assert_int_equal(drain.state, DRAIN_IDLE);
    assert_true(drain_deadline(&drain) == NEVER);
}

static void expect(enum drain_event event, enum drain_action action, enum drain_state next) {
    assert_int_equal(drain_step(&drain, event, now), action);
    assert_int_equal(drain.state, next);
}

/* Time passes until the machine's own bound. */
static void expire(enum drain_action action, enum drain_state next) {
    assert_true(drain_deadline(&drain) != NEVER);
    assert_true(drain_deadline(&drain) >= now);
    now = drain_deadline(&drain);
    expect(DRAIN_EV_TIMER, action, next);
}

static void test_T1_every_cell_is_written(void **state) {
    (void)state;
    for (int s = 0; s < DRAIN_STATES; s++) {
        for (int e = 0; e < DRAIN_EVENTS; e++) {
            if (!drain_cell_is_set((enum drain_state)s, (enum drain_event)e))
                fail_msg("state %s event %d", drain_state_name((enum drain_state)s), e);
        }
        assert_true(strlen(drain_state_name((enum drain_state)s)) > 1);
        for (int t = 0; t < s; t++)
            assert_string_not_equal(drain_state_name((enum drain_state)s),
                                    drain_state_name((enum drain_state)t));
    }
    assert_string_equal(drain_state_name(DRAIN_STATES), "?");
}

static void test_T1_error_event_beacon_destroy(void **state) {
    (void)state;
    begin(true);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_WAIT, DRAIN_WAIT_EVENT);
    assert_true(drain_deadline(&drain) > now && drain_deadline(&drain) <= now + TIMEOUT_NS);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_BEACON, DRAIN_POST);
    expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
    expect(DRAIN_EV_BEACON_FLUSHED, DRAIN_DO_DESTROY, DRAIN_DESTROY);
    expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
    assert_true(drain.last_wqe);
    assert_true(drain.beacon_flushed);
    assert_false(drain.forced);
    assert_true(drain_deadline(&drain) == NEVER);
}

static void test_T1_no_event_to_wait_for(void **state) {
    (void)state;
    begin(false);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_BEACON, DRAIN_POST);
    expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
    expect(DRAIN_EV_POLLED, DRAIN_DO_DESTROY, DRAIN_DESTROY); /* a whole CQ, no beacon */
    assert_false(drain.beacon_flushed);
    assert_false(drain.forced);
    expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
}

static void test_T2_never_connected_waits_for_nothing(void **state) {
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        begin(wait != 0);
        expect(DRAIN_EV_START_DIRECT, DRAIN_DO_DESTROY, DRAIN_DESTROY);
        expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
        assert_false(drain.forced);
    }
}

static void test_T4_event_early(void **state) {
    (void)state;
    begin(true);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_IDLE);
    assert_true(drain.last_wqe);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_BEACON, DRAIN_POST);
}

static void test_T4_event_absent(void **state) {
    (void)state;
    begin(true);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_WAIT, DRAIN_WAIT_EVENT);
    expire(DRAIN_DO_BEACON, DRAIN_POST);
    assert_false(drain.last_wqe);
    assert_false(drain.forced); /* going on without the event is no forced teardown */
    expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
    expect(DRAIN_EV_BEACON_FLUSHED, DRAIN_DO_DESTROY, DRAIN_DESTROY);
}

static void test_T4_event_late_and_repeated_in_every_state(void **state) {
    (void)state;
    begin(true);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_IDLE);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_IDLE);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_BEACON, DRAIN_POST);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_POST);
    expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
    uint64_t bound = drain_deadline(&drain);
    now += 5;
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_BEACON);
    assert_true(drain_deadline(&drain) == bound); /* a wait is not prolonged by it */
    expect(DRAIN_EV_BEACON_FLUSHED, DRAIN_DO_DESTROY, DRAIN_DESTROY);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_DESTROY);
    expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_NOTHING, DRAIN_GONE);
}

static void test_T4_start_twice_and_late_news_change_nothing(void **state) {
    (void)state;
    begin(true);
    expect(DRAIN_EV_POLLED, DRAIN_DO_NOTHING, DRAIN_IDLE);
    expect(DRAIN_EV_TIMER, DRAIN_DO_NOTHING, DRAIN_IDLE);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_WAIT, DRAIN_WAIT_EVENT);
    expect(DRAIN_EV_START, DRAIN_DO_NOTHING, DRAIN_WAIT_EVENT);
    expect(DRAIN_EV_START_DIRECT, DRAIN_DO_NOTHING, DRAIN_WAIT_EVENT);
    expect(DRAIN_EV_POLLED, DRAIN_DO_NOTHING, DRAIN_WAIT_EVENT);
    expect(DRAIN_EV_LAST_WQE, DRAIN_DO_BEACON, DRAIN_POST);
    expect(DRAIN_EV_POLLED, DRAIN_DO_NOTHING, DRAIN_POST);
    expect(DRAIN_EV_START, DRAIN_DO_NOTHING, DRAIN_POST);
    expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
    expect(DRAIN_EV_START_DIRECT, DRAIN_DO_NOTHING, DRAIN_BEACON);
    expect(DRAIN_EV_POLLED, DRAIN_DO_DESTROY, DRAIN_DESTROY);
    expect(DRAIN_EV_BEACON_FLUSHED, DRAIN_DO_NOTHING, DRAIN_DESTROY); /* late */
    expect(DRAIN_EV_POLLED, DRAIN_DO_NOTHING, DRAIN_DESTROY);
    expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
    expect(DRAIN_EV_BEACON_FLUSHED, DRAIN_DO_NOTHING, DRAIN_GONE);
    expect(DRAIN_EV_POLLED, DRAIN_DO_NOTHING, DRAIN_GONE);
    expect(DRAIN_EV_TIMER, DRAIN_DO_NOTHING, DRAIN_GONE);
    expect(DRAIN_EV_START, DRAIN_DO_NOTHING, DRAIN_GONE);
}

static void test_T4_destroy_fails_at_first(void **state) {
    (void)state;
    begin(false);
    expect(DRAIN_EV_START_DIRECT, DRAIN_DO_DESTROY, DRAIN_DESTROY);
    uint64_t pause_before = 0;
    for (int i = 0; i < 20; i++) { /* as often as it takes, further and further apart */
        expect(DRAIN_EV_DESTROY_REFUSED, DRAIN_DO_NOTHING, DRAIN_DESTROY);
        uint64_t pause = drain_deadline(&drain) - now;
        assert_true(pause >= pause_before);
        assert_true(pause <= (uint64_t)DRAIN_RETRY_NS << DRAIN_RETRY_DOUBLINGS);
        pause_before = pause;
        expire(DRAIN_DO_DESTROY, DRAIN_DESTROY);
    }
    expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
}

static void test_T4_beacon_refused_then_taken(void **state) {
    (void)state;
    begin(false);
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_BEACON, DRAIN_POST);
    for (int i = 0; i < DRAIN_POST_REFUSALS_MAX - 1; i++) {
        expect(DRAIN_EV_BEACON_REFUSED, DRAIN_DO_NOTHING, DRAIN_POST);
        expire(DRAIN_DO_BEACON, DRAIN_POST);
    }
    expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
    expect(DRAIN_EV_BEACON_FLUSHED, DRAIN_DO_DESTROY, DRAIN_DESTROY);
    assert_false(drain.forced);
}

static void test_T9_beacon_never_taken_is_forced_and_named(void **state) {
    (void)state;
    begin(false);
    uint64_t start = now;
    expect(DRAIN_EV_START, DRAIN_DO_ERROR_BEACON, DRAIN_POST);
    for (int i = 0; drain.state == DRAIN_POST; i++) {
        assert_true(i <= DRAIN_POST_REFUSALS_MAX);
        assert_int_equal(drain_step(&drain, DRAIN_EV_BEACON_REFUSED, now), DRAIN_DO_NOTHING);
        now = drain_deadline(&drain);
        drain_step(&drain, DRAIN_EV_TIMER, now);
    }
    assert_int_equal(drain.state, DRAIN_DESTROY);
    assert_true(drain.forced);
    assert_int_equal(drain.forced_in, DRAIN_POST);
    assert_true(now - start <= TIMEOUT_NS);
}

static void test_T9_beacon_never_flushed_is_forced_within_the_bound(void **state) {
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        begin(wait != 0);
        uint64_t start = now;
        drain_step(&drain, DRAIN_EV_START, now);
        if (wait != 0)
            expire(DRAIN_DO_BEACON, DRAIN_POST);
        expect(DRAIN_EV_BEACON_POSTED, DRAIN_DO_NOTHING, DRAIN_BEACON);
        expire(DRAIN_DO_DESTROY, DRAIN_DESTROY);
        assert_true(drain.forced);
        assert_int_equal(drain.forced_in, DRAIN_BEACON);
        assert_true(now - start <= TIMEOUT_NS);
        expect(DRAIN_EV_DESTROYED, DRAIN_DO_FINISH, DRAIN_GONE);
    }
}

/* ---- any order of what a device may do ---- */

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

/* The engine's part: it answers what it was told to do, sometimes with a refusal. */
static void answer(enum drain_action action, uint32_t *destroys, uint32_t *finishes) {
    switch (action) {
    case DRAIN_DO_ERROR_BEACON:
    case DRAIN_DO_BEACON:
        answer(drain_step(&drain, draw(3) == 0 ? DRAIN_EV_BEACON_REFUSED : DRAIN_EV_BEACON_POSTED,
                          now),
               destroys, finishes);
        break;
    case DRAIN_DO_DESTROY:
        (*destroys)++;
        answer(
            drain_step(&drain, draw(3) == 0 ? DRAIN_EV_DESTROY_REFUSED : DRAIN_EV_DESTROYED, now),
            destroys, finishes);
        break;
    case DRAIN_DO_FINISH:
        (*finishes)++;
        break;
    case DRAIN_DO_NOTHING:
    case DRAIN_DO_ERROR_WAIT:
        break;
    }
}

static void test_T9_every_random_device_is_gone_in_time_and_once(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5000; seed++) {
        uint32_t destroys = 0;
        uint32_t finishes = 0;

        random_state = seed * 6364136223846793005u + 1;
        begin(draw(2) != 0);
        uint64_t start = now;
        bool flushes = draw(4) != 0;
        answer(drain_step(&drain, draw(5) == 0 ? DRAIN_EV_START_DIRECT : DRAIN_EV_START, now),
               &destroys, &finishes);
        for (int turn = 0; drain.state != DRAIN_GONE; turn++) {
            assert_true(turn < 1000);
            enum drain_event event = DRAIN_EV_TIMER;
            uint32_t what = draw(6);
            if (what == 0)
                event = DRAIN_EV_LAST_WQE;
            else if (what == 1 && drain.state == DRAIN_BEACON && flushes)
                event = DRAIN_EV_BEACON_FLUSHED;
            else if (what == 2)
                event = draw(4) == 0 ? DRAIN_EV_POLLED : DRAIN_EV_START;
            if (event == DRAIN_EV_TIMER) {
                assert_true(drain_deadline(&drain) != NEVER); /* it never just hangs */
                if (drain_deadline(&drain) > now)
                    now = drain_deadline(&drain);
            }
            answer(drain_step(&drain, event, now), &destroys, &finishes);
        }
        assert_int_equal(finishes, 1);
        assert_true(destroys >= 1);
        assert_true(now - start <= TIMEOUT_NS);
    }
}

/* A device that still gives something is waited for as long again, in each wait; nothing is due in
 * a state that waits for nothing. */
static void test_W1_what_is_still_given_begins_a_wait_again(void **state) {
    static const struct drain_options options = {.wait_event = true, .timeout_ns = TIMEOUT_NS};

    (void)state;
    now = 1000;
    drain_init(&drain, &options);
    drain_prolong(&drain, now);
    assert_true(drain_deadline(&drain) == NEVER);
    assert_int_equal(drain_step(&drain, DRAIN_EV_START, now), DRAIN_DO_ERROR_WAIT);
    uint64_t wait_ns = drain_deadline(&drain) - now;
    now = drain_deadline(&drain);
    drain_prolong(&drain, now);
    assert_true(drain_deadline(&drain) == now + wait_ns);
    assert_int_equal(drain_step(&drain, DRAIN_EV_LAST_WQE, now), DRAIN_DO_BEACON);
    drain_step(&drain, DRAIN_EV_BEACON_REFUSED, now);
    wait_ns = drain_deadline(&drain) - now;
    now = drain_deadline(&drain);
    drain_prolong(&drain, now);
    assert_true(drain_deadline(&drain) == now + wait_ns);
    now = drain_deadline(&drain);
    assert_int_equal(drain_step(&drain, DRAIN_EV_TIMER, now), DRAIN_DO_BEACON);
    drain_step(&drain, DRAIN_EV_BEACON_POSTED, now);
    wait_ns = drain_deadline(&drain) - now;
    now = drain_deadline(&drain);
    drain_prolong(&drain, now);
    assert_true(drain_deadline(&drain) == now + wait_ns);
    assert_int_equal(drain_step(&drain, DRAIN_EV_TIMER, drain_deadline(&drain)), DRAIN_DO_DESTROY);
    assert_true(drain.forced);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W1_what_is_still_given_begins_a_wait_again),
        cmocka_unit_test(test_T1_every_cell_is_written),
        cmocka_unit_test(test_T1_error_event_beacon_destroy),
        cmocka_unit_test(test_T1_no_event_to_wait_for),
        cmocka_unit_test(test_T2_never_connected_waits_for_nothing),
        cmocka_unit_test(test_T4_event_early),
        cmocka_unit_test(test_T4_event_absent),
        cmocka_unit_test(test_T4_event_late_and_repeated_in_every_state),
        cmocka_unit_test(test_T4_start_twice_and_late_news_change_nothing),
        cmocka_unit_test(test_T4_destroy_fails_at_first),
        cmocka_unit_test(test_T4_beacon_refused_then_taken),
        cmocka_unit_test(test_T9_beacon_never_taken_is_forced_and_named),
        cmocka_unit_test(test_T9_beacon_never_flushed_is_forced_within_the_bound),
        cmocka_unit_test(test_T9_every_random_device_is_gone_in_time_and_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
