/* SPDX-License-Identifier: Apache-2.0 */
/* test_renewals.c: a chunk that comes free is granted to its stream again without a word: found by
 * a sender that looks, said to one that did not, and never anybody else's. */
#include "rooms.h"

static void told_to_look(uint32_t peer) {
    inbox_told_to_look(&w.inbox, peer);
    sound();
}

/* The receiver finds the message by its mark, and the application is done with it. */
static void pass(uint32_t peer, uint32_t length, uint64_t tag) {
    const struct room_note note = put(peer, length, tag);
    const struct room_head head = {.mark =
                                       room_mark(w.inbox.chunks[note.chunk].secret, note.offset),
                                   .tag = tag,
                                   .length = length};
    assert_int_equal(w.inbox.chunks[note.chunk].place, note.place);
    room_head_encode(&head,
                     w.memory + (size_t)note.chunk * w.inbox.shape.chunk_bytes + note.offset);
    give_back(take(tag));
}

static bool renew(void) {
    bool may = inbox_may_renew(&w.inbox);
    if (may)
        inbox_renew(&w.inbox, ++w.secret * 1000003);
    sound();
    return may;
}

/* The sender looks at all chunks that it had. */
static bool find(uint32_t peer) {
    struct outbox *out = &w.out[peer];
    uint64_t words[ROOM_RENEWAL_WORDS];
    struct room_grant grant;
    uint32_t chunk;
    for (uint32_t i = 0; outbox_had(out, i, &chunk); i++) {
        const struct room_shape *shape = &w.inbox.shape;
        memcpy(words, w.memory + room_watch(shape->chunk_bytes, shape->chunk_count, chunk) + 8,
               sizeof(words));
        if (!room_renewal_read(words, outbox_renewal_number(out), chunk, &grant))
            continue;
        assert_true(outbox_renew(out, &grant));
        sound();
        return true;
    }
    return false;
}

/* One sender has a place, is watched, and has filled and shut it. */
static void begin_with_one_full(uint32_t chunks, uint32_t peer_chunks) {
    begin(chunks, peer_chunks);
    want(0, CHUNK);
    told_to_look(0);
    for (uint64_t i = 0; i < CHUNK / ROOM_LINE; i++)
        pass(0, 8, i);
    assert_false(outbox_room(&w.out[0], 8));
    assert_int_equal(w.inbox.free_count, chunks); /* it was full: that shut it */
}

static void test_a_stream_that_goes_on_needs_no_words(void **state) {
    (void)state;
    begin_with_one_full(4, 2);
    uint32_t chunk = w.out[0].places[0].grant.chunk;
    for (uint64_t round = 1; round <= 5; round++) {
        assert_true(renew());
        assert_false(renew()); /* once */
        assert_int_equal(hear(0), 0);
        assert_int_equal(w.inbox.free_count, 3);
        assert_true(find(0));
        assert_false(find(0));
        assert_true(outbox_room(&w.out[0], 8));
        assert_int_equal(outbox_filling(&w.out[0])->grant.chunk, chunk);
        assert_int_equal(outbox_filling(&w.out[0])->grant.place, 1 + round);
        assert_true(outbox_filling(&w.out[0])->grant.keep);
        for (uint64_t i = 0; i < CHUNK / ROOM_LINE; i++)
            pass(0, 8, 100 * round + i);
        assert_false(outbox_room(&w.out[0], 8));
        if (round == 3)
            assert_int_equal(shut(0), 4); /* what it tells late is old */
    }
    assert_int_equal(w.out[0].grants, 6);
}

/* It says WANT, is called, or is granted another one: what it may not have found comes first. */
static void test_one_that_was_not_found_is_said(void **state) {
    enum { WANTS, CALLED, ANOTHER, WAYS };
    (void)state;
    for (int way = 0; way < 2 * WAYS; way++) {
        bool finds = way >= WAYS; /* meanwhile */
        begin_with_one_full(way % WAYS == CALLED ? 2 : 4, 2);
        assert_true(renew());
        if (way % WAYS == WANTS) {
            want(0, CHUNK);
        } else if (way % WAYS == CALLED) {
            uint32_t to = INBOX_NONE;
            want(1, CHUNK);
            inbox_want(&w.inbox, 2, 1);
            inbox_want(&w.inbox, 3, 1); /* as many as there are chunks: all are called */
            while (inbox_call(&w.inbox, &to))
                assert_in_range(to, 0, 1);
        } else {
            assert_true(inbox_may_grant_ahead(&w.inbox, 0));
            inbox_grant_ahead(&w.inbox, 0, ++w.secret * 1000003);
        }
        sound();
        if (way % WAYS != WANTS && finds)
            assert_true(find(0));
        hear(0);
        assert_false(find(0)); /* the words were as good */
        uint64_t grants = way % WAYS == ANOTHER ? 3 : 2;
        assert_int_equal(w.out[0].grants, grants);
        assert_int_equal(w.inbox.streams[0].grants, grants);
        assert_true(outbox_room(&w.out[0], 8));
        assert_int_equal(outbox_filling(&w.out[0])->grant.place, 2);
        pass(0, 8, 7);
        if (way % WAYS == CALLED) {
            hear(0);
            yield(0);
            assert_int_equal(grant_all(), 1);
        }
        end(NULL);
    }
}

/* One in which a message lies was found: it is not said. */
static void test_one_that_was_found_is_not_said(void **state) {
    (void)state;
    begin_with_one_full(4, 2);
    assert_true(renew());
    assert_true(find(0));
    pass(0, 8, 50);
    assert_int_equal(want(0, 2 * CHUNK), 1);
    assert_int_equal(w.out[0].grants, 3);
    assert_int_equal(w.out[0].renewed, 2);
}

static void test_not_when_somebody_waits(void **state) {
    uint64_t grants = 0;
    (void)state;
    begin(1, 1);
    want(0, CHUNK);
    told_to_look(0);
    assert_true(outbox_want(&w.out[1], CHUNK, &grants));
    inbox_want(&w.inbox, 1, grants);
    for (uint64_t i = 0; i < CHUNK / ROOM_LINE; i++)
        pass(0, 8, i);
    assert_false(renew());
    assert_int_equal(grant_all(), 1);
    assert_int_equal(w.out[1].count, 1);
    assert_false(outbox_room(&w.out[0], 8));
    assert_false(find(0));
}

static void test_not_where_it_may_not_be(void **state) {
    enum { UNWATCHED, CLOSED, LEFT, TAKEN, WAYS };
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        begin_with_one_full(4, 2);
        if (way == UNWATCHED) {
            inbox_unwatch(&w.inbox);
            inbox_rest(&w.inbox);
        }
        if (way == CLOSED)
            inbox_close(&w.inbox);
        if (way == LEFT)
            leave(0, 200);
        if (way == TAKEN)
            for (uint32_t peer = 1; peer <= 4; peer++)
                want(peer, CHUNK);
        assert_false(renew());
        assert_int_equal(w.inbox.freed, INBOX_NONE);
        end(NULL);
    }
}

/* Half of the chunks are kept: a sender that has nothing to send may have them for ever. */
static void test_not_more_than_may_be_kept(void **state) {
    (void)state;
    begin(2, 2);
    want(0, CHUNK);
    told_to_look(0);
    for (uint64_t i = 0; i < CHUNK / ROOM_LINE; i++)
        pass(0, 8, i);
    want(1, CHUNK); /* keeps it */
    assert_false(renew());
}

/* A line says for whom it is by a number that only that stream counts to. */
static void test_of_another_stream(void **state) {
    (void)state;
    begin_with_one_full(4, 2);
    assert_int_equal(shut(0), 1);
    leave(0, 200);
    quiet(0);
    want(0, CHUNK); /* a new stream of the peer's */
    told_to_look(0);
    for (uint64_t i = 0; i < CHUNK / ROOM_LINE; i++)
        pass(0, 8, i);
    assert_false(outbox_room(&w.out[0], 8));
    assert_true(renew());
    struct outbox own = w.out[0];
    w.out[0].first_secret++; /* as another stream's */
    assert_false(find(0));
    w.out[0] = own;
    w.out[0].grants++; /* one came by a word that is not heard yet */
    assert_false(find(0));
    w.out[0] = own;
    assert_true(find(0));
}

/* Places that the receiver was not told of take no room from what it grants by words. */
static void test_shut_places_are_told_in_time(void **state) {
    uint64_t tag = 0;
    (void)state;
    begin_with_one_full(4, 2);
    while (renew() && find(0)) {
        assert_true(outbox_room(&w.out[0], 8));
        for (uint64_t i = 0; i < CHUNK / ROOM_LINE; i++)
            pass(0, 8, 100 + tag++);
        assert_false(outbox_room(&w.out[0], 8));
        assert_int_equal(outbox_shuts_now(&w.out[0]), w.out[0].count > OUTBOX_PLACES / 4);
    }
    assert_int_equal(w.out[0].count, OUTBOX_PLACES / 2);
    assert_false(renew()); /* the receiver counts as well */
    assert_int_equal(want(0, CHUNK), 1);
    assert_true(outbox_room(&w.out[0], 8));
    assert_int_equal(shut(0), OUTBOX_PLACES / 2);
    pass(0, 8, 99);
}

/* However many chunks come free at once, a stream is granted few that it has not seen; none that it
 * gave up, empty or called; and never more than it has places for. */
static void test_a_crowd_of_chunks_that_come_free(void **state) {
    enum { MANY = 40, LINES = CHUNK / ROOM_LINE };
    static struct inbox_message held[MANY * LINES];
    uint32_t count = 0, renewals = 0;
    (void)state;
    begin(2 * MANY, MANY);
    want(0, CHUNK);
    told_to_look(0);
    for (uint32_t i = 0; i < MANY; i++) {
        for (uint32_t k = 0; k < LINES; k++) {
            const struct room_note note = put(0, 8, count);
            const struct room_head head = {
                .mark = room_mark(w.inbox.chunks[note.chunk].secret, note.offset),
                .tag = count,
                .length = 8};
            room_head_encode(&head, w.memory + (size_t)note.chunk * CHUNK + note.offset);
            held[count] = take(count);
            count++;
        }
        shut(0);
        if (i + 1 < MANY)
            want(0, CHUNK);
    }
    for (uint32_t i = 0; i < count; i++) {
        give_back(held[i]);
        renewals += renew();
    }
    assert_int_equal(renewals, 2);
    assert_int_equal(w.inbox.free_count, 2 * MANY - 2);
    assert_false(outbox_room(&w.out[0], 8));
    shut(0);
    want(0, CHUNK); /* it has not looked */
    hear(0);
    assert_int_equal(w.out[0].count, 2);
    outbox_idle(&w.out[0]);
    uint32_t to = INBOX_NONE;
    for (uint32_t peer = 1; w.inbox.free_count > 0; peer = 1 + peer % (PEERS - 1)) {
        inbox_want(&w.inbox, peer, w.inbox.streams[peer].grants + 1);
        grant_all();
    }
    inbox_want(&w.inbox, PEERS - 1, w.out[PEERS - 1].grants + 1);
    while (inbox_call(&w.inbox, &to))
        hear(to);
    outbox_yield(&w.out[0]);
    shut(0); /* empty, and called */
    assert_int_equal(w.inbox.freed, INBOX_NONE);
}

/* A place that is not full is told of at once: nobody finds out. */
static void test_a_place_that_is_not_full(void **state) {
    (void)state;
    begin(4, 2);
    want(0, 2 * CHUNK);
    told_to_look(0);
    pass(0, 8, 1);
    assert_false(outbox_shuts_now(&w.out[0]));
    put(0, 192, 2); /* goes to the next place */
    assert_true(outbox_shuts_now(&w.out[0]));
    assert_int_equal(shut(0), 1);
    assert_false(outbox_shuts_now(&w.out[0]));
}

static void test_a_receiver_that_lies(void **state) {
    struct outbox out;
    (void)state;
    outbox_init(&out, CHUNK, 4);
    assert_false(outbox_renew(&out, &(struct room_grant){.place = 1})); /* before any grant */
    assert_true(outbox_grant(&out, &(struct room_grant){.place = 5, .secret = 9, .chunk = 1}));
    assert_false(outbox_renew(&out, &(struct room_grant){.place = 5, .chunk = 1}));
    assert_false(outbox_renew(&out, &(struct room_grant){.place = 6, .chunk = 4}));
    assert_true(outbox_renew(&out, &(struct room_grant){.place = 6, .chunk = 1}));
    assert_true(outbox_grant(&out, &(struct room_grant){.place = 6, .chunk = 1})); /* said, too */
    assert_int_equal(out.count, 2);
    assert_false(outbox_grant(&out, &(struct room_grant){.place = 0}));
    assert_null(outbox_verify(&out));
}

#define TEST(name) cmocka_unit_test_teardown(test_##name, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_stream_that_goes_on_needs_no_words),
        TEST(one_that_was_not_found_is_said),
        TEST(one_that_was_found_is_not_said),
        TEST(not_when_somebody_waits),
        TEST(not_where_it_may_not_be),
        TEST(not_more_than_may_be_kept),
        TEST(of_another_stream),
        TEST(shut_places_are_told_in_time),
        TEST(a_crowd_of_chunks_that_come_free),
        TEST(a_place_that_is_not_full),
        TEST(a_receiver_that_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
