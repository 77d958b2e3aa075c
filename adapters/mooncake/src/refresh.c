/* SPDX-License-Identifier: Apache-2.0 */
/* refresh.c: lists of peers' buffers: where the peer is, what it publishes, and the imports of
 * that.
 *
 * A list is fetched whole, with a question for each name and one for each import. The time-out is
 * each answer's: a long list of a peer that answers comes in the end. Threads that may block fetch
 * it: the application's own in openSegment, and up to WORKERS_MAX of the adapter's for runs that
 * are parked. A buffer that was in the list before keeps its import, and one that is no more in it
 * is given back, at once or when nothing uses it any more. */
#include "adapter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A wait is made of such slices, so that the engine can be closed meanwhile. */
#define SLICE_NS (100 * NS_PER_MS)
/* A name that was listed and is not there after this time was withdrawn meanwhile. */
#define VANISHED_NS (1000 * NS_PER_MS)
/* A list that changes while it is fetched is fetched anew; in the last round it is taken as it is.
 */
enum { ROUNDS_MAX = 4, VANISHED_MOST = 16 };

/* A list that is being fetched. */
struct list {
    struct buffer *buffers;
    size_t count, room;
    uint64_t nonce;
};

static uint64_t slice(struct mc_engine *engine, uint64_t end_ns) {
    uint64_t now = mc_now_ns();
    if (now >= end_ns || atomic_load(&engine->stopping))
        return 0;
    return end_ns - now < SLICE_NS ? end_ns - now : SLICE_NS;
}

static bool goes_on(struct mc_engine *engine, int rc, uint64_t end_ns) {
    return rc == WEIR_ENOTREADY && mc_now_ns() < end_ns && !atomic_load(&engine->stopping);
}

/* ---- imports that are not needed any more ------------------------------------- */

static bool keep(struct segment *segment, weir_remote remote) {
    if (segment->garbage_count == segment->garbage_room) {
        size_t room = segment->garbage_room > 0 ? 2 * segment->garbage_room : 16;
        weir_remote *garbage = realloc(segment->garbage, room * sizeof(*garbage));
        if (garbage == NULL)
            return false; /* the import is given back when the engine is closed */
        segment->garbage = garbage;
        segment->garbage_room = room;
    }
    segment->garbage[segment->garbage_count++] = remote;
    return true;
}

static void sweep(struct mc_engine *engine, struct segment *segment) {
    size_t kept = 0;
    for (size_t i = 0; i < segment->garbage_count; i++) {
        if (weir_remote_release(engine->weir, segment->garbage[i]) == WEIR_EBUSY)
            segment->garbage[kept++] = segment->garbage[i];
    }
    segment->garbage_count = kept;
}

/* ---- where the peer is ---------------------------------------------------------- */

static bool is_connected(struct mc_engine *engine, struct segment *segment) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    return weir_peer_query(engine->weir, segment->peer, &info) == WEIR_OK && info.connected != 0;
}

/* Of the metadata server. One that is away, or has no entry any more, changes nothing for a peer
 * that is known. */
static int locate(struct mc_engine *engine, struct segment *segment, char *address, size_t size) {
    char why[STORE_WHY];
    if (engine->store == NULL) {
        bool has_port =
            strrchr(segment->name, ':') != NULL && strchr(strrchr(segment->name, ':'), ']') == NULL;
        int length = snprintf(address, size, has_port ? "%s" : "%s:12001", segment->name);
        if (length > 0 && (size_t)length < size)
            return WEIR_OK;
        mc_log("segment %s: the name is too long", segment->name);
        return WEIR_EADDRESS;
    }
    json_t *document = NULL;
    enum store_result result = STORE_OK;
    if (!segment->is_peer_open)
        result = store_get_segment(engine->store, segment->name, &document, why);
    bool is_ours = document == NULL || segment_document_is_ours(document);
    json_decref(document);
    if (!is_ours) {
        mc_log("segment %s is another Mooncake's: no data move between it and weir", segment->name);
        return WEIR_ENOTSUP;
    }
    if (result == STORE_OK)
        result = store_get_location(engine->store, segment->name, address, size, why);
    if (result != STORE_OK && segment->is_peer_open) {
        snprintf(address, size, "%s", segment->address);
        return WEIR_OK;
    }
    if (result != STORE_OK)
        mc_log("segment %s: %s", segment->name, why);
    return result == STORE_OK ? WEIR_OK : WEIR_EADDRESS;
}

static int find_peer(struct mc_engine *engine, struct segment *segment, bool asks) {
    char address[WEIR_ADDRESS_MAX];
    weir_peer peer, before = segment->peer;
    if (segment->id == LOCAL_SEGMENT ||
        (!asks && !segment->is_doubted && segment->is_peer_open && is_connected(engine, segment)))
        return WEIR_OK;
    int rc = locate(engine, segment, address, sizeof(address));
    if (rc != WEIR_OK || (segment->is_peer_open && strcmp(address, segment->address) == 0))
        return rc;
    rc = weir_peer_open(engine->weir, address, &peer);
    if (rc != WEIR_OK) {
        mc_log("segment %s at %s: %s", segment->name, address, weir_strerror(rc));
        return rc;
    }
    pthread_rwlock_wrlock(&segment->lock);
    segment->peer = peer;
    pthread_rwlock_unlock(&segment->lock);
    if (segment->is_peer_open)
        weir_peer_close(engine->weir, before); /* its segment is elsewhere now */
    segment->is_peer_open = true;
    snprintf(segment->address, sizeof(segment->address), "%s", address);
    return WEIR_OK;
}

/* That an adapter answers there, and with a metadata server the one of this name: a port may have
 * gone to another process. */
static int greet(struct mc_engine *engine, struct segment *segment, uint64_t end_ns) {
    char value[WEIR_VALUE_MAX + 1], expected[NAME_BYTES + 2];
    size_t length;
    int rc;
    if (segment->id == LOCAL_SEGMENT)
        return WEIR_OK;
    do {
        length = WEIR_VALUE_MAX;
        rc = weir_peer_value(engine->weir, segment->peer, VALUE_NAME, slice(engine, end_ns), value,
                             &length);
    } while (goes_on(engine, rc, end_ns));
    if (rc != WEIR_OK)
        return rc;
    value[length] = '\0';
    snprintf(expected, sizeof(expected), "1 %s", segment->name);
    if (strncmp(value, "1 ", 2) == 0 &&
        (engine->store == NULL || strncmp(value, expected, WEIR_VALUE_MAX - 1) == 0))
        return WEIR_OK;
    mc_log("segment %s: at %s is \"%s\"", segment->name, segment->address, value);
    return WEIR_EREFUSED;
}

/* ---- the list -------------------------------------------------------------------- */

static bool append(struct list *list, struct buffer buffer) {
    if (list->count == list->room) {
        size_t room = list->room > 0 ? 2 * list->room : 64;
        struct buffer *buffers = realloc(list->buffers, room * sizeof(*buffers));
        if (buffers == NULL)
            return false;
        list->buffers = buffers;
        list->room = room;
    }
    list->buffers[list->count++] = buffer;
    return true;
}

/* All names of the peer that are buffers. EAGAIN: the peer was restarted meanwhile. */
static int fetch_names(struct mc_engine *engine, struct segment *segment, uint64_t end_ns,
                       struct list *list) {
    uint64_t position = 0;
    for (;;) {
        weir_name_info info = WEIR_NAME_INFO_INIT;
        uint64_t nonce, sequence, base;
        char rest;
        int rc;
        do
            rc = weir_peer_name(engine->weir, segment->peer, &position, slice(engine, end_ns),
                                &info);
        while (goes_on(engine, rc, end_ns));
        if (rc != WEIR_OK)
            return rc == WEIR_EINVAL ? WEIR_OK : rc;
        end_ns = mc_now_ns() + engine->timeout_ns;
        if (info.kind != WEIR_NAME_OF_MEMORY ||
            sscanf(info.name, "mooncake/%" SCNx64 "/%" SCNx64 "/%" SCNx64 "%c", &nonce, &sequence,
                   &base, &rest) != 3)
            continue;
        if (list->nonce != 0 && list->nonce != nonce)
            return WEIR_EAGAIN;
        list->nonce = nonce;
        if (!append(list, (struct buffer){base, info.length, sequence, {0}}))
            return WEIR_ENOMEM;
    }
}

static int by_base(const void *a, const void *b) {
    const struct buffer *x = a, *y = b;
    if (x->base != y->base)
        return x->base < y->base ? -1 : 1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* Sorted; of two that overlap, since one came while the other went, the later. */
static void order(struct list *list) {
    size_t kept = 0;
    if (list->count > 1)
        qsort(list->buffers, list->count, sizeof(*list->buffers), by_base);
    for (size_t i = 0; i < list->count; i++) {
        struct buffer buffer = list->buffers[i];
        bool older = false;
        while (kept > 0 &&
               buffer.base - list->buffers[kept - 1].base < list->buffers[kept - 1].length &&
               !older) {
            if (list->buffers[kept - 1].sequence > buffer.sequence)
                older = true;
            else
                kept--;
        }
        if (!older)
            list->buffers[kept++] = buffer;
    }
    list->count = kept;
}

/* The buffer of the same registration in a sorted list; NULL: none. */
static struct buffer *same(struct buffer *buffers, size_t count, const struct buffer *wanted) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (buffers[middle].base < wanted->base)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && buffers[low].base == wanted->base &&
                   buffers[low].sequence == wanted->sequence
               ? &buffers[low]
               : NULL;
}

/* Imports one. ENOTREADY: it is not there any more. */
static int import(struct mc_engine *engine, struct segment *segment, uint64_t nonce,
                  struct buffer *buffer) {
    char name[WEIR_NAME_MAX];
    uint64_t patience = engine->timeout_ns < VANISHED_NS ? engine->timeout_ns : VANISHED_NS;
    uint64_t end = mc_now_ns() + patience;
    int rc;
    snprintf(name, sizeof(name), "mooncake/%" PRIx64 "/%" PRIx64 "/%" PRIx64, nonce,
             buffer->sequence, buffer->base);
    do
        rc = weir_remote_open(engine->weir, segment->peer, name, slice(engine, end),
                              &buffer->remote);
    while (goes_on(engine, rc, end));
    return rc;
}

/* Imports what the old list has not. A buffer that vanished leaves the list, and with the
 * vanished_most-th all that are still to be imported do: *changed_out is set. */
static int import_all(struct mc_engine *engine, struct segment *segment, struct list *list,
                      size_t vanished_most, bool *changed_out) {
    size_t kept = 0, vanished = 0;
    int error = WEIR_OK;
    for (size_t i = 0; i < list->count; i++) {
        struct buffer buffer = list->buffers[i];
        const struct buffer *old =
            segment->nonce == list->nonce ? same(segment->buffers, segment->count, &buffer) : NULL;
        int rc = vanished >= vanished_most ? WEIR_ENOTREADY : error;
        if (old != NULL)
            buffer.remote = old->remote;
        else if (rc == WEIR_OK)
            rc = import(engine, segment, list->nonce, &buffer);
        if (rc == WEIR_OK || old != NULL)
            list->buffers[kept++] = buffer;
        else if (rc == WEIR_ENOTREADY)
            vanished++;
        else
            error = rc;
    }
    list->count = kept;
    *changed_out = vanished > 0;
    return error;
}

/* The list is the segment's from now on; what only the old one had is given back. */
static void install(struct mc_engine *engine, struct segment *segment, struct list *list) {
    struct buffer *before = segment->buffers;
    size_t count = segment->count;
    bool same_life = segment->nonce == list->nonce;
    uint64_t first = 0, sequence = UINT64_MAX;
    for (size_t i = 0; i < list->count; i++) {
        if (list->buffers[i].sequence < sequence) {
            sequence = list->buffers[i].sequence;
            first = list->buffers[i].base;
        }
    }
    pthread_rwlock_wrlock(&segment->lock);
    segment->buffers = list->buffers;
    segment->count = list->count;
    segment->nonce = list->nonce;
    segment->first = first;
    pthread_rwlock_unlock(&segment->lock);
    for (size_t i = 0; i < count; i++) {
        if (!same_life || same(list->buffers, list->count, &before[i]) == NULL)
            keep(segment, before[i].remote);
    }
    free(before);
    *list = (struct list){0};
    sweep(engine, segment);
}

static int fetch(struct mc_engine *engine, struct segment *segment, uint64_t end_ns) {
    bool changed = true;
    int rc = WEIR_OK;
    for (int round = 0; round < ROUNDS_MAX && changed && rc == WEIR_OK; round++) {
        struct list list = {0};
        rc = fetch_names(engine, segment, end_ns, &list);
        if (rc == WEIR_OK) {
            order(&list);
            rc = import_all(engine, segment, &list, round + 1 < ROUNDS_MAX ? 1 : VANISHED_MOST,
                            &changed);
            install(engine, segment, &list); /* with an error, what there is of it */
        } else if (rc == WEIR_EAGAIN && round + 1 < ROUNDS_MAX) {
            rc = WEIR_OK; /* anew */
        }
        free(list.buffers);
    }
    return rc;
}

static void explain(struct mc_engine *engine, struct segment *segment, int rc) {
    char text[WEIR_REFUSAL_TEXT_MAX] = "";
    if (atomic_load(&engine->stopping))
        return;
    if (segment->is_peer_open)
        weir_refusal_text(engine->weir, segment->peer, text, sizeof(text));
    mc_log("segment %s at %s: %s%s%s", segment->name, segment->address,
           rc == WEIR_ENOTREADY ? "it has not answered in time, or is no engine of this adapter's"
                                : weir_strerror(rc),
           text[0] != '\0' ? ": " : "", text);
}

/* Of a peer that was removed, or is not there: its imports are given back, and its place. Work
 * that is still under way keeps both until the next time. */
static void give_up(struct mc_engine *engine, struct segment *segment) {
    struct list none = {0};
    install(engine, segment, &none);
    if (segment->id != LOCAL_SEGMENT && segment->is_peer_open && segment->garbage_count == 0) {
        segment->is_peer_open = false;
        weir_peer_close(engine->weir, segment->peer);
    }
}

int refresh_segment(struct mc_engine *engine, struct segment *segment, uint64_t deadline_ns,
                    bool asks) {
    pthread_mutex_lock(&segment->refreshing);
    int rc = find_peer(engine, segment, asks);
    bool is_found = rc == WEIR_OK; /* else it was said why not */
    if (rc == WEIR_OK)
        rc = greet(engine, segment, deadline_ns);
    if (rc == WEIR_OK)
        rc = fetch(engine, segment, deadline_ns);
    if (rc == WEIR_ENOTREADY && !is_connected(engine, segment))
        rc = WEIR_ECONNECT; /* its dials end a little later, perhaps */
    segment->is_doubted = rc != WEIR_OK;
    if (rc != WEIR_OK && is_found)
        explain(engine, segment, rc);
    if (weir_error_class(rc) == WEIR_CLASS_ENDPOINT)
        give_up(engine, segment);
    pthread_mutex_unlock(&segment->refreshing);
    return rc;
}

void refresh_forget(struct mc_engine *engine, struct segment *segment) {
    pthread_mutex_lock(&segment->refreshing);
    give_up(engine, segment);
    pthread_mutex_unlock(&segment->refreshing);
}

/* ---- workers ------------------------------------------------------------------------ */

/* A segment that was removed gives its imports back. Runs that keep some are still to end: each of
 * them brings the segment here again, for it is left before they are asked about. */
static void empty(struct mc_engine *engine, struct segment *segment) {
    pthread_mutex_lock(&segment->refreshing);
    atomic_store(&segment->is_left, true);
    weir_peer_flush(engine->weir, segment->peer, SLICE_NS);
    give_up(engine, segment);
    if (!segment->is_peer_open)
        atomic_store(&segment->is_left, false);
    pthread_mutex_unlock(&segment->refreshing);
}

static struct parked *take_parked(struct segment *segment) {
    pthread_mutex_lock(&segment->parked_lock);
    struct parked *parked = segment->parked;
    segment->parked = NULL;
    pthread_mutex_unlock(&segment->parked_lock);
    return parked;
}

static void serve(struct mc_engine *engine, struct segment *segment) {
    struct parked *parked = take_parked(segment);
    bool is_open = segment_at(engine, segment->id) == segment;
    int rc = WEIR_ECLOSED;
    if (is_open)
        rc = refresh_segment(engine, segment, mc_now_ns() + engine->timeout_ns, false);
    else
        empty(engine, segment);
    while (parked != NULL) {
        struct parked *next = parked->next;
        submit_parked(engine, parked, rc);
        free(parked);
        parked = next;
    }
    settle_completions(engine);
}

static void *worker_main(void *self) {
    struct mc_engine *engine = self;
    pthread_mutex_lock(&engine->work_lock);
    for (;;) {
        while (engine->work == NULL && !engine->work_over) {
            engine->workers_idle++;
            pthread_cond_wait(&engine->work_there, &engine->work_lock);
            engine->workers_idle--;
        }
        if (engine->work_over)
            break;
        struct segment *segment = engine->work;
        engine->work = segment->next_work;
        engine->work_count--;
        if (engine->work == NULL)
            engine->work_end = &engine->work;
        segment->is_queued = false;
        pthread_mutex_unlock(&engine->work_lock);
        serve(engine, segment);
        pthread_mutex_lock(&engine->work_lock);
    }
    pthread_mutex_unlock(&engine->work_lock);
    return NULL;
}

/* Under work_lock: one more; where none can be made, those that there are do it. */
static void make_worker(struct mc_engine *engine) {
    if (thread_start(&engine->workers[engine->worker_count], worker_main, engine))
        engine->worker_count++;
}

bool refresh_start(struct mc_engine *engine) {
    pthread_mutex_lock(&engine->work_lock);
    make_worker(engine);
    bool made = engine->worker_count > 0;
    pthread_mutex_unlock(&engine->work_lock);
    return made;
}

void refresh_later(struct mc_engine *engine, struct segment *segment) {
    pthread_mutex_lock(&engine->work_lock);
    if (!segment->is_queued && !engine->work_over) {
        segment->is_queued = true;
        segment->next_work = NULL;
        *engine->work_end = segment;
        engine->work_end = &segment->next_work;
        engine->work_count++;
        if (engine->work_count > engine->workers_idle && engine->worker_count < WORKERS_MAX)
            make_worker(engine);
        pthread_cond_signal(&engine->work_there);
    }
    pthread_mutex_unlock(&engine->work_lock);
}

static bool is_there(struct mc_engine *engine, struct segment *segment) {
    pthread_mutex_lock(&segment->refreshing);
    bool there = is_connected(engine, segment);
    pthread_mutex_unlock(&segment->refreshing);
    return there;
}

void refresh_all(struct mc_engine *engine) {
    pthread_rwlock_rdlock(&engine->segments_lock);
    size_t count = engine->segment_count;
    pthread_rwlock_unlock(&engine->segments_lock);
    uint64_t end = mc_now_ns() + engine->timeout_ns;
    /* Peers that are there first: one that is not may take all of the time. */
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 1; i < count; i++) {
            struct segment *segment = segment_at(engine, (int64_t)i);
            if (segment != NULL && is_there(engine, segment) == (turn == 0))
                refresh_segment(engine, segment, end, true);
        }
    }
}

void refresh_stop(struct mc_engine *engine) {
    pthread_mutex_lock(&engine->work_lock);
    engine->work_over = true;
    pthread_cond_broadcast(&engine->work_there);
    pthread_mutex_unlock(&engine->work_lock);
    for (uint32_t i = 0; i < engine->worker_count; i++)
        pthread_join(engine->workers[i], NULL);
}
