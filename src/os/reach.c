/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c: an address of this host that others can open, for an engine that listens at all of them.
 *
 * Owns the choice: the address that packets to the rest of the network leave with, or else that of
 * the first interface that is up, or else the loopback's. Nothing is sent for it. Leaves to others:
 * whether that network is the one that a peer is in, which nobody here can know.
 */
#define _GNU_SOURCE
#include "os.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "address.h"
#include "fork.h"
#include "reach.h"

/* Where nobody is: documentation networks (RFC 5737, RFC 3849), so the default route goes there. */
#define NOWHERE_4 "192.0.2.1"
#define NOWHERE_6 "2001:db8::1"

/* One that means the same on another host. */
static bool is_of_network(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        uint32_t ip = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
        return ip >> 24 != 0 && ip >> 24 != 127 && ip >> 16 != 0xa9fe; /* RFC 3927 */
    }
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return !IN6_IS_ADDR_UNSPECIFIED(ip) && !IN6_IS_ADDR_LOOPBACK(ip) && !IN6_IS_ADDR_LINKLOCAL(ip);
}

/* connect(2) of a datagram socket sends nothing, and chooses its address. */
bool reach_by_route(int family, struct sockaddr_storage *address_out) {
    struct address there;
    socklen_t length = sizeof(*address_out);
    if (address_numeric(family == AF_INET ? NOWHERE_4 : NOWHERE_6, 9, &there) != WEIR_OK)
        return false;
    fork_hold();
    int fd = fork_own(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    fork_release();
    bool found = fd >= 0 &&
                 connect(fd, (const struct sockaddr *)&there.storage, there.length) == 0 &&
                 getsockname(fd, (struct sockaddr *)address_out, &length) == 0 &&
                 is_of_network((const struct sockaddr *)address_out);
    if (fd >= 0)
        fork_close(fd);
    return found;
}

static socklen_t length_of(int family) {
    return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static bool by_route(int family, struct address *out) {
    out->length = length_of(family);
    return reach_by_route(family, &out->storage);
}

static bool by_interface(int family, struct address *out) {
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != family ||
            (at->ifa_flags & IFF_UP) == 0 || !is_of_network(at->ifa_addr))
            continue;
        out->length = length_of(family);
        memcpy(&out->storage, at->ifa_addr, out->length);
        found = true;
    }
    freeifaddrs(all);
    return found;
}

static void choose(int family, struct address *out) {
    if (family == AF_INET6 && (by_route(AF_INET6, out) || by_interface(AF_INET6, out)))
        return;
    /* [::] takes IPv4, too (socket.c). */
    if (by_route(AF_INET, out) || by_interface(AF_INET, out))
        return;
    (void)address_numeric(family == AF_INET ? "127.0.0.1" : "::1", 0, out);
}

void os_host(const char *listening, char host_out[WEIR_HOST_MAX]) {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    struct address address;
    host_out[0] = '\0';
    if (listening == NULL)
        return;
    if (address_split(listening, host, &port) != WEIR_OK) {
        port = 0;
        snprintf(host, sizeof(host), "%s", listening);
    }
    if (address_numeric(host, port, &address) == WEIR_OK &&
        is_of_network((const struct sockaddr *)&address.storage) && strlen(host) < WEIR_HOST_MAX)
        memcpy(host_out, host, strlen(host) + 1);
}

void os_reach(const char *listening, char *address_out, size_t size) {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    struct address address;
    if (address_split(listening, host, &port) != WEIR_OK ||
        address_numeric(host, port, &address) != WEIR_OK || !address_is_any(&address))
        return;
    choose(address.storage.ss_family, &address);
    if (address.storage.ss_family == AF_INET)
        ((struct sockaddr_in *)&address.storage)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&address.storage)->sin6_port = htons(port);
    (void)address_print(&address, address_out, size);
}
