/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_inflight.c: the bytes in flight to all peers stay below their limit, who waits
 * for that says so and is served in order, and none are lost, whatever becomes of what was
 * posted (S4, S6, S9); what can be asked of a QP (S19). On the simulated device and on shm made
 * a device that queues. */
#include "sendqueue_world.h"

#include <string.h>

enum { SEED = 3, LIMIT = 4096, PIECE = 1000 };

static struct queue_world world;

static struct qw_options limited(uint64_t seed, uint64_t most) {
    struct qw_options options = qw_options(seed);
    options.engines = 4;
    options.limits.sq_depth = 128;
    options.limits.inflight_bytes_max = most;
    return options;
}

static void begin(uint64_t seed, uint64_t most) {
    struct qw_options options = limited(seed, most);
    qw_open(&world, &options);
    qw_connect(&world);
}

static void end(void) {
    qw_assert_quiet(&world);
    assert_int_equal(qw_stats(&world).inflight_bytes, 0);
    qw_close(&world);
}

/* `count` pieces of `length` bytes to the peer. */
static weir_transfer submit(uint32_t peer, uint32_t count, uint64_t length) {
    weir_segment segments[32];
    weir_transfer transfer;
    for (uint32_t i = 0; i < count; i++)
        segments[i] = qw_segment(&world, peer, i * length, i * length, length);
    assert_int_equal(
        weir_write(world.engines[0], world.peers[peer], segments, count, NULL, &transfer), WEIR_OK);
    return transfer;
}

static int waits_for(weir_transfer transfer) {
    return weir_transfer_waiting_for(world.engines[0], transfer);
}

static void turns(uint32_t count) {
    while (count-- > 0) {
        qw_turn(&world);
        assert_null(engine_verify(world.engines[0]));
    }
}

static weir_qp_info qp_info(uint32_t peer) {
    weir_qp_info info = WEIR_QP_INFO_INIT;
    assert_int_equal(weir_qp_query(world.engines[0], world.peers[peer], 0, &info), WEIR_OK);
    return info;
}

static void on_both(void (*body)(uint64_t seed)) {
    body(SEED);
    if (qw_has_shm())
        body(0);
}

/* ---- the limit ---- */

static void limit_holds(uint64_t seed) {
    weir_transfer transfers[3];
    begin(seed, LIMIT);
    world.stalled = true;
    for (uint32_t i = 0; i < 3; i++)
        transfers[i] = submit(i + 1, 10, PIECE);
    turns(5);
    assert_int_equal(qw_stats(&world).inflight_bytes, 4 * PIECE);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(waits_for(transfers[i]), WEIR_WAITING_INFLIGHT);
    assert_string_equal(weir_waiting_name(WEIR_WAITING_INFLIGHT), "inflight");
    assert_int_equal(qw_stats(&world).inflight_waits, 3);
    world.stalled = false;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    assert_int_equal(qw_stats(&world).inflight_bytes_high_water, 4 * PIECE);
    assert_true(qw_stats(&world).inflight_waits >= 3);
    end();
}

static void test_S4_bytes_in_flight_stay_below_the_limit(void **state) {
    (void)state;
    on_both(limit_holds);
}

/* All transfers behind the peer's turn wait for what it waits for, also those that were submitted
 * when that was something else. */
static void all_say(uint64_t most, uint32_t depth, int what) {
    enum { COUNT = 5 };
    weir_transfer transfers[COUNT];
    struct qw_options options = limited(SEED, most);
    options.limits.sq_depth = depth;
    qw_open(&world, &options);
    for (uint32_t i = 0; i < COUNT; i++) {
        transfers[i] = submit(1, 20, PIECE);
        assert_int_equal(waits_for(transfers[i]), WEIR_WAITING_CONNECTION);
    }
    world.stalled = true;
    for (int i = 0; i < 10000 && qp_info(1).sq_used == 0; i++)
        turns(1);
    turns(3);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(waits_for(transfers[i]), what);
    world.stalled = false;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    end();
}

static void test_S4_who_waits_behind_others_says_for_what(void **state) {
    (void)state;
    all_say(2 * PIECE, 128, WEIR_WAITING_INFLIGHT);
    all_say(1000 * PIECE, 4, WEIR_WAITING_SLOTS);
}

/* One WR is never split, and never waits for ever: alone it may be of any length. */
static void long_ones(uint64_t seed) {
    begin(seed, 100);
    world.stalled = true;
    weir_transfer transfer = submit(1, 3, PIECE), other = submit(2, 1, 1);
    turns(5);
    assert_int_equal(qw_stats(&world).inflight_bytes, PIECE);
    assert_int_equal(waits_for(other), WEIR_WAITING_INFLIGHT);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    assert_int_equal(qw_finish(&world, other), WEIR_OK);
    assert_int_equal(qw_stats(&world).inflight_bytes_high_water, PIECE);
    end();
}

static void test_S4_a_long_wr_goes_by_itself(void **state) {
    (void)state;
    on_both(long_ones);
}

/* Transfers of one WR, which are posted in their submits. */
static void at_once(uint64_t seed) {
    weir_transfer transfers[8];
    begin(seed, PIECE);
    world.stalled = true;
    for (uint32_t i = 0; i < 8; i++) {
        transfers[i] = submit(1 + i % 3, 1, 300);
        assert_int_equal(waits_for(transfers[i]),
                         i < 3 ? WEIR_WAITING_COMPLETIONS : WEIR_WAITING_INFLIGHT);
    }
    assert_int_equal(qw_stats(&world).inflight_bytes, 900);
    weir_transfer tiny = submit(2, 1, 1); /* there is room for it, and others came first */
    assert_int_equal(waits_for(tiny), WEIR_WAITING_INFLIGHT);
    turns(3);
    assert_int_equal(qw_stats(&world).inflight_bytes, 900);
    world.stalled = false;
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    assert_int_equal(qw_finish(&world, tiny), WEIR_OK);
    end();
}

static void test_S4_single_wrs_wait_their_turn(void **state) {
    (void)state;
    on_both(at_once);
}

static void test_S4_what_is_done_in_its_post_is_never_in_flight(void **state) {
    struct qw_options options = limited(0, 1);
    (void)state;
    if (!qw_has_shm())
        skip();
    options.inline_ = true;
    qw_open(&world, &options);
    qw_connect(&world);
    for (uint32_t i = 0; i < 32; i++) {
        weir_transfer transfer = submit(1 + i % 3, 1 + i, PIECE);
        assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    }
    assert_int_equal(qw_stats(&world).inflight_bytes_high_water, 0);
    assert_int_equal(qw_stats(&world).inflight_waits, 0);
    end();
}

/* Nor do notifications count, or wait for it. */
static void notifications(uint64_t seed) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer told;
    begin(seed, 1);
    world.stalled = true;
    weir_transfer transfer = submit(1, 1, PIECE);
    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(world.engines[0], world.peers[2], NULL, 0, &options, &told),
                     WEIR_OK);
    assert_int_equal(waits_for(told), WEIR_WAITING_COMPLETIONS);
    assert_int_equal(qw_stats(&world).inflight_bytes, PIECE);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, told), WEIR_OK);
    assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    end();
}

static void test_S4_notifications_are_not_counted(void **state) {
    (void)state;
    on_both(notifications);
}

/* ---- nothing is lost ---- */

static void partial(uint64_t seed) {
    for (uint32_t taken = 0; taken < 8; taken++) {
        for (int error = 0; error < 2; error++) {
            begin(seed, 8 * PIECE);
            world.stalled = true;
            world.take_of_next = taken;
            world.take_error = error == 0 ? WEIR_EAGAIN : WEIR_EINVAL;
            weir_transfer transfer = submit(1, 8, PIECE);
            assert_int_equal(world.takes, 1);
            assert_int_equal(qw_stats(&world).inflight_bytes, taken * PIECE);
            assert_int_equal(qp_info(1).inflight_bytes, taken * PIECE);
            assert_int_equal(qp_info(1).bytes, taken * PIECE);
            assert_int_equal(qp_info(1).partial_posts, taken > 0);
            assert_int_equal(qp_info(1).orphans, taken);
            turns(5);
            world.stalled = false;
            assert_int_equal(qw_finish(&world, transfer), error == 0 ? WEIR_OK : WEIR_EINVAL);
            end();
        }
    }
}

static void test_S6_refused_bytes_are_not_in_flight(void **state) {
    (void)state;
    on_both(partial);
}

/* While another peer waits for the bytes of what was left without a signalled tail. */
static void orphans_behind(uint64_t seed) {
    begin(seed, 8 * PIECE);
    world.take_of_next = 6;
    world.take_error = WEIR_EAGAIN;
    weir_transfer first = submit(1, 8, PIECE), second = submit(2, 5, PIECE);
    assert_int_equal(waits_for(second), WEIR_WAITING_INFLIGHT);
    assert_int_equal(qw_finish(&world, second), WEIR_OK);
    assert_int_equal(qw_finish(&world, first), WEIR_OK);
    end();
}

static void test_S7_bytes_of_orphans_come_back(void **state) {
    (void)state;
    on_both(orphans_behind);
}

static void broken(uint64_t seed) {
    begin(seed, LIMIT);
    world.break_posts = 1;
    weir_transfer first = submit(1, 20, PIECE), second = submit(2, 20, PIECE);
    assert_int_equal(qw_finish(&world, second), WEIR_OK);
    assert_int_equal(qw_finish(&world, first), WEIR_OK);
    assert_true(qw_stats(&world).sessions_failed >= 1);
    assert_int_equal(qp_info(1).sessions, 2);
    assert_int_equal(qp_info(1).recoveries, 1);
    assert_int_equal(qp_info(1).replays, 1);
    assert_int_equal(qp_info(2).sessions, 1);
    assert_int_equal(qp_info(2).recoveries, 0);
    end();
}

static void test_S9_bytes_of_a_broken_session_come_back(void **state) {
    (void)state;
    on_both(broken);
}

/* Both QPs of a session have orphans, and both timers are due at once. The first finds that its
 * device failed: an empty write is refused for good. The second posts none. */
static void test_S9_nothing_is_posted_on_a_session_that_broke(void **state) {
    (void)state;
    struct qw_options options = limited(SEED, 0);
    options.limits.qp_count = 2;
    qw_open(&world, &options);
    qw_connect(&world);
    world.stalled = true;
    world.take_of_next = 2;
    world.take_again = 1;
    world.take_error = WEIR_EAGAIN;
    weir_transfer transfer = submit(1, 8, PIECE);
    assert_int_equal(world.takes, 2);
    assert_int_equal(qw_stats(&world).orphans, 4);
    world.empty_error = WEIR_EDEVICE;
    uint64_t posts = world.posts;
    QW_UNTIL(&world, qw_stats(&world).sessions_failed == 1);
    assert_int_equal(world.empty_error, WEIR_OK);
    assert_int_equal(world.posts, posts + 1 + options.limits.qp_count); /* it, and two beacons */
    world.stalled = false;
    assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    end();
}

/* ---- the line ---- */

/* A peer that is first in line and does not want it any more is not waited for. */
static void first_gives_up(uint64_t seed, bool closes) {
    begin(seed, 2 * PIECE);
    world.stalled = true;
    weir_transfer under_way = submit(1, 1, 1500);
    weir_transfer first = submit(2, 1, 1900), second = submit(3, 1, 400);
    turns(3);
    assert_int_equal(waits_for(second), WEIR_WAITING_INFLIGHT);
    if (closes)
        assert_int_equal(weir_peer_close(world.engines[0], world.peers[2]), WEIR_OK);
    else
        assert_int_equal(weir_transfer_cancel(world.engines[0], first), WEIR_OK);
    turns(3);
    assert_int_equal(qw_status(&world, first), closes ? WEIR_ECLOSED : WEIR_ECANCELED);
    assert_int_equal(waits_for(second), WEIR_WAITING_COMPLETIONS);
    assert_int_equal(qw_stats(&world).inflight_bytes, 1900);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, second), WEIR_OK);
    assert_int_equal(qw_finish(&world, under_way), WEIR_OK);
    assert_int_equal(weir_transfer_release(world.engines[0], first), WEIR_OK);
    if (!closes)
        qw_assert_quiet(&world);
    assert_int_equal(qw_stats(&world).inflight_bytes, 0);
    qw_close(&world);
}

static void test_S4_who_gives_up_in_line_holds_up_nobody(void **state) {
    (void)state;
    first_gives_up(SEED, false);
    first_gives_up(SEED, true);
    if (!qw_has_shm())
        return;
    first_gives_up(0, false);
    first_gives_up(0, true);
}

/* The first in line needs more than has come back: those behind do not take it away. */
static void long_one_first(uint64_t seed) {
    begin(seed, 2 * PIECE);
    world.stalled = true;
    weir_transfer under_way = submit(1, 1, 1), large = submit(2, 1, 2 * PIECE);
    weir_transfer small[8];
    for (uint32_t i = 0; i < 8; i++)
        small[i] = submit(1 + 2 * (i % 2), 1, 10);
    turns(3);
    assert_int_equal(qw_stats(&world).inflight_bytes, 1);
    world.stalled = false;
    QW_UNTIL(&world, qw_status(&world, under_way) != WEIR_EINPROGRESS);
    assert_int_equal(qw_finish(&world, large), WEIR_OK);
    assert_int_equal(qw_finish(&world, under_way), WEIR_OK);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(qw_finish(&world, small[i]), WEIR_OK);
    end();
}

static void test_S4_small_ones_do_not_starve_a_long_one(void **state) {
    (void)state;
    on_both(long_one_first);
}

/* ---- what is told of a QP ---- */

static void told(uint64_t seed) {
    struct qw_options options = limited(seed, 0);
    options.limits.sq_depth = 11;
    options.limits.qp_count = 2;
    qw_open(&world, &options);
    weir_engine *engine = world.engines[0];
    weir_qp_info info = WEIR_QP_INFO_INIT;
    assert_int_equal(weir_qp_query(engine, world.peers[1], 0, &info), WEIR_OK);
    assert_int_equal(info.sq_depth + info.sessions, 0); /* not connected */
    assert_int_equal(weir_qp_query(engine, world.peers[1], 1, &info), WEIR_EINVAL);
    qw_connect(&world);
    world.stalled = true;
    weir_transfer transfer = submit(1, 32, PIECE);
    turns(3);
    uint64_t bytes = 0;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(weir_qp_query(engine, world.peers[1], i, &info), WEIR_OK);
        assert_int_equal(info.sq_depth, qw_info(&world, 1).sq_depth);
        assert_int_equal(info.sq_used, info.sq_depth);
        assert_int_equal(info.sq_high_water, info.sq_depth);
        assert_int_equal(info.pending, 1);
        assert_int_equal(info.inflight_bytes, info.sq_used * PIECE);
        assert_int_equal(info.bytes, info.inflight_bytes);
        assert_true(info.admission_waits >= 1);
        bytes += info.inflight_bytes;
    }
    assert_int_equal(bytes, qw_stats(&world).inflight_bytes);
    uint64_t waited = info.admission_wait_ns;
    turns(3);
    assert_int_equal(weir_qp_query(engine, world.peers[1], 1, &info), WEIR_OK);
    assert_true(info.admission_wait_ns > waited);
    if (world.sim != NULL)
        assert_in_range(info.admission_wait_ns, 5 * 20000, 7 * 20000);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    assert_int_equal(weir_qp_query(engine, world.peers[1], 0, &info), WEIR_OK);
    bytes = info.bytes;
    assert_int_equal(weir_qp_query(engine, world.peers[1], 1, &info), WEIR_OK);
    assert_int_equal(bytes + info.bytes, 32 * PIECE);
    assert_int_equal(info.pending + info.sq_used + info.inflight_bytes + info.inflight_waits, 0);
    waited = info.admission_wait_ns;
    turns(3);
    assert_int_equal(weir_qp_query(engine, world.peers[1], 1, &info), WEIR_OK);
    assert_int_equal(info.admission_wait_ns, waited);
    assert_int_equal(weir_qp_query(engine, world.peers[1], 2, &info), WEIR_EINVAL);
    assert_int_equal(weir_qp_query(engine, world.peers[1], SIZE_MAX, &info), WEIR_EINVAL);
    assert_int_equal(weir_qp_query(engine, world.peers[1], 0, NULL), WEIR_EINVAL);
    assert_int_equal(weir_qp_query(NULL, world.peers[1], 0, &info), WEIR_EINVAL);
    assert_int_equal(weir_qp_query(engine, (weir_peer){0}, 0, &info), WEIR_ESTALE);
    info.size = 0;
    assert_int_equal(weir_qp_query(engine, world.peers[1], 0, &info), WEIR_EINVAL);
    memset(&info, 0xa5, sizeof(info)); /* of an older weir.h */
    info.size = offsetof(weir_qp_info, pending);
    assert_int_equal(weir_qp_query(engine, world.peers[1], 0, &info), WEIR_OK);
    assert_int_equal(info.pending, 0xa5a5a5a5);
    assert_true(info.sq_depth > 0 && info.sq_depth < 64);
    end();
}

static void test_S19_a_qp_is_described(void **state) {
    (void)state;
    on_both(told);
}

static void inflight_waits(uint64_t seed) {
    begin(seed, PIECE);
    world.stalled = true;
    weir_transfer transfers[2] = {submit(1, 5, PIECE), submit(2, 5, PIECE)};
    turns(3);
    assert_int_equal(qp_info(1).inflight_waits, 1);
    assert_int_equal(qp_info(2).inflight_waits, 1);
    assert_true(qp_info(2).inflight_wait_ns > 0);
    assert_int_equal(qp_info(1).admission_waits + qp_info(1).admission_wait_ns, 0);
    world.stalled = false;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    assert_int_equal(qp_info(1).inflight_waits + qp_info(2).inflight_waits,
                     qw_stats(&world).inflight_waits);
    assert_in_range(qp_info(1).inflight_waits, 4, 5); /* for each piece but the first */
    end();
}

static void test_S19_waits_for_bytes_are_told(void **state) {
    (void)state;
    on_both(inflight_waits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S4_bytes_in_flight_stay_below_the_limit),
        cmocka_unit_test(test_S4_who_waits_behind_others_says_for_what),
        cmocka_unit_test(test_S4_a_long_wr_goes_by_itself),
        cmocka_unit_test(test_S4_single_wrs_wait_their_turn),
        cmocka_unit_test(test_S4_what_is_done_in_its_post_is_never_in_flight),
        cmocka_unit_test(test_S4_notifications_are_not_counted),
        cmocka_unit_test(test_S6_refused_bytes_are_not_in_flight),
        cmocka_unit_test(test_S7_bytes_of_orphans_come_back),
        cmocka_unit_test(test_S9_bytes_of_a_broken_session_come_back),
        cmocka_unit_test(test_S9_nothing_is_posted_on_a_session_that_broke),
        cmocka_unit_test(test_S4_who_gives_up_in_line_holds_up_nobody),
        cmocka_unit_test(test_S4_small_ones_do_not_starve_a_long_one),
        cmocka_unit_test(test_S19_a_qp_is_described),
        cmocka_unit_test(test_S19_waits_for_bytes_are_told),
    };
    return cmocka_run_group_tests_name("engine_inflight", tests, NULL, NULL);
}
