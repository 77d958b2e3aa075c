/* SPDX-License-Identifier: Apache-2.0 */
/* test_messages.c: messages: every size, their order, how they end, threads that send and sleep
 * (M1, M2, M3, M5, M7, S12). */
#include "message_side.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- sizes and contents ------------------------------------------------ */

static const uint64_t sizes[] = {0,
                                 1,
                                 24,
                                 39,
                                 40,
                                 41,
                                 64,
                                 WEIR_MESSAGE_COPY_MAX - 1,
                                 WEIR_MESSAGE_COPY_MAX,
                                 WEIR_MESSAGE_COPY_MAX + 1,
                                 4096,
                                 65535,
                                 65536,
                                 MIB - 1,
                                 MIB};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void big_pair(struct side *a, struct side *b) {
    side_open_bytes(a, NULL, MIB);
    side_open_bytes(b, NULL, MIB);
    side_join(a, b);
    side_join(b, a);
    fill_pattern(a->bytes, MIB, 0);
}

/* One after the other, and all of them under way at once. */
static void test_M2_every_size_comes_once_and_in_order(void **state) {
    weir_transfer transfers[SIZES];
    struct side a, b;

    (void)state;
    big_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, MIB, 2);
    for (size_t i = 0; i < SIZES; i++) {
        weir_transfer transfer = send_one(&a, 7, 100 + i, sizes[i]);
        assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
        take_and_give_back(&b, &a, inbox, 100 + i, sizes[i]);
        assert_none(&b, inbox);
    }
    for (size_t i = 0; i < SIZES; i++)
        transfers[i] = send_one(&a, 7, 200 + i, sizes[i]);
    for (size_t i = 0; i < SIZES; i++)
        take_and_give_back(&b, &a, inbox, 200 + i, sizes[i]);
    for (size_t i = 0; i < SIZES; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    some_steps(&a, &b);
    assert_none(&b, inbox);
    assert_int_equal(look(&b, inbox).taken, 2 * SIZES);
    assert_int_equal(look(&b, inbox).spoiled, 0);
    assert_int_equal(stats_of(&a).messages_sent, 2 * SIZES);
    assert_int_equal(stats_of(&b).messages_taken, 2 * SIZES);
    assert_int_equal(stats_of(&b).data_malformed, 0);
    pair_close(&a, &b);
}

/* The same, spread over QPs. */
static void test_M2_every_size_over_many_qps(void **state) {
    weir_engine_options limits = side_options();
    struct side a, b;

    (void)state;
    limits.qp_count = 4;
    limits.sq_depth = 8;
    side_open_bytes(&a, &limits, MIB);
    side_open_bytes(&b, &limits, MIB);
    side_join(&a, &b);
    side_join(&b, &a);
    fill_pattern(a.bytes, MIB, 0);
    weir_inbox inbox = inbox_of(&b, 0, MIB, 2);
    for (uint64_t round = 0; round < 4; round++) {
        weir_transfer transfers[SIZES];
        for (size_t i = 0; i < SIZES; i++)
            transfers[i] = send_one(&a, 0, round * SIZES + i, sizes[i]);
        for (size_t i = 0; i < SIZES; i++)
            take_and_give_back(&b, &a, inbox, round * SIZES + i, sizes[i]);
        for (size_t i = 0; i < SIZES; i++)
            assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    }
    pair_close(&a, &b);
}

/* Of both kinds of memory, and empty ones between. */
static void test_M2_a_message_of_several_parts(void **state) {
    struct side a, b;

    (void)state;
    big_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, MIB, 2);
    uint64_t second = MIB / 3, third = MIB - 5;
    const weir_part of_long[] = {
        {.local = a.memory, .offset = 0, .length = second},
        {.local = a.memory, .offset = 17, .length = 0},
        {.local = a.memory, .offset = second, .length = third - second},
        {.base = NULL, .length = 0},
        {.local = a.memory, .offset = third, .length = MIB - third},
    };
    weir_transfer_options options = tagged(1, 0);
    weir_transfer transfer;
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, of_long, 5, &options, &transfer),
                     WEIR_OK);
    take_and_give_back(&b, &a, inbox, 1, MIB);
    assert_int_equal(finish(&a, &b, transfer), WEIR_OK);

    uint8_t bytes[WEIR_MESSAGE_COPY_MAX]; /* short: of any memory */
    fill_pattern(bytes, sizeof(bytes), 0);
    const weir_part of_short[] = {
        {.base = bytes, .length = 50},
        {.local = a.memory, .offset = 50, .length = 70},
        {.base = bytes, .offset = 120, .length = sizeof(bytes) - 120},
    };
    options = tagged(0, 0);
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, of_short, 3, &options, &transfer),
                     WEIR_OK);
    memset(bytes, 0, sizeof(bytes));
    take_and_give_back(&b, &a, inbox, 0, sizeof(bytes));
    assert_int_equal(finish(&a, &b, transfer), WEIR_OK);

    options = tagged(5, 0); /* no parts */
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, NULL, 0, &options, &transfer), WEIR_OK);
    take_and_give_back(&b, &a, inbox, 5, 0);
    assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
    pair_close(&a, &b);
}

/* Sizes at random, given back in any order, from both sides at once, through small inboxes. */
static void test_M2_many_messages_both_ways(void **state) {
    enum { TOTAL = 2000, HELD = 8, LONGEST = 5000 };
    struct side sides[2];
    weir_inbox inboxes[2];
    weir_message held[2][HELD];
    uint32_t held_count[2] = {0, 0};
    uint64_t sent[2] = {0, 0}, taken[2] = {0, 0};
    uint32_t random = 1;

    (void)state;
    open_pair(&sides[0], &sides[1]);
    for (int s = 0; s < 2; s++)
        inboxes[s] = inbox_of(&sides[s], 3, LONGEST, 24);
    uint64_t end = now_ns() + PATIENCE_NS;
    while (taken[0] < TOTAL || taken[1] < TOTAL) {
        assert_true(now_ns() < end);
        for (int s = 0; s < 2; s++) {
            weir_transfer transfer;
            weir_message got;
            for (int i = 0; i < 20 && sent[s] < TOTAL; i++) {
                uint64_t length = sent[s] * 61 % (sent[s] % 3 == 0 ? LONGEST + 1 : 200);
                weir_transfer_options options = tagged(sent[s], 0);
                int rc = try_send(&sides[s], sides[s].peer, 3, length, &options, &transfer);
                if (rc != WEIR_OK) {
                    assert_int_equal(rc, WEIR_EAGAIN);
                    break;
                }
                assert_int_equal(weir_transfer_release(sides[s].engine, transfer), WEIR_OK);
                sent[s]++;
            }
            step(&sides[0], &sides[1]);
            while (held_count[s] < HELD &&
                   weir_message_take(sides[s].engine, inboxes[s], &got) == WEIR_OK) {
                assert_int_equal(got.tag, taken[s]);
                assert_int_equal(got.length, got.tag * 61 % (got.tag % 3 == 0 ? LONGEST + 1 : 200));
                taken[s]++;
                held[s][held_count[s]++] = got;
            }
            random = random * 1664525 + 1013904223;
            for (uint32_t n = random >> 29; n > 0 && held_count[s] > 0; n--) {
                uint32_t i = (random >> 8) % held_count[s];
                assert_content(&held[s][i], held[s][i].length); /* nothing has come over it */
                give_back(&sides[s], &held[s][i]);
                held[s][i] = held[s][--held_count[s]];
            }
        }
    }
    for (int s = 0; s < 2; s++) {
        while (held_count[s] > 0)
            give_back(&sides[s], &held[s][--held_count[s]]);
        assert_none(&sides[s], inboxes[s]);
        assert_int_equal(look(&sides[s], inboxes[s]).held, 0);
        assert_int_equal(stats_of(&sides[s]).data_malformed, 0);
        assert_int_equal(stats_of(&sides[s]).sessions_failed, 0);
    }
    pair_close(&sides[0], &sides[1]);
}

/* ---- what is refused --------------------------------------------------- */

static int try_part(struct side *side, weir_part part) {
    weir_transfer transfer;

    return weir_message_send(side->engine, side->peer, 7, &part, 1, NULL, &transfer);
}

static void test_M1_what_cannot_be_sent_is_refused(void **state) {
    static uint8_t bytes[WEIR_MESSAGE_COPY_MAX + 1];
    static weir_part many[20000];
    struct side a, b;
    weir_transfer transfer;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, SIDE_BYTES, 2);
    const weir_part two[] = {{.base = bytes, .length = 100}, {.base = bytes, .length = 93}};
    assert_int_equal(try_part(&a, (weir_part){.base = bytes, .length = sizeof(bytes)}),
                     WEIR_EINVAL);
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, two, 2, NULL, &transfer), WEIR_EINVAL);
    const uint64_t long_one = 1000;
    for (int i = 0; i < 2; i++) { /* a short one is copied, a long one is not */
        uint64_t length = i == 0 ? 64 : long_one;
        weir_part part = {.local = a.memory, .offset = SIDE_BYTES - length + 1, .length = length};
        assert_int_equal(try_part(&a, part), WEIR_EBOUNDS);
        part.offset = UINT64_MAX - 8;
        assert_int_equal(try_part(&a, part), WEIR_EBOUNDS);
        part = (weir_part){.local = {a.memory.id ^ UINT64_C(0x500000000)}, .length = length};
        assert_int_equal(try_part(&a, part), WEIR_ESTALE);
    }
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, many, 20000, NULL, &transfer),
                     WEIR_ETOOBIG);
    assert_int_equal(weir_message_send(NULL, a.peer, 7, two, 1, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, NULL, 1, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_message_send(a.engine, a.peer, 7, two, 1, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_message_send(a.engine, (weir_peer){0}, 7, two, 1, NULL, &transfer),
                     WEIR_ESTALE);
    some_steps(&a, &b);
    assert_none(&b, inbox);
    assert_int_equal(finish(&a, &b, send_one(&a, 7, 1, 64)), WEIR_OK);
    take_and_give_back(&b, &a, inbox, 1, 64);
    pair_close(&a, &b);
}

/* It ends alone: those before and behind it come. */
static void test_M1_too_long_for_the_inbox(void **state) {
    struct side a, b;
    weir_transfer transfers[5];
    static const uint64_t lengths[] = {1000, 1001, 1000, SIDE_BYTES, 20};

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, 1000, 8);
    weir_inbox small = inbox_of(&b, 8, 10, 8);
    weir_inbox empty = inbox_of(&b, 9, 0, 8);
    for (uint64_t i = 0; i < 5; i++)
        transfers[i] = send_one(&a, 7, i, lengths[i]);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), i % 2 == 1 ? WEIR_ETOOBIG : WEIR_OK);
    for (uint64_t i = 0; i < 5; i += 2)
        take_and_give_back(&b, &a, inbox, i, lengths[i]);
    assert_none(&b, inbox);
    assert_int_equal(finish(&a, &b, send_one(&a, 8, 1, 11)), WEIR_ETOOBIG);
    assert_int_equal(finish(&a, &b, send_one(&a, 8, 2, 10)), WEIR_OK);
    take_and_give_back(&b, &a, small, 2, 10);
    assert_int_equal(finish(&a, &b, send_one(&a, 9, 1, 1)), WEIR_ETOOBIG);
    assert_int_equal(finish(&a, &b, send_one(&a, 9, 2, 0)), WEIR_OK);
    take_and_give_back(&b, &a, empty, 2, 0);
    pair_close(&a, &b);
}

/* ---- ends -------------------------------------------------------------- */

/* Every other one of those that wait is cancelled, or has a deadline. */
static void test_M5_those_behind_a_cancelled_one_come(void **state) {
    enum { ALL = 13 };
    for (int deadline = 0; deadline < 2; deadline++) {
        weir_transfer transfers[ALL];
        struct side a, b;

        (void)state;
        open_pair(&a, &b);
        weir_inbox inbox = inbox_of(&b, 5, LONG, 2);
        for (uint64_t i = 0; i < ALL; i++) {
            weir_transfer_options options = tagged(i, 0);
            if (deadline && i > 2 && i % 2 == 1)
                options.timeout_ns = 50 * MS;
            transfers[i] = send_with(&a, 5, LONG, &options);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
        some_steps(&a, &b);
        for (int i = 3; i < ALL; i += 2) {
            assert_int_equal(deadline ? WEIR_OK : weir_transfer_cancel(a.engine, transfers[i]),
                             WEIR_OK);
            assert_int_equal(finish(&a, &b, transfers[i]),
                             deadline ? WEIR_ETIMEDOUT : WEIR_ECANCELED);
        }
        take_and_give_back(&b, &a, inbox, 0, LONG);
        take_and_give_back(&b, &a, inbox, 1, LONG);
        for (uint64_t i = 2; i < ALL; i += 2) {
            take_and_give_back(&b, &a, inbox, i, LONG);
            assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
        }
        some_steps(&a, &b);
        assert_none(&b, inbox);
        pair_close(&a, &b);
    }
}

/* At any time, also when they have their places already: what is not told to be cancelled comes,
 * and once. */
static void test_M5_cancelled_at_any_time(void **state) {
    enum { EACH = 20 };
    struct side a, b;
    uint64_t tag = 0;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 2000, 16);
    for (int round = 0; round < 200; round++) {
        weir_transfer transfers[EACH];
        uint64_t first = tag, next = tag;
        uint32_t came = 0, well = 0, ended = 0;
        for (int i = 0; i < EACH; i++, tag++)
            transfers[i] = send_one(&a, 5, tag, i % 3 == 0 ? 2000 : 100);
        for (int i = 0; i < round % 5; i++)
            assert_true(weir_engine_progress(a.engine) >= 0);
        for (int i = round % 3; i < EACH; i += 3)
            assert_int_equal(weir_transfer_cancel(a.engine, transfers[i]), WEIR_OK);
        while (ended < EACH) { /* in their order, as room comes back */
            weir_message got;
            int status = status_of(&a, transfers[ended]);
            if (status != WEIR_EINPROGRESS) {
                bool cancelled = ended % 3 == (uint32_t)round % 3;
                assert_true(status == WEIR_OK || (cancelled && status == WEIR_ECANCELED));
                well |= (uint32_t)(status == WEIR_OK) << ended;
                assert_int_equal(weir_transfer_release(a.engine, transfers[ended++]), WEIR_OK);
                continue;
            }
            step(&a, &b);
            while (weir_message_take(b.engine, inbox, &got) == WEIR_OK) {
                assert_in_range(got.tag, next, tag - 1);
                came |= 1u << (got.tag - first);
                next = got.tag + 1;
                assert_content(&got, got.length);
                give_back(&b, &got);
            }
        }
        for (weir_message got; came != well;) {
            STEP_UNTIL(&a, &b, weir_message_take(b.engine, inbox, &got) == WEIR_OK);
            assert_in_range(got.tag, next, tag - 1);
            came |= 1u << (got.tag - first);
            next = got.tag + 1;
            give_back(&b, &got);
        }
    }
    pair_close(&a, &b);
}

static void test_S12_ends_are_told_by_the_queue(void **state) {
    enum { ALL = 20 };
    static const int ends[] = {WEIR_OK, WEIR_ETOOBIG, WEIR_ENOTREADY};
    struct side a, b;
    uint32_t seen = 0;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 1000, 64);
    for (uint64_t i = 0; i < ALL; i++) {
        weir_transfer_options options = tagged(i, WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_NO_WAIT);
        weir_transfer transfer;
        uint32_t number = i % 3 == 2 ? 6 : 5;
        assert_int_equal(try_send(&a, a.peer, number, i % 3 == 1 ? 1001 : 100 * (i % 2), &options,
                                  i % 2 == 0 ? &transfer : NULL),
                         WEIR_OK);
    }
    while (seen != (1u << ALL) - 1) {
        weir_completion done;
        STEP_UNTIL(&a, &b, weir_completion_take(a.engine, &done) == WEIR_OK);
        assert_in_range(done.user_data, 0, ALL - 1);
        assert_int_equal(done.status, ends[done.user_data % 3]);
        assert_int_equal(seen >> done.user_data & 1, 0);
        seen |= 1u << done.user_data;
        assert_int_equal(status_of(&a, done.transfer), WEIR_ESTALE); /* released by itself */
    }
    for (uint64_t i = 0; i < ALL; i += 3)
        take_and_give_back(&b, &a, inbox, i, 100 * (i % 2));
    assert_none(&b, inbox);
    pair_close(&a, &b);
}

/* Without a handle, too: what was sent comes. */
static void test_S12_released_early(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 1000, 4);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(weir_transfer_release(a.engine, send_one(&a, 5, i, i * 20)), WEIR_OK);
    for (uint64_t i = 0; i < 40; i++)
        take_and_give_back(&b, &a, inbox, i, i * 20);
    pair_close(&a, &b);
}

/* ---- beside other things ------------------------------------------------ */

/* All credits of notifications are gone, and stay so: messages have their own. */
static void test_M3_a_receiver_that_takes_no_notifications(void **state) {
    enum { NOTES = 12, ALL = 200 };
    weir_engine_options limits = side_options();
    weir_transfer notes[NOTES];
    weir_notification note;
    struct side a, b;

    (void)state;
    limits.recv_credits = 4;
    limits.notifications_max = 2;
    pair_open(&a, &b, &limits);
    fill_pattern(a.bytes, a.length, 0);
    weir_inbox inbox = inbox_of(&b, 5, LONG, 2);
    for (uint64_t i = 0; i < NOTES; i++) {
        weir_transfer_options options = tagged(i, WEIR_TRANSFER_NOTIFY);
        assert_int_equal(weir_write(a.engine, a.peer, NULL, 0, &options, &notes[i]), WEIR_OK);
    }
    some_steps(&a, &b);
    assert_int_equal(status_of(&a, notes[NOTES - 1]), WEIR_EINPROGRESS);
    for (uint64_t i = 0; i < ALL; i++) {
        uint64_t length = i % 4 == 0 ? LONG : i % 192;
        assert_int_equal(finish(&a, &b, send_one(&a, 5, i, length)), WEIR_OK);
        take_and_give_back(&b, &a, inbox, i, length);
    }
    assert_int_equal(status_of(&a, notes[NOTES - 1]), WEIR_EINPROGRESS);
    for (uint64_t i = 0; i < NOTES; i++) {
        STEP_UNTIL(&a, &b, weir_notification_take(b.engine, &note) == WEIR_OK);
        assert_int_equal(note.tag, i);
        assert_int_equal(finish(&a, &b, notes[i]), WEIR_OK);
    }
    pair_close(&a, &b);
}

/* The other way round. */
static void test_M3_a_receiver_that_takes_no_messages(void **state) {
    enum { WAITING = 20, ALL = 200 };
    weir_transfer waiting[WAITING];
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, LONG, 1);
    for (uint64_t i = 0; i < WAITING; i++)
        waiting[i] = send_one(&a, 5, i, LONG);
    for (uint64_t i = 0; i < ALL; i++) {
        weir_transfer_options options = tagged(i, WEIR_TRANSFER_NOTIFY);
        weir_segment one = segment_of(&a, 0, 0, 100);
        weir_notification note;
        assert_int_equal(write_now(&a, &b, &one, i % 2, &options), WEIR_OK);
        STEP_UNTIL(&a, &b, weir_notification_take(b.engine, &note) == WEIR_OK);
        assert_int_equal(note.tag, i);
    }
    assert_int_equal(status_of(&a, waiting[1]), WEIR_EINPROGRESS);
    for (uint64_t i = 0; i < WAITING; i++) {
        take_and_give_back(&b, &a, inbox, i, LONG);
        assert_int_equal(finish(&a, &b, waiting[i]), WEIR_OK);
    }
    pair_close(&a, &b);
}

/* ---- sleeping ---------------------------------------------------------- */

struct reader {
    struct side *side;
    weir_inbox inbox;
    uint64_t count, taken;
};

static void *reader_main(void *argument) {
    struct reader *reader = argument;
    uint64_t end = now_ns() + PATIENCE_NS;

    while (reader->taken < reader->count && now_ns() < end) {
        weir_message got;
        if (weir_message_take(reader->side->engine, reader->inbox, &got) == WEIR_OK) {
            if (got.tag != reader->taken++)
                break;
            weir_message_give_back(reader->side->engine, &got);
        } else {
            weir_engine_wait(reader->side->engine, PATIENCE_NS);
        }
    }
    return NULL;
}

/* A thread sleeps until a message is there; nobody else makes progress for it. */
static void test_M7_a_sleeper_wakes_for_a_message(void **state) {
    struct side a, b;
    pthread_t thread;

    (void)state;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    open_pair(&a, &b);
    struct reader reader = {.side = &b, .inbox = inbox_of(&b, 5, 1000, 8), .count = 300};
    assert_int_equal(pthread_create(&thread, NULL, reader_main, &reader), 0);
    for (uint64_t i = 0; i < reader.count; i++) {
        weir_transfer transfer = send_one(&a, 5, i, i * 3);
        assert_int_equal(weir_transfer_wait(a.engine, transfer, PATIENCE_NS), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    }
    pthread_join(thread, NULL);
    assert_int_equal(reader.taken, reader.count);
    pair_close(&a, &b);
}

/* One that is there already, and was not taken, is no reason to sleep. */
static void test_M7_no_sleep_with_a_message_there(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, LONG, 4);
    assert_int_equal(finish(&a, &b, send_one(&a, 5, 1, 10)), WEIR_OK);
    weir_message got = take(&b, &a, inbox, 1, 10);
    assert_int_equal(finish(&a, &b, send_one(&a, 5, 2, 10)), WEIR_OK);
    some_steps(&a, &b);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_engine_wait(b.engine, PATIENCE_NS), WEIR_OK);
    take_and_give_back(&b, &a, inbox, 2, 10);
    give_back(&b, &got);
    pair_close(&a, &b);
}

/* Both engines have threads of their own; several threads send, and each one's come in its order.
 */
enum { WRITERS = 4, EACH_WRITER = 300 };
struct writer {
    struct side *side;
    uint64_t number;
    int rc;
};

static void *writer_main(void *argument) {
    const struct timespec pause = {.tv_nsec = 100 * 1000};
    struct writer *writer = argument;

    for (uint64_t i = 0; i < EACH_WRITER && writer->rc == WEIR_OK; i++) {
        weir_transfer_options options =
            tagged(writer->number << 32 | i, i % 2 == 0 ? WEIR_TRANSFER_BLOCK : 0);
        uint64_t length = i % 5 == 0 ? 3000 : i % 192;
        weir_transfer transfer;
        while ((writer->rc = try_send(writer->side, writer->side->peer, 5, length, &options,
                                      &transfer)) == WEIR_EAGAIN)
            nanosleep(&pause, NULL);
        if (writer->rc == WEIR_OK)
            writer->rc = weir_transfer_release(writer->side->engine, transfer);
    }
    return NULL;
}

static void test_M2_several_threads_send(void **state) {
    weir_engine_options limits = side_options();
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    uint64_t next[WRITERS] = {0};
    struct side a, b;

    (void)state;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    limits.flags = WEIR_ENGINE_THREAD;
    side_open(&a, &limits);
    side_open(&b, &limits);
    side_join(&a, &b);
    fill_pattern(a.bytes, a.length, 0);
    weir_inbox inbox = inbox_of(&b, 5, 3000, 16);
    for (uint64_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.side = &a, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, writer_main, &writers[i]), 0);
    }
    uint64_t end = now_ns() + PATIENCE_NS;
    for (uint32_t taken = 0; taken < WRITERS * EACH_WRITER;) {
        weir_message got;
        assert_true(now_ns() < end);
        if (weir_message_take(b.engine, inbox, &got) != WEIR_OK) {
            weir_engine_wait(b.engine, SECOND);
            continue;
        }
        uint64_t writer = got.tag >> 32, i = got.tag & UINT32_MAX;
        assert_in_range(writer, 0, WRITERS - 1);
        assert_int_equal(i, next[writer]);
        next[writer]++;
        assert_content(&got, i % 5 == 0 ? 3000 : i % 192);
        give_back(&b, &got);
        taken++;
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(writers[i].rc, WEIR_OK);
    }
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M2_every_size_comes_once_and_in_order),
        cmocka_unit_test(test_M2_every_size_over_many_qps),
        cmocka_unit_test(test_M2_a_message_of_several_parts),
        cmocka_unit_test(test_M2_many_messages_both_ways),
        cmocka_unit_test(test_M1_what_cannot_be_sent_is_refused),
        cmocka_unit_test(test_M1_too_long_for_the_inbox),
        cmocka_unit_test(test_M5_those_behind_a_cancelled_one_come),
        cmocka_unit_test(test_M5_cancelled_at_any_time),
        cmocka_unit_test(test_S12_ends_are_told_by_the_queue),
        cmocka_unit_test(test_S12_released_early),
        cmocka_unit_test(test_M3_a_receiver_that_takes_no_notifications),
        cmocka_unit_test(test_M3_a_receiver_that_takes_no_messages),
        cmocka_unit_test(test_M7_a_sleeper_wakes_for_a_message),
        cmocka_unit_test(test_M7_no_sleep_with_a_message_there),
        cmocka_unit_test(test_M2_several_threads_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
