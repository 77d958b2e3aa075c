/* SPDX-License-Identifier: Apache-2.0 */
/* range.c: the range of ports that libfabric's tcp was told to listen in.
 *
 * The range is the provider's own affair: it says of a range without a free port only that it could
 * not listen. Owns the look at the range that tells a person so. fi_tcp(7) has the variables. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fork.h"
#include "ofi.h"

#define PROVIDER "tcp"
#define LOW      "FI_TCP_PORT_LOW_RANGE"
#define HIGH     "FI_TCP_PORT_HIGH_RANGE"
#define TRIES    1024 /* more ports are not looked at */

/* libfabric's way to read a number. */
static long number_of(const char *variable) {
    const char *text = getenv(variable);
    char *end;
    if (text == NULL)
        return 0;
    long number = strtol(text, &end, 0);
    return end != text && *end == '\0' ? number : 0;
}

static void set_port(struct sockaddr_storage *address, long port) {
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

static bool is_free(const struct sockaddr_storage *address, socklen_t length) {
    int on = 1;
    fork_hold();
    int fd = fork_own(socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    fork_release();
    if (fd < 0)
        return true; /* nothing is known */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool is_bound = bind(fd, (const struct sockaddr *)address, length) == 0;
    fork_close(fd);
    return is_bound;
}

bool range_is_full(const struct fi_info *info, char note_out[FABRIC_NOTE_MAX]) {
    struct sockaddr_storage address = {0};
    long low = number_of(LOW), high = number_of(HIGH);
    if (high > UINT16_MAX)
        high = UINT16_MAX;
    if (strcmp(info->fabric_attr->prov_name, PROVIDER) != 0 || low < 1 || high < low ||
        high - low >= TRIES || info->src_addrlen > sizeof address)
        return false;
    memcpy(&address, info->src_addr, info->src_addrlen);
    for (long port = low; port <= high; port++) {
        set_port(&address, port);
        if (is_free(&address, (socklen_t)info->src_addrlen))
            return false;
    }
    snprintf(note_out, FABRIC_NOTE_MAX, "no port is free of " LOW "=%ld to " HIGH "=%ld", low,
             high);
    return true;
}
