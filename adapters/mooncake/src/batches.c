/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c: the table of batches. An id is a slot's index and how often the slot was used, so the
 * id of a batch that was freed names nothing. Slots stay until the engine is closed. */
#include "adapter.h"

#include <stdlib.h>

enum { KEPT_TASKS = 4096, KEPT_RUNS = 256 }; /* so many stay with a free slot */

struct slot *slot_at(struct mc_engine *engine, uint32_t index) {
    struct chunk *chunk =
        index < 1u << SLOT_BITS ? atomic_load(&engine->chunks[index / CHUNK_SLOTS]) : NULL;
    return chunk != NULL ? &chunk->slots[index % CHUNK_SLOTS] : NULL;
}

/* Under slots_lock: another chunk of free slots. */
static bool grow(struct mc_engine *engine) {
    struct chunk *chunk = engine->chunk_count < CHUNKS_MAX ? calloc(1, sizeof(*chunk)) : NULL;
    if (chunk == NULL)
        return false;
    for (uint32_t i = CHUNK_SLOTS; i > 0; i--) {
        struct slot *slot = &chunk->slots[i - 1];
        slot->index = engine->chunk_count * CHUNK_SLOTS + i - 1;
        slot->next_free = engine->free_slot;
        engine->free_slot = slot->index + 1;
        pthread_mutex_init(&slot->lock, NULL);
        pthread_cond_init(&slot->ended, NULL);
    }
    atomic_store(&engine->chunks[engine->chunk_count++], chunk);
    return true;
}

static void give_slot(struct mc_engine *engine, struct slot *slot) {
    pthread_mutex_lock(&engine->slots_lock);
    slot->next_free = engine->free_slot;
    engine->free_slot = slot->index + 1;
    pthread_mutex_unlock(&engine->slots_lock);
}

uint64_t batch_allocate(struct mc_engine *engine, size_t size) {
    struct slot *slot = NULL;
    if (size > BATCH_SIZE_MAX)
        return INVALID_BATCH;
    pthread_mutex_lock(&engine->slots_lock);
    if (engine->free_slot != 0 || grow(engine)) {
        slot = slot_at(engine, engine->free_slot - 1);
        engine->free_slot = slot->next_free;
    }
    pthread_mutex_unlock(&engine->slots_lock);
    if (slot == NULL)
        return INVALID_BATCH;
    pthread_mutex_lock(&slot->lock);
    if (slot->task_room < size || slot->tasks == NULL) {
        free(slot->tasks);
        slot->task_room = size > 0 ? (uint32_t)size : 1;
        slot->tasks = malloc(slot->task_room * sizeof(*slot->tasks));
    }
    bool good = slot->tasks != NULL;
    if (good) {
        slot->size = (uint32_t)size;
        slot->timeout_ns = engine->task_timeout_ns;
        slot->id = ++slot->generation << (SLOT_BITS + 1) | (slot->index + 1);
    } else {
        slot->task_room = 0;
    }
    uint64_t id = slot->id;
    pthread_mutex_unlock(&slot->lock);
    if (!good)
        give_slot(engine, slot);
    return good ? id : INVALID_BATCH;
}

void batch_set_timeout(struct mc_engine *engine, uint64_t id, uint64_t timeout_ns) {
    struct slot *slot = batch_lock(engine, id);
    if (slot == NULL)
        return;
    slot->timeout_ns = timeout_ns;
    pthread_mutex_unlock(&slot->lock);
}

struct slot *batch_lock(struct mc_engine *engine, uint64_t id) {
    uint32_t place = (uint32_t)(id & ((1u << (SLOT_BITS + 1)) - 1));
    struct slot *slot = place > 0 ? slot_at(engine, place - 1) : NULL;
    if (slot == NULL)
        return NULL;
    pthread_mutex_lock(&slot->lock);
    if (slot->id == id)
        return slot;
    pthread_mutex_unlock(&slot->lock);
    return NULL;
}

static void empty(struct slot *slot) {
    for (uint32_t i = 0; i < slot->notice_count; i++)
        free(slot->notices[i].payload);
    slot->id = 0;
    slot->size = slot->task_count = slot->run_count = slot->notice_count = 0;
    if (slot->task_room > KEPT_TASKS) {
        free(slot->tasks);
        slot->tasks = NULL;
        slot->task_room = 0;
    }
    if (slot->run_room > KEPT_RUNS) {
        free(slot->runs);
        slot->runs = NULL;
        slot->run_room = 0;
    }
    if (slot->notice_room > KEPT_RUNS) {
        free(slot->notices);
        slot->notices = NULL;
        slot->notice_room = 0;
    }
}

int batch_free(struct mc_engine *engine, uint64_t id) {
    struct slot *slot = batch_lock(engine, id);
    if (slot == NULL)
        return MC_CODE_INVALID;
    if (slot->open > 0) {
        pthread_mutex_unlock(&slot->lock);
        settle_completions(engine);
        slot = batch_lock(engine, id);
        if (slot == NULL)
            return MC_CODE_INVALID; /* another thread freed it */
    }
    bool busy = slot->open > 0;
    if (!busy)
        empty(slot);
    pthread_mutex_unlock(&slot->lock);
    if (!busy)
        give_slot(engine, slot);
    return busy ? MC_CODE_BUSY : 0;
}

void batches_free_all(struct mc_engine *engine) {
    for (uint32_t i = 0; i < engine->chunk_count * CHUNK_SLOTS; i++) {
        struct slot *slot = slot_at(engine, i);
        empty(slot);
        free(slot->tasks);
        free(slot->runs);
        free(slot->notices);
        pthread_mutex_destroy(&slot->lock);
        pthread_cond_destroy(&slot->ended);
    }
    for (uint32_t i = 0; i < engine->chunk_count; i++)
        free(atomic_load(&engine->chunks[i]));
}
