/* SPDX-License-Identifier: Apache-2.0 */
/* runs.c: what becomes of transfers when runs of theirs are over with.
 *
 * Owns the way from the front of a QP's ledger to the transfers that posted the runs. Completions
 * come from complete.c; the runs of a QP that is gone are flushed by session.c.
 */
#include "runs.h"

#include "agenda.h"
#include "inflight.h"
#include "tables.h"
#include "transfer.h"

#include <assert.h>

/* Takes the runs that are over with off the front of the ledger. The caller calls inflight_peak
 * before it and inflight_returned after it, so that the peers in line for the bytes are served. */
void runs_retire(weir_engine *engine, struct qp *qp) {
    struct peer *peer = peer_at(engine, qp->peer);
    struct ledger_run run;
    bool healed;
    bool unpark = false;
    while (ledger_pop(&qp->ledger, &run, &healed)) {
        if (healed)
            engine->stats.orphans_healed += run.count;
        qp->sbufs_used -= run.sends;
        inflight_give(engine, run.count, run.bytes);
        engine->inflight_shut = false;
        if (run.transfer == LEDGER_NO_TRANSFER)
            continue;
        struct transfer *transfer = &engine->transfers[run.transfer];
        assert(transfer->outstanding > 0);
        transfer->outstanding--;
        if (run.state != LEDGER_FLUSHED)
            watch_run(peer, transfer);
        if (run.state == LEDGER_FLUSHED)
            transfer->flushed = true;
        else if (transfer->state == TR_PARKED)
            peer_trouble_over(
                peer); /* it came through, and was not popped before the session broke */
        if (transfer->outstanding == 0 && transfer->state == TR_PARKED)
            unpark = true;
        else
            transfer_check(engine, transfer);
    }
    if (unpark)
        transfer_unpark(engine, peer);
    if (ledger_due(&qp->ledger)) {
        peer->tails_due = 2; /* the application may post behind it first: post_tails */
        run_later(engine, peer);
    }
    if (peer_pending(peer) > 0 || qp->credit_due)
        run_later(engine, peer);
}

void runs_flush(weir_engine *engine, struct qp *qp) {
    inflight_peak(engine);
    ledger_flush(&qp->ledger);
    runs_retire(engine, qp);
    inflight_returned(engine);
}
