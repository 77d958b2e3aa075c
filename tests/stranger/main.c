/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the harm that a stranger can do to a busy pair.
 *
 *   stranger SECONDS [--seed N] [--alone]
 *
 * Two processes, each with an engine with default settings on shm, are busy with each other
 * (pair.c). A third one can connect to both, and asks who is there; it says well-formed messages of
 * every type in the name of either, of itself and of others, with numbers that are right, nearly
 * right and wrong, and shows itself where descriptors are handed over (stranger.c, says.c,
 * hands.c). After SECONDS it leaves, the pair ends what it has begun, and what was done and seen is
 * printed.
 *
 * Exit status 1: a promise was broken. A transfer failed, content was wrong, a notification was
 * lost or came twice or came from nobody, a side was told that the other one is gone, a session
 * broke that nobody broke on purpose, a pass was shown to the stranger, or (with at least a minute)
 * descriptors or memory grow. With --alone there is no stranger. No speed is judged. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"

enum {
    PROCESSES = 3, /* the two sides, and the stranger */
    LONG_S = 60,   /* from here on growth is judged, and descriptors are awaited */
    ROOM_KIB = 16 * 1024,
    ROOM_FDS = 8,
};
#define PATIENCE_NS (120 * SECOND) /* of what comes when it comes: only a hang takes as long */

struct board *board;

/* The memory and the descriptors that a process holds. */
struct held {
    uint64_t rss_kib, fds;
};
static struct held at_begin[2], most[2], half[2], at_end[2];
static pid_t pids[PROCESSES];

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

_Noreturn void give_up(const char *what, int error) {
    fprintf(stderr, "stranger: %s%s%s\n", what, error != 0 ? ": " : "",
            error != 0 ? weir_strerror(error) : "");
    exit(2);
}

static struct held look(int which) {
    struct held held = {0};
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pids[which]);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "VmRSS: %" SCNu64, &held.rss_kib);
    if (file != NULL)
        fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pids[which]);
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL)
        held.fds++;
    if (directory != NULL)
        closedir(directory);
    return held;
}

static void look_at_both(struct held *out) {
    for (int i = 0; i < 2; i++) {
        out[i] = look(i);
        if (out[i].rss_kib > most[i].rss_kib)
            most[i].rss_kib = out[i].rss_kib;
        if (out[i].fds > most[i].fds)
            most[i].fds = out[i].fds;
    }
}

/* ---- the course of it --------------------------------------------------- */

static void start(int which) {
    fflush(NULL);
    pids[which] = fork();
    if (pids[which] < 0)
        give_up("fork", WEIR_ENOMEM);
    if (pids[which] != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    exit(which < 2 ? side_main(which) : stranger_main());
}

/* False: it has ended, and not as it should. */
static bool is_well(int which) {
    int status;
    if (pids[which] == 0 || waitpid(pids[which], &status, WNOHANG) == 0)
        return true;
    fprintf(stderr, "stranger: process %d ended with status %#x\n", which, (unsigned)status);
    pids[which] = 0;
    return false;
}

static bool are_idle(void) {
    return board->sides[0].idle && board->sides[1].idle &&
           board->sides[0].sent == board->sides[1].arrived &&
           board->sides[1].sent == board->sides[0].arrived;
}

/* Until the pair is idle, or for the time. False: a process has ended. */
static bool watch(uint64_t for_ns, bool until_idle) {
    uint64_t end = now_ns() + for_ns;
    struct held now[2];
    while (now_ns() < end && !(until_idle && are_idle())) {
        usleep(50000);
        look_at_both(now);
        for (int i = 0; i < PROCESSES; i++) {
            if (!is_well(i))
                return false;
        }
    }
    return true;
}

/* False: it does not end by itself. */
static bool end(int which) {
    uint64_t until = now_ns() + PATIENCE_NS;
    int status;
    if (pids[which] == 0)
        return true;
    while (waitpid(pids[which], &status, WNOHANG) == 0) {
        if (now_ns() > until) {
            fprintf(stderr, "stranger: process %d does not end\n", which);
            kill(pids[which], SIGKILL);
        }
        usleep(10000);
    }
    pids[which] = 0;
    return status == 0;
}

/* Descriptors of a side that keeps too many, by what they are. */
static void show_descriptors(int which) {
    char path[300], target[128];
    struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pids[which]);
    bool too_many = at_end[which].fds > at_begin[which].fds + ROOM_FDS;
    DIR *directory = too_many ? opendir(path) : NULL;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pids[which], entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length > 0)
            printf("side %d keeps %s: %.*s\n", which, entry->d_name, (int)length, target);
    }
    if (directory != NULL)
        closedir(directory);
}

/* Everything that the stranger left is gone when nobody has waited for it any longer. */
static void settle(void) {
    uint64_t until = now_ns() + 60 * SECOND;
    look_at_both(at_end);
    while (now_ns() < until && (at_end[0].fds > at_begin[0].fds + ROOM_FDS ||
                                at_end[1].fds > at_begin[1].fds + ROOM_FDS)) {
        usleep(100000);
        look_at_both(at_end);
    }
    for (int i = 0; i < 2; i++)
        show_descriptors(i);
}

static bool play(uint64_t seconds) {
    start(0);
    start(1);
    for (bool both = false; !both; both = board->sides[0].idle && board->sides[1].idle) {
        if (!watch(100 * MS, false))
            return false;
    }
    board->phase = PHASE_RUN;
    look_at_both(at_begin);
    if (!board->alone)
        start(2);
    bool well = watch(seconds * SECOND / 2, false);
    look_at_both(half);
    well = well && watch(seconds * SECOND / 2, false);
    board->stranger_leaves = true;
    well = end(2) && well;
    if (well && seconds >= LONG_S)
        settle();
    else
        look_at_both(at_end);
    board->phase = PHASE_FINISH;
    well = well && watch(PATIENCE_NS, true);
    board->phase = PHASE_LEAVE;
    for (int i = 0; i < 2; i++)
        well = end(i) && well;
    return well;
}

/* ---- what is said of it -------------------------------------------------- */

static void show_deeds(void) {
    static const char *const conns[CONN_DEEDS] = {"connections made",
                                                  "accepted",
                                                  "closed",
                                                  "reset",
                                                  "left silent",
                                                  "half a message",
                                                  "bursts",
                                                  "never read",
                                                  "closed by the other side",
                                                  "sessions made"};
    static const char *const hands[HAND_DEEDS] = {
        "called",         "true question",    "false question",
        "short question", "with descriptors", "silent",
        "as nobody",      "answers taken",    "descriptors taken",
        "calls taken",    "false answers",    "with false descriptors",
        "not answered",   "refused"};
    const struct deeds *deeds = &board->deeds;
    printf("the stranger said (and heard):\n");
    for (int type = WIRE_WHO; type < WIRE_TYPE_END; type++)
        printf("  %-9s %10" PRIu64 " (%" PRIu64 ")\n", wire_type_name((enum wire_type)type),
               deeds->said[type], deeds->heard[type]);
    printf("  as the peer %" PRIu64 ", as itself %" PRIu64 ", as others %" PRIu64
           "; passes overheard %" PRIu64 "\n",
           deeds->as_peer, deeds->as_self, deeds->as_others, deeds->passes_overheard);
    printf("control:");
    for (int i = 0; i < CONN_DEEDS && conns[i] != NULL; i++)
        printf("%s %s %" PRIu64, i > 0 ? "," : "", conns[i], deeds->conns[i]);
    printf("\nhand-over:");
    for (int i = 0; i < HAND_DEEDS && hands[i] != NULL; i++)
        printf("%s %s %" PRIu64, i > 0 ? "," : "", hands[i], deeds->hands[i]);
    printf("\n");
}

static void show_events(const char *of, const uint64_t *events) {
    static const char *const names[EVENT_TYPES] = {
        "", "UP", "DEGRADED", "RECOVERED", "GONE", "LOST", "SAME", "REFUSED", "DEVICE_FAILED"};
    printf("  events of %s:", of);
    for (int i = 1; i < EVENT_TYPES; i++) {
        if (events[i] != 0)
            printf(" %s %" PRIu64, names[i], events[i]);
    }
    printf("\n");
}

static void show_side(int which) {
    const struct report *report = &board->sides[which].report;
    const struct report *other = &board->sides[1 - which].report;
    const weir_engine_info *stats = &report->stats;
    printf("side %d: transfers ok %" PRIu64 ", failed %" PRIu64 ", broken on purpose %" PRIu64
           "; verified: reads %" PRIu64 ", bytes %" PRIu64 "; wrong %" PRIu64 "\n",
           which, report->transfers_ok, report->transfers_failed, report->broken_on_purpose,
           report->reads_verified, report->bytes_verified, report->wrong_bytes);
    printf("  notifications: sent %" PRIu64 ", arrived %" PRIu64 ", lost %" PRId64
           ", doubled %" PRIu64 ", foreign %" PRIu64 ", under another name %" PRIu64 "\n",
           report->sent, report->arrived, (int64_t)(other->sent - report->arrived), report->doubled,
           report->foreign, report->renamed);
    show_events("the other side", report->own_events);
    show_events("others", report->other_events);
    printf("  opened again %" PRIu64
           " times, the longest took %.1f ms, imports tried again %" PRIu64
           "; longest between two ends of transfers %.1f ms\n",
           report->reopens, (double)report->longest_reopen_ns / 1e6, report->imports_again,
           (double)report->longest_ns / 1e6);
    printf("  last: error %s, GONE %s, DEGRADED %s\n", weir_error_name(report->last_error),
           weir_error_name(report->last_gone), weir_error_name(report->last_break));
    printf("  sessions: up %" PRIu64 ", failed %" PRIu64 ", retired %" PRIu64
           "; peers gone %" PRIu64 "; replays %" PRIu64 ", settled %" PRIu64 ", duplicates %" PRIu64
           "\n",
           stats->sessions_up, stats->sessions_failed, stats->sessions_retired, stats->peers_gone,
           stats->replays, stats->settled_remote, stats->notifications_duplicate);
    printf("  control: sent %" PRIu64 ", again %" PRIu64 ", received %" PRIu64 ", stale %" PRIu64
           ", malformed %" PRIu64 "; data malformed %" PRIu64 "; refused %" PRIu64 "\n",
           stats->control_sent, stats->control_retransmits, stats->control_received,
           stats->control_stale, stats->control_malformed, stats->data_malformed,
           stats->sessions_refused);
    printf("  VmRSS KiB: %" PRIu64 " at first, %" PRIu64 " half-way, %" PRIu64
           " at the end, %" PRIu64 " at most; descriptors: %" PRIu64 ", %" PRIu64 ", %" PRIu64
           ", %" PRIu64 "\n",
           at_begin[which].rss_kib, half[which].rss_kib, at_end[which].rss_kib, most[which].rss_kib,
           at_begin[which].fds, half[which].fds, at_end[which].fds, most[which].fds);
}

static int broken;

static void promise(bool kept, int which, const char *what) {
    if (kept)
        return;
    printf("BROKEN: side %d: %s\n", which, what);
    broken = 1;
}

static void judge(int which, uint64_t seconds) {
    const struct report *report = &board->sides[which].report;
    const struct report *other = &board->sides[1 - which].report;
    uint64_t breaks = report->broken_on_purpose + other->broken_on_purpose;
    promise(report->transfers_failed == 0, which, "a transfer failed");
    promise(report->transfers_ok > 0 && report->reads_verified > 0, which, "it did nothing");
    promise(report->wrong_bytes == 0, which, "wrong bytes");
    promise(other->sent == report->arrived, which, "notifications were lost");
    promise(report->doubled == 0, which, "a notification came twice");
    promise(report->foreign == 0, which, "a notification of nobody's");
    promise(report->own_events[WEIR_EVENT_GONE] == 0, which, "the other side is told to be gone");
    promise(report->own_events[WEIR_EVENT_DEGRADED] <= breaks, which,
            "its session broke more often than on purpose");
    if (seconds < LONG_S)
        return;
    promise(at_end[which].fds <= at_begin[which].fds + ROOM_FDS, which, "descriptors are kept");
    promise(at_end[which].rss_kib <= half[which].rss_kib + ROOM_KIB, which, "memory grows");
}

int main(int argc, char **argv) {
    uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, seed = now_ns() % 1000000007;
    bool alone = false;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--alone") == 0)
            alone = true;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            seconds = 0;
    }
    if (seconds == 0) {
        fprintf(stderr, "usage: stranger SECONDS [--seed N] [--alone]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        give_up("mmap", WEIR_ENOMEM);
    board->seed = seed;
    board->alone = alone;
    printf("%" PRIu64 " s, seed %" PRIu64 "%s\n", seconds, seed, alone ? ", alone" : "");
    if (!play(seconds)) {
        printf("BROKEN: a process did not end well\n");
        broken = 1;
    }
    if (!alone)
        show_deeds();
    for (int i = 0; i < 2; i++)
        show_side(i);
    for (int i = 0; i < 2; i++)
        judge(i, seconds);
    promise(board->deeds.passes_overheard == 0, 0, "a pass was shown to one that it is not for");
    return broken;
}
