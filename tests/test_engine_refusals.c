/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_refusals.c: a side that refuses a session says why, and the refused side can read it
 * (W9). The other side is the test itself: see lone_engine.h. */
#include "lone_engine.h"

#include <string.h>

#define THERE "10.0.0.9:9"

/* Instance 1 is at the address that the application opened, and has said IAM. */
static struct lone *met(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, *peer_out), WEIR_ENOTREADY);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    assert_int_not_equal(*conn_out, 0);
    lone_say_iam(lone, *conn_out, 1, THERE);
    return lone;
}

static int refusal(struct lone *lone, weir_peer peer) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_OK);
    return info.refusal;
}

/* The engine's HELLO there is refused. later: WIRE_ECHO_LATER, or 0. */
static void refuse(struct lone *lone, uint64_t conn, uint64_t later, int reason) {
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_say(lone, conn, 1,
             &(struct wire_message){
                 .type = WIRE_REFUSE, .echo = hello->epoch | later, .reason = reason});
}

static void assert_gone_refused(struct lone *lone, int reason) {
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EREFUSED);
    assert_int_equal((int)event.value, reason);
}

/* ---- we are refused ---- */

static void test_W9_a_refusal_for_good_ends_the_wish_and_its_reason_is_told(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    weir_transfer transfer = lone_submit_notification(lone, peer);
    refuse(lone, conn, 0, WEIR_EDEVICE);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EREFUSED);
    assert_gone_refused(lone, WEIR_EDEVICE);
    assert_int_equal(refusal(lone, peer), WEIR_EDEVICE);
    /* It is asked again, and its device may be another. */
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    assert_int_equal(refusal(lone, peer), 0);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_close(lone);
}

static void test_W9_a_reason_to_wait_is_told_when_the_time_is_over(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    weir_transfer transfer = lone_submit_notification(lone, peer);
    refuse(lone, conn, WIRE_ECHO_LATER, WEIR_EFULL);
    assert_int_equal(refusal(lone, peer), WEIR_EFULL); /* it can be asked for meanwhile */
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    lone_pass(lone, 100 * MS);
    assert_true(lone_count(lone, conn, WIRE_HELLO) > 0); /* the same one, again */
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EREFUSED);
    assert_gone_refused(lone, WEIR_EFULL);
    lone_close(lone);
}

static void test_W9_a_reason_to_wait_that_is_over_leaves_nothing(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    refuse(lone, conn, WIRE_ECHO_LATER, WEIR_EFULL);
    lone_pass(lone, 100 * MS);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    assert_int_equal(refusal(lone, peer), 0);
    lone_close(lone);
}

/* A lack of our own is ours to tell. */
static void test_W7_a_lack_of_our_own_is_the_status_when_the_time_is_over(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (int i = 0; i < 2; i++) {
        int lack = i == 0 ? WEIR_EFULL : WEIR_ENOMEM;
        struct lone *lone = lone_open(NULL);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        lone->no_qps = true;
        lone->qps_error = lack;
        weir_transfer transfer = lone_submit_notification(lone, peer);
        lone_run(lone);
        conn = lone_dialled(lone, THERE);
        lone_say_iam(lone, conn, 1, THERE);
        lone_pass(lone, 2 * SECOND);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), lack);
        assert_int_equal(refusal(lone, peer), 0);
        lone_close(lone);
    }
}

/* ---- we refuse ---- */

/* The application here is told as well. of_peer: it has a handle for whom. */
static void assert_refused_told(struct lone *lone, int error, bool of_peer) {
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_REFUSED);
    assert_int_equal(event.error, error);
    assert_int_equal(event.peer.id != 0, of_peer);
}

static void assert_counted(struct lone *lone, uint64_t refused) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(lone->engine, &stats), WEIR_OK);
    assert_int_equal(stats.sessions_refused, refused);
}

/* The engine's answer to the HELLO of a visitor when its device makes no QPs. */
static const struct wire_message *refused(struct lone *lone, uint64_t conn, int error) {
    lone->no_qps = true;
    lone->qps_error = error;
    lone_say_hello(lone, conn, 2, 1);
    const struct wire_message *refuse = lone_heard(lone, conn, WIRE_REFUSE);
    lone->no_qps = false;
    return refuse;
}

static void test_W9_a_visitor_hears_what_is_lacking_and_comes_in_later(void **state) {
    static const int LACKS[] = {WEIR_EFULL, WEIR_ENOMEM};

    (void)state;
    for (size_t i = 0; i < sizeof(LACKS) / sizeof(LACKS[0]); i++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 2, "10.0.0.10:9");
        const struct wire_message *later = refused(lone, conn, LACKS[i]);
        assert_non_null(later);
        assert_int_equal(later->reason, LACKS[i]);
        assert_true(later->echo == (1 | WIRE_ECHO_LATER));
        assert_refused_told(lone, LACKS[i], true);
        for (int k = 0; k < 3; k++)
            assert_non_null(refused(lone, conn, LACKS[i])); /* as often as it asks */
        lone_up(lone, conn, 2, 1);                          /* the very HELLO that found no room */
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
        assert_counted(lone, 4);
        lone_close(lone);
    }
}

static void test_W9_a_visitor_hears_at_once_what_will_not_get_better(void **state) {
    static const int FAULTS[] = {WEIR_EDEVICE, WEIR_EACCESS, WEIR_ENOTSUP};

    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 2, "10.0.0.10:9");
        const struct wire_message *told = refused(lone, conn, FAULTS[i]);
        assert_non_null(told);
        assert_int_equal(told->reason, FAULTS[i]);
        assert_int_equal(told->echo, 1);
        assert_refused_told(lone, FAULTS[i], true);
        assert_counted(lone, 1);
        lone_close(lone);
    }
}

/* All slots for those that come by themselves are taken. */
static void test_W9_a_visitor_for_whom_there_is_no_slot_hears_so(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL); /* peers_max is 8 */
    uint32_t n = 1;
    uint64_t conn;
    for (;; n++) {
        conn = lone_visit(lone);
        lone_say_who(lone, conn, n, "");
        lone_say_hello(lone, conn, n, 1);
        if (lone_count(lone, conn, WIRE_HELLO_ACK) == 0)
            break;
        const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
        lone_say_ready(lone, conn, n, 1, ack->epoch);
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    }
    assert_int_equal(n, 7); /* a quarter is the application's */
    const struct wire_message *later = lone_heard(lone, conn, WIRE_REFUSE);
    assert_non_null(later);
    assert_int_equal(later->reason, WEIR_EFULL);
    assert_true(later->echo == (1 | WIRE_ECHO_LATER));
    assert_refused_told(lone, WEIR_EFULL, false);
    lone_say_hello(lone, conn, n, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_REFUSE));
    weir_event event;
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN); /* told once */
    assert_counted(lone, 2);
    lone_close(lone);
}

/* A device that cannot connect to the visitor's, for good. */
static void test_W9_a_visitor_whose_QPs_cannot_be_connected_is_told_of(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone->connect_error = WEIR_EACCESS;
    lone_say_who(lone, conn, 2, "10.0.0.10:9");
    lone_say_hello(lone, conn, 2, 1);
    const struct wire_message *told = lone_heard(lone, conn, WIRE_REFUSE);
    assert_non_null(told);
    assert_int_equal(told->reason, WEIR_EACCESS);
    assert_int_equal(told->echo, 1);
    assert_refused_told(lone, WEIR_EACCESS, true);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W9_a_refusal_for_good_ends_the_wish_and_its_reason_is_told),
        cmocka_unit_test(test_W9_a_reason_to_wait_is_told_when_the_time_is_over),
        cmocka_unit_test(test_W9_a_reason_to_wait_that_is_over_leaves_nothing),
        cmocka_unit_test(test_W7_a_lack_of_our_own_is_the_status_when_the_time_is_over),
        cmocka_unit_test(test_W9_a_visitor_hears_what_is_lacking_and_comes_in_later),
        cmocka_unit_test(test_W9_a_visitor_hears_at_once_what_will_not_get_better),
        cmocka_unit_test(test_W9_a_visitor_for_whom_there_is_no_slot_hears_so),
        cmocka_unit_test(test_W9_a_visitor_whose_QPs_cannot_be_connected_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
