/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: writes and reads: every byte in its place, and nothing else touched; what a post
 * says is done is; order. */
#include "fixture.h"

#include <string.h>

static const uint64_t sizes[] = {
    0,    1,    2,     3,     7,     8,     9,     15,      16,      17,
    31,   33,   63,    64,    65,    255,   256,   257,     4095,    4096,
    4097, 8192, 16383, 16384, 16385, 65536, 65537, 1048575, 1048576, 1048577,
};

/* Every size, at several alignments; bytes around the target stay as they were. */
static void move_sizes(void **state, uint8_t opcode, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    uint8_t *from = opcode == WEIR_OP_WRITE ? bytes_of(&f.a) : bytes_of(&f.b);
    uint8_t *to = opcode == WEIR_OP_WRITE ? bytes_of(&f.b) : bytes_of(&f.a);
    static const uint64_t shifts[][2] = {{0, 0}, {1, 0}, {0, 1}, {13, 29}, {64, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof shifts / sizeof shifts[0]; j++) {
            uint64_t length = sizes[i], at_from = 4096 + shifts[j][0], at_to = 8192 + shifts[j][1];
            bool is_write = opcode == WEIR_OP_WRITE;
            fill(from + at_from, length, (uint32_t)(i * 8 + j));
            memset(to + at_to - 64, 0xa5, 64);
            memset(to + at_to + length, 0xa5, 64);
            struct weir_wr wr = make_wr(&f.a, opcode, is_write ? at_from : at_to,
                                        is_write ? at_to : at_from, length);
            assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
            assert_memory_equal(to + at_to, from + at_from, length);
            for (int k = 0; k < 64; k++) {
                assert_int_equal(to[at_to - 64 + (uint64_t)k], 0xa5);
                assert_int_equal(to[at_to + length + (uint64_t)k], 0xa5);
            }
        }
    }
    assert_no_cqe(&f, &f.a);
    assert_no_cqe(&f, &f.b);
    fixture_close(&f);
}

void test_write_sizes_allocated(void **state) {
    move_sizes(state, WEIR_OP_WRITE, true);
}

void test_write_sizes_registered(void **state) {
    move_sizes(state, WEIR_OP_WRITE, false);
}

void test_read_sizes_allocated(void **state) {
    move_sizes(state, WEIR_OP_READ, true);
}

void test_read_sizes_registered(void **state) {
    move_sizes(state, WEIR_OP_READ, false);
}

/* Writes that gather: pieces of all kinds of lengths, as many as the device says, are one behind
 * the other at the target, and nothing beside them is touched. */
void test_S2_writes_that_gather(void **state) {
    struct fixture f;
    fixture_open(&f, state, false);
    for (uint32_t count = 1; count <= f.caps.pieces_max; count++) {
        struct weir_sge pieces[64];
        uint8_t expected[64 * 5000];
        uint64_t length = 0;
        assert_in_range(f.caps.pieces_max, 2, 64);
        fill(bytes_of(&f.a) + 65536, 1 << 20, count);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t at = 65536 + (uint64_t)(count - i) * 7001;
            uint32_t some = i % 3 == 0 ? 64 : i % 3 == 1 ? 4097 - count : 1 + i;
            pieces[i] = (struct weir_sge){.laddr = (uint64_t)(uintptr_t)bytes_of(&f.a) + at,
                                          .length = some,
                                          .lkey = f.a.mr.lkey};
            memcpy(expected + length, bytes_of(&f.a) + at, some);
            length += some;
        }
        uint8_t *to = bytes_of(&f.b) + 131072;
        memset(to - 64, 0xa5, length + 128);
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 131072, length);
        wr.laddr = (uint64_t)(uintptr_t)pieces;
        wr.lkey = 0;
        wr.pieces = (uint16_t)count;
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
        assert_memory_equal(to, expected, length);
        for (int k = 0; k < 64; k++) {
            assert_int_equal(to[k - 64], 0xa5);
            assert_int_equal(to[length + (uint64_t)k], 0xa5);
        }
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* One piece that is not registered: nothing is written. */
void test_S2_a_gather_from_elsewhere(void **state) {
    struct fixture f;
    fixture_open(&f, state, false);
    if (f.caps.pieces_max > 1) {
        struct weir_sge pieces[2];
        for (int i = 0; i < 2; i++)
            pieces[i] = (struct weir_sge){.laddr = (uint64_t)(uintptr_t)bytes_of(&f.a) + 4096,
                                          .length = 100,
                                          .lkey = f.a.mr.lkey};
        pieces[1].laddr = (uint64_t)(uintptr_t)pieces;
        uint8_t *to = bytes_of(&f.b) + 131072;
        memset(to, 0xa5, 200);
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 131072, 200);
        wr.laddr = (uint64_t)(uintptr_t)pieces;
        wr.pieces = 2;
        assert_int_not_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
        for (int k = 100; k < 200; k++)
            assert_int_equal(to[k], 0xa5);
    }
    fixture_close(&f);
}

/* S2: chains of every length up to the depth; each WR lands in its place. */
static void chain_lengths(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    for (uint32_t count = 1; count <= SEND_DEPTH; count++) {
        struct weir_wr wrs[SEND_DEPTH];
        uint32_t statuses[SEND_DEPTH];
        fill(bytes_of(&f.a), SEND_DEPTH * 100, count);
        memset(bytes_of(&f.b), 0, SEND_DEPTH * 200);
        for (uint32_t i = 0; i < count; i++) /* lengths 8 and others in one chain */
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 100, i * 200, i % 3 == 0 ? 40 + i : 8);
        run_wrs(&f, &f.a, wrs, count, statuses);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(statuses[i], WEIR_CQE_OK);
            assert_memory_equal(bytes_of(&f.b) + i * 200, bytes_of(&f.a) + i * 100, wrs[i].length);
            assert_int_equal(bytes_of(&f.b)[i * 200 + wrs[i].length], 0);
        }
    }
    fixture_close(&f);
}

void test_S2_chain_lengths_allocated(void **state) {
    chain_lengths(state, true);
}

void test_S2_chain_lengths_registered(void **state) {
    chain_lengths(state, false);
}

/* Success of an unsignalled WR gives no CQE; the signalled one behind it does, or
 * both are done in the post. */
void test_unsignalled_gives_no_cqe(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_wr wrs[2] = {make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 64),
                             make_wr(&f.a, WEIR_OP_WRITE, 64, 64, 64)};
    wrs[0].wr_id = 10;
    wrs[0].flags = 0;
    wrs[1].wr_id = 11;
    struct weir_post post;
    assert_int_equal(f.ops->post_send(f.a.qp, wrs, 2, &post), 0);
    assert_int_equal(post.accepted, 2);
    if (post.done < 2) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.wr_id, 11);
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* A zero-length write touches nothing and needs no keys. */
void test_S7_empty_write_needs_no_keys(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_wr wr = {.opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
    assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    wr.lkey = wr.rkey = UINT32_MAX;
    wr.laddr = wr.raddr = UINT64_MAX;
    assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    fixture_close(&f);
}

/* Every kind of WR in one chain; order of what lands where matters to none of them. */
void test_S2_mixed_chains(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 20; round++) {
        struct weir_wr wrs[7];
        uint32_t statuses[7], count = 0;
        fill(bytes_of(&f.a) + 65536, 65536, round);
        fill(bytes_of(&f.b) + 65536, 65536, ~round);
        memset(bytes_of(&f.b) + 262144, 0, 65536);
        assert_int_equal(post_recv(&f, &f.b, 70, 0), 0);
        wrs[count++] = make_wr(&f.a, WEIR_OP_WRITE, 65536, 262144, 20000);
        wrs[count++] = make_wr(&f.a, WEIR_OP_READ, 262144, 65536, 20001);
        wrs[count++] = (struct weir_wr){.opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
        wrs[count++] = make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 100);
        wrs[count++] = make_wr(&f.a, WEIR_OP_READ, 327680, 65536 + 32000, 8);
        wrs[count++] = make_wr(&f.a, WEIR_OP_WRITE, 65536 + 32000, 262144 + 32000, 8);
        wrs[count] = make_wr(&f.a, WEIR_OP_WRITE, 65536, 262144 + 40000, 8);
        wrs[count++].flags |= f.caps.inline_bytes_max >= 8 ? WEIR_WR_INLINE : 0;
        run_wrs(&f, &f.a, wrs, count, statuses);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(statuses[i], WEIR_CQE_OK);
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.wr_id, 70);
        const uint8_t *a = bytes_of(&f.a), *b = bytes_of(&f.b);
        assert_memory_equal(b, a + 65536, 100);
        assert_memory_equal(b + 262144, a + 65536, 20000);
        assert_memory_equal(a + 262144, b + 65536, 20001);
        assert_memory_equal(a + 327680, b + 65536 + 32000, 8);
        assert_memory_equal(b + 262144 + 32000, a + 65536 + 32000, 8);
        assert_memory_equal(b + 262144 + 40000, a + 65536, 8);
    }
    fixture_close(&f);
}

/* A queue full of reads: more than a device has under way at a time. */
void test_S2_a_queue_of_reads(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint64_t length = 1; length <= 65536; length *= 16) {
        struct weir_wr wrs[SEND_DEPTH];
        uint32_t statuses[SEND_DEPTH];
        fill(bytes_of(&f.b), REGION_BYTES / 2, (uint32_t)length);
        memset(bytes_of(&f.a), 0, REGION_BYTES / 2);
        for (uint64_t i = 0; i < SEND_DEPTH; i++)
            wrs[i] = make_wr(&f.a, WEIR_OP_READ, i * length, (SEND_DEPTH - i) * 65537, length);
        run_wrs(&f, &f.a, wrs, SEND_DEPTH, statuses);
        for (uint64_t i = 0; i < SEND_DEPTH; i++) {
            assert_int_equal(statuses[i], WEIR_CQE_OK);
            assert_memory_equal(bytes_of(&f.a) + i * length,
                                bytes_of(&f.b) + (SEND_DEPTH - i) * 65537, length);
        }
    }
    fixture_close(&f);
}

/* Writes to one place: the last one stays; a read behind a write sees it. */
void test_ordered_effects(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static const uint64_t lengths[] = {8, 100, 4096, 100000};
    for (uint32_t round = 0; f.caps.ordered && round < 40; round++) {
        uint64_t length = lengths[round % 4];
        struct weir_wr wrs[8];
        uint32_t statuses[8];
        fill(bytes_of(&f.a), 1000000, round);
        memset(bytes_of(&f.a) + 2000000, 0, length);
        for (uint64_t i = 0; i < 6; i++)
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 100000, 65536, length);
        wrs[6] = make_wr(&f.a, WEIR_OP_READ, 2000000, 65536, length);
        wrs[7] = make_wr(&f.a, WEIR_OP_READ, 2200000, 65536, length);
        run_wrs(&f, &f.a, wrs, 8, statuses);
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(statuses[i], WEIR_CQE_OK);
        assert_memory_equal(bytes_of(&f.b) + 65536, bytes_of(&f.a) + 500000, length);
        assert_memory_equal(bytes_of(&f.a) + 2000000, bytes_of(&f.a) + 500000, length);
        assert_memory_equal(bytes_of(&f.a) + 2200000, bytes_of(&f.a) + 500000, length);
    }
    fixture_close(&f);
}

/* A WR that a post says is done has landed when it returns, signalled or not, and is heard of no
 * more; without completes_inline no WR ever is. */
static void done(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    for (uint32_t round = 0; round < 8; round++) {
        struct weir_wr wrs[4];
        struct weir_post post = {77, 77};
        fill(bytes_of(&f.a), 400000, round);
        memset(bytes_of(&f.b), 0, 400000);
        for (uint32_t i = 0; i < 4; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 100000, i * 100000, round % 2 ? 8 : 70000);
            wrs[i].flags = (round + i) % 4 < 2 || i == 3 ? WEIR_WR_SIGNALED : 0;
            wrs[i].wr_id = i;
        }
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, 4, &post), 0);
        assert_int_equal(post.accepted, 4);
        assert_in_range(post.done, 0, f.caps.completes_inline ? 4 : 0);
        for (uint32_t i = 0; i < post.done; i++)
            assert_memory_equal(bytes_of(&f.b) + i * 100000, bytes_of(&f.a) + i * 100000,
                                wrs[i].length);
        for (uint32_t i = post.done; i < 4; i++) {
            struct weir_cqe cqe;
            if ((wrs[i].flags & WEIR_WR_SIGNALED) == 0)
                continue;
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_OK);
            assert_in_range(cqe.wr_id, post.done, 3);
        }
        assert_no_cqe(&f, &f.a);
    }
    fixture_close(&f);
}

void test_done_has_landed_allocated(void **state) {
    done(state, true);
}

void test_done_has_landed_registered(void **state) {
    done(state, false);
}
