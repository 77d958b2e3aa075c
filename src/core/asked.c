/* SPDX-License-Identifier: Apache-2.0 */
/* asked.c: see asked.h. */
#include "asked.h"

#include <assert.h>
#include <string.h>

#include "handle.h"
#include "power.h"

/* ---- the table --------------------------------------------------------- */

static size_t entries_bytes(uint32_t max) {
    return (size_t)max * sizeof(struct asked_entry);
}

/* Where the tables are. With memory NULL only their size counts. */
static size_t carve(struct asked *asked, uint8_t *memory, uint32_t max, uint32_t peers) {
    const struct {
        struct groups *groups;
        uint32_t count;
    } tables[] = {{&asked->questions, power_of_two(max)},
                  {&asked->of_peer, peers},
                  {&asked->line, 2 * peers},
                  {&asked->ages, 1},
                  {&asked->free, 1}};
    size_t used = entries_bytes(max);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (memory != NULL)
            groups_init(tables[i].groups, memory + used, tables[i].count, max);
        used += groups_bytes(tables[i].count, max);
    }
    return used;
}

size_t asked_bytes(uint32_t max, uint32_t peers) {
    struct asked measure;
    return carve(&measure, NULL, max, peers);
}

void asked_init(struct asked *asked, void *memory, uint32_t max, uint32_t peers, uint64_t seed) {
    *asked = (struct asked){.entries = memory, .max = max, .peers = peers, .seed = seed};
    carve(asked, memory, max, peers);
}

static uint32_t bucket(const struct asked *asked, uint32_t peer, bool listing, uint64_t key) {
    uint64_t all[3] = {peer, listing, key};
    return (uint32_t)groups_hash(all, sizeof(all), asked->seed) &
           (asked->questions.group_count - 1);
}

static uint64_t key_of(const struct asked_entry *entry) {
    return entry->listing ? entry->place : entry->hash;
}

static bool asks(const struct asked_entry *entry, uint32_t peer,
                 const struct asked_question *question) {
    if (entry->peer != peer || entry->listing != question->listing)
        return false;
    return entry->listing ? entry->place == question->place
                          : entry->name_length == question->length &&
                                memcmp(entry->name, question->name, question->length) == 0;
}

static uint32_t find(const struct asked *asked, uint32_t peer,
                     const struct asked_question *question) {
    uint64_t key =
        question->listing ? question->place : published_hash(question->name, question->length);
    uint32_t i = groups_first(&asked->questions, bucket(asked, peer, question->listing, key));
    while (i != GROUPS_NONE && !asks(&asked->entries[i], peer, question))
        i = groups_next(&asked->questions, i);
    return i;
}

struct asked_entry *asked_at(struct asked *asked, uint64_t id) {
    uint32_t i = handle_index(id);
    return id != 0 && i < asked->begun && asked->entries[i].used && asked->entries[i].id == id
               ? &asked->entries[i]
               : NULL;
}

void asked_drop(struct asked *asked, uint32_t i) {
    struct asked_entry *entry = &asked->entries[i];
    groups_leave(&asked->questions, i);
    groups_leave(&asked->of_peer, i);
    groups_leave(&asked->line, i);
    groups_leave(&asked->ages, i);
    groups_join(&asked->free, i, 0);
    entry->id = handle_next(entry->id);
    entry->used = false;
}

/* Of the entries that nobody uses, and of which no question is under way, the one that was looked
 * at longest ago; those that the application waits for come last. */
static uint32_t oldest(const struct asked *asked) {
    uint32_t awaited = GROUPS_NONE;
    for (uint32_t i = groups_first(&asked->ages, 0); i != GROUPS_NONE;
         i = groups_next(&asked->ages, i)) {
        const struct asked_entry *entry = &asked->entries[i];
        if (entry->users > 0 || entry->state == ASKED_SAID)
            continue;
        if (!entry->awaited)
            return i;
        if (awaited == GROUPS_NONE)
            awaited = i;
    }
    return awaited;
}

static uint32_t take(struct asked *asked, struct asked_entry *gone_out) {
    if (asked->begun < asked->max) {
        asked->entries[asked->begun].id = handle_first(asked->begun);
        return asked->begun++;
    }
    if (asked->free.used == 0) {
        uint32_t i = oldest(asked);
        if (i == GROUPS_NONE)
            return i;
        *gone_out = asked->entries[i];
        asked_drop(asked, i);
    }
    uint32_t i = groups_first(&asked->free, 0);
    groups_leave(&asked->free, i);
    return i;
}

uint32_t asked_open(struct asked *asked, uint32_t peer, const struct asked_question *question,
                    struct asked_entry *gone_out) {
    uint32_t i = find(asked, peer, question);
    gone_out->used = false;
    if (i == GROUPS_NONE) {
        i = take(asked, gone_out);
        if (i == GROUPS_NONE)
            return i;
        struct asked_entry *entry = &asked->entries[i];
        *entry = (struct asked_entry){.id = entry->id,
                                      .peer = peer,
                                      .used = true,
                                      .listing = question->listing,
                                      .place = question->place};
        if (!question->listing) {
            assert(question->length > 0 && question->length < WEIR_NAME_MAX);
            entry->name_length = question->length;
            memcpy(entry->name, question->name, question->length);
            entry->hash = published_hash(question->name, question->length);
        }
        groups_join(&asked->questions, i, bucket(asked, peer, entry->listing, key_of(entry)));
        groups_join(&asked->of_peer, i, peer);
    }
    groups_leave(&asked->ages, i);
    groups_join(&asked->ages, i, 0);
    return i;
}

/* ---- questions and answers --------------------------------------------- */

static uint32_t line_of(const struct asked *asked, const struct asked_entry *entry) {
    return entry->users > 0 || entry->awaited ? entry->peer : asked->peers + entry->peer;
}

void asked_again(struct asked *asked, uint32_t i) {
    struct asked_entry *entry = &asked->entries[i];
    if (entry->state == ASKED_SAID) {
        entry->again = true;
        return;
    }
    entry->state = ASKED_LINE;
    groups_join(&asked->line, i, line_of(asked, entry));
}

uint32_t asked_next(const struct asked *asked, uint32_t peer) {
    uint32_t i = groups_first(&asked->line, peer);
    uint32_t other = groups_first(&asked->line, asked->peers + peer);
    bool is_due = other != GROUPS_NONE && asked->entries[other].passed >= ASKED_PASSED_MAX;
    return i == GROUPS_NONE || is_due ? other : i;
}

void asked_said(struct asked *asked, uint32_t i) {
    struct asked_entry *entry = &asked->entries[i];
    assert(entry->state == ASKED_LINE);
    if (groups_of(&asked->line, i) == entry->peer) {
        uint32_t other = groups_first(&asked->line, asked->peers + entry->peer);
        if (other != GROUPS_NONE)
            asked->entries[other].passed++;
    }
    groups_leave(&asked->line, i);
    entry->state = ASKED_SAID;
    entry->passed = 0;
}

void asked_unsaid(struct asked *asked, uint32_t i) {
    struct asked_entry *entry = &asked->entries[i];
    assert(entry->state == ASKED_SAID);
    entry->state = ASKED_REST;
    entry->again = false;
    asked_again(asked, i);
}

bool asked_failed(struct asked *asked, uint32_t peer) {
    bool awaited = false;
    for (uint32_t i = groups_first(&asked->of_peer, peer); i != GROUPS_NONE;
         i = groups_next(&asked->of_peer, i)) {
        awaited |= asked->entries[i].awaited;
        asked->entries[i].awaited = false;
    }
    return awaited;
}

struct asked_turn asked_answered(struct asked *asked, uint32_t i,
                                 const struct asked_answer *answer) {
    struct asked_entry *entry = &asked->entries[i];
    bool differs = entry->version != answer->version;
    struct asked_turn turn = {
        .stale = differs,
        .tell = (entry->awaited && answer->kind != NAME_NOTHING) || (entry->given && differs),
    };
    assert(entry->state == ASKED_SAID && answer->length <= ASKED_BODY_MAX);
    entry->state = ASKED_REST;
    entry->known = true;
    entry->kind = answer->kind;
    entry->version = answer->version;
    entry->place_next = answer->place;
    entry->size = answer->size;
    entry->body_length = (uint8_t)answer->length;
    if (answer->length > 0)
        memcpy(entry->body, answer->body, answer->length);
    if (turn.tell)
        entry->awaited = entry->given = false;
    if (entry->again)
        asked_again(asked, i);
    entry->again = false;
    return turn;
}

/* A list is not kept: each look at it asks. */
void asked_changed(struct asked *asked, uint32_t peer, uint64_t hash) {
    uint32_t i = hash == 0 ? groups_first(&asked->of_peer, peer)
                           : groups_first(&asked->questions, bucket(asked, peer, false, hash));
    while (i != GROUPS_NONE) {
        const struct asked_entry *entry = &asked->entries[i];
        if (entry->peer == peer && !entry->listing && (hash == 0 || entry->hash == hash))
            asked_again(asked, i);
        i = groups_next(hash == 0 ? &asked->of_peer : &asked->questions, i);
    }
}

/* ---- peers that come and go -------------------------------------------- */

void asked_new_life(struct asked *asked, uint32_t peer, bool same) {
    uint32_t next;
    for (uint32_t i = groups_first(&asked->of_peer, peer); i != GROUPS_NONE; i = next) {
        struct asked_entry *entry = &asked->entries[i];
        next = groups_next(&asked->of_peer, i);
        bool under_way = entry->state != ASKED_REST;
        groups_leave(&asked->line, i);
        entry->state = ASKED_REST;
        entry->again = entry->known = false;
        if (!same)
            entry->version = UINT64_MAX; /* no answer's */
        if (entry->users > 0 || entry->awaited || entry->given || under_way)
            asked_again(asked, i);
        else
            asked_drop(asked, i);
    }
}

void asked_move(struct asked *asked, uint32_t from, uint32_t to) {
    uint32_t i;
    while ((i = groups_first(&asked->of_peer, from)) != GROUPS_NONE) {
        struct asked_entry *entry = &asked->entries[i];
        struct asked_question question = {.listing = entry->listing,
                                          .place = entry->place,
                                          .length = entry->name_length,
                                          .name = entry->name};
        uint32_t other = find(asked, to, &question);
        if (other != GROUPS_NONE) {
            asked->entries[other].awaited |= entry->awaited;
            asked->entries[other].given |= entry->given;
            asked_again(asked, other); /* so that they are told */
            asked_drop(asked, i);
            continue;
        }
        groups_leave(&asked->line, i);
        entry->peer = to;
        entry->state = ASKED_REST;
        entry->again = entry->known = false;
        groups_leave(&asked->questions, i);
        groups_join(&asked->questions, i, bucket(asked, to, entry->listing, key_of(entry)));
        groups_join(&asked->of_peer, i, to);
        asked_again(asked, i);
    }
}

void asked_forget(struct asked *asked, uint32_t peer) {
    uint32_t i;
    while ((i = groups_first(&asked->of_peer, peer)) != GROUPS_NONE)
        asked_drop(asked, i);
}

/* ---- verification ------------------------------------------------------ */

static const char *verify_entry(const struct asked *asked, uint32_t i, uint32_t *said) {
    const struct asked_entry *entry = &asked->entries[i];
    if (!entry->used)
        return groups_of(&asked->free, i) == 0 ? NULL : "asked: a free entry is not on the list";
    struct asked_question question = {.listing = entry->listing,
                                      .place = entry->place,
                                      .length = entry->name_length,
                                      .name = entry->name};
    if (find(asked, entry->peer, &question) != i)
        return "asked: a question is there twice, or not found";
    if (groups_of(&asked->of_peer, i) != entry->peer || groups_of(&asked->ages, i) != 0)
        return "asked: an entry is not on the lists of all";
    uint32_t line = groups_of(&asked->line, i);
    bool in_line = line == entry->peer || line == asked->peers + entry->peer;
    if ((entry->state == ASKED_LINE) != in_line || (line != GROUPS_NONE && !in_line))
        return "asked: a question is not where its state says";
    if (entry->passed > ASKED_PASSED_MAX)
        return "asked: a question was passed more often than any is";
    *said += entry->state == ASKED_SAID;
    return NULL;
}

const char *asked_verify(const struct asked *asked) {
    const struct groups *all[] = {&asked->questions, &asked->of_peer, &asked->line, &asked->ages,
                                  &asked->free};
    const char *wrong = NULL;
    for (size_t g = 0; g < sizeof(all) / sizeof(all[0]) && wrong == NULL; g++)
        wrong = groups_verify(all[g]);
    for (uint32_t peer = 0; peer < asked->peers && wrong == NULL; peer++) {
        uint32_t said = 0;
        for (uint32_t i = groups_first(&asked->of_peer, peer); i != GROUPS_NONE && wrong == NULL;
             i = groups_next(&asked->of_peer, i))
            wrong = verify_entry(asked, i, &said);
        if (wrong == NULL && said > 1)
            wrong = "asked: two questions to one peer are under way";
    }
    uint32_t said = 0;
    for (uint32_t i = 0; i < asked->begun && wrong == NULL; i++)
        wrong = verify_entry(asked, i, &said);
    return wrong;
}
