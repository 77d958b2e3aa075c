/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.c: the fixture of the conformance suite; see fixture.h.
 *
 * Owns no knowledge of any device: what differs is asked of the capabilities. */
#include "fixture.h"

#include <string.h>
#include <time.h>

/* Turns of the world that a connect may take: with a millisecond between two, a device of the real
 * world has minutes, and only one that hangs needs them. */
enum { SPINS = 100, PATIENCE = 300000 };

static uint8_t registered[2][REGION_BYTES];

/* ---- making and unmaking ---- */

void make_qp(struct fixture *f, struct side *side) {
    struct weir_qp_options options = {.tag = side->tag,
                                      .sq_depth = SEND_DEPTH,
                                      .rq_depth = f->caps.srq ? 0 : RECV_DEPTH,
                                      .recv_bytes_max = RECV_BYTES};
    assert_int_equal(f->ops->qp_create(side->device, &options, &side->granted, &side->qp), 0);
    assert_in_range(side->granted.sq_depth, SEND_DEPTH, DEPTH_MAX);
    assert_in_range(side->granted.blob_length, 0, WEIR_QP_BLOB_MAX);
}

static int begin(struct fixture *f, struct side *side, const struct weir_qp_granted *other,
                 bool crossing) {
    struct weir_qp_path path = {.mtu = f->caps.mtu_max,
                                .rd_atomic = f->caps.rd_atomic_max,
                                .psn_local = side->tag % 2 == 1 ? 100 : 200,
                                .psn_remote = side->tag % 2 == 1 ? 200 : 100,
                                .blob_length = other->blob_length,
                                .blob = other->blob,
                                .crossing = crossing};
    return f->ops->qp_connect(side->qp, &path);
}

void connect_crossing(struct fixture *f) {
    struct side *sides[2] = {&f->a, &f->b};
    int results[2];
    results[0] = begin(f, &f->a, &f->b.granted, true);
    results[1] = begin(f, &f->b, &f->a.granted, true);
    for (int patience = 0; patience < PATIENCE; patience++) {
        for (int i = 0; i < 2; i++) {
            struct weir_async event;
            if (f->ops->events(sides[i]->device, &event, 1) == 1 &&
                event.type == WEIR_ASYNC_CONNECTED && event.qp_tag == sides[i]->tag)
                results[i] = event.error;
        }
        if (results[0] != WEIR_EINPROGRESS && results[1] != WEIR_EINPROGRESS)
            break;
        f->world->advance(f->world);
        if (patience >= SPINS)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
}

int connect_qp(struct fixture *f, struct side *side, const struct weir_qp_granted *other) {
    int rc = begin(f, side, other, false);
    if (rc != WEIR_EINPROGRESS)
        return rc;
    struct weir_device *other_device = side->device == f->a.device ? f->b.device : f->a.device;
    for (int patience = 0; patience < PATIENCE; patience++) {
        struct weir_async event;
        while (f->ops->events(other_device, &event, 1) == 1) /* it may have to take the call */
            continue;
        while (f->ops->events(side->device, &event, 1) == 1) {
            if (event.type == WEIR_ASYNC_CONNECTED && event.qp_tag == side->tag)
                return event.error;
        }
        f->world->advance(f->world);
        if (patience >= SPINS) /* some resolve an address first */
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    fail_msg("a connect never ended");
    return WEIR_EDEVICE;
}

struct weir_rmr import_mr(struct fixture *f, struct side *owner, struct side *user,
                          const struct weir_mr *mr, uint32_t access) {
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length = 0;
    struct weir_rmr remote;
    assert_int_equal(f->ops->mr_export(owner->device, mr, blob, &length), 0);
    assert_in_range(length, 0, WEIR_MR_BLOB_MAX);
    assert_int_equal(
        f->ops->mr_import(user->device, blob, length, mr->length, access, 1000, &remote), 0);
    if (f->ops->import_populate != NULL)
        f->ops->import_populate(user->device, &remote);
    return remote;
}

void forget_mr(struct fixture *f, struct side *user, const struct weir_rmr *remote) {
    if (f->ops->import_unmap != NULL)
        f->ops->import_unmap(user->device, remote);
    f->ops->mr_forget(user->device, remote);
}

void make_pair(struct fixture *f) {
    make_qp(f, &f->a);
    make_qp(f, &f->b);
    assert_int_equal(connect_qp(f, &f->b, &f->a.granted), 0);
    assert_int_equal(connect_qp(f, &f->a, &f->b.granted), 0);
}

void destroy_qp(struct fixture *f, struct side *side) {
    int rc = WEIR_EBUSY;
    for (int i = 0; side->qp != NULL && i < ROUNDS_MAX && rc != 0; i++) {
        rc = f->ops->qp_destroy(side->qp);
        assert_true(rc == 0 || rc == WEIR_EBUSY || rc == WEIR_EDEVICE);
        struct weir_async event; /* the other device may have to answer its call first */
        if (rc != 0)
            (void)f->ops->events(side->device == f->a.device ? f->b.device : f->a.device, &event,
                                 1);
        f->world->advance(f->world);
    }
    if (side->qp != NULL)
        assert_int_equal(rc, 0);
    side->qp = NULL;
}

void remake_pair(struct fixture *f) {
    destroy_qp(f, &f->a);
    destroy_qp(f, &f->b);
    make_pair(f);
}

void make_sibling(struct fixture *f, struct side *a_out, struct side *b_out) {
    *a_out = f->a;
    *b_out = f->b;
    a_out->tag = 3;
    b_out->tag = 4;
    make_qp(f, a_out);
    make_qp(f, b_out);
    assert_int_equal(connect_qp(f, b_out, &a_out->granted), 0);
    assert_int_equal(connect_qp(f, a_out, &b_out->granted), 0);
}

struct weir_mr make_mr(struct fixture *f, struct side *side, void *memory, uint64_t length,
                       uint32_t access, bool is_allocated) {
    struct weir_mr mr;
    int rc = is_allocated ? f->ops->mr_allocate(side->device, length, access, &mr)
                          : f->ops->mr_register(side->device, memory, length, access, &mr);
    assert_int_equal(rc, 0);
    assert_int_equal(mr.length, length);
    if (is_allocated)
        assert_non_null(mr.base);
    else
        assert_ptr_equal(mr.base, memory);
    return mr;
}

void release_mr(struct fixture *f, struct weir_device *device, const struct weir_mr *mr) {
    int rc = WEIR_EBUSY;
    for (int patience = 0; patience < PATIENCE && rc == WEIR_EBUSY; patience++)
        rc = f->ops->mr_release(device, mr);
    assert_int_equal(rc, 0);
}

void fixture_open(struct fixture *f, void **state, bool is_allocated) {
    memset(f, 0, sizeof *f);
    f->world = *state;
    f->ops = f->world->ops;
    f->a.tag = 1;
    f->b.tag = 2;
    assert_int_equal(f->world->open(f->world, &f->a.device, &f->b.device), 0);
    f->ops->query(f->a.device, &f->caps);
    struct side *sides[2] = {&f->a, &f->b};
    for (int i = 0; i < 2; i++) {
        sides[i]->mr =
            make_mr(f, sides[i], registered[i], REGION_BYTES, WEIR_ACCESS_ALL, is_allocated);
    }
    f->a.remote = import_mr(f, &f->b, &f->a, &f->b.mr, WEIR_ACCESS_ALL);
    f->b.remote = import_mr(f, &f->a, &f->b, &f->a.mr, WEIR_ACCESS_ALL);
    make_pair(f);
}

void fixture_close(struct fixture *f) {
    destroy_qp(f, &f->a);
    destroy_qp(f, &f->b);
    forget_mr(f, &f->a, &f->a.remote);
    forget_mr(f, &f->b, &f->b.remote);
    release_mr(f, f->a.device, &f->a.mr);
    release_mr(f, f->b.device, &f->b.mr);
    f->world->close(f->world);
}

/* ---- doing ---- */

uint8_t *bytes_of(const struct side *side) {
    return side->mr.base;
}

struct weir_wr make_wr(const struct side *side, uint8_t opcode, uint64_t local, uint64_t remote,
                       uint64_t length) {
    return (struct weir_wr){.laddr = (uint64_t)(uintptr_t)side->mr.base + local,
                            .raddr = side->remote.raddr + remote,
                            .length = length,
                            .lkey = side->mr.lkey,
                            .rkey = side->remote.rkey,
                            .opcode = opcode,
                            .flags = WEIR_WR_SIGNALED};
}

bool wait_cqe(struct fixture *f, const struct side *side, struct weir_cqe *cqe) {
    for (int i = 0; i < ROUNDS_MAX; i++) {
        int got = f->ops->poll(side->device, cqe, 1);
        assert_in_range(got, 0, 1);
        if (got == 1)
            return true;
        f->world->advance(f->world);
    }
    return false;
}

void assert_no_cqe(struct fixture *f, const struct side *side) {
    struct weir_cqe cqe;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(f->ops->poll(side->device, &cqe, 1), 0);
        f->world->advance(f->world);
    }
}

void drain(struct fixture *f, const struct side *side) {
    struct weir_cqe cqe;
    for (int idle = 0; idle < 100; idle++) {
        if (f->ops->poll(side->device, &cqe, 1) == 1)
            idle = 0;
        f->world->advance(f->world);
    }
}

void settle(struct fixture *f) {
    for (int i = 0; i < 100; i++)
        f->world->advance(f->world);
}

void run_wrs(struct fixture *f, const struct side *side, struct weir_wr *wrs, uint32_t count,
             uint32_t *statuses) {
    for (uint32_t i = 0; i < count; i++) {
        wrs[i].wr_id = i;
        statuses[i] = PENDING;
    }
    struct weir_post post = {77, 77};
    assert_int_equal(f->ops->post_send(side->qp, wrs, count, &post), 0);
    assert_int_equal(post.accepted, count);
    assert_in_range(post.done, 0, count);
    if (!f->caps.completes_inline)
        assert_int_equal(post.done, 0);
    for (uint32_t i = 0; i < post.done; i++)
        statuses[i] = WEIR_CQE_OK;
    for (uint32_t i = post.done; i < count; i++) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(f, side, &cqe));
        assert_false(cqe.recv && cqe.status == WEIR_CQE_OK);
        assert_in_range(cqe.wr_id, 0, count - 1);
        assert_int_equal(statuses[cqe.wr_id], PENDING);
        if (f->caps.ordered)
            assert_int_equal(cqe.wr_id, i);
        statuses[cqe.wr_id] = cqe.status;
    }
}

uint32_t run_wr(struct fixture *f, const struct side *side, struct weir_wr wr) {
    uint32_t status;
    run_wrs(f, side, &wr, 1, &status);
    return status;
}

int post_recv(struct fixture *f, const struct side *side, uint64_t wr_id, uint32_t slot) {
    return f->ops->post_recv(side->device, f->caps.srq ? NULL : side->qp, wr_id,
                             bytes_of(side) + slot * RECV_BYTES, RECV_BYTES, side->mr.lkey);
}

void fill(uint8_t *bytes, uint64_t length, uint32_t seed) {
    for (uint64_t i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

void expect_denied(struct fixture *f, struct weir_wr wr) {
    if (wr.opcode == WEIR_OP_READ && f->world->reads_unchecked)
        assert_int_equal(run_wr(f, &f->a, wr), WEIR_CQE_OK);
    else
        expect_failure(f, wr, WEIR_CQE_REMOTE_ACCESS);
}

void assert_ended(const struct fixture *f, uint32_t is, uint32_t status) {
    if (f->caps.blames)
        assert_int_equal(is, status);
    else
        assert_true(is == WEIR_CQE_FLUSHED || is == WEIR_CQE_DEVICE);
}

void expect_failure(struct fixture *f, struct weir_wr wr, uint32_t status) {
    uint8_t before[256];
    bool packets = !f->caps.blames || (status == WEIR_CQE_LOCAL_PROT && f->caps.mtu_max != 0);
    memcpy(before, bytes_of(&f->b), sizeof before);
    uint32_t is = run_wr(f, &f->a, wr);
    if (!packets || (is != WEIR_CQE_FLUSHED && is != WEIR_CQE_DEVICE))
        assert_int_equal(is, status);
    if (!packets || wr.length <= f->caps.mtu_max)
        assert_memory_equal(bytes_of(&f->b), before, sizeof before);
    struct weir_wr good = make_wr(&f->a, WEIR_OP_WRITE, 0, 0, 8);
    assert_int_equal(run_wr(f, &f->a, good), f->caps.isolates ? WEIR_CQE_OK : WEIR_CQE_FLUSHED);
    remake_pair(f);
}

void expect_released(struct fixture *f, struct weir_wr wr, const struct weir_rmr *rmr) {
    if (f->ops->mr_is_gone == NULL || !f->ops->mr_is_gone(f->a.device, rmr)) {
        expect_failure(f, wr, WEIR_CQE_REMOTE_ACCESS);
        return;
    }
    uint8_t before[256];
    struct weir_wr good = make_wr(&f->a, WEIR_OP_WRITE, 0, 0, 8);
    memcpy(before, bytes_of(&f->b), sizeof before);
    struct weir_post post = {77, 77};
    assert_int_equal(f->ops->post_send(f->a.qp, &wr, 1, &post), WEIR_ESTALE);
    assert_int_equal(post.accepted, 0);
    assert_int_equal(post.done, 0);
    assert_memory_equal(bytes_of(&f->b), before, sizeof before);
    struct weir_wr both[2] = {good, wr};
    both[0].flags |= WEIR_WR_SIGNALED;
    assert_int_equal(f->ops->post_send(f->a.qp, both, 2, &post), WEIR_ESTALE);
    assert_int_equal(post.accepted, 1);
    struct weir_cqe cqe;
    if (post.done == 0) {
        assert_true(wait_cqe(f, &f->a, &cqe));
        assert_int_equal(cqe.status, WEIR_CQE_OK);
    }
    assert_int_equal(run_wr(f, &f->a, good), WEIR_CQE_OK);
}
