/* SPDX-License-Identifier: Apache-2.0 */
/* test_transfers.c: bytes and notifications between two processes. */
#include "kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 3000, SMALL = 4096 };

/* An engine, memory of its own, and a target with `count` buffers. */
struct ends {
    transfer_engine_t engine;
    struct child child;
    segment_id_t id;
    uint8_t *bytes;
    uint64_t length;
};

static struct ends begin(uint64_t count, uint64_t length) {
    struct ends ends = {.engine = open_engine(), .length = count * length};
    child_start(&ends.child);
    child_open(&ends.child, "P2PHANDSHAKE", "127.0.0.1");
    child_map(&ends.child, count, length, 1);
    ends.bytes = map_bytes(ends.length);
    assert_int_equal(registerLocalMemory(ends.engine, ends.bytes, ends.length, "cpu:0", 1), 0);
    ends.id = openSegment(ends.engine, ends.child.name);
    assert_true(ends.id > 0);
    return ends;
}

static void end(struct ends *ends) {
    child_quit(&ends->child);
    destroyTransferEngine(ends->engine);
}

static void check(struct ends *ends, uint64_t index, uint64_t place, uint64_t length,
                  uint64_t seed) {
    child_say(&ends->child, "check %llu %llu %llu %llu", (unsigned long long)index,
              (unsigned long long)place, (unsigned long long)length, (unsigned long long)seed);
}

static void test_K3_every_byte_both_ways(void **state) {
    (void)state;
    struct ends ends = begin(1, 8 << 20);
    static const uint64_t lengths[] = {1, 7, 4096, 65536, 65537, 1 << 20, 8 << 20};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t length = lengths[i], at = (8 << 20) - length;
        memset(ends.bytes, 0, ends.length);
        transfer_request_t entry =
            request(OPCODE_READ, ends.bytes + at, ends.id, ends.child.base + at, length);
        assert_int_equal(transfer(ends.engine, &entry, 1), STATUS_COMPLETED);
        assert_int_equal(differs(ends.bytes + at, at, length, i == 0 ? 1 : i + 9), -1);
        assert_true(at == 0 || ends.bytes[at - 1] == 0);
        fill(ends.bytes, 0, ends.length, i + 10);
        entry = request(OPCODE_WRITE, ends.bytes, ends.id, ends.child.base, 8 << 20);
        assert_int_equal(transfer(ends.engine, &entry, 1), STATUS_COMPLETED);
        check(&ends, 0, 0, 8 << 20, i + 10);
    }
    end(&ends);
}

static void test_K3_the_target_writes_to_us(void **state) {
    (void)state;
    struct ends ends = begin(1, 1 << 20);
    child_say(&ends.child, "write %s %llx %d 44", name_of(ends.engine),
              (unsigned long long)(uintptr_t)ends.bytes, 1 << 20);
    assert_int_equal(differs(ends.bytes, 0, 1 << 20, 44), -1);
    end(&ends);
}

static void test_K3_thousands_of_buffers_and_tasks(void **state) {
    (void)state;
    struct ends ends = begin(MANY, SMALL);
    transfer_request_t *entries = calloc(MANY, sizeof(*entries));
    for (size_t i = 0; i < MANY; i++) { /* in disorder, and back into order */
        size_t from = i * 7 % MANY;
        entries[i] = request(OPCODE_READ, ends.bytes + from * SMALL, ends.id,
                             ends.child.base + from * SMALL, SMALL);
    }
    assert_int_equal(transfer(ends.engine, entries, MANY), STATUS_COMPLETED);
    assert_int_equal(differs(ends.bytes, 0, ends.length, 1), -1);
    fill(ends.bytes, 0, ends.length, 2);
    for (size_t i = 0; i < MANY; i++)
        entries[i].opcode = OPCODE_WRITE;
    assert_int_equal(transfer(ends.engine, entries, MANY), STATUS_COMPLETED);
    check(&ends, 0, 0, ends.length, 2);
    free(entries);
    end(&ends);
}

static void test_K3_a_task_goes_over_buffers_side_by_side(void **state) {
    (void)state;
    struct ends ends = begin(8, SMALL);
    uint8_t *pieces = map_bytes(8 * SMALL);
    for (size_t i = 0; i < 8; i++) /* cut elsewhere than there */
        assert_int_equal(registerLocalMemory(ends.engine, pieces + (i == 0 ? 0 : i * SMALL - 100),
                                             i == 0 ? SMALL - 100 : SMALL, "*", 1),
                         0);
    fill(pieces, 10, 8 * SMALL - 200, 5);
    transfer_request_t entry =
        request(OPCODE_WRITE, pieces, ends.id, ends.child.base + 10, 8 * SMALL - 200);
    assert_int_equal(transfer(ends.engine, &entry, 1), STATUS_COMPLETED);
    check(&ends, 0, 0, 10, 1);
    child_say(&ends.child, "check 0 0 10 1");
    memset(pieces, 0, 8 * SMALL - 200);
    entry.opcode = OPCODE_READ;
    assert_int_equal(transfer(ends.engine, &entry, 1), STATUS_COMPLETED);
    assert_int_equal(differs(pieces, 10, 8 * SMALL - 200, 5), -1);
    end(&ends);
}

/* Many batches under way before any is looked at: more than weir has transfers for. */
static void test_K3_thousands_of_batches(void **state) {
    (void)state;
    enum { BATCHES = 20000, EACH = 64 };
    struct ends ends = begin(1, BATCHES * EACH);
    batch_id_t *batches = calloc(BATCHES, sizeof(*batches));
    fill(ends.bytes, 0, ends.length, 6);
    for (size_t i = 0; i < BATCHES; i++) {
        transfer_request_t entry =
            request(OPCODE_WRITE, ends.bytes + i * EACH, ends.id, ends.child.base + i * EACH, EACH);
        batches[i] = allocateBatchID(ends.engine, 1);
        assert_int_equal(submitTransfer(ends.engine, batches[i], &entry, 1), 0);
    }
    for (size_t i = 0; i < BATCHES; i++) {
        assert_int_equal(wait_task(ends.engine, batches[i], 0), STATUS_COMPLETED);
        assert_int_equal(freeBatchID(ends.engine, batches[i]), 0);
    }
    check(&ends, 0, 0, ends.length, 6);
    free(batches);
    end(&ends);
}

/* More tasks in one submit than weir holds segments for: both ways, with a notification. */
static void test_K3_one_batch_of_very_many_tasks(void **state) {
    (void)state;
    enum { TASKS = 300000, EACH = 8 };
    struct ends ends = begin(1, TASKS * EACH);
    transfer_request_t *entries = calloc(TASKS, sizeof(*entries));
    fill(ends.bytes, 0, ends.length, 8);
    for (size_t i = 0; i < TASKS; i++)
        entries[i] =
            request(OPCODE_WRITE, ends.bytes + i * EACH, ends.id, ends.child.base + i * EACH, EACH);
    batch_id_t batch = allocateBatchID(ends.engine, TASKS);
    assert_int_equal(
        submitTransferWithNotify(ends.engine, batch, entries, TASKS, (notify_msg_t){"n", "all"}),
        0);
    for (size_t i = 0; i < TASKS; i++)
        assert_int_equal(wait_task(ends.engine, batch, i), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(ends.engine, batch), 0);
    check(&ends, 0, 0, ends.length, 8);
    assert_string_equal(child_say(&ends.child, "notes"), "1 n=3:all");
    memset(ends.bytes, 0, ends.length);
    for (size_t i = 0; i < TASKS; i++)
        entries[i].opcode = OPCODE_READ;
    assert_int_equal(transfer(ends.engine, entries, TASKS), STATUS_COMPLETED);
    assert_int_equal(differs(ends.bytes, 0, ends.length, 8), -1);
    free(entries);
    end(&ends);
}

static void test_K4_a_task_without_a_target_fails_alone(void **state) {
    (void)state;
    struct ends ends = begin(4, SMALL);
    transfer_status_t status;
    fill(ends.bytes, 0, ends.length, 7);
    transfer_request_t entries[6];
    for (size_t i = 0; i < 4; i++)
        entries[i] = request(OPCODE_WRITE, ends.bytes + i * SMALL, ends.id,
                             ends.child.base + i * SMALL, SMALL);
    entries[4] = entries[3];
    entries[5] = entries[3];
    entries[1].target_offset = 64;                              /* no buffer there */
    entries[4].target_offset = ends.child.base + 4 * SMALL - 1; /* reaches over the end */
    entries[5].target_offset = ends.child.base - SMALL;         /* before the first */
    batch_id_t batch = allocateBatchID(ends.engine, 6);
    assert_int_equal(submitTransfer(ends.engine, batch, entries, 6), 0);
    for (size_t i = 0; i < 6; i++) {
        bool good = i == 0 || i == 2 || i == 3;
        assert_int_equal(wait_task(ends.engine, batch, i), good ? STATUS_COMPLETED : STATUS_FAILED);
        assert_int_equal(getTransferStatus(ends.engine, batch, i, &status), 0);
        assert_int_equal(status.transferred_bytes, good ? SMALL : 0);
    }
    assert_int_equal(freeBatchID(ends.engine, batch), 0);
    check(&ends, 0, 0, SMALL, 7);
    check(&ends, 1, SMALL, SMALL, 1); /* untouched */
    check(&ends, 2, 2 * SMALL, 2 * SMALL, 7);
    end(&ends);
}

/* Beside one that has no target, a task that moves nothing has moved all. */
static void test_K4_a_task_of_no_bytes_is_completed(void **state) {
    (void)state;
    struct ends ends = begin(1, SMALL);
    transfer_request_t entries[2] = {request(OPCODE_WRITE, ends.bytes, ends.id, ends.child.base, 0),
                                     request(OPCODE_WRITE, ends.bytes, ends.id, 64, 8)};
    for (int with_note = 0; with_note < 2; with_note++) {
        batch_id_t batch = allocateBatchID(ends.engine, 2);
        assert_int_equal(with_note ? submitTransferWithNotify(ends.engine, batch, entries, 2,
                                                              (notify_msg_t){"n", "never"})
                                   : submitTransfer(ends.engine, batch, entries, 2),
                         0);
        assert_int_equal(wait_task(ends.engine, batch, 0), STATUS_COMPLETED);
        assert_int_equal(wait_task(ends.engine, batch, 1), STATUS_FAILED);
        assert_int_equal(freeBatchID(ends.engine, batch), 0);
    }
    end(&ends);
}

/* A list that was taken before the target registered more. */
static void test_K4_what_is_registered_later_is_found(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine();
    struct child child;
    child_start(&child);
    child_open(&child, "P2PHANDSHAKE", "127.0.0.1");
    segment_id_t id = openSegment(engine, child.name);
    assert_true(id > 0);
    child_map(&child, 10, SMALL, 3);
    uint8_t *bytes = map_bytes(10 * SMALL);
    assert_int_equal(registerLocalMemory(engine, bytes, 10 * SMALL, "*", 1), 0);
    transfer_request_t entry = request(OPCODE_READ, bytes, id, child.base, 10 * SMALL);
    assert_int_equal(transfer(engine, &entry, 1), STATUS_COMPLETED);
    assert_int_equal(differs(bytes, 0, 10 * SMALL, 3), -1);
    child_quit(&child);
    destroyTransferEngine(engine);
}

/* Busy: the target is stopped, so that the list which a task waits for does not come. */
static void test_K4_a_batch_under_way_is_not_freed(void **state) {
    (void)state;
    struct ends ends = begin(1, SMALL);
    transfer_status_t status;
    transfer_request_t entry = request(OPCODE_WRITE, ends.bytes, ends.id, 64, 8);
    batch_id_t batch = allocateBatchID(ends.engine, 1);
    process_stop(ends.child.pid);
    assert_int_equal(submitTransfer(ends.engine, batch, &entry, 1), 0);
    assert_int_equal(getTransferStatus(ends.engine, batch, 0, &status), 0);
    assert_int_equal(status.status, STATUS_WAITING);
    assert_int_equal(freeBatchID(ends.engine, batch), MC_CODE_BUSY);
    kill(ends.child.pid, SIGCONT);
    assert_int_equal(wait_task(ends.engine, batch, 0), STATUS_FAILED);
    assert_int_equal(freeBatchID(ends.engine, batch), 0);
    end(&ends);
}

/* Without a look at the batch by the sender. */
static int submit_with_note(struct ends *ends, transfer_request_t *entries, size_t count,
                            char *name, char *text, batch_id_t *batch) {
    *batch = allocateBatchID(ends->engine, count);
    return submitTransferWithNotify(ends->engine, *batch, entries, count,
                                    (notify_msg_t){name, text});
}

static const char *next_note(struct ends *ends) {
    const char *notes;
    UNTIL(strcmp(notes = child_say(&ends->child, "notes"), "0") != 0);
    return notes;
}

static void test_K5_a_notification_comes_behind_its_bytes(void **state) {
    (void)state;
    struct ends ends = begin(16, SMALL);
    char text[32], expected[64], *longest = malloc(NOTIFY_BYTES_MAX);
    memset(longest, 'y', NOTIFY_BYTES_MAX - 1);
    longest[NOTIFY_BYTES_MAX - 1] = '\0';
    for (uint64_t seed = 20; seed < 60; seed++) {
        batch_id_t batch;
        transfer_request_t entries[16];
        bool is_long = seed % 3 == 2, several = seed % 2 == 1;
        fill(ends.bytes, 0, ends.length, seed);
        for (size_t i = 0; i < 16; i++)
            entries[i] = request(OPCODE_WRITE, ends.bytes + i * SMALL, ends.id,
                                 ends.child.base + i * SMALL, SMALL);
        if (several) /* three runs instead of one */
            entries[7] = request(OPCODE_READ, ends.bytes + 7 * SMALL, LOCAL_SEGMENT,
                                 (uintptr_t)ends.bytes + 7 * SMALL, SMALL);
        snprintf(text, sizeof(text), "seed %d", (int)seed);
        assert_int_equal(submit_with_note(&ends, entries, 16, is_long ? "" : "n",
                                          is_long ? longest : text, &batch),
                         0);
        snprintf(expected, sizeof(expected), is_long ? "1 =%d:" : "1 n=%d:%s",
                 is_long ? NOTIFY_BYTES_MAX - 1 : (int)strlen(text), text);
        assert_memory_equal(next_note(&ends), expected, strlen(expected));
        check(&ends, 0, 0, 7 * SMALL, seed);
        check(&ends, 8, 8 * SMALL, 8 * SMALL, seed);
        for (size_t i = 0; i < 16; i++)
            assert_int_equal(wait_task(ends.engine, batch, i), STATUS_COMPLETED);
        assert_int_equal(freeBatchID(ends.engine, batch), 0);
        assert_string_equal(child_say(&ends.child, "notes"), "0"); /* once */
    }
    free(longest);
    end(&ends);
}

static void test_K5_no_notification_where_a_task_fails(void **state) {
    (void)state;
    struct ends ends = begin(2, SMALL);
    for (int several = 0; several < 2; several++) {
        batch_id_t batch;
        transfer_request_t entries[3] = {
            request(OPCODE_WRITE, ends.bytes, ends.id, ends.child.base, SMALL),
            request(several ? OPCODE_READ : OPCODE_WRITE, ends.bytes, ends.id, 64, 8),
            request(OPCODE_WRITE, ends.bytes + SMALL, ends.id, ends.child.base + SMALL, SMALL)};
        assert_int_equal(submit_with_note(&ends, entries, 3, "n", "never", &batch), 0);
        assert_int_equal(wait_task(ends.engine, batch, 0), STATUS_COMPLETED);
        assert_int_equal(wait_task(ends.engine, batch, 1), STATUS_FAILED);
        assert_int_equal(wait_task(ends.engine, batch, 2), STATUS_COMPLETED);
        assert_int_equal(freeBatchID(ends.engine, batch), 0);
    }
    assert_int_equal(genNotifyInEngine(ends.engine, (uint64_t)ends.id, (notify_msg_t){"a", "b"}),
                     0);
    assert_string_equal(next_note(&ends), "1 a=1:b");
    end(&ends);
}

/* The target's application asks for none of them meanwhile. */
static void test_K5_notifications_that_nobody_takes_stall_nobody(void **state) {
    (void)state;
    enum { NOTES = 5000 }; /* more than weir keeps */
    struct ends ends = begin(1, SMALL);
    for (int i = 0; i < NOTES; i++) {
        batch_id_t batch;
        transfer_request_t entry = request(OPCODE_WRITE, ends.bytes, ends.id, ends.child.base, 64);
        assert_int_equal(submit_with_note(&ends, &entry, 1, "n", "m", &batch), 0);
        assert_int_equal(wait_task(ends.engine, batch, 0), STATUS_COMPLETED);
        assert_int_equal(freeBatchID(ends.engine, batch), 0);
    }
    long seen = 0;
    UNTIL((seen += atol(child_say(&ends.child, "count"))) >= NOTES);
    assert_int_equal(seen, NOTES);
    end(&ends);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K3_every_byte_both_ways),
        cmocka_unit_test(test_K3_the_target_writes_to_us),
        cmocka_unit_test(test_K3_thousands_of_buffers_and_tasks),
        cmocka_unit_test(test_K3_a_task_goes_over_buffers_side_by_side),
        cmocka_unit_test(test_K3_thousands_of_batches),
        cmocka_unit_test(test_K3_one_batch_of_very_many_tasks),
        cmocka_unit_test(test_K4_a_task_without_a_target_fails_alone),
        cmocka_unit_test(test_K4_a_task_of_no_bytes_is_completed),
        cmocka_unit_test(test_K4_what_is_registered_later_is_found),
        cmocka_unit_test(test_K4_a_batch_under_way_is_not_freed),
        cmocka_unit_test(test_K5_a_notification_comes_behind_its_bytes),
        cmocka_unit_test(test_K5_no_notification_where_a_task_fails),
        cmocka_unit_test(test_K5_notifications_that_nobody_takes_stall_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
