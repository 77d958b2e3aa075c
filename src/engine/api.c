/* SPDX-License-Identifier: Apache-2.0 */
/* api.c: the public calls that need no module of their own: errors, transfer
 * handles, peers, what the application takes, statistics, devices.
 *
 * They own no state. The status of a transfer is read without the engine: the record's id is
 * read before and after it, so that a release in between is noticed.
 */
#include "agenda.h"
#include "device.h"
#include "found.h"
#include "inflight.h"
#include "layout.h"
#include "look.h"
#include "news.h"
#include "notes.h"
#include "open.h"
#include "own.h"
#include "peer.h"
#include "records.h"
#include "settings.h"
#include "submit.h"
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- errors ------------------------------------------------------------ */

const char *weir_version(void) {
#define TEXT(x)          #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
    return VERSION(WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
#undef VERSION
#undef TEXT
}

static const struct {
    int value;
    weir_class class;
    const char *name;
    const char *text;
} errors[] = {{WEIR_OK, WEIR_CLASS_OK, "WEIR_OK", "success"},
#define ROW(name, value, class, text) {value, class, #name, text},
              WEIR_ERRORS(ROW)
#undef ROW
};

static size_t error_row(int error) {
    size_t i = 0;
    while (i < sizeof(errors) / sizeof(errors[0]) && errors[i].value != error)
        i++;
    return i;
}

const char *weir_strerror(int error) {
    size_t row = error_row(error);
    return row < sizeof(errors) / sizeof(errors[0]) ? errors[row].text : "unknown error";
}

const char *weir_error_name(int error) {
    size_t row = error_row(error);
    return row < sizeof(errors) / sizeof(errors[0]) ? errors[row].name : "WEIR_E?";
}

weir_class weir_error_class(int error) {
    size_t row = error_row(error);
    if (row < sizeof(errors) / sizeof(errors[0]))
        return errors[row].class;
    return error < 0 ? WEIR_CLASS_TRANSFER : WEIR_CLASS_OK;
}

/* ---- transfer handles -------------------------------------------------- */

int weir_transfer_status(weir_engine *engine, weir_transfer handle) {
    return engine != NULL ? record_status(engine, handle.id) : WEIR_EINVAL;
}

/* All pending transfers of a peer wait for the same thing, so it is kept once, at the peer. */
static int pending_waiting_for(weir_engine *engine, uint64_t id) {
    struct transfer *transfer = record_get(engine, id);
    if (transfer == NULL)
        return WEIR_ESTALE;
    own_enter(engine);
    int waiting = (int)atomic_load_explicit(&transfer->waiting, memory_order_relaxed);
    const struct peer *peer = peer_at(engine, transfer->peer);
    if (waiting == WEIR_WAITING_SLOTS && transfer->list == LIST_ROOM)
        waiting = peer->live == NONE ? WEIR_WAITING_CONNECTION : WEIR_WAITING_CREDITS;
    else if (waiting == WEIR_WAITING_SLOTS)
        waiting = (int)peer_waiting_for(peer);
    record_drop_ref(engine, transfer);
    own_leave(engine);
    return waiting;
}

int weir_transfer_waiting_for(weir_engine *engine, weir_transfer handle) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (handle.id == 0)
        return WEIR_WAITING_NOTHING;
    if (engine->forked)
        return WEIR_ECLOSED;
    struct transfer *transfer = record_find(engine, handle.id);
    if (transfer == NULL)
        return WEIR_ESTALE;
    int waiting = (int)atomic_load_explicit(&transfer->waiting, memory_order_acquire);
    if (waiting == WEIR_WAITING_SLOTS)
        return pending_waiting_for(engine, handle.id);
    return record_find(engine, handle.id) != NULL ? waiting : WEIR_ESTALE;
}

const char *weir_waiting_name(int waiting_for) {
    static const char *const names[] = {
        [WEIR_WAITING_NOTHING] = "nothing",       [WEIR_WAITING_ENGINE] = "engine",
        [WEIR_WAITING_CONNECTION] = "connection", [WEIR_WAITING_SLOTS] = "slots",
        [WEIR_WAITING_CREDITS] = "credits",       [WEIR_WAITING_COMPLETIONS] = "completions",
        [WEIR_WAITING_DRAIN] = "drain",           [WEIR_WAITING_SETTLE] = "settle",
        [WEIR_WAITING_INFLIGHT] = "inflight",
    };
    if (waiting_for < 0 || (size_t)waiting_for >= sizeof(names) / sizeof(names[0]))
        return "?";
    return names[waiting_for];
}

const char *weir_event_name(int type) {
    static const char *const names[] = {
        [WEIR_EVENT_UP] = "up",
        [WEIR_EVENT_DEGRADED] = "degraded",
        [WEIR_EVENT_RECOVERED] = "recovered",
        [WEIR_EVENT_GONE] = "gone",
        [WEIR_EVENT_LOST] = "lost",
        [WEIR_EVENT_SAME] = "same",
        [WEIR_EVENT_REFUSED] = "refused",
        [WEIR_EVENT_DEVICE_FAILED] = "device_failed",
        [WEIR_EVENT_STALLED] = "stalled",
        [WEIR_EVENT_RESUMED] = "resumed",
        [WEIR_EVENT_NAME] = "name",
    };
    if (type < WEIR_EVENT_UP || (size_t)type >= sizeof(names) / sizeof(names[0]))
        return "?";
    return names[type];
}

int weir_transfer_cancel(weir_engine *engine, weir_transfer handle) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (handle.id == 0)
        return WEIR_OK;
    if (engine->forked)
        return WEIR_ECLOSED;
    struct transfer *transfer = record_get(engine, handle.id);
    if (transfer == NULL)
        return WEIR_ESTALE;
    submit_cancel(engine, transfer);
    return WEIR_OK;
}

int weir_transfer_release(weir_engine *engine, weir_transfer handle) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (handle.id == 0)
        return WEIR_OK;
    if (engine->forked)
        return WEIR_ECLOSED;
    struct transfer *transfer = record_find(engine, handle.id);
    uint64_t id = handle.id;
    if (transfer == NULL ||
        !atomic_compare_exchange_strong(&transfer->id, &id, handle_next(handle.id)))
        return WEIR_ESTALE;
    record_drop_ref(engine, transfer);
    return WEIR_OK;
}

/* ---- what the application takes ---------------------------------------- */

int weir_completion_take(weir_engine *engine, weir_completion *completion_out) {
    if (engine == NULL || completion_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    const weir_completion *completion = queue_take(&engine->completions);
    if (completion == NULL)
        return WEIR_EAGAIN;
    *completion_out = *completion;
    queue_took(&engine->completions);
    atomic_fetch_sub(&engine->completions_reserved, 1);
    news_room(engine);
    return WEIR_OK;
}

int weir_notification_take(weir_engine *engine, weir_notification *notification_out) {
    if (engine == NULL || notification_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    const weir_notification *notification = queue_take(&engine->notifications);
    if (notification != NULL) {
        memcpy(notification_out, notification,
               offsetof(weir_notification, payload) + notification->length);
        queue_took(&engine->notifications);
    }
    if (atomic_load(&engine->held_some) && !atomic_exchange(&engine->attention, true))
        news_wake(engine);
    return notification != NULL ? WEIR_OK : WEIR_EAGAIN;
}

int weir_event_take(weir_engine *engine, weir_event *event_out) {
    if (engine == NULL || event_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    uint64_t lost = atomic_exchange(&engine->events_lost, 0);
    if (lost > 0) {
        *event_out = (weir_event){.type = WEIR_EVENT_LOST, .value = lost};
        return WEIR_OK;
    }
    const weir_event *event = queue_take(&engine->events);
    if (event == NULL)
        return WEIR_EAGAIN;
    *event_out = *event;
    queue_took(&engine->events);
    return WEIR_OK;
}

/* ---- peers ------------------------------------------------------------- */

int weir_peer_open(weir_engine *engine, const char *address, weir_peer *peer_out) {
    if (engine == NULL || address == NULL || peer_out == NULL || address[0] == '\0')
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    if (strlen(address) >= WEIR_ADDRESS_MAX ||
        engine->ports.control.ops->check(engine->ports.control.self, address) != WEIR_OK)
        return WEIR_EADDRESS;
    own_enter(engine);
    int rc = engine->closing ? WEIR_ECLOSED : peer_open(engine, address, peer_out);
    look_perform(engine);
    own_leave(engine);
    return rc;
}

int weir_peer_self(weir_engine *engine, weir_peer *peer_out) {
    if (engine == NULL || peer_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    struct peer *peer;
    own_enter(engine);
    int rc = peer_self(engine, &peer);
    if (rc == WEIR_OK)
        peer_out->id = peer->id;
    own_leave(engine);
    return rc;
}

int weir_peer_close(weir_engine *engine, weir_peer handle) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    struct peer *peer = peer_find(engine, handle.id);
    int rc = WEIR_ESTALE;
    if (peer != NULL && peer->refs > 0) {
        rc = WEIR_OK;
        peer->refs--;
        engine->worked = true; /* calls that wait for something of it end */
        found_address(engine, peer);
        if (peer->refs == 0)
            peer_closed(engine, peer);
    }
    look_perform(engine);
    own_leave(engine);
    return rc;
}

int weir_peer_connect(weir_engine *engine, weir_peer handle) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    struct peer *peer = peer_find(engine, handle.id);
    int rc = WEIR_ESTALE;
    if (peer != NULL) {
        peer = peer_resolve(engine, peer);
        rc = WEIR_OK;
        if (peer->live == NONE) {
            peer->wanted = true;
            note_want(engine, peer);
            look_perform(engine);
            /* UP may be told before the session is: the peer's data was here first. */
            if (peer->standing.state != STANDING_UP)
                rc = peer->dial != DIAL_NONE || peer->alias != NONE || peer_is_known(peer)
                         ? WEIR_ENOTREADY
                         : WEIR_ECONNECT;
        }
    }
    own_leave(engine);
    return rc;
}

static void query(weir_engine *engine, struct peer *peer, weir_peer_info *out) {
    *out = (weir_peer_info){.size = out->size, .sessions = peer->sessions_up};
    memcpy(out->address, peer->address, sizeof(out->address));
    if (peer->loop && engine->listening)
        memcpy(out->address, engine->reach, sizeof(out->address));
    memcpy(out->instance, peer->instance, sizeof(out->instance));
    out->pending = peer_pending(peer) + peer->room_waits;
    out->peer.id = peer->handle;
    out->refusal = peer_is_known(peer) ? endpoint_reason(&peer->endpoint) : 0;
    if (peer->live == NONE)
        return;
    const struct session *session = &peer->sessions[peer->live];
    out->connected = 1;
    out->qp_count = session->qp_used;
    for (uint32_t i = 0; i < session->qp_used; i++) {
        const struct ledger *ledger = &engine->qps[session->qps[i]].ledger;
        out->sq_depth = ledger->depth;
        out->sq_used += ledger->used;
        if (ledger->high_water > out->sq_high_water)
            out->sq_high_water = ledger->high_water;
    }
}

int weir_peer_query(weir_engine *engine, weir_peer handle, weir_peer_info *info) {
    if (engine == NULL || info == NULL || info->size < sizeof(size_t))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    weir_peer_info full = WEIR_PEER_INFO_INIT;
    own_enter(engine);
    struct peer *peer = peer_find(engine, handle.id);
    if (peer != NULL)
        query(engine, peer_resolve(engine, peer), &full);
    own_leave(engine);
    if (peer == NULL)
        return WEIR_ESTALE;
    full.size = info->size;
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    return WEIR_OK;
}

static int qp_query(weir_engine *engine, const struct peer *peer, size_t index, weir_qp_info *out) {
    uint64_t now = peer->waits_for != WEIR_WAITING_NOTHING ? engine_now(engine) : 0;
    *out = (weir_qp_info){
        .size = out->size,
        .pending = peer_pending(peer) + peer->room_waits,
        .sessions = peer->sessions_up,
        .recoveries = peer->recoveries,
        .replays = peer->replays,
        .admission_waits = peer->slot_waits,
        .admission_wait_ns = peer->slot_wait_ns,
        .inflight_waits = peer->inflight_waits_begun,
        .inflight_wait_ns = peer->inflight_wait_ns,
    };
    if (peer->waits_for == WEIR_WAITING_SLOTS)
        out->admission_wait_ns += now - peer->waits_since_ns;
    else if (peer->waits_for == WEIR_WAITING_INFLIGHT)
        out->inflight_wait_ns += now - peer->waits_since_ns;
    if (peer->live == NONE || peer->loop)
        return index == 0 ? WEIR_OK : WEIR_EINVAL;
    const struct session *session = &peer->sessions[peer->live];
    if (index >= session->qp_used)
        return WEIR_EINVAL;
    const struct ledger *ledger = &engine->qps[session->qps[index]].ledger;
    out->sq_depth = ledger->depth;
    out->sq_used = ledger->used;
    out->sq_high_water = ledger->high_water;
    out->bytes = ledger->bytes;
    out->inflight_bytes = ledger_inflight(ledger);
    out->partial_posts = ledger->partial_posts;
    out->orphans = ledger->orphaned_slots;
    return WEIR_OK;
}

int weir_qp_query(weir_engine *engine, weir_peer handle, size_t index, weir_qp_info *info) {
    if (engine == NULL || info == NULL || info->size < sizeof(size_t))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    weir_qp_info full = WEIR_QP_INFO_INIT;
    own_enter(engine);
    struct peer *peer = peer_find(engine, handle.id);
    int rc = WEIR_ESTALE;
    if (peer != NULL)
        rc = qp_query(engine, peer_resolve(engine, peer), index, &full);
    own_leave(engine);
    if (rc != WEIR_OK)
        return rc;
    full.size = info->size;
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    return WEIR_OK;
}

/* ---- statistics and devices -------------------------------------------- */

/* Adds to stats what the fast way has counted, and copies the counts that are kept elsewhere. */
static void fold_stats(weir_engine *engine) {
    weir_engine_info *stats = &engine->stats;
    stats->transfers_ok += engine->fast.transfers;
    stats->transfers_inline += engine->fast.transfers;
    stats->posts += engine->fast.transfers;
    stats->wrs_posted += engine->fast.segments;
    stats->bytes_written += engine->fast.bytes[WEIR_OP_WRITE];
    stats->bytes_read += engine->fast.bytes[WEIR_OP_READ];
    memset(&engine->fast, 0, sizeof(engine->fast));
    stats->inflight_bytes = inflight_bytes(engine);
    stats->eagain_transfers = atomic_load(&engine->refused[FULL_TRANSFERS]);
    stats->eagain_segments = atomic_load(&engine->refused[FULL_SEGMENTS]);
    stats->eagain_completions = atomic_load(&engine->refused[FULL_COMPLETIONS]);
    stats->submit_eagain =
        stats->eagain_transfers + stats->eagain_segments + stats->eagain_completions;
    stats->completions = engine->polled;
    if (engine->device_ops->tally != NULL) {
        struct weir_device_tally tally = {0};
        engine->device_ops->tally(engine->device, &tally);
        stats->device_refusals = tally.refusals;
        stats->device_nonsense = tally.nonsense;
        stats->device_renewals = tally.renewals;
    }
    inflight_peak(engine);
}

int weir_engine_query(weir_engine *engine, weir_engine_info *info) {
    if (engine == NULL || info == NULL || info->size < sizeof(size_t))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    size_t size = info->size < sizeof(*info) ? info->size : sizeof(*info);
    own_enter(engine);
    fold_stats(engine);
    engine->stats.size = info->size;
    memcpy(info, &engine->stats, size);
    own_leave(engine);
    return WEIR_OK;
}

int weir_engine_address(const weir_engine *engine, char *address_out, size_t address_size) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    if (!engine->listening)
        return WEIR_ENOTSUP;
    size_t length = strlen(engine->reach) + 1;
    if (address_out == NULL || address_size < length)
        return WEIR_ETOOBIG;
    memcpy(address_out, engine->reach, length);
    return WEIR_OK;
}

/* EMEMLOCK, with a note, if an engine of these options would pin more memory than is allowed. */
static void look_for_memlock(const struct weir_device_caps *caps,
                             const weir_engine_options *options, weir_device_info *info) {
    uint64_t needed = engine_pinned_bytes(options);
    if (info->available != WEIR_OK || !caps->pins || needed <= caps->pin_bytes_left)
        return;
    info->available = WEIR_EMEMLOCK;
    snprintf(info->note, sizeof(info->note),
             "RLIMIT_MEMLOCK (ulimit -l) leaves %llu KiB, an engine needs %llu; fewer "
             "WEIR_PEERS_MAX need less",
             (unsigned long long)(caps->pin_bytes_left / 1024),
             (unsigned long long)((needed + 1023) / 1024));
}

/* Of an engine with these options, which are resolved. */
static void describe(const struct weir_device_ops *ops, const struct weir_device_wishes *wishes,
                     const weir_engine_options *options, weir_device_info *out) {
    struct weir_device_caps caps = {0};
    out->available = ops->probe(wishes, &caps);
    snprintf(out->name, sizeof(out->name), "%s", ops->name);
    out->message_bytes_max = caps.message_bytes_max;
    out->inline_bytes_max = caps.inline_bytes_max;
    out->sq_depth_max = caps.sq_depth_max;
    memcpy(out->note, caps.note, sizeof(out->note));
    out->ordered = caps.ordered;
    out->completes_inline = caps.completes_inline;
    out->qps_max = caps.qps_max;
    out->engine_bytes = engine_bytes(options);
    out->address_bytes = open_address_bytes(options, &caps);
    look_for_memlock(&caps, options, out);
}

static int write_device(weir_device_info *full, weir_device_info *info) {
    full->size = info->size;
    memcpy(info, full, info->size < sizeof(*full) ? info->size : sizeof(*full));
    return WEIR_OK;
}

int weir_device_query(size_t index, weir_device_info *info) {
    if (info == NULL || info->size < sizeof(size_t) || index >= device_table_count)
        return WEIR_EINVAL;
    weir_device_info full = WEIR_DEVICE_INFO_INIT;
    weir_engine_options defaults;
    settings_resolve(NULL, getenv, &defaults, NULL); /* its error is weir_setting_query's to tell */
    describe(device_table[index], NULL, &defaults, &full);
    return write_device(&full, info);
}

int weir_device_choose(const weir_engine_options *options, weir_device_info *info) {
    if (info == NULL || info->size < sizeof(size_t) || !settings_size_fits(options))
        return WEIR_EINVAL;
    weir_device_info full = WEIR_DEVICE_INFO_INIT;
    weir_engine_options resolved;
    settings_resolve(options, getenv, &resolved, NULL); /* likewise */
    const struct weir_device_ops *ops;
    struct weir_device_nic nic;
    struct weir_device_wishes wishes;
    full.available = device_choose(resolved.device, &ops, &nic, full.note);
    if (full.available == WEIR_ENODEVICE)
        return WEIR_ENODEVICE;
    if (full.available != WEIR_OK) {
        snprintf(full.name, sizeof(full.name), "%.*s", (int)strcspn(resolved.device, ":"),
                 resolved.device);
        return write_device(&full, info);
    }
    open_wishes(&resolved, &nic, &wishes);
    describe(ops, &wishes, &resolved, &full);
    return write_device(&full, info);
}
