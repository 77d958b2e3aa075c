/* SPDX-License-Identifier: Apache-2.0 */
/* cause.c: why a session broke.
 *
 * Owns the first cause that is known of each session, the account of those that transfers of ours
 * broke, which the other side is told (SETTLED), and the end of trouble. The consequences of
 * a break for each transfer are transfer.c's, and for the next session session.c's.
 */
#include "cause.h"

#include "agenda.h"
#include "notes.h"
#include "tables.h"

/* The link carries: the next session need not wait long. */
void cause_no_trouble(const weir_engine *engine, struct peer *peer) {
    uint64_t soon_ns = engine_now(engine) + engine->options.retransmit_ns;
    peer_trouble_over(peer);
    if (peer->trouble_until_ns > soon_ns)
        peer->trouble_until_ns = soon_ns;
}

/* Notes why a session broke: the first cause is the cause, and others are its consequences.
 * DEGRADED may have been told before, RECOVERED tells it then. */
static void session_cause(struct peer *peer, uint32_t number, int error,
                          const struct transfer *culprit) {
    struct session *session = &peer->sessions[number];
    if (session->cause != WEIR_OK)
        return;
    session->cause = error;
    /* A handle that was given back names nothing, and then another transfer. */
    if (culprit != NULL && atomic_load(&culprit->refs) > 1)
        session->culprit = atomic_load_explicit(&culprit->id, memory_order_relaxed);
    if (peer->standing.state == STANDING_DEGRADED && session->broke_here &&
        peer->cause.epoch == session->epoch) {
        peer->cause.error = session->cause;
        peer->cause.culprit = session->culprit;
    }
}

/* A transfer of ours breaks this session, or it is broken on purpose for that one's sake: no other
 * transfer did it, and the remote is told so when it asks for the session's end (SETTLED). A
 * refusal is an answer: there is no trouble with the link. */
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

/* The remote says why it broke the session that degraded the peer: RECOVERED tells it, unless the
 * session broke by a transfer of ours, too. Its word is taken for what a transfer may end with. */
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
