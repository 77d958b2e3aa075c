/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_messages_sim.c: messages on the simulated NIC, in each of its kinds; see
 * conformance/engines.h. */
#include <stdio.h>

#include "engines.h"
#include "nic.h"
#include "sim_kinds.h"
#include "world.h"

enum { TURN_NS = 20000 };

struct sim_hooks {
    const struct sim_kind *kind;
    struct sim_world *world;
};

static struct engines *the; /* of the world that is open */

static void step(struct sim_node *node) {
    weir_engine *engine = the->of[node->index];

    if (engine == NULL || the->paused[node->index])
        return;
    while (weir_engine_progress(engine) > 0)
        continue;
    uint64_t next = engine_next_deadline(engine);
    if (next < node->world->now_ns + 50)
        next = node->world->now_ns + 50;
    if (next != UINT64_MAX)
        sim_node_wake_at(node, next);
}

static int hooks_open(struct engines_world *world, struct engines *engines) {
    struct sim_hooks *hooks = world->self;
    struct sim_config config;

    sim_kind_config(hooks->kind, ENGINES_MAX, &config);
    hooks->world = sim_world_open(&config, 1, NULL);
    the = engines;
    return hooks->world != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static void hooks_close(struct engines_world *world) {
    struct sim_hooks *hooks = world->self;

    assert_string_equal(hooks->world->violation, "");
    sim_world_close(hooks->world);
    hooks->world = NULL;
}

static int hooks_boot(struct engines_world *world, uint32_t index, struct weir_ports *ports) {
    struct sim_hooks *hooks = world->self;
    struct sim_node *node = &hooks->world->nodes[index];
    int error = sim_node_boot(node);

    node->step = step;
    if (error == WEIR_OK)
        *ports = node->ports;
    return error;
}

static void hooks_shut(struct engines_world *world, uint32_t index, struct weir_ports *ports) {
    struct sim_hooks *hooks = world->self;

    (void)ports;
    sim_node_shutdown(&hooks->world->nodes[index]);
}

static const char *hooks_listen(struct engines_world *world, uint32_t index) {
    struct sim_hooks *hooks = world->self;

    return hooks->world->nodes[index].address;
}

static void hooks_turn(struct engines_world *world, struct engines *engines) {
    struct sim_hooks *hooks = world->self;

    for (uint32_t i = 0; i < ENGINES_MAX; i++) {
        if (engines->of[i] != NULL)
            sim_node_wake(&hooks->world->nodes[i]);
    }
    sim_run_until(hooks->world, hooks->world->now_ns + TURN_NS);
}

int main(void) {
    int failed = 0;

    for (int i = 0; i < SIM_KINDS; i++) {
        struct sim_hooks hooks = {.kind = &sim_kinds[i]};
        struct engines_world world = {
            .name = sim_kinds[i].name,
            .patience_ns = 60 * SECOND,
            .open = hooks_open,
            .close = hooks_close,
            .boot = hooks_boot,
            .shut = hooks_shut,
            .listen = hooks_listen,
            .turn = hooks_turn,
            .self = &hooks,
        };

        printf("== %s\n", sim_kinds[i].name);
        failed += engines_run(&world);
    }
    return failed == 0 ? 0 : 1;
}
