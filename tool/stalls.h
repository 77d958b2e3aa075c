/* SPDX-License-Identifier: Apache-2.0 */
/* stalls.h: lines about stalls of peers, on standard error, and traces of them in a file. */
#ifndef TOOL_STALLS_H
#define TOOL_STALLS_H

#include "weir.h"

/* Whether stalls_trace can write to that file, as far as that is known: 0, or -1 with a complaint.
 */
int stalls_check(const char *path);

/* Says in one line why the peer's work waits; returns text_out. */
const char *stalls_sentence(weir_engine *engine, weir_peer peer, char *text_out, size_t text_size);

/* Of STALLED what the peer's work waits for, and the figures; of RESUMED how long that lasted.
 * Other events say nothing. A few lines a second are printed. */
void stalls_remark(weir_engine *engine, const weir_event *event);

/* Of STALLED, writes what the engine remembers to the file, in place of what is there: as JSON for
 * Perfetto if its name ends in .json, else as text. Complains if it cannot. Takes milliseconds. */
void stalls_trace(weir_engine *engine, const weir_event *event, const char *path);

#endif
