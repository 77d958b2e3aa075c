/* SPDX-License-Identifier: Apache-2.0 */
/* shm.h: the parts that the files of the shm backend share: its device, QPs, links and memory
 * tables.
 *
 * The backend plays reliable connections (RC) between processes of one host. The
 * initiator's side does all the work inside post_send: it checks the target's
 * state and rights in the target's segment (segment.h) and copies. So every WR is
 * complete when the post returns; only failures and receives give completions.
 *
 *   shm.c     open, close, caps           post.c  post_send, post_recv
 *   link.c    other devices, their death  poll.c  completions, events, sleeping
 *   memory.c  regions, ours and imported  copy.c  the copy loops
 *   qp.c      QPs and receive rings       choose.c  which loop, by measurement
 *   place.c   where devices meet          segment.c the shared memory itself
 *   probe.c   what works here, variables  hand.c    descriptors for others, and theirs
 *   tracer.c  who may reach into this process
 *
 * Invariants:
 *  - Everything here is private to the thread that has the engine, but for what hand.c
 *    says and what the device's mutex guards: own regions come and go on any thread, and
 *    the release of one looks at the QPs. Other processes see only the segment.
 *  - Nothing that decides about safety is kept in the segment alone: bounds, keys
 *    and buffers of our own memory are in private tables.
 *  - Allocation only at open, at registration, import, QP creation and connection. */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "hand.h"
#include "order.h"
#include "ports.h"
#include "segment.h"
#include "source.h"

#define SHM_MESSAGE_BYTES_MAX (UINT64_C(1) << 30)
#define SHM_POST_BYTES_MAX    (UINT64_C(4) << 20)
#define SHM_INLINE_BYTES_MAX  1024u
#define SHM_DEPTH_MAX         65536u
#define SHM_RING_BYTES_MAX    (UINT64_C(64) << 20) /* one QP's receive ring */
#define SHM_QPS_FIRST         64u                  /* indexes in use before more are needed */
#define SHM_CQ_CAPACITY       (1u << 24)           /* all QPs' depths together */
#define SHM_LINK_BUCKETS      64u                  /* at first */
#define SHM_TABLE_CHUNK       1024u                /* entries allocated at a time */
#define SHM_IMPORT_INDEX_BITS 21u
#define SHM_IMPORTS_MAX       (1u << SHM_IMPORT_INDEX_BITS)
#define SHM_MR_INDEX_BITS     16u
#define SHM_RELEASE_WAIT_NS   UINT64_C(100000000)
#define SHM_ASKED_MAX         256u                 /* imports that wait for an answer */
#define SHM_ASKED_NS          UINT64_C(5000000000) /* since the last call about them */
#define SHM_REVOKE_WAIT_NS    UINT64_C(1000000000)
#define SHM_HEALTH_POLLS      16u  /* look at the clock every so many polls: a power of two */
#define SHM_WATCHED_MAX       4u   /* rings that a poll looks at itself: a line each */
#define SHM_WATCH_IDLE_POLLS  256u /* without a message: another QP may take the place */
#define SHM_HEALTH_PERIOD_NS  UINT64_C(1000000)
#define SHM_EPOLL_BATCH       16
#define SHM_EPOLL_ROUNDS      64

#define SHM_LIKELY(x)         __builtin_expect(!!(x), 1)
#define SHM_UNLIKELY(x)       __builtin_expect(!!(x), 0)

/* Another device (or our own) whose segment we have mapped. One per segment. */
struct shm_link {
    struct shm_link *next; /* in its bucket */
    struct seg_map *map;
    uint64_t base; /* where its segment lies in its process */
    uint64_t nonce;
    uint32_t references; /* QPs and imports */
    int32_t owner_pid;   /* as it is to itself */
    int32_t pid;         /* as it is to us; 0: it has none here */
    int open_error;      /* why it was not opened: then it is dead */
    int ask_fd;          /* while it is being opened: where the answer comes; else -1 */
    int pidfd;           /* -1: not known */
    int life_fd;         /* see hand.h */
    int bell_fd;
    bool dead;
    bool ordered;            /* its owner makes barriers for our threads, order.h */
    bool self;               /* a device of this very process */
    struct weir_qp *qps;     /* connected over it */
    struct weir_qp *waiting; /* to be, when it is open */
};

/* Our own memory. An entry that is taken is its owner's: a thread that posts with its key has the
 * key from that owner. */
struct shm_mr {
    uint64_t base;
    uint64_t length;
    uint64_t mapped_bytes; /* 0: the application's */
    uint64_t key;          /* as in its entry, which peers can write: with hand_lock; 0: released */
    uint32_t lkey;         /* 0: free */
    uint32_t generation;
    uint32_t access;
    int fd;             /* of the memfd; -1 */
    bool is_exported;   /* peers may know of it */
    uint32_t next_free; /* guarded by the mutex */
};

/* A peer's memory. One line: the path of a transfer reads all of it. */
struct shm_import {
    const _Atomic uint64_t *live; /* the key's place in the target's segment */
    uint64_t key;
    uint64_t base; /* mapped: where in our process; else in the target's */
    uint64_t length;
    struct shm_link *link;
    uint32_t rkey; /* 0: free */
    uint32_t generation;
    uint32_t access;
    uint32_t kind;
    uint32_t next_free;
};
_Static_assert(sizeof(struct shm_import) <= 64, "one line");

struct shm_recv {
    uint64_t wr_id;
    void *buffer;
};

/* A failed or flushed send that was not polled yet. */
struct shm_failed {
    uint64_t wr_id;
    uint32_t status;
};

enum shm_qp_state { QP_INIT = 1, QP_CONNECTING, QP_READY, QP_ERROR };

/* Two regions, of 8 bytes or more, and what may be written from one to the other. */
struct shm_bounds {
    uint64_t keys; /* lkey and rkey, as they lie in a WR */
    uint64_t local;
    uint64_t local_limit; /* offsets above it have less than 8 bytes behind them */
    uint64_t remote;
    uint64_t remote_limit;
};

/* The permission found for the last write over mapped memory: as long as the next has the same
 * keys, and the region its key, only the bounds are left to check. A pair that names nothing is
 * never live; any thread may make it so. */
struct shm_pair {
    struct shm_bounds bounds;
    const _Atomic uint64_t *_Atomic live;
    uint64_t live_key;
    uint64_t word_keys; /* the keys, if a post needs no barrier of ours; else 0: no keys */
};

struct weir_qp {
    /* read by every post */
    uint32_t state;   /* enum shm_qp_state */
    bool ordered;     /* as link->ordered */
    uint32_t tx_next; /* messages sent */
    struct seg_qp *remote;
    struct seg_qp *shared; /* our own entry */
    uint64_t remote_ready; /* what its state word must be */
    struct shm_pair pair;
    struct shm_pair direct; /* of shm_post_direct: its memory alone, no local side */
    struct weir_device *device;
    struct shm_link *link;
    uint8_t *tx_ring;
    bool tx_backed; /* we have backed it */
    bool rx_backed; /* the peer has backed ours, as last seen */
    uint64_t tx_secret;
    uint32_t tx_mask;
    uint32_t tx_cell_bytes;
    uint32_t tx_bytes_max;
    uint32_t tx_posted; /* the remote's receives, as last seen */
    uint64_t proof;     /* what was last written to the peer's guard */
    uint64_t given_up;  /* the peer's busy word in a call that was waited for in vain; or 0 */

    /* receiving */
    uint8_t *rx_ring;
    uint64_t rx_secret;
    uint32_t rx_next;   /* messages taken */
    uint32_t rx_posted; /* receives posted */
    uint32_t rx_mask;
    uint32_t rx_cell_bytes;
    struct shm_recv *recvs; /* [rx_mask + 1] */

    /* failed sends: a ring of sq_depth */
    struct shm_failed *failed;
    uint32_t failed_head;
    uint32_t failed_count;

    uint32_t sq_depth;
    uint32_t rq_depth;
    uint32_t recv_bytes_max;
    uint32_t tag;
    uint32_t index;
    uint32_t remote_index;
    uint32_t chunk_first;
    uint32_t chunk_count;
    uint64_t key;
    uint32_t async;      /* bit per enum weir_async_type, not told yet */
    int connect_error;   /* of CONNECTED */
    uint32_t blob_index; /* while connecting: what the other side said of its QP, */
    uint64_t blob_key;
    struct shm_link *link_waited; /* and the link that is being opened */
    uint32_t message_poll;        /* the device's poll that last found a message: while watched */
    bool is_watched;              /* on the device's list of them */
    bool is_flushing;             /* every message was taken; receives flush */
    bool is_ready;                /* on the device's ready list */
    bool is_async;
    struct weir_qp *ready_next;
    struct weir_qp *async_next;
    struct weir_qp *link_next;
    struct weir_qp *all_next;
};

struct weir_device;

/* ---- blobs ---- */

#define BLOB_QP 0x31515057u /* "WPQ1" */
#define BLOB_MR 0x314d5057u

/* The data by which a peer finds a QP or a region. Same host: native byte order. pid and map_fd are
 * what they are to the owner. */
struct shm_blob {
    uint32_t what;
    int32_t pid;
    int32_t map_fd;
    uint32_t index;
    uint64_t nonce; /* of the segment */
    uint64_t key;   /* of the QP or region */
};
_Static_assert(sizeof(struct shm_blob) == 32, "no padding");

void blob_write(const struct weir_device *device, uint32_t what, uint32_t index, uint64_t key,
                uint8_t *out);
/* EINVAL unless it has the length, the kind and an index below limit. */
int blob_read(const uint8_t *bytes, uint32_t length, uint32_t what, uint32_t limit,
              struct shm_blob *blob_out);

/* ---- devices ---- */

/* An import whose peer is asked, for the link or for the memory. */
struct shm_asked {
    struct shm_blob blob;
    struct shm_link *link;
    int socket;        /* where the answer about the memory comes; -1: it was not asked for */
    uint64_t until_ms; /* the present call waits until then, of hand_now_ms */
    uint64_t since_ns; /* the last call */
    struct shm_asked *next;
};

struct weir_device {
    struct seg_map *map;
    struct weir_qp *ready_first; /* may have completions */
    struct weir_qp *ready_last;
    struct weir_qp *async_first;
    uint32_t ready_count;
    uint32_t polls; /* ever, modulo 2^32 */
    uint32_t watched_count;
    uint32_t sleep_number; /* of the last sleep; see seg_head */
    struct weir_qp *watched[SHM_WATCHED_MAX];
    uint64_t health_last_ns;
    _Atomic uint32_t mr_count; /* entries ever handed out; guarded where it grows */
    struct shm_mr *mrs[SHM_MRS_MAX / SHM_TABLE_CHUNK];
    struct shm_import *imports[SHM_IMPORTS_MAX / SHM_TABLE_CHUNK];
    struct shm_asked
        *asked; /* those that wait for an answer, and for the next call: the latest first */
    uint32_t asked_count;

    /* Guards the free entries of mrs, and who is in `all` and `qps` and linked to whom
     * against the threads that release memory. Held for no longer than a look at all. */
    pthread_mutex_t mutex;
    uint32_t mr_free; /* first free + 1 */
    uint32_t import_count;
    uint32_t import_free;
    uint32_t cq_used; /* depths of all QPs */
    uint32_t opening; /* links that wait for an answer */
    int map_fd;
    int bell_fd;
    int epoll_fd;
    uint64_t nonce;
    struct shm_place place;
    struct shm_hand hand;
    bool is_traced; /* see tracer.h: with hand_lock */
    bool orders;    /* order_open's answer */
    struct weir_env env;
    struct weir_device_caps caps;
    struct weir_qp *all;
    struct shm_link **links; /* by nonce: link_buckets of them, a power of two */
    uint32_t link_buckets;
    uint32_t link_count;
    struct shm_link *links_first[SHM_LINK_BUCKETS];
    struct copier copier;
    struct weir_qp *qps[SHM_QPS_MAX];
    uint32_t entries_backed; /* of the QP entries of the segment, the first so many */
    uint32_t proofs_backed;  /* of the proofs in its guard, likewise */
    bool is_revoked;         /* the guard is gone: the owner closes */
    bool backs_rings;        /* senders cannot: see segment.h */
    uint32_t qp_next_index;
    uint32_t qp_index_end;                /* indexes go round below it */
    uint32_t chunk_hint;                  /* no free chunk is below it */
    uint64_t chunks[SHM_CHUNKS_MAX / 64]; /* bit set: taken */
};

extern const struct weir_device_ops shm_device_ops;

/* ---- choose.c ---- */

/* The fastest of the loops for each length, by a measurement of some milliseconds. Any
 * thread. */
void copy_measure(const struct copy_loops *loops, const struct weir_env *env,
                  struct copy_choice *choice_out);
/* The loops that this process uses: measured when the first device is opened, but for what the
 * environment says (get is getenv(3)). EINVAL: nonsense. Any thread. */
int copy_choose(const struct weir_env *env, char *(*get)(const char *name),
                struct copy_choice *choice_out);
/* The variable, as device_setting has it. */
void copy_setting(char *(*get)(const char *name), struct weir_device_setting *out);

/* ---- link.c ---- */

/* The table of links, which is empty. */
void links_open(struct weir_device *device);
void links_close(struct weir_device *device);

/* The link to the segment that a blob names, with one more reference: open, or EINPROGRESS
 * and being opened (*link_out is written then, too). from: the QP that is to be connected over it,
 * or NULL; the descriptors that the other device needs for a link to us go along. EINVAL (no such
 * segment there), EPEER (no such device), EDENIED (another user's), EAGAIN, EMFILE, ENOMEM,
 * EDEVICE. */
int link_get(struct weir_device *device, const struct shm_blob *blob, const struct weir_qp *from,
             struct shm_link **link_out);
/* 0: the link that was asked for is open, or becomes so in time; EINPROGRESS: not yet. Else it
 * never will be: an error of link_get. */
int link_wait(struct weir_device *device, const struct shm_asked *asked);
void link_put(struct weir_device *device, struct shm_link *link);
/* Whether there is one, open or being opened. Any thread, with hand_lock. */
bool link_is_known(const struct weir_device *device, uint64_t nonce, int32_t owner_pid);
/* The process at the other end, where its pid is known and it lives; 0. */
int64_t shm_peer_process(struct weir_qp *qp);
/* The kernel's word. */
bool shm_process_is_stopped(int64_t process);
/* Asks the kernel. Notices the death as link_mark_dead does. */
bool link_is_alive(struct shm_link *link);
void link_mark_dead(struct shm_link *link);
void link_ring(const struct shm_link *link);
/* Asks the kernel, and notices nothing. Any thread, as long as the link has references. */
bool link_has_ended(const struct shm_link *link);
/* The memfd of the region that is asked for, whose number in its owner's process is `number`; -1
 * for one that is reached with process_vm, when the owner has let us in. EINPROGRESS: not in time,
 * and another call takes the answer. ESTALE, EPEER, EDENIED, EAGAIN, EINVAL, EMFILE, ENOMEM,
 * EDEVICE. */
int link_fetch(const struct weir_device *device, struct shm_asked *asked, int number, int *fd_out);
/* Takes what the epoll descriptor has: bells, answers and deaths. */
void link_health(struct weir_device *device);

/* ---- memory.c ---- */

int shm_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int shm_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int shm_mr_release(struct weir_device *device, const struct weir_mr *mr);
void shm_revoke(struct weir_device *device);
void shm_import_populate(struct weir_device *device, const struct weir_rmr *rmr);
void shm_import_unmap(struct weir_device *device, const struct weir_rmr *rmr);
void *shm_import_address(struct weir_device *device, const struct weir_rmr *rmr, bool *ordered_out);
int shm_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out);
int shm_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out);
/* The link does not open: nothing is asked over it any more. */
void memory_unasked(struct weir_device *device, const struct shm_link *link);
/* Ends the questions that nobody has come back for, and those to the dead. */
void memory_sweep(struct weir_device *device);
void shm_mr_forget(struct weir_device *device, const struct weir_rmr *rmr);
/* Asks the kernel, unless the import is live. */
bool import_is_released(const struct shm_import *import);
bool shm_mr_is_gone(struct weir_device *device, const struct weir_rmr *rmr);
void memory_close(struct weir_device *device);

static inline struct shm_mr *mr_at(const struct weir_device *device, uint32_t index) {
    return &device->mrs[index / SHM_TABLE_CHUNK][index % SHM_TABLE_CHUNK];
}

/* NULL: no such key. */
static inline struct shm_mr *mr_find(const struct weir_device *device, uint32_t lkey) {
    uint32_t index = lkey & ((1u << SHM_MR_INDEX_BITS) - 1);
    if (SHM_UNLIKELY(index >= atomic_load_explicit(&device->mr_count, memory_order_acquire)))
        return NULL;
    struct shm_mr *mr = mr_at(device, index);
    return SHM_LIKELY(mr->lkey == lkey && lkey != 0) ? mr : NULL;
}

static inline struct shm_import *import_at(const struct weir_device *device, uint32_t index) {
    return &device->imports[index / SHM_TABLE_CHUNK][index % SHM_TABLE_CHUNK];
}

static inline struct shm_import *import_find(const struct weir_device *device, uint32_t rkey) {
    uint32_t index = rkey & (SHM_IMPORTS_MAX - 1);
    if (SHM_UNLIKELY(index >= device->import_count))
        return NULL;
    struct shm_import *import = import_at(device, index);
    return SHM_LIKELY(import->rkey == rkey && rkey != 0) ? import : NULL;
}
static inline bool import_is_live(const struct shm_import *import) {
    return atomic_load_explicit(import->live, memory_order_acquire) == import->key;
}

/* Loads before it are done before loads after it. gcc's ThreadSanitizer does not model
 * fences: there, a read-modify-write of a word of one's own orders as well on every CPU
 * that it supports, and hides no race from it. */
static inline void load_fence(void) {
#if defined(__SANITIZE_THREAD__)
    _Atomic uint32_t word = 0;
    atomic_fetch_add(&word, 1);
#else
    atomic_thread_fence(memory_order_acquire);
#endif
}

/* Whether [offset, offset + length) lies in [0, size); no overflow. */
static inline bool range_inside(uint64_t offset, uint64_t length, uint64_t size) {
    return length <= size && offset <= size - length;
}

/* ---- qp.c ---- */

int shm_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                  struct weir_qp_granted *granted_out, struct weir_qp **qp_out);
int shm_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path);
int shm_qp_error(struct weir_qp *qp);
int shm_qp_destroy(struct weir_qp *qp);

/* The link that the QP waited for is open (0), or will not be. */
void qp_link_done(struct weir_qp *qp, int error);
/* To the error state by itself or on request; the WRs posted will flush. */
void qp_fail(struct weir_qp *qp);
/* No QP remembers any pair of regions any more: one is given back. Any thread. */
void qp_forget_pairs(struct weir_device *device);
/* Whether the peer is alive, and inside a post on this QP. */
bool qp_remote_is_busy(const struct weir_qp *qp);
/* A live peer that is inside a system call on this process. */
struct shm_caller {
    uint32_t index; /* of our QP */
    uint64_t busy;  /* its word: another one is another call */
    bool is_given_up;
};
/* The first of them from QP number caller_io->index on. False: none. Any thread. */
bool qp_find_calling(struct weir_device *device, struct shm_caller *caller_io);
/* This call was waited for in vain, and is not again. Any thread. */
void qp_give_up_call(struct weir_device *device, const struct shm_caller *caller);

/* Begins and ends a post: whatever touches the memory of the peer, or its ring, does so in between,
 * and only if the peer is there. First raised, then looked (remote_is_ready), against the peer's
 * first cleared (its state), then looked: where the peer makes the barrier for us, none is needed
 * here (order.h). Returns what busy_leave has to be given. */
static inline uint64_t busy_enter(struct weir_qp *qp, bool ordered) {
    uint64_t busy = atomic_load_explicit(&qp->shared->busy, memory_order_relaxed) + SHM_BUSY_POST;
    if (SHM_LIKELY(ordered)) {
        atomic_store_explicit(&qp->shared->busy, busy, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_exchange(&qp->shared->busy, busy);
    }
    return busy;
}

static inline void busy_leave(struct weir_qp *qp, uint64_t busy) {
    atomic_store_explicit(&qp->shared->busy, busy + SHM_BUSY_NEXT - SHM_BUSY_POST,
                          memory_order_release);
}

static inline bool remote_is_ready(const struct weir_qp *qp) {
    return atomic_load_explicit(&qp->remote->state, memory_order_acquire) == qp->remote_ready;
}

static inline bool pair_is_live(const struct shm_pair *pair) {
    const _Atomic uint64_t *live = atomic_load_explicit(&pair->live, memory_order_relaxed);
    return atomic_load_explicit(live, memory_order_acquire) == pair->live_key;
}

/* Remembers a write to the import that is allowed, between these bounds. */
static inline void pair_set(struct shm_pair *pair, const struct shm_bounds *bounds,
                            const struct shm_import *import) {
    pair->bounds = *bounds;
    pair->live_key = import->key;
    atomic_store_explicit(&pair->live, import->live, memory_order_relaxed);
}
/* Of the QP's pair; both regions have 8 bytes or more. */
static inline void pair_set_regions(struct weir_qp *qp, uint64_t keys, const struct shm_mr *mr,
                                    const struct shm_import *import) {
    const struct shm_bounds bounds = {.keys = keys,
                                      .local = mr->base,
                                      .local_limit = mr->length - 8,
                                      .remote = import->base,
                                      .remote_limit = import->length - 8};
    qp->pair.word_keys = qp->ordered ? keys : 0;
    pair_set(&qp->pair, &bounds, import);
}

/* ---- post.c ---- */

int shm_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out);
int shm_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey);

/* Backs the ring of a connected QP's peer: before the first message, and never again. Where the
 * kernel cannot do it, the ring's owner has. False: no memory. */
bool qp_ring_back(struct weir_qp *qp);

/* 0, or EDENIED: this process may not use process_vm on the link's. EPEER: it is gone. */
int vm_try(const struct shm_link *link);

/* As shm_post_pieces for memory that process_vm reaches; `import` is what the span names,
 * of this link, with the right. Lists that take more than one call are not its business. */
/* ...of a QP that is inside a post. */
uint32_t vm_pieces(struct weir_qp *qp, const struct weir_span *span,
                   const struct shm_import *import, const weir_segment *segments, uint32_t count);

void shm_direct_order(struct weir_device *device);
int shm_post_direct(struct weir_qp *qp, const struct weir_direct_to *to,
                    const struct weir_direct *directs, uint32_t count, uint64_t *watch_out);
int shm_read_direct(struct weir_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t *words_out,
                    uint32_t count);

/* ---- pieces.c ---- */

uint32_t shm_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count);

/* ---- probe.c ---- */

/* The index-th environment variable that the backend reads; false past the last. */
bool shm_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out);
int shm_probe(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out);
int shm_glance(struct weir_device_caps *caps_out);
/* The device's capabilities at a place. ENODEVICE, EINVAL, EMFILE. */
int caps_fill(const struct shm_place *place, struct weir_device_caps *caps_out);

/* ---- poll.c ---- */

void qp_make_ready(struct weir_qp *qp);
void qp_forget_ready(struct weir_qp *qp);
/* Senders mark the QP again; a message that is there already is not forgotten. */
void qp_unwatch(struct weir_qp *qp);
void qp_raise(struct weir_qp *qp, enum weir_async_type type);
int shm_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max);
int shm_events(struct weir_device *device, struct weir_async *events_out, int max);
int shm_fd(struct weir_device *device);
int shm_arm(struct weir_device *device);
void shm_disarm(struct weir_device *device);

static inline struct seg_cell *ring_cell(uint8_t *ring, uint32_t cell_bytes, uint32_t mask,
                                         uint32_t number) {
    return (struct seg_cell *)(void *)(ring + (uint64_t)(number & mask) * cell_bytes);
}

#endif
