/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c: the handshake machine; see endpoint.h and docs/protocol.md.
 *
 * endpoint_step sorts an event into an input (endpoint_input.c), looks the input
 * up in one table for the attempt's state, and runs that action. Only state_set writes the
 * state. Whatever the action was, proceed() then starts an attempt if somebody
 * waits for one and nothing is in the way.
 *
 * Three rules carry the safety:
 *  - An attempt binds once, and only to a remote epoch above all seen before
 *    (remote_seen). So a late message can never bind anything.
 *  - REFUSE(ESTALE) is said only of a remote epoch that this endpoint will never
 *    bind any more, so a late one is as true as a fresh one. It ends attempts only.
 *  - SETTLE(e) is said only when all our sessions up to e are over, live or not.
 *    Our epochs never come back, not even with another endpoint for the same
 *    remote. So the remote may end whatever it has with them, live or not, whenever
 *    it hears of it.
 * The invariants that follow are checked in endpoint_verify.c; what the engine asks between
 * steps is in endpoint_ask.c. The file is long because all actions share the small parts of a step.
 */
#include "endpoint.h"
#include "endpoint_input.h"

#include <assert.h>
#include <string.h>

_Static_assert(sizeof(struct endpoint) <= 3 * 1024, "an engine keeps one for every peer");

/* One call of endpoint_step. */
struct step {
    struct endpoint *ep;
    const struct ep_event *event;
    const struct wire_message *message;
    uint64_t now_ns;
    struct ep_effect *effects;
    uint32_t effect_count;
};

/* ---- small parts ------------------------------------------------------- */

static uint64_t after(uint64_t now_ns, uint64_t delay_ns) {
    return delay_ns > UINT64_MAX - 1 - now_ns ? UINT64_MAX - 1 : now_ns + delay_ns;
}

/* A message is said now, and is to be said again until it is answered. */
static void pause_start(struct step *s, struct rtt_pause *pause) {
    const struct ep_options *o = &s->ep->options;

    rtt_say(o->rtt, pause, s->now_ns, o->retransmit_ns, o->connect_timeout_ns);
}

static void answered(struct step *s, struct rtt_pause *pause) {
    rtt_answered(s->ep->options.rtt, pause, s->now_ns);
}

static struct wire_qp_set *local_of(const struct endpoint *ep) {
    return (struct wire_qp_set *)(void *)(ep->papers + 1);
}

static struct wire_qp_set *remote_of(const struct endpoint *ep) {
    const uint32_t qps = ep->options.pile->qps;

    return (struct wire_qp_set *)(void *)((uint8_t *)local_of(ep) + EP_SET_BYTES(qps));
}

static uint8_t *hello_of(const struct endpoint *ep, struct ep_papers *papers) {
    return (uint8_t *)(papers + 1) + 2 * EP_SET_BYTES(ep->options.pile->qps);
}

/* Of more QPs than there are here, those are left out. */
static void set_keep(const struct endpoint *ep, struct wire_qp_set *to,
                     const struct wire_qp_set *from) {
    memcpy(to, from, EP_SET_BYTES(ep->options.pile->qps));
}

static void papers_take(struct endpoint *ep) {
    struct ep_pile *pile = ep->options.pile;

    assert(ep->papers == NULL);
    if (pile->free != NULL) {
        ep->papers = pile->free;
        pile->free = ep->papers->next;
    } else {
        assert(pile->fresh < pile->count);
        ep->papers = (struct ep_papers *)(void *)((uint8_t *)pile->papers +
                                                  pile->fresh++ * EP_PAPERS_BYTES(pile->qps));
    }
}

static void papers_give(struct endpoint *ep, struct ep_papers **papers) {
    (*papers)->next = ep->options.pile->free;
    ep->options.pile->free = *papers;
    *papers = NULL;
}

static void state_set(struct step *s, enum ep_state state) {
    assert(s->ep->state != EP_GONE);
    s->ep->state = state;
}

static struct ep_effect *effect(struct step *s, enum ep_effect_type type) {
    struct ep_effect *e = &s->effects[s->effect_count++];

    assert(s->effect_count <= EP_EFFECTS_MAX);
    memset(e, 0, sizeof(*e));
    e->type = type;
    e->session = EP_SESSION_NONE;
    return e;
}

static struct ep_effect *effect_session(struct step *s, enum ep_effect_type type,
                                        uint32_t session) {
    struct ep_effect *e = effect(s, type);

    e->session = session;
    e->epoch = s->ep->sessions[session].epoch;
    e->epoch_remote = s->ep->sessions[session].epoch_remote;
    return e;
}

static void address_message(const struct endpoint *ep, struct wire_message *message) {
    memcpy(message->from, ep->options.instance_local, WIRE_INSTANCE_SIZE);
    memcpy(message->to, ep->options.instance_remote, WIRE_INSTANCE_SIZE);
}

/* Sends a message without a QP set. */
static struct ep_effect *send_small(struct step *s, struct wire_message *message) {
    struct ep_effect *e = effect(s, EP_DO_SEND);
    int error;

    address_message(s->ep, message);
    error = wire_encode(message, e->own.small, sizeof(e->own.small), &e->length);
    assert(error == WEIR_OK);
    (void)error;
    e->data = e->own.small;
    return e;
}

static void send_ready(struct step *s, uint32_t session) {
    struct wire_message m = {.type = WIRE_READY,
                             .epoch = s->ep->sessions[session].epoch,
                             .echo = s->ep->sessions[session].epoch_remote};

    send_small(s, &m);
}

/* Where the two have nothing in common, the remote is told what this side has. */
static void send_refuse(struct step *s, uint64_t echo, int reason) {
    struct wire_message m = {.type = WIRE_REFUSE, .echo = echo, .reason = reason};

    if (reason == WEIR_EREFUSED && s->ep->options.devices != NULL)
        m.devices = *s->ep->options.devices;
    send_small(s, &m);
}

/* Says what is in the way of the remote's attempt now; it may still be answered. EAGAIN is not
 * said: the remote could report nothing by it. */
static void send_later(struct step *s, uint64_t echo, int error) {
    if (error != WEIR_EAGAIN)
        send_refuse(s, echo | WIRE_ECHO_LATER, error);
}

static struct ep_effect *send_settle(struct step *s) {
    struct wire_message m = {.type = WIRE_SETTLE, .epoch = s->ep->settle_asked};

    return send_small(s, &m);
}

static void send_hello(struct step *s, struct ep_papers *papers) {
    struct ep_effect *e = effect(s, EP_DO_SEND);

    e->data = hello_of(s->ep, papers);
    e->length = papers->length;
    e->retransmit = papers->sent;
    e->attempt = papers != s->ep->papers_live;
    papers->sent = true;
}

/* All devices but the first, which the QP set is of. */
static void tell_others(const struct endpoint *ep, struct wire_devices *out) {
    const struct wire_devices *all = ep->options.devices;

    for (uint32_t i = 1; all != NULL && i < all->count; i++)
        out->entries[out->count++] = all->entries[i];
}

/* Builds what next says of itself from now on: HELLO, or HELLO_ACK once bound. HELLO may be refused
 * for its device, and so tells the others, too. */
static void hello_build(struct step *s) {
    struct endpoint *ep = s->ep;
    const struct ep_session *next = &ep->sessions[ep->next];
    struct wire_message m = {.type = next->epoch_remote == 0 ? WIRE_HELLO : WIRE_HELLO_ACK,
                             .epoch = next->epoch,
                             .echo = next->epoch_remote};
    int error;

    set_keep(ep, &m.qps, local_of(ep));
    address_message(ep, &m);
    if (m.type == WIRE_HELLO)
        tell_others(ep, &m.devices);
    ep->papers->sent = false;
    error = wire_encode(&m, hello_of(ep, ep->papers), EP_HELLO_BYTES(ep->options.pile->qps),
                        &ep->papers->length);
    assert(error == WEIR_OK);
    (void)error;
}

/* ---- wanting, and failing to get --------------------------------------- */

/* The error that the wish fails with when its deadline passes. */
static void want_note(struct step *s, int error, int reason) {
    s->ep->want_error = error;
    s->ep->want_reason = reason;
}

/* Something is in the way now. EAGAIN says nothing, and ECONNECT less than a lack that is known: it
 * is often the consequence, as QPs that the remote could not connect are not reached. */
static void want_learn(struct step *s, int error, int reason) {
    const struct endpoint *ep = s->ep;

    if (!ep->want || error == WEIR_EAGAIN ||
        (error == WEIR_ECONNECT && ep->want_error != WEIR_ECONNECT))
        return;
    want_note(s, error, reason);
}

static void want_raise(struct step *s) {
    struct endpoint *ep = s->ep;

    if (ep->want)
        return;
    ep->want = true;
    want_note(s, WEIR_ECONNECT, 0);
    ep->mismatch = (struct ep_mismatch){0};
    /* The last wish may have left a long pause. */
    const uint64_t pause_end_ns = after(s->now_ns, ep->options.retransmit_ns);
    if (ep->state == EP_NONE && ep->attempt.next_ns != UINT64_MAX &&
        ep->attempt.next_ns > pause_end_ns)
        ep->attempt.next_ns = pause_end_ns;
    ep->pauses = 0;
    ep->given_up = 0;
    ep->want_deadline_ns = after(s->now_ns, ep->options.connect_timeout_ns);
}

static void want_fail(struct step *s, int error, int reason) {
    if (!s->ep->want)
        return;
    want_note(s, error, reason);
    s->ep->want = false;
    effect(s, EP_DO_FAILED)->error = error;
}

/* ---- sessions ---------------------------------------------------------- */

static void retire(struct step *s, uint32_t session) {
    struct endpoint *ep = s->ep;

    ep->sessions[session].state = EP_SESSION_RETIRED;
    effect_session(s, EP_DO_RETIRE, session);
    if (session == ep->next) {
        ep->next = EP_SESSION_NONE;
        ep->probe_due = false;
        papers_give(ep, &ep->papers);
    }
    if (session == ep->live) {
        ep->live = EP_SESSION_NONE;
        papers_give(ep, &ep->papers_live);
        rtt_silence(&ep->probe);
    }
}

/* Retires a session and has the remote do the same, if it can have it live.
 *
 * SETTLE speaks for all epochs up to its own. A live session that is older than
 * an attempt goes with it: such an attempt is always the remote's, which makes one
 * only after it lost its side of the live session. */
static void session_end(struct step *s, uint32_t session) {
    struct endpoint *ep = s->ep;
    const bool connected = ep->sessions[session].connected;
    const uint64_t epoch = ep->sessions[session].epoch;

    if (session == ep->live)
        want_raise(s);
    retire(s, session);
    if (!connected)
        return;
    if (ep->live != EP_SESSION_NONE && ep->sessions[ep->live].epoch < epoch) {
        want_raise(s);
        retire(s, ep->live);
    }
    if (epoch <= ep->settle_asked)
        return;
    ep->settle_asked = epoch;
    send_settle(s);
    pause_start(s, &ep->settle);
}

static void attempt_end(struct step *s) {
    session_end(s, s->ep->next);
    rtt_silence(&s->ep->attempt);
    state_set(s, EP_NONE);
}

/* Keeps proceed() from trying again at once, so that a remote which refuses everything cannot make
 * us create QPs faster than we retransmit. Where one of the two lacks something, each pause is
 * twice the one before, up to the longest between two HELLOs that are put off. */
static void attempt_pause(struct step *s) {
    struct endpoint *ep = s->ep;

    rtt_silence(&ep->attempt);
    ep->attempt.next_ns = after(s->now_ns, ep->options.retransmit_ns << ep->pauses);
    if (ep->want && ep->want_error != WEIR_ECONNECT && ep->pauses < RTT_DOUBLINGS)
        ep->pauses++;
}

/* Takes an entry and an epoch, if an entry is free. CREATE has to be last. */
static bool attempt_start(struct step *s, enum ep_state state, uint64_t deadline_ns) {
    struct endpoint *ep = s->ep;
    uint32_t session = 0;

    while (session < EP_SESSIONS && ep->sessions[session].state != EP_SESSION_FREE)
        session++;
    if (session == EP_SESSIONS)
        return false;
    ep->sessions[session] =
        (struct ep_session){.state = EP_SESSION_NEXT, .epoch = ++*ep->options.epoch_counter};
    ep->next = session;
    papers_take(ep);
    ep->attempt_deadline_ns = deadline_ns;
    ep->put_off = false;
    rtt_silence(&ep->attempt);
    effect_session(s, EP_DO_CREATE, session);
    state_set(s, state);
    return true;
}

/* Refuses the remote's attempt for good, and repeats that when it asks again. Instead of
 * ESTALE it says EREFUSED: at ESTALE the remote would try again. */
static void refuse_for_good(struct step *s, uint64_t epoch_remote, int error) {
    s->ep->refused_epoch = epoch_remote;
    s->ep->refused_reason = error == WEIR_ESTALE ? WEIR_EREFUSED : error;
    send_refuse(s, epoch_remote, s->ep->refused_reason);
}

static void attempt_refuse(struct step *s, uint64_t epoch_remote, int error) {
    refuse_for_good(s, epoch_remote, error);
    attempt_end(s);
    want_fail(s, error, error == WEIR_EREFUSED ? error : 0);
}

/* The remote's list. Nothing is remarkable of two devices that meet. */
static struct ep_mismatch mismatch_of(const struct endpoint *ep,
                                      const struct wire_devices *remote) {
    const struct wire_devices *local = ep->options.devices;
    const struct wire_device *theirs = wire_devices_used(remote), *here, *there;
    struct ep_mismatch out = {0};

    if (local == NULL || local->count == 0 || theirs == NULL ||
        (strncmp(theirs->name, local->entries[0].name, sizeof(theirs->name)) == 0 &&
         memcmp(theirs->fabric, local->entries[0].fabric, sizeof(theirs->fabric)) == 0))
        return out;
    memcpy(out.theirs, theirs->name, sizeof(out.theirs));
    here = wire_devices_common(local, remote, &there);
    if (here != NULL) {
        memcpy(out.both, here->name, sizeof(out.both));
        out.tried_here = !here->untried;
        out.tried_there = !there->untried;
    }
    return out;
}

/* The message has the remote's QP set, and perhaps more of its devices. */
static void remote_take(struct step *s) {
    const struct wire_message *m = s->message;
    struct wire_devices devices = {0};

    set_keep(s->ep, remote_of(s->ep), &m->qps);
    if (m->qps.qp_count > 0) {
        struct wire_device *first = &devices.entries[devices.count++];
        first->used = true;
        memcpy(first->name, m->qps.device, sizeof(first->name));
        memcpy(first->fabric, m->qps.fabric, sizeof(first->fabric));
    }
    for (uint32_t i = 0; i < m->devices.count; i++)
        devices.entries[devices.count++] = m->devices.entries[i];
    s->ep->papers->mismatch = mismatch_of(s->ep, &devices);
}

/* Binds next to the remote's set. */
static void attempt_bind(struct step *s, uint64_t epoch_remote, enum ep_state state, bool cross) {
    struct endpoint *ep = s->ep;
    struct wire_agreed agreed;

    assert(ep->sessions[ep->next].epoch_remote == 0 && epoch_remote > ep->remote_seen);
    ep->sessions[ep->next].epoch_remote = epoch_remote;
    ep->remote_seen = epoch_remote;
    rtt_silence(&ep->attempt);
    if (wire_qp_set_negotiate(local_of(ep), remote_of(ep), &agreed) != WEIR_OK) {
        ep->mismatch = ep->papers->mismatch;
        attempt_refuse(s, epoch_remote, WEIR_EREFUSED);
        if (state == EP_ACCEPTING)
            effect(s, EP_DO_REFUSED)->error = WEIR_EREFUSED;
        return;
    }
    hello_build(s);
    struct ep_effect *e = effect_session(s, EP_DO_CONNECT, ep->next);
    e->remote = remote_of(ep);
    e->agreed = agreed;
    e->crossing = cross;
    state_set(s, state);
}

/* Asks the remote whether it has the live session. */
static void probe_start(struct step *s) {
    struct endpoint *ep = s->ep;
    const bool asked = ep->probe.next_ns != UINT64_MAX;

    ep->probe_due = false;
    send_hello(s, ep->papers_live);
    pause_start(s, &ep->probe);
    if (asked)
        ep->probe.said_ns = UINT64_MAX; /* said twice: no measure */
    ep->probe_end_ns = after(s->now_ns, ep->options.connect_timeout_ns);
}

static void attempt_up(struct step *s) {
    struct endpoint *ep = s->ep;
    const uint32_t old = ep->live;

    ep->live = ep->next;
    ep->next = EP_SESSION_NONE;
    ep->sessions[ep->live].state = EP_SESSION_LIVE;
    if (old != EP_SESSION_NONE)
        papers_give(ep, &ep->papers_live);
    ep->papers_live = ep->papers;
    ep->papers = NULL;
    ep->want = false;
    ep->want_reason = 0;
    ep->mismatch = (struct ep_mismatch){0};
    ep->given_up = 0;
    rtt_silence(&ep->attempt);
    rtt_silence(&ep->probe);
    state_set(s, EP_NONE);
    effect_session(s, EP_DO_UP, ep->live);
    if (old != EP_SESSION_NONE)
        session_end(s, old);
    if (ep->probe_due)
        probe_start(s);
}

/* Says how far all that is owed has drained, so that a session which takes long, or
 * newer ones that break and drain for ever, delay no answer but their own. Less than
 * all of it is said only from part_min on: below, it is no news. */
static void answer_settle(struct step *s, uint64_t part_min) {
    struct endpoint *ep = s->ep;
    struct wire_message m = {.type = WIRE_SETTLED, .echo = ep->settle_owed};

    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        const struct ep_session *session = &ep->sessions[i];
        if (session->state != EP_SESSION_FREE && session->epoch_remote != 0 &&
            session->epoch_remote <= m.echo)
            m.echo = session->epoch_remote - 1; /* the rest when it has drained */
    }
    if (m.echo == ep->settle_owed)
        ep->settle_owed = ep->settle_part = 0;
    else if (m.echo >= part_min)
        ep->settle_part = m.echo;
    else
        return;
    ep->options.settled(ep->options.self, m.echo, &m.settled);
    send_small(s, &m);
}

static void all_end(struct step *s, int error) {
    struct endpoint *ep = s->ep;

    if (ep->next != EP_SESSION_NONE)
        retire(s, ep->next);
    if (ep->live != EP_SESSION_NONE)
        retire(s, ep->live);
    ep->want = false;
    ep->settle_owed = ep->settle_part = 0;
    rtt_silence(&ep->attempt);
    rtt_silence(&ep->settle);
    ep->gone_error = error;
    state_set(s, EP_GONE);
}

/* ---- actions: one for each different cell of the table ------------------ */

/* The engine's mistake: it answered what was not asked. Nothing that a remote
 * sends leads here. */
static void act_bug(struct step *s) {
    assert(false && "an input that this state cannot have");
    (void)s;
}

static void act_stay(struct step *s) {
    (void)s;
}

/* A message that is old or foreign, or that comes between CREATE or CONNECT and the
 * answer. The remote repeats a message that still matters. */
static void act_drop(struct step *s) {
    s->ep->stale++;
}

static void act_want(struct step *s) {
    if (s->ep->live == EP_SESSION_NONE)
        want_raise(s);
}

static void act_late(struct step *s) {
    effect(s, EP_DO_FAILED)->error = s->ep->gone_error;
}

static void act_answer(struct step *s) {
    struct endpoint *ep = s->ep;
    const uint64_t deadline_ns = after(s->now_ns, ep->options.connect_timeout_ns);

    if (!attempt_start(s, EP_ANSWERING, deadline_ns)) {
        ep->stale++; /* all entries are draining; it will ask again */
        return;
    }
    ep->answer_epoch = s->message->epoch;
    remote_take(s);
}

static void act_cross(struct step *s) {
    remote_take(s);
    attempt_bind(s, s->message->epoch, EP_ACCEPTING, true);
}

/* The remote has given up the epoch that we are bound to, and asks with another. */
static void act_renew(struct step *s) {
    attempt_end(s);
    act_answer(s);
}

static void act_reack(struct step *s) {
    s->ep->attempt.said_ns = UINT64_MAX; /* said twice: no measure */
    send_hello(s, s->ep->papers);
}

static void act_relive(struct step *s) {
    send_hello(s, s->ep->papers_live);
}

/* Whether all our sessions up to epoch are over, so that SETTLE can be said. */
static bool all_over(const struct endpoint *ep, uint64_t epoch) {
    if (ep->live != EP_SESSION_NONE && ep->sessions[ep->live].epoch <= epoch)
        return false;
    if (ep->next != EP_SESSION_NONE && ep->sessions[ep->next].epoch <= epoch)
        return false;
    return epoch <= *ep->options.epoch_counter;
}

/* This epoch of the remote's can never become a session: it is not above
 * remote_seen, or is bound to something of ours that is over. */
static void refuse(struct step *s) {
    struct endpoint *ep = s->ep;
    const uint64_t epoch = s->message->epoch;

    send_refuse(s, epoch, epoch == ep->refused_epoch ? ep->refused_reason : WEIR_ESTALE);
}

static void act_refuse(struct step *s) {
    s->ep->stale++;
    refuse(s);
}

static void act_join(struct step *s) {
    answered(s, &s->ep->attempt);
    remote_take(s);
    attempt_bind(s, s->message->epoch, EP_JOINING, false);
}

/* The remote bound another attempt of its own to ours than we did: it had given
 * up the one that we chose. Neither binding can be completed. */
static void act_differ(struct step *s) {
    s->ep->remote_seen = s->message->epoch;
    attempt_end(s);
}

static void act_acked(struct step *s) {
    answered(s, &s->ep->attempt);
    send_ready(s, s->ep->next);
    attempt_up(s);
}

static void act_ready(struct step *s) {
    send_ready(s, s->ep->live);
}

/* An endpoint with a session asks whether the remote has it, too, and repeats that until
 * it hears READY or SETTLE, or connect_timeout_ns is over. A remote that has forgotten us
 * does not ask for a READY that got lost, and does not say that it has forgotten us. */
static void act_probe(struct step *s) {
    struct endpoint *ep = s->ep;

    if (ep->live == EP_SESSION_NONE)
        ep->probe_due = ep->next != EP_SESSION_NONE;
    else
        probe_start(s);
}

/* The attempt's last message again, at once: the remote put the HELLO off, and has spoken since, or
 * the connection that carried the message is lost. */
static void act_repeat(struct step *s) {
    if (s->ep->put_off || s->event->unheard) {
        send_hello(s, s->ep->papers);
        /* The measure begins anew: an answer to the first one was lost with its connection. */
        if (s->ep->attempt.said_ns != UINT64_MAX)
            s->ep->attempt.said_ns = s->now_ns;
    }
    s->ep->put_off = false;
}

static void act_ask(struct step *s) {
    act_probe(s);
    if (s->event->unheard)
        act_repeat(s);
}

static void act_alive(struct step *s) {
    answered(s, &s->ep->probe);
}

/* The remote has a session of ours live that we have ended, maybe with an endpoint
 * that was forgotten since. */
static void act_over(struct step *s) {
    struct wire_message m = {.type = WIRE_SETTLE, .epoch = s->message->echo};

    s->ep->stale++;
    if (all_over(s->ep, m.epoch))
        send_small(s, &m);
}

/* The remote has a live session or an attempt that we have ended. REFUSE ends an attempt; only
 * SETTLE ends a live session. SETTLE is true whatever was forgotten here. */
static void act_void(struct step *s) {
    refuse(s);
    act_over(s);
}

/* The remote bound our attempt to an attempt of its own that we have bound before, and given up
 * since. So both are used up. If only the remote began again, its next HELLO would bind our attempt
 * here, which it cannot bind any more, and so on crosswise for as long as HELLOs cross. */
static void act_spent(struct step *s) {
    attempt_end(s);
    attempt_pause(s);
    act_void(s);
}

static void act_up(struct step *s) {
    answered(s, &s->ep->attempt);
    attempt_up(s);
}

static void act_again(struct step *s) {
    attempt_end(s);
    attempt_pause(s);
}

static void act_denied(struct step *s) {
    s->ep->mismatch = (struct ep_mismatch){0};
    if (s->message->reason == WEIR_EREFUSED)
        s->ep->mismatch = mismatch_of(s->ep, &s->message->devices);
    attempt_end(s);
    want_fail(s, WEIR_EREFUSED, s->message->reason);
}

/* HELLO is repeated: the remote may have room by then. ECONNECT says that the remote's device does
 * not reach ours, and is not reported as EREFUSED: neither side refused. */
static void act_note(struct step *s) {
    struct endpoint *ep = s->ep;
    const int reason = s->message->reason;
    const bool first = ep->attempt.said_ns != UINT64_MAX;

    ep->put_off = ep->state == EP_OFFERED;
    /* The HELLO was heard: its repetition is a new try, at the plain pauses. */
    if (ep->state == EP_OFFERED && first) {
        answered(s, &ep->attempt);
        ep->attempt.interval_ns = ep->options.retransmit_ns;
        ep->attempt.most_ns = ep->options.retransmit_ns << RTT_DOUBLINGS;
        ep->attempt.next_ns = after(s->now_ns, ep->attempt.interval_ns);
    }

    want_learn(s, reason == WEIR_ECONNECT || reason == WEIR_EAGAIN ? reason : WEIR_EREFUSED,
               reason);
}

/* The remote gave up the attempt that ours was bound to. Once we begin anew at once. But where both
 * do so, HELLOs that cross may bind each new attempt to the other's last, which that one is about
 * to give up in turn, and so on for ever: from the second time on, what is under way comes first.
 * It may be under way for longer than one pause, so each pause is twice the one before. */
static void attempt_given_up(struct step *s) {
    struct endpoint *ep = s->ep;

    attempt_end(s);
    if (!ep->want)
        return;
    if (ep->given_up > 0)
        ep->attempt.next_ns = after(s->now_ns, ep->options.retransmit_ns << (ep->given_up - 1));
    if (ep->given_up <= RTT_DOUBLINGS)
        ep->given_up++;
}

static void act_settle(struct step *s) {
    struct endpoint *ep = s->ep;
    const uint64_t epoch = s->message->epoch;
    const uint32_t next = ep->next;
    const uint32_t live = ep->live;
    const bool repeated = epoch <= ep->settle_owed;

    if (next != EP_SESSION_NONE && ep->sessions[next].epoch_remote != 0 &&
        ep->sessions[next].epoch_remote <= epoch)
        attempt_given_up(s);
    if (ep->live != EP_SESSION_NONE && ep->sessions[live].epoch_remote <= epoch)
        session_end(s, live);
    if (ep->remote_seen < epoch)
        ep->remote_seen = epoch;
    if (ep->settle_owed < epoch)
        ep->settle_owed = epoch;
    /* Part of the answer may have been lost. */
    answer_settle(s, repeated && ep->settle_part != 0 ? ep->settle_part : UINT64_MAX);
}

static void act_settled(struct step *s) {
    struct endpoint *ep = s->ep;
    const uint64_t epoch = s->message->echo;
    struct ep_effect *e;

    if (epoch <= ep->settle_done || epoch > ep->settle_asked) {
        ep->stale++;
        return;
    }
    /* A session of these was broken by a refusal over there, perhaps before we heard that it is up.
     * So the remote is there, and transfers that wait for a session get their whole time again. */
    if (s->message->settled.reason == WEIR_EREMOTE && s->message->settled.broke > ep->settle_done)
        ep->want_deadline_ns = after(s->now_ns, ep->options.connect_timeout_ns);
    ep->settle_done = epoch;
    if (epoch == ep->settle_asked)
        rtt_silence(&ep->settle);
    e = effect(s, EP_DO_SETTLED);
    e->epoch = epoch;
    e->own.said = s->message->settled;
    e->settled = &e->own.said;
}

static void act_dead(struct step *s) {
    const int error = s->message != NULL ? WEIR_EPEER : s->event->error;

    all_end(s, error);
    effect(s, EP_DO_GONE)->error = error;
}

static void act_close(struct step *s) {
    struct wire_message m = {.type = WIRE_BYE};

    send_small(s, &m);
    all_end(s, WEIR_ECLOSED);
}

static void act_offer(struct step *s) {
    struct endpoint *ep = s->ep;

    assert(s->event->session == ep->next);
    set_keep(ep, local_of(ep), s->event->local);
    hello_build(s);
    send_hello(s, ep->papers);
    pause_start(s, &ep->attempt);
    state_set(s, EP_OFFERED);
}

static void act_accept(struct step *s) {
    assert(s->event->session == s->ep->next);
    set_keep(s->ep, local_of(s->ep), s->event->local);
    attempt_bind(s, s->ep->answer_epoch, EP_ACCEPTING, false);
}

/* Nothing was made, so there is nothing to drain. A remote that asked is told why, but for EAGAIN.
 * An error that may pass leaves the remote's epoch unused: it asks again. */
static void act_noqps(struct step *s) {
    struct endpoint *ep = s->ep;
    const int error = s->event->error;
    const bool answering = ep->state == EP_ANSWERING;

    assert(s->event->session == ep->next);
    ep->sessions[ep->next].state = EP_SESSION_FREE;
    ep->next = EP_SESSION_NONE;
    papers_give(ep, &ep->papers);
    state_set(s, EP_NONE);
    if (endpoint_may_pass(error)) {
        if (answering)
            send_later(s, ep->answer_epoch, error);
        want_learn(s, error, 0);
        attempt_pause(s);
        return;
    }
    if (answering) {
        ep->remote_seen = ep->answer_epoch;
        refuse_for_good(s, ep->answer_epoch, error);
    }
    want_fail(s, error, 0);
}

static void act_joined(struct step *s) {
    assert(s->event->session == s->ep->next);
    s->ep->sessions[s->ep->next].connected = true;
    send_ready(s, s->ep->next);
    attempt_up(s);
}

static void act_served(struct step *s) {
    assert(s->event->session == s->ep->next);
    s->ep->sessions[s->ep->next].connected = true;
    send_hello(s, s->ep->papers);
    pause_start(s, &s->ep->attempt);
    state_set(s, EP_CONFIRM);
}

static void act_noconn(struct step *s) {
    struct endpoint *ep = s->ep;
    const uint64_t epoch_remote = ep->sessions[ep->next].epoch_remote;
    int error = s->event->error;

    assert(s->event->session == ep->next);
    if (error == WEIR_EPEER)
        error = WEIR_ECONNECT; /* not reached, it may live */
    if (!endpoint_may_pass(error) && error != WEIR_EDEVICE) {
        attempt_refuse(s, epoch_remote, error);
        return;
    }
    want_learn(s, error, 0);
    send_later(s, epoch_remote, error);
    act_again(s);
}

static void act_lost(struct step *s) {
    session_end(s, s->ep->live);
}

static void act_drained(struct step *s) {
    struct ep_session *session = &s->ep->sessions[s->event->session];

    assert(session->state == EP_SESSION_RETIRED);
    session->state = EP_SESSION_FREE;
    if (s->ep->settle_owed != 0)
        answer_settle(s, session->epoch_remote != 0 ? session->epoch_remote : UINT64_MAX);
}

static void act_tick(struct step *s) {
    struct endpoint *ep = s->ep;

    if (s->now_ns >= ep->settle.next_ns) {
        send_settle(s)->retransmit = true;
        rtt_say_again(NULL, &ep->settle, s->now_ns); /* of a drain: no round trip */
    }
    if (ep->state == EP_NONE) {
        if (s->now_ns >= ep->attempt.next_ns)
            rtt_silence(&ep->attempt); /* the pause is over: proceed() */
    } else if (s->now_ns >= ep->attempt_deadline_ns) {
        attempt_end(s);
    } else if (s->now_ns >= ep->attempt.next_ns) {
        send_hello(s, ep->papers);
        rtt_say_again(ep->options.rtt, &ep->attempt, s->now_ns);
    }
    if (s->now_ns >= ep->probe.next_ns) {
        if (s->now_ns >= ep->probe_end_ns) {
            rtt_silence(&ep->probe);
        } else {
            send_hello(s, ep->papers_live);
            rtt_say_again(ep->options.rtt, &ep->probe, s->now_ns);
        }
    }
    if (ep->want && s->now_ns >= ep->want_deadline_ns)
        want_fail(s, ep->want_error, ep->want_reason);
}

/* ---- the table --------------------------------------------------------- */

/* X(name, function). 0 is no action: a cell that nobody wrote. */
#define EP_ACTIONS(X)                                                                              \
    X(BUG, act_bug)       /* cannot happen */                                                      \
    X(STAY, act_stay)     /* nothing to do */                                                      \
    X(DROP, act_drop)     /* ignored and counted */                                                \
    X(WANT, act_want)     /* remember that somebody waits */                                       \
    X(LATE, act_late)     /* tell them that the remote is gone */                                  \
    X(ANSWER, act_answer) /* make QPs for the remote's attempt */                                  \
    X(CROSS, act_cross)   /* bind our attempt to the remote's HELLO */                             \
    X(RENEW, act_renew)   /* drop our attempt and answer the newer one */                          \
    X(REACK, act_reack)   /* HELLO_ACK of the attempt again */                                     \
    X(RELIVE, act_relive) /* HELLO_ACK of the live session again */                                \
    X(REFUSE, act_refuse) /* say that this epoch is over */                                        \
    X(JOIN, act_join)     /* bind our attempt to the remote's HELLO_ACK */                         \
    X(DIFFER, act_differ) /* the two sides chose differently: start over */                        \
    X(ACKED, act_acked)   /* confirmed: READY, up */                                               \
    X(READY, act_ready)   /* READY of the live session again */                                    \
    X(PROBE, act_probe)   /* HELLO_ACK of the live session, if there is one */                     \
    X(REPEAT, act_repeat) /* HELLO again, if it was put off, or is unheard */                      \
    X(ASK, act_ask)       /* PROBE, and HELLO_ACK again, if it is unheard */                       \
    X(ALIVE, act_alive)   /* the remote has the live session */                                    \
    X(OVER, act_over)     /* say that our epoch is over */                                         \
    X(VOID, act_void)     /* say that this epoch and ours are over */                              \
    X(SPENT, act_spent)   /* VOID, end this attempt, try another after a pause */                  \
    X(UP, act_up)         /* confirmed: up */                                                      \
    X(AGAIN, act_again)   /* end this attempt, try another after a pause */                        \
    X(DENIED, act_denied) /* end this attempt and say why */                                       \
    X(NOTE, act_note)     /* remember why, for the deadline */                                     \
    X(SETTLE, act_settle) /* end what the remote gave up; answer once drained */                   \
    X(TELL, act_settled)  /* pass on what the remote says */                                       \
    X(DEAD, act_dead)     /* the remote is gone */                                                 \
    X(CLOSE, act_close)   /* BYE */                                                                \
    X(OFFER, act_offer)   /* send HELLO */                                                         \
    X(ACCEPT, act_accept) /* bind to the HELLO that we answer */                                   \
    X(NOQPS, act_noqps)   /* no QPs: fail, or try later */                                         \
    X(JOINED, act_joined) /* connected: READY, up */                                               \
    X(SERVED, act_served) /* connected: send HELLO_ACK */                                          \
    X(NOCONN, act_noconn) /* not connected: refuse, or try later */                                \
    X(LOST, act_lost)     /* the live session is over: SETTLE, reconnect */                        \
    X(FREE, act_drained)  /* the entry is free; answer SETTLE as far as it goes now */             \
    X(TICK, act_tick)     /* resend, give up */

enum ep_action {
    A_UNSET = 0,
#define EP_ACTION_X(name, function) A_##name,
    EP_ACTIONS(EP_ACTION_X)
#undef EP_ACTION_X
        A_COUNT
};

static void (*const ACTIONS[A_COUNT])(struct step *s) = {[A_UNSET] = act_bug,
#define EP_ACTION_X(name, function) [A_##name] = (function),
                                                         EP_ACTIONS(EP_ACTION_X)
#undef EP_ACTION_X
};

/* States where CREATE is being answered (MAKING, ANSWERING) last for an instant. States where
 * CONNECT is being answered (JOINING, ACCEPTING) may last longer: they end with the attempt's
 * deadline, or when a QP breaks. All four drop messages that would change the attempt; the remote
 * repeats those that still matter. SETTLE is answered while CONNECT is: a device may take as long
 * as it likes for that, and the remote's transfers wait for the answer. An attempt of our own
 * (MAKING, OFFERED, JOINING) is wanted already, and has no live session beside it. */
/* clang-format off */
static const uint8_t TABLE[IN_COUNT][EP_STATE_COUNT] = {
/*                   NONE      MAKING    ANSWERING OFFERED   JOINING   ACCEPTING CONFIRM   GONE */
[IN_WANT]         = {A_WANT,   A_STAY,   A_WANT,   A_STAY,   A_STAY,   A_WANT,   A_WANT,   A_LATE},
[IN_HELLO_NEW]    = {A_ANSWER, A_DROP,   A_DROP,   A_CROSS,  A_DROP,   A_DROP,   A_RENEW,  A_DROP},
[IN_HELLO_NEXT]   = {A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_DROP,   A_DROP,   A_REACK,  A_BUG},
[IN_HELLO_LIVE]   = {A_RELIVE, A_BUG,    A_RELIVE, A_BUG,    A_BUG,    A_RELIVE, A_RELIVE, A_BUG},
[IN_HELLO_OLD]    = {A_REFUSE, A_REFUSE, A_REFUSE, A_REFUSE, A_REFUSE, A_REFUSE, A_REFUSE, A_DROP},
[IN_ACK_NEW]      = {A_BUG,    A_DROP,   A_DROP,   A_JOIN,   A_DROP,   A_DROP,   A_DIFFER, A_BUG},
[IN_ACK_NEXT]     = {A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_DROP,   A_DROP,   A_ACKED,  A_BUG},
[IN_ACK_LIVE]     = {A_READY,  A_BUG,    A_READY,  A_BUG,    A_BUG,    A_READY,  A_READY,  A_BUG},
[IN_ACK_SPENT]    = {A_BUG,    A_BUG,    A_BUG,    A_SPENT,  A_BUG,    A_BUG,    A_BUG,    A_BUG},
[IN_ACK_OLD]      = {A_VOID,   A_VOID,   A_VOID,   A_VOID,   A_VOID,   A_VOID,   A_VOID,   A_VOID},
[IN_READY_NEXT]   = {A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_DROP,   A_DROP,   A_UP,     A_BUG},
[IN_READY_LIVE]   = {A_ALIVE,  A_BUG,    A_ALIVE,  A_BUG,    A_BUG,    A_ALIVE,  A_ALIVE,  A_BUG},
[IN_READY_OLD]    = {A_OVER,   A_OVER,   A_OVER,   A_OVER,   A_OVER,   A_OVER,   A_OVER,   A_OVER},
[IN_REFUSE_STALE] = {A_BUG,    A_DROP,   A_DROP,   A_AGAIN,  A_DROP,   A_DROP,   A_AGAIN,  A_BUG},
[IN_REFUSE_FINAL] = {A_BUG,    A_DROP,   A_DROP,   A_DENIED, A_DROP,   A_DROP,   A_DENIED, A_BUG},
[IN_REFUSE_LATER] = {A_BUG,    A_DROP,   A_DROP,   A_NOTE,   A_DROP,   A_NOTE,   A_NOTE,   A_BUG},
[IN_REFUSE_OLD]   = {A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP},
[IN_SETTLE]       = {A_SETTLE, A_DROP,   A_DROP,   A_SETTLE, A_SETTLE, A_SETTLE, A_SETTLE, A_DROP},
[IN_SETTLED]      = {A_TELL,   A_TELL,   A_TELL,   A_TELL,   A_TELL,   A_TELL,   A_TELL,   A_DROP},
[IN_BYE]          = {A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DROP},
[IN_ALIEN]        = {A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP,   A_DROP},
[IN_QPS_READY]    = {A_BUG,    A_OFFER,  A_ACCEPT, A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_STAY},
[IN_QPS_FAILED]   = {A_BUG,    A_NOQPS,  A_NOQPS,  A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_STAY},
[IN_CONNECTED]    = {A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_JOINED, A_SERVED, A_BUG,    A_STAY},
[IN_CONN_FAILED]  = {A_BUG,    A_BUG,    A_BUG,    A_BUG,    A_NOCONN, A_NOCONN, A_BUG,    A_STAY},
[IN_BROKEN_LIVE]  = {A_LOST,   A_BUG,    A_LOST,   A_BUG,    A_BUG,    A_LOST,   A_LOST,   A_BUG},
[IN_BROKEN_NEXT]  = {A_BUG,    A_BUG,    A_BUG,    A_AGAIN,  A_AGAIN,  A_AGAIN,  A_AGAIN,  A_BUG},
[IN_BROKEN_OLD]   = {A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY},
[IN_HEARD_NEXT]   = {A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_UP,     A_STAY},
[IN_HEARD_OLD]    = {A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY,   A_STAY},
[IN_DRAINED]      = {A_FREE,   A_FREE,   A_FREE,   A_FREE,   A_FREE,   A_FREE,   A_FREE,   A_FREE},
[IN_TIMER]        = {A_TICK,   A_STAY,   A_STAY,   A_TICK,   A_TICK,   A_TICK,   A_TICK,   A_STAY},
[IN_PROBE]        = {A_PROBE,  A_STAY,   A_PROBE,  A_REPEAT, A_STAY,   A_PROBE,  A_ASK,    A_STAY},
[IN_PEER_DEAD]    = {A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_DEAD,   A_STAY},
[IN_CLOSE]        = {A_CLOSE,  A_CLOSE,  A_CLOSE,  A_CLOSE,  A_CLOSE,  A_CLOSE,  A_CLOSE,  A_STAY},
};
/* clang-format on */

/* ---- interface --------------------------------------------------------- */

void endpoint_init(struct endpoint *ep, const struct ep_options *options) {
    memset(ep, 0, sizeof(*ep));
    ep->options = *options;
    ep->state = EP_NONE;
    ep->live = EP_SESSION_NONE;
    ep->next = EP_SESSION_NONE;
    rtt_silence(&ep->attempt);
    rtt_silence(&ep->settle);
    rtt_silence(&ep->probe);
}

/* An attempt of our own, if somebody waits and nothing is in the way: neither a
 * session nor an attempt, nor a pause, nor a lack of entries (DRAINED comes back
 * here). */
static void proceed(struct step *s) {
    struct endpoint *ep = s->ep;

    if (ep->state != EP_NONE || !ep->want || s->now_ns >= ep->want_deadline_ns ||
        (ep->attempt.next_ns != UINT64_MAX && s->now_ns < ep->attempt.next_ns))
        return;
    attempt_start(s, EP_MAKING, ep->want_deadline_ns);
}

uint32_t endpoint_step(struct endpoint *ep, const struct ep_event *event, uint64_t now_ns,
                       struct ep_effect *effects_out) {
    struct step s = {.ep = ep, .event = event, .now_ns = now_ns, .effects = effects_out};
    enum ep_input input = endpoint_classify(ep, event);

    if (event->type == EP_EV_MESSAGE)
        s.message = event->message;
    ACTIONS[TABLE[input][ep->state]](&s);
    proceed(&s);
    return s.effect_count;
}

/* ---- names ------------------------------------------------------------- */

const char *endpoint_cell_name(enum ep_state state, uint32_t input) {
    static const char *const NAMES[A_COUNT] = {
#define EP_ACTION_X(name, function) [A_##name] = #name,
        EP_ACTIONS(EP_ACTION_X)
#undef EP_ACTION_X
    };

    return state < EP_STATE_COUNT && input < IN_COUNT ? NAMES[TABLE[input][state]] : NULL;
}
