/* SPDX-License-Identifier: Apache-2.0 */
/* own.c: see own.h. Owns how a thread waits for the engine, and how an owner lets it go with work
 * left. */
#include "own.h"

#include "agenda.h"
#include "news.h"
#include "step.h"

enum { OWN_SPINS = 100 };
/* Pauses of a thread that found the engine taken, before it looks again. Submitters that found it
 * taken within CROWD_NS are a crowd. After VAIN_MOST waits in vain one submitter in VAIN_TURN
 * waits. */
enum { LATER_PAUSES = 16, CROWD_PAUSES = 256, VAIN_MOST = 8, VAIN_TURN = 16 };
#define CROWD_NS 50000

void own_enter_slow(weir_engine *engine) {
    atomic_fetch_add_explicit(&engine->entering, 1, memory_order_relaxed);
    for (uint32_t turn = 0; !own_try(engine); turn++) {
        if (turn < OWN_SPINS) {
            relax();
        } else if (turn < 2 * OWN_SPINS) {
            sched_yield();
        } else {
            struct timespec pause = {.tv_nsec = 20 * 1000};
            nanosleep(&pause, NULL);
        }
    }
    atomic_fetch_sub_explicit(&engine->entering, 1, memory_order_relaxed);
}

/* Whether a submitter found the engine taken less than CROWD_NS ago, and may again. An owner that
 * makes progress is no submitter. */
static bool is_crowd(weir_engine *engine) {
    if (atomic_load_explicit(&engine->owner, memory_order_relaxed) == OWNER_STEPS)
        return false;
    uint64_t now = engine_clock(engine);
    uint64_t last = atomic_load_explicit(&engine->crowded_ns, memory_order_relaxed);
    atomic_store_explicit(&engine->crowded_ns, now, memory_order_relaxed);
    return (int64_t)(now - last) < CROWD_NS; /* another's clock may be a little ahead */
}

bool own_try_later(weir_engine *engine) {
    uint32_t vain = atomic_load_explicit(&engine->vain_waits, memory_order_relaxed);
    bool got = false;
    if (vain < VAIN_MOST || vain % VAIN_TURN == 0) {
        for (int i = is_crowd(engine) ? CROWD_PAUSES : LATER_PAUSES; i > 0; i--)
            relax();
        got = atomic_load_explicit(&engine->owner, memory_order_relaxed) == OWNER_NONE &&
              own_try(engine);
    }
    atomic_store_explicit(&engine->vain_waits, got ? 0 : vain + 1, memory_order_relaxed);
    return got;
}

/* Takes the engine once more if work is left on the submit queue. A thread that comes to relieve
 * this one has pushed its work and waits for the engine: then nothing is left to do here. An owner
 * that leaves wants no relief any more. */
static bool serve_again(weir_engine *engine, uint32_t rounds) {
    if (atomic_load(&engine->submitted) != 0 && atomic_load(&engine->relief) != RELIEF_COMES &&
        own_try(engine))
        return true;
    uint32_t wanted = RELIEF_WANTED;
    if (rounds > SERVE_ROUNDS)
        atomic_compare_exchange_strong(&engine->relief, &wanted, RELIEF_NONE);
    return false;
}

void own_leave_slow(weir_engine *engine, bool news) {
    for (uint32_t rounds = 1;; rounds++) {
        if (news) {
            atomic_fetch_add(&engine->news, 1);
            news_tell(engine);
        }
        if (!serve_again(engine, rounds))
            return;
        uint32_t none = RELIEF_NONE;
        if (rounds == SERVE_ROUNDS)
            atomic_compare_exchange_strong(&engine->relief, &none, RELIEF_WANTED);
        engine_step(engine, false);
        news = engine->worked;
        engine->worked = false;
        own_let_go(engine);
    }
}
