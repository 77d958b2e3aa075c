/* SPDX-License-Identifier: Apache-2.0 */
/* test_rooms.c: whose room in an inbox is (inbox.h, outbox.h), step by step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inbox.h"
#include "outbox.h"

enum { PEERS = 6, CHUNK = 256 };

/* An inbox, and a sender for each peer; what is said is heard at once. */
static struct {
    struct inbox inbox;
    struct outbox out[PEERS];
    uint8_t *memory;
    void *tables;
    uint64_t secret;
} w;

static void sound(void) {
    const char *wrong = inbox_verify(&w.inbox);
    for (uint32_t i = 0; wrong == NULL && i < PEERS; i++)
        wrong = outbox_verify(&w.out[i]);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

static void begin(uint32_t chunks, uint32_t peer_chunks) {
    const struct room_shape shape = {.message_bytes_max = CHUNK - ROOM_LINE,
                                     .chunk_bytes = CHUNK,
                                     .chunk_count = chunks,
                                     .peer_chunks = peer_chunks};
    w.memory = calloc(chunks, CHUNK);
    w.tables = calloc(1, inbox_bytes(&shape, PEERS));
    inbox_init(&w.inbox, w.tables, &shape, PEERS);
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_true(inbox_meet(&w.inbox, i, 100 + i, 200 + i));
        assert_false(inbox_meet(&w.inbox, i, 100 + i, 200 + i));
        outbox_init(&w.out[i], 100 + i, CHUNK, chunks);
    }
    sound();
}

static int end(void **state) {
    (void)state;
    free(w.memory);
    free(w.tables);
    memset(&w, 0, sizeof(w));
    return 0;
}

/* The sender has messages of so many bytes; returns how many grants come of it, to anybody. */
static uint32_t want(uint32_t peer, uint64_t bytes) {
    uint64_t grants;
    uint32_t to, count = 0;
    struct room_grant grant;
    if (outbox_want(&w.out[peer], bytes, &grants))
        inbox_want(&w.inbox, peer, grants);
    for (; inbox_grant(&w.inbox, ++w.secret * 1000003, &to, &grant); count++)
        assert_true(outbox_grant(&w.out[to], &grant));
    sound();
    return count;
}

static void write_head(const struct outbox_spot *spot, uint32_t length, uint64_t tag, bool skip) {
    const struct room_head head = {spot->mark, tag, length, skip};
    room_head_encode(&head, w.memory + spot->chunk * CHUNK + spot->offset);
}

/* Puts a message; what is to be told of it waits for tell(). */
static struct outbox_spot put(uint32_t peer, uint32_t length, uint64_t tag) {
    struct outbox_spot spot;
    assert_true(outbox_room(&w.out[peer], length));
    outbox_put(&w.out[peer], length, &spot);
    write_head(&spot, length, tag, false);
    outbox_ready(&w.out[peer], &spot);
    sound();
    return spot;
}

/* Tells all there is to tell; returns how many words it took. */
static uint32_t tell(uint32_t peer) {
    struct room_told told;
    uint32_t count = 0;
    for (; outbox_tell(&w.out[peer], &told); count++) {
        assert_int_equal(inbox_tell(&w.inbox, peer, &told), INBOX_TOLD);
        outbox_sure(&w.out[peer], w.out[peer].session, &told);
    }
    sound();
    return count;
}

static struct inbox_message take(uint64_t tag) {
    struct inbox_message message = {0};
    assert_int_equal(inbox_take(&w.inbox, w.memory, &message), INBOX_MESSAGE);
    assert_int_equal(message.tag, tag);
    sound();
    return message;
}

static void take_nothing(void) {
    struct inbox_message message;
    assert_int_equal(inbox_take(&w.inbox, w.memory, &message), INBOX_EMPTY);
}

static void give_back(const struct inbox_message *message) {
    assert_true(inbox_give_back(&w.inbox, message->chunk, message->place, message->offset));
    sound();
}

static void test_shapes(void **state) {
    struct room_shape shape = {0};
    (void)state;
    assert_false(room_shape(ROOM_LENGTH_MAX + 1, 1, 1, &shape));
    assert_false(room_shape(8, 0, 1, &shape));
    assert_false(room_shape(8, 1, 0, &shape));
    assert_false(room_shape(8 << 20, 1, ROOM_CHUNKS_MAX + 1, &shape));
    assert_true(room_shape(0, 1, 1, &shape));
    assert_int_equal(shape.chunk_bytes, ROOM_CHUNK_BYTES);
    assert_int_equal(shape.chunk_count, 1);
    /* One long message a chunk; so many as may wait. */
    assert_true(room_shape(8 << 20, 3, 10, &shape));
    assert_int_equal(shape.chunk_bytes, (8 << 20) + ROOM_LINE);
    assert_int_equal(shape.chunk_count, 10);
    assert_int_equal(shape.peer_chunks, 3);
    /* Several short ones share one, and fit as often as was asked. */
    assert_true(room_shape(20000, 7, 9, &shape));
    assert_true(shape.peer_chunks * (shape.chunk_bytes / room_bytes(20000)) >= 7);
    assert_true(shape.chunk_count * (shape.chunk_bytes / room_bytes(20000)) >= 9);
    /* One peer may have all that there is, and no less than it was promised. */
    assert_true(room_shape(8 << 20, 5, 2, &shape));
    assert_int_equal(shape.chunk_count, 5);
}

static void test_sizes(void **state) {
    (void)state;
    assert_int_equal(room_bytes(0), 64);
    assert_int_equal(room_bytes(40), 64);
    assert_int_equal(room_bytes(41), 128);
    assert_int_equal(room_bytes(64), 128);
    assert_int_equal(room_bytes(65), 192);
    assert_int_equal(room_payload(40), 24);
    assert_int_equal(room_payload(41), 64);
    assert_int_equal(room_bytes(ROOM_LENGTH_MAX), (1 << 30) + 64);
}

static void test_heads(void **state) {
    const struct room_head head = {.mark = 0x0123456789abcdef, .tag = UINT64_MAX, .length = 100};
    struct room_head read = {0};
    _Alignas(8) uint8_t bytes[ROOM_HEAD];
    (void)state;
    room_head_encode(&head, bytes);
    assert_int_equal(bytes[0], 0xef);
    assert_true(room_head_decode(bytes, head.mark, 192, &read));
    assert_int_equal(read.tag, head.tag);
    assert_int_equal(read.length, 100);
    assert_false(read.skip);
    assert_false(room_head_decode(bytes, head.mark, 191, &read));
    assert_false(room_head_decode(bytes, head.mark + 64, 192, &read));
    bytes[12] = 1;
    assert_true(room_head_decode(bytes, head.mark, 192, &read));
    assert_true(read.skip);
    bytes[12] = 2; /* no head that anybody writes */
    assert_false(room_head_decode(bytes, head.mark, 192, &read));
    bytes[12] = 0;
    memset(bytes + 8, 0xff, 4); /* nor a length whose bytes would wrap */
    assert_false(room_head_decode(bytes, head.mark, UINT32_MAX, &read));
}

static void test_messages_in_their_order(void **state) {
    (void)state;
    begin(4, 2);
    assert_false(outbox_room(&w.out[0], 8));
    assert_int_equal(want(0, 3 * 64), 1);
    for (uint64_t i = 1; i <= 3; i++)
        put(0, 8, i);
    take_nothing(); /* nothing was told */
    assert_int_equal(tell(0), 1);
    for (uint64_t i = 1; i <= 3; i++) {
        struct inbox_message message = take(i);
        assert_int_equal(message.from, 200);
        assert_int_equal(message.length, 8);
        assert_int_equal(message.payload, (i - 1) * 64 + ROOM_HEAD);
        give_back(&message);
    }
    take_nothing();
}

static void test_a_message_that_does_not_fit_closes_its_place(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 2 * CHUNK);
    put(0, 100, 1);
    struct outbox_spot spot = put(0, 100, 2);
    assert_int_equal(spot.offset, 0);
    assert_int_equal(tell(0), 2);
    struct inbox_message first = take(1), second = take(2);
    assert_int_equal(w.inbox.free_count, 2);
    give_back(&first);
    assert_int_equal(w.inbox.free_count, 3); /* closed, taken, given back */
    give_back(&second);
    assert_int_equal(w.inbox.free_count, 3); /* open still */
}

static void test_a_full_inbox_drops_nothing(void **state) {
    (void)state;
    begin(2, 2);
    assert_int_equal(want(0, 5 * CHUNK), 2);
    for (uint64_t i = 1; i <= 8; i++)
        put(0, 8, i);
    assert_false(outbox_room(&w.out[0], 8));
    tell(0);
    assert_int_equal(want(0, 64), 0);
    struct inbox_message held[8];
    for (uint32_t i = 0; i < 8; i++)
        held[i] = take(i + 1);
    assert_int_equal(want(0, 64), 0); /* all of it is the application's */
    for (uint32_t i = 7; i >= 5; i--)
        give_back(&held[i]);
    assert_int_equal(want(0, 64), 0);
    give_back(&held[4]); /* the last of its chunk: in any order */
    assert_int_equal(want(0, 64), 1);
    put(0, 8, 9);
    tell(0);
    take(9);
}

static void test_a_crowd_shares(void **state) {
    (void)state;
    begin(6, 6);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(outbox_want(&w.out[i], 6 * CHUNK, &(uint64_t){0}));
    for (uint32_t i = 0; i < 3; i++)
        inbox_want(&w.inbox, i, 6);
    uint32_t got[3] = {0}, to;
    struct room_grant grant;
    while (inbox_grant(&w.inbox, ++w.secret, &to, &grant))
        got[to]++;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(got[i], 2);
}

static void test_a_peer_has_no_more_than_its_share(void **state) {
    (void)state;
    begin(8, 3);
    assert_int_equal(want(0, 8 * CHUNK), 3);
    put(0, 8, 1);
    tell(0);
    struct inbox_message message = take(1);
    give_back(&message);
    assert_int_equal(want(0, 8 * CHUNK), 0);
    while (outbox_room(&w.out[0], 8)) /* fill the first place, go on in the second */
        put(0, 8, 2);
    tell(0);
    for (uint32_t i = 0; i < 3; i++) {
        message = take(2);
        give_back(&message);
    }
    assert_int_equal(want(0, 8 * CHUNK), 1);
}

static void test_silent_senders_keep_half_and_are_called(void **state) {
    (void)state;
    begin(4, 2);
    for (uint32_t i = 0; i < 4; i++) { /* each says something, and no more */
        assert_int_equal(want(i, 64), 1);
        put(i, 8, i);
        outbox_idle(&w.out[i]);
        tell(i);
        struct inbox_message message = take(i);
        give_back(&message);
    }
    assert_int_equal(w.inbox.free_count, 2); /* two keep, two do not */
    assert_int_equal(want(4, 3 * CHUNK), 2);
    uint32_t to;
    struct room_grant grant;
    assert_false(inbox_call(&w.inbox, &to, &grant)); /* 4 has what one peer may have */
    inbox_want(&w.inbox, 5, 1);
    assert_true(inbox_call(&w.inbox, &to, &grant));
    assert_int_equal(to, 0); /* idle for longest */
    assert_false(inbox_call(&w.inbox, &to, &grant));
    inbox_call_on(&w.inbox); /* it does not answer */
    uint32_t next;
    assert_true(inbox_call(&w.inbox, &next, &grant));
    assert_int_equal(next, 1);
    assert_true(grant.called);
    assert_true(outbox_grant(&w.out[1], &grant));
    assert_int_equal(tell(1), 1);
    assert_true(inbox_grant(&w.inbox, ++w.secret, &to, &grant));
    assert_int_equal(to, 5);
    assert_false(outbox_room(&w.out[1], 8)); /* 1 has to ask again */
    sound();
}

/* Senders that hold all there is, and do not answer: each is called, in every round. */
static void test_senders_that_are_away_are_called(void **state) {
    uint32_t to;
    struct room_grant grant;
    (void)state;
    begin(8, 4);
    assert_int_equal(want(0, 4 * CHUNK), 4);
    assert_int_equal(want(1, 4 * CHUNK), 4); /* of these some may be kept, and none of those */
    assert_int_equal(want(0, 9 * CHUNK), 0);
    inbox_want(&w.inbox, 2, 1);
    assert_true(inbox_call(&w.inbox, &to, &grant));
    assert_int_equal(to, 0);
    assert_int_equal(w.inbox.awaited, 4);
    assert_false(inbox_call(&w.inbox, &to, &grant));
    inbox_call_on(&w.inbox);
    assert_true(inbox_call(&w.inbox, &to, &grant));
    assert_int_equal(to, 1);
    inbox_call_on(&w.inbox);
    assert_false(inbox_call(&w.inbox, &to, &grant)); /* all were called */
    sound();
    assert_true(outbox_grant(&w.out[1], &grant));
    assert_int_equal(tell(1), 4);
    assert_int_equal(w.inbox.called, 4);
    assert_true(inbox_grant(&w.inbox, ++w.secret, &to, &grant));
    assert_int_equal(to, 2);
}

/* One that is called again, for what it was granted since, is awaited for each chunk once. */
static void test_awaited_once(void **state) {
    uint32_t to;
    struct room_grant called[2];
    (void)state;
    begin(3, 3);
    want(0, 64);
    want(1, 2 * CHUNK);
    inbox_want(&w.inbox, 2, 1);
    assert_true(inbox_call(&w.inbox, &to, &called[0]));
    assert_int_equal(to, 0);
    inbox_want(&w.inbox, 2, 0);
    put(1, 8, 1);
    outbox_idle(&w.out[1]);
    tell(1); /* one is free */
    assert_int_equal(want(0, 64 + CHUNK), 1);
    inbox_want(&w.inbox, 2, 1);
    inbox_want(&w.inbox, 3, 1);
    assert_true(inbox_call(&w.inbox, &to, &called[1]));
    while (to != 0)
        assert_true(inbox_call(&w.inbox, &to, &called[1]));
    assert_true(w.inbox.awaited <= w.inbox.called);
    sound();
    assert_true(outbox_grant(&w.out[0], &called[1]));
    tell(0);
    assert_true(w.inbox.awaited <= w.inbox.called);
    sound();
}

static void test_what_a_sender_that_is_gone_had_told_stays(void **state) {
    (void)state;
    begin(4, 4);
    want(0, 2 * CHUNK);
    put(0, 100, 1);
    put(0, 8, 2);
    tell(0);
    put(0, 8, 3); /* never told */
    struct inbox_message first = take(1);
    inbox_peer_gone(&w.inbox, 0);
    sound();
    assert_true(inbox_meet(&w.inbox, 0, 999, 300)); /* another is in its entry */
    outbox_init(&w.out[0], 999, CHUNK, 4);
    want(0, 64);
    put(0, 8, 4);
    tell(0);
    struct inbox_message second = take(2), fourth = take(4);
    assert_int_equal(second.from, 200);
    assert_int_equal(fourth.from, 300);
    take_nothing();
    give_back(&second);
    give_back(&first);
    assert_int_equal(w.inbox.free_count, 3);
    give_back(&fourth);
    sound();
}

static void test_given_back_once(void **state) {
    (void)state;
    begin(2, 2);
    want(0, 64);
    put(0, 8, 1);
    put(0, 8, 2);
    tell(0);
    struct inbox_message first = take(1);
    assert_false(inbox_give_back(&w.inbox, 2, first.place, 0));
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, 64)); /* not taken yet */
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, 1));
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, CHUNK));
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place + 1, 0));
    give_back(&first);
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, first.offset));
    assert_false(inbox_give_back(&w.inbox, first.chunk ^ 1, 0, 0)); /* free */
    sound();
}

static void test_what_was_taken_back_is_passed_over(void **state) {
    (void)state;
    begin(2, 2);
    want(0, 64);
    struct outbox_spot spot = put(0, 100, 1);
    write_head(&spot, 100, 1, true);
    put(0, 8, 2);
    tell(0);
    struct inbox_message message = take(2);
    give_back(&message);
    take_nothing();
    sound();
}

static void test_lies(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 64);
    want(1, 64);
    put(0, 8, 1);
    struct room_told told;
    assert_true(outbox_tell(&w.out[0], &told));
    const struct room_told good = told;
    struct room_told lies[] = {
        {0, good.chunk, 64, false},                  /* no place */
        {good.place, 4, 64, false},                  /* no chunk */
        {good.place, good.chunk, 65, false},         /* not on a line */
        {good.place, good.chunk, CHUNK + 64, false}, /* beyond its end */
        {good.place + 2, good.chunk, 64, false},     /* granted to nobody */
        {good.place + 1, good.chunk + 1, 64, false}, /* granted to another, later */
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
        assert_int_equal(inbox_tell(&w.inbox, 0, &lies[i]), INBOX_LIE);
    /* Granted to another, earlier. */
    const struct room_told foreign = {good.place, good.chunk, 64, false};
    assert_int_equal(inbox_tell(&w.inbox, 1, &foreign), INBOX_LIE);
    assert_int_equal(inbox_tell(&w.inbox, 0, &good), INBOX_TOLD);
    assert_int_equal(inbox_tell(&w.inbox, 0, &good), INBOX_OLD);
    const struct room_told closed = {good.place, good.chunk, 64, true};
    assert_int_equal(inbox_tell(&w.inbox, 0, &closed), INBOX_TOLD);
    assert_int_equal(inbox_tell(&w.inbox, 0, &closed), INBOX_OLD);
    const struct room_told more = {good.place, good.chunk, 128, false};
    assert_int_equal(inbox_tell(&w.inbox, 0, &more), INBOX_LIE); /* closed is the last word */
    struct inbox_message message = take(1);
    give_back(&message);
    assert_int_equal(inbox_tell(&w.inbox, 0, &more), INBOX_OLD); /* of a grant that is over */
    sound();
}

static void test_a_bad_head_costs_its_chunk_only(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    want(1, 64);
    put(0, 8, 1);
    struct outbox_spot bad = put(0, 8, 2);
    put(0, 8, 3);
    put(1, 8, 4);
    w.memory[bad.chunk * CHUNK + bad.offset]++;
    tell(0);
    tell(1);
    struct inbox_message message = take(1);
    give_back(&message);
    message = take(4);
    give_back(&message);
    assert_int_equal(inbox_take(&w.inbox, w.memory, &message), INBOX_BAD);
    assert_int_equal(message.from, 200);
    take_nothing();
    sound();
    assert_int_equal(w.inbox.free_count, 3);
}

static void test_a_new_session_goes_on_where_the_other_side_is(void **state) {
    (void)state;
    struct room_told told;
    struct room_grant grant;
    begin(4, 4);
    want(0, 2 * CHUNK);
    put(0, 8, 1);
    assert_true(outbox_tell(&w.out[0], &told)); /* heard, but not known to be */
    assert_int_equal(inbox_tell(&w.inbox, 0, &told), INBOX_TOLD);
    struct outbox_spot second = put(0, 8, 2), third = put(0, 8, 3);
    assert_true(outbox_tell(&w.out[0], &told)); /* lost */
    outbox_broken(&w.out[0]);
    assert_false(outbox_room(&w.out[0], 8));
    assert_false(outbox_tell(&w.out[0], &told));
    for (uint64_t after = 0; inbox_again(&w.inbox, 0, after, &grant); after = grant.place)
        assert_true(outbox_grant(&w.out[0], &grant));
    assert_true(outbox_settled(&w.out[0]));
    sound();
    assert_true(outbox_arrived(&w.out[0], second.place, 0));
    assert_false(outbox_arrived(&w.out[0], second.place, second.offset));
    assert_false(outbox_arrived(&w.out[0], third.place, third.offset));
    put(0, 8, 2);
    put(0, 8, 3);
    tell(0);
    for (uint64_t i = 1; i <= 3; i++)
        take(i);
    take_nothing();
}

/* Completions of a session that is over say nothing about the same places on the next. */
static void test_late_words_count_for_nothing(void **state) {
    struct room_told told;
    struct room_grant grant;
    (void)state;
    begin(4, 4);
    want(0, CHUNK);
    struct outbox_spot spot = put(0, 8, 1), again;
    uint32_t session = w.out[0].session;
    assert_true(outbox_tell(&w.out[0], &told)); /* lost */
    outbox_broken(&w.out[0]);
    assert_true(inbox_again(&w.inbox, 0, 0, &grant));
    assert_true(outbox_grant(&w.out[0], &grant));
    assert_true(outbox_settled(&w.out[0]));
    assert_true(outbox_room(&w.out[0], 8));
    outbox_put(&w.out[0], 8, &again);
    assert_int_equal(again.offset, spot.offset);
    outbox_ready(&w.out[0], &spot);
    outbox_sure(&w.out[0], session, &told);
    sound();
    assert_int_equal(tell(0), 0);
    write_head(&again, 8, 1, false);
    outbox_ready(&w.out[0], &again);
    assert_int_equal(tell(0), 1);
    take(1);
}

/* A receiver that does not name a place, of which it was never told that it is closed, lies. */
static void test_no_receiver_closes_a_place(void **state) {
    (void)state;
    begin(4, 4);
    want(0, CHUNK);
    put(0, 8, 1);
    outbox_broken(&w.out[0]);
    assert_false(outbox_settled(&w.out[0]));
    sound();
}

static void test_a_grant_that_was_lost_is_told_again(void **state) {
    (void)state;
    uint64_t grants;
    uint32_t to;
    struct room_grant grant;
    begin(4, 4);
    assert_true(outbox_want(&w.out[0], 64, &grants));
    inbox_want(&w.inbox, 0, grants);
    assert_true(inbox_grant(&w.inbox, 77, &to, &grant)); /* lost */
    outbox_broken(&w.out[0]);
    assert_true(inbox_again(&w.inbox, 0, 0, &grant));
    assert_true(outbox_grant(&w.out[0], &grant));
    assert_false(inbox_again(&w.inbox, 0, grant.place, &grant));
    assert_true(outbox_settled(&w.out[0]));
    put(0, 8, 1);
    tell(0);
    take(1);
}

static void test_grants_that_no_receiver_makes(void **state) {
    (void)state;
    struct room_grant grant = {.place = 1, .secret = 5, .chunk = 0, .end = 0};
    begin(4, 4);
    struct outbox *out = &w.out[0];
    grant.end = CHUNK + 64;
    assert_false(outbox_grant(out, &grant));
    grant.end = 64; /* filled, before anything was put there */
    assert_false(outbox_grant(out, &grant));
    grant.end = 0;
    assert_true(outbox_grant(out, &grant));
    grant.secret = 6;
    assert_false(outbox_grant(out, &grant));
    grant.secret = 5;
    grant.end = 64;
    assert_false(outbox_grant(out, &grant));
    const struct room_grant outside = {.place = 2, .chunk = 4}; /* of 4 */
    assert_false(outbox_grant(out, &outside));
    for (uint64_t place = 2; place <= OUTBOX_PLACES; place++) {
        grant = (struct room_grant){.place = place};
        assert_true(outbox_grant(out, &grant));
    }
    grant.place++;
    assert_false(outbox_grant(out, &grant)); /* more than were ever asked for */
}

#define TEST(name) cmocka_unit_test_teardown(test_##name, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(shapes),
        TEST(sizes),
        TEST(heads),
        TEST(messages_in_their_order),
        TEST(a_message_that_does_not_fit_closes_its_place),
        TEST(a_full_inbox_drops_nothing),
        TEST(a_crowd_shares),
        TEST(a_peer_has_no_more_than_its_share),
        TEST(silent_senders_keep_half_and_are_called),
        TEST(senders_that_are_away_are_called),
        TEST(awaited_once),
        TEST(what_a_sender_that_is_gone_had_told_stays),
        TEST(given_back_once),
        TEST(what_was_taken_back_is_passed_over),
        TEST(lies),
        TEST(a_bad_head_costs_its_chunk_only),
        TEST(a_new_session_goes_on_where_the_other_side_is),
        TEST(late_words_count_for_nothing),
        TEST(no_receiver_closes_a_place),
        TEST(a_grant_that_was_lost_is_told_again),
        TEST(grants_that_no_receiver_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
