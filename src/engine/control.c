/* SPDX-License-Identifier: Apache-2.0 */
/* control.c: the messages on control connections, and whose they are.
 *
 * Owns WHO and IAM, when a visitor becomes a peer, and the routing of all other messages to the
 * peer's endpoint. A peer has at most three connections: one that was dialled here and the last
 * two that it made (one may be dead). Messages to it go on the one that it was heard on last.
 * Nothing here waits: answers come as control events, silence as timers (dial.c).
 *
 * Anybody may connect and speak in a peer's name. From its first session on a peer is *guarded*:
 * a message in its name counts only on its own connections. Its own connections are the ones on
 * which it was met, the ones that were dialled here and on which it answered (peer_speaks_for), and
 * the ones on which it showed its pass: 64 random bits that it was given in HELLO or HELLO_ACK, and
 * that nobody else was told. On any other connection its messages are dropped and answered by WHO;
 * IAM shows the pass. */
#include "control.h"

#include "agenda.h"
#include "ask.h"
#include "conns.h"
#include "dial.h"
#include "effects.h"
#include "found.h"
#include "news.h"
#include "peer.h"
#include "tables.h"
#include "trace.h"

static void learn_address(weir_engine *engine, struct peer *peer, const char *address) {
    if (peer->dialable || !address_dialable(address) || strcmp(peer->address, address) == 0)
        return;
    memcpy(peer->address, address, sizeof(peer->address));
    peer->dialable = true;
    found_address(engine, peer);
}

/* Anybody could have said this in the peer's name. */
static bool is_strange(const struct peer *peer, uint64_t conn) {
    return peer->guarded && !conn_is_of(peer, conn);
}

/* The pass by which the peer knows us on this connection; 0: none is shown. It is shown only on a
 * connection that was dialled here and that the peer has answered, since anybody who connects may
 * say that it is the peer. */
static uint64_t pass_for(const struct peer *peer, uint64_t conn) {
    bool answered = peer->conn_dialled == conn
                        ? peer->dial == DIAL_NONE || peer->dial == DIAL_AWAITING
                        : conn_is_aside(peer, conn);
    return answered && !peer_is_leaving(peer) ? peer->pass_theirs : 0;
}

/* Any visitor is answered, and no peer is made before its HELLO. The visitor's instance and address
 * are kept until then, as far as there is room. */
/* The proof in an IAM to ourselves, so that nobody else passes for us by repeating our instance. */
static uint64_t pass_of_self(weir_engine *engine) {
    if (engine->self_pass == 0)
        engine->ports.env.ops->entropy(engine->ports.env.self, &engine->self_pass,
                                       sizeof(engine->self_pass));
    engine->self_pass |= 1;
    return engine->self_pass;
}

static void on_who(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    struct peer *peer = peer_by_instance(engine, message->from);
    bool ours = memcmp(message->from, engine->instance, WIRE_INSTANCE_SIZE) == 0;
    uint64_t pass = ours ? pass_of_self(engine) : peer != NULL ? pass_for(peer, conn) : 0;
    if (!conn_identify(engine, conn, WIRE_IAM, message->from, pass, false) || engine->closing ||
        ours)
        return;
    if (peer == NULL || peer_is_leaving(peer)) {
        struct visitor *visitor = visitor_add(engine, conn);
        if (visitor != NULL) {
            memcpy(visitor->instance, message->from, WIRE_INSTANCE_SIZE);
            memcpy(visitor->address, message->address, sizeof(visitor->address));
            visitor->vouched = conn_vouches(engine, conn, message->address);
        }
        return;
    }
    if (is_strange(peer, conn))
        return;
    learn_address(engine, peer, message->address);
    dial_spoke(engine, peer, conn);
    /* On a connection that we dialled, WHO means that a message came there and its sender is not
     * believed. Without the pass nothing is sent again: it would be asked about again, for ever. */
    if (pass != 0 || (conn != peer->conn_dialled && !conn_is_aside(peer, conn)))
        peer_reachable(engine, peer);
    else
        peer_set_timer(engine, peer);
}

/* Another instance says that it is at the address of this peer, which has no session: one of the
 * two is wrong, or the peer is gone. So the address is dialled and asked. Returns when the doubt
 * began; it ends after a connect time-out. */
static uint64_t doubted_since(weir_engine *engine, struct peer *peer) {
    uint64_t now = engine_now(engine);
    if (peer->doubt_ns == 0 || now - peer->doubt_ns >= engine->options.connect_timeout_ns) {
        peer->doubt_ns = now;
        peer->doubted = true;
        if (peer->dialable)
            dial_ask_there(engine, peer);
    }
    return peer->doubt_ns;
}

/* Whether the HELLO of a visitor waits for the peer, which has the visitor's address. It waits for
 * a leaving peer to drain, or for an answer at the address, but no longer than a quarter of the
 * connect time-out: a drain may take long, and not every address can be dialled. */
static bool waits_for_known(weir_engine *engine, uint64_t conn, struct peer *peer) {
    bool leaving = peer_is_leaving(peer);
    uint64_t since = leaving ? peer->left_ns : doubted_since(engine, peer);
    if ((!leaving && !peer->doubted) ||
        engine_now(engine) >= since + engine->options.connect_timeout_ns / 4)
        return false;
    peer->conn_waits = conn;
    return true;
}

/* Whether the HELLO of a visitor at this address has to wait. A peer that the application opened
 * there is very likely the same engine, so the address is dialled first, once an instance that was
 * there before has drained. The wait is a quarter of the connect time-out at most: if the address
 * cannot be dialled from here, the visitor's connection is all there is. */
static bool hello_waits(weir_engine *engine, uint64_t conn, const char *address) {
    struct peer *opened = peer_by_address(engine, address);
    uint64_t timeout = engine->options.connect_timeout_ns;
    if (opened == NULL)
        return false;
    struct peer *peer = peer_linked(engine, opened);
    if (peer_is_known(peer) &&
        (opened->refs == 0 || (!peer_is_leaving(peer) && peer->live != NONE)))
        return false;
    if (peer_is_known(peer))
        return waits_for_known(engine, conn, peer);
    if (opened->dial_failed)
        return false;
    dial_start(engine, opened);
    if (opened->dial == DIAL_NONE ||
        engine_now(engine) >= opened->dial_deadline_ns - timeout / 4 * 3)
        return false;
    opened->conn_waits = conn;
    return true;
}

/* Tells the sender of a HELLO that it is refused for now, so that it is said again later. reason:
 * the resource that is lacking; EAGAIN: none is. */
static void later(weir_engine *engine, uint64_t conn, const struct wire_message *message,
                  int reason) {
    if (message->type == WIRE_HELLO && !engine->closing)
        conn_reply(engine, conn, message,
                   &(struct wire_message){.type = WIRE_REFUSE,
                                          .echo = message->epoch | WIRE_ECHO_LATER,
                                          .reason = reason});
}

/* Makes the peer of a HELLO, or of a SETTLE. NULL: no room for another peer. Then the sender of a
 * HELLO is told so and will ask again, and the application is told REFUSED. */
static struct peer *meet(weir_engine *engine, uint64_t conn, const struct wire_message *message,
                         const char *address) {
    struct peer *peer = peer_meet(engine, message->from, address);
    if (peer != NULL)
        engine->no_room_told = false;
    if (peer != NULL || engine->closing || message->type != WIRE_HELLO)
        return peer;
    later(engine, conn, message, WEIR_EFULL);
    engine->stats.sessions_refused++;
    if (!engine->no_room_told)
        news_event(engine, WEIR_EVENT_REFUSED, 0, WEIR_EFULL, 0);
    engine->no_room_told = true;
    return NULL;
}

/* The first HELLO or SETTLE of an instance. NULL: not now; the message will be repeated. */
static struct peer *first_hello(weir_engine *engine, uint64_t conn,
                                const struct wire_message *message) {
    const uint8_t *instance = message->from;
    /* One connection, one instance. */
    const struct peer *other;
    uint32_t at = NONE;
    while ((other = found_by_conn(engine, conn, &at)) != NULL) {
        if (peer_is_there(other) && (other->conn_accepted == conn || other->conn_before == conn))
            return NULL;
    }
    struct visitor *visitor = found_visitor(engine, conn);
    if (visitor == NULL || memcmp(visitor->instance, instance, WIRE_INSTANCE_SIZE) != 0) {
        /* Nothing is kept that this instance said of itself on this connection: ask WHO. */
        if (!conn_identify(engine, conn, WIRE_WHO, NULL, 0, false))
            return NULL;
        visitor = visitor_add(engine, conn);
        if (visitor == NULL)
            return meet(engine, conn, message, ""); /* its IAM will say where it is */
        found_visitor_set(engine, visitor, conn);
        visitor->asked = true;
        memcpy(visitor->instance, instance, WIRE_INSTANCE_SIZE);
        later(engine, conn, message, WEIR_EAGAIN);
        return NULL;
    }
    if (hello_waits(engine, conn, visitor->address)) {
        later(engine, conn, message, WEIR_EAGAIN);
        return NULL;
    }
    struct peer *peer = meet(engine, conn, message, visitor->address);
    if (peer != NULL) {
        peer->vouched = visitor->vouched;
        visitor_drop(engine, conn);
    }
    return peer;
}

/* IAM on a connection that was not dialled here: the sender shows its pass, or answers the WHO that
 * its HELLO caused. */
static void on_visitor_iam(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    struct visitor *visitor = found_visitor(engine, conn);
    if (visitor != NULL && visitor->asked &&
        memcmp(visitor->instance, message->from, WIRE_INSTANCE_SIZE) == 0) {
        memcpy(visitor->address, message->address, sizeof(visitor->address));
        visitor->vouched = conn_vouches(engine, conn, message->address);
        return;
    }
    struct peer *peer = peer_by_instance(engine, message->from);
    bool shown = peer != NULL && message->pass == peer->pass;
    if (peer == NULL || peer_is_leaving(peer) || (!shown && peer->conn_accepted != conn)) {
        engine->stats.control_stale++;
        return;
    }
    learn_address(engine, peer, message->address); /* it was let in before it answered */
    if (shown && !conn_is_of(peer, conn)) {
        dial_spoke(engine, peer, conn);
        peer_reachable(engine, peer);
    }
}

/* The peer that we dialled on this connection; NULL: none. */
static struct peer *dialled_on(weir_engine *engine, uint64_t conn) {
    struct peer *peer;
    uint32_t at = NONE;
    while ((peer = found_by_conn(engine, conn, &at)) != NULL && peer->conn_dialled != conn) {
    }
    return peer;
}

/* An instance has answered at the address that `opened` has. A visitor whose HELLO waits for that
 * gets an IAM, and so repeats the HELLO at once. */
static void answer_waiting(weir_engine *engine, struct peer *opened) {
    const struct visitor *visitor =
        opened->conn_waits != 0 ? found_visitor(engine, opened->conn_waits) : NULL;
    opened->conn_waits = 0;
    if (visitor != NULL)
        conn_identify(engine, visitor->conn, WIRE_IAM, visitor->instance, 0, false);
}

/* This instance answers on a connection that we dialled, and shows this pass (0: none). False: we
 * did not dial it. */
static bool dialled_is(weir_engine *engine, uint64_t conn, const uint8_t *instance, uint64_t pass) {
    struct peer *peer = dialled_on(engine, conn);
    if (peer == NULL)
        return false;
    const struct peer *other = peer_by_instance(engine, instance);
    if (!peer_is_known(peer) && other != NULL && peer_is_leaving(other)) {
        dial_again(engine, peer); /* its old sessions have to drain first */
        return true;
    }
    bool asked = peer->dial == DIAL_ASKING;
    bool shows = asked && other != NULL && !peer_is_leaving(other) && peer_speaks_for(peer, other);
    if (shows && other->pass_theirs != 0 &&
        !conn_identify(engine, conn, WIRE_IAM, instance, other->pass_theirs, false))
        return true; /* the connection broke meanwhile: the address will be dialled again */
    if (asked)
        dial_answered(engine, peer);
    /* Our own address: a peer that claims it is reached by its connection. */
    peer->dial_failed = memcmp(instance, engine->instance, WIRE_INSTANCE_SIZE) == 0;
    peer->shows_self = peer->dial_failed && pass != 0 && pass == engine->self_pass;
    peer->conn_last = conn;
    peer_learned(engine, peer, instance);
    if (asked && peer_is_there(peer) && memcmp(peer->instance, instance, WIRE_INSTANCE_SIZE) == 0)
        peer->reached = true;
    if (asked)
        peer->doubted = false;
    if (peer->proving && peer->reached)
        peer_proven(engine, peer);
    peer_set_timer(engine, peer);
    if (asked)
        answer_waiting(engine, peer);
    return true;
}

static void on_iam(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    if (!engine->closing && !dialled_is(engine, conn, message->from, message->pass))
        on_visitor_iam(engine, conn, message);
}

/* An instance without a peer here says HELLO or SETTLE. On a connection where we asked WHO, the
 * message stands for an IAM that is late or lost. NULL: not now; the message will be repeated. */
static struct peer *new_instance(weir_engine *engine, uint64_t conn,
                                 const struct wire_message *message) {
    const struct peer *peer = engine->closing ? NULL : dialled_on(engine, conn);
    if (peer != NULL && !peer_is_known(peer) && peer->dial == DIAL_ASKING) {
        dialled_is(engine, conn, message->from, 0);
        return peer_by_instance(engine, message->from);
    }
    return first_hello(engine, conn, message);
}

/* An instance that was given up here did not notice, and answers for a session of ours. SETTLE
 * tells it that this session is over, with all before it, and needs no endpoint. */
static void disown(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    if (message->echo <= engine->epoch_counter)
        conn_reply(engine, conn, message,
                   &(struct wire_message){.type = WIRE_SETTLE, .epoch = message->echo});
}

/* Anybody can say a word in a peer's name: it is recorded as that peer's if it came on a connection
 * of the peer's. */
static void heard(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    struct peer *peer = peer_by_instance(engine, message->from);
    int reason = message->type == WIRE_REFUSE ? message->reason : 0;
    uint64_t epoch = wire_epoch_of(message);
    if (peer != NULL && !is_strange(peer, conn))
        TRACE_WORD(engine, heard, peer, reason, (uint64_t)message->type, epoch);
    else
        TRACE_VISITOR(engine, heard, reason, (uint64_t)message->type, epoch);
}

static void on_message(weir_engine *engine, uint64_t conn, const struct wire_message *message) {
    engine->stats.control_received++;
    heard(engine, conn, message);
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
            conn_identify(engine, conn, WIRE_IAM, message->from, 0, false);
        return;
    }
    if (message->type == WIRE_IAM) {
        on_iam(engine, conn, message);
        return;
    }
    struct peer *peer = peer_by_instance(engine, message->from);
    if (peer == NULL && (message->type == WIRE_HELLO_ACK || message->type == WIRE_READY))
        disown(engine, conn, message);
    if (peer == NULL && (message->type == WIRE_HELLO || message->type == WIRE_SETTLE))
        peer = new_instance(engine, conn, message);
    if (peer == NULL || is_strange(peer, conn)) {
        engine->stats.control_stale++;
        if (peer != NULL && !peer_is_leaving(peer) && /* it may be the peer after all */
            conn_identify(engine, conn, WIRE_WHO, NULL, 0, false))
            later(engine, conn, message, WEIR_EAGAIN);
        return;
    }
    dial_spoke(engine, peer, conn);
    if (message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK)
        peer->pass_theirs = message->qps.pass;
    if (message->type == WIRE_ASK)
        ask_answer(engine, peer, conn, message);
    else if (message->type == WIRE_STATE)
        ask_heard(engine, peer, message);
    else
        effects_event(engine, peer, &(struct ep_event){.type = EP_EV_MESSAGE, .message = message});
}

/* Engines tell numeric addresses. A name that is told counts as none: anybody may tell one, and few
 * look-ups run at a time. */
static void ignore_name(const weir_engine *engine, struct wire_message *message) {
    const struct weir_control *control = &engine->ports.control;
    if ((message->type == WIRE_WHO || message->type == WIRE_IAM) && message->address[0] != '\0' &&
        !control->ops->numeric(control->self, message->address))
        message->address[0] = '\0';
}

/* An engine that speaks another version is told ours, by a message whose head it can read; and
 * where we dialled, its version is remembered for the application. An engine that dialled does not
 * answer: the other has heard our version already. */
static void on_malformed(weir_engine *engine, uint64_t conn, const uint8_t *bytes,
                         uint32_t length) {
    const struct weir_control *control = &engine->ports.control;
    uint32_t version = wire_version_of(bytes, length);
    struct peer *peer = dialled_on(engine, conn);
    engine->stats.control_malformed++;
    if (version != 0 && version != WIRE_VERSION) {
        if (peer != NULL)
            peer->version_theirs = version;
        else if (!engine->closing)
            conn_identify(engine, conn, WIRE_WHO, NULL, 0, false);
    }
    control->ops->hangup(control->self, conn);
    dial_closed(engine, conn, WEIR_EPEER);
}

static void on_connected(weir_engine *engine, uint64_t conn) {
    struct peer *peer = dialled_on(engine, conn);
    if (peer == NULL)
        return;
    TRACE_PEER(engine, connected, peer, 0, conn, 0);
    dial_connected(engine, peer);
}

/* Control events, up to budget; returns how many. */
int control_poll(weir_engine *engine, int budget) {
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
            dial_closed(engine, event.conn, event.error);
            break;
        case WEIR_CONTROL_STARVED:
            news_event(engine, WEIR_EVENT_REFUSED, 0, event.error, 0);
            break;
        case WEIR_CONTROL_MESSAGE:
            if (wire_decode_for(event.message, event.length, &engine->devices.entries[0],
                                &message) == WEIR_OK) {
                ignore_name(engine, &message);
                on_message(engine, event.conn, &message);
            } else {
                on_malformed(engine, event.conn, event.message, event.length);
            }
            break;
        default:
            break;
        }
        effects_perform(engine);
    }
    return count;
}
