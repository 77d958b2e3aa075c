/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: regions of our own and regions imported from peers.
 *
 * Keys, rights and bounds are checked by the target's network card with every access. Messages come
 * from buffers of the device's, and no region is registered to send from: the provider would have
 * peers read what they do not take in one message. A region that
 * was closed is touched by nobody any more (ibv_dereg_mr(3)), so that a release is over when that
 * is. Owns nothing: the tables are regions.h's. */
#include "efa.h"
#include "memlock.h"

/* A driver says ENOMEM where RLIMIT_MEMLOCK is in the way. */
int efa_pin_error(int error, uint64_t length) {
    return error == WEIR_ENOMEM && length > memlock_left() ? WEIR_EMEMLOCK : error;
}

int efa_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    int rc = fabric_register(&device->memory, base, length, access, mr_out);
    return efa_pin_error(rc, length);
}

int efa_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    int rc = fabric_allocate(&device->memory, length, access, mr_out);
    return efa_pin_error(rc, length);
}

int efa_mr_release(struct weir_device *device, const struct weir_mr *mr) {
    int rc = fabric_region_shut(&device->memory, fabric_region_of(&device->memory, mr));
    if (rc == WEIR_OK)
        fabric_region_forget(&device->memory, mr);
    return rc;
}

int efa_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out) {
    fabric_export(&device->memory, mr, EFA_REGION_MAGIC, blob_out, blob_length_out);
    return WEIR_OK;
}

int efa_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out) {
    (void)wait_ms;
    device_lock(device);
    int rc = fabric_import(&device->memory, EFA_REGION_MAGIC, blob, blob_length, length, access,
                           rmr_out);
    device_unlock(device);
    return rc;
}

void efa_mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    device_lock(device);
    fabric_forget(&device->memory, rmr);
    device_unlock(device);
}
