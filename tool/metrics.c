/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: see metrics.h. Owns the HTTP daemon and its connections.
 *
 * Collectors are not trusted: connections are few, bounded in memory, and ended when they are
 * silent for ten seconds. There is nothing to be had but the counters, and nothing to be changed.
 */
#define _GNU_SOURCE
#include "metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define CONNECTIONS  16u
#define SILENCE_S    10u
#define MEMORY_BYTES ((size_t)16 * 1024) /* of a connection, for its request */
/* The daemon stops listening while it has as many connections as it may, or no descriptor, and
 * begins again when it is run, not when one ends: so it is run now and then. */
#define LOOK_NS NS_PER_S
#define URL_MAX (WEIR_ADDRESS_MAX + 32)
#define PATH    "/metrics"

struct metrics {
    weir_engine *engine;
    struct MHD_Daemon *daemon;
    int fd;
    char url[URL_MAX];
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              struct MHD_Response *response) {
    if (response == NULL)
        return MHD_NO; /* no memory: the connection ends */
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status,
                                   const char *text) {
    return answer(connection, status, "text/plain; charset=utf-8",
                  MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                  MHD_RESPMEM_PERSISTENT));
}

/* A collector that reads OpenMetrics says so. */
static enum MHD_Result answer_metrics(struct MHD_Connection *connection, weir_engine *engine) {
    const char *accepts =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    bool open = accepts != NULL && strstr(accepts, "application/openmetrics-text") != NULL;
    uint32_t format = open ? WEIR_METRICS_OPENMETRICS : WEIR_METRICS_PROMETHEUS;
    size_t room = 0, length = 0;
    int rc = weir_engine_metrics(engine, format, NULL, 0, &room);
    char *text = rc == 0 ? malloc(room) : NULL;
    if (rc == 0 && text == NULL)
        rc = WEIR_ENOMEM;
    if (rc == 0)
        rc = weir_engine_metrics(engine, format, text, room, &length);
    if (rc != 0) {
        free(text);
        return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, weir_strerror(rc));
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        free(text);
    return answer(connection, MHD_HTTP_OK,
                  open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8",
                  response);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **state) {
    struct metrics *metrics = context;
    (void)version, (void)body;
    if (*state == NULL) { /* its first call brings the headers alone */
        *state = metrics;
        return MHD_YES;
    }
    if (*body_bytes != 0) {
        *body_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (strcmp(url, PATH) != 0)
        return answer_text(connection, MHD_HTTP_NOT_FOUND, "only " PATH "\n");
    return answer_metrics(connection, metrics->engine);
}

/* libmicrohttpd has its say in the status that it returns. */
static void be_silent(void *context, const char *format, va_list arguments) {
    (void)context, (void)format, (void)arguments;
}

/* "HOST:PORT" or "[HOST]:PORT"; the caller frees *found_out. NULL, or why there is none. */
static const char *look_up(const char *address, struct addrinfo **found_out) {
    char host[WEIR_ADDRESS_MAX];
    const char *colon = strrchr(address, ':');
    const char *begin = address;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};

    if (colon == NULL || colon == address || colon[1] == '\0' || strlen(address) >= sizeof(host))
        return "not HOST:PORT";
    size_t length = (size_t)(colon - begin);
    if (begin[0] == '[') {
        if (begin[length - 1] != ']' || length < 3)
            return "not HOST:PORT";
        begin++;
        length -= 2;
    } else if (memchr(begin, ':', length) != NULL) {
        return "an IPv6 address stands in brackets, [::1]:9464";
    }
    memcpy(host, begin, length);
    host[length] = '\0';
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
        strtoul(colon + 1, NULL, 10) > 65535)
        return "port not in 0 to 65535";
    int rc = getaddrinfo(host, colon + 1, &hints, found_out);
    return rc == 0 ? NULL : gai_strerror(rc);
}

/* As the address was given, but with the port that was taken. */
static void write_url(struct metrics *metrics, const char *address) {
    const union MHD_DaemonInfo *port =
        MHD_get_daemon_info(metrics->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(metrics->url, sizeof(metrics->url), "http://%.*s:%u" PATH,
             (int)(strrchr(address, ':') - address), address,
             port != NULL ? (unsigned)port->port : 0u);
}

static const char *listen_at(struct metrics *metrics, const struct addrinfo *found) {
    unsigned flags = MHD_USE_EPOLL | (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0);

    errno = 0;
    metrics->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, metrics, MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL,
        MHD_OPTION_SOCK_ADDR, found->ai_addr, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_BYTES,
        MHD_OPTION_END);
    if (metrics->daemon == NULL)
        return errno != 0 ? strerror(errno) : "the HTTP server does not start";
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(metrics->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL) {
        MHD_stop_daemon(metrics->daemon);
        return "the HTTP server has no epoll descriptor";
    }
    metrics->fd = info->epoll_fd;
    return NULL;
}

struct metrics *metrics_open(const char *address, weir_engine *engine) {
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    struct addrinfo *found = NULL;
    const char *why = metrics == NULL ? strerror(ENOMEM) : look_up(address, &found);

    if (why == NULL) {
        metrics->engine = engine;
        why = listen_at(metrics, found);
        freeaddrinfo(found);
    }
    if (why == NULL) {
        write_url(metrics, address);
        return metrics;
    }
    free(metrics);
    complain("serve --metrics %s: %s", address, why);
    return NULL;
}

const char *metrics_url(const struct metrics *metrics) {
    return metrics->url;
}

void metrics_run(struct metrics *metrics) {
    if (metrics != NULL)
        MHD_run(metrics->daemon);
}

int metrics_fd(const struct metrics *metrics) {
    return metrics != NULL ? metrics->fd : -1;
}

uint64_t metrics_timeout(const struct metrics *metrics) {
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    if (metrics == NULL)
        return UINT64_MAX;
    if (MHD_get_timeout(metrics->daemon, &timeout_ms) != MHD_YES ||
        timeout_ms * NS_PER_MS > LOOK_NS)
        return LOOK_NS;
    return timeout_ms * NS_PER_MS;
}

void metrics_close(struct metrics *metrics) {
    if (metrics == NULL)
        return;
    MHD_stop_daemon(metrics->daemon);
    free(metrics);
}
