/* SPDX-License-Identifier: Apache-2.0 */
/* api.c: the functions of transfer_engine_c.h: null pointers, engines of a parent process,
 * and the turn to what does the work.
 */
#include "adapter.h"

#include <stdio.h>
#include <string.h>

transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                       const char *local_server_name, const char *ip_or_host_name,
                                       uint64_t rpc_port, int auto_discover) {
    (void)ip_or_host_name;
    (void)rpc_port;
    (void)auto_discover;
    if (metadata_conn_string == NULL || local_server_name == NULL)
        return NULL;
    return mc_open(metadata_conn_string, local_server_name, NULL);
}

void destroyTransferEngine(transfer_engine_t engine) {
    if (engine != NULL)
        mc_close(engine);
}

int discoverTopology(transfer_engine_t engine) {
    return mc_is_here(engine) ? 0 : MC_EINVALID;
}

int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len) {
    const struct mc_engine *self = engine;
    if (!mc_is_here(self) || buf_out == NULL || buf_len == 0)
        return MC_EINVALID;
    snprintf(buf_out, buf_len, "%s", self->store == NULL ? self->name : self->address);
    return 0;
}

transport_t installTransport(transfer_engine_t engine, const char *proto, void **args) {
    (void)args;
    return mc_is_here(engine) && proto != NULL ? engine : NULL;
}

int uninstallTransport(transfer_engine_t engine, const char *proto) {
    return mc_is_here(engine) && proto != NULL ? 0 : MC_EINVALID;
}

segment_id_t openSegment(transfer_engine_t engine, const char *segment_name) {
    return mc_is_here(engine) ? segment_open(engine, segment_name, false) : MC_EINVALID;
}

segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name) {
    return mc_is_here(engine) ? segment_open(engine, segment_name, true) : MC_EINVALID;
}

int closeSegment(transfer_engine_t engine, segment_id_t segment_id) {
    (void)segment_id;
    return mc_is_here(engine) ? 0 : MC_EINVALID;
}

int warmupEfaSegment(transfer_engine_t engine, const char *segment_name) {
    return mc_is_here(engine) && segment_open(engine, segment_name, false) >= 0 ? 0 : MC_EINVALID;
}

int removeLocalSegment(transfer_engine_t engine, const char *segment_name) {
    return mc_is_here(engine) ? segment_remove(engine, segment_name) : MC_EINVALID;
}

int syncSegmentCache(transfer_engine_t engine) {
    if (!mc_is_here(engine))
        return MC_EINVALID;
    refresh_all(engine);
    return 0;
}

int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
                        int remote_accessible) {
    buffer_entry_t entry = {addr, length};
    return mc_is_here(engine) ? local_register(engine, &entry, 1, location, remote_accessible != 0)
                              : MC_EINVALID;
}

int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list,
                             size_t buffer_len, const char *location) {
    return mc_is_here(engine) ? local_register(engine, buffer_list, buffer_len, location, true)
                              : MC_EINVALID;
}

int unregisterLocalMemory(transfer_engine_t engine, void *addr) {
    return unregisterLocalMemoryBatch(engine, &addr, 1);
}

int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len) {
    int first = 0;
    size_t left = 0;
    if (!mc_is_here(engine) || (addr_list == NULL && addr_len > 0))
        return MC_EINVALID;
    for (size_t i = 0; i < addr_len; i++) {
        int rc = addr_list[i] != NULL ? local_unregister(engine, addr_list[i]) : MC_EINVALID;
        if (first == 0)
            first = rc;
        left += rc == 0;
    }
    int rc = left > 0 ? local_tell_store(engine) : 0;
    return first != 0 ? first : rc;
}

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size) {
    return mc_is_here(engine) ? batch_allocate(engine, batch_size) : INVALID_BATCH;
}

int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
                   size_t count) {
    return mc_is_here(engine) ? submit(engine, batch_id, entries, count, NULL) : MC_CODE_INVALID;
}

int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                             struct transfer_request *entries, size_t count,
                             notify_msg_t notify_msg) {
    return mc_is_here(engine) ? submit(engine, batch_id, entries, count, &notify_msg)
                              : MC_CODE_INVALID;
}

int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                      struct transfer_status *status) {
    return mc_is_here(engine) && status != NULL ? task_status(engine, batch_id, task_id, status)
                                                : MC_CODE_INVALID;
}

int freeBatchID(transfer_engine_t engine, batch_id_t batch_id) {
    return mc_is_here(engine) ? batch_free(engine, batch_id) : MC_CODE_INVALID;
}

notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size) {
    if (mc_is_here(engine) && size != NULL)
        return notices_give(engine, size);
    if (size != NULL)
        *size = 0;
    return NULL;
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size) {
    notices_free(msg, size > 0 ? (size_t)size : 0);
    return 0;
}

int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg) {
    return mc_is_here(engine) && target_id <= INT32_MAX
               ? notice_send(engine, &notify_msg, (int64_t)target_id)
               : MC_EINVALID;
}

int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count) {
    return mc_is_here(engine) && count != NULL && (stats != NULL || *count == 0)
               ? report_load(engine, stats, count)
               : MC_EINVALID;
}

void enableGracefulShutdown(transfer_engine_t engine) {
    if (mc_is_here(engine))
        graceful_enable(engine);
}

int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len, int json) {
    return mc_is_here(engine) && buf_out != NULL && buf_len > 0
               ? report_links(engine, buf_out, buf_len, json != 0)
               : MC_EINVALID;
}
