/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.h: why something did not work, for a person. weir says WEIR_ECONNECT or WEIR_EDEVICE;
 * the system is asked here for its word on the same thing, afterwards. Why an engine did not
 * open the library says itself. */
#ifndef TOOL_DIAGNOSE_H
#define TOOL_DIAGNOSE_H

#include "options.h"
#include "weir.h"

#define DIAGNOSIS_MAX WEIR_REFUSAL_TEXT_MAX

/* Writes a few words: "Connection refused", "not HOST:PORT". told: the error that the engine ended
 * with. */
void diagnose_dial(const char *address, weir_engine *engine, weir_peer peer, int told,
                   char why_out[DIAGNOSIS_MAX]);
/* Why the peer refused: "its device failed". */
void diagnose_refusal(weir_engine *engine, weir_peer peer, char why_out[DIAGNOSIS_MAX]);

/* Why the devices of the two have nothing in common, whichever of them refused. */
void diagnose_unlike(weir_engine *engine, weir_peer peer, char why_out[DIAGNOSIS_MAX]);

/* Complains that this command's engine did not open with these options, and why; -1. */
int diagnose_open(const struct options *options, const weir_engine_options *engine, int error);
/* The cause of an error of a transfer or of memory, to be put after it: "; ...", or "". */
const char *diagnose_cause(int error, char why_out[DIAGNOSIS_MAX]);

#endif
