/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: peers that come and go, and what instance each is.
 *
 * Owns which instance an entry stands for, and its opening, closing and end. The entries themselves
 * are tables.c's, connections are control.c's, dialling dial.c's, sessions effects.c's.
 *
 * A peer that the application opened keeps its entry and its address when the engine
 * behind it is replaced: its `party` changes, so that memory and transfers of the dead
 * incarnation are stale. One that connected by itself lives as long as its instance.
 *
 * One instance has one handle, from the first that the application hears of it to GONE. An instance
 * may say which address is its own. Opening that address gives the handle of the instance; nothing
 * is posted until it is known which instance answers there. An address that was opened under
 * another name may turn out to be an instance that has an entry already. Then the opened entry
 * becomes an *alias*: a second name, which is good wherever a handle is taken, and which the
 * application is told of (SAME). If the application has not heard of the instance yet, it is known
 * by the handle that was opened. */
#include "peer.h"

#include "agenda.h"
#include "conns.h"
#include "deliver.h"
#include "dial.h"
#include "found.h"
#include "lists.h"
#include "names.h"
#include "news.h"
#include "notes.h"
#include "streams.h"
#include "tables.h"
#include "talk.h"
#include "trace.h"
#include "transfer.h"

#include <assert.h>

/* ---- instances --------------------------------------------------------- */

/* The answer to SETTLE: its notifications that were delivered, and the last of its sessions up to
 * `epoch` that a transfer of ours broke. */
static void settled_of(void *self, uint64_t epoch, struct wire_settled *out) {
    const struct peer *peer = self;
    out->base = peer->received.base;
    memcpy(out->bits, peer->received.bits, sizeof(out->bits));
    out->broke = 0;
    out->reason = 0;
    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        const struct broke *broke = &peer->broke[i];
        if (broke->epoch_remote <= epoch && broke->epoch_remote > out->broke) {
            out->broke = broke->epoch_remote;
            out->reason = broke->reason;
        }
    }
}

/* A peer that has had nothing delivered here can have nothing delivered twice. */
static void past_keep(weir_engine *engine, const struct peer *peer) {
    static const struct window nothing;
    if (memcmp(&peer->received, &nothing, sizeof(nothing)) == 0)
        return;
    struct past *past = found_past(engine, peer->instance);
    if (past == NULL)
        past = &engine->pasts[engine->past_next++ % engine->options.peers_max];
    found_past_set(engine, past, peer->instance);
    past->received = peer->received;
    past->pass = peer->pass;
    past->pass_theirs = peer->pass_theirs;
}

/* Submitters that do not have the engine look at it, too. */
static void enter(weir_engine *engine, struct peer *peer, enum peer_stage stage) {
    tables_lock(engine);
    peer->stage = stage;
    peer->nameless = stage != PEER_KNOWN && peer->refs == 0;
    tables_unlock(engine);
}

/* It has become known that the peer is this instance. */
static void bind_peer(weir_engine *engine, struct peer *peer, const uint8_t *instance) {
    assert(peer_by_instance(engine, instance) == NULL); /* H1: an instance is one peer */
    memcpy(peer->instance, instance, WIRE_INSTANCE_SIZE);
    enter(engine, peer, PEER_KNOWN);
    found_instance(engine, peer);
    struct ep_options options = {
        .epoch_counter = &engine->epoch_counter,
        .connect_timeout_ns = engine->options.connect_timeout_ns,
        .retransmit_ns = engine->options.retransmit_ns,
        .rtt = &peer->rtt,
        .pile = &engine->pile,
        .devices = &engine->devices,
        .settled = settled_of,
        .self = peer,
    };
    memcpy(options.instance_local, engine->instance, WIRE_INSTANCE_SIZE);
    memcpy(options.instance_remote, instance, WIRE_INSTANCE_SIZE);
    endpoint_init(&peer->endpoint, &options);
    /* This engine may have given the instance up, and the instance never noticed. So its messages
     * from before are not delivered twice, and our numbers go on above all that it has seen. */
    peer->received = (struct window){0};
    const struct past *past = found_past(engine, instance);
    engine->ports.env.ops->entropy(engine->ports.env.self, &peer->pass, sizeof(peer->pass));
    peer->pass |= 1;
    engine->ports.env.ops->entropy(engine->ports.env.self, &peer->life, sizeof(peer->life));
    peer->life |= 1;
    peer->life_theirs = 0;
    if (past != NULL) {
        peer->received = past->received;
        peer->pass = past->pass;
        peer->pass_theirs = past->pass_theirs;
    }
    memset(peer->broke, 0, sizeof(peer->broke));
    peer->excused_epoch = engine->epoch_counter; /* its word on earlier sessions counts no more */
    peer->sent = (struct window){.base = engine->number_floor};
    peer->number_next = peer->sent.base + 1;
    tables_lock(engine);
    peer_remotes_pass(engine, peer->party, instance, peer->party);
    tables_unlock(engine);
    transfer_rebind(engine, peer);
}

/* Whether the instance that answered a dial of `dialled`, and says that it is `other`, is believed.
 * It is if `other` has had no session, if the address is the same, or if the application opened
 * `dialled` and there is no other way to `other`. A peer whose instance is known speaks for itself
 * alone. */
bool peer_speaks_for(const struct peer *dialled, const struct peer *other) {
    if (dialled == other || peer_is_known(dialled))
        return dialled == other;
    return !other->guarded || strcmp(dialled->address, other->address) == 0 ||
           (dialled->refs > 0 && other->conn_last == 0 && !other->reached);
}

/* The peer that is this engine itself, which is made when it is first asked for. It counts as one
 * that connected by itself, so its handle is good for as long as the engine is. EAGAIN: there is no
 * entry. */
int peer_self(weir_engine *engine, struct peer **peer_out) {
    if (engine->self != NONE) {
        *peer_out = peer_at(engine, engine->self);
        return WEIR_OK;
    }
    tables_lock(engine);
    struct peer *peer = peer_new(engine, "");
    tables_unlock(engine);
    if (peer == NULL) {
        peer_evict(engine);
        return WEIR_EAGAIN;
    }
    engine->self = peer_index(engine, peer);
    peer->met = peer->loop = true;
    bind_peer(engine, peer, engine->instance);
    peer->life_theirs = peer->life;
    peer->sessions[0].epoch = 1; /* of no QPs */
    peer->live = 0;
    peer->told = TOLD;
    peer_tell(engine, standing_step(&peer->standing, STANDING_IN_UP), peer, 0, 0);
    *peer_out = peer;
    return WEIR_OK;
}

/* The connection of `opened` becomes that of `known`, and its address if `known` has none that can
 * be dialled. The connection is hung up if `known` has another and has dialled, or if the answer is
 * not believed. */
static void pass_conn(weir_engine *engine, struct peer *opened, struct peer *known) {
    if (known->loop) { /* it needs none */
        conn_hangup(engine, opened, &opened->conn_dialled);
        opened->conn_last = 0;
        return;
    }
    bool speaks = peer_speaks_for(opened, known);
    bool there = conn_leads_to(engine, opened->conn_dialled, opened->address, known->address);
    uint64_t conn = opened->conn_dialled;
    bool asked =
        known->proving || known->conn_dialled != 0; /* where it is known to be, or may be */
    if (!speaks || (asked && known->conn_last != 0)) {
        conn_hangup(engine, opened, &opened->conn_dialled);
    } else if (asked) {
        found_conn_set(engine, opened, &opened->conn_dialled, 0);
        dial_set_aside(engine, known, conn); /* the dial of its own address goes on */
    } else {
        dial_end(known); /* it may be waiting to dial again */
        found_conn_set(engine, known, &known->conn_dialled, conn);
        if (known->conn_last == 0)
            known->conn_last = known->conn_dialled;
    }
    found_conn_set(engine, opened, &opened->conn_dialled, 0);
    opened->conn_last = 0;
    if (speaks && !known->dialable) {
        memcpy(known->address, opened->address, sizeof(known->address));
        known->dialable = true;
        found_address(engine, known);
    }
    known->reached |= (there && known->vouched) || strcmp(known->address, opened->address) == 0;
    if (known->proving && known->reached)
        peer_proven(engine, known);
}

/* The application holds `name`, and events of the peer carry another handle: from here on it knows
 * that one, too. */
static void tell_same(weir_engine *engine, uint64_t name, struct peer *peer) {
    news_event(engine, WEIR_EVENT_SAME, name, 0, peer->handle);
    peer_told(peer);
    standing_step(&peer->standing, STANDING_IN_SAME);
}

/* `opened` was dialled and turned out to be `known`, which has an entry already. */
static void make_alias(weir_engine *engine, struct peer *opened, struct peer *known) {
    tables_lock(engine);
    peer_remotes_pass(engine, opened->party, known->instance, known->party);
    found_alias_set(engine, opened, peer_index(engine, known));
    tables_unlock(engine);
    found_closed(engine, known, false);
    peer_resumed(engine, opened); /* its work is the peer's now, whose handle may be this one */
    if (known->refs == 0 && known->handle == known->id && known->told == TOLD_NOT)
        known->handle = opened->id;
    pass_conn(engine, opened, known);
    transfer_move_room(engine, opened, known);
    names_move(engine, opened, known);
    while (opened->lists[LIST_PENDING].head != NONE) {
        struct transfer *transfer = &engine->transfers[opened->lists[LIST_PENDING].head];
        list_remove(engine, transfer);
        transfer->party = known->party;
        list_push(engine, known, transfer, LIST_PENDING);
    }
    peer_idle(engine, opened);
    opened->watch.begun_ns = 0;
    transfer_rebind(engine, known);
    if (known->handle != opened->id)
        tell_same(engine, opened->id, known);
    if (known->live != NONE)
        deliver_tell(engine, known, false); /* unless it was told under this handle */
    known->wanted = known->live == NONE && (known->wanted || opened->wanted);
    opened->wanted = false;
    if (known->lists[LIST_PENDING].count + known->room_waits > 0)
        run_later(engine, known);
    peer_reachable(engine, known);
}

/* There is a way to the peer, perhaps a new one. The last message may have been lost with the old
 * way, so the session is asked after. If a transfer or the application waits, the peer connects. */
void peer_reachable(weir_engine *engine, struct peer *peer) {
    if (peer_is_there(peer))
        note_probe(engine, peer);
    if (peer_wants_session(engine, peer))
        note_want(engine, peer);
    peer_set_timer(engine, peer);
}

void peer_learned(weir_engine *engine, struct peer *peer, const uint8_t *instance) {
    if (peer_is_known(peer) && memcmp(peer->instance, instance, WIRE_INSTANCE_SIZE) != 0) {
        /* An application that opened the address means the instance that answers there. It may
         * have closed the handle since, and the answer may be late: what waits goes to nobody else
         * all the same. */
        bool waits = peer->claims && peer->waits > 0;
        if (peer->reached || peer->refs > 0 || peer->proving || waits)
            note_dead(engine, peer, WEIR_EPEER);
        else
            dial_elsewhere(engine, peer);
        return;
    }
    if (peer_is_known(peer)) {
        peer_reachable(engine, peer);
        return;
    }
    struct peer *other = peer_by_instance(engine, instance);
    bool ours = memcmp(instance, engine->instance, WIRE_INSTANCE_SIZE) == 0;
    if (ours && !peer->shows_self) { /* somebody repeats it */
        note_unreachable(engine, peer, WEIR_EADDRESS);
        return;
    }
    if (ours && peer_self(engine, &other) != WEIR_OK) {
        note_unreachable(engine, peer, WEIR_EFULL);
        return;
    }
    if (other != NULL) {
        make_alias(engine, peer, other);
        return;
    }
    bind_peer(engine, peer, instance);
    peer_reachable(engine, peer);
}

/* A peer for an instance that this engine has not met, which says that it can be dialled at
 * `address`. A quarter of the entries is kept for peers that the application opens. NULL: there is
 * no entry, or the engine closes. */
struct peer *peer_meet(weir_engine *engine, const uint8_t *instance, const char *address) {
    if (engine->closing)
        return NULL;
    struct peer *peer = NULL;
    if (engine->found.met < engine->peers_max - engine->peers_max / 4) {
        tables_lock(engine);
        peer = peer_new(engine, address);
        tables_unlock(engine);
    }
    if (peer == NULL) {
        peer_evict(engine);
        return NULL;
    }
    peer->met = true;
    bind_peer(engine, peer, instance);
    return peer;
}

/* ---- opening ----------------------------------------------------------- */

/* The met peer of this address. A peer that has answered there goes first, also if the application
 * had it open before. Else it is the peer that connected by itself, says that the address is its
 * own, and came from the host of the address. NULL: no peer, or several that say so, since at most
 * one of them is right. */
static struct peer *met_at(weir_engine *engine, const char *address) {
    struct peer *found = NULL, *peer = found_at(engine, address, false, NULL);
    uint32_t count = 0;
    for (; peer != NULL; peer = found_at(engine, address, false, peer)) {
        if (!peer_is_there(peer) || !peer->dialable)
            continue;
        if (peer->reached)
            return peer;
        if (peer->met && peer->vouched) {
            found = peer;
            count++;
        }
    }
    return count == 1 ? found : NULL;
}

/* Whether a peer that lives says that this address is its own. */
static bool is_claimed(weir_engine *engine, const char *address) {
    struct peer *peer = found_at(engine, address, false, NULL);
    while (peer != NULL && !peer_is_there(peer))
        peer = found_at(engine, address, false, peer);
    return peer != NULL;
}

/* An address at which this engine is known to be, without anybody asking there. What is advertised
 * is the application's word, and may lead elsewhere. */
static bool is_own_address(const weir_engine *engine, const char *address) {
    return engine->listening && (strcmp(address, engine->address) == 0 ||
                                 (!engine->advertises && strcmp(address, engine->reach) == 0));
}

int peer_open(weir_engine *engine, const char *address, weir_peer *peer_out) {
    struct peer *peer = peer_by_address(engine, address);
    bool is_met = false;
    if (peer == NULL && is_own_address(engine, address)) {
        int rc = peer_self(engine, &peer);
        if (rc != WEIR_OK)
            return rc;
        peer->refs++;
        found_address(engine, peer);
        peer_out->id = peer->id;
        return WEIR_OK;
    }
    if (peer == NULL) {
        peer = met_at(engine, address);
        is_met = peer != NULL;
    }
    if (peer == NULL) {
        tables_lock(engine);
        peer = peer_new(engine, address);
        tables_unlock(engine);
    }
    if (peer == NULL) {
        peer_evict(engine);
        return WEIR_EAGAIN;
    }
    found_closed(engine, peer, false);
    peer->refs++;
    peer->told = TOLD; /* also while events carry another handle of it */
    if (peer->live != NONE)
        deliver_tell(engine, peer, false); /* it was closed, and opened again */
    found_address(engine, peer);
    if (is_met && !peer->reached)
        dial_prove(engine, peer);
    else if (!peer_is_known(peer) && peer->alias == NONE && is_claimed(engine, address))
        dial_start(engine, peer);
    if (is_met && peer->handle != peer->id)
        tell_same(engine, peer->id, peer);
    peer_out->id = peer->id;
    return WEIR_OK;
}

/* ---- the end of a peer -------------------------------------------------- */

void peer_gone(weir_engine *engine, struct peer *peer, int error) {
    if (peer_is_leaving(peer))
        return;
    if (deliver_holds(engine, peer))
        deliver_tell(engine, peer, true); /* what is held comes under the handle that ends now */
    enter(engine, peer, PEER_LEAVING);
    peer->left_ns = engine_now(engine);
    TRACE_PEER(engine, gone, peer, error, 0, 0);
    peer->end_error = error;
    peer->live = NONE;
    peer->process = 0;
    peer_not_fast(peer);
    dial_stop(engine, peer);
    engine->stats.peers_gone++;
    bool held = peer->refs > 0 || peer->told != TOLD_NOT || peer_open_alias(engine, peer) != NONE;
    enum standing_input end = peer->wanted ? STANDING_IN_END_ASKED
                              : held       ? STANDING_IN_END_HELD
                                           : STANDING_IN_END;
    peer_tell(engine, standing_step(&peer->standing, end), peer, error, 0);
    peer_resumed(engine, peer); /* if GONE was told before the stall */
    peer->wanted = false;
    peer_disown(engine, peer);
    transfer_fail_all(engine, peer, error, true);
    talk_gone(engine, peer);
    names_unreachable(engine, peer, error);
    /* The dead execute nothing; a peer that was not reached may be there. */
    transfer_abandon(engine, peer, UINT64_MAX,
                     error == WEIR_EPEER || error == WEIR_ECLOSED ? error : WEIR_EUNKNOWN);
}

/* The peer's other handles that the application has open: events carry this one. */
static void tell_names(weir_engine *engine, struct peer *peer) {
    const struct groups *aliases = &engine->found.aliases;
    if (peer->refs > 0 && peer->id != peer->handle)
        tell_same(engine, peer->id, peer);
    uint32_t i = groups_first(aliases, peer_index(engine, peer));
    for (; i != NONE; i = groups_next(aliases, i)) {
        if (engine->peers[i].id != peer->handle)
            tell_same(engine, engine->peers[i].id, peer);
    }
}

/* No session came about: transfers that wait for one fail. */
void peer_unreachable(weir_engine *engine, struct peer *peer, int error) {
    transfer_fail_all(engine, peer, error, false);
    if (peer->live != NONE && !peer->wanted)
        return; /* one has come up since that was noted */
    enum standing_input failed = peer->wanted ? STANDING_IN_FAILED_ASKED : STANDING_IN_FAILED;
    weir_event_type event = standing_step(&peer->standing, failed);
    peer_tell(engine, event, peer, error, 0);
    if ((event != 0 || peer->live == NONE) && peer_is_there(peer))
        talk_renew(engine, peer);
    names_unreachable(engine, peer, error);
    if (event == 0)
        return;
    peer->wanted = false;
    tell_names(engine, peer); /* GONE ends what SAME said, and the instance may be the same still */
}

/* The instance has drained: its other names are addresses. What was asked of them meanwhile
 * begins. */
static void free_aliases(weir_engine *engine, struct peer *known) {
    uint32_t index;
    while ((index = peer_open_alias(engine, known)) != NONE) {
        struct peer *alias = peer_at(engine, index);
        tables_lock(engine);
        found_alias_set(engine, alias, NONE);
        tables_unlock(engine);
        if (peer_wants_session(engine, alias))
            note_want(engine, alias);
    }
}

static void hang_up(weir_engine *engine, struct peer *peer) {
    conn_hangup(engine, peer, &peer->conn_dialled);
    conn_hangup(engine, peer, &peer->conn_accepted);
    conn_hangup(engine, peer, &peer->conn_before);
    peer->conn_last = 0;
    peer->dial = DIAL_NONE;
}

/* A peer whose instance is gone and whose sessions are drained is forgotten, or
 * starts over as an address. */
void peer_reap(weir_engine *engine, struct peer *peer) {
    if (!peer_is_leaving(peer) || !endpoint_at_rest(&peer->endpoint) ||
        peer->lists[LIST_POSTED].count > 0 || peer->lists[LIST_PARKED].count > 0 || engine->closing)
        return;
    hang_up(engine, peer);
    if (peer->reached)
        peer->dial_failed = false; /* that was its end, and says nothing of the address */
    standing_step(&peer->standing, STANDING_IN_FORGOTTEN);
    free_aliases(engine, peer);
    enter(engine, peer, PEER_ADDRESS);
    peer->reached = peer->guarded = peer->proving = peer->claims = peer->met = peer->vouched =
        false;
    peer->told = peer->refs > 0 ? TOLD : TOLD_NOT;
    past_keep(engine, peer);
    peer->pass_theirs = 0;
    peer->conn_said = 0;
    peer->unheard = false;
    peer->notes = (struct notes){0}; /* of the instance that is gone */
    if (peer->number_next > engine->number_floor)
        engine->number_floor = (peer->number_next + 63) & ~(uint64_t)63;
    found_instance(engine, peer);
    memset(peer->instance, 0, WIRE_INSTANCE_SIZE);
    peer->abandoned_epoch = 0;
    peer->settled_epoch = 0;
    peer->doubt_ns = 0;
    if (peer->parts_used)
        memset(peer->parts, 0, WINDOW_SIZE * sizeof(*peer->parts));
    peer->parts_used = false;
    timer_peer(engine, peer, UINT64_MAX);
    deliver_ended(engine, peer);
    peer->handle = peer->id;
    talk_forget(engine, peer);
    peer->life = peer->life_theirs = 0;
    if (peer->refs > 0) {
        if (peer_wants_session(engine, peer))
            note_want(engine, peer);
        return;
    }
    transfer_fail_all(engine, peer, WEIR_EPEER, true);
    peer_forget(engine, peer);
}

/* Frees the entry of a peer that nothing refers to. */
void peer_forget(weir_engine *engine, struct peer *peer) {
    if (peer->held > 0 || peer->waits > 0 || peer_is_known(peer) || peer->refs > 0 || peer->id == 0)
        return;
    hang_up(engine, peer);
    streams_free(engine, peer);
    names_forget(engine, peer);
    timer_peer(engine, peer, UINT64_MAX);
    tables_lock(engine);
    peer_party_change(engine, peer);
    peer->id_next = handle_next(peer->id);
    peer->id = 0;
    found_address(engine, peer);
    found_closed(engine, peer, false);
    peer->next_free = NONE; /* last, so that an entry rests between its users */
    if (engine->peer_free == NONE)
        engine->peer_free = peer_index(engine, peer);
    else
        engine->peers[engine->peer_free_last].next_free = peer_index(engine, peer);
    engine->peer_free_last = peer_index(engine, peer);
    tables_unlock(engine);
}

/* Somebody needs an entry and there is none: a peer that the application has closed, and
 * that nothing is under way with, has to leave. Its entry is free when it has drained. */
void peer_evict(weir_engine *engine) {
    const struct groups *leavers = &engine->found.leavers;
    for (uint32_t i = groups_first(leavers, 0); i != NONE; i = groups_next(leavers, i)) {
        struct peer *peer = &engine->peers[i];
        if (!peer_is_there(peer) || peer->waits > 0 || peer->held > 0)
            continue;
        note_evict(engine, peer);
        return;
    }
}

/* The handle was closed: its wish ends, and its transfers, also those that are still on the submit
 * queue. */
static void disown_closed(weir_engine *engine, struct peer *peer) {
    peer->wanted = false;
    transfer_fail_all(engine, peer, WEIR_ECLOSED, true);
    tables_lock(engine);
    peer->closed_party = peer->party;
    peer_party_change(engine, peer);
    tables_unlock(engine);
}

/* The application has no handle for it any more. Events and notifications that come of it later are
 * under a handle of its own, which UP tells of. */
static void closed(weir_engine *engine, struct peer *peer) {
    standing_step(&peer->standing, STANDING_IN_CLOSED);
    peer->watch.told = 0;
    peer->watch.works = false;
    peer->watch.begun_ns = 0;
    peer->told = TOLD_NOT;
    disown_closed(engine, peer);
    found_closed(engine, peer, true);
    if (!peer_is_known(peer)) { /* its entry may stay, for what is held of an instance before */
        hang_up(engine, peer);
        timer_peer(engine, peer, UINT64_MAX);
    }
}

/* The handle is closed: of a stall that was told under it nothing more is told. */
static void forget_stall(const weir_engine *engine, struct peer *peer, uint64_t closed) {
    if (peer->watch.told != closed)
        return;
    peer->watch.told = 0;
    peer->watch.lasted_ns = engine_clock(engine) - peer->watch.moved_ns;
}

/* The application gave its last reference back. One that connected by itself, and that the
 * application has heard of, goes on as if it had never been opened; so does one that is known by
 * another handle than the one that is closed, of which UP told. */
void peer_closed(weir_engine *engine, struct peer *peer) {
    struct peer *known = peer_linked(engine, peer);
    if (known == peer && peer->met && !peer_is_leaving(peer))
        return;
    forget_stall(engine, peer, peer->id);
    forget_stall(engine, known, peer->id);
    /* Deliveries that a leaving instance has left keep the handle that was told. */
    bool told = !peer_is_leaving(known) && (known == peer || known->handle == peer->id);
    tables_lock(engine);
    peer->id = handle_next(peer->id);
    peer->nameless = peer->stage != PEER_KNOWN;
    found_alias_set(engine, peer, NONE);
    tables_unlock(engine);
    /* Another handle may name the same engine: then its memory and transfers stay. */
    uint32_t heir = peer_open_alias(engine, known);
    if (told) {
        known->handle = heir == NONE ? known->id : engine->peers[heir].id;
        if (known->refs > 0)
            peer_told(known);
        tell_names(engine, known);
    }
    bool goes_on = known->told != TOLD_NOT && (known->met || (known != peer && !told));
    if (known->refs == 0 && heir == NONE && !goes_on)
        closed(engine, known);
    else if (peer_is_leaving(peer))
        disown_closed(engine, peer); /* the next instance at its address was waited for */
    else if (known->refs == 0 && heir == NONE && !known->met)
        found_closed(engine, known, true);
    if (known != peer)
        closed(engine, peer);
    peer_forget(engine, peer);
}
