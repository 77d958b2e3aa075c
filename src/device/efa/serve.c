/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c: a thread for what does not wait for the engine.
 *
 * Peers ask whether a QP is there, and whether it has drained, and go on when they are answered:
 * also while the application does other things. And some calls take a command to the network card:
 * addresses are found and given back here. Where the provider has no descriptor that tells of
 * completions, the thread looks for them by time: each 100 us for some milliseconds behind the
 * last, and else once a millisecond; and wakes the engine that sleeps.
 *
 * As long as the engine polls, the thread looks once a millisecond whether it still does.
 *
 * Owns the thread and the descriptor that wakes it. */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "efa.h"
#include "fork.h"
#include "ready.h"
#include "thread.h"

#define PATIENCE_NS UINT64_C(1000000)
#define CLOSE_NS    UINT64_C(100000)
#define RECENT_NS   UINT64_C(10000000)

/* Lets go of the mutex meanwhile. */
static void find_peers(struct weir_device *device) {
    while (device->finding != NULL && device->ep != NULL) {
        struct weir_qp *qp = device->finding;
        int result;
        device->finding = qp->next_finding;
        qp->finding = true;
        uint32_t peer = av_look_up(device, qp->there.name, &result);
        qp->finding = false;
        vqp_found(qp, peer, result);
    }
}

/* Until when there is nothing to look at; UINT64_MAX: until a descriptor tells. */
static uint64_t quiet_until(const struct weir_device *device, uint64_t now, uint64_t renew_ns) {
    uint64_t until = device->next_ns < renew_ns ? device->next_ns : renew_ns;
    bool is_recent = now - device->taken_ns < RECENT_NS;
    uint64_t look = now + (is_recent ? CLOSE_NS : PATIENCE_NS);
    if (device->cq_fd < 0 && device->ep != NULL && look < until)
        until = look;
    return until;
}

/* One that sleeps on the provider's descriptor is woken before that may be read empty; so it is
 * left alone where there is nothing to do. */
static void serve(struct weir_device *device) {
    struct pollfd ready = {.fd = device->cq_fd, .events = POLLIN};
    bool has_fd = device->cq_fd >= 0 && device->ep != NULL;
    bool is_idle = has_fd && ready_wait(&ready, 1, 0) <= 0 && device_now(device) < device->next_ns;
    if (is_idle && !efa_has_news(device))
        return;
    if (has_fd)
        efa_wake(device);
    efa_progress(device);
    if (!efa_may_sleep(device))
        device_due(device, device_now(device) + CLOSE_NS);
    if (efa_has_news(device))
        efa_wake(device);
    else if (has_fd)
        efa_wake_taken(device);
}

struct efa_server_look {
    uint64_t pause_ns;
    int cq_fd; /* -1: there is none */
    bool engine_is_here, stops;
};

/* While the engine is here the thread looks soon anyway, and is not woken for what is due. */
static struct efa_server_look look(struct weir_device *device, uint64_t *polls) {
    device_lock(device);
    device->server.sleeps_until_ns = 0;
    uint64_t renew_ns = efa_ep_renew(device);
    find_peers(device);
    control_answer_strangers(device);
    av_leave(device);
    bool is_here = device->polls != *polls && !device->is_armed;
    *polls = device->polls;
    if (!is_here)
        serve(device);
    else if (device->untold > 0)
        efa_wake(device);
    uint64_t now = device_now(device);
    uint64_t until = is_here ? now + PATIENCE_NS : quiet_until(device, now, renew_ns);
    if (!is_here)
        device->server.sleeps_until_ns = until;
    struct efa_server_look found = {.pause_ns = until == UINT64_MAX ? until
                                                : until > now       ? until - now
                                                                    : 0,
                                    .engine_is_here = is_here,
                                    .cq_fd = device->ep != NULL ? device->cq_fd : -1,
                                    .stops = device->server.stops};
    device_unlock(device);
    return found;
}

static void wake_taken(const struct weir_device *device) {
    uint64_t taken;
    if (read(device->server.wake_fd, &taken, sizeof taken) < 0)
        return; /* there was none */
}

/* Behind the descriptor's first sign the engine has a millisecond to take it. */
static void *server_run(void *argument) {
    struct weir_device *device = argument;
    struct pollfd ready[2] = {{.fd = device->server.wake_fd, .events = POLLIN},
                              {.fd = -1, .events = POLLIN}};
    uint64_t polls = 0;
    for (;;) {
        struct efa_server_look found = look(device, &polls);
        if (found.stops)
            return NULL;
        ready[1].fd = found.cq_fd;
        ready[1].revents = 0;
        ready_wait(ready, found.engine_is_here || found.cq_fd < 0 ? 1 : 2, found.pause_ns);
        if (ready[0].revents == 0 && ready[1].revents != 0)
            ready_wait(ready, 1, PATIENCE_NS);
        wake_taken(device);
    }
}

void efa_server_wake(struct weir_device *device) {
    uint64_t one = 1;
    if (device->server.wake_fd >= 0 && write(device->server.wake_fd, &one, sizeof one) < 0)
        return; /* it is full: readable */
}

int efa_server_start(struct weir_device *device) {
    struct efa_server *server = &device->server;
    fork_hold();
    server->wake_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fork_release();
    if (server->wake_fd < 0)
        return WEIR_EMFILE;
    server->runs = thread_create(&server->thread, NULL, server_run, device) == 0;
    return server->runs ? WEIR_OK : WEIR_ENOMEM;
}

void efa_server_stop(struct weir_device *device) {
    struct efa_server *server = &device->server;
    if (server->runs) {
        device_lock(device);
        server->stops = true;
        efa_server_wake(device);
        device_unlock(device);
        pthread_join(server->thread, NULL);
    }
    if (server->wake_fd >= 0)
        fork_close(server->wake_fd);
    server->runs = false;
    server->wake_fd = -1;
}
