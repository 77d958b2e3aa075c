/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: NIXL's backend over a weir engine.
 *
 * Any thread may call anything at any time, but a request's functions, which are one thread's at a
 * time, as NIXL has it. One thread of the plug-in makes progress, takes what came and brings on
 * what waits, whatever the agent does. */
#ifndef WEIR_NIXL_ENGINE_H
#define WEIR_NIXL_ENGINE_H

#include <atomic>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <string>

#include "backend/backend_engine.h"

#include "inbox.h"
#include "memory.h"
#include "outbox.h"
#include "peers.h"
#include "requests.h"
#include "settings.h"
#include "weir.h"

namespace weir_nixl {

class Engine final : public nixlBackendEngine {
  public:
    /* getInitErr() is true, and a line on standard error says why, if there is no engine. */
    explicit Engine(const nixlBackendInitParams *parameters);
    /* Waits, for a second at most, until notifications under way have arrived. */
    ~Engine() override;

    bool supportsRemote() const override;
    bool supportsLocal() const override;
    bool supportsNotif() const override;
    nixl_mem_list_t getSupportedMems() const override;

    nixl_status_t registerMem(const nixlBlobDesc &range, const nixl_mem_t &type,
                              nixlBackendMD *&out) override;
    nixl_status_t deregisterMem(nixlBackendMD *metadata) override;
    nixl_status_t connect(const std::string &agent) override;
    nixl_status_t disconnect(const std::string &agent) override;
    nixl_status_t unloadMD(nixlBackendMD *metadata) override;
    nixl_status_t prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                           const nixl_meta_dlist_t &remote, const std::string &agent,
                           nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *options = nullptr) const override;
    nixl_status_t postXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                           const nixl_meta_dlist_t &remote, const std::string &agent,
                           nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *options = nullptr) const override;
    nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
    nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;
    nixl_status_t getPublicData(const nixlBackendMD *metadata, std::string &out) const override;
    nixl_status_t getConnInfo(std::string &out) const override;
    nixl_status_t loadRemoteConnInfo(const std::string &agent, const std::string &info) override;
    nixl_status_t loadRemoteMD(const nixlBlobDesc &range, const nixl_mem_t &type,
                               const std::string &agent, nixlBackendMD *&out) override;
    nixl_status_t loadLocalMD(nixlBackendMD *local, nixlBackendMD *&out) override;
    nixl_status_t getNotifs(notif_list_t &list) override;
    nixl_status_t genNotif(const std::string &agent, const std::string &text) const override;

  private:
    Settings settings_;
    const unsigned forks_;
    weir_engine *engine_ = nullptr;
    std::unique_ptr<Peers> peers_;
    std::unique_ptr<Inbox> inbox_;
    std::unique_ptr<Outbox> outbox_;
    std::unique_ptr<Memories> memories_;
    std::unique_ptr<Requests> requests_;
    std::mutex events_lock_;
    pthread_t thread_ = {};
    bool thread_runs_ = false;
    std::atomic<bool> stop_{false};

    bool usable() const;
    bool open(const nixlBackendInitParams &parameters);
    bool open_engine(const nixlBackendInitParams &parameters);
    bool start_thread();
    void stop_thread();
    static void *thread_main(void *self);
    void run();
    void take_events();
    void gone(const weir_event &event);
    void flush();
};

} // namespace weir_nixl

#endif
