/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c: progress while the engine makes none.
 *
 * A peer's write lands, and its read and its call are answered, when this process calls the
 * provider. Where the application does other things for long, a thread does that: it sleeps until
 * there is something, gives the engine a millisecond to take it, and takes it if the engine did not
 * come. So a peer waits no longer than that, and an engine that is busy with its device is left
 * alone: the thread wakes a thousand times a second at most.
 *
 * Owns the thread and its descriptors. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "ofi.h"
#include "thread.h"

#define PATIENCE_NS 1000000

static void serve(struct weir_device *device, uint64_t polls) {
    device_lock(device);
    if (device->polls == polls)
        ofi_serve(device);
    device_unlock(device);
}

static uint64_t polls_now(struct weir_device *device) {
    device_lock(device);
    uint64_t polls = device->polls;
    device_unlock(device);
    return polls;
}

static void *server_run(void *argument) {
    struct weir_device *device = argument;
    struct ofi_server *server = &device->server;
    struct epoll_event event;
    for (;;) {
        int got = epoll_wait(server->epoll_fd, &event, 1, -1);
        if (got < 0 && errno != EINTR)
            return NULL;
        if (got == 1 && event.data.fd == server->stop_fd)
            return NULL;
        uint64_t polls = polls_now(device);
        nanosleep(&(struct timespec){.tv_nsec = PATIENCE_NS}, NULL);
        serve(device, polls);
    }
}

static bool listen_to(const struct ofi_server *server, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return fd >= 0 && epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

int server_start(struct weir_device *device) {
    struct ofi_server *server = &device->server;
    fork_hold();
    server->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    server->stop_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fork_release();
    if (server->epoll_fd < 0 || !listen_to(server, server->stop_fd) ||
        !listen_to(server, device->cq_fd) || !listen_to(server, device->eq_fd))
        return WEIR_EMFILE;
    server->runs = thread_create(&server->thread, NULL, server_run, device) == 0;
    return server->runs ? WEIR_OK : WEIR_ENOMEM;
}

void server_stop(struct weir_device *device) {
    struct ofi_server *server = &device->server;
    uint64_t one = 1;
    if (server->runs && write(server->stop_fd, &one, sizeof one) == sizeof one)
        pthread_join(server->thread, NULL);
    if (server->epoll_fd >= 0)
        fork_close(server->epoll_fd);
    if (server->stop_fd >= 0)
        fork_close(server->stop_fd);
    server->runs = false;
    server->epoll_fd = server->stop_fd = -1;
}
