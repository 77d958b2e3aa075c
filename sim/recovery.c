/* SPDX-License-Identifier: Apache-2.0 */
/* recovery.c: see recovery.h.
 *
 * One break a seed: a QP of a live session goes to the error state while 64 transfers (writes,
 * reads, notified ones) are under way. Measured is the time from when the first of the engines
 * retires the session until the last transfer has its status. Each must end well, with its bytes
 * in place, and its notification must come once. */
#include "recovery.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "nic.h"
#include "profile.h"

enum {
    NODES = 2,
    TRANSFERS = 64,
    BYTES = 65536,
    HALF = TRANSFERS * BYTES,
    QPS = 256,
    SLICE_NS = 5000,
    QUIET_NS = 20000000,
    PRIME = 251
};
#define BOUND_NS UINT64_C(20000000000)

struct rec_qp {
    struct weir_qp *qp;
    bool old; /* of the session that breaks */
};

struct rec_node {
    weir_engine *engine;
    weir_memory memory;
    uint8_t *bytes;
    struct rec_qp qps[QPS];
    uint32_t old; /* QPs of the broken session that are there still */
};

struct rec {
    struct sim_world *world;
    struct rec_node nodes[NODES];
    weir_peer peer;
    weir_remote remote;
    weir_transfer transfers[TRANSFERS];
    uint32_t came[TRANSFERS];
    bool under_way;
    uint64_t broke_ns, seen_ns, gone_ns, up_ns, done_ns;
};

static struct rec *the; /* a run is one thread's */

/* ---- the device, watched ------------------------------------------------ */

static struct rec_node *rec_node_of(const struct weir_qp *qp, struct rec_qp **qp_out) {
    for (uint32_t n = 0; n < NODES; n++) {
        for (uint32_t i = 0; i < QPS; i++) {
            *qp_out = &the->nodes[n].qps[i];
            if ((*qp_out)->qp == qp)
                return &the->nodes[n];
        }
    }
    abort();
}

static int rec_create(struct weir_device *device, const struct weir_qp_options *options,
                      struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    int rc = SIM_NIC_OPS.qp_create(device, options, granted_out, qp_out);

    for (uint32_t n = 0; n < NODES && rc == WEIR_OK; n++) {
        struct rec_qp *qp = the->nodes[n].qps;

        if (the->world->nodes[n].nic != device)
            continue;
        while (qp->qp != NULL) {
            if (++qp == the->nodes[n].qps + QPS)
                abort();
        }
        *qp = (struct rec_qp){.qp = *qp_out};
    }
    return rc;
}

static int rec_error(struct weir_qp *qp) {
    struct rec_qp *mine;

    (void)rec_node_of(qp, &mine);
    if (mine->old && the->seen_ns == 0)
        the->seen_ns = the->world->now_ns;
    return SIM_NIC_OPS.qp_error(qp);
}

static int rec_destroy(struct weir_qp *qp) {
    struct rec_qp *mine;
    struct rec_node *node = rec_node_of(qp, &mine);
    int rc = SIM_NIC_OPS.qp_destroy(qp);

    if (rc != WEIR_OK)
        return rc;
    if (mine->old) {
        node->old--;
        the->gone_ns = the->world->now_ns;
    }
    mine->qp = NULL;
    return rc;
}

/* ---- the world ---------------------------------------------------------- */

static bool is_read(uint32_t transfer) {
    return transfer % 4 == 3;
}

static bool is_notified(uint32_t transfer) {
    return transfer % 2 == 1;
}

static void rec_note(void) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    if (the->under_way && the->up_ns == 0 &&
        weir_peer_query(the->nodes[0].engine, the->peer, &info) == WEIR_OK && info.sessions > 1)
        the->up_ns = the->world->now_ns;
    if (!the->under_way || the->done_ns != 0)
        return;
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        if (weir_transfer_status(the->nodes[0].engine, the->transfers[i]) == WEIR_EINPROGRESS)
            return;
    }
    the->done_ns = the->world->now_ns;
}

static void rec_step(struct sim_node *node) {
    weir_engine *engine = the->nodes[node->index].engine;
    weir_notification notification;

    if (engine == NULL)
        return;
    while (weir_engine_progress(engine) > 0)
        continue;
    while (weir_notification_take(engine, &notification) == WEIR_OK)
        the->came[notification.tag % TRANSFERS]++;
    if (node->index == 0)
        rec_note();
    uint64_t next = engine_next_deadline(engine);
    if (next != UINT64_MAX)
        sim_node_wake_at(node, next > node->world->now_ns + 50 ? next : node->world->now_ns + 50);
}

static bool rec_is_connected(void) {
    return weir_peer_connect(the->nodes[0].engine, the->peer) == WEIR_OK;
}

static bool rec_is_done(void) {
    return the->done_ns != 0 && the->nodes[0].old + the->nodes[1].old == 0;
}

/* False, and a violation: never. */
static bool rec_until(bool (*holds)(void), const char *what) {
    uint64_t end_ns = the->world->now_ns + BOUND_NS;

    while (!holds()) {
        if (the->world->now_ns > end_ns)
            sim_violation(the->world, "S9 %s", what);
        if (the->world->violation[0] != '\0')
            return false;
        sim_run_until(the->world, the->world->now_ns + SLICE_NS);
    }
    return true;
}

static void rec_config(const char *profile, uint64_t seed, struct sim_config *config) {
    (void)profile_fill(profile, seed, config);
    config->nodes = NODES;
    for (uint32_t i = 0; i < NODES; i++) {
        struct sim_nic_config *nic = &config->nic[i];

        nic->completes_inline = false;
        nic->import_waits = false;
        nic->grant = SIM_GRANT_EXACT;
        nic->sq_depth_max = 1024;
        nic->message_bytes_max = 1u << 30;
        nic->post_bytes_max = UINT64_MAX;
    }
}

static bool rec_open(struct rec *rec) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    bool good = true;

    for (uint32_t i = 0; i < NODES && good; i++) {
        struct sim_node *node = &rec->world->nodes[i];
        weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
        void *base = NULL;

        options.listen = node->address;
        options.transfers_max = 2 * TRANSFERS;
        options.segments_max = 1024;
        options.peers_max = options.memories_max = options.remotes_max = 8;
        node->step = rec_step;
        good = sim_node_boot(node) == 0;
        if (!good)
            break;
        node->device_ops.qp_create = rec_create;
        node->device_ops.qp_error = rec_error;
        node->device_ops.qp_destroy = rec_destroy;
        good = engine_create(&options, &node->ports, &rec->nodes[i].engine) == WEIR_OK &&
               weir_memory_allocate(rec->nodes[i].engine, 2 * HALF, WEIR_ACCESS_ALL,
                                    &rec->nodes[i].memory, &base) == WEIR_OK;
        rec->nodes[i].bytes = base;
        sim_node_wake(node);
    }
    return good &&
           weir_memory_export(rec->nodes[1].engine, rec->nodes[1].memory, descriptor, &length) ==
               WEIR_OK &&
           weir_peer_open(rec->nodes[0].engine, rec->world->nodes[1].address, &rec->peer) ==
               WEIR_OK &&
           weir_memory_import(rec->nodes[0].engine, rec->peer, descriptor, length, &rec->remote) ==
               WEIR_OK;
}

static void rec_close(struct rec *rec) {
    for (uint32_t i = 0; i < NODES; i++) {
        weir_engine *engine = rec->nodes[i].engine;

        rec->nodes[i].engine = NULL;
        if (engine != NULL)
            weir_engine_close(engine);
        sim_node_shutdown(&rec->world->nodes[i]);
    }
    sim_world_close(rec->world);
}

/* ---- one break ---------------------------------------------------------- */

/* The first half of either memory is written, from or to; the second is read. */
static bool rec_submit(struct rec *rec) {
    bool good = true;

    for (uint32_t i = 0; i < HALF; i++) {
        rec->nodes[0].bytes[i] = (uint8_t)(i % PRIME);
        rec->nodes[1].bytes[HALF + i] = (uint8_t)(i % (PRIME - 2));
    }
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
        uint64_t at = (uint64_t)i * BYTES + (is_read(i) ? HALF : 0);
        weir_segment segment = {rec->nodes[0].memory, rec->remote, at, at, BYTES};

        options.flags = is_notified(i) ? WEIR_TRANSFER_NOTIFY : 0;
        options.notify_tag = is_notified(i) ? i : 0;
        good &= (is_read(i) ? weir_read : weir_write)(rec->nodes[0].engine, rec->peer, &segment, 1,
                                                      &options, &rec->transfers[i]) == WEIR_OK;
    }
    rec->under_way = true;
    return good;
}

static void rec_break_at(struct rec_node *node) {
    for (uint32_t i = 0; i < QPS; i++) {
        if (node->qps[i].qp != NULL && node->qps[i].old) {
            (void)SIM_NIC_OPS.qp_error(node->qps[i].qp);
            return;
        }
    }
}

static void rec_break(struct rec *rec, uint32_t where) {
    for (uint32_t n = 0; n < NODES; n++) {
        for (uint32_t i = 0; i < QPS; i++) {
            rec->nodes[n].qps[i].old = rec->nodes[n].qps[i].qp != NULL;
            rec->nodes[n].old += rec->nodes[n].qps[i].old;
        }
    }
    rec->broke_ns = rec->world->now_ns;
    for (uint32_t n = 0; n < NODES; n++) {
        if (where == RECOVERY_BOTH || where == (n == 0 ? RECOVERY_INITIATOR : RECOVERY_TARGET)) {
            rec_break_at(&rec->nodes[n]);
            sim_node_wake(&rec->world->nodes[n]);
        }
    }
}

static void rec_verify(struct rec *rec) {
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        int status = weir_transfer_status(rec->nodes[0].engine, rec->transfers[i]);

        if (status != WEIR_OK)
            sim_violation(rec->world, "S9 transfer %u ended with %s", i, weir_error_name(status));
        if (rec->came[i] != is_notified(i))
            sim_violation(rec->world, "S9 notification %u came %u times", i, rec->came[i]);
        for (uint32_t at = i * BYTES; at < (i + 1) * BYTES; at++) {
            if (is_read(i) ? rec->nodes[0].bytes[HALF + at] != (uint8_t)(at % (PRIME - 2))
                           : rec->nodes[1].bytes[at] != (uint8_t)(at % PRIME)) {
                sim_violation(rec->world, "S9 transfer %u did not move byte %u", i, at % BYTES);
                break;
            }
        }
    }
}

static bool rec_has_up(void) {
    return the->up_ns != 0;
}

/* The initiator may have its status before the target's engine has looked. */
static bool rec_has_come(void) {
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        if (is_notified(i) && the->came[i] == 0)
            return false;
    }
    return true;
}

void sim_recover(const char *profile, uint64_t seed, FILE *trace, struct sim_recovery *out) {
    struct sim_config config;
    struct rec *rec = calloc(1, sizeof(*rec));

    *out = (struct sim_recovery){.where = (uint32_t)(seed % RECOVERY_WHERE_COUNT)};
    rec_config(profile, seed, &config);
    the = rec;
    if (rec == NULL || (rec->world = sim_world_open(&config, seed, trace)) == NULL)
        abort();
    out->leg_ns = config.net.latency_max_ns + config.step_ns_max;
    for (uint32_t i = 0; i < NODES; i++) {
        out->connect_ns += config.nic[i].connect_ns_max;
        out->drain_ns += config.nic[i].flush_ns_max + config.nic[i].late_ns_max;
    }
    if (!rec_open(rec))
        sim_violation(rec->world, "S9 the world does not open");
    else if (rec_until(rec_is_connected, "no connection") && rec_submit(rec)) {
        sim_node_wake(&rec->world->nodes[0]);
        sim_run_until(rec->world, rec->world->now_ns + sim_below(&rec->world->prng,
                                                                 2 * config.nic[0].latency_max_ns));
        rec_break(rec, out->where);
        if (rec_until(rec_is_done, "not as if nothing had been") &&
            rec_until(rec_has_up, "no new session") &&
            rec_until(rec_has_come, "a notification was lost")) {
            sim_run_until(rec->world, rec->world->now_ns + QUIET_NS); /* for one that came twice */
            rec_verify(rec);
        }
        out->seen_ns = rec->seen_ns - rec->broke_ns;
        out->settled_ns = rec->gone_ns - rec->seen_ns;
        out->up_ns = rec->up_ns - rec->seen_ns;
        out->done_ns = rec->done_ns > rec->seen_ns ? rec->done_ns - rec->seen_ns : 0;
    }
    memcpy(out->violation, rec->world->violation, sizeof(out->violation));
    rec_close(rec);
    free(rec);
}

/* ---- many --------------------------------------------------------------- */

static int rec_compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void rec_print(const char *what, const struct sim_recovery *all, uint64_t count,
                      uint32_t where, size_t offset) {
    uint64_t *values = calloc(count, sizeof(*values));
    uint64_t n = 0;

    if (values == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        if (all[i].where == where)
            memcpy(&values[n++], (const uint8_t *)&all[i] + offset, sizeof(*values));
    }
    qsort(values, n, sizeof(*values), rec_compare);
    if (n > 0)
        printf("    %-34s %9.3f %9.3f %9.3f\n", what, (double)values[(n - 1) / 2] / 1e6,
               (double)values[n - 1 - n / 100] / 1e6, (double)values[n - 1] / 1e6);
    free(values);
}

bool sim_recovery_report(const char *profile, uint64_t first, uint64_t last, FILE *trace) {
    static const char *const WHERE[] = {"the initiator", "the target", "both"};
    uint64_t count = last - first + 1;
    struct sim_recovery *all = calloc(count, sizeof(*all));
    bool good = true;

    if (all == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        sim_recover(profile, first + i, trace, &all[i]);
        if (all[i].violation[0] != '\0') {
            printf("seed %llu: %s\n", (unsigned long long)(first + i), all[i].violation);
            good = false;
        }
    }
    printf("%s: %llu seeds, one break each; virtual ms           p50       p99       max\n",
           profile, (unsigned long long)count);
    for (uint32_t where = 0; where < RECOVERY_WHERE_COUNT; where++) {
        printf("  a QP of %s breaks\n", WHERE[where]);
        rec_print("until an engine retires the session", all, count, where,
                  offsetof(struct sim_recovery, seen_ns));
        rec_print("from then: both sides drained", all, count, where,
                  offsetof(struct sim_recovery, settled_ns));
        rec_print("the new session is up", all, count, where, offsetof(struct sim_recovery, up_ns));
        rec_print("all transfers are done", all, count, where,
                  offsetof(struct sim_recovery, done_ns));
        rec_print("given: a control message, at most", all, count, where,
                  offsetof(struct sim_recovery, leg_ns));
        rec_print("given: connecting both, at most", all, count, where,
                  offsetof(struct sim_recovery, connect_ns));
        rec_print("given: flushing both, at most", all, count, where,
                  offsetof(struct sim_recovery, drain_ns));
    }
    free(all);
    return good;
}
