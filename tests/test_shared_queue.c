/* SPDX-License-Identifier: Apache-2.0 */
/* test_shared_queue.c: a device whose QPs share one send queue (S1 to S5): its slots are the sum's,
 * peers wait for them in line, and a queue that says EAGAIN is waited for and not asked again and
 * again. */
#include <string.h>

#include "net.h"
#include "sendqueue_world.h"
#include "state.h"

enum { SLOTS = 4, PEERS = 6, UNIT = 64, BATCH = 100, NOTES = 20 };

static struct queue_world world;

static void open_with(uint32_t slots, uint32_t credits) {
    struct qw_options options = qw_options(5);
    options.unordered = options.isolates = true;
    options.sq_shared = slots;
    options.engines = PEERS + 1;
    options.limits.recv_credits = credits;
    options.limits.notifications_max = 4096;
    qw_open(&world, &options);
    qw_connect(&world);
    memset(world.bytes[0], 0x5a, BATCH * UNIT);
}

static void open_world(uint32_t slots) {
    open_with(slots, 16);
}

static weir_transfer write_to(uint32_t peer, uint32_t count, uint32_t flags) {
    static weir_segment segments[BATCH];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = flags;
    for (uint32_t i = 0; i < count; i++)
        segments[i] = qw_segment(&world, peer, (uint64_t)i * UNIT, (uint64_t)i * UNIT, UNIT);
    assert_int_equal(weir_write(world.engines[0], world.peers[peer], segments, count,
                                flags != 0 ? &options : NULL, &transfer),
                     WEIR_OK);
    return transfer;
}

static void expect_there(uint32_t peer, uint32_t count) {
    for (uint32_t i = 0; i < count * UNIT; i++)
        assert_int_equal(world.bytes[peer][i], 0x5a);
}

static void turn_for(uint64_t ns) {
    uint64_t until = world.sim->now_ns + ns;
    while (world.sim->now_ns < until)
        qw_turn(&world);
}

static uint32_t used(void) {
    uint32_t sum = 0;
    for (uint32_t p = 1; p <= PEERS; p++)
        sum += qw_info(&world, p).sq_used;
    return sum;
}

static void take_notifications(uint32_t engine) {
    weir_notification got;
    while (weir_notification_take(world.engines[engine], &got) == WEIR_OK)
        ;
}

/* Batches to all peers at once, some with notifications: no post beyond what the queue has
 * (qw_close), whatever its size; and nothing stays taken. */
static void test_S1_slots_are_the_sums(void **state) {
    static const uint32_t slots[] = {1, 2, 3, SLOTS, 64};
    (void)state;
    for (size_t s = 0; s < sizeof slots / sizeof slots[0]; s++) {
        weir_transfer batches[PEERS + 1];
        open_world(slots[s]);
        for (uint32_t p = 1; p <= PEERS; p++)
            batches[p] = write_to(p, BATCH, p % 2 == 0 ? WEIR_TRANSFER_NOTIFY : 0);
        for (int turn = 0; turn < 100; turn++) {
            qw_turn(&world);
            assert_true(used() <= slots[s]);
        }
        for (uint32_t p = 1; p <= PEERS; p++) {
            assert_int_equal(qw_finish(&world, batches[p]), WEIR_OK);
            expect_there(p, BATCH);
        }
        assert_int_equal(qw_stats(&world).partial_posts, 0);
        qw_assert_quiet(&world);
        qw_close(&world);
    }
}

/* One batch takes all slots; a peer that comes later has its turn after one chain of the batch, and
 * of each peer that came before. */
static void test_S4_peers_wait_in_line_for_slots(void **state) {
    weir_transfer batch, others[PEERS + 1];
    (void)state;
    open_world(SLOTS);
    world.stalled = true;
    batch = write_to(1, BATCH, 0);
    for (uint32_t p = 2; p <= PEERS; p++)
        others[p] = write_to(p, 1, p % 2 == 0 ? WEIR_TRANSFER_NOTIFY : 0);
    turn_for(MS);
    assert_int_equal(qw_info(&world, 1).sq_used, SLOTS);
    for (uint32_t p = 2; p <= PEERS; p++)
        assert_int_equal(qw_info(&world, p).sq_used, 0);
    uint64_t before = qw_stats(&world).wrs_posted;
    world.stalled = false;
    for (uint32_t p = 2; p <= PEERS; p++)
        assert_int_equal(qw_finish(&world, others[p]), WEIR_OK);
    /* In each round the batch has a post at most; a notification takes a round of its own.
     */
    assert_true(qw_stats(&world).wrs_posted - before <= 2 * (SLOTS + PEERS + PEERS / 2));
    assert_int_equal(qw_status(&world, batch), WEIR_EINPROGRESS);
    assert_int_equal(qw_finish(&world, batch), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* An application that always has notifications to one peer pending does not keep the slots from
 * another peer. */
static void test_S4_notifications_are_one_turn_each(void **state) {
    weir_transfer notes[NOTES], batch, other;
    (void)state;
    open_world(SLOTS);
    world.stalled = true;
    batch = write_to(1, SLOTS, 0);
    for (uint32_t i = 0; i < NOTES; i++)
        notes[i] = write_to(2, 0, WEIR_TRANSFER_NOTIFY);
    other = write_to(3, 1, 0);
    turn_for(MS);
    uint64_t before = qw_stats(&world).wrs_posted;
    world.stalled = false;
    while (qw_status(&world, other) == WEIR_EINPROGRESS) {
        qw_turn(&world);
        take_notifications(2);
        for (uint32_t i = 0; i < NOTES; i++) {
            if (qw_status(&world, notes[i]) == WEIR_EINPROGRESS)
                continue;
            assert_int_equal(qw_finish(&world, notes[i]), WEIR_OK);
            notes[i] = write_to(2, 0, WEIR_TRANSFER_NOTIFY);
        }
        assert_true(qw_stats(&world).wrs_posted - before <= 3 * SLOTS);
    }
    assert_int_equal(qw_finish(&world, other), WEIR_OK);
    assert_int_equal(qw_finish(&world, batch), WEIR_OK);
    for (uint32_t i = 0; i < NOTES; i++) {
        while (qw_status(&world, notes[i]) == WEIR_EINPROGRESS) {
            qw_turn(&world);
            take_notifications(2);
        }
        assert_int_equal(qw_finish(&world, notes[i]), WEIR_OK);
    }
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* Nor does a batch of which the device takes one WR at a time, and says EAGAIN. */
static void test_S4_what_is_taken_in_part_is_a_turn(void **state) {
    weir_transfer first, batch, other;
    (void)state;
    open_world(64);
    world.stalled = true;
    first = write_to(1, 2, 0);
    world.take_of_next = 1;
    world.take_error = WEIR_EAGAIN;
    world.take_again = UINT32_MAX;
    batch = write_to(2, BATCH, 0);
    other = write_to(3, 1, 0);
    turn_for(MS);
    uint64_t before = qw_stats(&world).wrs_posted;
    world.stalled = false;
    assert_int_equal(qw_finish(&world, other), WEIR_OK);
    assert_true(qw_stats(&world).wrs_posted - before <= 8);
    world.take_error = WEIR_OK;
    world.take_again = 0;
    assert_int_equal(qw_finish(&world, first), WEIR_OK);
    assert_int_equal(qw_finish(&world, batch), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* Notifications that wait for credits keep their places while the queue is full. */
static void test_S4_waiters_for_credits_keep_their_order(void **state) {
    enum { WAITERS = 12, CREDITS = 2 };
    weir_transfer notes[WAITERS];
    (void)state;
    open_with(SLOTS, CREDITS);
    world.frozen[2] = true;
    for (uint32_t i = 0; i < WAITERS; i++)
        notes[i] = write_to(2, 0, WEIR_TRANSFER_NOTIFY);
    turn_for(MS);
    uint64_t waits = qw_stats(&world).credit_waits;
    for (int round = 0; round < 5; round++) {
        world.stalled = true;
        weir_transfer all = write_to(1, SLOTS, 0), one = write_to(2, 1, 0);
        turn_for(MS);
        world.stalled = false;
        assert_int_equal(qw_finish(&world, all), WEIR_OK);
        assert_int_equal(qw_finish(&world, one), WEIR_OK);
        turn_for(MS);
    }
    assert_int_equal(qw_stats(&world).credit_waits, waits);
    world.frozen[2] = false;
    for (uint32_t next = 0; next < WAITERS;) {
        qw_turn(&world);
        take_notifications(2);
        while (next < WAITERS && qw_status(&world, notes[next]) != WEIR_EINPROGRESS)
            assert_int_equal(qw_finish(&world, notes[next++]), WEIR_OK);
        for (uint32_t i = next + 2 * CREDITS; i < WAITERS; i++)
            assert_int_equal(qw_status(&world, notes[i]), WEIR_EINPROGRESS);
    }
    qw_assert_quiet(&world);
    qw_close(&world);
}

static struct peer *peer_of(uint32_t number) {
    weir_engine *engine = world.engines[0];
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        if (engine->peers[i].handle == world.peers[number].id)
            return &engine->peers[i];
    }
    fail_msg("no such peer");
    return NULL;
}

/* A peer that nobody can dial shows that it is there by answering empty writes (H12). These find
 * their turn where others fill the queue all the time. */
static void test_H12_signs_of_life_have_their_turn(void **state) {
    enum { BATCHES = 8 };
    weir_transfer batches[BATCHES];
    weir_event event;
    (void)state;
    open_world(SLOTS);
    while (weir_event_take(world.engines[0], &event) == WEIR_OK)
        ;
    struct peer *peer = peer_of(1);
    uint64_t dialled = peer->conn_dialled;
    sim_net_break(world.sim->net, 0, 1);
    QW_UNTIL(&world, peer->conn_dialled != dialled);
    world.sim->control_cut[0][1] = world.sim->control_cut[1][0] = true;
    for (uint32_t i = 0; i < BATCHES; i++)
        batches[i] = write_to(2, BATCH, 0);
    uint64_t until = world.sim->now_ns + 12 * SECOND;
    while (world.sim->now_ns < until) {
        qw_turn(&world);
        for (uint32_t i = 0; i < BATCHES; i++) {
            if (qw_status(&world, batches[i]) == WEIR_EINPROGRESS)
                continue;
            assert_int_equal(qw_finish(&world, batches[i]), WEIR_OK);
            batches[i] = write_to(2, BATCH, 0);
        }
        while (weir_event_take(world.engines[0], &event) == WEIR_OK)
            assert_true(event.peer.id != world.peers[1].id || event.type != WEIR_EVENT_GONE);
    }
    world.sim->control_cut[0][1] = world.sim->control_cut[1][0] = false;
    for (uint32_t i = 0; i < BATCHES; i++)
        assert_int_equal(qw_finish(&world, batches[i]), WEIR_OK);
    qw_close(&world);
}

/* The device says EAGAIN, though it has slots, while others are in flight: it is asked again when
 * something is over, and once in 10 ms; then the rest goes. */
static void test_S5_a_full_device_is_waited_for(void **state) {
    weir_transfer first, second, third;
    (void)state;
    open_world(64);
    world.stalled = true;
    first = write_to(1, 1, 0);
    world.take_of_next = 0;
    world.take_error = WEIR_EAGAIN;
    world.take_again = UINT32_MAX;
    second = write_to(2, 3, 0);
    turn_for(MS);
    third = write_to(3, 1, WEIR_TRANSFER_NOTIFY);
    turn_for(MS);
    uint32_t takes = world.takes;
    assert_in_range(takes, 1, 3);
    turn_for(50 * MS);
    assert_in_range(world.takes - takes, 4, 6);
    world.take_again = UINT32_MAX;
    world.take_again = 0;
    world.take_error = WEIR_OK;
    world.stalled = false;
    assert_int_equal(qw_finish(&world, first), WEIR_OK);
    assert_int_equal(qw_finish(&world, second), WEIR_OK);
    assert_int_equal(qw_finish(&world, third), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* A peer whose turn does not come, since others have all slots, is told why. */
static void test_S5_what_a_peer_in_line_waits_for(void **state) {
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    char text[WEIR_STALL_TEXT_MAX];
    weir_transfer batch, other;
    (void)state;
    open_world(SLOTS);
    world.stalled = true;
    batch = write_to(1, BATCH, 0);
    turn_for(MS);
    other = write_to(2, 1, 0);
    turn_for(1500 * MS);
    assert_int_equal(weir_stall_query(world.engines[0], world.peers[2], &info), WEIR_OK);
    assert_int_equal(info.cause, WEIR_STALL_INFLIGHT);
    assert_int_equal(info.error, WEIR_EAGAIN);
    assert_int_equal(weir_stall_text(world.engines[0], world.peers[2], text, sizeof text), WEIR_OK);
    assert_non_null(strstr(text, "send queue, which all peers share, is full"));
    assert_int_equal(weir_stall_query(world.engines[0], world.peers[1], &info), WEIR_OK);
    assert_int_equal(info.cause, WEIR_STALL_QP);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, batch), WEIR_OK);
    assert_int_equal(qw_finish(&world, other), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* Where nothing is in flight that could end, it is asked again after pauses. */
static void test_S5_a_device_that_refuses_with_an_empty_queue(void **state) {
    weir_transfer transfer;
    (void)state;
    open_world(64);
    turn_for(10 * MS);
    assert_int_equal(used(), 0);
    world.take_of_next = 0;
    world.take_error = WEIR_EAGAIN;
    world.take_again = 3;
    transfer = write_to(1, 3, 0);
    assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    assert_int_equal(world.takes, 4);
    qw_assert_quiet(&world);
    qw_close(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S1_slots_are_the_sums),
        cmocka_unit_test(test_S4_peers_wait_in_line_for_slots),
        cmocka_unit_test(test_S4_notifications_are_one_turn_each),
        cmocka_unit_test(test_S4_what_is_taken_in_part_is_a_turn),
        cmocka_unit_test(test_S4_waiters_for_credits_keep_their_order),
        cmocka_unit_test(test_H12_signs_of_life_have_their_turn),
        cmocka_unit_test(test_S5_a_full_device_is_waited_for),
        cmocka_unit_test(test_S5_what_a_peer_in_line_waits_for),
        cmocka_unit_test(test_S5_a_device_that_refuses_with_an_empty_queue),
    };
    return cmocka_run_group_tests_name("shared_queue", tests, NULL, NULL);
}
