/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c: how a seed chooses a world.
 *
 * Swarm testing (Groce et al., ISSTA 2012): a seed switches each fault on or off,
 * and only then gives it a rate, so that some runs have one fault at a high rate
 * and nothing to mask it. A profile narrows that to one theme.
 *
 * This file is long because it draws all that a world may differ in. */
#include "profile.h"

#include <string.h>

#include "prng.h"
#include "wire.h"

/* Whether nothing may harm a transfer. */
static bool is_calm(const struct sim_config *config) {
    return strcmp(config->profile, "calm") == 0 || strcmp(config->profile, "prompt") == 0;
}

/* A fault that most runs do not have, at a rate of up to max_per_64k. */
static uint32_t maybe(struct sim_prng *prng, uint32_t one_in, uint32_t max_per_64k) {
    if (sim_below(prng, one_in) != 0) {
        return 0;
    }
    return (uint32_t)sim_between(prng, 1, max_per_64k);
}

static uint32_t pick(struct sim_prng *prng, const uint32_t *values, uint32_t count) {
    return values[sim_below(prng, count)];
}

#define PICK(prng, ...)                                                                            \
    pick((prng), (const uint32_t[]){__VA_ARGS__},                                                  \
         (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)))

/* ---- parts ------------------------------------------------------------- */

static void nic_base(struct sim_prng *prng, struct sim_nic_config *nic) {
    nic->ordered = true;
    nic->completes_inline = sim_below(prng, 4) == 0;
    nic->srq = sim_below(prng, 3) == 0;
    nic->import_waits = sim_below(prng, 2) == 0;
    nic->cq_clean = sim_below(prng, 2) == 0;
    nic->fatal_events = sim_below(prng, 2) == 0;
    nic->nak_kills_target = sim_below(prng, 2) == 0;
    nic->import_maps = sim_below(prng, 3) == 0;
    nic->import_waits &= nic->import_maps;
    nic->last_wqe = (uint32_t)sim_below(prng, SIM_LAST_WQE_COUNT);
    nic->grant = (uint32_t)sim_below(prng, SIM_GRANT_COUNT);
    nic->sq_depth_max = PICK(prng, 2, 8, 128, 1024);
    nic->rq_depth_max = 4096;
    nic->mtu_max = PICK(prng, 1024, 4096);
    nic->rd_atomic_max = PICK(prng, 1, 16);
    nic->inline_bytes_max = PICK(prng, 0, 64, 512);
    nic->pieces_max = PICK(prng, 1, 2, 4);
    nic->gathers_max = nic->pieces_max == 1 ? 0 : nic->pieces_max == 2 ? 9 : 3;
    nic->retry_count = PICK(prng, 1, 3, 7);
    nic->message_bytes_max = PICK(prng, 288, 400, 1u << 30);
    nic->post_bytes_max = sim_below(prng, 3) == 0 ? PICK(prng, 1, 256, 4096) : UINT64_MAX;
    nic->latency_min_ns = PICK(prng, 500, 2000);
    nic->latency_max_ns = nic->latency_min_ns + PICK(prng, 100, 3000, 50000);
    nic->late_ns_max = sim_below(prng, 3) == 0 ? PICK(prng, 10000, 500000) : 0;
    nic->flush_ns_max = PICK(prng, 0, 5000, 200000);
    nic->rto_ns = PICK(prng, 20000, 100000);
}

static void nic_faults(struct sim_prng *prng, struct sim_nic_config *nic) {
    nic->destroy_fails_max = maybe(prng, 3, 3);
    nic->post_eagain = maybe(prng, 3, 12000);
    nic->post_edevice = maybe(prng, 8, 400);
    nic->post_einval = maybe(prng, 16, 400);
    nic->qp_fail = maybe(prng, 4, 800);
    nic->packet_loss = maybe(prng, 6, 2000);
    nic->srq_swallow = nic->srq ? maybe(prng, 4, 20000) : 0;
    nic->mr_fail = maybe(prng, 16, 4000);
    nic->create_fail = maybe(prng, 10, 6000);
    nic->connect_fail = maybe(prng, 10, 6000);
}

static void net_base(struct sim_prng *prng, struct sim_net_config *net) {
    net->latency_min_ns = PICK(prng, 5000, 50000);
    net->latency_max_ns = net->latency_min_ns + PICK(prng, 1000, 100000, 2000000);
}

static void net_faults(struct sim_prng *prng, struct sim_net_config *net) {
    net->loss = maybe(prng, 3, 20000);
    net->duplicate = maybe(prng, 3, 20000);
    net->reorder = maybe(prng, 3, 20000);
    net->break_on_send = maybe(prng, 5, 4000);
    net->refuse = maybe(prng, 5, 16000);
    net->full = maybe(prng, 6, 4000);
}

static void work_base(struct sim_prng *prng, struct sim_workload_config *work) {
    work->transfers = (uint32_t)sim_between(prng, 10, 60);
    work->segments_max = PICK(prng, 2, 16, 64, 400);
    work->bytes_max = PICK(prng, 16, 200, 1500);
    work->concurrent_max = PICK(prng, 1, 4, 32);
    work->think_ns_max = PICK(prng, 1000, 20000, 300000);
    work->pause_ns_max = PICK(prng, 100000, 3000000);
    work->notify = PICK(prng, 0, 16000, 40000, 65536);
    work->reads = PICK(prng, 0, 16000, 40000);
    work->queued = PICK(prng, 0, 30000, 65536);
    work->once = maybe(prng, 3, 30000);
}

static void work_faults(struct sim_prng *prng, struct sim_workload_config *work) {
    work->deadline = maybe(prng, 3, 20000);
    work->cancel = maybe(prng, 3, 12000);
    work->early_release = maybe(prng, 3, 12000);
    work->bad_segment = maybe(prng, 3, 8000);
    work->memory_release = maybe(prng, 8, 3000);
    work->peer_close = maybe(prng, 8, 3000);
    work->pause = maybe(prng, 4, 5000);
    work->slow_taker = maybe(prng, 4, 10000);
    work->crash = maybe(prng, 4, 20000);
    work->leave = maybe(prng, 5, 20000);
    work->cut_control = maybe(prng, 5, 20000);
    work->cut_data = maybe(prng, 5, 20000);
}

/* In some worlds one device fails at some time. From a stream of its own, too. */
static void device_failures(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xdead));
    if (sim_below(&prng, 8) == 0 && !is_calm(config)) {
        config->nic[sim_below(&prng, config->nodes)].device_fail = PICK(&prng, 1000, 8000, 30000);
    }
}

/* Ways of devices and applications that are no faults. They have a stream of their own,
 * so that the rest of a seed stays what it was before there were as many. */
static void habits(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;
    bool rings, no_blame;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xab17));
    rings = sim_below(&prng, 2) == 0;
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->qp_rings = rings && sim_below(&prng, 4) != 0;
        nic->recv_rings = sim_below(&prng, 2) == 0 && nic->qp_rings;
        nic->ring_turn_max = PICK(&prng, 1, 4, 8);
        nic->mute_errors = sim_below(&prng, 6) == 0;
        nic->connect_ns_max = PICK(&prng, 0, 0, 2, 20000, 5000000);
        if (sim_below(&prng, 8) == 0 && !is_calm(config)) {
            nic->qps_max = (uint32_t)sim_between(&prng, 4, 12);
        }
    }
    device_failures(seed, config);
    config->work.block = maybe(&prng, 3, 40000);
    config->work.wait = maybe(&prng, 4, 10000);
    config->work.allocate = maybe(&prng, 2, SIM_ALWAYS);
    config->work.hasty = maybe(&prng, 3, 40000);
    config->engine.backoff_timeout_ns = PICK(&prng, 1000, 20000, 200000);
    config->work.cut_kept = sim_below(&prng, 12) == 0 && !is_calm(config);
    for (uint32_t i = 0; config->work.cut_kept && i < config->nodes; i++) {
        config->nic[i].rto_ns = PICK(&prng, 100000, 2000000, 10000000);
    }
    config->engine.inflight_bytes_max = PICK(&prng, 0, 0, 1, 300, 4000, 30000);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].news_first = sim_below(&prng, 4) == 0;
    }
    for (uint32_t i = 0; i < config->nodes && !is_calm(config); i++) {
        config->nic[i].recv_refuse = maybe(&prng, 4, 300);
        config->nic[i].recv_refuse_ns_max = PICK(&prng, 50000, 2000000, 30000000);
    }
    no_blame = sim_below(&prng, 5) == 0; /* of the network, so of all or none */
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].no_blame = no_blame;
    }
}

/* Devices that see what their peers released. From a stream of its own, too. */
static void seeing(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x5ee5));
    if (sim_below(&prng, 3) != 0) {
        return;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].sees_release = sim_below(&prng, 4) != 0;
    }
}

/* The settings of engines, from a stream of its own, too. */
static void tuned(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x7d2e));
    if (sim_below(&prng, 2) == 0) {
        return;
    }
    config->engine.signal_interval = PICK(&prng, 0, 1, 2, 5, 65536);
    config->engine.inline_bytes = PICK(&prng, 0, UINT32_MAX, 1, 64, 4096);
    config->engine.poll_budget = PICK(&prng, 0, 1, 2, 40);
}

/* Engines that give each other unequal numbers of credits. From a stream of its own, too. */
static void unequal(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xc4ed17));
    if (sim_below(&prng, 4) != 0) {
        return;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->engine.credits_of[i] = PICK(&prng, 0, 1, 2, 8, 64, 128);
    }
}

/* Nodes that some dial under a second name. From a stream of its own, too. */
static void second_names(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x2a3e));
    if (sim_below(&prng, 4) != 0) {
        return;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        for (uint32_t to = 0; to < config->nodes; to++) {
            config->work.second_name[i][to] = sim_below(&prng, 2) == 0;
        }
    }
}

/* Devices that lose a timer of theirs, and do not notice. From a stream of its own, too. */
static void stills(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x57a1));
    for (uint32_t i = 0; i < config->nodes && !is_calm(config); i++) {
        config->nic[i].still = maybe(&prng, 6, 300);
    }
}

/* Connects that take long, longer than a teardown may (and on both sides together less than an
 * attempt), and engines that are closed meanwhile. From a stream of its own, too. */
static void slow_connects(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xc105e));
    if (sim_below(&prng, 8) != 0 || is_calm(config) || strcmp(config->profile, "refused") == 0) {
        return;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].connect_ns_max = PICK(&prng, 20000, 5000000, 55000000, 70000000);
    }
    /* A transfer that a target refuses may break session after session: BREAKS_MAX (16) of them,
     * and REPLAYS_MAX (64) where other work comes through. */
    config->work.bad_segment = config->work.memory_release = 0;
    if (!config->work.doors) {
        config->work.leave_connecting = PICK(&prng, 300, 3000, 30000);
    }
}

/* Many small notified writes on several QPs: more than a word of the windows, to a
 * target that is late to look. */
static void busy_notify(struct sim_prng *prng, struct sim_config *config) {
    struct sim_workload_config *work = &config->work;

    work->transfers = (uint32_t)sim_between(prng, 200, 500);
    work->segments_max = 2;
    work->bytes_max = 16;
    work->concurrent_max = 32;
    work->think_ns_max = PICK(prng, 1000, 5000);
    work->notify = SIM_ALWAYS;
    work->reads = 0;
    work->pause = maybe(prng, 2, 3000);
    work->pause_ns_max = 3000000;
    config->engine.transfers_max = 64;
    config->engine.recv_credits = PICK(prng, 8, 64, 64);
    config->engine.notifications_max = PICK(prng, 4, 512);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->engine.qp_count[i] = PICK(prng, 2, 3, 4);
        config->engine.sq_depth[i] = PICK(prng, 8, 33, 128);
    }
}

static void engine_base(struct sim_prng *prng, struct sim_config *config) {
    struct sim_engine_config *engine = &config->engine;

    engine->transfers_max = PICK(prng, 4, 16, 64);
    engine->segments_max = 2048;
    engine->recv_credits = PICK(prng, 2, 3, 8, 64);
    engine->notifications_max = PICK(prng, 4, 64);
    engine->connect_timeout_ns = 200000000;
    engine->retransmit_ns = 1000000;
    engine->teardown_timeout_ns = 50000000;
    engine->settle_grace_ns = 2000000;
    engine->stall_timeout_ns = 100000000;
    for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
        engine->qp_count[i] = PICK(prng, 1, 1, 2, 4);
        engine->sq_depth[i] = PICK(prng, 2, 3, 8, 33, 128);
    }
}

/* Applications that work between two looks at their engine, or look at a pace of their own. Times
 * are those of the library's defaults, or near them. */
static void slow_applications(struct sim_prng *prng, struct sim_config *config) {
    struct sim_workload_config *work = &config->work;
    struct sim_engine_config *engine = &config->engine;
    bool paced = sim_below(prng, 2) == 0;

    work->scale = 50;
    engine->connect_timeout_ns = UINT64_C(10000000000);
    engine->stall_timeout_ns = UINT64_C(10000000000);
    engine->retransmit_ns = PICK(prng, 10000000, 50000000);
    engine->settle_grace_ns = 100000000;
    engine->teardown_timeout_ns = PICK(prng, 100000000, 400000000, 4000000000);
    work->think_ns_max = PICK(prng, 20000, 1000000, 300000000);
    work->rest_ns_max = 300000000;
    work->pause = maybe(prng, 2, 12000);
    work->pause_ns_max = UINT64_C(15000000000);
    work->steady = 1;
    /* With more to do, or less room, one round a second takes minutes. */
    work->segments_max = 4;
    work->bytes_max = PICK(prng, 16, 200);
    engine->poll_budget = paced ? PICK(prng, 0, 64) : PICK(prng, 0, 1, 4);
    engine->inflight_bytes_max = engine->inflight_bytes_max != 0 ? 30000 : 0;
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].sq_depth_max = 128;
        engine->sq_depth[i] = PICK(prng, 8, 33, 128);
        work->pace_ns[i] = paced ? PICK(prng, 0, 10000000, 100000000, 1000000000) : 0;
        work->handler_ns[i] = PICK(prng, 0, 5000000, 150000000, 1000000000);
    }
}

/* Nodes that lack what a session takes, for longer than a connect may take. A lack is known: it
 * ends no transfer with ECONNECT, which says that nobody knows. From a stream of its own, too. */
static void lacks(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x1ac5));
    if (sim_below(&prng, strcmp(config->profile, "refused") == 0 ? 2 : 8) != 0 || is_calm(config)) {
        return;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->lack = maybe(&prng, 2, 30000);
        nic->lack_ns_max = config->engine.connect_timeout_ns * PICK(&prng, 1, 2, 8) / 4;
        nic->lacks_memory = sim_below(&prng, 2) == 0;
    }
}

/* Nodes that all say that they are where the next one is, and call the one before: each is visited
 * with the address of the one that it calls, and so asks there before it listens. From a stream of
 * its own, too. */
static void rings(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xc1a1));
    if (strcmp(config->profile, "prompt") != 0 || sim_below(&prng, 8) != 0) {
        return;
    }
    config->work.ring = true;
    config->work.crossing = SIM_ALWAYS;
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->work.told[i] = SIM_TOLD_ANOTHERS;
    }
}

/* Applications that connect without a transfer, and know peers by more than one name. From a stream
 * of its own, too. */
static void asks(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xa5c5));
    config->work.ask = maybe(&prng, 2, UINT16_MAX / PICK(&prng, 2, 16));
}

/* Nodes of one host, which vouches for what each tells. From a stream of its own, too. */
static void one_host(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x1057));
    config->work.one_host = config->work.doors && sim_below(&prng, 2) == 0;
}

/* ---- profiles ---------------------------------------------------------- */

/* The addresses that nodes tell. */
static void tell(struct sim_prng *prng, struct sim_workload_config *work, uint32_t nodes) {
    for (uint32_t i = 0; i < nodes; i++) {
        work->told[i] = PICK(prng, SIM_TOLD_TRUE, SIM_TOLD_TRUE, SIM_TOLD_WILDCARD,
                             SIM_TOLD_ANOTHERS, SIM_TOLD_NOBODYS);
    }
}

static void fill_calm(struct sim_prng *prng, struct sim_config *config) {
    (void)prng;
    (void)config; /* no fault at all: every transfer succeeds */
}

/* Engines with the pauses of real ones, and control that is reset some times, or whenever a message
 * of one type passes. No transfer is harmed. */
static void fill_prompt(struct sim_prng *prng, struct sim_config *config) {
    config->engine.connect_timeout_ns = UINT64_C(10000000000);
    config->engine.retransmit_ns = 20000000;
    config->net.break_on_send = maybe(prng, 2, 10000);
    config->net.breaks_max = PICK(prng, 1, 2, 3);
    config->net.breaks_type = maybe(prng, 4, WIRE_READY);
    config->work.prompt = config->net.breaks_type == 0;
    tell(prng, &config->work, config->nodes);
}

static void fill_swarm(struct sim_prng *prng, struct sim_config *config) {
    bool device = sim_below(prng, 3) != 0;
    bool net = sim_below(prng, 2) == 0;
    bool work = sim_below(prng, 4) != 0;

    for (uint32_t i = 0; i < config->nodes; i++) {
        if (device) {
            nic_faults(prng, &config->nic[i]);
        }
    }
    if (net) {
        net_faults(prng, &config->net);
    }
    if (work) {
        work_faults(prng, &config->work);
    }
    if (sim_below(prng, 24) == 0) {
        busy_notify(prng, config);
    }
    if (sim_below(prng, 24) == 0) {
        slow_applications(prng, config);
    }
}

static void fill_handshake(struct sim_prng *prng, struct sim_config *config) {
    net_faults(prng, &config->net);
    config->work.transfers = (uint32_t)sim_between(prng, 2, 8);
    config->work.segments_max = 2;
    config->work.crossing = SIM_ALWAYS;
    config->work.crash = maybe(prng, 2, 40000);
    config->work.leave = maybe(prng, 3, 40000);
    config->work.cut_control = maybe(prng, 3, 30000);
    config->work.pause = maybe(prng, 3, 10000);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].create_fail = maybe(prng, 6, 10000);
        config->nic[i].connect_fail = maybe(prng, 6, 10000);
    }
}

static void fill_teardown(struct sim_prng *prng, struct sim_config *config) {
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].srq = sim_below(prng, 4) != 0;
        config->nic[i].qp_fail = maybe(prng, 2, 4000);
        config->nic[i].destroy_fails_max = maybe(prng, 2, 5);
        config->nic[i].srq_swallow = config->nic[i].srq ? maybe(prng, 2, 40000) : 0;
        config->nic[i].late_ns_max = PICK(prng, 0, 100000, 2000000);
    }
    config->work.leave = maybe(prng, 2, 40000);
    config->work.peer_close = maybe(prng, 2, 10000);
    config->work.cancel = maybe(prng, 2, 12000);
}

static void fill_depth(struct sim_prng *prng, struct sim_config *config) {
    config->work.segments_max = PICK(prng, 16, 100, 400);
    config->work.bytes_max = PICK(prng, 1, 64);
    config->work.concurrent_max = PICK(prng, 8, 32);
    config->engine.chain_max = PICK(prng, 0, 1, 2, 7);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->engine.sq_depth[i] = (uint32_t)sim_between(prng, 2, 24);
        config->nic[i].post_eagain = maybe(prng, 2, 30000);
        config->nic[i].completes_inline = false;
    }
}

static void fill_notify(struct sim_prng *prng, struct sim_config *config) {
    config->work.notify = SIM_ALWAYS;
    config->work.slow_taker = maybe(prng, 2, 20000);
    config->engine.recv_credits = PICK(prng, 2, 3, 4);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].qp_fail = maybe(prng, 2, 3000);
        config->nic[i].packet_loss = maybe(prng, 4, 2000);
    }
    config->work.crash = maybe(prng, 4, 20000);
}

static void fill_skew(struct sim_prng *prng, struct sim_config *config) {
    busy_notify(prng, config);
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->srq = sim_below(prng, 4) == 0;
        nic->sq_depth_max = 128;
        nic->qp_rings = true;
        nic->recv_rings = !nic->srq && sim_below(prng, 2) == 0;
        nic->qp_fail = maybe(prng, 3, 300);
    }
    config->work.peer_close = maybe(prng, 3, 40); /* acts come by the microsecond */
    config->work.leave = maybe(prng, 4, 10000);
    config->work.cancel = maybe(prng, 3, 2000);
}

static void fill_unordered(struct sim_prng *prng, struct sim_config *config) {
    fill_swarm(prng, config);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].ordered = false;
        config->nic[i].completes_inline = false;
    }
}

/* Faults of the ways between nodes alone: the devices work, and no node leaves. */
static void fill_doors(struct sim_prng *prng, struct sim_config *config) {
    struct sim_workload_config *work = &config->work;

    work->doors = true;
    work->cut_kept = false;
    work->think_ns_max = PICK(prng, 20000, 500000, 20000000);
    work->transfers = (uint32_t)sim_between(prng, 20, 100);
    work->notify = SIM_ALWAYS / 2;
    work->bad_segment = work->hasty = 0;
    work->reset = maybe(prng, 2, 4000);
    work->long_cut = maybe(prng, 2, 600);
    work->stranger = maybe(prng, 2, SIM_ALWAYS);
    if (sim_below(prng, 3) == 0) {
        net_faults(prng, &config->net);
        config->net.refuse = 0;
    }
    tell(prng, work, config->nodes);
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->still = nic->recv_refuse = nic->qps_max = 0;
        nic->create_fail = nic->connect_fail = nic->device_fail = 0;
    }
    work->leave_connecting = 0;
}

static void fill_slow(struct sim_prng *prng, struct sim_config *config) {
    struct sim_workload_config *work = &config->work;

    slow_applications(prng, config);
    work->transfers = (uint32_t)sim_between(prng, 20, 120);
    work->concurrent_max = 64;
    work->notify = PICK(prng, 30000, 65536);
    work->reads = PICK(prng, 0, 0, 16000);
    if (sim_below(prng, 2) == 0) { /* as fast as they can, to those who are slow to look */
        work->think_ns_max = 1000;
    }
    config->engine.transfers_max = 64;
    config->engine.recv_credits = PICK(prng, 8, 64);
    config->engine.notifications_max = PICK(prng, 4, 64, 64);
    work->crash = maybe(prng, 3, 20000);
    work->leave = maybe(prng, 3, 20000);
    work->peer_close = maybe(prng, 4, 2000);
    work->cancel = maybe(prng, 6, 2000);
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].qp_fail = maybe(prng, 4, 500);
        config->nic[i].qp_rings = config->nic[i].qp_rings || sim_below(prng, 3) == 0;
        config->nic[i].ring_turn_max = PICK(prng, 1, 4, 16);
    }
}

/* Writes and reads that targets refuse, from all sides, for longer than connecting may take.
 * Nothing else is wrong but what lacks() adds, so that only those end badly. */
static void fill_refused(struct sim_prng *prng, struct sim_config *config) {
    struct sim_workload_config *work = &config->work;

    work->transfers = (uint32_t)sim_between(prng, 100, 400);
    work->concurrent_max = PICK(prng, 8, 32);
    work->segments_max = PICK(prng, 2, 16);
    work->think_ns_max = PICK(prng, 1000, 20000, 300000);
    work->memory_release = PICK(prng, 3000, 12000);
    work->stale = PICK(prng, 60000, SIM_ALWAYS);
    config->engine.connect_timeout_ns = PICK(prng, 60000000, 200000000);
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->still = nic->recv_refuse = nic->qps_max = 0;
        nic->create_fail = nic->connect_fail = nic->device_fail = 0;
        nic->connect_ns_max = 0;
        /* A device that does not say which WR was refused lets others fail with it: swarm. */
        nic->no_blame = nic->mute_errors = false;
        /* A refusal is here before the word, over another network, that the session is over. */
        nic->latency_max_ns = nic->latency_min_ns + 3000;
        nic->late_ns_max = 0;
    }
    config->net.latency_min_ns = 50000;
    config->net.latency_max_ns = PICK(prng, 60000, 150000, 2000000);
}

static const struct {
    const char *name;
    const char *about;
    void (*fill)(struct sim_prng *prng, struct sim_config *config);
} PROFILES[] = {
    {"swarm", "each seed draws its own subset of faults (default)", fill_swarm},
    {"calm", "no faults: every transfer succeeds", fill_calm},
    {"prompt", "resets of control, second names, and no wait for a pause", fill_prompt},
    {"handshake", "crossing opens, restarts, a bad control network", fill_handshake},
    {"teardown", "failing QPs, LAST_WQE habits, closes", fill_teardown},
    {"depth", "tiny send queues, deep batches, partial posts", fill_depth},
    {"notify", "every transfer notifies, few credits, failing QPs", fill_notify},
    {"skew", "many notifications on QPs that are polled in turn", fill_skew},
    {"unordered", "a device without order within a QP", fill_unordered},
    {"doors", "resets, long cuts, addresses that lead elsewhere, strangers", fill_doors},
    {"slow", "applications that work for long, or look ten times a second", fill_slow},
    {"refused", "all sides write to memory that is released, and go on", fill_refused},
};

enum { PROFILE_COUNT = sizeof(PROFILES) / sizeof(PROFILES[0]) };

const char *profile_name(unsigned index, const char **about_out) {
    if (index >= PROFILE_COUNT) {
        return NULL;
    }
    if (about_out != NULL) {
        *about_out = PROFILES[index].about;
    }
    return PROFILES[index].name;
}

/* No device has these habits together. A device that blames nobody keeps an order (a connection);
 * one with a shared receive queue gives the completions of all its QPs in one order. */
static void possible(struct sim_nic_config *nic) {
    nic->no_blame = nic->no_blame && nic->ordered;
    nic->recv_rings = nic->recv_rings && !nic->srq;
    nic->isolates = nic->isolates && !nic->ordered;
    nic->sq_shared = nic->isolates ? nic->sq_shared : 0;
    if (nic->isolates) { /* no failure of a WR is one of its QP's, on either side */
        nic->nak_kills_target = nic->mute_errors = nic->news_first = false;
    }
}

/* Half of the networks of connections keep what comes for a process that is stopped. In most of
 * these some processes are stopped for longer than their peers wait for a word of theirs, under
 * transfers that end early. */
static void buffering(uint64_t seed, struct sim_config *config) {
    struct sim_workload_config *work = &config->work;
    struct sim_prng prng;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xb0ffe4));
    if (!config->nic[0].no_blame || sim_below(&prng, 2) == 0) {
        return;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        config->nic[i].buffers = true;
    }
    if (is_calm(config) || work->doors || work->scale != 0 || sim_below(&prng, 4) == 0) {
        return;
    }
    work->stops_kept = true;
    work->steady = 1;
    work->transfers = (uint32_t)sim_between(&prng, 40, 150);
    work->think_ns_max = PICK(&prng, 20000, 300000);
    work->concurrent_max = PICK(&prng, 4, 32);
    work->pause = PICK(&prng, 300, 1000);
    work->pause_ns_max = 2 * config->engine.connect_timeout_ns;
    work->deadline = PICK(&prng, 4000, 20000);
    work->cancel = PICK(&prng, 0, 300, 1500);
}

/* Of networks without order, half isolate failures, as datagrams do, and some have nodes of both
 * kinds; of those that do, half have one send queue for all peers. */
static void datagrams(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;
    bool isolates, mixed;

    sim_prng_seed(&prng, seed ^ UINT64_C(0x150a7e));
    isolates = sim_below(&prng, 2) == 0;
    mixed = sim_below(&prng, 8) == 0;
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->isolates = mixed ? sim_below(&prng, 2) == 0 : isolates;
        nic->sq_shared =
            nic->isolates && sim_below(&prng, 2) == 0 ? PICK(&prng, 1, 2, 5, 16, 64) : 0;
    }
}

bool profile_fill(const char *profile, uint64_t seed, struct sim_config *config_out) {
    struct sim_prng prng;
    bool news, unordered;

    for (unsigned i = 0; i < PROFILE_COUNT; i++) {
        if (strcmp(PROFILES[i].name, profile) != 0) {
            continue;
        }
        sim_prng_seed(&prng, seed ^ UINT64_C(0x5eedc0ffee));
        memset(config_out, 0, sizeof(*config_out));
        config_out->profile = PROFILES[i].name;
        config_out->nodes = (uint32_t)sim_between(&prng, 2, 1 + sim_between(&prng, 1, 3));
        config_out->step_ns_max = PICK(&prng, 0, 1000, 50000);
        news = sim_below(&prng, 3) == 0;
        unordered = sim_below(&prng, 8) == 0;
        for (uint32_t n = 0; n < config_out->nodes; n++) {
            nic_base(&prng, &config_out->nic[n]);
            config_out->nic[n].peer_dead_news = news;
            if (unordered) { /* a property of the network, so of all or none */
                config_out->nic[n].ordered = false;
                config_out->nic[n].completes_inline = false;
            }
        }
        net_base(&prng, &config_out->net);
        work_base(&prng, &config_out->work);
        engine_base(&prng, config_out);
        config_out->work.crossing = sim_below(&prng, 2) == 0 ? SIM_ALWAYS : 0;
        habits(seed, config_out);
        tuned(seed, config_out);
        stills(seed, config_out);
        unequal(seed, config_out);
        seeing(seed, config_out);
        second_names(seed, config_out);
        PROFILES[i].fill(&prng, config_out);
        slow_connects(seed, config_out);
        lacks(seed, config_out);
        rings(seed, config_out);
        asks(seed, config_out);
        one_host(seed, config_out);
        datagrams(seed, config_out);
        for (uint32_t n = 0; n < config_out->nodes; n++) {
            possible(&config_out->nic[n]);
        }
        buffering(seed, config_out);
        return true;
    }
    return false;
}

/* Messages that wait for credits may share WRs: with one QP, on devices that have order, complete
 * later, and gather, if slots are not what they wait for. */
static void sharing_nics(struct sim_prng *prng, struct sim_config *config) {
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        if (nic->ordered) {
            nic->completes_inline = false;
            nic->gathers_max = PICK(prng, 3, 9, 30);
            nic->sq_depth_max = PICK(prng, 6, 40, 128);
            config->engine.sq_depth[i] = nic->sq_depth_max;
            config->engine.qp_count[i] = 1;
        }
    }
}

/* At least half of the nodes write messages in place, unless the network has no order, which no
 * such device has. From a stream of its own, too: a world without messages stays what it was. */
void profile_mail(uint64_t seed, struct sim_config *config) {
    struct sim_prng prng;
    uint32_t first, half = (config->nodes + 1) / 2;

    sim_prng_seed(&prng, seed ^ UINT64_C(0xd12ec7));
    config->work.mail = true;
    first = (uint32_t)sim_below(&prng, config->nodes);
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_nic_config *nic = &config->nic[(first + i) % config->nodes];
        bool more = sim_below(&prng, 4) == 0;

        nic->completes_inline = nic->ordered && (nic->completes_inline || i < half || more);
        if (nic->completes_inline && sim_below(&prng, 4) != 0) {
            nic->post_bytes_max = UINT64_MAX; /* long ones, too */
        }
    }
    config->work.crowded = sim_below(&prng, 4) == 0;
    for (uint32_t i = 0; i < config->nodes; i++) { /* one WR a second would take for ever */
        config->work.crowded &= config->work.pace_ns[i] < 1000000000;
    }
    if (config->work.crowded && sim_below(&prng, 4) != 0) {
        sharing_nics(&prng, config);
    }
}

/* ---- printing ---------------------------------------------------------- */

static void print_rate(FILE *out, const char *name, uint64_t value) {
    if (value != 0) {
        fprintf(out, " %s=%llu", name, (unsigned long long)value);
    }
}

#define PRINT(out, from, field) print_rate((out), #field, (from)->field)

static void print_nic(const struct sim_config *config, uint32_t node, FILE *out) {
    const struct sim_nic_config *nic = &config->nic[node];

    fprintf(out, "  nic n%u:%s%s%s%s%s%s last_wqe=%u grant=%u qps=%u depth=%u", node,
            nic->ordered ? " ordered" : " unordered", nic->isolates ? " isolating" : "",
            nic->completes_inline ? " inline" : "", nic->srq ? " srq" : "",
            nic->recv_rings ? " recv-rings"
            : nic->qp_rings ? " rings"
                            : "",
            nic->peer_dead_news ? " news" : "", nic->last_wqe, nic->grant,
            config->engine.qp_count[node], config->engine.sq_depth[node]);
    print_rate(out, "credits", config->engine.credits_of[node]);
    PRINT(out, nic, sq_depth_max);
    PRINT(out, nic, sq_shared);
    PRINT(out, nic, inline_bytes_max);
    PRINT(out, nic, message_bytes_max);
    PRINT(out, nic, post_bytes_max);
    PRINT(out, nic, gathers_max);
    PRINT(out, nic, pieces_max);
    PRINT(out, nic, ring_turn_max);
    PRINT(out, nic, retry_count);
    PRINT(out, nic, latency_max_ns);
    PRINT(out, nic, late_ns_max);
    PRINT(out, nic, flush_ns_max);
    PRINT(out, nic, destroy_fails_max);
    PRINT(out, nic, qps_max);
    PRINT(out, nic, connect_ns_max);
    PRINT(out, nic, no_blame);
    PRINT(out, nic, sees_release);
    PRINT(out, nic, buffers);
    PRINT(out, nic, mute_errors);
    PRINT(out, nic, news_first);
    PRINT(out, nic, post_eagain);
    PRINT(out, nic, post_edevice);
    PRINT(out, nic, post_einval);
    PRINT(out, nic, qp_fail);
    PRINT(out, nic, still);
    PRINT(out, nic, packet_loss);
    PRINT(out, nic, srq_swallow);
    PRINT(out, nic, mr_fail);
    PRINT(out, nic, create_fail);
    PRINT(out, nic, device_fail);
    PRINT(out, nic, connect_fail);
    PRINT(out, nic, recv_refuse);
    PRINT(out, nic, lack);
    PRINT(out, nic, lack_ns_max);
    PRINT(out, nic, lacks_memory);
    fputc('\n', out);
}

static void print_work(const struct sim_config *config, FILE *out) {
    const struct sim_workload_config *work = &config->work;
    PRINT(out, work, transfers);
    PRINT(out, work, segments_max);
    PRINT(out, work, bytes_max);
    PRINT(out, work, concurrent_max);
    PRINT(out, work, think_ns_max);
    PRINT(out, work, notify);
    PRINT(out, work, reads);
    PRINT(out, work, queued);
    PRINT(out, work, once);
    PRINT(out, work, deadline);
    PRINT(out, work, cancel);
    PRINT(out, work, early_release);
    PRINT(out, work, bad_segment);
    PRINT(out, work, memory_release);
    PRINT(out, work, stale);
    PRINT(out, work, peer_close);
    PRINT(out, work, ask);
    PRINT(out, work, one_host);
    PRINT(out, work, pause);
    PRINT(out, work, pause_ns_max);
    PRINT(out, work, stops_kept);
    PRINT(out, work, slow_taker);
    PRINT(out, work, crash);
    PRINT(out, work, leave);
    PRINT(out, work, leave_connecting);
    PRINT(out, work, cut_control);
    PRINT(out, work, cut_data);
    PRINT(out, work, cut_kept);
    PRINT(out, work, block);
    PRINT(out, work, wait);
    PRINT(out, work, allocate);
    PRINT(out, work, crowded);
    PRINT(out, work, hasty);
    PRINT(out, work, crossing);
    PRINT(out, work, ring);
    PRINT(out, work, reset);
    PRINT(out, work, long_cut);
    PRINT(out, work, stranger);
    for (uint32_t i = 0; i < config->nodes; i++) {
        if (work->told[i] != SIM_TOLD_TRUE) {
            fprintf(out, " n%u:told=%u", i, work->told[i]);
        }
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        for (uint32_t to = 0; to < config->nodes; to++) {
            if (work->second_name[i][to]) {
                fprintf(out, " n%u:second=n%u", i, to);
            }
        }
    }
    PRINT(out, work, prompt);
    for (uint32_t i = 0; i < config->nodes; i++) {
        if ((work->pace_ns[i] | work->handler_ns[i]) != 0) {
            fprintf(out, " n%u:pace=%llums,handler=%llums", i,
                    (unsigned long long)work->pace_ns[i] / 1000000,
                    (unsigned long long)work->handler_ns[i] / 1000000);
        }
    }
}

void profile_print(const struct sim_config *config, FILE *out) {
    fprintf(out, "  profile %s, %u nodes\n", config->profile, config->nodes);
    for (uint32_t n = 0; n < config->nodes; n++) {
        print_nic(config, n, out);
    }
    fputs("  net:", out);
    PRINT(out, &config->net, latency_max_ns);
    PRINT(out, &config->net, loss);
    PRINT(out, &config->net, duplicate);
    PRINT(out, &config->net, reorder);
    PRINT(out, &config->net, break_on_send);
    PRINT(out, &config->net, breaks_max);
    PRINT(out, &config->net, breaks_type);
    PRINT(out, &config->net, refuse);
    PRINT(out, &config->net, full);
    fputs("\n  work:", out);
    print_work(config, out);
    fputs("\n  engine:", out);
    PRINT(out, &config->engine, transfers_max);
    PRINT(out, &config->engine, chain_max);
    PRINT(out, &config->engine, signal_interval);
    PRINT(out, &config->engine, inline_bytes);
    PRINT(out, &config->engine, poll_budget);
    PRINT(out, &config->engine, recv_credits);
    PRINT(out, &config->engine, notifications_max);
    PRINT(out, &config->engine, inflight_bytes_max);
    fputc('\n', out);
}
