/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.h: the sender's side of a stream: which places it has, and where the next message goes.
 *
 * Owns how far each place is filled, when it is shut, and how much room is asked for. Leaves to
 * others the messages, the bytes, and the way of what the two sides tell each other, which arrives
 * once, and in the order in which it was told.
 *
 * A place is shut when the next message does not fit in it, when nothing waits and it may not be
 * kept, or when the receiver calls for it. One that is called still takes what waits first, as far
 * as it fits: a receiver that has to call grants little, and what it granted would come back empty
 * for ever. */
#ifndef WEIR_OUTBOX_H
#define WEIR_OUTBOX_H

#include "room.h"

/* A power of two. Places that are shut take room here until the receiver was told. Grants that
 * nobody asked for, renewals and those ahead, leave half of it for the others (ROOM_UNASKED). */
enum { OUTBOX_PLACES = ROOM_PLACES };

struct outbox_place {
    struct room_grant grant;
    uint32_t used;
    bool called;
    bool closed; /* no more messages are put there */
};

struct outbox {
    struct outbox_place places[OUTBOX_PLACES];
    uint32_t chunk_bytes, chunk_count;
    uint32_t first, count;       /* of the places: place i is [(first + i) % OUTBOX_PLACES] */
    uint32_t filling;            /* the next message goes to this one of them, or behind it */
    uint64_t last;               /* the latest place that was granted */
    uint64_t grants;             /* so many */
    uint64_t wanted;             /* the receiver was told so last */
    uint64_t first_secret;       /* of the first grant */
    uint64_t renewed;            /* the latest place that was found as a renewal */
    uint32_t had[OUTBOX_PLACES]; /* chunks of places that were shut, the oldest first */
    uint32_t had_count;
};

/* Where a message goes. */
struct outbox_spot {
    uint64_t place;
    uint32_t chunk, offset;
};

/* chunk_bytes, chunk_count: of the memory that was imported. */
void outbox_init(struct outbox *outbox, uint32_t chunk_bytes, uint32_t chunk_count);

/* The receiver grants a place; one that was found as a renewal before is none. False: no receiver
 * says so. */
bool outbox_grant(struct outbox *outbox, const struct room_grant *grant);
/* Chunks that the receiver may have granted again, without a word: the i-th of them, those first
 * that were filled first. False: there are no more, or no more places can be had. */
bool outbox_had(const struct outbox *outbox, uint32_t i, uint32_t *chunk_out);
/* The number of the renewal that comes next (room.h). */
static inline uint64_t outbox_renewal_number(const struct outbox *outbox) {
    return room_renewal_number(outbox->first_secret, outbox->grants + 1);
}
/* It was found. False: no receiver says so. */
bool outbox_renew(struct outbox *outbox, const struct room_grant *grant);
/* The receiver wants all places back up to this one: outbox_yield. False: it was never granted. */
bool outbox_call(struct outbox *outbox, uint64_t place);

/* The place that is filled next; only while there is one. */
static inline struct outbox_place *outbox_filling(struct outbox *outbox) {
    return &outbox->places[(outbox->first + outbox->filling) % OUTBOX_PLACES];
}
/* Likewise for a message that does not fit there, or with no place to fill. */
bool outbox_pass(struct outbox *outbox, uint32_t bytes);
/* Whether the place that is filled next has room for so many bytes. */
static inline bool outbox_fits(const struct outbox *outbox, const struct outbox_place *filling,
                               uint32_t bytes) {
    return outbox->filling < outbox->count && !filling->closed &&
           outbox->chunk_bytes - filling->used >= bytes;
}
/* Whether there is room for the next message, whose length is this, and which a chunk holds. Places
 * that it does not fit in are closed: the messages behind it must not come before it. */
static inline bool outbox_room(struct outbox *outbox, uint32_t length) {
    uint32_t bytes = room_bytes(length);
    return outbox_fits(outbox, outbox_filling(outbox), bytes) || outbox_pass(outbox, bytes);
}
/* Whether so many bytes more make the place that is filled next half full: a sender that goes on
 * wants another one before that is full. */
static inline bool outbox_halves(const struct outbox *outbox, const struct outbox_place *filling,
                                 uint32_t bytes) {
    uint32_t half = outbox->chunk_bytes / 2;
    return filling->used < half && bytes >= half - filling->used;
}
/* Puts messages that take so many bytes in the place that is filled next; only after outbox_room
 * for the first. */
static inline void outbox_fill(struct outbox_place *filling, uint32_t bytes) {
    filling->used += bytes;
}
/* Puts it there; only after outbox_room. */
static inline struct outbox_spot outbox_put(struct outbox *outbox, uint32_t length) {
    struct outbox_place *place = outbox_filling(outbox);
    const struct outbox_spot spot = {place->grant.place, place->grant.chunk, place->used};
    outbox_fill(place, room_bytes(length));
    return spot;
}

/* All messages that wait were put as far as there is room: places that were called are closed. */
void outbox_yield(struct outbox *outbox);
/* Nothing waits to be put: what may not be kept is closed. */
void outbox_idle(struct outbox *outbox);

/* The next place that was closed, which the receiver is to be told of, and is forgotten here.
 * False: none. */
bool outbox_shut(struct outbox *outbox, struct room_shut *shut_out);
/* Whether there is one. */
bool outbox_shuts(const struct outbox *outbox);
/* Whether the receiver should be told at once: it does not find out by itself that a place is shut
 * which is not full. Nor are places kept here for ever. */
bool outbox_shuts_now(const struct outbox *outbox);

/* Messages of so many bytes (room_bytes) wait for room: whether the receiver has to be told what is
 * wanted, which counts as told then. bytes: 0: nothing waits. */
bool outbox_want(struct outbox *outbox, uint64_t bytes, uint64_t *grants_out);

/* Whether messages go to the last place that was granted, and no other was asked for. */
static inline bool outbox_is_last(const struct outbox *outbox) {
    return outbox->filling + 1 >= outbox->count && outbox->wanted <= outbox->grants;
}

/* Whether outbox_want has something to tell. */
bool outbox_wants(const struct outbox *outbox, uint64_t bytes);

/* NULL, or a sentence about what is wrong. */
const char *outbox_verify(const struct outbox *outbox);

#endif
