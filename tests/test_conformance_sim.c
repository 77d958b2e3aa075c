/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_sim.c: the simulated NIC through the conformance suite, in each of
 * its kinds. This is what keeps the simulator honest (E4). */
#include <stdio.h>

#include "conformance.h"
#include "nic.h"
#include "sim_kinds.h"
#include "world.h"

enum { ADVANCE_NS = 20000 };

struct sim_hooks {
    const struct sim_kind *kind;
    struct sim_world *world;
};

static void hooks_close(struct conformance_world *world) {
    struct sim_hooks *hooks = world->self;

    for (uint32_t i = 0; i < 2; i++) {
        if (hooks->world->nodes[i].alive) {
            sim_node_shutdown(&hooks->world->nodes[i]);
        }
    }
    sim_world_close(hooks->world);
    hooks->world = NULL;
}

static int hooks_open(struct conformance_world *world, struct weir_device **a_out,
                      struct weir_device **b_out) {
    struct sim_hooks *hooks = world->self;
    struct sim_config config;

    sim_kind_config(hooks->kind, 2, &config);
    hooks->world = sim_world_open(&config, 1, NULL);
    if (hooks->world == NULL) {
        return WEIR_ENOMEM;
    }
    for (uint32_t i = 0; i < 2; i++) {
        int error = sim_node_boot(&hooks->world->nodes[i]);

        if (error != 0) {
            hooks_close(world);
            return error;
        }
    }
    *a_out = hooks->world->nodes[0].nic;
    *b_out = hooks->world->nodes[1].nic;
    return 0;
}

static void hooks_advance(struct conformance_world *world) {
    struct sim_hooks *hooks = world->self;

    sim_run_until(hooks->world, hooks->world->now_ns + ADVANCE_NS);
}

int main(void) {
    int failed = 0;

    for (int i = 0; i < SIM_KINDS; i++) {
        struct sim_hooks hooks = {.kind = &sim_kinds[i]};
        struct conformance_world world = {
            .name = sim_kinds[i].name,
            .ops = &SIM_NIC_OPS,
            .open = hooks_open,
            .close = hooks_close,
            .advance = hooks_advance,
            .self = &hooks,
        };

        printf("== %s\n", sim_kinds[i].name);
        failed += conformance_run(&world);
    }
    return failed == 0 ? 0 : 1;
}
