/* SPDX-License-Identifier: Apache-2.0 */
/* asked.h: the names that this engine has asked its peers for, and what they answered.
 *
 * Owns the table: an entry is a question to one peer, about a name or about what comes next in the
 * list of its names, and the last answer. Leaves to others how questions and answers travel, and
 * what a memory is.
 *
 *      REST ──asked_again──► LINE ──asked_said──► SAID ──asked_answered──► REST
 *        ▲                                          │  asked_again: LINE, behind the answer
 *        └─────── a new life, asked_unsaid: LINE ───┘
 *
 * Questions to a peer stand in a line, and one is under way at a time. Questions that the
 * application waits for, or whose answers are in use, go first, but for every eighth: a peer that
 * publishes one name anew without end keeps no other name from being asked for. An answer is good
 * until the peer says that the name has changed, or that all may have: then it is asked again, and
 * what was known is kept until the answer is there.
 *
 * An entry with users stays. Of the others the one that was looked at longest ago makes room for a
 * new question, and one that the application waits for only where all others have users.
 *
 * Invariants (asked_verify):
 *  - a question is in the table once;
 *  - an entry stands in its peer's line if, and only if, it is in LINE;
 *  - at most one entry of a peer is SAID.
 */
#ifndef WEIR_ASKED_H
#define WEIR_ASKED_H

#include "published.h"

enum {
    ASKED_BODY_MAX = 248,
    ASKED_PASSED_MAX = 7 /* every eighth question is one of those that do not go first */
};

enum asked_state { ASKED_REST, ASKED_LINE, ASKED_SAID };

struct asked_question {
    bool listing;   /* what is at `place` or behind it; else of this name */
    uint64_t place; /* of a listing */
    uint8_t length; /* of the name */
    const char *name;
};

struct asked_answer {
    uint8_t kind;     /* enum name_kind */
    uint64_t version; /* 0 with NOTHING */
    uint64_t place;   /* of a listing: the place behind it */
    uint64_t size;    /* of a listing: of the memory or value */
    uint32_t length;
    const uint8_t *body; /* a descriptor, a value, or, of a listing, a name */
};

struct asked_entry {
    uint64_t id; /* handle; 0: it was never used */
    uint64_t hash, place, version, place_next, size;
    uint32_t peer;
    uint32_t users;
    uint8_t state; /* enum asked_state */
    uint8_t kind;  /* enum name_kind, of the answer */
    uint8_t name_length, body_length;
    uint8_t passed; /* how often another went first while it was first of the others */
    bool used, listing;
    bool known;   /* there was an answer in this life */
    bool again;   /* SAID, and to be asked again behind that */
    bool awaited; /* the application was told to wait for it */
    bool given;   /* the application has the answer */
    char name[WEIR_NAME_MAX];
    uint8_t body[ASKED_BODY_MAX];
};

struct asked {
    struct asked_entry *entries;
    uint32_t max, peers;
    uint32_t begun;
    uint64_t seed;
    struct groups questions; /* a hash table */
    struct groups of_peer;   /* by peer */
    struct groups line;      /* by peer: those in LINE that go first; behind all peers,
                              * by peer again: the others */
    struct groups ages;      /* one group: all, the one that was looked at last behind */
    struct groups free;      /* one group */
};

size_t asked_bytes(uint32_t max, uint32_t peers);
/* memory: asked_bytes(max, peers), zeroed, aligned for a uint64_t. */
void asked_init(struct asked *asked, void *memory, uint32_t max, uint32_t peers, uint64_t seed);

/* The entry of this question, a new one if there is none; it was looked at. *gone_out: the one that
 * made room for it, if `used`. GROUPS_NONE: the table is full of entries that have users, or a
 * question under way. */
uint32_t asked_open(struct asked *asked, uint32_t peer, const struct asked_question *question,
                    struct asked_entry *gone_out);
/* NULL: there is no such entry any more. */
struct asked_entry *asked_at(struct asked *asked, uint64_t id);
/* The entry is free, whatever was under way; one without users. */
void asked_drop(struct asked *asked, uint32_t entry);

/* To be asked, also if it is known: at the end of the peer's line, or of the part of it that goes
 * first, unless it is there. */
void asked_again(struct asked *asked, uint32_t entry);
/* The next one in the peer's line; GROUPS_NONE: none. */
uint32_t asked_next(const struct asked *asked, uint32_t peer);
void asked_said(struct asked *asked, uint32_t entry);
/* The words that answered are no answer: the question stands in its peer's line again. */
void asked_unsaid(struct asked *asked, uint32_t entry);
/* The peer is not reached. Whether the application was told to wait for an answer of it, which it
 * does no more. */
bool asked_failed(struct asked *asked, uint32_t peer);

/* The meaning of an answer for users that have the one before. */
struct asked_turn {
    bool stale; /* memory that was opened by it is not what the name is of now */
    bool tell;  /* the application waits for it, or has the one before, which was another */
};
struct asked_turn asked_answered(struct asked *asked, uint32_t entry,
                                 const struct asked_answer *answer);

/* The peer says that the name of this hash has changed; 0: any may have. */
void asked_changed(struct asked *asked, uint32_t peer, uint64_t hash);
/* Nothing that was under way arrives any more. Names that are used or waited for are asked again.
 * same: the engine there is the same, so that versions mean what they did. */
void asked_new_life(struct asked *asked, uint32_t peer, bool same);
/* Another peer turned out to be the same: its questions are this one's. Questions that both have,
 * and that have users, are of no use to these any more. */
void asked_move(struct asked *asked, uint32_t from, uint32_t to);
/* The peer is forgotten, and all of its entries are free, also those with users. */
void asked_forget(struct asked *asked, uint32_t peer);

/* NULL, or a sentence about what is wrong. Looks at everything. */
const char *asked_verify(const struct asked *asked);

#endif
