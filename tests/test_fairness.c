/* SPDX-License-Identifier: Apache-2.0 */
/* test_fairness.c: how often a waiting transfer is overtaken (S4), on the simulated
 * device and on shm.
 *
 * The device's operations are wrapped: each chain that an engine posts is noted with
 * the transfer whose memory, or notification, it begins with. The bound that
 * docs/design.md states is then looked for in the notes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "engine.h"
#include "os.h"
#include "profile.h"
#include "seeds.h"
#include "wire_data.h"
#include "world.h"

enum {
    TRANSFERS_MAX = 1200,
    SLICE = 2048, /* bytes of memory for one transfer; the large one has all that is left */
    PIECE = 8,
    SMALL_PIECES = 40,
    LARGE_PIECES = 8000,
    SMALL_COUNT = 64,
    NOTES_MAX = 1 << 17,
    TURNS_MAX = 200000,
    TURN_NS = 20000,
    SEEDS = 25
};

#define MEMORY_BYTES ((uint64_t)TRANSFERS_MAX * SLICE + (uint64_t)LARGE_PIECES * PIECE)

/* ---- what is noted ----------------------------------------------------- */

enum { NOTE_DATA, NOTE_MESSAGE, NOTE_SUBMIT };

struct note {
    uint16_t transfer;
    uint8_t what;
};

static struct note notes[NOTES_MAX];
static uint32_t note_count;
static uint8_t *source; /* memory of the engine that is watched */
static const struct weir_device_ops *real_ops;
static struct weir_device_ops noting_ops;

static void note(uint32_t transfer, uint8_t what) {
    assert_true(note_count < NOTES_MAX && transfer < TRANSFERS_MAX);
    notes[note_count++] = (struct note){(uint16_t)transfer, what};
}

static uint32_t transfer_at(uint64_t address) {
    uint64_t offset = address - (uint64_t)(uintptr_t)source;
    assert_true(offset < MEMORY_BYTES);
    return offset / SLICE < TRANSFERS_MAX - 1 ? (uint32_t)(offset / SLICE) : TRANSFERS_MAX - 1;
}

static int noting_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                       struct weir_post *post_out) {
    struct wire_data data = {.kind = 0};
    bool message = wrs->opcode == WEIR_OP_SEND;
    if (message)
        assert_int_equal(
            wire_data_decode((const uint8_t *)(uintptr_t)wrs->laddr, (uint32_t)wrs->length, &data),
            WEIR_OK);
    uint64_t address = wrs->laddr;
    bool empty = wrs->length == 0;
    int rc = real_ops->post_send(qp, wrs, count, post_out);
    if (post_out->accepted > 0 && data.kind == WIRE_NOTIFY)
        note((uint32_t)data.tag, NOTE_MESSAGE);
    else if (post_out->accepted > 0 && !message && !empty)
        note(transfer_at(address), NOTE_DATA);
    return rc;
}

static uint32_t noting_pieces(struct weir_qp *qp, const struct weir_span *span,
                              const weir_segment *segments, uint32_t count) {
    uint32_t done = real_ops->post_pieces(qp, span, segments, count);
    if (done > 0)
        note(transfer_at(span->laddr + segments->local_offset), NOTE_DATA);
    return done;
}

static const struct weir_device_ops *noting(const struct weir_device_ops *ops) {
    real_ops = ops;
    noting_ops = *ops;
    noting_ops.post_send = noting_post;
    noting_ops.post_pieces = noting_pieces;
    return &noting_ops;
}

/* Between the submit of `mine` and its first chain, and between its chains of data, no
 * other transfer posts more than one chain, and its notification: a part on each QP; and
 * none posts data that was submitted meanwhile. (A notification waits for credits or for
 * its data, not for its turn.) */
static void assert_bound_of(uint32_t mine, uint32_t qps) {
    uint8_t posted[2][TRANSFERS_MAX] = {0};
    uint32_t over = 0; /* the note that is one too many */
    for (uint32_t i = 0; i < note_count; i++) {
        const struct note *at = &notes[i];
        if (at->transfer == mine) {
            if (at->what == NOTE_DATA && over != 0)
                fail_msg("transfer %u is overtaken by %u again, at note %u", mine,
                         notes[over].transfer, over);
            memset(posted, 0, sizeof(posted));
            over = 0;
        } else if (at->what == NOTE_SUBMIT) {
            posted[NOTE_DATA][at->transfer] = 1; /* it came later: not even once */
        } else if (++posted[at->what][at->transfer] > (at->what == NOTE_DATA ? 1 : qps)) {
            over = i;
        }
    }
}

/* ---- two engines ------------------------------------------------------- */

struct two {
    struct sim_world *world; /* NULL: shm */
    struct weir_ports ports[2];
    weir_engine *engines[2];
    weir_memory memory;
    weir_peer peer;
    weir_remote remote;
    uint8_t *bytes[2];
};

static struct two *present; /* those that are simulated */

static void take_notifications(struct two *two) {
    weir_notification got;
    while (weir_notification_take(two->engines[1], &got) == WEIR_OK)
        continue;
}

static void sim_turn(struct sim_node *node) {
    struct two *two = present;
    weir_engine *engine = two->engines[node->index];
    if (engine == NULL)
        return;
    while (weir_engine_progress(engine) > 0)
        continue;
    if (node->index == 1)
        take_notifications(two);
    uint64_t next = engine_next_deadline(engine);
    if (next < node->world->now_ns + 50)
        next = node->world->now_ns + 50;
    if (next != UINT64_MAX)
        sim_node_wake_at(node, next);
}

static void turn(struct two *two) {
    if (two->world != NULL) {
        sim_run_until(two->world, two->world->now_ns + TURN_NS);
        return;
    }
    weir_engine_progress(two->engines[0]);
    weir_engine_progress(two->engines[1]);
    take_notifications(two);
}

static void open_sim(struct two *two, uint64_t seed) {
    struct sim_config config;
    assert_true(profile_fill("calm", seed, &config));
    config.nodes = 2;
    config.nic[0].import_waits = config.nic[1].import_waits = false;
    present = two;
    two->world = sim_world_open(&config, seed, NULL);
    assert_non_null(two->world);
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_node *node = &two->world->nodes[i];
        node->step = sim_turn;
        assert_int_equal(sim_node_boot(node), 0);
        two->ports[i] = node->ports;
    }
}

static void open_shm(struct two *two) {
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_ports *ports = &two->ports[i];
        ports->device_ops = device_table[0];
        assert_int_equal(os_env_init(&ports->env), WEIR_OK);
        assert_int_equal(ports->device_ops->open(&ports->env, &ports->device), WEIR_OK);
        assert_int_equal(tcp_open(&ports->env, 0, &ports->control), WEIR_OK);
        assert_int_equal(wait_open(&ports->env, &ports->wait), WEIR_OK);
    }
}

static weir_engine_options options_of(const struct two *two, uint32_t i, uint32_t qps) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.listen = two->world != NULL ? two->world->nodes[i].address : NULL;
    options.transfers_max = 256;
    options.segments_max = 16384;
    options.peers_max = 8;
    options.memories_max = 8;
    options.remotes_max = 8;
    options.qp_count = qps;
    options.sq_depth = 64;
    options.recv_credits = 16;
    return options;
}

/* seed 0: shm. */
static void two_open(struct two *two, uint64_t seed, uint32_t qps) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    char address[WEIR_ADDRESS_MAX];
    weir_memory memories[2];
    size_t length = sizeof(descriptor);
    memset(two, 0, sizeof(*two));
    note_count = 0;
    if (seed != 0)
        open_sim(two, seed);
    else
        open_shm(two);
    two->ports[0].device_ops = noting(two->ports[0].device_ops);
    for (uint32_t i = 0; i < 2; i++) {
        weir_engine_options options = options_of(two, i, qps);
        void *base;
        assert_int_equal(engine_create(&options, &two->ports[i], &two->engines[i]), WEIR_OK);
        assert_int_equal(weir_memory_allocate(two->engines[i], MEMORY_BYTES, WEIR_ACCESS_ALL,
                                              &memories[i], &base),
                         WEIR_OK);
        two->bytes[i] = base;
        if (two->world != NULL)
            sim_node_wake(&two->world->nodes[i]);
    }
    source = two->bytes[0];
    two->memory = memories[0];
    assert_int_equal(weir_engine_address(two->engines[1], address, sizeof(address)), WEIR_OK);
    assert_int_equal(weir_peer_open(two->engines[0], address, &two->peer), WEIR_OK);
    assert_int_equal(weir_memory_export(two->engines[1], memories[1], descriptor, &length),
                     WEIR_OK);
    assert_int_equal(
        weir_memory_import(two->engines[0], two->peer, descriptor, length, &two->remote), WEIR_OK);
}

static void two_close(struct two *two) {
    for (uint32_t i = 0; i < 2; i++) {
        weir_engine *engine = two->engines[i];
        two->engines[i] = NULL;
        weir_engine_close(engine);
        if (two->world != NULL) {
            sim_node_shutdown(&two->world->nodes[i]);
            continue;
        }
        wait_close(&two->ports[i].wait);
        tcp_close(&two->ports[i].control);
        device_table[0]->close(two->ports[i].device);
    }
    if (two->world == NULL)
        return;
    assert_string_equal(two->world->violation, "");
    sim_world_close(two->world);
}

/* ---- transfers --------------------------------------------------------- */

enum { LARGE = TRANSFERS_MAX - 1 };

struct crowd {
    struct two *two;
    weir_transfer handles[TRANSFERS_MAX];
    bool done[TRANSFERS_MAX];
    uint32_t small_count; /* submitted */
    uint32_t small_done;
    bool mixed; /* reads and notifications among them */
};

static weir_segment segments[LARGE_PIECES];

static void submit(struct crowd *crowd, uint32_t number) {
    struct two *two = crowd->two;
    uint32_t count = number == LARGE ? LARGE_PIECES : 1 + number * 7 % SMALL_PIECES;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    bool reads = crowd->mixed && number % 5 == 3;
    options.flags = WEIR_TRANSFER_ONCE; /* with a record, whatever the device */
    options.notify_tag = number;
    if (crowd->mixed && number % 2 == 1)
        options.flags |= WEIR_TRANSFER_NOTIFY;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = (uint64_t)number * SLICE + (uint64_t)i * PIECE;
        segments[i] = (weir_segment){two->memory, two->remote, offset, offset, PIECE};
    }
    note(number, NOTE_SUBMIT);
    assert_int_equal((reads ? weir_read : weir_write)(two->engines[0], two->peer, segments, count,
                                                      &options, &crowd->handles[number]),
                     WEIR_OK);
    crowd->small_count += number != LARGE;
    if (two->world != NULL)
        sim_node_wake(&two->world->nodes[0]);
}

static void look(struct crowd *crowd, uint32_t number) {
    weir_engine *engine = crowd->two->engines[0];
    int status = crowd->done[number] ? WEIR_EINPROGRESS
                                     : weir_transfer_status(engine, crowd->handles[number]);
    if (status == WEIR_EINPROGRESS)
        return;
    assert_int_equal(status, WEIR_OK);
    assert_int_equal(weir_transfer_release(engine, crowd->handles[number]), WEIR_OK);
    crowd->done[number] = true;
    crowd->small_done += number != LARGE;
}

static void look_at_all(struct crowd *crowd) {
    for (uint32_t i = 0; i < crowd->small_count; i++)
        look(crowd, i);
    look(crowd, LARGE);
}

/* ---- the tests --------------------------------------------------------- */

/* One large transfer, then 64 small ones: all of them are done long before it. */
static void large_then_small(uint64_t seed, uint32_t qps, bool mixed) {
    struct two two;
    two_open(&two, seed, qps);
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    assert_non_null(crowd);
    *crowd = (struct crowd){.two = &two, .mixed = mixed};
    submit(crowd, LARGE);
    for (uint32_t i = 0; i < SMALL_COUNT; i++)
        submit(crowd, i);
    uint32_t turns = 0;
    for (; crowd->small_done < SMALL_COUNT && turns < TURNS_MAX; turns++) {
        turn(&two);
        look_at_all(crowd);
        assert_true(!crowd->done[LARGE] || crowd->small_done == SMALL_COUNT);
    }
    for (; !crowd->done[LARGE] && turns < TURNS_MAX; turns++) {
        turn(&two);
        look_at_all(crowd);
    }
    assert_true(crowd->done[LARGE]);
    for (uint32_t i = 0; i < SMALL_COUNT; i++)
        assert_bound_of(i, qps);
    assert_bound_of(LARGE, qps);
    free(crowd);
    two_close(&two);
}

/* 64 small transfers and then a large one, while small ones keep coming so that there
 * are always 64: it is done all the same. */
static void small_then_large(uint64_t seed, uint32_t qps, bool mixed) {
    struct two two;
    two_open(&two, seed, qps);
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    assert_non_null(crowd);
    *crowd = (struct crowd){.two = &two, .mixed = mixed};
    for (uint32_t i = 0; i < SMALL_COUNT; i++)
        submit(crowd, i);
    submit(crowd, LARGE);
    for (uint32_t turns = 0; turns < TURNS_MAX && !crowd->done[LARGE]; turns++) {
        turn(&two);
        look_at_all(crowd);
        while (crowd->small_count - crowd->small_done < SMALL_COUNT && crowd->small_count < LARGE)
            submit(crowd, crowd->small_count);
    }
    assert_true(crowd->done[LARGE]);
    for (uint32_t turns = 0; turns < TURNS_MAX && crowd->small_done < crowd->small_count; turns++) {
        turn(&two);
        look_at_all(crowd);
    }
    assert_int_equal(crowd->small_done, crowd->small_count);
    for (uint32_t i = 0; i < crowd->small_count; i++)
        assert_bound_of(i, qps);
    assert_bound_of(LARGE, qps);
    free(crowd);
    two_close(&two);
}

static void on_every_world(void (*body)(uint64_t seed, uint32_t qps, bool mixed), bool sim) {
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t qps = k % 2 == 0 ? 1 : 3;
        if (!sim)
            body(0, qps, k >= 2);
        for (uint64_t seed = 1; sim && seed <= seeds_asked(SEEDS); seed++)
            body(seed, qps, k >= 2);
    }
}

static void test_S4_one_large_64_small_sim(void **state) {
    (void)state;
    on_every_world(large_then_small, true);
}

static void test_S4_64_small_one_large_sim(void **state) {
    (void)state;
    on_every_world(small_then_large, true);
}

static void test_S4_one_large_64_small_shm(void **state) {
    (void)state;
    struct weir_device_caps caps;
    if (device_table[0]->probe(NULL, &caps) != WEIR_OK)
        skip();
    on_every_world(large_then_small, false);
}

static void test_S4_64_small_one_large_shm(void **state) {
    (void)state;
    struct weir_device_caps caps;
    if (device_table[0]->probe(NULL, &caps) != WEIR_OK)
        skip();
    on_every_world(small_then_large, false);
}

static uint64_t credit_waits(struct two *two) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(two->engines[0], &stats), WEIR_OK);
    return stats.credit_waits;
}

/* Notifications that wait for credits are looked at when one comes back, and not for
 * every transfer that passes them; they go in the order in which they came. */
static void test_M5_waiting_notifications_cost_nothing(void **state) {
    enum { WAITING = 200, PASSING = 100 };
    struct weir_device_caps caps;
    struct two two;
    (void)state;
    if (device_table[0]->probe(NULL, &caps) != WEIR_OK)
        skip();
    two_open(&two, 0, 1);
    while (weir_peer_connect(two.engines[0], two.peer) == WEIR_ENOTREADY)
        turn(&two);
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfers[WAITING], passing;
    options.flags = WEIR_TRANSFER_NOTIFY;
    for (uint32_t i = 0; i < WAITING; i++) {
        options.notify_tag = i;
        assert_int_equal(weir_write(two.engines[0], two.peer, NULL, 0, &options, &transfers[i]),
                         WEIR_OK);
    }
    uint64_t before = credit_waits(&two);
    assert_in_range(before, WAITING - 64, WAITING);
    for (uint32_t i = 0; i < PASSING; i++) {
        weir_segment one = {two.memory, two.remote, i * 8, i * 8, 8};
        assert_int_equal(weir_write(two.engines[0], two.peer, &one, 1, NULL, &passing), WEIR_OK);
        assert_int_equal(weir_transfer_status(two.engines[0], passing), WEIR_OK);
        assert_int_equal(weir_transfer_release(two.engines[0], passing), WEIR_OK);
    }
    assert_int_equal(credit_waits(&two), before);
    weir_notification got;
    for (uint32_t taken = 0, turns = 0; taken < WAITING; turns++) {
        assert_true(turns < TURNS_MAX);
        weir_engine_progress(two.engines[0]);
        weir_engine_progress(two.engines[1]);
        while (weir_notification_take(two.engines[1], &got) == WEIR_OK)
            assert_int_equal(got.tag, taken++);
    }
    for (uint32_t i = 0; i < WAITING; i++) {
        assert_int_equal(weir_transfer_wait(two.engines[0], transfers[i], UINT64_MAX), WEIR_OK);
        assert_int_equal(weir_transfer_release(two.engines[0], transfers[i]), WEIR_OK);
    }
    assert_int_equal(credit_waits(&two), before);
    two_close(&two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S4_one_large_64_small_sim),
        cmocka_unit_test(test_S4_64_small_one_large_sim),
        cmocka_unit_test(test_S4_one_large_64_small_shm),
        cmocka_unit_test(test_S4_64_small_one_large_shm),
        cmocka_unit_test(test_M5_waiting_notifications_cost_nothing),
    };
    return cmocka_run_group_tests_name("fairness", tests, NULL, NULL);
}
