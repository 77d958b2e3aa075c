/* test_endpoint.c: stories about the handshake: what two endpoints say and do, step by step.
 *
 * A story drives a pair (endpoint_pair.h) by hand and compares the trace. In a
 * trace, "A>HELLO(1)" is a message sent, "A.connect(1,2)" an effect on the session
 * of A's epoch 1 and B's epoch 2, as A sees it; B would say (2,1). */
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

/* A and B have the live session (1,1), opened by A. */
static struct pair *start_up(void) {
    struct pair *p = start();

    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    assert_true(pair_matched(p));
    pair_trace(p);
    return p;
}

static void tick_at(struct pair *p, uint32_t node, uint64_t now_ns) {
    p->now_ns = now_ns;
    pair_event(p, node, EP_EV_TIMER);
}

/* ---- opening ----------------------------------------------------------- */

static void test_H1_either_side_opens(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "A.create(1) A>HELLO(1)");
    pair_deliver(p, A);
    EXPECT(p, "B.create(1) B.connect(1,1) B>HELLO_ACK(1,1)");
    pair_deliver(p, B);
    EXPECT(p, "A.connect(1,1) A>READY(1,1) A.up(1,1)");
    pair_deliver(p, A);
    EXPECT(p, "B.up(1,1)");
    assert_true(pair_matched(p));
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    assert_int_equal(endpoint_deadline(&p->nodes[B].ep), UINT64_MAX);

    p = start();
    pair_event(p, B, EP_EV_WANT);
    pair_flush(p);
    assert_true(pair_matched(p));
}

static void test_H1_wanting_what_is_there_changes_nothing(void **state) {
    struct pair *p = start_up();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
}

static void test_H2_crossing_hellos_make_one_session(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B>HELLO(1)");
    pair_deliver(p, A);
    pair_deliver(p, B);
    EXPECT(p, "B.connect(1,1) B>HELLO_ACK(1,1) A.connect(1,1) A>HELLO_ACK(1,1)");
    pair_deliver(p, A);
    pair_deliver(p, B);
    EXPECT(p, "B>READY(1,1) B.up(1,1) A>READY(1,1) A.up(1,1)");
    pair_flush(p);
    EXPECT(p, "");
    assert_true(pair_matched(p));
}

static void test_H2_crossing_hello_lost(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    pair_lose(p, A);
    pair_trace(p);
    pair_deliver(p, B);
    EXPECT(p, "A.connect(1,1) A>HELLO_ACK(1,1)");
    pair_deliver(p, A);
    EXPECT(p, "B.connect(1,1) B>READY(1,1) B.up(1,1)");
    pair_deliver(p, B);
    EXPECT(p, "A.up(1,1)");
}

/* B answers A's HELLO with HELLO_ACK, and its own older HELLO comes after that. */
static void test_H2_crossing_hello_overtaken_by_its_ack(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    struct pair_message hello = pair_take(p, B);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_trace(p);
    /* A is up and has never sent a HELLO_ACK; now it does, and B has its answer twice. */
    pair_inject(p, &hello);
    EXPECT(p, "A>HELLO_ACK(1,1)");
    pair_flush(p);
    EXPECT(p, "B.up(1,1) B>READY(1,1)");
    assert_true(pair_matched(p));
}

/* A bound B's first attempt, which B has given up for a second one; B bound that
 * to A's. Neither can be completed, and both sides find out. */
static void test_H2_sides_that_chose_differently_start_over(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, B, EP_EV_WANT);
    struct pair_message hello_1 = pair_take(p, B);
    pair_break_next(p, B);
    pair_drain(p, B);
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello_a = pair_take(p, A);
    pair_inject(p, &hello_1);
    pair_lose(p, A);
    EXPECT(p, "B.create(1) B>HELLO(1) B.retire(1,0) A.create(1) A>HELLO(1) A.connect(1,1) "
              "A>HELLO_ACK(1,1)");
    tick_at(p, B, PAIR_RETRANSMIT_NS);
    struct pair_message hello_2 = pair_take(p, B);
    pair_inject(p, &hello_a);
    EXPECT(p, "B.create(2) B>HELLO(2) B.connect(2,1) B>HELLO_ACK(2,1)");
    struct pair_message ack_2 = pair_take(p, B);
    pair_inject(p, &ack_2);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2)");
    /* B's second attempt is bound to what A gave up: nothing of it helps any more. */
    pair_inject(p, &ack_2);
    pair_inject(p, &hello_2);
    EXPECT(p, "A>REFUSE(2,stale) A>REFUSE(2,stale)");
    pair_deliver(p, A);
    EXPECT(p, "B.retire(2,1) B>SETTLE(2) B.create(3) B>HELLO(3)");
    pair_flush(p);
    pair_drain(p, A);
    pair_drain(p, B);
    pair_flush(p);
    assert_true(pair_matched(p));
}

/* ---- repeats and late comers ------------------------------------------- */

static void test_H3_duplicate_hello_gets_the_same_bytes(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    pair_inject(p, &hello);
    struct pair_message first = pair_take(p, B);
    pair_trace(p);
    for (uint32_t i = 0; i < 3; i++) {
        pair_inject(p, &hello);
        struct pair_message again = pair_take(p, B);
        assert_int_equal(again.length, first.length);
        assert_memory_equal(again.bytes, first.bytes, first.length);
        EXPECT(p, "B>HELLO_ACK(1,1)");
    }
    /* ...and also when the session is up. */
    pair_inject(p, &first);
    pair_deliver(p, A);
    pair_trace(p);
    pair_inject(p, &hello);
    EXPECT(p, "B>HELLO_ACK(1,1)");
    struct pair_message late = pair_take(p, B);
    assert_memory_equal(late.bytes, first.bytes, first.length);
    assert_true(pair_matched(p));
}

static void test_H3_duplicate_ack_gets_ready_again(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver_keep(p, B);
    pair_lose(p, A); /* the READY */
    pair_trace(p);
    pair_deliver(p, B);
    EXPECT(p, "A>READY(1,1)");
    pair_deliver_keep(p, A);
    EXPECT(p, "B.up(1,1)");
    pair_deliver(p, A);
    EXPECT(p, "");
    assert_true(pair_matched(p));
}

/* Everything ever said for session (1,1) comes again while (2,2) is live. */
static void test_H4_late_messages_never_touch_a_live_session(void **state) {
    struct pair *p = start();
    struct pair_message old[3], settle, settled;

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    old[0] = pair_take(p, A);
    pair_inject(p, &old[0]);
    old[1] = pair_take(p, B);
    pair_inject(p, &old[1]);
    old[2] = pair_take(p, A);
    pair_inject(p, &old[2]);
    pair_break(p, A);
    settle = pair_take(p, A);
    pair_inject(p, &settle);
    pair_drain(p, A);
    pair_lose(p, B); /* B's own SETTLE: it has lost the session as well */
    pair_flush(p);
    pair_drain(p, B);
    settled = pair_take(p, B);
    pair_inject(p, &settled);
    pair_run(p, p->now_ns + PAIR_TIMEOUT_NS);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[A].ep.slots[p->nodes[A].ep.live].epoch, 2);
    pair_trace(p);

    pair_inject(p, &old[0]);
    pair_inject(p, &old[1]);
    EXPECT(p, "B>REFUSE(1,stale) A>REFUSE(1,stale)");
    pair_inject(p, &old[2]);
    pair_inject(p, &settled);
    EXPECT(p, "");
    pair_inject(p, &settle);
    EXPECT(p, "B>SETTLED(1)");
    pair_flush(p);
    EXPECT(p, "");
    assert_true(pair_matched(p));
}

static void test_H4_ready_must_name_both_epochs(void **state) {
    struct pair *p = start();
    struct wire_message m = {.type = WIRE_READY, .epoch = 7, .echo = 1};
    const struct ep_event event = {.type = EP_EV_MESSAGE, .message = &m};

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_lose(p, A);
    pair_trace(p);
    memcpy(m.from, p->nodes[A].instance, sizeof(m.from));
    memcpy(m.to, p->nodes[B].instance, sizeof(m.to));
    pair_step(p, B, &event);
    m.epoch = 1;
    m.echo = 7;
    pair_step(p, B, &event);
    EXPECT(p, "");
    assert_int_equal(p->nodes[B].ep.stale, 2);
    m.echo = 1;
    m.to[0]++; /* for somebody who was here before */
    pair_step(p, B, &event);
    EXPECT(p, "");
    m.to[0]--;
    pair_step(p, B, &event);
    EXPECT(p, "B.up(1,1)");
}

/* ---- loss and time ----------------------------------------------------- */

static void test_H7_hello_is_repeated_with_backoff_until_one_deadline(void **state) {
    struct pair *p = start();
    uint64_t gap_ns = PAIR_RETRANSMIT_NS, at_ns = 0;
    uint32_t sent = 1;

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_lose(p, A);
    for (;;) {
        uint64_t due_ns = endpoint_deadline(&p->nodes[A].ep);

        if (due_ns == PAIR_TIMEOUT_NS)
            break;
        assert_int_equal(due_ns - at_ns, gap_ns);
        at_ns = due_ns;
        if (gap_ns < EP_BACKOFF_MAX * PAIR_RETRANSMIT_NS)
            gap_ns *= 2;
        pair_trace(p);
        tick_at(p, A, at_ns - 1);
        EXPECT(p, "");
        tick_at(p, A, at_ns);
        EXPECT(p, "A>HELLO(1)");
        pair_lose(p, A);
        sent++;
    }
    /* 10 ms doubling to 160, in one second. */
    assert_int_equal(sent, 10);
    tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.retire(1,0) A.failed(-30)");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    /* Idle; the next transfer tries again. */
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "A.create(2) A>HELLO(2)");
}

static void test_H7_any_one_lost_message_is_made_up_for(void **state) {
    (void)state;
    for (uint32_t lost = 0; lost < 3; lost++) {
        struct pair *p = start();

        pair_event(p, A, EP_EV_WANT);
        for (uint32_t i = 0; i < 3; i++) {
            if (i == lost) {
                pair_lose(p, i % 2);
                break;
            }
            pair_deliver(p, i % 2);
        }
        pair_run(p, 2 * PAIR_RETRANSMIT_NS);
        assert_true(pair_matched(p));
        assert_int_equal(p->nodes[A].epoch_counter, 1);
        assert_int_equal(p->nodes[B].epoch_counter, 1);
        assert_int_equal(p->nodes[A].fails, 0);
    }
}

/* B never hears READY. It gives up, and A, which was up, learns of it. */
static void test_H7_half_open_session_is_taken_back(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_lose(p, A);
    pair_trace(p);
    tick_at(p, B, PAIR_TIMEOUT_NS);
    EXPECT(p, "B.retire(1,1) B>SETTLE(1)");
    pair_deliver(p, B);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2)");
    pair_drain(p, A);
    pair_drain(p, B);
    pair_flush(p);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[B].last_settled, 1);
}

static void test_stale_attempt_is_told_and_tries_again(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    p->nodes[B].connect_error = WEIR_EDEVICE;
    pair_inject(p, &hello);
    pair_trace(p);
    pair_inject(p, &hello);
    EXPECT(p, "B>REFUSE(1,stale)");
    pair_deliver(p, B);
    EXPECT(p, "A.retire(1,0)");
    tick_at(p, A, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A.create(2) A>HELLO(2)");
    pair_flush(p);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[A].fails, 0);
}

/* ---- refusing ---------------------------------------------------------- */

static void test_H9_path_is_what_both_have(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[A].set.qp_count = 4;
    p->nodes[B].set.mtu = 1024;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    for (uint32_t node = A; node <= B; node++) {
        assert_int_equal(p->nodes[node].last_agreed.qp_count, 2);
        assert_int_equal(p->nodes[node].last_agreed.mtu, 1024);
        assert_true(p->nodes[node].last_agreed.ordered);
    }
}

static void test_H9_other_fabric_is_refused_again_and_again(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].set.fabric[0] = 1;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    pair_trace(p);
    pair_inject(p, &hello);
    EXPECT(p, "B.create(1) B>REFUSE(1,final) B.retire(1,1)");
    pair_lose(p, B);
    pair_inject(p, &hello);
    EXPECT(p, "B>REFUSE(1,final)");
    pair_deliver_keep(p, B);
    EXPECT(p, "A.retire(1,0) A.failed(-32)");
    pair_deliver(p, B);
    EXPECT(p, "");
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
}

static void test_bad_blob_is_refused(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].connect_error = WEIR_EINVAL;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B.connect(1,1) B>REFUSE(1,final) B.retire(1,1) "
              "A.retire(1,0) A.failed(-32)");
}

static void test_connect_that_fails_here_is_tried_again(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[A].connect_error = WEIR_EDEVICE;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B.connect(1,1) B>HELLO_ACK(1,1) A.connect(1,1) "
              "A.retire(1,1)");
    tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_flush(p);
    assert_true(pair_matched(p));
}

static void test_out_of_qps_is_tried_again_until_the_deadline(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[A].create_error = WEIR_EAGAIN;
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "A.create(1)");
    tick_at(p, A, PAIR_RETRANSMIT_NS - 1);
    EXPECT(p, "");
    p->nodes[A].create_error = WEIR_EAGAIN;
    tick_at(p, A, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A.create(2)");
    tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.failed(-30)");

    p->nodes[A].create_error = WEIR_EDEVICE;
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "A.create(3) A.failed(-34)");
    assert_true(endpoint_quiet(&p->nodes[A].ep));
}

/* The HELLO has not been used up by the failure: its repeat is answered. */
static void test_out_of_qps_there_only_delays(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].create_error = WEIR_ENOMEM;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1)");
    pair_run(p, PAIR_RETRANSMIT_NS + PAIR_MS);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[A].epoch_counter, 1);
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
    assert_int_equal(p->nodes[A].ep.slots[endpoint_live(&p->nodes[A].ep)].epoch, 1);
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
    tick_at(p, A, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A>SETTLE(1)");
    pair_deliver(p, A);
    EXPECT(p, "");
    pair_drain(p, B);
    EXPECT(p, "B>SETTLED(1)");
    pair_lose(p, B);
    /* Nobody is owed anything; whoever asks again hears it again. */
    tick_at(p, A, endpoint_deadline(&p->nodes[A].ep));
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
    tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_deliver(p, A);
    EXPECT(p, "A>SETTLE(2)");
    pair_drain(p, B);
    EXPECT(p, "B>SETTLED(2)");
    pair_deliver(p, B);
    EXPECT(p, "A.settled(2)");
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
        tick_at(p, A, p->now_ns + PAIR_RETRANSMIT_NS);
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
    const struct ep_event drained = {.type = EP_EV_DRAINED, .slot = 3};
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
    tick_at(p, A, PAIR_TIMEOUT_NS);
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
    /* B's SETTLE tells A that it came up with nobody. */
    pair_flush(p);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2) B.create(2) B.connect(2,2) "
              "B>HELLO_ACK(2,2) A.connect(2,2) A>READY(2,2) A.up(2,2) B.up(2,2)");
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
    assert_false(endpoint_quiet(&p->nodes[A].ep));
    pair_drain(p, A);
    assert_true(endpoint_quiet(&p->nodes[A].ep));
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
        cmocka_unit_test(test_H1_either_side_opens),
        cmocka_unit_test(test_H1_wanting_what_is_there_changes_nothing),
        cmocka_unit_test(test_H2_crossing_hellos_make_one_session),
        cmocka_unit_test(test_H2_crossing_hello_lost),
        cmocka_unit_test(test_H2_crossing_hello_overtaken_by_its_ack),
        cmocka_unit_test(test_H2_sides_that_chose_differently_start_over),
        cmocka_unit_test(test_H3_duplicate_hello_gets_the_same_bytes),
        cmocka_unit_test(test_H3_duplicate_ack_gets_ready_again),
        cmocka_unit_test(test_H4_late_messages_never_touch_a_live_session),
        cmocka_unit_test(test_H4_ready_must_name_both_epochs),
        cmocka_unit_test(test_H7_hello_is_repeated_with_backoff_until_one_deadline),
        cmocka_unit_test(test_H7_any_one_lost_message_is_made_up_for),
        cmocka_unit_test(test_H7_half_open_session_is_taken_back),
        cmocka_unit_test(test_stale_attempt_is_told_and_tries_again),
        cmocka_unit_test(test_H9_path_is_what_both_have),
        cmocka_unit_test(test_H9_other_fabric_is_refused_again_and_again),
        cmocka_unit_test(test_bad_blob_is_refused),
        cmocka_unit_test(test_connect_that_fails_here_is_tried_again),
        cmocka_unit_test(test_out_of_qps_is_tried_again_until_the_deadline),
        cmocka_unit_test(test_out_of_qps_there_only_delays),
        cmocka_unit_test(test_H8_make_before_break),
        cmocka_unit_test(test_S9_settled_only_after_both_drained),
        cmocka_unit_test(test_S9_settle_speaks_for_all_epochs_below),
        cmocka_unit_test(test_S9_settled_epochs_never_connect),
        cmocka_unit_test(test_slots_run_out_and_come_back),
        cmocka_unit_test(test_wish_without_a_slot_fails_at_its_deadline),
        cmocka_unit_test(test_H14_a_broken_attempt_is_not_used_again),
        cmocka_unit_test(test_bye_ends_everything),
        cmocka_unit_test(test_dead_peer_ends_attempt_and_session),
        cmocka_unit_test(test_H5_restarted_peer_is_somebody_else),
    };

    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
