/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.h: the receiver's side of an inbox: whose each chunk is, what has arrived, what the
 * application has.
 *
 * Owns the grants: when a sender gets a chunk, when it is asked to close one, when a chunk is free
 * again. A *stream* is what one sender has in one inbox. Leaves to others how messages of the two
 * engines travel, the bytes themselves (but for the heads, which it reads), who a sender is, and
 * when a session with it is up.
 *
 *     FREE ──inbox_grant──► OPEN ──told closed, sender gone──► CLOSED ──all given back──► FREE
 *
 * Streams that want chunks stand in a line. The first gets one and goes to the end, so that a crowd
 * shares what there is. A stream that has as many as one peer may have leaves the line until one of
 * its chunks is free.
 *
 * Half of the chunks may be *kept* by senders that have nothing to send: the grant says so. All
 * others are closed by their senders as soon as these are idle. When streams wait and nothing is
 * free, senders are *called* to close what they have, the longest idle first, and those last that
 * wait themselves. A sender that does not answer has its chunks until it does, or is given up.
 *
 * Invariants (inbox_verify):
 *  - each chunk is free, or in exactly one stream, in the order of the places;
 *  - of a stream, messages are taken in the order of {place, offset}, never beyond what was told;
 *  - a message is given back once: a bit a line says what is held;
 *  - a stream in the line wants a chunk and may have one.
 */
#ifndef WEIR_INBOX_H
#define WEIR_INBOX_H

#include <stddef.h>

#include "groups.h"
#include "room.h"

#define INBOX_NONE GROUPS_NONE

struct inbox_chunk {
    uint64_t place; /* of its grant; 0: free */
    uint64_t secret;
    uint32_t end;   /* told so far */
    uint32_t taken; /* handed out so far */
    uint32_t held;  /* messages taken and not given back */
    uint32_t round; /* of the call that it is awaited in */
    bool closed;    /* end is the last word */
    bool keep, called;
};

struct inbox_stream {
    uint64_t life; /* the user's name for it; 0: this entry is free */
    uint64_t from; /* the user's, handed out with each message */
    uint64_t grants;
    uint64_t wanted; /* its sender wants to have had so many grants */
    uint64_t last;   /* the place of the latest; 0 */
    uint32_t peer;   /* INBOX_NONE: its sender is gone */
    uint32_t chunks;
    uint32_t open;   /* of them */
    uint32_t taking; /* the chunk of the next message; INBOX_NONE: the next that is granted */
    uint32_t next_free;
};

struct inbox {
    struct room_shape shape;
    struct inbox_chunk *chunks;
    struct inbox_stream *streams;
    uint64_t *held;    /* a bit for each line of each chunk */
    uint32_t *of_peer; /* the stream of each peer, plus 1; 0 */
    uint32_t peer_count, stream_count;
    uint32_t stream_free, streams_used;
    struct groups owned;  /* chunks, of each stream by place; the last group: free ones */
    struct groups line;   /* one group: streams that wait for a chunk */
    struct groups ready;  /* one group: streams with a message to take */
    struct groups active; /* one group: streams that may be called, the longest idle first */
    uint64_t places;      /* granted so far */
    uint32_t free_count;
    uint32_t kept;    /* chunks that are open, and may be kept */
    uint32_t called;  /* chunks that are open, and called */
    uint32_t awaited; /* of those, the ones that were called in this round */
    uint32_t round;
};

/* A message that was taken. */
struct inbox_message {
    uint64_t from; /* of its stream */
    uint64_t tag;
    uint64_t place; /* these three give it back */
    uint32_t chunk, offset;
    uint32_t length;
    uint32_t payload; /* where it begins in the chunk */
};

/* The memory that inbox_init needs besides the chunks themselves. Of peers that were never met
 * nothing is written. 0: more than there can be. */
size_t inbox_bytes(const struct room_shape *shape, uint32_t peers);
/* memory: inbox_bytes(), zeroed, aligned for a uint64_t. */
void inbox_init(struct inbox *inbox, void *memory, const struct room_shape *shape, uint32_t peers);

/* Begins the peer's stream. life: not 0, and no other stream's, so that a sender knows it from one
 * that there was before. False: it has one. */
bool inbox_meet(struct inbox *inbox, uint32_t peer, uint64_t life, uint64_t from);
/* The peer's stream; NULL: none. */
const struct inbox_stream *inbox_stream_of(const struct inbox *inbox, uint32_t peer);

/* The sender wants to have had so many grants in all, counted from the first one of its stream. It
 * may say so again, and may want less than before. */
void inbox_want(struct inbox *inbox, uint32_t peer, uint64_t grants);

/* The next grant, if somebody waits for one and a chunk is free. secret: random, for this one. */
bool inbox_grant(struct inbox *inbox, uint64_t secret, uint32_t *peer_out,
                 struct room_grant *grant_out);

/* Streams wait, and nothing is free: the next sender that is called to close what it keeps.
 * *grant_out is the last of its grants, and all up to that are called. False: nobody is to be
 * called, or as many chunks as there are streams in the line are awaited. */
bool inbox_call(struct inbox *inbox, uint32_t *peer_out, struct room_grant *grant_out);

/* The senders that were called are not waited for any longer: others may be called. */
static inline void inbox_call_on(struct inbox *inbox) {
    inbox->awaited = 0;
    inbox->round++;
}

/* The peer's first open grant behind the place `after`: what it is told again on a new session.
 * False: there is no other, and each place of that stream which is not among them is closed. Only
 * when nothing that was posted on the old session can write any more. */
bool inbox_again(struct inbox *inbox, uint32_t peer, uint64_t after, struct room_grant *grant_out);

enum inbox_told { INBOX_TOLD, INBOX_OLD, INBOX_LIE };
/* A sender tells how far it has filled a place. OLD: of a grant that is over, or less than before.
 * LIE: of one that the peer never had, or cannot have filled so: its session should end. */
enum inbox_told inbox_tell(struct inbox *inbox, uint32_t peer, const struct room_told *told);

enum { INBOX_SKIPS = 64 };
enum inbox_taken { INBOX_EMPTY, INBOX_MESSAGE, INBOX_BAD };
/* The next message, of streams in turns. memory: the chunks. EMPTY: there is none, or INBOX_SKIPS
 * that were taken back were passed over, and more may be there. BAD: a head is wrong. The rest of
 * its chunk is dropped, and *message_out says whose (from, place, chunk) it was: its sender did not
 * keep to the rules, or another wrote there, and its stream is to be ended (inbox_peer_gone). */
enum inbox_taken inbox_take(struct inbox *inbox, const uint8_t *memory,
                            struct inbox_message *message_out);

/* False: this message is not held (any more). */
bool inbox_give_back(struct inbox *inbox, uint32_t chunk, uint64_t place, uint32_t offset);

/* The peer is gone, and can write no more: messages that were told stay to be taken, and nothing
 * more comes. */
void inbox_peer_gone(struct inbox *inbox, uint32_t peer);

/* NULL, or a sentence about what is wrong. Looks at everything. */
const char *inbox_verify(const struct inbox *inbox);

#endif
