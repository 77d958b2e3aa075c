/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: sends and receives, payload in line. */
#include "fixture.h"

#include <string.h>

void test_M2_messages_of_all_sizes(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t length = 0; length <= RECV_BYTES; length++) {
        assert_int_equal(post_recv(&f, &f.b, length, length % RECV_DEPTH), 0);
        fill(bytes_of(&f.a) + 65536, length, length);
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_SEND, 65536, 0, length);
        wr.rkey = 0;
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_OK);
        assert_true(cqe.recv);
        assert_int_equal(cqe.wr_id, length);
        assert_int_equal(cqe.byte_length, length);
        assert_memory_equal(bytes_of(&f.b) + (length % RECV_DEPTH) * RECV_BYTES,
                            bytes_of(&f.a) + 65536, length);
    }
    assert_no_cqe(&f, &f.b);
    fixture_close(&f);
}

/* Payload in line needs no key, and the buffer is free when the post returns. */
void test_inline_payload(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    uint32_t length = f.caps.inline_bytes_max < 64 ? f.caps.inline_bytes_max : 64;
    assert_int_equal(post_recv(&f, &f.b, 5, 0), 0);
    uint8_t payload[64];
    for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_SEND && length > 0; opcode += 2) {
        memset(payload, 0x5a, sizeof payload);
        struct weir_wr wr = make_wr(&f.a, opcode, 0, 4096, length);
        wr.laddr = (uint64_t)(uintptr_t)payload;
        wr.lkey = 0;
        wr.flags = WEIR_WR_SIGNALED | WEIR_WR_INLINE;
        wr.wr_id = 3;
        struct weir_post post;
        assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
        memset(payload, 0, sizeof payload);
        struct weir_cqe cqe;
        if (post.done == 0)
            assert_true(wait_cqe(&f, &f.a, &cqe) && cqe.status == WEIR_CQE_OK);
        if (opcode == WEIR_OP_SEND)
            assert_true(wait_cqe(&f, &f.b, &cqe) && cqe.recv && cqe.byte_length == length);
        uint8_t *at = bytes_of(&f.b) + (opcode == WEIR_OP_SEND ? 0 : 4096);
        for (uint32_t i = 0; i < length; i++)
            assert_int_equal(at[i], 0x5a);
    }
    fixture_close(&f);
}

/* The data of a write is there when a message behind it in the chain is. */
void test_ordered_write_before_message(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t i = 0; f.caps.ordered && i < 100; i++) {
        assert_int_equal(post_recv(&f, &f.b, i, 0), 0);
        memset(bytes_of(&f.a) + 65536, (int)i + 1, 100000);
        struct weir_wr wrs[2] = {make_wr(&f.a, WEIR_OP_WRITE, 65536, 65536, 100000),
                                 make_wr(&f.a, WEIR_OP_SEND, 0, 0, 16)};
        struct weir_post post;
        wrs[0].flags = 0;
        wrs[1].flags = WEIR_WR_SIGNALED;
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, 2, &post), 0);
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.wr_id, i);
        assert_int_equal(cqe.status, WEIR_CQE_OK);
        assert_int_equal(bytes_of(&f.b)[65536], i + 1);
        assert_int_equal(bytes_of(&f.b)[65536 + 99999], i + 1);
        /* The slots of both are free again when the completion of the second is taken
         * (ibv_post_send(3)). */
        if (post.done < 2) {
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_OK);
        }
    }
    fixture_close(&f);
}

/* As many messages as receives, in order, round and round; one more is RNR. */
void test_M2_receives_are_credits(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    uint32_t number = 0;
    for (uint32_t burst = 1; burst <= RECV_DEPTH; burst++) {
        for (uint32_t round = 0; round < 5; round++) {
            for (uint32_t i = 0; i < burst; i++)
                assert_int_equal(post_recv(&f, &f.b, i, i), 0);
            for (uint32_t i = 0; i < burst; i++) {
                uint32_t value = number + i;
                memcpy(bytes_of(&f.a) + 65536, &value, sizeof value);
                struct weir_wr wr = make_wr(&f.a, WEIR_OP_SEND, 65536, 0, sizeof value);
                assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
            }
            for (uint32_t i = 0; i < burst; i++, number++) {
                struct weir_cqe cqe;
                uint32_t value;
                assert_true(wait_cqe(&f, &f.b, &cqe));
                assert_int_equal(cqe.wr_id, i);
                memcpy(&value, bytes_of(&f.b) + i * RECV_BYTES, sizeof value);
                assert_int_equal(value, number);
            }
        }
    }
    if (!f.caps.srq && !f.world->sends_wait)
        assert_ended(&f, run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8)), WEIR_CQE_RNR);
    fixture_close(&f);
}

void test_message_too_long(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(post_recv(&f, &f.b, 1, 0), 0);
    uint32_t status = run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, RECV_BYTES + 1));
    struct weir_cqe cqe;
    if (f.world->sends_wait && status == WEIR_CQE_OK) /* it is told by the QP that fails there */
        assert_true(wait_cqe(&f, &f.b, &cqe) && cqe.status == WEIR_CQE_FLUSHED);
    else
        assert_true(status == WEIR_CQE_LENGTH || status == WEIR_CQE_REMOTE_ACCESS ||
                    status == WEIR_CQE_DEVICE || /* a NAK of "remote operational error" */
                    (f.world->devices_talk && status == WEIR_CQE_RETRY) || /* its QP failed there */
                    (!f.caps.blames && status == WEIR_CQE_FLUSHED));
    fixture_close(&f);
}

/* In line up to the limit, in whole chains, from one buffer that is used again at once. */
void test_inline_limits(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    const uint32_t limit = f.caps.inline_bytes_max < 2048 ? f.caps.inline_bytes_max : 2048;
    const uint32_t lengths[] = {0, 1, limit / 2, limit == 0 ? 0 : limit - 1, limit};
    static uint8_t payload[2048];
    for (uint32_t k = 0; k < 5; k++) {
        struct weir_wr wrs[SEND_DEPTH];
        struct weir_post post;
        uint32_t length = lengths[k] > limit ? 0 : lengths[k];
        memset(payload, 0x5a, sizeof payload);
        memset(bytes_of(&f.b), 0, SEND_DEPTH * 2048);
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, 0, i * 2048, length);
            wrs[i].laddr = (uint64_t)(uintptr_t)payload;
            wrs[i].lkey = 0;
            wrs[i].flags = WEIR_WR_SIGNALED | WEIR_WR_INLINE;
        }
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, SEND_DEPTH, &post), 0);
        memset(payload, 0x77, sizeof payload);
        for (uint32_t i = post.done; i < SEND_DEPTH; i++) {
            struct weir_cqe cqe;
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_OK);
        }
        for (uint32_t i = 0; i < SEND_DEPTH; i++)
            for (uint32_t at = 0; at < 2048; at++)
                assert_int_equal(bytes_of(&f.b)[i * 2048 + at], at < length ? 0x5a : 0);
    }
    fixture_close(&f);
}

/* H8: receives that were posted before the QP was connected take what comes then. */
void test_H8_receives_before_connect(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 5; round++) {
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        make_qp(&f, &f.a);
        make_qp(&f, &f.b);
        for (uint32_t i = 0; i < RECV_DEPTH; i++)
            assert_int_equal(post_recv(&f, &f.b, i, i), 0);
        assert_no_cqe(&f, &f.b);
        assert_int_equal(connect_qp(&f, &f.b, &f.a.granted), 0);
        assert_int_equal(connect_qp(&f, &f.a, &f.b.granted), 0);
        for (uint32_t i = 0; i < RECV_DEPTH; i++) {
            struct weir_cqe cqe;
            fill(bytes_of(&f.a) + 65536, 300, round + i);
            assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 300)),
                             WEIR_CQE_OK);
            assert_true(wait_cqe(&f, &f.b, &cqe));
            assert_int_equal(cqe.wr_id, i);
            assert_memory_equal(bytes_of(&f.b) + i * RECV_BYTES, bytes_of(&f.a) + 65536, 300);
        }
    }
    fixture_close(&f);
}

/* T5: buffers are taken in the order in which they were posted, across the QPs of a shared
 * queue, and a receive from there says which QP it came in on. */
void test_T5_buffers_in_order(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct side pairs[2][2] = {{f.a, f.b}};
    make_sibling(&f, &pairs[1][0], &pairs[1][1]);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < RECV_DEPTH; i++) /* i: of the shared queue, or of QP i % 2 */
            assert_int_equal(post_recv(&f, &pairs[i % 2][1], i, i), 0);
        for (uint32_t i = 0; i < RECV_DEPTH; i++) {
            const struct side *from = &pairs[(i + round) % 2][0];
            memset(bytes_of(&f.a) + 65536, (int)i, 8);
            assert_int_equal(run_wr(&f, from, make_wr(from, WEIR_OP_SEND, 65536, 0, 8)),
                             WEIR_CQE_OK);
        }
        for (uint32_t i = 0; i < RECV_DEPTH; i++) {
            struct weir_cqe cqe;
            assert_true(wait_cqe(&f, &f.b, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_OK);
            assert_true(cqe.recv);
            assert_false(cqe.has_imm);
            assert_in_range(cqe.wr_id, 0, RECV_DEPTH - 1);
            uint32_t number = bytes_of(&f.b)[cqe.wr_id * RECV_BYTES];
            assert_int_equal(cqe.qp_tag, (number + round) % 2 == 0 ? 2 : 4);
            assert_int_equal(number, f.caps.srq ? cqe.wr_id : cqe.wr_id ^ (round % 2));
        }
    }
    destroy_qp(&f, &pairs[1][0]);
    destroy_qp(&f, &pairs[1][1]);
    fixture_close(&f);
}
