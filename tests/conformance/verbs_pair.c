/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_pair.c: see verbs_pair.h. */
#include "verbs_pair.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "device.h"

struct names {
    char of[2][64]; /* "": any */
};

static void choose(const struct conformance_pair *pair, int index) {
    const struct names *names = pair->self;
    if (names->of[index][0] != '\0')
        setenv("WEIR_VERBS_DEVICE", names->of[index], 1);
    else
        unsetenv("WEIR_VERBS_DEVICE");
}

static bool is_linux(const char *begins) {
    struct utsname name;

    return uname(&name) == 0 && strncmp(name.release, begins, strlen(begins)) == 0;
}

static struct names names; /* the environment changes with each choice */

struct conformance_pair conformance_verbs_pair(void) {
    const char *own = getenv("WEIR_VERBS_DEVICE"), *peer = getenv("WEIR_VERBS_PEER_DEVICE");
    if (own != NULL) {
        strncpy(names.of[0], own, sizeof names.of[0] - 1);
        strncpy(names.of[1], own, sizeof names.of[1] - 1);
    }
    if (peer != NULL)
        strncpy(names.of[1], peer, sizeof names.of[1] - 1);
    return (struct conformance_pair){
        .name = "verbs",
        .ops = &verbs_device_ops,
        .choose = choose,
        .advance_ns = 20 * 1000, /* long enough for retries to run out within the rounds */
        /* Software iWARP of Linux 6.1 looks at no right when it answers a read. */
        .reads_unchecked = strncmp(names.of[1], "siw", 3) == 0,
        /* Software RoCE after Linux 6.1. */
        .sends_repeated = strncmp(names.of[1], "rxe", 3) == 0 && !is_linux("6.1."),
        .self = &names,
    };
}
