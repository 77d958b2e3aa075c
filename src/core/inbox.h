/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.h: the receiver's side of an inbox: whose each chunk is, what has arrived, what the
 * application has.
 *
 * Owns the grants: when a sender gets a chunk, when it is asked to close one, when a chunk is free
 * again; and the heads of messages. A *stream* is what one sender has in one inbox. Leaves to
 * others how messages of the two engines travel, their payloads, who a sender is, and when nothing
 * of it can write any more. Notes and words of a sender come once; notes of messages come in any
 * order, and words in the order in which they were said.
 *
 *     FREE ──inbox_grant──► OPEN ──full, shut, sender gone──► CLOSED ──all given back──► FREE
 *
 * Streams that want chunks stand in a line. The first gets one and goes to the end, so that a crowd
 * shares what there is. A stream that has as many as one peer may have leaves the line until one of
 * its chunks is free.
 *
 * Half of the chunks, or the only one, may be *kept* by senders that have nothing to send: the
 * grant says so. All others are closed by their senders as soon as these are idle. When streams
 * wait and nothing is free, senders are *called* to close what they have, the longest idle first,
 * and those last that wait themselves. A sender that does not answer has its chunks until it does,
 * or is given up.
 *
 * A sender that is watched finds its chunk granted again as soon as that is free (inbox_renew), on
 * the line of its watch: a stream that goes on needs no words. It may not have looked when there is
 * a word to say, which may follow from that grant; so the grant is said by a word then, too.
 *
 * A loan lies in memory of its sender, which is its stream's: the caller keeps what it knows of
 * that by the number of the stream, and is told when the stream is over (stream_over). No message
 * of it is held then.
 *
 * Direct messages have no note: each is found when the one in front of it has been taken, or when
 * its stream is looked at. INBOX_WATCH streams at most are *watched*: those that told us to look
 * last. inbox_look looks at them again and again. Before nobody does so for a while, inbox_rest has
 * to end that: behind it, their senders tell us again.
 *
 * A sender that is given up *leaves* first: what it told until then is delivered, what it tells
 * still is, too, and its peer may begin another stream. Behind inbox_quiet nothing more comes of
 * it: messages that arrived behind one that never did are delivered then, and direct ones are found
 * wherever they are.
 *
 * Invariants (inbox_verify):
 *  - each chunk is free, or in exactly one stream, in the order of the places;
 *  - of a stream, messages are taken in the order of {place, offset}, none that has not arrived;
 *  - a message is given back once: a bit a line says what has arrived, and what is held;
 *  - a stream in the line wants a chunk and may have one.
 */
#ifndef WEIR_INBOX_H
#define WEIR_INBOX_H

#include <stddef.h>

#include "groups.h"
#include "room.h"

#define INBOX_NONE GROUPS_NONE

enum {
    INBOX_WATCH = 16,       /* streams that are watched at once, at most */
    INBOX_WATCH_IDLE = 4096 /* looks in vain after which another may be watched instead */
};

struct inbox_chunk {
    uint64_t place; /* of its grant; 0: free */
    uint64_t secret;
    uint32_t end;     /* closed: filled as far as this */
    uint32_t taken;   /* handed out so far */
    uint32_t arrived; /* messages that are here and not handed out */
    uint32_t held;    /* messages taken and not given back */
    uint32_t round;   /* of the call that it is awaited in */
    bool closed;      /* end is the last word */
    bool keep, called;
    bool said;    /* its sender was told of the grant, */
    bool renewed; /* by a renewal */
    bool yielded; /* its sender gave it up empty, or since it was called */
    bool spoiled; /* a head was wrong: nothing more is taken from it, and its sender has it still */
};

struct inbox_stream {
    bool used;
    bool met;         /* its sender was told where the memory is */
    bool ended;       /* ...and that the inbox is closed */
    uint32_t peer;    /* INBOX_NONE: its sender is gone, or going */
    uint32_t leaving; /* the peer that it was of, until that is quiet; INBOX_NONE */
    uint64_t from;    /* the user's, of a sender that is gone or going */
    uint64_t grants;
    uint64_t first_secret; /* of the first grant, */
    uint64_t first_place;  /* and its place */
    uint64_t shuts;        /* so many of its places its sender said that it has shut */
    uint64_t wanted;       /* its sender wants to have had so many grants */
    uint64_t call;         /* its sender is to be told that all places up to this are called; 0 */
    uint64_t now;          /* its sender is to be told that there is no room, with this number; 0 */
    uint32_t chunks;
    uint32_t open;   /* of them */
    uint32_t taking; /* the chunk of the next message; INBOX_NONE: the next that is granted */
    uint32_t idle;   /* watched: looks in vain since its last message */
    uint32_t next_free;
};

struct inbox {
    struct room_shape shape;
    uint8_t *memory; /* the chunks, and their watches */
    bool direct;     /* senders may write direct messages */
    /* A full barrier, for senders too: between the watches that are taken back, and the last look.
     * NULL: one thread does it all. */
    void (*order)(void *self);
    /* This stream is over: its number may be another's. NULL: nobody has to know. */
    void (*stream_over)(void *self, uint32_t stream);
    void *self; /* of both */
    struct inbox_chunk *chunks;
    struct inbox_stream *streams;
    uint64_t *here;    /* a bit for each line of each chunk: a message that was not taken */
    uint64_t *held;    /* likewise: one that was, and was not given back */
    uint32_t *of_peer; /* the stream of each peer, plus 1; 0 */
    uint32_t peer_count, stream_count;
    uint32_t stream_free, streams_used;
    struct groups owned;   /* chunks, of each stream by place; the last group: free ones */
    struct groups line;    /* one group: streams that wait for a chunk */
    struct groups ready;   /* one group: streams with a message to take */
    struct groups active;  /* one group: streams that may be called, the longest idle first */
    struct groups met;     /* one group: streams whose senders are there */
    struct groups going;   /* one group: streams whose senders leave, and are not quiet */
    struct groups watched; /* one group: streams that are watched */
    uint64_t first_place;  /* all of this inbox are above it */
    uint64_t places;       /* the last that was granted */
    uint32_t free_count;
    uint32_t kept;    /* chunks that are open, and may be kept */
    uint32_t called;  /* chunks that are open, and called */
    uint32_t awaited; /* of those, the ones that were called in this round */
    uint32_t round;
    uint32_t held_count; /* messages taken and not given back */
    uint32_t freed;      /* the chunk that came free last and may be renewed; INBOX_NONE */
    uint32_t freed_of;   /* for this stream */
    bool closed;
};

/* A message that was taken. */
struct inbox_message {
    uint32_t peer; /* its sender's; INBOX_NONE: that is gone or going, and `from` is what
                    * inbox_leave was given */
    uint64_t from;
    uint64_t tag;
    uint64_t place; /* these three give it back */
    uint32_t chunk, offset;
    uint32_t length;
    uint32_t payload; /* where it begins in the chunk */
    uint32_t stream;
    bool is_loan;          /* it is not in the chunk, */
    struct room_loan loan; /* but here, as its sender says: whatever that is */
};

/* The next word for a sender. */
enum inbox_saying {
    INBOX_SAY_NOTHING,
    INBOX_SAY_MEET,
    INBOX_SAY_GRANT,
    INBOX_SAY_CALL,
    INBOX_SAY_FULL,
    INBOX_SAY_CLOSED
};

/* Bits: one for each line of each chunk. */
static inline size_t inbox_bit(const struct inbox *inbox, uint32_t chunk, uint32_t offset) {
    return (size_t)chunk * (inbox->shape.chunk_bytes / ROOM_LINE) + offset / ROOM_LINE;
}
static inline bool inbox_bit_get(const uint64_t *bits, size_t bit) {
    return (bits[bit / 64] >> (bit % 64) & 1) != 0;
}
static inline void inbox_bit_set(uint64_t *bits, size_t bit, bool set) {
    if (set)
        bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    else
        bits[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

/* How many streams there can be. */
uint32_t inbox_streams(const struct room_shape *shape, uint32_t peers);
/* The memory that inbox_init needs besides the chunks themselves. Of peers that were never met
 * nothing is written. 0: more than there can be. */
size_t inbox_bytes(const struct room_shape *shape, uint32_t peers);
/* tables: inbox_bytes(), zeroed, aligned for a uint64_t. memory: room_memory(), zeroed, aligned to
 * ROOM_LINE. direct: senders may write direct messages. places: those up to this were granted by
 * inboxes before. */
void inbox_init(struct inbox *inbox, void *tables, uint8_t *memory, const struct room_shape *shape,
                uint32_t peers, bool direct, uint64_t places);

/* Whether the peer has a stream here. */
bool inbox_knows(const struct inbox *inbox, uint32_t peer);
/* Whose the stream is; INBOX_NONE: its sender is gone, or going. */
static inline uint32_t inbox_sender(const struct inbox *inbox, uint32_t stream) {
    return inbox->streams[stream].peer;
}
/* The number of its stream, less than stream_count; INBOX_NONE: it has none. */
uint32_t inbox_stream(const struct inbox *inbox, uint32_t peer);
/* The next peer with a stream here, behind this one, or the first, behind INBOX_NONE; INBOX_NONE:
 * no more. */
uint32_t inbox_peer_after(const struct inbox *inbox, uint32_t peer);

/* The sender wants to have had so many grants in all, counted from the first one of its stream,
 * which begins here unless it has. It may want less than before. */
void inbox_want(struct inbox *inbox, uint32_t peer, uint64_t grants);

/* Whether somebody waits for a chunk that is free. */
static inline bool inbox_may_grant(const struct inbox *inbox) {
    return inbox->line.used > 0 && inbox->free_count > 0 && !inbox->closed;
}
/* The peer could use another chunk before it has to ask for one. Whether one that may be kept can
 * be spared: nobody waits. */
bool inbox_may_grant_ahead(const struct inbox *inbox, uint32_t peer);
/* Gives it that; the peer has to be told. Only after inbox_may_grant_ahead. */
void inbox_grant_ahead(struct inbox *inbox, uint32_t peer, uint64_t secret);
/* Whether the chunk that came free last goes to its stream again: its sender is at it, nobody
 * waits, and a chunk that may be kept can be spared. Clears `freed`. */
bool inbox_may_renew(struct inbox *inbox);
/* Gives it that, by a renewal; its peer has not to be told. Only right behind inbox_may_renew. */
void inbox_renew(struct inbox *inbox, uint64_t secret);
/* Gives a chunk to the first in the line; *peer_out has to be told (inbox_say). secret: random.
 * False: nobody waits, or nothing is free. */
bool inbox_grant(struct inbox *inbox, uint64_t secret, uint32_t *peer_out);

/* Streams wait, and nothing is free: the next sender is called to close what it has, and has to be
 * told. False: nobody is to be called, or as many chunks as there are streams in the line are
 * awaited. */
bool inbox_call(struct inbox *inbox, uint32_t *peer_out);

/* The senders that were called are not waited for any longer: others may be called. */
static inline void inbox_call_on(struct inbox *inbox) {
    inbox->awaited = 0;
    inbox->round++;
}

/* The sender has messages that must not wait: it has to be told with this number, which is not 0,
 * if it wants more than it was granted. */
void inbox_now(struct inbox *inbox, uint32_t peer, uint64_t number);

/* The next word for the peer; it counts as told then. GRANT: *grant_out. CALL:
 * grant_out->place is the last that is called. FULL: grant_out->place is the number that inbox_now
 * was given last; all that it was granted was told before. */
enum inbox_saying inbox_say(struct inbox *inbox, uint32_t peer, struct room_grant *grant_out);

enum inbox_told { INBOX_TOLD, INBOX_OLD, INBOX_LIE };
/* A message of the peer's is here, of which a note came; its head is written. OLD: it, or its end,
 * was told before, or its place is over. LIE: it cannot be there: its sender did not keep to the
 * rules, and its session should end. */
enum inbox_told inbox_arrive(struct inbox *inbox, uint32_t peer, const struct room_note *note);
/* The peer puts nothing more there. */
enum inbox_told inbox_shut(struct inbox *inbox, uint32_t peer, const struct room_shut *shut);

/* The peer says that there are direct messages of its. It is watched from now on, if there is a
 * watch left. */
void inbox_told_to_look(struct inbox *inbox, uint32_t peer);
/* Looks for direct messages of the streams that are watched. */
void inbox_look(struct inbox *inbox);
/* Before nobody looks for a while: takes all watches back. Behind it, and behind a full barrier for
 * senders too, inbox_rest looks for the last time. True: there was a message that was not known of.
 */
void inbox_unwatch(struct inbox *inbox);
bool inbox_rest(struct inbox *inbox);

enum { INBOX_SKIPS = 64 };
enum inbox_taken { INBOX_EMPTY, INBOX_MESSAGE, INBOX_BAD };
/* The next message, of streams in turns. EMPTY: there is none, or INBOX_SKIPS
 * that are to be skipped were passed over, and more may be there. BAD: a head was written over. The
 * rest of its chunk is dropped, and what still comes there, and *message_out says whose (peer,
 * place, chunk) it was. */
enum inbox_taken inbox_take(struct inbox *inbox, struct inbox_message *message_out);

/* The shortest way to direct messages, of the stream that is watched and has its turn: its number,
 * if its next message is here, nothing that was found before waits in any stream, and nothing else
 * is to be done about it. INBOX_NONE: inbox_take finds out. */
uint32_t inbox_next_direct(struct inbox *inbox);
/* Right behind that: takes from its chunk as long as that is direct messages with nothing to do but
 * to hand them out, as the application gets them, and returns how many, up to max. 0: inbox_take
 * finds out. from: the handle of its sender; handle: of this inbox. */
uint32_t inbox_take_direct(struct inbox *inbox, uint32_t stream, weir_peer from, weir_inbox handle,
                           weir_message *messages, uint32_t max);

/* Where the application gives a message back. */
static inline uint64_t inbox_spot(uint32_t chunk, uint32_t offset) {
    return (uint64_t)chunk << 32 | offset;
}
static inline uint32_t inbox_spot_chunk(uint64_t spot) {
    return (uint32_t)(spot >> 32);
}
static inline uint32_t inbox_spot_offset(uint64_t spot) {
    return (uint32_t)spot;
}

/* messages: the one that was taken last, as the application gets it. Takes what is right behind it
 * in its chunk, as long as that is direct messages with nothing to do but to hand them out, to the
 * places behind it; returns how many, up to max. Other streams have no turn meanwhile. */
uint32_t inbox_take_next(struct inbox *inbox, weir_message *messages, uint32_t max);

/* Frees a chunk if it is closed, and all of its messages were given back. */
void inbox_release(struct inbox *inbox, uint32_t index);

/* Where a message that is held is, if it is a loan; only the fields of a loan are valid, and its
 * sender may have changed them since. False: it is none, or not held. */
bool inbox_loan(const struct inbox *inbox, uint32_t chunk, uint64_t place, uint32_t offset,
                struct inbox_message *message_out);
/* The bit of a message that is held; SIZE_MAX: it is not. Of free chunks none is. */
static inline size_t inbox_held_bit(const struct inbox *inbox, uint32_t chunk, uint64_t place,
                                    uint32_t offset) {
    if (chunk >= inbox->shape.chunk_count || offset % ROOM_LINE != 0 ||
        offset >= inbox->shape.chunk_bytes || inbox->chunks[chunk].place != place)
        return SIZE_MAX;
    size_t bit = inbox_bit(inbox, chunk, offset);
    return inbox_bit_get(inbox->held, bit) ? bit : SIZE_MAX;
}
/* False: this message is not held (any more). */
static inline bool inbox_give_back(struct inbox *inbox, uint32_t index, uint64_t place,
                                   uint32_t offset) {
    struct inbox_chunk *chunk = &inbox->chunks[index];
    size_t bit = inbox_held_bit(inbox, index, place, offset);
    if (bit == SIZE_MAX)
        return false;
    inbox_bit_set(inbox->held, bit, false);
    inbox->held_count--;
    if (--chunk->held == 0 && chunk->closed)
        inbox_release(inbox, index);
    return true;
}

/* Likewise, several of the same grant, from the front: stops at one that is of another, or not held
 * (any more). Returns how many. */
uint32_t inbox_give_back_many(struct inbox *inbox, const weir_message *messages, uint32_t count);

/* Nothing is granted or taken any more: each sender is told, and has to say that it leaves. */
static inline void inbox_close(struct inbox *inbox) {
    inbox->closed = true;
}
/* Closed, and nothing can be written there, or is held: its memory may go. */
static inline bool inbox_is_over(const struct inbox *inbox) {
    return inbox->closed && inbox->held_count == 0 && inbox->met.used == 0 &&
           inbox->going.used == 0;
}
/* Whether MEET is the next that the peer is told. */
bool inbox_meets(const struct inbox *inbox, uint32_t peer);

/* The peer is given up; from: what its messages carry from now on. */
void inbox_leave(struct inbox *inbox, uint32_t peer, uint64_t from);
/* Nothing comes any more of what the peer began before it left. */
void inbox_quiet(struct inbox *inbox, uint32_t peer);

/* NULL, or a sentence about what is wrong. Looks at everything. */
const char *inbox_verify(const struct inbox *inbox);

#endif
