/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c: see diagnose.h. Tries what weir tried, once, and gives it back at once. Nothing
 * depends on the answer but the wording of a message. */
#define _GNU_SOURCE
#include "diagnose.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host.h"
#include "weir.h"

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
static struct addrinfo *resolve(const char *address, char why_out[DIAGNOSIS_MAX]) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
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

static bool is_wildcard(const struct addrinfo *found) {
    if (found->ai_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)found->ai_addr)->sin6_addr);
    return ((const struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr == INADDR_ANY;
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

/* The reason that the peer gave; 0: none. */
static int refusal(weir_engine *engine, weir_peer peer) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    return weir_peer_query(engine, peer, &info) == 0 ? info.refusal : 0;
}

/* The users of two processes on the device shm; `weir info` says which each of them has. */
static const char denied_hint[] = "on shm both must be of one user, or of WEIR_SHM_GROUP";
/* The right that an import needs beyond that. */
static const char traced_hint[] = "registered memory takes the right to ptrace(2) its process";

void diagnose_unlike(weir_engine *engine, weir_peer peer, char why_out[DIAGNOSIS_MAX]) {
    if (weir_refusal_text(engine, peer, why_out, DIAGNOSIS_MAX) != 0 || why_out[0] == '\0')
        snprintf(why_out, DIAGNOSIS_MAX,
                 "its device is another one, or is where ours is not (weir info says where)");
}

void diagnose_refusal(weir_engine *engine, weir_peer peer, char why_out[DIAGNOSIS_MAX]) {
    int reason = refusal(engine, peer);

    if (reason == 0 || reason == WEIR_EREFUSED)
        diagnose_unlike(engine, peer, why_out);
    else if (reason == WEIR_EDENIED)
        snprintf(why_out, DIAGNOSIS_MAX, "it says: %s: %s (%s)", weir_strerror(reason), denied_hint,
                 weir_error_name(reason));
    else
        snprintf(why_out, DIAGNOSIS_MAX, "it says: %s (%s)", weir_strerror(reason),
                 weir_error_name(reason));
}

static bool is_unreachable(int error) {
    return error == EHOSTUNREACH || error == ENETUNREACH;
}

void diagnose_dial(const char *address, weir_engine *engine, weir_peer peer, int told,
                   char why_out[DIAGNOSIS_MAX]) {
    struct addrinfo *found = resolve(address, why_out);
    int error = 0, fd;

    if (found == NULL)
        return;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0)
        error = errno == EINPROGRESS ? dialled(fd) : errno;
    if (is_wildcard(found))
        snprintf(why_out, DIAGNOSIS_MAX, "a wildcard names no host");
    else if (error != 0 && (told == WEIR_EUNREACH) != is_unreachable(error))
        snprintf(why_out, DIAGNOSIS_MAX, "%s; now: %s", weir_strerror(told), strerror(error));
    else if (error != 0)
        snprintf(why_out, DIAGNOSIS_MAX, "%s", strerror(error));
    else if (refusal(engine, peer) == WEIR_ECONNECT)
        snprintf(why_out, DIAGNOSIS_MAX,
                 "it is there, but its device does not reach ours: a firewall, or an address of "
                 "another network (weir info tells that address here)");
    else if (weir_refusal_text(engine, peer, why_out, DIAGNOSIS_MAX) != 0 || why_out[0] == '\0')
        snprintf(why_out, DIAGNOSIS_MAX,
                 "something listens there and does not answer: a weir that is stopped or makes no "
                 "progress, or no weir, or one of another protocol version, or its device and ours "
                 "do not reach each other");
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
}

/* ---- the engine --------------------------------------------------------- */

/* An engine takes some 15, and one for each memory. */
#define DESCRIPTORS_ENOUGH 16

/* Whether this process can hardly open another file. */
static bool descriptors_short(char why_out[DIAGNOSIS_MAX]) {
    int fds[DESCRIPTORS_ENOUGH], count = 0;
    struct rlimit limit = {0};

    while (count < DESCRIPTORS_ENOUGH &&
           (fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(fds[i]);
    if (count == DESCRIPTORS_ENOUGH)
        return false;
    getrlimit(RLIMIT_NOFILE, &limit);
    snprintf(why_out, DIAGNOSIS_MAX, "%d file descriptors are left of %llu (ulimit -n)", count,
             (unsigned long long)limit.rlim_cur);
    return true;
}

int diagnose_open(const struct options *options, const weir_engine_options *engine, int error) {
    char note[WEIR_OPEN_NOTE_MAX] = "";

    weir_open_explain(engine, error, note, sizeof(note));
    return complain("%s: %s (%s)", options_command_words(options->command), note,
                    weir_error_name(error));
}

const char *diagnose_cause(int error, char why_out[DIAGNOSIS_MAX]) {
    char why[DIAGNOSIS_MAX - 2];

    why_out[0] = '\0';
    if (error == WEIR_EDENIED)
        snprintf(why_out, DIAGNOSIS_MAX, "; %s", traced_hint);
    if (error == WEIR_EMEMLOCK) {
        struct rlimit limit = {0};
        getrlimit(RLIMIT_MEMLOCK, &limit);
        snprintf(why_out, DIAGNOSIS_MAX, "; it is %llu KiB, for all that this process registers",
                 (unsigned long long)limit.rlim_cur / 1024);
        return why_out;
    }
    if (error != WEIR_EDEVICE && error != WEIR_ENOMEM && error != WEIR_EMFILE)
        return why_out;
    if (descriptors_short(why_out)) {
        snprintf(why, sizeof(why), "%s", why_out);
        snprintf(why_out, DIAGNOSIS_MAX, "; %s", why);
    }
    return why_out;
}
