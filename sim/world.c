/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: time, chance and the processes' environments; see world.h. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "nic.h"
#include "plant.h"

enum {
    CLOCK_STEP_NS = 1, /* what reading a clock takes */
    COARSE_NS = 4000000,
    CACHE_LINE = 64,
    WORLD_BEGINS_NS = 1000000 /* not 0, so that 0 is no valid time by accident */
};

/* ---- time -------------------------------------------------------------- */

void sim_schedule(struct sim_world *world, const struct sim_event *event) {
    struct sim_event put = *event;

    if (put.at_ns < world->now_ns) {
        put.at_ns = world->now_ns;
    }
    if (!sim_heap_push(&world->heap, &put)) {
        fputs("weir-sim: out of memory\n", stderr);
        exit(2);
    }
}

static void world_digest(struct sim_world *world, const struct sim_event *event) {
    uint64_t h = world->digest;

    h = (h ^ event->at_ns) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ event->seq) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ event->a ^ event->node ^ ((uint64_t)event->b << 32)) * UINT64_C(0xc4ceb9fe1a85ec53);
    world->digest = h ^ (h >> 31);
}

bool sim_step(struct sim_world *world) {
    struct sim_event event;

    if (!sim_heap_pop(&world->heap, &event)) {
        return false;
    }
    if (event.at_ns > world->now_ns) {
        world->now_ns = event.at_ns;
    }
    world->events++;
    world_digest(world, &event);
    event.fire(world, &event);
    return true;
}

void sim_run_until(struct sim_world *world, uint64_t until_ns) {
    const struct sim_event *next;

    while ((next = sim_heap_peek(&world->heap)) != NULL && next->at_ns <= until_ns) {
        (void)sim_step(world);
    }
    if (world->now_ns < until_ns) {
        world->now_ns = until_ns;
    }
}

bool sim_fault(struct sim_world *world, uint32_t rate) {
    return world->faults && sim_chance(&world->prng, rate);
}

/* ---- words ------------------------------------------------------------- */

void sim_trace(struct sim_world *world, const char *format, ...) {
    va_list args;

    if (world->trace == NULL) {
        return;
    }
    fprintf(world->trace, "%12llu ", (unsigned long long)world->now_ns);
    va_start(args, format);
    vfprintf(world->trace, format, args);
    va_end(args);
    fputc('\n', world->trace);
}

void sim_violation(struct sim_world *world, const char *format, ...) {
    va_list args;

    if (world->violation[0] != '\0') {
        return;
    }
    va_start(args, format);
    vsnprintf(world->violation, sizeof(world->violation), format, args);
    va_end(args);
    sim_trace(world, "VIOLATION %s", world->violation);
}

/* ---- stepping nodes ---------------------------------------------------- */

static void node_step_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_node *node = &world->nodes[event->node];

    if (event->a != node->step_ticket || !node->alive) {
        return;
    }
    node->step_at_ns = UINT64_MAX;
    if (world->now_ns < node->paused_until_ns) {
        sim_node_wake_at(node, node->paused_until_ns);
        return;
    }
    if (node->stepping) {
        node->woken = true; /* its engine sleeps further up the stack: wait_sleep sees this */
        return;
    }
    if (node->step != NULL) {
        node->stepping = true;
        node->step(node);
        node->stepping = false;
    }
}

uint64_t sim_node_unlooked_ns(const struct sim_node *node) {
    uint64_t since_ns = node->woke_ns > node->looked_ns ? node->woke_ns : node->looked_ns;

    return node->sleeps ? 0 : node->world->now_ns - since_ns;
}

void sim_node_wake_at(struct sim_node *node, uint64_t at_ns) {
    struct sim_world *world = node->world;
    struct sim_event event = {.fire = node_step_event, .node = node->index};

    if (at_ns < world->now_ns) {
        at_ns = world->now_ns;
    }
    if (!node->alive || node->step_at_ns <= at_ns) {
        return;
    }
    node->step_at_ns = at_ns;
    event.at_ns = at_ns;
    event.a = ++node->step_ticket;
    sim_schedule(world, &event);
}

void sim_node_wake(struct sim_node *node) {
    struct sim_world *world = node->world;
    uint64_t late = world->config.step_ns_max;

    if (node->pace_ns != 0 && !node->stepping) {
        return;
    }
    sim_node_wake_at(node, world->now_ns + (late == 0 ? 0 : sim_below(&world->prng, late)));
}

/* ---- environment port -------------------------------------------------- */

struct sim_block {
    struct sim_block *next;
    struct sim_block *prev;
    size_t bytes;
    struct sim_node *owner;
    uint8_t pad[CACHE_LINE - 4 * sizeof(void *)];
};

_Static_assert(sizeof(struct sim_block) == CACHE_LINE, "blocks stay cache-line aligned");

static uint64_t env_now(void *self) {
    struct sim_node *node = self;

    return node->world->now_ns += CLOCK_STEP_NS;
}

static uint64_t env_coarse(void *self) {
    const struct sim_node *node = self;

    return node->world->now_ns / COARSE_NS * COARSE_NS;
}

static void env_entropy(void *self, void *out, size_t length) {
    struct sim_node *node = self;
    uint8_t *bytes = out;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(sim_next(&node->world->prng) >> 56);
    }
}

static void *env_alloc(void *self, size_t bytes) {
    struct sim_node *node = self;
    size_t whole = (sizeof(struct sim_block) + bytes + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    struct sim_block *block;

    node->allocs++;
    if (node->alloc_fails_at != 0 && --node->alloc_fails_at == 0) {
        return NULL;
    }
    block = whole < bytes ? NULL : aligned_alloc(CACHE_LINE, whole);
    if (block == NULL) {
        return NULL;
    }
    memset(block, 0, whole);
    block->bytes = bytes;
    block->owner = node;
    block->next = node->blocks;
    if (node->blocks != NULL) {
        node->blocks->prev = block;
    }
    node->blocks = block;
    node->block_bytes += bytes;
    return block + 1;
}

static void env_free(void *self, void *memory, size_t bytes) {
    struct sim_node *node = self;
    struct sim_block *block;

    if (memory == NULL) {
        return;
    }
    block = (struct sim_block *)memory - 1;
    if (block->owner != node || block->bytes != bytes) {
        sim_violation(node->world, "E5 set-up memory freed with %zu bytes, taken with %zu", bytes,
                      block->bytes);
    }
    if (block->next != NULL) {
        block->next->prev = block->prev;
    }
    if (block->prev != NULL) {
        block->prev->next = block->next;
    } else {
        node->blocks = block->next;
    }
    node->block_bytes -= block->bytes;
    free(block);
}

static const struct weir_env_ops ENV_OPS = {
    .now = env_now,
    .coarse = env_coarse,
    .entropy = env_entropy,
    .alloc = env_alloc,
    .free = env_free,
};

/* ---- wait port --------------------------------------------------------- */

/* With a descriptor an engine looks less often at control and at events of the device (has_fd), as
 * in the real world. The engine of an application that looks at a pace of its own has one. */
static int wait_fd(void *self) {
    const struct sim_node *node = self;

    return node->pace_ns != 0 ? 0 : -1;
}

static int wait_add(void *self, int source_fd) {
    (void)self;
    (void)source_fd;
    return 0;
}

/* The world goes on while one of its engines sleeps; that engine itself is on the
 * stack and is only noted as woken. */
static void wait_sleep(void *self, uint64_t timeout_ns) {
    struct sim_node *node = self;
    struct sim_world *world = node->world;
    uint64_t until =
        timeout_ns > UINT64_MAX - world->now_ns ? UINT64_MAX : world->now_ns + timeout_ns;
    const struct sim_event *next;

    if (node->app != NULL && !node->may_sleep) {
        sim_violation(world, "S5 n%u sleeps in a call that does not block", node->index);
    }
    while (!node->woken && (next = sim_heap_peek(&world->heap)) != NULL && next->at_ns <= until) {
        (void)sim_step(world);
    }
    if (!node->woken && until != UINT64_MAX && world->now_ns < until) {
        world->now_ns = until;
    }
    node->woken = false;
}

static void wait_wake(void *self) {
    struct sim_node *node = self;

    node->woken = true;
}

static void wait_clear(void *self) {
    struct sim_node *node = self;

    node->woken = false;
}

/* No descriptor, so nothing to raise. */
static void wait_level(void *self) {
    (void)self;
}

static const struct weir_wait_ops WAIT_OPS = {
    .add = wait_add,
    .sleep = wait_sleep,
    .wake = wait_wake,
    .clear = wait_clear,
    .fd = wait_fd,
    .raise = wait_level,
    .lower = wait_level,
};

/* ---- lives ------------------------------------------------------------- */

int sim_node_boot(struct sim_node *node) {
    struct weir_device *nic = NULL;
    int error;

    node->ports = (struct weir_ports){
        .env = {.ops = &ENV_OPS, .self = node},
        .control = {&SIM_CONTROL_OPS, node},
        .wait = {&WAIT_OPS, node},
        .others = {{.name = "other", .fabric = {1}}, {.name = "later", .untried = true}},
        .other_count = 2,
    };
    plant_apply(node->world->config.plant, &node->device_ops);
    node->ports.device_ops = &node->device_ops;
    error = SIM_NIC_OPS.open(&node->ports.env, &nic);
    if (error != 0) {
        return error;
    }
    node->ports.device = nic;
    node->nic = nic;
    node->life++;
    node->alive = true;
    node->stepping = false;
    node->woken = false;
    node->paused_until_ns = node->stopped_until_ns = 0;
    node->sleeps = false;
    node->step_at_ns = UINT64_MAX;
    sim_trace(node->world, "n%u boots, life %u", node->index, node->life);
    return 0;
}

static void node_end(struct sim_node *node) {
    node->alive = false;
    node->listening = false;
    node->step_ticket++;
    node->step_at_ns = UINT64_MAX;
    node->nic = NULL;
    node->ports.device = NULL;
}

void sim_node_crash(struct sim_node *node, bool silent) {
    sim_trace(node->world, "n%u crashes%s", node->index, silent ? " silently" : "");
    sim_net_drop(node, silent);
    sim_nic_crash(node->nic);
    while (node->blocks != NULL) {
        env_free(node, node->blocks + 1, node->blocks->bytes);
    }
    node_end(node);
}

void sim_node_shutdown(struct sim_node *node) {
    sim_trace(node->world, "n%u shuts down", node->index);
    if (node->blocks != NULL) {
        sim_violation(node->world, "T3 n%u left %zu bytes of set-up memory", node->index,
                      node->block_bytes);
    }
    sim_net_drop(node, false);
    SIM_NIC_OPS.close(node->nic);
    node_end(node);
}

bool sim_node_claims(const struct sim_node *node) {
    const struct sim_workload_config *work = &node->world->config.work;

    return work->one_host && work->told[node->index] == SIM_TOLD_ANOTHERS;
}

bool sim_ways_open(const struct sim_world *world) {
    const struct sim_workload_config *work = &world->config.work;
    const struct sim_net_config *net = &world->config.net;
    bool open = work->doors && work->reset == 0 && work->long_cut == 0 && net->loss == 0 &&
                net->full == 0 && net->break_on_send == 0 && net->breaks_type == 0 &&
                work->pause == 0;

    for (uint32_t i = 0; i < world->config.nodes; i++) {
        open &= world->config.nic[i].lack == 0;
    }
    return open;
}

static void set_address(const struct sim_config *config, uint32_t node, const char *network,
                        char *address_out) {
    uint32_t host = config->work.one_host ? 1 : node + 1;
    uint32_t port = config->work.one_host ? 7000 + node : 7000;

    snprintf(address_out, SIM_ADDRESS_MAX, "%s.%u:%u", network, host, port);
}

struct sim_world *sim_world_open(const struct sim_config *config, uint64_t seed, FILE *trace) {
    struct sim_world *world = calloc(1, sizeof(*world));

    if (world == NULL) {
        return NULL;
    }
    world->config = *config;
    world->seed = seed;
    world->trace = trace;
    world->now_ns = WORLD_BEGINS_NS;
    world->faults = true;
    sim_prng_seed(&world->prng, seed);
    world->net = sim_net_open(world);
    if (world->net == NULL) {
        free(world);
        return NULL;
    }
    for (uint32_t i = 0; i < config->nodes; i++) {
        struct sim_node *node = &world->nodes[i];

        node->world = world;
        node->index = i;
        node->step_at_ns = UINT64_MAX;
        set_address(config, i, "10.0.0", node->address);
        set_address(config, i, "10.0.1", node->second);
    }
    return world;
}

void sim_world_close(struct sim_world *world) {
    sim_heap_fini(&world->heap);
    sim_net_close(world->net);
    free(world);
}
