/* SPDX-License-Identifier: Apache-2.0 */
/* test_stalls.c: stalls that another process is the cause of (M10): it is stopped, its application
 * makes no progress, takes no notifications, takes no messages, gives none back. Two processes,
 * over the real ports and shm, or WEIR_TEST_DEVICE: WEIR_VERBS_PEER_DEVICE is the other's then.
 *
 * The other process does one thing until it is told another by a letter, which it answers. So
 * nothing here depends on how long anything takes: the report is asked for until it says so. */
#define _POSIX_C_SOURCE 200809L
#include "engine_side.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INBOX = 7, MESSAGE_BYTES = 4096, CREDITS = 4, MANY = 12 };

/* What the other process does, and the letter that tells it to. */
enum { ABSENT = 'a', TAKES_NOTHING = 'n', TAKES = 't', HOLDS = 'h', ENDS = 'e' };

static struct side side;
static int from_other, to_other;
static pid_t other;
static weir_transfer sent[MANY];

/* ---- the other process ------------------------------------------------- */

static void must(bool holds) {
    if (!holds)
        _exit(2);
}

static void take_all(weir_engine *engine, weir_inbox inbox, bool gives_back) {
    static weir_message held[MANY];
    static int count;
    weir_notification notification;
    while (weir_notification_take(engine, &notification) == WEIR_OK)
        continue;
    while (count < MANY && weir_message_take(engine, inbox, &held[count]) == WEIR_OK)
        count++;
    while (gives_back && count > 0)
        must(weir_message_give_back(engine, &held[--count]) == WEIR_OK);
}

static void other_runs(int from, int to) {
    weir_engine_options options = side_options();
    weir_inbox_options inbox_options = WEIR_INBOX_OPTIONS_INIT;
    char address[WEIR_ADDRESS_MAX] = "";
    weir_engine *engine;
    weir_inbox inbox;
    char does = TAKES_NOTHING;
    if (getenv("WEIR_VERBS_PEER_DEVICE") != NULL)
        must(setenv("WEIR_VERBS_DEVICE", getenv("WEIR_VERBS_PEER_DEVICE"), 1) == 0);
    options.flags = 0;
    options.device = getenv("WEIR_TEST_DEVICE");
    options.notifications_max = options.recv_credits = CREDITS;
    inbox_options.number = INBOX;
    inbox_options.message_bytes_max = MESSAGE_BYTES;
    inbox_options.peer_messages = inbox_options.messages = 2;
    must(weir_engine_open(&options, &engine) == WEIR_OK);
    must(weir_inbox_open(engine, &inbox_options, &inbox) == WEIR_OK);
    must(weir_engine_address(engine, address, sizeof(address)) == WEIR_OK);
    must(write(to, address, sizeof(address)) == (ssize_t)sizeof(address));
    while (does != ENDS) {
        struct pollfd told = {.fd = from, .events = POLLIN};
        if (poll(&told, 1, does == ABSENT ? -1 : 0) > 0) {
            must(read(from, &does, 1) == 1);
            must(write(to, &does, 1) == 1);
        }
        if (does != ABSENT)
            weir_engine_wait(engine, MS);
        if (does == TAKES || does == HOLDS)
            take_all(engine, inbox, does == TAKES);
    }
    weir_engine_close(engine);
    _exit(0);
}

/* ---- this one ---------------------------------------------------------- */

static void tell(char letter) {
    char answer = 0;
    assert_int_equal(write(to_other, &letter, 1), 1);
    assert_int_equal(read(from_other, &answer, 1), 1);
    assert_int_equal(answer, letter);
}

static int begin(void **state) {
    (void)state;
    weir_engine_options options = side_options();
    int up[2], down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(up[0]);
        close(down[1]);
        other_runs(down[0], up[1]);
    }
    close(up[1]);
    close(down[0]);
    from_other = up[0];
    to_other = down[1];
    char address[WEIR_ADDRESS_MAX];
    assert_int_equal(read(from_other, address, sizeof(address)), sizeof(address));
    options.watchdog_ns = 400 * MS;
    options.device = getenv("WEIR_TEST_DEVICE");
    side_open(&side, &options);
    assert_int_equal(weir_peer_open(side.engine, address, &side.peer), WEIR_OK);
    connect_now(&side, NULL);
    return 0;
}

static int end(void **state) {
    (void)state;
    int status;
    tell(ENDS);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    side_close(&side);
    close(from_other);
    close(to_other);
    return 0;
}

/* More than there are credits for. */
static void notify_many(void) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_write(side.engine, side.peer, NULL, 0, &options, &sent[i]), WEIR_OK);
}

/* More than there is room for. */
static void send_many(void) {
    const weir_part part = {.local = side.memory, .length = MESSAGE_BYTES};
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_message_send(side.engine, side.peer, INBOX, &part, 1, NULL, &sent[i]),
                         WEIR_OK);
}

static bool says(weir_stall_cause cause) {
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    assert_int_equal(weir_stall_query(side.engine, side.peer, &info), WEIR_OK);
    return info.stalled != 0 && info.cause == (uint32_t)cause;
}

/* It is told, once, and comes to have this cause: another one before is this process's own, if the
 * machine was busy. */
static void stalls(weir_stall_cause cause, const char *sentence) {
    char text[WEIR_STALL_TEXT_MAX];
    STEP_UNTIL(&side, NULL, says(cause));
    assert_int_equal(weir_stall_text(side.engine, side.peer, text, sizeof(text)), WEIR_OK);
    print_message("%s\n", text);
    if (strstr(text, sentence) == NULL)
        fail_msg("not \"%s\": %s", sentence, text);
    weir_event event = next_event(&side, NULL, WEIR_EVENT_STALLED);
    assert_int_equal(event.peer.id, side.peer.id);
}

/* All is done, and it is told that the stall is over. */
static void resumes(void) {
    for (int i = 0; i < MANY; i++)
        assert_int_equal(finish(&side, NULL, sent[i]), WEIR_OK);
    weir_event event = next_event(&side, NULL, WEIR_EVENT_RESUMED);
    assert_int_equal(event.peer.id, side.peer.id);
    assert_true(event.value >= 400 * MS);
}

/* That a process is stopped is known on shm; elsewhere it is one that does not answer. */
static void test_M10_a_process_that_is_stopped(void **state) {
    (void)state;
    bool known =
        getenv("WEIR_TEST_DEVICE") == NULL || strcmp(getenv("WEIR_TEST_DEVICE"), "shm") == 0;
    int status;
    assert_int_equal(kill(other, SIGSTOP), 0);
    assert_int_equal(waitpid(other, &status, WUNTRACED), other);
    assert_true(WIFSTOPPED(status));
    notify_many();
    if (known)
        stalls(WEIR_STALL_PEER_STOPPED, "the peer's process is stopped");
    else
        stalls(WEIR_STALL_PEER_ABSENT, "the peer makes no progress: it was asked");
    assert_int_equal(kill(other, SIGCONT), 0);
    tell(TAKES);
    resumes();
}

static void test_M10_an_application_that_makes_no_progress(void **state) {
    (void)state;
    tell(ABSENT);
    notify_many();
    stalls(WEIR_STALL_PEER_ABSENT, "the peer makes no progress: it was asked");
    tell(TAKES);
    resumes();
}

static void test_M10_an_application_that_takes_no_notifications(void **state) {
    (void)state;
    notify_many();
    stalls(WEIR_STALL_PEER_NOTIFICATIONS, "the peer's application takes no notifications: ");
    tell(TAKES);
    resumes();
}

static void test_M10_an_application_that_takes_no_messages(void **state) {
    (void)state;
    send_many();
    stalls(WEIR_STALL_PEER_MESSAGES,
           "takes no messages from inbox 7, where those of 1 sender wait");
    tell(TAKES);
    resumes();
}

static void test_M10_an_application_that_gives_no_messages_back(void **state) {
    (void)state;
    tell(HOLDS);
    send_many();
    stalls(WEIR_STALL_PEER_MESSAGES, "gives no messages back that it took from inbox 7: it holds");
    tell(TAKES);
    resumes();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_M10_a_process_that_is_stopped, begin, end),
        cmocka_unit_test_setup_teardown(test_M10_an_application_that_makes_no_progress, begin, end),
        cmocka_unit_test_setup_teardown(test_M10_an_application_that_takes_no_notifications, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_M10_an_application_that_takes_no_messages, begin, end),
        cmocka_unit_test_setup_teardown(test_M10_an_application_that_gives_no_messages_back, begin,
                                        end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
