/* SPDX-License-Identifier: Apache-2.0 */
/* test_tcp.c: the control channel over TCP against itself: addresses, names, messages,
 * bounds, and what is left when connections come and go. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "address.h"
#include "os.h"
#include "tcp_sides.h"

static int setup(void **state) {
    (void)state;
    return sides_open("127.0.0.1:0", 0);
}

static int setup_v6(void **state) {
    (void)state;
    return sides_open("[::1]:0", 0);
}

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
    /* An address on which one listens is nobody's. */
    static const char *const any[] = {"0.0.0.0:7", "[::]:7", "0:7"};
    for (size_t i = 0; i < sizeof any / sizeof any[0]; i++) {
        assert_int_equal(client.ops->check(client.self, any[i]), WEIR_EADDRESS);
    }
    assert_int_equal(client.ops->check(client.self, "127.0.0.1:7"), WEIR_OK);
    assert_int_equal(client.ops->check(client.self, "host:7"), WEIR_OK);
    /* An address that others tell is dialled if it names a host, and needs no look-up. */
    static const char *const names[] = {
        "host:7",  "a.b-c.d:80",         "1.2.3.4.5:7", "0:5",     "0.0.0.0:5",
        "[0::]:5", "[::ffff:0.0.0.0]:5", "10.0.0.1:0",  "10.0.0.1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(client.ops->numeric(client.self, names[i]));
    }
    assert_true(client.ops->numeric(client.self, "10.0.0.1:7"));
    assert_true(client.ops->numeric(client.self, "[fe80::1%nowhere]:5"));
    assert_true(client.ops->numeric(client.self, "[::ffff:10.0.0.1]:5"));
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
        /* IPv4 is told as such, also by a socket of both. */
        char host[WEIR_ADDRESS_MAX];
        both.ops->from(both.self, expect(&both, WEIR_CONTROL_ACCEPTED).conn, host, sizeof host);
        assert_string_equal(host, hosts[i]);
        both.ops->from(both.self, 12345, host, sizeof host);
        assert_string_equal(host, "");
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
    expect_closed(&client, conn, WEIR_EPEER); /* refused */
}

/* W10: no route is said as such. Nothing may connect to the broadcast address (ip(7)). */
static void test_W10_no_route_is_told_from_silence(void **state) {
    (void)state;
    uint64_t conn;
    const int rc = client.ops->dial(client.self, "255.255.255.255:9", &conn);
    if (rc == WEIR_OK)
        expect_closed(&client, conn, WEIR_EUNREACH);
    else
        assert_int_equal(rc, WEIR_EUNREACH);
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

/* No thread can be made, and no other lookup will end: the dial says so, and is not kept. */
static void test_W7_no_thread_to_look_a_name_up(void **state) {
    (void)state;
    pthread_attr_t usual, vast;
    uint64_t conn;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&vast), 0);
    assert_int_equal(pthread_attr_setstacksize(&vast, (size_t)1 << 46), 0);
    assert_int_equal(pthread_setattr_default_np(&vast), 0);
    assert_int_equal(client.ops->dial(client.self, "localhost:7000", &conn), WEIR_OK);
    const struct weir_control_event event = expect(&client, WEIR_CONTROL_CLOSED);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(event.conn, conn);
    assert_int_equal(event.error, WEIR_ENOMEM);
    expect_quiet(&client);
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&vast);
}

static bool put_over(const char *path, const char *text) {
    char name[] = "/tmp/weir-test-XXXXXX";
    const int fd = mkstemp(name);
    const bool good = fd >= 0 && fchmod(fd, 0644) == 0 &&
                      write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
                      mount(name, path, "none", MS_BIND, NULL) == 0;
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    return good;
}

/* A machine with a name server that does not answer: that is no word on the name. */
static void test_W3_no_name_server_answers(void **state) {
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct address_list list;
        if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
            mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
            !put_over("/etc/resolv.conf", "nameserver 192.0.2.1\n") ||
            !put_over("/etc/nsswitch.conf", "hosts: dns\n")) {
            _exit(77);
        }
        _exit(address_resolve("some.name", 7000, &list) == WEIR_EUNREACH ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip(); /* only root changes what names are looked up in */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
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

/* Messages that a deaf peer could not take at first come whole and in order when it reads. */
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
    struct weir_control_event starved;
    const int told = take(&server, &starved, PATIENCE_MS);
    expect_quiet(&server);
    expect_quiet(&server);
    expect_quiet(&server);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(dial, WEIR_EMFILE);
    assert_int_equal(told, 1);
    assert_int_equal(starved.type, WEIR_CONTROL_STARVED);
    assert_int_equal(starved.error, WEIR_EMFILE);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    assert_int_equal(client.ops->dial(client.self, address, &conn), WEIR_OK);
    (void)expect(&server, WEIR_CONTROL_ACCEPTED);
    close(fd);
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

static int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &length), 0);
    return value;
}

/* Both ends of a connection; the accepted one has it from the listener. */
static void test_every_connection_is_tuned(void **state) {
    uint64_t at_client, at_server;
    int count = 0;
    (void)state;
    join(&at_client, &at_server);
    for (int fd = 0; fd < 64; fd++) {
        int value;
        socklen_t length = sizeof value;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) != 0 || value != 0)
            continue;
        count++;
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
        assert_int_equal(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 5);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), 2);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 11000);
    }
    assert_int_equal(count, 2);
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
    assert_int_equal(failures, 3);
    allocs_left = -1;
    tcp_close(&other); /* closed is zeroed, and zeroed is allowed */
    assert_int_equal(fd_count(), before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, sides_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_address_syntax),
        TEST(test_listen_errors),
        TEST(test_exchange),
        {"test_exchange_v6", test_exchange, setup_v6, sides_close, NULL},
        TEST(test_wildcard_takes_both_families),
        TEST(test_dial_to_nobody_is_closed),
        TEST(test_W10_no_route_is_told_from_silence),
        TEST(test_names_are_resolved_off_the_thread),
        TEST(test_localhost_by_name),
        TEST(test_W7_no_thread_to_look_a_name_up),
        TEST(test_W3_no_name_server_answers),
        TEST(test_close_with_lookups_under_way),
        TEST(test_full_buffer_keeps_frames_whole),
        TEST(test_accept_without_descriptors),
        TEST(test_hangup_delivers_what_was_sent),
        TEST(test_thousands_of_connects),
        TEST(test_H10_a_thousand_at_once),
        TEST(test_every_connection_is_tuned),
        TEST(test_descriptors_close_on_exec),
        TEST(test_E5_every_allocation_of_open_fails),
    };
    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
