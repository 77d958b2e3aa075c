/* SPDX-License-Identifier: Apache-2.0 */
/* lone_engine.c: see lone_engine.h. */
#include "lone_engine.h"
#include "found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire_data.h"

static struct lone *the;

/* ---- environment ---- */

static uint64_t env_now(void *self) {
    (void)self;
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
    if (!the->woken)
        the->now_ns += timeout_ns < MS ? timeout_ns : MS;
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

/* ---- device ---- */

static void device_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    (void)device;
    *caps_out = (struct weir_device_caps){.name = "lone",
                                          .message_bytes_max = 1 << 20,
                                          .post_bytes_max = UINT64_MAX,
                                          .sq_depth_max = 64,
                                          .rq_depth_max = 1024,
                                          .cq_capacity = 1 << 20,
                                          .ordered = true,
                                          .srq = !the->own_queues};
}

static int mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out) {
    (void)device;
    (void)access;
    if (the->on_register != NULL)
        the->on_register(the);
    the->memories++;
    *mr_out = (struct weir_mr){.lkey = 1, .base = base, .length = length};
    return WEIR_OK;
}

/* It has none, and counts the questions. */
static int mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out) {
    (void)device, (void)length, (void)access, (void)mr_out;
    the->allocations++;
    return WEIR_EAGAIN;
}

static int mr_release(struct weir_device *device, const struct weir_mr *mr) {
    (void)device;
    (void)mr;
    if (the->on_register != NULL)
        the->on_register(the);
    if (the->release_error == 0)
        the->memories--;
    return the->release_error;
}

static int mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                     uint64_t length, uint32_t access, struct weir_rmr *rmr_out) {
    (void)device;
    (void)blob;
    (void)blob_length;
    (void)length;
    (void)access;
    *rmr_out = (struct weir_rmr){.raddr = 4096, .rkey = 1};
    return WEIR_OK;
}

static void mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    (void)device;
    (void)rmr;
}

/* A QP is its number; NULL is none. */
static uint32_t number_of(const struct weir_qp *qp) {
    return (uint32_t)((uintptr_t)qp - 1);
}

static int qp_create(struct weir_device *device, const struct weir_qp_options *options,
                     struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    (void)device;
    if (the->no_qps)
        return the->qps_error != 0 ? the->qps_error : WEIR_EAGAIN;
    assert_true(the->qp_count < LONE_QPS);
    uint32_t number = the->qp_count++;
    the->made[number] = true;
    the->tags[number] = options->tag;
    *granted_out = (struct weir_qp_granted){
        .sq_depth = options->sq_depth, .rq_depth = options->rq_depth, .blob_length = 4};
    *qp_out = (struct weir_qp *)(uintptr_t)(number + 1);
    return WEIR_OK;
}

static int qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    (void)path;
    uint32_t number = number_of(qp);
    assert_true(the->made[number]);
    if (the->connect_ns == 0)
        return the->connect_error;
    the->connecting_until[number] = the->now_ns + the->connect_ns;
    return WEIR_EINPROGRESS;
}

static struct weir_cqe *cqe_new(void) {
    assert_true(the->cqe_last - the->cqe_first < LONE_CQES);
    return &the->cqes[the->cqe_last++ % LONE_CQES];
}

static void complete(uint64_t wr_id, uint32_t status) {
    *cqe_new() = (struct weir_cqe){.wr_id = wr_id, .status = status};
}

/* The WRs posted on this QP end with it. If it failed, the first of them is to blame. */
static void cut_short(uint32_t qp) {
    uint32_t kept = 0;
    uint32_t status = the->news[qp] != NEWS_NONE ? the->bad_status : WEIR_CQE_FLUSHED;
    for (uint32_t i = 0; i < the->posted_count; i++) {
        if (the->posted[i].qp != qp) {
            the->posted[kept++] = the->posted[i];
        } else if (!the->slow_lands || the->news[qp] != NEWS_NONE) {
            complete(the->posted[i].wr_id, status);
            status = WEIR_CQE_FLUSHED;
        } else if (the->posted[i].signaled) {
            complete(the->posted[i].wr_id, WEIR_CQE_OK);
        }
    }
    the->posted_count = kept;
}

/* Each QP executes what is posted on it, until it fails or meets what is slow. */
static void execute(void) {
    bool stops[LONE_QPS] = {false};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < the->posted_count; i++) {
        uint32_t qp = the->posted[i].qp;
        uint32_t length = the->posted[i].length;
        bool bad = length != 0 && length == the->bad_bytes;
        if (the->failed[qp]) {
            complete(the->posted[i].wr_id, WEIR_CQE_FLUSHED);
            continue;
        }
        stops[qp] |= length != 0 && length == the->slow_bytes;
        if (bad && !stops[qp] && the->news_first) {
            stops[qp] = true;
            if (the->news[qp] == NEWS_NONE)
                the->news[qp] = NEWS_DUE;
        }
        if (stops[qp]) {
            the->posted[kept++] = the->posted[i];
        } else if (bad) {
            the->failed[qp] = true;
            complete(the->posted[i].wr_id, the->bad_status);
        } else if (the->posted[i].signaled) {
            complete(the->posted[i].wr_id, WEIR_CQE_OK);
        }
    }
    the->posted_count = kept;
}

/* The receive that the QP takes next, which is its from here on; NONE: no receive is posted. */
static uint32_t recv_take(uint32_t qp) {
    uint32_t at = the->recv_first;
    while (at != the->recv_last && (the->recvs[at % LONE_RECVS].buffer == NULL ||
                                    (the->own_queues && the->recvs[at % LONE_RECVS].qp != qp)))
        at++;
    if (at == the->recv_last)
        return NONE;
    if (at == the->recv_first)
        the->recv_first++;
    return at % LONE_RECVS;
}

static int qp_error(struct weir_qp *qp) {
    uint32_t number = number_of(qp), recv;
    if (the->executes)
        cut_short(number);
    the->failed[number] = true;
    while (the->own_queues && (recv = recv_take(number)) != NONE) {
        the->recvs[recv].buffer = NULL;
        complete(the->recvs[recv].wr_id, WEIR_CQE_FLUSHED);
    }
    return WEIR_OK;
}

static int qp_destroy(struct weir_qp *qp) {
    uint32_t number = number_of(qp);
    if (the->no_destroy || the->connecting_until[number] > the->now_ns)
        return WEIR_EBUSY;
    assert_true(the->made[number]);
    the->made[number] = false;
    the->connecting_until[number] = 0;
    return WEIR_OK;
}

static int post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    *post_out = (struct weir_post){.accepted = count};
    bool failed = the->failed[number_of(qp)];
    for (uint32_t i = 0; i < count; i++) {
        if (failed || the->fail_all != 0) {
            complete(wrs[i].wr_id, failed ? WEIR_CQE_FLUSHED : the->fail_all);
        } else if (the->executes || the->poison != 0) {
            assert_true(the->posted_count < LONE_CQES);
            the->posted[the->posted_count].wr_id = wrs[i].wr_id;
            the->posted[the->posted_count].qp = number_of(qp);
            the->posted[the->posted_count].length = (uint32_t)wrs[i].length;
            the->posted[the->posted_count++].signaled = (wrs[i].flags & WEIR_WR_SIGNALED) != 0;
            the->poisoned |= wrs[i].length == the->poison;
        }
    }
    return WEIR_OK;
}

static int post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                     uint32_t length, uint32_t lkey) {
    (void)device;
    (void)length;
    (void)lkey;
    the->recv_asked++;
    if (the->recv_error != 0 &&
        (the->recv_error_of == 0 || the->recv_asked % the->recv_error_of == 0))
        return the->recv_error;
    assert_true(the->recv_last - the->recv_first < LONE_RECVS);
    the->recvs[the->recv_last % LONE_RECVS].wr_id = wr_id;
    the->recvs[the->recv_last % LONE_RECVS].qp = the->own_queues ? number_of(qp) : 0;
    the->recvs[the->recv_last++ % LONE_RECVS].buffer = buffer;
    return WEIR_OK;
}

static int device_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    (void)device;
    int count = 0;
    if (the->poll_error != 0)
        return the->poll_error;
    if (the->executes)
        execute();
    for (uint32_t i = 0; !the->executes && i < the->posted_count; i++) {
        if (the->poisoned || the->posted[i].signaled)
            complete(the->posted[i].wr_id, the->poisoned ? WEIR_CQE_FLUSHED : WEIR_CQE_OK);
    }
    if (!the->executes)
        the->posted_count = 0;
    the->poisoned = false;
    while (count < max && the->cqe_first != the->cqe_last)
        cqes_out[count++] = the->cqes[the->cqe_first++ % LONE_CQES];
    return count;
}

static int device_events(struct weir_device *device, struct weir_async *events_out, int max) {
    (void)device;
    int count = 0;
    if (the->fails)
        events_out[count++] =
            (struct weir_async){.type = WEIR_ASYNC_DEVICE_FATAL, .qp_tag = UINT32_MAX};
    the->fails = false;
    for (uint32_t i = 0; i < the->qp_count && count < max; i++) {
        if (the->news[i] == NEWS_DUE) {
            the->news[i] = NEWS_TOLD;
            events_out[count++] =
                (struct weir_async){.type = WEIR_ASYNC_QP_FATAL, .qp_tag = the->tags[i]};
            continue;
        }
        if (the->connecting_until[i] == 0 || the->connecting_until[i] > the->now_ns)
            continue;
        the->connecting_until[i] = 0;
        events_out[count++] = (struct weir_async){
            .type = WEIR_ASYNC_CONNECTED, .qp_tag = the->tags[i], .error = the->connect_error};
    }
    return count;
}

static void device_close(struct weir_device *device) {
    (void)device;
    atomic_store(&the->device_gone, true);
}

static int device_let_go(struct weir_device *device) {
    (void)device;
    for (uint32_t i = 0; i < the->qp_count; i++)
        assert_false(the->made[i]);
    the->let_go++;
    return the->let_go_error;
}

static int device_arm(struct weir_device *device) {
    (void)device;
    return WEIR_OK;
}

static void device_disarm(struct weir_device *device) {
    (void)device;
}

static const struct weir_device_ops device_ops = {
    .name = "lone",
    .let_go = device_let_go,
    .query = device_query,
    .close = device_close,
    .mr_register = mr_register,
    .mr_allocate = mr_allocate,
    .mr_release = mr_release,
    .mr_import = mr_import,
    .mr_forget = mr_forget,
    .qp_create = qp_create,
    .qp_connect = qp_connect,
    .qp_error = qp_error,
    .qp_destroy = qp_destroy,
    .post_send = post_send,
    .post_recv = post_recv,
    .poll = device_poll,
    .events = device_events,
    .arm = device_arm,
    .disarm = device_disarm,
};

/* ---- the engine ---- */

static void closed(struct weir_ports *ports, weir_engine *left, void *context) {
    (void)ports;
    (void)context;
    the->closes++;
    the->left = left;
    the->device_closed = left == NULL;
}

static struct lone *open_as(const weir_engine_options *options, bool own_queues) {
    weir_engine_options limits = WEIR_ENGINE_OPTIONS_INIT;
    the = calloc(1, sizeof(*the));
    assert_non_null(the);
    the->own_queues = own_queues;
    the->now_ns = SECOND;
    the->room_bytes = UINT64_MAX;
    limits.transfers_max = 64;
    limits.segments_max = 64;
    limits.peers_max = 8;
    limits.memories_max = limits.remotes_max = 4;
    limits.sq_depth = 16;
    limits.recv_credits = 8;
    limits.notifications_max = 64;
    limits.connect_timeout_ns = SECOND;
    struct weir_ports ports = {.env = {.ops = &env_ops},
                               .control = {&channel_ops, NULL},
                               .wait = {&wait_ops, NULL},
                               .device_ops = &device_ops};
    assert_int_equal(engine_create(options != NULL ? options : &limits, &ports, &the->engine),
                     WEIR_OK);
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

void lone_memories(struct lone *lone, weir_peer peer, uint32_t n, void *bytes, uint64_t length,
                   weir_memory *local_out, weir_remote *remote_out) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    uint32_t descriptor_length;
    struct wire_descriptor theirs = {.memory_id = 1,
                                     .length = length,
                                     .access = WEIR_ACCESS_ALL,
                                     .device = "lone",
                                     .blob_length = 4};
    lone_instance(n, theirs.instance);
    assert_int_equal(
        wire_descriptor_encode(&theirs, descriptor, sizeof(descriptor), &descriptor_length),
        WEIR_OK);
    assert_int_equal(weir_memory_register(lone->engine, bytes, length, 0, local_out), WEIR_OK);
    assert_int_equal(
        weir_memory_import(lone->engine, peer, descriptor, descriptor_length, remote_out), WEIR_OK);
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

/* Completes the receive that was posted first, on a QP. */
static bool arrive(struct lone *lone, uint32_t qp, const struct wire_data *data) {
    uint32_t recv = recv_take(qp);
    if (recv == NONE)
        return false;
    if (data != NULL)
        wire_data_encode(data, lone->recvs[recv].buffer);
    lone->recvs[recv].buffer = NULL;
    *cqe_new() = (struct weir_cqe){.wr_id = lone->recvs[recv].wr_id,
                                   .recv = true,
                                   .byte_length = WIRE_DATA_SIZE,
                                   .has_imm = data == NULL,
                                   .qp_tag = lone->tags[qp]};
    lone_run(lone);
    return true;
}

bool lone_message(struct lone *lone, uint32_t qp, const struct wire_data *data) {
    return arrive(lone, qp, data);
}

bool lone_immediate(struct lone *lone, uint32_t qp) {
    return arrive(lone, qp, NULL);
}

void lone_notify(struct lone *lone, uint64_t number, uint64_t tag) {
    struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 1, .number = number, .tag = tag};
    data.base = number > WINDOW_SIZE ? (number - WINDOW_SIZE + 63) & ~(uint64_t)63 : 0;
    assert_true(lone->qp_count > 0 && lone_message(lone, lone->qp_count - 1, &data));
}

void lone_swallow(struct lone *lone) {
    assert_true(lone->recv_first != lone->recv_last && lone->qp_count > 0);
    lone->recv_first++;
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
