/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cpp: registered memory, and that of others. */
#include "memory.h"

#include <chrono>
#include <thread>
#include <unistd.h>

#include "cuda.h"
#include "status.h"

namespace weir_nixl {

namespace {

/* Public data: this byte, and weir's descriptor. */
const char data_version = '1';

bool inside(const nixlBasicDesc &range, const Metadata &memory) {
    return range.addr >= memory.base && range.len <= memory.length &&
           range.addr - memory.base <= memory.length - range.len;
}

bool is(const nixlBackendMD *metadata, Kind kind) {
    return metadata != nullptr && static_cast<const Metadata *>(metadata)->kind == kind;
}

/* Imports that may succeed later: the peer is stopped, or restarts, or the process lacks something.
 */
bool may_pass(int rc) {
    return rc == WEIR_EAGAIN || rc == WEIR_ESTALE || rc == WEIR_EPEER || rc == WEIR_EMFILE ||
           rc == WEIR_ENOMEM;
}

} // namespace

Memories::Memories(weir_engine *engine, std::string cuda_library,
                   std::function<void(Target &)> imported)
    : engine_(engine), cuda_library_(std::move(cuda_library)), imported_(std::move(imported)) {
}

/* ---- one's own ------------------------------------------------------------------ */

int Memories::enroll_gpu(const nixlBlobDesc &range, weir_memory &memory) {
    int fd = -1;
    uint64_t offset = 0;
    std::string why;
    if (!cuda_dmabuf(cuda_library_, range.devId, range.addr, range.len, fd, offset, why)) {
        tell("memory of GPU %llu: %s", static_cast<unsigned long long>(range.devId), why.c_str());
        return WEIR_ENOTSUP;
    }
    int rc = weir_memory_register_dmabuf(engine_, fd, offset, range.len, range.addr,
                                         WEIR_ACCESS_ALL, &memory);
    close(fd);
    return rc;
}

int Memories::enroll(const nixlBlobDesc &range, nixl_mem_t type, weir_memory &memory) {
    if (type == VRAM_SEG)
        return enroll_gpu(range, memory);
    return weir_memory_register(engine_, reinterpret_cast<void *>(range.addr), range.len,
                                WEIR_ACCESS_ALL, &memory);
}

nixl_status_t Memories::add(const nixlBlobDesc &range, nixl_mem_t type, nixlBackendMD *&out) {
    if (type != DRAM_SEG && type != VRAM_SEG)
        return NIXL_ERR_NOT_SUPPORTED;
    if (range.addr == 0 || range.len == 0 || range.addr + range.len < range.addr)
        return NIXL_ERR_INVALID_PARAM;
    auto memory = std::make_unique<LocalMemory>();
    int rc = enroll(range, type, memory->memory);
    if (rc != WEIR_OK) {
        tell("%llu bytes at 0x%llx are not registered: %s%s",
             static_cast<unsigned long long>(range.len),
             static_cast<unsigned long long>(range.addr), weir_strerror(rc),
             rc == WEIR_EAGAIN ? " (parameter memories_max)" : "");
        return status_of(rc);
    }
    memory->type = type;
    memory->base = range.addr;
    memory->length = range.len;
    out = memory.release();
    return NIXL_SUCCESS;
}

nixl_status_t Memories::remove(nixlBackendMD *metadata) {
    using Clock = std::chrono::steady_clock;
    if (!is(metadata, Kind::local))
        return NIXL_ERR_INVALID_PARAM;
    std::unique_ptr<LocalMemory> memory(static_cast<LocalMemory *>(metadata));
    const Clock::time_point end = Clock::now() + std::chrono::seconds(5);
    int rc;
    while ((rc = weir_memory_release(engine_, memory->memory)) == WEIR_EBUSY ||
           rc == WEIR_EINPROGRESS) {
        if (Clock::now() >= end)
            break;
        if (weir_engine_progress(engine_) == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (rc == WEIR_OK)
        return NIXL_SUCCESS;
    if (weir_error_class(rc) == WEIR_CLASS_ENDPOINT && rc != WEIR_EDEVICE)
        return status_of(rc); /* ECLOSED: the engine is another process's */
    tell("memory at 0x%llx is still in use, and must stay mapped: %s",
         static_cast<unsigned long long>(memory->base), weir_strerror(rc));
    std::lock_guard<std::mutex> held(lock_);
    memories_.push_back(memory->memory);
    waiting_++;
    return rc == WEIR_EBUSY || rc == WEIR_EINPROGRESS ? NIXL_ERR_NOT_ALLOWED : status_of(rc);
}

nixl_status_t Memories::describe(const nixlBackendMD *metadata, std::string &out) const {
    if (!is(metadata, Kind::local))
        return NIXL_ERR_INVALID_PARAM;
    char descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    int rc = weir_memory_export(engine_, static_cast<const LocalMemory *>(metadata)->memory,
                                descriptor, &length);
    if (rc != WEIR_OK)
        return status_of(rc);
    out = data_version + std::string(descriptor, length);
    return NIXL_SUCCESS;
}

/* ---- others' -------------------------------------------------------------------- */

int Memories::import(RemoteMemory &memory) {
    std::lock_guard<std::mutex> held(memory.lock);
    if (memory.remote != 0)
        return WEIR_OK;
    char exported[WEIR_DESCRIPTOR_MAX];
    const void *descriptor = memory.descriptor.data();
    size_t length = memory.descriptor.size();
    int rc = WEIR_OK;
    if (memory.own.id != 0) {
        length = sizeof(exported);
        rc = weir_memory_export(engine_, memory.own, exported, &length);
        descriptor = exported;
    }
    weir_remote remote = {};
    if (rc == WEIR_OK)
        rc = weir_memory_import(engine_, memory.target->peer, descriptor, length, &remote);
    memory.target->silent = rc == WEIR_EAGAIN;
    if (rc != WEIR_OK)
        return rc;
    try {
        imported_(*memory.target);
    } catch (...) { /* out of memory */
        weir_remote_release(engine_, remote);
        throw;
    }
    memory.remote = remote.id;
    return WEIR_OK;
}

nixl_status_t Memories::import_failed(const RemoteMemory &memory, int rc) const {
    char why[WEIR_REFUSAL_TEXT_MAX] = "";
    if (rc == WEIR_ENOTSUP || rc == WEIR_EDENIED)
        weir_refusal_text(engine_, memory.target->peer, why, sizeof(why));
    const char *more = rc == WEIR_EAGAIN ? " (it is stopped; or parameter remotes_max)" : "";
    tell("memory of agent %s cannot be used here: %s%s%s%s", memory.target->name.c_str(),
         weir_strerror(rc), more, why[0] == '\0' ? "" : "; ", why);
    return rc == WEIR_EDENIED ? NIXL_ERR_NOT_ALLOWED : status_of(rc);
}

nixl_status_t Memories::load(const nixlBlobDesc &range, nixl_mem_t type, const TargetPtr &target,
                             nixlBackendMD *&out) {
    if (type != DRAM_SEG && type != VRAM_SEG)
        return NIXL_ERR_NOT_SUPPORTED;
    if (!target)
        return NIXL_ERR_NOT_FOUND;
    if (range.metaInfo.size() < 2 || range.metaInfo[0] != data_version)
        return NIXL_ERR_MISMATCH;
    auto memory = std::make_unique<RemoteMemory>();
    memory->type = type;
    memory->base = range.addr;
    memory->length = range.len;
    memory->target = target;
    memory->descriptor = range.metaInfo.substr(1);
    int rc = target->silent ? WEIR_EAGAIN : import(*memory);
    if (rc != WEIR_OK && !may_pass(rc))
        return import_failed(*memory, rc);
    out = memory.release();
    return NIXL_SUCCESS;
}

nixl_status_t Memories::load_own(nixlBackendMD *local, const TargetPtr &self, nixlBackendMD *&out) {
    if (!is(local, Kind::local))
        return NIXL_ERR_INVALID_PARAM;
    if (!self)
        return NIXL_ERR_BACKEND;
    const LocalMemory &from = *static_cast<LocalMemory *>(local);
    auto memory = std::make_unique<RemoteMemory>();
    memory->type = from.type;
    memory->base = from.base;
    memory->length = from.length;
    memory->target = self;
    memory->own = from.memory;
    out = memory.release();
    return NIXL_SUCCESS;
}

nixl_status_t Memories::unload(nixlBackendMD *metadata) {
    if (!is(metadata, Kind::remote))
        return NIXL_ERR_INVALID_PARAM;
    std::unique_ptr<RemoteMemory> memory(static_cast<RemoteMemory *>(metadata));
    weir_remote remote = {memory->remote};
    if (remote.id == 0)
        return NIXL_SUCCESS;
    int rc = weir_remote_release(engine_, remote);
    if (rc == WEIR_EBUSY) { /* a transfer under way: it is released behind that */
        std::lock_guard<std::mutex> held(lock_);
        remotes_.push_back(remote);
        waiting_++;
        return NIXL_SUCCESS;
    }
    return status_of(rc);
}

nixl_status_t Memories::segment(const nixlMetaDesc &local, const nixlMetaDesc &remote,
                                const TargetPtr &target, weir_segment &out) {
    if (!is(local.metadataP, Kind::local) || !is(remote.metadataP, Kind::remote) ||
        local.len != remote.len)
        return NIXL_ERR_INVALID_PARAM;
    const LocalMemory &here = *static_cast<LocalMemory *>(local.metadataP);
    RemoteMemory &there = *static_cast<RemoteMemory *>(remote.metadataP);
    if (!inside(local, here) || !inside(remote, there))
        return NIXL_ERR_INVALID_PARAM;
    if (there.target != target) /* loaded before the agent of that name was, or of another one */
        return there.target->name == target->name ? NIXL_ERR_REMOTE_DISCONNECT
                                                  : NIXL_ERR_INVALID_PARAM;
    if (there.remote == 0) {
        int rc = import(there);
        if (rc != WEIR_OK)
            return import_failed(there, rc);
    }
    out.local = here.memory;
    out.local_offset = local.addr - here.base;
    out.remote = weir_remote{there.remote};
    out.remote_offset = remote.addr - there.base;
    out.length = local.len;
    return NIXL_SUCCESS;
}

void Memories::pump() {
    if (waiting_ == 0)
        return;
    std::lock_guard<std::mutex> held(lock_);
    std::erase_if(memories_, [this](weir_memory memory) {
        int rc = weir_memory_release(engine_, memory);
        return rc == WEIR_OK || rc == WEIR_ESTALE;
    });
    std::erase_if(remotes_, [this](weir_remote remote) {
        return weir_remote_release(engine_, remote) != WEIR_EBUSY;
    });
    waiting_ = memories_.size() + remotes_.size();
}

} // namespace weir_nixl
