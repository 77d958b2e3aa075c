/* SPDX-License-Identifier: Apache-2.0 */
/* link.h: what the two devices of a QP tell each other, and what follows of it.
 *
 * The network knows endpoints, and nothing of QPs. A QP that is gone refuses nothing: a peer's
 * write still lands, and its message is acknowledged by a network card that cannot know that nobody
 * will take it. So a device that gives a QP up says STOP to the other one, and waits until that has
 * said that it has *drained*: it posts nothing more, and all that it had posted is over. And a
 * message that the network has acknowledged counts as taken only under a *lease*: a PONG, within
 * the lease before, has said that the QP was there. A QP whose other side is silent outlives the
 * last lease that it gave, and is given up then.
 *
 *   LEASE_NS  a message that was acknowledged up to so long after a PING was sent, which a PONG has
 *             answered, is taken
 *   a QP that stops is there, and takes messages, for LEASE_NS and a margin after its last PONG,
 *             or until the other side has drained, or is known to be no more
 *
 * A peer posts nothing to a QP that does not know its other side yet: the handshake is for that. So
 * one that stops before owes nobody anything.
 *
 * Clocks have to run as fast as each other, by a part in ten, and need not agree. Each message may
 * be late, lost together with its sender's word for it, repeated and out of order.
 *
 * A machine without I/O, clock, or memory of its own: it is told what came and what time it is, and
 * asked what to say. Not in it: the messages' bytes (control.c), what is posted (vqp.c). */
#ifndef EFA_LINK_H
#define EFA_LINK_H

#include <stdbool.h>
#include <stdint.h>

#define LINK_LEASE_NS  UINT64_C(1000000000)
#define LINK_MARGIN_NS UINT64_C(150000000)
#define LINK_REPEAT_NS UINT64_C(50000000) /* STOP is said again, twice as late each time, */
#define LINK_REPEATS   4u                 /* up to 2 to the power of this */

/* The words of one device to the other; flags of a STOP. */
enum { LINK_SAYS_PING = 1, LINK_SAYS_PONG = 2, LINK_SAYS_STOP = 4 };
enum { LINK_DRAINED = 1, LINK_WANTS = 2 };

struct efa_link {
    uint64_t good_until_ns; /* what was acknowledged until then is taken; 0: nothing */
    uint64_t asked_ns;      /* when the PING was first sent that waits for its PONG; 0: none does */
    uint64_t ask_due_ns;    /* when it is to be sent again */
    uint64_t promised_ns;   /* when the last PONG was sent; 0: none */
    uint64_t stopped_ns;    /* when this side stopped */
    uint64_t stop_due_ns;   /* when STOP is to be said next; UINT64_MAX: not by itself */
    uint64_t hold_until_ns; /* something did not arrive: nothing is said before */
    uint64_t gone_ns;
    uint32_t asked;   /* the number of the last PING */
    uint32_t pong;    /* the number of the PING that is owed a PONG */
    uint32_t repeats; /* of STOP */
    bool opened;      /* it knows the other side */
    bool stopped;     /* this side takes part no more */
    bool peer_stopped, peer_drained;
    bool peer_gone; /* the endpoint at the other side is no more; it was heard of at gone_ns */
    bool owes_pong;
    bool said_drained; /* and the network has not said that it did not arrive */
    uint8_t saying;    /* LINK_SAYS_*: the network has not said yet what became of it */
    bool wants_lease;
};

/* Time is in nanoseconds, never 0, and the same clock's throughout. */

/* The other side is known. */
void link_open(struct efa_link *link, uint64_t now);
/* This side stops. */
void link_stop(struct efa_link *link, uint64_t now);
/* Whether this side may post no more: it has stopped, or the other one has. */
static inline bool link_is_shut(const struct efa_link *link) {
    return link->stopped || link->peer_stopped || link->peer_gone;
}
/* A message that was acknowledged at a time: whether it was taken, as far as is known. If not, it
 * is asked again when link_heard_pong has said that more is known. */
bool link_is_taken(struct efa_link *link, uint64_t acknowledged_ns);
/* A lease will be wanted soon. */
void link_renew(struct efa_link *link, uint64_t now);

/* Words that came. link_heard_pong: whether more is known now. */
void link_heard_ping(struct efa_link *link, uint32_t number);
bool link_heard_pong(struct efa_link *link, uint32_t number);
void link_heard_stop(struct efa_link *link, uint32_t flags);
void link_peer_gone(struct efa_link *link, uint64_t now);

/* The words that are due now: LINK_SAYS_*. is_drained: nothing that this side has posted, and that
 * was not refused at once, is without its end. */
uint32_t link_due(const struct efa_link *link, uint64_t now, bool is_drained);
/* The flags of the STOP that is due. */
uint32_t link_flags(const struct efa_link *link, bool is_drained);
/* The number of the PING or PONG that is due. */
uint32_t link_number(const struct efa_link *link, uint32_t what);
/* One of these was given to the network. */
void link_said(struct efa_link *link, uint32_t what, uint64_t now, bool is_drained);
/* How a word ended, as far as the network knows. flags: of a STOP. */
void link_over(struct efa_link *link, uint32_t what, uint32_t flags, bool is_well, uint64_t now);
/* When, after now, link_due or link_is_over may change by themselves; UINT64_MAX: never. */
uint64_t link_next(const struct efa_link *link, uint64_t now);

/* Nothing of either side is under way any more, and each message that the other side may believe to
 * be taken has come, if all that had come at `now` was looked at. */
bool link_is_over(const struct efa_link *link, uint64_t now, bool is_drained);

#endif
