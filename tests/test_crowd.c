/* SPDX-License-Identifier: Apache-2.0 */
/* test_crowd.c: a crowd of engines that all connect to one at once (W8, H10, B5).
 *
 * All are real engines; the world between them is played: one clock, which passes only as the
 * target takes up control events, each of which costs it COST_NS, as if it had one processor of
 * its own; the others take no time. A port as tcp.c is one: those that are there have a turn
 * each before one more is accepted, and nothing is lost. Devices make QPs and nothing else.
 * No time of the machine's enters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"
#include "state.h"

#define MS      UINT64_C(1000000)
#define SECOND  (1000 * MS)
#define COST_NS (MS / 40)

enum { CROWD_MAX = 10000, TARGET = CROWD_MAX };

struct note { /* a message under way */
    struct note *next;
    uint32_t conn, length;
    uint8_t bytes[];
};

struct line { /* of notes, or (to accept, or to be read) of connections */
    struct note *first, **last;
};

struct node {
    weir_engine *engine;
    struct line inbox;
    uint64_t due_ns;
    bool up, connected, told;
    uint32_t gone;
};

static struct {
    uint64_t now_ns, entropy, cost_ns;
    uint32_t crowd, up, gone, at_target;
    bool stopped; /* the target */
    struct node nodes[CROWD_MAX + 1];
    struct line lines[CROWD_MAX]; /* to the target, of each connection */
    uint32_t waiting[CROWD_MAX], waiting_first, waiting_last; /* to be accepted */
    uint32_t ready[CROWD_MAX], ready_first, ready_count;      /* have something to be read */
    bool accepted[CROWD_MAX], is_ready[CROWD_MAX];
    uint32_t turns;    /* left until one more is accepted */
    struct note *read; /* valid until the next poll of the target's */
} world;

/* ---- ports --------------------------------------------------------------- */

static uint64_t env_now(void *self) {
    (void)self;
    return world.now_ns;
}

static void env_entropy(void *self, void *out, size_t length) {
    (void)self;
    for (size_t i = 0; i < length; i++) {
        world.entropy = world.entropy * UINT64_C(6364136223846793005) + 1442695040888963407;
        ((uint8_t *)out)[i] = (uint8_t)(world.entropy >> 56);
    }
}

/* Memory that is not written is not backed: engines are many. */
static void *env_alloc(void *self, size_t bytes) {
    (void)self;
    char *memory = calloc(1, bytes + 128);
    if (memory == NULL)
        return NULL;
    char *aligned = (char *)(((uintptr_t)memory + sizeof(memory) + 63) & ~(uintptr_t)63);
    memcpy(aligned - sizeof(memory), &memory, sizeof(memory));
    return aligned;
}

static void env_free(void *self, void *memory, size_t bytes) {
    char *whole;
    (void)self;
    (void)bytes;
    memcpy(&whole, (char *)memory - sizeof(whole), sizeof(whole));
    free(whole);
}

static const struct weir_env_ops env_ops = {.now = env_now,
                                            .coarse = env_now,
                                            .entropy = env_entropy,
                                            .alloc = env_alloc,
                                            .free = env_free};

static void push(struct line *line, struct note *note) {
    if (line->first == NULL)
        line->last = &line->first;
    *line->last = note;
    line->last = &note->next;
}

static struct note *pop(struct line *line) {
    struct note *note = line->first;
    line->first = note->next;
    return note;
}

static void make_ready(uint32_t conn) {
    if (world.is_ready[conn] || !world.accepted[conn] || world.lines[conn].first == NULL)
        return;
    world.is_ready[conn] = true;
    world.ready[(world.ready_first + world.ready_count++) % CROWD_MAX] = conn;
}

static int channel_check(void *self, const char *address) {
    (void)self;
    (void)address;
    return WEIR_OK;
}

static bool channel_numeric(void *self, const char *address) {
    (void)self;
    (void)address;
    return true;
}

static int channel_listen(void *self, const char *address, char *actual_out, size_t actual_size) {
    (void)address;
    snprintf(actual_out, actual_size, "10.0.0.1:%u", 1 + *(const uint32_t *)self);
    return WEIR_OK;
}

/* A connection has the number of the one that made it, plus 1, on both sides. */
static int channel_dial(void *self, const char *address, uint64_t *conn_out) {
    uint32_t node = *(const uint32_t *)self;
    (void)address;
    assert_false(world.nodes[node].connected); /* once: nothing breaks here */
    world.nodes[node].connected = true;
    world.waiting[world.waiting_last++] = node;
    *conn_out = node + 1;
    return WEIR_OK;
}

static int channel_send(void *self, uint64_t conn, const uint8_t *message, uint32_t length) {
    uint32_t node = *(const uint32_t *)self;
    struct note *note = malloc(sizeof(*note) + length);
    *note = (struct note){.conn = (uint32_t)conn - 1, .length = length};
    memcpy(note->bytes, message, length);
    if (node != TARGET) {
        push(&world.lines[conn - 1], note);
        make_ready((uint32_t)conn - 1);
    } else {
        push(&world.nodes[conn - 1].inbox, note);
        world.nodes[conn - 1].due_ns = 0;
    }
    return WEIR_OK;
}

static void channel_hangup(void *self, uint64_t conn) {
    (void)self;
    (void)conn;
    fail_msg("nobody hangs up");
}

static void channel_keep(void *self, uint64_t conn) {
    (void)self;
    (void)conn;
}

static void channel_from(void *self, uint64_t conn, char *host_out, size_t size) {
    (void)self;
    (void)conn;
    snprintf(host_out, size, "10.0.0.1");
}

static int target_poll(struct weir_control_event *event_out) {
    free(world.read);
    world.read = NULL;
    if (world.turns == 0 && world.waiting_first < world.waiting_last) {
        uint32_t conn = world.waiting[world.waiting_first++];
        world.accepted[conn] = true;
        make_ready(conn);
        world.turns = world.ready_count;
        *event_out = (struct weir_control_event){.conn = conn + 1, .type = WEIR_CONTROL_ACCEPTED};
    } else if (world.ready_count > 0) {
        uint32_t conn = world.ready[world.ready_first];
        world.ready_first = (world.ready_first + 1) % CROWD_MAX;
        world.ready_count--;
        world.is_ready[conn] = false;
        world.turns -= world.turns > 0;
        world.read = pop(&world.lines[conn]);
        make_ready(conn);
        *event_out = (struct weir_control_event){.conn = conn + 1,
                                                 .type = WEIR_CONTROL_MESSAGE,
                                                 .message = world.read->bytes,
                                                 .length = world.read->length};
    } else {
        world.turns = 0;
        return 0;
    }
    world.now_ns += world.cost_ns;
    return 1;
}

static int channel_poll(void *self, struct weir_control_event *event_out) {
    uint32_t number = *(const uint32_t *)self;
    struct node *node = &world.nodes[number];
    static struct note *read;
    if (number == TARGET)
        return target_poll(event_out);
    free(read);
    read = NULL;
    if (node->connected && !node->told) {
        node->told = true;
        *event_out =
            (struct weir_control_event){.conn = number + 1, .type = WEIR_CONTROL_CONNECTED};
        return 1;
    }
    if (node->inbox.first == NULL)
        return 0;
    read = pop(&node->inbox);
    *event_out = (struct weir_control_event){.conn = number + 1,
                                             .type = WEIR_CONTROL_MESSAGE,
                                             .message = read->bytes,
                                             .length = read->length};
    return 1;
}

static int no_fd(void *self) {
    (void)self;
    return -1;
}

static const struct weir_control_ops channel_ops = {
    .check = channel_check,
    .numeric = channel_numeric,
    .listen = channel_listen,
    .dial = channel_dial,
    .send = channel_send,
    .hangup = channel_hangup,
    .keep = channel_keep,
    .from = channel_from,
    .poll = channel_poll,
    .fd = no_fd,
};

static void wait_sleep(void *self, uint64_t timeout_ns) {
    (void)self;
    (void)timeout_ns;
}

static void wait_level(void *self) {
    (void)self;
}

static const struct weir_wait_ops wait_ops = {
    .sleep = wait_sleep,
    .wake = wait_level,
    .clear = wait_level,
    .fd = no_fd,
    .raise = wait_level,
    .lower = wait_level,
};

static void device_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    (void)device;
    *caps_out = (struct weir_device_caps){.name = "crowd",
                                          .message_bytes_max = 1 << 20,
                                          .post_bytes_max = UINT64_MAX,
                                          .sq_depth_max = 64,
                                          .rq_depth_max = 1024,
                                          .cq_capacity = 1 << 20,
                                          .ordered = true};
}

static int mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out) {
    (void)device;
    (void)access;
    *mr_out = (struct weir_mr){.lkey = 1, .base = base, .length = length};
    return WEIR_OK;
}

static int qp_create(struct weir_device *device, const struct weir_qp_options *options,
                     struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    (void)device;
    *granted_out = (struct weir_qp_granted){
        .sq_depth = options->sq_depth, .rq_depth = options->rq_depth, .blob_length = 4};
    *qp_out = (struct weir_qp *)(uintptr_t)1;
    return WEIR_OK;
}

static int qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    (void)qp;
    (void)path;
    return WEIR_OK;
}

static int post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                     uint32_t length, uint32_t lkey) {
    (void)device;
    (void)qp;
    (void)wr_id;
    (void)buffer;
    (void)length;
    (void)lkey;
    return WEIR_OK;
}

static int device_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    (void)device;
    (void)cqes_out;
    (void)max;
    return 0;
}

static int device_events(struct weir_device *device, struct weir_async *events_out, int max) {
    (void)device;
    (void)events_out;
    (void)max;
    return 0;
}

static const struct weir_device_ops device_ops = {
    .name = "crowd",
    .query = device_query,
    .mr_register = mr_register,
    .qp_create = qp_create,
    .qp_connect = qp_connect,
    .post_recv = post_recv,
    .poll = device_poll,
    .events = device_events,
};

/* ---- the world ------------------------------------------------------------ */

static uint32_t numbers[CROWD_MAX + 1];

static void open_node(uint32_t number, uint32_t peers) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.peers_max = peers;
    options.sq_depth = 4;
    options.recv_credits = 2;
    options.transfers_max = options.segments_max = 4;
    options.memories_max = options.notifications_max = options.names_max = 4;
    options.remotes_max = number == TARGET ? 65536 : 4;
    numbers[number] = number;
    struct weir_ports ports = {.env = {.ops = &env_ops},
                               .control = {.ops = &channel_ops, .self = &numbers[number]},
                               .wait = {.ops = &wait_ops},
                               .device_ops = &device_ops,
                               .device = (struct weir_device *)&numbers[number]};
    assert_int_equal(engine_create(&options, &ports, &world.nodes[number].engine), WEIR_OK);
}

static void events_of(struct node *node) {
    weir_event event;
    while (weir_event_take(node->engine, &event) == WEIR_OK) {
        bool target = node == &world.nodes[TARGET];
        world.at_target += target && event.type == WEIR_EVENT_UP;
        world.up += !target && event.type == WEIR_EVENT_UP;
        world.gone += event.type != WEIR_EVENT_UP;
    }
}

static void step(struct node *node) {
    uint64_t due_ns;
    do {
        weir_engine_progress(node->engine);
        events_of(node);
        due_ns = engine_next_deadline(node->engine);
    } while (due_ns <= world.now_ns);
    node->due_ns = due_ns;
}

static bool all_up(void) {
    return world.up >= world.crowd && world.at_target >= world.crowd;
}

static bool target_is_busy(void) {
    return !world.stopped && (world.ready_count > 0 || world.waiting_first < world.waiting_last);
}

static void step_target(void) {
    struct node *target = &world.nodes[TARGET];
    if (world.stopped || (!target_is_busy() && target->due_ns > world.now_ns))
        return;
    weir_engine_progress(target->engine);
    events_of(target);
    target->due_ns = engine_next_deadline(target->engine);
}

/* Until all are up, or the time is over. */
static void run(uint64_t end_ns) {
    while (!all_up() && world.now_ns < end_ns) {
        uint64_t next_ns = end_ns;
        step_target();
        for (uint32_t i = 0; i < world.crowd; i++) {
            if (world.nodes[i].due_ns <= world.now_ns)
                step(&world.nodes[i]);
            if (world.nodes[i].due_ns < next_ns)
                next_ns = world.nodes[i].due_ns;
        }
        if (!world.stopped && world.nodes[TARGET].due_ns < next_ns)
            next_ns = world.nodes[TARGET].due_ns;
        if (!target_is_busy() && !all_up() && next_ns > world.now_ns)
            world.now_ns = next_ns;
    }
}

static void meet(uint32_t crowd, uint64_t cost_ns) {
    memset(&world, 0, sizeof(world));
    world.crowd = crowd;
    world.cost_ns = cost_ns;
    open_node(TARGET, crowd + crowd / 3 + 8);
    char target[32];
    snprintf(target, sizeof(target), "10.0.0.1:%u", 1 + (unsigned)TARGET);
    for (uint32_t i = 0; i < crowd; i++) {
        weir_peer peer;
        open_node(i, 1);
        assert_int_equal(weir_peer_open(world.nodes[i].engine, target, &peer), WEIR_OK);
        assert_int_equal(weir_peer_connect(world.nodes[i].engine, peer), WEIR_ENOTREADY);
    }
}

static void part(void) {
    for (uint32_t i = 0; i <= CROWD_MAX; i++) {
        if (world.nodes[i].engine != NULL)
            engine_abandon(world.nodes[i].engine);
        while (world.nodes[i].inbox.first != NULL)
            free(pop(&world.nodes[i].inbox));
        while (i < CROWD_MAX && world.lines[i].first != NULL)
            free(pop(&world.lines[i]));
    }
    free(world.read);
    world.read = NULL;
}

static weir_engine_info stats_of(uint32_t number) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    weir_engine_query(world.nodes[number].engine, &stats);
    return stats;
}

/* The messages sent again, by all. */
static uint64_t said_again(void) {
    uint64_t again = stats_of(TARGET).control_retransmits;
    for (uint32_t i = 0; i < world.crowd; i++)
        again += stats_of(i).control_retransmits;
    return again;
}

static void assert_all_up(void) {
    assert_int_equal(world.up, world.crowd);
    assert_int_equal(world.at_target, world.crowd);
    assert_int_equal(world.gone, 0);
    assert_null(engine_verify(world.nodes[TARGET].engine));
}

/* ---- tests ---------------------------------------------------------------- */

/* Four control events each are all that the target needs: a target that takes longer has done
 * something twice. */
static void test_W8_a_crowd_is_up_at_once_and_says_nothing_twice(void **state) {
    static const uint32_t crowds[] = {1, 64, 250, 1000, 4000, CROWD_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof(crowds) / sizeof(crowds[0]); i++) {
        meet(crowds[i], COST_NS);
        run(20 * SECOND);
        assert_all_up();
        assert_true(said_again() * 10 <= crowds[i]);
        assert_in_range(world.now_ns, 0, crowds[i] * 5 * COST_NS);
        assert_int_equal(stats_of(TARGET).sessions_up, crowds[i]);
        assert_int_equal(stats_of(TARGET).sessions_retired, 0);
        part();
    }
}

/* A target that takes ten times as long, so that most wait for seconds: their repeats are little,
 * and nothing expires and begins anew. */
static void test_W8_a_slow_target_is_not_talked_to_death(void **state) {
    (void)state;
    meet(2000, 10 * COST_NS);
    run(20 * SECOND);
    assert_all_up();
    assert_true(said_again() <= 2000 / 10);
    assert_int_equal(stats_of(TARGET).sessions_up, 2000);
    part();
}

/* It makes no progress for some seconds, as an application may: all are up when it does. */
static void test_W8_a_crowd_before_one_that_does_nothing_for_five_seconds(void **state) {
    (void)state;
    meet(1000, COST_NS);
    world.stopped = true;
    run(5 * SECOND);
    assert_int_equal(world.up, 0);
    world.stopped = false;
    run(20 * SECOND);
    assert_all_up();
    assert_true(said_again() <= 3 * 1000); /* WHO, after 2 s and 4.5 s */
    assert_int_equal(stats_of(TARGET).sessions_up, 1000);
    part();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W8_a_crowd_is_up_at_once_and_says_nothing_twice),
        cmocka_unit_test(test_W8_a_slow_target_is_not_talked_to_death),
        cmocka_unit_test(test_W8_a_crowd_before_one_that_does_nothing_for_five_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
