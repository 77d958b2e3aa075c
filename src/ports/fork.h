/* SPDX-License-Identifier: Apache-2.0 */
/* fork.h: the things of this process that a child of fork(2) must not have.
 *
 * Every descriptor of the library is noted here as long as it is open, and a child closes all of
 * them before its fork(2) returns: sockets, so that addresses are free and peers hear of the end
 * when the parent dies, and the descriptors of devices, so that nothing of the parent's goes on
 * in their kernel drivers. Mapped memory that is the library's is not copied to children at all.
 *
 * A fork waits for the threads that hold it, about a second at most, so that a child sees every
 * descriptor noted that is open. All of it may be called by any thread. Programs that execve(2)
 * need none of this: descriptors are opened with the flag that closes them there. */
#ifndef PORTS_FORK_H
#define PORTS_FORK_H

#include <stdbool.h>
#include <stddef.h>

/* Between the two no fork of this process begins. They do not nest. Between them
 * a thread waits for no thread that does not hold. */
void fork_hold(void);
void fork_release(void);

/* fork_own, fork_note and fork_note_device are called between the two. */

/* A new descriptor, or -1. Returns it; -1, with errno set, if it cannot be noted: then it is
 * closed. */
int fork_own(int fd);
/* A memfd that may be sealed and never executed (memfd_create(2)), owned; -1, with errno set. Holds
 * by itself. */
int fork_memfd(const char *name);
/* One that another library opened, and closes after fork_disown. False: it cannot be noted, and
 * is as it was. */
bool fork_note(int fd);
/* The same of a device; its mappings, in this process, are not in children either: the kernel keeps
 * a device's file open for each mapping of it. */
bool fork_note_device(int fd);
/* Before somebody else closes it. */
void fork_disown(int fd);

/* Closes a descriptor that is owned; holds meanwhile. errno stays as it is. */
void fork_close(int fd);

/* Whole pages that were mapped since fork_hold are not in any child. False: they would be. */
bool fork_keep_out(void *base, size_t bytes);

/* Told of a fork, in the child. Every other thread is gone there, and a lock that one of them had
 * is held for ever: so in_child may do what a signal handler may. The child's own children do not
 * tell it. */
struct fork_watch {
    void (*in_child)(struct fork_watch *watch);
    struct fork_watch *next;
};
/* False: no memory. Both hold by themselves. In a child fork_unwatch is not called for a watch of
 * the parent's: it is in no list there. */
bool fork_watch(struct fork_watch *watch);
void fork_unwatch(struct fork_watch *watch);

#endif
