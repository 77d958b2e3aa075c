/* SPDX-License-Identifier: Apache-2.0 */
/* names.h: names of memories and values, ours and those of peers. */
#ifndef WEIR_ENGINE_NAMES_H
#define WEIR_ENGINE_NAMES_H

#include "state.h"

size_t names_bytes(const weir_engine_options *options);
/* memory: names_bytes, zeroed. */
void names_start(weir_engine *engine, void *memory);

/* The next word for the peer that fits in `room` bytes; false: nothing, or *more_out. */
bool names_say(weir_engine *engine, struct peer *peer, uint32_t room, struct word *word_out,
               bool *more_out);
/* A word of the peer's about names. False: no engine says so. */
bool names_heard(weir_engine *engine, struct peer *peer, const struct word *word);

/* Something was published or withdrawn: peers that have ever asked are told. */
void names_tell(weir_engine *engine);
/* Memory of this id is about to be released: nothing is named after it any more. */
void names_memory_gone(weir_engine *engine, uint64_t memory);
/* The answer by which an import is made: its entry (asked.h), and its version. */
struct name_answer {
    uint64_t entry, version;
};
/* An import by that answer is there. False: the answer is not that of the name any more. */
bool names_import_made(weir_engine *engine, const struct name_answer *answer);
/* Such an import is released; harmless where the entry is gone, and for 0. */
void names_import_gone(weir_engine *engine, uint64_t named);

/* Words under way between the two do not arrive any more. same: the instance there is. */
void names_new_life(weir_engine *engine, struct peer *peer, bool same);
/* There is a session. */
void names_up(weir_engine *engine, struct peer *peer);
/* Nobody is reached there, and why: nothing is asked until the application asks again. Calls
 * that wait for an answer end, and an application that was told to wait for one hears of it. */
void names_unreachable(weir_engine *engine, struct peer *peer, int error);
/* `opened` turned out to be `known`. */
void names_move(weir_engine *engine, struct peer *opened, struct peer *known);
/* The peer's entry is free. */
void names_forget(weir_engine *engine, struct peer *peer);

const char *names_verify(const weir_engine *engine);

#endif
