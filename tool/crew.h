/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h: the processes of a bench that do one thing at the same time.
 *
 * Each is forked, sets itself up, and says that it is ready. The bench opens the first gate, once
 * all are, and all begin. Each says when it is done, and stays as it is until the bench, which may
 * have something to look at, opens the second gate. The processes leave their results in memory
 * that the bench shares with them (host_share). They die with the bench, whatever happens to it,
 * and all together have one complaint. */
#ifndef TOOL_CREW_H
#define TOOL_CREW_H

#include <stdbool.h>
#include <stdint.h>

#define CREW_MAX 512

enum crew_stage { CREW_SETTING_UP = 0, CREW_READY, CREW_DONE };
enum crew_gate { CREW_GO = 0, CREW_LEAVE, CREW_GATES };

struct crew_board;

struct crew {
    const char *what; /* "sender": there are several; "target": there is one */
    unsigned count;
    int pids[CREW_MAX];       /* 0: reaped, or never started */
    int gates[CREW_GATES];    /* descriptors */
    bool leaving;             /* the second gate was opened */
    struct crew_board *board; /* shared */
};

/* A member's work, in its process. Returns an exit status; of a failure it has complained. */
typedef int crew_work(struct crew *crew, unsigned index, void *context);

/* How many peers one engine of this device (NULL: shm) can have at once, with the descriptors that
 * a process of this user may open. Raises the limit of this process, and of those that it starts
 * later, as far as it may. */
uint64_t crew_peers(const char *device);

/* ---- the bench ---------------------------------------------------------- */

/* Starts so many; -1 after complaining. crew_end is called after either. */
int crew_start(struct crew *crew, const char *what, unsigned count, crew_work *work, void *context);

/* Whether all have come so far. */
bool crew_reached(const struct crew *crew, enum crew_stage stage);

/* -1, after complaining, when a member has ended, or the user interrupts. Members end when the
 * second gate is open, not before. */
int crew_look(struct crew *crew);

void crew_open(struct crew *crew, enum crew_gate gate);

/* Reaps all. Processes that the second gate is open for end by themselves: -1, after complaining,
 * when one of them does not end well. Others are killed. Harmless once more, and on a crew that is
 * zeroed. */
int crew_end(struct crew *crew);

/* ---- a member ----------------------------------------------------------- */

void crew_reach(struct crew *crew, unsigned index, enum crew_stage stage);

/* Whether the gate is open; and the descriptor that can be read as soon as it is. */
bool crew_is_open(const struct crew *crew, enum crew_gate gate);
int crew_gate_fd(const struct crew *crew, enum crew_gate gate);

#endif
