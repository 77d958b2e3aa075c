/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_run.c: whole engines in simulated worlds.
 *
 * Some seeds of every profile, on every commit; weir-sim runs them by the hundred
 * thousand. Then the campaign itself is tested: a run is a function of its seed,
 * and every bug that can be planted at a port is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plant.h"
#include "profile.h"
#include "run.h"
#include "seeds.h"

enum { SEEDS = 150, SEEDS_PLANT_MAX = 900, SEEDS_TWICE = 12 };

static uint64_t seeds = SEEDS;
static uint64_t seeds_twice = SEEDS_TWICE;

static void run_one(const char *profile, uint64_t seed, uint32_t plant, FILE *trace,
                    struct sim_result *result) {
    struct sim_config config;

    assert_true(profile_fill(profile, seed, &config));
    config.plant = plant;
    config.work.mail = plant == SIM_PLANT_LOST_BUFFER; /* or those for words are never all in use */
    sim_run(&config, seed, trace, result);
}

static void run_profile(const char *profile) {
    struct sim_result result;
    uint64_t ok = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        run_one(profile, seed, SIM_PLANT_NONE, NULL, &result);
        if (result.violation[0] != '\0') {
            fail_msg("weir-sim --profile %s --seed %llu --trace: %s", profile,
                     (unsigned long long)seed, result.violation);
        }
        ok += result.transfers_ok;
    }
    assert_true(ok > seeds); /* the profile does move bytes */
}

static void test_S_swarm(void **state) {
    (void)state;
    run_profile("swarm");
}

static void all_succeed(const char *profile) {
    struct sim_result result;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        run_one(profile, seed, SIM_PLANT_NONE, NULL, &result);
        if (result.violation[0] != '\0' || result.transfers_failed != 0) {
            fail_msg("weir-sim --profile %s --seed %llu --trace: %u failed; %s", profile,
                     (unsigned long long)seed, result.transfers_failed, result.violation);
        }
    }
}

static void test_S11_calm_all_succeed(void **state) {
    (void)state;
    all_succeed("calm");
}

static void test_H1_prompt_all_succeed(void **state) {
    (void)state;
    all_succeed("prompt");
}

static void test_H2_handshake(void **state) {
    (void)state;
    run_profile("handshake");
}

static void test_T4_teardown(void **state) {
    (void)state;
    run_profile("teardown");
}

static void test_S2_depth(void **state) {
    (void)state;
    run_profile("depth");
}

static void test_S9_notify(void **state) {
    (void)state;
    run_profile("notify");
}

static void test_S9_skew(void **state) {
    (void)state;
    run_profile("skew");
}

static void test_E1_unordered(void **state) {
    (void)state;
    run_profile("unordered");
}

static void test_W1_slow_applications(void **state) {
    (void)state;
    run_profile("slow");
}

static void run_twice(const char *profile, uint64_t seed, uint32_t plant) {
    struct sim_result results[2];
    char *traces[2] = {NULL, NULL};
    size_t lengths[2];

    for (int i = 0; i < 2; i++) {
        FILE *trace = open_memstream(&traces[i], &lengths[i]);

        assert_non_null(trace);
        run_one(profile, seed, plant, trace, &results[i]);
        assert_int_equal(fclose(trace), 0);
    }
    assert_true(lengths[0] > 0);
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(traces[0], traces[1], lengths[0]);
    assert_memory_equal(&results[0].violation, &results[1].violation, SIM_VIOLATION_MAX);
    assert_true(results[0].digest == results[1].digest);
    assert_true(results[0].events == results[1].events);
    free(traces[0]);
    free(traces[1]);
}

static void test_E2_same_seed_same_trace(void **state) {
    const char *profile;

    (void)state;
    for (unsigned i = 0; (profile = profile_name(i, NULL)) != NULL; i++) {
        for (uint64_t seed = 1; seed <= seeds_twice; seed++) {
            run_twice(profile, seed, SIM_PLANT_NONE);
        }
    }
}

/* The trace of a failure can be looked at again. */
static void test_E2_same_plant_same_trace(void **state) {
    (void)state;
    for (uint32_t plant = 1; plant < SIM_PLANT_COUNT; plant++) {
        run_twice("notify", plant, plant);
    }
}

/* A run that is watched is the run that was not. */
static void test_E2_trace_changes_nothing(void **state) {
    const char *profile;

    (void)state;
    for (unsigned i = 0; (profile = profile_name(i, NULL)) != NULL; i++) {
        struct sim_result plain, traced;
        char *text = NULL;
        size_t length;
        FILE *trace = open_memstream(&text, &length);

        assert_non_null(trace);
        run_one(profile, 7, SIM_PLANT_NONE, NULL, &plain);
        run_one(profile, 7, SIM_PLANT_NONE, trace, &traced);
        assert_int_equal(fclose(trace), 0);
        assert_true(plain.digest == traced.digest);
        free(text);
    }
}

static void test_E2_other_seed_other_run(void **state) {
    struct sim_result one, two;

    (void)state;
    run_one("swarm", 1, SIM_PLANT_NONE, NULL, &one);
    run_one("swarm", 2, SIM_PLANT_NONE, NULL, &two);
    assert_true(one.digest != two.digest);
}

static void test_planted_bugs_are_seen(void **state) {
    static const char *const PROFILES[] = {"calm", "notify", "swarm"};
    unsigned unseen = 0;

    (void)state;
    if (seeds < SEEDS)
        skip(); /* the release build looks for them: they say nothing of memory */
    for (uint32_t plant = 1; plant < SIM_PLANT_COUNT; plant++) {
        struct sim_result result = {.violation = ""};
        uint64_t seed = 0;

        while (result.violation[0] == '\0' && seed < SEEDS_PLANT_MAX) {
            run_one(PROFILES[seed % 3], seed / 3 + 1, plant, NULL, &result);
            seed++;
        }
        if (result.violation[0] == '\0') {
            print_error("%s: not seen in %d seeds\n", plant_name(plant), SEEDS_PLANT_MAX);
            unseen++;
        } else {
            print_message("%-16s after %3llu seeds: %s\n", plant_name(plant),
                          (unsigned long long)seed, result.violation);
        }
    }
    assert_int_equal(unseen, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S11_calm_all_succeed),
        cmocka_unit_test(test_H1_prompt_all_succeed),
        cmocka_unit_test(test_S_swarm),
        cmocka_unit_test(test_H2_handshake),
        cmocka_unit_test(test_T4_teardown),
        cmocka_unit_test(test_S2_depth),
        cmocka_unit_test(test_S9_notify),
        cmocka_unit_test(test_S9_skew),
        cmocka_unit_test(test_E1_unordered),
        cmocka_unit_test(test_W1_slow_applications),
        cmocka_unit_test(test_E2_same_seed_same_trace),
        cmocka_unit_test(test_E2_same_plant_same_trace),
        cmocka_unit_test(test_E2_trace_changes_nothing),
        cmocka_unit_test(test_E2_other_seed_other_run),
        cmocka_unit_test(test_planted_bugs_are_seen),
    };

    seeds = seeds_asked(SEEDS);
    seeds_twice = seeds_asked(SEEDS_TWICE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
