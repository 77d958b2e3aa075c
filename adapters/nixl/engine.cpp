/* SPDX-License-Identifier: Apache-2.0 */
/* engine.cpp: NIXL's backend over a weir engine. */
#include "engine.h"

#include <chrono>
#include <csignal>
#include <exception>
#include <thread>

#include "status.h"
#include "words.h"

namespace weir_nixl {

namespace {

/* Between two looks of the thread when nothing wakes it: at what waits, and at nothing. */
const uint64_t look_ns = 2000000, idle_ns = 500000000;

/* NIXL's callers do not expect exceptions: here only memory can run out. An engine that did not
 * open does nothing. */
template <typename Call> nixl_status_t guarded(bool closed, Call &&call) {
    try {
        return closed ? NIXL_ERR_BACKEND : call();
    } catch (const std::exception &error) {
        tell("%s", error.what());
        return NIXL_ERR_BACKEND;
    }
}

/* A child of fork has a copy of each lock, which a thread that it does not have may hold: nothing
 * of its parent's is touched there. */
std::atomic<unsigned> forks{0};
bool forks_are_counted() {
    static const bool counted = pthread_atfork(nullptr, nullptr, [] { forks++; }) == 0;
    return counted;
}

} // namespace

/* ---- begin and end -------------------------------------------------------------- */

Engine::Engine(const nixlBackendInitParams *parameters)
    : nixlBackendEngine(parameters), forks_(forks) {
    initErr = true;
    guarded(false, [&] { /* where it throws the destructor has to clean up */
                         initErr = !open(*parameters);
                         return NIXL_SUCCESS;
    });
}

bool Engine::usable() const {
    return !initErr && forks_ == forks;
}

bool Engine::open_engine(const nixlBackendInitParams &parameters) {
    if (localAgent.empty() || localAgent.size() > name_bytes_max) {
        tell("the name of an agent has 1 to %zu bytes", name_bytes_max);
        return false;
    }
    static const nixl_b_params_t none;
    if (!settings_read(parameters.customParams == nullptr ? none : *parameters.customParams,
                       settings_))
        return false;
    int rc = weir_engine_open(&settings_.engine, &engine_);
    if (rc != WEIR_OK) {
        char why[WEIR_OPEN_NOTE_MAX] = "";
        weir_open_explain(&settings_.engine, rc, why, sizeof(why));
        tell("agent %s: no engine: %s", localAgent.c_str(),
             why[0] == '\0' ? weir_strerror(rc) : why);
        return false;
    }
    return true;
}

bool Engine::open(const nixlBackendInitParams &parameters) {
    if (!forks_are_counted()) {
        tell("agent %s: out of memory", localAgent.c_str());
        return false;
    }
    if (!open_engine(parameters))
        return false;
    peers_ = std::make_unique<Peers>(engine_, localAgent);
    inbox_ = std::make_unique<Inbox>(engine_);
    outbox_ = std::make_unique<Outbox>(engine_, localAgent);
    memories_ = std::make_unique<Memories>(engine_, settings_.cuda_library, [this](Target &target) {
        take_events(); /* of the process whose place this memory's has taken */
        if (target.failed)
            outbox_->renew(target);
    });
    requests_ = std::make_unique<Requests>(engine_, *memories_, *outbox_);
    int rc = inbox_->open();
    if (rc == WEIR_OK)
        rc = outbox_->open();
    if (rc != WEIR_OK)
        tell("agent %s: no memory for notifications: %s", localAgent.c_str(), weir_strerror(rc));
    return rc == WEIR_OK && start_thread();
}

/* The thread blocks all signals but those that a fault raises, which reach their handlers. */
bool Engine::start_thread() {
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
        sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    thread_runs_ = pthread_create(&thread_, nullptr, thread_main, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread_runs_)
        tell("agent %s: no thread can be made", localAgent.c_str());
    return thread_runs_;
}

/* A notification to oneself ends the thread's sleep. */
void Engine::stop_thread() {
    stop_ = true;
    weir_peer self = {};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY;
    weir_transfer transfer = {};
    if (weir_peer_self(engine_, &self) == WEIR_OK)
        weir_write(engine_, self, nullptr, 0, &options, &transfer);
    pthread_join(thread_, nullptr);
    thread_runs_ = false;
}

void Engine::flush() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
    while (outbox_->busy() && Clock::now() < end) {
        outbox_->pump(peers_->all());
        weir_engine_wait(engine_, look_ns);
    }
}

Engine::~Engine() {
    if (engine_ == nullptr)
        return;
    if (forks_ != forks) { /* a child of fork: it has neither the thread nor the engine */
        weir_engine_close(engine_);
        return;
    }
    if (thread_runs_) {
        stop_thread();
        guarded(false, [this] {
            flush();
            return NIXL_SUCCESS;
        });
    }
    weir_engine_close(engine_);
}

/* ---- the thread ----------------------------------------------------------------- */

void *Engine::thread_main(void *self) {
    static_cast<Engine *>(self)->run();
    return nullptr;
}

void Engine::run() {
    while (!stop_) {
        const bool busy = requests_->busy() || outbox_->busy() || memories_->busy();
        const bool failed = weir_engine_wait(engine_, busy ? look_ns : idle_ns) == WEIR_EDEVICE;
        nixl_status_t status = guarded(false, [this] {
            inbox_->take();
            take_events();
            requests_->pump();
            if (outbox_->busy())
                outbox_->pump(peers_->all());
            memories_->pump();
            return NIXL_SUCCESS;
        });
        if (failed || status != NIXL_SUCCESS) /* without memory nothing of what waits is taken */
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

void Engine::gone(const weir_event &event) {
    for (const TargetPtr &target : peers_->of(event.peer)) {
        char why[WEIR_REFUSAL_TEXT_MAX] = "";
        weir_refusal_text(engine_, event.peer, why, sizeof(why));
        if (event.error != WEIR_EPEER && event.error != WEIR_ECLOSED)
            tell("agent %s is not reached: %s%s%s", target->name.c_str(),
                 weir_strerror(event.error), why[0] == '\0' ? "" : "; ", why);
        outbox_->fail(*target);
        target->silent = false;
    }
    inbox_->gone(event.peer);
}

void Engine::take_events() {
    std::lock_guard<std::mutex> held(events_lock_);
    weir_event event;
    while (weir_event_take(engine_, &event) == WEIR_OK) {
        if (event.type == WEIR_EVENT_GONE)
            gone(event);
        else if (event.type == WEIR_EVENT_SAME)
            peers_->same(event.peer, event.value);
        else if (event.type == WEIR_EVENT_DEVICE_FAILED)
            tell("agent %s: the device failed; its transfers end", localAgent.c_str());
    }
}

/* ---- what it can ---------------------------------------------------------------- */

bool Engine::supportsRemote() const {
    return true;
}

bool Engine::supportsLocal() const {
    return true;
}

bool Engine::supportsNotif() const {
    return true;
}

nixl_mem_list_t Engine::getSupportedMems() const {
    return {DRAM_SEG, VRAM_SEG};
}

/* ---- memory --------------------------------------------------------------------- */

nixl_status_t Engine::registerMem(const nixlBlobDesc &range, const nixl_mem_t &type,
                                  nixlBackendMD *&out) {
    return guarded(!usable(), [&] { return memories_->add(range, type, out); });
}

nixl_status_t Engine::deregisterMem(nixlBackendMD *metadata) {
    return guarded(!usable(), [&] { return memories_->remove(metadata); });
}

nixl_status_t Engine::getPublicData(const nixlBackendMD *metadata, std::string &out) const {
    return guarded(!usable(), [&] { return memories_->describe(metadata, out); });
}

nixl_status_t Engine::loadRemoteMD(const nixlBlobDesc &range, const nixl_mem_t &type,
                                   const std::string &agent, nixlBackendMD *&out) {
    return guarded(!usable(),
                   [&] { return memories_->load(range, type, peers_->find(agent), out); });
}

nixl_status_t Engine::loadLocalMD(nixlBackendMD *local, nixlBackendMD *&out) {
    return guarded(!usable(),
                   [&] { return memories_->load_own(local, peers_->find(localAgent), out); });
}

nixl_status_t Engine::unloadMD(nixlBackendMD *metadata) {
    return guarded(!usable(), [&] { return memories_->unload(metadata); });
}

/* ---- peers ---------------------------------------------------------------------- */

nixl_status_t Engine::getConnInfo(std::string &out) const {
    return guarded(!usable(), [&] { return peers_->address(out); });
}

/* Events first: the ones there are concern the process that had this name until now. */
nixl_status_t Engine::loadRemoteConnInfo(const std::string &agent, const std::string &info) {
    return guarded(!usable(), [&] {
        TargetPtr before;
        take_events();
        nixl_status_t status = peers_->load(agent, info, &before);
        if (before)
            outbox_->retire(before);
        return status;
    });
}

nixl_status_t Engine::connect(const std::string &agent) {
    return guarded(!usable(), [&] { return peers_->connect(agent); });
}

nixl_status_t Engine::disconnect(const std::string &agent) {
    return guarded(!usable(), [&] {
        TargetPtr before;
        nixl_status_t status = peers_->drop(agent, &before);
        if (before)
            outbox_->retire(before);
        return status;
    });
}

/* ---- transfers ------------------------------------------------------------------ */

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                               const nixl_meta_dlist_t &remote, const std::string &agent,
                               nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const {
    return guarded(!usable(), [&] {
        return requests_->prepare(operation, local, remote, peers_->find(agent), handle);
    });
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                               const nixl_meta_dlist_t &remote, const std::string &agent,
                               nixlBackendReqH *&handle, const nixl_opt_b_args_t *options) const {
    return guarded(!usable(), [&] {
        return requests_->post(operation, local, remote, peers_->find(agent), handle, options);
    });
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const {
    return guarded(!usable(), [&] { return requests_->check(handle); });
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const {
    return guarded(!usable(), [&] { return requests_->release(handle); });
}

/* ---- notifications -------------------------------------------------------------- */

nixl_status_t Engine::getNotifs(notif_list_t &list) {
    return guarded(!usable(), [&] {
        if (!list.empty())
            return NIXL_ERR_INVALID_PARAM;
        weir_engine_progress(engine_);
        inbox_->take();
        inbox_->hand_over(list);
        return NIXL_SUCCESS;
    });
}

nixl_status_t Engine::genNotif(const std::string &agent, const std::string &text) const {
    return guarded(!usable(), [&] {
        TargetPtr target = peers_->find(agent);
        uint64_t stream, number;
        return target ? outbox_->send(*target, text, &stream, &number) : NIXL_ERR_NOT_FOUND;
    });
}

} // namespace weir_nixl
