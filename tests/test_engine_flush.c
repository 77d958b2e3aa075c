/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_flush.c: waiting for the ends of all that was submitted before (S20), through weir.h
 * over shm: what counts, what does not, for how long, and from how many threads. Messages to
 * inboxes that are not there stay unfinished for as long as a test wants. */
#define _POSIX_C_SOURCE 200809L
#include "message_side.h"
#include "state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LATER = 7, NEVER = 8, OTHERS = 3, ROUNDS = 2000 };

static int peer_flush(struct side *side, uint64_t timeout_ns) {
    return weir_peer_flush(side->engine, side->peer, timeout_ns);
}

/* With progress on the other side meanwhile. */
static void flush_both(struct side *a, struct side *b) {
    STEP_UNTIL(a, b, peer_flush(a, 0) == WEIR_OK);
}

static void test_S20_nothing_under_way_is_flushed(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    assert_int_equal(peer_flush(&a, 0), WEIR_OK);
    assert_int_equal(weir_engine_flush(a.engine, 0), WEIR_OK);
    weir_segment one = segment_of(&a, 0, 0, 8);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_int_equal(peer_flush(&a, UINT64_MAX), WEIR_OK);
    assert_int_equal(weir_engine_flush(a.engine, UINT64_MAX), WEIR_OK);
    pair_close(&a, &b);
}

static void test_S20_wrong_arguments(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    assert_int_equal(weir_peer_flush(NULL, a.peer, 0), WEIR_EINVAL);
    assert_int_equal(weir_engine_flush(NULL, 0), WEIR_EINVAL);
    assert_int_equal(weir_peer_flush(a.engine, (weir_peer){0}, 0), WEIR_ESTALE);
    assert_int_equal(weir_peer_flush(a.engine, (weir_peer){UINT64_MAX}, 0), WEIR_ESTALE);
    assert_int_equal(weir_peer_close(a.engine, a.peer), WEIR_OK);
    assert_int_equal(weir_engine_flush(a.engine, UINT64_MAX), WEIR_OK);
    pair_close(&a, &b);
}

/* All of these are waited for: a message, one whose handle was released, one that is queued, a
 * write with a notification that finds no credit. */
static void test_S20_all_that_is_unfinished_counts(void **state) {
    weir_completion completion;
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    for (uint32_t kind = 0; kind < 3; kind++) {
        weir_transfer_options options = tagged(kind, kind == 2 ? WEIR_TRANSFER_QUEUE : 0);
        weir_transfer transfer = send_with(&a, LATER, 8, &options);
        assert_int_equal(peer_flush(&a, 0), WEIR_EINPROGRESS);
        assert_int_equal(weir_engine_flush(a.engine, 0), WEIR_EINPROGRESS);
        assert_int_equal(status_of(&a, transfer), WEIR_EINPROGRESS);
        if (kind == 1)
            assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
        assert_int_equal(peer_flush(&a, 0), WEIR_EINPROGRESS);
        weir_inbox inbox = inbox_of(&b, LATER, 64, 4);
        flush_both(&a, &b);
        if (kind == 0)
            assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
        if (kind == 2) { /* without another step */
            assert_int_equal(weir_completion_take(a.engine, &completion), WEIR_OK);
            assert_int_equal(completion.status, WEIR_OK);
        }
        take_and_give_back(&b, &a, inbox, kind, 8);
        assert_int_equal(weir_inbox_close(b.engine, inbox), WEIR_OK);
        some_steps(&a, &b);
    }
    weir_transfer_options note = WEIR_TRANSFER_OPTIONS_INIT;
    note.flags = WEIR_TRANSFER_NOTIFY;
    weir_transfer last = {0};
    do
        assert_int_equal(weir_write(a.engine, a.peer, NULL, 0, &note, &last), WEIR_OK);
    while (last.id == 0);
    assert_int_equal(peer_flush(&a, 0), WEIR_EINPROGRESS);
    flush_both(&a, &b);
    assert_int_equal(finish(&a, &b, last), WEIR_OK);
    pair_close(&a, &b);
}

/* The status is no matter: a cancelled one, one that is late, one whose peer is gone are over. */
static void test_S20_any_status_is_an_end(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_transfer cancelled = send_one(&a, NEVER, 1, 8);
    assert_int_equal(weir_transfer_cancel(a.engine, cancelled), WEIR_OK);
    flush_both(&a, &b);
    assert_int_equal(finish(&a, &b, cancelled), WEIR_ECANCELED);
    weir_transfer_options soon = tagged(2, 0);
    soon.timeout_ns = 1;
    weir_transfer late = send_with(&a, NEVER, 8, &soon);
    assert_int_equal(peer_flush(&a, UINT64_MAX), WEIR_OK);
    assert_int_equal(status_of(&a, late), WEIR_ETIMEDOUT);
    weir_transfer left = send_one(&a, NEVER, 3, 8);
    side_close(&b);
    assert_int_equal(weir_engine_flush(a.engine, UINT64_MAX), WEIR_OK);
    assert_int_equal(status_of(&a, left), WEIR_EPEER);
    side_close(&a);
}

/* A peer's flush is not about others; an engine's is about all. */
static void test_S20_another_peers_work_does_not_count(void **state) {
    struct side a, b, c;

    (void)state;
    open_three(&a, &b, &c);
    weir_peer to_c;
    assert_int_equal(weir_peer_open(a.engine, c.address, &to_c), WEIR_OK);
    weir_transfer_options plain = tagged(1, 0);
    weir_transfer stuck;
    assert_int_equal(try_send(&a, to_c, NEVER, 8, &plain, &stuck), WEIR_OK);
    weir_inbox inbox = inbox_of(&b, LATER, 64, 4);
    send_one(&a, LATER, 2, 8);
    flush_both(&a, &b);
    assert_int_equal(weir_peer_flush(a.engine, to_c, 0), WEIR_EINPROGRESS);
    assert_int_equal(weir_engine_flush(a.engine, 0), WEIR_EINPROGRESS);
    assert_int_equal(status_of(&a, stuck), WEIR_EINPROGRESS);
    take_and_give_back(&b, &a, inbox, 2, 8);
    side_close(&a);
    side_close(&b);
    side_close(&c);
}

static void test_S20_a_flush_ends_with_its_time(void **state) {
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    send_one(&a, NEVER, 1, 8);
    uint64_t begin = now_ns();
    assert_int_equal(peer_flush(&a, 5 * MS), WEIR_EINPROGRESS);
    assert_true(now_ns() - begin >= 5 * MS);
    begin = now_ns();
    assert_int_equal(weir_engine_flush(a.engine, 5 * MS), WEIR_EINPROGRESS);
    assert_true(now_ns() - begin >= 5 * MS);
    pair_close(&a, &b);
}

/* Two handles of one peer: the flush of either is about both. */
static void test_S20_two_names_of_a_peer_are_one(void **state) {
    struct side a, b;
    weir_peer other;

    (void)state;
    open_pair(&a, &b);
    char name[WEIR_ADDRESS_MAX + 16];
    strcpy(name, "localhost");
    strcat(name, strrchr(b.address, ':'));
    assert_int_equal(weir_peer_open(a.engine, name, &other), WEIR_OK);
    weir_peer_connect(a.engine, other);
    STEP_UNTIL(&a, &b, ({
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        assert_int_equal(weir_peer_query(a.engine, other, &info), WEIR_OK);
        info.connected == 1;
    }));
    send_one(&a, NEVER, 1, 8);
    assert_int_equal(weir_peer_flush(a.engine, other, 0), WEIR_EINPROGRESS);
    assert_int_equal(peer_flush(&a, 0), WEIR_EINPROGRESS);
    pair_close(&a, &b);
}

/* ---- threads ----------------------------------------------------------- */

struct flusher {
    weir_engine *engine;
    weir_peer peer; /* id 0: all */
    int rc;
};

static void *flush_main(void *argument) {
    struct flusher *flusher = argument;

    flusher->rc = flusher->peer.id != 0
                      ? weir_peer_flush(flusher->engine, flusher->peer, UINT64_MAX)
                      : weir_engine_flush(flusher->engine, UINT64_MAX);
    return NULL;
}

/* A flush has begun when it has its mark. */
static void begin_flush(struct flusher *flusher, pthread_t *thread) {
    uint64_t before = atomic_load(&flusher->engine->era);

    assert_int_equal(pthread_create(thread, NULL, flush_main, flusher), 0);
    while (atomic_load(&flusher->engine->era) == before)
        sched_yield();
}

/* The engine is never idle, since what was submitted behind the mark does not end. */
static void later_work_does_not_count(uint32_t flags) {
    weir_engine_options options = side_options();
    pthread_t threads[2];
    struct side a, b;

    options.flags |= flags;
    pair_open(&a, &b, &options);
    weir_transfer first = send_one(&a, LATER, 1, 8);
    struct flusher flushers[2] = {{.engine = a.engine, .peer = a.peer}, {.engine = a.engine}};
    for (uint32_t i = 0; i < 2; i++)
        begin_flush(&flushers[i], &threads[i]);
    weir_transfer second = send_one(&a, NEVER, 2, 8);
    weir_inbox inbox = inbox_of(&b, LATER, 64, 4);
    take_and_give_back(&b, &a, inbox, 1, 8);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(flushers[i].rc, WEIR_OK);
    }
    assert_int_equal(status_of(&a, first), WEIR_OK);
    assert_int_equal(status_of(&a, second), WEIR_EINPROGRESS);
    pair_close(&a, &b);
}

static void test_S20_later_work_keeps_no_flush_waiting(void **state) {
    (void)state;
    later_work_does_not_count(0);
}

static void test_S20_later_work_with_a_thread_of_the_engine(void **state) {
    (void)state;
    later_work_does_not_count(WEIR_ENGINE_THREAD);
}

/* A peer that is closed under a flush. */
static void test_S20_a_handle_that_is_closed_meanwhile(void **state) {
    pthread_t thread;
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    weir_transfer left = send_one(&a, NEVER, 1, 8);
    struct flusher flusher = {.engine = a.engine, .peer = a.peer};
    begin_flush(&flusher, &thread);
    assert_int_equal(weir_peer_close(a.engine, a.peer), WEIR_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(flusher.rc == WEIR_ESTALE || flusher.rc == WEIR_OK);
    assert_int_equal(finish(&a, &b, left), WEIR_ECLOSED);
    pair_close(&a, &b);
}

struct worker {
    struct side *side;
    uint32_t index;
    const char *wrong;
};

/* Each submits transfers with records, and flushes: then all of its own are over. */
static void *work_main(void *argument) {
    struct worker *worker = argument;
    struct side *side = worker->side;
    weir_transfer_options once = WEIR_TRANSFER_OPTIONS_INIT;
    once.flags = WEIR_TRANSFER_ONCE;
    for (uint32_t i = 0; i < ROUNDS && worker->wrong == NULL; i++) {
        weir_segment one = segment_of(side, worker->index * 64, worker->index * 64, 64);
        weir_transfer transfer;
        int rc = weir_write(side->engine, side->peer, &one, 1, &once, &transfer);
        if (rc == WEIR_EAGAIN)
            continue;
        if (rc != WEIR_OK)
            worker->wrong = "write";
        rc =
            i % 2 == 0 ? peer_flush(side, UINT64_MAX) : weir_engine_flush(side->engine, UINT64_MAX);
        if (rc != WEIR_OK)
            worker->wrong = "flush";
        if (weir_transfer_status(side->engine, transfer) != WEIR_OK)
            worker->wrong = "status";
        weir_transfer_release(side->engine, transfer);
    }
    return NULL;
}

static void test_S20_from_several_threads(void **state) {
    struct worker workers[OTHERS];
    pthread_t threads[OTHERS];
    struct side a, b;

    (void)state;
    open_pair(&a, &b);
    for (uint32_t i = 0; i < OTHERS; i++) {
        workers[i] = (struct worker){.side = &a, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work_main, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_null(workers[i].wrong);
    }
    assert_int_equal(weir_engine_flush(a.engine, 0), WEIR_OK);
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S20_nothing_under_way_is_flushed),
        cmocka_unit_test(test_S20_wrong_arguments),
        cmocka_unit_test(test_S20_all_that_is_unfinished_counts),
        cmocka_unit_test(test_S20_any_status_is_an_end),
        cmocka_unit_test(test_S20_another_peers_work_does_not_count),
        cmocka_unit_test(test_S20_a_flush_ends_with_its_time),
        cmocka_unit_test(test_S20_two_names_of_a_peer_are_one),
        cmocka_unit_test(test_S20_later_work_keeps_no_flush_waiting),
        cmocka_unit_test(test_S20_later_work_with_a_thread_of_the_engine),
        cmocka_unit_test(test_S20_a_handle_that_is_closed_meanwhile),
        cmocka_unit_test(test_S20_from_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
