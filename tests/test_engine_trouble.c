/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_trouble.c: the news that the application gets of sessions that break, whoever found
 * it (S9), what waits meanwhile, room that others make (S5), and receives that the device refuses
 * (M2). The other side is the test itself: see lone_engine.h.
 *
 * This file is long because each way that a break can be found has a test of its own. */
#include "lone_engine.h"

#include <stdio.h>
#include <string.h>

#define THERE "10.0.0.9:9"

/* Of a QP: notifications, as lone_engine sets it; messages of both classes; receives. */
enum { CREDITS = 8, MESSAGES = CREDITS + CREDIT_WORDS_WINDOW, RECEIVES = CREDITS + CREDIT_BESIDE };

/* A session of the others' epoch 1 with instance 1, whom the application opened. */
static void join(struct lone *lone, weir_peer *peer_out, uint64_t *conn_out) {
    assert_int_equal(weir_peer_open(lone->engine, THERE, peer_out), WEIR_OK);
    weir_peer_connect(lone->engine, *peer_out);
    lone_run(lone);
    *conn_out = lone_dialled(lone, THERE);
    assert_int_not_equal(*conn_out, 0);
    lone_say_iam(lone, *conn_out, 1, THERE);
    lone_answer(lone, *conn_out, 1, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
}

static struct lone *joined(weir_peer *peer_out, uint64_t *conn_out) {
    struct lone *lone = lone_open(NULL);
    join(lone, peer_out, conn_out);
    return lone;
}

/* ---- a break that is told ---- */

/* The events so far, a letter each: Up, Degraded, Recovered, Gone. */
static const char *told(struct lone *lone) {
    static char letters[EVENTS_KEPT + 1];
    weir_event event;
    size_t count = 0;
    while (weir_event_take(lone->engine, &event) == WEIR_OK) {
        assert_in_range(event.type, WEIR_EVENT_UP, WEIR_EVENT_GONE);
        if (event.type == WEIR_EVENT_DEGRADED)
            assert_true(event.error == WEIR_EDEVICE || event.error == WEIR_EUNKNOWN);
        letters[count++] = "?UDRG"[event.type];
    }
    letters[count] = '\0';
    return letters;
}

static void settle(struct lone *lone, uint64_t conn, uint64_t epoch) {
    struct wire_message message = {.type = WIRE_SETTLE, .epoch = epoch};
    lone_say(lone, conn, 1, &message);
}

/* The engine's own QP shows it: what is posted fails. */
static void breaks_here(struct lone *lone, weir_peer peer) {
    lone->fail_all = WEIR_CQE_FLUSHED;
    lone_submit_notification(lone, peer);
    lone_run(lone);
    lone->fail_all = 0;
    lone->poison = UINT32_MAX;
}

static void test_S9_a_break_by_the_others_word_is_told(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        settle(lone, conn, epoch);
        assert_string_equal(told(lone), "D");
        settle(lone, conn, epoch); /* it is repeated */
        lone_pass(lone, 50 * MS);
        assert_string_equal(told(lone), "");
        lone_answer(lone, conn, 1, epoch + 1);
        lone_pass(lone, 50 * MS);
        assert_string_equal(told(lone), "R");
    }
    weir_qp_info info = WEIR_QP_INFO_INIT;
    assert_int_equal(weir_qp_query(lone->engine, peer, 0, &info), WEIR_OK);
    assert_int_equal(info.recoveries, 3);
    assert_int_equal(lone->engine->stats.sessions_failed, 3);
    lone_close(lone);
}

/* The other side says it with its next session: make before break. */
static void test_S9_a_session_that_another_replaces_is_told(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_up(lone, conn, 1, 2);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "DR");
    settle(lone, conn, 1); /* and what it says of the one before is old */
    assert_string_equal(told(lone), "");
    lone_close(lone);
}

static void test_S9_a_break_that_both_find_is_told_once(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    breaks_here(lone, peer);
    settle(lone, conn, 1);
    assert_string_equal(told(lone), "D");
    lone_answer(lone, conn, 1, 2);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "R");
    settle(lone, conn, 2);
    breaks_here(lone, peer); /* there is no session that could break */
    assert_string_equal(told(lone), "D");
    lone_answer(lone, conn, 1, 3);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "R");
    lone_close(lone);
}

/* One that leaves, or is put out, has broken nothing. */
static void test_S9_the_end_of_a_peer_is_no_break(void **state) {
    struct wire_message bye = {.type = WIRE_BYE};
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_say(lone, conn, 1, &bye);
    assert_string_equal(told(lone), "G");
    assert_int_equal(lone->engine->stats.sessions_failed, 0);
    lone_close(lone);
}

/* It said BYE, and took its QPs down then. The engine finds these first, and looks at the control
 * channel before it says anything of a break: */
enum way { BY_COMPLETION, BY_EVENT, BY_SUBMIT, WAYS };

static int refuse_all(struct lone *lone, uint32_t *count_io) {
    (void)lone;
    *count_io = 0;
    return WEIR_ECONNECT;
}

/* Nothing is heard meanwhile. */
static void find_break(struct lone *lone, weir_peer peer, enum way way) {
    if (way == BY_COMPLETION)
        lone->fail_all = WEIR_CQE_FLUSHED;
    if (way == BY_SUBMIT)
        lone->refuse = refuse_all;
    lone_submit_notification(lone, peer);
    if (way == BY_EVENT)
        lone->news[lone->qp_count - 1] = NEWS_DUE;
    lone->fail_all = 0;
    lone->refuse = NULL;
    lone->poison = UINT32_MAX;
}

static void test_S9_a_peer_that_leaves_broke_nothing(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    for (enum way way = 0; way < WAYS; way++) {
        for (int probed = 0; probed < 2; probed++) {
            struct lone *lone = joined(&peer, &conn);
            lone->batch = true;
            if (probed)
                lone_say_ready(lone, conn, 1, 1, lone->engine->epoch_counter);
            lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
            find_break(lone, peer, way);
            if (way == BY_SUBMIT) /* in that call already: an application may make no other */
                assert_string_equal(told(lone), "G");
            lone_run(lone);
            assert_string_equal(told(lone), way == BY_SUBMIT ? "" : "G");
            assert_int_equal(lone->engine->stats.sessions_failed, 0);
            lone_close(lone);
        }
    }
}

/* Two leave, and both breaks are found in one look: neither is told while the other's BYE is. */
static void test_S9_several_peers_that_leave_broke_nothing(void **state) {
    weir_peer peers[2];
    uint64_t conns[2];

    (void)state;
    struct lone *lone = lone_open(NULL);
    for (uint32_t i = 0; i < 2; i++)
        peers[i] = lone_meet(lone, i + 1, i == 0 ? "10.0.0.9:9" : "10.0.0.9:8", &conns[i]);
    lone->batch = true;
    for (uint32_t i = 0; i < 2; i++)
        lone_say(lone, conns[i], i + 1, &(struct wire_message){.type = WIRE_BYE});
    for (uint32_t i = 0; i < 2; i++)
        find_break(lone, peers[i], BY_COMPLETION);
    lone_run(lone);
    assert_string_equal(told(lone), "GG");
    assert_int_equal(lone->engine->stats.sessions_failed, 0);
    lone_close(lone);
}

/* Many peers die while nobody looks: of each the device knows, and one look hears of all. */
static void test_S9_many_peers_that_died_are_gone_at_once(void **state) {
    enum { DEAD = 24 };
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char address[32], gone[DEAD + 1] = "";
    weir_peer peers[DEAD];
    uint64_t conn;

    (void)state;
    options.transfers_max = options.segments_max = options.notifications_max = 64;
    options.peers_max = DEAD + 8;
    options.memories_max = options.remotes_max = 4;
    options.sq_depth = 4;
    options.recv_credits = 2;
    struct lone *lone = lone_open(&options);
    for (uint32_t i = 0; i < DEAD; i++) {
        snprintf(address, sizeof(address), "10.0.0.%u:9", i + 9);
        peers[i] = lone_meet(lone, i + 1, address, &conn);
        lone_pass(lone, 20 * MS);
    }
    lone->batch = true;
    for (uint32_t i = 0; i < DEAD; i++) {
        lone->news[i] = NEWS_DEATH;
        lone->fail_all = WEIR_CQE_FLUSHED;
        lone_submit_notification(lone, peers[i]);
        gone[i] = 'G';
    }
    weir_engine_progress(lone->engine);
    assert_string_equal(told(lone), gone);
    lone->fail_all = 0;
    lone_close(lone);
}

/* A break is told in the call that finds it when nobody says why; and when what is said then brings
 * the next session up, it is told before that. */
static void test_S9_a_break_is_told_at_once(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    find_break(lone, peer, BY_SUBMIT);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_DEGRADED);
    lone_close(lone);

    lone = joined(&peer, &conn);
    lone_say_hello(lone, conn, 1, 2);
    const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    lone->batch = true;
    lone_say_ready(lone, conn, 1, 2, ack->epoch);
    find_break(lone, peer, BY_COMPLETION);
    lone_run(lone);
    assert_string_equal(told(lone), "DR");
    assert_int_equal(lone->engine->stats.sessions_failed, 1);
    lone_close(lone);
}

/* A break that ends in the end of the peer: the next session is a first one again. */
static void test_S9_a_degraded_peer_that_goes(void **state) {
    struct wire_message bye = {.type = WIRE_BYE};
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    settle(lone, conn, 1);
    lone_say(lone, conn, 1, &bye);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "DG");
    weir_peer_connect(lone->engine, peer);
    lone_run(lone);
    conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 2, THERE);
    lone_run(lone);
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    lone_close(lone);
}

/* GONE is told once, also to who had asked for a session meanwhile; whoever asks again is told
 * again. */
static void test_S9_gone_is_told_once(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    settle(lone, conn, 1);
    assert_string_equal(told(lone), "D");
    weir_peer_connect(lone->engine, peer);
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 5 * SECOND);
    assert_string_equal(told(lone), "G");
    weir_peer_connect(lone->engine, peer);
    lone_pass(lone, 5 * SECOND);
    assert_string_equal(told(lone), "G");
    conn = lone_visit(lone);
    lone_say_who(lone, conn, 1, THERE);
    lone_up(lone, conn, 1, 2);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "U");
    lone_cut(lone, conn, WEIR_ECONNECT);
    lone_pass(lone, 5 * SECOND);
    assert_string_equal(told(lone), "G"); /* and it goes again */
    lone_close(lone);
}

/* No session comes up in time, and the peer is there all the same: that is GONE as well, and the
 * next session a first one. */
static void test_S9_up_follows_gone(void **state) {
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    settle(lone, conn, 1);
    weir_peer_connect(lone->engine, peer);
    lone_pass(lone, 5 * SECOND);
    assert_string_equal(told(lone), "DG");
    lone_up(lone, conn, 1, 2);
    lone_pass(lone, 50 * MS);
    assert_string_equal(told(lone), "U");
    settle(lone, conn, 2);
    assert_string_equal(told(lone), "D");
    lone_close(lone);
}

/* ---- what is waited for meanwhile ---- */

/* A transfer that waited for slots when its session broke waits for the next one. */
static void test_S9_what_was_not_posted_waits_for_a_connection(void **state) {
    enum { COUNT = 20 };
    static uint8_t bytes[64];
    weir_transfer transfers[COUNT];
    weir_memory local;
    weir_remote remote;
    weir_peer peer;
    uint64_t conn;

    (void)state;
    struct lone *lone = joined(&peer, &conn);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &local, &remote);
    lone->executes = true;
    lone->slow_bytes = sizeof(bytes);
    for (int i = 0; i < COUNT; i++) {
        weir_segment one = {.local = local, .remote = remote, .length = sizeof(bytes)};
        assert_int_equal(weir_write(lone->engine, peer, &one, 1, NULL, &transfers[i]), WEIR_OK);
        assert_int_equal(weir_transfer_waiting_for(lone->engine, transfers[i]),
                         i < 15 ? WEIR_WAITING_COMPLETIONS : WEIR_WAITING_SLOTS);
    }
    lone->no_destroy = true;
    settle(lone, conn, 1);
    for (int i = 15; i < COUNT; i++)
        assert_int_equal(weir_transfer_waiting_for(lone->engine, transfers[i]),
                         WEIR_WAITING_CONNECTION);
    lone->no_destroy = false;
    lone_close(lone);
}

/* ---- room that others make ---- */

static weir_transfer room_of;

static void release_one(struct lone *lone) {
    assert_int_equal(weir_transfer_release(lone->engine, room_of), WEIR_OK);
}

static void take_one(struct lone *lone) {
    weir_completion completion;
    assert_int_equal(weir_completion_take(lone->engine, &completion), WEIR_OK);
}

static int submit(struct lone *lone, weir_peer peer, const weir_segment *one, uint32_t flags,
                  weir_transfer *transfer_out) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = flags;
    return weir_write(lone->engine, peer, one, 1, &options, transfer_out);
}

/* Submits and finishes, until there is no room; the last of them. */
static weir_transfer fill(struct lone *lone, weir_peer peer, const weir_segment *one,
                          uint32_t flags) {
    weir_transfer transfer = {0}, last;
    do {
        last = transfer;
        lone_run(lone);
    } while (submit(lone, peer, one, flags, &transfer) == WEIR_OK);
    return last;
}

/* A submitter asleep is woken by the thread that makes room, without a step of the engine, and has
 * slept once then, and no longer. A thread that makes room for nobody wakes nobody. */
static void room_wakes(uint32_t flags, void (*make_room)(struct lone *lone)) {
    static uint8_t bytes[64];
    weir_segment one = {.length = sizeof(bytes)};
    weir_transfer transfer;
    weir_peer peer;
    uint64_t conn;

    struct lone *lone = joined(&peer, &conn);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &one.local, &one.remote);
    lone->poison = UINT32_MAX;
    room_of = fill(lone, peer, &one, flags);
    make_room(lone);
    assert_int_equal(lone->wakes, 0);
    room_of = fill(lone, peer, &one, flags);
    lone->on_sleep = make_room;
    uint64_t begin = lone->now_ns;
    assert_int_equal(submit(lone, peer, &one, flags | WEIR_TRANSFER_BLOCK, &transfer), WEIR_OK);
    assert_int_equal(lone->sleeps, 1);
    assert_int_equal(lone->wakes, 1);
    assert_int_equal(lone->now_ns, begin);
    lone->on_sleep = NULL;
    lone_run(lone);
    lone_close(lone);
}

static void test_S5_a_released_handle_wakes_who_waits_for_room(void **state) {
    (void)state;
    room_wakes(0, release_one);
}

static void test_S5_a_taken_completion_wakes_who_waits_for_room(void **state) {
    (void)state;
    room_wakes(WEIR_TRANSFER_QUEUE, take_one);
}

/* ---- receives that are refused ---- */

enum kind { SHARED, OWN, KINDS };

/* A session, over a device with a shared receive queue or without. */
static struct lone *receiving(enum kind kind) {
    weir_peer peer;
    uint64_t conn;
    struct lone *lone = kind == SHARED ? lone_open(NULL) : lone_open_own(NULL);
    join(lone, &peer, &conn);
    assert_int_equal(lone->engine->options.recv_credits, CREDITS);
    lone->poison = UINT32_MAX; /* what the engine sends is done when it is polled */
    return lone;
}

static uint32_t receives_posted_to(const struct lone *lone) {
    uint32_t count = 0;
    for (uint32_t i = lone->recv_first; i != lone->recv_last; i++)
        count += lone->recvs[i % LONE_RECVS].buffer != NULL;
    return count;
}

/* A notification comes, and the application takes it; false: no receive is there. */
static bool comes(struct lone *lone, uint32_t qp, uint64_t number) {
    struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 1, .number = number};
    weir_notification notification;
    if (!lone_message(lone, qp, &data))
        return false;
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
    return true;
}

/* Words come that were heard before, under the number of the first notification, which is there:
 * they count for their credit alone. False: no receive is there. */
static bool words_come(struct lone *lone, uint32_t qp) {
    struct wire_data data = {.kind = WIRE_WORDS, .parts = 1, .number = 1};
    return lone_message(lone, qp, &data);
}

/* Every receive is used up before the device takes others: credits stay here meanwhile. */
static void test_M2_refused_receives_are_posted_later(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        struct lone *lone = receiving(kind);
        struct wire_data credit = {.kind = WIRE_CREDIT};
        const struct qp *qp = &lone->engine->qps[0];
        lone->recv_error = kind == SHARED ? WEIR_EAGAIN : WEIR_EDEVICE;
        for (uint64_t number = 1; number <= CREDITS; number++)
            assert_true(comes(lone, 0, number));
        for (int i = 0; i < CREDIT_WORDS_WINDOW; i++)
            assert_true(words_come(lone, 0));
        for (int i = 0; i < CREDIT_RESERVE; i++)
            assert_true(lone_message(lone, 0, &credit));
        assert_int_equal(receives_posted_to(lone), 0);
        lone_pass(lone, 500 * MS);
        assert_int_equal(qp->credit.taken[CREDIT_NOTES], 0);
        assert_int_equal(qp->credit.taken[CREDIT_WORDS], 0);
        lone->recv_error = 0;
        lone_pass(lone, 110 * MS); /* the longest pause is 100 ms */
        assert_int_equal(receives_posted_to(lone), RECEIVES);
        assert_int_equal(qp->credit.taken[CREDIT_NOTES], CREDITS);
        assert_int_equal(qp->credit.told[CREDIT_NOTES], CREDITS);
        assert_int_equal(qp->credit.taken[CREDIT_WORDS], CREDIT_WORDS_WINDOW);
        assert_int_equal(qp->credit.told[CREDIT_WORDS], CREDIT_WORDS_WINDOW);
        for (uint64_t number = CREDITS + 1; number <= 3 * CREDITS; number++)
            assert_true(comes(lone, 0, number));
        assert_int_equal(lone->engine->stats.sessions_failed, 0);
        assert_int_equal(timers_next(&lone->engine->timers), UINT64_MAX);
        lone_close(lone);
    }
}

/* As many credits go back as receives were posted. */
static void test_M2_a_credit_for_each_receive(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        struct lone *lone = receiving(kind);
        const struct qp *qp = &lone->engine->qps[0];
        lone->recv_error = WEIR_EAGAIN;
        assert_true(comes(lone, 0, 1) && comes(lone, 0, 2));
        assert_int_equal(qp->credit.taken[CREDIT_NOTES], 0);
        lone->recv_error = 0;
        assert_true(comes(lone, 0, 3)); /* a shared queue gets the others, too */
        assert_int_equal(qp->credit.taken[CREDIT_NOTES], kind == SHARED ? 3 : 1);
        lone_pass(lone, 10 * MS);
        assert_int_equal(qp->credit.taken[CREDIT_NOTES], 3);
        assert_int_equal(receives_posted_to(lone), RECEIVES);
        lone_close(lone);
    }
}

static void test_M2_who_is_refused_does_not_spin(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        struct lone *lone = receiving(kind);
        lone->recv_error = WEIR_EAGAIN;
        for (uint64_t number = 1; number <= CREDITS; number++)
            assert_true(comes(lone, 0, number));
        uint32_t before = lone->recv_asked;
        lone_pass(lone, 900 * MS);
        /* After 1, 2, 4 ... 64 ms and then each 100 ms, 16 times at most. */
        assert_in_range(lone->recv_asked - before, 10, 16 * (7 + 9));
        lone_close(lone);
    }
}

static void test_M2_refused_for_good_ends_the_session(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        struct lone *lone = receiving(kind);
        lone->recv_error = WEIR_EINVAL;
        assert_true(comes(lone, 0, 1));
        lone_pass(lone, 2 * MS);
        assert_int_equal(lone->engine->stats.sessions_failed, 1);
        assert_string_equal(told(lone), "DG"); /* there will be no other */
        lone_close(lone);
    }
}

/* connect_timeout_ns is a second here. */
static void test_M2_refused_for_too_long_ends_the_session(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        struct lone *lone = receiving(kind);
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, 2, "");
        lone_up(lone, conn, 2, 1);
        assert_string_equal(told(lone), "U");
        lone->recv_error = WEIR_EAGAIN;
        assert_true(comes(lone, 0, 1));
        lone_pass(lone, 900 * MS);
        assert_int_equal(lone->engine->stats.sessions_failed, 0);
        lone_pass(lone, 250 * MS);
        assert_int_equal(lone->engine->stats.sessions_failed, 1);
        assert_true(lone->failed[0] && !lone->failed[1]); /* whom nothing was refused */
        assert_true(comes(lone, 1, 1));
        lone_close(lone);
    }
}

/* A device that refuses now and then is hardly noticed. */
static void test_M2_a_device_that_refuses_every_third(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        weir_peer peer;
        uint64_t conn;
        struct lone *lone = kind == SHARED ? lone_open(NULL) : lone_open_own(NULL);
        lone->recv_error = WEIR_EDEVICE;
        lone->recv_error_of = 3;
        join(lone, &peer, &conn);
        lone->poison = UINT32_MAX;
        for (uint64_t number = 1; number <= 20 * CREDITS; number++) {
            assert_true(comes(lone, 0, number));
            lone_pass(lone, 2 * MS);
            assert_in_range(receives_posted_to(lone), RECEIVES - 2, RECEIVES);
        }
        assert_int_equal(lone->engine->stats.sessions_failed, 0);
        lone_close(lone);
    }
}

/* No session comes up without its receives; who wants one waits for that as for QPs. */
static void test_M2_refused_at_first(void **state) {
    (void)state;
    for (enum kind kind = SHARED; kind < KINDS; kind++) {
        weir_peer peer;
        struct lone *lone = kind == SHARED ? lone_open(NULL) : lone_open_own(NULL);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &peer), WEIR_OK);
        lone->recv_error = WEIR_EDEVICE;
        weir_transfer transfer = lone_submit_notification(lone, peer);
        lone_run(lone);
        uint64_t conn = lone_dialled(lone, THERE);
        lone_say_iam(lone, conn, 1, THERE);
        lone_pass(lone, 500 * MS);
        assert_int_equal(lone_count(lone, conn, WIRE_HELLO), 0);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
        lone->recv_error = 0;
        lone->poison = UINT32_MAX;
        lone_pass(lone, 110 * MS);
        lone_answer(lone, conn, 1, 1);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        lone_close(lone);
    }
}

static bool is_up(const struct qp *qp) {
    return qp->qp != NULL && qp->connected && qp->drain.state == DRAIN_IDLE;
}

/* The messages that the peers may still send, and a receive for each; messages in between are
 * nobody's. */
static uint32_t may_send(const struct lone *lone) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < lone->engine->qps_used; i++) {
        const struct qp *qp = &lone->engine->qps[i];
        for (int c = 0; is_up(qp) && c < CREDIT_CLASSES; c++)
            count += (uint32_t)qp->credit.window_local[c] -
                     credit_between(qp->credit.arrived[c], qp->credit.taken[c]);
    }
    assert_in_range(count, 0, receives_posted_to(lone));
    assert_null(engine_verify(lone->engine));
    return count;
}

/* The peers have not heard yet that so many of those may be sent. */
static uint32_t untold(const struct lone *lone) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < lone->engine->qps_used; i++) {
        const struct qp *qp = &lone->engine->qps[i];
        for (int c = 0; is_up(qp) && c < CREDIT_CLASSES; c++)
            count += credit_between(qp->credit.taken[c], qp->credit.told[c]);
    }
    return count;
}

static bool may_come(const struct credit *credit, enum credit_class class) {
    return credit_between(credit->arrived[class], credit->told[class]) <
           credit->window_local[class];
}

/* As many messages on a QP as its peer has credits for, `most` of them, of classes in turns. */
static uint32_t comes_all(struct lone *lone, uint32_t qp, uint32_t most) {
    const struct credit *credit = &lone->engine->qps[qp].credit;
    uint32_t count = 0;
    for (; count < most; count++) {
        const uint32_t *arrived = credit->arrived;
        bool note = may_come(credit, CREDIT_NOTES);
        bool word = may_come(credit, CREDIT_WORDS) && arrived[CREDIT_NOTES] > 0;
        if (!note && !word)
            break;
        if (note && (!word || arrived[CREDIT_NOTES] <= arrived[CREDIT_WORDS]))
            assert_true(comes(lone, qp, arrived[CREDIT_NOTES] + 1));
        else
            assert_true(words_come(lone, qp));
        may_send(lone);
    }
    return count;
}

static struct lone *receiving_from(uint32_t peers) {
    struct lone *lone = receiving(SHARED);
    for (uint32_t n = 2; n <= peers; n++) {
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, n, "");
        lone_up(lone, conn, n, 1);
    }
    assert_int_equal(may_send(lone), peers * MESSAGES);
    return lone;
}

/* The session that is given up cannot be destroyed: what its QP brought to the shared queue is
 * there for the other, but no more than that, however long the device has refused. */
static void test_M2_credits_after_a_session_was_given_up(void **state) {
    (void)state;
    struct lone *lone = receiving_from(2);
    lone->no_destroy = true;
    lone->recv_error = WEIR_EAGAIN;
    assert_true(comes(lone, 0, 1));
    lone_pass(lone, 1150 * MS);
    assert_true(lone->failed[0] && !lone->failed[1]);
    assert_false(lone->engine->recv_short); /* the other sends */
    /* All but the few credits that are told with the next message only. */
    uint32_t came = comes_all(lone, 1, UINT32_MAX), few = untold(lone);
    assert_in_range(few, 0, CREDITS / 2 - 1 + CREDIT_WORDS_WINDOW / 2 - 1);
    assert_int_equal(came, MESSAGES + RECEIVES - 1 - few);
    assert_true(lone->engine->recv_short);
    assert_int_equal(may_send(lone), few);
    assert_int_equal(receives_posted_to(lone), CREDIT_RESERVE + few);
    lone->no_destroy = false;
    lone->recv_error = 0;
    lone_pass(lone, 110 * MS);
    assert_true(receives_posted_to(lone) >= RECEIVES);
    assert_false(lone->engine->recv_short || lone->failed[1]);
    assert_int_equal(lone->engine->lacks[1].credits[CREDIT_NOTES], 0);
    assert_int_equal(lone->engine->lacks[1].credits[CREDIT_WORDS], 0);
    lone_close(lone);
}

/* Receives of credit messages alone are missing: nobody's credits are kept for those, but they
 * are known to be somebody's. */
static void test_M2_receives_of_credit_messages_are_missing(void **state) {
    (void)state;
    struct wire_data credit = {.kind = WIRE_CREDIT};
    struct lone *lone = receiving_from(3);
    lone->recv_error = WEIR_EAGAIN;
    assert_true(lone_message(lone, 1, &credit) && lone_message(lone, 1, &credit));
    lone_pass(lone, 900 * MS);
    assert_true(lone->engine->recv_short);
    lone_pass(lone, 250 * MS);
    assert_true(!lone->failed[0] && lone->failed[1] && !lone->failed[2]);
    assert_false(lone->engine->recv_short);
    while (comes_all(lone, 0, 1) + comes_all(lone, 2, 1) > 0)
        ;
    assert_true(lone->engine->recv_short);
    assert_int_equal(may_send(lone), untold(lone));
    lone_pass(lone, 900 * MS); /* and they are given their time as well */
    assert_true(!lone->failed[0] && !lone->failed[2]);
    lone_pass(lone, 250 * MS);
    assert_true(lone->failed[0] && lone->failed[2]);
    lone_close(lone);
}

static uint32_t below(uint64_t *seed, uint32_t limit) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 33) % limit;
}

/* Peers that send what they may, and credit messages within the reserve, over a device that
 * refuses for a while, short or long, and keeps QPs that are to go. Returns how many sessions
 * ended. */
static uint32_t refusing_at_random(uint64_t seed) {
    enum { PEERS = 4, STEPS = 400 };
    struct wire_data credit = {.kind = WIRE_CREDIT};
    uint32_t reserve[PEERS] = {0};
    uint32_t ended = 0;
    struct lone *lone = receiving_from(PEERS);
    for (int step = 0; step < STEPS; step++) {
        uint32_t qp = below(&seed, PEERS);
        if (!lone->engine->recv_short)
            memset(reserve, 0, sizeof(reserve));
        if (below(&seed, 20) == 0)
            lone->recv_error = below(&seed, 3) > 0 ? WEIR_EAGAIN : 0;
        if (below(&seed, 20) == 0)
            lone->recv_error_of = below(&seed, 4);
        if (below(&seed, 20) == 0)
            lone->no_destroy = below(&seed, 2) > 0;
        if (below(&seed, 4) == 0)
            lone_pass(lone, (uint64_t)below(&seed, 200) * MS);
        if (!lone->failed[qp] && below(&seed, 5) > 0)
            comes_all(lone, qp, below(&seed, MESSAGES));
        else if (!lone->failed[qp] && reserve[qp]++ < CREDIT_RESERVE)
            assert_true(lone_message(lone, qp, &credit));
        may_send(lone);
    }
    for (int i = 0; i < PEERS; i++)
        ended += lone->failed[i];
    lone->no_destroy = false;
    lone->recv_error = 0;
    lone_pass(lone, 110 * MS);
    assert_false(lone->engine->recv_short);
    may_send(lone);
    lone_close(lone);
    return ended;
}

static void test_M2_no_credit_without_a_receive(void **state) {
    uint32_t ended = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        ended += refusing_at_random(seed);
    assert_in_range(ended, 20, 220); /* of 240 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S9_a_break_by_the_others_word_is_told),
        cmocka_unit_test(test_S9_a_session_that_another_replaces_is_told),
        cmocka_unit_test(test_S9_a_break_that_both_find_is_told_once),
        cmocka_unit_test(test_S9_the_end_of_a_peer_is_no_break),
        cmocka_unit_test(test_S9_a_peer_that_leaves_broke_nothing),
        cmocka_unit_test(test_S9_several_peers_that_leave_broke_nothing),
        cmocka_unit_test(test_S9_many_peers_that_died_are_gone_at_once),
        cmocka_unit_test(test_S9_a_break_is_told_at_once),
        cmocka_unit_test(test_S9_a_degraded_peer_that_goes),
        cmocka_unit_test(test_S9_gone_is_told_once),
        cmocka_unit_test(test_S9_up_follows_gone),
        cmocka_unit_test(test_S9_what_was_not_posted_waits_for_a_connection),
        cmocka_unit_test(test_S5_a_released_handle_wakes_who_waits_for_room),
        cmocka_unit_test(test_S5_a_taken_completion_wakes_who_waits_for_room),
        cmocka_unit_test(test_M2_refused_receives_are_posted_later),
        cmocka_unit_test(test_M2_a_credit_for_each_receive),
        cmocka_unit_test(test_M2_who_is_refused_does_not_spin),
        cmocka_unit_test(test_M2_refused_for_good_ends_the_session),
        cmocka_unit_test(test_M2_refused_for_too_long_ends_the_session),
        cmocka_unit_test(test_M2_a_device_that_refuses_every_third),
        cmocka_unit_test(test_M2_refused_at_first),
        cmocka_unit_test(test_M2_credits_after_a_session_was_given_up),
        cmocka_unit_test(test_M2_receives_of_credit_messages_are_missing),
        cmocka_unit_test(test_M2_no_credit_without_a_receive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
