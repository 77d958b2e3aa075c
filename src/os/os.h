/* SPDX-License-Identifier: Apache-2.0 */
/* os.h: constructors of the ports that Linux plays.
 *
 * Owns nothing itself. env.c, wait.c and tcp.c each implement one port of ports.h;
 * address.c, resolve.c, socket.c and tcp_room.h serve tcp.c, and room.c serves env.c; fork.c,
 * ready.c and thread.c serve all, devices too; reach.c, explain.c and shared.c answer questions of
 * their own.
 * Contracts of the operations are in ports.h; here is what opening and closing need. Errors are
 * WEIR_E* codes.
 */
#ifndef WEIR_OS_H
#define WEIR_OS_H

#include <errno.h>

#include "ports.h"

/* The error for an errno of a call that makes a descriptor. */
static inline int os_fd_error(int error) {
    return error == EMFILE || error == ENFILE ? WEIR_EMFILE : WEIR_ENOMEM;
}

/* Clock, entropy and set-up memory of this process. Keeps no state: nothing to
 * close, any number of copies. EDEVICE: the kernel gives no entropy. */
int os_env_init(struct weir_env *env_out);

/* Set-up memory of so many bytes and more is a mapping of its own. It is not in a child of fork(2);
 * smaller memory is. */
enum { OS_ENV_MAP_MIN = 1 << 17 };

/* The same with a list of the set-up memory that was not given back. ENOMEM too. All of it is
 * to be given back before it is closed. */
int os_env_open(struct weir_env *env_out);
void os_env_close(struct weir_env *env);
/* In a child of fork(2): frees all that the parent's has there. */
void os_env_abandon(struct weir_env *env);

/* Bytes of memory that the machine has left, and, in a container, its control group (version 2);
 * UINT64_MAX: not known. Reads files. */
uint64_t os_room(void);

/* A way to sleep on descriptors and to be woken. EMFILE; ENOMEM, also of the kernel. */
int wait_open(const struct weir_env *env, struct weir_wait *wait_out);
/* Nobody may be asleep in it. A zeroed port is allowed. */
void wait_close(struct weir_wait *wait);

enum { TCP_CONNS_DEFAULT = 1024, TCP_CONNS_MAX = 65535 };

/* The control channel over TCP, frames of a 32-bit little-endian length and that
 * many bytes. conns_max: connections open at once, dialled and accepted together;
 * 0 means TCP_CONNS_DEFAULT. All memory is taken here, and resident only as
 * connections come to use it. env must outlive it. Errors: EINVAL (conns_max over
 * TCP_CONNS_MAX), EMFILE, ENOMEM.
 *
 * Errors of events and calls:
 *   dial    EADDRESS (cannot be parsed), EFULL (no free connection), EMFILE, ENOMEM; of
 *           a numeric address also, at once, EPEER (refused), EUNREACH (no route) and
 *           ECONNECT (anything else)
 *   CLOSED  Of a dial: EADDRESS (the name does not resolve), EPEER, EUNREACH (no name
 *           server, too), EMFILE, ENOMEM, ECONNECT. Of a connection: ECONNECT (it broke,
 *           dawdled or had to make room), EPEER (the other side closed it), ETOOBIG (it
 *           announced a longer message than is allowed).
 */
int tcp_open(const struct weir_env *env, uint32_t conns_max, struct weir_control *control_out);
/* The memory that it takes with so many. */
size_t tcp_bytes(uint32_t conns_max);
/* Closes every connection. A zeroed port is allowed. */
void tcp_close(struct weir_control *control);
/* In a child of fork(2), before os_env_abandon: frees what is not set-up memory. */
void tcp_abandon(struct weir_control *control);

/* Memory of this process that whoever may look at it can read: zeroed, backed, and in no child of
 * fork(2). EMFILE, ENOMEM. */
struct shared {
    void *base; /* NULL: none */
    size_t bytes;
    int fd; /* -1: the system gives this process none, and nobody else can read it */
};
int shared_open(size_t bytes, struct shared *shared_out);
void shared_close(struct shared *shared); /* one that is zeroed is allowed */
/* The index-th that a process has, to read, until shared_forget. ESTALE: there are not so many;
 * EPEER: no such process; EDENIED, EMFILE, ENOMEM. */
int shared_find(int64_t pid, size_t index, struct shared *shared_out);
void shared_forget(struct shared *shared);

/* Where others reach what listens at `listening`: *address_out is written only if that is the
 * wildcard. It names one address of this host then. */
void os_reach(const char *listening, char *address_out, size_t size);

/* The numeric host of such a text, with a port or without, if it names one address of a network;
 * "": it does not. */
void os_host(const char *listening, char host_out[WEIR_HOST_MAX]);

/* 0 if tcp's dial would take this text, EADDRESS otherwise. Resolves nothing. */
int tcp_address_check(const char *address);

#endif
