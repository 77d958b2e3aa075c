/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.h: the holders of the send-queue slots of one QP.
 *
 * A *run* is a group of WRs of one transfer, or of none, posted with one doorbell. The completion
 * of its last WR accounts for all of it and, on an ordered QP, for every run before it; so there
 * not every run has to be signalled. The runs behind the last signalled one are the *quiet tail*.
 * When all signalled runs are over with, the tail is *due*: the next post is signalled, or, when
 * none comes, an empty one is posted to close it. A run that lost its last WR to a partial post is
 * an *orphan*: it is closed before anything else is posted.
 *
 *     head                          covered        tail
 *      | done | posted | orphan | posted | quiet tail |
 *      '----------------- used slots -----------------'
 *
 * A run may be quiet if the quiet tail with it is at most a quarter of what is used without
 * it. So most of what is outstanding is signalled when it is posted, a single run on an idle
 * QP always is, and a tail that is due fills at most a quarter of the queue: there is a slot
 * to close it with.
 *
 * A device may complete a run in the post itself, which then holds no slot and gives no
 * completion, while runs before it still wait for theirs. On an ordered QP such a run has *passed*
 * the unsignalled runs before it: these are done, too, and no completion will tell of them.
 *
 * Invariants: used is the sum of the counts of all runs in [head, tail) and never
 * above depth; sequences only grow, over all QPs that ever had this entry, so that
 * a late completion is recognised. No memory of its own. It leaves to
 * others: what a run was for, and the beacon, whose slot is not part of depth.
 */
#ifndef WEIR_LEDGER_H
#define WEIR_LEDGER_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ledger_state { LEDGER_POSTED = 1, LEDGER_ORPHANED = 2, LEDGER_DONE = 4, LEDGER_FLUSHED = 8 };
/* In a run's state, inside the ledger: it was an orphan when it completed. */
enum { LEDGER_WAS_ORPHAN = 0x10 };

enum { LEDGER_QUIET_PART = 4 }; /* the quiet tail is at most one in so many used slots */

#define LEDGER_NO_TRANSFER UINT32_MAX /* a run that closes orphans, or carries credits */

struct ledger_run {
    uint64_t bytes;    /* that its reads and writes move */
    uint32_t transfer; /* its index, or LEDGER_NO_TRANSFER */
    uint16_t count;    /* slots */
    uint8_t sends;     /* SENDs among them: their buffers are free when the run is */
    uint8_t state;     /* enum ledger_state */
};
_Static_assert(sizeof(struct ledger_run) == 16, "four runs a cache line");

struct ledger {
    uint64_t head;           /* sequence of the oldest run */
    uint64_t tail;           /* sequence of the next run */
    struct ledger_run *runs; /* ring of mask + 1 */
    uint32_t mask;
    uint32_t depth; /* slots to hand out */
    uint32_t used;
    uint32_t high_water;
    uint64_t bytes;   /* of all runs ever, but for what was trimmed */
    uint32_t orphans; /* orphaned runs in [head, tail) */
    bool open;        /* the newest of them has no signalled run behind it yet */
    uint64_t covered; /* runs before this one are signalled, or have a signalled one behind */
    uint32_t quiet;   /* slots of the quiet tail */
    uint32_t quiet_max;
    uint64_t partial_posts;  /* runs ever that lost their tail */
    uint64_t orphaned_slots; /* what was left of those */
};

/* Entries that the ring of a ledger needs: a power of two >= depth. */
uint32_t ledger_ring_size(uint32_t depth);
/* Takes a ring of ledger_ring_size(depth) entries; first_seq is one above every
 * sequence that this entry ever used. */
void ledger_init(struct ledger *ledger, struct ledger_run *ring, uint32_t depth,
                 uint64_t first_seq);

/* The quiet tail is to have at most so many slots, or a quarter of the depth if that is less. */
static inline void ledger_limit_quiet(struct ledger *ledger, uint32_t most) {
    if (ledger->quiet_max > most)
        ledger->quiet_max = most;
}

/* Bytes of the runs that are outstanding: adds them up. */
uint64_t ledger_inflight(const struct ledger *ledger);

static inline uint32_t ledger_free(const struct ledger *ledger) {
    return ledger->depth - ledger->used;
}

/* Takes count slots (1 <= count <= ledger_free) and returns the run's sequence. */
static inline uint64_t ledger_take(struct ledger *ledger, uint32_t transfer, uint32_t count,
                                   uint32_t sends, uint64_t bytes) {
    assert(count >= 1 && count <= ledger_free(ledger));
    assert(count <= UINT16_MAX && sends <= UINT8_MAX);
    uint64_t seq = ledger->tail++;
    ledger->runs[seq & ledger->mask] = (struct ledger_run){bytes, transfer, (uint16_t)count,
                                                           (uint8_t)sends, (uint8_t)LEDGER_POSTED};
    ledger->used += count;
    ledger->bytes += bytes;
    if (ledger->used > ledger->high_water)
        ledger->high_water = ledger->used;
    return seq;
}
/* Nothing of the newest run is under way: removes it, and returns its bytes. */
static inline uint64_t ledger_undo(struct ledger *ledger, uint64_t seq) {
    const struct ledger_run *run = &ledger->runs[seq & ledger->mask];
    assert(seq == ledger->tail - 1 && run->count <= ledger->used);
    ledger->tail--;
    ledger->used -= run->count;
    ledger->bytes -= run->bytes;
    return run->bytes;
}
/* The device took only the first accepted WRs of the newest run, without its tail, which
 * move so many bytes: gives the rest back. accepted == 0 removes the run. Returns the bytes
 * of the rest. */
uint64_t ledger_trim(struct ledger *ledger, uint64_t seq, uint32_t accepted, uint32_t sends,
                     uint64_t bytes);
/* The newest runs, of one slot each, were accepted, but not what was to be signalled behind
 * them: orphans. 1 <= count. */
static inline void ledger_orphan(struct ledger *ledger, uint32_t count) {
    for (uint32_t i = 1; i <= count; i++)
        ledger->runs[(ledger->tail - i) & ledger->mask].state = LEDGER_ORPHANED;
    ledger->orphans += count;
    ledger->partial_posts++;
    ledger->orphaned_slots += count;
    ledger->open = true;
}
/* The newest run is signalled and was accepted whole: it will close what is before it. */
static inline void ledger_cover(struct ledger *ledger) {
    ledger->open = false;
    ledger->covered = ledger->tail;
    ledger->quiet = 0;
}
/* Whether the next run, of count slots, need not be signalled. On ordered QPs only. */
static inline bool ledger_may_be_quiet(const struct ledger *ledger, uint32_t count) {
    uint32_t quiet = ledger->quiet + count;
    return quiet * LEDGER_QUIET_PART <= ledger->used && quiet <= ledger->quiet_max && !ledger->open;
}
/* The newest run, of count slots, was accepted whole and is not signalled. */
static inline void ledger_leave_quiet(struct ledger *ledger, uint32_t count) {
    ledger->quiet += count;
}
/* There is a quiet tail, and nothing outstanding that would close it. */
static inline bool ledger_due(const struct ledger *ledger) {
    return ledger->quiet > 0 && ledger->head >= ledger->covered;
}
/* A WR of run seq, the newest, is complete already, and the QP is ordered: what has no
 * signalled run before seq is done. True: there was such, and ledger_pop may find it. */
bool ledger_pass(struct ledger *ledger, uint64_t seq);
/* The signalled tail of run seq completed well. On an ordered QP so did all runs
 * before it. False: no such run is outstanding (a stale or repeated completion). */
bool ledger_complete(struct ledger *ledger, uint64_t seq, bool ordered);
/* Run seq failed, and no other: on an unordered QP. False: no such run is outstanding. */
bool ledger_fail(struct ledger *ledger, uint64_t seq);
/* The run, if outstanding; NULL otherwise. Valid until the next call. */
const struct ledger_run *ledger_peek(const struct ledger *ledger, uint64_t seq);
/* The QP is gone: all that is outstanding is flushed. */
void ledger_flush(struct ledger *ledger);
/* Whether ledger_pop would give one. */
static inline bool ledger_ready(const struct ledger *ledger) {
    return ledger->head != ledger->tail &&
           (ledger->runs[ledger->head & ledger->mask].state & (LEDGER_DONE | LEDGER_FLUSHED)) != 0;
}
/* Gives back the slots of the oldest run if it is done or flushed, and says which
 * it was. Call until false after complete or flush. healed: it was an orphan. */
static inline bool ledger_pop(struct ledger *ledger, struct ledger_run *run_out, bool *healed_out) {
    if (ledger->head == ledger->tail)
        return false;
    *run_out = ledger->runs[ledger->head & ledger->mask];
    if ((run_out->state & (LEDGER_DONE | LEDGER_FLUSHED)) == 0)
        return false;
    *healed_out = (run_out->state & LEDGER_WAS_ORPHAN) != 0;
    run_out->state = (uint8_t)(run_out->state & ~LEDGER_WAS_ORPHAN);
    ledger->head++;
    ledger->used -= run_out->count;
    return true;
}
/* NULL, or what does not add up. */
const char *ledger_verify(const struct ledger *ledger);

#endif
