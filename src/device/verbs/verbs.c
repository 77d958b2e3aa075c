/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.c: opening and closing the verbs device, what it can do, and its table of
 * operations.
 *
 * Owns the objects that all QPs share: protection domain, completion channel, shared receive
 * queue, descriptors. Left to others: everything that happens on an open device. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fork.h"
#include "memlock.h"
#include "rdma.h"
#include "verbs.h"

/* A device that pins its queues, too, pins about as much in open; it does not say how much. */
#define OPEN_PINS (UINT64_C(1) << 20)

static uint32_t smaller(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

/* ---- what it can do ---- */

/* Whether there is, or will be, a shared receive queue, if the device gives one. */
static bool wants_srq(const struct verbs_settings *settings, const struct ibv_device_attr *attr) {
    return settings->srq != 0 && attr->max_srq > 0 && attr->max_srq_wr > 0;
}

static void fill_caps(const struct verbs_settings *settings, const struct verbs_choice *choice,
                      struct weir_device_caps *caps) {
    const struct ibv_device_attr *attr = &choice->attr;
    bool srq = wants_srq(settings, attr);
    bool fenced = choice->fabric == FABRIC_IWARP;
    bool last_wqe = habit_has_last_wqe(ibv_get_device_name(choice->context->device));
    uint32_t reads = smaller((uint32_t)attr->max_qp_rd_atom, (uint32_t)attr->max_qp_init_rd_atom);
    *caps = (struct weir_device_caps){
        .name = "verbs",
        .fabric = {(uint8_t)choice->fabric}, /* the network decides about the rest */
        .message_bytes_max = smaller(choice->port_attr.max_msg_sz, VERBS_MESSAGE_MAX),
        .post_bytes_max = UINT64_MAX,
        .inline_bytes_max = VERBS_INLINE_WANTED,
        .sq_depth_max = smaller((uint32_t)attr->max_qp_wr / (fenced ? 2 : 1), VERBS_DEPTH_MAX),
        .rq_depth_max = smaller((uint32_t)attr->max_qp_wr, VERBS_DEPTH_MAX),
        .qps_max = smaller((uint32_t)attr->max_qp, VERBS_QPS_MAX),
        .cq_capacity = smaller((uint32_t)attr->max_cqe, VERBS_CQ_MAX),
        .mtu_max = choice->mtu,
        .rd_atomic_max = smaller(reads, VERBS_RD_ATOMIC_MAX),
        .ordered = true,
        .blames = !fenced, /* an error that ends an RDMAP stream is told to the other end alone */
        .srq = srq,
        .last_wqe = srq && last_wqe, /* ibv_get_async_event(3): of QPs on a shared queue */
        .mr_anywhere = true,
        .pins = true,
        .pin_bytes_left = memlock_left(),
    };
    snprintf(caps->note, sizeof caps->note, "%s", choice->note);
}

static int verbs_probe(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out) {
    struct setting_source source = {.get = getenv, .nic = wishes != NULL ? &wishes->nic : NULL};
    struct verbs_settings settings;
    struct verbs_choice choice = {0};
    int rc = settings_read(&source, &settings, choice.note);
    if (rc == WEIR_OK)
        rc = select_open(&settings, &choice);
    if (rc == WEIR_OK) {
        fill_caps(&settings, &choice, caps_out);
        inherit_close_device(choice.context);
        return WEIR_OK;
    }
    snprintf(caps_out->note, sizeof caps_out->note, "%s", choice.note);
    return rc;
}

/* ---- open, close ---- */

static int set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? WEIR_OK : WEIR_EDEVICE;
}

/* How long the shared receive queue should be, and may be: a quarter of a CQ, and up to half of
 * one where all QPs that may come need that. 0: it would be too short for them all, and those that
 * come last would wait for the others to go. */
static uint32_t srq_wanted(const struct weir_device *device, uint32_t half) {
    const struct weir_device_wishes *wishes = &device->env.wishes;
    uint64_t needed = (uint64_t)wishes->qps * wishes->qp_receives;
    uint32_t wanted = smaller((uint32_t)device->choice.attr.max_srq_wr, half / 2);
    if (device->settings.srq == VERBS_UNSET && needed > wanted)
        return smaller((uint32_t)device->choice.attr.max_srq_wr, half) < needed ? 0
                                                                                : (uint32_t)needed;
    return wanted;
}

/* Without a shared queue each QP has its own. */
static void open_srq(struct weir_device *device) {
    uint32_t half = smaller(cq_asked(device), device->cqs[0]->capacity) / 2;
    if (!wants_srq(&device->settings, &device->choice.attr))
        return;
    struct ibv_srq_init_attr init = {.srq_context = device, .attr.max_sge = 1};
    uint32_t first = srq_wanted(device, half), wanted = first;
    for (; device->srq == NULL && wanted >= VERBS_SRQ_MIN; wanted /= 2) {
        init.attr.max_wr = wanted;
        device->srq = ibv_create_srq(device->pd, &init);
        if (device->settings.srq == VERBS_UNSET && first > half / 2)
            break; /* less would not do */
    }
    if (device->srq == NULL)
        return;
    device->srq_depth = smaller(init.attr.max_wr, first > half / 2 ? half : half / 2);
    cqs_reserve(device);
}

static int open_descriptors(struct weir_device *device) {
    if (connector_open(device) != WEIR_OK)
        return WEIR_EDEVICE;
    device->watch_fd = watch_open(device->choice.context);
    int fds[6] = {device->channel->fd,
                  device->choice.context->async_fd,
                  device->connector.event_fd,
                  device->watch_fd,
                  device->cm.fd,
                  device->cm.timer_fd};
    int count = device->fenced ? 6 : 4;
    fork_hold();
    device->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    fork_release();
    if (device->epoll_fd < 0)
        return WEIR_EDEVICE;
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (fds[i] == device->watch_fd && fds[i] < 0)
            continue; /* its news is sought from time to time */
        if (set_nonblocking(fds[i]) != WEIR_OK ||
            epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return WEIR_EDEVICE;
    }
    return WEIR_OK;
}

static int open_objects(struct weir_device *device) {
    device->pd = ibv_alloc_pd(device->choice.context);
    device->channel = inherit_open_channel(device->choice.context);
    if (device->pd == NULL || device->channel == NULL)
        return WEIR_EDEVICE;
    int rc = cqs_open(device);
    if (rc == WEIR_OK)
        open_srq(device);
    if (rc == WEIR_OK && device->fenced)
        rc = cm_open(device);
    if (rc == WEIR_OK)
        rc = open_descriptors(device);
    if (rc == WEIR_OK)
        rc = qp_try_sizes(device);
    if (rc != WEIR_OK)
        return rc;
    struct weir_device_caps *caps = &device->caps;
    uint32_t sends = device->cqs[0]->capacity - device->srq_depth;
    caps->inline_bytes_max = device->inline_bytes;
    caps->pieces_max = device->pieces > 1 ? device->pieces : 0;
    caps->srq = device->srq != NULL;
    caps->last_wqe &= caps->srq;
    caps->sq_depth_max = smaller(caps->sq_depth_max, sends / (device->fenced ? 6 : 2));
    caps->rq_depth_max = smaller(caps->rq_depth_max, sends / 2);
    return WEIR_OK;
}

/* Gives back what the provider has given, from wherever open stopped. */
static void give_back(struct weir_device *device) {
    connector_close(device);
    cm_close(device);
    if (device->watch_fd >= 0)
        fork_close(device->watch_fd);
    if (device->srq != NULL)
        ibv_destroy_srq(device->srq);
    cqs_close(device);
    if (device->channel != NULL)
        inherit_close_channel(device->channel);
    if (device->pd != NULL)
        ibv_dealloc_pd(device->pd);
    inherit_close_device(device->choice.context);
    device->gone = true;
}

/* All QPs are gone. The removal of the device waits until it is closed here. */
static int verbs_let_go(struct weir_device *device) {
    assert(device->qp_count == 0);
    if (device->gone || verbs_memory_let_go(device) != WEIR_OK)
        return device->gone ? WEIR_OK : WEIR_EAGAIN;
    give_back(device);
    return WEIR_OK;
}

/* The reverse of open, from wherever it stopped. */
static void close_objects(struct weir_device *device) {
    struct weir_env env = device->env;
    if (!device->gone)
        give_back(device);
    if (device->epoll_fd >= 0)
        fork_close(device->epoll_fd);
    if (device->stash != NULL)
        env.ops->free(env.self, device->stash, (size_t)device->stash_size * sizeof *device->stash);
    verbs_memory_close(device);
    env.ops->free(env.self, device, sizeof *device);
}

static int verbs_open(const struct weir_env *env, struct weir_device **device_out) {
    struct setting_source source = {.get = getenv, .nic = &env->wishes.nic};
    struct verbs_settings settings;
    struct verbs_choice choice = {0};
    int rc = settings_read(&source, &settings, choice.note);
    if (rc == WEIR_OK)
        rc = select_open(&settings, &choice);
    if (rc != WEIR_OK)
        return rc;
    struct weir_device *device = env->ops->alloc(env->self, sizeof *device);
    if (device == NULL) {
        inherit_close_device(choice.context);
        return WEIR_ENOMEM;
    }
    device->env = *env;
    device->settings = settings;
    device->choice = choice;
    device->fenced = choice.fabric == FABRIC_IWARP;
    device->raises_sigpipe = sigpipe_is_raised(&choice.attr);
    device->epoll_fd = device->watch_fd = -1;
    verbs_memory_open(device);
    fill_caps(&settings, &choice, &device->caps);
    post_prepare(device);
    errno = 0;
    rc = open_objects(device);
    if (rc != WEIR_OK) {
        bool locked = errno == ENOMEM && memlock_left() < OPEN_PINS;
        close_objects(device);
        return locked ? WEIR_EMEMLOCK : rc;
    }
    *device_out = device;
    return WEIR_OK;
}

static void verbs_close(struct weir_device *device) {
    assert(device->qp_count == 0);
    close_objects(device);
}

static void verbs_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    *caps_out = device->caps;
    if (device->gone)
        return;
    caps_out->cq_capacity = cqs_capacity(device);
    caps_out->last_wqe = device->srq != NULL &&
                         habit_has_last_wqe(ibv_get_device_name(device->choice.context->device));
}

const struct weir_device_ops verbs_device_ops = {
    .name = "verbs",
    .nic = {{"WEIR_VERBS_DEVICE", "device"}, {"WEIR_VERBS_PORT", "port"}},
    .probe = verbs_probe,
    .glance = rdma_glance,
    .open = verbs_open,
    .close = verbs_close,
    .let_go = verbs_let_go,
    .query = verbs_query,
    .mr_register = verbs_mr_register,
    .mr_allocate = verbs_mr_allocate,
    .mr_register_dmabuf = verbs_mr_register_dmabuf,
    .mr_release = verbs_mr_release,
    .mr_export = verbs_mr_export,
    .mr_import = verbs_mr_import,
    .mr_forget = verbs_mr_forget,
    .qp_create = verbs_qp_create,
    .qp_connect = verbs_qp_connect,
    .qp_error = verbs_qp_error,
    .qp_destroy = verbs_qp_destroy,
    .post_send = verbs_post_send,
    .post_pieces = verbs_post_pieces,
    .post_recv = verbs_post_recv,
    .poll = verbs_poll,
    .events = verbs_events,
    .fd = verbs_fd,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .link_is_down = verbs_link_is_down,
    .counts = verbs_counts,
};
