/* SPDX-License-Identifier: Apache-2.0 */
/* requests.h: transfers.
 *
 *     idle ──post──► posted ──────► idle, with a status
 *               │       └─ long notification ─► telling ─► idle
 *               └─ weir's pools are full ─► queued ─► posted
 *
 * A request is its caller's, one thread's at a time, but for one that is `shared`: queued, or with
 * a notification too long to go along. The plug-in's thread brings that on, too, so that nobody has
 * to poll it; what is shared is looked at below one lock. A request that is released while weir has
 * not ended it is `left`: it is cancelled, an error to everyone who asks, and freed with the first
 * release that finds it quiet, or with the engine. */
#ifndef WEIR_NIXL_REQUESTS_H
#define WEIR_NIXL_REQUESTS_H

#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend_engine.h"

#include "memory.h"
#include "outbox.h"
#include "peers.h"
#include "weir.h"

namespace weir_nixl {

enum class Stage { idle, queued, posted, telling };

struct Request : nixlBackendReqH {
    Stage stage = Stage::idle;
    nixl_status_t status = NIXL_ERR_NOT_POSTED;
    nixl_xfer_op_t operation = NIXL_WRITE;
    TargetPtr target;
    std::vector<weir_segment> segments;
    weir_transfer transfer = {};
    bool notify = false; /* `text` is the payload of a notification, with this tag */
    bool tells = false;  /* `text` is sent behind the data, as messages */
    std::string text;
    uint64_t tag = 0;
    uint64_t stream = 0, number = 0; /* telling: of the notification */
    std::atomic<bool> shared{false};
    bool left = false;
};

class Requests {
  public:
    Requests(weir_engine *engine, Memories &memories, Outbox &outbox);
    /* Behind weir_engine_close: frees what is left. */
    ~Requests();

    nixl_status_t prepare(nixl_xfer_op_t operation, const nixl_meta_dlist_t &local,
                          const nixl_meta_dlist_t &remote, const TargetPtr &target,
                          nixlBackendReqH *&out);
    nixl_status_t post(nixl_xfer_op_t operation, const nixl_meta_dlist_t &local,
                       const nixl_meta_dlist_t &remote, const TargetPtr &target,
                       nixlBackendReqH *handle, const nixl_opt_b_args_t *options);
    nixl_status_t check(nixlBackendReqH *handle);
    nixl_status_t release(nixlBackendReqH *handle);
    /* Brings on what is shared. */
    void pump();
    bool busy() const {
        return sharing_ != 0;
    }

  private:
    weir_engine *engine_;
    Memories &memories_;
    Outbox &outbox_;
    std::mutex lock_;
    std::deque<Request *> queue_;    /* queued */
    std::vector<Request *> telling_; /* shared, and not queued */
    std::vector<Request *> left_;
    std::atomic<size_t> sharing_{0};

    nixl_status_t fill(Request &request, nixl_xfer_op_t operation, const nixl_meta_dlist_t &local,
                       const nixl_meta_dlist_t &remote, const TargetPtr &target);
    nixl_status_t word(Request &request, const nixl_opt_b_args_t *options);
    int submit(Request &request);
    nixl_status_t look(Request &request);
    nixl_status_t start(Request &request);
    bool queue_empty();
    void finish(Request &request, nixl_status_t status);
    void share(Request &request);
    void unshare(Request &request);
    void advance(Request &request);
    void advance_queue();
    nixl_status_t leave(Request &request);
};

} // namespace weir_nixl

#endif
