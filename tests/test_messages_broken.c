/* SPDX-License-Identifier: Apache-2.0 */
/* test_messages_broken.c: messages over QPs that break and a device that stands still, on the
 * simulated device and on shm made to queue: each comes once, and in its order (M2, S9, S13). */
#include <string.h>

#include "sendqueue_world.h"

enum { LONGEST = 1000, WAITING = 24 };

static const uint64_t sim_ordered = 1, sim_unordered = 2, on_shm = 0;

static struct queue_world world;
static weir_inbox inboxes[2];
static weir_peer peers[2]; /* as each knows the other */

static uint64_t length_of(uint64_t tag) {
    return tag % 3 == 0 ? tag * 7 % 193 : 193 + tag * 13 % (LONGEST - 192);
}

/* False: not here. */
static bool begin(void **state, uint32_t qps) {
    uint64_t seed = *(const uint64_t *)*state;
    struct qw_options options = qw_options(seed);
    char address[WEIR_ADDRESS_MAX];
    if (seed == on_shm && !qw_has_shm())
        return false;
    options.unordered = seed == sim_unordered;
    options.limits.qp_count = qps;
    options.limits.connect_timeout_ns = 100 * SECOND;
    options.limits.retransmit_ns = MS;
    qw_open(&world, &options);
    qw_connect(&world);
    for (uint32_t i = 0; i < 2; i++) {
        weir_inbox_options inbox = WEIR_INBOX_OPTIONS_INIT;
        inbox.number = 3;
        inbox.message_bytes_max = LONGEST;
        inbox.peer_messages = inbox.messages = 200; /* some chunks */
        assert_int_equal(weir_inbox_open(world.engines[i], &inbox, &inboxes[i]), WEIR_OK);
        memset(world.bytes[i], 0x11 * ((int)i + 1), LONGEST);
    }
    peers[0] = world.peers[1];
    assert_int_equal(weir_engine_address(world.engines[0], address, sizeof(address)), WEIR_OK);
    assert_int_equal(weir_peer_open(world.engines[1], address, &peers[1]), WEIR_OK);
    return true;
}

static void end(void) {
    world.break_posts = 0;
    qw_assert_quiet(&world);
    assert_null(engine_verify(world.engines[1]));
    for (uint32_t i = 0; i < 2; i++) {
        weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
        assert_int_equal(weir_engine_query(world.engines[i], &stats), WEIR_OK);
        assert_int_equal(stats.data_malformed, 0);
    }
    qw_close(&world);
}

static int submit(uint32_t from, uint64_t tag, uint32_t flags, weir_transfer *transfer) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {.local = world.memory[from], .length = length_of(tag)};
    options.flags = flags;
    options.notify_tag = tag;
    return weir_message_send(world.engines[from], peers[from], 3, &part, 1, &options, transfer);
}

/* What came to `to`, given back at once: one that is not before `next`; false: none. */
static bool taken(uint32_t to, uint64_t next, uint64_t *tag) {
    weir_message got;
    if (weir_message_take(world.engines[to], inboxes[to], &got) != WEIR_OK)
        return false;
    assert_true(got.tag >= next);
    assert_int_equal(got.length, length_of(got.tag));
    for (uint64_t i = 0; i < got.length; i++)
        assert_int_equal(((const uint8_t *)got.data)[i], 0x11 * (2 - to));
    *tag = got.tag;
    assert_int_equal(weir_message_give_back(world.engines[to], &got), WEIR_OK);
    return true;
}

/* A session breaks every 20 or so messages of one side's; those of `senders` send `total` each. */
static void send_over_breaks(uint32_t senders, uint64_t total) {
    weir_transfer under_way[2][WAITING] = {{{0}}};
    uint64_t sent[2] = {0, 0}, ended[2] = {0, 0}, next[2] = {0, 0}, breaks = 0, tag;
    uint32_t turns = 0;
    while (next[1] < total || (senders == 2 && next[0] < total) || ended[0] < total) {
        assert_true(++turns < QW_TURNS_MAX);
        if (world.break_posts == 0 && qw_info(&world, 1).connected == 1)
            world.break_posts = 10 + (uint32_t)(breaks++ * 7 % 20);
        for (uint32_t s = 0; s < senders; s++) {
            while (sent[s] < total && sent[s] < ended[s] + WAITING &&
                   submit(s, sent[s], 0, &under_way[s][sent[s] % WAITING]) == WEIR_OK)
                sent[s]++;
            for (; ended[s] < sent[s]; ended[s]++) {
                weir_transfer oldest = under_way[s][ended[s] % WAITING];
                int status = weir_transfer_status(world.engines[s], oldest);
                if (status == WEIR_EINPROGRESS)
                    break;
                assert_int_equal(status, WEIR_OK);
                assert_int_equal(weir_transfer_release(world.engines[s], oldest), WEIR_OK);
            }
            while (taken(1 - s, next[1 - s], &tag))
                assert_int_equal(tag, next[1 - s]++);
        }
        qw_turn(&world);
    }
    world.break_posts = 0;
    for (uint32_t s = 0; s < senders; s++) {
        for (; ended[s] < total; ended[s]++) {
            weir_transfer oldest = under_way[s][ended[s] % WAITING];
            QW_UNTIL(&world, weir_transfer_status(world.engines[s], oldest) != WEIR_EINPROGRESS);
            assert_int_equal(weir_transfer_status(world.engines[s], oldest), WEIR_OK);
            assert_int_equal(weir_transfer_release(world.engines[s], oldest), WEIR_OK);
        }
        assert_false(taken(1 - s, total, &tag));
    }
    assert_true(breaks > 10);
    assert_true(qw_info(&world, 1).sessions > 10);
}

static void test_S9_messages_over_sessions_that_break(void **state) {
    if (!begin(state, 1))
        skip();
    send_over_breaks(1, 1000);
    end();
}

static void test_S9_messages_over_many_qps_that_break(void **state) {
    if (!begin(state, 4))
        skip();
    send_over_breaks(1, 1000);
    end();
}

static void test_S9_messages_both_ways_over_sessions_that_break(void **state) {
    if (!begin(state, 2))
        skip();
    send_over_breaks(2, 1000);
    end();
}

/* One that must not be sent twice may be lost, and then those behind it come still. */
static void test_S9_messages_that_are_not_sent_again(void **state) {
    enum { TOTAL = 600 };
    uint64_t sent = 0, ended = 0, next = 0, tag;
    static bool came[TOTAL];
    static int statuses[TOTAL];
    uint32_t unknown = 0;
    weir_transfer under_way[WAITING];
    if (!begin(state, 1))
        skip();
    memset(came, 0, sizeof(came));
    for (uint32_t turns = 0; ended < TOTAL; turns++) {
        assert_true(turns < QW_TURNS_MAX);
        if (world.break_posts == 0)
            world.break_posts = 10 + (uint32_t)(ended * 7 % 20);
        while (sent < TOTAL && sent < ended + WAITING &&
               submit(0, sent, sent % 2 == 0 ? WEIR_TRANSFER_ONCE : 0,
                      &under_way[sent % WAITING]) == WEIR_OK)
            sent++;
        while (ended < sent && qw_status(&world, under_way[ended % WAITING]) != WEIR_EINPROGRESS) {
            statuses[ended] = qw_finish(&world, under_way[ended % WAITING]);
            ended++;
        }
        while (taken(1, next, &tag)) {
            came[tag] = true;
            next = tag + 1;
        }
        qw_turn(&world);
    }
    world.break_posts = 0;
    for (uint64_t i = 0; i < TOTAL; i++) {
        assert_true(statuses[i] == WEIR_OK || (i % 2 == 0 && statuses[i] == WEIR_EUNKNOWN));
        unknown += statuses[i] != WEIR_OK;
        if (statuses[i] != WEIR_OK || came[i])
            continue;
        QW_UNTIL(&world, taken(1, next, &tag));
        came[tag] = true;
        next = tag + 1;
        i--; /* this one, or one before it of which nothing was known */
    }
    assert_true(unknown > 0);
    end();
}

/* With their WRs in a device that does not go on, which then does, or breaks. */
static void test_S13_cancelled_with_wrs_under_way(void **state) {
    enum { ALL = 12 };
    for (uint32_t which = 0; which < ALL; which++) {
        for (uint32_t breaks = 0; breaks < 2; breaks++) {
            weir_transfer transfers[ALL];
            uint64_t next = 0, tag;
            uint32_t came = 0, well = 0;
            if (!begin(state, 1))
                skip();
            assert_int_equal(submit(0, 100, 0, &transfers[0]), WEIR_OK); /* there is room now */
            assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
            QW_UNTIL(&world, taken(1, 0, &tag));
            for (int i = 0; i < 100; i++)
                qw_turn(&world);
            world.stalled = true;
            for (uint64_t i = 0; i < ALL; i++)
                assert_int_equal(submit(0, i, 0, &transfers[i]), WEIR_OK);
            for (int i = 0; i < 5; i++)
                qw_turn(&world);
            assert_int_equal(weir_transfer_cancel(world.engines[0], transfers[which]), WEIR_OK);
            for (int i = 0; i < 5; i++)
                qw_turn(&world);
            world.break_posts = breaks;
            world.stalled = false;
            for (uint32_t i = 0; i < ALL; i++) {
                int status = qw_finish(&world, transfers[i]);
                assert_true(status == WEIR_OK || (i == which && status == WEIR_ECANCELED));
                well |= (uint32_t)(status == WEIR_OK) << i;
            }
            while ((came & well) != well) {
                QW_UNTIL(&world, taken(1, next, &tag));
                came |= 1u << tag;
                next = tag + 1;
            }
            for (int i = 0; i < 200; i++)
                qw_turn(&world);
            assert_int_equal((came | well | 1u << which), (1u << ALL) - 1);
            assert_false(taken(1, next, &tag) && tag != which);
            end();
        }
    }
}

#define EVERYWHERE(test)                                                                           \
    {#test " (sim)", test, NULL, NULL, (void *)(uintptr_t)&sim_ordered},                           \
        {#test " (unordered)", test, NULL, NULL, (void *)(uintptr_t)&sim_unordered}, {             \
#test " (shm)", test, NULL, NULL, (void *)(uintptr_t)&on_shm                               \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        EVERYWHERE(test_S9_messages_over_sessions_that_break),
        EVERYWHERE(test_S9_messages_over_many_qps_that_break),
        EVERYWHERE(test_S9_messages_both_ways_over_sessions_that_break),
        EVERYWHERE(test_S9_messages_that_are_not_sent_again),
        EVERYWHERE(test_S13_cancelled_with_wrs_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
