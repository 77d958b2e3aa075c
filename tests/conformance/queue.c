/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: the send queue: how much it takes, what it refuses where in a chain, and when
 * its slots are free again. */
#include "fixture.h"

#include <string.h>

/* S1: no more is accepted than can be told of: unpolled WRs fill the send queue. */
void test_S1_full_queue_is_eagain(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
    struct weir_post post;
    uint32_t accepted = 0;
    int rc = 0;
    while (rc == 0 && accepted <= f.a.granted.sq_depth) {
        rc = f.ops->post_send(f.a.qp, &wr, 1, &post);
        accepted += post.accepted;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
    assert_int_equal(post.accepted, 0);
    assert_int_equal(accepted, f.a.granted.sq_depth);
    for (uint32_t i = 0; i < accepted; i++) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
    }
    assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
    fixture_close(&f);
}

/* S6: a chain that does not fit is accepted as far as there is room, whatever is outstanding. */
void test_S6_full_queue_splits_a_chain(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    const uint32_t depth = f.a.granted.sq_depth;
    const uint32_t outstanding[] = {0, 1, 2, depth / 2, depth - 1, depth};
    static struct weir_wr wrs[DEPTH_MAX + 2];
    for (uint32_t i = 0; i < depth + 2; i++)
        wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0); /* where no device completes in the post */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t used = outstanding[i];
        struct weir_post post = {77, 77};
        for (uint32_t k = 0; k < depth + 2; k++)
            wrs[k].wr_id = k;
        if (used != 0)
            assert_int_equal(f.ops->post_send(f.a.qp, wrs, used, &post), 0);
        post = (struct weir_post){77, 77};
        assert_int_equal(f.ops->post_send(f.a.qp, wrs + used, depth + 2 - used, &post),
                         WEIR_EAGAIN);
        assert_int_equal(post.accepted, depth - used);
        assert_int_equal(post.done, 0);
        for (uint32_t k = 0; k < depth; k++) {
            struct weir_cqe cqe;
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
            if (f.caps.ordered)
                assert_int_equal(cqe.wr_id, k);
        }
        assert_no_cqe(&f, &f.a);
    }
    fixture_close(&f);
}

/* S1: on a healthy QP, too, no more than the granted depth is taken, and a completion that was
 * polled frees a slot. */
void test_S1_completion_frees_a_slot(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    const uint32_t depth = f.a.granted.sq_depth;
    static struct weir_wr wrs[DEPTH_MAX + 1];
    struct weir_post post = {77, 77};
    struct weir_cqe cqe;
    for (uint32_t i = 0; i <= depth; i++)
        wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 8, i * 8, 8);
    int rc = f.ops->post_send(f.a.qp, wrs, depth + 1, &post);
    if (f.caps.completes_inline) { /* what is done holds no slot */
        assert_true(rc == 0 ? post.accepted == depth + 1
                            : rc == WEIR_EAGAIN && post.accepted >= depth);
        fixture_close(&f);
        return;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
    assert_int_equal(post.accepted, depth);
    for (uint32_t i = 0; i < 2 * depth; i++) {
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_OK);
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, 1, &post), 0);
        if (f.caps.ordered) { /* else another one may have completed, but is not polled */
            assert_int_equal(f.ops->post_send(f.a.qp, wrs, 1, &post), WEIR_EAGAIN);
            assert_int_equal(post.accepted, 0);
        }
    }
    for (uint32_t i = 0; i < depth; i++)
        assert_true(wait_cqe(&f, &f.a, &cqe) && cqe.status == WEIR_CQE_OK);
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* S3, S7: WRs that are not signalled hold their slots until a completion behind them, an
 * empty write's at the latest; then all of them are free, and all that they wrote is there. */
void test_S7_empty_write_closes_a_run(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    const uint32_t depth = f.a.granted.sq_depth;
    static struct weir_wr wrs[DEPTH_MAX];
    for (uint32_t round = 0; f.caps.ordered && round < 20; round++) {
        struct weir_wr end = {.wr_id = 5, .opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
        struct weir_post post = {77, 77};
        uint32_t run = round == 0 ? depth - 1 : round * 7 % depth;
        fill(bytes_of(&f.a), (uint64_t)depth * 100, round);
        memset(bytes_of(&f.b), 0, (uint64_t)depth * 100);
        for (uint32_t i = 0; i < run; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 100, i * 100, i % 2 == 0 ? 100 : 8);
            wrs[i].flags = 0;
        }
        if (run != 0)
            assert_int_equal(f.ops->post_send(f.a.qp, wrs, run, &post), 0);
        settle(&f);
        assert_int_equal(f.ops->post_send(f.a.qp, &end, 1, &post), 0);
        if (post.done == 0) {
            struct weir_cqe cqe;
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_OK);
            assert_int_equal(cqe.wr_id, 5);
        }
        for (uint32_t i = 0; i < run; i++)
            assert_memory_equal(bytes_of(&f.b) + i * 100, bytes_of(&f.a) + i * 100, wrs[i].length);
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* More bytes than one post should carry: all of it goes, in as many posts as that takes. */
void test_S2_chain_over_post_bytes(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    const uint64_t length = 500000;
    struct weir_wr wrs[SEND_DEPTH];
    struct weir_post post = {0};
    uint32_t accepted = 0, owed = 0;
    fill(bytes_of(&f.a), REGION_BYTES, 9);
    for (uint32_t i = 0; i < SEND_DEPTH; i++) {
        wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i % 6 * length, i % 6 * length, length);
        wrs[i].wr_id = i;
    }
    for (uint32_t posts = 0; accepted < SEND_DEPTH; posts++) {
        int rc = f.ops->post_send(f.a.qp, wrs + accepted, SEND_DEPTH - accepted, &post);
        assert_true(rc == 0 || rc == WEIR_EAGAIN);
        assert_true(post.accepted > 0 && posts < SEND_DEPTH);
        accepted += post.accepted;
        owed += post.accepted - post.done;
    }
    for (; owed > 0; owed--) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_OK);
    }
    assert_no_cqe(&f, &f.a);
    assert_memory_equal(bytes_of(&f.b), bytes_of(&f.a), 6 * length);
    fixture_close(&f);
}

/* A WR that the capabilities rule out, as number `kind`; false: there is none such. */
static bool make_impossible(const struct fixture *f, uint32_t kind, struct weir_wr *wr) {
    switch (kind) {
    case 0:
        wr->length = f->caps.message_bytes_max + 1;
        return wr->length != 0;
    case 1:
        wr->length = (uint64_t)f->caps.inline_bytes_max + 1;
        wr->flags |= WEIR_WR_INLINE;
        return true;
    default:
        wr->opcode = WEIR_OPCODES;
        return true;
    }
}

/* S6: a WR that can never be accepted is refused wherever it is in a chain: those before it
 * are accepted and complete, it and those behind it were not touched, and the QP is well. */
void test_S6_refused_wr_every_index(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t at = 0; at < 3 * SEND_DEPTH; at++) {
        uint32_t k = at / 3, owed = k;
        struct weir_wr wrs[SEND_DEPTH];
        struct weir_post post = {77, 77};
        memset(bytes_of(&f.a), 0x33, SEND_DEPTH * 8);
        memset(bytes_of(&f.b), 0, SEND_DEPTH * 8);
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 8, i * 8, 8);
            wrs[i].wr_id = i;
        }
        if (!make_impossible(&f, at % 3, &wrs[k]))
            continue;
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, SEND_DEPTH, &post), WEIR_EINVAL);
        assert_int_equal(post.accepted, k);
        assert_in_range(post.done, 0, f.caps.completes_inline ? k : 0);
        for (owed -= post.done; owed > 0; owed--) {
            struct weir_cqe cqe;
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_OK);
            assert_in_range(cqe.wr_id, 0, k - 1);
        }
        assert_no_cqe(&f, &f.a);
        for (uint32_t i = 0; i < SEND_DEPTH; i++)
            assert_int_equal(bytes_of(&f.b)[i * 8], i < k ? 0x33 : 0);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
    }
    fixture_close(&f);
}

/* S14: a completion brings back the whole wr_id of its WR, or of its receive. */
void test_S14_wr_ids_come_back(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static const uint64_t ids[] = {
        0, 1, UINT32_MAX, (uint64_t)1 << 32, (uint64_t)1 << 62, WEIR_WR_ID_MAX};
    struct weir_wr wr = make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 8);
    struct weir_post post;
    struct weir_cqe cqe;
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(post_recv(&f, &f.b, ids[i], i), 0);
        wr.wr_id = ids[5 - i];
        assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
        if (post.done == 0)
            assert_true(wait_cqe(&f, &f.a, &cqe) && cqe.wr_id == ids[5 - i] && !cqe.recv);
        assert_true(wait_cqe(&f, &f.b, &cqe) && cqe.wr_id == ids[i] && cqe.recv);
    }
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    for (uint32_t i = 0; i < 6; i++) {
        wr.wr_id = ids[i];
        assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
        assert_true(wait_cqe(&f, &f.a, &cqe) && cqe.wr_id == ids[i]);
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
    }
    fixture_close(&f);
}
