/* SPDX-License-Identifier: Apache-2.0 */
/* test_share.c: messages whose data waits with their notes, and is written by one WR (S2, S3, S6,
 * S7, S11, S13). The peer and the device are the test's: see lone_engine.h. */
#include "lone_engine.h"

#include <string.h>

#include "own.h"

#define THERE "10.0.0.9:9"

enum {
    INBOX = 7,
    CREDITS = CREDIT_WORDS_WINDOW,
    COUNT = 5,     /* messages that wait */
    LENGTH = 300,  /* of each, */
    GAP = 20 + 64, /* and between two: the rest of a line, and a head */
    WRITTEN = COUNT * LENGTH + (COUNT - 1) * GAP
};

struct world {
    struct lone *lone;
    uint32_t n; /* of the peer's instance */
    weir_peer peer;
    weir_memory local;
    weir_remote remote;
    weir_transfer transfers[COUNT];
};
static uint8_t bytes[1 << 16];
static const weir_part little = {.base = bytes, .length = 8};
static uint32_t writes, sends; /* that were posted */
static struct weir_wr write;
static struct weir_sge pieces[16];

static void on_post(struct lone *lone, uint32_t qp, const struct weir_wr *wr) {
    (void)lone, (void)qp;
    sends += wr->opcode == WEIR_OP_SEND;
    if (wr->opcode != WEIR_OP_WRITE || wr->length == 0)
        return;
    writes++;
    write = *wr;
    assert_in_range(wr->pieces, 0, 16);
    if (wr->pieces > 0)
        memcpy(pieces, (const void *)(uintptr_t)wr->laddr, wr->pieces * sizeof(pieces[0]));
}

static weir_transfer send_one(struct world *world, const weir_part *part) {
    weir_transfer transfer;
    assert_int_equal(
        weir_message_send(world->lone->engine, world->peer, INBOX, part, 1, NULL, &transfer),
        WEIR_OK);
    lone_run(world->lone);
    return transfer;
}

static int status_of(struct world *world, uint32_t i) {
    return weir_transfer_status(world->lone->engine, world->transfers[i]);
}

/* The peer took up so many notes and words. */
static void credit(struct world *world, uint64_t count) {
    struct wire_data taken = {.kind = WIRE_CREDIT, .credit = count << 32};
    assert_true(lone_message(world->lone, 0, &taken));
    lone_run(world->lone);
}

/* A session with peer n, and an inbox there; no room so far, which one message waits for. */
static void join(struct world *world, struct lone *lone, uint32_t n, const char *there) {
    *world = (struct world){.lone = lone, .n = n};
    assert_int_equal(weir_peer_open(lone->engine, there, &world->peer), WEIR_OK);
    weir_peer_connect(lone->engine, world->peer);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, there);
    lone_say_iam(lone, conn, n, there);
    lone_answer(lone, conn, n, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_memories(lone, world->peer, n, bytes, sizeof(bytes), &world->local, &world->remote);
    lone->executes = true;
    send_one(world, &little); /* behind WANT, which takes a credit, too */
    assert_true(lone_inbox(lone, n - 1, 1, n, INBOX));
}

static struct lone *open_engine(uint32_t sq_depth, uint32_t transfers, uint64_t inflight) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.transfers_max = options.segments_max = transfers;
    options.memories_max = options.remotes_max = 4;
    options.peers_max = 4;
    options.sq_depth = sq_depth;
    options.inflight_bytes_max = inflight;
    return lone_open(&options);
}

static struct lone *meet(struct world *world, uint32_t sq_depth, uint32_t transfers) {
    struct lone *lone = open_engine(sq_depth, transfers, 0);
    join(world, lone, 1, THERE);
    return lone;
}

static void grant(struct world *world) {
    struct word word = {
        .kind = WORD_GRANT, .inbox = INBOX, .grant = {.place = 1, .secret = 5, .keep = true}};
    assert_true(lone_words(world->lone, world->n - 1, 2, &word));
    lone_run(world->lone);
}

/* A session, an inbox, room there; and messages without data that use up all credits. Then COUNT
 * that have some. */
static struct lone *begin_with(struct world *world, uint32_t sq_depth) {
    struct lone *lone = meet(world, sq_depth, 64);
    grant(world);
    for (int i = 2; i < CREDITS; i++)
        send_one(world, &little);
    writes = sends = 0;
    lone->on_post = on_post;
    for (uint32_t i = 0; i < COUNT; i++) {
        weir_part part = {.local = world->local, .offset = 1000 * i, .length = LENGTH};
        world->transfers[i] = send_one(world, &part);
    }
    lone_pass(lone, 20 * MS);
    assert_int_equal(writes + sends, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(status_of(world, i), WEIR_EINPROGRESS);
    return lone;
}

static struct lone *begin(struct world *world) {
    return begin_with(world, 64);
}

/* One WRITE gathered the data of all, and one SEND had their notes. */
static void assert_shared(struct world *world) {
    struct lone *lone = world->lone;
    assert_int_equal(writes, 1);
    assert_int_equal(sends, 1);
    assert_int_equal(write.length, WRITTEN);
    assert_int_equal(write.pieces, 2 * COUNT - 1);
    for (uint32_t i = 0; i < write.pieces; i++)
        assert_int_equal(pieces[i].length, i % 2 == 0 ? LENGTH : GAP);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(pieces[2 * i].laddr, (uint64_t)(uintptr_t)bytes + (uint64_t)1000 * i);
        assert_int_equal(status_of(world, i), WEIR_OK);
    }
    assert_int_equal(lone->engine->stats.messages_gathered, COUNT);
    assert_int_equal(lone->engine->stats.notes_shared, COUNT);
}

static void test_S2_data_waits_with_its_note(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world);
    credit(&world, 8);
    lone_pass(lone, 20 * MS);
    assert_shared(&world);
    lone_close(lone);
}

/* COUNT messages that have data, in one call; returns how many were sent. */
static size_t send_many(struct world *world) {
    weir_outgoing messages[COUNT];
    weir_part parts[COUNT];
    size_t sent;
    for (uint32_t i = 0; i < COUNT; i++) {
        parts[i] =
            (weir_part){.local = world->local, .offset = (uint64_t)1000 * i, .length = LENGTH};
        messages[i] = (weir_outgoing){.parts = &parts[i], .part_count = 1};
    }
    writes = sends = 0;
    world->lone->on_post = on_post;
    assert_int_equal(weir_message_send_many(world->lone->engine, world->peer, INBOX, messages,
                                            COUNT, NULL, world->transfers, &sent),
                     WEIR_OK);
    return sent;
}

/* Messages of one call share, though there are credits for each. They are posted in the call. */
static void test_S2_messages_of_one_call(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = meet(&world, 64, 64);
    grant(&world);
    assert_int_equal(send_many(&world), COUNT);
    assert_int_equal(sends, 1);
    lone_run(lone);
    assert_shared(&world);
    lone_close(lone);
}

/* Likewise messages that were sent one by one, and had to wait for room. */
static void test_S2_messages_that_waited_for_room(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = meet(&world, 64, 64);
    for (uint32_t i = 0; i < COUNT; i++) {
        weir_part part = {.local = world.local, .offset = (uint64_t)1000 * i, .length = LENGTH};
        world.transfers[i] = send_one(&world, &part);
    }
    writes = sends = 0;
    lone->on_post = on_post;
    grant(&world);
    assert_int_equal(writes, 1);
    assert_int_equal(sends, 1); /* with the note of the message before them, which has no data */
    assert_int_equal(lone->engine->stats.messages_gathered, COUNT);
    assert_int_equal(lone->engine->stats.notes_shared, COUNT + 1);
    assert_int_equal(write.length, WRITTEN);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(status_of(&world, i), WEIR_OK);
    lone_close(lone);
}

/* The call's last messages find no record. The first ones are posted all the same, though
 * another peer has had messages to post as well. */
static void test_S2_a_call_that_is_cut_short(void **state) {
    enum { RECORDS = 8, JOINED = 2 /* handles that nobody released */, FREE = 2 };
    (void)state;
    struct world other, world;
    struct lone *lone = open_engine(64, RECORDS, 0);
    join(&other, lone, 1, THERE);
    grant(&other);
    join(&world, lone, 2, "10.0.0.8:9");
    grant(&world);
    lone->executes = false;
    for (int i = 0; i < RECORDS - JOINED - FREE; i++) {
        weir_transfer transfer;
        assert_int_equal(
            weir_message_send(lone->engine, other.peer, INBOX, &little, 1, NULL, &transfer),
            WEIR_OK);
    }
    assert_int_equal(send_many(&world), FREE);
    assert_int_equal(sends, 1);
    assert_int_equal(lone->engine->stats.messages_gathered, FREE);
    lone_close(lone);
}

/* A message to one peer is handed over while another thread has the engine. That one leaves, and
 * before it serves what was left to it, a third sends to another peer: it serves both. */
static void test_S3_what_others_handed_over_is_served(void **state) {
    (void)state;
    struct world other, world;
    struct lone *lone = open_engine(64, 64, 0);
    join(&other, lone, 1, THERE);
    grant(&other);
    join(&world, lone, 2, "10.0.0.8:9");
    grant(&world);
    weir_transfer transfer;
    writes = sends = 0;
    lone->on_post = on_post;
    assert_true(own_try(lone->engine));
    assert_int_equal(
        weir_message_send(lone->engine, other.peer, INBOX, &little, 1, NULL, &transfer), WEIR_OK);
    assert_int_equal(sends, 0);
    own_let_go(lone->engine);
    assert_int_equal(
        weir_message_send(lone->engine, world.peer, INBOX, &little, 1, NULL, &transfer), WEIR_OK);
    assert_int_equal(sends, 2);
    lone_close(lone);
}

/* A message that waits for others' bytes in flight has no number: words that were said behind it
 * would have to wait for it, once too many are unfinished. */
static void test_S3_no_number_is_taken_while_others_bytes_are_in_flight(void **state) {
    enum { IN_FLIGHT = 4000, LONG = IN_FLIGHT - 10 };
    (void)state;
    struct world other, world;
    struct lone *lone = open_engine(64, 64, IN_FLIGHT);
    join(&other, lone, 1, THERE);
    join(&world, lone, 2, "10.0.0.8:9");
    grant(&world);
    const struct peer *peer = lone_peer(lone, 2);
    weir_segment segment = {.local = other.local, .remote = other.remote, .length = LONG};
    weir_transfer transfer;
    lone->slow_bytes = LONG;
    assert_int_equal(weir_write(lone->engine, other.peer, &segment, 1, NULL, &transfer), WEIR_OK);
    uint64_t next = peer->number_next;
    assert_int_equal(send_many(&world), COUNT);
    lone_run(lone);
    assert_int_equal(writes + sends, 0);
    assert_int_equal(weir_transfer_waiting_for(lone->engine, world.transfers[0]),
                     WEIR_WAITING_INFLIGHT);
    assert_int_equal(peer->number_next, next);
    lone->slow_bytes = 0;
    lone_pass(lone, 100 * MS);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(status_of(&world, i), WEIR_OK);
    lone_close(lone);
}

/* Cancelled before anything of them was posted. */
static void test_S13_data_that_waits_is_cancelled(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(weir_transfer_cancel(lone->engine, world.transfers[i]), WEIR_OK);
        lone_run(lone);
        assert_int_equal(status_of(&world, i), WEIR_ECANCELED);
    }
    credit(&world, 8);
    lone_pass(lone, 20 * MS);
    assert_int_equal(writes, 0); /* what is skipped has a note alone */
    assert_in_range(sends, 1, COUNT);
    lone_close(lone);
}

static int takes_one_of_more(struct lone *lone, uint32_t *count_io) {
    (void)lone;
    *count_io = *count_io > 1;
    return WEIR_EAGAIN;
}

/* The device takes the write, and not the SEND, nor anything behind it for now. While it reads the
 * messages' memory, none of them ends. */
static void test_S6_data_without_its_note(void **state) {
    (void)state;
    for (int cancels = 0; cancels <= 1; cancels++) {
        struct world world;
        struct lone *lone = begin(&world);
        lone->slow_bytes = WRITTEN;
        lone->refuse = takes_one_of_more;
        credit(&world, 8);
        assert_int_equal(lone->engine->stats.partial_posts, 1);
        for (uint32_t i = 0; cancels && i < COUNT; i++)
            assert_int_equal(weir_transfer_cancel(lone->engine, world.transfers[i]), WEIR_OK);
        lone_run(lone);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(status_of(&world, i), WEIR_EINPROGRESS);
        lone->refuse = NULL;
        lone->slow_bytes = 0;
        lone_pass(lone, 100 * MS);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(status_of(&world, i), cancels ? WEIR_ECANCELED : WEIR_OK);
        assert_int_equal(writes, 1);
        assert_int_equal(lone->engine->stats.orphans, lone->engine->stats.orphans_healed);
        lone_close(lone);
    }
}

/* Likewise, on short queues: the write never takes the slot of what closes it. */
static void test_S7_data_without_its_note_on_a_short_queue(void **state) {
    (void)state;
    for (uint32_t depth = 5; depth <= 16; depth++) {
        struct world world;
        struct lone *lone = begin_with(&world, depth);
        lone->refuse = takes_one_of_more;
        credit(&world, 8);
        lone->refuse = NULL;
        lone_pass(lone, 100 * MS);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(status_of(&world, i), WEIR_OK);
        assert_int_equal(lone->engine->stats.sessions_failed, 0);
        lone_close(lone);
    }
}

/* The target refuses the write: nobody knows for whose sake, so none of them ends for it. */
static void test_S11_nobody_is_blamed_for_what_is_shared(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world);
    lone->bad_bytes = WRITTEN;
    lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    credit(&world, 8);
    lone_pass(lone, 100 * MS);
    assert_int_equal(lone->engine->stats.sessions_failed, 1);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(status_of(&world, i), WEIR_EINPROGRESS);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S2_data_waits_with_its_note),
        cmocka_unit_test(test_S2_messages_of_one_call),
        cmocka_unit_test(test_S2_messages_that_waited_for_room),
        cmocka_unit_test(test_S2_a_call_that_is_cut_short),
        cmocka_unit_test(test_S3_what_others_handed_over_is_served),
        cmocka_unit_test(test_S3_no_number_is_taken_while_others_bytes_are_in_flight),
        cmocka_unit_test(test_S13_data_that_waits_is_cancelled),
        cmocka_unit_test(test_S6_data_without_its_note),
        cmocka_unit_test(test_S7_data_without_its_note_on_a_short_queue),
        cmocka_unit_test(test_S11_nobody_is_blamed_for_what_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
