/* SPDX-License-Identifier: Apache-2.0 */
/* sendqueue_world.c: see sendqueue_world.h. */
#include "sendqueue_world.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "nic.h"
#include "os.h"
#include "profile.h"

enum { CQES = 1 << 16, TURN_NS = 20000, POLLED = 64 };

/* A WR that waits, on shm. */
struct qw_slow {
    struct weir_wr wr;
    bool sent; /* the real device has it; its completion ends it */
};

static struct queue_world *the; /* there is one at a time */
static const struct weir_device_ops *real_ops;
static struct weir_device_ops ops;
static const struct weir_wait_ops *real_wait;
static struct weir_wait_ops wait_ops;

static bool is_slow(void) {
    return the->sim == NULL && !the->options.inline_;
}

/* ---- QPs ---------------------------------------------------------------- */

static struct qw_qp *find(const struct weir_qp *qp) {
    for (uint32_t i = 0; i < QW_QPS; i++) {
        if (the->qps[i].qp == qp)
            return &the->qps[i];
    }
    fail_msg("a QP that is not there");
    return NULL;
}

static int wrap_create(struct weir_device *device, const struct weir_qp_options *options,
                       struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    int rc = real_ops->qp_create(device, options, granted_out, qp_out);
    if (rc != WEIR_OK)
        return rc;
    struct qw_qp *qp = find(NULL);
    *qp = (struct qw_qp){.qp = *qp_out, .granted = granted_out->sq_depth};
    qp->slow = calloc(qp->granted, sizeof(*qp->slow));
    assert_non_null(qp->slow);
    return WEIR_OK;
}

static int wrap_destroy(struct weir_qp *qp) {
    struct qw_qp *mine = find(qp);
    int rc = real_ops->qp_destroy(qp);
    if (rc == WEIR_OK) {
        free(mine->slow);
        *mine = (struct qw_qp){0};
    }
    return rc;
}

static int wrap_error(struct weir_qp *qp) {
    find(qp)->failed = true;
    return real_ops->qp_error(qp);
}

/* ---- completions -------------------------------------------------------- */

static void give(struct weir_cqe cqe) {
    assert_true(the->cqe_count < CQES);
    the->cqes[(the->cqe_head + the->cqe_count++) % CQES] = cqe;
}

static void end_oldest(struct qw_qp *qp, uint32_t status) {
    const struct weir_wr *wr = &qp->slow[qp->head % qp->granted].wr;
    if (status != WEIR_CQE_OK || (wr->flags & WEIR_WR_SIGNALED) != 0)
        give((struct weir_cqe){.wr_id = wr->wr_id, .status = status});
    qp->head++;
    qp->count--;
}

/* Executes what waits, in order, up to one that the real device completes later. */
static void run_slow(struct qw_qp *qp) {
    while (qp->count > 0) {
        struct qw_slow *oldest = &qp->slow[qp->head % qp->granted];
        struct weir_wr wr = oldest->wr;
        struct weir_post post;
        if (oldest->sent)
            return;
        if (qp->failed) {
            end_oldest(qp, WEIR_CQE_FLUSHED);
            continue;
        }
        wr.flags |= WEIR_WR_SIGNALED;
        int rc = real_ops->post_send(qp->qp, &wr, 1, &post);
        if (rc == WEIR_EAGAIN)
            return;
        if (rc != WEIR_OK) {
            end_oldest(qp, WEIR_CQE_LOCAL_PROT);
            wrap_error(qp->qp);
        } else if (post.done == 1) {
            end_oldest(qp, WEIR_CQE_OK);
        } else {
            oldest->sent = true;
        }
    }
}

/* The completion of a WR that waited: it is told as the engine asked for it. */
static bool was_slow(const struct weir_cqe *cqe) {
    for (uint32_t i = 0; i < QW_QPS && !cqe->recv; i++) {
        struct qw_qp *qp = &the->qps[i];
        if (qp->qp == NULL || qp->count == 0)
            continue;
        const struct qw_slow *oldest = &qp->slow[qp->head % qp->granted];
        if (oldest->sent && oldest->wr.wr_id == cqe->wr_id) {
            qp->failed |= cqe->status != WEIR_CQE_OK;
            end_oldest(qp, cqe->status);
            return true;
        }
    }
    return false;
}

static void take_time(uint64_t ns) {
    const struct weir_env *env = &the->ports[0].env;
    uint64_t begin = env->ops->now(env->self);
    while (env->ops->now(env->self) - begin < ns)
        continue;
}

static int wrap_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    struct weir_cqe some[POLLED];
    int count = 0;
    the->polls++;
    if (the->poll_ns > 0)
        take_time(the->poll_ns);
    for (int got = the->stalled ? 0 : POLLED; got == POLLED;) {
        got = real_ops->poll(device, some, POLLED);
        assert_true(got >= 0);
        for (int i = 0; i < got; i++) {
            if (!is_slow() || !was_slow(&some[i]))
                give(some[i]);
        }
    }
    for (uint32_t i = 0; i < QW_QPS && is_slow() && !the->stalled; i++) {
        if (the->qps[i].qp != NULL)
            run_slow(&the->qps[i]);
    }
    for (; count < max && the->cqe_count > 0; the->cqe_count--)
        cqes_out[count++] = the->cqes[the->cqe_head++ % CQES];
    return count;
}

static int wrap_arm(struct weir_device *device) {
    for (uint32_t i = 0; i < QW_QPS && !the->stalled; i++) {
        if (the->qps[i].qp != NULL && the->qps[i].count > 0)
            return WEIR_EAGAIN;
    }
    int rc = real_ops->arm(device);
    return the->stalled ? WEIR_OK : rc; /* what there is to poll is kept back */
}

void qw_invent(struct queue_world *world, uint64_t wr_id, uint32_t status) {
    assert_ptr_equal(world, the);
    give((struct weir_cqe){.wr_id = wr_id, .status = status});
}

/* ---- posting ------------------------------------------------------------ */

static int post_slow(struct qw_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    *post_out = (struct weir_post){.accepted = count};
    assert_true(qp->count + count <= qp->granted); /* the slots are the engine's to count */
    for (uint32_t i = 0; i < count; i++)
        qp->slow[(qp->head + qp->count++) % qp->granted] = (struct qw_slow){.wr = wrs[i]};
    return WEIR_OK;
}

static int wrap_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    struct qw_qp *mine = find(qp);
    bool data = wrs->opcode != WEIR_OP_SEND && wrs->length > 0;
    uint32_t taken = count;
    int rc = WEIR_OK, error = WEIR_OK;
    the->posts++;
    *post_out = (struct weir_post){0};
    if (wrs->opcode == WEIR_OP_WRITE && wrs->length == 0 && the->empty_error != WEIR_OK) {
        int empty = the->empty_error;
        the->empty_error = WEIR_OK;
        return empty;
    }
    if (data && the->take_error != WEIR_OK && count > the->take_of_next) {
        taken = the->take_of_next;
        error = the->take_error;
        if (the->take_again > 0)
            the->take_again--;
        else
            the->take_error = WEIR_OK;
        the->takes++;
    }
    for (uint32_t i = 0; i < taken; i++) {
        the->wr_ids_zero += wrs[i].wr_id == 0;
        if ((wrs[i].flags & WEIR_WR_SIGNALED) == 0)
            continue;
        the->last_signaled = wrs[i].wr_id;
        the->signaled++;
    }
    if (taken > 0)
        rc = is_slow() ? post_slow(mine, wrs, taken, post_out)
                       : real_ops->post_send(qp, wrs, taken, post_out);
    if (data && the->break_posts > 0 && --the->break_posts == 0)
        wrap_error(qp);
    return rc == WEIR_OK ? error : rc;
}

static int wrap_post_direct(struct weir_qp *qp, const struct weir_direct_to *to,
                            const struct weir_direct *directs, uint32_t count,
                            uint64_t *watch_out) {
    int rc = real_ops->post_direct(qp, to, directs, count, watch_out);
    if (rc == WEIR_OK && the->break_posts > 0 && --the->break_posts == 0)
        wrap_error(qp);
    return rc;
}

static void wrap_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    real_ops->query(device, caps_out);
    if (is_slow()) {
        caps_out->completes_inline = false;
        caps_out->inline_bytes_max = 0; /* SENDs lie in the engine's memory until they are done */
        caps_out->post_bytes_max = UINT64_MAX;
    }
}

static void wrap_sleep(void *self, uint64_t timeout_ns) {
    the->sleeps++;
    real_wait->sleep(self, timeout_ns);
}

static void wrap(struct weir_ports *ports) {
    real_ops = ports->device_ops;
    ops = *real_ops;
    ops.query = wrap_query;
    ops.qp_create = wrap_create;
    ops.qp_destroy = wrap_destroy;
    ops.qp_error = wrap_error;
    ops.post_send = wrap_post;
    if (real_ops->post_direct != NULL)
        ops.post_direct = wrap_post_direct;
    ops.poll = wrap_poll;
    ops.arm = wrap_arm;
    ports->device_ops = &ops;
    real_wait = ports->wait.ops;
    wait_ops = *real_wait;
    wait_ops.sleep = wrap_sleep;
    ports->wait.ops = &wait_ops;
}

/* ---- worlds ------------------------------------------------------------- */

bool qw_has_shm(void) {
    struct weir_device_caps caps;
    return device_table[0]->probe(NULL, &caps) == WEIR_OK;
}

static void sim_turn(struct sim_node *node) {
    weir_engine *engine = the->engines[node->index];
    if (engine == NULL || the->frozen[node->index])
        return;
    while (weir_engine_progress(engine) > 0)
        continue;
    uint64_t next = engine_next_deadline(engine);
    if (next < node->world->now_ns + 50)
        next = node->world->now_ns + 50;
    if (next != UINT64_MAX)
        sim_node_wake_at(node, next);
}

static void open_sim(struct queue_world *world) {
    struct sim_config config;
    assert_true(profile_fill("calm", world->options.seed, &config));
    config.nodes = world->options.engines;
    for (uint32_t i = 0; i < QW_ENGINES; i++) {
        struct sim_nic_config *nic = &config.nic[i];
        *nic = config.nic[0];
        nic->ordered = !world->options.unordered;
        nic->isolates = world->options.isolates;
        nic->sq_shared = world->options.sq_shared;
        if (nic->isolates) /* as in profile.c */
            nic->no_blame = nic->nak_kills_target = nic->mute_errors = nic->news_first = false;
        nic->import_waits = false;
        nic->completes_inline = world->options.inline_;
        nic->grant = SIM_GRANT_EXACT;
        nic->sq_depth_max = 65536;
        nic->message_bytes_max = 1u << 30;
        nic->post_bytes_max = UINT64_MAX;
    }
    world->sim = sim_world_open(&config, world->options.seed, NULL);
    assert_non_null(world->sim);
    for (uint32_t i = 0; i < config.nodes; i++) {
        struct sim_node *node = &world->sim->nodes[i];
        node->step = sim_turn;
        assert_int_equal(sim_node_boot(node), 0);
        world->ports[i] = node->ports;
    }
}

static void open_shm(struct queue_world *world) {
    for (uint32_t i = 0; i < world->options.engines; i++) {
        struct weir_ports *ports = &world->ports[i];
        ports->device_ops = device_table[0];
        assert_int_equal(os_env_init(&ports->env), WEIR_OK);
        assert_int_equal(ports->device_ops->open(&ports->env, &ports->device), WEIR_OK);
        assert_int_equal(tcp_open(&ports->env, 0, &ports->control), WEIR_OK);
        assert_int_equal(wait_open(&ports->env, &ports->wait), WEIR_OK);
    }
}

struct qw_options qw_options(uint64_t seed) {
    struct qw_options options = {.seed = seed, .engines = 2, .bytes = 1 << 16};
    weir_engine_options limits = WEIR_ENGINE_OPTIONS_INIT;
    limits.transfers_max = 64;
    limits.segments_max = 16384;
    limits.peers_max = 8;
    limits.memories_max = limits.remotes_max = 8;
    limits.sq_depth = 11; /* one is kept for the teardown */
    limits.recv_credits = 16;
    limits.notifications_max = 64;
    options.limits = limits;
    return options;
}

static void open_engine(struct queue_world *world, uint32_t i) {
    weir_engine_options limits = world->options.limits;
    void *base;
    if (i > 0 && world->options.small_others) {
        limits.peers_max = 4;
        limits.sq_depth = 8;
        limits.transfers_max = limits.segments_max = 16;
    }
    if (world->sim != NULL)
        limits.listen = world->sim->nodes[i].address;
    assert_int_equal(engine_create(&limits, &world->ports[i], &world->engines[i]), WEIR_OK);
    if (world->options.own_memory) {
        base = calloc(1, world->options.bytes);
        assert_non_null(base);
        assert_int_equal(weir_memory_register(world->engines[i], base, world->options.bytes,
                                              WEIR_ACCESS_ALL, &world->memory[i]),
                         WEIR_OK);
    } else {
        assert_int_equal(weir_memory_allocate(world->engines[i], world->options.bytes,
                                              WEIR_ACCESS_ALL, &world->memory[i], &base),
                         WEIR_OK);
    }
    world->bytes[i] = base;
    if (world->sim != NULL)
        sim_node_wake(&world->sim->nodes[i]);
}

static void join(struct queue_world *world, uint32_t i) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    char address[WEIR_ADDRESS_MAX];
    size_t length = sizeof(descriptor);
    assert_int_equal(weir_engine_address(world->engines[i], address, sizeof(address)), WEIR_OK);
    assert_int_equal(weir_peer_open(world->engines[0], address, &world->peers[i]), WEIR_OK);
    assert_int_equal(weir_memory_export(world->engines[i], world->memory[i], descriptor, &length),
                     WEIR_OK);
    assert_int_equal(weir_memory_import(world->engines[0], world->peers[i], descriptor, length,
                                        &world->remotes[i]),
                     WEIR_OK);
}

void qw_open(struct queue_world *world, const struct qw_options *options) {
    memset(world, 0, sizeof(*world));
    world->options = *options;
    world->cqes = calloc(CQES, sizeof(*world->cqes));
    assert_non_null(world->cqes);
    the = world;
    if (options->seed != 0)
        open_sim(world);
    else
        open_shm(world);
    wrap(&world->ports[0]);
    for (uint32_t i = 0; i < options->engines; i++)
        open_engine(world, i);
    for (uint32_t i = 1; i < options->engines; i++)
        join(world, i);
}

void qw_connect(struct queue_world *world) {
    for (uint32_t i = 1; i < world->options.engines; i++) {
        QW_UNTIL(world, weir_peer_connect(world->engines[0], world->peers[i]) == WEIR_OK);
        assert_int_equal(qw_info(world, i).connected, 1);
    }
}

void qw_close(struct queue_world *world) {
    world->stalled = false;
    world->ports[0].wait.ops = real_wait;
    for (uint32_t i = 0; i < world->options.engines; i++) {
        weir_engine *engine = world->engines[i];
        struct sim_nic_census census = {0};
        world->engines[i] = NULL;
        if (world->sim != NULL)
            sim_nic_census(world->ports[i].device, &census);
        assert_int_equal(census.overfills, 0);
        weir_engine_close(engine);
        if (world->options.own_memory)
            free(world->bytes[i]);
        if (world->sim != NULL) {
            sim_node_shutdown(&world->sim->nodes[i]);
            continue;
        }
        wait_close(&world->ports[i].wait);
        tcp_close(&world->ports[i].control);
        device_table[0]->close(world->ports[i].device);
    }
    if (world->sim != NULL) {
        assert_string_equal(world->sim->violation, "");
        sim_world_close(world->sim);
    }
    free(world->cqes);
    the = NULL;
}

void qw_turn(struct queue_world *world) {
    if (world->sim != NULL) {
        sim_node_wake(&world->sim->nodes[0]);
        sim_run_until(world->sim, world->sim->now_ns + TURN_NS);
        return;
    }
    for (uint32_t i = 0; i < world->options.engines; i++) {
        int rc = world->frozen[i] ? 0 : weir_engine_progress(world->engines[i]);
        assert_true(rc >= 0);
    }
}

/* ---- transfers ---------------------------------------------------------- */

weir_segment qw_segment(const struct queue_world *world, uint32_t peer, uint64_t local,
                        uint64_t remote, uint64_t length) {
    return (weir_segment){world->memory[0], world->remotes[peer], local, remote, length};
}

int qw_status(struct queue_world *world, weir_transfer transfer) {
    return weir_transfer_status(world->engines[0], transfer);
}

int qw_finish(struct queue_world *world, weir_transfer transfer) {
    QW_UNTIL(world, qw_status(world, transfer) != WEIR_EINPROGRESS);
    int status = qw_status(world, transfer);
    assert_int_equal(weir_transfer_release(world->engines[0], transfer), WEIR_OK);
    return status;
}

weir_engine_info qw_stats(struct queue_world *world) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(world->engines[0], &stats), WEIR_OK);
    return stats;
}

weir_peer_info qw_info(struct queue_world *world, uint32_t peer) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    assert_int_equal(weir_peer_query(world->engines[0], world->peers[peer], &info), WEIR_OK);
    return info;
}

void qw_assert_quiet(struct queue_world *world) {
    for (uint32_t i = 1; i < world->options.engines; i++) {
        QW_UNTIL(world, qw_info(world, i).sq_used == 0 && qw_info(world, i).pending == 0);
        assert_true(qw_info(world, i).sq_high_water <= qw_info(world, i).sq_depth);
    }
    assert_null(engine_verify(world->engines[0]));
}
