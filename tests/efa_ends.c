/* SPDX-License-Identifier: Apache-2.0 */
/* efa_ends.c: see efa_ends.h. */
#include "efa_ends.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

#define REGION_BYTES 65536u

static const struct weir_device_ops *const ops = &efa_device_ops;

void end_pause(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* The places of receives, and behind them of sends. */
static uint8_t *place(const struct end *end, uint64_t number) {
    return (uint8_t *)end->mr.base + number * END_MESSAGE;
}

void end_post_receives(struct end *end) {
    int rc = 0;
    while (rc == 0) {
        uint32_t number = end->receives % END_RECEIVES;
        rc = ops->post_recv(end->device, end->qp, number, place(end, number), END_MESSAGE,
                            end->mr.lkey);
        end->receives += rc == 0;
    }
    assert_int_equal(rc, WEIR_EAGAIN);
}

void end_make_qp(struct end *end) {
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = END_DEPTH, .rq_depth = END_RECEIVES, .recv_bytes_max = END_MESSAGE};
    int rc = WEIR_EAGAIN;
    for (int i = 0; rc == WEIR_EAGAIN && i < END_WAITS; i++) {
        rc = ops->qp_create(end->device, &options, &end->granted, &end->qp);
        if (rc == WEIR_EAGAIN)
            end_pause();
    }
    assert_int_equal(rc, 0);
    end->posted = end->ended = end->bad = 0;
    end->receives = end->messages = end->flushed = end->wrong = 0;
    end->qp_fatal = false;
    memset(end->seen, 0, sizeof end->seen);
    memset(end->told, 0, sizeof end->told);
    end_post_receives(end);
}

void end_open(struct end *end, const struct weir_env *env) {
    memset(end, 0, sizeof *end);
    assert_int_equal(ops->open(env, &end->device), 0);
    assert_int_equal(ops->mr_allocate(end->device, REGION_BYTES, WEIR_ACCESS_ALL, &end->mr), 0);
    end_make_qp(end);
}

static void connect_to(struct end *end, const struct end *other) {
    struct weir_qp_path path = {
        .blob_length = other->granted.blob_length, .blob = other->granted.blob, .crossing = true};
    int rc = ops->qp_connect(end->qp, &path);
    for (int i = 0; rc == WEIR_EINPROGRESS && i < END_WAITS; i++) {
        struct weir_async event;
        if (ops->events(end->device, &event, 1) == 1 && event.type == WEIR_ASYNC_CONNECTED)
            rc = event.error;
        else
            end_pause();
    }
    assert_int_equal(rc, 0);
}

void ends_connect(struct end *one, struct end *other) {
    connect_to(one, other);
    connect_to(other, one);
}

/* The device copies a message at its post. */
bool end_say(struct end *end) {
    uint64_t number = end->posted;
    uint8_t *at = place(end, END_RECEIVES);
    if (number == END_NUMBERS)
        return false;
    memcpy(at, &number, sizeof number);
    struct weir_wr wr = {.wr_id = number,
                         .laddr = (uint64_t)(uintptr_t)at,
                         .lkey = end->mr.lkey,
                         .length = END_MESSAGE,
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post post;
    int rc = ops->post_send(end->qp, &wr, 1, &post);
    assert_true(rc == 0 || rc == WEIR_EAGAIN);
    end->posted += rc == 0;
    return rc == 0;
}

void end_say_all(struct end *end) {
    while (end_say(end))
        continue;
}

static void take_message(struct end *end, const struct weir_cqe *cqe) {
    uint64_t number;
    memcpy(&number, place(end, cqe->wr_id), sizeof number);
    bool is_new = cqe->byte_length == END_MESSAGE && number < END_NUMBERS && !end->seen[number];
    if (is_new)
        end->seen[number] = true;
    end->wrong += !is_new;
    end->messages++;
}

void end_take(struct end *end) {
    struct weir_cqe cqe;
    struct weir_async event;
    while (ops->poll(end->device, &cqe, 1) == 1) {
        if (!cqe.recv) {
            end->ended++;
            end->bad += cqe.status != WEIR_CQE_OK;
            end->told[cqe.wr_id] = cqe.status == WEIR_CQE_OK;
        } else if (cqe.status == WEIR_CQE_OK) {
            take_message(end, &cqe);
        } else {
            end->flushed++;
        }
    }
    while (ops->events(end->device, &event, 1) == 1) {
        end->qp_fatal = end->qp_fatal || event.type == WEIR_ASYNC_QP_FATAL;
        end->fatal = end->fatal || event.type == WEIR_ASYNC_DEVICE_FATAL;
    }
}

void ends_take(struct end *one, struct end *other) {
    end_take(one);
    end_take(other);
    end_pause();
}

static bool is_over(const struct end *end) {
    return end->ended == end->posted && end->messages + end->flushed == end->receives;
}

bool ends_are_over(const struct end *one, const struct end *other) {
    return is_over(one) && is_over(other);
}

static void expect_come(const struct end *from, const struct end *to) {
    for (uint32_t number = 0; number < from->posted; number++)
        assert_true(!from->told[number] || to->seen[number]);
}

void ends_lost_nothing(const struct end *one, const struct end *other) {
    expect_come(one, other);
    expect_come(other, one);
}

void end_destroy(struct end *end) {
    int rc = WEIR_EBUSY;
    for (int i = 0; rc != 0 && i < END_WAITS; i++) {
        rc = ops->qp_destroy(end->qp);
        if (rc != 0)
            end_pause();
    }
    assert_int_equal(rc, 0);
}

void end_close(struct end *end) {
    assert_int_equal(ops->mr_release(end->device, &end->mr), 0);
    ops->close(end->device);
}
