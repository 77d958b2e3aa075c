/* SPDX-License-Identifier: Apache-2.0 */
/* recovery.c: how long it takes from a QP in the error state until all that was in flight is
 * done again, and what that time consists of.
 *
 *   recovery [--device NAME] [--processes 1|2] [--poll] [--inline] [--breaks N] [--seed N]
 *            [--most-ms MS] [--json FILE]
 *
 * Two engines, 64 transfers of 64 KiB in flight: writes, reads, notified ones. A QP is broken
 * behind the engine's back on the initiator's side, on the target's, on both at once, N times
 * each (recovery_tap.h). None may be lost: each transfer ends well, the bytes are there, each
 * notification came once. --poll: the application's loop makes progress, not a thread of the
 * engine. --inline: shm as it is, broken between two posts; without it, work waits in a queue
 * in front of shm, so that all 64 are in flight. On verbs RDMA_A and RDMA_B name the devices.
 * "With a CPU" are those during which no thread of ours was ready to run, and did not, for half
 * a millisecond in all: the rest is the machine's doing. Status 1: something was lost, or the 99th
 * percentile is over --most-ms. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recovery_tap.h"
#include "weir.h"

enum { TRANSFERS = 64, BYTES = 65536, HALF = TRANSFERS * BYTES, BREAKS_MAX = 10000 };
#define SECOND      UINT64_C(1000000000)
#define PATIENCE_NS (60 * SECOND)
#define CALM_NS     (SECOND / 2000)

enum who { WHO_INITIATOR, WHO_TARGET, WHO_BOTH, WHO_COUNT };
static const char *const who_names[WHO_COUNT] = {"initiator", "target", "both"};

static struct {
    const char *device, *json;
    unsigned processes, breaks;
    bool poll, inline_;
    uint64_t seed;
    double most_ms;
} asked = {.device = "shm", .processes = 1, .breaks = 200, .seed = 1};

/* The request to the target, and what both can see of each other. */
enum { ASK_NOTHING, ASK_CHECK, ASK_END };
struct board {
    struct tap_shared initiator, target;
    _Atomic uint32_t ask, round, answered;
    uint32_t wrong;           /* bytes of what was written */
    uint32_t came[TRANSFERS]; /* notifications of this round */
    uint32_t strays;          /* and of others */
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t descriptor_length;
};
static struct board *board;

static pid_t far_pid;
static struct tap *near, *far; /* far: NULL in the process of the initiator, with two */
static uint8_t *near_bytes, *far_bytes;
static weir_memory near_memory;
static weir_peer peer;
static weir_remote remote;

static _Noreturn void fail(const char *what, int error) {
    fprintf(stderr, "recovery: %s%s%s\n", what, error != 0 ? ": " : "",
            error != 0 ? weir_strerror(error) : "");
    exit(1);
}

static void must(int rc, const char *what) {
    if (rc != WEIR_OK)
        fail(what, rc);
}

static uint64_t draw(uint64_t below) {
    asked.seed = asked.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (asked.seed >> 33) % below;
}

/* Each round its own bytes, each transfer too. */
static uint64_t word_of(uint32_t round, uint32_t transfer, uint32_t at) {
    return ((uint64_t)round << 40 ^ (uint64_t)transfer << 32 ^ at) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(uint8_t *bytes, uint32_t round, uint32_t transfer) {
    for (uint32_t at = 0; at < BYTES; at += 8) {
        uint64_t word = word_of(round, transfer, at);
        memcpy(bytes + at, &word, 8);
    }
}

static uint32_t wrong_in(const uint8_t *bytes, uint32_t round, uint32_t transfer) {
    uint32_t wrong = 0;
    for (uint32_t at = 0; at < BYTES; at += 8) {
        uint64_t word = word_of(round, transfer, at);
        wrong += memcmp(bytes + at, &word, 8) != 0 ? 8 : 0;
    }
    return wrong;
}

static bool is_read(uint32_t transfer) {
    return transfer % 4 == 3;
}

static bool is_notified(uint32_t transfer) {
    return transfer % 2 == 1; /* half of the writes are not, all reads are */
}

/* ---- the engines -------------------------------------------------------- */

static struct tap *open_engine(const char *rdma_device, bool queues, struct tap_shared *shared) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    if (rdma_device != NULL)
        setenv("WEIR_VERBS_DEVICE", rdma_device, 1);
    options.device = asked.device;
    options.flags = asked.poll ? 0 : WEIR_ENGINE_THREAD;
    options.transfers_max = 2 * TRANSFERS;
    options.segments_max = 4096;
    options.peers_max = 16;
    options.memories_max = options.remotes_max = 16;
    options.notifications_max = 1024;
    struct tap *tap = tap_open(&options, queues, shared);
    if (tap == NULL)
        exit(77);
    return tap;
}

/* The first half of the memory is written to, the second read from. */
static void far_open(void) {
    weir_memory memory;
    void *base;
    far = open_engine(getenv("RDMA_B"), false, &board->target);
    must(weir_memory_allocate(tap_engine(far), 2 * HALF, WEIR_ACCESS_ALL, &memory, &base),
         "memory");
    far_bytes = base;
    for (uint32_t i = 0; i < TRANSFERS; i++)
        fill(far_bytes + HALF + i * BYTES, UINT32_MAX, i);
    board->descriptor_length = sizeof(board->descriptor);
    must(weir_memory_export(tap_engine(far), memory, board->descriptor, &board->descriptor_length),
         "export");
    must(weir_engine_address(tap_engine(far), board->address, sizeof(board->address)), "address");
}

/* The target's part of what was asked. */
static void far_answer(void) {
    uint32_t ask = atomic_load(&board->ask), round = atomic_load(&board->round);
    weir_notification notification;
    weir_event event;
    while (weir_event_take(tap_engine(far), &event) == WEIR_OK)
        continue;
    while (weir_notification_take(tap_engine(far), &notification) == WEIR_OK) {
        if (notification.tag / TRANSFERS == round)
            board->came[notification.tag % TRANSFERS]++;
        else
            board->strays++;
    }
    if (ask != ASK_CHECK || atomic_load(&board->answered) == round)
        return;
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        if (is_notified(i) && board->came[i] == 0)
            return; /* not yet */
    }
    board->wrong = 0;
    for (uint32_t i = 0; i < TRANSFERS; i++)
        board->wrong += is_read(i) ? 0 : wrong_in(far_bytes + i * BYTES, round, i);
    atomic_store(&board->answered, round);
}

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static _Noreturn void far_process(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    far_open();
    atomic_store(&board->answered, UINT32_MAX);
    for (uint32_t turn = 0; atomic_load(&board->ask) != ASK_END; turn++) {
        if (asked.poll)
            weir_engine_progress(tap_engine(far));
        else
            pause_us(100);
        if (atomic_load(&board->target.break_wanted))
            tap_wake(far);
        if (!asked.poll || turn % 64 == 0 || atomic_load(&board->ask) == ASK_CHECK)
            far_answer();
    }
    tap_close(far);
    exit(0);
}

static _Noreturn void fail_stuck(const char *what) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    must(weir_engine_query(tap_engine(near), &stats), "stats");
    fprintf(stderr,
            "recovery: %s; round %u: sessions up %llu, broken %llu, retired %llu, replays %llu; "
            "QPs made %u and %u, there are %u and %u; wanted to break %d and %d\n",
            what, atomic_load(&board->round), (unsigned long long)stats.sessions_up,
            (unsigned long long)stats.sessions_failed, (unsigned long long)stats.sessions_retired,
            (unsigned long long)stats.replays, atomic_load(&board->initiator.made),
            atomic_load(&board->target.made), atomic_load(&board->initiator.qps),
            atomic_load(&board->target.qps), atomic_load(&board->initiator.break_wanted),
            atomic_load(&board->target.break_wanted));
    exit(1);
}

/* One turn of whoever waits for something. */
static void turn(uint64_t begun_ns, const char *what) {
    static uint32_t turns;
    if (asked.poll) {
        weir_engine_progress(tap_engine(near));
        if (far != NULL)
            weir_engine_progress(tap_engine(far));
    } else {
        pause_us(20);
    }
    if (far != NULL && (!asked.poll || ++turns % 64 == 0))
        far_answer();
    if (tap_now() - begun_ns > PATIENCE_NS)
        fail_stuck(what);
}

#define UNTIL(condition, what)                                                                     \
    do {                                                                                           \
        uint64_t until_begun_ns = tap_now();                                                       \
        while (!(condition))                                                                       \
            turn(until_begun_ns, what);                                                            \
    } while (0)

static void open_both(void) {
    void *base;
    if (asked.processes == 1) {
        far_open();
    } else {
        pid_t pid = fork();
        if (pid < 0)
            fail("fork", 0);
        if (pid == 0)
            far_process();
        far_pid = pid;
        for (uint64_t begun = tap_now(); atomic_load(&board->answered) == 0;) {
            if (waitpid(pid, NULL, WNOHANG) == pid)
                exit(77); /* it said why */
            if (tap_now() - begun > PATIENCE_NS)
                fail("the target does not come up", 0);
            pause_us(1000);
        }
    }
    near = open_engine(getenv("RDMA_A"), strcmp(asked.device, "shm") == 0 && !asked.inline_,
                       &board->initiator);
    must(weir_memory_allocate(tap_engine(near), HALF, WEIR_ACCESS_ALL, &near_memory, &base),
         "memory");
    near_bytes = base;
    must(weir_peer_open(tap_engine(near), board->address, &peer), "peer");
    must(weir_memory_import(tap_engine(near), peer, board->descriptor, board->descriptor_length,
                            &remote),
         "import");
    UNTIL(weir_peer_connect(tap_engine(near), peer) == WEIR_OK, "no connection");
}

/* ---- a round ------------------------------------------------------------ */

struct round {
    uint64_t total_ns;
    uint64_t calm_ns; /* the same, if no thread waited long for a CPU meanwhile; or 0 */
    uint64_t near[TAP_STAMPS], far[TAP_STAMPS]; /* after the break; 0: did not happen */
    uint32_t made;                              /* QPs of the initiator */
};

static weir_transfer transfers[TRANSFERS];

static void submit(uint32_t from, uint32_t to, uint32_t round) {
    for (uint32_t i = from; i < to; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        uint64_t at = (uint64_t)i * BYTES;
        weir_segment segment = {near_memory, remote, at, is_read(i) ? HALF + at : at, BYTES};
        if (is_notified(i)) {
            options.flags = WEIR_TRANSFER_NOTIFY;
            options.notify_tag = (uint64_t)round * TRANSFERS + i;
        }
        must((is_read(i) ? weir_read : weir_write)(tap_engine(near), peer, &segment, 1, &options,
                                                   &transfers[i]),
             "submit");
    }
}

static uint32_t unfinished(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TRANSFERS; i++)
        count += weir_transfer_status(tap_engine(near), transfers[i]) == WEIR_EINPROGRESS;
    return count;
}

static bool in_flight(uint32_t wrs) {
    return atomic_load(&board->initiator.queued) >= wrs;
}

/* Whether the break asked for was done. Of two breaks one may come too late: the engine has heard
 * of the other, and given the session up. */
static bool broke_at(struct tap_shared *shared) {
    return !atomic_load(&shared->break_wanted) && atomic_load(&shared->break_after) == 0;
}

static bool broke(enum who who) {
    bool near_broke = atomic_load(&board->initiator.stamps[TAP_BROKE]) != 0;
    bool far_broke = atomic_load(&board->target.stamps[TAP_BROKE]) != 0;
    if (!broke_at(&board->initiator) || !broke_at(&board->target))
        return false;
    return who == WHO_BOTH ? near_broke || far_broke
                           : (who == WHO_INITIATOR ? near_broke : far_broke);
}

static void ask_break(enum who who) {
    if (who != WHO_INITIATOR)
        atomic_store(&board->target.break_wanted, true);
    if (who != WHO_TARGET)
        atomic_store(&board->initiator.break_wanted, true);
    if (who != WHO_TARGET)
        tap_wake(near);
    if (who != WHO_INITIATOR && far != NULL)
        tap_wake(far);
}

/* All 64 in flight, some of them executed, then the break. */
static void run_queued(enum who who, uint32_t round) {
    atomic_store(&board->initiator.budget, 0);
    submit(0, TRANSFERS, round);
    /* The notification of a read is posted when the data is there. */
    UNTIL(in_flight(TRANSFERS + TRANSFERS / 4), "never all in flight");
    atomic_store(&board->initiator.budget, draw(TRANSFERS));
    ask_break(who);
    UNTIL(broke(who), "never broke");
    atomic_store(&board->initiator.budget, UINT64_MAX);
    tap_wake(near);
}

/* Broken between the posts of shm as it is. */
static void run_inline(enum who who, uint32_t round) {
    uint32_t before = (uint32_t)draw(TRANSFERS - 8);
    if (who != WHO_TARGET)
        atomic_store(&board->initiator.break_after, before + 1);
    submit(0, before, round);
    if (who != WHO_INITIATOR) {
        ask_break(WHO_TARGET);
        UNTIL(broke_at(&board->target), "never broke");
    }
    submit(before, TRANSFERS, round);
    UNTIL(broke(who), "never broke");
}

/* How long the threads of this process, and of the target's, were ready to run and did not. */
static uint64_t waited_ns(void) {
    char path[64];
    uint64_t all = 0;
    const int pids[2] = {(int)getpid(), far_pid};
    for (int i = 0; i < 2 && pids[i] != 0; i++) {
        struct dirent *entry;
        snprintf(path, sizeof(path), "/proc/%d/task", pids[i]);
        DIR *tasks = opendir(path);
        while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
            unsigned long long ran, waited;
            snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", pids[i], entry->d_name);
            FILE *file = fopen(path, "r");
            if (file != NULL && fscanf(file, "%llu %llu", &ran, &waited) == 2)
                all += waited;
            if (file != NULL)
                fclose(file);
        }
        if (tasks != NULL)
            closedir(tasks);
    }
    return all;
}

/* A device that takes its time. */
static void run_slow(enum who who, uint32_t round) {
    uint32_t left = TRANSFERS - (uint32_t)draw(TRANSFERS / 4);
    submit(0, TRANSFERS, round);
    UNTIL(unfinished() <= left, "never done");
    ask_break(who);
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void begin_notes(struct tap_shared *shared) {
    for (uint32_t i = 0; i < TAP_STAMPS; i++)
        atomic_store(&shared->stamps[i], 0);
    atomic_store(&shared->made, 0);
    atomic_fetch_add(&shared->round, 1);
    atomic_store(&shared->noting, true);
}

static void take_notes(struct tap_shared *shared, uint64_t from_ns, uint64_t *out) {
    atomic_store(&shared->noting, false);
    for (uint32_t i = 0; i < TAP_STAMPS; i++) {
        uint64_t at = atomic_load(&shared->stamps[i]);
        out[i] = at > from_ns ? at - from_ns : 0;
    }
}

static uint64_t verified; /* notified transfers */

/* Everything ended well, with the right bytes and one notification each. */
static void verify(uint32_t round) {
    uint32_t wrong = 0, twice = 0;
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        verified += is_notified(i);
        must(weir_transfer_status(tap_engine(near), transfers[i]), "a transfer was lost");
        if (transfers[i].id != 0)
            must(weir_transfer_release(tap_engine(near), transfers[i]), "release");
        if (is_read(i))
            wrong += wrong_in(near_bytes + i * BYTES, UINT32_MAX, i);
    }
    atomic_store(&board->ask, ASK_CHECK);
    UNTIL(atomic_load(&board->answered) == round, "a notification was lost");
    atomic_store(&board->ask, ASK_NOTHING);
    for (uint32_t i = 0; i < TRANSFERS; i++)
        twice += board->came[i] > is_notified(i);
    if (wrong + board->wrong + twice + board->strays > 0) {
        fprintf(stderr,
                "recovery: round %u: %u wrong bytes read, %u written, %u + %u notified "
                "twice\n",
                round, wrong, board->wrong, twice, board->strays);
        exit(1);
    }
    weir_event event;
    while (weir_event_take(tap_engine(near), &event) == WEIR_OK)
        continue;
}

static bool quiet(void) {
    return atomic_load(&board->initiator.qps) == 1 && atomic_load(&board->target.qps) == 1 &&
           weir_peer_connect(tap_engine(near), peer) == WEIR_OK;
}

/* False: the round tells nothing, since all was done when the QP broke. Some devices say nothing
 * of a QP that fails while it is idle: the next round finds out, and tells nothing either. All of
 * it is verified all the same. */
static bool run_round(enum who who, uint32_t number, struct round *round) {
    UNTIL(quiet(), "never quiet");
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        if (is_read(i))
            memset(near_bytes + i * BYTES, 0, BYTES);
        else
            fill(near_bytes + i * BYTES, number, i);
    }
    memset(board->came, 0, sizeof(board->came));
    atomic_store(&board->round, number);
    begin_notes(&board->initiator);
    begin_notes(&board->target);
    uint64_t waited_before_ns = waited_ns();
    if (strcmp(asked.device, "shm") != 0)
        run_slow(who, number);
    else if (asked.inline_)
        run_inline(who, number);
    else
        run_queued(who, number);
    /* The last may end before an earlier one is looked at: no harm. */
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        if (asked.poll)
            UNTIL(weir_transfer_status(tap_engine(near), transfers[i]) != WEIR_EINPROGRESS,
                  "a transfer does not end");
        else if (weir_transfer_wait(tap_engine(near), transfers[i], PATIENCE_NS) ==
                 WEIR_EINPROGRESS)
            fail("a transfer does not end", 0);
    }
    uint64_t end_ns = tap_now();
    bool calm = waited_ns() - waited_before_ns < CALM_NS;
    for (uint64_t begun_ns = tap_now(); !broke(who);) {
        /* The one that was to break had gone, or was new already: a break that was found late. */
        if (tap_now() - begun_ns > SECOND &&
            (atomic_load(&board->initiator.made) > 0 || atomic_load(&board->target.made) > 0))
            break;
        turn(begun_ns, "was done before it broke");
    }
    uint64_t seen_ns = atomic_load(&board->initiator.stamps[TAP_SEEN]);
    bool told = broke(who) && seen_ns != 0 && seen_ns <= end_ns;
    uint64_t from_ns = earlier(atomic_load(&board->initiator.stamps[TAP_BROKE]),
                               atomic_load(&board->target.stamps[TAP_BROKE]));
    *round = (struct round){.total_ns = end_ns > from_ns ? end_ns - from_ns : 0,
                            .made = atomic_load(&board->initiator.made)};
    round->calm_ns = calm ? round->total_ns : 0;
    UNTIL(quiet(), "never quiet");
    take_notes(&board->initiator, from_ns, round->near);
    take_notes(&board->target, from_ns, round->far);
    verify(number);
    return told;
}

/* ---- the report --------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

struct spread {
    uint32_t count;
    double p50, p99, most; /* ms */
};

/* Of values that are not 0. */
static struct spread spread_of(uint64_t *values, uint32_t count) {
    uint32_t first = 0;
    qsort(values, count, sizeof(*values), compare);
    while (first < count && values[first] == 0)
        first++;
    uint32_t left = count - first;
    if (left == 0)
        return (struct spread){0};
    values += first;
    return (struct spread){left, (double)values[(left - 1) / 2] / 1e6,
                           (double)values[left - 1 - left / 100] / 1e6,
                           (double)values[left - 1] / 1e6};
}

static struct spread spread_at(const struct round *rounds, size_t offset) {
    static uint64_t values[BREAKS_MAX];
    for (uint32_t i = 0; i < asked.breaks; i++)
        memcpy(&values[i], (const uint8_t *)&rounds[i] + offset, sizeof(values[i]));
    return spread_of(values, asked.breaks);
}

static void print_side(const char *side, const struct round *rounds, size_t offset) {
    for (uint32_t i = 0; i < TAP_STAMPS; i++) {
        struct spread spread = spread_at(rounds, offset + i * sizeof(uint64_t));
        if (spread.count > asked.breaks / 2 && spread.most > 0)
            printf("#     %-10s %-14s %9.3f %9.3f %9.3f\n", side, tap_stamp_name(i), spread.p50,
                   spread.p99, spread.most);
    }
}

/* False: over the bound. */
static bool report(enum who who, const struct round *rounds, FILE *json) {
    struct spread total = spread_at(rounds, offsetof(struct round, total_ns));
    uint32_t again = 0;
    for (uint32_t i = 0; i < asked.breaks; i++)
        again += rounds[i].made > 1;
    printf("# broken on: %-12s %u times     p50       p99       max  ms after the break\n",
           who_names[who], asked.breaks);
    print_side("initiator", rounds, offsetof(struct round, near));
    print_side("target", rounds, offsetof(struct round, far));
    printf("#     %-25s %9.3f %9.3f %9.3f\n", "all done", total.p50, total.p99, total.most);
    struct spread calm = spread_at(rounds, offsetof(struct round, calm_ns));
    printf("#     %-25s %9.3f %9.3f %9.3f  (%u)\n", "...of those with a CPU", calm.p50, calm.p99,
           calm.most, calm.count);
    if (again > 0)
        printf("#     more than one attempt or session in %u\n", again);
    fflush(stdout);
    if (json != NULL)
        fprintf(json,
                "%s\"%s\": {\"breaks\": %u, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
                "\"max_ms\": %.3f}",
                who == 0 ? "" : ", ", who_names[who], asked.breaks, total.p50, total.p99,
                total.most);
    return asked.most_ms == 0 || total.p99 <= asked.most_ms;
}

static bool run_all(void) {
    struct round *rounds = calloc(asked.breaks, sizeof(*rounds));
    FILE *json = asked.json != NULL ? fopen(asked.json, "w") : NULL;
    uint32_t number = 1;
    bool good = true;
    if (rounds == NULL || (asked.json != NULL && json == NULL))
        fail("no memory, or no file", 0);
    printf("# %s%s, %u process%s, %s; %u transfers of %u bytes in flight\n", asked.device,
           asked.inline_ ? " as it is" : "", asked.processes, asked.processes == 1 ? "" : "es",
           asked.poll ? "the application polls" : "threads of the engines", TRANSFERS, BYTES);
    if (json != NULL)
        fprintf(json,
                "{\"bench\": \"recovery\", \"device\": \"%s\", \"inline\": %s, "
                "\"processes\": %u, \"poll\": %s, \"broken\": {",
                asked.device, asked.inline_ ? "true" : "false", asked.processes,
                asked.poll ? "true" : "false");
    for (enum who who = 0; who < WHO_COUNT; who++) {
        struct round warm;
        uint32_t idle = 0;
        run_round(who, number++, &warm);
        for (uint32_t i = 0; i < asked.breaks; i++) {
            while (!run_round(who, number++, &rounds[i])) {
                if (++idle > 10 * asked.breaks)
                    fail("all is done before it breaks, again and again", 0);
            }
        }
        good &= report(who, rounds, json);
        if (idle > 0)
            printf("#     not counted, as nothing was in flight: %u\n", idle);
    }
    if (json != NULL) {
        fputs("}}\n", json);
        fclose(json);
    }
    free(rounds);
    return good;
}

static bool parse(int argc, char **argv) {
    static const struct option LONG[] = {{"device", required_argument, NULL, 'd'},
                                         {"processes", required_argument, NULL, 'p'},
                                         {"poll", no_argument, NULL, 'o'},
                                         {"inline", no_argument, NULL, 'i'},
                                         {"breaks", required_argument, NULL, 'b'},
                                         {"seed", required_argument, NULL, 's'},
                                         {"most-ms", required_argument, NULL, 'm'},
                                         {"json", required_argument, NULL, 'j'},
                                         {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        switch (c) {
        case 'd':
            asked.device = optarg;
            break;
        case 'p':
            asked.processes = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'o':
            asked.poll = true;
            break;
        case 'i':
            asked.inline_ = true;
            break;
        case 'b':
            asked.breaks = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            asked.seed = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            asked.most_ms = strtod(optarg, NULL);
            break;
        case 'j':
            asked.json = optarg;
            break;
        default:
            return false;
        }
    }
    return optind == argc && asked.breaks > 0 && asked.breaks <= BREAKS_MAX &&
           (asked.processes == 1 || asked.processes == 2);
}

int main(int argc, char **argv) {
    if (!parse(argc, argv)) {
        fputs("usage: recovery [--device NAME] [--processes 1|2] [--poll] [--inline]\n"
              "                [--breaks N] [--seed N] [--most-ms MS] [--json FILE]\n",
              stderr);
        return 2;
    }
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        fail("no memory", 0);
    open_both();
    bool good = run_all();
    tap_close(near);
    atomic_store(&board->ask, ASK_END);
    int status = 0;
    if (far != NULL)
        tap_close(far);
    else
        wait(&status);
    printf("# in all: %" PRIu64 " notified transfers in %u breaks, each there and told once\n",
           verified, (unsigned)WHO_COUNT * asked.breaks);
    if (!good)
        printf("over %.1f ms\n", asked.most_ms);
    return good && status == 0 ? 0 : 1;
}
