/* SPDX-License-Identifier: Apache-2.0 */
/* test_tcp_hostile.c: the control channel against peers that are slow, silent, gone,
 * or wrong. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os.h"
#include "tcp_sides.h"

static int setup(void **state) {
    (void)state;
    return sides_open("127.0.0.1:0", 0);
}

static int setup_small(void **state) {
    (void)state;
    return sides_open("127.0.0.1:0", 8);
}

/* Descriptors that the process of the server may have. */
enum { FEW = 40 };

static int setup_few(void **state) {
    (void)state;
    struct rlimit limit, few;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return -1;
    }
    few = limit;
    few.rlim_cur = FEW;
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) {
        return -1;
    }
    const int failed = sides_open("127.0.0.1:0", 0);
    return setrlimit(RLIMIT_NOFILE, &limit) != 0 ? -1 : failed; /* this test plays others, too */
}

static void test_H13_oversized_frames(void **state) {
    (void)state;
    static const uint32_t lengths[] = {WEIR_CONTROL_MESSAGE_MAX + 1, 0x10000, 0x80000000,
                                       UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint64_t conn;
        const int fd = raw_join(&conn);
        uint8_t good[16], header[4 + 8];
        raw_send(fd, good, frame(good, "good", 4));
        (void)frame(header, "", 0);
        for (int b = 0; b < 4; b++) {
            header[b] = (uint8_t)(lengths[i] >> (8 * b));
        }
        raw_send(fd, header, 4);
        expect_message(&server, conn, "good", 4);
        expect_closed(&server, conn, WEIR_ETOOBIG);
        assert_int_equal(server.ops->send(server.self, conn, good, 4), WEIR_ECONNECT);
        close(fd);
    }
}

/* The client leaves after every number of bytes of a frame. Only the whole frame is a
 * message; only leaving between frames is a clean end. */
static void test_H13_truncated_frames(void **state) {
    (void)state;
    uint8_t bytes[16];
    const size_t length = frame(bytes, "12345", 5);
    for (size_t cut = 0; cut <= length; cut++) {
        uint64_t conn;
        const int fd = raw_join(&conn);
        if (cut > 0) {
            raw_send(fd, bytes, cut);
        }
        close(fd);
        if (cut == length) {
            expect_message(&server, conn, "12345", 5);
        }
        expect_closed(&server, conn, cut == 0 || cut == length ? WEIR_EPEER : WEIR_ECONNECT);
    }
}

/* A reset instead of an end. */
static void test_reset_is_a_broken_connection(void **state) {
    (void)state;
    uint64_t conn;
    const int fd = raw_join(&conn);
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(fd);
    expect_closed(&server, conn, WEIR_ECONNECT);
}

/* Three frames cut at every byte, and all at once. */
static void test_partial_frames_at_every_byte(void **state) {
    (void)state;
    uint8_t bytes[64];
    size_t length = frame(bytes, "one", 3);
    length += frame(bytes + length, "", 0);
    length += frame(bytes + length, "three", 5);
    for (size_t cut = 0; cut <= length; cut++) {
        uint64_t conn;
        const int fd = raw_join(&conn);
        struct weir_control_event event;
        uint32_t lengths[3] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
        int messages = 0;
        for (int part = 0; part < 2; part++) {
            const size_t from = part == 0 ? 0 : cut;
            const size_t to = part == 0 ? cut : length;
            if (to > from) {
                raw_send(fd, bytes + from, to - from);
            }
            while (messages < 3 && take(&server, &event, part == 0 ? 1 : PATIENCE_MS)) {
                assert_int_equal(event.type, WEIR_CONTROL_MESSAGE);
                assert_int_equal(event.conn, conn);
                lengths[messages++] = event.length;
            }
        }
        assert_int_equal(messages, 3);
        assert_true(lengths[0] == 3 && lengths[1] == 0 && lengths[2] == 5);
        close(fd);
        expect_closed(&server, conn, WEIR_EPEER);
    }
}

/* A client that sends a byte now and then, and one that never reads, delay nobody. */
static void test_H10_slow_clients_delay_nobody(void **state) {
    (void)state;
    uint64_t slow, deaf, at_client, at_server;
    const int slow_fd = raw_join(&slow);
    const int deaf_fd = raw_join(&deaf);
    join(&at_client, &at_server);

    uint8_t message[WEIR_CONTROL_MESSAGE_MAX] = {0};
    int rc = WEIR_OK;
    uint32_t sent = 0;
    while (rc == WEIR_OK && sent < 1000000) {
        rc = server.ops->send(server.self, deaf, message, sizeof message);
        sent++;
    }
    assert_int_equal(rc, WEIR_EAGAIN); /* full, bounded by our buffer and the kernel's */

    uint8_t bytes[256];
    const size_t length = frame(bytes, message, sizeof bytes - 4);
    for (size_t i = 0; i + 1 < length; i++) {
        raw_send(slow_fd, bytes + i, 1);
        uint8_t text[2] = {(uint8_t)i, 1};
        put(&client, at_client, text, 2);
        expect_message(&server, at_server, text, 2);
        put(&server, at_server, text, 1);
        expect_message(&client, at_client, text, 1);
    }
    raw_send(slow_fd, bytes + length - 1, 1);
    expect_message(&server, slow, message, sizeof bytes - 4);
    close(slow_fd);
    close(deaf_fd);
}

/* Silent since it was accepted, and half a message by one that spoke before: both end
 * at the limit of 10 s. A clock that moves 9 s with every reading leaves 1 s of it. */
static void test_H10_dawdlers_are_closed(void **state) {
    (void)state;
    for (int speaks = 0; speaks < 2; speaks++) {
        uint64_t conn;
        uint8_t bytes[16];
        skew_step_ns = 9 * S;
        const int fd = raw_join(&conn);
        if (speaks) {
            skew_step_ns = 0;
            raw_send(fd, bytes, frame(bytes, "hello", 5));
            expect_message(&server, conn, "hello", 5);
            skew_ns += 60 * S;
            expect_quiet(&server); /* proven and idle: no limit */
            skew_step_ns = 9 * S;
            raw_send(fd, bytes, 6);
        }
        expect_closed(&server, conn, WEIR_ECONNECT);
        close(fd);
    }
}

/* Of eight connections visitors have four. The one that said nothing for longest makes room,
 * whether it never spoke or has spoken before, but not before it had a second. */
static void test_H10_accept_flood(void **state) {
    (void)state;
    uint64_t silent[4];
    int fds[6];
    uint8_t bytes[16];
    const size_t length = frame(bytes, "here", 4);
    for (int i = 0; i < 4; i++) {
        fds[i] = raw_join(&silent[i]);
    }
    fds[4] = raw_socket();
    raw_connect(fds[4]);
    expect_quiet(&server);
    skew_ns += 2 * S;
    raw_send(fds[0], bytes, length); /* the oldest, and the last that spoke */
    expect_message(&server, silent[0], "here", 4);
    expect_closed(&server, silent[1], WEIR_ECONNECT);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    fds[5] = raw_socket();
    raw_connect(fds[5]);
    expect_closed(&server, silent[2], WEIR_ECONNECT);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    for (int i = 0; i < 6; i++) {
        close(fds[i]);
    }
}

/* Visitors take a quarter of the descriptors at most, however many connections there may be: the
 * application, and peers, have the others. One that was silent makes room. */
static void test_W6_visitors_leave_descriptors_to_others(void **state) {
    (void)state;
    uint64_t silent[FEW / 4];
    int fds[FEW / 4 + 1];
    for (int i = 0; i < FEW / 4; i++) {
        fds[i] = raw_join(&silent[i]);
    }
    fds[FEW / 4] = raw_socket();
    raw_connect(fds[FEW / 4]);
    expect_quiet(&server);
    skew_ns += 2 * S;
    expect_closed(&server, silent[0], WEIR_ECONNECT);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    for (int i = 0; i <= FEW / 4; i++) {
        close(fds[i]);
    }
}

/* Each says a word and stays. There is room for those that come after them all the same, for
 * our own dials, and for the connections of peers, which nobody drives out. */
static void test_W6_visitors_that_stay_keep_nobody_out(void **state) {
    (void)state;
    enum { VISITS = 40 };
    uint64_t kept, conn;
    uint8_t bytes[16];
    const size_t length = frame(bytes, "here", 4);
    const int peer_fd = raw_join(&kept);
    raw_send(peer_fd, bytes, length);
    expect_message(&server, kept, "here", 4);
    server.ops->keep(server.self, kept);
    server.ops->keep(server.self, kept); /* twice is once */
    int fds[VISITS];
    for (int i = 0; i < VISITS; i++) {
        fds[i] = raw_socket();
        raw_connect(fds[i]);
        raw_send(fds[i], bytes, length);
    }
    uint32_t accepted = 0, spoken = 0, closed = 0;
    struct weir_control_event event;
    while (take(&server, &event, 2 * QUIET_MS)) {
        accepted += event.type == WEIR_CONTROL_ACCEPTED;
        spoken += event.type == WEIR_CONTROL_MESSAGE;
        closed += event.type == WEIR_CONTROL_CLOSED;
        skew_ns += S / 4; /* a second is over with every fourth */
        assert_true(event.conn != kept);
        assert_true(accepted - closed <= 4);
    }
    assert_int_equal(accepted, VISITS);
    assert_in_range(spoken, 4, VISITS);
    assert_int_equal(closed, VISITS - 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(server.ops->dial(server.self, address, &conn), WEIR_OK);
        server.ops->hangup(server.self, conn);
    }
    skew_ns += 2 * S;
    const int late_fd = raw_socket(); /* somebody new gets in */
    uint64_t late = 0;
    raw_connect(late_fd);
    raw_send(late_fd, bytes, length);
    while (take(&server, &event, PATIENCE_MS)) {
        assert_true(event.conn != kept);
        if (event.type == WEIR_CONTROL_ACCEPTED) {
            late = event.conn; /* some are of the dials above */
        } else if (event.type == WEIR_CONTROL_MESSAGE && event.conn == late) {
            break;
        }
    }
    assert_int_equal(event.type, WEIR_CONTROL_MESSAGE);
    close(late_fd);
    raw_send(peer_fd, bytes, length);
    while (take(&server, &event, PATIENCE_MS) && event.conn != kept) {
        continue; /* those that leave */
    }
    assert_int_equal(event.type, WEIR_CONTROL_MESSAGE);
    close(peer_fd);
    for (int i = 0; i < VISITS; i++) {
        close(fds[i]);
    }
}

/* Some say a word again and again, so that none is ever silent for long. A visit has an end all the
 * same when others wait. */
static void test_W6_visitors_that_talk_on_keep_nobody_out(void **state) {
    (void)state;
    enum { TALKERS = 4, ROUNDS = 60 };
    uint64_t talking[TALKERS];
    int fds[TALKERS];
    uint8_t bytes[16];
    const size_t length = frame(bytes, "here", 4);
    for (int i = 0; i < TALKERS; i++) {
        fds[i] = raw_join(&talking[i]);
    }
    const int fd = raw_socket(); /* somebody new waits */
    raw_connect(fd);
    bool came = false;
    int rounds = 0;
    for (; rounds < ROUNDS && !came; rounds++) {
        struct weir_control_event event;
        for (int i = 0; i < TALKERS; i++) {
            (void)send(fds[i], bytes, length, MSG_NOSIGNAL);
        }
        while (take(&server, &event, 5)) {
            came = came || event.type == WEIR_CONTROL_ACCEPTED;
        }
        skew_ns += S / 2;
    }
    assert_true(came);
    assert_true(rounds > 4); /* but nobody is hurried */
    close(fd);
    for (int i = 0; i < TALKERS; i++) {
        close(fds[i]);
    }
}

/* A dial of one numeric address ends by itself when nobody answers it, so that it can be dialled
 * anew: the kernel's own retries come farther and farther apart. */
static void test_W2_an_unanswered_dial_ends_soon(void **state) {
    (void)state;
    const int hole = raw_socket();
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    assert_int_equal(bind(hole, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(hole, 0), 0);
    assert_int_equal(getsockname(hole, (struct sockaddr *)&at, &length), 0);
    const int filler = raw_socket();
    assert_int_equal(connect(filler, (const struct sockaddr *)&at, sizeof at), 0);
    char to[WEIR_ADDRESS_MAX];
    snprintf(to, sizeof to, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    uint64_t conn;
    skew_step_ns = S; /* of which two are enough, or the test of the timer takes that long */
    assert_int_equal(client.ops->dial(client.self, to, &conn), WEIR_OK);
    expect_closed(&client, conn, WEIR_ECONNECT);
    close(filler);
    close(hole);
}

/* A listener that answers no SYN: its backlog is full. */
static void test_H10_black_hole_never_blocks(void **state) {
    (void)state;
    const int hole = raw_socket();
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    assert_int_equal(bind(hole, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(hole, 0), 0);
    assert_int_equal(getsockname(hole, (struct sockaddr *)&at, &length), 0);
    const int filler = raw_socket();
    assert_int_equal(connect(filler, (const struct sockaddr *)&at, sizeof at), 0);

    char to[WEIR_ADDRESS_MAX];
    snprintf(to, sizeof to, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    enum { DIALS = 100 };
    uint64_t conns[DIALS];
    const uint64_t before = real.ops->now(real.self);
    for (int i = 0; i < DIALS; i++) {
        assert_int_equal(client.ops->dial(client.self, to, &conns[i]), WEIR_OK);
        put(&client, conns[i], "anybody?", 8);
    }
    assert_true(real.ops->now(real.self) - before < S / 2);
    expect_quiet(&client);
    uint64_t at_client, at_server;
    join(&at_client, &at_server);
    put(&client, at_client, "past them", 9);
    expect_message(&server, at_server, "past them", 9);
    for (int i = 0; i < DIALS; i++) {
        client.ops->hangup(client.self, conns[i]);
    }
    close(filler);
    close(hole);
}

/* Sending to one who has left: no signal, a loss at most, and one CLOSED. */
static void test_send_to_the_departed(void **state) {
    (void)state;
    uint64_t conn;
    const int fd = raw_join(&conn);
    close(fd);
    for (int i = 0; i < 10; i++) {
        put(&server, conn, "are you there", 13);
        usleep(1000); /* for the reset to come back */
    }
    const struct weir_control_event event = expect(&server, WEIR_CONTROL_CLOSED);
    assert_int_equal(event.conn, conn);
    expect_quiet(&server);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, sides_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_H13_oversized_frames),
        TEST(test_H13_truncated_frames),
        TEST(test_reset_is_a_broken_connection),
        TEST(test_partial_frames_at_every_byte),
        TEST(test_H10_slow_clients_delay_nobody),
        TEST(test_H10_dawdlers_are_closed),
        cmocka_unit_test_setup_teardown(test_H10_accept_flood, setup_small, sides_close),
        cmocka_unit_test_setup_teardown(test_W6_visitors_that_stay_keep_nobody_out, setup_small,
                                        sides_close),
        cmocka_unit_test_setup_teardown(test_W6_visitors_that_talk_on_keep_nobody_out, setup_small,
                                        sides_close),
        cmocka_unit_test_setup_teardown(test_W6_visitors_leave_descriptors_to_others, setup_few,
                                        sides_close),
        TEST(test_W2_an_unanswered_dial_ends_soon),
        TEST(test_H10_black_hole_never_blocks),
        TEST(test_send_to_the_departed),
    };
    return cmocka_run_group_tests_name("tcp_hostile", tests, NULL, NULL);
}
