/* SPDX-License-Identifier: Apache-2.0 */
/* outbox.cpp: notifications that are sent. */
#include "outbox.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "status.h"
#include "words.h"

namespace weir_nixl {

namespace {

const size_t block_slots = 64;
/* Of one target, under way: a stopped one keeps no more. */
const size_t target_slots = 16, target_sent = 128;

} // namespace

Outbox::Outbox(weir_engine *engine, const std::string &self) : engine_(engine), self_(self) {
}

int Outbox::open() {
    const size_t slots = blocks_.size() * block_slots;
    blocks_.reserve(blocks_.size() + 1);
    free_.reserve(slots + block_slots);
    Block block = {};
    void *base = nullptr;
    int rc =
        weir_memory_allocate(engine_, block_slots * message_bytes_max, 0, &block.memory, &base);
    if (rc != WEIR_OK)
        return rc;
    block.base = static_cast<char *>(base);
    blocks_.push_back(block);
    for (size_t i = block_slots; i-- > 0;)
        free_.push_back(static_cast<int>(slots + i));
    return WEIR_OK;
}

nixl_status_t Outbox::send(Target &target, const std::string &text, uint64_t *stream_out,
                           uint64_t *number_out) {
    if (text.size() > text_bytes_max)
        return NIXL_ERR_NOT_SUPPORTED;
    std::lock_guard<std::mutex> held(lock_);
    if (target.failed || target.closed)
        return NIXL_ERR_REMOTE_DISCONNECT;
    Outgoing next = {target.said + 1, note_write(How::said, target.stream, self_, text), "", 0};
    if (next.payload.empty()) {
        next.payload = note_write(How::in_messages, target.stream, "", "");
        next.parts = whole_write(self_, text);
    }
    target.queue.push_back(std::move(next));
    target.said++;
    waiting_++;
    *stream_out = target.stream;
    *number_out = target.said;
    settle(target);
    push(target);
    return target.failed ? NIXL_ERR_REMOTE_DISCONNECT : NIXL_SUCCESS;
}

nixl_status_t Outbox::fate(Target &target, uint64_t stream, uint64_t number) {
    std::lock_guard<std::mutex> held(lock_);
    if (target.stream == stream) {
        settle(target);
        push(target);
        if (target.arrived >= number)
            return NIXL_SUCCESS;
        if (!target.failed && !target.closed)
            return NIXL_IN_PROG;
    }
    return NIXL_ERR_REMOTE_DISCONNECT;
}

std::string Outbox::along(Target &target, const std::string &text, uint64_t *tag_out) {
    std::lock_guard<std::mutex> held(lock_);
    *tag_out = target.said;
    return note_write(How::with_transfer, target.stream, self_, text);
}

/* Below the lock from here on. Sends, as long as there are slots and weir takes it. */
void Outbox::push(Target &target) {
    while (!target.queue.empty() && !target.failed) {
        int rc = send_next(target, target.queue.front());
        if (rc == WEIR_EAGAIN)
            return;
        if (rc != WEIR_OK) {
            drop(target);
            return;
        }
        target.queue.pop_front();
        waiting_--;
    }
}

int Outbox::send_next(Target &target, Outgoing &next) {
    while (next.done < next.parts.size()) {
        int rc = send_part(target, next);
        if (rc != WEIR_OK)
            return rc;
    }
    return send_note(target, next);
}

/* The submit of the last of `sent` had this result. */
int Outbox::under_way(Target &target, int rc) {
    const Sent &sent = target.sent.back();
    if (rc != WEIR_OK) {
        target.sent.pop_back();
    } else if (sent.transfer.id == 0 && target.sent.size() == 1) { /* it is there already */
        if (sent.number != 0)
            target.arrived = sent.number;
        target.sent.pop_back();
    } else {
        if (sent.slot >= 0) {
            free_.pop_back();
            target.slots++;
        }
        waiting_++;
    }
    return rc;
}

int Outbox::send_note(Target &target, const Outgoing &next) {
    if (target.sent.size() >= target_sent)
        return WEIR_EAGAIN;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = next.number;
    options.notify_payload = next.payload.data();
    options.notify_length = static_cast<uint32_t>(next.payload.size());
    target.sent.push_back({{}, -1, next.number});
    weir_transfer &transfer = target.sent.back().transfer;
    return under_way(target, weir_write(engine_, target.peer, nullptr, 0, &options, &transfer));
}

/* The slot at the end of `free_`, which under_way takes. */
int Outbox::slot_for(Target &target, int *slot_out) {
    if (target.slots >= target_slots || (free_.empty() && open() != WEIR_OK))
        return WEIR_EAGAIN;
    *slot_out = free_.back();
    return WEIR_OK;
}

int Outbox::send_part(Target &target, Outgoing &next) {
    size_t length = std::min(next.parts.size() - next.done, message_bytes_max - part_head);
    bool copied = part_head + length <= WEIR_MESSAGE_COPY_MAX;
    int slot = -1;
    if (target.sent.size() >= target_sent || (!copied && slot_for(target, &slot) != WEIR_OK))
        return WEIR_EAGAIN;
    char small[WEIR_MESSAGE_COPY_MAX];
    weir_part part = {};
    char *bytes = small;
    if (copied) {
        part.base = bytes;
    } else {
        const Block &block = blocks_[static_cast<size_t>(slot) / block_slots];
        part.local = block.memory;
        part.offset = static_cast<size_t>(slot) % block_slots * message_bytes_max;
        bytes = block.base + part.offset;
    }
    bool last = next.done + length == next.parts.size();
    int flags = (next.done == 0 ? first_part : 0) | (last ? last_part : 0);
    part_write_head(bytes, static_cast<uint8_t>(flags), target.stream);
    std::memcpy(bytes + part_head, next.parts.data() + next.done, length);
    part.length = part_head + length;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.notify_tag = next.number;
    target.sent.push_back({{}, slot, 0});
    weir_transfer &transfer = target.sent.back().transfer;
    int rc = under_way(target, weir_message_send(engine_, target.peer, inbox_number, &part, 1,
                                                 &options, &transfer));
    if (rc == WEIR_OK)
        next.done += length;
    return rc;
}

/* Whether it is over; its slot is free then. */
bool Outbox::over(const Sent &sent, int *status_out) {
    *status_out = weir_transfer_status(engine_, sent.transfer);
    if (*status_out == WEIR_EINPROGRESS)
        return false;
    if (sent.transfer.id != 0)
        weir_transfer_release(engine_, sent.transfer);
    if (sent.slot >= 0)
        free_.push_back(sent.slot);
    waiting_--;
    return true;
}

/* Looks at what became of what is under way. */
void Outbox::settle(Target &target) {
    int rc;
    while (!target.sent.empty() && over(target.sent.front(), &rc)) {
        uint64_t number = target.sent.front().number;
        target.slots -= target.sent.front().slot >= 0;
        target.sent.pop_front();
        if (rc != WEIR_OK)
            drop(target);
        else if (!target.failed && number != 0)
            target.arrived = number;
    }
}

/* A message did not arrive, or the target is gone: none behind it is to arrive without it. */
void Outbox::drop(Target &target) {
    target.failed = true;
    waiting_ -= target.queue.size();
    target.queue.clear();
}

void Outbox::leave(Target &target) {
    settle(target);
    drop(target);
    strays_.reserve(strays_.size() + target.sent.size());
    strays_.insert(strays_.end(), target.sent.begin(), target.sent.end());
    target.sent.clear();
    target.slots = 0;
}

void Outbox::fail(Target &target) {
    std::lock_guard<std::mutex> held(lock_);
    settle(target);
    drop(target);
}

void Outbox::retire(const TargetPtr &target) {
    std::lock_guard<std::mutex> held(lock_);
    retired_.push_back({target, std::chrono::steady_clock::now() + std::chrono::seconds(5)});
    waiting_++;
    pump_strays();
}

bool Outbox::retired_over(const Retired &each) {
    Target &target = *each.target;
    settle(target);
    push(target);
    if (!target.failed && !(target.queue.empty() && target.sent.empty()) &&
        std::chrono::steady_clock::now() < each.end)
        return false;
    leave(target);
    weir_peer_close(engine_, target.peer);
    waiting_--;
    return true;
}

void Outbox::pump_strays() {
    for (size_t i = 0; i < retired_.size();)
        if (retired_over(retired_[i]))
            retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
        else
            i++;
    std::erase_if(strays_, [this](const Sent &sent) {
        int rc;
        return over(sent, &rc);
    });
}

void Outbox::renew(Target &target) {
    std::lock_guard<std::mutex> held(lock_);
    if (!target.failed || target.closed)
        return;
    leave(target);
    std::random_device random;
    target.stream = static_cast<uint64_t>(random()) << 32 | random();
    target.said = target.arrived = 0;
    target.failed = false;
}

void Outbox::pump(const std::vector<TargetPtr> &targets) {
    if (waiting_ == 0)
        return;
    std::lock_guard<std::mutex> held(lock_);
    for (const TargetPtr &target : targets) {
        settle(*target);
        push(*target);
    }
    pump_strays();
}

} // namespace weir_nixl
