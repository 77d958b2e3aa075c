/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h: the handshake machine of one endpoint (one remote instance).
 *
 * Owns the names of sessions and attempts and the order of control messages;
 * docs/protocol.md is its specification. It knows no QP, no socket and no clock:
 * endpoint_step takes one event and returns effects, which the engine performs in
 * order. It leaves to others: who the remote is (the engine dials and asks WHO
 * before an endpoint exists), draining of QPs (drain.h), transfers.
 *
 * The endpoint names a session by a small number, the index of its entry; the engine keeps the
 * QPs of that number. An entry is free, next, live or retired (draining); a retired one is free
 * again after EP_EV_DRAINED.
 *
 * The attempt, if there is one, goes through these states (endpoint.c has the
 * table of what each input does in each of them):
 *
 *               WANT +--------+  QPS_READY   +---------+ HELLO_ACK +---------+
 *            +------>| MAKING |------------->| OFFERED |---------->| JOINING |--> up
 *       +------+     +--------+ send HELLO   +---------+  CONNECT  +---------+
 *       | NONE |                                  | HELLO (crossing)  send READY
 *       +------+                                  v
 *            |       +-----------+ QPS_READY +-----------+ CONNECTED +---------+
 *            +------>| ANSWERING |---------->| ACCEPTING |---------->| CONFIRM |--> up
 *              HELLO +-----------+  CONNECT  +-----------+ send      +---------+
 *                                                          HELLO_ACK  READY or HELLO_ACK
 *
 * "Up" is state NONE with a live session. GONE is for good.
 *
 * Invariants: at most one session is live and at most one is next. Of two sessions,
 * the one with the higher epoch of ours also has the higher remote epoch. A
 * session is bound to a remote epoch at most once, and a remote epoch at most once
 * to a session. All epochs that SETTLE was asked for are below the live one.
 */
#ifndef WEIR_ENDPOINT_H
#define WEIR_ENDPOINT_H

#include "ports.h"
#include "rtt.h"
#include "wire.h"

enum {
    EP_SESSIONS = 8,     /* entries: live + next + draining */
    EP_EFFECTS_MAX = 16, /* most effects of one step; asserted */
    /* Bytes of a message without a QP set. */
    EP_SMALL_SIZE_MAX =
        WIRE_REFUSE_SIZE_MAX > WIRE_SETTLED_SIZE ? WIRE_REFUSE_SIZE_MAX : WIRE_SETTLED_SIZE
};

#define EP_SESSION_NONE UINT32_MAX
/* An engine draws its epochs from one counter, one for each attempt with anybody: this many are
 * 10,000 a second for three years. A remote epoch that is farther above all seen before is refused,
 * so that one message cannot use up all that there are. */
#define EP_EPOCH_LEAP (UINT64_C(1) << 40)

enum ep_event_type {
    EP_EV_WANT,       /* somebody wants a session (a transfer waits, or weir_peer_connect). Harmless
                       * when there is one, or an attempt */
    EP_EV_MESSAGE,    /* any decoded message from this instance to ours */
    EP_EV_QPS_READY,  /* answer to EP_DO_CREATE: local set made (local is filled) */
    EP_EV_QPS_FAILED, /* ...or nothing at all: error. The entry is free again, without RETIRE.
                       * After an error that may pass it is asked again later, within the deadline:
                       * endpoint_may_pass */
    EP_EV_CONNECTED,  /* answer to EP_DO_CONNECT: the session's QPs are in RTS */
    EP_EV_CONNECT_FAILED, /* ...or not: error; likewise, and EDEVICE is tried again, too */
    EP_EV_BROKEN,    /* the session's QPs failed (async event, error completion, or on purpose),
                      * also while they are being connected */
    EP_EV_HEARD,     /* a message came in on the session's QPs, which are in RTS: the remote has the
                      * session, and may use it, even if what it said of that was lost */
    EP_EV_DRAINED,   /* the session's QPs are gone, and all they delivered is in the window */
    EP_EV_TIMER,     /* now >= endpoint_deadline(); harmless earlier */
    EP_EV_PROBE,     /* a control connection was lost or is new, and the same instance is there:
                      * ask whether it still has the live session. Harmless at any time */
    EP_EV_PEER_DEAD, /* certainly gone or replaced: error says */
    EP_EV_CLOSE,     /* local close: BYE, retire everything */
    EP_EV_COUNT
};

struct ep_event {
    enum ep_event_type type;
    uint32_t session; /* QPS_*, CONNECT*, BROKEN, HEARD, DRAINED */
    int error;        /* *_FAILED, PEER_DEAD */
    bool unheard;     /* PROBE: what was said last may be lost with a connection */
    const struct wire_message *message; /* MESSAGE */
    const struct wire_qp_set *local;    /* QPS_READY: what HELLO says of us; PSNs are random */
};

enum ep_effect_type {
    EP_DO_SEND,    /* control message data[0..length), in the endpoint's own buffers */
    EP_DO_CREATE,  /* make a QP set for session; answer with QPS_READY or QPS_FAILED at once */
    EP_DO_CONNECT, /* connect the first agreed.qp_count QPs of session to *remote (further local
                    * ones stay unused); answer with CONNECTED or CONNECT_FAILED, at once or when it
                    * is done; not any more once the session was retired */
    EP_DO_UP,      /* session is live now: transfers may be posted on it */
    EP_DO_RETIRE,  /* session's session is over: drain it, then EP_EV_DRAINED */
    EP_DO_SETTLED, /* the remote has drained all our sessions up to epoch, which may be less than
                    * was asked for; *settled says what it got. Epochs only grow; our own drain is
                    * the engine's to add */
    EP_DO_REFUSED, /* the remote asked for a session, and has no device in common with us: error.
                    * It was told; endpoint_mismatch says more */
    EP_DO_FAILED,  /* no session within the deadline, or refused: error. Waiting transfers fail */
    EP_DO_GONE     /* the remote instance is dead: every transfer fails after its drain: error */
};

/* The engine performs the effects of a step in order and all of them before the
 * next step, with one exception: CREATE and CONNECT are always the last effect,
 * so that their answer may be the next step, in place. Pointers are valid until
 * the next step. */
struct ep_effect {
    enum ep_effect_type type;
    uint32_t session;    /* CREATE, CONNECT, UP, RETIRE */
    int error;           /* REFUSED, FAILED, GONE */
    bool crossing;       /* CONNECT: the remote may connect by itself */
    bool retransmit;     /* SEND: sent before, byte for byte */
    bool attempt;        /* SEND: the message that the attempt waits for an answer to */
    const uint8_t *data; /* SEND */
    uint32_t length;     /* SEND */
    const struct wire_qp_set *remote;   /* CONNECT; checked by wire_decode, blobs are not */
    const struct wire_settled *settled; /* SETTLED */
    uint64_t epoch;                     /* ours of session's session; SETTLED: see there */
    uint64_t epoch_remote;              /* CONNECT, UP; RETIRE: 0 when it was never bound */
    struct wire_agreed agreed;          /* CONNECT */
    union {
        uint8_t small[EP_SMALL_SIZE_MAX]; /* what data points to, of a message without a QP set; */
        struct wire_settled said;         /* what settled points to */
    } own;
};

/* The devices of two sides that do not go together. */
struct ep_mismatch {
    char theirs[WEIR_DEVICE_NAME_MAX]; /* ours, if that is elsewhere. "": nothing is known */
    char both[WEIR_DEVICE_NAME_MAX];   /* a device that both could use; "": none is known */
    bool tried_here, tried_there;      /* that side knows that it could */
};

/* The papers of an attempt, and of the live session; an endpoint without these needs none. Taken
 * when an attempt starts, given back when it, or the session that it became, ends; the last one
 * given back is taken first, so few more are ever written than sessions were live at once. Behind
 * each lies what its size depends on the number of QPs of: what QPS_READY said, until bound; the
 * remote's set, once bound or being answered, as far as QPs of it can be used; and the bytes. */
struct ep_papers {
    struct ep_papers *next; /* of those that are free */
    bool sent;
    uint32_t length;             /* of HELLO until bound, then of HELLO_ACK */
    struct ep_mismatch mismatch; /* of the two sides, if they do not go together */
};
#define EP_SET_BYTES(count) (offsetof(struct wire_qp_set, qps) + (count) * sizeof(struct wire_qp))
#define EP_HELLO_BYTES(count)                                                                      \
    (WIRE_HELLO_SIZE_MAX - (WEIR_QPS_MAX - (count)) * (4 + (size_t)WEIR_QP_BLOB_MAX))
#define EP_PAPERS_BYTES(count)                                                                     \
    (sizeof(struct ep_papers) + 2 * EP_SET_BYTES(count) +                                          \
     ((EP_HELLO_BYTES(count) + 7) & ~(size_t)7))
_Static_assert(offsetof(struct wire_qp_set, qps) % 8 == 0 && sizeof(struct wire_qp) % 8 == 0,
               "the parts are aligned");
struct ep_pile {
    void *papers; /* count of EP_PAPERS_BYTES(qps): two for each endpoint. From fresh on: never
                   * used */
    struct ep_papers *free;
    uint32_t fresh, count;
    uint32_t qps; /* that QPS_READY says at most */
};

struct ep_options {
    uint8_t instance_local[WIRE_INSTANCE_SIZE];
    uint8_t instance_remote[WIRE_INSTANCE_SIZE];
    uint64_t *epoch_counter; /* the engine's last epoch, 0 at first; outlives the endpoint */
    uint64_t connect_timeout_ns;
    uint64_t retransmit_ns; /* the shortest pause before something is said again: rtt.h */
    struct ep_pile *pile;   /* of all endpoints of an engine */
    struct rtt *rtt;        /* how long this remote's answers take; outlives the endpoint */
    /* The device of this engine first, then those it could have: told in HELLO and REFUSE. Outlives
     * the endpoint; NULL: nothing is told. */
    const struct wire_devices *devices;
    /* Fills the answer to SETTLE: the engine's receive window for this remote, and the last of the
     * remote's epochs, up to this one, that a transfer of the engine's broke. */
    void (*settled)(void *self, uint64_t epoch, struct wire_settled *out);
    void *self;
};

/* ---- layout: for the engine to embed, for nobody else to touch --------- */

enum ep_state {
    EP_NONE,      /* no attempt */
    EP_MAKING,    /* CREATE asked, for our own HELLO */
    EP_ANSWERING, /* CREATE asked, to answer a HELLO */
    EP_OFFERED,   /* HELLO sent; not bound */
    EP_JOINING,   /* bound by a HELLO_ACK; CONNECT asked */
    EP_ACCEPTING, /* bound by a HELLO; CONNECT asked */
    EP_CONFIRM,   /* HELLO_ACK sent; waits to hear that the remote has it */
    EP_GONE,      /* the remote is dead, or we closed */
    EP_STATE_COUNT
};

enum ep_session_state { EP_SESSION_FREE = 0, EP_SESSION_NEXT, EP_SESSION_LIVE, EP_SESSION_RETIRED };

struct ep_session {
    enum ep_session_state state;
    bool connected;        /* its QPs were in RTS: the remote may have used them */
    uint64_t epoch;        /* ours */
    uint64_t epoch_remote; /* 0: not bound */
};

struct endpoint {
    struct ep_options options;
    enum ep_state state;
    int gone_error; /* what WANT gets in EP_GONE */
    uint32_t live;  /* session or EP_SESSION_NONE */
    uint32_t next;
    struct ep_session sessions[EP_SESSIONS];
    uint64_t remote_seen;  /* highest remote epoch that we bound or that was given up */
    uint64_t answer_epoch; /* ANSWERING: the remote epoch of the HELLO */

    bool want;       /* somebody here waits for a session */
    int want_error;  /* what they get when want_deadline_ns passes: the last that was in the way */
    int want_reason; /* and what the remote said of it; 0: nothing */
    uint64_t want_deadline_ns;
    uint64_t attempt_deadline_ns;
    struct rtt_pause attempt; /* OFFERED, CONFIRM: resend; NONE: try again */
    uint32_t pauses;          /* of this wish, with a lack known; up to RTT_DOUBLINGS */
    bool put_off;             /* OFFERED: the remote does not answer the HELLO yet */
    uint32_t given_up;        /* of this wish: the remote gave up so many attempts that were bound,
                               * RTT_DOUBLINGS + 1 at most */

    uint64_t settle_asked; /* highest epoch of ours that SETTLE was sent for */
    uint64_t settle_done;  /* highest that SETTLED came for; behind while we wait */
    uint64_t settle_owed;  /* highest remote epoch to say SETTLED for after draining; 0: none */
    uint64_t settle_part;  /* how far it was said already, while more is owed; 0: nothing */
    struct rtt_pause settle;

    uint64_t probe_end_ns;
    bool probe_due;         /* asked for while there was no live session: when next is up */
    struct rtt_pause probe; /* HELLO_ACK of the live session, until READY */

    uint64_t refused_epoch; /* the last remote epoch refused for good, and why */
    int refused_reason;
    struct ep_mismatch mismatch; /* of the last refusal, by either side, since the last session or
                                  * wish */

    uint64_t stale; /* messages ignored: counts */

    struct ep_papers *papers;      /* of next */
    struct ep_papers *papers_live; /* of live */
};

/* ---- use --------------------------------------------------------------- */

/* Options are copied. Allocates nothing; there is nothing to undo. */
void endpoint_init(struct endpoint *ep, const struct ep_options *options);

/* Takes one event; writes at most EP_EFFECTS_MAX effects and returns how many.
 * Asserts what only the engine can get wrong: an answer that was not asked for,
 * DRAINED of a session that was not retired. */
uint32_t endpoint_step(struct endpoint *ep, const struct ep_event *event, uint64_t now_ns,
                       struct ep_effect *effects_out);

/* Whether what failed with this error may work a little later: something was lacking, or somebody
 * did not answer. Other errors end an attempt, and the remote is told of them at once. */
bool endpoint_may_pass(int error);

/* The error that the remote gave as its reason when it refused the last session that somebody here
 * wanted, or does now, if it may pass; 0: it has not. */
int endpoint_reason(const struct endpoint *ep);

/* Why the two sides have nothing in common, if either has refused the other for that since the last
 * session or wish; NULL: neither has, or nobody knows. */
const struct ep_mismatch *endpoint_mismatch(const struct endpoint *ep);

/* When EP_EV_TIMER is due; UINT64_MAX: never. */
uint64_t endpoint_deadline(const struct endpoint *ep);

/* The live session, or EP_SESSION_NONE. */
uint32_t endpoint_live(const struct endpoint *ep);

/* Whether QPs are made, or being connected, because the remote asked. */
bool endpoint_answering(const struct endpoint *ep);

/* Whether no session is in use: with EP_GONE, the endpoint can be forgotten. */
bool endpoint_at_rest(const struct endpoint *ep);

/* Whether the remote is dead, or we closed: what is retired then did not break. */
static inline bool endpoint_gone(const struct endpoint *ep) {
    return ep->state == EP_GONE;
}

/* The step that the attempt waits for, and the error that was in the way of a session last. */
static inline enum ep_state endpoint_waits_in(const struct endpoint *ep) {
    return ep->state;
}
/* Whether somebody here waits for a session already. */
static inline bool endpoint_wants(const struct endpoint *ep) {
    return ep->want;
}
static inline int endpoint_lack(const struct endpoint *ep) {
    return ep->want_error;
}

/* NULL, or a sentence about an invariant that does not hold. */
const char *endpoint_verify(const struct endpoint *ep);

/* For tests and traces. endpoint_cell_name: what input does in state, NULL if the
 * table does not say; inputs are 0..endpoint_input_count() - 1. */
const char *endpoint_state_name(enum ep_state state);
uint32_t endpoint_input_count(void);
const char *endpoint_input_name(uint32_t input);
const char *endpoint_cell_name(enum ep_state state, uint32_t input);

#endif
