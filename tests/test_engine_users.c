/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_users.c: engines of two users of one host: both are told why they cannot have to do
 * with each other, and what can be done about it works (W9, W10). It takes root. */
#define _GNU_SOURCE
#include "engine_side.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOMEBODY   64999 /* a user and a group that nothing belongs to */
#define GROUP_TEXT "64999"

/* The ticket of the other user's engine. */
struct ticket {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptors[2][WEIR_DESCRIPTOR_MAX]; /* of allocated and of registered memory */
    size_t lengths[2];
};

struct other {
    pid_t pid;
    int to;
    int from;
    struct ticket ticket;
};

static void must(bool condition) {
    if (!condition)
        _exit(1);
}

static void become_somebody(void) {
    must(setgroups(0, NULL) == 0 && setresgid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 &&
         setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0);
}

/* Until the peer is up (0), or gone with an error; the peer's reason, if it refused. */
static int connect_and_see(weir_engine *engine, const char *address, weir_peer *peer_out) {
    weir_event event;

    int rc = weir_peer_open(engine, address, peer_out);
    if (rc == WEIR_OK)
        rc = weir_peer_connect(engine, *peer_out);
    if (rc != WEIR_OK && rc != WEIR_ENOTREADY)
        return rc;
    for (uint64_t end = now_ns() + PATIENCE_NS; now_ns() < end;) {
        weir_engine_wait(engine, 10 * MS);
        while (weir_event_take(engine, &event) == WEIR_OK) {
            if (event.type == WEIR_EVENT_UP)
                return WEIR_OK;
            if (event.type == WEIR_EVENT_GONE)
                return event.error == WEIR_EREFUSED ? (int)event.value : event.error;
        }
    }
    return WEIR_ETIMEDOUT;
}

/* The other user: says what it is; makes progress until it is told an address, and then calls
 * there and says how it went. */
static _Noreturn void live(int from, int to) {
    static uint8_t memory[SIDE_BYTES];
    weir_engine_options options = side_options();
    struct ticket ticket = {.lengths = {WEIR_DESCRIPTOR_MAX, WEIR_DESCRIPTOR_MAX}};
    char address[WEIR_ADDRESS_MAX];
    weir_engine *engine;
    weir_memory memories[2];
    weir_peer peer;
    void *base;

    become_somebody();
    must(weir_engine_open(&options, &engine) == WEIR_OK);
    must(weir_memory_allocate(engine, SIDE_BYTES, WEIR_ACCESS_ALL, &memories[0], &base) == WEIR_OK);
    must(weir_memory_register(engine, memory, SIDE_BYTES, WEIR_ACCESS_ALL, &memories[1]) ==
         WEIR_OK);
    for (int i = 0; i < 2; i++)
        must(weir_memory_export(engine, memories[i], ticket.descriptors[i], &ticket.lengths[i]) ==
             WEIR_OK);
    must(weir_engine_address(engine, ticket.address, sizeof(ticket.address)) == WEIR_OK);
    must(write(to, &ticket, sizeof(ticket)) == sizeof(ticket));
    must(fcntl(from, F_SETFL, O_NONBLOCK) == 0);
    for (;;) {
        ssize_t length = read(from, address, sizeof(address));
        if (length == 0)
            _exit(0);
        if (length == (ssize_t)sizeof(address)) {
            int rc = connect_and_see(engine, address, &peer);
            must(write(to, &rc, sizeof(rc)) == sizeof(rc));
        }
        weir_engine_wait(engine, 5 * MS);
    }
}

static struct other other_start(void) {
    int down[2], up[2];
    struct other other;

    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    other.pid = fork();
    assert_true(other.pid >= 0);
    if (other.pid == 0) {
        close(down[1]);
        close(up[0]);
        live(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    other.to = down[1];
    other.from = up[0];
    assert_int_equal(read(other.from, &other.ticket, sizeof(other.ticket)), sizeof(other.ticket));
    return other;
}

/* Ends by itself when nobody speaks to it any more. */
static void other_end(struct other *other) {
    int status = -1;

    close(other->to);
    close(other->from);
    assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
    assert_int_equal(status, 0);
}

/* How its call to our engine ended; we make progress meanwhile. */
static int other_calls(struct other *other, struct side *side) {
    int rc = WEIR_EINPROGRESS;

    assert_int_equal(write(other->to, side->address, sizeof(side->address)), sizeof(side->address));
    assert_int_equal(fcntl(other->from, F_SETFL, O_NONBLOCK), 0);
    STEP_UNTIL(side, NULL, read(other->from, &rc, sizeof(rc)) == sizeof(rc));
    return rc;
}

static int import(struct side *side, const struct other *other, int which, weir_remote *out) {
    return weir_memory_import(side->engine, side->peer, other->ticket.descriptors[which],
                              other->ticket.lengths[which], out);
}

static bool is_root(void) {
    if (geteuid() != 0)
        print_message("skipped: not root\n");
    return geteuid() == 0;
}

/* Not ECONNECT after the time-out, whichever of the two calls. */
static void test_W9_another_user_is_told_why(void **state) {
    struct side side;
    weir_remote remote;

    (void)state;
    if (!is_root())
        return;
    struct other other = other_start();
    side_open(&side, NULL);
    assert_int_equal(connect_and_see(side.engine, other.ticket.address, &side.peer), WEIR_EDENIED);
    for (int i = 0; i < 2; i++)
        assert_int_equal(import(&side, &other, i, &remote), WEIR_EDENIED);
    assert_int_equal(other_calls(&other, &side), WEIR_EDENIED);
    other_end(&other);
    side_close(&side);
}

/* A transfer that needs the session says it, too. */
static void test_W9_a_transfer_to_another_user_says_why(void **state) {
    struct side side;
    weir_transfer transfer;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    (void)state;
    if (!is_root())
        return;
    struct other other = other_start();
    side_open(&side, NULL);
    assert_int_equal(weir_peer_open(side.engine, other.ticket.address, &side.peer), WEIR_OK);
    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(side.engine, side.peer, NULL, 0, &options, &transfer), WEIR_OK);
    assert_int_equal(finish(&side, NULL, transfer), WEIR_EREFUSED);
    assert_int_equal(info_of(&side).refusal, WEIR_EDENIED);
    other_end(&other);
    side_close(&side);
}

/* Users who have a group in common, and say so, write to each other's allocated memory. */
static void test_W10_users_of_a_group_transfer(void **state) {
    gid_t before[64], with[1] = {SOMEBODY};
    struct side side;

    (void)state;
    if (!is_root())
        return;
    int count = getgroups(64, before);
    assert_true(count >= 0);
    setenv("WEIR_SHM_GROUP", GROUP_TEXT, 1);
    assert_int_equal(setgroups(1, with), 0);
    struct other other = other_start();
    side_open(&side, NULL);
    assert_int_equal(connect_and_see(side.engine, other.ticket.address, &side.peer), WEIR_OK);
    assert_int_equal(import(&side, &other, 0, &side.remote), WEIR_OK);
    weir_segment segment = segment_of(&side, 0, 0, SIDE_BYTES);
    memset(side.bytes, 7, SIDE_BYTES);
    assert_int_equal(write_now(&side, NULL, &segment, 1, NULL), WEIR_OK);
    memset(side.bytes, 0, SIDE_BYTES);
    assert_int_equal(read_now(&side, NULL, &segment, 1, NULL), WEIR_OK);
    assert_int_equal(side.bytes[SIDE_BYTES - 1], 7);
    other_end(&other);
    side_close(&side);
    unsetenv("WEIR_SHM_GROUP");
    assert_int_equal(setgroups((size_t)count, before), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W9_another_user_is_told_why),
        cmocka_unit_test(test_W9_a_transfer_to_another_user_says_why),
        cmocka_unit_test(test_W10_users_of_a_group_transfer),
    };
    return cmocka_run_group_tests_name("engines of two users", tests, NULL, NULL);
}
