/* SPDX-License-Identifier: Apache-2.0 */
/* target.c: a process that is a target of the adapter, and does what lines say: each is answered by
 * "ok ...", or by what went wrong.
 *
 *     open METADATA NAME       map COUNT LENGTH SEED     anew INDEX SEED     forget INDEX
 *     check INDEX PLACE LENGTH SEED    (the bytes are those of the seed at PLACE)
 *     notes                    count (of the notes that came)
 *     write NAME ADDRESS LENGTH SEED
 *     graceful                 quit
 *
 * The buffers lie side by side, so that one transfer may go over several. */
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static transfer_engine_t engine;
static uint8_t *bytes;
static unsigned long long count, length;

static void say(const char *text) {
    printf("%s\n", text);
    fflush(stdout);
}

static void do_open(const char *metadata, const char *name) {
    char own[512];
    engine = createTransferEngine(metadata, name, "", 0, 1);
    if (engine == NULL || getLocalIpAndPort(engine, own, sizeof(own)) != 0) {
        say("not opened");
        return;
    }
    printf("ok %s\n", own);
    fflush(stdout);
}

static void do_map(unsigned long long seed) {
    buffer_entry_t *list = calloc(count, sizeof(*list));
    bytes = map_bytes(count * length);
    fill(bytes, 0, count * length, seed);
    for (size_t i = 0; i < count; i++)
        list[i] = (buffer_entry_t){bytes + i * length, length};
    int rc = registerLocalMemoryBatch(engine, list, count, "cpu:0");
    free(list);
    printf(rc == 0 ? "ok %llx\n" : "not registered %lld\n",
           rc == 0 ? (long long)(uintptr_t)bytes : rc);
    fflush(stdout);
}

static void do_anew(unsigned long long index, unsigned long long seed) {
    uint8_t *at = bytes + index * length;
    int rc = unregisterLocalMemory(engine, at);
    if (rc == 0) {
        fill(at, index * length, length, seed);
        rc = registerLocalMemory(engine, at, length, "cpu:0", 1);
    }
    say(rc == 0 ? "ok" : "not registered anew");
}

static void do_check(unsigned long long index, unsigned long long place,
                     unsigned long long bytes_count, unsigned long long seed) {
    int64_t at = differs(bytes + index * length, place, bytes_count, seed);
    printf(at < 0 ? "ok\n" : "byte %lld differs\n", (long long)at);
    fflush(stdout);
}

static void do_notes(void) {
    int number;
    notify_msg_t *notes = getNotifsFromEngine(engine, &number);
    printf("ok %d", number);
    for (int i = 0; i < number; i++)
        printf(" %.40s=%zu:%.40s", notes[i].name, strlen(notes[i].msg), notes[i].msg);
    printf("\n");
    fflush(stdout);
    freeNotifsMsgBuf(notes, number);
}

static void do_count(void) {
    int number;
    notify_msg_t *notes = getNotifsFromEngine(engine, &number);
    printf("ok %d\n", number);
    fflush(stdout);
    freeNotifsMsgBuf(notes, number);
}

static void do_write(const char *name, unsigned long long address, unsigned long long bytes_count,
                     unsigned long long seed) {
    fill(bytes, 0, bytes_count, seed);
    transfer_request_t entry =
        request(OPCODE_WRITE, bytes, openSegment(engine, name), address, bytes_count);
    int status = entry.target_id < 0 ? STATUS_FAILED : transfer(engine, &entry, 1);
    printf(status == STATUS_COMPLETED ? "ok\n" : "status %d\n", status);
    fflush(stdout);
}

static bool serve(const char *line) {
    char a[512], b[512];
    unsigned long long x, y, z, w;
    if (sscanf(line, "open %511s %511s", a, b) == 2) {
        do_open(a, b);
    } else if (sscanf(line, "map %llu %llu %llu", &count, &length, &x) == 3) {
        do_map(x);
    } else if (sscanf(line, "anew %llu %llu", &x, &y) == 2) {
        do_anew(x, y);
    } else if (sscanf(line, "forget %llu", &x) == 1) {
        say(unregisterLocalMemory(engine, bytes + x * length) == 0 ? "ok" : "not unregistered");
    } else if (sscanf(line, "check %llu %llu %llu %llu", &x, &y, &z, &w) == 4) {
        do_check(x, y, z, w);
    } else if (strncmp(line, "notes", 5) == 0) {
        do_notes();
    } else if (strncmp(line, "count", 5) == 0) {
        do_count();
    } else if (sscanf(line, "write %511s %llx %llu %llu", a, &x, &y, &z) == 4) {
        do_write(a, x, y, z);
    } else if (strncmp(line, "graceful", 8) == 0) {
        enableGracefulShutdown(engine);
        say("ok");
    } else if (strncmp(line, "quit", 4) == 0) {
        destroyTransferEngine(engine);
        say("ok");
        return false;
    } else {
        say("what?");
    }
    return true;
}

int main(void) {
    char line[2048];
    while (fgets(line, sizeof(line), stdin) != NULL && serve(line))
        continue;
    return 0;
}
