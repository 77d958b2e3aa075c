/* SPDX-License-Identifier: Apache-2.0 */
/* test_sendqueue_waits.c: the cost of a thread that waits for a full queue, or for a transfer that
 * does not end: it sleeps nearly all of the time (S5, M7).
 *
 * The bounds are a share of the processor and numbers of sleeps: a thread that spins has all of
 * it, and sleeps never. The promise is a fifth of the share asked for here; a busy machine, where
 * a wake costs more, has the rest.
 */
#include "sendqueue_world.h"

#include <sys/resource.h>
#include <time.h>

#include "device.h"
#include "sleep.h"
#include "state.h"

#define LONG_NS (300 * MS)

/* Sanitizers make the few steps before each sleep ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_PERCENT = 50 };
#else
enum { MOST_PERCENT = 10 };
#endif
/* Of who looks for room: those of 50 us to 1 ms, and then one each 2 ms; the rest for timers. */
enum { SLEEPS_LEAST = 10, SLEEPS_MOST = 400, PLACES = 4 };

static struct queue_world world;

struct cost {
    uint64_t wall_ns, cpu_ns;
    long sleeps;
};

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;

    assert_int_equal(clock_gettime(clock, &now), 0);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* Of the whole process: the engine's own thread is in it. */
static struct cost cost_now(void) {
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (struct cost){.wall_ns = clock_ns(CLOCK_MONOTONIC),
                         .cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
                         .sleeps = usage.ru_nvcsw};
}

static void assert_asleep(const char *what, struct cost begin, long sleeps_least) {
    struct cost end = cost_now();
    uint64_t wall_ns = end.wall_ns - begin.wall_ns, cpu_ns = end.cpu_ns - begin.cpu_ns;
    long sleeps = end.sleeps - begin.sleeps;

    print_message("%s: %.1f %% of the processor, %ld sleeps\n", what,
                  100 * (double)cpu_ns / (double)wall_ns, sleeps);
    assert_true(wall_ns >= LONG_NS);
    assert_true(cpu_ns * 100 < wall_ns * MOST_PERCENT);
    assert_in_range(sleeps, sleeps_least, SLEEPS_MOST);
}

/* A device that completes nothing, and a peer that is not run. The submitted transfers fill all
 * places: the first is posted, and if it is wide no other finds a slot. */
static void open_full(uint32_t flags, uint64_t poll_ns, weir_transfer transfers[PLACES]) {
    struct qw_options options = qw_options(0);

    options.limits.transfers_max = PLACES;
    options.limits.backoff_timeout_ns = LONG_NS;
    options.limits.flags = flags;
    qw_open(&world, &options);
    qw_connect(&world);
    world.stalled = true;
    world.poll_ns = poll_ns;
    weir_segment wide[32];
    for (uint32_t i = 0; i < 32; i++)
        wide[i] = qw_segment(&world, 1, 0, 64 * i, 64);
    uint32_t count = 0;
    while (weir_write(world.engines[0], world.peers[1], wide, count == 0 ? 32 : 1, NULL,
                      &transfers[count % PLACES]) == WEIR_OK)
        count++;
    assert_in_range(count, 1, PLACES);
    assert_int_equal(engine_sleeping_open(world.engines[0]), WEIR_OK);
}

static void close_full(void) {
    engine_thread_stop(world.engines[0]);
    qw_close(&world);
}

static void wait_for_room(void) {
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment one = qw_segment(&world, 1, 0, 0, 64);
    weir_transfer transfer;

    block.flags = WEIR_TRANSFER_BLOCK;
    struct cost begin = cost_now();
    assert_int_equal(weir_write(world.engines[0], world.peers[1], &one, 1, &block, &transfer),
                     WEIR_EAGAIN);
    assert_asleep("a submit", begin, SLEEPS_LEAST);
}

static void wait_for_transfer(const char *what, weir_transfer transfer) {
    struct cost begin = cost_now();
    assert_int_equal(weir_transfer_wait(world.engines[0], transfer, LONG_NS), WEIR_EINPROGRESS);
    assert_asleep(what, begin, 1);
}

static void wait_for_anything(void) {
    struct cost begin = cost_now();
    for (uint64_t end = begin.wall_ns + LONG_NS; clock_ns(CLOCK_MONOTONIC) < end;)
        weir_engine_wait(world.engines[0], LONG_NS);
    assert_asleep("a wait for anything", begin, 1);
}

static void wait_for_all(uint32_t flags, uint64_t poll_ns) {
    weir_transfer transfers[PLACES];

    if (!qw_has_shm())
        skip();
    open_full(flags, poll_ns, transfers);
    wait_for_room();
    wait_for_transfer("a wait for slots", transfers[1]);
    assert_int_equal(weir_transfer_waiting_for(world.engines[0], transfers[1]), WEIR_WAITING_SLOTS);
    wait_for_anything();
    close_full();
}

static void test_S5_a_blocked_submitter_sleeps(void **state) {
    (void)state;
    wait_for_all(0, 0);
}

static void test_S5_a_blocked_submitter_sleeps_beside_a_thread(void **state) {
    (void)state;
    wait_for_all(WEIR_ENGINE_THREAD, 0);
}

/* As some RDMA devices: what spins for a number of polls spins for as long as it sleeps. */
static void test_S5_a_blocked_submitter_sleeps_on_a_slow_device(void **state) {
    (void)state;
    wait_for_all(0, 300);
    wait_for_all(WEIR_ENGINE_THREAD, 300);
}

/* Its session broke, and nothing of it flushes. */
static void test_S5_a_wait_for_a_parked_transfer_sleeps(void **state) {
    weir_transfer transfers[PLACES];

    (void)state;
    if (!qw_has_shm())
        skip();
    open_full(0, 300, transfers);
    assert_int_equal(world.ports[0].device_ops->qp_error(world.qps[0].qp), WEIR_OK);
    qw_invent(&world, world.last_signaled, WEIR_CQE_DEVICE);
    while (weir_transfer_waiting_for(world.engines[0], transfers[0]) != WEIR_WAITING_DRAIN)
        assert_true(weir_engine_progress(world.engines[0]) >= 0);
    wait_for_transfer("a wait for the drain", transfers[0]);
    wait_for_room();
    close_full();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S5_a_blocked_submitter_sleeps),
        cmocka_unit_test(test_S5_a_blocked_submitter_sleeps_beside_a_thread),
        cmocka_unit_test(test_S5_a_blocked_submitter_sleeps_on_a_slow_device),
        cmocka_unit_test(test_S5_a_wait_for_a_parked_transfer_sleeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
