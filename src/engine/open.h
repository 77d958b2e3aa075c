/* SPDX-License-Identifier: Apache-2.0 */
/* open.h: an engine over the real ports. */
#ifndef WEIR_ENGINE_OPEN_H
#define WEIR_ENGINE_OPEN_H

#include "state.h"

/* Address space that an engine of these limits takes on this device, little of it backed. */
uint64_t open_address_bytes(const weir_engine_options *options,
                            const struct weir_device_caps *caps);

/* The wishes of such an engine to its device. */
void open_wishes(const weir_engine_options *options, const struct weir_device_nic *nic,
                 struct weir_device_wishes *wishes_out);

#endif
