/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c: the application's calls about names of peers.
 *
 * Owns the waits for an answer. The table is asked.h's, and what is said to the peer is names.c's.
 * Each look takes the engine for itself, so that others have it while a call waits. */
#include "agenda.h"
#include "memory.h"
#include "names.h"
#include "news.h"
#include "notes.h"
#include "own.h"
#include "peer.h"
#include "sleep.h"
#include "step.h"
#include "streams.h"
#include "tables.h"

/* A question of the application's, in the try that is under way. */
struct query {
    weir_peer peer;
    struct asked_question question;
    bool looked;       /* there was a look before */
    uint64_t failures; /* of engine->names at the first: one since is an error of this call */
    uint64_t held;     /* an entry that has us as its user, so that it stays; 0 */
    /* Of the answer: */
    uint64_t id;
    struct asked_entry entry;
};

static void hold(weir_engine *engine, struct query *query, struct asked_entry *entry) {
    struct asked_entry *before = asked_at(&engine->names.asked, query->held);
    if (entry != NULL)
        entry->users++;
    if (before != NULL)
        before->users--;
    query->held = entry != NULL ? entry->id : 0;
}

/* The entry of the question, known or asked for; NULL: there is no room. */
static struct asked_entry *ask(weir_engine *engine, struct peer *peer, const struct query *query) {
    struct asked *asked = &engine->names.asked;
    struct asked_entry gone;
    uint32_t i = asked_open(asked, peer_index(engine, peer), &query->question, &gone);
    if (i == GROUPS_NONE)
        return NULL;
    if (gone.used && gone.awaited && !gone.listing) /* its application is to ask again */
        news_event(engine, WEIR_EVENT_NAME, engine->peers[gone.peer].handle, 0, gone.hash);
    struct asked_entry *entry = &asked->entries[i];
    if (entry->listing && entry->version != peer->naming.heard)
        entry->known = false; /* an answer that nobody took in time */
    if (entry->known)
        return entry;
    bool begins = !query->looked || entry->state == ASKED_REST;
    if (entry->state == ASKED_REST)
        asked_again(asked, i);
    if (begins && entry->state == ASKED_LINE) {
        if (peer->naming.mute || !peer->talk.due)
            streams_tell(engine, peer);
        peer->naming.mute = false;
        note_wish(engine, peer);
    }
    return entry;
}

/* Whether the application has what it asked for. The end of a list is an answer, and a name that is
 * of nothing is none yet. */
static bool is_answered(const struct asked_entry *entry) {
    return entry->known && (entry->listing || entry->kind != NAME_NOTHING);
}

/* The next entry of a list may be another the next time. */
static void give(weir_engine *engine, struct asked_entry *entry, struct query *query) {
    entry->given = true;
    entry->awaited = false;
    query->id = entry->id;
    query->entry = *entry;
    hold(engine, query, NULL);
    if (entry->listing && entry->users == 0)
        asked_drop(&engine->names.asked, (uint32_t)(entry - engine->names.asked.entries));
}

static int look_up_at(weir_engine *engine, struct peer *peer, struct query *query) {
    if (query->looked && peer->ask_failed > query->failures)
        return peer->ask_error;
    struct asked_entry *entry = ask(engine, peer, query);
    if (!query->looked)
        query->failures = engine->names.failures;
    query->looked = true;
    if (entry == NULL)
        return WEIR_EAGAIN;
    if (!is_answered(entry)) {
        entry->awaited = true;
        entry->given = false; /* it knows by this that there is nothing, or nothing any more */
        if (query->held != entry->id)
            hold(engine, query, entry);
        if (entry->state == ASKED_LINE) /* now it goes before those that news alone asks */
            asked_again(&engine->names.asked, (uint32_t)(entry - engine->names.asked.entries));
        return WEIR_ENOTREADY;
    }
    give(engine, entry, query);
    return WEIR_OK;
}

/* ENOTREADY: there is no answer yet, or no such name; the application is told when there is. */
static int look_up(weir_engine *engine, struct query *query) {
    own_enter(engine);
    struct peer *peer = peer_find(engine, query->peer.id);
    int rc = peer != NULL ? look_up_at(engine, peer_resolve(engine, peer), query) : WEIR_ESTALE;
    if (rc == WEIR_ENOTREADY)
        engine_step(engine, false);
    own_leave(engine);
    return rc;
}

/* The call waits no more. */
static void let_go(weir_engine *engine, struct query *query) {
    if (query->held == 0)
        return;
    own_enter(engine);
    hold(engine, query, NULL);
    own_leave(engine);
}

/* Until there is an answer, or the time is over. */
static int look_up_in(weir_engine *engine, struct query *query, uint64_t timeout_ns) {
    uint64_t begin = engine_clock(engine);
    for (;;) {
        uint64_t before = atomic_load(&engine->news);
        int rc = look_up(engine, query);
        uint64_t passed = engine_clock(engine) - begin;
        if (rc != WEIR_ENOTREADY || passed >= timeout_ns) {
            let_go(engine, query);
            return rc;
        }
        engine_wait_news(engine, before, timeout_ns - passed);
    }
}

static int begin_query(const weir_engine *engine, weir_peer peer, const char *name,
                       struct query *query_out) {
    if (engine == NULL || name == NULL || !published_is_name(name))
        return WEIR_EINVAL;
    *query_out =
        (struct query){.peer = peer, .question = {.name = name, .length = (uint8_t)strlen(name)}};
    return engine->forked ? WEIR_ECLOSED : WEIR_OK;
}

/* The memory that the name was of when the query was answered. ENOTREADY: it is of another one by
 * now, or its owner has released it, or is dead, which this engine has yet to hear: the name is to
 * be asked for again. */
static int open_found(weir_engine *engine, const struct query *query, weir_remote *remote_out) {
    struct wire_descriptor descriptor;
    struct name_answer answer = {query->id, query->entry.version};
    if (query->entry.kind != NAME_MEMORY)
        return WEIR_EACCESS;
    if (wire_descriptor_decode(query->entry.body, query->entry.body_length, &descriptor) != WEIR_OK)
        return WEIR_EINVAL;
    int rc = memory_import(engine, query->peer, &descriptor, &answer, remote_out);
    if (rc != WEIR_ESTALE && rc != WEIR_EPEER)
        return rc;
    own_enter(engine);
    const struct peer *peer = peer_find(engine, query->peer.id);
    struct asked_entry *entry = asked_at(&engine->names.asked, answer.entry);
    if (entry != NULL && entry->version == answer.version)
        entry->known = false;
    own_leave(engine);
    return peer == NULL ? WEIR_ESTALE : WEIR_ENOTREADY;
}

/* A name that becomes another one during each of so many imports is left to the application. */
enum { OPEN_TRIES = 8 };

int weir_remote_open(weir_engine *engine, weir_peer peer, const char *name, uint64_t timeout_ns,
                     weir_remote *remote_out) {
    struct query query;
    int rc = remote_out == NULL ? WEIR_EINVAL : begin_query(engine, peer, name, &query);
    if (rc != WEIR_OK)
        return rc;
    uint64_t begin = engine_clock(engine);
    for (int tries = 1;; tries++) {
        uint64_t passed = engine_clock(engine) - begin;
        rc = look_up_in(engine, &query, passed < timeout_ns ? timeout_ns - passed : 0);
        if (rc != WEIR_OK)
            return rc;
        rc = open_found(engine, &query, remote_out);
        if (rc != WEIR_ENOTREADY)
            return rc;
        if (tries >= OPEN_TRIES && engine_clock(engine) - begin >= timeout_ns)
            return WEIR_EAGAIN;
    }
}

int weir_peer_value(weir_engine *engine, weir_peer peer, const char *name, uint64_t timeout_ns,
                    void *value_out, size_t *length) {
    struct query query;
    int rc =
        value_out == NULL || length == NULL ? WEIR_EINVAL : begin_query(engine, peer, name, &query);
    if (rc == WEIR_OK)
        rc = look_up_in(engine, &query, timeout_ns);
    if (rc != WEIR_OK)
        return rc;
    if (query.entry.kind != NAME_VALUE)
        return WEIR_EACCESS;
    if (query.entry.body_length > *length)
        return WEIR_ETOOBIG;
    memcpy(value_out, query.entry.body, query.entry.body_length);
    *length = query.entry.body_length;
    return WEIR_OK;
}

int weir_peer_name(weir_engine *engine, weir_peer peer, uint64_t *position, uint64_t timeout_ns,
                   weir_name_info *info) {
    if (engine == NULL || position == NULL || info == NULL || info->size < sizeof(size_t))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    struct query query = {.peer = peer, .question = {.listing = true, .place = *position}};
    int rc = look_up_in(engine, &query, timeout_ns);
    if (rc != WEIR_OK)
        return rc;
    if (query.entry.kind == NAME_NOTHING)
        return WEIR_EINVAL;
    weir_name_info full = {.size = info->size,
                           .kind = query.entry.kind == NAME_MEMORY ? WEIR_NAME_OF_MEMORY
                                                                   : WEIR_NAME_OF_VALUE,
                           .length = query.entry.size};
    memcpy(full.name, query.entry.body, query.entry.body_length);
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    *position = query.entry.place_next;
    return WEIR_OK;
}
