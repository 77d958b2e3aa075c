/* SPDX-License-Identifier: Apache-2.0 */
/* loans.h: memory that is lent to an application, for messages that are made in place.
 *
 * A *loan* is a piece of a sender's memory, in which its application makes a message. It comes back
 * when the application returns it, when the message was copied from it, or when its receiver, which
 * read it where it is, has given it back. The memory begins with a word for each loan that there
 * can be, which the receiver writes: the *round* of the loan that it gives back. A round is a
 * number that no other loan of this memory has. Eight words are in a line: one processor writes
 * them, and the other reads them when it has no loan left, so that each line moves once for eight
 * loans at best. One more line is the *bell*: not 0 while somebody waits here for a loan to come
 * back.
 *
 *     word 0 | word 1 | ... | bell | pieces ...
 *
 *     FREE ──loans_take──► HELD ──it is sent──► SENT ──copied──► FREE
 *                           │                     └──read by its receiver──► LENT ──round──► FREE
 *                           └──returned──► FREE
 *
 * Owns which pieces are lent, and the states. A piece is the first gap that is long enough: memory
 * that was used just now is used again. Leaves to others the memory, its way to the receiver, and
 * the transfers. */
#ifndef WEIR_LOANS_H
#define WEIR_LOANS_H

#include <stdbool.h>
#include <stdint.h>

#include "room.h"

enum {
    LOANS_MAX = WEIR_LOANS_MAX,
    LOANS_BELL = LOANS_MAX * 8,
    LOANS_HEAD = LOANS_BELL + ROOM_LINE, /* pieces begin here */
    LOANS_NONE = LOANS_MAX
};

enum loan_state { LOAN_FREE, LOAN_HELD, LOAN_SENT, LOAN_LENT };

/* The longest piece that such a memory has. */
static inline uint64_t loans_longest(uint64_t bytes) {
    return bytes < LOANS_HEAD ? 0 : (bytes - LOANS_HEAD) / ROOM_LINE * ROOM_LINE;
}

struct loan {
    uint64_t offset; /* of its piece, in the memory */
    uint64_t round;
    uint32_t length; /* as asked */
    uint8_t state;   /* enum loan_state */
};

struct loans {
    uint8_t *memory;
    uint64_t bytes;           /* of it */
    uint32_t used;            /* loans that are not free */
    uint8_t order[LOANS_MAX]; /* those, as they lie in the memory */
    struct loan at[LOANS_MAX];
};

/* The memory for a few loans of up to so many bytes; for one, if they are very long. */
static inline uint64_t loans_memory(uint64_t length_max) {
    enum { FEW = 4, LEAST = 1 << 16, MUCH = 1 << 26 };
    uint64_t one = (length_max + ROOM_LINE - 1) / ROOM_LINE * ROOM_LINE;
    uint64_t few = FEW * one < MUCH ? FEW * one : MUCH;
    few = few > one ? few : one;
    return LOANS_HEAD + (few > LEAST ? few : LEAST);
}

/* memory: aligned to ROOM_LINE, zeroed. */
void loans_init(struct loans *loans, uint8_t *memory, uint64_t bytes);

/* Lends a piece of so many bytes; LOANS_NONE: there is no room for it. round: not 0, and not one
 * that was before. */
uint32_t loans_take(struct loans *loans, uint32_t length, uint64_t round);
/* It is free again. */
void loans_give(struct loans *loans, uint32_t index);

/* Looks at the words: whether a loan came back, which is free then. */
bool loans_look(struct loans *loans);
/* Somebody waits here for one to come back, or does not. Behind loans_wait, and behind a full
 * barrier for receivers too, the words have to be looked at once more. */
void loans_wait(struct loans *loans, bool waits);

/* The receiver's side of it, for a memory of so many bytes. Whether this can be a loan there: what
 * its sender wrote may be anything. */
static inline bool loans_hold(uint64_t bytes, const struct room_loan *loan, uint32_t length) {
    return loan->index < LOANS_MAX && loan->round != 0 && loan->offset >= LOANS_HEAD &&
           loan->offset % ROOM_LINE == 0 && loan->offset <= bytes && length <= bytes - loan->offset;
}
/* Gives it back. True: its sender waits, and is to be told. ordered: the sender makes a full
 * barrier for this side, too, between loans_wait and its last look. */
bool loans_give_back(uint8_t *memory, const struct room_loan *loan, bool ordered);

/* NULL, or a sentence about what is wrong. */
const char *loans_verify(const struct loans *loans);

#endif
