/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_input.h: the meaning of an event to an endpoint; internal to the machine.
 *
 * An input is an event, sorted by what it names. Which inputs a state can have
 * at all, and what they do there, is in the table of endpoint.c.
 */
#ifndef WEIR_ENDPOINT_INPUT_H
#define WEIR_ENDPOINT_INPUT_H

#include "endpoint.h"

/* X(name): inputs. "NEXT" and "LIVE" name exactly that session, "NEW" a remote
 * epoch above all seen (and, with an echo, our attempt), "SPENT" our unbound attempt and a remote
 * epoch that is not above all seen, "OLD" anything else. */
#define EP_INPUTS(X)                                                                               \
    X(WANT)                                                                                        \
    X(HELLO_NEW)                                                                                   \
    X(HELLO_NEXT)                                                                                  \
    X(HELLO_LIVE)                                                                                  \
    X(HELLO_OLD)                                                                                   \
    X(ACK_NEW)                                                                                     \
    X(ACK_NEXT)                                                                                    \
    X(ACK_LIVE)                                                                                    \
    X(ACK_SPENT)                                                                                   \
    X(ACK_OLD)                                                                                     \
    X(READY_NEXT)                                                                                  \
    X(READY_LIVE)                                                                                  \
    X(READY_OLD)                                                                                   \
    X(REFUSE_STALE)                                                                                \
    X(REFUSE_FINAL)                                                                                \
    X(REFUSE_LATER)                                                                                \
    X(REFUSE_OLD)                                                                                  \
    X(SETTLE)                                                                                      \
    X(SETTLED)                                                                                     \
    X(BYE)                                                                                         \
    X(ALIEN)                                                                                       \
    X(QPS_READY)                                                                                   \
    X(QPS_FAILED)                                                                                  \
    X(CONNECTED)                                                                                   \
    X(CONN_FAILED)                                                                                 \
    X(BROKEN_LIVE)                                                                                 \
    X(BROKEN_NEXT)                                                                                 \
    X(BROKEN_OLD)                                                                                  \
    X(HEARD_NEXT)                                                                                  \
    X(HEARD_OLD)                                                                                   \
    X(DRAINED)                                                                                     \
    X(TIMER)                                                                                       \
    X(PROBE)                                                                                       \
    X(PEER_DEAD)                                                                                   \
    X(CLOSE)

enum ep_input {
#define EP_INPUT_X(name) IN_##name,
    EP_INPUTS(EP_INPUT_X)
#undef EP_INPUT_X
        IN_COUNT
};

enum ep_input endpoint_classify(const struct endpoint *ep, const struct ep_event *event);

#endif
