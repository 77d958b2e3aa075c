/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: the bytes of what the two sides of a stream of messages tell each other, and of what
 * engines tell each other about names.
 *
 * Owns the layout, and the checks that need no context. Leaves to others how words and notes travel
 * (several in one SEND, words or notes) and what they mean (inbox.h, outbox.h, published.h,
 * asked.h). Words about messages are of one inbox, by the number that peers name it by. Integers
 * are little-endian.
 *
 * A word begins with
 *
 *      0  kind 1    enum word_kind
 *      1  zero 1
 *      2  length 2  of the whole word
 *      4  inbox 4   0 in OPENED, and in words about names
 *
 * from the sender
 *     WANT     grants 8: so many in all since the stream began, which this may begin
 *     SHUT     place 8, chunk 4, end 4
 *     LEFT     nothing: it heard CLOSED, and writes no more
 *     LOOK     nothing: it has put direct messages there, and found no watch (room.h)
 *     AHEAD    nothing: its last place is half full, and it could use another, to keep
 *     POOL     a descriptor of the memory that its loans are in (loans.h)
 *     NOW      number 8: of its latest message that must not wait; is there room for what it wants?
 * from the receiver
 *     MEET     chunk bytes 4, longest message 4, a descriptor of the inbox's memory (wire.h)
 *     GRANT    place 8, secret 8, chunk 4 with WORD_KEEP
 *     CALL     place 8: all up to that are to be shut
 *     ABSENT   nothing: no inbox has this number
 *     OPENED   nothing: ask again for those that were absent
 *     CLOSED   nothing: the inbox was closed
 *     MAPPED   result 4: 0: that memory is read here; 1: not now; 2: never
 *     BACK     nothing: a loan was given back, and its sender waits for that
 *     FULL     number 8, that NOW had: there is none now, beyond what was granted
 * from an engine that asks for names
 *     LOOKUP   a name: what is it of?
 *     LIST     place 8: what is the first name at that place of the table, or behind it?
 * from the one that publishes them: the answers to these, and news
 *     NAMED    version 8, a descriptor: it is of this memory
 *     VALUE    version 8, bytes: it is of this value
 *     NOTHING  nothing: there is no such name
 *     LISTED   place 8 behind it, size 8 of the memory or value, kind 4, the name; zeros: no more
 *     CHANGED  hash 8: a name of this hash (XXH3_64bits, or 1 for 0) has changed; 0: any may have
 *
 * A note is WORD_NOTE_SIZE bytes, with which a payload may come; the message's tag is elsewhere:
 *
 *      0  place 8, chunk 4, offset 4
 *     16  length 4 of the payload, with WORD_SKIP
 *     20  inbox 4
 *
 * Notes that share a SEND have in front of each
 *
 *      0  length 2  of the note, with its payload
 *      2  tag 8     of the message
 */
#ifndef WEIR_WORDS_H
#define WEIR_WORDS_H

#include "published.h"
#include "room.h"

enum word_kind {
    WORD_WANT = 1,
    WORD_SHUT,
    WORD_LEFT,
    WORD_LOOK,
    WORD_AHEAD,
    WORD_POOL,
    WORD_NOW,
    WORD_MEET,
    WORD_GRANT,
    WORD_CALL,
    WORD_ABSENT,
    WORD_OPENED,
    WORD_CLOSED,
    WORD_MAPPED,
    WORD_BACK,
    WORD_FULL,
    WORD_LOOKUP,
    WORD_LIST,
    WORD_NAMED,
    WORD_VALUE,
    WORD_NOTHING,
    WORD_LISTED,
    WORD_CHANGED,
    WORD_KIND_END /* first value that is no kind */
};

enum { WORD_HEAD = 8, WORD_NOTE_SIZE = 24, WORD_NOTES_HEAD = 10 };
#define WORD_KEEP (UINT32_C(1) << 31) /* beside a chunk's number */
#define WORD_SKIP (UINT32_C(1) << 31) /* beside a length */

enum {
    WORD_SIZE_MAX = WORD_HEAD + 8 + WIRE_DESCRIPTOR_SIZE_MAX, /* of MEET */
    WORD_PAYLOAD_MAX = WEIR_NOTIFY_MAX - WORD_NOTE_SIZE       /* that comes with a note */
};
_Static_assert(WORD_HEAD + 8 + WEIR_VALUE_MAX <= WORD_SIZE_MAX, "so does VALUE");
_Static_assert(WORD_HEAD + 20 + WEIR_NAME_MAX <= WORD_SIZE_MAX, "and LISTED");
_Static_assert(WORD_SIZE_MAX <= WEIR_NOTIFY_MAX, "a word fits where a notification's payload does");
_Static_assert(ROOM_CHUNKS_MAX < WORD_KEEP, "a chunk's number leaves the flag alone");
_Static_assert(ROOM_LENGTH_MAX < WORD_SKIP, "a length does, too");

/* The outcome of POOL. */
enum word_mapped { WORD_IS_MAPPED, WORD_MAPPED_LATER, WORD_MAPPED_NEVER };

/* Of words about names; the fields that a word has not are 0. */
struct word_named {
    uint64_t version;
    uint64_t place;
    uint64_t size;
    uint32_t kind;                 /* enum name_kind */
    uint32_t length;               /* of the bytes */
    uint8_t bytes[WEIR_VALUE_MAX]; /* a name, without a terminator, or a value */
};
_Static_assert(WEIR_NAME_MAX <= WEIR_VALUE_MAX, "a name is no longer than a value");

struct word {
    enum word_kind kind;
    uint32_t inbox;
    union {
        uint64_t grants;         /* WANT */
        uint64_t place;          /* CALL */
        struct room_shut shut;   /* SHUT */
        struct room_grant grant; /* GRANT */
        struct {
            uint32_t chunk_bytes;
            uint32_t message_bytes_max;
            struct wire_descriptor memory;
        } meet;
        struct wire_descriptor pool; /* POOL */
        uint32_t mapped;             /* MAPPED: enum word_mapped */
        uint64_t number;             /* NOW, FULL; not 0 */
        uint64_t hash;               /* CHANGED */
        struct word_named named;     /* LOOKUP, LIST, VALUE, LISTED */
        struct {
            uint64_t version;
            struct wire_descriptor memory;
        } memory; /* NAMED */
    };
};

/* Writes the word into at most `size` bytes. EINVAL: a field is out of range. ETOOBIG: `size` is
 * too small. WORD_SIZE_MAX bytes hold any. */
int word_encode(const struct word *word, uint8_t *out, size_t size, uint32_t *length_out);

/* Reads the word at the front of `length` bytes, behind which others may follow. EINVAL for
 * anything that word_encode would not have written, byte for byte; the outputs are then
 * unspecified. */
int word_decode(const uint8_t *in, size_t length, struct word *word_out, uint32_t *length_out);

/* Writes WORD_NOTE_SIZE bytes; fields in range. */
void word_note_encode(const struct room_note *note, uint8_t *out);
/* Reads a note and what comes with it: the whole payload, or nothing. EINVAL: it is none. The tag
 * is the caller's. */
int word_note_decode(const uint8_t *in, size_t length, struct room_note *note_out);

/* Of notes that share a SEND. */
struct word_shared {
    uint64_t tag;
    const uint8_t *note; /* with its payload */
    uint32_t length;
};

/* Writes WORD_NOTES_HEAD + length bytes, and returns how many that are. */
uint32_t word_shared_put(const struct word_shared *shared, uint8_t *out);
/* Takes the one in front off the bytes *in_io, of which there are *length_io. False: none is whole
 * there. */
bool word_shared_take(const uint8_t **in_io, uint32_t *length_io, struct word_shared *out);

/* Whether the word is about names, and not about messages. */
static inline bool word_is_of_names(enum word_kind kind) {
    return kind >= WORD_LOOKUP;
}

/* The kind's name in capitals, for traces; "?" for any other value. */
const char *word_kind_name(enum word_kind kind);

#endif
