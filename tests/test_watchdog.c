/* SPDX-License-Identifier: Apache-2.0 */
/* test_watchdog.c: work that is outstanding, and of which nothing completes (M10): STALLED and
 * RESUMED are told, once each, and the report names the cause. The engine's clock, its peers and
 * its device are the test's: see lone_engine.h.
 *
 * It is long because each cause has a test of its own. */
#include "agenda.h"
#include "inflight.h"
#include "lone_engine.h"
#include "watchdog.h"

#include <string.h>

#define THERE "10.0.0.9:9"
#define ALSO  "10.0.0.8:9"
/* watchdog_ns of these tests, and how late a verdict may be. */
#define WATCH SECOND
#define LATE  (WATCH / 3)

struct world {
    struct lone *lone;
    weir_peer peer;
    uint64_t conn;
    bool silent; /* the peer does not say how it is; else this: */
    struct wire_state state;
    weir_memory local;
    weir_remote remote;
};
static uint8_t bytes[1 << 20];

static weir_engine_options limits(void) {
    weir_engine_options options = lone_limits();
    options.watchdog_ns = WATCH;
    return options;
}

/* The peer, and a session. */
static uint64_t answer(struct lone *lone, const char *address, uint32_t n) {
    uint64_t conn = lone_dialled(lone, address);
    lone_say_iam(lone, conn, n, address);
    lone_answer(lone, conn, n, 1);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    return conn;
}

static weir_peer open_peer(struct lone *lone, const char *address) {
    weir_peer peer;
    assert_int_equal(weir_peer_open(lone->engine, address, &peer), WEIR_OK);
    weir_peer_connect(lone->engine, peer);
    lone_run(lone);
    return peer;
}

/* A peer with a session; its device executes what is posted. */
static struct lone *begin_on(struct world *world, struct lone *lone) {
    *world = (struct world){.lone = lone};
    world->peer = open_peer(lone, THERE);
    world->conn = answer(lone, THERE, 1);
    lone_memories(lone, world->peer, 1, bytes, sizeof(bytes), &world->local, &world->remote);
    lone->executes = true;
    return lone;
}

static struct lone *begin(struct world *world, const weir_engine_options *options) {
    weir_engine_options all = limits();
    return begin_on(world, lone_open(options != NULL ? options : &all));
}

static weir_transfer write_of(struct world *world, uint64_t length) {
    weir_segment segment = {world->local, world->remote, 0, 0, length};
    weir_transfer transfer;
    assert_int_equal(weir_write(world->lone->engine, world->peer, &segment, 1, NULL, &transfer),
                     WEIR_OK);
    lone_run(world->lone);
    return transfer;
}

/* By a write that fails. */
static weir_transfer break_session(struct world *world) {
    world->lone->bad_bytes = 64;
    world->lone->bad_status = WEIR_CQE_RETRY;
    weir_transfer transfer = write_of(world, 64);
    assert_int_equal(lone_event(world->lone).type, WEIR_EVENT_DEGRADED);
    return transfer;
}

static weir_transfer send_to(struct world *world, uint32_t inbox) {
    weir_part part = {.base = bytes, .length = 100};
    weir_transfer transfer;
    assert_int_equal(
        weir_message_send(world->lone->engine, world->peer, inbox, &part, 1, NULL, &transfer),
        WEIR_OK);
    lone_run(world->lone);
    return transfer;
}

static weir_stall_info info_of(struct world *world) {
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    assert_int_equal(weir_stall_query(world->lone->engine, world->peer, &info), WEIR_OK);
    assert_int_equal(info.size, sizeof(info));
    return info;
}

static void assert_says(struct world *world, const char *what) {
    char text[WEIR_STALL_TEXT_MAX];
    assert_int_equal(weir_stall_text(world->lone->engine, world->peer, text, sizeof(text)),
                     WEIR_OK);
    if (strstr(text, what) == NULL)
        fail_msg("not \"%s\": %s", what, text);
    print_message("%s\n", text);
    char *line = strchr(text, '\n');
    assert_non_null(line);
    assert_null(strchr(line + 1, '\n'));
    assert_memory_equal(line + 1, "waiting ", 8);
    assert_true(strlen(text) < sizeof(text) - 1);
}

static void no_event(struct lone *lone) {
    weir_event event;
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_EAGAIN);
}

/* Time passes; the peer answers each question that it is asked, unless it is told not to. */
static void pass(struct world *world, uint64_t ns) {
    struct lone *lone = world->lone;
    while (ns > 0) {
        uint64_t part = ns < 10 * MS ? ns : 10 * MS;
        const struct wire_message *question =
            world->conn != 0 ? lone_heard(lone, world->conn, WIRE_ASK) : NULL;
        if (question != NULL && !world->silent) {
            struct wire_message answer = {.type = WIRE_STATE, .echo = question->epoch};
            answer.state = world->state;
            lone_say(lone, world->conn, 1, &answer);
        }
        lone_pass(lone, part);
        ns -= part;
    }
}

/* Nothing is told before the time, then STALLED with this cause, once. */
static void stalls(struct world *world, weir_stall_cause cause, int error) {
    struct lone *lone = world->lone;
    pass(world, WATCH - MS);
    no_event(lone);
    assert_int_equal(info_of(world).cause, cause);
    assert_int_equal(info_of(world).stalled, 0);
    pass(world, LATE);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, cause);
    assert_int_equal(event.error, error);
    assert_int_equal(event.peer.id, world->peer.id);
    weir_stall_info info = info_of(world);
    assert_int_equal(info.stalled, 1);
    assert_int_equal(info.cause, cause);
    assert_int_equal(info.error, error);
    assert_int_equal(info.last_cause, cause);
    assert_int_equal(info.last_ns, 0);
    assert_in_range(info.still_ns, WATCH, WATCH + LATE);
    pass(world, 2 * WATCH);
    no_event(lone);
}

/* The stall of three to four times WATCH is over. */
static void resumes(struct world *world) {
    lone_pass(world->lone, WATCH / 4);
    weir_event event = lone_event(world->lone);
    assert_int_equal(event.type, WEIR_EVENT_RESUMED);
    assert_int_equal(event.error, 0);
    assert_int_equal(event.peer.id, world->peer.id);
    assert_in_range(event.value, 3 * WATCH, 4 * WATCH);
    weir_stall_info info = info_of(world);
    assert_int_equal(info.stalled, 0);
    assert_int_equal(info.last_ns, event.value);
    no_event(world->lone);
}

/* ---- causes ------------------------------------------------------------ */

static void test_M10_a_device_that_completes_nothing(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->slow_bytes = 64;
    write_of(&world, 64);
    stalls(&world, WEIR_STALL_QP, 0);
    weir_stall_info info = info_of(&world);
    assert_int_equal(info.waiting, 1);
    assert_int_equal(info.posted, 1);
    assert_int_equal(info.inflight_bytes, 64);
    assert_true(info.sq_used > 0 && info.sq_used <= info.sq_depth);
    assert_says(&world, "nothing to " THERE " has completed for 3");
    assert_says(&world, "what is posted has neither completed nor failed");
    lone->slow_bytes = 0;
    resumes(&world);
    assert_says(&world, "nothing is outstanding to " THERE "; a stall of 3");
    assert_says(&world, "is over, of which was told: what is posted has neither");
    assert_int_equal(info_of(&world).stalls, 1);
    assert_int_equal(lone->engine->stats.peer_stalls, 1);
    lone_close(lone);
}

static void test_M10_credits(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world.peer);
    lone_run(lone);
    stalls(&world, WEIR_STALL_CREDITS, 0);
    weir_stall_info info = info_of(&world);
    assert_int_equal(info.credit_waits, 1);
    assert_int_equal(info.credits, 0);
    assert_int_equal(info.credits_max, 8);
    assert_says(&world, "notifications or messages wait for credits");
    struct wire_data taken = {.kind = WIRE_CREDIT, .credit = 8};
    assert_true(lone_message(lone, 0, &taken));
    resumes(&world);
    lone_close(lone);
}

/* A write with a notification: its data is in place at once, wherever the notification waits. */
static weir_transfer notified_write(struct world *world, uint64_t length) {
    weir_segment segment = {world->local, world->remote, 0, 0, length};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(world->lone->engine, world->peer, &segment, 1, &options, &transfer),
                     WEIR_OK);
    lone_run(world->lone);
    return transfer;
}

/* An application that goes on submitting: the data of each write completes, and the write waits
 * behind all the others. */
static void test_M10_new_data_behind_old_credits(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (int i = 0; i < 9; i++)
        weir_transfer_release(lone->engine, notified_write(&world, 100));
    uint64_t before = info_of(&world).completed;
    for (uint64_t ns = 0; ns < WATCH - WATCH / 4; ns += WATCH / 40) {
        notified_write(&world, 100);
        pass(&world, WATCH / 40);
        no_event(lone);
    }
    for (uint64_t ns = 0; ns < WATCH / 2; ns += WATCH / 40) {
        notified_write(&world, 100);
        pass(&world, WATCH / 40);
    }
    assert_true(info_of(&world).completed >= before + 40);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_CREDITS);
    struct wire_data taken = {.kind = WIRE_CREDIT, .credit = 1};
    assert_true(lone_message(lone, 0, &taken));
    lone_pass(lone, WATCH / 4);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
    lone_close(lone);
}

/* The peer tells of its inbox 7, by its word `number`. */
static void say_meet_of(struct world *world, uint32_t inbox, uint32_t number) {
    assert_true(lone_inbox(world->lone, 0, number, 1, inbox));
}

static void say_meet(struct world *world, uint32_t number) {
    say_meet_of(world, 7, number);
}

/* A chunk of inbox 7 is this engine's; keep: also while no message waits. */
static void say_grant(struct world *world, uint32_t number, bool keep) {
    struct word grant = {
        .kind = WORD_GRANT, .inbox = 7, .grant = {.place = 1, .secret = 5, .keep = keep}};
    assert_true(lone_words(world->lone, 0, number, &grant));
}

/* Messages that have their room, and wait for credits, which are their own. */
static void test_M10_credits_of_messages(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    send_to(&world, 7);
    say_meet(&world, 1);
    say_grant(&world, 2, true);
    for (int i = 0; i < 20; i++)
        send_to(&world, 7);
    lone_pass(lone, WATCH / 8);
    weir_stall_info info = info_of(&world);
    assert_in_range(info.credit_waits, 1, 20);
    assert_int_equal(info.room_waits, 0);
    assert_int_equal(info.credits, 0);
    world.silent = lone->stopped = true;
    pass(&world, WATCH + LATE);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_PEER_STOPPED);
    lone->stopped = false;
    assert_int_equal(info_of(&world).cause, WEIR_STALL_PEER_ABSENT);
    lone_submit_notification(lone, world.peer); /* these have theirs */
    lone_run(lone);
    assert_int_equal(info_of(&world).credits, 0);
    lone_close(lone);
}

static void test_M10_inboxes(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    send_to(&world, 7);
    stalls(&world, WEIR_STALL_INBOX_FULL, 0);
    assert_int_equal(info_of(&world).inbox, 7);
    assert_int_equal(info_of(&world).room_waits, 1);
    assert_true(info_of(&world).room_bytes >= 100);
    assert_says(&world, "messages wait for room in inbox 7 of the peer");
    assert_true(lone_words(lone, 0, 1, &(struct word){.kind = WORD_ABSENT, .inbox = 7}));
    assert_int_equal(info_of(&world).cause, WEIR_STALL_INBOX_ABSENT);
    assert_says(&world, "messages wait for inbox 7, which the peer has not opened, or has closed");
    assert_int_equal(info_of(&world).room_inboxes, 1);
    assert_true(lone_words(lone, 0, 2, &(struct word){.kind = WORD_OPENED}));
    say_meet(&world, 3);
    lone_pass(lone, WATCH);
    no_event(lone); /* words are no completions of the application's */
    say_grant(&world, 4, false);
    lone_pass(lone, WATCH / 4);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
    lone_close(lone);
}

/* One inbox is named, and how many more there are. */
static void test_M10_inboxes_that_are_not_named(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (uint32_t i = 0; i < 2; i++)
        send_to(&world, 7);
    stalls(&world, WEIR_STALL_INBOX_FULL, 0);
    assert_int_equal(info_of(&world).room_inboxes, 1);
    send_to(&world, 8);
    assert_says(&world, " of the peer; messages wait for 1 other inbox, too");
    send_to(&world, 9);
    assert_says(&world, " of the peer; messages wait for 2 other inboxes, too");
    assert_says(&world, " B in 3 inboxes)");
    assert_int_equal(info_of(&world).room_inboxes, 3);
    lone_close(lone);
}

/* A message's status after its deadline, which is `within`. */
static int status_after(struct world *world, uint64_t within) {
    weir_part part = {.base = bytes, .length = 100};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.timeout_ns = within;
    assert_int_equal(
        weir_message_send(world->lone->engine, world->peer, 7, &part, 1, &options, &transfer),
        WEIR_OK);
    lone_pass(world->lone, within - 1);
    assert_int_equal(weir_transfer_status(world->lone->engine, transfer), WEIR_EINPROGRESS);
    lone_pass(world->lone, 2);
    return weir_transfer_status(world->lone->engine, transfer);
}

/* Messages wait for the memory of their inbox as they do for room in it: tried after pauses, until
 * their deadlines, which say what it was. */
static void test_M10_memory_that_is_not_handed_over(void **state) {
    static const int lacks[] = {WEIR_EINPROGRESS, WEIR_EAGAIN, WEIR_EMFILE, WEIR_ENOMEM};
    static const char *const texts[] = {
        "inbox 7, whose memory the peer's process has not handed over yet",
        "inbox 7, whose memory the peer's process has not handed over yet",
        "inbox 7, whose memory this process cannot map now: ",
        "inbox 7, whose memory this process cannot map now: "};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct world world;
        struct lone *lone = begin(&world, NULL);
        int error = i == 0 ? WEIR_EAGAIN : lacks[i];
        lone->import_error = lacks[i];
        weir_transfer first = send_to(&world, 7);
        uint32_t imports = lone->imports;
        say_meet(&world, 1);
        say_grant(&world, 2, true);
        lone_run(lone);
        assert_int_equal(lone->imports, imports + 1);
        stalls(&world, WEIR_STALL_INBOX_MEMORY, error);
        assert_int_equal(info_of(&world).inbox, 7);
        assert_says(&world, texts[i]);
        assert_in_range(lone->imports - imports, 10, 40); /* in a second or so */
        lone->stopped = true;
        assert_int_equal(info_of(&world).cause,
                         error == WEIR_EAGAIN ? WEIR_STALL_PEER_STOPPED : WEIR_STALL_INBOX_MEMORY);
        lone->stopped = false;
        assert_int_equal(status_after(&world, WATCH / 4), error);
        assert_int_equal(weir_transfer_cancel(lone->engine, first), WEIR_OK);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, first), WEIR_ECANCELED);
        lone_pass(lone, WATCH); /* nobody waits: nothing is tried */
        imports = lone->imports;
        lone_pass(lone, WATCH);
        assert_int_equal(lone->imports, imports);

        lone->import_error = WEIR_OK;
        weir_transfer last = send_to(&world, 7);
        lone_pass(lone, WATCH / 8);
        assert_int_equal(lone->imports, imports + 1);
        assert_int_equal(weir_transfer_status(lone->engine, last), WEIR_OK);
        lone_close(lone);
    }
}

static uint32_t said[WORD_KIND_END];

/* Counts the words that the engine says. */
static void count_words(struct lone *lone, uint32_t qp, const struct weir_wr *wr) {
    const uint8_t *in = (const uint8_t *)(uintptr_t)wr->laddr;
    struct wire_data data;
    (void)lone, (void)qp;
    if (wr->opcode != WEIR_OP_SEND ||
        wire_data_decode(in, (uint32_t)wr->length, &data) != WEIR_OK || data.kind != WIRE_WORDS)
        return;
    uint32_t used = 0, one = 0;
    for (struct word word; used < data.payload_length; used += one) {
        assert_int_equal(
            word_decode(in + WIRE_DATA_SIZE + used, data.payload_length - used, &word, &one),
            WEIR_OK);
        said[word.kind]++;
    }
}

/* Room that is called for goes back while there is no memory to write to, and is not wanted before
 * there is: two senders would be given each other's chunks for as long as that takes. */
static void test_M5_no_room_is_wanted_without_memory(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->on_post = count_words;
    memset(said, 0, sizeof(said));
    lone->import_error = WEIR_EMFILE;
    send_to(&world, 7);
    assert_int_equal(said[WORD_WANT], 1); /* by which it is met */
    say_meet(&world, 1);
    say_grant(&world, 2, true);
    lone_run(lone);
    assert_true(lone_words(lone, 0, 3, &(struct word){.kind = WORD_CALL, .inbox = 7, .place = 1}));
    pass(&world, WATCH / 2);
    assert_int_equal(said[WORD_SHUT], 1);
    assert_int_equal(said[WORD_WANT], 1);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_INBOX_MEMORY);
    lone->import_error = WEIR_OK;
    pass(&world, WATCH / 2);
    assert_int_equal(said[WORD_WANT], 2);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_INBOX_FULL);
    lone_close(lone);
}

/* A message that comes between two tries is sent with the next one; when none waits, the next
 * message is the first to try again. */
static void test_M10_memory_that_is_handed_over_at_last(void **state) {
    struct world world;
    struct lone *lone = begin(&world, NULL);
    (void)state;
    lone->import_error = WEIR_EAGAIN;
    weir_transfer first = send_to(&world, 7);
    say_meet(&world, 1);
    say_grant(&world, 2, true);
    lone_pass(lone, WATCH * 9 / 20); /* the pauses are of a tenth of WATCH by now */
    weir_transfer other = send_to(&world, 8);
    say_meet_of(&world, 8, 3);
    lone_pass(lone, WATCH / 64);
    uint32_t imports = lone->imports;
    weir_transfer second = send_to(&world, 7);
    assert_int_equal(lone->imports, imports); /* it is too early for another try */
    assert_int_equal(weir_transfer_cancel(lone->engine, first), WEIR_OK);
    assert_int_equal(weir_transfer_cancel(lone->engine, second), WEIR_OK);
    lone_pass(lone, WATCH / 50); /* a try of inbox 8's passes */
    assert_int_equal(lone->imports, imports + 1);

    lone->import_error = WEIR_OK;
    assert_int_equal(weir_transfer_status(lone->engine, other), WEIR_EINPROGRESS);
    weir_transfer last = send_to(&world, 7);
    assert_int_equal(lone->imports, imports + 2);
    lone_pass(lone, WATCH / 8);
    assert_int_equal(lone->imports, imports + 3);
    assert_int_equal(weir_transfer_status(lone->engine, last), WEIR_OK);
    lone_close(lone);
}

/* The status at a deadline says what was lacking when there was a session, and not before. */
static void test_M10_memory_is_no_reason_without_a_session(void **state) {
    struct world world;
    struct lone *lone = begin(&world, NULL);
    (void)state;
    lone->import_error = WEIR_EMFILE;
    send_to(&world, 7);
    say_meet(&world, 1);
    assert_int_equal(status_after(&world, WATCH / 16), WEIR_EMFILE);
    break_session(&world);
    assert_int_equal(status_after(&world, WATCH / 16), WEIR_ETIMEDOUT);
    lone_close(lone);
}

/* An error that does not pass ends the message at once. */
static void test_M10_memory_that_is_refused(void **state) {
    static const int errors[] = {WEIR_EDENIED, WEIR_EPEER, WEIR_EINVAL, WEIR_ESTALE};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct world world;
        struct lone *lone = begin(&world, NULL);
        lone->import_error = errors[i];
        weir_transfer transfer = send_to(&world, 7);
        say_meet(&world, 1);
        lone_run(lone);
        assert_int_equal(weir_transfer_status(lone->engine, transfer), errors[i]);
        lone_close(lone);
    }
}

static void test_M10_a_handshake_that_is_not_answered(void **state) {
    (void)state;
    weir_engine_options options = limits();
    struct world world = {.lone = lone_open(&options)};
    struct lone *lone = world.lone;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world.peer), WEIR_OK);
    weir_transfer transfer = lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_CONNECT, 0);
    assert_says(&world, "the address takes no connection and refuses none");
    uint64_t conn = lone_dialled(lone, THERE);
    assert_says(&world, "nobody says who is there");
    lone_say_iam(lone, conn, 1, THERE);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_CONNECT);
    assert_says(&world, "HELLO was said, and is not answered");
    lone_pass(lone, WATCH);
    no_event(lone);
    lone_pass(lone, 10 * WATCH); /* the connect time-out: work ends */
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_ECONNECT);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_RESUMED);
    no_event(lone);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_NONE);
    lone_close(lone);
}

static void test_M10_nobody_takes_connections(void **state) {
    (void)state;
    weir_engine_options options = limits();
    struct world world = {.lone = lone_open(&options)};
    struct lone *lone = world.lone;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world.peer), WEIR_OK);
    lone_submit_notification(lone, world.peer);
    weir_event event = {0};
    while (event.type == 0 && lone->now_ns < 5 * SECOND) {
        uint64_t conn = lone_dialled(lone, THERE);
        if (conn != 0)
            lone_cut(lone, conn, WEIR_ECONNECT);
        lone_pass(lone, 5 * MS);
        weir_event_take(lone->engine, &event);
    }
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_CONNECT);
    assert_says(&world, "nobody takes connections at the address");
    lone_close(lone);
}

/* This side lacks what a dial takes: nothing is said of the other one. */
static void test_M10_an_address_that_cannot_be_dialled(void **state) {
    (void)state;
    weir_engine_options options = limits();
    struct world world = {.lone = lone_open(&options)};
    struct lone *lone = world.lone;
    weir_event event = {0};
    char text[WEIR_STALL_TEXT_MAX];
    lone->dial_error = WEIR_EMFILE;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world.peer), WEIR_OK);
    lone_submit_notification(lone, world.peer);
    while (event.type == 0 && lone->now_ns < 5 * SECOND) {
        lone_pass(lone, 5 * MS);
        weir_event_take(lone->engine, &event);
    }
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.error, WEIR_EMFILE);
    assert_says(&world, "this side cannot make one: the address is dialled again after pauses");
    assert_int_equal(weir_stall_text(lone->engine, world.peer, text, sizeof(text)), WEIR_OK);
    assert_null(strstr(text, "nobody takes connections"));
    lone_close(lone);
}

static void test_M10_a_peer_that_refuses_for_now(void **state) {
    (void)state;
    weir_engine_options options = limits();
    struct world world = {.lone = lone_open(&options)};
    struct lone *lone = world.lone;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world.peer), WEIR_OK);
    lone_submit_notification(lone, world.peer);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    struct wire_message refuse = {
        .type = WIRE_REFUSE, .echo = hello->epoch | WIRE_ECHO_LATER, .reason = WEIR_EFULL};
    lone_say(lone, conn, 1, &refuse);
    stalls(&world, WEIR_STALL_REFUSED, WEIR_EFULL);
    assert_says(&world, "the peer refuses a session for now: no room for another peer");
    lone_close(lone);
}

/* The session breaks, here and there, and the other side does not say what arrived. */
static void test_M10_settle_is_not_answered(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    break_session(&world);
    stalls(&world, WEIR_STALL_SETTLE, 0);
    assert_int_equal(info_of(&world).parked, 1);
    assert_says(&world, "a session broke, and the peer has not said what of it arrived");
    lone_close(lone);
}

/* Why there is none is said of a session, too, that broke and has no successor. */
static void test_M10_no_session_comes_after_one_that_broke(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    break_session(&world);
    write_of(&world, 64); /* it needs the next session */
    stalls(&world, WEIR_STALL_CONNECT, 0);
    assert_says(&world, "the session broke (the target's device did not answer), and there is no "
                        "new one: HELLO was said, and is not answered");
    lone_close(lone);
}

/* The peer's part of a session that broke, and of the next one, if it is asked for. */
static void again(struct world *world, uint64_t *epoch) {
    struct lone *lone = world->lone;
    pass(world, 20 * MS);
    const struct wire_message *settle = lone_heard(lone, world->conn, WIRE_SETTLE);
    if (settle != NULL) {
        struct wire_message settled = {.type = WIRE_SETTLED, .echo = settle->epoch};
        lone_say(lone, world->conn, 1, &settled);
    }
    pass(world, 20 * MS);
    if (lone_count(lone, world->conn, WIRE_HELLO) > 0)
        lone_answer(lone, world->conn, 1, ++*epoch);
}

static void no_stall(struct lone *lone) {
    weir_event event;
    while (weir_event_take(lone->engine, &event) == WEIR_OK)
        assert_int_not_equal(event.type, WEIR_EVENT_STALLED);
}

/* Sessions that come up, and break with the first write: the looks may see any step of that. */
static void test_M10_sessions_that_come_up_and_break(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    uint64_t epoch = 1;
    weir_event event;
    int told = 0;
    write_of(&world, 100);
    lone_pass(lone, LATE);
    lone->bad_bytes = 64;
    lone->bad_status = WEIR_CQE_RETRY;
    (void)write_of(&world, 64);
    for (uint64_t ns = 0; ns < 3 * WATCH && told == 0; ns += 40 * MS) {
        again(&world, &epoch);
        while (weir_event_take(lone->engine, &event) == WEIR_OK) {
            if (event.type == WEIR_EVENT_STALLED) {
                told++;
                assert_int_equal(event.value, WEIR_STALL_BREAKS);
                assert_int_equal(event.error, WEIR_ECONNECT);
            }
        }
    }
    assert_int_equal(told, 1);
    assert_true(epoch > 4);
    assert_says(&world, "sessions come up and break before anything completes (the target");
    lone_close(lone);
}

/* Sessions broke, and the last one stands still. */
static void test_M10_a_device_stands_still_behind_breaks(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    uint64_t epoch = 1;
    lone->bad_bytes = 64;
    lone->bad_status = WEIR_CQE_RETRY;
    (void)write_of(&world, 64);
    for (int i = 0; i < 3; i++)
        again(&world, &epoch);
    lone->bad_bytes = 0;
    lone->slow_bytes = 64;
    while (info_of(&world).sq_used == 0)
        again(&world, &epoch);
    no_stall(lone);
    assert_true(epoch > 2);
    pass(&world, WATCH + LATE);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_QP);
    lone_close(lone);
}

/* Sessions that broke long ago, or while nothing was outstanding, say nothing of today's work;
 * neither do they where nobody watches. */
static void test_M10_breaks_of_before_are_no_cause(void **state) {
    (void)state;
    for (int watched = 0; watched < 2; watched++) {
        struct world world;
        weir_engine_options options = limits();
        uint64_t epoch = 1;
        if (!watched)
            options.watchdog_ns = WEIR_WATCHDOG_NONE;
        struct lone *lone = begin(&world, &options);
        lone->bad_status = WEIR_CQE_RETRY;
        for (int i = 0; i < 3; i++) {
            lone->bad_bytes = 64;
            weir_transfer transfer = write_of(&world, 64);
            lone->bad_bytes = 0;
            for (int k = 0; k < 10; k++)
                again(&world, &epoch);
            assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_OK);
        }
        assert_true(epoch > 3);
        lone->slow_bytes = 64;
        (void)write_of(&world, 64);
        assert_int_equal(info_of(&world).cause, WEIR_STALL_QP);
        pass(&world, WATCH / 2);
        assert_int_equal(info_of(&world).cause, WEIR_STALL_QP);
        lone_close(lone);
    }
}

static void test_M10_a_link_that_is_down(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->slow_bytes = 64;
    write_of(&world, 64);
    lone->link_is_down = true;
    stalls(&world, WEIR_STALL_LINK, 0);
    assert_says(&world, "the link of this engine's device is down: its port is not active");
    lone->link_is_down = false;
    assert_int_equal(info_of(&world).cause, WEIR_STALL_QP);
    assert_says(&world, "its port is not active; now, after");
    lone_close(lone);
}

/* Of what the device counts, the difference since the peer was asked is the stall's. */
static void test_M10_receivers_that_are_not_ready(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->counts = true;
    lone->counted = (struct weir_device_counts){.not_ready = 1000, .repeats = 17};
    lone->slow_bytes = 64;
    write_of(&world, 64);
    assert_int_equal(info_of(&world).counted_ns, 0);
    pass(&world, WATCH / 4 * 3);
    weir_stall_info info = info_of(&world);
    assert_int_equal(info.cause, WEIR_STALL_QP);
    assert_int_equal(info.device_counts, 1);
    assert_int_equal(info.device_not_ready, 0);
    lone->counted.not_ready += 5;
    lone->counted.repeats += 2;
    pass(&world, WATCH / 2);
    assert_int_equal(lone_event(lone).value, WEIR_STALL_NOT_READY);
    info = info_of(&world);
    assert_int_equal(info.cause, WEIR_STALL_NOT_READY);
    assert_int_equal(info.device_not_ready, 5);
    assert_int_equal(info.device_repeats, 2);
    assert_in_range(info.counted_ns, WATCH / 2, WATCH);
    assert_int_equal(info.completions, 0);
    assert_true(info.cq_entries > 0);
    assert_says(&world, "what is posted finds no receive at the target, it seems: 5 times in ");
    assert_says(&world, " not ready 5, repeats 2, port sent 0 B");
    lone->slow_bytes = 0;
    lone_run(lone);
    pass(&world, WATCH / 4);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
    /* The next stillness has counts of its own. */
    lone->slow_bytes = 64;
    write_of(&world, 64);
    assert_int_equal(info_of(&world).counted_ns, 0);
    pass(&world, 2 * WATCH);
    assert_int_equal(lone_event(lone).value, WEIR_STALL_QP);
    assert_int_equal(info_of(&world).device_not_ready, 0);
    lone_close(lone);
}

/* A link that carries all it can is no fault of anybody's. One that carries half of it is none. */
static void test_M10_the_wire_is_full(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->counts = true;
    lone->counted = (struct weir_device_counts){.sent = 4, .bytes_per_s = UINT64_C(12500000000)};
    lone->slow_bytes = 64;
    write_of(&world, 64);
    for (int k = 0; k < 10; k++) {
        pass(&world, WATCH / 4);
        lone->counted.received += UINT64_C(3125000000) * WATCH / SECOND * 9 / 10;
        lone->counted.sent += UINT64_C(3125000000) * WATCH / SECOND / 2;
    }
    assert_int_equal(lone_event(lone).value, WEIR_STALL_WIRE);
    assert_int_equal(info_of(&world).port_bytes_per_s, UINT64_C(12500000000));
    assert_says(&world, "no fault, the wire is full: this device's port has sent ");
    assert_says(&world, " and can carry 12.5 GB/s");
    pass(&world, 2 * WATCH);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_QP);
    lone_close(lone);
}

/* A host that does not answer is the cause, whoever else uses the port meanwhile. */
static void test_M10_a_host_that_is_gone_beside_other_users(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct world world;
        struct lone *lone = begin(&world, NULL);
        lone->counts = lone->host_silent = world.silent = true;
        lone->retransmits = 7;
        lone->counted.bytes_per_s = 1000000000;
        lone->slow_bytes = 64;
        write_of(&world, 64);
        for (int i = 0; i < 8; i++) {
            pass(&world, WATCH / 4);
            lone->counted.not_ready += k == 0;
            lone->counted.received += k == 0 ? 0 : 240000000;
        }
        assert_int_equal(lone_event(lone).value, WEIR_STALL_HOST);
        assert_int_equal(info_of(&world).cause, WEIR_STALL_HOST);
        assert_int_equal(info_of(&world).control_retransmits, 7);
        lone_close(lone);
    }
}

/* Counts that somebody cleared are none. */
static void test_M10_counts_that_go_back(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->counts = true;
    lone->counted = (struct weir_device_counts){
        .not_ready = 1000, .repeats = 9, .sent = 1000000, .received = 5, .bytes_per_s = 1000000000};
    lone->slow_bytes = 64;
    write_of(&world, 64);
    pass(&world, WATCH / 4 * 3);
    lone->counted = (struct weir_device_counts){.bytes_per_s = 1000000000};
    pass(&world, WATCH);
    assert_int_equal(lone_event(lone).value, WEIR_STALL_QP);
    assert_int_equal(info_of(&world).device_not_ready, 0);
    assert_int_equal(info_of(&world).device_repeats, 0);
    assert_int_equal(info_of(&world).port_sent, 0);
    assert_int_equal(info_of(&world).port_received, 0);
    lone_close(lone);
}

/* A device that does not count has figures of its queues alone. */
static void test_M10_a_device_that_does_not_count(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->counted.not_ready = 9;
    lone->slow_bytes = 64;
    write_of(&world, 64);
    stalls(&world, WEIR_STALL_QP, 0);
    assert_int_equal(info_of(&world).device_counts, 0);
    assert_int_equal(info_of(&world).device_not_ready, 0);
    assert_says(&world, "; device in ");
    lone_close(lone);
}

/* One receive of the QP does not come back, so the QP's end is waited for. */
static void test_M10_a_device_that_keeps_a_broken_session(void **state) {
    (void)state;
    weir_engine_options options = limits();
    struct world world;
    struct lone *lone = begin_on(&world, lone_open_own(&options));
    lone_swallow(lone);
    break_session(&world);
    stalls(&world, WEIR_STALL_DRAIN, 0);
    assert_says(&world, "this device has not given back all that was posted on it");
    lone_close(lone);
}

static void test_M10_receives_that_the_device_refuses(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->recv_error = WEIR_EAGAIN;
    lone_notify(lone, 1, 1); /* its buffer is not posted anew */
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_DEVICE, WEIR_EAGAIN);
    assert_says(&world, "this engine's device refuses work or receives that it has room for");
    lone->recv_error = 0;
    lone_close(lone);
}

static void test_M10_bytes_in_flight(void **state) {
    (void)state;
    weir_engine_options options = limits();
    options.inflight_bytes_max = 64;
    struct world world;
    struct lone *lone = begin(&world, &options);
    weir_peer second = open_peer(lone, ALSO);
    answer(lone, ALSO, 2);
    weir_remote remote;
    assert_int_equal(lone_import(lone, second, 2, 4096, &remote), WEIR_OK);
    lone->slow_bytes = 64;
    weir_segment segment = {world.local, remote, 0, 0, 64};
    weir_transfer transfer;
    assert_int_equal(weir_write(lone->engine, second, &segment, 1, NULL, &transfer), WEIR_OK);
    write_of(&world, 32);
    lone_pass(lone, WATCH + LATE);
    uint32_t causes = 0;
    for (int i = 0; i < 2; i++) {
        weir_event event = lone_event(lone);
        assert_int_equal(event.type, WEIR_EVENT_STALLED);
        causes |= 1u << event.value;
        assert_int_equal(event.peer.id == second.id, event.value == WEIR_STALL_QP);
    }
    assert_int_equal(causes, 1u << WEIR_STALL_QP | 1u << WEIR_STALL_INFLIGHT);
    assert_int_equal(info_of(&world).inflight_bytes_engine, 64);
    assert_int_equal(info_of(&world).inflight_bytes_max, 64);
    assert_says(&world, "as many bytes are in flight, to all peers, as there may be");
    lone_close(lone);
}

/* Data of one is under way, and the limit of bytes in flight holds up the rest of it; what those
 * before wait for is not that. */
static void test_M10_credits_behind_data_under_way(void **state) {
    (void)state;
    weir_engine_options options = limits();
    options.inflight_bytes_max = 64;
    struct world world;
    struct lone *lone = begin(&world, &options);
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world.peer);
    lone->slow_bytes = 64;
    weir_segment segments[2] = {{world.local, world.remote, 0, 0, 64},
                                {world.local, world.remote, 1000, 1000, 64}};
    weir_transfer transfer;
    assert_int_equal(weir_write(lone->engine, world.peer, segments, 2, NULL, &transfer), WEIR_OK);
    lone_run(lone);
    assert_int_equal(info_of(&world).pending, 1);
    assert_true(info_of(&world).sq_used > 0);
    world.state.notifications = 8;
    stalls(&world, WEIR_STALL_PEER_NOTIFICATIONS, 0);
    lone_close(lone);
}

static void test_M10_a_device_that_failed(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->executes = false;
    write_of(&world, 64);
    lone->no_destroy = true;
    lone->fails = true;
    lone_pass(lone, WATCH / 10);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_DEVICE_FAILED);
    assert_int_equal(info_of(&world).still_ns, 0); /* it is gone, and told so */
    lone->no_destroy = false;
    lone_close(lone);
}

/* Nobody looked for so long: the late look says so, and that all is well since. */
static void test_M10_an_application_that_makes_no_progress(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone->slow_bytes = 64;
    write_of(&world, 64);
    lone_pass(lone, WATCH / 4);
    lone->now_ns += 5 * WATCH;
    lone->slow_bytes = 0; /* it completed meanwhile */
    lone_run(lone);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_HERE);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
    no_event(lone);
    assert_says(&world, "this application made no progress for 5000 ms");
    /* And when nothing completed meanwhile, it is ours first, and then what else it is. */
    lone->slow_bytes = 64;
    write_of(&world, 64);
    lone_pass(lone, WATCH / 4);
    lone->now_ns += WATCH * 3 / 4;
    lone_pass(lone, LATE);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_HERE);
    assert_in_range(info_of(&world).absent_ns, WATCH * 3 / 4, WATCH);
    assert_says(&world, "ms: this application made no progress for");
    lone_pass(lone, WATCH + LATE);
    no_event(lone);
    assert_says(&world, "ms when this was told: this application made no progress for");
    assert_says(&world, " ms: what is posted has neither completed nor failed\nwaiting 1");
    assert_int_equal(info_of(&world).cause, WEIR_STALL_QP);
    assert_int_equal(info_of(&world).absent_ns, 0);
    lone_close(lone);
}

/* All had completed before nobody looked any more, and what is outstanding since is new. */
static void test_M10_an_absence_without_work_is_no_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (int again = 0; again < 2; again++) {
        lone->slow_bytes = 64;
        write_of(&world, 64);
        lone_pass(lone, WATCH / 4);
        lone->slow_bytes = 0;
        lone_run(lone);
        lone->now_ns += 5 * WATCH;
        lone->slow_bytes = 64;
        if (again)
            write_of(&world, 64);
        lone_run(lone);
        no_event(lone);
    }
    lone_pass(lone, WATCH / 2);
    no_event(lone);
    assert_int_equal(info_of(&world).stalls, 0);
    lone_close(lone);
}

static struct lone *begin_with_a_small_budget(struct world *world) {
    weir_engine_options options = limits();
    options.poll_budget = 1;
    options.recv_credits = 64;
    begin(world, &options)->piles_up = true;
    return world->lone;
}

/* One step of an application that takes up one completion or two. */
static void take_few_up(struct lone *lone) {
    weir_notification notification;
    lone->now_ns += WATCH / 10;
    weir_engine_progress(lone->engine);
    while (weir_notification_take(lone->engine, &notification) == WEIR_OK) {
    }
}

/* Completions come as fast as the application takes them up, and the one of this peer's write
 * stands behind them. */
static void test_M10_an_application_that_takes_up_too_little(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_with_a_small_budget(&world);
    weir_event event = {.type = 0};
    uint64_t looks = 0;
    lone->slow_bytes = 64;
    write_of(&world, 64);
    for (uint64_t number = 1; number <= 40; number++)
        lone_notify(lone, number, 0);
    while (weir_event_take(lone->engine, &event) == WEIR_EAGAIN) {
        assert_in_range(++looks, 1, 16);
        take_few_up(lone);
    }
    assert_in_range(looks, 10, 16);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.value, WEIR_STALL_HERE);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_HERE);
    assert_int_equal(info_of(&world).absent_ns, 0);
    assert_says(&world, "completions waited for this application all the time: it makes progress "
                        "too seldom for what comes, or poll_budget is too small");
    /* It takes up all, and what is left is the device's. */
    lone_pass(lone, WATCH + LATE);
    no_event(lone);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_QP);
    lone->slow_bytes = 0;
    lone_pass(lone, LATE);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_RESUMED);
    lone_close(lone);
}

/* Something of the peer's is among what is taken up in time. */
static void test_M10_a_queue_that_is_never_empty_is_no_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_with_a_small_budget(&world);
    uint64_t number = 0;
    for (int looks = 1; looks <= 30; looks++) {
        if (looks % 3 == 0)
            lone_submit_notification(lone, world.peer);
        for (int of_three = 0; of_three < 3; of_three++)
            lone_notify(lone, ++number, 0);
        take_few_up(lone);
        no_event(lone);
    }
    assert_in_range(lone_peer(lone, 1)->completed, 3, 7);
    lone_close(lone);
}

/* ---- the peer's word ---------------------------------------------------- */

static struct lone *begin_short_of_credits(struct world *world) {
    struct lone *lone = begin(world, NULL);
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world->peer);
    lone_run(lone);
    return lone;
}

/* It is asked when half of the time has passed. The question may get lost, so it is repeated. */
static void test_M10_a_peer_is_asked_again(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    lone_pass(lone, WATCH / 2 - MS);
    assert_int_equal(lone_count(lone, world.conn, WIRE_ASK), 0);
    lone_pass(lone, LATE);
    assert_int_equal(lone_count(lone, world.conn, WIRE_ASK), 1);
    uint64_t first = lone_heard(lone, world.conn, WIRE_ASK)->epoch;
    lone_pass(lone, 5 * WATCH);
    assert_in_range(lone_count(lone, world.conn, WIRE_ASK), 5, 7);
    const struct wire_message *question = lone_heard(lone, world.conn, WIRE_ASK);
    assert_true(question->epoch != 0 && question->epoch == first);
    /* Answers that nobody asked for say nothing. */
    uint64_t stale = lone->engine->stats.control_stale;
    struct wire_message answer = {.type = WIRE_STATE, .echo = question->epoch + 1};
    answer.state.notifications = 7;
    lone_say(lone, world.conn, 1, &answer);
    assert_int_equal(lone->engine->stats.control_stale, stale + 1);
    assert_int_equal(info_of(&world).peer_notifications, 0);
    assert_true(info_of(&world).peer_silent_ns > 4 * WATCH);
    answer.echo--;
    lone_say(lone, world.conn, 1, &answer);
    assert_int_equal(info_of(&world).peer_notifications, 7);
    assert_int_equal(info_of(&world).peer_silent_ns, 0);
    assert_true(info_of(&world).peer_answer_ns > 4 * WATCH);
    answer.state.notifications = 8;
    lone_say(lone, world.conn, 1, &answer); /* once more */
    assert_int_equal(info_of(&world).peer_notifications, 7);
    assert_int_equal(lone->engine->stats.control_stale, stale + 2);
    /* And then it is asked something new. */
    lone_pass(lone, WATCH + LATE);
    question = lone_heard(lone, world.conn, WIRE_ASK);
    assert_true(question != NULL && question->epoch != first);
    lone_close(lone);
}

static void test_M10_a_lost_question_is_asked_again(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    lone_pass(lone, WATCH / 2 + LATE);
    const struct wire_message *question = lone_heard(lone, world.conn, WIRE_ASK);
    assert_non_null(question);
    uint64_t before = question->epoch;
    lone_cut(lone, world.conn, WEIR_ECONNECT);
    world.conn = lone_visit(lone);
    lone_return(lone, world.conn, 1, THERE);
    lone_pass(lone, LATE);
    question = lone_heard(lone, world.conn, WIRE_ASK);
    assert_non_null(question);
    assert_true(question->epoch != before);
    lone_close(lone);
}

static void test_M10_a_peer_that_makes_no_progress(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    world.silent = true;
    stalls(&world, WEIR_STALL_PEER_ABSENT, 0);
    assert_says(&world, "the peer makes no progress: it was asked 2");
    lone_close(lone);
}

static void test_M10_a_peer_that_makes_progress_too_seldom(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    world.state.away_ns = 700 * MS;
    world.state.notifications = 8;
    stalls(&world, WEIR_STALL_PEER_ABSENT, 0);
    assert_says(&world, "makes progress too seldom: its application was away for 700 ms");
    world.state.thread = true;
    pass(&world, WATCH + LATE);
    assert_says(&world, "too seldom: its engine's thread was away for 700 ms");
    lone_close(lone);
}

static void test_M10_a_peer_that_takes_no_notifications(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    world.state.notifications = 8;
    stalls(&world, WEIR_STALL_PEER_NOTIFICATIONS, 0);
    assert_says(&world, "the peer's application takes no notifications: 8 wait for it there");
    lone_close(lone);
}

static void test_M10_a_peer_that_takes_no_messages(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    send_to(&world, 7);
    world.state.inbox_count = 2;
    world.state.inboxes[0] = (struct wire_state_inbox){6, 100, 100};
    world.state.inboxes[1] = (struct wire_state_inbox){7, 3, 4};
    stalls(&world, WEIR_STALL_PEER_MESSAGES, 0);
    assert_int_equal(info_of(&world).peer_ready, 3);
    assert_int_equal(info_of(&world).peer_held, 4);
    assert_says(&world, "the peer's application takes no messages from inbox 7, where those of 3");
    world.state.inboxes[1].ready = 0;
    pass(&world, WATCH + LATE);
    assert_says(&world, "gives no messages back that it took from inbox 7: it holds 4");
    world.state.inbox_count = 1; /* another's fullness says nothing of this one */
    pass(&world, WATCH + LATE);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_INBOX_FULL);
    lone_close(lone);
}

static void test_M10_a_peer_that_is_stopped(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    world.silent = lone->stopped = true;
    stalls(&world, WEIR_STALL_PEER_STOPPED, 0);
    assert_says(&world, "the peer's process is stopped");
    lone_close(lone);
}

/* Its process is known of a session that broke, too. */
static void test_M10_a_peer_that_is_stopped_without_a_session(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    break_session(&world);
    world.silent = lone->stopped = true;
    stalls(&world, WEIR_STALL_PEER_STOPPED, 0);
    lone_close(lone);
}

/* The process was that of an instance which said that it goes. */
static void test_M10_a_peer_that_left_and_is_stopped(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    lone_say(lone, world.conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_GONE);
    lone->stopped = true;
    world.conn = 0;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world.peer), WEIR_OK);
    send_to(&world, 7);
    pass(&world, WATCH + LATE);
    assert_int_not_equal(info_of(&world).cause, WEIR_STALL_PEER_STOPPED);
    lone_close(lone);
}

/* Its host, or the network: also where its device is waited for, or an answer to the dial. */
static void test_M10_a_host_that_is_gone(void **state) {
    (void)state;
    for (int posted = 0; posted < 2; posted++) {
        struct world world;
        struct lone *lone = posted ? begin(&world, NULL) : begin_short_of_credits(&world);
        lone->slow_bytes = 64;
        if (posted)
            write_of(&world, 64);
        world.silent = lone->host_silent = true;
        lone->retransmits = 5;
        stalls(&world, WEIR_STALL_HOST, 0);
        assert_int_equal(info_of(&world).host_silent, 1);
        assert_int_equal(info_of(&world).control_retransmits, 5);
        assert_says(&world, "the peer's host does not answer: it is gone, or the network is");
        assert_says(&world, "(repeats of TCP in vain: 5)");
        lone_close(lone);
    }
    weir_engine_options options = limits();
    struct world world = {.lone = lone_open(&options)};
    assert_int_equal(weir_peer_open(world.lone->engine, THERE, &world.peer), WEIR_OK);
    lone_submit_notification(world.lone, world.peer);
    world.lone->host_silent = true;
    stalls(&world, WEIR_STALL_HOST, 0);
    lone_close(world.lone);
}

/* This engine's word about itself when it is asked. */
static void test_M10_a_question_is_answered(void **state) {
    (void)state;
    weir_engine_options options = limits();
    options.notifications_max = 4;
    struct world world;
    struct lone *lone = begin(&world, &options);
    for (uint64_t i = 1; i <= 6; i++)
        lone_notify(lone, i, i); /* two are held */
    struct wire_message question = {.type = WIRE_ASK, .epoch = 77};
    lone_say(lone, world.conn, 1, &question);
    const struct wire_message *answer = lone_heard(lone, world.conn, WIRE_STATE);
    assert_non_null(answer);
    assert_int_equal(answer->echo, 77);
    assert_int_equal(answer->state.notifications, 6);
    assert_int_equal(answer->state.session, 1);
    assert_int_equal(answer->state.away_ns, 0);
    assert_false(answer->state.thread);
    assert_int_equal(answer->state.inbox_count, 0);
    lone->now_ns += 3 * SECOND; /* nobody called */
    lone_say(lone, world.conn, 1, &question);
    answer = lone_heard(lone, world.conn, WIRE_STATE);
    assert_int_equal(answer->state.away_ns, 3 * SECOND);
    engine_next_deadline(lone->engine); /* it slept, and was woken by the question */
    lone->now_ns += 3 * SECOND;
    lone_say(lone, world.conn, 1, &question);
    answer = lone_heard(lone, world.conn, WIRE_STATE);
    assert_int_equal(answer->state.away_ns, 0);
    /* Nobody else's question is answered, nor in a peer's name on another connection. */
    uint64_t visit = lone_visit(lone);
    lone_say(lone, visit, 3, &question);
    lone_say(lone, visit, 1, &question);
    assert_int_equal(lone_count(lone, visit, WIRE_STATE), 0);
    lone_close(lone);
}

/* ---- what is no stall -------------------------------------------------- */

/* All slots are taken, and something completes now and then: the wire is full, or slow. */
static void test_M10_what_completes_now_and_then_is_no_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (uint64_t i = 0; i < 40; i++)
        write_of(&world, 64 + i % 2);
    for (uint32_t i = 0; i < 8; i++) {
        lone->slow_bytes = 65 - i % 2;
        write_of(&world, 64);
        write_of(&world, 65);
        lone_pass(lone, WATCH * 3 / 4);
    }
    no_event(lone);
    assert_int_equal(info_of(&world).stalls, 0);
    lone_close(lone);
}

/* Nothing is outstanding: no look, no deadline, however long. With the first work there is one,
 * also where nothing is posted, and who sleeps is told. */
static void test_M10_idle_costs_nothing(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_engine *engine = lone->engine;
    lone_pass(lone, 60 * WATCH);
    assert_int_equal(engine_next_deadline(engine), UINT64_MAX);
    assert_int_equal(engine->watch_next_ns, 0);
    assert_int_equal(info_of(&world).still_ns, 0);
    assert_says(&world, "nothing is outstanding to " THERE ", and nothing was stalled");
    send_to(&world, 7);
    lone_run(lone);
    assert_in_range(engine_next_deadline(engine) - lone->now_ns, 1, WATCH / 4);
    uint64_t looks = 0, next, last = 0;
    while ((next = engine_next_deadline(engine)) < lone->now_ns + 10 * WATCH && looks < 100) {
        lone->now_ns = next > lone->now_ns ? next : lone->now_ns + 1;
        last = lone->now_ns;
        lone_run(lone);
        looks++;
        weir_event event;
        if (weir_event_take(engine, &event) == WEIR_OK)
            break;
    }
    assert_in_range(looks, 8, 20); /* the deadlines alone lead to the verdict */
    (void)last;
    assert_int_equal(info_of(&world).stalled, 1);
    lone_close(lone);
}

static void test_M10_off(void **state) {
    (void)state;
    weir_engine_options options = limits();
    options.watchdog_ns = WEIR_WATCHDOG_NONE;
    struct world world;
    struct lone *lone = begin(&world, &options);
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world.peer);
    lone_pass(lone, 5 * WATCH);
    lone->now_ns += 5 * WATCH;
    lone_pass(lone, 5 * WATCH);
    no_event(lone);
    weir_stall_info info = info_of(&world);
    assert_int_equal(info.stalled, 0);
    assert_int_equal(info.still_ns, 0);
    assert_int_equal(info.cause, WEIR_STALL_CREDITS); /* to be asked it is all the same */
    lone_close(lone);
}

/* ---- ends -------------------------------------------------------------- */

/* The peer is gone: GONE is the end of its stall. */
static void test_M10_gone_ends_a_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_CREDITS, 0);
    struct wire_message bye = {.type = WIRE_BYE};
    lone_say(lone, world.conn, 1, &bye);
    weir_event event = lone_event(lone);
    while (event.type == WEIR_EVENT_DEGRADED)
        event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    lone_pass(lone, 3 * WATCH);
    no_event(lone);
    lone_close(lone);
}

/* The application cancels all: nothing is outstanding any more. */
static void test_M10_the_end_of_work_ends_a_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_transfer last = {0};
    for (int i = 0; i < 9; i++)
        last = lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_CREDITS, 0);
    assert_int_equal(weir_transfer_cancel(lone->engine, last), WEIR_OK);
    resumes(&world);
    assert_int_equal(info_of(&world).cause, WEIR_STALL_NONE);
    lone_pass(lone, WATCH); /* and the next one is another */
    lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_CREDITS, 0);
    assert_int_equal(info_of(&world).stalls, 2);
    lone_close(lone);
}

static void test_M10_a_closed_handle_hears_nothing_more(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    for (int i = 0; i < 9; i++)
        lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_CREDITS, 0);
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    char text[8];
    assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
    assert_int_equal(weir_stall_query(lone->engine, world.peer, &info), WEIR_ESTALE);
    assert_int_equal(weir_stall_text(lone->engine, world.peer, text, sizeof(text)), WEIR_ESTALE);
    lone_pass(lone, 3 * WATCH);
    no_event(lone);
    lone_close(lone);
}

/* The handle is closed, and what was posted cannot end yet: nobody is told, for the application
 * knows no handle of the peer. Opened again, it has a stall of its own. */
static void test_M10_what_outlasts_its_handle_is_no_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_transfer transfer = break_session(&world);
    assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
    pass(&world, 3 * WATCH);
    assert_int_equal(weir_transfer_status(lone->engine, transfer), WEIR_EINPROGRESS);
    no_event(lone);
    assert_int_equal(weir_peer_open(lone->engine, THERE, &world.peer), WEIR_OK);
    pass(&world, WATCH + LATE);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.peer.id, world.peer.id);
    lone_close(lone);
}

/* Work for an address turns out to be for a peer, which then is gone: the time that this work
 * waited is not counted for the next work for that address. */
static void test_M10_an_address_keeps_no_time_of_a_peer(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_event event;
    weir_peer second;
    assert_int_equal(weir_peer_open(lone->engine, ALSO, &second), WEIR_OK);
    lone_submit_notification(lone, second);
    pass(&world, WATCH - WATCH / 10);
    no_event(lone);
    lone_say_iam(lone, lone_dialled(lone, ALSO), 1, THERE);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    lone_say(lone, world.conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    world.conn = 0;
    lone_submit_notification(lone, second);
    pass(&world, WATCH - MS);
    no_event(lone);
    pass(&world, LATE);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.peer.id, second.id);
    lone_close(lone);
}

/* Another name of the peer; events go on under the handle that the peer has. */
static weir_peer open_name(struct world *world, const char *name) {
    weir_event event;
    weir_peer peer;
    assert_int_equal(weir_peer_open(world->lone->engine, name, &peer), WEIR_OK);
    weir_peer_connect(world->lone->engine, peer);
    lone_say_iam(world->lone, lone_dialled(world->lone, name), 1, THERE);
    assert_true(lone_told(world->lone, WEIR_EVENT_SAME, &event));
    return peer;
}

/* A peer is gone, and the device keeps what is left of it: work for the next one at its address
 * waits for that. */
static void test_M10_work_for_the_next_peer_waits_for_the_last(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_event event;
    lone->no_destroy = true;
    lone_say(lone, world.conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    world.conn = 0;
    pass(&world, 2 * WATCH);
    no_event(lone);
    lone_submit_notification(lone, world.peer);
    stalls(&world, WEIR_STALL_DRAIN, 0);
    assert_says(&world, "this device has not given back all that was posted on it");
    lone->no_destroy = false;
    lone_pass(lone, WATCH / 4);
    uint64_t conn = lone_dialled(lone, THERE);
    assert_int_not_equal(conn, 0);
    lone_say_iam(lone, conn, 2, THERE);
    lone_answer(lone, conn, 2, 1);
    assert_true(lone_told(lone, WEIR_EVENT_UP, &event));
    lone_pass(lone, WATCH / 4);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_RESUMED);
    assert_int_equal(event.peer.id, world.peer.id);
    lone_close(lone);
}

/* The same where events of the one that is gone carried the handle of another name: STALLED and
 * RESUMED carry that of the work. Closed, it hears nothing more. */
static void test_M10_work_for_the_next_peer_under_another_name(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct world world;
        struct lone *lone = begin(&world, NULL);
        weir_event event;
        weir_peer name = open_name(&world, ALSO), own;
        assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
        assert_int_equal(weir_peer_open(lone->engine, THERE, &own), WEIR_OK);
        assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
        lone->no_destroy = true;
        lone_say(lone, world.conn, 1, &(struct wire_message){.type = WIRE_BYE});
        assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
        assert_int_equal(event.peer.id, name.id);
        world.conn = 0;
        world.peer = way == 1 ? name : own; /* either names its address again */
        lone_submit_notification(lone, world.peer);
        stalls(&world, WEIR_STALL_DRAIN, 0);
        if (way == 2) {
            assert_int_equal(weir_peer_close(lone->engine, own), WEIR_OK);
            pass(&world, 2 * WATCH);
            lone->no_destroy = false;
            pass(&world, WATCH);
            assert_false(lone_told(lone, WEIR_EVENT_RESUMED, &event));
            lone_close(lone);
            continue;
        }
        lone->no_destroy = false;
        lone_pass(lone, WATCH / 4);
        const char *address = way == 1 ? ALSO : THERE;
        uint64_t conn = lone_dialled(lone, address);
        assert_int_not_equal(conn, 0);
        lone_say_iam(lone, conn, 2, address);
        lone_answer(lone, conn, 2, 1);
        assert_true(lone_told(lone, WEIR_EVENT_RESUMED, &event) ||
                    (lone_pass(lone, WATCH / 4), lone_told(lone, WEIR_EVENT_RESUMED, &event)));
        assert_int_equal(event.peer.id, world.peer.id);
        lone_close(lone);
    }
}

/* The stall of an address is over when it turns out to be a peer's: RESUMED is told before all that
 * comes of the peer then, whose events may carry the handle of the address. */
static void test_M10_a_stall_of_an_address_ends_with_it(void **state) {
    (void)state;
    weir_engine_options options = limits();
    struct lone *lone = lone_open(&options);
    struct world world = {.lone = lone};
    uint64_t conn;
    lone_meet(lone, 1, THERE, &conn);
    assert_int_equal(weir_peer_open(lone->engine, ALSO, &world.peer), WEIR_OK);
    lone_submit_notification(lone, world.peer);
    pass(&world, WATCH + LATE);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_STALLED);
    lone_say_iam(lone, lone_dialled(lone, ALSO), 1, THERE);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_RESUMED);
    assert_int_equal(event.peer.id, world.peer.id);
    lone_say(lone, conn, 1, &(struct wire_message){.type = WIRE_BYE});
    assert_true(lone_told(lone, WEIR_EVENT_GONE, &event));
    pass(&world, WATCH / 2);
    no_event(lone);
    lone_close(lone);
}

/* ---- several names ----------------------------------------------------- */

/* Names that are opened and closed while work is outstanding put off nothing. */
static void test_M10_closing_a_name_is_no_progress(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin_short_of_credits(&world);
    weir_event event = {0};
    for (uint64_t passed = 0; passed < 2 * WATCH && event.type == 0; passed += WATCH / 4) {
        weir_peer name = open_name(&world, ALSO);
        assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
        world.peer = name; /* events carry this one from now on */
        assert_int_equal(weir_peer_open(lone->engine, THERE, &name), WEIR_OK);
        assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
        world.peer = name;
        pass(&world, WATCH / 4);
        while (weir_event_take(lone->engine, &event) == WEIR_OK && event.type == WEIR_EVENT_SAME) {
        }
        event.type = event.type == WEIR_EVENT_SAME ? 0 : event.type;
    }
    assert_int_equal(event.type, WEIR_EVENT_STALLED);
    assert_int_equal(event.peer.id, world.peer.id);
    lone_close(lone);
}

/* A stall that was told is not told again, and its end is, when another handle is closed than the
 * one under which it was told: that of the address at which the peer is, which was closed, and
 * opened again when events carried the handle of another name. */
static void test_M10_closing_another_name_ends_no_stall(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_event event;
    weir_peer name = open_name(&world, ALSO), own;
    assert_int_equal(weir_peer_close(lone->engine, world.peer), WEIR_OK);
    world.peer = name;
    assert_int_equal(weir_peer_open(lone->engine, THERE, &own), WEIR_OK);
    assert_true(lone_told(lone, WEIR_EVENT_SAME, &event));
    assert_int_equal(event.peer.id, own.id);
    assert_int_equal(event.value, name.id);
    weir_transfer last = {0};
    for (int i = 0; i < 9; i++)
        last = lone_submit_notification(lone, name);
    lone_run(lone);
    stalls(&world, WEIR_STALL_CREDITS, 0);
    assert_int_equal(weir_peer_close(lone->engine, own), WEIR_OK);
    pass(&world, 2 * WATCH);
    no_event(lone);
    assert_int_equal(info_of(&world).stalled, 1);
    assert_int_equal(weir_transfer_cancel(lone->engine, last), WEIR_OK);
    lone_pass(lone, WATCH / 4);
    event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_RESUMED);
    assert_int_equal(event.peer.id, name.id);
    lone_close(lone);
}

/* ---- the calls --------------------------------------------------------- */

static int takes_one_of_two(struct lone *lone, uint32_t *count_io) {
    (void)lone;
    if (*count_io < 2)
        return WEIR_OK;
    *count_io = 1;
    return WEIR_EAGAIN;
}

static int takes_none(struct lone *lone, uint32_t *count_io) {
    (void)lone;
    *count_io = 0;
    return WEIR_EDEVICE;
}

/* Notes wait for credits behind an orphan; the device fails as it is to be closed. */
static void test_S7_notes_wait_behind_an_orphan_that_cannot_be_closed(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    assert_int_equal(lone->engine->options.qp_count, 1);
    send_to(&world, 7);
    say_meet(&world, 1);
    say_grant(&world, 2, true);
    for (int i = 0; i < 20; i++)
        send_to(&world, 7);
    lone_pass(lone, WATCH / 8);
    assert_in_range(info_of(&world).credit_waits, 2, 20);
    lone->slow_bytes = 16;
    write_of(&world, 16);
    lone->refuse = takes_one_of_two;
    weir_segment segments[2] = {{world.local, world.remote, 0, 0, 8},
                                {world.local, world.remote, 64, 64, 8}};
    weir_transfer transfer;
    assert_int_equal(weir_write(lone->engine, world.peer, segments, 2, NULL, &transfer), WEIR_OK);
    lone_run(lone);
    assert_int_equal(lone->engine->stats.partial_posts, 1);
    assert_true(lone->engine->qps[0].ledger.open);
    lone->refuse = takes_none;
    lone->slow_bytes = 0;
    lone_run(lone);
    lone_pass(lone, WATCH);
    assert_int_equal(lone->engine->stats.sessions_failed, 1);
    lone->refuse = NULL;
    lone_close(lone);
}

static void test_M10_arguments(void **state) {
    (void)state;
    struct world world;
    struct lone *lone = begin(&world, NULL);
    weir_stall_info info = {0};
    char text[10];
    memset(text, 'x', sizeof(text));
    assert_int_equal(weir_stall_query(lone->engine, world.peer, &info), WEIR_EINVAL);
    assert_int_equal(weir_stall_query(lone->engine, world.peer, NULL), WEIR_EINVAL);
    assert_int_equal(weir_stall_query(NULL, world.peer, &info), WEIR_EINVAL);
    assert_int_equal(weir_stall_text(lone->engine, world.peer, text, 0), WEIR_EINVAL);
    assert_int_equal(weir_stall_text(lone->engine, world.peer, NULL, 8), WEIR_EINVAL);
    assert_int_equal(weir_stall_text(lone->engine, (weir_peer){0}, text, 8), WEIR_ESTALE);
    info.size = offsetof(weir_stall_info, stalled); /* an older one */
    info.cause = 77;
    assert_int_equal(weir_stall_query(lone->engine, world.peer, &info), WEIR_OK);
    assert_int_equal(info.peer.id, world.peer.id);
    assert_int_equal(info.cause, 77);
    assert_int_equal(weir_stall_text(lone->engine, world.peer, text, 8), WEIR_OK);
    assert_string_equal(text, "nothing");
    assert_int_equal(text[8], 'x');
    for (int i = WEIR_STALL_NONE; i <= WEIR_STALL_WIRE; i++)
        assert_string_not_equal(weir_stall_cause_name(i), "?");
    assert_string_equal(weir_stall_cause_name(WEIR_STALL_INBOX_FULL), "inbox_full");
    assert_string_equal(weir_stall_cause_name(-1), "?");
    assert_string_equal(weir_stall_cause_name(1000), "?");
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M10_a_device_that_completes_nothing),
        cmocka_unit_test(test_M10_credits),
        cmocka_unit_test(test_M10_new_data_behind_old_credits),
        cmocka_unit_test(test_M10_credits_of_messages),
        cmocka_unit_test(test_M10_inboxes),
        cmocka_unit_test(test_M10_inboxes_that_are_not_named),
        cmocka_unit_test(test_M10_memory_that_is_not_handed_over),
        cmocka_unit_test(test_M5_no_room_is_wanted_without_memory),
        cmocka_unit_test(test_M10_memory_that_is_handed_over_at_last),
        cmocka_unit_test(test_M10_memory_is_no_reason_without_a_session),
        cmocka_unit_test(test_M10_memory_that_is_refused),
        cmocka_unit_test(test_M10_a_handshake_that_is_not_answered),
        cmocka_unit_test(test_M10_nobody_takes_connections),
        cmocka_unit_test(test_M10_an_address_that_cannot_be_dialled),
        cmocka_unit_test(test_M10_a_peer_that_refuses_for_now),
        cmocka_unit_test(test_M10_settle_is_not_answered),
        cmocka_unit_test(test_M10_no_session_comes_after_one_that_broke),
        cmocka_unit_test(test_M10_sessions_that_come_up_and_break),
        cmocka_unit_test(test_M10_a_device_stands_still_behind_breaks),
        cmocka_unit_test(test_M10_breaks_of_before_are_no_cause),
        cmocka_unit_test(test_M10_a_link_that_is_down),
        cmocka_unit_test(test_M10_receivers_that_are_not_ready),
        cmocka_unit_test(test_M10_the_wire_is_full),
        cmocka_unit_test(test_M10_a_host_that_is_gone_beside_other_users),
        cmocka_unit_test(test_M10_counts_that_go_back),
        cmocka_unit_test(test_M10_a_device_that_does_not_count),
        cmocka_unit_test(test_S7_notes_wait_behind_an_orphan_that_cannot_be_closed),
        cmocka_unit_test(test_M10_a_device_that_keeps_a_broken_session),
        cmocka_unit_test(test_M10_receives_that_the_device_refuses),
        cmocka_unit_test(test_M10_bytes_in_flight),
        cmocka_unit_test(test_M10_credits_behind_data_under_way),
        cmocka_unit_test(test_M10_a_device_that_failed),
        cmocka_unit_test(test_M10_an_application_that_makes_no_progress),
        cmocka_unit_test(test_M10_an_absence_without_work_is_no_stall),
        cmocka_unit_test(test_M10_an_application_that_takes_up_too_little),
        cmocka_unit_test(test_M10_a_queue_that_is_never_empty_is_no_stall),
        cmocka_unit_test(test_M10_a_peer_is_asked_again),
        cmocka_unit_test(test_M10_a_lost_question_is_asked_again),
        cmocka_unit_test(test_M10_a_peer_that_makes_no_progress),
        cmocka_unit_test(test_M10_a_peer_that_makes_progress_too_seldom),
        cmocka_unit_test(test_M10_a_peer_that_takes_no_notifications),
        cmocka_unit_test(test_M10_a_peer_that_takes_no_messages),
        cmocka_unit_test(test_M10_a_peer_that_is_stopped),
        cmocka_unit_test(test_M10_a_peer_that_is_stopped_without_a_session),
        cmocka_unit_test(test_M10_a_peer_that_left_and_is_stopped),
        cmocka_unit_test(test_M10_a_host_that_is_gone),
        cmocka_unit_test(test_M10_a_question_is_answered),
        cmocka_unit_test(test_M10_what_completes_now_and_then_is_no_stall),
        cmocka_unit_test(test_M10_idle_costs_nothing),
        cmocka_unit_test(test_M10_off),
        cmocka_unit_test(test_M10_gone_ends_a_stall),
        cmocka_unit_test(test_M10_the_end_of_work_ends_a_stall),
        cmocka_unit_test(test_M10_a_closed_handle_hears_nothing_more),
        cmocka_unit_test(test_M10_what_outlasts_its_handle_is_no_stall),
        cmocka_unit_test(test_M10_an_address_keeps_no_time_of_a_peer),
        cmocka_unit_test(test_M10_a_stall_of_an_address_ends_with_it),
        cmocka_unit_test(test_M10_work_for_the_next_peer_waits_for_the_last),
        cmocka_unit_test(test_M10_work_for_the_next_peer_under_another_name),
        cmocka_unit_test(test_M10_closing_a_name_is_no_progress),
        cmocka_unit_test(test_M10_closing_another_name_ends_no_stall),
        cmocka_unit_test(test_M10_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
