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
 * A message is PENDING on its stream's list until there is room for it. From then on it has a spot,
 * and is a transfer like others, with a note of the message for its notification. If it ends early,
 * its record goes on as a *skip*, which tells the receiver that nothing comes there. Skips, and the
 * words of talk.c, are the engine's own: they wait for a session on LIST_SHELF, and ask for none.
 *
 * Only transfers with runs outstanding are parked. A transfer that is to end early does so from
 * PENDING, too. One whose notification waited for its data is POSTED before it is PENDING again.
 *
 * It is long because all of that life is in one place.
 *
 * Owns the terminal status and its report, and how messages are put; the lists are lists.c's.
 * Invariant: a transfer is terminal only when no run of it is outstanding and, if one was flushed,
 * when the other side has said that its QPs are quiet too, or its word is not waited for any more
 * (transfer_abandon): then its status is none of its own.
 */
#include "transfer.h"

#include "agenda.h"
#include "cause.h"
#include "dial.h"
#include "inflight.h"
#include "lendings.h"
#include "lists.h"
#include "notes.h"
#include "records.h"
#include "streams.h"
#include "tables.h"

#include <assert.h>

static void report(weir_engine *engine, struct transfer *transfer, uint64_t id, int status) {
    /* Room is certain: the submit reserved it (completions_reserved). */
    weir_completion *completion = queue_room(&engine->completions);
    assert(completion != NULL);
    *completion =
        (weir_completion){.transfer = {id}, .user_data = transfer->user_data, .status = status};
    queue_put(&engine->completions);
}

/* ---- messages ---------------------------------------------------------- */

/* A cursor before the first byte. */
static struct plan_cursor plan_of(const weir_engine *engine, const struct transfer *transfer) {
    if (transfer_is_own(transfer))
        return (struct plan_cursor){.block = PLAN_NO_BLOCK};
    return plan_start(engine->blocks, transfer_index(engine, transfer));
}

/* The word is of no stream any more, or of an instance that forgot us. */
static bool own_is_void(const weir_engine *engine, const struct peer *peer,
                        const struct transfer *transfer) {
    if (transfer->kind == TRANSFER_WORDS)
        return transfer->user_data != peer->life_theirs;
    return !stream_holds(engine, transfer) || engine->streams[transfer->stream].state != STREAM_MET;
}

/* Words that are first of what is to be posted; NONE: there are none, or they are not first. */
static uint32_t first_words(const weir_engine *engine, const struct peer *peer) {
    uint32_t first = peer->lists[LIST_PENDING].head;
    return first != NONE && engine->transfers[first].kind == TRANSFER_WORDS ? first : NONE;
}

/* Before all others but words: transfers that break session after session do not keep these back,
 * which may say why. */
static void push_first(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    uint32_t words = first_words(engine, peer);
    if (words != NONE)
        list_push_behind(engine, peer, transfer, words, LIST_PENDING);
    else
        list_push_front(engine, peer, transfer, LIST_PENDING);
}

/* There is a session, or it asks for one. */
static void push_now(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    if (transfer->kind == TRANSFER_WORDS)
        push_first(engine, peer, transfer);
    else
        list_push(engine, peer, transfer, LIST_PENDING);
}

/* To where it goes on when there is a session, or goes on now. */
static void push_pending(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    if (transfer_is_own(transfer) && peer->live == NONE)
        list_push(engine, peer, transfer, LIST_SHELF);
    else
        push_now(engine, peer, transfer);
}

/* A message waits for room, before those that were sent after it. */
static void push_room(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    const struct stream *stream = stream_at(engine, transfer->stream);
    uint32_t before = stream->waiting.tail;
    while (before != NONE && engine->transfers[before].turn > transfer->turn)
        before = engine->transfers[before].prev;
    if (before == NONE)
        list_push_front(engine, peer, transfer, LIST_ROOM);
    else
        list_push_behind(engine, peer, transfer, before, LIST_ROOM);
}

/* The receiver does not know of the message, or not any more: it is put anew. */
static void put_again(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    struct stream *stream = stream_at(engine, transfer->stream);
    stream_unput(engine, transfer);
    transfer->cursor = plan_of(engine, transfer);
    transfer->marked = false;
    push_room(engine, peer, transfer);
    stream->asked = stream->full = 0; /* what was said of messages behind it is none of its own */
    if (stream->state == STREAM_ABSENT)
        stream_ask(stream);
}

static void write_note(struct transfer *transfer, uint32_t inbox, bool skip) {
    const struct room_note note = {.place = transfer->spot.place,
                                   .inbox = inbox,
                                   .chunk = transfer->spot.chunk,
                                   .offset = transfer->spot.offset,
                                   .length = transfer->message_length,
                                   .skip = skip};
    word_note_encode(&note, transfer->payload);
}

void transfer_put(weir_engine *engine, struct stream *stream) {
    struct transfer *transfer = &engine->transfers[stream->waiting.head];
    struct peer *peer = peer_at(engine, stream->peer);
    list_remove(engine, transfer);
    transfer->spot = outbox_put(&stream->outbox, transfer->message_length);
    transfer->put = true;
    transfer->generation = stream->generation;
    stream->put++;
    uint64_t raddr = stream->rmr.raddr +
                     (uint64_t)transfer->spot.chunk * stream->outbox.chunk_bytes +
                     transfer->spot.offset + room_payload(transfer->message_length);
    for (uint32_t b = transfer_index(engine, transfer); b != PLAN_NO_BLOCK;
         b = engine->blocks[b].next) {
        for (uint32_t i = 0; i < engine->blocks[b].count; i++) {
            struct plan_piece *piece = &engine->blocks[b].pieces[i];
            piece->raddr = raddr;
            piece->rkey = stream->rmr.rkey;
            raddr += piece->length;
        }
    }
    write_note(transfer, stream->inbox, false);
    list_push(engine, peer, transfer, LIST_PENDING);
}

/* Whether the receiver has to hear that the message does not come. */
static bool leaves_skip(weir_engine *engine, const struct peer *peer,
                        const struct transfer *transfer, int status) {
    return transfer->kind == TRANSFER_MESSAGE && status != WEIR_OK && !engine->closing &&
           peer_is_there(peer) && stream_holds(engine, transfer) &&
           stream_at(engine, transfer->stream)->state == STREAM_MET;
}

/* The message has ended, and was told so: its record tells the receiver, too. */
static void become_skip(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    transfer->kind = TRANSFER_SKIP;
    transfer->flags = WEIR_TRANSFER_NOTIFY;
    transfer->breaks = transfer->lost = 0;
    transfer->replays = 0;
    transfer->age = 0;
    transfer->result = 0;
    transfer->cursor = plan_of(engine, transfer);
    transfer->bytes = 0;
    transfer->deadline_ns = UINT64_MAX;
    transfer->number = 0;
    transfer->data_mask = transfer->parts_need = transfer->parts_mask = 0;
    transfer->flushed = transfer->marked = false;
    transfer->epoch = 0;
    transfer->notify_length = WORD_NOTE_SIZE;
    write_note(transfer, stream_at(engine, transfer->stream)->inbox, true);
    push_pending(engine, peer, transfer);
    if (peer->live != NONE)
        run_later(engine, peer);
}

/* One of the engine's own failed, and its peer is there: it is told on the next session, under the
 * same number. If that comes to nothing again and again, nothing can be sent to the peer. */
static void own_again(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      int status) {
    transfer->result = 0;
    transfer->flushed = false;
    transfer->cursor = plan_of(engine, transfer);
    transfer->data_mask = transfer->parts_need = transfer->parts_mask = 0;
    transfer->epoch = 0;
    bool in_vain = ++transfer->breaks >= BREAKS_MAX;
    if (in_vain)
        transfer->breaks = 0;
    list_push(engine, peer, transfer, LIST_SHELF);
    if (in_vain)
        note_unreachable(engine, peer, status);
    if (peer->live != NONE)
        note_broken(engine, peer, peer->live);
}

/* One of the engine's own is over with. */
static void own_finish(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                       int status) {
    if (status != WEIR_OK && status != WEIR_EPEER && peer_is_there(peer) && !engine->closing &&
        !own_is_void(engine, peer, transfer)) {
        own_again(engine, peer, transfer, status);
        return;
    }
    if (transfer->number != 0 && window_check(&peer->sent, transfer->number) == WINDOW_NEW)
        window_mark(&peer->sent, transfer->number);
    if (transfer->kind == TRANSFER_SKIP) {
        stream_unput(engine, transfer);
        record_drop_ref(engine, transfer);
        return;
    }
    peer->talk.speaking = false;
    peer->talk.epoch = transfer->epoch;
    if (status == WEIR_OK)
        peer_trouble_over(peer);
    if (peer->talk.due)
        streams_tell(engine, peer);
}

/* Of the messages of its stream that were sent before none may come any more. */
static void message_delivered(weir_engine *engine, const struct transfer *transfer) {
    struct stream *stream = stream_at(engine, transfer->stream);
    bool is_its = stream->used && stream->peer == transfer->peer;
    engine->stats.messages_sent++;
    if (is_its && stream->passed < transfer->turn && transfer->turn <= stream->turns)
        stream->passed = transfer->turn - 1;
}

void transfer_finish(weir_engine *engine, struct transfer *transfer, int status) {
    assert(transfer->outstanding == 0 && transfer->state != TR_TERMINAL);
    struct peer *peer = peer_at(engine, transfer->peer);
    list_remove(engine, transfer);
    transfer->state = TR_TERMINAL;
    uint32_t index = transfer_index(engine, transfer);
    timers_clear(&engine->timers, index);
    if (transfer_is_own(transfer)) {
        own_finish(engine, peer, transfer, status);
        return;
    }
    if (engine->blocks[index].count == 1)
        record_drop_piece(engine, &engine->blocks[index].pieces[0]);
    else
        record_drop_pieces(engine, index);
    if (transfer->loan != 0)
        lending_copied(engine, transfer);
    if (transfer->number != 0 && window_check(&peer->sent, transfer->number) == WINDOW_NEW)
        window_mark(&peer->sent, transfer->number);

    peer_idle(engine, peer);
    if (status == WEIR_OK || peer->waits == 0)
        peer_trouble_over(peer);
    if (status == WEIR_OK) {
        peer->completed++;
        peer->ended++;
        engine->stats.transfers_ok++;
        if (transfer->kind == TRANSFER_MESSAGE)
            engine->stats.message_bytes_sent += transfer->message_length;
        else if (transfer->opcode == WEIR_OP_WRITE)
            engine->stats.bytes_written += transfer->bytes;
        else
            engine->stats.bytes_read += transfer->bytes;
        if (transfer->kind == TRANSFER_MESSAGE)
            message_delivered(engine, transfer);
        else if (transfer_notifies(transfer))
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
    if (leaves_skip(engine, peer, transfer, status)) {
        become_skip(engine, peer, transfer);
        return;
    }
    if (transfer->kind == TRANSFER_MESSAGE)
        stream_unput(engine, transfer);
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
 * over. If that takes longer than settle_grace_ns, its session is broken on purpose, unless the
 * device would let its WRs run on all the same. */
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
        if (!engine->caps.isolates)
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

/* Why a transfer whose deadline has come is not done. */
static int late(const weir_engine *engine, const struct transfer *transfer) {
    if (transfer->list != LIST_ROOM)
        return WEIR_ETIMEDOUT;
    const struct stream *stream = &engine->streams[transfer->stream];
    if (stream->state == STREAM_ABSENT)
        return WEIR_ENOTREADY;
    bool tried = stream->state == STREAM_MET && stream->import_error != WEIR_OK &&
                 engine->peers[transfer->peer].live != NONE;
    return tried ? stream->import_error : WEIR_ETIMEDOUT;
}

void transfer_timer(weir_engine *engine, struct transfer *transfer) {
    struct peer *peer = peer_at(engine, transfer->peer);
    switch (transfer->state) {
    case TR_PENDING:
    case TR_POSTED:
        if (transfer->result == 0 || transfer->state == TR_PENDING) {
            transfer_stop(engine, transfer, late(engine, transfer));
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

/* A message waits for room in the inbox whose number the submitter left. EFULL: there are too many
 * streams. */
static int start_message(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    struct stream *stream = stream_open(engine, peer, transfer->stream);
    transfer->put = false;
    if (stream == NULL) {
        transfer->kind = TRANSFER_PLAIN; /* it is of no stream */
        return WEIR_EFULL;
    }
    if (stream->state == STREAM_ABSENT)
        stream_ask(stream); /* it may be there by now */
    transfer->stream = stream_index(engine, stream);
    transfer->turn = ++stream->turns;
    if ((transfer->flags & WEIR_TRANSFER_NOW) != 0)
        stream->now = transfer->turn;
    list_push(engine, peer, transfer, LIST_ROOM);
    if (peer->live != NONE)
        run_later(engine, peer);
    return WEIR_OK;
}

/* Starts a transfer that the submitter filled: resolves its peer, and puts it behind the others
 * that are pending. Returns the peer if it can post for it now, else NULL. */
struct peer *transfer_start(weir_engine *engine, struct transfer *transfer, bool turn) {
    /* Handed over, it may have waited while the peer was closed or replaced, turned out
     * to be another one, or became known. */
    struct peer *named = peer_at(engine, transfer->peer);
    struct peer *peer = named->id != 0 ? peer_resolve(engine, named) : named;
    bool same = named->id != 0 && transfer->party == named->party;
    bool fresh = same && (transfer->version == engine->regions.version ||
                          transfer->kind == TRANSFER_MESSAGE);
    int ended = transfer->party == named->closed_party ? WEIR_ECLOSED : WEIR_EPEER;
    transfer->party = peer->party;
    transfer->turn_begun = peer->watch.turn;
    if (!turn && watch_is_idle(peer))
        watch_begun(engine, peer, false);
    int room = transfer->kind == TRANSFER_MESSAGE ? start_message(engine, peer, transfer) : WEIR_OK;
    if (transfer->kind == TRANSFER_PLAIN || room != WEIR_OK)
        list_push(engine, peer, transfer, LIST_PENDING);
    engine->worked = true; /* a sleeper's time-out may have to be shorter now */
    work_begun(engine);
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
    if (room != WEIR_OK) {
        transfer_stop(engine, transfer, room);
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
    if (transfer->result != 0 || transfer_is_own(transfer))
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
    bool seen = session->broke_here || peer->told_breaks >= BREAKS_SHARED;
    bool blamed = seen && !session->unreachable && !session->excused;
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
            if ((transfer->epoch != session->epoch && transfer->epoch != 0) || l == LIST_SHELF)
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
                if (l >= LIST_CREDITS || (transfer_is_own(transfer) && peer->live == NONE)) {
                    list_remove(engine, transfer);
                    push_pending(engine, peer, transfer);
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
    uint32_t before = first_words(engine, peer);
    uint32_t i = before != NONE ? engine->transfers[before].next : peer->lists[LIST_PENDING].head;
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
        list_push_behind(engine, peer, transfer, before, LIST_PENDING);
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
    if (!transfer_is_own(transfer) &&
        (transfer->breaks == BREAKS_MAX || transfer->replays >= REPLAYS_MAX * REPLAY_WEIGHT)) {
        transfer_finish(engine, transfer, WEIR_EDEVICE);
        return;
    }
    if (transfer->kind == TRANSFER_PLAIN && !remotes_current(engine, peer, transfer)) {
        /* News of a name came meanwhile: that memory may be gone, and break one session more. */
        transfer_finish(engine, transfer, WEIR_ESTALE);
        return;
    }
    list_remove(engine, transfer);
    forget_session(transfer);
    if (!transfer->marked)
        transfer->mark = plan_of(engine, transfer);
    transfer->cursor = transfer->mark;
    transfer->marked = true;
    if (transfer_is_own(transfer))
        push_pending(engine, peer, transfer);
    else if (transfer->kind == TRANSFER_MESSAGE && !stream_holds(engine, transfer))
        put_again(engine, peer, transfer);
    else if (peer_is_suspicious(peer))
        list_push(engine, peer, transfer, LIST_PENDING); /* others have their turn first */
    else if (peer->refused_last)
        push_by_age(engine, peer, transfer, hint);
    else /* the first of them may have broken it, and comes last */
        push_first(engine, peer, transfer);
    timer_own(engine, transfer);
    engine->stats.replays++;
    peer->replays++;
}

/* The other side never said that it is through with what the transfer had posted, and may have it
 * still. So no status of the transfer's own counts: each promises that nothing of it will be done
 * any more. */
static int unsettled_status(const struct peer *peer, const struct transfer *transfer) {
    if (transfer_is_own(transfer) && transfer->result != 0)
        return transfer->result;
    return peer->abandoned_error;
}

/* Settles one parked transfer whose own QPs are gone. */
static void unpark(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                   uint32_t hint) {
    if (transfer_is_own(transfer) && own_is_void(engine, peer, transfer)) {
        transfer_finish(engine, transfer, WEIR_EPEER);
        return;
    }
    if (!transfer->flushed) {
        /* Everything that was posted did complete. */
        list_remove(engine, transfer);
        bool more = !transfer_all_posted(transfer) && transfer->result == 0;
        bool anew = transfer->kind == TRANSFER_MESSAGE && !stream_holds(engine, transfer);
        if (more)
            forget_session(transfer);
        if (more && anew)
            put_again(engine, peer, transfer);
        else if (more)
            push_pending(engine, peer, transfer);
        else
            list_push(engine, peer, transfer, LIST_POSTED);
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
        transfer_finish(engine, transfer, unsettled_status(peer, transfer));
    } else {
        set_waiting(transfer, WEIR_WAITING_SETTLE);
    }
}

/* Ends what waits to be posted to memory that is stale: it may be gone, and each transfer would
 * break a session. */
static void end_stale(weir_engine *engine, struct peer *peer) {
    uint32_t next;
    for (uint32_t i = peer->lists[LIST_PENDING].head; i != NONE; i = next) {
        struct transfer *transfer = &engine->transfers[i];
        next = transfer->next;
        if (transfer->kind == TRANSFER_PLAIN && !remotes_current(engine, peer, transfer))
            transfer_stop(engine, transfer, WEIR_ESTALE);
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
    end_stale(engine, peer);
    if (peer_pending(peer) + peer->room_waits > 0) {
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
        peer->unsettled |= error == WEIR_EUNKNOWN && peer_is_there(peer);
    }
    note_unpark(engine, peer);
}

/* It was posted, must not be again, and whether it arrived may yet be told. */
static bool ends_unknown(const struct transfer *transfer, int error) {
    bool unreached = error == WEIR_ECONNECT || dial_unmade(error);
    return unreached && (transfer->flags & WEIR_TRANSFER_ONCE) != 0;
}

static void fail_waiting(weir_engine *engine, struct stream *stream, int error) {
    while (stream->waiting.head != NONE)
        transfer_stop(engine, &engine->transfers[stream->waiting.head], error);
}

/* Transfers with nothing under way fail now, the others when they are quiet; parked ones only if
 * parked_too, and not if they are to end as unknown. */
void transfer_fail_all(weir_engine *engine, struct peer *peer, int error, bool parked_too) {
    struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL; stream = stream_next(engine, stream))
        fail_waiting(engine, stream, error);
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t next;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = next) {
            struct transfer *transfer = &engine->transfers[i];
            next = transfer->next;
            if (transfer_is_own(transfer))
                continue;
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
        if (transfer->kind != TRANSFER_PLAIN || remotes_current(engine, peer, transfer))
            transfer->party = peer->party;
        else
            transfer_stop(engine, transfer, WEIR_ESTALE);
    }
}

/* ---- messages, all of a stream or of a peer ------------------------------ */

void transfer_fail_stream(weir_engine *engine, struct stream *stream, int error) {
    struct peer *peer = peer_at(engine, stream->peer);
    uint32_t index = stream_index(engine, stream);
    fail_waiting(engine, stream, error);
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t next;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = next) {
            struct transfer *transfer = &engine->transfers[i];
            next = transfer->next;
            bool of_it = (transfer->kind == TRANSFER_MESSAGE || transfer->kind == TRANSFER_SKIP) &&
                         transfer->stream == index && stream_holds(engine, transfer);
            if (!of_it)
                continue;
            if (l == LIST_PARKED && transfer->result == 0)
                transfer->result = error;
            else if (l == LIST_SHELF)
                transfer_finish(engine, transfer, error);
            else if (l != LIST_PARKED)
                transfer_stop(engine, transfer, error);
        }
    }
}

void transfer_end_own(weir_engine *engine, struct peer *peer) {
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t next;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = next) {
            struct transfer *transfer = &engine->transfers[i];
            next = transfer->next;
            if (!transfer_is_own(transfer))
                continue;
            if (l == LIST_PARKED)
                transfer->result = WEIR_EPEER;
            else if (transfer->outstanding == 0)
                transfer_finish(engine, transfer, WEIR_EPEER);
            else
                transfer_stop(engine, transfer, WEIR_EPEER);
        }
    }
}

void transfer_unshelve(weir_engine *engine, struct peer *peer) {
    while (peer->lists[LIST_SHELF].head != NONE) {
        struct transfer *transfer = &engine->transfers[peer->lists[LIST_SHELF].head];
        if (own_is_void(engine, peer, transfer)) {
            transfer_finish(engine, transfer, WEIR_EPEER);
            continue;
        }
        list_remove(engine, transfer);
        push_now(engine, peer, transfer);
    }
}

void transfer_unput(weir_engine *engine, struct peer *peer) {
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t next;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = next) {
            struct transfer *transfer = &engine->transfers[i];
            next = transfer->next;
            if (transfer->kind == TRANSFER_PLAIN || transfer->outstanding > 0 || l == LIST_PARKED ||
                l == LIST_POSTED)
                continue;
            if (transfer_is_own(transfer) && own_is_void(engine, peer, transfer)) {
                transfer_finish(engine, transfer, WEIR_EPEER);
            } else if (transfer->kind == TRANSFER_MESSAGE && !stream_holds(engine, transfer)) {
                list_remove(engine, transfer);
                forget_session(transfer);
                put_again(engine, peer, transfer);
            }
        }
    }
}

void transfer_move_room(weir_engine *engine, struct peer *from, struct peer *to) {
    struct stream *stream = stream_first(engine, from);
    for (; stream != NULL; stream = stream_next(engine, stream)) {
        uint32_t inbox = stream->inbox;
        while (stream->waiting.head != NONE) {
            struct transfer *transfer = &engine->transfers[stream->waiting.head];
            list_remove(engine, transfer);
            transfer->stream = inbox;
            transfer->party = to->party;
            if (start_message(engine, to, transfer) != WEIR_OK) {
                list_push(engine, to, transfer, LIST_PENDING);
                transfer_stop(engine, transfer, WEIR_EFULL);
            }
        }
    }
    streams_free(engine, from);
}
