/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c: the table of segments, by id and by name. A segment's memory stays until the engine
 * is closed, so that an id, and a run under way, can name it at any time. */
#include "adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct segment *make(const char *name) {
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL || (segment->name = strdup(name)) == NULL) {
        free(segment);
        return NULL;
    }
    pthread_mutex_init(&segment->refreshing, NULL);
    pthread_mutex_init(&segment->parked_lock, NULL);
    pthread_rwlock_init(&segment->lock, NULL);
    return segment;
}

static void destroy(struct segment *segment) {
    while (segment->parked != NULL) {
        struct parked *next = segment->parked->next;
        free(segment->parked);
        segment->parked = next;
    }
    pthread_mutex_destroy(&segment->refreshing);
    pthread_mutex_destroy(&segment->parked_lock);
    pthread_rwlock_destroy(&segment->lock);
    free(segment->garbage);
    free(segment->buffers);
    free(segment->name);
    free(segment);
}

/* Under segments_lock. */
static bool add(struct mc_engine *engine, struct segment *segment) {
    if (engine->segment_count >= SEGMENTS_MAX)
        return false;
    size_t count = engine->segment_count;
    if ((count & (count - 1)) == 0) { /* a power of two: the array is full */
        size_t room = count > 0 ? 2 * count : 1;
        struct segment **segments = realloc(engine->segments, room * sizeof(struct segment *));
        if (segments == NULL)
            return false;
        engine->segments = segments;
    }
    segment->id = (int32_t)count;
    engine->segments[engine->segment_count++] = segment;
    return true;
}

bool segments_init(struct mc_engine *engine) {
    struct segment *self = make(engine->name);
    if (self == NULL || !add(engine, self)) {
        if (self != NULL)
            destroy(self);
        return false;
    }
    self->state = SEGMENT_OPEN;
    atomic_store(&self->is_peer_open, weir_peer_self(engine->weir, &self->peer) == WEIR_OK);
    return atomic_load(&self->is_peer_open);
}

void segments_free(struct mc_engine *engine) {
    for (size_t i = 0; i < engine->segment_count; i++)
        destroy(engine->segments[i]);
    free(engine->segments);
}

struct segment *segment_at(struct mc_engine *engine, int64_t id) {
    struct segment *segment = NULL;
    pthread_rwlock_rdlock(&engine->segments_lock);
    if (id >= 0 && (uint64_t)id < engine->segment_count &&
        engine->segments[id]->state == SEGMENT_OPEN)
        segment = engine->segments[id];
    pthread_rwlock_unlock(&engine->segments_lock);
    return segment;
}

static uint64_t first_here(struct mc_engine *engine) {
    uint64_t first = 0, sequence = UINT64_MAX;
    pthread_rwlock_rdlock(&engine->local_lock);
    for (size_t i = 0; i < engine->range_count; i++) {
        const struct range *range = &engine->ranges[i];
        if (range->remote && range->state == RANGE_LIVE && range->sequence < sequence) {
            sequence = range->sequence;
            first = range->base;
        }
    }
    pthread_rwlock_unlock(&engine->local_lock);
    return first;
}

uint64_t segment_first(struct mc_engine *engine, int64_t id) {
    struct segment *segment = segment_at(engine, id);
    if (segment == NULL)
        return 0;
    if (id == LOCAL_SEGMENT)
        return first_here(engine);
    pthread_rwlock_rdlock(&segment->lock);
    uint64_t first = segment->first;
    pthread_rwlock_unlock(&segment->lock);
    return first;
}

const struct buffer *segment_buffer(const struct segment *segment, uint64_t address) {
    size_t low = 0, high = segment->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (segment->buffers[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct buffer *buffer = low > 0 ? &segment->buffers[low - 1] : NULL;
    return buffer != NULL && address - buffer->base < buffer->length ? buffer : NULL;
}

/* Under segments_lock: the one of this name, but for those that were removed. */
static struct segment *find(struct mc_engine *engine, const char *name) {
    for (size_t i = 1; i < engine->segment_count; i++) {
        struct segment *segment = engine->segments[i];
        if (segment->state != SEGMENT_REMOVED && strcmp(segment->name, name) == 0)
            return segment;
    }
    return NULL;
}

static void set_state(struct mc_engine *engine, struct segment *segment, enum segment_state state) {
    pthread_rwlock_wrlock(&engine->segments_lock);
    segment->state = state;
    pthread_rwlock_unlock(&engine->segments_lock);
    pthread_mutex_lock(&engine->opened_lock);
    pthread_cond_broadcast(&engine->opened);
    pthread_mutex_unlock(&engine->opened_lock);
}

/* Under segments_lock: one of which nobody knows any more, with this name; NULL: there is none, or
 * no memory. So names of which none opens take no room. */
static struct segment *rename_failed(struct mc_engine *engine, const char *name) {
    for (size_t i = 1; i < engine->segment_count; i++) {
        struct segment *segment = engine->segments[i];
        if (segment->state != SEGMENT_FAILED || segment->waiters > 0)
            continue;
        char *copy = strdup(name);
        if (copy == NULL)
            return NULL;
        free(segment->name);
        segment->name = copy;
        return segment;
    }
    return NULL;
}

/* Found, and the caller waits for it, or made and to be opened by the caller. */
static struct segment *find_or_make(struct mc_engine *engine, const char *name, bool *made_out) {
    pthread_rwlock_wrlock(&engine->segments_lock);
    struct segment *segment = find(engine, name);
    if (segment == NULL)
        segment = rename_failed(engine, name);
    *made_out = segment == NULL || segment->state == SEGMENT_FAILED;
    if (segment == NULL && (segment = make(name)) != NULL && !add(engine, segment)) {
        destroy(segment);
        segment = NULL;
    }
    if (segment != NULL && *made_out)
        segment->state = SEGMENT_OPENING;
    else if (segment != NULL)
        segment->waiters++;
    pthread_rwlock_unlock(&engine->segments_lock);
    return segment;
}

/* The id of one that is open; negative: none is. */
static int32_t find_open(struct mc_engine *engine, const char *name) {
    pthread_rwlock_rdlock(&engine->segments_lock);
    const struct segment *segment = find(engine, name);
    int32_t id = segment != NULL && segment->state == SEGMENT_OPEN ? segment->id : -1;
    pthread_rwlock_unlock(&engine->segments_lock);
    return id;
}

static enum segment_state state_of(struct mc_engine *engine, const struct segment *segment) {
    pthread_rwlock_rdlock(&engine->segments_lock);
    enum segment_state state = segment->state;
    pthread_rwlock_unlock(&engine->segments_lock);
    return state;
}

/* Another thread opens it, or has. */
static enum segment_state wait_opened(struct mc_engine *engine, struct segment *segment) {
    pthread_mutex_lock(&engine->opened_lock);
    enum segment_state state;
    while ((state = state_of(engine, segment)) == SEGMENT_OPENING)
        pthread_cond_wait(&engine->opened, &engine->opened_lock);
    pthread_mutex_unlock(&engine->opened_lock);
    pthread_rwlock_wrlock(&engine->segments_lock);
    segment->waiters--;
    pthread_rwlock_unlock(&engine->segments_lock);
    return state;
}

static const char *trim(const char *name) {
    while (name != NULL && *name == '/')
        name++;
    return name;
}

int32_t segment_open(struct mc_engine *engine, const char *name, bool fresh) {
    bool made = false;
    name = trim(name);
    if (name == NULL || *name == '\0' || strlen(name) >= NAME_BYTES)
        return MC_EINVALID;
    if (strcmp(name, engine->name) == 0 ||
        (engine->store == NULL && strcmp(name, engine->address) == 0))
        return LOCAL_SEGMENT;
    int32_t id = fresh ? -1 : find_open(engine, name);
    if (id >= 0)
        return id;
    struct segment *segment = find_or_make(engine, name, &made);
    if (segment == NULL) {
        mc_log("segment %s: too many were opened, or out of memory", name);
        return MC_EINVALID;
    }
    if (made) {
        int rc = refresh_segment(engine, segment, mc_now_ns() + engine->timeout_ns, true);
        if (rc != WEIR_OK)
            refresh_forget(engine, segment);
        set_state(engine, segment, rc == WEIR_OK ? SEGMENT_OPEN : SEGMENT_FAILED);
        return rc == WEIR_OK ? segment->id : MC_EINVALID;
    }
    if (wait_opened(engine, segment) != SEGMENT_OPEN)
        return MC_EINVALID;
    if (fresh &&
        refresh_segment(engine, segment, mc_now_ns() + engine->timeout_ns, true) != WEIR_OK)
        return MC_EINVALID;
    return segment->id;
}

int segment_remove(struct mc_engine *engine, const char *name) {
    name = trim(name);
    if (name == NULL || *name == '\0' || strcmp(name, engine->name) == 0)
        return MC_EINVALID;
    pthread_rwlock_wrlock(&engine->segments_lock);
    struct segment *segment = find(engine, name);
    bool was_open = segment != NULL && segment->state == SEGMENT_OPEN;
    if (was_open)
        segment->state = SEGMENT_REMOVED;
    pthread_rwlock_unlock(&engine->segments_lock);
    if (was_open)
        refresh_later(engine, segment); /* which gives its imports back */
    return 0;
}
