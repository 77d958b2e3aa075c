/* SPDX-License-Identifier: Apache-2.0 */
/* apart.c: two engines whose control connections are cut for longer than any of their time-outs,
 * while data flows (W3). Nobody may be told that the other one is gone, transfers go on, and when
 * the way is open again there is a control connection again.
 *
 *     apart DEVICE CONNECT_MS CUT_MS INTERFACE [hurry]
 *
 * RDMA_A and RDMA_B name the RDMA devices of the two processes. Packets of the two engines'
 * listening ports are dropped on INTERFACE, by tc(8), and of no others: data may go there, too.
 * With "hurry" the kernel gives the connections up after 2 s of silence, not after its usual 11 s.
 * Lines with
 * "# " in front tell what was seen; status 1, and a line says why: it is not as promised. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"

enum { BYTES = 1 << 14, FDS = 256, ESTABLISHED = 1, TARGET = 0, WRITER = 1, SIDES = 2 };

/* The memory that both processes and their parent see. */
struct board {
    _Atomic bool ready[SIDES], stop[SIDES], hurry;
    char addresses[SIDES][WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t descriptor_length;
    _Atomic uint64_t written; /* and read back */
    struct {
        uint64_t events[WEIR_EVENT_DEVICE_FAILED + 1];
        int gone_error;
    } sides[SIDES];
};
static struct board *board;
static const char *device;
static uint64_t connect_ns;

/* ---- inside the processes ----------------------------------------------- */

static weir_engine *side_open(int which, const char *rdma_device) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;
    if (rdma_device != NULL)
        setenv("WEIR_VERBS_DEVICE", rdma_device, 1);
    options.device = device;
    options.peers_max = 16;
    options.connect_timeout_ns = connect_ns;
    must(weir_engine_open(&options, &engine), "engine");
    must(weir_engine_address(engine, board->addresses[which], WEIR_ADDRESS_MAX), "address");
    return engine;
}

/* The kernel gives up the connections that there are after 2 s of silence. */
static void shorten_patience(void) {
    static const int names[] = {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT};
    static const int values[] = {1, 1, 1, 2000};
    for (int fd = 0; fd < FDS; fd++) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            (void)setsockopt(fd, IPPROTO_TCP, names[i], &values[i], sizeof(values[i]));
    }
}

static void attend(weir_engine *engine, int which) {
    weir_event event;
    static bool hurried;
    while (weir_event_take(engine, &event) == WEIR_OK) {
        if (board->stop[WRITER])
            continue; /* which leaves */
        board->sides[which].events[event.type]++;
        if (event.type == WEIR_EVENT_GONE)
            board->sides[which].gone_error = event.error;
    }
    if (board->hurry && !hurried) {
        shorten_patience();
        hurried = true;
    }
}

static void target(void) {
    weir_engine *engine = side_open(TARGET, getenv("RDMA_B"));
    weir_memory memory;
    void *base;
    must(weir_memory_allocate(engine, BYTES, WEIR_ACCESS_ALL, &memory, &base), "allocate");
    board->descriptor_length = WEIR_DESCRIPTOR_MAX;
    must(weir_memory_export(engine, memory, board->descriptor, &board->descriptor_length),
         "export");
    board->ready[TARGET] = true;
    while (!board->stop[TARGET]) {
        weir_engine_wait(engine, 5 * MS);
        attend(engine, TARGET);
    }
    weir_engine_close(engine);
}

static void finish(weir_engine *engine, weir_transfer transfer) {
    int rc = WEIR_EINPROGRESS;
    for (uint64_t end = now_ns() + PATIENCE_NS; rc == WEIR_EINPROGRESS && now_ns() < end;) {
        rc = weir_transfer_wait(engine, transfer, 5 * MS);
        attend(engine, WRITER);
    }
    must(rc, "a transfer");
    if (transfer.id != 0)
        must(weir_transfer_release(engine, transfer), "release");
}

/* Content that no round before it had is written, read back and compared. */
static void write_round(weir_engine *engine, weir_peer peer, weir_memory memory, uint8_t *bytes,
                        weir_remote remote, uint8_t content) {
    weir_segment segment = {.local = memory, .remote = remote, .length = BYTES};
    weir_transfer transfer = {0};
    memset(bytes, content, BYTES);
    must(weir_write(engine, peer, &segment, 1, NULL, &transfer), "write");
    finish(engine, transfer);
    transfer.id = 0;
    segment.local_offset = BYTES;
    must(weir_read(engine, peer, &segment, 1, NULL, &transfer), "read");
    finish(engine, transfer);
    if (memcmp(bytes, bytes + BYTES, BYTES) != 0)
        fail("wrong bytes were read back", 0);
    board->written++;
}

static void writer(void) {
    weir_engine *engine = side_open(WRITER, getenv("RDMA_A"));
    weir_memory memory;
    weir_remote remote;
    weir_peer peer;
    void *base;
    must(weir_memory_allocate(engine, (uint64_t)2 * BYTES, 0, &memory, &base), "allocate");
    while (!board->ready[TARGET])
        sleep_ms(10);
    must(weir_peer_open(engine, board->addresses[TARGET], &peer), "peer");
    must(weir_memory_import(engine, peer, board->descriptor, board->descriptor_length, &remote),
         "import");
    board->ready[WRITER] = true;
    for (uint64_t round = 0; !board->stop[WRITER]; round++)
        write_round(engine, peer, memory, base, remote, (uint8_t)round);
    weir_engine_close(engine);
}

/* ---- the parent ---------------------------------------------------------- */

static uint16_t port_of(int which) {
    return (uint16_t)strtoul(strrchr(board->addresses[which], ':') + 1, NULL, 10);
}

/* Established connections of the two engines, as the kernel has them: each counts twice, or once
 * while only one end has given up. */
static int connections(void) {
    FILE *file = fopen("/proc/net/tcp", "r");
    char line[512];
    unsigned local, remote, state;
    int count = 0;
    if (file == NULL)
        fail("/proc/net/tcp", 0);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%*d: %*x:%x %*x:%x %x", &local, &remote, &state) != 3)
            continue;
        for (int i = 0; i < SIDES && state == ESTABLISHED; i++)
            count += local == port_of(i) || remote == port_of(i);
    }
    fclose(file);
    return count;
}

static void command(const char *text) {
    if (system(text) != 0) {
        printf("%s\n", text);
        fail("the command failed", 0);
    }
}

/* Everything has a band as before, and what goes to or comes from either port one that loses it. */
static void cut(const char *interface) {
    char text[256];
    snprintf(text, sizeof(text),
             "tc qdisc add dev %s root handle 1: prio bands 4"
             " priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1"
             " && tc qdisc add dev %s parent 1:4 handle 40: netem loss 100%%",
             interface, interface);
    command(text);
    for (int i = 0; i < 2 * SIDES; i++) {
        snprintf(text, sizeof(text),
                 "tc filter add dev %s parent 1: protocol ip prio 1 u32"
                 " match ip protocol 6 0xff match ip %s %u 0xffff flowid 1:4",
                 interface, i < SIDES ? "dport" : "sport", (unsigned)port_of(i % SIDES));
        command(text);
    }
}

static void mend(const char *interface) {
    char text[128];
    snprintf(text, sizeof(text), "tc qdisc del dev %s root", interface);
    command(text);
}

static pid_t start(void (*run)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run();
        exit(0);
    }
    return pid;
}

/* Until there are connections, or none; a process that ends is a failure. */
static void until_connected(bool wanted, uint64_t least_ns) {
    uint64_t begin = now_ns();
    while ((connections() > 0) != wanted || now_ns() - begin < least_ns) {
        if (waitpid(-1, NULL, WNOHANG) != 0)
            fail("one of the processes has ended", 0);
        if (now_ns() - begin > least_ns + PATIENCE_NS)
            fail(wanted ? "there is no control connection" : "control connections live", 0);
        sleep_ms(20);
    }
}

static void until_written(uint64_t more) {
    uint64_t goal = board->written + more, end = now_ns() + PATIENCE_NS;
    while (board->written < goal) {
        if (waitpid(-1, NULL, WNOHANG) != 0)
            fail("one of the processes has ended", 0);
        if (now_ns() > end)
            fail("nothing is written any more", 0);
        sleep_ms(5);
    }
}

static bool is_well(int which) {
    const uint64_t *events = board->sides[which].events;
    const char *name = which == TARGET ? "target" : "writer";
    printf("# %s: UP %" PRIu64 ", DEGRADED %" PRIu64 ", RECOVERED %" PRIu64 "\n", name,
           events[WEIR_EVENT_UP], events[WEIR_EVENT_DEGRADED], events[WEIR_EVENT_RECOVERED]);
    if (events[WEIR_EVENT_GONE] != 0)
        printf("%s: told that the other one is gone: %s\n", name,
               weir_error_name(board->sides[which].gone_error));
    return events[WEIR_EVENT_GONE] == 0 && events[WEIR_EVENT_UP] == 1;
}

int main(int argc, char **argv) {
    if (argc < 5)
        fail("usage: apart DEVICE CONNECT_MS CUT_MS INTERFACE [hurry]", 0);
    device = argv[1];
    connect_ns = strtoull(argv[2], NULL, 10) * MS;
    uint64_t cut_ns = strtoull(argv[3], NULL, 10) * MS;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        fail("mmap", 0);
    pid_t pids[SIDES] = {start(target), start(writer)};
    while (!board->ready[WRITER] && waitpid(-1, NULL, WNOHANG) == 0)
        sleep_ms(10);
    until_written(10);
    until_connected(true, 0);
    cut(argv[4]);
    uint64_t begin = now_ns();
    board->hurry = argc > 5;
    until_connected(false, cut_ns);
    uint64_t lasted_ms = (now_ns() - begin) / MS, before = board->written;
    until_written(10); /* without any control connection */
    printf("# control was cut for %" PRIu64 " ms; %" PRIu64 " rounds until then\n", lasted_ms,
           before);
    mend(argv[4]);
    until_connected(true, connect_ns + connect_ns / 4 + 2 * SECOND);
    until_written(10);
    printf("# %" PRIu64 " rounds in all\n", (uint64_t)board->written);
    bool well = true;
    for (int i = SIDES - 1; i >= 0; i--) { /* the writer first */
        int status = 1;
        board->stop[i] = true;
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            well = false;
    }
    for (int i = 0; i < SIDES; i++)
        well = is_well(i) && well;
    return well ? EXIT_SUCCESS : EXIT_FAILURE;
}
