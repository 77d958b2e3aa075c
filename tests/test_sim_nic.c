/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_nic.c: the simulated NIC by itself: states, slots, flushes, packets that
 * outlive their sender, stale QP numbers. Its promises to the core are tested by the conformance
 * suite; here are those to the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "nic.h"
#include "world.h"

enum { DEPTH = 8, BYTES = 256 };

struct side {
    struct sim_node *node;
    struct weir_device *nic;
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    struct weir_mr mr;
    struct weir_rmr remote; /* the other side's memory */
    uint8_t bytes[BYTES];
};

struct pair {
    struct sim_world *world;
    struct side a;
    struct side b;
    uint32_t landings;
};

static void count_landing(void *self, struct sim_node *node, const void *at, const void *bytes,
                          uint64_t length) {
    struct pair *pair = self;

    (void)node;
    (void)at;
    (void)bytes;
    (void)length;
    pair->landings++;
}

static void plain_config(struct sim_config *config) {
    memset(config, 0, sizeof(*config));
    config->nodes = 2;
    for (uint32_t i = 0; i < 2; i++) {
        config->nic[i] = (struct sim_nic_config){
            .ordered = true,
            .sq_depth_max = 1024,
            .rq_depth_max = 64,
            .inline_bytes_max = 64,
            .pieces_max = 1,
            .retry_count = 3,
            .message_bytes_max = 1 << 20,
            .post_bytes_max = UINT64_MAX,
            .latency_min_ns = 1000,
            .latency_max_ns = 1000,
            .flush_ns_max = 100,
            .rto_ns = 10000,
            .mtu_max = 4096,
            .rd_atomic_max = 16,
        };
    }
    config->net.latency_min_ns = config->net.latency_max_ns = 1000;
}

static void make_qp(struct side *side) {
    struct weir_qp_options options = {
        .tag = 7, .sq_depth = DEPTH, .rq_depth = 4, .recv_bytes_max = 64};

    if (side->node->world->config.nic[side->node->index].srq) {
        options.rq_depth = 0;
    }
    assert_int_equal(SIM_NIC_OPS.qp_create(side->nic, &options, &side->granted, &side->qp), 0);
}

static void boot(struct pair *pair, struct side *side, uint32_t index) {
    side->node = &pair->world->nodes[index];
    assert_int_equal(sim_node_boot(side->node), 0);
    side->nic = side->node->nic;
    assert_int_equal(
        SIM_NIC_OPS.mr_register(side->nic, side->bytes, BYTES, WEIR_ACCESS_ALL, &side->mr), 0);
    make_qp(side);
}

static void import(struct side *side, struct side *from) {
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length;

    assert_int_equal(SIM_NIC_OPS.mr_export(from->nic, &from->mr, blob, &length), 0);
    assert_int_equal(
        SIM_NIC_OPS.mr_import(side->nic, blob, length, BYTES, WEIR_ACCESS_ALL, 0, &side->remote),
        0);
}

static void connect_to(struct side *side, const struct side *other, uint32_t psn_local,
                       uint32_t psn_remote) {
    struct weir_qp_path path = {.mtu = 4096,
                                .rd_atomic = 16,
                                .psn_local = psn_local,
                                .psn_remote = psn_remote,
                                .blob_length = other->granted.blob_length,
                                .blob = other->granted.blob};

    assert_int_equal(SIM_NIC_OPS.qp_connect(side->qp, &path), 0);
}

static void pair_open(struct pair *pair, const struct sim_config *config) {
    memset(pair, 0, sizeof(*pair));
    pair->world = sim_world_open(config, 1, NULL);
    assert_non_null(pair->world);
    pair->world->watch = (struct sim_watch){.landing = count_landing, .self = pair};
    boot(pair, &pair->a, 0);
    boot(pair, &pair->b, 1);
    import(&pair->a, &pair->b);
    import(&pair->b, &pair->a);
    connect_to(&pair->a, &pair->b, 100, 200);
    connect_to(&pair->b, &pair->a, 200, 100);
}

static void side_close(struct side *side) {
    if (side->node->alive) {
        while (side->qp != NULL && SIM_NIC_OPS.qp_destroy(side->qp) != 0) {
        }
        assert_int_equal(SIM_NIC_OPS.mr_release(side->nic, &side->mr), 0);
        sim_node_shutdown(side->node);
    }
}

static void pair_close(struct pair *pair) {
    side_close(&pair->a);
    side_close(&pair->b);
    sim_world_close(pair->world);
}

static void run_for(struct pair *pair, uint64_t ns) {
    sim_run_until(pair->world, pair->world->now_ns + ns);
}

static struct weir_wr write_wr(const struct side *side, uint64_t wr_id, uint32_t offset,
                               uint32_t length, uint8_t flags) {
    return (struct weir_wr){.wr_id = wr_id,
                            .laddr = (uint64_t)(uintptr_t)side->bytes + offset,
                            .raddr = side->remote.raddr + offset,
                            .length = length,
                            .lkey = side->mr.lkey,
                            .rkey = side->remote.rkey,
                            .opcode = WEIR_OP_WRITE,
                            .flags = flags};
}

static uint32_t post_writes(struct side *side, uint32_t count, uint8_t flags, int *error_out) {
    struct weir_post post;
    uint32_t accepted = 0;

    *error_out = 0;
    for (uint32_t i = 0; i < count && *error_out == 0; i++) {
        struct weir_wr wr = write_wr(side, 1000 + i, i, 1, flags);

        *error_out = SIM_NIC_OPS.post_send(side->qp, &wr, 1, &post);
        accepted += post.accepted;
    }
    return accepted;
}

static int poll_all(struct side *side, struct weir_cqe *cqes, int max) {
    int count = 0;
    int got;

    while (count < max && (got = SIM_NIC_OPS.poll(side->nic, cqes + count, max - count)) > 0) {
        count += got;
    }
    return count;
}

static void test_S1_slot_is_free_only_after_poll(void **state) {
    struct sim_config config;
    struct sim_nic_census census;
    struct weir_cqe cqes[DEPTH];
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    assert_int_equal(post_writes(&pair.a, DEPTH - 1, 0, &error), DEPTH - 1);
    assert_int_equal(post_writes(&pair.a, 1, WEIR_WR_SIGNALED, &error), 1);
    run_for(&pair, 1000000); /* complete, not polled */
    assert_int_equal(post_writes(&pair.a, 1, 0, &error), 0);
    assert_int_equal(error, WEIR_EAGAIN);
    sim_nic_census(pair.a.nic, &census);
    assert_int_equal(census.overfills, 1);
    assert_int_equal(poll_all(&pair.a, cqes, DEPTH), 1); /* one covers all */
    assert_int_equal(post_writes(&pair.a, DEPTH, 0, &error), DEPTH);
    pair_close(&pair);
}

static void test_S6_partial_post_every_index(void **state) {
    struct weir_wr wrs[4];
    struct weir_post post;
    bool seen[4] = {false};
    struct sim_config config;

    (void)state;
    plain_config(&config);
    config.nic[0].post_eagain = SIM_ALWAYS;
    for (int round = 0; round < 200; round++) {
        struct pair pair;

        pair_open(&pair, &config);
        sim_prng_seed(&pair.world->prng, (uint64_t)round);
        for (uint32_t i = 0; i < 4; i++) {
            wrs[i] = write_wr(&pair.a, i, i, 1, WEIR_WR_SIGNALED);
        }
        assert_int_equal(SIM_NIC_OPS.post_send(pair.a.qp, wrs, 4, &post), WEIR_EAGAIN);
        assert_true(post.accepted < 4);
        seen[post.accepted] = true;
        run_for(&pair, 100000);
        assert_int_equal(pair.landings, post.accepted);
        pair_close(&pair);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(seen[i]);
    }
}

static void test_E3_one_error_flushes_the_rest_in_order(void **state) {
    struct sim_config config;
    struct weir_cqe cqes[DEPTH];
    struct weir_wr wr;
    struct weir_post post;
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    wr = write_wr(&pair.a, 1, 0, 1, WEIR_WR_SIGNALED);
    assert_int_equal(SIM_NIC_OPS.post_send(pair.a.qp, &wr, 1, &post), 0);
    wr = write_wr(&pair.a, 2, BYTES - 1, 2, 0); /* past the end, over there and here */
    wr.lkey = 0xbad;
    assert_int_equal(SIM_NIC_OPS.post_send(pair.a.qp, &wr, 1, &post), 0);
    assert_int_equal(post_writes(&pair.a, 3, 0, &error), 3);
    run_for(&pair, 1000000);
    assert_int_equal(poll_all(&pair.a, cqes, DEPTH), 5);
    assert_int_equal(cqes[0].status, WEIR_CQE_OK);
    assert_int_equal(cqes[1].wr_id, 2);
    assert_int_equal(cqes[1].status, WEIR_CQE_LOCAL_PROT);
    for (int i = 2; i < 5; i++) {
        assert_int_equal(cqes[i].wr_id, 1000 + i - 2);
        assert_int_equal(cqes[i].status, WEIR_CQE_FLUSHED);
    }
    assert_int_equal(pair.landings, 1);
    assert_int_equal(post_writes(&pair.a, 1, 0, &error), 1); /* accepted, flushes */
    run_for(&pair, 1000000);
    assert_int_equal(poll_all(&pair.a, cqes, DEPTH), 1);
    assert_int_equal(cqes[0].status, WEIR_CQE_FLUSHED);
    pair_close(&pair);
}

/* A packet lands after its sender's QP died; one for a dead target does not. */
static void test_S13_packets_outlive_their_sender_only(void **state) {
    struct sim_config config;
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    memset(pair.a.bytes, 0x5a, BYTES);
    assert_int_equal(post_writes(&pair.a, 1, 0, &error), 1);
    assert_int_equal(SIM_NIC_OPS.qp_error(pair.a.qp), 0);
    assert_int_equal(SIM_NIC_OPS.qp_destroy(pair.a.qp), 0);
    pair.a.qp = NULL;
    run_for(&pair, 100000);
    assert_int_equal(pair.landings, 1);
    assert_int_equal(pair.b.bytes[0], 0x5a);
    pair_close(&pair);

    pair_open(&pair, &config);
    assert_int_equal(post_writes(&pair.a, 1, 0, &error), 1);
    assert_int_equal(SIM_NIC_OPS.qp_error(pair.b.qp), 0);
    run_for(&pair, 1000000);
    assert_int_equal(pair.landings, 0);
    pair_close(&pair);
}

static void post_send(struct side *side, uint32_t length) {
    struct weir_wr wr = write_wr(side, 1, 0, length, 0);
    struct weir_post post;

    wr.opcode = WEIR_OP_SEND;
    assert_int_equal(SIM_NIC_OPS.post_send(side->qp, &wr, 1, &post), 0);
}

/* Two ends of a connection, of which the second's process is stopped. Writes were sent to it, and
 * a message behind them, by a QP that is gone. */
static void pair_open_kept(struct pair *pair) {
    struct sim_config config;
    int error;

    plain_config(&config);
    for (uint32_t i = 0; i < 2; i++) {
        config.nic[i].no_blame = config.nic[i].buffers = true;
    }
    pair_open(pair, &config);
    assert_int_equal(
        SIM_NIC_OPS.post_recv(pair->b.nic, pair->b.qp, 5, pair->b.bytes + 128, 64, pair->b.mr.lkey),
        0);
    pair->b.node->stopped_until_ns = pair->world->now_ns + 50000000;
    memset(pair->a.bytes, 0x5a, BYTES);
    assert_int_equal(post_writes(&pair->a, 3, 0, &error), 3);
    post_send(&pair->a, 8);
    run_for(pair, 1000000);
    assert_int_equal(SIM_NIC_OPS.qp_error(pair->a.qp), 0);
    assert_int_equal(SIM_NIC_OPS.qp_destroy(pair->a.qp), 0);
    pair->a.qp = NULL;
    run_for(pair, 40000000);
    assert_int_equal(pair->landings, 0);
}

/* A host keeps what comes for a process that is stopped, and all of it lands when the process goes
 * on, in order, though nobody is left who sent it; unless its own QP was put to an end by then, or
 * the process ends. */
static void test_S13_a_host_keeps_what_comes_for_the_stopped(void **state) {
    struct weir_cqe cqes[DEPTH];
    struct pair pair;

    (void)state;
    pair_open_kept(&pair);
    run_for(&pair, 20000000);
    assert_int_equal(pair.landings, 3);
    assert_int_equal(poll_all(&pair.b, cqes, DEPTH), 1);
    assert_int_equal(cqes[0].status, WEIR_CQE_OK);
    assert_int_equal(cqes[0].byte_length, 8);
    pair_close(&pair);

    pair_open_kept(&pair);
    assert_int_equal(SIM_NIC_OPS.qp_error(pair.b.qp), 0);
    run_for(&pair, 20000000);
    assert_int_equal(pair.landings, 0);
    pair_close(&pair);

    pair_open_kept(&pair);
    sim_node_crash(pair.b.node, true);
    pair.b.qp = NULL;
    run_for(&pair, 20000000);
    assert_int_equal(pair.landings, 0);
    pair_close(&pair);
}

static void test_T8_stale_packet_for_a_reused_number_is_dropped(void **state) {
    struct sim_config config;
    struct sim_qp_info before, after;
    struct weir_cqe cqe;
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    assert_int_equal(post_writes(&pair.a, 1, 0, &error), 1);
    assert_int_equal(sim_nic_qp_next(pair.b.nic, 0, &before), 1);
    assert_int_equal(SIM_NIC_OPS.qp_destroy(pair.b.qp), 0);
    make_qp(&pair.b);
    connect_to(&pair.b, &pair.a, 201, 101);
    assert_int_equal(sim_nic_qp_next(pair.b.nic, 0, &after), 1);
    assert_int_equal(before.qpn, after.qpn);
    run_for(&pair, 1000000);
    assert_int_equal(pair.landings, 0);
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(cqe.status, WEIR_CQE_RETRY);
    pair_close(&pair);
}

static void test_H5_restart_gets_the_same_qp_numbers(void **state) {
    struct sim_config config;
    struct sim_qp_info before, after;
    struct pair pair;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    assert_int_equal(sim_nic_qp_next(pair.b.nic, 0, &before), 1);
    sim_node_crash(pair.b.node, true);
    boot(&pair, &pair.b, 1);
    assert_int_equal(sim_nic_qp_next(pair.b.nic, 0, &after), 1);
    assert_int_equal(before.qpn, after.qpn);
    assert_true(before.uid != after.uid);
    pair_close(&pair);
}

static void test_S13_cut_delays_and_then_fails(void **state) {
    struct sim_config config;
    struct weir_cqe cqe;
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    pair.world->data_cut[0][1] = true;
    assert_int_equal(post_writes(&pair.a, 1, WEIR_WR_SIGNALED, &error), 1);
    run_for(&pair, 15000);
    pair.world->data_cut[0][1] = false; /* within the retries: nothing is lost */
    run_for(&pair, 100000);
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(cqe.status, WEIR_CQE_OK);
    pair.world->data_cut[1][0] = true; /* the data lands, its acknowledgement does not */
    assert_int_equal(post_writes(&pair.a, 1, WEIR_WR_SIGNALED, &error), 1);
    run_for(&pair, 1000000);
    assert_int_equal(pair.landings, 2);
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(cqe.status, WEIR_CQE_RETRY);
    pair_close(&pair);
}

static void expect_fatal(const struct side *side) {
    struct weir_async events[2];

    assert_int_equal(SIM_NIC_OPS.events(side->nic, events, 2), 1);
    assert_int_equal(events[0].type, WEIR_ASYNC_QP_FATAL);
    assert_int_equal(events[0].qp_tag, 7);
}

/* S11: a NIC that does not blame. Of a chain that the target stops at its second WR only what is
 * signalled comes back, and that flushed; both ends hear that it is over, once. */
static void test_S11_no_blame_of_a_refused_write(void **state) {
    struct sim_config config;
    struct weir_cqe cqes[DEPTH];
    struct weir_post post;
    struct weir_wr wrs[4];
    struct pair pair;

    (void)state;
    plain_config(&config);
    config.nic[0].no_blame = config.nic[1].no_blame = true;
    pair_open(&pair, &config);
    for (uint32_t i = 0; i < 4; i++) {
        wrs[i] = write_wr(&pair.a, i, 0, 1, i % 2 == 0 ? WEIR_WR_SIGNALED : 0);
    }
    wrs[1].raddr += BYTES;
    assert_int_equal(SIM_NIC_OPS.post_send(pair.a.qp, wrs, 4, &post), 0);
    run_for(&pair, 1000000);
    assert_int_equal(pair.landings, 1);
    assert_int_equal(poll_all(&pair.a, cqes, DEPTH), 2);
    assert_int_equal(cqes[0].wr_id, 0); /* it did land; its answer may come too late */
    assert_true(cqes[0].status == WEIR_CQE_OK || cqes[0].status == WEIR_CQE_FLUSHED);
    assert_int_equal(cqes[1].wr_id, 2);
    assert_int_equal(cqes[1].status, WEIR_CQE_FLUSHED);
    expect_fatal(&pair.a);
    expect_fatal(&pair.b);
    pair_close(&pair);
}

/* S11: a sender that is cut off when the other end goes hears nothing of it, until it wants
 * something there; and then not what it was that nobody answered. */
static void test_S11_no_blame_across_a_cut(void **state) {
    struct sim_config config;
    struct weir_async event;
    struct weir_cqe cqe;
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    config.nic[0].no_blame = config.nic[1].no_blame = true;
    pair_open(&pair, &config);
    pair.world->data_cut[1][0] = pair.world->data_cut[0][1] = true;
    assert_int_equal(SIM_NIC_OPS.qp_error(pair.b.qp), 0);
    run_for(&pair, 1000000);
    assert_int_equal(SIM_NIC_OPS.events(pair.a.nic, &event, 1), 0);
    pair.world->data_cut[1][0] = pair.world->data_cut[0][1] = false;
    assert_int_equal(post_writes(&pair.a, 1, WEIR_WR_SIGNALED, &error), 1);
    run_for(&pair, 1000000);
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
    expect_fatal(&pair.a);
    assert_int_equal(SIM_NIC_OPS.events(pair.b.nic, &event, 1), 0); /* it was told to */
    pair_close(&pair);
}

static void test_T4_last_wqe_habits(void **state) {
    static const int EVENTS[SIM_LAST_WQE_COUNT] = {0, 1, 1, 3};
    struct weir_async events[8];
    struct sim_config config;

    (void)state;
    plain_config(&config);
    for (uint32_t habit = 0; habit < SIM_LAST_WQE_COUNT; habit++) {
        struct pair pair;
        int count;

        config.nic[0].srq = true;
        config.nic[0].last_wqe = habit;
        config.nic[0].destroy_fails_max = 0;
        pair_open(&pair, &config);
        assert_int_equal(SIM_NIC_OPS.qp_error(pair.a.qp), 0);
        run_for(&pair, 1000000);
        count = SIM_NIC_OPS.events(pair.a.nic, events, 8);
        assert_int_equal(count, EVENTS[habit]);
        for (int i = 0; i < count; i++) {
            assert_int_equal(events[i].type, WEIR_ASYNC_LAST_WQE);
            assert_int_equal(events[i].qp_tag, 7);
        }
        pair_close(&pair);
    }
}

static void test_M2_send_without_a_buffer_is_rnr(void **state) {
    uint8_t message[8] = "weir";
    struct sim_config config;
    struct sim_nic_census census;
    struct weir_wr wr = {.wr_id = 5,
                         .laddr = (uint64_t)(uintptr_t)message,
                         .length = sizeof(message),
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_SIGNALED | WEIR_WR_INLINE};
    struct weir_cqe cqe;
    struct weir_post post;
    struct pair pair;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    assert_int_equal(
        SIM_NIC_OPS.post_recv(pair.b.nic, pair.b.qp, 9, pair.b.bytes, 64, pair.b.mr.lkey), 0);
    assert_int_equal(SIM_NIC_OPS.post_send(pair.a.qp, &wr, 1, &post), 0);
    run_for(&pair, 100000);
    assert_int_equal(poll_all(&pair.b, &cqe, 1), 1);
    assert_true(cqe.recv);
    assert_int_equal(cqe.wr_id, 9);
    assert_int_equal(cqe.byte_length, sizeof(message));
    assert_memory_equal(pair.b.bytes, message, sizeof(message));
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(SIM_NIC_OPS.post_send(pair.a.qp, &wr, 1, &post), 0);
    run_for(&pair, 100000);
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(cqe.status, WEIR_CQE_RNR);
    sim_nic_census(pair.b.nic, &census);
    assert_int_equal(census.rnrs, 1);
    pair_close(&pair);
}

static void test_E3_released_memory_refuses(void **state) {
    struct sim_config config;
    struct weir_cqe cqe;
    struct pair pair;
    int error;

    (void)state;
    plain_config(&config);
    pair_open(&pair, &config);
    assert_int_equal(post_writes(&pair.a, 1, WEIR_WR_SIGNALED, &error), 1);
    assert_int_equal(SIM_NIC_OPS.mr_release(pair.b.nic, &pair.b.mr), 0);
    run_for(&pair, 100000);
    assert_int_equal(pair.landings, 0);
    assert_int_equal(poll_all(&pair.a, &cqe, 1), 1);
    assert_int_equal(cqe.status, WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(
        SIM_NIC_OPS.mr_register(pair.b.nic, pair.b.bytes, BYTES, WEIR_ACCESS_ALL, &pair.b.mr), 0);
    pair_close(&pair);
}

/* Posts the four receives of side. */
static void post_receives(struct side *side) {
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(SIM_NIC_OPS.post_recv(side->nic, side->qp, i,
                                               side->bytes + 64 * (uint32_t)i, 64, side->mr.lkey),
                         0);
    }
}

static void send_messages(struct side *side, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct weir_wr wr = {.wr_id = 100 + i,
                             .laddr = (uint64_t)(uintptr_t)side->bytes,
                             .length = 8,
                             .lkey = side->mr.lkey,
                             .opcode = WEIR_OP_SEND,
                             .flags = WEIR_WR_SIGNALED};
        struct weir_post post;

        assert_int_equal(SIM_NIC_OPS.post_send(side->qp, &wr, 1, &post), 0);
    }
}

/* With rings for receives, a beacon's flush may come before messages that were there
 * first; in order within each ring, and nothing is lost. */
static void test_T1_beacon_may_overtake_messages(void **state) {
    struct sim_config config;
    struct weir_cqe cqes[16];
    struct weir_post post;
    struct weir_wr beacon;
    struct pair pair;
    uint64_t next = 0;
    int beacon_at = -1;
    int count;

    (void)state;
    plain_config(&config);
    for (uint32_t i = 0; i < 2; i++) {
        config.nic[i].qp_rings = config.nic[i].recv_rings = true;
        config.nic[i].ring_turn_max = 1;
        config.nic[i].flush_ns_max = 0;
    }
    pair_open(&pair, &config);
    post_receives(&pair.b);
    send_messages(&pair.a, 3);
    run_for(&pair, 1000000);
    assert_int_equal(SIM_NIC_OPS.qp_error(pair.b.qp), 0);
    beacon = write_wr(&pair.b, 7, 0, 0, WEIR_WR_SIGNALED);
    assert_int_equal(SIM_NIC_OPS.post_send(pair.b.qp, &beacon, 1, &post), 0);
    assert_int_equal(SIM_NIC_OPS.poll(pair.b.nic, cqes, 16), 2); /* one turn of each ring */
    count = 2 + poll_all(&pair.b, cqes + 2, 14);
    assert_int_equal(count, 5);
    for (int i = 0; i < count; i++) {
        if (!cqes[i].recv) {
            assert_int_equal(cqes[i].wr_id, 7);
            beacon_at = i;
            continue;
        }
        assert_int_equal(cqes[i].wr_id, next);
        assert_int_equal(cqes[i].status, next < 3 ? WEIR_CQE_OK : WEIR_CQE_FLUSHED);
        next++;
    }
    assert_int_equal(next, 4);
    assert_in_range(beacon_at, 0, 1); /* behind one message of three at most */
    assert_int_equal(SIM_NIC_OPS.arm(pair.b.nic), 0);
    pair_close(&pair);
}

/* Between QPs there is no order: the older message of one comes after the newer ones of
 * another. */
static void test_S18_rings_take_turns(void **state) {
    struct sim_config config;
    struct weir_cqe cqes[8];
    struct pair pair;
    struct side first_a, first_b;

    (void)state;
    plain_config(&config);
    config.nic[1].qp_rings = true;
    config.nic[1].ring_turn_max = 1;
    pair_open(&pair, &config);
    post_receives(&pair.b);
    send_messages(&pair.a, 3);
    run_for(&pair, 1000000);
    first_a = pair.a;
    first_b = pair.b;
    make_qp(&pair.a);
    make_qp(&pair.b);
    connect_to(&pair.a, &pair.b, 1, 2);
    connect_to(&pair.b, &pair.a, 2, 1);
    for (uint64_t i = 10; i < 12; i++) {
        assert_int_equal(
            SIM_NIC_OPS.post_recv(pair.b.nic, pair.b.qp, i, pair.b.bytes, 64, pair.b.mr.lkey), 0);
    }
    send_messages(&pair.a, 2);
    run_for(&pair, 1000000);
    assert_int_equal(SIM_NIC_OPS.poll(pair.b.nic, cqes, 8), 2); /* more is there */
    assert_int_equal(SIM_NIC_OPS.arm(pair.b.nic), WEIR_EAGAIN);
    assert_int_equal(poll_all(&pair.b, cqes + 2, 6), 3);
    for (int i = 0; i < 5; i++) {
        static const uint64_t ORDER[] = {0, 10, 1, 11, 2};

        assert_int_equal(cqes[i].wr_id, ORDER[i]);
    }
    assert_int_equal(SIM_NIC_OPS.qp_destroy(first_a.qp), 0);
    assert_int_equal(SIM_NIC_OPS.qp_destroy(first_b.qp), 0);
    pair_close(&pair);
}

/* The rest of a QP that was destroyed comes still, unless the device cleans up. */
static void test_T8_rings_of_a_destroyed_qp(void **state) {
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct sim_config config;
        struct weir_cqe cqes[8];
        struct pair pair;

        plain_config(&config);
        config.nic[1].qp_rings = true;
        config.nic[1].ring_turn_max = 1;
        config.nic[1].cq_clean = clean != 0;
        pair_open(&pair, &config);
        post_receives(&pair.b);
        send_messages(&pair.a, 3);
        run_for(&pair, 1000000);
        assert_int_equal(SIM_NIC_OPS.poll(pair.b.nic, cqes, 8), 1);
        assert_int_equal(SIM_NIC_OPS.qp_destroy(pair.b.qp), 0);
        pair.b.qp = NULL;
        assert_int_equal(poll_all(&pair.b, cqes, 8), clean != 0 ? 0 : 2);
        pair_close(&pair);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S1_slot_is_free_only_after_poll),
        cmocka_unit_test(test_S6_partial_post_every_index),
        cmocka_unit_test(test_E3_one_error_flushes_the_rest_in_order),
        cmocka_unit_test(test_S13_packets_outlive_their_sender_only),
        cmocka_unit_test(test_S13_a_host_keeps_what_comes_for_the_stopped),
        cmocka_unit_test(test_T8_stale_packet_for_a_reused_number_is_dropped),
        cmocka_unit_test(test_H5_restart_gets_the_same_qp_numbers),
        cmocka_unit_test(test_S13_cut_delays_and_then_fails),
        cmocka_unit_test(test_S11_no_blame_of_a_refused_write),
        cmocka_unit_test(test_S11_no_blame_across_a_cut),
        cmocka_unit_test(test_T4_last_wqe_habits),
        cmocka_unit_test(test_M2_send_without_a_buffer_is_rnr),
        cmocka_unit_test(test_E3_released_memory_refuses),
        cmocka_unit_test(test_T1_beacon_may_overtake_messages),
        cmocka_unit_test(test_S18_rings_take_turns),
        cmocka_unit_test(test_T8_rings_of_a_destroyed_qp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
