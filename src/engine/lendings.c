/* SPDX-License-Identifier: Apache-2.0 */
/* lendings.c: memory of loans, below the application's calls (loan.c).
 *
 * Owns what becomes of such memory while streams come and go, and the words about it. Each inbox of
 * each peer that loans were asked for has one, from the first loan on: core/loans.h has the loans
 * in it. A receiver whose processor reaches the memory is told where it is (POOL), and reads loans
 * where they are from then on (direct.c sends them so). Memory whose stream has forgotten all (the
 * peer is gone, or began anew) is left: it goes when the application has nothing of it, and no
 * transfer does. Messages that the receiver still reads there are the receiver's. */
#include "lendings.h"

bool lending_is_in_use(const struct lending *lending) {
    uint32_t lent = 0;
    for (uint32_t at = 0; at < lending->loans.used; at++)
        lent += lending->loans.at[lending->loans.order[at]].state == LOAN_LENT;
    return lent < lending->loans.used;
}

void lending_drop(weir_engine *engine, struct lending *lending) {
    engine->ports.env.ops->free(engine->ports.env.self, lending, sizeof(*lending));
}

struct lending *lending_at(const weir_engine *engine, const struct stream *stream) {
    return stream->lending == 0 ? NULL : engine->lendings[stream->lending - 1];
}

void lending_leave(weir_engine *engine, struct stream *stream) {
    struct lending *lending = lending_at(engine, stream);
    if (lending == NULL)
        return;
    lending_ring(engine, lending, 0);
    lending->stream = NONE;
    stream->lending = 0;
    engine->lendings_left++;
}

void lending_ring(weir_engine *engine, struct lending *lending, uint64_t wanted) {
    struct peer *peer = &engine->peers[engine->streams[lending->stream].peer];
    bool rings = wanted > 0 && lending->offer == OFFER_MAPPED;
    if (rings && !lending->rings)
        peer->rings++;
    if (!rings && lending->rings)
        peer->rings--;
    if (rings != lending->rings)
        loans_wait(&lending->loans, rings);
    lending->rings = rings;
    lending->wanted = wanted;
}

void lending_told(weir_engine *engine) {
    if (!engine->loans_wanted)
        return;
    atomic_store(&engine->loan_back, true);
    engine->worked = true;
}

void lending_copied(weir_engine *engine, struct transfer *transfer) {
    uint32_t index;
    struct lending *lending = lending_of(engine, transfer->loan, &index);
    transfer->loan = 0;
    if (lending == NULL || lending->loans.at[index].state != LOAN_SENT)
        return; /* its receiver has it, or the engine ends */
    loans_give(&lending->loans, index);
    lending_told(engine);
}

/* ---- words ------------------------------------------------------------- */

bool lending_says(const weir_engine *engine, const struct stream *stream) {
    const struct lending *lending = lending_at(engine, stream);
    return lending != NULL && lending->offer == OFFER_DUE && stream->state == STREAM_MET &&
           !engine->peers[stream->peer].loop;
}

bool lending_say(weir_engine *engine, struct stream *stream, struct word *word_out) {
    struct lending *lending = lending_at(engine, stream);
    if (!lending_says(engine, stream))
        return false;
    word_out->kind = WORD_POOL;
    word_out->pool = lending->descriptor;
    lending->offer = OFFER_ASKED;
    lending->offers++;
    return true;
}

void lending_mapped(weir_engine *engine, const struct stream *stream, uint32_t mapped) {
    struct lending *lending = lending_at(engine, stream);
    if (lending == NULL || lending->offer != OFFER_ASKED)
        return;
    lending->offer = mapped == WORD_IS_MAPPED      ? OFFER_MAPPED
                     : mapped == WORD_MAPPED_LATER ? OFFER_NOT
                                                   : OFFER_NEVER;
    lending_ring(engine, lending, lending->wanted); /* from now on receivers give loans back */
}

void lending_back(weir_engine *engine, const struct stream *stream) {
    if (lending_at(engine, stream) != NULL)
        lending_told(engine);
}

/* ---- the end ----------------------------------------------------------- */

void lendings_end(weir_engine *engine) {
    for (uint32_t i = 0; i < engine->lendings_used; i++) {
        if (engine->lendings[i] != NULL)
            lending_drop(engine, engine->lendings[i]);
        engine->lendings[i] = NULL;
    }
}

const char *lendings_verify(const weir_engine *engine) {
    for (uint32_t i = 0; i < engine->lendings_used; i++) {
        const struct lending *lending = engine->lendings[i];
        if (lending == NULL || lending->making)
            continue;
        const char *wrong = loans_verify(&lending->loans);
        if (wrong != NULL)
            return wrong;
        if (lending->stream != NONE && engine->streams[lending->stream].lending != i + 1)
            return "lending: it is of a stream that has another";
    }
    for (uint32_t s = 0; s < engine->streams_used; s++) {
        uint32_t lending = engine->streams[s].lending;
        if (lending != 0 &&
            (engine->lendings[lending - 1] == NULL || engine->lendings[lending - 1]->stream != s))
            return "stream: its loans are another's";
    }
    return NULL;
}
