/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_events.c: asynchronous and completion events of the verbs backend, over the
 * provider of verbs_fake.h, which fails when something is destroyed of which an event was
 * taken and not acknowledged. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_fake.h"

#include "device.h"

enum { BATCH = 4 };

static struct weir_device *start(void) {
    fake_reset();
    fake.numbers_grow = true;
    return device_open();
}

static struct weir_qp *make(struct weir_device *device, uint32_t tag) {
    struct weir_qp_granted granted;
    return qp_create(device, tag, &granted);
}

/* Takes events; after each call none is left unacknowledged. */
static int take(struct weir_device *device, struct weir_async *events_out, int max) {
    int count = verbs_events(device, events_out, max);
    assert_in_range(count, 0, max);
    assert_true(fake_all_acknowledged());
    return count;
}

static void disarm(struct weir_device *device) {
    verbs_disarm(device);
    assert_int_equal(fake.cq_event_count, 0);
    assert_true(fake_all_acknowledged());
}

/* ---- asynchronous events ---- */

/* Every type that there is, one by one, and what the engine hears of it. */
static void test_T7_async_events_are_acknowledged_when_taken(void **state) {
    (void)state;
    static const struct {
        enum ibv_event_type type;
        uint32_t told; /* 0: nothing */
        bool of_port;
    } cases[] = {
        {IBV_EVENT_CQ_ERR, WEIR_ASYNC_DEVICE_FATAL, false},
        {IBV_EVENT_QP_FATAL, WEIR_ASYNC_QP_FATAL, false},
        {IBV_EVENT_QP_REQ_ERR, WEIR_ASYNC_QP_FATAL, false},
        {IBV_EVENT_QP_ACCESS_ERR, WEIR_ASYNC_QP_FATAL, false},
        {IBV_EVENT_COMM_EST, 0, false},
        {IBV_EVENT_SQ_DRAINED, 0, false},
        {IBV_EVENT_PATH_MIG, 0, false},
        {IBV_EVENT_PATH_MIG_ERR, 0, false},
        {IBV_EVENT_DEVICE_FATAL, WEIR_ASYNC_DEVICE_FATAL, false},
        {IBV_EVENT_PORT_ACTIVE, 0, true},
        {IBV_EVENT_PORT_ERR, 0, true},
        {IBV_EVENT_LID_CHANGE, 0, true},
        {IBV_EVENT_PKEY_CHANGE, 0, true},
        {IBV_EVENT_SM_CHANGE, 0, true},
        {IBV_EVENT_SRQ_ERR, WEIR_ASYNC_DEVICE_FATAL, false},
        {IBV_EVENT_SRQ_LIMIT_REACHED, 0, false},
        {IBV_EVENT_QP_LAST_WQE_REACHED, WEIR_ASYNC_LAST_WQE, false},
        {IBV_EVENT_CLIENT_REREGISTER, 0, true},
        {IBV_EVENT_GID_CHANGE, 0, true},
    };
    struct weir_device *device = start();
    struct weir_qp *qp = make(device, 5);
    struct weir_async events[BATCH];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        device->port_changed = false;
        fake_event(cases[i].type, qp);
        assert_int_equal(take(device, events, BATCH), cases[i].told != 0);
        if (cases[i].told != 0)
            assert_int_equal(events[0].type, cases[i].told);
        if (cases[i].told == WEIR_ASYNC_QP_FATAL || cases[i].told == WEIR_ASYNC_LAST_WQE)
            assert_int_equal(events[0].qp_tag, 5);
        assert_int_equal(device->port_changed, cases[i].of_port);
        assert_int_equal(fake.async.taken, i + 1);
        assert_int_equal(take(device, events, BATCH), 0);
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_close(device);
}

/* Of several QPs, more than one call takes: in order, each once, none unacknowledged between
 * the calls. */
static void test_T7_many_async_events_at_once(void **state) {
    (void)state;
    enum { QPS = 5, EACH = 40 };
    for (int max = 1; max <= 2 * BATCH; max++) {
        struct weir_device *device = start();
        struct weir_qp *qps[QPS];
        struct weir_async events[2 * BATCH];
        uint32_t heard[QPS] = {0}, total = 0;
        for (uint32_t i = 0; i < QPS; i++)
            qps[i] = make(device, i);
        for (uint32_t i = 0; i < QPS * EACH; i++)
            fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, qps[i % QPS]);
        int count;
        while ((count = take(device, events, max)) > 0) {
            for (int i = 0; i < count; i++, total++) {
                assert_int_equal(events[i].type, WEIR_ASYNC_LAST_WQE);
                assert_int_equal(events[i].qp_tag, total % QPS);
                heard[events[i].qp_tag]++;
            }
        }
        for (uint32_t i = 0; i < QPS; i++) {
            assert_int_equal(heard[i], EACH);
            assert_int_equal(verbs_qp_destroy(qps[i]), 0);
        }
        device_close(device);
    }
}

/* Events that nobody hears of do not keep one call busy for ever, and are not kept either. */
static void test_T7_events_of_no_interest_are_acknowledged(void **state) {
    (void)state;
    struct weir_device *device = start();
    struct weir_qp *qp = make(device, 3);
    struct weir_async events[BATCH];
    for (int i = 0; i < 100; i++)
        fake_event(i % 2 == 0 ? IBV_EVENT_COMM_EST : IBV_EVENT_PORT_ACTIVE, qp);
    fake_event(IBV_EVENT_QP_FATAL, qp);
    int calls = 0;
    while (take(device, events, BATCH) == 0)
        assert_true(++calls < 100);
    assert_int_equal(events[0].type, WEIR_ASYNC_QP_FATAL);
    assert_int_equal(events[0].qp_tag, 3);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_close(device);
}

/* ---- between error and destroy ---- */

/* Each of three events comes before the error, after it, or after a destroy that did not
 * work, and is taken at one of these times or (3) not at all: then it goes with its QP. */
static void test_T7_events_between_error_and_destroy(void **state) {
    (void)state;
    for (uint32_t comes = 0; comes < 3; comes++) {
        for (uint32_t taken = comes; taken <= 3; taken++) {
            struct weir_device *device = start();
            struct weir_qp *other = make(device, 1), *qp = make(device, 2);
            struct weir_async events[BATCH];
            for (uint32_t at = 0; at < 3; at++) {
                if (at == 1)
                    assert_int_equal(verbs_qp_error(qp), 0);
                fake.destroy_error = EBUSY;
                if (at == 2)
                    assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
                fake.destroy_error = 0;
                if (at == comes) {
                    fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, other);
                    fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
                    fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, qp); /* it may repeat */
                }
                if (at == taken) {
                    assert_int_equal(take(device, events, BATCH), 3);
                    assert_int_equal(events[1].qp_tag, 2);
                    assert_int_equal(events[2].qp_tag, 2);
                }
            }
            assert_int_equal(verbs_qp_destroy(qp), 0);
            qp = make(device, 2); /* the tag is another's now */
            int left = take(device, events, BATCH);
            assert_int_equal(left, taken == 3);
            if (left > 0)
                assert_int_equal(events[0].qp_tag, 1);
            assert_int_equal(verbs_qp_destroy(qp), 0);
            assert_int_equal(verbs_qp_destroy(other), 0);
            device_close(device);
        }
    }
}

/* One call takes a part: the rest goes with the QP, or comes later. */
static void test_T7_destroy_between_two_calls(void **state) {
    (void)state;
    for (uint32_t before = 0; before < 20; before++) {
        struct weir_device *device = start();
        struct weir_qp *one = make(device, 1), *two = make(device, 2);
        struct weir_async event;
        uint32_t of_two = 0;
        for (uint32_t i = 0; i < 20; i++)
            fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, i % 2 == 0 ? one : two);
        for (uint32_t i = 0; i < before; i++) {
            assert_int_equal(take(device, &event, 1), 1);
            of_two += event.qp_tag == 2;
        }
        assert_int_equal(verbs_qp_error(one), 0);
        assert_int_equal(verbs_qp_destroy(one), 0);
        while (take(device, &event, 1) == 1) {
            assert_int_equal(event.qp_tag, 2);
            of_two++;
        }
        assert_int_equal(of_two, 10);
        assert_int_equal(verbs_qp_destroy(two), 0);
        device_close(device);
    }
}

/* While a thread connects it, and with the end of the connect in the same call. */
static void test_T7_events_while_connecting(void **state) {
    (void)state;
    struct weir_device *device = start();
    struct weir_async events[BATCH];
    fake_hold_connects(true);
    struct weir_qp *qp = qp_begin(device, 6);
    fake_wait_connects(1);
    fake_event(IBV_EVENT_COMM_EST, qp);
    fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
    assert_int_equal(take(device, events, BATCH), 1);
    assert_int_equal(events[0].type, WEIR_ASYNC_LAST_WQE);
    assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
    fake_event(IBV_EVENT_QP_FATAL, qp);
    assert_int_equal(verbs_qp_error(qp), 0);
    fake_hold_connects(false);
    assert_int_equal(connected(device, 6), 0);
    assert_int_equal(qp->state, QP_ERROR);
    assert_int_equal(take(device, events, BATCH), 1);
    assert_int_equal(events[0].type, WEIR_ASYNC_QP_FATAL);
    fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_close(device);
}

/* A QP that was not made, and could not be destroyed either, is nobody's: its events are
 * acknowledged, and nobody hears of them. */
static void test_T7_events_of_a_qp_that_was_not_made(void **state) {
    (void)state;
    struct weir_device *device = start();
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    struct weir_async events[BATCH];
    fake.init_error = EINVAL;
    fake.destroy_error = EBUSY;
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), WEIR_EDEVICE);
    fake.init_error = fake.destroy_error = 0;
    struct weir_qp left = {.ibv = &fake.newest->ibv};
    fake_event(IBV_EVENT_QP_FATAL, &left);
    fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, &left);
    assert_int_equal(take(device, events, BATCH), 0);
    assert_int_equal(fake.async.taken, 2);
    assert_int_equal(ibv_destroy_qp(left.ibv), 0);
    device_close(device);
}

/* ---- completion events ---- */

static void test_T7_completion_events_are_acknowledged_when_taken(void **state) {
    (void)state;
    struct weir_device *device = start();
    uint32_t total = 0;
    for (uint32_t count = 0; count < 200; count++) {
        assert_int_equal(verbs_arm(device), 0);
        fake.cq_event_count = count;
        disarm(device);
        total += count;
        assert_int_equal(fake.of_channel.taken, total);
        disarm(device); /* there is none */
        assert_int_equal(fake.of_channel.taken, total);
    }
    device_close(device);
}

/* Between the last look and the end: taken or not, the CQ can be destroyed. */
static void test_T7_completion_events_at_the_end(void **state) {
    (void)state;
    for (uint32_t count = 0; count < 70; count++) {
        for (uint32_t taken = 0; taken < 3; taken++) {
            struct weir_device *device = start();
            struct weir_qp *qp = make(device, 1);
            assert_int_equal(verbs_arm(device), 0);
            fake.cq_event_count = taken;
            disarm(device);
            assert_int_equal(verbs_qp_error(qp), 0);
            fake.cq_event_count = count;
            assert_int_equal(verbs_qp_destroy(qp), 0);
            if (count % 2 == 0)
                fake_event(IBV_EVENT_PORT_ERR, NULL); /* nobody looks */
            device_close(device);
        }
    }
}

/* ---- a device that is unplugged ---- */

static bool keeps_awake(const struct weir_device *device) {
    struct epoll_event event;
    return epoll_wait(device->epoll_fd, &event, 1, 0) > 0;
}

static void wake(int fd) {
    const uint64_t one = 1;
    assert_int_equal(write(fd, &one, sizeof one), sizeof one);
}

/* Its descriptors are readable from then on: it is told once, whichever call meets it, and
 * then nobody is kept from sleeping; arming does not ask to be called again for ever. */
static void test_T10_device_that_is_gone_is_told_once(void **state) {
    (void)state;
    for (int where = 0; where < 3; where++) {
        struct weir_device *device = start();
        struct weir_qp *qp = make(device, 1);
        struct weir_async events[BATCH];
        assert_false(keeps_awake(device));
        wake(device->choice.context->async_fd);
        wake(device->channel->fd);
        assert_true(keeps_awake(device));
        fake.event_error = where == 0 ? EIO : 0;
        fake.channel_error = where == 1 ? EIO : 0;
        fake.arm_error = where == 2 ? EIO : 0;
        if (where == 1)
            verbs_disarm(device);
        if (where == 2)
            assert_int_equal(verbs_arm(device), WEIR_EAGAIN);
        assert_int_equal(take(device, events, BATCH), 1);
        assert_int_equal(events[0].type, WEIR_ASYNC_DEVICE_FATAL);
        assert_false(keeps_awake(device));
        fake.event_error = fake.channel_error = fake.arm_error = EIO;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(take(device, events, BATCH), 0);
            assert_int_equal(verbs_arm(device), 0);
            verbs_disarm(device);
            assert_false(keeps_awake(device));
        }
        fake_event(IBV_EVENT_QP_FATAL, qp); /* what came before is still heard */
        assert_int_equal(take(device, events, BATCH), 1);
        assert_int_equal(events[0].type, WEIR_ASYNC_QP_FATAL);
        assert_int_equal(verbs_qp_error(qp), 0);
        assert_int_equal(verbs_qp_destroy(qp), 0);
        device_close(device);
    }
}

/* ---- a device that is removed while it still works ---- */

/* Its file goes; that its owner or mode changes is nothing. */
static void test_W9_removal_is_seen_by_the_devices_file(void **state) {
    (void)state;
    char path[] = "/tmp/weir-test-XXXXXX";
    struct weir_async events[BATCH];
    fake_reset();
    fake.file_fd = mkstemp(path);
    assert_true(fake.file_fd >= 0);
    struct weir_device *device = device_open();
    assert_int_equal(take(device, events, BATCH), 0);
    assert_int_equal(fchmod(fake.file_fd, 0600), 0);
    assert_int_equal(take(device, events, BATCH), 0);
    assert_false(keeps_awake(device));
    assert_int_equal(unlink(path), 0);
    assert_true(keeps_awake(device)); /* whoever sleeps is woken */
    assert_int_equal(take(device, events, BATCH), 1);
    assert_int_equal(events[0].type, WEIR_ASYNC_DEVICE_FATAL);
    assert_int_equal(take(device, events, BATCH), 0);
    assert_false(keeps_awake(device));
    assert_int_equal(verbs_arm(device), 0); /* it works, and QPs may drain */
    close(fake.file_fd);
    device_close(device);
}

/* Or its entry in sysfs, where the file is another's. */
static void test_W9_removal_is_seen_in_sysfs(void **state) {
    (void)state;
    struct weir_async events[BATCH];
    for (int gone = 0; gone < 2; gone++) {
        fake_reset();
        strcpy(fake_device_of()->dev_path, gone ? "/sys/class/infiniband_verbs/none" : "/sys");
        struct weir_device *device = device_open();
        assert_int_equal(take(device, events, BATCH), gone);
        assert_int_equal(take(device, events, BATCH), 0);
        device_close(device);
    }
}

/* Then nothing of it is left, but memory that the application uses; a call that needs a device
 * fails. */
static void test_W7_a_device_is_let_go_of_and_memory_stays(void **state) {
    (void)state;
    struct weir_device *device = start();
    struct weir_qp *qp = make(device, 1);
    struct weir_mr own, allocated, more;
    static uint8_t bytes[64];
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length;
    assert_int_equal(verbs_mr_register(device, bytes, sizeof bytes, WEIR_ACCESS_ALL, &own), 0);
    assert_int_equal(verbs_mr_allocate(device, 8192, WEIR_ACCESS_ALL, &allocated), 0);
    assert_int_equal(fake.mrs, 2);
    fake.destroy_error = EIO; /* as of a device that the kernel took away, */
    assert_int_equal(verbs_qp_destroy(qp), WEIR_EDEVICE);
    fake.destroy_error = 0;
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device->mrs.users = 1; /* a thread registers now */
    assert_int_equal(verbs_device_ops.let_go(device), WEIR_EAGAIN);
    assert_false(fake.closed);
    device->mrs.users = 0;
    assert_int_equal(verbs_device_ops.let_go(device), 0);
    assert_int_equal(verbs_device_ops.let_go(device), 0);
    assert_true(fake.closed);
    assert_int_equal(fake.mrs, 0);
    assert_int_equal(fake.cqs, 0);
    memset(allocated.base, 1, 8192); /* it is there still */
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_async events[BATCH];
    struct weir_cqe cqe;
    struct weir_device_caps caps;
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), WEIR_EDEVICE);
    assert_int_equal(verbs_mr_register(device, bytes, sizeof bytes, 0, &more), WEIR_EDEVICE);
    assert_int_equal(verbs_mr_allocate(device, 4096, 0, &more), WEIR_EDEVICE);
    assert_int_equal(verbs_mr_register_dmabuf(device, 1, 0, 64, 0, 0, &more), WEIR_EDEVICE);
    assert_int_equal(verbs_mr_export(device, &own, blob, &length), WEIR_EDEVICE);
    assert_int_equal(verbs_poll(device, &cqe, 1), 0);
    assert_int_equal(verbs_events(device, events, BATCH), 0);
    assert_int_equal(verbs_arm(device), 0);
    verbs_disarm(device);
    verbs_device_ops.query(device, &caps);
    assert_int_equal(verbs_mr_release(device, &own), 0);
    assert_int_equal(verbs_mr_release(device, &allocated), 0);
    verbs_device_ops.close(device);
}

/* The kernel has destroyed its QPs, and the provider cannot. */
static void test_W7_a_qp_of_a_device_that_was_taken_away_is_gone(void **state) {
    (void)state;
    struct weir_device *device = start();
    struct weir_qp *qp = make(device, 1);
    struct fake_qp *left = fake_qp_of(qp);
    struct weir_async events[BATCH];
    fake.event_error = EIO;
    assert_int_equal(take(device, events, BATCH), 1);
    fake.destroy_error = EIO;
    assert_int_equal(verbs_qp_destroy(qp), 0);
    assert_int_equal(device->qp_count, 0);
    fake.destroy_error = 0;
    assert_int_equal(ibv_destroy_qp(&left->ibv), 0); /* what the provider has leaked */
    assert_int_equal(verbs_device_ops.let_go(device), 0);
    verbs_device_ops.close(device);
}

/* ---- a device that never gives last-WQE events ---- */

static uint64_t clock_ns;

static uint64_t clock_now(void *self) {
    (void)self;
    return clock_ns;
}

/* Opens a device, takes one connected QP down after so long, with or without its event, and
 * says whether events were to be expected. */
static bool take_one_down(bool comes, uint64_t wait_ns) {
    struct weir_async events[BATCH];
    struct weir_device *device = start();
    struct weir_env_ops ops = *device->env.ops;
    ops.now = clock_now;
    clock_ns = 1;
    device->env.ops = &ops;
    bool expected = device->caps.last_wqe;
    struct weir_qp *qp = qp_make(device, 3);
    assert_int_equal(verbs_qp_error(qp), 0);
    if (comes)
        fake_event(IBV_EVENT_QP_LAST_WQE_REACHED, qp);
    take(device, events, BATCH);
    clock_ns += wait_ns;
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_close(device);
    return expected;
}

static void test_T4_last_wqe_events_that_never_come_are_not_expected(void **state) {
    (void)state;
    habit_forget();
    assert_true(take_one_down(false, 1000)); /* nobody waited for it */
    assert_true(take_one_down(false, 1000));
    assert_true(take_one_down(false, 1000));
    assert_true(take_one_down(false, 250000000));
    assert_true(take_one_down(false, 250000000)); /* once may be chance */
    assert_false(take_one_down(false, 250000000));
    assert_false(take_one_down(true, 1000)); /* it does, after all */
    for (int i = 0; i < 4; i++)
        assert_true(take_one_down(false, 250000000));
    habit_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_T7_async_events_are_acknowledged_when_taken),
        cmocka_unit_test(test_T7_many_async_events_at_once),
        cmocka_unit_test(test_T7_events_of_no_interest_are_acknowledged),
        cmocka_unit_test(test_T7_events_between_error_and_destroy),
        cmocka_unit_test(test_T7_destroy_between_two_calls),
        cmocka_unit_test(test_T7_events_while_connecting),
        cmocka_unit_test(test_T7_events_of_a_qp_that_was_not_made),
        cmocka_unit_test(test_T7_completion_events_are_acknowledged_when_taken),
        cmocka_unit_test(test_T7_completion_events_at_the_end),
        cmocka_unit_test(test_T10_device_that_is_gone_is_told_once),
        cmocka_unit_test(test_W9_removal_is_seen_by_the_devices_file),
        cmocka_unit_test(test_W9_removal_is_seen_in_sysfs),
        cmocka_unit_test(test_W7_a_device_is_let_go_of_and_memory_stays),
        cmocka_unit_test(test_W7_a_qp_of_a_device_that_was_taken_away_is_gone),
        cmocka_unit_test(test_T4_last_wqe_events_that_never_come_are_not_expected),
    };
    return cmocka_run_group_tests_name("verbs_events", tests, NULL, NULL);
}
