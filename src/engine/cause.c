/* SPDX-License-Identifier: Apache-2.0 */
/* cause.c: why a session broke.
 *
 * Owns the first cause that is known of each session's break, and the list of sessions that our
 * own transfers broke, which the other side is told (SETTLED). The consequences of a break for
 * each transfer are transfer.c's, and for the next session session.c's.
 */
#include "cause.h"

#include "agenda.h"
#include "notes.h"
#include "tables.h"

/* The link works, so the next session waits no longer than retransmit_ns. */
void cause_no_trouble(const weir_engine *engine, struct peer *peer) {
    uint64_t soon_ns = engine_now(engine) + engine->options.retransmit_ns;
    peer_trouble_over(peer);
    if (peer->trouble_until_ns > soon_ns)
        peer->trouble_until_ns = soon_ns;
}

/* Keeps the first cause of a session's break: later ones are its consequences. If DEGRADED was told
 * before the cause was known, RECOVERED will tell it. */
static void session_cause(struct peer *peer, uint32_t number, int error,
                          const struct transfer *culprit) {
    struct session *session = &peer->sessions[number];
    if (session->cause != WEIR_OK)
        return;
    session->cause = error;
    /* Once the handle is released, the record's id is the handle of its next transfer. */
    if (culprit != NULL && atomic_load(&culprit->refs) > 1)
        session->culprit = atomic_load_explicit(&culprit->id, memory_order_relaxed);
    if (peer->standing.state == STANDING_DEGRADED && session->broke_here &&
        peer->cause.epoch == session->epoch) {
        peer->cause.error = session->cause;
        peer->cause.culprit = session->culprit;
    }
}

/* A transfer of ours broke this session, or the session is broken on purpose to end that transfer.
 * So no other transfer is to blame, and SETTLED tells the remote the same. A refusal is an answer
 * of the target: the link has no trouble. */
void cause_own(weir_engine *engine, struct peer *peer, uint32_t number, int error,
               const struct transfer *culprit) {
    struct session *session = &peer->sessions[number];
    if (!session->excused)
        peer->broke[peer->broke_next++ % EP_SESSIONS] =
            (struct broke){.epoch_remote = session->epoch_remote, .reason = error};
    session->excused = true;
    session->refused |= error == WEIR_EREMOTE;
    if (error == WEIR_EREMOTE)
        cause_no_trouble(engine, peer);
    session_cause(peer, number, error, culprit);
}

/* The peer was silent about a session from before, or not reached in time: its application was told
 * so, and all that was known of the peer is forgotten. */
void cause_outlived(weir_engine *engine, struct peer *peer, uint32_t number) {
    cause_own(engine, peer, number, WEIR_EUNKNOWN, NULL);
    note_broken(engine, peer, number);
}

/* The remote says why it broke our session `epoch`. If that session degraded the peer, RECOVERED
 * will tell this reason, unless a transfer of ours was named as the culprit. Other errors than
 * those of a transfer that breaks its session are not believed. */
void cause_told(struct peer *peer, uint64_t epoch, int reason) {
    bool sensible = reason == WEIR_EREMOTE || reason == WEIR_EINVAL || reason == WEIR_ETOOBIG ||
                    reason == WEIR_ETIMEDOUT || reason == WEIR_ECANCELED;
    if (sensible && peer->standing.state == STANDING_DEGRADED && peer->cause.epoch == epoch &&
        peer->cause.culprit == 0)
        peer->cause.error = reason;
}

void cause_unanswered(weir_engine *engine, struct peer *peer, uint32_t number) {
    struct session *session = &peer->sessions[number];
    bool late = session->retired && session->broke_here && !session->unreachable;
    session->unreachable = true;
    session_cause(peer, number, WEIR_ECONNECT, NULL);
    if (late)
        note_unanswered(engine, peer, number);
}
