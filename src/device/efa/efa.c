/* SPDX-License-Identifier: Apache-2.0 */
/* efa.c: opening and closing the efa device, what it can do, and its table of operations.
 *
 * Owns the objects that last as long as the device: fabric, domain, buffers, descriptors. Left to
 * others: the endpoint, which may be renewed (endpoint.c), and everything that happens on it. */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "efa.h"
#include "fork.h"
#include "memlock.h"
#include "pages.h"
#include "rdma.h"

/* ---- what it can do ---- */

static uint32_t smaller(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

static uint32_t rx_depth(const struct fi_info *info) {
    return smaller(info->rx_attr->size, EFA_DEPTH_MAX);
}

static uint64_t buffers_bytes(uint32_t depth, uint32_t receives) {
    return pages_round((uint64_t)(depth + receives) * EFA_BUFFER_BYTES);
}

/* The bytes that may be pinned beside the device's own. */
static uint64_t left_besides(uint64_t own) {
    uint64_t left = memlock_left();
    return left == UINT64_MAX ? left : left > own ? left - own : 0;
}

void efa_fill_caps(const struct fabric_choice *choice, struct weir_device_caps *caps_out) {
    const struct fi_info *info = choice->info;
    uint32_t depth = smaller(info->tx_attr->size, EFA_DEPTH_MAX);
    *caps_out = (struct weir_device_caps){
        .name = "efa",
        .message_bytes_max = smaller(info->ep_attr->max_msg_size, EFA_MESSAGE_MAX),
        .post_bytes_max = UINT64_MAX,
        .sq_depth_max = depth - EFA_CONTROLS,
        .sq_shared = depth - EFA_CONTROLS,
        .rq_depth_max = UINT16_MAX,
        .qps_max = EFA_QPS_MAX,
        .cq_capacity = depth,
        .blames = true,
        .isolates = true,
        .mr_anywhere = true,
        .pins = true,
        .pin_bytes_left = left_besides(buffers_bytes(depth, rx_depth(info))),
    };
    /* The two fabrics do not understand each other. */
    size_t length = strlen(info->fabric_attr->name);
    memcpy(caps_out->fabric, info->fabric_attr->name,
           length < WEIR_FABRIC_ID_SIZE ? length : WEIR_FABRIC_ID_SIZE);
    snprintf(caps_out->note, sizeof caps_out->note, "%s", choice->note);
}

static int efa_probe(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out) {
    return fabric_probe(&efa_backend, wishes, caps_out);
}

/* ---- open ---- */

static int open_buffers(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    device->buffers_bytes = buffers_bytes(device->depth, device->receives);
    device->buffers = pages_map(device->buffers_bytes);
    device->ops = env->ops->alloc(env->self, device->depth * sizeof *device->ops);
    if (device->buffers == NULL || device->ops == NULL ||
        !pages_back(device->buffers, device->buffers_bytes)) /* a NIC pins them anyway */
        return WEIR_ENOMEM;
    device->free_ops = device->done = device->aging = (struct efa_list){EFA_NONE, EFA_NONE};
    device->refused = (struct efa_line){.first = EFA_NONE};
    for (uint32_t i = 0; i < device->depth; i++)
        op_free(device, i);
    /* With FI_SEND the provider would let peers read them, and efa-direct does not need it. */
    bool is_direct = strcmp(device->choice.info->fabric_attr->name, "efa-direct") == 0;
    int rc = fi_mr_reg(device->domain, device->buffers, device->buffers_bytes,
                       is_direct ? FI_RECV : FI_RECV | FI_SEND, 0, 0, 0, &device->buffers_mr, NULL);
    if (rc != 0)
        return efa_pin_error(fabric_error(rc), device->buffers_bytes);
    device->buffers_desc = fi_mr_desc(device->buffers_mr);
    return receives_open(device);
}

static int open_descriptors(struct weir_device *device) {
    fork_hold();
    device->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    device->event_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fork_release();
    struct epoll_event event = {.events = EPOLLIN, .data.fd = device->event_fd};
    if (device->epoll_fd < 0 || device->event_fd < 0 ||
        epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, device->event_fd, &event) != 0)
        return WEIR_EMFILE;
    return WEIR_OK;
}

static int open_domain(struct weir_device *device) {
    struct fi_info *info = device->choice.info;
    int rc = device->library->fabric(info->fabric_attr, &device->fabric, NULL);
    if (rc == 0)
        rc = fi_domain(device->fabric, info, &device->domain, NULL);
    return rc == 0 ? WEIR_OK : fabric_error(rc);
}

static int open_objects(struct weir_device *device) {
    int rc = open_descriptors(device);
    if (rc == WEIR_OK)
        rc = open_domain(device);
    if (rc == WEIR_OK && !efa_inherit(device->choice.info))
        rc = WEIR_EMFILE;
    if (rc == WEIR_OK)
        rc = efa_ep_open(device);
    if (rc == WEIR_OK)
        fabric_memory_start(&device->memory, device->domain,
                            (uint64_t)device->choice.info->domain_attr->mr_mode,
                            FI_READ | FI_WRITE);
    if (rc == WEIR_OK)
        rc = open_buffers(device);
    if (rc == WEIR_OK)
        rc = av_open(device);
    return rc == WEIR_OK ? efa_server_start(device) : rc;
}

/* ---- close ---- */

/* The reverse of open, from wherever it stopped. When the endpoint is closed the buffers are nobody
 * else's any more (fi_endpoint(3)). */
static void close_objects(struct weir_device *device) {
    struct weir_env env = device->env;
    efa_server_stop(device);
    efa_ep_close(device);
    EFA_CLOSE(device->buffers_mr);
    fork_hold();
    EFA_CLOSE(device->domain);
    EFA_CLOSE(device->fabric);
    fork_release();
    if (device->epoll_fd >= 0)
        fork_close(device->epoll_fd);
    if (device->event_fd >= 0)
        fork_close(device->event_fd);
    device->library->freeinfo(device->choice.info);
    receives_close(device);
    kept_close(device);
    av_close(device);
    if (device->ops != NULL)
        env.ops->free(env.self, device->ops, device->depth * sizeof *device->ops);
    if (device->buffers != NULL)
        munmap(device->buffers, device->buffers_bytes);
    fabric_memory_close(&device->memory);
    pthread_mutex_destroy(&device->mutex);
    env.ops->free(env.self, device, sizeof *device);
}

static int efa_open(const struct weir_env *env, struct weir_device **device_out) {
    const struct fabric_library *library;
    struct fabric_choice choice;
    int rc = fabric_choose(&efa_backend, &env->wishes, &library, &choice);
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
    device->depth = smaller(choice.info->tx_attr->size, EFA_DEPTH_MAX);
    device->receives = rx_depth(choice.info);
    device->cq_fd = device->epoll_fd = device->event_fd = device->server.wake_fd = -1;
    device->next_ns = device->restless_ns = device->stops_ns = UINT64_MAX;
    pthread_mutex_init(&device->mutex, NULL);
    efa_fill_caps(&choice, &device->caps);
    rc = fabric_memory_open(&device->memory, env);
    if (rc == WEIR_OK)
        rc = open_objects(device);
    if (rc != WEIR_OK) {
        close_objects(device);
        return rc;
    }
    *device_out = device;
    return WEIR_OK;
}

static void efa_close(struct weir_device *device) {
    assert(device->qp_count == 0);
    close_objects(device);
}

static void efa_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    *caps_out = device->caps;
    device_lock(device);
    uint64_t most = device->depth + device->owed;
    device_unlock(device);
    caps_out->cq_capacity = smaller(most, UINT32_MAX);
}

const struct weir_device_ops efa_device_ops = {
    .name = "efa",
    .nic = {{"WEIR_EFA_DOMAIN", "domain"}, {"WEIR_EFA_FABRIC", "fabric"}},
    .probe = efa_probe,
    .glance = rdma_glance,
    .open = efa_open,
    .close = efa_close,
    .query = efa_query,
    .mr_register = efa_mr_register,
    .mr_allocate = efa_mr_allocate,
    .mr_release = efa_mr_release,
    .mr_export = efa_mr_export,
    .mr_import = efa_mr_import,
    .mr_forget = efa_mr_forget,
    .qp_create = efa_qp_create,
    .qp_connect = efa_qp_connect,
    .qp_error = efa_qp_error,
    .qp_destroy = efa_qp_destroy,
    .post_send = efa_post_send,
    .post_pieces = efa_post_pieces,
    .post_recv = efa_post_recv,
    .poll = efa_poll,
    .events = efa_events,
    .fd = efa_fd,
    .arm = efa_arm,
    .disarm = efa_disarm,
    .tally = efa_tally,
};
