/* SPDX-License-Identifier: Apache-2.0 */
/* streams.h: what this engine has in the inboxes of peers. */
#ifndef WEIR_ENGINE_STREAMS_H
#define WEIR_ENGINE_STREAMS_H

#include "state.h"

static inline struct stream *stream_at(weir_engine *engine, uint32_t index) {
    return &engine->streams[index];
}
static inline uint32_t stream_index(const weir_engine *engine, const struct stream *stream) {
    return (uint32_t)(stream - engine->streams);
}

/* The streams of a peer: first, then next; NULL: no more. */
struct stream *stream_first(weir_engine *engine, const struct peer *peer);
struct stream *stream_next(weir_engine *engine, const struct stream *stream);
/* The peer's stream to this inbox; NULL: none. */
struct stream *stream_find(weir_engine *engine, const struct peer *peer, uint32_t inbox);
/* Likewise, a new one if there is none; NULL: the table is full. Needs the engine. */
struct stream *stream_open(weir_engine *engine, struct peer *peer, uint32_t inbox);

/* Whether the transfer's spot is one that its stream has still. */
static inline bool stream_holds(const weir_engine *engine, const struct transfer *transfer) {
    return transfer->put && transfer->generation == engine->streams[transfer->stream].generation;
}
/* The transfer has no spot any more; harmless for one without. */
void stream_unput(weir_engine *engine, struct transfer *transfer);
/* The peer is asked (again) whether there is an inbox, and room in it. */
static inline void stream_ask(struct stream *stream) {
    stream->state = STREAM_ASKING;
    stream->outbox.wanted = 0;
}
/* All that was put there is forgotten, as it is over there: its inbox is asked anew. */
void stream_reset(weir_engine *engine, struct stream *stream);
/* The inbox's memory is where MEET says. False: no receiver says so. */
bool stream_meet(weir_engine *engine, struct stream *stream, const struct word *word);
/* Imports that memory, unless it is. A WEIR_E* of the device, or EINPROGRESS: it cannot be had just
 * now (import_error says why), and the peer has a turn when it is time for another try. */
int stream_import(weir_engine *engine, struct stream *stream);
/* Gives turns to the peers of those whose next try is due. */
void streams_look(weir_engine *engine);
/* The peer's entry is free: so are its streams. */
void streams_free(weir_engine *engine, struct peer *peer);

/* There is something to tell the peer about messages: talk.c. */
void streams_tell(weir_engine *engine, struct peer *peer);

const char *streams_verify(const weir_engine *engine, const struct peer *peer);

#endif
