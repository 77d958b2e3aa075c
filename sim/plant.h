/* SPDX-License-Identifier: Apache-2.0 */
/* plant.h: bugs planted at the device port. See plant.c. */
#ifndef WEIR_SIM_PLANT_H
#define WEIR_SIM_PLANT_H

#include "world.h"

const char *plant_name(uint32_t plant);
bool plant_find(const char *name, uint32_t *plant_out);
/* The NIC's operations with the plant in them. */
void plant_apply(uint32_t plant, struct weir_device_ops *ops_out);

#endif
