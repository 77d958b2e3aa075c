/* SPDX-License-Identifier: Apache-2.0 */
/* news.c: the application and its sleeping threads are told that there is something for them.
 *
 * Owns the queue of events, the count of room made, and how sleepers are woken: threads on the
 * condition, the thread on the ports, and the application on its descriptor. It leaves to others
 * when there is news (own.c), and which thread sleeps on which of these (sleep.c).
 */
#include "news.h"

#include "trace.h"

void news_event(weir_engine *engine, weir_event_type type, uint64_t handle, int error,
                uint64_t value) {
    TRACE(engine, event, handle, error, (uint64_t)type, value);
    weir_event *event = queue_room(&engine->events);
    if (event == NULL) {
        atomic_fetch_add(&engine->events_lost, 1);
        return;
    }
    *event = (weir_event){.type = type, .error = error, .peer = {handle}, .value = value};
    queue_put(&engine->events);
    engine->worked = true;
}

void news_tell_application(weir_engine *engine) {
    uint32_t armed = ARMED_YES;
    if (atomic_compare_exchange_strong(&engine->armed, &armed, ARMED_TOLD))
        engine->ports.wait.ops->raise(engine->ports.wait.self);
}

void news_wake(weir_engine *engine) {
    if (atomic_load(&engine->leader_asleep))
        engine->ports.wait.ops->wake(engine->ports.wait.self);
    news_tell_application(engine);
}

static void tell_followers(struct sleeping *sleeping) {
    pthread_mutex_lock(&sleeping->lock);
    sleeping->changes++;
    pthread_cond_broadcast(&sleeping->news);
    pthread_mutex_unlock(&sleeping->lock);
}

/* A thread that goes to sleep says so first, and looks for news then. The caller has counted the
 * news first, and looks for sleepers here. So one of the two sees the other. */
void news_tell(weir_engine *engine) {
    if (atomic_load(&engine->followers) != 0)
        tell_followers(engine->sleeping);
    news_wake(engine);
}

uint64_t news_or_room(weir_engine *engine) {
    return atomic_load(&engine->news) + atomic_load(&engine->room);
}

/* Every sleeping thread is woken. One that does not wait for room looks, and sleeps on. */
__attribute__((noinline, cold)) void news_room_slow(weir_engine *engine) {
    atomic_fetch_add(&engine->room, 1);
    if (atomic_load(&engine->followers) != 0)
        tell_followers(engine->sleeping);
    if (atomic_load(&engine->leader_asleep))
        engine->ports.wait.ops->wake(engine->ports.wait.self);
}
