/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.h: notifications that are sent: in order for each target, without ever waiting. A text
 * that has no room in weir's notification goes before it as messages, from slots of registered
 * memory.
 *
 * No target holds up another: each has a share of weir's transfers and of slots at most, and more
 * slots are taken when all are in use. Further notifications for it wait in its queue.
 *
 * One lock for all targets. A call sends what it can, and so does the plug-in's thread (pump)
 * whatever had to wait. */
#ifndef WEIR_NIXL_OUTBOX_H
#define WEIR_NIXL_OUTBOX_H

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend_engine.h"

#include "peers.h"
#include "weir.h"

namespace weir_nixl {

class Outbox {
  public:
    explicit Outbox(weir_engine *engine, const std::string &self);
    /* Takes memory for more slots. A code of weir's. */
    int open();

    /* Queues a notification, and sends what can be sent. Its place in the stream is *stream_out,
     * *number_out, for `fate`. */
    nixl_status_t send(Target &target, const std::string &text, uint64_t *stream_out,
                       uint64_t *number_out);
    /* NIXL_IN_PROG, or what became of it: it is in the target's engine, or will never be. */
    nixl_status_t fate(Target &target, uint64_t stream, uint64_t number);
    /* The payload and tag with which a notification goes along with a transfer; an empty payload:
     * it is too long for that. */
    std::string along(Target &target, const std::string &text, uint64_t *tag_out);

    /* The target is gone: what it was to be told is dropped. */
    void fail(Target &target);
    /* The process in a failed target's place was met: a new stream. */
    void renew(Target &target);
    /* The target was closed: what it was told already still goes, for 5 s at most; then weir's peer
     * is closed, too. */
    void retire(const TargetPtr &target);
    /* Sends what waits, of these targets. */
    void pump(const std::vector<TargetPtr> &targets);
    /* Something is under way. */
    bool busy() const {
        return waiting_ != 0;
    }

  private:
    weir_engine *engine_;
    const std::string self_;
    std::mutex lock_;
    struct Block { /* of slots */
        weir_memory memory;
        char *base;
    };
    std::vector<Block> blocks_;
    std::vector<int> free_; /* has room for all */
    struct Retired {
        TargetPtr target;
        std::chrono::steady_clock::time_point end;
    };
    std::vector<Retired> retired_;
    std::vector<Sent> strays_;       /* under way in streams that are over */
    std::atomic<size_t> waiting_{0}; /* notifications queued, and what is under way */

    void push(Target &target);
    int send_next(Target &target, Outgoing &next);
    int send_part(Target &target, Outgoing &next);
    int send_note(Target &target, const Outgoing &next);
    int slot_for(Target &target, int *slot_out);
    int under_way(Target &target, int rc);
    bool over(const Sent &sent, int *status_out);
    void settle(Target &target);
    bool retired_over(const Retired &each);
    void pump_strays();
    void leave(Target &target);
    void drop(Target &target);
};

} // namespace weir_nixl

#endif
