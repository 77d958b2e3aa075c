/* SPDX-License-Identifier: Apache-2.0 */
/* sleep.c: sleeping until there is news, and the application's own loop.
 *
 * Of several threads that wait, one (the leader) sleeps on the descriptors of the
 * ports; the others sleep on a condition. A thread that has done work while
 * others sleep tells them as it lets go of the engine. A leader that leaves wakes the
 * others, and one of them takes its place. An idle engine sleeps without a bound:
 * only a deadline of its own, or a caller's time-out, limits the sleep.
 *
 * The application may sleep as well, on the descriptor that it armed. One arming of the device
 * serves it and the leader. A leader that wakes disarms the device, though the application may
 * still sleep on it: so the leader tells the application to look for itself, unless the engine's
 * own thread sees to it that a leader sleeps again. The application leaves the device armed while a
 * leader sleeps. Each of the two takes back only what was raised for it (ports.h), so neither keeps
 * the other awake. The descriptor is lowered when it is armed the next time.
 */
#include "sleep.h"

#include "agenda.h"
#include "engine.h"
#include "inboxes.h"
#include "news.h"
#include "own.h"
#include "records.h"
#include "step.h"
#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { SPINS = 200, YIELDS = 4 };
/* The longest spin, however slow the device's poll is, and the shortest. */
#define SPIN_NS       UINT64_C(20000)
#define SPIN_NS_LEAST UINT64_C(1000)
/* While peers' accesses are served here; and for so long at most without arming the device. */
#define SERVE_NS_MOST  UINT64_C(10000000)
#define SPIN_NS_SERVED UINT64_C(50000)
/* A wait of up to so long would not have needed its sleep: to fall asleep and to wake are most of
 * it. */
#define WAIT_NS_SHORT (4 * SPIN_NS)
/* Of a thread that waits for room: the first sleep and the longest. To fall asleep and to wake
 * costs 20 us on some virtual machines, half a percent of the longest. */
#define PAUSE_NS      UINT64_C(40000)
#define PAUSE_NS_MOST UINT64_C(4000000)

/* Between two steps that find nothing. On one CPU a yield lets the kernel's threads and the peer
 * run, often for less than a sleep and a wake cost. */
static void give_way(const struct sleeping *sleeping) {
    if (sleeping->one_cpu)
        sched_yield();
    else
        relax();
}

/* Of a wait: since when it found nothing, and how long it spins so. */
struct idling {
    uint64_t since_ns, spin_ns;
    uint32_t turns;
    bool serves; /* peers' accesses were served, and may go on, */
    uint64_t serves_since_ns;
};

static void begin(struct idling *idling, uint64_t now, uint64_t spin_ns) {
    *idling = (struct idling){.since_ns = now, .spin_ns = spin_ns};
}

static void begin_serving(struct idling *idling, uint64_t now) {
    *idling = (struct idling){
        .since_ns = now, .spin_ns = SPIN_NS_SERVED, .serves = true, .serves_since_ns = now};
}

static bool has_served(weir_engine *engine) {
    return engine->device_ops->has_served != NULL && engine->device_ops->has_served(engine->device);
}

/* Before a step. Accesses by peers tell nobody here, and the step in which they are served finds
 * nothing. So while they are served the device is asked whether there are some now, which costs it
 * a system call. It is armed now and then all the same: only there a device finds out that what it
 * seems to have is a message without a receive, of a peer that cheats. */
static void look_for_peers(weir_engine *engine, struct idling *idling) {
    if (!idling->serves || !has_served(engine))
        return;
    uint64_t now = engine_clock(engine);
    if (now - idling->serves_since_ns > SERVE_NS_MOST)
        return;
    idling->since_ns = now;
    idling->turns = 0;
}

/* A turn found nothing. Whether to spin on. */
static bool may_spin(const struct sleeping *sleeping, struct idling *idling, uint64_t now) {
    return sleeping != NULL && idling->turns++ < sleeping->spins &&
           now - idling->since_ns < idling->spin_ns;
}

static uint64_t half_spin(uint64_t spin_ns) {
    return spin_ns / 2 > SPIN_NS_LEAST ? spin_ns / 2 : SPIN_NS_LEAST;
}

/* A sleep that began then is over. Where a short one ended with work for peers, more of it may be
 * on its way, and each access that finds this process asleep waits for it to wake. Else the spin
 * was in vain, and the next one is half as long: the news may take long, and a timer of the
 * engine's may end the sleep each millisecond until then. */
static void begin_awake(struct idling *idling, uint64_t slept_since, uint64_t now, bool served) {
    if (served && now - slept_since <= WAIT_NS_SHORT)
        begin_serving(idling, now);
    else
        begin(idling, now, half_spin(idling->spin_ns));
}

/* Under the engine: ready to sleep, or EAGAIN. */
static int arm(weir_engine *engine, uint64_t *timeout_ns_out) {
    uint64_t next = engine_next_deadline(engine);
    uint64_t now = next == UINT64_MAX ? 0 : engine_clock(engine);
    if (next <= now || inboxes_rest(engine) || engine->device_ops->arm(engine->device) != WEIR_OK)
        return WEIR_EAGAIN;
    *timeout_ns_out = next == UINT64_MAX ? UINT64_MAX : next - now;
    if (next > engine->slept_ns) /* another may sleep longer than we are going to */
        engine->slept_ns = next;
    return WEIR_OK;
}

/* Under the engine: one of the sleeping threads is awake. */
static void woken(weir_engine *engine) {
    uint32_t armed = atomic_load(&engine->armed);
    if (!atomic_load(&engine->leader_asleep) && armed != ARMED_YES && armed != ARMED_TOLD)
        engine->slept_ns = 0;
}

/* ---- what is waited for -------------------------------------------------- */

static bool has_news(weir_engine *engine, uint64_t before) {
    return atomic_load(&engine->news) != before;
}

static bool has_news_or_room(weir_engine *engine, uint64_t before) {
    return news_or_room(engine) != before;
}

/* Whether something has to be taken: notifications, and transfers that were asked for as
 * completions. Events need not be. */
static bool something_waits(weir_engine *engine) {
    return !queue_is_empty(&engine->notifications) || !queue_is_empty(&engine->completions) ||
           atomic_load(&engine->inboxes_ready) > 0;
}

static bool has_news_or_something(weir_engine *engine, uint64_t before) {
    return has_news(engine, before) || something_waits(engine) ||
           atomic_load(&engine->device_gone) || atomic_load(&engine->loan_back);
}

/* ---- the application's own loop ----------------------------------------- */

/* Under the engine: the application makes progress while it is armed. The thread that does may
 * be another than the one that sleeps on the descriptor, which is woken, too. */
void engine_awake(weir_engine *engine) {
    if (atomic_exchange(&engine->armed, ARMED_AWAKE) == ARMED_YES)
        engine->ports.wait.ops->raise(engine->ports.wait.self);
    if (!atomic_load(&engine->leader_asleep))
        engine->device_ops->disarm(engine->device);
    engine->slow_now = true;
    woken(engine);
}

int weir_engine_progress(weir_engine *engine) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (!own_try_steps(engine))
        return engine->forked ? WEIR_ECLOSED : 0;
    uint32_t armed = atomic_load_explicit(&engine->armed, memory_order_relaxed);
    if (armed == ARMED_YES || armed == ARMED_TOLD)
        engine_awake(engine);
    int done = engine_step(engine, engine->slow_now);
    engine->slow_now = false;
    if (done == 0 && atomic_load_explicit(&engine->device_gone, memory_order_relaxed))
        done = WEIR_EDEVICE;
    own_leave(engine);
    return done;
}

int weir_engine_fd(const weir_engine *engine) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    return engine->ports.wait.ops->fd(engine->ports.wait.self);
}

/* Arms first and looks then: threads that finish work after the look tell us. Work that they
 * finished before may not have been taken yet, and the application was not told of it. */
static int arm_application(weir_engine *engine, uint64_t *timeout_ns_out) {
    if (atomic_exchange(&engine->armed, ARMED_YES) != ARMED_NO)
        engine->ports.wait.ops->lower(engine->ports.wait.self);
    int rc = WEIR_EAGAIN;
    if (atomic_load(&engine->news) == engine->news_seen && engine_step(engine, true) == 0 &&
        !something_waits(engine))
        rc = arm(engine, timeout_ns_out);
    if (rc == WEIR_OK)
        return WEIR_OK;
    if (atomic_exchange(&engine->armed, ARMED_NO) == ARMED_TOLD)
        engine->ports.wait.ops->lower(engine->ports.wait.self);
    if (atomic_load(&engine->leader_asleep))
        engine->ports.wait.ops->wake(engine->ports.wait.self); /* its device may be disarmed */
    else
        engine->device_ops->disarm(engine->device);
    engine->slow_now = true;
    return rc;
}

int weir_engine_arm(weir_engine *engine, uint64_t *timeout_ns_out) {
    if (engine == NULL || timeout_ns_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    uint64_t news = atomic_load(&engine->news);
    int rc = news == engine->news_seen ? arm_application(engine, timeout_ns_out) : WEIR_EAGAIN;
    engine->news_seen = news;
    own_leave(engine);
    return rc;
}

/* ---- sleeping ----------------------------------------------------------- */

/* A step, if the engine is free. -1: another thread has it. */
static int try_step(weir_engine *engine, bool slow) {
    if (!own_try_steps(engine))
        return -1;
    int done = engine_step(engine, slow);
    own_leave(engine);
    return done;
}

/* Under the engine: the device is not armed any more. The application has to look, unless a thread
 * of the engine's does. */
static void leave_ports(weir_engine *engine) {
    const struct sleeping *sleeping = engine->sleeping;
    if (sleeping == NULL || !sleeping->thread_runs)
        news_tell_application(engine);
}

/* Sleeps as the leader, on the ports. `finished` is asked once more when each thread that has news
 * can see that we sleep. True: peers' accesses were served here before the sleep, which was none
 * then, or when it ended. */
static bool sleep_on_ports(weir_engine *engine, uint64_t most_ns,
                           bool (*finished)(weir_engine *, uint64_t), uint64_t what) {
    uint64_t timeout = UINT64_MAX;
    own_enter(engine);
    atomic_store(&engine->leader_asleep, true);
    int rc = engine_step(engine, true) > 0 ? WEIR_EAGAIN : arm(engine, &timeout);
    bool served = has_served(engine);
    if (rc == WEIR_OK && served) {
        engine->device_ops->disarm(engine->device);
        woken(engine);
        rc = WEIR_EAGAIN;
    }
    if (rc != WEIR_OK) {
        atomic_store(&engine->leader_asleep, false);
        leave_ports(engine);
    }
    own_leave(engine);
    if (rc != WEIR_OK)
        return served;
    if (!finished(engine, what))
        engine->ports.wait.ops->sleep(engine->ports.wait.self,
                                      timeout < most_ns ? timeout : most_ns);
    own_enter(engine);
    atomic_store(&engine->leader_asleep, false);
    engine->device_ops->disarm(engine->device);
    engine->ports.wait.ops->clear(engine->ports.wait.self);
    leave_ports(engine);
    woken(engine);
    engine_step(engine, true);
    served = has_served(engine);
    own_leave(engine);
    return served;
}

static void sleep_on_news(struct sleeping *sleeping, uint64_t seen, uint64_t most_ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (most_ns > 3600ull * 1000000000)
        most_ns = 3600ull * 1000000000;
    uint64_t ns = (uint64_t)until.tv_nsec + most_ns % 1000000000;
    until.tv_sec += (time_t)(most_ns / 1000000000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (sleeping->changes == seen &&
           pthread_cond_timedwait(&sleeping->news, &sleeping->lock, &until) != ETIMEDOUT)
        continue;
}

/* Sleeps until there may be news, as leader or follower. True: see sleep_on_ports. */
static bool sleep_once(weir_engine *engine, uint64_t most_ns,
                       bool (*finished)(weir_engine *, uint64_t), uint64_t what) {
    struct sleeping *sleeping = engine->sleeping;
    bool served = false;
    if (sleeping == NULL) /* a simulation: one thread */
        return sleep_on_ports(engine, most_ns, finished, what);
    pthread_mutex_lock(&sleeping->lock);
    if (sleeping->leader) {
        atomic_fetch_add(&engine->followers, 1);
        if (!finished(engine, what))
            sleep_on_news(sleeping, sleeping->changes, most_ns);
        atomic_fetch_sub(&engine->followers, 1);
    } else {
        sleeping->leader = true;
        pthread_mutex_unlock(&sleeping->lock);
        served = sleep_on_ports(engine, most_ns, finished, what);
        pthread_mutex_lock(&sleeping->lock);
        sleeping->leader = false;
        sleeping->changes++;
        pthread_cond_broadcast(&sleeping->news);
    }
    pthread_mutex_unlock(&sleeping->lock);
    return served;
}

int engine_wait_until(weir_engine *engine, uint64_t timeout_ns,
                      bool (*finished)(weir_engine *, uint64_t), uint64_t what) {
    uint64_t start = engine_clock(engine);
    struct idling idling;
    begin(&idling, start, SPIN_NS);
    while (!finished(engine, what)) {
        look_for_peers(engine, &idling);
        bool worked = try_step(engine, engine->sleeping == NULL) > 0;
        uint64_t now = engine_clock(engine);
        if (now - start >= timeout_ns) /* however much others keep the engine busy */
            return finished(engine, what) ? WEIR_OK : WEIR_EINPROGRESS;
        if (worked) {
            begin(&idling, now, SPIN_NS);
            continue;
        }
        if (may_spin(engine->sleeping, &idling, now)) {
            give_way(engine->sleeping);
            continue;
        }
        bool served = sleep_once(engine, timeout_ns - (now - start), finished, what);
        begin_awake(&idling, now, engine_clock(engine), served);
    }
    return WEIR_OK;
}

static bool transfer_finished(weir_engine *engine, uint64_t id) {
    return record_status(engine, id) != WEIR_EINPROGRESS;
}

/* A wait for what has ended already. An application whose transfers are all done in their submits
 * waits for nothing else: one such wait in WAITS_A_STEP makes progress. */
#define WAITS_A_STEP 64
static void wait_for_nothing(weir_engine *engine) {
    uint32_t waits = atomic_load_explicit(&engine->waits_for_nothing, memory_order_relaxed) + 1;
    atomic_store_explicit(&engine->waits_for_nothing, waits, memory_order_relaxed);
    if (waits % WAITS_A_STEP == 0)
        try_step(engine, engine->sleeping == NULL);
}

int weir_transfer_wait(weir_engine *engine, weir_transfer transfer, uint64_t timeout_ns) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return record_status(engine, transfer.id);
    if (transfer_finished(engine, transfer.id))
        wait_for_nothing(engine);
    else
        engine_wait_until(engine, timeout_ns, transfer_finished, transfer.id);
    return record_status(engine, transfer.id);
}

static uint64_t spin_of(const struct sleeping *sleeping) {
    return atomic_load_explicit(&sleeping->spin_ns, memory_order_relaxed);
}

/* A wait that was long halves the spin of the next one, and a short one makes it whole again,
 * unless its time-out ended it. Where there are more processes than processors, those that spin
 * keep the ones away that they wait for: a crowd that waits for its turns spins once a turn, each
 * of it. */
static void learn(struct sleeping *sleeping, uint64_t waited_ns, bool in_vain) {
    if (sleeping == NULL)
        return;
    uint64_t spin_ns = spin_of(sleeping), next = in_vain ? spin_ns : SPIN_NS;
    if (waited_ns > WAIT_NS_SHORT)
        next = half_spin(spin_ns);
    if (next != spin_ns)
        atomic_store_explicit(&sleeping->spin_ns, next, memory_order_relaxed);
}

/* Until `finished`, or the caller's own step did something. */
static int wait_for(weir_engine *engine, bool (*finished)(weir_engine *, uint64_t), uint64_t before,
                    uint64_t timeout_ns) {
    struct sleeping *sleeping = engine->sleeping;
    uint64_t start = engine_clock(engine), passed = 0;
    bool slept = false, looked = false;
    struct idling idling;
    int rc = WEIR_OK;
    begin(&idling, start, sleeping == NULL ? 0 : spin_of(sleeping));
    for (;; looked = true) {
        look_for_peers(engine, &idling);
        if (try_step(engine, sleeping == NULL) > 0 || finished(engine, before))
            break;
        uint64_t now = engine_clock(engine);
        passed = now - start;
        if (passed >= timeout_ns) {
            rc = WEIR_EINPROGRESS;
            break;
        }
        if (may_spin(sleeping, &idling, now)) {
            give_way(sleeping);
            continue;
        }
        bool served = sleep_once(engine, timeout_ns - passed, finished, before);
        slept = true;
        if (finished(engine, before))
            break;
        if (served)
            begin_awake(&idling, now, engine_clock(engine), true);
    }
    if (slept)
        learn(sleeping, engine_clock(engine) - start, rc != WEIR_OK);
    else if (looked && rc == WEIR_OK)
        learn(sleeping, passed, false);
    return rc;
}

/* The caller began to look for room passed_ns ago, and found none just now, after `before`.
 * Progress for SPIN_NS in all, then sleeps, each three times as long as the one before. News or
 * room end a sleep, and the next ones begin short again, after one more look. */
void engine_back_off(weir_engine *engine, uint64_t before, uint64_t passed_ns, uint64_t most_ns,
                     uint64_t *pause_ns) {
    bool news = has_news_or_room(engine, before);
    if (engine->sleeping != NULL && (news || passed_ns < SPIN_NS || *pause_ns == 0)) {
        *pause_ns = news ? 0 : PAUSE_NS;
        if (weir_engine_progress(engine) == 0)
            sched_yield();
        return;
    }
    uint64_t pause = *pause_ns != 0 ? *pause_ns : PAUSE_NS;
    sleep_once(engine, pause < most_ns ? pause : most_ns, has_news_or_room, before);
    if (has_news_or_room(engine, before))
        *pause_ns = 0;
    else
        *pause_ns = 3 * pause < PAUSE_NS_MOST ? 3 * pause : PAUSE_NS_MOST;
}

void engine_wait_news(weir_engine *engine, uint64_t before, uint64_t timeout_ns) {
    (void)wait_for(engine, has_news, before, timeout_ns);
}

int weir_engine_wait(weir_engine *engine, uint64_t timeout_ns) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    uint64_t before = atomic_load(&engine->news);
    int rc = wait_for(engine, has_news_or_something, before, timeout_ns);
    atomic_store(&engine->loan_back, false); /* that was told */
    if (atomic_load(&engine->device_gone) && !has_news(engine, before) && !something_waits(engine))
        return WEIR_EDEVICE;
    return rc;
}

/* ---- the engine's own thread ------------------------------------------- */

static void *thread_main(void *argument) {
    weir_engine *engine = argument;
    struct sleeping *sleeping = engine->sleeping;
    for (;;) {
        /* First the news, then the wish to stop, which is news too: it is not slept over. */
        uint64_t before = atomic_load(&engine->news);
        if (atomic_load(&sleeping->stop))
            return NULL;
        wait_for(engine, has_news, before, UINT64_MAX);
    }
}

int engine_sleeping_open(weir_engine *engine) {
    const struct weir_env *env = &engine->ports.env;
    struct sleeping *sleeping = env->ops->alloc(env->self, sizeof(*sleeping));
    if (sleeping == NULL)
        return WEIR_ENOMEM;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&sleeping->lock, NULL);
    pthread_cond_init(&sleeping->news, &attributes);
    pthread_condattr_destroy(&attributes);
    fork_hold(); /* it reads a file */
    sleeping->one_cpu = sysconf(_SC_NPROCESSORS_ONLN) == 1;
    fork_release();
    sleeping->spins = sleeping->one_cpu ? YIELDS : SPINS;
    sleeping->spin_ns = SPIN_NS;
    engine->sleeping = sleeping;
    if ((engine->options.flags & WEIR_ENGINE_THREAD) == 0)
        return WEIR_OK;
    sleeping->thread_runs = true; /* the thread itself looks, from its begin on */
    if (thread_create(&sleeping->thread, NULL, thread_main, engine) != 0) {
        sleeping->thread_runs = false;
        return WEIR_ENOMEM;
    }
    return WEIR_OK;
}

void engine_thread_stop(weir_engine *engine) {
    struct sleeping *sleeping = engine->sleeping;
    if (sleeping == NULL || !sleeping->thread_runs)
        return;
    atomic_store(&sleeping->stop, true);
    atomic_fetch_add(&engine->news, 1);
    news_tell(engine);
    pthread_join(sleeping->thread, NULL);
    sleeping->thread_runs = false;
}

void engine_sleeping_close(weir_engine *engine) {
    struct sleeping *sleeping = engine->sleeping;
    if (sleeping == NULL)
        return;
    pthread_cond_destroy(&sleeping->news);
    pthread_mutex_destroy(&sleeping->lock);
    engine->ports.env.ops->free(engine->ports.env.self, sleeping, sizeof(*sleeping));
    engine->sleeping = NULL;
}
