/* SPDX-License-Identifier: Apache-2.0 */
/* ofi.h: the parts that the files of the ofi backend share: its device, QPs, settings and the
 * choice of provider, domain and address.
 *
 * The backend plays the device port over libfabric's connected endpoints (FI_EP_MSG): TCP between
 * any two hosts.
 *
 *   ofi.c       open, close, caps, probe      post.c    post_send, post_recv
 *   settings.c  WEIR_OFI_* variables          poll.c    completions, events, sleeping
 *   select.c    which provider and address    memory.c  regions, ours and imported
 *   qp.c        QPs, made and destroyed       fence.c   releases under a peer's write
 *   connect.c   calls and answers             blob.c    what peers are told
 *   range.c     a range without a free port
 *   visitors.c  strangers at the port         serve.c   progress while the engine makes none
 *   inherit.c   what children must not have   reads.c   reads that are cut
 *
 * A QP is an endpoint once it is connected. It is ordered: the target takes one byte stream in its
 * order, and a completion of delivery (FI_DELIVERY_COMPLETE) is the target's own answer, so that
 * one signalled WR says as much of all in front of it. A WR that the target refuses ends the
 * stream, and nobody says which one it was. To close an endpoint ends all access by its peer: the
 * bytes of a write come through it, and are copied by this process.
 *
 * A provider without threads of its own does nothing between calls. So a thread (serve.c) makes
 * progress where the engine has not made any for a millisecond, and peers are answered, however
 * long the application is busy. All of a device is under its mutex therefore, but the table of
 * regions, which has its own. Invariants:
 *  - A queue takes no more than it granted, also where the provider would.
 *  - The context of an operation is a number, {kind, generation, QP, position}, and no pointer: one
 *    that the provider returns twice, or late, or never got, names nothing.
 *  - A QP that fails is closed at once, and what it had is flushed here, in order.
 *  - Allocation only at open, at registration and QP creation, but for the provider's own. */
#ifndef OFI_OFI_H
#define OFI_OFI_H

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "fabric.h"
#include "ports.h"
#include "regions.h"

#define OFI_QPS_MAX       65536u /* open at once; a power of two */
#define OFI_DEPTH_MAX     65536u
#define OFI_DEPTH_WANTED  1024u /* of the provider */
#define OFI_MESSAGE_MAX   (UINT64_C(16) << 20)
#define OFI_PIECES        9u
#define OFI_POLL_BATCH    32
#define OFI_VISITORS      256
#define OFI_ADDRESS_BYTES 16 /* IPv6, or IPv4 mapped */

#define OFI_LIKELY(x)     __builtin_expect(!!(x), 1)
#define OFI_UNLIKELY(x)   __builtin_expect(!!(x), 0)

/* The context of an operation: kind:2, generation:26, QP:16, position:20. */
enum ofi_kind { OFI_KIND_SEND = 1, OFI_KIND_RECV = 2, OFI_KIND_FENCE = 3 };
#define OFI_POSITION_BITS   20
#define OFI_POSITION_MASK   ((1u << OFI_POSITION_BITS) - 1)
#define OFI_INDEX_BITS      16
#define OFI_GENERATION_MASK ((1u << 26) - 1)
#define OFI_KIND_SHIFT      62
_Static_assert(OFI_DEPTH_MAX <= OFI_POSITION_MASK, "positions in a queue differ");
_Static_assert(OFI_QPS_MAX <= 1u << OFI_INDEX_BITS, "every QP has a number");
_Static_assert(sizeof(void *) == sizeof(uint64_t), "a context holds such a number");

/* ---- settings.c ---- */

#define OFI_RULES 3u
extern const struct fabric_rule ofi_rules[OFI_RULES];
bool ofi_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out);

/* ---- select.c ---- */

extern const struct fabric_backend ofi_backend;
/* How good an IP address is to tell peers; 0: of no use. */
enum {
    OFI_ADDRESS_NONE = 0,
    OFI_ADDRESS_LOOPBACK,
    OFI_ADDRESS_IPV6,
    OFI_ADDRESS_IPV4,
    OFI_ADDRESS_RANKS
};
int ofi_address_rank(const uint8_t address[OFI_ADDRESS_BYTES]);
/* False: it is no IP address. */
bool ofi_address_of(const void *socket_address, uint8_t address_out[OFI_ADDRESS_BYTES]);

/* ---- blob.c ---- */

/* Where a QP is reached. */
struct ofi_address {
    uint8_t ip[OFI_ADDRESS_BYTES];
    uint16_t port;                   /* host byte order */
    uint64_t cookie;                 /* which QP is meant; random, never 0 */
    uint64_t fence_key, fence_raddr; /* of a word that may be read and written, and says nothing */
};

uint32_t ofi_blob_write_address(const struct ofi_address *address, uint8_t *out);
/* EINVAL: not a blob of this kind, or an address that no QP can have. */
int ofi_blob_read_address(const uint8_t *bytes, uint32_t length, struct ofi_address *address_out);

/* ---- the device ---- */

enum ofi_state {
    OFI_INIT,       /* receives may be posted */
    OFI_CONNECTING, /* qp_connect was called; CONNECTED comes */
    OFI_FAILED,     /* a connect did not work out */
    OFI_READY,
    OFI_ERROR
};

/* How far the connection is; see connect.c. */
enum ofi_link {
    OFI_LINK_NONE = 0,
    OFI_LINK_DIALLED,
    OFI_LINK_ACCEPTED,
    OFI_LINK_UP,
    OFI_LINK_DOWN
};

struct ofi_send {
    uint64_t wr_id;
    bool reads; /* and has not completed */
    bool is_signalled;
};

struct ofi_receive {
    uint64_t wr_id;
    void *buffer, *desc;
    uint32_t length;
};

struct weir_qp {
    struct weir_device *device;
    struct fid_ep *ep;            /* NULL: none */
    struct ofi_send *sends;       /* [sq_mask + 1] by position */
    struct ofi_receive *receives; /* [rq_mask + 1] likewise */
    uint64_t id_base;             /* of its contexts: generation and QP */
    /* Positions of sends: tail <= seen <= head, modulo 2^32. Sends before tail were polled, and
     * sends before seen have completed. */
    uint32_t head, seen, tail;
    uint32_t rq_head, rq_seen, rq_tail; /* likewise; of receives, */
    uint32_t rq_given;                  /* of which those before this one are the provider's */
    uint32_t sq_depth, rq_depth, sq_mask, rq_mask;
    uint32_t state; /* enum ofi_state */
    uint32_t tag;
    uint32_t recv_bytes_max;
    uint32_t index;
    uint32_t culprit;        /* the position of the WR that this side refused; with its status: */
    uint32_t culprit_status; /* enum weir_cqe_status; OK: there is none */

    struct ofi_address own, there; /* there: once qp_connect was called */
    enum ofi_link link;
    bool crosses;    /* the other side may call as well, and its call goes first */
    bool waits;      /* CONNECTING: for the other side's call, */
    bool is_last;    /* and then for nothing more */
    uint64_t caller; /* LINK_ACCEPTED and after: who dialled, by cookie */
    uint64_t due_ns; /* CONNECTING: then it dials, or gives up */
    int connect_result;
    bool tells_connected, tells_fatal; /* to be told by events */
    bool failing;                      /* in the device's list of those, by next_failing */
    struct weir_qp *next_failing;
    int fd; /* of the connection; -1: not known */

    uint64_t fence_sent, fence_done; /* see fence.c */
    bool fence_failed;               /* the question between the two has no answer */
    uint64_t fence_turn_ns;          /* all in front of the question was over by then; 0: is not */
    uint32_t fence_position;         /* of the send behind the question */
    uint64_t alive_ns;               /* when it completed anything that was posted */
    bool spoilt;                     /* a completion told of a failure: later ones mean nothing */
    bool reads_over;                 /* the provider has ended those that were under way: reads.c */
};

/* A completion that was taken from the provider, and not by the caller yet. */
struct ofi_raw {
    struct weir_qp *qp;
    uint32_t position;
    uint32_t status;
    uint32_t byte_length;
    bool recv, has_imm;
};

/* A caller, by its descriptor and its port. */
struct ofi_visitor {
    int fd;
    in_port_t port;
};

struct ofi_server {
    pthread_t thread;
    int stop_fd;
    bool runs;
};

struct weir_device {
    pthread_mutex_t mutex; /* of all but the constants and the regions */
    /* constant while it is open */
    const struct fabric_library *library;
    struct weir_env env;
    struct weir_device_caps caps;
    struct fabric_choice choice;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_eq *eq;
    struct fid_pep *pep;
    struct fid_mr *fence_mr;
    uint64_t fence_key, fence_raddr;
    void *fence_desc;
    uint64_t fence_words[2]; /* what peers read, and where we read to */
    uint8_t ip[OFI_ADDRESS_BYTES];
    uint16_t port;
    struct sockaddr_storage listener; /* the same; zeros: there is none */
    int cq_fd, eq_fd;                 /* the provider's */
    int epoll_fd, timer_fd, event_fd;
    bool is_woken; /* event_fd is readable */
    int listen_fd; /* the provider's; -1: not known */

    struct weir_qp *qps[OFI_QPS_MAX];
    uint32_t generations[OFI_QPS_MAX];
    uint32_t qp_count, qp_hint;
    uint32_t connecting; /* QPs with a due_ns */
    uint32_t untold;     /* events that QPs have to tell */
    struct weir_qp *failing;
    struct ofi_raw *stash;                                    /* [stash_size] a ring */
    uint32_t stash_size, stash_head, stash_count, stash_owed; /* owed: what QPs may fill */
    bool is_heard;          /* epoll_fd has the provider's descriptors */
    uint64_t heard_at;      /* the count of polls when it was armed last */
    uint64_t alive_ns;      /* of the last completion, by the coarse clock */
    bool is_short;          /* the last batch was */
    _Atomic uint64_t polls; /* by the engine */
    uint64_t fence;         /* the last number of one */
    uint64_t nonsense;      /* completions that name nothing */
    uint64_t refusals;      /* posts for which the provider had no room */
    bool served;            /* something was moved beside polls, since this was asked */
    bool lost, lost_told;
    struct ofi_visitor visitors[OFI_VISITORS]; /* as the last look saw them */
    uint32_t visitor_count;
    uint64_t visitors_ns; /* when that was */

    struct fabric_memory memory; /* the imports are under the mutex */
    struct ofi_server server;
};

extern const struct weir_device_ops ofi_device_ops;

static inline void device_lock(struct weir_device *device) {
    pthread_mutex_lock(&device->mutex);
}
static inline void device_unlock(struct weir_device *device) {
    pthread_mutex_unlock(&device->mutex);
}
/* Counted with the mutex, and read without. */
static inline uint64_t polls_now(const struct weir_device *device) {
    return atomic_load_explicit(&device->polls, memory_order_relaxed);
}
static inline void polls_count(struct weir_device *device) {
    atomic_store_explicit(&device->polls, polls_now(device) + 1, memory_order_relaxed);
}
static inline uint64_t device_now(const struct weir_device *device) {
    return device->env.ops->now(device->env.self);
}
static inline void *ofi_context(const struct weir_qp *qp, enum ofi_kind kind, uint32_t position) {
    return (void *)(uintptr_t)((uint64_t)kind << OFI_KIND_SHIFT | qp->id_base |
                               (position & OFI_POSITION_MASK));
}

/* ---- ofi.c ---- */

void ofi_fill_caps(const struct fabric_choice *choice, struct weir_device_caps *caps_out);

/* ---- range.c ---- */

/* Whether the provider was told a range of ports of which none is free at its address now: a device
 * could not listen. The note says so. */
bool range_is_full(const struct fi_info *info, char note_out[FABRIC_NOTE_MAX]);

/* All functions from here on are called with the device's mutex, but those of memory.c and
 * serve.c, and the device's operations. */

/* ---- qp.c ---- */

int ofi_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                  struct weir_qp_granted *granted_out, struct weir_qp **qp_out);
int ofi_qp_error(struct weir_qp *qp);
int ofi_qp_destroy(struct weir_qp *qp);
/* The QP has failed by itself: it is closed behind what the provider has for it, by the next
 * failures_see. */
void qp_note_failure(struct weir_qp *qp);
void failures_see(struct weir_device *device);
/* Into the error state: closes the connection and flushes. */
void qp_break(struct weir_qp *qp);
/* The QP of a context; NULL: it names none. */
struct weir_qp *qp_of_context(const struct weir_device *device, uint64_t context);

/* ---- reads.c ---- */

/* Whether a read that was posted before this position has not completed. */
bool reads_before(const struct weir_qp *qp, uint32_t position);
/* A completion of a send says that it is over, which may be of a read; or that it failed. */
void reads_note_end(struct weir_qp *qp, uint32_t position);
void reads_note_failure(struct weir_qp *qp, uint32_t position);
/* The question of a fence failed. */
void reads_note_no_answer(struct weir_qp *qp);
/* Before the endpoint of a QP in the error state is closed. Ends its connection. */
void reads_end(struct weir_qp *qp);

/* ---- connect.c ---- */

int connect_open(struct weir_device *device); /* listens */
void connect_close(struct weir_device *device);
int ofi_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path);
/* Looks at what came of calls. False: there may be more to see. */
bool connect_look(struct weir_device *device);
/* A QP that is connecting ends so; CONNECTED is told. */
void connect_end(struct weir_qp *qp, int result);
/* The connection is no more, or is to be none: the QP fails, or does not come about. */
void connect_lost(struct weir_qp *qp);
/* No endpoint is left of it. */
void connect_drop(struct weir_qp *qp);

/* ---- visitors.c: callers that have not shown to be a peer's ---- */

/* EDEVICE: they could not be bounded. */
int visitors_open(struct weir_device *device);
/* Ends those that were there some seconds ago. */
void visitors_look(struct weir_device *device);
/* Ends all of them. */
void visitors_end(struct weir_device *device);

/* ---- post.c ---- */

int ofi_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out);
uint32_t ofi_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count);
int ofi_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey);
/* Gives the provider the receives that it has not yet. False: it takes none. */
bool receives_give(struct weir_qp *qp);

/* ---- poll.c ---- */

/* Lets the provider get on, and takes of what it has completed. */
void ofi_progress(struct weir_device *device);
/* Likewise, and all of it. */
void ofi_drain(struct weir_device *device);
/* Whether there is something for the caller. */
bool ofi_has_news(const struct weir_device *device);
/* All that was posted to the QP and is not complete is flushed. */
void ofi_flush(struct weir_qp *qp);
/* Room in the stash for so many more; ENOMEM. */
int stash_reserve(struct weir_device *device, uint32_t entries);
/* A QP goes, with so many. */
void stash_forget(struct weir_device *device, const struct weir_qp *qp, uint32_t entries);
/* A caller that sleeps wakes. */
void ofi_wake(struct weir_device *device);
/* In the engine's place: takes what is there, and wakes it if that is for it. */
void ofi_serve(struct weir_device *device);
int ofi_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max);
int ofi_events(struct weir_device *device, struct weir_async *events_out, int max);
int ofi_fd(struct weir_device *device);
int ofi_arm(struct weir_device *device);
void ofi_disarm(struct weir_device *device);
bool ofi_has_served(struct weir_device *device);
void ofi_tally(struct weir_device *device, struct weir_device_tally *out);

/* ---- fence.c ---- */

/* A number that a QP reaches when nothing of its peer's accesses from before is under way. */
uint64_t fence_begin(struct weir_device *device);
/* Whether all QPs have reached it. QPs that were not asked yet are asked. */
bool fence_look(struct weir_device *device, uint64_t fence);
/* The QPs that have not answered fail, if they completed nothing since silent_ns, or all that was
 * posted in front of the question was over by withheld_ns. */
void fence_give_up(struct weir_device *device, uint64_t fence, uint64_t silent_ns,
                   uint64_t withheld_ns);
/* The read of a fence has completed. */
void fence_answered(struct weir_qp *qp);

/* ---- memory.c: any thread, without the device's mutex ---- */

int ofi_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int ofi_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int ofi_mr_release(struct weir_device *device, const struct weir_mr *mr);
int ofi_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out);
int ofi_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out);
void ofi_mr_forget(struct weir_device *device, const struct weir_rmr *rmr);

/* ---- serve.c ---- */

int server_start(struct weir_device *device);
void server_stop(struct weir_device *device);

/* ---- inherit.c ---- */

/* Notes the connection's descriptor, if it is found: children do not have it, nor programs that
 * this process executes. */
void inherit_note(struct weir_qp *qp);
void inherit_note_listener(struct weir_device *device);
/* Tells each socket that the listener has accepted. */
void inherit_callers(const struct sockaddr_storage *listener, void (*found)(int fd, void *context),
                     void *context);
/* The same of a descriptor that the provider told. */
bool inherit_note_fd(int fd);
/* Closes an endpoint. */
void inherit_close(struct weir_qp *qp);

#endif
