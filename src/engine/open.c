/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: an engine over the real ports: a device of the table, TCP, Linux.
 *
 * Owns the order in which ports are opened and closed, and what becomes of
 * an engine in a child of fork(2).
 * It leaves environment variables to settings.c and the devices. */
#include "open.h"

#include "device.h"
#include "engine.h"
#include "layout.h"
#include "left.h"
#include "os.h"
#include "own.h"
#include "recorder.h"
#include "settings.h"
#include "sleep.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void close_device(struct weir_ports *ports) {
    ports->device_ops->close(ports->device);
    os_env_close(&ports->env);
}

/* Memory for the recorder, which the engine opens and closes like a port. */
static int open_recorder(const weir_engine_options *options, struct weir_ports *ports) {
    struct shared shared;
    int rc = shared_open(recorder_bytes(options->peers_max), &shared);
    if (rc == WEIR_OK)
        ports->recorder = (struct weir_recorder_port){.memory = shared.base,
                                                      .bytes = shared.bytes,
                                                      .fd = shared.fd,
                                                      .pid = getpid(),
                                                      .unix_now = (uint64_t)time(NULL)};
    return rc;
}

static void close_recorder(const struct weir_ports *ports) {
    const struct weir_recorder_port *port = &ports->recorder;
    shared_close(&(struct shared){.base = port->memory, .bytes = port->bytes, .fd = port->fd});
}

static void close_ports(struct weir_ports *ports, weir_engine *left, void *context) {
    (void)context;
    wait_close(&ports->wait);
    tcp_close(&ports->control);
    close_recorder(ports);
    if (left != NULL)
        left_to_thread(left, close_device);
    else
        close_device(ports);
}

/* The device is not closed. Other libraries took resources for it, and could only give them back to
 * the kernel, which has them for the parent. */
static void abandon_ports(struct weir_ports *ports) {
    struct weir_env env = ports->env;
    tcp_abandon(&ports->control);
    os_env_abandon(&env);
}

/* Two connections a peer, for when both sides dial, and some of visitors, as far as there are
 * TCP_CONNS_MAX. */
static uint32_t conns_of(const weir_engine_options *options) {
    return options->peers_max < 30000 ? options->peers_max * 2 + 64 : TCP_CONNS_MAX;
}

uint64_t open_address_bytes(const weir_engine_options *options,
                            const struct weir_device_caps *caps) {
    return engine_bytes(options) + tcp_bytes(conns_of(options)) +
           recorder_bytes(options->peers_max) + caps->map_bytes;
}

void open_wishes(const weir_engine_options *options, const struct weir_device_nic *nic,
                 struct weir_device_wishes *wishes_out) {
    *wishes_out = (struct weir_device_wishes){.inline_bytes = options->inline_bytes,
                                              .cq_depth = options->cq_depth,
                                              .qps = options->peers_max * options->qp_count,
                                              .qp_receives = options->recv_credits + CREDIT_BESIDE,
                                              .nic = *nic};
    os_host(options->listen, wishes_out->host);
    if (wishes_out->host[0] == '\0')
        os_host(options->advertise, wishes_out->host);
}

/* The devices that this process could use instead, as far as a glance tells: a probe may load
 * libraries that the application has no use for, and take a second. */
static void look_at_others(struct weir_ports *ports) {
    for (size_t i = 0; i < device_table_count && ports->other_count < WEIR_OTHER_DEVICES_MAX; i++) {
        const struct weir_device_ops *ops = device_table[i];
        struct weir_device_caps caps = {0};
        if (ops == ports->device_ops)
            continue;
        int rc = ops->glance != NULL ? ops->glance(&caps) : WEIR_EAGAIN;
        if (rc != WEIR_OK && rc != WEIR_EAGAIN)
            continue;
        struct weir_other_device *other = &ports->others[ports->other_count++];
        *other = (struct weir_other_device){.name = ops->name, .untried = rc == WEIR_EAGAIN};
        if (rc == WEIR_OK)
            memcpy(other->fabric, caps.fabric, sizeof(other->fabric));
    }
}

static int open_ports(const weir_engine_options *options, struct weir_ports *ports) {
    struct weir_device_nic nic;
    char note[WEIR_DEVICE_NOTE_MAX];
    int rc = device_choose(options->device, &ports->device_ops, &nic, note);
    if (rc == WEIR_OK)
        rc = os_env_open(&ports->env);
    if (rc != WEIR_OK)
        return rc;
    open_wishes(options, &nic, &ports->env.wishes);
    rc = ports->device_ops->open(&ports->env, &ports->device);
    if (rc != WEIR_OK)
        goto close_env;
    look_at_others(ports);
    rc = tcp_open(&ports->env, conns_of(options), &ports->control);
    if (rc != WEIR_OK)
        goto close_device;
    rc = wait_open(&ports->env, &ports->wait);
    if (rc != WEIR_OK)
        goto close_control;
    rc = ports->wait.ops->add(ports->wait.self, ports->control.ops->fd(ports->control.self));
    if (rc == WEIR_OK)
        rc = ports->wait.ops->add(ports->wait.self, ports->device_ops->fd(ports->device));
    if (rc == WEIR_OK)
        rc = open_recorder(options, ports);
    if (rc == WEIR_OK)
        return WEIR_OK;
    wait_close(&ports->wait);
close_control:
    tcp_close(&ports->control);
close_device:
    ports->device_ops->close(ports->device);
close_env:
    os_env_close(&ports->env);
    return rc;
}

/* A call in a child of fork(2) reads the engine, and weir_engine_close frees it there. So it must
 * not be a mapping, which children do not have (OS_ENV_MAP_MIN). */
_Static_assert(sizeof(weir_engine) < OS_ENV_MAP_MIN, "a child of fork(2) has it");

static void in_child(struct fork_watch *watch) {
    weir_engine *engine =
        (weir_engine *)(void *)((uint8_t *)watch - offsetof(weir_engine, fork_watch));
    engine->forked = true;
    engine->serial = false;
    atomic_store(&engine->owner, OWNER_PARENT);
}

int weir_engine_open(const weir_engine_options *options, weir_engine **engine_out) {
    if (engine_out == NULL)
        return WEIR_EINVAL;
    weir_engine_options full;
    int rc = settings_resolve(options, getenv, &full, NULL);
    if (rc != WEIR_OK)
        return rc;
    struct weir_ports ports = {0};
    rc = open_ports(&full, &ports);
    if (rc != WEIR_OK)
        return rc;
    weir_engine *engine;
    rc = engine_create(&full, &ports, &engine);
    if (rc != WEIR_OK) {
        close_ports(&ports, NULL, NULL);
        return rc;
    }
    engine->on_close = close_ports;
    engine->on_abandon = abandon_ports;
    engine->fork_watch.in_child = in_child;
    engine->watched = fork_watch(&engine->fork_watch);
    if (engine->listening && full.advertise == NULL)
        os_reach(engine->address, engine->reach, sizeof(engine->reach));
    rc = engine->watched ? engine_sleeping_open(engine) : WEIR_ENOMEM;
    if (rc != WEIR_OK) {
        weir_engine_close(engine);
        return rc;
    }
    *engine_out = engine;
    return WEIR_OK;
}
