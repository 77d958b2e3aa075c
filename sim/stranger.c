/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c: one that can connect to all, and knows what WHO tells.
 *
 * A stranger is a node without an engine, behind those of the run. It connects to an engine and
 * says well-formed messages in another engine's name. It learns the instance by asking WHO, and its
 * numbers may be right. It does so only between two engines that have had a session: before that
 * nothing tells the stranger from the engine that it names. Now and then it comes as itself, tells
 * where it is, and hangs up; an engine that dials it is answered in any engine's name. It remembers
 * the passes that it is shown, and shows them. */
#include "stranger.h"

#include <string.h>

#include "doors.h"
#include "engine.h"
#include "net.h"
#include "nic.h"
#include "wire.h"

enum {
    STRANGER_EPOCHS = 24, /* that it may guess */
    VISIT_ONE_IN = 16,
};

static struct sim_node *node_of(struct sim_world *world) {
    return &world->nodes[world->config.nodes];
}

void stranger_start(struct sim_run *run) {
    struct sim_world *world = run->world;
    struct sim_node *node = node_of(world);
    char actual[SIM_ADDRESS_MAX];

    node->world = world;
    node->index = world->config.nodes;
    node->step_at_ns = UINT64_MAX;
    node->life = 1;
    node->alive = true;
    snprintf(node->address, SIM_ADDRESS_MAX, "10.0.0.66:7000");
    (void)SIM_CONTROL_OPS.listen(node, node->address, actual, sizeof(actual));
    for (int i = 0; i < WIRE_INSTANCE_SIZE; i++) {
        run->stranger.instance[i] = (uint8_t)(sim_next(&world->prng) | 1);
    }
}

/* ---- what it hears ------------------------------------------------------- */

static const uint8_t *instance_of(const struct sim_app *app) {
    return app->engine != NULL && !app->node->stepping ? engine_instance(app->engine) : NULL;
}

/* Whether the application's engine knows the other's, and nobody may speak in that one's name. */
static bool has_met(const struct sim_app *app, const uint8_t *instance) {
    return instance_of(app) != NULL && instance != NULL && engine_has_met(app->engine, instance);
}

/* For the engine with this instance: another one that it has met, or the stranger itself. */
static void choose_name(struct sim_run *run, const uint8_t *asker, uint8_t *out) {
    struct sim_world *world = run->world;
    uint32_t node = (uint32_t)sim_below(&world->prng, world->config.nodes + 1);
    const uint8_t *name = run->stranger.instance;

    for (uint32_t i = 0; i < world->config.nodes && node < world->config.nodes; i++) {
        const uint8_t *instance = instance_of(&run->apps[i]);

        if (instance != NULL && memcmp(instance, asker, WIRE_INSTANCE_SIZE) == 0 &&
            has_met(&run->apps[i], instance_of(&run->apps[node]))) {
            name = instance_of(&run->apps[node]);
        }
    }
    memcpy(out, name, WIRE_INSTANCE_SIZE);
}

static void say(struct sim_run *run, uint64_t *conn, const struct wire_message *message) {
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;

    if (wire_encode(message, bytes, sizeof(bytes), &length) == 0 &&
        SIM_CONTROL_OPS.send(node_of(run->world), *conn, bytes, length) == WEIR_ECONNECT) {
        *conn = 0;
    }
}

static void on_message(struct sim_run *run, uint64_t conn, const struct wire_message *message) {
    struct sim_stranger *stranger = &run->stranger;
    struct wire_message iam = {.type = WIRE_IAM};

    if (message->type == WIRE_IAM && message->pass != 0) {
        struct sim_overheard *heard = &stranger->overheard[stranger->heard++ % SIM_OVERHEARD];

        memcpy(heard->of, message->to, WIRE_INSTANCE_SIZE);
        memcpy(heard->by, message->from, WIRE_INSTANCE_SIZE);
        heard->pass = message->pass;
        sim_trace(run->world, "a stranger is shown a pass");
    } else if (message->type == WIRE_WHO) {
        choose_name(run, message->from, iam.from);
        memcpy(iam.to, message->from, WIRE_INSTANCE_SIZE);
        memcpy(iam.address, node_of(run->world)->address, SIM_ADDRESS_MAX);
        say(run, &conn, &iam);
    }
}

static void hear(struct sim_run *run) {
    struct weir_control_event event;
    struct wire_message message;

    while (SIM_CONTROL_OPS.poll(node_of(run->world), &event) > 0) {
        if (event.type == WEIR_CONTROL_MESSAGE &&
            wire_decode(event.message, event.length, &message) == 0) {
            on_message(run, event.conn, &message);
        }
    }
}

/* ---- what it says -------------------------------------------------------- */

static void plain_qps(struct sim_world *world, struct wire_qp_set *out) {
    struct sim_prng *prng = &world->prng;

    memset(out, 0, sizeof(*out));
    memcpy(out->device, "sim", 4);
    out->recv_credits = 4;
    out->recv_bytes_max = 4096;
    out->pass = sim_next(prng) | 1;
    out->life = ~out->pass | 1;
    out->ordered = true;
    out->qp_count = 1;
    out->qps[0].blob_length =
        sim_nic_stray_blob(prng, (uint32_t)sim_below(prng, world->config.nodes), out->qps[0].blob);
}

/* From none to as many as there may be, the first in use. */
static void some_devices(uint64_t epoch, struct wire_devices *out) {
    memset(out, 0, sizeof(*out));
    out->count = (uint32_t)(epoch % WIRE_DEVICES_MAX);
    for (uint32_t i = 0; i < out->count; i++) {
        memcpy(out->entries[i].name, i % 2 == 0 ? "later" : "other", 6);
        out->entries[i].used = i == 0;
        out->entries[i].untried = i % 3 == 1;
    }
}

/* The pass that was overheard of these two; without one, 0 or any number. */
static uint64_t some_pass(struct sim_run *run, const struct wire_message *message) {
    struct sim_prng *prng = &run->world->prng;

    for (uint32_t i = 0; i < SIM_OVERHEARD; i++) {
        const struct sim_overheard *heard = &run->stranger.overheard[i];

        if (memcmp(heard->of, message->to, WIRE_INSTANCE_SIZE) == 0 &&
            memcmp(heard->by, message->from, WIRE_INSTANCE_SIZE) == 0) {
            return heard->pass;
        }
    }
    return sim_below(prng, 2) == 0 ? 0 : sim_next(prng);
}

static void slander(struct sim_run *run, struct wire_message *message) {
    struct sim_world *world = run->world;
    struct sim_prng *prng = &world->prng;

    message->type = (enum wire_type)sim_between(prng, WIRE_WHO, WIRE_TYPE_END - 1);
    message->epoch = sim_below(prng, 8) == 0 ? UINT64_MAX - sim_below(prng, 4)
                                             : sim_between(prng, 1, STRANGER_EPOCHS);
    message->echo = sim_between(prng, 1, STRANGER_EPOCHS);
    message->reason = sim_below(prng, 2) == 0 ? WEIR_ESTALE : WEIR_EREFUSED;
    switch (message->type) {
    case WIRE_WHO:
        memset(message->to, 0, sizeof(message->to));
        break;
    case WIRE_IAM:
        message->pass = some_pass(run, message);
        break;
    case WIRE_HELLO:
    case WIRE_HELLO_ACK:
        plain_qps(world, &message->qps);
        some_devices(message->epoch, &message->devices);
        break;
    case WIRE_REFUSE:
        some_devices(message->echo, &message->devices);
        break;
    case WIRE_SETTLED:
        memset(&message->settled, 0xff, sizeof(message->settled));
        message->settled.broke = sim_between(prng, 1, message->echo);
        message->settled.reason = sim_below(prng, 2) == 0 ? WEIR_EREMOTE : WEIR_ETIMEDOUT;
        break;
    case WIRE_STATE:
        memset(&message->state, 0xff, sizeof(message->state));
        message->state.thread = sim_below(prng, 2) == 0;
        message->state.inbox_count = (uint32_t)sim_below(prng, WIRE_STATE_INBOXES + 1);
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

/* As itself: it tells where it is, asks for a session, and hangs up the next time. */
static void visit(struct sim_run *run, uint32_t to) {
    struct sim_world *world = run->world;
    struct sim_node *node = node_of(world);
    uint64_t *conn = &run->stranger.visits[to];
    struct wire_message who = {.type = WIRE_WHO}, hello = {.type = WIRE_HELLO, .epoch = 1};

    if (*conn != 0) {
        sim_trace(world, "a stranger leaves n%u", to);
        SIM_CONTROL_OPS.hangup(node, *conn);
        *conn = 0;
        return;
    }
    if (SIM_CONTROL_OPS.dial(node, world->nodes[to].address, conn) != 0) {
        return;
    }
    sim_trace(world, "a stranger visits n%u", to);
    memcpy(who.from, run->stranger.instance, WIRE_INSTANCE_SIZE);
    memcpy(who.address, node->address, SIM_ADDRESS_MAX);
    say(run, conn, &who);
    memcpy(hello.from, run->stranger.instance, WIRE_INSTANCE_SIZE);
    memcpy(hello.to, instance_of(&run->apps[to]), WIRE_INSTANCE_SIZE);
    plain_qps(world, &hello.qps);
    hello.epoch = ++run->stranger.epoch;
    say(run, conn, &hello);
}

void stranger_strike(struct sim_run *run) {
    struct sim_world *world = run->world;
    struct sim_node *node = node_of(world);
    struct wire_message message;
    uint64_t *conn;
    uint32_t to, as;

    hear(run);
    doors_two(world, &to, &as);
    if (!has_met(&run->apps[to], instance_of(&run->apps[as])) ||
        !has_met(&run->apps[as], instance_of(&run->apps[to]))) {
        return;
    }
    if (sim_below(&world->prng, VISIT_ONE_IN) == 0) {
        visit(run, to);
        return;
    }
    memset(&message, 0, sizeof(message));
    memcpy(message.from, engine_instance(run->apps[as].engine), WIRE_INSTANCE_SIZE);
    memcpy(message.to, engine_instance(run->apps[to].engine), WIRE_INSTANCE_SIZE);
    slander(run, &message);
    conn = &run->stranger.conns[to];
    if (*conn == 0 || sim_below(&world->prng, 16) == 0) {
        (void)SIM_CONTROL_OPS.dial(node, world->nodes[to].address, conn);
    }
    sim_trace(world, "a stranger says %s to n%u as n%u", wire_type_name(message.type), to, as);
    say(run, conn, &message);
}
