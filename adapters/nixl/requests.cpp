/* SPDX-License-Identifier: Apache-2.0 */
/* requests.cpp: transfers. */
#include "requests.h"

#include <algorithm>

#include "status.h"
#include "words.h"

namespace weir_nixl {

Requests::Requests(weir_engine *engine, Memories &memories, Outbox &outbox)
    : engine_(engine), memories_(memories), outbox_(outbox) {
}

Requests::~Requests() {
    for (Request *request : left_)
        delete request;
}

/* ---- before the post ------------------------------------------------------------ */

nixl_status_t Requests::fill(Request &request, nixl_xfer_op_t operation,
                             const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
                             const TargetPtr &target) {
    if (!target)
        return NIXL_ERR_NOT_FOUND;
    int count = local.descCount();
    if (count <= 0 || count != remote.descCount())
        return NIXL_ERR_INVALID_PARAM;
    request.segments.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < static_cast<size_t>(count); i++) {
        nixl_status_t status = memories_.segment(local[i], remote[i], target, request.segments[i]);
        if (status != NIXL_SUCCESS)
            return status;
    }
    request.operation = operation;
    request.target = target;
    return NIXL_SUCCESS;
}

nixl_status_t Requests::prepare(nixl_xfer_op_t operation, const nixl_meta_dlist_t &local,
                                const nixl_meta_dlist_t &remote, const TargetPtr &target,
                                nixlBackendReqH *&out) {
    auto request = std::make_unique<Request>();
    nixl_status_t status = fill(*request, operation, local, remote, target);
    if (status == NIXL_SUCCESS)
        out = request.release();
    return status;
}

nixl_status_t Requests::word(Request &request, const nixl_opt_b_args_t *options) {
    request.notify = request.tells = false;
    if (options == nullptr || !options->hasNotif)
        return NIXL_SUCCESS;
    if (options->notifMsg.size() > text_bytes_max)
        return NIXL_ERR_NOT_SUPPORTED; /* and no byte moves */
    request.text = outbox_.along(*request.target, options->notifMsg, &request.tag);
    request.notify = !request.text.empty();
    request.tells = !request.notify;
    if (request.tells)
        request.text = options->notifMsg;
    return NIXL_SUCCESS;
}

nixl_status_t Requests::post(nixl_xfer_op_t operation, const nixl_meta_dlist_t &local,
                             const nixl_meta_dlist_t &remote, const TargetPtr &target,
                             nixlBackendReqH *handle, const nixl_opt_b_args_t *options) {
    if (handle == nullptr)
        return NIXL_ERR_INVALID_PARAM;
    Request &request = *static_cast<Request *>(handle);
    if (request.left || check(handle) == NIXL_IN_PROG)
        return NIXL_ERR_REPOST_ACTIVE;
    nixl_status_t status = fill(request, operation, local, remote, target);
    if (status == NIXL_SUCCESS && (target->failed || target->closed))
        status = NIXL_ERR_REMOTE_DISCONNECT;
    if (status == NIXL_SUCCESS)
        status = word(request, options);
    if (status == NIXL_SUCCESS)
        status = start(request);
    if (status != NIXL_IN_PROG)
        request.status = status;
    return status;
}

/* ---- posted --------------------------------------------------------------------- */

int Requests::submit(Request &request) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    if (request.notify) {
        options.flags = WEIR_TRANSFER_NOTIFY;
        options.notify_tag = request.tag;
        options.notify_payload = request.text.data();
        options.notify_length = static_cast<uint32_t>(request.text.size());
    }
    auto call = request.operation == NIXL_READ ? weir_read : weir_write;
    request.transfer = {};
    return call(engine_, request.target->peer, request.segments.data(), request.segments.size(),
                &options, &request.transfer);
}

nixl_status_t Requests::start(Request &request) {
    int rc = sharing_ != 0 && !queue_empty() ? WEIR_EAGAIN : submit(request);
    if (rc != WEIR_OK && rc != WEIR_EAGAIN)
        return status_of(rc);
    if (rc == WEIR_OK && !request.tells) {
        if (request.transfer.id == 0)
            return NIXL_SUCCESS;
        request.stage = Stage::posted;
        return NIXL_IN_PROG;
    }
    std::lock_guard<std::mutex> held(lock_);
    request.stage = rc == WEIR_EAGAIN ? Stage::queued : Stage::posted;
    share(request);
    advance(request);
    return request.stage == Stage::idle ? request.status : NIXL_IN_PROG;
}

/* Of a request that is posted: its status, and its handle is given back when it has one. */
nixl_status_t Requests::look(Request &request) {
    int rc = weir_transfer_status(engine_, request.transfer);
    if (rc == WEIR_EINPROGRESS)
        return NIXL_IN_PROG;
    if (request.transfer.id != 0)
        weir_transfer_release(engine_, request.transfer);
    request.transfer = {};
    return status_of(rc);
}

void Requests::finish(Request &request, nixl_status_t status) {
    request.stage = Stage::idle;
    request.status = status;
}

nixl_status_t Requests::check(nixlBackendReqH *handle) {
    if (handle == nullptr)
        return NIXL_ERR_INVALID_PARAM;
    Request &request = *static_cast<Request *>(handle);
    if (request.left)
        return NIXL_ERR_CANCELED;
    if (request.shared) {
        weir_engine_progress(engine_);
        std::lock_guard<std::mutex> held(lock_);
        advance_queue();
        if (request.shared)
            advance(request);
        if (request.shared)
            return NIXL_IN_PROG;
    }
    if (request.stage == Stage::idle)
        return request.status;
    nixl_status_t status = look(request);
    if (status == NIXL_IN_PROG && weir_engine_progress(engine_) > 0)
        status = look(request);
    if (status != NIXL_IN_PROG)
        finish(request, status);
    return status;
}

/* ---- shared: below the lock ----------------------------------------------------- */

bool Requests::queue_empty() {
    std::lock_guard<std::mutex> held(lock_);
    return queue_.empty();
}

void Requests::share(Request &request) {
    request.shared = true;
    sharing_++;
    if (request.stage == Stage::queued)
        queue_.push_back(&request);
    else
        telling_.push_back(&request);
}

void Requests::unshare(Request &request) {
    std::erase(queue_, &request);
    std::erase(telling_, &request);
    sharing_--;
    request.shared = false;
}

void Requests::advance(Request &request) {
    nixl_status_t status = NIXL_IN_PROG;
    if (request.stage == Stage::posted) {
        status = look(request);
        if (status == NIXL_SUCCESS && request.tells) {
            status = outbox_.send(*request.target, request.text, &request.stream, &request.number);
            if (status == NIXL_SUCCESS) {
                request.stage = Stage::telling;
                request.text = std::string();
            }
        }
    }
    if (request.stage == Stage::telling)
        status = outbox_.fate(*request.target, request.stream, request.number);
    if (status == NIXL_IN_PROG)
        return;
    finish(request, status);
    unshare(request);
}

/* Submits the requests that found weir's pools full, in their order. */
void Requests::advance_queue() {
    while (!queue_.empty()) {
        Request &request = *queue_.front();
        int rc = submit(request);
        if (rc == WEIR_EAGAIN)
            return;
        queue_.pop_front();
        if (rc != WEIR_OK) {
            finish(request, status_of(rc));
            unshare(request);
            continue;
        }
        request.stage = Stage::posted;
        if (request.tells) {
            telling_.push_back(&request);
            advance(request);
        } else { /* its caller's alone again */
            unshare(request);
        }
    }
}

void Requests::pump() {
    if (sharing_ == 0)
        return;
    std::lock_guard<std::mutex> held(lock_);
    advance_queue();
    const std::vector<Request *> telling = telling_;
    for (Request *request : telling)
        advance(*request);
}

/* ---- released ------------------------------------------------------------------- */

nixl_status_t Requests::leave(Request &request) {
    if (!request.left) {
        weir_transfer_cancel(engine_, request.transfer);
        if (look(request) == NIXL_IN_PROG)
            weir_engine_progress(engine_);
    }
    if (request.transfer.id == 0 || look(request) != NIXL_IN_PROG)
        return NIXL_SUCCESS;
    if (!request.left) {
        request.left = true;
        request.segments = {};
        std::lock_guard<std::mutex> held(lock_);
        left_.push_back(&request);
    }
    return NIXL_ERR_REPOST_ACTIVE;
}

nixl_status_t Requests::release(nixlBackendReqH *handle) {
    if (handle == nullptr)
        return NIXL_ERR_INVALID_PARAM;
    Request *request = static_cast<Request *>(handle);
    if (request->shared) {
        std::lock_guard<std::mutex> held(lock_);
        if (request->shared) {
            if (request->stage != Stage::posted)
                request->stage = Stage::idle; /* not posted yet; or quiet, and its words go on */
            unshare(*request);
        }
    }
    if (request->stage == Stage::posted) {
        nixl_status_t status = leave(*request);
        if (status != NIXL_SUCCESS)
            return status;
    }
    if (request->left) {
        std::lock_guard<std::mutex> held(lock_);
        std::erase(left_, request);
    }
    delete request;
    return NIXL_SUCCESS;
}

} // namespace weir_nixl
