/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace.c: what is recorded of an engine's changes of state, as text and as JSON (M11). */
#include "lone_engine.h"

#include <stdio.h>
#include <string.h>

#include "recorder.h"

#define THERE "10.0.0.9:9"
#define MS    UINT64_C(1000000)

enum { ROOM = 4 << 20 };
static char text[ROOM];

static void read_trace(struct lone *lone, uint32_t format) {
    size_t room = 0, length = 0;
    assert_int_equal(weir_engine_trace(lone->engine, format, NULL, 0, &room), WEIR_OK);
    assert_true(room <= sizeof(text));
    assert_int_equal(weir_engine_trace(lone->engine, format, text, room, &length), WEIR_OK);
    assert_int_equal(strlen(text), length);
}

/* Each of the lines is there, in this order; others may be between them. */
static void assert_story(struct lone *lone, const char *const *lines) {
    read_trace(lone, WEIR_TRACE_TEXT);
    const char *at = text;
    for (; *lines != NULL; lines++) {
        const char *found = strstr(at, *lines);
        if (found == NULL)
            fail_msg("\"%s\" does not come in:\n%s", *lines, text);
        at = found + strlen(*lines);
    }
}

static uint32_t count_of(const char *what) {
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        count++;
    return count;
}

static weir_peer up(struct lone *lone, uint64_t *conn_out) {
    weir_peer peer;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    *conn_out = lone_dialled(lone, THERE);
    lone_say_iam(lone, *conn_out, 1, THERE);
    lone_answer(lone, *conn_out, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return peer;
}

static void test_M11_a_session_from_dial_to_drain(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn;
    up(lone, &conn);
    lone_pass(lone, 5 * MS);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, 5 * MS);
    static const char *const story[] = {
        "engine of process 77, device lone, listening at ",
        " the engine opens\n",
        " " THERE " (0x100000): dials: connection ",
        ": its address takes the connection",
        " somebody is sent: WHO\n",
        " somebody sends: IAM\n",
        ": QPs are made: epoch 1, QPs 1\n",
        ": is sent: HELLO, epoch 1\n",
        ": sends: HELLO_ACK, epoch 1\n",
        ": a QP is connected: epoch 1, of 1\n",
        ": is sent: READY, epoch 1\n",
        ": a session is up: epoch 1, epoch there 1\n",
        ": the application is told: up\n",
        ": sends: BYE\n",
        ": a session ends, and drains: epoch 1\n",
        ": the peer is given up (WEIR_EPEER)\n",
        ": the application is told: gone (WEIR_EPEER)\n",
        ": a QP is destroyed: QP 0\n",
        ": a session is drained: epoch 1\n",
        NULL,
    };
    assert_story(lone, story);
    lone_close(lone);
}

static void test_M11_a_break_and_a_stall(void **state) {
    (void)state;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.transfers_max = options.segments_max = options.notifications_max = 64;
    options.peers_max = 8;
    options.memories_max = options.remotes_max = 4;
    options.sq_depth = 16;
    options.recv_credits = 8;
    options.watchdog_ns = 1000 * MS;
    struct lone *lone = lone_open(&options);
    uint64_t conn;
    weir_peer peer = up(lone, &conn);
    lone->executes = true;
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, peer);
    lone_pass(lone, 1500 * MS);
    static const char *const waits[] = {
        ": the application is told: up\n",
        ": notifications begin to wait for credits: waiting 1\n",
        ": is sent: ASK",
        ": the application is told: stalled, ",
        NULL,
    };
    assert_story(lone, waits);
    lone_pass(lone, 5000 * MS); /* the question is repeated */
    assert_true(lone_count(lone, conn, WIRE_ASK) > 3);
    read_trace(lone, WEIR_TRACE_TEXT);
    assert_int_equal(count_of("is sent: ASK"), 1);
    assert_int_equal(count_of("nobody made progress"), 0); /* it looked whenever it had to */
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, MS);
    static const char *const cut[] = {
        ": the application is told: stalled, peer_absent\n",
        ": a connection ends: connection ",
        ": dials: connection ",
        NULL,
    };
    assert_story(lone, cut);
    lone->now_ns += 3000 * MS; /* nobody makes progress */
    lone_run(lone);
    static const char *const away[] = {" nobody made progress: for 300", NULL};
    assert_story(lone, away);
    lone_close(lone);
}

/* Of what may happen for each notification only the beginning is recorded, after a second without:
 * the rest would push out what happened before. */
static void test_M11_what_happens_often_is_recorded_seldom(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn, first, before, after;
    weir_peer peer = up(lone, &conn);
    lone->executes = true;
    recorder_range(lone->recorder, &first, &before);
    for (uint16_t i = 1; i <= 40; i++) {
        lone_pass(lone, i == 30 ? 1100 * MS : 10 * MS); /* there is one pause */
        for (int k = 0; k < 9; k++)
            weir_transfer_release(lone->engine, lone_submit_notification(lone, peer));
        lone_run(lone);
        for (int left = 1; left >= 0; left--) { /* the ninth is sent when the others were taken */
            struct wire_data taken = {.kind = WIRE_CREDIT, .credit = (uint16_t)(9 * i - left)};
            lone_message(lone, 0, &taken);
            lone_run(lone);
        }
    }
    recorder_range(lone->recorder, &first, &after);
    assert_true(lone->engine->stats.credit_waits >= 20);
    assert_int_equal(after - before, 2);
    lone_close(lone);
}

/* Sessions and stalls are spans, each of which ends once. */
static void test_M11_json_has_spans(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn;
    up(lone, &conn);
    read_trace(lone, WEIR_TRACE_JSON);
    assert_int_equal(count_of("\"ph\":\"b\""), 1);
    assert_int_equal(count_of("\"ph\":\"e\""), 0);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    lone_pass(lone, MS);
    read_trace(lone, WEIR_TRACE_JSON);
    assert_int_equal(count_of("\"ph\":\"b\""), 1);
    assert_int_equal(count_of("\"cat\":\"session\""), count_of("\"ph\":\"b\"") + 1);
    assert_int_equal(count_of("\"name\":\"" THERE " (0x100000)\""),
                     count_of("\"thread_name\"") - 1);
    assert_int_equal(strncmp(text, "{\"displayTimeUnit\"", 18), 0);
    assert_string_equal(text + strlen(text) - 4, "\n]}\n");
    lone_close(lone);
}

/* More than there is room for: the newest are there, and the head says how many there were. */
static void test_M11_the_newest_have_room(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn, first, end;
    size_t length;
    up(lone, &conn);
    for (int i = 0; i < 2 * RECORDER_RECORDS; i++) {
        if (i % 20 == 0)
            lone_pass(lone, 1000 * MS); /* not more in a second than are recorded */
        lone_say(lone, conn, 1,
                 &(struct wire_message){.type = WIRE_STATE, .echo = (uint64_t)i + 1});
    }
    recorder_range(lone->recorder, &first, &end);
    assert_true(end >= 2 * RECORDER_RECORDS);
    read_trace(lone, WEIR_TRACE_TEXT);
    assert_int_equal(count_of("\n"), RECORDER_RECORDS);
    for (uint32_t format = WEIR_TRACE_TEXT; format <= WEIR_TRACE_JSON; format++) {
        for (size_t size = WEIR_TRACE_MIN; size <= 5 * WEIR_TRACE_MIN; size += 777) {
            memset(text, 'x', sizeof(text));
            assert_int_equal(weir_engine_trace(lone->engine, format, text, size, &length), WEIR_OK);
            assert_true(length < size);
            assert_int_equal(strlen(text), length);
            assert_int_equal(text[size], 'x');
            assert_non_null(strstr(text, "sends: STATE, question 8192"));
        }
    }
    lone_close(lone);
}

/* A session breaks once, however much of it fails. */
static void test_M11_a_break_is_one_record(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn;
    weir_peer peer = up(lone, &conn);
    lone->fail_all = WEIR_CQE_RETRY;
    for (int i = 0; i < 5; i++)
        weir_transfer_release(lone->engine, lone_submit_notification(lone, peer));
    lone_run(lone);
    read_trace(lone, WEIR_TRACE_TEXT);
    assert_int_equal(count_of("a session breaks"), 1);
    lone_close(lone);
}

/* Whoever knows the instances can say words in a peer's name. They are visitors', and few of those
 * are remembered; of a peer that says two words in turn, few are as well. */
static void test_M11_words_of_a_crowd(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    uint64_t conn, first, before, after;
    up(lone, &conn);
    uint64_t stranger = lone_visit(lone);
    recorder_range(lone->recorder, &first, &before);
    for (uint64_t i = 1; i <= 500; i++)
        lone_say(lone, stranger, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = 1000 + i});
    recorder_range(lone->recorder, &first, &after);
    assert_in_range(after - before, 1, 100); /* with what is answered */
    read_trace(lone, WEIR_TRACE_TEXT);
    assert_int_equal(count_of(": sends: SETTLE"), 0);
    assert_true(count_of(" somebody sends: SETTLE") > 0);
    before = after;
    for (uint64_t i = 1; i <= 500; i++)
        lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_STATE, .echo = 1 + i % 2});
    recorder_range(lone->recorder, &first, &after);
    assert_in_range(after - before, 20, 40);
    lone_close(lone);
}

static void test_M11_arguments(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    weir_engine *engine = lone->engine;
    size_t length;
    assert_int_equal(weir_engine_trace(NULL, 0, text, sizeof(text), &length), WEIR_EINVAL);
    assert_int_equal(weir_engine_trace(engine, 2, text, sizeof(text), &length), WEIR_EINVAL);
    assert_int_equal(weir_engine_trace(engine, 0, text, sizeof(text), NULL), WEIR_EINVAL);
    assert_int_equal(weir_engine_trace(engine, 0, text, WEIR_TRACE_MIN - 1, &length), WEIR_EINVAL);
    assert_int_equal(weir_process_trace(0, 0, 0, text, sizeof(text), &length), WEIR_EINVAL);
    assert_int_equal(weir_process_trace(-1, 0, 0, text, sizeof(text), &length), WEIR_EINVAL);
    assert_int_equal(weir_process_trace(1, 0, 2, text, sizeof(text), &length), WEIR_EINVAL);
    assert_int_equal(weir_process_trace(INT64_MAX, 0, 0, text, sizeof(text), &length), WEIR_EPEER);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M11_a_session_from_dial_to_drain),
        cmocka_unit_test(test_M11_a_break_and_a_stall),
        cmocka_unit_test(test_M11_what_happens_often_is_recorded_seldom),
        cmocka_unit_test(test_M11_json_has_spans),
        cmocka_unit_test(test_M11_the_newest_have_room),
        cmocka_unit_test(test_M11_a_break_is_one_record),
        cmocka_unit_test(test_M11_words_of_a_crowd),
        cmocka_unit_test(test_M11_arguments),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
