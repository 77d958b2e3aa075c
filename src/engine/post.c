/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: from pending transfers to chains of WRs on QPs.
 *
 * Owns the rules of admission. Slots are taken only by the chain that is posted now, and never held
 * while waiting for more. A chain has at most chain_max WRs and fills at most a quarter of the
 * queue. (A SEND of several notes holds a slot for each, and the write in front of it one.) An
 * unsignalled tail is closed in time (ledger.h). So a full queue drains by itself. Whose turn it is
 * is turns.c's.
 *
 * Order within a notified transfer: on a session that is ordered on both sides the notification's
 * parts follow written data on each QP that carried some. On other sessions, and behind reads, the
 * notification waits until all of the data has completed, and has one part. A transfer that was
 * replayed posts nothing before its last step has completed. (A read is not done when the target
 * has sent the bytes: the answer may be lost with the QP, and the target, once told, may have
 * reused the memory.)
 */
#include "post.h"

#include "agenda.h"
#include "inflight.h"
#include "lists.h"
#include "notes.h"
#include "records.h"
#include "sends.h"
#include "stall.h"
#include "tables.h"
#include "transfer.h"

#include <assert.h>

/* ---- bytes in flight --------------------------------------------------- */

/* ledger_undo, and the engine's sum. */
static inline void undo(weir_engine *engine, struct qp *qp, uint64_t seq) {
    uint32_t used = qp->ledger.used;
    uint64_t bytes = ledger_undo(&qp->ledger, seq);
    inflight_give(engine, used - qp->ledger.used, bytes);
    inflight_returned(engine);
}

/* ledger_trim, and the engine's sum. */
static void trim(weir_engine *engine, struct qp *qp, uint64_t seq, uint32_t accepted,
                 uint64_t bytes) {
    uint32_t used = qp->ledger.used;
    uint64_t rest = ledger_trim(&qp->ledger, seq, accepted, 0, bytes);
    inflight_give(engine, used - qp->ledger.used, rest);
    inflight_returned(engine);
}

/* Bytes that reads and writes among these move. */
static uint64_t bytes_of(const struct weir_wr *wrs, uint32_t count) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += wrs[i].opcode == WEIR_OP_SEND ? 0 : wrs[i].length;
    return bytes;
}

/* account, of a post of which not all WRs are under way. */
static __attribute__((noinline)) bool account_rest(weir_engine *engine, struct qp *qp,
                                                   struct transfer *transfer, uint64_t seq,
                                                   const struct weir_wr *wrs, uint32_t count,
                                                   bool quiet, const struct weir_post *post) {
    uint32_t under_way = post->accepted - post->done;
    if (post->accepted < count && post->accepted > 0)
        engine->stats.partial_posts++;
    if (post->done > 0) {
        qp->done_in_post = true;
        if (transfer != NULL)
            watch_run(peer_at(engine, qp->peer), transfer);
        if (engine->caps.ordered && ledger_pass(&qp->ledger, seq)) {
            struct peer *peer = peer_at(engine, qp->peer);
            peer->tails_due = 1; /* post_tails retires them, with no transfer in hand */
            run_later(engine, peer);
        }
    }
    if (under_way == 0) {
        undo(engine, qp, seq);
        return post->accepted == count;
    }
    if (transfer != NULL)
        transfer->outstanding++;
    if (post->accepted < count) {
        trim(engine, qp, seq, under_way, bytes_of(wrs + post->done, under_way));
        engine->stats.orphans += under_way;
        return false;
    }
    if (quiet)
        ledger_leave_quiet(&qp->ledger, count);
    else
        run_cover(engine, qp, 1);
    return true;
}

/* Accounts for a post. A chain that is done already holds no slots. A chain that was accepted whole
 * and is done in part holds all of its slots until its last completion. True: all accepted. */
static inline bool account(weir_engine *engine, struct qp *qp, struct transfer *transfer,
                           uint64_t seq, const struct weir_wr *wrs, uint32_t count, bool quiet,
                           const struct weir_post *post) {
    uint32_t under_way = post->accepted - post->done;
    engine->stats.posts++;
    engine->stats.wrs_posted += post->accepted;
    if (__builtin_expect(under_way == count, 1)) {
        if (transfer != NULL)
            transfer->outstanding++;
        if (quiet)
            ledger_leave_quiet(&qp->ledger, count);
        else
            run_cover(engine, qp, 1);
        return true;
    }
    return account_rest(engine, qp, transfer, seq, wrs, count, quiet, post);
}

/* Posts engine->chain as one run or, on a device without order, as a run for each WR: there no
 * completion accounts for another WR. Such a device does nothing in the post, and no run of it
 * loses its end. 0: all accepted; else what the device says. */
static int post_apart(weir_engine *engine, struct qp *qp, struct transfer *transfer, uint32_t count,
                      struct weir_post *post_out) {
    for (uint32_t i = 0; i < count; i++) {
        struct weir_wr *wr = &engine->chain[i];
        uint64_t seq = run_take(engine, qp, transfer_index(engine, transfer), 1, 0, wr->length);
        wr->wr_id = route_id(ROUTE_RUN, qp_index(engine, qp), seq);
        wr->flags |= WEIR_WR_SIGNALED;
    }
    int rc = engine->device_ops->post_send(qp->qp, engine->chain, count, post_out);
    engine->stats.posts++;
    engine->stats.wrs_posted += post_out->accepted;
    engine->stats.partial_posts += post_out->accepted > 0 && post_out->accepted < count;
    for (uint32_t i = count; i > post_out->accepted; i--)
        undo(engine, qp, qp->ledger.tail - 1);
    transfer->outstanding += post_out->accepted;
    run_cover(engine, qp, post_out->accepted);
    return post_out->accepted == count ? WEIR_OK : rc;
}

static int post_chain(weir_engine *engine, struct qp *qp, struct transfer *transfer, uint32_t count,
                      uint32_t sends, uint64_t bytes, struct weir_post *post_out) {
    if (!engine->caps.ordered)
        return post_apart(engine, qp, transfer, count, post_out);
    bool quiet = ledger_may_be_quiet(&qp->ledger, count);
    if (!quiet)
        engine->chain[count - 1].flags |= WEIR_WR_SIGNALED;
    uint64_t seq = run_take(engine, qp, transfer_index(engine, transfer), count, sends, bytes);
    int rc = engine->device_ops->post_send(qp->qp, engine->chain, count, post_out);
    bool all = account(engine, qp, transfer, seq, engine->chain, count, quiet, post_out);
    return all ? WEIR_OK : rc;
}

/* A run with no signalled run behind it is closed by an empty signalled write, whose completion
 * accounts for everything before it. True: it is. */
bool post_empty(weir_engine *engine, struct qp *qp) {
    if (ledger_free(&qp->ledger) == 0 || inflight_slots(engine, peer_at(engine, qp->peer)) == 0)
        return false;
    uint64_t seq = run_take(engine, qp, LEDGER_NO_TRANSFER, 1, 0, 0);
    struct weir_wr wr = {.wr_id = route_id(ROUTE_RUN, qp_index(engine, qp), seq),
                         .opcode = WEIR_OP_WRITE,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post post;
    int rc = engine->device_ops->post_send(qp->qp, &wr, 1, &post);
    if (account(engine, qp, NULL, seq, &wr, 1, false, &post))
        return true;
    if (rc == WEIR_EDEVICE)
        note_broken(engine, peer_at(engine, qp->peer), qp->session);
    else
        qp_block(engine, qp);
    return false;
}

/* True: no orphan is open. On a session that broke, or is not up, nothing is posted for it. */
bool post_heal(weir_engine *engine, struct qp *qp) {
    if (!qp->ledger.open)
        return true;
    return peer_at(engine, qp->peer)->live == qp->session && post_empty(engine, qp);
}

/* An empty write on the live session. None is posted on a full queue, whose WRs are answered as
 * well; for a slot of those that all share the peer waits in line. True: the write was answered at
 * once. */
bool post_life(weir_engine *engine, struct peer *peer) {
    if (peer->loop)
        return true;
    peer->life_due = peer->live != NONE && inflight_slots(engine, peer) == 0;
    if (peer->life_due && !peer->inflight_waits)
        inflight_push(engine, peer);
    if (peer->live == NONE || peer->life_due)
        return false;
    struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    uint64_t tail = qp->ledger.tail;
    return qp_is_usable(qp) && post_empty(engine, qp) && qp->ledger.tail == tail;
}

static inline bool has_slot(weir_engine *engine, struct qp *qp) {
    return qp_is_usable(qp) && post_heal(engine, qp) && ledger_free(&qp->ledger) > 0;
}

/* A QP of the live session, which has a slot. NULL: none has, or the session broke here, since the
 * device refused the empty write of post_heal for good. */
static inline struct qp *choose_qp(weir_engine *engine, const struct peer *peer,
                                   struct session *session) {
    if (session->qp_used == 1) {
        struct qp *qp = &engine->qps[session->qps[0]];
        return has_slot(engine, qp) ? qp : NULL;
    }
    for (uint32_t k = 0; k < session->qp_used && peer->live != NONE; k++) {
        uint32_t turn = (session->turn + k) % session->qp_used;
        struct qp *qp = &engine->qps[session->qps[turn]];
        if (has_slot(engine, qp)) {
            session->turn = turn + 1;
            return qp;
        }
    }
    return NULL;
}

bool post_credit_under_way(struct qp *qp) {
    if (!qp->credit.under_way)
        return false;
    const struct ledger_run *run = ledger_peek(&qp->ledger, qp->credit.under_way_seq);
    if (run == NULL || (run->state & LEDGER_POSTED) == 0)
        credit_landed(&qp->credit);
    return qp->credit.under_way;
}

/* Writes the SEND for a part of what the transfer tells, or a credit message (NULL). */
static void make_send(weir_engine *engine, struct peer *peer, struct qp *qp,
                      const struct transfer *transfer, uint8_t parts, struct weir_wr *wr) {
    post_credit_under_way(qp);
    struct wire_data data = {.kind = WIRE_CREDIT, .credit = credit_to_tell(&qp->credit)};
    if (transfer != NULL) {
        static const uint8_t kinds[] = {[TRANSFER_PLAIN] = WIRE_NOTIFY,
                                        [TRANSFER_MESSAGE] = WIRE_MESSAGE,
                                        [TRANSFER_SKIP] = WIRE_MESSAGE,
                                        [TRANSFER_WORDS] = WIRE_WORDS};
        data = (struct wire_data){.kind = kinds[transfer->kind],
                                  .parts = parts,
                                  .payload_length = (uint16_t)transfer->notify_length,
                                  .credit = data.credit,
                                  .number = transfer->number,
                                  .tag = transfer->tag,
                                  .base = peer->sent.base};
    }
    uint32_t length = WIRE_DATA_SIZE + data.payload_length;
    uint8_t *bytes = send_bytes(engine, qp, length);
    wire_data_encode(&data, bytes);
    if (data.payload_length > 0)
        memcpy(bytes + WIRE_DATA_SIZE, transfer->payload, data.payload_length);
    *wr = send_wr(engine, bytes, length, wr->wr_id);
}

/* One SEND by itself: a notification part or a credit message. WEIR_EAGAIN: no slot or
 * buffer, or the device refused for now. WEIR_EFULL: no slot of those that all share.
 * WEIR_ENOTREADY: no credit, or too many numbers unfinished, so that other transfers may go first.
 */
int post_message(weir_engine *engine, struct peer *peer, struct qp *qp, struct transfer *transfer,
                 uint8_t parts) {
    if (!qp_is_usable(qp) || !post_heal(engine, qp) || ledger_free(&qp->ledger) == 0 ||
        !send_room(engine, qp))
        return WEIR_EAGAIN;
    if (transfer != NULL && !credit_available(&qp->credit, send_class(transfer)))
        return WEIR_ENOTREADY;
    if (inflight_slots(engine, peer) == 0)
        return WEIR_EFULL;
    if (transfer != NULL && !send_number(engine, peer, transfer))
        return WEIR_ENOTREADY;
    struct weir_wr wr = {0};
    make_send(engine, peer, qp, transfer, parts, &wr);
    uint32_t index = transfer != NULL ? transfer_index(engine, transfer) : LEDGER_NO_TRANSFER;
    uint64_t seq = run_take(engine, qp, index, 1, wants_buffer(engine, &wr) ? 1 : 0, 0);
    wr.wr_id = route_id(ROUTE_RUN, qp_index(engine, qp), seq);
    wr.flags |= WEIR_WR_SIGNALED;
    struct weir_post post;
    int rc = engine->device_ops->post_send(qp->qp, &wr, 1, &post);
    if (!account(engine, qp, transfer, seq, &wr, 1, false, &post)) {
        if (rc == WEIR_EAGAIN && inflight_shuts(engine))
            return WEIR_EFULL;
        if (rc == WEIR_EAGAIN)
            qp_block(engine, qp);
        return rc;
    }
    if (transfer == NULL && post.done == 0 && !peer->sessions[qp->session].ordered)
        credit_launched(&qp->credit, seq);
    send_posted(engine, qp, &wr, transfer, post.done == 1);
    return WEIR_OK;
}

/* The target has released the memory that is next of the transfer, and nothing was posted. Messages
 * go to memory that this engine asked for itself: they end as their inbox says. */
static bool memory_is_gone(weir_engine *engine, struct transfer *transfer) {
    if (transfer->kind != TRANSFER_PLAIN || plan_done(&transfer->cursor))
        return false;
    const struct plan_cursor *at = &transfer->cursor;
    const struct plan_piece *piece = &engine->blocks[at->block].pieces[at->piece];
    remote_make_stale(engine, &engine->regions.remotes[piece->remote]);
    transfer_stop(engine, transfer, WEIR_ESTALE);
    return true;
}

/* The device refused a WR of the transfer with rc. POST_MORE: for now; POST_FULL: until something
 * that was posted is over. POST_STOPPED: for good, or the session broke. */
static enum outcome refused(weir_engine *engine, struct peer *peer, struct qp *qp,
                            struct transfer *transfer, int rc) {
    if (rc == WEIR_EAGAIN && inflight_shuts(engine))
        return POST_FULL;
    if (rc == WEIR_EAGAIN) {
        qp_block(engine, qp);
        return POST_MORE;
    }
    if (rc == WEIR_EINVAL) {
        /* This one can never go: nothing else of the transfer is posted. */
        transfer_stop(engine, transfer, WEIR_EINVAL);
        post_heal(engine, qp);
        return POST_STOPPED;
    }
    if (rc == WEIR_ESTALE && memory_is_gone(engine, transfer)) {
        post_heal(engine, qp);
        return POST_STOPPED;
    }
    note_broken(engine, peer, qp->session);
    return POST_STOPPED;
}

static bool single(uint16_t mask) {
    return (mask & (mask - 1)) == 0;
}

/* Whether the notification may follow the data without waiting for its completion. */
static bool pipelines(const struct session *session, const struct transfer *transfer) {
    return session->ordered && transfer->opcode == WEIR_OP_WRITE;
}

/* Whether other transfers wait for credits of this QP: this one has to wait behind them. One that
 * has a number does not wait behind one that has none: that may wait for a number, and so for this
 * one. */
static bool others_wait(const weir_engine *engine, const struct peer *peer,
                        const struct transfer *transfer, uint32_t index) {
    uint8_t list = credit_list(transfer, index);
    const struct list *others = &peer->lists[list];
    return others->count > 0 && transfer->list != list &&
           (transfer->number == 0 || engine->transfers[others->head].number != 0);
}

/* A step of the transfer completed. The counts of sessions that broke under it (replays, lost)
 * begin anew; the count of sessions that it may have broken itself (breaks) stays. */
static void step_done(struct peer *peer, struct transfer *transfer) {
    peer->suspects -= transfer_is_suspect(transfer);
    transfer->replays = 0;
    transfer->lost = 0;
    peer->suspects += transfer_is_suspect(transfer);
}

/* The next step of a transfer that was replayed; false: the one before is not done. */
static bool take_step(struct peer *peer, struct transfer *transfer) {
    if (transfer->outstanding > 0)
        return false;
    if (transfer->marked && memcmp(&transfer->mark, &transfer->cursor, sizeof(transfer->mark)) != 0)
        step_done(peer, transfer);
    transfer->mark = transfer->cursor;
    transfer->marked = true;
    return true;
}

/* The most WRs of a chain: a quarter of the queue. */
static uint32_t chain_slots(const weir_engine *engine, const struct qp *qp) {
    uint32_t depth = qp->ledger.depth, shared = engine->caps.sq_shared;
    if (shared != 0 && shared < depth)
        depth = shared;
    return depth / 4 > 0 ? depth / 4 : 1;
}

/* One chain of data. The notification is its last WR if the data ends here, all of it went to this
 * QP, and the SEND may be posted now. */
static enum outcome post_data(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                              uint64_t *bytes) {
    struct session *session = &peer->sessions[peer->live];
    if (__builtin_expect(transfer_was_replayed(transfer), 0) && !take_step(peer, transfer))
        return POST_WAITS;
    struct qp *qp = choose_qp(engine, peer, session);
    if (qp == NULL)
        return POST_SLOTS;
    uint64_t bytes_room = inflight_left(engine);
    uint32_t slots = inflight_slots(engine, peer);
    if (!inflight_open(engine, peer) || slots == 0 ||
        (inflight_bytes(engine) > 0 &&
         plan_next_bytes(engine->blocks, &transfer->cursor, engine->caps.message_bytes_max) >
             bytes_room))
        return POST_FULL;
    uint32_t index = qp_index(engine, qp);
    uint32_t room = ledger_free(&qp->ledger) < slots ? ledger_free(&qp->ledger) : slots;
    uint64_t seq = qp->ledger.tail;
    struct plan_limits limits = {
        .wrs_max = room < engine->options.chain_max ? room : engine->options.chain_max,
        .message_bytes_max = engine->caps.message_bytes_max,
        .post_bytes_max = bytes_room < engine->post_bytes_max ? bytes_room : engine->post_bytes_max,
        .wr_id = route_id(ROUTE_RUN, index, seq),
        .opcode = transfer->opcode,
        .inline_bytes_max = engine->caps.inline_bytes_max,
    };
    uint32_t quarter = chain_slots(engine, qp);
    if (limits.wrs_max > quarter)
        limits.wrs_max = quarter;
    struct plan_cursor before = transfer->cursor;
    uint64_t chain_bytes = 0;
    uint32_t count =
        plan_fill(engine->blocks, &transfer->cursor, &limits, engine->chain, &chain_bytes);
    *bytes += chain_bytes;
    uint32_t data_count = count;
    uint16_t mask = (uint16_t)(1u << qp->index);
    bool notify = transfer_notifies(transfer) && pipelines(session, transfer) &&
                  plan_done(&transfer->cursor) && single(transfer->data_mask | mask) &&
                  count < room && count < quarter && send_room(engine, qp) &&
                  credit_available(&qp->credit, send_class(transfer)) &&
                  !others_wait(engine, peer, transfer, qp->index) &&
                  send_number(engine, peer, transfer);
    if (notify) {
        engine->chain[count].wr_id = limits.wr_id;
        make_send(engine, peer, qp, transfer, 1, &engine->chain[count]);
        count++;
    }
    bool buffered = notify && wants_buffer(engine, &engine->chain[count - 1]);
    struct weir_post post;
    int rc = post_chain(engine, qp, transfer, count, buffered ? 1 : 0, chain_bytes, &post);
    if (post.accepted > 0) {
        transfer->epoch = session->epoch;
        transfer->data_mask |= mask;
    }
    if (rc != WEIR_OK) {
        transfer->cursor = before;
        uint64_t ignored = 0;
        limits.wrs_max = post.accepted < data_count ? post.accepted : data_count;
        if (limits.wrs_max > 0)
            plan_fill(engine->blocks, &transfer->cursor, &limits, engine->chain, &ignored);
        return refused(engine, peer, qp, transfer, rc);
    }
    if (notify) {
        send_posted(engine, qp, &engine->chain[count - 1], transfer, post.done == count);
        transfer->parts_need = transfer->parts_mask = mask;
    }
    return transfer_all_posted(transfer) ? POST_ALL : POST_MORE;
}

/* The first `count` that are pending were posted, each as a run of its own, unsignalled so
 * far as the ledger knows. */
static void posted_together(weir_engine *engine, struct peer *peer, const struct session *session,
                            struct qp *qp, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = peer->lists[LIST_PENDING].head;
        struct transfer *transfer = &engine->transfers[index];
        run_take(engine, qp, index, 1, 0, transfer->bytes);
        transfer->outstanding = 1;
        transfer->cursor.block = PLAN_NO_BLOCK;
        transfer->epoch = session->epoch;
        transfer->data_mask = (uint16_t)(1u << qp->index);
        list_remove(engine, transfer);
        list_push(engine, peer, transfer, LIST_POSTED);
    }
}

/* Writes the WRs of pending transfers that are one WR each, from the first on, as many as may be
 * posted now. Returns how many. Their runs are taken when it is known which WRs the device took. */
static uint32_t fill_together(weir_engine *engine, const struct peer *peer, const struct qp *qp,
                              uint64_t *bytes) {
    uint32_t quarter = chain_slots(engine, qp);
    uint32_t most = ledger_free(&qp->ledger) < quarter ? ledger_free(&qp->ledger) : quarter;
    uint64_t room = inflight_left(engine);
    uint32_t count = 0;
    if (most > inflight_slots(engine, peer))
        most = inflight_slots(engine, peer);
    if (most > engine->options.chain_max)
        most = engine->options.chain_max;
    if (room > engine->post_bytes_max)
        room = engine->post_bytes_max;
    for (uint32_t i = peer->lists[LIST_PENDING].head; i != NONE && count < most;
         i = engine->transfers[i].next) {
        const struct transfer *transfer = &engine->transfers[i];
        if (!transfer_is_one_wr(engine, transfer) || (count > 0 && *bytes + transfer->bytes > room))
            break;
        const struct plan_limits limits = {
            .wr_id = route_id(ROUTE_RUN, qp_index(engine, qp), qp->ledger.tail + count),
            .opcode = transfer->opcode,
            .inline_bytes_max = engine->caps.inline_bytes_max,
        };
        const struct plan_piece *piece = &engine->blocks[i].pieces[0];
        engine->chain[count++] = plan_wr(piece, 0, piece->length, &limits);
        *bytes += piece->length;
    }
    return count;
}

/* Several transfers of one WR each in one chain, in their order: one by one they would cost a
 * doorbell each. */
enum outcome post_together(weir_engine *engine, struct peer *peer, uint64_t *bytes) {
    struct session *session = &peer->sessions[peer->live];
    struct qp *qp = choose_qp(engine, peer, session);
    if (qp == NULL)
        return POST_SLOTS;
    const struct transfer *first = &engine->transfers[peer->lists[LIST_PENDING].head];
    if (!inflight_open(engine, peer) || inflight_slots(engine, peer) == 0 ||
        (inflight_bytes(engine) > 0 && first->bytes > inflight_left(engine)))
        return POST_FULL;
    uint64_t chain_bytes = 0;
    uint32_t count = fill_together(engine, peer, qp, &chain_bytes);
    bool quiet = engine->caps.ordered && ledger_may_be_quiet(&qp->ledger, count);
    for (uint32_t i = engine->caps.ordered ? count - 1 : 0; !quiet && i < count; i++)
        engine->chain[i].flags |= WEIR_WR_SIGNALED;
    struct weir_post post;
    int rc = engine->device_ops->post_send(qp->qp, engine->chain, count, &post);
    engine->stats.posts++;
    engine->stats.wrs_posted += post.accepted;
    *bytes += chain_bytes;
    posted_together(engine, peer, session, qp, post.accepted);
    if (post.accepted == count && quiet)
        ledger_leave_quiet(&qp->ledger, count);
    else if (post.accepted == count || !engine->caps.ordered)
        run_cover(engine, qp, engine->caps.ordered ? 1 : post.accepted);
    if (post.accepted == count)
        return POST_TOGETHER;
    if (post.accepted > 0) {
        engine->stats.partial_posts++;
        if (engine->caps.ordered) {
            engine->stats.orphans += post.accepted;
            ledger_orphan(&qp->ledger, post.accepted);
        }
    }
    return refused(engine, peer, qp, &engine->transfers[peer->lists[LIST_PENDING].head], rc);
}

/* Posts a filled transfer of one WR, before which nothing waits (peer->posts_at_once), without its
 * becoming pending. False: nothing was done, and it has to be started. Sleeping threads are told
 * only of a deadline, and of the first post after a rest (stall.c): the armed device wakes them for
 * the completion. */
bool post_at_once(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                  uint32_t index) {
    const struct plan_piece *piece = &engine->blocks[index].pieces[0];
    struct session *session = &peer->sessions[peer->live];
    struct qp *qp = choose_qp(engine, peer, session);
    if (qp == NULL || !inflight_fits(engine, piece->length) || inflight_slots(engine, peer) == 0)
        return false;
    transfer->turn_begun = peer->watch.turn;
    bool quiet = engine->caps.ordered && ledger_may_be_quiet(&qp->ledger, 1);
    uint64_t seq = run_take(engine, qp, index, 1, 0, piece->length);
    const struct plan_limits limits = {
        .wr_id = route_id(ROUTE_RUN, qp_index(engine, qp), seq),
        .opcode = transfer->opcode,
        .inline_bytes_max = engine->caps.inline_bytes_max,
    };
    struct weir_wr wr = plan_wr(piece, 0, piece->length, &limits);
    if (!quiet)
        wr.flags |= WEIR_WR_SIGNALED;
    struct weir_post post;
    engine->device_ops->post_send(qp->qp, &wr, 1, &post);
    if (!account(engine, qp, transfer, seq, NULL, 1, quiet, &post))
        return false;
    transfer->cursor.block = PLAN_NO_BLOCK;
    transfer->epoch = session->epoch;
    transfer->data_mask = (uint16_t)(1u << qp->index);
    if (watch_is_idle(peer))
        watch_begun(engine, peer, true);
    list_push_posted(engine, peer, transfer, index);
    if (__builtin_expect(transfer->deadline_ns != UINT64_MAX, 0)) {
        timer_own(engine, transfer);
        engine->worked = true;
    }
    stall_posted(engine);
    if (__builtin_expect(transfer->outstanding == 0, 0))
        transfer_check(engine, transfer);
    return true;
}

/* The QP for a notification that goes to any one QP: the next in turn that has a credit and no
 * transfer waiting for one; without such a QP the next in turn. */
static uint16_t free_part(weir_engine *engine, struct peer *peer, struct session *session,
                          const struct transfer *transfer) {
    if (transfer->kind == TRANSFER_WORDS)
        return 1; /* messages of one QP are read in their order */
    uint32_t turn = session->turn++ % session->qp_used;
    for (uint32_t k = 0; k < session->qp_used; k++) {
        const struct qp *qp = &engine->qps[session->qps[(turn + k) % session->qp_used]];
        if (credit_available(&qp->credit, send_class(transfer)) &&
            peer->lists[credit_list(transfer, qp->index)].count == 0)
            return (uint16_t)(1u << qp->index);
    }
    return (uint16_t)(1u << engine->qps[session->qps[turn]].index);
}

/* The notification's parts: one on each QP that carried data, or, if it waited for the data, one on
 * any QP. POST_CREDITS: *stuck_out is the index of the QP on which it has to wait. */
enum outcome post_parts(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                        uint32_t *stuck_out) {
    struct session *session = &peer->sessions[peer->live];
    if (transfer->parts_need == 0) {
        if (transfer_was_replayed(transfer)) {
            if (!take_step(peer, transfer))
                return POST_WAITS;
            transfer->parts_need = free_part(engine, peer, session, transfer);
        } else if (pipelines(session, transfer) && transfer->data_mask != 0) {
            transfer->parts_need = transfer->data_mask;
        } else {
            if (transfer->outstanding > 0)
                return POST_WAITS;
            transfer->parts_need = free_part(engine, peer, session, transfer);
        }
    }
    uint8_t parts = (uint8_t)__builtin_popcount(transfer->parts_need);
    for (uint32_t i = 0; i < session->qp_used; i++) {
        uint16_t mask = (uint16_t)(1u << i);
        if ((transfer->parts_need & mask) == 0 || (transfer->parts_mask & mask) != 0)
            continue;
        struct qp *qp = &engine->qps[session->qps[i]];
        int rc = others_wait(engine, peer, transfer, i)
                     ? WEIR_ENOTREADY
                     : post_message(engine, peer, qp, transfer, parts);
        if (rc == WEIR_EAGAIN)
            return POST_SLOTS;
        if (rc == WEIR_EFULL)
            return POST_FULL;
        if (rc == WEIR_ENOTREADY) {
            *stuck_out = i;
            return POST_CREDITS;
        }
        if (rc != WEIR_OK)
            return refused(engine, peer, qp, transfer, rc);
        transfer->epoch = session->epoch;
        transfer->parts_mask |= mask;
    }
    return POST_ALL;
}

enum outcome post_next(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                       uint64_t *bytes, uint32_t *stuck_out) {
    if (!plan_done(&transfer->cursor))
        return post_data(engine, peer, transfer, bytes);
    if (!transfer_all_posted(transfer))
        return post_parts(engine, peer, transfer, stuck_out);
    return POST_ALL;
}
