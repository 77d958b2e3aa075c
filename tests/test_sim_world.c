/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_world.c: the simulated clock, heap, memory and control network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "heap.h"
#include "net.h"
#include "world.h"

enum { EVENTS = 5000 };

static void test_heap_gives_events_by_time_then_order(void **state) {
    struct sim_heap heap = {0};
    struct sim_prng prng;
    struct sim_event event;
    uint64_t at = 0;
    uint64_t seq = 0;

    (void)state;
    sim_prng_seed(&prng, 42);
    for (uint32_t i = 0; i < EVENTS; i++) {
        event = (struct sim_event){.at_ns = sim_below(&prng, 100), .b = i};
        assert_true(sim_heap_push(&heap, &event));
    }
    for (uint32_t i = 0; i < EVENTS; i++) {
        assert_true(sim_heap_pop(&heap, &event));
        assert_true(event.at_ns > at || (event.at_ns == at && (i == 0 || event.seq > seq)));
        assert_int_equal(event.seq, event.b);
        at = event.at_ns;
        seq = event.seq;
    }
    assert_false(sim_heap_pop(&heap, &event));
    sim_heap_fini(&heap);
}

static void test_prng_draws_stay_in_bounds(void **state) {
    struct sim_prng prng;
    bool low = false;
    bool high = false;

    (void)state;
    sim_prng_seed(&prng, 1);
    for (int i = 0; i < 10000; i++) {
        uint64_t n = sim_between(&prng, 5, 9);

        assert_in_range(n, 5, 9);
        low |= n == 5;
        high |= n == 9;
        assert_false(sim_chance(&prng, 0));
        assert_true(sim_chance(&prng, SIM_ALWAYS));
    }
    assert_true(low && high);
}

/* ---- control network --------------------------------------------------- */

static struct sim_world *world_open(void) {
    struct sim_config config = {.nodes = 2};
    struct sim_world *world;

    for (uint32_t i = 0; i < 2; i++) {
        config.nic[i].latency_max_ns = 1;
        config.nic[i].rq_depth_max = 1;
    }
    config.net.latency_min_ns = config.net.latency_max_ns = 1000;
    world = sim_world_open(&config, 7, NULL);
    assert_non_null(world);
    for (uint32_t i = 0; i < 2; i++) {
        char actual[SIM_ADDRESS_MAX];

        assert_int_equal(sim_node_boot(&world->nodes[i]), 0);
        assert_int_equal(SIM_CONTROL_OPS.listen(&world->nodes[i], "any", actual, sizeof(actual)),
                         0);
        assert_string_equal(actual, world->nodes[i].address);
    }
    return world;
}

static void world_close(struct sim_world *world) {
    for (uint32_t i = 0; i < 2; i++) {
        if (world->nodes[i].alive) {
            sim_node_shutdown(&world->nodes[i]);
        }
    }
    assert_string_equal(world->violation, "");
    sim_world_close(world);
}

static void run_for(struct sim_world *world, uint64_t ns) {
    sim_run_until(world, world->now_ns + ns);
}

static void expect(struct sim_node *node, uint32_t type, struct weir_control_event *event) {
    assert_int_equal(SIM_CONTROL_OPS.poll(node, event), 1);
    assert_int_equal(event->type, type);
}

static void expect_nothing(struct sim_node *node) {
    struct weir_control_event event;

    assert_int_equal(SIM_CONTROL_OPS.poll(node, &event), 0);
}

static void send_text(struct sim_node *node, uint64_t conn, const char *text) {
    assert_int_equal(
        SIM_CONTROL_OPS.send(node, conn, (const uint8_t *)text, (uint32_t)strlen(text)), 0);
}

/* Dials from node 0 to node 1. */
static void join(struct sim_world *world, uint64_t *mine, uint64_t *theirs) {
    struct weir_control_event event;

    assert_int_equal(SIM_CONTROL_OPS.dial(&world->nodes[0], world->nodes[1].address, mine), 0);
    run_for(world, 10000);
    expect(&world->nodes[0], WEIR_CONTROL_CONNECTED, &event);
    assert_true(event.conn == *mine);
    expect(&world->nodes[1], WEIR_CONTROL_ACCEPTED, &event);
    *theirs = event.conn;
    assert_true(*theirs != *mine);
}

static void test_net_delivers_in_order_both_ways(void **state) {
    struct sim_world *world = world_open();
    struct weir_control_event event;
    uint64_t mine, theirs;

    (void)state;
    join(world, &mine, &theirs);
    send_text(&world->nodes[0], mine, "one");
    send_text(&world->nodes[0], mine, "two");
    send_text(&world->nodes[1], theirs, "back");
    run_for(world, 10000);
    expect(&world->nodes[1], WEIR_CONTROL_MESSAGE, &event);
    assert_memory_equal(event.message, "one", 3);
    expect(&world->nodes[1], WEIR_CONTROL_MESSAGE, &event);
    assert_memory_equal(event.message, "two", 3);
    expect(&world->nodes[0], WEIR_CONTROL_MESSAGE, &event);
    assert_memory_equal(event.message, "back", 4);
    expect_nothing(&world->nodes[0]);
    world_close(world);
}

static void test_net_hangup_is_heard_by_the_other_side_only(void **state) {
    struct sim_world *world = world_open();
    struct weir_control_event event;
    uint64_t mine, theirs;

    (void)state;
    join(world, &mine, &theirs);
    send_text(&world->nodes[0], mine, "last");
    SIM_CONTROL_OPS.hangup(&world->nodes[0], mine);
    run_for(world, 10000);
    expect(&world->nodes[1], WEIR_CONTROL_MESSAGE, &event);
    expect(&world->nodes[1], WEIR_CONTROL_CLOSED, &event);
    assert_true(event.conn == theirs);
    expect_nothing(&world->nodes[0]);
    assert_int_equal(SIM_CONTROL_OPS.send(&world->nodes[0], mine, (const uint8_t *)"x", 1),
                     WEIR_ECONNECT);
    world_close(world);
}

static void test_net_dial_to_nobody_is_refused(void **state) {
    struct sim_world *world = world_open();
    struct weir_control_event event;
    uint64_t conn;

    (void)state;
    assert_int_equal(SIM_CONTROL_OPS.dial(&world->nodes[0], "10.9.9.9:1", &conn), 0);
    run_for(world, 100000);
    expect(&world->nodes[0], WEIR_CONTROL_CLOSED, &event);
    assert_int_equal(event.error, WEIR_EUNREACH);
    sim_node_crash(&world->nodes[1], false);
    assert_int_equal(SIM_CONTROL_OPS.dial(&world->nodes[0], world->nodes[1].address, &conn), 0);
    run_for(world, 100000);
    expect(&world->nodes[0], WEIR_CONTROL_CLOSED, &event);
    world_close(world);
}

/* The same node, dialled again and again: with pauses that is right. */
static void test_H12_dials_without_a_pause_are_wrong(void **state) {
    enum { DIALS = 65, PAUSE_NS = 20000000 };

    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        struct sim_world *world = world_open();

        for (int i = 0; i < DIALS; i++) {
            uint64_t conn;

            assert_string_equal(world->violation, "");
            assert_int_equal(SIM_CONTROL_OPS.dial(&world->nodes[0], world->nodes[1].address, &conn),
                             0);
            run_for(world, paused ? PAUSE_NS : 1000);
        }
        assert_int_equal(strncmp(world->violation, "H12", 3) == 0, !paused);
        world->violation[0] = '\0';
        world_close(world);
    }
}

static void test_net_cut_loses_and_heals(void **state) {
    struct sim_world *world = world_open();
    struct weir_control_event event;
    uint64_t mine, theirs, late;

    (void)state;
    join(world, &mine, &theirs);
    world->control_cut[0][1] = true;
    send_text(&world->nodes[0], mine, "lost");
    assert_int_equal(SIM_CONTROL_OPS.dial(&world->nodes[0], world->nodes[1].address, &late), 0);
    run_for(world, 10000);
    expect_nothing(&world->nodes[1]);
    world->control_cut[0][1] = false;
    run_for(world, 10000000);
    expect(&world->nodes[1], WEIR_CONTROL_ACCEPTED, &event);
    expect(&world->nodes[0], WEIR_CONTROL_CONNECTED, &event);
    assert_true(event.conn == late);
    world_close(world);
}

static void test_net_crash_loud_and_silent(void **state) {
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct sim_world *world = world_open();
        struct weir_control_event event;
        uint64_t mine, theirs;

        join(world, &mine, &theirs);
        sim_node_crash(&world->nodes[1], silent != 0);
        run_for(world, 10000);
        if (silent) {
            expect_nothing(&world->nodes[0]);
            send_text(&world->nodes[0], mine, "anybody?");
            run_for(world, 10000);
        }
        expect(&world->nodes[0], WEIR_CONTROL_CLOSED, &event);
        assert_true(event.conn == mine);
        world_close(world);
    }
}

/* ---- environment ------------------------------------------------------- */

static void test_env_alloc_is_aligned_zeroed_and_fails_on_demand(void **state) {
    struct sim_world *world = world_open();
    struct sim_node *node = &world->nodes[0];
    const struct weir_env *env = &node->ports.env;
    uint8_t *one, *two;

    (void)state;
    one = env->ops->alloc(env->self, 100);
    assert_non_null(one);
    assert_int_equal((uintptr_t)one % 64, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(one[i], 0);
    }
    node->alloc_fails_at = 2;
    two = env->ops->alloc(env->self, 8);
    assert_non_null(two);
    assert_null(env->ops->alloc(env->self, 8));
    assert_int_equal(node->block_bytes, 108);
    env->ops->free(env->self, one, 100);
    env->ops->free(env->self, two, 8);
    assert_int_equal(node->block_bytes, 0);
    world_close(world);
}

static void test_env_sleep_lets_the_world_go_on(void **state) {
    struct sim_world *world = world_open();
    struct sim_node *node = &world->nodes[0];
    struct weir_control_event event;
    uint64_t mine, theirs, before;

    (void)state;
    join(world, &mine, &theirs);
    before = node->ports.env.ops->now(node);
    node->stepping = true; /* as when an engine sleeps inside a call */
    send_text(&world->nodes[1], theirs, "wake");
    node->ports.wait.ops->sleep(node, 1000000000);
    node->stepping = false;
    assert_true(node->ports.env.ops->now(node) < before + 100000);
    expect(node, WEIR_CONTROL_MESSAGE, &event);
    before = node->ports.env.ops->now(node);
    node->ports.wait.ops->sleep(node, 5000); /* nothing comes: the whole time passes */
    assert_true(node->ports.env.ops->now(node) >= before + 5000);
    world_close(world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heap_gives_events_by_time_then_order),
        cmocka_unit_test(test_prng_draws_stay_in_bounds),
        cmocka_unit_test(test_net_delivers_in_order_both_ways),
        cmocka_unit_test(test_net_hangup_is_heard_by_the_other_side_only),
        cmocka_unit_test(test_net_dial_to_nobody_is_refused),
        cmocka_unit_test(test_H12_dials_without_a_pause_are_wrong),
        cmocka_unit_test(test_net_cut_loses_and_heals),
        cmocka_unit_test(test_net_crash_loud_and_silent),
        cmocka_unit_test(test_env_alloc_is_aligned_zeroed_and_fails_on_demand),
        cmocka_unit_test(test_env_sleep_lets_the_world_go_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
