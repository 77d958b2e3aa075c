/* SPDX-License-Identifier: Apache-2.0 */
/* workload.c: the work of applications, and what they may expect: memory, peers, submits and what
 * comes of them. Other acts are in acts.c.
 *
 * Owns handles. Every call's result is judged here (by what this application did
 * before) or handed to the oracle. A step of a node runs its engine until it is
 * idle, takes what there is to take, then perhaps acts. The file is long because each call, and
 * what may come of it, stand together. */
#include "workload.h"

#include <string.h>

#include "directory.h"
#include "doors.h"
#include "engine.h"
#include "inboxes.h"
#include "mail.h"
#include "net.h"
#include "nic.h"

enum {
    APP_PROGRESS_MAX = 20000, /* progress calls that find work, in one step: more is a livelock */
    APP_STEP_GAP_NS = 50,     /* an engine whose deadline is now is stepped again after this */
    APP_SEGMENTS_MAX = 512,
    LEFT_PAUSE_NS = 1000000,
};

#define LOOKUPS_VERIFIED 8 /* of so many steps, one verifies what is looked up, too: it is long */
/* A connect that nobody answers ends by then, whatever a profile draws. */
#define LEFT_BOUND_NS UINT64_C(2000000000)

uint32_t app_unfinished(const struct sim_app *app) {
    uint32_t count = 0;

    for (uint32_t i = 0; i < app->held_count; i++) {
        count += !app_record(app, app->held[i])->terminal;
    }
    return count + doors_unanswered(app);
}

void app_held_drop(struct sim_app *app, uint32_t i) {
    app->held[i] = app->held[--app->held_count];
}

/* ---- memory and peers -------------------------------------------------- */

/* Zeroed, and described as it was asked for. */
static void region_judge(struct sim_app *app, const struct sim_region *region, bool allocated) {
    void *base = NULL;
    uint64_t length = 0;
    int error = weir_memory_query(app->engine, region->memory, &base, &length);

    if (error != 0 || base != region->base || length != SIM_REGION_BYTES) {
        sim_violation(app->run->world, "S15 n%u: new memory is described wrongly: %s",
                      app->node->index, weir_error_name(error));
    }
    if (allocated && (region->base[0] != 0 ||
                      memcmp(region->base, region->base + 1, SIM_REGION_BYTES - 1) != 0)) {
        sim_violation(app->run->world, "S15 n%u: allocated memory is not zeroed", app->node->index);
    }
}

bool app_region_register(struct sim_app *app, uint32_t index) {
    struct sim_world *world = app->run->world;
    struct sim_region *region = &app->run->oracle->regions[app->node->index][index];
    bool allocate = sim_chance(app_prng(app), world->config.work.allocate);
    void *base = region->own;
    int error;

    if (allocate) {
        error = weir_memory_allocate(app->engine, SIM_REGION_BYTES, WEIR_ACCESS_ALL,
                                     &region->memory, &base);
    } else {
        error = weir_memory_register(app->engine, base, SIM_REGION_BYTES, WEIR_ACCESS_ALL,
                                     &region->memory);
    }
    sim_trace(world, "n%u %s region %u: %s", app->node->index, allocate ? "allocates" : "registers",
              index, weir_error_name(error));
    if (error != 0) {
        return false;
    }
    region->base = base;
    region_judge(app, region, allocate);
    region->descriptor_length = sizeof(region->descriptor);
    error = weir_memory_export(app->engine, region->memory, region->descriptor,
                               &region->descriptor_length);
    if (error != 0) {
        sim_violation(world, "S15 export of good memory: %s", weir_error_name(error));
        return false;
    }
    region->registered = true;
    region->version++;
    return true;
}

void app_peer_drop(struct sim_app *app, uint32_t to) {
    struct app_peer *peer = &app->peers[to];
    int error;

    for (uint32_t i = 0; i < app->held_count; i++) {
        struct sim_transfer *transfer = app_record(app, app->held[i]);

        transfer->peer_closed |= !transfer->terminal && transfer->to == to;
    }
    oracle_stalls_closed(app->run->oracle, app->node->index, peer->handle);
    error = weir_peer_close(app->engine, peer->handle);
    app->names[to] = (struct app_name){0};
    doors_closed(app, peer->handle);
    sim_trace(app->run->world, "n%u closes peer n%u: %s", app->node->index, to,
              weir_error_name(error));
    if (error != 0 && error != WEIR_ESTALE) {
        sim_violation(app->run->world, "H1 peer_close: %s", weir_error_name(error));
    }
    *peer = (struct app_peer){0};
}

bool app_peer_ready(struct sim_app *app, uint32_t to) {
    struct app_peer *peer = &app->peers[to];
    int error;

    if (peer->open && peer->gone) {
        app_peer_drop(app, to);
    }
    if (!peer->open) {
        error = weir_peer_open(app->engine, doors_name(app, to), &peer->handle);
        if (error != 0) {
            if (error != WEIR_EAGAIN) {
                sim_violation(app->run->world, "H1 peer_open: %s", weir_error_name(error));
            }
            return false;
        }
        peer->open = true;
        doors_opened(app, to, peer->handle);
    }
    return true;
}

static bool is_stale(const struct sim_app *app, uint32_t to, uint32_t index) {
    const struct sim_region *region = &app->run->oracle->regions[to][index];

    return !region->registered || app->peers[to].version[index] != region->version;
}

/* Makes sure that the peer's region is imported. An import of a region that is there no more is
 * kept at times (work.stale): the target must refuse it. */
bool app_remote_ready(struct sim_app *app, uint32_t to, uint32_t index) {
    struct app_peer *peer = &app->peers[to];
    const struct sim_region *region = &app->run->oracle->regions[to][index];
    uint32_t life = app->run->world->nodes[to].life;
    int error;

    if (peer->imported[index] && peer->life[index] == life &&
        (peer->version[index] == region->version ||
         sim_chance(app_prng(app), app->run->world->config.work.stale))) {
        return true;
    }
    if (!region->registered) {
        return false;
    }
    if (peer->imported[index]) {
        (void)weir_remote_release(app->engine, peer->remote[index]);
        peer->imported[index] = false;
    }
    error = weir_memory_import(app->engine, peer->handle, region->descriptor,
                               region->descriptor_length, &peer->remote[index]);
    peer->gone |= error == WEIR_ESTALE; /* our handle, or what we know of it, is of another life */
    if (error != 0) {
        bool waits = app->run->world->config.nic[app->node->index].import_waits;
        if (error != WEIR_EAGAIN && error != WEIR_EPEER && error != WEIR_ESTALE &&
            !(waits && (error == WEIR_EMFILE || error == WEIR_ENOMEM))) {
            sim_violation(app->run->world, "H6 import of n%u's memory: %s", to,
                          weir_error_name(error));
        }
        return false;
    }
    peer->imported[index] = true;
    peer->version[index] = region->version;
    peer->life[index] = life;
    return true;
}

/* ---- submitting -------------------------------------------------------- */

static bool segments_fill(struct sim_app *app, struct sim_transfer *transfer, weir_segment *out) {
    transfer->refused = false;
    for (uint32_t i = 0; i < transfer->segment_count; i++) {
        const struct sim_segment *s = &transfer->segments[i];

        if (!app_remote_ready(app, transfer->to, s->remote_region)) {
            return false;
        }
        bool stale = is_stale(app, transfer->to, s->remote_region);

        transfer->memory_released |= stale;
        transfer->refused |= stale && s->length > 0;
        out[i] = (weir_segment){
            .local = app->run->oracle->regions[transfer->from][s->local_region].memory,
            .remote = app->peers[transfer->to].remote[s->remote_region],
            .local_offset = s->local_offset,
            .remote_offset = s->remote_offset,
            .length = s->length};
    }
    return true;
}

/* The record may move while a call blocks: transfer is not used after. */
static int submit_call(struct sim_app *app, const struct sim_transfer *transfer, bool block,
                       const weir_segment *segments, weir_transfer *handle_out) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    uint8_t payload[WEIR_NOTIFY_MAX];
    weir_peer peer = app->peers[transfer->to].handle;

    if (transfer->notify) {
        options.flags |= WEIR_TRANSFER_NOTIFY;
        options.notify_length = oracle_payload(transfer, payload);
        options.notify_payload = payload;
        options.notify_tag = transfer->number;
    }
    options.flags |= transfer->queued ? WEIR_TRANSFER_QUEUE : 0;
    options.flags |= transfer->once ? WEIR_TRANSFER_ONCE : 0;
    options.flags |= block ? WEIR_TRANSFER_BLOCK : 0;
    options.user_data = transfer->number;
    if (transfer->deadline_ns != 0) {
        options.timeout_ns = transfer->deadline_ns - app->run->world->now_ns;
    }
    if (transfer->read) {
        return weir_read(app->engine, peer, segments, transfer->segment_count, &options,
                         handle_out);
    }
    return weir_write(app->engine, peer, segments, transfer->segment_count, &options, handle_out);
}

static void submit_judge(struct sim_app *app, uint32_t number, int error, weir_transfer handle) {
    struct sim_transfer *transfer = app_record(app, number);
    struct sim_world *world = app->run->world;

    sim_trace(world, "n%u submits %s %u to n%u: %u segments, %llu bytes%s%s: %s", app->node->index,
              transfer->read ? "read" : "write", number, transfer->to, transfer->segment_count,
              (unsigned long long)transfer->bytes, transfer->notify ? ", notify" : "",
              transfer->once ? ", once" : "",
              error == 0 ? (handle.id == 0 ? "done" : "ok") : weir_error_name(error));
    if (error != 0) {
        if (error != WEIR_EAGAIN && error != WEIR_ESTALE && error != WEIR_EPEER &&
            error != WEIR_ETOOBIG) {
            sim_violation(world, "S15 good submit %u refused with %s", number,
                          weir_error_name(error));
        }
        app->peers[transfer->to].gone |= error == WEIR_ESTALE || error == WEIR_EPEER;
        oracle_withdraw(app->run->oracle, transfer);
        return;
    }
    if (handle.id == 0) {
        if (transfer->queued) {
            sim_violation(world, "S11 queued transfer %u completed inside its submit", number);
        }
        oracle_status(app->run->oracle, transfer, 0);
        return;
    }
    transfer->handle = handle;
    doors_wanted(app, transfer->to);
    app->held[app->held_count++] = number;
}

void app_submit(struct sim_app *app) {
    const struct sim_workload_config *work = &app->run->world->config.work;
    struct sim_prng *prng = app_prng(app);
    weir_segment segments[APP_SEGMENTS_MAX];
    weir_transfer handle = {0};
    struct sim_transfer *transfer;
    uint32_t others = app->run->world->config.nodes - 1;
    uint32_t ahead = work->ring ? others : 1 + (uint32_t)sim_below(prng, others);
    uint32_t to = (app->node->index + ahead) % (others + 1);
    uint32_t want = (uint32_t)sim_between(
        prng, 1, sim_below(prng, 4) == 0 ? work->segments_max : 1 + work->segments_max / 16);
    bool notify = sim_chance(prng, work->notify);
    bool block;
    uint64_t began;
    uint32_t number;
    int error;

    if (app->run->submits_left == 0 || app_unfinished(app) >= work->concurrent_max ||
        app->held_count == APP_HELD_MAX || !app_peer_ready(app, to)) {
        return;
    }
    if (notify && sim_below(prng, 8) == 0) {
        want = 0;
    }
    app->run->submits_left--;
    transfer = oracle_draft(app->run->oracle, app->node->index, to, sim_chance(prng, work->reads),
                            want > APP_SEGMENTS_MAX ? APP_SEGMENTS_MAX : want, work->bytes_max);
    transfer->notify = notify;
    transfer->once = sim_chance(prng, work->once);
    transfer->queued = sim_chance(prng, work->queued);
    if (sim_chance(prng, work->deadline)) {
        transfer->deadline_ns = app->run->world->now_ns + sim_between(prng, 10000, 20000000);
    }
    number = transfer->number;
    if ((transfer->segment_count == 0 && !notify) || !segments_fill(app, transfer, segments)) {
        oracle_withdraw(app->run->oracle, transfer);
        return;
    }
    block = sim_chance(prng, work->block);
    began = app->run->world->now_ns;
    app->node->may_sleep = block;
    error = submit_call(app, transfer, block, segments, &handle);
    app->node->may_sleep = false;
    if (block && error == WEIR_EAGAIN &&
        app->run->world->now_ns - began < app->run->world->config.engine.backoff_timeout_ns) {
        sim_violation(app->run->world, "S5 submit %u was to wait for room, and did for %llu ns",
                      number, (unsigned long long)(app->run->world->now_ns - began));
    }
    submit_judge(app, number, error, handle);
}

/* ---- taking ------------------------------------------------------------ */

static void take_completions(struct sim_app *app) {
    weir_completion completion;

    while (weir_completion_take(app->engine, &completion) == 0) {
        uint32_t i = 0;

        if ((completion.user_data & SIM_MAIL) != 0) {
            mail_completed(app, &completion);
            continue;
        }
        while (i < app->held_count && app->held[i] != completion.user_data) {
            i++;
        }
        if (i == app->held_count || !app_record(app, app->held[i])->queued) {
            sim_violation(app->run->world, "S11 completion of unknown transfer %llu",
                          (unsigned long long)completion.user_data);
            continue;
        }
        oracle_status(app->run->oracle, app_record(app, app->held[i]), completion.status);
        app_held_drop(app, i);
    }
}

static void take_statuses(struct sim_app *app) {
    uint32_t i = 0;

    while (i < app->held_count) {
        struct sim_transfer *transfer = app_record(app, app->held[i]);
        int status;

        if (transfer->queued) {
            i++;
            continue;
        }
        status = weir_transfer_status(app->engine, transfer->handle);
        if (status == WEIR_EINPROGRESS && !transfer->terminal) {
            i++;
            continue;
        }
        oracle_status(app->run->oracle, transfer, status);
        if (sim_below(app_prng(app), 2) == 0) {
            if (weir_transfer_release(app->engine, transfer->handle) != 0) {
                sim_violation(app->run->world, "S12 release of finished transfer %u fails",
                              transfer->number);
            }
            transfer->released = true;
            app_held_drop(app, i);
        } else {
            i++;
        }
    }
}

static bool handle_opened(const struct sim_app *app, weir_peer handle) {
    for (uint32_t i = 0; i < SIM_RUN_NODES_MAX; i++) {
        if (app->peers[i].open && app->peers[i].handle.id == handle.id) {
            return true;
        }
    }
    return false;
}

/* A notification names the peer that sent it, for as long as that peer is there. One that
 * was met by its connection, and not yet asked who it is, has no address. One that was given up for
 * what it claimed is met anew, and until it has a session a stranger may speak in its name. */
static void sender_judge(struct sim_app *app, const weir_notification *notification) {
    struct sim_world *world = app->run->world;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    const struct sim_transfer *transfer;
    const struct sim_node *from;

    if (world->violation[0] != '\0' ||
        weir_peer_query(app->engine, notification->from, &info) != 0) {
        return;
    }
    transfer = app_record(app, (uint32_t)notification->tag);
    from = &world->nodes[transfer->from];
    if (from->life == transfer->from_life) {
        doors_heard(app, from->index, notification->from);
    }
    if (!sim_node_claims(from) && strcmp(info.address, from->address) != 0 &&
        strcmp(info.address, from->told) != 0 && strcmp(info.address, from->second) != 0 &&
        (info.address[0] != '\0' || handle_opened(app, notification->from))) {
        sim_violation(world, "S9 n%u takes a notification of n%u as one of \"%s\"",
                      app->node->index, from->index, info.address);
    }
}

static uint64_t handler_ns(const struct sim_app *app) {
    return app->run->world->config.work.handler_ns[app->node->index];
}

/* The node that the application has open under this handle; UINT32_MAX: none. */
static uint32_t node_of(const struct sim_app *app, weir_peer handle) {
    uint32_t to = 0;

    while (to < SIM_RUN_NODES_MAX &&
           (!app->peers[to].open || app->peers[to].handle.id != handle.id)) {
        to++;
    }
    return to < SIM_RUN_NODES_MAX ? to : UINT32_MAX;
}

/* An application that has closed its handle of a peer need not hear what its transfers there wait
 * for until they end with ECLOSED. */
static bool is_owed_stalls(const struct sim_app *app, const struct sim_transfer *transfer) {
    return !app->peers[transfer->to].gone && !transfer->peer_closed;
}

/* All transfers and events were looked at, behind calls of progress: stalls are judged. Letters and
 * mail are no transfers that the oracle has, and their completions end stalls. */
static void stalls_judge(struct sim_app *app) {
    uint32_t works = 0, waits = 0;

    for (uint32_t i = 0; i < app->held_count; i++) {
        const struct sim_transfer *transfer = app_record(app, app->held[i]);

        if (!transfer->terminal && transfer->handle.id != 0) {
            works |= 1u << transfer->to;
            waits |= is_owed_stalls(app, transfer) ? 1u << transfer->to : 0;
        }
    }
    if (app->run->oracle->letters > 0 || app->run->mail != NULL) {
        waits = 0;
    }
    oracle_stalls_step(app->run->oracle, app->node->index, works, waits);
}

static void take_events(struct sim_app *app) {
    uint32_t node = app->node->index;
    weir_event event;

    while (weir_event_take(app->engine, &event) == 0) {
        sim_trace(app->run->world, "n%u event %d of %llx %s", app->node->index, (int)event.type,
                  (unsigned long long)event.peer.id,
                  event.error == 0 ? "" : weir_error_name(event.error));
        directory_event(app, &event); /* by the names that the application has before it */
        doors_event(app, &event);
        oracle_event(app->run->oracle, node, node_of(app, event.peer), &event);
        oracle_stalls_event(app->run->oracle, app->node->index,
                            app->run->mail == NULL ? node_of(app, event.peer) : UINT32_MAX, &event);
        mail_event(app, &event);
        for (uint32_t i = 0; event.type == WEIR_EVENT_GONE && i < SIM_RUN_NODES_MAX; i++) {
            app->peers[i].gone |= app->peers[i].open && app->peers[i].handle.id == event.peer.id;
        }
    }
    oracle_events_taken(app->run->oracle, node);
}

static void take_rest(struct sim_app *app) {
    weir_notification notification;

    while (!app->handling && app->run->world->now_ns >= app->take_at_ns &&
           weir_notification_take(app->engine, &notification) == 0) {
        oracle_notification(app->run->oracle, app->node->index, &notification);
        if ((notification.tag & SIM_LETTER) == 0) {
            sender_judge(app, &notification);
        }
        app->handling = handler_ns(app) != 0;
    }
    take_events(app);
    doors_judge_told(app);
}

void app_release_finished(struct sim_app *app) {
    for (uint32_t i = app->held_count; i-- > 0;) {
        struct sim_transfer *transfer = app_record(app, app->held[i]);

        if (transfer->terminal && !transfer->queued) {
            (void)weir_transfer_release(app->engine, transfer->handle);
            app_held_drop(app, i);
        }
    }
}

/* ---- stepping ---------------------------------------------------------- */

/* Its engine is about to be called, and may have heard by now that peers leave. Events of before
 * are taken, so that those which come of the call are known. */
static void see_leavers(struct sim_app *app) {
    uint32_t leavers = sim_net_leavers(app->node);

    if (leavers != 0) {
        take_events(app);
        oracle_leavers(app->run->oracle, app->node->index, leavers);
    }
}

/* Until the engine is idle, or calls_max calls. False: it is idle. */
static bool app_progress(struct sim_app *app, uint32_t calls_max) {
    const char *wrong;
    int did = 1;

    if (calls_max > 0) {
        see_leavers(app);
    }
    app->node->full |= engine_is_full(app->engine);
    for (uint32_t i = 0; did > 0 && i < calls_max; i++) {
        did = weir_engine_progress(app->engine);
        if (i == APP_PROGRESS_MAX) {
            sim_violation(app->run->world, "S18 n%u: progress finds work for ever",
                          app->node->index);
            break;
        }
    }
    if (did < 0 && !(did == WEIR_EDEVICE && sim_nic_let_go(app->node->nic))) {
        sim_violation(app->run->world, "E6 n%u: progress fails with %s", app->node->index,
                      weir_error_name(did));
    }
    wrong = ++app->verified % LOOKUPS_VERIFIED == 0 ? engine_verify(app->engine)
                                                    : engine_verify_work(app->engine);
    if (wrong != NULL) {
        sim_violation(app->run->world, "E1 n%u: %s", app->node->index, wrong);
    }
    return did > 0;
}

/* How many progress calls are made before the application looks at their outcome. */
static uint32_t calls_at_once(const struct sim_app *app, bool hasty) {
    if (app->node->pace_ns != 0 || handler_ns(app) != 0) {
        return 1;
    }
    return hasty ? (uint32_t)sim_below(app_prng(app), 3) : UINT32_MAX;
}

static void nic_judge(struct sim_app *app) {
    struct sim_nic_census census;
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;

    sim_nic_census(app->node->nic, &census);
    if (census.overfills != 0) {
        sim_violation(app->run->world, "S1 n%u posts beyond the granted depth", app->node->index);
    }
    if (census.overloads != 0) {
        sim_violation(app->run->world, "S4 n%u posts beyond its bytes in flight", app->node->index);
    }
    if (weir_engine_query(app->engine, &stats) == 0 && stats.receives_lost > census.swallowed) {
        sim_violation(app->run->world, "T5 n%u counts %llu receives as lost of %u",
                      app->node->index, (unsigned long long)stats.receives_lost, census.swallowed);
    }
    if (census.rnrs != 0 && census.swallowed == 0) {
        sim_violation(app->run->world, "M2 a SEND finds no buffer at n%u", app->node->index);
    }
}

/* The application is at work on a notification that it took. Then it takes the next, and makes
 * no progress before none is left. */
static void app_works(struct sim_app *app, uint64_t most_ns) {
    uint64_t until = app->run->world->now_ns + sim_between(app_prng(app), 1, most_ns);

    app->node->paused_until_ns = until;
    sim_node_wake_at(app->node, until);
}

static bool app_handles_next(struct sim_app *app) {
    if (app->handling) {
        app->handling = false;
        take_rest(app);
    }
    if (app->handling) {
        app_works(app, handler_ns(app));
    }
    return app->handling;
}

/* One that polls one completion a step, and works for a second after each, is as good as away to
 * a peer whose answer is behind many. */
static void app_looks(struct sim_node *node) {
    uint64_t now = node->world->now_ns;
    uint64_t timeout_ns = node->world->config.engine.connect_timeout_ns;
    uint64_t gap_ns = now - node->looked_ns, patience_ns = timeout_ns / 4;

    node->away_ns += gap_ns > timeout_ns / 10 ? gap_ns - timeout_ns / 10 : 0;
    node->absent |= sim_node_unlooked_ns(node) > patience_ns ||
                    (node->nic != NULL && sim_nic_unpolled_ns(node->nic) > patience_ns);
    node->looked_ns = now;
}

/* An application that looks seldom does more at a time. */
static void app_act_some(struct sim_app *app) {
    const struct sim_world *world = app->run->world;

    for (uint32_t i = app->node->pace_ns != 0 ? (uint32_t)sim_below(app_prng(app), 8) : 1; i > 0;
         i--) {
        app_act(app);
        mail_act(app);
        directory_act(app);
    }
    app->act_at_ns = world->now_ns + 1 + sim_below(app_prng(app), world->config.work.think_ns_max);
    if (world->config.work.rest_ns_max != 0 && sim_below(app_prng(app), 32) == 0) {
        app->act_at_ns += sim_below(app_prng(app), world->config.work.rest_ns_max);
    }
}

/* An application that slept with nothing to wait for submits as soon as it wakes, and then works on
 * something else for longer than any time-out: the engine begins to wait while nobody looks. */
static bool app_acts_and_leaves(struct sim_app *app) {
    bool slept = app->slept;

    app->slept = false;
    if (!slept || handler_ns(app) == 0 || !app->run->acting ||
        app->run->world->now_ns < app->act_at_ns || sim_below(app_prng(app), 2) != 0) {
        return false;
    }
    app_act_some(app);
    app_works(app, 2 * app->run->world->config.engine.connect_timeout_ns);
    return true;
}

static void app_step(struct sim_node *node) {
    struct sim_app *app = node->app;
    struct sim_world *world = node->world;
    uint64_t next;
    bool hasty, busy;
    uint32_t calls;

    if (app->engine == NULL) {
        return;
    }
    if (node->sleeps) {
        node->woke_ns = world->now_ns;
        node->sleeps = false;
    }
    if (app_handles_next(app) || app_acts_and_leaves(app)) {
        return;
    }
    app_looks(node);
    hasty = app->run->acting && sim_chance(&world->prng, world->config.work.hasty);
    calls = calls_at_once(app, hasty);
    busy = app_progress(app, calls);
    take_completions(app);
    take_statuses(app);
    take_rest(app);
    if (calls > 0) {
        stalls_judge(app);
    }
    mail_look(app);
    doors_look(app);
    if (app->run->acting && world->now_ns >= app->act_at_ns) {
        see_leavers(app);
        app_act_some(app);
        busy |= node->pace_ns == 0 && app_progress(app, hasty ? 1 : UINT32_MAX);
    }
    nic_judge(app);
    if (app->handling) {
        app_works(app, handler_ns(app));
        return;
    }
    if (node->pace_ns != 0) {
        sim_node_wake_at(node, world->now_ns + node->pace_ns);
        return;
    }
    busy |= !hasty && inboxes_rest(app->engine); /* as in weir_engine_arm */
    next = hasty || busy ? 0 : engine_next_deadline(app->engine);
    app->slept = next == UINT64_MAX;
    node->sleeps = node->paused_until_ns <= world->now_ns;
    if (next < world->now_ns + APP_STEP_GAP_NS) {
        next = world->now_ns + APP_STEP_GAP_NS;
    }
    if (app->take_at_ns > world->now_ns && app->take_at_ns < next) {
        next = app->take_at_ns;
    }
    if (app->run->acting && app->act_at_ns < next) {
        next = app->act_at_ns;
    }
    if (next != UINT64_MAX) {
        sim_node_wake_at(node, next);
    }
}

/* ---- lives ------------------------------------------------------------- */

static weir_engine_options options_of(const struct sim_app *app) {
    const struct sim_engine_config *config = &app->run->world->config.engine;
    uint32_t node = app->node->index;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    options.listen = app->node->address;
    /* A node that tells another address than its own listens at a wildcard. */
    if (app->node->told[0] != '\0' && strncmp(app->node->told, "0.0.0.0:", 8) != 0)
        options.advertise = app->node->told;
    options.transfers_max = config->transfers_max;
    options.segments_max = config->segments_max;
    options.peers_max = 8;
    options.memories_max = 8;
    options.remotes_max = 32;
    options.names_max = 64;
    options.qp_count = config->qp_count[node];
    options.sq_depth = config->sq_depth[node];
    options.chain_max = config->chain_max;
    options.signal_interval = config->signal_interval;
    options.inline_bytes = config->inline_bytes;
    options.poll_budget = config->poll_budget;
    options.recv_credits =
        config->credits_of[node] != 0 ? config->credits_of[node] : config->recv_credits;
    options.notifications_max = config->notifications_max;
    options.connect_timeout_ns = config->connect_timeout_ns;
    options.retransmit_ns = config->retransmit_ns;
    options.teardown_timeout_ns = config->teardown_timeout_ns;
    options.settle_grace_ns = config->settle_grace_ns;
    options.stall_timeout_ns = config->stall_timeout_ns;
    options.watchdog_ns = app->run->oracle->watchdog_ns;
    options.backoff_timeout_ns = config->backoff_timeout_ns;
    options.inflight_bytes_max = config->inflight_bytes_max;
    return options;
}

bool app_start(struct sim_app *app) {
    struct sim_node *node = app->node;
    weir_engine_options options = options_of(app);
    struct sim_nic_census census;
    int error;

    node->pace_ns = node->world->config.work.pace_ns[node->index];
    if (sim_node_boot(node) != 0) {
        return false;
    }
    memset(app->peers, 0, sizeof(app->peers));
    memset(app->known, 0, sizeof(app->known));
    memset(app->names, 0, sizeof(app->names));
    app->held_count = 0;
    app->take_at_ns = 0;
    app->handling = false;
    app->slept = false;
    oracle_stalls_begin(app->run->oracle, node->index);
    node->looked_ns = node->world->now_ns;
    node->away_ns = 0;
    node->app = app;
    node->step = app_step;
    error = engine_create(&options, &node->ports, &app->engine);
    if (error != 0) {
        app->engine = NULL;
        sim_trace(node->world, "n%u: engine_create: %s", node->index, weir_error_name(error));
        sim_nic_census(node->nic, &census);
        if (!node->world->faults || census.qps + census.mrs + census.recvs != 0) {
            sim_violation(node->world,
                          "E5 engine_create fails with %s, leaving %u QPs, %u memories",
                          weir_error_name(error), census.qps, census.mrs);
        }
        sim_node_shutdown(node);
        return false;
    }
    directory_start(app);
    for (uint32_t r = 0; r < SIM_REGIONS; r++) {
        (void)app_region_register(app, r);
    }
    mail_start(app);
    /* One that works for long looks once before its first act: it may sleep until then. */
    sim_node_wake_at(node, handler_ns(app) != 0 ? node->world->now_ns + 1 : app->act_at_ns);
    return true;
}

void app_crash(struct sim_app *app, bool silent) {
    oracle_life_ended(app->run->oracle, app->node->index);
    mail_life_ended(app);
    engine_abandon(app->engine);
    app->engine = NULL;
    app->held_count = 0;
    sim_node_crash(app->node, silent);
}

/* Objects that the device would not let go of while the engine closed go later, while the process
 * does other things: nobody can reach it by its address any more. */
static void finish_left(struct sim_node *node, weir_engine *left) {
    uint64_t began = node->world->now_ns;
    struct sim_nic_census census;

    sim_nic_census(node->nic, &census);
    if (census.mrs > 2) { /* the engine's own */
        sim_violation(node->world, "T3 n%u keeps %u memories of the application after close",
                      node->index, census.mrs - 2);
    }
    sim_net_drop(node, false);
    node->listening = false;
    while (!engine_left_step(left)) {
        if (node->world->now_ns - began > LEFT_BOUND_NS) {
            sim_violation(node->world, "T3 n%u never frees what it has left", node->index);
            engine_abandon(left);
            return;
        }
        node->ports.wait.ops->sleep(node->ports.wait.self, LEFT_PAUSE_NS);
    }
    sim_trace(node->world, "n%u has freed what it had left", node->index);
}

void app_leave(struct sim_app *app) {
    struct sim_node *node = app->node;
    struct sim_world *world = node->world;
    uint64_t began = world->now_ns;
    weir_engine *left;
    struct sim_nic_census census;

    sim_trace(world, "n%u closes its engine", node->index);
    node->stepping = true;
    app->run->oracle->lives_ended = true;
    node->may_sleep = node->closing = true;
    left = engine_end(app->engine);
    app->engine = NULL;
    sim_trace(world, "n%u closed its engine", node->index);
    if (world->now_ns - began > world->config.engine.teardown_timeout_ns + 1000000000) {
        sim_violation(world, "T10 n%u: close took %llu ns", node->index,
                      (unsigned long long)(world->now_ns - began));
    }
    oracle_life_ended(app->run->oracle, node->index);
    mail_life_ended(app);
    app->held_count = 0;
    if (left != NULL) {
        finish_left(node, left);
    }
    node->may_sleep = node->closing = false;
    node->stepping = false;
    sim_nic_census(node->nic, &census);
    if (census.qps + census.mrs + census.recvs != 0) {
        sim_violation(world, "T3 n%u leaves %u QPs, %u memories, %u buffers after close",
                      node->index, census.qps, census.mrs, census.recvs);
    }
    sim_node_shutdown(node);
}
