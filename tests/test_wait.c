/* SPDX-License-Identifier: Apache-2.0 */
/* test_wait.c: the sleeping port of Linux: sources, time-outs, wakes from anywhere. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os.h"
#include "ready.h"

#define MS      UINT64_C(1000000)
#define LONG_NS (600000 * MS) /* no test waits for it; reaching it is a failure */

static struct weir_env env;
static struct weir_wait port;

static int setup(void **state) {
    (void)state;
    return os_env_init(&env) != WEIR_OK || wait_open(&env, &port) != WEIR_OK;
}

static int teardown(void **state) {
    (void)state;
    wait_close(&port);
    return 0;
}

static uint64_t now_ns(void) {
    return env.ops->now(env.self);
}

static int readable(void) {
    struct pollfd set = {.fd = port.ops->fd(port.self), .events = POLLIN};
    return poll(&set, 1, 0);
}

/* A sleep ends at once, however late this thread hears of it... */
static void assert_awake(void) {
    const uint64_t before = now_ns();
    port.ops->sleep(port.self, LONG_NS);
    assert_true(now_ns() - before < LONG_NS);
}

/* ...or lasts its time. */
static void assert_asleep(void) {
    const uint64_t before = now_ns();
    port.ops->sleep(port.self, 5 * MS);
    assert_true(now_ns() - before >= 5 * MS);
}

static int fd_count(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* Never early; how late is the machine's business. */
static void test_sleep_lasts_its_time(void **state) {
    (void)state;
    static const uint64_t times[] = {0, 1, 200000, 3 * MS};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        const uint64_t before = now_ns();
        port.ops->sleep(port.self, times[i]);
        assert_true(now_ns() - before >= times[i]);
    }
}

static void test_source_ends_the_sleep(void **state) {
    (void)state;
    const int source = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(port.ops->add(port.self, source), WEIR_OK);
    assert_int_equal(port.ops->add(port.self, source), WEIR_EINVAL);
    assert_int_equal(port.ops->add(port.self, -1), WEIR_EINVAL);
    assert_int_equal(readable(), 0);
    assert_int_equal(eventfd_write(source, 1), 0);
    assert_int_equal(readable(), 1);
    const uint64_t before = now_ns();
    port.ops->sleep(port.self, LONG_NS);
    port.ops->sleep(port.self, UINT64_MAX);
    assert_true(now_ns() - before < LONG_NS);
    /* The source is its owner's: clearing the port leaves it readable. */
    port.ops->clear(port.self);
    port.ops->lower(port.self);
    assert_int_equal(readable(), 1);
    assert_awake();
    close(source);
    assert_int_equal(readable(), 0);
    assert_asleep();
}

static void test_wake_stays_until_cleared(void **state) {
    (void)state;
    assert_asleep();
    for (int i = 0; i < 3; i++) {
        port.ops->wake(port.self);
    }
    port.ops->sleep(port.self, UINT64_MAX);
    port.ops->sleep(port.self, UINT64_MAX);
    assert_awake();
    port.ops->clear(port.self); /* one clear takes any number of wakes */
    assert_asleep();
    port.ops->clear(port.self);
    assert_asleep();
}

/* The descriptor and those asleep here: what wakes the one is not seen by the other. */
static void test_M7_the_descriptor_has_a_level_of_its_own(void **state) {
    (void)state;
    port.ops->wake(port.self);
    assert_awake();
    assert_int_equal(readable(), 0);
    for (int i = 0; i < 3; i++) {
        port.ops->raise(port.self);
    }
    assert_int_equal(readable(), 1);
    port.ops->clear(port.self);
    assert_asleep();
    assert_int_equal(readable(), 1);
    port.ops->lower(port.self); /* one lower takes any number of raises */
    assert_int_equal(readable(), 0);
    port.ops->wake(port.self);
    port.ops->lower(port.self);
    assert_awake();
}

enum { SLEEPERS = 4 };
static atomic_int woken;

static void *sleeper(void *argument) {
    (void)argument;
    port.ops->sleep(port.self, LONG_NS);
    atomic_fetch_add(&woken, 1);
    return NULL;
}

/* A wake before, during or after falling asleep reaches every sleeper. */
static void test_wake_reaches_every_sleeper(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        pthread_t threads[SLEEPERS];
        atomic_store(&woken, 0);
        const uint64_t before = now_ns();
        for (int i = 0; i < SLEEPERS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, sleeper, NULL), 0);
        }
        if (round % 2 == 1) {
            usleep(500);
        }
        port.ops->wake(port.self);
        for (int i = 0; i < SLEEPERS; i++) {
            pthread_join(threads[i], NULL);
        }
        assert_int_equal(atomic_load(&woken), SLEEPERS);
        assert_true(now_ns() - before < LONG_NS);
        port.ops->clear(port.self);
    }
}

static void on_alarm(int number) {
    (void)number;
    port.ops->wake(port.self);
}

static void test_wake_from_a_signal_handler(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm};
    struct sigaction old;
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    const uint64_t before = now_ns();
    ualarm(2000, 0);
    port.ops->sleep(port.self, LONG_NS);
    port.ops->sleep(port.self, LONG_NS); /* the first may have ended by the signal alone */
    assert_true(now_ns() - before < LONG_NS);
    assert_awake();
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

static void test_open_close_keeps_descriptors_flat(void **state) {
    (void)state;
    const int before = fd_count();
    for (int i = 0; i < 1000; i++) {
        struct weir_wait other;
        assert_int_equal(wait_open(&env, &other), WEIR_OK);
        wait_close(&other);
        wait_close(&other); /* closed is zeroed, and zeroed is allowed */
    }
    assert_int_equal(fd_count(), before);
}

static void *no_memory(void *self, size_t bytes) {
    (void)self;
    (void)bytes;
    return NULL;
}

static void test_E5_open_without_memory(void **state) {
    (void)state;
    const int before = fd_count();
    struct weir_env_ops ops = *env.ops;
    ops.alloc = no_memory;
    const struct weir_env poor = {.ops = &ops, .self = NULL};
    struct weir_wait other;
    assert_int_equal(wait_open(&poor, &other), WEIR_ENOMEM);
    assert_int_equal(fd_count(), before);
}

/* A process may lower its limit to less than it has open: nothing is refused for it. */
static void test_W7_a_limit_below_what_is_open(void **state) {
    (void)state;
    enum { COUNT = 9 };
    struct pollfd polled[COUNT];
    struct rlimit usual, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = usual.rlim_max};
    const int source = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; i < COUNT; i++) {
        polled[i] = (struct pollfd){.fd = i % 2 == 0 ? -1 : source, .events = POLLIN};
    }
    polled[1].fd = fcntl(source, F_DUPFD_CLOEXEC, usual.rlim_cur > 1100 ? 1100 : 100);
    assert_true(polled[1].fd >= 100);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_asleep();
    assert_int_equal(ready_wait(polled, COUNT, 1), 0);
    assert_int_equal(ready_wait(&(struct pollfd){.fd = -1, .events = POLLIN}, 1, 1), 0);
    port.ops->wake(port.self);
    assert_awake();
    assert_int_equal(eventfd_write(source, 1), 0);
    assert_int_equal(ready_wait(polled, COUNT, UINT64_MAX), COUNT / 2);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(polled[i].revents & POLLIN, i % 2 == 0 ? 0 : POLLIN);
    }
    close(polled[1].fd); /* one that is not open hides no other, and waits for nothing */
    assert_int_equal(ready_wait(polled, COUNT, UINT64_MAX), COUNT / 2);
    assert_int_equal(polled[1].revents, POLLNVAL);
    assert_int_equal(polled[3].revents, POLLIN);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sleep_lasts_its_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_source_ends_the_sleep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wake_stays_until_cleared, setup, teardown),
        cmocka_unit_test_setup_teardown(test_M7_the_descriptor_has_a_level_of_its_own, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_wake_reaches_every_sleeper, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wake_from_a_signal_handler, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_close_keeps_descriptors_flat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_E5_open_without_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_W7_a_limit_below_what_is_open, setup, teardown),
    };
    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
