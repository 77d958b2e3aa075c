/* SPDX-License-Identifier: Apache-2.0 */
/* rooms.h: the world that the tests of an inbox's room share: an inbox, and a sender for each peer.
 * Words are heard at once; notes arrive when a test says so. */
#ifndef ROOMS_H
#define ROOMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inbox.h"
#include "outbox.h"

enum { PEERS = 20, CHUNK = 256 };

static struct {
    struct inbox inbox;
    struct outbox out[PEERS];
    bool met[PEERS];
    uint8_t *memory;
    void *tables;
    uint64_t secret;
} w;

static inline void sound(void) {
    const char *wrong = inbox_verify(&w.inbox);
    for (uint32_t i = 0; wrong == NULL && i < PEERS; i++)
        wrong = outbox_verify(&w.out[i]);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

static inline void begin_with(const struct room_shape *shape, uint64_t places) {
    w.memory = calloc(1, room_memory(shape->chunk_bytes, shape->chunk_count));
    w.tables = calloc(1, inbox_bytes(shape, PEERS));
    inbox_init(&w.inbox, w.tables, w.memory, shape, PEERS, true, places);
    for (uint32_t i = 0; i < PEERS; i++)
        outbox_init(&w.out[i], shape->chunk_bytes, shape->chunk_count);
    sound();
}

static inline void begin(uint32_t chunks, uint32_t peer_chunks) {
    const struct room_shape shape = {.message_bytes_max = CHUNK - ROOM_LINE,
                                     .chunk_bytes = CHUNK,
                                     .chunk_count = chunks,
                                     .peer_chunks = peer_chunks};
    begin_with(&shape, 0);
}

static inline int end(void **state) {
    (void)state;
    free(w.memory);
    free(w.tables);
    memset(&w, 0, sizeof(w));
    return 0;
}

/* The sender hears all that there is to hear; returns how many words it was. */
static inline uint32_t hear(uint32_t peer) {
    struct room_grant grant;
    enum inbox_saying saying;
    uint32_t count = 0;
    for (; (saying = inbox_say(&w.inbox, peer, &grant)) != INBOX_SAY_NOTHING; count++) {
        assert_true(w.met[peer] == (saying != INBOX_SAY_MEET));
        w.met[peer] = true;
        if (saying == INBOX_SAY_GRANT)
            assert_true(outbox_grant(&w.out[peer], &grant));
        else if (saying == INBOX_SAY_CALL)
            assert_true(outbox_call(&w.out[peer], grant.place));
    }
    sound();
    return count;
}

/* Grants all that can be; returns how many grants it was, to anybody. */
static inline uint32_t grant_all(void) {
    uint32_t to, count = 0;
    for (; inbox_grant(&w.inbox, ++w.secret * 1000003, &to); count++)
        hear(to);
    sound();
    return count;
}

/* The sender has messages of so many bytes. */
static inline uint32_t want(uint32_t peer, uint64_t bytes) {
    uint64_t grants;
    if (outbox_want(&w.out[peer], bytes, &grants))
        inbox_want(&w.inbox, peer, grants);
    return grant_all();
}

/* Puts a message; nobody is told of it yet. */
static inline struct room_note put(uint32_t peer, uint32_t length, uint64_t tag) {
    struct outbox_spot spot;
    assert_true(outbox_room(&w.out[peer], length));
    spot = outbox_put(&w.out[peer], length);
    sound();
    return (struct room_note){.place = spot.place,
                              .tag = tag,
                              .chunk = spot.chunk,
                              .offset = spot.offset,
                              .length = length};
}

static inline enum inbox_told told(uint32_t peer, struct room_note note) {
    enum inbox_told is = inbox_arrive(&w.inbox, peer, &note);
    sound();
    return is;
}

static inline void arrive(uint32_t peer, struct room_note note) {
    assert_int_equal(told(peer, note), INBOX_TOLD);
}

static inline struct room_note skipped(struct room_note note) {
    note.skip = true;
    return note;
}

static inline struct room_note send(uint32_t peer, uint32_t length, uint64_t tag) {
    struct room_note note = put(peer, length, tag);
    arrive(peer, note);
    return note;
}

/* The receiver hears of all places that were closed; returns how many. */
static inline uint32_t shut(uint32_t peer) {
    struct room_shut word;
    uint32_t count = 0;
    for (; outbox_shut(&w.out[peer], &word); count++) {
        enum inbox_told is = inbox_shut(&w.inbox, peer, &word);
        bool full = word.end == w.inbox.shape.chunk_bytes; /* it may have found that out */
        assert_true(is == INBOX_TOLD || (full && is == INBOX_OLD));
    }
    assert_false(outbox_shuts(&w.out[peer]));
    sound();
    return count;
}

/* The sender has nothing to send. */
static inline uint32_t idle(uint32_t peer) {
    outbox_idle(&w.out[peer]);
    return shut(peer);
}

/* The sender put what waited. */
static inline uint32_t yield(uint32_t peer) {
    outbox_yield(&w.out[peer]);
    return shut(peer);
}

static inline struct inbox_message take(uint64_t tag) {
    struct inbox_message message = {0};
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_MESSAGE);
    assert_int_equal(message.tag, tag);
    sound();
    return message;
}

static inline void take_nothing(void) {
    struct inbox_message message;
    assert_int_equal(inbox_take(&w.inbox, &message), INBOX_EMPTY);
    sound();
}

static inline void give_back(struct inbox_message message) {
    assert_true(inbox_give_back(&w.inbox, message.chunk, message.place, message.offset));
    sound();
}

static inline void new_sender(uint32_t peer) {
    outbox_init(&w.out[peer], w.inbox.shape.chunk_bytes, w.inbox.shape.chunk_count);
    w.met[peer] = false;
}

static inline void leave(uint32_t peer, uint64_t from) {
    inbox_leave(&w.inbox, peer, from);
    new_sender(peer);
    sound();
}

static inline void quiet(uint32_t peer) {
    inbox_quiet(&w.inbox, peer);
    sound();
}

#define TEST(name) cmocka_unit_test_teardown(test_##name, end)

#endif
