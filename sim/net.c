/* SPDX-License-Identifier: Apache-2.0 */
/* net.c: the control network of a simulated world, as the control port.
 *
 * Owns connections and inboxes. A connection has two halves, the dialler's and the
 * acceptor's; the number of half s of connection i is 2 * i + s + 1, so numbers do
 * not repeat in a run. A message is delivered whole or not at all; while faults are
 * on it may be lost, doubled, late or overtaken, and a connection may break. A cut
 * between two nodes loses messages and holds back dials and the news of breaks.
 *
 * It looks at no more of a message than its type. */
#include "net.h"

#include "nic.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

enum {
    NET_INBOX_MAX = 1024, /* events a node has not polled; more are dropped as lost */
    NET_DIAL_TRIES = 64,
    NET_RETRY_NS = 2000000, /* a dial or a FIN tried again across a cut */
    NET_NO_ROUTE = 4,       /* one of so many dials across a cut is told that there is no route */
    NET_DIALS_MAX = 64,     /* of one node to another in NET_DIALS_NS: more is without a pause */
    NET_DIALS_NS = 1000000000,
};

struct net_half {
    uint32_t node;
    uint32_t life;
    bool open;           /* the number is good on this side */
    bool hung;           /* this side hung up: it hears no more of the connection */
    bool closing;        /* a CLOSED is on its way */
    uint64_t arrives_ns; /* of the newest message towards this half */
};

struct net_conn {
    struct net_half half[2]; /* 0 dialled */
};

struct net_item {
    struct net_item *next;
    struct weir_control_event event;
    uint8_t bytes[];
};

struct net_inbox {
    struct net_item *first;
    struct net_item *last;
    struct net_item *current; /* given out by poll, valid until the next */
    uint32_t count;
};

/* Those of one node to another in the present second, and in the present life of both: another life
 * is another peer. */
struct net_dials {
    uint64_t since_ns;
    uint32_t count, asks;
    uint32_t life, life_there;
};

struct sim_net {
    struct sim_world *world;
    struct net_dials dials[SIM_NODES_MAX][SIM_NODES_MAX];
    struct net_conn *conns;
    size_t count;
    size_t capacity;
    struct net_inbox inbox[SIM_NODES_MAX];
};

static uint64_t net_latency(struct sim_world *world) {
    const struct sim_net_config *config = &world->config.net;

    return sim_between(&world->prng, config->latency_min_ns, config->latency_max_ns);
}

static uint64_t net_number(size_t index, uint32_t side) {
    return 2 * (uint64_t)index + side + 1;
}

static struct net_half *net_half(struct sim_net *net, uint64_t number, struct net_half **other) {
    size_t index = (size_t)((number - 1) / 2);
    uint32_t side = (uint32_t)((number - 1) % 2);

    if (number == 0 || index >= net->count) {
        return NULL;
    }
    if (other != NULL) {
        *other = &net->conns[index].half[1 - side];
    }
    return &net->conns[index].half[side];
}

static bool half_alive(const struct sim_net *net, const struct net_half *half) {
    const struct sim_node *node = &net->world->nodes[half->node];

    return node->alive && node->life == half->life;
}

/* ---- inboxes ----------------------------------------------------------- */

static void inbox_put(struct sim_net *net, uint32_t node, struct net_item *item) {
    struct net_inbox *inbox = &net->inbox[node];

    if (inbox->count == NET_INBOX_MAX && item->event.type == WEIR_CONTROL_MESSAGE) {
        free(item);
        return;
    }
    item->next = NULL;
    if (inbox->last != NULL) {
        inbox->last->next = item;
    } else {
        inbox->first = item;
    }
    inbox->last = item;
    inbox->count++;
    sim_node_wake(&net->world->nodes[node]);
}

static void inbox_clear(struct net_inbox *inbox) {
    while (inbox->first != NULL) {
        struct net_item *item = inbox->first;

        inbox->first = item->next;
        free(item);
    }
    free(inbox->current);
    *inbox = (struct net_inbox){0};
}

static struct net_item *item_make(uint32_t type, uint64_t conn, const uint8_t *message,
                                  uint32_t length, int error) {
    struct net_item *item = malloc(sizeof(*item) + length);

    if (item == NULL) {
        fputs("weir-sim: out of memory\n", stderr);
        exit(2);
    }
    item->next = NULL;
    item->event = (struct weir_control_event){
        .conn = conn, .type = type, .length = length, .message = item->bytes, .error = error};
    if (length != 0) {
        memcpy(item->bytes, message, length);
    }
    return item;
}

static void item_drop(const struct sim_event *event) {
    free(event->object);
}

static void net_tell(struct sim_net *net, uint64_t number, uint32_t type, int error) {
    struct net_half *half = net_half(net, number, NULL);

    inbox_put(net, half->node, item_make(type, number, NULL, 0, error));
}

/* ---- breaking ---------------------------------------------------------- */

static void closed_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_net *net = world->net;
    struct net_half *other;
    struct net_half *half = net_half(net, event->a, &other);

    if (!half->open || !half_alive(net, half)) {
        return;
    }
    if (world->control_cut[other->node][half->node]) {
        struct sim_event again = *event;

        again.at_ns = world->now_ns + NET_RETRY_NS;
        sim_schedule(world, &again);
        return;
    }
    half->open = false;
    sim_trace(world, "n%u conn %llu closed", half->node, (unsigned long long)event->a);
    net_tell(net, event->a, WEIR_CONTROL_CLOSED, -(int)event->b);
}

/* The half hears, after a while, that its connection is over. */
static void half_close(struct sim_net *net, uint64_t number, int error) {
    struct net_half *half = net_half(net, number, NULL);
    struct sim_event event = {.fire = closed_event, .a = number, .node = half->node};

    if (half->closing || !half->open) {
        return;
    }
    half->closing = true;
    event.b = (uint32_t)-error;
    event.at_ns = net->world->now_ns + net_latency(net->world);
    if (event.at_ns <= half->arrives_ns) {
        event.at_ns = half->arrives_ns + 1;
    }
    sim_schedule(net->world, &event);
}

/* Both ends hear of it. */
static void conn_break(struct sim_net *net, size_t index) {
    const struct net_conn *conn = &net->conns[index];
    struct sim_world *world = net->world;
    uint32_t a = conn->half[0].node, b = conn->half[1].node;

    half_close(net, net_number(index, 0), WEIR_ECONNECT);
    half_close(net, net_number(index, 1), WEIR_ECONNECT);
    world->broke_ns[a][b] = world->broke_ns[b][a] = world->now_ns;
}

void sim_net_break(struct sim_net *net, uint32_t a, uint32_t b) {
    for (size_t i = 0; i < net->count; i++) {
        const struct net_conn *conn = &net->conns[i];

        if ((conn->half[0].node == a && conn->half[1].node == b) ||
            (conn->half[0].node == b && conn->half[1].node == a)) {
            conn_break(net, i);
        }
    }
}

/* The wire's type of a message sits at byte 6 (src/core/wire.h). */
static uint8_t message_type(const uint8_t *message, uint32_t length) {
    return length > 6 ? message[6] : 0;
}

static bool breaks_on_send(struct sim_world *world, uint8_t type) {
    const struct sim_net_config *config = &world->config.net;

    if (config->breaks_type != 0 && config->breaks_type == type && world->faults) {
        return true;
    }
    if ((config->breaks_max != 0 && world->breaks >= config->breaks_max) ||
        !sim_fault(world, config->break_on_send)) {
        return false;
    }
    world->breaks++;
    return true;
}

void sim_net_drop(struct sim_node *node, bool silent) {
    struct sim_net *net = node->world->net;

    for (size_t i = 0; i < net->count; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            struct net_half *half = &net->conns[i].half[side];

            if (half->node != node->index || half->life != node->life || !half->open) {
                continue;
            }
            half->open = false;
            if (!silent) {
                half_close(net, net_number(i, 1 - side), WEIR_EPEER);
            }
        }
    }
    inbox_clear(&net->inbox[node->index]);
}

void sim_net_reap(struct sim_net *net) {
    for (size_t i = 0; i < net->count; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            const struct net_half *half = &net->conns[i].half[side];
            const struct net_half *other = &net->conns[i].half[1 - side];

            if (half->open && other->life != 0 && (!other->open || !half_alive(net, other))) {
                half_close(net, net_number(i, side), WEIR_EPEER);
            }
        }
    }
}

/* ---- dialling ---------------------------------------------------------- */

static void connected_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_net *net = world->net;
    struct net_half *half = net_half(net, event->a, NULL);

    if (half->open && half_alive(net, half)) {
        net_tell(net, event->a, WEIR_CONTROL_CONNECTED, 0);
    }
}

/* A dial reaches the place that it was meant for. */
static void dial_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_net *net = world->net;
    struct net_half *accepts;
    struct net_half *dials = net_half(net, event->a, &accepts);
    struct sim_node *target = &world->nodes[accepts->node];
    struct sim_event next = *event;

    if (!dials->open || !half_alive(net, dials)) {
        return;
    }
    if (world->control_cut[dials->node][accepts->node] && event->b < NET_DIAL_TRIES) {
        next.b++;
        next.at_ns = world->now_ns + NET_RETRY_NS;
        sim_schedule(world, &next);
        return;
    }
    if (event->b >= NET_DIAL_TRIES || sim_fault(world, world->config.net.refuse)) {
        half_close(net, event->a, dials->node == accepts->node ? WEIR_EUNREACH : WEIR_ECONNECT);
        return;
    }
    if (!target->alive || !target->listening) {
        half_close(net, event->a, WEIR_EPEER); /* refused */
        return;
    }
    accepts->life = target->life;
    accepts->open = true;
    net_tell(net, event->a + 1, WEIR_CONTROL_ACCEPTED, 0);
    next.fire = connected_event;
    next.at_ns = world->now_ns + net_latency(world);
    dials->arrives_ns = next.at_ns;
    sim_schedule(world, &next);
}

/* "host:port", both given. */
static int control_check(void *self, const char *address) {
    const char *colon = strrchr(address, ':');

    (void)self;
    return colon == NULL || colon == address || colon[1] == '\0' ? WEIR_EADDRESS : 0;
}

/* Nobody tells a name here. */
static bool control_numeric(void *self, const char *address) {
    return control_check(self, address) == 0;
}

/* However its connections end, a node pauses before it dials again and again. */
static void judge_dial(struct sim_net *net, uint32_t from, uint32_t to) {
    struct net_dials *dials = &net->dials[from][to];
    uint32_t life = net->world->nodes[from].life, life_there = net->world->nodes[to].life;
    uint64_t now = net->world->now_ns;

    if (now - dials->since_ns >= NET_DIALS_NS || dials->life != life ||
        dials->life_there != life_there) {
        *dials = (struct net_dials){.since_ns = now,
                                    .asks = net->world->nodes[from].asks,
                                    .life = life,
                                    .life_there = life_there};
    }
    dials->count++;
    if (dials->count > NET_DIALS_MAX + net->world->nodes[from].asks - dials->asks &&
        net->world->config.work.peer_close == 0) {
        sim_violation(net->world, "H12 n%u dials n%u %u times within %llu ms", from, to,
                      dials->count, (unsigned long long)(now - dials->since_ns) / 1000000);
    }
}

static int control_dial(void *self, const char *address, uint64_t *conn_out) {
    struct sim_node *node = self;
    struct sim_world *world = node->world;
    struct sim_net *net = world->net;
    struct sim_event event = {.fire = dial_event, .node = node->index};
    struct net_conn *conn;
    uint32_t to = UINT32_MAX;

    /* The one behind the last may be a stranger; without one it has no address. */
    for (uint32_t i = 0; i <= world->config.nodes && i < SIM_NODES_MAX; i++) {
        if (strcmp(address, world->nodes[i].address) == 0 ||
            strcmp(address, world->nodes[i].second) == 0) {
            to = i;
        }
    }
    if (to != UINT32_MAX && node->index < world->config.nodes) { /* no stranger */
        judge_dial(net, node->index, to);
    }
    if (to != UINT32_MAX && world->control_cut[node->index][to] &&
        sim_below(&world->prng, NET_NO_ROUTE) == 0) {
        return WEIR_EUNREACH;
    }
    if (node->nic != NULL && sim_nic_lack(node->nic) != 0) {
        return sim_nic_lack(node->nic);
    }
    if (net->count == net->capacity) {
        size_t capacity = net->capacity == 0 ? 64 : net->capacity * 2;
        struct net_conn *conns = realloc(net->conns, capacity * sizeof(*conns));

        if (conns == NULL) {
            return WEIR_ENOMEM;
        }
        net->conns = conns;
        net->capacity = capacity;
    }
    conn = &net->conns[net->count];
    *conn = (struct net_conn){
        .half = {{.node = node->index, .life = node->life, .open = true}, {.node = UINT32_MAX}}};
    event.a = net_number(net->count++, 0);
    *conn_out = event.a;
    conn->half[1].node = to;
    if (to == UINT32_MAX) {
        conn->half[1].node = node->index; /* nobody there: as a router says */
        event.b = NET_DIAL_TRIES;
    }
    event.at_ns = world->now_ns + net_latency(world);
    conn->half[1].arrives_ns = event.at_ns;
    sim_trace(world, "n%u dials %s, conn %llu", node->index, address, (unsigned long long)event.a);
    sim_schedule(world, &event);
    return 0;
}

static int control_listen(void *self, const char *address, char *actual_out, size_t actual_size) {
    struct sim_node *node = self;

    const char *actual = node->told[0] != '\0' ? "0.0.0.0:7000" : node->address;

    (void)address;
    if (strlen(actual) >= actual_size) {
        return WEIR_EADDRESS;
    }
    memcpy(actual_out, actual, strlen(actual) + 1);
    node->listening = true;
    return 0;
}

/* ---- messages ---------------------------------------------------------- */

static void message_event(struct sim_world *world, const struct sim_event *event) {
    struct sim_net *net = world->net;
    struct net_half *from;
    struct net_half *to = net_half(net, event->a, &from);
    struct net_item *item = event->object;

    /* A stopped receiver is TCP's business, a dead one answers with a reset. */
    if (world->control_cut[from->node][to->node]) {
        free(item);
        return;
    }
    if (!to->open || !half_alive(net, to)) {
        free(item);
        if (to->life != 0) {
            half_close(net, ((event->a - 1) ^ 1) + 1, WEIR_EPEER);
        }
        return;
    }
    inbox_put(net, to->node, item);
}

static void message_launch(struct sim_net *net, uint64_t to_number, const uint8_t *message,
                           uint32_t length) {
    struct sim_world *world = net->world;
    struct net_half *to = net_half(net, to_number, NULL);
    struct sim_event event = {
        .fire = message_event, .drop = item_drop, .a = to_number, .node = to->node, .b = length};

    event.object = item_make(WEIR_CONTROL_MESSAGE, to_number, message, length, 0);
    event.at_ns = world->now_ns + net_latency(world);
    if (sim_fault(world, world->config.net.reorder)) {
        event.at_ns += net_latency(world) * 4;
    } else {
        if (event.at_ns <= to->arrives_ns) {
            event.at_ns = to->arrives_ns + 1;
        }
        to->arrives_ns = event.at_ns;
    }
    sim_schedule(world, &event);
}

/* For the trace only. */
static const char *message_name(const uint8_t *message, uint32_t length) {
    static const char *const NAMES[] = {"?",         "WHO",   "IAM",    "HELLO",
                                        "HELLO_ACK", "READY", "REFUSE", "SETTLE",
                                        "SETTLED",   "BYE",   "ASK",    "STATE"};
    uint8_t type = message_type(message, length);

    return type < sizeof(NAMES) / sizeof(NAMES[0]) ? NAMES[type] : NAMES[0];
}

static int control_send(void *self, uint64_t conn, const uint8_t *message, uint32_t length) {
    struct sim_node *node = self;
    struct sim_world *world = node->world;
    struct sim_net *net = world->net;
    struct net_half *other;
    struct net_half *half = net_half(net, conn, &other);
    uint64_t other_number = ((conn - 1) ^ 1) + 1;

    if (half == NULL || !half->open || half->node != node->index || half->life != node->life) {
        return WEIR_ECONNECT;
    }
    if (length > WEIR_CONTROL_MESSAGE_MAX || length == 0) {
        sim_violation(world, "H13 n%u sends a control message of %u bytes", node->index, length);
        return WEIR_ETOOBIG;
    }
    if (sim_fault(world, world->config.net.full)) {
        return WEIR_EAGAIN;
    }
    if (world->trace != NULL) {
        sim_trace(world, "n%u sends n%u %s on conn %llu", node->index, other->node,
                  message_name(message, length), (unsigned long long)conn);
    }
    if (breaks_on_send(world, message_type(message, length))) {
        conn_break(net, (size_t)((conn - 1) / 2));
    }
    if (sim_fault(world, world->config.net.loss)) {
        return 0;
    }
    message_launch(net, other_number, message, length);
    if (sim_fault(world, world->config.net.duplicate)) {
        message_launch(net, other_number, message, length);
    }
    return 0;
}

static void control_hangup(void *self, uint64_t conn) {
    struct sim_node *node = self;
    struct sim_net *net = node->world->net;
    struct net_half *half = net_half(net, conn, NULL);

    if (half == NULL || !half->open || half->node != node->index || half->life != node->life) {
        return;
    }
    half->open = false;
    half->hung = true;
    half_close(net, ((conn - 1) ^ 1) + 1, WEIR_EPEER);
}

/* There is room for any number of connections. */
static void control_keep(void *self, uint64_t conn) {
    (void)self;
    (void)conn;
}

static void control_from(void *self, uint64_t conn, char *host_out, size_t size) {
    struct sim_node *node = self;
    struct net_half *other;

    host_out[0] = '\0';
    if (net_half(node->world->net, conn, &other) != NULL && other->node < SIM_NODES_MAX) {
        snprintf(host_out, size, "%s", node->world->nodes[other->node].address);
        if (strchr(host_out, ':') != NULL) {
            *strchr(host_out, ':') = '\0';
        }
    }
}

static int control_poll(void *self, struct weir_control_event *event_out) {
    struct sim_node *node = self;
    struct sim_net *net = node->world->net;
    struct net_inbox *inbox = &net->inbox[node->index];

    for (;;) {
        struct net_item *item = inbox->first;
        const struct net_half *half;

        free(inbox->current);
        inbox->current = item;
        if (item == NULL) {
            return 0;
        }
        inbox->first = item->next;
        if (inbox->first == NULL) {
            inbox->last = NULL;
        }
        inbox->count--;
        half = net_half(net, item->event.conn, NULL);
        if (half->hung) {
            continue;
        }
        *event_out = item->event;
        return 1;
    }
}

uint32_t sim_net_leavers(const struct sim_node *node) {
    struct sim_net *net = node->world->net;
    uint32_t leavers = 0, others = 0;

    for (const struct net_item *item = net->inbox[node->index].first; item != NULL;
         item = item->next) {
        struct net_half *other = NULL;
        const struct net_half *half = net_half(net, item->event.conn, &other);

        if (item->event.type != WEIR_CONTROL_MESSAGE || half == NULL || half->hung ||
            other->node >= SIM_RUN_NODES_MAX ||
            other->life != net->world->nodes[other->node].life) {
            continue;
        }
        switch (message_type(item->bytes, item->event.length)) {
        case WIRE_HELLO:
        case WIRE_HELLO_ACK:
        case WIRE_SETTLE:
            others |= 1u << other->node;
            break;
        case WIRE_BYE:
            leavers |= 1u << other->node & ~others;
            break;
        default:
            break;
        }
    }
    return leavers;
}

static int control_fd(void *self) {
    (void)self;
    return -1;
}

const struct weir_control_ops SIM_CONTROL_OPS = {
    .listen = control_listen,
    .check = control_check,
    .numeric = control_numeric,
    .dial = control_dial,
    .send = control_send,
    .hangup = control_hangup,
    .keep = control_keep,
    .from = control_from,
    .poll = control_poll,
    .fd = control_fd,
};

struct sim_net *sim_net_open(struct sim_world *world) {
    struct sim_net *net = calloc(1, sizeof(*net));

    if (net != NULL) {
        net->world = world;
    }
    return net;
}

void sim_net_close(struct sim_net *net) {
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        inbox_clear(&net->inbox[i]);
    }
    free(net->conns);
    free(net);
}
