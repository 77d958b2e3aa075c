/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_silent.c: what a transfer ends with when its session broke under work that it had
 * posted, and the peer says, or never says, that it is through with that session (S11, S13).
 *
 * One engine, whose device keeps long writes under way for as long as their QP is there. The test
 * plays the peer: see lone_engine.h. Its process may be stopped, with all that was sent to it in
 * its host: nobody can tell before it speaks. */
#include "lone_engine.h"

#define THERE      "10.0.0.9:9"
#define TIMEOUT_NS SECOND

enum { SHORT = 8, MESSAGE = 1000, LONG = 4096, INBOX = 7 };

struct world {
    struct lone *lone;
    weir_peer peer;
    uint64_t conn;
    weir_memory local;
    weir_remote remote;
};

static void world_open(struct world *w) {
    static uint8_t bytes[LONG];
    weir_engine_options limits = lone_limits();
    limits.connect_timeout_ns = TIMEOUT_NS;
    *w = (struct world){.lone = lone_open(&limits)};
    w->lone->executes = true;
    w->lone->slow_bytes = LONG;
    assert_int_equal(weir_peer_open(w->lone->engine, THERE, &w->peer), WEIR_OK);
    weir_peer_connect(w->lone->engine, w->peer);
    lone_run(w->lone);
    w->conn = lone_dialled(w->lone, THERE);
    lone_say_iam(w->lone, w->conn, 1, THERE);
    lone_answer(w->lone, w->conn, 1, 1);
    lone_memories(w->lone, w->peer, 1, bytes, sizeof(bytes), &w->local, &w->remote);
}

static weir_transfer write_bytes(struct world *w, uint32_t length, uint64_t timeout_ns) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment segment = {.local = w->local, .remote = w->remote, .length = length};
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.timeout_ns = timeout_ns;
    assert_int_equal(weir_write(w->lone->engine, w->peer, &segment, 1, &options, &transfer),
                     WEIR_OK);
    return transfer;
}

static int status_of(const struct world *w, weir_transfer transfer) {
    return weir_transfer_status(w->lone->engine, transfer);
}

/* The session of the transfer, which was cancelled or late, is broken on purpose: the peer is
 * asked, and has said nothing yet. */
static void await_question(struct world *w, weir_transfer transfer) {
    uint64_t end = w->lone->now_ns + TIMEOUT_NS;
    while (lone_count(w->lone, w->conn, WIRE_SETTLE) == 0 && w->lone->now_ns < end)
        lone_pass(w->lone, 10 * MS);
    assert_int_not_equal(lone_count(w->lone, w->conn, WIRE_SETTLE), 0);
    assert_int_equal(status_of(w, transfer), WEIR_EINPROGRESS);
}

/* The peer says that it is through with all that it was asked about, and had not been notified. */
static void answer(struct world *w) {
    const struct wire_message *asked = lone_heard(w->lone, w->conn, WIRE_SETTLE);
    assert_non_null(asked);
    lone_say(w->lone, w->conn, 1,
             &(struct wire_message){.type = WIRE_SETTLED, .echo = asked->epoch});
    lone_run(w->lone);
}

/* It never says so: the status comes with the connect time-out all the same. */
static int status_in_silence(struct world *w, weir_transfer transfer) {
    uint64_t end = w->lone->now_ns + TIMEOUT_NS + 100 * MS;
    while (status_of(w, transfer) == WEIR_EINPROGRESS && w->lone->now_ns < end)
        lone_pass(w->lone, 10 * MS);
    return status_of(w, transfer);
}

/* ---- the application ends it ---- */

static void ends_early(bool cancelled, bool peer_answers, int status) {
    struct world w;
    world_open(&w);
    weir_transfer transfer = write_bytes(&w, LONG, cancelled ? 0 : 20 * MS);
    lone_run(w.lone);
    if (cancelled)
        assert_int_equal(weir_transfer_cancel(w.lone->engine, transfer), WEIR_OK);
    await_question(&w, transfer);
    if (peer_answers)
        answer(&w);
    else
        assert_int_equal(status_in_silence(&w, transfer), status);
    assert_int_equal(status_of(&w, transfer), status);
    lone_close(w.lone);
}

static void test_S11_a_deadline_is_its_status_if_the_peer_is_through(void **state) {
    (void)state;
    ends_early(false, true, WEIR_ETIMEDOUT);
    ends_early(false, false, WEIR_EUNKNOWN);
}

static void test_S11_a_cancel_is_its_status_if_the_peer_is_through(void **state) {
    (void)state;
    ends_early(true, true, WEIR_ECANCELED);
    ends_early(true, false, WEIR_EUNKNOWN);
}

/* Nothing of it was posted, so nothing of it is at the peer. */
static void test_S11_what_was_not_posted_needs_no_word(void **state) {
    struct world w;

    (void)state;
    world_open(&w);
    weir_transfer posted = write_bytes(&w, LONG, 20 * MS);
    await_question(&w, posted);
    weir_transfer late = write_bytes(&w, SHORT, 20 * MS), cancelled = write_bytes(&w, SHORT, 0);
    assert_int_equal(weir_transfer_cancel(w.lone->engine, cancelled), WEIR_OK);
    lone_pass(w.lone, 40 * MS);
    assert_int_equal(status_of(&w, late), WEIR_ETIMEDOUT);
    assert_int_equal(status_of(&w, cancelled), WEIR_ECANCELED);
    assert_int_equal(status_of(&w, posted), WEIR_EINPROGRESS);
    lone_close(w.lone);
}

/* All of it was done before its session broke. */
static void test_S11_what_was_done_needs_no_word(void **state) {
    struct world w;

    (void)state;
    world_open(&w);
    weir_transfer done = write_bytes(&w, SHORT, 0), slow = write_bytes(&w, LONG, 20 * MS);
    await_question(&w, slow);
    assert_int_equal(status_of(&w, done), WEIR_OK);
    lone_close(w.lone);
}

/* A message whose receiver is silent is as any other transfer. */
static void a_message_ends(bool peer_answers, int status) {
    static uint8_t bytes[LONG];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_memory memory;
    weir_transfer transfer;
    struct world w;
    world_open(&w);
    w.lone->slow_bytes = MESSAGE;
    assert_int_equal(weir_memory_register(w.lone->engine, bytes, sizeof(bytes), 0, &memory),
                     WEIR_OK);
    weir_part part = {.local = memory, .length = MESSAGE};
    assert_int_equal(
        weir_message_send(w.lone->engine, w.peer, INBOX, &part, 1, &options, &transfer), WEIR_OK);
    lone_run(w.lone);
    assert_true(lone_inbox(w.lone, w.lone->qp_count - 1, 1, 1, INBOX));
    struct word grant = {.kind = WORD_GRANT, .inbox = INBOX, .grant = {.place = 1, .secret = 5}};
    assert_true(lone_words(w.lone, w.lone->qp_count - 1, 2, &grant));
    lone_run(w.lone);
    assert_int_equal(weir_transfer_waiting_for(w.lone->engine, transfer), WEIR_WAITING_COMPLETIONS);
    assert_int_equal(weir_transfer_cancel(w.lone->engine, transfer), WEIR_OK);
    await_question(&w, transfer);
    if (peer_answers)
        answer(&w);
    assert_int_equal(status_in_silence(&w, transfer), status);
    lone_close(w.lone);
}

static void test_S11_a_cancelled_message_of_a_silent_receiver_is_unknown(void **state) {
    (void)state;
    a_message_ends(true, WEIR_ECANCELED);
    a_message_ends(false, WEIR_EUNKNOWN);
}

/* ---- the device, or the world, ends it ---- */

/* One WR of it was refused; others of it, on other QPs or before it, may be in the host. */
static void a_refused_one_ends(bool peer_answers, int status) {
    struct world w;
    world_open(&w);
    w.lone->bad_bytes = LONG;
    w.lone->slow_bytes = 0;
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    weir_transfer transfer = write_bytes(&w, LONG, 0);
    await_question(&w, transfer);
    if (peer_answers)
        answer(&w);
    assert_int_equal(status_in_silence(&w, transfer), status);
    lone_close(w.lone);
}

static void test_S11_a_refusal_is_its_status_if_the_peer_is_through(void **state) {
    (void)state;
    a_refused_one_ends(true, WEIR_EREMOTE);
    a_refused_one_ends(false, WEIR_EUNKNOWN);
}

/* Another instance is where the peer was: the peer is dead, and executes nothing. */
static void test_S11_the_dead_need_no_word(void **state) {
    struct world w;

    (void)state;
    world_open(&w);
    weir_transfer transfer = write_bytes(&w, LONG, 20 * MS);
    await_question(&w, transfer);
    lone_say_iam(w.lone, w.conn, 2, THERE);
    lone_run(w.lone);
    assert_int_equal(status_of(&w, transfer), WEIR_EPEER);
    lone_close(w.lone);
}

/* Its connection is lost, and nobody answers where it was. It is given up, and nobody knows whether
 * it lives: so nobody knows of posted work. A transfer that was not posted has a status that says
 * so. */
static void test_S11_a_peer_that_is_not_reached_may_live(void **state) {
    struct world w;
    weir_event event;

    (void)state;
    world_open(&w);
    weir_transfer posted = write_bytes(&w, LONG, 0);
    lone_run(w.lone);
    lone_cut(w.lone, w.conn, WEIR_ECONNECT);
    w.lone->dial_error = WEIR_ECONNECT;
    uint64_t end = w.lone->now_ns + 4 * TIMEOUT_NS;
    while (!lone_told(w.lone, WEIR_EVENT_GONE, &event) && w.lone->now_ns < end)
        lone_pass(w.lone, 10 * MS);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_ECONNECT);
    assert_int_equal(status_in_silence(&w, posted), WEIR_EUNKNOWN);
    lone_close(w.lone);
}

/* ---- a session of a life that is over ---- */

/* The wish ends while the peer's own attempt is answered, and the peer confirms that one late: the
 * session comes up, and is ended on purpose. */
static void test_S11_a_session_that_was_begun_in_another_life(void **state) {
    struct world w = {0};
    weir_engine_options limits = lone_limits();
    weir_event event;
    (void)state;
    limits.connect_timeout_ns = TIMEOUT_NS;
    w.lone = lone_open(&limits);
    assert_int_equal(weir_peer_open(w.lone->engine, THERE, &w.peer), WEIR_OK);
    weir_peer_connect(w.lone->engine, w.peer);
    lone_run(w.lone);
    w.conn = lone_dialled(w.lone, THERE);
    lone_say_iam(w.lone, w.conn, 1, THERE);
    lone_run(w.lone);
    lone_pass(w.lone, 900 * MS); /* of the wish's second */
    const struct wire_message *hello = lone_heard(w.lone, w.conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_say(
        w.lone, w.conn, 1,
        &(struct wire_message){.type = WIRE_REFUSE, .echo = hello->epoch, .reason = WEIR_ESTALE});
    lone_say_hello(w.lone, w.conn, 1, 5);
    lone_run(w.lone);
    const struct wire_message *ack = lone_heard(w.lone, w.conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    uint64_t ours = ack->epoch;
    lone_pass(w.lone, 300 * MS); /* the wish ends: GONE, and a new life */
    assert_true(lone_told(w.lone, WEIR_EVENT_GONE, &event));
    lone_say_ready(w.lone, w.conn, 1, 5, ours);
    lone_run(w.lone);
    assert_true(lone_told(w.lone, WEIR_EVENT_UP, &event));
    assert_true(lone_told(w.lone, WEIR_EVENT_DEGRADED, &event));
    assert_int_equal(event.error, WEIR_EUNKNOWN); /* and not that the device failed */
    assert_null(engine_verify(w.lone->engine));
    lone_close(w.lone);
}

/* A session is up beside the one about which the peer is silent. It is ended on purpose, and held
 * against nobody. */
static void test_S11_a_session_that_ends_for_a_new_life_blames_nobody(void **state) {
    struct world w;
    weir_event event;
    (void)state;
    world_open(&w);
    weir_transfer transfer = write_bytes(&w, LONG, 20 * MS);
    await_question(&w, transfer);
    lone_answer(w.lone, w.conn, 1, 2);
    while (weir_event_take(w.lone->engine, &event) == WEIR_OK)
        continue;
    weir_transfer innocent = write_bytes(&w, LONG, 0);
    lone_run(w.lone);
    assert_int_equal(status_in_silence(&w, transfer), WEIR_EUNKNOWN);
    lone_run(w.lone);
    assert_true(lone_told(w.lone, WEIR_EVENT_DEGRADED, &event));
    assert_int_equal(event.error, WEIR_EUNKNOWN);
    const struct transfer *record = &w.lone->engine->transfers[handle_index(innocent.id)];
    assert_int_equal(status_of(&w, innocent), WEIR_EINPROGRESS);
    assert_int_equal(record->breaks + record->broke_last, 0);
    assert_int_equal(lone_peer(w.lone, 1)->suspects, 0);
    lone_close(w.lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S11_a_session_that_was_begun_in_another_life),
        cmocka_unit_test(test_S11_a_session_that_ends_for_a_new_life_blames_nobody),
        cmocka_unit_test(test_S11_a_deadline_is_its_status_if_the_peer_is_through),
        cmocka_unit_test(test_S11_a_cancel_is_its_status_if_the_peer_is_through),
        cmocka_unit_test(test_S11_what_was_not_posted_needs_no_word),
        cmocka_unit_test(test_S11_what_was_done_needs_no_word),
        cmocka_unit_test(test_S11_a_cancelled_message_of_a_silent_receiver_is_unknown),
        cmocka_unit_test(test_S11_a_refusal_is_its_status_if_the_peer_is_through),
        cmocka_unit_test(test_S11_the_dead_need_no_word),
        cmocka_unit_test(test_S11_a_peer_that_is_not_reached_may_live),
    };

    return cmocka_run_group_tests_name("peers that are silent about a session", tests, NULL, NULL);
}
