/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: the public calls about memory: register, allocate, export, import, query, release.
 *
 * Owns the entries of the region tables (core/region.h has the rules of their use).
 * The tables change under both the engine and tables_lock (own.h). */
#include "memory.h"

#include "found.h"
#include "names.h"
#include "own.h"
#include "tables.h"

#include <time.h>

static struct region_local *local_new(weir_engine *engine) {
    uint32_t index = engine->local_free;
    if (index == NONE)
        return NULL;
    struct region_local *local = &engine->regions.locals[index];
    engine->local_free = local->next_free;
    if (local->id == 0)
        local->id = handle_first(index);
    return local;
}

static void local_done(weir_engine *engine, struct region_local *local) {
    local->next_free = engine->local_free;
    engine->local_free = (uint32_t)(local - engine->regions.locals);
}

/* The memory to be registered: the caller's, a dma-buf, or (neither) new memory. */
struct source {
    void *base;
    bool dmabuf;
    int fd;
    uint64_t offset, iova;
};

/* A kernel that has no memory left does not refuse an allocation: it kills a process. So there has
 * to be room for large memory first. Small memory is not worth the question. */
enum { ROOM_ASKED = 1 << 24 };

static bool has_room(const weir_engine *engine, uint64_t length) {
    const struct weir_env *env = &engine->ports.env;
    return length < ROOM_ASKED || env->ops->room == NULL || length <= env->ops->room(env->self);
}

static int register_at(weir_engine *engine, const struct source *source, uint64_t length,
                       uint32_t access, struct weir_mr *mr_out) {
    const struct weir_device_ops *ops = engine->device_ops;
    if (source->dmabuf && ops->mr_register_dmabuf == NULL)
        return WEIR_ENOTSUP;
    if (source->dmabuf)
        return ops->mr_register_dmabuf(engine->device, source->fd, source->offset, length,
                                       source->iova, access, mr_out);
    if (source->base != NULL)
        return ops->mr_register(engine->device, source->base, length, access, mr_out);
    if (!has_room(engine, length))
        return WEIR_ENOMEM;
    return ops->mr_allocate(engine->device, length, access, mr_out);
}

/* Pinning gigabytes takes seconds. Where the device allows it, the engine is let go meanwhile, so
 * that only the caller waits. An entry that is taken and not live belongs to the caller alone. */
static void let_others(weir_engine *engine) {
    if (engine->caps.mr_anywhere)
        own_leave(engine);
}

static void back_again(weir_engine *engine) {
    if (engine->caps.mr_anywhere)
        own_enter(engine);
}

static int add_local(weir_engine *engine, const struct source *source, uint64_t length,
                     uint32_t access, weir_memory *memory_out, void **base_out) {
    struct region_local *local = local_new(engine);
    if (local == NULL)
        return WEIR_EAGAIN;
    struct weir_mr mr = {0};
    let_others(engine);
    int rc = register_at(engine, source, length, access, &mr);
    back_again(engine);
    if (rc != WEIR_OK) {
        local_done(engine, local);
        return rc;
    }
    tables_lock(engine);
    local->base = (uint64_t)(uintptr_t)mr.base;
    local->length = length;
    local->lkey = mr.lkey;
    local->access = access & WEIR_ACCESS_ALL;
    local->allocated = source->base == NULL && !source->dmabuf;
    local->mapped = !source->dmabuf;
    local->mr = mr;
    atomic_store(&local->users, 0);
    local->live = true;
    engine->regions.version++;
    tables_unlock(engine);
    memory_out->id = local->id;
    if (base_out != NULL)
        *base_out = mr.base;
    return WEIR_OK;
}

int memory_allocate(weir_engine *engine, uint64_t length, uint32_t access, weir_memory *memory_out,
                    void **base_out) {
    return add_local(engine, &(struct source){0}, length, access, memory_out, base_out);
}

int weir_memory_register(weir_engine *engine, void *base, uint64_t length, uint32_t access,
                         weir_memory *memory_out) {
    if (engine == NULL || base == NULL || length == 0 || (access & ~WEIR_ACCESS_ALL) != 0 ||
        memory_out == NULL || (uint64_t)(uintptr_t)base > UINT64_MAX - length)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    int rc = add_local(engine, &(struct source){.base = base}, length, access, memory_out, NULL);
    own_leave(engine);
    return rc;
}

int weir_memory_allocate(weir_engine *engine, uint64_t length, uint32_t access,
                         weir_memory *memory_out, void **base_out) {
    if (engine == NULL || length == 0 || (access & ~WEIR_ACCESS_ALL) != 0 || memory_out == NULL ||
        base_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    int rc = memory_allocate(engine, length, access, memory_out, base_out);
    own_leave(engine);
    return rc;
}

int weir_memory_register_dmabuf(weir_engine *engine, int fd, uint64_t offset, uint64_t length,
                                uint64_t iova, uint32_t access, weir_memory *memory_out) {
    if (engine == NULL || fd < 0 || length == 0 || (access & ~WEIR_ACCESS_ALL) != 0 ||
        memory_out == NULL || offset > UINT64_MAX - length || iova > UINT64_MAX - length)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    struct source source = {.dmabuf = true, .fd = fd, .offset = offset, .iova = iova};
    own_enter(engine);
    int rc = add_local(engine, &source, length, access, memory_out, NULL);
    own_leave(engine);
    return rc;
}

/* The entry of a memory whose release has failed so far; no call is at work on it. Or NULL. */
static struct region_local *local_leaving(weir_engine *engine, uint64_t id) {
    uint32_t index = handle_index(id);
    if (index >= engine->regions.local_count)
        return NULL;
    struct region_local *local = &engine->regions.locals[index];
    return local->id == id && local->leaving ? local : NULL;
}

/* No transfer can use the memory from now on, and its entry is the caller's. EBUSY: a transfer uses
 * it, and it stays live. */
static int release_begin(weir_engine *engine, uint64_t id, struct region_local **local_out) {
    struct region_local *local = region_local(&engine->regions, id);
    if (local == NULL)
        local = local_leaving(engine, id);
    if (local == NULL)
        return WEIR_ESTALE;
    /* Under the lock: a submit on another thread has counted itself among the users, or fails. */
    tables_lock(engine);
    bool busy = atomic_load(&local->users) > 0;
    local->live = busy;
    local->leaving = false;
    engine->regions.version++;
    tables_unlock(engine);
    if (!busy && local->named)
        names_memory_gone(engine, id);
    local->named &= busy;
    *local_out = local;
    return busy ? WEIR_EBUSY : WEIR_OK;
}

/* The device cannot take back a release that it has begun: peers may have been refused since. So
 * memory is not used again after an error, and another call tries its release again. */
int memory_release(weir_engine *engine, weir_memory memory) {
    struct region_local *local;
    int rc = release_begin(engine, memory.id, &local);
    if (rc != WEIR_OK)
        return rc;
    let_others(engine);
    rc = engine->device_ops->mr_release(engine->device, &local->mr);
    back_again(engine);
    local->leaving = rc != WEIR_OK;
    if (rc != WEIR_OK)
        return rc == WEIR_EBUSY ? WEIR_EINPROGRESS : rc;
    tables_lock(engine);
    local->id = handle_next(local->id);
    tables_unlock(engine);
    local_done(engine, local);
    return WEIR_OK;
}

int weir_memory_release(weir_engine *engine, weir_memory memory) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    int rc = memory_release(engine, memory);
    own_leave(engine);
    return rc;
}

int weir_memory_query(weir_engine *engine, weir_memory memory, void **base_out,
                      uint64_t *length_out) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    tables_lock(engine);
    const struct region_local *local = region_local(&engine->regions, memory.id);
    if (local != NULL && base_out != NULL)
        *base_out = local->mr.base;
    if (local != NULL && length_out != NULL)
        *length_out = local->length;
    tables_unlock(engine);
    return local != NULL ? WEIR_OK : WEIR_ESTALE;
}

static int export(weir_engine *engine, weir_memory memory, void *descriptor_out, size_t *length) {
    struct wire_descriptor descriptor;
    int rc = local_describe(engine, memory.id, &descriptor);
    if (rc != WEIR_OK)
        return rc;
    uint32_t written = 0;
    rc = wire_descriptor_encode(&descriptor, descriptor_out, *length, &written);
    if (rc == WEIR_OK)
        *length = written;
    return rc;
}

int weir_memory_export(weir_engine *engine, weir_memory memory, void *descriptor_out,
                       size_t *length) {
    if (engine == NULL || descriptor_out == NULL || length == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    int rc = export(engine, memory, descriptor_out, length);
    own_leave(engine);
    return rc;
}

/* Its memory is of another device, or of ours in another place. No session can come about, and the
 * application may ask why. */
static void refuse_import(weir_engine *engine, const struct peer *peer,
                          const struct wire_descriptor *descriptor) {
    engine->unlike.handle = peer->handle;
    engine->unlike.mismatch = (struct ep_mismatch){.both = ""};
    memcpy(engine->unlike.mismatch.theirs, descriptor->device, sizeof(descriptor->device));
}

/* Memory of this engine itself, which needs no device. It is that of the peer that is the engine,
 * or of an address that may turn out to be. */
static int import_own(const weir_engine *engine, const struct wire_descriptor *descriptor,
                      struct weir_rmr *rmr_out) {
    const struct region_local *local = region_local(&engine->regions, descriptor->memory_id);
    if (local == NULL)
        return WEIR_ESTALE;
    if (descriptor->length > local->length || (descriptor->access & ~local->access) != 0)
        return WEIR_EINVAL;
    if (!local->mapped)
        return WEIR_ENOTSUP; /* the processor has no address of a dma-buf */
    *rmr_out = (struct weir_rmr){.raddr = local->base};
    return WEIR_OK;
}

static bool is_own(const weir_engine *engine, const struct wire_descriptor *descriptor) {
    return memcmp(descriptor->instance, engine->instance, WIRE_INSTANCE_SIZE) == 0;
}

static int import(weir_engine *engine, weir_peer handle, const struct wire_descriptor *descriptor,
                  const struct name_answer *named, uint32_t wait_ms, weir_remote *remote_out,
                  struct weir_rmr *rmr_out) {
    struct peer *peer = peer_find(engine, handle.id);
    if (peer == NULL)
        return WEIR_ESTALE;
    peer = peer_resolve(engine, peer);
    if (peer_is_there(peer) &&
        memcmp(peer->instance, descriptor->instance, WIRE_INSTANCE_SIZE) != 0)
        return WEIR_ESTALE;
    if (memcmp(descriptor->device, engine->caps.name, sizeof(descriptor->device)) != 0 ||
        memcmp(descriptor->fabric, engine->caps.fabric, sizeof(descriptor->fabric)) != 0) {
        refuse_import(engine, peer, descriptor);
        return WEIR_ENOTSUP;
    }
    uint32_t index = engine->remote_free;
    if (index == NONE)
        return WEIR_EAGAIN;
    struct weir_rmr rmr = {0};
    bool own = is_own(engine, descriptor);
    int rc = own ? import_own(engine, descriptor, &rmr)
                 : engine->device_ops->mr_import(engine->device, descriptor->blob,
                                                 descriptor->blob_length, descriptor->length,
                                                 descriptor->access, wait_ms, &rmr);
    if (rc != WEIR_OK)
        return rc;
    if (named != NULL && !names_import_made(engine, named)) {
        if (!own)
            engine->device_ops->mr_forget(engine->device, &rmr);
        return WEIR_ENOTREADY;
    }
    if (engine->unlike.handle == peer->handle)
        engine->unlike.handle = 0; /* its memory goes with ours now */
    struct region_remote *remote = &engine->regions.remotes[index];
    engine->remote_free = remote->next_free;
    tables_lock(engine);
    if (remote->id == 0)
        remote->id = handle_first(index);
    found_remote(engine, remote, peer->party);
    remote->raddr = rmr.raddr;
    remote->rkey = rmr.rkey;
    remote->length = descriptor->length;
    remote->access = descriptor->access;
    remote->rmr = rmr;
    remote->here = own ? descriptor->memory_id : 0;
    memcpy(remote->instance, descriptor->instance, sizeof(remote->instance));
    remote->named = named != NULL ? named->entry : 0;
    atomic_store(&remote->users, 0);
    remote->live = true;
    engine->regions.version++;
    tables_unlock(engine);
    remote_out->id = remote->id;
    *rmr_out = rmr;
    return WEIR_OK;
}

/* An import whose peer has not answered is tried again for so long. Others have the engine in the
 * pauses. */
enum { IMPORT_WAIT_MS = 5 };
#define IMPORT_PAUSE_NS 1000000
#define IMPORT_NS       UINT64_C(1000000000)

/* Not the engine's clock, which only goes on when somebody sees to it. */
static uint64_t real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int memory_import(weir_engine *engine, weir_peer peer, const struct wire_descriptor *descriptor,
                  const struct name_answer *named, weir_remote *remote_out) {
    weir_remote remote = {0};
    struct weir_rmr rmr = {0};
    uint64_t end = 0;
    int rc;
    for (bool last = false;; last = real_ns() >= end) {
        own_enter(engine);
        rc = import(engine, peer, descriptor, named, end == 0 ? IMPORT_WAIT_MS : 0, &remote, &rmr);
        own_leave(engine);
        if (rc != WEIR_EINPROGRESS || last)
            break;
        if (end == 0)
            end = real_ns() + IMPORT_NS;
        nanosleep(&(struct timespec){.tv_nsec = IMPORT_PAUSE_NS}, NULL);
    }
    if (rc != WEIR_OK)
        return rc == WEIR_EINPROGRESS ? WEIR_EAGAIN : rc;
    /* Nobody else knows the handle yet. */
    if (engine->device_ops->import_populate != NULL && !is_own(engine, descriptor))
        engine->device_ops->import_populate(engine->device, &rmr);
    *remote_out = remote;
    return WEIR_OK;
}

int weir_memory_import(weir_engine *engine, weir_peer peer, const void *descriptor, size_t length,
                       weir_remote *remote_out) {
    struct wire_descriptor decoded;
    if (engine == NULL || descriptor == NULL || remote_out == NULL ||
        wire_descriptor_decode(descriptor, length, &decoded) != WEIR_OK)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    return memory_import(engine, peer, &decoded, NULL, remote_out);
}

static int forget(weir_engine *engine, weir_remote handle) {
    struct region_remote *remote = region_remote(&engine->regions, handle.id);
    if (remote == NULL)
        return WEIR_ESTALE;
    tables_lock(engine);
    bool busy = atomic_load(&remote->users) > 0;
    if (!busy) {
        remote->live = false;
        found_remote(engine, remote, 0);
        engine->regions.version++;
        remote->id = handle_next(remote->id);
    }
    tables_unlock(engine);
    if (busy)
        return WEIR_EBUSY;
    names_import_gone(engine, remote->named);
    /* An entry that is neither live nor free is the caller's, so the engine can be let go. */
    bool own = remote->here != 0;
    if (engine->device_ops->import_unmap != NULL && !own) {
        own_leave(engine);
        engine->device_ops->import_unmap(engine->device, &remote->rmr);
        own_enter(engine);
    }
    if (!own)
        engine->device_ops->mr_forget(engine->device, &remote->rmr);
    remote->next_free = engine->remote_free;
    engine->remote_free = handle_index(handle.id);
    return WEIR_OK;
}

int weir_remote_release(weir_engine *engine, weir_remote remote) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    int rc = forget(engine, remote);
    own_leave(engine);
    return rc;
}

int weir_remote_query(weir_engine *engine, weir_remote handle, uint64_t *length_out,
                      uint32_t *access_out) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    tables_lock(engine);
    const struct region_remote *remote = region_remote(&engine->regions, handle.id);
    if (remote != NULL && length_out != NULL)
        *length_out = remote->length;
    if (remote != NULL && access_out != NULL)
        *access_out = remote->access;
    tables_unlock(engine);
    return remote != NULL ? WEIR_OK : WEIR_ESTALE;
}
