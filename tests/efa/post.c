/* SPDX-License-Identifier: Apache-2.0 */
/* post.c: a post of the user becomes an operation, or a receive, of the endpoint.
 *
 * Room that is taken by a post is free again when its completion has been read, as on the device,
 * whose queues are looked after by fi_cq_read(3). Posts with FI_MORE are kept back until the next
 * one without it. */
#define _GNU_SOURCE
#include <string.h>

#include "fake.h"

struct request {
    enum kind kind;
    const struct iovec *iov;
    void **desc;
    size_t count;
    fi_addr_t to;
    const struct fi_rma_iov *remote; /* NULL: a message */
    void *context;
    uint64_t data, flags;
};

static uint64_t length_of(const struct iovec *iov, size_t count) {
    uint64_t length = 0;
    for (size_t i = 0; i < count; i++)
        length += iov[i].iov_len;
    return length;
}

static void take_segments(struct segment *segments_out, const struct iovec *iov, void **desc,
                          size_t count) {
    memset(segments_out, 0, IOVS_MAX * sizeof *segments_out);
    for (size_t i = 0; i < count; i++) {
        segments_out[i] = (struct segment){.base = iov[i].iov_base, .len = iov[i].iov_len};
        if (desc != NULL)
            segments_out[i].key = (uint64_t)(uintptr_t)desc[i];
    }
}

/* The device writes and reads registered memory, and no other. */
static void check_segments(struct domain *domain, const struct segment *segments) {
    pthread_mutex_lock(&domain->mr_lock);
    for (int i = 0; i < IOVS_MAX; i++) {
        if (segments[i].len != 0 && !mr_is_local(domain, &segments[i], false))
            give_up("a local buffer is not within the region of its descriptor");
    }
    pthread_mutex_unlock(&domain->mr_lock);
}

/* ---- operations ---- */

/* With the lock held. There is a free one: never are more in use than the depth. */
static struct op *take_op(struct endpoint *endpoint) {
    struct op *op = TAILQ_FIRST(&endpoint->free);
    if (op != NULL) {
        TAILQ_REMOVE(&endpoint->free, op, queued);
        return op;
    }
    op = &endpoint->ops[endpoint->ops_made];
    op->index = endpoint->ops_made++;
    return op;
}

static bool has_room(struct endpoint *endpoint) {
    const struct habits *habits = &endpoint->domain->habits;
    if (atomic_load(&endpoint->tx_used) < habits->tx_size &&
        !draw_percent(&endpoint->draws, habits->eagain))
        return true;
    endpoint->counts.eagain++;
    TAILQ_CONCAT(&endpoint->submitted, &endpoint->staged, queued);
    return false;
}

static void fill(struct op *op, const struct request *request, const struct segment *segments,
                 struct peer *peer) {
    op->kind = request->kind;
    op->context = request->context;
    op->peer = peer;
    memcpy(op->segments, segments, sizeof op->segments);
    op->len = length_of(request->iov, request->count);
    op->injected = (request->flags & FI_INJECT) != 0;
    uint8_t *inject = op->inject;
    for (size_t i = 0; op->injected && i < request->count; i++) {
        if (request->iov[i].iov_len != 0)
            memcpy(inject, request->iov[i].iov_base, request->iov[i].iov_len);
        inject += request->iov[i].iov_len;
    }
    op->has_data = (request->flags & FI_REMOTE_CQ_DATA) != 0;
    op->data = request->data;
    op->remote = request->remote != NULL ? request->remote->addr : 0;
    op->key = request->remote != NULL ? request->remote->key : 0;
    op->sent = 0;
    op->outstanding = 0;
    op->all_sent = false;
    op->status = STATUS_OK;
    op->posted_ns = now_ns();
}

static int check(const struct endpoint *endpoint, const struct request *request) {
    if (!endpoint->enabled)
        return -FI_EOPBADSTATE;
    if (request->count > IOVS_MAX || (request->flags & FI_FENCE) != 0)
        return -FI_EINVAL;
    uint64_t length = length_of(request->iov, request->count);
    if (request->remote != NULL && request->remote->len != length)
        return -FI_EINVAL;
    if (request->remote != NULL && (request->flags & (FI_REMOTE_CQ_DATA | FI_INJECT)) != 0)
        return -FI_EOPNOTSUPP;
    if ((request->flags & FI_INJECT) != 0 && length > INJECT_MAX)
        return -FI_EMSGSIZE;
    return 0;
}

static ssize_t post(struct endpoint *endpoint, const struct request *request) {
    int result = check(endpoint, request);
    if (result != 0)
        return result;
    struct segment segments[IOVS_MAX];
    take_segments(segments, request->iov, request->desc, request->count);
    if ((request->flags & FI_INJECT) == 0)
        check_segments(endpoint->domain, segments);
    pthread_mutex_lock(&endpoint->lock);
    struct peer *peer = NULL;
    result = -FI_EAGAIN;
    if (draw_one_in(&endpoint->draws, endpoint->domain->habits.unwilling)) {
        result = -FI_EOPNOTSUPP;
    } else if (has_room(endpoint)) {
        result = av_use(endpoint->av, request->to, &endpoint->domain->habits, &peer);
        endpoint->counts.eagain += result == -FI_EAGAIN;
    }
    if (result == 0) {
        struct op *op = take_op(endpoint);
        contexts_add(endpoint, request->context);
        fill(op, request, segments, peer);
        atomic_fetch_add(&endpoint->tx_used, 1);
        endpoint->counts.posted++;
        TAILQ_INSERT_TAIL(&endpoint->staged, op, queued);
    }
    if ((request->flags & FI_MORE) == 0 || result != 0)
        TAILQ_CONCAT(&endpoint->submitted, &endpoint->staged, queued);
    bool wake = !TAILQ_EMPTY(&endpoint->submitted);
    pthread_mutex_unlock(&endpoint->lock);
    if (wake)
        nic_wake(endpoint->nic);
    return result;
}

static ssize_t post_rma(struct fid_ep *fid, enum kind kind, const struct fi_msg_rma *msg,
                        uint64_t flags) {
    if (msg->rma_iov_count != 1)
        return -FI_EINVAL;
    struct request request = {.kind = kind,
                              .iov = msg->msg_iov,
                              .desc = msg->desc,
                              .count = msg->iov_count,
                              .to = msg->addr,
                              .remote = msg->rma_iov,
                              .context = msg->context,
                              .data = msg->data,
                              .flags = flags};
    return post((struct endpoint *)(void *)fid, &request);
}

/* ---- messages ---- */

static ssize_t receive_message(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags) {
    struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    const struct habits *habits = &endpoint->domain->habits;
    if (!endpoint->enabled)
        return -FI_EOPBADSTATE;
    if (msg->iov_count > IOVS_MAX || (flags & ~(FI_COMPLETION | FI_MORE)) != 0)
        return -FI_EINVAL;
    struct receive receive = {.context = msg->context,
                              .len = length_of(msg->msg_iov, msg->iov_count)};
    take_segments(receive.segments, msg->msg_iov, msg->desc, msg->iov_count);
    check_segments(endpoint->domain, receive.segments);
    ssize_t result = -FI_EAGAIN;
    pthread_mutex_lock(&endpoint->lock);
    if (atomic_load(&endpoint->rx_used) < habits->rx_size) {
        contexts_add(endpoint, msg->context);
        size_t at = (endpoint->receives_first + endpoint->receives_count++) % habits->rx_size;
        endpoint->receives[at] = receive;
        atomic_fetch_add(&endpoint->rx_used, 1);
        result = 0;
    }
    pthread_mutex_unlock(&endpoint->lock);
    nic_wake(endpoint->nic);
    return result;
}

static ssize_t receive_vector(struct fid_ep *fid, const struct iovec *iov, void **desc,
                              size_t count, fi_addr_t from, void *context) {
    struct fi_msg msg = {
        .msg_iov = iov, .desc = desc, .iov_count = count, .addr = from, .context = context};
    return receive_message(fid, &msg, FI_COMPLETION);
}

static ssize_t receive(struct fid_ep *fid, void *base, size_t len, void *desc, fi_addr_t from,
                       void *context) {
    struct iovec iov = {base, len};
    return receive_vector(fid, &iov, &desc, 1, from, context);
}

static ssize_t send_message(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags) {
    struct request request = {.kind = KIND_SEND,
                              .iov = msg->msg_iov,
                              .desc = msg->desc,
                              .count = msg->iov_count,
                              .to = msg->addr,
                              .context = msg->context,
                              .data = msg->data,
                              .flags = flags};
    return post((struct endpoint *)(void *)fid, &request);
}

static ssize_t send_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                           fi_addr_t to, void *context) {
    struct fi_msg msg = {
        .msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .context = context};
    return send_message(fid, &msg, FI_COMPLETION);
}

static ssize_t send_one(struct fid_ep *fid, const void *base, size_t len, void *desc, fi_addr_t to,
                        void *context) {
    struct iovec iov = {(void *)(uintptr_t)base, len};
    return send_vector(fid, &iov, &desc, 1, to, context);
}

static ssize_t no_inject(struct fid_ep *fid, const void *base, size_t len, fi_addr_t to) {
    (void)fid;
    (void)base;
    (void)len;
    (void)to;
    return -FI_ENOSYS;
}

static ssize_t send_data(struct fid_ep *fid, const void *base, size_t len, void *desc,
                         uint64_t data, fi_addr_t to, void *context) {
    struct iovec iov = {(void *)(uintptr_t)base, len};
    struct fi_msg msg = {.msg_iov = &iov,
                         .desc = &desc,
                         .iov_count = 1,
                         .addr = to,
                         .context = context,
                         .data = data};
    return send_message(fid, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA);
}

static ssize_t no_inject_data(struct fid_ep *fid, const void *base, size_t len, uint64_t data,
                              fi_addr_t to) {
    (void)data;
    return no_inject(fid, base, len, to);
}

struct fi_ops_msg post_msg_ops = {.size = sizeof(struct fi_ops_msg),
                                  .recv = receive,
                                  .recvv = receive_vector,
                                  .recvmsg = receive_message,
                                  .send = send_one,
                                  .sendv = send_vector,
                                  .sendmsg = send_message,
                                  .inject = no_inject,
                                  .senddata = send_data,
                                  .injectdata = no_inject_data};

/* ---- remote memory ---- */

static ssize_t write_message(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags) {
    return post_rma(fid, KIND_WRITE, msg, flags);
}

static ssize_t read_message(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags) {
    return post_rma(fid, KIND_READ, msg, flags);
}

static ssize_t rma_vector(struct fid_ep *fid, enum kind kind, const struct iovec *iov, void **desc,
                          size_t count, fi_addr_t to, uint64_t address, uint64_t key,
                          void *context) {
    struct fi_rma_iov remote = {.addr = address, .key = key, .len = length_of(iov, count)};
    struct fi_msg_rma msg = {.msg_iov = iov,
                             .desc = desc,
                             .iov_count = count,
                             .addr = to,
                             .rma_iov = &remote,
                             .rma_iov_count = 1,
                             .context = context};
    return post_rma(fid, kind, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

static ssize_t read_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                           fi_addr_t from, uint64_t address, uint64_t key, void *context) {
    return rma_vector(fid, KIND_READ, iov, desc, count, from, address, key, context);
}

static ssize_t read_one(struct fid_ep *fid, void *base, size_t len, void *desc, fi_addr_t from,
                        uint64_t address, uint64_t key, void *context) {
    struct iovec iov = {base, len};
    return rma_vector(fid, KIND_READ, &iov, &desc, 1, from, address, key, context);
}

static ssize_t write_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t to, uint64_t address, uint64_t key, void *context) {
    return rma_vector(fid, KIND_WRITE, iov, desc, count, to, address, key, context);
}

static ssize_t write_one(struct fid_ep *fid, const void *base, size_t len, void *desc, fi_addr_t to,
                         uint64_t address, uint64_t key, void *context) {
    struct iovec iov = {(void *)(uintptr_t)base, len};
    return rma_vector(fid, KIND_WRITE, &iov, &desc, 1, to, address, key, context);
}

static ssize_t no_inject_write(struct fid_ep *fid, const void *base, size_t len, fi_addr_t to,
                               uint64_t address, uint64_t key) {
    (void)address;
    (void)key;
    return no_inject(fid, base, len, to);
}

static ssize_t no_write_data(struct fid_ep *fid, const void *base, size_t len, void *desc,
                             uint64_t data, fi_addr_t to, uint64_t address, uint64_t key,
                             void *context) {
    (void)desc;
    (void)data;
    (void)context;
    return no_inject_write(fid, base, len, to, address, key);
}

static ssize_t no_inject_write_data(struct fid_ep *fid, const void *base, size_t len, uint64_t data,
                                    fi_addr_t to, uint64_t address, uint64_t key) {
    (void)data;
    return no_inject_write(fid, base, len, to, address, key);
}

struct fi_ops_rma post_rma_ops = {.size = sizeof(struct fi_ops_rma),
                                  .read = read_one,
                                  .readv = read_vector,
                                  .readmsg = read_message,
                                  .write = write_one,
                                  .writev = write_vector,
                                  .writemsg = write_message,
                                  .inject = no_inject_write,
                                  .writedata = no_write_data,
                                  .injectdata = no_inject_write_data};
