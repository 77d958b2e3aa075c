/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: registered memory, and that of others.
 *
 * Memory of a peer is imported when its metadata is loaded, or, if the peer does not let that
 * happen then, with the first transfer that names it. A peer that is stopped keeps an import
 * waiting for a second: one of all that are loaded, and none of the others until it lets one
 * happen. Memory that cannot be released at once, since a transfer uses it, is kept in a list, and
 * released when that is over. */
#ifndef WEIR_NIXL_MEMORY_H
#define WEIR_NIXL_MEMORY_H

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend_engine.h"

#include "peers.h"
#include "weir.h"

namespace weir_nixl {

enum class Kind { local, remote };

struct Metadata : nixlBackendMD {
    const Kind kind;
    nixl_mem_t type = DRAM_SEG;
    uint64_t base = 0, length = 0; /* as the owner's addresses */

    explicit Metadata(Kind of) : nixlBackendMD(of == Kind::local), kind(of) {
    }
};

struct LocalMemory : Metadata {
    weir_memory memory = {};

    LocalMemory() : Metadata(Kind::local) {
    }
};

struct RemoteMemory : Metadata {
    TargetPtr target;
    std::string descriptor;
    weir_memory own = {};            /* of one's own memory: exported when it is imported */
    std::atomic<uint64_t> remote{0}; /* 0: not imported yet */
    std::mutex lock;                 /* one thread imports it */

    RemoteMemory() : Metadata(Kind::remote) {
    }
};

class Memories {
  public:
    /* imported: is called whenever memory of a target was imported. */
    Memories(weir_engine *engine, std::string cuda_library, std::function<void(Target &)> imported);
    /* Behind weir_engine_close. */
    ~Memories() = default;

    nixl_status_t add(const nixlBlobDesc &range, nixl_mem_t type, nixlBackendMD *&out);
    /* Waits, for 5 s at most, until nobody touches the memory any more. */
    nixl_status_t remove(nixlBackendMD *metadata);
    nixl_status_t describe(const nixlBackendMD *metadata, std::string &out) const;
    nixl_status_t load(const nixlBlobDesc &range, nixl_mem_t type, const TargetPtr &target,
                       nixlBackendMD *&out);
    nixl_status_t load_own(nixlBackendMD *local, const TargetPtr &self, nixlBackendMD *&out);
    nixl_status_t unload(nixlBackendMD *metadata);

    /* A segment of a transfer to this target. */
    nixl_status_t segment(const nixlMetaDesc &local, const nixlMetaDesc &remote,
                          const TargetPtr &target, weir_segment &out);
    /* Releases what had to wait. */
    void pump();
    bool busy() const {
        return waiting_ != 0;
    }

  private:
    weir_engine *engine_;
    const std::string cuda_library_;
    const std::function<void(Target &)> imported_;
    std::mutex lock_;
    std::vector<weir_memory> memories_; /* to be released */
    std::vector<weir_remote> remotes_;
    std::atomic<size_t> waiting_{0};

    int enroll(const nixlBlobDesc &range, nixl_mem_t type, weir_memory &memory);
    int enroll_gpu(const nixlBlobDesc &range, weir_memory &memory);
    int import(RemoteMemory &memory);
    nixl_status_t import_failed(const RemoteMemory &memory, int rc) const;
};

} // namespace weir_nixl

#endif
