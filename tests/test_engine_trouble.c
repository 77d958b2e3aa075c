/* test_engine_trouble.c: what the application is told of sessions that break, whoever found
 * it (S9, S10). The other side is the test itself: see lone_engine.h. */
#include "lone_engine.h"

#include <string.h>

#define THERE "10.0.0.9:9"

/* Sessions of the others' epoch 1 with instance 1, whom the application opened. */
static struct lone *joined(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    assert_int_not_equal(*conn_out, 0);
    lone_say_iam(lone, *conn_out, 1, THERE);
    lone_answer(lone, *conn_out, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return lone;
}

static weir_transfer notify(struct lone *lone, weir_peer peer) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &options, &transfer), WEIR_OK);
    return transfer;
}

/* ---- a break that is told ---- */

/* The events so far, a letter each: Up, Degraded, Recovered, Gone. */
static const char *told(struct lone *lone) {
    static char letters[EVENTS_KEPT + 1];
    weir_event event;
    size_t count = 0;
    while (weir_event_take(lone->engine, &event) == WEIR_OK) {
        assert_in_range(event.type, WEIR_EVENT_UP, WEIR_EVENT_GONE);
        if (event.type == WEIR_EVENT_DEGRADED)
            assert_int_equal(event.error, WEIR_EDEVICE);
        letters[count++] = "?UDRG"[event.type];
    }
    letters[count] = '\0';
    return letters;
}

static void settle(struct lone *lone, uint64_t conn, uint64_t epoch) {
    struct wire_message message = {.type = WIRE_SETTLE, .epoch = epoch};
    lone_say(lone, conn, 1, &message);
}

/* The engine's own QP shows it: what is posted fails. */
static void breaks_here(struct lone *lone, weir_peer peer) {
    lone->fail_all = WEIR_CQE_FLUSHED;
    notify(lone, peer);
    lone_run(lone);
    lone->fail_all = 0;
    lone->poison = UINT32_MAX;
}

static void test_S9_a_break_by_the_others_word_is_told(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        settle(lone, conn, epoch);
        assert_string_equal(told(lone), "D");
        settle(lone, conn, epoch); /* it is repeated */
        lone_pass(lone, 50 * MS);
        assert_string_equal(told(lone), "");
        lone_answer(lone, conn, 1, epoch + 1);
        lone_pass(lone, 50 * MS);
        assert_string_equal(told(lone), "R");
    }
    weir_qp_info info = WEIR_QP_INFO_INIT;
    assert_int_equal(weir_qp_query(lone->engine, peer, 0, &info), WEIR_OK);
    assert_int_equal(info.recoveries, 3);
    assert_int_equal(lone->engine->stats.sessions_failed, 3);
    lone_close(lone);
}

/* The other side says it with its next session: make before break. */
static void test_S9_a_session_that_another_replaces_is_told(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_up(lone, conn, 1, 2);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "DR");
    settle(lone, conn, 1); /* and what it says of the one before is old */
    assert_string_equal(told(lone), "");
    lone_close(lone);
}

static void test_S9_a_break_that_both_find_is_told_once(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    breaks_here(lone, peer);
    settle(lone, conn, 1);
    assert_string_equal(told(lone), "D");
    lone_answer(lone, conn, 1, 2);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "R");
    settle(lone, conn, 2);
    breaks_here(lone, peer); /* there is no session that could break */
    assert_string_equal(told(lone), "D");
    lone_answer(lone, conn, 1, 3);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "R");
    lone_close(lone);
}

/* One that leaves, or is put out, has broken nothing. */
static void test_S9_the_end_of_a_peer_is_no_break(void **state) {
    struct wire_message bye = {.type = WIRE_BYE};
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_say(lone, conn, 1, &bye);
    assert_string_equal(told(lone), "G");
    assert_int_equal(lone->engine->stats.sessions_failed, 0);
    lone_close(lone);
}

/* A break that ends in the end of the peer: the next session is a first one again. */
static void test_S9_a_degraded_peer_that_goes(void **state) {
    struct wire_message bye = {.type = WIRE_BYE};
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    settle(lone, conn, 1);
    lone_say(lone, conn, 1, &bye);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "DG");
    weir_peer_connect(lone->engine, peer);
    lone_run(lone);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 2, THERE);
    lone_run(lone);
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S9_a_break_by_the_others_word_is_told),
        cmocka_unit_test(test_S9_a_session_that_another_replaces_is_told),
        cmocka_unit_test(test_S9_a_break_that_both_find_is_told_once),
        cmocka_unit_test(test_S9_the_end_of_a_peer_is_no_break),
        cmocka_unit_test(test_S9_a_degraded_peer_that_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
