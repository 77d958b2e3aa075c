/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: regions of our own and regions imported from peers.
 *
 * Owns both tables (in chunks, so that small engines stay small), the imports that wait for their
 * peers' answers, and the MR entries of our segment. A region is alive for peers as long as its
 * entry holds its key; they compare it on every run of WRs.
 *
 * Allocated memory is a memfd that peers map; without rights for peers, memory like
 * any other, which takes no descriptor. After its release a peer's copy that is under
 * way can only touch pages of the memfd, which no longer are our memory. Registered
 * memory is written by the peer with process_vm_writev(2); its release waits until no
 * peer is inside such a call (SHM_BUSY_CALL, as in Dekker's mutual exclusion: it raises
 * that and then looks at the key, we clear the key and then look at it).
 *
 * Threads: our own regions are made and released on any, several at once. The mutex
 * guards what entries are free; one that is taken is its owner's. Work that grows with a region's
 * size (mapping, backing, unmapping) is done with nothing held. The table of imports belongs to the
 * thread that has the engine, but the pages of an import to the one that asked for it
 * (shm_import_populate, shm_import_unmap).
 *
 * Invariants: an lkey or rkey is {generation, index}, never 0, and names one
 * region at a time. Left to others: using the regions (post.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fork.h"
#include "shm.h"

#define PAGE_BYTES UINT64_C(4096)
#define HUGE_BYTES (UINT64_C(2) << 20)
#define LENGTH_MAX (UINT64_C(1) << 46) /* less than the address space */

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The bytes that a region of length takes when mapped; of a memfd, both sides compute them. */
static uint64_t mapped_bytes(uint64_t length) {
    return round_up(length, length >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES);
}

/* The key of a table entry that is handed out once more; never 0. */
static uint32_t next_key(uint32_t *generation, uint32_t index, uint32_t index_bits) {
    *generation = (*generation + 1) & ((1u << (32 - index_bits)) - 1);
    if (*generation == 0)
        *generation = 1;
    return *generation << index_bits | index;
}

static uint64_t random_key(struct weir_device *device) {
    uint64_t key = 0;
    while (key == 0)
        device->env.ops->entropy(device->env.self, &key, sizeof key);
    return key;
}

/* ---- mapping ---- */

/* Maps a memfd, or (-1) private memory; large ones on a huge-page boundary and with huge
 * pages where the kernel gives them (to shared memory: shmem_enabled=advise). NULL: no
 * room. */
static void *map_pages(int fd, uint64_t bytes, int protection) {
    if (bytes < HUGE_BYTES)
        return seg_mmap(NULL, bytes, protection, 0, fd);
    uint64_t span = bytes + HUGE_BYTES;
    uint8_t *hole = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED)
        return NULL;
    uint64_t skip = -(uint64_t)(uintptr_t)hole & (HUGE_BYTES - 1);
    void *map = seg_mmap(hole + skip, bytes, protection, MAP_FIXED, fd);
    if (map == NULL) {
        munmap(hole, span);
        return NULL;
    }
    if (skip != 0)
        munmap(hole, skip);
    munmap(hole + skip + bytes, span - skip - bytes);
    madvise(map, bytes, MADV_HUGEPAGE);
    return map;
}

/* Backs a new mapping with zeroed memory now: running out is then an error here and not a
 * signal later. madvise(2): MADV_POPULATE_WRITE since Linux 5.14; before that, private memory is
 * backed by touching it. */
static int populate_new(int fd, void *map, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (madvise(map, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (fd < 0 && errno != EINVAL)
        return WEIR_ENOMEM;
#endif
    if (fd >= 0)
        return fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : WEIR_ENOMEM;
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES)
        ((volatile uint8_t *)map)[at] = 0;
    return 0;
}

/* ---- our own ---- */

/* With the mutex held: makes sure that there is a free entry; its index. */
static int mr_reserve(struct weir_device *device, uint32_t *index_out) {
    uint32_t count = atomic_load_explicit(&device->mr_count, memory_order_relaxed);
    uint32_t index = device->mr_free != 0 ? device->mr_free - 1 : count;
    if (index >= SHM_MRS_MAX)
        return WEIR_EAGAIN;
    struct shm_mr **chunk = &device->mrs[index / SHM_TABLE_CHUNK];
    if (*chunk == NULL)
        *chunk = device->env.ops->alloc(device->env.self, SHM_TABLE_CHUNK * sizeof **chunk);
    if (*chunk == NULL)
        return WEIR_ENOMEM;
    struct seg_mr *entry = &device->map->mrs[index];
    int rc = seg_back(device->map_fd, device->map, entry, sizeof *entry);
    if (rc == 0)
        *index_out = index;
    return rc;
}

/* Takes an entry that is backed on both sides: from now on the caller's. */
static int mr_take(struct weir_device *device, uint32_t *index_out) {
    pthread_mutex_lock(&device->mutex);
    uint32_t index;
    int rc = mr_reserve(device, &index);
    if (rc == 0) {
        if (device->mr_free != 0)
            device->mr_free = mr_at(device, index)->next_free;
        else
            atomic_store_explicit(&device->mr_count, index + 1, memory_order_release);
        *index_out = index;
    }
    pthread_mutex_unlock(&device->mutex);
    return rc;
}

static void mr_put(struct weir_device *device, uint32_t index) {
    pthread_mutex_lock(&device->mutex);
    mr_at(device, index)->next_free = device->mr_free;
    device->mr_free = index + 1;
    pthread_mutex_unlock(&device->mutex);
}

/* Fills the entry that was taken and publishes it to peers. Cannot fail. */
static void mr_publish(struct weir_device *device, uint32_t index, const struct shm_mr *wanted,
                       uint64_t inode, struct weir_mr *mr_out) {
    struct shm_mr *mr = mr_at(device, index);
    mr->base = wanted->base;
    mr->length = wanted->length;
    mr->mapped_bytes = wanted->mapped_bytes;
    mr->access = wanted->access;
    mr->fd = wanted->fd;
    mr->is_exported = false;
    mr->lkey = next_key(&mr->generation, index, SHM_MR_INDEX_BITS);
    struct seg_mr *entry = &device->map->mrs[index];
    entry->base = mr->base;
    entry->length = mr->length;
    entry->inode = inode;
    entry->fd = mr->fd;
    entry->access = mr->access & WEIR_ACCESS_ALL;
    entry->kind = mr->fd >= 0 ? SHM_KIND_MAPPED : SHM_KIND_PROCESS;
    uint64_t key = random_key(device);
    hand_lock(device);
    mr->key = key;
    hand_offer(device, index);
    hand_unlock(device);
    atomic_store(&entry->key, key);
    mr_out->lkey = mr->lkey;
    mr_out->cookie = index;
    mr_out->base = (void *)(uintptr_t)mr->base;
    mr_out->length = mr->length;
}

static bool access_is_known(uint32_t access) {
    return (access & ~(uint32_t)WEIR_ACCESS_ALL) == 0;
}

int shm_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    uint64_t start = (uint64_t)(uintptr_t)base;
    if (base == NULL || length == 0 || start + length < start || !access_is_known(access))
        return WEIR_EINVAL;
    uint32_t index;
    int rc = mr_take(device, &index);
    if (rc != 0)
        return rc;
    struct shm_mr mr = {.base = start, .length = length, .access = access, .fd = -1};
    mr_publish(device, index, &mr, 0, mr_out);
    return 0;
}

/* A memfd of the bytes; without rights for peers, who would fetch it, none (-1). */
static int memfd_for(uint64_t bytes, uint32_t access, int *fd_out, uint64_t *inode_out) {
    *fd_out = -1;
    *inode_out = 0;
    if (access == 0)
        return 0;
    int fd = seg_memfd("weir-memory", bytes);
    if (fd < 0)
        return fd;
    if (seg_check(fd, inode_out) != bytes) {
        fork_close(fd);
        return WEIR_EDEVICE;
    }
    *fd_out = fd;
    return 0;
}

/* Makes and backs the memory of a region; fills in what is known of it. */
static int mr_map(uint64_t length, struct shm_mr *mr, uint64_t *inode_out) {
    uint64_t bytes = mapped_bytes(length);
    int rc = memfd_for(bytes, mr->access, &mr->fd, inode_out);
    if (rc != 0)
        return rc;
    void *map = map_pages(mr->fd, bytes, PROT_READ | PROT_WRITE);
    rc = map == NULL ? WEIR_ENOMEM : populate_new(mr->fd, map, bytes);
    if (rc != 0) {
        if (map != NULL)
            munmap(map, bytes);
        if (mr->fd >= 0)
            fork_close(mr->fd);
        return rc;
    }
    mr->base = (uint64_t)(uintptr_t)map;
    mr->length = length;
    mr->mapped_bytes = bytes;
    return 0;
}

int shm_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out) {
    if (length == 0 || !access_is_known(access & ~WEIR_MR_LENT))
        return WEIR_EINVAL;
    if (length > LENGTH_MAX)
        return WEIR_ENOMEM;
    uint32_t index;
    int rc = mr_take(device, &index);
    if (rc != 0)
        return rc;
    struct shm_mr mr = {.access = access};
    uint64_t inode;
    rc = mr_map(length, &mr, &inode);
    if (rc == 0)
        mr_publish(device, index, &mr, inode, mr_out);
    else
        mr_put(device, index);
    return rc;
}

/* Until every peer that was inside a system call when the key was cleared has left it. Each is
 * bounded (VM_CALL_BYTES); a stopped process is not, so this gives up in time, and waits for no
 * call twice: an engine that is closed has many memories. Behind a revoke, which has waited for
 * all, it waits for none: a peer can say of itself that it is in another one, again and again. */
static int wait_for_peers(struct weir_device *device) {
    struct shm_caller caller = {.index = 0};
    uint64_t start = device->env.ops->now(device->env.self);
    for (; qp_find_calling(device, &caller); caller.index++) {
        struct shm_caller same = caller;
        while (qp_find_calling(device, &same) && same.index == caller.index &&
               same.busy == caller.busy) {
            if (!same.is_given_up && !device->is_revoked &&
                device->env.ops->now(device->env.self) - start <= SHM_RELEASE_WAIT_NS) {
                sched_yield();
                continue;
            }
            qp_give_up_call(device, &caller);
            return WEIR_EBUSY;
        }
    }
    return 0;
}

int shm_mr_release(struct weir_device *device, const struct weir_mr *mr_named) {
    struct shm_mr *mr = mr_find(device, mr_named->lkey);
    if (mr == NULL)
        return WEIR_EINVAL;
    uint32_t index = mr_named->lkey & (SHM_MRS_MAX - 1);
    atomic_store(&device->map->mrs[index].key, 0);
    hand_lock(device); /* the descriptor may be closed, and its number another file's */
    mr->key = 0;
    hand_unlock(device);
    if (mr->mapped_bytes == 0 && mr->is_exported) {
        int rc = wait_for_peers(device);
        if (rc != 0)
            return rc;
    }
    mr->lkey = 0;
    qp_forget_pairs(device);
    if (mr->fd >= 0) {
        /* Peers may keep the memfd mapped. Unless they are lent, its pages go back all the same. */
        if ((mr->access & WEIR_MR_LENT) == 0)
            fallocate(mr->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      (off_t)mr->mapped_bytes);
        fork_close(mr->fd);
    }
    if (mr->mapped_bytes != 0)
        munmap((void *)(uintptr_t)mr->base, mr->mapped_bytes);
    mr_put(device, index);
    return 0;
}

/* Gives up every call that is under way, if `ends`. False: none is that was not given up. */
static bool calls_look(struct weir_device *device, bool ends) {
    bool found = false;
    struct shm_caller caller = {.index = 0};
    for (; qp_find_calling(device, &caller); caller.index++) {
        found = found || !caller.is_given_up;
        if (ends)
            qp_give_up_call(device, &caller);
    }
    return found;
}

/* A call that is held before its first word moves nothing any more. One that is past it is waited
 * for: it is bounded (VM_CALL_BYTES), and nothing holds it but its own source memory. */
void shm_revoke(struct weir_device *device) {
    bool revoked = seg_revoke(device->map);
    uint64_t start = device->env.ops->now(device->env.self);
    while (calls_look(device, false) &&
           device->env.ops->now(device->env.self) - start <= SHM_REVOKE_WAIT_NS)
        sched_yield();
    (void)calls_look(device, true);
    device->is_revoked = revoked; /* else those that were held on their way may still come */
}

int shm_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out) {
    struct shm_mr *own = mr_find(device, mr->lkey);
    if (own == NULL)
        return WEIR_EINVAL;
    uint32_t index = mr->lkey & (SHM_MRS_MAX - 1);
    uint64_t key = atomic_load(&device->map->mrs[index].key);
    if (key == 0)
        return WEIR_EINVAL; /* its release has begun */
    own->is_exported = true;
    blob_write(device, BLOB_MR, index, key, blob_out);
    *blob_length_out = sizeof(struct shm_blob);
    return 0;
}

/* ---- a peer's ---- */

static int import_reserve(struct weir_device *device, uint32_t *index_out) {
    uint32_t index = device->import_free != 0 ? device->import_free - 1 : device->import_count;
    if (index >= SHM_IMPORTS_MAX)
        return WEIR_EAGAIN;
    struct shm_import **chunk = &device->imports[index / SHM_TABLE_CHUNK];
    if (*chunk == NULL)
        *chunk = device->env.ops->alloc(device->env.self, SHM_TABLE_CHUNK * sizeof **chunk);
    if (*chunk == NULL)
        return WEIR_ENOMEM;
    *index_out = index;
    return 0;
}

static int protection_of(uint32_t access) {
    return (access & WEIR_ACCESS_REMOTE_WRITE) != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
}

/* Maps a peer's memfd for no more than the rights it gave. EINVAL if the descriptor
 * is not the memfd that the entry tells of, or could shrink under the mapping. */
static int map_import(const struct weir_device *device, struct shm_asked *asked,
                      const struct seg_mr *entry, struct shm_import *import) {
    int fd;
    int fetched = link_fetch(device, asked, entry->fd, &fd);
    if (fetched != 0)
        return fetched;
    if (fd < 0)
        return WEIR_EINVAL;
    uint64_t inode, bytes = mapped_bytes(import->length);
    int rc = WEIR_EINVAL;
    if (seg_check(fd, &inode) >= bytes && inode == entry->inode) {
        void *map = map_pages(fd, bytes, protection_of(import->access));
        rc = map == NULL ? WEIR_ENOMEM : 0;
        import->base = (uint64_t)(uintptr_t)map;
    }
    fork_close(fd);
    return rc;
}

/* Whether the memory can be reached with process_vm. Where that is a matter of who asks, its
 * owner is asked to let us in. */
static int reach_import(const struct weir_device *device, struct shm_asked *asked) {
    const struct shm_link *link = asked->link;
    int rc = vm_try(link), fd = -1;
    if (rc != WEIR_EDENIED || link->self)
        return rc;
    rc = link_fetch(device, asked, -1, &fd);
    if (fd >= 0)
        fork_close(fd);
    if (rc != 0)
        return rc;
    return fd >= 0 ? WEIR_EINVAL : vm_try(link);
}

/* Checks the entry that a blob names, once, against what the caller knows. */
static int import_open(const struct weir_device *device, struct shm_asked *asked, uint64_t length,
                       uint32_t access, struct shm_import *import) {
    const struct shm_blob *blob = &asked->blob;
    const struct seg_mr *shared = &asked->link->map->mrs[blob->index];
    if (atomic_load(&shared->key) != blob->key)
        return WEIR_ESTALE;
    struct seg_mr entry;
    memcpy(&entry, (const void *)shared, sizeof entry);
    if (entry.length != length || (access & ~entry.access) != 0 || length == 0 ||
        length > LENGTH_MAX || entry.base + length < entry.base)
        return WEIR_EINVAL;
    import->link = asked->link;
    import->live = &shared->key;
    import->key = blob->key;
    import->length = length;
    import->access = access;
    import->kind = entry.kind;
    import->base = entry.base;
    if (entry.kind == SHM_KIND_MAPPED)
        return map_import(device, asked, &entry, import);
    return entry.kind == SHM_KIND_PROCESS ? reach_import(device, asked) : WEIR_EINVAL;
}

static void asked_end(struct weir_device *device, struct shm_asked *asked) {
    if (asked->socket >= 0)
        fork_close(asked->socket);
    if (asked->link != NULL)
        link_put(device, asked->link);
    device->env.ops->free(device->env.self, asked, sizeof *asked);
}

/* Off the list. */
static struct shm_asked *asked_take(struct weir_device *device, struct shm_asked **at) {
    struct shm_asked *asked = *at;
    *at = asked->next;
    device->asked_count--;
    return asked;
}

void memory_unasked(struct weir_device *device, const struct shm_link *link) {
    for (struct shm_asked **at = &device->asked; *at != NULL;) {
        if ((*at)->link == link)
            asked_end(device, asked_take(device, at));
        else
            at = &(*at)->next;
    }
}

void memory_sweep(struct weir_device *device) {
    if (device->asked == NULL)
        return;
    uint64_t now = device->env.ops->now(device->env.self);
    for (struct shm_asked **at = &device->asked; *at != NULL;) {
        if ((*at)->link->dead || now - (*at)->since_ns >= SHM_ASKED_NS)
            asked_end(device, asked_take(device, at));
        else
            at = &(*at)->next;
    }
}

/* The entry that an earlier call about the same memory has left, off the list; NULL: none. */
static struct shm_asked *asked_before(struct weir_device *device, const struct shm_blob *blob) {
    struct shm_asked **at = &device->asked;
    while (*at != NULL && memcmp(&(*at)->blob, blob, sizeof *blob) != 0)
        at = &(*at)->next;
    return *at == NULL ? NULL : asked_take(device, at);
}

/* With a link that is open, or being opened. */
static int asked_begin(struct weir_device *device, const struct shm_blob *blob, uint32_t wait_ms,
                       struct shm_asked **out) {
    struct shm_asked *asked = asked_before(device, blob);
    int rc = 0;
    if (asked == NULL) {
        asked = device->env.ops->alloc(device->env.self, sizeof *asked);
        if (asked == NULL)
            return WEIR_ENOMEM;
        *asked = (struct shm_asked){.blob = *blob, .socket = -1};
        rc = link_get(device, blob, NULL, &asked->link);
    }
    if (rc != 0 && rc != WEIR_EINPROGRESS) {
        asked->link = NULL;
        asked_end(device, asked);
        return rc;
    }
    asked->until_ms = hand_now_ms() + wait_ms;
    *out = asked;
    return 0;
}

/* For the next call. The place of the one whose last call is longest ago, if there are too many: it
 * asks anew. */
static void asked_keep(struct weir_device *device, struct shm_asked *asked) {
    struct shm_asked **last = &device->asked;
    while (device->asked_count == SHM_ASKED_MAX && (*last)->next != NULL)
        last = &(*last)->next;
    if (device->asked_count == SHM_ASKED_MAX)
        asked_end(device, asked_take(device, last));
    asked->since_ns = device->env.ops->now(device->env.self);
    asked->next = device->asked;
    device->asked = asked;
    device->asked_count++;
}

int shm_mr_import(struct weir_device *device, const uint8_t *bytes, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out) {
    struct shm_blob blob;
    int rc = blob_read(bytes, blob_length, BLOB_MR, SHM_MRS_MAX, &blob);
    if (rc != 0)
        return rc;
    uint32_t index;
    rc = import_reserve(device, &index);
    if (rc != 0)
        return rc;
    struct shm_asked *asked;
    rc = asked_begin(device, &blob, wait_ms, &asked);
    if (rc != 0)
        return rc;
    struct shm_import opened = {.link = NULL};
    rc = link_wait(device, asked);
    if (rc == 0)
        rc = import_open(device, asked, length, access, &opened);
    if (rc == WEIR_EINPROGRESS)
        asked_keep(device, asked);
    else if (rc == 0)
        asked->link = NULL; /* the import's */
    if (rc != WEIR_EINPROGRESS)
        asked_end(device, asked);
    if (rc != 0)
        return rc;
    struct shm_import *import = import_at(device, index);
    if (device->import_free != 0)
        device->import_free = import->next_free;
    else
        device->import_count++;
    opened.generation = import->generation;
    opened.rkey = next_key(&opened.generation, index, SHM_IMPORT_INDEX_BITS);
    *import = opened;
    rmr_out->raddr = import->base;
    rmr_out->rkey = import->rkey;
    rmr_out->cookie = index;
    return 0;
}

/* Fills the page tables for memory that its owner has backed already, so that the
 * first transfers do not fault. Only a matter of speed: failure is ignored. */
void shm_import_populate(struct weir_device *device, const struct weir_rmr *rmr) {
#ifdef MADV_POPULATE_WRITE
    const struct shm_import *import = import_at(device, rmr->cookie);
    if (import->kind == SHM_KIND_MAPPED)
        madvise((void *)(uintptr_t)import->base, mapped_bytes(import->length),
                (import->access & WEIR_ACCESS_REMOTE_WRITE) != 0 ? MADV_POPULATE_WRITE
                                                                 : MADV_POPULATE_READ);
#else
    (void)device;
    (void)rmr;
#endif
}

static void import_unmap(struct shm_import *import) {
    if (import->kind == SHM_KIND_MAPPED)
        munmap((void *)(uintptr_t)import->base, mapped_bytes(import->length));
    import->kind = SHM_KIND_UNMAPPED;
}

void shm_import_unmap(struct weir_device *device, const struct weir_rmr *rmr) {
    import_unmap(import_at(device, rmr->cookie));
}

void *shm_import_address(struct weir_device *device, const struct weir_rmr *rmr,
                         bool *ordered_out) {
    const struct shm_import *import = import_find(device, rmr->rkey);
    if (import == NULL || import->kind != SHM_KIND_MAPPED)
        return NULL;
    *ordered_out = import->link->ordered;
    return (void *)(uintptr_t)import->base;
}

/* What a process that has ended leaves behind, or one that closes, is not released: it is gone with
 * its owner, which is told otherwise. */
bool import_is_released(const struct shm_import *import) {
    const struct shm_link *link = import->link;
    return !import_is_live(import) && !link->dead && link->map->head.magic != 0 &&
           !link_has_ended(link);
}

bool shm_mr_is_gone(struct weir_device *device, const struct weir_rmr *rmr) {
    const struct shm_import *import = import_find(device, rmr->rkey);
    return import != NULL && import_is_released(import);
}

static void import_close(struct weir_device *device, struct shm_import *import) {
    import_unmap(import);
    import->rkey = 0;
    link_put(device, import->link);
}

void shm_mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    struct shm_import *import = import_find(device, rmr->rkey);
    if (import == NULL)
        return;
    qp_forget_pairs(device);
    import_close(device, import);
    import->next_free = device->import_free;
    device->import_free = (rmr->rkey & (SHM_IMPORTS_MAX - 1)) + 1;
}

void memory_close(struct weir_device *device) {
    while (device->asked != NULL)
        asked_end(device, asked_take(device, &device->asked));
    for (uint32_t i = 0; i < device->import_count; i++) {
        struct shm_import *import = import_at(device, i);
        if (import->rkey != 0)
            import_close(device, import);
    }
    for (uint32_t i = 0; i < SHM_IMPORTS_MAX / SHM_TABLE_CHUNK; i++) {
        if (device->imports[i] != NULL)
            device->env.ops->free(device->env.self, device->imports[i],
                                  SHM_TABLE_CHUNK * sizeof *device->imports[i]);
    }
    for (uint32_t i = 0; i < SHM_MRS_MAX / SHM_TABLE_CHUNK; i++) {
        if (device->mrs[i] != NULL)
            device->env.ops->free(device->env.self, device->mrs[i],
                                  SHM_TABLE_CHUNK * sizeof *device->mrs[i]);
    }
}
