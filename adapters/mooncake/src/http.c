/* SPDX-License-Identifier: Apache-2.0 */
/* http.c: a metadata server behind HTTP: GET, PUT and DELETE of URL?key=KEY. */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct http {
    struct web *web;
    char *url;
};

static void http_close(void *client) {
    struct http *http = client;
    web_close(http->web);
    free(http->url);
    free(http);
}

static void *http_open(const char *target, uint64_t timeout_ms, char *why) {
    struct http *http = calloc(1, sizeof(*http));
    if (http != NULL) {
        http->url = strdup(target);
        http->web = web_open(timeout_ms);
        if (http->url != NULL && http->web != NULL)
            return http;
        if (http->web != NULL)
            web_close(http->web);
        free(http->url);
        free(http);
    }
    snprintf(why, STORE_WHY, "out of memory");
    return NULL;
}

/* *answer_out may be NULL. */
static enum store_result call(struct http *http, const char *method, const char *key,
                              const char *body, char **answer_out, char *why) {
    char *escaped = web_escape(http->web, key), *url = NULL, *answer = NULL;
    enum store_result result = STORE_AWAY;
    long status = 0;
    if (escaped == NULL || asprintf(&url, "%s?key=%s", http->url, escaped) < 0) {
        url = NULL;
        snprintf(why, STORE_WHY, "out of memory");
    } else {
        result = web_call(http->web, method, url, body, &status, &answer, why);
    }
    if (result == STORE_OK && status != 200) {
        result = status == 404 ? STORE_MISSING : STORE_REFUSED;
        snprintf(why, STORE_WHY, "%s of %.120s: HTTP %ld", method, url, status);
    }
    if (result == STORE_OK && answer_out != NULL)
        *answer_out = answer;
    else
        free(answer);
    free(escaped);
    free(url);
    return result;
}

static enum store_result http_get(void *client, const char *key, char **value_out, char *why) {
    return call(client, "GET", key, NULL, value_out, why);
}

static enum store_result http_put(void *client, const char *key, const char *value, char *why) {
    return call(client, "PUT", key, value, NULL, why);
}

static enum store_result http_remove(void *client, const char *key, char *why) {
    return call(client, "DELETE", key, NULL, NULL, why);
}

const struct store_kind store_http = {.name = "the HTTP server",
                                      .open = http_open,
                                      .close = http_close,
                                      .get = http_get,
                                      .put = http_put,
                                      .remove = http_remove};
