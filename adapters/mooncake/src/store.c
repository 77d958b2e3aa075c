/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: the metadata that engines keep for each other: which keys there are, what is in them,
 * and which kind of server is asked.
 *
 * Keys and documents are those that Mooncake writes and reads: both see each other's segments. A
 * document of ours has a member more, "weir", by which openSegment knows that data can move. */
#include "store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct store {
    const struct store_kind *kind;
    void *client;
    pthread_mutex_t lock;
    char *prefix; /* "mooncake/", or "mooncake/CLUSTER/" */
};

struct store *store_open(const char *uri, uint64_t timeout_ms, char *why) {
    static const struct {
        const char *scheme;
        const struct store_kind *kind;
        bool keeps; /* the scheme is part of what the client is told */
    } schemes[] = {{"etcd://", &store_etcd, false},
                   {"redis://", &store_redis, false},
                   {"http://", &store_http, true},
                   {"https://", &store_http, true}};
    const struct store_kind *kind = strstr(uri, "://") == NULL ? &store_etcd : NULL;
    const char *target = uri;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t length = strlen(schemes[i].scheme);
        if (strncmp(uri, schemes[i].scheme, length) == 0) {
            kind = schemes[i].kind;
            target = schemes[i].keeps ? uri : uri + length;
        }
    }
    if (kind == NULL || *target == '\0') {
        snprintf(why, STORE_WHY,
                 "the metadata \"%.100s\" is no etcd://, redis:// or http:// server", uri);
        return NULL;
    }
    const char *cluster = getenv("MC_METADATA_CLUSTER_ID");
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL ||
        asprintf(&store->prefix, "mooncake/%s%s", cluster != NULL ? cluster : "",
                 cluster != NULL && *cluster != '\0' && cluster[strlen(cluster) - 1] != '/'
                     ? "/"
                     : "") < 0) {
        snprintf(why, STORE_WHY, "out of memory");
        free(store);
        return NULL;
    }
    store->kind = kind;
    store->client = kind->open(target, timeout_ms, why);
    if (store->client == NULL) {
        free(store->prefix);
        free(store);
        return NULL;
    }
    pthread_mutex_init(&store->lock, NULL);
    return store;
}

void store_close(struct store *store) {
    if (store == NULL)
        return;
    store->kind->close(store->client);
    pthread_mutex_destroy(&store->lock);
    free(store->prefix);
    free(store);
}

/* ---- keys ----------------------------------------------------------------- */

/* A name with a path keeps it. NULL: no memory. */
static char *key_of(const struct store *store, const char *kind, const char *name) {
    char *key;
    bool has_path = strcmp(kind, "ram/") == 0 && strchr(name, '/') != NULL;
    return asprintf(&key, "%s%s%s", store->prefix, has_path ? "" : kind, name) < 0 ? NULL : key;
}

static enum store_result out_of_memory(char *why) {
    snprintf(why, STORE_WHY, "out of memory");
    return STORE_AWAY;
}

static enum store_result get(struct store *store, const char *kind, const char *name,
                             json_t **document_out, char *why) {
    char *key = key_of(store, kind, name), *text = NULL;
    out_of_memory(why); /* unless the client says what else */
    if (key == NULL)
        return STORE_AWAY;
    pthread_mutex_lock(&store->lock);
    enum store_result result = store->kind->get(store->client, key, &text, why);
    pthread_mutex_unlock(&store->lock);
    if (result == STORE_OK) {
        json_t *document = json_loads(text, 0, NULL);
        if (json_is_object(document)) {
            *document_out = document;
        } else {
            snprintf(why, STORE_WHY, "what %s has at %.100s is no JSON object", store->kind->name,
                     key);
            json_decref(document);
            result = STORE_REFUSED;
        }
    }
    free(text);
    free(key);
    return result;
}

static enum store_result put(struct store *store, const char *kind, const char *name,
                             const json_t *document, char *why) {
    char *key = key_of(store, kind, name);
    char *text = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS);
    enum store_result result = STORE_AWAY;
    out_of_memory(why);
    if (key != NULL && text != NULL) {
        pthread_mutex_lock(&store->lock);
        result = store->kind->put(store->client, key, text, why);
        pthread_mutex_unlock(&store->lock);
    }
    free(text);
    free(key);
    return result;
}

static enum store_result drop(struct store *store, const char *kind, const char *name, char *why) {
    char *key = key_of(store, kind, name);
    out_of_memory(why);
    if (key == NULL)
        return STORE_AWAY;
    pthread_mutex_lock(&store->lock);
    enum store_result result = store->kind->remove(store->client, key, why);
    pthread_mutex_unlock(&store->lock);
    free(key);
    return result;
}

/* ---- locations ------------------------------------------------------------ */

/* An IPv6 address stands in brackets before a port. */
static void join(const char *host, uint32_t port, char *address_out, size_t size) {
    bool bare = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(address_out, size, bare ? "[%s]:%" PRIu32 : "%s:%" PRIu32, host, port);
}

enum store_result store_get_location(struct store *store, const char *name, char *address_out,
                                     size_t address_size, char *why) {
    json_t *document;
    enum store_result result = get(store, "rpc_meta/", name, &document, why);
    if (result != STORE_OK)
        return result;
    const char *host = json_string_value(json_object_get(document, "ip_or_host_name"));
    json_int_t port = json_integer_value(json_object_get(document, "rpc_port"));
    if (host == NULL || port < 1 || port > 65535 || strlen(host) + 10 > address_size) {
        snprintf(why, STORE_WHY, "the location of %.100s has no host and port", name);
        result = STORE_REFUSED;
    } else {
        join(host, (uint32_t)port, address_out, address_size);
    }
    json_decref(document);
    return result;
}

enum store_result store_put_location(struct store *store, const char *name, const char *host,
                                     uint32_t port, char *why) {
    json_t *document =
        json_pack("{s:s, s:I}", "ip_or_host_name", host, "rpc_port", (json_int_t)port);
    if (document == NULL)
        return out_of_memory(why);
    enum store_result result = put(store, "rpc_meta/", name, document, why);
    json_decref(document);
    return result;
}

enum store_result store_get_segment(struct store *store, const char *name, json_t **document_out,
                                    char *why) {
    return get(store, "ram/", name, document_out, why);
}

enum store_result store_put_segment(struct store *store, const char *name, const json_t *document,
                                    char *why) {
    return put(store, "ram/", name, document, why);
}

enum store_result store_remove(struct store *store, const char *name, const char *address,
                               char *why) {
    char now[512];
    enum store_result result = store_get_location(store, name, now, sizeof(now), why);
    if (result == STORE_OK && strcmp(now, address) != 0)
        return STORE_OK; /* a successor's */
    if (result == STORE_AWAY)
        return result;
    enum store_result first = drop(store, "ram/", name, why);
    enum store_result second = drop(store, "rpc_meta/", name, why);
    return first == STORE_OK || first == STORE_MISSING ? second : first;
}

/* ---- documents ------------------------------------------------------------ */

json_t *segment_document(const char *name) {
    char stamp[64];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    size_t length = strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(stamp + length, sizeof(stamp) - length, ".%06ld", now.tv_nsec / 1000);
    return json_pack("{s:s, s:s, s:i, s:i, s:s, s:[], s:i}", "name", name, "protocol", "tcp",
                     "tcp_data_port", 0, "tcp_proto_version", 1, "timestamp", stamp, "buffers",
                     "weir", 1);
}

bool segment_document_add(json_t *document, const char *location, uint64_t base, uint64_t length) {
    json_t *buffer = json_pack("{s:s, s:I, s:I}", "name", *location != '\0' ? location : "*",
                               "addr", (json_int_t)base, "length", (json_int_t)length);
    return buffer != NULL &&
           json_array_append_new(json_object_get(document, "buffers"), buffer) == 0;
}

bool segment_document_is_ours(const json_t *document) {
    return json_integer_value(json_object_get(document, "weir")) == 1;
}
