/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h: the parts that the files of the verbs backend share: its device, QPs, settings and the
 * choice of device, port and address.
 *
 * The backend plays the device port over libibverbs: reliable connections (RC) on
 * InfiniBand, RoCE v2 and iWARP, NICs and the kernel's software devices alike.
 *
 *   verbs.c     open, close, caps, probe      post.c    post_send, post_recv
 *   settings.c  WEIR_VERBS_* variables        poll.c    completions, events, sleeping
 *   select.c    which device, port, GID       memory.c  regions, ours and imported
 *   qp.c        QPs, made and destroyed       blob.c    what peers are told
 *   connect.c   QPs to RTS, off the thread    habit.c   what a device was seen to do
 *   cm.c        iWARP's connections           fence.c   iWARP's posts
 *   sigpipe.c   signals that providers raise   inherit.c what children must not have
 *   cq.c        CQs, and who has room in them
 *   watch.c     devices that are removed
 *
 * One protection domain, completion channel and (where the device has them, and they are large
 * enough) shared receive queue a device, and as many CQs as the QPs need. Invariants:
 *  - Everything here is private to the thread that has the engine, without locks, but the
 *    connector (connect.c), the table of memory regions (memory.c) and the habits (habit.c).
 *  - No CQ ever overflows, whatever is posted before a poll: the granted depths of its
 *    QPs and the receives together are at most its capacity. A queue takes no more than
 *    it reported as granted, even where the provider would.
 *  - A send's wr_id on the wire of the provider is {1, generation, QP, position}: a
 *    completion finds its QP and its slot by itself. A receive's is the caller's own.
 *  - A QP is destroyed with its CQ polled empty behind it, into the stash. Completions of its
 *    sends are taken out of that, so none outlives its QP, and a reused QP number names one QP
 *    only. Those of a shared receive queue stay, without a QP.
 *  - Allocation only at open, at registration and QP creation.
 *
 * fork(2): since Linux 5.12 a child gets copies of pages that are pinned for a device, and
 * the parent's registrations stay as they are; ibv_is_fork_initialized(3) then says that
 * ibv_fork_init(3) is not needed. On older kernels the application calls that before anything
 * else, for its own memory and for the queues that some providers keep in memory of the process:
 * what the library registers is not copied to children. A child has no descriptor of the device
 * and no mapping of it (inherit.c), so that nothing of it lives on when the parent dies; those
 * that librdmacm opens for itself, to devices of iWARP, are in children: no QP is theirs. All
 * descriptors close at exec. */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ports.h"
#include "source.h"

struct rdma_cm_id; /* rdma_cma.h, which only cm.c needs */
struct rdma_event_channel;

#define VERBS_QPS_MAX       65536u  /* open at once; a power of two. An engine has no more */
#define VERBS_CQ_MAX        262144u /* entries of one, unless asked */
#define VERBS_CQS_MAX       1024u
#define VERBS_CQ_MIN        1024u
#define VERBS_SRQ_MIN       64u
#define VERBS_DEPTH_MAX     65536u
#define VERBS_DEPTH_MIN     16u
#define VERBS_MESSAGE_MAX   (UINT64_C(1) << 30)
#define VERBS_INLINE_WANTED 128u
#define VERBS_PIECES        9u /* as many SGEs as about the bytes of VERBS_INLINE_WANTED hold */
#define VERBS_RD_ATOMIC_MAX 128u
#define VERBS_CHAIN         512u /* WRs with one doorbell */
#define VERBS_POLL_BATCH    32
#define VERBS_BUCKETS       4096u /* of QP numbers; a power of two */
#define VERBS_MR_CHUNK      1024u /* entries allocated at a time */
#define VERBS_MRS_MAX       (66u * VERBS_MR_CHUNK)
#define VERBS_NOTE_MAX      128

#define VERBS_LIKELY(x)     __builtin_expect(!!(x), 1)
#define VERBS_UNLIKELY(x)   __builtin_expect(!!(x), 0)

/* wr_id of a send: 1:1, generation:27, QP:16, position:20. */
#define VERBS_ID_SEND         (UINT64_C(1) << 63)
#define VERBS_POSITION_BITS   20
#define VERBS_POSITION_MASK   ((1u << VERBS_POSITION_BITS) - 1)
#define VERBS_INDEX_BITS      16
#define VERBS_GENERATION_MASK ((1u << 27) - 1)
_Static_assert(VERBS_DEPTH_MAX <= VERBS_POSITION_MASK, "positions in a queue differ");
_Static_assert(VERBS_QPS_MAX <= 1u << VERBS_INDEX_BITS, "every QP has a number");

/* ---- settings.c ---- */

/* The environment's settings; VERBS_UNSET where it says nothing. */
#define VERBS_UNSET (-1)
struct verbs_settings {
    char device[64]; /* "": any */
    int port;
    int gid_index;
    int pkey_index;
    int mtu;           /* bytes */
    int traffic_class; /* from here to min_rnr_timer: never VERBS_UNSET */
    int service_level;
    int timeout;
    int retry_cnt;
    int rnr_retry;
    int min_rnr_timer;
    int srq;
};

/* A line of printable ASCII: any other byte becomes '?'. */
void note_clean(char *text);
/* The index-th setting that settings_read looks at; false past the last. */
bool verbs_setting(size_t index, const struct setting_source *source,
                   struct weir_device_setting *out);
/* EINVAL: note_out says which setting and why. */
int settings_read(const struct setting_source *source, struct verbs_settings *settings_out,
                  char note_out[VERBS_NOTE_MAX]);

/* ---- blob.c ---- */

/* The kind of network that a port is on. The numbers are seen by peers. */
enum verbs_fabric {
    FABRIC_INFINIBAND = IBV_LINK_LAYER_INFINIBAND,
    FABRIC_ROCE = IBV_LINK_LAYER_ETHERNET,
    FABRIC_IWARP = 3
};

/* Where a QP is reached. */
struct verbs_address {
    uint32_t qpn;      /* not of iWARP */
    uint16_t lid;      /* of InfiniBand */
    uint8_t fabric;    /* enum verbs_fabric */
    union ibv_gid gid; /* of iWARP: the IP address, IPv4 mapped */
    /* of iWARP only */
    uint16_t tcp_port; /* host byte order */
    uint64_t cookie;   /* which QP is meant; random, never 0 */
    uint64_t fence;    /* 8 bytes to read, which say nothing (fence.c) */
    uint32_t fence_key;
};
/* The place that a QP connects from: as its blob said, whatever became of the port since. */
struct verbs_source {
    struct verbs_address address;
    uint32_t mtu;
    uint8_t gid_index;
    bool grh_required; /* ibv_query_port(3): IBV_QPF_GRH_REQUIRED */
};
/* A peer's memory. */
struct verbs_region {
    uint64_t base;
    uint64_t length;
    uint32_t rkey;
    uint32_t access;
};

uint32_t blob_write_address(const struct verbs_address *address, uint8_t *out);
/* EINVAL: not a blob of this kind, or an address that no QP can have. */
int blob_read_address(const uint8_t *bytes, uint32_t length, struct verbs_address *address_out);
uint32_t blob_write_region(const struct verbs_region *region, uint8_t *out);
int blob_read_region(const uint8_t *bytes, uint32_t length, struct verbs_region *region_out);

/* How good a GID is as a RoCE address; 0: not one. */
enum { GID_UNUSABLE = 0, GID_LINK_LOCAL, GID_GLOBAL, GID_IPV4 };
int gid_rank(const union ibv_gid *gid);

/* ---- habit.c ---- */

/* A QP of this device was taken down: whether its last-WQE event came. Absence counts when
 * it was waited for. */
void habit_note_last_wqe(const char *device, bool came);
/* False: it was waited for before, and never came. */
bool habit_has_last_wqe(const char *device);
void habit_forget(void); /* for tests */

/* One device, port and address, with what they can do. */
struct verbs_choice {
    struct ibv_context *context; /* open */
    struct ibv_device_attr attr;
    struct ibv_port_attr port_attr;
    union ibv_gid gid; /* of iWARP: the IP address */
    enum verbs_fabric fabric;
    uint8_t port;
    uint8_t gid_index;
    uint16_t pkey_index;
    uint32_t mtu;
    char note[VERBS_NOTE_MAX];
};

/* ---- cm.c ---- */

/* The best address of an iWARP device. False: why says why there is none. */
bool cm_address(const char *device_name, union ibv_gid *address_out, const char **why_out);
bool cm_has_address(const char *device_name, const union ibv_gid *address);

/* ---- inherit.c: as the functions of libibverbs that they are named for ---- */

struct ibv_device **inherit_list_devices(int *count_out);
struct ibv_context *inherit_open_device(struct ibv_device *device);
void inherit_close_device(struct ibv_context *context);
struct ibv_comp_channel *inherit_open_channel(struct ibv_context *context);
void inherit_close_channel(struct ibv_comp_channel *channel);

/* ---- select.c ---- */

/* Opens the device that settings ask for, or the best there is. An error: note says why. */
int select_open(const struct verbs_settings *settings, struct verbs_choice *choice_out);
/* Port and address once more: they may have changed. EDEVICE: not usable now. The members of the
 * choice that other threads read, context and attr, are not written. */
int select_refresh(const struct verbs_settings *settings, struct verbs_choice *choice);
enum ibv_mtu mtu_code(uint32_t bytes); /* 0: no such path MTU */

/* ---- sigpipe.c ---- */

/* Whether calls of such a device raise SIGPIPE. */
bool sigpipe_is_raised(const struct ibv_device_attr *attr);
/* From hold to release this thread gets none; of other devices they do nothing. They may nest. */
enum verbs_sigpipe { SIGPIPE_LEFT = 0, SIGPIPE_HELD, SIGPIPE_WAS_HELD };
enum verbs_sigpipe sigpipe_hold(const struct weir_device *device);
void sigpipe_release(enum verbs_sigpipe hold);

/* ---- the device ---- */

enum verbs_qp_state {
    QP_INIT, /* receives may be posted */
    QP_CONNECTING,
    QP_FAILED, /* a connect did not work out */
    QP_READY,
    QP_ERROR
};

enum verbs_connect { CONNECT_NONE = 0, CONNECT_WAITING, CONNECT_RUNNING, CONNECT_DONE };

/* How far the connection of an iWARP QP is. */
enum verbs_link {
    LINK_NONE = 0,
    LINK_DIALLED,  /* we called; no answer yet */
    LINK_ACCEPTED, /* the other side dialled, and we took it; not up yet */
    LINK_UP,
    LINK_DOWN /* it was up, or could not be; there will be no other */
};

struct weir_qp {
    /* read by every post and completion */
    uint64_t *ids; /* [id_mask + 1] the callers' wr_ids, by position */
    struct ibv_qp *ibv;
    struct verbs_cq *cq; /* of its sends and of what it receives */
    uint64_t id_base;    /* of its wr_ids: all but the position */
    uint32_t head;       /* sends posted */
    uint32_t tail;       /* sends whose slot is free again */
    uint32_t sq_depth;
    uint32_t id_mask;
    uint32_t state; /* enum verbs_qp_state */
    uint32_t tag;
    uint32_t rq_used;
    uint32_t rq_depth;
    uint32_t recv_bytes_max;
    uint32_t qpn;
    uint32_t index;
    struct weir_device *device;
    struct weir_qp *bucket_next;

    bool error_wanted;                /* while it was connecting */
    bool was_ready;                   /* connected, once */
    bool last_wqe;                    /* its event came */
    uint64_t error_ns;                /* when it was put into the error state; 0 */
    enum verbs_connect connect_state; /* under the connector's mutex */
    struct weir_qp *connect_next;     /* likewise; cm.c's without it, while `waits` */
    int connect_result;               /* CONNECT_DONE */
    struct verbs_source source;
    struct ibv_qp_attr to_rtr, to_rts;

    /* iWARP */
    struct verbs_address there; /* once it was told */
    struct rdma_cm_id *link_id; /* set by the connector's thread that has the QP, or by take_call */
    enum verbs_link link;
    bool hangs_up;           /* CONNECTING: a connector's thread ends the call */
    bool crosses;            /* the other side may call as well */
    bool waits;              /* in the list of those that wait for a call */
    uint64_t dial_ns;        /* until then */
    uint64_t caller;         /* LINK_ACCEPTED and after: who dialled, by cookie */
    uint32_t culprit;        /* the position of the WR that failed first; UINT32_MAX: none */
    uint32_t culprit_status; /* enum weir_cqe_status */
    bool expects;            /* CONNECTING, and no thread has it: it waits for the other side */
};

/* Our own memory. */
struct verbs_mr {
    struct ibv_mr *ibv;    /* with the rights that it is exported with. NULL: free, or let go */
    struct ibv_mr *sink;   /* iWARP: with the right to fill it by reads. NULL: ibv has it */
    uint64_t mapped_bytes; /* of memory that we allocated; 0: the caller's */
    uint32_t access;
    uint32_t next_free; /* as verbs_mrs.free */
};

struct verbs_mrs {
    pthread_mutex_t mutex;
    uint32_t users; /* threads that make or release a region now */
    bool gone;      /* there are no regions any more */
    struct verbs_mr *chunks[VERBS_MRS_MAX / VERBS_MR_CHUNK];
    uint32_t chunk_count;
    uint32_t free; /* the number of the first free one, plus one; 0: none */
};

struct verbs_connects {
    struct weir_qp *first, *last;
    uint32_t count;
};

/* Threads that connect QPs. */
enum { CONNECTORS = 8 };
struct verbs_hand {
    struct verbs_connector *connector;
    pthread_t thread;
    enum { HAND_NONE = 0, HAND_WORKS, HAND_LEFT } state; /* LEFT: to be joined */
};

struct verbs_connector {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct verbs_connects waiting, done;
    struct verbs_hand hands[CONNECTORS];
    uint32_t thread_count; /* that work, or wait for work */
    uint32_t idle;
    int event_fd; /* counts those that are done */
    bool open, closing;
};

/* A completion as it came from the CQ, its QP found. */
struct verbs_raw {
    struct weir_qp *qp; /* NULL: a shared receive whose QP is gone */
    uint64_t wr_id;     /* of a send: as posted; of a receive: the caller's */
    uint32_t status;    /* enum weir_cqe_status */
    uint32_t tag;
    uint32_t byte_length;
    bool recv;
    bool has_imm;
    bool own; /* it came from poll_flush */
};

/* The state that an iWARP device has besides. */
struct verbs_cm {
    struct rdma_event_channel *channel; /* of the listener and of all connections */
    struct rdma_cm_id *listener;
    struct weir_qp *wait_first, *wait_last; /* for a call, by connect_next */
    int timer_fd;                           /* for the first of them */
    int fd;                                 /* the channel's */
    uint16_t port;                          /* that listens; host byte order */
    struct ibv_mr *fence_mr;
    uint64_t fence[2]; /* what peers read, and where we read to */
};

/* The device does not answer any more: it was unplugged. */
enum verbs_loss { LOSS_NONE = 0, LOSS_UNTOLD, LOSS_TOLD };

/* A completion queue. */
struct verbs_cq {
    struct ibv_cq *ibv;
    uint32_t capacity;
    uint32_t used; /* entries that its QPs may fill, and the shared receives */
    uint32_t qp_count;
    bool armed; /* and no event was taken since */
};

struct weir_device {
    /* read by every poll */
    struct verbs_cq *cqs[VERBS_CQS_MAX];
    uint32_t cq_count;
    uint32_t cq_turn; /* of them, to be polled first */
    uint32_t stash_count;
    uint32_t stash_head;
    struct ibv_srq *srq; /* NULL: none */
    uint32_t srq_used;   /* receives posted and not polled */
    uint32_t srq_depth;
    struct weir_qp *qps[VERBS_QPS_MAX];
    uint32_t generations[VERBS_QPS_MAX];
    struct weir_qp *buckets[VERBS_BUCKETS];
    struct ibv_wc wcs[VERBS_POLL_BATCH];
    struct ibv_send_wr wrs[VERBS_CHAIN]; /* linked; each with the SGE of its index */
    struct ibv_sge sges[VERBS_CHAIN];
    struct ibv_send_wr lone_wr; /* of posts of one WR; next is NULL */
    struct ibv_sge lone_sge;
    struct ibv_sge gathered[VERBS_PIECES]; /* of the first WR of a post */

    struct verbs_raw *stash; /* [stash_size] a ring */
    uint32_t stash_size;     /* at least cq_entries */
    uint32_t cq_entries;     /* of all CQs */
    uint32_t qp_count;
    uint32_t qp_hint;
    uint32_t inline_bytes;
    uint32_t pieces; /* SGEs of each QP's WRs; 1: no write gathers */
    bool fenced;     /* iWARP: posts go by fence.c */
    bool raises_sigpipe;
    bool port_changed;
    enum verbs_loss loss;
    enum verbs_loss removal; /* the device answers, but is to go */
    bool gone;               /* let go: nothing of the provider's is left */
    int watch_fd;
    uint64_t watch_next_ns;
    int epoll_fd;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct verbs_mrs mrs;
    struct verbs_connector connector;
    struct verbs_cm cm;
    struct weir_env env;
    struct weir_device_caps caps;
    struct verbs_settings settings;
    struct verbs_choice choice;
};

extern const struct weir_device_ops verbs_device_ops;

/* errno of libibverbs, given or negated, as a WEIR_E* code. */
int verbs_error(int error);

/* cq.c */
uint32_t cq_asked(const struct weir_device *device);
/* The first one. EDEVICE. */
int cqs_open(struct weir_device *device);
void cqs_close(struct weir_device *device);
/* Once the shared receive queue is there: the first CQ has room for all that comes to it. */
void cqs_reserve(struct weir_device *device);
/* One with so much room; a new one, if need be. NULL: there is none. */
struct verbs_cq *cq_take(struct weir_device *device, uint32_t entries);
void cq_use(struct verbs_cq *cq, uint32_t entries);
/* A QP of it is gone; the CQ may go, too. */
void cq_leave(struct weir_device *device, struct verbs_cq *cq, uint32_t entries);
/* Entries that polls can return before any one of them was empty once. */
uint32_t cqs_capacity(const struct weir_device *device);
/* False: the device does not answer. */
bool cqs_arm(struct weir_device *device);
/* Takes the events; errno says why there are no more. */
void cqs_disarm(struct weir_device *device);

/* qp.c */
struct weir_qp *qp_by_number(const struct weir_device *device, uint32_t qpn);
/* The inline payload and the SGEs that QPs of this device take; EDEVICE: it gives no QPs at all. */
int qp_try_sizes(struct weir_device *device);
int verbs_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                    struct weir_qp_granted *granted_out, struct weir_qp **qp_out);
int verbs_qp_error(struct weir_qp *qp);
int verbs_qp_destroy(struct weir_qp *qp);

/* connect.c */
int connector_open(struct weir_device *device);
void connector_close(struct weir_device *device);
int connector_events(struct weir_device *device, struct weir_async *events_out, int max);
int connector_cancel(struct weir_qp *qp);
/* A QP that expects the other side's doing is given up: it is done, with this error. */
void connector_fail(struct weir_qp *qp, int error);
/* A thread dials. False: there is none, and none can be had. */
bool connector_dial(struct weir_qp *qp);
/* Its connection, which is half made, is ended by a thread; it is EBUSY until then. Without a
 * thread nothing happens: it is to be tried again. */
void connector_hangup(struct weir_qp *qp);
int verbs_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path);

/* cm.c: connections of iWARP, which are made by the kernel's connection manager
 * (rdma_cm(7)). All of them are for the thread that has the engine, but cm_dial and cm_drop. */
int cm_open(struct weir_device *device);
void cm_close(struct weir_device *device);
/* Of qp_connect: OK: it is up, the other side has dialled; EINPROGRESS: CONNECTED comes;
 * EAGAIN: dial; EPEER: the connection is down, or its caller is not the peer. */
int cm_connect(struct weir_qp *qp);
/* Blocks, in a connector's thread, until the call is on its way. */
int cm_dial(struct weir_qp *qp);
/* A connector's thread has made the call, or failed to. False: CONNECTED comes with the answer. */
bool cm_dialled(struct weir_qp *qp);
/* It does not wait for a call any more. */
void cm_give_up(struct weir_qp *qp);
int cm_events(struct weir_device *device, struct weir_async *events_out, int max);
/* Before the QP is destroyed. EBUSY: not yet. */
int cm_hangup(struct weir_qp *qp);
/* Blocks, in a connector's thread: ends a call that nobody has answered. */
void cm_drop(struct weir_qp *qp);

/* fence.c: posts of iWARP. As verbs_post_send. */
int fence_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
               struct weir_post *post_out);
/* The provider says that the WR at a position did not succeed. */
void fence_failed(struct weir_qp *qp, uint32_t position, uint32_t status);
/* The QP has come to the error state: everything posted is flushed, by us. */
void fence_flush(struct weir_qp *qp);

/* post.c */
void post_prepare(struct weir_device *device);
/* Whether the device can ever accept it. */
bool post_is_possible(const struct weir_device *device, const struct weir_wr *wr);
void post_fill(const struct weir_qp *qp, const struct weir_wr *from, uint32_t position,
               struct ibv_send_wr *wr, struct ibv_sge *sge);
/* Posts the first count entries of the device's chain; how many were accepted. */
uint32_t post_filled(struct weir_qp *qp, uint32_t count, int *error_out);
/* Why the provider refused a WR (an errno, which old ones negate). */
int post_refusal(int error);
int verbs_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                    struct weir_post *post_out);
uint32_t verbs_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                           const weir_segment *segments, uint32_t count);
int verbs_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                    uint32_t length, uint32_t lkey);

/* poll.c */
int verbs_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max);
int verbs_events(struct weir_device *device, struct weir_async *events_out, int max);
int verbs_fd(struct weir_device *device);
int verbs_arm(struct weir_device *device);
void verbs_disarm(struct weir_device *device);
bool verbs_link_is_down(struct weir_device *device);
/* counts.c */
bool verbs_counts(struct weir_device *device, struct weir_device_counts *out);
/* Moves all that is in a CQ to the stash. */
void poll_to_stash(struct weir_device *device, const struct verbs_cq *cq);
/* Room for so many; ENOMEM. */
int stash_grow(struct weir_device *device, uint32_t entries);
/* The WR at a position of its send queue ends with this status (enum weir_cqe_status), behind
 * all that is in the CQ. */
void poll_flush(struct weir_qp *qp, uint32_t position, uint32_t status);
/* Takes out of the stash what nobody may hear of a QP that is gone. */
void poll_forget(struct weir_device *device, const struct weir_qp *qp);

/* watch.c */
/* A descriptor that is readable when there may be news; -1: none. */
int watch_open(const struct ibv_context *context);
bool watch_sees_removal(struct weir_device *device);

/* memory.c */
/* Gives all regions back to the provider; allocated memory stays mapped until it is released.
 * EAGAIN: a thread registers, or releases, one now. */
int verbs_memory_let_go(struct weir_device *device);
void verbs_memory_open(struct weir_device *device);
void verbs_memory_close(struct weir_device *device);
int verbs_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                      struct weir_mr *mr_out);
int verbs_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                      struct weir_mr *mr_out);
int verbs_mr_register_dmabuf(struct weir_device *device, int fd, uint64_t offset, uint64_t length,
                             uint64_t iova, uint32_t access, struct weir_mr *mr_out);
int verbs_mr_release(struct weir_device *device, const struct weir_mr *mr);
int verbs_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                    uint32_t *blob_length_out);
int verbs_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                    uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out);
void verbs_mr_forget(struct weir_device *device, const struct weir_rmr *rmr);

#endif
