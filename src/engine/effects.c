/* SPDX-License-Identifier: Apache-2.0 */
/* effects.c: the effects that the endpoint machine of a peer asks for, performed; and the notes of
 * what was found out about a peer (notes.h), performed.
 *
 * Owns the order of the consequences of a break, an end or a wish: they are performed here, one
 * after the other, with nothing else under way, so an endpoint is never entered twice. Here a
 * session comes up or is broken, and a peer is given up.
 */
#include "effects.h"

#include "agenda.h"
#include "cause.h"
#include "conns.h"
#include "diagnose.h"
#include "dial.h"
#include "found.h"
#include "names.h"
#include "notes.h"
#include "peer.h"
#include "post.h"
#include "session.h"
#include "tables.h"
#include "talk.h"
#include "trace.h"
#include "transfer.h"

#include <assert.h>

static void settled(weir_engine *engine, struct peer *peer, const struct ep_effect *effect) {
    if (effect->epoch > peer->settled_epoch)
        peer->settled_epoch = effect->epoch;
    peer->settled = *effect->settled;
    TRACE_PEER(engine, settled, peer, 0, effect->epoch, 0);
    if (effect->settled->broke <= effect->epoch)
        session_excuse(engine, peer, effect->settled->broke, effect->settled->reason);
    transfer_unpark(engine, peer);
    if (peer->talk.due && peer->live != NONE)
        run_later(engine, peer);
}

/* A session comes up: the one before it is over, whether its break was performed or not. */
static void take_place(weir_engine *engine, struct peer *peer) {
    if (peer->live != NONE)
        session_lost(engine, peer, peer->live);
    for (uint32_t s = 0; s < EP_SESSIONS; s++) {
        struct session *session = &peer->sessions[s];
        if (session->used && !session->retired && session->lost)
            session_lost(engine, peer, s);
        session->lost &= session->retired;
    }
}

static void up(weir_engine *engine, struct peer *peer, uint32_t number) {
    take_place(engine, peer);
    peer->live = number;
    if (peer->sessions[number].life_ours != peer->life)
        cause_outlived(engine, peer, number);
    peer->sessions[number].up = true;
    peer->sessions_up++;
    peer->up_ns = engine_clock(engine);
    diagnose_process(engine, peer);
    TRACE_PEER(engine, session_up, peer, 0, peer->sessions[number].epoch,
               peer->sessions[number].epoch_remote);
    engine->stats.sessions_up++;
    weir_event_type event = standing_step(&peer->standing, STANDING_IN_UP);
    bool recovered = event == WEIR_EVENT_RECOVERED;
    if (event == WEIR_EVENT_UP)
        names_up(engine, peer);
    peer->recoveries += recovered;
    peer_tell(engine, event, peer, recovered ? peer->cause.error : 0,
              recovered ? peer->cause.culprit : 0);
    peer->guarded = true;
    peer->wanted = false;
    peer->doubt_ns = 0;
    transfer_unshelve(engine, peer);
    peer_update_fast(engine, peer);
    run_later(engine, peer);
    /* An address has one engine. If the application opened another peer at this address, that peer
     * is gone, or is the same engine, or one of the two addresses is wrong: dial it and ask. */
    struct peer *other = peer->dialable ? found_at(engine, peer->address, true, NULL) : NULL;
    for (; other != NULL; other = found_at(engine, peer->address, true, other)) {
        if (other != peer && other->alias == NONE && !other->loop && !peer_is_leaving(other))
            dial_ask_there(engine, other);
    }
}

static void failed(weir_engine *engine, struct peer *peer, int error) {
    if (peer->live == NONE)
        peer_unreachable(engine, peer, error);
}

/* We have refused the session that the peer asked for, as the two have nothing in common. The
 * application may hear of it when the peer is gone. */
static void refused(weir_engine *engine, struct peer *peer, int error) {
    const struct ep_mismatch *mismatch = endpoint_mismatch(&peer->endpoint);
    engine->unlike.handle = peer->handle;
    engine->unlike.mismatch = mismatch != NULL ? *mismatch : (struct ep_mismatch){0};
    engine->stats.sessions_refused++;
    peer_tell(engine, standing_step(&peer->standing, STANDING_IN_REFUSAL), peer, error, 0);
}

static void said(weir_engine *engine, struct peer *peer, const struct ep_effect *effect) {
    uint64_t epoch;
    enum wire_type type = wire_peek(effect->data, effect->length, &epoch);
    TRACE_WORD(engine, said, peer, 0, (uint64_t)type, epoch);
}

/* Performs one effect; true if it has an answer, which is *answer_out then. */
static bool perform(weir_engine *engine, struct peer *peer, const struct ep_effect *effect,
                    struct wire_qp_set *local, struct ep_event *answer_out) {
    int rc;
    switch (effect->type) {
    case EP_DO_SEND:
        if (peer->conn_last == 0 && peer->dialable)
            dial_start(engine, peer);
        if (effect->attempt) {
            peer->conn_said = peer->conn_last;
            peer->unheard = peer->conn_last == 0;
        }
        if (conn_send(engine, peer->conn_last, effect->data, effect->length, effect->retransmit))
            said(engine, peer, effect);
        return false;
    case EP_DO_CREATE:
        rc = session_create(engine, peer, effect->session, effect->epoch, local);
        *answer_out = (struct ep_event){.type = rc == WEIR_OK ? EP_EV_QPS_READY : EP_EV_QPS_FAILED,
                                        .session = effect->session,
                                        .error = rc,
                                        .local = local};
        return true;
    case EP_DO_CONNECT:
        rc = session_connect(engine, peer, effect);
        if (rc == WEIR_EINPROGRESS)
            return false;
        *answer_out =
            (struct ep_event){.type = rc == WEIR_OK ? EP_EV_CONNECTED : EP_EV_CONNECT_FAILED,
                              .session = effect->session,
                              .error = rc};
        return true;
    case EP_DO_UP:
        peer->conn_said = 0;
        peer->unheard = false;
        up(engine, peer, effect->session);
        return false;
    case EP_DO_RETIRE:
        session_retire(engine, peer, effect->session);
        return false;
    case EP_DO_SETTLED:
        settled(engine, peer, effect);
        return false;
    case EP_DO_REFUSED:
        refused(engine, peer, effect->error);
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

/* A session that the peer asked for cannot be made: the endpoint tells the peer, and this function
 * the application. It is not told of EAGAIN, nor of a connect that will be tried again. */
static void tell_refusal(weir_engine *engine, struct peer *peer, const struct ep_event *event) {
    bool lacks =
        event->error == WEIR_EMFILE || event->error == WEIR_EFULL || event->error == WEIR_ENOMEM;
    bool made = event->type == EP_EV_CONNECT_FAILED && !lacks &&
                (endpoint_may_pass(event->error) || event->error == WEIR_EDEVICE);
    if ((event->type != EP_EV_QPS_FAILED && event->type != EP_EV_CONNECT_FAILED) || made ||
        event->error == WEIR_EAGAIN || !endpoint_answering(&peer->endpoint))
        return;
    engine->stats.sessions_refused++;
    peer_tell(engine, standing_step(&peer->standing, STANDING_IN_REFUSAL), peer, event->error, 0);
}

static void step(weir_engine *engine, struct peer *peer, struct ep_event event) {
    struct wire_qp_set local;
    struct ep_effect effects[EP_EFFECTS_MAX];
    bool more = true;
    while (more) {
        more = false;
        uint64_t stale = peer->endpoint.stale;
        tell_refusal(engine, peer, &event);
        uint32_t count = endpoint_step(&peer->endpoint, &event, engine_now(engine), effects);
        engine->stats.control_stale += peer->endpoint.stale - stale;
        for (uint32_t i = 0; i < count; i++)
            more = perform(engine, peer, &effects[i], &local, &event);
    }
}

/* ---- notes ------------------------------------------------------------- */

static void conns_lost(weir_engine *engine, struct peer *peer) {
    uint64_t conns[FOUND_CONNS];
    memcpy(conns, peer->notes.conns_lost, sizeof(conns));
    memset(peer->notes.conns_lost, 0, sizeof(peer->notes.conns_lost));
    peer->notes.conn_lost = false;
    for (uint32_t i = 0; i < FOUND_CONNS; i++) {
        if (conns[i] != 0)
            dial_closed(engine, conns[i], WEIR_ECONNECT);
    }
}

/* False: the attempt has ended meanwhile, and has no answer any more. */
static bool connected(struct peer *peer, uint32_t number, struct ep_event *event) {
    struct session *session = &peer->sessions[number];
    if (!session->used || session->retired || !session->connect_owed)
        return false;
    session->connect_owed = false;
    *event = (struct ep_event){.type = session->connect_error == WEIR_OK ? EP_EV_CONNECTED
                                                                         : EP_EV_CONNECT_FAILED,
                               .session = number,
                               .error = session->connect_error};
    return true;
}

/* Takes the first note for the peer's endpoint of a session that is drained or broken, or of the
 * end of the peer; false: there is none. */
static bool take_session(struct peer *peer, struct ep_event *event) {
    struct notes *notes = &peer->notes;
    if (notes->drained != 0) {
        *event =
            (struct ep_event){.type = EP_EV_DRAINED, .session = notes_session(&notes->drained)};
        return true;
    }
    if (notes->dead != 0) {
        *event = (struct ep_event){.type = EP_EV_PEER_DEAD, .error = notes->dead};
        notes->dead = 0;
        return true;
    }
    if (notes->broken != 0) {
        *event = (struct ep_event){.type = EP_EV_BROKEN, .session = notes_session(&notes->broken)};
        return true;
    }
    return false;
}

/* Likewise, of the other notes for the endpoint. They come after all that take_session has. */
static bool take_other(struct peer *peer, struct ep_event *event) {
    struct notes *notes = &peer->notes;
    while (notes->connected != 0) {
        if (connected(peer, notes_session(&notes->connected), event))
            return true;
    }
    if (notes->heard != 0) {
        *event = (struct ep_event){.type = EP_EV_HEARD, .session = notes_session(&notes->heard)};
        return true;
    }
    if (notes->probe) {
        *event = (struct ep_event){.type = EP_EV_PROBE, .unheard = peer->unheard};
        notes->probe = peer->unheard = false;
        return true;
    }
    return false;
}

/* Another peer needs the entry of this one, which the application has closed. */
static void evict(weir_engine *engine, struct peer *peer) {
    if (!peer->closed || !peer_is_there(peer) || peer->waits > 0 || peer->held > 0)
        return;
    step(engine, peer, (struct ep_event){.type = EP_EV_CLOSE, .error = WEIR_ECLOSED});
    peer_gone(engine, peer, WEIR_ECLOSED);
}

/* A transfer or weir_peer_connect needs a session with this peer. */
static void want(weir_engine *engine, struct peer *peer) {
    if (peer_is_leaving(peer) || peer->live != NONE || peer->alias != NONE)
        return; /* of a leaving peer: peer_reap asks again */
    if (peer_is_known(peer))
        step(engine, peer, (struct ep_event){.type = EP_EV_WANT});
    else if (peer->dialable)
        dial_start(engine, peer);
    else
        peer_unreachable(engine, peer, WEIR_EPEER);
}

/* Performs the first of the peer's notes; false: there is none, or it is a break that is not to be
 * performed yet. */
static bool perform_note(weir_engine *engine, struct peer *peer) {
    struct notes *notes = &peer->notes;
    struct ep_event event;
    bool stays = notes->broken != 0 && notes->drained == 0 && notes->dead == 0 &&
                 peer_is_known(peer) && engine->noted_break;
    if (notes->conn_lost) {
        conns_lost(engine, peer);
    } else if (notes->life) {
        notes->life = false;
        if (post_life(engine, peer))
            dial_alive(engine, peer);
    } else if (notes->unanswered != 0) {
        session_unanswered(engine, peer, notes_session(&notes->unanswered));
    } else if (stays) {
        return false;
    } else if (peer_is_known(peer) && take_session(peer, &event)) {
        step(engine, peer, event);
    } else if (peer_is_known(peer) && take_other(peer, &event)) {
        step(engine, peer, event);
    } else if (notes->evict) {
        notes->evict = false;
        evict(engine, peer);
    } else if (notes->unreachable != 0) {
        int error = notes->unreachable;
        notes->unreachable = 0;
        peer_unreachable(engine, peer, error);
    } else if (notes->unpark) {
        notes->unpark = false;
        if (peer->unsettled && peer_is_there(peer))
            talk_renew(engine, peer);
        peer->unsettled = false;
        transfer_unpark(engine, peer);
    } else if (notes->want) {
        notes->want = false;
        want(engine, peer);
    } else {
        return false;
    }
    return true;
}

static void finish(weir_engine *engine, struct peer *peer) {
    if (peer->id == 0)
        return;
    peer_set_timer(engine, peer);
    peer_reap(engine, peer);
}

void effects_perform_all(weir_engine *engine) {
    while (engine->noted_head != NONE) {
        struct peer *peer = notes_next(engine);
        while (peer->id != 0 && perform_note(engine, peer)) {
        }
        finish(engine, peer);
        if (engine->noted_break && peer->id != 0 && peer->notes.broken != 0)
            notes_stay(engine, peer);
    }
}

void effects_event(weir_engine *engine, struct peer *peer, const struct ep_event *event) {
    assert(peer_is_known(peer));
    step(engine, peer, *event);
    engine->worked = true;
    finish(engine, peer);
}

void effects_timer(weir_engine *engine, struct peer *peer) {
    uint64_t now = engine_now(engine);
    dial_timer(engine, peer, now);
    effects_perform(engine);
    if (peer_is_known(peer) && now >= endpoint_deadline(&peer->endpoint))
        effects_event(engine, peer, &(struct ep_event){.type = EP_EV_TIMER});
    else
        peer_set_timer(engine, peer);
}

void effects_leave(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        struct peer *peer = &engine->peers[i];
        if (peer->id == 0)
            continue;
        transfer_fail_all(engine, peer, WEIR_ECLOSED, true);
        talk_gone(engine, peer);
        peer->dialable = false;
        dial_stop(engine, peer);
        if (peer_is_known(peer))
            effects_event(engine, peer,
                          &(struct ep_event){.type = EP_EV_CLOSE, .error = WEIR_ECLOSED});
        transfer_abandon(engine, peer, UINT64_MAX, WEIR_ECLOSED);
    }
    effects_perform(engine);
}
