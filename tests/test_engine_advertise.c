/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_advertise.c: the address that an engine tells others, where that is not the one at
 * which it listens (W12): what is returned and told, that peers reach it there, also through a
 * relay that stands for an address translation, and that two that call each other meet as one. */
#define _POSIX_C_SOURCE 200809L
#include "engine_side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void open_telling(struct side *side, const char *listen, const char *advertise) {
    weir_engine_options options = side_options();
    options.listen = listen;
    options.advertise = advertise;
    side_open(side, &options);
}

/* The address of b's engine, as a knows it from b. */
static const char *known_of(struct side *a, weir_peer peer) {
    static weir_peer_info info;
    info = (weir_peer_info)WEIR_PEER_INFO_INIT;
    assert_int_equal(weir_peer_query(a->engine, peer, &info), WEIR_OK);
    return info.address;
}

/* b calls a, and nobody has opened b there: the handle by which a knows b. */
static weir_peer met(struct side *a, struct side *b) {
    assert_int_equal(weir_peer_open(b->engine, a->address, &b->peer), WEIR_OK);
    weir_peer_connect(b->engine, b->peer);
    return next_event(a, b, WEIR_EVENT_UP).peer;
}

static void test_W12_what_is_advertised_is_returned_and_told(void **state) {
    static const struct {
        const char *listen, *advertise;
        const char *host;  /* with the engine's port behind it, */
        const char *whole; /* or this is all */
        bool told;
    } cases[] = {
        {"0.0.0.0:0", "127.0.0.1", "127.0.0.1:", NULL, true},
        {"127.0.0.1:0", "127.0.0.2", "127.0.0.2:", NULL, true},
        {"127.0.0.1:0", "203.0.113.7:7471", NULL, "203.0.113.7:7471", true},
        {"0.0.0.0:0", "fd00::77", "[fd00::77]:", NULL, true},
        {"0.0.0.0:0", "[fd00::77]", "[fd00::77]:", NULL, true},
        {"0.0.0.0:0", "[fd00::77]:80", NULL, "[fd00::77]:80", true},
        {"0.0.0.0:0", "localhost", "localhost:", NULL, false}, /* no name is told */
        {"0.0.0.0:0", "node-7.example:80", NULL, "node-7.example:80", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct side a, b;
        open_telling(&a, "127.0.0.1:0", NULL);
        open_telling(&b, cases[i].listen, cases[i].advertise);
        if (cases[i].whole != NULL) {
            assert_string_equal(b.address, cases[i].whole);
        } else {
            assert_memory_equal(b.address, cases[i].host, strlen(cases[i].host));
            assert_true(strspn(b.address + strlen(cases[i].host), "0123456789") > 0);
        }
        weir_peer from = met(&a, &b);
        assert_string_equal(known_of(&a, from), cases[i].told ? b.address : "");
        pair_close(&a, &b);
    }
}

static void test_W12_what_cannot_be_called_is_refused(void **state) {
    static const struct {
        const char *advertise, *says;
    } cases[] = {
        {"", "not HOST"},           {"0.0.0.0", "a wildcard"},    {"[::]:7000", "a wildcard"},
        {"::", "a wildcard"},       {"10.0.0.1:0", "port 0"},     {"10.0.0.1:", "not HOST"},
        {"10.0.0.1:x", "not HOST"}, {"[fd00::1", "not HOST"},     {"a:b:c", "not HOST"},
        {":7000", "not HOST"},      {"[a:b:c]:7000", "not HOST"}, {"10.0.0.1:70000", "not HOST"},
    };
    weir_engine_options options = side_options();
    weir_engine *engine = NULL;
    char note[WEIR_OPEN_NOTE_MAX], longest[WEIR_ADDRESS_MAX + 1];
    (void)state;
    options.listen = "0.0.0.0:0";
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        options.advertise = cases[i].advertise;
        int rc = weir_engine_open(&options, &engine);
        if (rc != WEIR_EADDRESS)
            fail_msg("\"%s\" is %s", cases[i].advertise, weir_error_name(rc));
        assert_int_equal(weir_open_explain(&options, rc, note, sizeof(note)), WEIR_OK);
        if (strncmp(note, "advertise ", 10) != 0 || strstr(note, cases[i].says) == NULL)
            fail_msg("\"%s\": %s", cases[i].advertise, note);
    }
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    options.advertise = longest;
    assert_int_equal(weir_engine_open(&options, &engine), WEIR_EADDRESS);
    options.advertise = "10.0.0.1";
    options.listen = "none";
    assert_int_equal(weir_engine_open(&options, &engine), WEIR_EADDRESS);
    assert_int_equal(weir_open_explain(&options, WEIR_EADDRESS, note, sizeof(note)), WEIR_OK);
    assert_string_equal(note, "advertise 10.0.0.1: the engine does not listen");
    options.listen = "192.0.2.1:0"; /* what is wrong with the other one is still said */
    assert_int_equal(weir_engine_open(&options, &engine), WEIR_EADDRESS);
    assert_int_equal(weir_open_explain(&options, WEIR_EADDRESS, note, sizeof(note)), WEIR_OK);
    assert_memory_equal(note, "listen 192.0.2.1:0: ", 20);
    assert_null(engine);
}

/* An application that was built before there was the field. */
static void test_W12_a_shorter_struct_advertises_nothing(void **state) {
    weir_engine_options options = side_options();
    struct side a;
    (void)state;
    options.listen = "127.0.0.1:0";
    options.advertise = "what is behind the struct";
    options.size = offsetof(weir_engine_options, advertise);
    side_open(&a, &options);
    assert_memory_equal(a.address, "127.0.0.1:", 10);
    side_close(&a);
}

/* Behind "0.0.0.0" a peer learns where we are, calls us there, and it is the same peer. */
static void test_W12_a_peer_calls_back_what_it_was_told(void **state) {
    struct side a, b;
    weir_peer again;

    (void)state;
    open_telling(&a, "127.0.0.1:0", NULL);
    open_telling(&b, "0.0.0.0:0", "127.0.0.1");
    weir_peer from = met(&a, &b);
    assert_int_equal(weir_peer_open(a.engine, b.address, &again), WEIR_OK);
    assert_int_equal(again.id, from.id);
    a.peer = again;
    a.remote = side_import(&a, a.peer, &b, b.memory);
    weir_segment one = segment_of(&a, 0, 8, 8);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    pair_close(&a, &b);
}

/* What is advertised is asked who answers there, also by the engine that does: it is itself. Nobody
 * believes it without asking, as it may be another's. */
static void test_W12_what_is_advertised_may_be_another_engine(void **state) {
    struct side a, b;
    weir_peer self;

    (void)state;
    open_telling(&a, "127.0.0.1:0", NULL);
    open_telling(&b, "0.0.0.0:0", "127.0.0.2");
    assert_int_equal(weir_peer_open(b.engine, b.address, &b.peer), WEIR_OK);
    weir_peer_connect(b.engine, b.peer);
    weir_event same = next_event(&b, NULL, WEIR_EVENT_SAME);
    assert_int_equal(weir_peer_self(b.engine, &self), WEIR_OK);
    assert_int_equal(same.value, self.id);
    side_close(&b);
    open_telling(&b, "127.0.0.1:0", a.address); /* a lie */
    side_join(&b, &a);
    weir_segment one = segment_of(&b, 0, 0, 8);
    fill_pattern(b.bytes, 8, 9);
    assert_int_equal(write_now(&b, &a, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(a.bytes, b.bytes, 8);
    pair_close(&a, &b);
}

static uint32_t sessions_of(struct side *side) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(side->engine, &info), WEIR_OK);
    return (uint32_t)info.sessions_up;
}

/* Both advertise another address of the host than connections come from, and both call at once: one
 * session, and one peer on each side. */
static void test_W12_two_that_call_each_other_meet_as_one(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct side a, b;
        open_telling(&a, "0.0.0.0:0", "127.0.0.2");
        open_telling(&b, "0.0.0.0:0", "127.0.0.3");
        side_join(&a, &b);
        side_join(&b, &a);
        weir_peer_connect(a.engine, a.peer);
        weir_peer_connect(b.engine, b.peer);
        STEP_UNTIL(&a, &b, is_connected(&a) && is_connected(&b));
        assert_int_equal(sessions_of(&a), 1);
        assert_int_equal(sessions_of(&b), 1);
        weir_segment there = segment_of(&a, 0, 0, 8), back = segment_of(&b, 8, 8, 8);
        assert_int_equal(write_now(&a, &b, &there, 1, NULL), WEIR_OK);
        assert_int_equal(write_now(&b, &a, &back, 1, NULL), WEIR_OK);
        assert_int_equal(info_of(&a).peer.id, a.peer.id);
        assert_int_equal(info_of(&b).peer.id, b.peer.id);
        pair_close(&a, &b);
    }
}

/* ---- an address translation --------------------------------------------- */

enum { PIPES = 16 };

/* Takes connections at its port and carries their bytes to another and back. */
struct relay {
    int listener;
    atomic_ushort to;
    atomic_bool stop;
    atomic_uint carried; /* connections */
    pthread_t thread;
    char address[32];
};

static int dial(uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* False: it has ended. */
static bool carry(int from, int to) {
    char bytes[4096];
    ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    for (ssize_t sent = 0; got > 0 && sent < got;) {
        ssize_t put = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        sent += put;
    }
    return got > 0;
}

static void *relay_main(void *argument) {
    struct relay *relay = argument;
    struct pollfd fds[1 + 2 * PIPES] = {{.fd = relay->listener, .events = POLLIN}};
    for (int i = 1; i < 1 + 2 * PIPES; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (!atomic_load(&relay->stop)) {
        if (poll(fds, 1 + 2 * PIPES, 10) <= 0)
            continue;
        for (int i = 1; i < 1 + 2 * PIPES; i++) {
            int other = i % 2 == 1 ? i + 1 : i - 1;
            if (fds[i].fd < 0 || fds[i].revents == 0 || carry(fds[i].fd, fds[other].fd))
                continue;
            close(fds[i].fd);
            close(fds[other].fd);
            fds[i].fd = fds[other].fd = -1;
        }
        if (fds[0].revents == 0)
            continue;
        int in = accept(relay->listener, NULL, NULL), out = dial(atomic_load(&relay->to)), free = 1;
        while (free < 2 * PIPES && fds[free].fd >= 0)
            free += 2;
        if (in < 0 || out < 0 || free > 2 * PIPES)
            continue;
        fds[free].fd = in;
        fds[free + 1].fd = out;
        fds[free].revents = fds[free + 1].revents = 0;
        atomic_fetch_add(&relay->carried, 1);
    }
    for (int i = 0; i < 1 + 2 * PIPES; i++) {
        if (fds[i].fd >= 0)
            close(fds[i].fd);
    }
    return NULL;
}

static void relay_open(struct relay *relay) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof(at);
    at.sin_addr.s_addr = htonl(0x7f000004); /* 127.0.0.4 */
    memset(relay, 0, sizeof(*relay));
    relay->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(relay->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(relay->listener, PIPES), 0);
    assert_int_equal(getsockname(relay->listener, (struct sockaddr *)&at, &length), 0);
    snprintf(relay->address, sizeof(relay->address), "127.0.0.4:%u", ntohs(at.sin_port));
}

static void relay_close(struct relay *relay) {
    atomic_store(&relay->stop, true);
    assert_int_equal(pthread_join(relay->thread, NULL), 0);
}

static uint16_t port_of(struct side *side, struct side *other) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    (void)other;
    assert_int_equal(weir_peer_query(side->engine, side->peer, &info), WEIR_OK);
    return (uint16_t)atoi(strrchr(info.address, ':') + 1);
}

/* The engine listens at one port, and others know another, which leads there. */
static void test_W12_a_peer_behind_a_translation_is_reached(void **state) {
    struct relay relay;
    struct side a, b, probe;
    char listen[32];

    (void)state;
    relay_open(&relay);
    open_telling(&probe, "127.0.0.1:0", NULL); /* a free port */
    uint16_t port = (uint16_t)atoi(strrchr(probe.address, ':') + 1);
    side_close(&probe);
    snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
    open_telling(&b, listen, relay.address);
    assert_string_equal(b.address, relay.address);
    atomic_store(&relay.to, port);
    assert_int_equal(pthread_create(&relay.thread, NULL, relay_main, &relay), 0);
    open_telling(&a, "127.0.0.1:0", NULL);
    side_join(&a, &b);
    assert_int_equal(port_of(&a, &b), atoi(strrchr(relay.address, ':') + 1));
    weir_segment one = segment_of(&a, 0, 0, 8);
    fill_pattern(a.bytes, 8, 3);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(b.bytes, a.bytes, 8);
    assert_true(atomic_load(&relay.carried) >= 1);
    /* The other way, over the connection that there is: one peer on both sides. */
    side_join(&b, &a);
    weir_segment back = segment_of(&b, 8, 8, 8);
    assert_int_equal(write_now(&b, &a, &back, 1, NULL), WEIR_OK);
    assert_int_equal(sessions_of(&a), 1);
    assert_int_equal(sessions_of(&b), 1);
    pair_close(&a, &b);
    relay_close(&relay);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W12_what_is_advertised_is_returned_and_told),
        cmocka_unit_test(test_W12_what_cannot_be_called_is_refused),
        cmocka_unit_test(test_W12_a_shorter_struct_advertises_nothing),
        cmocka_unit_test(test_W12_a_peer_calls_back_what_it_was_told),
        cmocka_unit_test(test_W12_what_is_advertised_may_be_another_engine),
        cmocka_unit_test(test_W12_two_that_call_each_other_meet_as_one),
        cmocka_unit_test(test_W12_a_peer_behind_a_translation_is_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
