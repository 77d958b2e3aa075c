/* SPDX-License-Identifier: Apache-2.0 */
/* stalls.c: what engines tell of stalls, judged by what their applications saw.
 *
 * Owns what each node was told, and when something of its transfers to each other was last seen to
 * be done. The rules:
 *  - STALLED is told only when transfers to that node have been outstanding for watchdog_ns, and
 *    none was certainly completed since. A transfer completes between the step that saw it
 *    unfinished last and the one that sees its end; one that ends in its submit does not count.
 *  - STALLED names a cause. Work that is about to be posted is none.
 *  - Of one handle STALLED comes once, until RESUMED or GONE; RESUMED comes only behind it. (Of one
 *    that was closed, and is open still for another reason, either may come.)
 *  - Nothing of the transfers to a node is done for STILL times watchdog_ns, while the application
 *    makes progress often enough: then a stall has been told. Bytes do not count that land of a
 *    transfer which was submitted since one of them ended. (Of any node: handles have several
 *    names.) */
#include "oracle.h"

enum { STILL = 4, REGULAR = 8 /* steps in watchdog_ns, at least */ };

static void active(const struct sim_oracle *oracle, struct sim_stalls *stalls, uint32_t to) {
    stalls->active_ns[to] = stalls->fresh_ns[to] = oracle->world->now_ns;
}

void oracle_stalls_ended(struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    active(oracle, &oracle->stalls[transfer->from], transfer->to);
}

void oracle_stalls_moved(struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    struct sim_stalls *stalls = &oracle->stalls[transfer->from];

    /* The engine sees an end with its next look but one. */
    if (transfer->began_ns <= stalls->fresh_ns[transfer->to] + oracle->watchdog_ns / 4) {
        stalls->active_ns[transfer->to] = oracle->world->now_ns;
    }
}

void oracle_stalls_begin(struct sim_oracle *oracle, uint32_t node) {
    struct sim_stalls *stalls = &oracle->stalls[node];
    uint64_t now = oracle->world->now_ns;

    *stalls = (struct sim_stalls){.stepped_ns = now, .regular_ns = now};
    for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
        stalls->idle_ns[i] = now;
        active(oracle, stalls, i);
    }
}

/* ---- events ------------------------------------------------------------ */

static bool forget(struct sim_stalls *stalls, uint64_t handle) {
    for (uint32_t i = 0; i < stalls->told_count; i++) {
        if (stalls->told[i] == handle) {
            stalls->told[i] = stalls->told[--stalls->told_count];
            return true;
        }
    }
    return false;
}

static bool is_of(const struct sim_oracle *oracle, const struct sim_transfer *transfer,
                  uint32_t node, uint32_t to) {
    return transfer->from == node && transfer->to == to &&
           transfer->from_life == oracle->world->nodes[node].life && transfer->handle.id != 0;
}

/* Whether transfers to this node were outstanding for as long as a stall takes, for all that is
 * known. */
static bool may_stall(const struct sim_oracle *oracle, uint32_t node, uint32_t to) {
    const struct sim_stalls *stalls = &oracle->stalls[node];

    return oracle->world->now_ns - stalls->idle_ns[to] >= oracle->watchdog_ns ||
           (stalls->blind & 1u << to) != 0;
}

/* Whether some node says that it is where another one is: the handle of that address may be the
 * one's or the other's. */
static bool names_are_doubtful(const struct sim_world *world) {
    bool doubtful = false;

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        doubtful = doubtful || sim_node_claims(&world->nodes[i]);
    }
    return doubtful;
}

/* Of one node at least. */
static void judge_doubtful(struct sim_oracle *oracle, uint32_t node) {
    bool may = false;

    for (uint32_t to = 0; to < oracle->world->config.nodes; to++) {
        may = may || may_stall(oracle, node, to);
    }
    if (!may && oracle->letters == 0) {
        sim_violation(oracle->world,
                      "M10 n%u: some node is stalled, and nothing was outstanding for so long",
                      node);
    }
}

/* The engine told it since the application's last step. */
static void judge(struct sim_oracle *oracle, uint32_t node, uint32_t to) {
    struct sim_world *world = oracle->world;
    const struct sim_stalls *stalls = &oracle->stalls[node];

    if (names_are_doubtful(world)) {
        judge_doubtful(oracle, node);
        return;
    }
    for (uint32_t i = 1; i <= oracle->count; i++) {
        const struct sim_transfer *transfer = &oracle->transfers[i];

        if (is_of(oracle, transfer, node, to) && transfer->terminal && transfer->status == 0 &&
            transfer->ended_ns < stalls->stepped_ns &&
            world->now_ns - transfer->unfinished_ns < oracle->watchdog_ns) {
            sim_violation(world, "M10 n%u: n%u is stalled, and transfer %u was just completed",
                          node, to, transfer->number);
        }
    }
    if (!may_stall(oracle, node, to) && oracle->letters == 0) {
        sim_violation(world, "M10 n%u: n%u is stalled, and nothing was outstanding for so long",
                      node, to);
    }
}

static bool was_closed(const struct sim_stalls *stalls, uint64_t handle) {
    for (uint32_t i = 0; i < stalls->closed_count; i++) {
        if (stalls->closed[i] == handle) {
            return true;
        }
    }
    return false;
}

void oracle_stalls_closed(struct sim_oracle *oracle, uint32_t node, weir_peer handle) {
    struct sim_stalls *stalls = &oracle->stalls[node];

    if (was_closed(stalls, handle.id)) {
        return;
    }
    stalls->masked |= forget(stalls, handle.id);
    if (stalls->closed_count < SIM_STALLS) {
        stalls->closed[stalls->closed_count++] = handle.id;
    } else {
        stalls->unknown = true;
    }
}

void oracle_stalls_event(struct sim_oracle *oracle, uint32_t node, uint32_t to,
                         const weir_event *event) {
    struct sim_stalls *stalls = &oracle->stalls[node];
    bool was_told;

    if (event->type == WEIR_EVENT_LOST) {
        stalls->unknown = true;
    }
    if (event->type == WEIR_EVENT_GONE) {
        forget(stalls, event->peer.id);
    }
    if (event->type != WEIR_EVENT_STALLED && event->type != WEIR_EVENT_RESUMED) {
        return;
    }
    was_told = forget(stalls, event->peer.id);
    if (was_told == (event->type == WEIR_EVENT_STALLED) && !stalls->unknown &&
        !was_closed(stalls, event->peer.id)) {
        sim_violation(oracle->world, "M10 n%u is told of %llx: %s", node,
                      (unsigned long long)event->peer.id,
                      was_told ? "STALLED twice" : "RESUMED without STALLED");
    }
    if (event->type == WEIR_EVENT_RESUMED) {
        for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
            active(oracle, stalls, i); /* of whomever it was */
        }
        return;
    }
    if (stalls->told_count < SIM_STALLS) {
        stalls->told[stalls->told_count++] = event->peer.id;
    } else {
        stalls->unknown = true;
    }
    if (event->value == WEIR_STALL_TURN) {
        sim_violation(oracle->world, "M10 n%u: %llx is stalled, and no cause is named", node,
                      (unsigned long long)event->peer.id);
    }
    if (to != UINT32_MAX && oracle->watchdog_ns > 0) {
        judge(oracle, node, to);
    }
}

/* ---- silence ----------------------------------------------------------- */

void oracle_stalls_step(struct sim_oracle *oracle, uint32_t node, uint32_t works, uint32_t waits) {
    struct sim_world *world = oracle->world;
    struct sim_stalls *stalls = &oracle->stalls[node];

    if (world->now_ns - stalls->stepped_ns > oracle->watchdog_ns / REGULAR * 2) {
        stalls->regular_ns = world->now_ns;
    }
    stalls->stepped_ns = world->now_ns;
    for (uint32_t to = 0; to < SIM_RUN_NODES_MAX; to++) {
        uint64_t since_ns =
            stalls->active_ns[to] > stalls->regular_ns ? stalls->active_ns[to] : stalls->regular_ns;

        if ((works & 1u << to) == 0) {
            stalls->idle_ns[to] = world->now_ns;
        }
        if ((waits & 1u << to) == 0) {
            active(oracle, stalls, to);
        } else if (stalls->told_count == 0 && !stalls->masked && !stalls->unknown &&
                   oracle->watchdog_ns > 0 &&
                   world->now_ns - since_ns > STILL * oracle->watchdog_ns) {
            sim_violation(world, "M10 n%u: nothing goes to n%u any more, and no stall is told",
                          node, to);
        }
    }
}
