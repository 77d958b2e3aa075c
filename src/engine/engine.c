/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c: an engine over any ports: made, and ended.
 *
 * Owns the order of set-up, the registration of the engine's message buffers, and the order of
 * closing. The engine's memory is layout.c's, its steps are step.c's. */
#include "engine.h"
#include "agenda.h"
#include "complete.h"
#include "effects.h"
#include "found.h"
#include "inboxes.h"
#include "layout.h"
#include "left.h"
#include "lendings.h"
#include "look.h"
#include "own.h"
#include "settings.h"
#include "sleep.h"
#include "step.h"
#include "streams.h"
#include "tables.h"
#include "trace.h"
#include "transfer.h"

#include <assert.h>
#include <stdio.h>

/* Registers the engine's own message buffers with the device. */
static int register_buffers(weir_engine *e) {
    uint64_t bytes = (uint64_t)e->qps_max * e->recvs_per_qp * MESSAGE_BYTES;
    int rc = e->device_ops->mr_register(e->device, e->recv_bytes, bytes, 0, &e->recv_mr);
    if (rc != WEIR_OK)
        return rc;
    e->scratch = e->send_bytes + bytes;
    e->zeros = e->scratch + MESSAGE_BYTES;
    rc = e->device_ops->mr_register(e->device, e->send_bytes, bytes + SENDS_BESIDE * MESSAGE_BYTES,
                                    0, &e->send_mr);
    if (rc != WEIR_OK)
        e->device_ops->mr_release(e->device, &e->recv_mr);
    return rc;
}

/* The address with the port at which the engine listens, if it has none. */
static int with_port(const weir_engine *e, const char *text, char out[WEIR_ADDRESS_MAX]) {
    const struct weir_control *control = &e->ports.control;
    const char *port = strrchr(e->address, ':'), *colon = strchr(text, ':');
    bool bare_v6 = text[0] != '[' && colon != NULL && colon != strrchr(text, ':');
    int length = snprintf(out, WEIR_ADDRESS_MAX, "%s", text);
    if (length < WEIR_ADDRESS_MAX && control->ops->check(control->self, out) == WEIR_OK)
        return WEIR_OK;
    if (port == NULL)
        return WEIR_EADDRESS;
    length = snprintf(out, WEIR_ADDRESS_MAX, bare_v6 ? "[%s]%s" : "%s%s", text, port);
    return length < WEIR_ADDRESS_MAX ? control->ops->check(control->self, out) : WEIR_EADDRESS;
}

/* Sets what peers are told, and what the application may tell them. Peers do not look up names. */
static int advertise(weir_engine *e, const char *text) {
    const struct weir_control *control = &e->ports.control;
    char address[WEIR_ADDRESS_MAX] = "";
    if (text == NULL) {
        memcpy(e->reach, e->address, sizeof(e->reach));
        if (e->listening && address_dialable(e->address))
            memcpy(e->told, e->address, sizeof(e->told));
        return WEIR_OK;
    }
    int rc = e->listening ? with_port(e, text, address) : WEIR_EADDRESS;
    bool is_numeric = rc == WEIR_OK && control->ops->numeric(control->self, address);
    if (rc != WEIR_OK || (address[0] == '[' && !is_numeric))
        return WEIR_EADDRESS;
    e->advertises = true;
    memcpy(e->reach, address, sizeof(e->reach));
    if (is_numeric)
        memcpy(e->told, address, sizeof(e->told));
    return WEIR_OK;
}

static int listen_at(weir_engine *e, const char *address) {
    if (address == NULL)
        address = "127.0.0.1:0";
    if (strcmp(address, "none") == 0)
        return WEIR_OK;
    int rc = e->ports.control.ops->listen(e->ports.control.self, address, e->address,
                                          sizeof(e->address));
    e->listening = rc == WEIR_OK;
    return rc;
}

/* From here on changes of state are recorded. */
static void record(weir_engine *e) {
    const struct weir_env *env = &e->ports.env;
    const struct weir_recorder_port *port = &e->ports.recorder;
    struct recorder_owner owner = {
        .opened_ns = env->ops->now(env->self), .opened_unix = port->unix_now, .pid = port->pid};
    snprintf(owner.device, sizeof(owner.device), "%s", e->device_ops->name);
    snprintf(owner.address, sizeof(owner.address), "%.*s", RECORDER_NAME - 1, e->address);
    recorder_begin(&e->recorder, port->memory, port->bytes, &owner);
    TRACE(e, open, 0, 0, 0, 0);
}

/* The list that peers are told. */
static void list_devices(weir_engine *e) {
    struct wire_devices *list = &e->devices;
    struct wire_device *own = &list->entries[list->count++];
    own->used = true;
    memcpy(own->name, e->caps.name, sizeof(own->name));
    memcpy(own->fabric, e->caps.fabric, sizeof(own->fabric));
    for (uint32_t i = 0; i < e->ports.other_count; i++) {
        const struct weir_other_device *other = &e->ports.others[i];
        struct wire_device *device = &list->entries[list->count++];
        snprintf(device->name, sizeof(device->name), "%s", other->name);
        memcpy(device->fabric, other->fabric, sizeof(device->fabric));
        device->untried = other->untried;
    }
}

_Static_assert(WEIR_OTHER_DEVICES_MAX + 1 <= WIRE_DEVICES_MAX, "all of them can be told");

int engine_create(const weir_engine_options *options, const struct weir_ports *ports,
                  weir_engine **engine_out) {
    weir_engine_options limits;
    int rc = settings_resolve(options, NULL, &limits, NULL);
    if (rc != WEIR_OK)
        return rc;
    weir_engine *e = ports->env.ops->alloc(ports->env.self, sizeof(*e));
    if (e == NULL)
        return WEIR_ENOMEM;
    e->options = limits;
    e->serial = (limits.flags & WEIR_ENGINE_SERIAL) != 0;
    e->options.transfers_max++; /* the fast way's spare */
    e->ports = *ports;
    e->device_ops = ports->device_ops;
    e->device = ports->device;
    e->device_ops->query(e->device, &e->caps);
    list_devices(e);
    if (e->caps.message_bytes_max < MESSAGE_BYTES) {
        rc = WEIR_ENOTSUP; /* a notification has to fit in a message */
        goto free_engine;
    }
    uint32_t inlined = limits.inline_bytes == WEIR_INLINE_NONE ? 0 : limits.inline_bytes;
    if (limits.inline_bytes != 0 && e->caps.inline_bytes_max > inlined)
        e->caps.inline_bytes_max = inlined;
    e->post_bytes_max =
        e->caps.post_bytes_max < UINT64_MAX ? e->caps.post_bytes_max : UINT64_MAX - 1;
    e->numbers_max = complete_numbers(e);
    e->has_fd = ports->wait.ops->fd(ports->wait.self) >= 0;
    e->qps_max = qps_wanted(&limits);
    if (e->options.sq_depth > e->caps.sq_depth_max)
        e->options.sq_depth = e->caps.sq_depth_max;

    rc = layout_take(e);
    if (rc != WEIR_OK)
        goto free_engine;
    look_begin(e);
    e->steps = 1;
    ports->env.ops->entropy(ports->env.self, e->instance, sizeof(e->instance));
    ports->env.ops->entropy(ports->env.self, &e->found.seed, sizeof(e->found.seed));
    rc = register_buffers(e);
    if (rc != WEIR_OK)
        goto free_arena;
    rc = listen_at(e, limits.listen);
    if (rc == WEIR_OK)
        rc = advertise(e, limits.advertise);
    if (rc != WEIR_OK)
        goto release_buffers;
    if (ports->recorder.memory != NULL)
        record(e);
    e->options.listen = NULL; /* the caller's strings are not kept */
    e->options.device = NULL;
    e->options.advertise = NULL;
    *engine_out = e;
    return WEIR_OK;

release_buffers:
    e->device_ops->mr_release(e->device, &e->send_mr);
    e->device_ops->mr_release(e->device, &e->recv_mr);
free_arena:
    ports->env.ops->free(ports->env.self, e->arena, e->arena_bytes);
free_engine:
    ports->env.ops->free(ports->env.self, e, sizeof(*e));
    return rc;
}

const uint8_t *engine_instance(const weir_engine *engine) {
    return engine->instance;
}

bool engine_has_met(weir_engine *engine, const uint8_t *instance) {
    const struct peer *peer = peer_by_instance(engine, instance);
    return peer != NULL && peer->guarded;
}

/* ---- the end ----------------------------------------------------------- */

static void fail_unheard(weir_engine *engine) {
    step_take_submitted(engine);
    for (uint32_t i = 0; i < engine->peers_used; i++)
        transfer_unpark(engine, &engine->peers[i]);
}

/* The memory that the application registered, imported or had allocated. */
static void release_memory(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->regions.remote_count; i++) {
        struct region_remote *remote = &engine->regions.remotes[i];
        if (remote->live && remote->here == 0)
            engine->device_ops->mr_forget(engine->device, &remote->rmr);
        remote->live = false;
    }
    for (uint32_t i = 0; i < engine->streams_used; i++)
        stream_reset(engine, &engine->streams[i]);
    inboxes_end(engine);
    lendings_end(engine);
    for (uint32_t i = 0; i < engine->regions.local_count; i++) {
        struct region_local *local = &engine->regions.locals[i];
        if (local->live || local->leaving)
            engine->device_ops->mr_release(engine->device, &local->mr);
        local->live = local->leaving = false;
    }
}

weir_engine *engine_end(weir_engine *engine) {
    engine_thread_stop(engine);
    own_enter(engine);
    step_take_submitted(engine);
    engine->closing = true;
    TRACE(engine, close, 0, 0, 0, 0);
    uint64_t deadline = engine_clock(engine) + engine->options.teardown_timeout_ns;
    effects_leave(engine);
    while (!left_nothing(engine) && engine_clock(engine) < deadline) {
        if (engine_step(engine, true) > 0)
            continue;
        uint64_t next = engine_next_deadline(engine), now = engine_clock(engine);
        uint64_t pause = next > now ? next - now : 0;
        const uint64_t most = 1000 * 1000; /* the device is not armed: no completion wakes us */
        engine->ports.wait.ops->sleep(engine->ports.wait.self, pause < most ? pause : most);
        engine->ports.wait.ops->clear(engine->ports.wait.self);
        engine->device_ops->disarm(engine->device);
    }
    fail_unheard(engine);
    engine->recorder.memory = NULL; /* it goes with the ports */
    if (!left_nothing(engine) && engine->device_ops->revoke != NULL)
        engine->device_ops->revoke(engine->device);
    release_memory(engine);
    engine_sleeping_close(engine);
    return engine_left_step(engine) ? NULL : engine;
}

void weir_engine_close(weir_engine *engine) {
    if (engine == NULL)
        return;
    if (engine->forked) {
        engine->on_abandon(&engine->ports);
        return;
    }
    if (engine->watched)
        fork_unwatch(&engine->fork_watch);
    struct weir_ports ports = engine->ports;
    void (*on_close)(struct weir_ports *, weir_engine *, void *) = engine->on_close;
    void *context = engine->on_close_context;
    weir_engine *left = engine_end(engine);
    if (on_close != NULL)
        on_close(&ports, left, context);
}
