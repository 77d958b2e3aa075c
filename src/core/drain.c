/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c: see drain.h. One table decides; set_state is the only writer of state. */
#include "drain.h"

#include <assert.h>
#include <stddef.h>

enum cell_kind { UNSET = 0, IGNORE, BUG, GO };

struct cell {
    uint8_t kind;
    uint8_t next;
    uint8_t action;
};

#define STAY                                                                                       \
    { IGNORE, 0, DRAIN_DO_NOTHING }
#define NEVER                                                                                      \
    { BUG, 0, DRAIN_DO_NOTHING } /* the engine answers only what it was told to do */
#define TO(state, action)                                                                          \
    { GO, state, action }

/* clang-format off */
static const struct cell table[DRAIN_STATES][DRAIN_EVENTS] = {
    [DRAIN_IDLE] = {
        [DRAIN_EV_START] = TO(DRAIN_WAIT_EVENT, DRAIN_DO_ERROR_WAIT),
        [DRAIN_EV_START_DIRECT] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
        [DRAIN_EV_LAST_WQE] = STAY, /* early: latched before the teardown began */
        [DRAIN_EV_BEACON_POSTED] = NEVER, [DRAIN_EV_BEACON_REFUSED] = NEVER,
        [DRAIN_EV_BEACON_FLUSHED] = NEVER, [DRAIN_EV_POLLED] = STAY, [DRAIN_EV_TIMER] = STAY,
        [DRAIN_EV_DESTROYED] = NEVER, [DRAIN_EV_DESTROY_REFUSED] = NEVER,
        [DRAIN_EV_START_AT_ONCE] = TO(DRAIN_POST, DRAIN_DO_ERROR_BEACON),
        [DRAIN_EV_TIMER_SPENT] = STAY,
    },
    [DRAIN_WAIT_EVENT] = {
        [DRAIN_EV_START] = STAY, [DRAIN_EV_START_DIRECT] = STAY,
        [DRAIN_EV_LAST_WQE] = TO(DRAIN_POST, DRAIN_DO_BEACON),
        [DRAIN_EV_BEACON_POSTED] = NEVER, [DRAIN_EV_BEACON_REFUSED] = NEVER,
        [DRAIN_EV_BEACON_FLUSHED] = NEVER, [DRAIN_EV_POLLED] = STAY,
        [DRAIN_EV_TIMER] = TO(DRAIN_POST, DRAIN_DO_BEACON),
        [DRAIN_EV_DESTROYED] = NEVER, [DRAIN_EV_DESTROY_REFUSED] = NEVER,
        [DRAIN_EV_START_AT_ONCE] = STAY,
        [DRAIN_EV_TIMER_SPENT] = TO(DRAIN_POST, DRAIN_DO_BEACON),
    },
    [DRAIN_POST] = {
        [DRAIN_EV_START] = STAY, [DRAIN_EV_START_DIRECT] = STAY, [DRAIN_EV_LAST_WQE] = STAY,
        [DRAIN_EV_BEACON_POSTED] = TO(DRAIN_BEACON, DRAIN_DO_NOTHING),
        [DRAIN_EV_BEACON_REFUSED] = TO(DRAIN_POST, DRAIN_DO_NOTHING),
        [DRAIN_EV_BEACON_FLUSHED] = NEVER, [DRAIN_EV_POLLED] = STAY,
        [DRAIN_EV_TIMER] = TO(DRAIN_POST, DRAIN_DO_BEACON),
        [DRAIN_EV_DESTROYED] = NEVER, [DRAIN_EV_DESTROY_REFUSED] = NEVER,
        [DRAIN_EV_START_AT_ONCE] = STAY,
        [DRAIN_EV_TIMER_SPENT] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY), /* without a beacon */
    },
    [DRAIN_BEACON] = {
        [DRAIN_EV_START] = STAY, [DRAIN_EV_START_DIRECT] = STAY, [DRAIN_EV_LAST_WQE] = STAY,
        [DRAIN_EV_BEACON_POSTED] = NEVER, [DRAIN_EV_BEACON_REFUSED] = NEVER,
        [DRAIN_EV_BEACON_FLUSHED] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
        [DRAIN_EV_POLLED] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
        [DRAIN_EV_TIMER] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
        [DRAIN_EV_DESTROYED] = NEVER, [DRAIN_EV_DESTROY_REFUSED] = NEVER,
        [DRAIN_EV_START_AT_ONCE] = STAY,
        [DRAIN_EV_TIMER_SPENT] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
    },
    [DRAIN_DESTROY] = {
        [DRAIN_EV_START] = STAY, [DRAIN_EV_START_DIRECT] = STAY, [DRAIN_EV_LAST_WQE] = STAY,
        [DRAIN_EV_BEACON_POSTED] = NEVER, [DRAIN_EV_BEACON_REFUSED] = NEVER,
        [DRAIN_EV_BEACON_FLUSHED] = STAY, [DRAIN_EV_POLLED] = STAY,
        [DRAIN_EV_TIMER] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
        [DRAIN_EV_DESTROYED] = TO(DRAIN_GONE, DRAIN_DO_FINISH),
        [DRAIN_EV_DESTROY_REFUSED] = TO(DRAIN_DESTROY, DRAIN_DO_NOTHING),
        [DRAIN_EV_START_AT_ONCE] = STAY,
        [DRAIN_EV_TIMER_SPENT] = TO(DRAIN_DESTROY, DRAIN_DO_DESTROY),
    },
    [DRAIN_GONE] = {
        [DRAIN_EV_START] = STAY, [DRAIN_EV_START_DIRECT] = STAY, [DRAIN_EV_LAST_WQE] = STAY,
        [DRAIN_EV_BEACON_POSTED] = NEVER, [DRAIN_EV_BEACON_REFUSED] = NEVER,
        [DRAIN_EV_BEACON_FLUSHED] = STAY, [DRAIN_EV_POLLED] = STAY, [DRAIN_EV_TIMER] = STAY,
        [DRAIN_EV_DESTROYED] = NEVER, [DRAIN_EV_DESTROY_REFUSED] = NEVER,
        [DRAIN_EV_START_AT_ONCE] = STAY,
        [DRAIN_EV_TIMER_SPENT] = STAY,
    },
};
/* clang-format on */

void drain_init(struct drain *drain, const struct drain_options *options) {
    *drain = (struct drain){
        .state = DRAIN_IDLE,
        .wait_event = options->wait_event,
        .deadline_ns = UINT64_MAX,
        .timeout_ns = options->timeout_ns,
    };
}

/* Where a state's own wait ends. Posting and destroying are retried; the refusals
 * count across both, so that the pauses grow. */
static uint64_t wait_until(const struct drain *drain, enum drain_event event, uint64_t now_ns) {
    uint64_t pause = (uint64_t)DRAIN_RETRY_NS
                     << (drain->refusals < DRAIN_RETRY_DOUBLINGS ? drain->refusals
                                                                 : DRAIN_RETRY_DOUBLINGS);
    switch (drain->state) {
    case DRAIN_WAIT_EVENT:
        return now_ns + drain->timeout_ns / DRAIN_EVENT_WAIT_SHARE;
    case DRAIN_POST:
        return event == DRAIN_EV_BEACON_REFUSED ? now_ns + pause : UINT64_MAX;
    case DRAIN_BEACON:
        return now_ns + drain->timeout_ns / DRAIN_BEACON_SHARE;
    case DRAIN_DESTROY:
        return event == DRAIN_EV_DESTROY_REFUSED ? now_ns + pause : UINT64_MAX;
    case DRAIN_IDLE:
    case DRAIN_GONE:
    case DRAIN_STATES:
        break;
    }
    return UINT64_MAX;
}

static void set_state(struct drain *drain, enum drain_state next, enum drain_event event,
                      uint64_t now_ns) {
    if (event == DRAIN_EV_TIMER && (drain->state == DRAIN_BEACON || drain->state == DRAIN_POST) &&
        next == DRAIN_DESTROY) {
        drain->forced = true;
        drain->forced_in = drain->state;
    }
    drain->state = next;
    drain->deadline_ns = wait_until(drain, event, now_ns);
}

static enum drain_event refine(const struct drain *drain, enum drain_event event) {
    if (event == DRAIN_EV_START && (!drain->wait_event || drain->last_wqe))
        return DRAIN_EV_START_AT_ONCE;
    if (event == DRAIN_EV_TIMER && drain->refusals >= DRAIN_POST_REFUSALS_MAX)
        return DRAIN_EV_TIMER_SPENT;
    return event;
}

enum drain_action drain_step(struct drain *drain, enum drain_event event, uint64_t now_ns) {
    const struct cell *cell = &table[drain->state][refine(drain, event)];
    assert(cell->kind != UNSET && cell->kind != BUG);
    if (event == DRAIN_EV_LAST_WQE)
        drain->last_wqe = true;
    if (event == DRAIN_EV_BEACON_FLUSHED)
        drain->beacon_flushed = true;
    if (event == DRAIN_EV_BEACON_REFUSED || event == DRAIN_EV_DESTROY_REFUSED)
        drain->refusals++;
    if (cell->kind == IGNORE)
        return DRAIN_DO_NOTHING;
    set_state(drain, (enum drain_state)cell->next, event, now_ns);
    return (enum drain_action)cell->action;
}

void drain_prolong(struct drain *drain, uint64_t now_ns) {
    if (drain->deadline_ns != UINT64_MAX)
        drain->deadline_ns = wait_until(
            drain, drain->state == DRAIN_POST ? DRAIN_EV_BEACON_REFUSED : DRAIN_EV_DESTROY_REFUSED,
            now_ns);
}

void drain_forgive(struct drain *drain) {
    drain->refusals = 0;
}

uint64_t drain_deadline(const struct drain *drain) {
    return drain->deadline_ns;
}

bool drain_cell_is_set(enum drain_state state, enum drain_event event) {
    return table[state][event].kind != UNSET;
}

const char *drain_state_name(enum drain_state state) {
    static const char *const names[DRAIN_STATES] = {
        [DRAIN_IDLE] = "idle",     [DRAIN_WAIT_EVENT] = "wait-event", [DRAIN_POST] = "post-beacon",
        [DRAIN_BEACON] = "beacon", [DRAIN_DESTROY] = "destroy",       [DRAIN_GONE] = "gone",
    };
    return state < DRAIN_STATES ? names[state] : "?";
}
