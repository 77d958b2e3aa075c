/* SPDX-License-Identifier: Apache-2.0 */
/* test_published.c: names of memories and values between engines (N1 to N5): looked up, changed,
 * withdrawn, listed; over restarts, breaks and refusals; by calls that wait and calls that do not.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine_side.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- what both sides do ---- */

static int open_now(struct side *side, const char *name, weir_remote *remote_out) {
    return weir_remote_open(side->engine, side->peer, name, 0, remote_out);
}

/* Until the name is there. */
static weir_remote open_soon(struct side *side, struct side *other, const char *name) {
    weir_remote remote = {0};
    int rc = WEIR_ENOTREADY;
    STEP_UNTIL(side, other, (rc = open_now(side, name, &remote)) != WEIR_ENOTREADY);
    assert_int_equal(rc, WEIR_OK);
    return remote;
}

static int value_now(struct side *side, const char *name, char out[WEIR_VALUE_MAX + 1]) {
    size_t length = WEIR_VALUE_MAX;
    int rc = weir_peer_value(side->engine, side->peer, name, 0, out, &length);
    out[rc == WEIR_OK ? length : 0] = '\0';
    return rc;
}

static void await_value(struct side *side, struct side *other, const char *name,
                        const char *value) {
    char got[WEIR_VALUE_MAX + 1];
    STEP_UNTIL(side, other, value_now(side, name, got) == WEIR_OK && strcmp(got, value) == 0);
}

static void publish_value(struct side *side, const char *name, const char *value) {
    assert_int_equal(weir_value_publish(side->engine, name, value, strlen(value)), WEIR_OK);
}

/* 8 bytes by a write that is waited for; its status. */
static int write_by(struct side *side, struct side *other, weir_remote remote, uint8_t byte) {
    weir_segment segment = {.local = side->memory, .remote = remote, .length = 8};
    weir_transfer transfer = {0};
    memset(side->bytes, byte, 8);
    int rc = weir_write(side->engine, side->peer, &segment, 1, NULL, &transfer);
    if (rc != WEIR_OK)
        return rc;
    STEP_UNTIL(side, other, weir_transfer_status(side->engine, transfer) != WEIR_EINPROGRESS);
    rc = weir_transfer_status(side->engine, transfer);
    weir_transfer_release(side->engine, transfer);
    return rc;
}

/* The next event about a name; others are dropped. */
static uint64_t name_told(struct side *side, struct side *other) {
    weir_event event = {0};
    STEP_UNTIL(side, other,
               weir_event_take(side->engine, &event) == WEIR_OK && event.type == WEIR_EVENT_NAME);
    assert_int_equal(event.error, 0);
    return event.value;
}

static bool is_name_told(struct side *side) {
    weir_event event;
    while (weir_event_take(side->engine, &event) == WEIR_OK) {
        if (event.type == WEIR_EVENT_NAME)
            return true;
    }
    return false;
}

/* `asker` knows the other's address alone. */
static void open_two(struct side *asker, struct side *other) {
    side_open(asker, NULL);
    side_open(other, NULL);
    assert_int_equal(weir_peer_open(asker->engine, other->address, &asker->peer), WEIR_OK);
}

/* ---- tests ---- */

static void test_N1_memory_is_found_by_its_name(void **state) {
    struct side asker, other;
    weir_remote remote = {0};
    (void)state;
    open_two(&asker, &other);
    assert_int_equal(open_now(&asker, "pages", &remote), WEIR_ENOTREADY);
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
    remote = open_soon(&asker, &other, "pages");
    uint64_t length = 0;
    uint32_t access = 0;
    assert_int_equal(weir_remote_query(asker.engine, remote, &length, &access), WEIR_OK);
    assert_int_equal(length, other.length);
    assert_int_equal(access, WEIR_ACCESS_ALL);
    assert_int_equal(write_by(&asker, &other, remote, 0x31), WEIR_OK);
    assert_int_equal(other.bytes[7], 0x31);
    assert_int_equal(weir_remote_release(asker.engine, remote), WEIR_OK);
    pair_close(&asker, &other);
}

static void test_N1_a_value_is_found_by_its_name(void **state) {
    struct side asker, other;
    char longest[WEIR_VALUE_MAX + 1], got[WEIR_VALUE_MAX + 1];
    size_t length = 2;
    (void)state;
    open_two(&asker, &other);
    memset(longest, 'v', WEIR_VALUE_MAX);
    longest[WEIR_VALUE_MAX] = '\0';
    publish_value(&other, "longest", longest);
    publish_value(&other, "none", "");
    publish_value(&other, "few", "abc");
    await_value(&asker, &other, "longest", longest);
    await_value(&asker, &other, "none", "");
    await_value(&asker, &other, "few", "abc");
    assert_int_equal(weir_peer_value(asker.engine, asker.peer, "few", 0, got, &length),
                     WEIR_ETOOBIG);
    assert_int_equal(length, 2);
    pair_close(&asker, &other);
}

static void test_N2_a_change_is_told_and_ends_what_was_opened(void **state) {
    struct side asker, other;
    weir_memory second;
    void *base;
    (void)state;
    open_two(&asker, &other);
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
    weir_remote first = open_soon(&asker, &other, "pages"),
                twin = open_soon(&asker, &other, "pages");
    assert_int_equal(weir_memory_allocate(other.engine, 4096, WEIR_ACCESS_ALL, &second, &base),
                     WEIR_OK);
    (void)is_name_told(&asker);
    assert_int_equal(weir_memory_publish(other.engine, second, "pages"), WEIR_OK);
    assert_int_equal(name_told(&asker, &other), weir_name_hash("pages"));
    assert_int_equal(write_by(&asker, &other, first, 1), WEIR_ESTALE);
    assert_int_equal(write_by(&asker, &other, twin, 1), WEIR_ESTALE);
    weir_remote third = open_soon(&asker, &other, "pages");
    assert_int_equal(write_by(&asker, &other, third, 0x32), WEIR_OK);
    assert_int_equal(*(uint8_t *)base, 0x32);
    assert_int_equal(other.bytes[0], 0);
    assert_int_equal(weir_remote_release(asker.engine, first), WEIR_OK);
    assert_int_equal(weir_remote_release(asker.engine, twin), WEIR_OK);
    assert_int_equal(weir_remote_release(asker.engine, twin), WEIR_ESTALE);
    /* The same once more is no change. */
    assert_int_equal(weir_memory_publish(other.engine, second, "pages"), WEIR_OK);
    publish_value(&other, "later", "1");
    await_value(&asker, &other, "later", "1");
    assert_int_equal(write_by(&asker, &other, third, 0x33), WEIR_OK);
    pair_close(&asker, &other);
}

static void test_N2_each_change_is_told_once(void **state) {
    struct side asker, other;
    char got[WEIR_VALUE_MAX + 1];
    (void)state;
    open_two(&asker, &other);
    publish_value(&other, "count", "1");
    await_value(&asker, &other, "count", "1");
    (void)is_name_told(&asker);
    publish_value(&other, "count", "2");
    assert_int_equal(name_told(&asker, &other), weir_name_hash("count"));
    publish_value(&other, "count", "3"); /* nobody has asked since */
    publish_value(&other, "last", "1");
    await_value(&asker, &other, "last", "1");
    assert_int_equal(name_told(&asker, &other), weir_name_hash("last"));
    assert_false(is_name_told(&asker));
    await_value(&asker, &other, "count", "3");
    (void)is_name_told(&asker); /* where it had asked before that came */
    assert_int_equal(weir_name_withdraw(other.engine, "count"), WEIR_OK);
    assert_int_equal(name_told(&asker, &other), weir_name_hash("count"));
    assert_int_equal(value_now(&asker, "count", got), WEIR_ENOTREADY);
    publish_value(&other, "count", "4"); /* it was waited for */
    assert_int_equal(name_told(&asker, &other), weir_name_hash("count"));
    assert_int_equal(weir_name_withdraw(other.engine, "nothing"), WEIR_ESTALE);
    pair_close(&asker, &other);
}

/* Memory that is released is found by no name, and the write that would have broken the session of
 * all is stale before it is posted. */
static void test_N2_memory_that_is_released_has_no_name(void **state) {
    struct side asker, other;
    weir_memory second;
    weir_remote none;
    void *base;
    (void)state;
    open_two(&asker, &other);
    assert_int_equal(weir_memory_allocate(other.engine, 4096, WEIR_ACCESS_ALL, &second, &base),
                     WEIR_OK);
    assert_int_equal(weir_memory_publish(other.engine, second, "a"), WEIR_OK);
    assert_int_equal(weir_memory_publish(other.engine, second, "b"), WEIR_OK);
    weir_remote remote = open_soon(&asker, &other, "a");
    (void)is_name_told(&asker);
    assert_int_equal(weir_memory_release(other.engine, second), WEIR_OK);
    assert_int_equal(name_told(&asker, &other), weir_name_hash("a"));
    assert_int_equal(write_by(&asker, &other, remote, 1), WEIR_ESTALE);
    assert_int_equal(open_now(&asker, "a", &none), WEIR_ENOTREADY);
    assert_int_equal(open_now(&asker, "b", &none), WEIR_ENOTREADY);
    assert_int_equal(weir_memory_publish(other.engine, second, "a"), WEIR_ESTALE);
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(asker.engine, &info), WEIR_OK);
    assert_int_equal(info.sessions_failed, 0);
    pair_close(&asker, &other);
}

static void test_N3_names_are_listed(void **state) {
    struct side asker, other;
    enum { COUNT = 40 };
    bool seen[COUNT] = {false};
    weir_name_info info = WEIR_NAME_INFO_INIT;
    (void)state;
    open_two(&asker, &other);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        publish_value(&other, name, name);
    }
    assert_int_equal(weir_name_withdraw(other.engine, "7"), WEIR_OK);
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "8"), WEIR_OK);
    uint64_t position = 0;
    uint32_t listed = 0;
    for (int rc = WEIR_OK; rc == WEIR_OK; listed += rc == WEIR_OK) {
        rc = WEIR_ENOTREADY;
        STEP_UNTIL(&asker, &other,
                   (rc = weir_peer_name(asker.engine, asker.peer, &position, 0, &info)) !=
                       WEIR_ENOTREADY);
        if (rc != WEIR_OK) {
            assert_int_equal(rc, WEIR_EINVAL); /* past the last */
            break;
        }
        int number = atoi(info.name);
        assert_in_range(number, 0, COUNT - 1);
        assert_false(seen[number]);
        seen[number] = true;
        assert_int_equal(info.kind, number == 8 ? WEIR_NAME_OF_MEMORY : WEIR_NAME_OF_VALUE);
        assert_int_equal(info.length, number == 8 ? other.length : strlen(info.name));
    }
    assert_int_equal(listed, COUNT - 1);
    assert_false(seen[7]);
    assert_false(is_name_told(&asker));
    pair_close(&asker, &other);
}

/* An answer that comes when nobody waits any more is none to a question after a change. */
static void test_N3_a_list_is_as_it_is_when_it_is_asked_for(void **state) {
    struct side asker, other;
    uint64_t position = 0;
    weir_name_info info = WEIR_NAME_INFO_INIT;
    (void)state;
    open_two(&asker, &other);
    publish_value(&other, "before", "1");
    await_value(&asker, &other, "before", "1");
    assert_int_equal(weir_peer_name(asker.engine, asker.peer, &position, 0, &info), WEIR_ENOTREADY);
    publish_value(&other, "marker", "1");
    await_value(&asker, &other, "marker", "1"); /* and so that answer is here */
    assert_int_equal(weir_name_withdraw(other.engine, "before"), WEIR_OK);
    publish_value(&other, "marker", "2");
    await_value(&asker, &other, "marker", "2"); /* and the change */
    int rc = WEIR_ENOTREADY;
    STEP_UNTIL(&asker, &other,
               (rc = weir_peer_name(asker.engine, asker.peer, &position, 0, &info)) !=
                   WEIR_ENOTREADY);
    assert_int_equal(rc, WEIR_OK);
    assert_string_equal(info.name, "marker");
    pair_close(&asker, &other);
}

/* Another engine is where the peer was: what is known of the old one is not told of the new one. */
static void test_N2_a_restart_has_names_of_its_own(void **state) {
    struct side asker, other;
    char got[WEIR_VALUE_MAX + 1], address[WEIR_ADDRESS_MAX];
    weir_engine_options options = side_options();
    (void)state;
    open_two(&asker, &other);
    publish_value(&other, "life", "first");
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
    await_value(&asker, &other, "life", "first");
    weir_remote first = open_soon(&asker, &other, "pages");
    memcpy(address, other.address, sizeof(address));
    side_close(&other);
    options.listen = address;
    side_open(&other, &options);
    publish_value(&other, "life", "second");
    await_value(&asker, &other, "life", "second");
    assert_int_equal(write_by(&asker, &other, first, 1), WEIR_ESTALE);
    assert_int_equal(value_now(&asker, "pages", got), WEIR_ENOTREADY);
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
    weir_remote second = open_soon(&asker, &other, "pages");
    assert_int_equal(write_by(&asker, &other, second, 0x41), WEIR_OK);
    assert_int_equal(other.bytes[0], 0x41);
    pair_close(&asker, &other);
}

static void test_N4_bad_names_and_kinds(void **state) {
    struct side asker, other;
    char name[WEIR_NAME_MAX + 1], got[WEIR_VALUE_MAX + 1];
    uint8_t bytes[WEIR_VALUE_MAX + 1] = {0};
    static uint8_t own[4096];
    size_t length = sizeof(got);
    uint64_t position = 0;
    weir_remote remote;
    weir_memory local;
    weir_name_info info = WEIR_NAME_INFO_INIT;
    (void)state;
    open_two(&asker, &other);
    memset(name, 'n', WEIR_NAME_MAX);
    name[WEIR_NAME_MAX] = '\0';
    const char *const bad[] = {"", name, NULL};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_memory_publish(other.engine, other.memory, bad[i]), WEIR_EINVAL);
        assert_int_equal(weir_value_publish(other.engine, bad[i], "", 0), WEIR_EINVAL);
        assert_int_equal(weir_name_withdraw(other.engine, bad[i]), WEIR_EINVAL);
        assert_int_equal(open_now(&asker, bad[i], &remote), WEIR_EINVAL);
        assert_int_equal(weir_peer_value(asker.engine, asker.peer, bad[i], 0, got, &length),
                         WEIR_EINVAL);
    }
    assert_int_equal(weir_value_publish(other.engine, "v", bytes, sizeof(bytes)), WEIR_ETOOBIG);
    assert_int_equal(weir_value_publish(other.engine, "v", NULL, 1), WEIR_EINVAL);
    assert_int_equal(weir_memory_register(other.engine, own, sizeof(own), 0, &local), WEIR_OK);
    assert_int_equal(weir_memory_publish(other.engine, local, "m"), WEIR_EACCESS);
    assert_int_equal(weir_memory_publish(other.engine, (weir_memory){0}, "m"), WEIR_ESTALE);
    name[WEIR_NAME_MAX - 1] = '\0'; /* the longest */
    publish_value(&other, name, "x");
    await_value(&asker, &other, name, "x");
    assert_int_equal(open_now(&asker, name, &remote), WEIR_EACCESS);
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "m"), WEIR_OK);
    (void)open_soon(&asker, &other, "m");
    assert_int_equal(value_now(&asker, "m", got), WEIR_EACCESS);
    assert_int_equal(open_now(&asker, "m", NULL), WEIR_EINVAL);
    info.size = 0;
    assert_int_equal(weir_peer_name(asker.engine, asker.peer, &position, 0, &info), WEIR_EINVAL);
    weir_peer stale = asker.peer;
    assert_int_equal(weir_peer_close(asker.engine, asker.peer), WEIR_OK);
    assert_int_equal(weir_remote_open(asker.engine, stale, "m", 0, &remote), WEIR_ESTALE);
    assert_int_equal(weir_name_hash(NULL), 0);
    pair_close(&asker, &other);
}

/* Nothing is asked meanwhile: what the application has, or waits for, is asked for by itself as
 * soon as a session is up again, whichever side made it. */
static void test_N2_a_restart_is_told_without_a_call(void **state) {
    (void)state;
    for (int theirs = 0; theirs < 2; theirs++) {
        struct side asker, other;
        char address[WEIR_ADDRESS_MAX];
        weir_engine_options options = side_options();
        open_two(&asker, &other);
        publish_value(&other, "life", "first");
        assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
        await_value(&asker, &other, "life", "first");
        (void)open_soon(&asker, &other, "pages");
        memcpy(address, other.address, sizeof(address));
        side_close(&other);
        weir_event gone = next_event(&asker, NULL, WEIR_EVENT_GONE);
        options.listen = address;
        side_open(&other, &options);
        publish_value(&other, "life", "second");
        assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
        if (theirs)
            assert_int_equal(weir_peer_open(other.engine, asker.address, &other.peer), WEIR_OK);
        int rc = theirs ? weir_peer_connect(other.engine, other.peer)
                        : weir_peer_connect(asker.engine, gone.peer);
        assert_int_equal(rc, WEIR_ENOTREADY);
        uint64_t told[2] = {0, 0};
        for (int i = 0; i < 2;) {
            weir_event event = next_event(&asker, &other, WEIR_EVENT_NAME);
            if (event.value != 0) /* 0: of the end before */
                told[i++] = event.value;
        }
        bool life_first = told[0] == weir_name_hash("life");
        assert_int_equal(told[life_first ? 0 : 1], weir_name_hash("life"));
        assert_int_equal(told[life_first ? 1 : 0], weir_name_hash("pages"));
        pair_close(&asker, &other);
    }
}

/* An application that was told to wait for an answer hears of it when its name makes room. */
static void test_N4_a_name_that_is_waited_for_does_not_go_unheard(void **state) {
    struct side asker, other;
    weir_engine_options options = side_options();
    weir_remote remote;
    (void)state;
    options.names_max = 2;
    side_open(&asker, &options);
    side_open(&other, NULL);
    assert_int_equal(weir_peer_open(asker.engine, other.address, &asker.peer), WEIR_OK);
    publish_value(&other, "a", "1");
    publish_value(&other, "b", "2");
    publish_value(&other, "c", "3");
    await_value(&asker, &other, "a", "1");
    assert_int_equal(open_now(&asker, "later", &remote), WEIR_ENOTREADY);
    await_value(&asker, &other, "b", "2"); /* in the place of a, which is older than this wait */
    await_value(&asker, &other, "c", "3");
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "later"), WEIR_OK);
    while (name_told(&asker, &other) != weir_name_hash("later"))
        ;
    (void)open_soon(&asker, &other, "later");
    assert_int_equal(open_now(&asker, "one", &remote), WEIR_ENOTREADY);
    step(&asker, &other);
    while (is_name_told(&asker))
        ;
    STEP_UNTIL(&asker, &other, open_now(&asker, "another", &remote) == WEIR_ENOTREADY);
    assert_int_equal(name_told(&asker, &other), weir_name_hash("one"));
    pair_close(&asker, &other);
}

static void test_N4_the_tables_are_bounded(void **state) {
    struct side asker, other;
    weir_engine_options options = side_options();
    char name[16], got[WEIR_VALUE_MAX + 1];
    (void)state;
    options.names_max = 4;
    side_open(&asker, &options);
    side_open(&other, &options);
    assert_int_equal(weir_peer_open(asker.engine, other.address, &asker.peer), WEIR_OK);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(weir_memory_publish(other.engine, other.memory, name), WEIR_OK);
    }
    assert_int_equal(weir_value_publish(other.engine, "4", "", 0), WEIR_EAGAIN);
    weir_remote remotes[4];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%d", i);
        remotes[i] = open_soon(&asker, &other, name);
    }
    assert_int_equal(value_now(&asker, "5", got), WEIR_EAGAIN);
    assert_int_equal(weir_remote_release(asker.engine, remotes[2]), WEIR_OK);
    assert_int_equal(value_now(&asker, "5", got), WEIR_ENOTREADY);
    assert_int_equal(weir_name_withdraw(other.engine, "3"), WEIR_OK);
    publish_value(&other, "5", "five");
    await_value(&asker, &other, "5", "five");
    for (int i = 6; i < 60; i++) { /* one after the other, in the place of one */
        snprintf(name, sizeof(name), "%d", i);
        publish_value(&other, "5", name);
        await_value(&asker, &other, "5", name);
        assert_int_equal(value_now(&asker, name, got), WEIR_ENOTREADY);
    }
    assert_int_equal(write_by(&asker, &other, remotes[0], 9), WEIR_OK);
    assert_int_equal(write_by(&asker, &other, remotes[3], 9), WEIR_ESTALE);
    pair_close(&asker, &other);
}

/* Nobody is there: a call that waits ends with that, and not with its time-out. */
static void test_N5_a_wait_ends_with_what_is_known(void **state) {
    struct side asker, other;
    weir_engine_options options = side_options();
    weir_remote remote;
    (void)state;
    options.connect_timeout_ns = 200 * MS;
    side_open(&asker, &options);
    side_open(&other, NULL);
    assert_int_equal(weir_peer_open(asker.engine, other.address, &asker.peer), WEIR_OK);
    side_close(&other);
    assert_int_equal(weir_remote_open(asker.engine, asker.peer, "pages", PATIENCE_NS, &remote),
                     WEIR_ECONNECT);
    assert_int_equal(weir_remote_open(asker.engine, asker.peer, "pages", 0, &remote),
                     WEIR_ENOTREADY); /* it tries again */
    side_close(&asker);
}

/* A call that does not wait: an event says that nobody is there, and a further call asks anew. */
static void test_N5_nobody_there_is_told_to_those_that_do_not_wait(void **state) {
    struct side asker, other;
    weir_engine_options options = side_options();
    char address[WEIR_ADDRESS_MAX];
    weir_remote remote;
    (void)state;
    options.connect_timeout_ns = 200 * MS;
    side_open(&asker, &options);
    side_open(&other, NULL);
    memcpy(address, other.address, sizeof(address));
    assert_int_equal(weir_peer_open(asker.engine, address, &asker.peer), WEIR_OK);
    side_close(&other);
    assert_int_equal(open_now(&asker, "pages", &remote), WEIR_ENOTREADY);
    weir_event event = next_event(&asker, NULL, WEIR_EVENT_NAME);
    assert_int_equal(event.error, WEIR_ECONNECT);
    assert_int_equal(event.peer.id, asker.peer.id);
    assert_int_equal(event.value, 0);
    options = side_options();
    options.listen = address;
    side_open(&other, &options);
    assert_int_equal(weir_memory_publish(other.engine, other.memory, "pages"), WEIR_OK);
    (void)open_soon(&asker, &other, "pages");
    pair_close(&asker, &other);
}

enum { WAITERS = 4 };

/* One call that waits for what never comes, and what it returned. */
struct waiter {
    struct side *side;
    pthread_t thread;
    atomic_bool runs;
    int kind, rc;
};

static void *wait_for_ever(void *argument) {
    struct waiter *waiter = argument;
    struct side *side = waiter->side;
    weir_remote remote;
    char value[WEIR_VALUE_MAX];
    size_t length = sizeof(value);
    atomic_store(&waiter->runs, true);
    waiter->rc =
        waiter->kind % 2 == 0
            ? weir_remote_open(side->engine, side->peer, "never", UINT64_MAX, &remote)
            : weir_peer_value(side->engine, side->peer, "never", UINT64_MAX, value, &length);
    return NULL;
}

/* What ends the peer, or all knowledge of it, ends all calls that wait, without a time-out. */
static void test_N5_all_calls_that_wait_end_together(void **state) {
    enum { CLOSED, ENDED, NOBODY, ENDS };
    static const int errors[ENDS] = {WEIR_ESTALE, WEIR_EPEER, WEIR_ECONNECT};
    (void)state;
    for (int end = 0; end < ENDS; end++) {
        struct waiter waiters[WAITERS] = {{.kind = 0}};
        struct side asker, other;
        weir_engine_options options = side_options();
        options.connect_timeout_ns = end == NOBODY ? 300 * MS : options.connect_timeout_ns;
        side_open(&asker, &options);
        options = side_options();
        options.flags = WEIR_ENGINE_THREAD;
        side_open(&other, &options);
        assert_int_equal(weir_peer_open(asker.engine, other.address, &asker.peer), WEIR_OK);
        if (end != NOBODY)
            connect_now(&asker, NULL);
        else
            side_close(&other);
        for (int i = 0; i < WAITERS; i++) {
            waiters[i].side = &asker;
            waiters[i].kind = i;
            assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_ever, &waiters[i]),
                             0);
            while (!atomic_load(&waiters[i].runs))
                sched_yield();
        }
        nanosleep(&(struct timespec){.tv_nsec = 30 * MS}, NULL);
        if (end == CLOSED)
            assert_int_equal(weir_peer_close(asker.engine, asker.peer), WEIR_OK);
        if (end == ENDED)
            side_close(&other);
        for (int i = 0; i < WAITERS; i++) {
            assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
            assert_int_equal(waiters[i].rc, errors[end]);
        }
        side_close(&asker);
        if (end == CLOSED)
            side_close(&other);
    }
}

/* The memory's process is dead, as the device finds before this engine has heard: the call waits
 * for that, and does not fail again and again without progress. */
static void test_N5_an_owner_that_was_killed(void **state) {
    struct side asker;
    weir_remote remote;
    char address[WEIR_ADDRESS_MAX] = "";
    int pipes[2];
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct side other;
        side_open(&other, NULL);
        if (weir_memory_publish(other.engine, other.memory, "pages") != WEIR_OK ||
            write(pipes[1], other.address, sizeof(address)) != sizeof(address))
            _exit(1);
        for (;;)
            weir_engine_wait(other.engine, UINT64_MAX);
    }
    side_open(&asker, NULL);
    assert_int_equal(read(pipes[0], address, sizeof(address)), sizeof(address));
    assert_int_equal(weir_peer_open(asker.engine, address, &asker.peer), WEIR_OK);
    assert_int_equal(weir_remote_open(asker.engine, asker.peer, "pages", PATIENCE_NS, &remote),
                     WEIR_OK);
    assert_int_equal(weir_remote_release(asker.engine, remote), WEIR_OK);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    int rc = weir_remote_open(asker.engine, asker.peer, "pages", PATIENCE_NS, &remote);
    assert_true(rc == WEIR_EPEER || rc == WEIR_ECONNECT);
    assert_int_equal(next_event(&asker, NULL, WEIR_EVENT_GONE).error, WEIR_EPEER);
    side_close(&asker);
    close(pipes[0]);
    close(pipes[1]);
}

enum { RACES = 60, OPENS = 20 };

static atomic_int round_now;
static weir_remote opened[OPENS];

static void *open_many(void *argument) {
    struct side *side = argument;
    for (int round = 1; round <= RACES; round++) {
        while (atomic_load(&round_now) != round)
            sched_yield();
        for (int i = 0; i < OPENS; i++)
            assert_int_equal(
                weir_remote_open(side->engine, side->peer, "n", PATIENCE_NS, &opened[i]), WEIR_OK);
        atomic_store(&round_now, -round);
    }
    return NULL;
}

static uint64_t length_of(struct side *side, weir_remote remote) {
    uint64_t length = 0;
    assert_int_equal(weir_remote_query(side->engine, remote, &length, NULL), WEIR_OK);
    return length;
}

/* Until the name is of memory of this length, here. */
static void await_length(struct side *side, uint64_t length) {
    for (uint64_t is = 0; is != length;) {
        weir_remote remote;
        assert_int_equal(weir_remote_open(side->engine, side->peer, "n", PATIENCE_NS, &remote),
                         WEIR_OK);
        is = length_of(side, remote);
        assert_int_equal(weir_remote_release(side->engine, remote), WEIR_OK);
    }
}

/* A name that changes while it is opened: no import of the memory before is taken for current once
 * the change is known here. */
static void test_N2_a_change_races_with_opens(void **state) {
    struct side asker, other;
    weir_engine_options options = side_options();
    weir_memory memories[2];
    pthread_t thread;
    void *base;
    (void)state;
    options.flags = WEIR_ENGINE_THREAD;
    options.remotes_max = 4 * OPENS;
    side_open(&asker, &options);
    side_open(&other, &options);
    assert_int_equal(weir_peer_open(asker.engine, other.address, &asker.peer), WEIR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_memory_allocate(other.engine, 4096 * (uint64_t)(i + 1),
                                              WEIR_ACCESS_ALL, &memories[i], &base),
                         WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, open_many, &asker), 0);
    for (int round = 1; round <= RACES; round++) {
        assert_int_equal(weir_memory_publish(other.engine, memories[1], "n"), WEIR_OK);
        await_length(&asker, 8192);
        atomic_store(&round_now, round);
        for (int spin = round * 7919 % 3000; spin > 0; spin--)
            atomic_load(&round_now);
        assert_int_equal(weir_memory_publish(other.engine, memories[0], "n"), WEIR_OK);
        while (atomic_load(&round_now) != -round)
            sched_yield();
        await_length(&asker, 4096);
        for (int i = 0; i < OPENS; i++) {
            weir_segment segment = {.local = asker.memory, .remote = opened[i], .length = 8};
            weir_transfer transfer = {0};
            int rc = weir_write(asker.engine, asker.peer, &segment, 1, NULL, &transfer);
            assert_int_equal(rc, length_of(&asker, opened[i]) == 4096 ? WEIR_OK : WEIR_ESTALE);
            if (transfer.id != 0)
                assert_int_equal(weir_transfer_wait(asker.engine, transfer, PATIENCE_NS), WEIR_OK);
            if (transfer.id != 0)
                weir_transfer_release(asker.engine, transfer);
            assert_int_equal(weir_remote_release(asker.engine, opened[i]), WEIR_OK);
        }
    }
    pthread_join(thread, NULL);
    pair_close(&asker, &other);
}

static atomic_bool stops;

static void *serve(void *argument) {
    struct side *side = argument;
    while (!atomic_load(&stops))
        weir_engine_wait(side->engine, 10 * MS);
    return NULL;
}

static void *publish_late(void *argument) {
    struct side *side = argument;
    weir_engine_wait(side->engine, 50 * MS);
    assert_int_equal(weir_memory_publish(side->engine, side->memory, "pages"), WEIR_OK);
    return NULL;
}

/* A call waits for the answer, and for a name that there is not yet. */
static void test_N5_a_call_waits_for_the_name(void **state) {
    struct side asker, other;
    pthread_t threads[2];
    weir_remote remote;
    char got[WEIR_VALUE_MAX];
    size_t length = sizeof(got);
    (void)state;
    open_two(&asker, &other);
    atomic_store(&stops, false);
    publish_value(&other, "value", "here");
    assert_int_equal(pthread_create(&threads[0], NULL, serve, &other), 0);
    assert_int_equal(weir_peer_value(asker.engine, asker.peer, "value", PATIENCE_NS, got, &length),
                     WEIR_OK);
    assert_int_equal(length, 4);
    assert_int_equal(weir_remote_open(asker.engine, asker.peer, "pages", MS, &remote),
                     WEIR_ENOTREADY);
    assert_int_equal(pthread_create(&threads[1], NULL, publish_late, &other), 0);
    assert_int_equal(weir_remote_open(asker.engine, asker.peer, "pages", PATIENCE_NS, &remote),
                     WEIR_OK);
    uint64_t position = 0;
    weir_name_info info = WEIR_NAME_INFO_INIT;
    uint32_t count = 0;
    while (weir_peer_name(asker.engine, asker.peer, &position, PATIENCE_NS, &info) == WEIR_OK)
        count++;
    assert_int_equal(count, 2);
    atomic_store(&stops, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pair_close(&asker, &other);
}

/* Both publish and ask, and messages go meanwhile; a session is broken in between. */
static void test_N2_both_ways_over_sessions_that_break(void **state) {
    struct side a, b;
    char name[16];
    (void)state;
    open_two(&a, &b);
    assert_int_equal(weir_peer_open(b.engine, a.address, &b.peer), WEIR_OK);
    publish_value(&a, "round", "begin");
    publish_value(&b, "round", "begin");
    for (int round = 0; round < 30; round++) {
        snprintf(name, sizeof(name), "%d", round);
        publish_value(&a, "round", name);
        publish_value(&b, "round", name);
        assert_int_equal(weir_memory_publish(b.engine, b.memory, name), WEIR_OK);
        weir_remote remote = open_soon(&a, &b, name);
        if (round % 3 == 0) { /* a refused write breaks it */
            weir_memory gone;
            void *base;
            assert_int_equal(weir_memory_allocate(b.engine, 4096, WEIR_ACCESS_ALL, &gone, &base),
                             WEIR_OK);
            weir_remote refused = side_import(&a, a.peer, &b, gone);
            assert_int_equal(weir_memory_release(b.engine, gone), WEIR_OK);
            assert_int_not_equal(write_by(&a, &b, refused, 1), WEIR_OK);
            assert_int_equal(weir_remote_release(a.engine, refused), WEIR_OK);
        }
        await_value(&a, &b, "round", name);
        await_value(&b, &a, "round", name);
        assert_int_equal(write_by(&a, &b, remote, (uint8_t)round), WEIR_OK);
        assert_int_equal(b.bytes[3], (uint8_t)round);
        assert_int_equal(weir_remote_release(a.engine, remote), WEIR_OK);
    }
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_N1_memory_is_found_by_its_name),
        cmocka_unit_test(test_N1_a_value_is_found_by_its_name),
        cmocka_unit_test(test_N2_a_change_is_told_and_ends_what_was_opened),
        cmocka_unit_test(test_N2_each_change_is_told_once),
        cmocka_unit_test(test_N2_memory_that_is_released_has_no_name),
        cmocka_unit_test(test_N3_names_are_listed),
        cmocka_unit_test(test_N3_a_list_is_as_it_is_when_it_is_asked_for),
        cmocka_unit_test(test_N2_a_restart_has_names_of_its_own),
        cmocka_unit_test(test_N4_bad_names_and_kinds),
        cmocka_unit_test(test_N2_a_restart_is_told_without_a_call),
        cmocka_unit_test(test_N2_a_change_races_with_opens),
        cmocka_unit_test(test_N4_a_name_that_is_waited_for_does_not_go_unheard),
        cmocka_unit_test(test_N4_the_tables_are_bounded),
        cmocka_unit_test(test_N5_nobody_there_is_told_to_those_that_do_not_wait),
        cmocka_unit_test(test_N5_all_calls_that_wait_end_together),
        cmocka_unit_test(test_N5_an_owner_that_was_killed),
        cmocka_unit_test(test_N5_a_wait_ends_with_what_is_known),
        cmocka_unit_test(test_N5_a_call_waits_for_the_name),
        cmocka_unit_test(test_N2_both_ways_over_sessions_that_break),
    };
    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
