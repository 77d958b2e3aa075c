/* SPDX-License-Identifier: Apache-2.0 */
/* sendqueue_sides.h: engines on the device that WEIR_TEST_DEVICE names, shm without it. On
 * verbs the RDMA device is that of WEIR_VERBS_DEVICE, or for those that are made after
 * sides_far() that of WEIR_VERBS_PEER_DEVICE. So one source serves here and in the VM. */
#ifndef SENDQUEUE_SIDES_H
#define SENDQUEUE_SIDES_H

#include "engine_side.h"

/* side_options() on that device, with times for an emulated machine if it is not shm. */
weir_engine_options sides_options(void);
bool sides_on_shm(void);
/* As much as the promises name, not as much as there is time for: on shm, and with LONG set. */
bool sides_long(void);
/* 77, for main, and a word about it, where the device cannot be used; 0 otherwise. */
int sides_missing(void);
/* The engines that are opened next are near, or far. */
void sides_near(void);
void sides_far(void);
/* How long a test may wait for anything. */
uint64_t sides_patience_ns(void);

#endif
