/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_pair.h: two RDMA devices and queue pairs between them, straight on libibverbs: what
 * facts.c asks its questions with. One process, no weir.
 *
 * Set-up that fails ends the program with a message (see die); what is asked about returns. */
#ifndef VERBS_PAIR_H
#define VERBS_PAIR_H

#include <stdint.h>

#include <infiniband/verbs.h>

enum { SIDE_BYTES = 1 << 20, SIDE_CQ_DEPTH = 1024 };

/* One opened device with all that its queue pairs share. */
struct side {
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    uint8_t gid_index;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    uint32_t srq_granted;
    struct ibv_mr *mr; /* SIDE_BYTES, all rights */
    uint8_t *bytes;
};

struct qp_options {
    uint32_t depth, sges, inline_bytes;
    int signal_all;
    uint8_t rnr_retry, retry_count, timeout; /* as the RTS transition takes them */
};
#define QP_OPTIONS_DEFAULT                                                                         \
    { .depth = 16, .sges = 1, .signal_all = 1, .rnr_retry = 7, .retry_count = 2, .timeout = 8 }

_Noreturn void die(const char *what, int error);

void side_open(struct side *side, const char *device, uint32_t srq_depth);
void side_close(struct side *side);
/* count receives of 256 bytes on the SRQ, from the end of the memory. */
void side_receive(struct side *side, unsigned count);

/* In state INIT, on the side's CQ and SRQ. */
struct ibv_qp *qp_open(struct side *side, const struct qp_options *options, struct ibv_qp_cap *cap);
void qp_connect(struct side *side, struct ibv_qp *qp, struct side *other, uint32_t number,
                const struct qp_options *options);
void qp_to_error(struct ibv_qp *qp);
enum ibv_qp_state qp_state(struct ibv_qp *qp);

/* A write of length bytes at offset to the same offset of the other side; not posted. */
struct ibv_send_wr write_wr(struct side *from, struct side *to, uint64_t id, struct ibv_sge *sge,
                            uint32_t offset, uint32_t length);
/* Waits up to ms for one completion of the side's CQ: 1, or 0 when none came. */
int completion(struct side *side, struct ibv_wc *wc_out, int ms);
/* Asynchronous events of this type within ms, all acknowledged; others are dropped. With
 * until_first, returns at the first. */
unsigned events(struct side *side, enum ibv_event_type type, int ms, int until_first);

#endif
