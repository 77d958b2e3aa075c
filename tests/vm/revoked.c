/* SPDX-License-Identifier: Apache-2.0 */
/* revoked.c: a target takes memory back while it is written to.
 *
 *     revoked DEVICE STATUS
 *
 * RDMA_A and RDMA_B name the RDMA devices of the two sides. The target exports two memories and
 * releases the first. Transfers to that one end with STATUS (a number of weir.h), in bounded
 * time; those to the other one, under way at the same time, are well: the sessions that the
 * former break are not their fault. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"

enum { BYTES = 1 << 16, PIECE = 64, GOOD = 60, BAD = 2 };

struct told {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptors[2][WEIR_DESCRIPTOR_MAX];
    size_t lengths[2];
};

/* Serves until there is something to read. */
static void serve_until(weir_engine *engine, int fd) {
    struct pollfd word = {.fd = fd, .events = POLLIN};
    char byte;
    while (poll(&word, 1, 0) == 0)
        weir_engine_wait(engine, 5 * MS);
    pipe_read(fd, &byte, 1);
}

static void target(const char *device, int told_fd, int go_fd, int gone_fd) {
    static uint8_t bytes[2][BYTES];
    weir_engine *engine = engine_open(device, getenv("RDMA_B"));
    weir_memory memories[2];
    struct told told = {.address = ""};
    must(weir_engine_address(engine, told.address, sizeof told.address), "address");
    for (int i = 0; i < 2; i++) {
        must(weir_memory_register(engine, bytes[i], BYTES, WEIR_ACCESS_ALL, &memories[i]),
             "register");
        told.lengths[i] = sizeof told.descriptors[i];
        must(weir_memory_export(engine, memories[i], told.descriptors[i], &told.lengths[i]),
             "export");
    }
    pipe_write(told_fd, &told, sizeof told);
    serve_until(engine, go_fd);
    must(weir_memory_release(engine, memories[0]), "release");
    pipe_write(gone_fd, "", 1);
    serve_until(engine, go_fd);
    must(weir_memory_release(engine, memories[1]), "release");
    weir_engine_close(engine);
}

static weir_transfer write_one(weir_engine *engine, weir_peer peer, weir_memory from,
                               weir_remote to, uint32_t at) {
    weir_segment segment = {
        .local = from, .remote = to, .local_offset = at, .remote_offset = at, .length = PIECE};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    int rc;
    while ((rc = weir_write(engine, peer, &segment, 1, &options, &transfer)) == WEIR_EAGAIN)
        weir_engine_wait(engine, MS);
    must(rc, "write");
    return transfer;
}

static int ended(weir_engine *engine, weir_transfer transfer) {
    int rc = weir_transfer_wait(engine, transfer, PATIENCE_NS);
    weir_transfer_release(engine, transfer);
    return rc;
}

static void initiator(const char *device, int wanted, int told_fd, int go_fd, int gone_fd) {
    static uint8_t bytes[BYTES];
    weir_engine *engine = engine_open(device, getenv("RDMA_A"));
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    weir_peer peer;
    weir_memory memory;
    weir_remote remotes[2];
    struct told told;
    char gone;
    pipe_read(told_fd, &told, sizeof told);
    must(weir_memory_register(engine, bytes, BYTES, 0, &memory), "register");
    must(weir_peer_open(engine, told.address, &peer), "peer");
    for (int i = 0; i < 2; i++)
        must(weir_memory_import(engine, peer, told.descriptors[i], told.lengths[i], &remotes[i]),
             "import");
    for (int i = 0; i < 2; i++)
        must(ended(engine, write_one(engine, peer, memory, remotes[i], 0)), "a write");
    pipe_write(go_fd, "", 1);
    pipe_read(gone_fd, &gone, 1);

    weir_transfer good[GOOD], bad[BAD];
    for (int i = 0, k = 0; i < GOOD; i++) {
        good[i] = write_one(engine, peer, memory, remotes[1], (uint32_t)i * PIECE);
        if (i % (GOOD / BAD) == GOOD / BAD / 2)
            bad[k++] = write_one(engine, peer, memory, remotes[0], 0);
    }
    uint64_t begin = now_ns();
    for (int i = 0; i < GOOD; i++)
        must(ended(engine, good[i]), "a write to memory that is there");
    for (int i = 0; i < BAD; i++) {
        int is = ended(engine, bad[i]);
        if (is != wanted)
            fail("a write to memory that is gone", is);
    }
    must(weir_engine_query(engine, &stats), "statistics");
    printf("# all ended after %.1f ms; %llu sessions failed\n", (double)(now_ns() - begin) / 1e6,
           (unsigned long long)stats.sessions_failed);
    pipe_write(go_fd, "", 1);
    weir_engine_close(engine);
}

int main(int argc, char **argv) {
    int told[2], go[2], gone[2], status = 0;
    if (argc != 3 || pipe(told) != 0 || pipe(go) != 0 || pipe(gone) != 0) {
        fprintf(stderr, "usage: revoked DEVICE STATUS\n");
        return 2;
    }
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (i == 0)
                target(argv[1], told[1], go[0], gone[1]);
            else
                initiator(argv[1], atoi(argv[2]), told[0], go[1], gone[0]);
            exit(0);
        }
    }
    bool well = true;
    for (int i = 0; i < 2; i++)
        well &= waitpid(children[1 - i], &status, 0) > 0 && status == 0;
    return well ? 0 : 1;
}
