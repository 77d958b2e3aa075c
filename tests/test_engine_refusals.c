/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_refusals.c: a side that refuses a session says why, and the refused side can read it
 * (W9), and engines of different age understand what they can (H15). The other side is the test
 * itself: see lone_engine.h. */
#include "lone_engine.h"

#include <stdio.h>
#include <string.h>

#define THERE "10.0.0.9:9"

/* Instance 1 is at the address that the application opened, and has said IAM. */
static struct lone *met(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, *peer_out), WEIR_ENOTREADY);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    assert_int_not_equal(*conn_out, 0);
    lone_say_iam(lone, *conn_out, 1, THERE);
    return lone;
}

static int refusal(struct lone *lone, weir_peer peer) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_OK);
    return info.refusal;
}

/* The engine's HELLO there is refused. later: WIRE_ECHO_LATER, or 0. */
static void refuse(struct lone *lone, uint64_t conn, uint64_t later, int reason) {
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_say(lone, conn, 1,
             &(struct wire_message){
                 .type = WIRE_REFUSE, .echo = hello->epoch | later, .reason = reason});
}

static void assert_gone_refused(struct lone *lone, int reason) {
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EREFUSED);
    assert_int_equal((int)event.value, reason);
}

/* ---- nobody answers ---- */

static void assert_why(struct lone *lone, weir_peer peer, const char *why) {
    char text[WEIR_REFUSAL_TEXT_MAX];
    assert_int_equal(weir_refusal_text(lone->engine, peer, text, sizeof(text)), WEIR_OK);
    if (strstr(text, why) == NULL || (*why == '\0') != (text[0] == '\0'))
        fail_msg("\"%s\" does not say \"%s\"", text, why);
}

/* The answer of its address is told while a dial goes on, and when its time is over. */
static void test_W9_whether_somebody_listens_there_is_told(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    assert_why(lone, peer, "");
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_run(lone);
    assert_why(lone, peer, "no engine has answered yet");
    lone_cut(lone, conn, WEIR_ECONNECT);
    assert_why(lone, peer, "no engine has answered yet");
    lone_pass(lone, 30 * MS);
    assert_int_not_equal(lone_dialled(lone, THERE), 0);
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(lone_event(lone).error, WEIR_ECONNECT);
    assert_why(lone, peer, "no engine has answered yet");

    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    assert_why(lone, peer, "");
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    assert_why(lone, peer, "");
    lone_close(lone);
}

/* An address that refused once, and is silent now: the machine is off, or a firewall drops it. */
static void test_W9_a_dial_that_meets_silence_says_nothing_old(void **state) {
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    lone_cut(lone, lone->conn_count, WEIR_EPEER);
    assert_why(lone, peer, "nobody listens");
    uint64_t before = lone->conn_count;
    lone_pass(lone, 2 * SECOND); /* it is dialled again, and nothing comes back */
    assert_true(lone->conn_count > before);
    assert_int_equal(lone_event(lone).error, WEIR_ECONNECT);
    assert_why(lone, peer, "");

    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    lone_cut(lone, lone->conn_count, WEIR_EPEER);
    lone_pass(lone, 30 * MS);
    lone_dialled(lone, THERE);
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(lone_event(lone).error, WEIR_ECONNECT);
    assert_why(lone, peer, "no engine has answered yet");
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    assert_why(lone, peer, ""); /* of this dial nothing is known yet */
    lone_close(lone);
}

/* A peer that called is there, whatever its address says: that is not why there is no session. */
static void test_W9_of_a_peer_that_calls_its_address_says_nothing(void **state) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_transfer transfer;
    uint64_t conn;

    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_peer peer = lone_meet(lone, 1, THERE, &conn);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_cut(lone, lone->conn_count, WEIR_EPEER); /* the dial that follows */
    conn = lone_visit(lone);
    lone_return(lone, conn, 1, THERE);
    lone->fail_all = WEIR_CQE_RETRY; /* the session breaks; a new one is asked for there */
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0,
                                &(weir_transfer_options){.size = sizeof(weir_transfer_options),
                                                         .flags = WEIR_TRANSFER_NOTIFY},
                                &transfer),
                     WEIR_OK);
    lone_run(lone);
    assert_int_equal(weir_peer_query(lone->engine, peer, &info), WEIR_OK);
    assert_int_equal(info.connected, 0);
    assert_why(lone, peer, "");
    lone_close(lone);
}

/* ---- we are refused ---- */

static void test_W9_a_refusal_for_good_ends_the_wish_and_its_reason_is_told(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    weir_transfer transfer = lone_submit_notification(lone, peer);
    refuse(lone, conn, 0, WEIR_EDEVICE);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EREFUSED);
    assert_gone_refused(lone, WEIR_EDEVICE);
    assert_int_equal(refusal(lone, peer), WEIR_EDEVICE);
    /* It is asked again, and its device may be another. */
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    assert_int_equal(refusal(lone, peer), 0);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_close(lone);
}

static void test_W9_a_reason_to_wait_is_told_when_the_time_is_over(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    weir_transfer transfer = lone_submit_notification(lone, peer);
    refuse(lone, conn, WIRE_ECHO_LATER, WEIR_EFULL);
    assert_int_equal(refusal(lone, peer), WEIR_EFULL); /* it can be asked for meanwhile */
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    lone_pass(lone, 100 * MS);
    assert_true(lone_count(lone, conn, WIRE_HELLO) > 0); /* the same one, again */
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EREFUSED);
    assert_gone_refused(lone, WEIR_EFULL);
    lone_close(lone);
}

static void test_W9_a_reason_to_wait_that_is_over_leaves_nothing(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    refuse(lone, conn, WIRE_ECHO_LATER, WEIR_EFULL);
    lone_pass(lone, 100 * MS);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    assert_int_equal(refusal(lone, peer), 0);
    lone_close(lone);
}

/* A lack of our own is ours to tell. */
static void test_W7_a_lack_of_our_own_is_the_status_when_the_time_is_over(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (int i = 0; i < 2; i++) {
        int lack = i == 0 ? WEIR_EFULL : WEIR_ENOMEM;
        struct lone *lone = lone_open(NULL);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        lone->no_qps = true;
        lone->qps_error = lack;
        weir_transfer transfer = lone_submit_notification(lone, peer);
        lone_run(lone);
        conn = lone_dialled(lone, THERE);
        lone_say_iam(lone, conn, 1, THERE);
        lone_pass(lone, 2 * SECOND);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), lack);
        assert_int_equal(refusal(lone, peer), 0);
        lone_close(lone);
    }
}

/* ---- we refuse ---- */

/* The application here is told as well. of_peer: it has a handle for whom. */
static void assert_refused_told(struct lone *lone, int error, bool of_peer) {
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_REFUSED);
    assert_int_equal(event.error, error);
    assert_int_equal(event.peer.id != 0, of_peer);
}

static void assert_counted(struct lone *lone, uint64_t refused) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(lone->engine, &stats), WEIR_OK);
    assert_int_equal(stats.sessions_refused, refused);
}

/* The engine's answer to the HELLO of a visitor when its device makes no QPs. */
static const struct wire_message *refused(struct lone *lone, uint64_t conn, int error) {
    lone->no_qps = true;
    lone->qps_error = error;
    lone_say_hello(lone, conn, 2, 1);
    const struct wire_message *refuse = lone_heard(lone, conn, WIRE_REFUSE);
    lone->no_qps = false;
    return refuse;
}

static void test_W9_a_visitor_hears_what_is_lacking_and_comes_in_later(void **state) {
    static const int LACKS[] = {WEIR_EFULL, WEIR_ENOMEM};

    (void)state;
    for (size_t i = 0; i < sizeof(LACKS) / sizeof(LACKS[0]); i++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 2, "10.0.0.10:9");
        const struct wire_message *later = refused(lone, conn, LACKS[i]);
        assert_non_null(later);
        assert_int_equal(later->reason, LACKS[i]);
        assert_true(later->echo == (1 | WIRE_ECHO_LATER));
        assert_refused_told(lone, LACKS[i], true);
        for (int k = 0; k < 3; k++)
            assert_non_null(refused(lone, conn, LACKS[i])); /* as often as it asks */
        lone_up(lone, conn, 2, 1);                          /* the very HELLO that found no room */
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
        assert_counted(lone, 4);
        lone_close(lone);
    }
}

static void test_W9_a_visitor_hears_at_once_what_will_not_get_better(void **state) {
    static const int FAULTS[] = {WEIR_EDEVICE, WEIR_EACCESS, WEIR_ENOTSUP};

    (void)state;
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 2, "10.0.0.10:9");
        const struct wire_message *told = refused(lone, conn, FAULTS[i]);
        assert_non_null(told);
        assert_int_equal(told->reason, FAULTS[i]);
        assert_int_equal(told->echo, 1);
        assert_refused_told(lone, FAULTS[i], true);
        assert_counted(lone, 1);
        lone_close(lone);
    }
}

/* All slots for those that come by themselves are taken. */
static void test_W9_a_visitor_for_whom_there_is_no_slot_hears_so(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL); /* peers_max is 8 */
    uint32_t n = 1;
    uint64_t conn;
    for (;; n++) {
        conn = lone_visit(lone);
        lone_say_who(lone, conn, n, "");
        lone_say_hello(lone, conn, n, 1);
        if (lone_count(lone, conn, WIRE_HELLO_ACK) == 0)
            break;
        const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
        lone_say_ready(lone, conn, n, 1, ack->epoch);
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    }
    assert_int_equal(n, 7); /* a quarter is the application's */
    const struct wire_message *later = lone_heard(lone, conn, WIRE_REFUSE);
    assert_non_null(later);
    assert_int_equal(later->reason, WEIR_EFULL);
    assert_true(later->echo == (1 | WIRE_ECHO_LATER));
    assert_refused_told(lone, WEIR_EFULL, false);
    lone_say_hello(lone, conn, n, 1);
    assert_non_null(lone_heard(lone, conn, WIRE_REFUSE));
    weir_event event;
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN); /* told once */
    assert_counted(lone, 2);
    lone_close(lone);
}

/* A device that cannot connect to the visitor's, for good. */
static void test_W9_a_visitor_whose_QPs_cannot_be_connected_is_told_of(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone->connect_error = WEIR_EACCESS;
    lone_say_who(lone, conn, 2, "10.0.0.10:9");
    lone_say_hello(lone, conn, 2, 1);
    const struct wire_message *told = lone_heard(lone, conn, WIRE_REFUSE);
    assert_non_null(told);
    assert_int_equal(told->reason, WEIR_EACCESS);
    assert_int_equal(told->echo, 1);
    assert_refused_told(lone, WEIR_EACCESS, true);
    lone_close(lone);
}

/* ---- nothing in common ---- */

static void add(struct wire_devices *list, const char *name, uint8_t fabric, bool untried) {
    struct wire_device *entry = &list->entries[list->count++];
    *entry = (struct wire_device){.fabric = {fabric}, .untried = untried, .used = list->count == 1};
    snprintf(entry->name, sizeof(entry->name), "%s", name);
}

static void assert_text(struct lone *lone, weir_peer peer, const char *expected) {
    char text[WEIR_REFUSAL_TEXT_MAX];
    assert_int_equal(weir_refusal_text(lone->engine, peer, text, sizeof(text)), WEIR_OK);
    assert_string_equal(text, expected);
}

/* The engine's HELLO there is refused by one that has this. */
static void refuse_with(struct lone *lone, uint64_t conn, const struct wire_devices *devices) {
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_say(lone, conn, 1,
             &(struct wire_message){.type = WIRE_REFUSE,
                                    .echo = hello->epoch,
                                    .reason = WEIR_EREFUSED,
                                    .devices = *devices});
}

static void assert_listed(const struct wire_device *entry, const char *name, bool untried) {
    assert_string_equal(entry->name, name);
    assert_int_equal(entry->untried, untried);
}

static void test_W9_who_is_refused_hears_what_the_other_one_has(void **state) {
    static const struct {
        const char *name;
        uint8_t fabric;
        bool untried;
        const char *expected;
    } CASES[] = {
        {"other", 7, false, "the peer uses efa, this engine lone; both could use other"},
        {"other", 8, false, "the peer uses efa, this engine lone"},
        {"other", 0, true,
         "the peer uses efa, this engine lone; both may be able to use other (weir info tells, on "
         "either host)"},
        {"perhaps", 1, false,
         "the peer uses efa, this engine lone; both may be able to use perhaps (weir info tells, "
         "on "
         "either host)"},
        /* It is tried here now. */
        {"shm", 1, false, "the peer uses efa, this engine lone; both could use shm"},
        {"lone", 0, false, "the peer uses efa, this engine lone; both could use lone"},
        {"unheard-of", 0, true, "the peer uses efa, this engine lone"},
    };
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct lone *lone = met(&peer, &conn);
        struct wire_devices theirs = {0};
        assert_text(lone, peer, "");
        add(&theirs, "efa", 3, false);
        add(&theirs, CASES[i].name, CASES[i].fabric, CASES[i].untried);
        refuse_with(lone, conn, &theirs);
        assert_gone_refused(lone, WEIR_EREFUSED);
        assert_int_equal(refusal(lone, peer), WEIR_EREFUSED);
        assert_text(lone, peer, CASES[i].expected);
        lone_close(lone);
    }
}

/* Imports memory of such a device. */
static int import_of(struct lone *lone, weir_peer peer, const char *device, uint8_t fabric) {
    uint8_t bytes[WEIR_DESCRIPTOR_MAX];
    uint32_t length;
    weir_remote remote;
    struct wire_descriptor theirs = {.memory_id = 1,
                                     .length = 8,
                                     .access = WEIR_ACCESS_ALL,
                                     .fabric = {fabric},
                                     .blob_length = 4};
    lone_instance(1, theirs.instance);
    snprintf(theirs.device, sizeof(theirs.device), "%s", device);
    assert_int_equal(wire_descriptor_encode(&theirs, bytes, sizeof(bytes), &length), WEIR_OK);
    return weir_memory_import(lone->engine, peer, bytes, length, &remote);
}

static void test_W9_one_device_in_two_places_is_told_as_that(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    struct wire_devices theirs = {0};
    add(&theirs, "lone", 9, false);
    add(&theirs, "other", 7, false);
    refuse_with(lone, conn, &theirs);
    assert_text(lone, peer,
                "both use lone, and the two do not meet (weir info tells where each is, on its "
                "host); both could use other");
    lone_close(lone);
}

/* Memory of another device, or place, is known to be out of reach before anybody was dialled. */
static void test_W9_an_import_that_cannot_be_has_the_text(void **state) {
    weir_peer peer, other;
    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, "10.0.0.9:9", &peer), WEIR_OK);
    assert_int_equal(weir_peer_open(lone->engine, "10.0.0.8:8", &other), WEIR_OK);
    assert_text(lone, peer, "");
    assert_int_equal(import_of(lone, peer, "efa", 3), WEIR_ENOTSUP);
    assert_text(lone, peer, "the peer uses efa, this engine lone");
    assert_text(lone, other, "");
    assert_int_equal(import_of(lone, peer, "lone", 3), WEIR_ENOTSUP);
    assert_text(lone, peer,
                "both use lone, and the two do not meet (weir info tells where each is, on its "
                "host)");
    assert_int_equal(import_of(lone, peer, "lone", 0), WEIR_OK);
    assert_text(lone, peer, "");
    lone_close(lone);
}

static void test_W9_other_reasons_have_a_text_too(void **state) {
    weir_peer peer;
    uint64_t conn;
    char text[8];

    (void)state;
    struct lone *lone = met(&peer, &conn);
    refuse(lone, conn, 0, WEIR_EDEVICE);
    assert_text(lone, peer, "the peer says: the device failed (WEIR_EDEVICE)");
    assert_int_equal(weir_refusal_text(lone->engine, peer, text, sizeof(text)), WEIR_OK);
    assert_string_equal(text, "the pee");
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    assert_text(lone, peer, "");
    refuse(lone, conn, 0, WEIR_EREFUSED); /* by one that tells of nothing */
    assert_text(lone, peer, "the peer says that the devices differ, or do not meet");
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    lone_answer(lone, conn, 1, 1);
    assert_text(lone, peer, "");
    lone_close(lone);
}

/* A visitor with another device says HELLO; the engine's answer. */
static const struct wire_message *unlike(struct lone *lone, uint64_t conn, uint64_t epoch) {
    struct wire_message hello = {.type = WIRE_HELLO, .epoch = epoch, .qps = lone_qps()};
    snprintf(hello.qps.device, sizeof(hello.qps.device), "efa");
    hello.devices.count = 1;
    snprintf(hello.devices.entries[0].name, sizeof(hello.devices.entries[0].name), "other");
    hello.devices.entries[0].fabric[0] = 7;
    lone_say(lone, conn, 2, &hello);
    return lone_heard(lone, conn, WIRE_REFUSE);
}

static void test_W9_who_refuses_tells_the_visitor_and_its_own_application(void **state) {
    static const char expected[] = "the peer uses efa, this engine lone; both could use other";
    weir_event event;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 2, "10.0.0.10:9");
    const struct wire_message *told = unlike(lone, conn, 1);
    assert_non_null(told);
    assert_int_equal(told->reason, WEIR_EREFUSED);
    assert_int_equal(told->echo, 1);
    assert_int_equal(told->devices.count, 4);
    assert_listed(&told->devices.entries[0], "lone", false);
    assert_true(told->devices.entries[0].used);
    assert_listed(&told->devices.entries[1], "other", false);
    assert_int_equal(told->devices.entries[1].fabric[0], 7);
    assert_false(told->devices.entries[1].used);
    assert_listed(&told->devices.entries[3], "perhaps", true);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_REFUSED);
    assert_int_equal(event.error, WEIR_EREFUSED);
    assert_text(lone, event.peer, expected);
    assert_counted(lone, 1);
    /* It asks again, and is told again; the application is not. */
    assert_non_null(unlike(lone, conn, 1));
    assert_non_null(unlike(lone, conn, 2));
    weir_event other;
    assert_int_equal(weir_event_take(lone->engine, &other), WEIR_EAGAIN);
    /* The application is late, and the peer is gone. */
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    lone_cut(lone, conn, WEIR_EPEER);
    assert_int_equal(weir_peer_query(lone->engine, event.peer, &info), WEIR_ESTALE);
    assert_text(lone, event.peer, expected);
    char text[8];
    event.peer.id++;
    assert_int_equal(weir_refusal_text(lone->engine, event.peer, text, sizeof(text)), WEIR_ESTALE);
    lone_close(lone);
}

/* Its HELLO comes while ours is under way: both wishes end, and ours says why. */
static void test_W9_a_wish_that_crosses_another_ends_with_the_text(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = met(&peer, &conn);
    weir_transfer transfer = lone_submit_notification(lone, peer);
    struct wire_message hello = {.type = WIRE_HELLO, .epoch = 1, .qps = lone_qps()};
    hello.qps.fabric[0] = 1;
    lone_say(lone, conn, 1, &hello);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EREFUSED);
    assert_text(
        lone, peer,
        "both use lone, and the two do not meet (weir info tells where each is, on its host)");
    lone_close(lone);
}

/* An engine of another age offers devices that we do not know, and ours behind them. */
static void test_H15_ones_own_device_is_found_behind_others(void **state) {
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;

    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    lone_say_who(lone, conn, 2, "10.0.0.10:9");
    struct wire_message hello = {.type = WIRE_HELLO, .epoch = 1, .qps = lone_qps()};
    lone_instance(2, hello.from);
    memcpy(hello.to, engine_instance(lone->engine), WIRE_INSTANCE_SIZE);
    assert_int_equal(wire_encode(&hello, bytes, sizeof(bytes), &length), WEIR_OK);
    /* The entry twice, and then one of a kind to come; the first time under another name. */
    uint8_t *list = bytes + WIRE_HEADER_SIZE + 24, *entry = list + 2;
    uint32_t size = (uint32_t)(bytes + length - entry);
    memcpy(entry + size, entry, size);
    memcpy(entry + 5, "rail", 4);
    memcpy(entry + 2 * (size_t)size, "\x03\x00\x63xy", 5);
    list[0] = 2;
    list[1] = 3;
    length += size + 5;
    bytes[8] = (uint8_t)length;
    bytes[9] = (uint8_t)(length >> 8);
    lone_say_bytes(lone, conn, bytes, length);
    const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    assert_string_equal(ack->qps.device, "lone");
    lone_say_ready(lone, conn, 2, 1, ack->epoch);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    lone_close(lone);
}

/* ---- another version of the protocol ---- */

/* A message of version 11, of which only the head is as we know it. */
static void say_later_version(struct lone *lone, uint64_t conn) {
    uint8_t bytes[64] = "WEIR\x0b\x00\x77\x00\x40\x00\x00\x00";
    memset(bytes + 12, 0xab, sizeof(bytes) - 12);
    lone_say_bytes(lone, conn, bytes, sizeof(bytes));
}

static void test_H15_W9_the_version_of_who_answers_is_told(void **state) {
    static const char expected[] =
        "the peer speaks version 11 of the protocol, this library version 10";
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_transfer transfer = lone_submit_notification(lone, peer);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_heard(lone, conn, WIRE_WHO);
    say_later_version(lone, conn);
    assert_true(lone->conns[conn].hung);
    assert_int_equal(lone_count(lone, conn, WIRE_WHO), 0); /* it has heard ours */
    assert_text(lone, peer, expected);
    char stall[WEIR_STALL_TEXT_MAX];
    assert_int_equal(weir_stall_text(lone->engine, peer, stall, sizeof(stall)), WEIR_OK);
    assert_non_null(strstr(stall, "it speaks version 11 of the protocol, this library 10"));
    lone_pass(lone, 2 * SECOND);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_ECONNECT);
    assert_text(lone, peer, expected);
    /* Another one is there by now. */
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    assert_text(lone, peer, "");
    lone_close(lone);
}

static void test_H15_a_visitor_of_another_version_hears_ours(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn = lone_visit(lone);
    say_later_version(lone, conn);
    assert_int_equal(lone_count(lone, conn, WIRE_WHO), 1);
    assert_true(lone->conns[conn].hung);
    assert_int_equal(lone->engine->stats.control_malformed, 1);
    /* A message without a whole head is not answered. */
    conn = lone_visit(lone);
    lone_say_bytes(lone, conn, (const uint8_t *)"WEIR\x0a\x00", 6);
    assert_int_equal(lone_count(lone, conn, WIRE_WHO), 0);
    assert_true(lone->conns[conn].hung);
    assert_int_equal(lone->engine->stats.control_malformed, 2);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W9_whether_somebody_listens_there_is_told),
        cmocka_unit_test(test_W9_a_dial_that_meets_silence_says_nothing_old),
        cmocka_unit_test(test_W9_of_a_peer_that_calls_its_address_says_nothing),
        cmocka_unit_test(test_W9_a_refusal_for_good_ends_the_wish_and_its_reason_is_told),
        cmocka_unit_test(test_W9_a_reason_to_wait_is_told_when_the_time_is_over),
        cmocka_unit_test(test_W9_a_reason_to_wait_that_is_over_leaves_nothing),
        cmocka_unit_test(test_W7_a_lack_of_our_own_is_the_status_when_the_time_is_over),
        cmocka_unit_test(test_W9_a_visitor_hears_what_is_lacking_and_comes_in_later),
        cmocka_unit_test(test_W9_a_visitor_hears_at_once_what_will_not_get_better),
        cmocka_unit_test(test_W9_a_visitor_for_whom_there_is_no_slot_hears_so),
        cmocka_unit_test(test_W9_a_visitor_whose_QPs_cannot_be_connected_is_told_of),
        cmocka_unit_test(test_W9_who_is_refused_hears_what_the_other_one_has),
        cmocka_unit_test(test_W9_one_device_in_two_places_is_told_as_that),
        cmocka_unit_test(test_W9_an_import_that_cannot_be_has_the_text),
        cmocka_unit_test(test_W9_other_reasons_have_a_text_too),
        cmocka_unit_test(test_W9_who_refuses_tells_the_visitor_and_its_own_application),
        cmocka_unit_test(test_W9_a_wish_that_crosses_another_ends_with_the_text),
        cmocka_unit_test(test_H15_ones_own_device_is_found_behind_others),
        cmocka_unit_test(test_H15_W9_the_version_of_who_answers_is_told),
        cmocka_unit_test(test_H15_a_visitor_of_another_version_hears_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
