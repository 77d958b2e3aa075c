/* SPDX-License-Identifier: Apache-2.0 */
/* errors.c: a WR that fails, a QP in the error state, and what flushes when. */
#include "fixture.h"

#include <string.h>

/* The WR at index `bad` of a chain was refused by the target, which stopped the QP. In
 * order, those before are complete, and those after flushed without having touched
 * anything; without order, each other one may be either, and a flushed one may have
 * landed. Where failures are isolated nothing stops. */
static void expect_chain_error(struct fixture *f, const uint32_t *statuses, uint32_t bad) {
    for (uint32_t i = 0; i < SEND_DEPTH; i++) {
        const uint8_t landed = bytes_of(&f->b)[i * 8];
        if (!f->caps.blames) { /* who was first is not said, nor what had landed */
            assert_true(statuses[i] == WEIR_CQE_FLUSHED || statuses[i] == WEIR_CQE_DEVICE ||
                        (i < bad && statuses[i] == WEIR_CQE_OK));
            assert_true(i < bad ? !f->caps.ordered || landed == 0x33 : landed == 0);
        } else if (i == bad) {
            assert_int_equal(statuses[i], WEIR_CQE_REMOTE_ACCESS);
            assert_int_equal(landed, 0);
        } else if (f->caps.isolates) {
            assert_int_equal(statuses[i], WEIR_CQE_OK);
            assert_int_equal(landed, 0x33);
        } else if (f->caps.ordered) {
            assert_int_equal(statuses[i], i < bad ? WEIR_CQE_OK : WEIR_CQE_FLUSHED);
            assert_int_equal(landed, i < bad ? 0x33 : 0);
        } else if (statuses[i] == WEIR_CQE_OK) {
            assert_int_equal(landed, 0x33);
        } else {
            assert_int_equal(statuses[i], WEIR_CQE_FLUSHED);
        }
    }
}

/* S6: a chain in which the WR at index k fails, for every k. */
void test_S6_chain_error_every_index(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t k = 0; k < SEND_DEPTH; k++) {
        struct weir_wr wrs[SEND_DEPTH];
        uint32_t statuses[SEND_DEPTH];
        memset(bytes_of(&f.a), 0x33, SEND_DEPTH * 8);
        memset(bytes_of(&f.b), 0, SEND_DEPTH * 8);
        for (uint32_t i = 0; i < SEND_DEPTH; i++)
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 8, i * 8, 8);
        wrs[k].rkey ^= 1u << 31;
        run_wrs(&f, &f.a, wrs, SEND_DEPTH, statuses);
        expect_chain_error(&f, statuses, k);
        assert_no_cqe(&f, &f.a);
        remake_pair(&f);
    }
    fixture_close(&f);
}

/* T1: in the error state everything posted flushes, sends and receives; there is room
 * for sq_depth, and again once they were polled. */
void test_T1_error_flushes(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(post_recv(&f, &f.a, 100 + i, i), 0);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    bool seen[3] = {false};
    for (uint32_t i = 0; i < (f.caps.srq ? 0u : 3u); i++) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
        assert_in_range(cqe.wr_id, 100, 102);
        assert_false(seen[cqe.wr_id - 100]);
        seen[cqe.wr_id - 100] = true;
    }
    for (int round = 0; round < 3; round++) {
        struct weir_wr wrs[SEND_DEPTH];
        uint32_t statuses[SEND_DEPTH];
        for (uint32_t i = 0; i < SEND_DEPTH; i++)
            wrs[i] = make_wr(&f.a, (uint8_t)(i % 3), 0, 0, 8);
        run_wrs(&f, &f.a, wrs, SEND_DEPTH, statuses);
        for (uint32_t i = 0; i < SEND_DEPTH; i++)
            assert_int_equal(statuses[i], WEIR_CQE_FLUSHED);
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* The event by which a device that does not blame says that the side's QP has failed. */
static void wait_fatal(struct fixture *f, const struct side *side) {
    bool told = false;
    for (int i = 0; i < ROUNDS_MAX && !told; i++) {
        struct weir_async event;
        if (f->ops->events(side->device, &event, 1) == 1)
            told = event.type == WEIR_ASYNC_QP_FATAL && event.qp_tag == side->tag;
        else
            f->world->advance(f->world);
    }
    assert_true(told);
}

/* The other side's device tells this one, and writes land until it has. */
static void wait_told(struct fixture *f) {
    uint32_t status = WEIR_CQE_OK;
    for (int i = 0; i < ROUNDS_MAX && status == WEIR_CQE_OK; i++) {
        status = run_wr(f, &f->a, make_wr(&f->a, WEIR_OP_WRITE, 0, 0, 8));
        f->world->advance(f->world);
    }
    assert_int_equal(status, WEIR_CQE_RETRY);
}

/* A QP whose other side went to the error state, or is gone, finds out by its next
 * post, or soon. */
void test_peer_gone_is_retry(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (int how = 0; how < 2; how++) {
        struct weir_wr wrs[2] = {make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8),
                                 make_wr(&f.a, WEIR_OP_WRITE, 0, 8, 8)};
        uint32_t statuses[2];
        assert_int_equal(run_wr(&f, &f.a, wrs[0]), WEIR_CQE_OK);
        if (how == 0)
            assert_int_equal(f.ops->qp_error(f.b.qp), 0);
        else
            destroy_qp(&f, &f.b);
        if (!f.caps.blames)
            wait_fatal(&f, &f.a);
        if (f.world->devices_talk)
            wait_told(&f);
        run_wrs(&f, &f.a, wrs, 2, statuses);
        assert_ended(&f, statuses[0], WEIR_CQE_RETRY);
        assert_int_equal(statuses[1], f.caps.isolates ? WEIR_CQE_RETRY : WEIR_CQE_FLUSHED);
        remake_pair(&f);
    }
    fixture_close(&f);
}

/* S9: where failures are isolated, each WR ends as if it were alone, several times on one QP; and
 * in the error state what was sent ends as it would have, before the flush of what is posted behind
 * it. The QP is not given back before that. */
void test_S9_failures_are_isolated(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; f.caps.isolates && round < 20; round++) {
        struct weir_wr wrs[SEND_DEPTH];
        struct weir_post post;
        struct weir_cqe cqe;
        uint32_t bad = round % SEND_DEPTH, seen = 0;
        memset(bytes_of(&f.a), 0x33, SEND_DEPTH * 8);
        memset(bytes_of(&f.b), 0, SEND_DEPTH * 8);
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 8, i * 8, 8);
            wrs[i].wr_id = i;
        }
        wrs[bad].rkey ^= 1u << 31;
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, SEND_DEPTH - 1, &post), 0);
        assert_int_equal(post.accepted, SEND_DEPTH - 1);
        if (round % 2 == 1) {
            struct weir_wr beacon = {
                .wr_id = SEND_DEPTH - 1, .opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
            assert_int_equal(f.ops->qp_error(f.a.qp), 0);
            assert_int_equal(f.ops->post_send(f.a.qp, &beacon, 1, &post), 0);
            assert_int_equal(f.ops->qp_destroy(f.a.qp), WEIR_EBUSY);
        }
        for (; seen < SEND_DEPTH - 1; seen++) {
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_in_range(cqe.wr_id, 0, SEND_DEPTH - 2);
            assert_int_equal(cqe.status, cqe.wr_id == bad ? WEIR_CQE_REMOTE_ACCESS : WEIR_CQE_OK);
            assert_int_equal(bytes_of(&f.b)[cqe.wr_id * 8], cqe.wr_id == bad ? 0 : 0x33);
        }
        if (round % 2 == 1) {
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.wr_id, SEND_DEPTH - 1);
            assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
            remake_pair(&f);
        }
        assert_no_cqe(&f, &f.a);
    }
    fixture_close(&f);
}

/* A message that was sent before the receiver's error state is delivered; then the
 * other receives flush. */
void test_delivered_before_flushed(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(post_recv(&f, &f.b, 1, 0), 0);
    assert_int_equal(post_recv(&f, &f.b, 2, 1), 0);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8)), WEIR_CQE_OK);
    assert_int_equal(f.ops->qp_error(f.b.qp), 0);
    struct weir_cqe cqe;
    if (f.caps.srq) { /* then also before the flush of what is posted now */
        struct weir_wr beacon = {.wr_id = 3, .opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
        struct weir_post post;
        assert_int_equal(f.ops->post_send(f.b.qp, &beacon, 1, &post), 0);
    }
    assert_true(wait_cqe(&f, &f.b, &cqe));
    assert_int_equal(cqe.wr_id, 1);
    assert_int_equal(cqe.status, WEIR_CQE_OK);
    if (f.caps.srq) {
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.wr_id, 3);
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
    } else {
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.wr_id, 2);
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
    }
    fixture_close(&f);
}

/* Errors give a CQE, signalled or not: the failed WR, and each that flushes behind it. Success
 * of one before it gives none. */
void test_S6_unsignalled_errors_are_told(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t k = 0; k < SEND_DEPTH; k += 3) {
        struct weir_wr wrs[SEND_DEPTH];
        struct weir_post post;
        struct weir_cqe cqe;
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 8, i * 8, 8);
            wrs[i].wr_id = i;
            wrs[i].flags = 0;
        }
        wrs[k].rkey ^= 1u << 31;
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, SEND_DEPTH, &post), 0);
        assert_int_equal(post.accepted, SEND_DEPTH);
        assert_in_range(post.done, 0, k);
        if (!f.caps.blames) {
            wait_fatal(&f, &f.a);
            remake_pair(&f);
            continue;
        }
        for (uint32_t i = k; f.caps.ordered && i < SEND_DEPTH; i++) {
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.wr_id, i);
            assert_int_equal(cqe.status, i == k ? WEIR_CQE_REMOTE_ACCESS : WEIR_CQE_FLUSHED);
        }
        for (bool told = f.caps.ordered; !told;) { /* others may have succeeded, and say nothing */
            assert_true(wait_cqe(&f, &f.a, &cqe));
            told = cqe.wr_id == k;
            assert_int_equal(cqe.status, told ? WEIR_CQE_REMOTE_ACCESS : WEIR_CQE_FLUSHED);
        }
        if (f.caps.ordered)
            assert_no_cqe(&f, &f.a);
        drain(&f, &f.a);
        remake_pair(&f);
    }
    fixture_close(&f);
}

/* T1: WRs posted in the error state flush with a CQE each: signalled or not, in line, empty, of
 * every kind. */
void test_T1_unsignalled_flush(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    for (uint32_t round = 0; round < 3; round++) {
        struct weir_wr wrs[SEND_DEPTH];
        struct weir_post post = {77, 77};
        bool seen[SEND_DEPTH] = {false};
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            wrs[i] = make_wr(&f.a, (uint8_t)(i % 3), 0, 0, i % 4 == 0 ? 0 : 8);
            wrs[i].wr_id = i;
            wrs[i].flags = i % 5 == 0 ? WEIR_WR_SIGNALED : 0;
            if (wrs[i].opcode == WEIR_OP_WRITE && f.caps.inline_bytes_max >= 8)
                wrs[i].flags |= WEIR_WR_INLINE;
        }
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, SEND_DEPTH, &post), 0);
        assert_int_equal(post.accepted, SEND_DEPTH);
        assert_int_equal(post.done, 0);
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            struct weir_cqe cqe;
            assert_true(wait_cqe(&f, &f.a, &cqe));
            assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
            assert_in_range(cqe.wr_id, 0, SEND_DEPTH - 1);
            assert_false(seen[cqe.wr_id]);
            seen[cqe.wr_id] = true;
        }
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* T1: a QP's own receives that are posted in the error state flush, too, and hold no place
 * for longer than that. */
void test_T1_late_receives_flush(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(f.ops->qp_error(f.b.qp), 0);
    for (uint32_t i = 0; !f.caps.srq && i < 3 * RECV_DEPTH; i++) {
        struct weir_cqe cqe;
        assert_int_equal(post_recv(&f, &f.b, i, 0), 0);
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
        assert_int_equal(cqe.wr_id, i);
    }
    assert_no_cqe(&f, &f.b);
    fixture_close(&f);
}

/* T2: a QP goes to the error state from INIT, too: its receives flush, and posts are accepted
 * and flush. */
void test_T2_error_before_connect(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    destroy_qp(&f, &f.a);
    make_qp(&f, &f.a);
    assert_int_equal(post_recv(&f, &f.a, 7, 0), 0);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    if (!f.caps.srq) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
        assert_int_equal(cqe.wr_id, 7);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct weir_wr beacon = {.opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
        assert_int_equal(run_wr(&f, &f.a, beacon), WEIR_CQE_FLUSHED);
    }
    assert_int_equal(connect_qp(&f, &f.a, &f.b.granted), WEIR_EINVAL);
    fixture_close(&f);
}

/* Eight reads and writes of the QP, numbered from first, at places of their own. How many of
 * them will give a CQE. */
static uint32_t post_some(struct fixture *f, const struct side *side, uint32_t first) {
    struct weir_wr wrs[8];
    struct weir_post post;
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t at = 65536 * (uint64_t)(first / 10 + i + 1);
        wrs[i] = make_wr(side, (uint8_t)(i % 2), at, at, 30000);
        wrs[i].wr_id = first + i;
    }
    assert_int_equal(f->ops->post_send(side->qp, wrs, 8, &post), 0);
    assert_int_equal(post.accepted, 8);
    return 8 - post.done;
}

/* The next completion whose number is below 100. */
static struct weir_cqe wait_own(struct fixture *f, const struct side *side) {
    struct weir_cqe cqe;
    do
        assert_true(wait_cqe(f, side, &cqe));
    while (cqe.wr_id >= 100);
    return cqe;
}

/* T6: a QP that fails, or goes, takes nothing of another between the same devices with it. */
void test_T6_siblings_go_on(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t round = 0; round < 20; round++) {
        struct side c, d;
        make_sibling(&f, &c, &d);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(post_recv(&f, &f.b, 50, i), 0);
            if (!f.caps.srq)
                assert_int_equal(post_recv(&f, &d, 200, 4 + i), 0);
        }
        post_some(&f, &c, 100);
        uint32_t owed = post_some(&f, &f.a, 0);
        assert_int_equal(f.ops->qp_error(round % 2 == 0 ? c.qp : d.qp), 0);
        if (round % 4 >= 2)
            destroy_qp(&f, round % 2 == 0 ? &d : &c);
        for (; owed > 0; owed--)
            assert_int_equal(wait_own(&f, &f.a).status, WEIR_CQE_OK);
        for (uint32_t i = 0; i < 4; i++) {
            struct weir_post post;
            struct weir_wr wr = make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8);
            wr.wr_id = 20;
            assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
            if (post.done == 0)
                assert_int_equal(wait_own(&f, &f.a).status, WEIR_CQE_OK);
            struct weir_cqe cqe = wait_own(&f, &f.b);
            assert_int_equal(cqe.wr_id, 50);
            assert_int_equal(cqe.status, WEIR_CQE_OK);
        }
        destroy_qp(&f, &c);
        destroy_qp(&f, &d);
        assert_no_cqe(&f, &f.a);
        assert_no_cqe(&f, &f.b);
    }
    fixture_close(&f);
}

/* How often receivers were not ready, by the device's own count; 0 where it has none. */
static uint64_t not_ready(struct fixture *f) {
    struct weir_device_counts counts = {0};
    if (f->ops->counts == NULL || !f->ops->counts(f->a.device, &counts))
        return 0;
    return counts.not_ready;
}

/* Where the device counts that at all, it has counted. */
static void assert_counted(struct fixture *f, uint64_t before, uint32_t status) {
    uint64_t now = not_ready(f);
    if (status == WEIR_CQE_RNR && now > 0)
        assert_true(now > before);
    assert_true(now >= before);
    print_message("# the device counted %llu receivers that were not ready\n",
                  (unsigned long long)(now - before));
}

/* M2: a message that finds no receive waits, and is taken when there is one; where there is an
 * order, nothing that is behind it is done before. */
static void expect_wait(struct fixture *f) {
    const uint32_t count = f->caps.ordered ? 2 : 1;
    struct weir_wr wrs[2] = {make_wr(&f->a, WEIR_OP_SEND, 65536, 0, 8),
                             make_wr(&f->a, WEIR_OP_WRITE, 65536, 65536, 8)};
    struct weir_post post;
    struct weir_cqe cqe;
    fill(bytes_of(&f->a) + 65536, 8, 1);
    memset(bytes_of(&f->b) + 65536, 0x55, 8);
    assert_int_equal(f->ops->post_send(f->a.qp, wrs, count, &post), 0);
    settle(f);
    if (f->caps.ordered)
        assert_no_cqe(f, &f->a);
    assert_no_cqe(f, &f->b);
    assert_int_equal(bytes_of(&f->b)[65536], 0x55);
    assert_int_equal(post_recv(f, &f->b, 3, 0), 0);
    for (uint32_t i = 0; i < count; i++)
        assert_true(wait_cqe(f, &f->a, &cqe) && cqe.status == WEIR_CQE_OK);
    assert_true(wait_cqe(f, &f->b, &cqe) && cqe.wr_id == 3);
    uint64_t at = f->caps.ordered ? 65536 : 0; /* of the write, or of the message itself */
    assert_memory_equal(bytes_of(&f->b) + at, bytes_of(&f->a) + 65536, 8);
}

/* M2: a message that finds no receive fails its QP: receivers are not waited for for ever. */
void test_M2_no_receive_is_rnr(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    if (f.world->sends_wait) {
        expect_wait(&f);
        fixture_close(&f);
        return;
    }
    for (int round = 0; round < 2; round++) {
        struct weir_wr wrs[2] = {make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 8),
                                 make_wr(&f.a, WEIR_OP_WRITE, 65536, 65536, 8)};
        uint32_t statuses[2];
        uint64_t before = not_ready(&f);
        run_wrs(&f, &f.a, wrs, f.caps.ordered ? 2 : 1, statuses);
        assert_ended(&f, statuses[0], WEIR_CQE_RNR);
        assert_counted(&f, before, statuses[0]);
        if (f.caps.ordered)
            assert_ended(&f, statuses[1], WEIR_CQE_FLUSHED);
        remake_pair(&f);
        assert_int_equal(post_recv(&f, &f.b, 3, 0), 0);
        assert_int_equal(run_wr(&f, &f.a, wrs[0]), WEIR_CQE_OK);
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.b, &cqe));
        assert_int_equal(cqe.wr_id, 3);
    }
    fixture_close(&f);
}
