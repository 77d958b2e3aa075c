/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.c: as many peers as it is told to on one RDMA device at once, each an engine of its own
 * with small limits, all in this process. Each connects to one target of default depth and sends it
 * a notification; when the last is connected the target answers them all.
 *
 * Only those that are about to connect make progress meanwhile: the others need none. */
#define _GNU_SOURCE
#include "actors.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { TOGETHER = 32, PEERS_MOST = 16384 };

struct visitor {
    weir_engine *engine;
    weir_peer target;
    uint64_t heard; /* notifications */
};

static struct visitor visitors[PEERS_MOST];
static weir_peer met[PEERS_MOST];

static weir_engine *open_target(const char *device, uint32_t peers) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    options.device = device;
    options.peers_max = peers + peers / 2;
    options.connect_timeout_ns = 60 * SECOND;
    must(weir_engine_open(&options, &engine), "target");
    return engine;
}

static void open_visitor(struct visitor *visitor, const char *device, const char *address) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    options.device = device;
    options.listen = "none";
    options.transfers_max = 4;
    options.segments_max = 16;
    options.peers_max = 2;
    options.memories_max = 4;
    options.remotes_max = 4;
    options.sq_depth = 16;
    options.recv_credits = 4;
    options.notifications_max = 16;
    options.cq_depth = 128;
    options.connect_timeout_ns = 60 * SECOND;
    must(weir_engine_open(&options, &visitor->engine), "visitor");
    must(weir_peer_open(visitor->engine, address, &visitor->target), "peer");
}

static weir_transfer notify(weir_engine *engine, weir_peer peer) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;

    options.flags = WEIR_TRANSFER_NOTIFY;
    must(weir_write(engine, peer, NULL, 0, &options, &transfer), "notify");
    return transfer;
}

static void progress(weir_engine *engine) {
    int done = weir_engine_progress(engine);

    if (done < 0)
        fail("progress", done);
}

/* False: under way still. */
static bool ended(weir_engine *engine, weir_transfer transfer) {
    int status = weir_transfer_status(engine, transfer);

    if (status != WEIR_OK && status != WEIR_EINPROGRESS)
        fail("notification", status);
    return status == WEIR_OK;
}

static uint32_t take(weir_engine *target, uint32_t count) {
    weir_notification notification;

    while (weir_notification_take(target, &notification) == WEIR_OK)
        met[count++] = notification.from;
    return count;
}

/* The visitors of one batch connect, and have been heard; how many have in all. */
static uint32_t connect_batch(weir_engine *target, uint32_t first, uint32_t count, uint32_t heard) {
    uint64_t until = now_ns() + 120 * SECOND;
    weir_transfer transfers[TOGETHER];
    uint32_t left = count;

    for (uint32_t i = 0; i < count; i++)
        transfers[i] = notify(visitors[first + i].engine, visitors[first + i].target);
    while ((left > 0 || heard < first + count) && now_ns() < until) {
        progress(target);
        heard = take(target, heard);
        left = 0;
        for (uint32_t i = 0; i < count; i++) {
            progress(visitors[first + i].engine);
            left += !ended(visitors[first + i].engine, transfers[i]);
        }
    }
    if (left > 0)
        fail("not all of a batch connected in time", 0);
    return heard;
}

/* All of them are there still. */
static void answer_all(weir_engine *target, uint32_t peers) {
    uint64_t until = now_ns() + 300 * SECOND;
    uint32_t heard = 0;

    for (uint32_t i = 0; i < peers; i++) {
        weir_transfer transfer = notify(target, met[i]);
        while (!ended(target, transfer) && now_ns() < until)
            progress(target);
        weir_transfer_release(target, transfer);
    }
    for (uint32_t i = 0; i < peers; i++) {
        weir_notification notification;
        while (weir_notification_take(visitors[i].engine, &notification) != WEIR_OK &&
               now_ns() < until)
            progress(visitors[i].engine);
        heard++;
    }
    if (heard != peers || now_ns() >= until)
        fail("not all have heard the answer", 0);
}

static void print_stats(weir_engine *target, uint64_t ns) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;

    must(weir_engine_query(target, &stats), "stats");
    printf(
        "# %llu sessions up, %llu failed, %llu refused; %llu control messages, %llu of them sent "
        "again; %llu ms\n",
        (unsigned long long)stats.sessions_up, (unsigned long long)stats.sessions_failed,
        (unsigned long long)stats.sessions_refused, (unsigned long long)stats.control_sent,
        (unsigned long long)stats.control_retransmits, (unsigned long long)(ns / MS));
    if (stats.sessions_failed != 0 || stats.sessions_refused != 0)
        fail("a session failed or was refused", 0);
}

int main(int argc, char **argv) {
    uint32_t peers = argc == 5 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    struct rlimit files = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20}, allowed;
    char address[WEIR_ADDRESS_MAX];
    uint32_t heard = 0;

    if (peers == 0 || peers > PEERS_MOST)
        fail("usage: crowd DEVICE RDMA_OF_TARGET RDMA_OF_VISITORS PEERS", 0);
    if (setrlimit(RLIMIT_NOFILE, &files) != 0 && getrlimit(RLIMIT_NOFILE, &allowed) == 0) {
        allowed.rlim_cur = allowed.rlim_max;
        setrlimit(RLIMIT_NOFILE, &allowed);
    }
    setenv("WEIR_VERBS_DEVICE", argv[2], 1);
    weir_engine *target = open_target(argv[1], peers);
    must(weir_engine_address(target, address, sizeof(address)), "address");
    setenv("WEIR_VERBS_DEVICE", argv[3], 1);
    uint64_t begin = now_ns();
    for (uint32_t i = 0; i < peers; i += TOGETHER) {
        uint32_t count = peers - i < TOGETHER ? peers - i : TOGETHER;
        for (uint32_t k = 0; k < count; k++)
            open_visitor(&visitors[i + k], argv[1], address);
        heard = connect_batch(target, i, count, heard);
    }
    answer_all(target, peers);
    print_stats(target, now_ns() - begin);
    fflush(stdout);
    for (uint32_t i = 0; i < peers; i++)
        weir_engine_close(visitors[i].engine);
    weir_engine_close(target);
    return EXIT_SUCCESS;
}
