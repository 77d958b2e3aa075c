/* SPDX-License-Identifier: Apache-2.0 */
/* test_strangers_efa.c: messages to efa devices that no device has sent: of a bare endpoint of
 * libfabric, which knows how such messages look. One that does not know a QP's cookie changes
 * nothing for it, and one that knows all may end it and do no other harm. Over the provider that
 * plays the network card (tests/efa), by FI_PROVIDER_PATH; skipped without any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "efa/side.h"
#include "os.h"

#define REGION_BYTES 65536u
enum {
    DEPTH = 16,
    RECEIVES = 64,
    MESSAGE = 64,
    WAITS = 60000, /* of a millisecond */
    ROUNDS = 150,
    BURST = 16,
    HEADER = 40, /* the bytes in front of a message, as src/device/efa/blob.c has them */
    NAME = 32,
    NAME_MEANS = 24,
    STRANGE_MAX = 600,
    KINDS = 6
};

static struct weir_env env;
static const struct weir_device_ops *const ops = &efa_device_ops;

struct end {
    struct weir_device *device;
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    struct weir_mr mr;
    uint64_t said, heard, wrong; /* messages, which are numbered */
    uint64_t flushed;
    uint32_t posted, ended, bad, receives;
    bool failed, fatal;
};

static uint64_t draw_state;

static uint64_t draw(uint64_t bound) {
    uint64_t z = draw_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % bound;
}

/* ---- the two ends ---- */

static void post_receives(struct end *end) {
    int rc = 0;
    while (rc == 0) {
        uint32_t slot = end->receives % RECEIVES;
        rc = ops->post_recv(end->device, end->qp, slot, (uint8_t *)end->mr.base + slot * MESSAGE,
                            MESSAGE, end->mr.lkey);
        end->receives += rc == 0;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
}

static void make_qp(struct end *end) {
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = DEPTH, .rq_depth = RECEIVES, .recv_bytes_max = MESSAGE};
    assert_int_equal(ops->qp_create(end->device, &options, &end->granted, &end->qp), 0);
    end->said = end->heard = end->wrong = end->flushed = 0;
    end->posted = end->ended = end->bad = end->receives = 0;
    end->failed = false;
    post_receives(end);
}

static void open_end(struct end *end) {
    *end = (struct end){0};
    assert_int_equal(ops->open(&env, &end->device), 0);
    assert_int_equal(ops->mr_allocate(end->device, REGION_BYTES, WEIR_ACCESS_ALL, &end->mr), 0);
    make_qp(end);
}

static void connect_to(struct end *end, const struct end *other) {
    struct weir_qp_path path = {
        .blob_length = other->granted.blob_length, .blob = other->granted.blob, .crossing = true};
    int rc = ops->qp_connect(end->qp, &path);
    for (int i = 0; rc == WEIR_EINPROGRESS && i < WAITS; i++) {
        struct weir_async event;
        if (ops->events(end->device, &event, 1) == 1 && event.type == WEIR_ASYNC_CONNECTED)
            rc = event.error;
        else
            nap(1);
    }
    assert_int_equal(rc, 0);
}

static uint64_t *slot_of(const struct end *end, uint32_t number) {
    return (uint64_t *)(void *)((uint8_t *)end->mr.base + (size_t)number * MESSAGE);
}

/* Messages behind the receives' memory, each with its number. */
static void say(struct end *end) {
    struct weir_post post;
    int rc = 0;
    while (rc == 0) {
        uint64_t *words = slot_of(end, RECEIVES + end->said % DEPTH);
        words[0] = end->said;
        struct weir_wr wr = {.laddr = (uint64_t)(uintptr_t)words,
                             .lkey = end->mr.lkey,
                             .length = MESSAGE,
                             .opcode = WEIR_OP_SEND,
                             .flags = WEIR_WR_SIGNALED};
        rc = ops->post_send(end->qp, &wr, 1, &post);
        end->said += rc == 0;
        end->posted += rc == 0;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
}

/* Without order, the numbers that come are added up. */
static void take(struct end *end) {
    struct weir_cqe cqe;
    struct weir_async event;
    while (ops->poll(end->device, &cqe, 1) == 1) {
        if (!cqe.recv) {
            end->ended++;
            end->bad += cqe.status != WEIR_CQE_OK;
        } else if (cqe.status == WEIR_CQE_OK) {
            end->heard++;
            end->wrong += cqe.byte_length != MESSAGE;
        } else {
            end->flushed++;
        }
    }
    while (ops->events(end->device, &event, 1) == 1) {
        end->failed = end->failed || event.type == WEIR_ASYNC_QP_FATAL;
        end->fatal = end->fatal || event.type == WEIR_ASYNC_DEVICE_FATAL;
    }
}

static void take_both(struct end *a, struct end *b) {
    take(a);
    take(b);
    post_receives(a);
    post_receives(b);
}

static void destroy(struct end *end) {
    int rc = WEIR_EBUSY;
    for (int i = 0; rc != 0 && i < WAITS; i++) {
        rc = ops->qp_destroy(end->qp);
        if (rc != 0)
            nap(1);
    }
    assert_int_equal(rc, 0);
}

static void close_end(struct end *end) {
    assert_int_equal(ops->mr_release(end->device, &end->mr), 0);
    ops->close(end->device);
}

/* ---- the stranger ---- */

static void put(uint8_t *at, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* The endpoint of a QP is the end of its blob: magic 4, index 4, cookie 8, endpoint 32. */
static const uint8_t *name_of(const struct end *end) {
    return end->granted.blob + 16;
}

static uint64_t word_at(const uint8_t *bytes, size_t count) {
    uint64_t word = 0;
    for (size_t i = count; i > 0; i--)
        word = word << 8 | bytes[i - 1];
    return word;
}

static uint64_t number(void) {
    static const uint64_t few[] = {0, 1, 2, 3, UINT32_MAX, UINT64_MAX, 65535, 65536};
    return draw(2) == 0 ? few[draw(8)] : draw(UINT64_MAX);
}

/* to, from: of a QP that is there, where the stranger knows them. */
static size_t strange(uint8_t *bytes, const struct end *to, const struct end *from, bool knows,
                      const uint8_t *own_name) {
    size_t length = draw(3) == 0 ? draw(STRANGE_MAX) : HEADER + draw(MESSAGE + 1);
    for (size_t i = 0; i < STRANGE_MAX; i++)
        bytes[i] = (uint8_t)draw(256);
    put(bytes, draw(8) == 0 ? number() : 0x31484557u, 4);
    put(bytes + 4, draw(KINDS), 4);
    put(bytes + 8, draw(4) == 0 ? number() : word_at(to->granted.blob + 4, 4), 4);
    put(bytes + 12, draw(4) == 0 ? number() : word_at(from->granted.blob + 4, 4), 4);
    put(bytes + 16, knows && draw(4) > 0 ? word_at(to->granted.blob + 8, 8) : number(), 8);
    put(bytes + 24, knows && draw(4) > 0 ? word_at(from->granted.blob + 8, 8) : number(), 8);
    put(bytes + 32, draw(3) == 0 ? number() : draw(4), 4);
    put(bytes + 36, draw(8) == 0 ? number() : 0, 4);
    if (draw(4) > 0)
        memset(bytes + HEADER + NAME_MEANS, 0, NAME - NAME_MEANS);
    const uint8_t *names[] = {own_name, name_of(to), name_of(from)};
    if (draw(4) > 0)
        memcpy(bytes + HEADER, names[draw(3)], NAME);
    return length;
}

struct stranger {
    struct side side;
    struct about about;
    fi_addr_t to[2];
    unsigned sent, ended;
};

static void open_stranger(struct stranger *stranger, const struct end *a, const struct end *b) {
    const struct end *ends[2] = {a, b};
    stranger->sent = stranger->ended = 0;
    open_side(&stranger->side, 1 << 20, 0);
    stranger->about = about(&stranger->side);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            fi_av_insert(stranger->side.av, name_of(ends[i]), 1, &stranger->to[i], 0, NULL), 1);
    for (size_t i = 0; i < 64; i++) /* what is answered finds a receive, or none */
        assert_int_equal(try_receive(&stranger->side, 1 << 19, 512, &stranger->side.contexts[i]),
                         0);
}

static void take_ends(struct stranger *stranger) {
    struct fi_cq_msg_entry entry;
    while (next_within(&stranger->side, &entry, 0) >= 0)
        stranger->ended += (entry.flags & FI_SEND) != 0;
}

static void shout(struct stranger *stranger, const struct end *a, const struct end *b, bool knows) {
    const struct end *ends[2] = {a, b};
    for (int i = 0; i < BURST; i++) {
        uint64_t to = draw(2);
        size_t at = (size_t)(stranger->sent % 128) * 1024;
        while (stranger->sent % 128 == 0 && stranger->ended < stranger->sent)
            take_ends(stranger); /* its contexts are used again */
        size_t length = strange(stranger->side.bytes + at, ends[to], ends[1 - to], knows,
                                stranger->about.address);
        stranger->side.peer = stranger->to[to];
        INSIST(try_send(&stranger->side, at, length,
                        &stranger->side.contexts[64 + stranger->sent % 128]));
        stranger->sent++;
    }
    take_ends(stranger);
}

static void close_stranger(struct stranger *stranger) {
    for (int i = 0; stranger->ended < stranger->sent && i < WAITS; i++) {
        take_ends(stranger);
        nap(1);
    }
    assert_int_equal(stranger->ended, stranger->sent);
    close_side(&stranger->side);
}

/* ---- tests ---- */

/* H13: a stranger that does not know a QP's cookie changes nothing: each message comes, once. */
static void test_H13_strangers_change_nothing(void **state) {
    struct end a, b;
    struct stranger stranger;
    (void)state;
    draw_state = 1;
    open_end(&a);
    open_end(&b);
    connect_to(&a, &b);
    connect_to(&b, &a);
    open_stranger(&stranger, &a, &b);
    for (int i = 0; i < ROUNDS; i++) {
        say(&a);
        say(&b);
        shout(&stranger, &a, &b, false);
        take_both(&a, &b);
    }
    for (int i = 0; i < WAITS && (a.ended < a.posted || b.ended < b.posted || a.heard < b.said ||
                                  b.heard < a.said);
         i++) {
        take_both(&a, &b);
        nap(1);
    }
    assert_int_equal(a.heard, b.said);
    assert_int_equal(b.heard, a.said);
    assert_int_equal(a.ended, a.posted);
    assert_int_equal(b.ended, b.posted);
    assert_int_equal(a.wrong + b.wrong + a.bad + b.bad, 0);
    assert_false(a.failed || b.failed || a.fatal || b.fatal);
    close_stranger(&stranger);
    destroy(&a);
    destroy(&b);
    close_end(&a);
    close_end(&b);
}

/* H13: one that knows all there is to know may end QPs: each WR and receive has one end all the
 * same, and new QPs work. */
static void test_H13_one_who_knows_all_ends_a_qp_at_most(void **state) {
    struct end a, b;
    struct stranger stranger;
    (void)state;
    draw_state = 2;
    open_end(&a);
    open_end(&b);
    for (int round = 0; round < 10; round++) {
        connect_to(&a, &b);
        connect_to(&b, &a);
        open_stranger(&stranger, &a, &b);
        for (int i = 0; i < ROUNDS / 10; i++) {
            say(&a);
            say(&b);
            shout(&stranger, &a, &b, true);
            take_both(&a, &b);
        }
        close_stranger(&stranger);
        assert_int_equal(ops->qp_error(a.qp), 0);
        assert_int_equal(ops->qp_error(b.qp), 0);
        for (int i = 0;
             i < WAITS && (a.ended < a.posted || b.ended < b.posted ||
                           a.heard + a.flushed < a.receives || b.heard + b.flushed < b.receives);
             i++) {
            take(&a);
            take(&b);
            nap(1);
        }
        assert_int_equal(a.ended, a.posted);
        assert_int_equal(b.ended, b.posted);
        assert_int_equal(a.heard + a.flushed, a.receives);
        assert_int_equal(b.heard + b.flushed, b.receives);
        assert_false(a.fatal || b.fatal);
        destroy(&a);
        destroy(&b);
        make_qp(&a);
        make_qp(&b);
    }
    connect_to(&a, &b);
    connect_to(&b, &a);
    say(&a);
    for (int i = 0; i < WAITS && b.heard < a.said; i++) {
        take_both(&a, &b);
        nap(1);
    }
    assert_int_equal(b.heard, a.said);
    destroy(&a);
    destroy(&b);
    close_end(&a);
    close_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H13_strangers_change_nothing),
        cmocka_unit_test(test_H13_one_who_knows_all_ends_a_qp_at_most),
    };
    struct weir_device_caps caps = {.note = ""};
    if (ops->probe(&caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    if (os_env_init(&env) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests_name("strangers_efa", tests, NULL, NULL);
}
