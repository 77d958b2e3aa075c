/* SPDX-License-Identifier: Apache-2.0 */
/* test_slow.c: applications that are slow (W1, W2): handlers that take long between two takes
 * of notifications, progress ten times a second or once a second, and nothing for longer than
 * a time-out. Two processes, over the real ports and shm.
 *
 * The other process is told what to do before it is forked; words go through two pipes. Times
 * here are what an application does; none is measured. */
#define _POSIX_C_SOURCE 200809L
#include "engine_side.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 64 };

struct other {
    pid_t pid;
    int from, to; /* our ends */
};

/* The work of the other process; ends by _exit. */
typedef void other_fn(int from, int to);

static void other_start(struct other *other, other_fn *run) {
    int up[2], down[2];

    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(up[0]);
        close(down[1]);
        run(down[0], up[1]);
        _exit(1);
    }
    close(up[1]);
    close(down[0]);
    other->from = up[0];
    other->to = down[1];
}

static void other_end(struct other *other, int signal) {
    int status;

    assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
    if (signal != 0)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(other->from);
    close(other->to);
}

static void put(int fd, const void *bytes, size_t length) {
    if (write(fd, bytes, length) != (ssize_t)length)
        _exit(2);
}

/* False: the other end is closed. */
static bool get(int fd, void *bytes, size_t length) {
    return read(fd, bytes, length) == (ssize_t)length;
}

static void work(uint64_t ns) {
    struct timespec time = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};

    while (nanosleep(&time, &time) != 0)
        continue;
}

/* ---- the sender --------------------------------------------------------- */

/* Connects to the address that comes through the pipe, and sends MESSAGES notifications, all of
 * which end with success. */
static weir_engine *send_all(int from, int to) {
    weir_transfer transfers[MESSAGES];
    char address[WEIR_ADDRESS_MAX];
    weir_engine *engine;
    weir_peer peer;
    char done = 1;

    if (!get(from, address, sizeof(address)) || weir_engine_open(NULL, &engine) != WEIR_OK ||
        weir_peer_open(engine, address, &peer) != WEIR_OK)
        _exit(3);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

        options.flags = WEIR_TRANSFER_NOTIFY;
        options.notify_tag = i;
        if (weir_write(engine, peer, NULL, 0, &options, &transfers[i]) != WEIR_OK)
            _exit(4);
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (weir_transfer_wait(engine, transfers[i], PATIENCE_NS) != WEIR_OK)
            _exit(5);
    }
    put(to, &done, sizeof(done));
    return engine;
}

static void sends_and_closes(int from, int to) {
    weir_engine_close(send_all(from, to));
    _exit(0);
}

static void sends_and_is_killed(int from, int to) {
    (void)send_all(from, to);
    raise(SIGKILL);
}

/* ---- at a pace ------------------------------------------------------------ */

static uint64_t pace_ns; /* of the other side */

static weir_engine *paced_open(uint64_t connect_ns) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    options.connect_timeout_ns = connect_ns; /* 0: the default */
    return weir_engine_open(&options, &engine) == WEIR_OK ? engine : NULL;
}

/* One call, and then something else. */
static void paced_step(weir_engine *engine, uint64_t ns) {
    if (weir_engine_progress(engine) < 0)
        _exit(6);
    work(ns);
}

/* Makes progress at its pace until it has a notification; then ends in good order. */
static void takes_one(int from, int to) {
    weir_notification notification;
    char address[WEIR_ADDRESS_MAX];
    weir_engine *engine = paced_open(0);

    (void)from;
    if (engine == NULL || weir_engine_address(engine, address, sizeof(address)) != WEIR_OK)
        _exit(3);
    put(to, address, sizeof(address));
    while (weir_notification_take(engine, &notification) != WEIR_OK)
        paced_step(engine, pace_ns);
    weir_engine_close(engine);
    _exit(0);
}

/* Connects, with `ns` between two calls, and tells the other side something. */
static void connect_and_tell(uint64_t ns, uint64_t connect_ns) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    char address[WEIR_ADDRESS_MAX];
    weir_engine *engine;
    weir_transfer transfer;
    struct other other;
    weir_event event;
    weir_peer peer;
    int status;

    other_start(&other, takes_one);
    assert_true(get(other.from, address, sizeof(address)));
    engine = paced_open(connect_ns);
    assert_non_null(engine);
    assert_int_equal(weir_peer_open(engine, address, &peer), WEIR_OK);
    weir_peer_connect(engine, peer);
    while (weir_event_take(engine, &event) != WEIR_OK)
        paced_step(engine, ns);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(engine, peer, NULL, 0, &notify, &transfer), WEIR_OK);
    while ((status = weir_transfer_status(engine, transfer)) == WEIR_EINPROGRESS)
        paced_step(engine, ns);
    assert_int_equal(status, WEIR_OK);
    other_end(&other, 0);
    weir_engine_close(engine);
}

static void test_W2_progress_ten_times_a_second_connects(void **state) {
    (void)state;
    pace_ns = 100 * MS;
    connect_and_tell(100 * MS, 0);
}

static void test_W2_progress_once_a_second_connects(void **state) {
    (void)state;
    pace_ns = SECOND;
    connect_and_tell(SECOND, 0);
}

/* The one is away for longer than its connect time-out each time; the other has patience. */
static void test_W1_who_is_away_for_longer_than_a_timeout_connects(void **state) {
    (void)state;
    pace_ns = 10 * MS;
    connect_and_tell(700 * MS, 500 * MS);
}

/* ---- the receiver ------------------------------------------------------- */

/* As docs/first-transfer.md has it, with a handler that takes its time. */
static void receive(const weir_engine_options *options, other_fn *sender, int signal,
                    uint64_t handler_ns) {
    uint32_t came[MESSAGES] = {0}, count = 0;
    weir_notification notification;
    char address[WEIR_ADDRESS_MAX];
    struct other other;
    weir_engine *engine;
    char done;

    other_start(&other, sender);
    assert_int_equal(weir_engine_open(options, &engine), WEIR_OK);
    assert_int_equal(weir_engine_address(engine, address, sizeof(address)), WEIR_OK);
    put(other.to, address, sizeof(address));
    while (count < MESSAGES) {
        int rc;

        while ((rc = weir_notification_take(engine, &notification)) == WEIR_EAGAIN) {
            if (weir_engine_wait(engine, PATIENCE_NS) != WEIR_OK)
                break; /* nothing for so long: nothing will come */
        }
        if (rc != WEIR_OK)
            break;
        assert_true(notification.tag < MESSAGES);
        came[notification.tag]++;
        count++;
        work(handler_ns);
    }
    assert_true(get(other.from, &done, sizeof(done))); /* all ended with success */
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (came[i] != 1)
            fail_msg("%u of %d came, %u came %u times", count, MESSAGES, i, came[i]);
    }
    other_end(&other, signal);
    weir_engine_close(engine);
}

static void test_W1_what_was_acknowledged_is_delivered_however_slow_the_handler(void **state) {
    (void)state;
    receive(NULL, sends_and_closes, 0, 150 * MS);
}

static void test_W1_what_was_acknowledged_is_delivered_after_the_sender_was_killed(void **state) {
    (void)state;
    receive(NULL, sends_and_is_killed, SIGKILL, 150 * MS);
}

static void test_W1_a_short_teardown_timeout_loses_nothing(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    (void)state;
    options.teardown_timeout_ns = 100 * MS;
    receive(&options, sends_and_closes, 0, 5 * MS);
    receive(&options, sends_and_is_killed, SIGKILL, 5 * MS);
}

static void test_W1_a_full_queue_of_notifications_loses_nothing(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    (void)state;
    options.teardown_timeout_ns = 100 * MS;
    options.notifications_max = 2;
    receive(&options, sends_and_closes, 0, 20 * MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W1_what_was_acknowledged_is_delivered_however_slow_the_handler),
        cmocka_unit_test(test_W1_what_was_acknowledged_is_delivered_after_the_sender_was_killed),
        cmocka_unit_test(test_W1_a_short_teardown_timeout_loses_nothing),
        cmocka_unit_test(test_W1_a_full_queue_of_notifications_loses_nothing),
        cmocka_unit_test(test_W2_progress_ten_times_a_second_connects),
        cmocka_unit_test(test_W2_progress_once_a_second_connects),
        cmocka_unit_test(test_W1_who_is_away_for_longer_than_a_timeout_connects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
