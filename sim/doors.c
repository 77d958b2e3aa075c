/* doors.c: the ways to a node, and who stands in them: connections that are reset, control that is
 * cut for longer than any time-out while data flows, addresses that lead elsewhere, and strangers.
 *
 * Owns these strikes. A stranger is a node without an engine, behind those of the run. It connects
 * to an engine and says well-formed messages in the name of another one, whose instance anybody
 * learns by asking WHO, with numbers that may well be right: but only between two that have had a
 * session, since before that nothing tells one from the other.
 *
 * In a world of doors (config.work.doors) nothing else strikes: every peer lives, and its data
 * flows, so none may be told to be gone. */
#include "doors.h"

#include <string.h>

#include "engine.h"
#include "net.h"
#include "wire.h"

enum {
    DOORS_STRIKE_NS = 500000, /* between two chances of each strike */
    DOORS_CUTS_MAX = 4,       /* of connect time-outs: the longest cut */
    DOORS_EPOCHS = 24,        /* that a stranger may guess */
};

static struct sim_node *stranger(struct sim_world *world) {
    return &world->nodes[world->config.nodes];
}

/* What the node tells others of where it listens. */
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
        snprintf(told, SIM_ADDRESS_MAX, "10.0.9.%u:7000", node + 1);
        break;
    default:
        memcpy(told, world->nodes[node].address, SIM_ADDRESS_MAX);
        break;
    }
}

static void two(struct sim_world *world, uint32_t *a, uint32_t *b) {
    uint32_t others = world->config.nodes - 1;

    *a = (uint32_t)sim_below(&world->prng, world->config.nodes);
    *b = (*a + 1 + (uint32_t)sim_below(&world->prng, others)) % world->config.nodes;
}

static void strike_reset(struct sim_world *world) {
    uint32_t a, b;

    two(world, &a, &b);
    sim_trace(world, "control connections between n%u and n%u are reset", a, b);
    sim_net_break(world->net, a, b);
}

static void mend_event(struct sim_world *world, const struct sim_event *event) {
    uint32_t a = event->node, b = (uint32_t)event->a;

    world->control_cut[a][b] = world->control_cut[b][a] = false;
    sim_trace(world, "control between n%u and n%u is mended", a, b);
}

/* Longer than connecting may take, and after it whatever was dialled meanwhile is lost. */
static void strike_long_cut(struct sim_world *world) {
    uint64_t longest_ns = DOORS_CUTS_MAX * world->config.engine.connect_timeout_ns;
    struct sim_event mend = {.fire = mend_event};
    uint32_t b;

    two(world, &mend.node, &b);
    mend.a = b;
    mend.at_ns = world->now_ns + sim_below(&world->prng, longest_ns);
    sim_trace(world, "control between n%u and n%u is cut for long", mend.node, b);
    world->control_cut[mend.node][b] = world->control_cut[b][mend.node] = true;
    sim_net_break(world->net, mend.node, b);
    sim_schedule(world, &mend);
}

/* ---- strangers --------------------------------------------------------- */

static bool has_been_up(const struct sim_app *app, uint32_t with) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    /* Of one that closes, nobody may ask any more. */
    return app->engine != NULL && !app->node->stepping && app->peers[with].open &&
           weir_peer_query(app->engine, app->peers[with].handle, &info) == 0 && info.sessions > 0;
}

static void slander(struct sim_world *world, struct wire_message *message) {
    struct sim_prng *prng = &world->prng;

    message->type = (enum wire_type)sim_between(prng, WIRE_WHO, WIRE_TYPE_END - 1);
    message->epoch = sim_below(prng, 8) == 0 ? UINT64_MAX - sim_below(prng, 4)
                                             : sim_between(prng, 1, DOORS_EPOCHS);
    message->echo = sim_between(prng, 1, DOORS_EPOCHS);
    message->reason = sim_below(prng, 2) == 0 ? WEIR_ESTALE : WEIR_EREFUSED;
    switch (message->type) {
    case WIRE_WHO:
        memset(message->to, 0, sizeof(message->to));
        break;
    case WIRE_IAM:
        message->pass = sim_below(prng, 2) == 0 ? 0 : sim_next(prng);
        break;
    case WIRE_HELLO:
    case WIRE_HELLO_ACK:
        memset(&message->qps, 0, sizeof(message->qps));
        memcpy(message->qps.device, "sim", 4);
        message->qps.recv_credits = 4;
        message->qps.recv_bytes_max = 4096;
        message->qps.pass = sim_next(prng) | 1;
        message->qps.ordered = true;
        message->qps.qp_count = 1;
        break;
    case WIRE_SETTLED:
        memset(&message->settled, 0xff, sizeof(message->settled));
        break;
    default:
        break;
    }
    if (message->type == WIRE_WHO || message->type == WIRE_IAM) {
        uint32_t node = (uint32_t)sim_below(prng, world->config.nodes + 1);

        memset(message->address, 0, sizeof(message->address));
        memcpy(message->address, world->nodes[node].address, SIM_ADDRESS_MAX);
    }
}

static void strike_stranger(struct sim_run *run) {
    struct sim_world *world = run->world;
    struct sim_node *node = stranger(world);
    struct wire_message message;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t to, as, length;

    two(world, &to, &as);
    if (!has_been_up(&run->apps[to], as) || !has_been_up(&run->apps[as], to)) {
        return;
    }
    memset(&message, 0, sizeof(message));
    memcpy(message.from, engine_instance(run->apps[as].engine), WIRE_INSTANCE_SIZE);
    memcpy(message.to, engine_instance(run->apps[to].engine), WIRE_INSTANCE_SIZE);
    slander(world, &message);
    if (wire_encode(&message, bytes, sizeof(bytes), &length) != 0) {
        return;
    }
    if (run->stranger_conn[to] == 0 || sim_below(&world->prng, 16) == 0) {
        (void)SIM_CONTROL_OPS.dial(node, world->nodes[to].address, &run->stranger_conn[to]);
    }
    sim_trace(world, "a stranger says %s to n%u as n%u", wire_type_name(message.type), to, as);
    if (SIM_CONTROL_OPS.send(node, run->stranger_conn[to], bytes, length) == WEIR_ECONNECT) {
        run->stranger_conn[to] = 0;
    }
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
        strike_stranger(run);
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
    stranger(world)->world = world;
    stranger(world)->index = world->config.nodes;
    stranger(world)->step_at_ns = UINT64_MAX;
    stranger(world)->life = 1;
    stranger(world)->alive = true;
    snprintf(stranger(world)->address, SIM_ADDRESS_MAX, "10.0.0.66:7000");
    sim_schedule(world, &strike);
}

/* ---- one instance, one handle ------------------------------------------- */

/* What the application hears of the node's present life comes under one handle until it is GONE,
 * or until it closed that handle itself. */
void doors_heard(struct sim_app *app, uint32_t from, weir_peer handle) {
    struct app_known *known = &app->known[from];
    uint32_t life = app->run->world->nodes[from].life;

    if (known->handle.id != 0 && known->life == life && known->handle.id != handle.id) {
        sim_violation(app->run->world, "H1 n%u knew n%u by one handle, and now by another",
                      app->node->index, from);
    }
    *known = (struct app_known){.handle = handle, .life = life, .up = known->up};
}

void doors_event(struct sim_app *app, const weir_event *event) {
    struct sim_world *world = app->run->world;

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        struct app_known *known = &app->known[i];

        if (known->handle.id != event->peer.id) {
            continue;
        }
        known->up |= event->type == WEIR_EVENT_UP;
        if (event->type == WEIR_EVENT_GONE) {
            if (world->config.work.doors && !app->run->oracle->lives_ended) {
                sim_violation(world, "W3 n%u: n%u is told to be gone, and lives", app->node->index,
                              i);
            }
            *known = (struct app_known){0};
        }
    }
}

void doors_closed(struct sim_app *app, weir_peer handle) {
    for (uint32_t i = 0; i < app->run->world->config.nodes; i++) {
        if (app->known[i].handle.id == handle.id) {
            app->known[i] = (struct app_known){0};
        }
    }
}
