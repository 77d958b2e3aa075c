/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.h: host names looked up off the engine's thread.
 *
 * A lookup is named by the caller's ticket. At most RESOLVE_JOBS run at a time, each
 * on a thread of its own, so that one dead name server delays no other name.
 */
#ifndef WEIR_OS_RESOLVE_H
#define WEIR_OS_RESOLVE_H

#include "address.h"

enum { RESOLVE_JOBS = 8 };

struct resolver;

/* ENOMEM. Starts no thread yet. */
int resolver_open(struct resolver **resolver_out);
/* Does not wait for lookups under way: their finds are thrown away. NULL is allowed. */
void resolver_close(struct resolver *resolver);
/* In a child of fork(2), which has neither threads nor descriptors of it: the memory alone. */
void resolver_abandon(struct resolver *resolver);
/* Readable when resolver_take has something. */
int resolver_fd(const struct resolver *resolver);
/* 0: under way, resolver_take will tell, also when no thread is to be had (ENOMEM). EAGAIN:
 * RESOLVE_JOBS are under way. */
int resolver_start(struct resolver *resolver, const char *host, uint16_t port, uint64_t ticket);
/* 1: *ticket_out is done, with *status_out 0 and a list, or an error of address_resolve, or of the
 * thread (ENOMEM). 0: none is. */
int resolver_take(struct resolver *resolver, uint64_t *ticket_out, int *status_out,
                  struct address_list *list_out);

#endif
