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

#include "device.h"
#include "efa_ends.h"
#include "os.h"

#define NS_PER_S UINT64_C(1000000000)

static struct weir_env env, real;
static struct weir_env_ops clock_ops;
static _Atomic uint64_t clock_ahead_ns;
static const struct weir_device_ops *const ops = &efa_device_ops;

static uint64_t clock_now(void *self) {
    return real.ops->now(self) + atomic_load(&clock_ahead_ns);
}

/* One whose endpoint is not kind. */
static void open_with(struct end *end, const char *habit, const char *value) {
    setenv(habit, value, 1);
    end_open(end, &env);
    unsetenv(habit);
}

static bool is_readable(const struct end *end) {
    struct pollfd poll_fd = {.fd = ops->fd(end->device), .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* Both say as much as they can, and hear it. */
static void talk(struct end *one, struct end *other) {
    end_say_all(one);
    end_say_all(other);
    ends_take(one, other);
    end_post_receives(one);
    end_post_receives(other);
}

/* Until one's QP has failed, and with as many receives as there are. */
static void talk_until_broken(struct end *one, struct end *other) {
    for (int i = 0; !one->qp_fatal && i < END_WAITS; i++) {
        end_say_all(one);
        end_say_all(other);
        ends_take(one, other);
    }
    assert_true(one->qp_fatal);
}

/* All that was posted to QPs that are stopped has one end. */
static void end_both(struct end *one, struct end *other) {
    struct end *ends[2] = {one, other};
    for (int i = 0; i < 2; i++) {
        end_say_all(ends[i]); /* is taken, and flushes */
        assert_int_equal(ops->qp_error(ends[i]->qp), 0);
    }
    for (int i = 0; i < END_WAITS && !ends_are_over(one, other); i++)
        ends_take(one, other);
    assert_true(ends_are_over(one, other));
    assert_true(one->bad > 0 && other->bad > 0);
    assert_int_equal(one->wrong + other->wrong, 0);
    ends_lost_nothing(one, other);
    end_destroy(one);
    end_destroy(other);
}

/* On new QPs a message comes through each way. */
static void expect_well(struct end *one, struct end *other) {
    assert_false(one->fatal);
    assert_false(other->fatal);
    end_make_qp(one);
    end_make_qp(other);
    ends_connect(one, other);
    end_say(one);
    end_say(other);
    for (int i = 0; i < END_WAITS && (one->ended == 0 || other->ended == 0 || one->messages == 0 ||
                                      other->messages == 0);
         i++)
        ends_take(one, other);
    assert_int_equal(one->ended + other->ended + one->messages + other->messages, 4);
    assert_int_equal(one->bad + other->bad, 0);
}

/* A QP that waits for its peer's answer when its endpoint breaks: its attempt may be made again. */
static void expect_no_connect(struct end *end, struct weir_qp *waits, const struct end *other) {
    struct weir_qp_path path = {
        .blob_length = other->granted.blob_length, .blob = other->granted.blob, .crossing = true};
    struct weir_qp *qp = end->qp;
    assert_int_equal(ops->qp_connect(waits, &path), WEIR_EDEVICE);
    end->qp = waits;
    end_destroy(end);
    end->qp = qp;
}

static struct weir_device_tally tally_of(struct end *end) {
    struct weir_device_tally tally;
    ops->tally(end->device, &tally);
    return tally;
}

/* S9: an endpoint that breaks fails its QPs, and is followed by another one. All that was posted
 * has an end, no message that was told to be sent is lost, and new QPs work. */
static void test_S9_a_broken_endpoint_is_renewed(void **state) {
    static struct end broken, well;
    (void)state;
    open_with(&broken, "EFA_FAKE_BREAK", "20");
    end_open(&well, &env);
    struct weir_qp_granted before = broken.granted;
    for (int i = 0; i < 3; i++) {
        struct weir_qp_options options = {.tag = 2, .sq_depth = END_DEPTH};
        struct weir_qp_granted granted;
        struct weir_qp *waits;
        ends_connect(&broken, &well);
        assert_int_equal(ops->qp_create(broken.device, &options, &granted, &waits), 0);
        broken.qp_fatal = well.qp_fatal = false;
        talk_until_broken(&broken, &well);
        expect_no_connect(&broken, waits, &well);
        end_both(&broken, &well);
        assert_false(broken.fatal || well.fatal);
        end_make_qp(&broken);
        end_make_qp(&well);
    }
    assert_true(tally_of(&broken).renewals >= 3);
    assert_int_equal(tally_of(&well).renewals, 0);
    assert_int_equal(broken.granted.blob_length, before.blob_length);
    assert_memory_not_equal(broken.granted.blob, before.blob, before.blob_length);
    end_destroy(&broken);
    end_destroy(&well);
    expect_well(&broken, &well);
    end_destroy(&broken);
    end_close(&broken);
    end_destroy(&well);
    end_close(&well);
}

/* S13: an operation without end costs its endpoint, a minute later: all that was posted has an end
 * then, and nothing that was told to be sent is lost. Time that nobody saw does not count. */
static void test_S13_an_operation_without_end(void **state) {
    static struct end endless, well;
    (void)state;
    open_with(&endless, "EFA_FAKE_FORGET", "40");
    end_open(&well, &env);
    ends_connect(&endless, &well);
    for (int i = 0; endless.posted < 200 && i < END_WAITS; i++)
        talk(&endless, &well);
    atomic_fetch_add(&clock_ahead_ns, 1000 * NS_PER_S);
    for (int i = 0; i < 20; i++)
        talk(&endless, &well);
    assert_false(endless.qp_fatal);
    assert_true(endless.ended < endless.posted);
    for (int i = 0; !endless.qp_fatal && i < END_WAITS; i++) {
        talk(&endless, &well);
        if (i % 50 == 0)
            atomic_fetch_add(&clock_ahead_ns, 10 * NS_PER_S);
    }
    assert_true(endless.qp_fatal);
    end_both(&endless, &well);
    expect_well(&endless, &well);
    end_destroy(&endless);
    end_close(&endless);
    end_destroy(&well);
    end_close(&well);
}

/* W9: a device without another endpoint says so, once; everything that was posted has an end, its
 * QPs go, its memory is released, and nobody is woken any more. The other side's goes on. */
static void test_W9_a_card_that_is_gone(void **state) {
    static struct end gone, well;
    (void)state;
    setenv("EFA_FAKE_ENDPOINTS", "1", 1);
    open_with(&gone, "EFA_FAKE_BREAK", "20");
    unsetenv("EFA_FAKE_ENDPOINTS");
    end_open(&well, &env);
    ends_connect(&gone, &well);
    talk_until_broken(&gone, &well);
    end_both(&gone, &well);
    for (int i = 0; !gone.fatal && i < END_WAITS; i++) {
        struct weir_qp *none;
        int rc =
            ops->qp_create(gone.device, &(struct weir_qp_options){.tag = 2, .sq_depth = END_DEPTH},
                           &gone.granted, &none);
        assert_true(rc == WEIR_EAGAIN || rc == WEIR_EDEVICE);
        atomic_fetch_add(&clock_ahead_ns, NS_PER_S / 16);
        ends_take(&gone, &well);
    }
    assert_true(gone.fatal);
    struct weir_cqe cqe;
    struct weir_async event;
    struct weir_qp *none;
    assert_int_equal(ops->poll(gone.device, &cqe, 1), WEIR_EDEVICE);
    assert_int_equal(ops->events(gone.device, &event, 1), 0);
    ops->disarm(gone.device);
    assert_int_equal(ops->arm(gone.device), 0);
    end_pause();
    assert_false(is_readable(&gone));
    assert_int_equal(ops->qp_create(gone.device,
                                    &(struct weir_qp_options){.tag = 2, .sq_depth = END_DEPTH},
                                    &gone.granted, &none),
                     WEIR_EDEVICE);
    end_close(&gone);
    assert_false(well.fatal);
    end_close(&well);
}

static void close_both(struct end *one, struct end *other) {
    end_destroy(one);
    end_close(one);
    end_destroy(other);
    end_close(other);
}

/* S19: what the provider refuses is counted, and posted again. */
static void test_S19_refusals_are_counted(void **state) {
    static struct end refused, well;
    (void)state;
    open_with(&refused, "EFA_FAKE_EAGAIN", "90");
    open_with(&well, "EFA_FAKE_EAGAIN", "0");
    ends_connect(&refused, &well);
    for (int i = 0; refused.ended < 100 && i < END_WAITS; i++)
        talk(&refused, &well);
    assert_true(refused.ended >= 100);
    assert_int_equal(refused.bad, 0);
    assert_true(tally_of(&refused).refusals >= 100);
    assert_int_equal(tally_of(&refused).nonsense, 0);
    assert_int_equal(tally_of(&refused).renewals, 0);
    close_both(&refused, &well);
}

/* S19: so are completions that name nothing. */
static void test_S19_nonsense_is_counted(void **state) {
    static struct end confused, well;
    (void)state;
    open_with(&confused, "EFA_FAKE_NONSENSE", "10");
    end_open(&well, &env);
    ends_connect(&confused, &well);
    for (int i = 0; tally_of(&confused).nonsense == 0 && i < END_WAITS; i++)
        talk(&confused, &well);
    assert_true(tally_of(&confused).nonsense > 0);
    assert_int_equal(tally_of(&well).nonsense, 0);
    close_both(&confused, &well);
}

/* S2: what the provider refuses for good ends, and takes with it nothing that waits behind it. */
static void test_S2_a_post_that_fails_for_good(void **state) {
    static struct end unwilling, well;
    (void)state;
    setenv("EFA_FAKE_EAGAIN", "80", 1);
    open_with(&unwilling, "EFA_FAKE_UNWILLING", "8");
    unsetenv("EFA_FAKE_EAGAIN");
    end_open(&well, &env);
    ends_connect(&unwilling, &well);
    for (int i = 0; (unwilling.posted < 400 || unwilling.bad == 0) && i < END_WAITS; i++)
        talk(&unwilling, &well);
    assert_true(unwilling.bad > 0);
    for (int i = 0; unwilling.ended < unwilling.posted && i < END_WAITS; i++)
        ends_take(&unwilling, &well);
    assert_int_equal(unwilling.ended, unwilling.posted);
    assert_int_equal(ops->qp_error(unwilling.qp), 0);
    assert_int_equal(ops->qp_error(well.qp), 0);
    for (int i = 0; i < END_WAITS && !ends_are_over(&unwilling, &well); i++)
        ends_take(&unwilling, &well);
    assert_true(ends_are_over(&unwilling, &well));
    ends_lost_nothing(&unwilling, &well);
    close_both(&unwilling, &well);
}

/* S4: a peer for which the provider has no room, for as long as it likes, holds up no other one. */
static void test_S4_a_peer_without_room_holds_up_nobody(void **state) {
    static struct end from, to, away;
    (void)state;
    open_with(&from, "EFA_FAKE_AWAY", "2");
    end_open(&to, &env);
    end_open(&away, &env);
    ends_connect(&from, &to);
    end_say(&from);
    for (int i = 0; (to.messages < 1 || from.ended < 1) && i < END_WAITS; i++)
        ends_take(&from, &to);
    assert_int_equal(to.messages + from.ended, 2);
    struct weir_qp *to_well = from.qp;
    end_make_qp(&from);
    struct weir_qp *to_away = from.qp;
    ends_connect(&from, &away);
    from.qp = to_away;
    for (int i = 0; i < 4; i++)
        end_say(&from);
    from.qp = to_well;
    for (uint32_t sent = 1; sent < 200; sent++) {
        end_say(&from);
        for (int i = 0; to.messages <= sent && i < END_WAITS; i++) {
            ends_take(&from, &to);
            end_post_receives(&to);
        }
        assert_int_equal(to.messages, sent + 1);
    }
    end_take(&away);
    assert_int_equal(away.messages, 0);
    assert_int_equal(from.bad, 0);
    assert_int_equal(ops->qp_error(to_away), 0);
    assert_int_equal(ops->qp_error(to_well), 0);
    for (int i = 0; from.ended < from.posted && i < END_WAITS; i++) {
        ends_take(&from, &to);
        end_take(&away);
    }
    assert_int_equal(from.ended, from.posted);
    assert_true(from.bad >= 4);
    end_destroy(&from);
    from.qp = to_away;
    end_destroy(&from);
    end_close(&from);
    end_destroy(&to);
    end_close(&to);
    end_destroy(&away);
    end_close(&away);
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
        cmocka_unit_test(test_S19_refusals_are_counted),
        cmocka_unit_test(test_S19_nonsense_is_counted),
        cmocka_unit_test(test_S2_a_post_that_fails_for_good),
        cmocka_unit_test(test_S4_a_peer_without_room_holds_up_nobody),
        cmocka_unit_test(test_W10_emulated_access_is_refused),
    };
    struct weir_device_caps caps = {.note = ""};
    if (ops->probe(NULL, &caps) != 0) {
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
