/* SPDX-License-Identifier: Apache-2.0 */
/* inbox_ends.c: messages on every device: inboxes that are not there or closed, messages that end
 * early, QPs that break, engines that are away or gone (M1, M5, S9, W1, T10, H5). */
#include <string.h>

#include "engine_tests.h"
#include "flows.h"

/* ---- inboxes that are not there ----------------------------------------- */

static weir_transfer send_with(struct engines *e, uint64_t tag, uint32_t flags, uint64_t timeout_ns,
                               uint64_t length) {
    weir_transfer_options options = tagged(tag_of(1, tag), flags);
    weir_transfer transfer = {0};

    options.timeout_ns = timeout_ns;
    assert_status(try_send(e, 1, 0, 5, length, &options, &transfer), WEIR_OK, "send");
    return transfer;
}

void test_M1_no_inbox_and_no_wait(void **state) {
    struct engines e;

    engines_open(&e, state, NULL);
    for (uint64_t i = 0; i < 3; i++)
        assert_status(finish(&e, 1, send_with(&e, i, WEIR_TRANSFER_NO_WAIT, 0, i * 1000)),
                      WEIR_ENOTREADY, "no inbox");
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, 1);
    assert_status(finish(&e, 1, send_with(&e, 3, WEIR_TRANSFER_NO_WAIT, 0, LONG)), WEIR_OK,
                  "an inbox");
    /* There is one, and it is full: that is waited for. */
    weir_transfer second = send_with(&e, 4, WEIR_TRANSFER_NO_WAIT, 0, LONG);
    some_turns(&e);
    assert_status(status_of(&e, 1, second), WEIR_EINPROGRESS, "a full inbox");
    take_and_give_back(&e, 0, inbox, 1, 3, LONG);
    take_and_give_back(&e, 0, inbox, 1, 4, LONG);
    assert_status(finish(&e, 1, second), WEIR_OK, "room");
    engines_close(&e);
}

/* A message that must not wait for room ends when there is none, also behind one that waits; it has
 * its room if there is some. */
void test_M5_no_room_and_now(void **state) {
    struct engines e;

    engines_open(&e, state, NULL);
    assert_status(finish(&e, 1, send_with(&e, 0, WEIR_TRANSFER_NOW, 0, LONG)), WEIR_ENOTREADY,
                  "no inbox");
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, 1);
    for (uint64_t i = 1; i < 6; i += 2) {
        assert_status(finish(&e, 1, send_with(&e, i, WEIR_TRANSFER_NOW, 0, LONG)), WEIR_OK, "room");
        assert_status(finish(&e, 1, send_with(&e, 100, WEIR_TRANSFER_NOW, 0, LONG)), WEIR_EAGAIN,
                      "no room");
        weir_transfer waits = send_with(&e, i + 1, 0, 0, LONG);
        assert_status(finish(&e, 1, send_with(&e, 101, WEIR_TRANSFER_NOW, 0, 8)), WEIR_EAGAIN,
                      "no room, and one that waits for it");
        assert_status(status_of(&e, 1, waits), WEIR_EINPROGRESS, "it waits");
        take_and_give_back(&e, 0, inbox, 1, i, LONG);
        assert_status(finish(&e, 1, waits), WEIR_OK, "room at last");
        take_and_give_back(&e, 0, inbox, 1, i + 1, LONG);
        assert_none(&e, 0, inbox);
    }
    engines_close(&e);
}

/* Messages that must not wait end though nobody takes any: also where what waits would fit in what
 * was granted, were it not for the ends of chunks that are too short. */
void test_M5_now_ends_whatever_the_lengths_are(void **state) {
    enum { ALL = 40, ROUNDS = 6 };
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, 3);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        weir_transfer transfers[ALL];
        uint64_t arrived[ALL], count = 0;
        for (uint64_t i = 0; i < ALL; i++)
            transfers[i] = send_with(&e, round * ALL + i, WEIR_TRANSFER_NOW, 0,
                                     (round * 7919 + i * 104729) % (LONG / (round + 1)));
        for (uint64_t i = 0; i < ALL; i++) {
            int status = finish(&e, 1, transfers[i]);
            assert_true(status == WEIR_OK || status == WEIR_EAGAIN);
            if (status == WEIR_OK)
                arrived[count++] = i;
        }
        for (uint64_t k = 0; k < count; k++)
            take_and_give_back(&e, 0, inbox, 1, round * ALL + arrived[k],
                               (round * 7919 + arrived[k] * 104729) % (LONG / (round + 1)));
        assert_none(&e, 0, inbox);
        assert_in_range(count, 1, ALL);
    }
    engines_close(&e);
}

/* Of two inboxes, which are opened one after the other. */
void test_M1_no_inbox_until_one_is_opened(void **state) {
    enum { ALL = 12 };
    weir_transfer transfers[ALL];
    weir_inbox inboxes[2];
    struct engines e;

    engines_open(&e, state, NULL);
    for (uint64_t i = 0; i < ALL; i++)
        transfers[i] = send_to(&e, 1, 0, 5 + i % 2, i, i * 60);
    UNTIL(&e, peer_of(&e, 1, 0).connected == 1);
    some_turns(&e);
    for (uint32_t i = 0; i < ALL; i++)
        assert_status(status_of(&e, 1, transfers[i]), WEIR_EINPROGRESS, "no inbox");
    for (uint32_t which = 2; which > 0; which--) {
        inboxes[which - 1] = inbox_of(&e, 0, 4 + which, 1000, 8);
        for (uint64_t i = which - 1; i < ALL; i += 2)
            take_and_give_back(&e, 0, inboxes[which - 1], 1, i, i * 60);
        for (uint64_t i = which - 1; i < ALL; i += 2)
            assert_status(finish(&e, 1, transfers[i]), WEIR_OK, "an inbox");
        if (which == 2)
            assert_status(status_of(&e, 1, transfers[0]), WEIR_EINPROGRESS, "the other one");
    }
    engines_close(&e);
}

void test_M1_no_inbox_until_the_deadline(void **state) {
    struct engines e;

    engines_open(&e, state, NULL);
    assert_status(finish(&e, 1, send_with(&e, 0, WEIR_TRANSFER_NO_WAIT, 0, 0)), WEIR_ENOTREADY,
                  "no inbox"); /* they are connected, and it is known */
    for (uint64_t i = 1; i < 3; i++)
        assert_status(finish(&e, 1, send_with(&e, i, 0, 50 * MS, i * 100)), WEIR_ENOTREADY,
                      "no inbox until the deadline");
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, 1);
    assert_status(finish(&e, 1, send_with(&e, 3, 0, 0, 64)), WEIR_OK, "an inbox");
    take_and_give_back(&e, 0, inbox, 1, 3, 64); /* those that were late have not come */
    some_turns(&e);
    assert_none(&e, 0, inbox);
    engines_close(&e);
}

/* ---- inboxes that are closed -------------------------------------------- */

/* One message is held, one is there, and three wait for room. */
void test_M1_a_closed_inbox(void **state) {
    enum { ALL = 5 };
    weir_transfer transfers[ALL];
    struct engines e;
    weir_message none;

    engines_open(&e, state, NULL);
    weir_inbox first = inbox_of(&e, 0, 5, LONG, 2);
    for (uint64_t i = 0; i < ALL; i++)
        transfers[i] = send_to(&e, 1, 0, 5, i, LONG);
    weir_message held = take(&e, 0, first, 1, 0, LONG);
    for (uint32_t i = 0; i < 2; i++)
        assert_status(finish(&e, 1, transfers[i]), WEIR_OK, "with room");
    assert_status(weir_inbox_close(e.of[0], first), WEIR_OK, "close");
    assert_status(weir_message_take(e.of[0], first, &none), WEIR_ESTALE, "take of a closed one");
    for (uint32_t i = 2; i < ALL; i++)
        assert_status(finish(&e, 1, transfers[i]), WEIR_ESTALE, "a closed inbox");
    weir_inbox second = inbox_of(&e, 0, 5, 1000, 8); /* while a message of the first is held */
    for (uint64_t i = 10; i < 30; i++) {
        assert_status(finish(&e, 1, send_to(&e, 1, 0, 5, i, 100)), WEIR_OK, "the next inbox");
        take_and_give_back(&e, 0, second, 1, i, 100);
    }
    assert_content(&e, &held);
    give_back(&e, 0, &held);
    some_turns(&e);
    assert_status(weir_message_give_back(e.of[0], &held), WEIR_ESTALE, "given back twice");
    engines_close(&e);
}

/* It ends alone: those before and behind it come. */
void test_M1_too_long_for_the_inbox(void **state) {
    static const uint64_t lengths[] = {1000, 1001, 1000, LONG, 20};
    weir_transfer transfers[5];
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 5, 1000, 8);
    for (uint64_t i = 0; i < 5; i++)
        transfers[i] = send_to(&e, 1, 0, 5, i, lengths[i]);
    for (uint32_t i = 0; i < 5; i++)
        assert_status(finish(&e, 1, transfers[i]), i % 2 == 1 ? WEIR_ETOOBIG : WEIR_OK, "length");
    for (uint64_t i = 0; i < 5; i += 2)
        take_and_give_back(&e, 0, inbox, 1, i, lengths[i]);
    assert_none(&e, 0, inbox);
    engines_close(&e);
}

/* ---- messages that end early -------------------------------------------- */

/* Two fill the inbox. Of those that wait behind them every other one ends, and the rest comes. */
static void end_while_waiting(void **state, uint64_t timeout_ns, int expected) {
    enum { ROOM = 2, ALL = 13 };
    weir_transfer transfers[ALL];
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, ROOM);
    for (uint64_t i = 0; i < ROOM; i++) {
        transfers[i] = send_to(&e, 1, 0, 5, i, LONG);
        assert_status(finish(&e, 1, transfers[i]), WEIR_OK, "with room");
    }
    for (uint64_t i = ROOM; i < ALL; i++)
        transfers[i] = send_with(&e, i, 0, i % 2 == 0 ? timeout_ns : 0, i % 3 == 0 ? LONG : i * 10);
    some_turns(&e);
    for (uint32_t i = ROOM; i < ALL; i += 2) {
        if (timeout_ns == 0)
            assert_status(weir_transfer_cancel(e.of[1], transfers[i]), WEIR_OK, "cancel");
        assert_status(finish(&e, 1, transfers[i]), expected, "early");
    }
    for (uint64_t i = 0; i < ALL; i++) {
        if (i < ROOM)
            take_and_give_back(&e, 0, inbox, 1, i, LONG);
        else if (i % 2 == 1)
            take_and_give_back(&e, 0, inbox, 1, i, i % 3 == 0 ? LONG : i * 10);
    }
    for (uint32_t i = ROOM + 1; i < ALL; i += 2)
        assert_status(finish(&e, 1, transfers[i]), WEIR_OK, "behind one that ended early");
    some_turns(&e);
    assert_none(&e, 0, inbox);
    engines_close(&e);
}

void test_M5_late_while_waiting_for_room(void **state) {
    end_while_waiting(state, 30 * MS, WEIR_ETIMEDOUT);
}

void test_M5_cancelled_while_waiting_for_room(void **state) {
    end_while_waiting(state, 0, WEIR_ECANCELED);
}

/* One of several that have room ends early, a while after they were sent. Those that end well come,
 * that one may, and does not if its status says so. */
static void end_under_way(struct engines *e, weir_inbox inbox, uint64_t round, bool is_late) {
    enum { ALL = 6 };
    const uint64_t first = round * ALL, which = round % ALL;
    weir_transfer transfers[ALL];
    int status = WEIR_OK;

    for (uint64_t i = 0; i < ALL; i++)
        transfers[i] = send_with(e, first + i, 0, is_late && i == which ? 1 + round * 7000 : 0,
                                 length_of(first + i, LONG));
    for (uint64_t i = 0; i < round / 3; i++)
        turn(e);
    if (!is_late)
        assert_status(weir_transfer_cancel(e->of[1], transfers[which]), WEIR_OK, "cancel");
    for (uint64_t i = 0; i < ALL; i++) {
        int ended = finish(e, 1, transfers[i]);
        if (i == which)
            status = ended;
        else
            assert_status(ended, WEIR_OK, "beside one that ended early");
    }
    if (status != WEIR_OK)
        assert_status(status, is_late ? WEIR_ETIMEDOUT : WEIR_ECANCELED, "early");
    for (uint64_t i = 0; i < ALL; i++) {
        if (i != which || status == WEIR_OK)
            take_and_give_back(e, 0, inbox, 1, first + i, length_of(first + i, LONG));
    }
}

static void end_at_any_time(void **state, bool is_late) {
    enum { ROUNDS = 60 };
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, 8);
    assert_status(finish(&e, 1, send_to(&e, 1, 0, 5, 9999, 0)), WEIR_OK, "the first");
    take_and_give_back(&e, 0, inbox, 1, 9999, 0);
    for (uint64_t round = 0; round < ROUNDS; round++)
        end_under_way(&e, inbox, round, is_late);
    some_turns(&e);
    assert_none(&e, 0, inbox);
    engines_close(&e);
}

void test_M5_cancelled_at_any_time(void **state) {
    end_at_any_time(state, false);
}

void test_M5_late_at_any_time(void **state) {
    end_at_any_time(state, true);
}

/* ---- QPs that break ----------------------------------------------------- */

static struct flow flow_of(uint32_t from, uint32_t to, weir_inbox inbox) {
    return (struct flow){.from = from,
                         .to = to,
                         .number = 3,
                         .inbox = inbox,
                         .total = 250,
                         .longest = 2000,
                         .window = 10};
}

/* Nothing is lost, comes twice, or out of order. */
static void over_breaks(void **state, uint32_t qps, bool both_ways, bool two_senders, bool loans) {
    const struct engines_options options = {
        .count = two_senders ? 3 : 2, .qps = qps, .bytes = ENGINE_BYTES};
    struct course course = {.count = 1, .hold = 6, .break_every = 20};
    struct engines e;

    engines_open(&e, state, &options);
    weir_inbox inbox = inbox_of(&e, 0, 3, 2000, 80);
    course.flows[0] = flow_of(1, 0, inbox);
    course.flows[0].loans = loans;
    if (two_senders)
        course.flows[course.count++] = flow_of(2, 0, inbox);
    if (both_ways)
        course.flows[course.count++] = flow_of(0, 1, inbox_of(&e, 1, 3, 2000, 80));
    course_run(&e, &course);
    assert_true(e.breaks >= (loans ? 1 : 5)); /* fewer WRs carry loans */
    assert_true(engine_stats(&e, 0).sessions_up > (loans ? 1 : 2));
    engines_close(&e);
}

void test_S9_over_sessions_that_break(void **state) {
    over_breaks(state, 1, false, false, false);
}

void test_S9_over_many_qps_that_break(void **state) {
    over_breaks(state, 4, false, false, false);
}

void test_S9_both_ways_over_sessions_that_break(void **state) {
    over_breaks(state, 2, true, false, false);
}

void test_S9_two_senders_over_sessions_that_break(void **state) {
    over_breaks(state, 1, false, true, false);
}

void test_M12_loans_over_sessions_that_break(void **state) {
    over_breaks(state, 1, false, false, true);
    over_breaks(state, 1, false, true, true);
}

/* Held and given back in any order, into little room. */
void test_M12_loans(void **state) {
    struct course course = {.count = 1, .hold = 5};
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 3, LONG, 4);
    course.flows[0] = flow_of(1, 0, inbox);
    course.flows[0].longest = LONG;
    course.flows[0].loans = true;
    course_run(&e, &course);
    engines_close(&e);
}

/* ---- engines that are away or gone -------------------------------------- */

/* Nobody looks at the receiving engine for a second, with a full inbox, notifications and messages
 * under way. Nothing breaks, and all comes when it is looked at again. */
void test_W1_a_receiver_that_does_not_look(void **state) {
    enum { NOTES = 40 };
    struct flow flow = {.from = 1, .number = 3, .total = 200, .longest = 3000};
    struct course course = {.count = 1};
    weir_transfer notes[NOTES] = {{0}};
    struct engines e;
    uint64_t told = 0;

    engines_open(&e, state, NULL);
    flow.inbox = inbox_of(&e, 0, 3, 3000, 24);
    flow_send(&e, &flow);
    UNTIL(&e, peer_of(&e, 1, 0).connected == 1);
    some_turns(&e);
    for (uint64_t i = 0; i < NOTES; i++) {
        weir_transfer_options options = tagged(i, WEIR_TRANSFER_NOTIFY);
        assert_status(weir_write(e.of[1], e.peers[1][0], NULL, 0, &options, &notes[i]), WEIR_OK,
                      "notify");
    }
    e.paused[0] = true;
    for (uint64_t begin = engines_now(&e); engines_now(&e) - begin < SECOND;) {
        flow_send(&e, &flow);
        turn(&e);
    }
    e.paused[0] = false;
    for (uint32_t i = 0; i < NOTES; i++) {
        weir_notification note;
        UNTIL(&e, weir_notification_take(e.of[0], &note) == WEIR_OK);
        assert_in_range(note.tag, 0, NOTES - 1); /* in no order on some devices */
        told |= UINT64_C(1) << note.tag;
    }
    assert_int_equal(told, (UINT64_C(1) << NOTES) - 1);
    for (uint32_t i = 0; i < NOTES; i++)
        assert_status(finish(&e, 1, notes[i]), WEIR_OK, "a notification");
    course.flows[0] = flow;
    course_run(&e, &course);
    assert_int_equal(peer_of(&e, 1, 0).sessions, 1);
    engines_close(&e);
}

/* What it had sent can be taken, and its room is another's then. */
void test_T10_the_sender_is_closed(void **state) {
    enum { ROOM = 4 };
    const struct engines_options options = {.count = 3, .qps = 1, .bytes = ENGINE_BYTES};
    struct engines e;
    static uint8_t sent[ENGINE_BYTES];

    engines_open(&e, state, &options);
    weir_inbox inbox = inbox_of(&e, 0, 5, LONG, ROOM);
    for (uint64_t i = 0; i < 2; i++)
        assert_status(finish(&e, 1, send_to(&e, 1, 0, 5, i, LONG)), WEIR_OK, "with room");
    for (uint64_t i = 2; i < 9; i++)
        send_to(&e, 1, 0, 5, i, LONG);
    weir_message held = take(&e, 0, inbox, 1, 0, LONG);
    memcpy(sent, e.bytes[1], sizeof(sent));
    engine_shut(&e, 1);
    e.bytes[1] = sent;
    UNTIL(&e, look(&e, 0, inbox).senders == 0);
    uint32_t taken = 1;
    for (weir_message got; weir_message_take(e.of[0], inbox, &got) == WEIR_OK; taken++) {
        assert_int_equal(got.tag, tag_of(1, taken));
        assert_content(&e, &got);
        give_back(&e, 0, &got);
    }
    assert_in_range(taken, 2, ROOM);
    assert_content(&e, &held);
    give_back(&e, 0, &held);
    UNTIL(&e, look(&e, 0, inbox).chunks_free == look(&e, 0, inbox).chunks);
    for (uint64_t i = 0; i < 10; i++) {
        weir_transfer transfer = send_to(&e, 2, 0, 5, i, LONG);
        take_and_give_back(&e, 0, inbox, 2, i, LONG);
        assert_status(finish(&e, 2, transfer), WEIR_OK, "another sender");
    }
    engines_close(&e);
}

/* Messages that wait end with the receiver; another one at its address gets those that are sent
 * then, and no others. */
void test_T10_H5_the_receiver_is_another_one(void **state) {
    struct engines e;

    engines_open(&e, state, NULL);
    for (uint64_t life = 0; life < 3; life++) {
        const uint64_t first = life * 100;
        weir_transfer transfers[4];
        weir_inbox inbox = inbox_of(&e, 0, 5, LONG, 1);
        for (uint64_t i = 0; i < 20; i++) {
            assert_status(finish(&e, 1, send_to(&e, 1, 0, 5, first + i, i * 50)), WEIR_OK,
                          "this life's");
            take_and_give_back(&e, 0, inbox, 1, first + i, i * 50);
        }
        for (uint64_t i = 0; i < 4; i++) /* there is no inbox 6 */
            transfers[i] = send_to(&e, 1, 0, 5 + i % 2, first + 20 + i, LONG);
        assert_status(finish(&e, 1, transfers[0]), WEIR_OK, "with room");
        some_turns(&e);
        engine_shut(&e, 0);
        for (uint32_t i = 1; i < 4; i++)
            assert_status(finish(&e, 1, transfers[i]), WEIR_EPEER, "to the one that is gone");
        engine_again(&e, 0);
        engines_meet(&e, 1, 0);
    }
    engines_close(&e);
}
