/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: see words.h. Each field is checked by the same function in both directions. */
#include "words.h"

#include "cursor.h"
#include "loans.h"

enum { LENGTH_OFFSET = 2 };

static bool lines(uint32_t bytes) {
    return bytes % ROOM_LINE == 0;
}

static bool meet_valid(const struct word *word) {
    return lines(word->meet.chunk_bytes) && word->meet.message_bytes_max <= ROOM_LENGTH_MAX &&
           room_bytes(word->meet.message_bytes_max) <= word->meet.chunk_bytes &&
           word->meet.memory.length >= room_memory(word->meet.chunk_bytes, 1);
}

static bool name_valid(const struct word_named *named) {
    bool whole = named->length > 0 && named->length < WEIR_NAME_MAX;
    for (uint32_t i = 0; whole && i < named->length; i++)
        whole = named->bytes[i] != 0;
    return whole;
}

static bool listed_valid(const struct word_named *named) {
    if (named->place == 0)
        return named->size == 0 && named->kind == NAME_NOTHING && named->length == 0;
    return name_valid(named) && ((named->kind == NAME_MEMORY && named->size > 0) ||
                                 (named->kind == NAME_VALUE && named->size <= WEIR_VALUE_MAX));
}

static bool names_valid(const struct word *word) {
    if (word->inbox != 0)
        return false;
    switch (word->kind) {
    case WORD_LOOKUP:
        return name_valid(&word->named);
    case WORD_VALUE:
        return word->named.version != 0 && word->named.length <= WEIR_VALUE_MAX;
    case WORD_LISTED:
        return listed_valid(&word->named);
    case WORD_NAMED:
        return word->memory.version != 0;
    default:
        return true;
    }
}

static bool word_valid(const struct word *word) {
    switch (word->kind) {
    case WORD_LOOKUP:
    case WORD_LIST:
    case WORD_NAMED:
    case WORD_VALUE:
    case WORD_NOTHING:
    case WORD_LISTED:
    case WORD_CHANGED:
        return names_valid(word);
    case WORD_SHUT:
        return word->shut.place != 0 && word->shut.chunk < ROOM_CHUNKS_MAX && lines(word->shut.end);
    case WORD_MEET:
        return meet_valid(word);
    case WORD_GRANT:
        return word->grant.place != 0 && word->grant.chunk < ROOM_CHUNKS_MAX;
    case WORD_CALL:
        return word->place != 0;
    case WORD_OPENED:
        return word->inbox == 0;
    case WORD_POOL:
        return word->pool.length > LOANS_HEAD;
    case WORD_MAPPED:
        return word->mapped <= WORD_MAPPED_NEVER;
    case WORD_NOW:
    case WORD_FULL:
        return word->number != 0;
    case WORD_WANT:
    case WORD_LEFT:
    case WORD_LOOK:
    case WORD_AHEAD:
    case WORD_ABSENT:
    case WORD_CLOSED:
    case WORD_BACK:
        return true;
    case WORD_KIND_END:
        break;
    }
    return false;
}

/* ---- encoding ---- */

/* False: the descriptor is none. */
static bool put_memory(struct writer *w, const struct wire_descriptor *memory) {
    uint8_t descriptor[WIRE_DESCRIPTOR_SIZE_MAX];
    uint32_t length;

    if (wire_descriptor_encode(memory, descriptor, sizeof(descriptor), &length) != WEIR_OK)
        return false;
    put_bytes(w, descriptor, length);
    return true;
}

static bool put_body(struct writer *w, const struct word *word) {
    switch (word->kind) {
    case WORD_WANT:
        put_uint(w, word->grants, 8);
        return true;
    case WORD_SHUT:
        put_uint(w, word->shut.place, 8);
        put_uint(w, word->shut.chunk, 4);
        put_uint(w, word->shut.end, 4);
        return true;
    case WORD_MEET:
        put_uint(w, word->meet.chunk_bytes, 4);
        put_uint(w, word->meet.message_bytes_max, 4);
        return put_memory(w, &word->meet.memory);
    case WORD_POOL:
        return put_memory(w, &word->pool);
    case WORD_MAPPED:
        put_uint(w, word->mapped, 4);
        return true;
    case WORD_NOW:
    case WORD_FULL:
        put_uint(w, word->number, 8);
        return true;
    case WORD_GRANT:
        put_uint(w, word->grant.place, 8);
        put_uint(w, word->grant.secret, 8);
        put_uint(w, word->grant.chunk | (word->grant.keep ? WORD_KEEP : 0), 4);
        return true;
    case WORD_CALL:
        put_uint(w, word->place, 8);
        return true;
    case WORD_LOOKUP:
        put_bytes(w, word->named.bytes, word->named.length);
        return true;
    case WORD_LIST:
        put_uint(w, word->named.place, 8);
        return true;
    case WORD_NAMED:
        put_uint(w, word->memory.version, 8);
        return put_memory(w, &word->memory.memory);
    case WORD_VALUE:
        put_uint(w, word->named.version, 8);
        put_bytes(w, word->named.bytes, word->named.length);
        return true;
    case WORD_LISTED:
        put_uint(w, word->named.place, 8);
        put_uint(w, word->named.size, 8);
        put_uint(w, word->named.kind, 4);
        put_bytes(w, word->named.bytes, word->named.length);
        return true;
    case WORD_CHANGED:
        put_uint(w, word->hash, 8);
        return true;
    case WORD_NOTHING:
    case WORD_LEFT:
    case WORD_LOOK:
    case WORD_AHEAD:
    case WORD_ABSENT:
    case WORD_OPENED:
    case WORD_CLOSED:
    case WORD_BACK:
        return true;
    case WORD_KIND_END:
        break;
    }
    return false;
}

int word_encode(const struct word *word, uint8_t *out, size_t size, uint32_t *length_out) {
    uint8_t bytes[WORD_SIZE_MAX];
    struct writer w = {.out = bytes, .size = sizeof(bytes)};

    if (!word_valid(word))
        return WEIR_EINVAL;
    put_uint(&w, word->kind, 1);
    put_uint(&w, 0, 3);
    put_uint(&w, word->inbox, 4);
    if (!put_body(&w, word) || w.full)
        return WEIR_EINVAL;
    bytes[LENGTH_OFFSET] = (uint8_t)w.used;
    bytes[LENGTH_OFFSET + 1] = (uint8_t)(w.used >> 8);
    if (w.used > size)
        return WEIR_ETOOBIG;
    memcpy(out, bytes, w.used);
    *length_out = (uint32_t)w.used;
    return WEIR_OK;
}

/* ---- decoding ---- */

/* All that is left is a descriptor. */
static void get_memory(struct reader *r, struct wire_descriptor *memory) {
    if (r->bad || wire_descriptor_decode(r->in, r->left, memory) != WEIR_OK) {
        r->bad = true;
        return;
    }
    r->left = 0;
}

static void get_grant(struct reader *r, struct room_grant *grant) {
    grant->place = get_uint(r, 8);
    grant->secret = get_uint(r, 8);
    uint32_t chunk = (uint32_t)get_uint(r, 4);
    grant->chunk = chunk & ~WORD_KEEP;
    grant->keep = (chunk & WORD_KEEP) != 0;
}

/* All that is left. */
static void get_text(struct reader *r, struct word_named *named) {
    if (r->bad || r->left > sizeof(named->bytes)) {
        r->bad = true;
        return;
    }
    named->length = (uint32_t)r->left;
    get_bytes(r, named->bytes, r->left);
}

static void get_names_body(struct reader *r, struct word *word) {
    if (word->kind == WORD_CHANGED)
        word->hash = get_uint(r, 8);
    if (word->kind == WORD_NAMED) {
        word->memory.version = get_uint(r, 8);
        get_memory(r, &word->memory.memory);
    }
    if (word->kind == WORD_VALUE)
        word->named.version = get_uint(r, 8);
    if (word->kind == WORD_LIST || word->kind == WORD_LISTED)
        word->named.place = get_uint(r, 8);
    if (word->kind == WORD_LISTED) {
        word->named.size = get_uint(r, 8);
        word->named.kind = (uint32_t)get_uint(r, 4);
    }
    if (word->kind == WORD_LOOKUP || word->kind == WORD_VALUE || word->kind == WORD_LISTED)
        get_text(r, &word->named);
}

static void get_body(struct reader *r, struct word *word) {
    switch (word->kind) {
    case WORD_WANT:
        word->grants = get_uint(r, 8);
        break;
    case WORD_SHUT:
        word->shut.place = get_uint(r, 8);
        word->shut.chunk = (uint32_t)get_uint(r, 4);
        word->shut.end = (uint32_t)get_uint(r, 4);
        break;
    case WORD_MEET:
        word->meet.chunk_bytes = (uint32_t)get_uint(r, 4);
        word->meet.message_bytes_max = (uint32_t)get_uint(r, 4);
        get_memory(r, &word->meet.memory);
        break;
    case WORD_POOL:
        get_memory(r, &word->pool);
        break;
    case WORD_MAPPED:
        word->mapped = (uint32_t)get_uint(r, 4);
        break;
    case WORD_NOW:
    case WORD_FULL:
        word->number = get_uint(r, 8);
        break;
    case WORD_GRANT:
        get_grant(r, &word->grant);
        break;
    case WORD_CALL:
        word->place = get_uint(r, 8);
        break;
    case WORD_LEFT:
    case WORD_LOOK:
    case WORD_AHEAD:
    case WORD_ABSENT:
    case WORD_OPENED:
    case WORD_CLOSED:
    case WORD_BACK:
    case WORD_KIND_END:
        break;
    default:
        get_names_body(r, word);
    }
}

int word_decode(const uint8_t *in, size_t length, struct word *word_out, uint32_t *length_out) {
    struct reader head = {.in = in, .left = length};
    uint32_t kind = (uint32_t)get_uint(&head, 1), zero = (uint32_t)get_uint(&head, 1);
    uint32_t whole = (uint32_t)get_uint(&head, 2);

    if (head.bad || kind < WORD_WANT || kind >= WORD_KIND_END || zero != 0 || whole < WORD_HEAD ||
        whole > length)
        return WEIR_EINVAL;
    struct reader r = {.in = head.in, .left = whole - 4};
    *word_out = (struct word){.kind = (enum word_kind)kind};
    word_out->inbox = (uint32_t)get_uint(&r, 4);
    get_body(&r, word_out);
    if (r.bad || r.left != 0 || !word_valid(word_out))
        return WEIR_EINVAL;
    *length_out = whole;
    return WEIR_OK;
}

/* ---- notes ---- */

void word_note_encode(const struct room_note *note, uint8_t *out) {
    struct writer w = {.out = out, .size = WORD_NOTE_SIZE};
    put_uint(&w, note->place, 8);
    put_uint(&w, note->chunk, 4);
    put_uint(&w, note->offset, 4);
    put_uint(&w, note->length | (note->skip ? WORD_SKIP : 0), 4);
    put_uint(&w, note->inbox, 4);
}

int word_note_decode(const uint8_t *in, size_t length, struct room_note *note_out) {
    struct reader r = {.in = in, .left = length};
    struct room_note note = {.place = get_uint(&r, 8)};
    note.chunk = (uint32_t)get_uint(&r, 4);
    note.offset = (uint32_t)get_uint(&r, 4);
    uint32_t bytes = (uint32_t)get_uint(&r, 4);
    note.inbox = (uint32_t)get_uint(&r, 4);
    note.length = bytes & ~WORD_SKIP;
    note.skip = (bytes & WORD_SKIP) != 0;
    if (r.bad || note.place == 0 || note.chunk >= ROOM_CHUNKS_MAX || !lines(note.offset) ||
        note.length > ROOM_LENGTH_MAX || (r.left != 0 && (note.skip || r.left != note.length)))
        return WEIR_EINVAL;
    *note_out = note;
    return WEIR_OK;
}

uint32_t word_shared_put(const struct word_shared *shared, uint8_t *out) {
    struct writer w = {.out = out, .size = WORD_NOTES_HEAD};
    put_uint(&w, shared->length, 2);
    put_uint(&w, shared->tag, 8);
    memcpy(out + WORD_NOTES_HEAD, shared->note, shared->length);
    return WORD_NOTES_HEAD + shared->length;
}

bool word_shared_take(const uint8_t **in_io, uint32_t *length_io, struct word_shared *out) {
    struct reader r = {.in = *in_io, .left = *length_io};
    uint32_t length = (uint32_t)get_uint(&r, 2);
    uint64_t tag = get_uint(&r, 8);

    if (r.bad || length < WORD_NOTE_SIZE || length > r.left)
        return false;
    *out = (struct word_shared){.tag = tag, .note = r.in, .length = length};
    *in_io = r.in + length;
    *length_io = (uint32_t)r.left - length;
    return true;
}

const char *word_kind_name(enum word_kind kind) {
    static const char *const names[WORD_KIND_END] = {
        [WORD_WANT] = "WANT",     [WORD_SHUT] = "SHUT",       [WORD_LEFT] = "LEFT",
        [WORD_LOOK] = "LOOK",     [WORD_AHEAD] = "AHEAD",     [WORD_MEET] = "MEET",
        [WORD_GRANT] = "GRANT",   [WORD_CALL] = "CALL",       [WORD_ABSENT] = "ABSENT",
        [WORD_OPENED] = "OPENED", [WORD_CLOSED] = "CLOSED",   [WORD_POOL] = "POOL",
        [WORD_MAPPED] = "MAPPED", [WORD_BACK] = "BACK",       [WORD_NOW] = "NOW",
        [WORD_FULL] = "FULL",     [WORD_LOOKUP] = "LOOKUP",   [WORD_LIST] = "LIST",
        [WORD_NAMED] = "NAMED",   [WORD_VALUE] = "VALUE",     [WORD_NOTHING] = "NOTHING",
        [WORD_LISTED] = "LISTED", [WORD_CHANGED] = "CHANGED",
    };
    return kind >= WORD_WANT && kind < WORD_KIND_END ? names[kind] : "?";
}
