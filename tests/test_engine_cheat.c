/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_cheat.c: peers that do not play by the rules on a session that is up, and a
 * device that fails for good (M2, H13, E6). The other side is the test itself: see
 * lone_engine.h. */
#include "lone_engine.h"

enum { CREDITS = 8 }; /* of lone_engine's default options */

/* Sessions with instances 1 and 2, on the engine's first two QPs. */
static struct lone *two_peers(void) {
    struct lone *lone = lone_open(NULL);
    assert_int_equal(lone->engine->options.recv_credits, CREDITS);
    for (uint32_t n = 1; n <= 2; n++) {
        uint64_t conn = lone_visit(lone);
        lone_say_who(lone, conn, n, "");
        lone_up(lone, conn, n, 1);
        assert_int_equal(lone_event(lone).type, WEIR_EVENT_UP);
    }
    assert_int_equal(lone->qp_count, 2);
    return lone;
}

static uint32_t posted(const struct lone *lone) {
    return lone->recv_last - lone->recv_first;
}

static void test_M2_more_messages_than_credits_end_the_session(void **state) {
    (void)state;
    struct lone *lone = two_peers();
    uint32_t all = posted(lone);
    uint64_t number = 0, window = lone->engine->options.notifications_max;
    while (number < 10 * window && !lone->failed[0]) {
        struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 1, .number = ++number};
        assert_true(lone_message(lone, 0, &data));
    }
    assert_true(lone->failed[0] && !lone->failed[1]);
    /* Nobody takes, so what is told stays behind: the queue, and a window of credits. */
    assert_in_range(number, 1, window + CREDITS + 1);
    assert_int_equal(lone->engine->stats.data_malformed, 1);
    assert_int_equal(lone->engine->stats.sessions_failed, 1);
    /* The other one has what it was promised. */
    assert_true(posted(lone) >= all / 2);
    struct wire_data good = {.kind = WIRE_NOTIFY, .parts = 1, .number = 1};
    assert_true(lone_message(lone, 1, &good));
    assert_false(lone->failed[1]);
    lone_close(lone);
}

/* Its data is not in the buffer: that may hold what another peer said before. */
static void test_H13_immediate_is_no_message(void **state) {
    weir_notification notification;

    (void)state;
    struct lone *lone = two_peers();
    struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 1, .number = 1, .tag = 77};
    assert_true(lone_message(lone, 0, &data));
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_OK);
    for (uint32_t left = posted(lone); left > 0 && !lone->failed[1]; left--)
        assert_true(lone_immediate(lone, 1));
    assert_true(lone->failed[1] && !lone->failed[0]);
    assert_int_equal(weir_notification_take(lone->engine, &notification), WEIR_EAGAIN);
    assert_int_equal(lone->engine->stats.data_malformed, 1);
    lone_close(lone);
}

static void test_H13_malformed_data_ends_the_session(void **state) {
    (void)state;
    struct lone *lone = two_peers();
    struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 5, .number = 1}; /* of one QP */
    assert_true(lone_message(lone, 0, &data));
    assert_true(lone->failed[0] && !lone->failed[1]);
    data = (struct wire_data){.kind = WIRE_CREDIT, .credit = 1}; /* nothing was sent */
    assert_true(lone_message(lone, 1, &data));
    assert_true(lone->failed[1]);
    assert_int_equal(lone->engine->stats.data_malformed, 2);
    lone_close(lone);
}

/* "There is no room" that nobody asked about: of no stream, of one whose inbox was not met, and of
 * messages that were never sent. */
static void test_M2_no_room_that_nobody_asked_about(void **state) {
    (void)state;
    for (int lie = 0; lie < 3; lie++) {
        struct lone *lone = lone_open(NULL);
        uint64_t conn = lone_visit(lone), number = 0;
        weir_part part = {.base = &lie, .length = sizeof(lie)};
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        weir_transfer transfer;
        lone_say_who(lone, conn, 1, "");
        lone_up(lone, conn, 1, 1);
        weir_event up = lone_event(lone);
        assert_int_equal(up.type, WEIR_EVENT_UP);
        options.flags = WEIR_TRANSFER_NOW;
        if (lie > 0)
            assert_int_equal(
                weir_message_send(lone->engine, up.peer, 7, &part, 1, &options, &transfer),
                WEIR_OK);
        lone_run(lone);
        if (lie > 1) {
            assert_true(lone_inbox(lone, 0, ++number, 1, 7));
            assert_false(lone->failed[0]);
        }
        assert_true(
            lone_words(lone, 0, ++number,
                       &(struct word){.kind = WORD_FULL, .inbox = 7, .number = lie > 1 ? 2 : 1}));
        assert_true(lone->failed[0]);
        assert_int_equal(lone->engine->stats.data_malformed, 1);
        lone_close(lone);
    }
}

/* ---- names ---- */

static struct word lookup_of(const char *name) {
    struct word word = {.kind = WORD_LOOKUP, .named.length = (uint32_t)strlen(name)};
    memcpy(word.named.bytes, name, word.named.length);
    return word;
}

static void publish_one(struct lone *lone, const char *name, uint64_t value) {
    assert_int_equal(weir_value_publish(lone->engine, name, &value, sizeof(value)), WEIR_OK);
}

/* Each ends the session of the one that says it, and of nobody else: an answer to no question, one
 * of another kind, and memory of another instance. A question before the last one's answer, which
 * this device's send queue holds up, is one, too. */
static void test_N4_words_about_names_that_lie_end_the_session(void **state) {
    enum { UNASKED, LISTED, ANOTHERS, TWICE, LIES };
    (void)state;
    for (int lie = 0; lie < LIES; lie++) {
        struct lone *lone = two_peers();
        struct word word = {.kind = WORD_NOTHING};
        uint64_t number = 0;
        weir_remote remote;
        if (lie != UNASKED && lie != TWICE) {
            assert_int_equal(weir_remote_open(lone->engine, (weir_peer){lone_peer(lone, 1)->handle},
                                              "name", 0, &remote),
                             WEIR_ENOTREADY);
            lone_run(lone);
        }
        if (lie == LISTED) {
            word.kind = WORD_LISTED;
        } else if (lie == ANOTHERS) {
            word.kind = WORD_NAMED;
            word.memory.version = 1;
            word.memory.memory = (struct wire_descriptor){
                .memory_id = 1, .length = 4096, .access = WEIR_ACCESS_ALL, .device = "lone"};
            memset(word.memory.memory.instance, 7, WIRE_INSTANCE_SIZE);
        } else if (lie == TWICE) {
            lone->slow_bytes = 1; /* nothing that is sent completes */
            struct word first = lookup_of("one");
            assert_true(lone_words(lone, 0, ++number, &first));
            lone_run(lone);
            assert_false(lone->failed[0]);
            struct word second = lookup_of("two");
            assert_true(lone_words(lone, 0, ++number, &second));
            word = lookup_of("three");
        }
        if (!lone->failed[0])
            assert_true(lone_words(lone, 0, ++number, &word));
        lone_run(lone);
        assert_true(lone->failed[0]);
        assert_false(lone->failed[1]);
        assert_int_equal(lone->engine->stats.data_malformed, 1);
        assert_null(engine_verify(lone->engine));
        lone_close(lone);
    }
}

/* A question that was answered with a lie is asked again, in the session after that. */
static void test_N4_a_lie_is_no_answer(void **state) {
    (void)state;
    struct lone *lone = two_peers();
    struct peer *peer = lone_peer(lone, 1);
    weir_remote remote;
    assert_int_equal(weir_remote_open(lone->engine, (weir_peer){peer->handle}, "name", 0, &remote),
                     WEIR_ENOTREADY);
    lone_run(lone);
    const struct asked_entry *entry = &lone->engine->names.asked.entries[0];
    assert_int_equal(entry->state, ASKED_SAID);
    struct word listed = {.kind = WORD_LISTED};
    assert_true(lone_words(lone, 0, 1, &listed));
    lone_run(lone);
    assert_true(lone->failed[0]);
    assert_int_equal(entry->state, ASKED_LINE);
    assert_int_equal(peer->naming.said, 0);
    assert_null(engine_verify(lone->engine));
    lone_close(lone);
}

/* A list has to go on: the place behind a name is behind the one that was asked for. */
static void test_N4_a_list_that_goes_round_ends_the_session(void **state) {
    (void)state;
    struct lone *lone = two_peers();
    struct word word = {.kind = WORD_LISTED,
                        .named = {.place = 1, .size = 1, .kind = NAME_VALUE, .length = 1}};
    weir_peer peer = {lone_peer(lone, 1)->handle};
    uint64_t position = 0, number = 0;
    weir_name_info info = WEIR_NAME_INFO_INIT;
    word.named.bytes[0] = 'n';
    for (int i = 0; i < 2; i++) {
        assert_false(lone->failed[0]);
        assert_int_equal(weir_peer_name(lone->engine, peer, &position, 0, &info), WEIR_ENOTREADY);
        lone_run(lone);
        assert_true(lone_words(lone, 0, ++number, &word));
        lone_run(lone);
        int rc = weir_peer_name(lone->engine, peer, &position, 0, &info);
        assert_int_equal(rc, i == 0 ? WEIR_OK : WEIR_ENOTREADY);
        assert_int_equal(position, 1);
    }
    assert_true(lone->failed[0]);
    lone_close(lone);
}

static uint32_t posts;

static void note_length(struct lone *lone, uint32_t qp, const struct weir_wr *wr) {
    (void)qp;
    posts++;
    lone->slow_bytes = (uint32_t)wr->length; /* it is under way until that is 0 again */
}

/* Two names that change in each round trip keep no answer away. */
static void test_N4_changes_keep_no_answer_away(void **state) {
    enum { ROUNDS = 20 };
    (void)state;
    struct lone *lone = two_peers();
    struct word word = lookup_of("calm");
    uint64_t number = 0, value = 0;
    lone->executes = true;
    publish_one(lone, "calm", 0);
    assert_true(lone_words(lone, 0, ++number, &word));
    lone_run(lone);
    posts = 0;
    lone->on_post = note_length;
    publish_one(lone, "busy", ++value);
    assert_true(lone_words(lone, 0, ++number, &word));
    const struct peer *peer = lone_peer(lone, 1);
    for (int i = 0; i < ROUNDS && peer->naming.answers != ANSWERS_NOTHING; i++) {
        publish_one(lone, "busy", ++value);
        publish_one(lone, "busy, too", value);
        lone->slow_bytes = 0;
        weir_engine_progress(lone->engine);
        struct wire_data taken = {.kind = WIRE_CREDIT, .credit = (uint64_t)posts << 32};
        assert_true(lone_message(lone, 0, &taken));
    }
    assert_int_equal(peer->naming.answers, ANSWERS_NOTHING);
    assert_false(lone->failed[0]);
    lone_close(lone);
}

/* Somebody repeats our instance, to pass for us at an address of its own. */
static void test_H1_an_echo_is_not_ourselves(void **state) {
    (void)state;
    struct lone *lone = lone_open(NULL);
    char value[WEIR_VALUE_MAX];
    size_t length = sizeof(value);
    weir_peer peer;
    publish_one(lone, "config", 1);
    assert_int_equal(weir_peer_open(lone->engine, "203.0.113.5:7100", &peer), WEIR_OK);
    assert_int_equal(weir_peer_connect(lone->engine, peer), WEIR_ENOTREADY);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, "203.0.113.5:7100");
    uint8_t instance[WIRE_INSTANCE_SIZE];
    memcpy(instance, lone_heard(lone, conn, WIRE_WHO)->from, sizeof(instance));
    struct wire_message iam = {.type = WIRE_IAM};
    memcpy(iam.to, instance, sizeof(instance));
    lone_say_as(lone, conn, instance, &iam);
    lone_run(lone);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_GONE);
    assert_int_equal(event.error, WEIR_EADDRESS);
    assert_int_not_equal(weir_peer_value(lone->engine, peer, "config", 0, value, &length), WEIR_OK);
    lone_close(lone);
}

/* Changes of what was not asked for ask nothing, and one of what was asks once. */
static void test_N4_changes_of_other_names_cost_nothing(void **state) {
    struct lone *lone = two_peers();
    weir_peer peer = {lone_peer(lone, 1)->handle};
    char value[WEIR_VALUE_MAX];
    size_t length = sizeof(value);
    uint64_t number = 0;
    (void)state;
    assert_int_equal(weir_peer_value(lone->engine, peer, "name", 0, value, &length),
                     WEIR_ENOTREADY);
    lone_run(lone);
    struct word word = {.kind = WORD_VALUE, .named = {.version = 1, .length = 1, .bytes = "v"}};
    assert_true(lone_words(lone, 0, ++number, &word));
    lone_run(lone);
    assert_int_equal(lone_event(lone).type, WEIR_EVENT_NAME);
    const struct asked_entry *entry = &lone->engine->names.asked.entries[0];
    for (uint64_t hash = 1; hash < CREDITS / 2; hash++) {
        struct word changed = {.kind = WORD_CHANGED, .hash = hash};
        assert_true(lone_words(lone, 0, ++number, &changed));
        lone_run(lone);
        assert_int_equal(entry->state, ASKED_REST);
    }
    struct word changed = {.kind = WORD_CHANGED, .hash = weir_name_hash("name")};
    assert_true(lone_words(lone, 0, ++number, &changed));
    lone_run(lone);
    assert_int_not_equal(entry->state, ASKED_REST);
    length = sizeof(value); /* the value that it had, until there is an answer */
    assert_int_equal(weir_peer_value(lone->engine, peer, "name", 0, value, &length), WEIR_OK);
    assert_false(lone->failed[0]);
    lone_close(lone);
}

/* Notes that share a SEND: none at all, half of one, and one that no engine says, end the session.
 * One beyond the window is counted, and dropped, as one that comes alone. */
static void test_M2_notes_that_no_engine_says(void **state) {
    enum { NOTHING, HALF, BAD, BEYOND, LIES };
    (void)state;
    for (int lie = 0; lie < LIES; lie++) {
        struct lone *lone = two_peers();
        struct room_note note = {.place = lie == BAD ? 0 : 1, .length = 4, .inbox = 7};
        uint8_t bytes[WEIR_NOTIFY_MAX], one[WORD_NOTE_SIZE];
        const struct word_shared shared = {.tag = 5, .note = one, .length = sizeof(one)};
        word_note_encode(&note, one);
        uint32_t length = word_shared_put(&shared, bytes);
        uint32_t said[LIES] = {[HALF] = length - 1, [BAD] = length, [BEYOND] = length};
        uint64_t base = lie == BEYOND ? 1 : 0; /* it lets the window go on by whole words alone */
        assert_true(
            lone_notes(lone, 0, lie == BEYOND ? WINDOW_SIZE + 1 : 1, base, bytes, said[lie]));
        assert_true(lone->failed[0] == (lie != BEYOND) && !lone->failed[1]);
        assert_int_equal(lone->engine->stats.data_malformed, 1);
        lone_close(lone);
    }
}

/* A poll that fails is a device that failed: everything ends, and nothing begins. */
static void test_E6_poll_that_fails_ends_all(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfers[2];
    weir_peer peer;

    (void)state;
    struct lone *lone = lone_open(NULL);
    assert_int_equal(weir_peer_open(lone->engine, "10.0.0.9:9", &peer), WEIR_OK);
    options.flags = WEIR_TRANSFER_NOTIFY;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &options, &transfers[i]), WEIR_OK);
        lone_run(lone);
        if (i == 0) {
            uint64_t conn = lone_dialled(lone, "10.0.0.9:9");
            lone_say_iam(lone, conn, 1, "10.0.0.9:9");
            lone_run(lone);
        }
        lone->poll_error = WEIR_EDEVICE;
        lone_pass(lone, 100 * SECOND);
        assert_int_not_equal(weir_transfer_status(lone->engine, transfers[i]), WEIR_EINPROGRESS);
    }
    assert_true(lone->engine->device_failed);
    lone_close(lone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_N4_words_about_names_that_lie_end_the_session),
        cmocka_unit_test(test_N4_a_lie_is_no_answer),
        cmocka_unit_test(test_N4_a_list_that_goes_round_ends_the_session),
        cmocka_unit_test(test_N4_changes_keep_no_answer_away),
        cmocka_unit_test(test_N4_changes_of_other_names_cost_nothing),
        cmocka_unit_test(test_H1_an_echo_is_not_ourselves),
        cmocka_unit_test(test_M2_more_messages_than_credits_end_the_session),
        cmocka_unit_test(test_H13_immediate_is_no_message),
        cmocka_unit_test(test_H13_malformed_data_ends_the_session),
        cmocka_unit_test(test_M2_no_room_that_nobody_asked_about),
        cmocka_unit_test(test_M2_notes_that_no_engine_says),
        cmocka_unit_test(test_E6_poll_that_fails_ends_all),
    };
    return cmocka_run_group_tests_name("engine_cheat", tests, NULL, NULL);
}
