/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_strangers.c: strangers that speak in a peer's name, and the pass by which a peer
 * knows another on a new connection (W6). The other side is the test itself: see lone_engine.h. The
 * connect time-out is a second. */
#include "lone_engine.h"

#define THERE "10.0.0.9:9"
#define OTHER "10.0.0.77:9"
#define NAME  "other.name:9"
#define LIAR  "10.0.0.66:6"

/* The pass that a peer gave in the session is shown as soon as it answers where it was dialled. */
static void test_W6_the_pass_is_shown_where_the_peer_answers(void **state) {
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_meet(lone, 1, THERE, &conn);
    uint64_t stranger = lone_visit(lone);
    lone_say_who(lone, stranger, 1, THERE); /* anybody may say so */
    assert_int_equal(lone_heard(lone, stranger, WIRE_IAM)->pass, 0);
    lone_cut(lone, conn, WEIR_ECONNECT);
    uint64_t dialled = lone_dialled(lone, THERE);
    assert_null(lone_heard(lone, dialled, WIRE_IAM));
    lone_say_who(lone, dialled, 1, THERE); /* it has not said who it is yet */
    assert_int_equal(lone_heard(lone, dialled, WIRE_IAM)->pass, 0);
    lone_say_iam(lone, dialled, 1, THERE);
    const struct wire_message *iam = lone_heard(lone, dialled, WIRE_IAM);
    assert_non_null(iam);
    assert_int_equal(iam->pass, LONE_PASS);
    lone_say_who(lone, dialled, 1, THERE); /* it asks again */
    assert_int_equal(lone_heard(lone, dialled, WIRE_IAM)->pass, LONE_PASS);
    lone_close(lone);
}

/* A connection that was dialled, and answered, stays one on which the pass is shown, also while the
 * peer is asked for again at its address, once or twice: its peer may listen to nobody there
 * without. */
static void test_W6_a_connection_set_aside_shows_its_pass(void **state) {
    uint64_t conns[3];
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    for (uint32_t i = 0; i < 3; i++) {
        conns[i] = lone_dialled(lone, THERE);
        assert_int_not_equal(conns[i], 0);
        assert_int_not_equal(conns[i], i > 0 ? conns[i - 1] : 0);
        lone_say_iam(lone, conns[i], 1, THERE);
        if (i == 0)
            lone_answer(lone, conns[0], 1, 1);
        lone_meet(lone, 2 + i, THERE, NULL); /* says that it is there, too */
    }
    assert_true(lone->conns[conns[0]].hung); /* the last two are kept */
    for (uint32_t last = 2; last > 0; last--) {
        for (uint32_t i = 1; i <= last; i++) {
            while (lone_heard(lone, conns[i], WIRE_IAM) != NULL) {
            }
            lone_say_who(lone, conns[i], 1, THERE);
            const struct wire_message *iam = lone_heard(lone, conns[i], WIRE_IAM);
            assert_non_null(iam);
            assert_int_equal(iam->pass, LONE_PASS);
        }
        lone_cut(lone, conns[last], WEIR_ECONNECT);
    }
    lone_close(lone);
}

/* WHO where we dialled asks who it was that spoke. It is answered, and what was said is not said
 * again before the answer can hold the pass: the peer would only ask once more, for ever. */
static void test_W6_who_is_asked_without_a_pass_repeats_nothing(void **state) {
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    uint64_t dialled = lone_dialled(lone, THERE);
    uint32_t acks = lone_count(lone, dialled, WIRE_HELLO_ACK);
    for (int i = 0; i < 5; i++) {
        lone_say_who(lone, dialled, 1, THERE);
        assert_int_equal(lone_heard(lone, dialled, WIRE_IAM)->pass, 0);
    }
    assert_int_equal(lone_count(lone, dialled, WIRE_HELLO_ACK), acks);
    lone_say_iam(lone, dialled, 1, THERE);
    assert_true(lone_count(lone, dialled, WIRE_HELLO_ACK) > acks);
    lone_close(lone);
}

/* A peer that was given up, and noticed nothing, is shown its pass when it answers again: it
 * listens to nobody else in our name. */
static void test_W6_the_pass_outlives_a_peer_that_was_given_up(void **state) {
    weir_event event;
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    lone_notify(lone, 1, 77); /* so it is remembered */
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 3 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_null(lone_peer(lone, 1));
    weir_peer_connect(lone->engine, peer);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_say_who(lone, conn, 1, THERE); /* who says so? */
    assert_int_equal(lone_heard(lone, conn, WIRE_IAM)->pass, LONE_PASS);
    lone_close(lone);
}

/* A peer that is dialled, and says there that it is another one, is not shown that one's pass: with
 * it, it could speak in our name there. */
static void test_W6_a_liar_who_is_dialled_learns_no_pass(void **state) {
    uint64_t conn, liar;

    (void)state;
    for (int reached = 0; reached < 2; reached++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        lone_meet(lone, 1, THERE, &conn);
        lone_meet(lone, 2, LIAR, &liar);
        lone_cut(lone, liar, WEIR_ECONNECT);
        uint64_t dialled = lone_dialled(lone, LIAR);
        assert_int_not_equal(dialled, 0);
        if (reached) { /* the first time it says who it is */
            lone_say_iam(lone, dialled, 2, LIAR);
            lone_cut(lone, dialled, WEIR_ECONNECT);
            dialled = lone_dialled(lone, LIAR);
            assert_int_not_equal(dialled, 0);
        }
        lone_say_iam(lone, dialled, 1, LIAR);
        lone_say_who(lone, dialled, 1, LIAR);
        const struct wire_message *iam;
        while ((iam = lone_heard(lone, dialled, WIRE_IAM)) != NULL)
            assert_int_equal(iam->pass, 0);
        assert_int_equal(lone_peer(lone, 1)->conn_last, conn);
        lone_close(lone);
    }
}

/* One that the application opened says that it is a peer with which all is well. The handle is that
 * peer's second name, and who spoke there is nobody: it learns no pass, and what it says in the
 * peer's name counts for nothing. */
static void test_W6_a_liar_who_is_opened_speaks_for_nobody(void **state) {
    weir_event event;
    weir_peer opened;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    assert_int_equal(weir_peer_open(lone->engine, LIAR, &opened), WEIR_OK);
    weir_peer_connect(lone->engine, opened);
    uint64_t dialled = lone_dialled(lone, LIAR);
    lone_say_iam(lone, dialled, 1, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    assert_int_equal(event.value, peer.id);
    const struct wire_message *iam;
    while ((iam = lone_heard(lone, dialled, WIRE_IAM)) != NULL)
        assert_int_equal(iam->pass, 0);
    lone_say(lone, dialled, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 9});
    lone_say(lone, dialled, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, 3 * SECOND);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(lone_peer(lone, 1)->sessions_up, 1);
    assert_int_not_equal(lone_peer(lone, 1)->live, NONE);
    assert_int_equal(lone_peer(lone, 1)->conn_last, conn);
    lone_close(lone);
}

/* ---- strangers (W6) -------------------------------------------------------- */

/* All that can be said in a peer's name, with numbers that may well be right. */
static void slander(struct lone *lone, uint64_t conn, uint64_t echo) {
    static const uint64_t epochs[] = {1, 2, 7, UINT64_C(1) << 39, UINT64_MAX};

    lone_say_who(lone, conn, 1, OTHER);
    for (size_t i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
        for (enum wire_type type = WIRE_IAM; type < WIRE_TYPE_END; type++) {
            struct wire_message message = {.type = type, .epoch = epochs[i], .echo = echo};
            if (type == WIRE_HELLO || type == WIRE_HELLO_ACK)
                message.qps = lone_qps();
            if (type == WIRE_REFUSE)
                message.reason = WEIR_ESTALE;
            if (type == WIRE_IAM)
                message.pass = epochs[i];
            lone_say(lone, conn, 1, &message);
        }
    }
}

static void test_W6_what_a_stranger_says_changes_nothing(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    uint64_t stranger = lone_visit(lone);
    struct peer before = *lone_peer(lone, 1);
    uint32_t qps = lone->qp_count;
    slander(lone, stranger, before.sessions[0].epoch);
    lone_pass(lone, SECOND);
    struct peer *after = lone_peer(lone, 1);
    assert_int_equal(after->id, peer.id);
    assert_int_equal(after->conn_last, conn);
    assert_int_equal(after->conn_accepted, conn);
    assert_int_equal(after->conn_before, 0);
    assert_int_equal(after->pass_theirs, LONE_PASS);
    assert_string_equal(after->address, THERE);
    assert_memory_equal(&after->endpoint, &before.endpoint, sizeof(before.endpoint));
    assert_int_equal(lone->qp_count, qps);
    assert_false(lone->conns[stranger].kept);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    /* Nothing but the questions and answers that anybody gets: who it is, and that a HELLO is
     * not answered now. */
    for (enum wire_type type = WIRE_WHO; type < WIRE_TYPE_END; type++) {
        if (type != WIRE_WHO && type != WIRE_IAM && type != WIRE_REFUSE)
            assert_int_equal(lone_count(lone, stranger, type), 0);
    }
    /* The pair goes on. */
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
    lone_pass(lone, 100 * MS);
    assert_non_null(lone_heard(lone, conn, WIRE_SETTLED));
    lone_say_hello(lone, conn, 1, 2);
    assert_true(lone_told(lone, WEIR_EVENT_DEGRADED, &event) ||
                lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone_close(lone);
}

/* A name that somebody tells is not looked up: it counts as if no address was told. */
static void test_W6_a_name_that_is_told_is_not_looked_up(void **state) {
    weir_event event;

    (void)state;
    for (int later = 0; later < 2; later++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn;
        weir_peer peer = lone_meet(lone, 1, later ? "" : NAME, &conn);
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        if (later)
            lone_say_who(lone, conn, 1, NAME);
        assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_OK);
        assert_string_equal(info.address, "");
        lone_cut(lone, conn, WEIR_ECONNECT);
        lone_pass(lone, 3 * SECOND);
        assert_int_equal(lone->dials, 0);
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone_close(lone);
    }
}

/* The peer itself, with an epoch that nobody lives long enough for: one message does not use up
 * all that there are. */
static void test_W6_implausible_epochs_are_refused(void **state) {
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_meet(lone, 1, THERE, &conn);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = UINT64_MAX});
    lone_pass(lone, 100 * MS);
    assert_int_not_equal(lone_peer(lone, 1)->live, NONE);
    assert_int_equal(lone_count(lone, conn, WIRE_SETTLED), 0);
    lone_say_hello(lone, conn, 1, UINT64_MAX - 1);
    assert_int_equal(lone_count(lone, conn, WIRE_HELLO_ACK), 0);
    lone_say_hello(lone, conn, 1, 2);
    assert_int_equal(lone_heard(lone, conn, WIRE_HELLO_ACK)->echo, 2);
    lone_close(lone);
}

/* A new connection is the peer's when it shows the pass, and not before. */
static void test_W6_a_new_connection_shows_its_pass(void **state) {
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_meet(lone, 1, "", &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    uint64_t again = lone_visit(lone);
    struct wire_message iam = {.type = WIRE_IAM, .pass = lone_peer(lone, 1)->pass ^ 2};
    lone_say_who(lone, again, 1, "");
    lone_say(lone, again, 1, &iam);
    assert_int_equal(lone_peer(lone, 1)->conn_last, 0);
    lone_say_hello(lone, again, 1, 2);
    assert_int_equal(lone_count(lone, again, WIRE_WHO), 1); /* prove it */
    assert_int_equal(lone_count(lone, again, WIRE_HELLO_ACK), 0);
    iam.pass ^= 2;
    lone_say(lone, again, 1, &iam);
    assert_int_equal(lone_peer(lone, 1)->conn_last, again);
    assert_true(lone->conns[again].kept);
    assert_non_null(lone_heard(lone, again, WIRE_HELLO_ACK)); /* the probe of the session */
    lone_close(lone);
}

/* A visitor tells an address of its own, hangs up, is dialled there, and answers in the name of
 * another: of the pass of that one it hears nothing. */
static void test_W6_no_pass_is_shown_where_a_stranger_answers(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer peer = lone_meet(lone, 1, THERE, NULL);
    const struct peer before = *lone_peer(lone, 1);
    uint64_t visitor = lone_visit(lone);
    lone_say_who(lone, visitor, 2, OTHER);
    lone_say_hello(lone, visitor, 2, 1);
    lone_cut(lone, visitor, WEIR_ECONNECT);
    uint64_t dialled = lone_dialled(lone, OTHER);
    assert_int_not_equal(dialled, 0);
    lone_say_iam(lone, dialled, 1, OTHER);
    assert_null(lone_heard(lone, dialled, WIRE_IAM));
    lone_say_who(lone, dialled, 1, OTHER);
    const struct wire_message *iam = lone_heard(lone, dialled, WIRE_IAM);
    assert_int_equal(iam != NULL ? iam->pass : 0, 0);
    assert_int_equal(lone_peer(lone, 1)->id, peer.id);
    assert_int_equal(lone_peer(lone, 1)->live, before.live);
    assert_int_equal(lone_peer(lone, 1)->conn_last, before.conn_last);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W6_the_pass_is_shown_where_the_peer_answers),
        cmocka_unit_test(test_W6_a_connection_set_aside_shows_its_pass),
        cmocka_unit_test(test_W6_who_is_asked_without_a_pass_repeats_nothing),
        cmocka_unit_test(test_W6_the_pass_outlives_a_peer_that_was_given_up),
        cmocka_unit_test(test_W6_a_liar_who_is_dialled_learns_no_pass),
        cmocka_unit_test(test_W6_a_liar_who_is_opened_speaks_for_nobody),
        cmocka_unit_test(test_W6_what_a_stranger_says_changes_nothing),
        cmocka_unit_test(test_W6_a_name_that_is_told_is_not_looked_up),
        cmocka_unit_test(test_W6_implausible_epochs_are_refused),
        cmocka_unit_test(test_W6_a_new_connection_shows_its_pass),
        cmocka_unit_test(test_W6_no_pass_is_shown_where_a_stranger_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
