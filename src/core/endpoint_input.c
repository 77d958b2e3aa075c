/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_input.c: sorting events into inputs by what they name: our attempt, the
 * live session, something newer, something older. Reads the endpoint, changes
 * nothing; all that a remote can say ends in exactly one input.
 */
#include "endpoint_input.h"

#include <assert.h>
#include <string.h>

static bool session_names(const struct endpoint *ep, uint32_t session, uint64_t epoch,
                          uint64_t epoch_remote) {
    return session != EP_SESSION_NONE && ep->sessions[session].epoch == epoch &&
           ep->sessions[session].epoch_remote == epoch_remote;
}

static bool session_bound_to(const struct endpoint *ep, uint32_t session, uint64_t epoch_remote) {
    return session != EP_SESSION_NONE && ep->sessions[session].epoch_remote == epoch_remote;
}

static bool session_is(const struct endpoint *ep, uint32_t session, uint64_t epoch) {
    return session != EP_SESSION_NONE && ep->sessions[session].epoch == epoch;
}

static enum ep_input classify_hello(const struct endpoint *ep, const struct wire_message *m) {
    if (session_bound_to(ep, ep->live, m->epoch))
        return IN_HELLO_LIVE;
    if (session_bound_to(ep, ep->next, m->epoch))
        return IN_HELLO_NEXT;
    return m->epoch > ep->remote_seen ? IN_HELLO_NEW : IN_HELLO_OLD;
}

static enum ep_input classify_ack(const struct endpoint *ep, const struct wire_message *m) {
    if (session_names(ep, ep->live, m->echo, m->epoch))
        return IN_ACK_LIVE;
    if (session_names(ep, ep->next, m->echo, m->epoch))
        return IN_ACK_NEXT;
    if (!session_is(ep, ep->next, m->echo))
        return IN_ACK_OLD;
    if (m->epoch > ep->remote_seen)
        return IN_ACK_NEW;
    return ep->state == EP_OFFERED ? IN_ACK_SPENT : IN_ACK_OLD;
}

static enum ep_input classify_ready(const struct endpoint *ep, const struct wire_message *m) {
    if (session_names(ep, ep->live, m->echo, m->epoch))
        return IN_READY_LIVE;
    return session_names(ep, ep->next, m->echo, m->epoch) ? IN_READY_NEXT : IN_READY_OLD;
}

static enum ep_input classify_refuse(const struct endpoint *ep, const struct wire_message *m) {
    if (session_is(ep, ep->next, m->echo & ~WIRE_ECHO_LATER) && (m->echo & WIRE_ECHO_LATER) != 0)
        return IN_REFUSE_LATER;
    if (!session_is(ep, ep->next, m->echo))
        return IN_REFUSE_OLD;
    return m->reason == WEIR_ESTALE ? IN_REFUSE_STALE : IN_REFUSE_FINAL;
}

/* Whether the message names an epoch that no engine lives long enough to reach: see EP_EPOCH_LEAP.
 */
static bool implausible(const struct endpoint *ep, const struct wire_message *m) {
    bool named = m->type == WIRE_HELLO || m->type == WIRE_HELLO_ACK || m->type == WIRE_READY ||
                 m->type == WIRE_SETTLE;
    return named && m->epoch > ep->remote_seen && m->epoch - ep->remote_seen > EP_EPOCH_LEAP;
}

static enum ep_input classify_message(const struct endpoint *ep, const struct wire_message *m) {
    if (memcmp(m->from, ep->options.instance_remote, WIRE_INSTANCE_SIZE) != 0 ||
        memcmp(m->to, ep->options.instance_local, WIRE_INSTANCE_SIZE) != 0 || implausible(ep, m))
        return IN_ALIEN;
    switch (m->type) {
    case WIRE_HELLO:
        return classify_hello(ep, m);
    case WIRE_HELLO_ACK:
        return classify_ack(ep, m);
    case WIRE_READY:
        return classify_ready(ep, m);
    case WIRE_REFUSE:
        return classify_refuse(ep, m);
    case WIRE_SETTLE:
        return IN_SETTLE;
    case WIRE_SETTLED:
        return IN_SETTLED;
    case WIRE_BYE:
        return IN_BYE;
    case WIRE_WHO:
    case WIRE_IAM:
    case WIRE_ASK:
    case WIRE_STATE:
    case WIRE_TYPE_END:
        break;
    }
    return IN_ALIEN;
}

enum ep_input endpoint_classify(const struct endpoint *ep, const struct ep_event *event) {
    switch (event->type) {
    case EP_EV_WANT:
        return IN_WANT;
    case EP_EV_MESSAGE:
        return classify_message(ep, event->message);
    case EP_EV_QPS_READY:
        return IN_QPS_READY;
    case EP_EV_QPS_FAILED:
        return IN_QPS_FAILED;
    case EP_EV_CONNECTED:
        return IN_CONNECTED;
    case EP_EV_CONNECT_FAILED:
        return IN_CONN_FAILED;
    case EP_EV_BROKEN:
        if (event->session == ep->live)
            return IN_BROKEN_LIVE;
        return event->session == ep->next ? IN_BROKEN_NEXT : IN_BROKEN_OLD;
    case EP_EV_HEARD:
        return event->session == ep->next ? IN_HEARD_NEXT : IN_HEARD_OLD;
    case EP_EV_DRAINED:
        return IN_DRAINED;
    case EP_EV_TIMER:
        return IN_TIMER;
    case EP_EV_PROBE:
        return IN_PROBE;
    case EP_EV_PEER_DEAD:
        return IN_PEER_DEAD;
    case EP_EV_CLOSE:
        return IN_CLOSE;
    case EP_EV_COUNT:
        break;
    }
    assert(false && "no such event");
    return IN_ALIEN;
}

uint32_t endpoint_input_count(void) {
    return IN_COUNT;
}

const char *endpoint_input_name(uint32_t input) {
    static const char *const NAMES[IN_COUNT] = {
#define EP_INPUT_X(name) #name,
        EP_INPUTS(EP_INPUT_X)
#undef EP_INPUT_X
    };

    return input < IN_COUNT ? NAMES[input] : "?";
}
