/* test_sendqueue_waits.c: what a thread costs that waits for a full queue, or for a transfer
 * that does not end: it sleeps nearly all of the time (S5, M7).
 *
 * The bounds are shares of the processor, generous ones, and numbers of sleeps: a thread that
 * spins has all of it, and sleeps never. A busy machine only makes them smaller.
 */
#include "engine_side.h"

#include <sys/resource.h>
#include <time.h>

#define LONG_NS (300 * MS)

/* Sanitizers make the few steps before each sleep ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_PERCENT = 95 };
#else
enum { MOST_PERCENT = 50 };
#endif

struct cost {
    uint64_t wall_ns, cpu_ns;
    long sleeps;
};

/* Of the whole process: the engine's own thread is in it. */
static struct cost cost_now(void) {
    struct rusage usage;
    struct timespec cpu;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu), 0);
    return (struct cost){.wall_ns = now_ns(),
                         .cpu_ns = (uint64_t)cpu.tv_sec * SECOND + (uint64_t)cpu.tv_nsec,
                         .sleeps = usage.ru_nvcsw};
}

static struct cost cost_since(struct cost begin) {
    struct cost end = cost_now();

    return (struct cost){.wall_ns = end.wall_ns - begin.wall_ns,
                         .cpu_ns = end.cpu_ns - begin.cpu_ns,
                         .sleeps = end.sleeps - begin.sleeps};
}

static void assert_mostly_asleep(const char *what, const struct cost *cost, long sleeps_most) {
    print_message("%s: %u %% of the processor, %ld sleeps\n", what,
                  (unsigned)(cost->cpu_ns * 100 / cost->wall_ns), cost->sleeps);
    assert_true(cost->wall_ns >= LONG_NS);
    assert_true(cost->cpu_ns * 100 < cost->wall_ns * MOST_PERCENT);
    assert_in_range(cost->sleeps, 1, sleeps_most);
}

/* A peer that is never run: nothing connects, and what is submitted waits. */
static void full_side(struct side *a, struct side *b, uint32_t flags, weir_transfer *last) {
    weir_engine_options options = side_options();

    options.transfers_max = 4;
    options.backoff_timeout_ns = LONG_NS;
    options.flags = flags;
    side_open(a, &options);
    side_open(b, NULL);
    side_join(a, b);
    weir_segment one = segment_of(a, 0, 0, 64);
    while (weir_write(a->engine, a->peer, &one, 1, NULL, last) == WEIR_OK)
        continue;
}

static void submit_and_wait(uint32_t flags) {
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer last, another;
    struct side a, b;

    full_side(&a, &b, flags, &last);
    block.flags = WEIR_TRANSFER_BLOCK;
    weir_segment one = segment_of(&a, 0, 0, 64);
    struct cost begin = cost_now();
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &block, &another), WEIR_EAGAIN);
    struct cost submit = cost_since(begin);
    assert_mostly_asleep("a submit", &submit, (long)(LONG_NS / (20 * 1000)));
    begin = cost_now();
    assert_int_equal(weir_transfer_wait(a.engine, last, LONG_NS), WEIR_EINPROGRESS);
    struct cost wait = cost_since(begin);
    assert_mostly_asleep("a wait for a transfer", &wait, 300);
    begin = cost_now();
    for (uint64_t end = now_ns() + LONG_NS; now_ns() < end;)
        weir_engine_wait(a.engine, LONG_NS);
    wait = cost_since(begin);
    assert_mostly_asleep("a wait for anything", &wait, 300);
    pair_close(&a, &b);
}

static void test_S5_a_blocked_submitter_sleeps(void **state) {
    (void)state;
    submit_and_wait(0);
}

static void test_S5_a_blocked_submitter_sleeps_beside_a_thread(void **state) {
    (void)state;
    submit_and_wait(WEIR_ENGINE_THREAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S5_a_blocked_submitter_sleeps),
        cmocka_unit_test(test_S5_a_blocked_submitter_sleeps_beside_a_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
