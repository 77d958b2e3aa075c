/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c: how does a list of pages get across? A client wants pages of a server's at places of
 * its own: a list of (page there, page here), which is longer than a notification.
 *
 *     pages serve 127.0.0.1:7300
 *     pages get 127.0.0.1:7300
 *
 * The recipe:
 *
 *   1. The server has an inbox: memory of its own that clients may write. Each client gets a
 *      part of it, so that lists do not meet.
 *   2. The first notification of a client carries the descriptor of the memory that the pages
 *      shall come to; one fits into the payload. It is import, and hello, in one.
 *   3. The answer carries the descriptor of the inbox, and its tag says which part is the
 *      client's. When the client is GONE its part is free for the next one; while none is free,
 *      the answer says so.
 *   4. A list is written there, with a notification behind it that says how long it is: when it
 *      comes, the list is there.
 *   5. The server writes all pages of the list as one transfer of many segments, with a
 *      notification behind them: when it comes, all of them are there. Nobody has copied a byte,
 *      but the device.
 *
 * A list comes from another process: each entry is checked before it is used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { PAGE = 4096, PAGES = 256, LIST_MAX = 128, CLIENTS = 8 };
enum { HELLO = 1, INBOX, FULL, LIST, DONE }; /* the upper half of a tag; the lower is a number */

struct entry {
    uint32_t there, here; /* pages: the server's, the client's */
};

static uint64_t tag(uint64_t kind, uint64_t number) {
    return kind << 32 | number;
}

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "pages: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

/* Segments, if any, and a notification behind them; waits until both are over. */
static int send(weir_engine *engine, weir_peer to, const weir_segment *segments, size_t count,
                uint64_t notify_tag, const void *payload, size_t length) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = notify_tag;
    options.notify_payload = payload;
    options.notify_length = (uint32_t)length;
    int rc = weir_write(engine, to, segments, count, &options, &transfer);
    if (rc == WEIR_OK) {
        rc = weir_transfer_wait(engine, transfer, UINT64_MAX);
        weir_transfer_release(engine, transfer);
    }
    return rc;
}

static void await(weir_engine *engine, weir_notification *got) {
    while (weir_notification_take(engine, got) == WEIR_EAGAIN)
        weir_engine_wait(engine, UINT64_MAX);
}

/* ---- the server ---- */

struct server {
    weir_engine *engine;
    weir_memory pages, inbox;
    struct entry (*lists)[LIST_MAX]; /* the inbox: a part for each client */
    unsigned char descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
    struct {
        weir_peer peer;
        weir_remote memory;
        uint64_t pages;
    } clients[CLIENTS]; /* peer.id 0: a free place */
};

/* Whose place that is, or the number of places: nobody's. id 0: a free one. */
static uint32_t place_of(const struct server *s, uint64_t id) {
    uint32_t n = 0;
    while (n < CLIENTS && s->clients[n].peer.id != id)
        n++;
    return n;
}

static void welcome(struct server *s, const weir_notification *hello) {
    uint32_t n = place_of(s, 0);
    uint64_t bytes;
    if (n == CLIENTS) {
        send(s->engine, hello->from, NULL, 0, tag(FULL, CLIENTS), NULL, 0);
        return;
    }
    if (place_of(s, hello->from.id) != CLIENTS ||
        weir_memory_import(s->engine, hello->from, hello->payload, hello->length,
                           &s->clients[n].memory) != WEIR_OK)
        return;
    weir_remote_query(s->engine, s->clients[n].memory, &bytes, NULL);
    s->clients[n].peer = hello->from;
    s->clients[n].pages = bytes / PAGE;
    send(s->engine, hello->from, NULL, 0, tag(INBOX, n), s->descriptor, s->length);
}

static void serve_list(struct server *s, const weir_notification *got) {
    weir_segment segments[LIST_MAX];
    uint32_t length = (uint32_t)got->tag, n = place_of(s, got->from.id), count = 0;
    if (n == CLIENTS || length > LIST_MAX)
        return;
    for (uint32_t i = 0; i < length; i++) {
        struct entry e = s->lists[n][i]; /* a copy: the client may write there at any time */
        if (e.there >= PAGES || e.here >= s->clients[n].pages)
            continue;
        segments[count++] = (weir_segment){.local = s->pages,
                                           .remote = s->clients[n].memory,
                                           .local_offset = (uint64_t)e.there * PAGE,
                                           .remote_offset = (uint64_t)e.here * PAGE,
                                           .length = PAGE};
    }
    send(s->engine, got->from, segments, count, tag(DONE, count), NULL, 0);
}

/* A client has left, or died: its place is free. Its memory is of no use any more. */
static void farewell(struct server *s, weir_peer client) {
    uint32_t n = place_of(s, client.id);
    if (n == CLIENTS)
        return;
    weir_remote_release(s->engine, s->clients[n].memory);
    s->clients[n].peer.id = 0;
}

static void serve(weir_engine *engine) {
    struct server s = {.engine = engine, .length = sizeof(s.descriptor)};
    weir_notification got;
    weir_event event;
    void *base;
    must("memory", weir_memory_allocate(engine, (uint64_t)PAGES * PAGE, 0, &s.pages, &base));
    for (uint32_t page = 0; page < PAGES; page++)
        memset((char *)base + (size_t)page * PAGE, (int)page, PAGE);
    must("inbox", weir_memory_allocate(engine, sizeof(struct entry) * LIST_MAX * CLIENTS,
                                       WEIR_ACCESS_REMOTE_WRITE, &s.inbox, &base));
    s.lists = base;
    must("inbox", weir_memory_export(engine, s.inbox, s.descriptor, &s.length));
    for (;;) {
        while (weir_event_take(engine, &event) == WEIR_OK) {
            if (event.type == WEIR_EVENT_GONE)
                farewell(&s, event.peer);
        }
        if (weir_notification_take(engine, &got) != WEIR_OK)
            weir_engine_wait(engine, UINT64_MAX);
        else if (got.tag >> 32 == HELLO)
            welcome(&s, &got);
        else if (got.tag >> 32 == LIST)
            serve_list(&s, &got);
    }
}

/* ---- the client ---- */

static int get(weir_engine *engine, const char *address) {
    unsigned char descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory mine, list;
    weir_remote inbox;
    weir_peer server;
    weir_notification got;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    unsigned char *pages;
    struct entry *entries;
    must("memory", weir_memory_allocate(engine, (uint64_t)PAGES * PAGE, WEIR_ACCESS_REMOTE_WRITE,
                                        &mine, (void **)&pages));
    must("list", weir_memory_allocate(engine, sizeof(struct entry) * LIST_MAX, 0, &list,
                                      (void **)&entries));
    must("export", weir_memory_export(engine, mine, descriptor, &length));
    must(address, weir_peer_open(engine, address, &server));
    int rc = send(engine, server, NULL, 0, tag(HELLO, 0), descriptor, length); /* 2 */
    if (rc == WEIR_EREFUSED && weir_peer_query(engine, server, &info) == WEIR_OK)
        fprintf(stderr, "pages: its reason: %s\n",
                info.refusal == WEIR_EREFUSED ? "the devices differ, or do not meet"
                                              : weir_strerror(info.refusal));
    must("hello", rc);
    await(engine, &got); /* 3 */
    if (got.tag >> 32 == FULL) {
        fprintf(stderr, "pages: the server has %u clients, and no place left\n", (unsigned)got.tag);
        return 1;
    }
    must("inbox", weir_memory_import(engine, server, got.payload, got.length, &inbox));
    for (uint32_t i = 0; i < LIST_MAX; i++) /* every other page, backwards */
        entries[i] = (struct entry){.there = 2 * i, .here = PAGES - 1 - i};
    weir_segment segment = {.local = list,
                            .remote = inbox,
                            .remote_offset = sizeof(struct entry) * LIST_MAX * (uint32_t)got.tag,
                            .length = sizeof(struct entry) * LIST_MAX};
    must("list", send(engine, server, &segment, 1, tag(LIST, LIST_MAX), NULL, 0)); /* 4 */
    await(engine, &got);                                                           /* 5 */
    uint32_t right = 0;
    for (uint32_t i = 0; i < LIST_MAX; i++) {
        const unsigned char *page = pages + (size_t)entries[i].here * PAGE;
        right +=
            page[0] == (unsigned char)entries[i].there && memcmp(page, page + 1, PAGE - 1) == 0;
    }
    printf("%lu pages came, %lu are right\n", (unsigned long)(uint32_t)got.tag,
           (unsigned long)right);
    weir_engine_close(engine);
    return right == LIST_MAX ? 0 : 1;
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    if (argc != 3 || (strcmp(argv[1], "serve") != 0 && strcmp(argv[1], "get") != 0)) {
        fprintf(stderr, "usage: pages serve | get HOST:PORT\n");
        return 2;
    }
    if (strcmp(argv[1], "serve") == 0)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "pages: %s\n", why);
        return 1;
    }
    if (strcmp(argv[1], "get") == 0)
        return get(engine, argv[2]);
    serve(engine);
}
