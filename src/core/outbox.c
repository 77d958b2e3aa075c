/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.c: see outbox.h. */
#include "outbox.h"

#include <assert.h>
#include <stddef.h>

/* With more places, shut ones that it was not told of among them, the receiver is told of these. */
enum { UNTOLD_MAX = OUTBOX_PLACES / 4 };

_Static_assert((OUTBOX_PLACES & (OUTBOX_PLACES - 1)) == 0, "places wrap");

static struct outbox_place *place_at(struct outbox *outbox, uint32_t i) {
    return &outbox->places[(outbox->first + i) % OUTBOX_PLACES];
}

static const struct outbox_place *peek_at(const struct outbox *outbox, uint32_t i) {
    return &outbox->places[(outbox->first + i) % OUTBOX_PLACES];
}

void outbox_init(struct outbox *outbox, uint32_t chunk_bytes, uint32_t chunk_count) {
    *outbox = (struct outbox){.chunk_bytes = chunk_bytes, .chunk_count = chunk_count};
}

/* ---- grants ---- */

static bool take_grant(struct outbox *outbox, const struct room_grant *grant) {
    if (grant->chunk >= outbox->chunk_count || grant->place <= outbox->last ||
        outbox->count == OUTBOX_PLACES)
        return false;
    if (outbox->grants++ == 0)
        outbox->first_secret = grant->secret;
    *place_at(outbox, outbox->count++) = (struct outbox_place){.grant = *grant};
    outbox->last = grant->place;
    return true;
}

bool outbox_grant(struct outbox *outbox, const struct room_grant *grant) {
    return (grant->place != 0 && grant->place <= outbox->renewed) || take_grant(outbox, grant);
}

bool outbox_had(const struct outbox *outbox, uint32_t i, uint32_t *chunk_out) {
    bool more = outbox->count < ROOM_UNASKED && i < outbox->had_count + outbox->filling;
    if (more)
        *chunk_out = i < outbox->had_count ? outbox->had[i]
                                           : peek_at(outbox, i - outbox->had_count)->grant.chunk;
    return more;
}

static void had_remove(struct outbox *outbox, uint32_t chunk) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < outbox->had_count; i++) {
        if (outbox->had[i] != chunk)
            outbox->had[kept++] = outbox->had[i];
    }
    outbox->had_count = kept;
}

static void had_add(struct outbox *outbox, uint32_t chunk) {
    had_remove(outbox, chunk);
    if (outbox->had_count == OUTBOX_PLACES)
        had_remove(outbox, outbox->had[0]);
    outbox->had[outbox->had_count++] = chunk;
}

bool outbox_renew(struct outbox *outbox, const struct room_grant *grant) {
    if (outbox->grants == 0 || !take_grant(outbox, grant))
        return false;
    outbox->renewed = grant->place;
    had_remove(outbox, grant->chunk);
    return true;
}

bool outbox_call(struct outbox *outbox, uint64_t place) {
    if (place > outbox->last)
        return false;
    for (uint32_t i = 0; i < outbox->count; i++)
        place_at(outbox, i)->called |= place_at(outbox, i)->grant.place <= place;
    return true;
}

/* So many grants are wanted in all. */
static uint64_t wanted(const struct outbox *outbox, uint64_t bytes) {
    uint64_t room = 0, more = 0;
    for (uint32_t i = outbox->filling; i < outbox->count; i++) {
        const struct outbox_place *place = peek_at(outbox, i);
        room += place->closed ? 0 : outbox->chunk_bytes - place->used;
    }
    if (bytes > room)
        more = (bytes - room - 1) / outbox->chunk_bytes + 1;
    if (more > OUTBOX_PLACES - outbox->count)
        more = OUTBOX_PLACES - outbox->count;
    return outbox->grants + more;
}

bool outbox_wants(const struct outbox *outbox, uint64_t bytes) {
    uint64_t wants = wanted(outbox, bytes);
    bool nothing = wants == outbox->grants && outbox->wanted <= outbox->grants;
    return wants != outbox->wanted && !nothing;
}

bool outbox_want(struct outbox *outbox, uint64_t bytes, uint64_t *grants_out) {
    if (!outbox_wants(outbox, bytes))
        return false;
    outbox->wanted = wanted(outbox, bytes);
    *grants_out = outbox->wanted;
    return true;
}

/* ---- messages ---- */

bool outbox_pass(struct outbox *outbox, uint32_t bytes) {
    for (; outbox->filling < outbox->count; outbox->filling++) {
        struct outbox_place *place = place_at(outbox, outbox->filling);
        if (!place->closed && outbox->chunk_bytes - place->used >= bytes)
            return true;
        place->closed = true;
    }
    return false;
}

void outbox_yield(struct outbox *outbox) {
    for (uint32_t i = 0; i < outbox->count; i++)
        place_at(outbox, i)->closed |= place_at(outbox, i)->called;
}

void outbox_idle(struct outbox *outbox) {
    for (uint32_t i = outbox->filling; i < outbox->count; i++)
        place_at(outbox, i)->closed |= !place_at(outbox, i)->grant.keep;
}

/* The first that is closed; count: none. The places in front of it are filled before it, and may be
 * open still. */
static uint32_t next_closed(const struct outbox *outbox) {
    uint32_t i = 0;
    while (i < outbox->count && !peek_at(outbox, i)->closed)
        i++;
    return i;
}

bool outbox_shuts(const struct outbox *outbox) {
    return next_closed(outbox) < outbox->count;
}

bool outbox_shuts_now(const struct outbox *outbox) {
    bool now = outbox->count > UNTOLD_MAX;
    for (uint32_t i = 0; !now && i < outbox->filling; i++)
        now = peek_at(outbox, i)->used < outbox->chunk_bytes;
    return now;
}

bool outbox_shut(struct outbox *outbox, struct room_shut *shut_out) {
    uint32_t i = next_closed(outbox);
    if (i == outbox->count)
        return false;
    const struct outbox_place *place = place_at(outbox, i);
    *shut_out = (struct room_shut){place->grant.place, place->grant.chunk, place->used};
    had_add(outbox, place->grant.chunk);
    for (uint32_t k = i; k > 0; k--) /* those in front of it move up */
        *place_at(outbox, k) = *place_at(outbox, k - 1);
    outbox->first = (outbox->first + 1) % OUTBOX_PLACES;
    outbox->count--;
    outbox->filling -= i < outbox->filling;
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
        if (place->used > outbox->chunk_bytes || place->grant.chunk >= outbox->chunk_count)
            return "a place is filled beyond its end";
        if (place->used != 0 && i > outbox->filling)
            return "a place was filled before its turn";
        if (!place->closed && i < outbox->filling)
            return "a place was passed over";
    }
    return NULL;
}
