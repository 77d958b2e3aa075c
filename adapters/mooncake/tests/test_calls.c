/* SPDX-License-Identifier: Apache-2.0 */
/* test_calls.c: each function of the interface by itself, its errors, and what misuse it takes. */
#include "kit.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 16 };

static void *const nowhere = (void *)(uintptr_t)0x1000;

/* createTransferEngine, destroyTransferEngine, getLocalIpAndPort */
static void test_K1_engines_open_and_have_a_name(void **state) {
    (void)state;
    char name[64], small[4];
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1:12345", "x", 7, 0);
    assert_non_null(engine);
    assert_int_equal(getLocalIpAndPort(engine, name, sizeof(name)), 0);
    assert_memory_equal(name, "127.0.0.1:", 10);
    assert_true(atoi(name + 10) > 0);
    assert_int_not_equal(atoi(name + 10), 12345); /* a free one */
    assert_int_equal(getLocalIpAndPort(engine, small, sizeof(small)), 0);
    assert_string_equal(small, "127");
    destroyTransferEngine(engine);

    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"localhost", "[::1]:1", "::1"};
        static const char *const begins[] = {"localhost:", "[::1]:", "[::1]:"};
        engine = createTransferEngine("P2PHANDSHAKE", names[i], "", 0, 1);
        if (engine == NULL && i > 0)
            continue; /* a machine without IPv6 */
        assert_non_null(engine);
        assert_memory_equal(name_of(engine), begins[i], strlen(begins[i]));
        destroyTransferEngine(engine);
    }
    destroyTransferEngine(NULL);
}

/* As behind a translation: peers are told an address that is not this machine's. */
static void test_K1_an_engine_that_peers_reach_elsewhere(void **state) {
    (void)state;
    char here[64];
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "203.0.113.7", "", 0, 1);
    transfer_engine_t other = open_engine();
    assert_non_null(engine);
    assert_memory_equal(name_of(engine), "203.0.113.7:", 12);
    assert_int_equal(openSegment(engine, name_of(engine)), LOCAL_SEGMENT);
    snprintf(here, sizeof(here), "127.0.0.1:%s", strrchr(name_of(engine), ':') + 1);
    assert_int_equal(openSegment(other, here), 1);
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

static void test_K1_engines_that_do_not_open(void **state) {
    (void)state;
    assert_null(createTransferEngine(NULL, "127.0.0.1", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", NULL, "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", ":1", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "no host of this name", "", 0, 1));
    assert_null(createTransferEngine("gopher://127.0.0.1", "x", "", 0, 1));
    assert_null(createTransferEngine("redis://", "x", "", 0, 1));
    assert_null(createTransferEngine("http://127.0.0.1:1/m", "x", "", 0, 1)); /* nobody there */
    char before[64] = "";
    if (getenv("MC_WEIR_DEVICE") != NULL)
        snprintf(before, sizeof(before), "%s", getenv("MC_WEIR_DEVICE"));
    setenv("MC_WEIR_DEVICE", "abacus", 1);
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1));
    setenv("MC_WEIR_DEVICE", before, 1);
}

/* discoverTopology, installTransport, uninstallTransport, closeSegment, warmupEfaSegment */
static void test_K1_calls_that_do_little(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine(), other = open_engine();
    assert_int_equal(discoverTopology(engine), 0);
    assert_non_null(installTransport(engine, "rdma", NULL));
    assert_non_null(installTransport(engine, "anything", (void **)&(void *){NULL}));
    assert_int_equal(uninstallTransport(engine, "rdma"), 0);
    assert_int_equal(closeSegment(engine, 0), 0);
    assert_int_equal(closeSegment(engine, 77), 0);
    assert_int_equal(warmupEfaSegment(engine, name_of(other)), 0);
    assert_int_equal(openSegment(engine, name_of(other)), 1); /* it has been opened by that */
    assert_int_equal(warmupEfaSegment(engine, ""), MC_EINVALID);
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

/* openSegment, openSegmentNoCache, removeLocalSegment, syncSegmentCache */
static void test_K1_segments(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine(), other = open_engine();
    char name[512], slashed[520];
    snprintf(name, sizeof(name), "%s", name_of(other));
    snprintf(slashed, sizeof(slashed), "//%s", name);
    segment_id_t id = openSegment(engine, name);
    assert_int_equal(id, 1);
    assert_int_equal(openSegment(engine, name), id);
    assert_int_equal(openSegment(engine, slashed), id);
    assert_int_equal(openSegmentNoCache(engine, name), id);
    assert_int_equal(openSegment(engine, name_of(engine)), LOCAL_SEGMENT);
    assert_int_equal(syncSegmentCache(engine), 0);
    assert_int_equal(openSegment(engine, ""), MC_EINVALID);
    assert_int_equal(openSegment(engine, "///"), MC_EINVALID);
    assert_int_equal(removeLocalSegment(engine, "never opened"), 0);
    assert_int_equal(removeLocalSegment(engine, ""), MC_EINVALID);
    assert_int_equal(removeLocalSegment(engine, name_of(engine)), MC_EINVALID);
    assert_int_equal(removeLocalSegment(engine, name), 0);

    uint8_t *bytes = map_bytes(BYTES);
    assert_int_equal(registerLocalMemory(engine, bytes, BYTES, NULL, 1), 0);
    batch_id_t batch = allocateBatchID(engine, 1);
    transfer_request_t entry = request(OPCODE_WRITE, bytes, id, 0, 8);
    assert_int_equal(submitTransfer(engine, batch, &entry, 1), MC_CODE_INVALID); /* not known */
    assert_int_equal(freeBatchID(engine, batch), 0);
    assert_int_equal(openSegment(engine, name), id + 1); /* anew */
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

/* More names than an engine has segments, of which none opens, and then one that does. */
static void test_K1_names_that_do_not_open_take_no_room(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine(), other = open_engine();
    char name[64];
    for (int i = 0; i < 66000; i++) { /* a wildcard is refused at once */
        snprintf(name, sizeof(name), i < 65536 ? "0.0.0.0:%d" : "[::]:%d", i % 65536);
        assert_int_equal(openSegment(engine, name), MC_EINVALID);
    }
    assert_true(openSegment(engine, name_of(other)) > 0);
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

/* registerLocalMemory and unregisterLocalMemory, and of both the batches */
static void test_K1_registering(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine();
    uint8_t *bytes = map_bytes(BYTES);
    assert_int_equal(registerLocalMemory(engine, bytes + 4096, 8192, "cpu:0", 1), 0);
    static const struct {
        size_t at, length;
    } overlaps[] = {{4096, 8192}, {0, 4097}, {0, BYTES}, {4095, 2}, {5000, 1}, {12287, 100}};
    for (size_t i = 0; i < sizeof(overlaps) / sizeof(overlaps[0]); i++)
        assert_int_equal(
            registerLocalMemory(engine, bytes + overlaps[i].at, overlaps[i].length, "*", 1),
            MC_EOVERLAP);
    assert_int_equal(registerLocalMemory(engine, bytes, 4096, NULL, 0), 0);
    assert_int_equal(registerLocalMemory(engine, bytes + 12288, 4096, NULL, 1), 0);
    assert_int_equal(registerLocalMemory(engine, NULL, 8, "*", 1), MC_EINVALID);
    assert_int_equal(registerLocalMemory(engine, bytes + 20000, 0, "*", 1), MC_EINVALID);
    assert_int_equal(registerLocalMemory(engine, bytes + 20000, SIZE_MAX, "*", 1), MC_EINVALID);
    assert_int_equal(unregisterLocalMemory(engine, bytes + 1), MC_EUNREGISTERED);
    assert_int_equal(unregisterLocalMemory(engine, NULL), MC_EINVALID);
    assert_int_equal(unregisterLocalMemory(engine, bytes), 0);
    assert_int_equal(unregisterLocalMemory(engine, bytes), MC_EUNREGISTERED);
    assert_int_equal(registerLocalMemory(engine, bytes, 4096, NULL, 1), 0);

    /* Of a batch nothing is registered when one of it cannot be. */
    buffer_entry_t list[] = {{bytes + 32768, 4096}, {bytes + 36864, 4096}, {bytes + 36865, 1}};
    assert_int_equal(registerLocalMemoryBatch(engine, list, 3, "*"), MC_EOVERLAP);
    list[2] = (buffer_entry_t){bytes, 1};
    assert_int_equal(registerLocalMemoryBatch(engine, list, 3, "*"), MC_EOVERLAP);
    list[2] = (buffer_entry_t){NULL, 1};
    assert_int_equal(registerLocalMemoryBatch(engine, list, 3, "*"), MC_EINVALID);
    assert_int_equal(registerLocalMemoryBatch(engine, NULL, 3, "*"), MC_EINVALID);
    assert_int_equal(registerLocalMemoryBatch(engine, list, 2, "*"), 0);
    assert_int_equal(registerLocalMemoryBatch(engine, NULL, 0, "*"), 0);
    void *addresses[] = {bytes + 32768, nowhere, bytes + 36864};
    assert_int_equal(unregisterLocalMemoryBatch(engine, addresses, 3), MC_EUNREGISTERED);
    assert_int_equal(unregisterLocalMemoryBatch(engine, addresses, 1), MC_EUNREGISTERED);
    assert_int_equal(registerLocalMemoryBatch(engine, list, 2, "*"), 0); /* all were tried */
    destroyTransferEngine(engine);
}

/* allocateBatchID, submitTransfer, getTransferStatus, freeBatchID */
static void test_K1_batches(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine();
    uint8_t *bytes = map_bytes(BYTES);
    transfer_status_t status;
    assert_int_equal(registerLocalMemory(engine, bytes, BYTES, NULL, 1), 0);
    batch_id_t batch = allocateBatchID(engine, 3);
    assert_true(batch != 0 && batch != INVALID_BATCH);
    transfer_request_t entries[4];
    for (int i = 0; i < 4; i++)
        entries[i] = request(OPCODE_WRITE, bytes, LOCAL_SEGMENT, (uintptr_t)bytes + 4096, 100);
    assert_int_equal(submitTransfer(engine, batch, entries, 4), MC_CODE_TOO_MANY);
    assert_int_equal(getTransferStatus(engine, batch, 0, &status), MC_CODE_INVALID); /* none yet */
    assert_int_equal(submitTransfer(engine, batch, entries, 2), 0);
    assert_int_equal(submitTransfer(engine, batch, entries, 2), MC_CODE_TOO_MANY);
    assert_int_equal(submitTransfer(engine, batch, entries, 0), 0);
    assert_int_equal(submitTransfer(engine, batch, NULL, 1), MC_CODE_INVALID);
    entries[0].opcode = 2;
    assert_int_equal(submitTransfer(engine, batch, entries, 1), MC_CODE_INVALID);
    entries[0] = request(OPCODE_WRITE, nowhere, LOCAL_SEGMENT, (uintptr_t)bytes, 8);
    assert_int_equal(submitTransfer(engine, batch, entries, 1), MC_CODE_UNREGISTERED);
    entries[0] = request(OPCODE_WRITE, bytes, 5, (uintptr_t)bytes, 8);
    assert_int_equal(submitTransfer(engine, batch, entries, 1), MC_CODE_INVALID);
    entries[0] = request(OPCODE_WRITE, bytes, -1, (uintptr_t)bytes, 8);
    assert_int_equal(submitTransfer(engine, batch, entries, 1), MC_CODE_INVALID);
    entries[0] = request(OPCODE_WRITE, bytes, LOCAL_SEGMENT, UINT64_MAX - 3, 8); /* wraps */
    assert_int_equal(submitTransfer(engine, batch, entries, 1), MC_CODE_INVALID);
    entries[0] = request(OPCODE_READ, bytes, LOCAL_SEGMENT, 1, 0); /* moves nothing */
    assert_int_equal(submitTransfer(engine, batch, entries, 1), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(wait_task(engine, batch, i), STATUS_COMPLETED);
    assert_int_equal(getTransferStatus(engine, batch, 1, &status), 0);
    assert_int_equal(status.transferred_bytes, 100);
    assert_int_equal(getTransferStatus(engine, batch, 3, &status), MC_CODE_INVALID);
    assert_int_equal(freeBatchID(engine, batch), 0);
    assert_true(allocateBatchID(engine, (size_t)1 << 21) == INVALID_BATCH);
    destroyTransferEngine(engine);
}

static void test_K2_a_batch_that_was_freed_is_no_batch(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine();
    uint8_t *bytes = map_bytes(BYTES);
    transfer_status_t status;
    transfer_request_t entry = request(OPCODE_WRITE, bytes, 0, (uintptr_t)bytes + 4096, 8);
    assert_int_equal(registerLocalMemory(engine, bytes, BYTES, NULL, 1), 0);
    batch_id_t old = allocateBatchID(engine, 1);
    assert_int_equal(freeBatchID(engine, old), 0);
    batch_id_t batch = allocateBatchID(engine, 1); /* in the same place */
    assert_true(batch != old);
    batch_id_t wrong[] = {old, 0, INVALID_BATCH, batch + 1, batch ^ UINT64_C(1) << 40, 12345};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(submitTransfer(engine, wrong[i], &entry, 1), MC_CODE_INVALID);
        assert_int_equal(submitTransfer(engine, wrong[i], NULL, 0), MC_CODE_INVALID);
        assert_int_equal(getTransferStatus(engine, wrong[i], 0, &status), MC_CODE_INVALID);
        assert_int_equal(freeBatchID(engine, wrong[i]), MC_CODE_INVALID);
    }
    assert_int_equal(submitTransfer(engine, batch, &entry, 1), 0);
    assert_int_equal(wait_task(engine, batch, 0), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(engine, batch), 0);
    destroyTransferEngine(engine);
}

/* Of a batch of as many runs as there are: what it took is given back when it is freed. */
static void test_K2_a_large_batch_that_was_freed_keeps_no_memory(void **state) {
    (void)state;
    enum { TASKS = 1 << 19 };
    transfer_engine_t engine = open_engine();
    uint8_t *bytes = map_bytes(BYTES);
    transfer_request_t *entries = calloc(TASKS, sizeof(*entries));
    assert_int_equal(registerLocalMemory(engine, bytes, BYTES, NULL, 1), 0);
    for (int i = 0; i < TASKS; i++)
        entries[i] =
            request(i % 2 ? OPCODE_READ : OPCODE_WRITE, bytes, LOCAL_SEGMENT, (uintptr_t)bytes, 0);
    struct mallinfo2 before = mallinfo2();
    assert_int_equal(transfer(engine, entries, TASKS), STATUS_COMPLETED);
    struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (4 << 20));
    free(entries);
    destroyTransferEngine(engine);
}

/* In a child of fork(2): calls with its parent's engine are errors, and it can be destroyed. What
 * was not so, or 0. */
static int use_engine_of_parent(transfer_engine_t engine, uint8_t *bytes, batch_id_t batch,
                                const char *name) {
    transfer_request_t entry = request(OPCODE_WRITE, bytes, LOCAL_SEGMENT, (uintptr_t)bytes, 8);
    transfer_status_t status;
    char text[64];
    int size = 1;
    size_t count = 1;
    nic_load_stat_t load;
    notify_msg_t note = {"n", "m"};
    enableGracefulShutdown(engine);
    int wrong[] = {
        discoverTopology(engine) != MC_EINVALID,
        getLocalIpAndPort(engine, text, sizeof(text)) != MC_EINVALID,
        installTransport(engine, "tcp", NULL) != NULL,
        openSegment(engine, name) != MC_EINVALID,
        openSegmentNoCache(engine, name) != MC_EINVALID,
        removeLocalSegment(engine, name) != MC_EINVALID,
        syncSegmentCache(engine) != MC_EINVALID,
        warmupEfaSegment(engine, name) != MC_EINVALID,
        registerLocalMemory(engine, bytes + 4096, 4096, NULL, 1) != MC_EINVALID,
        unregisterLocalMemory(engine, bytes) != MC_EINVALID,
        allocateBatchID(engine, 1) != INVALID_BATCH,
        submitTransfer(engine, batch, &entry, 1) != MC_CODE_INVALID,
        submitTransferWithNotify(engine, batch, &entry, 1, note) != MC_CODE_INVALID,
        getTransferStatus(engine, batch, 0, &status) != MC_CODE_INVALID,
        freeBatchID(engine, batch) != MC_CODE_INVALID,
        getNotifsFromEngine(engine, &size) != NULL || size != 0,
        genNotifyInEngine(engine, LOCAL_SEGMENT, note) != MC_EINVALID,
        getNicLoadStats(engine, &load, &count) != MC_EINVALID,
        showLinks(engine, text, sizeof(text), 0) != MC_EINVALID,
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (wrong[i])
            return (int)i + 1;
    }
    destroyTransferEngine(engine);
    engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1); /* one of its own */
    if (engine == NULL || openSegment(engine, name) <= 0)
        return 100;
    destroyTransferEngine(engine);
    return 0;
}

static void test_K2_a_child_has_no_engine_of_its_parents(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine(), other = open_engine();
    uint8_t *bytes = map_bytes(BYTES);
    int status;
    assert_int_equal(registerLocalMemory(engine, bytes, 4096, NULL, 1), 0);
    assert_true(openSegment(engine, name_of(other)) > 0);
    batch_id_t batch = allocateBatchID(engine, 2);
    const char *name = name_of(other);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(PATIENCE_S);
        _exit(use_engine_of_parent(engine, bytes, batch, name));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    transfer_request_t entry =
        request(OPCODE_WRITE, bytes, LOCAL_SEGMENT, (uintptr_t)bytes + 2048, 8);
    assert_int_equal(submitTransfer(engine, batch, &entry, 1), 0); /* as before */
    assert_int_equal(wait_task(engine, batch, 0), STATUS_COMPLETED);
    assert_int_equal(genNotifyInEngine(engine, 1, (notify_msg_t){"a", "b"}), 0);
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

static void test_K2_null_pointers_are_errors(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine();
    batch_id_t batch = allocateBatchID(engine, 1);
    transfer_request_t entry = {0};
    transfer_status_t status;
    notify_msg_t none = {NULL, NULL}, half = {"a", NULL};
    char text[8];
    int size = 7;
    size_t count = 1;
    nic_load_stat_t load;
    assert_int_equal(getLocalIpAndPort(NULL, text, 8), MC_EINVALID);
    assert_int_equal(getLocalIpAndPort(engine, NULL, 8), MC_EINVALID);
    assert_int_equal(getLocalIpAndPort(engine, text, 0), MC_EINVALID);
    assert_int_equal(discoverTopology(NULL), MC_EINVALID);
    assert_null(installTransport(NULL, "tcp", NULL));
    assert_null(installTransport(engine, NULL, NULL));
    assert_int_equal(uninstallTransport(NULL, "tcp"), MC_EINVALID);
    assert_int_equal(uninstallTransport(engine, NULL), MC_EINVALID);
    assert_int_equal(openSegment(NULL, "x"), MC_EINVALID);
    assert_int_equal(openSegment(engine, NULL), MC_EINVALID);
    assert_int_equal(openSegmentNoCache(NULL, "x"), MC_EINVALID);
    assert_int_equal(openSegmentNoCache(engine, NULL), MC_EINVALID);
    assert_int_equal(closeSegment(NULL, 1), MC_EINVALID);
    assert_int_equal(warmupEfaSegment(NULL, "x"), MC_EINVALID);
    assert_int_equal(warmupEfaSegment(engine, NULL), MC_EINVALID);
    assert_int_equal(removeLocalSegment(NULL, "x"), MC_EINVALID);
    assert_int_equal(removeLocalSegment(engine, NULL), MC_EINVALID);
    assert_int_equal(syncSegmentCache(NULL), MC_EINVALID);
    assert_int_equal(registerLocalMemory(NULL, text, 8, "*", 1), MC_EINVALID);
    assert_int_equal(unregisterLocalMemory(NULL, text), MC_EINVALID);
    assert_int_equal(registerLocalMemoryBatch(NULL, NULL, 0, "*"), MC_EINVALID);
    assert_int_equal(unregisterLocalMemoryBatch(NULL, NULL, 0), MC_EINVALID);
    assert_int_equal(unregisterLocalMemoryBatch(engine, NULL, 1), MC_EINVALID);
    assert_true(allocateBatchID(NULL, 1) == INVALID_BATCH);
    assert_int_equal(submitTransfer(NULL, batch, &entry, 1), MC_CODE_INVALID);
    assert_int_equal(submitTransferWithNotify(NULL, batch, &entry, 1, half), MC_CODE_INVALID);
    assert_int_equal(submitTransferWithNotify(engine, batch, &entry, 1, none), MC_CODE_INVALID);
    assert_int_equal(submitTransferWithNotify(engine, batch, &entry, 1, half), MC_CODE_INVALID);
    assert_int_equal(submitTransferWithNotify(engine, batch, NULL, 0, half), MC_CODE_INVALID);
    assert_int_equal(getTransferStatus(NULL, batch, 0, &status), MC_CODE_INVALID);
    assert_int_equal(getTransferStatus(engine, batch, 0, NULL), MC_CODE_INVALID);
    assert_int_equal(freeBatchID(NULL, batch), MC_CODE_INVALID);
    assert_null(getNotifsFromEngine(NULL, &size));
    assert_int_equal(size, 0);
    assert_null(getNotifsFromEngine(engine, NULL));
    assert_int_equal(freeNotifsMsgBuf(NULL, 3), 0);
    assert_int_equal(genNotifyInEngine(NULL, 0, half), MC_EINVALID);
    assert_int_equal(genNotifyInEngine(engine, 0, half), MC_EINVALID);
    assert_int_equal(getNicLoadStats(NULL, &load, &count), MC_EINVALID);
    assert_int_equal(getNicLoadStats(engine, NULL, &count), MC_EINVALID);
    assert_int_equal(getNicLoadStats(engine, &load, NULL), MC_EINVALID);
    assert_int_equal(showLinks(NULL, text, 8, 0), MC_EINVALID);
    assert_int_equal(showLinks(engine, NULL, 8, 0), MC_EINVALID);
    assert_int_equal(showLinks(engine, text, 0, 0), MC_EINVALID);
    enableGracefulShutdown(NULL);
    assert_int_equal(freeBatchID(engine, batch), 0);
    destroyTransferEngine(engine);
}

/* genNotifyInEngine, getNotifsFromEngine, freeNotifsMsgBuf: to another engine, and to oneself */
static void test_K1_notifications_by_themselves(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine(), other = open_engine();
    segment_id_t id = openSegment(engine, name_of(other));
    char *longest = malloc(NOTIFY_BYTES_MAX + 2);
    int size, count = 0;
    memset(longest, 'x', NOTIFY_BYTES_MAX + 1);
    longest[NOTIFY_BYTES_MAX + 1] = '\0';
    assert_int_equal(genNotifyInEngine(engine, (uint64_t)id, (notify_msg_t){"n", longest}),
                     MC_EINVALID);
    longest[NOTIFY_BYTES_MAX - 1] = '\0';
    assert_int_equal(genNotifyInEngine(engine, (uint64_t)id, (notify_msg_t){"n", longest}), 0);
    for (int i = 0; i < 2; i++) {
        transfer_engine_t to = i == 0 ? other : engine;
        uint64_t target = i == 0 ? (uint64_t)id : LOCAL_SEGMENT;
        assert_int_equal(genNotifyInEngine(engine, target, (notify_msg_t){"first", ""}), 0);
        assert_int_equal(genNotifyInEngine(engine, target, (notify_msg_t){"", "second"}), 0);
        notify_msg_t *notes = NULL, all[4];
        for (count = 0; count < (i == 0 ? 3 : 2);) {
            UNTIL((notes = getNotifsFromEngine(to, &size)) != NULL);
            for (int k = 0; k < size; k++, count++) {
                assert_true(count < 4);
                all[count] = (notify_msg_t){strdup(notes[k].name), strdup(notes[k].msg)};
            }
            assert_int_equal(freeNotifsMsgBuf(notes, size), 0);
        }
        bool first_seen = false;
        for (int k = 0; k < count; k++) {
            if (strcmp(all[k].name, "n") == 0) {
                assert_string_equal(all[k].msg, longest);
            } else if (strcmp(all[k].name, "first") == 0) {
                first_seen = true;
            } else {
                assert_string_equal(all[k].msg, "second");
                assert_true(first_seen); /* in their order: a call returns when its own is there */
            }
            free(all[k].name);
            free(all[k].msg);
        }
        assert_null(getNotifsFromEngine(to, &size));
        assert_int_equal(size, 0);
    }
    assert_int_equal(genNotifyInEngine(engine, 9, (notify_msg_t){"a", "b"}), MC_EINVALID);
    assert_int_equal(genNotifyInEngine(engine, UINT64_MAX, (notify_msg_t){"a", "b"}), MC_EINVALID);
    free(longest);
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

/* getNicLoadStats, showLinks, enableGracefulShutdown */
static void test_K1_reports(void **state) {
    (void)state;
    transfer_engine_t engine = open_engine(), other = open_engine();
    nic_load_stat_t load[2] = {{.device_name = "?"}};
    size_t count = 0;
    char text[4096], small[5];
    assert_int_equal(getNicLoadStats(engine, NULL, &count), 0);
    assert_int_equal(count, 1);
    count = 2;
    assert_int_equal(getNicLoadStats(engine, load, &count), 0);
    assert_int_equal(count, 1);
    assert_true(strlen(load[0].device_name) > 1);
    assert_int_equal(load[0].inflight_bytes, 0);
    assert_true(openSegment(engine, name_of(other)) > 0);
    assert_int_equal(showLinks(engine, text, sizeof(text), 0), 0);
    assert_non_null(strstr(text, name_of(other)));
    assert_int_equal(showLinks(engine, text, sizeof(text), 1), 0);
    assert_non_null(strstr(text, name_of(other)));
    assert_int_equal(text[0], '{');
    assert_int_equal(showLinks(engine, small, sizeof(small), 1), 0);
    assert_int_equal(strlen(small), 4);
    bool before[256], opened = false;
    for (int fd = 0; fd < 256; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    enableGracefulShutdown(engine);
    enableGracefulShutdown(engine);
    for (int fd = 0; fd < 256; fd++) { /* no program that a child becomes has what that opened */
        opened |= !before[fd] && fcntl(fd, F_GETFD) >= 0;
        assert_true(before[fd] || fcntl(fd, F_GETFD) < 0 || fcntl(fd, F_GETFD) == FD_CLOEXEC);
    }
    assert_true(opened);
    destroyTransferEngine(other);
    destroyTransferEngine(engine);
}

/* A line about a call that failed has no control byte and no password in it. */
static void test_K1_what_is_said_does_no_harm(void **state) {
    (void)state;
    char said[4096] = "", *quiet = getenv("MC_WEIR_QUIET");
    int before = dup(STDERR_FILENO), file = memfd_create("said", MFD_CLOEXEC);
    quiet = quiet != NULL ? strdup(quiet) : NULL;
    assert_true(before >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    unsetenv("MC_WEIR_QUIET");
    transfer_engine_t engine =
        createTransferEngine("ftp://me:secret@host/\x1b[31m", "127.0.0.1", "", 0, 1);
    dup2(before, STDERR_FILENO);
    close(before);
    if (quiet != NULL)
        setenv("MC_WEIR_QUIET", quiet, 1);
    free(quiet);
    assert_null(engine);
    assert_true(pread(file, said, sizeof(said) - 1, 0) > 0);
    close(file);
    assert_non_null(strstr(said, "ftp://*********@host/?[31m"));
    assert_null(strstr(said, "secret"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K1_engines_open_and_have_a_name),
        cmocka_unit_test(test_K1_an_engine_that_peers_reach_elsewhere),
        cmocka_unit_test(test_K1_engines_that_do_not_open),
        cmocka_unit_test(test_K1_calls_that_do_little),
        cmocka_unit_test(test_K1_segments),
        cmocka_unit_test(test_K1_names_that_do_not_open_take_no_room),
        cmocka_unit_test(test_K1_registering),
        cmocka_unit_test(test_K1_batches),
        cmocka_unit_test(test_K2_a_batch_that_was_freed_is_no_batch),
        cmocka_unit_test(test_K2_a_large_batch_that_was_freed_keeps_no_memory),
        cmocka_unit_test(test_K2_a_child_has_no_engine_of_its_parents),
        cmocka_unit_test(test_K2_null_pointers_are_errors),
        cmocka_unit_test(test_K1_notifications_by_themselves),
        cmocka_unit_test(test_K1_reports),
        cmocka_unit_test(test_K1_what_is_said_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
