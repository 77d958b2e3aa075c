/* SPDX-License-Identifier: Apache-2.0 */
/* inherit.c: the descriptors that libibverbs opens for a device, and no child of fork(2) may
 * inherit (fork.h).
 *
 * As long as a descriptor of the device's file is open anywhere, or a queue that its driver maps
 * is mapped, its QPs live and answer, whoever made them: a peer would write to memory of a process
 * that is dead, and be told that all is well.
 *
 * Owns nothing: descriptors are their objects', found in the public part of these. Forks are
 * held off meanwhile, so that a child finds no lock of libibverbs taken, and can open devices of
 * its own. */
#include <errno.h>

#include "fork.h"
#include "verbs.h"

struct ibv_device **inherit_list_devices(int *count_out) {
    fork_hold();
    struct ibv_device **list = ibv_get_device_list(count_out);
    fork_release();
    return list;
}

static void disown_context(const struct ibv_context *context) {
    fork_disown(context->cmd_fd);
    fork_disown(context->async_fd);
}

struct ibv_context *inherit_open_device(struct ibv_device *device) {
    fork_hold();
    struct ibv_context *context = ibv_open_device(device);
    if (context != NULL && !(fork_note_device(context->cmd_fd) && fork_note(context->async_fd))) {
        disown_context(context);
        ibv_close_device(context);
        context = NULL;
        errno = ENOMEM;
    }
    fork_release();
    return context;
}

void inherit_close_device(struct ibv_context *context) {
    fork_hold();
    disown_context(context);
    ibv_close_device(context);
    fork_release();
}

struct ibv_comp_channel *inherit_open_channel(struct ibv_context *context) {
    fork_hold();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    if (channel != NULL && !fork_note(channel->fd)) {
        ibv_destroy_comp_channel(channel);
        channel = NULL;
    }
    fork_release();
    return channel;
}

void inherit_close_channel(struct ibv_comp_channel *channel) {
    fork_hold();
    fork_disown(channel->fd);
    ibv_destroy_comp_channel(channel);
    fork_release();
}
