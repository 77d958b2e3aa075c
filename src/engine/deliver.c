/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.c: accepted notifications on their way to the application.
 *
 * Owns how a notification is put into the application's queue, and the ring of *held* ones: the
 * queue had no room, and they wait in their receive buffers. complete.c accepts notifications, and
 * gives the buffers back.
 */
#include "deliver.h"

#include "notes.h"
#include "tables.h"

/* UP is told with the peer's first notification: it may send as soon as we can receive, and end
 * before its READY. A notification may also be found after the peer's end, while its sessions
 * drain. If UP was not told under the handle by then, it is, and the end behind it. If it was, the
 * rest of a peer's sessions brings no other: its last may come behind GONE. A peer that is told to
 * be up, and has no session, is connected, so that something follows: its session, or GONE. */
void deliver_tell(weir_engine *engine, struct peer *peer, bool over) {
    bool ended = peer->standing.state == STANDING_ENDED;
    if (standing_is_up(&peer->standing) || ((over || ended) && peer->standing.up_told))
        return;
    peer_tell(engine, standing_step(&peer->standing, STANDING_IN_DATA), peer, 0, 0);
    if (ended)
        peer_tell(engine, standing_step(&peer->standing, STANDING_IN_END), peer, peer->end_error,
                  0);
    else if (peer->live == NONE)
        note_want(engine, peer);
}

/* The next notification from *at on that is held of the peer's present instance; NULL: none. */
static struct held *held_of(weir_engine *engine, const struct peer *peer, uint32_t *at) {
    uint32_t index = peer_index(engine, peer);
    while (peer->held > 0 && *at < engine->held_count) {
        struct held *held = &engine->held[(engine->held_head + (*at)++) % engine->held_max];
        if (held->peer == index && held->from == 0)
            return held;
    }
    return NULL;
}

bool deliver_holds(weir_engine *engine, const struct peer *peer) {
    return held_of(engine, peer, &(uint32_t){0}) != NULL;
}

static void put(weir_engine *engine, weir_notification *out, uint64_t from, uint64_t tag,
                const uint8_t *payload, uint32_t length) {
    out->from.id = from;
    out->tag = tag;
    out->length = length;
    out->reserved = 0;
    memcpy(out->payload, payload, length);
    queue_put(&engine->notifications);
    engine->stats.notifications_received++;
    engine->worked = true;
}

bool deliver_own(weir_engine *engine, const struct peer *peer, uint64_t tag, const uint8_t *payload,
                 uint32_t length) {
    weir_notification *out = queue_room(&engine->notifications);
    if (out != NULL)
        put(engine, out, peer->handle, tag, payload, length);
    return out != NULL;
}

/* Puts an accepted notification into the application's queue; false: full. from: the handle of a
 * peer that has ended; else 0. */
bool deliver(weir_engine *engine, struct peer *peer, uint64_t from, const uint8_t *bytes) {
    weir_notification *out = queue_room(&engine->notifications);
    if (out == NULL)
        return false;
    struct wire_data data;
    int rc = wire_data_decode(bytes, wire_data_length(bytes), &data);
    assert(rc == WEIR_OK); /* it was decoded when it was accepted */
    (void)rc;
    if (from == 0)
        peer_told(peer);
    put(engine, out, from != 0 ? from : peer->handle, data.tag, bytes + WIRE_DATA_SIZE,
        data.payload_length);
    return true;
}

void deliver_later(weir_engine *engine, struct peer *peer, struct qp *qp, uint32_t buffer) {
    engine->held[(engine->held_head + engine->held_count) % engine->held_max] =
        (struct held){.qp = qp_index(engine, qp),
                      .life = qp->life,
                      .buffer = buffer,
                      .peer = peer_index(engine, peer)};
    engine->held_count++;
    qp->held++;
    peer->held++;
    /* A taker that makes room after this store sees held_some. Room that was made before is seen
     * here: both sides are sequentially consistent. */
    atomic_store(&engine->held_some, true);
    if (queue_room(&engine->notifications) != NULL)
        atomic_store(&engine->attention, true);
}

/* The peer has ended, and the handle that it was known by may come to name another instance: its
 * held notifications keep that handle. */
void deliver_ended(weir_engine *engine, const struct peer *peer) {
    struct held *held;
    uint32_t at = 0;
    while ((held = held_of(engine, peer, &at)) != NULL)
        held->from = peer->handle;
}
