/* SPDX-License-Identifier: Apache-2.0 */
/* dial.c: how a peer is reached, and when one that is not reached is given up.
 *
 * Owns dialling, with pauses and under one deadline, and the patience with a peer of which no
 * control connection is left. The end of a connection is not the end of a peer: a peer is gone
 * when its address refuses and it had answered there, when another instance answers where it had,
 * or when it was silent for as long as the deadline says. An answer of its device on a live session
 * is a sign of life, whatever its application does meanwhile, and moves the deadline.
 *
 * A peer that was reached, and is lost, is dialled at once. When that comes again and again, as if
 * something between the two reset each connection, pauses grow as for one that does not answer.
 *
 *           dial_start         connected            IAM
 *     NONE ------------> CALLING -----> ASKING ------------> NONE
 *       |                  |  ^            |
 *       |   refused, silent|  |a pause     |broken
 *       |                  v  |            |
 *       |                 PAUSE <----------'
 *       '-- lost, and no address leads to it --> AWAITING -- it calls --> NONE
 *
 * It leaves to others what is said on a connection (control.c), and what becomes of a peer that
 * is given up (effects.c, peer.c).
 */
#include "dial.h"

#include "agenda.h"
#include "conns.h"
#include "found.h"
#include "notes.h"
#include "tables.h"
#include "trace.h"

enum {
    DIAL_PAUSE_NS = 20 * 1000 * 1000,
    DIAL_PAUSE_MAX_NS = 500 * 1000 * 1000,
    DIAL_AT_ONCE = 4,                    /* answered dials in a row until one waits */
    DIAL_CALM_NS = 2 * DIAL_PAUSE_MAX_NS /* dials that begin so far apart are not in a row */
};

/* A quarter of the connect time-out: for a lost peer whose device is asked for signs of life, for
 * an address that is to be proven, and the longest pause between two calls. */
static uint64_t patience_ns(const weir_engine *engine) {
    uint64_t patient_ns = engine->options.connect_timeout_ns / 4;
    return patient_ns > 2 ? patient_ns : 2; /* half of it is the time between two looks */
}

/* When there is something to do here; UINT64_MAX: never. */
static uint64_t dial_deadline(const struct peer *peer) {
    uint64_t when = peer->dial_next_ns;
    if (peer->dial == DIAL_NONE)
        return UINT64_MAX;
    if (peer->dial_look_ns < when)
        when = peer->dial_look_ns;
    uint64_t end = peer->proving ? peer->prove_until_ns : peer->dial_deadline_ns;
    return end < when ? end : when;
}

/* The peer's one timer: the dial's or the endpoint's next deadline. */
void peer_set_timer(weir_engine *engine, struct peer *peer) {
    uint64_t when = dial_deadline(peer);
    if (peer_is_known(peer) && endpoint_deadline(&peer->endpoint) < when)
        when = endpoint_deadline(&peer->endpoint);
    timer_peer(engine, peer, when);
}

/* ---- signs of life ------------------------------------------------------- */

/* A count that grows with each run that completes, and each notification that is received, on
 * the live session. */
static uint64_t signs_of(weir_engine *engine, const struct peer *peer) {
    const struct session *session = &peer->sessions[peer->live];
    uint64_t signs = 0;
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        signs +=
            qp->ledger.head + qp->credit.arrived[CREDIT_NOTES] + qp->credit.arrived[CREDIT_WORDS];
    }
    return signs;
}

/* Whether the peer's device has answered anything since this was asked last. Asks for one more
 * answer: an empty write, of which the other side's application need not know. */
static bool shows_life(weir_engine *engine, struct peer *peer) {
    if (peer->live == NONE)
        return false;
    uint64_t signs = signs_of(engine, peer);
    bool life = signs != peer->signs;
    peer->signs = signs;
    note_life(engine, peer);
    return life;
}

static uint64_t patient_until(const weir_engine *engine, const struct peer *peer, uint64_t now) {
    bool judged = peer->dial == DIAL_AWAITING && peer->live != NONE; /* by its device */
    return now + (judged ? patience_ns(engine) : engine->options.connect_timeout_ns);
}

void dial_alive(weir_engine *engine, struct peer *peer) {
    if (peer->dial != DIAL_NONE && peer_is_there(peer))
        peer->dial_deadline_ns = patient_until(engine, peer, engine_now(engine));
}

/* The first look only asks: an answer from before says nothing. */
static void begin(weir_engine *engine, struct peer *peer) {
    uint64_t now = engine_now(engine);
    peer->dial_since_ns = now;
    peer->dial_error = WEIR_ECONNECT;
    peer->dial_look_ns = now + patience_ns(engine) / 2;
    peer->dial_deadline_ns = patient_until(engine, peer, now);
    if (peer_is_there(peer))
        shows_life(engine, peer);
}

/* ---- dialling ------------------------------------------------------------ */

/* The last HELLO or HELLO_ACK may be lost with its connection: it is sent again on the connection
 * that there is. */
static void say_again(weir_engine *engine, struct peer *peer) {
    if (peer->unheard && peer->conn_last != 0 && peer_is_there(peer))
        note_probe(engine, peer);
}

/* Nothing is dialled any more, and nothing was to be proven. */
void dial_end(struct peer *peer) {
    peer->dial = DIAL_NONE;
}

/* Nothing is dialled any more: the peer leaves, or the dial begins anew. */
void dial_stop(weir_engine *engine, struct peer *peer) {
    if (peer->dial == DIAL_NONE)
        return;
    peer->dial = DIAL_NONE;
    conn_hangup(engine, peer, &peer->conn_dialled);
    peer->conn_last = peer->conn_accepted;
}

static void fail(weir_engine *engine, struct peer *peer, int error) {
    dial_end(peer);
    peer->dials_answered = 0;
    conn_hangup(engine, peer, &peer->conn_dialled);
    peer->conn_last = peer->conn_accepted;
    say_again(engine, peer);
    peer->dial_failed = true;
    if (!peer_is_known(peer))
        note_unreachable(engine, peer, error);
    else if (peer->conn_accepted == 0) /* else it has called us meanwhile, and is there */
        note_dead(engine, peer, error);
    peer_set_timer(engine, peer);
}

/* Signs of life put the deadline off, for as long as they come. Not so when the peer has called
 * meanwhile: a dial beside its connection ends after the connect time-out. While the dial is to
 * prove who is at the address, it does not end for the peer's sake: the peer may be the liar. */
static void look(weir_engine *engine, struct peer *peer, uint64_t now) {
    peer->dial_look_ns = now + patience_ns(engine) / 2;
    if (peer_is_known(peer) && peer->conn_accepted != 0 && !peer->proving &&
        now - peer->dial_since_ns >= engine->options.connect_timeout_ns) {
        fail(engine, peer, peer->dial_error);
        return;
    }
    if (peer_is_there(peer) && shows_life(engine, peer))
        peer->dial_deadline_ns = patient_until(engine, peer, now);
}

static void again_later(weir_engine *engine, struct peer *peer) {
    found_conn_set(engine, peer, &peer->conn_dialled, 0);
    peer->dial = DIAL_PAUSE;
    uint64_t pause_ns = peer->dial_pause_ns;
    if (pause_ns > patience_ns(engine))
        pause_ns = patience_ns(engine); /* nobody is given up without having been asked */
    peer->dial_next_ns = engine_now(engine) + pause_ns;
    if (peer->dial_pause_ns < DIAL_PAUSE_MAX_NS)
        peer->dial_pause_ns *= 2;
    peer_set_timer(engine, peer);
}

/* The peer's address refuses the connection. An engine listens for as long as it lives, so a peer
 * that has answered there, and that has made no other connection, is gone. A peer that only says
 * that it is there (behind an address translation, say) may call for a quarter of the connect
 * time-out. A peer that is not known yet may start later. */
static void refused(weir_engine *engine, struct peer *peer) {
    uint64_t patient_ns = peer->dial_deadline_ns - engine->options.connect_timeout_ns / 4 * 3;
    if (peer->proving)
        peer_proven(engine, peer);
    if (peer_is_there(peer) && peer->conn_accepted == 0 &&
        (peer->reached || engine_now(engine) >= patient_ns))
        fail(engine, peer, WEIR_EPEER);
    else
        again_later(engine, peer);
}

/* Whether nothing was sent to the peer, for a reason that the system has named. */
bool dial_unmade(int error) {
    return error == WEIR_EMFILE || error == WEIR_ENOMEM || error == WEIR_EFULL ||
           error == WEIR_EUNREACH || error == WEIR_EADDRESS;
}

/* The dial came to nothing. A name that does not exist ends the wish for a peer that was never met;
 * of one that is there it says as little as silence. */
static void unanswered(weir_engine *engine, struct peer *peer, int error) {
    if (peer->dial == DIAL_CALLING) /* else a connection was there, on which no engine answered */
        peer->met_there = error == WEIR_EPEER ? MET_NOBODY : MET_UNKNOWN;
    if (dial_unmade(error))
        peer->dial_error = error;
    if (error == WEIR_EADDRESS && !peer_is_there(peer))
        fail(engine, peer, error);
    else if (error == WEIR_EPEER && peer->dial == DIAL_CALLING)
        refused(engine, peer);
    else
        again_later(engine, peer);
}

static void call(weir_engine *engine, struct peer *peer) {
    peer->dial = DIAL_CALLING;
    peer->dial_next_ns = UINT64_MAX;
    peer->met_there = MET_UNKNOWN; /* of this one: an address that refused may be silent now */
    uint64_t conn = 0;
    int rc = engine->ports.control.ops->dial(engine->ports.control.self, peer->address, &conn);
    TRACE_PEER(engine, dial, peer, rc, conn, 0);
    found_conn_set(engine, peer, &peer->conn_dialled, rc == WEIR_OK ? conn : 0);
    peer->dial_error = WEIR_ECONNECT;
    if (rc == WEIR_OK)
        peer_set_timer(engine, peer);
    else
        unanswered(engine, peer, rc);
}

void dial_start(weir_engine *engine, struct peer *peer) {
    if (peer->dial != DIAL_NONE || engine->closing)
        return;
    uint64_t now = engine_now(engine);
    if (now - peer->dial_began_ns >= DIAL_CALM_NS)
        peer->dials_answered = 0;
    if (peer->dials_answered == 0)
        peer->dial_pause_ns = DIAL_PAUSE_NS;
    peer->dial_began_ns = now;
    conn_hangup(engine, peer, &peer->conn_dialled);
    peer->dial = DIAL_CALLING;
    begin(engine, peer);
    if (peer->dials_answered < DIAL_AT_ONCE)
        call(engine, peer);
    else
        again_later(engine, peer);
}

/* The awaited answer came. */
void dial_answered(weir_engine *engine, struct peer *peer) {
    rtt_answered(&peer->rtt, &peer->who, engine_now(engine));
    peer->dial = DIAL_NONE;
    peer->version_theirs = 0;
    peer->dials_answered++;
    peer->met_there = MET_UNKNOWN;
}

/* No connection of the peer's is left. A dial that is under way was begun when there was one: the
 * patience begins now. */
static void dial_lost(weir_engine *engine, struct peer *peer) {
    if (peer->dial == DIAL_NONE && peer->dialable) {
        dial_start(engine, peer);
    } else if (!engine->closing) {
        if (peer->dial == DIAL_NONE) {
            peer->dial = DIAL_AWAITING;
            peer->dial_next_ns = UINT64_MAX;
        }
        begin(engine, peer);
        peer_set_timer(engine, peer);
    }
}

/* The connection that was dialled is lost. */
static void dial_broken(weir_engine *engine, struct peer *peer, int error) {
    found_conn_set(engine, peer, &peer->conn_dialled, 0);
    if (peer->dial != DIAL_NONE && peer->dial != DIAL_AWAITING)
        unanswered(engine, peer, error);
}

/* The instance that answered is one that was given up here, and whose sessions still drain: the
 * address is dialled again after a pause. */
void dial_again(weir_engine *engine, struct peer *peer) {
    conn_hangup(engine, peer, &peer->conn_dialled);
    again_later(engine, peer);
}

/* A vouched peer's address is of the host that it called from, so it was most likely right, and the
 * peer is gone: it has a quarter of the connect time-out left to call. */
static void patience_is_short(weir_engine *engine, struct peer *peer) {
    uint64_t until_ns = engine_now(engine) + patience_ns(engine);
    if (!peer->vouched || peer->dial != DIAL_AWAITING)
        return;
    peer->dial_error = WEIR_EPEER;
    if (until_ns < peer->dial_deadline_ns)
        peer->dial_deadline_ns = until_ns;
}

/* Another instance answers at the address of a peer that never answered there: the address is not
 * dialled for this peer any more. The peer has the connections that it made, and may make more. */
void dial_elsewhere(weir_engine *engine, struct peer *peer) {
    dial_end(peer);
    peer->dialable = false;
    conn_hangup(engine, peer, &peer->conn_dialled);
    peer->conn_last = peer->conn_accepted;
    say_again(engine, peer);
    if (peer->conn_last == 0) {
        dial_lost(engine, peer);
        patience_is_short(engine, peer);
    }
    peer->vouched = false; /* that was of this address */
    peer_set_timer(engine, peer);
}

static void ask(weir_engine *engine, struct peer *peer, bool again) {
    uint64_t now = engine_now(engine);
    if (again)
        rtt_say_again(&peer->rtt, &peer->who, now);
    else
        rtt_say(&peer->rtt, &peer->who, now, engine->options.retransmit_ns,
                engine->options.connect_timeout_ns);
    peer->dial = DIAL_ASKING;
    peer->dial_next_ns = peer->who.next_ns;
    peer_set_timer(engine, peer);
    /* Last: that the connection is over may be found out here. */
    conn_identify(engine, peer->conn_dialled, WIRE_WHO, NULL, 0, again);
}

void dial_connected(weir_engine *engine, struct peer *peer) {
    if (peer->dial != DIAL_CALLING)
        return;
    peer->met_there = MET_SILENCE;
    ask(engine, peer, false);
}

void dial_timer(weir_engine *engine, struct peer *peer, uint64_t now) {
    if (peer->dial == DIAL_NONE)
        return;
    if (peer->proving && now >= peer->prove_until_ns)
        peer_proven(engine, peer); /* nobody answers there: its word is all there is */
    if (now >= peer->dial_look_ns || now >= peer->dial_deadline_ns)
        look(engine, peer, now); /* what it finds may put the rest off */
    if (peer->dial == DIAL_NONE)
        return;
    if (now >= peer->dial_deadline_ns && !peer->proving)
        fail(engine, peer, peer->dial_error);
    else if (now >= peer->dial_next_ns && peer->dial == DIAL_PAUSE)
        call(engine, peer);
    else if (now >= peer->dial_next_ns && peer->dial == DIAL_ASKING)
        ask(engine, peer, true);
}

/* ---- its connections ----------------------------------------------------- */

/* The peer spoke: the awaited answer, or a sign of life. */
static void dial_heard(weir_engine *engine, struct peer *peer) {
    if (peer->dial == DIAL_AWAITING)
        peer->dial = DIAL_NONE;
    else if (peer_is_there(peer))
        peer->dial_deadline_ns = patient_until(engine, peer, engine_now(engine));
    peer_set_timer(engine, peer);
}

/* The peer spoke on this connection, which is its own from here on. */
void dial_spoke(weir_engine *engine, struct peer *peer, uint64_t conn) {
    peer->conn_last = conn;
    if (peer->dial != DIAL_NONE)
        dial_heard(engine, peer);
    if (conn == peer->conn_dialled || conn == peer->conn_accepted)
        return;
    if (conn != peer->conn_before)
        conn_hangup(engine, peer, &peer->conn_before);
    bool aside = conn_is_aside(peer, conn), before_aside = peer->accepted_aside;
    found_conn_set(engine, peer, &peer->conn_before, peer->conn_accepted);
    found_conn_set(engine, peer, &peer->conn_accepted, conn);
    peer->accepted_aside = aside;
    peer->before_aside = before_aside;
    say_again(engine, peer);
    engine->ports.control.ops->keep(engine->ports.control.self, conn);
}

void dial_set_aside(weir_engine *engine, struct peer *peer, uint64_t conn) {
    dial_spoke(engine, peer, conn);
    peer->accepted_aside = conn == peer->conn_accepted;
}

/* Dials the peer's address to ask WHO. The connection that was dialled before is kept, as if the
 * peer had made it: the other instance that gives this address may be wrong. */
void dial_ask_there(weir_engine *engine, struct peer *peer) {
    uint64_t conn = peer->conn_dialled;
    if (peer->dial != DIAL_NONE || engine->closing)
        return;
    if (conn != 0) {
        uint64_t last = peer->conn_last;
        found_conn_set(engine, peer, &peer->conn_dialled, 0);
        dial_set_aside(engine, peer, conn);
        peer->conn_last = last;
    }
    dial_start(engine, peer);
}

/* The proof has a time of its own: a dial that is under way may have been silent for long, or end
 * soon. So where the peer has a connection, and the dial decides nothing else, it begins anew.
 * There is one proof in a connect time-out: what is submitted waits in vain for a quarter of it at
 * most, however often the address is opened. */
void dial_prove(weir_engine *engine, struct peer *peer) {
    uint64_t now = engine_now(engine);
    if (peer->claims && now < peer->prove_until_ns + 3 * patience_ns(engine))
        return;
    peer->proving = peer->claims = true;
    peer->prove_until_ns = now + patience_ns(engine);
    peer_not_fast(peer);
    peer->dial_failed = false;
    if (peer->conn_accepted != 0)
        dial_stop(engine, peer);
    if (peer->dial == DIAL_PAUSE)
        call(engine, peer); /* the pause may be as long as the proof */
    else
        dial_ask_there(engine, peer);
}

/* Whether the application holds a handle of the peer, was told one, or has asked something of it;
 * its QPs count, too. */
static bool is_of_use(const weir_engine *engine, const struct peer *peer) {
    return peer->standing.state != STANDING_NEW || peer->told == TOLD || peer->refs > 0 ||
           peer_wants_session(engine, peer) || peer_open_alias(engine, peer) != NONE ||
           !endpoint_at_rest(&peer->endpoint);
}

/* The peer loses this connection. */
static void conn_lost(weir_engine *engine, struct peer *peer, uint64_t conn, int error) {
    bool called = peer->conn_accepted == conn;
    TRACE_PEER(engine, conn_lost, peer, error, conn, 0);
    if (called) {
        bool aside = peer->before_aside;
        found_conn_set(engine, peer, &peer->conn_accepted, peer->conn_before);
        peer->accepted_aside = aside;
        found_conn_set(engine, peer, &peer->conn_before, 0);
    }
    if (peer->conn_before == conn)
        found_conn_set(engine, peer, &peer->conn_before, 0);
    if (peer->conn_dialled == conn)
        dial_broken(engine, peer, error);
    peer->unheard |= peer->conn_said == conn;
    if (peer->conn_last == conn)
        peer->conn_last = peer->conn_dialled != 0 && peer->dial == DIAL_NONE ? peer->conn_dialled
                                                                             : peer->conn_accepted;
    if (peer_is_there(peer) && peer->conn_last != 0) {
        note_probe(engine, peer); /* what was said on this one may be lost */
    }
    if (!peer_is_there(peer) || peer->notes.dead != 0 || peer->conn_last != 0 ||
        (peer->dial != DIAL_NONE && !called))
        return;
    if (is_of_use(engine, peer))
        dial_lost(engine, peer);
    else
        note_dead(engine, peer, WEIR_EPEER); /* it is not waited for */
}

void dial_closed(weir_engine *engine, uint64_t conn, int error) {
    struct peer *peer;
    uint32_t at = NONE;
    visitor_drop(engine, conn);
    for (; (peer = found_by_conn(engine, conn, &at)) != NULL; at = NONE)
        conn_lost(engine, peer, conn, error);
}
