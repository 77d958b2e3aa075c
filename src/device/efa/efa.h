/* SPDX-License-Identifier: Apache-2.0 */
/* efa.h: the parts that the files of the efa backend share: its device and its QPs.
 *
 * The backend plays the device port over libfabric's provider efa: reliable datagrams without
 * order (SRD), one endpoint for all peers. A QP is *virtual*: an entry in a table here, named by an
 * index and a random cookie. The network card reads and writes memory by keys and never hears of a
 * QP; messages carry a header that says which QP is meant, and are sorted out here.
 *
 *   efa.c       open, close, caps, probe     post.c      post_send
 *   endpoint.c  the endpoint; its renewal    receive.c   what arrives; post_recv
 *   settings.c  WEIR_EFA_* variables         poll.c      completions, events, sleeping
 *   select.c    which domain                 control.c   what devices tell each other
 *   blob.c      what peers are told          av.c        addresses, and their users
 *   link.c      when two sides are through   serve.c     progress while the engine makes none
 *   vqp.c       QPs: made and destroyed      inherit.c   what children must not have
 *   memory.c    regions and imports      kept.c      receives that are posted; what flushes
 *
 * All of a device is under its mutex but the table of regions. Invariants:
 *  - An operation that the provider has is an *op*, and its context: an entry of a table of as many
 *    as the endpoint's send queue has places. It is the provider's until its completion, and keeps
 *    its QP and the peer's address here as long.
 *  - A WR that the provider refuses for want of room waits here, with its slot, and is posted when
 *    there is some: the caller has counted slots, and knows of no other room.
 *  - No operation is cancelled, and no address removed under one (fi_av(3), fi_endpoint(3)): what
 *    was sent runs on to its end, or to the end of the endpoint.
 *  - A QP belongs to the endpoint that was there when it was made, and fails with it.
 *  - Receives are the device's own. A message is copied to the receive that its QP has posted, and
 *    the buffer is posted anew: so a peer that says nothing holds none of them.
 *  - A message is told to be sent when the network has acknowledged it, and the peer's device has
 *    said that its QP was there (link.h).
 *  - Both sides insert each other's address before either sends: a NIC refuses packets of one that
 *    is not known to it. The handshake sees to that; only STOPs to strangers may be refused so.
 *  - Allocation only at open, at registration and QP creation, but for the provider's own. */
#ifndef EFA_EFA_H
#define EFA_EFA_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric.h"
#include "link.h"
#include "ports.h"
#include "regions.h"

#define EFA_QPS_MAX       65536u /* open at once; a power of two */
#define EFA_DEPTH_MAX     8192u  /* of the endpoint's queues */
#define EFA_CONTROLS      64u    /* places of the send queue for what devices tell each other */
#define EFA_MESSAGE_MAX   (UINT64_C(16) << 20)
#define EFA_NAME_BYTES    32u /* of an endpoint: a raw address of the provider's, */
#define EFA_NAME_MEANS    24u /* of which these say something: the others are zeros here */
#define EFA_HEADER_BYTES  40u
#define EFA_PAYLOAD_MAX   472u /* of a SEND */
#define EFA_BUFFER_BYTES  (EFA_HEADER_BYTES + EFA_PAYLOAD_MAX)
#define EFA_EARLY_MAX     8u  /* messages of a QP that wait for a receive */
#define EFA_PEER_CONTROLS 8u  /* of these places, that one endpoint may have; and all strangers */
#define EFA_STRANGERS     16u /* devices without a QP here that are answered at a time */
#define EFA_EARLY_SHARE   4u  /* of the receives may be those of such messages: one in so many */
#define EFA_POLL_BATCH    32
#define EFA_NOTES_BLOCK   16384u /* notes that are mapped at a time, */
#define EFA_NOTES_BLOCKS  8192u  /* so often at most */
#define EFA_QUARANTINE_NS UINT64_C(1000000000)
#define EFA_NONE          UINT32_MAX
#define EFA_REGION_MAGIC  0x314d4557u /* "WEM1" */

#define EFA_CLOSE(object) ((object) != NULL ? (void)fi_close(&(object)->fid) : (void)0)

#define EFA_LIKELY(x)     __builtin_expect(!!(x), 1)
#define EFA_UNLIKELY(x)   __builtin_expect(!!(x), 0)
_Static_assert(EFA_EARLY_MAX < 16, "counted in a few bits");

/* ---- settings.c ---- */

#define EFA_RULES 2u
extern const struct fabric_rule efa_rules[EFA_RULES];
bool efa_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out);

/* ---- select.c ---- */

extern const struct fabric_backend efa_backend;

/* ---- blob.c ---- */

/* Where a QP is reached. */
struct efa_address {
    uint8_t name[EFA_NAME_BYTES]; /* the endpoint's */
    uint64_t cookie;              /* random, never 0 */
    uint32_t index;
};
/* One endpoint has one name: libfabric takes all bytes of an address for part of it. */
bool efa_name_is_plain(const uint8_t name[EFA_NAME_BYTES]);
uint32_t efa_blob_write(const struct efa_address *address, uint8_t *out);
/* EINVAL: not a blob of this kind, or an address that no QP can have. */
int efa_blob_read(const uint8_t *bytes, uint32_t length, struct efa_address *address_out);

enum efa_kind { EFA_MESSAGE = 1, EFA_PING = 2, EFA_PONG = 3, EFA_STOP = 4 };

/* In front of each message. Behind it, of EFA_MESSAGE: the payload; of the others the sender's
 * endpoint, so that one who is not known can be answered. */
struct efa_header {
    uint64_t to_cookie, from_cookie;
    uint32_t to_index, from_index;
    uint32_t kind;   /* enum efa_kind */
    uint32_t number; /* of a PING, and its PONG; LINK_* of a STOP */
};
void efa_header_write(const struct efa_header *header, uint8_t out[EFA_HEADER_BYTES]);
/* False: no header. */
bool efa_header_read(const uint8_t *bytes, uint64_t length, struct efa_header *header_out);

/* ---- the device ---- */

enum efa_state {
    EFA_INIT,       /* receives may be posted */
    EFA_CONNECTING, /* serve.c finds its peer's address; CONNECTED comes */
    EFA_FAILED,     /* that did not work out */
    EFA_READY,
    EFA_ERROR
};

struct efa_list {
    uint32_t first, last;
};

/* An endpoint that QPs of ours, or ops, use. */
struct efa_peer {
    uint8_t name[EFA_NAME_BYTES];
    fi_addr_t address;
    uint32_t users;    /* 0: it leaves, or the entry is free */
    uint32_t controls; /* ops of control.c */
    uint32_t next;     /* of the same hash, plus one; or free */
    uint32_t leaving;  /* the next in the device's list of those */
    bool leaves;       /* it is in that list */
    bool is_old;       /* it went with the table of addresses of an endpoint before this one */
    struct efa_list refused; /* ops to it that the provider had no room for; */
    uint32_t next_refused;   /* the next peer of which there are any */
    uint64_t refused_ns;     /* the provider had room for this one until then, */
    uint64_t retry_ns;       /* and is asked again then */
};

/* Peers with refused ops, in the order of their turns. */
struct efa_line {
    uint32_t first, last, count;
    uint64_t retry_ns; /* the first time of any */
};

enum efa_op_state {
    EFA_OP_FREE,
    EFA_OP_REFUSED, /* the device's, in its peer's list: the provider had no room; */
    EFA_OP_SENT,    /* the provider's */
    EFA_OP_HELD,    /* over, but not certain: its QP's, in its list; */
    EFA_OP_AGING,   /* or the device's, until its packets cannot be under way any more */
    EFA_OP_DONE     /* to be polled */
};

/* An operation, of a WR or of control.c, by kind. A list's next is an index; EFA_NONE ends it. */
struct efa_op {
    struct fi_context2 context; /* the provider's, while the op is; it comes first */
    struct weir_qp *qp;         /* of a WR; NULL: of control.c */
    uint64_t wr_id;
    uint64_t laddr, raddr, length, key; /* of a WR */
    void *desc;
    uint64_t since_ns; /* HELD: of its acknowledgement. AGING: of its error */
    uint64_t cookie;   /* of control.c: the QP's that says it, which may be gone by then */
    uint32_t qp_index;
    uint32_t peer;
    uint32_t next;
    uint32_t flags; /* of control.c: a STOP's */
    uint8_t state;  /* enum efa_op_state */
    uint8_t status; /* enum weir_cqe_status */
    uint8_t says;   /* of control.c: LINK_SAYS_* */
    uint8_t opcode; /* of a WR */
    uint8_t looks;  /* SENT: that it has outlived; see endpoint.c */
    bool is_message, is_signalled;
};

/* A receive that was posted, see kept.c. */
struct efa_receive {
    uint16_t number;      /* in its QP's row */
    uint16_t byte_length; /* of the message in it, if it has one */
};
_Static_assert(EFA_PAYLOAD_MAX <= UINT16_MAX, "the length of a message");

/* Receives that are numbered as they lie in memory. */
struct efa_row {
    uint64_t wr_id, buffer; /* of the first */
    uint64_t distance;      /* to the next, modulo 2^64, */
    bool is_known;          /* once there was a second */
};

/* A receive that does not, or a WR that was posted in the error state. */
struct efa_note {
    uint64_t wr_id;
    uint64_t buffer;
    uint32_t next;
};

/* All of them. */
struct efa_notes {
    struct efa_note *blocks[EFA_NOTES_BLOCKS]; /* [EFA_NOTES_BLOCK] each */
    uint32_t block_count;
    uint32_t used; /* notes that were ever taken, from the first on */
    uint32_t free_plus_one;
};

struct weir_qp {
    struct weir_device *device;
    /* Positions of receives, modulo 2^32: those before tail were polled, before seen have come. */
    uint32_t rq_tail, rq_seen, rq_head;
    uint32_t sq_depth, rq_depth, rq_mask;
    struct efa_row row;
    struct efa_list noted;         /* receives that do not stand in it, by their notes; */
    uint32_t noted_seen;           /* the first of them that has not come; EFA_NONE */
    struct efa_list late;          /* WRs posted in the error state, likewise */
    uint32_t outstanding;          /* WRs that were not polled */
    uint32_t sent;                 /* of which the provider, or its packets, may still act */
    struct efa_list held;          /* messages that nobody has vouched for */
    uint32_t early[EFA_EARLY_MAX]; /* buffers of messages that found no receive */
    uint32_t early_count;
    uint32_t tag;
    uint32_t recv_bytes_max;
    uint32_t index;
    uint32_t peer;      /* EFA_NONE: not known */
    uint8_t state;      /* enum efa_state */
    bool crosses_stops; /* more than one that is not its peer has stopped */
    bool finding;       /* serve.c is at it, without the mutex */
    bool buried;        /* its endpoint is closed */
    bool failed;        /* it did not stop by the caller's wish */
    bool tells_connected, tells_fatal;
    bool has_news;    /* in the device's list of those, by next_news */
    bool is_restless; /* in the device's list of those, by next_restless */
    int connect_result;
    uint64_t cookie;
    uint64_t stopped_cookie; /* of one that stopped before this side knew it */
    uint64_t asked_cookie;   /* of one that asked by then, with this number */
    uint32_t asked;
    struct efa_address there; /* once qp_connect was called */
    struct efa_link link;
    struct weir_qp *next_news, *next_restless, *next_finding;
    struct efa_receive receives[]; /* [rq_mask + 1] by position */
};

/* A device that asks about a QP which is not here. */
struct efa_stranger {
    uint8_t name[EFA_NAME_BYTES];
    uint64_t to_cookie, from_cookie;
    uint32_t to_index, from_index;
};

struct efa_server {
    pthread_t thread;
    int wake_fd;
    uint64_t sleeps_until_ns;
    bool runs, stops;
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
    int epoll_fd, event_fd;

    /* Of one endpoint: endpoint.c. The others too are NULL where no other one could be opened. */
    struct fid_ep *ep; /* NULL: there is none */
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_eq *eq; /* of the provider's own failures */
    uint8_t name[EFA_NAME_BYTES];
    int cq_fd;       /* the provider's; -1: it has none, and is looked at by time */
    bool av_is_used; /* by the thread of serve.c, without the mutex */
    bool broken;     /* it is to be closed */
    bool lost;       /* there will be no other */
    bool lost_told;
    uint64_t stops_ns;  /* when it is broken, of one that is left; UINT64_MAX: it is not */
    uint64_t look_ns;   /* when operations are looked at for one without end */
    uint64_t opened_ns; /* when it was opened */
    uint64_t renew_ns;  /* when the next one is to be tried, where there is none */
    uint32_t tries;     /* of it, in a row */
    uint64_t renewals;

    struct fabric_memory memory;

    /* The send queue: [depth] ops, each with a buffer. */
    struct efa_op *ops;
    uint8_t *buffers; /* [depth] to send from, and [receives] to receive to */
    struct fid_mr *buffers_mr;
    void *buffers_desc;
    uint64_t buffers_bytes;
    uint32_t depth, receives;
    struct efa_list free_ops, done, aging;
    struct efa_line refused;
    uint32_t free_count;
    uint64_t mute_ns;  /* words of control.c find no room since then; 0: the last one did */
    uint32_t controls; /* ops of control.c, */
    uint32_t answers;  /* of which so many are of no QP */
    struct fi_context2 *receive_contexts; /* [receives] */
    uint64_t secret;                      /* see receive.c */
    bool *is_posted;                      /* [receives] the provider has it */
    uint32_t *lengths;                    /* [receives] of the payload of one that is kept */
    uint32_t *unposted;                   /* buffers that the provider has not taken yet */
    uint32_t unposted_count;

    struct efa_notes notes;

    struct efa_peer *peers; /* [peers_size] */
    uint32_t *peer_heads;   /* [peers_mask + 1] by hash */
    uint32_t peers_size, peers_mask, peers_used, peers_free, peers_leaving;

    struct weir_qp *qps[EFA_QPS_MAX];
    uint32_t qp_count, qp_hint;
    uint64_t owed;                    /* completions that QPs may have to give, beside ops */
    struct weir_qp *news, *news_last; /* QPs with receives, or flushes, to poll */
    struct weir_qp *restless;         /* QPs with something to say, or to wait for */
    struct weir_qp *finding;          /* QPs whose peer's address is to be found */
    uint64_t restless_ns;             /* when they are to be looked at */
    uint32_t untold;                  /* events that QPs have to tell */
    uint64_t now_ns;                  /* as of the last progress, before it */
    uint64_t taken_ns;                /* when something was completed last */
    uint64_t next_ns;  /* when there is something to do without that; see device_due */
    uint32_t qps_used; /* entries of qps that were ever taken, from the first on */
    uint32_t early;    /* buffers that QPs keep */
    uint64_t polls;    /* by the engine */
    uint64_t nonsense; /* completions and messages that name nothing */
    uint64_t refusals; /* of work, by the provider */
    struct efa_stranger strangers[EFA_STRANGERS]; /* that are to be answered */
    uint32_t stranger_count;
    uint32_t complaints; /* of the completion queue, in a row */
    bool is_armed;       /* the engine may sleep */

    struct efa_server server;
};

static inline void device_lock(struct weir_device *device) {
    pthread_mutex_lock(&device->mutex);
}
static inline void device_unlock(struct weir_device *device) {
    pthread_mutex_unlock(&device->mutex);
}
static inline uint64_t device_now(const struct weir_device *device) {
    return device->env.ops->now(device->env.self);
}
static inline uint8_t *send_buffer(const struct weir_device *device, uint32_t op) {
    return device->buffers + (size_t)op * EFA_BUFFER_BYTES;
}
static inline uint8_t *receive_buffer(const struct weir_device *device, uint32_t number) {
    return send_buffer(device, device->depth + number);
}

/* Between two tries of what the provider refuses, which took something at a time last: an eighth of
 * the time since. Where that is long, there is no hurry. */
#define RETRY_LEAST_NS UINT64_C(20000)
#define RETRY_MOST_NS  UINT64_C(10000000)
static inline uint64_t retry_pause(const struct weir_device *device, uint64_t since_ns) {
    uint64_t pause = device->now_ns > since_ns ? (device->now_ns - since_ns) / 8 : 0;
    pause = pause > RETRY_LEAST_NS ? pause : RETRY_LEAST_NS;
    return pause < RETRY_MOST_NS ? pause : RETRY_MOST_NS;
}

/* ---- efa.c ---- */

void efa_fill_caps(const struct fabric_choice *choice, struct weir_device_caps *caps_out);

/* All functions from here on are called with the device's mutex, but those of memory.c and
 * serve.c, and the device's operations. */

/* ---- endpoint.c ---- */

/* On an error some are open: efa_ep_close closes those. */
int efa_ep_open(struct weir_device *device);
void efa_ep_close(struct weir_device *device);
/* It is broken: it is closed, or will be by a later call, and all QPs fail. */
void efa_ep_bury(struct weir_device *device);
/* Its QPs fail, and it is broken when no message that comes can count as taken any more. */
void efa_ep_leave(struct weir_device *device);
/* Looks for operations without end. When to look again; UINT64_MAX: there is nothing to see. */
uint64_t efa_ep_look(struct weir_device *device);
/* Opens another one where there is none. Only by the thread of serve.c. When to try again;
 * UINT64_MAX: there is one, or never. */
uint64_t efa_ep_renew(struct weir_device *device);

/* ---- ops: poll.c ---- */

/* There will be something to do then, whether or not anything is completed: whoever sleeps past it
 * is woken. */
void device_due(struct weir_device *device, uint64_t at_ns);

/* EFA_NONE: all are taken. */
uint32_t op_take(struct weir_device *device);
void op_free(struct weir_device *device, uint32_t op);
/* The provider has no part in it any more. */
struct efa_end;
void op_over(struct weir_device *device, uint32_t op, const struct efa_end *how);
/* Its WR is over: it is polled, or nobody wants to know. */
void op_done(struct weir_device *device, uint32_t op, uint32_t status);
void ops_push(struct weir_device *device, struct efa_list *list, uint32_t op);
uint32_t ops_pop(struct weir_device *device, struct efa_list *list);

/* ---- vqp.c ---- */

int efa_qp_create(struct weir_device *device, const struct weir_qp_options *options,
                  struct weir_qp_granted *granted_out, struct weir_qp **qp_out);
int efa_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path);
int efa_qp_error(struct weir_qp *qp);
int efa_qp_destroy(struct weir_qp *qp);
/* The QP that a header is for; NULL: there is none. */
struct weir_qp *vqp_meant(const struct weir_device *device, uint32_t index, uint64_t cookie);
/* Its peer's address is known, or cannot be. */
void vqp_found(struct weir_qp *qp, uint32_t peer, int result);
/* Something else than the caller put it in the error state, which an event tells. */
void vqp_fail(struct weir_qp *qp);
/* Nothing that it has sent is without its end. */
bool vqp_is_drained(const struct weir_qp *qp);
/* Its receives, and the WRs that were posted to it in the error state, flush. */
bool vqp_flushes(const struct weir_qp *qp);
/* It has something to poll. */
void vqp_news(struct weir_qp *qp);
/* It has something to say, or to wait for. */
void vqp_restless(struct weir_qp *qp);
/* Looks at the restless ones, if it is time for that. When the next one is to be looked at;
 * UINT64_MAX: there is none. */
uint64_t vqps_look(struct weir_device *device);
/* All fail: of an endpoint that is there, and is left; and of one that is closed, where they have
 * nothing more to say. */
void vqps_fail(struct weir_device *device);
void vqps_bury(struct weir_device *device);

/* ---- av.c ---- */

int av_open(struct weir_device *device);
void av_close(struct weir_device *device);
/* An endpoint that is known, with one more user; EFA_NONE: it is not. */
uint32_t av_find(struct weir_device *device, const uint8_t name[EFA_NAME_BYTES]);
/* The same, or one that the provider is asked for. EFA_NONE: *result_out says why. Only by the
 * thread of serve.c; lets go of the mutex meanwhile. */
uint32_t av_look_up(struct weir_device *device, const uint8_t name[EFA_NAME_BYTES],
                    int *result_out);
void av_release(struct weir_device *device, uint32_t peer);
/* Gives back the addresses that nobody uses. Only by that thread; likewise. */
void av_leave(struct weir_device *device);
/* The endpoint's table is closed, and all addresses with it. */
void av_renew(struct weir_device *device);
static inline fi_addr_t av_address(const struct weir_device *device, uint32_t peer) {
    return device->peers[peer].address;
}

/* ---- control.c ---- */

/* Says what the QP's link has to say, as far as there is room. */
void control_say(struct weir_qp *qp);
/* One of these arrived. body: behind the header, EFA_NAME_BYTES at least. */
void control_heard(struct weir_device *device, const struct efa_header *header,
                   const uint8_t *body);
/* The network is done with one. */
void control_over(struct weir_device *device, struct efa_op *op, bool is_well, bool is_gone);
/* Only by the thread of serve.c; lets go of the mutex meanwhile. */
void control_answer_strangers(struct weir_device *device);

/* ---- post.c ---- */

int efa_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out);
uint32_t efa_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count);
/* How an operation ended. */
struct efa_end {
    uint32_t status; /* enum weir_cqe_status */
    bool is_gone;    /* the endpoint at the other side is no more */
    bool is_open;    /* its packets may still be under way */
};
/* The provider is done with a WR. */
void post_over(struct weir_device *device, uint32_t op, const struct efa_end *how);
/* Messages that are vouched for now are told. is_final: the others are told not to have arrived. */
void post_vouch(struct weir_qp *qp, bool is_final);
/* Gives the provider what it has refused, of each peer in the order in which it was posted. When to
 * try again;
 * UINT64_MAX: there is nothing. */
uint64_t post_refused(struct weir_device *device);
/* Of a QP that is to send nothing more: that is over. */
void post_withdraw(struct weir_qp *qp);
/* WRs whose packets cannot be under way any more are told. When the next ones are; UINT64_MAX. */
uint64_t post_age(struct weir_device *device, uint64_t now);

/* ---- receive.c ---- */

int receives_open(struct weir_device *device);
void receives_close(struct weir_device *device);
/* A new endpoint has none, and takes some. */
int receives_start(struct weir_device *device);
/* The endpoint that had them is closed. */
void receives_bury(struct weir_device *device);
/* Gives the provider the buffers that it has not. */
/* When to try again; UINT64_MAX: it has them all. */
uint64_t receives_post(struct weir_device *device);
/* A buffer has a message. */
void receive_arrived(struct weir_device *device, uint32_t number, uint64_t length);
/* A buffer comes back without one. */
void receive_returned(struct weir_device *device, uint32_t number);
/* The buffers of messages that a QP has no receives for. */
void receive_forget(struct weir_qp *qp);
int efa_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey);

/* ---- kept.c ---- */

/* There are notes for so many receives and WRs, of all QPs together. EFULL; ENOMEM. */
int kept_reserve(struct weir_device *device, uint64_t count);
void kept_close(struct weir_device *device);
/* Of a QP with its ring. */
size_t kept_bytes(const struct weir_qp *qp);
void kept_start(struct weir_qp *qp, uint32_t rq_depth);
/* A receive is posted. */
void kept_post(struct weir_qp *qp, uint64_t wr_id, void *to);
/* A message comes for the first receive that has none: its buffer. */
void *kept_place(struct weir_qp *qp, uint32_t byte_length);
/* The first receive that was not polled is, with its message, or flushed. */
void kept_take(struct weir_qp *qp, struct weir_cqe *cqe_out);
/* A WR is posted in the error state; the first of those is polled. */
void kept_late(struct weir_qp *qp, uint64_t wr_id);
uint64_t kept_take_late(struct weir_qp *qp);
/* The QP goes. */
void kept_forget(struct weir_qp *qp);

/* ---- poll.c ---- */

/* Takes of what the provider has completed. */
void efa_progress(struct weir_device *device);
bool efa_has_news(const struct weir_device *device);
void efa_wake(struct weir_device *device);
void efa_wake_taken(struct weir_device *device);
/* Whether the provider's descriptor will tell of what comes. */
bool efa_may_sleep(const struct weir_device *device);
int efa_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max);
int efa_events(struct weir_device *device, struct weir_async *events_out, int max);
int efa_fd(struct weir_device *device);
int efa_arm(struct weir_device *device);
void efa_disarm(struct weir_device *device);
void efa_tally(struct weir_device *device, struct weir_device_tally *out);

/* ---- serve.c ---- */

int efa_server_start(struct weir_device *device);
void efa_server_stop(struct weir_device *device);
/* There is something for the thread to do. With the device's mutex. */
void efa_server_wake(struct weir_device *device);

/* ---- memory.c: any thread, without the device's mutex ---- */

/* The error of a registration of so many bytes that has failed: EMEMLOCK, or as it is. */
int efa_pin_error(int error, uint64_t length);
int efa_mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int efa_mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                    struct weir_mr *mr_out);
int efa_mr_release(struct weir_device *device, const struct weir_mr *mr);
int efa_mr_export(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                  uint32_t *blob_length_out);
int efa_mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                  uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out);
void efa_mr_forget(struct weir_device *device, const struct weir_rmr *rmr);

/* ---- inherit.c ---- */

/* The descriptors of the network card are not in children. False: they would be. */
bool efa_inherit(const struct fi_info *info);

#endif
