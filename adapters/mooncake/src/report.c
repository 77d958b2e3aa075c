/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: what getNicLoadStats and showLinks tell of the engine's device and segments. */
#include "adapter.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a new sample in the mean. */
#define SMOOTHING 0.25

int report_load(struct mc_engine *engine, nic_load_stat_t *stats, size_t *count) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    int rc = weir_engine_query(engine->weir, &info);
    if (rc != WEIR_OK)
        return MC_ECONTEXT;
    uint64_t bytes = info.bytes_written + info.bytes_read, now = mc_now_ns();
    pthread_mutex_lock(&engine->load_lock);
    if (engine->load_ns != 0 && now > engine->load_ns) {
        double rate = (double)(bytes - engine->load_bytes) * 1e9 / (double)(now - engine->load_ns);
        engine->load_rate += SMOOTHING * (rate - engine->load_rate);
    }
    engine->load_bytes = bytes;
    engine->load_ns = now;
    double mean = engine->load_rate;
    pthread_mutex_unlock(&engine->load_lock);
    if (*count > 0) {
        snprintf(stats->device_name, sizeof(stats->device_name), "%s", engine->device);
        stats->inflight_bytes = info.inflight_bytes;
        stats->ewma_bandwidth_bps = mean;
    }
    *count = 1;
    return 0;
}

struct link {
    char *name;
    char address[WEIR_ADDRESS_MAX];
    size_t buffers;
    bool connected;
    uint32_t qp_count;
};

static bool link_of(struct mc_engine *engine, int32_t id, struct link *link) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    struct segment *segment = segment_at(engine, id);
    if (segment == NULL)
        return false;
    pthread_rwlock_rdlock(&segment->lock);
    weir_peer peer = segment->peer;
    link->buffers = segment->count;
    pthread_rwlock_unlock(&segment->lock);
    link->name = segment->name;
    bool known = weir_peer_query(engine->weir, peer, &info) == WEIR_OK;
    snprintf(link->address, sizeof(link->address), "%s", known ? info.address : "");
    link->connected = known && info.connected != 0;
    link->qp_count = known ? info.qp_count : 0;
    return true;
}

static char *links_json(struct mc_engine *engine, size_t count) {
    json_t *root = json_pack("{s:s, s:[{s:s, s:s}], s:[]}", "segment", engine->name, "local_nics",
                             "device", engine->device, "source", "weir", "links");
    for (size_t i = 1; root != NULL && i < count; i++) {
        struct link link;
        if (!link_of(engine, (int32_t)i, &link))
            continue;
        json_t *one =
            json_pack("{s:i, s:s, s:s, s:b, s:i, s:I}", "id", (int)i, "segment", link.name,
                      "address", link.address, "connected", (int)link.connected, "qps",
                      (int)link.qp_count, "buffers", (json_int_t)link.buffers);
        json_array_append_new(json_object_get(root, "links"), one);
    }
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

static char *links_text(struct mc_engine *engine, size_t count) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    fprintf(out, "%s at %s, device %s\n", engine->name, engine->address, engine->device);
    for (size_t i = 1; i < count; i++) {
        struct link link;
        if (link_of(engine, (int32_t)i, &link))
            fprintf(out, "  segment %zu: %s at %s, %zu buffers, %s\n", i, link.name, link.address,
                    link.buffers, link.connected ? "connected" : "not connected");
    }
    fclose(out);
    return text;
}

int report_links(struct mc_engine *engine, char *text, size_t size, bool json) {
    pthread_rwlock_rdlock(&engine->segments_lock);
    size_t count = engine->segment_count;
    pthread_rwlock_unlock(&engine->segments_lock);
    char *links = json ? links_json(engine, count) : links_text(engine, count);
    if (links == NULL)
        return MC_EMEMORY;
    snprintf(text, size, "%s", links);
    free(links);
    return 0;
}
