/* SPDX-License-Identifier: Apache-2.0 */
/* inherit.c: the descriptors that libfabric opens, and no child of fork(2) may inherit (fork.h),
 * nor a program that is executed: a connection lives as long as a descriptor of it is open
 * anywhere, and a peer would write on to a process that is dead.
 *
 * libfabric does not say which socket an endpoint has. It is found by both of its addresses, which
 * no other socket of the host has, when it is connected; a listener by its own. Until then nothing
 * is done: a port that is dialled from may be another socket's, too (ip(7),
 * IP_BIND_ADDRESS_NO_PORT). Nor is anything for the pipes with which libfabric wakes itself: a
 * child that has one keeps no peer waiting. Owns nothing: a descriptor is its endpoint's. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fork.h"
#include "ofi.h"

enum { NEAR = 64, FDS_TRIED = 65536 };

struct ends {
    struct sockaddr_storage here, there;
};
typedef bool is_fn(int fd, const struct ends *ends);

/* Port and address, as bytes that can be compared. */
static bool same(const struct sockaddr_storage *a, const struct sockaddr_storage *b) {
    uint8_t address[2][OFI_ADDRESS_BYTES];
    in_port_t port[2];
    const struct sockaddr_storage *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (!ofi_address_of(both[i], address[i]))
            return false;
        port[i] = both[i]->ss_family == AF_INET ? ((const struct sockaddr_in *)both[i])->sin_port
                                                : ((const struct sockaddr_in6 *)both[i])->sin6_port;
    }
    return port[0] == port[1] && memcmp(address[0], address[1], OFI_ADDRESS_BYTES) == 0;
}

static bool is_end(int fd, const struct ends *ends) {
    struct ends its = {.here = {0}};
    socklen_t here = sizeof its.here, there = sizeof its.there;
    return getsockname(fd, (struct sockaddr *)&its.here, &here) == 0 &&
           getpeername(fd, (struct sockaddr *)&its.there, &there) == 0 &&
           same(&its.here, &ends->here) && same(&its.there, &ends->there);
}

static bool is_here(int fd, const struct ends *ends) {
    struct ends its = {.here = {0}};
    int type = 0;
    socklen_t here = sizeof its.here, size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
           getsockname(fd, (struct sockaddr *)&its.here, &here) == 0 &&
           same(&its.here, &ends->here);
}

static bool is_listener(int fd, const struct ends *ends) {
    struct ends its = {.here = {0}};
    int listens = 0;
    socklen_t here = sizeof its.here, size = sizeof listens;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
           getsockname(fd, (struct sockaddr *)&its.here, &here) == 0 &&
           same(&its.here, &ends->here);
}

/* Of a socket that a listener accepted, which has its own address. */
static bool is_accepted(int fd, const struct ends *ends) {
    return is_here(fd, ends) && !is_listener(fd, ends);
}

/* Calls of each descriptor that is open, until one is answered by true: that one; -1. Where none is
 * left to look with, numbers are tried. */
static int each(bool (*is_it)(int fd, void *context), void *context) {
    DIR *all = opendir("/proc/self/fd");
    int found = -1;
    for (int fd = 0; all == NULL && fd < FDS_TRIED && found < 0; fd++)
        found = is_it(fd, context) ? fd : -1;
    if (all == NULL)
        return found;
    for (const struct dirent *at = readdir(all); at != NULL && found < 0; at = readdir(all)) {
        int fd = atoi(at->d_name); /* "." and ".." are 0, which is looked at once more */
        found = is_it(fd, context) ? fd : -1;
    }
    closedir(all);
    return found;
}

struct wanted {
    is_fn *is_it;
    const struct ends *ends;
};

static bool is_wanted(int fd, void *context) {
    const struct wanted *wanted = context;
    return wanted->is_it(fd, wanted->ends);
}

/* The kernel gives the lowest number that is free, so one that is new is nearly always below the
 * next one. */
static int find(is_fn *is_it, const struct ends *ends, int next) {
    for (int fd = next - 1; fd >= 0 && fd >= next - NEAR; fd--) {
        if (is_it(fd, ends))
            return fd;
    }
    struct wanted wanted = {.is_it = is_it, .ends = ends};
    return each(is_wanted, &wanted);
}

/* The next number; -1: there is none. A copy of a descriptor shows it. */
static int next_number(const struct weir_device *device) {
    fork_hold();
    int fd = fork_own(fcntl(device->eq_fd, F_DUPFD_CLOEXEC, 0));
    fork_release();
    if (fd >= 0)
        fork_close(fd);
    return fd;
}

bool inherit_note_fd(int fd) {
    int flags = fcntl(fd, F_GETFD);
    return flags >= 0 && fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0 && fork_note(fd);
}

/* With forks held off. -1: there is none, or no room to note it. */
static int note(is_fn *is_it, const struct ends *ends, int next) {
    int fd = find(is_it, ends, next);
    return fd >= 0 && inherit_note_fd(fd) ? fd : -1;
}

/* One that is not connected yet is looked for when it is. */
void inherit_note(struct weir_qp *qp) {
    struct ends ends = {.here = {0}};
    size_t here = sizeof ends.here, there = sizeof ends.there;
    if (fi_getname(&qp->ep->fid, &ends.here, &here) != 0 ||
        fi_getpeer(qp->ep, &ends.there, &there) != 0)
        return;
    if (qp->fd >= 0 && is_end(qp->fd, &ends))
        return;
    int next = next_number(qp->device);
    fork_hold();
    if (qp->fd >= 0)
        fork_disown(qp->fd);
    qp->fd = note(is_end, &ends, next);
    fork_release();
}

void inherit_note_listener(struct weir_device *device) {
    struct ends ends = {.here = {0}};
    size_t here = sizeof ends.here;
    if (fi_getname(&device->pep->fid, &ends.here, &here) != 0)
        return;
    int next = next_number(device);
    fork_hold();
    device->listen_fd = note(is_listener, &ends, next);
    fork_release();
}

struct callers {
    struct ends ends;
    void (*found)(int fd, void *context);
    void *context;
};

static bool tell_caller(int fd, void *context) {
    struct callers *callers = context;
    if (is_accepted(fd, &callers->ends))
        callers->found(fd, callers->context);
    return false;
}

void inherit_callers(const struct sockaddr_storage *listener, void (*found)(int fd, void *context),
                     void *context) {
    struct callers callers = {.ends = {.here = *listener}, .found = found, .context = context};
    fork_hold(); /* of the descriptor that it looks with */
    (void)each(tell_caller, &callers);
    fork_release();
}

/* A child that has the connection all the same does not keep it up. */
void inherit_close(struct weir_qp *qp) {
    fork_hold();
    if (qp->fd >= 0) {
        shutdown(qp->fd, SHUT_RDWR);
        fork_disown(qp->fd);
    }
    fi_close(&qp->ep->fid);
    fork_release();
    qp->fd = -1;
    qp->ep = NULL;
}
