/* SPDX-License-Identifier: Apache-2.0 */
/* inboxes.c: the inboxes of this engine.
 *
 * Owns the table of inboxes, their memory, and what peers do with them: core/inbox.h decides, this
 * file performs. The words for a peer are asked for by talk.c, one by one. The
 * application's calls are messages.c's.
 *
 * An inbox that is closed has no number any more, and keeps its memory until each of its senders
 * has said that it left, or is gone, and nothing is held. */
#include "inboxes.h"

#include "agenda.h"
#include "streams.h"

/* Senders that were called have so long to answer before others are called, too. */
#define CALL_NS UINT64_C(20000000)
/* For the memory of loans, of which a sender tells just before it is asked for it. */
#define LENT_WAIT_MS 100

enum { LOOK_EVERY = 8 }; /* calls between two looks at other streams, while there is a message */

static uint8_t *memory_of(const struct inbox_entry *entry) {
    return entry->mr.base;
}

struct inbox_entry *inboxes_find(weir_engine *engine, uint64_t id) {
    uint32_t index = handle_index(id);
    if (index >= engine->inboxes_used)
        return NULL;
    struct inbox_entry *entry = &engine->inboxes[index];
    return entry->used && entry->id == id ? entry : NULL;
}

struct inbox_entry *inboxes_numbered(weir_engine *engine, uint32_t number) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (entry->used && entry->open && entry->number == number)
            return entry;
    }
    return NULL;
}

struct inbox_entry *inboxes_take(weir_engine *engine) {
    for (uint32_t i = 0; i < INBOXES_MAX; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (entry->used)
            continue;
        uint64_t id = entry->id == 0 ? handle_first(i) : handle_next(entry->id);
        *entry = (struct inbox_entry){.id = id, .used = true};
        if (i >= engine->inboxes_used)
            engine->inboxes_used = i + 1;
        return entry;
    }
    return NULL;
}

void inboxes_drop(struct inbox_entry *entry) {
    entry->used = false;
}

/* ---- memory of senders' loans ------------------------------------------ */

static void lent_forget(weir_engine *engine, struct inbox_entry *entry, struct lent *lent) {
    if (lent->base != NULL) {
        entry->maps--;
        if (engine->device_ops->import_unmap != NULL)
            engine->device_ops->import_unmap(engine->device, &lent->rmr);
        engine->device_ops->mr_forget(engine->device, &lent->rmr);
    }
    *lent = (struct lent){.base = NULL};
}

void inboxes_stream_over(weir_engine *engine, struct inbox_entry *entry, uint32_t stream) {
    lent_forget(engine, entry, &entry->lents[stream]);
}

/* Whether the memory is read here from now on. */
static enum word_mapped map(weir_engine *engine, const struct wire_descriptor *memory,
                            struct lent *lent) {
    const struct weir_device_ops *ops = engine->device_ops;
    const uint32_t needed = WEIR_ACCESS_REMOTE_READ | WEIR_ACCESS_REMOTE_WRITE;
    if (ops->import_address == NULL || (memory->access & needed) != needed ||
        memcmp(memory->device, engine->caps.name, sizeof(memory->device)) != 0 ||
        memcmp(memory->fabric, engine->caps.fabric, sizeof(memory->fabric)) != 0)
        return WORD_MAPPED_NEVER;
    int rc = ops->mr_import(engine->device, memory->blob, memory->blob_length, memory->length,
                            needed, LENT_WAIT_MS, &lent->rmr);
    if (rc != WEIR_OK)
        return rc == WEIR_EINPROGRESS || rc == WEIR_EAGAIN || rc == WEIR_EMFILE || rc == WEIR_ENOMEM
                   ? WORD_MAPPED_LATER
                   : WORD_MAPPED_NEVER;
    lent->base = ops->import_address(engine->device, &lent->rmr, &lent->ordered);
    lent->bytes = memory->length;
    if (lent->base == NULL)
        ops->mr_forget(engine->device, &lent->rmr);
    return lent->base != NULL ? WORD_IS_MAPPED : WORD_MAPPED_NEVER;
}

/* A sender tells where its loans are: once, unless it was told that they cannot be read now. */
static bool pool(weir_engine *engine, struct peer *peer, const struct word *word) {
    struct inbox_entry *entry = inboxes_numbered(engine, word->inbox);
    if (memcmp(word->pool.instance, peer->instance, WIRE_INSTANCE_SIZE) != 0)
        return false;
    if (entry == NULL || !inbox_knows(&entry->inbox, peer_index(engine, peer)))
        return true; /* it was closed, and its sender has not heard so */
    struct lent *lent = &entry->lents[inbox_stream(&entry->inbox, peer_index(engine, peer))];
    if (lent->base != NULL || lent->mapped_due || lent->tries++ == OFFERS_MAX ||
        (lent->tries > 1 && lent->mapped == WORD_MAPPED_NEVER))
        return false;
    lent->mapped = WORD_MAPPED_NEVER;
    if (word->pool.length <=
        loans_memory(entry->inbox.shape.message_bytes_max)) /* none needs more */
        lent->mapped = (uint8_t)map(engine, &word->pool, lent);
    entry->maps += lent->base != NULL;
    lent->mapped_due = true;
    return true;
}

const uint8_t *inboxes_loan(const struct inbox_entry *entry, const struct inbox_message *message,
                            uint32_t length) {
    const struct lent *lent = &entry->lents[message->stream];
    return lent->base != NULL && loans_hold(lent->bytes, &message->loan, length)
               ? lent->base + message->loan.offset
               : NULL;
}

void inboxes_loan_back(weir_engine *engine, struct inbox_entry *entry,
                       const struct inbox_message *message) {
    struct lent *lent = &entry->lents[message->stream];
    if (inboxes_loan(entry, message, 0) == NULL ||
        !loans_give_back(lent->base, &message->loan, lent->ordered))
        return;
    uint32_t peer = inbox_sender(&entry->inbox, message->stream);
    if (peer == INBOX_NONE || !entry->open)
        return;
    lent->back_due = true;
    streams_tell(engine, peer_at(engine, peer));
}

/* The next word about loans for the peer. */
static bool say_of_loans(struct inbox_entry *entry, uint32_t peer, struct word *word) {
    struct lent *lent = &entry->lents[inbox_stream(&entry->inbox, peer)];
    *word = (struct word){.inbox = entry->number};
    if (lent->mapped_due && entry->open) {
        lent->mapped_due = false;
        word->kind = WORD_MAPPED;
        word->mapped = lent->mapped;
        return true;
    }
    if (lent->back_due && entry->open) {
        lent->back_due = false;
        word->kind = WORD_BACK;
        return true;
    }
    return false;
}

/* ---- the table --------------------------------------------------------- */

void inboxes_begin(weir_engine *engine, struct inbox_entry *entry) {
    entry->open = true;
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id == 0 || !peer->talk.asked)
            continue;
        peer->talk.asked = false;
        peer->talk.opened = true;
        streams_tell(engine, peer);
    }
}

/* True: its memory went, and its entry is free. */
static bool release(weir_engine *engine, struct inbox_entry *entry) {
    if (entry->mr.base != NULL &&
        engine->device_ops->mr_release(engine->device, &entry->mr) != WEIR_OK)
        return false;
    entry->mr.base = NULL;
    for (uint32_t s = 0; s < entry->inbox.streams_used; s++)
        lent_forget(engine, entry, &entry->lents[s]);
    engine->ports.env.ops->free(engine->ports.env.self, entry->tables, entry->table_bytes);
    entry->used = false;
    return true;
}

/* For one grant. The system is asked for many at once: a call takes as long as a message. */
static uint64_t secret(weir_engine *engine) {
    if (engine->secrets_left == 0) {
        engine->ports.env.ops->entropy(engine->ports.env.self, engine->secrets,
                                       sizeof(engine->secrets));
        engine->secrets_left = SECRETS;
    }
    return engine->secrets[--engine->secrets_left];
}

void inboxes_turn(weir_engine *engine, struct inbox_entry *entry) {
    if (inbox_may_renew(&entry->inbox)) {
        entry->inbox.places = engine->places;
        inbox_renew(&entry->inbox, secret(engine));
        engine->places = entry->inbox.places;
    }
    bool ready = entry->open && entry->inbox.ready.used > 0;
    if (ready == entry->ready)
        return;
    entry->ready = ready;
    if (ready)
        atomic_fetch_add(&engine->inboxes_ready, 1);
    else
        atomic_fetch_sub(&engine->inboxes_ready, 1);
}

/* ---- direct messages --------------------------------------------------- */

/* The engine counts the streams that are watched, of all inboxes that are open. */
static void watch_changed(weir_engine *engine, struct inbox_entry *entry) {
    uint32_t watched = entry->open ? entry->inbox.watched.used : 0;
    engine->streams_watched += watched - entry->watched;
    entry->watched = watched;
}

bool inboxes_watch(weir_engine *engine, struct inbox_entry *entry) {
    bool ready = entry->ready;
    if (entry->watched == 0 || (ready && ++entry->looks % LOOK_EVERY != 0))
        return false;
    inbox_look(&entry->inbox);
    inboxes_changed(engine, entry);
    return entry->ready && !ready;
}

bool inboxes_watch_all(weir_engine *engine) {
    bool found = false;
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        if (entry_is_made(&engine->inboxes[i]))
            found |= inboxes_watch(engine, &engine->inboxes[i]);
    }
    return found;
}

bool inboxes_rest(weir_engine *engine) {
    bool found = false;
    if (engine->streams_watched == 0)
        return false;
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        if (entry_is_made(&engine->inboxes[i]) && engine->inboxes[i].watched > 0)
            inbox_unwatch(&engine->inboxes[i].inbox);
    }
    if (engine->device_ops->direct_order != NULL)
        engine->device_ops->direct_order(engine->device);
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry) || entry->watched == 0)
            continue;
        found |= inbox_rest(&entry->inbox);
        watch_changed(engine, entry);
        inboxes_changed(engine, entry);
    }
    engine->worked |= found;
    return found;
}

void inboxes_close(weir_engine *engine, struct inbox_entry *entry) {
    entry->open = false;
    inbox_close(&entry->inbox);
    watch_changed(engine, entry);
    inboxes_changed(engine, entry);
    for (uint32_t p = inbox_peer_after(&entry->inbox, INBOX_NONE); p != INBOX_NONE;
         p = inbox_peer_after(&entry->inbox, p))
        streams_tell(engine, peer_at(engine, p));
    inboxes_look(engine);
}

/* ---- room -------------------------------------------------------------- */

void inboxes_grant(weir_engine *engine, struct inbox_entry *entry) {
    uint32_t to;
    while (inbox_may_grant(&entry->inbox)) {
        entry->inbox.places = engine->places;
        inbox_grant(&entry->inbox, secret(engine), &to);
        engine->places = entry->inbox.places;
        streams_tell(engine, peer_at(engine, to));
    }
    while (inbox_call(&entry->inbox, &to)) {
        entry->called_ns = engine_now(engine);
        timer_inboxes(engine, entry->called_ns + CALL_NS);
        streams_tell(engine, peer_at(engine, to));
    }
}

/* ---- what came --------------------------------------------------------- */

/* The inbox, open or closed, that granted this place, and has it still; NULL: none. */
static struct inbox_entry *grantor(weir_engine *engine, uint64_t place, uint32_t chunk) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (entry_is_made(entry) && chunk < entry->inbox.shape.chunk_count &&
            entry->inbox.chunks[chunk].place == place)
            return entry;
    }
    return NULL;
}

bool inboxes_arrived(weir_engine *engine, struct peer *peer, const uint8_t *payload,
                     uint32_t length, uint64_t tag) {
    struct room_note note;
    if (word_note_decode(payload, length, &note) != WEIR_OK || note.place > engine->places)
        return false;
    note.tag = tag;
    struct inbox_entry *entry = grantor(engine, note.place, note.chunk);
    if (entry == NULL)
        return true; /* it was closed, and its sender has not heard so */
    enum inbox_told told = inbox_arrive(&entry->inbox, peer_index(engine, peer), &note);
    if (told != INBOX_TOLD)
        return told == INBOX_OLD;
    if (length > WORD_NOTE_SIZE)
        memcpy(memory_of(entry) + (size_t)note.chunk * entry->inbox.shape.chunk_bytes +
                   note.offset + room_payload(note.length),
               payload + WORD_NOTE_SIZE, length - WORD_NOTE_SIZE);
    inboxes_changed(engine, entry);
    engine->worked = true;
    return true;
}

static bool shut(weir_engine *engine, struct peer *peer, const struct word *word) {
    if (word->shut.place > engine->places)
        return false;
    struct inbox_entry *entry = grantor(engine, word->shut.place, word->shut.chunk);
    bool is_over = entry == NULL; /* it was closed, or the chunk was full, and is another grant's */
    if (is_over)
        entry = inboxes_numbered(engine, word->inbox);
    if (entry == NULL)
        return true;
    enum inbox_told told = inbox_shut(&entry->inbox, peer_index(engine, peer), &word->shut);
    inboxes_changed(engine, entry);
    inboxes_grant(engine, entry);
    return told != INBOX_LIE || is_over;
}

static void left(weir_engine *engine, struct peer *peer, uint32_t number) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry) || entry->open || entry->number != number)
            continue;
        inbox_leave(&entry->inbox, peer_index(engine, peer), peer->handle);
        inbox_quiet(&entry->inbox, peer_index(engine, peer));
    }
    inboxes_look(engine);
}

/* A sender that has not heard that an inbox of this number was closed speaks of that one, and asks
 * again when it has left. */
static bool speaks_of_closed(weir_engine *engine, const struct peer *peer, uint32_t number) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        const struct inbox_entry *entry = &engine->inboxes[i];
        if (entry_is_made(entry) && !entry->open && entry->number == number &&
            inbox_knows(&entry->inbox, peer_index(engine, peer)))
            return true;
    }
    return false;
}

static void wanted(weir_engine *engine, struct peer *peer, const struct word *word) {
    struct inbox_entry *entry = inboxes_numbered(engine, word->inbox);
    if (speaks_of_closed(engine, peer, word->inbox))
        return;
    if (entry != NULL) {
        inbox_want(&entry->inbox, peer_index(engine, peer), word->grants);
        inboxes_grant(engine, entry);
    } else {
        peer->talk.asked = true;
        if (peer->talk.absent_count < ABSENT_MAX)
            peer->talk.absent[peer->talk.absent_count++] = word->inbox;
        else
            peer->talk.opened = true; /* it asks again, when it has heard of these */
    }
    streams_tell(engine, peer);
}

static void told_to_look(weir_engine *engine, struct peer *peer, uint32_t number) {
    struct inbox_entry *entry = inboxes_numbered(engine, number);
    if (entry == NULL)
        return; /* it was closed, and its sender has not heard so */
    bool ready = entry->ready;
    inbox_told_to_look(&entry->inbox, peer_index(engine, peer));
    watch_changed(engine, entry);
    inboxes_changed(engine, entry);
    engine->worked |= entry->ready && !ready;
}

static void ahead(weir_engine *engine, struct peer *peer, uint32_t number) {
    struct inbox_entry *entry = inboxes_numbered(engine, number);
    if (entry == NULL || !inbox_may_grant_ahead(&entry->inbox, peer_index(engine, peer)))
        return;
    entry->inbox.places = engine->places;
    inbox_grant_ahead(&entry->inbox, peer_index(engine, peer), secret(engine));
    engine->places = entry->inbox.places;
    streams_tell(engine, peer);
}

/* WANT came before. Of an inbox that is not there, or not any more, its sender is told otherwise.
 */
static void now(weir_engine *engine, struct peer *peer, const struct word *word) {
    struct inbox_entry *entry = inboxes_numbered(engine, word->inbox);
    if (entry == NULL)
        return;
    inbox_now(&entry->inbox, peer_index(engine, peer), word->number);
    streams_tell(engine, peer);
}

bool inboxes_heard(weir_engine *engine, struct peer *peer, const struct word *word) {
    switch (word->kind) {
    case WORD_WANT:
        wanted(engine, peer, word);
        return true;
    case WORD_SHUT:
        return shut(engine, peer, word);
    case WORD_LEFT:
        left(engine, peer, word->inbox);
        return true;
    case WORD_LOOK:
        told_to_look(engine, peer, word->inbox);
        return true;
    case WORD_AHEAD:
        ahead(engine, peer, word->inbox);
        return true;
    case WORD_POOL:
        return pool(engine, peer, word);
    case WORD_NOW:
        now(engine, peer, word);
        return true;
    default:
        return false;
    }
}

/* ---- what is said ------------------------------------------------------ */

static bool say_of(struct inbox_entry *entry, uint32_t peer, struct word *word) {
    *word = (struct word){.inbox = entry->number};
    switch (inbox_say(&entry->inbox, peer, &word->grant)) {
    case INBOX_SAY_NOTHING:
        return false;
    case INBOX_SAY_MEET:
        word->kind = WORD_MEET;
        word->meet.chunk_bytes = entry->inbox.shape.chunk_bytes;
        word->meet.message_bytes_max = entry->inbox.shape.message_bytes_max;
        word->meet.memory = entry->descriptor;
        return true;
    case INBOX_SAY_GRANT:
        word->kind = WORD_GRANT;
        return true;
    case INBOX_SAY_CALL:
        word->kind = WORD_CALL;
        word->place = word->grant.place;
        return true;
    case INBOX_SAY_FULL:
        word->kind = WORD_FULL;
        word->number = word->grant.place;
        return true;
    case INBOX_SAY_CLOSED:
        word->kind = WORD_CLOSED;
        return true;
    }
    return false;
}

bool inboxes_say(weir_engine *engine, struct peer *peer, uint32_t room, struct word *word_out,
                 bool *more_out) {
    uint32_t index = peer_index(engine, peer);
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry) || !inbox_knows(&entry->inbox, index))
            continue;
        uint32_t needed = inbox_meets(&entry->inbox, index) ? WORD_SIZE_MAX : WORD_HEAD + 20;
        if (room < needed) {
            *more_out = true;
            return false;
        }
        if (say_of(entry, index, word_out) || say_of_loans(entry, index, word_out))
            return true;
    }
    struct talk *talk = &peer->talk;
    if (talk->absent_count == 0 && !talk->opened)
        return false;
    if (room < WORD_HEAD) {
        *more_out = true;
        return false;
    }
    *word_out = (struct word){.kind = WORD_OPENED};
    if (talk->absent_count > 0)
        *word_out = (struct word){.kind = WORD_ABSENT, .inbox = talk->absent[--talk->absent_count]};
    else
        talk->opened = false;
    return true;
}

/* ---- peers that go ----------------------------------------------------- */

void inboxes_leave(weir_engine *engine, struct peer *peer) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry))
            continue;
        inbox_leave(&entry->inbox, peer_index(engine, peer), peer->handle);
        watch_changed(engine, entry);
    }
}

void inboxes_quiet(weir_engine *engine, const struct peer *peer) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry) || entry->inbox.going.used == 0)
            continue;
        inbox_quiet(&entry->inbox, peer_index(engine, peer));
        inboxes_changed(engine, entry);
        inboxes_grant(engine, entry);
    }
}

/* ---- now and then ------------------------------------------------------ */

void inboxes_look(weir_engine *engine) {
    uint64_t now = engine_now(engine), next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry))
            continue;
        if (inbox_is_over(&entry->inbox) && !release(engine, entry))
            next_ns = now + CALL_NS;
        if (!entry->used || entry->inbox.awaited == 0)
            continue;
        if (now - entry->called_ns >= CALL_NS) {
            inbox_call_on(&entry->inbox);
            inboxes_grant(engine, entry);
        }
        if (entry->inbox.awaited > 0 && entry->called_ns + CALL_NS < next_ns)
            next_ns = entry->called_ns + CALL_NS;
    }
    timer_inboxes(engine, next_ns);
}

void inboxes_end(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        if (entry_is_made(&engine->inboxes[i]))
            release(engine, &engine->inboxes[i]);
    }
}

const char *inboxes_verify(const weir_engine *engine) {
    uint32_t ready = 0, watched = 0;
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        const struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry))
            continue;
        const char *wrong = inbox_verify(&entry->inbox);
        if (wrong != NULL)
            return wrong;
        if (entry->ready != (entry->open && entry->inbox.ready.used > 0))
            return "inbox: whether there is a message is not what its streams say";
        if (entry->watched != (entry->open ? entry->inbox.watched.used : 0))
            return "inbox: streams that are watched are not counted";
        ready += entry->ready;
        watched += entry->watched;
    }
    if (watched != engine->streams_watched)
        return "engine: streams that are watched are not counted";
    return ready == atomic_load(&engine->inboxes_ready)
               ? NULL
               : "engine: inboxes with messages are not counted";
}
