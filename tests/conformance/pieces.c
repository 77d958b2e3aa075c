/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: the short road of plain reads and writes: it does what post_send does, or
 * nothing. */
#include "fixture.h"

/* The short road does what post_send does, or nothing: never on a device that does not
 * complete in the post, never when post_send would give an error. */
static void pieces(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    static const uint64_t lengths[] = {8, 0, 100, 8, 65536};
    weir_segment segments[5] = {{.length = 0}};
    for (uint64_t i = 0; i < 5; i++) {
        segments[i].local_offset = 100000 * i;
        segments[i].remote_offset = 100000 * i + 7;
        segments[i].length = lengths[i];
    }
    for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_READ; opcode++) {
        struct weir_span wanted = {.laddr = (uint64_t)(uintptr_t)f.a.mr.base,
                                   .raddr = f.a.remote.raddr,
                                   .lkey = f.a.mr.lkey,
                                   .rkey = f.a.remote.rkey,
                                   .opcode = opcode};
        fill(bytes_of(&f.a), 500000, 1);
        fill(bytes_of(&f.b), 500000, 2);
        uint32_t count = f.ops->post_pieces(f.a.qp, &wanted, segments, 5);
        assert_in_range(count, 0, f.caps.completes_inline ? 5 : 0);
        for (uint32_t i = 0; i < count; i++)
            assert_memory_equal(bytes_of(&f.a) + segments[i].local_offset,
                                bytes_of(&f.b) + segments[i].remote_offset, lengths[i]);
        wanted.rkey ^= 1u << 31;
        assert_int_equal(f.ops->post_pieces(f.a.qp, &wanted, segments, 5), 0);
        wanted.rkey ^= 1u << 31;
        wanted.lkey ^= 1u << 31;
        assert_int_equal(f.ops->post_pieces(f.a.qp, &wanted, segments, 5), 0);
        wanted.lkey ^= 1u << 31;
        assert_int_equal(f.ops->qp_error(opcode == WEIR_OP_WRITE ? f.a.qp : f.b.qp), 0);
        assert_int_equal(f.ops->post_pieces(f.a.qp, &wanted, segments, 5), 0);
        assert_no_cqe(&f, &f.a);
        remake_pair(&f);
    }
    fixture_close(&f);
}

void test_pieces_allocated(void **state) {
    pieces(state, true);
}

void test_pieces_registered(void **state) {
    pieces(state, false);
}

/* Without the right nothing is executed. */
void test_pieces_need_rights(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static uint8_t extra[4096];
    for (uint32_t round = 0; round < 6; round++) {
        uint32_t access = round % 3; /* none, read, write */
        struct weir_mr mr = make_mr(&f, &f.b, extra, sizeof extra, access, round >= 3);
        struct weir_rmr remote = import_mr(&f, &f.b, &f.a, &mr, access);
        weir_segment segment = {.length = 64};
        for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_READ; opcode++) {
            struct weir_span span = {.laddr = (uint64_t)(uintptr_t)f.a.mr.base,
                                     .raddr = remote.raddr,
                                     .lkey = f.a.mr.lkey,
                                     .rkey = remote.rkey,
                                     .opcode = opcode};
            uint32_t right =
                opcode == WEIR_OP_READ ? WEIR_ACCESS_REMOTE_READ : WEIR_ACCESS_REMOTE_WRITE;
            uint32_t count = f.ops->post_pieces(f.a.qp, &span, &segment, 1);
            assert_in_range(count, 0, f.caps.completes_inline && (access & right) != 0 ? 1 : 0);
        }
        assert_no_cqe(&f, &f.a);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
        forget_mr(&f, &f.a, &remote);
        release_mr(&f, f.b.device, &mr);
    }
    fixture_close(&f);
}
