/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c: the entries of peers, and the handles that name them.
 *
 * Owns how an entry is taken (peer.c frees it), which incarnation of a peer imported memory is of
 * (`party`), and which peer may be posted to inside a submit. The look-ups by instance, address and
 * connection are found.c's; when a peer comes and goes is peer.c's.
 */
#include "tables.h"

#include "agenda.h"
#include "found.h"
#include "news.h"

/* ---- handles ----------------------------------------------------------- */

struct peer *peer_find(weir_engine *engine, uint64_t id) {
    uint32_t index = handle_index(id);
    if (id == 0 || index >= engine->peers_max || engine->peers[index].id != id)
        return NULL;
    struct peer *peer = &engine->peers[index];
    return peer->nameless ? NULL : peer;
}

struct peer *peer_linked(weir_engine *engine, struct peer *peer) {
    return peer->alias == NONE ? peer : &engine->peers[peer->alias];
}

struct peer *peer_resolve(weir_engine *engine, struct peer *peer) {
    struct peer *known = peer_linked(engine, peer);
    return peer_is_leaving(known) ? peer : known;
}

bool address_dialable(const char *address) {
    return address[0] != '\0' && strncmp(address, "0.0.0.0:", 8) != 0 &&
           strncmp(address, "[::]:", 5) != 0;
}

void peer_stall_ends(weir_engine *engine, struct peer *peer) {
    peer->watch.ended_ns = engine_clock(engine);
    if (engine->watch_next_ns > peer->watch.ended_ns)
        engine->watch_next_ns = peer->watch.ended_ns;
}

static void stall_over(const weir_engine *engine, struct peer *peer) {
    struct watch *watch = &peer->watch;
    if (watch->told != 0)
        watch->lasted_ns =
            (watch->ended_ns != 0 ? watch->ended_ns : engine_clock(engine)) - watch->moved_ns;
    watch->told = watch->ended_ns = 0;
    watch->works = false;
    watch->absent_ns = 0;
    watch->behind = false;
}

void peer_tell(weir_engine *engine, weir_event_type type, struct peer *peer, int error,
               uint64_t value) {
    if (type == 0)
        return;
    if (type == WEIR_EVENT_GONE && (error == WEIR_EREFUSED || error == WEIR_ECONNECT) &&
        peer_is_known(peer))
        value = (uint64_t)endpoint_reason(&peer->endpoint);
    if (type != WEIR_EVENT_REFUSED)
        peer_told(peer);
    else if (peer->handle == peer->id && peer->told == TOLD_NOT)
        peer->told = TOLD_REFUSED;
    if (type == WEIR_EVENT_GONE) {
        stall_over(engine, peer);
        peer->watch.begun_ns = 0;
    }
    news_event(engine, type, peer->handle, error, value);
}

void peer_resumed(weir_engine *engine, struct peer *peer) {
    uint64_t told = peer->watch.told;
    if (told == 0)
        return;
    stall_over(engine, peer);
    news_event(engine, WEIR_EVENT_RESUMED, told, 0, peer->watch.lasted_ns);
}

/* ---- entries ----------------------------------------------------------- */

/* Under tables_lock. */
struct peer *peer_new(weir_engine *engine, const char *address) {
    uint32_t index = engine->peer_free;
    if (index == NONE)
        return NULL;
    struct peer *peer = &engine->peers[index];
    engine->peer_free = peer->next_free;
    uint64_t id = peer->id_next != 0 ? peer->id_next : handle_first(index);
    uint32_t incarnation = peer->incarnation;
    uint64_t closed_party = peer->closed_party;
    bool runnable = peer->runnable; /* its last user may have left it on the run list */
    uint32_t run_next = peer->run_next;
    bool inflight_waits = peer->inflight_waits; /* or in the line of inflight.c */
    uint32_t inflight_next = peer->inflight_next;
    bool noted = peer->noted; /* or on the list of noted peers; the notes themselves are dropped */
    uint32_t noted_next = peer->noted_next;
    bool stays = peer->stays;
    uint32_t stays_next = peer->stays_next;
    memset(peer, 0, sizeof(*peer));
    peer->inflight_waits = inflight_waits;
    peer->inflight_next = inflight_next;
    peer->noted = noted;
    peer->noted_next = noted_next;
    peer->stays = stays;
    peer->stays_next = stays_next;
    peer->closed_party = closed_party;
    peer->runnable = runnable;
    peer->run_next = run_next;
    peer->id = peer->handle = id;
    peer->incarnation = incarnation;
    peer->party = region_party(index, incarnation);
    peer->alias = peer->live = NONE;
    peer->parts = engine->parts + (size_t)index * WINDOW_SIZE;
    peer->watch.notes = engine->watch_notes + index;
    peer->dialable = address_dialable(address);
    for (int l = 0; l < LISTS; l++)
        peer->lists[l] = (struct list){NONE, NONE, 0};
    memcpy(peer->address, address, strnlen(address, WEIR_ADDRESS_MAX - 1));
    found_address(engine, peer);
    if (index >= engine->peers_used)
        engine->peers_used = index + 1;
    return peer;
}

/* The peer that the application opened under this address. */
struct peer *peer_by_address(weir_engine *engine, const char *address) {
    return found_at(engine, address, true, NULL);
}

/* The entry of an alias of this peer: another handle of the application's for it. NONE: none. */
uint32_t peer_open_alias(const weir_engine *engine, const struct peer *known) {
    return groups_first(&engine->found.aliases, peer_index(engine, known));
}

/* ---- what a submit may do ---------------------------------------------- */

void peer_update_fast(weir_engine *engine, struct peer *peer) {
    peer_not_fast(peer);
    if (peer->live == NONE || peer->loop || engine->closing || peer_pending(peer) > 0 ||
        peer_is_suspicious(peer) || peer->proving)
        return;
    peer->posts_at_once = !engine->caps.completes_inline;
    if (peer->posts_at_once)
        return;
    struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    if (qp_is_usable(qp))
        peer->fast_qp = qp;
}

void peer_proven(weir_engine *engine, struct peer *peer) {
    peer->proving = false;
    peer_update_fast(engine, peer);
    run_later(engine, peer);
}

/* ---- memory ------------------------------------------------------------ */

int local_describe(weir_engine *engine, uint64_t id, struct wire_descriptor *out) {
    const struct region_local *local = region_local(&engine->regions, id);
    if (local == NULL)
        return WEIR_ESTALE;
    if (local->access == 0)
        return WEIR_EACCESS;
    *out = (struct wire_descriptor){
        .memory_id = local->id, .length = local->length, .access = local->access};
    memcpy(out->instance, engine->instance, sizeof(out->instance));
    memcpy(out->device, engine->caps.name, sizeof(out->device));
    memcpy(out->fabric, engine->caps.fabric, sizeof(out->fabric));
    return engine->device_ops->mr_export(engine->device, &local->mr, out->blob, &out->blob_length);
}

/* ---- imported memory --------------------------------------------------- */

void remote_make_stale(weir_engine *engine, struct region_remote *remote) {
    tables_lock(engine);
    found_remote(engine, remote, 0);
    engine->regions.version++;
    tables_unlock(engine);
}

/* Marks the remote memories of `party` that are not of `instance` (NULL: all) dead,
 * and gives the others to `heir`. */
void peer_remotes_pass(weir_engine *engine, uint64_t party, const uint8_t *instance,
                       uint64_t heir) {
    uint32_t i = groups_first(&engine->found.remotes, (uint32_t)party);
    engine->regions.version++;
    while (i != NONE) {
        struct region_remote *remote = &engine->regions.remotes[i];
        bool stays =
            instance != NULL && memcmp(remote->instance, instance, WIRE_INSTANCE_SIZE) == 0;
        i = groups_next(&engine->found.remotes, i);
        found_remote(engine, remote, stays ? heir : 0);
    }
}

/* Under tables_lock: ends the present incarnation of the peer. Memories imported from it, and
 * transfers to it that are still on the submit queue, are a dead one's from here on. */
void peer_party_change(weir_engine *engine, struct peer *peer) {
    peer_remotes_pass(engine, peer->party, NULL, 0);
    peer->incarnation++;
    peer->party = region_party(peer_index(engine, peer), peer->incarnation);
}

void peer_disown(weir_engine *engine, struct peer *peer) {
    tables_lock(engine);
    peer_party_change(engine, peer);
    tables_unlock(engine);
}
