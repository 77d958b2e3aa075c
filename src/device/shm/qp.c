/* SPDX-License-Identifier: Apache-2.0 */
/* qp.c: the life of a QP: create, connect, error, destroy; and the receive rings.
 *
 * Owns the QP entries and the ring area of our segment. A ring has one cell for
 * each receive that may be posted; the sender writes cell n % cells for message n
 * once the receiver has posted more than n receives, so a cell is free again when
 * its message was taken.
 *
 * States, as in IBA 10.3.1 without the ones that nothing can tell apart here:
 *
 *            connect               the link is open      error, failed WR, bad ring
 *     INIT ──────────► CONNECTING ──────────────► READY ──────────────────────────► ERROR
 *       ├─────────────────────────────────────────► │
 *       │    connect, and the link is open already
 *       └─────────────────────────────── error ───────────────────────────────────────┘
 *
 * Invariants: the state word in the segment is written before anything that
 * relies on it; a ring is reused only when no peer can be inside an operation on
 * its QP (seg_qp.busy). Left to others: what a post does in each state. */
#include <assert.h>
#include <string.h>

#include "power.h"
#include "shm.h"

/* ---- secrets ---- */

/* Stafford's mix 13 of splitmix64: each input bit reaches each output bit. */
static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* The state word of the QP with key `owner`, connected to the one with key `other`. */
static uint64_t ready_word(uint64_t owner, uint64_t other) {
    return (mix(owner + mix(other)) & ~SHM_STATE_MASK) | SHM_STATE_READY;
}

/* The number from which the messages of a ring are numbered. */
static uint64_t ring_secret(uint64_t receiver, uint64_t sender) {
    return mix(mix(receiver) ^ sender);
}

/* ---- ring area ---- */

static bool chunk_is_taken(const struct weir_device *device, uint32_t chunk) {
    return (device->chunks[chunk / 64] >> (chunk % 64) & 1) != 0;
}

static void chunks_mark(struct weir_device *device, uint32_t first, uint32_t count, bool taken) {
    for (uint32_t chunk = first; chunk < first + count; chunk++) {
        uint64_t bit = UINT64_C(1) << (chunk % 64);
        if (taken)
            device->chunks[chunk / 64] |= bit;
        else
            device->chunks[chunk / 64] &= ~bit;
    }
}

/* First fit: connections that come and go take no more memory than those there at once. False: no
 * room. */
static bool chunks_find(struct weir_device *device, uint32_t count, uint32_t *first_out) {
    while (device->chunk_hint < SHM_CHUNKS_MAX && chunk_is_taken(device, device->chunk_hint))
        device->chunk_hint++;
    uint32_t run = 0;
    for (uint32_t chunk = device->chunk_hint; chunk < SHM_CHUNKS_MAX; chunk++) {
        run = chunk_is_taken(device, chunk) ? 0 : run + 1;
        if (run == count) {
            *first_out = chunk + 1 - count;
            return true;
        }
    }
    return false;
}

/* Indexes go round, so that a number comes back late, but not among more than are needed:
 * each has memory from its first use on. SHM_QPS_MAX: none is free. */
static uint32_t find_index(struct weir_device *device) {
    for (;;) {
        for (uint32_t looked = 0; looked < device->qp_index_end; looked++) {
            uint32_t index = device->qp_next_index;
            device->qp_next_index = index + 1 < device->qp_index_end ? index + 1 : 0;
            if (device->qps[index] == NULL)
                return index;
        }
        if (device->qp_index_end == SHM_QPS_MAX)
            return SHM_QPS_MAX;
        device->qp_next_index = device->qp_index_end;
        device->qp_index_end *= 2;
        if (device->qp_index_end > SHM_QPS_MAX)
            device->qp_index_end = SHM_QPS_MAX;
    }
}

/* ---- create ---- */

static uint32_t cell_bytes_of(uint32_t recv_bytes_max) {
    uint64_t bytes = sizeof(struct seg_cell) + recv_bytes_max;
    return (uint32_t)((bytes + SHM_LINE_BYTES - 1) / SHM_LINE_BYTES * SHM_LINE_BYTES);
}

static int check_options(const struct weir_device *device, const struct weir_qp_options *options) {
    if (options->sq_depth == 0 || options->sq_depth > SHM_DEPTH_MAX ||
        options->rq_depth > SHM_DEPTH_MAX || options->recv_bytes_max > SHM_RING_BYTES_MAX)
        return WEIR_EINVAL;
    if (options->rq_depth != 0 &&
        (uint64_t)power_of_two(options->rq_depth) * cell_bytes_of(options->recv_bytes_max) >
            SHM_RING_BYTES_MAX)
        return WEIR_ETOOBIG;
    return options->sq_depth + options->rq_depth > SHM_CQ_CAPACITY - device->cq_used ? WEIR_EAGAIN
                                                                                     : 0;
}

/* Backs an array of the segment up to the entry `index`. Entries are taken in order, and then
 * again: a page of them is backed at a time. `size` divides a page; *backed_io: how many are. */
static int array_back(const struct weir_device *device, const void *array, uint32_t size,
                      uint32_t index, uint32_t *backed_io) {
    if (index < *backed_io)
        return 0;
    uint32_t in_page = SHM_CHUNK_BYTES / size;
    uint32_t count = (index + 1 - *backed_io + in_page - 1) / in_page * in_page;
    int rc = seg_back(device->map_fd, device->map,
                      (const uint8_t *)array + (uint64_t)*backed_io * size, (uint64_t)count * size);
    if (rc == 0)
        *backed_io += count;
    return rc;
}

static int entry_back(struct weir_device *device, uint32_t index) {
    struct seg_map *map = device->map;
    int rc = array_back(device, map->qps, sizeof map->qps[0], index, &device->entries_backed);
    if (rc != 0)
        return rc;
    return array_back(device, map->guard.proofs, sizeof map->guard.proofs[0], index,
                      &device->proofs_backed);
}

/* Takes room for the ring in the segment, and backs it if its sender cannot. */
static int ring_open(struct weir_device *device, struct weir_qp *qp) {
    if (qp->rq_depth == 0)
        return 0;
    qp->rx_mask = power_of_two(qp->rq_depth) - 1;
    qp->rx_cell_bytes = cell_bytes_of(qp->recv_bytes_max);
    uint64_t bytes = ((uint64_t)qp->rx_mask + 1) * qp->rx_cell_bytes;
    qp->chunk_count = (uint32_t)((bytes + SHM_CHUNK_BYTES - 1) / SHM_CHUNK_BYTES);
    if (!chunks_find(device, qp->chunk_count, &qp->chunk_first)) {
        qp->chunk_count = 0;
        return WEIR_EAGAIN;
    }
    qp->rx_ring = device->map->rings + (uint64_t)qp->chunk_first * SHM_CHUNK_BYTES;
    int rc = device->backs_rings ? seg_back(device->map_fd, device->map, qp->rx_ring, bytes) : 0;
    if (rc != 0) {
        qp->chunk_count = 0;
        return rc;
    }
    qp->rx_backed = device->backs_rings;
    chunks_mark(device, qp->chunk_first, qp->chunk_count, true);
    return 0;
}

static size_t recvs_bytes(const struct weir_qp *qp) {
    return ((size_t)qp->rx_mask + 1) * sizeof *qp->recvs;
}

/* Gives back everything that create took except the index. */
static void qp_free(struct weir_device *device, struct weir_qp *qp) {
    const struct weir_env *env = &device->env;
    if (qp->chunk_count != 0) {
        chunks_mark(device, qp->chunk_first, qp->chunk_count, false);
        if (qp->chunk_first < device->chunk_hint)
            device->chunk_hint = qp->chunk_first;
    }
    if (qp->recvs != NULL)
        env->ops->free(env->self, qp->recvs, recvs_bytes(qp));
    if (qp->failed != NULL)
        env->ops->free(env->self, qp->failed, qp->sq_depth * sizeof *qp->failed);
    env->ops->free(env->self, qp, sizeof *qp);
}

/* Pairs that are not live whatever keys a WR has. Their other members stay: the thread that has
 * the engine may be writing them, for regions of its own. */
static void pairs_clear(struct weir_qp *qp) {
    static const _Atomic uint64_t nothing = 0; /* no region's key */
    atomic_store_explicit(&qp->pair.live, &nothing, memory_order_relaxed);
    atomic_store_explicit(&qp->direct.live, &nothing, memory_order_relaxed);
}

static int qp_alloc(struct weir_device *device, const struct weir_qp_options *options,
                    uint32_t index, struct weir_qp **qp_out) {
    const struct weir_env *env = &device->env;
    struct weir_qp *qp = env->ops->alloc(env->self, sizeof *qp);
    if (qp == NULL)
        return WEIR_ENOMEM;
    qp->device = device;
    qp->index = index;
    qp->tag = options->tag;
    qp->sq_depth = options->sq_depth;
    qp->rq_depth = options->rq_depth;
    qp->recv_bytes_max = options->recv_bytes_max;
    qp->shared = &device->map->qps[index];
    qp->state = QP_INIT;
    qp->remote_ready = SHM_STATE_NEVER;
    qp->pair.live_key = qp->direct.live_key = 1;
    pairs_clear(qp);
    int rc = entry_back(device, index);
    if (rc == 0)
        rc = ring_open(device, qp);
    if (rc == 0) {
        qp->failed = env->ops->alloc(env->self, qp->sq_depth * sizeof *qp->failed);
        qp->recvs = env->ops->alloc(env->self, recvs_bytes(qp));
        if (qp->failed == NULL || qp->recvs == NULL)
            rc = WEIR_ENOMEM;
    }
    if (rc != 0) {
        qp_free(device, qp);
        return rc;
    }
    *qp_out = qp;
    return 0;
}

/* Writes our entry; peers accept it from when key is there. */
static void entry_publish(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    device->env.ops->entropy(device->env.self, &qp->key, sizeof qp->key);
    qp->key |= 1; /* never 0 */
    struct seg_qp *entry = qp->shared;
    entry->ring_offset = qp->rq_depth == 0 ? 0 : (uint64_t)(qp->rx_ring - (uint8_t *)device->map);
    entry->cell_count = qp->rq_depth == 0 ? 0 : qp->rx_mask + 1;
    entry->cell_bytes = qp->rx_cell_bytes;
    entry->recv_bytes_max = qp->recv_bytes_max;
    atomic_store(&entry->posted, 0);
    atomic_store(&entry->watched, 0);
    atomic_store(&entry->ring_backed, 0);
    atomic_store(&entry->state, SHM_STATE_INIT);
    atomic_store(&entry->key, qp->key);
}

int shm_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                  struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    int rc = check_options(device, options);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&device->mutex);
    uint32_t index = find_index(device);
    pthread_mutex_unlock(&device->mutex);
    if (index == SHM_QPS_MAX)
        return WEIR_EAGAIN;
    struct weir_qp *qp = NULL;
    rc = qp_alloc(device, options, index, &qp);
    if (rc != 0)
        return rc;
    device->cq_used += qp->sq_depth + qp->rq_depth;
    entry_publish(qp);
    pthread_mutex_lock(&device->mutex);
    device->qps[index] = qp;
    qp->all_next = device->all;
    device->all = qp;
    pthread_mutex_unlock(&device->mutex);
    granted_out->sq_depth = qp->sq_depth;
    granted_out->rq_depth = qp->rq_depth;
    granted_out->blob_length = sizeof(struct shm_blob);
    blob_write(device, BLOB_QP, index, qp->key, granted_out->blob);
    *qp_out = qp;
    return 0;
}

/* ---- connect ---- */

/* The remote's ring, from its entry, read once and checked. */
static int ring_attach(struct weir_qp *qp, const struct shm_link *link,
                       const struct seg_qp *entry) {
    uint64_t offset = entry->ring_offset;
    uint32_t cells = entry->cell_count, cell_bytes = entry->cell_bytes;
    uint32_t bytes_max = entry->recv_bytes_max;
    if (cells == 0) { /* nothing is ever posted there: every SEND finds no receive */
        qp->tx_ring = NULL;
        return 0;
    }
    if (cells > SHM_DEPTH_MAX || (cells & (cells - 1)) != 0 || bytes_max > SHM_RING_BYTES_MAX ||
        cell_bytes != cell_bytes_of(bytes_max) || offset < offsetof(struct seg_map, rings) ||
        offset % SHM_LINE_BYTES != 0 ||
        !range_inside(offset, (uint64_t)cells * cell_bytes, sizeof(struct seg_map)))
        return WEIR_EINVAL;
    qp->tx_ring = (uint8_t *)link->map + offset;
    qp->tx_mask = cells - 1;
    qp->tx_cell_bytes = cell_bytes;
    qp->tx_bytes_max = bytes_max;
    return 0;
}

/* Takes over the reference to the link, which is open, or gives it back. */
static int attach(struct weir_qp *qp, struct shm_link *link, uint32_t index, uint64_t key) {
    struct seg_qp *remote = &link->map->qps[index];
    struct seg_qp entry;
    memcpy(&entry, (const void *)remote, sizeof entry);
    int rc = atomic_load(&remote->key) == key ? ring_attach(qp, link, &entry) : WEIR_EPEER;
    if (rc != 0) {
        link_put(qp->device, link);
        return rc;
    }
    pthread_mutex_lock(&qp->device->mutex);
    qp->remote = remote;
    qp->link = link;
    pthread_mutex_unlock(&qp->device->mutex);
    qp->link_next = link->qps;
    link->qps = qp;
    qp->remote_index = index;
    qp->ordered = link->ordered;
    qp->remote_ready = ready_word(key, qp->key);
    qp->proof = atomic_load(&link->map->guard.proofs[index].word);
    qp->tx_secret = ring_secret(key, qp->key);
    qp->rx_secret = ring_secret(qp->key, key);
    qp->state = QP_READY;
    atomic_store(&qp->shared->state, ready_word(qp->key, key));
    return 0;
}

int shm_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    if (qp->state != QP_INIT)
        return WEIR_EINVAL;
    struct shm_blob blob;
    int rc = blob_read(path->blob, path->blob_length, BLOB_QP, SHM_QPS_MAX, &blob);
    if (rc != 0)
        return rc;
    struct shm_link *link;
    rc = link_get(qp->device, &blob, qp, &link);
    if (rc == 0)
        return attach(qp, link, blob.index, blob.key);
    if (rc == WEIR_EINPROGRESS) {
        qp->state = QP_CONNECTING;
        qp->link_waited = link;
        qp->blob_index = blob.index;
        qp->blob_key = blob.key;
        qp->link_next = link->waiting;
        link->waiting = qp;
    }
    return rc;
}

/* Takes the QP from the link that it waits for; the reference is the caller's. */
static struct shm_link *stop_waiting(struct weir_qp *qp) {
    struct shm_link *link = qp->link_waited;
    struct weir_qp **at = &link->waiting;
    while (*at != qp)
        at = &(*at)->link_next;
    *at = qp->link_next;
    qp->link_waited = NULL;
    qp->state = QP_INIT;
    return link;
}

void qp_link_done(struct weir_qp *qp, int error) {
    struct shm_link *link = stop_waiting(qp);
    if (error == 0)
        error = attach(qp, link, qp->blob_index, qp->blob_key);
    else
        link_put(qp->device, link);
    qp->connect_error = error;
    qp_raise(qp, WEIR_ASYNC_CONNECTED);
}

/* ---- error, destroy ---- */

void qp_fail(struct weir_qp *qp) {
    if (qp->state == QP_ERROR)
        return;
    qp->state = QP_ERROR;
    pairs_clear(qp); /* posts take one that is live for a sign of health */
    atomic_store(&qp->shared->state, SHM_STATE_ERROR);
    qp_unwatch(qp);
    qp_make_ready(qp);
}

void qp_forget_pairs(struct weir_device *device) {
    pthread_mutex_lock(&device->mutex);
    for (struct weir_qp *qp = device->all; qp != NULL; qp = qp->all_next)
        pairs_clear(qp);
    pthread_mutex_unlock(&device->mutex);
}

int shm_qp_error(struct weir_qp *qp) {
    if (qp->state == QP_CONNECTING)
        qp_link_done(qp, WEIR_ECANCELED);
    qp_fail(qp);
    return 0;
}

bool qp_remote_is_busy(const struct weir_qp *qp) {
    /* Without a link the state word never said ready: a peer that raised busy goes no further. */
    return qp->link != NULL && (atomic_load(&qp->remote->busy) & SHM_BUSY_POST) != 0 &&
           link_is_alive(qp->link);
}

bool qp_find_calling(struct weir_device *device, struct shm_caller *caller_io) {
    bool found = false;
    pthread_mutex_lock(&device->mutex);
    for (uint32_t index = caller_io->index; index < device->qp_index_end && !found; index++) {
        const struct weir_qp *qp = device->qps[index];
        if (qp == NULL || qp->link == NULL)
            continue; /* see qp_remote_is_busy */
        uint64_t busy = atomic_load(&qp->remote->busy);
        if ((busy & SHM_BUSY_CALL) == 0 || link_has_ended(qp->link))
            continue;
        *caller_io = (struct shm_caller){index, busy, qp->given_up == busy};
        found = true;
    }
    pthread_mutex_unlock(&device->mutex);
    return found;
}

void qp_give_up_call(struct weir_device *device, const struct shm_caller *caller) {
    pthread_mutex_lock(&device->mutex);
    struct weir_qp *qp = device->qps[caller->index];
    if (qp != NULL)
        qp->given_up = caller->busy;
    pthread_mutex_unlock(&device->mutex);
}

static void unlink_qp(struct weir_qp **list, struct weir_qp *qp, bool by_link) {
    while (*list != qp)
        list = by_link ? &(*list)->link_next : &(*list)->all_next;
    *list = by_link ? qp->link_next : qp->all_next;
}

int shm_qp_destroy(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    assert(device->qps[qp->index] == qp);
    if (qp->state == QP_CONNECTING)
        link_put(device, stop_waiting(qp));
    if (qp->state != QP_INIT)
        qp_fail(qp);
    order_others(device->orders); /* the state is written, and busy is read: busy_enter */
    if (qp_remote_is_busy(qp))
        return WEIR_EBUSY;
    atomic_store(&qp->shared->key, 0);
    atomic_store(&qp->shared->state, SHM_STATE_GONE);
    qp_forget_ready(qp);
    pthread_mutex_lock(&device->mutex);
    unlink_qp(&device->all, qp, false);
    device->qps[qp->index] = NULL;
    pthread_mutex_unlock(&device->mutex);
    if (qp->link != NULL) {
        unlink_qp(&qp->link->qps, qp, true);
        link_put(device, qp->link);
    }
    device->cq_used -= qp->sq_depth + qp->rq_depth;
    qp_free(device, qp);
    return 0;
}
