/* SPDX-License-Identifier: Apache-2.0 */
/* sendqueue_sides.c: see sendqueue_sides.h. */
#include "sendqueue_sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *device(void) {
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name != NULL ? name : "shm";
}

bool sides_on_shm(void) {
    return strcmp(device(), "shm") == 0;
}

bool sides_long(void) {
    const char *wanted = getenv("LONG");
    return sides_on_shm() || (wanted != NULL && wanted[0] != '\0');
}

weir_engine_options sides_options(void) {
    weir_engine_options options = side_options();

    options.device = device();
    if (!sides_on_shm()) {
        options.settle_grace_ns = 60 * SECOND; /* a cancel breaks no session: all is in time */
        options.connect_timeout_ns = 60 * SECOND;
    }
    return options;
}

int sides_missing(void) {
    weir_device_info info = WEIR_DEVICE_INFO_INIT;

    for (size_t i = 0; weir_device_query(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, device()) == 0 && info.available == WEIR_OK)
            return 0;
        info = (weir_device_info)WEIR_DEVICE_INFO_INIT;
    }
    printf("1..0 # SKIP %s: no such device here\n", device());
    return 77;
}

static void choose(const char *name) {
    static char near[64];
    static bool known;

    if (!known) {
        const char *own = getenv("WEIR_VERBS_DEVICE");
        snprintf(near, sizeof(near), "%s", own != NULL ? own : "");
        known = true;
    }
    if (name == NULL)
        name = near;
    if (name[0] != '\0')
        setenv("WEIR_VERBS_DEVICE", name, 1);
}

void sides_near(void) {
    choose(NULL);
}

void sides_far(void) {
    choose(NULL); /* what is near is known from now on */
    choose(getenv("WEIR_VERBS_PEER_DEVICE"));
}

uint64_t sides_patience_ns(void) {
    return sides_on_shm() ? PATIENCE_NS : 100 * SECOND;
}
