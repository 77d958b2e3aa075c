/* SPDX-License-Identifier: Apache-2.0 */
/* test_endpoint_ends.c: stories about sessions that end: broken, half-open, replaced, settled,
 * left. test_endpoint.c has those about how they begin, and says how to read a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "endpoint_pair.h"

enum { A = 0, B = 1 };

#define EXPECT(p, text) assert_string_equal(pair_trace(p), (text))

static struct pair pair;

static struct pair *start(void) {
    pair_init(&pair, 1);
    return &pair;
}

static struct pair *start_up(void) {
    pair_init_up(&pair, 1);
    return &pair;
}

/* ---- half-open ---------------------------------------------------------- */

/* B never hears READY. It gives up, and A, which was up, learns of it. */
static void test_H7_half_open_session_is_taken_back(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_lose(p, A);
    pair_trace(p);
    pair_tick_at(p, B, PAIR_TIMEOUT_NS);
    EXPECT(p, "B.retire(1,1) B>SETTLE(1)");
    pair_deliver(p, B);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2)");
    pair_drain(p, A);
    pair_drain(p, B);
    pair_flush(p);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[B].last_settled, 1);
}

/* B never hears READY, gives A up for dead and forgets it: no SETTLE will come. When
 * A is told that the connection is a new one, it asks until it is answered. */
static void test_H7_half_open_session_is_found_by_a_probe(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_lose(p, A);
    pair_forget(p, B);
    pair_trace(p);
    pair_event(p, A, EP_EV_PROBE);
    pair_lose(p, A);
    EXPECT(p, "A>HELLO_ACK(1,1)");
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_deliver(p, A);
    EXPECT(p, "A>HELLO_ACK(1,1) B>REFUSE(1,stale) B>SETTLE(1)");
    pair_deliver(p, B); /* that is for attempts */
    EXPECT(p, "");
    struct pair_message settle = pair_take(p, B);
    pair_inject(p, &settle);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2)");
    pair_deliver(p, A);
    EXPECT(p, "B>SETTLED(1)");
    pair_flush(p);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[A].last_settled, 1);
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    /* Once more, late: the session that both have now is above it. */
    pair_trace(p);
    pair_inject(p, &settle);
    EXPECT(p, "");
    pair_drain(p, A);
    EXPECT(p, "A>SETTLED(1)");
    assert_true(pair_matched(p));
}

/* The other way about: the side that answered is left alone with it. */
static void test_H7_half_open_session_of_the_answerer_is_found(void **state) {
    struct pair *p = start_up();

    (void)state;
    pair_forget(p, A);
    pair_trace(p);
    pair_event(p, B, EP_EV_PROBE);
    pair_flush(p);
    EXPECT(p, "B>HELLO_ACK(1,1) A>REFUSE(1,stale) A>SETTLE(1) B.retire(1,1) B>SETTLE(1) "
              "B.create(2) B>HELLO(2) A>SETTLED(1) A.create(2) A.connect(2,2) A>HELLO_ACK(2,2) "
              "B.settled(1) B.connect(2,2) B>READY(2,2) B.up(2,2) A.up(2,2)");
    assert_true(pair_matched(p));
}

static void test_H4_probe_of_a_session_that_both_have_changes_nothing(void **state) {
    struct pair *p = start_up();

    (void)state;
    pair_event(p, A, EP_EV_PROBE);
    struct pair_message probe = pair_take(p, A);
    pair_inject(p, &probe);
    EXPECT(p, "A>HELLO_ACK(1,1) B>READY(1,1)");
    pair_flush(p);
    pair_event(p, B, EP_EV_PROBE);
    pair_flush(p);
    EXPECT(p, "B>HELLO_ACK(1,1) A>READY(1,1)");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    assert_int_equal(endpoint_deadline(&p->nodes[B].ep), UINT64_MAX);
    /* The probe comes late, when the two have a newer session: the answer speaks of the old. */
    pair_break(p, A);
    pair_flush(p);
    assert_true(pair_matched(p));
    pair_trace(p);
    pair_inject(p, &probe);
    pair_flush(p);
    EXPECT(p, "B>REFUSE(1,stale) B>SETTLE(1)");
    assert_true(pair_matched(p));
    assert_int_equal(endpoint_live(&p->nodes[A].ep), 1);
}

/* Nobody answers a probe, and nothing says that the remote is gone: it is not asked for
 * ever. */
static void test_H7_probe_ends(void **state) {
    struct pair *p = start_up();

    (void)state;
    p->loss_percent = 100;
    pair_event(p, A, EP_EV_PROBE);
    pair_run(p, 2 * PAIR_TIMEOUT_NS);
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    assert_true(pair_matched(p));
}

/* B still waits for READY: the probe is as good. */
static void test_H7_probe_makes_up_for_a_lost_ready(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_lose(p, A);
    pair_trace(p);
    pair_event(p, A, EP_EV_PROBE);
    pair_flush(p);
    EXPECT(p, "A>HELLO_ACK(1,1) B>READY(1,1) B.up(1,1)");
    assert_true(pair_matched(p));
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
}

/* B lost its side and is on the way to a newer session when A's probe comes. */
static void test_H8_disowned_live_session_leaves_the_newer_attempt(void **state) {
    struct pair *p = start_up();

    (void)state;
    pair_break(p, B);
    pair_lose(p, B);
    pair_deliver(p, B);
    pair_event(p, A, EP_EV_PROBE);
    pair_trace(p);
    struct pair_message ack = pair_take(p, A);
    pair_deliver(p, A);
    EXPECT(p, "B>REFUSE(1,stale) B>SETTLE(1)");
    pair_deliver(p, B);
    pair_deliver(p, B);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1)");
    pair_inject(p, &ack);
    pair_flush(p);
    EXPECT(p, "B.connect(2,2) B>READY(2,2) B.up(2,2) A.up(2,2)");
    assert_true(pair_matched(p));
}

/* ---- replacing and breaking -------------------------------------------- */

static void test_H8_make_before_break(void **state) {
    struct pair *p = start_up();

    (void)state;
    /* B has lost the session. A has not noticed; it keeps its side until B has
     * echoed A's new epoch. */
    pair_break(p, B);
    pair_lose(p, B);
    EXPECT(p, "B.retire(1,1) B>SETTLE(1) B.create(2) B>HELLO(2)");
    pair_deliver(p, B);
    EXPECT(p, "A.create(2) A.connect(2,2) A>HELLO_ACK(2,2)");
    assert_int_equal(p->nodes[A].ep.sessions[endpoint_live(&p->nodes[A].ep)].epoch, 1);
    pair_deliver(p, A);
    EXPECT(p, "B.connect(2,2) B>READY(2,2) B.up(2,2)");
    pair_deliver(p, B);
    EXPECT(p, "A.up(2,2) A.retire(1,1) A>SETTLE(1)");
    assert_true(pair_matched(p));
}

static void test_S9_settled_only_after_both_drained(void **state) {
    struct pair *p = start_up();

    (void)state;
    p->nodes[B].delivered = 42;
    pair_break(p, A);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2)");
    pair_deliver(p, A);
    EXPECT(p, "B.retire(1,1) B>SETTLE(1) B.create(2) B>HELLO(2)");
    /* The new session does not wait for the old one. */
    pair_flush(p);
    assert_true(pair_matched(p));
    pair_trace(p);
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A>SETTLE(1)");
    pair_deliver(p, A);
    EXPECT(p, "");
    pair_drain(p, B);
    EXPECT(p, "B>SETTLED(1)");
    pair_lose(p, B);
    /* Nobody is owed anything; whoever asks again hears it again. */
    pair_tick_at(p, A, endpoint_deadline(&p->nodes[A].ep));
    pair_deliver(p, A);
    EXPECT(p, "A>SETTLE(1) B>SETTLED(1)");
    pair_deliver_keep(p, B);
    EXPECT(p, "A.settled(1)");
    assert_int_equal(p->nodes[A].last_settled_base, 42);
    pair_deliver(p, B);
    EXPECT(p, "");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    pair_drain(p, A);
    EXPECT(p, "A>SETTLED(1)"); /* B had asked as well */
}

static void test_S9_settle_speaks_for_all_epochs_below(void **state) {
    struct pair *p = start_up();

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        pair_break(p, A);
        pair_lose(p, A); /* SETTLE */
        for (uint32_t k = 0; k < 3; k++)
            pair_deliver(p, k % 2);
        pair_lose(p, B); /* B's SETTLE for what the new session replaced */
        assert_true(pair_matched(p));
    }
    pair_trace(p);
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_deliver(p, A);
    EXPECT(p, "A>SETTLE(2)");
    pair_drain(p, B);
    EXPECT(p, "B>SETTLED(1) B>SETTLED(2)");
    pair_lose(p, B);
    pair_deliver(p, B);
    EXPECT(p, "A.settled(2)");
}

/* Two sessions break; the second takes for ever to drain on B. The first is answered
 * for all the same, again when asked again, and the second when it is its turn. */
static void test_S9_settled_as_early_as_it_is_true(void **state) {
    struct pair *p = start_up();

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        pair_break(p, A);
        pair_flush(p);
        assert_true(pair_matched(p));
    }
    const struct endpoint *b = &p->nodes[B].ep;
    const uint32_t first = b->sessions[0].epoch_remote == 1 ? 0 : 1;
    assert_int_equal(b->sessions[!first].epoch_remote, 2);
    pair_trace(p);
    pair_drain_session(p, B, first);
    EXPECT(p, "B>SETTLED(1)");
    pair_lose(p, B);
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_deliver(p, A);
    EXPECT(p, "A>SETTLE(2) B>SETTLED(1)");
    pair_deliver(p, B);
    EXPECT(p, "A.settled(1)");
    /* A third one breaks, and drains before the second: that is no news yet. */
    pair_break(p, A);
    pair_flush(p);
    assert_true(pair_matched(p));
    pair_trace(p);
    pair_drain_session(p, B, 2);
    EXPECT(p, "");
    pair_drain_session(p, B, !first);
    EXPECT(p, "B>SETTLED(3)");
    pair_deliver(p, B);
    EXPECT(p, "A.settled(3)");
    assert_int_equal(p->nodes[A].ep.settle_done, p->nodes[A].ep.settle_asked);
}

/* A SETTLE also closes the door for HELLOs that are still under way. */
static void test_S9_settled_epochs_never_connect(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    struct wire_message m = {.type = WIRE_SETTLE, .epoch = 1};
    const struct ep_event event = {.type = EP_EV_MESSAGE, .message = &m};
    memcpy(m.from, p->nodes[A].instance, sizeof(m.from));
    memcpy(m.to, p->nodes[B].instance, sizeof(m.to));
    pair_trace(p);
    pair_step(p, B, &event);
    EXPECT(p, "B>SETTLED(1)");
    pair_inject(p, &hello);
    EXPECT(p, "B>REFUSE(1,stale)");
}

/* Eight attempts of A break one after the other, and none drains. */
static void use_up_slots(struct pair *p) {
    pair_event(p, A, EP_EV_WANT);
    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        pair_lose(p, A);
        pair_break_next(p, A);
        pair_tick_at(p, A, p->now_ns + PAIR_RETRANSMIT_NS);
    }
}

static void test_slots_run_out_and_come_back(void **state) {
    struct pair *p = start();

    (void)state;
    use_up_slots(p);
    assert_int_equal(p->nodes[A].epoch_counter, EP_SESSIONS);
    pair_trace(p);
    /* All are draining; the wish is kept, a HELLO goes unanswered, time goes on. */
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "");
    pair_event(p, B, EP_EV_WANT);
    pair_deliver(p, B);
    EXPECT(p, "B.create(1) B>HELLO(1)");
    assert_true(endpoint_deadline(&p->nodes[A].ep) > p->now_ns);
    const struct ep_event drained = {.type = EP_EV_DRAINED, .session = 3};
    p->nodes[A].drain_at[3] = UINT64_MAX;
    p->nodes[A].made[3] = false;
    pair_step(p, A, &drained);
    EXPECT(p, "A.create(9) A>HELLO(9)");
    pair_flush(p);
    assert_true(pair_matched(p));
}

static void test_wish_without_a_slot_fails_at_its_deadline(void **state) {
    struct pair *p = start();

    (void)state;
    use_up_slots(p);
    pair_trace(p);
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), PAIR_TIMEOUT_NS);
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.failed(-30)");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
}

/* H14: every CREATE has its own epoch, and pair.c fails a second CONNECT of one. */
static void test_H14_a_broken_attempt_is_not_used_again(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    struct pair_message ack = pair_take(p, B);
    pair_break_next(p, B);
    pair_trace(p);
    pair_inject(p, &ack);
    EXPECT(p, "A.connect(1,1) A>READY(1,1) A.up(1,1)");
    /* B's SETTLE tells A that it came up with nobody, and so does its answer to READY. */
    pair_flush(p);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2) B>SETTLE(1) B.create(2) "
              "B.connect(2,2) B>HELLO_ACK(2,2) A.connect(2,2) A>READY(2,2) A.up(2,2) B.up(2,2)");
    assert_true(pair_matched(p));
}

/* ---- leaving ----------------------------------------------------------- */

static void test_bye_ends_everything(void **state) {
    struct pair *p = start_up();

    (void)state;
    pair_event(p, A, EP_EV_CLOSE);
    EXPECT(p, "A>BYE A.retire(1,1)");
    pair_deliver_keep(p, A);
    EXPECT(p, "B.retire(1,1) B.gone(-31)");
    pair_deliver(p, A);
    EXPECT(p, "");
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    EXPECT(p, "A.failed(-33) B.failed(-31)");
    assert_false(endpoint_at_rest(&p->nodes[A].ep));
    pair_drain(p, A);
    assert_true(endpoint_at_rest(&p->nodes[A].ep));
    pair_event(p, A, EP_EV_CLOSE);
    EXPECT(p, "");
}

static void test_dead_peer_ends_attempt_and_session(void **state) {
    struct pair *p = start_up();

    (void)state;
    pair_break(p, B);
    pair_lose(p, B);
    pair_deliver(p, B);
    pair_trace(p);
    pair_event(p, A, EP_EV_PEER_DEAD);
    EXPECT(p, "A.retire(2,2) A.retire(1,1) A.gone(-31)");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    pair_event(p, A, EP_EV_PEER_DEAD);
    pair_flush(p);
    pair_event(p, A, EP_EV_TIMER);
    assert_int_equal(p->nodes[A].gones, 1);
}

static void test_H5_restarted_peer_is_somebody_else(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, B, EP_EV_WANT);
    struct pair_message hello = pair_take(p, B);
    pair_restart(p, B);
    pair_trace(p);
    pair_inject(p, &hello);
    EXPECT(p, "");
    pair_event(p, B, EP_EV_WANT);
    pair_flush(p);
    assert_true(pair_matched(p));
    pair_trace(p);
    pair_inject(p, &hello);
    EXPECT(p, "");
    assert_true(pair_matched(p));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H7_half_open_session_is_taken_back),
        cmocka_unit_test(test_H7_half_open_session_is_found_by_a_probe),
        cmocka_unit_test(test_H7_half_open_session_of_the_answerer_is_found),
        cmocka_unit_test(test_H4_probe_of_a_session_that_both_have_changes_nothing),
        cmocka_unit_test(test_H7_probe_ends),
        cmocka_unit_test(test_H7_probe_makes_up_for_a_lost_ready),
        cmocka_unit_test(test_H8_disowned_live_session_leaves_the_newer_attempt),
        cmocka_unit_test(test_H8_make_before_break),
        cmocka_unit_test(test_S9_settled_only_after_both_drained),
        cmocka_unit_test(test_S9_settle_speaks_for_all_epochs_below),
        cmocka_unit_test(test_S9_settled_as_early_as_it_is_true),
        cmocka_unit_test(test_S9_settled_epochs_never_connect),
        cmocka_unit_test(test_slots_run_out_and_come_back),
        cmocka_unit_test(test_wish_without_a_slot_fails_at_its_deadline),
        cmocka_unit_test(test_H14_a_broken_attempt_is_not_used_again),
        cmocka_unit_test(test_bye_ends_everything),
        cmocka_unit_test(test_dead_peer_ends_attempt_and_session),
        cmocka_unit_test(test_H5_restarted_peer_is_somebody_else),
    };

    return cmocka_run_group_tests_name("endpoint ends", tests, NULL, NULL);
}
