/* SPDX-License-Identifier: Apache-2.0 */
/* room.h: the memory of an inbox, and the messages in it.
 *
 * An inbox is memory of its receiver, in chunks of one size. A chunk is *granted* to one sender at
 * a time, which fills it from the front, one message behind the other:
 *
 *     chunk    | head payload | head payload | ...               free |
 *              0              ^ offset                  used ^        ^ chunk_bytes
 *
 * Each grant has a *place*: a number that no other grant of the receiver has, before or after.
 * {place, offset} names a message for good. A sender fills its places in their order, so places and
 * offsets are the order of its messages. A payload is written by the sender, or comes with the
 * *note* that tells the receiver of the message; the head is the receiver's. A message that was put
 * and never comes is told of as one that is to be *skipped*. When nothing more is put in a place,
 * the sender *shuts* it, and says how far it is filled.
 *
 * A sender whose processor reaches that memory (post_direct in ports.h) needs no note. It writes
 * the head itself, behind the payload and its mark last of all: a *direct* message. Its receiver
 * finds it where the next message has to be. Behind the chunks there is a *watch* for each, a line
 * that the receiver writes: the place of a grant while its marks are looked for again and again,
 * else 0. A sender that finds no watch tells the receiver to look. On the same line the receiver
 * says that it grants the chunk again to the sender that had it, without a word: a *renewal*.
 *
 *     chunk 0 | chunk 1 | ... | watch 0 | watch 1 | ...
 *
 * The payload of a direct message may also stay where it is, in memory of the sender's that the
 * receiver reads: a *loan* (loans.h). Then the message takes one line, which says where it is.
 *
 * Owns the head's bytes, the sizes that follow from a message's length, and the shape of an inbox.
 * A head is little-endian, at the front of a line of its own:
 *
 *      0  mark 8    the secret of the grant plus the offset
 *      8  length 4  of the payload
 *     12  kind 4     0: a message. 1: none, which is skipped. 2: a loan
 *     16  tag 8
 *     24  payload, if it is ROOM_NEAR bytes at most; a longer one is on the lines that follow.
 *         Of a loan, on this line: its offset 8, round 8, index 4, zero 4
 *
 * The line of a watch, in the receiver's own byte order, which its senders share:
 *
 *      0  watch 8    the place of a grant whose marks are looked for, else 0
 *      8  number 8   of a renewal, written behind the rest of it: the secret of the first grant of
 *                    this sender, plus the grants that it has had with this one
 *     16  place 8
 *     24  secret 8
 *     32  keep 8     0 or 1
 *
 * A receiver lends all chunks to all of its senders alike, so a sender that cheats can write into
 * the messages of others, and one that is given up too early still does: a grant is over only when
 * nothing of its sender can write any more. A head that was written over has another mark, since
 * secrets are random. */
#ifndef WEIR_ROOM_H
#define WEIR_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire_data.h"

enum {
    ROOM_LINE = 64, /* messages begin at multiples of it */
    ROOM_HEAD = 24, /* the bytes of a head in front of a near payload */
    ROOM_NEAR = ROOM_LINE - ROOM_HEAD,
    ROOM_LOAN = 24,                 /* the bytes that say where a loan is */
    ROOM_CHUNK_BYTES = 65536,       /* a chunk has at most so many, */
    ROOM_CHUNK_MESSAGES = 4,        /* or so many messages, */
    ROOM_CHUNK_BYTES_LONG = 262144, /* in as many bytes; or one message if that is longer */
    ROOM_USUAL_BYTES = 1 << 20,     /* of many peers together, where nothing else is asked, */
    ROOM_USUAL_LONG = 64 << 20,     /* of one peer's long messages, */
    ROOM_USUAL_ALL = 256 << 20,     /* and of all peers' */
    ROOM_PEER_CHUNKS = 2,           /* at least, of one peer, if its messages are as many */
    ROOM_PLACES = 16,               /* that a sender has, shut ones that it has not told of too */
    ROOM_UNASKED = ROOM_PLACES / 2, /* with so many it is granted none that it did not ask for */
    ROOM_LENGTH_MAX = 1 << 30,      /* of a message */
    ROOM_CHUNKS_MAX = 1 << 20
};

/* A grant, as its sender is told of it. */
struct room_grant {
    uint64_t place;
    uint64_t secret;
    uint32_t chunk;
    bool keep; /* the sender may keep it while it has nothing to send */
};

/* A place in which nothing more is put. */
struct room_shut {
    uint64_t place;
    uint32_t chunk;
    uint32_t end; /* filled as far as this */
};

/* The note of a message, for its receiver: the payload is in place, or comes with this. */
struct room_note {
    uint64_t place;
    uint64_t tag;
    uint32_t inbox;
    uint32_t chunk, offset;
    uint32_t length;
    bool skip; /* it will never come */
};

struct room_head {
    uint64_t mark;
    uint64_t tag;
    uint32_t length;
    bool skip;
    bool loan;
};

/* Where a loan is in the memory of its sender, and what gives it back (loans.h). */
struct room_loan {
    uint64_t offset;
    uint64_t round;
    uint32_t index;
};

/* The sizes of an inbox. */
struct room_shape {
    uint32_t message_bytes_max;
    uint32_t chunk_bytes;
    uint32_t chunk_count;
    uint32_t peer_chunks; /* that one peer may have */
};

/* The bytes that a message takes in a chunk. length: ROOM_LENGTH_MAX at most. */
static inline uint32_t room_bytes(uint32_t length) {
    uint32_t far = (length + ROOM_LINE - 1) & ~(uint32_t)(ROOM_LINE - 1);
    return length <= ROOM_NEAR ? ROOM_LINE : ROOM_LINE + far;
}

/* The bytes of a chunk that the message of this head takes. */
static inline uint32_t room_taken(const struct room_head *head) {
    return head->loan ? ROOM_LINE : room_bytes(head->length);
}

/* Where the payload begins, behind the head's beginning. */
static inline uint32_t room_payload(uint32_t length) {
    return length <= ROOM_NEAR ? ROOM_HEAD : ROOM_LINE;
}

static inline uint64_t room_mark(uint64_t secret, uint32_t offset) {
    return secret + offset;
}

/* The memory of an inbox, in bytes: its chunks, and their watches. */
static inline uint64_t room_memory(uint32_t chunk_bytes, uint32_t chunk_count) {
    return ((uint64_t)chunk_bytes + ROOM_LINE) * chunk_count;
}

/* Where the watch of a chunk is in it. */
static inline uint64_t room_watch(uint32_t chunk_bytes, uint32_t chunk_count, uint32_t chunk) {
    return (uint64_t)chunk_bytes * chunk_count + (uint64_t)ROOM_LINE * chunk;
}

/* A renewal, as it lies behind the watch. */
enum { ROOM_RENEWAL_WORDS = 4 };
static inline uint64_t room_renewal_number(uint64_t first_secret, uint64_t grants) {
    return first_secret + grants;
}
/* line: the watch's. All but the number is for its sender alone, and is not there before. */
static inline void room_renewal_write(_Atomic uint64_t *line, uint64_t number,
                                      const struct room_grant *grant) {
    atomic_store_explicit(&line[2], grant->place, memory_order_relaxed);
    atomic_store_explicit(&line[3], grant->secret, memory_order_relaxed);
    atomic_store_explicit(&line[4], grant->keep, memory_order_relaxed);
    atomic_store_explicit(&line[1], number, memory_order_release);
}
/* words: the line's, behind the watch, the first read before the rest. False: it is not this
 * renewal. */
static inline bool room_renewal_read(const uint64_t words[ROOM_RENEWAL_WORDS], uint64_t number,
                                     uint32_t chunk, struct room_grant *grant_out) {
    *grant_out = (struct room_grant){words[1], words[2], chunk, words[3] != 0};
    return words[0] == number;
}

enum { ROOM_HEAD_WORDS = ROOM_HEAD / 8 };

/* The head, a word behind the other, as it lies in memory. */
static inline void room_head_words(const struct room_head *head, uint64_t words[ROOM_HEAD_WORDS]) {
    words[0] = wire_data_le64(head->mark);
    words[1] = wire_data_le64(head->length | (uint64_t)(head->loan ? 2 : head->skip) << 32);
    words[2] = wire_data_le64(head->tag);
}

/* Writes ROOM_HEAD bytes. */
static inline void room_head_encode(const struct room_head *head, uint8_t *out) {
    uint64_t words[ROOM_HEAD_WORDS];
    room_head_words(head, words);
    memcpy(out, words, sizeof(words));
}

/* Whether a message was marked there. Acquire: if so, all of it is there. in: aligned for a
 * uint64_t. */
static inline bool room_is_marked(const uint8_t *in, uint64_t mark) {
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)in;
    return atomic_load_explicit(from, memory_order_acquire) == wire_data_le64(mark);
}

/* Whether the message that is marked there is no loan, and not skipped. */
static inline bool room_is_plain(const uint8_t *in) {
    const volatile uint64_t *from = (const volatile void *)in;
    return wire_data_le64(from[1]) >> 32 == 0;
}

/* Reads what a sender wrote, each word once, since it may change meanwhile. in: aligned for a
 * uint64_t. False: it is no head of this mark, or its message does not fit in `room` bytes. */
static inline bool room_head_decode(const uint8_t *in, uint64_t mark, uint32_t room,
                                    struct room_head *head_out) {
    const volatile uint64_t *from = (const volatile void *)in;
    if (!room_is_marked(in, mark))
        return false;
    const uint64_t words[2] = {from[1], from[2]};
    uint32_t length = (uint32_t)wire_data_le64(words[0]);
    uint32_t kind = (uint32_t)(wire_data_le64(words[0]) >> 32);
    if (kind > 2 || length > ROOM_LENGTH_MAX || (kind == 2 ? ROOM_LINE : room_bytes(length)) > room)
        return false;
    *head_out = (struct room_head){mark, wire_data_le64(words[1]), length, kind == 1, kind == 2};
    return true;
}

/* Likewise, only of a message that is no loan and not skipped, of up to `most` bytes. */
static inline bool room_plain_decode(const uint8_t *in, uint64_t mark, uint32_t most,
                                     uint32_t *length_out, uint64_t *tag_out) {
    const volatile uint64_t *from = (const volatile void *)in;
    if (!room_is_marked(in, mark))
        return false;
    uint64_t word = wire_data_le64(from[1]);
    *tag_out = wire_data_le64(from[2]);
    *length_out = (uint32_t)word;
    return word <= most; /* the kind is above the length */
}

/* Writes ROOM_LOAN bytes, which are the payload of a loan's line. */
static inline void room_loan_encode(const struct room_loan *loan, uint64_t words[3]) {
    words[0] = wire_data_le64(loan->offset);
    words[1] = wire_data_le64(loan->round);
    words[2] = wire_data_le64(loan->index);
}

/* Reads what a sender wrote; in: the head's line. */
static inline void room_loan_decode(const uint8_t *in, struct room_loan *loan_out) {
    const volatile uint64_t *from = (const volatile void *)(in + ROOM_HEAD);
    const uint64_t words[3] = {from[0], from[1], from[2]};
    *loan_out = (struct room_loan){.offset = wire_data_le64(words[0]),
                                   .round = wire_data_le64(words[1]),
                                   .index = (uint32_t)wire_data_le64(words[2])};
}

/* How many of so long messages a peer has room for where nothing else is asked: sixteen, or as many
 * as a chunk has, or as have 64 MiB of payload, but two. */
static inline uint32_t room_usual(uint32_t message_bytes_max) {
    enum { FEW = 16 };
    uint32_t fit = ROOM_CHUNK_BYTES / room_bytes(message_bytes_max);
    if (fit > FEW)
        return fit;
    fit = ROOM_USUAL_LONG / (message_bytes_max > 0 ? message_bytes_max : 1);
    return fit < ROOM_PEER_CHUNKS ? ROOM_PEER_CHUNKS : fit < FEW ? fit : FEW;
}

/* How many peers, with so many messages each, have room at once where nothing else is asked: four,
 * or up to sixteen as long as that takes 1 MiB at most, or as many as have 256 MiB of payload, but
 * one. A crowd fills its chunks side by side, and so empties them at nearly the same time: then
 * nothing is under way until its next grants have come and gone, and with little room that is a
 * large part of each round. */
static inline uint32_t room_usual_peers(uint32_t message_bytes_max, uint32_t peer_messages) {
    enum { LEAST = 4, MOST = 16 };
    uint64_t fit = ROOM_USUAL_BYTES / ((uint64_t)room_bytes(message_bytes_max) * peer_messages);
    uint64_t payload = (uint64_t)message_bytes_max * peer_messages;
    uint64_t all = ROOM_USUAL_ALL / (payload > 0 ? payload : 1);
    if (fit > LEAST)
        return fit < MOST ? (uint32_t)fit : MOST;
    return all > LEAST ? LEAST : all > 0 ? (uint32_t)all : 1;
}

/* The shape of an inbox for messages of up to message_bytes_max bytes, with room for peer_messages
 * of that length of one peer, and for `messages` of all peers together. A chunk is one peer's:
 * peers whose messages do not fill their chunks use more room than their messages need. False: a
 * number of messages is 0, the length is above ROOM_LENGTH_MAX, or more than ROOM_CHUNKS_MAX chunks
 * would be needed. */
static inline bool room_shape(uint32_t message_bytes_max, uint32_t peer_messages, uint32_t messages,
                              struct room_shape *shape_out) {
    if (message_bytes_max > ROOM_LENGTH_MAX || peer_messages == 0 || messages == 0)
        return false;
    uint32_t bytes = room_bytes(message_bytes_max);
    uint32_t each = ROOM_CHUNK_BYTES / bytes;
    if (each < ROOM_CHUNK_MESSAGES)
        each = bytes < ROOM_CHUNK_BYTES_LONG / ROOM_CHUNK_MESSAGES ? ROOM_CHUNK_MESSAGES
                                                                   : ROOM_CHUNK_BYTES_LONG / bytes;
    each = each == 0 ? 1 : each;
    if (each > peer_messages / ROOM_PEER_CHUNKS)
        each = peer_messages < ROOM_PEER_CHUNKS ? 1 : peer_messages / ROOM_PEER_CHUNKS;
    uint32_t peer_chunks = peer_messages / each + (peer_messages % each != 0);
    uint32_t chunks = messages / each + (messages % each != 0);
    if (chunks > ROOM_CHUNKS_MAX || peer_chunks > ROOM_CHUNKS_MAX)
        return false;
    *shape_out = (struct room_shape){message_bytes_max, bytes * each,
                                     chunks > peer_chunks ? chunks : peer_chunks, peer_chunks};
    return true;
}

#endif
