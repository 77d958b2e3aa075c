/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_peers.c: the peers that are there: addresses, engines that cannot be called,
 * restarts, deaths, crossing opens, two names of one engine, events (E6, H1, H2, H5, H6, H12,
 * T3). */
#include "engine_side.h"
#include "held.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- addresses ---- */

static void test_H1_ipv6(void **state) {
    weir_engine_options options = side_options();
    weir_engine *probe = NULL;
    struct side a, b;

    (void)state;
    options.listen = "[::1]:0";
    if (weir_engine_open(&options, &probe) == WEIR_EADDRESS)
        skip(); /* no IPv6 on this machine */
    weir_engine_close(probe);
    pair_open(&a, &b, &options);
    assert_int_equal(strncmp(a.address, "[::1]:", 6), 0);
    weir_segment one = segment_of(&a, 0, 0, 64);
    memset(a.bytes, 6, 64);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(a.bytes, b.bytes, 64);
    assert_string_equal(info_of(&a).address, b.address);
    pair_close(&a, &b);
}

/* An engine without a listener calls, and is answered over its own connection. */
static void test_H1_a_client_without_a_listener(void **state) {
    weir_engine_options options = side_options();
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    struct side client, server;

    (void)state;
    options.listen = "none";
    side_open(&client, &options);
    side_open(&server, NULL);
    side_join(&client, &server);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(write_now(&client, &server, NULL, 0, &notify), WEIR_OK);
    STEP_UNTIL(&client, &server, weir_notification_take(server.engine, &got) == WEIR_OK);
    /* The server knows it by the notification, and can write to it. */
    server.peer = got.from;
    server.remote = side_import(&server, got.from, &client, client.memory);
    assert_string_equal(info_of(&server).address, "");
    weir_segment one = segment_of(&server, 0, 0, 64);
    memset(server.bytes, 8, 64);
    assert_int_equal(write_now(&server, &client, &one, 1, &notify), WEIR_OK);
    assert_memory_equal(client.bytes, server.bytes, 64);
    STEP_UNTIL(&client, &server, weir_notification_take(client.engine, &got) == WEIR_OK);
    assert_int_equal(got.from.id, client.peer.id);
    /* It leaves: nobody can be asked whether it comes back. */
    weir_peer known = server.peer;
    side_close(&client);
    weir_event event = next_event(&server, NULL, WEIR_EVENT_GONE);
    assert_int_equal(event.peer.id, known.id);
    weir_transfer transfer;
    STEP_UNTIL(&server, NULL,
               weir_write(server.engine, known, &one, 1, NULL, &transfer) == WEIR_ESTALE);
    side_close(&server);
}

static void test_H10_nobody_there(void **state) {
    weir_engine_options options = side_options();
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    options.connect_timeout_ns = 60 * MS;
    side_open(&a, &options);
    side_open(&b, NULL);
    side_join(&a, &b);
    side_close(&b);
    weir_segment one = segment_of(&a, 0, 0, 64);
    int rc = weir_write(a.engine, a.peer, &one, 1, NULL, &transfer);
    if (rc == WEIR_OK)
        rc = finish(&a, NULL, transfer);
    assert_int_equal(rc, WEIR_ECONNECT);
    assert_int_equal(weir_peer_connect(a.engine, a.peer), WEIR_ENOTREADY); /* it may come back */
    side_close(&a);
}

/* ---- itself ---- */

/* Its own address, as it is known, is the engine itself, at once. */
static void test_H16_itself_by_its_address(void **state) {
    char text[WEIR_STALL_TEXT_MAX];
    weir_peer self;
    struct side a;

    (void)state;
    side_open(&a, NULL);
    side_join(&a, &a);
    assert_int_equal(weir_peer_self(a.engine, &self), WEIR_OK);
    assert_int_equal(self.id, a.peer.id);
    assert_int_equal(next_event(&a, NULL, WEIR_EVENT_UP).peer.id, self.id);
    assert_int_equal(weir_stall_text(a.engine, self, text, sizeof(text)), WEIR_OK);
    assert_non_null(strstr(text, "to this engine itself"));
    fill_pattern(a.bytes, 64, 1);
    weir_segment one = segment_of(&a, 0, 1024, 64);
    assert_int_equal(write_now(&a, NULL, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(a.bytes + 1024, a.bytes, 64);
    assert_int_equal(read_now(&a, NULL, &one, 1, NULL), WEIR_OK);
    side_close(&a);
}

/* A name that leads here: what was submitted before that was known goes on, with memory that was
 * imported before. */
static void test_H16_itself_under_another_name(void **state) {
    char name[WEIR_ADDRESS_MAX];
    weir_transfer_options note = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    weir_transfer transfer;
    weir_peer self;
    struct side a;

    (void)state;
    side_open(&a, NULL);
    snprintf(name, sizeof(name), "localhost%s", strrchr(a.address, ':'));
    assert_int_equal(weir_peer_open(a.engine, name, &a.peer), WEIR_OK);
    a.remote = side_import(&a, a.peer, &a, a.memory);
    fill_pattern(a.bytes, 64, 2);
    note.flags = WEIR_TRANSFER_NOTIFY;
    note.notify_tag = 7;
    weir_segment one = segment_of(&a, 0, 1024, 64);
    assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &note, &transfer), WEIR_OK);
    assert_int_equal(finish(&a, NULL, transfer), WEIR_OK);
    assert_memory_equal(a.bytes + 1024, a.bytes, 64);
    assert_int_equal(weir_peer_self(a.engine, &self), WEIR_OK);
    weir_event same = next_event(&a, NULL, WEIR_EVENT_SAME);
    assert_int_equal(same.peer.id, a.peer.id);
    assert_int_equal(same.value, self.id);
    assert_int_equal(weir_notification_take(a.engine, &got), WEIR_OK);
    assert_int_equal(got.tag, 7);
    assert_int_equal(got.from.id, self.id);
    assert_int_equal(info_of(&a).peer.id, self.id);
    assert_int_equal(weir_peer_flush(a.engine, a.peer, 0), WEIR_OK);
    assert_int_equal(weir_peer_close(a.engine, a.peer), WEIR_OK);
    a.peer = self;
    a.remote = side_import(&a, a.peer, &a, a.memory);
    one = segment_of(&a, 0, 2048, 64);
    assert_int_equal(write_now(&a, NULL, &one, 1, NULL), WEIR_OK);
    side_close(&a);
}

/* Without a listener, and without room for a peer. */
static void test_H16_itself_takes_an_entry_and_no_listener(void **state) {
    weir_engine_options options = side_options();
    weir_peer self, other;
    struct side a;

    (void)state;
    options.listen = "none";
    options.peers_max = 1;
    side_open(&a, &options);
    assert_int_equal(weir_peer_open(a.engine, "127.0.0.1:1", &other), WEIR_OK);
    assert_int_equal(weir_peer_self(a.engine, &self), WEIR_EAGAIN);
    assert_int_equal(weir_peer_close(a.engine, other), WEIR_OK);
    assert_int_equal(weir_peer_self(a.engine, &a.peer), WEIR_OK);
    assert_int_equal(weir_peer_open(a.engine, "127.0.0.1:1", &other), WEIR_EAGAIN);
    a.remote = side_import(&a, a.peer, &a, a.memory);
    weir_segment one = segment_of(&a, 0, 1024, 64);
    assert_int_equal(write_now(&a, NULL, &one, 1, NULL), WEIR_OK);
    assert_string_equal(info_of(&a).address, "");
    assert_int_equal(weir_peer_self(NULL, &self), WEIR_EINVAL);
    assert_int_equal(weir_peer_self(a.engine, NULL), WEIR_EINVAL);
    side_close(&a);
}

enum { OWN_THREADS = 3, OWN_WRITES = 3000 };

struct own_writer {
    struct side *side;
    uint32_t index;
    const char *wrong;
};

static void *own_main(void *argument) {
    struct own_writer *writer = argument;
    struct side *side = writer->side;
    weir_transfer_options note = WEIR_TRANSFER_OPTIONS_INIT;

    note.flags = WEIR_TRANSFER_NOTIFY;
    for (uint32_t i = 0; i < OWN_WRITES && writer->wrong == NULL; i++) {
        weir_segment one = segment_of(side, 4096 * writer->index, 32768 + 4096 * writer->index, 64);
        weir_transfer transfer;
        side->bytes[4096 * writer->index] = (uint8_t)i;
        note.notify_tag = (uint64_t)writer->index << 32 | i;
        int rc = weir_write(side->engine, side->peer, &one, 1, &note, &transfer);
        if (rc != WEIR_OK || weir_transfer_wait(side->engine, transfer, PATIENCE_NS) != WEIR_OK)
            writer->wrong = "write";
        if (side->bytes[32768 + 4096 * writer->index] != (uint8_t)i)
            writer->wrong = "bytes";
        weir_transfer_release(side->engine, transfer);
    }
    return NULL;
}

/* Threads that write to themselves, and one that takes what they tell, each of them in order. */
static void test_H16_itself_from_several_threads(void **state) {
    struct own_writer writers[OWN_THREADS];
    pthread_t threads[OWN_THREADS];
    uint32_t next[OWN_THREADS] = {0};
    weir_notification got;
    struct side a;

    (void)state;
    side_open(&a, NULL);
    side_join(&a, &a);
    for (uint32_t i = 0; i < OWN_THREADS; i++) {
        writers[i] = (struct own_writer){.side = &a, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, own_main, &writers[i]), 0);
    }
    for (uint32_t total = 0; total < OWN_THREADS * OWN_WRITES; total++) {
        while (weir_notification_take(a.engine, &got) != WEIR_OK)
            weir_engine_wait(a.engine, SECOND);
        assert_true(got.tag >> 32 < OWN_THREADS);
        assert_int_equal((uint32_t)got.tag, next[got.tag >> 32]++);
    }
    for (uint32_t i = 0; i < OWN_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_null(writers[i].wrong);
    }
    side_close(&a);
}

/* ---- restart ---- */

static void test_H5_restart_at_the_same_port(void **state) {
    weir_engine_options options = side_options();
    weir_transfer_options once = WEIR_TRANSFER_OPTIONS_INIT;
    char address[WEIR_ADDRESS_MAX];
    uint8_t old_descriptor[WEIR_DESCRIPTOR_MAX];
    size_t old_length = sizeof(old_descriptor);
    weir_remote remote = {0};
    uint8_t instance[16];
    weir_transfer transfer;
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    connect_now(&a, &b);
    next_event(&a, &b, WEIR_EVENT_UP);
    for (int round = 0; round < 5; round++) {
        assert_int_equal(weir_memory_export(b.engine, b.memory, old_descriptor, &old_length),
                         WEIR_OK);
        memcpy(instance, info_of(&a).instance, 16);
        memcpy(address, b.address, sizeof(address));
        weir_segment one = segment_of(&a, 0, 0, 64);
        side_close(&b);
        options.listen = address;
        side_open(&b, &options);
        assert_string_equal(b.address, address);
        weir_event event = next_event(&a, &b, WEIR_EVENT_GONE);
        assert_int_equal(event.peer.id, a.peer.id);
        assert_int_equal(weir_error_class(event.error), WEIR_CLASS_ENDPOINT);
        /* Nothing of the old one is used any more, connected anew or not. */
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_ESTALE);
        connect_now(&a, &b);
        assert_int_equal(next_event(&a, &b, WEIR_EVENT_UP).peer.id, a.peer.id);
        assert_int_not_equal(memcmp(instance, info_of(&a).instance, 16), 0);
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfer), WEIR_ESTALE);
        once.flags = WEIR_TRANSFER_ONCE;
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &once, &transfer), WEIR_ESTALE);
        assert_int_equal(weir_memory_import(a.engine, a.peer, old_descriptor, old_length, &remote),
                         WEIR_ESTALE);
        assert_int_equal(weir_remote_release(a.engine, a.remote), WEIR_OK);
        /* A new descriptor works. */
        a.remote = side_import(&a, a.peer, &b, b.memory);
        one = segment_of(&a, 0, 0, 64);
        memset(a.bytes, 10 + round, 64);
        assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
        assert_memory_equal(a.bytes, b.bytes, 64);
        old_length = sizeof(old_descriptor);
    }
    pair_close(&a, &b);
}

/* Work that waited for the old one does not reach the new one. */
static void test_H5_work_in_flight_ends_with_the_peer(void **state) {
    weir_engine_options options = side_options();
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfers[20];
    char address[WEIR_ADDRESS_MAX];
    struct side a, b;

    (void)state;
    options.recv_credits = 1;
    options.notifications_max = 1;
    side_open(&a, &options);
    side_open(&b, &options);
    side_join(&a, &b);
    connect_now(&a, &b);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    weir_segment one = segment_of(&a, 0, 0, 64);
    for (int i = 0; i < 20; i++)
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, &notify, &transfers[i]), WEIR_OK);
    memcpy(address, b.address, sizeof(address));
    side_close(&b);
    options.listen = address;
    side_open(&b, &options);
    for (int i = 0; i < 20; i++) {
        int rc = finish(&a, &b, transfers[i]);
        if (rc != WEIR_OK && rc != WEIR_EPEER && rc != WEIR_EUNKNOWN && rc != WEIR_ECLOSED)
            fail_msg("transfer %d: %s", i, weir_error_name(rc));
        if (i >= 10)
            assert_int_not_equal(rc, WEIR_OK);
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(b.bytes[i], 0);
    pair_close(&a, &b);
}

/* ---- another process ---- */

struct card { /* what a child tells its parent */
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
};

/* A child that serves memory until it is killed. Forked before any engine is open. */
static pid_t child_start(struct card *card) {
    int pipe_fds[2];

    assert_int_equal(pipe(pipe_fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        weir_engine_options options = side_options();
        weir_engine *engine;
        weir_memory memory;
        void *base;
        struct card mine = {.length = WEIR_DESCRIPTOR_MAX};

        close(pipe_fds[0]);
        if (weir_engine_open(&options, &engine) != WEIR_OK ||
            weir_memory_allocate(engine, 32 << 20, WEIR_ACCESS_ALL, &memory, &base) != WEIR_OK ||
            weir_memory_export(engine, memory, mine.descriptor, &mine.length) != WEIR_OK ||
            weir_engine_address(engine, mine.address, sizeof(mine.address)) != WEIR_OK ||
            write(pipe_fds[1], &mine, sizeof(mine)) != (ssize_t)sizeof(mine))
            _exit(1);
        for (;;)
            weir_engine_wait(engine, UINT64_MAX);
    }
    close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], card, sizeof(*card)), sizeof(*card));
    close(pipe_fds[0]);
    return pid;
}

static void child_kill(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_H12_a_killed_peer_is_noticed(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct card card;
        weir_engine_options options = side_options();
        weir_transfer transfers[8];
        struct side a;
        pid_t pid = child_start(&card);

        /* It is noticed by no time-out: these would take an hour. */
        options.connect_timeout_ns = options.stall_timeout_ns = 3600 * SECOND;
        options.teardown_timeout_ns = 3600 * SECOND;
        side_open_bytes(&a, &options, 32 << 20);
        assert_int_equal(weir_peer_open(a.engine, card.address, &a.peer), WEIR_OK);
        assert_int_equal(
            weir_memory_import(a.engine, a.peer, card.descriptor, card.length, &a.remote), WEIR_OK);
        weir_segment one = segment_of(&a, 0, 0, 32 << 20);
        assert_int_equal(write_now(&a, NULL, &one, 1, NULL), WEIR_OK);
        for (int i = 0; i < 8; i++) { /* much longer than one post */
            int rc = weir_write(a.engine, a.peer, &one, 1, NULL, &transfers[i]);
            assert_int_equal(rc, WEIR_OK);
        }
        for (int i = 0; i < round; i++)
            step(&a, NULL);
        child_kill(pid);
        int failed = 0;
        for (int i = 0; i < 8; i++) {
            int rc = finish(&a, NULL, transfers[i]);
            assert_true(rc == WEIR_OK || rc == WEIR_EPEER);
            failed += rc == WEIR_EPEER;
        }
        next_event(&a, NULL, WEIR_EVENT_GONE);
        assert_int_equal(weir_write(a.engine, a.peer, &one, 1, NULL, &transfers[0]), WEIR_ESTALE);
        assert_true(failed <= 8);
        side_close(&a);
    }
}

static void test_H12_an_idle_engine_notices_too(void **state) {
    struct card card;
    struct side a;

    (void)state;
    pid_t pid = child_start(&card);
    side_open(&a, NULL);
    assert_int_equal(weir_peer_open(a.engine, card.address, &a.peer), WEIR_OK);
    connect_now(&a, NULL);
    child_kill(pid);
    weir_event event = {0};
    while (event.type != WEIR_EVENT_GONE) { /* asleep, not spinning */
        assert_int_equal(weir_engine_wait(a.engine, PATIENCE_NS), WEIR_OK);
        weir_event_take(a.engine, &event);
    }
    side_close(&a);
}

/* ---- crossing ---- */

struct opener {
    struct side *side;
    int rc;
};
static pthread_barrier_t barrier;
static _Atomic int still_open; /* openers that are not done */

static void *opener_main(void *argument) {
    struct opener *opener = argument;
    struct side *side = opener->side;
    weir_segment one = segment_of(side, 0, 1024, 64);
    weir_transfer transfer = {0};

    pthread_barrier_wait(&barrier);
    opener->rc = weir_write(side->engine, side->peer, &one, 1, NULL, &transfer);
    if (opener->rc == WEIR_OK)
        opener->rc = weir_transfer_wait(side->engine, transfer, PATIENCE_NS);
    weir_transfer_release(side->engine, transfer);
    still_open--;
    while (still_open > 0) /* the other one may need us */
        weir_engine_wait(side->engine, MS);
    return NULL;
}

static void test_H2_simultaneous_open_gives_one_session(void **state) {
    (void)state;
    for (int round = 0; round < 100; round++) {
        pthread_t threads[2];
        struct side a, b;
        struct opener openers[2] = {{.side = &a}, {.side = &b}};

        side_open(&a, NULL);
        side_open(&b, NULL);
        side_join(&a, &b);
        side_join(&b, &a);
        memset(a.bytes, 1, 64);
        memset(b.bytes, 2, 64);
        pthread_barrier_init(&barrier, NULL, 2);
        still_open = 2;
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, opener_main, &openers[i]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
        assert_int_equal(openers[0].rc, WEIR_OK);
        assert_int_equal(openers[1].rc, WEIR_OK);
        assert_int_equal(b.bytes[1024], 1);
        assert_int_equal(a.bytes[1024], 2);
        for (int i = 0; i < 50; i++)
            step(&a, &b);
        assert_int_equal(info_of(&a).sessions, 1);
        assert_int_equal(info_of(&b).sessions, 1);
        assert_int_equal(stats_of(&a).sessions_failed + stats_of(&b).sessions_failed, 0);
        assert_int_equal(stats_of(&a).sessions_retired + stats_of(&b).sessions_retired, 0);
        pair_close(&a, &b);
    }
}

/* ---- two names of one engine ---- */

/* The peer connected by itself. Opened at its address it has the handle that it had, and under
 * another name a second one; closing either of them changes nothing for what it sends. */
static void test_E6_a_peer_that_connected_keeps_its_handle(void **state) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    char name[WEIR_ADDRESS_MAX + 16];
    weir_notification got;
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&b, &a);
    connect_now(&b, &a);
    assert_int_equal(weir_peer_open(a.engine, b.address, &a.peer), WEIR_OK);
    connect_now(&a, &b);
    weir_peer first = a.peer;
    snprintf(name, sizeof(name), "localhost:%s", strrchr(b.address, ':') + 1);
    assert_int_equal(weir_peer_open(a.engine, name, &a.peer), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_peer_connect(a.engine, a.peer) == WEIR_OK);
    weir_event same = next_event(&a, &b, WEIR_EVENT_SAME);
    assert_int_equal(same.peer.id, a.peer.id);
    assert_int_equal(same.value, first.id);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(write_now(&b, &a, NULL, 0, &notify), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_notification_take(a.engine, &got) == WEIR_OK);
    assert_int_equal(got.from.id, first.id);
    assert_int_equal(weir_peer_close(a.engine, first), WEIR_OK);
    assert_int_equal(write_now(&b, &a, NULL, 0, &notify), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_notification_take(a.engine, &got) == WEIR_OK);
    assert_int_equal(got.from.id, first.id);
    assert_int_equal(weir_peer_close(a.engine, a.peer), WEIR_OK);
    assert_int_equal(write_now(&b, &a, NULL, 0, &notify), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_notification_take(a.engine, &got) == WEIR_OK);
    assert_int_equal(got.from.id, first.id);
    side_close(&b);
    assert_int_equal(next_event(&a, NULL, WEIR_EVENT_GONE).peer.id, first.id);
    side_close(&a);
}

/* Events come under the handle that the first came under. */
static void test_H12_a_peer_with_two_names_is_gone_once(void **state) {
    char name[WEIR_ADDRESS_MAX + 16];
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    connect_now(&a, &b);
    weir_peer first = a.peer;
    snprintf(name, sizeof(name), "localhost:%s", strrchr(b.address, ':') + 1);
    assert_int_equal(weir_peer_open(a.engine, name, &a.peer), WEIR_OK);
    STEP_UNTIL(&a, &b, weir_peer_connect(a.engine, a.peer) == WEIR_OK);
    side_close(&b);
    assert_int_equal(next_event(&a, NULL, WEIR_EVENT_GONE).peer.id, first.id);
    weir_event event;
    assert_int_equal(weir_event_take(a.engine, &event), WEIR_EAGAIN);
    side_close(&a);
}

/* ---- events ---- */

static void test_S19_events_that_nobody_takes_are_counted(void **state) {
    weir_engine_options options = side_options();
    weir_event event;
    uint64_t lost = 0;
    uint64_t kept = 0;
    struct side a;

    (void)state;
    enum { MEETINGS = 200 };
    options.listen = "none";
    side_open(&a, NULL);
    for (int i = 0; i < MEETINGS; i++) { /* an UP and a GONE each */
        struct side b;
        weir_event up;
        side_open(&b, &options);
        assert_int_equal(weir_peer_open(b.engine, a.address, &b.peer), WEIR_OK);
        connect_now(&b, &a);
        uint64_t before = stats_of(&a).peers_gone;
        STEP_UNTIL(&b, &a, weir_event_take(b.engine, &up) == WEIR_OK);
        STEP_UNTIL(&a, &b, stats_of(&a).sessions_up == (uint64_t)i + 1);
        side_close(&b);
        STEP_UNTIL(&a, NULL, stats_of(&a).peers_gone == before + 1);
    }
    while (weir_event_take(a.engine, &event) == WEIR_OK) {
        if (event.type == WEIR_EVENT_LOST)
            lost += event.value;
        else
            kept++;
    }
    assert_int_equal(kept, 256);
    assert_int_equal(kept + lost, 2 * MEETINGS);
    side_close(&a);
}

/* ---- nothing is left behind ---- */

static void one_cycle(int round) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_engine_options options = side_options();
    struct side a, b;

    options.qp_count = 1 + (uint32_t)round % 3;
    options.flags = round % 5 == 0 ? WEIR_ENGINE_THREAD : 0;
    pair_open(&a, &b, &options);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    weir_segment one = segment_of(&a, 0, 0, 4096);
    assert_int_equal(write_now(&a, &b, &one, 1, &notify), WEIR_OK);
    if (round % 2 == 0)
        pair_close(&a, &b);
    else
        pair_close(&b, &a);
}

static void test_T3_hundreds_of_cycles_leave_nothing(void **state) {
    enum { CYCLES = 300 };

    (void)state;
    for (int round = 0; round < 20; round++)
        one_cycle(round);
    int fds = held_fds(), shared = held_shared_maps(), maps = held_maps();
    for (int round = 0; round < CYCLES; round++)
        one_cycle(round);
    assert_int_equal(held_fds(), fds);
    assert_int_equal(held_shared_maps(), shared);
    assert_true(held_maps() <= maps + 20);
}

/* Engines that stay open while their peers come and go. */
static void test_T3_sessions_come_and_go(void **state) {
    weir_engine_options options = side_options();
    struct side a, b;
    int fds = 0, shared = 0, maps = 0;

    (void)state;
    options.listen = "none";
    side_open(&a, NULL);
    for (int round = 0; round < 220; round++) {
        weir_event event;
        if (round == 20) {
            fds = held_fds();
            shared = held_shared_maps();
            maps = held_maps();
        }
        side_open(&b, &options);
        side_join(&b, &a);
        weir_segment one = segment_of(&b, 0, 0, 64);
        assert_int_equal(write_now(&b, &a, &one, 1, NULL), WEIR_OK);
        STEP_UNTIL(&a, &b, stats_of(&a).sessions_up == (uint64_t)round + 1);
        side_close(&b);
        STEP_UNTIL(&a, NULL, stats_of(&a).sessions_retired == (uint64_t)round + 1);
        while (weir_event_take(a.engine, &event) == WEIR_OK)
            continue;
    }
    for (int i = 0; i < 50; i++)
        step(&a, NULL);
    assert_true(held_fds() <= fds);
    assert_true(held_shared_maps() <= shared);
    assert_true(held_maps() <= maps + 20);
    assert_int_equal(stats_of(&a).teardown_forced, 0);
    side_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H1_ipv6),
        cmocka_unit_test(test_H1_a_client_without_a_listener),
        cmocka_unit_test(test_H10_nobody_there),
        cmocka_unit_test(test_H16_itself_by_its_address),
        cmocka_unit_test(test_H16_itself_under_another_name),
        cmocka_unit_test(test_H16_itself_takes_an_entry_and_no_listener),
        cmocka_unit_test(test_H16_itself_from_several_threads),
        cmocka_unit_test(test_H5_restart_at_the_same_port),
        cmocka_unit_test(test_H5_work_in_flight_ends_with_the_peer),
        cmocka_unit_test(test_H12_a_killed_peer_is_noticed),
        cmocka_unit_test(test_H12_an_idle_engine_notices_too),
        cmocka_unit_test(test_H2_simultaneous_open_gives_one_session),
        cmocka_unit_test(test_E6_a_peer_that_connected_keeps_its_handle),
        cmocka_unit_test(test_H12_a_peer_with_two_names_is_gone_once),
        cmocka_unit_test(test_S19_events_that_nobody_takes_are_counted),
        cmocka_unit_test(test_T3_hundreds_of_cycles_leave_nothing),
        cmocka_unit_test(test_T3_sessions_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
