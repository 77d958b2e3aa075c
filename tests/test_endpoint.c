/* SPDX-License-Identifier: Apache-2.0 */
/* test_endpoint.c: stories about the handshake: what two endpoints say and do, step by step, until
 * they have a session. test_endpoint_ends.c has those about how it ends.
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

static struct pair *start_up(void) {
    pair_init_up(&pair, 1);
    return &pair;
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
    pair_tick_at(p, B, PAIR_RETRANSMIT_NS);
    struct pair_message hello_2 = pair_take(p, B);
    pair_inject(p, &hello_a);
    EXPECT(p, "B.create(2) B>HELLO(2) B.connect(2,1) B>HELLO_ACK(2,1)");
    struct pair_message ack_2 = pair_take(p, B);
    pair_inject(p, &ack_2);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.create(2) A>HELLO(2)");
    /* B's second attempt is bound to what A gave up: nothing of it helps any more. */
    pair_inject(p, &ack_2);
    pair_inject(p, &hello_2);
    EXPECT(p, "A>REFUSE(2,stale) A>SETTLE(1) A>REFUSE(2,stale)");
    pair_deliver(p, A);
    EXPECT(p, "B.retire(2,1) B>SETTLE(2) B.create(3) B>HELLO(3)");
    pair_flush(p);
    pair_drain(p, A);
    pair_drain(p, B);
    pair_flush(p);
    assert_true(pair_matched(p));
}

static uint32_t under_way(const struct pair *p, uint32_t from) {
    uint32_t count = 0;

    for (uint32_t i = 0; i < p->message_high; i++)
        count += p->messages[i].used && p->messages[i].from == from;
    return count;
}

/* All messages under way cross, and arrive; no time passes. False: there were none. */
static bool exchange(struct pair *p) {
    const uint32_t count[] = {under_way(p, A), under_way(p, B)};

    for (uint32_t node = A; node <= B; node++) {
        for (uint32_t i = 0; i < count[node]; i++)
            pair_deliver(p, node);
    }
    pair_drain(p, A);
    pair_drain(p, B);
    return count[A] + count[B] > 0;
}

/* A's second attempt is bound to B's first, which B has given up; B's second will be bound to that
 * one of A's. Each hears that its attempt is over, begins anew and binds what the other has begun,
 * which that one is about to end for the same reason: their words cross for a while, and not for
 * ever. */
static void test_H2_attempts_that_chase_each_other_come_to_rest(void **state) {
    struct pair *p = start();
    uint32_t rounds = 0;

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello_a = pair_take(p, A);
    pair_break_next(p, A);
    pair_event(p, B, EP_EV_WANT);
    struct pair_message hello_b = pair_take(p, B);
    pair_inject(p, &hello_a);
    pair_lose(p, B);
    pair_break_next(p, B); /* it says SETTLE */
    pair_drain(p, A);
    pair_drain(p, B);
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_inject(p, &hello_b);
    pair_tick_at(p, B, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A.create(1) A>HELLO(1) A.retire(1,0) B.create(1) B>HELLO(1) B.connect(1,1) "
              "B>HELLO_ACK(1,1) B.retire(1,1) B>SETTLE(1) A.create(2) A>HELLO(2) A.connect(2,1) "
              "A>HELLO_ACK(2,1) B>SETTLE(1) B.create(2) B>HELLO(2)");
    while (rounds < 20 && exchange(p))
        rounds++;
    assert_in_range(rounds, 3, 10);
    pair_run(p, 20 * PAIR_RETRANSMIT_NS);
    assert_true(pair_matched(p));
}

/* ---- repeats and late comers ------------------------------------------- */

/* B's attempt is used up and B has not heard it: it binds A's next one, and both begin again. */
static void test_H2_an_attempt_bound_to_one_that_is_over_is_over(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, B, EP_EV_WANT);
    p->nodes[A].connect_error = WEIR_EMFILE;
    pair_deliver(p, B);
    EXPECT(p, "B.create(1) B>HELLO(1) A.create(1) A.connect(1,1) A>REFUSE(1,later) A.retire(1,1)");
    pair_lose(p, A);
    pair_event(p, A, EP_EV_WANT);
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_flush(p);
    EXPECT(p, "A.create(2) A>HELLO(2) B.connect(1,2) B>HELLO_ACK(1,2) A.retire(2,0) "
              "A>REFUSE(1,stale) A>SETTLE(2) B.retire(1,2) B>SETTLE(1)");
    /* Neither meets an attempt of the other's that is used up: they are up when both have asked. */
    pair_drain(p, B);
    pair_flush(p);
    pair_trace(p);
    pair_tick_at(p, A, 2 * PAIR_RETRANSMIT_NS);
    pair_tick_at(p, B, 2 * PAIR_RETRANSMIT_NS);
    pair_flush(p);
    assert_true(pair_matched(p));
}

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
    assert_int_equal(p->nodes[A].ep.sessions[p->nodes[A].ep.live].epoch, 2);
    pair_trace(p);

    pair_inject(p, &old[0]);
    pair_inject(p, &old[1]);
    EXPECT(p, "B>REFUSE(1,stale) A>REFUSE(1,stale) A>SETTLE(1)");
    pair_inject(p, &old[2]);
    pair_inject(p, &settled);
    EXPECT(p, "B>SETTLE(1)");
    pair_inject(p, &settle);
    EXPECT(p, "B>SETTLED(1)");
    pair_flush(p);
    EXPECT(p, "B>SETTLED(1) A>SETTLED(1)");
    assert_true(pair_matched(p));
}

static void test_H4_ready_must_name_both_epochs(void **state) {
    struct pair *p = start();
    struct wire_message m = {.type = WIRE_READY};
    const struct ep_event event = {.type = EP_EV_MESSAGE, .message = &m};

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    pair_deliver(p, B);
    pair_lose(p, A);
    pair_trace(p);
    memcpy(m.from, p->nodes[A].instance, sizeof(m.from));
    memcpy(m.to, p->nodes[B].instance, sizeof(m.to));
    m.epoch = 7;
    m.echo = 1;
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
        if (gap_ns < (PAIR_RETRANSMIT_NS << RTT_DOUBLINGS))
            gap_ns *= 2;
        pair_trace(p);
        pair_tick_at(p, A, at_ns - 1);
        EXPECT(p, "");
        pair_tick_at(p, A, at_ns);
        EXPECT(p, "A>HELLO(1)");
        pair_lose(p, A);
        sent++;
    }
    /* 10 ms doubling to 160, in one second. */
    assert_int_equal(sent, 10);
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
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
    pair_deliver(p, B); /* why the first one came to nothing */
    EXPECT(p, "");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EDEVICE);
    pair_deliver(p, B);
    EXPECT(p, "A.retire(1,0)");
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A.create(2) A>HELLO(2)");
    pair_flush(p);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[A].fails, 0);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), 0); /* it refuses no more */
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
    EXPECT(p, "B.create(1) B>REFUSE(1,final) B.retire(1,1) B.refused(-32)");
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
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EINVAL);
}

/* An error that will not pass is said at once, and again without another try. */
static void test_W9_a_side_that_cannot_make_QPs_says_so_at_once(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].create_error = WEIR_EDEVICE;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    pair_inject(p, &hello);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B>REFUSE(1,final)");
    pair_lose(p, B);
    pair_inject(p, &hello);
    EXPECT(p, "B>REFUSE(1,final)");
    pair_deliver(p, B);
    EXPECT(p, "A.retire(1,0) A.failed(-32)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EDEVICE);
    assert_int_equal(endpoint_deadline(&p->nodes[A].ep), UINT64_MAX);
    /* The next wish asks again. */
    pair_drain(p, A);
    pair_event(p, A, EP_EV_WANT);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), 0);
    pair_flush(p);
    assert_true(pair_matched(p));
}

/* A reason that would be taken for that of a stale attempt. */
static void test_W9_no_refusal_for_good_reads_as_a_stale_one(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].connect_error = WEIR_ESTALE;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B.connect(1,1) B>REFUSE(1,final) B.retire(1,1) "
              "A.retire(1,0) A.failed(-32)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EREFUSED);
}

/* An error that may pass is waited out, and the deadline ends the wait with the last reason. */
static void test_W9_the_deadline_has_the_last_reason(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].create_error = WEIR_ENOMEM;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_ENOMEM);
    p->nodes[B].create_error = WEIR_EFULL;
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_flush(p);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EFULL);
    pair_trace(p);
    p->nodes[B].create_error = WEIR_EAGAIN; /* which says nothing */
    pair_tick_at(p, A, 3 * PAIR_RETRANSMIT_NS);
    pair_flush(p);
    EXPECT(p, "A>HELLO(1) B.create(3)");
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.retire(1,0) A.failed(-32)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EFULL);
}

/* The side that answers hears it too, if it waits for a session itself. */
static void test_W9_the_side_that_joins_tells_what_it_lacks(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].connect_error = WEIR_EMFILE;
    pair_event(p, B, EP_EV_WANT);
    pair_deliver(p, B);
    EXPECT(p, "B.create(1) B>HELLO(1) A.create(1) A.connect(1,1) A>HELLO_ACK(1,1)");
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    EXPECT(p, "B.connect(1,1) B>REFUSE(1,later) B.retire(1,1)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), 0);
    pair_deliver(p, B);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EMFILE);
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.retire(1,1) A>SETTLE(1) A.failed(-32)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EMFILE);
}

/* Likewise with attempts that cross, while the device of the side that waits still connects. */
static void test_W9_a_lack_is_heard_while_connecting(void **state) {
    struct pair *p = start();
    static const struct wire_message LATER = {
        .type = WIRE_REFUSE, .echo = 1 | WIRE_ECHO_LATER, .reason = WEIR_ENOMEM};
    struct ep_event event = {.type = EP_EV_MESSAGE, .message = &LATER};
    struct ep_effect effects[EP_EFFECTS_MAX];
    struct endpoint *a = &p->nodes[A].ep;

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    struct pair_message hello = pair_take(p, B);
    struct wire_message crossing;
    assert_int_equal(wire_decode(hello.bytes, hello.length, &crossing), WEIR_OK);
    event.message = &crossing;
    assert_int_equal(endpoint_step(a, &event, p->now_ns, effects), 1);
    assert_int_equal(a->state, EP_ACCEPTING);
    struct wire_message later = LATER;
    memcpy(later.from, crossing.from, sizeof(later.from));
    memcpy(later.to, crossing.to, sizeof(later.to));
    event.message = &later;
    assert_int_equal(endpoint_step(a, &event, p->now_ns, effects), 0);
    assert_int_equal(a->state, EP_ACCEPTING);
    assert_int_equal(endpoint_reason(a), WEIR_ENOMEM);
}

/* Nobody refuses anything where the devices do not reach each other. */
static void test_W9_a_device_that_does_not_reach_ours_is_no_refusal(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].connect_error = WEIR_EPEER;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B.connect(1,1) B>REFUSE(1,later) B.retire(1,1)");
    pair_deliver(p, B);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_ECONNECT);
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.retire(1,0) A.failed(-30)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_ECONNECT);
}

/* A reason to wait changes nothing but what the deadline says, whenever it comes. */
static void test_W9_a_reason_to_wait_that_is_late_does_no_harm(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].create_error = WEIR_EFULL;
    pair_event(p, A, EP_EV_WANT);
    pair_deliver(p, A);
    struct pair_message later = pair_take(p, B);
    pair_run(p, PAIR_RETRANSMIT_NS + PAIR_MS);
    assert_true(pair_matched(p));
    pair_trace(p);
    pair_inject(p, &later);
    EXPECT(p, "");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), 0);
    pair_break(p, A);
    pair_inject(p, &later); /* it names an attempt before this one */
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), 0);
    pair_flush(p);
    assert_true(pair_matched(p));
}

static void test_connect_that_fails_here_is_tried_again(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[A].connect_error = WEIR_EDEVICE;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B.connect(1,1) B>HELLO_ACK(1,1) A.connect(1,1) "
              "A>REFUSE(1,later) A.retire(1,1)");
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_flush(p);
    assert_true(pair_matched(p));
}

static void test_out_of_qps_is_tried_again_until_the_deadline(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[A].create_error = WEIR_EAGAIN;
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "A.create(1)");
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS - 1);
    EXPECT(p, "");
    p->nodes[A].create_error = WEIR_EAGAIN;
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    EXPECT(p, "A.create(2)");
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
    EXPECT(p, "A.failed(-30)");

    /* It knows what it lacks. */
    p->nodes[A].create_error = WEIR_EFULL;
    pair_event(p, A, EP_EV_WANT);
    p->nodes[A].create_error = WEIR_EAGAIN;
    pair_tick_at(p, A, PAIR_TIMEOUT_NS + PAIR_RETRANSMIT_NS);
    pair_tick_at(p, A, 2 * PAIR_TIMEOUT_NS);
    EXPECT(p, "A.create(3) A.create(4) A.failed(-37)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), 0);

    p->nodes[A].create_error = WEIR_EDEVICE;
    pair_event(p, A, EP_EV_WANT);
    EXPECT(p, "A.create(5) A.failed(-34)");
    assert_true(endpoint_at_rest(&p->nodes[A].ep));
}

/* EAGAIN says nothing, and ECONNECT less than a lack that is known. */
static void test_W9_a_vaguer_reason_does_not_take_the_place_of_a_lack(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[A].connect_error = WEIR_EAGAIN;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    assert_int_equal(p->nodes[A].ep.want_error, WEIR_ECONNECT);
    p->nodes[B].create_error = WEIR_EMFILE;
    pair_tick_at(p, A, PAIR_RETRANSMIT_NS);
    pair_flush(p);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EMFILE);
    pair_drain(p, A);
    pair_drain(p, B);
    p->nodes[A].connect_error = WEIR_EPEER; /* to QPs that B could not connect, say */
    pair_trace(p);
    for (uint64_t i = 2; p->nodes[A].connect_error != WEIR_OK; i++) {
        assert_true(i < 40);
        pair_tick_at(p, A, i * PAIR_RETRANSMIT_NS);
        pair_flush(p);
    }
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EMFILE);
    assert_int_equal(p->nodes[A].ep.want_error, WEIR_EREFUSED);
}

/* The reason of a wish that has ended stays what it was when this side fails to answer. */
static void test_W9_a_lack_without_a_wish_is_no_reason_of_one(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].create_error = WEIR_EFULL;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    pair_tick_at(p, A, PAIR_TIMEOUT_NS);
    assert_int_equal(p->nodes[A].fails, 1);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EFULL);
    p->nodes[A].create_error = WEIR_ENOMEM;
    pair_event(p, B, EP_EV_WANT);
    pair_flush(p);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EFULL);
    assert_int_equal(endpoint_reason(&p->nodes[B].ep), WEIR_ENOMEM);
}

/* A lack that lasts costs ever fewer QPs, and the next wish begins anew. */
static void test_W9_attempts_of_a_wish_are_ever_further_apart(void **state) {
    struct pair *p = start();
    static const uint64_t AT[] = {0, 1, 3, 7, 15, 31, 47, 63, 79, 95};
    static const uint64_t COUNT = sizeof(AT) / sizeof(AT[0]);

    (void)state;
    for (uint64_t wish = 0; wish < 2; wish++) {
        uint64_t began_ns = p->now_ns;

        p->nodes[A].create_error = WEIR_EMFILE;
        pair_event(p, A, EP_EV_WANT);
        for (uint64_t i = 1; i < PAIR_TIMEOUT_NS / PAIR_RETRANSMIT_NS; i++) {
            p->nodes[A].create_error = WEIR_EMFILE;
            pair_tick_at(p, A, began_ns + i * PAIR_RETRANSMIT_NS);
            uint64_t made = 0;
            while (made < COUNT && wish + AT[made] <= i)
                made++;
            assert_int_equal(p->nodes[A].epoch_counter, wish * COUNT + made);
        }
        pair_trace(p);
        pair_tick_at(p, A, began_ns + PAIR_TIMEOUT_NS);
        EXPECT(p, "A.failed(-22)");
    }
}

/* The HELLO has not been used up by the failure: its repeat is answered. */
static void test_out_of_qps_there_only_delays(void **state) {
    struct pair *p = start();

    (void)state;
    p->nodes[B].create_error = WEIR_ENOMEM;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B>REFUSE(1,later)");
    pair_run(p, PAIR_RETRANSMIT_NS + PAIR_MS);
    assert_true(pair_matched(p));
    assert_int_equal(p->nodes[A].epoch_counter, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_either_side_opens),
        cmocka_unit_test(test_H1_wanting_what_is_there_changes_nothing),
        cmocka_unit_test(test_H2_crossing_hellos_make_one_session),
        cmocka_unit_test(test_H2_crossing_hello_lost),
        cmocka_unit_test(test_H2_crossing_hello_overtaken_by_its_ack),
        cmocka_unit_test(test_H2_sides_that_chose_differently_start_over),
        cmocka_unit_test(test_H2_attempts_that_chase_each_other_come_to_rest),
        cmocka_unit_test(test_H2_an_attempt_bound_to_one_that_is_over_is_over),
        cmocka_unit_test(test_H3_duplicate_hello_gets_the_same_bytes),
        cmocka_unit_test(test_H3_duplicate_ack_gets_ready_again),
        cmocka_unit_test(test_H4_late_messages_never_touch_a_live_session),
        cmocka_unit_test(test_H4_ready_must_name_both_epochs),
        cmocka_unit_test(test_H7_hello_is_repeated_with_backoff_until_one_deadline),
        cmocka_unit_test(test_H7_any_one_lost_message_is_made_up_for),
        cmocka_unit_test(test_stale_attempt_is_told_and_tries_again),
        cmocka_unit_test(test_H9_path_is_what_both_have),
        cmocka_unit_test(test_H9_other_fabric_is_refused_again_and_again),
        cmocka_unit_test(test_bad_blob_is_refused),
        cmocka_unit_test(test_W9_a_side_that_cannot_make_QPs_says_so_at_once),
        cmocka_unit_test(test_W9_no_refusal_for_good_reads_as_a_stale_one),
        cmocka_unit_test(test_W9_the_deadline_has_the_last_reason),
        cmocka_unit_test(test_W9_the_side_that_joins_tells_what_it_lacks),
        cmocka_unit_test(test_W9_a_lack_is_heard_while_connecting),
        cmocka_unit_test(test_W9_a_vaguer_reason_does_not_take_the_place_of_a_lack),
        cmocka_unit_test(test_W9_a_lack_without_a_wish_is_no_reason_of_one),
        cmocka_unit_test(test_W9_attempts_of_a_wish_are_ever_further_apart),
        cmocka_unit_test(test_W9_a_device_that_does_not_reach_ours_is_no_refusal),
        cmocka_unit_test(test_W9_a_reason_to_wait_that_is_late_does_no_harm),
        cmocka_unit_test(test_connect_that_fails_here_is_tried_again),
        cmocka_unit_test(test_out_of_qps_is_tried_again_until_the_deadline),
        cmocka_unit_test(test_out_of_qps_there_only_delays),
    };

    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
