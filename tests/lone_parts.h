/* SPDX-License-Identifier: Apache-2.0 */
/* lone_parts.h: what lone_engine.c and lone_device.c share. */
#ifndef LONE_PARTS_H
#define LONE_PARTS_H

#include "lone_engine.h"

/* The one that is open. */
extern struct lone *the;

extern const struct weir_device_ops lone_device_ops;

#endif
