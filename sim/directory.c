/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c: see directory.h.
 *
 * Owns what each node has published, and what each has heard of each other's. Values count up in
 * the life of a node and begin with its number, so that a look can be judged: what a node hears of
 * a name was published under it, is never older than what it heard before (N2), and in the end is
 * what there is. A name that it has and that has changed since is told by an event. */
#include "directory.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { NAMES = 5, KEPT = 6, EVERY = 3 };

enum what { NOTHING, MEMORY, VALUE };

struct value {
    uint32_t node, life, name, count;
};

/* A name of a node, as it is. */
struct fact {
    enum what what;
    uint32_t count; /* changes in this life */
    uint32_t region;
    uint64_t base;
};

/* A node's knowledge of such a fact. */
struct belief {
    uint32_t life, count; /* of the newest value */
    bool given;           /* it has an answer, and was not told of a change since */
    enum what what;       /* that answer; a value is the newest */
    uint64_t handle;      /* of the peer, then */
};

struct kept {
    weir_remote remote; /* id 0: none */
    uint32_t life;      /* of this node */
};

struct sim_directory {
    struct fact facts[SIM_RUN_NODES_MAX][NAMES];
    struct belief beliefs[SIM_RUN_NODES_MAX][SIM_RUN_NODES_MAX][NAMES];
    struct kept kept[SIM_RUN_NODES_MAX][KEPT];
    bool lost[SIM_RUN_NODES_MAX]; /* events */
};

struct sim_directory *directory_open(struct sim_run *run) {
    (void)run;
    return calloc(1, sizeof(struct sim_directory));
}

void directory_close(struct sim_directory *directory) {
    free(directory);
}

static const char *name_of(uint32_t name) {
    static const char *const names[NAMES] = {"a", "bb", "pages", "value", "the longest of them"};
    return names[name];
}

static uint32_t life_of(const struct sim_app *app, uint32_t node) {
    return app->run->world->nodes[node].life;
}

void directory_start(struct sim_app *app) {
    struct sim_directory *directory = app->run->directory;
    uint32_t node = app->node->index;

    if (directory == NULL) {
        return;
    }
    memset(directory->facts[node], 0, sizeof(directory->facts[node]));
    memset(directory->beliefs[node], 0, sizeof(directory->beliefs[node]));
    memset(directory->kept[node], 0, sizeof(directory->kept[node]));
    directory->lost[node] = false;
}

/* ---- publishing -------------------------------------------------------- */

static void changed(struct sim_app *app, uint32_t name, enum what what) {
    static const char *const names[] = {"nothing", "a memory", "a value"};
    struct fact *fact = &app->run->directory->facts[app->node->index][name];

    fact->what = what;
    fact->count++;
    sim_trace(app->run->world, "n%u's \"%s\" is %s, %u", app->node->index, name_of(name),
              names[what], fact->count);
}

static void publish_value(struct sim_app *app, uint32_t name) {
    uint32_t node = app->node->index;
    struct fact *fact = &app->run->directory->facts[node][name];
    struct value value = {node, life_of(app, node), name, fact->count + 1};
    int error = weir_value_publish(app->engine, name_of(name), &value, sizeof(value));

    if (error != 0) {
        sim_violation(app->run->world, "N1 value_publish: %s", weir_error_name(error));
        return;
    }
    changed(app, name, VALUE);
}

static void publish_memory(struct sim_app *app, uint32_t name) {
    uint32_t node = app->node->index, index = (uint32_t)sim_below(app_prng(app), SIM_REGIONS);
    const struct sim_region *region = &app->run->oracle->regions[node][index];
    struct fact *fact = &app->run->directory->facts[node][name];
    uint64_t base = (uint64_t)(uintptr_t)region->base;
    int error;

    if (!region->registered) {
        return;
    }
    error = weir_memory_publish(app->engine, region->memory, name_of(name));
    if (error != 0) {
        sim_violation(app->run->world, "N1 memory_publish: %s", weir_error_name(error));
    }
    if (error != 0 || (fact->what == MEMORY && fact->region == index && fact->base == base)) {
        return;
    }
    fact->region = index;
    fact->base = base;
    changed(app, name, MEMORY);
}

static void withdraw(struct sim_app *app, uint32_t name) {
    struct fact *fact = &app->run->directory->facts[app->node->index][name];
    int error = weir_name_withdraw(app->engine, name_of(name));

    if (error != (fact->what == NOTHING ? WEIR_ESTALE : 0)) {
        sim_violation(app->run->world, "N1 name_withdraw: %s", weir_error_name(error));
    }
    if (fact->what != NOTHING) {
        changed(app, name, NOTHING);
    }
}

void directory_region_gone(struct sim_app *app, uint32_t region) {
    for (uint32_t i = 0; app->run->directory != NULL && i < NAMES; i++) {
        struct fact *fact = &app->run->directory->facts[app->node->index][i];

        if (fact->what == MEMORY && fact->region == region) {
            changed(app, i, NOTHING);
        }
    }
}

/* ---- looking up -------------------------------------------------------- */

/* An answer that the application has: a value; or, NULL, a memory, which does not say of when. */
static void given(struct sim_app *app, uint32_t to, uint32_t name, const struct value *value) {
    struct belief *belief = &app->run->directory->beliefs[app->node->index][to][name];

    belief->given = true;
    belief->what = value != NULL ? VALUE : MEMORY;
    belief->handle = app->peers[to].handle.id;
    if (value != NULL) {
        belief->life = value->life;
        belief->count = value->count;
    }
}

static void judge_value(struct sim_app *app, uint32_t to, uint32_t name,
                        const struct value *value) {
    struct sim_world *world = app->run->world;
    struct belief *belief = &app->run->directory->beliefs[app->node->index][to][name];
    bool now = value->life == life_of(app, to);

    if (value->node != to || value->name != name || value->life == 0 ||
        value->life > life_of(app, to) ||
        (now && value->count > app->run->directory->facts[to][name].count)) {
        sim_violation(world, "N1 n%u hears of n%u's \"%s\" what never was", app->node->index, to,
                      name_of(name));
    }
    if (value->life < belief->life ||
        (value->life == belief->life && value->count < belief->count)) {
        sim_violation(world, "N2 n%u hears of n%u's \"%s\" what was before", app->node->index, to,
                      name_of(name));
    }
}

static bool may_fail(int error) {
    return error == WEIR_ENOTREADY || error == WEIR_EACCESS || error == WEIR_ESTALE ||
           error == WEIR_EAGAIN || error == WEIR_EPEER || error == WEIR_EMFILE ||
           error == WEIR_ENOMEM || error == WEIR_EDEVICE || error == WEIR_ENOTSUP;
}

static int look_up_value(struct sim_app *app, uint32_t to, uint32_t name) {
    struct value value;
    size_t length = sizeof(value);
    int error =
        weir_peer_value(app->engine, app->peers[to].handle, name_of(name), 0, &value, &length);

    sim_trace(app->run->world, "n%u looks n%u's \"%s\" up: %s", app->node->index, to, name_of(name),
              error == 0 ? "a value" : weir_error_name(error));
    if (error == 0) {
        judge_value(app, to, name, &value);
        given(app, to, name, &value);
    } else if (error == WEIR_ENOTREADY) {
        app->run->directory->beliefs[app->node->index][to][name].given = false;
    } else if (error == WEIR_EACCESS) {
        given(app, to, name, NULL);
    } else if (!may_fail(error)) {
        sim_violation(app->run->world, "N5 peer_value: %s", weir_error_name(error));
    }
    return error;
}

static void open_memory(struct sim_app *app, uint32_t to, uint32_t name) {
    struct sim_directory *directory = app->run->directory;
    uint32_t node = app->node->index;
    struct kept *kept = &directory->kept[node][sim_below(app_prng(app), KEPT)];
    uint64_t length = 0;
    int error;

    if (kept->remote.id != 0) {
        error = weir_remote_release(app->engine, kept->remote);
        if (error != 0) {
            sim_violation(app->run->world, "N2 remote_release: %s", weir_error_name(error));
        }
        kept->remote.id = 0;
    }
    error = weir_remote_open(app->engine, app->peers[to].handle, name_of(name), 0, &kept->remote);
    sim_trace(app->run->world, "n%u opens n%u's \"%s\": %s", app->node->index, to, name_of(name),
              weir_error_name(error));
    if (error == WEIR_ENOTREADY) {
        directory->beliefs[node][to][name].given = false;
    }
    if (error != 0) {
        kept->remote.id = 0;
        if (!may_fail(error)) {
            sim_violation(app->run->world, "N5 remote_open: %s", weir_error_name(error));
        }
        return;
    }
    given(app, to, name, NULL);
    error = weir_remote_query(app->engine, kept->remote, &length, NULL);
    if (error != 0 || length != SIM_REGION_BYTES) {
        sim_violation(app->run->world, "N1 an import by name: %s, %llu bytes",
                      weir_error_name(error), (unsigned long long)length);
    }
}

static void list_one(struct sim_app *app, uint32_t to) {
    weir_name_info info = WEIR_NAME_INFO_INIT;
    uint64_t position = sim_below(app_prng(app), NAMES + 2);
    int error = weir_peer_name(app->engine, app->peers[to].handle, &position, 0, &info);
    bool known = error != 0;

    for (uint32_t i = 0; i < NAMES; i++) {
        known |= strcmp(info.name, name_of(i)) == 0;
    }
    if ((error != 0 && error != WEIR_EINVAL && !may_fail(error)) || !known) {
        sim_violation(app->run->world, "N3 peer_name: %s, \"%s\"", weir_error_name(error),
                      info.name);
    }
}

void directory_act(struct sim_app *app) {
    struct sim_prng *prng = app_prng(app);
    uint32_t name, to;

    if (app->run->directory == NULL || sim_below(prng, EVERY) != 0) {
        return;
    }
    name = (uint32_t)sim_below(prng, NAMES);
    to = (uint32_t)sim_below(prng, app->run->world->config.nodes);
    switch (sim_below(prng, 8)) {
    case 0:
        publish_memory(app, name);
        return;
    case 1:
        publish_value(app, name);
        return;
    case 2:
        if (sim_below(prng, 2) == 0) {
            withdraw(app, name);
        }
        return;
    default:
        break;
    }
    if (to == app->node->index || !app_peer_ready(app, to)) {
        return;
    }
    switch (sim_below(prng, 4)) {
    case 0:
        open_memory(app, to, name);
        break;
    case 1:
        list_one(app, to);
        break;
    default:
        (void)look_up_value(app, to, name);
    }
}

/* ---- events ------------------------------------------------------------ */

/* Whether events about that node carry the handle. */
static bool is_of(const struct sim_app *app, uint32_t to, uint64_t handle) {
    return handle != 0 && (app->peers[to].handle.id == handle || app->names[to].same_as == handle);
}

/* A peer that is GONE is to be asked anew, whichever of its handles the application has. */
void directory_event(struct sim_app *app, const weir_event *event) {
    struct sim_directory *directory = app->run->directory;
    uint32_t node = app->node->index;

    if (directory == NULL) {
        return;
    }
    for (uint32_t to = 0; event->type == WEIR_EVENT_GONE && to < SIM_RUN_NODES_MAX; to++) {
        for (uint32_t i = 0; is_of(app, to, event->peer.id) && i < NAMES; i++) {
            directory->beliefs[node][to][i].given = false;
        }
    }
    directory->lost[node] |= event->type == WEIR_EVENT_LOST;
    for (uint32_t i = 0; event->type == WEIR_EVENT_NAME && i < NAMES; i++) {
        for (uint32_t to = 0; weir_name_hash(name_of(i)) == event->value && to < SIM_RUN_NODES_MAX;
             to++) {
            directory->beliefs[node][to][i].given = false;
        }
    }
}

/* ---- the end ----------------------------------------------------------- */

/* Whether a change was told of what the application has. */
static bool is_told(const struct sim_app *app, uint32_t to, uint32_t name) {
    const struct sim_directory *directory = app->run->directory;
    const struct belief *belief = &directory->beliefs[app->node->index][to][name];
    const struct fact *fact = &directory->facts[to][name];
    bool stands = belief->what == fact->what &&
                  (belief->what == MEMORY ||
                   (belief->life == life_of(app, to) && belief->count == fact->count));

    return !belief->given || stands || belief->handle != app->peers[to].handle.id ||
           directory->lost[app->node->index];
}

static bool is_settled(struct sim_app *app, uint32_t to, uint32_t name) {
    const struct fact *fact = &app->run->directory->facts[to][name];
    int error = look_up_value(app, to, name);

    if (fact->what == NOTHING) {
        return error == WEIR_ENOTREADY;
    }
    if (fact->what == MEMORY) {
        return error == WEIR_EACCESS;
    }
    return error == 0 &&
           app->run->directory->beliefs[app->node->index][to][name].count == fact->count;
}

/* Whether there is a session; in_vain_out: there will be none. */
static bool is_connected(const struct sim_app *app, uint32_t to, bool *in_vain_out) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    int error = weir_peer_query(app->engine, app->peers[to].handle, &info);

    *in_vain_out = error != 0 || info.refusal != 0 || app->peers[to].gone;
    return error == 0 && info.connected != 0;
}

/* Whether all changes of its names were told. */
static bool is_all_told(const struct sim_app *app, uint32_t to) {
    for (uint32_t i = 0; i < NAMES; i++) {
        if (!is_told(app, to, i)) {
            return false;
        }
    }
    return true;
}

/* A look at a name asks for others, too, so nothing is looked at before all was told. */
uint32_t directory_unsettled(struct sim_app *app, bool say) {
    uint32_t count = 0;
    bool in_vain, all_told;

    if (app->run->directory == NULL || app->engine == NULL ||
        app->run->world->config.work.cut_kept) {
        return 0;
    }
    for (uint32_t to = 0; to < app->run->world->config.nodes; to++) {
        if (to == app->node->index || app->run->apps[to].engine == NULL || !app->peers[to].open) {
            continue;
        }
        all_told = is_all_told(app, to);
        for (uint32_t i = 0; i < NAMES; i++) {
            bool told = is_told(app, to, i), connected = is_connected(app, to, &in_vain);

            if ((told && (!all_told || is_settled(app, to, i))) ||
                (!connected && (in_vain || say))) {
                continue;
            }
            if (!connected) {
                (void)weir_peer_connect(app->engine, app->peers[to].handle);
            }
            count++;
            if (say) {
                sim_violation(app->run->world, "N2 n%u is not told that n%u's \"%s\" %s",
                              app->node->index, to, name_of(i), told ? "is another" : "changed");
            }
        }
    }
    sim_node_wake(app->node);
    return count;
}
