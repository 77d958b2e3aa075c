/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_absent.c: an engine whose application was away (W1): arrivals meanwhile are looked at
 * before any deadline passes, and no time-out of the engine's own counts time in which nobody was
 * there to listen. The other side is the test itself: see lone_engine.h. */
#include "lone_engine.h"

#include <string.h>

#define THERE   "10.0.0.9:9"
#define CONNECT SECOND /* the connect time-out of lone_open(NULL) */
#define AWAY    (15 * SECOND)

enum { WRITES = 4, LOOKS_LEAST = 10, LOOKS_MOST = 12 };

static bool told(struct lone *lone, weir_event_type type) {
    weir_event event;
    while (weir_event_take(lone->engine, &event) == WEIR_OK) {
        if (event.type == type)
            return true;
        assert_int_not_equal(event.type, WEIR_EVENT_GONE);
    }
    return false;
}

/* The application does something else, and then makes progress once. */
static void come_back(struct lone *lone) {
    lone->now_ns += AWAY;
    assert_true(weir_engine_progress(lone->engine) >= 0);
}

static struct lone *opened(weir_peer *peer_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    return lone;
}

/* Each answer is there at once, and is looked at when the connect time-out is long over. */
static void test_W1_who_answered_is_not_given_up_for_our_being_away(void **state) {
    weir_peer peer;
    (void)state;
    struct lone *lone = opened(&peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone->batch = true;
    come_back(lone);
    assert_non_null(lone_heard(lone, conn, WIRE_WHO));
    lone_say_iam(lone, conn, 1, THERE);
    come_back(lone);
    assert_true(lone_count(lone, conn, WIRE_HELLO) > 0);
    lone->batch = false;
    lone_answer(lone, conn, 1, 1);
    assert_true(told(lone, WEIR_EVENT_UP));
    lone_close(lone);
}

/* But a peer that says nothing is given up: after as many looks as the time-out has patience for.
 * sleeps: the application is told each time how long it may sleep, and does not come then. */
static void given_up_after_some_looks(bool sleeps) {
    weir_event event;
    weir_peer peer;
    uint32_t looks = 0;
    struct lone *lone = opened(&peer);
    assert_int_not_equal(lone_dialled(lone, THERE), 0);
    while (weir_event_take(lone->engine, &event) != WEIR_OK) {
        assert_true(++looks < LOOKS_MOST);
        if (sleeps)
            assert_true(engine_next_deadline(lone->engine) < UINT64_MAX);
        come_back(lone);
    }
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_true(looks >= LOOKS_LEAST);
    lone_close(lone);
}

static void test_W2_who_does_not_answer_is_given_up_after_some_looks(void **state) {
    (void)state;
    given_up_after_some_looks(false);
}

static void test_W2_a_sleep_and_the_absence_after_it_count_as_one(void **state) {
    (void)state;
    given_up_after_some_looks(true);
}

/* The application is told that it may sleep for ever, connects, and is away before it looks. */
static void test_W2_an_absence_does_not_count_after_a_sleep_for_nothing(void **state) {
    weir_event event;
    weir_peer peer;
    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    lone_run(lone);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(engine_next_deadline(lone->engine), UINT64_MAX);
        lone->now_ns += AWAY; /* asleep */
        weir_peer_connect(lone->engine, peer);
        come_back(lone);
        lone_pass(lone, CONNECT * 8 / 10);
        assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
        lone_pass(lone, CONNECT / 2);
        assert_int_equal(weir_event_take(lone->engine, &event), WEIR_OK);
        assert_int_equal(event.type, WEIR_EVENT_GONE);
    }
    lone_close(lone);
}

/* A connect that begins after an absence has the whole time-out, and not more. */
static void test_W2_a_call_after_an_absence_has_the_usual_time(void **state) {
    weir_event event;
    weir_peer peer;
    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    lone_run(lone);
    lone->now_ns += AWAY;
    weir_peer_connect(lone->engine, peer);
    assert_int_not_equal(lone_dialled(lone, THERE), 0);
    lone_pass(lone, CONNECT * 9 / 10);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
    lone_pass(lone, CONNECT / 5);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_OK);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    lone_close(lone);
}

static struct lone *joined(const weir_engine_options *options, weir_peer *peer_out) {
    struct lone *lone = lone_open(options);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_true(told(lone, WEIR_EVENT_UP));
    return lone;
}

/* Transfers with a deadline, of which each step looks at one. */
static void writes_with_deadline(struct lone *lone, weir_peer peer, weir_transfer *transfers) {
    static uint8_t bytes[64];
    weir_transfer_options timed = WEIR_TRANSFER_OPTIONS_INIT;
    weir_memory memory;
    weir_remote remote;
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &memory, &remote);
    timed.timeout_ns = CONNECT;
    for (uint32_t i = 0; i < WRITES; i++) {
        weir_segment segment = {memory, remote, 0, 0, 8};
        assert_int_equal(weir_write(lone->engine, peer, &segment, 1, &timed, &transfers[i]),
                         WEIR_OK);
    }
}

static weir_engine_options small(void) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.transfers_max = 16;
    options.segments_max = 64;
    options.peers_max = options.memories_max = options.remotes_max = 4;
    options.connect_timeout_ns = CONNECT;
    options.poll_budget = 1;
    options.signal_interval = 1;
    return options;
}

static void test_W1_what_was_done_in_time_has_not_timed_out(void **state) {
    weir_engine_options options = small();
    weir_transfer transfers[WRITES];
    weir_peer peer;
    (void)state;
    struct lone *lone = joined(&options, &peer);
    lone->executes = true;
    writes_with_deadline(lone, peer, transfers);
    lone->now_ns += AWAY;
    lone_run(lone);
    for (uint32_t i = 0; i < WRITES; i++)
        assert_int_equal(weir_transfer_status(lone->engine, transfers[i]), WEIR_OK);
    lone_close(lone);
}

static weir_transfer notify_within(struct lone *lone, weir_peer peer, uint64_t timeout_ns) {
    weir_transfer_options timed = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    timed.flags = WEIR_TRANSFER_NOTIFY;
    timed.timeout_ns = timeout_ns;
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &timed, &transfer), WEIR_OK);
    return transfer;
}

/* The engine's time stands still. That of a transfer's deadline is the application's, and does
 * not. */
static void test_S13_a_deadline_is_the_applications(void **state) {
    weir_peer peer;
    (void)state;
    struct lone *lone = opened(&peer);
    weir_transfer before = notify_within(lone, peer, AWAY / 2);
    weir_transfer behind = notify_within(lone, peer, AWAY + CONNECT / 4);
    come_back(lone);
    assert_int_equal(weir_transfer_status(lone->engine, before), WEIR_ETIMEDOUT);
    weir_transfer after = notify_within(lone, peer, CONNECT / 2);
    lone_pass(lone, CONNECT / 5);
    assert_int_equal(weir_transfer_status(lone->engine, behind), WEIR_EINPROGRESS);
    lone_pass(lone, CONNECT / 10);
    assert_int_equal(weir_transfer_status(lone->engine, behind), WEIR_ETIMEDOUT);
    assert_int_equal(weir_transfer_status(lone->engine, after), WEIR_EINPROGRESS);
    lone_pass(lone, CONNECT / 4);
    assert_int_equal(weir_transfer_status(lone->engine, after), WEIR_ETIMEDOUT);
    lone_close(lone);
}

/* A step that comes a tick after the last look is a look; others in the same tick are not. */
static void test_W2_who_makes_progress_seldom_looks_each_time(void **state) {
    weir_peer peer;
    (void)state;
    struct lone *lone = opened(&peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone->engine->has_fd = true;
    for (int i = 0; i < 5; i++) {
        lone->now_ns += 100 * MS;
        weir_engine_progress(lone->engine);
    }
    assert_non_null(lone_heard(lone, conn, WIRE_WHO));
    lone_say_iam(lone, conn, 1, THERE);
    lone->now_ns += 100 * MS;
    weir_engine_progress(lone->engine);
    assert_non_null(lone_heard(lone, conn, WIRE_HELLO));
    lone->engine->has_fd = false;
    lone_close(lone);
}

/* A tenth of the time-out, which is what an absence counts at most, may be less than the clock's
 * least step. */
static void test_W2_the_shortest_time_outs_end(void **state) {
    weir_peer peer;
    (void)state;
    for (uint64_t timeout_ns = 1; timeout_ns <= 11; timeout_ns++) {
        weir_engine_options options = small();
        options.connect_timeout_ns = timeout_ns;
        struct lone *lone = lone_open(&options);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        weir_peer_connect(lone->engine, peer);
        lone_pass(lone, SECOND);
        weir_event event;
        assert_int_equal(weir_event_take(lone->engine, &event), WEIR_OK);
        assert_int_equal(event.type, WEIR_EVENT_GONE);
        assert_int_equal(event.error, WEIR_ECONNECT);
        lone_close(lone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W1_who_answered_is_not_given_up_for_our_being_away),
        cmocka_unit_test(test_W2_who_does_not_answer_is_given_up_after_some_looks),
        cmocka_unit_test(test_W2_a_sleep_and_the_absence_after_it_count_as_one),
        cmocka_unit_test(test_W2_an_absence_does_not_count_after_a_sleep_for_nothing),
        cmocka_unit_test(test_W2_a_call_after_an_absence_has_the_usual_time),
        cmocka_unit_test(test_W2_the_shortest_time_outs_end),
        cmocka_unit_test(test_W1_what_was_done_in_time_has_not_timed_out),
        cmocka_unit_test(test_S13_a_deadline_is_the_applications),
        cmocka_unit_test(test_W2_who_makes_progress_seldom_looks_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
