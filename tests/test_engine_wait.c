/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_wait.c: sleeping and waking: an engine with a thread of its own, the
 * descriptor in a poll(2) loop, several threads asleep on one engine (M7). */
#include "engine_side.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Both engines progress by themselves: nobody here steps them. */
static void threaded_pair(struct side *a, struct side *b) {
    weir_engine_options options = side_options();

    options.flags = WEIR_ENGINE_THREAD;
    side_open(a, &options);
    side_open(b, &options);
    side_join(a, b);
    side_join(b, a);
}

static void nap(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000 * 1000};

    nanosleep(&pause, NULL);
}

static bool came(struct side *side, weir_notification *got) {
    uint64_t end = now_ns() + PATIENCE_NS;

    while (weir_notification_take(side->engine, got) != WEIR_OK) {
        if (now_ns() > end)
            return false;
        weir_engine_wait(side->engine, SECOND);
    }
    return true;
}

static void test_M7_engines_with_threads(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    struct side a, b;

    (void)state;
    threaded_pair(&a, &b);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (uint64_t i = 0; i < 300; i++) {
        struct side *from = i % 2 == 0 ? &a : &b;
        struct side *to = i % 2 == 0 ? &b : &a;
        weir_segment one = segment_of(from, 0, 4096, 2048);
        weir_transfer transfer;
        fill_pattern(from->bytes, 2048, i);
        notify.notify_tag = i;
        assert_int_equal(weir_write(from->engine, from->peer, &one, 1, &notify, &transfer),
                         WEIR_OK);
        assert_int_equal(weir_transfer_wait(from->engine, transfer, PATIENCE_NS), WEIR_OK);
        weir_transfer_release(from->engine, transfer);
        assert_true(came(to, &got));
        assert_int_equal(got.tag, i);
        assert_memory_equal(to->bytes + 4096, from->bytes, 2048);
    }
    pair_close(&a, &b);
}

/* A signal to the process goes to a thread that lets it in: not to one of the library's. */
static void test_M7_signals_are_the_applications(void **state) {
    struct timespec soon = {.tv_nsec = 200 * MS};
    sigset_t usr1, before;
    struct side a, b;

    (void)state;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    threaded_pair(&a, &b);
    connect_now(&a, NULL);
    pthread_sigmask(SIG_BLOCK, &usr1, &before);
    assert_int_equal(kill(getpid(), SIGUSR1), 0); /* its default action ends the process */
    assert_int_equal(sigtimedwait(&usr1, NULL, &soon), SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pair_close(&a, &b);
}

/* The engine's own loop, as an application with other descriptors has it. */
struct loop {
    struct side *side;
    atomic_bool stop;
    uint64_t notes;
    uint64_t wakes;
    const char *wrong;
};

static void *loop_main(void *argument) {
    struct loop *loop = argument;
    weir_engine *engine = loop->side->engine;
    struct pollfd fd = {.fd = weir_engine_fd(engine), .events = POLLIN};
    weir_notification got;

    while (!atomic_load(&loop->stop)) {
        while (weir_engine_progress(engine) > 0)
            continue;
        while (weir_notification_take(engine, &got) == WEIR_OK)
            loop->notes++;
        uint64_t timeout_ns = 0;
        int rc = weir_engine_arm(engine, &timeout_ns);
        if (rc == WEIR_EAGAIN)
            continue;
        if (rc != WEIR_OK) {
            loop->wrong = "arm";
            break;
        }
        uint64_t ms = timeout_ns / MS + 1;
        poll(&fd, 1, ms < 20000 ? (int)ms : 20000);
        loop->wakes++;
    }
    return NULL;
}

static void test_M7_a_poll_loop(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    pthread_t thread;
    struct side a, b;
    struct loop loop = {.side = &b};

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    assert_int_equal(pthread_create(&thread, NULL, loop_main, &loop), 0);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK);
        if (i % 50 == 0) { /* let it fall asleep */
            uint64_t end = now_ns() + 10 * MS;
            while (now_ns() < end)
                weir_engine_wait(a.engine, MS);
        }
    }
    STEP_UNTIL(&a, NULL, stats_of(&b).notifications_received == 200);
    atomic_store(&loop.stop, true);
    assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK); /* wakes it */
    pthread_join(thread, NULL);
    assert_null(loop.wrong);
    assert_true(loop.wakes >= 1);
    assert_true(loop.wakes < 100000); /* it did sleep */
    pair_close(&a, &b);
}

/* Threads of the application asleep on one engine, each for a transfer of its own. */
struct sleeper {
    struct side *side;
    weir_transfer transfer;
    int status;
};

static void *sleeper_main(void *argument) {
    struct sleeper *sleeper = argument;

    sleeper->status = weir_transfer_wait(sleeper->side->engine, sleeper->transfer, PATIENCE_NS);
    return NULL;
}

static void *late_main(void *argument) {
    struct loop *loop = argument;

    while (!atomic_load(&loop->stop))
        weir_engine_wait(loop->side->engine, 10 * MS);
    return NULL;
}

static void test_M7_several_threads_asleep(void **state) {
    enum { SLEEPERS = 6 };
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    struct sleeper sleepers[SLEEPERS];
    pthread_t threads[SLEEPERS], late;
    struct side a, b;
    struct loop loop = {.side = &b};

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    weir_segment one = segment_of(&a, 0, 0, 64);
    for (int i = 0; i < SLEEPERS; i++) {
        sleepers[i] = (struct sleeper){.side = &a};
        options.timeout_ns = i == 5 ? 10 * MS : 0; /* one of them has a deadline */
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &options, &sleepers[i].transfer),
                         WEIR_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, sleeper_main, &sleepers[i]), 0);
    }
    struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    nanosleep(&pause, NULL);
    assert_int_equal(weir_transfer_cancel(a.engine, sleepers[4].transfer), WEIR_OK);
    for (int i = SLEEPERS - 1; i >= 0; i--) {
        pthread_join(threads[i], NULL);
        if (i == 4) /* cancelled; 5 was late. The others need the other side. */
            assert_int_equal(pthread_create(&late, NULL, late_main, &loop), 0);
    }
    atomic_store(&loop.stop, true);
    pthread_join(late, NULL);
    for (int i = 0; i < SLEEPERS; i++)
        assert_int_equal(sleepers[i].status,
                         i == 4 ? WEIR_ECANCELED : (i == 5 ? WEIR_ETIMEDOUT : WEIR_OK));
    pair_close(&a, &b);
}

static void test_M7_a_wait_ends_in_time(void **state) {
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    for (int i = 0; i < 20; i++)
        step(&a, &b);
    uint64_t begin = now_ns();
    int rc = WEIR_OK;
    for (int i = 0; i < 100 && rc == WEIR_OK; i++)
        rc = weir_engine_wait(a.engine, 30 * MS);
    assert_int_equal(rc, WEIR_EINPROGRESS);
    assert_true(now_ns() - begin >= 30 * MS);
    pair_close(&a, &b);
}

/* A thread that waits again and again, since there always is something, still hears what others
 * say: they connect, and leave. */
static void test_M7_a_thread_that_never_sleeps_hears_control(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    struct side a, b, c;
    weir_event event;

    (void)state;
    pair_open(&a, &b, NULL);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(write_now(&a, &b, NULL, 0, &notify), WEIR_OK);
    while (weir_event_take(b.engine, &event) == WEIR_OK)
        continue;
    side_open(&c, NULL);
    side_join(&c, &b);
    weir_peer_connect(c.engine, c.peer);
    for (int ends = 0; ends < 2; ends++) {
        weir_event_type type = ends ? WEIR_EVENT_GONE : WEIR_EVENT_UP;
        uint64_t end = now_ns() + PATIENCE_NS;
        bool told = false;
        while (!told) {
            assert_true(now_ns() < end);
            assert_int_equal(weir_engine_wait(b.engine, PATIENCE_NS), WEIR_OK);
            if (!ends)
                weir_engine_progress(c.engine);
            while (weir_event_take(b.engine, &event) == WEIR_OK)
                told |= event.type == type;
        }
        if (!ends)
            side_close(&c);
    }
    assert_int_equal(weir_notification_take(b.engine, &got), WEIR_OK);
    pair_close(&a, &b);
}

/* ---- the application armed, and others on the same engine ---- */

static bool fd_readable(struct side *side) {
    struct pollfd fd = {.fd = weir_engine_fd(side->engine), .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

/* Armed, as before sleeping: all that there was has been dealt with. */
static void arm_now(struct side *a, struct side *other) {
    uint64_t timeout_ns;
    weir_notification got;

    while (weir_engine_arm(a->engine, &timeout_ns) != WEIR_OK) {
        weir_engine_progress(a->engine);
        while (weir_notification_take(a->engine, &got) == WEIR_OK)
            continue;
        if (other != NULL)
            weir_engine_progress(other->engine);
    }
}

/* b has a thread of its own, and an application that arms it. */
static void armed_pair(struct side *a, struct side *b) {
    weir_engine_options options = side_options();

    options.flags = WEIR_ENGINE_THREAD;
    side_open(a, NULL);
    side_open(b, &options);
    side_join(a, b);
    connect_now(a, NULL);
    uint64_t end = now_ns() + 50 * MS; /* late READYs, timers of the handshake */
    while (now_ns() < end)
        step(a, NULL);
}

static long switches(void) {
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_nvcsw;
}

static void test_M7_an_armed_application_that_is_away_costs_nothing(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    struct timespec pause = {.tv_nsec = 400 * 1000 * 1000};
    struct side a, b;

    (void)state;
    armed_pair(&a, &b);
    arm_now(&b, NULL);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK);
    STEP_UNTIL(&a, NULL, stats_of(&b).notifications_received == 1);
    long before = switches();
    nanosleep(&pause, NULL); /* it does something else, still armed */
    assert_true(switches() - before < 40);
    assert_true(fd_readable(&b));
    pair_close(&a, &b);
}

/* The engine's thread takes a notification between the application's last look and its
 * arming: nobody was asleep to be told. */
static void test_M7_what_the_thread_did_before_arming_is_seen(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    uint64_t timeout_ns;
    struct side a, b;

    (void)state;
    armed_pair(&a, &b);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (uint64_t i = 1; i <= 100; i++) {
        arm_now(&b, &a);
        weir_engine_progress(b.engine);
        assert_int_equal(weir_notification_take(b.engine, &got), WEIR_EAGAIN);
        assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK);
        STEP_UNTIL(&a, NULL, stats_of(&b).notifications_received == i);
        if (weir_engine_arm(b.engine, &timeout_ns) == WEIR_OK)
            assert_true(fd_readable(&b));
        assert_int_equal(weir_notification_take(b.engine, &got), WEIR_OK);
    }
    pair_close(&a, &b);
}

/* The work is done by whoever makes progress; the one that sleeps has to come and take. */
static void test_M7_progress_of_another_thread_wakes_the_sleeper(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (int i = 0; i < 20; i++) {
        arm_now(&b, &a);
        assert_false(fd_readable(&b));
        assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK);
        while (stats_of(&b).notifications_received == (uint64_t)i)
            weir_engine_progress(b.engine); /* as another thread would */
        assert_true(fd_readable(&b));
        assert_int_equal(weir_notification_take(b.engine, &got), WEIR_OK);
    }
    pair_close(&a, &b);
}

/* A thread that waits for a time takes the device's news with it when it leaves. */
static void *short_wait_main(void *argument) {
    struct side *side = argument;
    uint64_t end = now_ns() + 30 * MS;

    while (now_ns() < end)
        weir_engine_wait(side->engine, MS);
    return NULL;
}

static void test_M7_a_waiter_that_leaves_wakes_the_armed(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    pthread_t thread;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (int i = 0; i < 10; i++) {
        arm_now(&b, &a);
        assert_int_equal(pthread_create(&thread, NULL, short_wait_main, &b), 0);
        struct timespec pause = {.tv_nsec = i * 3 * 1000 * 1000};
        nanosleep(&pause, NULL);
        if (i % 2 == 0)
            assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK);
        pthread_join(thread, NULL);
        if (i % 2 == 1)
            assert_int_equal(write_now(&a, NULL, NULL, 0, &notify), WEIR_OK);
        struct pollfd fd = {.fd = weir_engine_fd(b.engine), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, (int)(PATIENCE_NS / MS)), 1);
        while (weir_notification_take(b.engine, &got) != WEIR_OK)
            weir_engine_progress(b.engine);
    }
    pair_close(&a, &b);
}

/* Arrivals that progress, or an earlier wait, took in are not slept over; events may stay. */
static void test_M7_nobody_sleeps_over_what_waits_to_be_taken(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    weir_completion done;
    uint64_t timeout_ns;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    assert_int_equal(weir_engine_wait(b.engine, 1), WEIR_EINPROGRESS); /* UP is an event */
    notify.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE;
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_write(a.engine, a.peer, NULL, 0, &notify, NULL), WEIR_OK);
    STEP_UNTIL(&a, &b, stats_of(&b).notifications_received == 2);
    for (int i = 0; i < 2; i++) {
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(weir_engine_wait(b.engine, PATIENCE_NS), WEIR_OK);
            assert_int_equal(weir_engine_wait(a.engine, PATIENCE_NS), WEIR_OK);
            assert_int_equal(weir_engine_arm(b.engine, &timeout_ns), WEIR_EAGAIN);
            assert_int_equal(weir_engine_arm(a.engine, &timeout_ns), WEIR_EAGAIN);
        }
        assert_int_equal(weir_notification_take(b.engine, &got), WEIR_OK);
        assert_int_equal(weir_completion_take(a.engine, &done), WEIR_OK);
    }
    while (weir_engine_wait(b.engine, 10 * MS) == WEIR_OK) /* credits */
        continue;
    assert_int_equal(weir_engine_wait(b.engine, 1), WEIR_EINPROGRESS);
    pair_close(&a, &b);
}

/* Nobody but the engine's thread, which is asleep without a bound, looks at the timers that a
 * dial sets: broadcast cannot be dialled, so all there is are pauses and a deadline. Its end says
 * why (W10). */
static void test_W9_a_dial_ends_while_the_thread_sleeps(void **state) {
    weir_engine_options options = side_options();
    weir_event event = {0};
    uint64_t end = now_ns() + PATIENCE_NS;
    weir_peer peer;
    struct side a;

    (void)state;
    options.flags = WEIR_ENGINE_THREAD;
    options.connect_timeout_ns = SECOND;
    side_open(&a, &options);
    assert_int_equal(weir_peer_open(a.engine, "255.255.255.255:9", &peer), WEIR_OK);
    nap(200); /* it falls asleep */
    assert_int_equal(weir_peer_connect(a.engine, peer), WEIR_ENOTREADY);
    while (weir_event_take(a.engine, &event) != WEIR_OK && now_ns() < end)
        nap(10);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EUNREACH);
    side_close(&a);
}

/* Likewise an application that has armed the descriptor in one thread, and connects in another. */
static void test_W9_a_dial_ends_while_the_application_is_armed(void **state) {
    weir_engine_options options = side_options();
    weir_event event = {0};
    struct pollfd fd = {.events = POLLIN};
    weir_peer peer;
    struct side a;

    (void)state;
    options.connect_timeout_ns = SECOND;
    side_open(&a, &options);
    arm_now(&a, NULL);
    assert_int_equal(weir_peer_open(a.engine, "255.255.255.255:9", &peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(a.engine, peer), WEIR_ENOTREADY);
    fd.fd = weir_engine_fd(a.engine);
    assert_int_equal(poll(&fd, 1, 30000), 1); /* there are timers that it does not know of */
    event = next_event(&a, NULL, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EUNREACH);
    side_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M7_engines_with_threads),
        cmocka_unit_test(test_M7_signals_are_the_applications),
        cmocka_unit_test(test_M7_a_poll_loop),
        cmocka_unit_test(test_M7_several_threads_asleep),
        cmocka_unit_test(test_M7_a_wait_ends_in_time),
        cmocka_unit_test(test_M7_a_thread_that_never_sleeps_hears_control),
        cmocka_unit_test(test_M7_an_armed_application_that_is_away_costs_nothing),
        cmocka_unit_test(test_M7_what_the_thread_did_before_arming_is_seen),
        cmocka_unit_test(test_M7_progress_of_another_thread_wakes_the_sleeper),
        cmocka_unit_test(test_M7_a_waiter_that_leaves_wakes_the_armed),
        cmocka_unit_test(test_M7_nobody_sleeps_over_what_waits_to_be_taken),
        cmocka_unit_test(test_W9_a_dial_ends_while_the_thread_sleeps),
        cmocka_unit_test(test_W9_a_dial_ends_while_the_application_is_armed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
