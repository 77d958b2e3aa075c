/* SPDX-License-Identifier: Apache-2.0 */
/* acts.c: the random acts of applications beside submitting: they cancel, release, wait, give
 * memory and peers back under traffic, stop; and what each of these calls may answer. */
#include "directory.h"
#include "doors.h"
#include "nic.h"

#include <string.h>

/* A submit that must be refused, and must post nothing: if it posts all the same, the oracle sees
 * bytes that no transfer owns. */
static void act_bad_submit(struct sim_app *app) {
    struct sim_prng *prng = app_prng(app);
    struct sim_world *world = app->run->world;
    uint32_t others = world->config.nodes - 1;
    uint32_t to = (app->node->index + 1 + (uint32_t)sim_below(prng, others)) % (others + 1);
    weir_segment segment;
    weir_transfer handle = {0};
    int error;

    if (!app_peer_ready(app, to) || !app_remote_ready(app, to, 0)) {
        return;
    }
    segment = (weir_segment){.local = app->run->oracle->regions[app->node->index][0].memory,
                             .remote = app->peers[to].remote[0],
                             .length = 16};
    switch (sim_below(prng, 3)) {
    case 0:
        segment.remote_offset = UINT64_MAX - sim_below(prng, 32);
        break;
    case 1:
        segment.local_offset = SIM_REGION_BYTES - 15;
        break;
    default:
        segment.remote_offset = 1;
        segment.length = UINT64_MAX;
        break;
    }
    if (!app->run->oracle->regions[app->node->index][0].registered) {
        return; /* what has its number may be longer memory */
    }
    error = weir_write(app->engine, app->peers[to].handle, &segment, 1, NULL, &handle);
    if (error == 0) {
        sim_violation(world, "S15 n%u: a segment out of bounds was accepted", app->node->index);
    } else if (error != WEIR_EBOUNDS && error != WEIR_EAGAIN && error != WEIR_ESTALE &&
               error != WEIR_EPEER && error != WEIR_ECLOSED) {
        sim_violation(world, "S15 a segment out of bounds gives %s", weir_error_name(error));
    }
}

/* ---- handles ----------------------------------------------------------- */

static void act_cancel(struct sim_app *app) {
    struct sim_transfer *transfer;
    int error;

    if (app->held_count == 0) {
        return;
    }
    transfer = app_record(app, app->held[sim_below(app_prng(app), app->held_count)]);
    if (transfer->queued && transfer->terminal) {
        return;
    }
    transfer->cancelled |= !transfer->terminal;
    error = weir_transfer_cancel(app->engine, transfer->handle);
    sim_trace(app->run->world, "n%u cancels %u: %s", app->node->index, transfer->number,
              weir_error_name(error));
    if (error != 0 && !(transfer->queued && error == WEIR_ESTALE)) {
        sim_violation(app->run->world, "S13 cancel of a live handle: %s", weir_error_name(error));
    }
}

/* Gives a handle back with the transfer under way, and then uses it. One that is queued
 * still reports its end. */
static void act_early_release(struct sim_app *app) {
    struct sim_world *world = app->run->world;
    struct sim_transfer *transfer;
    uint32_t i;
    int error;

    if (app->held_count == 0) {
        return;
    }
    i = (uint32_t)sim_below(app_prng(app), app->held_count);
    transfer = app_record(app, app->held[i]);
    if (sim_below(app_prng(app), 4) == 0 && !transfer->terminal && !transfer->released) {
        transfer->cancelled = app->run->oracle->cancels = true;
        (void)weir_transfer_cancel(app->engine, transfer->handle);
    }
    error = weir_transfer_release(app->engine, transfer->handle);
    sim_trace(world, "n%u releases %u early: %s", app->node->index, transfer->number,
              weir_error_name(error));
    if (error != (transfer->released ? WEIR_ESTALE : 0) &&
        !(transfer->queued && error == WEIR_ESTALE)) {
        sim_violation(world, "S12 release of a live handle: %s", weir_error_name(error));
    }
    error = weir_transfer_status(app->engine, transfer->handle);
    if (error != WEIR_ESTALE) {
        sim_violation(world, "S12 status after release: %s", weir_error_name(error));
    }
    transfer->released = true;
    if (!transfer->queued) {
        transfer->orphan |= !transfer->terminal;
        app->run->oracle->stalls[app->node->index].blind |= 1u << transfer->to;
        app_held_drop(app, i);
    }
}

/* A flush that said that all is over: of what the node can still see, it is. A handle that was
 * closed under a transfer is another peer's now. */
static void judge_flush(struct sim_app *app, uint32_t to) {
    for (uint32_t i = 0; i < app->held_count; i++) {
        const struct sim_transfer *transfer = app_record(app, app->held[i]);

        if ((to == SIM_RUN_NODES_MAX || (transfer->to == to && !transfer->peer_closed)) &&
            weir_transfer_status(app->engine, transfer->handle) == WEIR_EINPROGRESS) {
            sim_violation(app->run->world, "S20 n%u: flushed, and transfer %u is unfinished",
                          app->node->index, transfer->number);
        }
    }
}

/* Flushes one peer, or all. */
static void act_flush(struct sim_app *app, uint64_t timeout, uint32_t to) {
    struct sim_world *world = app->run->world;
    uint64_t began = world->now_ns;
    bool all = to >= world->config.nodes || !app->peers[to].open;
    int error;

    app->node->may_sleep = true;
    error = all ? weir_engine_flush(app->engine, timeout)
                : weir_peer_flush(app->engine, app->peers[to].handle, timeout);
    app->node->may_sleep = false;
    sim_trace(world, "n%u flushes %s for %llu ns: %s", app->node->index, all ? "all" : "a peer",
              (unsigned long long)(world->now_ns - began),
              error == 0 ? "ok" : weir_error_name(error));
    if (error == WEIR_EINPROGRESS && world->now_ns - began < timeout) {
        sim_violation(world, "S20 n%u: a flush of %llu ns ends after %llu with work unfinished",
                      app->node->index, (unsigned long long)timeout,
                      (unsigned long long)(world->now_ns - began));
    } else if (error == 0) {
        judge_flush(app, all ? SIM_RUN_NODES_MAX : to);
    } else if (error != WEIR_EINPROGRESS) {
        sim_violation(world, "S20 n%u: flush: %s", app->node->index, weir_error_name(error));
    }
}

/* Writes the first half of its own memory to the second, or reads it back, as its own peer: that is
 * over when the call is, whatever becomes of others. */
static void judge_own(struct sim_app *app, weir_peer self, weir_memory memory, weir_remote remote,
                      bool read) {
    struct sim_world *world = app->run->world;
    weir_segment segment = {.local = memory, .remote = remote, .length = APP_OWN_BYTES};
    weir_transfer transfer = {0};
    int error;

    *(read ? &segment.local_offset : &segment.remote_offset) = APP_OWN_BYTES;
    for (uint32_t i = 0; i < APP_OWN_BYTES; i++) {
        app->own[i] = (uint8_t)(world->now_ns + i);
    }
    error = (read ? weir_read : weir_write)(app->engine, self, &segment, 1, NULL, &transfer);
    if (error == WEIR_EAGAIN) {
        return; /* its transfers are all under way, to others */
    }
    if (error == 0) {
        error = weir_transfer_status(app->engine, transfer);
        (void)weir_transfer_release(app->engine, transfer);
    }
    sim_trace(world, "n%u %s itself: %s", app->node->index, read ? "reads" : "writes",
              error == 0 ? "ok" : weir_error_name(error));
    if (error != 0 || memcmp(app->own, app->own + APP_OWN_BYTES, APP_OWN_BYTES) != 0) {
        sim_violation(world, "H16 n%u: it does not reach itself: %s", app->node->index,
                      weir_error_name(error));
    }
}

static void act_self(struct sim_app *app, bool read) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_peer self = {0};
    weir_memory memory = {0};
    weir_remote remote = {0};
    int error;

    if (weir_peer_self(app->engine, &self) != 0 ||
        weir_memory_register(app->engine, app->own, sizeof(app->own), WEIR_ACCESS_ALL, &memory) !=
            0) {
        return; /* no entry, no room, or a device that fails */
    }
    error = weir_memory_export(app->engine, memory, descriptor, &length);
    if (error == 0) {
        error = weir_memory_import(app->engine, self, descriptor, length, &remote);
    }
    if (error == 0) {
        judge_own(app, self, memory, remote, read);
        error = weir_remote_release(app->engine, remote);
    }
    if (error != 0 && error != WEIR_EAGAIN && error != WEIR_EDEVICE) {
        sim_violation(app->run->world, "H16 n%u: its own memory: %s", app->node->index,
                      weir_error_name(error));
    }
    error = weir_memory_release(app->engine, memory);
    if (error != 0 && error != WEIR_EDEVICE && error != WEIR_EINPROGRESS) {
        sim_violation(app->run->world, "H16 n%u: release of its own memory: %s", app->node->index,
                      weir_error_name(error));
    }
}

/* Waits a little for one transfer, or for any news, or for all that was submitted. */
static void act_wait(struct sim_app *app) {
    struct sim_world *world = app->run->world;
    uint64_t timeout = sim_below(app_prng(app), 200000);
    uint64_t began = world->now_ns;
    weir_transfer handle = {0};
    uint32_t number = 0;
    int error;

    if (app->held_count != 0 && sim_below(app_prng(app), 4) != 0) {
        number = app->held[sim_below(app_prng(app), app->held_count)];
        handle = app_record(app, number)->handle;
    }
    if (number == 0 && timeout % 8 == 6) {
        act_self(app, timeout % 16 == 6);
        return;
    }
    if (number == 0 && timeout % 2 == 1) {
        act_flush(app, timeout % 4 == 1 ? 0 : timeout,
                  (uint32_t)(timeout / 4 % (world->config.nodes + 1)));
        return;
    }
    app->node->may_sleep = true;
    error = number != 0 ? weir_transfer_wait(app->engine, handle, timeout)
                        : weir_engine_wait(app->engine, timeout);
    app->node->may_sleep = false;
    sim_trace(world, "n%u waited %llu ns for transfer %u: %s", app->node->index,
              (unsigned long long)(world->now_ns - began), number,
              error == 0 ? "ok" : weir_error_name(error));
    if (error == WEIR_EINPROGRESS) {
        if (world->now_ns - began < timeout) {
            sim_violation(world, "S13 n%u: a wait of %llu ns ends after %llu with nothing",
                          app->node->index, (unsigned long long)timeout,
                          (unsigned long long)(world->now_ns - began));
        }
    } else if (number != 0 && app_record(app, number)->queued) {
        if (error != WEIR_ESTALE) { /* its status is its completion's to tell */
            sim_violation(world, "S11 wait for queued transfer %u: %s", number,
                          weir_error_name(error));
        }
    } else if (number != 0) {
        oracle_status(app->run->oracle, app_record(app, number), error);
    } else if (error != 0 && !(error == WEIR_EDEVICE && sim_nic_let_go(app->node->nic))) {
        sim_violation(world, "E6 n%u: engine_wait: %s", app->node->index, weir_error_name(error));
    }
}

/* ---- memory and peers -------------------------------------------------- */

static bool names_region(const struct sim_transfer *transfer, uint32_t region) {
    for (uint32_t s = 0; s < transfer->segment_count; s++) {
        if (transfer->segments[s].local_region == region) {
            return true;
        }
    }
    return false;
}

/* A transfer that is surely under way and has bytes to move. */
static bool uses_region(const struct sim_app *app, uint32_t region) {
    for (uint32_t i = 0; i < app->held_count; i++) {
        const struct sim_transfer *transfer = app_record(app, app->held[i]);

        /* It may have ended without our having looked. */
        if (transfer->bytes != 0 && names_region(transfer, region) &&
            weir_transfer_status(app->engine, transfer->handle) == WEIR_EINPROGRESS) {
            return true;
        }
    }
    return false;
}

/* A transfer that may be under way: its end was not seen, and maybe never will be. */
static bool may_use_region(const struct sim_app *app, uint32_t region) {
    const struct sim_oracle *oracle = app->run->oracle;

    for (uint32_t i = 1; i <= oracle->count; i++) {
        const struct sim_transfer *transfer = &oracle->transfers[i];

        if (!transfer->terminal && transfer->from == app->node->index &&
            transfer->from_life == app->node->life && names_region(transfer, region)) {
            return true;
        }
    }
    return false;
}

static void act_memory_release(struct sim_app *app) {
    struct sim_world *world = app->run->world;
    uint32_t index = (uint32_t)sim_below(app_prng(app), SIM_REGIONS);
    struct sim_region *region = &app->run->oracle->regions[app->node->index][index];
    bool used;
    int error;

    if (!region->registered) {
        (void)app_region_register(app, index);
        return;
    }
    used = uses_region(app, index);
    error = weir_memory_release(app->engine, region->memory);
    sim_trace(world, "n%u releases region %u: %s", app->node->index, index, weir_error_name(error));
    if (error == WEIR_EBUSY) {
        if (!may_use_region(app, index)) {
            sim_violation(world, "S12 n%u: region %u is busy, and no transfer uses it",
                          app->node->index, index);
        }
        return;
    }
    if (error != 0) {
        sim_violation(world, "S12 release of memory: %s", weir_error_name(error));
        return;
    }
    /* Pieces that were done inside the submit use their memory no more. */
    if (used && !world->config.nic[app->node->index].completes_inline) {
        sim_violation(world, "S13 memory in use by a transfer could be released");
    }
    oracle_region_released(app->run->oracle, app->node->index, index);
    directory_region_gone(app, index);
    if (weir_memory_release(app->engine, region->memory) != WEIR_ESTALE) {
        sim_violation(world, "S12 memory could be released twice");
    }
    if (sim_below(app_prng(app), 2) == 0) { /* anew at once, under the traffic that is left */
        (void)app_region_register(app, index);
    }
}

/* One more reference and one less: nothing happens to what is under way. */
static void peer_reopen(struct sim_app *app, uint32_t to) {
    struct app_peer *peer = &app->peers[to];
    struct sim_world *world = app->run->world;
    weir_peer again = {0};
    int error = weir_peer_open(app->engine, doors_name(app, to), &again);

    sim_trace(world, "n%u opens peer n%u once more: %s%s", app->node->index, to,
              weir_error_name(error), again.id == peer->handle.id ? "" : ", another");
    if (error != 0) {
        if (error != WEIR_EAGAIN) {
            sim_violation(world, "H1 peer_open: %s", weir_error_name(error));
        }
        return;
    }
    if (again.id != peer->handle.id) { /* the first named one that is gone */
        app_peer_drop(app, to);
        peer->open = true;
        peer->handle = again;
        doors_opened(app, to, again);
        return;
    }
    oracle_stalls_closed(app->run->oracle, app->node->index, again);
    error = weir_peer_close(app->engine, again);
    if (error != 0) {
        sim_violation(world, "H1 close of the second reference: %s", weir_error_name(error));
    }
}

static void act_peer_close(struct sim_app *app) {
    uint32_t to = (uint32_t)sim_below(app_prng(app), app->run->world->config.nodes);

    if (!app->peers[to].open) {
        return;
    }
    if (sim_below(app_prng(app), 2) == 0) {
        peer_reopen(app, to);
    } else {
        app_peer_drop(app, to);
    }
}

static void act_pause(struct sim_app *app) {
    uint64_t pause = sim_below(app_prng(app), app->run->world->config.work.pause_ns_max + 1);

    sim_trace(app->run->world, "n%u stops for %llu ns", app->node->index,
              (unsigned long long)pause);
    app->node->paused_until_ns = app->node->stopped_until_ns = app->run->world->now_ns + pause;
}

void app_act(struct sim_app *app) {
    const struct sim_workload_config *work = &app->run->world->config.work;
    struct sim_prng *prng = app_prng(app);

    if (sim_chance(prng, work->cancel)) {
        act_cancel(app);
    }
    if (sim_chance(prng, work->early_release)) {
        act_early_release(app);
    }
    if (sim_chance(prng, work->bad_segment)) {
        act_bad_submit(app);
    }
    if (sim_chance(prng, work->memory_release)) {
        act_memory_release(app);
    }
    if (sim_chance(prng, work->peer_close)) {
        act_peer_close(app);
    }
    if (sim_chance(prng, work->ask)) {
        doors_act(app);
    }
    if (app->node->index >= work->steady && sim_chance(prng, work->pause)) {
        act_pause(app);
    }
    if (sim_chance(prng, work->slow_taker)) {
        app->take_at_ns = app->run->world->now_ns + sim_below(prng, work->pause_ns_max + 1);
    }
    if (sim_chance(prng, work->wait)) {
        act_wait(app);
    }
    app_submit(app);
}
