/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: an HTTP server for collectors of metrics, at http://HOST:PORT/metrics, which the loop
 * of `weir serve` runs: it has no thread of its own. metrics.c needs libmicrohttpd; a build without
 * it has metrics_none.c. */
#ifndef TOOL_METRICS_H
#define TOOL_METRICS_H

#include <stdint.h>

#include "weir.h"

struct metrics;

/* Listens at the address, for figures of this engine, which has to live until metrics_close. NULL
 * after complaining why not. */
struct metrics *metrics_open(const char *address, weir_engine *engine);

/* "http://127.0.0.1:9464/metrics": a port that was left open is the one that was taken. */
const char *metrics_url(const struct metrics *metrics);

/* Answers what came, without waiting. NULL: nothing. */
void metrics_run(struct metrics *metrics);

/* A descriptor that can be read when there is something to run, and when to run it at the latest,
 * from now, in ns; UINT64_MAX: whenever. NULL: -1. */
int metrics_fd(const struct metrics *metrics);
uint64_t metrics_timeout(const struct metrics *metrics);

/* Ends all connections. NULL: nothing. */
void metrics_close(struct metrics *metrics);

#endif
