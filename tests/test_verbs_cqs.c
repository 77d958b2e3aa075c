/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_cqs.c: a device whose CQs are shorter than its QPs need has several of them (W7):
 * none overflows, all are polled in turn and armed once, and what is not needed goes again. The
 * provider is played: see verbs_fake.h. */
#include <errno.h>
#include <stdlib.h>

#include "verbs_fake.h"

enum { CQ_ENTRIES = 64, EACH = CQ_ENTRIES / GRANTED, MANY = 40 };

/* A device that grants few entries a CQ. Without a shared receive queue. */
static struct weir_device *opened(void) {
    fake_reset();
    fake.attr.max_srq = 0;
    fake.cqe_most = CQ_ENTRIES;
    fake.numbers_grow = true;
    return device_open_with((struct weir_device_wishes){.cq_depth = CQ_ENTRIES});
}

static int create(struct weir_device *device, uint32_t tag, struct weir_qp **qp_out) {
    struct weir_qp_options options = {.tag = tag, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    return verbs_qp_create(device, &options, &granted, qp_out);
}

static void assert_no_cq_can_overflow(const struct weir_device *device, struct weir_qp **qps) {
    uint32_t entries = 0;
    for (uint32_t i = 0; i < device->cq_count; i++) {
        const struct verbs_cq *cq = device->cqs[i];
        uint32_t used = device->srq_depth;
        for (uint32_t k = 0; k < MANY; k++)
            used += qps[k] != NULL && qps[k]->cq == cq ? GRANTED : 0;
        assert_int_equal(used, cq->used);
        assert_true(used <= cq->capacity);
        entries += cq->capacity;
    }
    assert_int_equal(entries, device->cq_entries);
    assert_true(device->stash_size >= entries);
}

static void test_W7_more_qps_than_one_cq_holds(void **state) {
    struct weir_qp *qps[MANY] = {NULL};
    struct weir_device_caps caps;

    (void)state;
    struct weir_device *device = opened();
    verbs_device_ops.query(device, &caps);
    assert_int_equal(caps.cq_capacity, CQ_ENTRIES);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < MANY; i++) {
            assert_int_equal(create(device, i, &qps[i]), 0);
            assert_no_cq_can_overflow(device, qps);
        }
        assert_int_equal(device->cq_count, MANY / EACH);
        verbs_device_ops.query(device, &caps);
        assert_int_equal(caps.cq_capacity, MANY / EACH * CQ_ENTRIES);
        for (uint32_t i = 0; i < MANY; i++) {
            uint32_t at = (i * 7 + (uint32_t)round) % MANY; /* in another order than they came */
            assert_int_equal(verbs_qp_destroy(qps[at]), 0);
            qps[at] = NULL;
            assert_no_cq_can_overflow(device, qps);
        }
        assert_int_equal(device->cq_count, 2); /* the first, and one that may be needed soon */
        assert_int_equal(fake.cqs, 2);
    }
    device_close(device);
    assert_int_equal(fake.cqs, 0);
}

/* A caller that finds no room is told so, the other QPs go on, and it works again when there is
 * room. */
static void test_W7_no_cq_to_be_had(void **state) {
    struct weir_qp *qps[2 * EACH], *more;

    (void)state;
    struct weir_device *device = opened();
    fake.cqs_most = 2;
    for (uint32_t i = 0; i < 2 * EACH; i++)
        assert_int_equal(create(device, i, &qps[i]), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(create(device, 99, &more), WEIR_EFULL);
    assert_int_equal(fake.qps, 2 * EACH);
    assert_int_equal(verbs_qp_destroy(qps[0]), 0);
    assert_int_equal(create(device, 99, &qps[0]), 0);
    assert_int_equal(create(device, 98, &more), WEIR_EFULL);
    fake.cqs_most = 3;
    assert_int_equal(create(device, 98, &more), 0);
    assert_int_equal(verbs_qp_destroy(more), 0);
    for (uint32_t i = 0; i < 2 * EACH; i++)
        assert_int_equal(verbs_qp_destroy(qps[i]), 0);
    device_close(device);
}

/* A depth that is granted does not fit in any CQ that the device gives. */
static void test_W7_a_queue_that_is_longer_than_any_cq(void **state) {
    struct weir_qp *qp;

    (void)state;
    struct weir_device *device = opened();
    fake.sends_granted = CQ_ENTRIES + 1;
    assert_int_equal(create(device, 1, &qp), WEIR_EFULL);
    assert_int_equal(fake.qps, 0);
    device_close(device);
}

/* ---- polling ---- */

/* A WR of the QP is done. */
static void done(struct weir_qp *qp, uint64_t number) {
    struct weir_wr wr = {.wr_id = number, .flags = WEIR_WR_SIGNALED};
    struct weir_post result;
    assert_int_equal(verbs_post_send(qp, &wr, 1, &result), 0);
    fake.completes_in = qp->cq->ibv;
    fake_complete(fake.posted[(fake.posted_count - 1) % CQES], qp->qpn, IBV_WC_SUCCESS);
}

/* Connected, each on a CQ of its own. */
static void make_apart(struct weir_device *device, struct weir_qp **qps, uint32_t count) {
    static struct weir_qp *fillers[MANY];
    for (uint32_t i = 0; i < count; i++) {
        qps[i] = qp_make(device, i);
        for (uint32_t k = 1; k < EACH; k++)
            assert_int_equal(create(device, 100, &fillers[i]), 0);
        assert_true(i == 0 || qps[i]->cq != qps[i - 1]->cq);
    }
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(verbs_qp_destroy(fillers[i]), 0);
}

static void test_S18_cqs_are_polled_in_turn(void **state) {
    enum { CQS = 3, DONE = 24, ROUND = 8 };
    struct weir_qp *qps[CQS];
    struct weir_cqe cqes[ROUND];
    uint32_t seen[CQS] = {0};

    (void)state;
    struct weir_device *device = opened();
    make_apart(device, qps, CQS);
    for (uint32_t i = 0; i < CQS; i++) {
        for (uint32_t k = 0; k < DONE; k++)
            done(qps[i], 1000 * i + k);
    }
    for (uint32_t round = 1; round <= DONE / ROUND * CQS; round++) {
        assert_int_equal(verbs_poll(device, cqes, ROUND), ROUND);
        for (uint32_t k = 0; k < ROUND; k++) {
            uint32_t of = (uint32_t)cqes[k].wr_id / 1000;
            assert_int_equal(cqes[k].wr_id % 1000, seen[of]++); /* in the order of each */
        }
        for (uint32_t i = 0; i < CQS; i++) /* nobody waits for more than the others' turn */
            assert_true(seen[i] >= round / CQS * ROUND);
    }
    assert_int_equal(verbs_poll(device, cqes, ROUND), 0);
    /* Fewer than asked for are there in all: one poll brings them. */
    for (uint32_t i = 0; i < CQS; i++)
        done(qps[i], i);
    assert_int_equal(verbs_poll(device, cqes, ROUND), CQS);
    for (uint32_t i = 0; i < CQS; i++)
        assert_int_equal(verbs_qp_destroy(qps[i]), 0);
    device_close(device);
}

/* Completions that wait to be taken stay so, in order, while CQs come and go. */
static void test_W7_completions_that_wait_survive_another_cq(void **state) {
    struct weir_qp *qps[2], *more[4 * EACH];
    struct weir_cqe cqes[64];

    (void)state;
    struct weir_device *device = opened();
    qps[0] = qp_make(device, 0);
    qps[1] = qp_make(device, 1);
    for (uint64_t k = 0; k < 20; k++)
        done(qps[0], k);
    assert_int_equal(verbs_qp_destroy(qps[1]), 0); /* the CQ was emptied for that */
    assert_true(device->stash_count > 0);
    assert_int_equal(verbs_poll(device, cqes, 3), 3);
    for (uint32_t i = 0; i < 4 * EACH; i++)
        assert_int_equal(create(device, 50 + i, &more[i]), 0);
    for (uint32_t i = 0; i < 4 * EACH; i++)
        assert_int_equal(verbs_qp_destroy(more[i]), 0);
    assert_int_equal(verbs_poll(device, cqes, 64), 17);
    for (uint64_t k = 0; k < 17; k++)
        assert_int_equal(cqes[k].wr_id, 3 + k);
    assert_int_equal(verbs_qp_destroy(qps[0]), 0);
    device_close(device);
}

/* ---- sleeping ---- */

static void test_S17_a_cq_is_armed_once_for_each_event(void **state) {
    struct weir_qp *qps[2 * EACH];

    (void)state;
    struct weir_device *device = opened();
    for (uint32_t i = 0; i < 2 * EACH; i++)
        assert_int_equal(create(device, i, &qps[i]), 0);
    assert_int_equal(verbs_arm(device), WEIR_OK);
    assert_int_equal(fake.arms, 2);
    verbs_disarm(device); /* nothing came: both are armed still */
    assert_int_equal(verbs_arm(device), WEIR_OK);
    assert_int_equal(fake.arms, 2);
    fake.cq_event_count = 1; /* of the first */
    verbs_disarm(device);
    assert_int_equal(verbs_arm(device), WEIR_OK);
    assert_int_equal(fake.arms, 3);
    /* A completion in any of them keeps everybody awake. */
    fake.completes_in = qps[2 * EACH - 1]->cq->ibv;
    fake_complete(VERBS_ID_SEND, 4711, IBV_WC_SUCCESS); /* of nobody */
    assert_int_equal(verbs_arm(device), WEIR_OK);
    for (uint32_t i = 0; i < 2 * EACH; i++)
        assert_int_equal(verbs_qp_destroy(qps[i]), 0);
    device_close(device);
}

/* ---- the shared receive queue ---- */

/* It is used where it has room for all QPs that may come, or where it was asked for. */
static void test_W7_a_shared_queue_has_room_for_all_or_there_is_none(void **state) {
    static const struct {
        uint32_t qps, receives, most;
        const char *setting;
        uint32_t depth; /* 0: none */
    } cases[] = {
        {0, 0, 1 << 20, NULL, 1024},   /* not known: a quarter of the CQ, */
        {10, 66, 1 << 20, NULL, 1024}, /* which is enough */
        {20, 66, 1 << 20, NULL, 1320}, /* more than a quarter */
        {31, 66, 1 << 20, NULL, 2046}, /* half of it */
        {32, 66, 1 << 20, NULL, 0},    /* not enough: each its own */
        {20, 66, 1000, NULL, 0},       /* the device gives less */
        {32, 66, 1 << 20, "1", 1024},  /* but it was asked for */
        {10, 66, 1 << 20, "0", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_device_caps caps;
        fake_reset();
        fake.attr.max_srq_wr = (int)cases[i].most;
        if (cases[i].setting != NULL)
            setenv("WEIR_VERBS_SRQ", cases[i].setting, 1);
        struct weir_device *device = device_open_with(
            (struct weir_device_wishes){.qps = cases[i].qps, .qp_receives = cases[i].receives});
        unsetenv("WEIR_VERBS_SRQ");
        verbs_device_ops.query(device, &caps);
        assert_int_equal(caps.srq, cases[i].depth > 0);
        assert_int_equal(device->srq_depth, cases[i].depth);
        assert_int_equal(device->cqs[0]->used, cases[i].depth);
        assert_true(caps.sq_depth_max >= 1024);
        device_close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W7_more_qps_than_one_cq_holds),
        cmocka_unit_test(test_W7_no_cq_to_be_had),
        cmocka_unit_test(test_W7_a_queue_that_is_longer_than_any_cq),
        cmocka_unit_test(test_S18_cqs_are_polled_in_turn),
        cmocka_unit_test(test_W7_completions_that_wait_survive_another_cq),
        cmocka_unit_test(test_S17_a_cq_is_armed_once_for_each_event),
        cmocka_unit_test(test_W7_a_shared_queue_has_room_for_all_or_there_is_none),
    };
    return cmocka_run_group_tests_name("verbs_cqs", tests, NULL, NULL);
}
