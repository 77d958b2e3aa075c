/* SPDX-License-Identifier: Apache-2.0 */
/* inboxes.h: the inboxes of this engine. */
#ifndef WEIR_ENGINE_INBOXES_H
#define WEIR_ENGINE_INBOXES_H

#include "state.h"

/* The one that a handle names; NULL: none. */
struct inbox_entry *inboxes_find(weir_engine *engine, uint64_t id);
/* The one that peers name by this number; NULL: none is open. */
struct inbox_entry *inboxes_numbered(weir_engine *engine, uint32_t number);
/* A free entry, whose memory and tables the caller makes; NULL: there are INBOXES_MAX. */
struct inbox_entry *inboxes_take(weir_engine *engine);
/* The entry has all it needs: peers find it. */
void inboxes_begin(weir_engine *engine, struct inbox_entry *entry);
/* It was taken, and could not be made. */
void inboxes_drop(struct inbox_entry *entry);
/* Its number is free; its memory lasts until nothing is written there or held. */
void inboxes_close(weir_engine *engine, struct inbox_entry *entry);

/* A word that came from a peer; false: no engine says so. */
bool inboxes_arrived(weir_engine *engine, struct peer *peer, const uint8_t *payload,
                     uint32_t length, uint64_t tag);
bool inboxes_heard(weir_engine *engine, struct peer *peer, const struct word *word);
/* The next word for the peer that fits in `room` bytes; false: nothing, or *more_out. */
bool inboxes_say(weir_engine *engine, struct peer *peer, uint32_t room, struct word *word_out,
                 bool *more_out);

/* Looks for direct messages of the streams that are watched, of this inbox or of all. True: there
 * is a message in an inbox that had none. */
bool inboxes_watch(weir_engine *engine, struct inbox_entry *entry);
bool inboxes_watch_all(weir_engine *engine);
/* Before this engine sleeps: looks once more, and watches none. True: there was one. */
bool inboxes_rest(weir_engine *engine);

/* The stream is over, and so is the memory of its loans. */
void inboxes_stream_over(weir_engine *engine, struct inbox_entry *entry, uint32_t stream);
/* Where the loan is in this process; NULL: its sender told what cannot be. */
const uint8_t *inboxes_loan(const struct inbox_entry *entry, const struct inbox_message *message,
                            uint32_t length);
/* The application has done with it. */
void inboxes_loan_back(weir_engine *engine, struct inbox_entry *entry,
                       const struct inbox_message *message);

/* Room came free, or is wanted. */
void inboxes_grant(weir_engine *engine, struct inbox_entry *entry);
/* The entry has a message to take, and had none, or the reverse, or a chunk came free: only
 * inboxes_changed asks for it. */
void inboxes_turn(weir_engine *engine, struct inbox_entry *entry);
/* The entry's messages changed: whether there is one to take, and chunks that came free. */
static inline void inboxes_changed(weir_engine *engine, struct inbox_entry *entry) {
    if (entry->ready != (entry->open && entry->inbox.ready.used > 0) ||
        entry->inbox.freed != INBOX_NONE)
        inboxes_turn(engine, entry);
}
/* The peer is given up; nothing of it can write any more. */
void inboxes_leave(weir_engine *engine, struct peer *peer);
void inboxes_quiet(weir_engine *engine, const struct peer *peer);
/* Memory that may go; on a timer, senders that do not answer. */
void inboxes_look(weir_engine *engine);
/* All memory goes: the engine ends. */
void inboxes_end(weir_engine *engine);

const char *inboxes_verify(const weir_engine *engine);

#endif
