/* SPDX-License-Identifier: Apache-2.0 */
/* comeback.c: my peer was killed and came back. A store keeps records that a writer sends; it may
 * be killed and started again at its address at any time, and the writer goes on.
 *
 *     comeback store 127.0.0.1:7200
 *     comeback write 127.0.0.1:7200 COUNT
 *
 * The recipe, for the side whose peer died:
 *
 *   1. WEIR_EVENT_GONE, or a status of EPEER, says that this incarnation of the peer is gone.
 *      All transfers to it end with a status: nothing is under way any more, and nothing stays
 *      owed. Nobody else's transfers are touched.
 *   2. The peer handle stays good: it names the address. Whatever answers there next is the
 *      peer.
 *   3. Imported memory of the dead incarnation is ESTALE for ever: release each import, once.
 *   4. Open the memory's name again: that connects, and waits until the new incarnation has
 *      published it. An address where nobody answers is dialled until connect_timeout_ns is over
 *      (ECONNECT), so call again for as long as you want to wait. A peer that refuses says so at
 *      once (EREFUSED), and would say it again: give up, and say why.
 *   5. Send again what has no answer of the application. A status of OK says that the bytes were
 *      in the memory of a process that may be dead now: if the peer has to have kept them, it
 *      must answer, as the store does here. EPEER says nothing: they may have arrived, or not.
 *
 * The store needs none of this. A new incarnation of the writer would be another peer to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { RECORD = 64, SLOTS = 16 };
enum { WRITTEN, KEPT }; /* tags of notifications; the payload is the record's number */
#define PATIENCE_NS UINT64_C(20000000000)

static int fail(const char *what, int error) {
    fprintf(stderr, "comeback: %s: %s\n", what, weir_strerror(error));
    return 1;
}

/* Whether a transfer that ended so is worth another try: the peer died, or is not there yet. */
static int passes(int status) {
    return status == WEIR_EPEER || status == WEIR_ECONNECT || status == WEIR_ESTALE ||
           status == WEIR_EUNKNOWN || status == WEIR_ENOTREADY;
}

/* A notification alone. Its end is not waited for: completions are taken and dropped. */
static void say_kept(weir_engine *engine, weir_peer to, const uint32_t *number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE;
    options.notify_tag = KEPT;
    options.notify_payload = number;
    options.notify_length = sizeof(*number);
    (void)weir_write(engine, to, NULL, 0, &options, NULL);
}

static int store(weir_engine *engine) {
    weir_notification got;
    weir_completion done;
    weir_event event;
    weir_memory memory;
    void *records;
    uint32_t number;
    int rc =
        weir_memory_allocate(engine, SLOTS * RECORD, WEIR_ACCESS_REMOTE_WRITE, &memory, &records);
    if (rc == WEIR_OK)
        rc = weir_memory_publish(engine, memory, "records");
    while (rc == WEIR_OK) {
        weir_engine_wait(engine, UINT64_MAX);
        while (weir_completion_take(engine, &done) == WEIR_OK)
            continue;
        while (weir_event_take(engine, &event) == WEIR_OK)
            continue;
        while (weir_notification_take(engine, &got) == WEIR_OK) {
            if (got.tag != WRITTEN || got.length != sizeof(number))
                continue;
            memcpy(&number, got.payload, sizeof(number));
            printf("%.*s\n", RECORD, (char *)records + number % SLOTS * RECORD);
            fflush(stdout); /* kept; now the writer may forget it */
            say_kept(engine, got.from, &number);
        }
    }
    return fail("the store", rc);
}

struct writer {
    weir_engine *engine;
    weir_peer store;
    weir_memory memory; /* of ours: the records */
    char *records;
    weir_remote remote; /* theirs; id 0: there is none */
    uint32_t kept;      /* records that the store has answered for */
    int gone;           /* it was, since its memory was opened */
};

/* Ends the program, and says why. The peer's description has the reason that it gave. */
static void give_up(const struct writer *w, int error) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    fail("the store", error);
    if (weir_peer_query(w->engine, w->store, &info) == WEIR_OK && info.refusal == WEIR_EREFUSED)
        fprintf(stderr, "comeback: the devices differ, or do not meet\n");
    else if (info.refusal != WEIR_OK)
        fprintf(stderr, "comeback: its reason: %s\n", weir_strerror(info.refusal));
    exit(1);
}

/* Waits, and takes what came, until there is something to act on. */
static void look(struct writer *w) {
    weir_notification got;
    weir_completion done;
    weir_event event;
    weir_engine_wait(w->engine, 1000000000);
    while (weir_event_take(w->engine, &event) == WEIR_OK) /* 1 */
        w->gone |= event.type == WEIR_EVENT_GONE && event.peer.id == w->store.id;
    while (weir_completion_take(w->engine, &done) == WEIR_OK) {
        w->gone |= done.status != WEIR_OK;
        if (done.status != WEIR_OK && !passes(done.status))
            give_up(w, done.status);
    }
    while (weir_notification_take(w->engine, &got) == WEIR_OK) {
        if (got.tag == KEPT && got.length == sizeof(w->kept))
            memcpy(&w->kept, got.payload, sizeof(w->kept));
    }
}

/* Until the store's memory is open: 3, 4. */
static void meet(struct writer *w) {
    int rc;
    while (w->remote.id != 0 && weir_remote_release(w->engine, w->remote) == WEIR_EBUSY)
        look(w);
    w->remote.id = 0;
    while ((rc = weir_remote_open(w->engine, w->store, "records", PATIENCE_NS, &w->remote)) !=
           WEIR_OK) {
        if (!passes(rc))
            give_up(w, rc);
        fprintf(stderr, "comeback: nobody answers there yet\n");
        weir_engine_wait(w->engine,
                         100000000); /* EPEER: the engine has to hear of that death, too */
    }
    w->gone = 0;
}

/* Until the store has answered for it: 5. */
static void keep(struct writer *w, uint32_t number) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment segment = {.local = w->memory, .length = RECORD};
    segment.local_offset = segment.remote_offset = number % SLOTS * RECORD;
    options.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE;
    options.notify_tag = WRITTEN;
    options.notify_payload = &number;
    options.notify_length = sizeof(number);
    snprintf(w->records + segment.local_offset, RECORD, "record %lu", (unsigned long)number);
    while (w->kept != number) {
        segment.remote = w->remote;
        w->gone |= weir_write(w->engine, w->store, &segment, 1, &options, NULL) != WEIR_OK;
        while (w->kept != number && !w->gone)
            look(w);
        if (w->gone && w->kept != number)
            meet(w);
    }
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    struct writer w = {0};
    int stores = argc == 3 && strcmp(argv[1], "store") == 0;
    if (!stores && !(argc == 4 && strcmp(argv[1], "write") == 0)) {
        fprintf(stderr, "usage: comeback store HOST:PORT | write HOST:PORT COUNT\n");
        return 2;
    }
    if (stores)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &w.engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "comeback: %s\n", why);
        return 1;
    }
    if (stores)
        return store(w.engine);
    rc = weir_peer_open(w.engine, argv[2], &w.store); /* 2: once, for all its lives */
    if (rc == WEIR_OK)
        rc = weir_memory_allocate(w.engine, SLOTS * RECORD, 0, &w.memory, (void **)&w.records);
    if (rc != WEIR_OK)
        return fail(argv[2], rc);
    meet(&w);
    for (uint32_t number = 1; number <= strtoul(argv[3], NULL, 10); number++)
        keep(&w, number);
    printf("%lu records are kept\n", (unsigned long)w.kept);
    weir_engine_close(w.engine);
    return 0;
}
