/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_queue.c: the queues and connects of the verbs backend over the provider of
 * verbs_fake.h. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "verbs_fake.h"

/* Posts count writes with wr_ids from first on, the last one signalled. */
static int post(struct weir_qp *qp, uint64_t first, uint32_t count, struct weir_post *result) {
    struct weir_wr wrs[2 * GRANTED];
    memset(wrs, 0, sizeof wrs);
    for (uint32_t i = 0; i < count; i++)
        wrs[i].wr_id = first + i;
    wrs[count - 1].flags = WEIR_WR_SIGNALED;
    fake.posted_count = 0;
    return verbs_post_send(qp, wrs, count, result);
}

static void expect_cqe(struct weir_device *device, uint64_t wr_id, uint32_t status) {
    struct weir_cqe cqe;
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_int_equal(cqe.wr_id, wr_id);
    assert_int_equal(cqe.status, status);
}

static void expect_none(struct weir_device *device) {
    struct weir_cqe cqes[4];
    assert_int_equal(verbs_poll(device, cqes, 4), 0);
}

/* ---- tests ---- */

/* The provider would take more than it reported: it is not asked to. */
static void test_S1_granted_depth_is_the_depth(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    struct weir_qp *qp = qp_make(device, 1);
    struct weir_post result;
    for (uint32_t count = 1; count <= GRANTED; count++) {
        assert_int_equal(post(qp, 1000, count, &result), 0);
        assert_int_equal(result.accepted, count);
        struct weir_post more;
        uint64_t last = fake.posted[count - 1];
        assert_int_equal(post(qp, 5000, GRANTED - count + 1, &more), WEIR_EAGAIN);
        assert_int_equal(more.accepted, GRANTED - count);
        fake_complete(last, 7, IBV_WC_SUCCESS);
        expect_cqe(device, 1000 + count - 1, WEIR_CQE_OK);
        if (more.accepted > 0) { /* those have no signalled tail: one write closes them */
            assert_int_equal(post(qp, 9000, 1, &result), 0);
            fake_complete(fake.posted[0], 7, IBV_WC_SUCCESS);
            expect_cqe(device, 9000, WEIR_CQE_OK);
        }
        assert_int_equal(qp->head, qp->tail);
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

static void test_S6_partial_post_every_index(void **state) {
    (void)state;
    static const struct {
        int error, expected;
    } refusals[] = {{ENOMEM, WEIR_EAGAIN}, {EINVAL, WEIR_EINVAL},  {EIO, WEIR_EDEVICE},
                    {EAGAIN, WEIR_EAGAIN}, {-ENOMEM, WEIR_EAGAIN}, {-1, WEIR_EDEVICE}};
    struct weir_device *device = device_make(true);
    struct weir_qp *qp = qp_make(device, 1);
    for (size_t r = 0; r < sizeof refusals / sizeof refusals[0]; r++) {
        for (uint32_t k = 0; k < GRANTED; k++) {
            struct weir_post result = {9, 9};
            fake.refusal = refusals[r].error;
            fake.accepts = k;
            assert_int_equal(post(qp, 0, GRANTED, &result), refusals[r].expected);
            assert_int_equal(result.accepted, k);
            assert_int_equal(result.done, 0);
            assert_int_equal(qp->head - qp->tail, k);
            fake.refusal = 0;
            assert_int_equal(post(qp, 77, 1, &result), 0);
            fake_complete(fake.posted[0], 7, IBV_WC_SUCCESS);
            expect_cqe(device, 77, WEIR_CQE_OK);
            assert_int_equal(qp->head, qp->tail);
        }
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* The WR at index k fails: it gives the first completion, all behind it flush. */
static void test_S1_error_frees_what_it_covers(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    for (uint32_t k = 0; k < GRANTED; k++) {
        struct weir_qp *qp = qp_make(device, 1);
        struct weir_post result;
        assert_int_equal(post(qp, 100, GRANTED, &result), 0);
        for (uint32_t i = k; i < GRANTED; i++)
            fake_complete(fake.posted[i], 7, i == k ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
        expect_cqe(device, 100 + k, WEIR_CQE_REMOTE_ACCESS);
        assert_int_equal(qp->tail, k + 1);
        for (uint32_t i = k + 1; i < GRANTED; i++)
            expect_cqe(device, 100 + i, WEIR_CQE_FLUSHED);
        assert_int_equal(qp->head, qp->tail);
        fake_complete(fake.posted[GRANTED - 1], 7, IBV_WC_WR_FLUSH_ERR); /* twice */
        expect_none(device);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    device_drop(device);
}

static void test_T8_number_used_again(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    struct weir_qp *old = qp_make(device, 1);
    struct weir_post result;
    struct weir_cqe cqe;
    assert_int_equal(post(old, 100, 3, &result), 0);
    assert_int_equal(verbs_post_recv(device, NULL, 55, &cqe, 8, 0), 0);
    assert_int_equal(verbs_post_recv(device, NULL, 56, &cqe, 8, 0), 0);
    uint64_t late = fake.posted[2];
    fake_complete(late, 7, IBV_WC_SUCCESS);
    fake_complete(55, 7, IBV_WC_SUCCESS);
    assert_int_equal(verbs_qp_destroy(old), 0);
    device->qp_hint = 0; /* the same place, too */
    struct weir_qp *qp = qp_make(device, 2);
    fake_complete(late, 7, IBV_WC_WR_FLUSH_ERR);
    fake_complete(56, 7, IBV_WC_SUCCESS);
    assert_int_equal(device->srq_used, 2);
    assert_int_equal(verbs_poll(device, &cqe, 1), 1); /* the buffer comes back, with the old tag */
    assert_int_equal(cqe.wr_id, 55);
    assert_int_equal(cqe.qp_tag, 1);
    assert_true(cqe.recv);
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_int_equal(cqe.wr_id, 56);
    assert_int_equal(cqe.qp_tag, 2);
    assert_int_equal(cqe.byte_length, 100);
    assert_int_equal(device->srq_used, 0);
    expect_none(device);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* T6: others' completions in the CQ, when a QP goes, come in their order. */
static void test_T6_siblings_lose_nothing(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    fake.next_number = 8;
    struct weir_qp *other = qp_make(device, 2);
    fake.next_number = 7;
    struct weir_qp *qp = qp_make(device, 1);
    struct weir_post result;
    for (int round = 0; round < 20; round++) { /* round the stash's end */
        uint64_t ids[10];
        for (uint32_t i = 0; i < 10; i++) {
            assert_int_equal(post(other, 200 + i, 1, &result), 0);
            ids[i] = fake.posted[0];
        }
        assert_int_equal(post(qp, 100, 1, &result), 0);
        for (uint32_t i = 0; i < 10; i++) {
            if (i == 5)
                fake_complete(fake.posted[0], 7, IBV_WC_SUCCESS);
            fake_complete(ids[i], 8, IBV_WC_SUCCESS);
        }
        fake.destroy_error = EBUSY;
        assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
        fake.destroy_error = 0;
        assert_int_equal(verbs_arm(device), WEIR_EAGAIN);
        expect_cqe(device, 200, WEIR_CQE_OK);
        assert_int_equal(verbs_qp_destroy(qp), 0);
        for (uint32_t i = 1; i < 10; i++)
            expect_cqe(device, 200 + i, WEIR_CQE_OK);
        expect_none(device);
        assert_int_equal(verbs_arm(device), 0);
        assert_true(fake.armed);
        qp = qp_make(device, 1);
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    assert_int_equal(verbs_qp_destroy(other), 0);
    device_drop(device);
}

/* A QP whose queue the CQ has no room for is not made. */
static void test_cq_never_overflows(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct weir_device *device = device_make(shared);
        struct weir_qp_options options = {
            .tag = 1, .sq_depth = ASKED, .rq_depth = shared ? 0 : 10, .recv_bytes_max = 8};
        struct weir_qp_granted granted;
        struct weir_qp *qps[CAPACITY / GRANTED] = {NULL};
        uint32_t most = shared ? (CAPACITY - SRQ_DEPTH) / GRANTED : CAPACITY / (GRANTED + 10);
        for (int round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < most; i++, fake.next_number++)
                assert_int_equal(verbs_qp_create(device, &options, &granted, &qps[i]), 0);
            struct weir_qp *more;
            assert_int_equal(verbs_qp_create(device, &options, &granted, &more), WEIR_EFULL);
            assert_int_equal(fake.qps, most);
            for (uint32_t i = 0; i < most; i++)
                assert_int_equal(verbs_qp_destroy(qps[i]), 0);
        }
        device_drop(device);
    }
}

static void test_M6_shared_receives_are_bounded(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    uint8_t buffer[8];
    for (uint32_t i = 0; i < SRQ_DEPTH; i++)
        assert_int_equal(verbs_post_recv(device, NULL, i, buffer, 8, 0), 0);
    assert_int_equal(verbs_post_recv(device, NULL, 99, buffer, 8, 0), WEIR_EAGAIN);
    fake_complete(3, 4711, IBV_WC_LOC_LEN_ERR); /* of nobody that we know */
    expect_cqe(device, 3, WEIR_CQE_LENGTH);
    assert_int_equal(verbs_post_recv(device, NULL, 99, buffer, 8, 0), 0);
    assert_int_equal(verbs_post_recv(device, NULL, WEIR_WR_ID_MAX + 1, buffer, 8, 0), WEIR_EINVAL);
    device_drop(device);
}

/* More completions of receives than receives were posted: the account does not run under, and
 * so still bounds what is posted. */
static void test_M6_receives_that_nobody_posted(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct weir_device *device = device_make(shared);
        struct weir_qp_options options = {
            .tag = 1, .sq_depth = ASKED, .rq_depth = shared ? 0 : SRQ_DEPTH, .recv_bytes_max = 8};
        struct weir_qp_granted granted;
        struct weir_qp *qp;
        uint8_t buffer[8];
        assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), 0);
        struct weir_qp *to = shared ? NULL : qp;
        for (int round = 0; round < 3; round++) {
            fake_complete(99, 7, IBV_WC_SUCCESS);
            expect_none(device);
            assert_int_equal(verbs_post_recv(device, to, 5, buffer, 8, 0), 0);
            fake_complete(5, 7, IBV_WC_SUCCESS);
            fake_complete(5, 7, IBV_WC_SUCCESS); /* twice */
            expect_cqe(device, 5, WEIR_CQE_OK);
            expect_none(device);
        }
        for (uint32_t i = 0; i < SRQ_DEPTH; i++)
            assert_int_equal(verbs_post_recv(device, to, i, buffer, 8, 0), 0);
        assert_int_equal(verbs_post_recv(device, to, 99, buffer, 8, 0), WEIR_EAGAIN);
        assert_int_equal(verbs_qp_destroy(qp), 0);
        device_drop(device);
    }
}

/* A provider may grant less inline payload than it was asked for, and say so. */
static void test_S1_granted_inline_counts(void **state) {
    (void)state;
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    struct weir_device *device = device_make(true);
    fake.inline_most = 60;
    assert_int_equal(qp_try_sizes(device), 0);
    assert_int_equal(device->inline_bytes, 60);
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), 0);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* However many completions of nobody come first, arming sees the one behind them. */
static void test_arm_looks_behind_strangers(void **state) {
    (void)state;
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    struct weir_device *device = device_make(true);
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), 0);
    for (uint64_t i = 0; i < 3 * VERBS_POLL_BATCH; i++)
        fake_complete(VERBS_ID_SEND | (qp->index + 1) << VERBS_POSITION_BITS | i, 99,
                      IBV_WC_SUCCESS);
    assert_int_equal(verbs_post_recv(device, NULL, 5, device, 64, 0), 0);
    fake_complete(5, qp->qpn, IBV_WC_SUCCESS);
    assert_int_equal(verbs_arm(device), WEIR_EAGAIN);
    struct weir_cqe cqe;
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_int_equal(cqe.wr_id, 5);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* ---- connects that block ---- */

static void test_H10_connects_that_block_hold_up_nobody(void **state) {
    (void)state;
    enum { MORE = CONNECTORS + 4 };
    struct weir_device *device = device_make(true);
    struct weir_qp *qps[MORE];
    struct weir_wr wr = {.wr_id = 1, .flags = WEIR_WR_SIGNALED};
    struct weir_post result;
    device->cqs[0]->capacity = MORE * GRANTED + SRQ_DEPTH;
    fake_hold_connects(true);
    for (uint32_t i = 0; i < MORE; i++) {
        fake.next_number = 100 + i;
        qps[i] = qp_begin(device, i);
    }
    fake_wait_connects(CONNECTORS); /* all threads are in the kernel */
    assert_int_equal(verbs_post_send(qps[0], &wr, 1, &result), WEIR_EINVAL);
    assert_int_equal(verbs_qp_destroy(qps[0]), WEIR_EBUSY);
    assert_int_equal(verbs_qp_destroy(qps[MORE - 1]), 0); /* its turn had not come */
    assert_int_equal(verbs_qp_error(qps[1]), 0);
    fake_hold_connects(false);
    bool seen[MORE] = {false};
    for (uint32_t i = 0; i < MORE - 2; i++) {
        struct pollfd done = {.fd = device->connector.event_fd, .events = POLLIN};
        struct weir_async event;
        assert_int_equal(poll(&done, 1, 10000), 1);
        assert_int_equal(connector_events(device, &event, 1), 1);
        assert_true(event.qp_tag < MORE - 1 && !seen[event.qp_tag] && event.error == 0);
        seen[event.qp_tag] = true;
        assert_int_equal(qps[event.qp_tag]->state, event.qp_tag == 1 ? QP_ERROR : QP_READY);
    }
    /* Done, and not yet taken. */
    for (uint32_t i = 0; i < MORE - 1; i++) {
        if (!seen[i]) {
            struct pollfd done = {.fd = device->connector.event_fd, .events = POLLIN};
            assert_int_equal(poll(&done, 1, 10000), 1);
            assert_int_equal(verbs_qp_destroy(qps[i]), 0);
            assert_int_equal(poll(&done, 1, 0), 0);
        } else {
            assert_int_equal(verbs_qp_destroy(qps[i]), 0);
        }
    }
    device_drop(device);
}

static void test_H10_nobody_answers_for_the_address(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    fake_connects_fail(ETIMEDOUT);
    struct weir_qp *qp = qp_begin(device, 5);
    assert_int_equal(connected(device, 5), WEIR_EPEER);
    assert_int_equal(qp->state, QP_FAILED);
    fake_connects_fail(0);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S1_granted_depth_is_the_depth),
        cmocka_unit_test(test_S6_partial_post_every_index),
        cmocka_unit_test(test_S1_error_frees_what_it_covers),
        cmocka_unit_test(test_T8_number_used_again),
        cmocka_unit_test(test_T6_siblings_lose_nothing),
        cmocka_unit_test(test_cq_never_overflows),
        cmocka_unit_test(test_M6_shared_receives_are_bounded),
        cmocka_unit_test(test_M6_receives_that_nobody_posted),
        cmocka_unit_test(test_S1_granted_inline_counts),
        cmocka_unit_test(test_arm_looks_behind_strangers),
        cmocka_unit_test(test_H10_connects_that_block_hold_up_nobody),
        cmocka_unit_test(test_H10_nobody_answers_for_the_address),
    };
    return cmocka_run_group_tests_name("verbs_queue", tests, NULL, NULL);
}
