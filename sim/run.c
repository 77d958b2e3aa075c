/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: the phases of a run.
 *
 * 1. Applications act while faults strike: the devices' and networks' own, and here
 *    crashes, restarts, leaving, cuts.
 * 2. The world heals: every cut is mended, but for one of the data between two nodes in
 *    some runs, and every node is up. All transfers must end within HEAL_BOUND_NS.
 * 3. Quiet. Slots are back, sessions are paired, notifications came once.
 * 4. Every engine is closed. Its NIC must be empty. */
#include "run.h"

#include <string.h>

#include "directory.h"
#include "doors.h"
#include "engine.h"
#include "mail.h"
#include "net.h"
#include "nic.h"
#include "workload.h"

enum {
    RUN_EVENTS_MAX = 8000000, /* more is a livelock in virtual time */
    RUN_STRIKE_NS = 1000000,  /* between two chances of a strike */
    RUN_RESTART_NS_MAX = 20000000,
    RUN_CUT_NS_MAX = 30000000,
    RUN_SLICE_NS = 1000000,
    RUN_ACT_NS_MAX = 300000000,     /* phase 1 ends then even if submits are left */
    RUN_QUIET_NS = 400000000,       /* teardowns and settles of phase 3 */
    RUN_MUTE_ROUNDS = 5,            /* of that, where transfers may break session after session, */
    RUN_SLOW_CONNECT_NS = 10000000, /* or a few of them while each takes so long to come up */
    RUN_LOOKS = 8,                  /* for slots at the end, ... */
    RUN_LOOK_NS = 1000000,          /* ... so far apart */
};

/* A connect attempt with all its backoff, twice, and the teardowns between. */
#define HEAL_BOUND_NS UINT64_C(3000000000)

/* BREAKS_MAX (16) sessions that come up and break. */
#define BREAKS_BOUND_NS UINT64_C(200000000)

/* Worlds of slow applications take their time. */
static uint64_t scaled(const struct sim_world *world, uint64_t ns) {
    uint32_t scale = world->config.work.scale;

    return scale == 0 ? ns : scale * ns;
}

static bool run_over(const struct sim_run *run) {
    return run->world->violation[0] != '\0';
}

static void run_slice(struct sim_run *run, uint64_t ns) {
    struct sim_world *world = run->world;
    uint64_t until = world->now_ns + ns;
    const struct sim_event *next;

    while (!run_over(run) && (next = sim_heap_peek(&world->heap)) != NULL && next->at_ns <= until) {
        (void)sim_step(world);
        if (world->events > RUN_EVENTS_MAX) {
            sim_violation(world, "S3 over %d events: something goes round for ever",
                          RUN_EVENTS_MAX);
        }
    }
    if (world->now_ns < until) {
        world->now_ns = until;
    }
}

/* ---- strikes ----------------------------------------------------------- */

static struct sim_run *run_of(struct sim_world *world) {
    return ((struct sim_app *)world->nodes[0].app)->run;
}

static void restart_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_app *app = world->nodes[event->node].app;

    if (!world->nodes[event->node].alive && !app_start(app)) {
        struct sim_event again = *event;

        again.at_ns = world->now_ns + scaled(world, RUN_STRIKE_NS);
        sim_schedule(world, &again);
    }
}

static void heal_event(struct sim_world *world, const struct sim_event *event) {
    uint32_t a = event->node;
    uint32_t b = (uint32_t)event->a;

    if (!world->faults) {
        return; /* healed already, or cut for good */
    }
    if (event->b == 0) {
        world->control_cut[a][b] = world->control_cut[b][a] = false;
    } else {
        world->data_cut[a][b] = world->data_cut[b][a] = false;
    }
    sim_trace(world, "%s between n%u and n%u heals", event->b == 0 ? "control" : "data", a, b);
}

static void reap_event(struct sim_world *world, const struct sim_event *event) {
    (void)event;
    sim_net_reap(world->net);
}

static uint32_t any_node(struct sim_world *world) {
    return (uint32_t)sim_below(&world->prng, world->config.nodes);
}

static void strike_end(struct sim_run *run, uint32_t victim, bool crash) {
    struct sim_world *world = run->world;
    struct sim_node *node = &world->nodes[victim];
    struct sim_event restart = {.fire = restart_event, .node = victim};
    struct sim_event reap = {.fire = reap_event};

    if (!node->alive || node->stepping) {
        return;
    }
    if (crash) {
        app_crash(&run->apps[victim], sim_below(&world->prng, 3) == 0);
    } else {
        app_leave(&run->apps[victim]);
    }
    restart.at_ns = world->now_ns + sim_below(&world->prng, scaled(world, RUN_RESTART_NS_MAX));
    sim_schedule(world, &restart);
    reap.at_ns = world->now_ns + scaled(world, RUN_RESTART_NS_MAX);
    sim_schedule(world, &reap);
}

static void strike_connecting(struct sim_run *run) {
    struct sim_world *world = run->world;

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        if (world->nodes[i].alive && sim_nic_connects(world->nodes[i].nic) &&
            sim_fault(world, world->config.work.leave_connecting)) {
            strike_end(run, i, false);
        }
    }
}

static void strike_cut(struct sim_run *run, bool data) {
    struct sim_world *world = run->world;
    uint32_t a = (uint32_t)sim_below(&world->prng, world->config.nodes);
    uint32_t b =
        (a + 1 + (uint32_t)sim_below(&world->prng, world->config.nodes - 1)) % world->config.nodes;
    bool oneway = sim_below(&world->prng, 3) == 0;
    struct sim_event heal = {.fire = heal_event, .node = a, .a = b, .b = data};

    sim_trace(world, "%s is cut from n%u to n%u%s", data ? "data" : "control", a, b,
              oneway ? "" : " and back");
    if (data) {
        world->data_cut[a][b] = true;
        world->data_cut[b][a] |= !oneway;
    } else {
        world->control_cut[a][b] = true;
        world->control_cut[b][a] |= !oneway;
    }
    heal.at_ns = world->now_ns + sim_below(&world->prng, scaled(world, RUN_CUT_NS_MAX));
    sim_schedule(world, &heal);
}

static void strike_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_run *run = run_of(world);
    const struct sim_workload_config *work = &world->config.work;
    struct sim_event again = *event;

    if (!world->faults) {
        return;
    }
    if (sim_fault(world, work->crash)) {
        strike_end(run, any_node(world), true);
    }
    if (sim_fault(world, work->leave)) {
        strike_end(run, any_node(world), false);
    }
    if (work->leave_connecting != 0) {
        strike_connecting(run);
    }
    if (sim_fault(world, work->cut_control)) {
        strike_cut(run, false);
    }
    if (sim_fault(world, work->cut_data)) {
        strike_cut(run, true);
    }
    again.at_ns = world->now_ns + sim_below(&world->prng, scaled(world, RUN_STRIKE_NS));
    sim_schedule(world, &again);
}

/* ---- phases ------------------------------------------------------------ */

static void phase_boot(struct sim_run *run) {
    struct sim_world *world = run->world;
    const struct sim_workload_config *work = &world->config.work;
    struct sim_event strike = {.fire = strike_event, .at_ns = world->now_ns};

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        struct sim_app *app = &run->apps[i];

        app->run = run;
        app->node = &world->nodes[i];
        app->node->app = app;
        app->act_at_ns =
            world->now_ns + 1000 + (work->crossing != 0 ? 0 : sim_below(&world->prng, 5000000));
    }
    doors_start(run);
    for (uint32_t i = 0; i < world->config.nodes && !run_over(run); i++) {
        if (!app_start(&run->apps[i])) {
            struct sim_event restart = {.fire = restart_event,
                                        .node = i,
                                        .at_ns = world->now_ns + scaled(world, RUN_STRIKE_NS)};

            sim_schedule(world, &restart);
        }
    }
    if ((work->crash | work->leave | work->leave_connecting | work->cut_control | work->cut_data) !=
        0) {
        sim_schedule(world, &strike);
    }
}

static void phase_act(struct sim_run *run) {
    uint64_t until = run->world->now_ns + scaled(run->world, RUN_ACT_NS_MAX);

    run->acting = true;
    run->submits_left = run->world->config.work.transfers;
    while (!run_over(run) && run->submits_left != 0 && run->world->now_ns < until) {
        run_slice(run, scaled(run->world, RUN_SLICE_NS));
    }
    run_slice(run, sim_below(&run->world->prng, scaled(run->world, RUN_SLICE_NS * 8)));
    run->acting = false;
}

/* The process is, and not for as long as faults last alone. */
static bool is_stopped(const struct sim_node *node) {
    return node->world->config.work.stops_kept && node->world->now_ns < node->stopped_until_ns;
}

static void heal(struct sim_run *run) {
    struct sim_world *world = run->world;

    sim_trace(world, "the world heals");
    world->faults = false;
    memset(world->control_cut, 0, sizeof(world->control_cut));
    memset(world->data_cut, 0, sizeof(world->data_cut));
    if (world->config.work.cut_kept) {
        uint32_t a = (uint32_t)sim_below(&world->prng, world->config.nodes);
        uint32_t b = (a + 1) % world->config.nodes;

        sim_trace(world, "data stays cut between n%u and n%u", a, b);
        world->data_cut[a][b] = world->data_cut[b][a] = true;
    }
    sim_net_reap(world->net);
    for (uint32_t i = 0; i < world->config.nodes; i++) {
        run->apps[i].take_at_ns = 0;
        if (!is_stopped(&world->nodes[i])) {
            world->nodes[i].paused_until_ns = world->nodes[i].stopped_until_ns = 0;
            if (world->nodes[i].nic != NULL) {
                sim_nic_go_on(world->nodes[i].nic);
            }
        }
        sim_node_wake(&world->nodes[i]);
    }
}

static uint32_t run_unfinished(const struct sim_run *run) {
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        count += app_unfinished(&run->apps[i]) + mail_unfinished(&run->apps[i]);
    }
    return count;
}

static bool any_stopped(const struct sim_run *run) {
    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        if (is_stopped(&run->world->nodes[i])) {
            return true;
        }
    }
    return false;
}

static void say_stuck(struct sim_run *run) {
    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        const struct sim_app *app = &run->apps[i];

        doors_say_unanswered(app);
        mail_say_stuck(app);
        for (uint32_t h = 0; h < app->held_count; h++) {
            const struct sim_transfer *transfer = &run->oracle->transfers[app->held[h]];

            if (!transfer->terminal) {
                sim_violation(
                    run->world, "S3 transfer %u (n%u to n%u) never ends; it waits for %s",
                    transfer->number, transfer->from, transfer->to,
                    weir_waiting_name(weir_transfer_waiting_for(app->engine, transfer->handle)));
            }
        }
    }
}

/* Each transfer to memory that is gone breaks up to BREAKS_MAX sessions, one after the other, where
 * no error names it. An application looks at its engine again when it has handled all notifications
 * that it found, which may be as many as there are transfers. */
static uint64_t heal_bound(const struct sim_world *world) {
    const struct sim_config *config = &world->config;
    uint64_t bound_ns = HEAL_BOUND_NS;
    uint64_t handler_ns = 0;

    for (uint32_t i = 0; i < config->nodes; i++) {
        if (config->work.handler_ns[i] > handler_ns) {
            handler_ns = config->work.handler_ns[i];
        }
    }

    if (config->work.memory_release != 0) {
        bound_ns += config->engine.transfers_max * BREAKS_BOUND_NS;
    }
    /* A connect to nobody ends with its time-out, and one that waited for a dial with another. */
    if (config->work.ask != 0) {
        bound_ns += 2 * config->engine.connect_timeout_ns;
    }
    if (config->work.stops_kept) {
        bound_ns += config->work.pause_ns_max;
    }
    return scaled(world, bound_ns) + handler_ns * config->work.transfers;
}

static void phase_finish(struct sim_run *run) {
    uint64_t until = run->world->now_ns + heal_bound(run->world);

    heal(run);
    while (!run_over(run) && (run_unfinished(run) != 0 || any_stopped(run))) {
        run_slice(run, scaled(run->world, RUN_SLICE_NS));
        if (run->world->now_ns >= until) {
            say_stuck(run);
        }
    }
}

/* An idle QP that failed without a flush, an event or a LAST_WQE: nobody can know of
 * it before it is used again. */
static bool failed_unseen(const struct sim_run *run, uint32_t node,
                          const struct sim_qp_info *info) {
    const struct sim_nic_config *nic = &run->world->config.nic[node];

    return info->state == SIM_QP_ERR && nic->srq && !nic->fatal_events && !nic->no_blame &&
           nic->last_wqe == SIM_LAST_WQE_NEVER;
}

/* Every QP that can carry data has its partner, and is its partner's. */
static void judge_pairs(struct sim_run *run, uint32_t node) {
    struct sim_world *world = run->world;
    struct sim_qp_info mine, theirs;
    uint32_t at = 0;

    while ((at = sim_nic_qp_next(world->nodes[node].nic, at, &mine)) != 0) {
        bool found = false;
        uint32_t there = 0;

        if (mine.state != SIM_QP_RTS || world->nodes[mine.remote_node].nic == NULL) {
            continue;
        }
        while (!found &&
               (there = sim_nic_qp_next(world->nodes[mine.remote_node].nic, there, &theirs)) != 0) {
            found = theirs.uid == mine.remote_uid && theirs.remote_uid == mine.uid &&
                    (theirs.state == SIM_QP_RTS || failed_unseen(run, mine.remote_node, &theirs));
        }
        if (!found) {
            sim_violation(world, "H2 n%u qp %u is connected to a QP of n%u that does not answer it",
                          node, mine.qpn, mine.remote_node);
        }
    }
}

/* The NIC's own word: nothing holds a slot, and no session has left QPs behind. */
static void judge_qps(struct sim_run *run, uint32_t node) {
    struct sim_world *world = run->world;
    uint32_t most = world->config.engine.qp_count[node] * (world->config.nodes - 1);
    struct sim_qp_info info;
    uint32_t count = 0;
    uint32_t at = 0;

    while ((at = sim_nic_qp_next(world->nodes[node].nic, at, &info)) != 0) {
        count++;
        if (info.state == SIM_QP_RTS && info.sq_used != 0) {
            sim_violation(world, "S1 n%u qp %u: %u slots taken when quiet", node, info.qpn,
                          info.sq_used);
        }
    }
    if (count > most) {
        sim_violation(world, "T3 n%u has %u QPs when quiet, for %u peers", node, count,
                      world->config.nodes - 1);
    }
}

/* No transfer is left, so none uses memory: also none that nobody observes. */
static void judge_memory(struct sim_run *run, uint32_t node) {
    for (uint32_t r = 0; r < SIM_REGIONS; r++) {
        struct sim_region *region = &run->oracle->regions[node][r];
        int error;

        if (!region->registered) {
            continue;
        }
        error = weir_memory_release(run->apps[node].engine, region->memory);
        if (error != 0) {
            sim_violation(run->world, "S12 n%u: release of region %u when quiet: %s", node, r,
                          weir_error_name(error));
            continue;
        }
        oracle_region_released(run->oracle, node, r);
    }
}

/* The transfers and slots that an engine holds for one of its peers. */
static bool holds(const struct sim_app *app, uint32_t peer, weir_peer_info *info) {
    *info = (weir_peer_info)WEIR_PEER_INFO_INIT;
    return app->engine != NULL && app->peers[peer].open &&
           weir_peer_query(app->engine, app->peers[peer].handle, info) == 0 &&
           (info->sq_used != 0 || info->pending != 0);
}

static bool holds_pending(const struct sim_run *run) {
    weir_peer_info info;

    for (uint32_t n = 0; n < run->world->config.nodes; n++) {
        for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
            if (holds(&run->apps[n], i, &info) && info.pending != 0) {
                return true;
            }
        }
    }
    return false;
}

/* Nothing is under way, also of transfers that nobody observes. */
static void judge_flushed(struct sim_run *run, uint32_t node) {
    int error = weir_engine_flush(run->apps[node].engine, 0);

    if (error != 0) {
        sim_violation(run->world, "S20 n%u: quiet, and not flushed: %s", node,
                      weir_error_name(error));
    }
}

/* A peer without a connection is sent an empty write each eighth of a connect time-out. The slot of
 * one that is under way comes back before the next is due; one that is lost does not. */
static void await_signs_of_life(struct sim_run *run) {
    for (uint32_t look = 0; look < RUN_LOOKS; look++) {
        weir_peer_info info;
        bool any = false;

        for (uint32_t n = 0; n < run->world->config.nodes; n++) {
            for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
                any |= holds(&run->apps[n], i, &info) && info.pending == 0;
            }
        }
        if (!any || run_over(run)) {
            return;
        }
        run_slice(run, scaled(run->world, RUN_LOOK_NS));
    }
}

static void judge_slots(struct sim_run *run, uint32_t node) {
    weir_peer_info info;

    for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
        if (holds(&run->apps[node], i, &info)) {
            sim_violation(run->world, "S1 n%u to n%u: %u slots and %u transfers held when quiet",
                          node, i, info.sq_used, info.pending);
        }
    }
}

/* Whether a QP that is connected has a partner which is being connected to it: such a transfer
 * broke their last session just now. */
static bool any_connects(const struct sim_run *run) {
    struct sim_world *world = run->world;
    struct sim_qp_info mine, theirs;
    bool found = false;

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        uint32_t at = 0;

        while (world->nodes[i].nic != NULL &&
               (at = sim_nic_qp_next(world->nodes[i].nic, at, &mine)) != 0) {
            uint32_t there = 0;

            while (mine.state == SIM_QP_RTS && world->nodes[mine.remote_node].nic != NULL &&
                   (there = sim_nic_qp_next(world->nodes[mine.remote_node].nic, there, &theirs)) !=
                       0) {
                found |= theirs.uid == mine.remote_uid && theirs.remote_uid == mine.uid &&
                         theirs.state == SIM_QP_INIT;
            }
        }
    }
    return found;
}

/* How many rounds of quiet: a transfer that nobody observes may still break session after
 * session. */
static uint32_t quiet_rounds(const struct sim_run *run) {
    if (run->world->config.work.cut_kept) {
        return RUN_MUTE_ROUNDS;
    }
    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        const struct sim_nic_config *nic = &run->world->config.nic[i];

        if (nic->mute_errors || nic->no_blame || nic->connect_ns_max >= RUN_SLOW_CONNECT_NS) {
            return RUN_MUTE_ROUNDS;
        }
    }
    return 1;
}

/* The notifications that the applications have not handled take them this long at most. */
static void handle_all(struct sim_run *run) {
    const struct sim_workload_config *work = &run->world->config.work;
    uint64_t longest_ns = 0;

    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        uint64_t each_ns = work->handler_ns[i] + work->pace_ns[i];

        longest_ns = each_ns > longest_ns ? each_ns : longest_ns;
    }
    if (longest_ns != 0) {
        run_slice(run, work->transfers * longest_ns);
    }
}

/* Each node hears in the end what the others have published. */
static void await_names(struct sim_run *run) {
    uint64_t until = run->world->now_ns + 2 * heal_bound(run->world);
    uint32_t unsettled = 1;

    while (run->directory != NULL && unsettled > 0 && !run_over(run)) {
        bool last = run->world->now_ns >= until;

        unsettled = 0;
        for (uint32_t i = 0; i < run->world->config.nodes; i++) {
            unsettled += directory_unsettled(&run->apps[i], last);
        }
        if (unsettled > 0) {
            run_slice(run, scaled(run->world, RUN_QUIET_NS));
        }
    }
}

static void phase_quiet(struct sim_run *run) {
    uint64_t until;

    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        app_release_finished(&run->apps[i]);
    }
    handle_all(run);
    await_names(run);
    until = run->world->now_ns + heal_bound(run->world);
    for (uint32_t i = 0; i < quiet_rounds(run); i++) {
        run_slice(run, scaled(run->world, RUN_QUIET_NS));
    }
    /* Transfers that nobody observes break session after session, too. */
    while (!run_over(run) && run->world->now_ns < until &&
           (holds_pending(run) || any_connects(run))) {
        run_slice(run, scaled(run->world, RUN_QUIET_NS));
    }
    await_signs_of_life(run);
    for (uint32_t i = 0; i < run->world->config.nodes && !run_over(run); i++) {
        if (run->apps[i].engine == NULL) {
            sim_violation(run->world, "E6 n%u has no engine at the end", i);
            break;
        }
        judge_slots(run, i);
        judge_flushed(run, i);
        judge_qps(run, i);
        judge_pairs(run, i);
        if (sim_below(&run->world->prng, 2) == 0) { /* or weir_engine_close has to do it */
            judge_memory(run, i);
        }
    }
    oracle_final(run->oracle);
    mail_final(run->mail);
}

static void phase_close(struct sim_run *run) {
    for (uint32_t i = 0; i < run->world->config.nodes && !run_over(run); i++) {
        app_leave(&run->apps[i]);
    }
}

/* After a violation: nothing that is left is worth a judgement. */
static void run_abandon(struct sim_run *run) {
    for (uint32_t i = 0; i < run->world->config.nodes; i++) {
        if (run->apps[i].engine != NULL) {
            app_crash(&run->apps[i], true);
        }
    }
}

void sim_run(const struct sim_config *config, uint64_t seed, FILE *trace,
             struct sim_result *result_out) {
    static const struct sim_result NOTHING;
    struct sim_run run = {0};

    *result_out = NOTHING;
    run.world = sim_world_open(config, seed, trace);
    run.oracle = run.world == NULL ? NULL : oracle_open(run.world);
    run.mail = config->work.mail ? mail_open(&run) : NULL;
    run.directory = config->work.names ? directory_open(&run) : NULL;
    if (run.oracle == NULL || (config->work.mail && run.mail == NULL) ||
        (config->work.names && run.directory == NULL)) {
        snprintf(result_out->violation, sizeof(result_out->violation), "out of memory");
        return;
    }
    phase_boot(&run);
    phase_act(&run);
    phase_finish(&run);
    if (!run_over(&run)) {
        phase_quiet(&run);
    }
    if (!run_over(&run)) {
        phase_close(&run);
    }
    run_abandon(&run);
    result_out->events = run.world->events;
    result_out->digest = run.world->digest;
    result_out->virtual_ns = run.world->now_ns;
    result_out->transfers_ok = run.oracle->ok;
    result_out->transfers_failed = run.oracle->failed;
    result_out->notifications = run.oracle->notifications;
    memcpy(result_out->violation, run.world->violation, sizeof(result_out->violation));
    mail_close(run.mail);
    directory_close(run.directory);
    oracle_close(run.oracle);
    sim_world_close(run.world);
}
