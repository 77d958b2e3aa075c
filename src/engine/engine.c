/* engine.c: an engine's memory, its one step, its end.
 *
 * Owns the memory that follows from the limits (settings.c), the order of work in a
 * step, timers, events, and closing. */
#include "own.h"
#include "settings.h"
#include "state.h"

#include <assert.h>

/* ---- memory ------------------------------------------------------------ */

static uint32_t power_of_two(uint32_t least) {
    uint32_t size = 1;
    while (size < least)
        size <<= 1;
    return size;
}

/* Hands out pieces of the arena, or, without one, only adds them up. */
struct carver {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t size) {
    void *piece = carver->base != NULL ? carver->base + carver->used : NULL;
    carver->used += (count * size + 63) & ~(size_t)63;
    return piece;
}

/* QPs in use and as many again on their way out. */
static uint32_t qps_wanted(const weir_engine_options *options) {
    uint64_t qps = (uint64_t)options->peers_max * options->qp_count * 2;
    return qps < 8 ? 8 : qps > 65000 ? 65000 : (uint32_t)qps;
}

/* Takes, or measures, all that the limits call for. */
static void layout(weir_engine *e, struct carver *c) {
    const weir_engine_options *o = &e->options;
    /* Transfers have one each: the others are full, but for the last of each, which that one makes
     * up for. */
    uint32_t blocks = o->segments_max / PLAN_BLOCK_PIECES + SPARE_BLOCKS;
    e->block_count = blocks;
    e->ring_size = power_of_two(o->sq_depth * 2);
    e->recvs_per_qp = o->recv_credits + CREDIT_RESERVE;
    e->transfers = carve(c, o->transfers_max, sizeof(struct transfer));
    e->transfer_pool.links = carve(c, o->transfers_max, sizeof(uint32_t));
    e->submit_next = carve(c, 2 * (size_t)o->transfers_max, sizeof(uint32_t));
    e->blocks = carve(c, (size_t)o->transfers_max + blocks, sizeof(struct plan_block));
    e->block_pool.links = carve(c, blocks, sizeof(uint32_t));
    e->peers_mask = power_of_two(o->peers_max) - 1;
    e->peers = carve(c, (size_t)e->peers_mask + 1, sizeof(struct peer));
    e->found_memory = carve(c, 1, found_bytes(o));
    e->parts = carve(c, (size_t)o->peers_max * WINDOW_SIZE, sizeof(struct parts));
    e->pile.papers = carve(c, o->peers_max, sizeof(struct ep_papers));
    e->pile.count = o->peers_max;
    e->visitors_max = o->peers_max < VISITORS ? VISITORS : e->peers_mask + 1;
    e->visitors = carve(c, e->visitors_max, sizeof(struct visitor));
    e->pasts = carve(c, o->peers_max, sizeof(struct past));
    e->regions.locals = carve(c, o->memories_max, sizeof(struct region_local));
    e->regions.remotes = carve(c, o->remotes_max, sizeof(struct region_remote));
    e->qps = carve(c, e->qps_max, sizeof(struct qp));
    e->runs = carve(c, (size_t)e->qps_max * e->ring_size, sizeof(struct ledger_run));
    e->recv_bytes = carve(c, (size_t)e->qps_max * e->recvs_per_qp, MESSAGE_BYTES);
    e->send_bytes = carve(c, (size_t)e->qps_max * e->recvs_per_qp + 1, MESSAGE_BYTES);
    e->receives.buffers = carve(c, (size_t)e->qps_max * e->recvs_per_qp, sizeof(struct receive));
    e->held_max = e->qps_max * e->recvs_per_qp;
    e->held = carve(c, e->held_max, sizeof(struct held));
    e->lacks = carve(c, e->qps_max, sizeof(struct lack));
    e->stalls = carve(c, e->qps_max, sizeof(struct stall));
    e->qps_made.words = carve(c, 1, bits_bytes(e->qps_max));
    e->beacons.heads = carve(c, 1, groups_bytes(1, e->qps_max));
    e->recvs_missing = carve(c, (size_t)e->qps_max * e->recvs_per_qp, sizeof(uint16_t));
    e->timer_count = o->transfers_max + o->peers_max + e->qps_max + 1;
    e->timers.entries = carve(c, timers_bytes(e->timer_count), 1);
    e->chain = carve(c, CHAIN_MAX + 1, sizeof(struct weir_wr));
    e->notifications.mask = power_of_two(o->notifications_max) - 1;
    e->notifications.entries =
        carve(c, (size_t)e->notifications.mask + 1, sizeof(weir_notification));
    e->completions.mask = power_of_two(o->transfers_max) - 1;
    e->completions.entries = carve(c, (size_t)e->completions.mask + 1, sizeof(weir_completion));
    e->events.entries = carve(c, EVENTS_KEPT, sizeof(weir_event));
}

size_t engine_bytes(const weir_engine_options *options) {
    weir_engine measure = {.options = *options, .qps_max = qps_wanted(options)};
    measure.options.transfers_max++;
    struct carver carver = {0};
    layout(&measure, &carver);
    return sizeof(weir_engine) + carver.used;
}

uint64_t engine_pinned_bytes(const weir_engine_options *options) {
    uint64_t buffers = (uint64_t)qps_wanted(options) * (options->recv_credits + CREDIT_RESERVE);
    return (2 * buffers + 1) * MESSAGE_BYTES;
}

/* Chains the free slots of every table. */
static void start_tables(weir_engine *e) {
    const weir_engine_options *o = &e->options;
    pool_init(&e->transfer_pool, e->transfer_pool.links, o->transfers_max);
    pool_init(&e->block_pool, e->block_pool.links, e->block_count);
    for (uint32_t i = 0; i < o->transfers_max; i++) {
        atomic_init(&e->transfers[i].id, handle_first(i));
        atomic_init(&e->transfers[i].status, WEIR_ESTALE);
    }
    for (uint32_t i = 0; i < o->peers_max; i++)
        e->peers[i].next_free = i + 1 < o->peers_max ? i + 1 : NONE;
    e->peer_free_last = o->peers_max - 1;
    for (uint32_t i = 0; i < o->memories_max; i++)
        e->regions.locals[i].next_free = i + 1 < o->memories_max ? i + 1 : NONE;
    for (uint32_t i = 0; i < o->remotes_max; i++)
        e->regions.remotes[i].next_free = i + 1 < o->remotes_max ? i + 1 : NONE;
    for (uint32_t i = 0; i < e->qps_max; i++) {
        e->qps[i].next_free = i + 1 < e->qps_max ? i + 1 : NONE;
        e->qps[i].session = NONE;
    }
    bits_init(&e->qps_made, e->qps_made.words, e->qps_max);
    groups_init(&e->beacons, e->beacons.heads, 1, e->qps_max);
    found_start(e, e->found_memory);
    e->regions.version = 1;
    e->regions.local_count = o->memories_max;
    e->regions.remote_count = o->remotes_max;
    e->peers_max = o->peers_max;
    receives_init(&e->receives, e->receives.buffers,
                  e->caps.srq ? e->qps_max * e->recvs_per_qp : 0);
    timers_init(&e->timers, e->timers.entries, e->timer_count);
    queue_init(&e->notifications, e->notifications.entries, sizeof(weir_notification),
               e->notifications.mask + 1);
    queue_init(&e->completions, e->completions.entries, sizeof(weir_completion),
               e->completions.mask + 1);
    queue_init(&e->events, e->events.entries, sizeof(weir_event), EVENTS_KEPT);
    e->spare_transfer = NONE;
    e->spare_blocks = PLAN_NO_BLOCK;
    e->spare_missing = SPARE_BLOCKS;
    submit_refill(e);
    e->run_head = e->run_tail = NONE;
    e->inflight_head = e->inflight_tail = e->inflight_turn = NONE;
    e->inflight_room = (int64_t)o->inflight_bytes_max;
}

/* The engine's own message buffers, which the device must know. */
static int register_buffers(weir_engine *e) {
    uint64_t bytes = (uint64_t)e->qps_max * e->recvs_per_qp * MESSAGE_BYTES;
    int rc = e->device_ops->mr_register(e->device, e->recv_bytes, bytes, 0, &e->recv_mr);
    if (rc != WEIR_OK)
        return rc;
    e->scratch = e->send_bytes + bytes;
    rc =
        e->device_ops->mr_register(e->device, e->send_bytes, bytes + MESSAGE_BYTES, 0, &e->send_mr);
    if (rc != WEIR_OK)
        e->device_ops->mr_release(e->device, &e->recv_mr);
    return rc;
}

static int listen_at(weir_engine *e, const char *address) {
    if (address == NULL)
        address = "127.0.0.1:0";
    if (strcmp(address, "none") == 0)
        return WEIR_OK;
    int rc = e->ports.control.ops->listen(e->ports.control.self, address, e->address,
                                          sizeof(e->address));
    e->listening = rc == WEIR_OK;
    memcpy(e->reach, e->address, sizeof(e->reach));
    return rc;
}

int engine_create(const weir_engine_options *options, const struct weir_ports *ports,
                  weir_engine **engine_out) {
    weir_engine_options limits;
    int rc = settings_resolve(options, NULL, &limits, NULL);
    if (rc != WEIR_OK)
        return rc;
    weir_engine *e = ports->env.ops->alloc(ports->env.self, sizeof(*e));
    if (e == NULL)
        return WEIR_ENOMEM;
    e->options = limits;
    e->serial = (limits.flags & WEIR_ENGINE_SERIAL) != 0;
    e->options.transfers_max++; /* the fast way's spare */
    e->ports = *ports;
    e->device_ops = ports->device_ops;
    e->device = ports->device;
    e->device_ops->query(e->device, &e->caps);
    if (e->caps.message_bytes_max < MESSAGE_BYTES) {
        rc = WEIR_ENOTSUP; /* a notification has to fit in a message */
        goto free_engine;
    }
    uint32_t inlined = limits.inline_bytes == WEIR_INLINE_NONE ? 0 : limits.inline_bytes;
    if (limits.inline_bytes != 0 && e->caps.inline_bytes_max > inlined)
        e->caps.inline_bytes_max = inlined;
    e->post_bytes_max =
        e->caps.post_bytes_max < UINT64_MAX ? e->caps.post_bytes_max : UINT64_MAX - 1;
    e->has_fd = ports->wait.ops->fd(ports->wait.self) >= 0;
    e->qps_max = qps_wanted(&limits);
    if (e->options.sq_depth > e->caps.sq_depth_max)
        e->options.sq_depth = e->caps.sq_depth_max;

    struct carver carver = {0};
    layout(e, &carver);
    e->arena_bytes = carver.used;
    e->arena = ports->env.ops->alloc(ports->env.self, e->arena_bytes);
    if (e->arena == NULL) {
        rc = WEIR_ENOMEM;
        goto free_engine;
    }
    carver = (struct carver){.base = e->arena};
    layout(e, &carver);
    start_tables(e);
    look_begin(e);
    ports->env.ops->entropy(ports->env.self, e->instance, sizeof(e->instance));
    ports->env.ops->entropy(ports->env.self, &e->found.seed, sizeof(e->found.seed));
    rc = register_buffers(e);
    if (rc != WEIR_OK)
        goto free_arena;
    rc = listen_at(e, limits.listen);
    if (rc != WEIR_OK)
        goto release_buffers;
    e->options.listen = NULL; /* the caller's strings are not kept */
    e->options.device = NULL;
    *engine_out = e;
    return WEIR_OK;

release_buffers:
    e->device_ops->mr_release(e->device, &e->send_mr);
    e->device_ops->mr_release(e->device, &e->recv_mr);
free_arena:
    ports->env.ops->free(ports->env.self, e->arena, e->arena_bytes);
free_engine:
    ports->env.ops->free(ports->env.self, e, sizeof(*e));
    return rc;
}

void engine_abandon(weir_engine *e) {
    struct weir_env env = e->ports.env;
    env.ops->free(env.self, e->arena, e->arena_bytes);
    env.ops->free(env.self, e, sizeof(*e));
}

/* ---- small services ---------------------------------------------------- */

/* Counts kept elsewhere, in short or by other threads, go where they belong. */
void engine_fold_stats(weir_engine *engine) {
    weir_stats *stats = &engine->stats;
    stats->transfers_ok += engine->fast.transfers;
    stats->transfers_inline += engine->fast.transfers;
    stats->posts += engine->fast.transfers;
    stats->wrs_posted += engine->fast.segments;
    stats->bytes_written += engine->fast.bytes[WEIR_OP_WRITE];
    stats->bytes_read += engine->fast.bytes[WEIR_OP_READ];
    memset(&engine->fast, 0, sizeof(engine->fast));
    stats->inflight_bytes = engine_inflight(engine);
    stats->eagain_transfers = atomic_load(&engine->refused[FULL_TRANSFERS]);
    stats->eagain_segments = atomic_load(&engine->refused[FULL_SEGMENTS]);
    stats->eagain_completions = atomic_load(&engine->refused[FULL_COMPLETIONS]);
    stats->submit_eagain =
        stats->eagain_transfers + stats->eagain_segments + stats->eagain_completions;
    stats->completions = engine->polled;
    engine_inflight_peak(engine);
}

const uint8_t *engine_instance(const weir_engine *engine) {
    return engine->instance;
}

/* A deadline before all that those who sleep know of is news to them. */
static void timer_set(weir_engine *engine, uint32_t number, uint64_t when_ns) {
    timers_set(&engine->timers, number, when_ns);
    if (when_ns < engine->slept_ns)
        engine->worked = true;
}

void timer_transfer(weir_engine *engine, const struct transfer *transfer, uint64_t when_ns) {
    timer_set(engine, transfer_index(engine, transfer), when_ns);
}

void timer_peer(weir_engine *engine, const struct peer *peer, uint64_t when_ns) {
    timer_set(engine, engine->options.transfers_max + (uint32_t)(peer - engine->peers), when_ns);
}

void timer_qp(weir_engine *engine, const struct qp *qp, uint64_t when_ns) {
    timer_set(engine,
              engine->options.transfers_max + engine->peers_max + (uint32_t)(qp - engine->qps),
              when_ns);
}

void timer_receives(weir_engine *engine, uint64_t when_ns) {
    timer_set(engine, engine->timer_count - 1, when_ns);
}

void engine_event(weir_engine *engine, weir_event_type_t type, uint64_t handle, int error,
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

void engine_run_later(weir_engine *engine, struct peer *peer) {
    if (peer->runnable)
        return;
    uint32_t index = (uint32_t)(peer - engine->peers);
    peer->runnable = true;
    peer->run_next = NONE;
    if (engine->run_tail == NONE)
        engine->run_head = index;
    else
        engine->peers[engine->run_tail].run_next = index;
    engine->run_tail = index;
}

/* ---- the step ---------------------------------------------------------- */

void engine_run_first(weir_engine *engine, uint64_t bytes_most) {
    struct peer *peer = &engine->peers[engine->run_head];
    engine->run_head = peer->run_next;
    if (engine->run_head == NONE)
        engine->run_tail = NONE;
    peer->runnable = false;
    post_service(engine, peer, bytes_most);
}

/* Each peer that was runnable when this began gets one turn. */
static bool run_peers(weir_engine *engine) {
    if (engine->run_head == NONE)
        return false;
    uint32_t last = engine->run_tail, index;
    do {
        index = engine->run_head;
        engine_run_first(engine, engine->post_bytes_max);
    } while (index != last && engine->run_head != NONE);
    return true;
}

/* looked: at everything, in this step. */
static int run_timers(weir_engine *engine, bool looked) {
    uint64_t next = timers_next(&engine->timers);
    uint32_t number;
    int count = 0;
    if (next == UINT64_MAX || next > engine_now(engine) ||
        !look_before_deadlines(engine, looked, &count))
        return count;
    uint64_t now = engine_now(engine);
    /* One pass over what was due: a timer set again for now waits for the next step. */
    uint32_t most = engine->timers.used;
    while (most-- > 0 && timers_take(&engine->timers, now, &number)) {
        count++;
        if (number < engine->options.transfers_max) {
            transfer_timer(engine, &engine->transfers[number]);
            continue;
        }
        number -= engine->options.transfers_max;
        if (number < engine->peers_max)
            peer_timer(engine, &engine->peers[number]);
        else if (number - engine->peers_max < engine->qps_max)
            session_qp_timer(engine, &engine->qps[number - engine->peers_max]);
        else
            recv_timer(engine);
    }
    return count;
}

static bool quiet(const weir_engine *engine) {
    return engine->qps_made.count == 0;
}

/* A device that failed goes when its last QP has: somebody may wait to remove it. */
static void let_go(weir_engine *engine) {
    const struct weir_device_ops *ops = engine->device_ops;
    if (!quiet(engine) || (ops->let_go != NULL && ops->let_go(engine->device) != WEIR_OK))
        return;
    atomic_store(&engine->device_gone, true);
    engine->worked = true;
}

/* One round of everything. slow: look at control channel and async events too, which
 * cost system calls; otherwise only when that is due. Returns how much was done. */
int engine_step(weir_engine *engine, bool slow) {
    int done = submit_drain_queue(engine) ? 1 : 0;
    int budget = (int)engine->options.poll_budget;
    int polled = complete_poll(engine, budget);
    bool looks = look_is_due(engine) || slow;
    done += polled;
    if (looks) {
        done += look_at_all(engine, budget - polled);
        if (engine->device_failed && !atomic_load(&engine->device_gone))
            let_go(engine);
    }
    if (atomic_load_explicit(&engine->attention, memory_order_relaxed)) {
        atomic_store(&engine->attention, false);
        complete_held(engine);
        done++;
    }
    if (engine->draining > 0)
        session_poll_marks(engine);
    done += run_timers(engine, looks);
    if (engine->inflight_due) {
        post_inflight(engine);
        done++;
    }
    if (run_peers(engine))
        done++;
    if (!engine->spare_ready)
        submit_refill(engine);
    if (done > 0)
        engine->worked = true;
    return done;
}

int weir_engine_progress(weir_engine *engine) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (!own_try_as(engine, OWNER_STEPS))
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

/* ---- the end ----------------------------------------------------------- */

static void fail_unheard(weir_engine *engine) {
    submit_drain_queue(engine);
    for (uint32_t i = 0; i < engine->peers_used; i++)
        transfer_unpark(engine, &engine->peers[i]);
}

/* The memory that the application registered, imported or had allocated. */
static void release_memory(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->regions.remote_count; i++) {
        struct region_remote *remote = &engine->regions.remotes[i];
        if (remote->live)
            engine->device_ops->mr_forget(engine->device, &remote->rmr);
        remote->live = false;
    }
    for (uint32_t i = 0; i < engine->regions.local_count; i++) {
        struct region_local *local = &engine->regions.locals[i];
        if (local->live || local->leaving)
            engine->device_ops->mr_release(engine->device, &local->mr);
        local->live = local->leaving = false;
    }
}

weir_engine *engine_end(weir_engine *engine) {
    engine_thread_stop(engine);
    own_enter(engine);
    submit_drain_queue(engine);
    engine->closing = true;
    uint64_t deadline = engine_clock(engine) + engine->options.teardown_timeout_ns;
    peer_close_all(engine);
    while (!left_nothing(engine) && engine_clock(engine) < deadline) {
        if (engine_step(engine, true) > 0)
            continue;
        uint64_t next = engine_next_deadline(engine), now = engine_clock(engine);
        uint64_t pause = next > now ? next - now : 0;
        const uint64_t most = 1000 * 1000; /* devices need not wake us for completions */
        engine->ports.wait.ops->sleep(engine->ports.wait.self, pause < most ? pause : most);
        engine->ports.wait.ops->clear(engine->ports.wait.self);
        engine->device_ops->disarm(engine->device);
    }
    fail_unheard(engine);
    release_memory(engine);
    engine_sleeping_close(engine);
    return engine_left_step(engine) ? NULL : engine;
}

void weir_engine_close(weir_engine *engine) {
    if (engine == NULL)
        return;
    if (engine->forked) {
        engine->on_abandon(&engine->ports);
        return;
    }
    if (engine->watched)
        fork_unwatch(&engine->fork_watch);
    struct weir_ports ports = engine->ports;
    void (*on_close)(struct weir_ports *, weir_engine *, void *) = engine->on_close;
    void *context = engine->on_close_context;
    weir_engine *left = engine_end(engine);
    if (on_close != NULL)
        on_close(&ports, left, context);
}

/* ---- invariants -------------------------------------------------------- */

static const char *verify_lists(const weir_engine *engine, const struct peer *peer) {
    uint32_t total = 0, suspects = 0;
    for (uint8_t l = 0; l < LISTS; l++) {
        uint32_t count = 0;
        for (uint32_t i = peer->lists[l].head; i != NONE; i = engine->transfers[i].next) {
            if (engine->transfers[i].list != l || ++count > engine->options.transfers_max)
                return "peer: a list is not what its members say";
            suspects += transfer_is_suspect(&engine->transfers[i]);
        }
        if (count != peer->lists[l].count)
            return "peer: a list's count is wrong";
        total += count;
    }
    uint32_t credit_waits = 0;
    for (uint8_t l = LIST_CREDITS; l < LISTS; l++)
        credit_waits += peer->lists[l].count;
    if (credit_waits != peer->credit_waits)
        return "peer: credit_waits differs from its lists";
    if (suspects != peer->suspects)
        return "peer: suspects differ from its lists";
    return total == peer->waits ? NULL : "peer: waits differs from its lists";
}

/* Bytes in flight, and the line of those who wait for them. */
static const char *verify_inflight(const weir_engine *engine) {
    uint64_t bytes = 0;
    uint32_t waiting = 0, in_line = 0, runs = 0;
    for (uint32_t i = 0; i < engine->qps_used; i++) {
        const struct ledger *ledger = &engine->qps[i].ledger;
        bytes += ledger_inflight(ledger);
        for (uint64_t s = ledger->head; s < ledger->tail; s++)
            runs += ledger->runs[s & ledger->mask].bytes > 0;
    }
    if (bytes != engine_inflight(engine))
        return "engine: bytes in flight differ from what the ledgers say";
    if (bytes > engine->options.inflight_bytes_max && runs > 1)
        return "engine: more bytes in flight than there may be";
    for (uint32_t i = 0; i < engine->peers_used; i++)
        waiting += engine->peers[i].inflight_waits;
    for (uint32_t i = engine->inflight_head; i != NONE; i = engine->peers[i].inflight_next) {
        if (!engine->peers[i].inflight_waits || ++in_line > engine->peers_used)
            return "engine: who waits in line for bytes in flight is not what peers say";
    }
    if (waiting != in_line)
        return "engine: the line for bytes in flight is miscounted";
    if (in_line > 0 && bytes == 0 && !engine->inflight_due)
        return "engine: peers wait for bytes in flight, and there are none";
    return NULL;
}

/* Every message that peers may send has a receive that waits for it. */
static const char *verify_receives(const weir_engine *engine) {
    const char *wrong = receives_verify(&engine->receives, engine->polled);
    if (wrong != NULL || !engine->caps.srq)
        return wrong;
    uint32_t credits = 0;
    for (uint32_t i = 0; i < engine->qps_used; i++) {
        const struct qp *qp = &engine->qps[i];
        if (qp->qp == NULL || qp->drain.state != DRAIN_IDLE)
            continue;
        const struct lack *lack = lack_of(engine, qp);
        if (lack->credits > lack->recvs || (lack->recvs > 0 && !engine->recv_held))
            return "qp: receives are missing of a queue that has what it needs";
        if (qp->connected)
            credits += qp->credit.window_local - (qp->credit.arrived - qp->credit.taken);
    }
    if (credits > engine->receives.lists[RECEIVE_POSTED].count)
        return "engine: peers have credits that no receive is there for";
    return NULL;
}

const char *engine_verify(const weir_engine *engine) {
    const char *inflight = verify_inflight(engine);
    if (inflight != NULL)
        return inflight;
    for (uint32_t i = 0; i < engine->qps_used; i++) {
        const struct qp *qp = &engine->qps[i];
        const char *wrong = qp->qp != NULL ? ledger_verify(&qp->ledger) : NULL;
        bool waits = qp->qp != NULL && qp->drain.state == DRAIN_BEACON;
        if (bits_has(&engine->qps_made, i) != (qp->qp != NULL) ||
            (groups_of(&engine->beacons, i) == 0) != waits)
            return "qp: it is not among those that there are, or that wait for a beacon";
        if (wrong != NULL)
            return wrong;
        if (qp->qp != NULL && qp->ledger.depth >= qp->granted)
            return "qp: the beacon has no slot of its own";
        uint32_t missing = lack_of(engine, qp)->recvs;
        if (qp->qp != NULL && missing > 0 && qp->drain.state == DRAIN_IDLE &&
            (engine->recv_pause_ns == 0 || qp->recvs + missing > engine->recvs_per_qp))
            return "qp: receives are missing, and nobody posts them";
    }
    const char *receives = verify_receives(engine);
    const char *found = receives != NULL ? receives : found_verify(engine);
    if (found != NULL)
        return found;
    for (uint32_t i = 0; i < engine->peers_used; i++) {
        const struct peer *peer = &engine->peers[i];
        if (peer->id == 0)
            continue;
        const char *wrong = verify_lists(engine, peer);
        if (wrong == NULL && peer->known)
            wrong = endpoint_verify(&peer->endpoint);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}
