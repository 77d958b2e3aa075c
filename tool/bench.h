/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h: the benches, one function each; all return an exit status. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "options.h"

int bench_limits(const struct options *options);
int bench_stream(const struct options *options);      /* write, read, sweep */
int bench_send_stream(const struct options *options); /* send; sweep of messages */
int bench_send_latency(const struct options *options);
int bench_pace(const struct options *options);
int bench_latency(const struct options *options);
int bench_wake(const struct options *options);
int bench_faults(const struct options *options);
int bench_incast(const struct options *options);
int bench_storm(const struct options *options);
int bench_fill(const struct options *options);
int bench_replay(const struct options *options);
int bench_trace(const struct options *options);
int bench_all(const struct options *options);
int report_page(const struct options *options);
int info_print(const struct options *options);
int history_print(const struct options *options);

#endif
