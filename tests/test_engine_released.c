/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_released.c: memory that a target releases while it is written to, over shm, whose
 * device sees that (S21): one ESTALE, and no session breaks. */
#include "engine_side.h"

#include <string.h>

enum { BYTES = 70000, LARGE = 1 << 20, PARTS = 16, WRITES = 20 };

/* Memory of b's, and how a knows it. */
struct lent {
    weir_memory memory;
    weir_remote remote;
    uint8_t *bytes;
};

static struct lent lend(struct side *a, struct side *b, uint8_t *at, uint64_t length) {
    struct lent lent = {.bytes = at};
    if (at == NULL)
        assert_int_equal(weir_memory_allocate(b->engine, length, WEIR_ACCESS_ALL, &lent.memory,
                                              (void **)&lent.bytes),
                         WEIR_OK);
    else
        assert_int_equal(weir_memory_register(b->engine, at, length, WEIR_ACCESS_ALL, &lent.memory),
                         WEIR_OK);
    lent.remote = side_import(a, a->peer, b, lent.memory);
    return lent;
}

static weir_segment segment_to(const struct side *a, const struct lent *lent, uint64_t length) {
    return (weir_segment){.local = a->memory, .remote = lent->remote, .length = length};
}

static int try_it(struct side *a, bool reads, const weir_segment *segments, size_t count,
                  uint32_t flags, weir_transfer *transfer) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = flags;
    return (reads ? weir_read : weir_write)(a->engine, a->peer, segments, count, &options,
                                            transfer);
}

/* Nothing broke, and nobody was told that anything did. */
static void assert_unbroken(struct side *a, struct side *b) {
    weir_event event;
    assert_int_equal(stats_of(a).sessions_failed, 0);
    assert_int_equal(stats_of(b).sessions_failed, 0);
    for (struct side *side = a; side != NULL; side = side == a ? b : NULL) {
        while (weir_event_take(side->engine, &event) == WEIR_OK)
            assert_int_not_equal(event.type, WEIR_EVENT_DEGRADED);
    }
}

/* Released and made anew, at the same place if `at` says where. */
static void make_anew(struct side *a, struct side *b, uint8_t *at, bool reads, uint32_t flags) {
    struct lent before = lend(a, b, at, BYTES);
    weir_segment old[2] = {segment_to(a, &before, 8), segment_to(a, &before, 64)};
    weir_transfer transfer = {0};
    assert_int_equal(write_now(a, b, old, 2, NULL), WEIR_OK);
    assert_int_equal(weir_memory_release(b->engine, before.memory), WEIR_OK);
    struct lent after = lend(a, b, at, BYTES);
    memset(after.bytes, 0x5a, BYTES);
    for (size_t count = 1; count <= 2; count++)
        assert_int_equal(try_it(a, reads, old, count, flags, &transfer), WEIR_ESTALE);
    weir_segment mixed[2] = {segment_to(a, &after, 4096), old[0]};
    assert_int_equal(try_it(a, reads, mixed, 2, flags, &transfer), WEIR_ESTALE);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(after.bytes[i], 0x5a);
    weir_segment now = segment_to(a, &after, 4096);
    assert_int_equal(write_now(a, b, &now, 1, NULL), WEIR_OK);
    assert_memory_equal(after.bytes, a->bytes, 4096);
    uint64_t length;
    assert_int_equal(weir_remote_query(a->engine, before.remote, &length, NULL), WEIR_OK);
    assert_int_equal(weir_remote_release(a->engine, before.remote), WEIR_OK);
    assert_int_equal(weir_remote_release(a->engine, after.remote), WEIR_OK);
    assert_int_equal(weir_memory_release(b->engine, after.memory), WEIR_OK);
}

static void test_S21_memory_registered_anew_costs_one_ESTALE(void **state) {
    static uint8_t place[BYTES];
    weir_completion completion;
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    fill_pattern(a.bytes, a.length, 1);
    for (uint32_t kind = 0; kind < 8; kind++)
        make_anew(&a, &b, (kind & 1) != 0 ? place : NULL, (kind & 2) != 0,
                  (kind & 4) != 0 ? WEIR_TRANSFER_QUEUE : 0);
    while (weir_completion_take(a.engine, &completion) == WEIR_OK)
        fail_msg("a call that failed has a completion");
    assert_unbroken(&a, &b);
    pair_close(&a, &b);
}

/* Those that were submitted before it was released, and wait for a session, end so; those between
 * them, to other memory, are well. */
static void test_S21_transfers_that_wait_end_so(void **state) {
    weir_transfer good[WRITES], bad[WRITES];
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    struct lent gone = lend(&a, &b, NULL, BYTES), stays = lend(&a, &b, NULL, BYTES);
    fill_pattern(a.bytes, a.length, 2);
    for (uint32_t i = 0; i < WRITES; i++) {
        weir_segment to_gone = segment_to(&a, &gone, 1000), to_stays = segment_to(&a, &stays, 1000);
        to_gone.remote_offset = to_gone.local_offset = 1000 * i;
        to_stays.remote_offset = to_stays.local_offset = 1000 * i;
        uint32_t flags = i % 2 == 0 ? WEIR_TRANSFER_NOTIFY : 0;
        assert_int_equal(try_it(&a, false, &to_stays, 1, flags, &good[i]), WEIR_OK);
        assert_int_equal(try_it(&a, i % 3 == 0, &to_gone, 1, flags, &bad[i]), WEIR_OK);
    }
    assert_int_equal(weir_memory_release(b.engine, gone.memory), WEIR_OK);
    for (uint32_t i = 0; i < WRITES; i++) {
        assert_int_equal(finish(&a, &b, good[i]), WEIR_OK);
        assert_int_equal(finish(&a, &b, bad[i]), WEIR_ESTALE);
    }
    assert_memory_equal(stays.bytes, a.bytes, 1000 * WRITES);
    weir_notification notification;
    uint32_t told = 0;
    while (weir_notification_take(b.engine, &notification) == WEIR_OK)
        told++;
    assert_int_equal(told, WRITES / 2);
    assert_unbroken(&a, &b);
    assert_int_equal(weir_remote_release(a.engine, gone.remote), WEIR_OK);
    pair_close(&a, &b);
}

/* A transfer of several turns, a part of which is in place: its rest is refused. */
static void test_S21_the_rest_of_a_transfer_ends_so(void **state) {
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    side_open_bytes(&a, NULL, PARTS * LARGE);
    side_open(&b, NULL);
    side_join(&a, &b);
    connect_now(&a, &b);
    struct lent gone = lend(&a, &b, NULL, PARTS * LARGE);
    weir_segment parts[PARTS];
    for (uint64_t i = 0; i < PARTS; i++) {
        parts[i] = segment_to(&a, &gone, LARGE);
        parts[i].local_offset = parts[i].remote_offset = i * LARGE;
    }
    assert_int_equal(try_it(&a, false, parts, PARTS, WEIR_TRANSFER_NOTIFY, &transfer), WEIR_OK);
    assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_EINPROGRESS);
    assert_int_equal(weir_memory_release(b.engine, gone.memory), WEIR_OK);
    assert_int_equal(finish(&a, &b, transfer), WEIR_ESTALE);
    weir_notification notification;
    assert_int_equal(weir_notification_take(b.engine, &notification), WEIR_EAGAIN);
    weir_segment one = segment_of(&a, 0, 0, 64);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_unbroken(&a, &b);
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S21_memory_registered_anew_costs_one_ESTALE),
        cmocka_unit_test(test_S21_transfers_that_wait_end_so),
        cmocka_unit_test(test_S21_the_rest_of_a_transfer_ends_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
