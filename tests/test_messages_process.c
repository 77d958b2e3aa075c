/* SPDX-License-Identifier: Apache-2.0 */
/* test_messages_process.c: messages that are written in place between two processes, one of which
 * is killed, stopped, or becomes another program while it writes or is written to (W4), or is
 * stopped when its memory is asked for (W5). Over the real ports and shm.
 *
 * The other process is forked before this one opens its engine; words go through two pipes. */
#define _GNU_SOURCE
#include "message_side.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 20000, BOX = 5 };

static uint8_t content[LONGEST];

static uint64_t length_of(uint64_t tag) {
    return tag % 7 == 0 ? tag * 977 % (LONGEST + 1) : tag * 61 % 200;
}

static const uint8_t *content_of(uint64_t tag) {
    return content + tag % 64;
}

struct other {
    pid_t pid;
    int from, to; /* our ends */
};

/* Of memory, by the other process. */
struct offer {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
};

/* The work of the other process; ends by _exit. */
typedef void other_fn(int from, int to);

static void other_start(struct other *other, other_fn *run) {
    int up[2], down[2];

    fill_pattern(content, sizeof(content), 1);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(down[0], up[1]);
        _exit(1);
    }
    close(up[1]);
    close(down[0]);
    other->from = up[0];
    other->to = down[1];
}

static void other_end(struct other *other) {
    kill(other->pid, SIGKILL);
    kill(other->pid, SIGCONT);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
    close(other->from);
    close(other->to);
}

static weir_engine *other_open(void) {
    weir_engine_options options = side_options();
    weir_engine *engine;

    if (weir_engine_open(&options, &engine) != WEIR_OK)
        _exit(2);
    return engine;
}

/* Sends without end to the address that comes through the pipe. */
static void sends(int from, int to) {
    char address[WEIR_ADDRESS_MAX];
    weir_engine *engine;
    weir_peer peer;

    (void)to;
    if (read(from, address, sizeof(address)) != sizeof(address))
        _exit(3);
    engine = other_open();
    if (weir_peer_open(engine, address, &peer) != WEIR_OK)
        _exit(4);
    weir_memory memory;
    if (weir_memory_register(engine, content, sizeof(content), 0, &memory) != WEIR_OK)
        _exit(5);
    for (uint64_t tag = 0;;) {
        weir_transfer_options options = tagged(tag, 0);
        weir_part part = {.local = memory, .offset = tag % 64, .length = length_of(tag)};
        weir_transfer transfer;
        if (part.length + part.offset > sizeof(content))
            part.length = sizeof(content) - part.offset;
        if (weir_message_send(engine, peer, BOX, &part, 1, &options, &transfer) == WEIR_OK) {
            if (weir_transfer_release(engine, transfer) != WEIR_OK)
                _exit(6);
            tag++;
        } else {
            weir_engine_wait(engine, MS);
        }
        if (tag % 5 == 0)
            weir_engine_progress(engine);
    }
}

static void become_sleep(int signal) {
    (void)signal;
    execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    _exit(7);
}

static void sends_and_becomes_another(int from, int to) {
    signal(SIGUSR1, become_sleep);
    sends(from, to);
}

static void look_at(const weir_message *message) {
    uint64_t offset = message->tag % 64, length = length_of(message->tag);
    if (length + offset > sizeof(content))
        length = sizeof(content) - offset;
    assert_int_equal(message->length, length);
    assert_memory_equal(message->data, content_of(message->tag), length);
}

struct receiver {
    struct side side;
    weir_inbox inbox;
    uint64_t next; /* no message below it comes any more */
    bool gone;
};

static void events(struct receiver *receiver) {
    weir_event event;

    while (weir_event_take(receiver->side.engine, &event) == WEIR_OK)
        receiver->gone |= event.type == WEIR_EVENT_GONE;
}

/* Takes one, if it is there. gaps: some before it may be lost. */
static bool take_next(struct receiver *receiver, bool gaps) {
    weir_message got;

    if (weir_message_take(receiver->side.engine, receiver->inbox, &got) != WEIR_OK)
        return false;
    assert_true(gaps ? got.tag >= receiver->next : got.tag == receiver->next);
    receiver->next = got.tag + 1;
    look_at(&got);
    give_back(&receiver->side, &got);
    return true;
}

static void receiver_open(struct receiver *receiver, struct other *other) {
    memset(receiver, 0, sizeof(*receiver));
    side_open(&receiver->side, NULL);
    receiver->inbox = inbox_of(&receiver->side, BOX, LONGEST, 8);
    assert_int_equal(write(other->to, receiver->side.address, WEIR_ADDRESS_MAX), WEIR_ADDRESS_MAX);
}

static void take_so_many(struct receiver *receiver, uint64_t count) {
    uint64_t end = now_ns() + PATIENCE_NS;

    for (uint64_t until = receiver->next + count; receiver->next < until;) {
        assert_true(now_ns() < end);
        if (!take_next(receiver, false))
            weir_engine_wait(receiver->side.engine, SECOND);
        events(receiver);
        assert_false(receiver->gone);
    }
}

/* All that comes until its sender is given up, and what it had written is behind that. */
static void take_the_rest(struct receiver *receiver) {
    uint64_t end = now_ns() + PATIENCE_NS;

    while (!receiver->gone || look(&receiver->side, receiver->inbox).senders > 0 ||
           look(&receiver->side, receiver->inbox).chunks_free !=
               look(&receiver->side, receiver->inbox).chunks) {
        assert_true(now_ns() < end);
        if (!take_next(receiver, true))
            weir_engine_wait(receiver->side.engine, 10 * MS);
        events(receiver);
    }
    assert_false(take_next(receiver, true));
    assert_int_equal(look(&receiver->side, receiver->inbox).held, 0);
    assert_int_equal(look(&receiver->side, receiver->inbox).spoiled, 0);
}

static void test_W4_a_sender_is_killed_between_messages(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 12; round++) {
        struct other other;
        struct receiver receiver;
        other_start(&other, sends);
        receiver_open(&receiver, &other);
        take_so_many(&receiver, 1 + round * 37);
        other_end(&other);
        take_the_rest(&receiver);
        side_close(&receiver.side);
    }
}

static void test_W4_a_sender_becomes_another_program(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 4; round++) {
        struct other other;
        struct receiver receiver;
        other_start(&other, sends_and_becomes_another);
        receiver_open(&receiver, &other);
        take_so_many(&receiver, 50 + round * 61);
        assert_int_equal(kill(other.pid, SIGUSR1), 0);
        take_the_rest(&receiver);
        other_end(&other);
        side_close(&receiver.side);
    }
}

/* One that stands still is no reason to lose or to wait for anything but its next message. */
static void test_W4_a_sender_is_stopped(void **state) {
    struct receiver receiver;
    struct other other;
    int status;

    (void)state;
    other_start(&other, sends);
    receiver_open(&receiver, &other);
    for (int round = 0; round < 10; round++) {
        take_so_many(&receiver, 100);
        assert_int_equal(kill(other.pid, SIGSTOP), 0);
        assert_int_equal(waitpid(other.pid, &status, WUNTRACED), other.pid);
        assert_true(WIFSTOPPED(status));
        for (int vain = 0; vain < 3;) { /* what is there is taken; then there is nothing */
            if (take_next(&receiver, false))
                vain = 0;
            else
                vain += weir_engine_wait(receiver.side.engine, MS) == WEIR_EINPROGRESS;
        }
        assert_int_equal(kill(other.pid, SIGCONT), 0);
    }
    take_so_many(&receiver, 100);
    other_end(&other);
    take_the_rest(&receiver);
    side_close(&receiver.side);
}

/* ---- a receiver that goes ---- */

/* Tells where it listens, and takes without end, one of so many. */
static void takes(int from, int to) {
    char address[WEIR_ADDRESS_MAX] = {0};
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_engine *engine = other_open();
    weir_inbox inbox;
    uint64_t next = 0;

    (void)from;
    options.number = BOX;
    options.message_bytes_max = LONGEST;
    options.peer_messages = options.messages = 8;
    if (weir_inbox_open(engine, &options, &inbox) != WEIR_OK ||
        weir_engine_address(engine, address, sizeof(address)) != WEIR_OK ||
        write(to, address, sizeof(address)) != (ssize_t)sizeof(address))
        _exit(3);
    for (;;) {
        weir_message got;
        if (weir_message_take(engine, inbox, &got) != WEIR_OK) {
            weir_engine_wait(engine, SECOND);
            continue;
        }
        if (got.tag != next++ || memcmp(got.data, content_of(got.tag), got.length) != 0 ||
            weir_message_give_back(engine, &got) != WEIR_OK)
            _exit(4);
        if (next % 100 == 0 && write(to, "t", 1) != 1)
            _exit(5);
    }
}

static void test_W4_a_receiver_is_killed(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 8; round++) {
        enum { WAITING = 16 };
        weir_transfer transfers[WAITING] = {{0}};
        struct receiver sender = {.gone = false};
        struct other other;
        char address[WEIR_ADDRESS_MAX], letter;
        weir_peer peer;
        uint64_t tag = 0, end = now_ns() + PATIENCE_NS;
        other_start(&other, takes);
        assert_int_equal(read(other.from, address, sizeof(address)), sizeof(address));
        side_open(&sender.side, NULL);
        weir_memory memory;
        assert_int_equal(
            weir_memory_register(sender.side.engine, content, sizeof(content), 0, &memory),
            WEIR_OK);
        assert_int_equal(weir_peer_open(sender.side.engine, address, &peer), WEIR_OK);
        bool killed = false;
        while (!sender.gone) {
            weir_transfer_options options = tagged(tag, 0);
            uint64_t offset = tag % 64, length = length_of(tag);
            weir_part part = {.local = memory, .offset = offset, .length = length};
            weir_transfer *transfer = &transfers[tag % WAITING];
            assert_true(now_ns() < end);
            if (length + offset > sizeof(content))
                part.length = sizeof(content) - offset;
            int before = weir_transfer_status(sender.side.engine, *transfer);
            if (before != WEIR_EINPROGRESS) {
                if (!killed)
                    assert_int_equal(before, WEIR_OK);
                assert_int_equal(weir_transfer_release(sender.side.engine, *transfer), WEIR_OK);
                *transfer = (weir_transfer){0};
                int rc =
                    weir_message_send(sender.side.engine, peer, BOX, &part, 1, &options, transfer);
                tag += rc == WEIR_OK;
                if (rc != WEIR_OK && !killed)
                    assert_int_equal(rc, WEIR_EAGAIN);
            }
            weir_engine_progress(sender.side.engine);
            events(&sender);
            if (!killed && tag >= 300 + round * 41) {
                assert_int_equal(read(other.from, &letter, 1), 1);
                kill(other.pid, SIGKILL);
                killed = true;
            }
        }
        assert_true(killed);
        other_end(&other);
        side_close(&sender.side);
    }
}

/* Says what there is to import, and is stopped. */
static void exports(int from, int to) {
    struct offer offer = {.length = sizeof(offer.descriptor)};
    weir_engine *engine = other_open();
    weir_memory memory;
    void *base;
    char end;

    if (weir_memory_allocate(engine, LONGEST, WEIR_ACCESS_ALL, &memory, &base) != WEIR_OK ||
        weir_memory_export(engine, memory, offer.descriptor, &offer.length) != WEIR_OK ||
        weir_engine_address(engine, offer.address, sizeof(offer.address)) != WEIR_OK ||
        write(to, &offer, sizeof(offer)) != sizeof(offer))
        _exit(8);
    while (read(from, &end, 1) == 1) {
    }
    _exit(0);
}

struct importing {
    struct side *side;
    const struct offer *offer;
    weir_remote remote;
    int rc;
    atomic_bool over;
};

static void *import_it(void *argument) {
    struct importing *importing = argument;
    importing->rc = weir_memory_import(importing->side->engine, importing->side->peer,
                                       importing->offer->descriptor, importing->offer->length,
                                       &importing->remote);
    atomic_store(&importing->over, true);
    return NULL;
}

/* A thread that imports memory of a process that is stopped leaves the engine to others. */
static void test_W5_an_import_keeps_nobody(void **state) {
    struct other other;
    struct offer offer;
    struct side side;
    pthread_t thread;
    int calls = 0;

    (void)state;
    other_start(&other, exports);
    assert_int_equal(read(other.from, &offer, sizeof(offer)), sizeof(offer));
    side_open(&side, NULL);
    assert_int_equal(weir_peer_open(side.engine, offer.address, &side.peer), WEIR_OK);
    assert_int_equal(kill(other.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(other.pid, NULL, WUNTRACED), other.pid);
    struct importing importing = {.side = &side, .offer = &offer};
    assert_int_equal(pthread_create(&thread, NULL, import_it, &importing), 0);
    while (!atomic_load(&importing.over)) { /* of calls that need the engine */
        weir_memory memory;
        assert_int_equal(
            weir_memory_register(side.engine, content, sizeof(content), WEIR_ACCESS_ALL, &memory),
            WEIR_OK);
        assert_int_equal(weir_memory_release(side.engine, memory), WEIR_OK);
        calls++;
    }
    pthread_join(thread, NULL);
    assert_int_equal(importing.rc, WEIR_EAGAIN);
    print_message("%d calls meanwhile\n", calls);
    assert_true(calls >= 50);
    assert_int_equal(kill(other.pid, SIGCONT), 0);
    do
        import_it(&importing);
    while (importing.rc == WEIR_EAGAIN);
    assert_int_equal(importing.rc, WEIR_OK);
    assert_int_equal(weir_remote_release(side.engine, importing.remote), WEIR_OK);
    other_end(&other);
    side_close(&side);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W4_a_sender_is_killed_between_messages),
        cmocka_unit_test(test_W4_a_sender_becomes_another_program),
        cmocka_unit_test(test_W4_a_sender_is_stopped),
        cmocka_unit_test(test_W4_a_receiver_is_killed),
        cmocka_unit_test(test_W5_an_import_keeps_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
