/* SPDX-License-Identifier: Apache-2.0 */
/* found.c: the look-ups: peers by instance, address and connection, aliases by their peer, imported
 * memory by its peer, pasts by instance, visitors by connection.
 *
 * Owns the lists and hash tables for that (core/groups.h), so that no look-up's cost grows with
 * the number of peers or the size of a table. When a key changes, one function here sets it, or is
 * told of it, and files the member anew. found_verify compares all members with their keys.
 */
#include "found.h"

#include "power.h"

/* The lists or hash chains of one table, and its size. */
struct table {
    struct groups *groups;
    uint32_t group_count, member_count;
};

enum { TABLES = 8 };

static void tables_of(weir_engine *engine, struct table tables[TABLES]) {
    const weir_engine_options *o = &engine->options;
    struct found *f = &engine->found;
    uint32_t hashed = power_of_two(o->peers_max);
    uint32_t visitors = hashed < VISITORS ? VISITORS : hashed;
    const struct table all[TABLES] = {
        {&f->instances, hashed, o->peers_max},
        {&f->addresses, 2 * hashed, o->peers_max},
        {&f->conns, 4 * hashed, FOUND_CONNS * o->peers_max},
        {&f->aliases, o->peers_max, o->peers_max},
        {&f->leavers, 1, o->peers_max},
        {&f->remotes, o->peers_max, o->remotes_max},
        {&f->pasts, hashed, o->peers_max},
        {&f->visitors, visitors + 1, visitors},
    };
    memcpy(tables, all, sizeof(all));
}

size_t found_bytes(const weir_engine_options *options) {
    weir_engine measure = {.options = *options};
    struct table tables[TABLES];
    size_t bytes = 0;
    tables_of(&measure, tables);
    for (uint32_t i = 0; i < TABLES; i++)
        bytes += groups_bytes(tables[i].group_count, tables[i].member_count);
    return bytes;
}

void found_start(weir_engine *engine, void *memory) {
    struct table tables[TABLES];
    uint8_t *at = memory;
    tables_of(engine, tables);
    for (uint32_t i = 0; i < TABLES; i++) {
        groups_init(tables[i].groups, at, tables[i].group_count, tables[i].member_count);
        at += groups_bytes(tables[i].group_count, tables[i].member_count);
    }
    for (uint32_t i = 0; i < engine->visitors_max; i++)
        groups_join(&engine->found.visitors, i, engine->visitors_max);
}

/* ---- hashes ------------------------------------------------------------ */

static uint32_t bucket(const weir_engine *engine, const void *key, size_t length, uint32_t count) {
    return (uint32_t)groups_hash(key, length, engine->found.seed) & (count - 1);
}

static uint32_t instance_bucket(const weir_engine *engine, const struct groups *groups,
                                const uint8_t *instance) {
    return bucket(engine, instance, WIRE_INSTANCE_SIZE, groups->group_count);
}

static uint32_t address_bucket(const weir_engine *engine, const char *address, bool opened) {
    uint32_t half = engine->found.addresses.group_count / 2;
    return bucket(engine, address, strlen(address), half) + (opened ? half : 0);
}

static uint32_t conn_bucket(const weir_engine *engine, uint64_t number) {
    return bucket(engine, &number, sizeof(number), engine->found.conns.group_count);
}

static uint32_t visitor_bucket(const weir_engine *engine, uint64_t conn) {
    uint32_t free = engine->visitors_max;
    return conn == 0 ? free : bucket(engine, &conn, sizeof(conn), free);
}

/* ---- peers ------------------------------------------------------------- */

/* Its instance has become known, or is no more. */
void found_instance(weir_engine *engine, const struct peer *peer) {
    struct groups *groups = &engine->found.instances;
    groups_leave(groups, peer_index(engine, peer));
    if (peer_is_known(peer))
        groups_join(groups, peer_index(engine, peer),
                    instance_bucket(engine, groups, peer->instance));
}

struct peer *peer_by_instance(weir_engine *engine, const uint8_t *instance) {
    const struct groups *groups = &engine->found.instances;
    uint32_t i = groups_first(groups, instance_bucket(engine, groups, instance));
    for (; i != NONE; i = groups_next(groups, i)) {
        if (memcmp(engine->peers[i].instance, instance, WIRE_INSTANCE_SIZE) == 0)
            return &engine->peers[i];
    }
    return NULL;
}

/* Files the peer anew by its address: the address changed, the entry is taken or free, or the
 * application has opened it first or closed it last. */
void found_address(weir_engine *engine, const struct peer *peer) {
    struct found *found = &engine->found;
    uint32_t index = peer_index(engine, peer), half = found->addresses.group_count / 2;
    if (groups_of(&found->addresses, index) < half)
        found->met--;
    groups_leave(&found->addresses, index);
    if (peer->id == 0)
        return;
    groups_join(&found->addresses, index, address_bucket(engine, peer->address, peer->refs > 0));
    found->met += peer->refs == 0;
}

/* The next peer with this address behind `after` (NULL: the first), of those that the application
 * opened or of those that were met; NULL: none. */
struct peer *found_at(weir_engine *engine, const char *address, bool opened,
                      const struct peer *after) {
    const struct groups *groups = &engine->found.addresses;
    uint32_t i = after != NULL ? groups_next(groups, peer_index(engine, after))
                               : groups_first(groups, address_bucket(engine, address, opened));
    for (; i != NONE; i = groups_next(groups, i)) {
        if (strcmp(engine->peers[i].address, address) == 0)
            return &engine->peers[i];
    }
    return NULL;
}

/* known: NONE, it stands for itself. Under tables_lock, as other threads read it. */
void found_alias_set(weir_engine *engine, struct peer *peer, uint32_t known) {
    peer->alias = known;
    if (known == NONE)
        groups_leave(&engine->found.aliases, peer_index(engine, peer));
    else
        groups_join(&engine->found.aliases, peer_index(engine, peer), known);
}

/* The application closed it while it stayed connected, or has it again, or it is gone. */
void found_closed(weir_engine *engine, struct peer *peer, bool closed) {
    peer->closed = closed;
    if (closed)
        groups_join(&engine->found.leavers, peer_index(engine, peer), 0);
    else
        groups_leave(&engine->found.leavers, peer_index(engine, peer));
}

/* ---- connections ------------------------------------------------------- */

static const uint64_t *conn_at(const struct peer *peer, uint32_t which) {
    return which == 0   ? &peer->conn_dialled
           : which == 1 ? &peer->conn_accepted
                        : &peer->conn_before;
}

/* conn: one of the peer's three. */
void found_conn_set(weir_engine *engine, struct peer *peer, uint64_t *conn, uint64_t number) {
    uint32_t which = 0;
    while (conn_at(peer, which) != conn)
        which++;
    uint32_t member = peer_index(engine, peer) * FOUND_CONNS + which;
    *conn = number;
    if (conn == &peer->conn_accepted)
        peer->accepted_aside = false;
    if (conn == &peer->conn_before)
        peer->before_aside = false;
    groups_leave(&engine->found.conns, member);
    if (number != 0)
        groups_join(&engine->found.conns, member, conn_bucket(engine, number));
}

/* The next peer that has this connection; NULL: none. *at is NONE at first, and then the place that
 * the last peer was found at. A peer that has the connection in two places comes twice. */
struct peer *found_by_conn(weir_engine *engine, uint64_t number, uint32_t *at) {
    const struct groups *groups = &engine->found.conns;
    if (number == 0)
        return NULL;
    *at =
        *at != NONE ? groups_next(groups, *at) : groups_first(groups, conn_bucket(engine, number));
    for (; *at != NONE; *at = groups_next(groups, *at)) {
        struct peer *peer = &engine->peers[*at / FOUND_CONNS];
        if (*conn_at(peer, *at % FOUND_CONNS) == number)
            return peer;
    }
    return NULL;
}

/* ---- imported memory, pasts, visitors ------------------------------------ */

/* The imported memory is this party's from here on; 0: no peer's. Under tables_lock. */
void found_remote(weir_engine *engine, struct region_remote *remote, uint64_t party) {
    uint32_t index = (uint32_t)(remote - engine->regions.remotes);
    remote->party = party;
    if (party == 0)
        groups_leave(&engine->found.remotes, index);
    else
        groups_join(&engine->found.remotes, index, (uint32_t)party);
}

/* The past of an instance that was given up; NULL. */
struct past *found_past(const weir_engine *engine, const uint8_t *instance) {
    const struct groups *groups = &engine->found.pasts;
    uint32_t i = groups_first(groups, instance_bucket(engine, groups, instance));
    for (; i != NONE; i = groups_next(groups, i)) {
        if (memcmp(engine->pasts[i].instance, instance, WIRE_INSTANCE_SIZE) == 0)
            return &engine->pasts[i];
    }
    return NULL;
}

void found_past_set(weir_engine *engine, struct past *past, const uint8_t *instance) {
    struct groups *groups = &engine->found.pasts;
    uint32_t index = (uint32_t)(past - engine->pasts);
    memcpy(past->instance, instance, WIRE_INSTANCE_SIZE);
    groups_leave(groups, index);
    groups_join(groups, index, instance_bucket(engine, groups, instance));
}

/* The visitor on this connection; 0: a free entry. NULL: none. */
struct visitor *found_visitor(weir_engine *engine, uint64_t conn) {
    const struct groups *groups = &engine->found.visitors;
    uint32_t i = groups_first(groups, visitor_bucket(engine, conn));
    for (; i != NONE; i = groups_next(groups, i)) {
        if (engine->visitors[i].conn == conn)
            return &engine->visitors[i];
    }
    return NULL;
}

/* The entry is this connection's, and says nothing of it yet; 0: it is free. */
void found_visitor_set(weir_engine *engine, struct visitor *visitor, uint64_t conn) {
    uint32_t index = (uint32_t)(visitor - engine->visitors);
    *visitor = (struct visitor){.conn = conn};
    groups_leave(&engine->found.visitors, index);
    groups_join(&engine->found.visitors, index, visitor_bucket(engine, conn));
}

/* ---- invariants -------------------------------------------------------- */

static const char *verify_peer(const weir_engine *engine, const struct peer *peer) {
    const struct found *f = &engine->found;
    uint32_t index = peer_index(engine, peer);
    uint32_t address = NONE, instance = NONE;
    if (peer->id != 0)
        address = address_bucket(engine, peer->address, peer->refs > 0);
    if (peer_is_known(peer))
        instance = instance_bucket(engine, &f->instances, peer->instance);
    if (groups_of(&f->addresses, index) != address)
        return "found: a peer is not under its address";
    if (groups_of(&f->instances, index) != instance)
        return "found: a peer is not under its instance";
    if (peer->id != 0 && groups_of(&f->aliases, index) != peer->alias)
        return "found: an alias is not under its peer";
    if ((groups_of(&f->leavers, index) == 0) != peer->closed)
        return "found: those that the application closed are others";
    for (uint32_t which = 0; which < FOUND_CONNS; which++) {
        uint64_t number = *conn_at(peer, which);
        uint32_t conn = number == 0 ? NONE : conn_bucket(engine, number);
        if (groups_of(&f->conns, index * FOUND_CONNS + which) != conn)
            return "found: a peer is not under its connection";
    }
    return NULL;
}

static const char *verify_tables(const weir_engine *engine) {
    const struct found *f = &engine->found;
    for (uint32_t i = 0; i < engine->regions.remote_count; i++) {
        const struct region_remote *remote = &engine->regions.remotes[i];
        if (groups_of(&f->remotes, i) != (remote->party == 0 ? NONE : (uint32_t)remote->party))
            return "found: imported memory is not under its peer";
        if (remote->party != 0 &&
            (!remote->live || engine->peers[(uint32_t)remote->party].party != remote->party))
            return "found: imported memory is of an incarnation that is over";
    }
    for (uint32_t i = 0; i < engine->options.peers_max; i++) {
        uint32_t past = groups_of(&f->pasts, i);
        if (past != NONE && past != instance_bucket(engine, &f->pasts, engine->pasts[i].instance))
            return "found: a past is not under its instance";
    }
    for (uint32_t i = 0; i < engine->visitors_max; i++) {
        if (groups_of(&f->visitors, i) != visitor_bucket(engine, engine->visitors[i].conn))
            return "found: a visitor is not under its connection";
    }
    return NULL;
}

const char *found_verify(const weir_engine *engine) {
    struct table tables[TABLES];
    uint32_t met = 0;
    const char *wrong = verify_tables(engine);
    weir_engine *same = (weir_engine *)(uintptr_t)engine; /* only looked at */
    tables_of(same, tables);
    for (uint32_t i = 0; i < TABLES && wrong == NULL; i++)
        wrong = groups_verify(tables[i].groups);
    for (uint32_t i = 0; i < engine->peers_used && wrong == NULL; i++) {
        met += engine->peers[i].id != 0 && engine->peers[i].refs == 0;
        wrong = verify_peer(engine, &engine->peers[i]);
    }
    if (wrong == NULL && met != engine->found.met)
        wrong = "found: peers that were met are miscounted";
    return wrong;
}
