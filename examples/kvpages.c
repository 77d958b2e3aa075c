/* SPDX-License-Identifier: Apache-2.0 */
/* kvpages.c: KV pages from prefill to decode. A decode worker picks pages of its KV cache for each
 * request; a prefill worker computes the request's layers, and writes each into those pages as
 * soon as it is there. A prefill worker may be killed at any time: its requests go to another one.
 *
 *     kvpages prefill 127.0.0.1:7501
 *     kvpages prefill 127.0.0.1:7502 20           killed after so many layers, to see what happens
 *     kvpages decode 500 127.0.0.1:7501 127.0.0.1:7502
 *
 * (With "-d ofi" before that, over TCP.) The recipe, for the decode side:
 *
 *   1. The pages of all layers are one memory. It is registered once for each prefill worker,
 *      and published under a name of that registration: so one worker's right to write can be
 *      taken back, and no other's.
 *   2. A request is a message: the name, the pages that were picked, and the number of this try.
 *      Several requests are under way at each worker.
 *   3. A notification comes behind each layer. Its tag says of which try it is, and of which
 *      layer; it comes when all bytes of the layer are there, and no call was made here for
 *      them. Layers have no order: a request is complete when each of them has been told once.
 *   4. GONE: the worker is dead, or out of reach. The registration is released: when that is 0,
 *      nothing of the worker's arrives any more, and the pages may be used for other requests.
 *      The requests that were under way there have failed, and are tried again elsewhere; news
 *      of the old try is nobody's, and is dropped.
 *
 * And for the prefill side:
 *
 *   5. It asks the sender of the request for the memory of that name, and writes the pages of a
 *      layer as one transfer: a segment for each page, a notification behind all of them. Page
 *      numbers come from another process: one that is outside of the memory is WEIR_EBOUNDS, and
 *      nothing is written.
 *   6. The next layer is computed while the one before is on its way. Its own pages are kept
 *      until the last transfer from them has ended. */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { LAYERS = 8, PAGE = 8 << 10, PAGES = 256 };    /* of the cache: pages of each layer */
enum { REQUEST_PAGES = 16, PREFILLS = 8, JOBS = 4 }; /* at most; jobs at each worker at a time */
enum { REQUESTS = 1 };                               /* the number of the workers' inbox */
enum { LAYER_BITS = 8, WORDS = PAGE / sizeof(uint64_t) };
#define PATIENCE_NS UINT64_C(20000000000)

/* The message. Up to WEIR_MESSAGE_COPY_MAX bytes are copied in the call; a longer list of pages
 * would be sent from registered memory. */
struct request {
    uint64_t attempt; /* of this process's: no two tries have the same */
    uint32_t number;  /* stands for the prompt: what there is to compute */
    uint32_t prefill; /* the name of the memory is "kv/" and this */
    uint32_t count;
    uint32_t pages[REQUEST_PAGES];
};

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "kvpages: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

static uint64_t place(uint32_t layer, uint32_t page) {
    return ((uint64_t)layer * PAGES + page) * PAGE;
}

/* In the place of a model: the word that stands there when layer, request and page are right. */
static uint64_t word_of(uint32_t number, uint32_t layer, uint32_t index, uint32_t word) {
    return ((uint64_t)number << 40 ^ (uint64_t)layer << 32 ^ (uint64_t)index << 16 ^ word) *
           UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- prefill -------------------------------------------------------------- */

struct job {
    struct request request;
    weir_peer decode;
    weir_remote cache; /* id 0: the place is free */
    uint32_t layer;    /* the next one to compute */
    uint32_t under_way;
    bool failed;
};

struct prefill {
    weir_engine *engine;
    weir_inbox inbox;
    weir_memory memory; /* for each job the pages of all its layers */
    unsigned char *pages;
    struct job jobs[JOBS];
    uint64_t layers, die_after;
};

static uint64_t own_place(size_t job, uint32_t layer, uint32_t index) {
    return ((job * LAYERS + layer) * REQUEST_PAGES + index) * PAGE;
}

/* 5: the next layer of this job */
static void do_layer(struct prefill *p, size_t j) {
    struct job *job = &p->jobs[j];
    weir_segment segments[REQUEST_PAGES];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    uint32_t layer = job->layer++;
    for (uint32_t i = 0; i < job->request.count; i++) {
        uint64_t *words = (uint64_t *)(void *)(p->pages + own_place(j, layer, i));
        for (uint32_t w = 0; w < WORDS; w++)
            words[w] = word_of(job->request.number, layer, i, w);
        segments[i] = (weir_segment){.local = p->memory,
                                     .remote = job->cache,
                                     .local_offset = own_place(j, layer, i),
                                     .remote_offset = place(layer, job->request.pages[i]),
                                     .length = PAGE};
    }
    options.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE;
    options.notify_tag = job->request.attempt << LAYER_BITS | layer;
    options.user_data = j;
    int rc = weir_write(p->engine, job->decode, segments, job->request.count, &options, NULL);
    if (rc == WEIR_OK)
        job->under_way++;
    else
        job->failed = true;
    if (++p->layers == p->die_after)
        raise(SIGKILL);
}

static void start_job(struct prefill *p, struct job *job) {
    weir_message message;
    char name[WEIR_NAME_MAX];
    if (weir_message_take(p->engine, p->inbox, &message) != WEIR_OK)
        return;
    *job = (struct job){.decode = message.from};
    if (message.length == sizeof(job->request)) {
        memcpy(&job->request, message.data, sizeof(job->request));
        snprintf(name, sizeof(name), "kv/%" PRIu32, job->request.prefill);
        int rc = job->request.count > REQUEST_PAGES
                     ? WEIR_EBOUNDS
                     : weir_remote_open(p->engine, job->decode, name, PATIENCE_NS, &job->cache);
        if (rc != WEIR_OK)
            fprintf(stderr, "kvpages: a request: %s\n", weir_strerror(rc));
    }
    must("give back", weir_message_give_back(p->engine, &message));
}

/* 6: whether there was anything to do */
static bool do_jobs(struct prefill *p) {
    weir_completion done;
    bool busy = false;
    while (weir_completion_take(p->engine, &done) == WEIR_OK) {
        p->jobs[done.user_data].under_way--;
        p->jobs[done.user_data].failed |= done.status != WEIR_OK; /* its decode side is gone, say */
    }
    for (size_t j = 0; j < JOBS; j++) {
        struct job *job = &p->jobs[j];
        if (job->cache.id == 0)
            start_job(p, job);
        if (job->cache.id == 0)
            continue;
        if (job->layer < LAYERS && !job->failed) {
            do_layer(p, j);
            busy = true;
        } else if (job->under_way == 0) {
            must("release", weir_remote_release(p->engine, job->cache));
            job->cache.id = 0;
            busy = true;
        }
    }
    return busy;
}

static void prefill(weir_engine *engine, uint64_t die_after) {
    struct prefill p = {.engine = engine, .die_after = die_after};
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_event event;
    options.number = REQUESTS;
    options.message_bytes_max = sizeof(struct request);
    must("inbox", weir_inbox_open(engine, &options, &p.inbox));
    must("memory",
         weir_memory_allocate(engine, own_place(JOBS, 0, 0), 0, &p.memory, (void **)&p.pages));
    for (;;) {
        while (weir_event_take(engine, &event) == WEIR_OK)
            continue; /* a decode side that is gone fails its transfers */
        if (!do_jobs(&p))
            weir_engine_wait(engine, UINT64_MAX);
    }
}

/* ---- decode --------------------------------------------------------------- */

struct wanted {
    uint64_t attempt; /* 0: not under way */
    uint32_t prefill;
    uint32_t count;
    uint32_t layers; /* that have come: each is told once */
    bool right;      /* all of them have, and were right */
    uint32_t pages[REQUEST_PAGES];
};

struct worker {
    weir_peer peer;
    weir_memory grant; /* the pages, registered for this worker */
    uint32_t under_way;
    bool gone;
};

struct decode {
    weir_engine *engine;
    unsigned char *pages;
    uint32_t free_pages[PAGES], free_count;
    struct worker workers[PREFILLS];
    uint32_t worker_count;
    struct wanted *wanted;
    uint32_t wanted_count, done, failures;
    uint64_t attempts;
};

static void give_pages_back(struct decode *d, struct wanted *wanted) {
    while (wanted->count > 0)
        d->free_pages[d->free_count++] = wanted->pages[--wanted->count];
    d->workers[wanted->prefill].under_way--;
    wanted->attempt = 0;
}

/* 2 */
static void ask(struct decode *d, struct wanted *wanted, uint32_t number, uint32_t prefill) {
    struct request request = {.attempt = ++d->attempts, .number = number, .prefill = prefill};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {.base = &request, .length = sizeof(request)};
    *wanted = (struct wanted){.attempt = request.attempt, .prefill = prefill};
    while (wanted->count < 1 + number % REQUEST_PAGES)
        wanted->pages[wanted->count++] = d->free_pages[--d->free_count];
    request.count = wanted->count;
    memcpy(request.pages, wanted->pages, sizeof(request.pages));
    d->workers[prefill].under_way++;
    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = prefill;
    must("ask", weir_message_send(d->engine, d->workers[prefill].peer, REQUESTS, &part, 1, &options,
                                  NULL));
}

static void ask_more(struct decode *d) {
    uint32_t next = 0, room = 0;
    for (uint32_t p = 0; p < d->worker_count; p++) {
        struct worker *worker = &d->workers[p];
        room += !worker->gone;
        while (!worker->gone && worker->under_way < JOBS && d->free_count >= REQUEST_PAGES) {
            while (next < d->wanted_count &&
                   (d->wanted[next].right || d->wanted[next].attempt != 0))
                next++;
            if (next == d->wanted_count)
                return;
            ask(d, &d->wanted[next], next, p);
        }
    }
    if (room == 0) {
        fprintf(stderr, "kvpages: no prefill worker is left\n");
        exit(1);
    }
}

/* 3: a layer is there: each byte of it is compared. */
static void on_layer(struct decode *d, uint64_t attempt, uint32_t layer) {
    uint32_t n = 0;
    while (n < d->wanted_count && d->wanted[n].attempt != attempt)
        n++;
    if (n == d->wanted_count || layer >= LAYERS)
        return; /* of a try that has failed */
    struct wanted *wanted = &d->wanted[n];
    for (uint32_t i = 0; i < wanted->count; i++) {
        const uint64_t *words =
            (const uint64_t *)(const void *)(d->pages + place(layer, wanted->pages[i]));
        for (uint32_t w = 0; w < WORDS; w++) {
            if (words[w] == word_of(n, layer, i, w))
                continue;
            fprintf(stderr, "kvpages: request %" PRIu32 ": layer %" PRIu32 " is wrong\n", n, layer);
            exit(1);
        }
    }
    if (++wanted->layers < LAYERS)
        return;
    wanted->right = true; /* here decoding would begin; the pages are kept until its end */
    d->done++;
    give_pages_back(d, wanted);
}

/* 1 */
static void grant(struct decode *d, uint32_t prefill) {
    char name[WEIR_NAME_MAX];
    snprintf(name, sizeof(name), "kv/%" PRIu32, prefill);
    must("register", weir_memory_register(d->engine, d->pages, place(LAYERS, 0),
                                          WEIR_ACCESS_REMOTE_WRITE, &d->workers[prefill].grant));
    must("publish", weir_memory_publish(d->engine, d->workers[prefill].grant, name));
}

/* 4 */
static void on_gone(struct decode *d, uint32_t prefill, int error) {
    struct worker *worker = &d->workers[prefill];
    int rc;
    if (worker->gone)
        return;
    worker->gone = true;
    while ((rc = weir_memory_release(d->engine, worker->grant)) == WEIR_EINPROGRESS)
        weir_engine_wait(d->engine, 10000000);
    must("release", rc);
    for (uint32_t n = 0; n < d->wanted_count; n++) {
        struct wanted *wanted = &d->wanted[n];
        if (wanted->attempt == 0 || wanted->prefill != prefill)
            continue;
        printf("request %" PRIu32 " failed, with %" PRIu32 " of %d layers: %s\n", n, wanted->layers,
               LAYERS, weir_strerror(error));
        d->failures++;
        give_pages_back(d, wanted);
    }
}

static void look(struct decode *d) {
    weir_notification got;
    weir_completion done;
    weir_event event;
    weir_engine_wait(d->engine, UINT64_MAX);
    while (weir_notification_take(d->engine, &got) == WEIR_OK)
        on_layer(d, got.tag >> LAYER_BITS, (uint32_t)got.tag & ((1u << LAYER_BITS) - 1));
    while (weir_completion_take(d->engine, &done) == WEIR_OK) {
        if (done.status != WEIR_OK) /* the request was not delivered */
            on_gone(d, (uint32_t)done.user_data, done.status);
    }
    while (weir_event_take(d->engine, &event) == WEIR_OK) {
        for (uint32_t p = 0; p < d->worker_count && event.type == WEIR_EVENT_GONE; p++) {
            if (event.peer.id == d->workers[p].peer.id)
                on_gone(d, p, event.error);
        }
    }
}

static void decode(weir_engine *engine, uint32_t count, char **addresses, uint32_t address_count) {
    struct decode d = {.engine = engine, .wanted_count = count, .worker_count = address_count};
    d.pages = aligned_alloc(4096, place(LAYERS, 0)); /* a GPU's memory would be a dma-buf */
    d.wanted = calloc(count + 1, sizeof(*d.wanted));
    must("memory", d.pages != NULL && d.wanted != NULL ? WEIR_OK : WEIR_ENOMEM);
    while (d.free_count < PAGES) {
        d.free_pages[d.free_count] = d.free_count;
        d.free_count++;
    }
    for (uint32_t p = 0; p < address_count; p++) {
        must(addresses[p], weir_peer_open(engine, addresses[p], &d.workers[p].peer));
        grant(&d, p);
    }
    while (d.done < count) {
        ask_more(&d);
        look(&d);
    }
    printf("%" PRIu32 " requests are there and right; %" PRIu32 " tries failed\n", d.done,
           d.failures);
    weir_engine_close(engine);
    free(d.wanted);
    free(d.pages);
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    if (argc > 2 && strcmp(argv[1], "-d") == 0) {
        options.device = argv[2];
        argc -= 2;
        argv += 2;
    }
    bool prefills = (argc == 3 || argc == 4) && strcmp(argv[1], "prefill") == 0;
    if (!prefills && (argc < 4 || argc > 3 + PREFILLS || strcmp(argv[1], "decode") != 0)) {
        fprintf(stderr, "usage: kvpages [-d DEVICE] prefill HOST:PORT [LAYERS] |\n"
                        "               decode REQUESTS HOST:PORT...\n");
        return 2;
    }
    if (prefills)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "kvpages: %s\n", why);
        return 1;
    }
    if (prefills)
        prefill(engine, argc == 4 ? strtoull(argv[3], NULL, 10) : 0);
    else
        decode(engine, (uint32_t)strtoul(argv[2], NULL, 10), argv + 3, (uint32_t)argc - 3);
    return 0;
}
