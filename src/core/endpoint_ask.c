/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_ask.c: the questions that the engine asks an endpoint between two steps: when its timer
 * is due, what is live, why the remote refused; and which errors are worth another try. Changes
 * nothing. */
#include "endpoint.h"

bool endpoint_may_pass(int error) {
    switch (error) {
    case WEIR_EAGAIN:
    case WEIR_ENOMEM:
    case WEIR_EFULL:
    case WEIR_EMFILE:
    case WEIR_EBUSY:
    case WEIR_ETIMEDOUT:
    case WEIR_ECONNECT:
    case WEIR_EPEER:
        return true;
    default:
        return false;
    }
}

int endpoint_reason(const struct endpoint *ep) {
    return ep->want_reason;
}

const struct ep_mismatch *endpoint_mismatch(const struct endpoint *ep) {
    return ep->mismatch.theirs[0] != '\0' ? &ep->mismatch : NULL;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t endpoint_deadline(const struct endpoint *ep) {
    uint64_t deadline_ns =
        earlier(ep->probe.next_ns, earlier(ep->settle.next_ns, ep->attempt.next_ns));

    if (ep->want)
        deadline_ns = earlier(deadline_ns, ep->want_deadline_ns);
    if (ep->next != EP_SESSION_NONE)
        deadline_ns = earlier(deadline_ns, ep->attempt_deadline_ns);
    return deadline_ns;
}

uint32_t endpoint_live(const struct endpoint *ep) {
    return ep->live;
}

bool endpoint_answering(const struct endpoint *ep) {
    return ep->state == EP_ANSWERING || ep->state == EP_ACCEPTING;
}

bool endpoint_at_rest(const struct endpoint *ep) {
    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        if (ep->sessions[i].state != EP_SESSION_FREE)
            return false;
    }
    return true;
}
