/* SPDX-License-Identifier: Apache-2.0 */
/* device.h: the device backends this library was built with.
 *
 * Owns the one table of backends. A backend is a constant table of operations. The meaning of each,
 * and whether it may be NULL, is ports.h's business. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include <stddef.h>

#include "ports.h"

/* Shared memory between processes of one host. */
extern const struct weir_device_ops shm_device_ops;

/* RDMA devices, through libibverbs; only where the build has it (WEIR_HAVE_VERBS). */
extern const struct weir_device_ops verbs_device_ops;

/* Reliable datagrams of libfabric, for Amazon's EFA; likewise (WEIR_HAVE_OFI). */
extern const struct weir_device_ops efa_device_ops;

/* Connected endpoints of libfabric, for TCP above all; likewise. */
extern const struct weir_device_ops ofi_device_ops;

/* All backends, in the order of weir_device_query; the first is the default. */
extern const struct weir_device_ops *const device_table[];
extern const size_t device_table_count;

/* The backend of that name; NULL, as a name: the first; "auto": the first that can be used of RDMA
 * devices, TCP and shared memory, which takes as long as to probe them. NULL: there is none. */
const struct weir_device_ops *device_find(const char *name);

/* Likewise of a name that may have a NIC behind it: "verbs:mlx5_0/1". Whether there is such a NIC
 * is for probe and open to say, with nic_out in their wishes. ENODEVICE: there is no such backend.
 * EINVAL: what is behind the colon cannot be taken apart; note_out says why. */
int device_choose(const char *name, const struct weir_device_ops **ops_out,
                  struct weir_device_nic *nic_out, char note_out[WEIR_DEVICE_NOTE_MAX]);

/* The index-th setting of all backends, by its environment variable; false past the last. get is
 * getenv(3). nic: what is named of a backend, or NULL. */
bool device_setting(size_t index, char *(*get)(const char *name), const struct weir_device_nic *nic,
                    struct weir_device_setting *out);

/* The settings of each of them, likewise. */
struct setting_source;
bool shm_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out);
bool verbs_setting(size_t index, const struct setting_source *source,
                   struct weir_device_setting *out);
bool efa_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out);
bool ofi_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out);

/* The name of the index-th; NULL past the last. */
const char *device_variable(size_t index);

#endif
