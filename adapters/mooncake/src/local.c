/* SPDX-License-Identifier: Apache-2.0 */
/* local.c: this engine's registered memory: a table by address, and what is published of it.
 *
 * A buffer that peers have is published as a memory of the name "mooncake/NONCE/SEQUENCE/BASE", in
 * hexadecimal: the nonce is of this incarnation and the sequence of the registration, so that a
 * name never comes to mean another registration. */
#include "adapter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Index of the first range that begins above the address. */
static size_t above(const struct mc_engine *engine, uintptr_t address) {
    size_t low = 0, high = engine->range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (engine->ranges[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct range *local_at(const struct mc_engine *engine, uintptr_t address) {
    size_t next = above(engine, address);
    if (next == 0)
        return NULL;
    const struct range *range = &engine->ranges[next - 1];
    return range->state == RANGE_LIVE && address - range->base < range->length ? range : NULL;
}

static struct range *range_from(struct mc_engine *engine, uintptr_t base) {
    size_t next = above(engine, base);
    struct range *range = next > 0 ? &engine->ranges[next - 1] : NULL;
    return range != NULL && range->base == base ? range : NULL;
}

static void drop_range(struct mc_engine *engine, struct range *range) {
    size_t index = (size_t)(range - engine->ranges);
    free(range->location);
    memmove(range, range + 1, (--engine->range_count - index) * sizeof(*range));
}

/* Under the lock: the range is there from now on, as COMING. */
static int reserve(struct mc_engine *engine, const buffer_entry_t *entry, const char *location,
                   bool remote) {
    uintptr_t base = (uintptr_t)entry->addr;
    size_t at = above(engine, base);
    if (at > 0 && base - engine->ranges[at - 1].base < engine->ranges[at - 1].length)
        return MC_EOVERLAP;
    if (at < engine->range_count && engine->ranges[at].base - base < entry->length)
        return MC_EOVERLAP;
    if (engine->range_count == engine->range_room) {
        size_t room = engine->range_room > 0 ? 2 * engine->range_room : 64;
        struct range *ranges = realloc(engine->ranges, room * sizeof(*ranges));
        if (ranges == NULL)
            return MC_EMEMORY;
        engine->ranges = ranges;
        engine->range_room = room;
    }
    char *copy = strdup(location);
    if (copy == NULL)
        return MC_EMEMORY;
    struct range *range = &engine->ranges[at];
    memmove(range + 1, range, (engine->range_count++ - at) * sizeof(*range));
    *range = (struct range){.base = base,
                            .length = entry->length,
                            .sequence = ++engine->sequence,
                            .location = copy,
                            .state = RANGE_COMING,
                            .remote = remote};
    return 0;
}

static int code_of(int error) {
    switch (error) {
    case WEIR_OK:
        return 0;
    case WEIR_EAGAIN:
    case WEIR_ENOMEM:
    case WEIR_EMEMLOCK:
        return MC_EMEMORY;
    case WEIR_EINVAL:
        return MC_EINVALID;
    default:
        return MC_ECONTEXT;
    }
}

static int release(struct mc_engine *engine, weir_memory memory) {
    uint64_t end = mc_now_ns() + engine->timeout_ns;
    for (;;) {
        struct timespec pause = {.tv_nsec = (long)NS_PER_MS};
        int rc = weir_memory_release(engine->weir, memory);
        uint64_t now = mc_now_ns();
        if ((rc != WEIR_EBUSY && rc != WEIR_EINPROGRESS) || now >= end)
            return rc;
        /* A transfer of ours uses it: what is under way ends it. Else a peer is inside an access.
         */
        if (rc == WEIR_EINPROGRESS || weir_engine_flush(engine->weir, 20 * NS_PER_MS) == WEIR_OK)
            nanosleep(&pause, NULL);
        settle_completions(engine);
    }
}

/* A range that is COMING becomes LIVE; else it is still to be dropped. */
static int bring(struct mc_engine *engine, const buffer_entry_t *entry, bool remote) {
    char name[WEIR_NAME_MAX];
    weir_memory memory;
    int rc = weir_memory_register(engine->weir, entry->addr, entry->length,
                                  remote ? WEIR_ACCESS_ALL : 0, &memory);
    if (rc == WEIR_OK && remote) {
        pthread_rwlock_rdlock(&engine->local_lock);
        uint64_t sequence = range_from(engine, (uintptr_t)entry->addr)->sequence;
        pthread_rwlock_unlock(&engine->local_lock);
        snprintf(name, sizeof(name), "mooncake/%" PRIx64 "/%" PRIx64 "/%" PRIx64, engine->nonce,
                 sequence, (uint64_t)(uintptr_t)entry->addr);
        rc = weir_memory_publish(engine->weir, memory, name);
        if (rc != WEIR_OK)
            release(engine, memory);
    }
    if (rc != WEIR_OK) {
        mc_log("%zu bytes at %p are not registered: %s", entry->length, entry->addr,
               weir_strerror(rc));
        return code_of(rc);
    }
    pthread_rwlock_wrlock(&engine->local_lock);
    struct range *range = range_from(engine, (uintptr_t)entry->addr);
    range->memory = memory;
    range->state = RANGE_LIVE;
    pthread_rwlock_unlock(&engine->local_lock);
    return 0;
}

static void drop_from(struct mc_engine *engine, const void *base) {
    pthread_rwlock_wrlock(&engine->local_lock);
    struct range *range = range_from(engine, (uintptr_t)base);
    if (range != NULL)
        drop_range(engine, range);
    pthread_rwlock_unlock(&engine->local_lock);
}

/* Takes it out of use and out of the table. */
static int leave(struct mc_engine *engine, const void *base) {
    pthread_rwlock_wrlock(&engine->local_lock);
    struct range *range = range_from(engine, (uintptr_t)base);
    bool there = range != NULL && (range->state == RANGE_LIVE || range->state == RANGE_LEAVING);
    weir_memory memory = there ? range->memory : (weir_memory){0};
    if (there)
        range->state = RANGE_BEING_RELEASED;
    pthread_rwlock_unlock(&engine->local_lock);
    if (!there)
        return MC_EUNREGISTERED;
    int rc = release(engine, memory);
    pthread_rwlock_wrlock(&engine->local_lock);
    range = range_from(engine, (uintptr_t)base);
    if (rc == WEIR_OK)
        drop_range(engine, range);
    else
        range->state = rc == WEIR_EBUSY ? RANGE_LIVE : RANGE_LEAVING;
    pthread_rwlock_unlock(&engine->local_lock);
    if (rc == WEIR_OK)
        return 0;
    mc_log("the memory at %p is still in use: %s", base, weir_strerror(rc));
    return rc == WEIR_EBUSY || rc == WEIR_EINPROGRESS ? MC_EBUSY : MC_ECONTEXT;
}

int local_tell_store(struct mc_engine *engine) {
    char why[STORE_WHY] = "out of memory";
    if (engine->store == NULL)
        return 0;
    pthread_mutex_lock(&engine->store_lock); /* a later list is not overtaken by an earlier one */
    json_t *document = segment_document(engine->name);
    bool good = document != NULL;
    pthread_rwlock_rdlock(&engine->local_lock);
    for (size_t i = 0; good && i < engine->range_count; i++) {
        const struct range *range = &engine->ranges[i];
        if (range->remote && range->state == RANGE_LIVE)
            good = segment_document_add(document, range->location, range->base, range->length);
    }
    pthread_rwlock_unlock(&engine->local_lock);
    good = good && store_put_location(engine->store, engine->name, engine->location, engine->port,
                                      why) == STORE_OK;
    engine->is_told |= good;
    good = good && store_put_segment(engine->store, engine->name, document, why) == STORE_OK;
    pthread_mutex_unlock(&engine->store_lock);
    json_decref(document);
    if (!good)
        mc_log("the buffers of %s were not written: %s", engine->name, why);
    return good ? 0 : MC_EMETADATA;
}

static int check(const buffer_entry_t *list, size_t count) {
    if (count > 0 && list == NULL)
        return MC_EINVALID;
    for (size_t i = 0; i < count; i++) {
        if (list[i].addr == NULL || list[i].length == 0 ||
            (uintptr_t)list[i].addr + list[i].length < (uintptr_t)list[i].addr)
            return MC_EINVALID;
    }
    return 0;
}

int local_register(struct mc_engine *engine, const buffer_entry_t *list, size_t count,
                   const char *location, bool remote) {
    size_t reserved = 0, brought = 0;
    int rc = check(list, count);
    if (rc != 0)
        return rc;
    pthread_rwlock_wrlock(&engine->local_lock);
    while (reserved < count && rc == 0) {
        rc = reserve(engine, &list[reserved], location != NULL ? location : "*", remote);
        reserved += rc == 0;
    }
    pthread_rwlock_unlock(&engine->local_lock);
    while (brought < count && rc == 0) {
        rc = bring(engine, &list[brought], remote);
        brought += rc == 0;
    }
    if (rc == 0 && remote && count > 0)
        rc = local_tell_store(engine);
    if (rc != 0) {
        for (size_t i = 0; i < reserved; i++) {
            if (i >= brought)
                drop_from(engine, list[i].addr);
            else
                leave(engine, list[i].addr);
        }
    }
    return rc;
}

int local_unregister(struct mc_engine *engine, const void *base) {
    return leave(engine, base);
}

void local_free(struct mc_engine *engine) {
    for (size_t i = 0; i < engine->range_count; i++)
        free(engine->ranges[i].location);
    free(engine->ranges);
}
