/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_pair.h: the RDMA devices that the suites of every device run on. */
#ifndef WEIR_CONFORMANCE_VERBS_PAIR_H
#define WEIR_CONFORMANCE_VERBS_PAIR_H

#include "pair.h"

/* The device that weir chooses and the one that WEIR_VERBS_PEER_DEVICE names, or the first one
 * again. */
struct conformance_pair conformance_verbs_pair(void);

#endif
