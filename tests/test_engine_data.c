/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_data.c: that the bytes arrive: batches at every depth and QP count, reads,
 * many memories in one call, registered memory, transfers longer than a post (S1, S2,
 * S15). */
#define _GNU_SOURCE
#include "engine_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BATCH_MAX = 100000, UNIT = 8, THEIRS = 70000 };

static weir_segment batch[BATCH_MAX];

/* Segment i moves UNIT bytes at place i of one side to place (i * 11 + 3) mod count of
 * the other. */
static uint64_t place(uint64_t i, size_t count) {
    return (i * 11 + 3) % count;
}

static void make_batch(struct side *side, size_t count) {
    for (size_t i = 0; i < count; i++)
        batch[i] = segment_of(side, i * UNIT, place(i, count) * UNIT, UNIT);
}

static void assert_moved(const uint8_t *from, const uint8_t *to, size_t count, bool back) {
    for (size_t i = 0; i < count; i++) {
        size_t here = back ? place(i, count) : i;
        size_t there = back ? i : place(i, count);
        if (memcmp(from + here * UNIT, to + there * UNIT, UNIT) != 0)
            fail_msg("segment %zu of %zu", i, count);
    }
}

static void assert_quiet(struct side *side) {
    weir_peer_info info = info_of(side);

    assert_int_equal(info.sq_used, 0); /* S1 */
    assert_int_equal(info.pending, 0);
    assert_true(info.sq_high_water <= info.sq_depth);
}

/* place() is one to one for these. */
static const size_t counts[] = {1, 2, 3, 5, 8, 24, 25, 26, 100, 1000, 4095, 4097, 20000, BATCH_MAX};

static void move_batches(struct side *a, struct side *b) {
    weir_transfer_options slow = WEIR_TRANSFER_OPTIONS_INIT;

    slow.flags = WEIR_TRANSFER_ONCE; /* not by the fast way */
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        size_t count = counts[c];
        for (int way = 0; way < 2; way++) {
            make_batch(a, count);
            fill_pattern(a->bytes, count * UNIT, c + 10 * (uint64_t)way);
            memset(b->bytes, 0, count * UNIT);
            assert_int_equal(write_now(a, b, batch, count, way ? &slow : NULL), WEIR_OK);
            assert_moved(a->bytes, b->bytes, count, false);
            memset(a->bytes, 0, count * UNIT);
            assert_int_equal(read_now(a, b, batch, count, way ? &slow : NULL), WEIR_OK);
            assert_moved(b->bytes, a->bytes, count, true);
        }
    }
    assert_quiet(a);
}

static void big_pair(struct side *a, struct side *b, weir_engine_options options) {
    options.segments_max = BATCH_MAX;
    side_open_bytes(a, &options, (uint64_t)BATCH_MAX * UNIT);
    side_open_bytes(b, &options, (uint64_t)BATCH_MAX * UNIT);
    side_join(a, b);
    side_join(b, a);
    connect_now(a, b);
}

static void test_S2_batches_at_every_depth(void **state) {
    static const uint32_t depths[] = {2, 3, 7, 8, 64, 1024};

    (void)state;
    for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
        weir_engine_options options = side_options();
        struct side a, b;

        options.sq_depth = depths[d];
        big_pair(&a, &b, options);
        assert_true(info_of(&a).sq_depth >= 1 && info_of(&a).sq_depth <= depths[d]);
        move_batches(&a, &b);
        pair_close(&a, &b);
    }
}

static void test_S2_batches_on_every_qp_count(void **state) {
    (void)state;
    for (uint32_t qps = 1; qps <= WEIR_QPS_MAX; qps += qps < 4 ? 1 : 4) {
        weir_engine_options options = side_options();
        struct side a, b;

        options.qp_count = qps;
        options.sq_depth = 7;
        options.chain_max = 3;
        big_pair(&a, &b, options);
        assert_int_equal(info_of(&a).qp_count, qps);
        move_batches(&a, &b);
        connect_now(&b, &a); /* the same session, not another one */
        assert_int_equal(info_of(&b).sessions, 1);
        pair_close(&a, &b);
    }
}

static void test_S2_sides_with_different_limits(void **state) {
    weir_engine_options options = side_options();
    struct side a, b;

    (void)state;
    options.qp_count = 4;
    options.sq_depth = 3;
    options.segments_max = BATCH_MAX;
    side_open_bytes(&a, &options, (uint64_t)BATCH_MAX * UNIT);
    options.qp_count = 2;
    options.sq_depth = 100;
    side_open_bytes(&b, &options, (uint64_t)BATCH_MAX * UNIT);
    side_join(&a, &b);
    side_join(&b, &a);
    connect_now(&a, &b);
    connect_now(&b, &a);
    assert_int_equal(info_of(&a).qp_count, 2);
    assert_int_equal(info_of(&b).qp_count, 2);
    move_batches(&a, &b);
    move_batches(&b, &a);
    pair_close(&a, &b);
}

/* Batches that were submitted before there was a connection. */
static void test_H1_the_first_transfer_connects(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        weir_engine_options options = side_options();
        size_t count = counts[c];
        struct side a, b;

        options.segments_max = BATCH_MAX;
        side_open_bytes(&a, &options, (uint64_t)BATCH_MAX * UNIT);
        side_open_bytes(&b, &options, (uint64_t)BATCH_MAX * UNIT);
        side_join(&a, &b);
        fill_pattern(a.bytes, count * UNIT, c);
        make_batch(&a, count);
        assert_int_equal(write_now(&a, &b, batch, count, NULL), WEIR_OK);
        assert_moved(a.bytes, b.bytes, count, false);
        assert_quiet(&a);
        pair_close(&a, &b);
    }
}

/* Longer than the device carries in one post; both sides at once. */
static void test_S15_long_transfers(void **state) {
    const uint64_t length = (UINT64_C(9) << 20) + 13;
    weir_transfer there, back;
    struct side a, b;

    (void)state;
    side_open_bytes(&a, NULL, 2 * length);
    side_open_bytes(&b, NULL, 2 * length);
    side_join(&a, &b);
    side_join(&b, &a);
    connect_now(&a, &b);
    connect_now(&b, &a);
    fill_pattern(a.bytes, length, 1);
    fill_pattern(b.bytes + length, length, 2);
    weir_segment first = segment_of(&a, 0, 0, length);
    weir_segment second = segment_of(&b, length, length, length);
    assert_int_equal(weir_write(a.engine, a.peer, &first, 1, NULL, &there), WEIR_OK);
    assert_int_equal(weir_write(b.engine, b.peer, &second, 1, NULL, &back), WEIR_OK);
    assert_int_equal(finish(&a, &b, there), WEIR_OK);
    assert_int_equal(finish(&b, &a, back), WEIR_OK);
    assert_memory_equal(a.bytes, b.bytes, length);
    assert_memory_equal(a.bytes + length, b.bytes + length, length);
    memset(a.bytes, 0, length);
    assert_int_equal(read_now(&a, &b, &first, 1, NULL), WEIR_OK);
    assert_memory_equal(a.bytes, b.bytes, length);
    assert_int_equal(stats_of(&a).bytes_written, length);
    assert_int_equal(stats_of(&a).bytes_read, length);
    assert_quiet(&a);
    pair_close(&a, &b);
}

static void test_S15_zero_length(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    weir_segment empty[3] = {segment_of(&a, 0, 0, 0), segment_of(&a, SIDE_BYTES, SIDE_BYTES, 0),
                             segment_of(&a, 5, 9, 0)};
    assert_int_equal(write_now(&a, &b, empty, 3, NULL), WEIR_OK);
    assert_int_equal(read_now(&a, &b, empty, 3, NULL), WEIR_OK);
    assert_int_equal(write_now(&a, &b, empty, 3, &notify), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_notification_take(b.engine, &got) == WEIR_OK);
    weir_segment mixed[3] = {empty[0], segment_of(&a, 0, 1, 5), empty[2]};
    memcpy(a.bytes, "hello", 5);
    assert_int_equal(write_now(&a, &b, mixed, 3, NULL), WEIR_OK);
    assert_memory_equal(b.bytes, "\0hello\0", 7);
    pair_close(&a, &b);
}

/* Many memories on both sides in one call, allocated and registered ones among them. */
static void test_S2_many_memories_in_one_call(void **state) {
    enum { MEMORIES = 12, BYTES = 3000, SEGMENTS = 5000 };
    weir_memory local[MEMORIES], memory;
    weir_remote remote[MEMORIES];
    uint8_t *here[MEMORIES], *there[MEMORIES];
    static uint8_t expected[MEMORIES][BYTES];
    void *base;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    for (int i = 0; i < MEMORIES; i++) {
        if (i % 2 == 0) {
            assert_int_equal(weir_memory_allocate(a.engine, BYTES, 0, &local[i], &base), WEIR_OK);
            here[i] = base;
        } else {
            here[i] = calloc(1, BYTES);
            assert_int_equal(weir_memory_register(a.engine, here[i], BYTES, 0, &local[i]), WEIR_OK);
        }
        if (i % 3 == 0) {
            assert_int_equal(weir_memory_allocate(b.engine, BYTES, WEIR_ACCESS_ALL, &memory, &base),
                             WEIR_OK);
            there[i] = base;
        } else {
            there[i] = calloc(1, BYTES);
            assert_int_equal(
                weir_memory_register(b.engine, there[i], BYTES, WEIR_ACCESS_ALL, &memory), WEIR_OK);
        }
        fill_pattern(here[i], BYTES, (uint64_t)i);
        remote[i] = side_import(&a, a.peer, &b, memory);
    }
    memset(expected, 0, sizeof(expected));
    for (uint64_t s = 0; s < SEGMENTS; s++) { /* disjoint targets: any order will do */
        uint64_t r = s % MEMORIES;
        uint64_t l = (s * 5 + s / 7) % MEMORIES;
        uint64_t to = s / MEMORIES * 7;
        uint64_t from = (s * 13) % (BYTES - 7);
        batch[s] = (weir_segment){local[l], remote[r], from, to, 7};
        memcpy(expected[r] + to, here[l] + from, 7);
    }
    assert_int_equal(write_now(&a, &b, batch, SEGMENTS, NULL), WEIR_OK);
    for (int i = 0; i < MEMORIES; i++)
        assert_memory_equal(there[i], expected[i], BYTES);
    weir_transfer_options once = WEIR_TRANSFER_OPTIONS_INIT;
    once.flags = WEIR_TRANSFER_ONCE;
    for (int i = 0; i < MEMORIES; i++)
        memset(there[i], 0, BYTES);
    assert_int_equal(write_now(&a, &b, batch, SEGMENTS, &once), WEIR_OK);
    for (int i = 0; i < MEMORIES; i++)
        assert_memory_equal(there[i], expected[i], BYTES);
    pair_close(&a, &b);
    for (int i = 0; i < MEMORIES; i++) {
        if (i % 2 != 0)
            free(here[i]);
        if (i % 3 != 0)
            free(there[i]);
    }
}

/* Our stack and the peer's pages, by reads and writes: nothing special about the memory. */
static void test_S2_registered_memory(void **state) {
    uint8_t mine[70000];
    weir_memory local, remote;
    struct side a, b;

    (void)state;
    uint8_t *theirs =
        mmap(NULL, THEIRS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(theirs, MAP_FAILED);
    pair_open(&a, &b, NULL);
    fill_pattern(mine, sizeof(mine), 4);
    memset(theirs, 0, THEIRS);
    assert_int_equal(weir_memory_register(a.engine, mine, sizeof(mine), 0, &local), WEIR_OK);
    assert_int_equal(weir_memory_register(b.engine, theirs, THEIRS, WEIR_ACCESS_ALL, &remote),
                     WEIR_OK);
    weir_segment one = {.local = local,
                        .remote = side_import(&a, a.peer, &b, remote),
                        .local_offset = 1,
                        .remote_offset = 3,
                        .length = 69997};
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(mine + 1, theirs + 3, 69997);
    memset(mine, 0, sizeof(mine));
    assert_int_equal(read_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(mine + 1, theirs + 3, 69997);
    assert_int_equal(mine[0], 0);
    /* Memory that the target's process may not write is refused by the kernel. */
    memset(theirs, 0, THEIRS);
    assert_int_equal(mprotect(theirs, THEIRS, PROT_READ), 0);
    int rc = write_now(&a, &b, &one, 1, NULL);
    assert_int_equal(rc, WEIR_EREMOTE);
    /* Both are told that their session broke, and the writer why (W9). */
    assert_int_equal(next_event(&a, &b, WEIR_EVENT_DEGRADED).error, WEIR_EREMOTE);
    assert_int_equal(next_event(&a, &b, WEIR_EVENT_RECOVERED).error, WEIR_EREMOTE);
    int theirs_say = next_event(&b, &a, WEIR_EVENT_DEGRADED).error;
    assert_true(theirs_say == WEIR_EUNKNOWN || theirs_say == WEIR_EDEVICE);
    for (size_t i = 0; i < THEIRS; i++)
        assert_int_equal(theirs[i], 0);
    /* That was one transfer's fault: the others go on, by themselves (S9). */
    one = segment_of(&a, 0, 0, 64);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    pair_close(&a, &b);
    munmap(theirs, THEIRS);
}

static void test_S19_counters(void **state) {
    weir_transfer_options once = WEIR_TRANSFER_OPTIONS_INIT;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    once.flags = WEIR_TRANSFER_ONCE | WEIR_TRANSFER_NOTIFY;
    for (int i = 0; i < 10; i++)
        batch[i] = segment_of(&a, 0, 0, 100);
    assert_int_equal(write_now(&a, &b, batch, 10, NULL), WEIR_OK);
    assert_int_equal(write_now(&a, &b, batch, 10, &once), WEIR_OK);
    assert_int_equal(read_now(&a, &b, batch, 3, NULL), WEIR_OK);
    STEP_UNTIL(&a, &b, stats_of(&b).notifications_received == 1);
    weir_engine_info stats = stats_of(&a);
    assert_int_equal(stats.transfers_ok, 3);
    assert_int_equal(stats.transfers_failed, 0);
    assert_int_equal(stats.bytes_written, 2000);
    assert_int_equal(stats.bytes_read, 300);
    assert_int_equal(stats.wrs_posted, 24);
    assert_int_equal(stats.notifications_sent, 1);
    assert_int_equal(stats.sessions_up, 1);
    assert_int_equal(stats.sessions_failed, 0);
    assert_true(stats.posts >= 3 && stats.posts <= 24);
    assert_true(stats.control_sent > 0 && stats.control_received > 0);
    assert_int_equal(stats.control_malformed + stats.data_malformed, 0);
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S2_batches_at_every_depth),
        cmocka_unit_test(test_S2_batches_on_every_qp_count),
        cmocka_unit_test(test_S2_sides_with_different_limits),
        cmocka_unit_test(test_H1_the_first_transfer_connects),
        cmocka_unit_test(test_S15_long_transfers),
        cmocka_unit_test(test_S15_zero_length),
        cmocka_unit_test(test_S2_many_memories_in_one_call),
        cmocka_unit_test(test_S2_registered_memory),
        cmocka_unit_test(test_S19_counters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
