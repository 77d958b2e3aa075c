/* SPDX-License-Identifier: Apache-2.0 */
/* crew.c: see crew.h. A gate is an eventfd that nobody reads: once the bench has written to it, all
 * who wait wake at once, and it is open to whoever comes later. */
#define _GNU_SOURCE
#include "crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "host.h"

#define LEAVE_NS     (60 * NS_PER_S) /* after the one before it; members have limits of their own */
#define AT_ONCE      16
#define TURN_NS      NS_PER_MS
#define NAME_MAX_LEN 32
#define ENDED_MAX    64 /* child_gone's text */

/* weir(3), "File descriptors": of a process with one engine, and for each peer of it, with a memory
 * for each. */
#define FDS_ENGINE   80
#define FDS_SHM_PEER 5
#define FDS_OTHER    2

struct crew_board {
    atomic_int stages[CREW_MAX];
};

struct member {
    struct crew *crew;
    unsigned index;
    crew_work *work;
    void *context;
};

uint64_t crew_peers(const char *device) {
    uint64_t limit = host_descriptors();
    uint64_t each = options_device_is(device, "shm") ? FDS_SHM_PEER : FDS_OTHER;

    return limit > FDS_ENGINE ? (limit - FDS_ENGINE) / each : 0;
}

static const char *name_of(const struct crew *crew, unsigned index, char out[NAME_MAX_LEN]) {
    if (crew->count > 1)
        snprintf(out, NAME_MAX_LEN, "%s %u", crew->what, index);
    else
        snprintf(out, NAME_MAX_LEN, "%s", crew->what);
    return out;
}

/* In the member's process. */
static int member_run(void *context) {
    struct member *member = context;
    char name[NAME_MAX_LEN];

    host_complain_as(name_of(member->crew, member->index, name));
    return member->work(member->crew, member->index, member->context);
}

/* Hundreds that set themselves up together would take turns on the CPUs, and time-outs would pass.
 */
static int wait_for_turn(struct crew *crew, unsigned started) {
    for (;;) {
        unsigned busy = 0;
        for (unsigned i = 0; i < started; i++)
            busy += atomic_load(&crew->board->stages[i]) == CREW_SETTING_UP;
        if (busy < AT_ONCE)
            return 0;
        if (crew_look(crew) != 0)
            return -1;
        host_sleep_on(-1, -1, TURN_NS);
    }
}

int crew_start(struct crew *crew, const char *what, unsigned count, crew_work *work,
               void *context) {
    *crew = (struct crew){.what = what, .count = count, .gates = {-1, -1}};
    host_complain_together();
    crew->board = host_share(sizeof(*crew->board));
    if (crew->board == NULL)
        return complain("out of memory");
    for (int gate = 0; gate < CREW_GATES; gate++) {
        crew->gates[gate] = eventfd(0, EFD_CLOEXEC);
        if (crew->gates[gate] < 0)
            return complain("a gate for a %s: %s", what, strerror(errno));
    }
    for (unsigned i = 0; i < count; i++) {
        struct member member = {.crew = crew, .index = i, .work = work, .context = context};
        if (wait_for_turn(crew, i) != 0)
            return -1;
        crew->pids[i] = child_fork(member_run, &member);
        if (crew->pids[i] < 0)
            return -1;
    }
    return 0;
}

bool crew_reached(const struct crew *crew, enum crew_stage stage) {
    for (unsigned i = 0; i < crew->count; i++) {
        if (atomic_load(&crew->board->stages[i]) < (int)stage)
            return false;
    }
    return true;
}

int crew_look(struct crew *crew) {
    char how[ENDED_MAX], name[NAME_MAX_LEN];

    if (host_interrupted())
        return complain("interrupted");
    for (unsigned i = 0; i < crew->count; i++) {
        if (crew->pids[i] == 0 || !child_gone(crew->pids[i], how))
            continue;
        crew->pids[i] = 0;
        /* One that failed has said why, and this is not printed. */
        return complain("%s was %s", name_of(crew, i, name), how);
    }
    return 0;
}

void crew_open(struct crew *crew, enum crew_gate gate) {
    (void)eventfd_write(crew->gates[gate], 1); /* it has room for more than there are gates */
    crew->leaving = crew->leaving || gate == CREW_LEAVE;
}

/* Members end by themselves, now that the second gate is open. */
static int let_leave(struct crew *crew) {
    char name[NAME_MAX_LEN];
    int rc = 0;

    for (unsigned i = 0; i < crew->count; i++) {
        int pid = crew->pids[i], status;
        if (pid == 0)
            continue;
        crew->pids[i] = 0;
        status = child_wait(pid, LEAVE_NS);
        if (status != 0)
            rc = complain("%s ended with status %d", name_of(crew, i, name), status);
    }
    return rc;
}

/* All are told before one is waited for: it takes time to take a process down. */
static void kill_all(struct crew *crew) {
    for (unsigned i = 0; i < crew->count; i++) {
        if (crew->pids[i] > 0)
            kill(crew->pids[i], SIGKILL);
    }
    for (unsigned i = 0; i < crew->count; i++) {
        if (crew->pids[i] > 0)
            waitpid(crew->pids[i], NULL, 0);
    }
}

int crew_end(struct crew *crew) {
    int rc = 0;

    if (crew->leaving && !host_interrupted())
        rc = let_leave(crew);
    kill_all(crew);
    for (int gate = 0; crew->count > 0 && gate < CREW_GATES; gate++) {
        if (crew->gates[gate] >= 0)
            close(crew->gates[gate]);
    }
    host_unmap(crew->board, sizeof(*crew->board));
    *crew = (struct crew){.count = 0};
    return rc;
}

void crew_reach(struct crew *crew, unsigned index, enum crew_stage stage) {
    atomic_store(&crew->board->stages[index], (int)stage);
}

bool crew_is_open(const struct crew *crew, enum crew_gate gate) {
    struct pollfd end = {.fd = crew->gates[gate], .events = POLLIN};

    return poll(&end, 1, 0) == 1;
}

int crew_gate_fd(const struct crew *crew, enum crew_gate gate) {
    return crew->gates[gate];
}
