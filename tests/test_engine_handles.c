/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_handles.c: under which handle an application hears of a peer, when it has several, or
 * has closed them (H1). The other side is the test itself: see lone_engine.h. The connect time-out
 * is a second. */
#include "lone_engine.h"

#include <stdio.h>

#define THERE "10.0.0.9:9"
#define OTHER "other.name:9"

/* The engine has a session with instance 1, which it dialled, and UP was told. The connection. */
static uint64_t reach(struct lone *lone, weir_peer *peer_out) {
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return conn;
}

/* Instance 1 calls from where it says that it is. There are no QPs, so no session, and no event.
 * The connection. */
static uint64_t call_in_vain(struct lone *lone) {
    lone->no_qps = true;
    uint64_t conn = lone_visit(lone);
    snprintf(lone->conns[conn].from, sizeof(lone->conns[conn].from), "10.0.0.9");
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    return conn;
}

/* The engine has a session with instance 1, whose notifications 1 to 3 came; there is room for one,
 * and the others are held. */
static struct lone *reach_and_hold(weir_peer *peer_out, uint64_t *conn_out) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.notifications_max = 1;
    options.connect_timeout_ns = SECOND;
    struct lone *lone = lone_open(&options);
    *conn_out = reach(lone, peer_out);
    for (uint64_t tag = 1; tag <= 3; tag++)
        lone_notify(lone, tag, tag);
    return lone;
}

/* The same, and the application closes its handle. REFUSED tells of the next one. */
static struct lone *hold_and_refuse(weir_event *refused_out, uint64_t *conn_out) {
    weir_peer peer;
    struct lone *lone = reach_and_hold(&peer, conn_out);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    lone->no_qps = true;
    lone->qps_error = WEIR_EMFILE;
    lone_say_hello(lone, *conn_out, 1, 9);
    assert_true(lone_told(lone, WEIR_EVENT_REFUSED, refused_out));
    return lone;
}

/* The application opens one more name of instance 1, connects, and is told that the peer has
 * another handle, which this returns. */
static uint64_t open_another(struct lone *lone, const char *name, weir_peer *peer_out) {
    weir_event same;
    assert_int_equal(weir_peer_open(lone->engine, name, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    lone_say_iam(lone, lone_dialled(lone, name), 1, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &same));
    assert_int_equal(same.peer.id, peer_out->id);
    return same.value;
}

/* Instance 1, which called in vain, has a session after all. */
static void call_again(struct lone *lone, uint64_t conn) {
    lone->no_qps = false;
    lone_pass(lone, SECOND / 10);
    lone_say_hello(lone, conn, 1, 2);
    const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    lone_say_ready(lone, conn, 1, 2, ack->epoch);
}

/* The end of a peer is told to an application that holds it by another name alone; also a second
 * time, if it was told once more of another handle of it. */
static void test_H1_the_end_is_told_under_whatever_name(void **state) {
    weir_event event;
    weir_peer claimed, second;

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = call_in_vain(lone);
        if (way > 0) {
            assert_int_equal(weir_peer_open(lone->engine, THERE, &claimed), WEIR_OK);
            lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
        }
        assert_int_equal(weir_peer_open(lone->engine, OTHER, &second), WEIR_OK);
        if (way == 2)
            weir_peer_connect(lone->engine, second);
        else
            lone_submit_notification(lone, second);
        lone_run(lone);
        lone_say_iam(lone, lone_dialled(lone, OTHER), 1, THERE);
        uint64_t handle = second.id;
        if (way > 0) {
            handle = claimed.id;
            assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
            assert_int_equal(event.value, handle);
            assert_int_equal(weir_peer_close(lone->engine, claimed), WEIR_OK);
        }
        if (way == 2) {
            lone_pass(lone, 1500 * MS);
            assert_true(lone_told(lone, WEIR_EVENT_GONE, &event)); /* the wish ends */
            assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
            assert_int_equal(event.value, handle);
        }
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_int_equal(event.peer.id, handle);
        lone_close(lone);
    }
}

/* A handle that SAME told of carries what follows, though it was closed before an event came under
 * it, and yet another name is opened. */
static void test_H1_the_handle_that_same_told_stays(void **state) {
    weir_event up;
    weir_peer claimed, second, third;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = call_in_vain(lone);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &claimed), WEIR_OK);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_int_equal(open_another(lone, OTHER, &second), claimed.id);
    assert_int_equal(weir_peer_close(lone->engine, claimed), WEIR_OK);
    open_another(lone, "third.name:9", &third);
    call_again(lone, conn);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &up));
    assert_int_equal(up.peer.id, claimed.id);
    lone_close(lone);
}

/* The application closes the last handle of a peer, which stays. Its next notification comes under
 * another handle, of which UP tells first, also if it was accepted before; and so does its end, if
 * anything was told of that handle. */
static void test_H1_a_closed_peer_is_known_by_another_handle(void **state) {
    weir_notification notification;
    weir_event event;
    weir_peer peer;

    (void)state;
    for (int speaks = 0; speaks < 2; speaks++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = reach(lone, &peer);
        assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
        if (speaks) {
            lone_notify(lone, 1, 7);
            event = lone_event(lone);
            assert_int_equal(event.type, WEIR_EVENT_UP);
            assert_int_not_equal(event.peer.id, peer.id);
            assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
            assert_int_equal(notification.from.id, event.peer.id);
        }
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_int_equal(lone_told(lone, WEIR_EVENT_GONE, &event), speaks);
        if (speaks)
            assert_int_equal(event.peer.id, notification.from.id);
        lone_close(lone);
    }
}

/* Held ones, too, if the peer ends before there is room for them. */
static void test_H1_held_notifications_come_under_a_handle_that_was_told(void **state) {
    weir_notification notification;
    weir_event event;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = reach_and_hold(&peer, &conn);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    for (uint64_t tag = 1; tag <= 3; tag++) {
        assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
        assert_int_equal(notification.tag, tag);
        assert_int_equal(notification.from.id, tag == 1 ? peer.id : event.peer.id);
        lone_run(lone);
    }
    weir_event gone = lone_event(lone);
    assert_int_equal(gone.type, WEIR_EVENT_GONE);
    assert_int_equal(gone.peer.id, event.peer.id);
    lone_close(lone);
}

/* A wish ends with the handle that it was for. */
static void test_H1_a_wish_ends_with_its_handle(void **state) {
    weir_event event;
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    lone_pass(lone, 2 * SECOND);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* A handle that weir_peer_open gave for a peer that connected by itself goes on when it was closed,
 * whatever other name is opened then. */
static void test_H1_the_handle_that_was_opened_goes_on(void **state) {
    weir_peer claimed, third;

    (void)state;
    struct lone *lone = lone_open(NULL);
    call_in_vain(lone);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &claimed), WEIR_OK);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_int_equal(weir_peer_close(lone->engine, claimed), WEIR_OK);
    assert_int_equal(open_another(lone, OTHER, &third), claimed.id);
    lone_close(lone);
}

/* Opened again, it is as it was: it is connected, and what becomes of that is told. */
static void test_H1_a_closed_peer_is_opened_again(void **state) {
    weir_event event;
    weir_peer peer, again;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = reach(lone, &peer);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &again), WEIR_OK);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, again.id);
    assert_int_equal(weir_peer_connect(lone->engine, again), WEIR_OK);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.peer.id, again.id);
    lone_close(lone);
}

/* A notification that is found while the sessions of a peer that left drain: of one that the
 * application had closed, and of one that it never heard of. */
static void test_H1_what_a_drain_finds_comes_under_a_handle_that_was_told(void **state) {
    weir_notification notification;
    weir_peer peer = {0};

    (void)state;
    for (int met = 0; met < 2; met++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn;
        if (met) {
            conn = lone_visit(lone);
            lone_say_who(lone, conn, 1, THERE);
            lone_say_hello(lone, conn, 1, 1); /* and its READY never comes */
        } else {
            conn = reach(lone, &peer);
            assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
        }
        lone->no_destroy = true;
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &(weir_event){0}));
        lone_notify(lone, 1, 7);
        lone_notify(lone, 2, 8);
        weir_event up = lone_event(lone), gone = lone_event(lone);
        assert_int_equal(up.type, WEIR_EVENT_UP);
        assert_int_equal(gone.type, WEIR_EVENT_GONE);
        assert_int_equal(gone.error, WEIR_EPEER);
        assert_int_equal(gone.peer.id, up.peer.id);
        assert_true(met || up.peer.id != peer.id);
        for (uint64_t tag = 7; tag <= 8; tag++) {
            assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
            assert_int_equal(notification.tag, tag);
            assert_int_equal(notification.from.id, up.peer.id);
        }
        lone->no_destroy = false;
        lone_pass(lone, 3 * SECOND);
        assert_false(lone_told(lone, WEIR_EVENT_UP, &up)); /* once */
        lone_close(lone);
    }
}

/* The application knows a peer by a handle that UP told of, opens another name of it, and closes
 * that name: it knows the peer by the same handle as before. */
static void test_H1_a_name_that_is_closed_leaves_the_handle_that_was_told(void **state) {
    weir_notification notification;
    weir_event event;
    weir_peer peer, second, third;

    (void)state;
    struct lone *lone = lone_open(NULL); /* its work is not done: what is posted waits */
    reach(lone, &peer);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    lone_notify(lone, 1, 7);
    uint64_t handle = lone_event(lone).peer.id; /* UP */
    weir_transfer transfer = lone_submit_notification(lone, (weir_peer){handle});
    assert_int_equal(open_another(lone, OTHER, &second), handle);
    assert_int_equal(weir_peer_close(lone->engine, second), WEIR_OK);
    lone_pass(lone, 3 * SECOND); /* a transfer that has to end would have by now */
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    lone_notify(lone, 2, 8);
    assert_false(lone_told(lone, WEIR_EVENT_UP, &event));
    assert_int_equal(open_another(lone, "third.name:9", &third), handle);
    lone_notify(lone, 3, 9);
    for (uint64_t tag = 7; tag <= 9; tag++) {
        assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
        assert_int_equal(notification.tag, tag);
        assert_int_equal(notification.from.id, handle);
    }
    lone_close(lone);
}

/* A peer came by itself, and its events carry a name that the application opened. The name is
 * closed, and a handle that is open takes its place. It stays in that place when it is closed, too:
 * another name that is opened then is told so, and no wish of it is left without a word. */
static void test_H1_a_handle_that_took_the_place_of_another_stays(void **state) {
    weir_event event;
    weir_peer second, claimed, third;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = call_in_vain(lone);
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &second), WEIR_OK);
    lone_submit_notification(lone, second);
    lone_run(lone);
    lone_say_iam(lone, lone_dialled(lone, OTHER), 1, THERE);
    call_again(lone, conn);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, second.id);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &claimed), WEIR_OK);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    assert_int_equal(event.value, second.id);
    assert_int_equal(weir_peer_close(lone->engine, second), WEIR_OK);
    assert_int_equal(weir_peer_close(lone->engine, claimed), WEIR_OK);
    assert_int_equal(weir_peer_open(lone->engine, "third.name:9", &third), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, third), WEIR_ENOTREADY);
    lone_say_iam(lone, lone_dialled(lone, "third.name:9"), 1, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    assert_int_equal(event.peer.id, third.id);
    assert_int_equal(event.value, claimed.id);
    assert_int_equal(weir_peer_connect(lone->engine, third), WEIR_OK);
    lone_close(lone);
}

/* A wish that was made with the handle of a peer that came by itself lasts as long as the handle:
 * it was opened and closed meanwhile, and goes on. */
static void test_H1_a_wish_outlives_a_reference_to_the_handle(void **state) {
    weir_event event;
    weir_peer opened;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->qps_error = WEIR_EMFILE;
    call_in_vain(lone);
    weir_event refused = lone_event(lone);
    assert_int_equal(refused.type, WEIR_EVENT_REFUSED);
    assert_int_equal(weir_peer_connect(lone->engine, refused.peer), WEIR_ENOTREADY);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    assert_int_equal(opened.id, refused.peer.id);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_OK);
    lone_pass(lone, 3 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(event.peer.id, refused.peer.id);
    lone_close(lone);
}

/* Notifications that were accepted before the session was lost for good bring no UP behind GONE. */
static void test_H1_what_was_held_brings_nobody_up(void **state) {
    weir_notification notification;
    weir_event event;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = reach_and_hold(&peer, &conn);
    lone->no_qps = true;
    lone_immediate(lone, lone->qp_count - 1); /* breaks the session */
    lone_pass(lone, 3 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    for (uint64_t tag = 1; tag <= 3; tag++) {
        assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
        assert_int_equal(notification.from.id, peer.id);
        lone_run(lone);
    }
    assert_false(lone_told(lone, WEIR_EVENT_UP, &event));
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_close(lone);
}

/* REFUSED tells of a handle, and the end of the peer comes under the same one. */
static void test_H1_a_refusal_tells_of_a_handle(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = reach(lone, &peer);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    lone->no_qps = true;
    lone->qps_error = WEIR_EMFILE;
    lone_say_hello(lone, conn, 1, 9);
    weir_event refused = lone_event(lone);
    assert_int_equal(refused.type, WEIR_EVENT_REFUSED);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    weir_event gone = lone_event(lone);
    assert_int_equal(gone.type, WEIR_EVENT_GONE);
    assert_int_equal(gone.peer.id, refused.peer.id);
    lone_close(lone);
}

/* A caller that was refused is known by that alone: it is not waited for when its connections end,
 * takes nobody's place, and is told of again when it calls again. */
static void test_W7_a_refused_caller_is_forgotten_with_its_connections(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_event event;

    (void)state;
    options.peers_max = 8;
    options.connect_timeout_ns = SECOND;
    struct lone *lone = lone_open(&options);
    lone->no_qps = true;
    lone->qps_error = WEIR_EMFILE;
    for (uint32_t n = 1; n <= 12; n++) {
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, (n + 1) / 2, n % 4 < 2 ? THERE : "");
        lone_say_hello(lone, conn, (n + 1) / 2, n);
        event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_REFUSED);
        lone_cut(lone, conn, WEIR_ECONNECT);
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
        assert_null(lone_peer(lone, (n + 1) / 2));
        lone_pass(lone, 10 * MS);
    }
    assert_int_equal(lone->dials, 0);
    lone_close(lone);
}

/* A notification that is held of an instance that is gone says nothing of the next instance at the
 * address. */
static void test_H1_no_session_is_told_of_an_instance_that_had_none(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = reach_and_hold(&peer, &conn);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, SECOND);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
    lone->no_qps = true;
    weir_peer_connect(lone->engine, peer);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 2, THERE);
    lone_say(lone, conn, 2, &(struct wire_message){.type = WIRE_BYE});
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
    lone_close(lone);
}

/* An address that is closed, and whose entry stays for what is held of an instance before, is not
 * dialled any more, and turns out to be nobody. */
static void test_H1_a_closed_address_is_dialled_no_more(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = reach_and_hold(&peer, &conn);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, SECOND);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
    weir_peer_connect(lone->engine, peer);
    conn = lone_dialled(lone, THERE);
    assert_int_not_equal(conn, 0);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    assert_false(lone->conns[conn].open);
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(lone_dialled(lone, THERE), 0);
    lone_close(lone);
}

/* A handle that was opened while events carried another one of its peer goes on when that one is
 * closed: what was asked of it is answered. */
static void test_H1_a_wish_outlives_the_handle_that_carried_events(void **state) {
    weir_peer claimed, second;
    weir_event event;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = call_in_vain(lone);
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &second), WEIR_OK);
    lone_submit_notification(lone, second);
    lone_say_iam(lone, lone_dialled(lone, OTHER), 1, THERE);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &claimed), WEIR_OK);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    assert_int_equal(weir_peer_close(lone->engine, claimed), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, claimed), WEIR_ENOTREADY);
    assert_int_equal(weir_peer_close(lone->engine, second), WEIR_OK);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(event.peer.id, claimed.id);
    lone_close(lone);
}

/* A transfer that waits for the next instance at an address ends with its handle, at once, however
 * long the instance before drains. */
static void test_H1_a_transfer_ends_with_its_handle_while_its_peer_drains(void **state) {
    weir_peer opened;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    assert_int_equal(opened.id, peer.id);
    lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
    lone->no_destroy = true;
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    weir_transfer transfer = lone_submit_notification(lone, peer);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_ECLOSED);
    lone->no_destroy = false;
    lone_close(lone);
}

/* A handle that is stale for one call is so for all, also while its peer drains. */
static void test_H1_a_handle_that_is_gone_is_stale_for_all_calls(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_transfer transfer;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    options.flags = WEIR_TRANSFER_NOTIFY;
    lone->no_destroy = true;
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_ESTALE);
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ESTALE);
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &options, &transfer), WEIR_ESTALE);
    lone->no_destroy = false;
    lone_close(lone);
}

/* A message is found on a session that broke before it was up here. UP is told for it, and as no
 * session comes about, GONE. */
static void test_H1_something_follows_up(void **state) {
    weir_event event;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_HELLO_ACK));
    lone->no_destroy = true;
    lone_immediate(lone, lone->qp_count - 1);
    lone_notify(lone, 1, 7);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &event));
    lone->no_destroy = false;
    lone_pass(lone, 4 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* REFUSED tells of a handle; what is held comes behind UP all the same. */
static void test_H1_what_is_held_comes_behind_up(void **state) {
    weir_notification notification;
    weir_event refused, up;
    uint64_t conn;

    (void)state;
    struct lone *lone = hold_and_refuse(&refused, &conn);
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
    lone_run(lone);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &up));
    assert_int_equal(up.peer.id, refused.peer.id);
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
    assert_int_equal(notification.from.id, up.peer.id);
    lone_close(lone);
}

/* Nor does it where the peer has a second name, of which SAME is told behind GONE. */
static void test_H1_what_was_held_brings_nobody_up_under_two_names(void **state) {
    weir_notification notification;
    weir_event event;
    weir_peer peer, second;
    uint64_t conn;

    (void)state;
    struct lone *lone = reach_and_hold(&peer, &conn);
    assert_int_equal(open_another(lone, OTHER, &second), peer.id);
    lone_immediate(lone, lone->qp_count - 1);
    lone_pass(lone, 3 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
        assert_int_equal(notification.from.id, peer.id);
        lone_run(lone);
    }
    assert_false(lone_told(lone, WEIR_EVENT_UP, &event));
    lone_close(lone);
}

/* REFUSED told of a handle, and the peer ends: what was held comes behind UP and GONE. */
static void test_H1_what_is_held_at_the_end_comes_behind_up(void **state) {
    weir_notification notification;
    weir_event refused, event;
    uint64_t conn;

    (void)state;
    struct lone *lone = hold_and_refuse(&refused, &conn);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_true(lone_told(lone, WEIR_EVENT_UP, &event));
    assert_int_equal(event.peer.id, refused.peer.id);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
    lone_run(lone);
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
    assert_int_equal(notification.from.id, refused.peer.id);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_the_end_is_told_under_whatever_name),
        cmocka_unit_test(test_H1_the_handle_that_same_told_stays),
        cmocka_unit_test(test_H1_a_closed_peer_is_known_by_another_handle),
        cmocka_unit_test(test_H1_held_notifications_come_under_a_handle_that_was_told),
        cmocka_unit_test(test_H1_a_wish_ends_with_its_handle),
        cmocka_unit_test(test_H1_the_handle_that_was_opened_goes_on),
        cmocka_unit_test(test_H1_a_closed_peer_is_opened_again),
        cmocka_unit_test(test_H1_what_a_drain_finds_comes_under_a_handle_that_was_told),
        cmocka_unit_test(test_H1_a_name_that_is_closed_leaves_the_handle_that_was_told),
        cmocka_unit_test(test_H1_a_handle_that_took_the_place_of_another_stays),
        cmocka_unit_test(test_H1_a_wish_outlives_a_reference_to_the_handle),
        cmocka_unit_test(test_H1_what_was_held_brings_nobody_up),
        cmocka_unit_test(test_H1_a_refusal_tells_of_a_handle),
        cmocka_unit_test(test_W7_a_refused_caller_is_forgotten_with_its_connections),
        cmocka_unit_test(test_H1_no_session_is_told_of_an_instance_that_had_none),
        cmocka_unit_test(test_H1_a_closed_address_is_dialled_no_more),
        cmocka_unit_test(test_H1_a_wish_outlives_the_handle_that_carried_events),
        cmocka_unit_test(test_H1_a_transfer_ends_with_its_handle_while_its_peer_drains),
        cmocka_unit_test(test_H1_a_handle_that_is_gone_is_stale_for_all_calls),
        cmocka_unit_test(test_H1_something_follows_up),
        cmocka_unit_test(test_H1_what_is_held_comes_behind_up),
        cmocka_unit_test(test_H1_what_was_held_brings_nobody_up_under_two_names),
        cmocka_unit_test(test_H1_what_is_held_at_the_end_comes_behind_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
