/* SPDX-License-Identifier: Apache-2.0 */
/* news.c: the application and its sleeping threads are told that there is something for them.
 *
 * Owns the events that the application takes, and the words that are changed, and the sleepers that
 * are woken, when something was done or room was made. It leaves to others who sleeps, and on what
 * (sleep.c), and what else the application takes.
 */
#include "news.h"

void news_event(weir_engine *engine, weir_event_type type, uint64_t handle, int error,
                uint64_t value) {
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

/* Threads that sleep on the ports have to look at the engine. */
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

/* A thread that goes to sleep says so first and looks for news then; here the news was counted
 * first: one of the two sees the other. */
void news_tell(weir_engine *engine) {
    if (atomic_load(&engine->followers) != 0)
        tell_followers(engine->sleeping);
    news_wake(engine);
}

uint64_t news_or_room(weir_engine *engine) {
    return atomic_load(&engine->news) + atomic_load(&engine->room);
}

/* Sleepers that wait for room are woken; other sleepers look, and sleep on. */
__attribute__((noinline, cold)) void news_room_slow(weir_engine *engine) {
    atomic_fetch_add(&engine->room, 1);
    if (atomic_load(&engine->followers) != 0)
        tell_followers(engine->sleeping);
    if (atomic_load(&engine->leader_asleep))
        engine->ports.wait.ops->wake(engine->ports.wait.self);
}
