/* SPDX-License-Identifier: Apache-2.0 */
/* rdma.h: a glance at RDMA devices, for the backends that may use some. */
#ifndef BASE_RDMA_H
#define BASE_RDMA_H

#include "ports.h"

/* weir_device_ops.glance. EAGAIN: the kernel lets processes use RDMA devices, if there are any; to
 * list them is for libibverbs, which loads a library for each kind. ENODEVICE: it does not. */
int rdma_glance(struct weir_device_caps *caps_out);

#endif
