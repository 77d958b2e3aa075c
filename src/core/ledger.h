/* ledger.h: who holds which send-queue slots of one QP.
 *
 * A *run* is a group of WRs posted with one doorbell for one transfer, whose last
 * WR is signalled; one completion accounts for all of it and, on an ordered QP,
 * for every run before it. A run that lost its tail to a partial post is an
 * *orphan*: a later signalled run closes it.
 *
 *     head                         tail
 *      | done | posted | orphan | posted |
 *      '------------- used slots --------'
 *
 * Invariants: used is the sum of the counts of all runs in [head, tail) and never
 * above depth; sequences only grow, over all QPs that ever had this slot, so that
 * a late completion is recognised. O(1) a call, no memory of its own. It leaves to
 * others: what a run was for, and the beacon, whose slot is not part of depth.
 */
#ifndef WEIR_LEDGER_H
#define WEIR_LEDGER_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ledger_state { LEDGER_POSTED = 1, LEDGER_ORPHANED, LEDGER_DONE, LEDGER_FLUSHED };

#define LEDGER_NO_OWNER UINT32_MAX /* a run that closes orphans, or carries credits */

struct ledger_run {
    uint32_t owner; /* transfer index or LEDGER_NO_OWNER */
    uint32_t count; /* slots */
    uint32_t sends; /* SENDs among them: their buffers are free when the run is */
    uint32_t state; /* enum ledger_state */
};

struct ledger {
    uint64_t head;           /* sequence of the oldest run */
    uint64_t tail;           /* sequence of the next run */
    struct ledger_run *runs; /* ring of mask + 1 */
    uint32_t mask;
    uint32_t depth; /* slots to hand out */
    uint32_t used;
    uint32_t high_water;
    uint32_t orphans; /* orphaned runs in [head, tail) */
    bool open;        /* the newest of them has no signalled run behind it yet */
};

/* Entries that the ring of a ledger needs: a power of two >= depth. */
uint32_t ledger_ring_size(uint32_t depth);
/* Takes a ring of ledger_ring_size(depth) entries; first_seq is one above every
 * sequence that this slot ever used. */
void ledger_init(struct ledger *ledger, struct ledger_run *ring, uint32_t depth,
                 uint64_t first_seq);

static inline uint32_t ledger_free(const struct ledger *ledger) {
    return ledger->depth - ledger->used;
}

/* Takes count slots (1 <= count <= ledger_free) and returns the run's sequence. */
uint64_t ledger_take(struct ledger *ledger, uint32_t owner, uint32_t count, uint32_t sends);
/* The device took only the first accepted WRs of the newest run, without its tail:
 * gives the rest back. accepted == 0 removes the run. */
void ledger_trim(struct ledger *ledger, uint64_t seq, uint32_t accepted, uint32_t sends);
/* A signalled run was accepted whole: it will close the orphans before it. */
static inline void ledger_cover(struct ledger *ledger) {
    ledger->open = false;
}
/* The signalled tail of run seq completed well. On an ordered QP so did all runs
 * before it. False: no such run is outstanding (a stale or repeated completion). */
bool ledger_complete(struct ledger *ledger, uint64_t seq, bool ordered);
/* The run, if outstanding; NULL otherwise. Valid until the next call. */
const struct ledger_run *ledger_peek(const struct ledger *ledger, uint64_t seq);
/* The QP is gone: all that is outstanding is flushed. */
void ledger_flush(struct ledger *ledger);
/* Gives back the slots of the oldest run if it is done or flushed, and says which
 * it was. Call until false after complete or flush. healed: it was an orphan. */
bool ledger_pop(struct ledger *ledger, struct ledger_run *run_out, bool *healed_out);
/* NULL, or what does not add up. */
const char *ledger_verify(const struct ledger *ledger);

#endif
