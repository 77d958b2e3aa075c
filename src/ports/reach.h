/* SPDX-License-Identifier: Apache-2.0 */
/* reach.h: how this host reaches others, for devices that have an address of their own to choose.
 */
#ifndef PORTS_REACH_H
#define PORTS_REACH_H

#include <stdbool.h>
#include <sys/socket.h>

/* The address that packets to the rest of the network leave with; of AF_INET or AF_INET6. False:
 * there is no such route. Nothing is sent; any thread; a few system calls. */
bool reach_by_route(int family, struct sockaddr_storage *address_out);

#endif
