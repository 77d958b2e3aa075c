/* SPDX-License-Identifier: Apache-2.0 */
/* published.h: the names that this engine publishes, each of a memory or of a small value.
 *
 * Owns the table: which name there is, of what, and since which change. A change has the next
 * number of the engine's: its version. Leaves to others what a memory is, how peers ask, and who is
 * told of changes.
 *
 * A peer that is told of changes has one number, the version up to which it was told. A name that
 * was withdrawn keeps its place, so that peers are told of that; the oldest of those goes when
 * another name needs the place. A peer that was not told of it by then, or has many changes in
 * front of it, is told that all names may have changed (PUBLISHED_ALL).
 *
 * Invariants (published_verify):
 *  - a name is in the table once;
 *  - the entries, in the order of their last change, have growing versions, none over the table's.
 */
#ifndef WEIR_PUBLISHED_H
#define WEIR_PUBLISHED_H

#include "groups.h"
#include "weir.h"

enum name_kind { NAME_NOTHING, NAME_MEMORY, NAME_VALUE };

struct published_entry {
    uint64_t version; /* of its last change */
    uint64_t memory;  /* of a MEMORY: its handle */
    uint8_t kind;     /* enum name_kind; NOTHING: it was withdrawn */
    uint8_t name_length;
    uint8_t value_length;
    char name[WEIR_NAME_MAX]; /* with its terminator */
    uint8_t value[WEIR_VALUE_MAX];
};

struct published {
    struct published_entry *entries;
    uint32_t max;
    uint32_t begun;          /* entries that were ever used: the ones in front */
    uint32_t count;          /* names that are there */
    struct groups names;     /* a hash table */
    struct groups order;     /* one group: all, by version */
    struct groups withdrawn; /* one group: those, by version */
    uint64_t seed;           /* of the hash */
    uint64_t version;        /* of the last change; 0: there was none */
    uint64_t forgotten;      /* the last version of a withdrawn name that is gone */
};

/* Whether the text is a name: of 1 to WEIR_NAME_MAX - 1 bytes. */
bool published_is_name(const char *name);
/* Tells names apart, as peers and applications have it: weir_name_hash. */
uint64_t published_hash(const char *name, size_t length);

size_t published_bytes(uint32_t max);
/* memory: published_bytes(max), zeroed, aligned for a uint64_t. */
void published_init(struct published *published, void *memory, uint32_t max, uint64_t seed);

/* The entry of a name that is there; GROUPS_NONE: there is none. */
uint32_t published_find(const struct published *published, const char *name, size_t length);
/* The name is of this memory, or of a copy of this value, from now on. A name that is so already
 * does not change. EAGAIN: `max` names are there. */
int published_memory(struct published *published, const char *name, uint64_t memory);
int published_value(struct published *published, const char *name, const void *value,
                    size_t length);
/* False: there is no such name. */
bool published_withdraw(struct published *published, const char *name);
/* Withdraws all names of the memory; how many. Looks at all entries. */
uint32_t published_withdraw_memory(struct published *published, uint64_t memory);
/* The first entry from `place` on, of a name that is there; GROUPS_NONE: no more. */
uint32_t published_from(const struct published *published, uint64_t place);

enum published_news {
    PUBLISHED_QUIET, /* nothing has changed since */
    PUBLISHED_ONE,   /* of what has, this entry changed first: its version is told then */
    PUBLISHED_ALL    /* too much has changed: the table's version is told then */
};
enum published_news published_news(const struct published *published, uint64_t told,
                                   uint32_t *entry_out);

/* NULL, or a sentence about what is wrong. Looks at everything. */
const char *published_verify(const struct published *published);

#endif
