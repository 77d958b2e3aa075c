/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: metadata servers: keys and JSON documents, in etcd, redis or behind HTTP.
 *
 * Any thread may call; calls to one server go one after the other. Each blocks for the time-out at
 * most, and dials anew after a connection that broke. */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

enum store_result {
    STORE_OK = 0,
    STORE_MISSING = 1, /* there is no such key */
    STORE_AWAY = 2,    /* the server does not answer, or what it answers cannot be read */
    STORE_REFUSED = 3  /* it answers that it will not */
};

/* One kind of server. A client's calls are made one at a time. `why` has room for STORE_WHY bytes,
 * and is written unless the result is OK. */
enum { STORE_WHY = 256 };
/* An answer that is longer is refused: a list of 65,535 buffers takes 7 MB. */
#define ANSWER_BYTES_MAX ((size_t)64 << 20)
struct store_kind {
    const char *name;
    void *(*open)(const char *target, uint64_t timeout_ms, char *why);
    void (*close)(void *client);
    /* *value_out is allocated, with a terminator. */
    enum store_result (*get)(void *client, const char *key, char **value_out, char *why);
    enum store_result (*put)(void *client, const char *key, const char *value, char *why);
    enum store_result (*remove)(void *client, const char *key, char *why);
};
extern const struct store_kind store_etcd, store_redis, store_http;

/* A request to an HTTP server: http.c's, and etcd.c's below. body NULL: none. */
struct web;
struct web *web_open(uint64_t timeout_ms);
void web_close(struct web *web);
/* *answer_out is allocated, with a terminator, and written with OK alone. *status_out: of HTTP. */
enum store_result web_call(struct web *web, const char *method, const char *url, const char *body,
                           long *status_out, char **answer_out, char *why);
/* Allocated; NULL: no memory. */
char *web_escape(struct web *web, const char *text);

struct store;
/* uri: as createTransferEngine takes it. NULL, with why: its scheme is not known, or there is no
 * memory. Does not connect. */
struct store *store_open(const char *uri, uint64_t timeout_ms, char *why);
void store_close(struct store *store);

/* Where the segment's engine listens: "mooncake/rpc_meta/NAME". */
enum store_result store_get_location(struct store *store, const char *name, char *address_out,
                                     size_t address_size, char *why);
enum store_result store_put_location(struct store *store, const char *name, const char *host,
                                     uint32_t port, char *why);
/* The segment's document: "mooncake/ram/NAME". The caller gives the document back. */
enum store_result store_get_segment(struct store *store, const char *name, json_t **document_out,
                                    char *why);
enum store_result store_put_segment(struct store *store, const char *name, const json_t *document,
                                    char *why);
/* Both, if the location is still this one: a successor's entries stay. */
enum store_result store_remove(struct store *store, const char *name, const char *address,
                               char *why);

/* An empty segment of this name; NULL: no memory. */
json_t *segment_document(const char *name);
/* Adds a buffer; false: no memory. */
bool segment_document_add(json_t *document, const char *location, uint64_t base, uint64_t length);
/* Whether an adapter like this one wrote it: others' data do not move with weir. */
bool segment_document_is_ours(const json_t *document);

#endif
