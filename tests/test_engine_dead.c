/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_dead.c: the lessons of real devices: peers that die without the device's news,
 * connects that take time, buffers that a QP takes with it, devices out of QPs, errors that name
 * nobody (H10, H12, S9, S11, T5). The other side is the test itself: see lone_engine.h. The file
 * is long because each of these devices and deaths is a test of its own. */
#include "lone_engine.h"

#include <stdlib.h>
#include <string.h>

#define THERE "10.0.0.9:9"

/* The beginning of every test: the engine, and a peer that the application opened. */
static struct lone *opened(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    assert_int_not_equal(*conn_out, 0);
    return lone;
}

/* Instance 1 is there, and a session with it. */
static struct lone *joined(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = opened(peer_out, conn_out);
    lone_say_iam(lone, *conn_out, 1, THERE);
    lone_answer(lone, *conn_out, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return lone;
}

/* A dial that is under way now ends like this; false: there is none. */
static bool dial_ends(struct lone *lone, int error) {
    for (uint64_t conn = lone->conn_count; conn > 0; conn--) {
        if (lone->conns[conn].open && strcmp(lone->conns[conn].address, THERE) == 0) {
            lone_cut(lone, conn, error);
            return true;
        }
    }
    return false;
}

static bool is_gone(struct lone *lone, weir_peer peer, int error) {
    weir_event event;
    while (weir_event_take(lone->engine, &event) == WEIR_OK) {
        if (event.type == WEIR_EVENT_GONE) {
            assert_int_equal(event.peer.id, peer.id);
            assert_int_equal(event.error, error);
            return true;
        }
    }
    return false;
}

/* ---- refused: gone ---- */

static void test_H12_a_peer_that_refuses_is_gone_at_once(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    notify.flags = WEIR_TRANSFER_NOTIFY; /* in flight: this device completes nothing */
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &notify, &transfer), WEIR_OK);
    lone_run(lone);
    lone_cut(lone, conn, WEIR_ECONNECT);
    assert_false(is_gone(lone, peer, WEIR_EPEER)); /* a connection is not a process */
    assert_true(dial_ends(lone, WEIR_EPEER));
    assert_true(is_gone(lone, peer, WEIR_EPEER));
    lone_pass(lone, 300 * MS); /* its QPs drain */
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EPEER);
    for (uint32_t i = 0; i < lone->qp_count; i++)
        assert_false(lone->made[i]);
    lone_close(lone);
}

/* Silence, or a router's word, proves nothing: the connect time-out decides. */
static void test_H12_a_peer_that_cannot_be_reached_is_asked_again(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    uint64_t end = lone->now_ns + 900 * MS; /* of a second */
    while (lone->now_ns < end) {
        dial_ends(lone, WEIR_ECONNECT);
        lone_pass(lone, 10 * MS);
        assert_false(is_gone(lone, peer, WEIR_ECONNECT));
    }
    lone_pass(lone, 200 * MS);
    assert_true(is_gone(lone, peer, WEIR_ECONNECT));
    lone_close(lone);
}

/* W10: the end tells the system's word on the last dial; so does the status of a transfer that was
 * not posted. One that was may arrive, as the peer may live (S11). */
static void test_W10_no_route_to_a_peer_is_said(void **state) {
    static const int WHYS[] = {WEIR_ECONNECT, WEIR_EUNREACH, WEIR_EMFILE};
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {.base = &WHYS, .length = sizeof(WHYS)};
    weir_transfer transfer, message;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (int w = 0; w < 3; w++) {
        struct lone *lone = joined(&peer, &conn);
        assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &notify, &transfer), WEIR_OK);
        assert_int_equal(weir_message_send(lone->engine, peer, 7, &part, 1, NULL, &message),
                         WEIR_OK); /* it waits for room */
        lone_run(lone);
        lone_cut(lone, conn, WEIR_ECONNECT);
        for (uint64_t end = lone->now_ns + 1100 * MS; lone->now_ns < end;) {
            dial_ends(lone, WHYS[w]);
            lone_pass(lone, 10 * MS);
        }
        assert_true(is_gone(lone, peer, WHYS[w]));
        lone_pass(lone, 300 * MS); /* its QPs drain */
        assert_int_equal(weir_transfer_status(lone->engine, message), WHYS[w]);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EUNKNOWN);
        lone_close(lone);
    }
}

/* It answered neither here nor anywhere: a server may start later. */
static void test_H12_who_was_never_there_may_come_yet(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = opened(&peer, &conn);
    lone_cut(lone, conn, WEIR_EPEER);
    for (int i = 0; i < 50; i++) {
        lone_pass(lone, 10 * MS);
        dial_ends(lone, WEIR_EPEER);
        assert_false(is_gone(lone, peer, WEIR_EPEER));
    }
    for (int i = 0; conn == 0 || lone->conns[conn].open == false; i++) {
        assert_true(i < 100);
        lone_pass(lone, 10 * MS);
        conn = lone_dialled(lone, THERE);
    }
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_close(lone);
}

/* A visitor's address is only what it says. It has a while to call again. */
static void test_H12_a_visitor_whose_address_refuses(void **state) {
    (void)state;
    for (int back = 0; back < 2; back++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 1, THERE);
        lone_up(lone, conn, 1, 1);
        weir_event event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_UP);
        lone_cut(lone, conn, WEIR_EPEER);
        uint64_t broke_ns = lone->now_ns;
        bool gone = false;
        while (!gone && lone->now_ns < broke_ns + 500 * MS) {
            dial_ends(lone, WEIR_EPEER);
            lone_pass(lone, 5 * MS);
            if (back && lone->now_ns == broke_ns + 100 * MS) {
                conn = lone_visit(lone);
                lone_return(lone, conn, 1, THERE);
            }
            gone = is_gone(lone, event.peer, WEIR_EPEER);
        }
        assert_int_equal(gone, !back);
        if (gone)
            assert_in_range(lone->now_ns - broke_ns, 250 * MS, 420 * MS);
        lone_close(lone);
    }
}

/* ---- connects that take time ---- */

static uint32_t qps_made(const struct lone *lone) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < lone->qp_count; i++)
        count += lone->made[i];
    return count;
}

/* Nobody says READY, and nothing is posted, before it is done; others are served. */
static void test_H10_a_connect_that_takes_time(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = opened(&peer, &conn);
    lone->connect_ns = 300 * MS;
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    lone->connect_ns = 0;
    uint64_t visitor = lone_visit(lone);
    lone_say_who(lone, visitor, 2, "10.0.0.10:9");
    lone_up(lone, visitor, 2, 1);
    assert_int_not_equal(lone_event(lone).peer.id, peer.id); /* the other is up */
    lone_pass(lone, 290 * MS);
    assert_int_equal(lone_count(lone, conn, WIRE_READY), 0);
    lone_pass(lone, 20 * MS);
    assert_int_equal(lone_count(lone, conn, WIRE_READY), 1);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    assert_int_equal(event.peer.id, peer.id);
    lone_close(lone);
}

/* The answering side: HELLO_ACK only when its QPs receive. */
static void test_H8_a_slow_connect_is_acknowledged_late(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->connect_ns = 200 * MS;
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    for (int i = 0; i < 10; i++) {
        lone_say_hello(lone, conn, 1, 1);
        assert_int_equal(lone_count(lone, conn, WIRE_HELLO_ACK), 0);
        lone_pass(lone, 15 * MS);
    }
    lone_pass(lone, 60 * MS);
    assert_int_equal(lone->qp_count, 1);
    lone_up(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_close(lone);
}

static void test_H10_a_slow_connect_that_fails_is_tried_again(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = opened(&peer, &conn);
    lone->connect_ns = 100 * MS;
    lone->connect_error = WEIR_EPEER; /* no neighbour of this address */
    lone_say_iam(lone, conn, 1, THERE);
    uint64_t first = lone_answer(lone, conn, 1, 1);
    lone_pass(lone, 150 * MS);
    lone->connect_ns = 50 * MS;
    lone->connect_error = WEIR_OK;
    assert_true(lone_answer(lone, conn, 1, 2) > first);
    lone_pass(lone, 60 * MS);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    assert_int_equal(qps_made(lone), 1);
    lone_close(lone);
}

/* The peer is there and answers, and the device does not reach it for as long as connecting may
 * take: not that it died is what is known. */
static void test_H10_a_connect_that_never_works(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = opened(&peer, &conn);
    lone->connect_ns = 10 * MS;
    lone->connect_error = WEIR_EPEER;
    lone_say_iam(lone, conn, 1, THERE);
    uint64_t begin_ns = lone->now_ns;
    for (uint64_t epoch = 1; lone->now_ns - begin_ns < SECOND - 100 * MS; epoch++) {
        lone_answer(lone, conn, 1, epoch);
        lone_pass(lone, 50 * MS);
    }
    lone_pass(lone, 150 * MS);
    assert_true(is_gone(lone, peer, WEIR_ECONNECT));
    lone_close(lone);
}

/* Longer than the deadline: the wish fails in time, and the QP goes when it can. */
static void test_H10_a_connect_without_end(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = opened(&peer, &conn);
    lone->connect_ns = 3 * SECOND;
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    lone_pass(lone, SECOND + 10 * MS);
    assert_true(is_gone(lone, peer, WEIR_ECONNECT));
    assert_int_equal(qps_made(lone), 1); /* it cannot be destroyed yet */
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(qps_made(lone), 0);
    lone_close(lone);
}

static void test_H12_a_peer_that_dies_while_we_connect(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (int bye = 0; bye < 2; bye++) {
        struct lone *lone = opened(&peer, &conn);
        struct wire_message leaving = {.type = WIRE_BYE};
        lone->connect_ns = 500 * MS;
        lone_say_iam(lone, conn, 1, THERE);
        lone_answer(lone, conn, 1, 1);
        lone_pass(lone, 10 * MS);
        if (bye) {
            lone_say(lone, conn, 1, &leaving);
        } else {
            lone_cut(lone, conn, WEIR_EPEER);
            dial_ends(lone, WEIR_EPEER);
        }
        assert_true(is_gone(lone, peer, WEIR_EPEER));
        lone_pass(lone, 510 * MS);
        assert_int_equal(qps_made(lone), 0);
        lone_close(lone);
    }
}

/* Closing waits for it: the device may still write to the QP's buffers. */
static void test_T10_closing_while_a_connect_is_under_way(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = opened(&peer, &conn);
    lone->connect_ns = 200 * MS;
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    uint64_t from_ns = lone->now_ns;
    weir_engine_close(lone->engine);
    assert_int_equal(lone->closes, 1);
    assert_true(lone->device_closed);
    assert_in_range(lone->now_ns - from_ns, 200 * MS, 250 * MS);
    assert_int_equal(qps_made(lone), 0);
    lone_free(lone);
}

/* ---- registration that takes time ---- */

static weir_memory nested, outer;
static uint32_t hooks;

/* As another thread would, while the first is in the kernel. */
static void use_it_meanwhile(struct lone *lone) {
    static uint8_t bytes[64];
    if (hooks++ > 0)
        return; /* the nested one's own */
    assert_int_equal(atomic_load(&lone->engine->owner), 0);
    assert_true(weir_engine_progress(lone->engine) >= 0);
    assert_int_equal(
        weir_memory_register(lone->engine, bytes, sizeof(bytes), WEIR_ACCESS_ALL, &nested),
        WEIR_OK);
    if (outer.id != 0) { /* it is being released */
        assert_int_equal(weir_memory_release(lone->engine, outer), WEIR_ESTALE);
        assert_int_equal(weir_memory_query(lone->engine, outer, NULL, NULL), WEIR_ESTALE);
    }
}

static void test_H10_registration_holds_up_nobody(void **state) {
    static uint8_t bytes[64];
    void *base;

    (void)state;
    struct lone *lone = lone_open(NULL);
    lone->engine->caps.mr_anywhere = true;
    lone->on_register = use_it_meanwhile;
    hooks = 0;
    outer.id = 0;
    weir_memory made;
    assert_int_equal(
        weir_memory_register(lone->engine, bytes, sizeof(bytes), WEIR_ACCESS_ALL, &made), WEIR_OK);
    assert_int_equal(hooks, 2);
    assert_int_not_equal(made.id, nested.id);
    assert_int_equal(weir_memory_query(lone->engine, made, &base, NULL), WEIR_OK);
    assert_ptr_equal(base, bytes);
    assert_int_equal(weir_memory_release(lone->engine, nested), WEIR_OK);
    outer = made;
    hooks = 0;
    assert_int_equal(weir_memory_release(lone->engine, outer), WEIR_OK);
    assert_int_equal(weir_memory_release(lone->engine, outer), WEIR_ESTALE);
    assert_int_equal(weir_memory_release(lone->engine, nested), WEIR_OK);
    lone->on_register = NULL;
    lone_close(lone);
}

/* Memory that the device could not release is not used again, and released when asked again. */
static void test_W5_a_release_that_has_begun_goes_on_when_asked(void **state) {
    static const int errors[][2] = {{WEIR_EBUSY, WEIR_EINPROGRESS}, {WEIR_EDEVICE, WEIR_EDEVICE}};
    static uint8_t bytes[64];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    weir_memory memory;

    (void)state;
    struct lone *lone = lone_open(NULL);
    for (int i = 0; i < 4; i++) {
        size_t length = sizeof(descriptor);
        assert_int_equal(
            weir_memory_register(lone->engine, bytes, sizeof(bytes), WEIR_ACCESS_ALL, &memory),
            WEIR_OK);
        lone->release_error = errors[i / 2][0];
        for (int again = 0; again <= i % 2; again++)
            assert_int_equal(weir_memory_release(lone->engine, memory), errors[i / 2][1]);
        assert_int_equal(weir_memory_query(lone->engine, memory, NULL, NULL), WEIR_ESTALE);
        assert_int_equal(weir_memory_export(lone->engine, memory, descriptor, &length),
                         WEIR_ESTALE);
        lone->release_error = 0;
        assert_int_equal(weir_memory_release(lone->engine, memory), WEIR_OK);
        assert_int_equal(weir_memory_release(lone->engine, memory), WEIR_ESTALE);
    }
    lone_close(lone);
}

/* ---- receives that a QP takes with it ---- */

static uint32_t posted_receives(const struct lone *lone) {
    return lone->engine->receives.lists[RECEIVE_POSTED].count;
}

static void test_T5_a_swallowed_receive_is_counted_and_replaced(void **state) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    weir_notification got;
    uint64_t epoch = 1, number = 0;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_up(lone, conn, 1, epoch);
    const uint32_t wanted = posted_receives(lone);
    const uint32_t rounds = 200; /* more than there are buffers */
    for (uint32_t round = 0; round < rounds; round++) {
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
        lone_swallow(lone);
        lone_say(lone, conn, 1, &settle);
        lone_pass(lone, 20 * MS);
        lone_up(lone, conn, 1, ++epoch);
        for (uint32_t i = 0; i < wanted + 4; i++) {
            lone_notify(lone, ++number, 0);
            assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
            lone_pass(lone, MS);
        }
        assert_true(posted_receives(lone) >= wanted);
    }
    /* The last of them are certain when the queue has been used some times more. */
    assert_true(lone->engine->stats.receives_lost > rounds / 2);
    for (uint32_t i = 0; i < 4 * RECEIVES_BEHIND * wanted && lone->engine->receives.doubts > 0;) {
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
        lone_say(lone, conn, 1, &settle); /* sends of this device never complete */
        lone_pass(lone, 20 * MS);
        lone_up(lone, conn, 1, ++epoch);
        for (uint32_t k = 0; k < 2 * wanted; k++, i++) {
            lone_notify(lone, ++number, 0);
            assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
            lone_pass(lone, MS);
        }
    }
    assert_int_equal(weir_engine_query(lone->engine, &stats), WEIR_OK);
    assert_int_equal(stats.receives_lost, rounds);
    assert_int_equal(stats.notifications_received, number);
    lone_close(lone);
}

/* A QP that goes with nothing: no buffer is counted, and the doubt ends. */
static void test_T5_nothing_swallowed_nothing_counted(void **state) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    weir_notification got;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_up(lone, conn, 1, 1);
    const uint32_t wanted = posted_receives(lone);
    struct wire_message settle = {.type = WIRE_SETTLE, .epoch = 1};
    lone_say(lone, conn, 1, &settle);
    lone_pass(lone, 20 * MS);
    lone_up(lone, conn, 1, 2);
    assert_int_equal(lone->engine->receives.doubts, 1); /* it may have taken one */
    for (uint32_t i = 1; i <= 2 * wanted; i++) {
        lone_notify(lone, i, 0);
        assert_int_equal(weir_notification_take(lone->engine, &got), WEIR_OK);
        lone_pass(lone, MS);
    }
    assert_int_equal(posted_receives(lone), wanted);
    assert_int_equal(weir_engine_query(lone->engine, &stats), WEIR_OK);
    assert_int_equal(stats.receives_lost, 0);
    lone_close(lone);
}

/* ---- a device out of QPs ---- */

/* Both sides wait, and connect when there are QPs again; or the wish fails in time. */
static void test_H11_a_device_out_of_qps(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (int later = 0; later < 2; later++) {
        struct lone *lone = opened(&peer, &conn);
        lone->no_qps = true;
        lone_say_iam(lone, conn, 1, THERE);
        uint64_t visitor = lone_visit(lone);
        lone_say_who(lone, visitor, 2, "10.0.0.10:9");
        for (int i = 0; i < 10; i++) {
            lone_say_hello(lone, visitor, 2, 1);
            lone_pass(lone, 50 * MS);
        }
        assert_int_equal(lone_count(lone, visitor, WIRE_REFUSE), 0); /* it may ask again */
        assert_int_equal(lone_count(lone, visitor, WIRE_HELLO_ACK), 0);
        assert_int_equal(lone_count(lone, conn, WIRE_HELLO), 0);
        if (later) {
            lone->no_qps = false;
            lone_pass(lone, 30 * MS); /* a retransmission interval */
            lone_answer(lone, conn, 1, 1);
            lone_up(lone, visitor, 2, 1);
            assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
            assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
        } else {
            lone_pass(lone, 600 * MS);
            assert_true(is_gone(lone, peer, WEIR_ECONNECT));
            assert_int_equal(lone->qp_count, 0);
        }
        lone_close(lone);
    }
}

/* ---- errors that name nobody ---- */

/* A transfer that is nothing but a notification with a payload of so many bytes. */
static weir_transfer notify(struct lone *lone, weir_peer peer, uint32_t length,
                            uint64_t timeout_ns) {
    static const uint8_t payload[WEIR_NOTIFY_MAX];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_payload = payload;
    options.notify_length = length;
    options.timeout_ns = timeout_ns;
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &options, &transfer), WEIR_OK);
    return transfer;
}

static int status_of(struct lone *lone, weir_transfer transfer) {
    return weir_transfer_status(lone->engine, transfer);
}

/* A session of this peer broke: its QPs drain, and the peer says the same and comes back if
 * it is asked to. True: a new session is up. */
static bool again(struct lone *lone, uint64_t conn, uint64_t *epoch) {
    lone_pass(lone, 20 * MS);
    const struct wire_message *settle = lone_heard(lone, conn, WIRE_SETTLE);
    if (settle != NULL) {
        struct wire_message settled = {.type = WIRE_SETTLED, .echo = settle->epoch};
        lone_say(lone, conn, 1, &settled);
    }
    lone_pass(lone, 20 * MS);
    bool asked = lone_count(lone, conn, WIRE_HELLO) > 0;
    if (asked)
        lone_answer(lone, conn, 1, ++*epoch);
    lone_run(lone);
    return asked;
}

/* Some devices say FLUSHED of the WR whose local key is wrong: nobody is blamed, every
 * session breaks anew, and that ends. */
static void test_S11_a_culprit_that_is_never_named(void **state) {
    weir_transfer transfer;
    weir_peer peer;
    uint64_t conn, epoch = 1;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone->fail_all = WEIR_CQE_FLUSHED;
    transfer = notify(lone, peer, 0, 0);
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    while (status_of(lone, transfer) == WEIR_EINPROGRESS) {
        assert_int_equal(weir_engine_query(lone->engine, &stats), WEIR_OK);
        assert_true(stats.sessions_failed <= BREAKS_MAX);
        again(lone, conn, &epoch);
    }
    assert_int_equal(status_of(lone, transfer), WEIR_EDEVICE);
    assert_int_equal(weir_engine_query(lone->engine, &stats), WEIR_OK);
    assert_int_equal(stats.sessions_failed, BREAKS_MAX);
    lone_close(lone);
}

/* Transfers that were under way together with it come through: the culprit goes by itself. */
static void test_S11_a_culprit_takes_nobody_along(void **state) {
    enum { INNOCENT = 6 };
    const uint32_t payload = 32;
    weir_transfer culprit, innocent[INNOCENT];
    weir_peer peer;
    uint64_t conn, epoch = 1;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone->poison = WIRE_DATA_SIZE + payload;
    for (uint32_t i = 0; i < INNOCENT / 2; i++)
        innocent[i] = notify(lone, peer, 0, 0);
    culprit = notify(lone, peer, payload, 0);
    for (uint32_t i = INNOCENT / 2; i < INNOCENT; i++)
        innocent[i] = notify(lone, peer, 0, 0);
    for (uint32_t turn = 0; turn < 4 * BREAKS_MAX; turn++)
        again(lone, conn, &epoch);
    assert_int_equal(status_of(lone, culprit), WEIR_EDEVICE);
    for (uint32_t i = 0; i < INNOCENT; i++)
        assert_int_equal(status_of(lone, innocent[i]), WEIR_OK);
    lone_close(lone);
}

/* The control connection lives, sessions come up, and what is sent on them is not answered:
 * the transfer ends when connecting would have, and until then sessions are made ever less
 * often. */
static void test_S11_a_link_that_stays_down(void **state) {
    weir_transfer transfer;
    weir_peer peer;
    uint64_t conn, epoch = 1;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    for (uint32_t round = 0; round < 2; round++) {
        lone->fail_all = WEIR_CQE_RETRY;
        uint64_t begin_ns = lone->now_ns;
        transfer = notify(lone, peer, 0, 0);
        uint32_t sessions = 0;
        while (status_of(lone, transfer) == WEIR_EINPROGRESS) {
            assert_true(lone->now_ns - begin_ns < 2 * SECOND);
            sessions += again(lone, conn, &epoch);
        }
        assert_int_equal(status_of(lone, transfer), WEIR_ECONNECT);
        assert_true(lone->now_ns - begin_ns >= SECOND);
        assert_in_range(sessions, 3, 12);
        /* It is up again, and has been useful: the next time has all its time. */
        lone->fail_all = 0;
        lone->poison = UINT32_MAX;
        transfer = notify(lone, peer, 0, 0);
        for (uint32_t turn = 0; turn < 50; turn++)
            again(lone, conn, &epoch);
        assert_int_equal(status_of(lone, transfer), WEIR_OK);
    }
    lone_close(lone);
}

/* The other side's retries are exhausted first, and it says so: here nothing is known of a
 * link that is down, and nobody is blamed either. */
static void test_S11_a_link_of_which_the_other_side_says_that_it_is_down(void **state) {
    weir_transfer transfer;
    weir_peer peer;
    uint64_t conn, epoch = 1;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    uint64_t begin_ns = lone->now_ns;
    transfer = notify(lone, peer, 0, 0);
    while (status_of(lone, transfer) == WEIR_EINPROGRESS) {
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
        assert_true(lone->now_ns - begin_ns < 2 * SECOND);
        lone_say(lone, conn, 1, &settle);
        for (int i = 0;
             i < 10 && status_of(lone, transfer) == WEIR_EINPROGRESS && !again(lone, conn, &epoch);
             i++)
            continue;
    }
    assert_int_equal(status_of(lone, transfer), WEIR_ECONNECT);
    assert_true(lone->now_ns - begin_ns >= SECOND);
    lone_close(lone);
}

/* Trouble that a deadline ended is over: another session that breaks, an hour later, is the
 * first. */
static void test_S11_trouble_is_over_when_nobody_waits(void **state) {
    weir_transfer transfer;
    weir_peer peer;
    uint64_t conn, epoch = 1;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone->fail_all = WEIR_CQE_RETRY;
    transfer = notify(lone, peer, 0, 100 * MS);
    for (int i = 0; i < 20; i++)
        again(lone, conn, &epoch);
    assert_int_equal(status_of(lone, transfer), WEIR_ETIMEDOUT);
    lone->fail_all = 0;
    lone->poison = UINT32_MAX; /* the link is up again */
    for (int i = 0; i < 40; i++)
        again(lone, conn, &epoch);
    lone->now_ns += 3600 * SECOND;
    for (int i = 0; i < 5; i++)
        again(lone, conn, &epoch);
    lone->fail_all = WEIR_CQE_RETRY; /* one session */
    transfer = notify(lone, peer, 0, 0);
    lone_run(lone);
    lone->fail_all = 0;
    for (int i = 0; i < 10; i++)
        again(lone, conn, &epoch);
    assert_int_equal(status_of(lone, transfer), WEIR_OK);
    lone_close(lone);
}

/* ---- degraded ---- */

static bool has_event(struct lone *lone, uint32_t type) {
    weir_event event;
    bool found = false;
    while (weir_event_take(lone->engine, &event) == WEIR_OK)
        found |= event.type == type;
    return found;
}

/* A peer whose only session has just broken over the transfer *lost_out, and whose QPs cannot
 * be destroyed: they stay in the error state. */
static struct lone *degraded(weir_peer *peer_out, uint64_t *conn_out, weir_transfer *lost_out) {
    struct lone *lone = joined(peer_out, conn_out);
    lone->no_destroy = true;
    lone->fail_all = WEIR_CQE_FLUSHED;
    *lost_out = notify(lone, *peer_out, 0, 0);
    lone_run(lone);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_DEGRADED);
    lone->fail_all = 0;
    lone->poison = UINT32_MAX;
    lone_pass(lone, 20 * MS); /* the beacon's own post is over */
    return lone;
}

/* Nothing is posted for the peer meanwhile, and new work waits for a connection and says so. */
static void test_S8_a_broken_session_takes_no_work(void **state) {
    weir_engine_info before = WEIR_ENGINE_INFO_INIT, now = WEIR_ENGINE_INFO_INIT;
    weir_transfer lost;
    weir_peer peer;
    uint64_t conn, epoch = 1;

    (void)state;
    struct lone *lone = degraded(&peer, &conn, &lost);
    assert_int_equal(weir_engine_query(lone->engine, &before), WEIR_OK);
    weir_transfer later = notify(lone, peer, 0, 0);
    lone_pass(lone, 500 * MS);
    assert_int_equal(weir_engine_query(lone->engine, &now), WEIR_OK);
    assert_int_equal(now.posts, before.posts);
    assert_int_equal(weir_transfer_waiting_for(lone->engine, later), WEIR_WAITING_CONNECTION);
    lone_answer(lone, conn, 1, ++epoch);
    lone_run(lone);
    assert_int_equal(status_of(lone, later), WEIR_OK);
    lone->no_destroy = false;
    for (int turn = 0; turn < 20; turn++)
        again(lone, conn, &epoch);
    assert_int_equal(status_of(lone, lost), WEIR_OK); /* replayed */
    lone_close(lone);
}

/* It is recovered when other QPs are connected, not before, and whatever time passes. */
static void test_S10_degraded_for_as_long_as_its_qps_are_in_error(void **state) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_transfer lost;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = degraded(&peer, &conn, &lost);
    for (int i = 0; i < 10; i++) {
        lone_pass(lone, 50 * MS);
        assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_OK);
        assert_int_equal(info.connected, 0);
        assert_int_equal(info.sessions, 1);
        assert_false(has_event(lone, WEIR_EVENT_RECOVERED));
    }
    lone_answer(lone, conn, 1, 2);
    lone_run(lone);
    assert_true(has_event(lone, WEIR_EVENT_RECOVERED));
    assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_OK);
    assert_int_equal(info.connected, 1);
    assert_int_equal(info.sessions, 2);
    lone->no_destroy = false;
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H12_a_peer_that_refuses_is_gone_at_once),
        cmocka_unit_test(test_H12_a_peer_that_cannot_be_reached_is_asked_again),
        cmocka_unit_test(test_W10_no_route_to_a_peer_is_said),
        cmocka_unit_test(test_H12_who_was_never_there_may_come_yet),
        cmocka_unit_test(test_H12_a_visitor_whose_address_refuses),
        cmocka_unit_test(test_H10_a_connect_that_takes_time),
        cmocka_unit_test(test_H8_a_slow_connect_is_acknowledged_late),
        cmocka_unit_test(test_H10_a_slow_connect_that_fails_is_tried_again),
        cmocka_unit_test(test_H10_a_connect_that_never_works),
        cmocka_unit_test(test_H10_a_connect_without_end),
        cmocka_unit_test(test_H12_a_peer_that_dies_while_we_connect),
        cmocka_unit_test(test_T10_closing_while_a_connect_is_under_way),
        cmocka_unit_test(test_H10_registration_holds_up_nobody),
        cmocka_unit_test(test_W5_a_release_that_has_begun_goes_on_when_asked),
        cmocka_unit_test(test_T5_a_swallowed_receive_is_counted_and_replaced),
        cmocka_unit_test(test_T5_nothing_swallowed_nothing_counted),
        cmocka_unit_test(test_H11_a_device_out_of_qps),
        cmocka_unit_test(test_S11_a_culprit_that_is_never_named),
        cmocka_unit_test(test_S11_a_culprit_takes_nobody_along),
        cmocka_unit_test(test_S11_a_link_that_stays_down),
        cmocka_unit_test(test_S11_a_link_of_which_the_other_side_says_that_it_is_down),
        cmocka_unit_test(test_S11_trouble_is_over_when_nobody_waits),
        cmocka_unit_test(test_S8_a_broken_session_takes_no_work),
        cmocka_unit_test(test_S10_degraded_for_as_long_as_its_qps_are_in_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
