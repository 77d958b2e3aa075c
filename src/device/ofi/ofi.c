/* SPDX-License-Identifier: Apache-2.0 */
/* ofi.c: opening and closing the ofi device, what it can do, and its table of operations.
 *
 * Owns the objects that all QPs share: fabric, domain, queues, the word for fences, descriptors.
 * Left to others: everything that happens on an open device. */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "fork.h"
#include "ofi.h"

/* ---- what it can do ---- */

static uint32_t smaller(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

/* One place of the send queue is for fences. */
void ofi_fill_caps(const struct fabric_choice *choice, struct weir_device_caps *caps_out) {
    const struct fi_info *info = choice->info;
    *caps_out = (struct weir_device_caps){
        .name = "ofi",
        .message_bytes_max = smaller(info->ep_attr->max_msg_size, OFI_MESSAGE_MAX),
        .post_bytes_max = UINT64_MAX,
        .inline_bytes_max = smaller(info->tx_attr->inject_size, UINT16_MAX),
        .pieces_max = smaller(info->tx_attr->iov_limit, OFI_PIECES),
        .sq_depth_max = smaller(info->tx_attr->size - 1, OFI_DEPTH_MAX),
        .rq_depth_max = smaller(info->rx_attr->size, OFI_DEPTH_MAX),
        .qps_max = smaller(info->domain_attr->ep_cnt, OFI_QPS_MAX),
        .cq_capacity = smaller(info->tx_attr->size + info->rx_attr->size, OFI_DEPTH_MAX),
        .ordered = true,
        .mr_anywhere = true,
        .pin_bytes_left = UINT64_MAX,
    };
    /* Providers do not understand each other. */
    size_t length = strlen(info->fabric_attr->prov_name);
    memcpy(caps_out->fabric, info->fabric_attr->prov_name,
           length < WEIR_FABRIC_ID_SIZE ? length : WEIR_FABRIC_ID_SIZE);
    snprintf(caps_out->note, sizeof caps_out->note, "%s", choice->note);
}

static int ofi_probe(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out) {
    return fabric_probe(&ofi_backend, wishes, caps_out);
}

/* ---- open, close ---- */

static int open_fabric(struct weir_device *device) {
    struct fi_info *info = device->choice.info;
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    int rc = device->library->fabric(info->fabric_attr, &device->fabric, NULL);
    if (rc == 0)
        rc = fi_domain(device->fabric, info, &device->domain, NULL);
    if (rc == 0)
        fabric_memory_start(&device->memory, device->domain, (uint64_t)info->domain_attr->mr_mode,
                            FI_SEND | FI_RECV | FI_READ | FI_WRITE);
    if (rc == 0)
        rc = fi_eq_open(device->fabric, &eq, &device->eq, NULL);
    if (rc == 0)
        rc = fi_cq_open(device->domain, &cq, &device->cq, NULL);
    if (rc == 0)
        rc = fi_control(&device->cq->fid, FI_GETWAIT, &device->cq_fd);
    if (rc == 0)
        rc = fi_control(&device->eq->fid, FI_GETWAIT, &device->eq_fd);
    return rc == 0 ? connect_open(device) : fabric_error(rc);
}

/* A word that peers may read and, an empty write, aim at. Its key is random, as all are. */
static int open_fence(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    uint64_t key;
    env->ops->entropy(env->self, &key, sizeof key);
    int rc = fi_mr_reg(device->domain, device->fence_words, sizeof device->fence_words,
                       FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0,
                       &device->fence_mr, NULL);
    if (rc != 0)
        return fabric_error(rc);
    device->fence_key = fi_mr_key(device->fence_mr);
    device->fence_desc = fi_mr_desc(device->fence_mr);
    device->fence_raddr =
        device->memory.virtual_addresses ? (uint64_t)(uintptr_t)device->fence_words : 0;
    return WEIR_OK;
}

static int open_descriptors(struct weir_device *device) {
    fork_hold();
    device->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    device->event_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    device->timer_fd = fork_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    bool noted = inherit_note_fd(device->cq_fd) && inherit_note_fd(device->eq_fd);
    fork_release();
    int fds[2] = {device->event_fd, device->timer_fd}; /* poll.c adds the others */
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (!noted || fds[i] < 0 || epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return WEIR_EMFILE;
    }
    return WEIR_OK;
}

static int open_objects(struct weir_device *device) {
    int rc = open_fabric(device);
    if (rc == WEIR_OK)
        rc = open_fence(device);
    if (rc == WEIR_OK)
        rc = open_descriptors(device);
    return rc == WEIR_OK ? server_start(device) : rc;
}

static void close_fid(struct fid *fid) {
    if (fid != NULL)
        fi_close(fid);
}
#define CLOSE(object) close_fid((object) != NULL ? &(object)->fid : NULL)

/* The reverse of open, from wherever it stopped. */
static void close_objects(struct weir_device *device) {
    struct weir_env env = device->env;
    server_stop(device);
    connect_close(device);
    fork_hold();
    fork_disown(device->cq_fd);
    fork_disown(device->eq_fd);
    CLOSE(device->fence_mr);
    CLOSE(device->cq);
    CLOSE(device->eq);
    CLOSE(device->domain);
    CLOSE(device->fabric);
    fork_release();
    int fds[3] = {device->epoll_fd, device->event_fd, device->timer_fd};
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            fork_close(fds[i]);
    }
    device->library->freeinfo(device->choice.info);
    if (device->stash != NULL)
        env.ops->free(env.self, device->stash, (size_t)device->stash_size * sizeof *device->stash);
    fabric_memory_close(&device->memory);
    pthread_mutex_destroy(&device->mutex);
    env.ops->free(env.self, device, sizeof *device);
}

static int ofi_open(const struct weir_env *env, struct weir_device **device_out) {
    const struct fabric_library *library;
    struct fabric_choice choice;
    int rc = fabric_choose(&ofi_backend, &env->wishes, &library, &choice);
    if (rc != WEIR_OK)
        return rc;
    struct weir_device *device = env->ops->alloc(env->self, sizeof *device);
    if (device == NULL) {
        library->freeinfo(choice.info);
        return WEIR_ENOMEM;
    }
    device->env = *env;
    device->library = library;
    device->choice = choice;
    device->cq_fd = device->eq_fd = -1;
    device->epoll_fd = device->event_fd = device->timer_fd = device->listen_fd = -1;
    device->server.stop_fd = -1;
    pthread_mutex_init(&device->mutex, NULL);
    fabric_memory_open(&device->memory, env);
    ofi_fill_caps(&choice, &device->caps);
    uint32_t inline_wish = env->wishes.inline_bytes;
    if (inline_wish == WEIR_INLINE_NONE)
        device->caps.inline_bytes_max = 0;
    else if (inline_wish != 0)
        device->caps.inline_bytes_max = smaller(device->caps.inline_bytes_max, inline_wish);
    rc = open_objects(device);
    if (rc != WEIR_OK) {
        close_objects(device);
        return rc;
    }
    *device_out = device;
    return WEIR_OK;
}

static void ofi_close(struct weir_device *device) {
    assert(device->qp_count == 0);
    close_objects(device);
}

static void ofi_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    *caps_out = device->caps;
    device_lock(device);
    if (device->stash_owed > caps_out->cq_capacity)
        caps_out->cq_capacity = device->stash_owed;
    device_unlock(device);
}

const struct weir_device_ops ofi_device_ops = {
    .name = "ofi",
    .nic = {{"WEIR_OFI_DOMAIN", "domain"}, {"WEIR_OFI_ADDRESS", "address"}},
    .probe = ofi_probe,
    .open = ofi_open,
    .close = ofi_close,
    .query = ofi_query,
    .mr_register = ofi_mr_register,
    .mr_allocate = ofi_mr_allocate,
    .mr_release = ofi_mr_release,
    .mr_export = ofi_mr_export,
    .mr_import = ofi_mr_import,
    .mr_forget = ofi_mr_forget,
    .qp_create = ofi_qp_create,
    .qp_connect = ofi_qp_connect,
    .qp_error = ofi_qp_error,
    .qp_destroy = ofi_qp_destroy,
    .post_send = ofi_post_send,
    .post_pieces = ofi_post_pieces,
    .post_recv = ofi_post_recv,
    .poll = ofi_poll,
    .events = ofi_events,
    .fd = ofi_fd,
    .arm = ofi_arm,
    .disarm = ofi_disarm,
    .has_served = ofi_has_served,
    .tally = ofi_tally,
};
