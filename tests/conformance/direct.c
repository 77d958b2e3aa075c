/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c: messages that are written where they belong: all of one is there, or nothing was
 * written. A device that reaches no memory of others has no such call, or says EAGAIN. */
#include "fixture.h"

#include <string.h>

enum { AT = 4096, WATCH = 65536, AROUND = 64, LONGEST = 2 << 20, SEVERAL = 32 };

static uint8_t source[LONGEST];

/* A message, and where it is written. */
struct message {
    struct weir_direct_to to;
    struct weir_direct direct;
};

/* A message of one part at this offset of b's memory. */
static struct message message_at(const struct side *from, uint64_t offset, uint64_t length,
                                 struct weir_bytes *part) {
    const uint64_t payload = length <= 40 ? 24 : 64;
    *part = (struct weir_bytes){source, length};
    return (struct message){.to = {.rkey = from->remote.rkey,
                                   .raddr = from->remote.raddr + offset,
                                   .length = payload + length,
                                   .watch = from->remote.raddr + WATCH},
                            .direct = {.parts = part,
                                       .count = 1,
                                       .payload = payload,
                                       .words = {UINT64_C(0x1122334455667788), length, 7}}};
}

static int post(const struct fixture *f, const struct message *message, uint64_t *watch_out) {
    if (f->ops->post_direct == NULL)
        return WEIR_EAGAIN;
    return f->ops->post_direct(f->a.qp, &message->to, &message->direct, 1, watch_out);
}

static bool is_there(const struct fixture *f) {
    return f->ops->post_direct != NULL && f->caps.completes_inline;
}

/* Nothing is written, and no CQE comes of it. */
static void expect_nothing(struct fixture *f, const struct message *message) {
    static uint8_t before[REGION_BYTES];
    uint64_t watch = 0;
    if (f->ops->post_direct == NULL)
        return;
    memcpy(before, bytes_of(&f->b), sizeof before);
    assert_int_equal(post(f, message, &watch), WEIR_EAGAIN);
    f->world->advance(f->world);
    assert_memory_equal(before, bytes_of(&f->b), sizeof before);
}

static void expect_written(struct fixture *f, uint64_t offset, uint64_t length) {
    struct weir_bytes part;
    struct message message = message_at(&f->a, offset, length, &part);
    const struct weir_direct *direct = &message.direct;
    uint64_t watch = 0;
    memset(bytes_of(&f->b) + offset, 0, 24);
    assert_int_equal(post(f, &message, &watch), 0);
    assert_memory_equal(bytes_of(&f->b) + offset, direct->words, sizeof direct->words);
    assert_memory_equal(bytes_of(&f->b) + offset + direct->payload, source, length);
}

void test_direct_content(void **state) {
    static const uint64_t lengths[] = {0,   1,    8,     23,    39,     40,     41,     64,
                                       191, 4000, 32767, 32768, 262143, 262144, 300000, LONGEST};
    struct fixture f;
    fixture_open(&f, state, true);
    fill(source, sizeof source, 1);
    for (uint32_t i = 0; is_there(&f) && i < 16 * 16; i++) {
        uint64_t length = lengths[i / 16], at = AT + 64 * (i % 3), cut = 0, watch = 0;
        struct weir_bytes parts[16] = {{.length = 0}};
        uint32_t count = 1 + i % 16;
        for (uint32_t p = 0; p < count; p++) { /* some are empty */
            uint64_t next = p + 1 == count ? length : length * (p / 2 * 2) / count;
            parts[p] = (struct weir_bytes){source + cut, next - cut};
            cut = next;
        }
        struct message message = message_at(&f.a, at, length, parts);
        const struct weir_direct *direct = &message.direct;
        parts[0] = (struct weir_bytes){source, count == 1 ? length : 0};
        message.direct.count = count;
        message.to.watch = f.a.remote.raddr + REGION_BYTES - 8;
        memset(bytes_of(&f.b), 0xee, REGION_BYTES);
        uint64_t value = UINT64_MAX - i;
        memcpy(bytes_of(&f.b) + REGION_BYTES - 8, &value, sizeof value);
        assert_int_equal(post(&f, &message, &watch), 0);
        uint8_t *to = bytes_of(&f.b) + at;
        assert_true(watch == value);
        assert_memory_equal(to, direct->words, sizeof direct->words);
        assert_memory_equal(to + direct->payload, source, length);
        for (uint32_t k = 1; k <= AROUND; k++) {
            assert_int_equal(to[-(int)k], 0xee);
            assert_int_equal(to[direct->payload + length + k - 1], 0xee);
        }
        for (uint64_t k = sizeof direct->words; k < direct->payload; k++)
            assert_int_equal(to[k], 0xee);
        assert_no_cqe(&f, &f.a);
        assert_no_cqe(&f, &f.b);
    }
    fixture_close(&f);
}

/* Several at once, as messages lie in a room: each is where it says, and nothing else is. */
void test_direct_several(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    fill(source, sizeof source, 7);
    for (uint32_t count = 1; is_there(&f) && count <= SEVERAL; count++) {
        struct weir_direct directs[SEVERAL];
        struct weir_bytes parts[SEVERAL][2];
        uint32_t at = 0;
        uint64_t watch = 0, value = ~(uint64_t)count;
        for (uint32_t m = 0; m < count; m++) {
            uint64_t length = m * 37 % 300;
            parts[m][0] = (struct weir_bytes){source + m * 100, length / 3};
            parts[m][1] = (struct weir_bytes){source + m * 100 + length / 3, length - length / 3};
            directs[m] = (struct weir_direct){.parts = parts[m],
                                              .count = 2,
                                              .at = at,
                                              .payload = at + (length <= 40 ? 24 : 64),
                                              .words = {count, m, ~(uint64_t)m}};
            at += length <= 40 ? 64 : 64 + (uint32_t)(length + 63) / 64 * 64;
        }
        const struct weir_direct_to to = {.rkey = f.a.remote.rkey,
                                          .raddr = f.a.remote.raddr + AT,
                                          .length = at,
                                          .watch = f.a.remote.raddr + WATCH};
        memset(bytes_of(&f.b), 0xee, REGION_BYTES);
        memcpy(bytes_of(&f.b) + WATCH, &value, sizeof value);
        assert_int_equal(f.ops->post_direct(f.a.qp, &to, directs, count, &watch), 0);
        assert_true(watch == value);
        for (uint32_t m = 0; m < count; m++) {
            const uint8_t *there = bytes_of(&f.b) + AT;
            uint64_t length = parts[m][0].length + parts[m][1].length;
            uint64_t end = m + 1 < count ? directs[m + 1].at : at;
            assert_memory_equal(there + directs[m].at, directs[m].words, sizeof directs[m].words);
            assert_memory_equal(there + directs[m].payload, source + m * 100, length);
            for (uint64_t k = directs[m].payload + length; k < end; k++)
                assert_int_equal(there[k], 0xee);
        }
        assert_int_equal(bytes_of(&f.b)[AT - 1], 0xee);
        assert_int_equal(bytes_of(&f.b)[AT + at], 0xee);
        assert_no_cqe(&f, &f.a);
        assert_no_cqe(&f, &f.b);
        struct weir_direct_to beyond = to; /* none of them, where all do not lie inside */
        beyond.raddr = f.a.remote.raddr + REGION_BYTES - at + 8;
        memset(bytes_of(&f.b) + REGION_BYTES - at, 0xdd, at);
        assert_int_equal(f.ops->post_direct(f.a.qp, &beyond, directs, count, &watch), WEIR_EAGAIN);
        for (uint32_t k = 1; k <= at; k++)
            assert_int_equal(bytes_of(&f.b)[REGION_BYTES - k], 0xdd);
    }
    fixture_close(&f);
}

static int read_at(const struct fixture *f, uint32_t rkey, uint64_t offset, uint64_t words[5],
                   uint32_t count) {
    memset(words, 0xee, 5 * sizeof(*words));
    int rc = f->ops->read_direct(f->a.qp, rkey, f->a.remote.raddr + offset, words, count);
    for (uint32_t i = rc == 0 ? count : 0; i < 5; i++)
        assert_true(words[i] == UINT64_C(0xeeeeeeeeeeeeeeee));
    return rc;
}

/* Words that the target wrote, where messages may be written: all of them, or none. */
void test_direct_read(void **state) {
    const uint64_t there[] = {1, ~UINT64_C(0), UINT64_C(0x0123456789abcdef), 0};
    uint64_t words[5];
    struct fixture f;
    fixture_open(&f, state, true);
    if (is_there(&f)) {
        for (uint32_t count = 1; count <= 4; count++) {
            uint64_t last = REGION_BYTES - 8 * count;
            memcpy(bytes_of(&f.b) + AT, there, sizeof there);
            memcpy(bytes_of(&f.b) + last, there, 8 * count);
            assert_int_equal(read_at(&f, f.a.remote.rkey, AT, words, count), 0);
            assert_memory_equal(words, there, 8 * count);
            assert_int_equal(read_at(&f, f.a.remote.rkey, last, words, count), 0);
            assert_memory_equal(words, there, 8 * count);
            assert_int_equal(read_at(&f, f.a.remote.rkey, last + 8, words, count), WEIR_EAGAIN);
            assert_int_equal(read_at(&f, f.a.remote.rkey + 1, AT, words, count), WEIR_EAGAIN);
        }
        assert_no_cqe(&f, &f.a);
        assert_int_equal(f.ops->qp_error(f.a.qp), 0);
        assert_int_equal(read_at(&f, f.a.remote.rkey, AT, words, 1), WEIR_EAGAIN);
    }
    fixture_close(&f);
}

/* Memory that was registered: all of it, or nothing. */
void test_direct_registered(void **state) {
    struct fixture f;
    struct weir_bytes part;
    fixture_open(&f, state, false);
    fill(source, 5000, 2);
    struct message message = message_at(&f.a, AT, 5000, &part);
    uint64_t watch;
    memset(bytes_of(&f.b) + AT, 0, 8192);
    if (post(&f, &message, &watch) == 0)
        assert_memory_equal(bytes_of(&f.b) + AT + 64, source, 5000);
    else
        expect_nothing(&f, &message);
    fixture_close(&f);
}

void test_S15_direct_bounds(void **state) {
    struct fixture f;
    struct weir_bytes part;
    fixture_open(&f, state, true);
    fill(source, 4096, 3);
    const uint64_t ends[] = {REGION_BYTES,        REGION_BYTES - 8,  REGION_BYTES - 56,
                             REGION_BYTES - 1024, UINT64_MAX - 4095, UINT64_MAX - 7};
    for (uint32_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct message message = message_at(&f.a, ends[i], 1000, &part);
        expect_nothing(&f, &message);
        message = message_at(&f.a, AT, 1000, &part);
        message.to.watch =
            f.a.remote.raddr + (i < 3 ? REGION_BYTES + 8 * i : ends[i] - UINT64_MAX / 2);
        expect_nothing(&f, &message);
    }
    if (is_there(&f)) { /* up to the last byte */
        struct message message = message_at(&f.a, REGION_BYTES - 1064, 1000, &part);
        uint64_t watch;
        assert_int_equal(post(&f, &message, &watch), 0);
        assert_memory_equal(bytes_of(&f.b) + REGION_BYTES - 1000, source, 1000);
    }
    fixture_close(&f);
}

void test_direct_needs_rights(void **state) {
    struct fixture f;
    struct weir_bytes part;
    fixture_open(&f, state, true);
    fill(source, 4096, 4);
    static const uint32_t rights[] = {0, WEIR_ACCESS_REMOTE_READ, WEIR_ACCESS_REMOTE_WRITE};
    for (uint32_t i = 0; i < 3; i++) {
        struct weir_mr mr = make_mr(&f, &f.b, NULL, 4096, rights[i], true);
        struct weir_rmr remote = import_mr(&f, &f.b, &f.a, &mr, rights[i]);
        struct message message = message_at(&f.a, 0, 100, &part);
        message.to.rkey = remote.rkey;
        message.to.raddr = remote.raddr;
        message.to.watch = remote.raddr + 4088;
        uint64_t watch;
        int rc = post(&f, &message, &watch);
        assert_int_equal(rc, is_there(&f) && i == 2 ? 0 : WEIR_EAGAIN);
        for (uint32_t k = 0; rc != 0 && k < 4096; k++)
            assert_int_equal(((const uint8_t *)mr.base)[k], 0);
        release_mr(&f, f.b.device, &mr);
        assert_int_equal(post(&f, &message, &watch), WEIR_EAGAIN); /* its memory is gone */
        forget_mr(&f, &f.a, &remote);
        assert_int_equal(post(&f, &message, &watch), WEIR_EAGAIN); /* and its key */
    }
    struct message message = message_at(&f.a, AT, 100, &part);
    message.to.rkey ^= 1u << 31;
    expect_nothing(&f, &message);
    fixture_close(&f);
}

/* No session: either QP failed, or is gone, or was never connected. */
void test_T6_direct_needs_both_qps(void **state) {
    struct fixture f;
    struct weir_bytes part;
    fixture_open(&f, state, true);
    fill(source, 4096, 5);
    struct message message = message_at(&f.a, AT, 1000, &part);
    for (uint32_t round = 0; round < 8; round++) {
        if (is_there(&f))
            expect_written(&f, AT, 1000);
        switch (round % 4) {
        case 0:
            assert_int_equal(f.ops->qp_error(f.a.qp), 0);
            break;
        case 1:
            assert_int_equal(f.ops->qp_error(f.b.qp), 0);
            break;
        case 2:
            destroy_qp(&f, &f.b);
            break;
        case 3:
            destroy_qp(&f, &f.a);
            make_qp(&f, &f.a);
            break;
        }
        expect_nothing(&f, &message);
        expect_nothing(&f, &message);
        drain(&f, &f.a);
        drain(&f, &f.b);
        remake_pair(&f);
    }
    if (is_there(&f))
        expect_written(&f, AT, 1000);
    fixture_close(&f);
}

/* Work of the same QP goes on around it. */
void test_direct_among_others(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    fill(source, 4096, 6);
    for (uint32_t i = 0; is_there(&f) && i < 200; i++) {
        struct weir_cqe cqe;
        assert_int_equal(post_recv(&f, &f.b, i, i % RECV_DEPTH), 0);
        expect_written(&f, 1 << 20, i * 20);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 65536, 0, 16)), WEIR_CQE_OK);
        expect_written(&f, 1 << 20, 4000 - i * 20);
        assert_true(wait_cqe(&f, &f.b, &cqe) && cqe.wr_id == i);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 65536, 65536, 100)),
                         WEIR_CQE_OK);
    }
    fixture_close(&f);
}
