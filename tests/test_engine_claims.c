/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_claims.c: the address that a peer says is its, and that the application opens: who is
 * there is asked first, for a stated time, and nothing goes to the peer before (H1). The other side
 * is the test itself: see lone_engine.h. The connect time-out is a second. */
#include "lone_engine.h"

#include <stdio.h>

#define THERE "10.0.0.9:9"
#define OTHER "10.0.0.66:6"

/* Another instance answers at the claimed address. The claimant is given up, and the transfer,
 * which still waits, goes to nobody. */
static void claim_fails(struct lone *lone, weir_transfer transfer) {
    weir_event event;
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    lone_say_iam(lone, lone_dialled(lone, THERE), 2, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_pass(lone, SECOND);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EPEER);
    lone_close(lone);
}

/* Instance 1 was met, and the only connection that it made has ended. */
static void meet_and_lose(struct lone *lone) {
    uint64_t conn;
    lone->executes = true;
    lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
}

/* It answers at another address, which the application opened. The connection there. */
static uint64_t answer_elsewhere(struct lone *lone) {
    weir_peer other;
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &other), WEIR_OK);
    weir_peer_connect(lone->engine, other);
    uint64_t conn = lone_dialled(lone, OTHER);
    lone_say_iam(lone, conn, 1, OTHER);
    return conn;
}

/* An opened address means the instance that answers there. A transfer through it goes to nobody
 * else, also when the handle was closed before the answer came. */
static void test_H1_a_claim_is_judged_though_its_handle_was_closed(void **state) {
    weir_event event;
    weir_peer opened;

    (void)state;
    for (int answers = 0; answers < 2; answers++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        weir_peer peer = lone_meet(lone, 1, THERE, NULL);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        uint64_t dialled = lone_dialled(lone, THERE);
        weir_transfer transfer = lone_submit_notification(lone, opened);
        assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_OK);
        lone_say_iam(lone, dialled, answers ? 1 : 2, THERE);
        lone_pass(lone, 2 * SECOND);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), answers ? 0 : WEIR_EPEER);
        assert_int_equal(lone_told(lone, WEIR_EVENT_GONE, &event), !answers);
        if (!answers)
            assert_int_equal(event.peer.id, peer.id);
        lone_close(lone);
    }
}

/* A proof takes its own quarter of the connect time-out, however long the address was silent
 * before: a dial was under way since a connection was lost, or the address was opened, closed, and
 * opened once more. */
static void test_H1_a_proof_has_a_time_of_its_own(void **state) {
    weir_event event;
    weir_peer opened;
    uint64_t conn;

    (void)state;
    for (int reopened = 0; reopened < 2; reopened++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        lone_meet(lone, 1, THERE, &conn);
        if (reopened) {
            assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
            lone_dialled(lone, THERE);
            lone_pass(lone, 1100 * MS);
            assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_OK);
        } else {
            lone_cut(lone, conn, WEIR_ECONNECT);
            lone_dialled(lone, THERE);
            lone_return(lone, lone_visit(lone), 1, THERE);
            lone_pass(lone, 240 * MS);
        }
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        weir_transfer transfer = lone_submit_notification(lone, opened);
        lone_pass(lone, 200 * MS);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
        lone_say_iam(lone, lone_dialled(lone, THERE), 2, THERE);
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EPEER);
        lone_close(lone);
    }
}

/* And no more than that, though the peer's connections end again and again meanwhile. */
static void test_H1_a_proof_ends_in_time(void **state) {
    weir_peer opened;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    lone_meet(lone, 1, THERE, &conn);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    weir_transfer transfer = lone_submit_notification(lone, opened);
    for (int i = 0; i < 3; i++) {
        lone_pass(lone, 90 * MS);
        lone_cut(lone, conn, WEIR_ECONNECT);
        conn = lone_visit(lone);
        lone_return(lone, conn, 1, THERE);
    }
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
    lone_close(lone);
}

/* Nor though the address is opened and closed again and again. It is dialled once for all that. */
static void test_H1_there_is_one_proof_at_a_time(void **state) {
    weir_peer opened;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    lone_meet(lone, 1, THERE, NULL);
    weir_transfer first = {0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        weir_transfer transfer = lone_submit_notification(lone, opened);
        if (i == 0)
            first = transfer;
        assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_OK);
        lone_pass(lone, 80 * MS);
    }
    assert_int_equal(weir_transfer_status(lone->engine, first), WEIR_OK);
    assert_int_equal(lone->dials, 1);
    lone_close(lone);
}

/* Nobody was there, so the peer's word was all there was, and it was sent to. When another answers
 * after all, a transfer that still waits goes nowhere, though the handle was closed. */
static void test_H1_a_late_answer_ends_a_claim(void **state) {
    weir_peer opened;

    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        struct lone *lone = lone_open(NULL); /* its work is not done: what is posted waits */
        lone_meet(lone, 1, THERE, NULL);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        weir_transfer transfer = lone_submit_notification(lone, opened);
        if (refused)
            lone_cut(lone, lone_dialled(lone, THERE), WEIR_EPEER);
        lone_pass(lone, 300 * MS);
        assert_false(lone_peer(lone, 1)->proving);
        assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_OK);
        claim_fails(lone, transfer);
    }
}

/* The peer that makes the claim cannot shorten the proof: it cut its connection and lived on, so
 * that its address was dialled for long, and calls again, or falls silent, when the application has
 * opened that address. */
static void test_H1_a_claimant_does_not_end_its_own_proof(void **state) {
    weir_peer opened;

    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct lone *lone = lone_open(NULL);
        meet_and_lose(lone);
        lone_pass(lone, 2900 * MS); /* its device answers */
        if (silent) {
            lone->executes = false;
            lone_pass(lone, 900 * MS);
        }
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        weir_transfer transfer = lone_submit_notification(lone, opened);
        lone_pass(lone, 5 * MS);
        lone_return(lone, lone_visit(lone), 1, THERE);
        lone->executes = true;
        lone_pass(lone, 200 * MS);
        claim_fails(lone, transfer);
    }
}

/* Nor does it by answering at its real address, which the application opened as well, while the
 * dial of the claimed one pauses. */
static void test_H1_an_answer_elsewhere_ends_no_proof(void **state) {
    weir_peer opened;
    uint64_t conn = 0;

    (void)state;
    for (int guarded = 0; guarded < 2; guarded++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        if (guarded) {
            meet_and_lose(lone);
        } else {
            conn = lone_visit(lone);
            snprintf(lone->conns[conn].from, sizeof(lone->conns[conn].from), "10.0.0.9");
            lone_say_who(lone, conn, 1, THERE);
            lone_say_hello(lone, conn, 1, 1);
        }
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        weir_transfer transfer = lone_submit_notification(lone, opened);
        lone_cut(lone, lone_dialled(lone, THERE), WEIR_ECONNECT);
        answer_elsewhere(lone);
        if (!guarded)
            lone_say_ready(lone, conn, 1, 1, lone_heard(lone, conn, WIRE_HELLO_ACK)->epoch);
        lone_pass(lone, 200 * MS);
        claim_fails(lone, transfer);
    }
}

/* An honest peer whose address cannot be dialled from here (behind an address translation, say)
 * keeps the connection that another name led to, whatever the proof does. */
static void test_H1_a_proof_takes_no_connection(void **state) {
    weir_event event;
    weir_peer opened;

    (void)state;
    for (int proving = 0; proving < 2; proving++) {
        struct lone *lone = lone_open(NULL);
        meet_and_lose(lone);
        lone_cut(lone, lone_dialled(lone, THERE), WEIR_ECONNECT); /* and a pause */
        if (proving)
            assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        else
            lone_pass(lone, 30 * MS);
        assert_int_not_equal(lone_dialled(lone, THERE), 0); /* nobody answers */
        uint64_t conn = answer_elsewhere(lone);
        assert_int_equal(lone_peer(lone, 1)->conn_last, conn);
        lone->executes = false; /* its device is silent: only control tells that it lives */
        for (int i = 0; i < 50; i++) {
            lone_say_iam(lone, conn, 1, OTHER);
            lone_pass(lone, 100 * MS);
        }
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone_close(lone);
    }
}

/* A proof asks at once, however long the dial pauses by then. */
static void test_H1_a_proof_begins_with_the_question(void **state) {
    weir_peer opened;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    meet_and_lose(lone);
    for (int i = 0; i < 5; i++) {
        while ((conn = lone_dialled(lone, THERE)) == 0)
            lone_pass(lone, MS);
        lone_cut(lone, conn, WEIR_ECONNECT);
    }
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    assert_int_not_equal(lone_dialled(lone, THERE), 0);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_a_claim_is_judged_though_its_handle_was_closed),
        cmocka_unit_test(test_H1_a_proof_has_a_time_of_its_own),
        cmocka_unit_test(test_H1_a_proof_ends_in_time),
        cmocka_unit_test(test_H1_there_is_one_proof_at_a_time),
        cmocka_unit_test(test_H1_a_late_answer_ends_a_claim),
        cmocka_unit_test(test_H1_a_claimant_does_not_end_its_own_proof),
        cmocka_unit_test(test_H1_an_answer_elsewhere_ends_no_proof),
        cmocka_unit_test(test_H1_a_proof_takes_no_connection),
        cmocka_unit_test(test_H1_a_proof_begins_with_the_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
