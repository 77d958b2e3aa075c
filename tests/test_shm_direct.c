/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm_direct.c: messages that are written in place on shm, while others look and let go: the
 * mark comes last, the mark and the watch do not miss each other, and behind the end of a QP or a
 * memory nothing is written (S13). */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "os.h"
#include "shm_child.h"

enum { ROUNDS = 2000, LONGEST = 60000, PAYLOAD = 64, WATCH = 65528 };

static uint8_t memory[2][REGION_BYTES];

struct pair {
    struct side a, b; /* a writes into b's allocated memory */
};

static void pair_open(struct pair *pair) {
    assert_int_equal(side_open(&pair->a, memory[0]), 0);
    assert_int_equal(side_open(&pair->b, memory[1]), 0);
    assert_int_equal(side_connect(&pair->b, &pair->a.ticket), 0);
    assert_int_equal(side_connect(&pair->a, &pair->b.ticket), 0);
    assert_int_equal(side_import(&pair->a, &pair->b.ticket, 0), 0);
}

static void pair_close(struct pair *pair) {
    side_close(&pair->a);
    side_close(&pair->b);
}

static _Atomic uint64_t *word_of(const struct side *side, uint64_t offset) {
    return (_Atomic uint64_t *)(void *)((uint8_t *)side->mrs[0].base + offset);
}

/* Of bytes that are all the number's last one. */
static int write_one(struct side *side, uint64_t number, uint64_t length, uint64_t *watch_out) {
    static _Thread_local uint8_t bytes[LONGEST];
    memset(bytes, (int)(number & 0xff), length);
    const struct weir_bytes parts[2] = {{bytes, length / 2}, {bytes, length - length / 2}};
    const struct weir_direct_to to = {.rkey = side->remotes[0].rkey,
                                      .raddr = side->remotes[0].raddr,
                                      .length = PAYLOAD + length,
                                      .watch = side->remotes[0].raddr + WATCH};
    const struct weir_direct direct = {
        .parts = parts, .count = 2, .payload = PAYLOAD, .words = {number, length, ~number}};
    return shm_device_ops.post_direct(side->qp, &to, &direct, 1, watch_out);
}

static uint64_t length_of(uint64_t number) {
    return number % 16 == 0 ? number * 7919 % (LONGEST + 1) : number * 61 % 300;
}

/* ---- the mark ---- */

struct reader {
    const struct side *side;
    uint64_t total;
    _Atomic uint64_t seen;
    _Atomic uint64_t wrong; /* the number of a message that was not whole */
};

static void *reader_main(void *argument) {
    struct reader *reader = argument;
    const uint8_t *base = reader->side->mrs[0].base;
    for (uint64_t number = 1; number <= reader->total; number++) {
        while (atomic_load_explicit(word_of(reader->side, 0), memory_order_acquire) != number)
            sched_yield();
        uint64_t length = length_of(number);
        if (*word_of(reader->side, 8) != length || *word_of(reader->side, 16) != ~number)
            reader->wrong = number;
        for (uint64_t i = 0; i < length; i++) {
            if (base[PAYLOAD + i] != (number & 0xff))
                reader->wrong = number;
        }
        reader->seen = number;
    }
    return NULL;
}

static void test_the_mark_comes_last(void **state) {
    struct pair pair;
    pthread_t thread;
    uint64_t watch = 1;
    (void)state;
    pair_open(&pair);
    struct reader reader = {.side = &pair.b, .total = ROUNDS};
    assert_int_equal(pthread_create(&thread, NULL, reader_main, &reader), 0);
    for (uint64_t number = 1; number <= ROUNDS; number++) {
        assert_int_equal(write_one(&pair.a, number, length_of(number), &watch), 0);
        assert_int_equal(watch, 0);
        while (reader.seen != number)
            sched_yield();
    }
    pthread_join(thread, NULL);
    assert_int_equal(reader.wrong, 0);
    pair_close(&pair);
}

/* ---- the mark and the watch ---- */

struct watcher {
    const struct side *side;
    _Atomic uint64_t begun, ended;
    _Atomic bool saw;
};

/* In each round the watch is taken away, and then the mark is looked at. */
static void *watcher_main(void *argument) {
    struct watcher *watcher = argument;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t spins = 0; watcher->begun != round;) { /* a yield costs the race */
            if (++spins % 1000 == 0)
                sched_yield();
        }
        atomic_store_explicit(word_of(watcher->side, WATCH), 0, memory_order_relaxed);
        shm_device_ops.direct_order(watcher->side->device);
        watcher->saw =
            atomic_load_explicit(word_of(watcher->side, 0), memory_order_acquire) == round;
        watcher->ended = round;
    }
    return NULL;
}

/* Either the writer sees that nobody watches, or the other one sees the message. */
static void test_the_mark_and_the_watch_meet(void **state) {
    struct pair pair;
    pthread_t thread;
    (void)state;
    pair_open(&pair);
    struct watcher watcher = {.side = &pair.b};
    assert_int_equal(pthread_create(&thread, NULL, watcher_main, &watcher), 0);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t watch = 0;
        atomic_store(word_of(&pair.b, WATCH), round);
        watcher.begun = round;
        for (volatile uint64_t i = round % 64; i > 0;)
            i = i - 1;
        assert_int_equal(write_one(&pair.a, round, 8, &watch), 0);
        while (watcher.ended != round)
            sched_yield();
        assert_true(watch == 0 || watch == round);
        if (watch == round && !watcher.saw)
            fail_msg("round %d: nobody sees the message", (int)round);
    }
    pthread_join(thread, NULL);
    pair_close(&pair);
}

/* Where a filter keeps membarrier(2) away, the writer makes its own barriers. The filter stays, so
 * this is the last test. */
static void test_the_mark_and_the_watch_meet_in_a_sandbox(void **state) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
    assert_false(order_open());
    test_the_mark_and_the_watch_meet(state);
}

/* ---- ends ---- */

struct writer {
    struct side *side;
    _Atomic uint64_t written;
    _Atomic bool stop;
    _Atomic int rc;
};

/* Writes until it may not, and tries on. */
static void *writer_main(void *argument) {
    struct writer *writer = argument;
    uint64_t watch;
    while (!writer->stop) {
        int rc = write_one(writer->side, writer->written + 1, LONGEST, &watch);
        if (rc == 0)
            writer->written++;
        writer->rc = rc;
    }
    return NULL;
}

enum end { ERROR_THERE, ERROR_HERE_TOO, DESTROY, RELEASE, ENDS };

/* Behind the end, not a byte changes. */
static void ends_while_written(enum end how) {
    static uint8_t before[REGION_BYTES];
    struct pair pair;
    pthread_t thread;
    pair_open(&pair);
    struct writer writer = {.side = &pair.a};
    assert_int_equal(pthread_create(&thread, NULL, writer_main, &writer), 0);
    while (writer.written < 3)
        sched_yield();
    int rc = WEIR_EBUSY;
    if (how == ERROR_THERE || how == ERROR_HERE_TOO)
        assert_int_equal(shm_device_ops.qp_error(pair.b.qp), 0);
    while (rc != 0) {
        rc = how == RELEASE ? shm_device_ops.mr_release(pair.b.device, &pair.b.mrs[0])
                            : shm_device_ops.qp_destroy(pair.b.qp);
        assert_true(rc == 0 || rc == WEIR_EBUSY);
        if (rc != 0)
            sched_yield();
    }
    if (how == RELEASE) { /* its bytes are gone; the writer hears so */
        pair.b.mrs[0].lkey = 0;
    } else {
        pair.b.qp = NULL;
        memcpy(before, pair.b.mrs[0].base, sizeof(before));
    }
    while (writer.rc != WEIR_EAGAIN)
        sched_yield();
    uint64_t written = writer.written;
    for (int i = 0; i < 100; i++)
        sched_yield();
    assert_int_equal(writer.written, written);
    writer.stop = true;
    pthread_join(thread, NULL);
    if (how != RELEASE)
        assert_memory_equal(before, pair.b.mrs[0].base, sizeof(before));
    pair_close(&pair);
}

static void test_S13_nothing_is_written_behind_the_end(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        ends_while_written((enum end)(i % ENDS));
}

/* ---- another process ---- */

static bool writes(struct side *side, char letter, int from, int to) {
    uint64_t watch;
    (void)letter, (void)from;
    put(to, "w", 1);
    for (uint64_t number = 1;; number++) {
        if (write_one(side, number, LONGEST, &watch) != 0)
            _exit(9);
    }
}

static void test_S13_a_writer_is_killed(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 10; round++) {
        static uint8_t before[REGION_BYTES];
        struct ticket ticket;
        struct side side;
        char letter;
        struct child child = child_start(NULL, writes, &ticket);
        assert_int_equal(side_open(&side, memory[0]), 0);
        put(child.to, "c", 1);
        put(child.to, &side.ticket, sizeof side.ticket);
        assert_int_equal(side_connect(&side, &ticket), 0);
        struct outcome outcome;
        assert_true(get(child.from, &outcome, sizeof outcome));
        assert_int_equal(outcome.rc[0], 0);
        assert_int_equal(outcome.rc[1], 0);
        put(child.to, "w", 1);
        assert_true(get(child.from, &letter, 1));
        for (uint64_t last = 0; last < 2 + round;) /* it is in the middle of one */
            last = *word_of(&side, 0);
        child_end(&child);
        int rc;
        while ((rc = shm_device_ops.qp_destroy(side.qp)) == WEIR_EBUSY) {
            struct weir_async event;
            (void)shm_device_ops.events(side.device, &event, 1);
        }
        assert_int_equal(rc, 0);
        side.qp = NULL;
        memcpy(before, side.mrs[0].base, sizeof(before));
        uint64_t number = *word_of(&side, 0), torn = 0;
        for (uint32_t i = 0; i < LONGEST; i++) /* of this one or of the next */
            torn += before[PAYLOAD + i] != (number & 0xff);
        for (uint32_t i = 0; torn > 0 && i < LONGEST; i++)
            assert_true(before[PAYLOAD + i] == (number & 0xff) ||
                        before[PAYLOAD + i] == ((number + 1) & 0xff));
        assert_memory_equal(before, side.mrs[0].base, sizeof(before));
        side_close(&side);
    }
}

int main(void) {
    if (os_env_init(&child_env) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mark_comes_last),
        cmocka_unit_test(test_the_mark_and_the_watch_meet),
        cmocka_unit_test(test_S13_nothing_is_written_behind_the_end),
        cmocka_unit_test(test_S13_a_writer_is_killed),
        cmocka_unit_test(test_the_mark_and_the_watch_meet_in_a_sandbox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
