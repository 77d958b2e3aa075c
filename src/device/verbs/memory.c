/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: regions of our own and regions imported from peers.
 *
 * Owns the table of memory regions: chunks that are never moved, their free entries in a list
 * under its mutex; an entry that is taken is its owner's. Registering and releasing run on any
 * thread. An import is only what its blob says: keys and bounds are checked by the target's device
 * with every access, and a region that its owner has released, or a forged key, ends there as a
 * remote access error.
 *
 * Relaxed ordering is not asked for: a notification must not overtake the data. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "memlock.h"
#include "pages.h"
#include "verbs.h"

/* ---- the table ---- */

static struct verbs_mr *mr_at(const struct weir_device *device, uint32_t cookie) {
    return &device->mrs.chunks[cookie / VERBS_MR_CHUNK][cookie % VERBS_MR_CHUNK];
}

/* With the mutex held. */
static void mr_put(struct weir_device *device, uint32_t cookie) {
    *mr_at(device, cookie) = (struct verbs_mr){.next_free = device->mrs.free};
    device->mrs.free = cookie + 1;
}

/* With the mutex held: more free entries, those with low numbers first. EAGAIN, ENOMEM. */
static int mr_more(struct weir_device *device) {
    struct verbs_mrs *mrs = &device->mrs;
    if (mrs->chunk_count == VERBS_MRS_MAX / VERBS_MR_CHUNK)
        return WEIR_EAGAIN;
    struct verbs_mr *chunk =
        device->env.ops->alloc(device->env.self, VERBS_MR_CHUNK * sizeof *chunk);
    if (chunk == NULL)
        return WEIR_ENOMEM;
    uint32_t first = mrs->chunk_count * VERBS_MR_CHUNK;
    mrs->chunks[mrs->chunk_count++] = chunk;
    for (uint32_t i = VERBS_MR_CHUNK; i > 0; i--)
        mr_put(device, first + i - 1);
    return WEIR_OK;
}

/* With the mutex held: a free entry. EAGAIN, ENOMEM. */
static int mr_take(struct weir_device *device, uint32_t *cookie_out) {
    int rc = device->mrs.free == 0 ? mr_more(device) : WEIR_OK;
    if (rc != WEIR_OK)
        return rc;
    *cookie_out = device->mrs.free - 1;
    device->mrs.free = mr_at(device, *cookie_out)->next_free;
    return WEIR_OK;
}

void verbs_memory_open(struct weir_device *device) {
    pthread_mutex_init(&device->mrs.mutex, NULL);
}

void verbs_memory_close(struct weir_device *device) {
    struct verbs_mrs *mrs = &device->mrs;
    for (uint32_t i = 0; i < mrs->chunk_count; i++)
        device->env.ops->free(device->env.self, mrs->chunks[i],
                              VERBS_MR_CHUNK * sizeof *mrs->chunks[i]);
    pthread_mutex_destroy(&mrs->mutex);
}

/* Until use_end, the regions stay the provider's. False: there is no provider any more. */
static bool use_begin(struct weir_device *device) {
    pthread_mutex_lock(&device->mrs.mutex);
    bool gone = device->mrs.gone;
    device->mrs.users += !gone;
    pthread_mutex_unlock(&device->mrs.mutex);
    return !gone;
}

static void use_end(struct weir_device *device) {
    pthread_mutex_lock(&device->mrs.mutex);
    device->mrs.users--;
    pthread_mutex_unlock(&device->mrs.mutex);
}

/* ---- our own ---- */

/* ibv_reg_mr(3): remote write needs local write. */
static unsigned access_flags(uint32_t access) {
    unsigned flags = IBV_ACCESS_LOCAL_WRITE;
    if ((access & WEIR_ACCESS_REMOTE_READ) != 0)
        flags |= IBV_ACCESS_REMOTE_READ;
    if ((access & WEIR_ACCESS_REMOTE_WRITE) != 0)
        flags |= IBV_ACCESS_REMOTE_WRITE;
    return flags;
}

static bool access_is_known(uint32_t access) {
    return (access & ~(uint32_t)WEIR_ACCESS_ALL) == 0;
}

/* Memory that is mapped for reading only may still be a source. */
static struct ibv_mr *make(struct weir_device *device, void *base, uint64_t length,
                           uint32_t access) {
    unsigned flags = access_flags(access);
    struct ibv_mr *mr = ibv_reg_mr(device->pd, base, length, flags);
    if (mr == NULL && (errno == EFAULT || errno == EACCES) &&
        (access & WEIR_ACCESS_REMOTE_WRITE) == 0)
        mr = ibv_reg_mr(device->pd, base, length, flags & ~(unsigned)IBV_ACCESS_LOCAL_WRITE);
    return mr;
}

/* The memory that an iWARP read fills is written by the other side's packets, to a key that they
 * name and that has to have that right (RFC 5040, 5.1). That key is not the exported one: only
 * a peer that we read from sees it, so that no other can write there. Memory that this process
 * itself may only read has no such key. */
enum { SINK_FLAGS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
static bool needs_sink(const struct weir_device *device, uint32_t access) {
    return device->fenced && (access & WEIR_ACCESS_REMOTE_WRITE) == 0;
}
static void make_sink(struct weir_device *device, void *base, uint64_t length,
                      struct verbs_mr *mr) {
    if (mr->ibv == NULL || !needs_sink(device, mr->access))
        return;
    mr->sink = ibv_reg_mr(device->pd, base, length, SINK_FLAGS);
    if (mr->sink != NULL || errno == EFAULT || errno == EACCES)
        return;
    int error = errno;
    ibv_dereg_mr(mr->ibv);
    mr->ibv = NULL;
    errno = error;
}

/* 0, or an errno; a deregistered region is NULL then. */
static int unmake(struct verbs_mr *mr) {
    int error = mr->sink != NULL ? ibv_dereg_mr(mr->sink) : 0;
    if (error != 0)
        return error;
    mr->sink = NULL;
    error = mr->ibv != NULL ? ibv_dereg_mr(mr->ibv) : 0;
    if (error == 0)
        mr->ibv = NULL;
    return error;
}

/* A provider that has lost its device may refuse: its kernel has taken the regions back. */
int verbs_memory_let_go(struct weir_device *device) {
    struct verbs_mrs *mrs = &device->mrs;
    pthread_mutex_lock(&mrs->mutex);
    mrs->gone = mrs->users == 0;
    pthread_mutex_unlock(&mrs->mutex);
    if (!mrs->gone)
        return WEIR_EAGAIN;
    for (uint32_t i = 0; i < mrs->chunk_count * VERBS_MR_CHUNK; i++) {
        struct verbs_mr *mr = mr_at(device, i);
        if (unmake(mr) != 0)
            mr->ibv = mr->sink = NULL;
    }
    return WEIR_OK;
}

/* Notes a new region down; without room for it, it goes again. */
static int add(struct weir_device *device, struct verbs_mr wanted, void *base, uint64_t length,
               struct weir_mr *mr_out) {
    uint32_t cookie;
    if (wanted.ibv == NULL) {
        bool locked = errno == ENOMEM && length > memlock_left();
        return locked ? WEIR_EMEMLOCK : verbs_error(errno);
    }
    pthread_mutex_lock(&device->mrs.mutex);
    int rc = mr_take(device, &cookie);
    if (rc == WEIR_OK) {
        *mr_at(device, cookie) = wanted;
    }
    pthread_mutex_unlock(&device->mrs.mutex);
    if (rc != WEIR_OK) {
        unmake(&wanted);
        return rc;
    }
    uint32_t lkey = wanted.sink != NULL ? wanted.sink->lkey : wanted.ibv->lkey;
    *mr_out = (struct weir_mr){.lkey = lkey, .cookie = cookie, .base = base, .length = length};
    return WEIR_OK;
}

int verbs_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                      struct weir_mr *mr_out) {
    uint64_t start = (uint64_t)(uintptr_t)base;
    if (base == NULL || length == 0 || start + length < start || !access_is_known(access) ||
        length > device->choice.attr.max_mr_size)
        return WEIR_EINVAL;
    if (!use_begin(device))
        return WEIR_EDEVICE;
    struct verbs_mr wanted = {.ibv = make(device, base, length, access), .access = access};
    make_sink(device, base, length, &wanted);
    int rc = add(device, wanted, base, length, mr_out);
    use_end(device);
    return rc;
}

/* EBADF: the descriptor is not open. The rest: kernels that do not know of dma-bufs here, and
 * of the calls by which they are registered. */
static int dmabuf_error(int error) {
    switch (error) {
    case EBADF:
        return WEIR_EINVAL;
    case EPROTONOSUPPORT:
    case ENOTTY:
        return WEIR_ENOTSUP;
    default:
        return verbs_error(error);
    }
}

static int register_dmabuf(struct weir_device *device, int fd, uint64_t offset, uint64_t length,
                           uint64_t iova, uint32_t access, struct weir_mr *mr_out) {
    struct verbs_mr wanted = {.access = access};
    wanted.ibv = ibv_reg_dmabuf_mr(device->pd, offset, length, iova, fd, (int)access_flags(access));
    if (wanted.ibv == NULL)
        return dmabuf_error(errno);
    if (needs_sink(device, access)) {
        wanted.sink = ibv_reg_dmabuf_mr(device->pd, offset, length, iova, fd, SINK_FLAGS);
        int error = errno;
        if (wanted.sink == NULL) {
            ibv_dereg_mr(wanted.ibv);
            return dmabuf_error(error);
        }
    }
    return add(device, wanted, (void *)(uintptr_t)iova, length, mr_out);
}

int verbs_mr_register_dmabuf(struct weir_device *device, int fd, uint64_t offset, uint64_t length,
                             uint64_t iova, uint32_t access, struct weir_mr *mr_out) {
    if (fd < 0 || length == 0 || iova + length < iova || !access_is_known(access) ||
        ((iova ^ offset) & (PAGES_BYTES - 1)) != 0 || length > device->choice.attr.max_mr_size)
        return WEIR_EINVAL;
    if (!use_begin(device))
        return WEIR_EDEVICE;
    int rc = register_dmabuf(device, fd, offset, length, iova, access, mr_out);
    use_end(device);
    return rc;
}

int verbs_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                      struct weir_mr *mr_out) {
    if (length == 0 || !access_is_known(access))
        return WEIR_EINVAL;
    if (length > PAGES_LENGTH_MAX || length > device->choice.attr.max_mr_size)
        return WEIR_ENOMEM;
    uint64_t bytes = pages_round(length);
    void *base = pages_map(bytes);
    if (base == NULL)
        return WEIR_ENOMEM;
    int rc = WEIR_EDEVICE;
    if (use_begin(device)) {
        struct verbs_mr wanted = {
            .ibv = make(device, base, length, access), .mapped_bytes = bytes, .access = access};
        make_sink(device, base, length, &wanted);
        rc = add(device, wanted, base, length, mr_out);
        use_end(device);
    }
    if (rc != WEIR_OK)
        munmap(base, bytes);
    return rc;
}

int verbs_mr_release(struct weir_device *device, const struct weir_mr *mr) {
    struct verbs_mr *entry = mr_at(device, mr->cookie);
    bool used = use_begin(device);
    int error = used ? unmake(entry) : 0;
    if (used)
        use_end(device);
    if (error != 0)
        return verbs_error(error) == WEIR_EBUSY ? WEIR_EBUSY : WEIR_EDEVICE;
    if (entry->mapped_bytes != 0)
        munmap(mr->base, entry->mapped_bytes);
    pthread_mutex_lock(&device->mrs.mutex);
    mr_put(device, mr->cookie);
    pthread_mutex_unlock(&device->mrs.mutex);
    return WEIR_OK;
}

int verbs_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                    uint32_t *blob_length_out) {
    const struct verbs_mr *entry = mr_at(device, mr->cookie);
    if (entry->ibv == NULL)
        return WEIR_EDEVICE; /* it was let go of */
    struct verbs_region region = {.base = (uint64_t)(uintptr_t)mr->base,
                                  .length = mr->length,
                                  .rkey = entry->ibv->rkey,
                                  .access = entry->access};
    *blob_length_out = blob_write_region(&region, blob_out);
    return WEIR_OK;
}

/* ---- a peer's ---- */

int verbs_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                    uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out) {
    (void)device, (void)wait_ms;
    struct verbs_region region;
    int rc = blob_read_region(blob, blob_length, &region);
    if (rc != WEIR_OK)
        return rc;
    if (region.length != length || (access & ~region.access) != 0)
        return WEIR_EINVAL;
    *rmr_out = (struct weir_rmr){.raddr = region.base, .rkey = region.rkey};
    return WEIR_OK;
}

void verbs_mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    (void)device;
    (void)rmr;
}
