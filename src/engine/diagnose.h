/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.h: what the outstanding work of a peer waits for, and the figures that prove it. */
#ifndef WEIR_ENGINE_DIAGNOSE_H
#define WEIR_ENGINE_DIAGNOSE_H

#include "state.h"

/* The device's counts, some milliseconds old at most. False: it has none. */
bool diagnose_counts(weir_engine *engine, struct weir_device_counts *out);

/* Whether work of the application's is outstanding for the peer. Of one whose instance is gone, or
 * that turned out to be another, none is. */
bool diagnose_works(const weir_engine *engine, const struct peer *peer);
/* All of *out but its size. */
void diagnose(weir_engine *engine, const struct peer *peer, weir_stall_info *out);
/* A session with the peer is up: notes whose process is at its other end. An instance has the same
 * for as long as it is, so it is known without a session, too. */
void diagnose_process(weir_engine *engine, struct peer *peer);
/* The step of the handshake that is waited for, as half a sentence in static storage; and why the
 * session before it broke. */
struct watch_step diagnose_handshake(const struct peer *peer);

#endif
