/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: what the outstanding work of a peer waits for, and the figures that prove it.
 *
 * Owns the order in which causes are looked for: from this engine outwards, and of what is posted
 * before what is not, because the one holds up the other. All is read from the tables as they are
 * now; only whether this engine was away is the watchdog's to know. Transfers of the engine's own
 * count for nothing: nobody waits for them.
 *
 * Where the peer, or the way to it, may be the reason, four others are heard: the device, of its
 * link and of what it counts; TCP, of the peer's host; the system, of its process; and its own word
 * (ask.c), which may be a lie, and is believed last. */
#include "diagnose.h"

#include "agenda.h"
#include "inflight.h"
#include "streams.h"
#include "tables.h"

#define COUNTS_NS UINT64_C(10000000) /* what the device counts is read so often, at most */
#define WIRE_FULL 0.75 /* of the port's rate: headers and acknowledgements take their part */

/* ---- figures ----------------------------------------------------------- */

/* Whether work is for the next one at the address, and the last one has not left: this device has
 * something of it still. */
static bool waits_for_leaver(const weir_engine *engine, const struct peer *peer) {
    return peer_is_leaving(peer) ||
           (peer->alias != NONE && peer_is_leaving(&engine->peers[peer->alias]));
}

bool diagnose_works(const weir_engine *engine, const struct peer *peer) {
    if (peer->waits == 0 || (peer->alias != NONE && !waits_for_leaver(engine, peer)))
        return false;
    if (peer->room_waits > 0)
        return true;
    for (uint8_t l = 0; l < LISTS; l++) {
        /* Posted work of one that is gone ends by itself, and GONE told of it. */
        if (peer_is_leaving(peer) && (l == LIST_POSTED || l == LIST_PARKED))
            continue;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = engine->transfers[i].next) {
            if (engine->transfers[i].kind < TRANSFER_SKIP)
                return true;
        }
    }
    return false;
}

/* Of the list: transfers of the application's. */
static uint32_t count_of(const weir_engine *engine, const struct list *list) {
    uint32_t count = 0;
    for (uint32_t i = list->head; i != NONE; i = engine->transfers[i].next)
        count += engine->transfers[i].kind < TRANSFER_SKIP;
    return count;
}

static void count_work(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    out->pending = count_of(engine, &peer->lists[LIST_PENDING]);
    out->posted = count_of(engine, &peer->lists[LIST_POSTED]);
    out->parked = count_of(engine, &peer->lists[LIST_PARKED]);
    for (uint8_t l = LIST_CREDITS; l < LISTS; l++)
        out->credit_waits += count_of(engine, &peer->lists[l]);
    out->room_waits = peer->room_waits;
    out->waiting = out->pending + out->posted + out->parked + out->credit_waits + out->room_waits;
    const struct stream *stream = stream_first(engine, peer);
    for (; stream != NULL; stream = stream_next(engine, stream)) {
        out->room_bytes += stream->waiting_bytes;
        out->room_inboxes += stream->waiting.head != NONE;
    }
}

/* Whether SENDs of the application's transfers wait for credits of the class, on any QP. */
static bool waits_for(const weir_engine *engine, const struct peer *peer, enum credit_class class) {
    uint8_t first = class == CREDIT_NOTES ? LIST_CREDITS : LIST_WORDS;
    for (uint8_t l = first; l < first + WEIR_QPS_MAX; l++) {
        if (count_of(engine, &peer->lists[l]) > 0)
            return true;
    }
    return false;
}

static uint32_t credits_of(const struct credit *credit, enum credit_class class) {
    uint32_t sent = credit_between(credit->sent[class], credit->acked[class]);
    return credit->window_remote[class] > sent ? credit->window_remote[class] - sent : 0;
}

static void count_credits(const struct credit *credit, enum credit_class class,
                          weir_stall_info *out) {
    out->credits += credits_of(credit, class);
    out->credits_max += credit->window_remote[class];
}

/* Credits are those of notifications, unless only messages wait for theirs. */
static void count_session(const weir_engine *engine, const struct peer *peer,
                          weir_stall_info *out) {
    const struct session *session = &peer->sessions[peer->live];
    bool words = waits_for(engine, peer, CREDIT_WORDS);
    bool notes = !words || waits_for(engine, peer, CREDIT_NOTES);
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        if (notes)
            count_credits(&qp->credit, CREDIT_NOTES, out);
        if (words)
            count_credits(&qp->credit, CREDIT_WORDS, out);
        out->sq_used += qp->ledger.used;
        out->sq_depth += qp->ledger.depth;
        out->inflight_bytes += ledger_inflight(&qp->ledger);
    }
}

/* Many peers may be stalled at once, and the device is the same for all. */
bool diagnose_counts(weir_engine *engine, struct weir_device_counts *out) {
    struct device_counted *last = &engine->device_counted;
    uint64_t now = engine_clock(engine);
    if (engine->device_ops->counts == NULL)
        return false;
    if (last->at_ns == 0 || now - last->at_ns >= COUNTS_NS) {
        last->at_ns = now;
        last->known = engine->device_ops->counts(engine->device, &last->counts);
    }
    *out = last->counts;
    return last->known;
}

/* Counts may be cleared meanwhile, by whoever looks after the device. */
static uint64_t since(uint64_t from, uint64_t now) {
    return now > from ? now - from : 0;
}

/* Fills in the counts since the peer was asked. */
static void count_device(weir_engine *engine, const struct watch *watch, weir_stall_info *out) {
    const struct watch_counts *from = &watch->notes->counts;
    struct weir_device_counts now;
    if (!watch->works || from->at_ns == 0)
        return;
    out->counted_ns = engine_clock(engine) - from->at_ns;
    out->completions = engine->polled - from->polled;
    out->cq_entries = engine->caps.completes_inline ? 0 : engine->caps.cq_capacity;
    if (!from->device || !diagnose_counts(engine, &now))
        return;
    out->device_counts = 1;
    out->device_not_ready = since(from->of_device.not_ready, now.not_ready);
    out->device_repeats = since(from->of_device.repeats, now.repeats);
    out->port_sent = since(from->of_device.sent, now.sent);
    out->port_received = since(from->of_device.received, now.received);
    out->port_bytes_per_s = now.bytes_per_s;
}

/* ---- the cause --------------------------------------------------------- */

/* Whether this side's device has something of a broken session still. */
static bool drains(const weir_engine *engine, const struct peer *peer) {
    uint32_t i = peer->lists[LIST_PARKED].head;
    while (i != NONE && engine->transfers[i].outstanding == 0)
        i = engine->transfers[i].next;
    return i != NONE;
}

static uint32_t broken(const weir_engine *engine, const struct peer *peer) {
    return drains(engine, peer) ? WEIR_STALL_DRAIN : WEIR_STALL_SETTLE;
}

static uint32_t unconnected(const weir_engine *engine, const struct peer *peer,
                            weir_stall_info *out) {
    if (waits_for_leaver(engine, peer))
        return WEIR_STALL_DRAIN;
    int reason = peer_is_known(peer) ? endpoint_reason(&peer->endpoint) : 0;
    if (reason != 0) {
        out->error = reason;
        return WEIR_STALL_REFUSED;
    }
    if (out->parked == out->waiting)
        return broken(engine, peer);
    out->error = peer_is_known(peer) ? endpoint_lack(&peer->endpoint) : peer->dial_error;
    if (out->error == WEIR_ECONNECT)
        out->error = 0; /* that is what CONNECT says already */
    return WEIR_STALL_CONNECT;
}

/* The QP that the next SEND of the first on the list goes to, one of those of QP `index`, if it has
 * its credit there; NULL: it has none, or the list is of the engine's own. */
static const struct qp *send_due(const weir_engine *engine, const struct peer *peer, uint32_t list,
                                 uint32_t index) {
    if (count_of(engine, &peer->lists[list]) == 0)
        return NULL;
    const struct transfer *transfer = &engine->transfers[peer->lists[list].head];
    uint32_t parts = transfer->parts_need & ~(uint32_t)transfer->parts_mask;
    if (parts != 0)
        index = (uint32_t)__builtin_ctz(parts); /* they go in this order */
    const struct session *session = &peer->sessions[peer->live];
    enum credit_class class = list < LIST_WORDS ? CREDIT_NOTES : CREDIT_WORDS;
    const struct qp *qp = &engine->qps[session->qps[index]];
    return index < session->qp_used && credits_of(&qp->credit, class) > 0 ? qp : NULL;
}

/* Whether SENDs with credits wait for a slot of theirs, or, with `blocked`, for a device that
 * refuses them though there are slots. */
static bool sends_wait(const weir_engine *engine, const struct peer *peer, bool blocked) {
    for (uint32_t i = 0; i < peer->sessions[peer->live].qp_used; i++) {
        const struct qp *qps[] = {send_due(engine, peer, LIST_CREDITS + i, i),
                                  send_due(engine, peer, LIST_WORDS + i, i)};
        for (int k = 0; k < 2; k++) {
            if (qps[k] != NULL && (blocked ? qps[k]->blocked : qps[k]->ledger.used > 0))
                return true;
        }
    }
    return false;
}

/* A QP that the device refuses work for, though it has slots, or receives, so that nothing is sent
 * that the other side would answer. */
static bool device_refuses(const weir_engine *engine, const struct peer *peer,
                           const weir_stall_info *out) {
    const struct session *session = &peer->sessions[peer->live];
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct qp *qp = &engine->qps[session->qps[i]];
        if ((qp->blocked && out->pending > 0) ||
            (lack_of(engine, qp)->window > 0 && out->credit_waits > 0))
            return true;
    }
    return (engine->recv_short && out->credit_waits > 0) || sends_wait(engine, peer, true);
}

/* Of the first stream whose messages wait for room. */
static uint32_t no_room(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    const struct stream *stream = stream_first(engine, peer);
    while (stream != NULL && stream->waiting.head == NONE)
        stream = stream_next(engine, stream);
    if (stream == NULL)
        return WEIR_STALL_TURN;
    out->inbox = stream->inbox;
    if (stream->state == STREAM_MET && stream->import_error != WEIR_OK) {
        out->error = stream->import_error;
        return WEIR_STALL_INBOX_MEMORY;
    }
    return stream->state == STREAM_ABSENT ? WEIR_STALL_INBOX_ABSENT : WEIR_STALL_INBOX_FULL;
}

/* Whether completions are waited for that do not come, if none does: by the next part of a
 * transfer, or since a transfer is suspected of breaking sessions, and one chain is posted at a
 * time then. */
static bool waits_in_turn(const weir_engine *engine, const struct peer *peer,
                          const weir_stall_info *out) {
    if (out->sq_used == 0)
        return false;
    uint32_t i = peer->lists[LIST_PENDING].head;
    while (i != NONE && engine->transfers[i].outstanding == 0)
        i = engine->transfers[i].next;
    return i != NONE || peer_is_suspicious(peer);
}

/* Of this engine itself: its application does not take what it sends itself. */
static uint32_t own(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    if (out->credit_waits > 0) {
        out->peer_notifications = queue_count(&engine->notifications);
        return WEIR_STALL_PEER_NOTIFICATIONS;
    }
    uint32_t room = out->room_waits > 0 ? no_room(engine, peer, out) : WEIR_STALL_TURN;
    return room == WEIR_STALL_INBOX_FULL ? WEIR_STALL_PEER_MESSAGES : room;
}

static uint32_t connected(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    if (peer->loop)
        return own(engine, peer, out);
    if (peer->proving)
        return WEIR_STALL_CONNECT;
    if (out->parked == out->waiting)
        return broken(engine, peer);
    if (out->sq_used > 0 && (out->posted > 0 || peer->waits_for == WEIR_WAITING_SLOTS))
        return WEIR_STALL_QP;
    if (device_refuses(engine, peer, out)) {
        out->error = WEIR_EAGAIN;
        return WEIR_STALL_DEVICE;
    }
    if (sends_wait(engine, peer, false))
        return WEIR_STALL_QP;
    /* With all of them free, a message is on its way through that list. */
    if (out->credit_waits > 0 && out->credits < out->credits_max)
        return WEIR_STALL_CREDITS;
    uint32_t room = out->room_waits > 0 ? no_room(engine, peer, out) : WEIR_STALL_TURN;
    if (room != WEIR_STALL_TURN)
        return room;
    if (waits_in_turn(engine, peer, out))
        return WEIR_STALL_QP;
    if (!peer->inflight_waits && peer->waits_for != WEIR_WAITING_INFLIGHT)
        return WEIR_STALL_TURN;
    if (peer->waits_for == WEIR_WAITING_SLOTS) /* of a queue that all share */
        out->error = WEIR_EAGAIN;
    return WEIR_STALL_INFLIGHT;
}

/* ---- the peer's word --------------------------------------------------- */

/* TCP's knowledge of the peer's host. */
static void look_at_host(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    const struct weir_control *control = &engine->ports.control;
    struct weir_control_look seen = {0};
    uint64_t conn = peer->conn_last != 0 ? peer->conn_last : peer->conn_dialled;
    if (conn == 0 || control->ops->look == NULL || !control->ops->look(control->self, conn, &seen))
        return;
    out->host_silent = seen.silent;
    out->control_retransmits = seen.retransmits;
}

/* The peer's word about itself, or that it does not answer. */
static void take_word(const weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    const struct watch *watch = &peer->watch;
    if (watch->question != 0 && !watch->answered)
        out->peer_silent_ns = engine_clock(engine) - watch->asked_ns;
    if (!watch->heard)
        return;
    const struct wire_state *state = &watch->notes->state;
    out->peer_answer_ns = watch->answer_ns;
    out->peer_away_ns = state->away_ns;
    out->peer_notifications = state->notifications;
    out->peer_thread = state->thread;
    for (uint32_t i = 0; i < state->inbox_count; i++) {
        if (state->inboxes[i].number != out->inbox || out->room_waits == 0)
            continue;
        out->peer_ready = state->inboxes[i].ready;
        out->peer_held = state->inboxes[i].held;
    }
}

/* A session that is ended as it comes up has none. */
void diagnose_process(weir_engine *engine, struct peer *peer) {
    if (engine->device_ops->peer_process == NULL || peer->live == NONE)
        return;
    const struct qp *qp = &engine->qps[peer->sessions[peer->live].qps[0]];
    peer->process = qp->qp != NULL ? engine->device_ops->peer_process(qp->qp) : 0;
}

static bool is_stopped(const weir_engine *engine, const struct peer *peer) {
    return peer->process != 0 && engine->device_ops->process_is_stopped(peer->process);
}

static bool link_is_down(const weir_engine *engine) {
    return engine->device_ops->link_is_down != NULL &&
           engine->device_ops->link_is_down(engine->device);
}

/* It was not there in time to be asked, or is not now. */
static bool is_absent(const weir_engine *engine, const weir_stall_info *out) {
    uint64_t half = engine->options.watchdog_ns / 2;
    return out->peer_silent_ns >= half / 2 ||
           (out->peer_silent_ns == 0 && (out->peer_answer_ns >= half || out->peer_away_ns >= half));
}

/* Whether the cause is one that the peer, or the way to it, may be the reason of. */
static bool is_theirs(uint32_t cause, int error) {
    return (cause == WEIR_STALL_INBOX_MEMORY && error == WEIR_EAGAIN) ||
           cause == WEIR_STALL_SETTLE || cause == WEIR_STALL_CONNECT || cause == WEIR_STALL_QP ||
           cause == WEIR_STALL_CREDITS || cause == WEIR_STALL_INBOX_FULL;
}

/* Most of what the port can carry goes through it, in one direction. */
static bool wire_is_full(const weir_stall_info *out) {
    uint64_t more = out->port_sent > out->port_received ? out->port_sent : out->port_received;
    double most = (double)out->port_bytes_per_s * (double)out->counted_ns / 1e9;
    return out->counted_ns >= COUNTS_NS && most > 0 && (double)more >= WIRE_FULL * most;
}

static uint32_t worse(weir_engine *engine, const struct peer *peer, uint32_t cause,
                      weir_stall_info *out) {
    if ((is_theirs(cause, out->error) || cause == WEIR_STALL_TURN) && link_is_down(engine))
        return WEIR_STALL_LINK;
    if ((cause == WEIR_STALL_INFLIGHT || cause == WEIR_STALL_TURN) && wire_is_full(out))
        return WEIR_STALL_WIRE;
    if (!is_theirs(cause, out->error))
        return cause;
    look_at_host(engine, peer, out);
    take_word(engine, peer, out);
    if (out->host_silent != 0)
        return WEIR_STALL_HOST;
    if (cause == WEIR_STALL_QP) /* its device answers for it, whatever its process does */
        return out->device_not_ready > 0 ? WEIR_STALL_NOT_READY
               : wire_is_full(out)       ? WEIR_STALL_WIRE
                                         : cause;
    if (is_stopped(engine, peer))
        return WEIR_STALL_PEER_STOPPED;
    if (is_absent(engine, out))
        return WEIR_STALL_PEER_ABSENT;
    if (cause == WEIR_STALL_CREDITS && out->peer_notifications > 0)
        return WEIR_STALL_PEER_NOTIFICATIONS;
    if (cause == WEIR_STALL_INBOX_FULL && out->peer_ready + out->peer_held > 0)
        return WEIR_STALL_PEER_MESSAGES;
    return cause;
}

/* The cause, or what the peer, its host or the link says instead; the error was the cause's. */
static uint32_t with_word(weir_engine *engine, const struct peer *peer, uint32_t cause,
                          weir_stall_info *out) {
    uint32_t told = worse(engine, peer, cause, out);
    if (told != cause)
        out->error = 0;
    return told;
}

/* Whether what is seen now is a moment of sessions that come up and break: several have since
 * something completed, and the last one is young by their pace. */
static bool breaks(const weir_engine *engine, const struct peer *peer, uint32_t cause) {
    enum { SEVERAL = 2 };
    const struct watch *watch = &peer->watch;
    bool moment = cause == WEIR_STALL_DRAIN || cause == WEIR_STALL_SETTLE ||
                  cause == WEIR_STALL_CONNECT || cause == WEIR_STALL_QP ||
                  cause == WEIR_STALL_NOT_READY || cause == WEIR_STALL_WIRE ||
                  cause == WEIR_STALL_TURN;
    uint64_t ups = peer->sessions_up - watch->sessions_up;
    if (!moment || !watch->works || engine->watch_next_ns == 0 || ups < SEVERAL)
        return false;
    uint64_t now = engine_clock(engine), pace_ns = (peer->up_ns - watch->moved_ns) / ups;
    return peer->up_ns > watch->moved_ns && now - peer->up_ns <= 2 * pace_ns &&
           now - peer->up_ns <= engine->options.watchdog_ns / 4;
}

static uint32_t cause_of(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    if (out->waiting == 0)
        return WEIR_STALL_NONE;
    if (engine->device_failed) {
        out->error = WEIR_EDEVICE;
        return WEIR_STALL_DEVICE;
    }
    if (peer->watch.absent_ns > 0 || peer->watch.behind) {
        out->absent_ns = peer->watch.absent_ns;
        return WEIR_STALL_HERE;
    }
    uint32_t cause =
        peer->live != NONE ? connected(engine, peer, out) : unconnected(engine, peer, out);
    cause = with_word(engine, peer, cause, out);
    if (breaks(engine, peer, cause)) {
        if (link_is_down(engine))
            return WEIR_STALL_LINK;
        out->error = peer->cause.error;
        return WEIR_STALL_BREAKS;
    }
    return cause;
}

void diagnose(weir_engine *engine, const struct peer *peer, weir_stall_info *out) {
    const struct watch *watch = &peer->watch;
    *out = (weir_stall_info){
        .size = out->size,
        .peer = {peer_stall_handle(peer)},
        .stalled = watch->told != 0,
        .still_ns = watch->works ? engine_clock(engine) - watch->moved_ns : 0,
        .inflight_bytes_engine = inflight_bytes(engine),
        .inflight_bytes_max = engine->options.inflight_bytes_max,
        .completed = peer->completed,
        .stalls = watch->stalls,
        .last_cause = watch->stalls > 0 ? watch->notes->last.cause : WEIR_STALL_NONE,
        .last_error = watch->stalls > 0 ? watch->notes->last.error : 0,
        .last_ns = watch->lasted_ns,
        .peer_process = (uint32_t)peer->process,
    };
    count_work(engine, peer, out);
    if (peer->live != NONE)
        count_session(engine, peer, out);
    count_device(engine, watch, out);
    out->cause = cause_of(engine, peer, out);
}

/* ---- the handshake ----------------------------------------------------- */

static const char *attempt(enum ep_state state) {
    switch (state) {
    case EP_OFFERED:
        return "HELLO was said, and is not answered";
    case EP_CONFIRM:
        return "its HELLO was answered, and it does not confirm the session";
    case EP_JOINING:
    case EP_ACCEPTING:
        return "this device is connecting to its device";
    default:
        return "the next attempt is due";
    }
}

static const char *step_of(const struct peer *peer) {
    if (peer->proving)
        return "it is asked who answers at the address that it calls its own";
    if (peer_is_known(peer))
        return attempt(endpoint_waits_in(&peer->endpoint));
    switch (peer->dial) {
    case DIAL_CALLING:
        return "the address takes no connection and refuses none";
    case DIAL_ASKING:
        return "the address takes the connection, and nobody says who is there";
    case DIAL_PAUSE:
        if (peer->dial_error == WEIR_EMFILE || peer->dial_error == WEIR_ENOMEM)
            return "the address is dialled again after pauses";
        return "nobody takes connections at the address, which is dialled again after pauses";
    case DIAL_AWAITING:
        return "no address leads to it, so it has to call";
    default:
        return "it is about to be dialled";
    }
}

struct watch_step diagnose_handshake(const struct peer *peer) {
    bool broke = peer->standing.state == STANDING_DEGRADED && !peer->proving;
    return (struct watch_step){step_of(peer), peer->version_theirs, broke ? peer->cause.error : 0};
}
