/* SPDX-License-Identifier: Apache-2.0 */
/* test_watchdog_away.c: an application that submits, and makes no progress from then on (M10): it
 * is told that it was itself, whether all has completed or not by the time that it looks again, and
 * of an absence before the submit it is not. The engine's clock, its peer and its device are the
 * test's: see lone_engine.h. */
#include "lone_engine.h"

#define THERE "10.0.0.9:9"
#define WATCH SECOND
/* The coarse clock may be so far behind. */
#define TICK (10 * MS)

struct away {
    struct lone *lone;
    weir_peer peer;
    weir_memory local;
    weir_remote remote;
};

/* A write is posted at once, and a message to an inbox that is not there waits. */
enum work { POSTED, WAITS, WORKS };

static uint8_t bytes[4096];

static void begin(struct away *away) {
    weir_engine_options options = lone_limits();
    options.watchdog_ns = WATCH;
    struct lone *lone = lone_open(&options);
    *away = (struct away){.lone = lone};
    away->peer = lone_meet(lone, 1, THERE, NULL);
    lone_memories(lone, away->peer, 1, bytes, sizeof(bytes), &away->local, &away->remote);
    lone->executes = true;
}

static weir_transfer submit(struct away *away, enum work work) {
    weir_segment segment = {away->local, away->remote, 0, 0, 64};
    weir_part part = {.base = bytes, .length = 100};
    weir_transfer transfer;
    int rc = work == POSTED
                 ? weir_write(away->lone->engine, away->peer, &segment, 1, NULL, &transfer)
                 : weir_message_send(away->lone->engine, away->peer, 7, &part, 1, NULL, &transfer);
    assert_int_equal(rc, WEIR_OK);
    return transfer;
}

static void no_event(struct lone *lone) {
    weir_event event;
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
}

static weir_stall_info info_of(struct away *away) {
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    assert_int_equal(weir_stall_query(away->lone->engine, away->peer, &info), WEIR_OK);
    return info;
}

/* The first look behind the submit comes that late. away_ns: from the submit on. */
static void assert_told(struct away *away, uint64_t away_ns) {
    weir_event event = lone_event(away->lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_HERE);
    if (info_of(away).waiting > 0) /* or all is over */
        assert_in_range(info_of(away).absent_ns, away_ns - TICK, away_ns);
}

static void end(struct away *away) {
    lone_close(away->lone);
}

/* before: something was outstanding to another peer, so that there were looks already; or to this
 * one, and has ended. */
enum before { NOTHING, OTHERS, ENDED, BEFORE };

static void prepare(struct away *away, enum before before) {
    struct lone *lone = away->lone;
    if (before == OTHERS) {
        weir_peer other = lone_meet(lone, 2, "10.0.0.8:8", NULL);
        weir_part part = {.base = bytes, .length = 100};
        weir_transfer transfer;
        assert_int_equal(weir_message_send(lone->engine, other, 7, &part, 1, NULL, &transfer),
                         WEIR_OK);
        lone_pass(lone, WATCH / 4);
        assert_int_equal(weir_transfer_cancel(lone->engine, transfer), WEIR_OK);
    }
    if (before == ENDED) {
        lone->slow_bytes = 64;
        submit(away, POSTED);
        lone_pass(lone, WATCH / 4); /* a look sees it */
        lone->slow_bytes = 0;
        lone_run(lone);
        lone_pass(lone, WATCH / 100);
    }
}

static void test_M10_an_absence_right_behind_a_submit(void **state) {
    struct away away;

    (void)state;
    for (enum before before = 0; before < BEFORE; before++) {
        for (enum work work = 0; work < WORKS; work++) {
            for (int looks = 0; looks < 2; looks++) {
                begin(&away);
                struct lone *lone = away.lone;
                prepare(&away, before);
                lone->slow_bytes = 64; /* it completes no more */
                submit(&away, work);
                if (looks)
                    lone_pass(lone, WATCH / 16);
                lone->now_ns += 3 * WATCH;
                weir_engine_progress(lone->engine);
                assert_told(&away, 3 * WATCH);
                no_event(lone);
                assert_in_range(info_of(&away).still_ns, 3 * WATCH - TICK, 4 * WATCH);
                end(&away);
            }
        }
    }
}

/* It completed meanwhile, or its deadline passed. */
static void test_M10_an_absence_that_all_ended_in(void **state) {
    struct away away;

    (void)state;
    for (enum before before = 0; before < BEFORE; before++) {
        begin(&away);
        struct lone *lone = away.lone;
        prepare(&away, before);
        weir_transfer transfer = submit(&away, POSTED);
        lone->now_ns += 3 * WATCH;
        weir_engine_progress(lone->engine);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        assert_told(&away, 3 * WATCH);
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
        no_event(lone);
        end(&away);
        begin(&away);
        lone = away.lone;
        prepare(&away, before);
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        weir_part part = {.base = bytes, .length = 100};
        options.timeout_ns = WATCH;
        assert_int_equal(
            weir_message_send(lone->engine, away.peer, 7, &part, 1, &options, &transfer), WEIR_OK);
        lone->now_ns += 3 * WATCH;
        weir_engine_progress(lone->engine);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_ETIMEDOUT);
        assert_told(&away, 3 * WATCH);
        lone_pass(lone, WATCH / 4);
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
        no_event(lone);
        end(&away);
    }
}

/* A part of an absence is enough, as it is for work that a look has seen. */
static void test_M10_most_of_a_stall_is_an_absence(void **state) {
    struct away away;

    (void)state;
    begin(&away);
    struct lone *lone = away.lone;
    lone->slow_bytes = 64;
    submit(&away, POSTED);
    lone->now_ns += WATCH * 3 / 4;
    lone_run(lone);
    no_event(lone);
    lone_pass(lone, WATCH / 4 - 2 * MS);
    no_event(lone); /* it is never early */
    lone_pass(lone, WATCH / 4);
    assert_told(&away, WATCH * 3 / 4);
    end(&away);
}

/* The absence was before the submit, or between the end of all work and the next look. */
static void test_M10_an_absence_beside_work_is_no_stall(void **state) {
    struct away away;

    (void)state;
    for (enum before before = 0; before < BEFORE; before++) {
        for (enum work work = 0; work < WORKS; work++) {
            begin(&away);
            struct lone *lone = away.lone;
            prepare(&away, before);
            lone->now_ns += 3 * WATCH;
            lone->slow_bytes = 64;
            submit(&away, work);
            lone_run(lone);
            lone_pass(lone, WATCH - TICK);
            no_event(lone);
            end(&away);
        }
        begin(&away);
        struct lone *lone = away.lone;
        prepare(&away, before);
        submit(&away, POSTED);
        lone_run(lone); /* it ends in time, and no look was due */
        lone->now_ns += 3 * WATCH;
        lone_run(lone);
        no_event(lone);
        assert_int_equal(info_of(&away).stalls, 0);
        end(&away);
    }
}

/* The first run of a write completes before a look has seen it: the stillness begins no sooner. */
static void test_M10_what_completed_before_the_first_look(void **state) {
    struct away away;

    (void)state;
    for (uint64_t done_ns = 10 * MS; done_ns < WATCH / 4; done_ns += 50 * MS) {
        weir_segment segments[30];
        weir_transfer transfer;
        weir_event event;
        begin(&away);
        struct lone *lone = away.lone;
        for (int i = 0; i < 30; i++)
            segments[i] = (weir_segment){away.local, away.remote, 0, 0, i < 20 ? 128 : 64};
        lone->slow_bytes = 128;
        assert_int_equal(weir_write(lone->engine, away.peer, segments, 30, NULL, &transfer),
                         WEIR_OK);
        lone_pass(lone, done_ns);
        uint64_t before = info_of(&away).completed;
        lone->slow_bytes = 64;
        lone_run(lone);
        assert_true(info_of(&away).completed > before);
        uint64_t last_ns = lone->now_ns;
        while (weir_event_take(lone->engine, &event) != WEIR_OK)
            lone_pass(lone, MS);
        assert_int_equal(event.type, WEIR_EVENT_STALLED);
        assert_in_range(lone->now_ns - last_ns, WATCH, WATCH + WATCH / 4 + TICK);
        assert_in_range(info_of(&away).still_ns, WATCH, lone->now_ns - last_ns);
        end(&away);
    }
}

/* A stall lasts until nothing is outstanding any more, and not until the application is back. */
static void test_M10_an_absence_behind_a_stall_is_none_of_it(void **state) {
    struct away away;

    (void)state;
    begin(&away);
    struct lone *lone = away.lone;
    lone->slow_bytes = 64;
    submit(&away, POSTED);
    lone_pass(lone, WATCH + WATCH / 2);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_STALLED);
    lone->slow_bytes = 0;
    weir_engine_progress(lone->engine); /* it has ended, and no look was due */
    lone->now_ns += 10 * WATCH;
    lone_run(lone);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_RESUMED);
    assert_in_range(event.value, WATCH, 2 * WATCH);
    assert_in_range(info_of(&away).last_ns, WATCH, 2 * WATCH);
    no_event(lone);
    end(&away);
}

/* A peer asks how this engine is, which was away, and hears so, whatever the next step finds first.
 */
static void test_M10_an_answer_behind_an_absence_and_a_break(void **state) {
    struct away away;
    uint64_t other;

    (void)state;
    for (int breaks = 0; breaks < 2; breaks++) {
        begin(&away);
        struct lone *lone = away.lone;
        lone_meet(lone, 2, "10.0.0.9:8", &other);
        submit(&away, WAITS); /* something is waited for */
        lone_pass(lone, 10 * MS);
        lone->batch = true;
        lone->now_ns += 5 * SECOND;
        lone_say(lone, other, 2, &(struct wire_message){.type = WIRE_ASK, .epoch = 1});
        if (breaks == 1) {
            lone->executes = false;
            lone->fail_all = WEIR_CQE_FLUSHED;
            lone_submit_notification(lone, away.peer);
            lone->fail_all = 0;
        }
        weir_engine_progress(lone->engine);
        assert_int_equal(lone->engine->stats.sessions_failed, breaks);
        const struct wire_message *answer = lone_heard(lone, other, WIRE_STATE);
        assert_non_null(answer);
        assert_in_range(answer->state.away_ns, 5 * SECOND, 5 * SECOND + 10 * MS);
        end(&away);
    }
}

/* The peer is gone by the time that somebody looks: that is all that is told. */
static void test_M10_a_peer_that_left_meanwhile(void **state) {
    struct away away;

    (void)state;
    begin(&away);
    struct lone *lone = away.lone;
    lone->slow_bytes = 64;
    submit(&away, POSTED);
    lone->batch = true;
    lone_say(lone, 1, 1, &(struct wire_message){.type = WIRE_BYE});
    lone->now_ns += 3 * WATCH;
    lone_run(lone);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
    no_event(lone);
    end(&away);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M10_an_absence_right_behind_a_submit),
        cmocka_unit_test(test_M10_an_absence_that_all_ended_in),
        cmocka_unit_test(test_M10_most_of_a_stall_is_an_absence),
        cmocka_unit_test(test_M10_an_absence_beside_work_is_no_stall),
        cmocka_unit_test(test_M10_what_completed_before_the_first_look),
        cmocka_unit_test(test_M10_an_absence_behind_a_stall_is_none_of_it),
        cmocka_unit_test(test_M10_an_answer_behind_an_absence_and_a_break),
        cmocka_unit_test(test_M10_a_peer_that_left_meanwhile),
    };

    return cmocka_run_group_tests_name("an application that is away", tests, NULL, NULL);
}
