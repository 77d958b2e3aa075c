/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_submit.c: the refusals of a submit, and that nothing was posted then (S15); the worth
 * of a transfer handle; full pools, and what submits do for those that wait (S5). */
#define _GNU_SOURCE
#include "engine_side.h"

#include <string.h>
#include <sys/resource.h>

static void test_S15_bad_arguments(void **state) {
    weir_transfer_options options;
    weir_transfer transfer = {66};
    uint8_t payload[WEIR_NOTIFY_MAX + 1] = {0};
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    weir_segment one = segment_of(&a, 0, 0, 8);
    weir_engine *e = a.engine;
    assert_int_equal(weir_write(e, a.peer, &one, 0, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_write(e, a.peer, NULL, 0, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_write(e, a.peer, NULL, 1, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_write(e, a.peer, &one, 1, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_read(e, a.peer, &one, 0, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_read(e, a.peer, NULL, 1, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_read(e, a.peer, &one, 1, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_write(e, (weir_peer){0}, &one, 1, NULL, &transfer), WEIR_ESTALE);
    assert_int_equal(weir_write(e, (weir_peer){UINT64_MAX}, &one, 1, NULL, &transfer), WEIR_ESTALE);
#define REFUSED(field, value, error)                                                               \
    options = (weir_transfer_options)WEIR_TRANSFER_OPTIONS_INIT;                                   \
    options.flags = WEIR_TRANSFER_NOTIFY;                                                          \
    options.notify_payload = payload;                                                              \
    options.field = (value);                                                                       \
    assert_int_equal(weir_write(e, a.peer, &one, 1, &options, &transfer), (error))
    REFUSED(size, 0, WEIR_EINVAL);
    REFUSED(size, 4, WEIR_EINVAL);
    REFUSED(size, 100000, WEIR_EINVAL);
    REFUSED(flags, 0x20, WEIR_EINVAL);
    REFUSED(flags, UINT32_MAX, WEIR_EINVAL);
    REFUSED(notify_length, WEIR_NOTIFY_MAX + 1, WEIR_ETOOBIG);
    REFUSED(notify_length, UINT32_MAX, WEIR_ETOOBIG);
#undef REFUSED
    options = (weir_transfer_options)WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_length = 1; /* of nothing */
    assert_int_equal(weir_write(e, a.peer, &one, 1, &options, &transfer), WEIR_EINVAL);
    assert_int_equal(transfer.id, 66);
    assert_int_equal(stats_of(&a).wrs_posted, 0);
    pair_close(&a, &b);
}

static void test_S15_segments_max(void **state) {
    weir_engine_options limits = side_options();
    static weir_segment many[102];
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    limits.segments_max = 100;
    pair_open(&a, &b, &limits);
    for (int i = 0; i < 102; i++)
        many[i] = segment_of(&a, 0, 0, 1);
    assert_int_equal(weir_write(a.engine, a.peer, many, 101, NULL, &transfer), WEIR_ETOOBIG);
    assert_int_equal(weir_read(a.engine, a.peer, many, 102, NULL, &transfer), WEIR_ETOOBIG);
    assert_int_equal(write_now(&a, &b, many, 100, NULL), WEIR_OK);
    pair_close(&a, &b);
}

struct bad {
    weir_segment segment;
    int write, read;
};

/* All kinds of bad segments; returns how many. */
static size_t bad_segments(struct side *a, struct side *b, struct bad *out) {
    static uint8_t bytes[64];
    weir_memory read_only, write_only, gone, local_gone;
    weir_memory *const memories[] = {&read_only, &write_only, &gone};
    static const uint32_t access[] = {WEIR_ACCESS_REMOTE_READ, WEIR_ACCESS_REMOTE_WRITE,
                                      WEIR_ACCESS_ALL};
    weir_remote remotes[3];
    size_t n = 0;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_memory_register(b->engine, bytes, 64, access[i], memories[i]),
                         WEIR_OK);
        remotes[i] = side_import(a, a->peer, b, *memories[i]);
    }
    assert_int_equal(weir_remote_release(a->engine, remotes[2]), WEIR_OK);
    assert_int_equal(weir_memory_register(a->engine, bytes, 64, 0, &local_gone), WEIR_OK);
    assert_int_equal(weir_memory_release(a->engine, local_gone), WEIR_OK);
    const uint64_t len = SIDE_BYTES;
    const struct {
        uint64_t local, remote, length;
    } outside[] = {
        {0, 0, len + 1},
        {1, 0, len},
        {0, 1, len},
        {len, 0, 1},
        {0, len, 1},
        {UINT64_MAX, 0, 1},
        {0, UINT64_MAX, 1},
        {UINT64_MAX, 0, 0},
        {0, UINT64_MAX, 0},
        {len + 1, 0, 0},
        {0, len + 1, 0},
        {0, 0, UINT64_MAX},
        {16, 0, UINT64_MAX - 15},
        {0, 16, UINT64_MAX - 15},
        {UINT64_MAX - 7, UINT64_MAX - 7, 16},
    };
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        out[n++] =
            (struct bad){segment_of(a, outside[i].local, outside[i].remote, outside[i].length),
                         WEIR_EBOUNDS, WEIR_EBOUNDS};
    weir_segment good = segment_of(a, 0, 0, 8);
    out[n] = (struct bad){good, WEIR_EACCESS, WEIR_OK};
    out[n++].segment.remote = remotes[0];
    out[n] = (struct bad){good, WEIR_OK, WEIR_EACCESS};
    out[n++].segment.remote = remotes[1];
    const uint64_t stale[] = {remotes[2].id, 0, UINT64_MAX, a->remote.id + (1 << 20)};
    for (size_t i = 0; i < 4; i++) {
        out[n] = (struct bad){good, WEIR_ESTALE, WEIR_ESTALE};
        out[n++].segment.remote.id = stale[i];
    }
    const uint64_t stale_local[] = {local_gone.id, 0, UINT64_MAX, a->memory.id + (1 << 20)};
    for (size_t i = 0; i < 4; i++) {
        out[n] = (struct bad){good, WEIR_ESTALE, WEIR_ESTALE};
        out[n++].segment.local.id = stale_local[i];
    }
    return n;
}

/* Each bad segment at the front, in the middle and at the end of small and large
 * batches, plain and with options, connected or not. */
static void refuse_everywhere(struct side *a, struct side *b) {
    static const size_t counts[] = {1, 2, 40, 5000};
    static weir_segment many[5000];
    weir_transfer_options queue = WEIR_TRANSFER_OPTIONS_INIT;
    struct bad bad[40];
    weir_transfer transfer = {31};
    size_t kinds = bad_segments(a, b, bad);

    queue.flags = WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_NOTIFY;
    for (size_t i = 0; i < 5000; i++)
        many[i] = segment_of(a, 0, 0, 8);
    memset(a->bytes, 0xee, 64);
    weir_engine_info before = stats_of(a);
    for (size_t k = 0; k < kinds; k++) {
        for (size_t c = 0; c < 4; c++) {
            const size_t places[] = {0, counts[c] / 2, counts[c] - 1};
            for (size_t p = 0; p < 3; p++) {
                weir_segment kept = many[places[p]];
                many[places[p]] = bad[k].segment;
                for (int o = 0; o < 2; o++) {
                    const weir_transfer_options *options = o ? &queue : NULL;
                    if (bad[k].write != WEIR_OK)
                        assert_int_equal(
                            weir_write(a->engine, a->peer, many, counts[c], options, &transfer),
                            bad[k].write);
                    if (bad[k].read != WEIR_OK)
                        assert_int_equal(
                            weir_read(a->engine, a->peer, many, counts[c], options, &transfer),
                            bad[k].read);
                }
                many[places[p]] = kept;
            }
        }
    }
    for (int i = 0; i < 20; i++)
        step(a, b);
    weir_engine_info after = stats_of(a);
    assert_int_equal(after.wrs_posted, before.wrs_posted);
    assert_int_equal(after.transfers_ok, before.transfers_ok);
    assert_int_equal(after.transfers_failed, before.transfers_failed);
    assert_int_equal(transfer.id, 31);
    for (int i = 0; i < 64; i++)
        assert_int_equal(b->bytes[i], 0);
    /* No memory is held by any of them. */
    assert_int_equal(weir_remote_release(a->engine, a->remote), WEIR_OK);
    assert_int_equal(weir_memory_release(a->engine, a->memory), WEIR_OK);
}

static void test_S15_a_bad_segment_posts_nothing(void **state) {
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    refuse_everywhere(&a, &b);
    pair_close(&a, &b);
}

static void test_S15_a_bad_segment_before_the_connection(void **state) {
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    refuse_everywhere(&a, &b);
    pair_close(&a, &b);
}

static void test_S15_memory_of_another_peer(void **state) {
    weir_transfer transfer;
    weir_peer peer_c;
    struct side a, b, c;

    (void)state;
    pair_open(&a, &b, NULL);
    side_open(&c, NULL);
    assert_int_equal(weir_peer_open(a.engine, c.address, &peer_c), WEIR_OK);
    weir_segment one = segment_of(&a, 0, 0, 8);
    assert_int_equal(weir_write(a.engine, peer_c, &one, 1, NULL, &transfer), WEIR_EINVAL);
    weir_remote remote_c = side_import(&a, peer_c, &c, c.memory);
    one.remote = remote_c;
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_EINVAL);
    assert_int_equal(weir_write(a.engine, peer_c, &one, 1, NULL, &transfer), WEIR_OK);
    assert_int_equal(finish(&a, &c, transfer), WEIR_OK);
    pair_close(&a, &b);
    side_close(&c);
}

static void test_S11_inline_completion_has_no_handle(void **state) {
    weir_transfer transfer = {77};
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    fill_pattern(a.bytes, 4096, 1);
    weir_segment one = segment_of(&a, 0, 100, 4096);
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_OK);
    assert_int_equal(transfer.id, 0);
    assert_memory_equal(a.bytes, b.bytes + 100, 4096); /* before the other side ran */
    assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_transfer_wait(a.engine, transfer, UINT64_MAX), WEIR_OK);
    assert_int_equal(weir_transfer_cancel(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_transfer_waiting_for(a.engine, transfer), WEIR_WAITING_NOTHING);
    assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    assert_int_equal(stats_of(&a).transfers_inline, 1);
    assert_int_equal(stats_of(&a).transfers_ok, 1);
    assert_int_equal(stats_of(&a).bytes_written, 4096);
    pair_close(&a, &b);
}

static void test_S12_handles_after_release(void **state) {
    static const uint64_t ids[] = {5, UINT64_MAX, UINT64_C(77) << 20};
    weir_transfer transfer = {0};
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b); /* not connected: it waits */
    weir_segment one = segment_of(&a, 0, 0, 8);
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_OK);
    assert_true(transfer.id != 0);
    assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_EINPROGRESS);
    assert_int_equal(weir_transfer_waiting_for(a.engine, transfer), WEIR_WAITING_CONNECTION);
    weir_transfer copy = transfer;
    assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
    for (size_t i = 0; i <= sizeof(ids) / sizeof(ids[0]); i++) {
        weir_transfer stale = i == 0 ? copy : (weir_transfer){ids[i - 1]};
        assert_int_equal(weir_transfer_status(a.engine, stale), WEIR_ESTALE);
        assert_int_equal(weir_transfer_wait(a.engine, stale, SECOND), WEIR_ESTALE);
        assert_int_equal(weir_transfer_cancel(a.engine, stale), WEIR_ESTALE);
        assert_int_equal(weir_transfer_release(a.engine, stale), WEIR_ESTALE);
        assert_int_equal(weir_transfer_waiting_for(a.engine, stale), WEIR_ESTALE);
    }
    /* And when other transfers have used every record. */
    for (int i = 0; i < 200; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        options.flags = WEIR_TRANSFER_ONCE; /* never by the fast way */
        assert_int_equal(write_now(&a, &b, &one, 1, &options), WEIR_OK);
        assert_int_equal(weir_transfer_status(a.engine, copy), WEIR_ESTALE);
    }
    pair_close(&a, &b);
}

static void test_S5_full_pools_are_EAGAIN(void **state) {
    weir_engine_options limits = side_options();
    weir_transfer transfers[64];
    weir_transfer one_more = {8};
    size_t count = 0;
    int rc = WEIR_OK;
    struct side a, b;

    (void)state;
    limits.transfers_max = 8;
    side_open(&a, &limits);
    side_open(&b, NULL);
    side_join(&a, &b);
    weir_segment one = segment_of(&a, 0, 0, 8);
    while (count < 64 && rc == WEIR_OK) {
        rc = weir_write(a.engine, a.peer, &one, 1, NULL, &transfers[count]);
        count += rc == WEIR_OK;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
    assert_true(count >= 7 && count <= 8); /* one is kept in reserve */
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &one_more), WEIR_EAGAIN);
    assert_int_equal(one_more.id, 8);
    assert_true(stats_of(&a).submit_eagain >= 2);
    assert_int_equal(info_of(&a).pending, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    pair_close(&a, &b);
}

static void test_S5_segments_are_a_pool_too(void **state) {
    weir_engine_options limits = side_options();
    static weir_segment many[1000];
    weir_transfer transfers[64];
    size_t count = 0;
    int rc = WEIR_OK;
    struct side a, b;

    (void)state;
    limits.segments_max = 1000;
    side_open(&a, &limits);
    side_open(&b, NULL);
    side_join(&a, &b);
    for (int i = 0; i < 1000; i++)
        many[i] = segment_of(&a, (uint64_t)i, (uint64_t)i, 1);
    while (count < 64 && rc == WEIR_OK) {
        rc = weir_write(a.engine, a.peer, many, 900, NULL, &transfers[count]);
        count += rc == WEIR_OK;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
    assert_true(count >= 1);
    /* Transfers that could not be filled gave their blocks and users back. */
    for (int i = 0; i < 100; i++)
        assert_int_equal(weir_write(a.engine, a.peer, many, 900, NULL, &transfers[count]),
                         WEIR_EAGAIN);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    assert_int_equal(weir_memory_release(a.engine, a.memory), WEIR_OK);
    pair_close(&a, &b);
}

/* An application that has WINDOW writes under way, to two peers in turn, and only makes progress
 * by waiting for the oldest: what waited for connections is worked off by the submits that come
 * after, and then every write is done in its call. */
static void test_S5_submits_work_off_what_waits(void **state) {
    enum { WINDOW = 4000, LATER = 10 * WINDOW };
    static weir_transfer under_way[WINDOW];
    weir_engine_options limits = side_options();
    struct side a[2], b[2]; /* a[1]: the same engine as a[0], and its other peer */

    (void)state;
    limits.transfers_max = WINDOW + 1; /* one is kept in reserve */
    side_open(&a[0], &limits);
    a[1] = a[0];
    for (int i = 0; i < 2; i++) {
        side_open(&b[i], NULL);
        side_join(&a[i], &b[i]);
    }
    for (int i = 0; i < WINDOW; i++) {
        weir_segment one = segment_of(&a[i % 2], 0, 0, 8);
        assert_int_equal(weir_write(a->engine, a[i % 2].peer, &one, 1, NULL, &under_way[i]),
                         WEIR_OK);
    }
    STEP_UNTIL(&b[1], &b[0],
               weir_engine_progress(a->engine) >= 0 && is_connected(&a[0]) && is_connected(&a[1]));
    assert_true(info_of(&a[0]).pending > 0 && info_of(&a[1]).pending > 0);
    for (int i = 0; i < LATER; i++) {
        weir_transfer *oldest = &under_way[i % WINDOW];
        weir_segment one = segment_of(&a[i % 2], 0, 0, 8);
        if (oldest->id != 0) {
            assert_int_equal(weir_transfer_wait(a->engine, *oldest, PATIENCE_NS), WEIR_OK);
            assert_int_equal(weir_transfer_release(a->engine, *oldest), WEIR_OK);
        }
        assert_int_equal(weir_write(a->engine, a[i % 2].peer, &one, 1, NULL, oldest), WEIR_OK);
        if (i >= LATER - WINDOW)
            assert_true(oldest->id == 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(info_of(&a[i]).pending, 0);
        side_close(&b[i]);
    }
    side_close(&a[0]);
}

static void queue_one(struct side *side, weir_transfer_options *options) {
    weir_segment one = segment_of(side, 0, 0, 8);
    weir_transfer transfer;
    weir_completion completion;
    assert_int_equal(weir_write(side->engine, side->peer, &one, 1, options, &transfer), WEIR_OK);
    while (weir_completion_take(side->engine, &completion) == WEIR_OK)
        assert_int_equal(completion.status, WEIR_OK);
}

/* One peer has a backlog, and is written to as often as each of many others that have none:
 * they take none of the turns that work it off. Nobody makes progress. */
static void test_S5_peers_without_a_backlog_take_no_turns(void **state) {
    enum { OTHERS = 20, BACKLOG = 2000, ROUNDS = 1000 };
    static struct side a[1 + OTHERS], b[1 + OTHERS]; /* a: one engine, and its peers */
    weir_engine_options limits = side_options();
    weir_transfer_options queue = WEIR_TRANSFER_OPTIONS_INIT;

    (void)state;
    limits.transfers_max = 2 * BACKLOG;
    limits.peers_max = 64;
    limits.memories_max = limits.remotes_max = 64;
    queue.flags = WEIR_TRANSFER_QUEUE; /* in a record, with a turn */
    side_open(&a[0], &limits);
    for (int i = OTHERS; i >= 0; i--) {
        a[i] = a[0];
        side_open(&b[i], NULL);
        side_join(&a[i], &b[i]);
        if (i > 0)
            connect_now(&a[i], &b[i]);
    }
    for (int i = 0; i < BACKLOG; i++)
        queue_one(&a[0], &queue);
    STEP_UNTIL(&a[0], &b[0], is_connected(&a[0]));
    assert_true(info_of(&a[0]).pending > BACKLOG / 2);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i <= OTHERS; i++)
            queue_one(&a[i], &queue);
    }
    assert_int_equal(info_of(&a[0]).pending, 0);
    side_close(&a[0]);
    for (int i = 0; i <= OTHERS; i++)
        side_close(&b[i]);
}

/* A long copy that waits is not made in a submit of eight bytes. */
static void test_S5_submits_copy_no_more_than_they_say(void **state) {
    enum { LONG = 8, LONG_BYTES = 1 << 20 };
    weir_engine_options limits = side_options();
    weir_transfer transfers[LONG + 1];
    struct side a, b;

    (void)state;
    side_open_bytes(&a, &limits, LONG_BYTES);
    side_open_bytes(&b, &limits, LONG_BYTES);
    side_join(&a, &b);
    weir_segment all = segment_of(&a, 0, 0, LONG_BYTES), one = segment_of(&a, 0, 0, 8);
    for (int i = 0; i < LONG; i++)
        assert_int_equal(weir_write(a.engine, a.peer, &all, 1, NULL, &transfers[i]), WEIR_OK);
    STEP_UNTIL(&a, &b, is_connected(&a));
    uint32_t pending = info_of(&a).pending;
    assert_true(pending > 0);
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfers[LONG]), WEIR_OK);
    assert_int_equal(info_of(&a).pending, pending + 1);
    for (int i = 0; i <= LONG; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    pair_close(&a, &b);
}

/* The same where long and short ones wait in turn. */
static void test_S5_submits_copy_as_far_as_a_long_one(void **state) {
    enum { WAITING = 40, LONG_BYTES = 1 << 20, MORE = 4 };
    weir_transfer transfers[WAITING + MORE];
    struct side a, b;

    (void)state;
    side_open_bytes(&a, NULL, LONG_BYTES);
    side_open_bytes(&b, NULL, LONG_BYTES);
    side_join(&a, &b);
    weir_segment all = segment_of(&a, 0, 0, LONG_BYTES), one = segment_of(&a, 0, 0, 8);
    for (int i = 0; i < WAITING; i++)
        assert_int_equal(
            weir_write(a.engine, a.peer, i % 2 == 0 ? &one : &all, 1, NULL, &transfers[i]),
            WEIR_OK);
    STEP_UNTIL(&a, &b, is_connected(&a));
    assert_true(info_of(&a).pending > 2 * MORE);
    for (int i = 0; i < MORE; i++) {
        uint64_t before = stats_of(&a).bytes_written;
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfers[WAITING + i]),
                         WEIR_OK);
        assert_true(stats_of(&a).bytes_written - before < 1 << 17);
    }
    for (int i = 0; i < WAITING + MORE; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    pair_close(&a, &b);
}

/* How often this thread slept. */
static long sleeps(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

/* A submitter that asked to wait, while no room comes, spins shortly, sleeps then, and is back
 * after backoff_timeout_ns; one that did not is back at once. */
static void test_S5_a_blocked_submitter_sleeps(void **state) {
    const uint64_t backoff_ns = 400 * MS;
    weir_engine_options limits = side_options();
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};
    struct side a, b;

    (void)state;
    limits.transfers_max = 8;
    limits.backoff_timeout_ns = backoff_ns;
    side_open(&a, &limits);
    side_open(&b, NULL);
    side_join(&a, &b); /* nobody makes progress on b: no session comes up */
    weir_segment one = segment_of(&a, 0, 0, 8);
    while (weir_write(a.engine, a.peer, &one, 1, NULL, &transfer) == WEIR_OK)
        continue;
    block.flags = WEIR_TRANSFER_BLOCK;
    uint64_t begin = now_ns();
    long before = sleeps();
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &block, &transfer), WEIR_EAGAIN);
    assert_true(now_ns() - begin >= backoff_ns);
    assert_true(sleeps() - before >= 3); /* one that spins never does; a busy machine wakes late */
    before = sleeps();
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_EAGAIN);
    assert_true(sleeps() - before < 10);
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S15_bad_arguments),
        cmocka_unit_test(test_S15_segments_max),
        cmocka_unit_test(test_S15_a_bad_segment_posts_nothing),
        cmocka_unit_test(test_S15_a_bad_segment_before_the_connection),
        cmocka_unit_test(test_S15_memory_of_another_peer),
        cmocka_unit_test(test_S11_inline_completion_has_no_handle),
        cmocka_unit_test(test_S12_handles_after_release),
        cmocka_unit_test(test_S5_full_pools_are_EAGAIN),
        cmocka_unit_test(test_S5_segments_are_a_pool_too),
        cmocka_unit_test(test_S5_submits_work_off_what_waits),
        cmocka_unit_test(test_S5_peers_without_a_backlog_take_no_turns),
        cmocka_unit_test(test_S5_submits_copy_no_more_than_they_say),
        cmocka_unit_test(test_S5_submits_copy_as_far_as_a_long_one),
        cmocka_unit_test(test_S5_a_blocked_submitter_sleeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
