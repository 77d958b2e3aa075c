/* SPDX-License-Identifier: Apache-2.0 */
/* regions.h: the memory of a device over libfabric: regions of our own, and imports of a peer's.
 *
 * A backend has one struct fabric_memory in its device, and regions.c keeps it. When a region that
 * was shut is over, and may be forgotten, is the backend's to know.
 *
 * Regions: any thread; the table has a mutex of its own, and an entry that is taken is its owner's.
 * Imports (fabric_import, fabric_forget, fabric_import_holds): under a lock of the caller's. */
#ifndef FABRIC_REGIONS_H
#define FABRIC_REGIONS_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stdint.h>

#include "ports.h"

#define FABRIC_CHUNK       1024u /* entries of a table that are allocated at a time */
#define FABRIC_REGIONS_MAX (66u * FABRIC_CHUNK)
#define FABRIC_IMPORTS_MAX (1024u * FABRIC_CHUNK)

/* Our own memory. */
struct fabric_region {
    struct fid_mr *mr; /* NULL: none */
    void *base;
    uint64_t length;
    uint64_t mapped_bytes; /* of memory that we allocated; 0: the caller's */
    uint64_t key, raddr;
    uint32_t access;
    uint32_t lkey;      /* 0: the entry is free */
    uint32_t next_free; /* plus one */
    bool closing;       /* it was shut, */
    uint64_t since_ns;  /* at this time; */
    uint64_t fence;     /* the backend's: what it waits for then */
};

/* A peer's memory. */
struct fabric_import {
    uint64_t key, raddr, length;
    uint32_t rkey; /* 0: free */
    uint32_t next_free;
};

/* A peer's memory, as its blob says. */
struct fabric_region_blob {
    uint64_t key, raddr, length;
    uint32_t access;
};

struct fabric_memory {
    struct weir_env env;
    /* constant from fabric_memory_start on */
    struct fid_domain *domain;
    bool local_keys;        /* FI_MR_LOCAL: buffers need a region of the provider's */
    bool virtual_addresses; /* FI_MR_VIRT_ADDR */
    bool provider_keys;     /* FI_MR_PROV_KEY */
    uint64_t uses;          /* of every region, by this side */

    struct fabric_import *imports[FABRIC_IMPORTS_MAX / FABRIC_CHUNK];
    uint32_t import_chunks, import_free;

    pthread_mutex_t mutex; /* of the regions */
    struct fabric_region *regions[FABRIC_REGIONS_MAX / FABRIC_CHUNK];
    uint32_t region_chunks, region_free;
};

/* memory: zeros. ENOMEM. */
int fabric_memory_open(struct fabric_memory *memory, const struct weir_env *env);
/* mr_mode: of the domain's fi_info; the domain's by now, for those that register. uses: what this
 * side does with its memory: FI_SEND, FI_RECV, FI_READ, FI_WRITE. */
void fabric_memory_start(struct fabric_memory *memory, struct fid_domain *domain, uint64_t mr_mode,
                         uint64_t uses);
/* The regions are forgotten already. */
void fabric_memory_close(struct fabric_memory *memory);

/* The device port's mr_register and mr_allocate. */
int fabric_register(struct fabric_memory *memory, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int fabric_allocate(struct fabric_memory *memory, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
struct fabric_region *fabric_region_of(struct fabric_memory *memory, const struct weir_mr *mr);
/* The key names nothing from now on; the region is closing. EBUSY, EDEVICE: it is as it was. */
int fabric_region_shut(struct fabric_memory *memory, struct fabric_region *region);
/* The entry of a region that was shut is free; memory that was allocated for it is unmapped. */
void fabric_region_forget(struct fabric_memory *memory, const struct weir_mr *mr);
/* Whether the bytes lie in a region of ours; its descriptor, if the provider needs one. */
bool fabric_region_holds(const struct fabric_memory *memory, uint32_t lkey, uint64_t laddr,
                         uint64_t length, void **desc_out);

/* magic: the first four bytes of a backend's blobs of regions. */
void fabric_export(const struct fabric_memory *memory, const struct weir_mr *mr, uint32_t magic,
                   uint8_t *blob_out, uint32_t *length_out);
/* EINVAL: not a blob of this kind, or not of such a region. EAGAIN, ENOMEM: there is no entry. */
int fabric_import(struct fabric_memory *memory, uint32_t magic, const uint8_t *blob,
                  uint32_t blob_length, uint64_t length, uint32_t access, struct weir_rmr *rmr_out);
void fabric_forget(struct fabric_memory *memory, const struct weir_rmr *rmr);
/* Whether the bytes lie in an import; the key that its owner gave it. */
bool fabric_import_holds(const struct fabric_memory *memory, uint32_t rkey, uint64_t raddr,
                         uint64_t length, uint64_t *key_out);

#endif
