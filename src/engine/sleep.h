/* SPDX-License-Identifier: Apache-2.0 */
/* sleep.h: threads that sleep until there is news. */
#ifndef WEIR_ENGINE_SLEEP_H
#define WEIR_ENGINE_SLEEP_H

#include "state.h"

/* Makes progress until `finished`, or for timeout_ns: EINPROGRESS. `finished` is asked by a thread
 * that does not have the engine. */
int engine_wait_until(weir_engine *engine, uint64_t timeout_ns,
                      bool (*finished)(weir_engine *, uint64_t), uint64_t what);

/* Makes progress until there is news that was not counted `before`, or the time is over. */
void engine_wait_news(weir_engine *engine, uint64_t before, uint64_t timeout_ns);
/* Under the engine: progress is made while the application is armed. */
void engine_awake(weir_engine *engine);
/* A pause of a wait for room; `before`: the news or room that it saw. *pause_ns is 0 at first. */
void engine_back_off(weir_engine *engine, uint64_t before, uint64_t passed_ns, uint64_t most_ns,
                     uint64_t *pause_ns);
int engine_sleeping_open(weir_engine *engine);
void engine_sleeping_close(weir_engine *engine);
void engine_thread_stop(weir_engine *engine);

#endif
