/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_restart.c: a process that is started in another one's place, at its address: its
 * death is seen, and the one that comes is met by the handle that was opened (H1, W3). The other
 * side is the test itself: see lone_engine.h. */
#include "lone_engine.h"

#include <stdio.h>
#include <string.h>

#define THERE "10.0.0.9:9"

static weir_event gone_event(struct lone *lone) {
    weir_event event;
    do
        event = lone_event(lone);
    while (event.type != WEIR_EVENT_GONE);
    return event;
}

/* Instance 1 at THERE was opened, and has a session. */
static struct lone *opened(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    *conn_out = lone_dialled(lone, THERE);
    lone_say_iam(lone, *conn_out, 1, THERE);
    lone_answer(lone, *conn_out, 1, 1);
    return lone;
}

/* Instance 1 at THERE was opened, and has ended: killed, or with a word. Its QPs may drain yet. */
static struct lone *ended(bool killed, bool drains, weir_peer *peer_out) {
    uint64_t dialled;
    struct lone *lone = opened(peer_out, &dialled);
    lone->no_destroy = drains;
    if (killed) {
        lone_cut(lone, dialled, WEIR_ECONNECT);
        lone_cut(lone, lone->conn_count, WEIR_EPEER); /* the dial, which is the last */
    } else {
        lone_say(lone, dialled, 1, &(struct wire_message){.type = WIRE_BYE});
    }
    assert_int_equal(gone_event(lone).peer.id, peer_out->id);
    lone_run(lone);
    return lone;
}

/* Instance n calls from there, before it is dialled. */
static uint64_t calls(struct lone *lone, uint32_t n) {
    uint64_t conn = lone_visit(lone);
    snprintf(lone->conns[conn].from, sizeof(lone->conns[conn].from), "10.0.0.9");
    lone_say_who(lone, conn, n, THERE);
    lone_say_hello(lone, conn, n, 1);
    return conn;
}

/* Instance 1 called from there, and has a session. */
static struct lone *met(uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    *conn_out = calls(lone, 1);
    lone_up(lone, *conn_out, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return lone;
}

/* It is asked for at its address first, and has the handle that was opened, also while the QPs of
 * the one before it drain. */
static void test_H1_who_comes_back_has_the_opened_handle(void **state) {
    weir_event event;
    weir_peer peer;

    (void)state;
    for (uint32_t n = 2; n < 6; n++) {
        struct lone *lone = ended(n % 2 == 0, n >= 4, &peer);
        uint64_t conn = calls(lone, n);
        assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
        lone->no_destroy = false;
        lone_pass(lone, 100 * MS);
        lone_say_hello(lone, conn, n, 1);
        assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
        uint64_t dialled = lone_dialled(lone, THERE);
        assert_int_not_equal(dialled, 0);
        lone_say_iam(lone, dialled, n, THERE);
        lone_up(lone, conn, n, 1);
        event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_UP);
        assert_int_equal(event.peer.id, peer.id);
        assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
        lone_close(lone);
    }
}

/* A device that keeps the QPs of the one before it keeps nobody out. */
static void test_H1_who_comes_back_does_not_wait_for_a_drain_for_ever(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = ended(true, true, &peer);
    uint64_t conn = calls(lone, 2);
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone_pass(lone, 10 * SECOND / 4);
    lone_up(lone, conn, 2, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone->no_destroy = false;
    lone_close(lone);
}

/* The session with instance 1 broke, and is not up again: it has died meanwhile, and instance 2
 * calls before that is seen. seen: the end of its connection has been. */
static void comes_back_while_it_recovers(bool seen) {
    weir_event event;
    weir_peer peer;
    uint64_t first;
    struct lone *lone = opened(&peer, &first);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_say(lone, first, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_DEGRADED);
    if (seen)
        lone_cut(lone, first, WEIR_ECONNECT);
    uint64_t conn = calls(lone, 2);
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    uint64_t asked = lone_dialled(lone, THERE);
    assert_int_not_equal(asked, 0);
    assert_int_not_equal(asked, first);
    lone_say_iam(lone, asked, 2, THERE);
    event = gone_event(lone);
    assert_int_equal(event.peer.id, peer.id);
    assert_int_equal(event.error, WEIR_EPEER);
    lone_pass(lone, 100 * MS);
    lone_say_hello(lone, conn, 2, 1);
    asked = lone_dialled(lone, THERE);
    if (asked != 0)
        lone_say_iam(lone, asked, 2, THERE);
    lone_up(lone, conn, 2, 1);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, peer.id);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
    lone_close(lone);
}

static void test_H1_who_comes_back_while_the_session_recovers(void **state) {
    (void)state;
    comes_back_while_it_recovers(false);
    comes_back_while_it_recovers(true);
}

/* One that lives answers there, and the other is met as another: its word of itself is wrong. */
static void test_H1_who_claims_the_address_of_one_that_lives_waits_not_long(void **state) {
    weir_peer peer;
    uint64_t first;

    (void)state;
    struct lone *lone = opened(&peer, &first);
    lone_say(lone, first, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
    uint64_t conn = calls(lone, 2);
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    lone_pass(lone, SECOND / 4 + 10 * MS);
    lone_up(lone, conn, 2, 1);
    for (weir_event event = {0}; event.peer.id == 0 || event.peer.id == peer.id;
         event = lone_event(lone))
        assert_int_not_equal(event.type, WEIR_EVENT_GONE);
    lone_close(lone);
}

/* A peer that called, said where it is, and was opened under a name of that: it has answered there,
 * so another one that answers has its place. */
static void test_W3_a_peer_that_was_reached_by_a_name_is_gone_when_another_is_there(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&conn);
    assert_int_equal(weir_peer_open(lone->engine, "there.example:9", &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    lone_run(lone);
    uint64_t named = lone_dialled(lone, "there.example:9");
    snprintf(lone->conns[named].from, sizeof(lone->conns[named].from), "10.0.0.9");
    lone_say_iam(lone, named, 1, THERE);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_SAME);
    lone_cut(lone, named, WEIR_EPEER);
    lone_cut(lone, conn, WEIR_EPEER);
    uint64_t begin_ns = lone->now_ns;
    lone_say_iam(lone, lone_dialled(lone, THERE), 2, THERE);
    assert_int_equal(gone_event(lone).error, WEIR_EPEER);
    assert_true(lone->now_ns - begin_ns < 100 * MS);
    lone_close(lone);
}

/* One that was never dialled while it lived: its word is all there is, and of the host that it came
 * from. It may call again for a quarter of the time-out. */
static void test_W3_a_peer_whose_place_another_has_is_given_up_soon(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&conn);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_DEGRADED);
    lone_cut(lone, conn, WEIR_EPEER);
    lone_say_iam(lone, lone_dialled(lone, THERE), 2, THERE);
    lone_pass(lone, SECOND / 4 - 20 * MS);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
    lone_pass(lone, 40 * MS);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EPEER);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_who_comes_back_has_the_opened_handle),
        cmocka_unit_test(test_H1_who_comes_back_does_not_wait_for_a_drain_for_ever),
        cmocka_unit_test(test_H1_who_comes_back_while_the_session_recovers),
        cmocka_unit_test(test_H1_who_claims_the_address_of_one_that_lives_waits_not_long),
        cmocka_unit_test(test_W3_a_peer_that_was_reached_by_a_name_is_gone_when_another_is_there),
        cmocka_unit_test(test_W3_a_peer_whose_place_another_has_is_given_up_soon),
    };
    return cmocka_run_group_tests_name("engine_restart", tests, NULL, NULL);
}
