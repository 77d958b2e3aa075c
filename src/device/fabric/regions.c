/* SPDX-License-Identifier: Apache-2.0 */
/* regions.c: regions of our own and regions imported from peers, over libfabric.
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
 * Owns the byte layout of a region's blob as well (little-endian, versioned by its first four
 * bytes), and the checks of what came from a peer:
 *
 *   magic 4, access 4, key 8, address 8, length 8 */
#define _GNU_SOURCE
#include "regions.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bytes.h"
#include "fabric.h"
#include "pages.h"

#define INDEX_BITS 20
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define GENERATION (1u << INDEX_BITS)
_Static_assert(FABRIC_REGIONS_MAX <= GENERATION && FABRIC_IMPORTS_MAX <= GENERATION,
               "each has a number");

enum { BLOB_BYTES = 32 };
_Static_assert(BLOB_BYTES <= WEIR_MR_BLOB_MAX, "it fits");

/* ---- the tables ---- */

static struct fabric_region *region_at(const struct fabric_memory *memory, uint32_t index) {
    return &memory->regions[index / FABRIC_CHUNK][index % FABRIC_CHUNK];
}

static struct fabric_import *import_at(const struct fabric_memory *memory, uint32_t index) {
    return &memory->imports[index / FABRIC_CHUNK][index % FABRIC_CHUNK];
}

/* The next generation of an entry, which is never 0. */
static uint32_t next_key(uint32_t key, uint32_t index) {
    uint32_t generation = (key & ~INDEX_MASK) + GENERATION;
    return (generation != 0 ? generation : GENERATION) | index;
}

int fabric_memory_open(struct fabric_memory *memory, const struct weir_env *env) {
    memory->env = *env;
    return pthread_mutex_init(&memory->mutex, NULL) == 0 ? WEIR_OK : WEIR_ENOMEM;
}

void fabric_memory_start(struct fabric_memory *memory, struct fid_domain *domain, uint64_t mr_mode,
                         uint64_t uses) {
    memory->domain = domain;
    memory->uses = uses;
    memory->local_keys = (mr_mode & FI_MR_LOCAL) != 0;
    memory->virtual_addresses = (mr_mode & FI_MR_VIRT_ADDR) != 0;
    memory->provider_keys = (mr_mode & FI_MR_PROV_KEY) != 0;
}

void fabric_memory_close(struct fabric_memory *memory) {
    const struct weir_env *env = &memory->env;
    for (uint32_t i = 0; i < memory->region_chunks; i++)
        env->ops->free(env->self, memory->regions[i], FABRIC_CHUNK * sizeof *memory->regions[i]);
    for (uint32_t i = 0; i < memory->import_chunks; i++)
        env->ops->free(env->self, memory->imports[i], FABRIC_CHUNK * sizeof *memory->imports[i]);
    pthread_mutex_destroy(&memory->mutex);
}

/* With the mutex: more free entries, those with low numbers first. */
static int regions_more(struct fabric_memory *memory) {
    if (memory->region_chunks == FABRIC_REGIONS_MAX / FABRIC_CHUNK)
        return WEIR_EAGAIN;
    struct fabric_region *chunk =
        memory->env.ops->alloc(memory->env.self, FABRIC_CHUNK * sizeof *chunk);
    if (chunk == NULL)
        return WEIR_ENOMEM;
    uint32_t first = memory->region_chunks * FABRIC_CHUNK;
    memory->regions[memory->region_chunks++] = chunk;
    for (uint32_t i = FABRIC_CHUNK; i > 0; i--) {
        chunk[i - 1].next_free = memory->region_free;
        memory->region_free = first + i;
    }
    return WEIR_OK;
}

static int region_add(struct fabric_memory *memory, const struct fabric_region *wanted,
                      struct weir_mr *mr_out) {
    pthread_mutex_lock(&memory->mutex);
    int rc = memory->region_free == 0 ? regions_more(memory) : WEIR_OK;
    if (rc == WEIR_OK) {
        uint32_t index = memory->region_free - 1;
        struct fabric_region *region = region_at(memory, index);
        uint32_t lkey = next_key((uint32_t)region->since_ns, index);
        memory->region_free = region->next_free;
        *region = *wanted;
        region->lkey = lkey;
        *mr_out = (struct weir_mr){
            .lkey = lkey, .cookie = index, .base = wanted->base, .length = wanted->length};
    }
    pthread_mutex_unlock(&memory->mutex);
    return rc;
}

/* A free entry remembers its last key in since_ns, which it has no other use for. */
static void region_remove(struct fabric_memory *memory, uint32_t index) {
    struct fabric_region *region = region_at(memory, index);
    pthread_mutex_lock(&memory->mutex);
    *region = (struct fabric_region){.since_ns = region->lkey, .next_free = memory->region_free};
    memory->region_free = index + 1;
    pthread_mutex_unlock(&memory->mutex);
}

/* ---- our own ---- */

static bool access_is_known(uint32_t access) {
    return (access & ~(uint32_t)WEIR_ACCESS_ALL) == 0;
}

static uint64_t access_flags(const struct fabric_memory *memory, uint32_t access) {
    uint64_t flags = memory->uses;
    if ((access & WEIR_ACCESS_REMOTE_READ) != 0)
        flags |= FI_REMOTE_READ;
    if ((access & WEIR_ACCESS_REMOTE_WRITE) != 0)
        flags |= FI_REMOTE_WRITE;
    return flags;
}

/* The provider chooses the key (fi_mr(3), FI_MR_PROV_KEY), and is asked for none. */
static int register_keyless(struct fabric_memory *memory, struct fabric_region *region) {
    struct iovec bytes = {.iov_base = region->base, .iov_len = region->length};
    struct fi_mr_attr attr = {
        .mr_iov = &bytes, .iov_count = 1, .access = access_flags(memory, region->access)};
    return fi_mr_regattr(memory->domain, &attr, 0, &region->mr);
}

static int register_keyed(struct fabric_memory *memory, struct fabric_region *region) {
    return fi_mr_reg(memory->domain, region->base, region->length,
                     access_flags(memory, region->access), 0, region->key, 0, &region->mr, NULL);
}

/* Memory that no peer may touch is no region of a provider that does not ask for it; a key that
 * names nothing is told of it all the same. */
static int make(struct fabric_memory *memory, struct fabric_region *region) {
    const struct weir_env *env = &memory->env;
    int rc = -FI_ENOKEY;
    for (int tries = 0; rc == -FI_ENOKEY && tries < 8; tries++) {
        env->ops->entropy(env->self, &region->key, sizeof region->key);
        if (region->access == 0 && !memory->local_keys)
            return WEIR_OK;
        rc = memory->provider_keys ? register_keyless(memory, region)
                                   : register_keyed(memory, region);
    }
    if (rc != 0)
        return fabric_error(rc);
    region->key = fi_mr_key(region->mr);
    return WEIR_OK;
}

static int add(struct fabric_memory *memory, struct fabric_region *region, struct weir_mr *mr_out) {
    region->raddr = memory->virtual_addresses ? (uint64_t)(uintptr_t)region->base : 0;
    int rc = make(memory, region);
    if (rc == WEIR_OK)
        rc = region_add(memory, region, mr_out);
    if (rc != WEIR_OK && region->mr != NULL)
        fi_close(&region->mr->fid);
    return rc;
}

/* A page that is not mapped would be found out in the middle of a peer's access, by a signal.
 * mincore(2): ENOMEM. */
static bool is_mapped(uint64_t start, uint64_t length) {
    unsigned char pages[1024];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), step = sizeof pages * page;
    uint64_t end = start + length;
    bool mapped = true;
    for (uint64_t at = start & ~(page - 1); mapped && at < end; at += step) {
        uint64_t bytes = end - at < step ? end - at : step;
        mapped = mincore((void *)(uintptr_t)at, bytes, pages) == 0 || errno != ENOMEM;
    }
    return mapped;
}

int fabric_register(struct fabric_memory *memory, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    uint64_t start = (uint64_t)(uintptr_t)base;
    if (base == NULL || length == 0 || start + length < start || !access_is_known(access))
        return WEIR_EINVAL;
    if (!is_mapped(start, length))
        return WEIR_EINVAL;
    struct fabric_region region = {.base = base, .length = length, .access = access};
    return add(memory, &region, mr_out);
}

int fabric_allocate(struct fabric_memory *memory, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    if (length == 0 || !access_is_known(access))
        return WEIR_EINVAL;
    if (length > PAGES_LENGTH_MAX)
        return WEIR_ENOMEM;
    uint64_t bytes = pages_round(length);
    void *base = pages_map(bytes);
    if (base == NULL)
        return WEIR_ENOMEM;
    struct fabric_region region = {
        .base = base, .length = length, .mapped_bytes = bytes, .access = access};
    int rc = pages_back(base, bytes) ? add(memory, &region, mr_out) : WEIR_ENOMEM;
    if (rc != WEIR_OK)
        munmap(base, bytes);
    return rc;
}

struct fabric_region *fabric_region_of(struct fabric_memory *memory, const struct weir_mr *mr) {
    return region_at(memory, mr->cookie);
}

int fabric_region_shut(struct fabric_memory *memory, struct fabric_region *region) {
    const struct weir_env *env = &memory->env;
    int rc = region->mr != NULL ? fi_close(&region->mr->fid) : 0;
    if (rc != 0)
        return rc == -FI_EBUSY ? WEIR_EBUSY : WEIR_EDEVICE;
    region->mr = NULL;
    region->closing = true;
    region->since_ns = env->ops->now(env->self);
    return WEIR_OK;
}

void fabric_region_forget(struct fabric_memory *memory, const struct weir_mr *mr) {
    const struct fabric_region *region = region_at(memory, mr->cookie);
    if (region->mapped_bytes != 0)
        munmap(region->base, region->mapped_bytes);
    region_remove(memory, mr->cookie);
}

bool fabric_region_holds(const struct fabric_memory *memory, uint32_t lkey, uint64_t laddr,
                         uint64_t length, void **desc_out) {
    uint32_t index = lkey & INDEX_MASK;
    if (index >= FABRIC_REGIONS_MAX || memory->regions[index / FABRIC_CHUNK] == NULL)
        return false;
    const struct fabric_region *region = region_at(memory, index);
    uint64_t offset = laddr - (uint64_t)(uintptr_t)region->base;
    if (lkey == 0 || region->lkey != lkey || offset > region->length ||
        length > region->length - offset)
        return false;
    *desc_out = region->mr != NULL ? fi_mr_desc(region->mr) : NULL;
    return true;
}

/* ---- what peers are told ---- */

void fabric_export(const struct fabric_memory *memory, const struct weir_mr *mr, uint32_t magic,
                   uint8_t *blob_out, uint32_t *length_out) {
    const struct fabric_region *region = region_at(memory, mr->cookie);
    bytes_put(&blob_out, magic, 4);
    bytes_put(&blob_out, region->access, 4);
    bytes_put(&blob_out, region->key, 8);
    bytes_put(&blob_out, region->raddr, 8);
    bytes_put(&blob_out, region->length, 8);
    *length_out = BLOB_BYTES;
}

static int blob_read(uint32_t magic, const uint8_t *bytes, uint32_t length,
                     struct fabric_region_blob *region_out) {
    if (length != BLOB_BYTES || bytes_get(&bytes, 4) != magic)
        return WEIR_EINVAL;
    struct fabric_region_blob region;
    region.access = (uint32_t)bytes_get(&bytes, 4);
    region.key = bytes_get(&bytes, 8);
    region.raddr = bytes_get(&bytes, 8);
    region.length = bytes_get(&bytes, 8);
    if (region.length == 0 || region.raddr > UINT64_MAX - region.length ||
        (region.access & ~(uint32_t)WEIR_ACCESS_ALL) != 0)
        return WEIR_EINVAL;
    *region_out = region;
    return WEIR_OK;
}

/* ---- a peer's ---- */

static int imports_more(struct fabric_memory *memory) {
    if (memory->import_chunks == FABRIC_IMPORTS_MAX / FABRIC_CHUNK)
        return WEIR_EAGAIN;
    struct fabric_import *chunk =
        memory->env.ops->alloc(memory->env.self, FABRIC_CHUNK * sizeof *chunk);
    if (chunk == NULL)
        return WEIR_ENOMEM;
    uint32_t first = memory->import_chunks * FABRIC_CHUNK;
    memory->imports[memory->import_chunks++] = chunk;
    for (uint32_t i = FABRIC_CHUNK; i > 0; i--) {
        chunk[i - 1].next_free = memory->import_free;
        memory->import_free = first + i;
    }
    return WEIR_OK;
}

static int import_add(struct fabric_memory *memory, const struct fabric_region_blob *blob,
                      struct weir_rmr *rmr_out) {
    int rc = memory->import_free == 0 ? imports_more(memory) : WEIR_OK;
    if (rc != WEIR_OK)
        return rc;
    uint32_t index = memory->import_free - 1;
    struct fabric_import *import = import_at(memory, index);
    memory->import_free = import->next_free;
    /* A free entry's length is its last key. */
    *import = (struct fabric_import){.key = blob->key,
                                     .raddr = blob->raddr,
                                     .length = blob->length,
                                     .rkey = next_key((uint32_t)import->length, index)};
    *rmr_out = (struct weir_rmr){.raddr = blob->raddr, .rkey = import->rkey, .cookie = index};
    return WEIR_OK;
}

int fabric_import(struct fabric_memory *memory, uint32_t magic, const uint8_t *blob,
                  uint32_t blob_length, uint64_t length, uint32_t access,
                  struct weir_rmr *rmr_out) {
    struct fabric_region_blob region;
    int rc = blob_read(magic, blob, blob_length, &region);
    if (rc != WEIR_OK)
        return rc;
    if (region.length != length || (access & ~region.access) != 0)
        return WEIR_EINVAL;
    return import_add(memory, &region, rmr_out);
}

void fabric_forget(struct fabric_memory *memory, const struct weir_rmr *rmr) {
    struct fabric_import *import = import_at(memory, rmr->cookie);
    *import = (struct fabric_import){.length = import->rkey, .next_free = memory->import_free};
    memory->import_free = rmr->cookie + 1;
}

bool fabric_import_holds(const struct fabric_memory *memory, uint32_t rkey, uint64_t raddr,
                         uint64_t length, uint64_t *key_out) {
    uint32_t index = rkey & INDEX_MASK;
    if (index >= FABRIC_IMPORTS_MAX || memory->imports[index / FABRIC_CHUNK] == NULL)
        return false;
    const struct fabric_import *import = import_at(memory, index);
    uint64_t offset = raddr - import->raddr;
    if (rkey == 0 || import->rkey != rkey || offset > import->length ||
        length > import->length - offset)
        return false;
    *key_out = import->key;
    return true;
}
