/* SPDX-License-Identifier: Apache-2.0 */
/* published.c: see published.h. */
#include "published.h"

#include <assert.h>
#include <string.h>

#include "power.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BEHIND_MAX = 32 }; /* changes that a peer is told of one by one */

bool published_is_name(const char *name) {
    size_t length = 0;
    while (length < WEIR_NAME_MAX && name[length] != '\0')
        length++;
    return length > 0 && length < WEIR_NAME_MAX;
}

/* 0 is none's: words have it for all. */
uint64_t published_hash(const char *name, size_t length) {
    uint64_t hash = XXH3_64bits(name, length);
    return hash != 0 ? hash : 1;
}

/* ---- the table --------------------------------------------------------- */

static size_t entries_bytes(uint32_t max) {
    return (size_t)max * sizeof(struct published_entry);
}

size_t published_bytes(uint32_t max) {
    return entries_bytes(max) + groups_bytes(power_of_two(max), max) + 2 * groups_bytes(1, max);
}

void published_init(struct published *published, void *memory, uint32_t max, uint64_t seed) {
    uint8_t *at = memory;
    *published = (struct published){.entries = memory, .max = max, .seed = seed};
    at += entries_bytes(max);
    groups_init(&published->names, at, power_of_two(max), max);
    at += groups_bytes(power_of_two(max), max);
    groups_init(&published->order, at, 1, max);
    at += groups_bytes(1, max);
    groups_init(&published->withdrawn, at, 1, max);
}

static uint32_t bucket(const struct published *published, const char *name, size_t length) {
    return (uint32_t)groups_hash(name, length, published->seed) &
           (published->names.group_count - 1);
}

/* Also one that was withdrawn. */
static uint32_t find_any(const struct published *published, const char *name, size_t length) {
    uint32_t i = groups_first(&published->names, bucket(published, name, length));
    for (; i != GROUPS_NONE; i = groups_next(&published->names, i)) {
        const struct published_entry *entry = &published->entries[i];
        if (entry->name_length == length && memcmp(entry->name, name, length) == 0)
            return i;
    }
    return GROUPS_NONE;
}

uint32_t published_find(const struct published *published, const char *name, size_t length) {
    uint32_t i = find_any(published, name, length);
    return i != GROUPS_NONE && published->entries[i].kind != NAME_NOTHING ? i : GROUPS_NONE;
}

uint32_t published_from(const struct published *published, uint64_t place) {
    for (; place < published->begun; place++) {
        if (published->entries[place].kind != NAME_NOTHING)
            return (uint32_t)place;
    }
    return GROUPS_NONE;
}

/* ---- changes ----------------------------------------------------------- */

static void changed(struct published *published, uint32_t i) {
    published->entries[i].version = ++published->version;
    groups_leave(&published->order, i);
    groups_join(&published->order, i, 0);
}

/* An entry for a new name; that of the name that was withdrawn first, if there is no other. */
static uint32_t take(struct published *published) {
    if (published->begun < published->max)
        return published->begun++;
    uint32_t i = groups_first(&published->withdrawn, 0);
    if (i == GROUPS_NONE)
        return GROUPS_NONE;
    published->forgotten = published->entries[i].version;
    groups_leave(&published->withdrawn, i);
    groups_leave(&published->names, i);
    return i;
}

/* The entry of a name that is about to be something; `kind` is what it was. */
static uint32_t place_of(struct published *published, const char *name) {
    size_t length = strlen(name);
    uint32_t i = find_any(published, name, length);
    if (i == GROUPS_NONE) {
        i = take(published);
        if (i == GROUPS_NONE)
            return GROUPS_NONE;
        published->entries[i] = (struct published_entry){.name_length = (uint8_t)length};
        memcpy(published->entries[i].name, name, length + 1);
        groups_join(&published->names, i, bucket(published, name, length));
    }
    groups_leave(&published->withdrawn, i);
    published->count += published->entries[i].kind == NAME_NOTHING;
    return i;
}

int published_memory(struct published *published, const char *name, uint64_t memory) {
    uint32_t i = place_of(published, name);
    if (i == GROUPS_NONE)
        return WEIR_EAGAIN;
    struct published_entry *entry = &published->entries[i];
    if (entry->kind == NAME_MEMORY && entry->memory == memory)
        return WEIR_OK;
    entry->kind = NAME_MEMORY;
    entry->memory = memory;
    entry->value_length = 0;
    changed(published, i);
    return WEIR_OK;
}

int published_value(struct published *published, const char *name, const void *value,
                    size_t length) {
    assert(length <= WEIR_VALUE_MAX);
    uint32_t i = place_of(published, name);
    if (i == GROUPS_NONE)
        return WEIR_EAGAIN;
    struct published_entry *entry = &published->entries[i];
    if (entry->kind == NAME_VALUE && entry->value_length == length &&
        (length == 0 || memcmp(entry->value, value, length) == 0))
        return WEIR_OK;
    entry->kind = NAME_VALUE;
    entry->memory = 0;
    entry->value_length = (uint8_t)length;
    if (length > 0)
        memcpy(entry->value, value, length);
    changed(published, i);
    return WEIR_OK;
}

static void withdraw(struct published *published, uint32_t i) {
    struct published_entry *entry = &published->entries[i];
    entry->kind = NAME_NOTHING;
    entry->memory = 0;
    entry->value_length = 0;
    published->count--;
    changed(published, i);
    groups_join(&published->withdrawn, i, 0);
}

bool published_withdraw(struct published *published, const char *name) {
    uint32_t i = published_find(published, name, strlen(name));
    if (i == GROUPS_NONE)
        return false;
    withdraw(published, i);
    return true;
}

uint32_t published_withdraw_memory(struct published *published, uint64_t memory) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < published->begun; i++) {
        if (published->entries[i].kind != NAME_MEMORY || published->entries[i].memory != memory)
            continue;
        withdraw(published, i);
        found++;
    }
    return found;
}

/* ---- news -------------------------------------------------------------- */

enum published_news published_news(const struct published *published, uint64_t told,
                                   uint32_t *entry_out) {
    if (told >= published->version)
        return PUBLISHED_QUIET;
    if (told < published->forgotten)
        return PUBLISHED_ALL;
    uint32_t i = groups_last(&published->order, 0), found = GROUPS_NONE, steps = 0;
    for (; i != GROUPS_NONE && published->entries[i].version > told;
         i = groups_before(&published->order, i)) {
        if (++steps > BEHIND_MAX)
            return PUBLISHED_ALL;
        found = i;
    }
    *entry_out = found;
    return found == GROUPS_NONE ? PUBLISHED_QUIET : PUBLISHED_ONE;
}

/* ---- verification ------------------------------------------------------ */

const char *published_verify(const struct published *published) {
    uint32_t there = 0, gone = 0;
    uint64_t version = 0;
    const char *wrong = groups_verify(&published->names);
    if (wrong == NULL)
        wrong = groups_verify(&published->order);
    if (wrong == NULL)
        wrong = groups_verify(&published->withdrawn);
    if (wrong != NULL)
        return wrong;
    for (uint32_t i = 0; i < published->begun; i++) {
        const struct published_entry *entry = &published->entries[i];
        if (find_any(published, entry->name, entry->name_length) != i)
            return "published: a name is there twice, or not found";
        if ((entry->kind == NAME_NOTHING) != (groups_of(&published->withdrawn, i) == 0))
            return "published: a withdrawn name is not on the list of those";
        there += entry->kind != NAME_NOTHING;
        gone += entry->kind == NAME_NOTHING;
    }
    if (there != published->count || gone != published->withdrawn.used ||
        published->order.used != published->begun)
        return "published: names are not counted";
    for (uint32_t i = groups_first(&published->order, 0); i != GROUPS_NONE;
         i = groups_next(&published->order, i)) {
        if (published->entries[i].version <= version)
            return "published: versions are not in order";
        version = published->entries[i].version;
    }
    return version <= published->version ? NULL : "published: a version is yet to come";
}
