/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c: capabilities, and calls that are refused. */
#include "fixture.h"

#include <string.h>

void test_calls_that_are_refused(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(connect_qp(&f, &f.a, &f.b.granted), WEIR_EINVAL); /* twice */
    destroy_qp(&f, &f.a);
    make_qp(&f, &f.a);
    struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
    struct weir_post post = {9, 9};
    assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), WEIR_EINVAL); /* in INIT */
    assert_int_equal(post.accepted, 0);
    if (!f.caps.srq) {
        assert_int_equal(
            f.ops->post_recv(f.a.device, f.a.qp, 1, bytes_of(&f.a), RECV_BYTES - 1, f.a.mr.lkey),
            WEIR_EINVAL);
        for (uint32_t i = 0; i < f.a.granted.rq_depth; i++)
            assert_int_equal(post_recv(&f, &f.a, i, 0), 0);
        assert_int_equal(post_recv(&f, &f.a, 9, 0), WEIR_EAGAIN);
    }
    struct weir_mr mr;
    assert_int_equal(f.ops->mr_register(f.a.device, NULL, 8, 0, &mr), WEIR_EINVAL);
    assert_int_equal(f.ops->mr_register(f.a.device, &mr, 0, 0, &mr), WEIR_EINVAL);
    assert_int_equal(f.ops->mr_register(f.a.device, &mr, UINT64_MAX, 0, &mr), WEIR_EINVAL);
    fixture_close(&f);
}

/* Two devices that reach each other say so, and say the same each time. */
void test_H9_capabilities_agree(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_device_caps caps[3];
    f.ops->query(f.a.device, &caps[0]);
    f.ops->query(f.b.device, &caps[1]);
    f.ops->query(f.a.device, &caps[2]);
    for (int i = 0; i < 3; i++) {
        assert_non_null(memchr(caps[i].name, '\0', sizeof caps[i].name));
        assert_non_null(memchr(caps[i].note, '\0', sizeof caps[i].note));
        assert_null(strchr(caps[i].note, '\n'));
        assert_string_equal(caps[i].name, f.ops->name);
        assert_memory_equal(caps[i].fabric, caps[0].fabric, WEIR_FABRIC_ID_SIZE);
        assert_true(caps[i].message_bytes_max > 0 && caps[i].post_bytes_max > 0);
        assert_true(caps[i].cq_capacity >= f.a.granted.sq_depth + f.a.granted.rq_depth);
        assert_in_range(SEND_DEPTH, 1, caps[i].sq_depth_max);
        assert_in_range(RECV_DEPTH, 1, caps[i].rq_depth_max);
        assert_true(caps[i].srq || !caps[i].last_wqe);
    }
    assert_int_equal(caps[0].message_bytes_max, caps[2].message_bytes_max);
    assert_int_equal(caps[0].inline_bytes_max, caps[2].inline_bytes_max);
    assert_int_equal(caps[0].cq_capacity, caps[2].cq_capacity);
    assert_int_equal(caps[0].mtu_max, caps[2].mtu_max);
    assert_int_equal(caps[0].ordered, caps[2].ordered);
    assert_int_equal(caps[0].srq, caps[2].srq);
    fixture_close(&f);
}

/* M6: queues over the limits are refused or cut, and what is granted is what there is. */
void test_M6_depths_over_the_limits(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (int which = 0; which < 2; which++) {
        struct weir_qp_options options = {.tag = 9,
                                          .sq_depth = SEND_DEPTH,
                                          .rq_depth = f.caps.srq ? 0 : RECV_DEPTH,
                                          .recv_bytes_max = RECV_BYTES};
        struct weir_qp_granted granted = {0};
        struct weir_qp *qp = NULL;
        if (which == 0)
            options.sq_depth = f.caps.sq_depth_max + 1;
        else
            options.rq_depth = f.caps.srq ? 0 : f.caps.rq_depth_max + 1;
        int rc = f.ops->qp_create(f.a.device, &options, &granted, &qp);
        assert_true(rc <= 0);
        if (rc != 0)
            continue;
        assert_in_range(granted.sq_depth, 1, f.caps.sq_depth_max);
        assert_in_range(granted.rq_depth, 0, f.caps.rq_depth_max);
        struct side extra = {.device = f.a.device, .qp = qp};
        destroy_qp(&f, &extra);
    }
    fixture_close(&f);
}

/* A receive is for the shared queue if there is one, and else for a QP. */
void test_receives_have_one_place(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(f.ops->post_recv(f.a.device, f.caps.srq ? f.a.qp : NULL, 1, bytes_of(&f.a),
                                      RECV_BYTES, f.a.mr.lkey),
                     WEIR_EINVAL);
    assert_int_equal(post_recv(&f, &f.a, 2, 0), 0);
    assert_int_equal(run_wr(&f, &f.b, make_wr(&f.b, WEIR_OP_SEND, 65536, 0, 8)), WEIR_CQE_OK);
    struct weir_cqe cqe;
    assert_true(wait_cqe(&f, &f.a, &cqe));
    assert_int_equal(cqe.wr_id, 2);
    fixture_close(&f);
}
