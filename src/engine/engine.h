/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: the interface that sim/ and open.c need of the engine beside weir.h.
 *
 * An engine is made over ports. The shipped library fills them with real ones in
 * open.c; a simulation plays them and steps many engines in one thread. */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include "ports.h"

/* Makes an engine over ports that outlive it (the device is open; the caller
 * closes it after weir_engine_close). listen and device names in options: the
 * control port gets `listen`, device is ignored. Errors as weir_engine_open. */
int engine_create(const weir_engine_options *options, const struct weir_ports *ports,
                  weir_engine **engine_out);

/* weir_engine_close without closing ports. Returns NULL: all is freed, and the device may be
 * closed. Or the engine: its device would not let go of some QPs for as long as a teardown may
 * take; transfers have their ends, no port but device and env is used any more, and of the
 * device's memory only the engine's own buffers are left. Then engine_left_step has to follow. */
weir_engine *engine_end(weir_engine *engine);

/* Asks once more for what an engine has left. True: it is gone, the engine is freed, and the
 * device may be closed. One thread at a time. */
bool engine_left_step(weir_engine *engine);

/* The earliest time, by the clock of its environment, at which weir_engine_progress has something
 * to do even if nothing arrives; UINT64_MAX: never. The caller comes back then, or when
 * something arrives: meanwhile the engine is not absent (look.c). For a virtual clock. */
uint64_t engine_next_deadline(weir_engine *engine);

/* Drops an engine as SIGKILL would: nothing is told to anybody, no port is
 * called, set-up memory goes back to the environment. */
void engine_abandon(weir_engine *engine);

/* Checks every invariant that the engine knows of itself. Returns NULL, or a
 * sentence about the first that does not hold. Reads only. */
const char *engine_verify(const weir_engine *engine);
/* The same without the tables of what is looked up (found.h), which change seldom and are long. */
const char *engine_verify_work(const weir_engine *engine);

/* Whether there is no entry for one more peer, so that a peer which the application has closed may
 * be told to leave. */
bool engine_is_full(const weir_engine *engine);

/* The 128-bit instance id. */
const uint8_t *engine_instance(const weir_engine *engine);
/* Whether a session with the engine of this instance has been up, which is not forgotten yet. */
bool engine_has_met(weir_engine *engine, const uint8_t *instance);

#endif
