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
#include "efa_ends.h"
#include "os.h"

enum {
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

static uint64_t draw_state;

static uint64_t draw(uint64_t bound) {
    uint64_t z = draw_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % bound;
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
    size_t length = draw(3) == 0 ? draw(STRANGE_MAX) : HEADER + draw(END_MESSAGE + 1);
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
    for (int i = 0; stranger->ended < stranger->sent && i < END_WAITS; i++) {
        take_ends(stranger);
        nap(1);
    }
    assert_int_equal(stranger->ended, stranger->sent);
    close_side(&stranger->side);
}

/* ---- tests ---- */

static void open_two(struct end *a, struct end *b) {
    end_open(a, &env);
    end_open(b, &env);
}

/* The ends talk, and the stranger shouts. */
static void talk(struct stranger *stranger, struct end *a, struct end *b, bool knows) {
    end_say_all(a);
    end_say_all(b);
    shout(stranger, a, b, knows);
    end_take(a);
    end_take(b);
    end_post_receives(a);
    end_post_receives(b);
}

static void close_two(struct end *a, struct end *b) {
    end_destroy(a);
    end_destroy(b);
    end_close(a);
    end_close(b);
}

/* All that was said has come, and been told. */
static void expect_all(struct end *a, struct end *b) {
    for (int i = 0; i < END_WAITS && (a->ended < a->posted || b->ended < b->posted ||
                                      a->messages < b->posted || b->messages < a->posted);
         i++) {
        ends_take(a, b);
        end_post_receives(a);
        end_post_receives(b);
    }
    assert_int_equal(a->messages, b->posted);
    assert_int_equal(b->messages, a->posted);
    assert_int_equal(a->ended, a->posted);
    assert_int_equal(b->ended, b->posted);
    assert_int_equal(a->wrong + b->wrong + a->bad + b->bad, 0);
    assert_false(a->qp_fatal || b->qp_fatal || a->fatal || b->fatal);
}

/* H13: a stranger that does not know a QP's cookie changes nothing: each message comes, once. */
static void test_H13_strangers_change_nothing(void **state) {
    static struct end a, b;
    struct stranger stranger;
    (void)state;
    draw_state = 1;
    open_two(&a, &b);
    ends_connect(&a, &b);
    open_stranger(&stranger, &a, &b);
    for (int i = 0; i < ROUNDS; i++)
        talk(&stranger, &a, &b, false);
    expect_all(&a, &b);
    close_stranger(&stranger);
    close_two(&a, &b);
}

/* H13: one that knows all there is to know may end QPs: each WR and receive has one end all the
 * same, and new QPs work. */
static void test_H13_one_who_knows_all_ends_a_qp_at_most(void **state) {
    static struct end a, b;
    struct stranger stranger;
    (void)state;
    draw_state = 2;
    open_two(&a, &b);
    for (int round = 0; round < 10; round++) {
        ends_connect(&a, &b);
        open_stranger(&stranger, &a, &b);
        for (int i = 0; i < ROUNDS / 10; i++)
            talk(&stranger, &a, &b, true);
        close_stranger(&stranger);
        assert_int_equal(ops->qp_error(a.qp), 0);
        assert_int_equal(ops->qp_error(b.qp), 0);
        for (int i = 0; i < END_WAITS && !ends_are_over(&a, &b); i++)
            ends_take(&a, &b);
        assert_true(ends_are_over(&a, &b));
        assert_false(a.fatal || b.fatal);
        end_destroy(&a);
        end_destroy(&b);
        end_make_qp(&a);
        end_make_qp(&b);
    }
    ends_connect(&a, &b);
    end_say_all(&a);
    end_say_all(&b);
    expect_all(&a, &b);
    close_two(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H13_strangers_change_nothing),
        cmocka_unit_test(test_H13_one_who_knows_all_ends_a_qp_at_most),
    };
    struct weir_device_caps caps = {.note = ""};
    if (ops->probe(NULL, &caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    if (os_env_init(&env) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests_name("strangers_efa", tests, NULL, NULL);
}
