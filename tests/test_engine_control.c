/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_control.c: the peers that are there, word by word: what an engine makes of WHO, IAM
 * and HELLO, of connections that break and of peers that it has given up (H1, H2, H10, H12, S9,
 * T10, M1). The other side is the test itself: see lone_engine.h. */
#include "found.h"
#include "left.h"
#include "lone_engine.h"
#include "own.h"
#include "step.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THERE "10.0.0.9:9"

static struct peer *peer_number(struct lone *lone, uint32_t n) {
    uint8_t instance[WIRE_INSTANCE_SIZE];
    lone_instance(n, instance);
    return peer_by_instance(lone->engine, instance);
}

/* Instance n, of this address, asks and connects. */
static uint64_t met(struct lone *lone, uint32_t n, const char *address) {
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, n, address);
    assert_non_null(lone_heard(lone, conn, WIRE_IAM));
    lone_up(lone, conn, n, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return conn;
}

/* ---- an address that cannot be dialled from here ---- */

static void test_H1_a_hello_does_not_wait_for_a_dial_for_ever(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK)); /* who answers there? */
    assert_int_equal(lone->dials, 1);
    lone_pass(lone, 200 * MS); /* less than a quarter of the connect time-out */
    lone_say_hello(lone, conn, 1, 1);
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone_pass(lone, 60 * MS);
    lone_up(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    /* The dial goes through after all: the same engine, and one session with it. */
    uint64_t dialled = lone_dialled(lone, THERE);
    assert_int_not_equal(dialled, 0);
    lone_say_iam(lone, dialled, 1, THERE);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_SAME);
    assert_int_equal(event.peer.id, peer.id);
    assert_int_equal(event.value, peer_number(lone, 1)->id);
    lone_close(lone);
}

/* ---- visitors whose entries were lost ---- */

static void test_H10_a_hundred_visitors_keep_their_addresses(void **state) {
    enum { VISITS = 100 };
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    uint64_t conns[VISITS];
    char address[WEIR_ADDRESS_MAX];

    (void)state;
    options.peers_max = 200;
    options.sq_depth = 16;
    options.recv_credits = 4;
    options.transfers_max = 64;
    struct lone *lone = lone_open(&options);
    for (uint32_t i = 0; i < VISITS; i++) {
        conns[i] = lone_visit(lone);
        snprintf(address, sizeof(address), "10.0.1.%u:9", i);
        lone_say_who(lone, conns[i], i, address);
    }
    for (int repeat = 0; repeat < 3; repeat++) { /* as HELLOs are */
        for (uint32_t i = 0; i < VISITS; i++) {
            lone_say_hello(lone, conns[i], i, 1);
            snprintf(address, sizeof(address), "10.0.1.%u:9", i);
            if (lone_heard(lone, conns[i], WIRE_WHO) != NULL)
                lone_say_iam(lone, conns[i], i, address);
        }
    }
    for (uint32_t i = 0; i < VISITS; i++) {
        snprintf(address, sizeof(address), "10.0.1.%u:9", i);
        assert_non_null(lone_heard(lone, conns[i], WIRE_HELLO_ACK));
        assert_non_null(peer_number(lone, i));
        assert_string_equal(peer_number(lone, i)->address, address);
    }
    lone_close(lone);
}

static void test_H10_a_flood_of_who_keeps_nobody_out(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_hello(lone, conn, 1, 1); /* its WHO was lost */
    assert_non_null(lone_heard(lone, conn, WIRE_WHO));
    for (uint32_t i = 0; i < 200; i++) {
        uint64_t other = lone_visit(lone);
        lone_say_who(lone, other, 100 + i, "");
        if (i == 100)
            lone_say_iam(lone, conn, 1, THERE);
    }
    lone_up(lone, conn, 1, 1);
    assert_null(lone_heard(lone, conn, WIRE_WHO)); /* asked once */
    assert_string_equal(peer_number(lone, 1)->address, THERE);
    lone_close(lone);
}

static void test_H7_a_visitor_that_never_says_who_it_is_comes_in(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_hello(lone, conn, 1, 1);
    assert_int_equal(lone_count(lone, conn, WIRE_HELLO_ACK), 0);
    lone_up(lone, conn, 1, 1);
    assert_int_equal(lone_count(lone, conn, WIRE_WHO), 1);
    assert_false(peer_number(lone, 1)->dialable);
    lone_say_iam(lone, conn, 1, THERE); /* late is better than never */
    assert_true(peer_number(lone, 1)->dialable);
    lone_close(lone);
}

/* The instance that answers at an address that the application opened is the one opened, whether
 * IAM is late or lost: nobody is met under no address, and it is known by the handle it was
 * given. */
static void test_H1_a_hello_before_iam_is_who_was_opened(void **state) {
    weir_peer peer;
    weir_notification got;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_dialled(lone, THERE);
    assert_int_not_equal(conn, 0);
    assert_non_null(lone_heard(lone, conn, WIRE_WHO));
    lone_say_hello(lone, conn, 1, 1);
    lone_say_hello(lone, conn, 1, 1);                      /* repeated */
    assert_int_equal(lone_count(lone, conn, WIRE_WHO), 0); /* not asked again */
    assert_non_null(peer_number(lone, 1));
    assert_int_equal(peer_number(lone, 1)->id, peer.id);
    assert_true(peer_number(lone, 1)->reached);
    const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    lone_say_ready(lone, conn, 1, 1, ack->epoch);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, peer.id);
    lone_notify(lone, 1, 77);
    assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
    assert_int_equal(got.from.id, peer.id);
    lone_say_iam(lone, conn, 1, THERE); /* late */
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(peer_number(lone, 1)->id, peer.id);
    assert_int_equal(lone->engine->peers_used, 1);
    assert_int_equal(lone->engine->visitors[0].conn, 0);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
    lone_close(lone);
}

/* ---- connections ---- */

static void test_H12_who_on_a_dead_connection_changes_nothing(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = met(lone, 1, THERE);
    uint64_t dead = lone_visit(lone);
    lone_cut_silently(lone, dead);
    lone_say_who(lone, dead, 1, THERE);
    assert_int_equal(peer_number(lone, 1)->conn_last, conn);
    assert_int_equal(peer_number(lone, 1)->conn_accepted, conn);
    lone_close(lone);
}

static void test_H12_every_connection_of_a_peer_that_is_gone_is_closed(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t first = met(lone, 1, THERE);
    uint64_t second = lone_visit(lone);
    lone_return(lone, second, 1, THERE);
    assert_false(lone->conns[first].hung); /* it may still be in use */
    lone_say(lone, second, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, 10 * MS);
    assert_null(peer_number(lone, 1));
    assert_true(lone->conns[first].hung);
    assert_true(lone->conns[second].hung);
    lone_close(lone);
}

/* No more than two that it dialled are kept, whatever it does. */
static void test_H12_connections_of_one_peer_are_bounded(void **state) {
    uint64_t conns[6];

    (void)state;
    struct lone *lone = lone_open(NULL);
    conns[0] = met(lone, 1, THERE);
    for (int i = 1; i < 6; i++) {
        conns[i] = lone_visit(lone);
        lone_return(lone, conns[i], 1, THERE);
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(lone->conns[conns[i]].hung, i < 4);
    lone_cut(lone, conns[5], WEIR_EPEER);
    assert_int_equal(peer_number(lone, 1)->conn_last, conns[4]);
    lone_close(lone);
}

/* The visitor's connection breaks, its address refuses, and before it is dialled again the
 * application opens it under another name, which answers. */
static void test_H1_an_alias_ends_the_dialling(void **state) {
    weir_peer alias;
    weir_event event;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = met(lone, 1, THERE);
    lone_cut(lone, conn, WEIR_EPEER);
    uint64_t dialled = lone_dialled(lone, THERE);
    assert_int_not_equal(dialled, 0);
    lone_cut(lone, dialled, WEIR_ECONNECT); /* it will be dialled again after a pause */
    assert_int_equal(weir_peer_open(lone->engine, "other.name:9", &alias), WEIR_OK);
    weir_peer_connect(lone->engine, alias);
    uint64_t good = lone_dialled(lone, "other.name:9");
    assert_int_not_equal(good, 0);
    lone_say_iam(lone, good, 1, THERE);
    uint64_t dials = lone->dials;
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(lone->dials, dials);
    assert_int_equal(peer_number(lone, 1)->conn_dialled, good);
    assert_false(lone->conns[good].hung);
    while (weir_event_take(lone->engine, &event) == WEIR_OK)
        assert_int_not_equal(event.type, WEIR_EVENT_GONE);
    lone_close(lone);
}

/* Two visitors say that they have the same address: at most one can be right, and neither
 * is dialled for it. */
static void test_H10_strangers_with_one_address(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    met(lone, 1, THERE);
    met(lone, 2, THERE);
    lone_pass(lone, 100 * MS);
    assert_int_equal(lone->dials, 0);
    assert_non_null(peer_number(lone, 1));
    assert_non_null(peer_number(lone, 2));
    lone_close(lone);
}

/* ---- sessions that one side has forgotten ---- */

static void test_S9_a_probe_on_the_connection_that_is_left(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t first = met(lone, 1, THERE);
    uint64_t second = lone_visit(lone);
    lone_return(lone, second, 1, THERE);
    assert_non_null(lone_heard(lone, second, WIRE_HELLO_ACK));
    lone_say_ready(lone, second, 1, 1, peer_number(lone, 1)->sessions[0].epoch);
    lone_cut(lone, second, WEIR_EPEER);
    assert_int_equal(lone->dials, 0);
    assert_int_equal(lone_count(lone, first, WIRE_HELLO_ACK), 1);
    lone_close(lone);
}

static void test_S9_one_probe_for_a_new_connection(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = met(lone, 1, THERE);
    lone_cut(lone, conn, WEIR_EPEER);
    uint64_t dialled = lone_dialled(lone, THERE);
    assert_int_not_equal(dialled, 0);
    lone_say_iam(lone, dialled, 1, THERE);
    assert_int_equal(lone_count(lone, dialled, WIRE_HELLO_ACK), 1);
    lone_close(lone);
}

/* It has a session of ours that we have forgotten: that is over, and it takes no slot. */
static void test_S9_who_has_a_forgotten_session_is_told(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = met(lone, 1, THERE);
    uint64_t epoch = peer_number(lone, 1)->sessions[0].epoch;
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, 10 * MS);
    assert_null(peer_number(lone, 1));
    static const enum wire_type types[] = {WIRE_READY, WIRE_HELLO_ACK};
    for (int i = 0; i < 2; i++) {
        struct wire_message message = {.type = types[i], .epoch = 1, .echo = epoch};
        if (message.type == WIRE_HELLO_ACK)
            message.qps = (struct wire_qp_set){.device = "lone",
                                               .recv_credits = 8,
                                               .recv_bytes_max = 4096,
                                               .pass = 77,
                                               .life = 78,
                                               .qp_count = 1};
        conn = lone_visit(lone);
        lone_say(lone, conn, 1, &message);
        const struct wire_message *settle = lone_heard(lone, conn, WIRE_SETTLE);
        assert_non_null(settle);
        assert_int_equal(settle->epoch, epoch);
        message.echo = epoch + 1; /* not drawn yet: nothing true can be said of it */
        lone_say(lone, conn, 1, &message);
        assert_null(lone_heard(lone, conn, WIRE_SETTLE));
        assert_null(peer_number(lone, 1));
    }
    lone_close(lone);
}

/* ---- what was delivered by an instance that was given up ---- */

static uint32_t taken(struct lone *lone) {
    weir_notification got;
    uint32_t count = 0;
    while (weir_notification_take(lone->engine, &got) == WEIR_OK)
        count++;
    return count;
}

/* It is given up: nobody answers at its address any more. It may never notice. */
static void give_up(struct lone *lone, uint64_t conn, uint32_t n) {
    lone_cut(lone, conn, WEIR_EPEER);
    lone_pass(lone, 1500 * MS);
    assert_null(peer_number(lone, n));
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
}

static void test_S9_delivered_once_whoever_came_between(void **state) {
    enum { OTHERS = 30 };

    (void)state;
    struct lone *lone = lone_open(NULL); /* peers_max is 8 */
    uint64_t conn = met(lone, 1, THERE);
    lone_notify(lone, 1, 77);
    lone_notify(lone, 2, 78);
    assert_int_equal(taken(lone), 2);
    give_up(lone, conn, 1);
    for (uint32_t i = 0; i < OTHERS; i++) { /* more than there are slots */
        uint64_t other = met(lone, 100 + i, "");
        if (i % 5 == 0) { /* some of them have a past as well: 6, fewer than peers_max */
            lone_notify(lone, 1, 1);
            assert_int_equal(taken(lone), 1);
        }
        give_up(lone, other, 100 + i);
    }
    conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_up(lone, conn, 1, 2);
    lone_notify(lone, 1, 77); /* a replay: it never heard that they had arrived */
    lone_notify(lone, 2, 78);
    lone_notify(lone, 3, 79);
    assert_int_equal(taken(lone), 1);
    lone_close(lone);
}

/* ---- handles ---- */

static void test_E6_work_handed_over_ends_with_the_handle(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (int round = 0; round < 3; round++) { /* the slot is used again */
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        atomic_store(&lone->engine->owner, 1); /* as if another thread had the engine */
        assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &notify, &transfer), WEIR_OK);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
        atomic_store(&lone->engine->owner, 0);
        assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_ECLOSED);
        assert_int_equal(weir_transfer_release(lone->engine, transfer), WEIR_OK);
    }
    lone_close(lone);
}

/* ---- a device that keeps a QP ---- */

/* The application's memory is released all the same; the engine's own buffers stay, which the
 * device may write to, until the QP is gone. */
static void test_T10_ports_are_closed_though_a_device_keeps_a_qp(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_memory memory;
    char bytes[64];
    met(lone, 1, THERE);
    assert_int_equal(weir_memory_register(lone->engine, bytes, sizeof(bytes), 0, &memory), WEIR_OK);
    lone->no_destroy = true;
    struct peer *peers = lone->engine->peers;
    weir_engine_close(lone->engine);
    assert_int_equal(lone->closes, 1);
    assert_false(lone->device_closed);
    assert_true(lone->made[0]);
    assert_int_equal(lone->memories, 2);
    assert_false(engine_left_step(lone->left));
    assert_int_not_equal(peers[0].id, 0);
    lone->no_destroy = false;
    assert_true(engine_left_step(lone->left));
    assert_false(lone->made[0]);
    assert_int_equal(lone->memories, 0);
    lone_free(lone);
}

/* An engine with a QP whose connect takes so long. */
static struct lone *connecting(uint64_t ns) {
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone->connect_ns = ns;
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    assert_true(lone->made[0] && lone->connecting_until[0] == lone->now_ns + ns);
    return lone;
}

/* A connect that nobody answers lasts for longer than closing may take. */
static void test_T3_a_connect_that_outlasts_closing_leaves_nothing(void **state) {
    (void)state;
    struct lone *lone = connecting(12 * SECOND);
    uint64_t from_ns = lone->now_ns, timeout_ns = lone->engine->options.teardown_timeout_ns;
    assert_true(timeout_ns < 12 * SECOND);
    weir_engine_close(lone->engine);
    assert_in_range(lone->now_ns - from_ns, timeout_ns, timeout_ns + 10 * MS);
    assert_false(lone->device_closed);
    while (lone->now_ns - from_ns < 12 * SECOND) {
        assert_false(engine_left_step(lone->left));
        lone->now_ns += SECOND;
    }
    assert_true(engine_left_step(lone->left));
    assert_false(lone->made[0]);
    assert_int_equal(lone->memories, 0);
    lone_free(lone);
}

static void close_device(struct weir_ports *ports) {
    ports->device_ops->close(ports->device);
}

/* With real ports a thread of the library's asks, and closes the device. */
static void test_T3_a_thread_frees_what_closing_left(void **state) {
    const struct timespec moment = {.tv_nsec = 1000000};
    (void)state;
    struct lone *lone = connecting(12 * SECOND);
    weir_engine_close(lone->engine);
    assert_non_null(lone->left);
    lone->now_ns += lone->connect_ns;
    left_to_thread(lone->left, close_device);
    while (!atomic_load(&lone->device_gone))
        nanosleep(&moment, NULL);
    assert_false(lone->made[0]);
    assert_int_equal(lone->memories, 0);
    lone_free(lone);
}

/* A connection that the engine itself hangs up takes its visitor along. */
static void test_H1_hung_up_visitors_leave_room(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    for (uint32_t i = 0; i < 2 * VISITORS; i++) {
        uint64_t conn = met(lone, 1000 + i, "");
        struct wire_message bye = {.type = WIRE_BYE};
        lone->batch = true;
        lone_say(lone, conn, 1000 + i, &bye);
        lone_say_hello(lone, conn, 5000 + i, 1); /* another one speaks on it */
        lone->batch = false;
        lone_pass(lone, 50 * MS);
        weir_event event;
        while (weir_event_take(lone->engine, &event) == WEIR_OK)
            continue;
        lone->said_count = 0;
        if (lone->conns[conn].open)
            lone_cut(lone, conn, WEIR_EPEER);
    }
    for (uint32_t i = 0; i < VISITORS; i++)
        assert_int_equal(lone->engine->visitors[i].conn, 0);
    lone_close(lone);
}

/* Another thread has the engine for long: it, and not the caller, does the rest. */
static void test_S13_cancel_waits_for_nobody(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfers[2];
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_engine *engine = lone->engine;
    assert_int_equal(weir_peer_open(engine, THERE, &peer), WEIR_OK);
    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(engine, peer, NULL, 0, &options, &transfers[0]), WEIR_OK);
    own_enter(engine);
    assert_int_equal(weir_write(engine, peer, NULL, 0, &options, &transfers[1]), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_transfer_cancel(engine, transfers[i]), WEIR_OK);
        assert_int_equal(weir_transfer_cancel(engine, transfers[i]), WEIR_OK); /* twice is once */
        assert_int_equal(weir_transfer_status(engine, transfers[i]), WEIR_EINPROGRESS);
    }
    own_leave(engine);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_transfer_status(engine, transfers[i]), WEIR_ECANCELED);
        assert_int_equal(weir_transfer_release(engine, transfers[i]), WEIR_OK);
        assert_int_equal(atomic_load(&engine->transfers[handle_index(transfers[i].id)].refs), 0);
    }
    lone_close(lone);
}

/* ---- looking somebody up ---- */

/* Every call that takes a peer's handle, with one that names nobody any more, or yet. */
static void look_up(struct lone *lone, weir_peer peer) {
    weir_engine *engine = lone->engine;
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_qp_info qp = WEIR_QP_INFO_INIT;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX] = {0};
    weir_transfer transfer;
    weir_remote remote;

    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_peer_query(engine, peer, &info), WEIR_ESTALE);
    assert_int_equal(weir_qp_query(engine, peer, 0, &qp), WEIR_ESTALE);
    assert_int_equal(weir_peer_connect(engine, peer), WEIR_ESTALE);
    assert_int_equal(weir_peer_close(engine, peer), WEIR_ESTALE);
    assert_int_equal(weir_write(engine, peer, NULL, 0, &notify, &transfer), WEIR_ESTALE);
    assert_int_equal(weir_read(engine, peer, NULL, 0, &notify, &transfer), WEIR_ESTALE);
    assert_true(weir_memory_import(engine, peer, descriptor, sizeof(descriptor), &remote) < 0);
}

/* An application that waits for nothing but transfers which were done in their submits hears what
 * comes, for its waits make progress now and then. */
static void test_M1_waits_for_what_has_ended_make_progress(void **state) {
    weir_notification got;
    weir_transfer done = {0};

    (void)state;
    struct lone *lone = lone_open(NULL);
    met(lone, 1, THERE);
    lone->piles_up = true;
    lone_notify(lone, 1, 77);
    assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_EAGAIN);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(weir_transfer_wait(lone->engine, done, 0), WEIR_OK);
    assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
    assert_int_equal(got.tag, 77);
    lone_close(lone);
}

/* It makes nothing: not a byte of the engine changes, nor is memory allocated. */
static void test_M1_looking_up_makes_nothing(void **state) {
    weir_peer left;

    (void)state;
    struct lone *lone = lone_open(NULL);
    met(lone, 1, "10.0.0.1:9");
    assert_int_equal(weir_peer_open(lone->engine, THERE, &left), WEIR_OK);
    assert_int_equal(weir_peer_close(lone->engine, left), WEIR_OK);
    lone_run(lone);
    const uint64_t ids[] = {
        0,          1,       left.id,      left.id + (1u << 20),
        UINT64_MAX, 0xfffff, 7u << 20 | 3, peer_number(lone, 1)->id + (1u << 20)};
    weir_engine *engine = lone->engine;
    size_t bytes = engine->arena_bytes;
    uint8_t *before = malloc(sizeof(*engine) + bytes);
    assert_non_null(before);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        memcpy(before, engine, sizeof(*engine));
        memcpy(before + sizeof(*engine), engine->arena, bytes);
        size_t allocated = mallinfo2().uordblks;
        look_up(lone, (weir_peer){ids[i]});
        assert_int_equal(mallinfo2().uordblks, allocated);
        assert_memory_equal(before, engine, sizeof(*engine));
        assert_memory_equal(before + sizeof(*engine), engine->arena, bytes);
    }
    assert_int_equal(lone->dials, 0);
    free(before);
    lone_close(lone);
}

/* One that is there and not connected is ENOTREADY, and one call for it is one dial. */
static void test_M1_one_that_connects_is_not_ready(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    uint32_t peers = lone->engine->peers_used;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
        lone_run(lone);
    }
    assert_int_equal(lone->dials, 1);
    assert_int_equal(lone->engine->peers_used, peers);
    lone_close(lone);
}

/* The answer waits to be read, behind what a crowd says, while the time for it runs out: the
 * application did nothing for so long. */
static void test_W8_an_answer_that_waits_to_be_read_is_no_silence(void **state) {
    static const uint64_t silences_ns[] = {300 * MS, 3 * SECOND}; /* connecting may take one */
    (void)state;
    for (size_t i = 0; i < sizeof(silences_ns) / sizeof(silences_ns[0]); i++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 1, "10.0.0.2:1");
        lone_say_hello(lone, conn, 1, 1);
        assert_int_equal(lone_count(lone, conn, WIRE_HELLO_ACK), 1);
        uint64_t epoch = lone_heard(lone, conn, WIRE_HELLO_ACK)->epoch;
        uint64_t other = lone_visit(lone);
        lone->batch = true;
        for (uint32_t n = 0; n < 2 * CONTROL_BUDGET; n++)
            lone_say_who(lone, other, 2 + n, "10.0.0.3:1");
        lone_say_ready(lone, conn, 1, 1, epoch);
        lone->now_ns += silences_ns[i];
        lone_run(lone);
        assert_int_equal(lone_count(lone, conn, WIRE_HELLO_ACK), 0); /* not said again */
        assert_int_equal(lone->engine->stats.sessions_up, 1);
        assert_int_equal(lone->engine->stats.sessions_retired, 0);
        lone_close(lone);
    }
}

/* Visitors that talk without end do not keep others from their time-outs. */
static void test_W8_a_flood_does_not_stop_the_time_outs_of_others(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone), flood = lone_visit(lone);
    lone_say_who(lone, conn, 1, "10.0.0.2:1");
    lone_say_hello(lone, conn, 1, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone->batch = true;
    for (uint32_t n = 0; n < 60 * CONTROL_BUDGET; n++)
        lone_say_who(lone, flood, 2, "10.0.0.3:1");
    for (uint32_t n = 0; n < 59 && lone_count(lone, conn, WIRE_HELLO_ACK) == 0; n++) {
        lone->now_ns += n < 10 ? 30 * MS : 0;
        engine_step(lone->engine, true);
    }
    assert_true(lone->event_first != lone->event_last);          /* it goes on */
    assert_int_equal(lone_count(lone, conn, WIRE_HELLO_ACK), 1); /* said again */
    lone_close(lone);
}

/* The tables of instances, addresses and connections are compared with all that there is. */
static void test_W8_a_peer_in_the_wrong_place_is_seen(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 5, "10.0.0.5:1");
    lone_run(lone);
    lone_up(lone, conn, 5, 100);
    weir_engine *engine = lone->engine;
    struct peer *peer = &engine->peers[0];
    assert_null(engine_verify(engine));
    peer->conn_accepted++;
    assert_non_null(engine_verify(engine));
    peer->conn_accepted--;
    peer->address[0]++;
    assert_non_null(engine_verify(engine));
    peer->address[0]--;
    peer->instance[0]++;
    assert_non_null(engine_verify(engine));
    peer->instance[0]--;
    peer->closed = true;
    assert_non_null(engine_verify(engine));
    peer->closed = false;
    engine->found.met++;
    assert_non_null(engine_verify(engine));
    engine->found.met--;
    bits_drop(&engine->qps_made, 0);
    assert_non_null(engine_verify(engine));
    bits_add(&engine->qps_made, 0);
    assert_null(engine_verify(engine));
    lone_close(lone);
}

/* The HELLO of a visitor waits for who answers at the address that the application opened: then the
 * visitor is spoken to, and need not wait until it would say HELLO again by itself. */
static void test_H1_who_waited_is_spoken_to(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_REFUSE));
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    uint32_t spoken = lone_count(lone, conn, WIRE_IAM);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_int_equal(lone_count(lone, conn, WIRE_IAM), spoken + 1);
    lone_say_hello(lone, conn, 1, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    assert_int_equal(peer_number(lone, 1)->id, peer.id);
    lone_close(lone);
}

/* A visitor says that it is at the address of a peer that is known, and has no session yet. Who
 * answers there is asked; when the peer does, the visitor is another, and is heard at once. */
static void test_H1_who_waited_for_a_known_peer_is_spoken_to(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 2, THERE);
    lone_say_hello(lone, conn, 2, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_REFUSE));
    uint32_t spoken = lone_count(lone, conn, WIRE_IAM);
    lone_say_hello(lone, conn, 2, 1);
    assert_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_int_equal(lone_count(lone, conn, WIRE_IAM), spoken + 1);
    lone_say_hello(lone, conn, 2, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_who_waited_for_a_known_peer_is_spoken_to),
        cmocka_unit_test(test_H1_a_hello_does_not_wait_for_a_dial_for_ever),
        cmocka_unit_test(test_H10_a_hundred_visitors_keep_their_addresses),
        cmocka_unit_test(test_H10_a_flood_of_who_keeps_nobody_out),
        cmocka_unit_test(test_H7_a_visitor_that_never_says_who_it_is_comes_in),
        cmocka_unit_test(test_H1_a_hello_before_iam_is_who_was_opened),
        cmocka_unit_test(test_H12_who_on_a_dead_connection_changes_nothing),
        cmocka_unit_test(test_H12_every_connection_of_a_peer_that_is_gone_is_closed),
        cmocka_unit_test(test_H12_connections_of_one_peer_are_bounded),
        cmocka_unit_test(test_H1_an_alias_ends_the_dialling),
        cmocka_unit_test(test_H10_strangers_with_one_address),
        cmocka_unit_test(test_S9_a_probe_on_the_connection_that_is_left),
        cmocka_unit_test(test_S9_one_probe_for_a_new_connection),
        cmocka_unit_test(test_S9_who_has_a_forgotten_session_is_told),
        cmocka_unit_test(test_S9_delivered_once_whoever_came_between),
        cmocka_unit_test(test_E6_work_handed_over_ends_with_the_handle),
        cmocka_unit_test(test_T10_ports_are_closed_though_a_device_keeps_a_qp),
        cmocka_unit_test(test_T3_a_connect_that_outlasts_closing_leaves_nothing),
        cmocka_unit_test(test_T3_a_thread_frees_what_closing_left),
        cmocka_unit_test(test_H1_hung_up_visitors_leave_room),
        cmocka_unit_test(test_W8_a_peer_in_the_wrong_place_is_seen),
        cmocka_unit_test(test_W8_an_answer_that_waits_to_be_read_is_no_silence),
        cmocka_unit_test(test_W8_a_flood_does_not_stop_the_time_outs_of_others),
        cmocka_unit_test(test_S13_cancel_waits_for_nobody),
        cmocka_unit_test(test_M1_waits_for_what_has_ended_make_progress),
        cmocka_unit_test(test_M1_looking_up_makes_nothing),
        cmocka_unit_test(test_M1_one_that_connects_is_not_ready),
        cmocka_unit_test(test_H1_who_waited_is_spoken_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
