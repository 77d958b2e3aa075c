/* SPDX-License-Identifier: Apache-2.0 */
/* test_outbox.c: the sender's side of an inbox's room (outbox.h), step by step: what it asks for,
 * what it gives back, and when. */
#include "rooms.h"

static void test_a_message_that_does_not_fit_closes_its_place(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 2 * CHUNK);
    send(0, 100, 1);
    assert_int_equal(send(0, 100, 2).offset, 0);
    assert_int_equal(shut(0), 1);
    struct inbox_message first = take(1), second = take(2);
    assert_int_equal(w.inbox.free_count, 2);
    give_back(first);
    assert_int_equal(w.inbox.free_count, 3); /* closed, taken, given back */
    give_back(second);
    assert_int_equal(w.inbox.free_count, 3); /* open still */
}

/* A sender asks for what its messages need, and once. */
static void test_what_is_wanted_is_told_once(void **state) {
    struct outbox *out = &w.out[0];
    uint64_t grants = 0;
    (void)state;
    begin(4, 4);
    assert_false(outbox_want(out, 0, &grants));
    assert_true(outbox_want(out, 1, &grants));
    assert_int_equal(grants, 1);
    assert_false(outbox_want(out, CHUNK, &grants));
    assert_true(outbox_want(out, CHUNK + 1, &grants));
    assert_int_equal(grants, 2);
    inbox_want(&w.inbox, 0, grants);
    assert_int_equal(grant_all(), 2);
    assert_false(outbox_want(out, 2 * CHUNK, &grants)); /* there is room */
    send(0, 8, 1);
    assert_true(outbox_want(out, 2 * CHUNK, &grants));
    assert_int_equal(grants, 3);
    assert_true(outbox_want(out, 0, &grants)); /* it wants less than it said */
    assert_int_equal(grants, 2);
    assert_false(outbox_want(out, 0, &grants));
    assert_true(outbox_want(out, 100 * CHUNK, &grants)); /* never more than it has entries for */
    assert_int_equal(grants, OUTBOX_PLACES);
    assert_false(outbox_want(out, 200 * CHUNK, &grants));
}

static void test_a_sender_that_wants_less_leaves_the_line(void **state) {
    (void)state;
    begin(1, 1);
    want(0, CHUNK);
    inbox_want(&w.inbox, 1, 1);
    inbox_want(&w.inbox, 2, 1);
    inbox_want(&w.inbox, 1, 0);
    sound();
    outbox_call(&w.out[0], 1);
    outbox_yield(&w.out[0]);
    assert_int_equal(shut(0), 1);
    assert_int_equal(grant_all(), 1);
    assert_int_equal(w.out[1].count, 0);
    assert_int_equal(w.out[2].count, 1);
}

/* Each says something, and no more: half of the chunks stay where they are. */
static void test_silent_senders_keep_half(void **state) {
    (void)state;
    begin(4, 2);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(want(i, 64), 1);
        send(i, 8, i);
        assert_int_equal(idle(i), i < 2 ? 0 : 1);
        give_back(take(i));
    }
    assert_int_equal(w.inbox.free_count, 2);
    send(1, 8, 9); /* without asking */
    take(9);
}

/* Places that may not be kept are closed wherever they are, and the messages stay in order. */
static void test_idle_senders_close_what_they_may_not_keep(void **state) {
    (void)state;
    begin(4, 4);
    want(0, 4 * CHUNK); /* the first two may be kept */
    assert_int_equal(idle(0), 2);
    assert_int_equal(w.inbox.free_count, 2);
    send(0, 100, 1);
    assert_int_equal(w.out[0].count, 2);
    send(0, 192, 2);
    assert_int_equal(shut(0), 1);
    assert_int_equal(w.inbox.free_count, 2);
    assert_false(outbox_room(&w.out[0], 8));
    take(1);
    take(2);
}

/* A place that is closed takes nothing, and counts for nothing, before the receiver hears of it. */
static void test_a_closed_place_is_no_room(void **state) {
    uint64_t grants = 0;
    (void)state;
    begin(1, 1);
    want(0, 64);
    outbox_call(&w.out[0], 1);
    outbox_yield(&w.out[0]);
    assert_true(outbox_shuts(&w.out[0]));
    assert_true(outbox_want(&w.out[0], 64, &grants));
    assert_int_equal(grants, 2);
    assert_false(outbox_room(&w.out[0], 8));
    assert_int_equal(shut(0), 1);
    inbox_want(&w.inbox, 0, grants);
    assert_int_equal(grant_all(), 1);
    outbox_call(&w.out[0], 2);
    outbox_yield(&w.out[0]);
    assert_false(outbox_room(&w.out[0], 8));
}

/* A place that is called takes first what waits. */
static void test_what_waits_is_put_before_a_place_is_given_up(void **state) {
    uint32_t to;
    (void)state;
    begin(1, 1);
    want(0, 64);
    want(1, 64);
    assert_true(inbox_call(&w.inbox, &to));
    hear(0);
    send(0, 8, 1); /* into the empty place */
    send(0, 100, 2);
    assert_false(outbox_shuts(&w.out[0]));
    assert_int_equal(yield(0), 1);
    assert_false(outbox_room(&w.out[0], 8));
    give_back(take(1));
    assert_int_equal(grant_all(), 0);
    give_back(take(2));
    assert_int_equal(grant_all(), 1);
    assert_int_equal(w.out[1].count, 1);
}

/* A call is for the places that were granted until then. */
static void test_a_call_leaves_later_places_alone(void **state) {
    struct outbox *out = &w.out[0];
    (void)state;
    outbox_init(out, CHUNK, 4);
    for (uint64_t place = 3; place <= 5; place++)
        assert_true(outbox_grant(out, &(struct room_grant){.place = place, .chunk = 1}));
    assert_false(outbox_call(out, 6)); /* never granted */
    assert_true(outbox_call(out, 4));
    assert_true(outbox_call(out, 2)); /* shut since */
    outbox_yield(out);
    struct room_shut word;
    for (uint64_t place = 3; place <= 4; place++) {
        assert_true(outbox_shut(out, &word));
        assert_int_equal(word.place, place);
        assert_int_equal(word.end, 0);
        assert_null(outbox_verify(out));
    }
    assert_false(outbox_shut(out, &word));
    assert_true(outbox_room(out, 8));
    struct outbox_spot spot;
    spot = outbox_put(out, 8);
    assert_int_equal(spot.place, 5);
}

static void test_grants_that_no_receiver_makes(void **state) {
    struct room_grant grant = {.place = 5, .secret = 5};
    struct outbox *out = &w.out[0];
    (void)state;
    outbox_init(out, CHUNK, 4);
    assert_false(outbox_grant(out, &(struct room_grant){.place = 0}));
    assert_true(outbox_grant(out, &grant));
    assert_false(outbox_grant(out, &grant)); /* the same */
    grant.place = 4;
    assert_false(outbox_grant(out, &grant));                    /* an earlier one */
    const struct room_grant outside = {.place = 6, .chunk = 4}; /* of 4 */
    assert_false(outbox_grant(out, &outside));
    for (uint32_t i = 1; i < OUTBOX_PLACES; i++)
        assert_true(outbox_grant(out, &(struct room_grant){.place = 5 + i}));
    grant.place = 100;
    assert_false(outbox_grant(out, &grant)); /* more than were ever asked for */
    assert_null(outbox_verify(out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_message_that_does_not_fit_closes_its_place),
        TEST(what_is_wanted_is_told_once),
        TEST(a_sender_that_wants_less_leaves_the_line),
        TEST(silent_senders_keep_half),
        TEST(idle_senders_close_what_they_may_not_keep),
        TEST(a_closed_place_is_no_room),
        TEST(what_waits_is_put_before_a_place_is_given_up),
        TEST(a_call_leaves_later_places_alone),
        TEST(grants_that_no_receiver_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
