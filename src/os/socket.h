/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h: the calls that tcp.c makes on one socket at a time. Keeps no state. Descriptors are
 * owned (fork.h): they end with fork_close. */
#ifndef WEIR_OS_SOCKET_H
#define WEIR_OS_SOCKET_H

#include <stdbool.h>

#include "address.h"

/* A non-blocking, close-on-exec listener; -1 if the kernel refuses, and errno says why. */
int socket_listen(const struct address *address);

/* A non-blocking, close-on-exec socket on its way to an address. EMFILE; EAGAIN: out of
 * memory; EPEER: refused at once; EUNREACH: no route; ECONNECT: anything else. */
int socket_connect(const struct address *address, int *fd_out);

/* A non-blocking, close-on-exec connection; -1, with errno set, as accept(2). */
int socket_accept(int listen_fd);

/* How an attempt ended: 0; EPEER: refused, nobody listens there; EUNREACH: no route; or
 * ECONNECT. */
int socket_connect_result(int fd);

/* No delay, and a silent host is noticed. */
void socket_tune(int fd);

/* Whether something was sent, or the call itself, that the other host has not acknowledged and that
 * was repeated, and how often in a row. ECONNECT: the kernel does not say. */
int socket_silent(int fd, bool *silent_out, uint32_t *retransmits_out);

/* The other side's numeric address, "host:port"; an IPv4 one as such. ECONNECT: it has none. */
int socket_from(int fd, char *text_out, size_t size);

#endif
