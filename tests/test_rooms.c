/* SPDX-License-Identifier: Apache-2.0 */
/* test_rooms.c: whose room in an inbox is, and which message is next (inbox.h), step by step.
 *
 * This file is long because each way that a message can go has a test of its own. */
#include "rooms.h"

static void test_shapes(void **state) {
    struct room_shape shape = {0};
    (void)state;
    assert_false(room_shape(ROOM_LENGTH_MAX + 1, 1, 1, &shape));
    assert_false(room_shape(8, 0, 1, &shape));
    assert_false(room_shape(8, 1, 0, &shape));
    assert_false(room_shape(8 << 20, 1, ROOM_CHUNKS_MAX + 1, &shape));
    assert_true(room_shape(0, 1, 1, &shape));
    assert_int_equal(shape.chunk_bytes, ROOM_LINE);
    assert_int_equal(shape.chunk_count, 1);
    /* A peer has two chunks, as long as they are not above the usual size. */
    assert_true(room_shape(0, 100, 400, &shape));
    assert_int_equal(shape.chunk_bytes, 50 * ROOM_LINE);
    assert_int_equal(shape.peer_chunks, ROOM_PEER_CHUNKS);
    assert_int_equal(shape.chunk_count, 8);
    assert_true(room_shape(0, 10000, 10000, &shape));
    assert_int_equal(shape.chunk_bytes, ROOM_CHUNK_BYTES);
    /* Where nothing is asked: 64 KiB, or some messages. */
    assert_int_equal(room_usual(0), ROOM_CHUNK_BYTES / ROOM_LINE);
    assert_int_equal(room_usual(1 << 20), 16);
    assert_int_equal(room_usual_peers(0, 1), 16);
    assert_int_equal(room_usual_peers(0, room_usual(0)), 16);
    assert_int_equal(room_usual_peers(4096, room_usual(4096)), 15);
    assert_int_equal(room_usual_peers(1 << 20, 16), 4);
    /* Long ones take 64 MiB of one peer and 256 MiB in all, but two messages. */
    assert_int_equal(room_usual(4 << 20), 16);
    assert_int_equal(room_usual(8 << 20), 8);
    assert_int_equal(room_usual_peers(8 << 20, 8), 4);
    assert_int_equal(room_usual(256 << 20), ROOM_PEER_CHUNKS);
    assert_int_equal(room_usual_peers(256 << 20, ROOM_PEER_CHUNKS), 1);
    assert_int_equal(room_usual(ROOM_LENGTH_MAX), ROOM_PEER_CHUNKS);
    assert_int_equal(room_usual_peers(1 << 20, 100), 2);
    assert_int_equal(room_usual_peers(ROOM_LENGTH_MAX, UINT32_MAX), 1);
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
    bytes[12] = 2;
    assert_true(room_head_decode(bytes, head.mark, ROOM_LINE, &read)); /* its bytes are elsewhere */
    assert_true(read.loan && !read.skip && read.length == 100);
    bytes[12] = 3; /* no head that anybody writes */
    assert_false(room_head_decode(bytes, head.mark, 192, &read));
    bytes[12] = 0;
    memset(bytes + 8, 0xff, 4); /* nor a length whose bytes would wrap */
    assert_false(room_head_decode(bytes, head.mark, UINT32_MAX, &read));
}

static void test_memory(void **state) {
    struct room_shape shape = {.chunk_bytes = CHUNK, .chunk_count = 4, .peer_chunks = 2};
    (void)state;
    assert_true(inbox_bytes(&shape, PEERS) > 0);
    assert_int_equal(inbox_bytes(&shape, UINT32_MAX), 0);
    assert_int_equal(inbox_bytes(&shape, UINT32_MAX - 4), 0);
}

/* ---- messages ---- */

static void test_messages_in_their_order(void **state) {
    (void)state;
    begin(4, 2);
    assert_false(outbox_room(&w.out[0], 8));
    assert_int_equal(want(0, 3 * 64), 1);
    struct room_note notes[3];
    for (uint64_t i = 0; i < 3; i++)
        notes[i] = put(0, 8, i + 1);
    take_nothing(); /* nothing arrived */
    for (uint64_t i = 0; i < 3; i++)
        arrive(0, notes[i]);
    for (uint64_t i = 1; i <= 3; i++) {
        struct inbox_message message = take(i);
        assert_int_equal(message.peer, 0);
        assert_int_equal(message.length, 8);
        assert_int_equal(message.payload, (i - 1) * 64 + ROOM_HEAD);
        give_back(message);
    }
    take_nothing();
}

static void test_notes_in_any_order(void **state) {
    (void)state;
    begin(4, 3);
    want(0, 3 * CHUNK);
    struct room_note notes[6];
    for (uint64_t i = 0; i < 4; i++)
        notes[i] = put(0, 8, i);
    notes[4] = put(0, 100, 4);
    notes[5] = put(0, 192, 5);
    const uint32_t order[] = {5, 2, 4, 1, 3}; /* not 0 */
    for (uint32_t i = 0; i < 5; i++) {
        arrive(0, notes[order[i]]);
        take_nothing();
    }
    shut(0); /* the first two places, before the first message */
    take_nothing();
    arrive(0, notes[0]);
    for (uint64_t i = 0; i < 6; i++)
        give_back(take(i));
    take_nothing();
    assert_int_equal(w.inbox.free_count, 4); /* the last was full, and shut by that */
    assert_false(outbox_room(&w.out[0], 8));
    shut(0);
    assert_int_equal(w.inbox.free_count, 4);
}

static void test_a_message_that_never_comes_is_skipped(void **state) {
    (void)state;
    begin(2, 2);
    want(0, CHUNK);
    struct room_note first = put(0, 100, 1);
    arrive(0, put(0, 8, 2));
    take_nothing();
    arrive(0, skipped(first));
    struct inbox_message second = take(2);
    assert_int_equal(w.inbox.held_count, 1); /* nobody gives a skip back */
    give_back(second);
    take_nothing();
    outbox_call(&w.out[0], 1);
    assert_int_equal(yield(0), 1);
    assert_int_equal(w.inbox.free_count, 2);
}

static void test_a_chunk_of_skips_only(void **state) {
    (void)state;
    begin(2, 2);
    want(0, 2 * CHUNK);
    struct room_note first = put(0, 150, 1), second = send(0, 150, 2);
    assert_int_equal(shut(0), 1);
    arrive(0, skipped(first));
    assert_int_equal(w.inbox.free_count, 0);
    give_back(take(2));
    assert_int_equal(w.inbox.free_count, 2);              /* also the second, which was full */
    assert_int_equal(told(0, skipped(first)), INBOX_OLD); /* of a grant that is over */
    assert_int_equal(told(0, skipped(second)), INBOX_OLD);
}

static void test_many_skips_take_turns_too(void **state) {
    const struct room_shape shape = {.message_bytes_max = 8,
                                     .chunk_bytes = (INBOX_SKIPS + 2) * ROOM_LINE,
                                     .chunk_count = 1,
                                     .peer_chunks = 1};
    (void)state;
    begin_with(&shape, 0);
    want(0, 1);
    for (uint32_t i = 0; i < INBOX_SKIPS; i++)
        arrive(0, skipped(put(0, 8, i)));
    send(0, 8, 100);
    take_nothing(); /* so many were passed over */
    give_back(take(100));
}

/* It is not known whether the message arrived: both are told. The first counts. */
static void test_the_first_of_message_and_skip_counts(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    struct room_note a = put(0, 8, 1), b = put(0, 8, 2), c = put(0, 8, 3), d = put(0, 8, 4);
    arrive(0, a);
    assert_int_equal(told(0, skipped(a)), INBOX_OLD); /* before it is taken */
    arrive(0, skipped(b));
    assert_int_equal(told(0, b), INBOX_OLD);
    arrive(0, c);
    struct inbox_message first = take(1), third = take(3);
    assert_int_equal(told(0, skipped(a)), INBOX_OLD); /* taken, and held */
    assert_int_equal(told(0, b), INBOX_OLD);
    assert_int_equal(told(0, c), INBOX_OLD);
    give_back(first);
    give_back(third);
    assert_int_equal(told(0, a), INBOX_OLD); /* and given back */
    arrive(0, d);
    outbox_room(&w.out[0], 8);
    shut(0);
    assert_int_equal(told(0, skipped(c)), INBOX_OLD); /* its place is shut */
    give_back(take(4));
    assert_int_equal(told(0, skipped(c)), INBOX_OLD); /* and over */
    assert_int_equal(w.inbox.free_count, 4);
    want(0, CHUNK); /* the chunk is granted again */
    assert_int_equal(told(0, skipped(c)), INBOX_OLD);
    take_nothing();
}

/* A word may come before the notes of messages that it is about. */
static void test_a_place_is_shut_with_messages_to_come(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 2 * CHUNK);
    struct room_note first = put(0, 100, 1), second = put(0, 100, 2);
    assert_int_equal(shut(0), 1);
    assert_int_equal(w.inbox.free_count, 2);
    arrive(0, second);
    take_nothing();
    arrive(0, first);
    struct inbox_message one = take(1), two = take(2);
    give_back(two);
    assert_int_equal(w.inbox.free_count, 2);
    give_back(one);
    assert_int_equal(w.inbox.free_count, 3);
}

static void test_streams_take_turns(void **state) {
    (void)state;
    begin(4, 1);
    for (uint32_t i = 0; i < 3; i++)
        want(i, CHUNK);
    for (uint64_t n = 0; n < 3; n++)
        send(0, 8, n);
    for (uint64_t n = 0; n < 2; n++)
        send(1, 8, 10 + n);
    send(2, 8, 20);
    const uint64_t turns[] = {0, 10, 20, 1, 11, 2};
    for (uint32_t i = 0; i < 6; i++)
        take(turns[i]);
    take_nothing();
}

static void test_given_back_once(void **state) {
    (void)state;
    begin(2, 2);
    want(0, 64);
    send(0, 8, 1);
    send(0, 8, 2);
    struct inbox_message first = take(1);
    assert_false(inbox_give_back(&w.inbox, 2, first.place, 0));
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, 64)); /* not taken yet */
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, 1));
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, CHUNK));
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place + 1, 0));
    give_back(first);
    assert_false(inbox_give_back(&w.inbox, first.chunk, first.place, first.offset));
    assert_false(inbox_give_back(&w.inbox, first.chunk ^ 1, 0, 0)); /* free */
    sound();
}

static void test_places_begin_above_those_of_the_inbox_before(void **state) {
    const struct room_shape shape = {.message_bytes_max = CHUNK - ROOM_LINE,
                                     .chunk_bytes = CHUNK,
                                     .chunk_count = 2,
                                     .peer_chunks = 2};
    (void)state;
    begin(2, 2);
    want(0, CHUNK);
    struct room_note old = put(0, 8, 1);
    uint64_t places = w.inbox.places;
    assert_int_equal(old.place, places);
    end(NULL);
    begin_with(&shape, places);
    assert_int_equal(told(0, old), INBOX_OLD);
    want(0, CHUNK);
    assert_int_equal(told(0, old), INBOX_OLD);
    struct room_note note = send(0, 8, 2);
    assert_int_equal(note.place, places + 1);
    take(2);
}

/* ---- whose chunks are ---- */

static void test_a_full_inbox_drops_nothing(void **state) {
    (void)state;
    begin(2, 2);
    assert_int_equal(want(0, 5 * CHUNK), 2);
    for (uint64_t i = 1; i <= 8; i++)
        send(0, 8, i);
    assert_false(outbox_room(&w.out[0], 8));
    shut(0);
    assert_int_equal(want(0, 64), 0);
    struct inbox_message held[8];
    for (uint32_t i = 0; i < 8; i++)
        held[i] = take(i + 1);
    assert_int_equal(grant_all(), 0); /* all of it is the application's */
    for (uint32_t i = 7; i >= 5; i--)
        give_back(held[i]);
    assert_int_equal(grant_all(), 0);
    give_back(held[4]); /* the last of its chunk: in any order */
    assert_int_equal(grant_all(), 1);
    send(0, 8, 9);
    take(9);
}

static void test_a_crowd_shares(void **state) {
    uint32_t to;
    (void)state;
    begin(6, 6);
    for (uint32_t i = 0; i < 3; i++)
        inbox_want(&w.inbox, i, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(inbox_grant(&w.inbox, ++w.secret, &to));
        assert_int_equal(to, i % 3);
        sound();
    }
    assert_false(inbox_grant(&w.inbox, ++w.secret, &to));
}

static void test_a_peer_has_no_more_than_its_share(void **state) {
    (void)state;
    begin(8, 3);
    assert_int_equal(want(0, 8 * CHUNK), 3);
    send(0, 8, 1);
    give_back(take(1));
    assert_int_equal(want(0, 8 * CHUNK), 0);
    for (uint64_t i = 2; i <= 5; i++) /* fill the first place, go on in the second */
        send(0, 8, i);
    assert_int_equal(shut(0), 1);
    for (uint64_t i = 2; i <= 5; i++) {
        assert_int_equal(grant_all(), 0);
        give_back(take(i));
        if (i == 4) /* the first place is over */
            break;
    }
    assert_int_equal(grant_all(), 1);
}

/* Memory that was used just now is used again: of many chunks a sender and a receiver that follow
 * each other touch as few as they have in use at a time. */
static void test_what_came_free_last_is_granted_first(void **state) {
    bool touched[32] = {false};
    uint32_t chunks = 0;
    (void)state;
    begin(32, 32);
    for (uint64_t i = 1; i <= 400; i++) { /* four fill a chunk */
        if (!outbox_room(&w.out[i % 2], 8))
            want((uint32_t)i % 2, 1);
        struct room_note note = send((uint32_t)i % 2, 8, i);
        shut((uint32_t)i % 2);
        give_back(take(i));
        chunks += !touched[note.chunk];
        touched[note.chunk] = true;
    }
    assert_int_equal(chunks, 2);
    assert_true(touched[0] && touched[1]); /* from the front of the memory */
}

/* ---- calls ---- */

static void test_the_longest_idle_is_called_first(void **state) {
    uint32_t to;
    (void)state;
    begin(4, 1);
    for (uint32_t i = 0; i < 4; i++)
        want(i, 64);
    send(0, 8, 1);                           /* not idle */
    assert_false(inbox_call(&w.inbox, &to)); /* nobody waits */
    want(4, 64);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 1);
    assert_false(inbox_call(&w.inbox, &to)); /* one waits, one is awaited */
    want(5, 64);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 2);
    sound();
    hear(1);
    assert_int_equal(yield(1), 1);
    assert_int_equal(grant_all(), 1);
    assert_int_equal(w.out[4].count, 1);
    assert_false(outbox_room(&w.out[1], 8)); /* 1 has to ask again */
}

static void test_those_that_wait_are_called_last(void **state) {
    uint32_t to;
    (void)state;
    begin(2, 2);
    want(0, 64);
    want(1, 64);
    assert_int_equal(want(0, 2 * CHUNK), 0); /* 0 is in the line, and idle for longer */
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 1);
    inbox_call_on(&w.inbox);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 0);
    sound();
}

/* Senders that hold all there is, and do not answer: each is called, in every round. */
static void test_senders_that_are_away_are_called(void **state) {
    uint32_t to;
    (void)state;
    begin(8, 4);
    assert_int_equal(want(0, 4 * CHUNK), 4);
    assert_int_equal(want(1, 4 * CHUNK), 4); /* none of these may be kept, and all of those */
    assert_int_equal(want(0, 9 * CHUNK), 0);
    inbox_want(&w.inbox, 2, 1);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 0);
    assert_int_equal(w.inbox.awaited, 4);
    assert_false(inbox_call(&w.inbox, &to));
    inbox_call_on(&w.inbox);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 1);
    inbox_call_on(&w.inbox);
    assert_false(inbox_call(&w.inbox, &to)); /* all were called */
    sound();
    assert_int_equal(hear(1), 1);
    assert_int_equal(yield(1), 4);
    assert_int_equal(w.inbox.called, 4);
    assert_true(inbox_grant(&w.inbox, ++w.secret, &to));
    assert_int_equal(to, 2);
}

/* One that is called again, for what it was granted since, is awaited for each chunk once. */
static void test_awaited_once(void **state) {
    uint32_t to;
    (void)state;
    begin(3, 3);
    want(0, 64);
    want(1, 2 * CHUNK);
    inbox_want(&w.inbox, 2, 1);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 0);
    inbox_want(&w.inbox, 2, 0);
    send(1, 8, 1);
    assert_int_equal(idle(1), 2);
    assert_int_equal(want(0, 64 + CHUNK), 1);
    give_back(take(1));
    assert_int_equal(want(1, 64), 1);
    for (uint32_t i = 2; i < PEERS; i++)
        inbox_want(&w.inbox, i, 1);
    while (inbox_call(&w.inbox, &to))
        sound();
    assert_int_equal(w.inbox.awaited, w.inbox.called);
    hear(0);
    assert_int_equal(yield(0), 2);
    assert_int_equal(w.inbox.awaited, w.inbox.called);
}

/* Where the memory is, then what is granted, then what is called. */
static void test_what_senders_are_told_and_in_which_order(void **state) {
    struct room_grant grant = {0};
    uint32_t to;
    (void)state;
    begin(2, 2);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_NOTHING); /* unknown */
    inbox_want(&w.inbox, 0, 2);
    assert_true(inbox_grant(&w.inbox, 77, &to));
    assert_true(inbox_grant(&w.inbox, 78, &to));
    inbox_want(&w.inbox, 1, 1);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 0);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_MEET);
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_GRANT);
        assert_int_equal(grant.place, i + 1);
        assert_int_equal(grant.secret, 77 + i);
        assert_int_equal(grant.chunk, i);
        assert_true(grant.keep == (i == 0));
    }
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_CALL);
    assert_int_equal(grant.place, 2);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_NOTHING);
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_MEET); /* without a grant */
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_NOTHING);
    assert_int_equal(inbox_say(&w.inbox, PEERS, &grant), INBOX_SAY_NOTHING);
}

/* A sender with messages that must not wait is told that there is no more room than it was granted,
 * behind those grants; once, and only if it wants more still. */
static void test_those_that_must_not_wait_are_told(void **state) {
    struct room_grant grant = {0};
    uint32_t to;
    (void)state;
    begin(2, 2);
    inbox_now(&w.inbox, 0, 1);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_NOTHING); /* unknown */
    inbox_want(&w.inbox, 0, 3);
    inbox_now(&w.inbox, 0, 4);
    inbox_now(&w.inbox, 0, 5);
    assert_true(inbox_grant(&w.inbox, 77, &to));
    assert_true(inbox_grant(&w.inbox, 78, &to));
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_MEET);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_GRANT);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_GRANT);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant),
                     INBOX_SAY_FULL); /* as many as a peer may have */
    assert_int_equal(grant.place, 5);
    assert_int_equal(inbox_say(&w.inbox, 0, &grant), INBOX_SAY_NOTHING);

    inbox_want(&w.inbox, 1, 1);
    inbox_now(&w.inbox, 1, 9);
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_MEET);
    inbox_want(&w.inbox, 1, 0); /* it wants nothing any more */
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_NOTHING);
    inbox_want(&w.inbox, 1, 1);
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_NOTHING); /* it did not ask again */
    inbox_now(&w.inbox, 1, 10);
    inbox_close(&w.inbox);
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_CLOSED);
    assert_int_equal(inbox_say(&w.inbox, 1, &grant), INBOX_SAY_NOTHING);
    sound();
}

/* ---- senders that are given up ---- */

static void test_peers_are_listed(void **state) {
    (void)state;
    begin(2, 2);
    assert_int_equal(inbox_peer_after(&w.inbox, INBOX_NONE), INBOX_NONE);
    inbox_leave(&w.inbox, 3, 1); /* never met */
    inbox_quiet(&w.inbox, 3);
    assert_false(inbox_knows(&w.inbox, 3));
    inbox_want(&w.inbox, 3, 1);
    inbox_want(&w.inbox, 1, 0);
    inbox_want(&w.inbox, 5, 1);
    assert_true(inbox_knows(&w.inbox, 1));
    inbox_leave(&w.inbox, 1, 1);
    assert_false(inbox_knows(&w.inbox, 1));
    sound();
    assert_int_equal(inbox_peer_after(&w.inbox, INBOX_NONE), 3);
    assert_int_equal(inbox_peer_after(&w.inbox, 3), 5);
    assert_int_equal(inbox_peer_after(&w.inbox, 5), INBOX_NONE);
}

static void test_what_a_sender_had_told_is_delivered(void **state) {
    (void)state;
    begin(4, 4);
    want(0, 2 * CHUNK);
    send(0, 100, 1);
    struct room_note noted = send(0, 8, 2);
    struct room_note third = put(0, 8, 3); /* on its way */
    shut(0);
    struct inbox_message first = take(1);
    assert_int_equal(first.peer, 0);
    leave(0, 200);
    want(0, 64); /* another stream of the same peer */
    send(0, 8, 4);
    struct inbox_message second = take(2), fourth = take(4);
    assert_int_equal(second.peer, INBOX_NONE);
    assert_int_equal(second.from, 200);
    assert_int_equal(fourth.peer, 0);
    take_nothing();
    arrive(0, third);
    struct inbox_message last = take(3);
    assert_int_equal(last.from, 200);
    give_back(last);
    give_back(second);
    assert_int_equal(w.inbox.free_count, 1); /* what leaves may write still */
    quiet(0);
    assert_int_equal(w.inbox.free_count, 2); /* but for the first message */
    assert_int_equal(told(0, noted), INBOX_OLD);
    give_back(first);
    assert_int_equal(w.inbox.free_count, 3);
    assert_int_equal(told(0, third), INBOX_OLD);
    send(0, 8, 5); /* the other stream goes on */
    take(5);
    give_back(fourth);
}

/* Until it is quiet, a sender that leaves shuts places, skips messages, and is waited for. */
static void test_what_a_sender_tells_while_it_leaves(void **state) {
    (void)state;
    begin(2, 2);
    want(0, 2 * CHUNK);
    struct room_note first = put(0, 150, 1), second = put(0, 150, 2);
    struct room_shut word;
    assert_true(outbox_shut(&w.out[0], &word));
    arrive(0, second);
    leave(0, 200);
    assert_int_equal(inbox_shut(&w.inbox, 0, &word), INBOX_TOLD);
    assert_int_equal(inbox_shut(&w.inbox, 0, &word), INBOX_OLD);
    sound();
    take_nothing(); /* the first may come yet */
    arrive(0, skipped(first));
    struct inbox_message message = take(2);
    assert_int_equal(w.inbox.free_count, 0);
    quiet(0);
    assert_int_equal(w.inbox.free_count, 1);
    give_back(message);
    assert_int_equal(w.inbox.free_count, 2);
}

/* Behind quiet, messages behind holes of each kind are delivered. */
static void test_holes_are_passed_over(void **state) {
    (void)state;
    begin(5, 5);
    want(0, 5 * CHUNK);
    put(0, 8, 1); /* the front of a chunk */
    send(0, 8, 2);
    put(0, 8, 3); /* in the middle */
    send(0, 8, 4);
    put(0, 192, 5); /* a whole chunk */
    send(0, 100, 6);
    put(0, 8, 7); /* its end */
    send(0, 100, 8);
    put(0, 8, 9); /* the last */
    assert_int_equal(shut(0), 3);
    take_nothing();
    leave(0, 200);
    take_nothing();
    quiet(0);
    assert_int_equal(w.inbox.free_count,
                     2); /* one without a message, and one that was never used */
    struct inbox_message held[4];
    for (uint32_t i = 0; i < 4; i++)
        held[i] = take(2 + 2 * i);
    take_nothing();
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(held[i].from, 200);
        give_back(held[i]);
    }
    assert_int_equal(w.inbox.free_count, 5);
}

/* Chunks that a sender leaves are free at once when it is quiet, but for what was not given back.
 */
static void test_a_quiet_sender_has_nothing(void **state) {
    (void)state;
    begin(3, 3);
    want(0, 3 * CHUNK);
    put(0, 192, 1);
    leave(0, 200);
    assert_int_equal(want(1, CHUNK), 0);
    quiet(1); /* of another peer: nothing happens */
    assert_int_equal(grant_all(), 0);
    quiet(0);
    assert_int_equal(w.inbox.free_count, 3);
    assert_int_equal(grant_all(), 1);
    quiet(0);
}

/* Peers leave, and begin again, more often than they are quiet: a stream without a chunk is
 * forgotten when it leaves, as nothing of it can come. */
static void test_streams_without_chunks_leave_nothing(void **state) {
    (void)state;
    begin(2, 2);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < PEERS; i++)
            want(i, 64);
        for (uint32_t i = 0; i < PEERS; i++)
            leave(i, 200 + i);
    }
    for (uint32_t i = 0; i < PEERS; i++)
        quiet(i);
    assert_int_equal(w.inbox.free_count, 2);
}

/* One that leaves is not told that it is called; the next one is. */
static void test_one_that_leaves_is_not_called(void **state) {
    uint32_t to;
    (void)state;
    begin(2, 1);
    want(0, 64);
    want(1, 64);
    leave(0, 200);
    want(2, 64);
    want(3, 64);
    assert_true(inbox_call(&w.inbox, &to));
    assert_int_equal(to, 1);
    assert_int_equal(w.inbox.awaited, 2);
    sound();
    quiet(0);
    assert_int_equal(w.inbox.awaited, 1);
    assert_int_equal(grant_all(), 1);
}

/* ---- the end of an inbox ---- */

static void test_a_closed_inbox_waits_for_its_senders(void **state) {
    struct room_grant grant;
    uint32_t to;
    (void)state;
    begin(3, 1);
    want(0, 64);
    want(1, 64);
    send(0, 8, 1);
    send(1, 8, 2);
    struct inbox_message held = take(1);
    inbox_want(&w.inbox, 2, 1);
    assert_true(inbox_meets(&w.inbox, 2));
    assert_false(inbox_meets(&w.inbox, 1)); /* it was told */
    assert_false(inbox_meets(&w.inbox, 5)); /* unknown */
    inbox_close(&w.inbox);
    sound();
    take_nothing();
    assert_false(inbox_grant(&w.inbox, 7, &to));
    assert_false(inbox_call(&w.inbox, &to));
    inbox_want(&w.inbox, 3, 1); /* hears no more of it than the others */
    assert_false(inbox_meets(&w.inbox, 2));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(inbox_say(&w.inbox, i, &grant), INBOX_SAY_CLOSED);
        assert_int_equal(inbox_say(&w.inbox, i, &grant), INBOX_SAY_NOTHING);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_false(inbox_is_over(&w.inbox));
        leave(i, 200 + i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_false(inbox_is_over(&w.inbox));
        quiet(i);
    }
    assert_false(inbox_is_over(&w.inbox)); /* something is held */
    give_back(held);
    assert_true(inbox_is_over(&w.inbox));
}

/* ---- lies ---- */

static void test_lies_about_messages(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 64);
    want(1, 64);
    struct room_note good = put(0, 8, 1);
    struct room_note lies[8];
    for (size_t i = 0; i < 8; i++)
        lies[i] = good;
    lies[0].place = 0;           /* no place */
    lies[1].chunk = 4;           /* no chunk */
    lies[2].offset = 1;          /* not on a line */
    lies[3].offset = CHUNK;      /* behind the chunk */
    lies[4].place += 2;          /* granted to nobody */
    lies[5].place++;             /* granted to another */
    lies[5].chunk++;             /* with its chunk */
    lies[6].offset = CHUNK - 64; /* across the chunk's end */
    lies[6].length = 100;
    lies[7].length = CHUNK - ROOM_LINE + 1; /* longer than any */
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(told(0, lies[i]), INBOX_LIE);
    assert_int_equal(told(1, good), INBOX_LIE);
    assert_int_equal(told(PEERS, good), INBOX_LIE);
    take_nothing();
    arrive(0, good);
    assert_int_equal(told(0, good), INBOX_OLD);
    assert_int_equal(told(1, good), INBOX_LIE);
    const struct room_note elsewhere = {.place = good.place, .chunk = 3, .length = 8};
    assert_int_equal(told(0, elsewhere), INBOX_OLD); /* no place of that chunk's now */
    const struct room_shut end = {good.place, good.chunk, 64};
    assert_int_equal(inbox_shut(&w.inbox, 0, &end), INBOX_TOLD);
    lies[0] = good;
    lies[0].offset = 64; /* behind its end */
    assert_int_equal(told(0, lies[0]), INBOX_LIE);
    assert_int_equal(told(0, good), INBOX_OLD);
    give_back(take(1));
    assert_int_equal(told(0, lies[0]), INBOX_OLD); /* of a grant that is over */
}

static void test_a_message_longer_than_any_is_a_lie(void **state) {
    const struct room_shape shape = {
        .message_bytes_max = 64, .chunk_bytes = 1024, .chunk_count = 1, .peer_chunks = 1};
    (void)state;
    begin_with(&shape, 0);
    want(0, 1);
    struct room_note note = put(0, 64, 1);
    note.length = 65;
    assert_int_equal(told(0, note), INBOX_LIE);
    note.length = UINT32_MAX;
    assert_int_equal(told(0, note), INBOX_LIE);
}

static enum inbox_told shut_lie(uint64_t place, uint32_t chunk, uint32_t end) {
    const struct room_shut word = {place, chunk, end};
    enum inbox_told is = inbox_shut(&w.inbox, 0, &word);
    sound();
    return is;
}

static void test_lies_about_ends(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 64);
    want(1, 64);
    struct room_note first = send(0, 8, 1), second = put(0, 8, 2), third = send(0, 8, 3);
    uint64_t place = first.place;
    uint32_t chunk = first.chunk;
    assert_int_equal(shut_lie(0, chunk, 192), INBOX_LIE);
    assert_int_equal(shut_lie(place, 4, 192), INBOX_LIE);
    assert_int_equal(shut_lie(place, chunk, 193), INBOX_LIE);
    assert_int_equal(shut_lie(place, chunk, CHUNK + 64), INBOX_LIE);
    assert_int_equal(shut_lie(place + 1, chunk + 1, 64), INBOX_LIE); /* another's */
    assert_int_equal(shut_lie(place, chunk, 128), INBOX_LIE);        /* before the third */
    take(1);
    assert_int_equal(shut_lie(place, chunk, 0), INBOX_LIE); /* before what was taken */
    assert_int_equal(shut_lie(place, chunk, 192), INBOX_TOLD);
    assert_int_equal(shut_lie(place, chunk, 192), INBOX_OLD);
    assert_int_equal(told(0, third), INBOX_OLD);
    arrive(0, second);
    take(2);
    take(3);
}

/* Messages in one another cost their sender its chunk, and nobody else anything. */
static void test_messages_in_one_another(void **state) {
    (void)state;
    begin(1, 1);
    want(0, CHUNK);
    struct room_note outer = put(0, 100, 1), inner = outer;
    inner.offset += 64;
    inner.length = 8;
    arrive(0, outer);
    if (told(0, inner) == INBOX_TOLD) {
        struct inbox_message message;
        enum inbox_taken taken = inbox_take(&w.inbox, &message);
        sound();
        if (taken == INBOX_MESSAGE)
            give_back(message);
    }
    leave(0, 200);
    quiet(0);
    struct inbox_message rest;
    while (inbox_take(&w.inbox, &rest) == INBOX_MESSAGE)
        give_back(rest);
    assert_int_equal(want(1, CHUNK), 1);
    for (uint64_t i = 0; i < 4; i++) { /* at each spot of the same chunk */
        send(1, 8, 10 + i);
        take(10 + i);
    }
}

/* A message that its place's end cuts off is none. */
static void test_an_end_in_a_message(void **state) {
    struct inbox_message message;
    (void)state;
    begin(1, 1);
    want(0, CHUNK);
    struct room_note note = send(0, 100, 1);
    if (shut_lie(note.place, note.chunk, 64) == INBOX_TOLD) {
        assert_int_equal(inbox_take(&w.inbox, &message), INBOX_BAD);
        sound();
        take_nothing();
    }
}

static void test_a_bad_head_costs_its_chunk_only(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    want(1, 64);
    send(0, 8, 1);
    struct room_note bad = send(0, 8, 2);
    send(0, 8, 3);
    send(1, 8, 4);
    w.memory[bad.chunk * CHUNK + bad.offset]++;
    struct inbox_message message = take(1), other = take(4);
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_BAD);
    assert_int_equal(message.peer, 0);
    assert_int_equal(message.place, bad.place);
    assert_int_equal(message.chunk, bad.chunk);
    sound();
    take_nothing();
    leave(0, 200); /* the stream begins anew */
    quiet(0);
    want(0, CHUNK);
    send(0, 8, 5);
    give_back(take(5));
    give_back(other);
    assert_true(inbox_give_back(&w.inbox, bad.chunk, bad.place, 0)); /* held since before */
    sound();
}

static void test_a_bad_head_of_one_that_is_quiet(void **state) {
    struct inbox_message message;
    (void)state;
    begin(2, 2);
    want(0, 2 * CHUNK);
    struct room_note bad = send(0, 150, 1);
    send(0, 8, 2);
    leave(0, 200);
    quiet(0);
    w.memory[bad.chunk * CHUNK + bad.offset]++;
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_BAD);
    assert_int_equal(message.peer, INBOX_NONE);
    assert_int_equal(message.from, 200);
    sound();
    give_back(take(2));
    assert_int_equal(w.inbox.free_count, 2);
}

/* A head may be written over by one that knows the secret. */
static void test_a_head_of_a_message_longer_than_any(void **state) {
    const struct room_shape shape = {
        .message_bytes_max = 64, .chunk_bytes = 1024, .chunk_count = 1, .peer_chunks = 1};
    struct inbox_message message;
    (void)state;
    begin_with(&shape, 0);
    want(0, 1);
    send(0, 64, 1);
    w.memory[8]++; /* its length */
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_BAD);
    sound();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(shapes),
        TEST(sizes),
        TEST(heads),
        TEST(memory),
        TEST(messages_in_their_order),
        TEST(notes_in_any_order),
        TEST(a_message_that_never_comes_is_skipped),
        TEST(a_chunk_of_skips_only),
        TEST(many_skips_take_turns_too),
        TEST(the_first_of_message_and_skip_counts),
        TEST(a_place_is_shut_with_messages_to_come),
        TEST(streams_take_turns),
        TEST(given_back_once),
        TEST(places_begin_above_those_of_the_inbox_before),
        TEST(a_full_inbox_drops_nothing),
        TEST(a_crowd_shares),
        TEST(a_peer_has_no_more_than_its_share),
        TEST(what_came_free_last_is_granted_first),
        TEST(the_longest_idle_is_called_first),
        TEST(those_that_wait_are_called_last),
        TEST(senders_that_are_away_are_called),
        TEST(awaited_once),
        TEST(what_senders_are_told_and_in_which_order),
        TEST(those_that_must_not_wait_are_told),
        TEST(peers_are_listed),
        TEST(what_a_sender_had_told_is_delivered),
        TEST(what_a_sender_tells_while_it_leaves),
        TEST(holes_are_passed_over),
        TEST(a_quiet_sender_has_nothing),
        TEST(streams_without_chunks_leave_nothing),
        TEST(one_that_leaves_is_not_called),
        TEST(a_closed_inbox_waits_for_its_senders),
        TEST(lies_about_messages),
        TEST(a_message_longer_than_any_is_a_lie),
        TEST(lies_about_ends),
        TEST(messages_in_one_another),
        TEST(an_end_in_a_message),
        TEST(a_bad_head_costs_its_chunk_only),
        TEST(a_bad_head_of_one_that_is_quiet),
        TEST(a_head_of_a_message_longer_than_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
