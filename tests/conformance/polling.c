/* SPDX-License-Identifier: Apache-2.0 */
/* polling.c: completions, events, and sleeping until there are some. */
#include "fixture.h"

#include <poll.h>

static bool is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

void test_arm_and_wake(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    int fd = f.ops->fd(f.b.device);
    bool rests = fd >= 0 && !f.world->devices_talk;
    for (int i = 0; i < 10; i++) {
        struct weir_cqe cqe;
        assert_no_cqe(&f, &f.b);
        assert_int_equal(post_recv(&f, &f.b, 1, 0), 0);
        assert_int_equal(f.ops->arm(f.b.device), 0);
        if (rests)
            assert_false(is_readable(fd));
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8)), WEIR_CQE_OK);
        if (fd >= 0)
            assert_true(is_readable(fd));
        f.ops->disarm(f.b.device);
        if (rests)
            assert_false(is_readable(fd));
        assert_int_equal(f.ops->arm(f.b.device), WEIR_EAGAIN);
        assert_true(wait_cqe(&f, &f.b, &cqe));
    }
    fixture_close(&f);
}

/* T2: whoever sleeps is woken when a QP is connected. */
void test_T2_arm_hears_connected(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    int fd = f.ops->fd(f.a.device);
    for (int round = 0; round < 10 && fd >= 0; round++) {
        struct weir_async event;
        struct weir_qp_path path = {.mtu = f.caps.mtu_max,
                                    .rd_atomic = f.caps.rd_atomic_max,
                                    .psn_local = 100,
                                    .psn_remote = 200,
                                    .crossing = true};
        destroy_qp(&f, &f.a);
        destroy_qp(&f, &f.b);
        make_qp(&f, &f.a);
        make_qp(&f, &f.b);
        path.blob = f.b.granted.blob;
        path.blob_length = f.b.granted.blob_length;
        int rc = f.ops->qp_connect(f.a.qp, &path);
        path.blob = f.a.granted.blob;
        path.blob_length = f.a.granted.blob_length;
        path.psn_local = 200;
        path.psn_remote = 100;
        assert_int_not_equal(f.ops->qp_connect(f.b.qp, &path), WEIR_EINVAL);
        while (rc == WEIR_EINPROGRESS) {
            struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
            int armed = f.ops->arm(f.a.device);
            if (armed == 0) /* the other side may have to take the call meanwhile */
                for (int ms = 0; ms < 60000 && poll(&poll_fd, 1, 1) == 0; ms++)
                    while (f.ops->events(f.b.device, &event, 1) == 1)
                        continue;
            assert_true(armed == WEIR_EAGAIN || poll_fd.revents != 0);
            f.ops->disarm(f.a.device);
            if (f.ops->events(f.a.device, &event, 1) == 1 && event.type == WEIR_ASYNC_CONNECTED)
                rc = event.error;
        }
        assert_int_equal(rc, 0);
    }
    fixture_close(&f);
}

/* S18: one poll serves every QP that has something before it serves one twice over. */
void test_S18_poll_is_fair(void **state) {
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
void test_no_events_by_itself(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_async event;
    assert_int_equal(f.ops->events(f.a.device, &event, 1), 0);
    assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8)), WEIR_CQE_OK);
    assert_int_equal(f.ops->events(f.a.device, &event, 1), 0);
    assert_int_equal(f.ops->events(f.b.device, &event, 1), 0);
    fixture_close(&f);
}

/* A poll gives no more than it was asked for, and nothing is lost between polls. */
void test_S18_poll_gives_no_more_than_asked(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    for (int max = 1; max <= (int)SEND_DEPTH + 1; max += 3) {
        struct weir_cqe cqes[SEND_DEPTH + 2];
        struct weir_wr wrs[SEND_DEPTH];
        struct weir_post post;
        uint32_t seen = 0;
        for (uint32_t i = 0; i < SEND_DEPTH; i++) {
            wrs[i] = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
            wrs[i].wr_id = i;
        }
        assert_int_equal(f.ops->post_send(f.a.qp, wrs, SEND_DEPTH, &post), 0);
        settle(&f);
        assert_int_equal(f.ops->poll(f.a.device, cqes, 0), 0);
        for (int round = 0; round < ROUNDS_MAX && seen != (1u << SEND_DEPTH) - 1; round++) {
            cqes[max].wr_id = 4711;
            int got = f.ops->poll(f.a.device, cqes, max);
            assert_in_range(got, 0, max);
            assert_int_equal(cqes[max].wr_id, 4711);
            for (int i = 0; i < got; i++) {
                assert_in_range(cqes[i].wr_id, 0, SEND_DEPTH - 1);
                assert_int_equal(seen >> cqes[i].wr_id & 1, 0);
                seen |= 1u << cqes[i].wr_id;
            }
            f.world->advance(f.world);
        }
        assert_int_equal(seen, (1u << SEND_DEPTH) - 1);
    }
    assert_no_cqe(&f, &f.a);
    fixture_close(&f);
}

/* An armed device wakes for completions of sends as well, those that flush among them. */
void test_arm_hears_sends(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    int fd = f.ops->fd(f.a.device);
    for (int i = 0; i < 10; i++) {
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, 0, 8);
        struct weir_post post;
        struct weir_cqe cqe;
        if (i == 5)
            assert_int_equal(f.ops->qp_error(f.a.qp), 0);
        assert_no_cqe(&f, &f.a);
        while (f.ops->events(f.a.device, &(struct weir_async){0}, 1) == 1)
            continue;
        assert_int_equal(f.ops->arm(f.a.device), 0);
        assert_int_equal(f.ops->post_send(f.a.qp, &wr, 1, &post), 0);
        if (post.done == 1) {
            assert_int_equal(f.ops->arm(f.a.device), 0);
            f.ops->disarm(f.a.device);
            continue;
        }
        /* A device may tell of an event that its own post caused at the next arm, not by the
         * descriptor. */
        int rc = 0;
        for (int k = 0; k < ROUNDS_MAX && rc == 0; k++) {
            struct weir_async event;
            bool is_awake = fd >= 0 && is_readable(fd);
            rc = f.ops->arm(f.a.device);
            if (is_awake && !f.world->devices_talk && f.ops->events(f.a.device, &event, 1) == 0)
                assert_int_equal(rc, WEIR_EAGAIN);
            f.world->advance(f.world);
        }
        assert_int_equal(rc, WEIR_EAGAIN);
        f.ops->disarm(f.a.device);
        assert_true(wait_cqe(&f, &f.a, &cqe));
        assert_int_equal(cqe.status, i < 5 ? WEIR_CQE_OK : WEIR_CQE_FLUSHED);
    }
    fixture_close(&f);
}

/* Arming and disarming may be done again and again, and out of turn. */
void test_arm_again_and_again(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    int fd = f.ops->fd(f.b.device);
    f.ops->disarm(f.b.device);
    for (int i = 0; i < 10; i++) {
        struct weir_cqe cqe;
        assert_int_equal(post_recv(&f, &f.b, 1, 0), 0);
        assert_int_equal(f.ops->arm(f.b.device), 0);
        assert_int_equal(f.ops->arm(f.b.device), 0);
        f.ops->disarm(f.b.device);
        f.ops->disarm(f.b.device);
        if (i % 2 == 0)
            assert_int_equal(f.ops->arm(f.b.device), 0);
        assert_int_equal(run_wr(&f, &f.a, make_wr(&f.a, WEIR_OP_SEND, 0, 0, 8)), WEIR_CQE_OK);
        if (i % 2 == 0 && fd >= 0)
            assert_true(is_readable(fd));
        assert_int_equal(f.ops->arm(f.b.device), WEIR_EAGAIN);
        assert_int_equal(f.ops->arm(f.b.device), WEIR_EAGAIN);
        assert_true(wait_cqe(&f, &f.b, &cqe));
        f.ops->disarm(f.b.device);
        assert_no_cqe(&f, &f.b);
        if (fd >= 0)
            assert_false(is_readable(fd));
    }
    fixture_close(&f);
}

/* Takes all events of a side; each must be of a QP of its, or of nobody's. How many. */
static uint32_t take_events(struct fixture *f, const struct side *side, struct weir_async *last) {
    uint32_t count = 0;
    struct weir_async events[3];
    for (;;) {
        events[1].type = events[2].type = 4711;
        int got = f->ops->events(side->device, events, 1);
        assert_in_range(got, 0, 1);
        assert_int_equal(events[1].type, 4711);
        if (got == 0)
            return count;
        *last = events[0];
        assert_int_not_equal(events[0].type, WEIR_ASYNC_CONNECTED);
        assert_int_not_equal(events[0].type, WEIR_ASYNC_PEER_DEAD);
        assert_int_not_equal(events[0].type, WEIR_ASYNC_DEVICE_FATAL);
        assert_int_equal(events[0].qp_tag, side->tag);
        if (events[0].type == WEIR_ASYNC_LAST_WQE)
            assert_true(f->caps.last_wqe);
        count++;
    }
}

/* T4: an event of a QP that was put in the error state is of that QP, says at most that it takes no
 * more buffers, and no other QP hears any of it. */
void test_T4_events_of_an_error(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    struct weir_async last = {0};
    settle(&f);
    assert_int_equal(take_events(&f, &f.a, &last), 0); /* connected: said once */
    assert_int_equal(take_events(&f, &f.b, &last), 0);
    assert_int_equal(f.ops->qp_error(f.a.qp), 0);
    settle(&f);
    if (take_events(&f, &f.a, &last) > 0)
        assert_int_equal(last.type, WEIR_ASYNC_LAST_WQE);
    uint32_t others = take_events(&f, &f.b, &last); /* where it ends a connection: that it did */
    if (f.caps.blames)
        assert_int_equal(others, 0);
    else if (!f.caps.last_wqe)
        assert_in_range(others, 0, 1);
    if (others > 0)
        assert_true(last.type == WEIR_ASYNC_QP_FATAL ||
                    (f.caps.last_wqe && last.type == WEIR_ASYNC_LAST_WQE));
    destroy_qp(&f, &f.a);
    settle(&f);
    assert_int_equal(take_events(&f, &f.a, &last), 0);
    fixture_close(&f);
}

/* T7: events wake an armed device as completions do, and those of a QP go with it. */
void test_T7_events_wake(void **state) {
    struct fixture f;
    fixture_open(&f, state, true);
    for (int round = 0; round < 4; round++) {
        const struct side *sides[2] = {&f.a, &f.b};
        struct weir_wr wr = make_wr(&f.a, WEIR_OP_WRITE, 0, REGION_BYTES, 8);
        assert_ended(&f, run_wr(&f, &f.a, wr), WEIR_CQE_REMOTE_ACCESS);
        assert_no_cqe(&f, &f.a);
        assert_no_cqe(&f, &f.b);
        for (int i = 0; i < 2 && round < 3; i++) {
            struct weir_async last;
            int fd = f.ops->fd(sides[i]->device);
            int rc = f.ops->arm(sides[i]->device);
            bool is_awake = rc == WEIR_EAGAIN || (fd >= 0 && is_readable(fd));
            if (take_events(&f, sides[i], &last) > 0)
                assert_true(is_awake);
            f.ops->disarm(sides[i]->device);
        }
        remake_pair(&f);
        for (int i = 0; i < 2; i++) { /* in the last round nobody has taken them */
            struct weir_async event;
            assert_int_equal(f.ops->events(sides[i]->device, &event, 1), 0);
        }
    }
    fixture_close(&f);
}
