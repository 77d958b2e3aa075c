/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: the bytes of the words that the two sides of a stream of messages say to each other.
 *
 * Owns the layout and the checks that need no context. Leaves to others how words travel (several
 * in one SEND, in order) and what they mean (inbox.h, outbox.h). Each word is of one inbox, by the
 * number that peers name it by. Integers are little-endian. A word begins with
 *
 *      0  kind 1    enum word_kind
 *      1  flags 1   of the kind
 *      2  length 2  of the whole word
 *      4  inbox 4
 *      8  life 8    of the stream (inbox.h); 0 in ABSENT, and in WANT before MEET was heard
 *
 * from the sender
 *     WANT     grants 8: so many in all since the stream began. Flag 1: the session is new, and all
 *              open grants are to be told again. With life 0, from a sender whose stream is known:
 *              it has not heard MEET, so that is said again, and all open grants as well
 *     TOLD     place 8, chunk 4, end 4. Flag 1: closed
 * from the receiver
 *     MEET     chunk bytes 4, longest message 4, a descriptor of the inbox's memory (wire.h)
 *     GRANTS   0 to WORD_GRANTS_MAX of place 8, secret 8, chunk 4 with WORD_KEEP and WORD_CALLED,
 *              end 4, by growing places. Flag 1: the last of those that are told again
 *     ABSENT   nothing: no inbox has this number
 *     CLOSED   nothing: the inbox of this stream was closed
 */
#ifndef WEIR_WORDS_H
#define WEIR_WORDS_H

#include "room.h"

enum word_kind {
    WORD_WANT = 1,
    WORD_TOLD,
    WORD_MEET,
    WORD_GRANTS,
    WORD_ABSENT,
    WORD_CLOSED,
    WORD_KIND_END /* first value that is no kind */
};

enum { WORD_HEAD = 16, WORD_GRANTS_MAX = 8, WORD_GRANT_BYTES = 24 };
#define WORD_KEEP   (UINT32_C(1) << 31) /* beside a chunk's number */
#define WORD_CALLED (UINT32_C(1) << 30)

enum {
    WORD_MEET_MAX = WORD_HEAD + 8 + WIRE_DESCRIPTOR_SIZE_MAX,
    WORD_GRANTS_SIZE_MAX = WORD_HEAD + WORD_GRANTS_MAX * WORD_GRANT_BYTES,
    WORD_SIZE_MAX = WORD_MEET_MAX
};
_Static_assert(WORD_SIZE_MAX >= WORD_GRANTS_SIZE_MAX, "the longest word");
_Static_assert(WORD_SIZE_MAX <= WEIR_NOTIFY_MAX, "a word fits where a notification's payload does");
_Static_assert(ROOM_CHUNKS_MAX < WORD_CALLED, "a chunk's number leaves the flags alone");

struct word {
    enum word_kind kind;
    uint32_t inbox;
    uint64_t life;
    union {
        struct {
            uint64_t grants;
            bool again;
        } want;
        struct room_told told;
        struct {
            uint32_t chunk_bytes;
            uint32_t message_bytes_max;
            struct wire_descriptor memory;
        } meet;
        struct {
            struct room_grant list[WORD_GRANTS_MAX];
            uint32_t count;
            bool last;
        } grants;
    };
};

/* Writes the word into at most `size` bytes. EINVAL: a field is out of range. ETOOBIG: `size` is
 * too small. WORD_SIZE_MAX bytes hold any. */
int word_encode(const struct word *word, uint8_t *out, size_t size, uint32_t *length_out);

/* Reads the word at the front of `length` bytes, behind which others may follow. EINVAL for
 * anything that word_encode would not have written, byte for byte; the outputs are then
 * unspecified. */
int word_decode(const uint8_t *in, size_t length, struct word *word_out, uint32_t *length_out);

/* The kind's name in capitals, for traces; "?" for any other value. */
const char *word_kind_name(enum word_kind kind);

#endif
