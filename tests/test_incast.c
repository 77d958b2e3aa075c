/* SPDX-License-Identifier: Apache-2.0 */
/* test_incast.c: many that send to one inbox at once (S18), on simulated NICs of 100 Gbit/s.
 *
 * Each sender keeps some messages under way, and the receiver takes all that has come and gives it
 * back. A round lasts so long in the world's time, from a moment at which all are connected and
 * nobody has sent yet. Its rates are those of what the receiver took: what it takes to be given
 * room is in them. The time that processors need is not: the worlds have none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "sim_kinds.h"
#include "world.h"

#define US UINT64_C(1000)
#define MS (1000 * US)

enum {
    SENDERS = 100,
    ORDERED = 0, /* kinds of NICs */
    UNORDERED = 4,
    WINDOW = 64, /* messages of a sender that are under way */
    NUMBER = 7,  /* of the inbox */
    LONGEST = 1 << 20,
    PORT_BYTES_PER_US = 12500,
    LATENCY_NS = 1000,
    TURN_NS = 20000,
    TURNS_MAX = 100000
};

struct sender {
    weir_engine *engine;
    weir_memory memory;
    weir_peer target;
    weir_transfer transfers[WINDOW];
    uint64_t sent, ended;
    uint64_t taken; /* messages, by the receiver */
};

static struct incast {
    struct sim_world *world;
    weir_engine *target;
    weir_inbox inbox;
    uint32_t count; /* of senders */
    uint32_t length;
    bool goes;
    struct sender senders[SENDERS];
} incast;

static uint8_t payload[LONGEST];

/* One measurement. */
struct plan {
    uint32_t kind; /* of the NICs, in sim_kinds.h */
    uint32_t length;
    uint64_t ns;          /* how long */
    uint64_t step_ns_max; /* so late a process is at most */
};

/* ---- what the processes do ---------------------------------------------- */

/* Whether it sent or ended one. */
static bool send_some(struct sender *sender, uint32_t index) {
    const weir_part part = {.local = sender->memory, .length = incast.length};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    uint64_t before = sender->sent + sender->ended;
    int rc;

    for (; sender->ended < sender->sent; sender->ended++) {
        weir_transfer transfer = sender->transfers[sender->ended % WINDOW];
        rc = transfer.id == 0 ? WEIR_OK : weir_transfer_status(sender->engine, transfer);
        if (rc == WEIR_EINPROGRESS)
            break;
        assert_int_equal(rc, WEIR_OK);
        if (transfer.id != 0)
            assert_int_equal(weir_transfer_release(sender->engine, transfer), WEIR_OK);
    }
    for (; sender->sent - sender->ended < WINDOW; sender->sent++) {
        options.notify_tag = (uint64_t)index << 32 | sender->sent;
        rc = weir_message_send(sender->engine, sender->target, NUMBER, &part, 1, &options,
                               &sender->transfers[sender->sent % WINDOW]);
        if (rc == WEIR_EAGAIN)
            break;
        assert_int_equal(rc, WEIR_OK);
    }
    return sender->sent + sender->ended != before;
}

static bool take_some(void) {
    weir_message message;
    bool took = false;

    while (weir_message_take(incast.target, incast.inbox, &message) == WEIR_OK) {
        struct sender *sender = &incast.senders[message.tag >> 32];
        assert_int_equal(message.tag & UINT32_MAX, sender->taken);
        assert_int_equal(message.length, incast.length);
        sender->taken++;
        assert_int_equal(weir_message_give_back(incast.target, &message), WEIR_OK);
        took = true;
    }
    return took;
}

static void step(struct sim_node *node) {
    struct sender *sender = &incast.senders[node->index - (node->index > 0)];
    weir_engine *engine = node->index == 0 ? incast.target : sender->engine;
    bool more = true;

    if (engine == NULL)
        return;
    while (more) {
        more = weir_engine_progress(engine) > 0;
        if (node->index == 0)
            more |= take_some();
        else if (incast.goes)
            more |= send_some(sender, node->index - 1);
    }
    uint64_t next = engine_next_deadline(engine);
    if (next < node->world->now_ns + 50)
        next = node->world->now_ns + 50;
    if (next != UINT64_MAX)
        sim_node_wake_at(node, next);
}

/* ---- worlds ------------------------------------------------------------- */

static weir_engine *engine_open(uint32_t index) {
    struct sim_node *node = &incast.world->nodes[index];
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    node->step = step;
    assert_int_equal(sim_node_boot(node), 0);
    options.listen = node->address;
    options.transfers_max = options.segments_max = 256;
    options.peers_max = index == 0 ? 2 * SENDERS : 4;
    options.memories_max = options.remotes_max = 8;
    options.notifications_max = 64;
    assert_int_equal(engine_create(&options, &node->ports, &engine), WEIR_OK);
    return engine;
}

static void inbox_open(void) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;

    options.number = NUMBER;
    options.message_bytes_max = incast.length;
    assert_int_equal(weir_inbox_open(incast.target, &options, &incast.inbox), WEIR_OK);
}

static void until_connected(struct sender *sender) {
    int turns = 0;

    while (weir_peer_connect(sender->engine, sender->target) != WEIR_OK) {
        assert_true(turns++ < TURNS_MAX);
        sim_run_until(incast.world, incast.world->now_ns + TURN_NS);
    }
}

static void open_world(const struct plan *plan, uint32_t count) {
    char address[WEIR_ADDRESS_MAX];
    struct sim_config config;

    sim_kind_config(&sim_kinds[plan->kind], count + 1, &config);
    config.step_ns_max = plan->step_ns_max;
    for (uint32_t i = 0; i <= count; i++) {
        config.nic[i].latency_min_ns = config.nic[i].latency_max_ns = LATENCY_NS;
        config.nic[i].bytes_per_us = PORT_BYTES_PER_US;
    }
    memset(&incast, 0, sizeof(incast));
    incast.count = count;
    incast.length = plan->length;
    incast.world = sim_world_open(&config, 1, NULL);
    assert_non_null(incast.world);
    incast.target = engine_open(0);
    inbox_open();
    assert_int_equal(weir_engine_address(incast.target, address, sizeof(address)), WEIR_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct sender *sender = &incast.senders[i];
        sender->engine = engine_open(i + 1);
        assert_int_equal(
            weir_memory_register(sender->engine, payload, sizeof(payload), 0, &sender->memory),
            WEIR_OK);
        assert_int_equal(weir_peer_open(sender->engine, address, &sender->target), WEIR_OK);
    }
    for (uint32_t i = 0; i < count; i++)
        until_connected(&incast.senders[i]);
}

static void close_world(void) {
    weir_engine *engine;

    for (uint32_t i = 0; i < incast.count; i++) {
        engine = incast.senders[i].engine;
        incast.senders[i].engine = NULL;
        weir_engine_close(engine);
    }
    engine = incast.target;
    incast.target = NULL;
    assert_null(engine_verify(engine));
    weir_engine_close(engine);
    for (uint32_t i = 0; i <= incast.count; i++)
        sim_node_shutdown(&incast.world->nodes[i]);
    assert_string_equal(incast.world->violation, "");
    sim_world_close(incast.world);
}

/* ---- rounds ------------------------------------------------------------- */

/* Of so many senders. Bytes a microsecond. */
static double round_of(const struct plan *plan, uint32_t count, double *slowest_out) {
    double sum = 0;

    open_world(plan, count);
    incast.goes = true;
    for (uint32_t i = 1; i <= count; i++)
        sim_node_wake(&incast.world->nodes[i]);
    sim_run_until(incast.world, incast.world->now_ns + plan->ns);
    incast.goes = false;
    for (uint32_t i = 0; i < count; i++) {
        double rate = (double)incast.senders[i].taken * plan->length * 1000 / (double)plan->ns;
        sum += rate;
        *slowest_out = i == 0 || rate < *slowest_out ? rate : *slowest_out;
    }
    close_world();
    return sum;
}

/* alone_least: how much of its port one sender by itself is to fill, so that there is something to
 * compare with. */
static void compare(const struct plan *plan, double alone_least) {
    double slowest, alone = round_of(plan, 1, &slowest);
    double sum = round_of(plan, SENDERS, &slowest), mean = sum / SENDERS;

    printf("# %-13s %7u bytes: alone %5.0f MB/s, %u together %5.0f, %.3f of that; slowest %.3f of "
           "the mean\n",
           sim_kinds[plan->kind].name, plan->length, alone, SENDERS, sum, sum / alone,
           slowest / mean);
    assert_true(alone >= alone_least * PORT_BYTES_PER_US);
    assert_true(sum >= 0.95 * alone);
    assert_true(slowest >= 0.7 * mean);
}

static void test_S18_100_send_4096_bytes(void **state) {
    (void)state;
    compare(&(struct plan){ORDERED, 4096, 10 * MS, 0}, 0.9);
}

static void test_S18_100_send_64_kib(void **state) {
    (void)state;
    compare(&(struct plan){ORDERED, 65536, 20 * MS, 0}, 0.9);
}

static void test_S18_100_send_1_mib(void **state) {
    (void)state;
    compare(&(struct plan){ORDERED, LONGEST, 100 * MS, 0}, 0.9);
}

/* NICs that keep no order acknowledge each packet, and no messages share a note. */
static void test_S18_100_send_without_order(void **state) {
    (void)state;
    compare(&(struct plan){UNORDERED, 4096, 10 * MS, 0}, 0.6);
    compare(&(struct plan){UNORDERED, 65536, 20 * MS, 0}, 0.9);
}

/* Each process looks up to 2 us after something came. */
static void test_S18_100_that_are_late(void **state) {
    (void)state;
    compare(&(struct plan){ORDERED, 4096, 10 * MS, 2 * US}, 0.85);
    compare(&(struct plan){ORDERED, 65536, 20 * MS, 2 * US}, 0.9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S18_100_send_4096_bytes),
        cmocka_unit_test(test_S18_100_send_64_kib),
        cmocka_unit_test(test_S18_100_send_1_mib),
        cmocka_unit_test(test_S18_100_send_without_order),
        cmocka_unit_test(test_S18_100_that_are_late),
    };
    return cmocka_run_group_tests_name("incast", tests, NULL, NULL);
}
