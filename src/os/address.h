/* SPDX-License-Identifier: Apache-2.0 */
/* address.h: "host:port" texts and the socket addresses behind them.
 *
 * Parsing and printing. address_resolve alone asks a name server, and blocks for it: resolve.h
 * calls it on threads.
 */
#ifndef WEIR_OS_ADDRESS_H
#define WEIR_OS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "weir.h"

enum {
    ADDRESS_HOST_MAX = 256, /* RFC 1035 2.3.4: a name has at most 255 bytes */
    ADDRESS_LIST_MAX = 8    /* socket addresses kept of one name */
};

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
};

struct address_list {
    struct address entries[ADDRESS_LIST_MAX];
    uint32_t count;
};

/* "host:port", "1.2.3.4:port" or "[v6]:port", port 0 to 65535. EADDRESS otherwise;
 * a v6 address without brackets is one of the things refused. */
int address_split(const char *text, char host_out[ADDRESS_HOST_MAX], uint16_t *port_out);

/* The socket address of a numeric host; EADDRESS for a name. Does not block. */
int address_numeric(const char *host, uint16_t port, struct address *address_out);

/* Whether the text is the address of a host, as address_print has it, and no wildcard. The
 * interface behind the % of a v6 address need not be there. Asks nobody. */
bool address_is_plain(const char *text);

/* A wildcard, on which one listens: it names nobody. */
bool address_is_any(const struct address *address);

/* The addresses of a host name, ADDRESS_LIST_MAX at most, in the order of RFC 6724. Blocks for as
 * long as the resolver takes. EADDRESS (there is no such name), EUNREACH (no name server answers),
 * EMFILE, ENOMEM, ECONNECT (anything else). */
int address_resolve(const char *host, uint16_t port, struct address_list *list_out);

/* The text that address_split and address_numeric read back. ETOOBIG. */
int address_print(const struct address *address, char *text_out, size_t text_size);

#endif
