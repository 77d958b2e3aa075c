/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: see words.h. Each field is checked by the same function in both directions. */
#include "words.h"

#include "cursor.h"

enum { FLAG = 1, LENGTH_OFFSET = 2 };

static bool lines(uint32_t bytes) {
    return bytes % ROOM_LINE == 0;
}

static bool meet_valid(const struct word *word) {
    return lines(word->meet.chunk_bytes) && word->meet.message_bytes_max <= ROOM_LENGTH_MAX &&
           room_bytes(word->meet.message_bytes_max) <= word->meet.chunk_bytes &&
           word->meet.memory.length >= word->meet.chunk_bytes;
}

static bool grants_valid(const struct word *word) {
    uint64_t before = 0;
    if (word->grants.count > WORD_GRANTS_MAX || (word->grants.count == 0 && !word->grants.last))
        return false;
    for (uint32_t i = 0; i < word->grants.count; i++) {
        const struct room_grant *grant = &word->grants.list[i];
        if (grant->place <= before || grant->chunk >= ROOM_CHUNKS_MAX || !lines(grant->end))
            return false;
        before = grant->place;
    }
    return true;
}

static bool word_valid(const struct word *word) {
    if (word->kind == WORD_ABSENT)
        return word->life == 0;
    if (word->life == 0)
        return word->kind == WORD_WANT && !word->want.again;
    switch (word->kind) {
    case WORD_TOLD:
        return word->told.place != 0 && word->told.chunk < ROOM_CHUNKS_MAX && lines(word->told.end);
    case WORD_MEET:
        return meet_valid(word);
    case WORD_GRANTS:
        return grants_valid(word);
    case WORD_WANT:
    case WORD_CLOSED:
        return true;
    case WORD_ABSENT:
    case WORD_KIND_END:
        break;
    }
    return false;
}

static bool flag_of(const struct word *word) {
    return (word->kind == WORD_WANT && word->want.again) ||
           (word->kind == WORD_TOLD && word->told.closed) ||
           (word->kind == WORD_GRANTS && word->grants.last);
}

/* ---- encoding ---- */

static void put_grant(struct writer *w, const struct room_grant *grant) {
    put_uint(w, grant->place, 8);
    put_uint(w, grant->secret, 8);
    put_uint(w, grant->chunk | (grant->keep ? WORD_KEEP : 0) | (grant->called ? WORD_CALLED : 0),
             4);
    put_uint(w, grant->end, 4);
}

/* False: the descriptor is none. */
static bool put_meet(struct writer *w, const struct word *word) {
    uint8_t descriptor[WIRE_DESCRIPTOR_SIZE_MAX];
    uint32_t length;

    if (wire_descriptor_encode(&word->meet.memory, descriptor, sizeof(descriptor), &length) !=
        WEIR_OK)
        return false;
    put_uint(w, word->meet.chunk_bytes, 4);
    put_uint(w, word->meet.message_bytes_max, 4);
    put_bytes(w, descriptor, length);
    return true;
}

static bool put_body(struct writer *w, const struct word *word) {
    switch (word->kind) {
    case WORD_WANT:
        put_uint(w, word->want.grants, 8);
        return true;
    case WORD_TOLD:
        put_uint(w, word->told.place, 8);
        put_uint(w, word->told.chunk, 4);
        put_uint(w, word->told.end, 4);
        return true;
    case WORD_MEET:
        return put_meet(w, word);
    case WORD_GRANTS:
        for (uint32_t i = 0; i < word->grants.count; i++)
            put_grant(w, &word->grants.list[i]);
        return true;
    case WORD_ABSENT:
    case WORD_CLOSED:
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
    put_uint(&w, flag_of(word) ? FLAG : 0, 1);
    put_uint(&w, 0, 2);
    put_uint(&w, word->inbox, 4);
    put_uint(&w, word->life, 8);
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

static void get_grant(struct reader *r, struct room_grant *grant) {
    grant->place = get_uint(r, 8);
    grant->secret = get_uint(r, 8);
    uint32_t chunk = (uint32_t)get_uint(r, 4);
    grant->chunk = chunk & ~(WORD_KEEP | WORD_CALLED);
    grant->keep = (chunk & WORD_KEEP) != 0;
    grant->called = (chunk & WORD_CALLED) != 0;
    grant->end = (uint32_t)get_uint(r, 4);
}

static void get_grants(struct reader *r, struct word *word) {
    word->grants.count = (uint32_t)(r->left / WORD_GRANT_BYTES);
    r->bad |= word->grants.count > WORD_GRANTS_MAX;
    for (uint32_t i = 0; !r->bad && i < word->grants.count; i++)
        get_grant(r, &word->grants.list[i]);
}

static void get_meet(struct reader *r, struct word *word) {
    word->meet.chunk_bytes = (uint32_t)get_uint(r, 4);
    word->meet.message_bytes_max = (uint32_t)get_uint(r, 4);
    if (r->bad || wire_descriptor_decode(r->in, r->left, &word->meet.memory) != WEIR_OK) {
        r->bad = true;
        return;
    }
    r->left = 0;
}

static void get_body(struct reader *r, struct word *word, bool flag) {
    switch (word->kind) {
    case WORD_WANT:
        word->want.grants = get_uint(r, 8);
        word->want.again = flag;
        break;
    case WORD_TOLD:
        word->told.place = get_uint(r, 8);
        word->told.chunk = (uint32_t)get_uint(r, 4);
        word->told.end = (uint32_t)get_uint(r, 4);
        word->told.closed = flag;
        break;
    case WORD_MEET:
        get_meet(r, word);
        break;
    case WORD_GRANTS:
        get_grants(r, word);
        word->grants.last = flag;
        break;
    case WORD_ABSENT:
    case WORD_CLOSED:
    case WORD_KIND_END:
        break;
    }
}

int word_decode(const uint8_t *in, size_t length, struct word *word_out, uint32_t *length_out) {
    struct reader head = {.in = in, .left = length};
    uint32_t kind = (uint32_t)get_uint(&head, 1), flags = (uint32_t)get_uint(&head, 1);
    uint32_t whole = (uint32_t)get_uint(&head, 2);

    if (head.bad || kind < WORD_WANT || kind >= WORD_KIND_END || flags > FLAG ||
        whole < WORD_HEAD || whole > length)
        return WEIR_EINVAL;
    struct reader r = {.in = head.in, .left = whole - 4};
    *word_out = (struct word){.kind = (enum word_kind)kind};
    word_out->inbox = (uint32_t)get_uint(&r, 4);
    word_out->life = get_uint(&r, 8);
    get_body(&r, word_out, flags != 0);
    if (r.bad || r.left != 0 || !word_valid(word_out) || flag_of(word_out) != (flags != 0))
        return WEIR_EINVAL;
    *length_out = whole;
    return WEIR_OK;
}

const char *word_kind_name(enum word_kind kind) {
    static const char *const names[WORD_KIND_END] = {
        [WORD_WANT] = "WANT",     [WORD_TOLD] = "TOLD",     [WORD_MEET] = "MEET",
        [WORD_GRANTS] = "GRANTS", [WORD_ABSENT] = "ABSENT", [WORD_CLOSED] = "CLOSED",
    };
    return kind >= WORD_WANT && kind < WORD_KIND_END ? names[kind] : "?";
}
