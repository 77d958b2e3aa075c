/* SPDX-License-Identifier: Apache-2.0 */
/* nic_impl.h: the NIC's own structures, shared by nic.c (objects, states), nic_queue.c
 * (queues), nic_wire.c (packets), nic_inline.c (no packets) and plant.c.
 *
 * A QP is named in packets by {node, number, uid}. Numbers are the lowest free and
 * so are reused at once; the uid stands for what makes a real NIC drop a stale
 * packet, the 24-bit random PSN, without its one chance in 2^24. PSNs are checked
 * besides. */
#ifndef WEIR_SIM_NIC_IMPL_H
#define WEIR_SIM_NIC_IMPL_H

#include "nic.h"

enum {
    NIC_QPS_MAX = 1024,
    NIC_QPN_FIRST = 0x11, /* the same in every life: numbers of a restart collide */
    NIC_KEY_INDEX_BITS = 12,
    NIC_MRS_MAX = 1 << NIC_KEY_INDEX_BITS,
};

/* Allocated memory, for as long as its owner or somebody who imported it has it. */
struct nic_pages {
    uint32_t refs;
    uint32_t reserved[15]; /* the bytes begin on a line of their own */
    uint8_t bytes[];
};

struct nic_mr {
    uint32_t key; /* 0: free */
    uint32_t access;
    struct nic_pages *pages; /* NULL: it is the application's */
    uint8_t *base;
    uint64_t length;
};

/* A peer's memory as imported here. Its key is local, so that one that was forgotten
 * is known for what it is. */
struct nic_import {
    uint32_t key; /* 0: free */
    uint32_t remote_key;
    uint32_t node, life;     /* whose memory it is */
    struct nic_pages *pages; /* of memory that is lent; NULL */
};

struct nic_recv {
    uint64_t wr_id;
    uint8_t *buffer;
    uint32_t length;
};

/* A bounded queue of buffers that the NIC owns. */
struct nic_recvs {
    struct nic_recv *ring;
    uint32_t depth;
    uint32_t head;
    uint32_t count;
};

struct nic_entry {
    uint64_t wr_id;
    uint32_t pieces_left; /* unordered: answers to come, */
    uint32_t status;      /* and the first of them that was bad */
    bool signaled;
    bool complete;
    bool sent;      /* not posted in the error state */
    bool freed;     /* its slot was given back */
    bool shared;    /* it has one of those that all QPs share, too */
    uint64_t bytes; /* of a read or write */
};

struct nic_cqe {
    struct weir_cqe cqe;
    uint32_t qpn;
    uint64_t uid;
    uint64_t seq;
    uint64_t at_ns; /* since when it waits to be polled */
    bool send;
};

/* Completions in order. One that holds some is on the device's list of rings. */
struct nic_ring {
    struct nic_ring *next;
    struct nic_cqe *cqes;
    uint32_t capacity; /* power of two */
    uint32_t head;
    uint32_t count;
    uint32_t turn; /* completions before the next ring has its turn */
    bool listed;
};

struct weir_qp {
    struct weir_device *nic;
    uint64_t uid;
    uint32_t qpn;
    uint32_t tag;
    uint32_t state; /* enum sim_qp_state */
    uint32_t recv_bytes_max;
    uint32_t destroy_fails;
    bool flushing;     /* a flush event is on its way */
    bool still;        /* it sends nothing any more */
    bool connecting;   /* it is in INIT until that is told */
    uint64_t fail_seq; /* with news_first: the send that failed it, and how, for its flush */
    uint32_t fail_status;

    uint32_t remote_node;
    uint32_t remote_qpn;
    uint64_t remote_uid; /* 0: not connected */
    uint32_t psn_local;
    uint32_t psn_remote;

    /* Send queue. Entries [tail, head) hold slots, [done, head) are not complete
     * (ordered; unordered ones complete in any order). */
    struct nic_entry *entries;
    uint32_t entry_mask;
    uint32_t sq_depth;
    uint32_t sq_used;
    uint32_t sq_data;  /* reads and writes with bytes among those that hold slots */
    uint64_t sq_bytes; /* and how many */
    uint64_t head;
    uint64_t done;
    uint64_t tail;

    uint64_t tx_psn;    /* packets sent */
    uint64_t rx_psn;    /* ordered: packets taken */
    uint64_t ret_sent;  /* answers to the remote */
    uint64_t ret_taken; /* ordered: answers taken */
    uint64_t tx_at_ns;  /* when the newest packet arrives over there */
    uint64_t ret_at_ns; /* when the newest answer arrives over there */
    struct nic_recvs rq;
    struct nic_ring rings[2]; /* of a device with qp_rings: all, or sends and receives */
};

struct weir_device {
    struct sim_node *node;
    struct sim_world *world;
    const struct sim_nic_config *config;
    struct weir_qp *qps[NIC_QPS_MAX];
    uint32_t qp_top; /* no QP at or above */
    struct nic_mr *mrs;
    uint32_t mr_count;
    uint32_t key_next;
    struct nic_import *imports;
    uint32_t import_count;
    uint32_t import_tries;       /* ever */
    struct nic_ring cq;          /* of all QPs; with qp_rings of those that are gone */
    struct nic_ring *ring_first; /* rings that hold completions, in the order of their turns */
    struct nic_ring *ring_last;
    struct weir_async *asyncs;
    uint32_t async_capacity;
    uint32_t async_count;
    struct nic_recvs srq;
    uint32_t sq_taken; /* slots of the queue that all QPs share */
    uint64_t recv_refused_until_ns;
    uint64_t lacks_until_ns;
    struct nic_packet *kept_first; /* with buffers: what waits until the process goes on, */
    struct nic_packet *kept_last;  /* as it came */
    uint64_t out_free_ns;          /* its port has sent all that it was given by then, */
    uint64_t in_free_ns;           /* and taken all that has come; both only with bytes_per_us */
    bool failed;                   /* for good: device_fail */
    bool let_go;
    struct sim_nic_census census;
    uint64_t plant_count; /* plant.c's */
    uint8_t plant_blob[WEIR_QP_BLOB_MAX];
};

/* nic.c */
struct weir_qp *nic_find(struct sim_world *world, uint32_t node, uint32_t qpn, uint64_t uid);
struct nic_mr *nic_mr_find(struct weir_device *nic, uint32_t key);
bool nic_mr_covers_local(struct weir_device *nic, uint32_t key, uint64_t at, uint64_t length);
/* The memory behind a remote address, or NULL when key, right or bounds are wrong. */
uint8_t *nic_mr_target(struct weir_device *nic, uint32_t key, uint64_t raddr, uint64_t length,
                       uint32_t access);

/* From an address of an import to what the packet carries. False: forgotten. */
/* Whether its owner released the memory, as the device of `nic` sees it: sees_release. */
bool nic_import_is_gone(const struct weir_device *nic, uint32_t key);
bool nic_import_resolve(const struct weir_device *nic, uint32_t key, uint64_t raddr,
                        uint32_t *key_out, uint64_t *raddr_out);

/* nic_queue.c */
void *nic_calloc(size_t count, size_t size);
/* A QP's rings, from its birth to its end; what is left there goes to the common one,
 * unless destroying a QP cleans it away. */
void nic_rings_init(struct weir_qp *qp);
void nic_rings_fini(struct weir_qp *qp);
void nic_ring_free(struct nic_ring *ring);
void nic_recvs_init(struct nic_recvs *recvs, uint32_t depth);
/* To the error state: what it holds flushes a little later. */
void nic_qp_to_error(struct weir_qp *qp);
int nic_post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                  struct weir_post *post_out);
uint32_t nic_post_pieces(struct weir_qp *qp, const struct weir_span *span,
                         const weir_segment *segments, uint32_t count);
int nic_post_recv(struct weir_device *nic, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey);
int nic_poll(struct weir_device *nic, struct weir_cqe *cqes_out, int max);
bool nic_recv_take(struct weir_qp *qp, struct nic_recv *recv_out);
bool nic_recv_ready(const struct weir_qp *qp);
void nic_cq_push_recv(struct weir_qp *qp, const struct nic_recv *recv, uint32_t status,
                      uint32_t length);
/* One acknowledgement of send `seq` has come; ordered QPs complete all up to it. */
void nic_sq_acknowledge(struct weir_qp *qp, uint64_t seq);
/* Sends of the QP run on, whatever becomes of it: only where failures are isolated. */
bool nic_sq_runs(const struct weir_qp *qp);
/* The QP goes: the slots that it still has of those that all share are free. */
void nic_sq_leave(struct weir_qp *qp);
/* The send `seq` failed: its CQE, then the QP is in error; where failures are isolated, its CQE
 * when the rest of it is over. */
void nic_sq_fail(struct weir_qp *qp, uint64_t seq, uint32_t status);
/* To the error state by itself, or because the other side is over; with news of it if the
 * device gives any. */
void nic_qp_fail(struct weir_qp *qp);
void nic_async_push(struct weir_device *nic, uint32_t type, uint32_t tag);

/* nic_wire.c */
/* Puts an accepted WR on the wire. */
void nic_launch(struct weir_qp *qp, uint64_t seq, const struct weir_wr *wr);
/* The QP will not answer any more: with no_blame the other side hears of it. */
void nic_hang_up(const struct weir_qp *qp);
/* The packets that wait in its host for the process of this NIC go with it. */
void nic_kept_free(struct weir_device *nic);
/* *wr_out: as *wr, with the target's own key and address. The fault that the sender's NIC finds
 * with it, or WEIR_CQE_OK. */
uint32_t nic_wr_resolve(struct weir_qp *qp, const struct weir_wr *wr, struct weir_wr *wr_out);

/* nic_inline.c */
/* Executes the WR here and now if nothing stands in the way. */
bool nic_execute_inline(struct weir_qp *qp, const struct weir_wr *wr);
int nic_post_direct(struct weir_qp *qp, const struct weir_direct_to *to,
                    const struct weir_direct *directs, uint32_t count, uint64_t *watch_out);
int nic_read_direct(struct weir_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t *words_out,
                    uint32_t count);

#endif
