/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc.c: every set-up allocation fails in turn (E5).
 *
 * An engine over simulated ports is opened with the k-th call of env.alloc failing,
 * for each k until none fails: a clean WEIR_ENOMEM, nothing left anywhere. The
 * same for registering memory on an open engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "nic.h"
#include "profile.h"
#include "world.h"

enum { ALLOCS_MAX = 1000, BYTES = 4096 };

static struct sim_world *world_open(void) {
    struct sim_config config;
    struct sim_world *world;

    assert_true(profile_fill("calm", 1, &config));
    world = sim_world_open(&config, 1, NULL);
    assert_non_null(world);
    return world;
}

static weir_engine_options small_options(void) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    options.transfers_max = 8;
    options.segments_max = 64;
    options.peers_max = 4;
    options.memories_max = 4;
    options.remotes_max = 4;
    options.notifications_max = 8;
    options.sq_depth = 16;
    return options;
}

static void assert_nothing_left(const struct sim_node *node) {
    struct sim_nic_census census;

    sim_nic_census(node->nic, &census);
    assert_int_equal(census.qps, 0);
    assert_int_equal(census.mrs, 0);
    assert_int_equal(census.recvs, 0);
    assert_int_equal(node->block_bytes, 0);
    assert_null(node->blocks);
}

static void test_E5_open_with_every_allocation_failing(void **state) {
    struct sim_world *world = world_open();
    struct sim_node *node = &world->nodes[0];
    weir_engine_options options = small_options();
    weir_engine *engine = NULL;
    uint32_t failed = 0;
    int error = WEIR_ENOMEM;

    (void)state;
    for (uint32_t k = 1; k < ALLOCS_MAX && error != 0; k++) {
        assert_int_equal(sim_node_boot(node), 0);
        node->alloc_fails_at = k;
        engine = NULL;
        error = engine_create(&options, &node->ports, &engine);
        if (error != 0) {
            assert_int_equal(error, WEIR_ENOMEM);
            assert_null(engine);
            assert_nothing_left(node);
            sim_node_shutdown(node);
            failed++;
        }
    }
    assert_int_equal(error, 0);
    assert_true(failed > 0);
    weir_engine_close(engine);
    assert_nothing_left(node);
    node->alloc_fails_at = 0;
    sim_node_shutdown(node);
    assert_string_equal(world->violation, "");
    sim_world_close(world);
}

/* The device refuses the engine's own memory: as clean. */
static void test_E5_open_with_registration_failing(void **state) {
    struct sim_world *world = world_open();
    struct sim_node *node = &world->nodes[0];
    weir_engine_options options = small_options();
    weir_engine *engine = NULL;
    int error;

    (void)state;
    world->config.nic[0].mr_fail = SIM_ALWAYS;
    assert_int_equal(sim_node_boot(node), 0);
    error = engine_create(&options, &node->ports, &engine);
    if (error == 0) { /* it registers later, then */
        uint8_t bytes[BYTES];
        weir_memory memory;

        assert_int_equal(weir_memory_register(engine, bytes, BYTES, WEIR_ACCESS_ALL, &memory),
                         WEIR_ENOMEM);
        weir_engine_close(engine);
    }
    assert_nothing_left(node);
    sim_node_shutdown(node);
    assert_string_equal(world->violation, "");
    sim_world_close(world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_E5_open_with_every_allocation_failing),
        cmocka_unit_test(test_E5_open_with_registration_failing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
