/* SPDX-License-Identifier: Apache-2.0 */
/* test_efa.c: the efa device where the network card is not kind: an endpoint that breaks under
 * everything, or has an operation without end, another one that there is, or is not, and reads and
 * writes that the card does not do. Over the provider that plays one (tests/efa), by
 * FI_PROVIDER_PATH; skipped without any. The clock may be put forward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "os.h"

#define REGION_BYTES 65536u
enum { DEPTH = 16, RECEIVES = 64, MESSAGE = 64, PATIENCE = 60000 };

#define NS_PER_S UINT64_C(1000000000)

static struct weir_env env, real;
static struct weir_env_ops clock_ops;
static _Atomic uint64_t clock_ahead_ns;
static const struct weir_device_ops *const ops = &efa_device_ops;

struct side {
    struct weir_device *device;
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    struct weir_mr mr;
    uint32_t posted, ended, bad, receives, messages, flushed;
    bool fatal, qp_fatal;
};

static uint64_t clock_now(void *self) {
    return real.ops->now(self) + atomic_load(&clock_ahead_ns);
}

static void pause_ms(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* As many receives as there is room for. */
static void repost(struct side *side) {
    int rc = 0;
    while (rc == 0) {
        rc = ops->post_recv(side->device, side->qp, side->receives % RECEIVES,
                            (uint8_t *)side->mr.base + side->receives % RECEIVES * MESSAGE, MESSAGE,
                            side->mr.lkey);
        side->receives += rc == 0;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
}

/* A device whose endpoint is followed by another one has no QP for a moment. */
static void side_make_qp(struct side *side) {
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = DEPTH, .rq_depth = RECEIVES, .recv_bytes_max = MESSAGE};
    int rc = WEIR_EAGAIN;
    side->posted = side->ended = side->bad = side->receives = side->messages = side->flushed = 0;
    for (int i = 0; rc == WEIR_EAGAIN && i < PATIENCE; i++) {
        rc = ops->qp_create(side->device, &options, &side->granted, &side->qp);
        if (rc == WEIR_EAGAIN)
            pause_ms();
    }
    assert_int_equal(rc, 0);
    repost(side);
}

static void side_open(struct side *side) {
    *side = (struct side){0};
    assert_int_equal(ops->open(&env, &side->device), 0);
    assert_int_equal(ops->mr_allocate(side->device, REGION_BYTES, WEIR_ACCESS_ALL, &side->mr), 0);
    side_make_qp(side);
}

/* One whose endpoint is not kind. */
static void side_open_with(struct side *side, const char *habit, const char *value) {
    setenv(habit, value, 1);
    side_open(side);
    unsetenv(habit);
}

static void take_events(struct side *side) {
    struct weir_async event;
    while (ops->events(side->device, &event, 1) == 1) {
        side->fatal = side->fatal || event.type == WEIR_ASYNC_DEVICE_FATAL;
        side->qp_fatal = side->qp_fatal || event.type == WEIR_ASYNC_QP_FATAL;
    }
}

static void side_connect(struct side *side, const struct side *other) {
    struct weir_qp_path path = {
        .blob_length = other->granted.blob_length, .blob = other->granted.blob, .crossing = true};
    int rc = ops->qp_connect(side->qp, &path);
    for (int i = 0; rc == WEIR_EINPROGRESS && i < PATIENCE; i++) {
        struct weir_async event;
        if (ops->events(side->device, &event, 1) == 1 && event.type == WEIR_ASYNC_CONNECTED)
            rc = event.error;
        else
            pause_ms();
    }
    assert_int_equal(rc, 0);
}

/* False: there is no room. */
static bool post_one(struct side *side) {
    struct weir_wr wr = {.laddr = (uint64_t)(uintptr_t)side->mr.base,
                         .lkey = side->mr.lkey,
                         .length = MESSAGE,
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post post;
    bool is = ops->post_send(side->qp, &wr, 1, &post) == 0;
    side->posted += is;
    return is;
}

static void post_all(struct side *side) {
    while (post_one(side))
        continue;
}

static void take_all(struct side *side) {
    struct weir_cqe cqe;
    while (ops->poll(side->device, &cqe, 1) == 1) {
        if (cqe.recv) {
            side->messages += cqe.status == WEIR_CQE_OK;
            side->flushed += cqe.status != WEIR_CQE_OK;
        } else {
            side->ended++;
            side->bad += cqe.status != WEIR_CQE_OK;
        }
    }
    take_events(side);
}

static void destroy(struct side *side) {
    int rc = WEIR_EBUSY;
    for (int i = 0; rc != 0 && i < PATIENCE; i++) {
        rc = ops->qp_destroy(side->qp);
        if (rc != 0)
            pause_ms();
    }
    assert_int_equal(rc, 0);
}

static void side_release(struct side *side) {
    assert_int_equal(ops->mr_release(side->device, &side->mr), 0);
    ops->close(side->device);
}

static void side_close(struct side *side) {
    destroy(side);
    side_release(side);
}

static bool is_readable(const struct side *side) {
    struct pollfd poll_fd = {.fd = ops->fd(side->device), .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static void connect_both(struct side *one, struct side *other) {
    side_connect(one, other);
    side_connect(other, one);
}

static void take_both(struct side *one, struct side *other) {
    take_all(one);
    take_all(other);
    pause_ms();
}

/* Both say as much as they can, and hear it. */
static void talk(struct side *one, struct side *other) {
    post_all(one);
    post_all(other);
    take_both(one, other);
    repost(one);
    repost(other);
}

/* Until one's QP has failed, and with as many receives as there are. */
static void talk_until_broken(struct side *one, struct side *other) {
    for (int i = 0; !one->qp_fatal && i < PATIENCE; i++) {
        post_all(one);
        post_all(other);
        take_both(one, other);
    }
    assert_true(one->qp_fatal);
}

/* All that was posted to QPs that are stopped has one end. */
static void end_both(struct side *one, struct side *other) {
    struct side *sides[2] = {one, other};
    for (int i = 0; i < 2; i++) {
        post_all(sides[i]); /* is taken, and flushes */
        assert_int_equal(ops->qp_error(sides[i]->qp), 0);
    }
    for (int i = 0; i < PATIENCE && (one->ended < one->posted || other->ended < other->posted ||
                                     one->messages + one->flushed < one->receives ||
                                     other->messages + other->flushed < other->receives);
         i++)
        take_both(one, other);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sides[i]->ended, sides[i]->posted);
        assert_int_equal(sides[i]->messages + sides[i]->flushed, sides[i]->receives);
        assert_true(sides[i]->bad > 0);
        /* The message that was told to be sent has come. */
        assert_true(sides[1 - i]->messages >= sides[i]->ended - sides[i]->bad);
    }
    for (int i = 0; i < 2; i++)
        destroy(sides[i]);
}

/* On new QPs a message comes through each way. */
static void expect_well(struct side *one, struct side *other) {
    assert_false(one->fatal);
    assert_false(other->fatal);
    side_make_qp(one);
    side_make_qp(other);
    connect_both(one, other);
    post_one(one);
    post_one(other);
    for (int i = 0; i < PATIENCE && (one->ended == 0 || other->ended == 0 || one->messages == 0 ||
                                     other->messages == 0);
         i++)
        take_both(one, other);
    assert_int_equal(one->ended + other->ended + one->messages + other->messages, 4);
    assert_int_equal(one->bad + other->bad, 0);
}

/* A QP that waits for its peer's answer when its endpoint breaks: its attempt may be made again. */
static void expect_no_connect(struct side *side, struct weir_qp *waits, const struct side *other) {
    struct weir_qp_path path = {
        .blob_length = other->granted.blob_length, .blob = other->granted.blob, .crossing = true};
    struct weir_qp *qp = side->qp;
    assert_int_equal(ops->qp_connect(waits, &path), WEIR_EDEVICE);
    side->qp = waits;
    destroy(side);
    side->qp = qp;
}

/* S9: an endpoint that breaks fails its QPs, and is followed by another one. All that was posted
 * has an end, no message that was told to be sent is lost, and new QPs work. */
static void test_S9_a_broken_endpoint_is_renewed(void **state) {
    struct side broken, well;
    (void)state;
    side_open_with(&broken, "EFA_FAKE_BREAK", "20");
    side_open(&well);
    struct weir_qp_granted before = broken.granted;
    for (int i = 0; i < 3; i++) {
        struct weir_qp_options options = {.tag = 2, .sq_depth = DEPTH};
        struct weir_qp_granted granted;
        struct weir_qp *waits;
        connect_both(&broken, &well);
        assert_int_equal(ops->qp_create(broken.device, &options, &granted, &waits), 0);
        broken.qp_fatal = well.qp_fatal = false;
        talk_until_broken(&broken, &well);
        expect_no_connect(&broken, waits, &well);
        end_both(&broken, &well);
        assert_false(broken.fatal || well.fatal);
        side_make_qp(&broken);
        side_make_qp(&well);
    }
    assert_int_equal(broken.granted.blob_length, before.blob_length);
    assert_memory_not_equal(broken.granted.blob, before.blob, before.blob_length);
    destroy(&broken);
    destroy(&well);
    expect_well(&broken, &well);
    side_close(&broken);
    side_close(&well);
}

/* S13: an operation without end costs its endpoint, a minute later: all that was posted has an end
 * then, and nothing that was told to be sent is lost. Time that nobody saw does not count. */
static void test_S13_an_operation_without_end(void **state) {
    struct side endless, well;
    (void)state;
    side_open_with(&endless, "EFA_FAKE_FORGET", "40");
    side_open(&well);
    connect_both(&endless, &well);
    for (int i = 0; endless.posted < 200 && i < PATIENCE; i++)
        talk(&endless, &well);
    atomic_fetch_add(&clock_ahead_ns, 1000 * NS_PER_S);
    for (int i = 0; i < 20; i++)
        talk(&endless, &well);
    assert_false(endless.qp_fatal);
    assert_true(endless.ended < endless.posted);
    for (int i = 0; !endless.qp_fatal && i < PATIENCE; i++) {
        talk(&endless, &well);
        if (i % 50 == 0)
            atomic_fetch_add(&clock_ahead_ns, 10 * NS_PER_S);
    }
    assert_true(endless.qp_fatal);
    end_both(&endless, &well);
    expect_well(&endless, &well);
    side_close(&endless);
    side_close(&well);
}

/* W9: a device without another endpoint says so, once; everything that was posted has an end, its
 * QPs go, its memory is released, and nobody is woken any more. The other side's goes on. */
static void test_W9_a_card_that_is_gone(void **state) {
    struct side gone, well;
    (void)state;
    setenv("EFA_FAKE_ENDPOINTS", "1", 1);
    side_open_with(&gone, "EFA_FAKE_BREAK", "20");
    unsetenv("EFA_FAKE_ENDPOINTS");
    side_open(&well);
    connect_both(&gone, &well);
    talk_until_broken(&gone, &well);
    end_both(&gone, &well);
    for (int i = 0; !gone.fatal && i < PATIENCE; i++) {
        struct weir_qp *none;
        int rc = ops->qp_create(gone.device, &(struct weir_qp_options){.tag = 2, .sq_depth = DEPTH},
                                &gone.granted, &none);
        assert_true(rc == WEIR_EAGAIN || rc == WEIR_EDEVICE);
        atomic_fetch_add(&clock_ahead_ns, NS_PER_S / 16);
        take_both(&gone, &well);
    }
    assert_true(gone.fatal);
    struct weir_cqe cqe;
    struct weir_async event;
    struct weir_qp *none;
    assert_int_equal(ops->poll(gone.device, &cqe, 1), WEIR_EDEVICE);
    assert_int_equal(ops->events(gone.device, &event, 1), 0);
    ops->disarm(gone.device);
    assert_int_equal(ops->arm(gone.device), 0);
    pause_ms();
    assert_false(is_readable(&gone));
    assert_int_equal(ops->qp_create(gone.device,
                                    &(struct weir_qp_options){.tag = 2, .sq_depth = DEPTH},
                                    &gone.granted, &none),
                     WEIR_EDEVICE);
    side_release(&gone);
    assert_false(well.fatal);
    side_release(&well);
}

/* W10: a card that leaves reads and writes to its driver is no device. */
static void test_W10_emulated_access_is_refused(void **state) {
    struct weir_device *device;
    (void)state;
    setenv("EFA_FAKE_EMULATED", "1", 1);
    assert_int_equal(ops->open(&env, &device), WEIR_ENOTSUP);
    unsetenv("EFA_FAKE_EMULATED");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S9_a_broken_endpoint_is_renewed),
        cmocka_unit_test(test_S13_an_operation_without_end),
        cmocka_unit_test(test_W9_a_card_that_is_gone),
        cmocka_unit_test(test_W10_emulated_access_is_refused),
    };
    struct weir_device_caps caps = {.note = ""};
    if (ops->probe(&caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    if (os_env_init(&real) != 0)
        return EXIT_FAILURE;
    clock_ops = *real.ops;
    clock_ops.now = clock_now;
    env = real;
    env.ops = &clock_ops;
    return cmocka_run_group_tests_name("efa", tests, NULL, NULL);
}
