/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.c: see outbox.h. */
#include "outbox.h"

#include <assert.h>
#include <stddef.h>

_Static_assert((OUTBOX_PLACES & (OUTBOX_PLACES - 1)) == 0, "places wrap");

static struct outbox_place *place_at(struct outbox *outbox, uint32_t i) {
    return &outbox->places[(outbox->first + i) % OUTBOX_PLACES];
}

static const struct outbox_place *peek_at(const struct outbox *outbox, uint32_t i) {
    return &outbox->places[(outbox->first + i) % OUTBOX_PLACES];
}

static struct outbox_place *find(struct outbox *outbox, uint64_t place) {
    for (uint32_t i = 0; i < outbox->count; i++) {
        if (place_at(outbox, i)->grant.place == place)
            return place_at(outbox, i);
    }
    return NULL;
}

void outbox_init(struct outbox *outbox, uint64_t life, uint32_t chunk_bytes, uint32_t chunk_count) {
    *outbox = (struct outbox){.life = life, .chunk_bytes = chunk_bytes, .chunk_count = chunk_count};
}

/* ---- grants ---- */

/* All places up to this one take no more messages. */
static void close_to(struct outbox *outbox, uint64_t last) {
    for (uint32_t i = 0; i < outbox->count; i++) {
        if (place_at(outbox, i)->grant.place <= last)
            place_at(outbox, i)->closed = true;
    }
}

static bool grant_new(struct outbox *outbox, const struct room_grant *grant) {
    if (outbox->count == OUTBOX_PLACES || grant->end != 0)
        return false;
    *place_at(outbox, outbox->count++) = (struct outbox_place){.grant = *grant, .named = true};
    outbox->last = grant->place;
    outbox->grants++;
    return true;
}

bool outbox_grant(struct outbox *outbox, const struct room_grant *grant) {
    if (grant->chunk >= outbox->chunk_count || grant->end > outbox->chunk_bytes ||
        grant->end % ROOM_LINE != 0)
        return false;
    struct outbox_place *place = find(outbox, grant->place);
    if (place == NULL && grant->place > outbox->last && !grant_new(outbox, grant))
        return false;
    if (place != NULL) {
        if (place->grant.secret != grant->secret || place->grant.chunk != grant->chunk ||
            grant->end > place->told || (outbox->asking && grant->end < place->sure))
            return false;
        place->grant.keep = grant->keep;
        place->grant.called |= grant->called;
        if (outbox->asking) {
            place->named = true;
            place->grant.end = grant->end;
        }
    }
    if (grant->called)
        close_to(outbox, grant->place);
    return true;
}

bool outbox_want(struct outbox *outbox, uint64_t bytes, uint64_t *grants_out) {
    uint64_t room = 0, more = 0;
    for (uint32_t i = outbox->filling; i < outbox->count; i++) {
        const struct outbox_place *place = place_at(outbox, i);
        room += place->closed ? 0 : outbox->chunk_bytes - place->used;
    }
    if (bytes > room)
        more = (bytes - room - 1) / outbox->chunk_bytes + 1;
    if (more > OUTBOX_PLACES - outbox->count)
        more = OUTBOX_PLACES - outbox->count;
    if (outbox->asking || outbox->grants + more == outbox->wanted ||
        (more == 0 && outbox->wanted <= outbox->grants))
        return false;
    outbox->wanted = outbox->grants + more;
    *grants_out = outbox->wanted;
    return true;
}

/* ---- messages ---- */

bool outbox_room(struct outbox *outbox, uint32_t length) {
    uint32_t bytes = room_bytes(length);
    if (outbox->asking)
        return false;
    for (; outbox->filling < outbox->count; outbox->filling++) {
        struct outbox_place *place = place_at(outbox, outbox->filling);
        if (!place->closed && outbox->chunk_bytes - place->used >= bytes)
            return true;
        place->closed = true;
    }
    return false;
}

void outbox_put(struct outbox *outbox, uint32_t length, struct outbox_spot *spot_out) {
    struct outbox_place *place = place_at(outbox, outbox->filling);
    uint32_t bytes = room_bytes(length);
    assert(!place->closed && outbox->chunk_bytes - place->used >= bytes);
    *spot_out = (struct outbox_spot){.place = place->grant.place,
                                     .mark = room_mark(place->grant.secret, place->used),
                                     .chunk = place->grant.chunk,
                                     .offset = place->used,
                                     .end = place->used + bytes,
                                     .session = outbox->session};
    place->used += bytes;
}

void outbox_ready(struct outbox *outbox, const struct outbox_spot *spot) {
    struct outbox_place *place = place_at(outbox, outbox->getting_ready);
    if (spot->session != outbox->session)
        return;
    while (place->grant.place < spot->place && outbox->getting_ready + 1 < outbox->count) {
        place->ready = place->used;
        place = place_at(outbox, ++outbox->getting_ready);
    }
    if (place->grant.place == spot->place && place->ready < spot->end)
        place->ready = spot->end;
}

void outbox_idle(struct outbox *outbox) {
    for (uint32_t i = outbox->filling; i < outbox->count; i++) {
        struct outbox_place *place = place_at(outbox, i);
        place->closed |= !place->grant.keep;
    }
}

/* ---- telling ---- */

bool outbox_tell(struct outbox *outbox, struct room_told *told_out) {
    for (uint32_t i = 0; i < outbox->count && !outbox->asking; i++) {
        struct outbox_place *place = place_at(outbox, i);
        bool closing = place->closed && place->ready == place->used;
        if (place->told != place->ready || (closing && !place->closed_told)) {
            place->told = place->ready;
            place->closed_told = closing;
            *told_out = (struct room_told){.place = place->grant.place,
                                           .chunk = place->grant.chunk,
                                           .end = place->told,
                                           .closed = closing};
            return true;
        }
    }
    return false;
}

/* Forgets the places that are over, from the front. */
static void drop(struct outbox *outbox) {
    while (outbox->count > 0 && place_at(outbox, 0)->over) {
        outbox->first = (outbox->first + 1) % OUTBOX_PLACES;
        outbox->count--;
        outbox->filling -= outbox->filling > 0;
        outbox->getting_ready -= outbox->getting_ready > 0;
    }
}

void outbox_sure(struct outbox *outbox, uint32_t session, const struct room_told *told) {
    struct outbox_place *place = find(outbox, told->place);
    if (place == NULL || session != outbox->session)
        return;
    if (told->end > place->sure)
        place->sure = told->end;
    place->over |= told->closed;
    drop(outbox);
}

/* ---- sessions ---- */

void outbox_broken(struct outbox *outbox) {
    outbox->asking = true;
    outbox->session++;
    for (uint32_t i = 0; i < outbox->count; i++)
        place_at(outbox, i)->named = false;
}

bool outbox_settled(struct outbox *outbox) {
    uint32_t left = 0;
    bool first = true;
    for (uint32_t i = 0; i < outbox->count; i++) {
        const struct outbox_place *place = place_at(outbox, i);
        /* No receiver closes a place by itself, or hears of one before the one in front of it. */
        if (place->named ? !first && place->grant.end > 0 : !place->closed_told)
            return false;
        first &= !place->named;
    }
    for (uint32_t i = 0; i < outbox->count; i++) {
        struct outbox_place place = *place_at(outbox, i);
        if (!place.named)
            continue;
        uint32_t end = place.grant.end;
        /* One that was closed for a message that did not fit may be filled again. */
        place.closed = place.grant.called || (place.closed && place.used == end);
        place.used = place.ready = place.told = place.sure = end;
        place.closed_told = place.over = false;
        *place_at(outbox, left++) = place;
    }
    outbox->count = left;
    outbox->filling = outbox->getting_ready = 0;
    outbox->wanted = outbox->grants;
    outbox->asking = false;
    return true;
}

bool outbox_arrived(const struct outbox *outbox, uint64_t place, uint32_t offset) {
    for (uint32_t i = 0; i < outbox->count; i++) {
        const struct outbox_place *at = peek_at(outbox, i);
        if (at->grant.place == place)
            return offset < at->grant.end;
    }
    return true;
}

/* ---- invariants ---- */

const char *outbox_verify(const struct outbox *outbox) {
    uint64_t before = 0;
    if (outbox->count > OUTBOX_PLACES || outbox->filling > outbox->count)
        return "more places than there is room for";
    for (uint32_t i = 0; i < outbox->count; i++) {
        const struct outbox_place *place = peek_at(outbox, i);
        if (place->grant.place <= before || place->grant.place > outbox->last)
            return "places are out of order";
        before = place->grant.place;
        if (place->used > outbox->chunk_bytes || place->ready > place->used ||
            place->told > place->ready || place->sure > place->told)
            return "a place is filled beyond what was put there";
        if (place->used != 0 && i > outbox->filling)
            return "a place was filled before its turn";
        if (!place->closed && i < outbox->filling)
            return "a place was passed over";
        if (place->ready != place->used && i < outbox->getting_ready)
            return "a message was told of before one in front of it";
    }
    return NULL;
}
