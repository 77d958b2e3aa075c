/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_names.c: one instance, one handle; connections that break, addresses that lead
 * elsewhere, and others that claim them (H1, W3, W6); questions that are asked again (N5). The
 * other side is the test itself: see lone_engine.h. The connect time-out is a second. */
#include "lone_engine.h"
#include "peer.h"

#include <stdio.h>

#define THERE "10.0.0.9:9"
#define OTHER "other.name:9"

/* ---- questions (N5) -------------------------------------------------------- */

/* An application that asks again and again, from a loop that sleeps in between, does sleep: what is
 * wanted already is no news. The peer is dialled, asked who it is, asked for a session, and has
 * one. */
static void test_N5_asking_again_keeps_no_loop_awake(void **state) {
    weir_peer peer;
    weir_remote remote;
    uint64_t timeout_ns, conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    for (int stage = 0; stage < 4; stage++) {
        uint32_t sleeps = 0;
        for (int turn = 0; turn < 10; turn++) {
            assert_int_equal(weir_remote_open(lone->engine, peer, "kv", 0, &remote),
                             WEIR_ENOTREADY);
            sleeps += weir_engine_arm(lone->engine, &timeout_ns) == WEIR_OK;
        }
        assert_true(sleeps >= 7);
        if (stage == 0)
            conn = lone_dialled(lone, THERE);
        else if (stage == 1)
            lone_say_iam(lone, conn, 1, THERE);
        else if (stage == 2)
            lone_answer(lone, conn, 1, 1);
    }
    lone_close(lone);
}

/* ---- connections that break (W3) ------------------------------------------ */

/* Neither an address nor a sign of life: it may call for a quarter of the connect time-out. */
static void test_W3_one_without_an_address_may_call_again(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    for (int back = 0; back < 2; back++) {
        struct lone *lone = lone_open(NULL);
        weir_peer peer = lone_meet(lone, 1, back ? "" : "0.0.0.0:7", &conn);
        lone_cut(lone, conn, WEIR_ECONNECT);
        lone_pass(lone, 200 * MS);
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        if (back) {
            conn = lone_visit(lone);
            lone_return(lone, conn, 1, "");
        }
        lone_pass(lone, 2 * SECOND);
        assert_int_equal(lone_told(lone, WEIR_EVENT_GONE, &event), !back);
        if (back) {
            assert_int_equal(lone_peer(lone, 1)->id, peer.id);
            assert_int_equal(lone_peer(lone, 1)->conn_last, conn);
            assert_int_equal(lone_peer(lone, 1)->sessions_up, 1);
        } else {
            assert_int_equal(event.peer.id, peer.id);
        }
        lone_close(lone);
    }
}

/* Its device answers: it lives, however long no connection of its comes about. When that ends,
 * the patience begins. */
static void test_W3_what_its_device_answers_is_a_sign_of_life(void **state) {
    static const char *const addresses[] = {"", THERE};
    weir_event event;
    uint64_t conn;

    (void)state;
    for (int a = 0; a < 2; a++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        lone_meet(lone, 1, addresses[a], &conn);
        lone_cut(lone, conn, WEIR_ECONNECT);
        lone_pass(lone, 20 * SECOND); /* dials, if any, are never answered */
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone->executes = false;
        lone_pass(lone, a == 0 ? 100 * MS : 800 * MS);
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone_pass(lone, 600 * MS);
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone_close(lone);
    }
}

/* The looks for signs of life are late by what the application does between two calls. The time-out
 * passes between two of them: it looks once more. */
static void test_W3_no_patience_ends_without_a_look(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    const struct peer *peer = lone_peer(lone, 1);
    while (peer->dial_look_ns <= peer->dial_deadline_ns) {
        lone->now_ns += 7 * MS; /* away */
        lone_run(lone);
    }
    assert_true(lone->now_ns < peer->dial_deadline_ns);
    lone->executes = true;
    lone_notify(lone, 1, 1);
    lone_pass(lone, 20 * SECOND);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone->executes = false;
    lone_pass(lone, 2 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* It called while its address was dialled in vain, and is there: signs of life prolong no dial. */
static void test_W3_what_nobody_needs_is_not_dialled_for_ever(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 200 * MS);
    assert_int_not_equal(lone_peer(lone, 1)->dial, DIAL_NONE);
    conn = lone_visit(lone);
    lone_return(lone, conn, 1, THERE);
    lone_pass(lone, 20 * SECOND);
    assert_int_equal(lone_peer(lone, 1)->dial, DIAL_NONE);
    assert_int_equal(lone_peer(lone, 1)->conn_last, conn);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* It called, and that connection was lost shortly before the dial beside it would have ended: the
 * patience begins with the loss. */
static void test_W3_the_patience_begins_with_the_last_connection(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 200 * MS);
    conn = lone_visit(lone);
    lone_return(lone, conn, 1, THERE);
    lone_pass(lone, 700 * MS);
    assert_int_not_equal(lone_peer(lone, 1)->dial, DIAL_NONE);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 700 * MS);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_pass(lone, 400 * MS);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* At the address that it told another one answers, or this engine itself: the address means
 * nothing here, and the peer lives. */
static void test_W3_an_address_that_leads_elsewhere(void **state) {
    weir_event event;
    uint64_t conn;

    (void)state;
    for (int own = 0; own < 2; own++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        weir_peer peer = lone_meet(lone, 1, THERE, &conn);
        lone_cut(lone, conn, WEIR_ECONNECT);
        uint64_t dialled = lone_dialled(lone, THERE);
        assert_int_not_equal(dialled, 0);
        if (own) {
            struct wire_message iam = {.type = WIRE_IAM};
            lone_say_as(lone, dialled, engine_instance(lone->engine), &iam);
        } else {
            lone_say_iam(lone, dialled, 2, THERE);
        }
        lone_pass(lone, 3 * SECOND);
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_true(lone->conns[dialled].hung);
        assert_int_equal(lone_dialled(lone, THERE), 0); /* nor is it dialled again */
        conn = lone_visit(lone);
        lone_return(lone, conn, 1, THERE);
        lone_pass(lone, 3 * SECOND);
        assert_int_equal(lone_peer(lone, 1)->id, peer.id);
        assert_int_equal(lone_peer(lone, 1)->sessions_up, 1);
        lone_close(lone);
    }
}

/* One that had answered there is gone when another does. */
static void test_W3_another_in_its_place_is_its_end(void **state) {
    weir_event event;
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_cut(lone, conn, WEIR_ECONNECT);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 2, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(event.peer.id, peer.id);
    assert_int_equal(event.error, WEIR_EPEER);
    lone_close(lone);
}

/* ---- one instance, one handle (H1) ----------------------------------------- */

static void write_one(struct lone *lone, weir_peer peer, weir_memory local, weir_remote remote,
                      weir_transfer *transfer_out) {
    weir_segment segment = {.local = local, .remote = remote, .length = 8};
    assert_int_equal(weir_write(lone->engine, peer, &segment, 1, NULL, transfer_out), WEIR_OK);
}

/* The address that a peer says is its own gives its handle. Until the address has answered
 * nothing is posted. */
static void test_H1_the_address_of_a_peer_that_came_gives_its_handle(void **state) {
    uint8_t bytes[64];
    weir_memory local;
    weir_remote remote;
    weir_transfer transfer;
    weir_event event;
    weir_peer opened;
    uint64_t conn;

    (void)state;
    enum { ANSWERS, REFUSES, SILENT, CASES };
    for (int how = 0; how < CASES; how++) {
        struct lone *lone = lone_open(NULL);
        lone->executes = true;
        weir_peer peer = lone_meet(lone, 1, THERE, &conn);
        lone_memories(lone, peer, 1, bytes, sizeof(bytes), &local, &remote);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
        assert_int_equal(opened.id, peer.id);
        write_one(lone, opened, local, remote, &transfer);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
        assert_int_equal(weir_transfer_waiting_for(lone->engine, transfer),
                         WEIR_WAITING_CONNECTION);
        if (how == ANSWERS)
            lone_say_iam(lone, lone_dialled(lone, THERE), 1, THERE);
        else if (how == REFUSES)
            lone_cut(lone, lone->conn_count, WEIR_EPEER); /* the dial, which is the last */
        lone_pass(lone, how == SILENT ? 400 * MS : 10 * MS);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        assert_int_equal(lone_peer(lone, 1)->reached, how == ANSWERS);
        weir_transfer_release(lone->engine, transfer);
        /* Closed, it is what it was before it was opened. */
        assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_OK);
        assert_int_equal(weir_peer_close(lone->engine, opened), WEIR_ESTALE);
        write_one(lone, peer, local, remote, &transfer);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        lone_close(lone);
    }
}

/* What was to be proven stays open when nobody dials any more: then transfers go. The peer is
 * dialled in vain, has no connection left, and answers under another name. */
static void test_H1_a_proof_that_nobody_gives_ends(void **state) {
    uint8_t bytes[64];
    weir_memory local;
    weir_remote remote;
    weir_transfer transfer;
    weir_event event;
    weir_peer opened, second;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &local, &remote);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    lone_cut(lone, lone_dialled(lone, THERE), WEIR_ECONNECT);
    lone_cut(lone, conn, WEIR_ECONNECT);
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &second), WEIR_OK);
    weir_peer_connect(lone->engine, second);
    lone_say_iam(lone, lone_dialled(lone, OTHER), 1, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    write_one(lone, peer, local, remote, &transfer);
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
    assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
    lone_close(lone);
}

/* Its host vouched for the address where another answered, and for no other address that it says
 * afterwards. */
static void test_H1_a_new_address_is_vouched_for_anew(void **state) {
    weir_peer opened;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_say_iam(lone, lone_dialled(lone, THERE), 2, THERE);
    lone_return(lone, lone_visit(lone), 1, "10.7.7.7:7");
    assert_string_equal(lone_peer(lone, 1)->address, "10.7.7.7:7");
    assert_int_equal(weir_peer_open(lone->engine, "10.7.7.7:7", &opened), WEIR_OK);
    assert_int_not_equal(opened.id, peer.id);
    lone_close(lone);
}

/* From GONE on a second name is an address again, also while the instance drains: a wish and a
 * transfer wait, and then go there. */
static void test_H1_a_name_is_an_address_again_after_gone(void **state) {
    weir_event event;
    weir_peer second;
    uint64_t conn;

    (void)state;
    enum { CONNECTS, NOTIFIES, CASES };
    for (int how = 0; how < CASES; how++) {
        struct lone *lone = lone_open(NULL);
        weir_transfer transfer = {0};
        lone_meet(lone, 1, THERE, &conn);
        assert_int_equal(weir_peer_open(lone->engine, OTHER, &second), WEIR_OK);
        weir_peer_connect(lone->engine, second);
        lone_say_iam(lone, lone_dialled(lone, OTHER), 1, THERE);
        assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
        lone->no_destroy = true;
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        if (how == CONNECTS)
            assert_int_equal(weir_peer_connect(lone->engine, second), WEIR_ENOTREADY);
        else
            transfer = lone_submit_notification(lone, second);
        lone->no_destroy = false;
        lone_pass(lone, 200 * MS);
        assert_null(lone_peer(lone, 1));
        uint64_t dialled = lone_dialled(lone, OTHER);
        assert_int_not_equal(dialled, 0);
        if (how == NOTIFIES)
            assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
        lone_say_iam(lone, dialled, 2, OTHER);
        lone_answer(lone, dialled, 2, 1);
        assert_true(lone_told(lone, WEIR_EVENT_UP, &event));
        assert_int_equal(event.peer.id, second.id);
        lone_close(lone);
    }
}

/* The handle that events carry is closed: those that are left are told which one does now. */
static void test_H1_another_handle_carries_events(void **state) {
    weir_event event;
    weir_peer second, third;

    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer peer = lone_meet(lone, 1, "", NULL);
    for (int i = 0; i < 2; i++) {
        weir_peer *opened = i == 0 ? &second : &third;
        const char *name = i == 0 ? OTHER : "third.name:9";
        assert_int_equal(weir_peer_open(lone->engine, name, opened), WEIR_OK);
        weir_peer_connect(lone->engine, *opened);
        lone_say_iam(lone, lone_dialled(lone, name), 1, "");
        event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_SAME);
        assert_int_equal(event.peer.id, opened->id);
        assert_int_equal(event.value, peer.id);
    }
    /* It was not reached, and may be the same still. */
    peer_unreachable(lone->engine, lone_peer(lone, 1), WEIR_ECONNECT);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN); /* nobody asked */
    lone_peer(lone, 1)->wanted = true;
    peer_unreachable(lone->engine, lone_peer(lone, 1), WEIR_ECONNECT);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.peer.id, peer.id);
    for (int i = 0; i < 2; i++) {
        event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_SAME);
        assert_int_equal(event.value, peer.id);
        assert_true(event.peer.id == second.id || event.peer.id == third.id);
    }
    lone_close(lone);
}

/* UP was told, and its session is not live yet, as when the peer's data came before its READY: who
 * connects then is connected, since nothing more will be told. */
static void test_H1_who_heard_of_up_is_connected(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer handle = lone_meet(lone, 1, THERE, NULL);
    struct peer *peer = lone_peer(lone, 1);
    uint32_t live = peer->live;
    peer->live = NONE;
    assert_int_equal(weir_peer_connect(lone->engine, handle), WEIR_OK);
    peer->live = live;
    lone_close(lone);
}

/* It comes from another host than the one of the address that it says is its own (behind an
 * address translation, say): an application that opens that address gets a handle for the instance
 * that answers there. */
static void test_H1_an_address_of_another_host_is_another_handle(void **state) {
    weir_event event;
    weir_peer opened;

    (void)state;
    for (int same = 0; same < 2; same++) {
        struct lone *lone = lone_open(NULL);
        weir_peer peer = lone_meet(lone, 1, "10.0.0.90:9", NULL);
        assert_int_equal(weir_peer_open(lone->engine, "10.0.0.90:9", &opened), WEIR_OK);
        assert_int_not_equal(opened.id, peer.id);
        lone_say_iam(lone, lone_dialled(lone, "10.0.0.90:9"), same ? 1 : 2, "10.0.0.90:9");
        lone_pass(lone, 3 * SECOND);
        assert_int_equal(lone_peer(lone, 1)->id, peer.id);
        assert_int_equal(lone_told(lone, WEIR_EVENT_SAME, &event), same);
        lone_close(lone);
    }
}

/* Another engine answers there: that is who was opened, and nothing went to the other one. */
static void test_H1_a_false_address_takes_nothing(void **state) {
    uint8_t bytes[64];
    weir_memory local;
    weir_remote remote;
    weir_transfer transfer;
    weir_event event;
    weir_peer opened;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &local, &remote);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &opened), WEIR_OK);
    write_one(lone, opened, local, remote, &transfer);
    uint64_t dialled = lone_dialled(lone, THERE);
    lone_say_iam(lone, dialled, 2, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(event.peer.id, opened.id);
    lone_pass(lone, 500 * MS);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EPEER);
    weir_peer_connect(lone->engine, opened);
    lone_run(lone);
    dialled = lone_dialled(lone, THERE);
    assert_int_not_equal(dialled, 0);
    lone_say_iam(lone, dialled, 2, THERE);
    lone_answer(lone, dialled, 2, 1);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &event));
    assert_int_equal(event.peer.id, opened.id);
    assert_int_equal(lone_peer(lone, 2)->id, opened.id);
    lone_close(lone);
}

/* Where a peer has answered it is known who is there, also when it is closed and opened again:
 * others who say that it is their address are not given for it. */
static void test_W6_a_claim_takes_nobodys_address(void **state) {
    weir_event event;
    weir_peer peer, again;
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).peer.id, peer.id);
    weir_peer claims = lone_meet(lone, 2, THERE, NULL);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &again), WEIR_OK);
        assert_int_not_equal(again.id, claims.id);
        assert_int_equal(weir_peer_query(lone->engine, again, &info), WEIR_OK);
        assert_memory_equal(info.instance, lone_peer(lone, 1)->instance, WIRE_INSTANCE_SIZE);
        assert_int_equal(info.connected, 1);
        assert_int_equal(lone_peer(lone, 1)->id, again.id);
        lone_pass(lone, 2 * SECOND);
        assert_false(lone_told(lone, WEIR_EVENT_GONE, &event));
        peer = again;
    }
    lone_close(lone);
}

/* One that connects and says that it is where a peer is has the peer asked there, and takes nothing
 * of its: not the connection either, on which the peer may go on, though nobody else can be
 * reached, and its device does not answer. */
static void test_W6_a_claim_takes_nobodys_connection(void **state) {
    enum { SILENT, ANSWERS, ANOTHER, CASES };
    weir_event event;
    weir_peer peer;

    (void)state;
    for (int how = 0; how < CASES; how++) {
        struct lone *lone = lone_open(NULL);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        weir_peer_connect(lone->engine, peer);
        uint64_t conn = lone_dialled(lone, THERE);
        lone_say_iam(lone, conn, 1, THERE);
        lone_answer(lone, conn, 1, 1);
        assert_int_equal(lone_event(lone).peer.id, peer.id);
        lone_meet(lone, 2, THERE, NULL);
        assert_int_equal(lone->dials, 2);
        assert_false(lone->conns[conn].hung);
        assert_int_equal(lone_peer(lone, 1)->conn_last, conn);
        if (how != SILENT)
            lone_say_iam(lone, lone_dialled(lone, THERE), how == ANSWERS ? 1 : 3, THERE);
        lone_pass(lone, 3 * SECOND);
        assert_int_equal(lone_told(lone, WEIR_EVENT_GONE, &event), how == ANOTHER);
        if (how == ANOTHER) {
            assert_int_equal(event.peer.id, peer.id);
        } else {
            lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1});
            lone_pass(lone, 100 * MS);
            assert_non_null(lone_heard(lone, conn, WIRE_SETTLED));
        }
        lone_close(lone);
    }
}

/* Opened under another name: the handle is good, and a second name. The handle that the application
 * has heard first stays the one that it hears. Memory is the peer's, whichever handle it was
 * imported by. */
static void test_H1_a_second_name_changes_nothing(void **state) {
    uint8_t bytes[64];
    weir_memory local[2];
    weir_remote remote[2];
    weir_transfer transfer;
    weir_event event;
    weir_notification got;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_peer second;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->executes = true;
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &second), WEIR_OK);
    assert_int_not_equal(second.id, peer.id);
    weir_peer_connect(lone->engine, second);
    uint64_t dialled = lone_dialled(lone, OTHER);
    lone_say_iam(lone, dialled, 1, THERE);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_SAME);
    assert_int_equal(event.peer.id, second.id);
    assert_int_equal(event.value, peer.id);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &local[0], &remote[0]);
    lone_memories(lone, second, 1, bytes, sizeof(bytes), &local[1], &remote[1]);
    for (int i = 0; i < 4; i++) {
        write_one(lone, i < 2 ? peer : second, local[i % 2], remote[i % 2], &transfer);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        weir_transfer_release(lone->engine, transfer);
    }
    lone_notify(lone, 1, 5);
    assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
    assert_int_equal(got.from.id, peer.id);
    assert_int_equal(weir_peer_query(lone->engine, second, &info), WEIR_OK);
    assert_int_equal(info.peer.id, peer.id);
    /* One of the names is given back: the other keeps all. */
    assert_int_equal(weir_peer_close(lone->engine, second), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        write_one(lone, peer, local[i], remote[i], &transfer);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        weir_transfer_release(lone->engine, transfer);
    }
    lone_notify(lone, 2, 6);
    assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
    assert_int_equal(got.from.id, peer.id);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.peer.id, peer.id);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
    lone_close(lone);
}

/* GONE was told, and its QPs drain yet: a handle that the application did not open is stale. One
 * that it has open names the address again. */
static void test_H1_a_handle_that_nobody_opened_ends_with_gone(void **state) {
    (void)state;
    for (int open = 0; open < 2; open++) {
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 1, THERE);
        lone_up(lone, conn, 1, 1);
        weir_event event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_UP);
        weir_peer named = event.peer;
        if (open)
            assert_int_equal(weir_peer_open(lone->engine, THERE, &named), WEIR_OK);
        lone->no_destroy = true;
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_true(peer_is_leaving(lone_peer(lone, 1)));
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
        int rc = open ? WEIR_OK : WEIR_ESTALE;
        assert_int_equal(weir_peer_query(lone->engine, named, &info), rc);
        rc = open ? WEIR_ENOTREADY : WEIR_ESTALE;
        assert_int_equal(weir_peer_connect(lone->engine, named), rc);
        lone->no_destroy = false;
        lone_close(lone);
    }
}

/* Both at once: the application has opened it under a name, and it calls before the dial is
 * through. Nothing was told of it yet, so the handle that was opened is the one. */
static void test_H1_who_was_not_heard_of_has_the_opened_handle(void **state) {
    weir_event event;
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    uint64_t ours = ack->epoch;
    uint64_t dialled = lone_dialled(lone, OTHER);
    lone_say_iam(lone, dialled, 1, THERE);
    lone_say_ready(lone, conn, 1, 1, ours);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, peer.id);
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
    lone_close(lone);
}

/* Notifications of a peer that were held for want of room carry the same handle as all before, also
 * when they are taken after its end. */
static void test_H1_what_was_held_carries_the_handle_that_was_told(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_notification notification;
    weir_event event;
    weir_peer peer;

    (void)state;
    options.peers_max = 8;
    options.notifications_max = 1;
    options.recv_credits = 8;
    options.sq_depth = 16;
    options.connect_timeout_ns = SECOND;
    struct lone *lone = lone_open(&options);
    assert_int_equal(weir_peer_open(lone->engine, OTHER, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_say_hello(lone, conn, 1, 1);
    uint64_t ours = lone_heard(lone, conn, WIRE_HELLO_ACK)->epoch;
    lone_say_iam(lone, lone_dialled(lone, OTHER), 1, THERE);
    lone_say_ready(lone, conn, 1, 1, ours);
    assert_int_equal(lone_event(lone).peer.id, peer.id);
    for (uint64_t number = 1; number <= 4; number++)
        lone_notify(lone, number, number);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, 10 * SECOND);
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    assert_int_equal(event.peer.id, peer.id);
    for (uint64_t number = 1; number <= 4; number++) {
        assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
        assert_int_equal(notification.tag, number);
        assert_int_equal(notification.from.id, peer.id);
        lone_run(lone);
    }
    lone_close(lone);
}

/* A peer that the application has closed stays, for its own transfers, until its entry is needed.
 * It is told to leave then, and the entry is free when its session has ended. */
static void test_H1_a_closed_peer_leaves_when_its_entry_is_needed(void **state) {
    struct lone *lone = lone_open(NULL); /* peers_max is 8 */
    weir_peer peer, other;
    char address[WEIR_ADDRESS_MAX];

    (void)state;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    assert_int_equal(weir_peer_close(lone->engine, peer), WEIR_OK);
    for (uint32_t i = 1; i < 8; i++) {
        snprintf(address, sizeof(address), "10.0.1.%u:9", i);
        assert_int_equal(weir_peer_open(lone->engine, address, &other), WEIR_OK);
    }
    lone_run(lone);
    assert_int_equal(lone_count(lone, conn, WIRE_BYE), 0);
    assert_int_equal(weir_peer_open(lone->engine, "10.0.1.8:9", &other), WEIR_EAGAIN);
    lone_run(lone);
    assert_int_equal(lone_count(lone, conn, WIRE_BYE), 1);
    lone_pass(lone, SECOND);
    assert_int_equal(weir_peer_open(lone->engine, "10.0.1.8:9", &other), WEIR_OK);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_N5_asking_again_keeps_no_loop_awake),
        cmocka_unit_test(test_H1_a_handle_that_nobody_opened_ends_with_gone),
        cmocka_unit_test(test_W3_one_without_an_address_may_call_again),
        cmocka_unit_test(test_W3_what_its_device_answers_is_a_sign_of_life),
        cmocka_unit_test(test_W3_no_patience_ends_without_a_look),
        cmocka_unit_test(test_W3_what_nobody_needs_is_not_dialled_for_ever),
        cmocka_unit_test(test_W3_the_patience_begins_with_the_last_connection),
        cmocka_unit_test(test_W3_an_address_that_leads_elsewhere),
        cmocka_unit_test(test_H1_another_handle_carries_events),
        cmocka_unit_test(test_H1_who_heard_of_up_is_connected),
        cmocka_unit_test(test_H1_a_proof_that_nobody_gives_ends),
        cmocka_unit_test(test_H1_a_new_address_is_vouched_for_anew),
        cmocka_unit_test(test_H1_a_name_is_an_address_again_after_gone),
        cmocka_unit_test(test_W3_another_in_its_place_is_its_end),
        cmocka_unit_test(test_W6_a_claim_takes_nobodys_address),
        cmocka_unit_test(test_W6_a_claim_takes_nobodys_connection),
        cmocka_unit_test(test_H1_the_address_of_a_peer_that_came_gives_its_handle),
        cmocka_unit_test(test_H1_an_address_of_another_host_is_another_handle),
        cmocka_unit_test(test_H1_a_false_address_takes_nothing),
        cmocka_unit_test(test_H1_a_second_name_changes_nothing),
        cmocka_unit_test(test_H1_who_was_not_heard_of_has_the_opened_handle),
        cmocka_unit_test(test_H1_what_was_held_carries_the_handle_that_was_told),
        cmocka_unit_test(test_H1_a_closed_peer_leaves_when_its_entry_is_needed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
