/* SPDX-License-Identifier: Apache-2.0 */
/* inboxes.c: messages on every device: their sizes, their order, and what a full inbox holds up
 * (M2, M3, M5, S13). */
#include <stdlib.h>
#include <string.h>

#include "engine_tests.h"
#include "flows.h"
#include "state.h"

/* ---- sizes -------------------------------------------------------------- */

/* All are under way at once; each is taken in its turn. */
static void send_and_take(struct engines *engines, weir_inbox inbox, uint32_t number,
                          uint64_t first, const uint64_t *lengths, uint32_t count) {
    weir_transfer transfers[UNDER_WAY];

    for (uint32_t i = 0; i < count; i++)
        transfers[i] = send_to(engines, 1, 0, number, first + i, lengths[i]);
    for (uint32_t i = 0; i < count; i++)
        take_and_give_back(engines, 0, inbox, 1, first + i, lengths[i]);
    for (uint32_t i = 0; i < count; i++)
        assert_status(finish(engines, 1, transfers[i]), WEIR_OK, "a message");
}

/* Each length that has no data of its own, 0 among them, and the first one that has. */
void test_M2_beside_their_notes(void **state) {
    uint64_t lengths[UNDER_WAY];
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 7, SHORT + 1, UNDER_WAY);
    for (uint32_t length = 0; length <= SHORT + 1; length += UNDER_WAY) {
        uint32_t count = 0;
        for (; count < UNDER_WAY && length + count <= SHORT + 1; count++)
            lengths[count] = length + count;
        send_and_take(&e, inbox, 7, length, lengths, count);
    }
    for (uint64_t i = 0; i < 3; i++) { /* one after the other */
        weir_transfer transfer = send_to(&e, 1, 0, 7, i, i * 90);
        assert_status(finish(&e, 1, transfer), WEIR_OK, "a message");
        take_and_give_back(&e, 0, inbox, 1, i, i * 90);
    }
    some_turns(&e);
    assert_none(&e, 0, inbox);
    assert_int_equal(engine_stats(&e, 1).messages_sent, SHORT + 2 + 3);
    assert_int_equal(engine_stats(&e, 0).messages_taken, SHORT + 2 + 3);
    engines_close(&e);
}

/* All of them were sent and taken. Whether device and session let messages share WRs, if there is
 * one QP; the sender's counters. */
static bool all_came(struct engines *engines, weir_inbox inbox, uint64_t count,
                     weir_engine_info *stats_out) {
    const struct weir_device_caps *caps = &engines->of[1]->caps;

    some_turns(engines);
    assert_none(engines, 0, inbox);
    *stats_out = engine_stats(engines, 1);
    assert_int_equal(stats_out->messages_sent, count);
    return caps->ordered && !caps->completes_inline;
}

/* More messages than credits, short ones and such as have data: those that wait go together, where
 * the device keeps them in order and there is one QP. All come, in their order. */
void test_M3_notes_that_share_a_send(void **state) {
    for (uint32_t qps = 1; qps <= 2; qps++) {
        const struct engines_options two = {.count = 2, .qps = qps, .bytes = ENGINE_BYTES};
        uint64_t lengths[UNDER_WAY];
        struct engines e;

        engines_open(&e, state, &two);
        weir_inbox inbox = inbox_of(&e, 0, 7, 1000, 4 * UNDER_WAY);
        for (uint32_t round = 0; round < 8; round++) {
            for (uint32_t i = 0; i < UNDER_WAY; i++)
                lengths[i] = (i + round) % 3 == 0 ? 1000 - i : i % (20 + 20 * round);
            send_and_take(&e, inbox, 7, (uint64_t)round * UNDER_WAY, lengths, UNDER_WAY);
        }
        weir_engine_info stats;
        bool may_share = all_came(&e, inbox, 8 * UNDER_WAY, &stats);
        if (may_share && qps == 1)
            assert_in_range(stats.notes_shared, UNDER_WAY, 8 * UNDER_WAY);
        else
            assert_int_equal(stats.notes_shared, 0);
        engines_close(&e);
    }
}

/* More messages than credits, each with data of its own, of every length of a line's rest: what
 * waits is written by one WR, where the device gathers. Some have no data, or too much for that. */
void test_M3_messages_that_share_a_write(void **state) {
    uint64_t lengths[UNDER_WAY];
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 7, 20000, 4 * UNDER_WAY);
    for (uint32_t round = 0; round < 24; round++) {
        for (uint32_t i = 0; i < UNDER_WAY; i++)
            lengths[i] = round % 4 == 3 && i % 5 == 2
                             ? (i % 2 == 0 ? 20 : 9000)
                             : SHORT + 1 + (round < 8 ? 64 * i + round : 3 * round + i);
        send_and_take(&e, inbox, 7, (uint64_t)round * UNDER_WAY, lengths, UNDER_WAY);
    }
    weir_engine_info stats;
    bool may_share = all_came(&e, inbox, 24 * UNDER_WAY, &stats);
    if (may_share && e.of[1]->caps.pieces_max >= 3)
        assert_in_range(stats.messages_gathered, UNDER_WAY, 24 * UNDER_WAY);
    else
        assert_int_equal(stats.messages_gathered, 0);
    engines_close(&e);
}

/* Inboxes whose chunks hold one of the longest, two, and many: messages that fill them to the end,
 * and such as leave a little. */
void test_M2_as_long_as_a_chunk(void **state) {
    static const uint64_t longest[] = {65536 - 64, 65536, 65537, 32768 - 64, 32768, 960, 40};
    struct engines e;

    engines_open(&e, state, NULL);
    for (uint32_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++) {
        const uint64_t most = longest[i],
                       lengths[] = {most, most - 1, most, most, most / 2, most / 2,
                                    most, 1,        most, 0,    most - 7, most};
        weir_inbox inbox = inbox_of(&e, 0, i, most, 2);
        assert_true(look(&e, 0, inbox).chunk_bytes >= most);
        send_and_take(&e, inbox, i, 0, lengths, sizeof(lengths) / sizeof(lengths[0]));
        assert_status(weir_inbox_close(e.of[0], inbox), WEIR_OK, "close");
    }
    engines_close(&e);
}

/* A message whose parts lie all over two memories, registered and allocated, in no order. Lengths
 * differ from part to part, and some are 0. */
static uint32_t scatter(const struct engines *e, weir_memory own, const uint8_t *own_bytes,
                        uint64_t length, uint32_t step, weir_part *parts, const uint8_t **bytes) {
    uint64_t random = length;
    uint32_t count = 0;

    for (uint64_t done = 0; done < length; count++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t some = count % 11 == 5 ? 0 : 1 + (random >> 20) % step;
        some = some < length - done ? some : length - done;
        uint64_t offset = (random >> 33) % (e->options.bytes - some);
        bool is_own = count % 2 == 1;
        parts[count] = (weir_part){
            .local = is_own ? own : e->memory[1],
            .offset = offset,
            .length = some,
        };
        bytes[count] = (is_own ? own_bytes : e->bytes[1]) + offset;
        done += some;
    }
    return count;
}

void test_M2_gathered_from_many_parts(void **state) {
    enum { MIB8 = 8 << 20, PARTS = 2048 };
    static const struct {
        uint64_t length;
        uint32_t step; /* the longest part */
    } cases[] = {{300000, 1000}, {300000, 70000}, {MIB8, 20000}, {MIB8, 200000}, {500, 10}};
    static weir_part parts[PARTS];
    static const uint8_t *bytes[PARTS];
    struct engines e;
    weir_memory own;

    engines_open(&e, state, NULL);
    uint8_t *own_bytes = malloc(e.options.bytes);
    assert_non_null(own_bytes);
    for (uint64_t i = 0; i < e.options.bytes; i++)
        own_bytes[i] = (uint8_t)~e.bytes[1][e.options.bytes - 1 - i];
    assert_status(weir_memory_register(e.of[1], own_bytes, e.options.bytes, 0, &own), WEIR_OK,
                  "register");
    weir_inbox inbox = inbox_of(&e, 0, 7, MIB8, 2);
    for (uint32_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        uint32_t count = scatter(&e, own, own_bytes, cases[c].length, cases[c].step, parts, bytes);
        weir_transfer_options options = tagged(tag_of(1, c), 0);
        weir_transfer transfer;
        weir_message got;
        uint64_t at = 0;
        assert_status(
            weir_message_send(e.of[1], e.peers[1][0], 7, parts, count, &options, &transfer),
            WEIR_OK, "send");
        assert_status(finish(&e, 1, transfer), WEIR_OK, "a message of many parts");
        UNTIL(&e, weir_message_take(e.of[0], inbox, &got) == WEIR_OK);
        assert_int_equal(got.tag, tag_of(1, c));
        assert_int_equal(got.length, cases[c].length);
        for (uint32_t i = 0; i < count; at += parts[i++].length)
            assert_memory_equal((const uint8_t *)got.data + at, bytes[i], parts[i].length);
        give_back(&e, 0, &got);
    }
    assert_status(weir_memory_release(e.of[1], own), WEIR_OK, "memory");
    engines_close(&e);
    free(own_bytes);
}

/* ---- order -------------------------------------------------------------- */

static struct flow flow_of(struct engines *e, uint32_t from, uint32_t to, uint32_t room,
                           uint64_t total) {
    enum { LONGEST = 5000 };

    return (struct flow){.from = from,
                         .to = to,
                         .number = 3,
                         .inbox = inbox_of(e, to, 3, LONGEST, room),
                         .total = total,
                         .longest = LONGEST};
}

void test_M3_one_sender_in_order(void **state) {
    struct course course = {.count = 1};
    struct engines e;

    engines_open(&e, state, NULL);
    course.flows[0] = flow_of(&e, 1, 0, 24, 400);
    course_run(&e, &course);
    engines_close(&e);
}

void test_M3_one_sender_in_order_over_many_qps(void **state) {
    const struct engines_options options = {.count = 2, .qps = 4, .bytes = ENGINE_BYTES};
    struct course course = {.count = 1};
    struct engines e;

    engines_open(&e, state, &options);
    course.flows[0] = flow_of(&e, 1, 0, 24, 400);
    course_run(&e, &course);
    engines_close(&e);
}

void test_M3_both_ways_in_order(void **state) {
    struct course course = {.count = 2};
    struct engines e;

    engines_open(&e, state, NULL);
    course.flows[0] = flow_of(&e, 1, 0, 24, 300);
    course.flows[1] = flow_of(&e, 0, 1, 24, 300);
    course_run(&e, &course);
    engines_close(&e);
}

/* Both have more to send than there is room for, down to a single chunk. */
void test_M5_two_senders_share_an_inbox(void **state) {
    const struct engines_options options = {.count = 3, .qps = 1, .bytes = ENGINE_BYTES};
    for (uint32_t room = 1; room <= 3; room++) {
        struct course course = {.count = 2};
        struct engines e;
        engines_open(&e, state, &options);
        course.flows[0] = (struct flow){.from = 1,
                                        .number = 3,
                                        .inbox = inbox_of(&e, 0, 3, LONG, room),
                                        .total = 100,
                                        .longest = LONG};
        course.flows[1] = course.flows[0];
        course.flows[1].from = 2;
        course_run(&e, &course);
        engines_close(&e);
    }
}

/* ---- messages that are held --------------------------------------------- */

void test_M5_S13_held_and_given_back_in_any_order(void **state) {
    struct course course = {.count = 1, .hold = 12};
    struct engines e;

    engines_open(&e, state, NULL);
    course.flows[0] = flow_of(&e, 1, 0, 24, 400);
    course_run(&e, &course);
    engines_close(&e);
}

/* One fills a chunk: each that is given back makes room for the next one, which goes there while
 * the others are held. */
void test_M5_room_comes_back_in_any_order(void **state) {
    enum { CHUNKS = 4, ALL = 12, ALONE = 140000 };
    static const uint32_t order[CHUNKS] = {2, 0, 3, 1};
    weir_transfer transfers[ALL];
    weir_message held[CHUNKS];
    struct engines e;

    engines_open(&e, state, NULL);
    weir_inbox inbox = inbox_of(&e, 0, 1, ALONE, CHUNKS);
    for (uint64_t i = 0; i < ALL; i++)
        transfers[i] = send_to(&e, 1, 0, 1, i, ALONE);
    for (uint64_t i = 0; i < CHUNKS; i++)
        held[i] = take(&e, 0, inbox, 1, i, ALONE);
    for (uint64_t next = CHUNKS; next < ALL; next++) {
        weir_message *oldest = &held[order[next % CHUNKS]];
        some_turns(&e);
        assert_none(&e, 0, inbox);
        for (uint32_t i = 0; i < CHUNKS; i++)
            assert_content(&e, &held[i]);
        give_back(&e, 0, oldest);
        assert_status(weir_message_give_back(e.of[0], oldest), WEIR_ESTALE, "given back twice");
        *oldest = take(&e, 0, inbox, 1, next, ALONE);
    }
    for (uint32_t i = 0; i < CHUNKS; i++)
        give_back(&e, 0, &held[i]);
    for (uint32_t i = 0; i < ALL; i++)
        assert_status(finish(&e, 1, transfers[i]), WEIR_OK, "a message");
    engines_close(&e);
}

/* ---- full inboxes ------------------------------------------------------- */

/* What goes on beside a full inbox: of the same sender another inbox, a write that notifies, and a
 * read; and another sender. */
static void others_go_on(struct engines *e, weir_inbox other, weir_remote remote, uint64_t i) {
    weir_transfer_options options = tagged(i, WEIR_TRANSFER_NOTIFY);
    weir_segment segment = {.local = e->memory[1], .remote = remote, .length = 4096};
    weir_notification note;
    weir_transfer transfer = send_to(e, 1, 0, 2, i, LONG);

    assert_status(finish(e, 1, transfer), WEIR_OK, "another inbox");
    take_and_give_back(e, 0, other, 1, i, LONG);
    assert_status(finish(e, 2, send_to(e, 2, 0, 2, i, SHORT)), WEIR_OK, "another sender");
    take_and_give_back(e, 0, other, 2, i, SHORT);
    transfer.id = 0;
    assert_status(weir_write(e->of[1], e->peers[1][0], &segment, 1, &options, &transfer), WEIR_OK,
                  "write");
    assert_status(finish(e, 1, transfer), WEIR_OK, "a write");
    UNTIL(e, weir_notification_take(e->of[0], &note) == WEIR_OK);
    assert_int_equal(note.tag, i);
    assert_memory_equal(e->bytes[0], e->bytes[1], 4096);
    segment.local_offset = ENGINE_BYTES - 4096; /* no message is sent from there */
    segment.remote_offset = 100000;
    transfer.id = 0;
    assert_status(weir_read(e->of[1], e->peers[1][0], &segment, 1, NULL, &transfer), WEIR_OK,
                  "read");
    assert_status(finish(e, 1, transfer), WEIR_OK, "a read");
    assert_memory_equal(e->bytes[1] + segment.local_offset, e->bytes[0] + 100000, 4096);
}

void test_M5_a_full_inbox_holds_up_nobody_else(void **state) {
    const struct engines_options options = {.count = 3, .qps = 1, .bytes = ENGINE_BYTES};
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_transfer transfers[3];
    weir_remote remote;
    struct engines e;

    engines_open(&e, state, &options);
    weir_inbox full = inbox_of(&e, 0, 1, LONG, 1), other = inbox_of(&e, 0, 2, LONG, 2);
    assert_status(weir_memory_export(e.of[0], e.memory[0], descriptor, &length), WEIR_OK, "export");
    assert_status(weir_memory_import(e.of[1], e.peers[1][0], descriptor, length, &remote), WEIR_OK,
                  "import");
    for (uint64_t i = 0; i < 3; i++)
        transfers[i] = send_to(&e, 1, 0, 1, i, LONG);
    assert_status(finish(&e, 1, transfers[0]), WEIR_OK, "the first");
    for (uint32_t i = 1; i < 3; i++)
        UNTIL(&e, weir_transfer_waiting_for(e.of[1], transfers[i]) == WEIR_WAITING_CREDITS);
    for (uint64_t i = 0; i < 10; i++)
        others_go_on(&e, other, remote, i);
    for (uint64_t i = 0; i < 3; i++) {
        weir_message got = take(&e, 0, full, 1, i, LONG);
        some_turns(&e); /* there is room when it is given back, and not when it is taken */
        for (uint64_t k = i + 1; k < 3; k++)
            assert_status(status_of(&e, 1, transfers[k]), WEIR_EINPROGRESS, "without room");
        give_back(&e, 0, &got);
    }
    for (uint32_t i = 1; i < 3; i++)
        assert_status(finish(&e, 1, transfers[i]), WEIR_OK, "with room");
    engines_close(&e);
}
