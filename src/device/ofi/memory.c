/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: regions of our own and regions imported from peers: fabric's, with a release by fences.
 *
 * After a region is closed its key names nothing, but bytes of an access that began before may
 * still be landing, and a read may still be answered from it: fence.c says when that is over. Left
 * to others: the tables and the blobs (regions.h), of which the imports are under the device's
 * mutex. */
#define _GNU_SOURCE
#include <time.h>

#include "ofi.h"

#define MAGIC_REGION 0x314d4f57u           /* "WOM1" */
#define RELEASE_NS   UINT64_C(100000000)   /* that a call waits for peers */
#define SILENCE_NS   UINT64_C(10000000000) /* then those that do not answer lose their sessions */
#define WITHHELD_NS  UINT64_C(60000000000) /* likewise those that complete all but the question */
#define LOOK_NS      50000

int ofi_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    return fabric_register(&device->memory, base, length, access, mr_out);
}

int ofi_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    return fabric_allocate(&device->memory, length, access, mr_out);
}

/* The key names nothing from now on. An error of the provider: the region is as it was. */
static int close_region(struct weir_device *device, struct fabric_region *region) {
    int rc = fabric_region_shut(&device->memory, region);
    if (rc == WEIR_OK && region->access != 0) {
        device_lock(device);
        region->fence = fence_begin(device);
        device_unlock(device);
    }
    return rc;
}

static bool is_over(struct weir_device *device, const struct fabric_region *region) {
    if (region->access == 0)
        return true;
    device_lock(device);
    ofi_progress(device);
    bool all_known = connect_look(device); /* of the QPs that are up */
    bool over = fence_look(device, region->fence) && all_known;
    uint64_t now = device_now(device);
    if (!over && now - region->since_ns > SILENCE_NS)
        fence_give_up(device, region->fence, now - SILENCE_NS, now - WITHHELD_NS);
    if (ofi_has_news(device))
        ofi_wake(device);
    device_unlock(device);
    return over;
}

int ofi_mr_release(struct weir_device *device, const struct weir_mr *mr) {
    struct fabric_region *region = fabric_region_of(&device->memory, mr);
    int rc = region->closing ? WEIR_OK : close_region(device, region);
    if (rc != WEIR_OK)
        return rc;
    bool over = is_over(device, region);
    uint64_t begin = device_now(device);
    while (!over && device_now(device) - begin <= RELEASE_NS) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        over = is_over(device, region);
    }
    if (!over)
        return WEIR_EBUSY;
    fabric_region_forget(&device->memory, mr);
    return WEIR_OK;
}

int ofi_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out) {
    fabric_export(&device->memory, mr, MAGIC_REGION, blob_out, blob_length_out);
    return WEIR_OK;
}

int ofi_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out) {
    (void)wait_ms;
    device_lock(device);
    int rc =
        fabric_import(&device->memory, MAGIC_REGION, blob, blob_length, length, access, rmr_out);
    device_unlock(device);
    return rc;
}

void ofi_mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    device_lock(device);
    fabric_forget(&device->memory, rmr);
    device_unlock(device);
}
