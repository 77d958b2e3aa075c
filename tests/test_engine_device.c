/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_device.c: an engine whose device fails for good tells its application, refuses its
 * peers with the reason, ends what is under way, and lets go of the device (W7, W9); and memory
 * that the machine has not is not asked for (W10). The other side is the test itself: see
 * lone_engine.h. */
#include "lone_engine.h"

#include <string.h>

#define THERE "10.0.0.9:9"

/* A session with instance 1, whom the application opened. */
static struct lone *joined(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    lone_say_iam(lone, *conn_out, 1, THERE);
    lone_answer(lone, *conn_out, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return lone;
}

/* The other side's sessions are over, too. */
static void settle(struct lone *lone, uint64_t conn) {
    const struct wire_message *asked = lone_heard(lone, conn, WIRE_SETTLE);
    assert_non_null(asked);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_SETTLED, .echo = asked->epoch});
}

static void assert_event(struct lone *lone, weir_event_type type, int error) {
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, type);
    assert_int_equal(event.error, error);
}

static void test_W9_the_application_is_told_and_what_is_under_way_ends(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone->poison = UINT32_MAX; /* nothing of it is done before its QP goes */
    weir_transfer transfer = lone_submit_notification(lone, peer);
    lone->fails = true;
    lone_pass(lone, 10 * MS);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_DEVICE_FAILED);
    assert_int_equal(event.error, WEIR_EDEVICE);
    assert_int_equal(event.peer.id, 0);
    assert_event(lone, WEIR_EVENT_DEGRADED, WEIR_EDEVICE);
    assert_event(lone, WEIR_EVENT_GONE, WEIR_EDEVICE);
    settle(lone, conn);
    lone_pass(lone, 10 * MS);
    assert_int_not_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    /* A later transfer has its status at once. */
    transfer = lone_submit_notification(lone, peer);
    lone_pass(lone, 10 * MS);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EDEVICE);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN); /* each told once */
    lone_close(lone);
}

static void test_W9_peers_are_refused_with_the_reason(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone->fails = true;
    lone_pass(lone, 10 * MS);
    lone_say_hello(lone, conn, 1, 2);
    const struct wire_message *told = lone_heard(lone, conn, WIRE_REFUSE);
    assert_non_null(told);
    assert_int_equal(told->reason, WEIR_EDEVICE);
    assert_int_equal(told->echo, 2);
    /* Also those who come later. */
    uint64_t visitor = lone_visit(lone);
    lone_say_who(lone, visitor, 2, "10.0.0.10:9");
    lone_say_hello(lone, visitor, 2, 1);
    told = lone_heard(lone, visitor, WIRE_REFUSE);
    assert_non_null(told);
    assert_int_equal(told->reason, WEIR_EDEVICE);
    lone_close(lone);
}

/* The peer of a device that failed: its session ends, the next is refused, and that is said. */
static void test_W9_a_peer_whose_device_failed_is_gone_with_the_reason(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
    assert_event(lone, WEIR_EVENT_DEGRADED, WEIR_EUNKNOWN); /* it is the peer who ended it */
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_say(
        lone, conn, 1,
        &(struct wire_message){.type = WIRE_REFUSE, .echo = hello->epoch, .reason = WEIR_EDEVICE});
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EREFUSED);
    assert_int_equal((int)event.value, WEIR_EDEVICE);
    lone_close(lone);
}

/* Not before its last QP is gone, again if it was not possible, and once. */
static void test_W7_the_device_is_let_go_of(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone->fails = lone->no_destroy = true;
    lone->let_go_error = WEIR_EAGAIN;
    lone_pass(lone, 100 * MS);
    assert_int_equal(lone->let_go, 0);
    lone->no_destroy = false;
    lone_pass(lone, 100 * MS);
    assert_true(lone->let_go > 1);
    assert_true(weir_engine_progress(lone->engine) >= 0);
    lone->let_go_error = WEIR_OK;
    uint32_t before = lone->let_go;
    lone_pass(lone, 100 * MS);
    assert_int_equal(lone->let_go, before + 1);
    /* An application that only waits hears of it, too, and does not wait. */
    uint32_t sleeps = lone->sleeps;
    assert_int_equal(weir_engine_progress(lone->engine), WEIR_EDEVICE);
    assert_int_equal(weir_engine_wait(lone->engine, UINT64_MAX), WEIR_EDEVICE);
    assert_int_equal(lone->sleeps, sleeps);
    lone_close(lone);
}

/* A kernel without memory ends processes, and refuses nothing: the device is not asked for more
 * than there is. */
static void test_W10_memory_that_the_machine_has_not_is_refused(void **state) {
    weir_memory memory;
    void *base;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->room_bytes = UINT64_C(1) << 30;
    assert_int_equal(
        weir_memory_allocate(lone->engine, lone->room_bytes + 1, WEIR_ACCESS_ALL, &memory, &base),
        WEIR_ENOMEM);
    assert_int_equal(lone->allocations, 0);
    assert_int_equal(
        weir_memory_allocate(lone->engine, lone->room_bytes, WEIR_ACCESS_ALL, &memory, &base),
        WEIR_EAGAIN); /* the device's own answer */
    lone->room_bytes = UINT64_MAX;
    assert_int_equal(
        weir_memory_allocate(lone->engine, UINT64_MAX, WEIR_ACCESS_ALL, &memory, &base),
        WEIR_EAGAIN);
    assert_int_equal(lone->allocations, 2);
    lone_close(lone);
}

static void test_S19_what_the_device_met_is_counted(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    lone->tally = (struct weir_device_tally){.refusals = 3, .nonsense = 5, .renewals = 7};
    assert_int_equal(weir_engine_query(lone->engine, &info), WEIR_OK);
    assert_int_equal(info.device_refusals, 3);
    assert_int_equal(info.device_nonsense, 5);
    assert_int_equal(info.device_renewals, 7);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S19_what_the_device_met_is_counted),
        cmocka_unit_test(test_W9_the_application_is_told_and_what_is_under_way_ends),
        cmocka_unit_test(test_W9_peers_are_refused_with_the_reason),
        cmocka_unit_test(test_W9_a_peer_whose_device_failed_is_gone_with_the_reason),
        cmocka_unit_test(test_W7_the_device_is_let_go_of),
        cmocka_unit_test(test_W10_memory_that_the_machine_has_not_is_refused),
    };
    return cmocka_run_group_tests_name("engine_device", tests, NULL, NULL);
}
