/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.cpp: notifications that came. */
#include "inbox.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "status.h"

namespace weir_nixl {

namespace {

/* Of one call, each of up to so many notifications. A peer that sends without end keeps nobody. */
const int rounds_most = 64, round_notes = 256;
const std::chrono::seconds sweep_pause(1);
/* The bytes of a record without its texts, about. */
const size_t record_bytes = 128;

size_t bytes_of(const Note &note) {
    return record_bytes + note.name.size() + note.text.size();
}

} // namespace

Inbox::Inbox(weir_engine *engine, size_t held_most, std::chrono::seconds late_most)
    : engine_(engine), held_most_(held_most), late_most_(late_most) {
}

int Inbox::open() {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    options.number = inbox_number;
    options.message_bytes_max = message_bytes_max;
    return weir_inbox_open(engine_, &options, &inbox_);
}

void Inbox::take() {
    std::lock_guard<std::mutex> held(lock_);
    if (again_) {
        again_ = false;
        for (auto &[number, stream] : streams_)
            advance(stream);
    }
    int rounds = 0;
    while (rounds < rounds_most && take_round())
        rounds++;
    if (rounds < rounds_most)
        sweep();
}

/* A message or note that throws is looked at again in the next call. */
bool Inbox::take_round() {
    if (messages_done_ == message_count_) {
        messages_done_ = message_count_ = 0;
        weir_message_take_many(engine_, inbox_, messages_, round_messages, &message_count_);
    }
    bool any = message_count_ > 0;
    for (; messages_done_ < message_count_; messages_done_++)
        part(messages_[messages_done_]);
    if (any)
        weir_message_give_back_many(engine_, messages_, message_count_);
    messages_done_ = message_count_ = 0;
    for (int i = 0; i < round_notes; i++) {
        if (!note_waits_ && weir_notification_take(engine_, &note_) != WEIR_OK)
            return any;
        note_waits_ = true;
        note(note_);
        note_waits_ = false;
        any = true;
    }
    return any;
}

/* ---- streams -------------------------------------------------------------------- */

Inbox::Stream &Inbox::stream_of(uint64_t number, uint64_t from) {
    auto [place, made] = streams_.try_emplace(number);
    Stream &stream = place->second;
    stream.heard = std::chrono::steady_clock::now();
    if (!made && stream.from == from) {
        if (stream.over && !stream.left)
            heard_last(senders_.at(from), stream);
        return stream;
    }
    try {
        enlist(number, stream, from);
    } catch (...) {
        if (made)
            streams_.erase(place);
        throw;
    }
    return stream;
}

/* Behind its last step that can fail it is this sender's, and no other's. */
void Inbox::enlist(uint64_t number, Stream &stream, uint64_t from) {
    Sender &sender = senders_[from];
    sender.streams.reserve(streams_each + 1);
    if (stream.from != 0)
        delist(number, stream);
    else
        heard_last(sender, stream);
    stream.from = from;
    sender.streams.push_back(number);
    sender.held += stream.held;
    if (sender.streams.size() > streams_each) {
        auto oldest = streams_.find(sender.streams.front());
        delist(oldest->first, oldest->second);
        streams_.erase(oldest);
    }
}

/* A peer that begins another stream has ended the last; where a late one of the last comes behind
 * that, its next in the other says so. */
void Inbox::heard_last(const Sender &sender, Stream &stream) {
    for (uint64_t other : sender.streams) {
        Stream &before = streams_.at(other);
        ending_ = ending_ || !before.over;
        before.over = true;
    }
    stream.over = stream.ended = false;
}

void Inbox::delist(uint64_t number, const Stream &stream) {
    auto sender = senders_.find(stream.from);
    sender->second.held -= stream.held;
    std::erase(sender->second.streams, number);
    if (sender->second.streams.empty())
        senders_.erase(sender);
}

size_t Inbox::room(const Stream &stream) const {
    return held_most_ - std::min(held_most_, senders_.at(stream.from).held);
}

void Inbox::hold(Stream &stream, size_t bytes) {
    stream.held += bytes;
    senders_.at(stream.from).held += bytes;
}

void Inbox::let_go(Stream &stream, size_t bytes) {
    stream.held -= bytes;
    senders_.at(stream.from).held -= bytes;
}

/* ---- what comes ----------------------------------------------------------------- */

void Inbox::note(const weir_notification &came) {
    Note note;
    if (!note_read(came.payload, came.length, note)) /* not of a plug-in */
        return;
    Stream &stream = stream_of(note.stream, came.from.id);
    const size_t bytes = bytes_of(note);
    if (note.how == How::with_transfer) {
        if (bytes > room(stream)) {
            list_.emplace_back(std::move(note.name), std::move(note.text));
            return;
        }
        stream.behind.emplace(came.tag, std::move(note));
        hold(stream, bytes);
    } else if (came.tag > stream.done && bytes <= room(stream)) {
        if (stream.said.emplace(came.tag, std::move(note)).second)
            hold(stream, bytes);
    }
    advance(stream);
}

/* The record of a whole text is made before its last part is taken: behind that nothing throws. */
void Inbox::part(const weir_message &came) {
    Part part;
    if (!part_read(came.data, came.length, part))
        return;
    Stream &stream = stream_of(part.stream, came.from.id);
    if ((part.flags & last_part) == 0) {
        append(part, stream);
        return;
    }
    std::string *whole = nullptr;
    if (came.tag > stream.done && room(stream) >= record_bytes) {
        auto [place, made] = stream.wholes.try_emplace(came.tag);
        if (made) {
            whole = &place->second;
            hold(stream, record_bytes);
        }
    }
    append(part, stream);
    if (whole == nullptr)
        lose(stream);
    else
        *whole = std::move(stream.parts); /* empty: lost */
    stream.parts = std::string();
    stream.spoiled = false;
    advance(stream);
}

void Inbox::lose(Stream &stream) {
    let_go(stream, stream.parts.size());
    stream.parts = std::string();
    stream.spoiled = true;
}

void Inbox::append(const Part &part, Stream &stream) {
    if ((part.flags & first_part) != 0) {
        lose(stream);
        stream.spoiled = false;
    } else if (stream.parts.empty()) {
        stream.spoiled = true;
    }
    if (stream.spoiled)
        return;
    const char *why = nullptr;
    if (stream.parts.size() + part.length > text_bytes_max + name_bytes_max + 4)
        why = "it is too long";
    else if (part.length > room(stream))
        why = "too much of that peer's waits";
    try {
        if (why == nullptr) {
            stream.parts.append(part.bytes, part.length);
            hold(stream, part.length);
        }
    } catch (const std::exception &error) {
        why = error.what();
    }
    if (why != nullptr) {
        tell("a notification that came is lost: %s", why);
        lose(stream);
    }
}

/* ---- turns ---------------------------------------------------------------------- */

/* False: its messages are not there yet. */
bool Inbox::list_said(Stream &stream, Note &note, uint64_t number) {
    auto whole = stream.wholes.find(number);
    if (note.how != How::in_messages) {
        list_.emplace_back(std::move(note.name), std::move(note.text));
    } else if (whole == stream.wholes.end()) {
        return false;
    } else if (std::string name; size_t at = whole_read(whole->second, name)) {
        list_.emplace_back(std::move(name), std::string());
        let_go(stream, whole->second.size());
        list_.back().second = std::move(whole->second.erase(0, at));
        whole->second.clear();
    }
    if (whole != stream.wholes.end()) {
        let_go(stream, record_bytes + whole->second.size());
        stream.wholes.erase(whole);
    }
    return true;
}

/* Into the list, whatever has its turn. */
void Inbox::list_turns(Stream &stream) {
    for (;;) {
        auto behind = stream.behind.begin();
        auto said = stream.said.begin();
        if (behind != stream.behind.end() && (behind->first <= stream.done || stream.ended)) {
            const size_t bytes = bytes_of(behind->second);
            list_.emplace_back(std::move(behind->second.name), std::move(behind->second.text));
            stream.behind.erase(behind);
            let_go(stream, bytes);
        } else if (said != stream.said.end() && said->first == stream.done + 1) {
            const size_t bytes = bytes_of(said->second);
            if (!list_said(stream, said->second, said->first))
                return;
            stream.said.erase(said);
            let_go(stream, bytes);
            stream.done++;
        } else {
            return;
        }
    }
}

/* Where memory runs out all is as it was, and tried again. */
void Inbox::advance(Stream &stream) {
    try {
        list_turns(stream);
    } catch (const std::exception &) {
        again_ = true;
    }
}

/* All that had arrived was taken. */
void Inbox::sweep() {
    const auto now = std::chrono::steady_clock::now();
    if (!ending_ && now - swept_ < sweep_pause)
        return;
    ending_ = false;
    swept_ = now;
    for (auto each = streams_.begin(); each != streams_.end();) {
        Stream &stream = each->second;
        if (stream.over && !stream.ended) {
            stream.ended = true;
            advance(stream);
        }
        if (stream.left && now - stream.heard > late_most_) {
            delist(each->first, stream);
            each = streams_.erase(each);
        } else {
            ++each;
        }
    }
}

void Inbox::hand_over(notif_list_t &out) {
    std::lock_guard<std::mutex> held(lock_);
    if (out.empty())
        out.swap(list_);
    else
        out.insert(out.end(), std::make_move_iterator(list_.begin()),
                   std::make_move_iterator(list_.end()));
    list_.clear();
}

void Inbox::gone(weir_peer peer) {
    std::lock_guard<std::mutex> held(lock_);
    auto sender = senders_.find(peer.id);
    if (sender == senders_.end())
        return;
    for (uint64_t number : sender->second.streams) {
        Stream &stream = streams_.at(number);
        stream.over = stream.left = true;
        stream.heard = std::chrono::steady_clock::now();
    }
    ending_ = true;
}

void Inbox::sizes(size_t *streams_out, size_t *held_out) {
    std::lock_guard<std::mutex> held(lock_);
    *streams_out = streams_.size();
    *held_out = 0;
    for (const auto &[peer, sender] : senders_)
        *held_out += sender.held;
}

} // namespace weir_nixl
