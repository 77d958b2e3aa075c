/* SPDX-License-Identifier: Apache-2.0 */
/* test_messages_direct.c: messages that are written in place, through weir.h over shm: receivers
 * that sleep in each way while they are written, several threads on either side, every size, ends
 * of those behind, closed inboxes (M1, M2, M3, M5, M7,
 * S12). */
#define _POSIX_C_SOURCE 200809L
#include "message_side.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- sleepers ---------------------------------------------------------- */

enum { ROUNDS = 3000 };

static uint32_t random_next(uint32_t *random) {
    *random = *random * 1664525 + 1013904223;
    return *random >> 8;
}

/* From nothing to longer than it takes to fall asleep. */
static void pause_at_random(uint32_t *random) {
    uint32_t choice = random_next(random) % 4, much = random_next(random);
    if (choice == 0) {
        const struct timespec pause = {.tv_nsec = much % 100000};
        nanosleep(&pause, NULL);
    } else if (choice == 1) {
        sched_yield();
    } else if (choice == 2) {
        for (volatile uint32_t i = much % 3000; i > 0;)
            i = i - 1;
    }
}

enum how { IN_WAIT, IN_POLL, HOWS };

struct sleeper {
    struct side *side;
    weir_inbox inbox;
    enum how how;
    _Atomic uint64_t *taken, total;
    const char *wrong;
};

/* Makes progress and arms, as an application with a loop of its own. */
static void sleep_in_poll(struct sleeper *sleeper) {
    weir_engine *engine = sleeper->side->engine;
    struct pollfd fd = {.fd = weir_engine_fd(engine), .events = POLLIN};
    uint64_t timeout_ns = 0;
    int rc;

    if (weir_engine_progress(engine) > 0)
        return;
    rc = weir_engine_arm(engine, &timeout_ns);
    if (rc != WEIR_OK && rc != WEIR_EAGAIN)
        sleeper->wrong = "arm";
    if (rc == WEIR_OK)
        poll(&fd, 1,
             timeout_ns < PATIENCE_NS ? (int)(timeout_ns / MS) + 1 : (int)(PATIENCE_NS / MS));
}

/* Takes until so many were taken, by anybody. */
static void *sleeper_main(void *argument) {
    struct sleeper *sleeper = argument;
    uint64_t end = now_ns() + PATIENCE_NS;

    while (*sleeper->taken < sleeper->total && sleeper->wrong == NULL) {
        weir_message got;
        if (weir_message_take(sleeper->side->engine, sleeper->inbox, &got) == WEIR_OK) {
            if (weir_message_give_back(sleeper->side->engine, &got) != WEIR_OK)
                sleeper->wrong = "give back";
            atomic_fetch_add(sleeper->taken, 1);
        } else if (now_ns() > end) {
            sleeper->wrong = "never";
        } else if (sleeper->how == IN_POLL) {
            sleep_in_poll(sleeper);
        } else {
            weir_engine_wait(sleeper->side->engine, PATIENCE_NS);
        }
    }
    return NULL;
}

static void open_with(struct side *a, struct side *b, uint32_t flags) {
    weir_engine_options limits = side_options();

    limits.flags |= flags;
    side_open(a, NULL);
    side_open(b, &limits);
    side_join(a, b);
    connect_now(a, b);
    fill_pattern(a->bytes, a->length, 0);
}

/* Two engines, and b's sleeper. */
static struct sleeper sleeper_with(struct side *a, struct side *b, enum how how, uint32_t flags,
                                   _Atomic uint64_t *taken) {
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    open_with(a, b, flags);
    return (struct sleeper){.side = b,
                            .inbox = inbox_of(b, 5, 1000, 8),
                            .how = how,
                            .taken = taken,
                            .total = (uint64_t)ROUNDS};
}

/* As sleeper_main, but takes some at once, and goes to sleep behind each call: it may have left
 * messages there. */
static void *sipper_main(void *argument) {
    struct sleeper *sleeper = argument;
    weir_engine *engine = sleeper->side->engine;
    uint64_t end = now_ns() + PATIENCE_NS;
    uint32_t random = 3;

    while (*sleeper->taken < sleeper->total && sleeper->wrong == NULL) {
        weir_message got[4];
        size_t count = 0;
        if (weir_message_take_many(engine, sleeper->inbox, got, 1 + random_next(&random) % 4,
                                   &count) == WEIR_OK &&
            weir_message_give_back_many(engine, got, count) != WEIR_OK)
            sleeper->wrong = "give back";
        for (size_t i = 0; i < count; i++) {
            if (got[i].tag != atomic_fetch_add(sleeper->taken, 1))
                sleeper->wrong = "order";
        }
        if (count == 0 && now_ns() > end)
            sleeper->wrong = "never";
        else if (sleeper->how == IN_POLL)
            sleep_in_poll(sleeper);
        else
            weir_engine_wait(engine, *sleeper->taken < sleeper->total ? PATIENCE_NS : 0);
    }
    return NULL;
}

/* Messages come in bursts of one call, and all of a burst are taken before the next. */
static void sips(enum how how, uint32_t flags) {
    enum { BURST = 20 };
    struct side a, b;
    pthread_t thread;
    _Atomic uint64_t taken = 0;
    uint32_t random = 7;
    weir_part part = {.base = "message", .length = 7};
    weir_outgoing out[BURST];
    weir_transfer transfers[BURST];

    struct sleeper sleeper = sleeper_with(&a, &b, how, flags, &taken);
    assert_int_equal(pthread_create(&thread, NULL, sipper_main, &sleeper), 0);
    uint64_t end = now_ns() + PATIENCE_NS, sent = 0;
    while (sent < sleeper.total) {
        size_t count = 1 + random_next(&random) % BURST, some = 0;
        if (count > sleeper.total - sent)
            count = sleeper.total - sent;
        for (size_t i = 0; i < count; i++)
            out[i] = (weir_outgoing){&part, 1, sent + i};
        assert_int_equal(
            weir_message_send_many(a.engine, a.peer, 5, out, count, NULL, transfers, &some),
            WEIR_OK);
        assert_int_equal(some, count);
        sent += count;
        while (taken < sent) {
            weir_engine_progress(a.engine);
            if (now_ns() > end)
                fail_msg("message %d of %d is not taken", (int)taken, (int)sent);
        }
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(weir_transfer_wait(a.engine, transfers[i], PATIENCE_NS), WEIR_OK);
            assert_int_equal(weir_transfer_release(a.engine, transfers[i]), WEIR_OK);
        }
        pause_at_random(&random);
    }
    pthread_join(thread, NULL);
    assert_null(sleeper.wrong);
    assert_in_range(stats_of(&a).transfers_inline, sent / 4, sent);
    pair_close(&a, &b);
}

static void test_M7_none_is_slept_over_in_wait(void **state) {
    (void)state;
    sips(IN_WAIT, 0);
    sips(IN_WAIT, WEIR_ENGINE_THREAD);
}

static void test_M7_none_is_slept_over_in_poll(void **state) {
    (void)state;
    sips(IN_POLL, 0);
    sips(IN_POLL, WEIR_ENGINE_THREAD);
}

/* Each message is taken before the next is sent: the receiver falls asleep in between, or is about
 * to, at each of its steps. */
static void sleeps(enum how how, uint32_t flags) {
    struct side a, b;
    pthread_t thread;
    _Atomic uint64_t taken = 0;
    uint32_t random = 7;

    struct sleeper sleeper = sleeper_with(&a, &b, how, flags, &taken);
    assert_int_equal(pthread_create(&thread, NULL, sleeper_main, &sleeper), 0);
    uint64_t end = now_ns() + PATIENCE_NS;
    for (uint64_t i = 0; i < sleeper.total; i++) {
        weir_transfer transfer = send_one(&a, 5, i, random_next(&random) % 1000);
        while (taken <= i) {
            weir_engine_progress(a.engine);
            if (now_ns() > end)
                fail_msg("message %d is not taken", (int)i);
        }
        assert_int_equal(weir_transfer_wait(a.engine, transfer, PATIENCE_NS), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
        pause_at_random(&random);
    }
    pthread_join(thread, NULL);
    assert_null(sleeper.wrong);
    assert_in_range(stats_of(&a).transfers_inline, sleeper.total / 2, sleeper.total);
    assert_int_equal(look(&b, sleeper.inbox).taken, sleeper.total);
    pair_close(&a, &b);
}

static void test_M7_none_is_lost_in_wait(void **state) {
    (void)state;
    sleeps(IN_WAIT, 0);
}

static void test_M7_none_is_lost_in_poll(void **state) {
    (void)state;
    sleeps(IN_POLL, 0);
}

static void test_M7_none_is_lost_in_wait_with_a_thread(void **state) {
    (void)state;
    sleeps(IN_WAIT, WEIR_ENGINE_THREAD);
}

static void test_M7_none_is_lost_in_poll_with_a_thread(void **state) {
    (void)state;
    sleeps(IN_POLL, WEIR_ENGINE_THREAD);
}

/* Both sides answer each message, and sleep until the next. */
struct player {
    struct side *side;
    weir_inbox inbox;
    uint64_t total;
    bool begins;
    _Atomic bool *done;
    const char *wrong;
};

static void play(struct player *player, uint64_t tag) {
    weir_transfer_options options = tagged(tag, 0);
    weir_transfer transfer;

    if (try_send(player->side, player->side->peer, 5, tag % 192, &options, &transfer) != WEIR_OK ||
        weir_transfer_release(player->side->engine, transfer) != WEIR_OK)
        player->wrong = "send";
}

static void *player_main(void *argument) {
    struct player *player = argument;
    weir_engine *engine = player->side->engine;
    uint64_t end = now_ns() + PATIENCE_NS;

    for (uint64_t i = 0; i < player->total && player->wrong == NULL; i++) {
        weir_message got;
        int rc;
        if (player->begins)
            play(player, i);
        while ((rc = weir_message_take(engine, player->inbox, &got)) == WEIR_EAGAIN &&
               player->wrong == NULL && now_ns() < end)
            weir_engine_wait(engine, PATIENCE_NS);
        if (rc != WEIR_OK || got.tag != i || weir_message_give_back(engine, &got) != WEIR_OK)
            player->wrong = "take";
        if (!player->begins)
            play(player, i);
    }
    if (player->begins)
        *player->done = true;
    while (!*player->done && now_ns() < end) /* the last answer may have to be said */
        weir_engine_wait(engine, MS);
    return NULL;
}

static void test_M7_both_sides_sleep(void **state) {
    struct side sides[2];
    struct player players[2];
    pthread_t threads[2];
    _Atomic bool done = false;

    (void)state;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    open_pair(&sides[0], &sides[1]);
    for (int i = 0; i < 2; i++)
        players[i] = (struct player){.side = &sides[i],
                                     .inbox = inbox_of(&sides[i], 5, 1000, 4),
                                     .total = (uint64_t)ROUNDS,
                                     .begins = i == 0,
                                     .done = &done};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, player_main, &players[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        assert_null(players[i].wrong);
    pair_close(&sides[0], &sides[1]);
}

/* ---- several threads --------------------------------------------------- */

struct sender {
    struct side *side;
    uint64_t number, count;
    int rc;
};

static void *sender_main(void *argument) {
    struct sender *sender = argument;
    uint32_t random = (uint32_t)sender->number;
    uint64_t end = now_ns() + PATIENCE_NS;

    for (uint64_t i = 0; i < sender->count && sender->rc == WEIR_OK; i++) {
        weir_transfer_options options = tagged(sender->number << 32 | i, WEIR_TRANSFER_BLOCK);
        weir_transfer transfer;
        do /* it may be blocked for longer than it waits */
            sender->rc =
                try_send(sender->side, sender->side->peer, 5, i % 192, &options, &transfer);
        while (sender->rc == WEIR_EAGAIN && now_ns() < end);
        if (sender->rc == WEIR_OK)
            sender->rc = weir_transfer_release(sender->side->engine, transfer);
        if (i % 8 == 0)
            pause_at_random(&random);
    }
    return NULL;
}

/* Two threads send, one takes: of each thread in its order. */
static void test_M2_two_threads_send(void **state) {
    struct sender senders[2];
    pthread_t threads[2];
    uint64_t next[2] = {0};
    struct side a, b;

    (void)state;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 1000, 8);
    for (uint64_t i = 0; i < 2; i++) {
        senders[i] = (struct sender){.side = &a, .number = i, .count = (uint64_t)ROUNDS};
        assert_int_equal(pthread_create(&threads[i], NULL, sender_main, &senders[i]), 0);
    }
    uint64_t end = now_ns() + PATIENCE_NS;
    for (uint64_t taken = 0; taken < 2 * (uint64_t)ROUNDS;) {
        weir_message got;
        assert_true(now_ns() < end);
        weir_engine_progress(a.engine); /* for what the threads left */
        if (weir_message_take(b.engine, inbox, &got) != WEIR_OK) {
            weir_engine_wait(b.engine, MS);
            continue;
        }
        assert_in_range(got.tag >> 32, 0, 1);
        assert_int_equal(got.tag & UINT32_MAX, next[got.tag >> 32]);
        assert_content(&got, next[got.tag >> 32]++ % 192);
        give_back(&b, &got);
        taken++;
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(senders[i].rc, WEIR_OK);
    }
    assert_none(&b, inbox);
    pair_close(&a, &b);
}

/* Two threads take, one in each way, and two send: each message is taken by one of them. */
static void test_M2_two_threads_take(void **state) {
    struct sender senders[2];
    struct sleeper sleepers[2];
    pthread_t threads[4];
    _Atomic uint64_t taken = 0;
    struct side a, b;

    (void)state;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 1000, 8);
    for (uint64_t i = 0; i < 2; i++) {
        senders[i] = (struct sender){.side = &a, .number = i, .count = (uint64_t)ROUNDS};
        sleepers[i] = (struct sleeper){.side = &b,
                                       .inbox = inbox,
                                       .how = IN_WAIT,
                                       .taken = &taken,
                                       .total = 2 * (uint64_t)ROUNDS};
        assert_int_equal(pthread_create(&threads[i], NULL, sender_main, &senders[i]), 0);
        assert_int_equal(pthread_create(&threads[2 + i], NULL, sleeper_main, &sleepers[i]), 0);
    }
    uint64_t end = now_ns() + PATIENCE_NS;
    while (taken < 2 * (uint64_t)ROUNDS && now_ns() < end)
        weir_engine_progress(a.engine);
    assert_int_equal(taken, 2 * (uint64_t)ROUNDS);
    for (uint64_t i = 0; i < 2; i++) /* one of them may sleep still, or both have left */
        assert_int_equal(finish(&a, &b, send_one(&a, 5, i, 8)), WEIR_OK);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(senders[i].rc, WEIR_OK);
        assert_null(sleepers[i].wrong);
    }
    assert_in_range(look(&b, inbox).taken, 2 * (uint64_t)ROUNDS, 2 * (uint64_t)ROUNDS + 2);
    pair_close(&a, &b);
}

/* ---- sizes ------------------------------------------------------------- */

static void test_M2_direct_messages_of_all_sizes(void **state) {
    enum { LONGEST = 8 * MIB, PARTS = 20 };
    static const uint64_t sizes[] = {0,       1,       23,          24,     39,    40,      41,
                                     63,      64,      65,          191,    192,   193,     4095,
                                     4096,    65471,   65472,       65473,  65536, MIB - 1, MIB,
                                     MIB + 1, 5000000, LONGEST - 1, LONGEST};
    struct side a, b;
    uint32_t random = 3;
    uint64_t tag = 0;

    (void)state;
    side_open_bytes(&a, NULL, LONGEST);
    side_open_bytes(&b, NULL, SIDE_BYTES);
    side_join(&a, &b);
    connect_now(&a, &b);
    fill_pattern(a.bytes, LONGEST, 0);
    weir_inbox inbox = inbox_of(&b, 7, LONGEST, 2);
    for (uint32_t pieces = 1; pieces <= PARTS; pieces = pieces == 1 ? 2 : pieces * 2 - 1) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            weir_part parts[PARTS];
            weir_transfer_options options = tagged(tag, 0);
            weir_transfer transfer;
            uint64_t at = 0;
            for (uint32_t p = 0; p < pieces; p++) {
                uint64_t left = sizes[i] - at;
                uint64_t length = p + 1 == pieces ? left : random_next(&random) % (left + 1);
                parts[p] = (weir_part){.local = a.memory, .offset = at, .length = length};
                if (sizes[i] <= WEIR_MESSAGE_COPY_MAX && p % 3 == 1)
                    parts[p] = (weir_part){.base = a.bytes, .offset = at, .length = length};
                at += length;
            }
            assert_int_equal(
                weir_message_send(a.engine, a.peer, 7, parts, pieces, &options, &transfer),
                WEIR_OK);
            weir_message got;
            STEP_UNTIL(&a, &b, weir_message_take(b.engine, inbox, &got) == WEIR_OK);
            assert_int_equal(got.tag, tag++);
            assert_int_equal(got.length, sizes[i]);
            assert_memory_equal(got.data, a.bytes, sizes[i]);
            give_back(&b, &got);
            assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
        }
    }
    assert_int_equal(look(&b, inbox).spoiled, 0);
    pair_close(&a, &b);
}

/* ---- room, ends, closed inboxes ---------------------------------------- */

/* Messages that do not fit wait behind direct ones. Some end early; the others come in order. */
static void test_S12_ends_behind_direct_messages(void **state) {
    enum { MESSAGES = 24 };
    weir_transfer transfers[MESSAGES];
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 1, 100, 4);
    assert_int_equal(finish(&a, &b, send_one(&a, 1, 1000, 8)), WEIR_OK);
    take_and_give_back(&b, &a, inbox, 1000, 8); /* the memory is known */
    for (uint64_t round = 0; round < 20; round++) {
        bool ends[MESSAGES] = {false};
        for (uint64_t i = 0; i < MESSAGES; i++) {
            weir_transfer_options options = tagged(100 * round + i, 0);
            if (i % 5 == 3)
                options.timeout_ns = 1;
            transfers[i] = send_with(&a, 1, i * 4, &options);
        }
        for (uint64_t i = 1; i < MESSAGES; i += 3)
            weir_transfer_cancel(a.engine, transfers[i]);
        some_steps(&a, &b);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            int status = status_of(&a, transfers[i]);
            ends[i] = status == WEIR_ECANCELED || status == WEIR_ETIMEDOUT;
            if (status == WEIR_ECANCELED)
                assert_int_equal(i % 3, 1);
            if (status == WEIR_ETIMEDOUT)
                assert_int_equal(i % 5, 3);
        }
        for (uint64_t i = 0; i < MESSAGES; i++) {
            int status = finish(&a, &b, transfers[i]);
            if (status != WEIR_OK && !ends[i])
                assert_true(status == WEIR_ETIMEDOUT && i % 5 == 3);
            if (status == WEIR_OK)
                take_and_give_back(&b, &a, inbox, 100 * round + i, i * 4);
        }
        assert_none(&b, inbox);
    }
    assert_int_equal(look(&b, inbox).held, 0);
    pair_close(&a, &b);
}

/* There is room for a short one, and not for the long one that waits in front of it. */
static void test_M3_a_direct_message_passes_none_that_waits(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 1, LONG, 1);
    assert_int_equal(finish(&a, &b, send_one(&a, 1, 1000, 8)), WEIR_OK);
    take_and_give_back(&b, &a, inbox, 1000, 8);
    for (uint64_t round = 0; round < 50; round++) {
        weir_transfer transfers[6];
        for (uint64_t i = 0; i < 6; i++)
            transfers[i] = send_one(&a, 1, 10 * round + i, i % 2 == 0 ? LONG : 8 + i);
        for (uint64_t i = 0; i < 6; i++)
            take_and_give_back(&b, &a, inbox, 10 * round + i, i % 2 == 0 ? LONG : 8 + i);
        for (uint64_t i = 0; i < 6; i++)
            assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    }
    assert_none(&b, inbox);
    pair_close(&a, &b);
}

/* Two streams in one inbox, of which one is always full: neither waits for the other. */
static void test_M5_two_senders_share_an_inbox(void **state) {
    enum { TOTAL = 600 };
    struct side a, b, c;
    uint64_t sent[2] = {0}, taken[2] = {0};

    (void)state;
    open_three(&a, &b, &c);
    struct side *from[2] = {&a, &c};
    weir_inbox inbox = inbox_of(&b, 5, 100, 8);
    uint64_t end = now_ns() + PATIENCE_NS;
    while (taken[0] < TOTAL || taken[1] < TOTAL) {
        assert_true(now_ns() < end);
        for (int s = 0; s < 2; s++) {
            for (int n = 0; n < 12 && sent[s] < TOTAL; n++) {
                weir_transfer_options options = tagged((uint64_t)s << 32 | sent[s], 0);
                weir_transfer transfer;
                if (try_send(from[s], from[s]->peer, 5, sent[s] % 100, &options, &transfer) !=
                    WEIR_OK)
                    break;
                assert_int_equal(weir_transfer_release(from[s]->engine, transfer), WEIR_OK);
                sent[s]++;
            }
            weir_engine_progress(from[s]->engine);
        }
        weir_engine_progress(b.engine);
        weir_message got;
        while (weir_message_take(b.engine, inbox, &got) == WEIR_OK) {
            uint64_t s = got.tag >> 32;
            assert_int_equal(got.tag & UINT32_MAX, taken[s]);
            assert_content(&got, taken[s]++ % 100);
            give_back(&b, &got);
        }
    }
    assert_none(&b, inbox);
    side_close(&c);
    pair_close(&a, &b);
}

/* The inbox is closed, and opened again, while its sender writes. What was not taken is lost; what
 * comes is in order. */
static void test_M1_an_inbox_closes_while_messages_are_written(void **state) {
    enum { TIMES = 60 };
    struct side a, b;
    uint64_t tag = 0, next = 0;
    uint32_t random = 11;

    (void)state;
    open_pair(&a, &b);
    weir_inbox inbox = inbox_of(&b, 5, 200, 8);
    for (int n = 0; n < TIMES; n++) {
        uint64_t least = tag; /* one that was sent since comes, or the close hits it */
        weir_message got, held;
        bool holds = false;
        uint64_t end = now_ns() + PATIENCE_NS;
        for (uint32_t i = 0; i < 20 || next <= least; i++) {
            weir_transfer_options options = tagged(tag, 0);
            weir_transfer transfer;
            assert_true(now_ns() < end);
            if (try_send(&a, a.peer, 5, tag % 192, &options, &transfer) == WEIR_OK) {
                assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
                tag++;
            }
            if (random_next(&random) % 2 == 0)
                weir_engine_progress(a.engine);
            if (random_next(&random) % 2 == 0)
                weir_engine_progress(b.engine);
            if (weir_message_take(b.engine, inbox, &got) != WEIR_OK)
                continue;
            assert_true(got.tag >= next && got.tag < tag);
            next = got.tag + 1;
            assert_content(&got, got.tag % 192);
            if (holds)
                give_back(&b, &got);
            else
                held = got;
            holds = true;
        }
        assert_int_equal(weir_inbox_close(b.engine, inbox), WEIR_OK);
        assert_int_equal(weir_message_take(b.engine, inbox, &got), WEIR_ESTALE);
        for (uint32_t i = random_next(&random) % 6; i > 0; i--) { /* they do not know yet */
            weir_transfer_options options = tagged(tag, 0);
            weir_transfer transfer;
            if (try_send(&a, a.peer, 5, tag % 192, &options, &transfer) == WEIR_OK) {
                assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
                tag++;
            }
        }
        assert_content(&held, held.tag % 192); /* it is the application's */
        if (n % 2 == 0)
            give_back(&b, &held);
        inbox = inbox_of(&b, 5, 200, 8);
        if (n % 2 == 1)
            give_back(&b, &held);
    }
    pair_close(&a, &b);
}

struct repeater {
    struct side *side;
    _Atomic bool stops;
    int rc;
};

/* One message after another to inbox 5, which is there, or is not. */
static void *repeater_main(void *argument) {
    struct repeater *repeater = argument;
    weir_engine *engine = repeater->side->engine;

    for (uint64_t i = 0; !repeater->stops && repeater->rc == WEIR_OK; i++) {
        weir_transfer_options options = tagged(i, 0);
        weir_transfer transfer;
        repeater->rc = try_send(repeater->side, repeater->side->peer, 5, 5, &options, &transfer);
        if (repeater->rc != WEIR_OK)
            break;
        while (weir_transfer_wait(engine, transfer, PATIENCE_NS) == WEIR_EINPROGRESS &&
               !repeater->stops)
            continue;
        repeater->rc = weir_transfer_release(engine, transfer);
    }
    return NULL;
}

/* While an inbox is being made, another thread hears what is said of the one before it, which had
 * the same number. */
static void test_M1_opened_anew_while_others_hear(void **state) {
    enum { INBOXES = 300, EACH = 3 };
    struct side a, b;
    pthread_t thread;

    (void)state;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        skip();
    open_with(&a, &b, WEIR_ENGINE_THREAD);
    struct repeater repeater = {.side = &a};
    assert_int_equal(pthread_create(&thread, NULL, repeater_main, &repeater), 0);
    for (int round = 0; round < INBOXES; round++) {
        weir_inbox inbox = {0};
        uint64_t end = now_ns() + PATIENCE_NS;
        int rc, taken = 0;
        while ((rc = try_inbox(&b, 5, 1000, 4, 4, &inbox)) == WEIR_EAGAIN && now_ns() < end)
            weir_engine_wait(b.engine, MS);
        assert_int_equal(rc, WEIR_OK);
        while (taken < EACH && now_ns() < end) {
            weir_message got;
            if (weir_message_take(b.engine, inbox, &got) != WEIR_OK) {
                weir_engine_wait(b.engine, PATIENCE_NS);
                continue;
            }
            taken++;
            give_back(&b, &got);
        }
        assert_int_equal(taken, EACH);
        assert_int_equal(weir_inbox_close(b.engine, inbox), WEIR_OK);
    }
    repeater.stops = true;
    pthread_join(thread, NULL);
    assert_int_equal(repeater.rc, WEIR_OK);
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M7_none_is_slept_over_in_wait),
        cmocka_unit_test(test_M7_none_is_slept_over_in_poll),
        cmocka_unit_test(test_M7_none_is_lost_in_wait),
        cmocka_unit_test(test_M7_none_is_lost_in_poll),
        cmocka_unit_test(test_M7_none_is_lost_in_wait_with_a_thread),
        cmocka_unit_test(test_M7_none_is_lost_in_poll_with_a_thread),
        cmocka_unit_test(test_M7_both_sides_sleep),
        cmocka_unit_test(test_M2_two_threads_send),
        cmocka_unit_test(test_M2_two_threads_take),
        cmocka_unit_test(test_M2_direct_messages_of_all_sizes),
        cmocka_unit_test(test_S12_ends_behind_direct_messages),
        cmocka_unit_test(test_M3_a_direct_message_passes_none_that_waits),
        cmocka_unit_test(test_M5_two_senders_share_an_inbox),
        cmocka_unit_test(test_M1_an_inbox_closes_while_messages_are_written),
        cmocka_unit_test(test_M1_opened_anew_while_others_hear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
