/* SPDX-License-Identifier: Apache-2.0 */
/* released.c: my peer releases memory that I still write to. A lender lends a page to a writer,
 * and takes it back after every tenth record: by turns without a word, and after asking.
 *
 *     released lend 127.0.0.1:7400
 *     released write 127.0.0.1:7400 COUNT
 *
 * The recipe, for the writer:
 *
 *   1. A transfer to memory that its owner has released is ESTALE on shm, where the device sees
 *      that: the call fails, or the transfer ends so. Elsewhere the owner's device refuses it, and
 *      it ends with EREMOTE (EDEVICE on iWARP and ofi). Some of its bytes may have arrived before;
 *      its notification does not come.
 *   2. One that was refused costs the session with that peer: DEGRADED, with EREMOTE and the id of
 *      the transfer, then RECOVERED. All else that was under way is sent again by itself. There
 *      is nothing to do about these events. ESTALE costs nothing.
 *   3. Use the import no more. Release it when the last transfer with it has ended: EBUSY
 *      before.
 *   4. Ask the owner's application for other memory, and import what it answers. ESTALE: that
 *      was released meanwhile, too, so ask again.
 *   5. Send again what the owner has not answered for. Success says that the bytes were in
 *      memory that may be released by now.
 *
 * For the owner:
 *
 *   6. weir_memory_release is 0 when nobody touches the memory any more: it can be used for
 *      other things at once. EINPROGRESS: a peer is stopped in the middle of an access; call it
 *      again.
 *   7. It is cheaper to ask first, to wait for the answer, and to release then: no session
 *      breaks.
 *   8. A write to a page that is gone is lost. Say so, and lend another one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { PAGE = 4096, RECORD = 64, SLOTS = PAGE / RECORD, LEASE = 10 };
enum { HELLO = 1, PAGE_LENT, WRITTEN, KEPT, LEAVE, LEFT }; /* upper half of a tag; a number below */

static uint64_t tag(uint64_t kind, uint64_t number) {
    return kind << 32 | number;
}

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "released: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

/* A segment, or none, and a notification behind it. The end comes as a completion. */
static int try_send(weir_engine *engine, weir_peer to, const weir_segment *segment,
                    uint64_t notify_tag, const void *payload, size_t length) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE;
    options.notify_tag = notify_tag;
    options.notify_payload = payload;
    options.notify_length = (uint32_t)length;
    return weir_write(engine, to, segment, segment != NULL, &options, NULL);
}

static void send(weir_engine *engine, weir_peer to, uint64_t notify_tag, const void *payload,
                 size_t length) {
    must("send", try_send(engine, to, NULL, notify_tag, payload, length));
}

/* ---- the lender ---------------------------------------------------------- */

struct lender {
    weir_engine *engine;
    weir_memory memory;
    char *records;
    uint32_t page; /* which one this is: each has a number */
    uint32_t kept;
    unsigned char descriptor[WEIR_DESCRIPTOR_MAX];
    size_t descriptor_length;
};

static void lend(struct lender *l) {
    l->page++;
    l->descriptor_length = sizeof(l->descriptor);
    must("allocate", weir_memory_allocate(l->engine, PAGE, WEIR_ACCESS_REMOTE_WRITE, &l->memory,
                                          (void **)&l->records));
    must("export", weir_memory_export(l->engine, l->memory, l->descriptor, &l->descriptor_length));
}

static void take_back(struct lender *l) {
    int rc;
    while ((rc = weir_memory_release(l->engine, l->memory)) == WEIR_EINPROGRESS) /* 6 */
        weir_engine_wait(l->engine, 10000000);
    must("release", rc);
    lend(l);
}

static void on_record(struct lender *l, const weir_notification *got) {
    uint32_t page, number = (uint32_t)got->tag;
    memcpy(&page, got->payload, sizeof(page));
    if (page != l->page) { /* 8 */
        send(l->engine, got->from, tag(PAGE_LENT, l->page), l->descriptor, l->descriptor_length);
        return;
    }
    printf("%.*s\n", RECORD, l->records + number % SLOTS * RECORD);
    fflush(stdout);
    if (++l->kept % LEASE == 0) {
        if (l->kept / LEASE % 2 != 0)
            take_back(l); /* without a word */
        else
            send(l->engine, got->from, tag(LEAVE, l->page), NULL, 0); /* 7 */
    }
    send(l->engine, got->from, tag(KEPT, number), NULL, 0);
}

static void serve(weir_engine *engine) {
    struct lender l = {.engine = engine};
    weir_notification got;
    weir_completion done;
    weir_event event;
    lend(&l);
    for (;;) {
        must("wait", weir_engine_wait(engine, UINT64_MAX));
        while (weir_event_take(engine, &event) == WEIR_OK) /* 2: DEGRADED with EUNKNOWN here */
            continue;
        while (weir_completion_take(engine, &done) == WEIR_OK)
            continue;
        while (weir_notification_take(engine, &got) == WEIR_OK) {
            uint64_t kind = got.tag >> 32;
            if (kind == LEFT && (uint32_t)got.tag == l.page)
                take_back(&l);
            else if (kind == WRITTEN && got.length == sizeof(uint32_t))
                on_record(&l, &got);
            else if (kind == HELLO)
                send(engine, got.from, tag(PAGE_LENT, l.page), l.descriptor, l.descriptor_length);
        }
    }
}

/* ---- the writer ---------------------------------------------------------- */

struct writer {
    weir_engine *engine;
    weir_peer lender;
    weir_memory memory;
    char *records;
    weir_remote remote; /* id 0: there is none */
    uint32_t page;      /* its number */
    uint32_t kept;      /* the last record that the lender answered for */
    int gone;           /* the page: a transfer ended so, or the lender says so */
    int leave;          /* the lender wants it back */
    uint32_t refusals, breaks;
};

/* A transfer, or the call that was to begin it. */
static void ended(struct writer *w, int status) {
    if (status == WEIR_ESTALE || status == WEIR_EREMOTE || status == WEIR_EDEVICE) { /* 1 */
        w->gone = 1;
        w->refusals++;
    } else {
        must("the lender", status);
    }
}

/* Waits, and takes what came. */
static void look(struct writer *w) {
    weir_notification got;
    weir_completion done;
    weir_event event;
    weir_engine_wait(w->engine, 1000000000);
    while (weir_event_take(w->engine, &event) == WEIR_OK)
        w->breaks += event.type == WEIR_EVENT_DEGRADED && event.error == WEIR_EREMOTE; /* 2 */
    while (weir_completion_take(w->engine, &done) == WEIR_OK)
        ended(w, done.status);
    while (weir_notification_take(w->engine, &got) == WEIR_OK) {
        uint64_t kind = got.tag >> 32;
        if (kind == KEPT)
            w->kept = (uint32_t)got.tag;
        else if (kind == LEAVE && (uint32_t)got.tag == w->page)
            w->leave = 1;
        else if (kind == PAGE_LENT && w->remote.id != 0)
            w->gone |= (uint32_t)got.tag != w->page; /* 8 */
        else if (kind == PAGE_LENT) {
            int rc = weir_memory_import(w->engine, w->lender, got.payload, got.length, &w->remote);
            if (rc == WEIR_ESTALE) /* 4 */
                send(w->engine, w->lender, tag(HELLO, 0), NULL, 0);
            else
                must("import", rc);
            w->page = (uint32_t)got.tag;
        }
    }
}

/* 3, 4 */
static void change_page(struct writer *w) {
    if (w->remote.id != 0) {
        while (weir_remote_release(w->engine, w->remote) == WEIR_EBUSY)
            look(w);
        w->remote.id = 0;
        if (!w->gone) /* 7 */
            send(w->engine, w->lender, tag(LEFT, w->page), NULL, 0);
    }
    w->gone = w->leave = 0;
    send(w->engine, w->lender, tag(HELLO, 0), NULL, 0);
    while (w->remote.id == 0)
        look(w);
}

/* Until the lender has answered for it: 5. */
static void keep(struct writer *w, uint32_t number) {
    uint32_t offset = number % SLOTS * RECORD;
    snprintf(w->records + offset, RECORD, "record %lu", (unsigned long)number);
    while (w->kept != number) {
        if (w->remote.id == 0 || w->gone || w->leave)
            change_page(w);
        weir_segment segment = {.local = w->memory,
                                .remote = w->remote,
                                .local_offset = offset,
                                .remote_offset = offset,
                                .length = RECORD};
        int rc = try_send(w->engine, w->lender, &segment, tag(WRITTEN, number), &w->page,
                          sizeof(w->page));
        ended(w, rc);
        while (w->kept != number && !w->gone)
            look(w);
    }
}

static void write_records(weir_engine *engine, const char *address, unsigned long count) {
    struct writer w = {.engine = engine};
    must(address, weir_peer_open(engine, address, &w.lender));
    must("allocate", weir_memory_allocate(engine, PAGE, 0, &w.memory, (void **)&w.records));
    for (uint32_t number = 1; number <= count; number++)
        keep(&w, number);
    printf("%lu records are kept; %lu pages went without a word\n", (unsigned long)w.kept,
           (unsigned long)w.refusals);
    printf("%lu sessions broke\n", (unsigned long)w.breaks);
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    int lends = argc == 3 && strcmp(argv[1], "lend") == 0;
    if (!lends && !(argc == 4 && strcmp(argv[1], "write") == 0)) {
        fprintf(stderr, "usage: released lend HOST:PORT | write HOST:PORT COUNT\n");
        return 2;
    }
    if (lends)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "released: %s\n", why);
        return 1;
    }
    if (lends)
        serve(engine);
    else
        write_records(engine, argv[2], strtoul(argv[3], NULL, 10));
    weir_engine_close(engine);
    return 0;
}
