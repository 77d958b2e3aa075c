/* conformance.c: what ports.h says of devices, as tests; see conformance.h.
 *
 * Owns no knowledge of any device: what differs is asked of the capabilities.
 * A device may complete a WR in the post (`done`) or later with a CQE, so every
 * test looks at outcomes through run_wrs, which takes either. The file
 * is long because every test needs the fixture and none needs anything else. */
#include "conformance.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define REGION_BYTES ((uint64_t)3 << 20)
#define RECV_BYTES   320u
#define RECV_DEPTH   8u
#define SEND_DEPTH   16u
#define ROUNDS_MAX   100000  /* of poll and advance, before something is called lost */
#define PENDING      0xffffu /* no outcome yet */

/* One device with one region and one QP. Receives lie at the region's start. */
struct side {
    struct weir_device *device;
    struct weir_mr mr;
    struct weir_rmr remote; /* the other side's mr */
    struct weir_qp *qp;
    struct weir_qp_granted granted;
};

struct fixture {
    struct conformance_world *world;
    const struct weir_device_ops *ops;
    struct weir_device_caps caps;
    struct side a, b;
};

static uint8_t registered[2][REGION_BYTES];

/* ---- making and unmaking ---- */

static void make_qp(struct fixture *f, struct side *side) {
    struct weir_qp_options options = {.tag = side == &f->a ? 1 : 2,
                                      .sq_depth = SEND_DEPTH,
                                      .rq_depth = f->caps.srq ? 0 : RECV_DEPTH,
                                      .recv_bytes_max = RECV_BYTES};
    assert_int_equal(f->ops->qp_create(side->device, &options, &side->granted, &side->qp), 0);
    assert_true(side->granted.sq_depth >= SEND_DEPTH);
}

static int connect_qp(struct fixture *f, struct side *side, const struct weir_qp_granted *other) {
    struct weir_qp_path path = {.mtu = f->caps.mtu_max,
                                .rd_atomic = f->caps.rd_atomic_max,
                                .psn_local = side == &f->a ? 100 : 200,
                                .psn_remote = side == &f->a ? 200 : 100,
                                .blob_length = other->blob_length,
                                .blob = other->blob};
    int rc = f->ops->qp_connect(side->qp, &path);
    if (rc != WEIR_EINPROGRESS)
        return rc;
    uint32_t tag = side == &f->a ? 1 : 2;
    for (int patience = 0; patience < 20000; patience++) {
        struct weir_async event;
        while (f->ops->events(side->device, &event, 1) == 1) {
            if (event.type == WEIR_ASYNC_CONNECTED && event.qp_tag == tag)
                return event.error;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    fail_msg("a connect never ended");
    return WEIR_EDEVICE;
}

static struct weir_rmr import_mr(struct fixture *f, struct side *owner, struct side *user,
                                 const struct weir_mr *mr, uint32_t access) {
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length = 0;
    struct weir_rmr remote;
    assert_int_equal(f->ops->mr_export(owner->device, mr, blob, &length), 0);
    assert_in_range(length, 0, WEIR_MR_BLOB_MAX);
    assert_int_equal(f->ops->mr_import(user->device, blob, length, mr->length, access, &remote), 0);
    return remote;
}

static void make_pair(struct fixture *f) {
    make_qp(f, &f->a);
    make_qp(f, &f->b);
    assert_int_equal(connect_qp(f, &f->b, &f->a.granted), 0);
    assert_int_equal(connect_qp(f, &f->a, &f->b.granted), 0);
}

static void destroy_qp(struct fixture *f, struct side *side) {
    int rc = WEIR_EBUSY;
    for (int i = 0; side->qp != NULL && i < ROUNDS_MAX && rc != 0; i++) {
        rc = f->ops->qp_destroy(side->qp);
        f->world->advance(f->world);
    }
    if (side->qp != NULL)
        assert_int_equal(rc, 0);
    side->qp = NULL;
}

static void fixture_open(struct fixture *f, void **state, bool is_allocated) {
    memset(f, 0, sizeof *f);
    f->world = *state;
    f->ops = f->world->ops;
    assert_int_equal(f->world->open(f->world, &f->a.device, &f->b.device), 0);
    f->ops->query(f->a.device, &f->caps);
    struct side *sides[2] = {&f->a, &f->b};
    for (int i = 0; i < 2; i++) {
        int rc = is_allocated ? f->ops->mr_allocate(sides[i]->device, REGION_BYTES, WEIR_ACCESS_ALL,
                                                    &sides[i]->mr)
                              : f->ops->mr_register(sides[i]->device, registered[i], REGION_BYTES,
                                                    WEIR_ACCESS_ALL, &sides[i]->mr);
        assert_int_equal(rc, 0);
    }
    f->a.remote = import_mr(f, &f->b, &f->a, &f->b.mr, WEIR_ACCESS_ALL);
    f->b.remote = import_mr(f, &f->a, &f->b, &f->a.mr, WEIR_ACCESS_ALL);
    make_pair(f);
}

static void fixture_close(struct fixture *f) {
    destroy_qp(f, &f->a);
    destroy_qp(f, &f->b);
    f->ops->mr_forget(f->a.device, &f->a.remote);
    f->ops->mr_forget(f->b.device, &f->b.remote);
    assert_int_equal(f->ops->mr_release(f->a.device, &f->a.mr), 0);
    assert_int_equal(f->ops->mr_release(f->b.device, &f->b.mr), 0);
    f->world->close(f->world);
}

/* ---- doing ---- */

static uint8_t *bytes_of(const struct side *side) {
    return side->mr.base;
}

static struct weir_wr make_wr(const struct side *side, uint8_t opcode, uint64_t local,
                              uint64_t remote, uint64_t length) {
    return (struct weir_wr){.laddr = (uint64_t)(uintptr_t)side->mr.base + local,
                            .raddr = side->remote.raddr + remote,
                            .length = length,
                            .lkey = side->mr.lkey,
                            .rkey = side->remote.rkey,
                            .opcode = opcode,
                            .flags = WEIR_WR_SIGNALED};
}

/* Polls until one completion came; false: none will. */
static bool wait_cqe(struct fixture *f, const struct side *side, struct weir_cqe *cqe) {
    for (int i = 0; i < ROUNDS_MAX; i++) {
        int got = f->ops->poll(side->device, cqe, 1);
        assert_in_range(got, 0, 1);
        if (got == 1)
            return true;
        f->world->advance(f->world);
    }
    return false;
}

static void assert_no_cqe(struct fixture *f, const struct side *side) {
    struct weir_cqe cqe;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(f->ops->poll(side->device, &cqe, 1), 0);
        f->world->advance(f->world);
    }
}

/* Posts signalled WRs as one chain and takes their outcomes, in the order of the
 * chain on ordered devices. All must be accepted. */
static void run_wrs(struct fixture *f, const struct side *side, struct weir_wr *wrs, uint32_t count,
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

static uint32_t run_wr(struct fixture *f, const struct side *side, struct weir_wr wr) {
    uint32_t status;
    run_wrs(f, side, &wr, 1, &status);
    return status;
}

static int post_recv(struct fixture *f, const struct side *side, uint64_t wr_id, uint32_t slot) {
    return f->ops->post_recv(side->device, f->caps.srq ? NULL : side->qp, wr_id,
                             bytes_of(side) + slot * RECV_BYTES, RECV_BYTES, side->mr.lkey);
}

static void fill(uint8_t *bytes, uint64_t length, uint32_t seed) {
    for (uint64_t i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

/* ---- data ---- */

static const uint64_t sizes[] = {
    0,    1,    2,     3,     7,     8,     9,     15,      16,      17,
    31,   33,   63,    64,    65,    255,   256,   257,     4095,    4096,
    4097, 8192, 16383, 16384, 16385, 65536, 65537, 1048575, 1048576, 1048577,
};

/* Every size, at several alignments; bytes around the target stay as they were. */
static void move_sizes(void **state, uint8_t opcode, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    uint8_t *from = opcode == WEIR_OP_WRITE ? bytes_of(&f.a) : bytes_of(&f.b);
    uint8_t *to = opcode == WEIR_OP_WRITE ? bytes_of(&f.b) : bytes_of(&f.a);
    static const uint64_t shifts[][2] = {{0, 0}, {1, 0}, {0, 1}, {13, 29}, {64, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof shifts / sizeof shifts[0]; j++) {
            uint64_t length = sizes[i], at_from = 4096 + shifts[j][0], at_to = 8192 + shifts[j][1];
            bool is_write = opcode == WEIR_OP_WRITE;
            fill(from + at_from, length, (uint32_t)(i * 8 + j));
            memset(to + at_to - 64, 0xa5, 64);
            memset(to + at_to + length, 0xa5, 64);
            struct weir_wr wr = make_wr(&f.a, opcode, is_write ? at_from : at_to,
                                        is_write ? at_to : at_from, length);
            assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
            assert_memory_equal(to + at_to, from + at_from, length);
            for (int k = 0; k < 64; k++) {
                assert_int_equal(to[at_to - 64 + (uint64_t)k], 0xa5);
                assert_int_equal(to[at_to + length + (uint64_t)k], 0xa5);
            }
        }
    }
    assert_no_cqe(&f, &f.a);
    assert_no_cqe(&f, &f.b);
    fixture_close(&f);
}

static void test_write_sizes_allocated(void **state) {
    move_sizes(state, WEIR_OP_WRITE, true);
}

static void test_write_sizes_registered(void **state) {
    move_sizes(state, WEIR_OP_WRITE, false);
}

static void test_read_sizes_allocated(void **state) {
    move_sizes(state, WEIR_OP_READ, true);
}

static void test_read_sizes_registered(void **state) {
    move_sizes(state, WEIR_OP_READ, false);
}

/* S2: chains of every length up to the depth; each WR lands in its place. */
static void chain_lengths(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    for (uint32_t count = 1; count <= SEND_DEPTH; count++) {
        struct weir_wr wrs[SEND_DEPTH];
        uint32_t statuses[SEND_DEPTH];
        fill(bytes_of(&f.a), SEND_DEPTH * 100, count);
        memset(bytes_of(&f.b), 0, SEND_DEPTH * 200);
        for (uint32_t i = 0; i < count; i++) /* lengths 8 and others in one chain */
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, i * 100, i * 200, i % 3 == 0 ? 40 + i : 8);
        run_wrs(&f, &f.a, wrs, count, statuses);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(statuses[i], WEIR_CQE_OK);
            assert_memory_equal(bytes_of(&f.b) + i * 200, bytes_of(&f.a) + i * 100, wrs[i].length);
            assert_int_equal(bytes_of(&f.b)[i * 200 + wrs[i].length], 0);
        }
    }
    fixture_close(&f);
}

static void test_S2_chain_lengths_allocated(void **state) {
    chain_lengths(state, true);
}

static void test_S2_chain_lengths_registered(void **state) {
    chain_lengths(state, false);
}

/* Success of an unsignalled WR gives no CQE; the signalled one behind it does, or
 * both are done in the post. */
static void test_unsignalled_gives_no_cqe(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_wr wrs[2] = {make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 64),
                             make_wr(&f.a, WEIR_OP_WRITE, 64, 64, 64)};
    wrs[0].wr_id = 10;
    wrs[0].flags = 0;
    wrs[1].wr_id = 11;
    struct weir_post post;
    assert_int_equal(f.ops->post_send(f.a.qp, wrs, 2, &post), 0);
    assert_int_equal(post.accepted, 2);
    if (post.done < 2) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.wr_id, 11);
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

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
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        make_pair(&f);
    }
    fixture_close(&f);
}

static void test_pieces_allocated(void **state) {
    pieces(state, true);
}

static void test_pieces_registered(void **state) {
    pieces(state, false);
}

/* A zero-length write touches nothing and needs no keys. */
static void test_S7_empty_write_needs_no_keys(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_wr wr = {.opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
    assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    wr.lkey = wr.rkey = UINT32_MAX;
    wr.laddr = wr.raddr = UINT64_MAX;
    assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    fixture_close(&f);
}

/* ---- rights and bounds ---- */

/* A failed WR: its status, both QPs are made again, the target is as it was. Where there
 * are packets, a write whose source turns out bad on the way has sent those before, and a
 * driver (Soft-RoCE of Linux 6.12) may tell of a bad source as of any other flushed WR, or of an
 * operation that failed. */
static void expect_failure(struct fixture *f, struct weir_wr wr, uint32_t status) {
    uint8_t before[256];
    bool packets = status == WEIR_CQE_LOCAL_PROT && f->caps.mtu_max != 0;
    memcpy(before, bytes_of(&f->b), sizeof before);
    uint32_t is = run_wr(f, &f->a, wr);
    if (!packets || (is != WEIR_CQE_FLUSHED && is != WEIR_CQE_DEVICE))
        assert_int_equal(is, status);
    if (!packets || wr.length <= f->caps.mtu_max)
        assert_memory_equal(bytes_of(&f->b), before, sizeof before);
    struct weir_wr good = make_wr(&f->a, WEIR_OP_WRITE, 0, 0, 8);
    assert_int_equal(run_wr(f, &f->a, good), WEIR_CQE_FLUSHED);
    destroy_qp(f, &f->a);
    destroy_qp(f, &f->b);
    make_pair(f);
}

static void bounds(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    static const uint64_t offsets[] = {REGION_BYTES - 7, REGION_BYTES, (uint64_t)-1, (uint64_t)-8,
                                       (uint64_t)1 << 63};
    memset(bytes_of(&f.a), 0x11, 256);
    memset(bytes_of(&f.b), 0x22, 256);
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_READ; opcode++) {
            expect_failure(&f, make_wr(&f.a, opcode, 0, offsets[i], 8), WEIR_CQE_REMOTE_ACCESS);
            expect_failure(&f, make_wr(&f.a, opcode, offsets[i], 0, 8), WEIR_CQE_LOCAL_PROT);
        }
    }
    expect_failure(&f, make_wr(&f.a, WEIR_OP_WRITE, 1, 0, REGION_BYTES), WEIR_CQE_LOCAL_PROT);
    expect_failure(&f, make_wr(&f.a, WEIR_OP_WRITE, 0, 1, REGION_BYTES), WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, REGION_BYTES - 8, 8)),
                     WEIR_CQE_OK);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, REGION_BYTES)),
                     WEIR_CQE_OK);
    fixture_close(&f);
}

static void test_S15_bounds_allocated(void **state) {
    bounds(state, true);
}

static void test_S15_bounds_registered(void **state) {
    bounds(state, false);
}

static void test_bad_keys(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (uint32_t bit = 0; bit < 32; bit++) {
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
        wr.rkey ^= 1u << bit;
        expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
        wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
        wr.lkey ^= 1u << bit;
        expect_failure(&f, wr, WEIR_CQE_LOCAL_PROT);
    }
    struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
    wr.rkey = 0;
    expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
    fixture_close(&f);
}

static void rights(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    static uint8_t extra[4096];
    for (uint32_t access = WEIR_ACCESS_REMOTE_READ; access <= WEIR_ACCESS_REMOTE_WRITE; access++) {
        struct weir_mr mr;
        int rc = is_allocated ? f.ops->mr_allocate(f.b.device, sizeof extra, access, &mr)
                              : f.ops->mr_register(f.b.device, extra, sizeof extra, access, &mr);
        assert_int_equal(rc, 0);
        struct weir_rmr remote = import_mr(&f, &f.b, &f.a, &mr, access);
        for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_READ; opcode++) {
            bool is_allowed = (opcode == WEIR_OP_READ) == (access == WEIR_ACCESS_REMOTE_READ);
            struct weir_wr wr = make_wr(&f.a, opcode, 0, 0, 64);
            wr.rkey = remote.rkey;
            wr.raddr = remote.raddr;
            if (is_allowed)
                assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
            else
                expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
        }
        f.ops->mr_forget(f.a.device, &remote);
        assert_int_equal(f.ops->mr_release(f.b.device, &mr), 0);
    }
    fixture_close(&f);
}

static void test_rights_allocated(void **state) {
    rights(state, true);
}

static void test_rights_registered(void **state) {
    rights(state, false);
}

/* After a release every operation on the region fails; so does one with a key that was
 * forgotten, on devices that touch the target's memory themselves (elsewhere keys are the
 * target's). Another import of the same region is not touched by forgetting. */
static void release(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, is_allocated);
    static uint8_t extra[65536];
    for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_READ; opcode++) {
        struct weir_mr mr;
        int rc = is_allocated
                     ? f.ops->mr_allocate(f.b.device, sizeof extra, WEIR_ACCESS_ALL, &mr)
                     : f.ops->mr_register(f.b.device, extra, sizeof extra, WEIR_ACCESS_ALL, &mr);
        assert_int_equal(rc, 0);
        struct weir_rmr first = import_mr(&f, &f.b, &f.a, &mr, WEIR_ACCESS_ALL);
        struct weir_rmr second = import_mr(&f, &f.b, &f.a, &mr, WEIR_ACCESS_ALL);
        struct weir_wr wr = make_wr(&f.a, opcode, 0, 0, 8);
        wr.rkey = first.rkey;
        wr.raddr = first.raddr;
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
        f.ops->mr_forget(f.a.device, &first);
        if (f.caps.completes_inline)
            expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
        wr.rkey = second.rkey;
        wr.raddr = second.raddr;
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
        assert_int_equal(f.ops->mr_release(f.b.device, &mr), 0);
        weir_segment segment = {.length = 8};
        struct weir_span piece = {.laddr = wr.laddr,
                                  .raddr = wr.raddr,
                                  .lkey = wr.lkey,
                                  .rkey = wr.rkey,
                                  .opcode = opcode};
        assert_int_equal(f.ops->post_pieces(f.a.qp, &piece, &segment, 1), 0);
        expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
        wr.length = 65536;
        expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
        f.ops->mr_forget(f.a.device, &second);
    }
    fixture_close(&f);
}

static void test_release_allocated(void **state) {
    release(state, true);
}

static void test_release_registered(void **state) {
    release(state, false);
}

/* ---- errors ---- */

/* The WR at index `bad` of a chain was refused by the target, which stopped the QP. In
 * order, those before are complete, and those after flushed without having touched
 * anything; without order, each other one may be either, and a flushed one may have
 * landed. */
static void expect_chain_error(struct fixture *f, const uint32_t *statuses, uint32_t bad) {
    for (uint32_t i = 0; i < SEND_DEPTH; i++) {
        const uint8_t landed = bytes_of(&f->b)[i * 8];
        if (i == bad) {
            assert_int_equal(statuses[i], WEIR_CQE_REMOTE_ACCESS);
            assert_int_equal(landed, 0);
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
static void test_S6_chain_error_every_index(void **state) {
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
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        make_pair(&f);
    }
    fixture_close(&f);
}

/* T1: in the error state everything posted flushes, sends and receives; there is room
 * for sq_depth, and again once they were polled. */
static void test_T1_error_flushes(void **state) {
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

/* S1: no more is accepted than can be told of: unpolled WRs fill the send queue. */
static void test_S1_full_queue_is_eagain(void **state) {
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

/* A QP whose other side went to the error state, or is gone, finds out by its next
 * post. */
static void test_peer_gone_is_retry(void **state) {
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
        run_wrs(&f, &f.a, wrs, 2, statuses);
        assert_int_equal(statuses[0], WEIR_CQE_RETRY);
        assert_int_equal(statuses[1], WEIR_CQE_FLUSHED);
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        make_pair(&f);
    }
    fixture_close(&f);
}

/* T8: after a destroy nothing of the QP comes any more, whatever was outstanding. */
static void test_T8_destroy_is_final(void **state) {
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

static void test_calls_that_are_refused(void **state) {
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

/* ---- messages ---- */

static void test_M2_messages_of_all_sizes(void **state) {
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
static void test_inline_payload(void **state) {
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
static void test_ordered_write_before_message(void **state) {
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
static void test_M2_receives_are_credits(void **state) {
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
    if (!f.caps.srq)
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8)), WEIR_CQE_RNR);
    fixture_close(&f);
}

/* A message that was sent before the receiver's error state is delivered; then the
 * other receives flush. */
static void test_delivered_before_flushed(void **state) {
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

static void test_message_too_long(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(post_recv(&f, &f.b, 1, 0), 0);
    uint32_t status = run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, RECV_BYTES + 1));
    assert_true(status == WEIR_CQE_LENGTH || status == WEIR_CQE_REMOTE_ACCESS ||
                status == WEIR_CQE_DEVICE); /* a NAK of "remote operational error" */
    fixture_close(&f);
}

/* ---- blobs ---- */

/* H13: every byte of both blobs damaged in several ways, and every length: an error
 * or, where the byte does not matter, success; never a crash. */
static void test_H13_damaged_blobs(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length = 0;
    assert_int_equal(f.ops->mr_export(f.b.device, &f.b.mr, blob, &length), 0);
    for (uint32_t at = 0; at < length; at++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct weir_rmr remote;
            blob[at] ^= flips[k];
            if (f.ops->mr_import(f.a.device, blob, length, REGION_BYTES, 3, &remote) == 0)
                f.ops->mr_forget(f.a.device, &remote);
            blob[at] ^= flips[k];
        }
        struct weir_rmr remote;
        assert_int_not_equal(f.ops->mr_import(f.a.device, blob, at, REGION_BYTES, 3, &remote), 0);
    }
    struct weir_qp_granted good = f.b.granted;
    for (uint32_t at = 0; at < good.blob_length; at++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct weir_qp_granted bad = good;
            bad.blob[at] ^= flips[k];
            destroy_qp(&f, &f.a);
            make_qp(&f, &f.a);
            (void)connect_qp(&f, &f.a, &bad);
        }
        struct weir_qp_granted cut = good;
        cut.blob_length = at;
        destroy_qp(&f, &f.a);
        make_qp(&f, &f.a);
        assert_int_equal(connect_qp(&f, &f.a, &cut), WEIR_EINVAL);
    }
    fixture_close(&f);
}

/* A descriptor that claims more than was registered is refused. */
static void test_import_claims_too_much(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (int is_allocated = 0; is_allocated < 2; is_allocated++) {
        static uint8_t extra[4096];
        struct weir_mr mr;
        int rc = is_allocated
                     ? f.ops->mr_allocate(f.b.device, 4096, WEIR_ACCESS_REMOTE_READ, &mr)
                     : f.ops->mr_register(f.b.device, extra, 4096, WEIR_ACCESS_REMOTE_READ, &mr);
        assert_int_equal(rc, 0);
        uint8_t blob[WEIR_MR_BLOB_MAX];
        uint32_t length = 0;
        struct weir_rmr remote;
        assert_int_equal(f.ops->mr_export(f.b.device, &mr, blob, &length), 0);
        assert_int_not_equal(
            f.ops->mr_import(f.a.device, blob, length, 8192, WEIR_ACCESS_REMOTE_READ, &remote), 0);
        assert_int_not_equal(
            f.ops->mr_import(f.a.device, blob, length, 4096, WEIR_ACCESS_ALL, &remote), 0);
        assert_int_equal(f.ops->mr_release(f.b.device, &mr), 0);
        if (!f.caps.completes_inline) /* an import looks at nothing but the descriptor */
            continue;
        assert_int_not_equal(
            f.ops->mr_import(f.a.device, blob, length, 4096, WEIR_ACCESS_REMOTE_READ, &remote), 0);
    }
    fixture_close(&f);
}

/* ---- polling and sleeping ---- */

static bool is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static void test_arm_and_wake(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    int fd = f.ops->fd(f.b.device);
    for (int i = 0; i < 10; i++) {
        struct weir_cqe cqe;
        assert_no_cqe(&f, &f.b);
        assert_int_equal(post_recv(&f, &f.b, 1, 0), 0);
        assert_int_equal(f.ops->arm(f.b.device), 0);
        if (fd >= 0)
            assert_false(is_readable(fd));
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8)), WEIR_CQE_OK);
        if (fd >= 0)
            assert_true(is_readable(fd));
        f.ops->disarm(f.b.device);
        if (fd >= 0)
            assert_false(is_readable(fd));
        assert_int_equal(f.ops->arm(f.b.device), WEIR_EAGAIN);
        assert_true(wait_cqe(&f, &f.b, &cqe));
    }
    fixture_close(&f);
}

/* S18: one poll serves every QP that has something before it serves one twice over. */
static void test_S18_poll_is_fair(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct side first_a = f.a, first_b = f.b;
    make_pair(&f);
    struct side *pairs[2][2] = {{&first_a, &first_b}, {&f.a, &f.b}};
    for (uint64_t p = 0; p < 2; p++) {
        for (uint32_t i = 0; i < RECV_DEPTH; i++)
            assert_int_equal(post_recv(&f, pairs[p][1], p, i), 0);
        for (uint32_t i = 0; i < RECV_DEPTH; i++)
            assert_int_equal(run_wr(&f, pairs[p][0], make_wr(pairs[p][0], WEIR_OP_SEND, 0, 0, 8)),
                             WEIR_CQE_OK);
    }
    uint32_t counts[2] = {0};
    for (uint32_t i = 0; i < 2 * RECV_DEPTH; i++) {
        struct weir_cqe cqe;
        assert_true(wait_cqe(&f, &f.b, &cqe));
        counts[cqe.wr_id]++;
        if (i == RECV_DEPTH && !f.caps.srq) /* polled one by one: they took turns */
            assert_true(counts[0] > 0 && counts[1] > 0);
    }
    assert_int_equal(counts[0], RECV_DEPTH);
    assert_int_equal(counts[1], RECV_DEPTH);
    destroy_qp(&f, &first_a);
    destroy_qp(&f, &first_b);
    fixture_close(&f);
}

/* A quiet device has no events. */
static void test_no_events_by_itself(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_async event;
    assert_int_equal(f.ops->events(f.a.device, &event, 1), 0);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
    assert_int_equal(f.ops->events(f.a.device, &event, 1), 0);
    assert_int_equal(f.ops->events(f.b.device, &event, 1), 0);
    fixture_close(&f);
}

#define TEST(name)                                                                                 \
    { #name, name, NULL, NULL, world }

int conformance_run(struct conformance_world *world) {
    const struct CMUnitTest tests[] = {
        TEST(test_write_sizes_allocated),
        TEST(test_write_sizes_registered),
        TEST(test_read_sizes_allocated),
        TEST(test_read_sizes_registered),
        TEST(test_S2_chain_lengths_allocated),
        TEST(test_S2_chain_lengths_registered),
        TEST(test_unsignalled_gives_no_cqe),
        TEST(test_pieces_allocated),
        TEST(test_pieces_registered),
        TEST(test_S7_empty_write_needs_no_keys),
        TEST(test_S15_bounds_allocated),
        TEST(test_S15_bounds_registered),
        TEST(test_bad_keys),
        TEST(test_rights_allocated),
        TEST(test_rights_registered),
        TEST(test_release_allocated),
        TEST(test_release_registered),
        TEST(test_S6_chain_error_every_index),
        TEST(test_T1_error_flushes),
        TEST(test_S1_full_queue_is_eagain),
        TEST(test_peer_gone_is_retry),
        TEST(test_T8_destroy_is_final),
        TEST(test_calls_that_are_refused),
        TEST(test_M2_messages_of_all_sizes),
        TEST(test_inline_payload),
        TEST(test_ordered_write_before_message),
        TEST(test_M2_receives_are_credits),
        TEST(test_delivered_before_flushed),
        TEST(test_message_too_long),
        TEST(test_H13_damaged_blobs),
        TEST(test_import_claims_too_much),
        TEST(test_arm_and_wake),
        TEST(test_S18_poll_is_fair),
        TEST(test_no_events_by_itself),
    };
    return cmocka_run_group_tests_name(world->name, tests, NULL, NULL);
}
