/* SPDX-License-Identifier: Apache-2.0 */
/* test_sendqueue_matrix.c: batches of 1 to 100,000 segments against send queues of 1 to 1,024
 * slots, on simulated devices of each kind and on shm made to queue (S1, S2).
 *
 * The least that the library takes is an sq_depth of 2, of which one slot is kept for the
 * teardown: the least queue has one slot for work. The depths here are what is asked for, 2
 * for 1. test_sendqueue_batches.c has the same through weir.h, on shm as it is and on verbs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sendqueue_world.h"

enum { BATCH_MAX = 100000, UNIT = 4 };

static const size_t counts[] = {1, 2, 3, 7, 10, 100, 1000, 10000, BATCH_MAX};
static const uint32_t depths[] = {2, 3, 7, 8, 64, 1024};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static weir_segment batch[BATCH_MAX];
static uint8_t before[BATCH_MAX * UNIT];
static struct queue_world world;

/* Segment i is between place i here and place (i * 11 + 3) mod count there: one to one. */
static size_t place(size_t i, size_t count) {
    return (i * 11 + 3) % count;
}

static void make_batch(size_t count) {
    for (size_t i = 0; i < count; i++)
        batch[i] = qw_segment(&world, 1, i * UNIT, place(i, count) * UNIT, UNIT);
}

/* Bytes of our memory and that of the peer, none alike; those that are to change differ. */
static void fill(size_t count, uint32_t seed) {
    for (size_t i = 0; i < count * UNIT; i++) {
        world.bytes[0][i] = (uint8_t)(i * 7 + (i >> 8) + seed);
        world.bytes[1][i] = (uint8_t)(i * 13 + (i >> 7) + seed + 101);
    }
}

static void assert_moved(size_t count, bool read) {
    const uint8_t *from = read ? world.bytes[1] : world.bytes[0];
    const uint8_t *to = read ? world.bytes[0] : world.bytes[1];
    assert_memory_equal(from, before, count * UNIT); /* nothing is written to a source */
    for (size_t i = 0; i < count; i++) {
        size_t here = (read ? place(i, count) : i) * UNIT;
        size_t there = (read ? i : place(i, count)) * UNIT;
        if (memcmp(from + here, to + there, UNIT) != 0)
            fail_msg("segment %zu of %zu", i, count);
    }
}

static void move(size_t count, bool read, uint32_t flags, uint32_t seed) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};
    weir_notification got;

    options.flags = flags;
    options.notify_tag = count;
    fill(count, seed);
    memcpy(before, world.bytes[read], count * UNIT);
    assert_int_equal((read ? weir_read : weir_write)(world.engines[0], world.peers[1], batch, count,
                                                     flags != 0 ? &options : NULL, &transfer),
                     WEIR_OK);
    if ((flags & WEIR_TRANSFER_QUEUE) != 0) {
        weir_completion done;
        QW_UNTIL(&world, weir_completion_take(world.engines[0], &done) == WEIR_OK);
        assert_int_equal(done.status, WEIR_OK);
        assert_int_equal(done.transfer.id, transfer.id);
    } else {
        assert_int_equal(qw_finish(&world, transfer), WEIR_OK);
    }
    assert_moved(count, read);
    if ((flags & WEIR_TRANSFER_NOTIFY) != 0) {
        QW_UNTIL(&world, weir_notification_take(world.engines[1], &got) == WEIR_OK);
        assert_int_equal(got.tag, count);
    }
    assert_int_equal(weir_notification_take(world.engines[1], &got), WEIR_EAGAIN);
}

/* All batches at one depth. The largest ones take two ways only, one of each direction. */
static void at_depth(struct qw_options *options, uint32_t depth) {
    static const uint32_t ways[] = {0, WEIR_TRANSFER_ONCE, WEIR_TRANSFER_NOTIFY,
                                    WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE};
    uint64_t moved = 0, segments = 0;

    options->limits.sq_depth = depth;
    options->limits.segments_max = BATCH_MAX;
    options->bytes = BATCH_MAX * UNIT;
    qw_open(&world, options);
    qw_connect(&world);
    assert_int_equal(qw_info(&world, 1).sq_depth, depth - 1);
    for (size_t c = 0; c < LENGTH(counts); c++) {
        make_batch(counts[c]);
        for (uint32_t w = 0; w < 2 * LENGTH(ways); w++) {
            bool read = w % 2 == 1;
            if (counts[c] > 1000 && w != 0 && w != 5) /* a plain write, a notified read */
                continue;
            move(counts[c], read, ways[w / 2], (uint32_t)(depth + c + w));
            moved++;
            segments += counts[c];
        }
        qw_assert_quiet(&world);
    }
    weir_engine_info stats = qw_stats(&world);
    assert_int_equal(stats.transfers_ok, moved);
    assert_int_equal(stats.transfers_failed, 0);
    assert_true(stats.wrs_posted >= segments);
    assert_int_equal(qw_info(&world, 1).sessions, 1);
    assert_int_equal(stats.partial_posts, 0); /* the device never has to refuse any */
    qw_close(&world);
}

static void at_every_depth(struct qw_options options) {
    for (size_t d = 0; d < LENGTH(depths); d++)
        at_depth(&options, depths[d]);
}

static void test_S2_matrix_sim(void **state) {
    (void)state;
    at_every_depth(qw_options(1));
}

static void test_S2_matrix_sim_unordered(void **state) {
    struct qw_options options = qw_options(2);
    (void)state;
    options.unordered = true;
    at_every_depth(options);
}

static void test_S2_matrix_sim_done_in_the_post(void **state) {
    struct qw_options options = qw_options(3);
    (void)state;
    options.inline_ = true;
    at_every_depth(options);
}

static void test_S2_matrix_sim_several_qps(void **state) {
    struct qw_options options = qw_options(4);
    (void)state;
    options.limits.qp_count = 3;
    options.limits.chain_max = 5;
    at_every_depth(options);
}

static void test_S2_matrix_shm_queueing(void **state) {
    (void)state;
    if (!qw_has_shm())
        skip();
    at_every_depth(qw_options(0));
}

static void test_S2_matrix_shm_queueing_registered_memory(void **state) {
    struct qw_options options = qw_options(0);
    (void)state;
    if (!qw_has_shm())
        skip();
    options.own_memory = true;
    at_every_depth(options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S2_matrix_sim),
        cmocka_unit_test(test_S2_matrix_sim_unordered),
        cmocka_unit_test(test_S2_matrix_sim_done_in_the_post),
        cmocka_unit_test(test_S2_matrix_sim_several_qps),
        cmocka_unit_test(test_S2_matrix_shm_queueing),
        cmocka_unit_test(test_S2_matrix_shm_queueing_registered_memory),
    };
    return cmocka_run_group_tests_name("sendqueue_matrix", tests, NULL, NULL);
}
