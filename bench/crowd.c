/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.c: the cost of connecting: many engines that connect at once to one.
 *
 *   crowd [--device NAME] [--peers N[,N...]] [--dial] [--most-resent SHARE] [--json FILE]
 *
 * A target in a process of its own, and N engines in others, as many in each as there are
 * descriptors for, all of which connect at once; with --dial the target connects to all of them.
 * For each N it shows how long it took until all were up, handshakes a second, CPU time of a
 * handshake on either side, what was said again (control messages sent again, of both sides, for
 * each handshake), what failed, and the memory that the target took a peer, in KiB: engine (pages
 * of what was mapped when it was opened), heap (which is the device's: after opening nobody else
 * allocates) and segment (what the device shares: memfds).
 * CPU time is what to compare where others use the machine. All the engines of the crowd are made
 * before it is counted, but one of them has one peer: its CPU time is that of a first handshake,
 * with the page faults of its tables, and cold caches, since a thousand take turns. The cost of a
 * handshake of an engine with many peers is the target's, as the side that is called and, with
 * --dial, as the one that calls. Status 1: somebody was not connected within a minute, a connect
 * failed, or more was said again than --most-resent (0.1) for each handshake. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "weir.h"

#define SECOND      UINT64_C(1000000000)
#define PATIENCE_NS (60 * SECOND)

enum { SIZES_MAX = 16, PEERS_MAX = 20000, BATCH = 256, CROWDS_MAX = 64, FDS_EACH = 24 };

/* Of a process; or what it took. */
struct memory {
    uint64_t engine, heap, segment;
};

/* The report of one process. */
struct side {
    _Atomic bool ready;
    _Atomic uint32_t up, failed; /* events */
    uint64_t cpu_ns, sent, resent, stale;
    struct memory memory;
};

/* The memory that all processes see. The last side is the target's. */
struct board {
    _Atomic bool go, done, leave;
    char address[WEIR_ADDRESS_MAX];
    char addresses[PEERS_MAX][WEIR_ADDRESS_MAX]; /* the crowd's */
    struct side sides[CROWDS_MAX + 1];
};
static struct board *board;

struct result {
    uint32_t peers, up, failed;
    uint64_t wall_ns, cpu_ns, target_cpu_ns, sent, resent, stale;
    struct memory memory;
};

static const char *device;
static bool target_dials;
static uint32_t crowd_most = 1000; /* engines of a process */

static _Noreturn void fail(const char *what, int error) {
    fprintf(stderr, "crowd: %s%s%s\n", what, error != 0 ? ": " : "",
            error != 0 ? weir_strerror(error) : "");
    exit(1);
}

static uint64_t clock_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* A line of /proc/self/status, in bytes. */
static uint64_t memory_of(const char *name) {
    char line[128];
    uint64_t kib = 0;
    size_t length = strlen(name);
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            kib = strtoull(line + length + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

/* Of all memfds that are open. */
static uint64_t memfd_bytes(void) {
    DIR *fds = opendir("/proc/self/fd");
    uint64_t bytes = 0;
    for (struct dirent *entry; fds != NULL && (entry = readdir(fds)) != NULL;) {
        char path[300], target[64] = "";
        struct stat st;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strncmp(target, "/memfd:", 7) == 0 &&
            stat(path, &st) == 0)
            bytes += (uint64_t)st.st_blocks * 512;
    }
    if (fds != NULL)
        closedir(fds);
    return bytes;
}

/* Private memory that is not of the heap is of the engine and its control channel. */
static struct memory memory_now(void) {
    struct mallinfo2 heap = mallinfo2();
    return (struct memory){.engine = memory_of("RssAnon") - (heap.uordblks + heap.fordblks),
                           .heap = heap.uordblks,
                           .segment = memfd_bytes()};
}

/* Memory that was given back since is no growth. */
static uint64_t grown(uint64_t now, uint64_t before) {
    return now > before ? now - before : 0;
}

static struct memory memory_since(struct memory before) {
    struct memory now = memory_now();
    return (struct memory){grown(now.engine, before.engine), grown(now.heap, before.heap),
                           grown(now.segment, before.segment)};
}

/* One of the crowd knows one peer; the target has the limits that it has by default. */
static weir_engine *engine_of(uint32_t peers, bool crowd) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.peers_max = peers;
    if (crowd) {
        options.memories_max = options.remotes_max = options.transfers_max = 16;
        options.segments_max = options.notifications_max = 16;
    }
    weir_engine *engine;
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK)
        fail("an engine does not open", rc);
    return engine;
}

static void add_stats(weir_engine *engine, struct side *side) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    weir_engine_query(engine, &stats);
    side->sent += stats.control_sent;
    side->resent += stats.control_retransmits;
    side->stale += stats.control_stale;
}

static void take_events(weir_engine *engine, struct side *side) {
    weir_event event;
    while (weir_event_take(engine, &event) == WEIR_OK) {
        side->up += event.type == WEIR_EVENT_UP;
        side->failed += event.type == WEIR_EVENT_GONE;
    }
}

static void wait_for(const _Atomic bool *flag) {
    while (!*flag)
        usleep(100);
}

/* ---- the target --------------------------------------------------------- */

static void connect_to(weir_engine *engine, const char *address) {
    weir_peer peer;
    int rc = weir_peer_open(engine, address, &peer);
    if (rc == WEIR_OK)
        rc = weir_peer_connect(engine, peer);
    if (rc != WEIR_OK && rc != WEIR_ENOTREADY)
        fail("a connect does not begin", rc);
}

static _Noreturn void target(struct side *side, uint32_t peers) {
    /* A quarter is kept for those that the application opens. */
    weir_engine *engine = engine_of(peers + peers / 3 + 8, false);
    weir_engine_address(engine, board->address, sizeof(board->address));
    struct memory before = memory_now();
    side->ready = true;
    wait_for(&board->go);
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t i = 0; i < peers && target_dials; i++) {
        connect_to(engine, board->addresses[i]);
        weir_engine_progress(engine);
        take_events(engine, side);
    }
    while (!board->done) {
        weir_engine_wait(engine, SECOND / 100);
        take_events(engine, side);
    }
    side->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    side->memory = memory_since(before);
    add_stats(engine, side);
    side->ready = false;
    wait_for(&board->leave);
    _exit(0);
}

/* ---- the crowd ---------------------------------------------------------- */

static weir_engine *engines[PEERS_MAX];
static uint64_t due_ns[PEERS_MAX]; /* progress is needed by then */

/* All that there is to do for one. */
static void serve(uint32_t i, struct side *side) {
    uint64_t timeout_ns;
    do {
        weir_engine_progress(engines[i]);
        take_events(engines[i], side);
    } while (weir_engine_arm(engines[i], &timeout_ns) == WEIR_EAGAIN);
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    due_ns[i] = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

static uint64_t first_due(uint32_t peers) {
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < peers; i++)
        first = due_ns[i] < first ? due_ns[i] : first;
    return first;
}

static void connect_all(uint32_t peers, struct side *side) {
    for (uint32_t i = 0; i < peers; i++) {
        if (!target_dials)
            connect_to(engines[i], board->address);
        serve(i, side);
    }
}

static void serve_all(uint32_t peers, int epoll_fd, struct side *side) {
    struct epoll_event events[BATCH];
    while (!board->done) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC), first = first_due(peers);
        uint64_t pause = first <= now ? 0 : first - now;
        int ms = pause > SECOND / 100 ? 10 : (int)((pause + 999999) / 1000000);
        int count = epoll_wait(epoll_fd, events, BATCH, ms);
        for (int i = 0; i < count; i++)
            serve(events[i].data.u32, side);
        now = clock_ns(CLOCK_MONOTONIC);
        for (uint32_t i = 0; first <= now && i < peers; i++) {
            if (due_ns[i] <= now)
                serve(i, side);
        }
    }
}

static _Noreturn void crowd(struct side *side, uint32_t first, uint32_t peers) {
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < peers; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        engines[i] = engine_of(2, true);
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, weir_engine_fd(engines[i]), &event);
        weir_engine_address(engines[i], board->addresses[first + i], WEIR_ADDRESS_MAX);
    }
    side->ready = true;
    wait_for(&board->go);
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    connect_all(peers, side);
    serve_all(peers, epoll_fd, side);
    side->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    for (uint32_t i = 0; i < peers; i++)
        add_stats(engines[i], side);
    side->ready = false;
    wait_for(&board->leave);
    _exit(0);
}

/* ---- both ---------------------------------------------------------------- */

/* Until all say so, or no more of them can. */
static void wait_ready(uint32_t first, uint32_t end, bool ready) {
    for (uint32_t i = first; i < end; i++) {
        while (board->sides[i].ready != ready) {
            if (waitpid(-1, NULL, WNOHANG) > 0)
                fail("a process ended", 0);
            usleep(1000);
        }
    }
}

static void wait_up(uint32_t peers, uint32_t crowds) {
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
    uint32_t up = 0;
    while ((up < peers || board->sides[CROWDS_MAX].up < peers) && clock_ns(CLOCK_MONOTONIC) < end) {
        usleep(500);
        up = 0;
        for (uint32_t i = 0; i < crowds; i++)
            up += board->sides[i].up;
    }
}

static void add_side(struct result *result, const struct side *side, bool is_target) {
    *(is_target ? &result->target_cpu_ns : &result->cpu_ns) += side->cpu_ns;
    result->failed += side->failed;
    result->sent += side->sent;
    result->resent += side->resent;
    result->stale += side->stale;
    if (is_target)
        result->memory = side->memory;
}

static void one_size(uint32_t peers, struct result *result) {
    uint32_t crowds = 0, left = peers;
    struct side *far = &board->sides[CROWDS_MAX];
    *result = (struct result){.peers = peers};
    memset(board, 0, sizeof(*board));
    for (uint32_t i = 0; i <= CROWDS_MAX; i++) {
        uint32_t most = left < crowd_most ? left : crowd_most;
        if (i < CROWDS_MAX && most == 0)
            continue;
        pid_t pid = fork();
        if (pid < 0)
            fail("fork", errno);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (i == CROWDS_MAX)
                target(far, peers);
            crowd(&board->sides[i], peers - left, most);
        }
        crowds += i < CROWDS_MAX;
        left -= i < CROWDS_MAX ? most : 0;
    }
    wait_ready(0, crowds, true);
    wait_ready(CROWDS_MAX, CROWDS_MAX + 1, true);
    uint64_t wall = clock_ns(CLOCK_MONOTONIC);
    board->go = true;
    wait_up(peers, crowds);
    result->wall_ns = clock_ns(CLOCK_MONOTONIC) - wall;
    board->done = true;
    wait_ready(0, crowds, false);
    wait_ready(CROWDS_MAX, CROWDS_MAX + 1, false);
    for (uint32_t i = 0; i < crowds; i++) {
        result->up += board->sides[i].up;
        add_side(result, &board->sides[i], false);
    }
    if (result->up > far->up)
        result->up = far->up;
    add_side(result, far, true);
    board->leave = true;
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
    }
}

/* ---- what it shows ------------------------------------------------------- */

static void show(const struct result *r) {
    double n = r->peers;
    printf("%6u %6u %6u %9.3f %9.0f %10.3f %10.3f %9.2f %9.3f %9.2f %9.2f %9.2f %9.2f\n", r->peers,
           r->up, r->failed, (double)r->wall_ns / 1e9, r->up / ((double)r->wall_ns / 1e9),
           (double)r->target_cpu_ns / n / 1e6, (double)r->cpu_ns / n / 1e6, (double)r->sent / n,
           (double)r->resent / n, (double)r->stale / n, (double)r->memory.engine / n / 1024,
           (double)r->memory.heap / n / 1024, (double)r->memory.segment / n / 1024);
    fflush(stdout);
}

static void write_json(FILE *file, const struct result *r, bool first) {
    fprintf(file,
            "%s{\"peers\": %u, \"up\": %u, \"failed\": %u, \"wall_ns\": %llu, "
            "\"target_cpu_ns\": %llu, \"crowd_cpu_ns\": %llu, \"control_sent\": %llu, "
            "\"control_retransmits\": %llu, \"control_stale\": %llu, \"engine_bytes\": %llu, "
            "\"heap_bytes\": %llu, \"segment_bytes\": %llu}",
            first ? "" : ",\n ", r->peers, r->up, r->failed, (unsigned long long)r->wall_ns,
            (unsigned long long)r->target_cpu_ns, (unsigned long long)r->cpu_ns,
            (unsigned long long)r->sent, (unsigned long long)r->resent,
            (unsigned long long)r->stale, (unsigned long long)r->memory.engine,
            (unsigned long long)r->memory.heap, (unsigned long long)r->memory.segment);
}

static uint32_t read_sizes(char *text, uint32_t *sizes) {
    uint32_t count = 0;
    for (char *word = strtok(text, ","); word != NULL && count < SIZES_MAX;
         word = strtok(NULL, ",")) {
        char *end;
        unsigned long size = strtoul(word, &end, 10);
        if (*end != '\0' || size < 1 || size > PEERS_MAX)
            fail("--peers takes numbers from 1 to 20000", 0);
        sizes[count++] = (uint32_t)size;
    }
    return count;
}

/* An engine and its peer take 19, and some more for a moment. */
static void descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max / FDS_EACH < crowd_most)
        crowd_most = (uint32_t)(limit.rlim_max / FDS_EACH);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'},      {"peers", required_argument, NULL, 'p'},
        {"most-resent", required_argument, NULL, 'm'}, {"dial", no_argument, NULL, 'D'},
        {"json", required_argument, NULL, 'j'},        {0}};
    uint32_t sizes[SIZES_MAX] = {250, 1000, 4000}, count = 3;
    double most_resent = 0.1;
    const char *json = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == 'd')
            device = optarg;
        else if (option == 'p')
            count = read_sizes(optarg, sizes);
        else if (option == 'D')
            target_dials = true;
        else if (option == 'm')
            most_resent = strtod(optarg, NULL);
        else if (option == 'j')
            json = optarg;
        else
            return 2;
    }
    descriptors();
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FILE *file = json != NULL ? fopen(json, "w") : NULL;
    if (board == MAP_FAILED || (json != NULL && file == NULL))
        fail("no memory, or no such file", 0);
    printf("%6s %6s %6s %9s %9s %10s %10s %9s %9s %9s %9s %9s %9s\n", "peers", "up", "failed", "s",
           "up/s", "target ms", "crowd ms", "messages", "resent", "stale", "engine", "heap",
           "segment");
    bool well = true;
    for (uint32_t i = 0; i < count; i++) {
        struct result result;
        one_size(sizes[i], &result);
        show(&result);
        if (file != NULL)
            write_json(file, &result, i == 0);
        well &= result.up >= result.peers && result.failed == 0 &&
                (double)result.resent <= most_resent * result.peers;
    }
    if (file != NULL) {
        fprintf(file, "\n");
        fclose(file);
    }
    return well ? 0 : 1;
}
