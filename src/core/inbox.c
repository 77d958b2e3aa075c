/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.c: see inbox.h. It is long because a stream, its chunks and its messages change
 * together. */
#include "inbox.h"

#include <assert.h>
#include <stdatomic.h>

/* ---- memory ---- */

uint32_t inbox_streams(const struct room_shape *shape, uint32_t peers) {
    return peers + shape->chunk_count; /* a peer that is gone leaves a stream only with a chunk */
}

static size_t held_words(const struct room_shape *shape) {
    return ((size_t)shape->chunk_count * (shape->chunk_bytes / ROOM_LINE) + 63) / 64;
}

static size_t up(size_t bytes) {
    return (bytes + 7) & ~(size_t)7;
}

size_t inbox_bytes(const struct room_shape *shape, uint32_t peers) {
    uint32_t streams = inbox_streams(shape, peers);
    if (streams < peers || streams == UINT32_MAX)
        return 0;
    return shape->chunk_count * sizeof(struct inbox_chunk) + streams * sizeof(struct inbox_stream) +
           2 * held_words(shape) * sizeof(uint64_t) + up(peers * sizeof(uint32_t)) +
           up(groups_bytes(streams + 1, shape->chunk_count)) + 6 * up(groups_bytes(1, streams));
}

static void *carve(uint8_t **at, size_t bytes) {
    void *memory = *at;
    *at += up(bytes);
    return memory;
}

static void carve_list(uint8_t **at, struct groups *list, uint32_t streams) {
    groups_init(list, carve(at, groups_bytes(1, streams)), 1, streams);
}

void inbox_init(struct inbox *inbox, void *tables, uint8_t *memory, const struct room_shape *shape,
                uint32_t peers, bool direct, uint64_t places) {
    uint8_t *at = tables;
    uint32_t streams = inbox_streams(shape, peers), chunks = shape->chunk_count;
    *inbox = (struct inbox){.shape = *shape,
                            .memory = memory,
                            .direct = direct,
                            .peer_count = peers,
                            .stream_count = streams,
                            .stream_free = INBOX_NONE,
                            .first_place = places,
                            .places = places,
                            .free_count = chunks};
    inbox->chunks = carve(&at, chunks * sizeof(struct inbox_chunk));
    inbox->streams = carve(&at, streams * sizeof(struct inbox_stream));
    inbox->here = carve(&at, held_words(shape) * sizeof(uint64_t));
    inbox->held = carve(&at, held_words(shape) * sizeof(uint64_t));
    inbox->of_peer = carve(&at, peers * sizeof(uint32_t));
    groups_init(&inbox->owned, carve(&at, groups_bytes(streams + 1, chunks)), streams + 1, chunks);
    carve_list(&at, &inbox->line, streams);
    carve_list(&at, &inbox->ready, streams);
    carve_list(&at, &inbox->active, streams);
    carve_list(&at, &inbox->met, streams);
    carve_list(&at, &inbox->going, streams);
    carve_list(&at, &inbox->watched, streams);
    assert((size_t)(at - (uint8_t *)tables) == inbox_bytes(shape, peers));
    for (uint32_t i = chunks; i-- > 0;)
        groups_join(&inbox->owned, i, streams);
    inbox->freed = inbox->freed_of = INBOX_NONE;
}

/* Renewals that a sender has not found: with so many it is granted no other one. */
enum { UNSEEN_MAX = 2 };

/* ---- lists ---- */

static bool is_in(const struct groups *list, uint32_t stream) {
    return groups_of(list, stream) == 0;
}

/* The last of its list, wherever it was before. */
static void to_the_end(struct groups *list, uint32_t stream) {
    groups_leave(list, stream);
    groups_join(list, stream, 0);
}

static void set_in(struct groups *list, uint32_t stream, bool in) {
    if (in)
        groups_join(list, stream, 0);
    else
        groups_leave(list, stream);
}

static struct inbox_stream *stream_of(const struct inbox *inbox, uint32_t peer) {
    uint32_t index = peer < inbox->peer_count ? inbox->of_peer[peer] : 0;
    return index == 0 ? NULL : &inbox->streams[index - 1];
}

static uint32_t index_of(const struct inbox *inbox, const struct inbox_stream *stream) {
    return (uint32_t)(stream - inbox->streams);
}

static bool wants(const struct inbox *inbox, const struct inbox_stream *stream) {
    return stream->wanted > stream->grants && stream->chunks < inbox->shape.peer_chunks;
}

/* ---- messages that are here ---- */

static bool is_here(const struct inbox *inbox, uint32_t chunk, uint32_t offset) {
    return offset < inbox->shape.chunk_bytes &&
           inbox_bit_get(inbox->here, inbox_bit(inbox, chunk, offset));
}

static bool has_message(const struct inbox *inbox, const struct inbox_stream *stream) {
    return stream->taking != INBOX_NONE &&
           is_here(inbox, stream->taking, inbox->chunks[stream->taking].taken);
}

/* ---- marks ---- */

static uint8_t *spot_at(const struct inbox *inbox, uint32_t chunk, uint32_t offset) {
    return inbox->memory + (size_t)chunk * inbox->shape.chunk_bytes + offset;
}

static _Atomic uint64_t *watch_of(const struct inbox *inbox, uint32_t chunk) {
    return (_Atomic uint64_t *)(void *)(inbox->memory + room_watch(inbox->shape.chunk_bytes,
                                                                   inbox->shape.chunk_count,
                                                                   chunk));
}

static bool is_marked(const struct inbox *inbox, uint32_t index, uint32_t offset) {
    return room_is_marked(spot_at(inbox, index, offset),
                          room_mark(inbox->chunks[index].secret, offset));
}

static void find_at(struct inbox *inbox, uint32_t index, uint32_t offset) {
    inbox_bit_set(inbox->here, inbox_bit(inbox, index, offset), true);
    inbox->chunks[index].arrived++;
}

/* Whether the next message of the stream, which was not known to be there, is. */
static bool has_mark(const struct inbox *inbox, const struct inbox_stream *stream) {
    uint32_t at = stream->taking;
    if (at == INBOX_NONE)
        return false;
    const struct inbox_chunk *chunk = &inbox->chunks[at];
    uint32_t end = chunk->closed ? chunk->end : inbox->shape.chunk_bytes;
    return chunk->taken < end && !chunk->spoiled && is_marked(inbox, at, chunk->taken) &&
           !is_here(inbox, at, chunk->taken);
}

/* Finds it, if it is there. */
static void find_next(struct inbox *inbox, const struct inbox_stream *stream) {
    if (has_mark(inbox, stream))
        find_at(inbox, stream->taking, inbox->chunks[stream->taking].taken);
}

/* Finds all that are marked in the chunk, also behind messages that never came. */
static void find_all(struct inbox *inbox, uint32_t index) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t end = chunk->closed ? chunk->end : inbox->shape.chunk_bytes;
    for (uint32_t offset = chunk->taken; !chunk->spoiled && offset < end; offset += ROOM_LINE) {
        if (!is_here(inbox, index, offset) && is_marked(inbox, index, offset))
            find_at(inbox, index, offset);
    }
}

/* ---- the life of a chunk ---- */

/* An open chunk is open no more. */
static void chunk_close(struct inbox *inbox, uint32_t index, uint32_t end) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t owner = groups_of(&inbox->owned, index);
    struct inbox_stream *stream = &inbox->streams[owner];
    inbox->kept -= chunk->keep;
    inbox->called -= chunk->called;
    inbox->awaited -= chunk->called && chunk->round == inbox->round;
    chunk->closed = true;
    chunk->yielded = chunk->called || end == 0;
    chunk->end = end;
    chunk->keep = chunk->called = false;
    if (--stream->open == 0)
        groups_leave(&inbox->active, owner);
}

static void stream_forget(struct inbox *inbox, struct inbox_stream *stream) {
    if (stream->peer != INBOX_NONE || stream->leaving != INBOX_NONE || stream->chunks != 0)
        return;
    *stream = (struct inbox_stream){.taking = INBOX_NONE, .next_free = inbox->stream_free};
    inbox->stream_free = index_of(inbox, stream);
    if (inbox->stream_over != NULL)
        inbox->stream_over(inbox->self, inbox->stream_free);
}

void inbox_release(struct inbox *inbox, uint32_t index) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    if (!chunk->closed || chunk->taken != chunk->end || chunk->held != 0)
        return;
    struct inbox_stream *stream = &inbox->streams[groups_of(&inbox->owned, index)];
    bool yielded = chunk->yielded;
    if (stream->leaving != INBOX_NONE)
        return; /* something may write there still */
    if (stream->taking == index)
        stream->taking = groups_next(&inbox->owned, index);
    *chunk = (struct inbox_chunk){.place = 0};
    groups_join(&inbox->owned, index, inbox->stream_count);
    inbox->free_count++;
    stream->chunks--;
    set_in(&inbox->line, index_of(inbox, stream), wants(inbox, stream));
    if (is_in(&inbox->watched, index_of(inbox, stream)) && !yielded) {
        inbox->freed = index;
        inbox->freed_of = index_of(inbox, stream);
    }
    stream_forget(inbox, stream);
}

/* Goes on to the chunk of the next message, and offers it if it is there. */
static void stream_advance(struct inbox *inbox, struct inbox_stream *stream) {
    uint32_t index = index_of(inbox, stream);
    while (stream->taking != INBOX_NONE) {
        uint32_t at = stream->taking;
        const struct inbox_chunk *chunk = &inbox->chunks[at];
        if (!chunk->closed && !chunk->spoiled && chunk->taken == inbox->shape.chunk_bytes)
            chunk_close(inbox, at, chunk->taken); /* there is room for no more */
        if (!chunk->closed || chunk->taken < chunk->end)
            break;
        stream->taking = groups_next(&inbox->owned, at);
        inbox_release(inbox, at);
        if (!stream->used)
            break;
    }
    if (inbox->direct)
        find_next(inbox, stream);
    set_in(&inbox->ready, index, stream->used && has_message(inbox, stream));
}

/* ---- streams ---- */

static struct inbox_stream *stream_begin(struct inbox *inbox, uint32_t peer) {
    uint32_t index = inbox->stream_free;
    assert(peer < inbox->peer_count);
    if (index != INBOX_NONE)
        inbox->stream_free = inbox->streams[index].next_free;
    else
        index = inbox->streams_used++;
    assert(index < inbox->stream_count);
    struct inbox_stream *stream = &inbox->streams[index];
    *stream = (struct inbox_stream){
        .used = true, .peer = peer, .leaving = INBOX_NONE, .taking = INBOX_NONE};
    inbox->of_peer[peer] = index + 1;
    groups_join(&inbox->met, index, 0);
    return stream;
}

bool inbox_knows(const struct inbox *inbox, uint32_t peer) {
    return stream_of(inbox, peer) != NULL;
}

uint32_t inbox_stream(const struct inbox *inbox, uint32_t peer) {
    const struct inbox_stream *stream = stream_of(inbox, peer);
    return stream == NULL ? INBOX_NONE : index_of(inbox, stream);
}

uint32_t inbox_peer_after(const struct inbox *inbox, uint32_t peer) {
    const struct inbox_stream *stream = stream_of(inbox, peer);
    uint32_t next = stream == NULL ? groups_first(&inbox->met, 0)
                                   : groups_next(&inbox->met, index_of(inbox, stream));
    return next == INBOX_NONE ? INBOX_NONE : inbox->streams[next].peer;
}

/* The first grant that the sender was not told of; INBOX_NONE: none. */
static uint32_t unsaid(const struct inbox *inbox, uint32_t stream) {
    uint32_t at = groups_first(&inbox->owned, stream);
    while (at != INBOX_NONE && inbox->chunks[at].said)
        at = groups_next(&inbox->owned, at);
    return at;
}

/* A renewal that its sender may not have found: no message is in it. */
static bool is_unseen(const struct inbox *inbox, uint32_t index) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    return chunk->renewed && !chunk->closed && chunk->taken == 0 && chunk->arrived == 0 &&
           !is_marked(inbox, index, 0);
}

/* A word is to be said to the sender, which may not have found its renewals: they are said before.
 */
static void say_renewals(struct inbox *inbox, uint32_t index) {
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE;
         at = groups_next(&inbox->owned, at)) {
        struct inbox_chunk *chunk = &inbox->chunks[at];
        if (is_unseen(inbox, at))
            chunk->said = false;
        chunk->renewed = false;
    }
}

void inbox_want(struct inbox *inbox, uint32_t peer, uint64_t grants) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL)
        stream = stream_begin(inbox, peer);
    stream->wanted = grants;
    say_renewals(inbox, index_of(inbox, stream));
    set_in(&inbox->line, index_of(inbox, stream), wants(inbox, stream));
}

void inbox_now(struct inbox *inbox, uint32_t peer, uint64_t number) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream != NULL)
        stream->now = number;
}

/* The end of what has arrived in the chunk behind `from`; `from`: nothing has. */
static uint32_t next_here(const struct inbox *inbox, uint32_t index, uint32_t from) {
    uint32_t offset = from;
    while (offset < inbox->shape.chunk_bytes && !is_here(inbox, index, offset))
        offset += ROOM_LINE;
    return offset;
}

/* Nothing more arrives: the chunk goes on at the next message that is here, or ends. */
static void pass_hole(struct inbox *inbox, uint32_t index) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t limit = chunk->closed ? chunk->end : inbox->shape.chunk_bytes;
    if (!chunk->closed)
        chunk_close(inbox, index, limit);
    if (chunk->arrived > 0)
        limit = next_here(inbox, index, chunk->taken);
    else
        chunk->end = limit = chunk->taken;
    chunk->taken = limit;
}

/* Likewise, for all chunks of a stream whose sender is quiet: at the next message. */
static void pass_holes(struct inbox *inbox, struct inbox_stream *stream) {
    uint32_t at = stream->taking;
    while (at != INBOX_NONE && stream->used) {
        pass_hole(inbox, at);
        if (inbox->chunks[at].arrived > 0)
            break;
        at = groups_next(&inbox->owned, at);
        stream_advance(inbox, stream);
    }
    if (stream->used)
        stream_advance(inbox, stream);
}

static bool is_quiet(const struct inbox_stream *stream) {
    return stream->peer == INBOX_NONE && stream->leaving == INBOX_NONE;
}

static void stream_quiet(struct inbox *inbox, struct inbox_stream *stream) {
    uint32_t index = index_of(inbox, stream);
    stream->leaving = INBOX_NONE;
    groups_leave(&inbox->going, index);
    uint32_t next;
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE; at = next) {
        struct inbox_chunk *chunk = &inbox->chunks[at];
        next = groups_next(&inbox->owned, at);
        if (inbox->direct)
            find_all(inbox, at);
        if (!chunk->closed)
            chunk_close(inbox, at, inbox->shape.chunk_bytes);
        if (chunk->arrived == 0)
            chunk->end = chunk->taken;
        inbox_release(inbox, at);
    }
    if (stream->used)
        pass_holes(inbox, stream);
    stream_forget(inbox, stream);
}

/* ---- watching ---- */

/* Writes the watches of all chunks that the stream may put messages in. */
static void watch_set(struct inbox *inbox, uint32_t index, bool watched) {
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE;
         at = groups_next(&inbox->owned, at)) {
        const struct inbox_chunk *chunk = &inbox->chunks[at];
        if (!chunk->closed)
            atomic_store_explicit(watch_of(inbox, at), watched ? chunk->place : 0,
                                  memory_order_relaxed);
    }
}

static void watch_end(struct inbox *inbox, struct inbox_stream *stream) {
    uint32_t index = index_of(inbox, stream);
    if (!is_in(&inbox->watched, index))
        return;
    watch_set(inbox, index, false);
    groups_leave(&inbox->watched, index);
}

/* Between the watches that were taken back, and the last look: in this order for senders, too. */
static void order(const struct inbox *inbox) {
    if (inbox->order != NULL)
        inbox->order(inbox->self);
}

/* Takes its watch from a stream that has had no message for long. False: there is none. */
static bool watch_free(struct inbox *inbox) {
    uint32_t index = groups_first(&inbox->watched, 0);
    while (index != INBOX_NONE && inbox->streams[index].idle < INBOX_WATCH_IDLE)
        index = groups_next(&inbox->watched, index);
    if (index == INBOX_NONE)
        return false;
    watch_end(inbox, &inbox->streams[index]);
    order(inbox);
    stream_advance(inbox, &inbox->streams[index]);
    return true;
}

void inbox_told_to_look(struct inbox *inbox, uint32_t peer) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL || inbox->closed || !inbox->direct)
        return;
    uint32_t index = index_of(inbox, stream);
    if (!is_in(&inbox->watched, index) &&
        (inbox->watched.used < INBOX_WATCH || watch_free(inbox))) {
        groups_join(&inbox->watched, index, 0);
        watch_set(inbox, index, true);
        stream->idle = 0;
    }
    bool ready = is_in(&inbox->ready, index);
    stream_advance(inbox, stream);
    if (ready || !stream->used || !is_in(&inbox->ready, index))
        return; /* there was nothing new */
    stream->idle = 0;
    if (is_in(&inbox->active, index))
        to_the_end(&inbox->active, index);
}

void inbox_look(struct inbox *inbox) {
    uint32_t next;
    for (uint32_t i = groups_first(&inbox->watched, 0); i != INBOX_NONE; i = next) {
        struct inbox_stream *stream = &inbox->streams[i];
        next = groups_next(&inbox->watched, i);
        if (is_in(&inbox->ready, i))
            continue;
        stream_advance(inbox, stream);
        stream->idle = is_in(&inbox->ready, i) ? 0 : stream->idle + (stream->idle < UINT32_MAX);
    }
}

void inbox_unwatch(struct inbox *inbox) {
    for (uint32_t i = groups_first(&inbox->watched, 0); i != INBOX_NONE;
         i = groups_next(&inbox->watched, i))
        watch_set(inbox, i, false);
}

bool inbox_rest(struct inbox *inbox) {
    uint32_t before = inbox->ready.used, next;
    for (uint32_t i = groups_first(&inbox->watched, 0); i != INBOX_NONE; i = next) {
        next = groups_next(&inbox->watched, i);
        groups_leave(&inbox->watched, i);
        stream_advance(inbox, &inbox->streams[i]);
    }
    return inbox->ready.used > before;
}

/* ---- senders that go ---- */

void inbox_leave(struct inbox *inbox, uint32_t peer, uint64_t from) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL)
        return;
    uint32_t index = index_of(inbox, stream);
    inbox->of_peer[peer] = 0;
    stream->peer = INBOX_NONE;
    stream->leaving = peer;
    stream->from = from;
    stream->wanted = stream->call = 0;
    groups_leave(&inbox->line, index);
    groups_leave(&inbox->met, index);
    watch_end(inbox, stream);
    groups_join(&inbox->going, index, 0);
    if (stream->chunks == 0) /* there is nothing that it could still tell, or write */
        stream_quiet(inbox, stream);
}

void inbox_quiet(struct inbox *inbox, uint32_t peer) {
    uint32_t next;
    for (uint32_t i = groups_first(&inbox->going, 0); i != INBOX_NONE; i = next) {
        next = groups_next(&inbox->going, i);
        if (inbox->streams[i].leaving == peer)
            stream_quiet(inbox, &inbox->streams[i]);
    }
}

/* ---- grants ---- */

/* Half of the chunks, and the only one. */
static uint32_t keep_most(const struct inbox *inbox) {
    return inbox->shape.chunk_count == 1 ? 1 : inbox->shape.chunk_count / 2;
}

/* Gives the free chunk to the stream. */
static void grant(struct inbox *inbox, uint32_t index, uint32_t free, uint64_t secret) {
    struct inbox_stream *stream = &inbox->streams[index];
    struct inbox_chunk *chunk = &inbox->chunks[free];
    *chunk = (struct inbox_chunk){
        .place = ++inbox->places, .secret = secret, .keep = inbox->kept < keep_most(inbox)};
    groups_join(&inbox->owned, free, index);
    inbox->free_count--;
    inbox->kept += chunk->keep;
    stream->open++;
    if (stream->grants++ == 0) {
        stream->first_secret = secret;
        stream->first_place = chunk->place;
    }
    stream->chunks++;
    if (stream->taking == INBOX_NONE)
        stream->taking = free;
    atomic_store_explicit(watch_of(inbox, free), is_in(&inbox->watched, index) ? chunk->place : 0,
                          memory_order_relaxed);
    to_the_end(&inbox->active, index);
    groups_leave(&inbox->line, index);
    set_in(&inbox->line, index, wants(inbox, stream));
}

/* By a word: the chunk that came free last, which caches and translation tables may hold. */
static void grant_next(struct inbox *inbox, uint32_t index, uint64_t secret) {
    say_renewals(inbox, index);
    grant(inbox, index, groups_last(&inbox->owned, inbox->stream_count), secret);
}

bool inbox_grant(struct inbox *inbox, uint64_t secret, uint32_t *peer_out) {
    uint32_t index = groups_first(&inbox->line, 0);
    if (index == INBOX_NONE || inbox->free_count == 0 || inbox->closed)
        return false;
    grant_next(inbox, index, secret);
    *peer_out = inbox->streams[index].peer;
    return true;
}

/* Whether the stream may have a chunk that it has not asked for. */
static bool may_spare(const struct inbox *inbox, const struct inbox_stream *stream) {
    return !inbox->closed && inbox->line.used == 0 && inbox->free_count > 0 &&
           inbox->kept < keep_most(inbox) && stream->chunks < inbox->shape.peer_chunks &&
           stream->grants - stream->shuts < ROOM_UNASKED;
}

/* Renewals that the sender of the stream has not found yet. */
static uint32_t unseen(const struct inbox *inbox, uint32_t index) {
    uint32_t count = 0;
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE;
         at = groups_next(&inbox->owned, at))
        count += is_unseen(inbox, at);
    return count;
}

bool inbox_may_grant_ahead(const struct inbox *inbox, uint32_t peer) {
    const struct inbox_stream *stream = stream_of(inbox, peer);
    return stream != NULL && may_spare(inbox, stream);
}

void inbox_grant_ahead(struct inbox *inbox, uint32_t peer, uint64_t secret) {
    assert(inbox_may_grant_ahead(inbox, peer));
    grant_next(inbox, index_of(inbox, stream_of(inbox, peer)), secret);
}

bool inbox_may_renew(struct inbox *inbox) {
    uint32_t at = inbox->freed;
    inbox->freed = INBOX_NONE;
    if (at == INBOX_NONE || inbox->chunks[at].place != 0 ||
        !is_in(&inbox->watched, inbox->freed_of))
        return false;
    const struct inbox_stream *stream = &inbox->streams[inbox->freed_of];
    if (stream->grants == 0 || !may_spare(inbox, stream) ||
        unseen(inbox, inbox->freed_of) >= UNSEEN_MAX)
        return false;
    inbox->freed = at;
    return true;
}

void inbox_renew(struct inbox *inbox, uint64_t secret) {
    uint32_t at = inbox->freed, index = inbox->freed_of;
    const struct inbox_stream *stream = &inbox->streams[index];
    struct inbox_chunk *chunk = &inbox->chunks[at];
    inbox->freed = INBOX_NONE;
    grant(inbox, index, at, secret);
    chunk->renewed = unsaid(inbox, index) == at;
    chunk->said = chunk->renewed;
    if (!chunk->renewed)
        return; /* words are due anyhow */
    const struct room_grant grant = {chunk->place, secret, at, chunk->keep};
    room_renewal_write(watch_of(inbox, at),
                       room_renewal_number(stream->first_secret, stream->grants), &grant);
}

/* Its direct messages are found wherever they are looked for. */
static bool is_busy(const struct inbox *inbox, uint32_t stream) {
    return is_in(&inbox->watched, stream) && inbox->streams[stream].idle == 0;
}

/* The stream that is called next: those in the line are not idle, if they are there at all. */
static uint32_t next_called(const struct inbox *inbox) {
    uint32_t index = groups_first(&inbox->active, 0);
    while (index != INBOX_NONE && (is_in(&inbox->line, index) || is_busy(inbox, index)))
        index = groups_next(&inbox->active, index);
    return index != INBOX_NONE ? index : groups_first(&inbox->active, 0);
}

static void call_stream(struct inbox *inbox, uint32_t index) {
    struct inbox_stream *stream = &inbox->streams[index];
    say_renewals(inbox, index);
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE;
         at = groups_next(&inbox->owned, at)) {
        struct inbox_chunk *chunk = &inbox->chunks[at];
        if (chunk->closed)
            continue;
        inbox->awaited += !chunk->called || chunk->round != inbox->round;
        inbox->called += !chunk->called;
        chunk->called = true;
        chunk->round = inbox->round;
        stream->call = chunk->place;
    }
    groups_leave(&inbox->active, index);
}

bool inbox_call(struct inbox *inbox, uint32_t *peer_out) {
    struct inbox_stream *stream;
    do {
        uint32_t index = next_called(inbox);
        if (inbox->closed || inbox->free_count > 0 || inbox->awaited >= inbox->line.used ||
            index == INBOX_NONE)
            return false;
        stream = &inbox->streams[index];
        call_stream(inbox, index);
    } while (stream->peer == INBOX_NONE); /* one that leaves gives up what it has without a word */
    *peer_out = stream->peer;
    return true;
}

/* ---- what senders are told ---- */

bool inbox_meets(const struct inbox *inbox, uint32_t peer) {
    const struct inbox_stream *stream = stream_of(inbox, peer);
    return stream != NULL && !stream->met && !inbox->closed;
}

enum inbox_saying inbox_say(struct inbox *inbox, uint32_t peer, struct room_grant *grant_out) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL || stream->ended)
        return INBOX_SAY_NOTHING;
    if (inbox->closed) {
        stream->ended = true;
        return INBOX_SAY_CLOSED;
    }
    if (!stream->met) {
        stream->met = true;
        return INBOX_SAY_MEET;
    }
    uint32_t at = unsaid(inbox, index_of(inbox, stream));
    if (at != INBOX_NONE) {
        struct inbox_chunk *chunk = &inbox->chunks[at];
        chunk->said = true;
        *grant_out = (struct room_grant){
            .place = chunk->place, .secret = chunk->secret, .chunk = at, .keep = chunk->keep};
        return INBOX_SAY_GRANT;
    }
    if (stream->call != 0) {
        *grant_out = (struct room_grant){.place = stream->call};
        stream->call = 0;
        return INBOX_SAY_CALL;
    }
    bool full = stream->now != 0 && stream->wanted > stream->grants;
    *grant_out = (struct room_grant){.place = stream->now};
    stream->now = 0;
    return full ? INBOX_SAY_FULL : INBOX_SAY_NOTHING;
}

/* ---- what senders tell ---- */

/* Whether the place is one that the peer has now; *stream_out: its stream. */
static enum inbox_told look_up(const struct inbox *inbox, uint32_t peer, uint64_t place,
                               uint32_t index, struct inbox_stream **stream_out) {
    if (place == 0 || index >= inbox->shape.chunk_count || place > inbox->places)
        return INBOX_LIE;
    if (inbox->chunks[index].place != place)
        return INBOX_OLD;
    struct inbox_stream *stream = &inbox->streams[groups_of(&inbox->owned, index)];
    *stream_out = stream;
    if (is_quiet(stream))
        return INBOX_OLD;
    return stream->peer == peer || stream->leaving == peer ? INBOX_TOLD : INBOX_LIE;
}

/* More came of the stream: it is not idle. */
static void stream_told(struct inbox *inbox, struct inbox_stream *stream) {
    uint32_t index = index_of(inbox, stream);
    if (is_in(&inbox->active, index))
        to_the_end(&inbox->active, index);
    stream_advance(inbox, stream);
}

enum inbox_told inbox_arrive(struct inbox *inbox, uint32_t peer, const struct room_note *note) {
    struct inbox_stream *stream;
    enum inbox_told told = look_up(inbox, peer, note->place, note->chunk, &stream);
    if (told != INBOX_TOLD)
        return told;
    struct inbox_chunk *chunk = &inbox->chunks[note->chunk];
    if (chunk->spoiled)
        return INBOX_OLD;
    uint32_t end = chunk->closed ? chunk->end : inbox->shape.chunk_bytes;
    if (note->offset % ROOM_LINE != 0 || note->offset >= end ||
        note->length > inbox->shape.message_bytes_max ||
        room_bytes(note->length) > end - note->offset)
        return INBOX_LIE;
    size_t bit = inbox_bit(inbox, note->chunk, note->offset);
    if (note->offset < chunk->taken || inbox_bit_get(inbox->here, bit))
        return INBOX_OLD;
    const struct room_head head = {.mark = room_mark(chunk->secret, note->offset),
                                   .tag = note->tag,
                                   .length = note->length,
                                   .skip = note->skip};
    room_head_encode(&head, spot_at(inbox, note->chunk, note->offset));
    inbox_bit_set(inbox->here, bit, true);
    chunk->arrived++;
    stream_told(inbox, stream);
    return INBOX_TOLD;
}

/* The sender holds a place less than it did. */
static void count_shut(struct inbox *inbox, uint32_t peer, uint64_t place) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream != NULL && stream->grants > stream->shuts && place >= stream->first_place &&
        place <= inbox->places)
        stream->shuts++;
}

enum inbox_told inbox_shut(struct inbox *inbox, uint32_t peer, const struct room_shut *shut) {
    struct inbox_stream *stream;
    count_shut(inbox, peer, shut->place);
    enum inbox_told told = look_up(inbox, peer, shut->place, shut->chunk, &stream);
    if (told != INBOX_TOLD)
        return told;
    struct inbox_chunk *chunk = &inbox->chunks[shut->chunk];
    if (chunk->closed)
        return INBOX_OLD;
    if (shut->end % ROOM_LINE != 0 || shut->end > inbox->shape.chunk_bytes ||
        (shut->end < chunk->taken && !chunk->spoiled) ||
        (chunk->arrived > 0 && next_here(inbox, shut->chunk, shut->end) < inbox->shape.chunk_bytes))
        return INBOX_LIE;
    chunk_close(inbox, shut->chunk, chunk->spoiled ? chunk->taken : shut->end);
    stream_told(inbox, stream);
    inbox_release(inbox, shut->chunk);
    return INBOX_TOLD;
}

/* ---- messages ---- */

/* Reads the head of the stream's next message. */
static inline __attribute__((always_inline)) bool
read_head(const struct inbox *inbox, uint32_t index, struct room_head *head_out) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t end = chunk->closed ? chunk->end : inbox->shape.chunk_bytes;
    return room_head_decode(spot_at(inbox, index, chunk->taken),
                            room_mark(chunk->secret, chunk->taken), end - chunk->taken, head_out) &&
           head_out->length <= inbox->shape.message_bytes_max;
}

/* Whether the next message, of so many bytes, lies over others that are here. */
static bool covers(const struct inbox *inbox, uint32_t index, uint32_t bytes) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    bool here = false;
    for (uint32_t i = ROOM_LINE; !here && chunk->arrived > 1 && i < bytes; i += ROOM_LINE)
        here = is_here(inbox, index, chunk->taken + i);
    return here;
}

/* Drops what is in the chunk, from here on, and what comes there until its sender shuts it. */
static void spoil(struct inbox *inbox, uint32_t index) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    for (uint32_t offset = chunk->taken; offset < inbox->shape.chunk_bytes; offset += ROOM_LINE)
        inbox_bit_set(inbox->here, inbox_bit(inbox, index, offset), false);
    chunk->arrived = 0;
    chunk->spoiled = true;
    chunk->taken = inbox->shape.chunk_bytes;
    if (chunk->closed)
        chunk->end = chunk->taken;
}

/* Tells the application's side of the stream's next message. */
static inline __attribute__((always_inline)) void hand_out(const struct inbox *inbox,
                                                           const struct inbox_stream *stream,
                                                           const struct room_head *head,
                                                           struct inbox_message *message_out) {
    const struct inbox_chunk *chunk = &inbox->chunks[stream->taking];
    message_out->peer = stream->peer;
    message_out->from = stream->from;
    message_out->tag = head->tag;
    message_out->place = chunk->place;
    message_out->chunk = stream->taking;
    message_out->offset = chunk->taken;
    message_out->length = head->length;
    message_out->payload = chunk->taken + room_payload(head->length);
    message_out->stream = index_of(inbox, stream);
    message_out->is_loan = head->loan;
    if (head->loan)
        room_loan_decode(spot_at(inbox, stream->taking, chunk->taken), &message_out->loan);
}

/* The stream's next message, which is here. */
static enum inbox_taken take_next(struct inbox *inbox, uint32_t index,
                                  struct inbox_message *message_out) {
    struct inbox_stream *stream = &inbox->streams[index];
    uint32_t at = stream->taking;
    struct inbox_chunk *chunk = &inbox->chunks[at];
    struct room_head head = {0};
    bool good = read_head(inbox, at, &head) && !covers(inbox, at, room_taken(&head));
    hand_out(inbox, stream, &head, message_out);
    size_t bit = inbox_bit(inbox, at, chunk->taken);
    if (good) {
        inbox_bit_set(inbox->here, bit, false);
        inbox_bit_set(inbox->held, bit, !head.skip);
        chunk->arrived--;
        chunk->held += !head.skip;
        inbox->held_count += !head.skip;
        chunk->taken += room_taken(&head);
    } else {
        spoil(inbox, at);
    }
    if (is_quiet(stream)) {
        pass_holes(inbox, stream);
    } else if (good && !head.skip && inbox->ready.used == 1 && !chunk->closed &&
               chunk->arrived == 0 && chunk->taken < inbox->shape.chunk_bytes &&
               is_in(&inbox->watched, index)) {
        groups_leave(&inbox->ready, index); /* the next one is found for less */
        to_the_end(&inbox->watched, index);
    } else {
        stream_advance(inbox, stream);
    }
    if (inbox->ready.used > 1 && is_in(&inbox->ready, index)) /* streams with more take turns */
        to_the_end(&inbox->ready, index);
    if (!good)
        return INBOX_BAD;
    return head.skip ? INBOX_EMPTY : INBOX_MESSAGE;
}

/* The stream's next message, if it is a direct one that nobody knew of, no other has come before
 * its turn, and nothing is wrong with it: all that is left to do is to hand it out. */
static bool take_at_once(struct inbox *inbox, struct inbox_stream *stream,
                         struct inbox_message *message_out) {
    uint32_t at = stream->taking;
    struct room_head head;
    if (at == INBOX_NONE)
        return false;
    struct inbox_chunk *chunk = &inbox->chunks[at];
    if (chunk->closed || chunk->arrived > 0 || chunk->taken == inbox->shape.chunk_bytes ||
        !read_head(inbox, at, &head) || head.skip)
        return false;
    hand_out(inbox, stream, &head, message_out);
    inbox_bit_set(inbox->held, inbox_bit(inbox, at, chunk->taken), true);
    chunk->held++;
    inbox->held_count++;
    chunk->taken += room_taken(&head);
    stream->idle = 0;
    if (chunk->taken == inbox->shape.chunk_bytes)
        stream_advance(inbox, stream);
    return true;
}

/* Likewise, of the streams that are watched, in turns. */
static bool take_watched(struct inbox *inbox, struct inbox_message *message_out) {
    for (uint32_t n = inbox->watched.used; n > 0; n--) {
        uint32_t index = groups_first(&inbox->watched, 0);
        struct inbox_stream *stream = &inbox->streams[index];
        if (inbox->watched.used > 1)
            to_the_end(&inbox->watched, index);
        if (take_at_once(inbox, stream, message_out))
            return true;
        if (has_mark(inbox, stream))
            stream_advance(inbox, stream); /* with more to it: take_next's */
        else
            stream->idle += stream->idle < UINT32_MAX;
    }
    return false;
}

enum inbox_taken inbox_take(struct inbox *inbox, struct inbox_message *message_out) {
    enum inbox_taken taken = INBOX_EMPTY;
    if (inbox->closed)
        return taken;
    if (inbox->ready.used == 0 && take_watched(inbox, message_out))
        return INBOX_MESSAGE;
    for (uint32_t skips = 0; taken == INBOX_EMPTY && skips < INBOX_SKIPS; skips++) {
        uint32_t stream = groups_first(&inbox->ready, 0);
        if (stream == INBOX_NONE)
            break;
        taken = take_next(inbox, stream, message_out);
    }
    return taken;
}

/* Takes direct messages with nothing to do but to hand them out, from where the chunk's next one
 * has to be. */
static inline __attribute__((always_inline)) uint32_t
take_plain(struct inbox *inbox, struct inbox_chunk *chunk, uint32_t at, weir_peer from,
           weir_inbox handle, weir_message *messages, uint32_t max) {
    const uint8_t *memory = spot_at(inbox, at, 0);
    const size_t bit = inbox_bit(inbox, at, 0);
    uint64_t *held = inbox->held, secret = chunk->secret, place = chunk->place;
    uint32_t end = inbox->shape.chunk_bytes, longest = inbox->shape.message_bytes_max;
    uint32_t taken = chunk->taken, count = 0, length;
    uint64_t tag;
    for (; count < max && taken < end; count++) {
        weir_message *next = &messages[count];
        if (!room_plain_decode(memory + taken, room_mark(secret, taken), longest, &length, &tag))
            break;
        uint32_t takes = room_bytes(length);
        if (takes > end - taken)
            break;
        next->tag = tag;
        next->from = from;
        next->inbox = handle;
        next->data = memory + taken + room_payload(length);
        next->length = length;
        next->place = place;
        next->spot = inbox_spot(at, taken);
        inbox_bit_set(held, bit + taken / ROOM_LINE, true);
        taken += takes;
    }
    chunk->taken = taken;
    chunk->held += count;
    inbox->held_count += count;
    return count;
}

uint32_t inbox_next_direct(struct inbox *inbox) {
    uint32_t index = groups_first(&inbox->watched, 0);
    if (index == INBOX_NONE || inbox->ready.used > 0 || inbox->closed)
        return INBOX_NONE;
    struct inbox_stream *stream = &inbox->streams[index];
    if (inbox->watched.used > 1)
        to_the_end(&inbox->watched, index);
    if (stream->taking == INBOX_NONE)
        return INBOX_NONE;
    const struct inbox_chunk *chunk = &inbox->chunks[stream->taking];
    const uint8_t *spot = spot_at(inbox, stream->taking, chunk->taken);
    return !chunk->closed && chunk->arrived == 0 && chunk->taken != inbox->shape.chunk_bytes &&
                   room_is_marked(spot, room_mark(chunk->secret, chunk->taken)) &&
                   room_is_plain(spot)
               ? index
               : INBOX_NONE;
}

uint32_t inbox_take_direct(struct inbox *inbox, uint32_t stream, weir_peer from, weir_inbox handle,
                           weir_message *messages, uint32_t max) {
    uint32_t at = inbox->streams[stream].taking;
    struct inbox_chunk *chunk = &inbox->chunks[at];
    inbox->streams[stream].idle = 0;
    uint32_t count = take_plain(inbox, chunk, at, from, handle, messages, max);
    if (chunk->taken == inbox->shape.chunk_bytes)
        stream_advance(inbox, &inbox->streams[stream]);
    return count;
}

uint32_t inbox_take_next(struct inbox *inbox, weir_message *messages, uint32_t max) {
    uint32_t at = inbox_spot_chunk(messages->spot);
    struct inbox_chunk *chunk = &inbox->chunks[at];
    if (!inbox->direct || inbox->closed || chunk->place != messages->place || chunk->closed)
        return 0;
    /* If one was found before its turn, nothing else was. */
    bool found = chunk->arrived > 0;
    if (found && (chunk->arrived > 1 || !is_here(inbox, at, chunk->taken) || max == 0))
        return 0;
    size_t bit = inbox_bit(inbox, at, chunk->taken);
    uint32_t count =
        take_plain(inbox, chunk, at, messages->from, messages->inbox, messages + 1, max);
    if (found && count > 0) {
        inbox_bit_set(inbox->here, bit, false);
        chunk->arrived = 0;
    }
    if ((found && count > 0) || chunk->taken == inbox->shape.chunk_bytes)
        stream_advance(inbox, &inbox->streams[groups_of(&inbox->owned, at)]);
    return count;
}

uint32_t inbox_give_back_many(struct inbox *inbox, const weir_message *messages, uint32_t count) {
    uint64_t place = messages->place, first = messages->spot, *held = inbox->held;
    uint32_t index = inbox_spot_chunk(first), end = inbox->shape.chunk_bytes, given = 0;
    struct inbox_chunk *chunk = &inbox->chunks[index];
    if (index >= inbox->shape.chunk_count || chunk->place != place)
        return 0;
    const size_t bit = inbox_bit(inbox, index, 0);
    for (; given < count; given++) {
        const weir_message *message = &messages[given];
        uint32_t offset = inbox_spot_offset(message->spot);
        if ((message->spot ^ first) >> 32 != 0 || message->place != place ||
            message->inbox.id != messages->inbox.id || offset >= end || offset % ROOM_LINE != 0 ||
            !inbox_bit_get(held, bit + offset / ROOM_LINE))
            break;
        inbox_bit_set(held, bit + offset / ROOM_LINE, false);
    }
    chunk->held -= given;
    inbox->held_count -= given;
    if (given > 0 && chunk->held == 0 && chunk->closed)
        inbox_release(inbox, index);
    return given;
}

bool inbox_loan(const struct inbox *inbox, uint32_t chunk, uint64_t place, uint32_t offset,
                struct inbox_message *message_out) {
    struct room_head head;
    if (inbox_held_bit(inbox, chunk, place, offset) == SIZE_MAX ||
        !room_head_decode(spot_at(inbox, chunk, offset),
                          room_mark(inbox->chunks[chunk].secret, offset), ROOM_LINE, &head) ||
        !head.loan)
        return false;
    *message_out =
        (struct inbox_message){.stream = groups_of(&inbox->owned, chunk), .is_loan = true};
    room_loan_decode(spot_at(inbox, chunk, offset), &message_out->loan);
    return true;
}

/* ---- invariants ---- */

static const char *verify_chunk(const struct inbox *inbox, uint32_t index) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t owner = groups_of(&inbox->owned, index);
    uint32_t held = 0, here = 0;
    for (uint32_t offset = 0; offset < inbox->shape.chunk_bytes; offset += ROOM_LINE) {
        size_t bit = inbox_bit(inbox, index, offset);
        held += inbox_bit_get(inbox->held, bit);
        here += inbox_bit_get(inbox->here, bit);
        if (inbox_bit_get(inbox->here, bit) && offset < chunk->taken)
            return "a message was passed over";
        if (inbox_bit_get(inbox->held, bit) && offset >= chunk->taken)
            return "a message is held that was not taken";
    }
    if (held != chunk->held || here != chunk->arrived)
        return "messages are not those of the bits";
    if (owner == inbox->stream_count)
        return chunk->place == 0 && held + here == 0 ? NULL : "a free chunk is in use";
    if (owner == INBOX_NONE || chunk->place <= inbox->first_place || chunk->place > inbox->places)
        return "a chunk is nobody's";
    if (chunk->closed && (chunk->keep || chunk->called))
        return "a closed chunk is kept";
    if (chunk->closed && (chunk->taken > chunk->end || chunk->end > inbox->shape.chunk_bytes))
        return "more was taken than was put";
    if (chunk->closed && chunk->taken == chunk->end && held == 0 &&
        inbox->streams[owner].leaving == INBOX_NONE)
        return "a chunk that nothing is left of is not free";
    return NULL;
}

static const char *verify_stream(const struct inbox *inbox, uint32_t index) {
    const struct inbox_stream *stream = &inbox->streams[index];
    uint64_t place = 0;
    uint32_t chunks = 0, open = 0, uncalled = 0;
    bool before = stream->taking != INBOX_NONE;
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE;
         at = groups_next(&inbox->owned, at)) {
        const struct inbox_chunk *chunk = &inbox->chunks[at];
        before &= at != stream->taking;
        if (before && (!chunk->closed || chunk->taken != chunk->end))
            return "a message was passed over";
        if (chunk->place <= place)
            return "places are out of order";
        place = chunk->place;
        open += !chunk->closed;
        uncalled += !chunk->closed && !chunk->called;
        chunks++;
    }
    if (before)
        return "the next message is in a chunk of another's";
    if (chunks != stream->chunks || open != stream->open || chunks > inbox->shape.peer_chunks)
        return "a stream's chunks are not counted";
    if (is_in(&inbox->line, index) != wants(inbox, stream))
        return "a stream waits for nothing, or does not wait";
    if (is_in(&inbox->ready, index) != has_message(inbox, stream))
        return "a message is not offered";
    if (is_in(&inbox->active, index) ? open == 0 : uncalled > 0)
        return "a stream would be called in vain, or not at all";
    if (stream->peer == INBOX_NONE ? stream->wanted != 0
                                   : inbox->of_peer[stream->peer] != index + 1)
        return "a stream is another peer's";
    if (is_in(&inbox->watched, index) && (stream->peer == INBOX_NONE || !inbox->direct))
        return "a stream is watched whose sender is gone";
    if (is_in(&inbox->met, index) != (stream->peer != INBOX_NONE) ||
        is_in(&inbox->going, index) != (stream->leaving != INBOX_NONE))
        return "a stream is not listed as what it is";
    return is_quiet(stream) && open > 0 ? "the stream of a sender that is gone is open" : NULL;
}

const char *inbox_verify(const struct inbox *inbox) {
    const struct groups *lists[] = {&inbox->owned, &inbox->line,  &inbox->ready,  &inbox->active,
                                    &inbox->met,   &inbox->going, &inbox->watched};
    const char *wrong = NULL;
    uint32_t free = 0, kept = 0, called = 0, awaited = 0, held = 0;
    for (size_t i = 0; wrong == NULL && i < sizeof(lists) / sizeof(lists[0]); i++)
        wrong = groups_verify(lists[i]);
    for (uint32_t i = 0; wrong == NULL && i < inbox->shape.chunk_count; i++) {
        wrong = verify_chunk(inbox, i);
        free += inbox->chunks[i].place == 0;
        kept += inbox->chunks[i].keep;
        held += inbox->chunks[i].held;
        called += inbox->chunks[i].called;
        awaited += inbox->chunks[i].called && inbox->chunks[i].round == inbox->round;
    }
    for (uint32_t i = 0; wrong == NULL && i < inbox->streams_used; i++)
        wrong = inbox->streams[i].used ? verify_stream(inbox, i) : NULL;
    if (wrong == NULL &&
        (free != inbox->free_count || kept != inbox->kept || called != inbox->called ||
         awaited != inbox->awaited || held != inbox->held_count))
        wrong = "chunks are not counted";
    if (wrong == NULL && kept > keep_most(inbox))
        wrong = "more than half may be kept";
    if (wrong == NULL && inbox->watched.used > INBOX_WATCH)
        wrong = "more streams are watched than may be";
    return wrong;
}
