/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_stall.c: QPs that stand still: work is posted, nothing of it completes or fails, and
 * the engine finds out (M8) and goes on elsewhere (S9). The device is the test's: see
 * lone_engine.h, which completes nothing unless it is asked to. */
#include "found.h"
#include "inflight.h"
#include "lone_engine.h"
#include "stall.h"

#include <string.h>

#define THERE "10.0.0.9:9"
#define ALSO  "10.0.0.8:9"
/* The default of stall_timeout_ns. */
#define STALL (10 * SECOND)

struct world {
    struct lone *lone;
    weir_peer peer;
    uint64_t conn, epoch;
    weir_memory local;
    weir_remote remote;
};
static uint8_t bytes[16 << 20];

static struct lone *open_world(struct world *world) {
    struct lone *lone = lone_open(NULL);
    *world = (struct world){.lone = lone, .epoch = 1};
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world->peer), WEIR_OK);
    weir_peer_connect(lone->engine, world->peer);
    lone_run(lone);
    world->conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, world->conn, 1, THERE);
    lone_answer(lone, world->conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_memories(lone, world->peer, 1, bytes, sizeof(bytes), &world->local, &world->remote);
    return lone;
}

static weir_transfer write_of(struct world *world, uint64_t length) {
    weir_segment segment = {world->local, world->remote, 0, 0, length};
    weir_transfer transfer;
    assert_int_equal(weir_write(world->lone->engine, world->peer, &segment, 1, NULL, &transfer),
                     WEIR_OK);
    return transfer;
}

static uint64_t stalls(const struct world *world) {
    return world->lone->engine->stats.stalls;
}

/* The other side has drained, too, and a session follows. */
static void come_back(struct world *world) {
    struct lone *lone = world->lone;
    lone_pass(lone, 20 * MS);
    const struct wire_message *settle = lone_heard(lone, world->conn, WIRE_SETTLE);
    assert_non_null(settle);
    struct wire_message settled = {.type = WIRE_SETTLED, .echo = settle->epoch};
    lone_say(lone, world->conn, 1, &settled);
    lone_pass(lone, 20 * MS);
    lone_answer(lone, world->conn, 1, ++world->epoch);
    lone_run(lone);
}

/* Asleep it is woken for the look; what was in flight is done on the next session. */
static void test_M8_a_qp_that_stands_still_is_given_up(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    assert_int_equal(engine_next_deadline(lone->engine), UINT64_MAX);
    weir_transfer transfer = write_of(&world, 64);
    lone_run(lone);
    assert_in_range(engine_next_deadline(lone->engine) - lone->now_ns, 1, STALL / 2);
    lone_pass(lone, STALL - 10 * MS);
    assert_int_equal(stalls(&world), 0);
    assert_true(lone->made[0]);
    assert_false(lone->failed[0]);
    for (int i = 0; stalls(&world) == 0; i++) {
        assert_true(i < 50);
        lone_pass(lone, STALL / 100);
    }
    assert_true(lone->failed[0]); /* so that nothing of it happens later */
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_DEGRADED);
    lone->executes = true;
    come_back(&world);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_RECOVERED);
    assert_int_equal(lone->engine->stats.replays, 1);
    lone_pass(lone, STALL);
    assert_int_equal(stalls(&world), 1);
    assert_int_equal(engine_next_deadline(lone->engine), UINT64_MAX);
    lone_close(lone);
}

/* A megabyte a second is not still. */
static void test_M8_large_writes_are_given_time(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    for (int i = 0; i < 2; i++)
        write_of(&world, sizeof(bytes));
    lone_run(lone);
    uint64_t posted = inflight_bytes(lone->engine); /* what has a slot */
    assert_true(posted > 1000000);
    lone_pass(lone, STALL + posted * 1000 - 10 * MS);
    assert_int_equal(stalls(&world), 0);
    lone_pass(lone, STALL / 2);
    assert_int_equal(stalls(&world), 1);
    lone_close(lone);
}

/* Whatever is done in time counts, with more behind it. */
static void test_M8_a_slow_qp_is_left_alone(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    lone->executes = true;
    for (int i = 0; i < 10; i++) {
        lone->slow_bytes = 64;
        weir_transfer slow = write_of(&world, 64), next = write_of(&world, 65);
        lone_pass(lone, STALL - SECOND);
        assert_int_equal(weir_transfer_status(lone->engine, slow), WEIR_EINPROGRESS);
        lone->slow_bytes = 65;
        lone_pass(lone, STALL - SECOND);
        assert_int_equal(weir_transfer_status(lone->engine, slow), WEIR_OK);
        assert_int_equal(weir_transfer_status(lone->engine, next), WEIR_EINPROGRESS);
        weir_transfer_release(lone->engine, slow);
        lone->slow_bytes = 0;
        lone_run(lone);
        weir_transfer_release(lone->engine, next);
    }
    assert_int_equal(stalls(&world), 0);
    assert_int_equal(lone->engine->stats.sessions_failed, 0);
    lone_close(lone);
}

static uint32_t wakes_before;
static weir_transfer written_meanwhile;
static struct world *asleep;

static void write_meanwhile(struct lone *lone) {
    lone->on_sleep = NULL;
    wakes_before = lone->wakes;
    written_meanwhile = write_of(asleep, 64);
}

/* Somebody sleeps, for ever for all that he knows, and another thread posts: no interrupt will
 * come of a QP that stands still, so he has to be told. */
static void test_M8_who_sleeps_is_told_of_the_first_post(void **state) {
    (void)state;
    struct world world;
    uint64_t timeout_ns;
    struct lone *lone = open_world(&world);
    weir_engine *engine = lone->engine;
    asleep = &world;
    lone->on_sleep = write_meanwhile;
    assert_int_equal(weir_engine_wait(engine, 10 * MS), WEIR_OK); /* news: the post */
    assert_null(lone->on_sleep);
    assert_true(lone->wakes > wakes_before);
    lone_pass(lone, 2 * STALL);
    assert_int_equal(stalls(&world), 1);
    lone->executes = true;
    come_back(&world);
    lone_pass(lone, STALL); /* at rest */
    while (weir_engine_arm(engine, &timeout_ns) != WEIR_OK)
        weir_engine_progress(engine);
    assert_int_equal(timeout_ns, UINT64_MAX);
    lone->executes = false;
    write_of(&world, 64);
    assert_int_equal(atomic_load(&engine->armed), ARMED_TOLD);
    write_of(&world, 64);
    weir_engine_progress(engine);
    lone_run(lone);
    while (weir_engine_arm(engine, &timeout_ns) != WEIR_OK)
        lone_run(lone);
    assert_in_range(timeout_ns, 1, STALL / 2);
    weir_engine_progress(engine);
    lone_close(lone);
}

static weir_peer another(struct lone *lone) {
    weir_peer peer;
    assert_int_equal(weir_peer_open(lone->engine, ALSO, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, ALSO);
    lone_say_iam(lone, conn, 2, ALSO);
    lone_answer(lone, conn, 2, 1);
    return peer;
}

/* Others' bytes give time, too: they may be in its way. So they do when they have gone. */
static void test_M8_bytes_of_others_give_time(void **state) {
    (void)state;
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    struct world world;
    struct lone *lone = open_world(&world);
    weir_peer second = another(lone);
    write_of(&world, sizeof(bytes));
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(lone->engine, second, NULL, 0, &notify, &transfer), WEIR_OK);
    lone_run(lone);
    uint64_t posted = inflight_bytes(lone->engine);
    assert_true(posted > 5000000);
    lone_pass(lone, STALL / 2);
    assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK); /* with its bytes */
    lone_pass(lone, STALL / 2 + posted * 1000 - SECOND);
    assert_int_equal(inflight_bytes(lone->engine), 0);
    assert_int_equal(stalls(&world), 0);
    lone_pass(lone, STALL);
    assert_int_equal(stalls(&world), 1);
    lone_close(lone);
}

/* An application that calls seldom finds it, too: each call is a look. */
static void test_M8_a_slow_poller_finds_it(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    write_of(&world, 64);
    lone_run(lone);
    uint64_t posted_ns = lone->now_ns;
    lone->engine->has_fd = true;
    while (stalls(&world) == 0) {
        lone->now_ns += 50 * MS;
        weir_engine_progress(lone->engine);
        assert_true(lone->now_ns - posted_ns < 3 * STALL);
    }
    lone->engine->has_fd = false;
    lone_close(lone);
}

/* The first look at a QP counts for nothing, also in its slot's first life. */
static void test_M8_the_whole_time_is_given(void **state) {
    (void)state;
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    for (uint64_t late = 1; late < STALL / 2; late += STALL / 40) {
        struct world world;
        weir_transfer transfer;
        weir_peer second;
        struct lone *lone = open_world(&world);
        second = another(lone);
        notify.flags = WEIR_TRANSFER_NOTIFY; /* no bytes, which would give more time */
        assert_int_equal(weir_write(lone->engine, world.peer, NULL, 0, &notify, &transfer),
                         WEIR_OK); /* from here on there are looks */
        lone_pass(lone, late);
        assert_int_equal(weir_write(lone->engine, second, NULL, 0, &notify, &transfer), WEIR_OK);
        lone_run(lone);
        uint64_t posted_ns = lone->now_ns;
        uint8_t instance[WIRE_INSTANCE_SIZE];
        lone_instance(2, instance);
        const struct peer *peer = peer_by_instance(lone->engine, instance);
        assert_true(peer->live != NONE);
        while (peer->live != NONE && lone->now_ns - posted_ns < 2 * STALL)
            lone_pass(lone, 10 * MS);
        assert_in_range(lone->now_ns - posted_ns, STALL, STALL + STALL / 2);
        lone_close(lone);
    }
}

/* While polls are full a completion may be behind others: but not behind more than there are. */
static void test_M8_full_polls_put_it_off_and_no_more(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    weir_engine *engine = lone->engine;
    engine->caps.cq_capacity = 1000;
    write_of(&world, 64);
    lone_run(lone);
    engine->present_until_ns = UINT64_MAX; /* there are steps, if the test makes none */
    for (int full = 1; full >= 0; full--) {
        uint64_t end = lone->now_ns + (full ? 2 * STALL : STALL / 2);
        while (lone->now_ns < end && stalls(&world) == 0) {
            lone->now_ns += MS;
            stall_look(engine, false);
            engine->polled += full ? 0 : 1;
        }
        assert_int_equal(stalls(&world), 0);
    }
    uint64_t end = lone->now_ns + 2 * STALL;
    while (lone->now_ns < end && stalls(&world) == 0) {
        lone->now_ns += MS;
        engine->polled++;
        stall_look(engine, false);
    }
    assert_int_equal(stalls(&world), 1);
    lone_close(lone);
}

/* Nobody made progress, or the machine slept: the device had no time either, for all we know. */
static void test_M8_time_that_nobody_saw_pass_does_not_count(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    write_of(&world, 64);
    lone_pass(lone, STALL / 2);
    lone->now_ns += 3600 * SECOND;
    lone_run(lone);
    lone_pass(lone, STALL / 8);
    assert_int_equal(stalls(&world), 0);
    lone_pass(lone, STALL);
    assert_int_equal(stalls(&world), 1);
    lone_close(lone);
}

/* Every session stands still: that is as if the target did not answer, and the transfer ends. */
static void test_M8_a_device_that_stands_still_for_good(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    weir_transfer transfer = write_of(&world, 64);
    uint64_t seen = 0;
    while (weir_transfer_status(lone->engine, transfer) == WEIR_EINPROGRESS) {
        assert_true(stalls(&world) < 8);
        lone_pass(lone, 100 * MS);
        if (stalls(&world) > seen &&
            weir_transfer_status(lone->engine, transfer) == WEIR_EINPROGRESS)
            come_back(&world);
        seen = stalls(&world);
    }
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_ECONNECT);
    lone_close(lone);
}

/* While a QP drains, or connects, others bound its time. */
static void test_M8_only_live_qps_are_looked_at(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = open_world(&world);
    write_of(&world, 64);
    lone_run(lone);
    lone->no_destroy = true;
    assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
    lone_pass(lone, 3 * STALL);
    assert_int_equal(stalls(&world), 0);
    lone->no_destroy = false;
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M8_a_qp_that_stands_still_is_given_up),
        cmocka_unit_test(test_M8_large_writes_are_given_time),
        cmocka_unit_test(test_M8_a_slow_qp_is_left_alone),
        cmocka_unit_test(test_M8_who_sleeps_is_told_of_the_first_post),
        cmocka_unit_test(test_M8_bytes_of_others_give_time),
        cmocka_unit_test(test_M8_a_slow_poller_finds_it),
        cmocka_unit_test(test_M8_the_whole_time_is_given),
        cmocka_unit_test(test_M8_full_polls_put_it_off_and_no_more),
        cmocka_unit_test(test_M8_time_that_nobody_saw_pass_does_not_count),
        cmocka_unit_test(test_M8_a_device_that_stands_still_for_good),
        cmocka_unit_test(test_M8_only_live_qps_are_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
