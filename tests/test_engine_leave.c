/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_leave.c: a peer that says what it has to say and leaves at once: all of
 * its notifications that ended well are delivered, with their data and the events around
 * them, however late the other side looks (S9, H12). */
#include "engine_side.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SENT_MAX = 60 };

/* a's session is up; b has not looked since it answered. */
static void connect_one_side(struct side *a, struct side *b) {
    int rc = weir_peer_connect(a->engine, a->peer);
    uint64_t end = now_ns() + PATIENCE_NS;

    assert_true(rc == WEIR_OK || rc == WEIR_ENOTREADY);
    while (!is_connected(a)) {
        if (now_ns() > end)
            fail_msg("never connected");
        step(b, NULL);
        step(a, NULL);
    }
}

/* The first look: at control messages too, which say that the other has left, when only
 * some of its notifications have been taken; or at the device alone. */
static void look(struct side *side, bool at_all) {
    if (at_all)
        weir_engine_wait(side->engine, 0);
    else
        weir_engine_progress(side->engine);
}

/* Writes its number to its place, and notifies; done inside the call. */
static void send_number(struct side *side, uint32_t number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};

    memcpy(side->bytes + number * 8, &(uint64_t){number + 1}, 8);
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = number;
    weir_segment one = segment_of(side, number * 8, number * 8, 8);
    assert_int_equal(weir_write(side->engine, side->peer, &one, 1, &options, &transfer), WEIR_OK);
    assert_int_equal(weir_transfer_status(side->engine, transfer), WEIR_OK);
    assert_int_equal(weir_transfer_release(side->engine, transfer), WEIR_OK);
}

/* UP, then GONE. A credit may find nobody before it is read that the peer has left: that is no
 * break. dies: without a word. */
static void assert_came_and_went(struct side *side, bool dies) {
    weir_event event = {0};

    STEP_UNTIL(side, NULL, weir_event_take(side->engine, &event) == WEIR_OK);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    uint64_t id = event.peer.id;
    STEP_UNTIL(side, NULL, weir_event_take(side->engine, &event) == WEIR_OK);
    if (dies && event.type == WEIR_EVENT_DEGRADED)
        STEP_UNTIL(side, NULL, weir_event_take(side->engine, &event) == WEIR_OK);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.peer.id, id);
}

static void assert_all_there(struct side *side, uint32_t count, bool ordered) {
    bool seen[SENT_MAX] = {false};
    weir_notification got;

    for (uint32_t i = 0; i < count; i++) {
        STEP_UNTIL(side, NULL, weir_notification_take(side->engine, &got) == WEIR_OK);
        assert_true(got.tag < count && !seen[got.tag]);
        assert_true(!ordered || got.tag == i);
        seen[got.tag] = true;
        assert_memory_equal(side->bytes + got.tag * 8, &(uint64_t){got.tag + 1}, 8);
    }
    for (int i = 0; i < 50; i++)
        step(side, NULL);
    assert_int_equal(weir_notification_take(side->engine, &got), WEIR_EAGAIN);
    assert_int_equal(stats_of(side).notifications_received, count);
}

static void test_S9_notifications_of_a_peer_that_left(void **state) {
    static const uint32_t counts[] = {1, 16, 17, SENT_MAX};

    (void)state;
    for (size_t k = 0; k < 4 * sizeof(counts) / sizeof(counts[0]); k++) {
        uint32_t count = counts[k / 4];
        weir_engine_options options = side_options();
        struct side a, b;

        options.qp_count = k % 2 == 0 ? 1 : 4;
        side_open(&a, &options);
        side_open(&b, &options);
        side_join(&a, &b);
        connect_one_side(&a, &b);
        for (uint32_t i = 0; i < count; i++)
            send_number(&a, i);
        side_close(&a);
        look(&b, k / 2 % 2 == 0);
        assert_all_there(&b, count, options.qp_count == 1);
        assert_came_and_went(&b, false);
        side_close(&b);
    }
}

/* The same from a session that both have used, in the middle of traffic. */
static void test_S9_the_last_words_of_a_session(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct side a, b;

        pair_open(&a, &b, NULL);
        send_number(&a, 0);
        send_number(&b, 20);
        for (int i = 0; i < round; i++)
            weir_engine_progress(i % 2 == 0 ? a.engine : b.engine);
        for (uint32_t i = 1; i < 1 + (uint32_t)round; i++)
            send_number(&a, i);
        side_close(&a);
        look(&b, round % 2 == 0);
        assert_all_there(&b, 1 + (uint32_t)round, true);
        assert_came_and_went(&b, false);
        side_close(&b);
    }
}

/* Nobody takes them until the queue is full, and then the peer is gone for long. */
static void test_S9_last_words_that_wait_for_room(void **state) {
    weir_engine_options options = side_options();
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    options.notifications_max = 4;
    side_open(&b, &options);
    side_join(&a, &b);
    connect_one_side(&a, &b);
    for (uint32_t i = 0; i < 40; i++)
        send_number(&a, i);
    side_close(&a);
    uint64_t end = now_ns() + 100 * MS;
    while (now_ns() < end)
        step(&b, NULL);
    assert_all_there(&b, 40, true);
    assert_came_and_went(&b, false);
    side_close(&b);
}

/* ---- a process that leaves ---- */

/* Connects, one step of ours for one of the other's, says its words, leaves and ends.
 * The file descriptors carry the other's address, and a byte for each step that it is to make. */
static _Noreturn void leaver_main(int ask, int answer, bool dies) {
    char address[WEIR_ADDRESS_MAX];
    weir_engine_options options = side_options();
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_engine *engine;
    weir_peer peer;
    uint64_t end = now_ns() + PATIENCE_NS;
    char byte = 's';

    notify.flags = WEIR_TRANSFER_NOTIFY;
    if (read(answer, address, sizeof(address)) != sizeof(address) ||
        weir_engine_open(&options, &engine) != WEIR_OK ||
        weir_peer_open(engine, address, &peer) != WEIR_OK)
        _exit(1);
    for (weir_peer_connect(engine, peer); info.connected == 0;) {
        weir_engine_wait(engine, 0);
        if (weir_peer_query(engine, peer, &info) != WEIR_OK || now_ns() > end)
            _exit(2);
        if (info.connected == 0 && (write(ask, &byte, 1) != 1 || read(answer, &byte, 1) != 1))
            _exit(3);
    }
    for (uint32_t i = 0; i < SENT_MAX; i++) {
        weir_transfer transfer;
        notify.notify_tag = i;
        if (weir_write(engine, peer, NULL, 0, &notify, &transfer) != WEIR_OK || transfer.id != 0)
            _exit(4);
    }
    if (!dies)
        weir_engine_close(engine);
    _exit(0);
}

/* Its device may be known to be dead before its READY and its BYE are read. */
static void test_H12_last_words_of_a_process(void **state) {
    (void)state;
    if (getenv("WEIR_UNDER_VALGRIND") != NULL)
        skip(); /* it knows no pidfd_open(2) */
    for (int round = 0; round < 16; round++) {
        struct side side;
        weir_notification got;
        int ask[2], answer[2], status;
        char byte;

        assert_true(pipe(ask) == 0 && pipe(answer) == 0);
        pid_t pid = fork(); /* before there is a thread, for ThreadSanitizer's sake */
        assert_true(pid >= 0);
        if (pid == 0)
            leaver_main(ask[1], answer[0], round % 2 == 1);
        close(ask[1]);
        close(answer[0]);
        side_open(&side, NULL);
        assert_int_equal(write(answer[1], side.address, sizeof(side.address)),
                         sizeof(side.address));
        while (read(ask[0], &byte, 1) == 1) {
            weir_engine_wait(side.engine, 0);
            assert_int_equal(write(answer[1], &byte, 1), 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        /* The more looks at the device alone, the earlier it is seen to be dead. */
        for (int looks = 0; looks < round * 4; looks++)
            weir_engine_progress(side.engine);
        for (uint32_t i = 0; i < SENT_MAX; i++) {
            STEP_UNTIL(&side, NULL, weir_notification_take(side.engine, &got) == WEIR_OK);
            assert_int_equal(got.tag, i);
        }
        assert_came_and_went(&side, round % 2 == 1);
        close(ask[0]);
        close(answer[1]);
        side_close(&side);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S9_notifications_of_a_peer_that_left),
        cmocka_unit_test(test_S9_the_last_words_of_a_session),
        cmocka_unit_test(test_S9_last_words_that_wait_for_room),
        cmocka_unit_test(test_H12_last_words_of_a_process),
    };

    return cmocka_run_group_tests_name("engines that leave", tests, NULL, NULL);
}
