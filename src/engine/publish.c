/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c: the application's calls about names that this engine publishes.
 *
 * Owns no state: the table is published.h's, and how peers hear of it is names.c's. */
#include "names.h"
#include "own.h"
#include "step.h"

static int publish_memory(weir_engine *engine, uint64_t id, const char *name) {
    struct region_local *local = region_local(&engine->regions, id);
    if (local == NULL)
        return WEIR_ESTALE;
    if (local->access == 0)
        return WEIR_EACCESS;
    local->named = true;
    return published_memory(&engine->names.published, name, id);
}

/* Others may have been told before this returns. */
static void leave_told(weir_engine *engine, uint64_t before) {
    if (engine->names.published.version != before)
        names_tell(engine);
    if (engine->run_head != NONE)
        engine_step(engine, false);
    own_leave(engine);
}

int weir_memory_publish(weir_engine *engine, weir_memory memory, const char *name) {
    if (engine == NULL || name == NULL || !published_is_name(name))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    uint64_t before = engine->names.published.version;
    int rc = publish_memory(engine, memory.id, name);
    leave_told(engine, before);
    return rc;
}

int weir_value_publish(weir_engine *engine, const char *name, const void *value, size_t length) {
    if (engine == NULL || name == NULL || !published_is_name(name) || (value == NULL && length > 0))
        return WEIR_EINVAL;
    if (length > WEIR_VALUE_MAX)
        return WEIR_ETOOBIG;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    uint64_t before = engine->names.published.version;
    int rc = published_value(&engine->names.published, name, value, length);
    leave_told(engine, before);
    return rc;
}

int weir_name_withdraw(weir_engine *engine, const char *name) {
    if (engine == NULL || name == NULL || !published_is_name(name))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    uint64_t before = engine->names.published.version;
    bool was_there = published_withdraw(&engine->names.published, name);
    leave_told(engine, before);
    return was_there ? WEIR_OK : WEIR_ESTALE;
}

uint64_t weir_name_hash(const char *name) {
    return name != NULL && published_is_name(name) ? published_hash(name, strlen(name)) : 0;
}
