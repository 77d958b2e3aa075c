/* test_conformance_shm.c: the shm device through the conformance suite, both devices
 * in this process. */
#include <stdlib.h>

#include "conformance.h"
#include "device.h"
#include "os.h"

struct shm_world {
    struct weir_env env;
    struct weir_device *devices[2];
};

static void world_close(struct conformance_world *world) {
    struct shm_world *shm = world->self;
    for (int i = 0; i < 2; i++) {
        if (shm->devices[i] != NULL)
            world->ops->close(shm->devices[i]);
        shm->devices[i] = NULL;
    }
}

static int world_open(struct conformance_world *world, struct weir_device **a_out,
                      struct weir_device **b_out) {
    struct shm_world *shm = world->self;
    for (int i = 0; i < 2; i++) {
        int rc = world->ops->open(&shm->env, &shm->devices[i]);
        if (rc != 0) {
            world_close(world);
            return rc;
        }
    }
    *a_out = shm->devices[0];
    *b_out = shm->devices[1];
    return 0;
}

/* Time passes by itself. */
static void world_advance(struct conformance_world *world) {
    (void)world;
}

int main(void) {
    struct shm_world shm = {.devices = {NULL, NULL}};
    struct weir_device_caps caps;
    if (shm_device_ops.probe(&caps) != 0)
        return 77; /* meson: skipped */
    if (os_env_init(&shm.env) != 0)
        return EXIT_FAILURE;
    struct conformance_world world = {
        .name = "shm",
        .ops = &shm_device_ops,
        .open = world_open,
        .close = world_close,
        .advance = world_advance,
        .self = &shm,
    };
    return conformance_run(&world);
}
