/* SPDX-License-Identifier: Apache-2.0 */
/* address.c: parsing, printing and resolving of "host:port".
 *
 * Owns the syntax. Keeps no state and allocates nothing that outlives a call.
 * Leaves to others: on which thread address_resolve, which blocks, runs.
 */
#define _GNU_SOURCE
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>

#include <netdb.h>
#include <stdio.h>
#include <string.h>

enum { ADDRESS_PORT_DIGITS = 5 };

/* Digits only: strtoul would take "+1", " 1" and "0x1". */
static int address_port(const char *text, uint16_t *port_out) {
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > ADDRESS_PORT_DIGITS || text[digits] != '\0') {
        return WEIR_EADDRESS;
    }
    uint32_t port = 0;
    for (size_t i = 0; i < digits; i++) {
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    if (port > UINT16_MAX) {
        return WEIR_EADDRESS;
    }
    *port_out = (uint16_t)port;
    return WEIR_OK;
}

int address_split(const char *text, char host_out[ADDRESS_HOST_MAX], uint16_t *port_out) {
    const char *host = text;
    const char *end; /* one past the host */
    const char *colon;
    if (text[0] == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (end == NULL || end[1] != ':' || memchr(host, ':', (size_t)(end - host)) == NULL) {
            return WEIR_EADDRESS;
        }
        colon = end + 1;
    } else {
        end = strchr(text, ':');
        if (end == NULL) {
            return WEIR_EADDRESS;
        }
        colon = end;
    }
    const size_t length = (size_t)(end - host);
    if (length == 0 || length >= ADDRESS_HOST_MAX) {
        return WEIR_EADDRESS;
    }
    /* A second colon outside brackets ends up here, and is no digit. */
    const int rc = address_port(colon + 1, port_out);
    if (rc != WEIR_OK) {
        return rc;
    }
    memcpy(host_out, host, length);
    host_out[length] = '\0';
    return WEIR_OK;
}

/* Of getaddrinfo(3). What may pass is told from a name that does not exist: where no descriptor is
 * left to read hosts(5) or resolv.conf(5) with, glibc may say EAI_NONAME, and errno alone says
 * why. */
static int address_error(int error, int system_error) {
    if (system_error == EMFILE || system_error == ENFILE) {
        return WEIR_EMFILE;
    }
    if (system_error == ENOMEM) {
        return WEIR_ENOMEM;
    }
    switch (error) {
    case EAI_AGAIN: /* no name server answers */
        return WEIR_EUNREACH;
    case EAI_MEMORY:
        return WEIR_ENOMEM;
    case EAI_SYSTEM:
        return WEIR_ECONNECT;
    default:
        return WEIR_EADDRESS;
    }
}

static int address_lookup(const char *host, uint16_t port, int flags,
                          struct address_list *list_out) {
    char service[ADDRESS_PORT_DIGITS + 1];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = flags | AI_NUMERICSERV,
    };
    struct addrinfo *found = NULL;
    errno = 0;
    const int rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0) {
        return address_error(rc, errno);
    }
    uint32_t count = 0;
    for (const struct addrinfo *info = found; info != NULL && count < ADDRESS_LIST_MAX;
         info = info->ai_next) {
        if (info->ai_addrlen > sizeof list_out->entries[0].storage) {
            continue;
        }
        struct address *entry = &list_out->entries[count];
        memcpy(&entry->storage, info->ai_addr, info->ai_addrlen);
        entry->length = info->ai_addrlen;
        count++;
    }
    freeaddrinfo(found);
    list_out->count = count;
    return count > 0 ? WEIR_OK : WEIR_EADDRESS;
}

int address_numeric(const char *host, uint16_t port, struct address *address_out) {
    struct address_list list;
    const int rc = address_lookup(host, port, AI_NUMERICHOST, &list);
    if (rc == WEIR_OK) {
        *address_out = list.entries[0];
    }
    return rc;
}

bool address_is_any(const struct address *address) {
    if (address->storage.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&address->storage)->sin_addr.s_addr ==
               htonl(INADDR_ANY);
    if (address->storage.ss_family != AF_INET6)
        return false;
    static const struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}}; /* 0.0.0.0 */
    const struct in6_addr *at = &((const struct sockaddr_in6 *)&address->storage)->sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(at) || memcmp(at, &mapped, sizeof(mapped)) == 0;
}

bool address_is_plain(const char *text) {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    struct in_addr v4;
    struct in6_addr v6;
    if (address_split(text, host, &port) != WEIR_OK || port == 0) {
        return false;
    }
    if (inet_pton(AF_INET, host, &v4) == 1) {
        return v4.s_addr != htonl(INADDR_ANY);
    }
    char *scope = strchr(host, '%');
    if (scope != NULL) {
        *scope = '\0';
    }
    static const uint8_t mapped[12] = {[10] = 0xff, 0xff};
    return inet_pton(AF_INET6, host, &v6) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&v6) &&
           (memcmp(&v6, mapped, sizeof mapped) != 0 || v6.s6_addr32[3] != 0);
}

int address_resolve(const char *host, uint16_t port, struct address_list *list_out) {
    return address_lookup(host, port, 0, list_out);
}

int address_print(const struct address *address, char *text_out, size_t text_size) {
    char host[ADDRESS_HOST_MAX];
    char service[ADDRESS_PORT_DIGITS + 1];
    if (getnameinfo((const struct sockaddr *)&address->storage, address->length, host, sizeof host,
                    service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return WEIR_ETOOBIG;
    }
    const char *format = address->storage.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s";
    char text[sizeof host + sizeof service + 4];
    const int length = snprintf(text, sizeof text, format, host, service);
    if (length < 0 || (size_t)length >= text_size) {
        return WEIR_ETOOBIG;
    }
    memcpy(text_out, text, (size_t)length + 1);
    return WEIR_OK;
}
