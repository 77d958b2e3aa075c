/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_fence.c: posts, completions and regions of the verbs backend's iWARP QPs, over the
 * provider of verbs_fake.h and the connection manager of verbs_fake_cm.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_fake_cm.h"

enum { FIRST = 1000, LINKS = 2 * GRANTED };

/* count WRs with wr_ids from FIRST on, all of one kind. */
static void make_wrs(struct weir_wr *wrs, uint32_t count, uint8_t opcode, uint8_t flags) {
    for (uint32_t i = 0; i < count; i++)
        wrs[i] = (struct weir_wr){.wr_id = FIRST + i,
                                  .laddr = 0x1000 + i,
                                  .raddr = 0x2000 + i,
                                  .length = 8,
                                  .lkey = 11,
                                  .rkey = 12,
                                  .opcode = opcode,
                                  .flags = flags};
}

static int post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                struct weir_post *result) {
    *result = (struct weir_post){99, 99};
    fake.posted_count = 0;
    int rc = verbs_post_send(qp, wrs, count, result);
    assert_int_equal(result->done, 0);
    return rc;
}

static int post_writes(struct weir_qp *qp, uint32_t count, struct weir_post *result) {
    struct weir_wr wrs[LINKS];
    make_wrs(wrs, count, WEIR_OP_WRITE, WEIR_WR_SIGNALED);
    return post(qp, wrs, count, result);
}

static void expect_cqe(struct weir_device *device, uint64_t wr_id, uint32_t status) {
    struct weir_cqe cqe;
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_false(cqe.recv);
    assert_int_equal(cqe.wr_id, wr_id);
    assert_int_equal(cqe.status, status);
}

static void expect_none(struct weir_device *device) {
    struct weir_cqe cqes[4];
    assert_int_equal(verbs_poll(device, cqes, 4), 0);
}

/* [from, to) in their order, each once. */
static void expect_flushed(struct weir_device *device, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        expect_cqe(device, FIRST + i, WEIR_CQE_FLUSHED);
    expect_none(device);
}

static bool is_fence(const struct weir_device *device, uint32_t link) {
    const struct fake_wr *sent = &fake.sent[link];
    return sent->wr.opcode == IBV_WR_RDMA_READ && sent->wr.wr.rdma.rkey == PEER_FENCE_KEY &&
           sent->wr.wr.rdma.remote_addr == PEER_FENCE && sent->wr.num_sge == 1 &&
           sent->sge.length == 8 && sent->sge.lkey == device->cm.fence_mr->lkey &&
           sent->sge.addr == (uintptr_t)&device->cm.fence[1] &&
           sent->wr.send_flags == IBV_SEND_SIGNALED;
}

static void finish(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    assert_int_equal(qp->head, qp->tail);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    iwarp_close(device);
}

/* ---- what is posted ---- */

static void test_S11_done_is_when_it_has_arrived(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    static const struct {
        uint8_t opcode, flags;
        uint64_t length;
        enum ibv_wr_opcode sent;
        unsigned sent_flags;
        uint32_t fences;
    } cases[] = {
        {WEIR_OP_WRITE, WEIR_WR_SIGNALED, 8, IBV_WR_RDMA_WRITE, 0, 1},
        {WEIR_OP_WRITE, 0, 8, IBV_WR_RDMA_WRITE, 0, 0},
        {WEIR_OP_WRITE, WEIR_WR_SIGNALED | WEIR_WR_INLINE, 8, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE,
         1},
        {WEIR_OP_WRITE, WEIR_WR_SIGNALED, 0, IBV_WR_RDMA_WRITE, 0, 1},
        {WEIR_OP_WRITE, 0, 0, IBV_WR_RDMA_WRITE, 0, 0},
        {WEIR_OP_SEND, WEIR_WR_SIGNALED, 8, IBV_WR_SEND, 0, 1},
        {WEIR_OP_SEND, WEIR_WR_INLINE, 8, IBV_WR_SEND, IBV_SEND_INLINE, 0},
        {WEIR_OP_SEND, WEIR_WR_SIGNALED, 0, IBV_WR_SEND, 0, 1},
        {WEIR_OP_READ, WEIR_WR_SIGNALED, 8, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0},
        {WEIR_OP_READ, 0, 8, IBV_WR_RDMA_READ, 0, 0},
        {WEIR_OP_READ, WEIR_WR_SIGNALED, 0, IBV_WR_RDMA_WRITE, 0, 1}, /* touches nothing */
        {WEIR_OP_READ, 0, 0, IBV_WR_RDMA_WRITE, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_wr wr;
        struct weir_post result;
        make_wrs(&wr, 1, cases[i].opcode, cases[i].flags);
        wr.length = cases[i].length;
        uint32_t before = qp->head;
        assert_int_equal(post(qp, &wr, 1, &result), 0);
        assert_int_equal(result.accepted, 1);
        assert_int_equal(qp->head - before, 1); /* of ours */
        assert_int_equal(fake.posted_count, 1 + cases[i].fences);
        const struct fake_wr *sent = &fake.sent[0];
        assert_int_equal(sent->wr.opcode, cases[i].sent);
        assert_int_equal(sent->wr.send_flags, cases[i].sent_flags);
        assert_int_equal(sent->wr.num_sge, cases[i].length != 0);
        assert_int_equal(fake.posted[0] & VERBS_POSITION_MASK, before);
        if (cases[i].length != 0) {
            assert_int_equal(sent->sge.addr, wr.laddr);
            assert_int_equal(sent->sge.lkey, wr.lkey);
            assert_int_equal(sent->wr.wr.rdma.remote_addr, wr.raddr);
            assert_int_equal(sent->wr.wr.rdma.rkey, wr.rkey);
        }
        if (cases[i].fences == 1) {
            assert_true(is_fence(device, 1));
            assert_int_equal(fake.posted[1], fake.posted[0]);
        }
        if ((cases[i].flags & WEIR_WR_SIGNALED) == 0)
            continue;
        expect_none(device);
        fake_complete(fake.posted[cases[i].fences], qp->qpn, IBV_WC_SUCCESS);
        expect_cqe(device, FIRST, WEIR_CQE_OK);
        assert_int_equal(qp->head, qp->tail); /* with those before it */
    }
    struct weir_post result;
    assert_int_equal(post_writes(qp, 1, &result), 0);
    fake_complete(fake.posted[1], qp->qpn, IBV_WC_SUCCESS);
    expect_cqe(device, FIRST, WEIR_CQE_OK);
    finish(qp);
}

/* Batches of every size, mixed, as deep as the queue and deeper. */
static void test_S2_any_batch_completes(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    for (uint32_t count = 1; count <= LINKS; count++) {
        struct weir_wr wrs[LINKS];
        struct weir_post result;
        make_wrs(wrs, count, WEIR_OP_WRITE, WEIR_WR_SIGNALED);
        for (uint32_t i = 0; i < count; i++) {
            wrs[i].opcode = (uint8_t)(i % 3);
            wrs[i].flags = i % 5 < 3 || i == GRANTED - 1 || i + 1 == count ? WEIR_WR_SIGNALED : 0;
        }
        uint32_t fits = count < GRANTED ? count : GRANTED;
        assert_int_equal(post(qp, wrs, count, &result), fits < count ? WEIR_EAGAIN : 0);
        assert_int_equal(result.accepted, fits);
        for (uint32_t i = 0; i < fake.posted_count; i++) {
            if ((fake.sent[i].wr.send_flags & IBV_SEND_SIGNALED) != 0)
                fake_complete(fake.posted[i], qp->qpn, IBV_WC_SUCCESS);
        }
        for (uint32_t i = 0; i < fits; i++) {
            if (wrs[i].flags != 0)
                expect_cqe(device, FIRST + i, WEIR_CQE_OK);
        }
        expect_none(device);
        assert_int_equal(qp->head, qp->tail);
    }
    finish(qp);
}

/* ---- posts that are refused ---- */

/* Also between a WR and its fence, whose WR would never be heard of: then the QP fails. Every WR
 * that was accepted completes or is flushed. */
static void partial_post(int error, int expected, uint32_t links, bool signaled) {
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    struct weir_wr wrs[GRANTED];
    struct weir_post result;
    make_wrs(wrs, GRANTED, WEIR_OP_WRITE, signaled ? WEIR_WR_SIGNALED : 0);
    fake.refusal = error;
    fake.accepts = links;
    int rc = post(qp, wrs, GRANTED, &result);
    fake.refusal = 0;
    uint32_t accepted = signaled ? (links + 1) / 2 : links;
    bool halved = signaled && links % 2 == 1;
    if (!halved) {
        assert_int_equal(rc, expected);
        assert_int_equal(result.accepted, accepted);
        assert_int_equal(qp->state, QP_READY);
        expect_none(device);
        assert_int_equal(post_writes(qp, 1, &result), 0); /* and on */
        fake_complete(fake.posted[1], qp->qpn, IBV_WC_SUCCESS);
        expect_cqe(device, FIRST, WEIR_CQE_OK);
    } else {
        assert_int_equal(qp->state, QP_ERROR);
        assert_true(fake_qp_of(qp)->failed);
        if (expected == WEIR_EAGAIN) {
            assert_int_equal(rc, WEIR_EAGAIN);
            assert_int_equal(result.accepted, accepted);
        } else { /* the QP is in the error state, and takes the rest */
            assert_int_equal(rc, 0);
            assert_int_equal(result.accepted, GRANTED);
        }
        for (uint32_t i = 0; i < links; i++) /* what the provider says of it is not passed on */
            fake_complete(fake.posted[i], qp->qpn, IBV_WC_WR_FLUSH_ERR);
        expect_flushed(device, 0, result.accepted);
    }
    finish(qp);
}

static void test_S6_partial_post_every_index(void **state) {
    (void)state;
    static const struct {
        int error, expected;
    } refusals[] = {{ENOMEM, WEIR_EAGAIN}, {EINVAL, WEIR_EINVAL},  {EIO, WEIR_EDEVICE},
                    {EAGAIN, WEIR_EAGAIN}, {-ENOMEM, WEIR_EAGAIN}, {-1, WEIR_EDEVICE}};
    for (size_t r = 0; r < sizeof refusals / sizeof refusals[0]; r++) {
        for (uint32_t links = 0; links < LINKS; links++)
            partial_post(refusals[r].error, refusals[r].expected, links, true);
        for (uint32_t links = 0; links < GRANTED; links++)
            partial_post(refusals[r].error, refusals[r].expected, links, false);
    }
}

/* The QP has failed, and the provider says so by refusing: at every index of its chain. */
static void test_S6_refused_because_it_failed(void **state) {
    (void)state;
    static const int errors[] = {ENOTCONN, -ENOTCONN, EINVAL, EIO};
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        for (uint32_t links = 0; links < LINKS; links++) {
            struct weir_device *device = iwarp_open();
            struct weir_qp *qp = iwarp_make(device, 1);
            struct weir_post result;
            fake.refusal = errors[e];
            fake.accepts = links;
            fake_qp_of(qp)->failed = e >= 2;
            assert_int_equal(post_writes(qp, GRANTED, &result), 0);
            assert_int_equal(result.accepted, GRANTED);
            assert_int_equal(qp->state, QP_ERROR);
            expect_flushed(device, 0, GRANTED);
            assert_int_equal(post_writes(qp, GRANTED + 1, &result), WEIR_EAGAIN);
            assert_int_equal(result.accepted, GRANTED);
            assert_int_equal(fake.posted_count, 0);
            expect_flushed(device, 0, GRANTED);
            iwarp_expect_none(device);
            finish(qp);
        }
    }
}

/* The WRs posted before the post that is refused go first. */
static void test_S6_refused_with_others_before_it(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    struct weir_wr wrs[GRANTED];
    struct weir_post result;
    make_wrs(wrs, GRANTED, WEIR_OP_SEND, WEIR_WR_SIGNALED);
    assert_int_equal(post(qp, wrs, 10, &result), 0);
    for (uint32_t i = 0; i < 4; i++) /* those have arrived, and nobody has polled */
        fake_complete(fake.posted[2 * i + 1], qp->qpn, IBV_WC_SUCCESS);
    fake.refusal = ENOTCONN;
    fake.accepts = 0;
    assert_int_equal(post(qp, wrs + 10, GRANTED - 10, &result), 0);
    for (uint32_t i = 0; i < 4; i++)
        expect_cqe(device, FIRST + i, WEIR_CQE_OK);
    expect_flushed(device, 4, GRANTED);
    finish(qp);
}

/* ---- failures ---- */

/* WR k fails, with any of its two WRs of the provider's; all before it have arrived. The others
 * are flushed by the provider in whatever order, or not at all. */
static void first_error(uint32_t k, bool fence, bool tells, bool backwards) {
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    struct weir_post result;
    assert_int_equal(post_writes(qp, GRANTED, &result), 0);
    for (uint32_t i = 0; i < k; i++)
        fake_complete(fake.posted[2 * i + 1], qp->qpn, IBV_WC_SUCCESS);
    fake_complete(fake.posted[2 * k + fence], qp->qpn, IBV_WC_REM_ACCESS_ERR);
    for (uint32_t i = 2 * k; tells && i < LINKS; i++) {
        uint32_t link = backwards ? LINKS - 1 - (i - 2 * k) : i;
        if (link != 2 * k + fence)
            fake_complete(fake.posted[link], qp->qpn, IBV_WC_WR_FLUSH_ERR);
    }
    for (uint32_t i = 0; i < k; i++)
        expect_cqe(device, FIRST + i, WEIR_CQE_OK);
    expect_cqe(device, FIRST + k, WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(qp->state, QP_ERROR);
    expect_flushed(device, k + 1, GRANTED);
    fake_complete(fake.posted[2 * k], qp->qpn, IBV_WC_LOC_PROT_ERR); /* late */
    fake_complete(fake.posted[2 * k + 1], qp->qpn, IBV_WC_SUCCESS);
    expect_none(device);
    finish(qp);
}

static void test_S1_first_error_is_told(void **state) {
    (void)state;
    for (uint32_t k = 0; k < GRANTED; k++) {
        for (unsigned how = 0; how < 8; how++)
            first_error(k, (how & 1) != 0, (how & 2) != 0, (how & 4) != 0);
    }
}

/* The one that failed is not the one that the provider tells of first. */
static void test_S1_flush_is_told_before_its_cause(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    struct weir_post result;
    assert_int_equal(post_writes(qp, 5, &result), 0);
    fake_complete(fake.posted[9], qp->qpn, IBV_WC_WR_FLUSH_ERR);
    fake_complete(fake.posted[2], qp->qpn, IBV_WC_REM_ACCESS_ERR);
    expect_flushed(device, 0, 5);
    finish(qp);
}

/* Successes that were in the CQ, or were taken from it, before the error count. */
static void test_S11_success_before_the_error_counts(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct weir_device *device = iwarp_open();
        struct weir_qp *qp = iwarp_make(device, 1);
        struct weir_post result;
        assert_int_equal(post_writes(qp, 6, &result), 0);
        for (uint32_t i = 0; i < 3; i++)
            fake_complete(fake.posted[2 * i + 1], qp->qpn, IBV_WC_SUCCESS);
        if (way == 0)
            assert_int_equal(verbs_arm(device), WEIR_EAGAIN); /* they are in the stash */
        if (way == 1)
            fake_cm_event(fake_cm_id_of(qp), RDMA_CM_EVENT_DISCONNECTED);
        else
            assert_int_equal(verbs_qp_error(qp), 0);
        if (way == 1)
            iwarp_expect(device, WEIR_ASYNC_QP_FATAL, qp, 0);
        fake_complete(fake.posted[7], qp->qpn, IBV_WC_SUCCESS); /* too late */
        for (uint32_t i = 0; i < 3; i++)
            expect_cqe(device, FIRST + i, WEIR_CQE_OK);
        expect_flushed(device, 3, 6);
        finish(qp);
    }
}

/* The other side is gone: QP_FATAL, once, and nothing is left under way; siblings are. */
static void test_T6_disconnect_ends_one(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *sibling = iwarp_make(device, 1), *qp = iwarp_make(device, 2);
    struct weir_post result;
    assert_int_equal(post_writes(sibling, 3, &result), 0);
    uint64_t last = fake.posted[5];
    assert_int_equal(post_writes(qp, GRANTED, &result), 0);
    struct fake_id *id = fake_cm_id_of(qp);
    fake_cm_event(id, RDMA_CM_EVENT_DISCONNECTED);
    fake_cm_event(id, RDMA_CM_EVENT_DISCONNECTED);
    iwarp_expect(device, WEIR_ASYNC_QP_FATAL, qp, 0);
    iwarp_expect_none(device);
    assert_int_equal(verbs_qp_error(qp), 0);
    expect_flushed(device, 0, GRANTED);
    fake_complete(last, sibling->qpn, IBV_WC_SUCCESS);
    expect_cqe(device, FIRST + 2, WEIR_CQE_OK);
    assert_int_equal(sibling->state, QP_READY);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    assert_int_equal(post_writes(sibling, 1, &result), 0);
    fake_complete(fake.posted[1], sibling->qpn, IBV_WC_SUCCESS);
    expect_cqe(device, FIRST, WEIR_CQE_OK);
    finish(sibling);
}

/* Its error was seen before the end of its connection: that says nothing new. */
static void test_T6_disconnect_after_an_error(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    assert_int_equal(verbs_qp_error(qp), 0);
    fake_cm_event(fake_cm_id_of(qp), RDMA_CM_EVENT_DISCONNECTED);
    iwarp_expect_none(device);
    finish(qp);
}

/* Completions of a QP that is gone, and of one that has its place now, errors above all. */
static void test_S14_stale_completions(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *old = iwarp_make(device, 1);
    struct weir_post result;
    assert_int_equal(post_writes(old, 4, &result), 0);
    uint64_t late[8];
    memcpy(late, fake.posted, sizeof late);
    fake_complete(late[1], old->qpn, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(verbs_arm(device), WEIR_EAGAIN); /* in the stash */
    assert_int_equal(verbs_qp_destroy(old), 0);
    device->qp_hint = 0; /* the same place */
    struct weir_qp *qp = iwarp_make(device, 2);
    assert_int_equal(post_writes(qp, 4, &result), 0);
    for (uint32_t i = 0; i < 8; i++)
        fake_complete(late[i], qp->qpn, i % 2 == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    expect_none(device);
    assert_int_equal(qp->state, QP_READY);
    fake_complete(fake.posted[7], qp->qpn, IBV_WC_SUCCESS);
    expect_cqe(device, FIRST + 3, WEIR_CQE_OK);
    finish(qp);
}

/* ---- the account of the CQ ---- */

/* As much as can be in it at once: all shared receives, each WR of the provider's of all QPs, and
 * our own completions of all of them. One more overflows the stash, which asserts. */
static void test_cq_never_overflows(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qps[IWARP_QPS];
    struct weir_post result;
    uint8_t buffer[8];
    for (uint32_t i = 0; i < IWARP_QPS; i++)
        qps[i] = iwarp_make(device, i);
    struct weir_qp_options options = {.tag = 9, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *more;
    fake.cqs_most = 1;
    assert_int_equal(verbs_qp_create(device, &options, &granted, &more), WEIR_EFULL);
    assert_int_equal(device->cqs[0]->used, device->cqs[0]->capacity);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < device->srq_depth; i++) {
            assert_int_equal(verbs_post_recv(device, NULL, i, buffer, sizeof buffer, 0), 0);
            fake_complete(i, qps[0]->qpn, IBV_WC_SUCCESS);
        }
        for (uint32_t i = 0; i < IWARP_QPS; i++) {
            assert_int_equal(post_writes(qps[i], GRANTED, &result), 0);
            for (uint32_t k = 0; round == 0 && k < LINKS; k++)
                fake_complete(fake.posted[k], qps[i]->qpn, IBV_WC_WR_FLUSH_ERR);
            poll_to_stash(device, qps[i]->cq);
        }
        for (uint32_t i = 0; i < 2 * IWARP_QPS; i++) /* twice, which adds nothing */
            assert_int_equal(verbs_qp_error(qps[i % IWARP_QPS]), 0);
        if (round == 0)
            assert_int_equal(device->stash_count, device->stash_size);
        uint32_t sends = 0, receives = 0;
        struct weir_cqe cqes[7];
        int got;
        while ((got = verbs_poll(device, cqes, 7)) > 0) {
            for (int i = 0; i < got; i++) {
                receives += cqes[i].recv;
                sends += !cqes[i].recv && cqes[i].status == WEIR_CQE_FLUSHED;
            }
        }
        assert_int_equal(receives, device->srq_depth);
        assert_int_equal(sends, IWARP_QPS * GRANTED);
        assert_int_equal(device->stash_count, 0);
    }
    for (uint32_t i = 0; i < IWARP_QPS; i++)
        assert_int_equal(verbs_qp_destroy(qps[i]), 0);
    iwarp_close(device);
}

/* ---- memory ---- */

static const struct verbs_mr *entry_of(const struct weir_device *device, const struct weir_mr *mr) {
    return &device->mrs.chunks[mr->cookie / VERBS_MR_CHUNK][mr->cookie % VERBS_MR_CHUNK];
}

static uint32_t exported_key(struct weir_device *device, const struct weir_mr *mr) {
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length;
    struct verbs_region region;
    assert_int_equal(verbs_mr_export(device, mr, blob, &length), 0);
    assert_int_equal(blob_read_region(blob, length, &region), 0);
    return region.rkey;
}

static int get_region(struct weir_device *device, int how, uint32_t access, struct weir_mr *mr) {
    static uint8_t bytes[64];
    if (how == 0)
        return verbs_mr_register(device, bytes, sizeof bytes, access, mr);
    if (how == 1)
        return verbs_mr_allocate(device, 100, access, mr);
    return verbs_mr_register_dmabuf(device, 3, 0, 4096, 0x10000, access, mr);
}

/* The key that the peer was told is not the one that it may answer reads into. */
static void test_S13_reads_come_in_by_another_key(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    uint32_t before = fake.mrs;
    for (int how = 0; how < 3; how++) {
        for (uint32_t access = 0; access <= WEIR_ACCESS_ALL; access++) {
            bool writable = (access & WEIR_ACCESS_REMOTE_WRITE) != 0;
            struct weir_mr mr;
            assert_int_equal(get_region(device, how, access, &mr), 0);
            const struct verbs_mr *entry = entry_of(device, &mr);
            assert_int_equal(fake.mrs, before + (writable ? 1 : 2));
            assert_int_equal(exported_key(device, &mr), entry->ibv->rkey);
            assert_int_equal((fake_access_of(entry->ibv) & IBV_ACCESS_REMOTE_WRITE) != 0, writable);
            assert_int_equal((fake_access_of(entry->ibv) & IBV_ACCESS_REMOTE_READ) != 0,
                             (access & WEIR_ACCESS_REMOTE_READ) != 0);
            if (writable) {
                assert_int_equal(mr.lkey, entry->ibv->lkey);
            } else {
                assert_int_equal(mr.lkey, entry->sink->lkey);
                assert_int_not_equal(mr.lkey, exported_key(device, &mr));
                assert_int_equal(fake_access_of(entry->sink),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
            }
            assert_int_equal(verbs_mr_release(device, &mr), 0);
            assert_int_equal(fake.mrs, before);
        }
    }
    iwarp_close(device);
}

/* Memory that may only be read is a source, and no sink. */
static void test_S13_memory_that_may_only_be_read(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_mr mr;
    uint32_t before = fake.mrs;
    fake.forbidden_access = IBV_ACCESS_LOCAL_WRITE;
    assert_int_equal(get_region(device, 0, WEIR_ACCESS_REMOTE_READ, &mr), 0);
    assert_int_equal(fake.mrs, before + 1);
    assert_int_equal(mr.lkey, exported_key(device, &mr));
    assert_int_equal(verbs_mr_release(device, &mr), 0);
    assert_int_equal(get_region(device, 0, WEIR_ACCESS_REMOTE_WRITE, &mr), WEIR_EINVAL);
    fake.forbidden_access = 0;
    assert_int_equal(fake.mrs, before);
    iwarp_close(device);
}

/* No room for the second of the two: then there is no region, as none could be read into. */
static void test_S15_no_room_for_the_other_key(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_mr mr;
    uint32_t before = fake.mrs;
    fake.forbidden_access = IBV_ACCESS_REMOTE_WRITE;
    fake.forbidden_error = ENOMEM;
    for (int how = 0; how < 3; how++) {
        assert_int_equal(get_region(device, how, WEIR_ACCESS_REMOTE_READ, &mr), WEIR_ENOMEM);
        assert_int_equal(fake.mrs, before);
    }
    fake.forbidden_access = 0;
    iwarp_close(device);
}

/* Either of the two may refuse to go for a while; none goes twice. */
static void test_T4_release_fails_at_first(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    uint32_t before = fake.mrs;
    for (int which = 0; which < 2; which++) {
        struct weir_mr mr;
        assert_int_equal(get_region(device, 1, 0, &mr), 0);
        const struct verbs_mr *entry = entry_of(device, &mr);
        fake.dereg_refused = which == 0 ? entry->sink->lkey : entry->ibv->lkey;
        fake.dereg_error = EBUSY;
        for (int i = 0; i < 3; i++)
            assert_int_equal(verbs_mr_release(device, &mr), WEIR_EBUSY);
        assert_int_equal(fake.mrs, before + (which == 0 ? 2 : 1));
        fake.dereg_error = 0;
        assert_int_equal(verbs_mr_release(device, &mr), 0);
        assert_int_equal(fake.mrs, before);
    }
    iwarp_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S11_done_is_when_it_has_arrived),
        cmocka_unit_test(test_S2_any_batch_completes),
        cmocka_unit_test(test_S6_partial_post_every_index),
        cmocka_unit_test(test_S6_refused_because_it_failed),
        cmocka_unit_test(test_S6_refused_with_others_before_it),
        cmocka_unit_test(test_S1_first_error_is_told),
        cmocka_unit_test(test_S1_flush_is_told_before_its_cause),
        cmocka_unit_test(test_S11_success_before_the_error_counts),
        cmocka_unit_test(test_T6_disconnect_ends_one),
        cmocka_unit_test(test_T6_disconnect_after_an_error),
        cmocka_unit_test(test_S14_stale_completions),
        cmocka_unit_test(test_cq_never_overflows),
        cmocka_unit_test(test_S13_reads_come_in_by_another_key),
        cmocka_unit_test(test_S13_memory_that_may_only_be_read),
        cmocka_unit_test(test_S15_no_room_for_the_other_key),
        cmocka_unit_test(test_T4_release_fails_at_first),
    };
    return cmocka_run_group_tests_name("verbs_fence", tests, NULL, NULL);
}
