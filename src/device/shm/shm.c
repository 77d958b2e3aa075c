/* SPDX-License-Identifier: Apache-2.0 */
/* shm.c: opening and closing the shm device, and its table of operations.
 *
 * Owns the device's descriptors (segment, bell, epoll; hand.c has others). Left to others:
 * what it can do (probe.c), and everything that happens on an open device. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fork.h"
#include "shm.h"
#include "tracer.h"

/* ---- open, close ---- */

static int open_descriptors(struct weir_device *device) {
    fork_hold();
    device->bell_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (device->bell_fd >= 0)
        device->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    fork_release();
    if (device->bell_fd < 0 || device->epoll_fd < 0)
        return seg_error(errno);
    /* Edge-triggered: every ring wakes once, and nobody has to read the counter. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, device->bell_fd, &event) != 0)
        return seg_error(errno);
    uint64_t random;
    device->env.ops->entropy(device->env.self, &random, sizeof random);
    int rc = seg_create(device->nonce, random, device->bell_fd, device->orders, &device->map,
                        &device->map_fd);
    if (rc != 0)
        return rc;
    device->entries_backed =
        (SEG_OPEN_BYTES - offsetof(struct seg_map, qps)) / sizeof(struct seg_qp);
    device->proofs_backed =
        (SEG_OPEN_GUARD_BYTES - offsetof(struct seg_guard, proofs)) / sizeof(struct seg_proof);
    device->backs_rings = seg_populate(device->map, SEG_OPEN_BYTES) == WEIR_ENOTSUP;
    return hand_open(device);
}

static void close_descriptors(struct weir_device *device) {
    hand_close(device);
    if (device->map != NULL) {
        device->map->head.magic = 0; /* a blob that is still about finds nothing */
        seg_unmap(device->map);
        fork_close(device->map_fd);
    }
    if (device->epoll_fd >= 0)
        fork_close(device->epoll_fd);
    if (device->bell_fd >= 0)
        fork_close(device->bell_fd);
}

static int shm_open_device(const struct weir_env *env, struct weir_device **device_out) {
    struct setting_source source = {.get = getenv, .nic = &env->wishes.nic};
    struct weir_device *device = env->ops->alloc(env->self, sizeof *device);
    if (device == NULL)
        return WEIR_ENOMEM;
    device->env = *env;
    device->bell_fd = device->epoll_fd = device->map_fd = -1;
    env->ops->entropy(env->self, &device->nonce, sizeof device->nonce);
    device->qp_index_end = SHM_QPS_FIRST;
    device->orders = order_open();
    links_open(device);
    pthread_mutex_init(&device->mutex, NULL);
    pthread_mutex_init(&device->hand.mutex, NULL);
    int rc = place_read(&source, &device->place, device->caps.note);
    if (rc == 0)
        rc = caps_fill(&device->place, &device->caps);
    if (rc == 0)
        rc = copy_choose(env, getenv, &device->copier.choice);
    if (rc == 0)
        rc = open_descriptors(device);
    if (rc != 0) {
        close_descriptors(device);
        pthread_mutex_destroy(&device->hand.mutex);
        pthread_mutex_destroy(&device->mutex);
        env->ops->free(env->self, device, sizeof *device);
        return rc;
    }
    *device_out = device;
    return 0;
}

static void shm_close_device(struct weir_device *device) {
    assert(device->all == NULL);
    struct weir_env env = device->env;
    close_descriptors(device);
    tracer_forget(&device->is_traced);
    memory_close(device);
    links_close(device);
    pthread_mutex_destroy(&device->hand.mutex);
    pthread_mutex_destroy(&device->mutex);
    env.ops->free(env.self, device, sizeof *device);
}

static void shm_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    *caps_out = device->caps;
}

const struct weir_device_ops shm_device_ops = {
    .name = "shm",
    .nic = {{"WEIR_SHM_DIRECTORY", "directory"}},
    .probe = shm_probe,
    .glance = shm_glance,
    .open = shm_open_device,
    .close = shm_close_device,
    .query = shm_query,
    .mr_register = shm_mr_register,
    .mr_allocate = shm_mr_allocate,
    .mr_release = shm_mr_release,
    .revoke = shm_revoke,
    .mr_export = shm_mr_export,
    .mr_import = shm_mr_import,
    .mr_forget = shm_mr_forget,
    .mr_is_gone = shm_mr_is_gone,
    .import_populate = shm_import_populate,
    .import_unmap = shm_import_unmap,
    .import_address = shm_import_address,
    .qp_create = shm_qp_create,
    .qp_connect = shm_qp_connect,
    .qp_error = shm_qp_error,
    .qp_destroy = shm_qp_destroy,
    .post_send = shm_post_send,
    .post_pieces = shm_post_pieces,
    .post_direct = shm_post_direct,
    .read_direct = shm_read_direct,
    .direct_order = shm_direct_order,
    .post_recv = shm_post_recv,
    .poll = shm_poll,
    .events = shm_events,
    .fd = shm_fd,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .peer_process = shm_peer_process,
    .process_is_stopped = shm_process_is_stopped,
};
