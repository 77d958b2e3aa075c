/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c: the life of a transfer from when the engine's owner has it until its
 * one terminal status.
 *
 *   start ─► PENDING ──all posted──► POSTED ──completions──► TERMINAL
 *             ▲  │                     │                        ▲
 *             │  └──session broke──────┴──► PARKED ──settled────┘
 *             │                                │
 *             └─────replay, not delivered──────┘
 *
 * Only transfers with runs outstanding are parked. A transfer that is to end early does so from
 * PENDING, too. One whose notification waited for its data is POSTED before it is PENDING again.
 *
 * Owns the lists, the terminal status and its report. Invariant: a transfer is terminal only when
 * no run of it is outstanding and, if one was flushed, when the other side has said that its QPs
 * are quiet too, or its word is not waited for any more (transfer_abandon).
 */
#include "transfer.h"

#include "agenda.h"
#include "cause.h"
#include "dial.h"
#include "inflight.h"
#include "notes.h"
#include "records.h"
#include "tables.h"

#include <assert.h>

static void enter_list(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                       uint8_t list) {
    static const uint8_t states[] = {TR_PENDING, TR_POSTED, TR_PARKED, TR_PENDING};
    /* SLOTS: or what else its peer waits for; peer_waiting_for tells. */
    static const weir_waiting_for waits[] = {WEIR_WAITING_SLOTS, WEIR_WAITING_COMPLETIONS,
                                             WEIR_WAITING_DRAIN, WEIR_WAITING_CREDITS};
    uint8_t kind = list < LIST_CREDITS ? list : LIST_CREDITS;
    transfer->state = states[kind];
    transfer->list = list;
    transfer->peer = peer_index(engine, peer);
    set_waiting(transfer, waits[kind]);
    peer->lists[list].count++;
    peer->waits++;
    peer->credit_waits += kind == LIST_CREDITS;
    peer->suspects += transfer_is_suspect(transfer);
    if (transfer->state == TR_PENDING)
        peer_not_fast(peer);
}

static inline void link_last(weir_engine *engine, struct list *l, struct transfer *transfer,
                             uint32_t index) {
    transfer->next = NONE;
    transfer->prev = l->tail;
    if (l->tail != NONE)
        engine->transfers[l->tail].next = index;
    else
        l->head = index;
    l->tail = index;
}

void list_push(weir_engine *engine, struct peer *peer, struct transfer *transfer, uint8_t list) {
    enter_list(engine, peer, transfer, list);
    link_last(engine, &peer->lists[list], transfer, transfer_index(engine, transfer));
}

/* list_push of a new transfer of the peer's, none of which is suspected, to LIST_POSTED. */
void list_push_posted(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint32_t index) {
    struct list *l = &peer->lists[LIST_POSTED];
    transfer->state = TR_POSTED;
    transfer->list = LIST_POSTED;
    set_waiting(transfer, WEIR_WAITING_COMPLETIONS);
    link_last(engine, l, transfer, index);
    l->count++;
    peer->waits++;
}

void list_push_front(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                     uint8_t list) {
    uint32_t index = transfer_index(engine, transfer);
    enter_list(engine, peer, transfer, list);
    struct list *l = &peer->lists[list];
    transfer->prev = NONE;
    transfer->next = l->head;
    if (l->head != NONE)
        engine->transfers[l->head].prev = index;
    else
        l->tail = index;
    l->head = index;
}

/* list_push, behind another of the peer's pending ones. */
static void list_push_behind(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                             uint32_t before) {
    uint32_t index = transfer_index(engine, transfer);
    enter_list(engine, peer, transfer, LIST_PENDING);
    struct list *l = &peer->lists[LIST_PENDING];
    transfer->prev = before;
    transfer->next = engine->transfers[before].next;
    engine->transfers[before].next = index;
    if (transfer->next != NONE)
        engine->transfers[transfer->next].prev = index;
    else
        l->tail = index;
}

static inline void leave_list(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    struct list *l = &peer->lists[transfer->list];
    if (transfer->prev != NONE)
        engine->transfers[transfer->prev].next = transfer->next;
    else
        l->head = transfer->next;
    if (transfer->next != NONE)
        engine->transfers[transfer->next].prev = transfer->prev;
    else
        l->tail = transfer->prev;
    l->count--;
    peer->waits--;
    peer->credit_waits -= transfer->list >= LIST_CREDITS;
    peer->suspects -= transfer_is_suspect(transfer);
}

void list_remove(weir_engine *engine, struct transfer *transfer) {
    leave_list(engine, peer_at(engine, transfer->peer), transfer);
}

static void report(weir_engine *engine, struct transfer *transfer, uint64_t id, int status) {
    /* Room is certain: the submit reserved it (completions_reserved). */
    weir_completion *completion = queue_room(&engine->completions);
    assert(completion != NULL);
    *completion =
        (weir_completion){.transfer = {id}, .user_data = transfer->user_data, .status = status};
    queue_put(&engine->completions);
}

void transfer_finish(weir_engine *engine, struct transfer *transfer, int status) {
    assert(transfer->outstanding == 0 && transfer->state != TR_TERMINAL);
    struct peer *peer = peer_at(engine, transfer->peer);
    leave_list(engine, peer, transfer);
    transfer->state = TR_TERMINAL;
    uint32_t index = transfer_index(engine, transfer);
    timers_clear(&engine->timers, index);
    if (engine->blocks[index].count == 1)
        record_drop_piece(engine, &engine->blocks[index].pieces[0]);
    else
        record_drop_pieces(engine, index);
    if (transfer->number != 0 && window_check(&peer->sent, transfer->number) == WINDOW_NEW)
        window_mark(&peer->sent, transfer->number);

    if (status == WEIR_OK || peer->waits == 0)
        peer_trouble_over(peer);
    if (status == WEIR_OK) {
        engine->stats.transfers_ok++;
        if (transfer->opcode == WEIR_OP_WRITE)
            engine->stats.bytes_written += transfer->bytes;
        else
            engine->stats.bytes_read += transfer->bytes;
        if (transfer_notifies(transfer))
            engine->stats.notifications_sent++;
    } else {
        engine->stats.transfers_failed++;
    }
    set_waiting(transfer, WEIR_WAITING_NOTHING);
    uint64_t id = atomic_load_explicit(&transfer->id, memory_order_relaxed);
    atomic_store_explicit(&transfer->status, status, memory_order_release);
    if ((transfer->flags & WEIR_TRANSFER_QUEUE) != 0) {
        report(engine, transfer, id, status);
        /* The handle goes by itself, unless a release by hand has dropped its reference before. */
        if (atomic_compare_exchange_strong(&transfer->id, &id, handle_next(id)))
            record_drop_ref(engine, transfer);
    }
    engine->worked = true;
    if (peer->fast_qp == NULL && !peer->posts_at_once && peer_pending(peer) == 0)
        peer_update_fast(engine, peer);
    record_drop_ref(engine, transfer);
}

static __attribute__((noinline)) void check_rest(weir_engine *engine, struct transfer *transfer,
                                                 bool done) {
    if (transfer->state == TR_POSTED && transfer->result == 0) {
        struct peer *peer = peer_at(engine, transfer->peer);
        list_remove(engine, transfer);
        list_push_front(engine, peer, transfer, LIST_PENDING);
        if (peer->live != NONE)
            run_later(engine, peer);
    } else if (transfer->state == TR_POSTED ||
               (transfer->state == TR_PENDING && transfer->result != 0)) {
        transfer_finish(engine, transfer, done ? WEIR_OK : transfer->result);
    }
}

/* Ends the transfer if nothing of it is under way and nothing is left to do. One
 * that was told to stop but was done all the same ended well; one whose notification
 * waited for its data goes on. */
void transfer_check(weir_engine *engine, struct transfer *transfer) {
    if (transfer->outstanding > 0)
        return;
    bool done = transfer_all_posted(transfer) && !transfer->flushed;
    if (__builtin_expect(done && transfer->state == TR_POSTED, 1))
        transfer_finish(engine, transfer, WEIR_OK);
    else
        check_rest(engine, transfer, done);
}

/* The transfer shall end with result: at once if nothing of it is under way, else when its runs are
 * over. If that takes longer than settle_grace_ns, its session is broken on purpose. */
void transfer_stop(weir_engine *engine, struct transfer *transfer, int result) {
    if (transfer->result == 0)
        transfer->result = result;
    transfer->deadline_ns = UINT64_MAX;
    if (transfer->state == TR_PENDING && transfer->outstanding > 0) {
        struct peer *peer = peer_at(engine, transfer->peer);
        list_remove(engine, transfer);
        list_push(engine, peer, transfer, LIST_POSTED);
        peer_update_fast(engine, peer);
    }
    timer_transfer(engine, transfer, UINT64_MAX);
    if (transfer->state == TR_POSTED && transfer->outstanding > 0) {
        set_waiting(transfer, WEIR_WAITING_DRAIN);
        timer_transfer(engine, transfer, engine_now(engine) + engine->options.settle_grace_ns);
    }
    struct peer *peer = peer_at(engine, transfer->peer);
    transfer_check(engine, transfer);
    if (peer->lists[LIST_PENDING].count == 0)
        peer_wait_over(engine, peer);
    inflight_changed(engine, peer);
}

/* A parked transfer's own deadline is looked at when its fate is known; until then
 * its timer bounds the wait for that. */
static void settle_timer(weir_engine *engine, const struct transfer *transfer) {
    timer_transfer(engine, transfer, engine_now(engine) + engine->options.connect_timeout_ns);
}

void transfer_timer(weir_engine *engine, struct transfer *transfer) {
    struct peer *peer = peer_at(engine, transfer->peer);
    switch (transfer->state) {
    case TR_PENDING:
    case TR_POSTED:
        if (transfer->result == 0 || transfer->state == TR_PENDING) {
            transfer_stop(engine, transfer, WEIR_ETIMEDOUT);
        } else if (transfer->outstanding > 0) {
            for (uint32_t s = 0; s < EP_SESSIONS; s++) {
                if (!peer->sessions[s].used || peer->sessions[s].epoch != transfer->epoch)
                    continue;
                cause_own(engine, peer, s, transfer->result, transfer);
                note_broken(engine, peer, s);
            }
        }
        break;
    case TR_PARKED:
        /* The other side has been silent for too long about the session that broke. */
        if (transfer->outstanding == 0)
            transfer_abandon(engine, peer, transfer->epoch, WEIR_EUNKNOWN);
        else
            settle_timer(engine, transfer);
        break;
    default:
        break;
    }
}

/* Whether all remote memories that it names are of the peer's present incarnation. */
static bool remotes_current(const weir_engine *engine, const struct peer *peer,
                            const struct transfer *transfer) {
    for (uint32_t b = transfer_index(engine, transfer); b != PLAN_NO_BLOCK;
         b = engine->blocks[b].next) {
        for (uint32_t i = 0; i < engine->blocks[b].count; i++) {
            uint32_t remote = engine->blocks[b].pieces[i].remote;
            if (engine->regions.remotes[remote].party != peer->party)
                return false;
        }
    }
    return true;
}

/* Starts a transfer that the submitter filled: resolves its peer, and puts it behind the others
 * that are pending. Returns the peer if it can post for it now, else NULL. */
struct peer *transfer_start(weir_engine *engine, struct transfer *transfer) {
    /* Handed over, it may have waited while the peer was closed or replaced, turned out
     * to be another one, or became known. */
    struct peer *named = peer_at(engine, transfer->peer);
    struct peer *peer = named->id != 0 ? peer_resolve(engine, named) : named;
    bool same = named->id != 0 && transfer->party == named->party;
    bool fresh = same && transfer->version == engine->regions.version;
    int ended = transfer->party == named->closed_party ? WEIR_ECLOSED : WEIR_EPEER;
    transfer->party = peer->party;
    list_push(engine, peer, transfer, LIST_PENDING);
    engine->worked = true; /* a sleeper's time-out may have to be shorter now */
    if (transfer->deadline_ns != UINT64_MAX)
        timer_own(engine, transfer);
    if (engine->closing) {
        transfer_stop(engine, transfer, WEIR_ECLOSED);
        return NULL;
    }
    if (!same) {
        transfer_stop(engine, transfer, ended);
        return NULL;
    }
    if (!fresh && !remotes_current(engine, peer, transfer)) {
        transfer_stop(engine, transfer, WEIR_ESTALE);
        return NULL;
    }
    if (atomic_load_explicit(&transfer->cancel, memory_order_relaxed)) {
        transfer_stop(engine, transfer, WEIR_ECANCELED);
        return NULL;
    }
    if (peer->live != NONE)
        return peer;
    note_want(engine, peer);
    return NULL;
}

/* The application asked for an early end. One that is still on the submit queue
 * finds the wish when it is started. */
void transfer_cancel(weir_engine *engine, struct transfer *transfer) {
    if (transfer->result != 0)
        return;
    if (transfer->state == TR_PENDING || transfer->state == TR_POSTED)
        transfer_stop(engine, transfer, WEIR_ECANCELED);
    else if (transfer->state == TR_PARKED)
        transfer->result = WEIR_ECANCELED;
}

/* All that it posted is over with; the notification's parts start anew elsewhere. */
static void forget_session(struct transfer *transfer) {
    transfer->data_mask = 0;
    transfer->parts_need = 0;
    transfer->parts_mask = 0;
    transfer->flushed = false;
    transfer->epoch = 0;
}

/* Adds (by is 1) or takes back (-1) the counts of the last session that broke under this transfer.
 */
static void count_last(weir_engine *engine, struct peer *peer, struct transfer *transfer, int by) {
    peer->suspects -= transfer_is_suspect(transfer);
    transfer->breaks = (uint8_t)(transfer->breaks + by * transfer->broke_last);
    transfer->replays = (uint16_t)(transfer->replays + by * transfer->replayed_last);
    peer->suspects += transfer_is_suspect(transfer);
    peer_update_fast(engine, peer);
}

/* A session that a refusal broke took the transfer's step with it. */
static void count_lost(struct peer *peer, struct transfer *transfer) {
    peer->suspects -= transfer_is_suspect(transfer);
    if (transfer->lost < UINT8_MAX)
        transfer->lost++;
    peer->suspects += transfer_is_suspect(transfer);
}

/* A session broke with this transfer under way. A transfer of which no run was flushed did not
 * break it. */
static void blame(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                  const struct session *session) {
    bool blamed = session->broke_here && !session->unreachable && !session->excused;
    transfer->broke_last = transfer->replayed_last = 0;
    if (!transfer->flushed)
        return;
    if (session->refused)
        count_lost(peer, transfer);
    transfer->broke_last = blamed && transfer->breaks < BREAKS_MAX;
    if (session->got_through)
        transfer->replayed_last = session->refused ? 1 : REPLAY_WEIGHT;
    count_last(engine, peer, transfer, 1);
}

/* The other side has told that a transfer of its own broke this session, by a refusal or not. */
void transfer_excuse(weir_engine *engine, struct peer *peer, uint64_t epoch, bool refused,
                     bool judged) {
    bool counts = refused && judged && !peer->refused_last; /* else it was counted, or will be */
    peer->refused_last |= refused;
    for (uint32_t i = peer->lists[LIST_PARKED].head; i != NONE; i = engine->transfers[i].next) {
        struct transfer *transfer = &engine->transfers[i];
        if (transfer->epoch != epoch)
            continue;
        count_last(engine, peer, transfer, -1);
        transfer->broke_last = 0;
        if (counts && transfer->flushed)
            count_lost(peer, transfer);
        if (refused && transfer->replayed_last != 0)
            transfer->replayed_last = 1;
        count_last(engine, peer, transfer, 1);
    }
}

/* A session that broke has drained. That it broke may have been known before its cause, from
 * an event or from receives that flushed: now all completions are in. */
void transfer_judge(weir_engine *engine, struct peer *peer, const struct session *session) {
    peer->refused_last = session->refused;
    for (uint32_t i = peer->lists[LIST_PARKED].head; i != NONE; i = engine->transfers[i].next) {
        struct transfer *transfer = &engine->transfers[i];
        if (transfer->epoch == session->epoch)
            blame(engine, peer, transfer, session);
    }
}

/* A session broke. A transfer with runs on it is parked, and may be what broke it; one with none
 * goes on elsewhere, its notification's parts from the start. */
void transfer_park(weir_engine *engine, struct peer *peer, const struct session *session) {
    peer_wait_over(engine, peer);
    inflight_changed(engine, peer);
    for (uint8_t k = 0; k < LISTS; k++) {
        /* Posted transfers came before pending ones. */
        uint8_t l = k == 0 ? LIST_POSTED : k == 1 ? LIST_PENDING : k;
        uint32_t next;
        for (uint32_t i = l == LIST_PARKED ? NONE : peer->lists[l].head; i != NONE; i = next) {
            struct transfer *transfer = &engine->transfers[i];
            next = transfer->next;
            if (transfer->epoch != session->epoch && transfer->epoch != 0)
                continue;
            if (transfer->age == 0)
                transfer->age = ++peer->ages;
            if (transfer->outstanding > 0) {
                list_remove(engine, transfer);
                list_push(engine, peer, transfer, LIST_PARKED);
                transfer->broke_last = transfer->replayed_last = 0;
                settle_timer(engine, transfer);
            } else {
                forget_session(transfer);
                if (l >= LIST_CREDITS) {
                    list_remove(engine, transfer);
                    list_push(engine, peer, transfer, LIST_PENDING);
                }
            }
        }
    }
}

static bool was_delivered(const struct peer *peer, const struct transfer *transfer) {
    struct window window = {.base = peer->settled.base};
    memcpy(window.bits, peer->settled.bits, sizeof(window.bits));
    return transfer->number != 0 && window_check(&window, transfer->number) == WINDOW_SEEN;
}

/* After a refusal the transfer that broke the session is known, and the others keep their order,
 * over several sessions, too. So each comes to be the first, and the first one's step is done
 * before another transfer can break the session. hint: the transfer that was put there last, or
 * NONE; mostly the next goes behind it. */
static void push_by_age(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                        uint32_t hint) {
    uint32_t before = NONE, i = peer->lists[LIST_PENDING].head;
    const struct transfer *last = hint != NONE ? &engine->transfers[hint] : NULL;
    if (last != NULL && last->state == TR_PENDING && last->list == LIST_PENDING &&
        last->peer == transfer->peer && last->age != 0 && last->age < transfer->age)
        i = hint;
    while (i != NONE && engine->transfers[i].age != 0 && engine->transfers[i].age < transfer->age) {
        before = i;
        i = engine->transfers[i].next;
    }
    if (before == NONE)
        list_push_front(engine, peer, transfer, LIST_PENDING);
    else
        list_push_behind(engine, peer, transfer, before);
}

/* Makes a parked transfer pending again, or ends it, if too many sessions broke under it. One that
 * was in several may be their cause: then the peer has one chain under way at a time (turns.c). */
static void replay(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                   uint32_t hint) {
    for (uint32_t s = 0; s < EP_SESSIONS; s++) {
        const struct session *session = &peer->sessions[s];
        if (session->used && session->epoch == transfer->epoch) { /* not judged yet */
            peer->refused_last = session->refused;
            blame(engine, peer, transfer, session);
        }
    }
    if (transfer->breaks == BREAKS_MAX || transfer->replays >= REPLAYS_MAX * REPLAY_WEIGHT) {
        transfer_finish(engine, transfer, WEIR_EDEVICE);
        return;
    }
    list_remove(engine, transfer);
    forget_session(transfer);
    if (!transfer->marked)
        transfer->mark = plan_start(engine->blocks, transfer_index(engine, transfer));
    transfer->cursor = transfer->mark;
    transfer->marked = true;
    if (peer_is_suspicious(peer))
        list_push(engine, peer, transfer, LIST_PENDING); /* others have their turn first */
    else if (peer->refused_last)
        push_by_age(engine, peer, transfer, hint);
    else /* the first of them may have broken it, and comes last */
        list_push_front(engine, peer, transfer, LIST_PENDING);
    timer_own(engine, transfer);
    engine->stats.replays++;
    peer->replays++;
}

/* Settles one parked transfer whose own QPs are gone. */
static void unpark(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                   uint32_t hint) {
    if (!transfer->flushed) {
        /* Everything that was posted did complete. */
        list_remove(engine, transfer);
        bool more = !transfer_all_posted(transfer) && transfer->result == 0;
        if (more)
            forget_session(transfer);
        list_push(engine, peer, transfer, more ? LIST_PENDING : LIST_POSTED);
        timer_own(engine, transfer);
        transfer_check(engine, transfer);
        return;
    }
    if (transfer->epoch <= peer->settled_epoch) {
        if (was_delivered(peer, transfer)) {
            engine->stats.settled_remote++;
            transfer_finish(engine, transfer, WEIR_OK);
        } else if (transfer->result != 0) {
            transfer_finish(engine, transfer, transfer->result);
        } else if ((transfer->flags & WEIR_TRANSFER_ONCE) != 0) {
            transfer_finish(engine, transfer, WEIR_EUNKNOWN);
        } else {
            replay(engine, peer, transfer, hint);
        }
    } else if (transfer->epoch <= peer->abandoned_epoch) {
        transfer_finish(engine, transfer,
                        transfer->result != 0 ? transfer->result : peer->abandoned_error);
    } else {
        set_waiting(transfer, WEIR_WAITING_SETTLE);
    }
}

/* More is known about old sessions: a drain ended, SETTLED came, or the other side's word is not
 * waited for any more. */
void transfer_unpark(weir_engine *engine, struct peer *peer) {
    uint32_t next, hint = NONE;
    for (uint32_t i = peer->lists[LIST_PARKED].head; i != NONE; i = next) {
        struct transfer *transfer = &engine->transfers[i];
        next = transfer->next;
        if (transfer->outstanding > 0)
            continue;
        unpark(engine, peer, transfer, hint);
        hint = i;
    }
    if (peer_pending(peer) > 0) {
        if (peer->live != NONE)
            run_later(engine, peer);
        else
            note_want(engine, peer);
    }
}

/* The other side's word on our sessions up to `epoch` is not waited for any more. */
void transfer_abandon(weir_engine *engine, struct peer *peer, uint64_t epoch, int error) {
    if (epoch > peer->abandoned_epoch) {
        peer->abandoned_epoch = epoch;
        peer->abandoned_error = error;
    }
    note_unpark(engine, peer);
}

/* It was posted, must not be again, and whether it arrived may yet be told. */
static bool ends_unknown(const struct transfer *transfer, int error) {
    bool unreached = error == WEIR_ECONNECT || dial_unmade(error);
    return unreached && (transfer->flags & WEIR_TRANSFER_ONCE) != 0;
}

/* Transfers with nothing under way fail now, the others when they are quiet; parked ones only if
 * parked_too, and not if they are to end as unknown. */
void transfer_fail_all(weir_engine *engine, struct peer *peer, int error, bool parked_too) {
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t next;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = next) {
            struct transfer *transfer = &engine->transfers[i];
            next = transfer->next;
            if (l != LIST_PARKED)
                transfer_stop(engine, transfer, error);
            else if (parked_too && transfer->result == 0 && !ends_unknown(transfer, error))
                transfer->result = error;
        }
    }
}

/* The peer's instance is known now: transfers that name memory of another instance fail. */
void transfer_rebind(weir_engine *engine, struct peer *peer) {
    uint32_t next;
    for (uint32_t i = peer->lists[LIST_PENDING].head; i != NONE; i = next) {
        struct transfer *transfer = &engine->transfers[i];
        next = transfer->next;
        if (remotes_current(engine, peer, transfer))
            transfer->party = peer->party;
        else
            transfer_stop(engine, transfer, WEIR_ESTALE);
    }
}
