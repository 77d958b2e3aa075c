/* SPDX-License-Identifier: Apache-2.0 */
/* etcd.c: etcd's keys, by the JSON gateway of its version 3 (/v3/kv/), which etcd 3.4 and newer
 * have at the address of their clients. Of several endpoints the one that answered last is asked
 * first. */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENDPOINTS_MAX = 16 };

struct etcd {
    struct web *web;
    char *endpoints[ENDPOINTS_MAX]; /* "http://host:port" */
    size_t count, last;
};

static void etcd_close(void *client) {
    struct etcd *etcd = client;
    if (etcd->web != NULL)
        web_close(etcd->web);
    for (size_t i = 0; i < etcd->count; i++)
        free(etcd->endpoints[i]);
    free(etcd);
}

static void *etcd_open(const char *target, uint64_t timeout_ms, char *why) {
    struct etcd *etcd = calloc(1, sizeof(*etcd));
    char *list = strdup(target), *rest = NULL;
    if (etcd == NULL || list == NULL)
        goto no_memory;
    for (char *at = strtok_r(list, ",; ", &rest); at != NULL && etcd->count < ENDPOINTS_MAX;
         at = strtok_r(NULL, ",; ", &rest)) {
        bool has_scheme = strstr(at, "://") != NULL;
        bool has_port = strrchr(at, ':') != NULL && strchr(strrchr(at, ':'), ']') == NULL;
        if (asprintf(&etcd->endpoints[etcd->count], "%s%s%s", has_scheme ? "" : "http://", at,
                     has_scheme || has_port ? "" : ":2379") < 0)
            goto no_memory;
        etcd->count++;
    }
    /* The endpoints share the time, since each may be asked in turn. */
    if (etcd->count > 0 && (etcd->web = web_open(timeout_ms / etcd->count + 1)) == NULL)
        goto no_memory;
    free(list);
    if (etcd->count > 0)
        return etcd;
    snprintf(why, STORE_WHY, "etcd: \"%.100s\" names no endpoint", target);
    etcd_close(etcd);
    return NULL;
no_memory:
    snprintf(why, STORE_WHY, "out of memory");
    free(list);
    if (etcd != NULL)
        etcd_close(etcd);
    return NULL;
}

/* ---- base64, of which the gateway makes its bytes ---------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *encode(const char *text) {
    size_t length = strlen(text), at = 0;
    char *out = malloc(4 * ((length + 2) / 3) + 1);
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t bits = (uint32_t)(uint8_t)text[i] << 16;
        bits |= left > 1 ? (uint32_t)(uint8_t)text[i + 1] << 8 : 0;
        bits |= left > 2 ? (uint32_t)(uint8_t)text[i + 2] : 0;
        out[at++] = digits[bits >> 18 & 63];
        out[at++] = digits[bits >> 12 & 63];
        out[at++] = left > 1 ? digits[bits >> 6 & 63] : '=';
        out[at++] = left > 2 ? digits[bits & 63] : '=';
    }
    out[at] = '\0';
    return out;
}

/* NULL: no memory, or no base64. */
static char *decode(const char *text) {
    size_t length = strlen(text), at = 0;
    char *out = malloc(length + 1);
    uint32_t bits = 0, count = 0;
    for (size_t i = 0; out != NULL && i < length && text[i] != '='; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL || *digit == '\0') {
            free(out);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[at++] = (char)(bits >> count & 255);
        }
    }
    if (out != NULL)
        out[at] = '\0';
    return out;
}

/* ---- calls ------------------------------------------------------------------ */

/* *answer_out is the caller's, with OK alone. */
static enum store_result call(struct etcd *etcd, const char *what, const char *key,
                              const char *value, json_t **answer_out, char *why) {
    char *coded_key = encode(key), *coded_value = value != NULL ? encode(value) : NULL;
    json_t *request = coded_key != NULL ? json_pack("{s:s}", "key", coded_key) : NULL;
    if (request != NULL && coded_value != NULL)
        json_object_set_new(request, "value", json_string(coded_value));
    char *body = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
    enum store_result result = STORE_AWAY;
    if (body == NULL || (value != NULL && coded_value == NULL))
        snprintf(why, STORE_WHY, "out of memory");
    for (size_t tried = 0; body != NULL && result == STORE_AWAY && tried < etcd->count; tried++) {
        size_t index = (etcd->last + tried) % etcd->count;
        char *url = NULL, *text = NULL;
        long status = 0;
        if (asprintf(&url, "%s/v3/kv/%s", etcd->endpoints[index], what) < 0)
            break;
        result = web_call(etcd->web, "POST", url, body, &status, &text, why);
        if (result == STORE_OK && status == 200) {
            *answer_out = json_loads(text, 0, NULL);
            etcd->last = index;
        }
        if (result == STORE_OK && (status != 200 || *answer_out == NULL)) {
            /* Without a leader it answers 503: another member may have one. */
            result = status >= 500 ? STORE_AWAY : STORE_REFUSED;
            snprintf(why, STORE_WHY, "%.100s: HTTP %ld: %.100s", url, status, text);
        }
        free(text);
        free(url);
    }
    json_decref(request);
    free(body);
    free(coded_key);
    free(coded_value);
    return result;
}

static enum store_result etcd_get(void *client, const char *key, char **value_out, char *why) {
    json_t *answer;
    enum store_result result = call(client, "range", key, NULL, &answer, why);
    if (result != STORE_OK)
        return result;
    const json_t *found = json_array_get(json_object_get(answer, "kvs"), 0);
    const char *coded = json_string_value(json_object_get(found, "value"));
    if (found == NULL) {
        result = STORE_MISSING;
        snprintf(why, STORE_WHY, "etcd has no key %.100s", key);
    } else if ((*value_out = decode(coded != NULL ? coded : "")) == NULL) {
        result = STORE_REFUSED;
        snprintf(why, STORE_WHY, "etcd's value of %.100s is not as it should be", key);
    }
    json_decref(answer);
    return result;
}

static enum store_result etcd_put(void *client, const char *key, const char *value, char *why) {
    json_t *answer;
    enum store_result result = call(client, "put", key, value, &answer, why);
    if (result == STORE_OK)
        json_decref(answer);
    return result;
}

static enum store_result etcd_remove(void *client, const char *key, char *why) {
    json_t *answer;
    enum store_result result = call(client, "deleterange", key, NULL, &answer, why);
    if (result == STORE_OK)
        json_decref(answer);
    return result;
}

const struct store_kind store_etcd = {.name = "etcd",
                                      .open = etcd_open,
                                      .close = etcd_close,
                                      .get = etcd_get,
                                      .put = etcd_put,
                                      .remove = etcd_remove};
