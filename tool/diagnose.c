/* diagnose.c: see diagnose.h. Tries what weir tried, once, and gives it back at once. Nothing
 * depends on the answer but the wording of a message. */
#define _GNU_SOURCE
#include "diagnose.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIAL_MS  1000
#define HOST_MAX 256

/* "host:port" or "[v6]:port" in two; false: it is neither. */
static bool split(const char *address, char host_out[HOST_MAX], const char **port_out) {
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : 0;

    if (colon == NULL || length >= HOST_MAX || length == 0 || colon[1] == '\0' ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    if (address[0] == '[') {
        if (length < 3 || address[length - 1] != ']')
            return false;
        address++;
        length -= 2;
    } else if (memchr(address, ':', length) != NULL) {
        return false;
    }
    memcpy(host_out, address, length);
    host_out[length] = '\0';
    *port_out = colon + 1;
    return true;
}

/* The system's first answer for an address; NULL, and why, when there is none. */
static struct addrinfo *resolve(const char *address, int flags, char why_out[DIAGNOSIS_MAX]) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[HOST_MAX];
    const char *port;
    int rc;

    if (!split(address, host, &port)) {
        snprintf(why_out, DIAGNOSIS_MAX, "not HOST:PORT or [IPV6]:PORT");
        return NULL;
    }
    if (strlen(port) > 5 || (strlen(port) == 5 && strcmp(port, "65535") > 0)) {
        snprintf(why_out, DIAGNOSIS_MAX, "port %.16s is not in 0..65535", port);
        return NULL;
    }
    rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0) {
        snprintf(why_out, DIAGNOSIS_MAX, "%s", gai_strerror(rc));
        return NULL;
    }
    return found;
}

void diagnose_listen(const char *address, char why_out[DIAGNOSIS_MAX]) {
    struct addrinfo *found = resolve(address, AI_PASSIVE, why_out);
    int one = 1, fd;

    if (found == NULL)
        return;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* As weir does: a port that only old connections linger on is free. */
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
        snprintf(why_out, DIAGNOSIS_MAX, "%s", strerror(errno));
    else
        snprintf(why_out, DIAGNOSIS_MAX, "cannot be bound");
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
}

/* The outcome of a connection under way: an errno. */
static int dialled(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t size = sizeof(int);
    int error = 0;

    if (poll(&wait, 1, DIAL_MS) <= 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void diagnose_dial(const char *address, char why_out[DIAGNOSIS_MAX]) {
    struct addrinfo *found = resolve(address, 0, why_out);
    int error = 0, fd;

    if (found == NULL)
        return;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0)
        error = errno == EINPROGRESS ? dialled(fd) : errno;
    if (error != 0)
        snprintf(why_out, DIAGNOSIS_MAX, "%s", strerror(error));
    else
        snprintf(why_out, DIAGNOSIS_MAX, "something listens there, but does not answer as weir");
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
}
