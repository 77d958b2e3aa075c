/* SPDX-License-Identifier: Apache-2.0 */
/* python_loops.c: the loops that python.py measures in Python, in C, on shm.
 *
 * As a library, which python.py loads: loops_open makes two engines of this process, and loops_time
 * runs a loop of that name over them, and tells the nanoseconds of one. As a program it is one of
 * two processes:
 *
 *   python_loops ping COUNT ADDRESS    prints the nanoseconds of a round trip
 *   python_loops pong                  prints its address, and answers until it is told to end
 *
 * PYTHON_LOOPS_SLEEP=1 of the environment: both sleep at once, in poll(2) on the engine's
 * descriptor, as an event loop does, where weir_engine_wait spins for a moment.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir.h"

enum { PAGE = 65536, PAGES = 1024, PIECE = 4096, PIECES = 10000, END = 0 };

static void must(int rc, const char *what) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "python_loops: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

struct pair {
    weir_engine *from, *to;
    weir_peer peer;
    weir_memory memory;
    weir_remote remote;
};

static void open_pair(struct pair *pair) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory target;
    void *base;
    weir_transfer transfer;
    must(weir_engine_open(&options, &pair->from), "open");
    options.flags = WEIR_ENGINE_THREAD;
    must(weir_engine_open(&options, &pair->to), "open");
    must(weir_engine_address(pair->to, address, sizeof(address)), "address");
    must(weir_peer_open(pair->from, address, &pair->peer), "peer");
    must(weir_memory_allocate(pair->from, (uint64_t)PAGE * PAGES, 0, &pair->memory, &base),
         "allocate");
    memset(base, 1, (size_t)PAGE * PAGES);
    must(weir_memory_allocate(pair->to, (uint64_t)PAGE * PAGES, WEIR_ACCESS_ALL, &target, &base),
         "allocate");
    must(weir_memory_export(pair->to, target, descriptor, &length), "export");
    must(weir_memory_import(pair->from, pair->peer, descriptor, length, &pair->remote), "import");
    weir_segment segment = {.local = pair->memory, .remote = pair->remote, .length = 8};
    must(weir_write(pair->from, pair->peer, &segment, 1, NULL, &transfer), "first write");
    must(weir_transfer_wait(pair->from, transfer, UINT64_MAX), "first write");
}

static void write_once(struct pair *pair, const weir_segment *segments, size_t count) {
    weir_transfer transfer;
    must(weir_write(pair->from, pair->peer, segments, count, NULL, &transfer), "write");
    if (transfer.id != 0) {
        must(weir_transfer_wait(pair->from, transfer, UINT64_MAX), "write");
        weir_transfer_release(pair->from, transfer);
    }
}

/* 64 KiB each, to one place after another of 64 MiB; the places in the order of both languages. */
static void pages(struct pair *pair, long count) {
    for (long i = 0; i < count; i++) {
        uint64_t offset = (uint64_t)(i * 7 % PAGES) * PAGE;
        weir_segment segment = {.local = pair->memory,
                                .remote = pair->remote,
                                .local_offset = offset,
                                .remote_offset = offset,
                                .length = PAGE};
        write_once(pair, &segment, 1);
    }
}

static void segments(struct pair *pair, long count) {
    static weir_segment list[PIECES];
    for (long i = 0; i < PIECES; i++)
        list[i] = (weir_segment){.local = pair->memory,
                                 .remote = pair->remote,
                                 .local_offset = (uint64_t)i * PIECE,
                                 .remote_offset = (uint64_t)(i * 7 % PIECES) * PIECE,
                                 .length = PIECE};
    for (long i = 0; i < count; i++)
        write_once(pair, list, PIECES);
}

static void submit8(struct pair *pair, long count) {
    weir_segment segment = {.local = pair->memory, .remote = pair->remote, .length = 8};
    for (long i = 0; i < count; i++)
        write_once(pair, &segment, 1);
}

/* Of one that stays under way: nobody answers there. */
static void status(struct pair *pair, long count) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    static weir_transfer transfer;
    weir_peer nobody;
    options.flags = WEIR_TRANSFER_NOTIFY;
    if (transfer.id == 0) {
        must(weir_peer_open(pair->from, "127.0.0.1:1", &nobody), "peer");
        must(weir_write(pair->from, nobody, NULL, 0, &options, &transfer), "write");
    }
    for (long i = 0; i < count; i++)
        if (weir_transfer_status(pair->from, transfer) != WEIR_EINPROGRESS)
            must(WEIR_EINVAL, "status");
}

/* ---- two processes -------------------------------------------------------- */

static void tell(weir_engine *engine, weir_peer peer, uint64_t tag) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag;
    must(weir_write(engine, peer, NULL, 0, &options, &transfer), "notify");
    if (transfer.id != 0)
        weir_transfer_release(engine, transfer);
}

static void sleep_at_once(weir_engine *engine) {
    struct pollfd descriptor = {.fd = weir_engine_fd(engine), .events = POLLIN};
    uint64_t timeout_ns = UINT64_MAX;
    if (weir_engine_arm(engine, &timeout_ns) == WEIR_OK)
        poll(&descriptor, 1, timeout_ns / 1000000 < 1000 ? (int)(timeout_ns / 1000000) + 1 : 1000);
    weir_engine_progress(engine);
}

static void hear(weir_engine *engine, weir_notification *notification) {
    bool sleeps = getenv("PYTHON_LOOPS_SLEEP") != NULL;
    while (weir_notification_take(engine, notification) != WEIR_OK) {
        if (sleeps)
            sleep_at_once(engine);
        else
            weir_engine_wait(engine, UINT64_MAX);
    }
}

static int pong(void) {
    weir_engine *engine;
    weir_notification notification;
    char address[WEIR_ADDRESS_MAX];
    must(weir_engine_open(NULL, &engine), "open");
    must(weir_engine_address(engine, address, sizeof(address)), "address");
    printf("%s\n", address);
    fflush(stdout);
    for (;;) {
        hear(engine, &notification);
        if (notification.tag == END)
            break;
        tell(engine, notification.from, notification.tag);
    }
    weir_engine_close(engine);
    return 0;
}

static int ping(long count, const char *address) {
    weir_engine *engine;
    weir_peer peer;
    weir_notification notification;
    double begin = 0;
    must(weir_engine_open(NULL, &engine), "open");
    must(weir_peer_open(engine, address, &peer), "peer");
    for (long i = -100; i < count; i++) {
        if (i == 0)
            begin = now_ns();
        tell(engine, peer, 1);
        hear(engine, &notification);
    }
    printf("%.1f\n", (now_ns() - begin) / (double)count);
    tell(engine, peer, END);
    for (int i = 0; i < 100; i++)
        weir_engine_wait(engine, 1000000);
    weir_engine_close(engine);
    return 0;
}

/* ---- the library ------------------------------------------------------------ */

void *loops_open(void);
double loops_time(void *pair, const char *name, long count);

void *loops_open(void) {
    struct pair *pair = malloc(sizeof(*pair));
    must(pair == NULL ? WEIR_ENOMEM : WEIR_OK, "open");
    open_pair(pair);
    return pair;
}

double loops_time(void *pair, const char *name, long count) {
    static const struct {
        const char *name;
        void (*loop)(struct pair *, long);
    } loops[] = {
        {"pages", pages}, {"segments", segments}, {"submit8", submit8}, {"status", status}};
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++)
        if (strcmp(name, loops[i].name) == 0) {
            double begin = now_ns();
            loops[i].loop(pair, count);
            return (now_ns() - begin) / (double)count;
        }
    return -1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "pong") == 0)
        return pong();
    if (argc == 4 && strcmp(argv[1], "ping") == 0)
        return ping(atol(argv[2]), argv[3]);
    fprintf(stderr, "usage: python_loops ping COUNT ADDRESS | pong\n");
    return 2;
}
