/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: regions of our own and regions imported from peers.
 *
 * Owns both tables: chunks that are never moved, their free entries in lists. That of our own
 * regions is under a mutex of its own; an entry that is taken is its owner's. Registering and
 * releasing run on any thread. The numbers that the engine has for them, lkey and rkey, are
 * {generation, index}, so that one of a region that is gone names nothing.
 *
 * A peer names a region by a key of 64 bits. Where the provider leaves them to us they are random:
 * nobody who was not told one can guess it. Keys, rights and bounds are looked at by the target's
 * provider when the header of an access arrives; this side looks at its own bounds, and at the
 * peer's, before anything is sent.
 *
 * After a region is closed its key names nothing, but bytes of an access that began before may
 * still be landing, and a read may still be answered from it: fence.c says when that is over. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ofi.h"
#include "pages.h"

#define INDEX_BITS 20
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define GENERATION (1u << INDEX_BITS)
#define RELEASE_NS UINT64_C(100000000)   /* that a call waits for peers */
#define SILENCE_NS UINT64_C(10000000000) /* then those that do not answer lose their sessions */
#define LOOK_NS    50000
_Static_assert(OFI_REGIONS_MAX <= GENERATION && OFI_IMPORTS_MAX <= GENERATION, "each has a number");

/* ---- the tables ---- */

static struct ofi_region *region_at(const struct weir_device *device, uint32_t index) {
    return &device->regions[index / OFI_CHUNK][index % OFI_CHUNK];
}

static struct ofi_import *import_at(const struct weir_device *device, uint32_t index) {
    return &device->imports[index / OFI_CHUNK][index % OFI_CHUNK];
}

/* The next generation of an entry, which is never 0. */
static uint32_t next_key(uint32_t key, uint32_t index) {
    uint32_t generation = (key & ~INDEX_MASK) + GENERATION;
    return (generation != 0 ? generation : GENERATION) | index;
}

int ofi_memory_open(struct weir_device *device) {
    return pthread_mutex_init(&device->regions_mutex, NULL) == 0 ? WEIR_OK : WEIR_ENOMEM;
}

void ofi_memory_close(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    for (uint32_t i = 0; i < device->region_chunks; i++)
        env->ops->free(env->self, device->regions[i], OFI_CHUNK * sizeof *device->regions[i]);
    for (uint32_t i = 0; i < device->import_chunks; i++)
        env->ops->free(env->self, device->imports[i], OFI_CHUNK * sizeof *device->imports[i]);
    pthread_mutex_destroy(&device->regions_mutex);
}

/* With the regions' mutex: more free entries, those with low numbers first. */
static int regions_more(struct weir_device *device) {
    if (device->region_chunks == OFI_REGIONS_MAX / OFI_CHUNK)
        return WEIR_EAGAIN;
    struct ofi_region *chunk = device->env.ops->alloc(device->env.self, OFI_CHUNK * sizeof *chunk);
    if (chunk == NULL)
        return WEIR_ENOMEM;
    uint32_t first = device->region_chunks * OFI_CHUNK;
    device->regions[device->region_chunks++] = chunk;
    for (uint32_t i = OFI_CHUNK; i > 0; i--) {
        chunk[i - 1].next_free = device->region_free;
        device->region_free = first + i;
    }
    return WEIR_OK;
}

static int region_add(struct weir_device *device, const struct ofi_region *wanted,
                      struct weir_mr *mr_out) {
    pthread_mutex_lock(&device->regions_mutex);
    int rc = device->region_free == 0 ? regions_more(device) : WEIR_OK;
    if (rc == WEIR_OK) {
        uint32_t index = device->region_free - 1;
        struct ofi_region *region = region_at(device, index);
        uint32_t lkey = next_key((uint32_t)region->since_ns, index);
        device->region_free = region->next_free;
        *region = *wanted;
        region->lkey = lkey;
        *mr_out = (struct weir_mr){
            .lkey = lkey, .cookie = index, .base = wanted->base, .length = wanted->length};
    }
    pthread_mutex_unlock(&device->regions_mutex);
    return rc;
}

/* A free entry remembers its last key in since_ns, which it has no other use for. */
static void region_remove(struct weir_device *device, uint32_t index) {
    struct ofi_region *region = region_at(device, index);
    pthread_mutex_lock(&device->regions_mutex);
    *region = (struct ofi_region){.since_ns = region->lkey, .next_free = device->region_free};
    device->region_free = index + 1;
    pthread_mutex_unlock(&device->regions_mutex);
}

/* ---- our own ---- */

static bool access_is_known(uint32_t access) {
    return (access & ~(uint32_t)WEIR_ACCESS_ALL) == 0;
}

static uint64_t access_flags(uint32_t access) {
    uint64_t flags = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    if ((access & WEIR_ACCESS_REMOTE_READ) != 0)
        flags |= FI_REMOTE_READ;
    if ((access & WEIR_ACCESS_REMOTE_WRITE) != 0)
        flags |= FI_REMOTE_WRITE;
    return flags;
}

/* Memory that no peer may touch is no region of a provider that does not ask for it; a key that
 * names nothing is told of it all the same. */
static int make(struct weir_device *device, struct ofi_region *region) {
    const struct weir_env *env = &device->env;
    int rc = -FI_ENOKEY;
    for (int tries = 0; rc == -FI_ENOKEY && tries < 8; tries++) {
        env->ops->entropy(env->self, &region->key, sizeof region->key);
        if (region->access == 0 && !device->local_keys)
            return WEIR_OK;
        rc = fi_mr_reg(device->domain, region->base, region->length, access_flags(region->access),
                       0, region->key, 0, &region->mr, NULL);
    }
    if (rc != 0)
        return ofi_error(rc);
    region->key = fi_mr_key(region->mr);
    return WEIR_OK;
}

static int add(struct weir_device *device, struct ofi_region *region, struct weir_mr *mr_out) {
    region->raddr = device->virtual_addresses ? (uint64_t)(uintptr_t)region->base : 0;
    int rc = make(device, region);
    if (rc == WEIR_OK)
        rc = region_add(device, region, mr_out);
    if (rc != WEIR_OK && region->mr != NULL)
        fi_close(&region->mr->fid);
    return rc;
}

/* A page that is not mapped would be found out in the middle of a peer's access, by a signal.
 * mincore(2): ENOMEM. */
static bool is_mapped(uint64_t start, uint64_t length) {
    unsigned char pages[1024];
    uint64_t step = sizeof pages * PAGES_BYTES, end = start + length;
    bool mapped = true;
    for (uint64_t at = start & ~(PAGES_BYTES - 1); mapped && at < end; at += step) {
        uint64_t bytes = end - at < step ? end - at : step;
        mapped = mincore((void *)(uintptr_t)at, bytes, pages) == 0 || errno != ENOMEM;
    }
    return mapped;
}

int ofi_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    uint64_t start = (uint64_t)(uintptr_t)base;
    if (base == NULL || length == 0 || start + length < start || !access_is_known(access))
        return WEIR_EINVAL;
    if (!is_mapped(start, length))
        return WEIR_EINVAL;
    struct ofi_region region = {.base = base, .length = length, .access = access};
    return add(device, &region, mr_out);
}

int ofi_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    if (length == 0 || !access_is_known(access))
        return WEIR_EINVAL;
    if (length > PAGES_LENGTH_MAX)
        return WEIR_ENOMEM;
    uint64_t bytes = pages_round(length);
    void *base = pages_map(bytes);
    if (base == NULL)
        return WEIR_ENOMEM;
    struct ofi_region region = {
        .base = base, .length = length, .mapped_bytes = bytes, .access = access};
    int rc = pages_back(base, bytes) ? add(device, &region, mr_out) : WEIR_ENOMEM;
    if (rc != WEIR_OK)
        munmap(base, bytes);
    return rc;
}

/* The key names nothing from now on. An error of the provider: the region is as it was. */
static int close_region(struct weir_device *device, struct ofi_region *region) {
    int rc = region->mr != NULL ? fi_close(&region->mr->fid) : 0;
    if (rc != 0)
        return rc == -FI_EBUSY ? WEIR_EBUSY : WEIR_EDEVICE;
    region->mr = NULL;
    region->closing = true;
    region->since_ns = device_now(device);
    if (region->access != 0) {
        device_lock(device);
        region->fence = fence_begin(device);
        device_unlock(device);
    }
    return WEIR_OK;
}

static bool is_over(struct weir_device *device, const struct ofi_region *region) {
    if (region->access == 0)
        return true;
    device_lock(device);
    ofi_progress(device);
    connect_look(device); /* all that are up are known then */
    bool over = fence_look(device, region->fence);
    uint64_t now = device_now(device);
    if (!over && now - region->since_ns > SILENCE_NS)
        fence_give_up(device, region->fence, now - SILENCE_NS);
    if (ofi_has_news(device))
        ofi_wake(device);
    device_unlock(device);
    return over;
}

int ofi_mr_release(struct weir_device *device, const struct weir_mr *mr) {
    struct ofi_region *region = region_at(device, mr->cookie);
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
    if (region->mapped_bytes != 0)
        munmap(region->base, region->mapped_bytes);
    region_remove(device, mr->cookie);
    return WEIR_OK;
}

int ofi_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out) {
    const struct ofi_region *region = region_at(device, mr->cookie);
    struct ofi_region_blob blob = {.key = region->key,
                                   .raddr = region->raddr,
                                   .length = region->length,
                                   .access = region->access};
    *blob_length_out = ofi_blob_write_region(&blob, blob_out);
    return WEIR_OK;
}

bool region_holds(const struct weir_device *device, uint32_t lkey, uint64_t laddr, uint64_t length,
                  void **desc_out) {
    uint32_t index = lkey & INDEX_MASK;
    if (index >= OFI_REGIONS_MAX || device->regions[index / OFI_CHUNK] == NULL)
        return false;
    const struct ofi_region *region = region_at(device, index);
    uint64_t offset = laddr - (uint64_t)(uintptr_t)region->base;
    if (lkey == 0 || region->lkey != lkey || offset > region->length ||
        length > region->length - offset)
        return false;
    *desc_out = region->mr != NULL ? fi_mr_desc(region->mr) : NULL;
    return true;
}

/* ---- a peer's ---- */

static int imports_more(struct weir_device *device) {
    if (device->import_chunks == OFI_IMPORTS_MAX / OFI_CHUNK)
        return WEIR_EAGAIN;
    struct ofi_import *chunk = device->env.ops->alloc(device->env.self, OFI_CHUNK * sizeof *chunk);
    if (chunk == NULL)
        return WEIR_ENOMEM;
    uint32_t first = device->import_chunks * OFI_CHUNK;
    device->imports[device->import_chunks++] = chunk;
    for (uint32_t i = OFI_CHUNK; i > 0; i--) {
        chunk[i - 1].next_free = device->import_free;
        device->import_free = first + i;
    }
    return WEIR_OK;
}

static int import_add(struct weir_device *device, const struct ofi_region_blob *blob,
                      struct weir_rmr *rmr_out) {
    int rc = device->import_free == 0 ? imports_more(device) : WEIR_OK;
    if (rc != WEIR_OK)
        return rc;
    uint32_t index = device->import_free - 1;
    struct ofi_import *import = import_at(device, index);
    device->import_free = import->next_free;
    /* A free entry's length is its last key. */
    *import = (struct ofi_import){.key = blob->key,
                                  .raddr = blob->raddr,
                                  .length = blob->length,
                                  .rkey = next_key((uint32_t)import->length, index)};
    *rmr_out = (struct weir_rmr){.raddr = blob->raddr, .rkey = import->rkey, .cookie = index};
    return WEIR_OK;
}

int ofi_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out) {
    (void)wait_ms;
    struct ofi_region_blob region;
    int rc = ofi_blob_read_region(blob, blob_length, &region);
    if (rc != WEIR_OK)
        return rc;
    if (region.length != length || (access & ~region.access) != 0)
        return WEIR_EINVAL;
    device_lock(device);
    rc = import_add(device, &region, rmr_out);
    device_unlock(device);
    return rc;
}

void ofi_mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    device_lock(device);
    struct ofi_import *import = import_at(device, rmr->cookie);
    *import = (struct ofi_import){.length = import->rkey, .next_free = device->import_free};
    device->import_free = rmr->cookie + 1;
    device_unlock(device);
}

bool import_holds(const struct weir_device *device, uint32_t rkey, uint64_t raddr, uint64_t length,
                  uint64_t *key_out) {
    uint32_t index = rkey & INDEX_MASK;
    if (index >= OFI_IMPORTS_MAX || device->imports[index / OFI_CHUNK] == NULL)
        return false;
    const struct ofi_import *import = import_at(device, index);
    uint64_t offset = raddr - import->raddr;
    if (rkey == 0 || import->rkey != rkey || offset > import->length ||
        length > import->length - offset)
        return false;
    *key_out = import->key;
    return true;
}
