/* SPDX-License-Identifier: Apache-2.0 */
/* agent.cpp: an agent that does with a plug-in what NIXL's does. */
#include "agent.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <thread>

#include "weir.h"

namespace {

using Clock = std::chrono::steady_clock;
const std::chrono::seconds patience(500); /* ends what hangs, and nothing else */

/* Blobs are made of texts, each behind its length. */
void put(std::string &blob, const std::string &text) {
    uint64_t length = text.size();
    blob.append(reinterpret_cast<const char *>(&length), sizeof(length));
    blob += text;
}

std::string get(const std::string &blob, size_t &at) {
    uint64_t length = 0;
    assert_true(blob.size() - at >= sizeof(length));
    std::memcpy(&length, blob.data() + at, sizeof(length));
    at += sizeof(length);
    assert_true(blob.size() - at >= length);
    std::string text = blob.substr(at, length);
    at += length;
    return text;
}

bool holds(uintptr_t base, size_t length, const Piece &piece) {
    uintptr_t at = reinterpret_cast<uintptr_t>(piece.at);
    return at >= base && at - base <= length && piece.length <= length - (at - base);
}

uint8_t byte_of(uint64_t seed, size_t i) {
    uint64_t x = (seed * 0x9e3779b97f4a7c15u) ^ (i / 8 + 1) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return static_cast<uint8_t>(x >> (8 * (i % 8)));
}

} // namespace

nixlBackendPlugin *plugin() {
    static nixlBackendPlugin *loaded = nullptr;
    if (loaded != nullptr)
        return loaded;
    const char *file = std::getenv("WEIR_NIXL_PLUGIN");
    assert_non_null(file);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        fail_msg("%s", dlerror());
    auto init = reinterpret_cast<nixlBackendPlugin *(*)()>(dlsym(library, "nixl_plugin_init"));
    assert_non_null(reinterpret_cast<void *>(init));
    loaded = init();
    assert_non_null(loaded);
    return loaded;
}

/* ---- an agent ------------------------------------------------------------------- */

Agent::Agent(const std::string &of, const Parameters &parameters) : name(of) {
    Parameters own = parameters;
    const char *device = std::getenv("WEIR_NIXL_DEVICE");
    own.try_emplace("device", device == nullptr ? "shm" : device);
    nixlBackendInitParams init;
    init.localAgent = name;
    init.type = "WEIR";
    init.customParams = &own;
    init.enableProgTh = true;
    init.syncMode = nixl_thread_sync_t::NIXL_THREAD_SYNC_RW;
    engine = plugin()->create_engine(&init);
    assert_non_null(engine);
    assert_false(engine->getInitErr());
    assert_int_equal(engine->connect(name), NIXL_SUCCESS);
}

Agent::~Agent() {
    while (!others_.empty())
        forget(others_.begin()->first);
    while (!regions_.empty())
        remove(reinterpret_cast<void *>(regions_.back()->base));
    plugin()->destroy_engine(engine);
}

Region &Agent::add(void *base, size_t length) {
    auto region = std::make_unique<Region>();
    region->base = reinterpret_cast<uintptr_t>(base);
    region->length = length;
    nixlBlobDesc range(region->base, length, 0);
    assert_int_equal(engine->registerMem(range, DRAM_SEG, region->local), NIXL_SUCCESS);
    assert_int_equal(engine->loadLocalMD(region->local, region->self), NIXL_SUCCESS);
    regions_.push_back(std::move(region));
    return *regions_.back();
}

nixl_status_t Agent::remove(void *base) {
    for (auto each = regions_.begin(); each != regions_.end(); ++each) {
        if ((*each)->base != reinterpret_cast<uintptr_t>(base))
            continue;
        assert_int_equal(engine->unloadMD((*each)->self), NIXL_SUCCESS);
        nixl_status_t status = engine->deregisterMem((*each)->local);
        regions_.erase(each);
        return status;
    }
    return NIXL_ERR_NOT_FOUND;
}

std::string Agent::metadata() const {
    std::string blob, part;
    put(blob, name);
    assert_int_equal(engine->getConnInfo(part), NIXL_SUCCESS);
    put(blob, part);
    for (const auto &region : regions_) {
        assert_int_equal(engine->getPublicData(region->local, part), NIXL_SUCCESS);
        put(blob, std::to_string(region->base) + " " + std::to_string(region->length));
        put(blob, part);
    }
    return blob;
}

nixl_status_t Agent::load(const std::string &metadata) {
    size_t at = 0;
    const std::string peer = get(metadata, at), address = get(metadata, at);
    nixl_status_t status = NIXL_SUCCESS;
    if (others_.count(peer) == 0)
        status = engine->loadRemoteConnInfo(peer, address);
    if (status != NIXL_SUCCESS)
        return status;
    std::vector<Remote> &ranges = others_[peer];
    while (at < metadata.size()) {
        char *end = nullptr;
        std::string where = get(metadata, at), data = get(metadata, at);
        uintptr_t base = std::strtoull(where.c_str(), &end, 10);
        size_t length = std::strtoull(end, nullptr, 10);
        nixlBackendMD *loaded = nullptr;
        status = engine->loadRemoteMD(nixlBlobDesc(base, length, 0, data), DRAM_SEG, peer, loaded);
        if (status != NIXL_SUCCESS)
            return status;
        ranges.insert(ranges.begin(), Remote{base, length, loaded}); /* the newest is found first */
    }
    return NIXL_SUCCESS;
}

void Agent::forget(std::string peer) {
    for (const Remote &each : others_[peer])
        assert_int_equal(engine->unloadMD(each.metadata), NIXL_SUCCESS);
    others_.erase(peer);
    assert_int_equal(engine->disconnect(peer), NIXL_SUCCESS);
}

nixlBackendMD *Agent::local_of(const Piece &piece) const {
    for (const auto &region : regions_)
        if (holds(region->base, region->length, piece))
            return region->local;
    return nullptr;
}

nixlBackendMD *Agent::remote_of(const std::string &peer, const Piece &piece) const {
    if (peer == name) {
        for (const auto &region : regions_)
            if (holds(region->base, region->length, piece))
                return region->self;
        return nullptr;
    }
    auto found = others_.find(peer);
    if (found == others_.end())
        return nullptr;
    for (const Remote &each : found->second)
        if (holds(each.base, each.length, piece))
            return each.metadata;
    return nullptr;
}

nixl_status_t Agent::move(nixl_xfer_op_t operation, const Pieces &local, const std::string &peer,
                          const Pieces &remote, const std::string *notification) {
    Transfer transfer(*this, operation, local, peer, remote);
    if (transfer.prepared != NIXL_SUCCESS)
        return transfer.prepared;
    nixl_status_t status = transfer.post(notification);
    return status == NIXL_IN_PROG ? transfer.wait() : status;
}

nixl_status_t Agent::say(const std::string &peer, const std::string &text) {
    return engine->genNotif(peer, text);
}

notif_list_t Agent::notifications() {
    notif_list_t list;
    assert_int_equal(engine->getNotifs(list), NIXL_SUCCESS);
    return list;
}

notif_list_t Agent::notifications(size_t count) {
    const Clock::time_point end = Clock::now() + patience;
    notif_list_t all = notifications();
    while (all.size() < count && Clock::now() < end) {
        notif_list_t more = notifications();
        if (more.empty())
            sleep_ms(1);
        all.insert(all.end(), more.begin(), more.end());
    }
    assert_int_equal(all.size(), count);
    return all;
}

/* ---- a transfer ----------------------------------------------------------------- */

Transfer::Transfer(Agent &agent, nixl_xfer_op_t operation, const Pieces &local,
                   const std::string &peer, const Pieces &remote)
    : agent_(agent), operation_(operation), peer_(peer), local_(DRAM_SEG), remote_(DRAM_SEG) {
    for (const Piece &piece : local)
        local_.emplace(reinterpret_cast<uintptr_t>(piece.at), piece.length, uint64_t(0),
                       agent.local_of(piece));
    for (const Piece &piece : remote)
        remote_.emplace(reinterpret_cast<uintptr_t>(piece.at), piece.length, uint64_t(0),
                        agent.remote_of(peer, piece));
    prepared = agent.engine->prepXfer(operation_, local_, remote_, peer_, handle);
}

Transfer::~Transfer() {
    if (handle != nullptr)
        release();
}

nixl_status_t Transfer::post(const std::string *notification) {
    nixl_opt_b_args_t options;
    if (notification != nullptr) {
        options.hasNotif = true;
        options.notifMsg = *notification;
    }
    return agent_.engine->postXfer(operation_, local_, remote_, peer_, handle, &options);
}

nixl_status_t Transfer::check() {
    return agent_.engine->checkXfer(handle);
}

nixl_status_t Transfer::wait() {
    const Clock::time_point end = Clock::now() + patience;
    nixl_status_t status;
    while ((status = check()) == NIXL_IN_PROG && Clock::now() < end)
        std::this_thread::yield();
    return status;
}

nixl_status_t Transfer::release() {
    nixl_status_t status = agent_.engine->releaseReqH(handle);
    if (status == NIXL_SUCCESS)
        handle = nullptr;
    return status;
}

/* ---- bytes ---------------------------------------------------------------------- */

void fill(void *at, size_t length, uint64_t seed) {
    for (size_t i = 0; i < length; i++)
        static_cast<uint8_t *>(at)[i] = byte_of(seed, i);
}

void expect(const void *at, size_t length, uint64_t seed) {
    for (size_t i = 0; i < length; i++)
        if (static_cast<const uint8_t *>(at)[i] != byte_of(seed, i))
            fail_msg("byte %zu of %zu is not that of seed %llu", i, length,
                     static_cast<unsigned long long>(seed));
}

std::string text_of(size_t length, uint64_t seed) {
    std::string text(length, '\0');
    fill(text.data(), length, seed);
    return text;
}

void sleep_ms(unsigned ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

size_t many(size_t count) {
#ifdef __SANITIZE_THREAD__
    return count / 5;
#else
    return count;
#endif
}

void need_device() {
    const char *name = std::getenv("WEIR_NIXL_DEVICE");
    if (name == nullptr || has_device(name))
        return;
    std::printf("no device %s here\n", name);
    std::exit(77);
}

bool has_device(const char *name) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.device = name;
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    return weir_device_choose(&options, &info) == WEIR_OK && info.available == WEIR_OK;
}
