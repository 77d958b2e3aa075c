/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c: 64 threads on one engine. */
#include "kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 64, ROUNDS = 20, TASKS = 8, SMALL = 1024 };

static transfer_engine_t engine;
static struct child child;
static char names[2][512];
static uint8_t *bytes;
static atomic_int wrong, sent;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            atomic_fetch_add(&wrong, 1);                                                           \
        }                                                                                          \
    } while (0)

static int move(int opcode, uint64_t at, segment_id_t id, bool notify) {
    transfer_request_t entries[TASKS];
    transfer_status_t status;
    int worst = STATUS_COMPLETED;
    batch_id_t batch = allocateBatchID(engine, TASKS);
    for (uint64_t i = 0; i < TASKS; i++)
        entries[i] =
            request(opcode, bytes + at + i * SMALL, id, child.base + at + i * SMALL, SMALL);
    int rc = notify
                 ? submitTransferWithNotify(engine, batch, entries, TASKS, (notify_msg_t){"n", "m"})
                 : submitTransfer(engine, batch, entries, TASKS);
    EXPECT(rc == 0);
    for (size_t i = 0; rc == 0 && i < TASKS; i++) {
        do
            EXPECT(getTransferStatus(engine, batch, i, &status) == 0);
        while (status.status == STATUS_WAITING);
        worst = status.status != STATUS_COMPLETED ? status.status : worst;
    }
    EXPECT(freeBatchID(engine, batch) == 0);
    return worst;
}

/* Its own part of the memory there, over and over; beside that it registers and opens. */
static void *work(void *number) {
    uint64_t me = (uint64_t)(uintptr_t)number, at = me * TASKS * SMALL;
    uint8_t *own = map_bytes(SMALL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        segment_id_t id = openSegment(engine, names[0]);
        EXPECT(id == 1);
        bool notify = round % 4 == 0;
        fill(bytes + at, at, TASKS * SMALL, me * 1000 + round);
        EXPECT(move(OPCODE_WRITE, at, id, notify) == STATUS_COMPLETED);
        atomic_fetch_add(&sent, notify);
        memset(bytes + at, 0, TASKS * SMALL);
        EXPECT(move(OPCODE_READ, at, id, false) == STATUS_COMPLETED);
        EXPECT(differs(bytes + at, at, TASKS * SMALL, me * 1000 + round) == -1);
        EXPECT(registerLocalMemory(engine, own, SMALL, "*", 1) == 0);
        EXPECT(openSegment(engine, names[1]) == 2);
        EXPECT(unregisterLocalMemory(engine, own) == 0);
        if (me == 0)
            EXPECT(syncSegmentCache(engine) == 0);
    }
    return NULL;
}

static void test_K8_64_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    struct child second;
    engine = open_engine();
    bytes = map_bytes(THREADS * TASKS * SMALL);
    assert_int_equal(registerLocalMemory(engine, bytes, THREADS * TASKS * SMALL, "*", 1), 0);
    child_start(&child);
    child_open(&child, "P2PHANDSHAKE", "127.0.0.1");
    child_map(&child, THREADS, TASKS * SMALL, 1);
    child_start(&second);
    child_open(&second, "P2PHANDSHAKE", "127.0.0.1");
    snprintf(names[0], sizeof(names[0]), "%s", child.name);
    snprintf(names[1], sizeof(names[1]), "%s", second.name);
    assert_int_equal(openSegment(engine, names[0]), 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    for (uint64_t i = 0; i < THREADS; i++)
        child_say(&child, "check %llu %llu %d %llu", (unsigned long long)i,
                  (unsigned long long)(i * TASKS * SMALL), TASKS * SMALL,
                  (unsigned long long)(i * 1000 + ROUNDS - 1));
    int seen = 0;
    UNTIL((seen += atoi(child_say(&child, "count"))) >= atomic_load(&sent));
    assert_int_equal(seen, atomic_load(&sent));
    child_quit(&child);
    child_quit(&second);
    destroyTransferEngine(engine);
}

static batch_id_t shared;
static atomic_int polls, freed;

static void *poll(void *unused) {
    transfer_status_t status;
    (void)unused;
    for (int rc = 0; rc == 0;) {
        for (size_t i = 0; i < TASKS; i++) {
            rc = getTransferStatus(engine, shared, i, &status);
            if (rc != 0)
                break;
        }
        atomic_fetch_add(&polls, 1);
    }
    return NULL;
}

static void *free_it(void *unused) {
    (void)unused;
    while (atomic_load(&polls) < 100)
        pause_ms();
    if (freeBatchID(engine, shared) == 0)
        atomic_fetch_add(&freed, 1);
    return NULL;
}

/* One batch, looked at by many threads while it is freed, by several, of which one has done it. */
static void test_K8_one_batch_for_many_threads(void **state) {
    (void)state;
    pthread_t threads[12];
    transfer_request_t entries[TASKS];
    engine = open_engine();
    bytes = map_bytes(2 * SMALL);
    assert_int_equal(registerLocalMemory(engine, bytes, 2 * SMALL, "*", 1), 0);
    for (int turn = 0; turn < 20; turn++) {
        atomic_store(&polls, 0);
        atomic_store(&freed, 0);
        shared = allocateBatchID(engine, TASKS);
        for (size_t i = 0; i < TASKS; i++)
            entries[i] =
                request(OPCODE_WRITE, bytes, LOCAL_SEGMENT, (uintptr_t)bytes + SMALL, SMALL);
        assert_int_equal(submitTransfer(engine, shared, entries, TASKS), 0);
        for (size_t i = 0; i < TASKS; i++)
            assert_int_equal(wait_task(engine, shared, i), STATUS_COMPLETED);
        for (int i = 0; i < 12; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, i < 8 ? poll : free_it, NULL), 0);
        for (int i = 0; i < 12; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&freed), 1);
    }
    destroyTransferEngine(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K8_64_threads),
        cmocka_unit_test(test_K8_one_batch_for_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
