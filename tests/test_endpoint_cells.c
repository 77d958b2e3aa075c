/* SPDX-License-Identifier: Apache-2.0 */
/* test_endpoint_cells.c: every cell of the endpoint's table, one by one.
 *
 * Each state is reached anew, with a live session beside the attempt where that
 * can be, and gets each input that it can have. The answer is written as letters
 * in the order of the effects:
 *
 *   h HELLO   a HELLO_ACK   r READY   x REFUSE   s SETTLE   d SETTLED   b BYE
 *   C create  N connect     U up      R retire   F failed   G gone      T settled
 *
 * "" is: nothing, and the state stays. NULL is: cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "endpoint.h"

enum { MS = 1000000, OLD_REMOTE = 3, LIVE_REMOTE = 5, NEXT_REMOTE = 7, NEW_REMOTE = 9 };

static struct endpoint ep;
static struct rtt rtt;
static _Alignas(8) uint8_t papers[2][EP_PAPERS_BYTES(WEIR_QPS_MAX)];
static struct ep_pile pile;
static uint64_t epochs;
static struct wire_qp_set set;
static uint64_t now_ns;

static void settled_of(void *self, uint64_t epoch, struct wire_settled *out) {
    (void)self;
    (void)epoch;
    memset(out, 0, sizeof(*out));
}

/* One step, without answering what it asks. */
static const char *step(const struct ep_event *event) {
    static char letters[EP_EFFECTS_MAX + 1];
    struct ep_effect effects[EP_EFFECTS_MAX];
    uint32_t count = endpoint_step(&ep, event, now_ns, effects);

    for (uint32_t i = 0; i < count; i++) {
        static const char EFFECTS[] = {
            [EP_DO_SEND] = '?',   [EP_DO_CREATE] = 'C', [EP_DO_CONNECT] = 'N',
            [EP_DO_UP] = 'U',     [EP_DO_RETIRE] = 'R', [EP_DO_SETTLED] = 'T',
            [EP_DO_FAILED] = 'F', [EP_DO_GONE] = 'G',   [EP_DO_REFUSED] = 'D',
        };
        struct wire_message m;

        letters[i] = EFFECTS[effects[i].type];
        if (effects[i].type != EP_DO_SEND)
            continue;
        assert_int_equal(wire_decode(effects[i].data, effects[i].length, &m), WEIR_OK);
        letters[i] = "???harxsdb"[m.type];
    }
    letters[count] = '\0';
    assert_null(endpoint_verify(&ep));
    return letters;
}

static const char *say(enum wire_type type, uint64_t epoch, uint64_t echo, int reason) {
    struct wire_message m;
    const struct ep_event event = {.type = EP_EV_MESSAGE, .message = &m};

    memset(&m, 0, sizeof(m));
    m.type = type;
    m.epoch = epoch;
    m.echo = echo;
    m.reason = reason;
    memset(m.from, 'r', sizeof(m.from));
    memset(m.to, 'l', sizeof(m.to));
    if (type == WIRE_HELLO || type == WIRE_HELLO_ACK)
        m.qps = set;
    return step(&event);
}

static const char *tell(enum ep_event_type type, uint32_t session, int error) {
    const struct ep_event event = {.type = type, .session = session, .error = error, .local = &set};

    return step(&event);
}

static uint64_t next_epoch(void) {
    return ep.next == EP_SESSION_NONE ? epochs + 1 : ep.sessions[ep.next].epoch;
}

static uint64_t live_epoch(void) {
    return ep.live == EP_SESSION_NONE ? 1 : ep.sessions[ep.live].epoch;
}

/* The remote opens: to ANSWERING, ACCEPTING, CONFIRM or up. */
static void answer(uint64_t remote, enum ep_state until) {
    say(WIRE_HELLO, remote, 0, 0);
    if (until == EP_ANSWERING)
        return;
    tell(EP_EV_QPS_READY, ep.next, 0);
    if (until == EP_ACCEPTING)
        return;
    tell(EP_EV_CONNECTED, ep.next, 0);
    if (until != EP_CONFIRM)
        say(WIRE_READY, remote, next_epoch(), 0);
}

static void fresh(void) {
    struct ep_options options = {.epoch_counter = &epochs,
                                 .connect_timeout_ns = 1000 * MS,
                                 .retransmit_ns = 10 * MS,
                                 .rtt = &rtt,
                                 .pile = &pile,
                                 .settled = settled_of};

    memset(options.instance_local, 'l', WIRE_INSTANCE_SIZE);
    memset(options.instance_remote, 'r', WIRE_INSTANCE_SIZE);
    epochs = 0;
    now_ns = 0;
    pile = (struct ep_pile){.papers = papers, .count = 2, .qps = WEIR_QPS_MAX};
    rtt = (struct rtt){.measures = RTT_DOUBT};
    endpoint_init(&ep, &options);
}

enum old_end { BROKE_HERE, SETTLE_ASKED };

/* One session, in entry 0, is retired and still draining; then, beside a live
 * session if the state can have one, the attempt. */
static void arrive_after(enum ep_state state, enum old_end end) {
    fresh();
    answer(OLD_REMOTE, EP_NONE);
    if (end == SETTLE_ASKED)
        say(WIRE_SETTLE, OLD_REMOTE, 0, 0);
    else
        tell(EP_EV_BROKEN, ep.live, 0);
    /* Either way it wants a new session and is MAKING. */
    if (state == EP_NONE || state == EP_ANSWERING || state == EP_ACCEPTING || state == EP_CONFIRM ||
        state == EP_GONE) {
        tell(EP_EV_QPS_READY, ep.next, 0);
        say(WIRE_HELLO_ACK, LIVE_REMOTE, next_epoch(), 0);
        tell(EP_EV_CONNECTED, ep.next, 0);
    }
    if (state == EP_ANSWERING || state == EP_ACCEPTING || state == EP_CONFIRM)
        answer(NEXT_REMOTE, state);
    if (state == EP_OFFERED || state == EP_JOINING)
        tell(EP_EV_QPS_READY, ep.next, 0);
    if (state == EP_JOINING)
        say(WIRE_HELLO_ACK, NEXT_REMOTE, next_epoch(), 0);
    if (state == EP_GONE)
        tell(EP_EV_PEER_DEAD, 0, WEIR_EPEER);
    assert_int_equal(ep.state, state);
    assert_int_equal(ep.sessions[0].state, EP_SESSION_RETIRED);
}

static void arrive(enum ep_state state) {
    arrive_after(state, BROKE_HERE);
}

/* ---- inputs ------------------------------------------------------------ */

static const char *in_want(void) {
    return tell(EP_EV_WANT, 0, 0);
}
static const char *in_hello_new(void) {
    return say(WIRE_HELLO, NEW_REMOTE, 0, 0);
}
static const char *in_hello_next(void) {
    return say(WIRE_HELLO, NEXT_REMOTE, 0, 0);
}
static const char *in_hello_live(void) {
    return say(WIRE_HELLO, LIVE_REMOTE, 0, 0);
}
static const char *in_hello_old(void) {
    return say(WIRE_HELLO, OLD_REMOTE, 0, 0);
}
static const char *in_ack_new(void) {
    return say(WIRE_HELLO_ACK, NEW_REMOTE, next_epoch(), 0);
}
static const char *in_ack_next(void) {
    return say(WIRE_HELLO_ACK, NEXT_REMOTE, next_epoch(), 0);
}
static const char *in_ack_live(void) {
    return say(WIRE_HELLO_ACK, LIVE_REMOTE, live_epoch(), 0);
}
static const char *in_ack_spent(void) {
    return say(WIRE_HELLO_ACK, OLD_REMOTE, next_epoch(), 0);
}
static const char *in_ack_old(void) {
    return say(WIRE_HELLO_ACK, OLD_REMOTE, 1, 0);
}
static const char *in_ready_next(void) {
    return say(WIRE_READY, NEXT_REMOTE, next_epoch(), 0);
}
static const char *in_ready_live(void) {
    return say(WIRE_READY, LIVE_REMOTE, live_epoch(), 0);
}
static const char *in_ready_old(void) {
    return say(WIRE_READY, OLD_REMOTE, 1, 0);
}
static const char *in_refuse_stale(void) {
    return say(WIRE_REFUSE, 0, next_epoch(), WEIR_ESTALE);
}
static const char *in_refuse_final(void) {
    return say(WIRE_REFUSE, 0, next_epoch(), WEIR_EREFUSED);
}
static const char *in_refuse_later(void) {
    return say(WIRE_REFUSE, 0, next_epoch() | WIRE_ECHO_LATER, WEIR_EFULL);
}
static const char *in_refuse_old(void) {
    return say(WIRE_REFUSE, 0, 1, WEIR_EREFUSED);
}
static const char *in_settle(void) {
    return say(WIRE_SETTLE, NEXT_REMOTE, 0, 0);
}
static const char *in_settled(void) {
    return say(WIRE_SETTLED, 0, 1, 0);
}
static const char *in_bye(void) {
    return say(WIRE_BYE, 0, 0, 0);
}
static const char *in_alien(void) {
    return say(WIRE_IAM, 0, 0, 0);
}
static const char *in_qps_ready(void) {
    return tell(EP_EV_QPS_READY, ep.next, 0);
}
static const char *in_qps_failed(void) {
    return tell(EP_EV_QPS_FAILED, ep.next, WEIR_EDEVICE);
}
static const char *in_connected(void) {
    return tell(EP_EV_CONNECTED, ep.next, 0);
}
static const char *in_conn_failed(void) {
    return tell(EP_EV_CONNECT_FAILED, ep.next, WEIR_EDEVICE);
}
static const char *in_broken_live(void) {
    return tell(EP_EV_BROKEN, ep.live, 0);
}
static const char *in_broken_next(void) {
    return tell(EP_EV_BROKEN, ep.next, 0);
}
static const char *in_broken_old(void) {
    return tell(EP_EV_BROKEN, 0, 0);
}
static const char *in_heard_next(void) {
    return tell(EP_EV_HEARD, ep.next, 0);
}
static const char *in_heard_old(void) {
    return tell(EP_EV_HEARD, 0, 0);
}
static const char *in_drained(void) {
    return tell(EP_EV_DRAINED, 0, 0);
}
static const char *in_timer(void) {
    now_ns = 10 * MS;
    return tell(EP_EV_TIMER, 0, 0);
}
static const char *in_probe(void) {
    return tell(EP_EV_PROBE, 0, 0);
}
static const char *in_peer_dead(void) {
    return tell(EP_EV_PEER_DEAD, 0, WEIR_EPEER);
}
static const char *in_close(void) {
    return tell(EP_EV_CLOSE, 0, 0);
}

/* ---- what each does ---------------------------------------------------- */

struct row {
    const char *input; /* as endpoint_input_name says */
    const char *(*give)(void);
    const char *effects[EP_STATE_COUNT];
};

#define X NULL /* cannot be */

/* clang-format off */
static const struct row ROWS[] = {
    /*                                 NONE   MAKING ANSW.  OFFER. JOIN.  ACCEP. CONF.  GONE */
    {"WANT",         in_want,         {"",    "",    "",    "",    "",    "",    "",    "F"}},
    {"HELLO_NEW",    in_hello_new,    {"C",   "",    "",    "N",   "",    "",    "RRsC","" }},
    {"HELLO_NEXT",   in_hello_next,   {X,     X,     X,     X,     "",    "",    "a",   X  }},
    {"HELLO_LIVE",   in_hello_live,   {"a",   X,     "a",   X,     X,     "a",   "a",   X  }},
    {"HELLO_OLD",    in_hello_old,    {"x",   "x",   "x",   "x",   "x",   "x",   "x",   "" }},
    {"ACK_NEW",      in_ack_new,      {X,     "",    "",    "N",   "",    "",    "RRsC",X  }},
    {"ACK_NEXT",     in_ack_next,     {X,     X,     X,     X,     "",    "",    "rURs",X  }},
    {"ACK_LIVE",     in_ack_live,     {"r",   X,     "r",   X,     X,     "r",   "r",   X  }},
    {"ACK_SPENT",    in_ack_spent,    {X,     X,     X,     "Rxs", X,     X,     X,     X  }},
    {"ACK_OLD",      in_ack_old,      {"xs",  "xs",  "xs",  "xs",  "xs",  "xs",  "xs",  "xs"}},
    {"READY_NEXT",   in_ready_next,   {X,     X,     X,     X,     "",    "",    "URs", X  }},
    {"READY_LIVE",   in_ready_live,   {"",    X,     "",    X,     X,     "",    "",    X  }},
    {"READY_OLD",    in_ready_old,    {"s",   "s",   "s",   "s",   "s",   "s",   "s",   "s"}},
    {"REFUSE_STALE", in_refuse_stale, {X,     "",    "",    "R",   "",    "",    "RRs", X  }},
    {"REFUSE_FINAL", in_refuse_final, {X,     "",    "",    "RF",  "",    "",    "RRsF",X  }},
    {"REFUSE_LATER", in_refuse_later, {X,     "",    "",    "",    "",    "",    "",    X  }},
    {"REFUSE_OLD",   in_refuse_old,   {"",    "",    "",    "",    "",    "",    "",    "" }},
    {"SETTLE",       in_settle,       {"RsC", "",    "",    "",    "RC",  "RRsC","RRsC","" }},
    {"SETTLED",      in_settled,      {"T",   "T",   "T",   "T",   "T",   "T",   "T",   "" }},
    {"BYE",          in_bye,          {"RG",  "RG",  "RRG", "RG",  "RG",  "RRG", "RRG", "" }},
    {"ALIEN",        in_alien,        {"",    "",    "",    "",    "",    "",    "",    "" }},
    {"QPS_READY",    in_qps_ready,    {X,     "h",   "N",   X,     X,     X,     X,     "" }},
    {"QPS_FAILED",   in_qps_failed,   {X,     "F",   "x",   X,     X,     X,     X,     "" }},
    {"CONNECTED",    in_connected,    {X,     X,     X,     X,     "rU",  "a",   X,     "" }},
    {"CONN_FAILED",  in_conn_failed,  {X,     X,     X,     X,     "xR",  "xR",  X,     "" }},
    {"BROKEN_LIVE",  in_broken_live,  {"RsC", X,     "Rs",  X,     X,     "Rs",  "Rs",  X  }},
    {"BROKEN_NEXT",  in_broken_next,  {X,     X,     X,     "R",   "R",   "R",   "RRs", X  }},
    {"BROKEN_OLD",   in_broken_old,   {"",    "",    "",    "",    "",    "",    "",    "" }},
    {"HEARD_NEXT",   in_heard_next,   {"",    "",    "",    "",    "",    "",    "URs", "" }},
    {"HEARD_OLD",    in_heard_old,    {"",    "",    "",    "",    "",    "",    "",    "" }},
    {"DRAINED",      in_drained,      {"",    "",    "",    "",    "",    "",    "",    "" }},
    {"TIMER",        in_timer,        {"s",   "",    "",    "sh",  "s",   "s",   "sa",  "" }},
    {"PROBE",        in_probe,        {"a",   "",    "a",   "",    "",    "a",   "a",   "" }},
    {"PEER_DEAD",    in_peer_dead,    {"RG",  "RG",  "RRG", "RG",  "RG",  "RRG", "RRG", "" }},
    {"CLOSE",        in_close,        {"bR",  "bR",  "bRR", "bR",  "bR",  "bRR", "bRR", "" }},
};
/* clang-format on */

static void test_every_cell_is_written(void **state) {
    (void)state;
    assert_int_equal(sizeof(ROWS) / sizeof(ROWS[0]), endpoint_input_count());
    for (uint32_t input = 0; input < endpoint_input_count(); input++) {
        assert_string_equal(ROWS[input].input, endpoint_input_name(input));
        for (uint32_t s = 0; s < EP_STATE_COUNT; s++) {
            const char *name = endpoint_cell_name((enum ep_state)s, input);
            const char *where = endpoint_state_name((enum ep_state)s);

            if (name == NULL)
                fail_msg("%s in %s is not written", ROWS[input].input, where);
            if ((strcmp(name, "BUG") == 0) != (ROWS[input].effects[s] == NULL))
                fail_msg("%s in %s: can that be?", ROWS[input].input, where);
        }
    }
    assert_null(endpoint_cell_name(EP_STATE_COUNT, 0));
    assert_null(endpoint_cell_name(EP_NONE, endpoint_input_count()));
}

static void test_every_cell_does_what_it_should(void **state) {
    (void)state;
    for (uint32_t input = 0; input < endpoint_input_count(); input++) {
        const struct row *row = &ROWS[input];

        for (uint32_t s = 0; s < EP_STATE_COUNT; s++) {
            if (row->effects[s] == NULL)
                continue;
            arrive((enum ep_state)s);
            const char *got = row->give();
            if (strcmp(got, row->effects[s]) != 0)
                fail_msg("%s in %s gives \"%s\", not \"%s\"", row->input,
                         endpoint_state_name((enum ep_state)s), got, row->effects[s]);
            /* Nothing said, nothing moved; but QPs that could not be made are gone. */
            if (got[0] == '\0' && strcmp(row->input, "QPS_FAILED") != 0)
                assert_int_equal(ep.state, s);
            assert_int_equal(ep.sessions[0].state == EP_SESSION_FREE,
                             strcmp(row->input, "DRAINED") == 0);
        }
    }
}

/* DRAINED also lets an answer go that was owed, in whichever state. */
static void test_S9_owed_answer_goes_out_in_every_state(void **state) {
    (void)state;
    for (uint32_t s = 0; s < EP_STATE_COUNT; s++) {
        if (s == EP_GONE)
            continue;
        arrive_after((enum ep_state)s, SETTLE_ASKED);
        assert_string_equal(in_drained(), "d");
    }
}

/* A device may connect for as long as it likes: the remote, whose transfers wait for the answer to
 * SETTLE, gets it meanwhile, and the attempt goes on. */
static void test_S9_settle_is_answered_while_a_device_connects(void **state) {
    static const enum ep_state STATES[] = {EP_JOINING, EP_ACCEPTING};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        arrive(STATES[i]);
        assert_string_equal(in_drained(), "");
        assert_string_equal(say(WIRE_SETTLE, OLD_REMOTE, 0, 0), "d");
        assert_int_equal(ep.state, STATES[i]);
    }
}

/* A remote that put our HELLO off and speaks again is asked once more, before the HELLO's time. */
static void test_H1_what_was_put_off_is_repeated_once(void **state) {
    (void)state;
    fresh();
    in_want();
    in_qps_ready();
    assert_int_equal(ep.state, EP_OFFERED);
    assert_string_equal(in_probe(), "");
    assert_string_equal(in_refuse_later(), "");
    uint64_t deadline_ns = endpoint_deadline(&ep);
    assert_string_equal(in_probe(), "h");
    assert_string_equal(in_probe(), "");
    assert_true(endpoint_deadline(&ep) == deadline_ns);
}

/* The attempt's last message went out on a connection that is lost: it is said once more on the
 * next, and its time stays what it was. */
static void test_H1_what_a_lost_connection_carried_is_said_again(void **state) {
    const struct ep_event lost = {.type = EP_EV_PROBE, .unheard = true, .local = &set};

    (void)state;
    fresh();
    in_want();
    in_qps_ready();
    assert_int_equal(ep.state, EP_OFFERED);
    uint64_t deadline_ns = endpoint_deadline(&ep);
    assert_string_equal(step(&lost), "h");
    assert_string_equal(in_probe(), "");
    assert_true(endpoint_deadline(&ep) == deadline_ns);
    fresh();
    answer(NEXT_REMOTE, EP_CONFIRM);
    assert_string_equal(in_probe(), ""); /* it asks after the session when that is up */
    assert_string_equal(step(&lost), "a");
}

/* A wish that comes while the remote's attempt runs survives that attempt. */
static void test_wish_in_every_state_is_remembered(void **state) {
    static const enum ep_state STATES[] = {EP_ANSWERING, EP_ACCEPTING, EP_CONFIRM};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        fresh();
        answer(NEXT_REMOTE, STATES[i]);
        in_want();
        if (STATES[i] == EP_ANSWERING)
            in_qps_ready();
        if (STATES[i] != EP_CONFIRM)
            in_connected();
        now_ns = 1;
        assert_string_equal(tell(EP_EV_BROKEN, ep.next, 0), "Rs");
        now_ns += 10 * MS;
        assert_string_equal(tell(EP_EV_TIMER, 0, 0), "sC");
    }
}

/* A connect that takes longer than the attempt may: the attempt ends, and its QPs are
 * retired. Nobody was told that they were there, so nothing is to be settled. */
static void test_H10_a_connect_ends_with_its_attempt(void **state) {
    (void)state;
    fresh();
    answer(NEXT_REMOTE, EP_ACCEPTING);
    now_ns = endpoint_deadline(&ep);
    assert_int_equal(now_ns, 1000 * MS);
    assert_string_equal(tell(EP_EV_TIMER, 0, 0), "R");
    assert_int_equal(ep.state, EP_NONE);
    assert_true(endpoint_deadline(&ep) > now_ns);

    fresh();
    in_want();
    tell(EP_EV_QPS_READY, ep.next, 0);
    say(WIRE_HELLO_ACK, NEXT_REMOTE, next_epoch(), 0);
    assert_int_equal(ep.state, EP_JOINING);
    now_ns = endpoint_deadline(&ep);
    assert_string_equal(tell(EP_EV_TIMER, 0, 0), "RF");
    assert_int_equal(ep.state, EP_NONE);
    assert_true(endpoint_deadline(&ep) > now_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H10_a_connect_ends_with_its_attempt),
        cmocka_unit_test(test_every_cell_is_written),
        cmocka_unit_test(test_every_cell_does_what_it_should),
        cmocka_unit_test(test_S9_owed_answer_goes_out_in_every_state),
        cmocka_unit_test(test_S9_settle_is_answered_while_a_device_connects),
        cmocka_unit_test(test_H1_what_was_put_off_is_repeated_once),
        cmocka_unit_test(test_H1_what_a_lost_connection_carried_is_said_again),
        cmocka_unit_test(test_wish_in_every_state_is_remembered),
    };

    memset(&set, 0, sizeof(set));
    strcpy(set.device, "sim");
    set.recv_credits = 64;
    set.recv_bytes_max = 288;
    set.pass = 7;
    set.life = 8;
    set.qp_count = 1;
    return cmocka_run_group_tests_name("endpoint cells", tests, NULL, NULL);
}
