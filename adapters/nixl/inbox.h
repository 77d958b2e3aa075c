/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.h: notifications that came, in one list.
 *
 * They are taken from weir as soon as they are there, by the plug-in's thread or by whoever asks,
 * so that an application that never asks holds up nobody. Notifications of one stream are put in
 * order (words.h): one that was said waits for the ones said before it, and for its messages, and
 * one that came with a transfer for the ones said before that. When the sender is gone, nothing
 * waits any more.
 *
 * A peer cannot make more wait than this, whatever it sends: streams_each streams of a peer are
 * known, and they hold `held_most` bytes. Beyond that a text that is not whole is lost, and what
 * came with a transfer does not wait. Without memory for a text the text is lost, and no more than
 * that; without memory for the record of one the inbox takes nothing until there is some. */
#ifndef WEIR_NIXL_INBOX_H
#define WEIR_NIXL_INBOX_H

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend_engine.h"

#include "weir.h"
#include "words.h"

namespace weir_nixl {

/* Of one peer. An agent has one stream for another, and begins the next when it met it anew. */
const size_t streams_each = 16;
/* Two of the longest texts: one that waits for its turn, and one that comes. */
const size_t held_usual = 2 * (text_bytes_max + name_bytes_max) + (size_t(64) << 20);
/* A peer's last may come behind the news of its end, but not by so much. */
const std::chrono::seconds late_usual(60);

class Inbox {
  public:
    explicit Inbox(weir_engine *engine, size_t held_most = held_usual,
                   std::chrono::seconds late_most = late_usual);
    /* A code of weir's. */
    int open();

    /* Takes what came; not all of it where that never ends. */
    void take();
    /* Appends the list to `out`, and empties it. */
    void hand_over(notif_list_t &out);
    /* The peer is gone: nothing that it sent waits for what did not come. */
    void gone(weir_peer peer);
    /* Streams that are known, and bytes that wait in them, records among them. */
    void sizes(size_t *streams_out, size_t *held_out);

  private:
    struct Stream {
        uint64_t from = 0;  /* the peer's handle */
        uint64_t done = 0;  /* of what was said, up to this number, all is in the list */
        bool over = false;  /* the peer was heard in another since, or is gone: */
        bool ended = false; /* and what had arrived was taken: what is behind waits no more */
        bool left = false;  /* the peer is gone */
        std::chrono::steady_clock::time_point heard = {}; /* last, or when it was gone */
        size_t held = 0;                                  /* bytes that wait, and their records */
        bool spoiled = false; /* the parts that come are too long, or have no begin */
        std::string parts;    /* of a text that is not whole yet */
        std::map<uint64_t, std::string> wholes; /* texts with their names, by number; "": lost */
        std::map<uint64_t, Note> said;
        std::multimap<uint64_t, Note> behind; /* came with transfers, by what they wait for */
    };
    struct Sender {
        std::vector<uint64_t> streams; /* the newest last */
        size_t held = 0;               /* bytes, of all of them */
    };

    weir_engine *engine_;
    const size_t held_most_;
    const std::chrono::seconds late_most_;
    std::mutex lock_;
    weir_inbox inbox_ = {};
    notif_list_t list_;
    std::unordered_map<uint64_t, Stream> streams_;
    std::unordered_map<uint64_t, Sender> senders_; /* by the peer's handle */
    bool ending_ = false;                          /* a stream is over that has not ended */
    bool again_ = false;                           /* memory ran out for the list */
    std::chrono::steady_clock::time_point swept_ = {};

    /* Taken from weir, and not looked at yet: at the next call, where memory ran out. */
    static constexpr size_t round_messages = 32;
    weir_message messages_[round_messages];
    size_t message_count_ = 0, messages_done_ = 0;
    weir_notification note_;
    bool note_waits_ = false;

    bool take_round();
    Stream &stream_of(uint64_t number, uint64_t from);
    void enlist(uint64_t number, Stream &stream, uint64_t from);
    void heard_last(const Sender &sender, Stream &stream);
    void delist(uint64_t number, const Stream &stream);
    void note(const weir_notification &came);
    void part(const weir_message &came);
    void append(const Part &part, Stream &stream);
    void lose(Stream &stream);
    size_t room(const Stream &stream) const;
    void hold(Stream &stream, size_t bytes);
    void let_go(Stream &stream, size_t bytes);
    bool list_said(Stream &stream, Note &note, uint64_t number);
    void advance(Stream &stream);
    void list_turns(Stream &stream);
    void sweep();
};

} // namespace weir_nixl

#endif
