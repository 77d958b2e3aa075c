/* SPDX-License-Identifier: Apache-2.0 */
/* teardown.c: QPs that go, connected or not, with work outstanding or without. */
#include "fixture.h"

#include <string.h>

/* T8: after a destroy nothing of the QP comes any more, whatever was outstanding. */
void test_T8_destroy_is_final(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(post_recv(&f, &f.a, 1, 0), 0);
        assert_int_equal(f.ops->qp_error(f.a.qp), 0);
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
        struct weir_post post;
        assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        assert_no_cqe(&f, &f.a);
        make_pair(&f);
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    }
    fixture_close(&f);
}

/* Reads and writes of side a, long enough to be under way for a while. How many will give a
 * CQE. */
static uint32_t post_traffic(struct fixture *f) {
    struct weir_wr wrs[8];
    struct weir_post post;
    for (uint32_t i = 0; i < 8; i++)
        wrs[i] = make_wr(&f->a, (uint8_t)(i % 2), 65536 * (uint64_t)(i + 1),
                         65536 * (uint64_t)(i + 1), 65536);
    assert_int_equal(f->ops->post_send(f->a.qp, wrs, 8, &post), 0);
    assert_int_equal(post.accepted, 8);
    return 8 - post.done;
}

enum { TRAFFIC_BYTES = 9 * 65536 };
static uint8_t snapshot[TRAFFIC_BYTES];

/* Nothing touches the bytes of post_traffic at this side from now on. */
static void expect_quiet(struct fixture *f, const struct side *side) {
    memcpy(snapshot, bytes_of(side), TRAFFIC_BYTES);
    settle(f);
    assert_memory_equal(bytes_of(side), snapshot, TRAFFIC_BYTES);
}

/* Destroys at once, without letting anything else happen after it. */
static void destroy_now(struct fixture *f, struct side *side) {
    int rc;
    for (int i = 0; (rc = f->ops->qp_destroy(side->qp)) != 0; i++) {
        assert_true(i < ROUNDS_MAX && (rc == WEIR_EBUSY || rc == WEIR_EDEVICE));
        f->world->advance(f->world);
    }
    side->qp = NULL;
}

/* S13: a QP that is gone touches no memory on its side, whatever was under way: of its own
 * reads, or of what its peer writes. */
void test_S13_destroy_ends_access(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 12; round++) {
        struct side *first = round % 2 == 0 ? &f.a : &f.b;
        struct side *second = round % 2 == 0 ? &f.b : &f.a;
        fill(bytes_of(&f.a), TRAFFIC_BYTES, round);
        fill(bytes_of(&f.b), TRAFFIC_BYTES, ~round);
        post_traffic(&f);
        for (uint32_t i = 0; i < round % 4; i++)
            f.world->advance(f.world);
        destroy_now(&f, first);
        expect_quiet(&f, first);
        destroy_now(&f, second);
        expect_quiet(&f, second);
        drain(&f, &f.a);
        make_pair(&f);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
    }
    fixture_close(&f);
}

/* S13, T1: so does one in the error state when all that was posted to it has been polled, a
 * beacon last, of its own reads. Writes of its peer may still be landing: only the destroy ends
 * that. */
void test_S13_drained_is_quiet(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 12; round++) {
        struct weir_wr beacon = {.wr_id = 99, .opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
        struct weir_cqe cqe;
        struct weir_post post;
        fill(bytes_of(&f.a), TRAFFIC_BYTES, round);
        fill(bytes_of(&f.b), TRAFFIC_BYTES, ~round);
        uint32_t owed = post_traffic(&f);
        for (uint32_t i = 0; i < round % 4; i++)
            f.world->advance(f.world);
        struct side *sides[2] = {round % 2 == 0 ? &f.a : &f.b, round % 2 == 0 ? &f.b : &f.a};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(f.ops->qp_error(sides[i]->qp), 0);
            assert_int_equal(f.ops->post_send(sides[i]->qp, &beacon, 1, &post), 0);
            assert_int_equal(post.accepted, 1);
            uint32_t left = sides[i] == &f.a ? owed + 1 : 1;
            for (; left > 0; left--) {
                assert_true(wait_cqe(&f, sides[i], &cqe));
                assert_true(cqe.status != WEIR_CQE_OK || cqe.wr_id != 99);
            }
            if (sides[i] == &f.a)
                expect_quiet(&f, sides[i]);
        }
        destroy_now(&f, &f.b);
        expect_quiet(&f, &f.b);
        destroy_now(&f, &f.a);
        make_pair(&f);
    }
    fixture_close(&f);
}

/* T2: a QP that was never connected goes at once, with receives or without; nothing comes of
 * it. */
void test_T2_destroy_before_connect(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    destroy_qp(&f, &f.a);
    for (uint32_t round = 0; round < 20; round++) {
        make_qp(&f, &f.a);
        if (!f.caps.srq && round % 2 == 0)
            assert_int_equal(post_recv(&f, &f.a, 1, 0), 0);
        if (round % 3 == 0)
            assert_int_equal(f.ops->qp_error(f.a.qp), 0);
        destroy_qp(&f, &f.a);
        assert_no_cqe(&f, &f.a);
    }
    remake_pair(&f);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
    fixture_close(&f);
}

/* Begins to connect side a; true: an event will say how it ended. */
static bool begin_connect(struct fixture *f) {
    struct weir_qp_path path = {.mtu = f->caps.mtu_max,
                                .rd_atomic = f->caps.rd_atomic_max,
                                .psn_local = 100,
                                .psn_remote = 200,
                                .blob_length = f->b.granted.blob_length,
                                .blob = f->b.granted.blob};
    int rc = f->ops->qp_connect(f->a.qp, &path);
    assert_true(rc == 0 || rc == WEIR_EINPROGRESS);
    return rc == WEIR_EINPROGRESS;
}

/* T2: nobody is told that a QP is connected which went before it was. */
void test_T2_destroy_while_connecting(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 20; round++) {
        struct weir_async event;
        destroy_qp(&f, &f.a);
        make_qp(&f, &f.a);
        begin_connect(&f);
        for (uint32_t i = 0; i < round % 4; i++)
            f.world->advance(f.world);
        destroy_qp(&f, &f.a);
        settle(&f);
        assert_int_equal(f.ops->events(f.a.device, &event, 1), 0);
        assert_no_cqe(&f, &f.a);
    }
    remake_pair(&f);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
    fixture_close(&f);
}

/* T1: the error state, from the middle of connecting, too: once that has ended, posts are
 * accepted and flush. */
void test_T1_error_while_connecting(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 10; round++) {
        destroy_qp(&f, &f.a);
        make_qp(&f, &f.a);
        bool is_told = !begin_connect(&f);
        assert_int_equal(f.ops->qp_error(f.a.qp), 0);
        for (int i = 0; i < ROUNDS_MAX && !is_told; i++) {
            struct weir_async event;
            f.world->advance(f.world);
            if (f.ops->events(f.a.device, &event, 1) == 1)
                is_told = event.type == WEIR_ASYNC_CONNECTED && event.qp_tag == 1;
        }
        assert_true(is_told);
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_FLUSHED);
    }
    fixture_close(&f);
}

/* H2: both sides connect at once, as in a crossing handshake, and messages go both ways. */
void test_H2_both_connect_at_once(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 12; round++) {
        struct weir_cqe cqe;
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        make_qp(&f, &f.a);
        make_qp(&f, &f.b);
        connect_crossing(&f);
        assert_int_equal(post_recv(&f, &f.a, 3, 0), 0);
        assert_int_equal(post_recv(&f, &f.b, 4, 0), 0);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 8)), WEIR_CQE_OK);
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.wr_id, 4);
        assert_int_equal(run_wr(&f, &f.b, make_wr(&f.b, WEIR_OP_READ, 65536, 65536, 8)),
                         WEIR_CQE_OK);
        assert_int_equal(run_wr(&f, &f.b, make_wr(&f.b, WEIR_OP_SEND, 65536, 0, 8)), WEIR_CQE_OK);
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.wr_id, 3);
    }
    fixture_close(&f);
}
