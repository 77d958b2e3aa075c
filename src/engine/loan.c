/* SPDX-License-Identifier: Apache-2.0 */
/* loan.c: the public calls about loans.
 *
 * They make the memory that loans are in, and give it back when it was left (lendings.c). Before
 * its receiver told how long messages may be, loans lie in memory of their own (early), which is
 * left when that is known. Sending is submit.c's. */
#include "lendings.h"

#include "agenda.h"
#include "memory.h"
#include "notes.h"
#include "own.h"
#include "step.h"
#include "streams.h"
#include "submit.h"
#include "tables.h"

enum {
    INDEX_BITS = 16, /* of a handle: the number of the memory, and of the loan there */
    NOT_YET = 1      /* with_memory is to be tried again */
};

static uint64_t handle_of(uint32_t lending, uint32_t index, uint64_t round) {
    return round << INDEX_BITS | lending * LOANS_MAX | index;
}

/* The number of a loan of the application's, plus 1; 0: it has none of this handle. */
static uint32_t find(weir_engine *engine, uint64_t id) {
    uint32_t loan = (uint32_t)(id & ((1u << INDEX_BITS) - 1)) + 1, index;
    const struct lending *lending = lending_of(engine, loan, &index);
    return lending != NULL && lending->loans.at[index].state == LOAN_HELD &&
                   lending->loans.at[index].round == id >> INDEX_BITS
               ? loan
               : 0;
}

/* ---- memory ------------------------------------------------------------ */

/* Memory that was left goes if nothing of it is in use. Others may have the engine meanwhile. */
static void collect(weir_engine *engine) {
    for (uint32_t i = 0; engine->lendings_left > 0 && i < engine->lendings_used; i++) {
        struct lending *lending = engine->lendings[i];
        if (lending == NULL || lending->making || lending->stream != NONE ||
            lending_is_in_use(lending))
            continue;
        engine->lendings[i] = NULL;
        engine->lendings_left--;
        weir_memory memory = lending->memory;
        lending_drop(engine, lending);
        (void)memory_release(engine, memory); /* what cannot go now goes with the engine */
    }
}

/* A free entry, which is the caller's. EAGAIN: there is none. */
static int reserve(weir_engine *engine, uint32_t *index_out) {
    uint32_t i = 0;
    while (i < LENDINGS_MAX && engine->lendings[i] != NULL)
        i++;
    if (i == LENDINGS_MAX)
        return WEIR_EAGAIN;
    const struct weir_env *env = &engine->ports.env;
    engine->lendings[i] = env->ops->alloc(env->self, sizeof(struct lending));
    if (engine->lendings[i] == NULL)
        return WEIR_ENOMEM;
    *index_out = i;
    *engine->lendings[i] = (struct lending){.making = true, .stream = NONE};
    if (i >= engine->lendings_used)
        engine->lendings_used = i + 1;
    return WEIR_OK;
}

/* Whether receivers may read the memory where it is. */
static bool may_be_read(const weir_engine *engine) {
    return engine->caps.completes_inline && engine->device_ops->post_direct != NULL &&
           engine->device_ops->import_address != NULL;
}

/* Memory for loans of up to so many bytes. */
static int make(weir_engine *engine, struct lending *lending, uint64_t length_max) {
    uint64_t bytes = loans_memory(length_max);
    const uint32_t shared = WEIR_ACCESS_REMOTE_READ | WEIR_ACCESS_REMOTE_WRITE | WEIR_MR_LENT;
    void *base = NULL;
    int rc = WEIR_EDEVICE;
    lending->offer = OFFER_NEVER;
    if (may_be_read(engine) && !lending->early) {
        rc = memory_allocate(engine, bytes, shared, &lending->memory, &base);
        if (rc == WEIR_OK &&
            local_describe(engine, lending->memory.id, &lending->descriptor) == WEIR_OK)
            lending->offer = OFFER_DUE;
    }
    if (rc != WEIR_OK)
        rc = memory_allocate(engine, bytes, 0, &lending->memory, &base);
    if (rc == WEIR_OK)
        loans_init(&lending->loans, base, bytes);
    return rc;
}

/* Whether the stream has memory for a loan of so many bytes. One from before MET is left behind it,
 * and for a longer loan. */
static bool has_memory(weir_engine *engine, struct stream *stream, uint64_t length) {
    const struct lending *lending = lending_at(engine, stream);
    if (lending != NULL && lending->early &&
        (stream->state == STREAM_MET || loans_longest(lending->loans.bytes) < length))
        lending_leave(engine, stream);
    return stream->lending != 0;
}

static int find_stream(weir_engine *engine, uint64_t peer_id, uint32_t inbox, uint64_t length,
                       struct stream **stream_out) {
    struct peer *peer = peer_find(engine, peer_id);
    if (engine->closing)
        return WEIR_ECLOSED;
    if (peer == NULL)
        return WEIR_ESTALE;
    struct stream *stream = stream_open(engine, peer_resolve(engine, peer), inbox);
    if (stream == NULL)
        return WEIR_EFULL;
    if (stream->state == STREAM_MET && length > stream->message_bytes_max)
        return WEIR_ETOOBIG;
    *stream_out = stream;
    return WEIR_OK;
}

/* The stream, with memory for a loan of so many bytes. Others may have the engine while that is
 * made. NOT_YET: the stream has changed meanwhile. */
static int with_memory(weir_engine *engine, uint64_t peer_id, uint32_t inbox, uint64_t length,
                       struct stream **stream_out) {
    int rc = find_stream(engine, peer_id, inbox, length, stream_out);
    if (rc != WEIR_OK || has_memory(engine, *stream_out, length))
        return rc;
    uint32_t index;
    rc = reserve(engine, &index);
    if (rc != WEIR_OK)
        return rc;
    struct lending *lending = engine->lendings[index];
    bool met = (*stream_out)->state == STREAM_MET;
    lending->early = !met;
    lending->inbox = inbox;
    rc = make(engine, lending, met ? (*stream_out)->message_bytes_max : length);
    lending->making = false;
    if (rc != WEIR_OK) {
        engine->lendings[index] = NULL;
        lending_drop(engine, lending);
        return rc;
    }
    engine->lendings_left++;
    rc = find_stream(engine, peer_id, inbox, length, stream_out);
    if (rc != WEIR_OK || has_memory(engine, *stream_out, length))
        return rc; /* what was made is of no stream */
    if (lending->early != ((*stream_out)->state != STREAM_MET))
        return NOT_YET; /* it was met, or began anew, meanwhile */
    engine->lendings_left--;
    lending->stream = stream_index(engine, *stream_out);
    (*stream_out)->lending = index + 1;
    return WEIR_OK;
}

/* ---- lending ----------------------------------------------------------- */

/* A piece, or, if all are lent, one that is back. A receiver that gives one back behind the last
 * look says so. */
static uint32_t take_piece(weir_engine *engine, struct lending *lending, uint32_t length) {
    uint32_t index = loans_take(&lending->loans, length, engine->loan_rounds + 1);
    if (index == LOANS_NONE) {
        loans_look(&lending->loans);
        index = loans_take(&lending->loans, length, engine->loan_rounds + 1);
    }
    if (index == LOANS_NONE) {
        engine->loans_wanted = true;
        uint64_t wanted = (uint64_t)length + 1;
        lending_ring(engine, lending, wanted > lending->wanted ? wanted : lending->wanted);
        if (engine->device_ops->direct_order != NULL && lending->rings)
            engine->device_ops->direct_order(engine->device);
        loans_look(&lending->loans);
        index = loans_take(&lending->loans, length, engine->loan_rounds + 1);
    }
    if (index == LOANS_NONE)
        return index;
    engine->loan_rounds++;
    if (lending->wanted > 0 && length + 1 >= lending->wanted)
        lending_ring(engine, lending, 0); /* a shorter one says nothing of the one that waits */
    return index;
}

/* Its receiver could not map it, some time ago. */
static bool is_offered_again(const weir_engine *engine, const struct lending *lending) {
    return lending->offer == OFFER_NOT && lending->offers > 0 && lending->offers < OFFERS_MAX &&
           engine_now(engine) - lending->offered_ns >= OFFER_PAUSE_NS << (lending->offers - 1);
}

static int lend(weir_engine *engine, uint64_t peer_id, uint32_t inbox, uint64_t length,
                weir_loan *loan_out) {
    struct stream *stream = NULL;
    collect(engine);
    atomic_store_explicit(&engine->loan_back, false, memory_order_relaxed);
    int rc;
    do
        rc = with_memory(engine, peer_id, inbox, length, &stream);
    while (rc == NOT_YET);
    if (rc != WEIR_OK)
        return rc;
    struct lending *lending = lending_at(engine, stream);
    uint32_t index = take_piece(engine, lending, (uint32_t)length);
    if (is_offered_again(engine, lending)) {
        lending->offer = OFFER_DUE;
        lending->offered_ns = engine_now(engine);
    }
    if (lending_says(engine, stream))
        streams_tell(engine, peer_at(engine, stream->peer));
    struct peer *peer = peer_at(engine, stream->peer);
    /* Its receiver says BACK on a session. */
    if (index == LOANS_NONE && lending->offer == OFFER_MAPPED)
        note_wish(engine, peer);
    if (index == LOANS_NONE)
        return WEIR_EAGAIN;
    lending->peer_ids[index] = peer_id;
    const struct loan *loan = &lending->loans.at[index];
    *loan_out = (weir_loan){
        .id = handle_of(stream->lending - 1, index, loan->round),
        .data = lending->loans.memory + loan->offset,
        .length = length,
    };
    return WEIR_OK;
}

int weir_message_loan(weir_engine *engine, weir_peer peer, uint32_t inbox, uint64_t length,
                      weir_loan *loan_out) {
    if (engine == NULL || loan_out == NULL)
        return WEIR_EINVAL;
    if (length > ROOM_LENGTH_MAX)
        return WEIR_ETOOBIG;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    int rc = lend(engine, peer.id, inbox, length, loan_out);
    if (engine->run_head != NONE)
        engine_step(engine, false);
    own_leave(engine);
    return rc;
}

int weir_loan_return(weir_engine *engine, const weir_loan *loan) {
    if (engine == NULL || loan == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    uint32_t found = find(engine, loan->id), index;
    if (found != 0) {
        struct lending *lending = lending_of(engine, found, &index);
        loans_give(&lending->loans, index);
        lending_told(engine);
        collect(engine);
    }
    own_leave(engine);
    return found != 0 ? WEIR_OK : WEIR_ESTALE;
}

/* ---- sending ----------------------------------------------------------- */

/* The loan is the transfer's from now on. */
static int begin(weir_engine *engine, const weir_loan *named, struct submit_loan *out) {
    uint32_t found = find(engine, named->id), index;
    if (found == 0)
        return WEIR_ESTALE;
    struct lending *lending = lending_of(engine, found, &index);
    struct loan *loan = &lending->loans.at[index];
    if (named->length > loan->length)
        return WEIR_EBOUNDS;
    loan->state = LOAN_SENT;
    *out = (struct submit_loan){
        .loan = found,
        .round = loan->round,
        .peer_id = lending->peer_ids[index],
        .inbox = lending->inbox,
        .part = {.local = lending->memory, .offset = loan->offset, .length = named->length}};
    return WEIR_OK;
}

/* It was not taken up, or all was done in the call: then it is back, unless its receiver has it. A
 * transfer that has it gives it back by itself. */
static void done(weir_engine *engine, const struct submit_loan *sent, int rc, uint64_t transfer) {
    uint32_t index;
    struct lending *lending = lending_of(engine, sent->loan, &index);
    if (lending == NULL)
        return;
    struct loan *loan = &lending->loans.at[index];
    if (loan->state != LOAN_SENT || loan->round != sent->round)
        return; /* its receiver has it, and may have given it back */
    if (rc != WEIR_OK) {
        loan->state = LOAN_HELD;
    } else if (transfer == 0) {
        loans_give(&lending->loans, index);
        lending_told(engine);
    }
}

int weir_loan_send(weir_engine *engine, const weir_loan *loan, const weir_transfer_options *options,
                   weir_transfer *transfer_out) {
    struct submit_loan sent;
    if (engine == NULL || loan == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    bool plain = transfer_out != NULL &&
                 (options == NULL || (options->size == sizeof(*options) && options->flags == 0));
    own_enter(engine);
    int rc = begin(engine, loan, &sent);
    bool now = rc == WEIR_OK && plain &&
               submit_loan_now(engine, &sent, options != NULL ? options->notify_tag : 0);
    if (now) {
        done(engine, &sent, WEIR_OK, 0);
        transfer_out->id = 0;
    }
    own_leave(engine);
    if (rc != WEIR_OK || now)
        return rc;
    uint64_t transfer = 0;
    rc = submit_loan(engine, &sent, options, transfer_out, &transfer);
    own_enter(engine);
    done(engine, &sent, rc, transfer);
    own_leave(engine);
    return rc;
}
