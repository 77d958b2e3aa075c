/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_none.c: metrics.h in a build without libmicrohttpd. */
#include "metrics.h"

#include <stddef.h>

#include "host.h"

struct metrics *metrics_open(const char *address, weir_engine *engine) {
    (void)engine;
    complain("serve --metrics %s: this weir was built without libmicrohttpd", address);
    return NULL;
}

const char *metrics_url(const struct metrics *metrics) {
    (void)metrics;
    return "";
}

void metrics_run(struct metrics *metrics) {
    (void)metrics;
}

int metrics_fd(const struct metrics *metrics) {
    (void)metrics;
    return -1;
}

uint64_t metrics_timeout(const struct metrics *metrics) {
    (void)metrics;
    return UINT64_MAX;
}

void metrics_close(struct metrics *metrics) {
    (void)metrics;
}
