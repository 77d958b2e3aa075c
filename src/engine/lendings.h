/* SPDX-License-Identifier: Apache-2.0 */
/* lendings.h: memory for messages that applications make in place. */
#ifndef WEIR_ENGINE_LENDINGS_H
#define WEIR_ENGINE_LENDINGS_H

#include "state.h"

/* The memory that a loan is in, by the number that a request names the loan by (plus 1), and the
 * loan's own number there. */
static inline struct lending *lending_of(const weir_engine *engine, uint32_t loan,
                                         uint32_t *index_out) {
    *index_out = (loan - 1) % LOANS_MAX;
    return engine->lendings[(loan - 1) / LOANS_MAX];
}

/* Whether the receiver of the stream reads this memory where it is. */
static inline bool lending_is_read(const weir_engine *engine, const struct lending *lending,
                                   const struct stream *stream) {
    return lending->offer == OFFER_MAPPED && &engine->streams[lending->stream] == stream;
}

/* The memory of the stream's loans; NULL: there is none. */
struct lending *lending_at(const weir_engine *engine, const struct stream *stream);
/* Whether the application, or a transfer, has a loan of it. */
bool lending_is_in_use(const struct lending *lending);
/* The entry is nobody's any more; its memory is the caller's. */
void lending_drop(weir_engine *engine, struct lending *lending);
/* The stream has no loans any more: all of it was forgotten. Its loans stay where they are, until
 * it is back, or its receiver alone has it. */
void lending_leave(weir_engine *engine, struct stream *stream);
/* The word that tells the receiver of the stream where its loans are. False: it need not be told.
 */
bool lending_say(weir_engine *engine, struct stream *stream, struct word *word_out);
/* Whether there is such a word. */
bool lending_says(const weir_engine *engine, const struct stream *stream);
/* A message in a loan has ended. Its loan is back, unless its receiver has it. */
void lending_copied(weir_engine *engine, struct transfer *transfer);
/* A loan came back: who waits for one is told. */
void lending_told(weir_engine *engine);
/* The application waits for a loan of so many bytes less 1, or (0) does not any more. */
void lending_ring(weir_engine *engine, struct lending *lending, uint64_t wanted);
/* The receiver's answer; and its word that one is back. */
void lending_mapped(weir_engine *engine, const struct stream *stream, uint32_t mapped);
void lending_back(weir_engine *engine, const struct stream *stream);
/* The engine ends. Its memory is released as all memory is. */
void lendings_end(weir_engine *engine);

const char *lendings_verify(const weir_engine *engine);

#endif
