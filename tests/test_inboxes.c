/* SPDX-License-Identifier: Apache-2.0 */
/* test_inboxes.c: inboxes: a full one holds up its senders and nobody else, room comes back in any
 * order, inboxes that are not there, are closed, and whose senders or engine are gone (M1, M2, M5,
 * M6, T10). */
#include "message_side.h"

/* ---- inboxes by themselves --------------------------------------------- */

static void test_M6_inboxes_that_cannot_be(void **state) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inboxes[WEIR_INBOXES_MAX], more;
    struct side a;

    (void)state;
    side_open(&a, NULL);
    options.message_bytes_max = 64;
    options.reserved = 1;
    assert_int_equal(weir_inbox_open(a.engine, &options, &more), WEIR_EINVAL);
    options.reserved = 0;
    options.size = 2;
    assert_int_equal(weir_inbox_open(a.engine, &options, &more), WEIR_EINVAL);
    assert_int_equal(weir_inbox_open(a.engine, NULL, &more), WEIR_EINVAL);
    assert_int_equal(try_inbox(&a, 0, (UINT64_C(1) << 30) + 1, 1, 1, &more), WEIR_ETOOBIG);
    assert_int_equal(try_inbox(&a, 0, UINT64_MAX, 1, 1, &more), WEIR_ETOOBIG);
    assert_int_equal(try_inbox(&a, 0, 65536, 1, UINT32_MAX, &more), WEIR_ETOOBIG);
    for (uint32_t i = 0; i < WEIR_INBOXES_MAX; i++) {
        inboxes[i] = inbox_of(&a, UINT32_MAX - i, 64, 1);
        assert_int_equal(try_inbox(&a, UINT32_MAX - i, 64, 1, 1, &more), WEIR_EBUSY);
    }
    assert_int_equal(try_inbox(&a, 0, 64, 1, 1, &more), WEIR_EAGAIN);
    assert_int_equal(weir_inbox_close(a.engine, inboxes[5]), WEIR_OK);
    assert_int_equal(weir_inbox_close(a.engine, inboxes[5]), WEIR_ESTALE);
    more = inbox_of(&a, 0, 64, 1);
    assert_true(more.id != inboxes[5].id);
    assert_int_equal(weir_inbox_close(a.engine, inboxes[5]), WEIR_ESTALE);
    side_close(&a);
}

static void test_M6_an_inbox_says_how_it_is(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 77, LONG, 3);
    weir_inbox_info info = look(&b, inbox);
    assert_int_equal(info.number, 77);
    assert_int_equal(info.message_bytes_max, LONG);
    assert_in_range(info.chunk_bytes, LONG, 65536);
    assert_int_equal(info.chunks, 3);
    assert_int_equal(info.chunks_free, 3);
    assert_int_equal(info.senders + info.held + info.waiting + info.taken + info.spoiled, 0);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(weir_transfer_release(a.engine, send_one(&a, 77, i, LONG)), WEIR_OK);
    weir_message first = take(&b, &a, inbox, 0, LONG), second = take(&b, &a, inbox, 1, LONG);
    STEP_UNTIL(&a, &b, look(&b, inbox).chunks_free == 0);
    some_steps(&a, &b);
    info = look(&b, inbox);
    assert_int_equal(info.senders, 1);
    assert_int_equal(info.held, 2);
    assert_int_equal(info.taken, 2);
    give_back(&b, &first);
    assert_int_equal(look(&b, inbox).held, 1);
    give_back(&b, &second);
    for (uint64_t i = 2; i < 5; i++)
        take_and_give_back(&b, &a, inbox, i, LONG);
    some_steps(&a, &b);
    info = look(&b, inbox);
    assert_int_equal(info.held, 0);
    assert_int_equal(info.waiting, 0);
    assert_int_equal(info.taken, 5);
    assert_int_equal(info.spoiled, 0);
    assert_in_range(info.chunks_free, 2, 3); /* its sender may keep some */
    struct {                                 /* of an application that was built with less */
        size_t size;
        uint32_t number, senders;
    } old = {.size = 12, .senders = 99};
    assert_int_equal(weir_inbox_query(b.engine, inbox, (weir_inbox_info *)(void *)&old), WEIR_OK);
    assert_int_equal(old.number, 77);
    assert_int_equal(old.senders, 99);
    assert_int_equal(weir_inbox_query(b.engine, inbox, NULL), WEIR_EINVAL);
    pair_close(&a, &b);
}

/* ---- full inboxes ------------------------------------------------------ */

/* One chunk, and messages as long as it. */
static void test_M5_a_full_inbox_holds_up_nobody_else(void **state) {
    struct side a, b, c;
    weir_transfer transfers[3];
    weir_peer to_c;

    (void)state;
    open_three(&a, &b, &c);
    weir_inbox full = inbox_of(&b, 1, LONG, 1), other = inbox_of(&b, 2, LONG, 2);
    weir_inbox third = inbox_of(&c, 1, LONG, 1);
    assert_int_equal(look(&b, full).chunks, 1);
    for (uint64_t i = 0; i < 3; i++)
        transfers[i] = send_one(&a, 1, i, LONG);
    assert_int_equal(finish(&a, &b, transfers[0]), WEIR_OK);
    some_steps(&a, &b);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(status_of(&a, transfers[i]), WEIR_EINPROGRESS);
        assert_int_equal(weir_transfer_waiting_for(a.engine, transfers[i]), WEIR_WAITING_CREDITS);
    }
    assert_int_equal(weir_peer_open(a.engine, c.address, &to_c), WEIR_OK);
    weir_peer c_to_b = c.peer;
    for (uint64_t i = 0; i < 20; i++) {
        weir_segment one = segment_of(&a, 0, 0, 64);
        weir_transfer_options options = tagged(i, 0);
        weir_transfer there;
        assert_int_equal(finish(&a, &b, send_one(&a, 2, i, LONG)), WEIR_OK); /* another inbox */
        take_and_give_back(&b, &a, other, i, LONG);
        assert_int_equal(try_send(&a, to_c, 1, LONG, &options, &there), WEIR_OK); /* peer */
        assert_int_equal(finish(&a, &c, there), WEIR_OK);
        c.peer.id = 0; /* it is of a */
        take_and_give_back(&c, &a, third, i, LONG);
        c.peer = c_to_b;
        assert_int_equal(finish(&c, &b, send_one(&c, 2, i, LONG)), WEIR_OK); /* sender */
        take_and_give_back(&b, &c, other, i, LONG);
        assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    }
    for (uint64_t i = 0; i < 3; i++) {
        weir_message got = take(&b, &a, full, i, LONG);
        some_steps(&a, &b); /* it is room when it is given back, and not when it is taken */
        assert_int_equal(look(&b, full).held, 1);
        if (i < 2)
            assert_int_equal(status_of(&a, transfers[i + 1]), WEIR_EINPROGRESS);
        give_back(&b, &got);
    }
    for (int i = 1; i < 3; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    side_close(&c);
    pair_close(&a, &b);
}

/* Sent one by one, each when the one before it has ended: the application can hold as many as it
 * has asked room for. */
static void test_M5_as_many_as_asked_for_can_be_held(void **state) {
    static const struct {
        uint64_t longest;
        uint32_t count;
    } cases[] = {{10, 1}, {10, 2}, {1000, 8}, {1000, 63}, {5000, 16}, {LONG, 4}};

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        weir_message held[64];
        struct side a, b;
        open_pair(&a, &b);
        weir_inbox inbox = inbox_of(&b, 1, cases[c].longest, cases[c].count);
        for (int round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < cases[c].count; i++) {
                weir_transfer transfer = send_one(&a, 1, i, cases[c].longest);
                assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
                held[i] = take(&b, &a, inbox, i, cases[c].longest);
                for (int s = 0; s < 5; s++)
                    step(&a, &b);
            }
            for (uint32_t i = 0; i < cases[c].count; i++)
                give_back(&b, &held[i]);
        }
        pair_close(&a, &b);
    }
}

/* One chunk each; each that is given back makes room for one. */
static void test_M5_room_comes_back_in_any_order(void **state) {
    enum { CHUNKS = 3, ALL = 12 };
    static const uint32_t order[] = {2, 0, 1};
    weir_transfer transfers[ALL];
    weir_message held[CHUNKS];
    struct side a, b;
    weir_message got;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 1, LONG, CHUNKS);
    for (uint64_t i = 0; i < ALL; i++)
        transfers[i] = send_one(&a, 1, i, LONG);
    for (uint64_t i = 0; i < CHUNKS; i++)
        held[i] = take(&b, &a, inbox, i, LONG);
    some_steps(&a, &b);
    assert_none(&b, inbox);
    for (uint64_t next = CHUNKS; next < ALL; next++) {
        uint32_t i = order[next % CHUNKS];
        assert_content(&held[i], LONG);
        give_back(&b, &held[i]);
        assert_int_equal(weir_message_give_back(b.engine, &held[i]), WEIR_ESTALE);
        held[i] = take(&b, &a, inbox, next, LONG);
        some_steps(&a, &b);
        assert_int_equal(weir_message_take(b.engine, inbox, &got), WEIR_EAGAIN);
    }
    for (uint32_t i = 0; i < CHUNKS; i++)
        give_back(&b, &held[i]);
    for (int i = 0; i < ALL; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    pair_close(&a, &b);
}

/* Short messages share a chunk: there is room again when all of them were given back, in whatever
 * order. */
static void test_M5_short_messages_given_back_backwards(void **state) {
    enum { HERE = 60, ROUNDS = 40 };
    weir_message held[HERE];
    struct side a, b;
    uint64_t sent = 0, taken = 0;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 1, 1000, 64); /* one chunk of them */
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < HERE; i++, sent++) {
            weir_transfer transfer = send_one(&a, 1, sent, 100 + sent % 90);
            assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
        }
        for (int i = 0; i < HERE; i++, taken++)
            held[i] = take(&b, &a, inbox, taken, 100 + taken % 90);
        for (int i = HERE - 1; i >= 0; i--)
            give_back(&b, &held[i]);
    }
    assert_int_equal(look(&b, inbox).taken, HERE * ROUNDS);
    pair_close(&a, &b);
}

/* Both have more to send than there is room for: neither waits for the other to end. */
static void test_M5_two_senders_share_a_small_inbox(void **state) {
    enum { TOTAL = 200 };
    for (uint32_t chunks = 1; chunks <= 3; chunks++) {
        struct side sides[3];
        uint32_t sent[2] = {0, 0}, taken[2] = {0, 0};
        weir_peer senders[2] = {{0}, {0}};

        (void)state;
        open_three(&sides[0], &sides[2], &sides[1]);
        weir_inbox inbox = inbox_of(&sides[2], 1, LONG, chunks);
        uint64_t end = now_ns() + PATIENCE_NS;
        while (taken[0] + taken[1] < 2 * TOTAL) {
            weir_message got;
            assert_true(now_ns() < end);
            for (uint32_t s = 0; s < 2; s++) {
                /* Up to a few wait, of each. */
                while (sent[s] < TOTAL && sent[s] < taken[s] + 10) {
                    weir_transfer_options options = tagged(s * TOTAL + sent[s], 0);
                    weir_transfer transfer = send_with(&sides[s], 1, LONG, &options);
                    assert_int_equal(weir_transfer_release(sides[s].engine, transfer), WEIR_OK);
                    sent[s]++;
                }
                step(&sides[s], &sides[2]);
            }
            if (weir_message_take(sides[2].engine, inbox, &got) != WEIR_OK)
                continue;
            uint32_t s = got.tag < TOTAL ? 0 : 1;
            assert_int_equal(got.tag, s * TOTAL + taken[s]);
            if (taken[s] == 0)
                senders[s] = got.from;
            assert_int_equal(got.from.id, senders[s].id);
            taken[s]++;
            assert_int_equal(weir_message_give_back(sides[2].engine, &got), WEIR_OK);
            if (taken[s] == TOTAL) /* the other was not far behind */
                assert_true(taken[1 - s] >= TOTAL / 4);
        }
        assert_int_not_equal(senders[0].id, senders[1].id);
        assert_int_equal(look(&sides[2], inbox).senders, 2);
        for (int s = 0; s < 3; s++)
            side_close(&sides[s]);
    }
}

static void test_M2_given_back_once(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 1000, 8);
    weir_transfer transfers[] = {send_one(&a, 5, 1, 10), send_one(&a, 5, 2, 10)};
    for (int i = 0; i < 2; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    weir_message one = take(&b, &a, inbox, 1, 10), wrong = one;
    assert_int_equal(weir_message_give_back(b.engine, &(weir_message){0}), WEIR_ESTALE);
    wrong.spot += 64; /* the second one's, which was not taken */
    assert_int_equal(weir_message_give_back(b.engine, &wrong), WEIR_ESTALE);
    wrong = one;
    wrong.place++;
    assert_int_equal(weir_message_give_back(b.engine, &wrong), WEIR_ESTALE);
    wrong = one;
    wrong.spot = UINT64_MAX;
    assert_int_equal(weir_message_give_back(b.engine, &wrong), WEIR_ESTALE);
    give_back(&b, &one);
    assert_int_equal(weir_message_give_back(b.engine, &one), WEIR_ESTALE);
    take_and_give_back(&b, &a, inbox, 2, 10);
    pair_close(&a, &b);
}

/* Messages that must not wait for room fill the inbox, and not more than that. */
static void test_M5_messages_that_do_not_wait_for_room(void **state) {
    enum { ALL = 60, SIZE = 4000, ROOM = 8 };
    weir_transfer transfers[ALL];
    weir_transfer_options options = tagged(0, WEIR_TRANSFER_NOW);
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, SIZE, ROOM);
    for (int round = 0; round < 3; round++) {
        uint64_t arrived[ALL];
        uint32_t count = 0;
        for (uint64_t i = 0; i < ALL; i++) {
            options.notify_tag = (uint64_t)round * ALL + i;
            transfers[i] = send_with(&a, 5, SIZE, &options);
            if (i % 16 == 15)
                some_steps(&a, &b);
        }
        for (uint64_t i = 0; i < ALL; i++) {
            int status = finish(&a, &b, transfers[i]);
            assert_true(status == WEIR_OK || status == WEIR_EAGAIN);
            if (status == WEIR_OK)
                arrived[count++] = (uint64_t)round * ALL + i;
        }
        assert_in_range(count, ROOM, ALL - 1);
        some_steps(&a, &b);
        for (uint32_t i = 0; i < count; i++)
            take_and_give_back(&b, &a, inbox, arrived[i], SIZE);
        assert_none(&b, inbox);
    }
    assert_int_equal(stats_of(&a).data_malformed + stats_of(&b).data_malformed, 0);
    pair_close(&a, &b);
}

static void test_M5_reads_and_writes_have_no_room_to_wait_for(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    const weir_segment segment = {a.memory, a.remote, 0, 0, 8};
    for (uint32_t flag = WEIR_TRANSFER_NO_WAIT; flag <= WEIR_TRANSFER_NOW; flag *= 2) {
        options.flags = flag;
        assert_int_equal(weir_write(a.engine, a.peer, &segment, 1, &options, &transfer),
                         WEIR_EINVAL);
        assert_int_equal(weir_read(a.engine, a.peer, &segment, 1, &options, &transfer),
                         WEIR_EINVAL);
    }
    pair_close(&a, &b);
}

/* ---- inboxes that are not there ---------------------------------------- */

static void test_M1_nobody_there_and_no_wait(void **state) {
    weir_transfer_options options = tagged(1, WEIR_TRANSFER_NO_WAIT);
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish(&a, &b, send_with(&a, 5, 64, &options)), WEIR_ENOTREADY);
    weir_inbox inbox = inbox_of(&b, 5, LONG, 1);
    assert_int_equal(finish(&a, &b, send_with(&a, 5, LONG, &options)), WEIR_OK);
    options = tagged(2, WEIR_TRANSFER_NO_WAIT); /* it is there, and full: that is waited for */
    weir_transfer second = send_with(&a, 5, LONG, &options);
    some_steps(&a, &b);
    assert_int_equal(status_of(&a, second), WEIR_EINPROGRESS);
    take_and_give_back(&b, &a, inbox, 1, LONG);
    take_and_give_back(&b, &a, inbox, 2, LONG);
    assert_int_equal(finish(&a, &b, second), WEIR_OK);
    pair_close(&a, &b);
}

static void test_M1_nobody_there_until_the_deadline(void **state) {
    weir_transfer_options options = tagged(1, 0);
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    options.timeout_ns = 100 * MS;
    assert_int_equal(finish(&a, &b, send_with(&a, 5, 64, &options)), WEIR_ENOTREADY);
    assert_int_equal(finish(&a, &b, send_with(&a, 5, LONG, &options)), WEIR_ENOTREADY);
    assert_int_equal(stats_of(&a).messages_sent, 0);
    weir_inbox inbox = inbox_of(&b, 5, LONG, 1);
    assert_int_equal(finish(&a, &b, send_one(&a, 5, 2, 64)), WEIR_OK);
    take_and_give_back(&b, &a, inbox, 2, 64);
    some_steps(&a, &b);
    assert_none(&b, inbox);
    pair_close(&a, &b);
}

/* With and without a session at that time. */
static void test_M1_waits_until_the_inbox_is_opened(void **state) {
    for (int connected = 0; connected < 2; connected++) {
        weir_transfer transfers[10];
        weir_inbox inboxes[2];
        struct side a, b;

        (void)state;
        side_open(&a, NULL);
        side_open(&b, NULL);
        fill_pattern(a.bytes, a.length, 0);
        side_join(&a, &b);
        if (connected)
            connect_now(&a, &b);
        for (uint64_t i = 0; i < 10; i++)
            transfers[i] = send_one(&a, 5 + i % 2, i, i * 60);
        if (connected)
            some_steps(&a, &b);
        for (int i = 0; i < 10; i++)
            assert_int_equal(status_of(&a, transfers[i]), WEIR_EINPROGRESS);
        inboxes[1] = inbox_of(&b, 6, 1000, 8);
        for (uint64_t i = 1; i < 10; i += 2)
            take_and_give_back(&b, &a, inboxes[1], i, i * 60);
        assert_int_equal(status_of(&a, transfers[0]), WEIR_EINPROGRESS);
        inboxes[0] = inbox_of(&b, 5, 1000, 8);
        for (uint64_t i = 0; i < 10; i += 2)
            take_and_give_back(&b, &a, inboxes[0], i, i * 60);
        for (int i = 0; i < 10; i++)
            assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
        pair_close(&a, &b);
    }
}

/* ---- inboxes that are closed ------------------------------------------- */

static void test_M1_a_closed_inbox(void **state) {
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;
    weir_transfer transfers[5];
    weir_message got, none;
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox first = inbox_of(&b, 5, LONG, 2);
    for (uint64_t i = 0; i < 5; i++)
        transfers[i] = send_one(&a, 5, i, LONG);
    got = take(&b, &a, first, 0, LONG);
    assert_int_equal(finish(&a, &b, transfers[0]), WEIR_OK);
    assert_int_equal(finish(&a, &b, transfers[1]), WEIR_OK); /* it is there, and is not taken */
    assert_int_equal(weir_inbox_close(b.engine, first), WEIR_OK);
    assert_int_equal(weir_inbox_close(b.engine, first), WEIR_ESTALE);
    assert_int_equal(weir_message_take(b.engine, first, &none), WEIR_ESTALE);
    assert_int_equal(weir_inbox_query(b.engine, first, &info), WEIR_ESTALE);
    for (int i = 2; i < 5; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_ESTALE);
    weir_inbox second = inbox_of(&b, 5, 1000, 8); /* while the first one's is held */
    assert_true(second.id != first.id);
    for (uint64_t i = 10; i < 40; i++) {
        assert_int_equal(finish(&a, &b, send_one(&a, 5, i, 100)), WEIR_OK);
        take_and_give_back(&b, &a, second, i, 100);
    }
    assert_content(&got, LONG);
    give_back(&b, &got);
    assert_int_equal(weir_message_give_back(b.engine, &got), WEIR_ESTALE);
    some_steps(&a, &b);
    assert_int_equal(weir_message_give_back(b.engine, &got), WEIR_ESTALE);
    assert_int_equal(weir_message_take(b.engine, first, &none), WEIR_ESTALE);
    pair_close(&a, &b);
}

/* The sender has heard that the inbox of this number was closed, and that there is no other. What
 * it sends before that may end well, and be lost. */
static void heard_of_close(struct side *a, struct side *b, uint32_t number) {
    weir_transfer_options options = tagged(0, WEIR_TRANSFER_NO_WAIT);
    int status;

    do {
        status = finish(a, b, send_with(a, number, 0, &options));
        assert_true(status == WEIR_OK || status == WEIR_ESTALE || status == WEIR_ENOTREADY);
    } while (status != WEIR_ENOTREADY);
}

/* More often than there are entries, with messages on their way each time: each of those ends as
 * one that arrived, or as one that did not. The next inbox is there before the sender has heard of
 * the close, or after it. */
static void test_M1_opened_and_closed_often(void **state) {
    enum { EACH = 12 };
    struct side a, b;
    uint64_t tag = 0;

    (void)state;
    open_pair(&a, &b);
    for (int round = 0; round < 3 * WEIR_INBOXES_MAX; round++) {
        weir_transfer transfers[EACH];
        weir_inbox inbox = {0};
        weir_message got = {0};
        int rc;
        STEP_UNTIL(&a, &b, (rc = try_inbox(&b, 5, LONG, 4, 4, &inbox)) != WEIR_EAGAIN);
        assert_int_equal(rc, WEIR_OK);
        uint64_t length = round % 2 == 0 ? LONG : 30, first = tag;
        if (round % 4 < 2) {
            transfers[0] = send_one(&a, 5, tag++, length);
            STEP_UNTIL(&a, &b, status_of(&a, transfers[0]) != WEIR_EINPROGRESS);
            some_steps(&a, &b);
            assert_int_equal(weir_transfer_release(a.engine, transfers[0]), WEIR_OK);
        }
        for (int i = 0; i < EACH; i++, tag++)
            transfers[i] = send_one(&a, 5, tag, length);
        STEP_UNTIL(&a, &b, weir_message_take(b.engine, inbox, &got) == WEIR_OK);
        assert_in_range(got.tag, first, first + 1);
        for (int i = 0; i < round % 7; i++)
            step(&a, &b);
        assert_int_equal(weir_inbox_close(b.engine, inbox), WEIR_OK);
        if (round % 3 == 0)
            give_back(&b, &got);
        bool arrived = true; /* so far */
        for (int i = 0; i < EACH; i++) {
            int status = finish(&a, &b, transfers[i]);
            assert_true(status == WEIR_ESTALE || (arrived && status == WEIR_OK));
            arrived = status == WEIR_OK;
        }
        if (round % 3 != 0) {
            assert_content(&got, length);
            give_back(&b, &got);
        }
        if (round % 4 > 0)
            heard_of_close(&a, &b, 5);
    }
    assert_int_equal(stats_of(&b).data_malformed, 0);
    assert_int_equal(stats_of(&b).sessions_failed, 0);
    pair_close(&a, &b);
}

/* ---- engines that go ---------------------------------------------------- */

/* The receiver's engine is closed: those that wait for room there end. */
static void test_T10_the_receiver_is_closed(void **state) {
    weir_transfer transfers[4];
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    inbox_of(&b, 5, LONG, 1);
    for (uint64_t i = 0; i < 4; i++)
        transfers[i] = send_one(&a, 5 + i % 2, i, LONG); /* there is no inbox 6 */
    assert_int_equal(finish(&a, &b, transfers[0]), WEIR_OK);
    some_steps(&a, &b);
    side_close(&b);
    for (int i = 1; i < 4; i++)
        assert_int_equal(finish(&a, NULL, transfers[i]), WEIR_EPEER);
    side_close(&a);
}

/* The sender's: what it had sent is there, can be taken, and its room comes back. */
static void test_T10_the_sender_is_closed(void **state) {
    enum { CHUNKS = 6 };
    struct side a, b, c;

    (void)state;
    open_three(&a, &b, &c);
    weir_inbox inbox = inbox_of(&b, 5, LONG, CHUNKS);
    for (int round = 0; round < 2; round++) {
        weir_message held = {0};
        if (round > 0) {
            side_open(&a, NULL);
            fill_pattern(a.bytes, a.length, 0);
            side_join(&a, &b);
        }
        for (uint64_t i = 0; i < 2; i++) {
            weir_transfer transfer = send_one(&a, 5, i, LONG);
            while (weir_transfer_status(a.engine, transfer) == WEIR_EINPROGRESS) {
                some_steps(&a, &b);
                some_steps(&c, &b); /* it has kept room, and is called */
            }
            assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_OK);
        }
        for (uint64_t i = 2; i < 9; i++) /* more than there is room for */
            send_one(&a, 5, i, LONG);
        some_steps(&a, &b);
        held = take(&b, &a, inbox, 0, LONG);
        side_close(&a);
        STEP_UNTIL(&c, &b, look(&b, inbox).senders == (round > 0)); /* c is one */
        assert_content(&held, LONG);
        uint32_t taken = 1;
        for (weir_message got; weir_message_take(b.engine, inbox, &got) == WEIR_OK; taken++) {
            assert_int_equal(got.tag, taken);
            assert_content(&got, LONG);
            give_back(&b, &got);
        }
        assert_in_range(taken, 2, CHUNKS);
        give_back(&b, &held);
        STEP_UNTIL(&c, &b,
                   look(&b, inbox).chunks_free >= look(&b, inbox).chunks / (round > 0 ? 2 : 1));
        for (uint64_t i = 0; i < 10; i++) {
            weir_transfer transfer = send_one(&c, 5, i, LONG);
            take_and_give_back(&b, &c, inbox, i, LONG);
            assert_int_equal(finish(&c, &b, transfer), WEIR_OK);
        }
    }
    side_close(&b);
    side_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M6_inboxes_that_cannot_be),
        cmocka_unit_test(test_M6_an_inbox_says_how_it_is),
        cmocka_unit_test(test_M5_a_full_inbox_holds_up_nobody_else),
        cmocka_unit_test(test_M5_as_many_as_asked_for_can_be_held),
        cmocka_unit_test(test_M5_room_comes_back_in_any_order),
        cmocka_unit_test(test_M5_short_messages_given_back_backwards),
        cmocka_unit_test(test_M5_two_senders_share_a_small_inbox),
        cmocka_unit_test(test_M2_given_back_once),
        cmocka_unit_test(test_M5_messages_that_do_not_wait_for_room),
        cmocka_unit_test(test_M5_reads_and_writes_have_no_room_to_wait_for),
        cmocka_unit_test(test_M1_nobody_there_and_no_wait),
        cmocka_unit_test(test_M1_nobody_there_until_the_deadline),
        cmocka_unit_test(test_M1_waits_until_the_inbox_is_opened),
        cmocka_unit_test(test_M1_a_closed_inbox),
        cmocka_unit_test(test_M1_opened_and_closed_often),
        cmocka_unit_test(test_T10_the_receiver_is_closed),
        cmocka_unit_test(test_T10_the_sender_is_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
