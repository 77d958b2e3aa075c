/* SPDX-License-Identifier: Apache-2.0 */
/* receives.h: where each buffer of the shared receive queue is.
 *
 *      free ──posted──► the device's ──came back──► taken, until its message is dealt with
 *        ▲                 │                          │
 *        │                 └─ lost ── came back ──────┤
 *        └────────────────────┴───────────────────────┘
 *
 * A QP that dies may take a buffer with it, and no device says which, nor how many are left
 * in a shared queue. But devices take buffers in the order in which they were posted, and
 * what QPs have taken comes back in turns: one may be ahead of another by some queues, where
 * each has a completion ring of its own, but not by many. So:
 *  - while it is not known what a QP that has died took, one buffer more than wanted is
 *    posted for it (a doubt), up to a quarter of all;
 *  - a buffer is *lost* when one has come back that was posted RECEIVES_BEHIND times
 *    as many later as were wanted then, or are now. It is counted, and another is posted instead;
 *  - a lost buffer ends one doubt. All are over when the buffers that were posted before them
 *    have come back or are lost.
 * A lost buffer is used again when no other is free, the one first that was lost first; one
 * that comes back after all was only late, and is free as any other. */
#ifndef WEIR_ENGINE_RECEIVES_H
#define WEIR_ENGINE_RECEIVES_H

#include <stdbool.h>
#include <stdint.h>

#define RECEIVES_NONE UINT32_MAX

enum { RECEIVES_BEHIND = 16, RECEIVES_LOOKED_AT = 8 };

enum receive_state { RECEIVE_FREE, RECEIVE_TAKEN, RECEIVE_POSTED, RECEIVE_LOST, RECEIVE_STATES };

struct receive {
    uint64_t number; /* of its post */
    uint32_t wanted; /* how many were, then */
    uint32_t next, previous;
    enum receive_state state;
};

struct receives_list {
    uint32_t first, last, count;
};

struct receives {
    struct receive *buffers;
    uint32_t total;
    struct receives_list lists[RECEIVE_STATES]; /* posted and lost: oldest first */
    uint32_t wanted;
    uint32_t doubts;
    uint64_t posts;         /* so far */
    uint64_t back_newest;   /* highest number of those that came back */
    uint64_t doubts_number; /* posts, at the last doubt */
    uint64_t lost;          /* so far */
};

void receives_init(struct receives *receives, struct receive *buffers, uint32_t total);
/* The next buffer to be posted, which is nobody's until receives_posted or receives_free;
 * NONE: there are enough, or no more. */
uint32_t receives_take(struct receives *receives);
void receives_posted(struct receives *receives, uint32_t buffer);
/* It came back from the device. False: the device did not have it. */
bool receives_back(struct receives *receives, uint32_t buffer);
void receives_free(struct receives *receives, uint32_t buffer);
/* A QP is gone, and may have taken a buffer. */
void receives_doubt(struct receives *receives);
/* Whether fewer are posted than are wanted. */
bool receives_short(const struct receives *receives);
/* NULL, or a sentence about what does not hold: of the whole, and of a few buffers, others
 * each turn. */
const char *receives_verify(const struct receives *receives, uint64_t turn);

#endif
