/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_lost.c: control connections that end in the middle of a handshake: what was said on
 * them is said again at once (H1), and connections that go on to end are met with pauses (H12). */
#include "lone_engine.h"

#define THERE "10.0.0.9:9"

/* Asked for a session with 1, that has said who it is on *conn_out: HELLO went out there. */
static struct lone *offered(uint64_t *conn_out) {
    weir_peer peer;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    lone_say_iam(lone, *conn_out, 1, THERE);
    assert_int_equal(lone_count(lone, *conn_out, WIRE_HELLO), 1);
    return lone;
}

/* 1 calls: the new connection. */
static uint64_t called(struct lone *lone) {
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    return conn;
}

/* HELLO went out on a connection that was reset. It is said again as soon as there is another, and
 * does not wait for its time. */
static void test_H1_what_a_lost_connection_carried_is_said_at_once(void **state) {
    uint64_t first;

    (void)state;
    struct lone *lone = offered(&first);
    lone_cut(lone, first, WEIR_ECONNECT);
    uint64_t second = lone_dialled(lone, THERE);
    assert_int_not_equal(second, 0);
    lone_say_iam(lone, second, 1, THERE);
    assert_int_equal(lone_count(lone, second, WIRE_HELLO), 1);
    lone_say_iam(lone, second, 1, THERE);
    assert_int_equal(lone_count(lone, second, WIRE_HELLO), 1);
    lone_close(lone);
}

/* Something else was said on another connection since, and got through. */
static void test_H1_another_message_does_not_stand_for_a_lost_hello(void **state) {
    uint64_t first;

    (void)state;
    struct lone *lone = offered(&first);
    uint64_t second = called(lone);
    lone_say(lone, second, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
    assert_int_equal(lone_count(lone, second, WIRE_SETTLED), 1);
    lone_cut(lone, first, WEIR_ECONNECT);
    lone_run(lone);
    assert_int_equal(lone_count(lone, second, WIRE_HELLO), 1);
    lone_close(lone);
}

/* The peer lost a connection and this side did not: it is hung up here when the peer has made two
 * more. */
static void test_H1_what_a_connection_carried_that_was_hung_up_is_said_at_once(void **state) {
    uint64_t first;

    (void)state;
    struct lone *lone = offered(&first);
    uint64_t dead = called(lone);
    lone_cut(lone, first, WEIR_ECONNECT);
    lone_run(lone);
    assert_int_equal(lone_count(lone, dead, WIRE_HELLO), 1);
    called(lone);
    uint64_t last = called(lone);
    assert_true(lone->conns[dead].hung);
    lone_run(lone);
    assert_int_equal(lone_count(lone, last, WIRE_HELLO), 1);
    lone_close(lone);
}

/* HELLO that was said again since its connection was lost, and is put off then, is tried at the
 * pace of one that was put off. */
static void test_H1_a_hello_said_again_is_put_off_like_the_first(void **state) {
    uint64_t took_ns[2];

    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        uint64_t conn;
        struct lone *lone = offered(&conn);
        if (cut) {
            lone_cut(lone, conn, WEIR_ECONNECT);
            conn = lone_dialled(lone, THERE);
            lone_say_iam(lone, conn, 1, THERE);
        }
        uint64_t epoch = lone_heard(lone, conn, WIRE_HELLO)->epoch, began_ns = lone->now_ns;
        lone_say(lone, conn, 1,
                 &(struct wire_message){
                     .type = WIRE_REFUSE, .echo = epoch | WIRE_ECHO_LATER, .reason = WEIR_EFULL});
        while (lone_count(lone, conn, WIRE_HELLO) == 1 && lone->now_ns < began_ns + SECOND)
            lone_pass(lone, MS);
        took_ns[cut] = lone->now_ns - began_ns;
        lone_close(lone);
    }
    assert_int_equal(took_ns[0], took_ns[1]);
}

/* Something between the two resets every connection once the peer has said who it is. Each is
 * dialled again, for as long as that goes on, but not at the speed of the wire. */
static void test_H12_a_reset_of_every_connection_is_met_with_pauses(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    lone_run(lone);
    for (uint64_t end = lone->now_ns + 2 * SECOND; lone->now_ns < end; lone_pass(lone, MS)) {
        uint64_t conn = lone_dialled(lone, THERE);
        if (conn == 0 || !lone->conns[conn].open)
            continue;
        lone_say_iam(lone, conn, 1, THERE);
        lone_cut(lone, conn, WEIR_ECONNECT);
    }
    assert_in_range(lone->dials, 5, 16);
    lone_close(lone);
}

/* One that has never answered is dialled for each wish, however short the time for connecting and
 * however soon after the last one was in vain. */
static void test_H12_who_never_answered_is_dialled_for_each_wish(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_event event;
    weir_peer peer;

    (void)state;
    options.connect_timeout_ns = 200 * MS;
    struct lone *lone = lone_open(&options);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    for (int wish = 0; wish < 20; wish++) {
        uint64_t before = lone->dials;
        assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
        for (int i = 0; i < 1000 && !lone_told(lone, WEIR_EVENT_GONE, &event); i++) {
            uint64_t conn = lone_dialled(lone, THERE);
            if (conn != 0 && lone->conns[conn].open)
                lone_cut(lone, conn, WEIR_ECONNECT);
            lone_pass(lone, MS);
        }
        assert_int_equal(event.error, WEIR_ECONNECT);
        assert_true(lone->dials - before >= 4);
    }
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_what_a_lost_connection_carried_is_said_at_once),
        cmocka_unit_test(test_H1_another_message_does_not_stand_for_a_lost_hello),
        cmocka_unit_test(test_H1_what_a_connection_carried_that_was_hung_up_is_said_at_once),
        cmocka_unit_test(test_H1_a_hello_said_again_is_put_off_like_the_first),
        cmocka_unit_test(test_H12_who_never_answered_is_dialled_for_each_wish),
        cmocka_unit_test(test_H12_a_reset_of_every_connection_is_met_with_pauses),
    };

    return cmocka_run_group_tests_name("lost control connections", tests, NULL, NULL);
}
