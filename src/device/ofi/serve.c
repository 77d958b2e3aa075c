/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c: progress while the engine makes none.
 *
 * A peer's write lands, and its read and its call are answered, when this process calls the
 * provider. Where the application does other things for long, a thread does that. It looks once a
 * millisecond whether the engine was there. While that goes on it does nothing else; else it sleeps
 * until there is something, gives the engine a millisecond to take it, and takes it if the engine
 * did not come. So a peer waits some milliseconds, and descriptors that the engine polls wake
 * nobody beside it.
 *
 * Owns the thread and the descriptor that ends it. */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "ofi.h"
#include "thread.h"

#define PATIENCE_NS 1000000

/* Until the engine was not there for a millisecond. The mutex, which the engine has while it moves
 * bytes, is not asked for. */
static uint64_t await_absence(const struct weir_device *device) {
    for (uint64_t polls = polls_now(device);;) {
        nanosleep(&(struct timespec){.tv_nsec = PATIENCE_NS}, NULL);
        uint64_t now = polls_now(device);
        if (now == polls)
            return now;
        polls = now;
    }
}

/* False: the device is lost, and there is nothing more to serve. */
static bool serve(struct weir_device *device, uint64_t polls) {
    device_lock(device);
    if (polls_now(device) == polls)
        ofi_serve(device);
    bool lost = device->lost;
    device_unlock(device);
    return !lost;
}

static void *server_run(void *argument) {
    struct weir_device *device = argument;
    struct pollfd ready[3] = {{.fd = device->server.stop_fd, .events = POLLIN},
                              {.fd = device->cq_fd, .events = POLLIN},
                              {.fd = device->eq_fd, .events = POLLIN}};
    do {
        bool serves = serve(device, await_absence(device));
        (void)poll(ready, serves ? 3 : 1, -1);
    } while (ready[0].revents == 0);
    return NULL;
}

int server_start(struct weir_device *device) {
    struct ofi_server *server = &device->server;
    fork_hold();
    server->stop_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fork_release();
    if (server->stop_fd < 0)
        return WEIR_EMFILE;
    server->runs = thread_create(&server->thread, NULL, server_run, device) == 0;
    return server->runs ? WEIR_OK : WEIR_ENOMEM;
}

void server_stop(struct weir_device *device) {
    struct ofi_server *server = &device->server;
    uint64_t one = 1;
    if (server->runs && write(server->stop_fd, &one, sizeof one) == sizeof one)
        pthread_join(server->thread, NULL);
    if (server->stop_fd >= 0)
        fork_close(server->stop_fd);
    server->runs = false;
    server->stop_fd = -1;
}
