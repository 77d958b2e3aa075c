/* test_tcp.c: the control channel over TCP, against itself and against raw sockets
 * that behave as no peer should. Loopback only.
 *
 * Events are awaited through the channel's descriptor, so that a channel which has
 * something to say without being readable fails here as it would hang an engine.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os.h"

enum { PATIENCE_MS = 10000, QUIET_MS = 60 };
#define S UINT64_C(1000000000)

static struct weir_env real;

/* ---- a clock that can be pushed ----------------------------------------- */

static uint64_t skew_ns;      /* added to every reading */
static uint64_t skew_step_ns; /* added to skew_ns by every reading */
static int allocs_left;       /* before alloc fails; negative: never */

static uint64_t env_now(void *self) {
    (void)self;
    skew_ns += skew_step_ns;
    return real.ops->now(real.self) + skew_ns;
}

static void env_entropy(void *self, void *out, size_t length) {
    (void)self;
    real.ops->entropy(real.self, out, length);
}

static void *env_alloc(void *self, size_t bytes) {
    (void)self;
    if (allocs_left == 0) {
        return NULL;
    }
    allocs_left--;
    return real.ops->alloc(real.self, bytes);
}

static void env_free(void *self, void *memory, size_t bytes) {
    (void)self;
    real.ops->free(real.self, memory, bytes);
}

static const struct weir_env_ops env_ops = {
    .now = env_now, .entropy = env_entropy, .alloc = env_alloc, .free = env_free};
static const struct weir_env env = {.ops = &env_ops};

/* ---- two sides ----------------------------------------------------------- */

static struct weir_control server, client;
static char address[WEIR_ADDRESS_MAX];
static int fds_before;

static int fd_count(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static int open_both(const char *listen, uint32_t conns_max) {
    skew_ns = skew_step_ns = 0;
    allocs_left = -1;
    fds_before = fd_count();
    return os_env_init(&real) != WEIR_OK || tcp_open(&env, conns_max, &server) != WEIR_OK ||
           tcp_open(&env, 0, &client) != WEIR_OK ||
           server.ops->listen(server.self, listen, address, sizeof address) != WEIR_OK;
}

static int setup(void **state) {
    (void)state;
    return open_both("127.0.0.1:0", 0);
}

static int setup_v6(void **state) {
    (void)state;
    return open_both("[::1]:0", 0);
}

static int setup_small(void **state) {
    (void)state;
    return open_both("127.0.0.1:0", 4);
}

static int teardown(void **state) {
    (void)state;
    tcp_close(&client);
    tcp_close(&server);
    return fd_count() != fds_before;
}

/* One event, waited for on the descriptor only. */
static int take(struct weir_control *side, struct weir_control_event *event, int wait_ms) {
    for (int turns = 0; turns < 100000; turns++) {
        if (side->ops->poll(side->self, event)) {
            return 1;
        }
        struct pollfd set = {.fd = side->ops->fd(side->self), .events = POLLIN};
        if (poll(&set, 1, wait_ms) == 0) {
            return 0;
        }
    }
    fail_msg("the descriptor is readable for ever and poll has nothing: a busy loop");
    return 0;
}

static struct weir_control_event expect(struct weir_control *side, enum weir_control_type type) {
    struct weir_control_event event;
    assert_int_equal(take(side, &event, PATIENCE_MS), 1);
    assert_int_equal(event.type, type);
    assert_true(event.conn != 0);
    return event;
}

static void expect_closed(struct weir_control *side, uint64_t conn, int error) {
    const struct weir_control_event event = expect(side, WEIR_CONTROL_CLOSED);
    assert_int_equal(event.conn, conn);
    assert_int_equal(event.error, error);
}

/* Nothing for a while, and few wake-ups in it: paused means asleep. */
static void expect_quiet(struct weir_control *side) {
    const uint64_t until = real.ops->now(real.self) + (uint64_t)QUIET_MS * 1000000;
    struct pollfd set = {.fd = side->ops->fd(side->self), .events = POLLIN};
    int wakeups = 0;
    while (real.ops->now(real.self) < until) {
        struct weir_control_event event;
        assert_int_equal(side->ops->poll(side->self, &event), 0);
        wakeups += poll(&set, 1, QUIET_MS / 4) > 0;
    }
    assert_true(wakeups <= 5);
}

static void put(struct weir_control *side, uint64_t conn, const void *message, uint32_t length) {
    assert_int_equal(side->ops->send(side->self, conn, message, length), WEIR_OK);
}

static void expect_message(struct weir_control *side, uint64_t conn, const void *message,
                           uint32_t length) {
    const struct weir_control_event event = expect(side, WEIR_CONTROL_MESSAGE);
    assert_int_equal(event.conn, conn);
    assert_int_equal(event.length, length);
    assert_memory_equal(event.message, message, length);
}

static void join(uint64_t *at_client, uint64_t *at_server) {
    assert_int_equal(client.ops->dial(client.self, address, at_client), WEIR_OK);
    *at_server = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    assert_int_equal(expect(&client, WEIR_CONTROL_CONNECTED).conn, *at_client);
}

/* ---- a raw client -------------------------------------------------------- */

static uint16_t server_port(void) {
    return (uint16_t)atoi(strrchr(address, ':') + 1);
}

static int raw_socket(void) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static void raw_connect(int fd) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port())};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
}

static int raw_join(uint64_t *at_server) {
    const int fd = raw_socket();
    raw_connect(fd);
    *at_server = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    return fd;
}

static void raw_send(int fd, const void *bytes, size_t length) {
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
}

static size_t frame(uint8_t *out, const void *message, uint32_t length) {
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(length >> (8 * i));
    }
    memcpy(out + 4, message, length);
    return 4 + (size_t)length;
}

/* ---- tests ---------------------------------------------------------------- */

static void test_address_syntax(void **state) {
    (void)state;
    static const char *const good[] = {"127.0.0.1:1", "[::1]:65535", "host:7", "a.b-c.d:80",
                                       "[fe80::1%lo]:5"};
    static const char *const bad[] = {
        "",           ":",          ":1",      "host",       "host:",   "host:0",
        "host:65536", "host:99999", "host:1x", "host: 1",    "host:+1", "host:-1",
        "::1:7",      "1:2:3",      "[::1]",   "[::1]:",     "[::1]7",  "[::1",
        "[]:1",       "[host]:1",   "[::1]:0", "host:000001"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(tcp_address_check(good[i]), WEIR_OK);
    }
    uint64_t conn = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tcp_address_check(bad[i]), WEIR_EADDRESS);
        assert_int_equal(client.ops->dial(client.self, bad[i], &conn), WEIR_EADDRESS);
    }
    char long_name[400];
    memset(long_name, 'a', sizeof long_name);
    memcpy(long_name + sizeof long_name - 3, ":1", 3);
    assert_int_equal(tcp_address_check(long_name), WEIR_EADDRESS);
    assert_int_equal(conn, 0);
}

static void test_listen_errors(void **state) {
    (void)state;
    char actual[WEIR_ADDRESS_MAX] = "as before";
    assert_int_equal(server.ops->listen(server.self, "127.0.0.1:0", actual, sizeof actual),
                     WEIR_EINVAL);
    assert_int_equal(client.ops->listen(client.self, "nonsense", actual, sizeof actual),
                     WEIR_EADDRESS);
    assert_int_equal(client.ops->listen(client.self, address, actual, sizeof actual),
                     WEIR_EADDRESS); /* taken by the server */
    assert_int_equal(client.ops->listen(client.self, "127.0.0.1:0", actual, 5), WEIR_ETOOBIG);
    assert_string_equal(actual, "as before");
    assert_int_equal(client.ops->listen(client.self, "127.0.0.1:0", actual, sizeof actual),
                     WEIR_OK);
    assert_int_equal(tcp_address_check(actual), WEIR_OK);
}

/* Run over both families. Sizes at the edges, both ways, and before CONNECTED. */
static void test_exchange(void **state) {
    (void)state;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX + 1];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    uint64_t at_client, at_server;
    assert_int_equal(client.ops->dial(client.self, address, &at_client), WEIR_OK);
    put(&client, at_client, "early", 5);
    at_server = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    assert_int_equal(expect(&client, WEIR_CONTROL_CONNECTED).conn, at_client);
    expect_message(&server, at_server, "early", 5);

    static const uint32_t lengths[] = {0, 1, 3, 4, 5, 1024, WEIR_CONTROL_MESSAGE_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put(&client, at_client, bytes, lengths[i]);
        put(&server, at_server, bytes + 1, lengths[i]);
        expect_message(&server, at_server, bytes, lengths[i]);
        expect_message(&client, at_client, bytes + 1, lengths[i]);
    }
    assert_int_equal(client.ops->send(client.self, at_client, bytes, sizeof bytes), WEIR_ETOOBIG);

    client.ops->hangup(client.self, at_client);
    expect_closed(&server, at_server, WEIR_EPEER);
    assert_int_equal(server.ops->send(server.self, at_server, bytes, 1), WEIR_ECONNECT);
    assert_int_equal(client.ops->send(client.self, at_client, bytes, 1), WEIR_ECONNECT);
    client.ops->hangup(client.self, at_client); /* twice is harmless */
    expect_quiet(&client);
}

/* An IPv6 wildcard takes IPv4 too. */
static void test_wildcard_takes_both_families(void **state) {
    (void)state;
    struct weir_control both;
    char actual[WEIR_ADDRESS_MAX];
    assert_int_equal(tcp_open(&env, 0, &both), WEIR_OK);
    assert_int_equal(both.ops->listen(both.self, "[::]:0", actual, sizeof actual), WEIR_OK);
    static const char *const hosts[] = {"127.0.0.1", "[::1]"};
    for (size_t i = 0; i < 2; i++) {
        char to[WEIR_ADDRESS_MAX];
        snprintf(to, sizeof to, "%s%s", hosts[i], strrchr(actual, ':'));
        uint64_t conn;
        assert_int_equal(client.ops->dial(client.self, to, &conn), WEIR_OK);
        (void)expect(&client, WEIR_CONTROL_CONNECTED);
        (void)expect(&both, WEIR_CONTROL_ACCEPTED);
    }
    tcp_close(&both);
}

static void test_dial_to_nobody_is_closed(void **state) {
    (void)state;
    char nobody[WEIR_ADDRESS_MAX];
    struct weir_control gone;
    assert_int_equal(tcp_open(&env, 1, &gone), WEIR_OK);
    assert_int_equal(gone.ops->listen(gone.self, "127.0.0.1:0", nobody, sizeof nobody), WEIR_OK);
    tcp_close(&gone);
    uint64_t conn;
    const int rc = client.ops->dial(client.self, nobody, &conn);
    assert_int_equal(rc, WEIR_OK);
    put(&client, conn, "lost", 4);
    expect_closed(&client, conn, WEIR_ECONNECT);
}

/* Names go through the resolver's threads. The name below needs no server to be
 * refused: a label has at most 63 bytes (RFC 1035 2.3.4). */
static void test_names_are_resolved_off_the_thread(void **state) {
    (void)state;
    char name[80 + sizeof ".x:7000"];
    memset(name, 'a', 80);
    strcpy(name + 80, ".x:7000");
    enum { NAMES = 20 }; /* more than the resolver takes at once */
    uint64_t conns[NAMES];
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(client.ops->dial(client.self, name, &conns[i]), WEIR_OK);
        put(&client, conns[i], "kept", 4);
    }
    client.ops->hangup(client.self, conns[3]);         /* being looked up, or found */
    client.ops->hangup(client.self, conns[NAMES - 2]); /* waiting for its turn */
    for (int i = 0; i < NAMES - 2; i++) {
        const struct weir_control_event event = expect(&client, WEIR_CONTROL_CLOSED);
        assert_int_equal(event.error, WEIR_EADDRESS);
        assert_true(event.conn != conns[3] && event.conn != conns[NAMES - 2]);
    }
    expect_quiet(&client);
}

static void test_localhost_by_name(void **state) {
    (void)state;
    struct addrinfo *found = NULL;
    if (getaddrinfo("localhost", NULL, NULL, &found) != 0) {
        skip(); /* a machine whose hosts(5) file does not name itself */
    }
    freeaddrinfo(found);
    char to[WEIR_ADDRESS_MAX];
    snprintf(to, sizeof to, "localhost:%u", (unsigned)server_port());
    uint64_t conn;
    assert_int_equal(client.ops->dial(client.self, to, &conn), WEIR_OK);
    put(&client, conn, "by name", 7);
    assert_int_equal(expect(&client, WEIR_CONTROL_CONNECTED).conn, conn);
    const uint64_t at_server = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    expect_message(&server, at_server, "by name", 7);
}

/* Closing throws away lookups under way; sanitizers see whether their memory lives. */
static void test_close_with_lookups_under_way(void **state) {
    (void)state;
    const int before = fd_count();
    for (int round = 0; round < 50; round++) {
        struct weir_control other;
        assert_int_equal(tcp_open(&env, 16, &other), WEIR_OK);
        for (int i = 0; i < 16; i++) {
            uint64_t conn;
            assert_int_equal(other.ops->dial(other.self, "localhost:7", &conn), WEIR_OK);
        }
        tcp_close(&other);
    }
    /* The threads leave by themselves, the last of each resolver with its descriptor. */
    for (int i = 0; i < PATIENCE_MS && fd_count() != before; i++) {
        usleep(1000);
    }
    assert_int_equal(fd_count(), before);
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

/* What a deaf peer could not take at first comes whole and in order when it reads. */
static void test_full_buffer_keeps_frames_whole(void **state) {
    (void)state;
    uint64_t at_client, at_server;
    join(&at_client, &at_server);
    uint8_t message[WEIR_CONTROL_MESSAGE_MAX] = {0};
    uint32_t sent = 0;
    uint32_t refused = 0;
    uint32_t received = 0;
    for (uint32_t turn = 0; turn < 20000; turn++) {
        memcpy(message, &sent, sizeof sent);
        const uint32_t length = 4 + (sent * 37) % (WEIR_CONTROL_MESSAGE_MAX - 3);
        const int rc = client.ops->send(client.self, at_client, message, length);
        if (rc == WEIR_OK) {
            sent++;
            continue;
        }
        assert_int_equal(rc, WEIR_EAGAIN);
        refused++;
        struct weir_control_event event;
        (void)client.ops->poll(client.self, &event); /* flushes when the socket takes more */
        for (int i = 0; i < 64 && server.ops->poll(server.self, &event); i++) {
            uint32_t number;
            memcpy(&number, event.message, sizeof number);
            assert_int_equal(number, received);
            assert_int_equal(event.length, 4 + (number * 37) % (WEIR_CONTROL_MESSAGE_MAX - 3));
            received++;
        }
    }
    assert_true(refused > 0);
    assert_true(received > 0);
    struct weir_control_event event;
    while (received < sent) {
        assert_int_equal(client.ops->poll(client.self, &event), 0);
        if (server.ops->poll(server.self, &event)) {
            assert_int_equal(event.type, WEIR_CONTROL_MESSAGE);
            received++;
        }
    }
    expect_quiet(&server);
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

/* Four connections are all there may be. Those that never spoke make room, oldest
 * first, but not before they had a second; those that spoke stay, and then the next
 * one waits in the backlog until somebody leaves. */
static void test_H10_accept_flood(void **state) {
    (void)state;
    uint64_t silent[4];
    int fds[6];
    for (int i = 0; i < 4; i++) {
        fds[i] = raw_join(&silent[i]);
    }
    fds[4] = raw_socket();
    raw_connect(fds[4]);
    expect_quiet(&server);
    skew_ns += 2 * S;
    expect_closed(&server, silent[0], WEIR_ECONNECT);
    const uint64_t fifth = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    assert_true(fifth != silent[0]);

    uint8_t bytes[16];
    const size_t length = frame(bytes, "here", 4);
    for (int i = 1; i < 5; i++) {
        raw_send(fds[i], bytes, length);
        expect_message(&server, i < 4 ? silent[i] : fifth, "here", 4);
    }
    fds[5] = raw_socket();
    raw_connect(fds[5]);
    skew_ns += 20 * S;
    expect_quiet(&server);
    uint64_t none;
    assert_int_equal(server.ops->dial(server.self, address, &none), WEIR_EAGAIN);
    close(fds[2]);
    expect_closed(&server, silent[2], WEIR_EPEER);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    for (int i = 0; i < 6; i++) {
        if (i != 2) {
            close(fds[i]);
        }
    }
}

/* No descriptor left: the peer waits in the backlog, the loop sleeps, and it goes on
 * when there is one again. */
static void test_accept_without_descriptors(void **state) {
    (void)state;
    if (getenv("WEIR_UNDER_VALGRIND") != NULL) {
        skip(); /* valgrind plays this limit itself, and drops what accept4 returned */
    }
    const int fd = raw_socket();
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 1; /* no new descriptor; the open ones stay, and poll(2) takes one */
    raw_connect(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    uint64_t conn;
    const int dial = client.ops->dial(client.self, address, &conn);
    expect_quiet(&server);
    expect_quiet(&server);
    expect_quiet(&server);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(dial, WEIR_EAGAIN);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    assert_int_equal(client.ops->dial(client.self, address, &conn), WEIR_OK);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    close(fd);
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

/* The last words arrive although the one who says them has not listened. */
static void test_hangup_delivers_what_was_sent(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        uint64_t at_client, at_server;
        join(&at_client, &at_server);
        put(&server, at_server, "unheard", 7);
        put(&client, at_client, "bye", 3);
        client.ops->hangup(client.self, at_client);
        expect_message(&server, at_server, "bye", 3);
        expect_closed(&server, at_server, WEIR_EPEER);
    }
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

/* Connections come and go; descriptors do not pile up and numbers do not repeat. */
static void test_thousands_of_connects(void **state) {
    (void)state;
    enum { CYCLES = 3000 };
    static uint64_t seen[CYCLES];
    const int before = fd_count();
    for (int i = 0; i < CYCLES; i++) {
        uint64_t at_client, at_server;
        join(&at_client, &at_server);
        seen[i] = at_client;
        if (i % 2 == 0) {
            client.ops->hangup(client.self, at_client);
            expect_closed(&server, at_server, WEIR_EPEER);
        } else {
            server.ops->hangup(server.self, at_server);
            expect_closed(&client, at_client, WEIR_EPEER);
        }
        assert_true(i == 0 || seen[i] > seen[i - 1]); /* one at a time: the same index */
        assert_int_equal(client.ops->send(client.self, seen[i / 2], NULL, 0), WEIR_ECONNECT);
    }
    assert_int_equal(fd_count(), before);
}

static void test_H10_a_thousand_at_once(void **state) {
    (void)state;
    enum { CONNS = 1000 };
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit more = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (limit.rlim_max < 2 * CONNS + 100 || setrlimit(RLIMIT_NOFILE, &more) != 0) {
        skip();
    }
    for (int i = 0; i < CONNS; i++) {
        uint64_t conn;
        assert_int_equal(client.ops->dial(client.self, address, &conn), WEIR_OK);
        put(&client, conn, &conn, sizeof conn);
    }
    struct weir_control_event event;
    int connected = 0;
    int echoed = 0;
    const uint64_t until = real.ops->now(real.self) + 20 * S;
    while (echoed < CONNS && real.ops->now(real.self) < until) {
        if (server.ops->poll(server.self, &event) && event.type == WEIR_CONTROL_MESSAGE) {
            put(&server, event.conn, event.message, event.length);
        }
        if (client.ops->poll(client.self, &event)) {
            connected += event.type == WEIR_CONTROL_CONNECTED;
            if (event.type == WEIR_CONTROL_MESSAGE) {
                assert_int_equal(event.length, sizeof event.conn);
                assert_memory_equal(event.message, &event.conn, sizeof event.conn);
                echoed++;
            }
        }
    }
    assert_int_equal(connected, CONNS);
    assert_int_equal(echoed, CONNS);
    tcp_close(&client);
    tcp_close(&server);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_descriptors_close_on_exec(void **state) {
    (void)state;
    uint64_t at_client, at_server;
    join(&at_client, &at_server);
    DIR *directory = opendir("/proc/self/fd");
    int inherited = 0;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const int fd = atoi(entry->d_name);
        const int flags = fcntl(fd, F_GETFD);
        inherited += flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    closedir(directory);
    tcp_close(&client);
    tcp_close(&server);
    directory = opendir("/proc/self/fd");
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const int fd = atoi(entry->d_name);
        const int flags = fcntl(fd, F_GETFD);
        inherited -= flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    closedir(directory);
    assert_int_equal(inherited, 0); /* those without the flag are not the channel's */
}

static void test_E5_every_allocation_of_open_fails(void **state) {
    (void)state;
    const int before = fd_count();
    struct weir_control other;
    assert_int_equal(tcp_open(&env, TCP_CONNS_MAX + 1, &other), WEIR_EINVAL);
    int failures = 0;
    for (int allowed = 0;; allowed++) {
        allocs_left = allowed;
        const int rc = tcp_open(&env, 8, &other);
        if (rc == WEIR_OK) {
            tcp_close(&other);
            break;
        }
        assert_int_equal(rc, WEIR_ENOMEM);
        failures++;
        assert_int_equal(fd_count(), before);
    }
    assert_int_equal(failures, 2);
    allocs_left = -1;
    tcp_close(&other); /* closed is zeroed, and zeroed is allowed */
    assert_int_equal(fd_count(), before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_address_syntax),
        TEST(test_listen_errors),
        TEST(test_exchange),
        {"test_exchange_v6", test_exchange, setup_v6, teardown, NULL},
        TEST(test_wildcard_takes_both_families),
        TEST(test_dial_to_nobody_is_closed),
        TEST(test_names_are_resolved_off_the_thread),
        TEST(test_localhost_by_name),
        TEST(test_close_with_lookups_under_way),
        TEST(test_H13_oversized_frames),
        TEST(test_H13_truncated_frames),
        TEST(test_reset_is_a_broken_connection),
        TEST(test_partial_frames_at_every_byte),
        TEST(test_H10_slow_clients_delay_nobody),
        TEST(test_full_buffer_keeps_frames_whole),
        TEST(test_H10_dawdlers_are_closed),
        cmocka_unit_test_setup_teardown(test_H10_accept_flood, setup_small, teardown),
        TEST(test_accept_without_descriptors),
        TEST(test_H10_black_hole_never_blocks),
        TEST(test_hangup_delivers_what_was_sent),
        TEST(test_send_to_the_departed),
        TEST(test_thousands_of_connects),
        TEST(test_H10_a_thousand_at_once),
        TEST(test_descriptors_close_on_exec),
        TEST(test_E5_every_allocation_of_open_fails),
    };
    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
