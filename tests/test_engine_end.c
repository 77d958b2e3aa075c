/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_end.c: how transfers end: deadlines, cancel, early release, the queue of
 * completions, waiting for room, memory that is in use, close with work under way (S5,
 * S11, S12, S13, T10, E6). Transfers stay under way here because the other engine makes no
 * progress: no connection, or no credits. */
#include "engine_side.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Neither is connected; b makes no progress until it is told to. */
static void apart(struct side *a, struct side *b, const weir_engine_options *options) {
    side_open(a, options);
    side_open(b, NULL);
    side_join(a, b);
}

static weir_transfer start(struct side *a, const weir_transfer_options *options) {
    weir_segment one = segment_of(a, 0, 0, 64);
    weir_transfer transfer = {0};

    assert_int_equal(weir_write(a->engine, a->peer, &one, 1, options, &transfer), WEIR_OK);
    assert_true(transfer.id != 0);
    return transfer;
}

/* ---- deadlines ---- */

static void test_S13_deadline_without_a_connection(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    options.timeout_ns = 500 * MS;
    uint64_t begin = now_ns();
    weir_transfer transfer = start(&a, &options);
    int early = weir_transfer_wait(a.engine, transfer, 5 * MS);
    assert_true(early == WEIR_EINPROGRESS || now_ns() - begin >= 500 * MS);
    assert_int_equal(weir_transfer_wait(a.engine, transfer, PATIENCE_NS), WEIR_ETIMEDOUT);
    assert_true(now_ns() - begin >= 500 * MS);
    assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_ETIMEDOUT);
    for (int i = 0; i < 50; i++) { /* it never changes, nor writes any more */
        step(&a, &b);
        assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_ETIMEDOUT);
    }
    assert_int_equal(weir_transfer_cancel(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_ETIMEDOUT);
    assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    assert_int_equal(stats_of(&a).wrs_posted, 0);
    assert_int_equal(stats_of(&a).transfers_failed, 1);
    pair_close(&a, &b);
}

/* Pairs whose target takes no notifications: `a` has used all its credits. */
static void no_credits(struct side *a, struct side *b, weir_transfer *first, size_t *count) {
    weir_engine_options limits = side_options();
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    limits.recv_credits = 2;
    limits.notifications_max = 1;
    pair_open(a, b, &limits);
    options.flags = WEIR_TRANSFER_NOTIFY;
    *first = (weir_transfer){0};
    for (*count = 0; first->id == 0; (*count)++) {
        assert_true(*count < 10);
        assert_int_equal(weir_write(a->engine, a->peer, NULL, 0, &options, first), WEIR_OK);
    }
}

static void test_S13_deadline_without_credits(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer first;
    weir_notification got;
    size_t count;
    uint64_t tags = 0;
    struct side a, b;

    (void)state;
    no_credits(&a, &b, &first, &count);
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = 99;
    options.timeout_ns = 10 * MS;
    memset(a.bytes, 5, 64);
    weir_transfer late = start(&a, &options); /* its data may go, its notification not */
    assert_int_equal(weir_transfer_wait(a.engine, late, PATIENCE_NS), WEIR_ETIMEDOUT);
    assert_int_equal(weir_transfer_release(a.engine, late), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_notification_take(b.engine, &got) != WEIR_OK || ++tags == count);
    STEP_UNTIL(&a, &b, weir_transfer_status(a.engine, first) == WEIR_OK);
    for (int i = 0; i < 100; i++) {
        step(&a, &b);
        if (weir_notification_take(b.engine, &got) == WEIR_OK)
            assert_true(got.tag != 99);
    }
    assert_int_equal(stats_of(&a).sessions_failed, 0); /* nothing of it was posted */
    pair_close(&a, &b);
}

/* ---- cancel and early release ---- */

static void test_S13_cancel(void **state) {
    weir_transfer transfers[20];
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    memset(a.bytes, 9, 64);
    for (int i = 0; i < 20; i++)
        transfers[i] = start(&a, NULL);
    for (int i = 0; i < 20; i += 2)
        assert_int_equal(weir_transfer_cancel(a.engine, transfers[i]), WEIR_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), i % 2 == 0 ? WEIR_ECANCELED : WEIR_OK);
    assert_int_equal(stats_of(&a).transfers_ok, 10);
    assert_int_equal(stats_of(&a).transfers_failed, 10);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_OK);
    pair_close(&a, &b);
}

static void test_S13_cancel_all_writes_nothing(void **state) {
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    memset(a.bytes, 9, 64);
    weir_transfer transfer = start(&a, NULL);
    assert_int_equal(weir_transfer_cancel(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_ECANCELED); /* none posted */
    assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    connect_now(&a, &b);
    assert_int_equal(b.bytes[0], 0);
    pair_close(&a, &b);
}

static void test_S12_release_early(void **state) {
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    memset(a.bytes, 9, 64);
    for (int i = 0; i < 20; i++) {
        weir_transfer transfer = start(&a, NULL);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_ESTALE);
        assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_ESTALE);
    }
    STEP_UNTIL(&a, &b, stats_of(&a).transfers_ok == 20); /* they go on, unobserved */
    assert_int_equal(b.bytes[63], 9);
    /* All records came back. */
    for (int i = 0; i < 500; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        options.flags = WEIR_TRANSFER_ONCE;
        weir_transfer transfer = {0};
        weir_segment one = segment_of(&a, 0, 0, 64);
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &options, &transfer), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
        step(&a, &b);
    }
    pair_close(&a, &b);
}

static void test_S12_cancel_then_release(void **state) {
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    for (int i = 0; i < 500; i++) { /* more than there are records */
        weir_transfer transfer = start(&a, NULL);
        assert_int_equal(weir_transfer_cancel(a.engine, transfer), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    }
    assert_int_equal(stats_of(&a).transfers_failed, 500);
    pair_close(&a, &b);
}

/* ---- the queue of completions ---- */

static void test_S11_queued_completions(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer handles[40];
    weir_completion done;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    weir_segment one = segment_of(&a, 0, 0, 64);
    options.flags = WEIR_TRANSFER_QUEUE;
    for (uint64_t i = 0; i < 40; i++) {
        options.user_data = i * 1000;
        handles[i].id = 0;
        assert_int_equal(
            weir_write(a.engine, a.peer, &one, 1, &options, i % 3 == 0 ? NULL : &handles[i]),
            WEIR_OK);
        if (i % 3 != 0)
            assert_true(handles[i].id != 0); /* never done inside the call */
    }
    for (uint64_t i = 0; i < 40; i++) {
        STEP_UNTIL(&a, &b, weir_completion_take(a.engine, &done) == WEIR_OK);
        assert_int_equal(done.user_data, i * 1000);
        assert_int_equal(done.status, WEIR_OK);
        if (i % 3 != 0)
            assert_int_equal(done.transfer.id, handles[i].id);
        assert_int_equal(weir_transfer_status(a.engine, done.transfer), WEIR_ESTALE);
        assert_int_equal(weir_transfer_release(a.engine, done.transfer), WEIR_ESTALE);
    }
    assert_int_equal(weir_completion_take(a.engine, &done), WEIR_EAGAIN);
    pair_close(&a, &b);
}

/* Nobody takes completions: at some point no more are submitted, and none is lost. */
static void test_S5_queue_of_completions_is_bounded(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_completion done;
    uint64_t sent = 0;
    uint64_t taken = 0;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    weir_segment one = segment_of(&a, 0, 0, 64);
    options.flags = WEIR_TRANSFER_QUEUE;
    for (int round = 0; round < 20; round++) {
        int rc = WEIR_OK;
        while (rc == WEIR_OK) {
            options.user_data = sent;
            rc = weir_write(a.engine, a.peer, &one, 1, &options, NULL);
            sent += rc == WEIR_OK;
            assert_true(sent - taken <= 200);
            step(&a, &b);
        }
        assert_int_equal(rc, WEIR_EAGAIN);
        while (weir_completion_take(a.engine, &done) == WEIR_OK)
            assert_int_equal(done.user_data, taken++);
    }
    while (taken < sent) {
        STEP_UNTIL(&a, &b, weir_completion_take(a.engine, &done) == WEIR_OK);
        taken++;
    }
    pair_close(&a, &b);
}

static void test_S11_queued_with_cancel_release_and_deadline(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_completion done;
    int seen[3] = {0, 0, 0};
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = 0;
    weir_transfer canceled = start(&a, &options);
    options.user_data = 1;
    weir_transfer released = start(&a, &options);
    options.user_data = 2;
    options.timeout_ns = 1 * MS;
    start(&a, &options);
    assert_int_equal(weir_transfer_cancel(a.engine, canceled), WEIR_OK);
    assert_int_equal(weir_transfer_release(a.engine, released), WEIR_OK);
    STEP_UNTIL(&a, NULL, stats_of(&a).transfers_failed == 2); /* b comes later */
    for (int i = 0; i < 3; i++) {
        STEP_UNTIL(&a, &b, weir_completion_take(a.engine, &done) == WEIR_OK);
        assert_true(done.user_data < 3);
        seen[done.user_data]++;
        static const int expected[] = {WEIR_ECANCELED, WEIR_OK, WEIR_ETIMEDOUT};
        assert_int_equal(done.status, expected[done.user_data]);
    }
    assert_int_equal(seen[0] + seen[1] + seen[2], 3);
    assert_int_equal(weir_completion_take(a.engine, &done), WEIR_EAGAIN);
    pair_close(&a, &b);
}

/* ---- waiting for room ---- */

static void test_S5_block_is_bounded(void **state) {
    weir_engine_options limits = side_options();
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    limits.transfers_max = 4;
    limits.backoff_timeout_ns = 30 * MS;
    apart(&a, &b, &limits);
    weir_segment one = segment_of(&a, 0, 0, 64);
    while (weir_write(a.engine, a.peer, &one, 1, NULL, &transfer) == WEIR_OK)
        continue;
    /* Of those that did not ask, none waits: had each waited, it would be minutes. */
    uint64_t begin = now_ns();
    for (int i = 0; i < 2000; i++)
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_EAGAIN);
    assert_true(now_ns() - begin < 2000 * limits.backoff_timeout_ns);
    block.flags = WEIR_TRANSFER_BLOCK;
    begin = now_ns();
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &block, &transfer), WEIR_EAGAIN);
    assert_true(now_ns() - begin >= limits.backoff_timeout_ns);
    pair_close(&a, &b);
}

static void test_S5_backoff_from_the_environment(void **state) {
    weir_engine *engine = NULL;
    weir_engine_options limits = side_options();

    (void)state;
    static const char *const bad[] = {"x", "-1", "5x", "0", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("WEIR_SQ_BACKOFF_TIMEOUT_US", bad[i], 1);
        assert_int_equal(weir_engine_open(&limits, &engine), WEIR_EINVAL);
        assert_null(engine);
    }
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    struct side a, b;
    setenv("WEIR_SQ_BACKOFF_TIMEOUT_US", "60000", 1);
    limits.transfers_max = 4;
    apart(&a, &b, &limits);
    unsetenv("WEIR_SQ_BACKOFF_TIMEOUT_US");
    weir_segment one = segment_of(&a, 0, 0, 64);
    while (weir_write(a.engine, a.peer, &one, 1, NULL, &transfer) == WEIR_OK)
        continue;
    block.flags = WEIR_TRANSFER_BLOCK;
    uint64_t begin = now_ns();
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &block, &transfer), WEIR_EAGAIN);
    assert_true(now_ns() - begin >= 60 * MS);
    pair_close(&a, &b);
}

/* With somebody who drives the other engine, room comes. */
struct driver {
    struct side *side;
    _Atomic bool stop;
};
static void *drive(void *argument) {
    struct driver *driver = argument;

    while (!driver->stop)
        weir_engine_wait(driver->side->engine, MS);
    return NULL;
}

static void test_S5_block_gets_room(void **state) {
    weir_engine_options limits = side_options();
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    pthread_t thread;
    struct side a, b;
    struct driver driver = {.side = &b};

    (void)state;
    limits.transfers_max = 4;
    limits.backoff_timeout_ns = PATIENCE_NS;
    apart(&a, &b, &limits);
    assert_int_equal(pthread_create(&thread, NULL, drive, &driver), 0);
    weir_segment one = segment_of(&a, 0, 0, 64);
    block.flags = WEIR_TRANSFER_BLOCK | WEIR_TRANSFER_ONCE;
    for (int i = 0; i < 500; i++) {
        weir_transfer transfer = {0};
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &block, &transfer), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    }
    STEP_UNTIL(&a, NULL, stats_of(&a).transfers_ok == 500);
    driver.stop = true;
    pthread_join(thread, NULL);
    pair_close(&a, &b);
}

/* ---- memory in use ---- */

static void test_S13_memory_in_use_is_busy(void **state) {
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    weir_transfer transfer = start(&a, NULL);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_EBUSY);
    assert_int_equal(weir_remote_release(a.engine, a.remote), WEIR_EBUSY);
    assert_int_equal(weir_memory_query(a.engine, a.memory, NULL, NULL), WEIR_OK); /* unharmed */
    weir_transfer second = start(&a, NULL);
    assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_EBUSY); /* it goes on */
    assert_int_equal(finish(&a, &b, second), WEIR_OK);
    STEP_UNTIL(&a, &b, stats_of(&a).transfers_ok == 2);
    assert_int_equal(weir_remote_release(a.engine, a.remote), WEIR_OK);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_OK);
    pair_close(&a, &b);
}

/* Also by segments without bytes. */
static void test_S13_empty_segments_hold_their_memory(void **state) {
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    weir_segment empty = segment_of(&a, 0, 0, 0);
    assert_int_equal(weir_write(a.engine, a.peer, &empty, 1, NULL, &transfer), WEIR_OK);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_EBUSY);
    assert_int_equal(weir_transfer_cancel(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_OK);
    pair_close(&a, &b);
}

/* ---- close ---- */

static void test_T10_close_with_work_under_way(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        weir_engine_options limits = side_options();
        struct side a, b;

        /* Closing waits for no time-out: this one would take an hour. */
        limits.teardown_timeout_ns = 3600 * SECOND;
        if (round % 2 == 0)
            apart(&a, &b, &limits);
        else
            pair_open(&a, &b, &limits);
        for (int i = 0; i < 50; i++) {
            weir_transfer transfer;
            weir_segment one = segment_of(&a, 0, 0, 64);
            options.flags = i % 2 ? WEIR_TRANSFER_NOTIFY : WEIR_TRANSFER_ONCE;
            weir_write(a.engine, a.peer, &one, 1, &options, &transfer);
        }
        for (int i = 0; i < round % 5; i++)
            step(&a, &b);
        pair_close(&a, &b);
    }
}

static void test_T10_peer_close_ends_its_transfers(void **state) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    struct side a, b;

    (void)state;
    apart(&a, &b, NULL);
    weir_transfer transfer = start(&a, NULL);
    assert_int_equal(weir_peer_close(a.engine, a.peer), WEIR_OK);
    assert_int_equal(finish(&a, &b, transfer), WEIR_ECLOSED);
    assert_int_equal(weir_peer_query(a.engine, a.peer, &info), WEIR_ESTALE);
    weir_segment one = segment_of(&a, 0, 0, 64);
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_ESTALE);
    /* Its memories went with it; the address can be opened again. */
    side_join(&a, &b);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_ESTALE);
    one = segment_of(&a, 0, 0, 64);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    /* The same when connected. */
    assert_int_equal(weir_peer_close(a.engine, a.peer), WEIR_OK);
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_ESTALE);
    side_join(&a, &b);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_ESTALE);
    one = segment_of(&a, 0, 0, 64);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    pair_close(&a, &b);
}

/* ---- no engine ---- */

static void test_E6_no_engine_is_an_error(void **state) {
    weir_peer peer = {1};
    weir_memory memory = {1};
    weir_remote remote = {1};
    weir_transfer transfer = {1};
    weir_notification notification;
    weir_completion completion;
    weir_event event;
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    uint8_t bytes[WEIR_DESCRIPTOR_MAX] = {0};
    size_t length = sizeof(bytes);
    uint64_t timeout_ns;
    void *base;
    struct side a;

    (void)state;
    weir_engine_close(NULL); /* is allowed */
    side_open(&a, NULL);
    assert_int_equal(weir_memory_export(a.engine, a.memory, bytes, &length), WEIR_OK);
    assert_int_equal(weir_engine_progress(NULL), WEIR_EINVAL);
    assert_int_equal(weir_engine_wait(NULL, 0), WEIR_EINVAL);
    assert_int_equal(weir_engine_fd(NULL), WEIR_EINVAL);
    assert_int_equal(weir_engine_arm(NULL, &timeout_ns), WEIR_EINVAL);
    assert_int_equal(weir_engine_address(NULL, (char *)bytes, 8), WEIR_EINVAL);
    assert_int_equal(weir_engine_query(NULL, &stats), WEIR_EINVAL);
    assert_int_equal(weir_memory_register(NULL, bytes, 8, 0, &memory), WEIR_EINVAL);
    assert_int_equal(weir_memory_allocate(NULL, 8, 0, &memory, &base), WEIR_EINVAL);
    assert_int_equal(weir_memory_release(NULL, memory), WEIR_EINVAL);
    assert_int_equal(weir_memory_query(NULL, memory, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_memory_export(NULL, memory, bytes, &length), WEIR_EINVAL);
    assert_int_equal(weir_memory_import(NULL, peer, bytes, length, &remote), WEIR_EINVAL);
    assert_int_equal(weir_remote_release(NULL, remote), WEIR_EINVAL);
    assert_int_equal(weir_remote_query(NULL, remote, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_peer_open(NULL, "127.0.0.1:1", &peer), WEIR_EINVAL);
    assert_int_equal(weir_peer_close(NULL, peer), WEIR_EINVAL);
    assert_int_equal(weir_peer_connect(NULL, peer), WEIR_EINVAL);
    assert_int_equal(weir_peer_query(NULL, peer, &info), WEIR_EINVAL);
    assert_int_equal(weir_transfer_status(NULL, transfer), WEIR_EINVAL);
    assert_int_equal(weir_transfer_wait(NULL, transfer, 0), WEIR_EINVAL);
    assert_int_equal(weir_transfer_cancel(NULL, transfer), WEIR_EINVAL);
    assert_int_equal(weir_transfer_release(NULL, transfer), WEIR_EINVAL);
    assert_int_equal(weir_transfer_waiting_for(NULL, transfer), WEIR_EINVAL);
    assert_int_equal(weir_completion_take(NULL, &completion), WEIR_EINVAL);
    assert_int_equal(weir_notification_take(NULL, &notification), WEIR_EINVAL);
    assert_int_equal(weir_event_take(NULL, &event), WEIR_EINVAL);
    assert_int_equal(weir_completion_take(a.engine, NULL), WEIR_EINVAL);
    assert_int_equal(weir_notification_take(a.engine, NULL), WEIR_EINVAL);
    assert_int_equal(weir_event_take(a.engine, NULL), WEIR_EINVAL);
    side_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S13_deadline_without_a_connection),
        cmocka_unit_test(test_S13_deadline_without_credits),
        cmocka_unit_test(test_S13_cancel),
        cmocka_unit_test(test_S13_cancel_all_writes_nothing),
        cmocka_unit_test(test_S12_release_early),
        cmocka_unit_test(test_S12_cancel_then_release),
        cmocka_unit_test(test_S11_queued_completions),
        cmocka_unit_test(test_S5_queue_of_completions_is_bounded),
        cmocka_unit_test(test_S11_queued_with_cancel_release_and_deadline),
        cmocka_unit_test(test_S5_block_is_bounded),
        cmocka_unit_test(test_S5_backoff_from_the_environment),
        cmocka_unit_test(test_S5_block_gets_room),
        cmocka_unit_test(test_S13_memory_in_use_is_busy),
        cmocka_unit_test(test_S13_empty_segments_hold_their_memory),
        cmocka_unit_test(test_T10_close_with_work_under_way),
        cmocka_unit_test(test_T10_peer_close_ends_its_transfers),
        cmocka_unit_test(test_E6_no_engine_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
