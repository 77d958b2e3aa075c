/* SPDX-License-Identifier: Apache-2.0 */
/* doors.c: the ways to a node, and who stands in them: connections that are reset, control that is
 * cut for longer than any time-out while data flows, addresses that lead elsewhere, and strangers.
 *
 * Owns these strikes, but for what a stranger does (stranger.c).
 *
 * In a world of doors (config.work.doors) nothing else strikes: every peer lives, and its data
 * flows, so none may be told to be gone. */
#include "doors.h"

#include <string.h>

#include "engine.h"
#include "net.h"
#include "stranger.h"

enum {
    DOORS_STRIKE_NS = 500000, /* between two chances of each strike */
    DOORS_CUTS_MAX = 4,       /* of connect time-outs: the longest cut */
};

/* The longest that a connection may take in a world of prompt engines: that covers the delays and
 * some new dials, but no pause before a message is said again. */
#define DOORS_PROMPT_NS UINT64_C(200000000)

/* The address at which the node tells others that it listens. */
static void tell_address(struct sim_world *world, uint32_t node) {
    char *told = world->nodes[node].told;
    uint32_t other = (node + 1) % world->config.nodes;

    switch (world->config.work.told[node]) {
    case SIM_TOLD_WILDCARD:
        snprintf(told, SIM_ADDRESS_MAX, "0.0.0.0:7000");
        break;
    case SIM_TOLD_ANOTHERS:
        memcpy(told, world->nodes[other].address, SIM_ADDRESS_MAX);
        break;
    case SIM_TOLD_NOBODYS:
        snprintf(told, SIM_ADDRESS_MAX, "10.0.%u.%u:7900", world->config.work.one_host ? 0 : 9,
                 world->config.work.one_host ? 1 : node + 1);
        break;
    default:
        memcpy(told, world->nodes[node].address, SIM_ADDRESS_MAX);
        break;
    }
}

void doors_two(struct sim_world *world, uint32_t *a, uint32_t *b) {
    uint32_t others = world->config.nodes - 1;

    *a = (uint32_t)sim_below(&world->prng, world->config.nodes);
    *b = (*a + 1 + (uint32_t)sim_below(&world->prng, others)) % world->config.nodes;
}

static void strike_reset(struct sim_world *world) {
    uint32_t a, b;

    doors_two(world, &a, &b);
    sim_trace(world, "control connections between n%u and n%u are reset", a, b);
    sim_net_break(world->net, a, b);
}

static void mend_event(struct sim_world *world, const struct sim_event *event) {
    uint32_t a = event->node, b = (uint32_t)event->a;

    world->control_cut[a][b] = world->control_cut[b][a] = false;
    sim_trace(world, "control between n%u and n%u is mended", a, b);
}

/* Cuts control for up to DOORS_CUTS_MAX connect time-outs. A dial across the cut is lost after some
 * tries. */
static void strike_long_cut(struct sim_world *world) {
    uint64_t longest_ns = DOORS_CUTS_MAX * world->config.engine.connect_timeout_ns;
    struct sim_event mend = {.fire = mend_event};
    uint32_t b;

    doors_two(world, &mend.node, &b);
    mend.a = b;
    mend.at_ns = world->now_ns + sim_below(&world->prng, longest_ns);
    sim_trace(world, "control between n%u and n%u is cut for long", mend.node, b);
    world->control_cut[mend.node][b] = world->control_cut[b][mend.node] = true;
    sim_net_break(world->net, mend.node, b);
    sim_schedule(world, &mend);
}

/* ---- the strikes ------------------------------------------------------- */

static void strike_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_run *run = ((struct sim_app *)world->nodes[0].app)->run;
    const struct sim_workload_config *work = &world->config.work;
    struct sim_event again = *event;

    if (!world->faults) {
        return;
    }
    if (sim_fault(world, work->reset)) {
        strike_reset(world);
    }
    if (sim_fault(world, work->long_cut)) {
        strike_long_cut(world);
    }
    if (sim_fault(world, work->stranger)) {
        stranger_strike(run);
    }
    again.at_ns = world->now_ns + sim_below(&world->prng, DOORS_STRIKE_NS);
    sim_schedule(world, &again);
}

void doors_start(struct sim_run *run) {
    struct sim_world *world = run->world;
    const struct sim_workload_config *work = &world->config.work;
    struct sim_event strike = {.fire = strike_event, .at_ns = world->now_ns};

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        tell_address(world, i);
    }
    if ((work->reset | work->long_cut | work->stranger) == 0) {
        return;
    }
    if (work->stranger != 0) {
        stranger_start(run);
    }
    sim_schedule(world, &strike);
}

/* ---- a connection takes no pause ---------------------------------------- */

const char *doors_name(const struct sim_app *app, uint32_t to) {
    const struct sim_world *world = app->run->world;

    return world->config.work.second_name[app->node->index][to] ? world->nodes[to].second
                                                                : world->nodes[to].address;
}

void doors_wanted(struct sim_app *app, uint32_t to) {
    struct app_peer *peer = &app->peers[to];

    if (peer->wanted_ns == 0 && !peer->met) {
        peer->wanted_ns = app->run->world->now_ns;
    }
}

/* The wait began with the first transfer, or anew when a fault broke control between the two. */
static void judge_wait(struct sim_app *app, uint32_t to) {
    struct sim_world *world = app->run->world;
    uint64_t began_ns = app->peers[to].wanted_ns;
    uint64_t broke_ns = world->broke_ns[app->node->index][to];

    if (broke_ns > began_ns) {
        began_ns = broke_ns;
    }
    if (world->config.work.prompt && world->now_ns - began_ns > DOORS_PROMPT_NS) {
        sim_violation(world, "H1 n%u waited %llu ms for n%u, and nothing was in the way",
                      app->node->index, (unsigned long long)(world->now_ns - began_ns) / 1000000,
                      to);
    }
}

void doors_look(struct sim_app *app) {
    for (uint32_t i = 0; i < app->run->world->config.nodes; i++) {
        weir_peer_info info = WEIR_PEER_INFO_INIT;

        if (app->peers[i].wanted_ns != 0 &&
            weir_peer_query(app->engine, app->peers[i].handle, &info) == 0 && info.connected != 0) {
            judge_wait(app, i);
            app->peers[i].wanted_ns = 0;
            app->peers[i].met = true;
        }
    }
}

/* ---- connects -------------------------------------------------------- */

enum { DOORS_NAMES = 2 * SIM_RUN_NODES_MAX };

static void tell(struct sim_app *app, uint64_t handle) {
    app->told[app->told_count++ % APP_TOLD_MAX] = handle;
    if (app->untold == handle) {
        app->untold = 0;
    }
}

/* The last ones first: mostly it is one of those. */
static bool is_told(const struct sim_app *app, uint64_t handle) {
    for (uint32_t i = 1; i <= app->told_count && i <= APP_TOLD_MAX; i++) {
        if (app->told[(app->told_count - i) % APP_TOLD_MAX] == handle) {
            return true;
        }
    }
    return app->told_count > APP_TOLD_MAX; /* perhaps it was, long ago */
}

/* Something comes under this handle. After LOST the event that told of it may be among the lost
 * ones: from here on it counts as told. */
static void must_be_told(struct sim_app *app, uint64_t handle) {
    if (is_told(app, handle)) {
        return;
    }
    if (app->events_lost) {
        tell(app, handle);
    } else {
        app->untold = handle;
    }
}

void doors_judge_told(struct sim_app *app) {
    if (app->untold != 0) {
        sim_violation(app->run->world, "H1 n%u hears under %llx, and was not told of that",
                      app->node->index, (unsigned long long)app->untold);
    }
}

void doors_opened(struct sim_app *app, uint32_t at, weir_peer peer) {
    tell(app, peer.id);
    uint64_t same_as = 0;

    for (uint32_t i = 0; i < DOORS_NAMES; i++) { /* it may be one more reference */
        if (app->names[i].handle == peer.id) {
            same_as = app->names[i].same_as;
        }
    }
    app->names[at] = (struct app_name){.handle = peer.id, .same_as = same_as};
}

/* ENOTREADY is answered by UP, RECOVERED, SAME or GONE. */
static void ask(struct sim_app *app, struct app_name *name) {
    struct sim_world *world = app->run->world;
    int rc;

    rc = weir_peer_connect(app->engine, (weir_peer){name->handle});
    sim_trace(world, "n%u connects %llx: %s", app->node->index, (unsigned long long)name->handle,
              weir_error_name(rc));
    if (rc == WEIR_ENOTREADY) {
        app->node->asks++;
        name->asked_ns = world->now_ns;
    } else if (rc != 0 && rc != WEIR_ESTALE) {
        sim_violation(world, "H1 n%u: peer_connect: %s", app->node->index, weir_error_name(rc));
    }
}

/* ---- letters: what is sent through an address ------------------------------ */

/* A notification through a name, which says where it was sent: to the node that is there, whatever
 * others say of themselves, and whatever becomes of the name. */
static void send_letter(struct sim_app *app, const char *address, weir_peer peer) {
    struct sim_world *world = app->run->world;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};
    uint32_t to = world->config.nodes;
    int rc;

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        if (strcmp(address, world->nodes[i].address) == 0 ||
            strcmp(address, world->nodes[i].second) == 0) {
            to = i;
        }
    }
    if (to == world->config.nodes || !world->config.work.one_host || !sim_ways_open(world)) {
        return;
    }
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = oracle_letter(app->run->oracle, to);
    rc = weir_write(app->engine, peer, NULL, 0, &options, &transfer);
    sim_trace(world, "n%u sends a letter to %s: %s", app->node->index, address,
              weir_error_name(rc));
    if (rc == 0 && transfer.id != 0) {
        app->node->asks++;
        (void)weir_transfer_release(app->engine, transfer);
    }
}

/* ---- other names ----------------------------------------------------------- */

static void open_name(struct sim_app *app, uint32_t to) {
    struct sim_world *world = app->run->world;
    const struct sim_node *node = &world->nodes[to];
    const char *address = node->address;
    weir_peer peer;
    int rc;

    switch (sim_below(app_prng(app), 3)) {
    case 0:
        address = node->second[0] != '\0' ? node->second : address;
        break;
    case 1: /* a visitor with that address waits until nobody has answered there: that is a pause */
        if (world->config.work.told[to] != SIM_TOLD_WILDCARD && node->told[0] != '\0' &&
            !world->config.work.prompt) {
            address = node->told;
        }
        break;
    default:
        break;
    }
    app->node->full |= engine_is_full(app->engine);
    rc = weir_peer_open(app->engine, address, &peer);
    sim_trace(world, "n%u opens %s as well: %s", app->node->index, address, weir_error_name(rc));
    if (rc == 0) {
        doors_opened(app, SIM_RUN_NODES_MAX + to, peer);
        send_letter(app, address, peer);
    } else if (rc != WEIR_EAGAIN) {
        sim_violation(world, "H1 peer_open: %s", weir_error_name(rc));
    }
}

static void close_name(struct sim_app *app, struct app_name *name) {
    weir_peer peer = {name->handle};
    oracle_stalls_closed(app->run->oracle, app->node->index, peer);
    int rc = weir_peer_close(app->engine, peer);

    sim_trace(app->run->world, "n%u closes %llx: %s", app->node->index,
              (unsigned long long)name->handle, weir_error_name(rc));
    if (rc != 0 && rc != WEIR_ESTALE) {
        sim_violation(app->run->world, "H1 peer_close: %s", weir_error_name(rc));
    }
    *name = (struct app_name){0};
    doors_closed(app, peer);
}

void doors_act(struct sim_app *app) {
    uint32_t to = (uint32_t)sim_below(app_prng(app), app->run->world->config.nodes);
    struct app_name *name = &app->names[SIM_RUN_NODES_MAX + to];

    if (app->names[to].handle != 0 && sim_below(app_prng(app), 2) == 0) {
        ask(app, &app->names[to]);
        return;
    }
    if (name->handle == 0) {
        open_name(app, to);
    }
    if (name->handle != 0 && sim_below(app_prng(app), 2) == 0) {
        ask(app, name);
    }
    if (name->handle != 0 && sim_below(app_prng(app), 2) == 0) {
        close_name(app, name);
    }
}

static void names_event(struct sim_app *app, const weir_event *event) {
    for (uint32_t i = 0; i < DOORS_NAMES; i++) {
        struct app_name *name = &app->names[i];
        bool its = name->handle != 0 &&
                   (event->peer.id == name->handle || event->peer.id == name->same_as);

        if (event->type == WEIR_EVENT_LOST) {
            name->asked_ns = 0; /* nobody knows what was said */
        } else if (its) {
            switch (event->type) {
            case WEIR_EVENT_SAME:
                if (event->peer.id == name->handle) { /* else another name is another's now */
                    name->same_as = event->value;
                    name->asked_ns = 0;
                }
                break;
            case WEIR_EVENT_GONE:
                name->same_as = 0;
                name->asked_ns = 0;
                break;
            case WEIR_EVENT_UP:
            case WEIR_EVENT_RECOVERED:
                name->asked_ns = 0;
                break;
            default:
                break;
            }
        }
    }
}

uint32_t doors_unanswered(const struct sim_app *app) {
    uint32_t count = 0;

    for (uint32_t i = 0; app->engine != NULL && i < DOORS_NAMES; i++) {
        count += app->names[i].asked_ns != 0;
    }
    return count;
}

void doors_say_unanswered(const struct sim_app *app) {
    for (uint32_t i = 0; app->engine != NULL && i < DOORS_NAMES; i++) {
        if (app->names[i].asked_ns != 0) {
            sim_violation(app->run->world, "H1 n%u connects %llx at %llu, and hears nothing of it",
                          app->node->index, (unsigned long long)app->names[i].handle,
                          (unsigned long long)app->names[i].asked_ns);
        }
    }
}

/* ---- one instance, one handle ------------------------------------------- */

/* All that the application hears of the node's present life comes under one handle until it is
 * GONE, or until it closed that handle itself. */
void doors_heard(struct sim_app *app, uint32_t from, weir_peer handle) {
    struct app_known *known = &app->known[from];
    uint32_t life = app->run->world->nodes[from].life;

    if (known->handle.id != 0 && known->life == life && known->handle.id != handle.id) {
        sim_violation(app->run->world, "H1 n%u knew n%u by one handle, and now by another",
                      app->node->index, from);
    }
    *known = (struct app_known){.handle = handle, .life = life, .up = known->up};
    must_be_told(app, handle.id);
}

/* In a world in which all live: a peer that was closed left, since its place was needed; or a wish
 * for it ended with what the own node lacked. One of the two claims to be where another is: it is
 * given up when that one answers, and may then be cut off like a new peer. */
static bool gone_allowed(const struct sim_app *app, uint32_t peer, int error) {
    const struct sim_world *world = app->run->world;
    const struct sim_node *node = &world->nodes[peer];

    bool claims = sim_node_claims(node) || sim_node_claims(app->node);

    switch (error) {
    case WEIR_ECLOSED:
        return app->node->full;
    case WEIR_EPEER:
        return node->full || claims;
    case WEIR_ECONNECT:
    case WEIR_EREFUSED:
    case WEIR_EUNREACH:
        return claims;
    case WEIR_ENOMEM:
    case WEIR_EMFILE:
        return world->config.nic[app->node->index].lack != 0;
    default:
        return false;
    }
}

void doors_event(struct sim_app *app, const weir_event *event) {
    struct sim_world *world = app->run->world;

    names_event(app, event);
    if (event->type == WEIR_EVENT_UP || event->type == WEIR_EVENT_REFUSED) {
        tell(app, event->peer.id);
    } else if (event->type == WEIR_EVENT_SAME) {
        tell(app, event->value);
    } else if (event->type == WEIR_EVENT_LOST) {
        app->untold = 0;
        app->events_lost = true;
    }
    if (event->peer.id != 0) {
        must_be_told(app, event->peer.id);
    }
    for (uint32_t i = 0; i < world->config.nodes; i++) {
        struct app_known *known = &app->known[i];

        if (known->handle.id != event->peer.id) {
            continue;
        }
        known->up |= event->type == WEIR_EVENT_UP;
        if (event->type == WEIR_EVENT_GONE) {
            if (world->config.work.doors && !app->run->oracle->lives_ended &&
                !gone_allowed(app, i, event->error)) {
                sim_violation(world, "W3 n%u: n%u is told to be gone, and lives", app->node->index,
                              i);
            }
            *known = (struct app_known){0};
        }
    }
}

void doors_closed(struct sim_app *app, weir_peer handle) {
    for (uint32_t i = 0; i < DOORS_NAMES; i++) {
        if (app->names[i].handle == handle.id) {
            return; /* it has another reference */
        }
    }
    for (uint32_t i = 0; i < app->run->world->config.nodes; i++) {
        if (app->known[i].handle.id == handle.id) {
            app->known[i] = (struct app_known){0};
        }
    }
}
