/* SPDX-License-Identifier: Apache-2.0 */
/* visitors.c: callers at the device's port that have not shown to be a peer's.
 *
 * The provider takes every call, reads what it says as if all of it were there, and waits for it
 * without end. So the kernel keeps calls that say nothing to itself for a while (TCP_DEFER_ACCEPT),
 * and ends a read that would wait (SO_RCVTIMEO; accepted sockets have the listener's, socket(7)). A
 * call that is still there when the second look comes is shut down, which the provider takes for
 * its end. So a stranger holds up nobody, and a descriptor for some seconds.
 *
 * Owns the list of callers of the last look. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include "ofi.h"

#define LOOK_NS     UINT64_C(2000000000)
#define SILENT_S    5    /* that the kernel keeps one to itself */
#define PATIENCE_US 1000 /* that a read waits for what belongs to it */

struct round {
    struct weir_device *device;
    struct ofi_visitor now[OFI_VISITORS];
    uint32_t count;
    bool all;
};

int visitors_open(struct weir_device *device) {
    int silent = SILENT_S;
    struct timeval patience = {.tv_usec = PATIENCE_US};
    if (device->listen_fd < 0)
        return WEIR_EDEVICE;
    (void)setsockopt(device->listen_fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent, sizeof silent);
    int rc = setsockopt(device->listen_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return rc == 0 ? WEIR_OK : WEIR_EDEVICE;
}

static in_port_t port_of(int fd) {
    struct sockaddr_storage there = {0};
    socklen_t size = sizeof there;
    if (getpeername(fd, (struct sockaddr *)&there, &size) != 0)
        return 0;
    return there.ss_family == AF_INET ? ((const struct sockaddr_in *)&there)->sin_port
                                      : ((const struct sockaddr_in6 *)&there)->sin6_port;
}

static bool is_a_qps(const struct weir_device *device, int fd) {
    bool found = false;
    for (uint32_t i = 0, seen = 0; !found && seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        const struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        found = qp != NULL && qp->fd == fd;
    }
    return found;
}

static bool was_there(const struct weir_device *device, const struct ofi_visitor *visitor) {
    bool found = false;
    for (uint32_t i = 0; !found && i < device->visitor_count; i++)
        found = device->visitors[i].fd == visitor->fd && device->visitors[i].port == visitor->port;
    return found;
}

static void see(int fd, void *context) {
    struct round *round = context;
    struct ofi_visitor visitor = {.fd = fd, .port = port_of(fd)};
    if (is_a_qps(round->device, fd))
        return;
    if (round->all || round->count == OFI_VISITORS || was_there(round->device, &visitor))
        shutdown(fd, SHUT_RDWR);
    else
        round->now[round->count++] = visitor;
}

/* Whether each connection that came in for a QP is known by its descriptor: else one would be taken
 * for a visitor. */
static bool are_known(const struct weir_device *device) {
    bool known = true;
    for (uint32_t i = 0, seen = 0; known && seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        const struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        known =
            qp == NULL || qp->fd >= 0 || (qp->link != OFI_LINK_ACCEPTED && qp->link != OFI_LINK_UP);
    }
    return known;
}

static void look(struct weir_device *device, bool all) {
    struct round round = {.device = device, .all = all};
    if (!are_known(device))
        return;
    inherit_callers(&device->listener, see, &round);
    device->visitor_count = round.count;
    for (uint32_t i = 0; i < round.count; i++)
        device->visitors[i] = round.now[i];
}

void visitors_look(struct weir_device *device) {
    uint64_t now = device_now(device);
    if (now - device->visitors_ns < LOOK_NS)
        return;
    device->visitors_ns = now;
    look(device, false);
}

void visitors_end(struct weir_device *device) {
    look(device, true);
}
