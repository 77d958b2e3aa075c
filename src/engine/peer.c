/* peer.c: who is there: peers, their control connections, their endpoints.
 *
 * Owns the way from an address to an instance (dial, WHO, IAM), the routing of
 * control messages to endpoint machines, and the performance of their effects. A
 * peer that the application opened keeps its slot and its address when the engine
 * behind it is replaced: its `owner` changes, so that memory and transfers of the
 * dead incarnation are stale. One that connected by itself lives as long as its
 * instance. When an opened address turns out to be an instance that has a slot
 * already, the opened one becomes an alias of it.
 *
 * Events for an endpoint that come up while its effects are being performed are
 * noted in the peer (want_due, broken_due, ...) and worked off in pump().
 */
#include "own.h"
#include "state.h"

#include <assert.h>

enum { DIAL_PAUSE_NS = 20 * 1000 * 1000, DIAL_PAUSE_MAX_NS = 500 * 1000 * 1000 };

static uint32_t index_of(const weir_engine *engine, const struct peer *peer) {
    return (uint32_t)(peer - engine->peers);
}

/* ---- slots ------------------------------------------------------------- */

struct peer *peer_find(weir_engine *engine, uint64_t id) {
    uint32_t index = handle_index(id);
    if (id == 0 || index >= engine->peers_max || engine->peers[index].id != id)
        return NULL;
    return &engine->peers[index];
}

struct peer *peer_resolve(weir_engine *engine, struct peer *peer) {
    return peer->alias == NONE ? peer : &engine->peers[peer->alias];
}

uint64_t peer_handle(weir_engine *engine, const struct peer *peer) {
    return peer->known_as == NONE ? peer->id : engine->peers[peer->known_as].id;
}

static bool dialable(const char *address) {
    return address[0] != '\0' && strncmp(address, "0.0.0.0:", 8) != 0 &&
           strncmp(address, "[::]:", 5) != 0;
}

/* A free slot that remembers this instance, or else the one that is free longest. */
static uint32_t slot_take(weir_engine *engine, const uint8_t *instance) {
    uint32_t before = NONE;
    uint32_t index = engine->peer_free;
    while (instance != NULL && index != NONE &&
           memcmp(engine->peers[index].past.instance, instance, WIRE_INSTANCE_SIZE) != 0) {
        before = index;
        index = engine->peers[index].next_free;
    }
    if (index == NONE) {
        before = NONE;
        index = engine->peer_free;
    }
    if (index == NONE)
        return NONE;
    uint32_t next = engine->peers[index].next_free;
    if (before == NONE)
        engine->peer_free = next;
    else
        engine->peers[before].next_free = next;
    if (engine->peer_free_last == index)
        engine->peer_free_last = before;
    return index;
}

static void slot_give(weir_engine *engine, uint32_t index) {
    engine->peers[index].next_free = NONE;
    if (engine->peer_free == NONE)
        engine->peer_free = index;
    else
        engine->peers[engine->peer_free_last].next_free = index;
    engine->peer_free_last = index;
}

/* Under tables_lock. instance: of the peer, if known already; NULL. */
struct peer *peer_new(weir_engine *engine, const char *address, const uint8_t *instance) {
    uint32_t index = slot_take(engine, instance);
    if (index == NONE)
        return NULL;
    struct peer *peer = &engine->peers[index];
    uint64_t id = peer->id_next != 0 ? peer->id_next : handle_first(index);
    uint32_t incarnation = peer->incarnation + 1;
    struct past past = peer->past;
    memset(peer, 0, sizeof(*peer));
    peer->past = past;
    peer->id = id;
    peer->incarnation = incarnation;
    peer->owner = region_owner(index, incarnation);
    peer->alias = peer->known_as = peer->live = NONE;
    peer->dialable = dialable(address);
    for (int l = 0; l < LISTS; l++)
        peer->lists[l] = (struct list){NONE, NONE, 0};
    memcpy(peer->address, address, strnlen(address, WEIR_ADDRESS_MAX - 1));
    memset(engine->instances[index], 0, WIRE_INSTANCE_SIZE);
    if (index >= engine->peers_used)
        engine->peers_used = index + 1;
    return peer;
}

struct peer *peer_by_instance(weir_engine *engine, const uint8_t *instance) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        if (memcmp(engine->instances[i], instance, WIRE_INSTANCE_SIZE) == 0 &&
            engine->peers[i].known)
            return &engine->peers[i];
    }
    return NULL;
}

static struct peer *by_address(weir_engine *engine, const char *address) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id != 0 && peer->refs > 0 && strcmp(peer->address, address) == 0)
            return peer;
    }
    return NULL;
}

void peer_update_fast(weir_engine *engine, struct peer *peer) {
    peer->fast_qp = NULL;
    if (peer->live == NONE || !engine->caps.completes_inline || engine->closing ||
        peer->lists[LIST_PENDING].count > 0)
        return;
    struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    if (qp->connected && !qp->blocked && qp->drain.state == DRAIN_IDLE)
        peer->fast_qp = qp;
}

/* Marks the remote memories of `owner` that are not of `instance` (NULL: all) dead,
 * and gives the others to `heir`. */
static void remotes_pass(weir_engine *engine, uint64_t owner, const uint8_t *instance,
                         uint64_t heir) {
    engine->regions.version++;
    for (uint32_t i = 0; i < engine->regions.remote_count; i++) {
        struct region_remote *remote = &engine->regions.remotes[i];
        if (remote->live && remote->owner == owner)
            remote->owner =
                instance != NULL && memcmp(remote->instance, instance, WIRE_INSTANCE_SIZE) == 0
                    ? heir
                    : 0;
    }
}

/* ---- control messages out ---------------------------------------------- */

static void on_closed(weir_engine *engine, uint64_t conn, int error);

static void send_bytes(weir_engine *engine, uint64_t conn, const uint8_t *data, uint32_t length,
                       bool again) {
    if (conn == 0)
        return;
    int rc = engine->ports.control.ops->send(engine->ports.control.self, conn, data, length);
    if (rc == WEIR_OK) {
        engine->stats.control_sent++;
        engine->stats.control_retransmits += again;
    } else if (rc == WEIR_ECONNECT) {
        on_closed(engine, conn, rc); /* its CLOSED event was not polled yet, or was lost */
    }
}

static void send_identity(weir_engine *engine, uint64_t conn, enum wire_type type,
                          const uint8_t *to, bool again) {
    struct wire_message message = {.type = type};
    memcpy(message.from, engine->instance, WIRE_INSTANCE_SIZE);
    if (to != NULL)
        memcpy(message.to, to, WIRE_INSTANCE_SIZE);
    if (engine->listening && dialable(engine->address))
        memcpy(message.address, engine->address, sizeof(message.address));
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;
    if (wire_encode(&message, bytes, sizeof(bytes), &length) == WEIR_OK)
        send_bytes(engine, conn, bytes, length, again);
}

/* Gives up the use of a connection; closes it unless another peer lives on it (one
 * that was replaced may have dialled what its successor speaks on). */
static void hangup(weir_engine *engine, struct peer *peer, uint64_t *conn) {
    uint64_t number = *conn;
    *conn = 0;
    if (number == 0)
        return;
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        const struct peer *other = &engine->peers[i];
        if (other->id != 0 && (other->conn_dialled == number || other->conn_accepted == number))
            return;
    }
    if (peer->conn_last == number)
        peer->conn_last = 0;
    engine->ports.control.ops->hangup(engine->ports.control.self, number);
}

/* ---- dialling ---------------------------------------------------------- */

static void set_timer(weir_engine *engine, struct peer *peer) {
    uint64_t when = peer->dial != DIAL_NONE ? peer->dial_next_ns : UINT64_MAX;
    if (peer->dial != DIAL_NONE && peer->dial_deadline_ns < when)
        when = peer->dial_deadline_ns;
    if (peer->known && endpoint_deadline(&peer->endpoint) < when)
        when = endpoint_deadline(&peer->endpoint);
    timer_peer(engine, peer, when);
}

static void dial_fail(weir_engine *engine, struct peer *peer, int error) {
    peer->dial = DIAL_NONE;
    hangup(engine, peer, &peer->conn_dialled);
    peer->conn_last = peer->conn_accepted;
    if (!peer->known)
        transfer_fail_all(engine, peer, error, true);
    else if (peer->conn_accepted == 0) /* else it has called us meanwhile, and is there */
        peer_dead(engine, peer, error);
    set_timer(engine, peer);
}

static void dial_call(weir_engine *engine, struct peer *peer) {
    peer->dial = DIAL_CALLING;
    peer->dial_next_ns = UINT64_MAX;
    int rc = engine->ports.control.ops->dial(engine->ports.control.self, peer->address,
                                             &peer->conn_dialled);
    if (rc == WEIR_EADDRESS) {
        dial_fail(engine, peer, rc);
        return;
    }
    if (rc != WEIR_OK) {
        peer->conn_dialled = 0;
        peer->dial = DIAL_PAUSE;
        peer->dial_next_ns = engine_now(engine) + peer->dial_pause_ns;
    }
    set_timer(engine, peer);
}

static void dial_start(weir_engine *engine, struct peer *peer) {
    if (peer->dial != DIAL_NONE)
        return;
    peer->dial_deadline_ns = engine_now(engine) + engine->options.connect_timeout_ns;
    peer->dial_pause_ns = DIAL_PAUSE_NS;
    hangup(engine, peer, &peer->conn_dialled);
    dial_call(engine, peer);
}

static void dial_again_later(weir_engine *engine, struct peer *peer) {
    peer->conn_dialled = 0;
    peer->dial = DIAL_PAUSE;
    peer->dial_next_ns = engine_now(engine) + peer->dial_pause_ns;
    if (peer->dial_pause_ns < DIAL_PAUSE_MAX_NS)
        peer->dial_pause_ns *= 2;
    set_timer(engine, peer);
}

static void dial_ask(weir_engine *engine, struct peer *peer, bool again) {
    send_identity(engine, peer->conn_dialled, WIRE_WHO, NULL, again);
    if (!again)
        peer->dial_pause_ns = engine->options.retransmit_ns;
    else if (peer->dial_pause_ns < DIAL_PAUSE_MAX_NS)
        peer->dial_pause_ns *= 2;
    peer->dial = DIAL_ASKING;
    peer->dial_next_ns = engine_now(engine) + peer->dial_pause_ns;
    set_timer(engine, peer);
}

static void dial_timer(weir_engine *engine, struct peer *peer, uint64_t now) {
    if (peer->dial == DIAL_NONE)
        return;
    if (now >= peer->dial_deadline_ns)
        dial_fail(engine, peer, WEIR_ECONNECT);
    else if (now >= peer->dial_next_ns && peer->dial == DIAL_PAUSE)
        dial_call(engine, peer);
    else if (now >= peer->dial_next_ns && peer->dial == DIAL_ASKING)
        dial_ask(engine, peer, true);
}

/* ---- the endpoint ------------------------------------------------------ */

static void settled(weir_engine *engine, struct peer *peer, const struct ep_effect *effect) {
    if (effect->epoch > peer->settled_epoch)
        peer->settled_epoch = effect->epoch;
    peer->settled = *effect->settled;
    transfer_unpark(engine, peer);
}

static void up(weir_engine *engine, struct peer *peer, uint32_t slot) {
    peer->live = slot;
    peer->sessions_up++;
    engine->stats.sessions_up++;
    if (!peer->was_up)
        engine_event(engine, WEIR_EVENT_UP, peer, 0);
    else if (peer->degraded)
        engine_event(engine, WEIR_EVENT_RECOVERED, peer, 0);
    peer->was_up = true;
    peer->degraded = false;
    peer_update_fast(engine, peer);
    engine_run_later(engine, peer);
    /* An address has one engine: whoever had this one before is gone. */
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *other = &engine->peers[i];
        if (other != peer && other->known && peer->address[0] != '\0' &&
            strcmp(other->address, peer->address) == 0)
            peer_dead(engine, other, WEIR_EPEER);
    }
}

static void gone(weir_engine *engine, struct peer *peer, int error) {
    if (peer->leaving)
        return;
    peer->leaving = true;
    peer->live = NONE;
    peer->fast_qp = NULL;
    engine->stats.peers_gone++;
    if (peer->was_up || peer->refs > 0)
        engine_event(engine, WEIR_EVENT_GONE, peer, error);
    tables_lock(engine);
    remotes_pass(engine, peer->owner, NULL, 0);
    peer->incarnation++;
    peer->owner = region_owner(index_of(engine, peer), peer->incarnation);
    tables_unlock(engine);
    transfer_fail_all(engine, peer, error, true);
    peer_abandon(engine, peer, UINT64_MAX, error);
}

/* Nobody will say any more what became of our sessions up to `epoch`. */
void peer_abandon(weir_engine *engine, struct peer *peer, uint64_t epoch, int error) {
    if (epoch > peer->abandoned_epoch) {
        peer->abandoned_epoch = epoch;
        peer->abandoned_error = error;
    }
    transfer_unpark(engine, peer);
}

static void failed(weir_engine *engine, struct peer *peer, int error) {
    if (peer->live == NONE)
        transfer_fail_all(engine, peer, error, false);
}

/* Performs one effect; true if it has an answer, which is *answer_out then. */
static bool perform(weir_engine *engine, struct peer *peer, const struct ep_effect *effect,
                    struct wire_qp_set *local, struct ep_event *answer_out) {
    int rc;
    switch (effect->type) {
    case EP_DO_SEND:
        if (peer->conn_last == 0 && peer->dialable)
            dial_start(engine, peer);
        send_bytes(engine, peer->conn_last, effect->data, effect->length, effect->retransmit);
        return false;
    case EP_DO_CREATE:
        rc = session_create(engine, peer, effect->slot, effect->epoch, local);
        if (rc == WEIR_ENOMEM)
            rc = WEIR_EAGAIN; /* QPs that drain now may make room: tried again until the deadline */
        *answer_out = (struct ep_event){.type = rc == WEIR_OK ? EP_EV_QPS_READY : EP_EV_QPS_FAILED,
                                        .slot = effect->slot,
                                        .error = rc,
                                        .local = local};
        return true;
    case EP_DO_CONNECT:
        rc = session_connect(engine, peer, effect);
        *answer_out =
            (struct ep_event){.type = rc == WEIR_OK ? EP_EV_CONNECTED : EP_EV_CONNECT_FAILED,
                              .slot = effect->slot,
                              .error = rc};
        return true;
    case EP_DO_UP:
        up(engine, peer, effect->slot);
        return false;
    case EP_DO_RETIRE:
        session_retire(engine, peer, effect->slot);
        return false;
    case EP_DO_SETTLED:
        settled(engine, peer, effect);
        return false;
    case EP_DO_FAILED:
        failed(engine, peer, effect->error);
        return false;
    case EP_DO_GONE:
        gone(engine, peer, effect->error);
        return false;
    }
    return false;
}

static void step(weir_engine *engine, struct peer *peer, struct ep_event event) {
    struct wire_qp_set local;
    struct ep_effect effects[EP_EFFECTS_MAX];
    bool more = true;
    while (more) {
        more = false;
        uint64_t stale = peer->endpoint.stale;
        uint32_t count = endpoint_step(&peer->endpoint, &event, engine_now(engine), effects);
        engine->stats.control_stale += peer->endpoint.stale - stale;
        for (uint32_t i = 0; i < count; i++)
            more = perform(engine, peer, &effects[i], &local, &event);
    }
}

static bool take_due(struct peer *peer, struct ep_event *event) {
    if (peer->drained_due != 0) {
        uint32_t slot = (uint32_t)__builtin_ctz(peer->drained_due);
        peer->drained_due &= (uint8_t)(peer->drained_due - 1);
        *event = (struct ep_event){.type = EP_EV_DRAINED, .slot = slot};
    } else if (peer->dead_due != 0) {
        *event = (struct ep_event){.type = EP_EV_PEER_DEAD, .error = peer->dead_due};
        peer->dead_due = 0;
    } else if (peer->broken_due != 0) {
        uint32_t slot = (uint32_t)__builtin_ctz(peer->broken_due);
        peer->broken_due &= (uint8_t)(peer->broken_due - 1);
        *event = (struct ep_event){.type = EP_EV_BROKEN, .slot = slot};
    } else if (peer->want_due) {
        peer->want_due = false;
        *event = (struct ep_event){.type = EP_EV_WANT};
    } else {
        return false;
    }
    return true;
}

/* One event (or none: NULL), then all that came up meanwhile. */
static void pump(weir_engine *engine, struct peer *peer, const struct ep_event *first) {
    if (peer->pumping)
        return;
    assert(peer->known);
    peer->pumping = true;
    if (first != NULL)
        step(engine, peer, *first);
    struct ep_event event;
    while (take_due(peer, &event))
        step(engine, peer, event);
    peer->pumping = false;
    engine->worked = true;
    set_timer(engine, peer);
    peer_reap(engine, peer);
}

void peer_broken(weir_engine *engine, struct peer *peer, uint32_t slot) {
    peer->broken_due |= (uint8_t)(1u << slot);
    pump(engine, peer, NULL);
}

void peer_drained(weir_engine *engine, struct peer *peer, uint32_t slot) {
    /* A session that broke and drained before the endpoint heard of the first. */
    peer->broken_due &= (uint8_t) ~(1u << slot);
    peer->drained_due |= (uint8_t)(1u << slot);
    pump(engine, peer, NULL);
}

void peer_dead(weir_engine *engine, struct peer *peer, int error) {
    if (!peer->known || peer->leaving)
        return;
    peer->dead_due = error;
    pump(engine, peer, NULL);
}

/* Somebody here needs a session with this peer. */
void peer_want(weir_engine *engine, struct peer *peer) {
    if (peer->leaving || peer->live != NONE)
        return; /* peer_reap asks again */
    if (peer->known) {
        peer->want_due = true;
        pump(engine, peer, NULL);
    } else if (peer->dialable) {
        dial_start(engine, peer);
    } else {
        transfer_fail_all(engine, peer, WEIR_EPEER, true);
    }
}

static void window_of(void *self, struct wire_settled *out) {
    const struct peer *peer = self;
    out->base = peer->received.base;
    memcpy(out->bits, peer->received.bits, sizeof(out->bits));
}

/* The peer is this instance. */
static void bind_peer(weir_engine *engine, struct peer *peer, const uint8_t *instance) {
    memcpy(peer->instance, instance, WIRE_INSTANCE_SIZE);
    memcpy(engine->instances[index_of(engine, peer)], instance, WIRE_INSTANCE_SIZE);
    peer->known = true;
    struct ep_options options = {
        .epoch_counter = &engine->epoch_counter,
        .connect_timeout_ns = engine->options.connect_timeout_ns,
        .retransmit_ns = engine->options.retransmit_ns,
        .window = window_of,
        .self = peer,
    };
    memcpy(options.instance_local, engine->instance, WIRE_INSTANCE_SIZE);
    memcpy(options.instance_remote, instance, WIRE_INSTANCE_SIZE);
    endpoint_init(&peer->endpoint, &options);
    /* It may be one that we gave up while it never noticed: what it sent before is not
     * delivered twice, and our numbers go on above all that it has seen. */
    peer->received = (struct window){0};
    if (memcmp(peer->past.instance, instance, WIRE_INSTANCE_SIZE) == 0)
        peer->received = peer->past.received;
    peer->sent = (struct window){.base = engine->number_floor};
    peer->number_next = peer->sent.base + 1;
    tables_lock(engine);
    remotes_pass(engine, peer->owner, instance, peer->owner);
    tables_unlock(engine);
    transfer_rebind(engine, peer);
}

/* `opened` was dialled and turned out to be `known`, which has a slot already. */
static void make_alias(weir_engine *engine, struct peer *opened, struct peer *known) {
    tables_lock(engine);
    remotes_pass(engine, opened->owner, known->instance, known->owner);
    opened->alias = index_of(engine, known);
    tables_unlock(engine);
    if (known->refs == 0 && known->known_as == NONE)
        known->known_as = index_of(engine, opened);
    if (known->conn_dialled == 0) {
        known->conn_dialled = opened->conn_dialled;
        if (known->conn_last == 0)
            known->conn_last = known->conn_dialled;
    } else {
        hangup(engine, opened, &opened->conn_dialled);
    }
    opened->conn_dialled = opened->conn_last = 0;
    if (!known->dialable) {
        memcpy(known->address, opened->address, sizeof(known->address));
        known->dialable = true;
    }
    while (opened->lists[LIST_PENDING].head != NONE) {
        struct transfer *transfer = &engine->transfers[opened->lists[LIST_PENDING].head];
        list_remove(engine, transfer);
        transfer->owner = known->owner;
        list_push(engine, known, transfer, LIST_PENDING);
    }
    transfer_rebind(engine, known);
    if (known->lists[LIST_PENDING].count > 0) {
        peer_want(engine, known);
        engine_run_later(engine, known);
    }
}

/* The instance is known and there is a way to it: connect, if anybody waits. */
static void reachable(weir_engine *engine, struct peer *peer) {
    if (peer->lists[LIST_PENDING].count > 0 || peer->wanted)
        peer_want(engine, peer);
    set_timer(engine, peer);
}

static void learned(weir_engine *engine, struct peer *peer, const uint8_t *instance) {
    if (peer->known && memcmp(peer->instance, instance, WIRE_INSTANCE_SIZE) != 0) {
        peer_dead(engine, peer, WEIR_EPEER);
        return;
    }
    if (peer->known) {
        reachable(engine, peer);
        return;
    }
    struct peer *other = peer_by_instance(engine, instance);
    if (other != NULL) {
        make_alias(engine, peer, other);
        return;
    }
    bind_peer(engine, peer, instance);
    reachable(engine, peer);
}

/* A peer whose instance is gone and whose sessions are drained is forgotten, or
 * starts over as an address. */
void peer_reap(weir_engine *engine, struct peer *peer) {
    if (!peer->known || !peer->leaving || peer->pumping || !endpoint_quiet(&peer->endpoint) ||
        peer->lists[LIST_POSTED].count > 0 || peer->lists[LIST_PARKED].count > 0 || engine->closing)
        return;
    uint32_t index = index_of(engine, peer);
    hangup(engine, peer, &peer->conn_dialled);
    hangup(engine, peer, &peer->conn_accepted);
    peer->conn_last = 0;
    peer->dial = DIAL_NONE;
    peer->known = peer->leaving = peer->was_up = peer->degraded = false;
    memcpy(peer->past.instance, peer->instance, WIRE_INSTANCE_SIZE);
    peer->past.received = peer->received;
    if (peer->number_next > engine->number_floor)
        engine->number_floor = (peer->number_next + 63) & ~(uint64_t)63;
    memset(engine->instances[index], 0, WIRE_INSTANCE_SIZE);
    memset(peer->instance, 0, WIRE_INSTANCE_SIZE);
    peer->abandoned_epoch = 0;
    peer->settled_epoch = 0;
    memset(peer->parts, 0, sizeof(peer->parts));
    timer_peer(engine, peer, UINT64_MAX);
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        if (engine->peers[i].alias == index) {
            tables_lock(engine);
            engine->peers[i].alias = NONE;
            tables_unlock(engine);
        }
    }
    peer->known_as = NONE;
    if (peer->refs > 0) {
        if (peer->lists[LIST_PENDING].count > 0)
            peer_want(engine, peer);
        return;
    }
    transfer_fail_all(engine, peer, WEIR_EPEER, true);
    peer_forget(engine, peer);
}

/* Frees the slot of a peer that nothing refers to. */
void peer_forget(weir_engine *engine, struct peer *peer) {
    if (peer->held > 0 || peer->waits > 0 || peer->known || peer->refs > 0 || peer->id == 0)
        return;
    hangup(engine, peer, &peer->conn_dialled);
    peer->dial = DIAL_NONE;
    timer_peer(engine, peer, UINT64_MAX);
    tables_lock(engine);
    remotes_pass(engine, peer->owner, NULL, 0);
    peer->id_next = handle_next(peer->id);
    peer->id = 0;
    tables_unlock(engine);
    slot_give(engine, index_of(engine, peer));
}

/* The application gave its last reference back. */
void peer_closed(weir_engine *engine, struct peer *peer) {
    uint32_t index = index_of(engine, peer);
    if (peer->alias != NONE) {
        struct peer *known = &engine->peers[peer->alias];
        if (known->known_as == index)
            known->known_as = NONE;
        tables_lock(engine);
        peer->alias = NONE;
        tables_unlock(engine);
    }
    transfer_fail_all(engine, peer, WEIR_ECLOSED, true);
    tables_lock(engine);
    remotes_pass(engine, peer->owner, NULL, 0);
    uint64_t id = peer->id;
    peer->id = handle_next(id);
    tables_unlock(engine);
    if (!peer->known)
        peer_forget(engine, peer);
}

void peer_timer(weir_engine *engine, struct peer *peer) {
    uint64_t now = engine_now(engine);
    dial_timer(engine, peer, now);
    if (peer->known && now >= endpoint_deadline(&peer->endpoint))
        pump(engine, peer, &(struct ep_event){.type = EP_EV_TIMER});
    else
        set_timer(engine, peer);
}

/* ---- control messages in ----------------------------------------------- */

/* A peer for an instance that we have not met, which spoke to us from `address`. */
static struct peer *meet(weir_engine *engine, const uint8_t *instance, const char *address) {
    if (engine->closing)
        return NULL;
    struct peer *peer = address[0] != '\0' ? by_address(engine, address) : NULL;
    if (peer == NULL || peer->known || peer->alias != NONE) {
        tables_lock(engine);
        peer = peer_new(engine, address, instance);
        tables_unlock(engine);
        if (peer == NULL)
            return NULL;
    }
    bind_peer(engine, peer, instance);
    return peer;
}

static void on_who(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    struct peer *peer = peer_by_instance(engine, message->from);
    if (peer == NULL)
        peer = meet(engine, message->from, message->address);
    if (peer == NULL || peer->leaving)
        return;
    if (!peer->dialable && dialable(message->address)) {
        memcpy(peer->address, message->address, sizeof(peer->address));
        peer->dialable = true;
    }
    peer->conn_accepted = conn;
    peer->conn_last = conn;
    send_identity(engine, conn, WIRE_IAM, message->from, false);
    reachable(engine, peer);
}

static void on_iam(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id == 0 || peer->conn_dialled != conn)
            continue;
        if (peer->dial == DIAL_ASKING)
            peer->dial = DIAL_NONE;
        peer->conn_last = conn;
        learned(engine, peer, message->from);
        set_timer(engine, peer);
        return;
    }
    engine->stats.control_stale++;
}

static void on_message(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    engine->stats.control_received++;
    if (memcmp(message->from, engine->instance, WIRE_INSTANCE_SIZE) == 0 &&
        message->type != WIRE_WHO && message->type != WIRE_IAM) {
        engine->stats.control_stale++;
        return;
    }
    if (message->type == WIRE_WHO) {
        on_who(engine, conn, message);
        return;
    }
    if (memcmp(message->to, engine->instance, WIRE_INSTANCE_SIZE) != 0) {
        engine->stats.control_stale++;
        if (message->type != WIRE_IAM)
            send_identity(engine, conn, WIRE_IAM, message->from, false);
        return;
    }
    if (message->type == WIRE_IAM) {
        on_iam(engine, conn, message);
        return;
    }
    struct peer *peer = peer_by_instance(engine, message->from);
    if (peer == NULL && message->type == WIRE_HELLO)
        peer = meet(engine, message->from, "");
    if (peer == NULL) {
        engine->stats.control_stale++;
        return;
    }
    if (conn != peer->conn_dialled)
        peer->conn_accepted = conn;
    peer->conn_last = conn;
    pump(engine, peer, &(struct ep_event){.type = EP_EV_MESSAGE, .message = message});
}

static void on_closed(weir_engine *engine, uint64_t conn, int error) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id == 0 || (peer->conn_dialled != conn && peer->conn_accepted != conn))
            continue;
        if (peer->conn_accepted == conn)
            peer->conn_accepted = 0;
        if (peer->conn_dialled == conn) {
            peer->conn_dialled = 0;
            if (peer->dial != DIAL_NONE) {
                if (error == WEIR_EADDRESS)
                    dial_fail(engine, peer, error);
                else
                    dial_again_later(engine, peer);
            }
        }
        if (peer->conn_last == conn)
            peer->conn_last = peer->conn_dialled != 0 && peer->dial == DIAL_NONE
                                  ? peer->conn_dialled
                                  : peer->conn_accepted;
        if (!peer->known || peer->leaving || peer->conn_last != 0 || peer->dial != DIAL_NONE)
            continue;
        /* Who had a session may be dead: ask at its address, if it has one. */
        if (peer->dialable)
            dial_start(engine, peer);
        else
            peer_dead(engine, peer, WEIR_EPEER);
    }
}

static void on_connected(weir_engine *engine, uint64_t conn) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id != 0 && peer->conn_dialled == conn && peer->dial == DIAL_CALLING) {
            dial_ask(engine, peer, false);
            return;
        }
    }
}

/* Control events, up to budget; returns how many. */
int peer_control(weir_engine *engine, int budget) {
    const struct weir_control *control = &engine->ports.control;
    struct weir_control_event event;
    struct wire_message message;
    int count = 0;
    while (count < budget && control->ops->poll(control->self, &event) > 0) {
        count++;
        switch (event.type) {
        case WEIR_CONTROL_CONNECTED:
            on_connected(engine, event.conn);
            break;
        case WEIR_CONTROL_CLOSED:
            on_closed(engine, event.conn, event.error);
            break;
        case WEIR_CONTROL_MESSAGE:
            if (wire_decode(event.message, event.length, &message) == WEIR_OK) {
                on_message(engine, event.conn, &message);
            } else {
                engine->stats.control_malformed++;
                control->ops->hangup(control->self, event.conn);
                on_closed(engine, event.conn, WEIR_EPEER);
            }
            break;
        default:
            break;
        }
    }
    return count;
}

/* The engine leaves: BYE to all, every session retired. */
void peer_close_all(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id == 0)
            continue;
        transfer_fail_all(engine, peer, WEIR_ECLOSED, true);
        peer->dialable = false;
        if (peer->dial != DIAL_NONE) {
            peer->dial = DIAL_NONE;
            hangup(engine, peer, &peer->conn_dialled);
            peer->conn_last = peer->conn_accepted;
        }
        if (peer->known)
            pump(engine, peer, &(struct ep_event){.type = EP_EV_CLOSE, .error = WEIR_ECLOSED});
        peer_abandon(engine, peer, UINT64_MAX, WEIR_ECLOSED);
    }
}
