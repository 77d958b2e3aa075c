/* SPDX-License-Identifier: Apache-2.0 */
/* control.c: what devices tell each other about QPs: PING, PONG, STOP.
 *
 * link.h decides; here it becomes messages, and back. Some places of the send queue are for these
 * alone, of which one peer may have a share, and answers to those that are not there another one:
 * whoever takes no messages holds no more. An op may outlive its QP, so that it names it and does
 * not point to it.
 *
 * One that names a QP which is not there, or is another one's, gets a STOP: that QP has nothing
 * under way to whoever asks. If nothing is known of whoever asks, the thread of serve.c finds its
 * address first; of some at a time, since anybody may ask. One that finds no room asks again. */
#include <string.h>

#include "efa.h"

/* A word of the QP at `from` here to the one at `to`. */
struct word {
    struct efa_header header;
    uint64_t cookie; /* of the QP that says it; 0: none is to hear how it ended */
    uint32_t index;
    uint32_t says; /* LINK_SAYS_* */
};

/* EAGAIN: not now, or never: there is no endpoint. */
static int try_to_say(struct weir_device *device, uint32_t peer, const struct word *word) {
    bool is_answer = word->cookie == 0;
    if (device->ep == NULL || device->controls == EFA_CONTROLS ||
        device->peers[peer].controls == EFA_PEER_CONTROLS ||
        (is_answer && device->answers == EFA_PEER_CONTROLS))
        return WEIR_EAGAIN;
    uint32_t number = op_take(device);
    if (number == EFA_NONE)
        return WEIR_EAGAIN;
    struct efa_op *op = &device->ops[number];
    uint8_t *buffer = send_buffer(device, number);
    efa_header_write(&word->header, buffer);
    memcpy(buffer + EFA_HEADER_BYTES, device->name, EFA_NAME_BYTES);
    op->qp = NULL;
    op->cookie = word->cookie;
    op->qp_index = word->index;
    op->says = (uint8_t)word->says;
    op->flags = word->header.number;
    op->peer = peer;
    op->state = EFA_OP_SENT;
    op->looks = 0;
    struct iovec from = {.iov_base = buffer, .iov_len = EFA_HEADER_BYTES + EFA_NAME_BYTES};
    struct fi_msg message = {.msg_iov = &from,
                             .desc = &device->buffers_desc,
                             .iov_count = 1,
                             .addr = av_address(device, peer),
                             .context = &op->context};
    if (fi_sendmsg(device->ep, &message, FI_COMPLETION) != 0) {
        op_free(device, number);
        return WEIR_EAGAIN;
    }
    device->peers[peer].users++;
    device->peers[peer].controls++;
    device->controls++;
    device->answers += is_answer;
    return WEIR_OK;
}

static int say(struct weir_device *device, uint32_t peer, const struct word *word) {
    int rc = try_to_say(device, peer, word);
    if (rc == WEIR_OK)
        device->mute_ns = 0;
    else if (device->mute_ns == 0)
        device->mute_ns = device_now(device);
    return rc;
}

static const uint32_t kinds[][2] = {
    {LINK_SAYS_STOP, EFA_STOP}, {LINK_SAYS_PONG, EFA_PONG}, {LINK_SAYS_PING, EFA_PING}};

void control_say(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    bool is_drained = vqp_is_drained(qp);
    uint64_t now = device_now(device);
    uint32_t due = link_due(&qp->link, device->now_ns, is_drained);
    for (int i = 0; due != 0 && i < 3; i++) {
        uint32_t what = kinds[i][0];
        if ((due & what) == 0)
            continue;
        struct word word = {.header = {.kind = kinds[i][1],
                                       .to_cookie = qp->there.cookie,
                                       .to_index = qp->there.index,
                                       .from_cookie = qp->cookie,
                                       .from_index = qp->index,
                                       .number = what == LINK_SAYS_STOP
                                                     ? link_flags(&qp->link, is_drained)
                                                     : link_number(&qp->link, what)},
                            .cookie = qp->cookie,
                            .index = qp->index,
                            .says = what};
        if (say(device, qp->peer, &word) != WEIR_OK)
            return;
        link_said(&qp->link, what, now, is_drained);
    }
}

/* ---- those that are not there ---- */

/* A peer that a QP was taken from, or a stranger. */
static void answer(struct weir_device *device, uint32_t peer, const struct efa_stranger *asks) {
    struct word word = {.header = {.kind = EFA_STOP,
                                   .to_cookie = asks->from_cookie,
                                   .to_index = asks->from_index,
                                   .from_cookie = asks->to_cookie,
                                   .from_index = asks->to_index,
                                   .number = LINK_DRAINED},
                        .says = LINK_SAYS_STOP};
    (void)say(device, peer, &word); /* it asks again */
}

/* Strangers that come meanwhile have the next turn. */
void control_answer_strangers(struct weir_device *device) {
    struct efa_stranger asking[EFA_STRANGERS];
    uint32_t count = device->stranger_count;
    memcpy(asking, device->strangers, count * sizeof asking[0]);
    device->stranger_count = 0;
    for (uint32_t i = 0; i < count && device->ep != NULL; i++) {
        int result;
        uint32_t peer = av_look_up(device, asking[i].name, &result);
        if (peer == EFA_NONE)
            continue;
        answer(device, peer, &asking[i]);
        av_release(device, peer);
    }
}

static void heard_for_none(struct weir_device *device, const struct efa_header *header,
                           const uint8_t *name) {
    struct efa_stranger asks = {.to_cookie = header->to_cookie,
                                .from_cookie = header->from_cookie,
                                .to_index = header->to_index,
                                .from_index = header->from_index};
    memcpy(asks.name, name, EFA_NAME_BYTES);
    bool wants = header->kind == EFA_PING ||
                 (header->kind == EFA_STOP && (header->number & LINK_WANTS) != 0);
    if (!wants)
        return;
    uint32_t peer = av_find(device, name);
    if (peer != EFA_NONE) {
        answer(device, peer, &asks);
        av_release(device, peer);
    } else if (device->stranger_count < EFA_STRANGERS) {
        device->strangers[device->stranger_count++] = asks;
        efa_server_wake(device);
    }
}

/* ---- what came ---- */

/* A QP whose peer is not known yet has posted nothing. The words of one that may be its peer are
 * remembered: that it has stopped, or asks. */
static void heard_early(struct weir_qp *qp, const struct efa_header *header, const uint8_t *name) {
    if (header->kind == EFA_PING) {
        qp->asked_cookie = header->from_cookie;
        qp->asked = header->number;
    }
    if (header->kind != EFA_STOP)
        return;
    if (qp->stopped_cookie != 0 && qp->stopped_cookie != header->from_cookie)
        qp->crosses_stops = true;
    qp->stopped_cookie = header->from_cookie;
    heard_for_none(qp->device, header, name);
}

void control_heard(struct weir_device *device, const struct efa_header *header,
                   const uint8_t *body) {
    struct weir_qp *qp = vqp_meant(device, header->to_index, header->to_cookie);
    if (qp != NULL && !qp->link.opened) {
        heard_early(qp, header, body);
    } else if (qp == NULL || header->from_cookie != qp->there.cookie) {
        heard_for_none(device, header, body);
    } else {
        if (header->kind == EFA_PING)
            link_heard_ping(&qp->link, header->number);
        else if (header->kind == EFA_STOP)
            link_heard_stop(&qp->link, header->number);
        else if (link_heard_pong(&qp->link, header->number))
            post_vouch(qp, false);
        vqp_restless(qp);
    }
}

void control_over(struct weir_device *device, struct efa_op *op, bool is_well, bool is_gone) {
    struct weir_qp *qp = op->cookie != 0 ? vqp_meant(device, op->qp_index, op->cookie) : NULL;
    device->controls--;
    device->answers -= op->cookie == 0;
    if (qp != NULL) {
        uint64_t now = device_now(device);
        if (is_gone)
            link_peer_gone(&qp->link, now);
        link_over(&qp->link, op->says, op->flags, is_well, now);
        vqp_restless(qp);
    }
    device->peers[op->peer].controls--;
    av_release(device, op->peer);
}
