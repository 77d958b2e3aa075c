/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: names of memories and small values: published here, and looked up at peers.
 *
 * Owns what the two sides say about names (words.h): when a question, an answer or a change is
 * said, and what each does. The tables and their rules are the core's: published.h, asked.h. How
 * words travel is talk.c's: once, and in the order in which they were said, over all sessions of a
 * life. The application's calls are in publish.c and lookup.c.
 *
 * One question of each side to the other is under way at a time, so that a peer that asks takes one
 * place here, whatever it asks. A peer that has asked once is told of all changes from then on, by
 * their hashes, and asks again for what it has of those. So what an application holds is stale
 * soon after its name has changed, and it is told once. */
#include "names.h"

#include "found.h"
#include "news.h"
#include "notes.h"
#include "streams.h"
#include "tables.h"

_Static_assert((int)ASKED_BODY_MAX >= (int)WIRE_DESCRIPTOR_SIZE_MAX, "an answer has room");
_Static_assert(ASKED_BODY_MAX >= WEIR_VALUE_MAX && ASKED_BODY_MAX >= WEIR_NAME_MAX, "any has");

/* ---- the tables -------------------------------------------------------- */

static size_t piece(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

size_t names_bytes(const weir_engine_options *options) {
    return piece(published_bytes(options->names_max)) +
           piece(asked_bytes(options->names_max, options->peers_max)) +
           groups_bytes(1, options->peers_max);
}

void names_start(weir_engine *engine, void *memory) {
    const weir_engine_options *o = &engine->options;
    struct names *names = &engine->names;
    uint8_t *at = memory;
    published_init(&names->published, at, o->names_max, engine->found.seed);
    at += piece(published_bytes(o->names_max));
    asked_init(&names->asked, at, o->names_max, o->peers_max, engine->found.seed);
    at += piece(asked_bytes(o->names_max, o->peers_max));
    groups_init(&names->askers, at, 1, o->peers_max);
}

static bool is_asker(const weir_engine *engine, const struct peer *peer) {
    return groups_of(&engine->names.askers, peer_index(engine, peer)) == 0;
}

/* There is a question to the peer that nobody has said. */
static bool has_question(const weir_engine *engine, const struct peer *peer) {
    return peer->naming.said == 0 && !peer->naming.mute &&
           asked_next(&engine->names.asked, peer_index(engine, peer)) != GROUPS_NONE;
}

/* The peer forgets what it asked, and what it was told. */
static void leave(weir_engine *engine, struct peer *peer) {
    groups_leave(&engine->names.askers, peer_index(engine, peer));
    peer->naming = (struct naming){0};
}

/* ---- saying ------------------------------------------------------------ */

static void put_text(struct word_named *named, const void *bytes, uint32_t length) {
    named->length = length;
    if (length > 0)
        memcpy(named->bytes, bytes, length);
}

/* The newest answer about a name. An entry of another name: this one is not there any more. */
static void say_found(weir_engine *engine, const struct naming *naming, struct word *word) {
    const struct published_entry *entry =
        naming->found != GROUPS_NONE ? &engine->names.published.entries[naming->found] : NULL;
    word->kind = WORD_NOTHING;
    if (entry == NULL || published_hash(entry->name, entry->name_length) != naming->hash)
        return;
    if (entry->kind == NAME_MEMORY &&
        local_describe(engine, entry->memory, &word->memory.memory) == WEIR_OK) {
        word->kind = WORD_NAMED;
        word->memory.version = entry->version;
    } else if (entry->kind == NAME_VALUE) {
        *word = (struct word){.kind = WORD_VALUE, .named.version = entry->version};
        put_text(&word->named, entry->value, entry->value_length);
    } else {
        *word = (struct word){.kind = WORD_NOTHING};
    }
}

static void say_listed(weir_engine *engine, uint64_t place, struct word *word) {
    const struct published *published = &engine->names.published;
    uint32_t i = published_from(published, place);
    word->kind = WORD_LISTED;
    if (i == GROUPS_NONE)
        return;
    const struct published_entry *entry = &published->entries[i];
    const struct region_local *local =
        entry->kind == NAME_MEMORY ? region_local(&engine->regions, entry->memory) : NULL;
    word->named.place = (uint64_t)i + 1;
    word->named.kind = entry->kind;
    word->named.size = local != NULL ? local->length : entry->value_length;
    put_text(&word->named, entry->name, entry->name_length);
}

static bool say_answer(weir_engine *engine, struct peer *peer, struct word *word) {
    struct naming *naming = &peer->naming;
    if (naming->answers == ANSWERS_NAME)
        say_found(engine, naming, word);
    else
        say_listed(engine, naming->place, word);
    naming->answers = ANSWERS_NOTHING;
    return true;
}

static bool say_news(weir_engine *engine, struct peer *peer, struct word *word) {
    const struct published *published = &engine->names.published;
    uint32_t i = GROUPS_NONE;
    word->kind = WORD_CHANGED;
    switch (published_news(published, peer->naming.told, &i)) {
    case PUBLISHED_ONE:
        word->hash = published_hash(published->entries[i].name, published->entries[i].name_length);
        peer->naming.told = published->entries[i].version;
        return true;
    case PUBLISHED_ALL:
        peer->naming.told = published->version;
        return true;
    case PUBLISHED_QUIET:
        break;
    }
    return false;
}

static bool say_question(weir_engine *engine, struct peer *peer, struct word *word) {
    struct asked *asked = &engine->names.asked;
    uint32_t i = asked_next(asked, peer_index(engine, peer));
    const struct asked_entry *entry = &asked->entries[i];
    asked_said(asked, i);
    peer->naming.said = entry->id;
    word->kind = entry->listing ? WORD_LIST : WORD_LOOKUP;
    word->named.place = entry->place;
    put_text(&word->named, entry->name, entry->name_length);
    return true;
}

bool names_say(weir_engine *engine, struct peer *peer, uint32_t room, struct word *word_out,
               bool *more_out) {
    uint32_t none;
    bool answers = peer->naming.answers != ANSWERS_NOTHING, asks = has_question(engine, peer);
    bool news =
        is_asker(engine, peer) &&
        published_news(&engine->names.published, peer->naming.told, &none) != PUBLISHED_QUIET;
    *word_out = (struct word){.inbox = 0};
    for (int turn = 0; turn < 2; turn++) {
        if (news && (turn == 0) != peer->naming.news_waits && room >= WORD_HEAD + 8) {
            peer->naming.news_waits = asks || answers;
            return say_news(engine, peer, word_out);
        }
        if ((turn == 0) == peer->naming.news_waits) {
            bool question = asks && room >= WORD_HEAD + WEIR_NAME_MAX;
            bool answer = !question && answers && room >= WORD_SIZE_MAX;
            peer->naming.news_waits &= !question && !answer;
            if (question)
                return say_question(engine, peer, word_out);
            if (answer)
                return say_answer(engine, peer, word_out);
        }
    }
    *more_out |= answers || news || asks;
    return false;
}

/* ---- hearing ----------------------------------------------------------- */

static bool asked_by(weir_engine *engine, struct peer *peer, const struct word *word) {
    struct naming *naming = &peer->naming;
    const struct published *published = &engine->names.published;
    if (naming->answers != ANSWERS_NOTHING)
        return false;
    if (!is_asker(engine, peer)) {
        groups_join(&engine->names.askers, peer_index(engine, peer), 0);
        naming->told = published->version;
    }
    if (word->kind == WORD_LIST) {
        naming->answers = ANSWERS_LIST;
        naming->place = word->named.place;
    } else {
        const char *name = (const char *)word->named.bytes;
        naming->answers = ANSWERS_NAME;
        naming->found = published_find(published, name, word->named.length);
        naming->hash = published_hash(name, word->named.length);
    }
    streams_tell(engine, peer);
    return true;
}

/* Imports by an answer that is not that of the name any more. */
static void make_stale(weir_engine *engine, struct peer *peer, uint64_t named) {
    uint32_t i = groups_first(&engine->found.remotes, peer_index(engine, peer));
    while (i != NONE) {
        struct region_remote *remote = &engine->regions.remotes[i];
        i = groups_next(&engine->found.remotes, i);
        if (remote->named == named)
            remote_make_stale(engine, remote);
    }
    if (peer->trouble_ns != 0 || peer_is_suspicious(peer))
        note_unpark(engine, peer); /* and end transfers of such memory, before they break more */
}

/* False: the answer is none to such a question. body: WIRE_DESCRIPTOR_SIZE_MAX bytes. */
static bool read_answer(const struct peer *peer, const struct asked_entry *entry,
                        const struct word *word, uint8_t *body, struct asked_answer *out) {
    *out = (struct asked_answer){.kind = NAME_NOTHING};
    if (entry->listing != (word->kind == WORD_LISTED))
        return false;
    if (entry->listing && word->named.place != 0 && word->named.place <= entry->place)
        return false; /* a list that does not end */
    switch (word->kind) {
    case WORD_NAMED:
        out->kind = NAME_MEMORY;
        out->version = word->memory.version;
        out->body = body;
        return memcmp(word->memory.memory.instance, peer->instance, WIRE_INSTANCE_SIZE) == 0 &&
               wire_descriptor_encode(&word->memory.memory, body, WIRE_DESCRIPTOR_SIZE_MAX,
                                      &out->length) == WEIR_OK;
    case WORD_VALUE:
        out->kind = NAME_VALUE;
        out->version = word->named.version;
        break;
    case WORD_LISTED:
        out->kind = (uint8_t)word->named.kind;
        out->place = word->named.place;
        out->size = word->named.size;
        out->version = peer->naming.heard;
        break;
    default:
        return true;
    }
    out->length = word->named.length;
    out->body = word->named.bytes;
    return true;
}

/* The answer to a question that is in the table still. */
static void take_answer(weir_engine *engine, struct peer *peer, uint32_t i,
                        const struct asked_answer *answer) {
    const struct asked_entry *entry = &engine->names.asked.entries[i];
    uint64_t id = entry->id, hash = entry->hash;
    struct asked_turn turn = asked_answered(&engine->names.asked, i, answer);
    if (turn.stale && entry->users > 0)
        make_stale(engine, peer, id);
    if (turn.tell && !entry->listing && peer_is_told(peer)) /* else it has closed its handles */
        news_event(engine, WEIR_EVENT_NAME, peer->handle, 0, hash);
    engine->worked = true; /* a call may wait for it */
}

/* The session of a peer that lies ends, and its question is asked again in the next one. */
static bool answered(weir_engine *engine, struct peer *peer, const struct word *word) {
    struct asked *asked = &engine->names.asked;
    uint8_t body[WIRE_DESCRIPTOR_SIZE_MAX];
    struct asked_answer answer;
    if (peer->naming.said == 0)
        return false;
    const struct asked_entry *entry = asked_at(asked, peer->naming.said);
    uint32_t i = entry != NULL ? (uint32_t)(entry - asked->entries) : GROUPS_NONE;
    peer->naming.said = 0;
    if (entry != NULL && !read_answer(peer, entry, word, body, &answer)) {
        asked_unsaid(asked, i);
        return false;
    }
    if (entry != NULL)
        take_answer(engine, peer, i, &answer);
    if (has_question(engine, peer))
        streams_tell(engine, peer);
    return true;
}

bool names_heard(weir_engine *engine, struct peer *peer, const struct word *word) {
    peer->naming.mute = false;
    switch (word->kind) {
    case WORD_LOOKUP:
    case WORD_LIST:
        return asked_by(engine, peer, word);
    case WORD_CHANGED:
        peer->naming.heard++;
        asked_changed(&engine->names.asked, peer_index(engine, peer), word->hash);
        if (has_question(engine, peer))
            streams_tell(engine, peer);
        return true;
    default:
        return answered(engine, peer, word);
    }
}

/* ---- peers that come and go -------------------------------------------- */

void names_new_life(weir_engine *engine, struct peer *peer, bool same) {
    bool mute = peer->naming.mute;
    leave(engine, peer);
    asked_new_life(&engine->names.asked, peer_index(engine, peer), same);
    peer->naming.mute = mute;
    if (has_question(engine, peer))
        streams_tell(engine, peer);
}

void names_up(weir_engine *engine, struct peer *peer) {
    peer->naming.mute = false;
    if (has_question(engine, peer))
        streams_tell(engine, peer);
}

void names_unreachable(weir_engine *engine, struct peer *peer, int error) {
    if (asked_next(&engine->names.asked, peer_index(engine, peer)) == GROUPS_NONE)
        return;
    peer->ask_failed = ++engine->names.failures;
    peer->ask_error = error;
    peer->naming.mute = true;
    if (asked_failed(&engine->names.asked, peer_index(engine, peer)) && peer_is_told(peer))
        news_event(engine, WEIR_EVENT_NAME, peer->handle, error, 0);
    engine->worked = true;
}

void names_move(weir_engine *engine, struct peer *opened, struct peer *known) {
    bool asks = has_question(engine, opened);
    asked_move(&engine->names.asked, peer_index(engine, opened), peer_index(engine, known));
    if (opened->ask_failed > known->ask_failed) {
        known->ask_failed = opened->ask_failed;
        known->ask_error = opened->ask_error;
    }
    known->naming.mute &= !asks;
    if (has_question(engine, known))
        streams_tell(engine, known);
}

void names_forget(weir_engine *engine, struct peer *peer) {
    leave(engine, peer);
    asked_forget(&engine->names.asked, peer_index(engine, peer));
    peer->ask_failed = 0;
}

/* ---- what is published ------------------------------------------------- */

void names_tell(weir_engine *engine) {
    const struct groups *askers = &engine->names.askers;
    for (uint32_t i = groups_first(askers, 0); i != GROUPS_NONE; i = groups_next(askers, i))
        streams_tell(engine, &engine->peers[i]);
}

void names_memory_gone(weir_engine *engine, uint64_t memory) {
    if (published_withdraw_memory(&engine->names.published, memory) > 0)
        names_tell(engine);
}

/* ---- imports that were opened by a name -------------------------------- */

bool names_import_made(weir_engine *engine, const struct name_answer *answer) {
    struct asked_entry *entry = asked_at(&engine->names.asked, answer->entry);
    if (entry == NULL || !entry->known || entry->version != answer->version)
        return false;
    entry->users++;
    return true;
}

void names_import_gone(weir_engine *engine, uint64_t named) {
    struct asked_entry *entry = asked_at(&engine->names.asked, named);
    if (entry != NULL)
        entry->users--;
}

/* ---- verification ------------------------------------------------------ */

const char *names_verify(const weir_engine *engine) {
    const char *wrong = published_verify(&engine->names.published);
    if (wrong == NULL)
        wrong = asked_verify(&engine->names.asked);
    if (wrong == NULL)
        wrong = groups_verify(&engine->names.askers);
    return wrong;
}
