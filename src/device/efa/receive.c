/* SPDX-License-Identifier: Apache-2.0 */
/* receive.c: what arrives at the endpoint, and the receives of QPs.
 *
 * Owns the buffers that the provider receives to. All are the provider's, but one whose message is
 * being looked at, and those of messages that found no receive, of which a QP may have a few, and
 * all QPs a part. A peer that sends more has not kept to its credits, and its QP fails. A message
 * that was told to be sent may be one of these, and goes with its QP if nobody posts a receive. */
#include <stdlib.h>
#include <string.h>

#include "efa.h"

/* ---- buffers ---- */

int receives_open(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    device->receive_contexts =
        env->ops->alloc(env->self, device->receives * sizeof *device->receive_contexts);
    device->unposted = env->ops->alloc(env->self, device->receives * sizeof *device->unposted);
    device->is_posted = env->ops->alloc(env->self, device->receives * sizeof *device->is_posted);
    device->lengths = env->ops->alloc(env->self, device->receives * sizeof *device->lengths);
    if (device->receive_contexts == NULL || device->unposted == NULL || device->is_posted == NULL ||
        device->lengths == NULL)
        return WEIR_ENOMEM;
    env->ops->entropy(env->self, &device->secret, sizeof device->secret);
    for (uint32_t i = 0; i < device->receives; i++)
        device->unposted[i] = i;
    device->unposted_count = device->receives;
    return receives_start(device);
}

int receives_start(struct weir_device *device) {
    uint32_t had = device->unposted_count;
    receives_post(device);
    return device->unposted_count < had ? WEIR_OK : WEIR_EDEVICE;
}

void receives_bury(struct weir_device *device) {
    for (uint32_t i = 0; i < device->receives; i++) {
        if (device->is_posted[i])
            receive_returned(device, i);
    }
}

void receives_close(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    if (device->receive_contexts != NULL)
        env->ops->free(env->self, device->receive_contexts,
                       device->receives * sizeof *device->receive_contexts);
    if (device->unposted != NULL)
        env->ops->free(env->self, device->unposted, device->receives * sizeof *device->unposted);
    if (device->is_posted != NULL)
        env->ops->free(env->self, device->is_posted, device->receives * sizeof *device->is_posted);
    if (device->lengths != NULL)
        env->ops->free(env->self, device->lengths, device->receives * sizeof *device->lengths);
}

/* A buffer begins with a number that nobody else knows until a message is in it. A completion that
 * the provider gives twice names a buffer that it has again: it must not be given once more, for
 * two messages would be in one. */
static void mark(const struct weir_device *device, uint32_t number) {
    memcpy(receive_buffer(device, number), &device->secret, sizeof device->secret);
}

static bool is_marked(const struct weir_device *device, uint32_t number) {
    return memcmp(receive_buffer(device, number), &device->secret, sizeof device->secret) == 0;
}

#define RETRY_NS UINT64_C(1000000)

uint64_t receives_post(struct weir_device *device) {
    while (device->ep != NULL && !device->broken && device->unposted_count > 0) {
        uint32_t number = device->unposted[device->unposted_count - 1];
        struct iovec to = {.iov_base = receive_buffer(device, number), .iov_len = EFA_BUFFER_BYTES};
        struct fi_msg message = {.msg_iov = &to,
                                 .desc = &device->buffers_desc,
                                 .iov_count = 1,
                                 .addr = FI_ADDR_UNSPEC,
                                 .context = &device->receive_contexts[number]};
        mark(device, number);
        if (fi_recvmsg(device->ep, &message, FI_COMPLETION) != 0)
            return device->now_ns + RETRY_NS;
        device->is_posted[number] = true;
        device->unposted_count--;
    }
    return UINT64_MAX;
}

static void give_back(struct weir_device *device, uint32_t number) {
    device->unposted[device->unposted_count++] = number;
}

/* ---- messages ---- */

/* No receive is shorter than recv_bytes_max, nor is a message longer. */
static void place(struct weir_qp *qp, uint32_t number) {
    const struct weir_device *device = qp->device;
    uint32_t length = device->lengths[number];
    void *to = kept_place(qp, length);
    memcpy(to, receive_buffer(device, number) + EFA_HEADER_BYTES, length);
    vqp_news(qp);
}

/* Whether the buffer is kept. */
static bool take(struct weir_qp *qp, uint32_t number) {
    if (qp->device->lengths[number] > qp->recv_bytes_max) {
        vqp_fail(qp);
    } else if (qp->early_count == 0 && qp->rq_seen != qp->rq_head) {
        place(qp, number);
    } else if (qp->early_count < EFA_EARLY_MAX &&
               qp->device->early < qp->device->receives / EFA_EARLY_SHARE) {
        qp->device->early++;
        qp->early[qp->early_count++] = number;
        return true;
    } else {
        vqp_fail(qp);
    }
    return false;
}

static bool dispatch(struct weir_device *device, uint32_t number, uint64_t length) {
    const uint8_t *bytes = receive_buffer(device, number);
    struct efa_header header;
    if (length > EFA_BUFFER_BYTES || !efa_header_read(bytes, length, &header)) {
        device->nonsense++;
        return false;
    }
    if (header.kind != EFA_MESSAGE) {
        control_heard(device, &header, bytes + EFA_HEADER_BYTES);
        return false;
    }
    struct weir_qp *qp = vqp_meant(device, header.to_index, header.to_cookie);
    if (qp == NULL || vqp_flushes(qp))
        return false; /* its sender has not been told that it was taken */
    if (qp->link.opened && header.from_cookie != qp->there.cookie) {
        device->nonsense++;
        return false;
    }
    device->lengths[number] = (uint32_t)length - EFA_HEADER_BYTES;
    return take(qp, number);
}

void receive_arrived(struct weir_device *device, uint32_t number, uint64_t length) {
    if (length >= sizeof device->secret && is_marked(device, number)) {
        device->nonsense++;
        return;
    }
    device->is_posted[number] = false;
    if (!dispatch(device, number, length))
        give_back(device, number);
}

void receive_returned(struct weir_device *device, uint32_t number) {
    device->is_posted[number] = false;
    give_back(device, number);
}

void receive_forget(struct weir_qp *qp) {
    qp->device->early -= qp->early_count;
    for (; qp->early_count > 0; qp->early_count--)
        give_back(qp->device, qp->early[qp->early_count - 1]);
}

/* ---- receives ---- */

/* The message that came first is placed first. */
static void place_early(struct weir_qp *qp) {
    if (qp->early_count == 0)
        return;
    uint32_t number = qp->early[0];
    qp->early_count--;
    qp->device->early--;
    memmove(&qp->early[0], &qp->early[1], qp->early_count * sizeof qp->early[0]);
    place(qp, number);
    give_back(qp->device, number);
}

int efa_post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                  uint32_t length, uint32_t lkey) {
    void *desc;
    if (qp == NULL || length < qp->recv_bytes_max || wr_id > WEIR_WR_ID_MAX ||
        !fabric_region_holds(&device->memory, lkey, (uint64_t)(uintptr_t)buffer, length, &desc))
        return WEIR_EINVAL;
    device_lock(device);
    int rc = WEIR_OK;
    if (qp->rq_head - qp->rq_tail >= qp->rq_depth) {
        rc = WEIR_EAGAIN;
    } else {
        kept_post(qp, wr_id, buffer);
        if (vqp_flushes(qp))
            vqp_news(qp);
        else
            place_early(qp);
    }
    device_unlock(device);
    return rc;
}
