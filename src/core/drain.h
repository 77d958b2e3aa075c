/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h: the machine that takes one QP down.
 *
 *      IDLE ──► WAIT_EVENT ──► POST ──► BEACON ──► DESTROY ──► GONE
 *
 * Each state ends with:
 * - IDLE: START, the QP to ERR; to POST at once where no LAST_WQE is to come, or it came early; to
 *   DESTROY, as it is, when the QP was never connected
 * - WAIT_EVENT: LAST_WQE, or its bound
 * - POST: the device took the beacon; after many refusals, to DESTROY without one
 * - BEACON: the beacon's flush, or a whole CQ was polled since, or its bound
 * - DESTROY: the device has destroyed the QP
 *
 * Devices differ: the last-WQE event comes never, once or often, early or late, and a beacon may
 * never flush; each wait therefore ends on a bound as well. (IBA 1.5, 11.5.2: affiliated
 * asynchronous event "last WQE reached", for QPs on a shared receive queue only;
 * ibv_get_async_event(3).) The machine holds the order and the bounds; the engine performs the
 * actions. Not its business: what the flushed WRs were for. */
#ifndef WEIR_DRAIN_H
#define WEIR_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

enum drain_state {
    DRAIN_IDLE,
    DRAIN_WAIT_EVENT, /* in ERR, for LAST_WQE */
    DRAIN_POST,       /* the device refused the beacon for now */
    DRAIN_BEACON,     /* for the beacon's flush */
    DRAIN_DESTROY,    /* destroy, until the device does it */
    DRAIN_GONE,
    DRAIN_STATES
};

enum drain_event {
    DRAIN_EV_START,        /* a QP that reached RTS */
    DRAIN_EV_START_DIRECT, /* one that did not */
    DRAIN_EV_LAST_WQE,     /* may come in any state, any number of times */
    DRAIN_EV_BEACON_POSTED,
    DRAIN_EV_BEACON_REFUSED,
    DRAIN_EV_BEACON_FLUSHED,
    DRAIN_EV_POLLED, /* a whole CQ capacity was polled since the beacon */
    DRAIN_EV_TIMER,
    DRAIN_EV_DESTROYED,
    DRAIN_EV_DESTROY_REFUSED,
    /* drain_step makes these of START and TIMER; nobody else gives them. */
    DRAIN_EV_START_AT_ONCE, /* there is no LAST_WQE to wait for, or it came before */
    DRAIN_EV_TIMER_SPENT,   /* the device has refused too often */
    DRAIN_EVENTS
};

enum drain_action {
    DRAIN_DO_NOTHING,
    DRAIN_DO_ERROR_WAIT,   /* QP to ERR; LAST_WQE is to be waited for */
    DRAIN_DO_ERROR_BEACON, /* QP to ERR, then the beacon */
    DRAIN_DO_BEACON,       /* post it; answer with BEACON_POSTED or _REFUSED */
    DRAIN_DO_DESTROY,      /* answer with DESTROYED or _REFUSED */
    DRAIN_DO_FINISH        /* account for what is still open; free the entry */
};

struct drain_options {
    bool wait_event; /* a device that has the event, and a shared receive queue */
    uint64_t timeout_ns;
};

struct drain {
    enum drain_state state;
    bool wait_event;
    bool last_wqe; /* latched */
    bool beacon_flushed;
    bool forced; /* is destroyed on a bound, without its beacon's flush */
    enum drain_state forced_in;
    uint32_t refusals;
    uint64_t deadline_ns; /* of the present wait */
    uint64_t timeout_ns;
};

enum {
    DRAIN_EVENT_WAIT_SHARE = 16, /* of timeout_ns: the wait for LAST_WQE */
    DRAIN_BEACON_SHARE = 2,      /* and for the beacon */
    DRAIN_RETRY_NS = 100 * 1000, /* pause after a refusal; doubles with each... */
    DRAIN_RETRY_DOUBLINGS = 7,   /* ...this often */
    DRAIN_POST_REFUSALS_MAX = 8  /* then the QP is destroyed without a beacon */
};

void drain_init(struct drain *drain, const struct drain_options *options);
/* One event; returns the action. */
enum drain_action drain_step(struct drain *drain, enum drain_event event, uint64_t now_ns);
/* The device is at work on it still: the present wait begins again. */
void drain_prolong(struct drain *drain, uint64_t now_ns);
/* The device's cause to refuse is over: the pauses are short again. */
void drain_forgive(struct drain *drain);
/* When DRAIN_EV_TIMER is due; UINT64_MAX: never. */
uint64_t drain_deadline(const struct drain *drain);
/* For the test that every cell of the table is written. */
bool drain_cell_is_set(enum drain_state state, enum drain_event event);
const char *drain_state_name(enum drain_state state);

#endif
