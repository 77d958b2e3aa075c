/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_fake.h: a provider that is played: libibverbs' functions, defined in the test program,
 * which go before those of the library.
 *
 * It refuses posts anywhere, uses QP numbers again, leaves completions behind, blocks in
 * connects, and counts what is taken and acknowledged: to destroy a QP, CQ or SRQ of which an
 * event was taken and not acknowledged, which would never return, fails the test, and so does
 * an acknowledgement of nothing. */
#ifndef TESTS_VERBS_FAKE_H
#define TESTS_VERBS_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verbs.h"

enum {
    ASKED = 16,
    GRANTED = 31,
    CAPACITY = 100,
    CQES = 256,
    FAKE_CQS = 64,
    SRQ_DEPTH = 8,
    FAKE_EVENTS = 256,
    FAKE_ENTRIES = 8
};

/* Events of one object. */
struct fake_count {
    uint32_t taken, acknowledged;
};

struct fake_qp {
    struct ibv_qp ibv; /* the first */
    struct ibv_cq *cq;
    struct fake_count events;
    struct ibv_qp_attr init, rtr; /* as they were asked for */
    bool failed;                  /* in the error state */
};

/* A send as it came: next and sg_list mean nothing any more. */
struct fake_wr {
    struct ibv_send_wr wr;
    struct ibv_sge sge; /* where num_sge is 1 */
};

struct fake {
    /* queues */
    struct ibv_wc cqes[CQES];
    struct ibv_cq *cqe_of[CQES]; /* which is in which CQ */
    int cqe_count;
    struct ibv_cq *completes_in; /* NULL: the first */
    uint32_t cqs;                /* that there are */
    uint32_t cqs_most;           /* 0: FAKE_CQS */
    int cqe_most;                /* entries that it grants; 0: as asked */
    uint32_t arms;               /* how often a CQ was armed */
    uint64_t posted[CQES];       /* wr_ids, as they came */
    struct fake_wr sent[CQES];
    uint32_t posted_count;
    uint32_t sends_asked; /* of each QP */
    uint32_t sends_granted;
    uint32_t accepts; /* WRs of one post before the refusal */
    int refusal;      /* errno; 0: none */
    uint32_t next_number;
    bool numbers_grow;
    uint32_t qps;
    struct fake_qp *newest;
    int init_error;
    int destroy_error;
    uint32_t inline_most;
    bool armed;
    int arm_error;
    /* events */
    struct ibv_async_event events[FAKE_EVENTS]; /* not yet taken */
    uint32_t event_count;
    uint32_t cq_event_count; /* of the completion channel, not yet taken */
    int event_error;         /* errno where there is none; 0: EAGAIN */
    int channel_error;
    struct fake_count async;      /* all of them */
    struct fake_count of_cq;      /* asynchronous ones */
    struct fake_count of_srq;     /* likewise */
    struct fake_count of_channel; /* completion events */
    bool closed;
    int file_fd; /* of the device's file; -1 */
    bool pipes;  /* calls write to a socket that the other side has closed: SIGPIPE */
    /* what there is to choose from */
    bool absent;
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    int port_error; /* what ibv_query_port says */
    struct ibv_gid_entry gids[FAKE_ENTRIES];
    uint16_t pkeys[FAKE_ENTRIES]; /* host order */
    bool pkeys_unreadable;
    /* memory */
    uint32_t mrs; /* atomic */
    int dmabuf_error;
    unsigned forbidden_access; /* a region with any of these gives */
    int forbidden_error;       /* this errno; 0: EFAULT */
    uint32_t dereg_refused;    /* this key, with */
    int dereg_error;
};
extern struct fake fake;

/* Connects that block. */
void fake_hold_connects(bool held);
/* Until so many threads are in a connect. */
void fake_wait_connects(uint32_t inside);
void fake_connects_fail(int error); /* 0: they do not */

/* A completion in the CQ. */
void fake_complete(uint64_t wr_id, uint32_t number, enum ibv_wc_status status);
/* An asynchronous event of a QP, or (NULL) of its kind's own object. */
void fake_event(enum ibv_event_type type, const struct weir_qp *qp);
void fake_pipe(void); /* what such a call does */
struct fake_qp *fake_qp_of(const struct weir_qp *qp);
/* Whether all that was taken was acknowledged. */
bool fake_all_acknowledged(void);
/* The rights that a region was registered with: IBV_ACCESS_*. */
unsigned fake_access_of(const struct ibv_mr *mr);
struct ibv_device *fake_device_of(void);
/* The one device, open. */
struct ibv_context *fake_context_of(void);

/* Everything as new: an active RoCE port with an IPv4 address and the default P_Key. */
void fake_reset(void);
/* After that: an iWARP device (verbs_fake_cm.h). */
void fake_iwarp(void);

/* A device of a few queue entries, by hand. */
struct weir_device *device_make(bool shared);
void device_drop(struct weir_device *device);
/* One by verbs_device_ops.open, whose settings come from the environment. */
struct weir_device *device_open(void);
struct weir_device *device_open_with(struct weir_device_wishes wishes);
void device_close(struct weir_device *device);

/* How the connect ended that is under way. */
int connected(struct weir_device *device, uint32_t tag);
struct weir_qp *qp_create(struct weir_device *device, uint32_t tag,
                          struct weir_qp_granted *granted_out);
/* Begins to connect it to where the blob says. */
void qp_begin_to(struct weir_qp *qp, const struct weir_qp_granted *there);
struct weir_qp *qp_begin(struct weir_device *device, uint32_t tag); /* to itself */
struct weir_qp *qp_make(struct weir_device *device, uint32_t tag);  /* connected */

#endif
