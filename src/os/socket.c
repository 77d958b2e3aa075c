/* SPDX-License-Identifier: Apache-2.0 */
/* socket.c: making, tuning and asking single TCP sockets.
 *
 * Owns the socket options and the reading of errno. Leaves to others: the descriptors
 * that it returns, and every decision about them.
 */
#define _GNU_SOURCE
#include "socket.h"
#include "fork.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum {
    SOCKET_BACKLOG = 4096,  /* the kernel lowers it to net.core.somaxconn, listen(2) */
    SOCKET_KEEP_IDLE_S = 5, /* a silent host is given up after idle + count * interval: 11 s */
    SOCKET_KEEP_INTERVAL_S = 2,
    SOCKET_KEEP_COUNT = 3,
    SOCKET_UNACKED_MS = 11000
};

static int socket_make(const struct address *address) {
    fork_hold();
    const int fd =
        fork_own(socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    fork_release();
    return fd;
}

int socket_accept(int listen_fd) {
    fork_hold();
    const int fd = fork_own(accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    fork_release();
    return fd;
}

int socket_listen(const struct address *address) {
    const int fd = socket_make(address);
    if (fd < 0) {
        return -1;
    }
    const int on = 1;
    const int off = 0;
    /* socket(7): a restart must not wait for the connections of the last life. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->storage.ss_family == AF_INET6) {
        /* ipv6(7): [::] takes IPv4 too, whatever the machine's default is. */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    socket_tune(fd); /* an accepted connection has its listener's options (test_tcp.c) */
    if (bind(fd, (const struct sockaddr *)&address->storage, address->length) != 0 ||
        listen(fd, SOCKET_BACKLOG) != 0) {
        fork_close(fd);
        return -1;
    }
    return fd;
}

/* Why a connection did not come about, from connect(2). */
static int connect_error(int error) {
    switch (error) {
    case ECONNREFUSED:
        return WEIR_EPEER;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EAFNOSUPPORT: /* a machine without IPv6, say */
        return WEIR_EUNREACH;
    default:
        return WEIR_ECONNECT;
    }
}

int socket_connect(const struct address *address, int *fd_out) {
    const int fd = socket_make(address);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            return WEIR_EMFILE;
        }
        return errno == ENOBUFS || errno == ENOMEM ? WEIR_ENOMEM : connect_error(errno);
    }
    /* connect(2): EINTR leaves the attempt under way, as EINPROGRESS does. */
    if (connect(fd, (const struct sockaddr *)&address->storage, address->length) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        const int rc = connect_error(errno);
        fork_close(fd);
        return rc;
    }
    *fd_out = fd;
    return WEIR_OK;
}

/* A dial to a free local port can be given that very port as its own and meet itself
 * (simultaneous open, RFC 9293 3.5). */
static bool socket_met_itself(int fd) {
    struct address local = {.length = sizeof local.storage};
    struct address remote = {.length = sizeof remote.storage};
    return getsockname(fd, (struct sockaddr *)&local.storage, &local.length) == 0 &&
           getpeername(fd, (struct sockaddr *)&remote.storage, &remote.length) == 0 &&
           local.length == remote.length &&
           memcmp(&local.storage, &remote.storage, local.length) == 0;
}

int socket_connect_result(int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0 ||
        socket_met_itself(fd)) {
        return connect_error(error);
    }
    return WEIR_OK;
}

int socket_from(int fd, char *text_out, size_t size) {
    struct address remote = {.length = sizeof remote.storage};
    if (getpeername(fd, (struct sockaddr *)&remote.storage, &remote.length) != 0) {
        text_out[0] = '\0';
        return WEIR_ECONNECT;
    }
    struct sockaddr_in6 six;
    memcpy(&six, &remote.storage, sizeof six);
    if (remote.storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
        /* ipv6(7): as a socket of both families sees IPv4. */
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
        memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], sizeof four.sin_addr);
        memcpy(&remote.storage, &four, sizeof four);
        remote.length = sizeof four;
    }
    return address_print(&remote, text_out, size);
}

int socket_silent(int fd, bool *silent_out, uint32_t *retransmits_out) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
        return WEIR_ECONNECT;
    bool calls = info.tcpi_state == TCP_SYN_SENT;
    *retransmits_out = info.tcpi_retransmits;
    /* One repeat may be one lost packet. */
    *silent_out = info.tcpi_retransmits > (calls ? 0 : 1) && (calls || info.tcpi_unacked > 0);
    return WEIR_OK;
}

void socket_tune(int fd) {
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1}, /* messages are small and answered one by one */
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, SOCKET_KEEP_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, SOCKET_KEEP_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, SOCKET_KEEP_COUNT},
        /* tcp(7): keepalive rests while data is unacknowledged; this does not. */
        {IPPROTO_TCP, TCP_USER_TIMEOUT, SOCKET_UNACKED_MS},
    };
    /* A connection that refuses one of these still works, only less well. */
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
    }
}
