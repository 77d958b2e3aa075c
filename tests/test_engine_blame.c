/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_blame.c: the transfers that are held to break sessions, and those that only were
 * there (S9, S11).
 *
 * One engine, whose device fails what the test names by its length, and a peer that comes back
 * after every session that breaks: see lone_engine.h. Errors that name nobody, and links that
 * stay down, are in test_engine_dead.c. It is long because each habit of a device that breaks
 * sessions has tests of its own. */
#include "lone_engine.h"
#include "notes.h"
#include "tables.h"

#include <string.h>

#define THERE "10.0.0.9:9"

enum { SMALL = 8, BIG = 4096 };

struct world {
    struct lone *lone;
    weir_peer peer;
    uint64_t conn;
    uint64_t epoch; /* theirs, of the last session */
    weir_memory local;
    weir_remote remote;
    int their_reason;               /* with which they broke the session; 0: they did not */
    weir_event degraded, recovered; /* the last ones that `again` took */
};

/* The engine has a session of `qps` QPs with instance 1, whose memory it knows. */
static void world_open(struct world *w, uint32_t qps, uint32_t sq_depth,
                       uint64_t connect_timeout_ns) {
    static uint8_t bytes[BIG];
    weir_engine_options limits = WEIR_ENGINE_OPTIONS_INIT;
    limits.transfers_max = 64;
    limits.segments_max = 2048;
    limits.peers_max = 8;
    limits.memories_max = limits.remotes_max = 4;
    limits.qp_count = qps;
    limits.sq_depth = sq_depth;
    limits.recv_credits = 8;
    limits.notifications_max = 64;
    limits.connect_timeout_ns = connect_timeout_ns;
    *w = (struct world){.epoch = 1};
    w->lone = lone_open(&limits);
    w->lone->executes = true;
    w->lone->their_qps = qps;
    assert_int_equal(weir_peer_open(w->lone->engine, THERE, &w->peer), WEIR_OK);
    weir_peer_connect(w->lone->engine, w->peer);
    lone_run(w->lone);
    w->conn = lone_dialled(w->lone, THERE);
    lone_say_iam(w->lone, w->conn, 1, THERE);
    lone_answer(w->lone, w->conn, 1, w->epoch);
    lone_memories(w->lone, w->peer, 1, bytes, sizeof(bytes), &w->local, &w->remote);
}

static weir_transfer write_bytes(struct world *w, uint32_t length, uint32_t flags) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment segment = {.local = w->local, .remote = w->remote, .length = length};
    weir_transfer transfer;
    options.flags = flags;
    assert_int_equal(weir_write(w->lone->engine, w->peer, &segment, 1, &options, &transfer),
                     WEIR_OK);
    return transfer;
}

static int status_of(const struct world *w, weir_transfer transfer) {
    return weir_transfer_status(w->lone->engine, transfer);
}

static bool under_way(const struct world *w, weir_transfer transfer) {
    return status_of(w, transfer) == WEIR_EINPROGRESS;
}

static weir_engine_info stats_of(const struct world *w) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(w->lone->engine, &stats), WEIR_OK);
    return stats;
}

/* If a session broke: its QPs drain, and the peer says the same and comes back when it is
 * asked to. */
static void again(struct world *w) {
    weir_event event;
    lone_pass(w->lone, 20 * MS);
    const struct wire_message *settle = lone_heard(w->lone, w->conn, WIRE_SETTLE);
    if (settle != NULL) {
        struct wire_message settled = {.type = WIRE_SETTLED, .echo = settle->epoch};
        settled.settled.broke = w->their_reason != 0 ? settle->epoch : 0;
        settled.settled.reason = w->their_reason;
        lone_say(w->lone, w->conn, 1, &settled);
    }
    lone_pass(w->lone, 20 * MS);
    if (lone_count(w->lone, w->conn, WIRE_HELLO) > 0)
        lone_answer(w->lone, w->conn, 1, ++w->epoch);
    while (weir_event_take(w->lone->engine, &event) == WEIR_OK) {
        if (event.type == WEIR_EVENT_DEGRADED)
            w->degraded = event;
        else if (event.type == WEIR_EVENT_RECOVERED)
            w->recovered = event;
    }
    /* Messages that ask the peer nothing are forgotten; questions are answered the next time. */
    lone_heard(w->lone, w->conn, WIRE_READY);
    lone_heard(w->lone, w->conn, WIRE_SETTLED);
    lone_heard(w->lone, w->conn, WIRE_REFUSE);
    lone_heard(w->lone, w->conn, WIRE_HELLO_ACK);
}

/* ---- bytes that never arrive ---- */

/* Small writes come through, and a big one never does (a path that swallows long packets):
 * its target does not answer, which is nobody's fault, and then others do well, so that no
 * trouble lasts. It ends all the same, and they do not suffer. */
static void test_S11_replays_of_what_never_arrives_are_bounded(void **state) {
    struct world w;
    uint32_t well = 0;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.lone->bad_bytes = BIG;
    w.lone->bad_status = WEIR_CQE_RETRY;
    weir_transfer small = write_bytes(&w, SMALL, 0);
    weir_transfer big = write_bytes(&w, BIG, 0);
    while (under_way(&w, big)) {
        assert_true(stats_of(&w).sessions_failed <= 2 * REPLAYS_MAX);
        again(&w);
        if (under_way(&w, small))
            continue;
        assert_int_equal(status_of(&w, small), WEIR_OK);
        weir_transfer_release(w.lone->engine, small);
        small = write_bytes(&w, SMALL, 0);
        well++;
    }
    assert_int_equal(status_of(&w, big), WEIR_EDEVICE);
    assert_true(well >= REPLAYS_MAX / 2);
    lone_close(w.lone);
}

/* ---- suspects ---- */

/* While a suspect is under way nothing else is, not even what could be posted inside its
 * submit: that would break with it. */
static void test_S9_nothing_is_posted_at_once_beside_a_suspect(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.lone->bad_bytes = BIG;
    w.lone->bad_status = WEIR_CQE_FLUSHED;
    weir_transfer culprit = write_bytes(&w, BIG, 0);
    for (int turn = 0; turn < 2 * BREAKS_SHARED; turn++)
        again(&w);
    w.lone->slow_bytes = BIG;
    for (int turn = 0; turn < 2; turn++)
        again(&w);
    assert_int_equal(w.lone->posted_count, 1);
    weir_transfer innocent = write_bytes(&w, SMALL, WEIR_TRANSFER_ONCE);
    assert_int_equal(w.lone->posted_count, 1);
    w.lone->slow_bytes = 0;
    while (under_way(&w, culprit)) {
        assert_true(stats_of(&w).sessions_failed <= BREAKS_MAX);
        again(&w);
    }
    assert_int_equal(status_of(&w, culprit), WEIR_EDEVICE);
    assert_int_equal(status_of(&w, innocent), WEIR_OK);
    lone_close(w.lone);
}

/* ---- memory whose name is of something else ---- */

/* A device that names no culprit: each of these transfers breaks session after session, until the
 * news comes that their memory is not the name's any more. One more breaks, and no more. by_word:
 * the news comes while they wait to be posted, and then none does. */
static void test_S21_what_is_stale_breaks_no_session_more(void **state) {
    (void)state;
    for (int by_word = 0; by_word < 2; by_word++) {
        struct world w;
        weir_transfer late[8];
        world_open(&w, 1, 16, SECOND);
        w.lone->bad_bytes = BIG;
        w.lone->bad_status = WEIR_CQE_FLUSHED;
        for (int i = 0; i < 8; i++)
            late[i] = write_bytes(&w, BIG, 0);
        for (int turn = 0; turn < 2 * BREAKS_SHARED; turn++)
            again(&w); /* now one is posted at a time */
        for (int i = 0; i < 8; i++)
            assert_true(under_way(&w, late[i]));
        uint64_t broken = stats_of(&w).sessions_failed;
        remote_make_stale(w.lone->engine, &w.lone->engine->regions.remotes[0]);
        if (by_word)
            note_unpark(w.lone->engine, lone_peer(w.lone, 1));
        for (int turn = 0; turn < 4; turn++)
            again(&w);
        for (int i = 0; i < 8; i++)
            assert_int_equal(status_of(&w, late[i]), WEIR_ESTALE);
        assert_in_range(stats_of(&w).sessions_failed, broken, broken + 1);
        lone_close(w.lone);
    }
}

/* Whether words are posted before transfers of so many bytes, of each session since they were. */
static struct { uint32_t qp, sessions, words_first; } firsts;

static void note_first(struct lone *lone, uint32_t qp, const struct weir_wr *wr) {
    (void)lone;
    if (qp == firsts.qp)
        return;
    firsts.qp = qp;
    firsts.sessions++;
    firsts.words_first += wr->opcode == WEIR_OP_SEND;
}

/* A question for a name flushed with the transfers that break sessions. It goes before them on the
 * next one, and so arrives, whether they are replayed by their age or not. */
static void test_S9_words_go_before_what_breaks_sessions(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        struct world w;
        weir_remote named;
        world_open(&w, 1, 16, SECOND);
        w.their_reason = refused ? WEIR_EDEVICE : 0;
        w.lone->bad_bytes = w.lone->slow_bytes = BIG;
        w.lone->bad_status = WEIR_CQE_FLUSHED;
        for (int i = 0; i < 8; i++)
            write_bytes(&w, BIG, 0);
        lone_run(w.lone);
        assert_int_equal(weir_remote_open(w.lone->engine, w.peer, "kv", 0, &named), WEIR_ENOTREADY);
        lone_run(w.lone);
        firsts.sessions = firsts.words_first = 0;
        firsts.qp = UINT32_MAX;
        w.lone->on_post = note_first;
        w.lone->slow_bytes = 0;
        while (firsts.sessions == 0)
            again(&w);
        assert_int_equal(firsts.words_first, 1);
        lone_close(w.lone);
    }
}

/* ---- breaks of which the cause is known ---- */

/* One that takes long, while others on the QP beside it break session after session and are
 * named: it is replayed, and never blamed. */
static void culprits_are_named(bool news_first) {
    struct world w;

    world_open(&w, 2, 16, SECOND);
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    w.lone->news_first = news_first;
    w.lone->slow_bytes = BIG;
    weir_transfer slow = write_bytes(&w, BIG, 0);
    for (uint32_t i = 0; i < 2 * BREAKS_MAX; i++) {
        weir_transfer culprit = write_bytes(&w, SMALL, 0);
        for (int turn = 0; turn < 4; turn++)
            again(&w);
        assert_int_equal(status_of(&w, culprit), WEIR_EREMOTE);
        weir_transfer_release(w.lone->engine, culprit);
        assert_int_equal(status_of(&w, slow), WEIR_EINPROGRESS);
    }
    assert_int_equal(stats_of(&w).sessions_failed, 2 * BREAKS_MAX);
    w.lone->slow_bytes = 0;
    again(&w);
    assert_int_equal(status_of(&w, slow), WEIR_OK);
    lone_close(w.lone);
}

static void test_S9_a_break_whose_culprit_is_named_is_no_other_ones(void **state) {
    (void)state;
    culprits_are_named(false);
}

/* An event says that the QP failed, and its completions, which come later, why. */
static void test_S9_a_culprit_that_is_named_after_the_break(void **state) {
    (void)state;
    culprits_are_named(true);
}

/* Of transfers that take several steps, while others are refused in session after session. */
enum { STEPS_SEGMENTS = 100, STEPS_LENGTH = 16, STEPS_WIDTH = 16 };

static weir_transfer submit_steps(struct world *w, bool reads, uint32_t count, uint32_t flags) {
    static weir_segment segments[STEPS_SEGMENTS];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = flags;
    for (uint32_t i = 0; i < count; i++)
        segments[i] =
            (weir_segment){.local = w->local, .remote = w->remote, .length = STEPS_LENGTH};
    assert_int_equal((reads ? weir_read : weir_write)(w->lone->engine, w->peer, segments, count,
                                                      &options, &transfer),
                     WEIR_OK);
    return transfer;
}

static void takes_steps_beside_refusals(uint32_t width, bool reads, uint32_t count,
                                        uint32_t flags) {
    struct world w;
    weir_transfer refused[STEPS_WIDTH];

    world_open(&w, 1, 16, SECOND);
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    for (uint32_t i = 0; i < width; i++)
        refused[i] = write_bytes(&w, SMALL, 0);
    weir_transfer good = submit_steps(&w, reads, count, flags);
    while (under_way(&w, good)) {
        assert_true(stats_of(&w).sessions_failed <= 2 * STEPS_SEGMENTS);
        again(&w);
        for (uint32_t i = 0; i < width; i++) {
            if (under_way(&w, refused[i]))
                continue;
            assert_int_equal(status_of(&w, refused[i]), WEIR_EREMOTE);
            weir_transfer_release(w.lone->engine, refused[i]);
            refused[i] = write_bytes(&w, SMALL, 0);
        }
    }
    assert_int_equal(status_of(&w, good), WEIR_OK);
    lone_close(w.lone);
}

/* The steps that are done are not begun again: each session takes it further. */
static void test_S11_what_takes_steps_ends_beside_refusals(void **state) {
    (void)state;
    for (uint32_t width = 1; width <= STEPS_WIDTH; width *= 4) {
        takes_steps_beside_refusals(width, false, STEPS_SEGMENTS, 0);
        takes_steps_beside_refusals(width, true, STEPS_SEGMENTS, 0);
        takes_steps_beside_refusals(width, false, STEPS_SEGMENTS, WEIR_TRANSFER_NOTIFY);
        takes_steps_beside_refusals(width, true, 1, WEIR_TRANSFER_NOTIFY);
        takes_steps_beside_refusals(width, true, STEPS_SEGMENTS, WEIR_TRANSFER_NOTIFY);
    }
}

/* Likewise when nobody is to blame: the link is down. */
static void test_S11_a_link_that_is_known_to_be_down_after_the_break(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_RETRY;
    w.lone->news_first = true;
    uint64_t begin_ns = w.lone->now_ns;
    weir_transfer transfer = write_bytes(&w, SMALL, 0);
    while (under_way(&w, transfer)) {
        assert_true(w.lone->now_ns - begin_ns < 2 * SECOND);
        again(&w);
    }
    assert_int_equal(status_of(&w, transfer), WEIR_ECONNECT);
    assert_true(w.lone->now_ns - begin_ns >= SECOND);
    assert_in_range(stats_of(&w).sessions_failed, 3, 12); /* ever less often */
    lone_close(w.lone);
}

/* Trouble was over when something came through, which is seen while QPs drain: that the link
 * did not answer, which is seen then, too, is the first that is heard of new trouble. */
static void test_S11_trouble_that_ends_in_the_drain_begins_anew(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 2, 16, SECOND);
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_RETRY;
    weir_transfer first = write_bytes(&w, SMALL, 0);
    lone_run(w.lone); /* breaks: trouble begins */
    w.lone->slow_bytes = BIG;
    w.lone->slow_lands = w.lone->news_first = true;
    weir_transfer slow = write_bytes(&w, BIG, 0);
    assert_int_equal(weir_transfer_cancel(w.lone->engine, first), WEIR_OK);
    weir_transfer second = write_bytes(&w, SMALL, 0);
    again(&w);
    assert_int_equal(status_of(&w, first), WEIR_ECANCELED);
    assert_int_equal(stats_of(&w).sessions_failed, 2);
    assert_int_equal(status_of(&w, slow), WEIR_OK);
    w.lone->bad_bytes = 0;
    again(&w);
    assert_int_equal(status_of(&w, second), WEIR_OK);
    lone_close(w.lone);
}

/* ---- what the other side ends ---- */

/* It says that a session is over, and the next one, and more of them than a transfer may
 * break: that is trouble, but of nobody's making. */
static void test_S11_what_the_other_side_ends_is_held_against_nobody(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 1, 16, 10 * SECOND);
    w.lone->slow_bytes = SMALL;
    uint64_t begin_ns = w.lone->now_ns;
    weir_transfer transfer = write_bytes(&w, SMALL, 0);
    while (under_way(&w, transfer)) {
        uint64_t epoch = w.epoch;
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
        assert_true(w.lone->now_ns - begin_ns < 20 * SECOND);
        lone_say(w.lone, w.conn, 1, &settle);
        while (under_way(&w, transfer) && w.epoch == epoch)
            again(&w);
    }
    assert_int_equal(status_of(&w, transfer), WEIR_ECONNECT);
    assert_true(w.lone->now_ns - begin_ns >= 10 * SECOND);
    assert_true(w.epoch > BREAKS_MAX);
    lone_close(w.lone);
}

/* The other side's session is over, and it begins another. A word of its own on that, the first
 * thing there, is answered before anything else is posted. */
static void they_break_it_and_ask(struct world *w, uint64_t number) {
    struct word want = {.kind = WORD_WANT, .inbox = (uint32_t)(100 + number), .grants = 1};
    struct wire_message settle = {.type = WIRE_SETTLE, .epoch = w->epoch};
    struct wire_message settled = {.type = WIRE_SETTLED};
    lone_say(w->lone, w->conn, 1, &settle);
    lone_pass(w->lone, 20 * MS);
    const struct wire_message *asked = lone_heard(w->lone, w->conn, WIRE_SETTLE);
    assert_non_null(asked);
    settled.echo = asked->epoch;
    settled.settled.broke = w->their_reason != 0 ? asked->epoch : 0;
    settled.settled.reason = w->their_reason;
    lone_say(w->lone, w->conn, 1, &settled);
    lone_say_hello(w->lone, w->conn, 1, ++w->epoch);
    for (int turn = 0; turn < 100 && lone_count(w->lone, w->conn, WIRE_HELLO_ACK) == 0; turn++)
        lone_pass(w->lone, 20 * MS);
    assert_non_null(lone_heard(w->lone, w->conn, WIRE_HELLO_ACK));
    assert_true(lone_words(w->lone, w->lone->qp_count - 1, number, &want));
    lone_run(w->lone);
}

/* Likewise, but words that are said on each session arrive, so that the link is known to be well:
 * it is the transfer, then, which the other side's device refuses without a word to ours. If the
 * other side has a reason of its own, it is not. */
static void refused_in_silence(int their_reason, int status) {
    enum { MOST = 2 * (BREAKS_SHARED + BREAKS_MAX) };
    struct world w;
    uint64_t number = 0;

    world_open(&w, 1, 16, 10 * SECOND);
    w.lone->slow_bytes = SMALL;
    w.their_reason = their_reason;
    weir_transfer transfer = write_bytes(&w, SMALL, 0);
    while (under_way(&w, transfer) && number < MOST)
        they_break_it_and_ask(&w, ++number);
    assert_int_equal(status_of(&w, transfer), status);
    assert_in_range(number, BREAKS_MAX, MOST);
    lone_close(w.lone);
}

static void test_S11_what_is_refused_in_silence_ends(void **state) {
    (void)state;
    refused_in_silence(0, WEIR_EDEVICE);
}

static void test_S11_what_the_other_side_has_a_reason_for_is_no_refusal(void **state) {
    (void)state;
    refused_in_silence(WEIR_EREMOTE, WEIR_EINPROGRESS);
}

/* The other side's session is over, is seen to be here first, as an error that names nobody, or is
 * told, and another one is up after at most so many rounds. */
static void they_break_it(struct world *w, bool seen_here, int turns) {
    uint64_t epoch = w->epoch;
    struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
    if (!seen_here)
        lone_say(w->lone, w->conn, 1, &settle);
    for (int turn = 0; turn < turns && w->epoch == epoch; turn++)
        again(w);
}

/* Session after session is over before anything is done on it, and the other side says of each
 * that a transfer of its own was refused: it was answered, so the link is well, and ours did
 * nothing. They wait for longer than a connection may take, and for more sessions than a transfer
 * may break, and then do what they have to. */
static void they_break_it_themselves(bool seen_here) {
    struct world w;

    world_open(&w, 1, 16, SECOND);
    w.their_reason = WEIR_EREMOTE;
    w.lone->slow_bytes = seen_here ? 0 : SMALL;
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_FLUSHED;
    uint64_t begin_ns = w.lone->now_ns;
    weir_transfer transfer = write_bytes(&w, SMALL, 0);
    for (uint32_t i = 0; i <= REPLAYS_MAX || w.lone->now_ns - begin_ns < 3 * SECOND; i++) {
        uint64_t epoch = w.epoch;
        they_break_it(&w, seen_here, 3);
        assert_int_equal(w.epoch, epoch + 1); /* at once, not ever less often */
        assert_int_equal(status_of(&w, transfer), WEIR_EINPROGRESS);
    }
    w.lone->slow_bytes = w.lone->bad_bytes = 0;
    w.their_reason = 0;
    while (under_way(&w, transfer))
        again(&w);
    assert_int_equal(status_of(&w, transfer), WEIR_OK);
    lone_close(w.lone);
}

static void test_S11_what_the_other_side_broke_itself_is_no_trouble(void **state) {
    (void)state;
    they_break_it_themselves(false);
}

static void test_S11_what_the_other_side_broke_itself_is_nobodys_break(void **state) {
    (void)state;
    they_break_it_themselves(true);
}

/* Session after session breaks before it is heard here that it is up: the other side is the first
 * to know, and is refused at once. A transfer that waits for a session has one in the end. */
static void test_S11_refusals_before_a_session_is_up_fail_nobody(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    uint64_t begin_ns = w.lone->now_ns, ours = 0;
    w.lone->slow_bytes = SMALL;
    weir_transfer transfer = write_bytes(&w, SMALL, 0);
    while (w.lone->now_ns - begin_ns < 3 * SECOND) {
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = w.epoch};
        struct wire_message settled = {.type = WIRE_SETTLED};
        lone_say(w.lone, w.conn, 1, &settle);
        lone_pass(w.lone, 20 * MS);
        const struct wire_message *asked = lone_heard(w.lone, w.conn, WIRE_SETTLE);
        assert_non_null(asked);
        settled.echo = settled.settled.broke = asked->epoch;
        settled.settled.reason = WEIR_EREMOTE;
        lone_say(w.lone, w.conn, 1, &settled);
        lone_pass(w.lone, 20 * MS);
        lone_say_hello(w.lone, w.conn, 1, ++w.epoch); /* and no READY */
        lone_pass(w.lone, 20 * MS);
        const struct wire_message *ack = lone_heard(w.lone, w.conn, WIRE_HELLO_ACK);
        assert_non_null(ack);
        ours = ack->epoch;
        assert_int_equal(status_of(&w, transfer), WEIR_EINPROGRESS);
    }
    w.lone->slow_bytes = 0;
    lone_say_ready(w.lone, w.conn, 1, w.epoch, ours);
    while (under_way(&w, transfer))
        again(&w);
    assert_int_equal(status_of(&w, transfer), WEIR_OK);
    lone_close(w.lone);
}

/* The other side breaks them for the sake of its own deadlines: nobody's break either, but no
 * answer, so the link may well be down. */
static void test_S11_what_the_other_side_broke_on_purpose_says_nothing_of_the_link(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.their_reason = WEIR_ETIMEDOUT;
    w.lone->slow_bytes = SMALL;
    uint64_t begin_ns = w.lone->now_ns;
    weir_transfer transfer = write_bytes(&w, SMALL, 0);
    while (under_way(&w, transfer)) {
        assert_true(w.lone->now_ns - begin_ns < 3 * SECOND);
        they_break_it(&w, false, 20);
    }
    assert_int_equal(status_of(&w, transfer), WEIR_ECONNECT);
    assert_true(w.lone->now_ns - begin_ns >= SECOND);
    lone_close(w.lone);
}

/* The other side has drained, and says why, while QPs here are still there. */
static void test_S11_an_excuse_before_the_drain_counts(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 2, 16, SECOND);
    w.their_reason = WEIR_EREMOTE;
    w.lone->bad_status = WEIR_CQE_FLUSHED;
    w.lone->slow_bytes = BIG;
    weir_transfer slow = write_bytes(&w, BIG, 0);
    for (uint32_t i = 0; i < 2 * BREAKS_MAX; i++) {
        w.lone->bad_bytes = SMALL;
        w.lone->no_destroy = true;
        weir_transfer other = write_bytes(&w, SMALL, 0);
        again(&w);
        w.lone->bad_bytes = 0;
        w.lone->no_destroy = false;
        for (int turn = 0; turn < 20 && under_way(&w, other); turn++)
            again(&w);
        assert_int_equal(status_of(&w, other), WEIR_OK);
        assert_int_equal(status_of(&w, slow), WEIR_EINPROGRESS);
        weir_transfer_release(w.lone->engine, other);
    }
    assert_true(stats_of(&w).sessions_failed >= 2 * BREAKS_MAX);
    w.lone->slow_bytes = 0;
    while (under_way(&w, slow))
        again(&w);
    assert_int_equal(status_of(&w, slow), WEIR_OK);
    lone_close(w.lone);
}

/* Nothing is answered, and transfers beside it are given up before the device gives up: sessions
 * are broken for their sake, on a link that is down. The one that nobody gives up ends all the
 * same. */
static void test_S11_what_ours_give_up_puts_off_no_end(void **state) {
    struct world w;
    uint32_t rounds = 0;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.lone->slow_bytes = BIG;
    weir_transfer stuck = write_bytes(&w, BIG, 0);
    while (under_way(&w, stuck)) {
        assert_true(++rounds <= 2 * REPLAYS_MAX);
        again(&w);
        weir_transfer late = write_bytes(&w, BIG, 0);
        weir_transfer_cancel(w.lone->engine, late);
        for (int turn = 0; turn < 100 && under_way(&w, late); turn++)
            again(&w);
        weir_transfer_release(w.lone->engine, late);
    }
    assert_int_equal(status_of(&w, stuck), WEIR_EDEVICE);
    lone_close(w.lone);
}

/* Both sides break sessions, in turn, each by a transfer that is refused. That ours was answered
 * says that the link is well, as long as it takes. */
static void test_S11_a_refusal_ends_the_trouble(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 2, 16, SECOND);
    w.lone->slow_bytes = BIG;
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    uint64_t begin_ns = w.lone->now_ns;
    weir_transfer slow = write_bytes(&w, BIG, 0);
    while (w.lone->now_ns - begin_ns < 5 * SECOND) {
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = w.epoch};
        lone_say(w.lone, w.conn, 1, &settle);
        for (int turn = 0; turn < 4; turn++)
            again(&w);
        weir_transfer culprit = write_bytes(&w, SMALL, 0);
        for (int turn = 0; turn < 100 && under_way(&w, culprit); turn++)
            again(&w);
        assert_int_equal(status_of(&w, culprit), WEIR_EREMOTE);
        weir_transfer_release(w.lone->engine, culprit);
        assert_int_equal(status_of(&w, slow), WEIR_EINPROGRESS);
    }
    w.lone->slow_bytes = 0;
    while (under_way(&w, slow))
        again(&w);
    assert_int_equal(status_of(&w, slow), WEIR_OK);
    lone_close(w.lone);
}

/* The answer to the remote's SETTLE for its session `epoch`: why that ended, if we know. */
static struct wire_settled settled_of(struct world *w, uint64_t epoch) {
    struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
    lone_pass(w->lone, 20 * MS);
    lone_heard(w->lone, w->conn, WIRE_SETTLED); /* older ones */
    lone_say(w->lone, w->conn, 1, &settle);
    const struct wire_message *settled = lone_heard(w->lone, w->conn, WIRE_SETTLED);
    assert_non_null(settled);
    assert_int_equal(settled->echo, epoch);
    return settled->settled;
}

/* A write that is refused: the remote is told which of its sessions that broke, when it asks, also
 * when the next one broke before it did. Of sessions that ended otherwise it is told nothing. */
static void test_W9_the_side_that_broke_a_session_says_so(void **state) {
    struct world w;

    (void)state;
    world_open(&w, 1, 16, SECOND);
    assert_int_equal(settled_of(&w, w.epoch).broke, 0); /* it ends it itself */
    again(&w);
    w.lone->bad_bytes = SMALL;
    w.lone->bad_status = WEIR_CQE_RETRY;
    weir_transfer unanswered = write_bytes(&w, SMALL, 0);
    assert_int_equal(settled_of(&w, w.epoch).broke, 0);
    weir_transfer_cancel(w.lone->engine, unanswered);
    for (int turn = 0; turn < 20 && under_way(&w, unanswered); turn++)
        again(&w);
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    uint64_t epochs[2];
    for (int i = 0; i < 2; i++) {
        again(&w);
        epochs[i] = w.epoch;
        write_bytes(&w, SMALL, 0);
        lone_pass(w.lone, 20 * MS);
    }
    assert_int_equal(epochs[1], epochs[0] + 1);
    for (int i = 0; i < 2; i++) {
        struct wire_settled settled = settled_of(&w, epochs[i]);
        assert_int_equal(settled.broke, epochs[i]);
        assert_int_equal(settled.reason, WEIR_EREMOTE);
    }
    lone_close(w.lone);
}

/* ---- progress ---- */

/* The other side ends session after session, for longer than a connection may take. A little
 * of the transfer arrives in each, though that is seen only when its QPs drain: that is
 * progress, and it goes on to the end. */
static void test_S9_progress_seen_in_the_drain_counts(void **state) {
    enum { SEGMENTS = 120 };
    weir_segment segments[SEGMENTS];
    weir_transfer transfer;
    struct world w;
    uint32_t ended = 0;

    (void)state;
    world_open(&w, 1, 4, SECOND); /* so few slots that every run is signalled */
    w.lone->slow_bytes = SMALL;
    w.lone->slow_lands = true;
    for (uint32_t i = 0; i < SEGMENTS; i++)
        segments[i] = (weir_segment){.local = w.local, .remote = w.remote, .length = SMALL};
    uint64_t begin_ns = w.lone->now_ns;
    assert_int_equal(weir_write(w.lone->engine, w.peer, segments, SEGMENTS, NULL, &transfer),
                     WEIR_OK);
    while (under_way(&w, transfer)) {
        uint64_t epoch = w.epoch;
        struct wire_message settle = {.type = WIRE_SETTLE, .epoch = epoch};
        lone_say(w.lone, w.conn, 1, &settle);
        assert_true(++ended <= SEGMENTS);
        for (int turn = 0; turn < 20 && under_way(&w, transfer) && w.epoch == epoch; turn++)
            again(&w);
    }
    assert_int_equal(status_of(&w, transfer), WEIR_OK);
    assert_int_equal(stats_of(&w).replays, 0);
    assert_true(w.lone->now_ns - begin_ns > SECOND);
    lone_close(w.lone);
}

/* ---- events ---- */

/* Both events of a break say this: the cause, and the transfer. */
static void told(const struct world *w, int degraded, uint64_t by, int recovered,
                 uint64_t then_by) {
    assert_int_equal(w->degraded.type, WEIR_EVENT_DEGRADED);
    assert_int_equal(w->degraded.error, degraded);
    assert_int_equal(w->degraded.value, by);
    assert_int_equal(w->recovered.type, WEIR_EVENT_RECOVERED);
    assert_int_equal(w->recovered.error, recovered);
    assert_int_equal(w->recovered.value, then_by);
}

/* A write that is refused breaks the session for all; the events name it. */
static void test_W9_events_name_the_transfer_that_broke_the_session(void **state) {
    struct world w;
    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.lone->bad_bytes = BIG;
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    weir_transfer innocent = write_bytes(&w, SMALL, 0);
    weir_transfer culprit = write_bytes(&w, BIG, 0);
    again(&w);
    again(&w);
    told(&w, WEIR_EREMOTE, culprit.id, WEIR_EREMOTE, culprit.id);
    assert_int_equal(status_of(&w, innocent), WEIR_OK);
    assert_int_equal(status_of(&w, culprit), WEIR_EREMOTE);
    w.lone->bad_status = WEIR_CQE_LOCAL_PROT;
    culprit = write_bytes(&w, BIG, 0);
    assert_int_equal(weir_transfer_release(w.lone->engine, culprit), WEIR_OK);
    again(&w);
    again(&w);
    told(&w, WEIR_EINVAL, 0, WEIR_EINVAL, 0); /* its handle names nothing any more */
    lone_close(w.lone);
}

static void test_W9_a_cause_that_is_learned_late_comes_with_recovered(void **state) {
    struct world w;
    (void)state;
    world_open(&w, 1, 16, SECOND);
    w.lone->bad_bytes = BIG;
    w.lone->bad_status = WEIR_CQE_REMOTE_ACCESS;
    w.lone->news_first = true;
    weir_transfer culprit = write_bytes(&w, BIG, 0);
    again(&w);
    again(&w);
    told(&w, WEIR_EDEVICE, 0, WEIR_EREMOTE, culprit.id);
    lone_close(w.lone);
}

static void test_W9_events_say_what_nobody_is_to_blame_for(void **state) {
    struct world w;
    (void)state;
    world_open(&w, 1, 16, 10 * SECOND);
    w.lone->slow_bytes = SMALL;
    weir_transfer slow = write_bytes(&w, SMALL, 0);
    struct wire_message settle = {.type = WIRE_SETTLE, .epoch = w.epoch};
    lone_say(w.lone, w.conn, 1, &settle);
    again(&w);
    again(&w);
    told(&w, WEIR_EUNKNOWN, 0, WEIR_EUNKNOWN, 0); /* the other side knows */
    assert_int_equal(weir_transfer_cancel(w.lone->engine, slow), WEIR_OK);
    for (int turn = 0; turn < 10; turn++)
        again(&w);
    assert_int_equal(status_of(&w, slow), WEIR_ECANCELED);
    told(&w, WEIR_ECANCELED, slow.id, WEIR_ECANCELED, slow.id);
    w.lone->slow_bytes = 0;
    w.lone->bad_bytes = BIG;
    w.lone->bad_status = WEIR_CQE_RETRY;
    weir_transfer unanswered = write_bytes(&w, BIG, 0);
    again(&w);
    w.lone->bad_bytes = 0;
    for (int turn = 0; turn < 20 && under_way(&w, unanswered); turn++)
        again(&w);
    assert_int_equal(status_of(&w, unanswered), WEIR_OK);
    told(&w, WEIR_ECONNECT, 0, WEIR_ECONNECT, 0);
    lone_close(w.lone);
}

/* The other side broke the session for a transfer of its own, and says so when it settles. */
static void test_W9_the_peers_reason_comes_with_recovered(void **state) {
    static const struct {
        int said, told;
    } cases[] = {{WEIR_EREMOTE, WEIR_EREMOTE},
                 {WEIR_ETIMEDOUT, WEIR_ETIMEDOUT},
                 {0, WEIR_EUNKNOWN},
                 {WEIR_ECLOSED, WEIR_EUNKNOWN}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        world_open(&w, 1, 16, 10 * SECOND);
        w.their_reason = cases[i].said;
        w.lone->slow_bytes = SMALL;
        write_bytes(&w, SMALL, 0);
        lone_say(w.lone, w.conn, 1, &(struct wire_message){.type = WIRE_SETTLE, .epoch = w.epoch});
        again(&w);
        again(&w);
        told(&w, WEIR_EUNKNOWN, 0, cases[i].told, 0);
        lone_close(w.lone);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S11_replays_of_what_never_arrives_are_bounded),
        cmocka_unit_test(test_S9_nothing_is_posted_at_once_beside_a_suspect),
        cmocka_unit_test(test_S21_what_is_stale_breaks_no_session_more),
        cmocka_unit_test(test_S9_words_go_before_what_breaks_sessions),
        cmocka_unit_test(test_S9_a_break_whose_culprit_is_named_is_no_other_ones),
        cmocka_unit_test(test_S9_a_culprit_that_is_named_after_the_break),
        cmocka_unit_test(test_S11_what_takes_steps_ends_beside_refusals),
        cmocka_unit_test(test_S11_a_link_that_is_known_to_be_down_after_the_break),
        cmocka_unit_test(test_S11_trouble_that_ends_in_the_drain_begins_anew),
        cmocka_unit_test(test_S11_what_the_other_side_ends_is_held_against_nobody),
        cmocka_unit_test(test_S11_what_is_refused_in_silence_ends),
        cmocka_unit_test(test_S11_what_the_other_side_has_a_reason_for_is_no_refusal),
        cmocka_unit_test(test_S11_what_the_other_side_broke_itself_is_no_trouble),
        cmocka_unit_test(test_S11_what_the_other_side_broke_itself_is_nobodys_break),
        cmocka_unit_test(test_S11_a_refusal_ends_the_trouble),
        cmocka_unit_test(test_W9_the_side_that_broke_a_session_says_so),
        cmocka_unit_test(test_S11_what_the_other_side_broke_on_purpose_says_nothing_of_the_link),
        cmocka_unit_test(test_S11_an_excuse_before_the_drain_counts),
        cmocka_unit_test(test_S11_refusals_before_a_session_is_up_fail_nobody),
        cmocka_unit_test(test_S11_what_ours_give_up_puts_off_no_end),
        cmocka_unit_test(test_S9_progress_seen_in_the_drain_counts),
        cmocka_unit_test(test_W9_events_name_the_transfer_that_broke_the_session),
        cmocka_unit_test(test_W9_a_cause_that_is_learned_late_comes_with_recovered),
        cmocka_unit_test(test_W9_events_say_what_nobody_is_to_blame_for),
        cmocka_unit_test(test_W9_the_peers_reason_comes_with_recovered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
