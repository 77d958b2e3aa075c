/* SPDX-License-Identifier: Apache-2.0 */
/* peers.cpp: agents by name. */
#include "peers.h"

#include <mutex>
#include <random>

#include "status.h"

namespace weir_nixl {

namespace {

const char address_prefix[] = "weir1 ";

uint64_t random_stream() {
    std::random_device random;
    uint64_t stream = 0;
    while (stream == 0)
        stream = static_cast<uint64_t>(random()) << 32 | random();
    return stream;
}

} // namespace

Peers::Peers(weir_engine *engine, std::string self) : engine_(engine), self_(std::move(self)) {
}

nixl_status_t Peers::address(std::string &out) const {
    char text[WEIR_ADDRESS_MAX];
    int rc = weir_engine_address(engine_, text, sizeof(text));
    if (rc != WEIR_OK) {
        tell("the engine has no address for peers: %s", weir_strerror(rc));
        return rc == WEIR_ENOTSUP ? NIXL_ERR_NOT_SUPPORTED : NIXL_ERR_BACKEND;
    }
    out = address_prefix + std::string(text);
    return NIXL_SUCCESS;
}

TargetPtr Peers::make(const std::string &name, weir_peer peer, bool self) {
    auto target = std::make_shared<Target>();
    target->name = name;
    target->peer = peer;
    target->self = self;
    target->stream = random_stream();
    return target;
}

nixl_status_t Peers::load(const std::string &name, const std::string &address,
                          TargetPtr *before_out) {
    const std::string prefix = address_prefix;
    if (name.empty() || name == self_ || address.size() > WEIR_ADDRESS_MAX + prefix.size() ||
        address.compare(0, prefix.size(), prefix) != 0 || address.find('\0') != std::string::npos)
        return NIXL_ERR_INVALID_PARAM;
    weir_peer peer = {};
    int rc = weir_peer_open(engine_, address.c_str() + prefix.size(), &peer);
    if (rc != WEIR_OK) {
        tell("agent %s at %s: %s", name.c_str(), address.c_str() + prefix.size(),
             weir_strerror(rc));
        return rc == WEIR_EADDRESS ? NIXL_ERR_INVALID_PARAM : status_of(rc);
    }
    try {
        TargetPtr target = make(name, peer, false);
        std::unique_lock<std::shared_mutex> held(lock_);
        TargetPtr &place = targets_.try_emplace(name, target).first->second;
        if (place != target) { /* the agent forgot it, and said nothing */
            place->closed = true;
            *before_out = place;
        }
        place = target;
    } catch (...) { /* out of memory */
        weir_peer_close(engine_, peer);
        throw;
    }
    return NIXL_SUCCESS;
}

nixl_status_t Peers::drop(const std::string &name, TargetPtr *before_out) {
    if (name == self_)
        return NIXL_SUCCESS;
    std::unique_lock<std::shared_mutex> held(lock_);
    auto found = targets_.find(name);
    if (found == targets_.end())
        return NIXL_ERR_NOT_FOUND;
    found->second->closed = true;
    *before_out = found->second;
    targets_.erase(found);
    return NIXL_SUCCESS;
}

nixl_status_t Peers::connect(const std::string &name) {
    TargetPtr target = find(name);
    if (!target)
        return NIXL_ERR_NOT_FOUND;
    if (target->self)
        return NIXL_SUCCESS;
    if (target->failed)
        return NIXL_ERR_REMOTE_DISCONNECT;
    int rc = weir_peer_connect(engine_, target->peer);
    return rc == WEIR_ENOTREADY ? NIXL_SUCCESS : status_of(rc);
}

TargetPtr Peers::find(const std::string &name) {
    {
        std::shared_lock<std::shared_mutex> held(lock_);
        auto found = targets_.find(name);
        if (found != targets_.end())
            return found->second;
    }
    weir_peer peer = {};
    if (name != self_ || weir_peer_self(engine_, &peer) != WEIR_OK)
        return nullptr;
    TargetPtr target = make(name, peer, true);
    std::unique_lock<std::shared_mutex> held(lock_);
    return targets_.try_emplace(name, target).first->second;
}

std::vector<TargetPtr> Peers::all() const {
    std::shared_lock<std::shared_mutex> held(lock_);
    std::vector<TargetPtr> targets;
    for (const auto &[name, target] : targets_)
        targets.push_back(target);
    return targets;
}

std::vector<TargetPtr> Peers::of(weir_peer peer) const {
    std::vector<TargetPtr> targets;
    for (const TargetPtr &target : all())
        if (target->peer.id == peer.id || target->other == peer.id)
            targets.push_back(target);
    return targets;
}

void Peers::same(weir_peer from, uint64_t to) {
    for (const TargetPtr &target : of(from))
        target->other = to;
}

} // namespace weir_nixl
