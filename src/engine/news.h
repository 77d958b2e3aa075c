/* SPDX-License-Identifier: Apache-2.0 */
/* news.h: the application and its sleeping threads are told that there is something for them. */
#ifndef WEIR_ENGINE_NEWS_H
#define WEIR_ENGINE_NEWS_H

#include "state.h"
#include <pthread.h>

struct sleeping {
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool leader;      /* a thread sleeps on the ports */
    uint64_t changes; /* counts news */
    pthread_t thread; /* WEIR_ENGINE_THREAD */
    bool thread_runs;
    uint32_t spins;           /* steps that find nothing before a sleep */
    _Atomic uint64_t spin_ns; /* and the longest that they take, after what was waited for last */
    bool one_cpu;             /* the bringers of news cannot run while we spin */
    _Atomic bool stop;
};

void news_event(weir_engine *engine, weir_event_type type, uint64_t handle, int error,
                uint64_t value);

/* Threads that sleep on the ports, and the application, have to look at the engine. */
void news_wake(weir_engine *engine);
/* The same for the application alone, if it is armed. */
void news_tell_application(weir_engine *engine);
/* All sleepers: those of news_wake, and threads that sleep on the condition. The caller has counted
 * the news before. */
void news_tell(weir_engine *engine);

/* A count that grows when anything is done, or room is made while somebody waits for it. */
uint64_t news_or_room(weir_engine *engine);
void news_room_slow(weir_engine *engine);
/* A record or a place in a queue came back, perhaps without the engine and so without news. */
static inline void news_room(weir_engine *engine) {
    if (__builtin_expect(atomic_load(&engine->blocked) != 0, 0))
        news_room_slow(engine);
}

#endif
