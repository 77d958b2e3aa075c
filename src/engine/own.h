/* SPDX-License-Identifier: Apache-2.0 */
/* own.h: the owner of the engine.
 *
 * One word. A submit takes the engine if it is free (own_try). One that finds it taken twice leaves
 * its work on the submit queue, which the owner empties before it lets go and once more after:
 * own_leave never leaves work behind that nobody will see. An owner that has served others for
 * SERVE_ROUNDS steps asks to be relieved: the next submitter that hands over waits for the engine
 * instead, and serves in its turn. So no call is kept for longer than that by submits of others. A
 * cancel hands over, too, and never waits. Calls that need the engine itself (registration,
 * queries) wait for it: own_enter.
 *
 * The tables of memory and peers are read by submitters that do not have the
 * engine. They change only under both the engine and tables_lock, so either is
 * enough to read them.
 *
 * In a child of fork(2) the word says OWNER_PARENT, so that no call takes the engine, and `serial`
 * is off. A call that does not try to take the engine looks at `forked` first. */
#ifndef WEIR_ENGINE_OWN_H
#define WEIR_ENGINE_OWN_H

#include <time.h>

#include "state.h"

enum owner {
    OWNER_NONE,
    OWNER_CALLS, /* for one thing, mostly a submit: not for long, and perhaps again at once */
    OWNER_STEPS, /* to make progress, asked to or while waiting */
    OWNER_PARENT /* this is a child of fork(2): the parent has it, and nobody here ever will */
};

/* A pause of a few cycles in a loop that waits for another thread. */
static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static inline bool own_try_as(weir_engine *engine, enum owner who) {
    if (engine->serial) { /* WEIR_ENGINE_SERIAL: nobody else can be here */
        atomic_store_explicit(&engine->owner, who, memory_order_relaxed);
        return true;
    }
    uint32_t expected = OWNER_NONE;
    return atomic_compare_exchange_strong_explicit(&engine->owner, &expected, who,
                                                   memory_order_acquire, memory_order_relaxed);
}
static inline bool own_try(weir_engine *engine) {
    return own_try_as(engine, OWNER_CALLS);
}

/* Takes the engine to make progress, unless it is taken, or a thread that needs the engine itself
 * waits for it: threads that make progress all the time, or wait without taking what there is,
 * would keep it away. One try in STEPS_TRY goes on all the same, since such calls may come without
 * end. */
enum { STEPS_TRY = 64 };
static inline bool own_try_steps(weir_engine *engine) {
    if (__builtin_expect(atomic_load_explicit(&engine->entering, memory_order_relaxed) > 0 &&
                             atomic_fetch_add_explicit(&engine->gave_way, 1, memory_order_relaxed) %
                                     STEPS_TRY !=
                                 STEPS_TRY - 1,
                         0))
        return false;
    return own_try_as(engine, OWNER_STEPS);
}

/* Spins shortly, then sleeps in small steps: the owner may be copying megabytes. */
void own_enter_slow(weir_engine *engine);
static inline void own_enter(weir_engine *engine) {
    if (!own_try(engine))
        own_enter_slow(engine);
}

/* Tries once more, half a microsecond later; some microseconds later when many threads submit. With
 * small transfers several processors take the engine's cache lines from each other for each one: a
 * thread that found the engine taken leaves it to its owner for a hundred of them. After tries in
 * vain most threads do not wait at all: the owner may have no processor, or much work. */
bool own_try_later(weir_engine *engine);

/* After a hand-over: whether the owner wants to be relieved, by us now. Then the engine
 * has to be entered, and relief_done said. */
static inline bool relief_take(weir_engine *engine) {
    uint32_t wanted = RELIEF_WANTED;
    return atomic_load_explicit(&engine->relief, memory_order_relaxed) == RELIEF_WANTED &&
           atomic_compare_exchange_strong(&engine->relief, &wanted, RELIEF_COMES);
}
static inline void relief_done(weir_engine *engine) {
    atomic_store(&engine->relief, RELIEF_NONE);
}

/* Sequentially consistent: a submitter pushes and then looks at owner; we let go and
 * then look at what was pushed. One of us sees the other. The same holds for a thread
 * that goes to sleep and the news that it waits for. */
static inline void own_let_go(weir_engine *engine) {
    if (engine->serial)
        atomic_store_explicit(&engine->owner, OWNER_NONE, memory_order_relaxed);
    else
        atomic_exchange_explicit(&engine->owner, OWNER_NONE, memory_order_seq_cst);
}

/* Somebody queued work while we had the engine, or there is news to tell. */
void own_leave_slow(weir_engine *engine, bool news);
static inline void own_leave(weir_engine *engine) {
    bool news = engine->worked;
    engine->worked = false;
    own_let_go(engine);
    if (__builtin_expect(
            news || atomic_load_explicit(&engine->submitted, memory_order_seq_cst) != 0, 0))
        own_leave_slow(engine, news);
}

/* The same for an owner that has done nothing that anybody waits for. */
static inline void own_leave_no_news(weir_engine *engine) {
    own_let_go(engine);
    if (__builtin_expect(atomic_load_explicit(&engine->submitted, memory_order_seq_cst) != 0, 0))
        own_leave_slow(engine, false);
}

#endif
