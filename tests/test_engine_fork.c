/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_fork.c: an engine in a child of fork(2), and what becomes of the engine: no
 * descriptor, no memory, calls that say so; and the parent goes on, or dies for good (W4).
 *
 * A child tells by its exit status what it found: 0, or the line of what was not so. It makes no
 * claim through cmocka, which would go on with the parent's tests in it. */
#include "engine_side.h"
#include "held.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FDS_MAX = 4096, CALLS = 16 };

#define CHILD_MUST(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: in a child: not %s\n", __FILE__, __LINE__, #condition);        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* The child's exit status is 0. */
static void reap(pid_t child) {
    int status = -1;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Which descriptors are open. */
static void look_at_fds(bool open_out[FDS_MAX]) {
    for (int fd = 0; fd < FDS_MAX; fd++)
        open_out[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Says what it is that is there and should not be. */
static void child_must_have(int fd, bool wanted) {
    char link[32], file[128] = "";

    if ((fcntl(fd, F_GETFD) >= 0) == wanted)
        return;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, file, sizeof(file) - 1);
    fprintf(stderr, "in a child: descriptor %d is %s\n", fd, got > 0 ? file : "not there");
    _exit(1);
}

static weir_engine_options flags_options(uint32_t flags) {
    weir_engine_options options = side_options();

    options.flags |= flags;
    return options;
}

/* Ways to have an engine. */
static const uint32_t ways[] = {0, WEIR_ENGINE_THREAD, WEIR_ENGINE_SERIAL};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* ---- what a child has ---- */

static void test_W4_all_descriptors_close_at_exec(void **state) {
    static bool before[FDS_MAX], now[FDS_MAX];
    struct side a, b;
    int count = 0;

    (void)state;
    look_at_fds(before);
    pair_open(&a, &b, NULL);
    look_at_fds(now);
    for (int fd = 0; fd < FDS_MAX; fd++) {
        if (!now[fd] || before[fd])
            continue;
        count++;
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
    assert_true(count > 10);
    pair_close(&a, &b);
}

static void test_W4_a_child_has_no_descriptor_and_no_memory_of_engines(void **state) {
    static bool before[FDS_MAX];

    (void)state;
    for (int way = 0; way < WAYS; way++) {
        weir_engine_options options = flags_options(ways[way]);
        struct side a, b;
        look_at_fds(before);
        pair_open(&a, &b, &options);
        pid_t child = fork();
        if (child == 0) {
            for (int fd = 0; fd < FDS_MAX; fd++)
                child_must_have(fd, before[fd]);
            CHILD_MUST(held_shared_maps() == 0);
            _exit(0);
        }
        reap(child);
        pair_close(&a, &b);
    }
    assert_int_equal(held_shared_maps(), 0);
}

/* A file that the application opens where an engine's descriptor was is the application's: also in
 * a child's child. */
static void test_W4_numbers_are_free_again_behind_a_close(void **state) {
    static bool before[FDS_MAX];
    int fds[64];
    struct side a, b;

    (void)state;
    look_at_fds(before);
    pair_open(&a, &b, NULL);
    pair_close(&a, &b);
    for (int i = 0; i < 64; i++)
        assert_true((fds[i] = open("/dev/null", O_RDONLY)) >= 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 64; i++)
            CHILD_MUST(fcntl(fds[i], F_GETFD) >= 0);
        pid_t second = fork();
        if (second == 0) {
            for (int i = 0; i < 64; i++)
                CHILD_MUST(fcntl(fds[i], F_GETFD) >= 0);
            _exit(0);
        }
        int status = 1;
        CHILD_MUST(waitpid(second, &status, 0) == second && status == 0);
        _exit(0);
    }
    reap(child);
    for (int i = 0; i < 64; i++)
        close(fds[i]);
}

/* ---- calls in a child ---- */

static void child_asks_about_memory(struct side *side, const uint8_t *exported, size_t size) {
    weir_engine *engine = side->engine;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX] = {0};
    size_t length = sizeof(descriptor);
    weir_remote remote = {0};
    static uint8_t bytes[4096];
    weir_memory memory = {0};
    void *base = NULL;

    CHILD_MUST(weir_memory_register(engine, bytes, 4096, 0, &memory) == WEIR_ECLOSED);
    CHILD_MUST(weir_memory_allocate(engine, 4096, 0, &memory, &base) == WEIR_ECLOSED);
    CHILD_MUST(weir_memory_register_dmabuf(engine, 0, 0, 4096, 0, 0, &memory) == WEIR_ECLOSED);
    CHILD_MUST(memory.id == 0 && base == NULL);
    CHILD_MUST(weir_memory_export(engine, side->memory, descriptor, &length) == WEIR_ECLOSED);
    CHILD_MUST(weir_memory_import(engine, side->peer, exported, size, &remote) == WEIR_ECLOSED);
    CHILD_MUST(weir_memory_query(engine, side->memory, &base, NULL) == WEIR_ECLOSED);
    CHILD_MUST(weir_memory_release(engine, side->memory) == WEIR_ECLOSED);
    CHILD_MUST(weir_remote_query(engine, side->remote, NULL, NULL) == WEIR_ECLOSED);
    CHILD_MUST(weir_remote_release(engine, side->remote) == WEIR_ECLOSED);
}

static void child_asks_about_names(const struct side *side) {
    weir_engine *engine = side->engine;
    weir_name_info info = WEIR_NAME_INFO_INIT;
    weir_remote remote = {0};
    uint64_t position = 0;
    size_t length = 4;
    char value[4];

    CHILD_MUST(weir_memory_publish(engine, side->memory, "name") == WEIR_ECLOSED);
    CHILD_MUST(weir_value_publish(engine, "name", "", 0) == WEIR_ECLOSED);
    CHILD_MUST(weir_name_withdraw(engine, "name") == WEIR_ECLOSED);
    CHILD_MUST(weir_remote_open(engine, side->peer, "name", 0, &remote) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_value(engine, side->peer, "name", 0, value, &length) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_name(engine, side->peer, &position, 0, &info) == WEIR_ECLOSED);
    CHILD_MUST(remote.id == 0 && position == 0 && length == 4);
}

static void child_asks_about_peers(struct side *side) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_qp_info qp = WEIR_QP_INFO_INIT;
    weir_stall_info stall = WEIR_STALL_INFO_INIT;
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    char address[WEIR_ADDRESS_MAX];
    weir_engine *engine = side->engine;
    uint64_t timeout = 0;
    size_t length = 0;
    weir_peer peer;

    CHILD_MUST(weir_peer_open(engine, side->address, &peer) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_self(engine, &peer) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_connect(engine, side->peer) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_query(engine, side->peer, &info) == WEIR_ECLOSED);
    CHILD_MUST(weir_qp_query(engine, side->peer, 0, &qp) == WEIR_ECLOSED);
    CHILD_MUST(weir_stall_query(engine, side->peer, &stall) == WEIR_ECLOSED);
    CHILD_MUST(weir_stall_text(engine, side->peer, address, sizeof(address)) == WEIR_ECLOSED);
    CHILD_MUST(weir_refusal_text(engine, side->peer, address, sizeof(address)) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_close(engine, side->peer) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_query(engine, &stats) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_trace(engine, WEIR_TRACE_TEXT, NULL, 0, &length) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_metrics(engine, WEIR_METRICS_PROMETHEUS, NULL, 0, &length) ==
               WEIR_ECLOSED);
    CHILD_MUST(weir_engine_address(engine, address, sizeof(address)) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_progress(engine) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_wait(engine, UINT64_MAX) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_fd(engine) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_arm(engine, &timeout) == WEIR_ECLOSED);
}

static void child_sends_and_takes(struct side *side) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;
    weir_engine *engine = side->engine;
    weir_part part = {.base = "x", .length = 1};
    weir_outgoing out = {&part, 1, 0};
    size_t count;
    weir_message message = {.length = 0};
    weir_loan loan = {.length = 0};
    weir_inbox inbox = {1};
    weir_transfer transfer;

    CHILD_MUST(weir_inbox_open(engine, &options, &inbox) == WEIR_ECLOSED);
    CHILD_MUST(weir_inbox_query(engine, inbox, &info) == WEIR_ECLOSED);
    CHILD_MUST(weir_inbox_close(engine, inbox) == WEIR_ECLOSED);
    CHILD_MUST(weir_message_send(engine, side->peer, 0, &part, 1, NULL, &transfer) == WEIR_ECLOSED);
    CHILD_MUST(weir_message_send_many(engine, side->peer, 0, &out, 1, NULL, &transfer, &count) ==
               WEIR_ECLOSED);
    CHILD_MUST(weir_message_take(engine, inbox, &message) == WEIR_ECLOSED);
    CHILD_MUST(weir_message_take_many(engine, inbox, &message, 1, &count) == WEIR_ECLOSED);
    CHILD_MUST(weir_message_give_back(engine, &message) == WEIR_ECLOSED);
    CHILD_MUST(weir_message_give_back_many(engine, &message, 1) == WEIR_ECLOSED);
    CHILD_MUST(weir_message_loan(engine, side->peer, 0, 8, &loan) == WEIR_ECLOSED);
    CHILD_MUST(weir_loan_send(engine, &loan, NULL, &transfer) == WEIR_ECLOSED);
    CHILD_MUST(weir_loan_return(engine, &loan) == WEIR_ECLOSED);
}

static void child_transfers(struct side *side, weir_transfer under_way) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment one = segment_of(side, 0, 0, 64);
    weir_engine *engine = side->engine;
    weir_notification notification;
    weir_completion completion;
    weir_transfer transfer = {1};
    weir_event event;

    CHILD_MUST(weir_write(engine, side->peer, &one, 1, NULL, &transfer) == WEIR_ECLOSED);
    CHILD_MUST(weir_read(engine, side->peer, &one, 1, NULL, &transfer) == WEIR_ECLOSED);
    options.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_BLOCK;
    CHILD_MUST(weir_write(engine, side->peer, &one, 1, &options, &transfer) == WEIR_ECLOSED);
    CHILD_MUST(transfer.id == 1);
    CHILD_MUST(weir_transfer_status(engine, under_way) == WEIR_ECLOSED);
    CHILD_MUST(weir_transfer_wait(engine, under_way, UINT64_MAX) == WEIR_ECLOSED);
    CHILD_MUST(weir_peer_flush(engine, side->peer, UINT64_MAX) == WEIR_ECLOSED);
    CHILD_MUST(weir_engine_flush(engine, UINT64_MAX) == WEIR_ECLOSED);
    CHILD_MUST(weir_transfer_waiting_for(engine, under_way) == WEIR_ECLOSED);
    CHILD_MUST(weir_transfer_cancel(engine, under_way) == WEIR_ECLOSED);
    CHILD_MUST(weir_transfer_release(engine, under_way) == WEIR_ECLOSED);
    CHILD_MUST(weir_completion_take(engine, &completion) == WEIR_ECLOSED);
    CHILD_MUST(weir_notification_take(engine, &notification) == WEIR_ECLOSED);
    CHILD_MUST(weir_event_take(engine, &event) == WEIR_ECLOSED);
}

/* One to a peer where nobody answers, so that it stays under way. */
static weir_transfer begin_one(struct side *side) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};
    weir_peer nobody;

    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_peer_open(side->engine, "127.0.0.1:9", &nobody), WEIR_OK);
    assert_int_equal(weir_write(side->engine, nobody, NULL, 0, &options, &transfer), WEIR_OK);
    return transfer;
}

/* Bytes and a notification, there and back. */
static void exchange(struct side *a, struct side *b, uint64_t tag) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;

    notify.flags = WEIR_TRANSFER_NOTIFY;
    notify.notify_tag = tag;
    weir_segment one = segment_of(a, 0, 0, 64), back = segment_of(b, 64, 64, 64);
    memset(a->bytes, (int)(tag % 255) + 1, 64);
    memcpy(b->bytes + 64, a->bytes, 64);
    assert_int_equal(write_now(a, b, &one, 1, &notify), WEIR_OK);
    STEP_UNTIL(a, b, weir_notification_take(b->engine, &got) == WEIR_OK);
    assert_int_equal(got.tag, tag);
    assert_memory_equal(a->bytes, b->bytes, 64);
    assert_int_equal(write_now(b, a, &back, 1, &notify), WEIR_OK);
    STEP_UNTIL(a, b, weir_notification_take(a->engine, &got) == WEIR_OK);
    assert_int_equal(got.tag, tag);
    assert_memory_equal(b->bytes + 64, a->bytes + 64, 64);
}

static void assert_no_gone(struct side *side) {
    weir_event event;

    while (weir_event_take(side->engine, &event) == WEIR_OK)
        assert_int_equal(event.type, WEIR_EVENT_UP);
}

static void test_W4_calls_in_a_child_say_that_the_engine_is_not_there(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        weir_engine_options options = flags_options(ways[way]);
        uint8_t exported[WEIR_DESCRIPTOR_MAX];
        size_t size = sizeof(exported);
        struct side a, b;
        pair_open(&a, &b, &options);
        assert_int_equal(weir_memory_export(b.engine, b.memory, exported, &size), WEIR_OK);
        for (uint64_t round = 0; round < CALLS; round++) {
            exchange(&a, &b, round);
            weir_transfer under_way = round == 0 ? begin_one(&a) : (weir_transfer){1};
            pid_t child = fork();
            if (child == 0) {
                child_asks_about_memory(&a, exported, size);
                child_asks_about_names(&a);
                child_sends_and_takes(&a);
                child_asks_about_peers(&a);
                child_transfers(&a, under_way);
                CHILD_MUST(weir_transfer_status(a.engine, (weir_transfer){0}) == WEIR_OK);
                if (round % 2 == 0)
                    weir_engine_close(a.engine);
                weir_engine_close(b.engine);
                _exit(0);
            }
            exchange(&a, &b, round + CALLS);
            reap(child);
        }
        exchange(&a, &b, 3 * CALLS);
        assert_no_gone(&b);
        pair_close(&a, &b);
    }
}

/* An engine of its own, that notifies its parent's; the old one is closed before, meanwhile, or
 * behind it. */
static void child_has_its_own(weir_engine *old, const char *address, uint32_t flags, int when) {
    weir_engine_options options = flags_options(flags);
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    static bool before[FDS_MAX], now[FDS_MAX];
    weir_transfer transfer = {0};
    weir_engine *engine = NULL;
    weir_memory memory;
    weir_peer peer;
    void *base;

    look_at_fds(before);
    if (when == 0)
        weir_engine_close(old);
    CHILD_MUST(weir_engine_open(&options, &engine) == WEIR_OK);
    CHILD_MUST(weir_memory_allocate(engine, 1 << 21, 0, &memory, &base) == WEIR_OK);
    memset(base, 1, 1 << 21);
    if (when == 1)
        weir_engine_close(old);
    CHILD_MUST(weir_peer_open(engine, address, &peer) == WEIR_OK);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    notify.notify_tag = 99;
    CHILD_MUST(weir_write(engine, peer, NULL, 0, &notify, &transfer) == WEIR_OK);
    CHILD_MUST(weir_transfer_wait(engine, transfer, UINT64_MAX) == WEIR_OK);
    memset(base, 2, 1 << 21);
    weir_engine_close(engine);
    if (when == 2)
        weir_engine_close(old);
    look_at_fds(now);
    CHILD_MUST(memcmp(before, now, sizeof(now)) == 0);
    _exit(0);
}

static void test_W4_a_child_may_open_an_engine_of_its_own(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* it allows no threads in the child of a process that has threads */
#endif
    for (int round = 0; round < 3 * WAYS; round++) {
        weir_engine_options options = flags_options(ways[round / 3]);
        weir_notification got;
        struct side a, b;
        int status = -1;
        pair_open(&a, &b, &options);
        pid_t child = fork();
        if (child == 0)
            child_has_its_own(a.engine, b.address, ways[round / 3], round % 3);
        STEP_UNTIL(&b, &a, weir_notification_take(b.engine, &got) == WEIR_OK);
        assert_int_equal(got.tag, 99);
        STEP_UNTIL(&b, &a, waitpid(child, &status, WNOHANG) == child);
        assert_int_equal(status, 0);
        exchange(&a, &b, 7);
        pair_close(&a, &b);
    }
}

/* ---- a parent that dies while its child lives ---- */

/* The facts that a target tells of itself. */
struct told {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
    pid_t orphan;
};

/* Ends when nobody has the other end of the pipe any more. */
static void live_on(int pipe_fd) {
    char none;

    while (read(pipe_fd, &none, 1) > 0)
        continue;
    _exit(0);
}

/* A process with an engine and a child; both live until they are killed, the child also until
 * nobody has the other end of `stay`. */
static void target_main(uint32_t flags, int tell, int stay) {
    weir_engine_options options = flags_options(flags);
    struct told told = {.length = sizeof(told.descriptor)};
    weir_engine *engine;
    weir_memory memory;
    void *base;

    CHILD_MUST(weir_engine_open(&options, &engine) == WEIR_OK);
    CHILD_MUST(weir_memory_allocate(engine, SIDE_BYTES, WEIR_ACCESS_ALL, &memory, &base) ==
               WEIR_OK);
    CHILD_MUST(weir_memory_export(engine, memory, told.descriptor, &told.length) == WEIR_OK);
    CHILD_MUST(weir_engine_address(engine, told.address, sizeof(told.address)) == WEIR_OK);
    weir_notification got; /* it has a session when it forks */
    told.orphan = -1;
    CHILD_MUST(write(tell, &told, sizeof(told)) == (ssize_t)sizeof(told));
    while (weir_notification_take(engine, &got) != WEIR_OK)
        weir_engine_wait(engine, MS);
    told.orphan = fork();
    if (told.orphan == 0) { /* it tells when its fork(2) is over */
        told.orphan = getpid();
        CHILD_MUST(write(tell, &told, sizeof(told)) == (ssize_t)sizeof(told));
        live_on(stay);
    }
    for (;;)
        weir_engine_wait(engine, SECOND);
}

static void must_read(int fd, void *out, size_t size) {
    assert_int_equal(read(fd, out, size), (ssize_t)size);
}

/* Writes until that does not work any more: the peer is GONE. */
static void write_until_gone(struct side *a) {
    weir_segment one = segment_of(a, 0, 0, 64);
    weir_event event = {0};

    while (event.type != WEIR_EVENT_GONE) {
        weir_transfer transfer = {0};
        int rc = weir_write(a->engine, a->peer, &one, 1, NULL, &transfer);
        if (rc == WEIR_OK)
            finish(a, NULL, transfer);
        step(a, NULL);
        while (event.type != WEIR_EVENT_GONE && weir_event_take(a->engine, &event) == WEIR_OK)
            continue;
    }
    assert_int_equal(event.error, WEIR_EPEER);
}

static void kill_the_target(uint32_t flags) {
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    weir_engine_options options = side_options();
    int tell[2], stay[2], status = 0;
    struct told told;
    struct side a, again;

    assert_int_equal(pipe(tell), 0);
    assert_int_equal(pipe(stay), 0);
    pid_t target = fork();
    if (target == 0) {
        close(stay[1]);
        target_main(flags, tell[1], stay[0]);
    }
    must_read(tell[0], &told, sizeof(told));
    side_open(&a, NULL);
    assert_int_equal(weir_peer_open(a.engine, told.address, &a.peer), WEIR_OK);
    assert_int_equal(weir_memory_import(a.engine, a.peer, told.descriptor, told.length, &a.remote),
                     WEIR_OK);
    weir_segment one = segment_of(&a, 0, 0, 64);
    notify.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(write_now(&a, NULL, &one, 1, &notify), WEIR_OK);
    must_read(tell[0], &told, sizeof(told));
    assert_true(told.orphan > 0);
    assert_int_equal(kill(target, SIGKILL), 0);
    assert_int_equal(waitpid(target, &status, 0), target);
    write_until_gone(&a);
    /* Its address is free as soon as it is dead, though the child lives. */
    options.listen = told.address;
    side_open(&again, &options);
    assert_string_equal(again.address, told.address);
    assert_int_equal(kill(told.orphan, 0), 0);
    side_join(&a, &again);
    connect_now(&a, &again);
    close(stay[1]);
    close(stay[0]);
    close(tell[0]);
    close(tell[1]);
    pair_close(&a, &again);
}

static void test_W4_an_engine_killed_while_a_child_lives_is_dead(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++)
        kill_the_target(ways[way]);
}

/* ---- forks at any time ---- */

struct churn {
    _Atomic bool stop;
    _Atomic uint32_t rounds;
    _Atomic int failed;
};

/* Opens engines, connects them, closes them. No assertions: it is not the test's thread. */
static void *churn_main(void *argument) {
    struct churn *churn = argument;
    weir_engine_options options = side_options();

    while (!atomic_load(&churn->stop)) {
        weir_engine *engines[2] = {NULL, NULL};
        char address[WEIR_ADDRESS_MAX];
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        weir_memory memory;
        weir_peer peer;
        void *base;
        churn->failed |= weir_engine_open(&options, &engines[0]);
        churn->failed |= weir_engine_open(&options, &engines[1]);
        churn->failed |= weir_engine_address(engines[1], address, sizeof(address));
        churn->failed |= weir_memory_allocate(engines[0], 4096, 0, &memory, &base);
        churn->failed |= weir_peer_open(engines[0], address, &peer);
        int rc = weir_peer_connect(engines[0], peer);
        while (atomic_load(&churn->failed) == 0 && (rc == WEIR_OK || rc == WEIR_ENOTREADY) &&
               info.connected == 0) {
            weir_engine_wait(engines[0], 20 * 1000);
            weir_engine_wait(engines[1], 20 * 1000);
            churn->failed |= weir_peer_query(engines[0], peer, &info);
        }
        uint32_t first = atomic_fetch_add(&churn->rounds, 1) % 2;
        weir_engine_close(engines[first]);
        weir_engine_close(engines[1 - first]);
    }
    return NULL;
}

/* Engines come and go in two threads; no child has anything of them, and all descriptors that the
 * application has, opened meanwhile as well, are there. */
static void test_W4_forks_while_engines_come_and_go(void **state) {
    static bool before[FDS_MAX];
    struct churn churn = {.stop = false};
    pthread_t threads[2];
    uint32_t forks = 0;
    int own[8];

    (void)state;
    look_at_fds(before);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn_main, &churn), 0);
    while (atomic_load(&churn.rounds) < 40 || forks < 200) {
        for (int i = 0; i < 8; i++)
            assert_true((own[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 8; i++)
                CHILD_MUST(close(own[i]) == 0);
            for (int fd = 0; fd < FDS_MAX; fd++)
                child_must_have(fd, before[fd]);
            CHILD_MUST(held_shared_maps() == 0);
            _exit(0);
        }
        for (int i = 0; i < 8; i++)
            assert_int_equal(close(own[i]), 0);
        reap(child);
        forks++;
    }
    atomic_store(&churn.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&churn.failed), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W4_all_descriptors_close_at_exec),
        cmocka_unit_test(test_W4_a_child_has_no_descriptor_and_no_memory_of_engines),
        cmocka_unit_test(test_W4_numbers_are_free_again_behind_a_close),
        cmocka_unit_test(test_W4_calls_in_a_child_say_that_the_engine_is_not_there),
        cmocka_unit_test(test_W4_a_child_may_open_an_engine_of_its_own),
        cmocka_unit_test(test_W4_an_engine_killed_while_a_child_lives_is_dead),
        cmocka_unit_test(test_W4_forks_while_engines_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
