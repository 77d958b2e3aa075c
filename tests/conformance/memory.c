/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: regions: bounds, keys, rights, release, and keys that come again. */
#include "fixture.h"

#include <string.h>

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

void test_S15_bounds_allocated(void **state) {
    bounds(state, true);
}

void test_S15_bounds_registered(void **state) {
    bounds(state, false);
}

void test_bad_keys(void **state) {
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
                expect_denied(&f, wr);
        }
        forget_mr(&f, &f.a, &remote);
        release_mr(&f, f.b.device, &mr);
    }
    fixture_close(&f);
}

void test_rights_allocated(void **state) {
    rights(state, true);
}

void test_rights_registered(void **state) {
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
        forget_mr(&f, &f.a, &first);
        if (f.caps.completes_inline)
            expect_failure(&f, wr, WEIR_CQE_REMOTE_ACCESS);
        wr.rkey = second.rkey;
        wr.raddr = second.raddr;
        assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
        release_mr(&f, f.b.device, &mr);
        weir_segment segment = {.length = 8};
        struct weir_span piece = {.laddr = wr.laddr,
                                  .raddr = wr.raddr,
                                  .lkey = wr.lkey,
                                  .rkey = wr.rkey,
                                  .opcode = opcode};
        assert_int_equal(f.ops->post_pieces(f.a.qp, &piece, &segment, 1), 0);
        expect_released(&f, wr, &second);
        wr.length = 65536;
        expect_released(&f, wr, &second);
        forget_mr(&f, &f.a, &second);
    }
    fixture_close(&f);
}

void test_release_allocated(void **state) {
    release(state, true);
}

void test_release_registered(void **state) {
    release(state, false);
}

/* Memory without rights is a source, a destination and a receive buffer, and no peer's. */
static void local_only(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, true);
    static uint8_t extra[2][4096];
    struct weir_mr here = make_mr(&f, &f.a, extra[0], 4096, 0, is_allocated);
    struct weir_mr there = make_mr(&f, &f.b, extra[1], 4096, 0, is_allocated);
    fill(here.base, 2048, 1);
    struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 65536, 2048);
    wr.laddr = (uint64_t)(uintptr_t)here.base;
    wr.lkey = here.lkey;
    assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    assert_memory_equal(bytes_of(&f.b) + 65536, here.base, 2048);
    wr.opcode = WEIR_OP_READ;
    wr.laddr += 2048;
    assert_int_equal(run_wr(&f, &f.a, wr), WEIR_CQE_OK);
    assert_memory_equal((uint8_t *)here.base + 2048, here.base, 2048);
    assert_int_equal(f.ops->post_recv(f.b.device, f.caps.srq ? NULL : f.b.qp, 1, there.base,
                                      RECV_BYTES, there.lkey),
                     0);
    struct weir_cqe cqe;
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 200)), WEIR_CQE_OK);
    assert_true(wait_cqe(&f, &f.b, &cqe));
    assert_memory_equal(there.base, bytes_of(&f.a) + 65536, 200);
    struct weir_rmr remote = import_mr(&f, &f.b, &f.a, &there, 0);
    for (uint8_t opcode = WEIR_OP_WRITE; opcode <= WEIR_OP_READ; opcode++) {
        wr = make_wr(&f.a, opcode, 0, 0, 8);
        wr.rkey = remote.rkey;
        wr.raddr = remote.raddr;
        expect_denied(&f, wr);
    }
    forget_mr(&f, &f.a, &remote);
    release_mr(&f, f.a.device, &here);
    release_mr(&f, f.b.device, &there);
    fixture_close(&f);
}

void test_rights_none_allocated(void **state) {
    local_only(state, true);
}

void test_rights_none_registered(void **state) {
    local_only(state, false);
}

/* Two regions of the same bytes have their own rights and their own ends. */
void test_regions_overlap(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static uint8_t extra[4096];
    struct weir_mr reads = make_mr(&f, &f.b, extra, 4096, WEIR_ACCESS_REMOTE_READ, false);
    struct weir_mr writes = make_mr(&f, &f.b, extra + 8, 4000, WEIR_ACCESS_REMOTE_WRITE, false);
    struct weir_rmr to_read = import_mr(&f, &f.b, &f.a, &reads, WEIR_ACCESS_REMOTE_READ);
    struct weir_rmr to_write = import_mr(&f, &f.b, &f.a, &writes, WEIR_ACCESS_REMOTE_WRITE);
    struct weir_wr read = make_wr(&f.a, WEIR_OP_READ, 65536, 0, 1000);
    struct weir_wr write = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 1000);
    fill(bytes_of(&f.a), 1000, 1);
    read.rkey = to_read.rkey;
    read.raddr = to_read.raddr + 8;
    write.rkey = to_write.rkey;
    write.raddr = to_write.raddr;
    assert_int_equal(run_wr(&f, &f.a, write), WEIR_CQE_OK);
    assert_int_equal(run_wr(&f, &f.a, read), WEIR_CQE_OK);
    assert_memory_equal(bytes_of(&f.a) + 65536, bytes_of(&f.a), 1000);
    write.rkey = to_read.rkey;
    write.raddr = to_read.raddr;
    expect_failure(&f, write, WEIR_CQE_REMOTE_ACCESS);
    release_mr(&f, f.b.device, &writes);
    memset(bytes_of(&f.a) + 65536, 0, 1000);
    assert_int_equal(run_wr(&f, &f.a, read), WEIR_CQE_OK);
    assert_memory_equal(bytes_of(&f.a) + 65536, bytes_of(&f.a), 1000);
    write.rkey = to_write.rkey;
    write.raddr = to_write.raddr;
    expect_released(&f, write, &to_write);
    forget_mr(&f, &f.a, &to_read);
    forget_mr(&f, &f.a, &to_write);
    release_mr(&f, f.b.device, &reads);
    fixture_close(&f);
}

/* Keys of a region that was released do nothing to one that came after it, in the same
 * place of the table and of memory. A device whose keys are the same numbers again cannot
 * tell; its peers do not use what was released. */
static void stale_keys(void **state, bool is_allocated) {
    struct fixture f;
    fixture_open(&f, state, true);
    static uint8_t extra[2][4096];
    for (uint32_t round = 0; round < 6; round++) {
        struct weir_mr here = make_mr(&f, &f.a, extra[0], 4096, 0, is_allocated);
        struct weir_mr there = make_mr(&f, &f.b, extra[1], 4096, WEIR_ACCESS_ALL, is_allocated);
        struct weir_rmr remote = import_mr(&f, &f.b, &f.a, &there, WEIR_ACCESS_ALL);
        struct weir_wr old = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
        old.laddr = (uint64_t)(uintptr_t)here.base;
        old.lkey = here.lkey;
        old.raddr = remote.raddr;
        old.rkey = remote.rkey;
        assert_int_equal(run_wr(&f, &f.a, old), WEIR_CQE_OK);
        release_mr(&f, f.a.device, &here);
        release_mr(&f, f.b.device, &there);
        here = make_mr(&f, &f.a, extra[0], 4096, 0, is_allocated);
        there = make_mr(&f, &f.b, extra[1], 4096, WEIR_ACCESS_ALL, is_allocated);
        struct weir_rmr again = import_mr(&f, &f.b, &f.a, &there, WEIR_ACCESS_ALL);
        memset(here.base, 0x44, 64);
        memset(there.base, 0x55, 64);
        struct weir_wr now = old;
        now.laddr = (uint64_t)(uintptr_t)here.base;
        now.lkey = here.lkey;
        now.raddr = again.raddr;
        now.rkey = again.rkey;
        struct weir_wr mixed = now;
        mixed.raddr = remote.raddr;
        mixed.rkey = remote.rkey;
        if (remote.rkey != again.rkey)
            expect_released(&f, mixed, &remote);
        mixed = now;
        mixed.lkey = old.lkey;
        if (old.lkey != here.lkey)
            expect_failure(&f, mixed, WEIR_CQE_LOCAL_PROT);
        assert_int_equal(*(uint8_t *)there.base, 0x55);
        assert_int_equal(run_wr(&f, &f.a, now), WEIR_CQE_OK);
        assert_int_equal(*(uint8_t *)there.base, 0x44);
        forget_mr(&f, &f.a, &remote);
        forget_mr(&f, &f.a, &again);
        release_mr(&f, f.a.device, &here);
        release_mr(&f, f.b.device, &there);
    }
    fixture_close(&f);
}

void test_T8_stale_keys_allocated(void **state) {
    stale_keys(state, true);
}

void test_T8_stale_keys_registered(void **state) {
    stale_keys(state, false);
}

/* The content of released memory is nobody's to see (weir_memory_allocate). */
void test_allocated_memory_is_zeroed(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    static const uint64_t lengths[] = {1, 4096, 100001, 2 << 20, (2 << 20) + 1};
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof lengths[0]; i++) {
        uint64_t length = lengths[i / 2];
        struct weir_mr mr = make_mr(&f, &f.a, NULL, length, WEIR_ACCESS_ALL, true);
        const uint8_t *bytes = mr.base;
        for (uint64_t k = 0; k < length; k++)
            if (bytes[k] != 0)
                fail_msg("byte %llu is %u", (unsigned long long)k, bytes[k]);
        memset(mr.base, 0xff, length);
        release_mr(&f, f.a.device, &mr);
    }
    fixture_close(&f);
}
