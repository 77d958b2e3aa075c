/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_pair.c: see verbs_pair.h. */
#define _GNU_SOURCE
#include "verbs_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORT = 1, RECEIVE_BYTES = 256 };

void die(const char *what, int error) {
    printf("set-up failed: %s: %s\n", what, strerror(error));
    exit(EXIT_FAILURE);
}

static uint64_t now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct ibv_context *context_open(const char *name) {
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;

    for (int i = 0; list != NULL && i < count; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            context = ibv_open_device(list[i]);
    }
    if (list != NULL)
        ibv_free_device_list(list);
    if (context == NULL)
        die(name, ENODEV);
    return context;
}

/* RoCE v2 with an IPv4 address if there is one, else the first that is set. */
static void gid_choose(struct side *side) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct ibv_gid_entry entry;

    for (uint32_t i = 0; i < (uint32_t)side->port.gid_tbl_len; i++) {
        if (ibv_query_gid_ex(side->context, PORT, i, &entry, 0) != 0)
            continue;
        int wanted = entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
                     memcmp(entry.gid.raw, mapped, sizeof(mapped)) == 0;
        if (!wanted && side->gid.global.interface_id != 0)
            continue;
        side->gid = entry.gid;
        side->gid_index = (uint8_t)i;
        if (wanted)
            return;
    }
}

void side_open(struct side *side, const char *device, uint32_t srq_depth) {
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = srq_depth, .max_sge = 1}};
    int flags;

    memset(side, 0, sizeof(*side));
    side->context = context_open(device);
    if (ibv_query_device(side->context, &side->device) != 0 ||
        ibv_query_port(side->context, PORT, &side->port) != 0)
        die("query", errno);
    gid_choose(side);
    side->pd = ibv_alloc_pd(side->context);
    side->cq = ibv_create_cq(side->context, SIDE_CQ_DEPTH, NULL, NULL, 0);
    side->bytes = aligned_alloc(4096, SIDE_BYTES);
    if (side->pd == NULL || side->cq == NULL || side->bytes == NULL)
        die("PD, CQ or memory", errno);
    memset(side->bytes, 0, SIDE_BYTES);
    side->srq = ibv_create_srq(side->pd, &srq);
    side->mr =
        ibv_reg_mr(side->pd, side->bytes, SIDE_BYTES,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (side->srq == NULL || side->mr == NULL)
        die("SRQ or MR", errno);
    side->srq_granted = srq.attr.max_wr;
    flags = fcntl(side->context->async_fd, F_GETFL);
    fcntl(side->context->async_fd, F_SETFL, flags | O_NONBLOCK);
}

void side_close(struct side *side) {
    int rc = ibv_destroy_srq(side->srq);

    rc = rc != 0 ? rc : ibv_destroy_cq(side->cq);
    rc = rc != 0 ? rc : ibv_dereg_mr(side->mr);
    rc = rc != 0 ? rc : ibv_dealloc_pd(side->pd);
    rc = rc != 0 ? rc : ibv_close_device(side->context);
    free(side->bytes);
    if (rc != 0)
        die("closing a side", rc);
}

void side_receive(struct side *side, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct ibv_sge sge = {
            .addr = (uintptr_t)side->bytes + SIDE_BYTES - (i + 1) * RECEIVE_BYTES,
            .length = RECEIVE_BYTES,
            .lkey = side->mr->lkey,
        };
        struct ibv_recv_wr wr = {.wr_id = 1000 + i, .sg_list = &sge, .num_sge = 1}, *bad;
        int rc = ibv_post_srq_recv(side->srq, &wr, &bad);
        if (rc != 0)
            die("receive", rc);
    }
}

struct ibv_qp *qp_open(struct side *side, const struct qp_options *options,
                       struct ibv_qp_cap *cap) {
    struct ibv_qp_init_attr init = {
        .send_cq = side->cq,
        .recv_cq = side->cq,
        .srq = side->srq,
        .cap = {.max_send_wr = options->depth,
                .max_send_sge = options->sges,
                .max_inline_data = options->inline_bytes},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = options->signal_all,
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = PORT,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    struct ibv_qp *qp = ibv_create_qp(side->pd, &init);

    if (qp == NULL)
        die("QP", errno);
    int rc = ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (rc != 0)
        die("INIT", rc);
    if (cap != NULL)
        *cap = init.cap;
    return qp;
}

void qp_connect(struct side *side, struct ibv_qp *qp, struct side *other, uint32_t number,
                const struct qp_options *options) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = side->port.active_mtu,
        .dest_qp_num = number,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12, /* 0.64 ms */
        .ah_attr = {.is_global = side->port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .dlid = other->port.lid,
                    .port_num = PORT,
                    .grh = {.dgid = other->gid, .sgid_index = side->gid_index, .hop_limit = 64}},
    };
    int rc = ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc != 0)
        die("RTR", rc);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = options->timeout,
        .retry_cnt = options->retry_count,
        .rnr_retry = options->rnr_retry,
        .max_rd_atomic = 1,
    };
    rc = ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (rc != 0)
        die("RTS", rc);
}

void qp_to_error(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    int rc = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

    if (rc != 0)
        die("ERR", rc);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp) {
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 ? attr.qp_state : IBV_QPS_UNKNOWN;
}

struct ibv_send_wr write_wr(struct side *from, struct side *to, uint64_t id, struct ibv_sge *sge,
                            uint32_t offset, uint32_t length) {
    *sge = (struct ibv_sge){
        .addr = (uintptr_t)from->bytes + offset, .length = length, .lkey = from->mr->lkey};
    return (struct ibv_send_wr){
        .wr_id = id,
        .sg_list = sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = (uintptr_t)to->bytes + offset, .rkey = to->mr->rkey},
    };
}

int completion(struct side *side, struct ibv_wc *wc_out, int ms) {
    uint64_t until = now_ms() + (uint64_t)ms;

    do {
        int got = ibv_poll_cq(side->cq, 1, wc_out);
        if (got < 0)
            die("poll", errno);
        if (got == 1)
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    } while (now_ms() < until);
    return 0;
}

unsigned events(struct side *side, enum ibv_event_type type, int ms, int until_first) {
    struct pollfd wait = {.fd = side->context->async_fd, .events = POLLIN};
    uint64_t until = now_ms() + (uint64_t)ms, now;
    unsigned count = 0;

    while ((now = now_ms()) < until && !(until_first && count > 0)) {
        struct ibv_async_event event;
        if (poll(&wait, 1, (int)(until - now)) <= 0 ||
            ibv_get_async_event(side->context, &event) != 0)
            continue;
        count += event.event_type == type;
        ibv_ack_async_event(&event);
    }
    return count;
}
