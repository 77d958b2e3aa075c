/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h: the agents that are known by name, and the weir peers that they are.
 *
 * An agent is known from loadRemoteConnInfo to disconnect; loaded anew it is another Target. When
 * its peer is gone (WEIR_EVENT_GONE) the target has failed: what is asked of it is a disconnect,
 * until its metadata is loaded anew, or memory of the process that took its place is imported. */
#ifndef WEIR_NIXL_PEERS_H
#define WEIR_NIXL_PEERS_H

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "backend/backend_engine.h"

#include "weir.h"

namespace weir_nixl {

/* A notification, or a message with a part of one, that is on its way. */
struct Sent {
    weir_transfer transfer;
    int slot;        /* of the outbox, or -1 */
    uint64_t number; /* of the notification, if this is it; 0: a part */
};

/* A notification that has yet to be sent. */
struct Outgoing {
    uint64_t number;
    std::string payload; /* of weir's notification */
    std::string parts;   /* before that, as messages: words.h */
    size_t done;         /* of them, sent already */
};

struct Target {
    std::string name;
    weir_peer peer = {};
    bool self = false;
    std::atomic<uint64_t> other{0}; /* the handle that events carry, where it is another (SAME) */
    std::atomic<bool> failed{false};
    std::atomic<bool> closed{false}; /* nothing more is asked of it */
    std::atomic<bool> silent{false}; /* it kept the last import waiting, and none came since */

    /* Notifications to it, below the outbox's lock. */
    uint64_t stream = 0;  /* random: the receiver tells streams by it */
    uint64_t said = 0;    /* notifications, but for those that go with transfers */
    uint64_t arrived = 0; /* of them, up to this one */
    std::deque<Outgoing> queue;
    std::deque<Sent> sent;
    size_t slots = 0; /* of the outbox, that `sent` has */
};
using TargetPtr = std::shared_ptr<Target>;

class Peers {
  public:
    Peers(weir_engine *engine, std::string self);

    /* For getConnInfo: a version, and the engine's address. */
    nixl_status_t address(std::string &out) const;
    /* *before_out: the target that had the name until now, for Outbox::retire. */
    nixl_status_t load(const std::string &name, const std::string &address, TargetPtr *before_out);
    nixl_status_t drop(const std::string &name, TargetPtr *before_out);
    nixl_status_t connect(const std::string &name);

    /* Null: nobody of this name is known. One's own name always is. */
    TargetPtr find(const std::string &name);
    std::vector<TargetPtr> all() const;
    /* The targets that are this peer. */
    std::vector<TargetPtr> of(weir_peer peer) const;
    /* The handle `from` names the same peer as `to`. */
    void same(weir_peer from, uint64_t to);
    const std::string &self_name() const {
        return self_;
    }

  private:
    weir_engine *engine_;
    const std::string self_;
    mutable std::shared_mutex lock_;
    std::map<std::string, TargetPtr> targets_;

    TargetPtr make(const std::string &name, weir_peer peer, bool self);
};

} // namespace weir_nixl

#endif
