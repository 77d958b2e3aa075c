/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_steady.c: the cost of a transfer besides its instructions, once two engines in two
 * processes know each other: no allocation, and no system call but the one that moves the bytes
 * where memory is not shared (S17). */
#define _GNU_SOURCE
#include "engine_side.h"
#include "watch.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 10000, PIECES = 64, PIECES_MAX = 300, BURST = 32 };
enum { ECHO = 1 }; /* tag of a notification that the other process answers */

#if defined(SYS_epoll_wait)
#define CALL_LOOK SYS_epoll_wait
#else
#define CALL_LOOK SYS_epoll_pwait
#endif
#if defined(SYS_poll)
#define CALL_ALIVE SYS_poll
#else
#define CALL_ALIVE SYS_ppoll
#endif

/* ---- the other process ------------------------------------------------- */

struct ticket {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptors[2][WEIR_DESCRIPTOR_MAX];
    size_t lengths[2];
};

/* Shared with it. */
struct common {
    _Atomic uint64_t received; /* notifications that it took */
    _Atomic bool leave;
};

static struct common *common;
static uint8_t registered[SIDE_BYTES];

static void other_take(struct side *side) {
    weir_notification notification;
    while (weir_notification_take(side->engine, &notification) == WEIR_OK) {
        atomic_fetch_add(&common->received, 1);
        if (notification.tag != ECHO)
            continue;
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        weir_transfer transfer;
        options.flags = WEIR_TRANSFER_NOTIFY;
        if (weir_write(side->engine, notification.from, NULL, 0, &options, &transfer) == WEIR_OK)
            weir_transfer_release(side->engine, transfer);
    }
}

/* Never sleeps: who sends to it has nobody to wake. */
static _Noreturn void other_main(int to) {
    struct side side = {0};
    struct ticket ticket = {.lengths = {WEIR_DESCRIPTOR_MAX, WEIR_DESCRIPTOR_MAX}};
    weir_engine_options options = side_options();
    weir_memory memory;
    void *base;
    pid_t parent = getppid();
    if (weir_engine_open(&options, &side.engine) != WEIR_OK ||
        weir_memory_allocate(side.engine, SIDE_BYTES, WEIR_ACCESS_ALL, &side.memory, &base) !=
            WEIR_OK ||
        weir_memory_register(side.engine, registered, SIDE_BYTES, WEIR_ACCESS_ALL, &memory) !=
            WEIR_OK ||
        weir_engine_address(side.engine, ticket.address, sizeof(ticket.address)) != WEIR_OK ||
        weir_memory_export(side.engine, side.memory, ticket.descriptors[0], &ticket.lengths[0]) !=
            WEIR_OK ||
        weir_memory_export(side.engine, memory, ticket.descriptors[1], &ticket.lengths[1]) !=
            WEIR_OK ||
        write(to, &ticket, sizeof(ticket)) != (ssize_t)sizeof(ticket))
        _exit(1);
    for (uint32_t turn = 0; !atomic_load(&common->leave); turn++) {
        weir_engine_progress(side.engine);
        other_take(&side);
        if (turn % 4096 == 0 && getppid() != parent)
            _exit(1); /* the test is gone */
    }
    weir_engine_close(side.engine);
    _exit(0);
}

/* ---- both -------------------------------------------------------------- */

struct pair {
    struct side side;  /* ours; .remote: the other's allocated memory */
    weir_remote plain; /* its registered memory */
    pid_t other;
};

static struct pair pair;
static weir_segment pieces[PIECES_MAX];

static void join(const struct ticket *ticket) {
    struct side *side = &pair.side;
    weir_engine_options options = side_options();
    options.sq_depth = 256;
    side_open(side, &options);
    assert_int_equal(weir_peer_open(side->engine, ticket->address, &side->peer), WEIR_OK);
    assert_int_equal(weir_memory_import(side->engine, side->peer, ticket->descriptors[0],
                                        ticket->lengths[0], &side->remote),
                     WEIR_OK);
    assert_int_equal(weir_memory_import(side->engine, side->peer, ticket->descriptors[1],
                                        ticket->lengths[1], &pair.plain),
                     WEIR_OK);
    connect_now(side, NULL);
}

static int open_all(void **state) {
    struct ticket ticket;
    int ends[2];
    (void)state;
    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED || pipe(ends) != 0)
        return -1;
    pair.other = fork();
    if (pair.other == 0)
        other_main(ends[1]);
    if (pair.other < 0 || read(ends[0], &ticket, sizeof(ticket)) != (ssize_t)sizeof(ticket))
        return -1;
    close(ends[0]);
    close(ends[1]);
    join(&ticket);
    return watch_open() ? 0 : -1;
}

static int close_all(void **state) {
    int status;
    (void)state;
    watch_close();
    atomic_store(&common->leave, true);
    waitpid(pair.other, &status, 0);
    side_close(&pair.side);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* `count` pieces of `length` bytes, to or from the memory. */
static void make_pieces(weir_remote remote, uint32_t count, uint64_t length) {
    for (uint32_t i = 0; i < count; i++) {
        pieces[i] = segment_of(&pair.side, i * length, i * length, length);
        pieces[i].remote = remote;
    }
}

typedef int submit_function(weir_engine *, weir_peer, const weir_segment *, size_t,
                            const weir_transfer_options *, weir_transfer *);

/* One transfer, whatever its way; true if it ended well. */
static bool one(submit_function *submit, size_t count, const weir_transfer_options *options) {
    struct side *side = &pair.side;
    weir_transfer transfer = {0};
    if (submit(side->engine, side->peer, pieces, count, options, &transfer) != WEIR_OK)
        return false;
    int status = weir_transfer_status(side->engine, transfer);
    return weir_transfer_release(side->engine, transfer) == WEIR_OK && status == WEIR_OK;
}

static void assert_no_allocation(const struct watch_counts *counts) {
    if (counts->allocations != 0)
        fail_msg("%u allocations", (unsigned)counts->allocations);
}

/* No system call but `first` and `second` (-1: none). */
static void assert_only(const struct watch_counts *counts, long first, long second) {
    for (long i = 0; i < WATCH_CALLS_MAX; i++) {
        if (counts->calls_of[i] != 0 && i != first && i != second)
            fail_msg("%u times system call %ld", (unsigned)counts->calls_of[i], i);
    }
    assert_no_allocation(counts);
}

/* ---- the tests --------------------------------------------------------- */

/* The watch sees what it is meant to see. */
static void test_S17_watch_counts(void **state) {
    void *volatile memory;
    (void)state;
    watch_begin();
    (void)getppid();
    memory = malloc(10);
    free(memory);
    const struct watch_counts *counts = watch_end();
    assert_int_equal(counts->calls, 1);
    assert_int_equal(counts->calls_of[SYS_getppid], 1);
    assert_int_equal(counts->allocations, watch_sees_allocations() ? 2 : 0);
}

static const struct {
    uint32_t count;
    uint64_t length;
} shapes[] = {{1, 8}, {1, 4096}, {PIECES, 8}, {PIECES, 512}};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* On allocated memory a transfer that ends in its call takes neither. */
static void test_S17_plain_transfers(void **state) {
    (void)state;
    for (size_t s = 0; s < SHAPES; s++) {
        for (int way = 0; way < 2; way++) {
            make_pieces(pair.side.remote, shapes[s].count, shapes[s].length);
            uint32_t well = 0;
            watch_begin();
            for (int i = 0; i < TURNS; i++)
                well += one(way == 0 ? weir_write : weir_read, shapes[s].count, NULL);
            assert_only(watch_end(), -1, -1);
            assert_int_equal(well, TURNS);
        }
    }
}

/* The same for those that take a record, a deadline and a place in the completion queue. */
static void test_S17_recorded_transfers(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_completion completion;
    (void)state;
    options.flags = WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_ONCE;
    options.timeout_ns = 10 * SECOND;
    for (size_t s = 0; s < SHAPES; s++) {
        make_pieces(pair.side.remote, shapes[s].count, shapes[s].length);
        uint32_t well = 0;
        watch_begin();
        for (int i = 0; i < TURNS; i++) {
            int rc = weir_write(pair.side.engine, pair.side.peer, pieces, shapes[s].count, &options,
                                NULL);
            well += rc == WEIR_OK &&
                    weir_completion_take(pair.side.engine, &completion) == WEIR_OK &&
                    completion.status == WEIR_OK;
        }
        assert_only(watch_end(), -1, -1);
        assert_int_equal(well, TURNS);
    }
}

/* Until the other process has taken that many, and all its credits are back here. */
static void catch_up(uint64_t taken) {
    STEP_UNTIL(&pair.side, NULL,
               atomic_load(&common->received) >= taken && info_of(&pair.side).pending == 0);
    for (int i = 0; i < 4; i++)
        weir_engine_progress(pair.side.engine);
}

/* Notified writes: those that end in their call, and, in bursts of more than the credits,
 * those that have to wait for one. The first message of a session is no steady state: it backs the
 * ring that the others go through. */
static void test_S17_notified_transfers(void **state) {
    static const uint32_t bursts[] = {BURST, 5 * BURST};
    uint8_t payload[WEIR_NOTIFY_MAX] = {0};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    (void)state;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_payload = payload;
    uint64_t before = atomic_load(&common->received);
    assert_true(one(weir_write, 0, &options));
    catch_up(before + 1);
    for (size_t k = 0; k < 2 * SHAPES; k++) {
        uint32_t burst = bursts[k / SHAPES], count = shapes[k % SHAPES].count;
        uint64_t taken = atomic_load(&common->received);
        options.notify_length = k % 2 == 0 ? 0 : WEIR_NOTIFY_MAX;
        make_pieces(pair.side.remote, count, shapes[k % SHAPES].length);
        for (uint32_t sent = 0; sent < TURNS;) {
            uint32_t accepted = 0;
            watch_begin();
            for (uint32_t i = 0; i < burst; i++) {
                weir_transfer transfer = {0};
                accepted += weir_write(pair.side.engine, pair.side.peer, pieces, count, &options,
                                       &transfer) == WEIR_OK;
                weir_transfer_release(pair.side.engine, transfer);
            }
            assert_only(watch_end(), -1, -1);
            assert_true(accepted > 0 && (accepted == burst || burst > BURST));
            sent += accepted;
            catch_up(taken + sent);
        }
    }
}

/* Polling, with nothing there and with notifications that come in, by weir_engine_progress and by
 * weir_engine_wait, which looks before it sleeps: only the looks at the control channel, one in 64
 * polls and one a tick of the kernel's, which is a millisecond or longer, and at the health of
 * processes, one a millisecond. The control channel's timer was set when the peer called, and goes
 * off once, seconds later: on a busy machine during this. */
static void test_S17_polls(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification notification;
    (void)state;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = ECHO;
    for (int way = 0; way < 3; way++) {
        uint32_t polls = 0, answers = 0, asked = 0;
        uint64_t start = now_ns();
        watch_begin();
        while (way == 0 ? polls < TURNS : answers < TURNS / 10) {
            if (way > 0 && asked == answers)
                asked += one(weir_write, 0, &options);
            if (way == 2)
                weir_engine_wait(pair.side.engine, 0);
            else
                weir_engine_progress(pair.side.engine);
            answers += weir_notification_take(pair.side.engine, &notification) == WEIR_OK;
            if (++polls % 1024 == 0 && now_ns() - start > PATIENCE_NS)
                break;
        }
        const struct watch_counts *counts = watch_end();
        uint64_t looks = polls / 64 + 2 * ((now_ns() - start) / MS) + 3;
        assert_only(counts, CALL_LOOK, SYS_read);
        assert_in_range(counts->calls_of[SYS_read], 0, 1);
        assert_in_range(counts->calls, 0, looks);
        assert_true(way == 0 || answers == TURNS / 10);
    }
}

/* On registered memory each call moves up to 256 pieces and 4 MiB with one system call;
 * a longer list goes by chains of a quarter of the queue, one system call each. The
 * process behind it is looked at once a millisecond. */
static void test_S17_registered_memory(void **state) {
    static const struct {
        submit_function *submit;
        long call;
    } ways[] = {{weir_write, SYS_process_vm_writev}, {weir_read, SYS_process_vm_readv}};
    static const uint32_t counts_of[] = {1, PIECES, 256, PIECES_MAX};
    uint32_t chain = info_of(&pair.side).sq_depth / 4;
    (void)state;
    for (size_t k = 0; k < 8; k++) {
        uint32_t count = counts_of[k / 2], well = 0, turns = TURNS / 10;
        uint32_t each = count <= 256 ? 1 : (count + chain - 1) / chain;
        uint64_t start = now_ns();
        make_pieces(pair.plain, count, count == 1 ? 4096 : 64);
        watch_begin();
        for (uint32_t i = 0; i < turns; i++)
            well += one(ways[k % 2].submit, count, NULL);
        const struct watch_counts *counts = watch_end();
        assert_int_equal(well, turns);
        assert_only(counts, ways[k % 2].call, CALL_ALIVE);
        assert_int_equal(counts->calls_of[ways[k % 2].call], turns * each);
        assert_in_range(counts->calls_of[CALL_ALIVE], 0, (now_ns() - start) / MS + 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S17_watch_counts),
        cmocka_unit_test(test_S17_plain_transfers),
        cmocka_unit_test(test_S17_recorded_transfers),
        cmocka_unit_test(test_S17_notified_transfers),
        cmocka_unit_test(test_S17_polls),
        cmocka_unit_test(test_S17_registered_memory),
    };
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    bool allowed = weir_device_query(0, &info) == WEIR_OK && info.available == 0 && watch_open();
    watch_close();
    if (!allowed)
        return 77; /* meson: skipped */
    return cmocka_run_group_tests_name("steady state", tests, open_all, close_all);
}
