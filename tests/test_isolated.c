/* SPDX-License-Identifier: Apache-2.0 */
/* test_isolated.c: a device whose WRs fail alone (S9, S13): a refused access, a cancel or a
 * deadline ends its transfer and breaks no session; on one that does not isolate the same breaks
 * one. */
#include <string.h>

#include "sendqueue_world.h"

enum { UNIT = 64, OTHERS = 12, GRACE_MS = 5 };

static struct queue_world world;

static void open_world(bool isolates) {
    struct qw_options options = qw_options(3);
    options.unordered = true;
    options.isolates = isolates;
    options.limits.settle_grace_ns = GRACE_MS * MS;
    qw_open(&world, &options);
    qw_connect(&world);
    memset(world.bytes[0], 0x5a, (OTHERS + 1) * UNIT);
}

static weir_transfer write_at(uint32_t place, const weir_transfer_options *options) {
    weir_segment segment = qw_segment(&world, 1, place * UNIT, place * UNIT, UNIT);
    weir_transfer transfer;
    assert_int_equal(weir_write(world.engines[0], world.peers[1], &segment, 1, options, &transfer),
                     WEIR_OK);
    return transfer;
}

static uint32_t told(uint32_t type) {
    weir_event event;
    uint32_t count = 0;
    while (weir_event_take(world.engines[0], &event) == WEIR_OK)
        count += event.type == type;
    return count;
}

static void expect_sessions(uint32_t sessions) {
    assert_int_equal(qw_info(&world, 1).sessions, sessions);
    assert_int_equal(told(WEIR_EVENT_DEGRADED), sessions - 1);
    qw_assert_quiet(&world);
    qw_close(&world);
}

/* A batch of which one segment names memory that was released: the batch ends with EREMOTE, and the
 * transfers around it do not notice. */
static void test_S9_a_refused_access_costs_no_session(void **state) {
    bool isolates = *state != NULL;
    weir_transfer others[OTHERS], refused;
    weir_memory gone;
    weir_remote remote;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof descriptor;
    void *base;
    open_world(isolates);
    assert_int_equal(weir_memory_allocate(world.engines[1], UNIT, WEIR_ACCESS_ALL, &gone, &base),
                     WEIR_OK);
    assert_int_equal(weir_memory_export(world.engines[1], gone, descriptor, &length), WEIR_OK);
    assert_int_equal(
        weir_memory_import(world.engines[0], world.peers[1], descriptor, length, &remote), WEIR_OK);
    assert_int_equal(weir_memory_release(world.engines[1], gone), WEIR_OK);
    for (uint32_t i = 0; i < OTHERS / 2; i++)
        others[i] = write_at(i, NULL);
    weir_segment segments[3] = {qw_segment(&world, 1, OTHERS * UNIT, OTHERS * UNIT, UNIT),
                                {world.memory[0], remote, 0, 0, UNIT},
                                qw_segment(&world, 1, OTHERS * UNIT, OTHERS * UNIT, UNIT)};
    assert_int_equal(weir_write(world.engines[0], world.peers[1], segments, 3, NULL, &refused),
                     WEIR_OK);
    for (uint32_t i = OTHERS / 2; i < OTHERS; i++)
        others[i] = write_at(i, NULL);
    assert_int_equal(qw_finish(&world, refused), WEIR_EREMOTE);
    for (uint32_t i = 0; i < OTHERS; i++)
        assert_int_equal(qw_finish(&world, others[i]), WEIR_OK);
    for (uint32_t i = 0; i < OTHERS * UNIT; i++)
        assert_int_equal(world.bytes[1][i], 0x5a);
    assert_int_equal(weir_remote_release(world.engines[0], remote), WEIR_OK);
    if (isolates)
        assert_int_equal(qw_stats(&world).replays, 0);
    expect_sessions(isolates ? 1 : 2);
}

static void turn_for(uint64_t ns) {
    uint64_t until = world.sim->now_ns + ns;
    while (world.sim->now_ns < until)
        qw_turn(&world);
}

/* Nothing completes for longer than settle_grace_ns after a cancel, and after a deadline. The
 * transfer ends when what ran on is over; only a device that does not isolate has lost its session
 * over it by then. */
static void stopped_early(bool isolates, bool cancels) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    open_world(isolates);
    options.timeout_ns = cancels ? 0 : MS;
    options.flags = WEIR_TRANSFER_NOTIFY;
    world.stalled = true;
    weir_transfer stopped = write_at(0, &options), other = write_at(1, NULL);
    if (cancels)
        assert_int_equal(weir_transfer_cancel(world.engines[0], stopped), WEIR_OK);
    turn_for(GRACE_MS * MS + 2 * MS);
    assert_int_equal(qw_status(&world, stopped), WEIR_EINPROGRESS);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, stopped), cancels ? WEIR_ECANCELED : WEIR_ETIMEDOUT);
    assert_int_equal(qw_finish(&world, other), WEIR_OK);
    expect_sessions(isolates ? 1 : 2);
}

static void test_S13_a_cancel_costs_no_session(void **state) {
    stopped_early(*state != NULL, true);
}

static void test_S13_a_deadline_costs_no_session(void **state) {
    stopped_early(*state != NULL, false);
}

static int isolating = 1;
#define BOTH(test) cmocka_unit_test_prestate(test, &isolating), cmocka_unit_test(test)

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(test_S9_a_refused_access_costs_no_session),
        BOTH(test_S13_a_cancel_costs_no_session),
        BOTH(test_S13_a_deadline_costs_no_session),
    };
    return cmocka_run_group_tests_name("isolated", tests, NULL, NULL);
}
