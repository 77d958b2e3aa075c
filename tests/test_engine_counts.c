/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_counts.c: the counts in weir_engine_info of a submit that was refused (which bound it
 * met, S5), and of work requests that give completions. */
#include <string.h>

#include "own.h"
#include "sendqueue_world.h"

enum { DEPTH = 16, MANY = 64, UNIT = 8 };

static const bool on_sim = true, on_shm = false;

static struct queue_world world;
static weir_transfer transfers[MANY];

/* False: not here. */
static bool open_world(void **state, uint32_t transfers_max, uint32_t segments_max) {
    bool sim = *(const bool *)*state;
    struct qw_options options = qw_options(sim ? 1 : 0);
    if (!sim && !qw_has_shm())
        return false;
    options.limits.sq_depth = DEPTH + 1; /* one is kept for the teardown */
    options.limits.transfers_max = transfers_max;
    options.limits.segments_max = segments_max;
    options.limits.backoff_timeout_ns = 2 * MS;
    qw_open(&world, &options);
    qw_connect(&world);
    return true;
}

static int submit(uint32_t number, size_t count, uint32_t flags) {
    weir_segment segments[MANY];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = flags;
    for (size_t i = 0; i < count; i++)
        segments[i] = qw_segment(&world, 1, i * UNIT, i * UNIT, UNIT);
    return weir_write(world.engines[0], world.peers[1], segments, count, &options,
                      &transfers[number]);
}

/* Submits until one is refused; how many were not. */
static uint32_t fill(size_t count) {
    uint32_t number = 0;
    int rc = WEIR_OK;
    while (number < MANY && (rc = submit(number, count, 0)) == WEIR_OK)
        number++;
    assert_int_equal(rc, WEIR_EAGAIN);
    return number;
}

static void assert_refused(uint64_t handles, uint64_t segments, uint64_t completions) {
    weir_engine_info stats = qw_stats(&world);
    assert_int_equal(stats.eagain_transfers, handles);
    assert_int_equal(stats.eagain_segments, segments);
    assert_int_equal(stats.eagain_completions, completions);
    assert_int_equal(stats.submit_eagain, handles + segments + completions);
}

static void finish(uint32_t count) {
    world.stalled = false;
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

static void test_S5_refused_for_transfers_max(void **state) {
    if (!open_world(state, 4, 0))
        skip();
    world.stalled = true;
    uint32_t count = fill(1);
    assert_refused(1, 0, 0);
    /* Once for each submit that was refused, however often a blocking one looked. */
    assert_int_equal(submit(MANY - 1, 1, WEIR_TRANSFER_BLOCK), WEIR_EAGAIN);
    assert_refused(2, 0, 0);
    /* And while somebody else has the engine. */
    own_enter(world.engines[0]);
    assert_int_equal(submit(MANY - 1, 1, WEIR_TRANSFER_QUEUE), WEIR_EAGAIN);
    own_leave(world.engines[0]);
    assert_refused(3, 0, 0);
    finish(count);
}

static void test_S5_refused_for_segments_max(void **state) {
    if (!open_world(state, MANY, 20))
        skip();
    world.stalled = true;
    uint32_t count = fill(20);
    assert_refused(0, 1, 0);
    own_enter(world.engines[0]);
    assert_int_equal(submit(MANY - 1, 20, 0), WEIR_EAGAIN);
    own_leave(world.engines[0]);
    assert_refused(0, 2, 0);
    assert_int_equal(submit(MANY - 1, 21, 0), WEIR_ETOOBIG); /* no pool is full */
    assert_refused(0, 2, 0);
    finish(count);
}

/* Transfers that have ended, but were not taken. */
static void test_S5_refused_for_completions(void **state) {
    if (!open_world(state, 4, 0))
        skip();
    uint32_t taken = 0, count = 0;
    weir_completion completion;
    while (count < MANY && submit(MANY - 1, 1, WEIR_TRANSFER_QUEUE) == WEIR_OK) {
        count++;
        QW_UNTIL(&world, qw_stats(&world).transfers_ok == count);
    }
    assert_in_range(count, 4, MANY - 1);
    assert_refused(0, 0, 1);
    while (weir_completion_take(world.engines[0], &completion) == WEIR_OK)
        taken++;
    assert_int_equal(taken, count);
    assert_int_equal(submit(MANY - 1, 1, WEIR_TRANSFER_QUEUE), WEIR_OK);
    QW_UNTIL(&world, weir_completion_take(world.engines[0], &completion) == WEIR_OK);
    finish(0);
}

/* Each signalled work request that the device took gives one completion. */
static void assert_signaled(uint64_t least, uint64_t most) {
    weir_engine_info stats = qw_stats(&world);
    assert_int_equal(stats.signaled, world.signaled);
    assert_int_equal(stats.completions, stats.signaled);
    assert_in_range(stats.signaled, least, most);
}

static void test_one_on_an_idle_queue_is_signaled(void **state) {
    if (!open_world(state, MANY, 0))
        skip();
    assert_signaled(0, 0);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(submit(0, 1, 0), WEIR_OK);
        assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
        assert_signaled(i + 1, i + 1);
    }
    assert_int_equal(submit(0, DEPTH / 4, 0), WEIR_OK); /* a chain: its last */
    assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
    assert_signaled(6, 6);
    finish(0);
}

/* Fewer than were posted, and none twice where a chain was taken in part. */
static void test_S6_signaled_of_chains_taken_in_part(void **state) {
    for (uint32_t k = 0; k < DEPTH / 4; k++) {
        if (!open_world(state, MANY, 0))
            skip();
        world.stalled = true;
        for (uint32_t i = 0; i < MANY - 2; i++)
            assert_int_equal(submit(i, 1, 0), WEIR_OK);
        world.take_of_next = k;
        world.take_error = WEIR_EAGAIN;
        world.stalled = false;
        for (uint32_t i = 0; i < MANY - 2; i++)
            assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
        assert_int_equal(world.takes, 1);
        assert_signaled(3, MANY - 3);
        finish(0);
        world.takes = 0;
    }
}

/* The simulated device does all in the post. */
static void open_inline(void) {
    struct qw_options options = qw_options(1);
    options.inline_ = true;
    qw_open(&world, &options);
    qw_connect(&world);
}

/* Done in the post: nothing is signalled, nothing is polled. */
static void test_what_is_done_in_the_post_gives_no_completion(void **state) {
    (void)state;
    open_inline();
    assert_int_equal(submit(0, 9, 0), WEIR_OK);
    assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
    weir_engine_info stats = qw_stats(&world);
    assert_int_equal(stats.wrs_posted, 9);
    assert_int_equal(stats.signaled, 0);
    assert_int_equal(stats.completions, 0);
    finish(0);
}

/* A notification without data is one doorbell, of one work request. */
static void notify(uint32_t count, bool in_the_post) {
    weir_engine_info before = qw_stats(&world);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(submit(0, 0, WEIR_TRANSFER_NOTIFY), WEIR_OK);
        assert_true(!in_the_post || transfers[0].id == 0);
        if (transfers[0].id != 0)
            assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
    }
    weir_engine_info stats = qw_stats(&world);
    assert_int_equal(stats.transfers_ok - before.transfers_ok, count);
    assert_int_equal(stats.notifications_sent - before.notifications_sent, count);
    assert_int_equal(stats.wrs_posted - before.wrs_posted, count);
    assert_int_equal(stats.posts - before.posts, count);
    assert_int_equal(stats.transfers_inline - before.transfers_inline, in_the_post ? count : 0);
    finish(0);
}

static void test_a_notification_alone_is_one_post(void **state) {
    if (!open_world(state, 64, 0))
        skip();
    notify(10, false);
}

static void test_a_notification_alone_in_the_post(void **state) {
    (void)state;
    open_inline();
    notify(10, true);
}

/* A weir_engine_info of an older weir.h ends before these. */
static void test_stats_of_an_older_header(void **state) {
    if (!open_world(state, 4, 0))
        skip();
    weir_engine_info stats;
    memset(&stats, 0x5a, sizeof(stats));
    stats.size = offsetof(weir_engine_info, eagain_transfers);
    assert_int_equal(weir_engine_query(world.engines[0], &stats), WEIR_OK);
    assert_int_equal(stats.size, offsetof(weir_engine_info, eagain_transfers));
    assert_int_equal(stats.eagain_transfers, UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(stats.completions, UINT64_C(0x5a5a5a5a5a5a5a5a));
    finish(0);
}

#define ON_BOTH(test)                                                                              \
    cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_sim),                                   \
        cmocka_unit_test_prestate(test, (void *)(uintptr_t)&on_shm)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_S5_refused_for_transfers_max),
        ON_BOTH(test_S5_refused_for_segments_max),
        ON_BOTH(test_S5_refused_for_completions),
        ON_BOTH(test_one_on_an_idle_queue_is_signaled),
        ON_BOTH(test_S6_signaled_of_chains_taken_in_part),
        cmocka_unit_test(test_what_is_done_in_the_post_gives_no_completion),
        ON_BOTH(test_a_notification_alone_is_one_post),
        cmocka_unit_test(test_a_notification_alone_in_the_post),
        ON_BOTH(test_stats_of_an_older_header),
    };
    return cmocka_run_group_tests_name("engine counts", tests, NULL, NULL);
}
