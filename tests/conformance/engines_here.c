/* SPDX-License-Identifier: Apache-2.0 */
/* engines_here.c: see engines_here.h. */
#include "engines_here.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engines.h"
#include "os.h"

static int here_open(struct engines_world *world, struct engines *engines) {
    (void)world;
    (void)engines;
    return WEIR_OK;
}

static void here_close(struct engines_world *world) {
    (void)world;
}

/* The receiver's device is the peer of the senders'. */
static int here_boot(struct engines_world *world, uint32_t index, struct weir_ports *ports) {
    const struct conformance_pair *pair = world->self;

    memset(ports, 0, sizeof(*ports));
    if (pair->choose != NULL)
        pair->choose(pair, index == 0 ? 1 : 0);
    int rc = os_env_init(&ports->env);
    if (rc != WEIR_OK)
        return rc;
    ports->device_ops = pair->ops;
    rc = pair->ops->open(&ports->env, &ports->device);
    if (rc != WEIR_OK)
        return rc;
    rc = tcp_open(&ports->env, 0, &ports->control);
    if (rc != WEIR_OK)
        goto close_device;
    rc = wait_open(&ports->env, &ports->wait);
    if (rc != WEIR_OK)
        goto close_control;
    rc = ports->wait.ops->add(ports->wait.self, ports->control.ops->fd(ports->control.self));
    if (rc == WEIR_OK)
        rc = ports->wait.ops->add(ports->wait.self, pair->ops->fd(ports->device));
    if (rc == WEIR_OK)
        return WEIR_OK;
    wait_close(&ports->wait);
close_control:
    tcp_close(&ports->control);
close_device:
    pair->ops->close(ports->device);
    return rc;
}

static void here_shut(struct engines_world *world, uint32_t index, struct weir_ports *ports) {
    const struct conformance_pair *pair = world->self;

    (void)index;
    wait_close(&ports->wait);
    tcp_close(&ports->control);
    pair->ops->close(ports->device);
}

static const char *here_listen(struct engines_world *world, uint32_t index) {
    (void)world;
    (void)index;
    return NULL;
}

/* With nothing to do others may run, who may be the device. */
static void here_turn(struct engines_world *world, struct engines *engines) {
    const struct conformance_pair *pair = world->self;
    struct timespec pause = {.tv_nsec = pair->advance_ns};
    int done = 0;

    for (uint32_t i = 0; i < ENGINES_MAX; i++) {
        if (engines->of[i] == NULL || engines->paused[i])
            continue;
        int rc = weir_engine_progress(engines->of[i]);
        assert_true(rc >= 0);
        done += rc;
    }
    if (done == 0)
        nanosleep(&pause, NULL);
}

int engines_here_run(const struct conformance_pair *pair) {
    struct conformance_pair own = *pair;
    struct weir_device_caps caps = {.note = ""};
    struct engines_world world = {
        .name = pair->name,
        .patience_ns = 600 * SECOND,
        .open = here_open,
        .close = here_close,
        .boot = here_boot,
        .shut = here_shut,
        .listen = here_listen,
        .turn = here_turn,
        .sends_repeated = pair->sends_repeated,
        .self = &own,
    };

    if (pair->ops->probe(NULL, &caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    return engines_run(&world);
}
