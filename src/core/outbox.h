/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.h: the sender's side of a stream: which places it has, and how far each is filled.
 *
 * Owns where the next message goes, what the receiver is to be told, and how much room is asked
 * for. Leaves to others the messages (they keep their {place, offset} until they are sure), the
 * bytes, and the way of what the two sides tell each other: within a session it arrives in the
 * order in which it was told.
 *
 * Of each place four numbers grow, each up to the one before it:
 *
 *     used ──► ready ──► told ──► sure
 *
 * used: messages were put as far as this. ready: their bytes are in place, or will be before
 * anything that is posted from now on is seen. told: posted so. sure: the other side has it, or
 * will have taken it up before it says anything about this place. A place whose closing is sure is
 * over, and forgotten.
 *
 * When a session ends, nobody knows what became of what was told and is not sure. So the receiver
 * is asked, on the next one, and tells again each grant that is open over there, and how far it is
 * filled (inbox_again). Then all places that it does not name are over, all of their messages with
 * them; and what lies behind the end of one that it names was never seen, and is put anew. */
#ifndef WEIR_OUTBOX_H
#define WEIR_OUTBOX_H

#include "room.h"

enum { OUTBOX_PLACES = 16 }; /* a power of two */

struct outbox_place {
    struct room_grant grant;
    uint32_t used, ready, told, sure;
    bool closed; /* no more messages are put there */
    bool closed_told;
    bool over;  /* closed, and the receiver knows */
    bool named; /* told again since the session began */
};

struct outbox {
    struct outbox_place places[OUTBOX_PLACES];
    uint32_t chunk_bytes, chunk_count;
    uint32_t session;       /* counts sessions that broke */
    uint32_t first, count;  /* of the places: place i is [(first + i) % OUTBOX_PLACES] */
    uint32_t filling;       /* the next message goes to this one of them, or behind it */
    uint32_t getting_ready; /* in all before this one of them, all messages are ready */
    uint64_t life;          /* of the stream over there */
    uint64_t last;          /* the latest place that was granted */
    uint64_t grants;        /* so many */
    uint64_t wanted;        /* the receiver was told so last */
    bool asking;            /* the session is new: outbox_settled is to come */
};

/* Where a message goes. */
struct outbox_spot {
    uint64_t place;
    uint64_t mark;
    uint32_t chunk, offset, end;
    uint32_t session; /* what is said of it counts in this one only */
};

/* chunk_bytes, chunk_count: of the memory that was imported. */
void outbox_init(struct outbox *outbox, uint64_t life, uint32_t chunk_bytes, uint32_t chunk_count);

/* The receiver grants a place, or says something new of one. False: no receiver says so. */
bool outbox_grant(struct outbox *outbox, const struct room_grant *grant);

/* Whether there is room for the next message, whose length is this, and which a chunk holds. Places
 * that it does not fit in are closed: the messages behind it must not come before it. */
bool outbox_room(struct outbox *outbox, uint32_t length);
/* Puts it there; only after outbox_room. */
void outbox_put(struct outbox *outbox, uint32_t length, struct outbox_spot *spot_out);
/* The message there, and all before it, are ready. */
void outbox_ready(struct outbox *outbox, const struct outbox_spot *spot);

/* Nothing waits to be put: what may not be kept is closed. */
void outbox_idle(struct outbox *outbox);

/* The next that the receiver is to be told; it counts as told then. The oldest place comes first,
 * and messages become ready in their order: what was heard is always the first part of what was
 * put. False: nothing. */
bool outbox_tell(struct outbox *outbox, struct room_told *told_out);
/* It is sure. session: outbox->session, when it was told. */
void outbox_sure(struct outbox *outbox, uint32_t session, const struct room_told *told);

/* Messages of so many bytes (room_bytes) wait for room, or will soon: whether the receiver has to
 * be told what is wanted, which counts as told then. bytes: 0: nothing waits. */
bool outbox_want(struct outbox *outbox, uint64_t bytes, uint64_t *grants_out);

/* The session is over: nothing is told until outbox_settled. */
void outbox_broken(struct outbox *outbox);
/* On a new session, all open grants were told again. False: no receiver says so. */
bool outbox_settled(struct outbox *outbox);
/* Behind outbox_settled: whether the message there is over, since it arrived. The others are put
 * anew, in their order. */
bool outbox_arrived(const struct outbox *outbox, uint64_t place, uint32_t offset);

/* NULL, or a sentence about what is wrong. */
const char *outbox_verify(const struct outbox *outbox);

#endif
