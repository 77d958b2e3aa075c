/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c: see ledger.h. */
#include "ledger.h"

uint32_t ledger_ring_size(uint32_t depth) {
    uint32_t size = 1;
    while (size < depth)
        size <<= 1;
    return size;
}

void ledger_init(struct ledger *ledger, struct ledger_run *ring, uint32_t depth,
                 uint64_t first_seq) {
    assert(depth >= 1);
    *ledger = (struct ledger){
        .head = first_seq,
        .tail = first_seq,
        .covered = first_seq,
        .runs = ring,
        .mask = ledger_ring_size(depth) - 1,
        .depth = depth,
        .quiet_max = depth / LEDGER_QUIET_PART,
    };
}

static struct ledger_run *run_at(const struct ledger *ledger, uint64_t seq) {
    return &ledger->runs[seq & ledger->mask];
}

uint64_t ledger_inflight(const struct ledger *ledger) {
    uint64_t bytes = 0;
    for (uint64_t s = ledger->head; s < ledger->tail; s++)
        bytes += run_at(ledger, s)->bytes;
    return bytes;
}

uint64_t ledger_trim(struct ledger *ledger, uint64_t seq, uint32_t accepted, uint32_t sends,
                     uint64_t bytes) {
    struct ledger_run *run = run_at(ledger, seq);
    assert(seq == ledger->tail - 1 && accepted < run->count && bytes <= run->bytes);
    if (accepted == 0)
        return ledger_undo(ledger, seq);
    ledger->used -= run->count - accepted;
    uint64_t rest = run->bytes - bytes;
    ledger->bytes -= rest;
    run->bytes = bytes;
    run->count = (uint16_t)accepted;
    run->sends = (uint8_t)sends;
    run->state = LEDGER_ORPHANED;
    ledger->orphans++;
    ledger->partial_posts++;
    ledger->orphaned_slots += accepted;
    ledger->open = true;
    return rest;
}

const struct ledger_run *ledger_peek(const struct ledger *ledger, uint64_t seq) {
    if (seq < ledger->head || seq >= ledger->tail)
        return NULL;
    return run_at(ledger, seq);
}

static void run_done(struct ledger *ledger, uint64_t seq) {
    struct ledger_run *run = run_at(ledger, seq);
    if (run->state == LEDGER_ORPHANED) {
        ledger->orphans--;
        run->state = LEDGER_DONE | LEDGER_WAS_ORPHAN;
    } else if (run->state == LEDGER_POSTED) {
        run->state = LEDGER_DONE;
    }
}

bool ledger_complete(struct ledger *ledger, uint64_t seq, bool ordered) {
    if (seq < ledger->head || seq >= ledger->tail || run_at(ledger, seq)->state != LEDGER_POSTED)
        return false;
    for (uint64_t s = ordered ? ledger->head : seq; s <= seq; s++)
        run_done(ledger, s);
    return true;
}

bool ledger_fail(struct ledger *ledger, uint64_t seq) {
    if (seq < ledger->head || seq >= ledger->tail || run_at(ledger, seq)->state != LEDGER_POSTED)
        return false;
    run_at(ledger, seq)->state = LEDGER_FLUSHED;
    return true;
}

bool ledger_pass(struct ledger *ledger, uint64_t seq) {
    assert(seq == ledger->tail - 1);
    uint64_t from = ledger->covered > ledger->head ? ledger->covered : ledger->head;
    if (from >= seq)
        return false;
    for (uint64_t s = from; s < seq; s++)
        run_done(ledger, s);
    ledger->covered = seq;
    ledger->quiet = 0;
    ledger->open = false;
    return true;
}

void ledger_flush(struct ledger *ledger) {
    for (uint64_t s = ledger->head; s < ledger->tail; s++) {
        struct ledger_run *run = run_at(ledger, s);
        if (run->state == LEDGER_POSTED || run->state == LEDGER_ORPHANED)
            run->state = LEDGER_FLUSHED;
    }
    ledger->orphans = 0;
    ledger_cover(ledger);
}

const char *ledger_verify(const struct ledger *ledger) {
    uint32_t used = 0;
    uint32_t orphans = 0;
    for (uint64_t s = ledger->head; s < ledger->tail; s++) {
        used += run_at(ledger, s)->count;
        orphans += run_at(ledger, s)->state == LEDGER_ORPHANED;
    }
    if (used != ledger->used)
        return "ledger: slots taken differ from the runs' counts";
    if (ledger_inflight(ledger) > ledger->bytes)
        return "ledger: more bytes in flight than were ever posted";
    if (used > ledger->depth)
        return "ledger: more slots taken than the QP has";
    if (orphans != ledger->orphans)
        return "ledger: orphans miscounted";
    if (ledger->covered > ledger->tail || ledger->quiet > ledger->used)
        return "ledger: the quiet tail is not at the tail";
    if (ledger->quiet > ledger->quiet_max)
        return "ledger: the quiet tail is too long";
    return NULL;
}
