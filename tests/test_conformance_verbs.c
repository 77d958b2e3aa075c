/* test_conformance_verbs.c: RDMA devices through the conformance suite, both ends in this
 * process: the device that weir chooses and the one that WEIR_VERBS_PEER_DEVICE names, or
 * the first one again. Skipped where there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conformance.h"
#include "device.h"
#include "os.h"

struct verbs_world {
    struct weir_env env;
    struct weir_device *devices[2];
    const char *names[2]; /* NULL: any */
};

static void world_close(struct conformance_world *world) {
    struct verbs_world *verbs = world->self;
    for (int i = 0; i < 2; i++) {
        if (verbs->devices[i] != NULL)
            world->ops->close(verbs->devices[i]);
        verbs->devices[i] = NULL;
    }
}

static int world_open(struct conformance_world *world, struct weir_device **a_out,
                      struct weir_device **b_out) {
    struct verbs_world *verbs = world->self;
    for (int i = 0; i < 2; i++) {
        if (verbs->names[i] != NULL)
            setenv("WEIR_VERBS_DEVICE", verbs->names[i], 1);
        else
            unsetenv("WEIR_VERBS_DEVICE");
        int rc = world->ops->open(&verbs->env, &verbs->devices[i]);
        if (rc != 0) {
            world_close(world);
            return rc;
        }
    }
    *a_out = verbs->devices[0];
    *b_out = verbs->devices[1];
    return 0;
}

/* Long enough for retries to run out within the suite's rounds. */
static void world_advance(struct conformance_world *world) {
    (void)world;
    struct timespec pause = {.tv_nsec = 20 * 1000};
    nanosleep(&pause, NULL);
}

int main(void) {
    struct verbs_world verbs = {.devices = {NULL, NULL}};
    struct weir_device_caps caps;
    if (verbs_device_ops.probe(&caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77; /* meson: skipped */
    }
    if (os_env_init(&verbs.env) != 0)
        return EXIT_FAILURE;
    char first[64] = "", second[64] = "";
    const char *own = getenv("WEIR_VERBS_DEVICE"), *peer = getenv("WEIR_VERBS_PEER_DEVICE");
    if (own != NULL)
        verbs.names[0] = verbs.names[1] = strncpy(first, own, sizeof first - 1);
    if (peer != NULL)
        verbs.names[1] = strncpy(second, peer, sizeof second - 1);
    struct conformance_world world = {
        .name = "verbs",
        .ops = &verbs_device_ops,
        .open = world_open,
        .close = world_close,
        .advance = world_advance,
        .self = &verbs,
    };
    return conformance_run(&world);
}
