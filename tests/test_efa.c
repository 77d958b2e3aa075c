/* SPDX-License-Identifier: Apache-2.0 */
/* test_efa.c: the efa device where the network card is not kind: a queue pair of the card that
 * breaks under everything, and reads and writes that the card does not do. Over the provider that
 * plays one (tests/efa), by FI_PROVIDER_PATH; skipped without any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "os.h"

#define REGION_BYTES 65536u
enum { DEPTH = 16, RECEIVES = 64, MESSAGE = 64, PATIENCE = 60000 };

static struct weir_env env;
static const struct weir_device_ops *const ops = &efa_device_ops;

struct side {
    struct weir_device *device;
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    struct weir_mr mr;
    uint32_t posted, ended, bad, receives;
    bool fatal;
};

static void pause_ms(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

static void side_open(struct side *side) {
    *side = (struct side){0};
    assert_int_equal(ops->open(&env, &side->device), 0);
    assert_int_equal(ops->mr_allocate(side->device, REGION_BYTES, WEIR_ACCESS_ALL, &side->mr), 0);
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = DEPTH, .rq_depth = RECEIVES, .recv_bytes_max = MESSAGE};
    assert_int_equal(ops->qp_create(side->device, &options, &side->granted, &side->qp), 0);
    for (uint32_t i = 0; i < RECEIVES; i++)
        assert_int_equal(ops->post_recv(side->device, side->qp, i,
                                        (uint8_t *)side->mr.base + i * MESSAGE, MESSAGE,
                                        side->mr.lkey),
                         0);
}

static void take_events(struct side *side) {
    struct weir_async event;
    while (ops->events(side->device, &event, 1) == 1)
        side->fatal = side->fatal || event.type == WEIR_ASYNC_DEVICE_FATAL;
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

/* As many messages as there is room for. */
static void post_all(struct side *side) {
    struct weir_wr wr = {.laddr = (uint64_t)(uintptr_t)side->mr.base,
                         .lkey = side->mr.lkey,
                         .length = MESSAGE,
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post post;
    while (ops->post_send(side->qp, &wr, 1, &post) == 0)
        side->posted++;
}

static void take_all(struct side *side) {
    struct weir_cqe cqe;
    while (ops->poll(side->device, &cqe, 1) == 1) {
        if (cqe.recv) {
            side->receives++;
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

static void side_close(struct side *side) {
    destroy(side);
    assert_int_equal(ops->mr_release(side->device, &side->mr), 0);
    ops->close(side->device);
}

static bool is_readable(const struct side *side) {
    struct pollfd poll_fd = {.fd = ops->fd(side->device), .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* W9: a device whose card's queue pair breaks says so, once; everything that was posted has an end,
 * its QPs go, its memory is released, and nobody is woken any more. The other side's goes on. */
static void test_W9_a_card_that_breaks(void **state) {
    struct side broken, well;
    (void)state;
    setenv("EFA_FAKE_BREAK", "20", 1);
    side_open(&broken);
    unsetenv("EFA_FAKE_BREAK");
    side_open(&well);
    side_connect(&broken, &well);
    side_connect(&well, &broken);
    for (int i = 0; !broken.fatal && i < PATIENCE; i++) {
        post_all(&broken);
        post_all(&well);
        take_all(&broken);
        take_all(&well);
        pause_ms();
    }
    assert_true(broken.fatal);
    post_all(&broken); /* is taken, and fails */
    assert_int_equal(ops->qp_error(broken.qp), 0);
    for (int i = 0; i < PATIENCE && (broken.ended < broken.posted || broken.receives < RECEIVES);
         i++) {
        take_all(&broken);
        pause_ms();
    }
    assert_int_equal(broken.ended, broken.posted);
    assert_int_equal(broken.receives, RECEIVES);
    assert_true(broken.bad > 0);
    struct weir_cqe cqe;
    struct weir_async event;
    assert_int_equal(ops->poll(broken.device, &cqe, 1), WEIR_EDEVICE);
    assert_int_equal(ops->events(broken.device, &event, 1), 0);
    ops->disarm(broken.device);
    assert_int_equal(ops->arm(broken.device), 0);
    pause_ms();
    assert_false(is_readable(&broken));
    struct weir_qp *none;
    assert_int_equal(ops->qp_create(broken.device,
                                    &(struct weir_qp_options){.tag = 2, .sq_depth = DEPTH},
                                    &broken.granted, &none),
                     WEIR_EDEVICE);
    side_close(&broken);
    assert_false(well.fatal);
    side_close(&well);
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
        cmocka_unit_test(test_W9_a_card_that_breaks),
        cmocka_unit_test(test_W10_emulated_access_is_refused),
    };
    struct weir_device_caps caps = {.note = ""};
    if (ops->probe(&caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    if (os_env_init(&env) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests_name("efa", tests, NULL, NULL);
}
