/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_together.c: transfers of one WR each that had to wait for slots go several with
 * one doorbell (S2, S4, S6), on the simulated device, with and without order, and on shm made to
 * queue. So do the segments of a transfer.
 *
 * The queue stands still while it is filled; DEPTH transfers are in it then, and the rest
 * wait. From then on the transfers that go with them, their order, and those refused are looked
 * at. */
#include <string.h>

#include "sendqueue_world.h"

enum { DEPTH = 16, QUARTER = DEPTH / 4, WAITING = 24, ALL = DEPTH + WAITING, UNIT = 8 };

static const struct way {
    bool sim, unordered;
} on_sim = {.sim = true}, on_sim_unordered = {.sim = true, .unordered = true}, on_shm = {0};

static struct queue_world world;
static weir_transfer transfers[ALL];

static int submit(uint32_t number, uint64_t length) {
    uint64_t offset = (uint64_t)number * 64;
    weir_segment segment = qw_segment(&world, 1, offset, offset, length);
    return weir_write(world.engines[0], world.peers[1], &segment, 1, NULL, &transfers[number]);
}

static const struct way *way_of(void **state) {
    return *state;
}

/* False: not here. */
static bool has(const struct way *way, struct qw_options *options_out) {
    *options_out = qw_options(way->sim ? 1 : 0);
    options_out->unordered = way->unordered;
    return way->sim || qw_has_shm();
}

/* DEPTH in the queue, WAITING behind it. False: not here. */
static bool fill(void **state) {
    struct qw_options options;
    if (!has(way_of(state), &options))
        return false;
    options.limits.sq_depth = DEPTH + 1; /* one is kept for the teardown */
    options.limits.transfers_max = ALL;
    qw_open(&world, &options);
    qw_connect(&world);
    assert_int_equal(qw_info(&world, 1).sq_depth, DEPTH);
    memset(world.bytes[0], 0x5a, ALL * 64);
    world.stalled = true;
    for (uint32_t i = 0; i < ALL; i++)
        assert_int_equal(submit(i, UNIT), WEIR_OK);
    for (int i = 0; i < 5; i++)
        qw_turn(&world);
    assert_int_equal(qw_info(&world, 1).sq_used, DEPTH);
    assert_int_equal(qw_stats(&world).posts, DEPTH);
    return true;
}

static void finish(uint32_t number, int status) {
    assert_int_equal(qw_finish(&world, transfers[number]), status);
    if (status != WEIR_OK)
        return;
    for (uint32_t i = 0; i < UNIT; i++)
        assert_int_equal(world.bytes[1][number * 64 + i], 0x5a);
}

static void test_S2_who_waited_shares_a_doorbell(void **state) {
    if (!fill(state))
        skip();
    world.stalled = false;
    for (uint32_t i = 0; i < ALL; i++)
        finish(i, WEIR_OK);
    weir_engine_info stats = qw_stats(&world);
    /* A quarter of the depth at most with each; fewer where fewer slots came back at once. */
    assert_in_range(stats.posts - DEPTH, WAITING / QUARTER, WAITING * 2 / 3);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* The device takes k of a chain of them and refuses the rest for now: those are posted later,
 * and none of them twice. */
static void test_S6_partial_post_of_several_at_every_index(void **state) {
    for (uint32_t k = 0; k < QUARTER; k++) {
        if (!fill(state))
            skip();
        world.take_of_next = k;
        world.take_error = WEIR_EAGAIN;
        world.stalled = false;
        for (uint32_t i = 0; i < ALL; i++)
            finish(i, WEIR_OK);
        weir_engine_info stats = qw_stats(&world);
        assert_int_equal(world.takes, 1);
        assert_int_equal(stats.partial_posts, k > 0);
        assert_int_equal(stats.orphans, way_of(state)->unordered ? 0 : k);
        assert_int_equal(stats.orphans_healed, stats.orphans);
        assert_int_equal(stats.transfers_ok, ALL);
        assert_int_equal(qw_info(&world, 1).sessions, 1);
        qw_assert_quiet(&world);
        qw_close(&world);
        world.takes = 0;
    }
}

/* The device says of WR k that it can never go: its transfer ends, and no other. */
static void test_S6_one_of_several_that_is_impossible(void **state) {
    for (uint32_t k = 0; k < QUARTER; k++) {
        uint32_t bad = 0;
        if (!fill(state))
            skip();
        world.take_of_next = k;
        world.take_error = WEIR_EINVAL;
        world.stalled = false;
        for (uint32_t i = 0; i < ALL; i++) {
            int status = qw_finish(&world, transfers[i]);
            assert_true(status == WEIR_OK || status == WEIR_EINVAL);
            if (status == WEIR_EINVAL) {
                bad++;
                assert_in_range(i, DEPTH + k, ALL - 1); /* of its chain, k went before it */
            }
        }
        assert_int_equal(world.takes, 1);
        assert_int_equal(bad, 1);
        assert_int_equal(qw_info(&world, 1).sessions, 1);
        qw_assert_quiet(&world);
        qw_close(&world);
        world.takes = 0;
    }
}

/* A session that breaks with several in one chain takes nobody along. */
static void test_S9_together_in_a_session_that_breaks(void **state) {
    if (!fill(state))
        skip();
    world.break_posts = 2;
    world.stalled = false;
    for (uint32_t i = 0; i < ALL; i++)
        finish(i, WEIR_OK);
    assert_int_equal(qw_info(&world, 1).sessions, 2);
    assert_true(qw_stats(&world).replays > 0);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* A chain is taken in part; a completion lets the QP go on, but the empty write that is to
 * close what was taken is refused for good: the session breaks under the peer's turn, and
 * nothing is pending any more. */
static void test_S7_closing_an_orphan_breaks_the_session(void **state) {
    struct qw_options options;
    weir_segment segments[10];
    weir_transfer first, chain;
    if (!has(way_of(state), &options))
        skip();
    options.limits.sq_depth = 128;
    qw_open(&world, &options);
    qw_connect(&world);
    for (uint32_t i = 0; i < 10; i++)
        segments[i] = qw_segment(&world, 1, i * 64, i * 64, UNIT);
    world.stalled = true;
    assert_int_equal(weir_write(world.engines[0], world.peers[1], segments, 1, NULL, &first),
                     WEIR_OK);
    world.take_of_next = 3;
    world.take_error = WEIR_EAGAIN;
    world.empty_error = WEIR_EDEVICE;
    assert_int_equal(weir_write(world.engines[0], world.peers[1], segments, 10, NULL, &chain),
                     WEIR_OK);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, first), WEIR_OK);
    assert_int_equal(qw_finish(&world, chain), WEIR_OK);
    assert_int_equal(world.empty_error, WEIR_OK);
    assert_int_equal(qw_info(&world, 1).sessions, 2);
    qw_assert_quiet(&world);
    qw_close(&world);
    world.takes = 0;
}

/* The segments of a transfer, of which the device takes k of one chain and refuses the rest for
 * now. Without order each WR has a completion of its own, and none is an orphan. */
static void test_S6_partial_post_of_a_chain_at_every_index(void **state) {
    enum { SEGMENTS = 4 * QUARTER };
    for (uint32_t k = 0; k < QUARTER; k++) {
        struct qw_options options;
        weir_segment segments[SEGMENTS];
        weir_transfer transfer;
        if (!has(way_of(state), &options))
            skip();
        options.limits.sq_depth = DEPTH + 1;
        qw_open(&world, &options);
        qw_connect(&world);
        memset(world.bytes[0], 0x5a, SEGMENTS * 64);
        for (uint32_t i = 0; i < SEGMENTS; i++)
            segments[i] = qw_segment(&world, 1, i * 64, i * 64, UNIT);
        uint64_t posts = qw_stats(&world).posts, wrs = qw_stats(&world).wrs_posted;
        world.take_of_next = k;
        world.take_error = WEIR_EAGAIN;
        assert_int_equal(
            weir_write(world.engines[0], world.peers[1], segments, SEGMENTS, NULL, &transfer),
            WEIR_OK);
        assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
        for (uint32_t i = 0; i < SEGMENTS * 64; i++)
            assert_int_equal(world.bytes[1][i], i % 64 < UNIT ? 0x5a : 0);
        weir_engine_info stats = qw_stats(&world);
        assert_int_equal(world.takes, 1);
        assert_int_equal(stats.partial_posts, k > 0);
        assert_int_equal(stats.orphans, way_of(state)->unordered ? 0 : k);
        /* With order, one empty write closes the orphan, and one may close an unsignalled tail. */
        uint64_t least = stats.orphans > 0, most = way_of(state)->unordered ? 0 : least + 1;
        assert_in_range(stats.wrs_posted - wrs, SEGMENTS + least, SEGMENTS + most);
        /* Chains of a quarter of the depth, but for the one that was split, or refused. */
        assert_in_range(stats.posts - posts, SEGMENTS / QUARTER + 1, SEGMENTS / QUARTER + 2 + most);
        assert_int_equal(qw_info(&world, 1).sessions, 1);
        qw_assert_quiet(&world);
        qw_close(&world);
        world.takes = 0;
    }
}

#define ON_ALL(test)                                                                               \
    cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_sim),                                   \
        cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_sim_unordered),                     \
        cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_shm)
#define ORDERED(test)                                                                              \
    cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_sim),                                   \
        cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_shm)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_ALL(test_S2_who_waited_shares_a_doorbell),
        ON_ALL(test_S6_partial_post_of_several_at_every_index),
        ON_ALL(test_S6_partial_post_of_a_chain_at_every_index),
        ON_ALL(test_S6_one_of_several_that_is_impossible),
        ON_ALL(test_S9_together_in_a_session_that_breaks),
        ORDERED(test_S7_closing_an_orphan_breaks_the_session),
    };
    return cmocka_run_group_tests_name("engine_together", tests, NULL, NULL);
}
