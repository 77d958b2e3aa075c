/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c: what the adapter costs: batches of writes by Mooncake's calls against transfers of the
 * same segments by weir's own, between the same two processes, from the same memory and to the
 * same, so that neither's pages lie better in the caches.
 *
 *     batches [--rounds 15] [--slice-ms 40] [--bytes 65536] [--tasks 128]
 *
 * The two take turns, a slice each; a ratio is of two slices that follow each other, and the line
 * at the end has the median of these. The engine of weir's own has a thread, as the adapter has.
 * The device is that of MC_WEIR_DEVICE, or shm. The bytes are compared after a batch of each, and
 * at the end. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transfer_engine_c.h"
#include "weir.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "batches: %s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { TASKS_MAX = 4096, ROUNDS_MAX = 1000 };
static uint64_t rounds = 15, slice_ms = 40, task_bytes = 65536, tasks = 128;

/* The target's words: where both engines are, and its memory, which both have registered. */
struct words {
    char mooncake[256], weir[256];
    uint64_t base;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t descriptor_length;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint8_t *map_bytes(uint64_t length) {
    uint8_t *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(bytes != MAP_FAILED);
    return bytes;
}

static weir_engine *open_weir(void) {
    weir_engine *engine;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.flags = WEIR_ENGINE_THREAD;
    options.device = getenv("MC_WEIR_DEVICE");
    CHECK(weir_engine_open(&options, &engine) == WEIR_OK);
    return engine;
}

/* ---- the target --------------------------------------------------------------------- */

/* A letter asks whether the bytes are there, and is sent back; they are not there any more. */
static bool compare(uint8_t *bytes, int to, int from) {
    char letter;
    if (read(from, &letter, 1) != 1)
        return false;
    for (uint64_t i = 0; i < task_bytes * tasks; i++)
        CHECK(bytes[i] == (uint8_t)(i * 13 + i / 251));
    memset(bytes, 0, task_bytes * tasks);
    CHECK(write(to, &letter, 1) == 1);
    return true;
}

static void target(int to, int from) {
    struct words words = {.descriptor_length = sizeof(words.descriptor)};
    uint64_t length = task_bytes * tasks;
    uint8_t *bytes = map_bytes(length);
    transfer_engine_t mooncake = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    weir_engine *engine = open_weir();
    weir_memory memory;
    CHECK(mooncake != NULL);
    CHECK(registerLocalMemory(mooncake, bytes, length, "*", 1) == 0);
    CHECK(weir_memory_register(engine, bytes, length, WEIR_ACCESS_ALL, &memory) == WEIR_OK);
    CHECK(getLocalIpAndPort(mooncake, words.mooncake, sizeof(words.mooncake)) == 0);
    CHECK(weir_engine_address(engine, words.weir, sizeof(words.weir)) == WEIR_OK);
    CHECK(weir_memory_export(engine, memory, words.descriptor, &words.descriptor_length) ==
          WEIR_OK);
    words.base = (uint64_t)(uintptr_t)bytes;
    CHECK(write(to, &words, sizeof(words)) == sizeof(words));
    while (compare(bytes, to, from))
        ;
    destroyTransferEngine(mooncake);
    weir_engine_close(engine);
}

/* ---- the two that are compared ---------------------------------------------------------- */

struct mooncake_side {
    transfer_engine_t engine;
    transfer_request_t entries[TASKS_MAX];
};

static void mooncake_batch(struct mooncake_side *side) {
    transfer_status_t status;
    batch_id_t batch = allocateBatchID(side->engine, tasks);
    CHECK(submitTransfer(side->engine, batch, side->entries, tasks) == 0);
    for (uint64_t i = 0; i < tasks; i++) {
        do
            CHECK(getTransferStatus(side->engine, batch, i, &status) == 0);
        while (status.status == STATUS_WAITING);
        CHECK(status.status == STATUS_COMPLETED);
    }
    CHECK(freeBatchID(side->engine, batch) == 0);
}

struct weir_side {
    weir_engine *engine;
    weir_peer peer;
    weir_segment segments[TASKS_MAX];
};

static void weir_batch(struct weir_side *side) {
    weir_transfer transfer;
    CHECK(weir_write(side->engine, side->peer, side->segments, tasks, NULL, &transfer) == WEIR_OK);
    int rc;
    while ((rc = weir_transfer_status(side->engine, transfer)) == WEIR_EINPROGRESS)
        weir_engine_progress(side->engine);
    CHECK(rc == WEIR_OK);
    weir_transfer_release(side->engine, transfer);
}

static struct mooncake_side mooncake;
static struct weir_side own;

static void begin(const struct words *words, uint8_t *bytes) {
    uint64_t length = task_bytes * tasks;
    weir_memory memory;
    weir_remote remote;
    mooncake.engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    CHECK(mooncake.engine != NULL);
    CHECK(registerLocalMemory(mooncake.engine, bytes, length, "*", 1) == 0);
    segment_id_t id = openSegment(mooncake.engine, words->mooncake);
    CHECK(id > 0);
    own.engine = open_weir();
    CHECK(weir_memory_register(own.engine, bytes, length, 0, &memory) == WEIR_OK);
    CHECK(weir_peer_open(own.engine, words->weir, &own.peer) == WEIR_OK);
    CHECK(weir_memory_import(own.engine, own.peer, words->descriptor, words->descriptor_length,
                             &remote) == WEIR_OK);
    for (uint64_t i = 0; i < tasks; i++) {
        uint64_t at = (i * 7 + 3) % tasks * task_bytes; /* not one after the other */
        mooncake.entries[i] =
            (transfer_request_t){OPCODE_WRITE, bytes + at, id, words->base + at, task_bytes};
        own.segments[i] = (weir_segment){memory, remote, at, at, task_bytes};
    }
}

/* Batches a second. */
static double slice(bool is_mooncake) {
    uint64_t begun = now_ns(), end = begun + slice_ms * 1000000, now, batches = 0;
    do {
        if (is_mooncake)
            mooncake_batch(&mooncake);
        else
            weir_batch(&own);
        batches++;
    } while ((now = now_ns()) < end);
    return (double)batches * 1e9 / (double)(now - begun);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint64_t count) {
    qsort(values, count, sizeof(*values), by_size);
    return values[count / 2];
}

/* The target compares the bytes that it has. */
static void ask(int to, int from) {
    char letter = '?';
    CHECK(write(to, &letter, 1) == 1);
    CHECK(read(from, &letter, 1) == 1);
}

static void measure(int to, int from) {
    static double rates[2][ROUNDS_MAX], ratios[ROUNDS_MAX];
    double megabytes = (double)(task_bytes * tasks) / 1e6;
    for (int is_mooncake = 0; is_mooncake < 2; is_mooncake++) {
        slice(is_mooncake);
        ask(to, from);
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int turn = 0; turn < 2; turn++) {
            bool first = (i % 2 == 0) == (turn == 0);
            rates[first ? 0 : 1][i] = slice(first);
        }
        ratios[i] = rates[0][i] / rates[1][i];
    }
    double mooncake_rate = median(rates[0], rounds), weir_rate = median(rates[1], rounds);
    double ratio = median(ratios, rounds);
    printf("%" PRIu64 " tasks of %" PRIu64 " bytes: mooncake %.0f MB/s, weir %.0f MB/s, ratio %.3f "
           "(%.3f to %.3f in %" PRIu64 " rounds)\n",
           tasks, task_bytes, mooncake_rate * megabytes, weir_rate * megabytes, ratio, ratios[0],
           ratios[rounds - 1], rounds);
}

static void take_options(int count, char **words) {
    static const struct {
        const char *name;
        uint64_t *value, most;
    } options[] = {{"--rounds", &rounds, ROUNDS_MAX},
                   {"--slice-ms", &slice_ms, 60000},
                   {"--bytes", &task_bytes, 1 << 30},
                   {"--tasks", &tasks, TASKS_MAX}};
    for (int i = 1; i + 1 < count; i += 2) {
        bool known = false;
        for (size_t k = 0; k < sizeof(options) / sizeof(options[0]); k++) {
            if (strcmp(words[i], options[k].name) == 0) {
                *options[k].value = strtoull(words[i + 1], NULL, 10);
                CHECK(*options[k].value > 0 && *options[k].value <= options[k].most);
                known = true;
            }
        }
        CHECK(known);
    }
}

int main(int count, char **arguments) {
    int there[2], back[2], status;
    struct words words;
    take_options(count, arguments);
    setenv("MC_WEIR_DEVICE", "shm", 0);
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(there[1]); /* so that its end tells */
        target(back[1], there[0]);
        return 0;
    }
    CHECK(read(back[0], &words, sizeof(words)) == sizeof(words));
    uint8_t *bytes = map_bytes(task_bytes * tasks);
    for (uint64_t i = 0; i < task_bytes * tasks; i++)
        bytes[i] = (uint8_t)(i * 13 + i / 251);
    begin(&words, bytes);
    measure(there[1], back[0]);
    ask(there[1], back[0]);
    close(there[1]);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    destroyTransferEngine(mooncake.engine);
    weir_engine_close(own.engine);
    return 0;
}
