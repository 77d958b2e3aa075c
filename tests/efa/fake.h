/* SPDX-License-Identifier: Apache-2.0 */
/* fake.h: the objects of a libfabric provider that plays Amazon's EFA (SRD) without hardware,
 * between processes of one host. Tests load it in place of libfabric's own: FI_PROVIDER_PATH names
 * the directory of efa-fi.so.
 *
 * Each endpoint has a NIC: a thread (nic.c) that owns sockets. Posts go to that thread through the
 * endpoint's queue `submitted`; completions go to the CQ.
 *
 *   user: post.c ─► endpoint ─► NIC: initiator.c ═ packets ═► NIC: target.c ─► memory, CQ
 *                      CQ ◄─────────────────────◄═ answers ══╝
 *
 * Locks, in the order in which they are taken: an endpoint's; an AV's; a domain's for its MRs; a
 * CQ's. A NIC moves bytes of registered memory with the MRs' lock held, so that nothing moves any
 * more when fi_close(3) of a region has returned. */
#ifndef EFA_FAKE_H
#define EFA_FAKE_H

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
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "habits.h"
#include "status.h"

enum {
    IOVS_MAX = 2,
    SEND_MAX = 8928, /* bytes of a message: the device's MTU */
    INJECT_MAX = 32,
    CHUNK_MAX = 65536,
};
#define MESSAGE_MAX (UINT64_C(1) << 30)
#define NS_PER_US   UINT64_C(1000)
#define NS_PER_MS   UINT64_C(1000000)

/* An endpoint's address: 32 bytes, as the real one's. */
struct address {
    uint64_t prefix; /* with the token, its GID */
    uint64_t token;  /* of the process and its NIC */
    uint16_t qpn;    /* never 0 */
    uint16_t pad;
    uint32_t connid;
    uint64_t reserved;
};

struct fabric {
    struct fid_fabric fid;
    atomic_uint users;
    bool direct;
};

struct domain {
    struct fid_domain fid;
    struct fabric *fabric;
    struct habits habits;
    uint64_t token;
    pid_t pid;
    atomic_uint users;
    atomic_uint endpoints; /* that were opened */
    pthread_mutex_t mr_lock;
    struct mr **mrs; /* by index; NULL: free */
    size_t mrs_size;
    uint64_t mrs_made;
    struct draws draws; /* under mr_lock */
};

struct mr {
    struct fid_mr fid; /* its mem_desc is the key, too */
    struct domain *domain;
    uint64_t base, len;
    uint64_t access;
    size_t index;
};

/* A peer's place in an AV. */
struct peer {
    struct address address;
    unsigned inserted;    /* how often */
    atomic_uint inflight; /* operations */
    uint64_t ready_ns;    /* until then posts are refused; 0: nothing was posted */
};

struct av {
    struct fid_av fid;
    struct domain *domain;
    atomic_uint users;
    pthread_mutex_t lock;
    struct peer **peers; /* by fi_addr_t; NULL: free */
    size_t size;
    uint64_t spoken; /* peers that were ever posted to */
    struct draws draws;
};

struct completion {
    struct fi_cq_err_entry entry; /* prov_errno 0: a good one */
    struct endpoint *endpoint;    /* whose room it takes; NULL: nobody's */
    bool received;
};

struct cq {
    struct fid_cq fid;
    struct domain *domain;
    atomic_uint users;
    pthread_mutex_t lock;
    struct completion *ring;
    size_t size, room, first, count; /* room: with what nonsense adds */
    size_t entry_size;
    int fd; /* readable while there is a completion; -1: no wait object */
    struct draws draws;
};

struct segment {
    uint8_t *base;
    size_t len;
    uint64_t key; /* of its MR */
};

enum kind { KIND_SEND, KIND_WRITE, KIND_READ };

/* An operation of the initiator. */
struct op {
    TAILQ_ENTRY(op) queued; /* submitted, of its link what is to be sent, or late */
    TAILQ_ENTRY(op) known;  /* all of its link */
    enum kind kind;
    uint32_t index, generation; /* that make its id in packets */
    void *context;
    struct peer *peer;
    struct segment segments[IOVS_MAX];
    uint8_t inject[INJECT_MAX];
    bool injected;
    bool has_data;
    uint64_t data;
    uint64_t remote, key;
    uint64_t len, sent;
    uint32_t outstanding; /* packets that are not answered */
    bool all_sent;
    enum status status; /* the first that was bad */
    struct link *link;
    uint64_t posted_ns, due_ns;
};
TAILQ_HEAD(ops, op);

struct receive {
    void *context;
    struct segment segments[IOVS_MAX];
    size_t len;
};

struct counts {
    uint64_t posted, eagain, reordered, completed, errors;
};

/* The contexts that are in flight: open addressing. */
struct contexts {
    const void **slots;
    size_t mask;
};

struct endpoint {
    struct fid_ep fid;
    struct domain *domain;
    struct av *av;
    struct cq *tx_cq, *rx_cq;
    bool direct, enabled;
    uint64_t rnr_tries; /* of messages that find no receive here; 0: without end */
    struct address address;
    struct nic *nic;

    atomic_uint tx_used, rx_used; /* until their completions are read */
    pthread_mutex_t lock;         /* of all below */
    struct op *ops;
    uint32_t ops_made;
    struct ops free, staged, submitted;
    struct receive *receives;
    size_t receives_first, receives_count;
    struct contexts contexts;
    struct draws draws;
    struct counts counts;
};

_Noreturn void give_up(const char *why);
void *allocate(size_t bytes); /* zeroed */

/* provider.c */
bool fabric_is_direct(const struct fi_info *info);
int none_bind(struct fid *fid, struct fid *other, uint64_t flags);
int none_control(struct fid *fid, int command, void *arg);
int none_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

/* eq.c */
int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq_out,
            void *context);

/* domain.c */
int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain_out,
                void *context);

/* mr.c. mr_find is called with mr_lock held. */
extern struct fi_ops_mr mr_ops;
bool mr_covers(struct domain *domain, uint64_t key, uint64_t address, uint64_t len,
               uint64_t any_of);
bool mr_is_local(struct domain *domain, const struct segment *segment, bool written);

/* av.c */
int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av_out,
            void *context);
/* The peer, with one more operation in flight; 0, -FI_EAGAIN or -FI_EINVAL. */
int av_use(struct av *av, fi_addr_t at, const struct habits *habits, struct peer **peer_out);

/* cq.c */
int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq_out,
            void *context);
void cq_push(struct cq *cq, const struct completion *completion);
void cq_forget(struct cq *cq, const struct endpoint *endpoint);
bool cq_is_empty(struct cq *cq);

/* endpoint.c */
int endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep_out,
                  void *context);
/* Under the endpoint's lock. */
void contexts_add(struct endpoint *endpoint, void *context);
void contexts_remove(struct endpoint *endpoint, void *context);
void context_scribble(struct endpoint *endpoint, void *context);

/* post.c */
extern struct fi_ops_msg post_msg_ops;
extern struct fi_ops_rma post_rma_ops;

/* nic.c: from the user's threads. */
int nic_open(struct endpoint *endpoint);
void nic_close(struct endpoint *endpoint); /* returns when its thread is gone */
void nic_wake(struct nic *nic);
bool nic_is_ours(const struct nic *nic); /* and not a parent's, of which a fork has no thread */

#endif
