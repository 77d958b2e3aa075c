/* SPDX-License-Identifier: Apache-2.0 */
/* pair.c: a conformance world of two devices of this process; see pair.h. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "os.h"

struct pair_world {
    const struct conformance_pair *pair;
    struct weir_env env;
    struct weir_device *devices[2];
};

static void world_close(struct conformance_world *world) {
    struct pair_world *own = world->self;
    for (int i = 0; i < 2; i++) {
        if (own->devices[i] != NULL)
            world->ops->close(own->devices[i]);
        own->devices[i] = NULL;
    }
}

static int world_open(struct conformance_world *world, struct weir_device **a_out,
                      struct weir_device **b_out) {
    struct pair_world *own = world->self;
    for (int i = 0; i < 2; i++) {
        if (own->pair->choose != NULL)
            own->pair->choose(own->pair, i);
        int rc = world->ops->open(&own->env, &own->devices[i]);
        if (rc != 0) {
            world_close(world);
            return rc;
        }
    }
    *a_out = own->devices[0];
    *b_out = own->devices[1];
    return 0;
}

static void world_advance(struct conformance_world *world) {
    const struct pair_world *own = world->self;
    struct timespec pause = {.tv_nsec = own->pair->advance_ns};
    if (pause.tv_nsec != 0)
        nanosleep(&pause, NULL);
}

int conformance_pair_run(const struct conformance_pair *pair) {
    struct pair_world own = {.pair = pair, .devices = {NULL, NULL}};
    struct weir_device_caps caps = {.note = ""};
    if (pair->ops->probe(NULL, &caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77; /* meson: skipped */
    }
    if (os_env_init(&own.env) != 0)
        return EXIT_FAILURE;
    struct conformance_world world = {
        .name = pair->name,
        .ops = pair->ops,
        .open = world_open,
        .close = world_close,
        .advance = world_advance,
        .reads_unchecked = pair->reads_unchecked,
        .sends_wait = pair->sends_wait,
        .devices_talk = pair->devices_talk,
        .self = &own,
    };
    return conformance_run(&world);
}
