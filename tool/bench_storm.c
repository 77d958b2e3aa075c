/* SPDX-License-Identifier: Apache-2.0 */
/* bench_storm.c: `bench storm`: the cost of connecting: many engines that connect at once to one.
 *
 * The one, the target, is in a process of its own, and the many, the crowd, are in others, as many
 * in each as there are descriptors for. All are open before the gate is; then all of the crowd
 * connect to the target at once, or, with --dial, the target to all of them.
 *
 * CPU time is what to compare where others use the machine. The engines of the crowd are made
 * before it is counted, but each of them has one peer: its CPU time is that of a first handshake,
 * with the page faults of its tables, and cold caches, since a thousand take turns. The cost of a
 * handshake of an engine with many peers is the target's.
 *
 * The target's memory is divided by its peers: that of the engine (private memory that is not
 * the heap's: pages that were mapped when it was opened), of the heap (which is the device's: after
 * opening nobody else allocates), and of the segments (memfds that the device shares).
 *
 * With --seconds the target then writes to one of the crowd, and all others are idle.
 *
 * The file is long because both sides, and who measures them, share the board. */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "busy.h"
#include "crew.h"
#include "diagnose.h"
#include "host.h"
#include "report.h"
#include "stalls.h"
#include "weir.h"

#define CROWDS_MAX   64   /* processes of the crowd */
#define CROWD_MAX    1000 /* engines of one */
#define FDS_VISITOR  24   /* an engine and its peer take 19, and some more for a moment */
#define FDS_PROCESS  64   /* besides */
#define BATCH        256
#define ERRORS       64 /* codes of weir_result, negated */
#define LOOK_NS      NS_PER_MS
#define WAIT_NS      (10 * NS_PER_MS)
#define PATIENCE_NS  (60 * NS_PER_S)  /* without anybody more that is up, or failed */
#define STEP_NS      (20 * NS_PER_MS) /* that one of the crowd may add to what a process does */
#define VISITOR_MAX  16               /* of each kind of thing, in an engine that has one peer */
#define VISITOR_KIB  256              /* that one takes, and its side of the target */
#define TARGET_BYTES (256ull << 20)

struct memory {
    uint64_t engine, heap, segment;
};

/* The results of one process, in memory that the bench shares with it. */
struct side {
    _Alignas(128) atomic_uint up, gone; /* events */
    atomic_uint_fast64_t last_up_ns;
    uint64_t cpu_ns;
    uint32_t connected; /* in the end */
    uint32_t failures[ERRORS];
    weir_engine_info counted;
    struct memory memory;   /* the target's */
    struct granted granted; /* likewise, of its first peer */
    weir_engine_options asked;
};

/* Shared by all. */
struct board {
    atomic_uint_fast64_t go_ns;
    atomic_bool counted; /* all are up: what it has cost is read, and the writes begin */
    atomic_bool written; /* these are over */
    atomic_bool done;
    struct busy_memory busy; /* of the one that is written */
    double busy_per_s;
    char address[WEIR_ADDRESS_MAX]; /* the target's */
    struct side target;
    struct side crowds[CROWDS_MAX];
    char addresses[][WEIR_ADDRESS_MAX]; /* the crowd's */
};

struct storm {
    const struct options *options;
    uint32_t peers;
    uint32_t crowd_most; /* engines of a process */
    struct board *board;
    struct crew target, crowds;
};

/* A peer that this process has called, and why it is not there. */
struct callee {
    weir_peer peer;
    int reason;
};

/* ---- memory ------------------------------------------------------------- */

/* A line of /proc/self/status, in bytes. */
static uint64_t status_bytes(const char *name) {
    char line[128];
    uint64_t kib = 0;
    size_t length = strlen(name);
    FILE *file = fopen("/proc/self/status", "re");

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

static uint64_t minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0; /* what was given back since is no growth */
}

/* Free pages of the heap may be resident or not, and are given back before: engine and heap
 * together are what the process has. */
static struct memory memory_now(void) {
    struct mallinfo2 heap;

    malloc_trim(0);
    heap = mallinfo2();
    return (struct memory){.engine = minus(status_bytes("RssAnon"), heap.uordblks),
                           .heap = heap.uordblks,
                           .segment = memfd_bytes()};
}

static struct memory memory_since(struct memory before) {
    struct memory now = memory_now();

    return (struct memory){minus(now.engine, before.engine), minus(now.heap, before.heap),
                           minus(now.segment, before.segment)};
}

/* ---- either side -------------------------------------------------------- */

/* An engine of the crowd knows one peer; the target has the limits that it has by default. */
static weir_engine *open_engine(const struct storm *storm, uint32_t peers, bool visitor,
                                weir_engine_options *asked_out) {
    weir_engine_options asked = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine = NULL;
    int rc;

    asked.device = storm->options->device;
    asked.peers_max = peers;
    if (visitor) {
        asked.memories_max = asked.remotes_max = asked.transfers_max = VISITOR_MAX;
        asked.segments_max = asked.notifications_max = VISITOR_MAX;
    }
    rc = weir_engine_open(&asked, &engine);
    if (rc != 0)
        diagnose_open(storm->options, &asked, rc);
    *asked_out = asked;
    return rc == 0 ? engine : NULL;
}

static int call(weir_engine *engine, const char *address, struct callee *callee) {
    int rc = weir_peer_open(engine, address, &callee->peer);

    if (rc == 0)
        rc = weir_peer_connect(engine, callee->peer);
    return rc == 0 || rc == WEIR_ENOTREADY
               ? 0
               : complain("connecting: %s (%s)", weir_strerror(rc), weir_error_name(rc));
}

/* Some events were dropped. A session that came up is one event. */
static void count_again(weir_engine *engine, struct side *side) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;

    if (weir_engine_query(engine, &info) == 0 && info.sessions_up > atomic_load(&side->up))
        atomic_store(&side->up, (unsigned)info.sessions_up);
}

static void note_end(struct callee *callees, uint32_t count, const weir_event *event) {
    for (uint32_t i = 0; i < count; i++) {
        if (callees[i].peer.id == event->peer.id)
            callees[i].reason = event->value != 0 ? (int)event->value : event->error;
    }
}

/* callees: of this engine. */
static void take_events(weir_engine *engine, struct side *side, struct callee *callees,
                        uint32_t count, weir_peer *first) {
    weir_event event;

    while (weir_event_take(engine, &event) == 0) {
        stalls_remark(engine, &event);
        if (event.type == WEIR_EVENT_UP) {
            if (first != NULL && first->id == 0)
                *first = event.peer;
            atomic_fetch_add(&side->up, 1);
            atomic_store(&side->last_up_ns, host_now_ns());
        } else if (event.type == WEIR_EVENT_GONE) {
            atomic_fetch_add(&side->gone, 1);
            note_end(callees, count, &event);
        } else if (event.type == WEIR_EVENT_LOST) {
            count_again(engine, side);
        }
    }
}

/* How the calls of this engine have ended. */
static void count_calls(weir_engine *engine, struct side *side, const struct callee *callees,
                        uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        int reason = callees[i].reason;
        if (weir_peer_query(engine, callees[i].peer, &info) == 0) {
            if (info.connected) {
                side->connected++;
                continue;
            }
            reason = reason == 0 ? info.refusal : reason;
        }
        side->failures[reason < 0 && reason > -ERRORS ? -reason : -WEIR_ENOTREADY]++;
    }
}

static int count_messages(weir_engine *engine, struct side *side) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    int rc = weir_engine_query(engine, &info);

    if (rc != 0)
        return complain("counters: %s", weir_strerror(rc));
#define ADD_COUNTER(name, text) side->counted.name += info.name;
    WEIR_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    return 0;
}

static void wait_at(const struct crew *crew, enum crew_gate gate) {
    while (!crew_is_open(crew, gate) && !host_interrupted())
        host_sleep_on(crew_gate_fd(crew, gate), -1, UINT64_MAX);
}

/* The end of the process closes its engines, and takes less time than thousands of farewells. */
static int leave(struct crew *crew, unsigned index) {
    crew_reach(crew, index, CREW_DONE);
    wait_at(crew, CREW_LEAVE);
    return EXIT_OK;
}

/* ---- the target --------------------------------------------------------- */

static int target_calls(const struct storm *storm, weir_engine *engine, struct callee *callees) {
    for (uint32_t i = 0; i < storm->peers; i++) {
        if (call(engine, storm->board->addresses[i], &callees[i]) != 0)
            return -1;
        weir_engine_progress(engine);
        take_events(engine, &storm->board->target, callees, i + 1, NULL);
    }
    return 0;
}

/* To one of the crowd, where that is wanted; until the crowd is to stop. */
static int target_writes(const struct storm *storm, weir_engine *engine) {
    struct board *board = storm->board;
    uint64_t ns = (uint64_t)(storm->options->seconds * 1e9);

    if (ns > 0 && busy_write(engine, &board->busy, ns, &board->busy_per_s) != 0)
        return -1;
    atomic_store(&board->written, true);
    while (!atomic_load(&board->done)) {
        if (host_interrupted())
            return complain("interrupted");
        weir_engine_wait(engine, WAIT_NS);
    }
    return 0;
}

/* callees: NULL when the crowd calls. */
static int target_meets(const struct storm *storm, struct crew *crew, weir_engine *engine,
                        struct callee *callees) {
    struct side *side = &storm->board->target;
    uint32_t count = callees != NULL ? storm->peers : 0;
    struct memory before = memory_now();
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_peer first = {0}; /* it may be gone in the end */
    uint64_t cpu;

    crew_reach(crew, 0, CREW_READY);
    wait_at(crew, CREW_GO);
    cpu = host_cpu_ns();
    if (callees != NULL && target_calls(storm, engine, callees) != 0)
        return -1;
    while (!atomic_load(&storm->board->counted)) {
        if (host_interrupted())
            return complain("interrupted");
        weir_engine_wait(engine, WAIT_NS);
        take_events(engine, side, callees, count, &first);
    }
    side->cpu_ns = host_cpu_ns() - cpu;
    side->memory = memory_since(before);
    if (target_writes(storm, engine) != 0)
        return -1;
    if (callees != NULL) {
        count_calls(engine, side, callees, count);
        first = callees[0].peer;
    }
    if (first.id != 0 && weir_peer_query(engine, first, &info) == 0 &&
        granted_query(engine, first, &side->granted) != 0)
        return -1;
    return count_messages(engine, side);
}

static int target_run(struct crew *crew, unsigned index, void *context) {
    const struct storm *storm = context;
    struct board *board = storm->board;
    struct callee *callees = calloc(storm->peers, sizeof(*callees));
    weir_engine *engine;

    if (callees == NULL) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    /* A quarter is kept for those that the application opens. */
    engine = open_engine(storm, storm->peers + storm->peers / 3 + 8, false, &board->target.asked);
    if (engine == NULL)
        return EXIT_FAILED;
    if (weir_engine_address(engine, board->address, sizeof(board->address)) != 0) {
        complain("an engine without an address");
        return EXIT_FAILED;
    }
    if (target_meets(storm, crew, engine, storm->options->dial ? callees : NULL) != 0)
        return EXIT_FAILED;
    return leave(crew, index);
}

/* ---- the crowd ---------------------------------------------------------- */

struct visitor {
    weir_engine *engine;
    struct callee callee;
    uint64_t due_ns; /* progress is needed by then */
};

struct crowd {
    const struct storm *storm;
    struct side *side;
    struct visitor *visitors;
    uint32_t first, count; /* of the whole crowd */
    int epoll_fd;
};

/* All that there is to do for one. */
static void serve(struct crowd *crowd, struct visitor *visitor) {
    uint64_t timeout_ns, now;

    do {
        weir_engine_progress(visitor->engine);
        take_events(visitor->engine, crowd->side, &visitor->callee, 1, NULL);
    } while (weir_engine_arm(visitor->engine, &timeout_ns) == WEIR_EAGAIN);
    now = host_now_ns();
    visitor->due_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

static int crowd_open(struct crowd *crowd) {
    crowd->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (crowd->epoll_fd < 0 || crowd->visitors == NULL)
        return complain("no memory, or no descriptor, for the crowd");
    for (uint32_t i = 0; i < crowd->count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        char *address = crowd->storm->board->addresses[crowd->first + i];
        weir_engine *engine = open_engine(crowd->storm, 2, true, &crowd->side->asked);
        crowd->visitors[i].engine = engine;
        if (engine == NULL)
            return -1;
        if (epoll_ctl(crowd->epoll_fd, EPOLL_CTL_ADD, weir_engine_fd(engine), &event) != 0 ||
            weir_engine_address(engine, address, WEIR_ADDRESS_MAX) != 0)
            return complain("an engine without a descriptor or an address");
    }
    if (crowd->first == 0 && crowd->storm->options->seconds > 0)
        return busy_allocate(crowd->visitors[0].engine, &crowd->storm->board->busy);
    return 0;
}

static void serve_due(struct crowd *crowd, uint64_t now, uint64_t *first_out) {
    *first_out = UINT64_MAX;
    for (uint32_t i = 0; i < crowd->count; i++) {
        struct visitor *visitor = &crowd->visitors[i];
        if (visitor->due_ns <= now)
            serve(crowd, visitor);
        *first_out = visitor->due_ns < *first_out ? visitor->due_ns : *first_out;
    }
}

static int serve_until(struct crowd *crowd, const atomic_bool *end) {
    struct epoll_event events[BATCH];
    uint64_t first = 0; /* the earliest that is due, or earlier */

    while (!atomic_load(end)) {
        uint64_t now = host_now_ns(), pause;
        int count;
        if (host_interrupted())
            return complain("interrupted");
        if (first <= now)
            serve_due(crowd, now, &first);
        now = host_now_ns();
        pause = first <= now ? 0 : first - now < WAIT_NS ? first - now : WAIT_NS;
        count =
            epoll_wait(crowd->epoll_fd, events, BATCH, (int)((pause + NS_PER_MS - 1) / NS_PER_MS));
        for (int i = 0; i < count; i++) {
            struct visitor *visitor = &crowd->visitors[events[i].data.u32];
            serve(crowd, visitor);
            first = visitor->due_ns < first ? visitor->due_ns : first;
        }
    }
    return 0;
}

static int crowd_meets(struct crowd *crowd) {
    const struct storm *storm = crowd->storm;
    uint64_t cpu = host_cpu_ns();

    for (uint32_t i = 0; i < crowd->count; i++) {
        struct visitor *visitor = &crowd->visitors[i];
        if (!storm->options->dial &&
            call(visitor->engine, storm->board->address, &visitor->callee) != 0)
            return -1;
        serve(crowd, visitor);
    }
    if (serve_until(crowd, &storm->board->counted) != 0)
        return -1;
    crowd->side->cpu_ns = host_cpu_ns() - cpu;
    if (serve_until(crowd, &storm->board->done) != 0)
        return -1;
    for (uint32_t i = 0; i < crowd->count; i++) {
        struct visitor *visitor = &crowd->visitors[i];
        if (!storm->options->dial)
            count_calls(visitor->engine, crowd->side, &visitor->callee, 1);
        if (count_messages(visitor->engine, crowd->side) != 0)
            return -1;
    }
    return 0;
}

static int crowd_run(struct crew *crew, unsigned index, void *context) {
    const struct storm *storm = context;
    struct crowd crowd = {
        .storm = storm, .side = &storm->board->crowds[index], .first = index * storm->crowd_most};
    int rc;

    crowd.count = storm->peers - crowd.first < storm->crowd_most ? storm->peers - crowd.first
                                                                 : storm->crowd_most;
    crowd.visitors = calloc(crowd.count, sizeof(*crowd.visitors));
    rc = crowd_open(&crowd);
    if (rc == 0) {
        crew_reach(crew, index, CREW_READY);
        wait_at(crew, CREW_GO);
        rc = crowd_meets(&crowd);
    }
    return rc == 0 ? leave(crew, index) : EXIT_FAILED;
}

/* ---- one size ----------------------------------------------------------- */

struct row {
    uint32_t peers, up, failed;
    uint32_t failures[ERRORS]; /* of the side that called; as many as failed */
    double seconds;
    struct {
        double cpu_ns, target_cpu_ns, sent, resent, stale;
    } each; /* handshake */
    struct memory memory;
    double busy_per_s; /* writes to one peer; 0: there were none */
};

static uint32_t crowds_of(const struct storm *storm) {
    return (storm->peers + storm->crowd_most - 1) / storm->crowd_most;
}

/* Events so far, of all processes of the crowd. */
static void crowd_so_far(const struct storm *storm, uint32_t *up_out, uint32_t *gone_out) {
    *up_out = *gone_out = 0;
    for (uint32_t i = 0; i < crowds_of(storm); i++) {
        *up_out += atomic_load(&storm->board->crowds[i].up);
        *gone_out += atomic_load(&storm->board->crowds[i].gone);
    }
}

static int look(struct storm *storm) {
    return crew_look(&storm->target) == 0 ? crew_look(&storm->crowds) : -1;
}

/* Until each is up on both sides, or has failed; or nobody more is, for too long. */
static int wait_up(struct storm *storm) {
    const struct side *target = &storm->board->target;
    struct progress progress;
    uint64_t since_ns = host_now_ns();
    uint32_t moved = 0;
    int rc = 0;

    progress_begin(&progress, "storm");
    for (;;) {
        uint32_t up, gone, there = atomic_load(&target->up), lost = atomic_load(&target->gone);
        crowd_so_far(storm, &up, &gone);
        if (up + gone + there + lost != moved)
            since_ns = host_now_ns();
        moved = up + gone + there + lost;
        if ((up >= storm->peers && there >= storm->peers) ||
            host_now_ns() - since_ns >= PATIENCE_NS)
            break;
        if (storm->options->dial ? there + lost >= storm->peers && up >= there
                                 : up + gone >= storm->peers && there >= up)
            break;
        rc = look(storm);
        if (rc != 0)
            break;
        progress_count(&progress, up < there ? up : there, storm->peers, "up");
        host_sleep_on(-1, -1, LOOK_NS);
    }
    progress_end(&progress);
    return rc;
}

/* Until all of the crew have come so far; they have to be done with it in time. */
static int wait_stage(struct storm *storm, struct crew *crew, enum crew_stage stage) {
    uint64_t until = host_now_ns() + PATIENCE_NS + storm->peers * STEP_NS;

    while (!crew_reached(crew, stage)) {
        if (look(storm) != 0)
            return -1;
        if (host_now_ns() >= until)
            return complain("bench storm: a %s does not run, or takes too long", crew->what);
        host_sleep_on(-1, -1, LOOK_NS);
    }
    return 0;
}

/* Until the target has written for as long as it was to. */
static int wait_written(struct storm *storm) {
    uint64_t until =
        host_now_ns() + PATIENCE_NS + (uint64_t)(storm->options->seconds * (double)NS_PER_S);

    atomic_store(&storm->board->counted, true);
    while (!atomic_load(&storm->board->written)) {
        if (look(storm) != 0)
            return -1;
        if (host_now_ns() >= until)
            return complain("bench storm: the writes to one peer do not end");
        host_sleep_on(-1, -1, LOOK_NS);
    }
    atomic_store(&storm->board->done, true);
    return 0;
}

static int measure(struct storm *storm) {
    struct crew *target = &storm->target, *crowds = &storm->crowds;

    if (crew_start(target, "target", 1, target_run, storm) != 0 ||
        wait_stage(storm, target, CREW_READY) != 0 ||
        crew_start(crowds, "crowd", crowds_of(storm), crowd_run, storm) != 0 ||
        wait_stage(storm, crowds, CREW_READY) != 0)
        return -1;
    atomic_store(&storm->board->go_ns, host_now_ns());
    crew_open(target, CREW_GO);
    crew_open(crowds, CREW_GO);
    if (wait_up(storm) != 0 || wait_written(storm) != 0)
        return -1;
    if (wait_stage(storm, target, CREW_DONE) != 0 || wait_stage(storm, crowds, CREW_DONE) != 0)
        return -1;
    crew_open(target, CREW_LEAVE);
    crew_open(crowds, CREW_LEAVE);
    return 0;
}

static void add_side(struct row *row, const struct side *side, double *cpu_ns) {
    *cpu_ns += (double)side->cpu_ns;
    row->each.sent += (double)side->counted.control_sent;
    row->each.resent += (double)side->counted.control_retransmits;
    row->each.stale += (double)side->counted.control_stale;
    for (int i = 0; i < ERRORS; i++)
        row->failures[i] += side->failures[i];
}

static void sum_up(const struct storm *storm, struct row *row) {
    const struct board *board = storm->board;
    const struct side *target = &board->target;
    uint64_t last_ns = atomic_load(&target->last_up_ns);
    uint32_t calling = 0, up, gone, called;
    double each;

    *row = (struct row){
        .peers = storm->peers, .memory = target->memory, .busy_per_s = board->busy_per_s};
    add_side(row, target, &row->each.target_cpu_ns);
    for (uint32_t i = 0; i < crowds_of(storm); i++) {
        uint64_t ns = atomic_load(&board->crowds[i].last_up_ns);
        add_side(row, &board->crowds[i], &row->each.cpu_ns);
        calling += board->crowds[i].connected;
        last_ns = ns > last_ns ? ns : last_ns;
    }
    crowd_so_far(storm, &up, &gone);
    called = up - gone;
    if (storm->options->dial) {
        calling = target->connected;
    } else {
        up = atomic_load(&target->up);
        gone = atomic_load(&target->gone);
        called = up - gone;
    }
    row->up = calling < called ? calling : called;
    row->failed = row->peers - row->up;
    row->failures[-WEIR_ENOTREADY] += calling - row->up; /* up here, and not there */
    row->seconds = (double)(last_ns > 0 ? last_ns - atomic_load(&board->go_ns) : 1) / 1e9;
    each = 1.0 / (row->up > 0 ? row->up : 1);
    row->each.cpu_ns *= each;
    row->each.target_cpu_ns *= each;
    row->each.sent *= each;
    row->each.resent *= each;
    row->each.stale *= each;
}

/* ---- rows --------------------------------------------------------------- */

static const char *kib_text(uint64_t bytes, uint32_t peers, char out[32]) {
    snprintf(out, 32, "%.1fK", (double)bytes / peers / 1024);
    return out;
}

static void print_head(FILE *out) {
    fprintf(out, "%6s %6s %6s %6s %6s %6s %6s %6s %6s %6s %7s\n", "peers", "up", "failed", "time",
            "up/s", "crowd", "target", "resent", "engine", "heap", "segment");
}

static void print_row(FILE *out, const struct row *row) {
    char text[32];

    fprintf(out, "%6u %6u %6u", row->peers, row->up, row->failed);
    fprintf(out, " %6s", report_cell_text(row->seconds * 1e9, text));
    fprintf(out, " %6.0f", row->up / row->seconds);
    fprintf(out, " %6s", report_cell_text(row->each.cpu_ns, text));
    fprintf(out, " %6s %6.3f", report_cell_text(row->each.target_cpu_ns, text), row->each.resent);
    fprintf(out, " %6s", kib_text(row->memory.engine, row->peers, text));
    fprintf(out, " %6s", kib_text(row->memory.heap, row->peers, text));
    fprintf(out, " %7s\n", kib_text(row->memory.segment, row->peers, text));
    if (row->busy_per_s > 0)
        fprintf(out, "%6s %.0f writes of %d bytes a second, to one of them\n", "", row->busy_per_s,
                BUSY_BYTES);
    fflush(out);
}

static void print_notes(FILE *out) {
    fprintf(out, "  time: until all were up; up/s: handshakes a second\n"
                 "  crowd, target: CPU time of a handshake, of those processes\n"
                 "  resent: messages that were said again, a handshake, by either side\n"
                 "  engine, heap, segment: memory of the target, a peer\n");
}

static json_t *failures_json(const struct row *row) {
    json_t *failures = json_object();

    for (int i = 0; i < ERRORS; i++) {
        if (row->failures[i] > 0)
            json_object_set_new(failures, weir_error_name(-i),
                                json_integer((json_int_t)row->failures[i]));
    }
    return failures;
}

static json_t *row_json(const struct row *row) {
    double peers = row->peers;
    json_t *json;

    json =
        json_pack("{s:i, s:i, s:i, s:o, s:f, s:f, s:{s:f, s:f}, s:f, s:f, s:f, s:{s:f, s:f, s:f}}",
                  "peers", (int)row->peers, "up", (int)row->up, "failed", (int)row->failed,
                  "failures", failures_json(row), "seconds", row->seconds, "handshakes_per_s",
                  row->up / row->seconds, "cpu_ns_per_handshake", "crowd", row->each.cpu_ns,
                  "target", row->each.target_cpu_ns, "sent_per_handshake", row->each.sent,
                  "resent_per_handshake", row->each.resent, "stale_per_handshake", row->each.stale,
                  "memory_bytes_per_peer", "engine", (double)row->memory.engine / peers, "heap",
                  (double)row->memory.heap / peers, "segment", (double)row->memory.segment / peers);
    if (json != NULL && row->busy_per_s > 0)
        json_object_set_new(json, "writes_per_s", json_real(row->busy_per_s));
    return json;
}

/* "WEIR_EMFILE (12), WEIR_ECONNECT (3)". */
static void failures_text(const struct row *row, char *out, size_t size) {
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < ERRORS && used + 1 < size; i++) {
        if (row->failures[i] > 0)
            used += (size_t)snprintf(out + used, size - used, "%s%s (%u)", used > 0 ? ", " : "",
                                     weir_error_name(-i), row->failures[i]);
    }
}

/* Whether the row is a success; what is wrong is complained of. */
static int judge(const struct row *row, const struct options *o) {
    char why[256];

    failures_text(row, why, sizeof(why));
    if (row->failed > 0)
        return complain("bench storm: %u of %u peers failed: %s", row->failed, row->peers, why);
    if (o->most_resent >= 0 && row->each.resent > o->most_resent)
        return complain("bench storm: of %u peers %.3f messages a handshake were said again, more "
                        "than --most-resent %g",
                        row->peers, row->each.resent, o->most_resent);
    return 0;
}

/* ---- the bench ---------------------------------------------------------- */

/* The target's counters, settings and first session, of the row that was last. */
static int add_target(struct report *report, const struct side *target) {
    if (report_stats(report, &target->counted) != 0 || report_settings(report, &target->asked) != 0)
        return -1;
    return report_grant(report, &target->granted);
}

static int storm_row(struct storm *storm, struct report *report, json_t *rows, struct row *row) {
    size_t bytes = sizeof(*storm->board) + storm->peers * sizeof(storm->board->addresses[0]);
    int rc = -1;

    storm->board = host_share(bytes);
    if (storm->board == NULL)
        return complain("out of memory");
    rc = measure(storm);
    if (crew_end(&storm->crowds) != 0 || crew_end(&storm->target) != 0)
        rc = -1;
    if (rc == 0) {
        sum_up(storm, row);
        print_row(report_out(storm->options), row);
        rc = json_array_append_new(rows, row_json(row)) == 0
                 ? add_target(report, &storm->board->target)
                 : complain("out of memory");
    }
    host_unmap(storm->board, bytes);
    return rc;
}

/* Whether so many have room. */
static int check_room(struct storm *storm, uint32_t peers) {
    uint64_t room = crew_peers(storm->options->device), each = host_descriptors();

    each = each > FDS_PROCESS ? (each - FDS_PROCESS) / FDS_VISITOR : 0;
    storm->crowd_most = each < CROWD_MAX ? (uint32_t)each : CROWD_MAX;
    room = room < each * CROWDS_MAX ? room : each * CROWDS_MAX;
    if (peers > room)
        return complain("bench storm: the descriptors that a process may have (ulimit -n) are "
                        "enough for %" PRIu64 " peers",
                        room);
    return host_check_memory("bench storm", TARGET_BYTES + peers * (VISITOR_KIB << 10));
}

static int storm_run(struct storm *storm, struct report *report, json_t *rows, bool *well_out) {
    uint32_t sizes[OPTIONS_COUNTS_MAX], most = 0;
    unsigned count = options_counts(storm->options->peers, sizes);
    FILE *out = report_out(storm->options);
    struct row row = {.failed = 0};

    *well_out = true;
    for (unsigned i = 0; i < count; i++)
        most = sizes[i] > most ? sizes[i] : most;
    if (check_room(storm, most) != 0)
        return -1;
    print_head(out);
    for (unsigned i = 0; i < count; i++) {
        storm->peers = sizes[i];
        if (storm_row(storm, report, rows, &row) != 0)
            return -1;
        if (judge(&row, storm->options) != 0)
            *well_out = false;
    }
    print_notes(out);
    return 0;
}

int bench_storm(const struct options *options) {
    static struct storm storm; /* 4 KiB */
    struct report report;
    json_t *rows = json_array();
    bool well = false;
    int rc = -1;

    storm.options = options;
    if (report_begin(&report, options) == 0) {
        rc = storm_run(&storm, &report, rows, &well);
        if (rc == 0)
            rc = report_set(&report, "rows", json_incref(rows));
        if (rc == 0)
            rc = report_end(&report);
        report_free(&report);
    }
    json_decref(rows);
    return rc == 0 && well ? EXIT_OK : EXIT_FAILED;
}
