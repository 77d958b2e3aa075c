/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint_pair.c: see endpoint_pair.h. */
#include "endpoint_pair.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char NAMES[2] = {'A', 'B'};

uint64_t pair_random(struct pair *p, uint64_t bound) {
    /* splitmix64 */
    uint64_t z = p->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return bound == 0 ? 0 : (z ^ z >> 31) % bound;
}

__attribute__((format(printf, 2, 3))) static void note(struct pair *p, const char *format, ...) {
    size_t left = sizeof(p->trace) - p->trace_length;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(p->trace + p->trace_length, left, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < left)
        p->trace_length += (size_t)length;
    else
        p->trace[p->trace_length] = '\0'; /* full: the campaign does not read it */
}

const char *pair_trace(struct pair *p) {
    static char copy[PAIR_TRACE];

    memcpy(copy, p->trace, p->trace_length);
    /* Without the blank behind the last item. */
    copy[p->trace_length == 0 ? 0 : p->trace_length - 1] = '\0';
    p->trace_length = 0;
    p->trace[0] = '\0';
    return copy;
}

static void settled_of(void *self, uint64_t epoch, struct wire_settled *out) {
    const struct pair_node *node = self;

    (void)epoch;
    memset(out, 0, sizeof(*out));
    out->base = node->delivered;
}

/* A new endpoint in the place of the old one, for the same two instances. */
static void endpoint_start(struct pair *p, uint32_t node) {
    struct pair_node *n = &p->nodes[node];
    struct ep_options options = {.epoch_counter = &n->epoch_counter,
                                 .connect_timeout_ns = PAIR_TIMEOUT_NS,
                                 .retransmit_ns = PAIR_RETRANSMIT_NS,
                                 .rtt = &n->rtt,
                                 .pile = &n->pile,
                                 .devices = &n->devices,
                                 .settled = settled_of,
                                 .self = n};

    n->pile = (struct ep_pile){.papers = n->papers, .count = 2, .qps = WEIR_QPS_MAX};
    n->rtt = (struct rtt){.measures = RTT_DOUBT}; /* answers are known to be quick */
    memcpy(options.instance_local, n->instance, WIRE_INSTANCE_SIZE);
    memcpy(options.instance_remote, p->nodes[!node].instance, WIRE_INSTANCE_SIZE);
    endpoint_init(&n->ep, &options);
    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        n->drain_at[i] = UINT64_MAX;
        n->made[i] = false;
    }
    n->settled_by_remote = 0;
}

static void endpoint_make(struct pair *p, uint32_t node) {
    memset(p->nodes[node].epochs, 0, sizeof(p->nodes[node].epochs));
    p->nodes[node].oldest = 1;
    endpoint_start(p, node);
}

void pair_init(struct pair *p, uint64_t seed) {
    for (uint32_t i = 0; i < PAIR_MESSAGES; i++)
        p->messages[i].used = false;
    p->message_high = 0;
    p->now_ns = 0;
    p->order = 0;
    p->random = seed;
    p->drain_ns_max = 0;
    p->delay_ns_max = 0;
    for (uint32_t i = 0; i < 2; i++)
        p->way_ns[i] = p->look_ns[i] = p->last_ns[i] = 0;
    p->loss_percent = p->repeat_percent = 0;
    p->trace_length = 0;
    p->trace[0] = '\0';
    memset(p->nodes, 0, sizeof(p->nodes));
    for (uint32_t i = 0; i < 2; i++) {
        struct pair_node *n = &p->nodes[i];

        memset(n->instance, NAMES[i], WIRE_INSTANCE_SIZE);
        strcpy(n->set.device, "sim");
        n->set.mtu = 4096;
        n->set.recv_credits = 64;
        n->set.recv_bytes_max = 288;
        n->set.pass = 7;
        n->set.life = i + 1;
        n->set.ordered = true;
        n->set.qp_count = 2;
    }
    endpoint_make(p, 0);
    endpoint_make(p, 1);
}

/* ---- the network ------------------------------------------------------- */

/* When the node looks, at this time or behind it. */
static uint64_t look(const struct pair *p, uint32_t node, uint64_t at_ns) {
    const uint64_t every_ns = p->look_ns[node];

    return every_ns == 0 || at_ns >= UINT64_MAX - 1 ? at_ns
                                                    : (at_ns + every_ns - 1) / every_ns * every_ns;
}

static void network_put(struct pair *p, const struct pair_message *message, uint64_t delay_ns) {
    for (uint32_t i = 0; i < PAIR_MESSAGES; i++) {
        struct pair_message *m = &p->messages[i];

        if (m->used)
            continue;
        m->used = true;
        m->from = message->from;
        m->length = message->length;
        memcpy(m->bytes, message->bytes, message->length);
        m->at_ns = p->now_ns + delay_ns;
        if (p->way_ns[m->from] != 0) {
            m->at_ns = look(p, !m->from, m->at_ns + p->way_ns[m->from]);
            if (m->at_ns < p->last_ns[m->from])
                m->at_ns = p->last_ns[m->from];
            p->last_ns[m->from] = m->at_ns;
        }
        m->order = p->order++;
        if (i >= p->message_high)
            p->message_high = i + 1;
        return;
    }
}

static struct pair_message *oldest(struct pair *p, uint32_t from) {
    struct pair_message *best = NULL;

    for (uint32_t i = 0; i < p->message_high; i++) {
        struct pair_message *m = &p->messages[i];

        if (m->used && m->from == from && (best == NULL || m->order < best->order))
            best = m;
    }
    return best;
}

static struct pair_message *soonest(struct pair *p) {
    struct pair_message *best = NULL;

    for (uint32_t i = 0; i < p->message_high; i++) {
        struct pair_message *m = &p->messages[i];

        if (m->used && (best == NULL || m->at_ns < best->at_ns ||
                        (m->at_ns == best->at_ns && m->order < best->order)))
            best = m;
    }
    return best;
}

void pair_inject(struct pair *p, const struct pair_message *message) {
    struct wire_message decoded;
    struct ep_event event = {.type = EP_EV_MESSAGE, .message = &decoded};

    assert_int_equal(wire_decode(message->bytes, message->length, &decoded), WEIR_OK);
    pair_step(p, !message->from, &event);
}

struct pair_message pair_take(struct pair *p, uint32_t from) {
    struct pair_message *m = oldest(p, from);

    assert_non_null(m);
    m->used = false;
    return *m;
}

void pair_deliver(struct pair *p, uint32_t from) {
    struct pair_message m = pair_take(p, from);

    pair_inject(p, &m);
}

void pair_deliver_keep(struct pair *p, uint32_t from) {
    struct pair_message *m = oldest(p, from);

    assert_non_null(m);
    struct pair_message copy = *m;
    pair_inject(p, &copy);
}

void pair_lose(struct pair *p, uint32_t from) {
    pair_take(p, from);
}

void pair_flush(struct pair *p) {
    for (uint32_t bound = 0; bound < 1000; bound++) {
        struct pair_message *m = soonest(p);

        if (m == NULL)
            return;
        m->used = false;
        struct pair_message copy = *m;
        pair_inject(p, &copy);
    }
    fail_msg("the two endpoints never stop talking");
}

/* ---- the judge --------------------------------------------------------- */

static struct pair_epoch *known(struct pair *p, uint32_t node, uint64_t epoch) {
    assert_in_range(epoch, 1, PAIR_EPOCHS - 1);
    return &p->nodes[node].epochs[epoch];
}

static uint64_t hash(const uint8_t *bytes, uint32_t length) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < length; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h | 1;
}

static void judge_settle(struct pair *p, uint32_t node, const struct wire_message *m) {
    const struct pair_node *n = &p->nodes[node];

    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        if ((i == n->ep.live || i == n->ep.next) && n->ep.sessions[i].epoch <= m->epoch)
            fail_msg("%c says SETTLE(%" PRIu64 "), but has a session of that", NAMES[node],
                     m->epoch);
    }
    if (m->epoch > n->epoch_counter)
        fail_msg("%c says SETTLE(%" PRIu64 ") before it is drawn", NAMES[node], m->epoch);
}

static void judge_send(struct pair *p, uint32_t node, const struct wire_message *m,
                       const struct ep_effect *e) {
    if (m->type == WIRE_SETTLE)
        judge_settle(p, node, m);
    if (m->type != WIRE_HELLO && m->type != WIRE_HELLO_ACK)
        return;
    struct pair_epoch *k = known(p, node, m->epoch);
    uint64_t *before = m->type == WIRE_HELLO ? &k->hello_hash : &k->ack_hash;
    uint64_t h = hash(e->data, e->length);

    if (*before != 0 && *before != h)
        fail_msg("%c repeats %s(%" PRIu64 ") with other bytes", NAMES[node],
                 wire_type_name(m->type), m->epoch);
    if ((*before != 0) != e->retransmit)
        fail_msg("%c sends %s(%" PRIu64 ") and mistakes it for new or old", NAMES[node],
                 wire_type_name(m->type), m->epoch);
    *before = h;
}

static void judge_connect(struct pair *p, uint32_t node, const struct ep_effect *e) {
    struct pair_epoch *k = known(p, node, e->epoch);

    if (k->bound != 0)
        fail_msg("%c binds epoch %" PRIu64 " twice", NAMES[node], e->epoch);
    k->bound = e->epoch_remote;
    for (uint64_t i = p->nodes[node].oldest; i < PAIR_EPOCHS; i++) {
        if (i != e->epoch && p->nodes[node].epochs[i].bound == e->epoch_remote)
            fail_msg("%c binds two epochs to %" PRIu64, NAMES[node], e->epoch_remote);
    }
    if (e->epoch_remote <= p->nodes[node].settled_by_remote)
        fail_msg("%c connects to %" PRIu64 " after it said that all of that is over", NAMES[node],
                 e->epoch_remote);
}

static void judge_up(struct pair *p, uint32_t node, const struct ep_effect *e) {
    struct pair_epoch *k = known(p, node, e->epoch);
    const struct pair_epoch *other = known(p, !node, e->epoch_remote);

    if (k->up || !k->connected || k->bound != e->epoch_remote)
        fail_msg("%c brings (%" PRIu64 ",%" PRIu64 ") up out of order", NAMES[node], e->epoch,
                 e->epoch_remote);
    if (!other->connected || other->bound != e->epoch)
        fail_msg("%c may send on (%" PRIu64 ",%" PRIu64 "), but the other side has connected "
                 "%" PRIu64 " to %" PRIu64,
                 NAMES[node], e->epoch, e->epoch_remote, e->epoch_remote, other->bound);
    k->up = true;
}

static void judge_settled(struct pair *p, uint32_t node, const struct ep_effect *e) {
    struct pair_node *other = &p->nodes[!node];
    const bool forgot = other->oldest > 1; /* so an old HELLO may have been answered again */

    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        const struct ep_session *session = &other->ep.sessions[i];

        if (session->state == EP_SESSION_FREE || session->epoch_remote == 0 ||
            (forgot && known(p, node, session->epoch_remote)->bound != session->epoch))
            continue;
        if (session->epoch_remote <= e->epoch)
            fail_msg("%c believes all up to %" PRIu64 " settled, but it is not", NAMES[node],
                     e->epoch);
    }
    if (!forgot || e->epoch <= other->ep.remote_seen)
        other->settled_by_remote = e->epoch;
}

/* ---- performing effects ------------------------------------------------ */

static void perform_send(struct pair *p, uint32_t node, const struct ep_effect *e) {
    struct pair_message message = {.from = node, .length = e->length};
    struct wire_message m;

    assert_in_range(e->length, 1, sizeof(message.bytes));
    memcpy(message.bytes, e->data, e->length);
    assert_int_equal(wire_decode(e->data, e->length, &m), WEIR_OK);
    judge_send(p, node, &m, e);
    note(p, "%c>%s", NAMES[node], wire_type_name(m.type));
    if (m.type == WIRE_HELLO || m.type == WIRE_SETTLE)
        note(p, "(%" PRIu64 ") ", m.epoch);
    else if (m.type == WIRE_HELLO_ACK || m.type == WIRE_READY)
        note(p, "(%" PRIu64 ",%" PRIu64 ") ", m.epoch, m.echo);
    else if (m.type == WIRE_REFUSE)
        note(p, "(%" PRIu64 ",%s) ", m.echo & ~WIRE_ECHO_LATER,
             (m.echo & WIRE_ECHO_LATER) != 0 ? "later"
             : m.reason == WEIR_ESTALE       ? "stale"
                                             : "final");
    else if (m.type == WIRE_SETTLED)
        note(p, "(%" PRIu64 ") ", m.echo);
    else
        note(p, " ");
    if (pair_random(p, 100) < p->loss_percent)
        return;
    network_put(p, &message, 1 + pair_random(p, p->delay_ns_max));
    if (pair_random(p, 100) < p->repeat_percent)
        network_put(p, &message, 1 + pair_random(p, p->delay_ns_max));
}

static void perform_create(struct pair *p, uint32_t node, const struct ep_effect *e,
                           struct ep_event *answer) {
    struct pair_node *n = &p->nodes[node];

    assert_false(n->made[e->session]);
    note(p, "%c.create(%" PRIu64 ") ", NAMES[node], e->epoch);
    answer->session = e->session;
    answer->error = n->create_error;
    answer->local = &n->set;
    answer->type = n->create_error == 0 ? EP_EV_QPS_READY : EP_EV_QPS_FAILED;
    n->made[e->session] = n->create_error == 0;
    n->create_error = 0;
    n->set.qps[0].psn = (uint32_t)pair_random(p, 1 << 24);
}

static void perform_connect(struct pair *p, uint32_t node, const struct ep_effect *e,
                            struct ep_event *answer) {
    struct pair_node *n = &p->nodes[node];

    judge_connect(p, node, e);
    note(p, "%c.connect(%" PRIu64 ",%" PRIu64 ") ", NAMES[node], e->epoch, e->epoch_remote);
    answer->session = e->session;
    answer->error = n->connect_error;
    answer->type = n->connect_error == 0 ? EP_EV_CONNECTED : EP_EV_CONNECT_FAILED;
    known(p, node, e->epoch)->connected = n->connect_error == 0;
    n->connect_error = 0;
    n->last_agreed = e->agreed;
}

/* Returns whether the effect has to be answered. */
static bool perform(struct pair *p, uint32_t node, const struct ep_effect *e,
                    struct ep_event *answer) {
    struct pair_node *n = &p->nodes[node];

    switch (e->type) {
    case EP_DO_SEND:
        perform_send(p, node, e);
        break;
    case EP_DO_CREATE:
        perform_create(p, node, e, answer);
        return true;
    case EP_DO_CONNECT:
        perform_connect(p, node, e, answer);
        return true;
    case EP_DO_UP:
        judge_up(p, node, e);
        n->ups++;
        note(p, "%c.up(%" PRIu64 ",%" PRIu64 ") ", NAMES[node], e->epoch, e->epoch_remote);
        break;
    case EP_DO_RETIRE:
        assert_true(n->made[e->session]);
        assert_int_equal(n->drain_at[e->session], UINT64_MAX);
        n->drain_at[e->session] = UINT64_MAX - 1;
        if (p->drain_ns_max != 0)
            n->drain_at[e->session] =
                look(p, node, p->now_ns + 1 + pair_random(p, p->drain_ns_max));
        note(p, "%c.retire(%" PRIu64 ",%" PRIu64 ") ", NAMES[node], e->epoch, e->epoch_remote);
        break;
    case EP_DO_SETTLED:
        judge_settled(p, node, e);
        n->last_settled = e->epoch;
        n->last_settled_base = e->settled->base;
        note(p, "%c.settled(%" PRIu64 ") ", NAMES[node], e->epoch);
        break;
    case EP_DO_REFUSED:
        note(p, "%c.refused(%d) ", NAMES[node], e->error);
        break;
    case EP_DO_FAILED:
        n->fails++;
        n->last_error = e->error;
        note(p, "%c.failed(%d) ", NAMES[node], e->error);
        break;
    case EP_DO_GONE:
        n->gones++;
        n->last_error = e->error;
        note(p, "%c.gone(%d) ", NAMES[node], e->error);
        break;
    }
    return false;
}

void pair_step(struct pair *p, uint32_t node, const struct ep_event *event) {
    struct ep_event current = *event, answer;
    bool answered = true;

    for (uint32_t bound = 0; answered; bound++) {
        struct ep_effect effects[EP_EFFECTS_MAX];
        uint32_t count;
        const char *problem;

        assert_in_range(bound, 0, 16);
        answered = false;
        memset(&answer, 0, sizeof(answer));
        count = endpoint_step(&p->nodes[node].ep, &current, p->now_ns, effects);
        problem = endpoint_verify(&p->nodes[node].ep);
        if (problem != NULL)
            fail_msg("%c: %s", NAMES[node], problem);
        for (uint32_t i = 0; i < count; i++) {
            assert_false(answered); /* what has to be answered comes last */
            answered = perform(p, node, &effects[i], &answer);
        }
        current = answer;
    }
}

void pair_event(struct pair *p, uint32_t node, enum ep_event_type type) {
    const struct ep_event event = {.type = type,
                                   .error = type == EP_EV_PEER_DEAD ? WEIR_EPEER : WEIR_OK};

    pair_step(p, node, &event);
}

static void break_slot(struct pair *p, uint32_t node, uint32_t session) {
    const struct ep_event event = {.type = EP_EV_BROKEN, .session = session};

    if (session != EP_SESSION_NONE)
        pair_step(p, node, &event);
}

void pair_break(struct pair *p, uint32_t node) {
    break_slot(p, node, endpoint_live(&p->nodes[node].ep));
}

void pair_break_next(struct pair *p, uint32_t node) {
    break_slot(p, node, p->nodes[node].ep.next);
}

void pair_drain_session(struct pair *p, uint32_t node, uint32_t session) {
    const struct ep_event event = {.type = EP_EV_DRAINED, .session = session};

    assert_int_not_equal(p->nodes[node].drain_at[session], UINT64_MAX);
    p->nodes[node].drain_at[session] = UINT64_MAX;
    p->nodes[node].made[session] = false;
    pair_step(p, node, &event);
}

static void drain_due(struct pair *p, uint32_t node, uint64_t due_ns) {
    struct pair_node *n = &p->nodes[node];

    for (uint32_t i = 0; i < EP_SESSIONS; i++) {
        if (n->drain_at[i] <= due_ns)
            pair_drain_session(p, node, i);
    }
}

void pair_drain(struct pair *p, uint32_t node) {
    drain_due(p, node, UINT64_MAX - 1);
}

void pair_forget(struct pair *p, uint32_t node) {
    pair_event(p, node, EP_EV_PEER_DEAD);
    pair_drain(p, node);
    assert_true(endpoint_at_rest(&p->nodes[node].ep));
    p->nodes[node].oldest = p->nodes[node].epoch_counter + 1;
    endpoint_start(p, node);
}

void pair_restart(struct pair *p, uint32_t node) {
    pair_event(p, !node, EP_EV_PEER_DEAD);
    p->nodes[node].instance[0]++;
    p->nodes[node].epoch_counter = 0;
    endpoint_make(p, 0);
    endpoint_make(p, 1);
}

void pair_init_up(struct pair *p, uint64_t seed) {
    pair_init(p, seed);
    pair_event(p, 0, EP_EV_WANT);
    pair_flush(p);
    assert_true(pair_matched(p));
    pair_trace(p);
}

/* ---- time -------------------------------------------------------------- */

void pair_tick_at(struct pair *p, uint32_t node, uint64_t now_ns) {
    p->now_ns = now_ns;
    pair_event(p, node, EP_EV_TIMER);
}

static uint64_t next_time(struct pair *p) {
    const struct pair_message *m = soonest(p);
    uint64_t at_ns = m == NULL ? UINT64_MAX : m->at_ns;

    for (uint32_t node = 0; node < 2; node++) {
        const struct pair_node *n = &p->nodes[node];

        if (look(p, node, endpoint_deadline(&n->ep)) < at_ns)
            at_ns = look(p, node, endpoint_deadline(&n->ep));
        for (uint32_t i = 0; i < EP_SESSIONS; i++) {
            if (n->drain_at[i] < at_ns)
                at_ns = n->drain_at[i];
        }
    }
    return at_ns;
}

void pair_run(struct pair *p, uint64_t until_ns) {
    for (uint32_t bound = 0; bound < 100000; bound++) {
        uint64_t at_ns = next_time(p);
        struct pair_message *m;

        if (at_ns > until_ns || at_ns >= UINT64_MAX - 1) {
            p->now_ns = until_ns;
            return;
        }
        if (at_ns > p->now_ns)
            p->now_ns = at_ns;
        m = soonest(p);
        if (m != NULL && m->at_ns <= p->now_ns) {
            struct pair_message copy = {.from = m->from, .length = m->length};

            memcpy(copy.bytes, m->bytes, m->length);
            m->used = false;
            pair_inject(p, &copy);
            m = soonest(p);
            if (p->look_ns[!copy.from] != 0 && m != NULL && m->at_ns <= p->now_ns)
                continue; /* one look takes up all that came, and then looks at the time */
        }
        for (uint32_t node = 0; node < 2; node++) {
            drain_due(p, node, p->now_ns);
            if (look(p, node, endpoint_deadline(&p->nodes[node].ep)) <= p->now_ns)
                pair_event(p, node, EP_EV_TIMER);
        }
    }
    fail_msg("time stands still");
}

bool pair_matched(const struct pair *p) {
    const struct endpoint *a = &p->nodes[0].ep, *b = &p->nodes[1].ep;

    return a->live != EP_SESSION_NONE && b->live != EP_SESSION_NONE &&
           a->sessions[a->live].epoch == b->sessions[b->live].epoch_remote &&
           b->sessions[b->live].epoch == a->sessions[a->live].epoch_remote;
}
