/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_iwarp.c: connections of the verbs backend's iWARP QPs, over the connection manager of
 * verbs_fake_cm.h: who calls whom, whose call is taken, and how QPs go in the middle of it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verbs_fake_cm.h"

/* ---- what a caller says: 4 bytes WEIR, 4 zeros, whom it wants, who it is ---- */

enum { CALL_BYTES = 24 };

static void say(uint8_t said[CALL_BYTES], uint64_t called, uint64_t caller) {
    memcpy(said, "WEIR\0\0\0\0", 8);
    memcpy(said + 8, &called, 8);
    memcpy(said + 16, &caller, 8);
}

static uint64_t cookie_of(const struct weir_qp *qp) {
    return qp->source.address.cookie;
}

static void call_as(const struct weir_qp *qp, uint64_t caller) {
    uint8_t said[CALL_BYTES];
    say(said, cookie_of(qp), caller);
    fake_cm_call(said, sizeof said);
}

/* A call that is to be rejected, and leaves nothing behind. */
static void expect_rejected(struct weir_device *device, const void *said, uint32_t length) {
    uint32_t ids = fake_cm_count(&fake_cm.ids), rejects = fake_cm.rejects;
    fake_cm_call(said, length);
    iwarp_expect_none(device);
    assert_int_equal(fake_cm.rejects, rejects + 1);
    assert_int_equal(fake_cm_count(&fake_cm.ids), ids);
}

static void expect_rejected_as(struct weir_device *device, const struct weir_qp *qp,
                               uint64_t caller) {
    uint8_t said[CALL_BYTES];
    say(said, cookie_of(qp), caller);
    expect_rejected(device, said, sizeof said);
}

static bool is_down(enum rdma_cm_event_type type) {
    return type != RDMA_CM_EVENT_ESTABLISHED;
}
static const enum rdma_cm_event_type ends[] = {
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED};
enum { ENDS = sizeof ends / sizeof ends[0] };

/* ---- dialling ---- */

static void test_H9_dial_says_what_was_agreed(void **state) {
    (void)state;
    setenv("WEIR_VERBS_TRAFFIC_CLASS", "40", 1);
    struct weir_device *device = iwarp_open();
    unsetenv("WEIR_VERBS_TRAFFIC_CLASS");
    struct weir_qp *qp = iwarp_create(device, 5);
    const struct fake_id *id = iwarp_dial(qp);
    uint8_t said[CALL_BYTES];
    say(said, PEER_COOKIE, cookie_of(qp));
    assert_int_equal(id->said_length, sizeof said);
    assert_memory_equal(id->said, said, sizeof said);
    assert_int_equal(id->to_port, PEER_PORT);
    assert_int_equal(id->qp_num, qp->qpn);
    assert_int_equal(id->responder_resources, 3);
    assert_int_equal(id->initiator_depth, 3);
    assert_int_equal(id->srq, device->srq != NULL);
    assert_int_equal(id->tos, 40);
    iwarp_destroy(qp);
    iwarp_close(device);
}

/* However it ends, CONNECTED comes once, and says so; also if that was known before the thread
 * that called is done. */
static void test_H8_dial_ends_once(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (size_t i = 0; i < 2 * ENDS; i++) {
        enum rdma_cm_event_type type = ends[i % ENDS];
        int error = is_down(type) ? WEIR_EPEER : 0;
        struct weir_qp *qp = iwarp_create(device, (uint32_t)i);
        struct weir_async events[4];
        if (i < ENDS) {
            struct fake_id *id = iwarp_dial(qp);
            iwarp_expect_none(device);
            fake_cm_event(id, type);
        } else {
            uint32_t before = fake_cm_count(&fake_cm.dials);
            assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
            fake_cm_wait(&fake_cm.dials, before + 1);
            fake_cm_event(fake_cm_id_of(qp), type);
            assert_int_equal(cm_events(device, events, 4), 0);
        }
        iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, error);
        iwarp_expect_none(device);
        assert_int_equal(qp->state, is_down(type) ? QP_FAILED : QP_READY);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    iwarp_close(device);
}

/* An answer in the first two seconds is in time. */
static void test_H8_address_resolved_late(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (uint32_t late = 1; late <= 20; late += 18) {
        struct weir_qp *qp = iwarp_create(device, 1);
        fake_cm.late_answers = late;
        iwarp_dial(qp);
        assert_int_equal(fake_cm.late_answers, 0);
        iwarp_destroy(qp);
    }
    iwarp_close(device);
}

static void test_H8_dial_does_not_get_away(void **state) {
    (void)state;
    int *const steps[] = {&fake_cm.resolve_error, &fake_cm.route_error, &fake_cm.migrate_error,
                          &fake_cm.connect_error};
    static const struct {
        int error, expected;
    } errors[] = {{ECONNREFUSED, WEIR_EPEER},  {ETIMEDOUT, WEIR_EPEER},
                  {EHOSTUNREACH, WEIR_EPEER},  {ENOMEM, WEIR_ENOMEM},
                  {EADDRNOTAVAIL, WEIR_EPEER}, {EIO, WEIR_EDEVICE}};
    struct weir_device *device = iwarp_open();
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof errors / sizeof errors[0]; k++) {
            struct weir_qp *qp = iwarp_create(device, 1);
            *steps[i] = errors[k].error;
            assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
            iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, errors[k].expected);
            *steps[i] = 0;
            assert_int_equal(fake_cm_count(&fake_cm.ids), 1);
            expect_rejected_as(device, qp, PEER_COOKIE);
            assert_int_equal(verbs_qp_destroy(qp), 0);
        }
    }
    iwarp_close(device);
}

/* ---- called before it is asked to connect ---- */

static struct weir_qp *make_called(struct weir_device *device, uint64_t caller) {
    uint32_t before = fake_cm.accepts;
    struct weir_qp *qp = iwarp_create(device, 3);
    call_as(qp, caller);
    iwarp_expect_none(device);
    assert_int_equal(fake_cm.accepts, before + (fake_cm.accept_error == 0));
    return qp;
}

static void test_H8_call_before_connect(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (int first = 0; first < 2; first++) {
        struct weir_qp *qp = make_called(device, PEER_COOKIE);
        struct fake_id *id = fake_cm_id_of(qp);
        assert_int_equal(id->qp_num, qp->qpn);
        assert_int_equal(id->responder_resources, device->caps.rd_atomic_max);
        assert_int_equal(id->initiator_depth, device->caps.rd_atomic_max);
        if (first) { /* it is up before it is asked for */
            fake_cm_event(id, RDMA_CM_EVENT_ESTABLISHED);
            iwarp_expect_none(device);
            assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), 0);
        } else {
            assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
            iwarp_expect_none(device);
            fake_cm_event(id, RDMA_CM_EVENT_ESTABLISHED);
            iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, 0);
        }
        iwarp_expect_none(device);
        assert_int_equal(qp->state, QP_READY);
        assert_int_equal(fake_cm.dials, 0);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    iwarp_close(device);
}

static void test_H8_call_that_comes_to_nothing(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (size_t i = 0; i < ENDS && is_down(ends[i]); i++) {
        struct weir_qp *qp = make_called(device, PEER_COOKIE);
        fake_cm_event(fake_cm_id_of(qp), ends[i]);
        iwarp_expect_none(device);
        assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EPEER);
        assert_int_equal(verbs_qp_destroy(qp), 0);
        qp = make_called(device, PEER_COOKIE);
        assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
        fake_cm_event(fake_cm_id_of(qp), ends[i]);
        iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, WEIR_EPEER);
        assert_int_equal(qp->state, QP_FAILED);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    fake_cm.accept_error = EINVAL;
    struct weir_qp *qp = make_called(device, PEER_COOKIE);
    assert_int_equal(fake_cm.ids, 1);
    expect_rejected_as(device, qp, PEER_COOKIE); /* a QP serves for one call */
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EPEER);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    iwarp_close(device);
}

/* ---- strangers ---- */

static void test_H13_strangers_are_rejected(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *idle = iwarp_create(device, 1);
    struct weir_qp *up = iwarp_make(device, 2);
    uint8_t good[CALL_BYTES], bad[CALL_BYTES + 8];
    say(good, cookie_of(idle), PEER_COOKIE);
    for (uint32_t length = 0; length < CALL_BYTES; length++)
        expect_rejected(device, good, length);
    for (uint32_t i = 0; i < 16; i++) {
        if (i >= 4 && i < 8)
            continue; /* zeros are not looked at */
        memcpy(bad, good, CALL_BYTES);
        bad[i] ^= 0x40;
        expect_rejected(device, bad, CALL_BYTES);
    }
    expect_rejected_as(device, idle, 0);
    expect_rejected_as(device, up, PEER_COOKIE);
    expect_rejected_as(device, up, PEER_COOKIE + 1);
    assert_int_equal(verbs_qp_error(up), 0);
    expect_rejected_as(device, up, PEER_COOKIE);
    call_as(idle, PEER_COOKIE);
    iwarp_expect_none(device);
    assert_int_equal(idle->link, LINK_ACCEPTED);
    expect_rejected_as(device, idle, PEER_COOKIE); /* it has one */
    expect_rejected_as(device, idle, PEER_COOKIE + 1);
    uint64_t gone = cookie_of(idle);
    iwarp_destroy(idle);
    say(good, gone, PEER_COOKIE);
    expect_rejected(device, good, sizeof good);
    assert_int_equal(verbs_qp_destroy(up), 0);
    iwarp_close(device);
}

/* Some provider may hand over more bytes than were said, zeros behind them. */
static void test_H13_call_with_padding(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_create(device, 1);
    uint8_t said[FAKE_CALL_MAX] = {0};
    say(said, cookie_of(qp), PEER_COOKIE);
    fake_cm_call(said, sizeof said);
    iwarp_expect_none(device);
    assert_int_equal(fake_cm.accepts, 1);
    iwarp_destroy(qp);
    iwarp_close(device);
}

/* A caller that knows the cookie, and is not whom we were told of. */
static void test_H4_caller_who_was_not_meant(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (int up = 0; up < 2; up++) { /* it called before we were told */
        struct weir_qp *qp = make_called(device, PEER_COOKIE + 1);
        if (up) {
            fake_cm_event(fake_cm_id_of(qp), RDMA_CM_EVENT_ESTABLISHED);
            iwarp_expect_none(device);
        }
        assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EPEER);
        struct weir_wr wr = {.flags = WEIR_WR_SIGNALED};
        struct weir_post result;
        assert_int_equal(verbs_post_send(qp, &wr, 1, &result), WEIR_EINVAL);
        iwarp_destroy(qp);
    }
    struct weir_qp *qp = iwarp_create(device, 1); /* and after */
    struct fake_id *id = iwarp_dial(qp);
    expect_rejected_as(device, qp, PEER_COOKIE + 1);
    expect_rejected_as(device, qp, UINT64_MAX);
    fake_cm_event(id, RDMA_CM_EVENT_ESTABLISHED);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, 0);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    iwarp_close(device);
}

/* ---- both at once ---- */

static void test_H2_lesser_waits_and_takes_the_call(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (int round = 0; round < 10; round++) {
        uint32_t dials = fake_cm_count(&fake_cm.dials), accepts = fake_cm.accepts;
        struct weir_qp *lesser = iwarp_create(device, 1), *greater = iwarp_create(device, 2);
        if (cookie_of(lesser) > cookie_of(greater)) {
            struct weir_qp *other = lesser;
            lesser = greater;
            greater = other;
        }
        assert_int_equal(iwarp_connect(lesser, cookie_of(greater), true), WEIR_EINPROGRESS);
        assert_int_equal(iwarp_connect(greater, cookie_of(lesser), true), WEIR_EINPROGRESS);
        fake_cm_wait(&fake_cm.dials, dials + 1);
        struct fake_id *dial = fake_cm_id_of(greater);
        assert_non_null(dial);
        assert_null(fake_cm_id_of(lesser));
        fake_cm_call(dial->said, dial->said_length);
        iwarp_until(device, lesser, LINK_ACCEPTED);
        assert_int_equal(fake_cm.accepts, accepts + 1);
        fake_cm_event(fake_cm_id_of(lesser), RDMA_CM_EVENT_ESTABLISHED);
        iwarp_expect(device, WEIR_ASYNC_CONNECTED, lesser, 0);
        fake_cm_event(dial, RDMA_CM_EVENT_ESTABLISHED);
        iwarp_expect(device, WEIR_ASYNC_CONNECTED, greater, 0);
        iwarp_expect_none(device);
        assert_int_equal(fake_cm_count(&fake_cm.dials), dials + 1);
        assert_int_equal(verbs_qp_destroy(lesser), 0);
        assert_int_equal(verbs_qp_destroy(greater), 0);
    }
    assert_int_equal(fake_cm.rejects, 0);
    iwarp_close(device);
}

static void test_H2_call_is_taken_and_fails(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_create(device, 1);
    fake_cm.accept_error = EINVAL;
    assert_int_equal(iwarp_connect(qp, UINT64_MAX, true), WEIR_EINPROGRESS);
    call_as(qp, UINT64_MAX);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, WEIR_EPEER);
    iwarp_expect_none(device);
    assert_int_equal(fake_cm_count(&fake_cm.ids), 1);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    iwarp_close(device);
}

static void test_H2_lesser_dials_when_nobody_calls(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_create(device, 1);
    assert_int_equal(iwarp_connect(qp, UINT64_MAX, true), WEIR_EINPROGRESS);
    expect_rejected_as(device, qp, UINT64_MAX - 1); /* not the one */
    iwarp_until(device, qp, LINK_DIALLED);
    assert_int_equal(fake_cm.dials, 1);
    fake_cm_event(fake_cm_id_of(qp), RDMA_CM_EVENT_ESTABLISHED);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, 0);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    iwarp_close(device);
}

/* Both have dialled: neither takes a call, and nothing comes of it. */
static void test_H2_both_have_dialled(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *greater = iwarp_create(device, 1), *lesser = iwarp_create(device, 2);
    assert_int_equal(iwarp_connect(greater, 1, true), WEIR_EINPROGRESS);
    iwarp_until(device, greater, LINK_DIALLED);
    expect_rejected_as(device, greater, 1);
    assert_int_equal(iwarp_connect(lesser, UINT64_MAX, true), WEIR_EINPROGRESS);
    iwarp_until(device, lesser, LINK_DIALLED);
    expect_rejected_as(device, lesser, UINT64_MAX);
    fake_cm_event(fake_cm_id_of(lesser), RDMA_CM_EVENT_REJECTED);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, lesser, WEIR_EPEER);
    assert_int_equal(verbs_qp_destroy(lesser), 0);
    fake_cm_event(fake_cm_id_of(greater), RDMA_CM_EVENT_ESTABLISHED);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, greater, 0);
    assert_int_equal(verbs_qp_destroy(greater), 0);
    iwarp_close(device);
}

/* ---- going ---- */

/* Whether it went at once, or a thread had to end its call: EBUSY for as long as that takes. */
static void destroy_slowly(struct weir_qp *qp) {
    uint32_t drops = fake_cm_count(&fake_cm.drops);
    fake_cm_hold_drops(true);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
        assert_int_equal(verbs_qp_error(qp), 0);
        iwarp_expect_none(qp->device);
    }
    fake_cm_hold_drops(false);
    iwarp_destroy(qp);
    assert_int_equal(fake_cm_count(&fake_cm.drops), drops + 1);
}

/* Half made by the other side's call: a thread ends it. */
static void destroy_accepted(struct weir_qp *qp) {
    assert_int_equal(qp->link, LINK_ACCEPTED);
    assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
    iwarp_destroy(qp);
}

static void test_T2_destroy_while_connecting(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_create(device, 1); /* NONE */
    assert_int_equal(verbs_qp_destroy(qp), 0);

    qp = iwarp_create(device, 1); /* a thread is calling */
    fake_cm_hold_connects(true);
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
    fake_cm_wait(&fake_cm.ids, 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
    fake_cm_hold_connects(false);
    iwarp_destroy(qp); /* no look at events: CONNECTED may come while it is EBUSY */
    assert_int_equal(fake_cm_count(&fake_cm.drops), fake_cm_count(&fake_cm.dials));

    qp = iwarp_create(device, 1); /* DIALLED */
    iwarp_dial(qp);
    destroy_slowly(qp);

    qp = make_called(device, PEER_COOKIE); /* ACCEPTED, and nobody asked for it */
    destroy_accepted(qp);
    qp = make_called(device, PEER_COOKIE); /* ACCEPTED */
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
    destroy_accepted(qp);
    iwarp_expect_none(device);

    qp = iwarp_make(device, 1); /* UP */
    assert_int_equal(verbs_qp_destroy(qp), 0);
    qp = iwarp_create(device, 1); /* DOWN */
    fake_cm_event(iwarp_dial(qp), RDMA_CM_EVENT_REJECTED);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, WEIR_EPEER);
    assert_int_equal(verbs_qp_destroy(qp), 0);

    qp = iwarp_create(device, 1); /* waits for a call */
    assert_int_equal(iwarp_connect(qp, UINT64_MAX, true), WEIR_EINPROGRESS);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    qp = iwarp_create(device, 1); /* that was taken */
    assert_int_equal(iwarp_connect(qp, UINT64_MAX, true), WEIR_EINPROGRESS);
    call_as(qp, UINT64_MAX);
    struct weir_async events[4];
    assert_int_equal(cm_events(device, events, 4), 0);
    destroy_accepted(qp);
    iwarp_expect_none(device);
    iwarp_close(device);
}

/* The provider does not let the QP go; meanwhile its connection is gone once only. */
static void test_T4_destroy_fails_at_first(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_make(device, 1);
    fake.destroy_error = EBUSY;
    assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
    assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
    fake.destroy_error = 0;
    assert_int_equal(verbs_qp_destroy(qp), 0);
    qp = iwarp_create(device, 1);
    iwarp_dial(qp);
    fake.destroy_error = EBUSY;
    for (int i = 0; i < 20; i++) {
        const struct timespec pause = {.tv_nsec = 1000000};
        assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
        nanosleep(&pause, NULL);
    }
    fake.destroy_error = 0;
    iwarp_destroy(qp);
    iwarp_close(device);
}

/* The answer comes while a thread ends the call. */
static void test_T7_answer_to_a_call_that_ends(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    for (size_t i = 0; i < ENDS; i++) {
        struct weir_qp *qp = iwarp_create(device, 1);
        struct fake_id *id = iwarp_dial(qp);
        fake_cm_hold_drops(true);
        assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
        fake_cm_event(id, ends[i]);
        struct weir_async events[4];
        assert_int_equal(cm_events(device, events, 4), 0);
        fake_cm_hold_drops(false);
        iwarp_destroy(qp);
    }
    iwarp_close(device);
}

/* ---- the error state ---- */

static void expect_failed_once(struct weir_device *device, struct weir_qp *qp) {
    for (int i = 0; i < 3; i++)
        assert_int_equal(verbs_qp_error(qp), 0);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, WEIR_EDEVICE);
    iwarp_expect_none(device);
}

static void test_T2_error_while_connecting(void **state) {
    (void)state;
    struct weir_device *device = iwarp_open();
    struct weir_qp *qp = iwarp_create(device, 1);
    iwarp_dial(qp);
    expect_failed_once(device, qp);
    destroy_slowly(qp); /* nobody has answered */

    for (size_t i = 0; i < ENDS; i++) { /* the answer comes after all */
        qp = iwarp_create(device, 1);
        struct fake_id *id = iwarp_dial(qp);
        expect_failed_once(device, qp);
        fake_cm_event(id, ends[i]);
        iwarp_expect_none(device);
        assert_int_equal(verbs_qp_destroy(qp), 0);
        qp = iwarp_create(device, 1); /* between */
        id = iwarp_dial(qp);
        assert_int_equal(verbs_qp_error(qp), 0);
        fake_cm_event(id, ends[i]);
        struct weir_async events[4];
        assert_int_equal(cm_events(device, events, 4), 0);
        expect_failed_once(device, qp);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }

    qp = make_called(device, PEER_COOKIE);
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
    struct fake_id *id = fake_cm_id_of(qp);
    expect_failed_once(device, qp);
    fake_cm_event(id, RDMA_CM_EVENT_ESTABLISHED);
    iwarp_expect_none(device);
    assert_int_equal(verbs_qp_destroy(qp), 0);

    qp = iwarp_create(device, 1); /* a thread is calling */
    fake_cm_hold_connects(true);
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
    fake_cm_wait(&fake_cm.ids, 2);
    assert_int_equal(verbs_qp_error(qp), 0);
    fake_cm_hold_connects(false);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, WEIR_EDEVICE);
    destroy_slowly(qp);

    qp = iwarp_create(device, 1); /* waits for a call, which comes */
    assert_int_equal(iwarp_connect(qp, UINT64_MAX, true), WEIR_EINPROGRESS);
    assert_int_equal(verbs_qp_error(qp), 0);
    call_as(qp, UINT64_MAX);
    assert_int_not_equal(iwarp_event(device).error, 0);
    iwarp_expect_none(device);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    iwarp_close(device);
}

/* ---- the device ---- */

/* ---- a provider whose calls raise SIGPIPE ---- */

static bool pipe_is_pending(void) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
}

/* All that this thread asks of the provider. */
static void meet_everything(struct weir_device *device) {
    struct weir_wr wr = {.opcode = WEIR_OP_WRITE, .flags = WEIR_WR_SIGNALED};
    struct weir_post result;
    uint32_t rejects = fake_cm.rejects;
    struct weir_qp *qp = iwarp_make(device, 1);
    assert_int_equal(verbs_post_send(qp, &wr, 1, &result), 0);
    call_as(qp, PEER_COOKIE); /* which has a connection */
    iwarp_expect_none(device);
    assert_int_equal(fake_cm.rejects, rejects + 1);
    assert_int_equal(verbs_qp_error(qp), 0);
    iwarp_destroy(qp);
    qp = make_called(device, PEER_COOKIE);
    fake.refusal = ENOTCONN; /* an error within a post */
    fake_cm_event(fake_cm_id_of(qp), RDMA_CM_EVENT_ESTABLISHED);
    iwarp_expect_none(device);
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), 0);
    assert_int_equal(verbs_post_send(qp, &wr, 1, &result), 0);
    assert_int_equal(qp->state, QP_ERROR);
    fake.refusal = 0;
    iwarp_destroy(qp);
}

/* With the signal's default action, which ends the process: also with the signal held back
 * by the application, of which nothing is left behind, and with one of its own pending. */
static void test_E6_sigpipe_is_not_the_applications(void **state) {
    (void)state;
    sigset_t pipe, before, after;
    struct sigaction action;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigaction(SIGPIPE, NULL, &action);
    assert_true(action.sa_handler == SIG_DFL);
    struct weir_device *device = iwarp_open_siw();
    assert_true(device->raises_sigpipe);
    fake.pipes = true;
    for (int held = 0; held < 3; held++) {
        if (held > 0)
            pthread_sigmask(SIG_BLOCK, &pipe, NULL);
        if (held > 1)
            raise(SIGPIPE);
        pthread_sigmask(SIG_SETMASK, NULL, &before);
        meet_everything(device);
        pthread_sigmask(SIG_SETMASK, NULL, &after);
        assert_int_equal(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE));
        assert_int_equal(pipe_is_pending(), held > 1);
    }
    int taken;
    assert_int_equal(sigwait(&pipe, &taken), 0);
    pthread_sigmask(SIG_UNBLOCK, &pipe, NULL);
    iwarp_close(device);
}

static void test_E6_no_device_without_the_manager(void **state) {
    (void)state;
    fake_reset();
    fake_iwarp();
    struct weir_device *device = NULL;
    struct weir_env env = {0};
    struct weir_device_caps caps = {0};
    fake_cm_reset();
    fake_cm.channel_error = ENOENT;
    assert_int_equal(verbs_device_ops.open(&env, &device), WEIR_ENODEVICE);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "fake0: iWARP needs the kernel's rdma_ucm");
    fake_cm_reset();
    fake_cm.bind_error = EADDRNOTAVAIL;
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "fake0: iWARP, and its interface has no IP address");
    assert_int_equal(fake_cm.ids + fake_cm.channels, 0);
    assert_true(fake.closed);
}

static void test_E5_device_that_cannot_listen(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct weir_device *device = iwarp_open();
        struct weir_env env = device->env;
        iwarp_close(device);
        device = NULL;
        fake_cm.listen_error = i == 0 ? EADDRINUSE : 0;
        fake_cm.port = i == 0 ? fake_cm.port : 0;
        assert_int_equal(verbs_device_ops.open(&env, &device), WEIR_EDEVICE);
        assert_null(device);
        assert_int_equal(fake_cm.ids + fake_cm.channels + fake.mrs + fake.qps, 0);
        assert_true(fake.closed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H9_dial_says_what_was_agreed),
        cmocka_unit_test(test_H8_dial_ends_once),
        cmocka_unit_test(test_H8_address_resolved_late),
        cmocka_unit_test(test_H8_dial_does_not_get_away),
        cmocka_unit_test(test_H8_call_before_connect),
        cmocka_unit_test(test_H8_call_that_comes_to_nothing),
        cmocka_unit_test(test_H13_strangers_are_rejected),
        cmocka_unit_test(test_H13_call_with_padding),
        cmocka_unit_test(test_H4_caller_who_was_not_meant),
        cmocka_unit_test(test_H2_lesser_waits_and_takes_the_call),
        cmocka_unit_test(test_H2_call_is_taken_and_fails),
        cmocka_unit_test(test_H2_lesser_dials_when_nobody_calls),
        cmocka_unit_test(test_H2_both_have_dialled),
        cmocka_unit_test(test_T2_destroy_while_connecting),
        cmocka_unit_test(test_T4_destroy_fails_at_first),
        cmocka_unit_test(test_T7_answer_to_a_call_that_ends),
        cmocka_unit_test(test_T2_error_while_connecting),
        cmocka_unit_test(test_E6_sigpipe_is_not_the_applications),
        cmocka_unit_test(test_E6_no_device_without_the_manager),
        cmocka_unit_test(test_E5_device_that_cannot_listen),
    };
    return cmocka_run_group_tests_name("verbs_iwarp", tests, NULL, NULL);
}
