/* SPDX-License-Identifier: Apache-2.0 */
/* lone_engine.c: see lone_engine.h; the device is lone_device.c's. */
#include "lone_engine.h"
#include "found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lone_parts.h"

struct lone *the;

/* ---- environment ---- */

static uint64_t env_now(void *self) {
    (void)self;
    the->now_ns += the->tick_ns;
    return the->now_ns;
}

static void env_entropy(void *self, void *out, size_t length) {
    (void)self;
    memset(out, ++the->entropy, length);
}

static void *env_alloc(void *self, size_t bytes) {
    (void)self;
    size_t whole = (bytes + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, whole);
    if (memory != NULL)
        memset(memory, 0, whole);
    return memory;
}

static void env_free(void *self, void *memory, size_t bytes) {
    (void)self;
    (void)bytes;
    free(memory);
}

static uint64_t env_room(void *self) {
    (void)self;
    return the->room_bytes;
}

static const struct weir_env_ops env_ops = {.now = env_now,
                                            .coarse = env_now,
                                            .entropy = env_entropy,
                                            .alloc = env_alloc,
                                            .free = env_free,
                                            .room = env_room};

/* ---- control channel ---- */

static uint64_t conn_new(const char *address) {
    assert_true(the->conn_count + 1 < LONE_CONNS);
    struct lone_conn *conn = &the->conns[++the->conn_count];
    conn->open = true;
    snprintf(conn->address, sizeof(conn->address), "%s", address);
    return the->conn_count;
}

static struct lone_event *event_new(uint64_t conn, uint32_t type) {
    struct lone_event *event = &the->events[the->event_last++ % LONE_EVENTS];
    assert_true(the->event_last - the->event_first <= LONE_EVENTS);
    *event = (struct lone_event){.conn = conn, .type = type};
    return event;
}

static int channel_check(void *self, const char *address) {
    return (void)self, (void)address, WEIR_OK;
}

static bool channel_numeric(void *self, const char *address) {
    (void)self;
    return address[0] >= '0' && address[0] <= '9';
}

static int channel_listen(void *self, const char *address, char *actual_out, size_t actual_size) {
    (void)self;
    (void)address;
    snprintf(actual_out, actual_size, "10.0.0.1:1");
    return WEIR_OK;
}

static int channel_dial(void *self, const char *address, uint64_t *conn_out) {
    (void)self;
    the->dials++;
    if (the->dial_error != WEIR_OK)
        return the->dial_error;
    *conn_out = conn_new(address);
    return WEIR_OK;
}

static int channel_send(void *self, uint64_t conn, const uint8_t *message, uint32_t length) {
    (void)self;
    assert_true(conn > 0 && conn <= the->conn_count);
    if (!the->conns[conn].open)
        return WEIR_ECONNECT;
    assert_true(the->said_count < LONE_SAID);
    struct lone_said *said = &the->said[the->said_count++];
    said->conn = conn;
    assert_int_equal(wire_decode(message, length, &said->message), WEIR_OK);
    return WEIR_OK;
}

static void channel_hangup(void *self, uint64_t conn) {
    (void)self;
    the->conns[conn].open = false;
    the->conns[conn].hung = true;
}

static void channel_keep(void *self, uint64_t conn) {
    (void)self;
    the->conns[conn].kept = true;
}

static void channel_from(void *self, uint64_t conn, char *host_out, size_t size) {
    (void)self;
    snprintf(host_out, size, "%s", the->conns[conn].from);
}

static int channel_poll(void *self, struct weir_control_event *event_out) {
    (void)self;
    while (the->event_first != the->event_last) {
        const struct lone_event *event = &the->events[the->event_first++ % LONE_EVENTS];
        if (the->conns[event->conn].hung)
            continue;
        *event_out = (struct weir_control_event){.conn = event->conn,
                                                 .type = event->type,
                                                 .error = event->error,
                                                 .message = event->bytes,
                                                 .length = event->length};
        return 1;
    }
    return 0;
}

static int no_fd(void *self) {
    (void)self;
    return -1;
}

static bool channel_look(void *self, uint64_t conn, struct weir_control_look *look_out) {
    (void)self;
    *look_out = (struct weir_control_look){the->host_silent, the->retransmits};
    return conn > 0 && conn <= the->conn_count && the->conns[conn].open;
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
    .look = channel_look,
};

/* ---- sleeping ---- */

static int wait_add(void *self, int source_fd) {
    (void)self;
    (void)source_fd;
    return WEIR_OK;
}

static void wait_sleep(void *self, uint64_t timeout_ns) {
    (void)self;
    the->sleeps++;
    if (the->on_sleep != NULL)
        the->on_sleep(the);
    uint64_t most_ns = the->nap_ns != 0 ? the->nap_ns : MS;
    if (!the->woken)
        the->now_ns += timeout_ns < most_ns ? timeout_ns : most_ns;
}

static void wait_wake(void *self) {
    (void)self;
    the->wakes++;
    the->woken = true;
}

static void wait_clear(void *self) {
    (void)self;
    the->woken = false;
}

static void wait_level(void *self) {
    (void)self;
}

static const struct weir_wait_ops wait_ops = {
    .add = wait_add,
    .sleep = wait_sleep,
    .wake = wait_wake,
    .clear = wait_clear,
    .fd = no_fd,
    .raise = wait_level,
    .lower = wait_level,
};

/* ---- the engine ---- */

static void closed(struct weir_ports *ports, weir_engine *left, void *context) {
    (void)ports;
    (void)context;
    the->closes++;
    the->left = left;
    the->device_closed = left == NULL;
}

weir_engine_options lone_limits(void) {
    weir_engine_options limits = WEIR_ENGINE_OPTIONS_INIT;
    limits.transfers_max = 64;
    limits.segments_max = 64;
    limits.peers_max = 8;
    limits.memories_max = limits.remotes_max = 4;
    limits.sq_depth = 16;
    limits.recv_credits = 8;
    limits.notifications_max = 64;
    return limits;
}

static struct lone *open_as(const weir_engine_options *options, bool own_queues) {
    weir_engine_options limits = lone_limits();
    the = calloc(1, sizeof(*the));
    assert_non_null(the);
    the->own_queues = own_queues;
    the->now_ns = SECOND;
    the->room_bytes = UINT64_MAX;
    limits.connect_timeout_ns = SECOND;
    struct weir_ports ports = {.env = {.ops = &env_ops},
                               .control = {&channel_ops, NULL},
                               .wait = {&wait_ops, NULL},
                               .device_ops = &lone_device_ops,
                               .others = {{.name = "other", .fabric = {7}},
                                          {.name = "shm", .untried = true},
                                          {.name = "perhaps", .untried = true}},
                               .other_count = 3};
    if (options != NULL)
        limits = *options;
    the->recorder_bytes = recorder_bytes(limits.peers_max);
    the->recorder = calloc(1, the->recorder_bytes);
    assert_non_null(the->recorder);
    ports.recorder = (struct weir_recorder_port){
        .memory = the->recorder, .bytes = the->recorder_bytes, .pid = 77};
    if (limits.watchdog_ns == 0)
        limits.watchdog_ns = WEIR_WATCHDOG_NONE;
    assert_int_equal(engine_create(&limits, &ports, &the->engine), WEIR_OK);
    the->engine->on_close = closed;
    return the;
}

struct lone *lone_open(const weir_engine_options *options) {
    return open_as(options, false);
}

struct lone *lone_open_own(const weir_engine_options *options) {
    return open_as(options, true);
}

void lone_close(struct lone *lone) {
    weir_engine_close(lone->engine);
    assert_int_equal(lone->closes, 1);
    lone_free(lone);
}

void lone_free(struct lone *lone) {
    free(lone->recorder);
    free(lone);
}

void lone_run(struct lone *lone) {
    int turns = 0;
    while (weir_engine_progress(lone->engine) > 0)
        assert_true(++turns < 10000);
    assert_null(engine_verify(lone->engine));
}

void lone_pass(struct lone *lone, uint64_t ns) {
    uint64_t end = lone->now_ns + ns;
    while (lone->now_ns < end) {
        lone->now_ns += end - lone->now_ns < MS ? end - lone->now_ns : MS;
        lone_run(lone);
    }
}

/* ---- memory ---- */

int lone_import(struct lone *lone, weir_peer peer, uint32_t n, uint64_t length,
                weir_remote *remote_out) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    uint32_t descriptor_length;
    struct wire_descriptor theirs = {.memory_id = 1,
                                     .length = length,
                                     .access = WEIR_ACCESS_ALL,
                                     .device = "lone",
                                     .blob_length = sizeof(n)};
    memcpy(theirs.blob, &n, sizeof(n));
    lone_instance(n, theirs.instance);
    assert_int_equal(
        wire_descriptor_encode(&theirs, descriptor, sizeof(descriptor), &descriptor_length),
        WEIR_OK);
    return weir_memory_import(lone->engine, peer, descriptor, descriptor_length, remote_out);
}

void lone_memories(struct lone *lone, weir_peer peer, uint32_t n, void *bytes, uint64_t length,
                   weir_memory *local_out, weir_remote *remote_out) {
    assert_int_equal(weir_memory_register(lone->engine, bytes, length, 0, local_out), WEIR_OK);
    assert_int_equal(lone_import(lone, peer, n, length, remote_out), WEIR_OK);
}

/* ---- connections ---- */

void lone_instance(uint32_t n, uint8_t *out) {
    memset(out, 0xee, WIRE_INSTANCE_SIZE);
    memcpy(out, &n, sizeof(n));
}

uint64_t lone_visit(struct lone *lone) {
    uint64_t conn = conn_new("");
    event_new(conn, WEIR_CONTROL_ACCEPTED);
    lone_run(lone);
    return conn;
}

uint64_t lone_dialled(struct lone *lone, const char *address) {
    for (uint64_t conn = lone->conn_count; conn > 0; conn--) {
        if (lone->conns[conn].open && strcmp(lone->conns[conn].address, address) == 0) {
            event_new(conn, WEIR_CONTROL_CONNECTED);
            lone_run(lone);
            return conn;
        }
    }
    return 0;
}

void lone_cut(struct lone *lone, uint64_t conn, int error) {
    lone->conns[conn].open = false;
    event_new(conn, WEIR_CONTROL_CLOSED)->error = error;
    lone_run(lone);
}

void lone_cut_silently(struct lone *lone, uint64_t conn) {
    lone->conns[conn].open = false;
}

/* ---- what is said ---- */

void lone_say(struct lone *lone, uint64_t conn, uint32_t n, struct wire_message *message) {
    uint8_t instance[WIRE_INSTANCE_SIZE];
    lone_instance(n, instance);
    lone_say_as(lone, conn, instance, message);
}

void lone_say_bytes(struct lone *lone, uint64_t conn, const uint8_t *bytes, uint32_t length) {
    struct lone_event *event = event_new(conn, WEIR_CONTROL_MESSAGE);
    assert_true(length <= sizeof(event->bytes));
    memcpy(event->bytes, bytes, length);
    event->length = length;
    if (!lone->batch)
        lone_run(lone);
}

void lone_say_as(struct lone *lone, uint64_t conn, const uint8_t *instance,
                 struct wire_message *message) {
    struct lone_event *event = event_new(conn, WEIR_CONTROL_MESSAGE);
    memcpy(message->from, instance, WIRE_INSTANCE_SIZE);
    if (message->type != WIRE_WHO)
        memcpy(message->to, engine_instance(lone->engine), WIRE_INSTANCE_SIZE);
    assert_int_equal(wire_encode(message, event->bytes, sizeof(event->bytes), &event->length),
                     WEIR_OK);
    if (!lone->batch)
        lone_run(lone);
}

void lone_say_who(struct lone *lone, uint64_t conn, uint32_t n, const char *address) {
    struct wire_message who = {.type = WIRE_WHO};
    snprintf(who.address, sizeof(who.address), "%s", address);
    lone_say(lone, conn, n, &who);
}

void lone_say_iam(struct lone *lone, uint64_t conn, uint32_t n, const char *address) {
    struct wire_message iam = {.type = WIRE_IAM};
    snprintf(iam.address, sizeof(iam.address), "%s", address);
    lone_say(lone, conn, n, &iam);
}

void lone_return(struct lone *lone, uint64_t conn, uint32_t n, const char *address) {
    struct wire_message iam = {.type = WIRE_IAM};
    uint8_t instance[WIRE_INSTANCE_SIZE];
    lone_instance(n, instance);
    const struct peer *peer = peer_by_instance(lone->engine, instance);
    assert_non_null(peer);
    lone_say_who(lone, conn, n, address);
    iam.pass = peer->pass;
    snprintf(iam.address, sizeof(iam.address), "%s", address);
    lone_say(lone, conn, n, &iam);
}

struct wire_qp_set lone_qps(void) {
    return (struct wire_qp_set){.device = "lone",
                                .recv_credits = 8,
                                .recv_bytes_max = 4096,
                                .pass = LONE_PASS,
                                .life = LONE_PASS,
                                .ordered = true,
                                .qp_count = the->their_qps != 0 ? the->their_qps : 1};
}

void lone_say_hello(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch) {
    struct wire_message hello = {.type = WIRE_HELLO, .epoch = epoch, .qps = lone_qps()};
    lone_say(lone, conn, n, &hello);
}

uint64_t lone_answer(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch) {
    const struct wire_message *hello = lone_heard(lone, conn, WIRE_HELLO);
    assert_non_null(hello);
    uint64_t ours = hello->epoch;
    struct wire_message ack = {
        .type = WIRE_HELLO_ACK, .epoch = epoch, .echo = ours, .qps = lone_qps()};
    lone_say(lone, conn, n, &ack);
    return ours;
}

void lone_say_ready(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch, uint64_t echo) {
    struct wire_message ready = {.type = WIRE_READY, .epoch = epoch, .echo = echo};
    lone_say(lone, conn, n, &ready);
}

uint32_t lone_count(const struct lone *lone, uint64_t conn, enum wire_type type) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < lone->said_count; i++)
        count += lone->said[i].conn == conn && lone->said[i].message.type == type;
    return count;
}

const struct wire_message *lone_heard(struct lone *lone, uint64_t conn, enum wire_type type) {
    static struct wire_message found;
    bool any = false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < lone->said_count; i++) {
        const struct lone_said *said = &lone->said[i];
        if (said->conn == conn && said->message.type == type) {
            found = said->message;
            any = true;
        } else {
            lone->said[kept++] = *said;
        }
    }
    lone->said_count = kept;
    return any ? &found : NULL;
}

uint64_t lone_up(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch) {
    lone_say_hello(lone, conn, n, epoch);
    const struct wire_message *ack = lone_heard(lone, conn, WIRE_HELLO_ACK);
    assert_non_null(ack);
    assert_int_equal(ack->echo, epoch);
    uint64_t ours = ack->epoch;
    lone_say_ready(lone, conn, n, epoch, ours);
    return ours;
}

weir_event lone_event(struct lone *lone) {
    weir_event event;
    assert_int_equal(weir_event_take(lone->engine, &event), WEIR_OK);
    return event;
}

weir_transfer lone_submit_notification(struct lone *lone, weir_peer peer) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    assert_int_equal(weir_write(lone->engine, peer, NULL, 0, &options, &transfer), WEIR_OK);
    return transfer;
}

struct peer *lone_peer(struct lone *lone, uint32_t n) {
    uint8_t instance[WIRE_INSTANCE_SIZE];
    lone_instance(n, instance);
    return peer_by_instance(lone->engine, instance);
}

weir_peer lone_meet(struct lone *lone, uint32_t n, const char *address, uint64_t *conn_out) {
    uint64_t conn = lone_visit(lone);
    snprintf(lone->conns[conn].from, sizeof(lone->conns[conn].from), "10.0.0.9");
    lone_say_who(lone, conn, n, address);
    lone_up(lone, conn, n, 1);
    weir_event event = lone_event(lone);
    assert_int_equal(event.type, WEIR_EVENT_UP);
    if (conn_out != NULL)
        *conn_out = conn;
    return event.peer;
}

bool lone_told(struct lone *lone, weir_event_type type, weir_event *event_out) {
    while (weir_event_take(lone->engine, event_out) == WEIR_OK) {
        if (event_out->type == type)
            return true;
    }
    return false;
}
