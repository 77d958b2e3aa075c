/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.h: what the files of the Mooncake adapter share: the engine, its buffers, segments and
 * batches.
 *
 *     api.c            the C interface: null pointers, forks, and nothing else
 *       │
 *     submit.c ── notices.c      entries become weir's transfers; notifications
 *       │   │         │
 *       │ refresh.c ──┘          lists of buffers, asked for by threads that may block
 *       │   │
 *     batches.c segments.c local.c    the tables
 *       │
 *     engine.c ── stores/        opening, and the thread that makes progress; metadata servers
 *
 * A run is what is one transfer of weir's: tasks that follow each other in a submit, with the same
 * target and opcode, RUN_TASKS_MAX at most. Its phases:
 *
 *     POSTING ──weir has it──► POSTED ──its completion──► ENDED
 *      │  ▲  │                    │
 *      │  │  └─no room─► BACKLOG  │ the target's device refused it, or its list has changed
 *      │  └───────────────┘       ▼
 *      └──an address is not in the list──► PARKED ──the list was fetched──► POSTING, or ENDED
 *
 * Locks, the outer ones first: a segment's `refreshing` and `store_lock`; a batch's `lock`;
 * `local_lock`; `segments_lock` and a segment's `lock`; all others, which are leaves. Nothing that
 * blocks, and no copying, goes on under a lock but `refreshing`. */
#ifndef ADAPTER_H
#define ADAPTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"
#include "weir.h"

#include "store.h"

#define NAME_BYTES 512        /* of a segment's name, with its terminator */
#define VALUE_NAME "mooncake" /* the value by which peers know an adapter */
#define NOTICE_TAG UINT64_C(0x6d6f6f6e63616b65)
#define SILENT_TAG                                                                                 \
    UINT64_C(0x6d6f6f6e73746f70) /* of those that no application sees: they wake                   \
                                  * one's own thread, or ask whether there is one */
#define NOTICE_INBOX 0x6d63u     /* of notifications that are longer than weir's */
#define NS_PER_MS    UINT64_C(1000000)

enum {
    BATCH_SIZE_MAX = 1 << 20, /* tasks of a batch */
    RUN_TASKS_MAX = 4096,     /* of a run: far from segments_max, also where each is in pieces */
    SLOT_BITS = 20,           /* batches at a time: 1,048,575 */
    CHUNK_SLOTS = 256,
    CHUNKS_MAX = (1 << SLOT_BITS) / CHUNK_SLOTS,
    SEGMENTS_MAX = 65536,        /* in an engine's life */
    NOTICES_MAX = 1 << 16,       /* received and not taken by the application, */
    NOTICES_BYTES_MAX = 1 << 26, /* or so many bytes of them; then senders wait */
    WORKERS_MAX = 8,             /* threads that fetch lists */
    POSTS_MAX = 2,               /* of a run */
    REFRESHES_MAX = 3,           /* for a run */
    NOTICE_HEAD = 4              /* before a notification's strings: the length of the first */
};

/* ---- registered memory -------------------------------------------------- */

enum range_state { RANGE_COMING, RANGE_LIVE, RANGE_LEAVING, RANGE_BEING_RELEASED };
struct range {
    uintptr_t base;
    uint64_t length;
    weir_memory memory;
    uint64_t sequence; /* of the registration; part of its published name */
    char *location;
    enum range_state state;
    bool remote; /* peers have it */
};

/* ---- segments ------------------------------------------------------------ */

/* A buffer of a peer's list, imported. */
struct buffer {
    uint64_t base;
    uint64_t length;
    uint64_t sequence;
    weir_remote remote;
};

/* A run that waits for a list. */
struct parked {
    struct parked *next;
    uint32_t slot, run;
};

/* FAILED: its id was never told; the next that opens the name uses it, or any other, once no call
 * waits for it. */
enum segment_state { SEGMENT_OPENING, SEGMENT_OPEN, SEGMENT_REMOVED, SEGMENT_FAILED };
struct segment {
    char *name;
    int32_t id;
    enum segment_state state;   /* under segments_lock, as `waiters` and a FAILED one's name */
    uint32_t waiters;           /* calls that wait for another's opening */
    pthread_mutex_t refreshing; /* one fetch of the list at a time; owns what is up to `lock` */
    char address[WEIR_ADDRESS_MAX];
    bool is_doubted;          /* the last fetch failed: it may be elsewhere */
    atomic_bool is_peer_open; /* not: it was never reached, or was given up */
    atomic_bool is_left;      /* removed, and runs that ended late kept imports: to be emptied */
    weir_remote *garbage;     /* imports that are no more in the list, and were in use */
    size_t garbage_count, garbage_room;
    pthread_rwlock_t lock;
    weir_peer peer;
    struct buffer *buffers; /* by base; none overlap */
    size_t count;
    uint64_t nonce; /* of the incarnation whose list this is; 0: it was empty */
    uint64_t first; /* address of the buffer that was registered first; 0: none */
    pthread_mutex_t parked_lock;
    struct parked *parked;
    bool is_queued; /* for the workers; under the engine's work_lock */
    struct segment *next_work;
};

/* ---- batches -------------------------------------------------------------- */

struct task {
    uint64_t source, offset, length;
    uint32_t run;
    bool lost; /* its address is in no list */
};

enum phase { PHASE_POSTING, PHASE_POSTED, PHASE_BACKLOG, PHASE_PARKED, PHASE_ENDED };
struct run {
    struct segment *target;
    uint64_t nonce;        /* of the list with which it was posted last */
    uint32_t first, count; /* tasks */
    uint32_t notice;       /* index in notices and one; 0: none */
    int status;            /* when ENDED */
    uint8_t opcode;
    uint8_t posts, refreshes;
    enum phase phase;
    bool carries;  /* the notice goes in the transfer itself */
    bool is_bound; /* it waited for room in weir: meant for that incarnation */
};

/* A notification to be sent behind runs of a submit. */
struct notice {
    struct segment *target;
    uint8_t *payload;
    uint32_t length;
    uint32_t waits;   /* for so many runs, which have not ended */
    bool failed;      /* one of them did not end well: it is not sent */
    enum phase phase; /* PARKED: waits for the runs */
    int status;
    weir_memory bounce; /* of a long one: the memory that it is sent from; id 0: none */
};

struct slot {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* `open` is 0 */
    uint64_t id;          /* 0: free */
    uint64_t generation;
    uint32_t index;
    uint32_t next_free;
    uint64_t timeout_ns; /* of its transfers; 0: none */
    uint32_t size, task_count, run_count, notice_count;
    uint32_t run_room, notice_room, task_room;
    uint32_t open; /* runs and notices that have not ended */
    struct task *tasks;
    struct run *runs;
    struct notice *notices;
};
struct chunk {
    struct slot slots[CHUNK_SLOTS];
};

/* Runs and notices as completions and the backlog name them. */
#define WORK_NOTICE (UINT64_C(1) << 63)
static inline uint64_t work_of(uint32_t slot, uint32_t index) {
    return (uint64_t)slot << 32 | index;
}

/* ---- the engine ----------------------------------------------------------- */

struct mc_engine {
    weir_engine *weir;
    char name[NAME_BYTES];          /* of its own segment */
    char address[WEIR_ADDRESS_MAX]; /* at which peers reach it */
    char device[WEIR_DEVICE_NAME_MAX];
    char location[WEIR_ADDRESS_MAX]; /* address without the port */
    uint32_t port;
    uint64_t nonce;             /* of this incarnation */
    uint64_t timeout_ns;        /* of what blocks */
    uint64_t task_timeout_ns;   /* of transfers, where the batch has none of its own; 0: none */
    struct store *store;        /* NULL: P2PHANDSHAKE */
    pthread_mutex_t store_lock; /* one write of our entries at a time */
    bool is_told;               /* the server has some of them; under store_lock */

    pthread_rwlock_t local_lock;
    struct range *ranges; /* by base; none overlap */
    size_t range_count, range_room;
    uint64_t sequence;

    pthread_rwlock_t segments_lock;
    struct segment **segments; /* by id; the first is this engine itself */
    size_t segment_count;
    pthread_mutex_t opened_lock;
    pthread_cond_t opened; /* a segment's state has changed */

    pthread_mutex_t slots_lock;
    _Atomic(struct chunk *) chunks[CHUNKS_MAX];
    uint32_t chunk_count;
    uint32_t free_slot; /* index and one; 0: none */

    pthread_mutex_t backlog_lock;
    uint64_t *backlog; /* a ring of work for which weir had no room */
    size_t backlog_first, backlog_count, backlog_room;
    atomic_size_t backlog_size;

    pthread_mutex_t notices_lock;
    notify_msg_t *notices; /* received */
    size_t notice_count, notice_room, notice_bytes;
    weir_inbox inbox;

    pthread_t progress;
    bool has_progress;
    atomic_bool stopping;
    unsigned born; /* how often the process had been forked */

    atomic_uint polls; /* progress that threads of the application made, asking for statuses */

    pthread_mutex_t work_lock;
    pthread_cond_t work_there;
    struct segment *work, **work_end;
    size_t work_count; /* segments in that list */
    pthread_t workers[WORKERS_MAX];
    uint32_t worker_count, workers_idle; /* idle: also those that were woken, and do not run yet */
    bool work_over;

    pthread_mutex_t load_lock; /* of getNicLoadStats */
    uint64_t load_bytes, load_ns;
    double load_rate;

    struct mc_engine *next_alive; /* graceful.c's */
    bool is_graceful;
};

/* engine.c. device: as weir's option, NULL: MC_WEIR_DEVICE, or "auto". */
struct mc_engine *mc_open(const char *metadata, const char *name, const char *device);
/* In a child of fork(2) it frees weir's part of its parent's engine, and does nothing else. */
void mc_close(struct mc_engine *engine);
/* Whether there is an engine, and it is of this process: not its parent's. */
bool mc_is_here(const struct mc_engine *engine);
uint64_t mc_now_ns(void);
/* A line on standard error, unless MC_WEIR_QUIET is set. */
void mc_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* local.c. Results are negative, as of the C interface. */
int local_register(struct mc_engine *engine, const buffer_entry_t *list, size_t count,
                   const char *location, bool remote);
int local_unregister(struct mc_engine *engine, const void *base);
/* The live buffer that has the address, under local_lock; NULL: none. */
const struct range *local_at(const struct mc_engine *engine, uintptr_t address);
/* Writes this engine's entries: both, for a server may have lost them. 0, or MC_EMETADATA. */
int local_tell_store(struct mc_engine *engine);
void local_free(struct mc_engine *engine);

/* segments.c */
bool segments_init(struct mc_engine *engine);
void segments_free(struct mc_engine *engine);
/* Trims leading slashes; MC_EINVALID for what cannot be opened. `fresh`: with a new list. */
int32_t segment_open(struct mc_engine *engine, const char *name, bool fresh);
int segment_remove(struct mc_engine *engine, const char *name);
struct segment *segment_at(struct mc_engine *engine, int64_t id); /* open; NULL: none */
/* Of the buffer that it registered first of those that it has; 0: none, or no such segment. */
uint64_t segment_first(struct mc_engine *engine, int64_t id);
/* The buffer that has the address, under the segment's lock; NULL: none. */
const struct buffer *segment_buffer(const struct segment *segment, uint64_t address);

/* refresh.c: lists of buffers. */
/* Fetches the segment's list until the time, blocking. 0, or a code of weir's. The metadata server
 * is asked where the segment is; without `asks` only if it is not connected, or the last fetch
 * failed. */
int refresh_segment(struct mc_engine *engine, struct segment *segment, uint64_t deadline_ns,
                    bool asks);
/* Of a segment that did not open: its peer and what there is of its list are given back. */
void refresh_forget(struct mc_engine *engine, struct segment *segment);
/* The first thread that fetches lists; false: it cannot be made. */
bool refresh_start(struct mc_engine *engine);
/* Hands the segment to the workers, which fetch the list and post what is parked there. */
void refresh_later(struct mc_engine *engine, struct segment *segment);
void refresh_all(struct mc_engine *engine);
void refresh_stop(struct mc_engine *engine);

/* batches.c */
uint64_t batch_allocate(struct mc_engine *engine, size_t size);
int batch_free(struct mc_engine *engine, uint64_t id);
/* Of the transfers that are submitted to it from now on: then they end, as STATUS_TIMEOUT. */
void batch_set_timeout(struct mc_engine *engine, uint64_t id, uint64_t timeout_ns);
/* The batch, locked; NULL: there is none with this id. */
struct slot *batch_lock(struct mc_engine *engine, uint64_t id);
struct slot *slot_at(struct mc_engine *engine, uint32_t index);
void batches_free_all(struct mc_engine *engine);

/* submit.c */
int submit(struct mc_engine *engine, uint64_t batch, const transfer_request_t *entries,
           size_t count, const notify_msg_t *notify);
int task_status(struct mc_engine *engine, uint64_t batch, size_t task, transfer_status_t *status);
/* Until all tasks of the batch are over, or the time: STATUS_WAITING. Worst of their statuses;
 * STATUS_INVALID: no such batch. `progress`: with 0 it looks, and does not wait. */
int batch_wait(struct mc_engine *engine, uint64_t batch, uint64_t timeout_ns);
/* Takes the completions that weir has, and posts from the backlog. True: there was one. */
bool settle_completions(struct mc_engine *engine);
/* A parked run, with the segment's list as it is now; error: there is none, and why. */
void submit_parked(struct mc_engine *engine, const struct parked *parked, int error);

/* notices.c */
/* Payload of the two strings, allocated; 0, MC_EINVALID or MC_EMEMORY. */
int notice_encode(const notify_msg_t *notify, uint8_t **payload_out, uint32_t *length_out);
int notice_send(struct mc_engine *engine, const notify_msg_t *notify, int64_t target);
/* Whether the segment's engine answers: 0, MC_EINVALID or MC_EENDPOINT. Its application sees
 * nothing of it. */
int notice_probe(struct mc_engine *engine, int64_t target);
/* Posts it: 0 or a code of weir's; the completion is of `work`. */
int notice_post(struct mc_engine *engine, struct notice *notice, uint64_t timeout_ns,
                uint64_t work);
/* Takes what came; false: the list is full. */
bool notices_take(struct mc_engine *engine);
notify_msg_t *notices_give(struct mc_engine *engine, int *count);
void notices_free(notify_msg_t *notices, size_t count);

/* report.c */
int report_load(struct mc_engine *engine, nic_load_stat_t *stats, size_t *count);
int report_links(struct mc_engine *engine, char *text, size_t size, bool json);

/* thread.c: of a thread that blocks all signals but those that a fault raises. False: there is
 * none. */
bool thread_start(pthread_t *thread_out, void *(*run)(void *), void *argument);

/* graceful.c */
void graceful_enable(struct mc_engine *engine);
void graceful_forget(struct mc_engine *engine);
/* In a child of fork(2): the engines are its parent's, and so is the thread. */
void graceful_forked(void);

#endif
