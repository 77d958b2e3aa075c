/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.c: see inbox.h. */
#include "inbox.h"

#include <assert.h>

/* ---- memory ---- */

static uint32_t streams_of(const struct room_shape *shape, uint32_t peers) {
    return peers + shape->chunk_count; /* a peer that is gone leaves a stream only with a chunk */
}

static size_t held_words(const struct room_shape *shape) {
    return ((size_t)shape->chunk_count * (shape->chunk_bytes / ROOM_LINE) + 63) / 64;
}

static size_t up(size_t bytes) {
    return (bytes + 7) & ~(size_t)7;
}

size_t inbox_bytes(const struct room_shape *shape, uint32_t peers) {
    uint32_t streams = streams_of(shape, peers);
    if (streams < peers || streams == UINT32_MAX)
        return 0;
    return shape->chunk_count * sizeof(struct inbox_chunk) + streams * sizeof(struct inbox_stream) +
           held_words(shape) * sizeof(uint64_t) + up(peers * sizeof(uint32_t)) +
           up(groups_bytes(streams + 1, shape->chunk_count)) + 3 * up(groups_bytes(1, streams));
}

static void *carve(uint8_t **at, size_t bytes) {
    void *memory = *at;
    *at += up(bytes);
    return memory;
}

static void carve_list(uint8_t **at, struct groups *list, uint32_t streams) {
    groups_init(list, carve(at, groups_bytes(1, streams)), 1, streams);
}

void inbox_init(struct inbox *inbox, void *memory, const struct room_shape *shape, uint32_t peers) {
    uint8_t *at = memory;
    uint32_t streams = streams_of(shape, peers), chunks = shape->chunk_count;
    *inbox = (struct inbox){.shape = *shape,
                            .peer_count = peers,
                            .stream_count = streams,
                            .stream_free = INBOX_NONE,
                            .free_count = chunks};
    inbox->chunks = carve(&at, chunks * sizeof(struct inbox_chunk));
    inbox->streams = carve(&at, streams * sizeof(struct inbox_stream));
    inbox->held = carve(&at, held_words(shape) * sizeof(uint64_t));
    inbox->of_peer = carve(&at, peers * sizeof(uint32_t));
    groups_init(&inbox->owned, carve(&at, groups_bytes(streams + 1, chunks)), streams + 1, chunks);
    carve_list(&at, &inbox->line, streams);
    carve_list(&at, &inbox->ready, streams);
    carve_list(&at, &inbox->active, streams);
    assert((size_t)(at - (uint8_t *)memory) == inbox_bytes(shape, peers));
    for (uint32_t i = 0; i < chunks; i++)
        groups_join(&inbox->owned, i, streams);
}

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

static bool has_message(const struct inbox *inbox, const struct inbox_stream *stream) {
    if (stream->taking == INBOX_NONE)
        return false;
    const struct inbox_chunk *chunk = &inbox->chunks[stream->taking];
    return chunk->taken < chunk->end;
}

/* ---- the life of a chunk ---- */

/* An open chunk is open no more. */
static void chunk_close(struct inbox *inbox, uint32_t index) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t owner = groups_of(&inbox->owned, index);
    struct inbox_stream *stream = &inbox->streams[owner];
    inbox->kept -= chunk->keep;
    inbox->called -= chunk->called;
    inbox->awaited -= chunk->called && chunk->round == inbox->round;
    chunk->closed = true;
    chunk->keep = chunk->called = false;
    if (--stream->open == 0)
        groups_leave(&inbox->active, owner);
}

static void stream_forget(struct inbox *inbox, struct inbox_stream *stream) {
    if (stream->peer != INBOX_NONE || stream->chunks != 0)
        return;
    *stream = (struct inbox_stream){.taking = INBOX_NONE, .next_free = inbox->stream_free};
    inbox->stream_free = index_of(inbox, stream);
}

/* Frees a chunk if it is closed, and all of its messages were given back. */
static void chunk_release(struct inbox *inbox, uint32_t index) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    if (!chunk->closed || chunk->taken != chunk->end || chunk->held != 0)
        return;
    struct inbox_stream *stream = &inbox->streams[groups_of(&inbox->owned, index)];
    if (stream->taking == index)
        stream->taking = groups_next(&inbox->owned, index);
    *chunk = (struct inbox_chunk){.place = 0};
    groups_join(&inbox->owned, index, inbox->stream_count);
    inbox->free_count++;
    stream->chunks--;
    set_in(&inbox->line, index_of(inbox, stream), wants(inbox, stream));
    stream_forget(inbox, stream);
}

/* Goes on to the chunk of the next message, and offers it if it is there. */
static void stream_advance(struct inbox *inbox, struct inbox_stream *stream) {
    uint32_t index = index_of(inbox, stream);
    while (stream->taking != INBOX_NONE) {
        uint32_t at = stream->taking;
        const struct inbox_chunk *chunk = &inbox->chunks[at];
        if (!chunk->closed || chunk->taken < chunk->end)
            break;
        stream->taking = groups_next(&inbox->owned, at);
        chunk_release(inbox, at);
    }
    set_in(&inbox->ready, index, has_message(inbox, stream));
}

/* Likewise, behind a message: streams with more take turns. */
static void stream_next(struct inbox *inbox, struct inbox_stream *stream,
                        const struct inbox_chunk *chunk) {
    if (chunk->taken == chunk->end)
        stream_advance(inbox, stream);
    if (inbox->ready.used > 1 && is_in(&inbox->ready, index_of(inbox, stream)))
        to_the_end(&inbox->ready, index_of(inbox, stream));
}

/* ---- streams ---- */

bool inbox_meet(struct inbox *inbox, uint32_t peer, uint64_t life, uint64_t from) {
    uint32_t index = inbox->stream_free;
    assert(life != 0 && peer < inbox->peer_count);
    if (inbox->of_peer[peer] != 0)
        return false;
    if (index != INBOX_NONE)
        inbox->stream_free = inbox->streams[index].next_free;
    else
        index = inbox->streams_used++;
    assert(index < inbox->stream_count);
    inbox->streams[index] =
        (struct inbox_stream){.life = life, .from = from, .peer = peer, .taking = INBOX_NONE};
    inbox->of_peer[peer] = index + 1;
    return true;
}

const struct inbox_stream *inbox_stream_of(const struct inbox *inbox, uint32_t peer) {
    return stream_of(inbox, peer);
}

void inbox_want(struct inbox *inbox, uint32_t peer, uint64_t grants) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL)
        return;
    stream->wanted = grants;
    set_in(&inbox->line, index_of(inbox, stream), wants(inbox, stream));
}

void inbox_peer_gone(struct inbox *inbox, uint32_t peer) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL)
        return;
    uint32_t index = index_of(inbox, stream);
    inbox->of_peer[peer] = 0;
    stream->wanted = 0;
    groups_leave(&inbox->line, index);
    uint32_t next;
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE; at = next) {
        next = groups_next(&inbox->owned, at);
        if (!inbox->chunks[at].closed)
            chunk_close(inbox, at);
        chunk_release(inbox, at);
    }
    stream->peer = INBOX_NONE;
    stream_advance(inbox, stream);
    stream_forget(inbox, stream);
}

/* ---- grants ---- */

static struct room_grant as_grant(const struct inbox *inbox, uint32_t index) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    return (struct room_grant){.place = chunk->place,
                               .secret = chunk->secret,
                               .chunk = index,
                               .end = chunk->end,
                               .keep = chunk->keep,
                               .called = chunk->called};
}

bool inbox_grant(struct inbox *inbox, uint64_t secret, uint32_t *peer_out,
                 struct room_grant *grant_out) {
    uint32_t index = groups_first(&inbox->line, 0);
    uint32_t free = groups_first(&inbox->owned, inbox->stream_count);
    if (index == INBOX_NONE || free == INBOX_NONE)
        return false;
    struct inbox_stream *stream = &inbox->streams[index];
    struct inbox_chunk *chunk = &inbox->chunks[free];
    *chunk = (struct inbox_chunk){.place = ++inbox->places,
                                  .secret = secret,
                                  .keep = inbox->kept < inbox->shape.chunk_count / 2};
    groups_join(&inbox->owned, free, index);
    inbox->free_count--;
    inbox->kept += chunk->keep;
    stream->open++;
    stream->last = chunk->place;
    stream->grants++;
    stream->chunks++;
    if (stream->taking == INBOX_NONE)
        stream->taking = free;
    to_the_end(&inbox->active, index);
    groups_leave(&inbox->line, index);
    set_in(&inbox->line, index, wants(inbox, stream));
    *peer_out = stream->peer;
    *grant_out = as_grant(inbox, free);
    return true;
}

/* The stream that is called next: those in the line are not idle, if they are there at all. */
static uint32_t next_called(const struct inbox *inbox) {
    uint32_t index = groups_first(&inbox->active, 0);
    while (index != INBOX_NONE && is_in(&inbox->line, index))
        index = groups_next(&inbox->active, index);
    return index != INBOX_NONE ? index : groups_first(&inbox->active, 0);
}

bool inbox_call(struct inbox *inbox, uint32_t *peer_out, struct room_grant *grant_out) {
    if (inbox->free_count > 0 || inbox->awaited >= inbox->line.used)
        return false;
    uint32_t index = next_called(inbox);
    if (index == INBOX_NONE)
        return false;
    uint32_t last = INBOX_NONE;
    for (uint32_t at = groups_first(&inbox->owned, index); at != INBOX_NONE;
         at = groups_next(&inbox->owned, at)) {
        struct inbox_chunk *chunk = &inbox->chunks[at];
        if (chunk->closed)
            continue;
        inbox->awaited += !chunk->called || chunk->round != inbox->round;
        inbox->called += !chunk->called;
        chunk->called = true;
        chunk->round = inbox->round;
        last = at;
    }
    groups_leave(&inbox->active, index);
    *peer_out = inbox->streams[index].peer;
    *grant_out = as_grant(inbox, last);
    return true;
}

bool inbox_again(struct inbox *inbox, uint32_t peer, uint64_t after, struct room_grant *grant_out) {
    const struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL)
        return false;
    uint32_t at = groups_first(&inbox->owned, index_of(inbox, stream));
    while (at != INBOX_NONE && (inbox->chunks[at].closed || inbox->chunks[at].place <= after))
        at = groups_next(&inbox->owned, at);
    if (at == INBOX_NONE)
        return false;
    *grant_out = as_grant(inbox, at);
    return true;
}

/* ---- messages ---- */

enum inbox_told inbox_tell(struct inbox *inbox, uint32_t peer, const struct room_told *told) {
    struct inbox_stream *stream = stream_of(inbox, peer);
    if (stream == NULL || told->place == 0 || told->place > stream->last ||
        told->chunk >= inbox->shape.chunk_count || told->end % ROOM_LINE != 0 ||
        told->end > inbox->shape.chunk_bytes)
        return INBOX_LIE;
    struct inbox_chunk *chunk = &inbox->chunks[told->chunk];
    if (chunk->place != told->place)
        return INBOX_OLD;
    uint32_t index = index_of(inbox, stream);
    if (groups_of(&inbox->owned, told->chunk) != index || (chunk->closed && told->end > chunk->end))
        return INBOX_LIE;
    if (chunk->closed || told->end < chunk->end || (told->end == chunk->end && !told->closed))
        return INBOX_OLD;
    chunk->end = told->end;
    if (told->closed)
        chunk_close(inbox, told->chunk);
    if (is_in(&inbox->active, index))
        to_the_end(&inbox->active, index);
    stream_advance(inbox, stream);
    if (told->closed)
        chunk_release(inbox, told->chunk);
    return INBOX_TOLD;
}

static size_t held_bit(const struct inbox *inbox, uint32_t chunk, uint32_t offset) {
    return (size_t)chunk * (inbox->shape.chunk_bytes / ROOM_LINE) + offset / ROOM_LINE;
}

/* Reads the head of the stream's next message. */
static bool read_head(const struct inbox *inbox, const uint8_t *memory, uint32_t index,
                      struct room_head *head_out) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    return room_head_decode(memory + (size_t)index * inbox->shape.chunk_bytes + chunk->taken,
                            room_mark(chunk->secret, chunk->taken), chunk->end - chunk->taken,
                            head_out) &&
           head_out->length <= inbox->shape.message_bytes_max;
}

static void hold(struct inbox *inbox, uint32_t index, uint32_t offset) {
    size_t bit = held_bit(inbox, index, offset);
    inbox->held[bit / 64] |= UINT64_C(1) << (bit % 64);
    inbox->chunks[index].held++;
}

/* Drops the rest of the chunk. */
static void spoil(struct inbox *inbox, uint32_t index) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    chunk->end = chunk->taken;
    if (!chunk->closed)
        chunk_close(inbox, index);
}

static enum inbox_taken take_next(struct inbox *inbox, const uint8_t *memory, uint32_t stream_index,
                                  struct inbox_message *message_out) {
    struct inbox_stream *stream = &inbox->streams[stream_index];
    uint32_t at = stream->taking;
    struct inbox_chunk *chunk = &inbox->chunks[at];
    struct room_head head = {0};
    bool good = read_head(inbox, memory, at, &head);
    *message_out = (struct inbox_message){.from = stream->from,
                                          .tag = head.tag,
                                          .place = chunk->place,
                                          .chunk = at,
                                          .offset = chunk->taken,
                                          .length = head.length,
                                          .payload = chunk->taken + room_payload(head.length)};
    if (good && !head.skip)
        hold(inbox, at, chunk->taken);
    if (good)
        chunk->taken += room_bytes(head.length);
    else
        spoil(inbox, at);
    stream_next(inbox, stream, chunk);
    if (!good)
        return INBOX_BAD;
    return head.skip ? INBOX_EMPTY : INBOX_MESSAGE;
}

enum inbox_taken inbox_take(struct inbox *inbox, const uint8_t *memory,
                            struct inbox_message *message_out) {
    enum inbox_taken taken = INBOX_EMPTY;
    for (uint32_t skips = 0; taken == INBOX_EMPTY && skips < INBOX_SKIPS; skips++) {
        uint32_t stream = groups_first(&inbox->ready, 0);
        if (stream == INBOX_NONE)
            break;
        taken = take_next(inbox, memory, stream, message_out);
    }
    return taken;
}

bool inbox_give_back(struct inbox *inbox, uint32_t chunk, uint64_t place, uint32_t offset) {
    if (chunk >= inbox->shape.chunk_count || offset % ROOM_LINE != 0 ||
        offset >= inbox->shape.chunk_bytes || place == 0 || inbox->chunks[chunk].place != place)
        return false;
    size_t bit = held_bit(inbox, chunk, offset);
    uint64_t mask = UINT64_C(1) << (bit % 64);
    if ((inbox->held[bit / 64] & mask) == 0)
        return false;
    inbox->held[bit / 64] &= ~mask;
    inbox->chunks[chunk].held--;
    chunk_release(inbox, chunk);
    return true;
}

/* ---- invariants ---- */

static const char *verify_chunk(const struct inbox *inbox, uint32_t index) {
    const struct inbox_chunk *chunk = &inbox->chunks[index];
    uint32_t owner = groups_of(&inbox->owned, index);
    uint32_t held = 0;
    for (uint32_t offset = 0; offset < inbox->shape.chunk_bytes; offset += ROOM_LINE) {
        size_t bit = held_bit(inbox, index, offset);
        held += (uint32_t)(inbox->held[bit / 64] >> (bit % 64)) & 1;
    }
    if (held != chunk->held)
        return "held messages are not those of the bits";
    if (chunk->taken > chunk->end || chunk->end > inbox->shape.chunk_bytes)
        return "more was taken than was told";
    if (owner == inbox->stream_count)
        return chunk->place == 0 && held == 0 ? NULL : "a free chunk is in use";
    if (owner == INBOX_NONE || chunk->place == 0 || chunk->place > inbox->streams[owner].last)
        return "a chunk is nobody's";
    if (chunk->closed && (chunk->keep || chunk->called))
        return "a closed chunk is kept";
    if (chunk->closed && chunk->taken == chunk->end && held == 0)
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
    return stream->life != 0 || chunks == 0 ? NULL : "a stream that is free has chunks";
}

const char *inbox_verify(const struct inbox *inbox) {
    const struct groups *lists[] = {&inbox->owned, &inbox->line, &inbox->ready, &inbox->active};
    const char *wrong = NULL;
    uint32_t free = 0, kept = 0, called = 0, awaited = 0;
    for (size_t i = 0; wrong == NULL && i < sizeof(lists) / sizeof(lists[0]); i++)
        wrong = groups_verify(lists[i]);
    for (uint32_t i = 0; wrong == NULL && i < inbox->shape.chunk_count; i++) {
        wrong = verify_chunk(inbox, i);
        free += inbox->chunks[i].place == 0;
        kept += inbox->chunks[i].keep;
        called += inbox->chunks[i].called;
        awaited += inbox->chunks[i].called && inbox->chunks[i].round == inbox->round;
    }
    for (uint32_t i = 0; wrong == NULL && i < inbox->streams_used; i++)
        wrong = inbox->streams[i].life != 0 ? verify_stream(inbox, i) : NULL;
    if (wrong == NULL && (free != inbox->free_count || kept != inbox->kept ||
                          called != inbox->called || awaited != inbox->awaited))
        wrong = "chunks are not counted";
    if (wrong == NULL && kept > inbox->shape.chunk_count / 2)
        wrong = "more than half may be kept";
    return wrong;
}
