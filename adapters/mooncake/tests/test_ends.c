/* SPDX-License-Identifier: Apache-2.0 */
/* test_ends.c: targets that register anew, die, stop, or never were. */
#include "kit.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SMALL = 4096, COUNT = 16 };

/* A thread that writes with notifications all the time, in batches of COUNT tasks, each to a buffer
 * of its own. */
struct traffic {
    transfer_engine_t engine;
    segment_id_t id;
    uint64_t base;
    uint8_t *bytes;
    atomic_bool over;
    atomic_int completed, failed;
};

static void *traffic_main(void *self) {
    struct traffic *traffic = self;
    while (!atomic_load(&traffic->over)) {
        transfer_request_t entries[COUNT];
        bool good = true;
        batch_id_t batch = allocateBatchID(traffic->engine, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            entries[i] = request(OPCODE_WRITE, traffic->bytes + i * SMALL, traffic->id,
                                 traffic->base + i * SMALL, SMALL);
        assert_int_equal(submitTransferWithNotify(traffic->engine, batch, entries, COUNT,
                                                  (notify_msg_t){"n", "m"}),
                         0);
        for (size_t i = 0; i < COUNT; i++)
            good &= wait_task(traffic->engine, batch, i) == STATUS_COMPLETED;
        assert_int_equal(freeBatchID(traffic->engine, batch), 0);
        atomic_fetch_add(good ? &traffic->completed : &traffic->failed, 1);
    }
    return NULL;
}

static void traffic_begin(struct traffic *traffic, struct child *child, uint64_t seed) {
    memset(traffic, 0, sizeof(*traffic));
    traffic->engine = open_engine();
    traffic->bytes = map_bytes(COUNT * SMALL);
    traffic->base = child->base;
    fill(traffic->bytes, 0, COUNT * SMALL, seed);
    assert_int_equal(registerLocalMemory(traffic->engine, traffic->bytes, COUNT * SMALL, "*", 1),
                     0);
    UNTIL((traffic->id = openSegment(traffic->engine, child->name)) > 0);
}

static void child_begin(struct child *child) {
    child_start(child);
    child_open(child, "P2PHANDSHAKE", "127.0.0.1");
    child_map(child, COUNT, SMALL, 1);
}

static void test_K6_work_goes_on_where_a_buffer_was_registered_anew(void **state) {
    (void)state;
    struct child child;
    struct traffic traffic;
    child_begin(&child);
    traffic_begin(&traffic, &child, 2);
    transfer_request_t all =
        request(OPCODE_WRITE, traffic.bytes, traffic.id, child.base, COUNT * SMALL);
    assert_int_equal(transfer(traffic.engine, &all, 1), STATUS_COMPLETED);
    for (unsigned i = 0; i < 4 * COUNT; i++) {
        child_say(&child, "anew %u %u", i % COUNT, 100 + i);
        fill(traffic.bytes, 0, COUNT * SMALL, 200 + i);
        assert_int_equal(transfer(traffic.engine, &all, 1), STATUS_COMPLETED);
        child_say(&child, "check 0 0 %d %u", COUNT * SMALL, 200 + i);
    }
    child_quit(&child);
    destroyTransferEngine(traffic.engine);
}

/* Under way all the while. Each batch that ends well has told the target once, and one that fails
 * has not; failing is possible where a buffer is away for longer than a list takes. */
static void test_K6_registering_anew_under_traffic(void **state) {
    (void)state;
    struct child child;
    struct traffic traffic;
    pthread_t thread;
    child_begin(&child);
    traffic_begin(&traffic, &child, 2);
    assert_int_equal(pthread_create(&thread, NULL, traffic_main, &traffic), 0);
    for (unsigned i = 0; i < 100; i++)
        child_say(&child, "anew %u %u", i * 5 % COUNT, 300 + i);
    int before = atomic_load(&traffic.completed);
    UNTIL(atomic_load(&traffic.completed) > before + 10); /* it goes on */
    atomic_store(&traffic.over, true);
    pthread_join(thread, NULL);
    child_say(&child, "check 0 0 %d 2", COUNT * SMALL);
    int notes = 0, completed = atomic_load(&traffic.completed);
    UNTIL((notes += atoi(child_say(&child, "count"))) >= completed);
    assert_int_equal(notes, completed);
    child_quit(&child);
    destroyTransferEngine(traffic.engine);
}

static void test_K7_a_target_that_is_killed_ends_what_is_under_way(void **state) {
    (void)state;
    struct child child, other;
    struct traffic traffic;
    pthread_t thread;
    segment_id_t id = -1;
    wait_shortly();
    child_begin(&child);
    child_begin(&other);
    traffic_begin(&traffic, &child, 3);
    UNTIL((id = openSegment(traffic.engine, other.name)) > 0);
    assert_int_equal(pthread_create(&thread, NULL, traffic_main, &traffic), 0);
    UNTIL(atomic_load(&traffic.completed) > 20);
    child_kill(&child);
    UNTIL(atomic_load(&traffic.failed) > 0);
    atomic_store(&traffic.over, true);
    pthread_join(thread, NULL);
    /* The engine, and its other peer, are as before. */
    transfer_request_t entry = request(OPCODE_WRITE, traffic.bytes, id, other.base, COUNT * SMALL);
    UNTIL(transfer(traffic.engine, &entry, 1) == STATUS_COMPLETED);
    child_say(&other, "check 0 0 %d 3", COUNT * SMALL);
    assert_int_equal(unregisterLocalMemory(traffic.engine, traffic.bytes), 0);
    child_quit(&other);
    destroyTransferEngine(traffic.engine);
}

/* On one processor, where a thread that is woken does not run at once; and as before. */
static void share_one_processor(bool one) {
    static cpu_set_t before;
    struct sched_param none = {0};
    cpu_set_t first;
    size_t number = 0;
    if (one)
        assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    while (!CPU_ISSET(number, &before))
        number++;
    CPU_ZERO(&first);
    CPU_SET(number, &first);
    assert_int_equal(sched_setaffinity(0, sizeof(first), one ? &first : &before), 0);
    assert_int_equal(sched_setscheduler(0, one ? SCHED_BATCH : SCHED_OTHER, &none), 0);
}

/* The list of one that does not answer is waited for, and that of another meanwhile is not. */
static void test_K7_a_target_that_is_stopped_holds_up_no_other(void **state) {
    (void)state;
    share_one_processor(true);
    struct child child, other;
    struct traffic traffic;
    transfer_status_t status;
    child_begin(&child);
    child_begin(&other);
    traffic_begin(&traffic, &child, 3);
    segment_id_t id = openSegment(traffic.engine, other.name);
    transfer_request_t entries[2] = {request(OPCODE_WRITE, traffic.bytes, traffic.id, 64, 8),
                                     request(OPCODE_WRITE, traffic.bytes, id, 64, 8)};
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(transfer(traffic.engine, &entries[1], 1), STATUS_FAILED);
        for (int i = 0; i < 20; i++)
            pause_ms(); /* those that fetch lists sleep, most likely */
        batch_id_t batch = allocateBatchID(traffic.engine, 2);
        process_stop(child.pid);
        assert_int_equal(submitTransfer(traffic.engine, batch, entries, 2), 0);
        assert_int_equal(wait_task(traffic.engine, batch, 1), STATUS_FAILED);
        assert_int_equal(getTransferStatus(traffic.engine, batch, 0, &status), 0);
        assert_int_equal(status.status, STATUS_WAITING);
        kill(child.pid, SIGCONT);
        assert_int_equal(wait_task(traffic.engine, batch, 0), STATUS_FAILED);
        assert_int_equal(freeBatchID(traffic.engine, batch), 0);
    }
    child_quit(&child);
    child_quit(&other);
    destroyTransferEngine(traffic.engine);
    share_one_processor(false);
}

/* Of a segment that is removed with work under way: its place goes back behind that. */
static void test_K7_a_removed_segment_takes_no_room(void **state) {
    (void)state;
    setenv("WEIR_PEERS_MAX", "3", 1);
    struct child child;
    struct traffic traffic;
    child_begin(&child);
    traffic_begin(&traffic, &child, 2);
    for (int turn = 0; turn < 4; turn++) {
        struct child other;
        batch_id_t batches[2 * COUNT];
        segment_id_t id = -1;
        child_begin(&other);
        UNTIL((id = openSegment(traffic.engine, other.name)) > 0);
        process_stop(other.pid);
        transfer_request_t entry =
            request(OPCODE_READ, traffic.bytes, id, other.base, COUNT * SMALL);
        for (int i = 0; i < 2 * COUNT; i++) { /* it is on its way until the target goes on */
            batches[i] = allocateBatchID(traffic.engine, 1);
            assert_int_equal(submitTransferWithNotify(traffic.engine, batches[i], &entry, 1,
                                                      (notify_msg_t){"n", "m"}),
                             0);
        }
        assert_int_equal(removeLocalSegment(traffic.engine, other.name), 0);
        for (int i = 0; i < 300; i++)
            pause_ms(); /* the removed one was looked after, most likely */
        kill(other.pid, SIGCONT);
        for (int i = 0; i < 2 * COUNT; i++) {
            wait_task(traffic.engine, batches[i], 0);
            assert_int_equal(freeBatchID(traffic.engine, batches[i]), 0);
        }
        child_quit(&other);
    }
    child_quit(&child);
    destroyTransferEngine(traffic.engine);
    unsetenv("WEIR_PEERS_MAX");
}

/* In a process of a user that may have no thread more: 0, or what was not so. */
static int work_without_threads(void) {
    struct rlimit none = {1, 1};
    if (getuid() == 0 && setuid(65534) != 0)
        return 1;
    transfer_engine_t engine = open_engine(), other = open_engine();
    uint8_t *bytes = map_bytes(SMALL);
    segment_id_t id = openSegment(engine, name_of(other));
    if (id <= 0 || registerLocalMemory(engine, bytes, SMALL, "*", 1) != 0)
        return 2;
    transfer_request_t entry = request(OPCODE_WRITE, bytes, id, 64, 8);
    if (setrlimit(RLIMIT_NPROC, &none) != 0)
        return 3;
    if (transfer(engine, &entry, 1) != STATUS_FAILED)
        return 4;
    destroyTransferEngine(engine);
    destroyTransferEngine(other);
    return 0;
}

static void test_K7_lists_come_where_no_thread_can_be_made(void **state) {
    (void)state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(work_without_threads());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Long ones, of which the application takes none: they are kept up to a bound, then the sender
 * waits, and those that were told to have arrived are there. */
static void test_K7_notifications_that_nobody_takes_have_a_bound(void **state) {
    (void)state;
    enum { MOST = 2000 };
    wait_shortly();
    transfer_engine_t engine = open_engine();
    char *text = malloc(NOTIFY_BYTES_MAX);
    int sent = 0, got = 0, size;
    memset(text, 'x', NOTIFY_BYTES_MAX - 1);
    text[NOTIFY_BYTES_MAX - 1] = '\0';
    for (int failed = 0; sent < MOST && failed < 3;) {
        if (genNotifyInEngine(engine, LOCAL_SEGMENT, (notify_msg_t){"", text}) == 0)
            sent++, failed = 0;
        else
            failed++; /* or a busy machine */
    }
    assert_true(sent < MOST);
    for (int turn = 0; turn < 2; turn++) {
        notify_msg_t *notes = NULL;
        UNTIL((notes = getNotifsFromEngine(engine, &size), got += size,
               freeNotifsMsgBuf(notes, size), got >= sent));
        assert_int_equal(got, sent);
        UNTIL(genNotifyInEngine(engine, LOCAL_SEGMENT, (notify_msg_t){"", text}) == 0); /* again */
        sent++;
    }
    free(text);
    destroyTransferEngine(engine);
}

static void test_K7_targets_killed_one_after_the_other(void **state) {
    (void)state;
    wait_shortly();
    transfer_engine_t engine = open_engine();
    uint8_t *bytes = map_bytes(COUNT * SMALL);
    assert_int_equal(registerLocalMemory(engine, bytes, COUNT * SMALL, "*", 1), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct child child;
        segment_id_t id = -1;
        child_begin(&child);
        UNTIL((id = openSegment(engine, child.name)) > 0);
        fill(bytes, 0, COUNT * SMALL, 50 + i);
        transfer_request_t entry = request(OPCODE_WRITE, bytes, id, child.base, COUNT * SMALL);
        UNTIL(transfer(engine, &entry, 1) == STATUS_COMPLETED);
        child_say(&child, "check 0 0 %d %u", COUNT * SMALL, 50 + i);
        child_kill(&child);
        assert_int_equal(transfer(engine, &entry, 1), STATUS_FAILED);
        assert_int_equal(openSegmentNoCache(engine, child.name), MC_EINVALID);
        assert_int_equal(genNotifyInEngine(engine, (uint64_t)id, (notify_msg_t){"a", "b"}),
                         MC_EENDPOINT);
    }
    assert_int_equal(syncSegmentCache(engine), 0);
    destroyTransferEngine(engine);
}

/* More of them in an engine's life than it has room for at a time. */
static void test_K7_dead_targets_take_no_room(void **state) {
    (void)state;
    setenv("WEIR_PEERS_MAX", "4", 1);
    wait_shortly();
    transfer_engine_t engine = open_engine();
    uint8_t *bytes = map_bytes(COUNT * SMALL);
    assert_int_equal(registerLocalMemory(engine, bytes, COUNT * SMALL, "*", 1), 0);
    for (unsigned i = 0; i < 5; i++) {
        struct child child;
        segment_id_t id = -1;
        child_begin(&child);
        UNTIL((id = openSegment(engine, child.name)) > 0); /* on a busy machine not at once */
        transfer_request_t entry = request(OPCODE_WRITE, bytes, id, child.base, COUNT * SMALL);
        UNTIL(transfer(engine, &entry, 1) == STATUS_COMPLETED);
        child_kill(&child);
        assert_int_equal(transfer(engine, &entry, 1), STATUS_FAILED);
        assert_int_equal(transfer(engine, &entry, 1), STATUS_FAILED);
    }
    destroyTransferEngine(engine);
    unsetenv("WEIR_PEERS_MAX");
}

static void test_K7_opening_ends(void **state) {
    (void)state;
    wait_shortly();
    transfer_engine_t engine = open_engine();
    struct child child;
    assert_int_equal(openSegment(engine, "127.0.0.1:1"), MC_EINVALID); /* nobody */
    assert_int_equal(openSegment(engine, "127.0.0.1"), MC_EINVALID);
    assert_int_equal(openSegment(engine, "0.0.0.0:9"), MC_EINVALID);
    assert_int_equal(openSegment(engine, "no:port:at:all"), MC_EINVALID);
    for (int i = 0; i < 70000; i++) /* more than there is room for */
        assert_int_equal(openSegment(engine, "0.0.0.0:9"), MC_EINVALID);
    child_begin(&child);
    process_stop(child.pid); /* it accepts, and says nothing */
    assert_int_equal(openSegment(engine, child.name), MC_EINVALID);
    kill(child.pid, SIGCONT);
    segment_id_t id = -1;
    UNTIL((id = openSegment(engine, child.name)) > 0);
    child_quit(&child);
    destroyTransferEngine(engine);
}

/* A deadline of the application's, where the target died: of a task that moves nothing, so that no
 * list is needed, and tells the target, so that a session is. */
static void test_K7_a_deadline_is_a_status(void **state) {
    (void)state;
    struct child child;
    struct traffic traffic;
    setenv("MC_SLICE_TIMEOUT", "1", 1);
    child_begin(&child);
    traffic_begin(&traffic, &child, 2);
    child_kill(&child);
    transfer_request_t entry = request(OPCODE_WRITE, traffic.bytes, traffic.id, child.base, 0);
    int status = STATUS_WAITING;
    /* The first may end well, in memory that the dead has left, or find the broken session. */
    for (uint64_t end = seconds() + PATIENCE_S; status != STATUS_TIMEOUT && seconds() < end;) {
        batch_id_t batch = allocateBatchID(traffic.engine, 1);
        assert_int_equal(
            submitTransferWithNotify(traffic.engine, batch, &entry, 1, (notify_msg_t){"n", "m"}),
            0);
        status = wait_task(traffic.engine, batch, 0);
        assert_int_equal(freeBatchID(traffic.engine, batch), 0);
    }
    assert_int_equal(status, STATUS_TIMEOUT);
    destroyTransferEngine(traffic.engine);
    unsetenv("MC_SLICE_TIMEOUT");
}

/* Memory is not given back while a transfer may still use it: what is under way ends first. */
static void test_K7_unregistering_under_traffic(void **state) {
    (void)state;
    struct child child;
    struct traffic traffic;
    child_begin(&child);
    traffic_begin(&traffic, &child, 2);
    for (unsigned i = 0; i < 50; i++) {
        batch_id_t batch = allocateBatchID(traffic.engine, COUNT);
        transfer_request_t entries[COUNT];
        fill(traffic.bytes, 0, COUNT * SMALL, 60 + i);
        for (size_t k = 0; k < COUNT; k++)
            entries[k] = request(OPCODE_WRITE, traffic.bytes + k * SMALL, traffic.id,
                                 child.base + k * SMALL, SMALL);
        assert_int_equal(submitTransfer(traffic.engine, batch, entries, COUNT), 0);
        assert_int_equal(unregisterLocalMemory(traffic.engine, traffic.bytes), 0);
        memset(traffic.bytes, 0xff, COUNT * SMALL); /* ours again */
        for (size_t k = 0; k < COUNT; k++)
            assert_int_equal(wait_task(traffic.engine, batch, k), STATUS_COMPLETED);
        child_say(&child, "check 0 0 %d %u", COUNT * SMALL, 60 + i);
        assert_int_equal(freeBatchID(traffic.engine, batch), 0);
        assert_int_equal(registerLocalMemory(traffic.engine, traffic.bytes, COUNT * SMALL, "*", 1),
                         0);
    }
    child_quit(&child);
    destroyTransferEngine(traffic.engine);
}

static void test_K7_destroyed_with_all_under_way(void **state) {
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        struct child child;
        struct traffic traffic;
        child_begin(&child);
        traffic_begin(&traffic, &child, 2);
        process_stop(child.pid);
        for (int i = 0; i < 50; i++) {
            transfer_request_t entry =
                request(OPCODE_WRITE, traffic.bytes, traffic.id, i % 2 ? child.base : 64, SMALL);
            batch_id_t batch = allocateBatchID(traffic.engine, 1);
            assert_int_equal(submitTransferWithNotify(traffic.engine, batch, &entry, 1,
                                                      (notify_msg_t){"n", "m"}),
                             0);
        }
        destroyTransferEngine(traffic.engine);
        child_kill(&child);
    }
}

static int begin_patient(void **state) {
    (void)state;
    wait_long();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_K6_work_goes_on_where_a_buffer_was_registered_anew,
                               begin_patient),
        cmocka_unit_test_setup(test_K6_registering_anew_under_traffic, begin_patient),
        cmocka_unit_test_setup(test_K7_a_target_that_is_killed_ends_what_is_under_way,
                               begin_patient),
        cmocka_unit_test_setup(test_K7_a_target_that_is_stopped_holds_up_no_other, begin_patient),
        cmocka_unit_test_setup(test_K7_a_removed_segment_takes_no_room, begin_patient),
        cmocka_unit_test_setup(test_K7_lists_come_where_no_thread_can_be_made, begin_patient),
        cmocka_unit_test_setup(test_K7_notifications_that_nobody_takes_have_a_bound, begin_patient),
        cmocka_unit_test_setup(test_K7_targets_killed_one_after_the_other, begin_patient),
        cmocka_unit_test_setup(test_K7_dead_targets_take_no_room, begin_patient),
        cmocka_unit_test_setup(test_K7_opening_ends, begin_patient),
        cmocka_unit_test_setup(test_K7_a_deadline_is_a_status, begin_patient),
        cmocka_unit_test_setup(test_K7_unregistering_under_traffic, begin_patient),
        cmocka_unit_test_setup(test_K7_destroyed_with_all_under_way, begin_patient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
