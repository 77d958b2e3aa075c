/* SPDX-License-Identifier: Apache-2.0 */
/* test_messages_many.c: several messages sent, taken and given back by one call each (M1, M2, M3,
 * M5, S11). */
#include "message_side.h"

#include <string.h>

enum { MANY = 70, LONGEST = 1000 };

static weir_outgoing out[MANY];
static weir_part parts[MANY][3];
static uint8_t bytes[MANY][WEIR_MESSAGE_COPY_MAX];
static weir_transfer transfers[MANY];
static weir_message got[MANY];

/* Of all sizes; a short one in a part or three, a long one of registered memory. */
static uint64_t length_of(uint64_t tag) {
    static const uint64_t lengths[] = {8, 0, 40, 41, LONGEST, 64, 192, 193, 1};
    return lengths[tag % (sizeof(lengths) / sizeof(lengths[0]))];
}

static void make(const struct side *from, uint32_t i, uint64_t tag, uint64_t length) {
    uint32_t count = tag % 4 == 3 ? 3 : 1;
    uint64_t third = length / 3;

    if (length <= WEIR_MESSAGE_COPY_MAX)
        fill_pattern(bytes[i], length, tag);
    for (uint32_t p = 0; p < count; p++) {
        uint64_t offset = p * third;
        parts[i][p] = (weir_part){.base = bytes[i], .offset = offset, .length = third};
        if (length > WEIR_MESSAGE_COPY_MAX)
            parts[i][p] = (weir_part){.local = from->memory, .offset = offset, .length = third};
        if (p + 1 == count)
            parts[i][p].length = length - offset;
    }
    out[i] = (weir_outgoing){parts[i], count, tag};
}

/* As many as `count`, with tags from `tag` on; returns how many were sent. */
static size_t send_many(struct side *from, uint32_t inbox, uint64_t tag, uint32_t count) {
    size_t sent = 0;

    for (uint32_t i = 0; i < count; i++)
        make(from, i, tag + i, length_of(tag + i));
    assert_int_equal(
        weir_message_send_many(from->engine, from->peer, inbox, out, count, NULL, transfers, &sent),
        WEIR_OK);
    memset(bytes, 0x5a, sizeof(bytes)); /* short ones are copied by now */
    return sent;
}

/* All that are there, up to `max`: the next ones, from this tag on. */
static size_t take_many(struct side *to, weir_inbox inbox, uint64_t tag, size_t max) {
    size_t count = 0;

    if (weir_message_take_many(to->engine, inbox, got, max, &count) != WEIR_OK)
        return 0;
    assert_in_range(count, 1, max);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(got[i].tag, tag + i);
        assert_int_equal(got[i].inbox.id, inbox.id);
        assert_int_equal(got[i].from.id, to->peer.id);
        assert_content(&got[i], length_of(tag + i));
    }
    return count;
}

/* Likewise, and gives them back. */
static size_t take_many_back(struct side *to, weir_inbox inbox, uint64_t tag, size_t max) {
    size_t count = take_many(to, inbox, tag, max);

    assert_int_equal(weir_message_give_back_many(to->engine, got, count), WEIR_OK);
    return count;
}

/* Until all up to this tag were taken; the first of them is `tag`. */
static void take_all_back(struct side *to, struct side *from, weir_inbox inbox, uint64_t tag,
                          uint64_t end) {
    while (tag < end) {
        tag += take_many_back(to, inbox, tag, MANY);
        step(from, to);
    }
}

static void finish_all(struct side *a, struct side *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (transfers[i].id != 0)
            assert_int_equal(finish(a, b, transfers[i]), WEIR_OK);
    }
}

/* With so many records. */
static void open_small(struct side *a, struct side *b, uint32_t records) {
    weir_engine_options limits = side_options();

    limits.transfers_max = records;
    side_open(a, &limits);
    side_open(b, NULL);
    side_join(a, b);
    side_join(b, a);
    fill_pattern(a->bytes, SIDE_BYTES, 0);
}

/* ---- what comes -------------------------------------------------------- */

/* Calls of all lengths, from one of one message to more than go at once. Their order is that of the
 * calls, and of each call's messages. */
static void test_M2_M3_many_messages_of_a_call(void **state) {
    struct side a, b;
    uint64_t sent = 0, taken = 0;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, LONGEST, 200);
    for (uint32_t round = 0; round < 300; round++) {
        size_t count = send_many(&a, 7, sent, 1 + round % MANY);
        assert_int_equal(count, 1 + round % MANY);
        if (round % 3 == 0)
            step(&a, &b);
        for (size_t n; (n = take_many_back(&b, inbox, taken, 1 + round % 41)) > 0; taken += n)
            continue;
        finish_all(&a, &b, count);
        sent += count;
    }
    take_all_back(&b, &a, inbox, taken, sent);
    some_steps(&a, &b);
    assert_none(&b, inbox);
    assert_int_equal(look(&b, inbox).taken, sent);
    assert_int_equal(look(&b, inbox).held, 0);
    assert_int_equal(look(&b, inbox).spoiled, 0);
    assert_int_equal(stats_of(&a).messages_sent, sent);
    assert_int_equal(stats_of(&b).messages_taken, sent);
    pair_close(&a, &b);
}

/* By turns with calls for one: the order is that of the calls. */
static void test_M3_many_and_one_by_turns(void **state) {
    struct side a, b;
    uint64_t sent = 0, taken = 0;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 0, LONGEST, 40);
    for (uint32_t round = 0; round < 200; round++) {
        size_t count = 1;
        if (round % 2 == 0)
            count = send_many(&a, 0, sent, 1 + round % 9);
        else
            transfers[0] = send_one(&a, 0, sent, length_of(sent));
        sent += count;
        if (round % 3 == 0)
            take_and_give_back(&b, &a, inbox, taken, length_of(taken)), taken++;
        while (sent - taken > 20) {
            taken += take_many_back(&b, inbox, taken, 5);
            step(&a, &b);
        }
        finish_all(&a, &b, count);
    }
    for (; taken < sent; taken++)
        take_and_give_back(&b, &a, inbox, taken, length_of(taken));
    pair_close(&a, &b);
}

/* The messages of each sender come in their order, and neither sender waits for all of the other's.
 */
static void test_M3_M5_many_of_several_senders_in_turns(void **state) {
    enum { EACH = 200, TURN = 32 };
    struct side a, b, c;
    uint64_t due[2] = {0, 0};

    (void)state;
    open_three(&a, &b, &c);
    weir_inbox inbox = {0};
    assert_int_equal(try_inbox(&b, 7, LONGEST, 2 * EACH, 4 * EACH, &inbox), WEIR_OK);
    struct side *senders[] = {&a, &c};
    for (uint32_t s = 0; s < 2; s++) { /* both have room, and are watched */
        weir_transfer first = send_one(senders[s], 7, 0, 8);
        assert_int_equal(finish(senders[s], &b, first), WEIR_OK);
        weir_message message;
        STEP_UNTIL(senders[s], &b, weir_message_take(b.engine, inbox, &message) == WEIR_OK);
        give_back(&b, &message);
        first = send_one(senders[s], 7, 0, 8);
        assert_int_equal(first.id == 0 ? WEIR_OK : finish(senders[s], &b, first), WEIR_OK);
    }
    for (uint32_t s = 0; s < 2; s++) {
        weir_message message;
        STEP_UNTIL(senders[s], &b, weir_message_take(b.engine, inbox, &message) == WEIR_OK);
        give_back(&b, &message);
    }
    for (uint32_t s = 0; s < 2; s++) {
        for (uint64_t tag = 0; tag < EACH;) {
            uint32_t count = EACH - tag < MANY ? (uint32_t)(EACH - tag) : MANY;
            for (uint32_t i = 0; i < count; i++) {
                make(senders[s], i, tag + i, 8);
                out[i].tag |= (uint64_t)(s + 1) << 32;
            }
            size_t sent = 0;
            assert_int_equal(weir_message_send_many(senders[s]->engine, senders[s]->peer, 7, out,
                                                    count, NULL, transfers, &sent),
                             WEIR_OK);
            assert_int_equal(sent, count);
            finish_all(senders[s], &b, sent);
            tag += sent;
        }
    }
    some_steps(&a, &b);
    some_steps(&c, &b); /* b was told to look for both */
    size_t count;
    uint32_t changes = 0, last = 2;
    while (due[0] + due[1] < 2 * EACH) {
        if (weir_message_take_many(b.engine, inbox, got, MANY, &count) != WEIR_OK) {
            step(&a, &b);
            step(&c, &b);
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            uint32_t s = (uint32_t)(got[i].tag >> 32) - 1;
            assert_in_range(s, 0, 1);
            assert_int_equal((uint32_t)got[i].tag, due[s]++);
            changes += s != last;
            last = s;
            if (due[0] < EACH && due[1] < EACH)
                assert_in_range(due[0] + EACH - due[1], EACH - 3 * TURN, EACH + 3 * TURN);
        }
        assert_int_equal(weir_message_give_back_many(b.engine, got, count), WEIR_OK);
    }
    assert_in_range(changes, EACH / TURN, 4 * EACH / TURN); /* each turn is of many */
    pair_close(&a, &b);
    side_close(&c);
}

/* A sender that goes on has the next place before the one that it fills is full: none of its
 * messages has to wait for it, and so have a record. */
static void test_M5_room_is_asked_for_ahead(void **state) {
    enum { ROUNDS = 400, CALL = 32 };
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = {0};
    assert_int_equal(try_inbox(&b, 7, 8, 1024, 4096, &inbox), WEIR_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t sent = 0;
        for (uint32_t i = 0; i < CALL; i++)
            make(&a, i, round * CALL + i, 8);
        assert_int_equal(
            weir_message_send_many(a.engine, a.peer, 7, out, CALL, NULL, transfers, &sent),
            WEIR_OK);
        assert_int_equal(sent, CALL);
        finish_all(&a, &b, sent);
        for (size_t taken = 0, n; taken < sent; taken += n) {
            step(&a, &b);
            if (weir_message_take_many(b.engine, inbox, got, MANY, &n) != WEIR_OK)
                n = 0;
            assert_int_equal(weir_message_give_back_many(b.engine, got, n), WEIR_OK);
        }
    }
    uint64_t all = ROUNDS * CALL; /* the first call had to meet the inbox */
    assert_in_range(stats_of(&a).transfers_inline, all - 2 * CALL, all);
    pair_close(&a, &b);
}

/* ---- what does not go -------------------------------------------------- */

/* A full inbox: the rest of a call waits as messages that were sent one by one would. */
static void test_M5_the_rest_of_a_call_waits_for_room(void **state) {
    enum { ROOM = 4 };
    struct side a, b;
    size_t arrived = 0;

    (void)state;
    open_small(&a, &b, 2 * MANY);
    weir_inbox inbox = inbox_of(&b, 7, LONGEST, ROOM);
    assert_int_equal(send_many(&a, 7, 0, MANY), MANY);
    some_steps(&a, &b);
    for (uint32_t i = 0; i < MANY; i++) {
        int status = transfers[i].id == 0 ? WEIR_OK : status_of(&a, transfers[i]);
        assert_true(status == WEIR_OK || status == WEIR_EINPROGRESS);
        assert_true(status != WEIR_OK || arrived == i); /* from the front */
        arrived += status == WEIR_OK;
    }
    assert_in_range(arrived, 1, MANY - 1);
    take_all_back(&b, &a, inbox, 0, MANY);
    finish_all(&a, &b, MANY);
    pair_close(&a, &b);
}

/* No more than fit in the engine's records are sent; a call with the rest says why. */
static void test_M5_a_call_ends_where_a_pool_is_full(void **state) {
    enum { RECORDS = 8 };
    struct side a, b;
    size_t more = 99;

    (void)state;
    open_small(&a, &b, RECORDS);
    size_t sent = send_many(&a, 7, 0, MANY); /* there is no such inbox yet */
    assert_int_equal(sent, RECORDS);
    assert_int_equal(
        weir_message_send_many(a.engine, a.peer, 7, out, 1, NULL, transfers + sent, &more),
        WEIR_EAGAIN);
    assert_int_equal(more, 99);
    weir_inbox inbox = inbox_of(&b, 7, LONGEST, 40);
    take_all_back(&b, &a, inbox, 0, sent);
    finish_all(&a, &b, sent);
    some_steps(&a, &b);
    assert_none(&b, inbox);
    pair_close(&a, &b);
}

/* The first that is refused ends the call: those in front of it go, and none behind it. */
static void test_M1_the_first_that_is_refused_ends_the_call(void **state) {
    enum { WRONGS = 5 };
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, LONGEST, 200);
    uint64_t tag = 0;
    for (uint32_t round = 0; round < 4 * WRONGS; round++) {
        static const int errors[WRONGS] = {WEIR_EBOUNDS, WEIR_ESTALE, WEIR_EINVAL, WEIR_EINVAL,
                                           WEIR_ETOOBIG};
        uint32_t at = round / WRONGS * 11;
        size_t sent = 99;
        for (uint32_t i = 0; i < MANY; i++)
            make(&a, i, tag + i, length_of(tag + i));
        weir_part wrong[WRONGS] = {{.local = a.memory, .offset = SIDE_BYTES, .length = 1},
                                   {.local = {UINT64_MAX}, .length = 1},
                                   {.base = a.bytes, .length = WEIR_MESSAGE_COPY_MAX + 1},
                                   {.base = NULL, .length = 1},
                                   {.base = a.bytes, .length = 1}};
        out[at] = (weir_outgoing){&wrong[round % WRONGS], 1, 0};
        if (round % WRONGS == 4)
            out[at].part_count = SIZE_MAX;
        int rc = weir_message_send_many(a.engine, a.peer, 7, out, MANY, NULL, transfers, &sent);
        assert_int_equal(rc, at == 0 ? errors[round % WRONGS] : WEIR_OK);
        assert_int_equal(sent, at == 0 ? 99 : at);
        assert_int_equal(weir_message_send_many(a.engine, a.peer, 7, out + at, MANY - at, NULL,
                                                transfers + at, &sent),
                         errors[round % WRONGS]);
        for (uint64_t end = tag + at; tag < end; tag++)
            take_and_give_back(&b, &a, inbox, tag, length_of(tag));
        finish_all(&a, &b, at);
        some_steps(&a, &b);
        assert_none(&b, inbox);
    }
    pair_close(&a, &b);
}

/* Each is a completion, with the user data of the call. */
static void test_S11_many_that_are_queued(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_completion completion;
    struct side a, b;
    size_t sent = 0;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 7, LONGEST, 40);
    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = 77;
    for (uint32_t i = 0; i < 20; i++)
        make(&a, i, i, length_of(i));
    assert_int_equal(weir_message_send_many(a.engine, a.peer, 7, out, 20, &options, NULL, &sent),
                     WEIR_OK);
    assert_int_equal(sent, 20);
    for (uint64_t tag = 0; tag < 20; tag++) {
        take_and_give_back(&b, &a, inbox, tag, length_of(tag));
        STEP_UNTIL(&a, &b, weir_completion_take(a.engine, &completion) == WEIR_OK);
        assert_int_equal(completion.status, WEIR_OK);
        assert_int_equal(completion.user_data, 77);
    }
    assert_int_equal(weir_completion_take(a.engine, &completion), WEIR_EAGAIN);
    pair_close(&a, &b);
}

/* ---- giving back ------------------------------------------------------- */

/* One that was given back before is told of, and the others are given back all the same; of an
 * inbox that was closed, too, and of several. */
static void test_M1_many_are_given_back_once(void **state) {
    struct side a, b;
    weir_message all[2 * MANY];

    (void)state;
    open_small(&a, &b, 2 * MANY);
    weir_inbox first = inbox_of(&b, 1, LONGEST, 100), second = inbox_of(&b, 2, LONGEST, 100);
    assert_int_equal(weir_message_give_back_many(b.engine, NULL, 0), WEIR_OK);
    assert_int_equal(weir_message_give_back_many(b.engine, NULL, 1), WEIR_EINVAL);
    assert_int_equal(weir_message_give_back_many(NULL, all, 1), WEIR_EINVAL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(send_many(&a, i + 1, 0, MANY), MANY);
        for (uint64_t taken = 0; taken < MANY; step(&a, &b)) {
            size_t n = take_many(&b, i == 0 ? first : second, taken, MANY);
            for (size_t k = 0; k < n; k++) /* of both by turns */
                all[2 * (taken + k) + i] = got[k];
            taken += n;
        }
        finish_all(&a, &b, MANY);
    }
    assert_int_equal(look(&b, first).held, MANY);
    give_back(&b, &all[20]);
    assert_int_equal(weir_message_give_back_many(b.engine, all, MANY), WEIR_ESTALE);
    assert_int_equal(look(&b, first).held, MANY / 2);
    assert_int_equal(look(&b, second).held, MANY / 2);
    assert_int_equal(weir_inbox_close(b.engine, second), WEIR_OK);
    assert_int_equal(weir_message_give_back_many(b.engine, all + MANY, MANY), WEIR_OK);
    assert_int_equal(look(&b, first).held, 0);
    assert_int_equal(weir_message_give_back_many(b.engine, all, 2 * MANY), WEIR_ESTALE);
    some_steps(&a, &b);
    pair_close(&a, &b);
}

/* More chunks of one sender come free at once than it can hear of at once. */
static void test_M3_M5_a_peer_of_many_chunks(void **state) {
    enum { EACH = 60, CHUNKS = 40, ALL = EACH * CHUNKS, MORE = 1200 };
    static weir_message held[ALL];
    struct side a, b;
    weir_inbox inbox;
    weir_message one;
    (void)state;
    open_pair(&a, &b);
    assert_int_equal(try_inbox(&b, 5, LONGEST, ALL, 2 * ALL, &inbox), WEIR_OK);
    assert_in_range(look(&b, inbox).chunks, 2 * CHUNKS - 2, 2 * CHUNKS);
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t tag = (uint64_t)round * (ALL + MORE);
        for (uint32_t i = 0; i < ALL; i++) {
            weir_transfer transfer = send_one(&a, 5, tag + i, LONGEST);
            held[i] = take(&b, &a, inbox, tag + i, LONGEST);
            if (transfer.id != 0)
                weir_transfer_release(a.engine, transfer);
        }
        assert_int_equal(weir_message_give_back_many(b.engine, held, ALL), WEIR_OK);
        for (uint32_t i = ALL; i < ALL + MORE; i++) {
            weir_transfer transfer = send_one(&a, 5, tag + i, LONGEST);
            one = take(&b, &a, inbox, tag + i, LONGEST);
            give_back(&b, &one);
            if (transfer.id != 0)
                weir_transfer_release(a.engine, transfer);
        }
    }
    assert_int_equal(stats_of(&a).sessions_failed, 0);
    assert_int_equal(stats_of(&b).sessions_failed, 0);
    assert_int_equal(stats_of(&a).data_malformed + stats_of(&b).data_malformed, 0);
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M2_M3_many_messages_of_a_call),
        cmocka_unit_test(test_M3_many_and_one_by_turns),
        cmocka_unit_test(test_M3_M5_many_of_several_senders_in_turns),
        cmocka_unit_test(test_M5_room_is_asked_for_ahead),
        cmocka_unit_test(test_M5_the_rest_of_a_call_waits_for_room),
        cmocka_unit_test(test_M5_a_call_ends_where_a_pool_is_full),
        cmocka_unit_test(test_M1_the_first_that_is_refused_ends_the_call),
        cmocka_unit_test(test_S11_many_that_are_queued),
        cmocka_unit_test(test_M1_many_are_given_back_once),
        cmocka_unit_test(test_M3_M5_a_peer_of_many_chunks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
