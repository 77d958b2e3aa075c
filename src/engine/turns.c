/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c: the order in which peers, and the transfers of each, post.
 *
 * Owns that order. The transfers of a peer take turns chain by chain: between two chains of one
 * transfer each of the others posts one at most.
 *
 * Peers take turns, too. A peer that has more to post than SERVICE_BUDGET chains, or the device's
 * post_bytes_max, goes on behind all others that can go on (the run list). Between two of its turns
 * each of those posts at most that much. Besides, submits of the application post meanwhile for
 * peers that are not waiting for a turn, as far as these have slots.
 *
 * All peers together have at most inflight_bytes_max payload bytes in flight, but for a WR that is
 * longer by itself. A peer that this bound stops waits in line (inflight_head). From then on only
 * the first in line posts data: one chain, as soon as its next WR fits. It goes to the end of the
 * line if it has more. So a peer that waits is passed by at most one chain of each other peer. It
 * leaves the line when anything else stops it: slots, its session. SENDs are not counted, and do
 * not wait: credits bound them. Where all QPs share a send queue, its slots are waited for in the
 * same line, by SENDs as well, and a turn is one post.
 *
 * A notification that finds no credit leaves that round for the list of the QP whose credit it
 * needs, and so does a short message with its data (share.c): first come, first served as credits
 * come back. Notifications that cannot go cost nothing until then, however many there are.
 */
#include "turns.h"

#include "agenda.h"
#include "inflight.h"
#include "lists.h"
#include "loop.h"
#include "notes.h"
#include "post.h"
#include "records.h"
#include "runs.h"
#include "share.h"
#include "tables.h"
#include "talk.h"
#include "trace.h"
#include "transfer.h"

/* Closes the quiet tails that are due: their last signalled run was over a step ago, nothing was
 * posted behind them since, and no completion would tell of them. Retires the runs that were passed
 * by WRs that were done in their post. */
static void post_tails(weir_engine *engine, struct peer *peer) {
    if (--peer->tails_due > 0) {
        run_later(engine, peer);
        return;
    }
    const struct session *session = &peer->sessions[peer->live];
    for (uint32_t i = 0; peer->live != NONE && i < session->qp_used; i++) {
        struct qp *qp = &engine->qps[session->qps[i]];
        if (!qp_carries(qp))
            continue;
        if (ledger_due(&qp->ledger) && (qp->blocked || !post_empty(engine, qp)))
            peer->tails_due = 1; /* the timer that ends the block runs the peer again */
        if (ledger_ready(&qp->ledger)) {
            inflight_peak(engine);
            runs_retire(engine, qp);
            inflight_returned(engine);
        }
    }
}

/* Where it takes the last slot, transfers may find none: the next turn is theirs first, or on a
 * queue of one slot they would wait for as long as notifications come. False: there is none of
 * those that all share. */
static bool post_credits(weir_engine *engine, struct peer *peer) {
    if (peer->live == NONE)
        return true;
    struct session *session = &peer->sessions[peer->live];
    for (uint32_t i = 0; peer->live != NONE && i < session->qp_used; i++) {
        struct qp *qp = &engine->qps[session->qps[i]];
        if (!qp->credit_due || !qp_is_usable(qp) || post_credit_under_way(qp))
            continue; /* a completion, or the timer that ends the block, runs the peer again */
        int rc = post_message(engine, peer, qp, NULL, 0);
        if (rc == WEIR_EFULL)
            return false;
        if (rc != WEIR_OK && rc != WEIR_EAGAIN) {
            note_broken(engine, peer, peer->live);
            return true;
        }
        peer->credits_went |= rc == WEIR_OK;
    }
    return true;
}

/* While a transfer is suspected of breaking sessions, one chain is under way at a time, so that the
 * transfer that breaks the next one is known. While the address is being proven, none is. */
static bool has_turn(const weir_engine *engine, const struct peer *peer) {
    const struct session *session = &peer->sessions[peer->live];
    uint32_t used = peer->proving;
    for (uint32_t i = 0; peer_is_suspicious(peer) && i < session->qp_used; i++)
        used += engine->qps[session->qps[i]].ledger.used;
    return used == 0;
}

static void rotate(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    if (peer->lists[LIST_PENDING].count > 1 && !peer_is_suspicious(peer)) {
        list_remove(engine, transfer);
        list_push(engine, peer, transfer, LIST_PENDING);
    }
}

/* Puts the transfer among those that wait for credits of QP `index`. One that has a number goes
 * first: the others may wait for it to finish, when too many numbers are unfinished. */
static void wait_for_credit(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                            uint32_t index) {
    uint8_t list = credit_list(transfer, index);
    list_remove(engine, transfer);
    if (transfer->number != 0)
        list_push_front(engine, peer, transfer, list);
    else
        list_push(engine, peer, transfer, list);
}

static void all_posted(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    list_remove(engine, transfer);
    list_push(engine, peer, transfer, LIST_POSTED);
    transfer_check(engine, transfer);
}

/* Messages from the front of the list go in one post. False: none did. */
static bool post_shared(weir_engine *engine, struct peer *peer, uint8_t list, uint64_t *bytes) {
    uint32_t count = share_post(engine, peer, list, bytes);
    for (uint32_t left = count; left > 0; left--)
        all_posted(engine, peer, &engine->transfers[peer->lists[list].head]);
    return count > 0;
}

/* Posts what is next of the transfer, unless that is to wait until it shares a WR. */
static enum outcome post_step(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                              uint64_t *bytes, uint32_t *stuck_out) {
    if (transfer->kind == TRANSFER_MESSAGE && share_waits(engine, peer, transfer)) {
        *stuck_out = 0;
        return POST_CREDITS;
    }
    return post_next(engine, peer, transfer, bytes, stuck_out);
}

/* The head of a list whose credits have come back. False: neither it nor one behind it can go. */
static bool post_waiter(weir_engine *engine, struct peer *peer, uint32_t index,
                        struct transfer *transfer, uint64_t *bytes) {
    uint32_t stuck = NONE;
    bool had_data = !plan_done(&transfer->cursor);
    enum outcome outcome = post_step(engine, peer, transfer, bytes, &stuck);
    if (outcome == POST_SLOTS || (outcome == POST_CREDITS && stuck == index))
        return false;
    engine->worked = true;
    if (outcome == POST_CREDITS) {
        wait_for_credit(engine, peer, transfer, stuck);
    } else if (outcome == POST_ALL) {
        all_posted(engine, peer, transfer);
    } else if (outcome == POST_FULL && plan_done(&transfer->cursor)) {
        /* Its SEND waits in line, for a shared slot, and keeps its place. */
        if (!peer->inflight_waits)
            inflight_push(engine, peer);
        return false;
    } else if (outcome == POST_FULL) {
        /* Its data waits for bytes in flight, where that of others does. */
        list_remove(engine, transfer);
        list_push(engine, peer, transfer, LIST_PENDING);
        return false;
    }
    /* MORE: its data was posted, and its note is next; or the device refused it for now. */
    return outcome != POST_MORE || (had_data && plan_done(&transfer->cursor));
}

/* Transfers of one class whose credits have come back, oldest first. Returns how many turns it
 * took, of `budget`; one that moves data up to bytes_most uses up all of them. */
static int post_waiters_of(weir_engine *engine, struct peer *peer, uint32_t first, int budget,
                           uint64_t bytes_most) {
    uint64_t bytes = 0;
    int turns = 0;
    for (uint32_t i = 0; peer->live != NONE && i < peer->sessions[peer->live].qp_used; i++) {
        const struct list *waiters = &peer->lists[first + i];
        bool goes = true;
        while (goes && peer->live != NONE && waiters->count > 0 && has_turn(engine, peer)) {
            if (turns == budget || bytes >= bytes_most) {
                run_later(engine, peer);
                return budget;
            }
            bool shared = first == LIST_WORDS && post_shared(engine, peer, LIST_WORDS, &bytes);
            if (peer->live == NONE)
                break; /* the session broke over an orphan that had to be closed first */
            turns++;
            engine->worked |= shared;
            if (!shared)
                goes = post_waiter(engine, peer, i, &engine->transfers[waiters->head], &bytes);
        }
    }
    return turns;
}

static int post_waiters(weir_engine *engine, struct peer *peer, int budget, uint64_t bytes_most) {
    if (peer->credit_waits == 0)
        return 0;
    int turns = post_waiters_of(engine, peer, LIST_WORDS, budget - 1, bytes_most);
    return turns + post_waiters_of(engine, peer, LIST_CREDITS, budget - turns, bytes_most);
}

/* Whether the first two in turn may share a doorbell. A transfer that was in a session that broke
 * goes alone, for it may break the next one. */
static bool go_together(const weir_engine *engine, const struct peer *peer) {
    const struct transfer *transfer = &engine->transfers[peer->lists[LIST_PENDING].head];
    return transfer->next != NONE && transfer_is_one_wr(engine, transfer) &&
           transfer_is_one_wr(engine, &engine->transfers[transfer->next]) &&
           !engine->caps.completes_inline && peer->trouble_ns == 0 && !peer_is_suspicious(peer);
}

/* Posts for the first transfer in turn, and for those behind it that may share its post. */
static enum outcome post_front(weir_engine *engine, struct peer *peer, uint64_t *bytes,
                               uint32_t *stuck_out) {
    struct transfer *transfer = &engine->transfers[peer->lists[LIST_PENDING].head];
    if (go_together(engine, peer))
        return post_together(engine, peer, bytes);
    if (transfer->kind == TRANSFER_MESSAGE && post_shared(engine, peer, LIST_PENDING, bytes))
        return POST_TOGETHER;
    return peer->live == NONE ? POST_STOPPED : post_step(engine, peer, transfer, bytes, stuck_out);
}

/* The transfer whose turn it is posts a chain, or as many parts of its notification as it can. */
static enum outcome take_turn(weir_engine *engine, struct peer *peer, uint64_t *bytes) {
    if (peer->live == NONE || peer->lists[LIST_PENDING].count == 0 || !has_turn(engine, peer))
        return POST_NOTHING;
    struct transfer *transfer = &engine->transfers[peer->lists[LIST_PENDING].head];
    uint32_t stuck = NONE;
    enum outcome outcome = post_front(engine, peer, bytes, &stuck);
    if (peer->live == NONE || peer->lists[LIST_PENDING].count == 0) {
        engine->worked = true; /* the session broke over it, or all of it is over with */
        peer_wait_over(engine, peer);
        return POST_NOTHING;
    }
    if (outcome == POST_SLOTS || outcome == POST_FULL) {
        bool slots = outcome == POST_SLOTS || inflight_lacks_slots(engine);
        peer_waits(engine, peer, slots ? WEIR_WAITING_SLOTS : WEIR_WAITING_INFLIGHT);
        return outcome;
    }
    engine->worked = true;
    if (peer->waits_for != WEIR_WAITING_NOTHING)
        peer_wait_over(engine, peer);
    if (outcome == POST_CREDITS) {
        engine->stats.credit_waits++;
        wait_for_credit(engine, peer, transfer, stuck);
        TRACE_OFTEN(engine, no_credits, peer, 0, peer->credit_waits, 0);
    } else if (outcome == POST_MORE && transfer->state == TR_PENDING) {
        rotate(engine, peer, transfer);
    } else if (outcome == POST_ALL || outcome == POST_WAITS) {
        all_posted(engine, peer, transfer);
    }
    return outcome;
}

static bool is_stop(enum outcome outcome) {
    return outcome == POST_NOTHING || outcome == POST_SLOTS || outcome == POST_FULL;
}

/* Puts the peer at the end of the line. Bytes come back by themselves, but for those of an orphan:
 * the peer may post nothing else now that would close it. */
static void wait_in_line(weir_engine *engine, struct peer *peer) {
    const struct session *session = &peer->sessions[peer->live];
    if (!peer->inflight_waits)
        inflight_push(engine, peer);
    for (uint32_t i = 0; peer->live != NONE && i < session->qp_used; i++) {
        struct qp *qp = &engine->qps[session->qps[i]];
        if (qp_is_usable(qp))
            post_heal(engine, qp);
    }
}

/* Whether a credit message, or a SEND that waited for a credit and has one, is to be posted, for a
 * shared slot, on a QP that takes it. */
static bool owes_sends(const weir_engine *engine, const struct peer *peer) {
    if (engine->caps.sq_shared == 0 || peer->live == NONE)
        return false;
    const struct session *session = &peer->sessions[peer->live];
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        bool waits =
            (peer->lists[LIST_CREDITS + i].count > 0 &&
             credit_available(&qp->credit, CREDIT_NOTES)) ||
            (peer->lists[LIST_WORDS + i].count > 0 && credit_available(&qp->credit, CREDIT_WORDS));
        if ((waits || (qp->credit_due && !qp->credit.under_way)) && qp_is_usable(qp) &&
            ledger_free(&qp->ledger) > 0 && has_turn(engine, peer))
            return true;
    }
    return false;
}

/* Of a turn in line for shared slots what goes before transfers that are pending: a sign of life,
 * credit messages, and SENDs that have waited for credits. Where these went in the turn before,
 * pending transfers do. */
static enum outcome post_before(weir_engine *engine, struct peer *peer) {
    uint64_t before = engine->stats.wrs_posted;
    bool last = peer->credits_went && peer->lists[LIST_PENDING].count > 0;
    peer->credits_went = false;
    if (peer->life_due)
        post_life(engine, peer);
    if (last)
        return POST_MORE;
    if (!post_credits(engine, peer))
        return POST_FULL;
    if (engine->stats.wrs_posted == before)
        post_waiters_of(engine, peer, LIST_WORDS, 1, UINT64_MAX);
    if (engine->stats.wrs_posted == before)
        post_waiters_of(engine, peer, LIST_CREDITS, 1, UINT64_MAX);
    peer->credits_went = engine->stats.wrs_posted != before;
    return POST_MORE;
}

/* Posts one chain of data of the first peer in line, and the messages that come before it. For
 * shared slots, a turn is one post. */
static enum outcome post_first(weir_engine *engine, struct peer *peer) {
    bool shared = engine->caps.sq_shared != 0;
    uint64_t bytes = 0, before = engine->stats.wrs_posted;
    engine->inflight_turn = peer_index(engine, peer);
    enum outcome outcome = shared ? post_before(engine, peer) : POST_MORE;
    for (int budget = SERVICE_BUDGET; budget > 0 && bytes == 0 && !is_stop(outcome) &&
                                      (!shared || engine->stats.wrs_posted == before);
         budget--)
        outcome = take_turn(engine, peer, &bytes);
    if (shared && engine->stats.wrs_posted == before && outcome != POST_FULL &&
        post_before(engine, peer) == POST_FULL)
        outcome = POST_FULL;
    engine->inflight_turn = NONE;
    return outcome;
}

/* Bytes came back: the peers that wait for them post in their order, a chain each a round. */
void turns_inflight(weir_engine *engine) {
    int budget = INFLIGHT_BUDGET;
    engine->inflight_due = false;
    while (engine->inflight_head != NONE && !inflight_lacks_slots(engine)) {
        if (budget-- == 0) {
            engine->inflight_due = true;
            return;
        }
        struct peer *peer = inflight_pop(engine);
        uint64_t before = engine->stats.wrs_posted;
        enum outcome outcome = post_first(engine, peer);
        bool slots = inflight_lacks_slots(engine), went = engine->stats.wrs_posted != before;
        bool again = peer->inflight_waits; /* for a SEND */
        if (!again && outcome == POST_FULL && !(slots && went)) {
            inflight_push_front(engine, peer);
            return;
        }
        bool more = peer->live != NONE && peer->lists[LIST_PENDING].count > 0;
        if (!again && (outcome == POST_FULL || (more && !is_stop(outcome)) ||
                       (went && owes_sends(engine, peer)))) {
            if (more && engine->inflight_head != NONE)
                peer_waits(engine, peer, slots ? WEIR_WAITING_SLOTS : WEIR_WAITING_INFLIGHT);
            inflight_push(engine, peer);
        }
        peer_update_fast(engine, peer);
    }
}

/* Words about messages are heard at once, and answered: a few rounds of that are one turn. */
static void serve_self(weir_engine *engine, struct peer *peer, uint64_t bytes_most) {
    bool more = true;
    if (peer->spent && peer->runnable)
        return;
    peer->spent = false;
    for (int rounds = SERVE_ROUNDS; more && rounds > 0 && peer->live != NONE; rounds--) {
        if (peer->streams != STREAM_NONE || peer->talk.due)
            talk_serve(engine, peer, bytes_most);
        if (loop_serve(engine, peer, bytes_most))
            break;
        more = peer->talk.due && !peer->talk.speaking;
    }
    if (more && peer->live != NONE && (peer->lists[LIST_PENDING].count > 0 || peer->talk.due)) {
        run_later(engine, peer);
        peer->spent = true;
    }
}

/* Posts for one peer: its transfers in turn, until slots, bytes in flight or the budget are used
 * up. The budget is used up by the chain that reaches bytes_most, too, and when turns_next_is_long.
 * A peer that could go on is put back on the run list, and has its next turn from there. */
void turns_serve(weir_engine *engine, struct peer *peer, uint64_t bytes_most) {
    if (peer->loop) {
        serve_self(engine, peer, bytes_most);
        return;
    }
    if (peer->live == NONE || (peer->spent && peer->runnable))
        return;
    peer->spent = false;
    bool last = peer->credits_went && peer->waits_for == WEIR_WAITING_SLOTS;
    peer->credits_went = false;
    if (!last && !post_credits(engine, peer))
        wait_in_line(engine, peer);
    if (peer->streams != STREAM_NONE || peer->talk.due)
        talk_serve(engine, peer, bytes_most);
    uint64_t bytes = 0;
    int budget = SERVICE_BUDGET - post_waiters(engine, peer, SERVICE_BUDGET / 2, bytes_most);
    enum outcome outcome = POST_MORE;
    while (peer->live != NONE && peer->lists[LIST_PENDING].count > 0 && !is_stop(outcome)) {
        if (budget == 0 || bytes >= bytes_most || turns_next_is_long(engine, peer, bytes_most)) {
            run_later(engine, peer);
            peer->spent = true;
            peer_waits(engine, peer, WEIR_WAITING_ENGINE);
            break;
        }
        outcome = take_turn(engine, peer, &bytes);
        if (outcome == POST_FULL)
            wait_in_line(engine, peer);
        budget--;
    }
    if (last && peer->live != NONE && !post_credits(engine, peer))
        wait_in_line(engine, peer);
    if (peer->live != NONE && peer->tails_due > 0)
        post_tails(engine, peer);
    peer_update_fast(engine, peer);
}

void turns_next(weir_engine *engine, uint64_t bytes_most) {
    turns_serve(engine, run_next(engine), bytes_most);
}
