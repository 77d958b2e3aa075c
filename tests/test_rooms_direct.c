/* SPDX-License-Identifier: Apache-2.0 */
/* test_rooms_direct.c: direct messages in an inbox (inbox.h), step by step: where they are found,
 * who is watched, and what is left of them when their sender goes, lies or is never told.
 *
 * This file is long because each place where one is found, or is not, has a test of its own. */
#include "rooms.h"

static uint64_t watch_at(uint32_t chunk) {
    uint64_t watch;
    memcpy(&watch,
           w.memory + room_watch(w.inbox.shape.chunk_bytes, w.inbox.shape.chunk_count, chunk),
           sizeof(watch));
    return watch;
}

/* Writes the head of a message that was put; whether its sender finds a watch. */
static bool land_as(struct room_note note, struct room_head head) {
    uint8_t *at = w.memory + (size_t)note.chunk * w.inbox.shape.chunk_bytes + note.offset;
    room_head_encode(&head, at);
    return watch_at(note.chunk) == note.place;
}

static struct room_head head_of(struct room_note note) {
    assert_int_equal(w.inbox.chunks[note.chunk].place, note.place);
    return (struct room_head){.mark = room_mark(w.inbox.chunks[note.chunk].secret, note.offset),
                              .tag = note.tag,
                              .length = note.length,
                              .skip = note.skip};
}

static bool land(struct room_note note) {
    return land_as(note, head_of(note));
}

static bool direct(uint32_t peer, uint32_t length, uint64_t tag) {
    return land(put(peer, length, tag));
}

static void told_to_look(uint32_t peer) {
    inbox_told_to_look(&w.inbox, peer);
    sound();
}

static void look(void) {
    inbox_look(&w.inbox);
    sound();
}

static bool rest(void) {
    inbox_unwatch(&w.inbox);
    bool found = inbox_rest(&w.inbox);
    sound();
    assert_int_equal(w.inbox.watched.used, 0);
    return found;
}

static void take_bad(void) {
    struct inbox_message message;
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_BAD);
    sound();
}

/* ---- where they are found ---- */

static void test_found_one_behind_the_other(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    for (uint64_t i = 1; i <= 3; i++)
        assert_false(direct(0, 8, i));
    look();
    take_nothing(); /* nobody said so */
    told_to_look(0);
    for (uint64_t i = 1; i <= 3; i++) {
        struct inbox_message message = take(i);
        assert_int_equal(message.peer, 0);
        assert_int_equal(message.length, 8);
        assert_int_equal(message.payload, (i - 1) * 64 + ROOM_HEAD);
        give_back(message);
    }
    take_nothing();
    assert_true(direct(0, 8, 4));
    give_back(take(4));
    assert_false(outbox_room(&w.out[0], 8));
    assert_int_equal(shut(0), 1);
    assert_int_equal(w.inbox.free_count, 4);
}

static void test_one_that_is_watched_is_taken_without_a_look(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 2 * CHUNK);
    told_to_look(0);
    assert_true(direct(0, 100, 1)); /* two lines and its own */
    struct inbox_message message = take(1);
    assert_int_equal(message.payload, ROOM_LINE);
    assert_int_equal(message.length, 100);
    assert_false(inbox_give_back(&w.inbox, message.chunk, message.place, 64));
    give_back(message);
    assert_false(inbox_give_back(&w.inbox, message.chunk, message.place, 0));
    assert_true(direct(0, 0, 2));
    look(); /* both ways find it once */
    look();
    give_back(take(2));
    take_nothing();
}

static void test_behind_a_noted_one_that_is_not_there(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    told_to_look(0);
    struct room_note first = put(0, 8, 1);
    assert_true(direct(0, 8, 2));
    struct room_note third = put(0, 8, 3);
    assert_true(direct(0, 8, 4));
    take_nothing();
    look();
    take_nothing();
    assert_false(rest());
    arrive(0, first); /* nobody looks any more: what is behind it is found with it */
    give_back(take(1));
    give_back(take(2));
    take_nothing();
    arrive(0, skipped(third));
    give_back(take(4));
    take_nothing();
}

static void test_before_a_noted_one_that_is_there(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    told_to_look(0);
    struct room_note first = put(0, 8, 1), second = put(0, 8, 2), third = put(0, 8, 3);
    arrive(0, second);
    take_nothing();
    assert_true(land(first));
    give_back(take(1)); /* something is behind it: that takes more than to hand it out */
    give_back(take(2));
    assert_true(land(third));
    give_back(take(3));
}

/* The note of a message that was direct comes as well: it is old, or it is the same. */
static void test_noted_and_direct_is_one(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    told_to_look(0);
    struct room_note first = put(0, 8, 1), second = put(0, 8, 2);
    land(first);
    struct inbox_message message = take(1);
    assert_int_equal(told(0, first), INBOX_OLD);
    assert_int_equal(told(0, skipped(first)), INBOX_OLD);
    give_back(message);
    land(second);
    look();
    assert_int_equal(told(0, skipped(second)), INBOX_OLD); /* found before */
    give_back(take(2));
    take_nothing();
}

static void test_in_the_chunk_behind_a_shut_one(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 2 * CHUNK);
    told_to_look(0);
    assert_true(direct(0, 100, 1));
    assert_true(direct(0, 100, 2)); /* does not fit: the next place */
    give_back(take(1));
    take_nothing(); /* more may come in front of it */
    look();
    take_nothing();
    assert_int_equal(shut(0), 1);
    assert_int_equal(w.inbox.free_count, 3);
    give_back(take(2));
}

/* The word comes before the processor of the sender has written what is in front of it. */
static void test_shut_before_it_is_there(void **state) {
    (void)state;
    begin(4, 3);
    want(0, 3 * CHUNK);
    told_to_look(0);
    struct room_note first = put(0, 100, 1), second = put(0, 192, 2), third = put(0, 100, 3);
    assert_int_equal(shut(0), 2);
    land(third);
    land(second);
    look();
    take_nothing();
    land(first);
    give_back(take(1)); /* of a chunk that is shut, likewise */
    give_back(take(2));
    give_back(take(3));
    assert_int_equal(w.inbox.free_count, 3);
    assert_false(rest());
}

/* Marks behind the end of a place are no messages. */
static void test_nothing_is_found_behind_an_end(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    told_to_look(0);
    struct room_note first = put(0, 8, 1), second = put(0, 8, 2);
    const struct room_shut end_word = {first.place, first.chunk, 64};
    struct room_head mark = head_of(second);
    land(first);
    assert_int_equal(inbox_shut(&w.inbox, 0, &end_word), INBOX_TOLD);
    look();
    land_as(second, mark);
    give_back(take(1));
    look();
    take_nothing();
    assert_int_equal(w.inbox.free_count, 4);
    leave(0, 200);
    quiet(0);
    take_nothing();
    end(NULL);

    begin(4, 2);
    want(0, CHUNK);
    first = put(0, 8, 1); /* it never comes */
    land(put(0, 8, 2));
    land(put(0, 8, 3));
    const struct room_shut middle = {first.place, first.chunk, 128};
    assert_int_equal(inbox_shut(&w.inbox, 0, &middle), INBOX_TOLD);
    leave(0, 200);
    quiet(0);
    give_back(take(2));
    take_nothing();
    assert_int_equal(w.inbox.free_count, 4);
}

/* A chunk ends where the next begins, whatever is marked there. */
static void test_nothing_is_found_behind_a_chunk(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    told_to_look(0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(direct(0, 8, i));
        struct inbox_message message = take(i);
        if (i < 3) /* the last one holds the chunk */
            give_back(message);
    }
    struct room_note behind = {.place = w.out[0].places[0].grant.place, .offset = CHUNK};
    land(behind);
    take_nothing();
    look();
    take_nothing();
    assert_false(rest());
}

/* A mark is one of a grant and of an offset: those of grants before, and of other spots, are none.
 */
static void test_marks_of_other_grants_and_spots(void **state) {
    (void)state;
    begin(1, 1);
    want(0, CHUNK);
    told_to_look(0);
    struct room_head old[4];
    struct room_note note;
    for (uint64_t i = 0; i < 4; i++) {
        note = put(0, 8, i);
        old[i] = head_of(note);
        land(note);
        give_back(take(i));
    }
    assert_false(outbox_room(&w.out[0], 8));
    shut(0);
    assert_int_equal(want(0, CHUNK), 1); /* the same chunk: the old heads are there still */
    look();
    take_nothing();
    note = put(0, 8, 9);
    struct room_head good = head_of(note), other = good;
    other.mark += 64; /* of the spot behind it */
    land_as(note, other);
    look();
    take_nothing();
    land_as(note, old[0]);
    look();
    take_nothing();
    land_as(note, good);
    take(9);
}

static void test_an_inbox_for_notes_alone(void **state) {
    (void)state;
    begin(2, 2);
    w.inbox.direct = false;
    want(0, CHUNK);
    struct room_note first = put(0, 8, 1);
    land(first);
    told_to_look(0);
    look();
    take_nothing();
    assert_int_equal(watch_at(first.chunk), 0);
    arrive(0, first);
    give_back(take(1));
    put(0, 8, 2);
    land(put(0, 8, 3));
    leave(0, 200);
    quiet(0);
    take_nothing();
    assert_int_equal(w.inbox.free_count, 2);
}

/* ---- the watch ---- */

static void test_the_watch_is_on_all_that_may_be_filled(void **state) {
    (void)state;
    begin(6, 3);
    want(0, 2 * CHUNK);
    want(1, 64);
    uint32_t own[3] = {w.out[0].places[0].grant.chunk, w.out[0].places[1].grant.chunk};
    uint32_t other = w.out[1].places[0].grant.chunk;
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(watch_at(i), 0);
    told_to_look(0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(watch_at(own[i]), w.out[0].places[i].grant.place);
    assert_int_equal(watch_at(other), 0);
    want(0, 3 * CHUNK); /* granted while it is watched */
    own[2] = w.out[0].places[2].grant.chunk;
    assert_int_equal(watch_at(own[2]), w.out[0].places[2].grant.place);
    assert_false(rest());
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(watch_at(i), 0);
    want(1, 2 * CHUNK); /* and while it is not */
    assert_int_equal(watch_at(w.out[1].places[1].grant.chunk), 0);
}

/* A watch names the grant: that of the grant before is none. */
static void test_the_watch_of_a_grant_before(void **state) {
    (void)state;
    begin(1, 1);
    want(0, CHUNK);
    told_to_look(0);
    assert_true(direct(0, 192, 1));
    give_back(take(1));
    assert_false(outbox_room(&w.out[0], 8));
    shut(0);
    assert_int_equal(want(1, CHUNK), 1); /* the chunk is another's, whom nobody watches */
    assert_false(direct(1, 8, 2));
    told_to_look(1);
    take(2);
    assert_true(direct(1, 8, 3));
}

static void test_rest_finds_what_came_before(void **state) {
    (void)state;
    begin(4, 2);
    want(0, CHUNK);
    want(1, CHUNK);
    assert_false(rest());
    told_to_look(0);
    told_to_look(1);
    assert_true(direct(1, 8, 1));
    assert_true(rest());
    assert_false(direct(0, 8, 2)); /* behind it, the sender is told */
    take(1);
    take_nothing();
    told_to_look(0);
    assert_false(rest()); /* what was known of is no find */
    take(2);
    assert_false(rest());
}

/* LOOK that comes late: the message was taken. Its sender is watched, and has nothing. */
static void test_told_to_look_too_late(void **state) {
    (void)state;
    begin(2, 2);
    inbox_told_to_look(&w.inbox, 3); /* never heard of */
    want(0, CHUNK);
    struct room_note first = put(0, 8, 1);
    arrive(0, first);
    direct(0, 8, 2);
    take(1);
    take(2);
    told_to_look(0);
    told_to_look(0);
    take_nothing();
    assert_true(direct(0, 8, 3));
    take(3);
}

static void test_told_to_look_without_a_chunk(void **state) {
    (void)state;
    begin(2, 2);
    inbox_want(&w.inbox, 0, 0);
    told_to_look(0);
    look();
    take_nothing();
    want(0, CHUNK);
    assert_true(direct(0, 8, 1)); /* it was watched from the first byte on */
    take(1);
    assert_false(rest());
}

enum { ALL = INBOX_WATCH + 2 };
_Static_assert((int)ALL <= (int)PEERS, "everybody is a peer");

static void everybody(void) {
    begin(ALL, 1);
    for (uint32_t i = 0; i < ALL; i++) {
        want(i, 64);
        assert_false(direct(i, 0, i));
        told_to_look(i);
    }
    assert_int_equal(w.inbox.watched.used, INBOX_WATCH);
    for (uint32_t i = 0; i < ALL; i++) /* also of those that there is no watch for */
        take(i);
    take_nothing();
}

static void test_more_streams_than_watches(void **state) {
    (void)state;
    everybody();
    for (uint32_t i = INBOX_WATCH; i < ALL; i++) {
        assert_false(direct(i, 0, 100 + i));
        look();
        take_nothing();
        told_to_look(i);
        take(100 + i);
    }
    for (uint32_t i = 0; i < INBOX_WATCH; i++) {
        assert_true(direct(i, 0, 200 + i));
        take(200 + i);
    }
}

static void test_the_idle_give_up_their_watch(void **state) {
    (void)state;
    everybody();
    for (uint32_t i = 0; i < INBOX_WATCH_IDLE - 2; i++) /* and one was behind all that was taken */
        look();
    told_to_look(ALL - 1);
    assert_false(direct(ALL - 1, 0, 100)); /* nobody was idle for long enough */
    told_to_look(ALL - 1);
    take(100); /* with a look in vain at each of the others, at most */
    for (uint32_t i = 1; i < INBOX_WATCH; i++) {
        assert_true(direct(i, 0, 200 + i));
        take(200 + i);
    }
    while (w.inbox.streams[0].idle < INBOX_WATCH_IDLE)
        look();
    assert_true(direct(0, 0, 300)); /* just before its watch is taken away */
    told_to_look(ALL - 1);
    assert_int_equal(w.inbox.watched.used, INBOX_WATCH);
    take(300);
    assert_false(direct(0, 0, 301));
    assert_true(direct(ALL - 1, 0, 302));
    look();
    take(302);
    take_nothing();
    told_to_look(0);
    take(301);
    for (uint32_t i = 0; i < 2 * INBOX_WATCH_IDLE; i++)
        look();
    assert_false(rest());
}

/* Neither one whose messages are taken, nor one of which another was found, is idle. */
static void test_the_busy_keep_their_watch(void **state) {
    (void)state;
    everybody();
    for (uint32_t i = 0; i < INBOX_WATCH_IDLE - 4; i++)
        look();
    direct(0, 0, 100);
    take(100);
    assert_true(direct(1, 0, 102));
    told_to_look(1);
    take(102);
    assert_true(direct(2, 0, 101));
    look();
    take(101);
    for (uint32_t i = 0; i < 4; i++)
        look();
    told_to_look(ALL - 1);
    told_to_look(ALL - 2);
    for (uint32_t i = 0; i < ALL; i++)
        assert_true(direct(i, 0, 200 + i) == (i != 3 && i != 4));
}

/* ---- turns ---- */

static void test_direct_streams_take_turns(void **state) {
    (void)state;
    begin(6, 2);
    for (uint32_t i = 0; i < 3; i++) {
        want(i, CHUNK);
        told_to_look(i);
    }
    for (uint64_t n = 0; n < 4; n++) {
        for (uint32_t i = 0; i < 3; i++)
            assert_true(direct(i, 8, 10 * i + n));
    }
    uint32_t taken[3] = {0};
    for (uint32_t n = 0; n < 12; n++) {
        struct inbox_message message = {0};
        assert_int_equal(inbox_take(&w.inbox, &message), INBOX_MESSAGE);
        sound();
        assert_int_equal(message.tag, 10 * message.peer + taken[message.peer]);
        taken[message.peer]++;
        for (uint32_t i = 0; i < 3; i++)
            assert_in_range(taken[i], n / 3, n / 3 + 1);
    }
    take_nothing();
}

/* Between two looks, notes have the turns, or direct messages; behind a look both have. */
static void test_neither_notes_nor_direct_ones_starve(void **state) {
    enum { MESSAGES = 60, EVERY = 8 };
    const struct room_shape shape = {.message_bytes_max = 8,
                                     .chunk_bytes = MESSAGES * ROOM_LINE,
                                     .chunk_count = 2,
                                     .peer_chunks = 1};
    (void)state;
    for (uint32_t directs = 0; directs < 2; directs++) {
        uint32_t taken[2] = {0};
        begin_with(&shape, 0);
        want(0, 64);
        want(1, 64);
        told_to_look(directs);
        for (uint64_t n = 0; n < MESSAGES; n++) {
            land(put(directs, 8, n));
            send(1 - directs, 8, n);
        }
        for (uint32_t n = 0; n < MESSAGES; n++) {
            struct inbox_message message = {0};
            if (n % EVERY == 0)
                look();
            assert_int_equal(inbox_take(&w.inbox, &message), INBOX_MESSAGE);
            sound();
            assert_int_equal(message.tag, taken[message.peer]);
            taken[message.peer]++;
        }
        assert_in_range(taken[0], MESSAGES / 4, MESSAGES * 3 / 4);
        end(NULL);
    }
}

/* ---- senders that go ---- */

static void test_found_when_the_sender_is_quiet(void **state) {
    (void)state;
    begin(5, 5);
    want(0, 5 * CHUNK);
    told_to_look(0);
    put(0, 8, 1); /* the front of a chunk never comes */
    assert_true(direct(0, 8, 2));
    struct room_note third = put(0, 8, 3);
    assert_true(direct(0, 8, 4));
    put(0, 192, 5);               /* a whole chunk neither */
    assert_true(direct(0, 8, 6)); /* the only one of its chunk */
    struct room_note seventh = put(0, 8, 7);
    struct room_head late = head_of(seventh);
    put(0, 8, 8);
    shut(0);
    leave(0, 200);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(watch_at(i) == 0 || w.inbox.chunks[i].closed);
    take_nothing();
    arrive(0, third);
    take_nothing();
    land_as(seventh, late); /* its processor was on the way */
    look();
    take_nothing();
    assert_false(rest());
    quiet(0);
    const uint64_t tags[] = {2, 3, 4, 6, 7};
    for (uint32_t i = 0; i < 5; i++) {
        struct inbox_message message = take(tags[i]);
        assert_int_equal(message.peer, INBOX_NONE);
        assert_int_equal(message.from, 200);
        give_back(message);
    }
    take_nothing();
    assert_int_equal(w.inbox.free_count, 5);
}

/* What is in front may be taken while the sender leaves. What it began anew is another stream. */
static void test_taken_while_the_sender_leaves(void **state) {
    (void)state;
    begin(4, 4);
    want(0, CHUNK);
    struct room_note first = put(0, 8, 1);
    assert_false(direct(0, 8, 2));
    leave(0, 200);
    want(0, 64);
    told_to_look(0); /* of the new stream */
    assert_true(direct(0, 8, 3));
    take(3);
    take_nothing();
    arrive(0, first);
    assert_int_equal(take(1).from, 200);
    assert_int_equal(take(2).from, 200); /* found behind it */
    quiet(0);
    assert_true(direct(0, 8, 4));
    assert_int_equal(take(4).peer, 0);
}

static void test_a_closed_inbox_finds_nothing(void **state) {
    (void)state;
    begin(3, 1);
    want(0, 64);
    want(1, 64);
    told_to_look(0);
    assert_true(direct(0, 8, 1));
    struct inbox_message held = take(1);
    direct(0, 8, 2);
    direct(1, 8, 3);
    inbox_close(&w.inbox);
    sound();
    take_nothing();
    told_to_look(1);
    look();
    take_nothing();
    direct(0, 8, 4);
    rest();
    take_nothing();
    leave(0, 200);
    leave(1, 201);
    quiet(0);
    quiet(1);
    take_nothing();
    assert_false(inbox_is_over(&w.inbox));
    give_back(held);
    assert_true(inbox_is_over(&w.inbox));
}

/* ---- lies ---- */

/* The ways to come upon a head. */
enum way { TOLD_TO_LOOK, WATCHED, RESTED, BEHIND_ANOTHER, QUIET, WAYS };

/* The head of a second message is such: its chunk is lost, and nothing else. */
static void bad_head(enum way way, const struct room_head *change) {
    begin(4, 2);
    want(0, 2 * CHUNK);
    want(1, CHUNK);
    if (way != TOLD_TO_LOOK)
        told_to_look(0);
    struct room_note first = put(0, 8, 1), bad = put(0, 8, 2);
    struct room_head head = head_of(bad);
    uint64_t words[ROOM_HEAD_WORDS];
    head.length = change->length;
    room_head_words(&head, words);
    words[1] |= wire_data_le64(change->tag << 32); /* skip */
    memcpy(w.memory + (size_t)bad.chunk * CHUNK + bad.offset, words, sizeof(words));
    if (way == BEHIND_ANOTHER)
        arrive(0, first);
    else
        land(first);
    if (way == TOLD_TO_LOOK)
        told_to_look(0);
    else if (way == RESTED)
        assert_true(rest());
    if (way == QUIET) {
        leave(0, 200);
        quiet(0);
    }
    struct inbox_message message = take(1);
    if (way == WATCHED)
        look();
    take_bad();
    take_nothing();
    send(1, 8, 3);
    give_back(take(3));
    give_back(message);
    if (way == QUIET) {
        assert_int_equal(w.inbox.free_count, 3);
        return;
    }
    land_as(bad, head); /* nothing more is taken from there */
    told_to_look(0);
    look();
    take_nothing();
    direct(0, 8, 4);   /* fits */
    direct(0, 192, 5); /* does not, and goes to the other chunk */
    shut(0);
    look();
    give_back(take(5));
    take_nothing();
    assert_int_equal(w.inbox.free_count, 3); /* both are: one was shut, and one is full */
}

static void test_right_marks_with_wrong_heads(void **state) {
    static const struct room_head changes[] = {
        {.length = CHUNK - ROOM_LINE + 1}, /* longer than any */
        {.length = CHUNK - ROOM_LINE},     /* across the chunk's end */
        {.length = ROOM_LENGTH_MAX},       {.length = ROOM_LENGTH_MAX + 1}, {.length = UINT32_MAX},
        {.length = UINT32_MAX - 63}, /* its bytes would wrap */
        {.length = 8, .tag = 3},     /* no kind */
        {.length = 8, .tag = UINT32_MAX},
    };
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
            bad_head((enum way)way, &changes[i]);
            end(NULL);
        }
    }
}

/* ---- several at once ---- */

enum { SOME = 8 };

/* Takes the messages right behind one that was taken, as the application gets them. Returns how
 * many. */
static uint32_t take_next(struct inbox_message first, weir_message messages[1 + SOME],
                          uint32_t max) {
    memset(messages, 0xee, (1 + SOME) * sizeof(*messages));
    messages[0] = (weir_message){.from = {5},
                                 .inbox = {6},
                                 .place = first.place,
                                 .spot = inbox_spot(first.chunk, first.offset)};
    uint32_t count = inbox_take_next(&w.inbox, messages, max);
    assert_in_range(count, 0, max);
    for (uint32_t i = 1; i <= count; i++) {
        assert_int_equal(messages[i].from.id, 5);
        assert_int_equal(messages[i].inbox.id, 6);
        assert_int_equal(messages[i].place, first.place);
        assert_int_equal(inbox_spot_chunk(messages[i].spot), first.chunk);
        assert_ptr_equal(messages[i].data, w.memory + (size_t)first.chunk * CHUNK +
                                               inbox_spot_offset(messages[i].spot) +
                                               room_payload((uint32_t)messages[i].length));
    }
    for (size_t i = (1 + count) * sizeof(*messages); i < (1 + SOME) * sizeof(*messages); i++)
        assert_int_equal(((const uint8_t *)messages)[i], 0xee);
    sound();
    return count;
}

static void give_spot_back(const weir_message *message) {
    uint32_t chunk = inbox_spot_chunk(message->spot), offset = inbox_spot_offset(message->spot);
    assert_true(inbox_give_back(&w.inbox, chunk, message->place, offset));
    sound();
    assert_false(inbox_give_back(&w.inbox, chunk, message->place, offset));
}

static void test_several_at_once_to_the_end_of_a_chunk(void **state) {
    weir_message got[1 + SOME];
    (void)state;
    begin(4, 4);
    want(0, 2 * CHUNK);
    told_to_look(0);
    for (uint64_t i = 1; i <= CHUNK / ROOM_LINE; i++)
        direct(0, (uint32_t)i, i);
    direct(0, 8, 99); /* in the next chunk */
    struct inbox_message first = take(1);
    assert_int_equal(take_next(first, got, 1), 1);
    give_spot_back(&got[1]);
    struct inbox_message third = take(3);
    uint32_t count = take_next(third, got, SOME);
    assert_int_equal(count, CHUNK / ROOM_LINE - 3);
    for (uint32_t i = 1; i <= count; i++) {
        assert_int_equal(got[i].tag, 3 + i);
        assert_int_equal(got[i].length, 3 + i);
    }
    assert_int_equal(take_next(third, got, SOME), 0);
    assert_int_equal(shut(0), 1);
    look();
    give_back(take(99));
    take_nothing();
    give_back(third);
    give_back(first);
    assert_int_equal(take_next(first, got, SOME), 0); /* of a place that has messages no more */
}

/* A message that needs more than to be handed out is left: to be skipped, a loan, longer than may
 * be, of another mark, noted before its turn; and all of a chunk that is shut. */
static void test_several_at_once_leave_the_rest(void **state) {
    enum { SKIP, LOAN, LONG_ONE, BEYOND, MARK, NOTED, SHUT, REASONS };
    (void)state;
    for (int way = 0; way < REASONS; way++) {
        weir_message got[1 + SOME];
        begin(4, 4);
        want(0, CHUNK);
        told_to_look(0);
        direct(0, 8, 1);
        direct(0, 8, 2);
        struct room_note note = put(0, 8, 3);
        struct room_head head = head_of(note);
        head.skip = way == SKIP;
        head.loan = way == LOAN;
        if (way == LONG_ONE || way == BEYOND)
            head.length = way == LONG_ONE ? w.inbox.shape.message_bytes_max + 1 : 100;
        head.mark += way == MARK;
        if (way == NOTED)
            arrive(0, note);
        else
            land_as(note, head);
        struct inbox_message first = take(1);
        if (way == SHUT) {
            const struct room_shut word = {note.place, note.chunk, note.offset + ROOM_LINE};
            assert_int_equal(inbox_shut(&w.inbox, 0, &word), INBOX_TOLD);
        }
        uint32_t count = take_next(first, got, SOME);
        assert_int_equal(count, way == NOTED || way == SHUT ? 0 : 1);
        if (count == 0)
            give_back(take(2));
        else
            give_spot_back(&got[1]);
        if (way == NOTED || way == LOAN || way == SHUT) {
            give_back(take(3));
        } else if (way == LONG_ONE || way == BEYOND) {
            look();
            take_bad();
        }
        take_nothing();
        end(NULL);
    }
}

static void assert_same_loan(const struct room_loan *a, const struct room_loan *b) {
    assert_true(a->offset == b->offset && a->round == b->round && a->index == b->index);
}

/* A loan is a line, however long it is, which says where it is; in the order of all. */
static void test_M12_a_loan_takes_a_line(void **state) {
    (void)state;
    for (int quietly = 0; quietly < 2; quietly++) {
        const struct room_loan where = {0x123456789a, 77, 5};
        begin(4, 2);
        want(0, CHUNK);
        told_to_look(0);
        struct room_note second = put(0, ROOM_LOAN, 2); /* one line */
        struct room_head head = head_of(second);
        uint64_t words[ROOM_HEAD_WORDS + 3];
        head.length = CHUNK - ROOM_LINE; /* as long as may be */
        head.loan = true;
        room_head_words(&head, words);
        room_loan_encode(&where, words + ROOM_HEAD_WORDS);
        memcpy(w.memory + (size_t)second.chunk * CHUNK + second.offset, words, sizeof(words));
        assert_true(direct(0, 8, 3));
        if (quietly) {
            leave(0, 200);
            quiet(0);
        }
        struct inbox_message loan = take(2), again;
        assert_true(loan.is_loan);
        assert_int_equal(loan.length, CHUNK - ROOM_LINE);
        assert_same_loan(&loan.loan, &where);
        struct inbox_message third = take(3);
        assert_false(third.is_loan);
        assert_int_equal(loan.stream, third.stream);
        assert_true(inbox_loan(&w.inbox, loan.chunk, loan.place, loan.offset, &again));
        assert_int_equal(again.stream, loan.stream);
        assert_same_loan(&again.loan, &where);
        assert_false(inbox_loan(&w.inbox, third.chunk, third.place, third.offset, &again));
        give_back(loan);
        assert_false(inbox_loan(&w.inbox, loan.chunk, loan.place, loan.offset, &again));
        give_back(third);
        take_nothing();
        end(NULL);
    }
}

/* No sender says so, but it harms nobody. */
static void test_a_direct_skip(void **state) {
    (void)state;
    begin(2, 2);
    want(0, CHUNK);
    told_to_look(0);
    land(skipped(put(0, 8, 1)));
    land(put(0, 8, 2));
    give_back(take(2));
    assert_int_equal(w.inbox.held_count, 0);
}

/* A direct message over one that was noted, and one within the payload of another. */
static void test_direct_messages_in_one_another(void **state) {
    (void)state;
    begin(2, 2);
    want(0, 2 * CHUNK);
    told_to_look(0);
    struct room_note first = put(0, 8, 1), second = put(0, 8, 2);
    arrive(0, second);
    first.length = 100; /* over the second */
    land(first);
    look();
    take_bad();
    take_nothing();
    shut(0);
    put(0, 192, 3);
    end(NULL);

    begin(2, 2);
    want(0, 2 * CHUNK);
    struct room_note outer = put(0, 100, 1), inner = outer;
    inner.offset += 64;
    inner.length = 8;
    inner.tag = 9;
    land(outer);
    land(inner);
    told_to_look(0);
    give_back(take(1)); /* its payload is its sender's matter */
    take_nothing();
    leave(0, 200);
    quiet(0);
    take_nothing();
    assert_int_equal(w.inbox.free_count, 2);
}

/* Behind a gap, the mark of a message within another is found as well. */
static void test_messages_in_one_another_behind_a_gap(void **state) {
    struct inbox_message message;
    (void)state;
    begin(2, 2);
    want(0, 2 * CHUNK);
    put(0, 8, 1);
    struct room_note outer = put(0, 100, 2), inner = outer;
    inner.offset += 64;
    inner.length = 8;
    land(outer);
    land(inner);
    leave(0, 200);
    quiet(0);
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_BAD);
    sound();
    take_nothing();
    assert_int_equal(w.inbox.free_count, 2);
    assert_int_equal(want(1, CHUNK), 1);
    send(1, 8, 3);
    take(3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(found_one_behind_the_other),
        TEST(one_that_is_watched_is_taken_without_a_look),
        TEST(behind_a_noted_one_that_is_not_there),
        TEST(before_a_noted_one_that_is_there),
        TEST(noted_and_direct_is_one),
        TEST(in_the_chunk_behind_a_shut_one),
        TEST(shut_before_it_is_there),
        TEST(nothing_is_found_behind_an_end),
        TEST(nothing_is_found_behind_a_chunk),
        TEST(marks_of_other_grants_and_spots),
        TEST(an_inbox_for_notes_alone),
        TEST(the_watch_is_on_all_that_may_be_filled),
        TEST(the_watch_of_a_grant_before),
        TEST(rest_finds_what_came_before),
        TEST(told_to_look_too_late),
        TEST(told_to_look_without_a_chunk),
        TEST(more_streams_than_watches),
        TEST(the_idle_give_up_their_watch),
        TEST(the_busy_keep_their_watch),
        TEST(direct_streams_take_turns),
        TEST(neither_notes_nor_direct_ones_starve),
        TEST(found_when_the_sender_is_quiet),
        TEST(taken_while_the_sender_leaves),
        TEST(a_closed_inbox_finds_nothing),
        TEST(right_marks_with_wrong_heads),
        TEST(M12_a_loan_takes_a_line),
        TEST(several_at_once_to_the_end_of_a_chunk),
        TEST(several_at_once_leave_the_rest),
        TEST(a_direct_skip),
        TEST(direct_messages_in_one_another),
        TEST(messages_in_one_another_behind_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
