/* SPDX-License-Identifier: Apache-2.0 */
/* nic.c: a model NIC: memory keys, QPs and the device that holds them.
 *
 * Owns what an ibv_context would: the objects of one process on one NIC. Faults are
 * drawn at the places where a device could have them, and their consequences follow
 * (E3). Queues are in nic_queue.c, packets in nic_wire.c. This file is long because it has
 * the whole table of a device. */
#include <stdlib.h>
#include <string.h>

#include "nic_impl.h"

#define IMPORT_SPAN_NS 20000000 /* in which a lack lasts, or none */

enum {
    NIC_BLOB_MAGIC = 0x51,
    NIC_QP_BLOB_SIZE = 24,
    NIC_MR_BLOB_SIZE = 16,
    NIC_CQ_CAPACITY = 16384, /* what caps say; the ring grows, no real CQ would */
    NIC_ASYNCS_MAX = 4096,
};

static bool nic_fault(const struct weir_device *nic, uint32_t rate) {
    return sim_fault(nic->world, rate);
}

static void async_push(struct weir_device *nic, uint32_t type, uint32_t tag, int error) {
    if (nic->async_count == NIC_ASYNCS_MAX) {
        return;
    }
    if (nic->async_count == nic->async_capacity) {
        uint32_t capacity = nic->async_capacity == 0 ? 64 : nic->async_capacity * 2;
        struct weir_async *asyncs = realloc(nic->asyncs, capacity * sizeof(*asyncs));

        if (asyncs == NULL) {
            return;
        }
        nic->asyncs = asyncs;
        nic->async_capacity = capacity;
    }
    nic->asyncs[nic->async_count++] =
        (struct weir_async){.type = type, .qp_tag = tag, .error = error};
    sim_node_wake(nic->node);
}

void nic_async_push(struct weir_device *nic, uint32_t type, uint32_t tag) {
    async_push(nic, type, tag, WEIR_OK);
}

/* ---- memory ------------------------------------------------------------ */

struct nic_mr *nic_mr_find(struct weir_device *nic, uint32_t key) {
    uint32_t index = key & (NIC_MRS_MAX - 1);

    return key != 0 && index < nic->mr_count && nic->mrs[index].key == key ? &nic->mrs[index]
                                                                           : NULL;
}

bool nic_mr_covers_local(struct weir_device *nic, uint32_t key, uint64_t at, uint64_t length) {
    const struct nic_mr *mr = nic_mr_find(nic, key);
    uint64_t base = mr == NULL ? 0 : (uint64_t)(uintptr_t)mr->base;

    return mr != NULL && at >= base && at - base <= mr->length &&
           length <= mr->length - (at - base);
}

/* Remote addresses are key << 32 | offset: nothing of this process's layout gets
 * into what engines tell each other. */
uint8_t *nic_mr_target(struct weir_device *nic, uint32_t key, uint64_t raddr, uint64_t length,
                       uint32_t access) {
    const struct nic_mr *mr = nic_mr_find(nic, key);
    uint64_t offset = raddr - ((uint64_t)key << 32);

    if (mr == NULL || (mr->access & access) == 0 || offset > mr->length ||
        length > mr->length - offset) {
        return NULL;
    }
    return mr->base + offset;
}

static int mr_add(struct weir_device *nic, void *base, uint64_t length, uint32_t access,
                  struct nic_mr **mr_out, struct weir_mr *out) {
    uint32_t index = 0;
    struct nic_mr *mr;

    if (nic_fault(nic, nic->config->mr_fail)) {
        return WEIR_ENOMEM;
    }
    while (index < nic->mr_count && nic->mrs[index].key != 0) {
        index++;
    }
    if (index == NIC_MRS_MAX || length == 0 || length > UINT32_MAX) {
        return WEIR_ENOMEM;
    }
    if (index == nic->mr_count) {
        struct nic_mr *mrs = realloc(nic->mrs, (index + 1) * sizeof(*mrs));

        if (mrs == NULL) {
            return WEIR_ENOMEM;
        }
        nic->mrs = mrs;
        nic->mr_count = index + 1;
    }
    mr = &nic->mrs[index];
    *mr = (struct nic_mr){.key = (++nic->key_next << NIC_KEY_INDEX_BITS) | index,
                          .access = access,
                          .base = base,
                          .length = length};
    nic->census.mrs++;
    *out = (struct weir_mr){.lkey = mr->key, .cookie = index, .base = base, .length = length};
    *mr_out = mr;
    return 0;
}

static int nic_mr_register(struct weir_device *nic, void *base, uint64_t length, uint32_t access,
                           struct weir_mr *mr_out) {
    struct nic_mr *mr;

    if (base == NULL || length == 0 || length > UINT64_MAX - (uint64_t)(uintptr_t)base) {
        return WEIR_EINVAL;
    }
    return mr_add(nic, base, length, access, &mr, mr_out);
}

static void pages_drop(struct nic_pages *pages) {
    if (pages != NULL && --pages->refs == 0) {
        free(pages);
    }
}

static int nic_mr_allocate(struct weir_device *nic, uint64_t length, uint32_t access,
                           struct weir_mr *mr_out) {
    struct nic_pages *pages =
        length == 0 || length > UINT32_MAX ? NULL : calloc(1, sizeof(*pages) + (size_t)length);
    struct nic_mr *mr;
    int error;

    if (pages == NULL) {
        return WEIR_ENOMEM;
    }
    pages->refs = 1;
    error = mr_add(nic, pages->bytes, length, access, &mr, mr_out);
    if (error != 0) {
        pages_drop(pages);
        return error;
    }
    mr->pages = pages;
    return 0;
}

static int nic_mr_release(struct weir_device *nic, const struct weir_mr *weir_mr) {
    struct nic_mr *mr = nic_mr_find(nic, weir_mr->lkey);

    if (mr == NULL) {
        sim_violation(nic->world, "T3 n%u releases memory that it does not have", nic->node->index);
        return WEIR_EINVAL;
    }
    pages_drop(mr->pages);
    *mr = (struct nic_mr){0};
    nic->census.mrs--;
    return 0;
}

static int nic_mr_export(struct weir_device *nic, const struct weir_mr *mr, uint8_t *blob_out,
                         uint32_t *blob_length_out) {
    const struct nic_mr *known = nic_mr_find(nic, mr->lkey);

    if (known == NULL) {
        return WEIR_EINVAL;
    }
    memset(blob_out, 0, NIC_MR_BLOB_SIZE);
    blob_out[0] = NIC_BLOB_MAGIC;
    blob_out[1] = (uint8_t)nic->node->index;
    blob_out[2] = (uint8_t)known->access;
    memcpy(blob_out + 4, &known->key, sizeof(known->key));
    memcpy(blob_out + 8, &known->length, sizeof(known->length));
    *blob_length_out = NIC_MR_BLOB_SIZE;
    return 0;
}

/* The entry of a new import, or NULL. */
static struct nic_import *import_add(struct weir_device *nic, uint32_t remote_key) {
    uint32_t index = 0;

    while (index < nic->import_count && nic->imports[index].key != 0) {
        index++;
    }
    if (index == NIC_MRS_MAX) {
        return NULL;
    }
    if (index == nic->import_count) {
        struct nic_import *imports = realloc(nic->imports, (index + 1) * sizeof(*imports));

        if (imports == NULL) {
            return NULL;
        }
        nic->imports = imports;
        nic->import_count = index + 1;
    }
    nic->imports[index] = (struct nic_import){
        .key = (++nic->key_next << NIC_KEY_INDEX_BITS) | index, .remote_key = remote_key};
    return &nic->imports[index];
}

/* The owner has not answered, or something lacks: at times for one try, at times, but for the
 * owner, for all of them for a while. */
static int import_lack(struct weir_device *nic, uint32_t key) {
    static const int lacks[] = {WEIR_EAGAIN, WEIR_EMFILE, WEIR_ENOMEM, WEIR_EINPROGRESS};
    uint64_t of_try = (uint64_t)key << 32 | ++nic->import_tries;
    uint64_t of_span = (uint64_t)key << 32 | nic->world->now_ns / IMPORT_SPAN_NS;

    if (!nic->config->import_waits) {
        return 0;
    }
    if (sim_splitmix(&of_span) % 4 == 0) {
        return lacks[sim_splitmix(&of_span) % 3];
    }
    return sim_splitmix(&of_try) % 2 == 0 ? 0 : lacks[sim_splitmix(&of_try) % 4];
}

static int nic_mr_import(struct weir_device *nic, const uint8_t *blob, uint32_t blob_length,
                         uint64_t length, uint32_t access, uint32_t wait_ms,
                         struct weir_rmr *rmr_out) {
    struct nic_import *import;
    struct weir_device *there;
    struct nic_mr *mr = NULL;
    uint64_t exported;
    uint32_t key;
    int lack;

    (void)wait_ms; /* time stands still meanwhile */
    if (blob_length != NIC_MR_BLOB_SIZE || blob[0] != NIC_BLOB_MAGIC ||
        blob[1] >= nic->world->config.nodes || (access & ~(uint32_t)blob[2]) != 0) {
        return WEIR_EINVAL;
    }
    memcpy(&key, blob + 4, sizeof(key));
    memcpy(&exported, blob + 8, sizeof(exported));
    if (exported != length || key == 0) {
        return WEIR_EINVAL;
    }
    there = nic->world->nodes[blob[1]].nic;
    if (there != NULL) {
        mr = nic_mr_find(there, key);
    }
    if (nic->config->import_maps && mr == NULL) {
        return WEIR_EDEVICE;
    }
    lack = import_lack(nic, key);
    if (lack != 0) {
        return lack;
    }
    import = import_add(nic, key);
    if (import == NULL) {
        return WEIR_ENOMEM;
    }
    import->node = blob[1];
    import->life = nic->world->nodes[blob[1]].life;
    if (mr != NULL && (mr->access & WEIR_MR_LENT) != 0) {
        import->pages = mr->pages;
        import->pages->refs++;
    }
    *rmr_out = (struct weir_rmr){
        .raddr = (uint64_t)import->key << 32, .rkey = import->key, .cookie = blob[1]};
    return 0;
}

bool nic_import_resolve(const struct weir_device *nic, uint32_t key, uint64_t raddr,
                        uint32_t *key_out, uint64_t *raddr_out) {
    uint32_t index = key & (NIC_MRS_MAX - 1);

    if (key == 0 || index >= nic->import_count || nic->imports[index].key != key) {
        return false;
    }
    *key_out = nic->imports[index].remote_key;
    *raddr_out = raddr - ((uint64_t)key << 32) + ((uint64_t)*key_out << 32);
    return true;
}

/* Released by a process that lives: a dead one's memory is as it was. */
bool nic_import_is_gone(const struct weir_device *nic, uint32_t key) {
    uint32_t index = key & (NIC_MRS_MAX - 1);
    const struct nic_import *import = &nic->imports[index];
    const struct sim_node *there;

    if (!nic->config->sees_release || key == 0 || index >= nic->import_count ||
        import->key != key) {
        return false;
    }
    there = &nic->world->nodes[import->node];
    return there->nic != NULL && there->life == import->life &&
           nic_mr_find(there->nic, import->remote_key) == NULL;
}

static bool nic_mr_is_gone(struct weir_device *nic, const struct weir_rmr *rmr) {
    return nic_import_is_gone(nic, rmr->rkey);
}

static void nic_mr_forget(struct weir_device *nic, const struct weir_rmr *rmr) {
    uint32_t index = rmr->rkey & (NIC_MRS_MAX - 1);

    if (index < nic->import_count && nic->imports[index].key == rmr->rkey) {
        pages_drop(nic->imports[index].pages);
        nic->imports[index] = (struct nic_import){0};
    }
}

static void *nic_import_address(struct weir_device *nic, const struct weir_rmr *rmr,
                                bool *ordered_out) {
    uint32_t index = rmr->rkey & (NIC_MRS_MAX - 1);

    *ordered_out = true; /* one thread does it all */

    return index < nic->import_count && nic->imports[index].key == rmr->rkey &&
                   nic->imports[index].pages != NULL
               ? nic->imports[index].pages->bytes
               : NULL;
}

/* ---- queue pairs ------------------------------------------------------- */

struct weir_qp *nic_find(struct sim_world *world, uint32_t node, uint32_t qpn, uint64_t uid) {
    struct weir_device *nic = world->nodes[node].nic;
    uint32_t index = qpn - NIC_QPN_FIRST;
    struct weir_qp *qp;

    if (nic == NULL || index >= nic->qp_top) {
        return NULL;
    }
    qp = nic->qps[index];
    return qp != NULL && qp->uid == uid ? qp : NULL;
}

static uint32_t depth_granted(struct weir_device *nic, uint32_t wanted) {
    uint32_t granted = wanted < 2 ? 2 : wanted;
    uint32_t power = 2;

    switch (nic->config->grant) {
    case SIM_GRANT_POWER_OF_TWO:
        while (power < granted) {
            power *= 2;
        }
        granted = power;
        break;
    case SIM_GRANT_MORE:
        granted += (uint32_t)sim_below(&nic->world->prng, 7);
        break;
    case SIM_GRANT_LESS:
        granted = (uint32_t)sim_between(&nic->world->prng, 2, granted);
        break;
    default:
        break;
    }
    return granted > nic->config->sq_depth_max ? nic->config->sq_depth_max : granted;
}

static void qp_blob(const struct weir_qp *qp, struct weir_qp_granted *granted) {
    uint8_t *blob = granted->blob;

    memset(blob, 0, NIC_QP_BLOB_SIZE);
    blob[0] = NIC_BLOB_MAGIC;
    blob[1] = (uint8_t)qp->nic->node->index;
    memcpy(blob + 4, &qp->qpn, sizeof(qp->qpn));
    memcpy(blob + 8, &qp->uid, sizeof(qp->uid));
    granted->blob_length = NIC_QP_BLOB_SIZE;
}

uint32_t sim_nic_stray_blob(struct sim_prng *prng, uint32_t node, uint8_t *out) {
    memset(out, 0, NIC_QP_BLOB_SIZE);
    out[0] = NIC_BLOB_MAGIC;
    out[1] = (uint8_t)node;
    for (uint32_t i = 4; i < 16; i++) {
        out[i] = (uint8_t)sim_next(prng);
    }
    return NIC_QP_BLOB_SIZE;
}

static void qp_free(struct weir_qp *qp) {
    nic_ring_free(&qp->rings[0]);
    nic_ring_free(&qp->rings[1]);
    free(qp->entries);
    free(qp->rq.ring);
    free(qp);
}

/* A node that is short of something stays so for a while. */
static bool nic_lacks(struct weir_device *nic) {
    uint64_t now_ns = nic->world->now_ns;

    if (now_ns >= nic->lacks_until_ns && nic_fault(nic, nic->config->lack)) {
        nic->lacks_until_ns = now_ns + sim_between(&nic->world->prng, 1, nic->config->lack_ns_max);
        sim_trace(nic->world, "n%u lacks %s until %llu", nic->node->index,
                  nic->config->lacks_memory ? "memory" : "descriptors",
                  (unsigned long long)nic->lacks_until_ns);
    }
    return now_ns < nic->lacks_until_ns;
}

int sim_nic_lack(const struct weir_device *nic) {
    int lack = nic->config->lacks_memory ? WEIR_ENOMEM : WEIR_EMFILE;

    return nic->world->now_ns < nic->lacks_until_ns ? lack : 0;
}

static int nic_qp_create(struct weir_device *nic, const struct weir_qp_options *options,
                         struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    uint32_t index = 0;
    uint32_t entries = 2;
    struct weir_qp *qp;

    if (nic->let_go) {
        sim_violation(nic->world, "W7 n%u makes a QP of a device that it let go of",
                      nic->node->index);
    }
    if (nic->node->closing) {
        sim_violation(nic->world, "T10 n%u makes a QP while it closes", nic->node->index);
    }
    if (nic->failed) {
        return WEIR_EDEVICE;
    }
    if (nic_fault(nic, nic->config->create_fail) || (nic->config->lacks_memory && nic_lacks(nic))) {
        return WEIR_ENOMEM;
    }
    if (nic->config->qps_max != 0 && nic->census.qps >= nic->config->qps_max) {
        return WEIR_EFULL;
    }
    while (index < NIC_QPS_MAX && nic->qps[index] != NULL) {
        index++;
    }
    if (index == NIC_QPS_MAX || options->rq_depth > nic->config->rq_depth_max) {
        return WEIR_ENOMEM;
    }
    qp = nic_calloc(1, sizeof(*qp));
    qp->nic = nic;
    qp->uid = ++nic->world->qp_uid;
    qp->qpn = NIC_QPN_FIRST + index;
    qp->tag = options->tag;
    qp->recv_bytes_max = options->recv_bytes_max;
    qp->sq_depth = depth_granted(nic, options->sq_depth);
    while (entries < qp->sq_depth * (nic->config->ordered ? 1 : 4)) {
        entries *= 2;
    }
    qp->entries = nic_calloc(entries, sizeof(*qp->entries));
    qp->entry_mask = entries - 1;
    nic_recvs_init(&qp->rq, options->rq_depth);
    nic_rings_init(qp);
    if (nic->config->destroy_fails_max != 0) {
        qp->destroy_fails =
            (uint32_t)sim_below(&nic->world->prng, nic->config->destroy_fails_max + 1);
    }
    nic->qps[index] = qp;
    if (index >= nic->qp_top) {
        nic->qp_top = index + 1;
    }
    nic->census.qps++;
    *granted_out =
        (struct weir_qp_granted){.sq_depth = qp->sq_depth, .rq_depth = options->rq_depth};
    qp_blob(qp, granted_out);
    *qp_out = qp;
    sim_trace(nic->world, "n%u creates qp %u, depth %u", nic->node->index, qp->qpn, qp->sq_depth);
    return 0;
}

/* With no_blame connections are made over the network that the data takes. */
static bool is_cut_off(const struct weir_qp *qp) {
    const struct sim_world *world = qp->nic->world;
    uint32_t here = qp->nic->node->index;

    return qp->nic->config->no_blame &&
           (world->data_cut[here][qp->remote_node] || world->data_cut[qp->remote_node][here]);
}

static void connected_event(struct sim_world *world, const struct sim_event *event) {
    struct weir_qp *qp = nic_find(world, event->node, event->b, event->a);

    if (qp == NULL) {
        return;
    }
    qp->connecting = false;
    if (is_cut_off(qp)) {
        async_push(qp->nic, WEIR_ASYNC_CONNECTED, qp->tag, WEIR_EPEER);
        return;
    }
    if (qp->state == SIM_QP_INIT) {
        qp->state = SIM_QP_RTS;
    }
    nic_async_push(qp->nic, WEIR_ASYNC_CONNECTED, qp->tag);
}

static int nic_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    struct weir_device *nic = qp->nic;
    uint64_t takes_ns = 0;

    if (path->blob_length != NIC_QP_BLOB_SIZE || path->blob[0] != NIC_BLOB_MAGIC ||
        path->blob[1] >= nic->world->config.nodes || path->mtu > nic->config->mtu_max ||
        path->rd_atomic > nic->config->rd_atomic_max || (path->psn_local >> 24) != 0 ||
        (path->psn_remote >> 24) != 0 || qp->state != SIM_QP_INIT || qp->connecting) {
        return WEIR_EINVAL;
    }
    if (nic_fault(nic, nic->config->connect_fail)) {
        return WEIR_EDEVICE;
    }
    if (!nic->config->lacks_memory && nic_lacks(nic)) {
        return WEIR_EMFILE;
    }
    qp->remote_node = path->blob[1];
    memcpy(&qp->remote_qpn, path->blob + 4, sizeof(qp->remote_qpn));
    memcpy(&qp->remote_uid, path->blob + 8, sizeof(qp->remote_uid));
    qp->psn_local = path->psn_local;
    qp->psn_remote = path->psn_remote;
    sim_trace(nic->world, "n%u connects qp %u to n%u qp %u", nic->node->index, qp->qpn,
              qp->remote_node, qp->remote_qpn);
    if (nic->config->connect_ns_max != 0) {
        takes_ns = sim_below(&nic->world->prng, nic->config->connect_ns_max);
    }
    if (is_cut_off(qp)) {
        takes_ns += nic->config->rto_ns * (nic->config->retry_count + 1);
    }
    if (takes_ns != 0) {
        struct sim_event done = {.fire = connected_event,
                                 .at_ns = nic->world->now_ns + takes_ns,
                                 .node = nic->node->index,
                                 .a = qp->uid,
                                 .b = qp->qpn};

        qp->connecting = true;
        sim_schedule(nic->world, &done);
        return WEIR_EINPROGRESS;
    }
    qp->state = SIM_QP_RTS;
    return 0;
}

static int nic_qp_error(struct weir_qp *qp) {
    nic_qp_to_error(qp);
    return 0;
}

static int nic_qp_destroy(struct weir_qp *qp) {
    struct weir_device *nic = qp->nic;
    uint32_t kept = 0;

    if (qp->connecting || nic_sq_runs(qp)) {
        return WEIR_EBUSY;
    }
    if (qp->destroy_fails != 0) {
        qp->destroy_fails--;
        return (qp->destroy_fails & 1) != 0 ? WEIR_EBUSY : WEIR_EDEVICE;
    }
    nic_hang_up(qp);
    nic_sq_leave(qp);
    nic_rings_fini(qp);
    /* The kernel takes a QP's unread events away with it (ibv_destroy_qp(3)). */
    for (uint32_t i = 0; i < nic->async_count; i++) {
        if (nic->asyncs[i].qp_tag != qp->tag) {
            nic->asyncs[kept++] = nic->asyncs[i];
        }
    }
    nic->async_count = kept;
    nic->qps[qp->qpn - NIC_QPN_FIRST] = NULL;
    nic->census.qps--;
    sim_trace(nic->world, "n%u destroys qp %u", nic->node->index, qp->qpn);
    qp_free(qp);
    return 0;
}

/* ---- events ----------------------------------------------------------- */

static int nic_events(struct weir_device *nic, struct weir_async *events_out, int max) {
    uint32_t count = nic->async_count < (uint32_t)max ? nic->async_count : (uint32_t)max;

    if (count == 0) {
        return 0;
    }
    memcpy(events_out, nic->asyncs, count * sizeof(*events_out));
    nic->async_count -= count;
    memmove(nic->asyncs, nic->asyncs + count, nic->async_count * sizeof(*nic->asyncs));
    return (int)count;
}

/* Once, of a device that has failed, when its last QP is gone. */
static int nic_let_go(struct weir_device *nic) {
    if (!nic->failed || nic->let_go || nic->census.qps != 0) {
        sim_violation(nic->world, "W7 n%u lets go of its device with %u QPs", nic->node->index,
                      nic->census.qps);
    }
    nic->let_go = true;
    return WEIR_OK;
}

bool sim_nic_let_go(const struct weir_device *nic) {
    return nic->let_go;
}

static int nic_fd(struct weir_device *nic) {
    (void)nic;
    return -1;
}

static int nic_arm(struct weir_device *nic) {
    return nic->ring_first != NULL || nic->async_count != 0 ? WEIR_EAGAIN : 0;
}

static void nic_disarm(struct weir_device *nic) {
    (void)nic;
}

/* ---- the device -------------------------------------------------------- */

static void caps_fill(const struct sim_nic_config *config, struct weir_device_caps *caps) {
    *caps = (struct weir_device_caps){
        .blames = !config->no_blame,
        .name = "sim",
        .message_bytes_max = config->message_bytes_max,
        .post_bytes_max = config->post_bytes_max,
        .inline_bytes_max = config->inline_bytes_max,
        .pieces_max = config->gathers_max,
        .sq_depth_max = config->sq_depth_max,
        .sq_shared = config->sq_shared,
        .rq_depth_max = config->rq_depth_max,
        .cq_capacity = NIC_CQ_CAPACITY,
        .mtu_max = config->mtu_max,
        .rd_atomic_max = config->rd_atomic_max,
        .ordered = config->ordered,
        .isolates = config->isolates,
        .completes_inline = config->completes_inline,
        .srq = config->srq,
        .last_wqe = config->srq && config->last_wqe != SIM_LAST_WQE_NEVER,
    };
}

static int nic_probe(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out) {
    (void)wishes, (void)caps_out;
    return WEIR_ENODEVICE; /* there is none outside a world */
}

static int nic_open(const struct weir_env *env, struct weir_device **device_out) {
    struct sim_node *node = env->self;
    struct weir_device *nic = calloc(1, sizeof(*nic));

    if (nic == NULL) {
        return WEIR_ENOMEM;
    }
    nic->node = node;
    nic->world = node->world;
    nic->config = &node->world->config.nic[node->index];
    if ((nic->config->isolates && (nic->config->ordered || nic->config->no_blame)) ||
        (nic->config->sq_shared != 0 && nic->config->ordered) ||
        (nic->config->completes_inline && !nic->config->ordered)) {
        sim_violation(node->world, "n%u's device is one that ports.h rules out", node->index);
    }
    nic_recvs_init(&nic->srq, nic->config->srq ? nic->config->rq_depth_max : 0);
    *device_out = nic;
    return 0;
}

static void nic_free(struct weir_device *nic) {
    for (uint32_t i = 0; i < nic->qp_top; i++) {
        if (nic->qps[i] != NULL) {
            qp_free(nic->qps[i]);
        }
    }
    for (uint32_t i = 0; i < nic->mr_count; i++) {
        pages_drop(nic->mrs[i].pages);
    }
    free(nic->mrs);
    for (uint32_t i = 0; i < nic->import_count; i++) {
        pages_drop(nic->imports[i].pages);
    }
    free(nic->imports);
    nic_kept_free(nic);
    nic_ring_free(&nic->cq);
    free(nic->asyncs);
    free(nic->srq.ring);
    free(nic);
}

static void nic_close(struct weir_device *nic) {
    if (nic->census.qps != 0 || nic->census.mrs != 0) {
        sim_violation(nic->world, "T3 n%u closes its device with %u QPs and %u memories",
                      nic->node->index, nic->census.qps, nic->census.mrs);
    }
    nic_free(nic);
}

static void nic_query(struct weir_device *nic, struct weir_device_caps *caps_out) {
    caps_fill(nic->config, caps_out);
}

static void peer_dead_event(struct sim_world *world, const struct sim_event *event) {
    struct weir_qp *qp = nic_find(world, event->node, event->b, event->a);

    if (qp != NULL) {
        nic_async_push(qp->nic, WEIR_ASYNC_PEER_DEAD, qp->tag);
    }
}

static void peer_dead_news(struct sim_world *world, uint32_t dead) {
    for (uint32_t n = 0; n < world->config.nodes; n++) {
        struct weir_device *nic = world->nodes[n].nic;

        if (n == dead || nic == NULL || !nic->config->peer_dead_news) {
            continue;
        }
        for (uint32_t i = 0; i < nic->qp_top; i++) {
            struct weir_qp *qp = nic->qps[i];
            struct sim_event event = {.fire = peer_dead_event, .node = n};

            if (qp != NULL && qp->state != SIM_QP_INIT && qp->remote_node == dead) {
                event.b = qp->qpn;
                event.a = qp->uid;
                event.at_ns = world->now_ns + sim_below(&world->prng, 1000000);
                sim_schedule(world, &event);
            }
        }
    }
}

void sim_nic_crash(struct weir_device *nic) {
    struct sim_world *world = nic->world;
    uint32_t dead = nic->node->index;

    if (nic->config->no_blame && sim_below(&world->prng, 2) == 0) { /* its host lives on */
        for (uint32_t i = 0; i < nic->qp_top; i++) {
            if (nic->qps[i] != NULL) {
                nic_hang_up(nic->qps[i]);
            }
        }
    }
    nic->node->nic = NULL;
    nic_free(nic);
    peer_dead_news(world, dead);
}

void sim_nic_census(const struct weir_device *nic, struct sim_nic_census *census_out) {
    *census_out = nic->census;
    census_out->recvs = 0; /* a shared queue goes with its device: the port has no other end */
    for (uint32_t i = 0; i < nic->qp_top; i++) {
        census_out->recvs += nic->qps[i] != NULL ? nic->qps[i]->rq.count : 0;
    }
}

bool sim_nic_connects(const struct weir_device *nic) {
    for (uint32_t i = 0; i < nic->qp_top; i++) {
        if (nic->qps[i] != NULL && nic->qps[i]->connecting) {
            return true;
        }
    }
    return false;
}

uint32_t sim_nic_qp_next(const struct weir_device *nic, uint32_t index,
                         struct sim_qp_info *info_out) {
    for (uint32_t i = index; i < nic->qp_top; i++) {
        const struct weir_qp *qp = nic->qps[i];

        if (qp != NULL) {
            *info_out = (struct sim_qp_info){.state = qp->state,
                                             .qpn = qp->qpn,
                                             .remote_node = qp->remote_node,
                                             .uid = qp->uid,
                                             .remote_uid = qp->remote_uid,
                                             .sq_used = qp->sq_used};
            return i + 1;
        }
    }
    return 0;
}

static bool nic_counts(struct weir_device *nic, struct weir_device_counts *out) {
    *out = (struct weir_device_counts){.not_ready = nic->census.not_ready,
                                       .repeats = nic->census.repeats};
    return true;
}

/* All processes are of one host: their nodes are their numbers. */
static int64_t nic_peer_process(struct weir_qp *qp) {
    return (int64_t)(intptr_t)&qp->nic->world->nodes[qp->remote_node];
}

static bool nic_process_is_stopped(int64_t process) {
    const struct sim_node *node = (const struct sim_node *)(intptr_t)process;

    return node->stopped_until_ns > node->world->now_ns;
}

const struct weir_device_ops SIM_NIC_OPS = {
    .name = "sim",
    .probe = nic_probe,
    .open = nic_open,
    .close = nic_close,
    .let_go = nic_let_go,
    .query = nic_query,
    .mr_register = nic_mr_register,
    .mr_allocate = nic_mr_allocate,
    .mr_release = nic_mr_release,
    .mr_export = nic_mr_export,
    .mr_import = nic_mr_import,
    .mr_forget = nic_mr_forget,
    .mr_is_gone = nic_mr_is_gone,
    .import_address = nic_import_address,
    .qp_create = nic_qp_create,
    .qp_connect = nic_qp_connect,
    .qp_error = nic_qp_error,
    .qp_destroy = nic_qp_destroy,
    .post_send = nic_post_send,
    .post_pieces = nic_post_pieces,
    .post_direct = nic_post_direct,
    .read_direct = nic_read_direct,
    .post_recv = nic_post_recv,
    .poll = nic_poll,
    .events = nic_events,
    .fd = nic_fd,
    .arm = nic_arm,
    .disarm = nic_disarm,
    .counts = nic_counts,
    .peer_process = nic_peer_process,
    .process_is_stopped = nic_process_is_stopped,
};
