/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_oracle.c: every rule of the oracle, broken on purpose: it says so. And a world
 * in which all is well is not complained about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "nic.h"
#include "oracle.h"

enum { FROM, TO, NODES };

struct scene {
    struct sim_world *world;
    struct sim_oracle *oracle;
    struct sim_transfer *transfer;
};

static int setup(void **state) {
    static struct scene scene;
    static struct sim_config config;

    config.nodes = NODES;
    scene = (struct scene){.world = sim_world_open(&config, 1, NULL)};
    assert_non_null(scene.world);
    scene.oracle = oracle_open(scene.world);
    assert_non_null(scene.oracle);
    for (uint32_t n = 0; n < NODES; n++) {
        assert_int_equal(sim_node_boot(&scene.world->nodes[n]), 0);
        for (uint32_t r = 0; r < SIM_REGIONS; r++) {
            scene.oracle->regions[n][r].registered = true;
        }
    }
    *state = &scene;
    return 0;
}

static int teardown(void **state) {
    struct scene *scene = *state;

    for (uint32_t n = 0; n < NODES; n++) {
        sim_node_shutdown(&scene->world->nodes[n]);
    }
    oracle_close(scene->oracle);
    sim_world_close(scene->world);
    return 0;
}

static void draft(struct scene *scene, bool read) {
    do {
        scene->transfer = oracle_draft(scene->oracle, FROM, TO, read, 3, 200);
    } while (scene->transfer->bytes == 0);
    scene->transfer->notify = true;
}

static uint8_t *place(struct scene *scene, uint32_t i, bool target) {
    const struct sim_segment *s = &scene->transfer->segments[i];

    return target ? scene->oracle->regions[TO][s->remote_region].base + s->remote_offset
                  : scene->oracle->regions[FROM][s->local_region].base + s->local_offset;
}

/* As the NIC would: reported, then done. */
static void move_segment(struct scene *scene, uint32_t i) {
    struct sim_watch *watch = &scene->world->watch;
    bool read = scene->transfer->read;
    uint32_t length = scene->transfer->segments[i].length;
    uint8_t *source = place(scene, i, read);
    uint8_t *sink = place(scene, i, !read);

    if (length == 0) {
        return;
    }
    watch->fetch(watch->self, &scene->world->nodes[read ? TO : FROM], source, length);
    watch->landing(watch->self, &scene->world->nodes[read ? FROM : TO], sink, source, length);
    memcpy(sink, source, length);
}

static void move_all(struct scene *scene) {
    for (uint32_t i = 0; i < scene->transfer->segment_count; i++) {
        move_segment(scene, i);
    }
}

static void notify(struct scene *scene) {
    weir_notification notification = {.tag = scene->transfer->number};

    notification.length = oracle_payload(scene->transfer, notification.payload);
    oracle_notification(scene->oracle, TO, &notification);
}

static void well(struct scene *scene) {
    assert_string_equal(scene->world->violation, "");
}

static void wrong(struct scene *scene, const char *rule) {
    if (strncmp(scene->world->violation, rule, strlen(rule)) != 0) {
        fail_msg("wanted %s, got \"%s\"", rule, scene->world->violation);
    }
}

static void test_all_well(void **state) {
    struct scene *scene = *state;

    for (int read = 0; read < 2; read++) {
        draft(scene, read != 0);
        move_all(scene);
        notify(scene);
        oracle_status(scene->oracle, scene->transfer, 0);
        oracle_status(scene->oracle, scene->transfer, 0);
    }
    oracle_final(scene->oracle);
    well(scene);
    assert_int_equal(scene->oracle->ok, 2);
    assert_int_equal(scene->oracle->notifications, 2);
}

/* Of memory that was taken back a NIC says that it was refused, or no more than that the QP
 * failed: then nobody can know more. */
static void test_S11_causes_of_a_taken_back_memory(void **state) {
    static const struct {
        int status;
        bool taken, no_blame, is_well;
    } CASES[] = {
        {WEIR_EREMOTE, true, false, true},   {WEIR_EDEVICE, true, false, true},
        {WEIR_EREMOTE, false, false, false}, {WEIR_EDEVICE, false, false, false},
        {WEIR_EREMOTE, true, true, false},   {WEIR_EDEVICE, true, true, true},
        {WEIR_EREMOTE, false, true, false},  {WEIR_EDEVICE, false, true, false},
    };
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        scene->world->violation[0] = '\0';
        scene->world->config.nic[FROM].no_blame = CASES[i].no_blame;
        scene->world->config.nic[TO].no_blame = CASES[i].no_blame;
        draft(scene, false);
        scene->transfer->memory_released = CASES[i].taken;
        oracle_status(scene->oracle, scene->transfer, CASES[i].status);
        if (CASES[i].is_well) {
            well(scene);
        } else {
            wrong(scene, "S11");
        }
    }
}

static void test_S11_status_changes(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    scene->transfer->cancelled = true;
    oracle_status(scene->oracle, scene->transfer, WEIR_ECANCELED);
    well(scene);
    oracle_status(scene->oracle, scene->transfer, 0);
    wrong(scene, "S11");
}

static void test_S11_status_without_cause(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    oracle_status(scene->oracle, scene->transfer, WEIR_ECANCELED);
    wrong(scene, "S11");
}

static void test_S11_success_without_bytes(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    oracle_status(scene->oracle, scene->transfer, 0);
    wrong(scene, "S11");
}

static void test_S11_success_with_one_wrong_byte(void **state) {
    struct scene *scene = *state;
    uint32_t last;

    draft(scene, true);
    move_all(scene);
    last = scene->transfer->segment_count - 1;
    while (scene->transfer->segments[last].length == 0) {
        last--;
    }
    place(scene, last, false)[scene->transfer->segments[last].length - 1] ^= 1;
    oracle_status(scene->oracle, scene->transfer, 0);
    wrong(scene, "S11");
}

/* Both sides: a write lands at the target, a read at the one that asked. */
static void late_landing(struct scene *scene, bool read) {
    draft(scene, read);
    move_all(scene);
    oracle_status(scene->oracle, scene->transfer, 0);
    well(scene);
    move_all(scene);
    wrong(scene, "S13");
}

static void test_S13_write_after_status(void **state) {
    late_landing(*state, false);
}

static void test_S13_read_after_status(void **state) {
    late_landing(*state, true);
}

static void test_S13_write_after_failure(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    scene->transfer->cancelled = true;
    oracle_status(scene->oracle, scene->transfer, WEIR_ECANCELED);
    well(scene);
    move_all(scene);
    wrong(scene, "S13");
}

static void test_S13_source_written(void **state) {
    struct scene *scene = *state;
    struct sim_watch *watch = &scene->world->watch;
    uint32_t i = 0;

    draft(scene, false);
    while (scene->transfer->segments[i].length == 0) {
        i++;
    }
    watch->landing(watch->self, &scene->world->nodes[FROM], place(scene, i, false),
                   place(scene, i, true), 1);
    wrong(scene, "S13");
}

static void test_S13_landing_in_released_memory(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    oracle_region_released(scene->oracle, TO, 0);
    oracle_region_released(scene->oracle, TO, 1);
    well(scene);
    move_all(scene);
    wrong(scene, "S13");
}

static void test_S15_landing_past_the_end(void **state) {
    struct scene *scene = *state;
    struct sim_watch *watch = &scene->world->watch;
    uint8_t bytes[512] = {0};

    draft(scene, false);
    watch->landing(watch->self, &scene->world->nodes[TO], place(scene, 0, true), bytes,
                   scene->transfer->segments[0].length + 1);
    wrong(scene, "S15");
}

static void test_S9_notification_before_data(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    notify(scene);
    wrong(scene, "S9");
}

static void test_S9_notification_before_read(void **state) {
    struct scene *scene = *state;

    draft(scene, true);
    notify(scene);
    wrong(scene, "S9");
}

static void test_S9_notification_twice(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    move_all(scene);
    notify(scene);
    well(scene);
    notify(scene);
    wrong(scene, "S9");
}

static void test_S9_notification_missing(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    move_all(scene);
    oracle_status(scene->oracle, scene->transfer, 0);
    oracle_final(scene->oracle);
    wrong(scene, "S9");
}

static void end_unknown(struct scene *scene) {
    scene->oracle->lives_ended = true; /* a cause */
    oracle_status(scene->oracle, scene->transfer, WEIR_EUNKNOWN);
    well(scene);
}

static void test_S9_notification_of_failed_without_data(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    end_unknown(scene);
    notify(scene);
    wrong(scene, "S9");
}

static void test_S9_notification_of_failed_with_data(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    move_all(scene);
    end_unknown(scene);
    notify(scene);
    well(scene);
}

/* A cancel that is its transfer's status says that the target is not told, before or after. */
static void test_S11_notification_of_cancelled(void **state) {
    struct scene *scene = *state;

    for (int told_before = 0; told_before < 2; told_before++) {
        scene->world->violation[0] = '\0';
        draft(scene, false);
        move_all(scene);
        scene->transfer->cancelled = true;
        if (told_before) {
            notify(scene);
            well(scene);
        }
        oracle_status(scene->oracle, scene->transfer, WEIR_ECANCELED);
        if (!told_before) {
            well(scene);
            notify(scene);
        }
        wrong(scene, "S11");
    }
}

/* All bytes of a write land. */
static void land_all(struct scene *scene) {
    struct sim_watch *watch = &scene->world->watch;

    for (uint32_t i = 0; i < scene->transfer->segment_count; i++) {
        uint32_t length = scene->transfer->segments[i].length;

        if (length != 0) {
            watch->landing(watch->self, &scene->world->nodes[TO], place(scene, i, true),
                           place(scene, i, false), length);
            memcpy(place(scene, i, true), place(scene, i, false), length);
        }
    }
}

/* Packets that wait in the host of a stopped target land when that goes on: behind an end that
 * promises nothing, where hosts keep such things, and behind no other. */
static void test_S13_landing_of_what_was_kept(void **state) {
    struct scene *scene = *state;

    for (int buffers = 0; buffers < 2; buffers++) {
        scene->world->violation[0] = '\0';
        scene->world->config.nic[TO].buffers = buffers;
        draft(scene, false);
        end_unknown(scene);
        land_all(scene);
        if (!buffers) {
            wrong(scene, "S13");
            continue;
        }
        notify(scene); /* its data was not there when it ended, and is now */
        well(scene);
        draft(scene, false);
        scene->transfer->cancelled = true;
        oracle_status(scene->oracle, scene->transfer, WEIR_ECANCELED);
        land_all(scene);
        wrong(scene, "S13");
    }
}

static void test_S9_data_after_notification(void **state) {
    struct scene *scene = *state;

    draft(scene, false);
    move_all(scene);
    notify(scene);
    well(scene);
    move_all(scene);
    wrong(scene, "S9");
}

static void test_S9_notification_of_nobody(void **state) {
    struct scene *scene = *state;
    weir_notification notification = {.tag = 99};

    oracle_notification(scene->oracle, TO, &notification);
    wrong(scene, "S9");
}

static void test_H1_letter_at_wrong_node(void **state) {
    struct scene *scene = *state;
    weir_notification letter = {.tag = oracle_letter(scene->oracle, TO)};

    oracle_notification(scene->oracle, TO, &letter);
    well(scene);
    letter.tag = oracle_letter(scene->oracle, TO);
    oracle_notification(scene->oracle, FROM, &letter);
    wrong(scene, "H1");
}

static void test_S9_letter_twice(void **state) {
    struct scene *scene = *state;
    weir_notification letter = {.tag = oracle_letter(scene->oracle, TO)};

    oracle_notification(scene->oracle, TO, &letter);
    well(scene);
    oracle_notification(scene->oracle, TO, &letter);
    wrong(scene, "S9");
}

static void test_S9_notification_at_wrong_node(void **state) {
    struct scene *scene = *state;
    weir_notification notification = {0};

    draft(scene, false);
    move_all(scene);
    notification.tag = scene->transfer->number;
    notification.length = oracle_payload(scene->transfer, notification.payload);
    oracle_notification(scene->oracle, FROM, &notification);
    wrong(scene, "S9");
}

static void test_S9_notification_with_wrong_payload(void **state) {
    struct scene *scene = *state;
    weir_notification notification = {0};

    draft(scene, false);
    move_all(scene);
    notification.tag = scene->transfer->number;
    notification.length = oracle_payload(scene->transfer, notification.payload) + 1;
    oracle_notification(scene->oracle, TO, &notification);
    wrong(scene, "S9");
}

static void test_S15_refused_submit_moves_nothing(void **state) {
    struct scene *scene = *state;
    const struct sim_segment *s;
    struct sim_watch *watch = &scene->world->watch;
    uint8_t *at;

    draft(scene, false);
    s = &scene->transfer->segments[0];
    at = scene->oracle->regions[TO][s->remote_region].base + s->remote_offset;
    oracle_withdraw(scene->oracle, scene->transfer);
    watch->landing(watch->self, &scene->world->nodes[TO], at, at, 1);
    wrong(scene, "S13");
}

/* ---- stalls ---- */

enum { WATCHDOG = 8000, STEP = WATCHDOG / 8, HANDLE = 5 };

/* A transfer that is under way; the application steps for so long. */
static void begin_stall(struct scene *scene, uint64_t ns) {
    uint64_t end = scene->world->now_ns + ns;

    scene->oracle->watchdog_ns = WATCHDOG;
    oracle_stalls_begin(scene->oracle, FROM);
    draft(scene, false);
    scene->transfer->handle.id = 1;
    for (; scene->world->now_ns < end; scene->world->now_ns += STEP) {
        oracle_stalls_step(scene->oracle, FROM, 1u << TO, 1u << TO);
    }
}

static void tell(struct scene *scene, weir_event_type type) {
    const weir_event event = {.type = type, .peer = {HANDLE}};

    oracle_stalls_event(scene->oracle, FROM, TO, &event);
}

static void test_M10_a_stall_and_its_end(void **state) {
    struct scene *scene = *state;

    begin_stall(scene, WATCHDOG);
    tell(scene, WEIR_EVENT_STALLED);
    for (int i = 0; i < 100; i++) {
        scene->world->now_ns += STEP;
        oracle_stalls_step(scene->oracle, FROM, 1u << TO, 1u << TO);
    }
    tell(scene, WEIR_EVENT_RESUMED);
    tell(scene, WEIR_EVENT_STALLED);
    tell(scene, WEIR_EVENT_GONE);
    tell(scene, WEIR_EVENT_STALLED);
    well(scene);
}

static void test_M10_a_stall_that_is_told_too_early(void **state) {
    struct scene *scene = *state;

    begin_stall(scene, WATCHDOG - STEP);
    tell(scene, WEIR_EVENT_STALLED);
    wrong(scene, "M10");
}

static void test_M10_a_stall_of_nothing(void **state) {
    struct scene *scene = *state;

    begin_stall(scene, WATCHDOG);
    oracle_status(scene->oracle, scene->transfer, WEIR_ECANCELED); /* judged elsewhere */
    scene->world->violation[0] = '\0';
    scene->world->now_ns += STEP;
    oracle_stalls_step(scene->oracle, FROM, 0, 0);
    scene->world->now_ns += STEP;
    oracle_stalls_step(scene->oracle, FROM, 0, 0);
    tell(scene, WEIR_EVENT_STALLED);
    wrong(scene, "M10");
}

static void test_M10_a_stall_behind_a_completion(void **state) {
    struct scene *scene = *state;

    begin_stall(scene, WATCHDOG);
    move_all(scene);
    oracle_status(scene->oracle, scene->transfer, 0);
    draft(scene, false);
    scene->transfer->handle.id = 2;
    scene->transfer->began_ns = 0;
    for (int i = 0; i < 3; i++) {
        scene->world->now_ns += STEP;
        oracle_stalls_step(scene->oracle, FROM, 1u << TO, 1u << TO);
    }
    well(scene);
    tell(scene, WEIR_EVENT_STALLED);
    wrong(scene, "M10");
}

static void test_M10_stalled_twice(void **state) {
    struct scene *scene = *state;

    begin_stall(scene, WATCHDOG);
    tell(scene, WEIR_EVENT_STALLED);
    well(scene);
    tell(scene, WEIR_EVENT_STALLED);
    wrong(scene, "M10");
}

static void test_M10_resumed_from_nothing(void **state) {
    struct scene *scene = *state;

    tell(scene, WEIR_EVENT_LOST); /* then nobody knows */
    tell(scene, WEIR_EVENT_RESUMED);
    well(scene);
    scene->oracle->stalls[FROM].unknown = false;
    tell(scene, WEIR_EVENT_RESUMED);
    wrong(scene, "M10");
}

static void test_M10_a_stall_that_is_not_told(void **state) {
    struct scene *scene = *state;

    begin_stall(scene, 4 * WATCHDOG);
    move_segment(scene, 0); /* it goes on */
    for (int i = 0; i < 32; i++) {
        scene->world->now_ns += STEP;
        oracle_stalls_step(scene->oracle, FROM, 1u << TO, 1u << TO);
    }
    well(scene);
    scene->world->now_ns += WATCHDOG; /* nobody looked */
    oracle_stalls_step(scene->oracle, FROM, 1u << TO, 1u << TO);
    well(scene);
    for (int i = 0; i < 34; i++) {
        scene->world->now_ns += STEP;
        oracle_stalls_step(scene->oracle, FROM, 1u << TO, 1u << TO);
    }
    wrong(scene, "M10");
}

static void event_of(struct scene *scene, weir_event_type type) {
    oracle_event(scene->oracle, FROM, TO,
                 &(weir_event){.type = type, .peer = {7}, .error = WEIR_EPEER});
}

static void test_S9_a_peer_that_left_is_degraded(void **state) {
    struct scene *scene = *state;

    for (int case_of = 0; case_of < 4; case_of++) { /* the last one is wrong */
        well(scene);
        oracle_leavers(scene->oracle, FROM, case_of == 0 ? 0 : 1u << TO);
        event_of(scene, WEIR_EVENT_DEGRADED);
        if (case_of == 1) { /* it was before */
            oracle_events_taken(scene->oracle, FROM);
            oracle_leavers(scene->oracle, FROM, 1u << TO);
        }
        event_of(scene, case_of == 2 ? WEIR_EVENT_RECOVERED : WEIR_EVENT_RESUMED);
        event_of(scene, WEIR_EVENT_GONE);
        oracle_events_taken(scene->oracle, FROM);
    }
    wrong(scene, "S9");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_all_well),
        TEST(test_S11_causes_of_a_taken_back_memory),
        TEST(test_S11_status_changes),
        TEST(test_S11_status_without_cause),
        TEST(test_S11_success_without_bytes),
        TEST(test_S11_success_with_one_wrong_byte),
        TEST(test_S13_write_after_status),
        TEST(test_S13_read_after_status),
        TEST(test_S13_write_after_failure),
        TEST(test_S13_source_written),
        TEST(test_S13_landing_in_released_memory),
        TEST(test_S15_landing_past_the_end),
        TEST(test_S9_notification_before_data),
        TEST(test_S9_notification_before_read),
        TEST(test_S9_notification_twice),
        TEST(test_S9_notification_missing),
        TEST(test_S9_notification_of_failed_without_data),
        TEST(test_S9_notification_of_failed_with_data),
        TEST(test_S11_notification_of_cancelled),
        TEST(test_S13_landing_of_what_was_kept),
        TEST(test_S9_data_after_notification),
        TEST(test_S9_notification_of_nobody),
        TEST(test_H1_letter_at_wrong_node),
        TEST(test_S9_letter_twice),
        TEST(test_S9_notification_at_wrong_node),
        TEST(test_S9_notification_with_wrong_payload),
        TEST(test_S15_refused_submit_moves_nothing),
        TEST(test_M10_a_stall_and_its_end),
        TEST(test_M10_a_stall_that_is_told_too_early),
        TEST(test_M10_a_stall_of_nothing),
        TEST(test_M10_a_stall_behind_a_completion),
        TEST(test_M10_stalled_twice),
        TEST(test_M10_resumed_from_nothing),
        TEST(test_M10_a_stall_that_is_not_told),
        TEST(test_S9_a_peer_that_left_is_degraded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
