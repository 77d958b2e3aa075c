/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_dials.c: what keeps an engine from dialling, and connections that nobody needs any
 * more (W3, W9, H12). The other side is the test itself: see lone_engine.h. The connect time-out is
 * a second. */
#include "lone_engine.h"

#define THERE "10.0.0.9:9"

/* A name that does not resolve, and what this process lacks to dial, say nothing of a peer: while
 * its device answers it is there, and then it has the patience of any other. */
static void test_W3_what_keeps_from_dialling_is_no_end(void **state) {
    static const int why[] = {WEIR_EADDRESS, WEIR_EUNREACH, WEIR_EMFILE, WEIR_ENOMEM, WEIR_EFULL};
    weir_event event;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(why) / sizeof(*why); i++) {
        struct lone *lone = lone_open(NULL);
        int error = why[i / 2];
        lone->executes = true;
        assert_int_equal(weir_peer_open(lone->engine, "some.name:9", &peer), WEIR_OK);
        weir_peer_connect(lone->engine, peer);
        conn = lone_dialled(lone, "some.name:9");
        lone_say_iam(lone, conn, 1, THERE);
        lone_answer(lone, conn, 1, 1);
        lone->dial_error = i % 2 == 0 ? error : 0; /* at once, or later */
        lone_cut(lone, conn, WEIR_ECONNECT);
        for (int s = 0; s < 10; s++) {
            uint64_t dialled = lone_dialled(lone, "some.name:9");
            if (i % 2 != 0 && dialled != 0)
                lone_cut(lone, dialled, error);
            lone_pass(lone, SECOND / 2);
        }
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone->executes = false;
        lone->dial_error = error;
        uint64_t dialled = lone_dialled(lone, "some.name:9");
        if (dialled != 0)
            lone_cut(lone, dialled, error);
        lone_pass(lone, 3 * SECOND);
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_int_equal(event.error, error);
        lone_close(lone);
    }
}

/* What this process lacks to dial is the reason that the wish ends with, at the deadline. A name
 * that does not exist ends the wish at once. */
static void test_W9_what_a_dial_lacks_is_told(void **state) {
    static const int why[] = {WEIR_EADDRESS, WEIR_EUNREACH, WEIR_EMFILE, WEIR_ENOMEM, WEIR_EFULL};
    weir_event event;
    weir_peer peer;

    (void)state;
    for (size_t i = 0; i < sizeof(why) / sizeof(*why); i++) {
        struct lone *lone = lone_open(NULL);
        lone->dial_error = why[i];
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        weir_peer_connect(lone->engine, peer);
        lone_pass(lone, SECOND / 2);
        assert_int_equal(lone_told(lone, WEIR_EVENT_GONE, &event), why[i] == WEIR_EADDRESS);
        lone_pass(lone, SECOND);
        if (why[i] != WEIR_EADDRESS)
            assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_int_equal(event.error, why[i]);
        lone_close(lone);
    }
}

/* Dials that were answered and reset have made the pause long. However short the time-out is, a
 * dial that this process could not make is made again before it. */
static void test_W3_a_lack_that_passes_is_no_end(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_event event;
    uint64_t conn;

    (void)state;
    options.connect_timeout_ns = 400 * MS;
    struct lone *lone = lone_open(&options);
    lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    for (int i = 0; i < 12; i++) { /* answered, and reset */
        uint64_t dialled = 0;
        for (int t = 0; t < 100 && dialled == 0; t++) {
            lone_pass(lone, 10 * MS);
            dialled = lone_dialled(lone, THERE);
        }
        lone_say_iam(lone, dialled, 1, THERE);
        lone->dial_error = i == 11 ? WEIR_EMFILE : 0;
        lone_cut(lone, dialled, WEIR_ECONNECT);
    }
    lone_pass(lone, 150 * MS);
    lone->dial_error = 0;
    lone_pass(lone, 150 * MS);
    assert_int_not_equal(lone_dialled(lone, THERE), 0);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* A peer called, had to be refused, and answers under a name that the application has opened, too.
 * No session is there, and each connection of its breaks: that is not the end of what was asked. */
static void test_W3_a_name_that_is_held_is_waited_with(void **state) {
    weir_event event;
    weir_peer opened;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->no_qps = true;
    lone->qps_error = WEIR_EMFILE;
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, "");
    lone_say_hello(lone, conn, 1, 1);
    assert_true(lone_told(lone, WEIR_EVENT_REFUSED, &event));
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    weir_transfer transfer = lone_submit_notification(lone, opened);
    lone_run(lone);
    uint64_t dialled = lone_dialled(lone, THERE);
    lone_say_iam(lone, dialled, 1, "");
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    assert_int_equal(event.peer.id, opened.id);
    uint64_t peer = event.value;
    lone_pass(lone, 5 * MS);
    lone_cut(lone, dialled, WEIR_ECONNECT);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 100 * MS);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone->no_qps = false;
    conn = lone_visit(lone);
    lone_return(lone, conn, 1, "");
    lone_up(lone, conn, 1, 2);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &event));
    assert_int_equal(event.peer.id, peer);
    assert_null(engine_verify(lone->engine));
    lone_close(lone);
}

/* The refusal at its own address was its end: while it drains it is dialled no more. */
static void test_W3_who_is_gone_is_not_dialled(void **state) {
    weir_event event;
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    lone->no_destroy = true;
    lone_cut(lone, conn, WEIR_ECONNECT);
    uint64_t dials = lone->dials;
    lone_cut(lone, lone->conn_count, WEIR_EPEER); /* the dial anew */
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_pass(lone, 3 * SECOND);
    assert_int_equal(lone->dials, dials);
    lone->no_destroy = false;
    lone_close(lone);
}

/* Nor is it while it drains, when a dial was under way, or paused, as it said BYE. */
static void test_W3_who_has_left_is_not_dialled(void **state) {
    weir_event event;

    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        struct lone *lone = lone_open(NULL);
        lone->no_destroy = true;
        lone_meet(lone, 1, THERE, NULL);
        uint64_t conn = lone_visit(lone);
        lone_return(lone, conn, 1, THERE);
        weir_peer opened;
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        uint64_t dialled = lone_dialled(lone, THERE);
        assert_int_not_equal(dialled, 0);
        if (paused)
            lone_cut(lone, dialled, WEIR_ECONNECT);
        uint64_t dials = lone->dials;
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_true(lone->conns[dialled].hung || paused);
        lone_pass(lone, 3 * SECOND);
        assert_int_equal(lone->dials, dials);
        lone->no_destroy = false;
        lone_close(lone);
    }
}

/* An entry of our own address, which is asked who answers there, leaves no connection behind. */
static void test_H12_a_peer_that_is_closed_keeps_no_connection(void **state) {
    weir_event event;
    weir_peer own;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &own), WEIR_OK);
    weir_peer_connect(lone->engine, own);
    uint64_t conn = lone_dialled(lone, THERE), here = lone_visit(lone);
    struct wire_message who = {.type = WIRE_WHO}, iam = {.type = WIRE_IAM};
    lone_say_as(lone, here, lone->engine->instance, &who); /* it is asked there, too */
    iam.pass = lone_heard(lone, here, WIRE_IAM)->pass;
    lone_say_as(lone, conn, lone->engine->instance, &iam);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &event)); /* the engine itself */
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    assert_int_equal(event.peer.id, own.id);
    assert_true(lone->conns[conn].hung);
    lone_meet(lone, 1, THERE, NULL); /* says that it is there */
    lone_run(lone);
    assert_int_equal(weir_peer_close(lone->engine, own), WEIR_OK);
    lone_run(lone);
    assert_null(engine_verify(lone->engine));
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W3_what_keeps_from_dialling_is_no_end),
        cmocka_unit_test(test_W9_what_a_dial_lacks_is_told),
        cmocka_unit_test(test_W3_a_lack_that_passes_is_no_end),
        cmocka_unit_test(test_W3_a_name_that_is_held_is_waited_with),
        cmocka_unit_test(test_W3_who_is_gone_is_not_dialled),
        cmocka_unit_test(test_W3_who_has_left_is_not_dialled),
        cmocka_unit_test(test_H12_a_peer_that_is_closed_keeps_no_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
