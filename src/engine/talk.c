/* SPDX-License-Identifier: Apache-2.0 */
/* talk.c: what two engines tell each other about messages, and how that, and what they tell each
 * other about names (names.c), travels.
 *
 * Owns the words: when they are said, what each does, and the one transfer of each peer that
 * carries them. As many words as fit travel in one SEND on the first QP of the session. The next is
 * posted when that has completed, and, on another session, when the peer has said that the one
 * before has drained over there (SETTLED). So words are read once, and in the order in which they
 * were said, over all sessions, whatever order devices keep. They ask for no session: a sender
 * whose messages wait does.
 *
 * All that is known of a peer's rooms and ours is of one *life* of both sides' knowledge of each
 * other, which HELLO names. Where the other side's is another than before, it has forgotten us, or
 * has told its application that we are gone: what was put there and did not arrive is put anew, and
 * what it had here goes when the sessions from before have drained. So messages behind one that
 * failed do not wait for its sender, who may never come again. */
#include "talk.h"

#include "agenda.h"
#include "cause.h"
#include "direct.h"
#include "inboxes.h"
#include "lendings.h"
#include "lists.h"
#include "names.h"
#include "notes.h"
#include "records.h"
#include "streams.h"
#include "tables.h"
#include "trace.h"
#include "transfer.h"

enum { PUT_AHEAD = 256 }; /* messages of a stream that are put and have not ended */

/* ---- putting ----------------------------------------------------------- */

/* Messages that no chunk of that inbox holds, or that cannot get there. EINPROGRESS: not yet. */
static int refusal(weir_engine *engine, struct stream *stream, const struct transfer *transfer) {
    if (transfer->message_length > stream->message_bytes_max)
        return WEIR_ETOOBIG;
    return stream_import(engine, stream);
}

/* Puts the first message that waits; there is room for it. Where messages are direct, the next
 * place is wanted as direct.c has it. */
static void put_next(weir_engine *engine, struct peer *peer, struct stream *stream,
                     uint32_t length) {
    struct outbox *outbox = &stream->outbox;
    if (engine->device_ops->post_direct != NULL &&
        outbox_halves(outbox, outbox_filling(outbox), room_bytes(length)))
        stream->ahead_due = peer->talk.due = true;
    transfer_put(engine, stream);
}

/* There is no room for the first message that waits, and the receiver has said that it gives no
 * more to those up to `full`: of these the ones that must not wait end. */
static void stop_those_of_now(weir_engine *engine, struct stream *stream) {
    uint32_t next;
    for (uint32_t i = stream->waiting.head; i != NONE; i = next) {
        struct transfer *transfer = &engine->transfers[i];
        if (transfer->turn > stream->full)
            break;
        next = transfer->next;
        if ((transfer->flags & WEIR_TRANSFER_NOW) != 0)
            transfer_stop(engine, transfer, WEIR_EAGAIN);
    }
    stream->full = 0;
}

/* Whether the receiver is to be asked if there is room: there is a message that must not wait, more
 * is wanted than was granted, and it was not asked since either has changed. */
static bool asks_now(const weir_engine *engine, const struct stream *stream) {
    return stream->now > stream->asked && stream->waiting.head != NONE &&
           engine->transfers[stream->waiting.head].turn <= stream->now &&
           stream->outbox.wanted > stream->outbox.grants;
}

/* Room is of no use before there is memory to write to. Two senders that wait for that would be
 * given each other's chunks, have them called back, and want them again, as fast as words go. */
static bool may_want(const struct stream *stream) {
    return stream->import_error == WEIR_OK;
}

/* copied_io: bytes that this processor has copied in this turn of the peer; with `most` of them it
 * is the turn of others. */
static void put_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                        uint64_t most, uint64_t *copied_io) {
    if (stream->state != STREAM_MET)
        return;
    while (stream->waiting.head != NONE && stream->put < PUT_AHEAD && *copied_io < most) {
        struct transfer *transfer = &engine->transfers[stream->waiting.head];
        int rc = refusal(engine, stream, transfer);
        if (rc == WEIR_EINPROGRESS)
            break;
        if (rc == WEIR_OK && transfer->turn <= stream->passed)
            rc = WEIR_ECONNECT; /* the receiver had forgotten it, and took what came behind it */
        if (rc != WEIR_OK)
            transfer_stop(engine, transfer, rc);
        else if (transfer->loan != 0 && direct_lend_waiting(engine, peer, stream, transfer))
            transfer_finish(engine, transfer, WEIR_OK);
        else if (!direct_room(engine, peer, stream, transfer->message_length)) {
            stop_those_of_now(engine, stream);
            break;
        } else if (direct_put_waiting(engine, peer, stream, transfer)) {
            *copied_io += room_bytes(transfer->message_length);
            transfer_finish(engine, transfer, WEIR_OK);
        } else
            put_next(engine, peer, stream, transfer->message_length);
    }
    bool more = stream->waiting.head != NONE && *copied_io >= most;
    if (more)
        run_later(engine, peer);
    if (more || (stream->waiting.head != NONE && stream->put >= PUT_AHEAD))
        return; /* places that were called for take messages that wait first */
    outbox_yield(&stream->outbox);
    if (stream->waiting.head == NONE)
        outbox_idle(&stream->outbox);
    if (outbox_shuts(&stream->outbox) ||
        (may_want(stream) && outbox_wants(&stream->outbox, stream->waiting_bytes)) ||
        asks_now(engine, stream))
        peer->talk.due = true;
}

/* ---- saying ------------------------------------------------------------ */

/* Behind what is wanted. */
static void say_now(struct stream *stream, struct word *word) {
    word->kind = WORD_NOW;
    word->number = stream->asked = stream->now;
}

/* The next word of the stream's that fits in `room` bytes. */
static bool say_of(weir_engine *engine, struct peer *peer, struct stream *stream, uint32_t room,
                   struct word *word, bool *more) {
    *word = (struct word){.inbox = stream->inbox};
    if (stream->left_due && stream->state == STREAM_CLOSED && stream->put == 0) {
        word->kind = WORD_LEFT;
        stream_reset(engine, stream);
        return true;
    }
    if (stream->state == STREAM_ASKING && stream->waiting.head != NONE &&
        stream->outbox.wanted == 0) {
        word->kind = WORD_WANT;
        word->grants = stream->outbox.wanted = 1;
        stream->asked = stream->full = 0;
        TRACE_OFTEN(engine, no_room, peer, 0, stream->inbox, 0);
        return true;
    }
    if (stream->state == STREAM_ASKING && asks_now(engine, stream)) {
        say_now(stream, word);
        return true;
    }
    if (stream->state != STREAM_MET)
        return false;
    if (lending_says(engine, stream) && room < WORD_SIZE_MAX)
        *more = true;
    else if (lending_say(engine, stream, word))
        return true;
    if (stream->look_due) {
        word->kind = WORD_LOOK;
        stream->look_due = false;
        return true;
    }
    word->kind = WORD_SHUT;
    if (outbox_shut(&stream->outbox, &word->shut))
        return true;
    word->kind = WORD_AHEAD;
    bool ahead = stream->ahead_due;
    stream->ahead_due = false;
    if (ahead && outbox_is_last(&stream->outbox))
        return true;
    word->kind = WORD_WANT;
    if (may_want(stream) && outbox_want(&stream->outbox, stream->waiting_bytes, &word->grants)) {
        stream->asked = stream->full = 0;
        TRACE_OFTEN(engine, no_room, peer, 0, stream->inbox, 0);
        return true;
    }
    if (!asks_now(engine, stream))
        return false;
    say_now(stream, word);
    return true;
}

/* Of messages; or of names, which go before and behind those in turn. */
static bool say_of_messages(weir_engine *engine, struct peer *peer, uint32_t room,
                            struct word *word, bool *more) {
    if (inboxes_say(engine, peer, room, word, more))
        return true;
    if (room < WORD_HEAD + 16) {
        *more = true;
        return false;
    }
    struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL; stream = stream_next(engine, stream)) {
        if (say_of(engine, peer, stream, room, word, more))
            return true;
    }
    return false;
}

static bool say(weir_engine *engine, struct peer *peer, uint32_t room, struct word *word,
                bool *more) {
    bool names_first = peer->talk.names_first;
    return (names_first && names_say(engine, peer, room, word, more)) ||
           say_of_messages(engine, peer, room, word, more) ||
           (!names_first && names_say(engine, peer, room, word, more));
}

static struct transfer *words_of(weir_engine *engine, const struct peer *peer) {
    return &engine->transfers[engine->options.transfers_max + peer_index(engine, peer)];
}

/* Whether all words that were said before have been read, or are read before what is said now. */
static bool all_read(const struct peer *peer) {
    return !peer->talk.speaking && (peer->talk.epoch == peer->sessions[peer->live].epoch ||
                                    peer->talk.epoch <= peer->settled_epoch);
}

/* Words go before transfers. Where the words before did, the first transfer goes before these: on a
 * queue of few slots it would wait for as long as there are words to say. Not while
 * sessions break: words that arrive, before anything that breaks one, say that the link is well. */
static void queue_words(weir_engine *engine, struct peer *peer, struct transfer *transfer) {
    uint32_t first = peer->lists[LIST_PENDING].head;
    bool behind = peer->talk.went_first && first != NONE && peer->trouble_ns == 0 &&
                  !peer_is_suspicious(peer);
    peer->talk.went_first = !behind && first != NONE;
    if (behind)
        list_push_behind(engine, peer, transfer, first, LIST_PENDING);
    else
        list_push_front(engine, peer, transfer, LIST_PENDING);
}

/* Says what is due. */
static void speak(weir_engine *engine, struct peer *peer) {
    if (peer->live == NONE || !peer->talk.due || !all_read(peer))
        return; /* the end of the words before, or SETTLED, gives the peer a turn */
    struct transfer *transfer = words_of(engine, peer);
    uint32_t used = 0, length;
    struct word word;
    bool more = false;
    while (say(engine, peer, WEIR_NOTIFY_MAX - used, &word, &more)) {
        int rc = word_encode(&word, transfer->payload + used, WEIR_NOTIFY_MAX - used, &length);
        assert(rc == WEIR_OK);
        (void)rc;
        used += length;
    }
    peer->talk.due = more;
    peer->talk.names_first = !peer->talk.names_first;
    if (used == 0)
        return;
    static const weir_transfer_options none = {.flags = WEIR_TRANSFER_NOTIFY};
    record_init(engine, transfer, peer, WEIR_OP_WRITE, &none);
    transfer->kind = TRANSFER_WORDS;
    transfer->cursor.block = PLAN_NO_BLOCK;
    transfer->bytes = 0;
    transfer->put = false;
    transfer->user_data = peer->life_theirs;
    transfer->notify_length = used;
    peer->talk.speaking = true;
    queue_words(engine, peer, transfer);
}

void talk_serve(weir_engine *engine, struct peer *peer, uint64_t bytes_most) {
    uint64_t copied = 0;
    struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL && peer->live != NONE; stream = stream_next(engine, stream)) {
        put_waiting(engine, peer, stream, bytes_most, &copied);
        if (stream->state == STREAM_ASKING && stream->waiting.head != NONE)
            peer->talk.due = true;
    }
    speak(engine, peer);
}

/* ---- hearing ----------------------------------------------------------- */

static void closed(weir_engine *engine, struct stream *stream) {
    if (stream->state == STREAM_CLOSED)
        return;
    stream->state = STREAM_CLOSED;
    transfer_fail_stream(engine, stream, WEIR_ESTALE);
    stream->left_due = stream->put == 0;
}

/* Nobody is there. Messages that do not wait for it end; the others do when one is opened, or with
 * their deadlines. */
static void absent(weir_engine *engine, struct stream *stream) {
    if (stream->state != STREAM_ASKING)
        return;
    stream->state = STREAM_ABSENT;
    stream->outbox.wanted = 0;
    uint32_t next;
    for (uint32_t i = stream->waiting.head; i != NONE; i = next) {
        struct transfer *transfer = &engine->transfers[i];
        next = transfer->next;
        if ((transfer->flags & (WEIR_TRANSFER_NO_WAIT | WEIR_TRANSFER_NOW)) != 0)
            transfer_stop(engine, transfer, WEIR_ENOTREADY);
    }
}

static void opened(weir_engine *engine, const struct peer *peer) {
    struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL; stream = stream_next(engine, stream)) {
        if (stream->state == STREAM_ABSENT || stream->state == STREAM_ASKING)
            stream_ask(stream);
    }
}

/* A word about an inbox of the peer's. */
static bool heard_of(weir_engine *engine, struct peer *peer, const struct word *word) {
    struct stream *stream = stream_find(engine, peer, word->inbox);
    if (word->kind == WORD_OPENED)
        opened(engine, peer);
    if (word->kind == WORD_OPENED || stream == NULL)
        return word->kind == WORD_OPENED;
    switch (word->kind) {
    case WORD_MEET:
        return stream_meet(engine, stream, word);
    case WORD_GRANT:
        stream->asked = stream->full = 0; /* what does not fit there is asked about again */
        return stream->state == STREAM_MET && outbox_grant(&stream->outbox, &word->grant);
    case WORD_FULL:
        if (stream->state != STREAM_MET || word->number > stream->now)
            return false;
        stream->full = word->number;
        return true;
    case WORD_CALL:
        return stream->state == STREAM_MET && outbox_call(&stream->outbox, word->place);
    case WORD_ABSENT:
        absent(engine, stream);
        return true;
    case WORD_CLOSED:
        closed(engine, stream);
        return true;
    case WORD_MAPPED:
        lending_mapped(engine, stream, word->mapped);
        return true;
    case WORD_BACK:
        lending_back(engine, stream);
        return true;
    default:
        return false;
    }
}

bool talk_heard(weir_engine *engine, struct peer *peer, const uint8_t *payload, uint32_t length) {
    uint32_t used = 0, one;
    struct word word;
    if (!peer_is_there(peer))
        return true; /* it is given up, and what it has here goes */
    while (used < length) {
        if (word_decode(payload + used, length - used, &word, &one) != WEIR_OK)
            return false;
        bool good = word_is_of_names(word.kind) ? names_heard(engine, peer, &word)
                    : word.kind >= WORD_MEET    ? heard_of(engine, peer, &word)
                                                : inboxes_heard(engine, peer, &word);
        if (!good)
            return false;
        used += one;
    }
    streams_tell(engine, peer);
    return length > 0;
}

/* ---- lives ------------------------------------------------------------- */

static void reset(weir_engine *engine, const struct peer *peer) {
    struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL; stream = stream_next(engine, stream))
        stream_reset(engine, stream);
}

void talk_new_life(weir_engine *engine, struct peer *peer, uint64_t life) {
    bool first = peer->life_theirs == 0;
    peer->life_theirs = life;
    if (first)
        return;
    reset(engine, peer);
    transfer_unput(engine, peer);
    inboxes_leave(engine, peer);
    talk_session_over(engine, peer);
    names_new_life(engine, peer, true);
    peer->talk.absent_count = 0;
    peer->talk.asked = peer->talk.opened = false;
    streams_tell(engine, peer); /* the session before may be up still */
}

/* A life before the present one is over when its sessions are. */
void talk_session_over(weir_engine *engine, const struct peer *peer) {
    if (!peer_is_there(peer))
        return;
    for (uint32_t s = 0; s < EP_SESSIONS; s++) {
        const struct session *session = &peer->sessions[s];
        bool before = session->life != peer->life_theirs || session->life_ours != peer->life;
        if (session->used && session->life != 0 && before)
            return;
    }
    inboxes_quiet(engine, peer);
}

void talk_renew(weir_engine *engine, struct peer *peer) {
    engine->ports.env.ops->entropy(engine->ports.env.self, &peer->life, sizeof(peer->life));
    peer->life |= 1;
    if (peer->live != NONE)
        cause_outlived(engine, peer, peer->live);
    transfer_end_own(engine, peer);
    reset(engine, peer);
    transfer_unput(engine, peer);
    inboxes_leave(engine, peer);
    talk_session_over(engine, peer);
    peer->talk = (struct talk){.speaking = peer->talk.speaking};
    names_new_life(engine, peer, true);
}

void talk_gone(weir_engine *engine, struct peer *peer) {
    transfer_end_own(engine, peer);
    inboxes_leave(engine, peer);
    names_new_life(engine, peer, false);
}

void talk_forget(weir_engine *engine, struct peer *peer) {
    reset(engine, peer);
    inboxes_quiet(engine, peer);
    peer->talk = (struct talk){0};
    names_new_life(engine, peer, false);
}
