/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c: how pieces become chains of WRs (S2, S15).
 *
 * Whatever the limits of a chain, the WRs of all chains together are the pieces:
 * every byte once, in order, none longer than the device takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan.h"

enum { BLOCKS = 256, WRS_MAX = 512 };

static struct plan_block blocks[BLOCKS];
static struct weir_wr wrs[WRS_MAX];

/* Pieces of these lengths in a chain of blocks that is not in order of index. */
static void fill(const uint64_t *lengths, uint32_t count) {
    uint32_t used = 0;
    uint32_t block = 0;

    memset(blocks, 0xa5, sizeof(blocks));
    blocks[0].count = 0;
    blocks[0].next = PLAN_NO_BLOCK;
    for (uint32_t i = 0; i < count; i++) {
        if (blocks[block].count == PLAN_BLOCK_PIECES) {
            uint32_t next = (block + 37) % BLOCKS;
            assert_true(++used < BLOCKS);
            blocks[block].next = next;
            block = next;
            blocks[block].count = 0;
            blocks[block].next = PLAN_NO_BLOCK;
        }
        blocks[block].pieces[blocks[block].count++] =
            (struct plan_piece){.laddr = (uint64_t)(i + 1) << 40,
                                .raddr = (uint64_t)(i + 1) << 41,
                                .length = lengths[i],
                                .lkey = i,
                                .rkey = i + 1000};
    }
}

static const struct plan_limits wide = {.wrs_max = WRS_MAX,
                                        .message_bytes_max = UINT64_MAX,
                                        .post_bytes_max = UINT64_MAX,
                                        .wr_id = 99,
                                        .opcode = WEIR_OP_WRITE};

/* Fills to the end under `limits`, checking each WR; returns how many there were. */
static uint32_t walk(const uint64_t *lengths, uint32_t pieces, const struct plan_limits *limits) {
    struct plan_cursor cursor = plan_start(blocks, 0);
    uint32_t total = 0;
    uint32_t piece = 0;
    uint64_t offset = 0;
    uint64_t sum = 0;
    uint64_t bytes = 0;

    while (!plan_done(&cursor)) {
        uint64_t before = bytes;
        uint64_t chain = 0;
        uint32_t count = plan_fill(blocks, &cursor, limits, wrs, &bytes);
        assert_true(count >= 1 && count <= limits->wrs_max);
        for (uint32_t w = 0; w < count; w++) {
            while (piece < pieces && offset == lengths[piece]) {
                piece++;
                offset = 0;
            }
            assert_true(piece < pieces);
            assert_true(wrs[w].length > 0 && wrs[w].length <= limits->message_bytes_max);
            assert_true(wrs[w].laddr == ((uint64_t)(piece + 1) << 40) + offset);
            assert_true(wrs[w].raddr == ((uint64_t)(piece + 1) << 41) + offset);
            assert_int_equal(wrs[w].lkey, piece);
            assert_int_equal(wrs[w].rkey, piece + 1000);
            assert_int_equal(wrs[w].wr_id, limits->wr_id);
            assert_int_equal(wrs[w].opcode, limits->opcode);
            bool small =
                limits->opcode == WEIR_OP_WRITE && wrs[w].length <= limits->inline_bytes_max;
            assert_int_equal(wrs[w].flags, small ? WEIR_WR_INLINE : 0);
            chain += wrs[w].length;
            offset += wrs[w].length;
        }
        assert_true(count == 1 || chain <= limits->post_bytes_max);
        assert_true(bytes == before + chain);
        sum += chain;
        total += count;
    }
    uint64_t expected = 0;
    for (uint32_t i = 0; i < pieces; i++)
        expected += lengths[i];
    assert_true(sum == expected);
    return total;
}

static void test_S2_nothing(void **state) {
    struct plan_cursor cursor = plan_start(blocks, PLAN_NO_BLOCK);
    uint64_t bytes = 5;

    (void)state;
    assert_true(plan_done(&cursor));
    assert_int_equal(plan_fill(blocks, &cursor, &wide, wrs, &bytes), 0);
    assert_int_equal(bytes, 5);
}

static void test_S2_chain_lengths_that_do_not_divide(void **state) {
    uint64_t lengths[1000];

    (void)state;
    for (uint32_t i = 0; i < 1000; i++)
        lengths[i] = 1 + i % 50;
    static const uint32_t counts[] = {1, 24, 25, 26, 49, 50, 51, 1000};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        fill(lengths, counts[c]);
        for (uint32_t most = 1; most <= 70; most++) {
            struct plan_limits limits = wide;
            limits.wrs_max = most;
            assert_int_equal(walk(lengths, counts[c], &limits), counts[c]);
        }
    }
}

static void test_S15_empty_pieces_give_no_wr(void **state) {
    uint64_t lengths[200] = {0};
    struct plan_cursor cursor;

    (void)state;
    fill(lengths, 200); /* nothing but empty ones */
    cursor = plan_start(blocks, 0);
    assert_true(plan_done(&cursor));
    static const uint32_t places[] = {0, 1, 24, 25, 26, 99, 100, 174, 175, 199};
    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        memset(lengths, 0, sizeof(lengths));
        lengths[places[p]] = 3;
        fill(lengths, 200);
        assert_int_equal(walk(lengths, 200, &wide), 1);
    }
    for (uint32_t i = 0; i < 200; i++)
        lengths[i] = i % 3 == 0 ? 0 : i;
    fill(lengths, 200);
    struct plan_limits limits = wide;
    limits.wrs_max = 7;
    assert_int_equal(walk(lengths, 200, &limits), 133);
}

static void test_S15_long_pieces_are_split(void **state) {
    const uint64_t four_gib = UINT64_C(4) << 30;
    const uint64_t lengths[] = {four_gib + 5, 1, UINT64_C(1) << 20, (UINT64_C(1) << 20) + 1, 7};
    struct plan_limits limits = wide;

    (void)state;
    fill(lengths, 5);
    assert_int_equal(walk(lengths, 5, &limits), 5);
    limits.message_bytes_max = UINT64_C(1) << 30;
    assert_int_equal(walk(lengths, 5, &limits), 5 + 4);
    limits.message_bytes_max = UINT64_C(1) << 20;
    limits.wrs_max = 3;
    assert_int_equal(walk(lengths, 5, &limits), 4097 + 1 + 1 + 2 + 1);
}

static void test_S2_a_post_carries_at_least_one_and_at_most_its_bytes(void **state) {
    static const uint64_t bounds[] = {0, 1, 2, 10, 49, 50, 51, 1000};
    uint64_t lengths[100];

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        lengths[i] = (i * 7) % 51;
    fill(lengths, 100);
    for (size_t b = 0; b < sizeof(bounds) / sizeof(bounds[0]); b++) {
        for (uint64_t message = 1; message < 60; message += 13) {
            struct plan_limits limits = wide;
            limits.post_bytes_max = bounds[b];
            limits.message_bytes_max = message;
            walk(lengths, 100, &limits); /* checks the bound of each chain */
        }
    }
}

static void test_S2_inline_is_for_small_writes(void **state) {
    const uint64_t lengths[] = {1, 64, 65, 63};
    struct plan_limits limits = wide;

    (void)state;
    fill(lengths, 4);
    limits.inline_bytes_max = 64;
    walk(lengths, 4, &limits);
    limits.opcode = WEIR_OP_READ;
    walk(lengths, 4, &limits);
    limits.opcode = WEIR_OP_WRITE;
    limits.inline_bytes_max = 0;
    walk(lengths, 4, &limits);
}

/* How a partial post and a replay start over. */
static void test_S6_a_copied_cursor_forgets_a_fill(void **state) {
    uint64_t lengths[60];
    struct plan_limits limits = wide;
    struct weir_wr again[WRS_MAX];
    uint64_t bytes = 0;

    (void)state;
    for (uint32_t i = 0; i < 60; i++)
        lengths[i] = 1 + i * 3;
    fill(lengths, 60);
    limits.message_bytes_max = 50;
    limits.wrs_max = 9;
    struct plan_cursor cursor = plan_start(blocks, 0);
    while (!plan_done(&cursor)) {
        struct plan_cursor before = cursor;
        struct plan_cursor behind = cursor;
        uint32_t count = plan_fill(blocks, &behind, &limits, wrs, &bytes);
        for (uint32_t accepted = 0; accepted <= count; accepted++) {
            cursor = before;
            struct plan_limits part = limits;
            part.wrs_max = accepted;
            assert_int_equal(plan_fill(blocks, &cursor, &part, again, &bytes), accepted);
            assert_memory_equal(again, wrs, accepted * sizeof(again[0]));
            part.wrs_max = count - accepted;
            assert_int_equal(plan_fill(blocks, &cursor, &part, again, &bytes), count - accepted);
            assert_memory_equal(again, wrs + accepted, (count - accepted) * sizeof(again[0]));
            assert_memory_equal(&cursor, &behind, sizeof(cursor));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S2_nothing),
        cmocka_unit_test(test_S2_chain_lengths_that_do_not_divide),
        cmocka_unit_test(test_S15_empty_pieces_give_no_wr),
        cmocka_unit_test(test_S15_long_pieces_are_split),
        cmocka_unit_test(test_S2_a_post_carries_at_least_one_and_at_most_its_bytes),
        cmocka_unit_test(test_S2_inline_is_for_small_writes),
        cmocka_unit_test(test_S6_a_copied_cursor_forgets_a_fill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
