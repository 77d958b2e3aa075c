/* SPDX-License-Identifier: Apache-2.0 */
/* test_serving.c: how long a call that waits spins, and when it sleeps, while peers' accesses take
 * this process' processor and tell it nothing (M7).
 *
 * One engine whose clock moves by a microsecond with each look at it, and whose device answers
 * has_served as the test says: see lone_engine.h. */
#include "lone_engine.h"
#include "news.h"
#include "own.h"
#include "sleep.h"

#define US UINT64_C(1000)

enum { SHORT_NAP_US = 40, LONG_NAP_US = 900 };

static struct lone *spinning(uint64_t nap_ns) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(engine_sleeping_open(lone->engine), WEIR_OK);
    lone->engine->sleeping->spins = 200; /* however many processors there are */
    lone->tick_ns = US;
    lone->nap_ns = nap_ns;
    return lone;
}

static void wait_for_nothing(struct lone *lone, uint64_t ns) {
    uint32_t serves = lone->serves;
    assert_int_equal(weir_engine_wait(lone->engine, ns), WEIR_EINPROGRESS);
    assert_true(serves == 0 || lone->serves < serves);
}

/* ---- without peers' accesses ---- */

static void test_M7_a_wait_for_nothing_sleeps(void **state) {
    (void)state;
    struct lone *lone = spinning(SHORT_NAP_US * US);
    wait_for_nothing(lone, MS);
    assert_in_range(lone->sleeps, 10, 1000 / SHORT_NAP_US);
    assert_in_range(lone->polls, lone->sleeps, 7 * lone->sleeps); /* steps around each sleep */
    assert_in_range(lone->asked, lone->sleeps, 2 * lone->sleeps);
    lone_close(lone);
}

/* ---- with them ---- */

/* Whether anybody slept while the device had something to serve. */
static bool overslept;

static void look_at_sleep(struct lone *lone) {
    overslept = overslept || lone->serves > 0;
}

static void test_M7_nobody_sleeps_while_peers_are_served(void **state) {
    (void)state;
    struct lone *lone = spinning(SHORT_NAP_US * US);
    lone->on_sleep = look_at_sleep;
    lone->serves = 300;
    overslept = false;
    wait_for_nothing(lone, 2 * MS);
    assert_int_equal(lone->serves, 0);
    assert_false(overslept);
    assert_in_range(lone->sleeps, 5, 2000 / SHORT_NAP_US); /* behind the last of them */
    lone_close(lone);
}

/* The device says so behind short sleeps alone: each access comes when the last one is over. */
static void serve_once(struct lone *lone) {
    lone->serves = 1;
}

static uint32_t polls_of_a_sleep(uint64_t nap_ns, void (*on_sleep)(struct lone *)) {
    struct lone *lone = spinning(nap_ns);
    lone->on_sleep = on_sleep;
    assert_int_equal(weir_engine_wait(lone->engine, 20 * MS), WEIR_EINPROGRESS);
    assert_in_range(lone->sleeps, 10, 1000);
    uint32_t polls = lone->polls / lone->sleeps;
    lone_close(lone);
    return polls;
}

static void test_M7_a_short_sleep_that_served_is_followed_by_a_spin(void **state) {
    (void)state;
    uint32_t idle = polls_of_a_sleep(SHORT_NAP_US * US, NULL);
    uint32_t serving = polls_of_a_sleep(SHORT_NAP_US * US, serve_once);
    assert_in_range(idle, 1, 7);
    assert_in_range(serving, 2 * idle, 50); /* 50 us, and some looks at the clock in each */
}

/* Accesses that are far apart are worth no spin. */
static void test_M7_a_long_sleep_that_served_is_not(void **state) {
    (void)state;
    assert_in_range(polls_of_a_sleep(LONG_NAP_US * US, serve_once), 1, 7);
}

/* A device that always seems to have something is armed now and then: there it may find that it is
 * a message which nobody can take. */
static void test_M2_a_device_that_never_rests_is_armed(void **state) {
    (void)state;
    struct lone *lone = spinning(SHORT_NAP_US * US);
    lone->serves = UINT32_MAX;
    wait_for_nothing(lone, 100 * MS);
    assert_in_range(lone->arms, 5, 50);
    assert_int_equal(lone->sleeps, 0);
    lone_close(lone);
}

/* A transfer that is waited for is no reason to forget the peers. */
static void test_M7_a_wait_for_a_transfer_serves_peers(void **state) {
    (void)state;
    struct lone *lone = spinning(SHORT_NAP_US * US);
    static uint8_t bytes[8];
    weir_peer peer;
    weir_memory local;
    weir_remote remote;
    weir_transfer transfer;
    assert_int_equal(weir_peer_open(lone->engine, "10.0.0.9:9", &peer), WEIR_OK);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &local, &remote);
    weir_segment segment = {.local = local, .remote = remote, .length = 8};
    assert_int_equal(weir_write(lone->engine, peer, &segment, 1, NULL, &transfer), WEIR_OK);
    lone->on_sleep = look_at_sleep;
    lone->serves = 100;
    overslept = false;
    assert_int_equal(weir_transfer_wait(lone->engine, transfer, MS), WEIR_EINPROGRESS);
    assert_int_equal(lone->serves, 0);
    assert_false(overslept);
    lone_close(lone);
}

/* ---- beside calls that need the engine itself ---- */

/* W5: a thread that makes progress all the time leaves the engine to one that waits for it, and
 * gets a turn of its own all the same. */
static void test_W5_progress_gives_way_to_calls(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_run(lone);
    uint32_t before = lone->polls;
    weir_engine_progress(lone->engine);
    uint32_t each = lone->polls - before;
    assert_true(each > 0);
    atomic_store(&lone->engine->entering, 1);
    for (int i = 0; i < 10 * STEPS_TRY; i++)
        assert_int_equal(weir_engine_progress(lone->engine), 0);
    assert_int_equal(lone->polls - before, 11 * each);
    atomic_store(&lone->engine->entering, 0);
    weir_engine_progress(lone->engine);
    assert_int_equal(lone->polls - before, 12 * each);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M7_a_wait_for_nothing_sleeps),
        cmocka_unit_test(test_M7_nobody_sleeps_while_peers_are_served),
        cmocka_unit_test(test_M7_a_short_sleep_that_served_is_followed_by_a_spin),
        cmocka_unit_test(test_M7_a_long_sleep_that_served_is_not),
        cmocka_unit_test(test_M2_a_device_that_never_rests_is_armed),
        cmocka_unit_test(test_M7_a_wait_for_a_transfer_serves_peers),
        cmocka_unit_test(test_W5_progress_gives_way_to_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
