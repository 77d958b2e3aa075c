/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_tuned.c: the effect of settings on the work that is posted: how often it is
 * signalled, what is copied into WRs, how much is polled at once.
 *
 * Two engines on simulated NICs, of which the first one's calls are looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "profile.h"
#include "world.h"

enum { BYTES = 1 << 16, WRITES = 400, PIECES = 9, SEEDS = 20, INLINE_BYTES = 64 };
#define TURN_NS UINT64_C(1000)

struct seen {
    uint32_t posts;
    uint32_t quiet_posts; /* whose last WR is unsignalled */
    uint32_t quiet_most;  /* most WRs behind the last signalled one, after a post */
    uint32_t inlined;
    uint32_t inlined_most; /* bytes */
    uint32_t polled_most;  /* in one round of progress */
};

static struct {
    struct sim_world *world;
    const struct weir_device_ops *real;
    struct weir_device_ops ops;
    weir_engine *engines[2];
    weir_memory memories[2];
    weir_peer peer;
    weir_remote remote;
    struct weir_qp *qp; /* the one that is used */
    uint32_t quiet;     /* WRs posted to it since the last signalled one */
    uint32_t polled;    /* since the round began */
    struct seen seen;
} two;

static int look_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    int rc = two.real->post_send(qp, wrs, count, post_out);
    if (qp != two.qp) {
        two.qp = qp;
        two.quiet = 0;
    }
    two.seen.posts++;
    for (uint32_t i = 0; i < post_out->accepted; i++) {
        two.quiet = (wrs[i].flags & WEIR_WR_SIGNALED) != 0 ? 0 : two.quiet + 1;
        if ((wrs[i].flags & WEIR_WR_INLINE) == 0)
            continue;
        two.seen.inlined++;
        if (wrs[i].length > two.seen.inlined_most)
            two.seen.inlined_most = (uint32_t)wrs[i].length;
    }
    two.seen.quiet_posts += two.quiet > 0;
    if (two.quiet > two.seen.quiet_most)
        two.seen.quiet_most = two.quiet;
    return rc;
}

static int look_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    int count = two.real->poll(device, cqes_out, max);
    if (device == two.world->nodes[0].ports.device && count > 0) {
        two.polled += (uint32_t)count;
        if (two.polled > two.seen.polled_most)
            two.seen.polled_most = two.polled;
    }
    return count;
}

static void turn_of(struct sim_node *node) {
    weir_engine *engine = two.engines[node->index];
    weir_notification ignored;
    if (engine == NULL)
        return;
    do {
        two.polled = 0;
    } while (weir_engine_progress(engine) > 0);
    while (weir_notification_take(engine, &ignored) == WEIR_OK)
        continue;
    uint64_t next = engine_next_deadline(engine);
    if (next < node->world->now_ns + 50)
        next = node->world->now_ns + 50;
    if (next != UINT64_MAX)
        sim_node_wake_at(node, next);
}

static void world_open(uint64_t seed) {
    struct sim_config config;
    assert_true(profile_fill("calm", seed, &config));
    config.nodes = 2;
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_nic_config *nic = &config.nic[i];
        nic->ordered = true;
        nic->isolates = false;
        nic->sq_shared = 0;
        nic->import_waits = false;
        nic->completes_inline = false;
        nic->grant = SIM_GRANT_EXACT;
        nic->sq_depth_max = 1024;
        nic->inline_bytes_max = INLINE_BYTES;
        nic->post_bytes_max = UINT64_MAX;
        nic->message_bytes_max = 1 << 20;
    }
    two.world = sim_world_open(&config, seed, NULL);
    assert_non_null(two.world);
    for (uint32_t i = 0; i < 2; i++) {
        two.world->nodes[i].step = turn_of;
        assert_int_equal(sim_node_boot(&two.world->nodes[i]), 0);
    }
}

static void two_open(uint64_t seed, const weir_engine_options *tuned) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    char address[WEIR_ADDRESS_MAX];
    size_t length = sizeof(descriptor);
    memset(&two, 0, sizeof(two));
    world_open(seed);
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_node *node = &two.world->nodes[i];
        weir_engine_options options = *tuned;
        struct weir_ports ports = node->ports;
        void *base;
        if (i == 0) {
            two.real = ports.device_ops;
            two.ops = *two.real;
            two.ops.post_send = look_post;
            two.ops.poll = look_poll;
            ports.device_ops = &two.ops;
        }
        options.listen = node->address;
        options.peers_max = options.memories_max = options.remotes_max = 8;
        options.sq_depth = 256;
        options.transfers_max = 1024;
        options.segments_max = 16384;
        assert_int_equal(engine_create(&options, &ports, &two.engines[i]), WEIR_OK);
        assert_int_equal(
            weir_memory_allocate(two.engines[i], BYTES, WEIR_ACCESS_ALL, &two.memories[i], &base),
            WEIR_OK);
        sim_node_wake(node);
    }
    assert_int_equal(weir_engine_address(two.engines[1], address, sizeof(address)), WEIR_OK);
    assert_int_equal(weir_peer_open(two.engines[0], address, &two.peer), WEIR_OK);
    assert_int_equal(weir_memory_export(two.engines[1], two.memories[1], descriptor, &length),
                     WEIR_OK);
    assert_int_equal(weir_memory_import(two.engines[0], two.peer, descriptor, length, &two.remote),
                     WEIR_OK);
}

static void two_close(void) {
    for (uint32_t i = 0; i < 2; i++) {
        weir_engine *engine = two.engines[i];
        two.engines[i] = NULL;
        weir_engine_close(engine);
        sim_node_shutdown(&two.world->nodes[i]);
    }
    assert_string_equal(two.world->violation, "");
    sim_world_close(two.world);
}

static void submit(uint32_t number, weir_transfer *transfer_out) {
    weir_segment segments[PIECES];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    uint32_t count = 1 + number % PIECES;
    for (uint32_t i = 0; i < count; i++)
        segments[i] = (weir_segment){two.memories[0], two.remote, i * 256, i * 256,
                                     1 + (number * 7 + i * 31) % 100};
    if (number % 16 == 3)
        options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(two.engines[0], two.peer, segments, count, &options, transfer_out),
                     WEIR_OK);
}

/* Single segments and batches, with a notification now and then, one after the other and many
 * at once. The counts of it. */
static struct seen work(uint64_t seed, const weir_engine_options *tuned) {
    static weir_transfer transfers[WRITES];
    two_open(seed, tuned);
    for (uint32_t i = 0; i < WRITES; i++) {
        submit(i, &transfers[i]);
        if (i % 37 == 0)
            sim_run_until(two.world, two.world->now_ns + 50 * TURN_NS);
    }
    sim_node_wake(&two.world->nodes[0]);
    for (uint32_t i = 0; i < WRITES; i++) {
        for (uint32_t turns = 0; transfers[i].id != 0 && turns < 1000000; turns++) {
            if (weir_transfer_status(two.engines[0], transfers[i]) != WEIR_EINPROGRESS)
                break;
            sim_run_until(two.world, two.world->now_ns + TURN_NS);
        }
        assert_int_equal(weir_transfer_status(two.engines[0], transfers[i]), WEIR_OK);
        weir_transfer_release(two.engines[0], transfers[i]);
        assert_null(engine_verify(two.engines[0]));
    }
    struct seen seen = two.seen;
    two_close();
    return seen;
}

/* No more WRs than were asked for wait unsignalled for the next chain; with 1, none. */
static void test_S3_signal_interval(void **state) {
    static const uint32_t intervals[] = {1, 2, 3, 8, 40, 65536};
    (void)state;
    uint32_t before = 0;
    for (size_t i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
        uint32_t most = 0, quiet_posts = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            weir_engine_options tuned = WEIR_ENGINE_OPTIONS_INIT;
            tuned.signal_interval = intervals[i];
            struct seen seen = work(seed, &tuned);
            if (seen.quiet_most > most)
                most = seen.quiet_most;
            quiet_posts += seen.quiet_posts;
        }
        assert_true(most < intervals[i]);
        assert_true(most <= 255 / 4); /* and always */
        assert_true(quiet_posts >= before);
        if (intervals[i] > 1)
            assert_true(quiet_posts > 0);
        before = quiet_posts;
    }
}

/* The default is the largest interval. */
static void test_S3_signal_interval_default(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        weir_engine_options by_default = WEIR_ENGINE_OPTIONS_INIT, most = WEIR_ENGINE_OPTIONS_INIT;
        most.signal_interval = 65536;
        struct seen a = work(seed, &by_default), b = work(seed, &most);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

static void test_S18_poll_budget(void **state) {
    static const uint32_t budgets[] = {1, 2, 31, 33, 256};
    uint32_t most = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            weir_engine_options tuned = WEIR_ENGINE_OPTIONS_INIT;
            tuned.signal_interval = 1; /* many completions */
            tuned.chain_max = 1;
            tuned.poll_budget = budgets[i];
            struct seen seen = work(seed, &tuned);
            assert_in_range(seen.polled_most, 1, budgets[i]);
            most = seen.polled_most > most ? seen.polled_most : most;
        }
    }
    assert_true(most > 33); /* there were so many */
}

static void test_inline_bytes_are_those_asked_for(void **state) {
    static const uint32_t asked[] = {0, WEIR_INLINE_NONE, 1, 20, INLINE_BYTES, 4096};
    (void)state;
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        uint32_t limit = asked[i] == WEIR_INLINE_NONE               ? 0
                         : asked[i] == 0 || asked[i] > INLINE_BYTES ? INLINE_BYTES
                                                                    : asked[i];
        weir_engine_options tuned = WEIR_ENGINE_OPTIONS_INIT;
        tuned.inline_bytes = asked[i];
        struct seen seen = work(1, &tuned);
        assert_int_equal(seen.inlined_most, limit);
        assert_int_equal(seen.inlined > 0, limit > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S3_signal_interval),
        cmocka_unit_test(test_S3_signal_interval_default),
        cmocka_unit_test(test_S18_poll_budget),
        cmocka_unit_test(test_inline_bytes_are_those_asked_for),
    };
    return cmocka_run_group_tests_name("engine tuned", tests, NULL, NULL);
}
