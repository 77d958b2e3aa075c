/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_pair.h: two endpoints and the network between them, for tests.
 *
 * A pair plays the engine on both sides: it performs effects, answers CREATE and
 * CONNECT in place, and drains retired sessions after a while. Every message that an
 * endpoint sends goes through the real codec and lies in the network until a test
 * (or pair_run) delivers, loses or repeats it.
 *
 * It also judges. After every step it fails the test if
 *  - an endpoint's own invariants do not hold (endpoint_verify);
 *  - a HELLO or HELLO_ACK is sent that differs from an earlier one of the same
 *    attempt (H3), or an attempt is bound to two remote epochs (H14);
 *  - SETTLE is said while the node has a session or an attempt up to that epoch, or
 *    will draw it some day;
 *  - a session comes up on QPs that the other side has not connected (H8), or that
 *    it connected to somebody else (H2);
 *  - SETTLED arrives while the other side still has, or ever again connects, one
 *    of the sessions it speaks for;
 *  - CREATE or CONNECT is not the last effect.
 */
#ifndef WEIR_TESTS_ENDPOINT_PAIR_H
#define WEIR_TESTS_ENDPOINT_PAIR_H

#include "endpoint.h"

enum {
    PAIR_MESSAGES = 256, /* in flight; more are lost */
    PAIR_EPOCHS = 512,   /* a test uses fewer */
    PAIR_TRACE = 8192
};

#define PAIR_MS            UINT64_C(1000000)
#define PAIR_TIMEOUT_NS    (1000 * PAIR_MS)
#define PAIR_RETRANSMIT_NS (10 * PAIR_MS)

struct pair_message {
    bool used;
    uint32_t from; /* node */
    uint32_t length;
    uint64_t at_ns;
    uint64_t order;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
};

/* The judge's knowledge of one attempt of one node. */
struct pair_epoch {
    uint64_t bound; /* remote epoch in CONNECT */
    bool connected;
    bool up;
    uint64_t hello_hash, ack_hash; /* 0: not sent */
};

struct pair_node {
    struct endpoint ep;
    struct rtt rtt;
    struct ep_pile pile;
    _Alignas(8) uint8_t papers[2][EP_PAPERS_BYTES(WEIR_QPS_MAX)];
    struct wire_devices devices; /* that it tells of: none, unless the test says so */
    uint8_t instance[WIRE_INSTANCE_SIZE];
    uint64_t epoch_counter;
    struct wire_qp_set set;         /* what QPS_READY says */
    int create_error;               /* for the next CREATE, if not 0 */
    int connect_error;              /* for the next CONNECT, if not 0 */
    uint64_t drain_at[EP_SESSIONS]; /* UINT64_MAX: not draining */
    bool made[EP_SESSIONS];
    struct pair_epoch epochs[PAIR_EPOCHS];
    uint64_t oldest;            /* epoch of the present endpoint */
    uint64_t settled_by_remote; /* of the remote's epochs, those it may never connect again */
    uint64_t delivered;         /* what window() says */
    uint32_t ups, fails, gones;
    int last_error;        /* of FAILED or GONE */
    uint64_t last_settled; /* epoch of EP_DO_SETTLED */
    uint64_t last_settled_base;
    struct wire_agreed last_agreed;
};

struct pair {
    struct pair_node nodes[2];
    struct pair_message messages[PAIR_MESSAGES];
    uint32_t message_high;
    uint64_t now_ns;
    uint64_t order;
    uint64_t random;
    uint64_t drain_ns_max; /* 0: a test calls pair_drain */
    uint64_t delay_ns_max; /* of messages in pair_run */
    /* A connection as TCP's: what node i says takes so long besides, and comes in its order; and
     * node i looks at what came, and at the time, at multiples of this. 0: none of it. */
    uint64_t way_ns[2], look_ns[2];
    uint64_t last_ns[2]; /* when what node i said last arrives */
    uint32_t loss_percent, repeat_percent;
    size_t trace_length;
    char trace[PAIR_TRACE];
};

void pair_init(struct pair *p, uint64_t seed);
/* A and B have the live session (1,1), opened by A, and an empty trace. */
void pair_init_up(struct pair *p, uint64_t seed);
/* A number in [0, bound). */
uint64_t pair_random(struct pair *p, uint64_t bound);

/* One event to node 0 ('A') or 1 ('B'), with everything that follows at once. */
void pair_step(struct pair *p, uint32_t node, const struct ep_event *event);
void pair_event(struct pair *p, uint32_t node, enum ep_event_type type);
/* It is now_ns, and the node's timer rings. */
void pair_tick_at(struct pair *p, uint32_t node, uint64_t now_ns);
/* The node's live or next session breaks; nothing if there is none. */
void pair_break(struct pair *p, uint32_t node);
void pair_break_next(struct pair *p, uint32_t node);
/* All sessions of the node that drain are gone; or this one. */
void pair_drain(struct pair *p, uint32_t node);
void pair_drain_session(struct pair *p, uint32_t node, uint32_t session);
/* The process behind the node is replaced by another one on the same address. */
void pair_restart(struct pair *p, uint32_t node);

/* The node gives the other side up, drains, and knows it as somebody new from then on;
 * nobody is told. The other side learns that the connection is a new one only by
 * EP_EV_PROBE. */
void pair_forget(struct pair *p, uint32_t node);

/* The oldest message that the node sent: deliver it, lose it, deliver it but keep
 * it in the network, or take it out (false: none). */
void pair_deliver(struct pair *p, uint32_t from);
void pair_lose(struct pair *p, uint32_t from);
void pair_deliver_keep(struct pair *p, uint32_t from);
struct pair_message pair_take(struct pair *p, uint32_t from);
/* A message out of nowhere. */
void pair_inject(struct pair *p, const struct pair_message *message);
/* Delivers everything until the network is empty; no time passes. */
void pair_flush(struct pair *p);

/* Time goes on, from event to event, until until_ns. */
void pair_run(struct pair *p, uint64_t until_ns);

/* The trace so far, which starts over. One item for each effect and event:
 * "A>HELLO(1)" "B.create(1)" "B.connect(1,1)" "A.up(1,1)" ... */
const char *pair_trace(struct pair *p);

/* Both sides have the same live session. */
bool pair_matched(const struct pair *p);

#endif
