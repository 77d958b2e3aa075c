/* effects.c: the effects that the endpoint machine of a peer asks for, performed.
 *
 * Events for an endpoint that come up while its effects are being performed are noted
 * in the peer (want_due, broken_due, ...) and worked off in peer_pump(), so a machine is
 * never entered twice. Here a session comes up, breaks, and a peer is given up.
 */
#include "effects.h"

#include "agenda.h"
#include "conns.h"
#include "dial.h"
#include "found.h"
#include "peer.h"
#include "session.h"
#include "tables.h"
#include "transfer.h"

#include <assert.h>

static void settled(weir_engine *engine, struct peer *peer, const struct ep_effect *effect) {
    if (effect->epoch > peer->settled_epoch)
        peer->settled_epoch = effect->epoch;
    peer->settled = *effect->settled;
    if (effect->settled->broke <= effect->epoch)
        session_excuse(engine, peer, effect->settled->broke, effect->settled->reason);
    transfer_unpark(engine, peer);
}

static void up(weir_engine *engine, struct peer *peer, uint32_t slot) {
    if (peer->live != NONE)
        session_lost(engine, peer); /* this one takes its place */
    peer->live = slot;
    peer->sessions[slot].up = true;
    peer->sessions_up++;
    engine->stats.sessions_up++;
    if (!peer->was_up)
        peer_tell(engine, WEIR_EVENT_UP, peer, 0, 0);
    else if (peer->degraded) {
        peer->recoveries++;
        peer_tell(engine, WEIR_EVENT_RECOVERED, peer, peer->cause.error, peer->cause.culprit);
    }
    peer->was_up = peer->guarded = true;
    peer->gone_told = peer->refusal_told = false;
    peer->wanted = false;
    peer->degraded = false;
    peer_update_fast(engine, peer);
    run_later(engine, peer);
    /* An address has one engine. If another peer is said to have this one, it is gone, or
     * is the same, or one of the two lies: ask there. */
    struct peer *other = peer->dialable ? found_at(engine, peer->address, true, NULL) : NULL;
    for (; other != NULL; other = found_at(engine, peer->address, true, other)) {
        if (other != peer && other->alias == NONE && !other->leaving)
            dial_ask_there(engine, other);
    }
}

static void failed(weir_engine *engine, struct peer *peer, int error) {
    if (peer->live == NONE)
        peer_unreachable(engine, peer, error);
}

/* Performs one effect; true if it has an answer, which is *answer_out then. */
static bool perform(weir_engine *engine, struct peer *peer, const struct ep_effect *effect,
                    struct wire_qp_set *local, struct ep_event *answer_out) {
    int rc;
    switch (effect->type) {
    case EP_DO_SEND:
        if (peer->conn_last == 0 && peer->dialable)
            dial_start(engine, peer);
        conn_send(engine, peer->conn_last, effect->data, effect->length, effect->retransmit);
        return false;
    case EP_DO_CREATE:
        rc = session_create(engine, peer, effect->slot, effect->epoch, local);
        *answer_out = (struct ep_event){.type = rc == WEIR_OK ? EP_EV_QPS_READY : EP_EV_QPS_FAILED,
                                        .slot = effect->slot,
                                        .error = rc,
                                        .local = local};
        return true;
    case EP_DO_CONNECT:
        rc = session_connect(engine, peer, effect);
        if (rc == WEIR_EINPROGRESS)
            return false;
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
        peer_gone(engine, peer, effect->error);
        return false;
    }
    return false;
}

/* A session that the peer asks for cannot be made, or not now: the endpoint tells the peer, and
 * this the application. EAGAIN is no reason: it is made a little later; nor is a connect that is
 * tried again. */
static void note_refusal(weir_engine *engine, struct peer *peer, const struct ep_event *event) {
    bool lacks =
        event->error == WEIR_EMFILE || event->error == WEIR_EFULL || event->error == WEIR_ENOMEM;
    bool made = event->type == EP_EV_CONNECT_FAILED && !lacks &&
                (endpoint_may_pass(event->error) || event->error == WEIR_EDEVICE);
    if ((event->type != EP_EV_QPS_FAILED && event->type != EP_EV_CONNECT_FAILED) || made ||
        event->error == WEIR_EAGAIN || !endpoint_answering(&peer->endpoint))
        return;
    engine->stats.sessions_refused++;
    if (!peer->refusal_told)
        peer_tell(engine, WEIR_EVENT_REFUSED, peer, event->error, 0);
    peer->refusal_told = true;
}

static void step(weir_engine *engine, struct peer *peer, struct ep_event event) {
    struct wire_qp_set local;
    struct ep_effect effects[EP_EFFECTS_MAX];
    bool more = true;
    while (more) {
        more = false;
        uint64_t stale = peer->endpoint.stale;
        note_refusal(engine, peer, &event);
        uint32_t count = endpoint_step(&peer->endpoint, &event, engine_now(engine), effects);
        engine->stats.control_stale += peer->endpoint.stale - stale;
        for (uint32_t i = 0; i < count; i++)
            more = perform(engine, peer, &effects[i], &local, &event);
    }
}

/* An attempt that has ended meanwhile has no answer any more. */
static bool connect_due(struct peer *peer, struct ep_event *event) {
    while (peer->connect_due != 0) {
        uint32_t slot = (uint32_t)__builtin_ctz(peer->connect_due);
        struct session *session = &peer->sessions[slot];
        peer->connect_due &= (uint8_t)(peer->connect_due - 1);
        if (!session->used || session->retired || !session->connect_owed)
            continue;
        session->connect_owed = false;
        *event = (struct ep_event){.type = session->connect_error == WEIR_OK ? EP_EV_CONNECTED
                                                                             : EP_EV_CONNECT_FAILED,
                                   .slot = slot,
                                   .error = session->connect_error};
        return true;
    }
    return false;
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
    } else if (connect_due(peer, event)) {
        return true;
    } else if (peer->heard_due != 0) {
        uint32_t slot = (uint32_t)__builtin_ctz(peer->heard_due);
        peer->heard_due &= (uint8_t)(peer->heard_due - 1);
        *event = (struct ep_event){.type = EP_EV_HEARD, .slot = slot};
    } else if (peer->probe_due) {
        peer->probe_due = false;
        *event = (struct ep_event){.type = EP_EV_PROBE};
    } else if (peer->want_due) {
        peer->want_due = false;
        *event = (struct ep_event){.type = EP_EV_WANT};
    } else {
        return false;
    }
    return true;
}

/* One event (or none: NULL), then all that came up meanwhile. */
void peer_pump(weir_engine *engine, struct peer *peer, const struct ep_event *first) {
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
    peer_set_timer(engine, peer);
    peer_reap(engine, peer);
}

void peer_broken(weir_engine *engine, struct peer *peer, uint32_t slot) {
    peer->broken_due |= (uint8_t)(1u << slot);
    peer_pump(engine, peer, NULL);
}

void peer_drained(weir_engine *engine, struct peer *peer, uint32_t slot) {
    /* A session that broke and drained before the endpoint heard of the first. */
    peer->broken_due &= (uint8_t) ~(1u << slot);
    peer->heard_due &= (uint8_t) ~(1u << slot);
    peer->drained_due |= (uint8_t)(1u << slot);
    peer_pump(engine, peer, NULL);
}

/* A message came in on a session that is not up here yet: it is on the other side. */
void peer_heard(weir_engine *engine, struct peer *peer, uint32_t slot) {
    peer->heard_due |= (uint8_t)(1u << slot);
    peer_pump(engine, peer, NULL);
}

void peer_connected(weir_engine *engine, struct peer *peer, uint32_t slot) {
    peer->connect_due |= (uint8_t)(1u << slot);
    peer_pump(engine, peer, NULL);
}

void peer_dead(weir_engine *engine, struct peer *peer, int error) {
    if (!peer->known || peer->leaving)
        return;
    peer->dead_due = error;
    peer_pump(engine, peer, NULL);
}

/* Somebody here needs a session with this peer. */
void peer_want(weir_engine *engine, struct peer *peer) {
    if (peer->leaving || peer->live != NONE)
        return; /* peer_reap asks again */
    if (peer->known) {
        peer->want_due = true;
        peer_pump(engine, peer, NULL);
    } else if (peer->dialable) {
        dial_start(engine, peer);
    } else {
        peer_unreachable(engine, peer, WEIR_EPEER);
    }
}

void peer_timer(weir_engine *engine, struct peer *peer) {
    uint64_t now = engine_now(engine);
    dial_timer(engine, peer, now);
    if (peer->known && now >= endpoint_deadline(&peer->endpoint))
        peer_pump(engine, peer, &(struct ep_event){.type = EP_EV_TIMER});
    else
        peer_set_timer(engine, peer);
}
