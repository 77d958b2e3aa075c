/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_verify.c: the invariants of an endpoint between two steps.
 *
 * Kept out of endpoint.c so that the machine is not its own judge: nothing here
 * steps it; the fields are read, and endpoint_deadline. Tests, the simulation and verify builds
 * call it after every step.
 */
#include "endpoint.h"

/* ---- invariants -------------------------------------------------------- */

/* Epochs of the sessions: unique on both sides, in the same order, all seen. */
static const char *verify_epochs(const struct endpoint *ep) {
    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        const struct ep_session *a = &ep->sessions[i];

        if (a->state == EP_SESSION_FREE)
            continue;
        if (a->epoch == 0 || a->epoch > *ep->options.epoch_counter)
            return "a session has an epoch that was never drawn";
        if (a->epoch_remote > ep->remote_seen)
            return "a session is bound to a remote epoch that was not seen";
        if (a->connected && a->epoch_remote == 0)
            return "a session is connected but not bound";
        for (uint32_t j = i + 1; j < EP_SESSIONS; j++) {
            const struct ep_session *b = &ep->sessions[j];

            if (b->state == EP_SESSION_FREE)
                continue;
            if (a->epoch == b->epoch)
                return "two sessions have the same epoch";
            if (a->epoch_remote != 0 && b->epoch_remote != 0 &&
                (a->epoch < b->epoch) != (a->epoch_remote < b->epoch_remote))
                return "two sessions are bound out of order, or to the same remote epoch";
        }
    }
    return NULL;
}

static const char *verify_sessions(const struct endpoint *ep) {
    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        if ((ep->sessions[i].state == EP_SESSION_LIVE) != (i == ep->live))
            return "live is not the one live session";
        if ((ep->sessions[i].state == EP_SESSION_NEXT) != (i == ep->next))
            return "next is not the one next session";
    }
    if (ep->live != EP_SESSION_NONE) {
        if (!ep->sessions[ep->live].connected)
            return "the live session is not connected";
        if (ep->sessions[ep->live].epoch <= ep->settle_asked)
            return "SETTLE was asked for the live session";
        if (ep->want)
            return "somebody waits for the session that is there";
    }
    return NULL;
}

static const char *verify_attempt(const struct endpoint *ep) {
    const bool bound = ep->next != EP_SESSION_NONE && ep->sessions[ep->next].epoch_remote != 0;

    switch (ep->state) {
    case EP_NONE:
    case EP_GONE:
        return ep->next == EP_SESSION_NONE ? NULL : "an attempt in a state that has none";
    case EP_MAKING:
    case EP_OFFERED:
        if (!ep->want || ep->live != EP_SESSION_NONE)
            return "an attempt that nobody needs";
        return ep->next != EP_SESSION_NONE && !bound ? NULL
                                                     : "an unbound attempt is bound or absent";
    case EP_ANSWERING:
        return ep->next != EP_SESSION_NONE && !bound ? NULL
                                                     : "an unbound attempt is bound or absent";
    case EP_JOINING:
        if (!ep->want || ep->live != EP_SESSION_NONE)
            return "an attempt that nobody needs";
        /* fall through */
    case EP_ACCEPTING:
    case EP_CONFIRM:
        if (!bound)
            return "a bound attempt is not bound";
        return ep->sessions[ep->next].connected == (ep->state == EP_CONFIRM)
                   ? NULL
                   : "an attempt is connected in the wrong state";
    case EP_STATE_COUNT:
        break;
    }
    return "no such state";
}

const char *endpoint_verify(const struct endpoint *ep) {
    const char *problem = verify_sessions(ep);

    if (problem == NULL)
        problem = verify_epochs(ep);
    if (problem == NULL)
        problem = verify_attempt(ep);
    if (problem == NULL && (ep->papers != NULL) != (ep->next != EP_SESSION_NONE))
        problem = "an attempt without papers, or papers without one";
    if (problem == NULL && ep->settle_done > ep->settle_asked)
        problem = "SETTLED for more than was asked";
    if (problem == NULL && ep->state == EP_GONE &&
        (ep->live != EP_SESSION_NONE || ep->want || endpoint_deadline(ep) != UINT64_MAX))
        problem = "something goes on with a remote that is gone";
    return problem;
}

const char *endpoint_state_name(enum ep_state state) {
    static const char *const NAMES[EP_STATE_COUNT] = {
        [EP_NONE] = "NONE",       [EP_MAKING] = "MAKING",   [EP_ANSWERING] = "ANSWERING",
        [EP_OFFERED] = "OFFERED", [EP_JOINING] = "JOINING", [EP_ACCEPTING] = "ACCEPTING",
        [EP_CONFIRM] = "CONFIRM", [EP_GONE] = "GONE",
    };

    return state < EP_STATE_COUNT ? NAMES[state] : "?";
}
