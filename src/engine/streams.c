/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c: what this engine has in the inboxes of peers.
 *
 * Owns the table of streams: one for each inbox of each peer that a message was sent to, from then
 * until the peer's entry is free; and the import of the inbox's memory. What is said about them is
 * talk.c's, and so is when a message is put.
 *
 *   ASKING ──MEET──► MET ──CLOSED──► CLOSED ──nothing is put, LEFT said──► ASKING
 *     ▲ └──ABSENT──► ABSENT ──OPENED, another message──► ASKING
 *     └───────────── the peer forgot us, or is gone (stream_reset) ──── from any
 */
#include "streams.h"

#include "agenda.h"
#include "lendings.h"
#include "tables.h"

/* A peer answers at once that runs. It is waited for once; others are not kept again. */
enum { IMPORT_WAIT_MS = 5 };
#define IMPORT_PAUSE_NS     UINT64_C(1000000) /* before another try */
#define IMPORT_PAUSE_MAX_NS UINT64_C(100000000)

struct stream *stream_first(weir_engine *engine, const struct peer *peer) {
    return peer->streams == STREAM_NONE ? NULL : &engine->streams[peer->streams - 1];
}

struct stream *stream_next(weir_engine *engine, const struct stream *stream) {
    return stream->next == STREAM_NONE ? NULL : &engine->streams[stream->next - 1];
}

struct stream *stream_find(weir_engine *engine, const struct peer *peer, uint32_t inbox) {
    struct stream *stream = stream_first(engine, peer);
    while (stream != NULL && stream->inbox != inbox)
        stream = stream_next(engine, stream);
    return stream;
}

static struct stream *take(weir_engine *engine) {
    if (engine->stream_free != STREAM_NONE) {
        struct stream *stream = &engine->streams[engine->stream_free - 1];
        engine->stream_free = stream->next;
        return stream;
    }
    return engine->streams_used < engine->streams_max ? &engine->streams[engine->streams_used++]
                                                      : NULL;
}

struct stream *stream_open(weir_engine *engine, struct peer *peer, uint32_t inbox) {
    struct stream *stream = stream_find(engine, peer, inbox);
    if (stream != NULL)
        return stream;
    stream = take(engine);
    if (stream == NULL)
        return NULL;
    uint32_t generation = stream->generation;
    *stream = (struct stream){.used = true,
                              .state = STREAM_ASKING,
                              .peer = peer_index(engine, peer),
                              .inbox = inbox,
                              .next = peer->streams,
                              .generation = generation + 1,
                              .waiting = {NONE, NONE, 0}};
    peer->streams = stream_index(engine, stream) + 1;
    return stream;
}

void stream_unput(weir_engine *engine, struct transfer *transfer) {
    struct stream *stream = stream_at(engine, transfer->stream);
    struct peer *peer = peer_at(engine, stream->peer);
    if (stream_holds(engine, transfer) && --stream->put == 0 && stream->state == STREAM_CLOSED) {
        stream->left_due = true;
        streams_tell(engine, peer);
    }
    transfer->put = false;
    if (stream->waiting.head != NONE && peer->live != NONE)
        run_later(engine, peer); /* others may be put */
}

static void forget_memory(weir_engine *engine, struct stream *stream) {
    bool imported = stream->imported && !peer_at(engine, stream->peer)->loop;
    stream->imported = false;
    if (!imported)
        return;
    if (engine->device_ops->import_unmap != NULL)
        engine->device_ops->import_unmap(engine->device, &stream->rmr);
    engine->device_ops->mr_forget(engine->device, &stream->rmr);
}

void stream_reset(weir_engine *engine, struct stream *stream) {
    forget_memory(engine, stream);
    lending_leave(engine, stream);
    stream->state = STREAM_ASKING;
    stream->generation++;
    stream->put = 0;
    stream->left_due = stream->look_due = false;
    stream->ahead_due = false;
    stream->asked = stream->full = 0;
    stream->import_error = WEIR_OK;
    stream->import_waited = false;
    outbox_init(&stream->outbox, 0, 0);
}

bool stream_meet(weir_engine *engine, struct stream *stream, const struct word *word) {
    const struct wire_descriptor *memory = &word->meet.memory;
    uint64_t chunks = memory->length / room_memory(word->meet.chunk_bytes, 1);
    if (stream->state == STREAM_MET || stream->state == STREAM_CLOSED || chunks > ROOM_CHUNKS_MAX ||
        memcmp(memory->instance, peer_at(engine, stream->peer)->instance, WIRE_INSTANCE_SIZE) != 0)
        return false;
    uint64_t wanted = stream->outbox.wanted;
    outbox_init(&stream->outbox, word->meet.chunk_bytes, (uint32_t)chunks);
    stream->outbox.wanted = wanted;
    stream->message_bytes_max = word->meet.message_bytes_max;
    stream->memory = *memory;
    stream->state = STREAM_MET;
    return true;
}

/* The peer has not handed its memory over yet, or this process lacks what the mapping takes. */
static bool import_may_pass(int rc) {
    return rc == WEIR_EINPROGRESS || rc == WEIR_EAGAIN || rc == WEIR_EMFILE || rc == WEIR_ENOMEM;
}

/* Each pause is twice the one before. */
static int import_later(weir_engine *engine, struct stream *stream, int error) {
    uint64_t pause_ns =
        stream->import_error == WEIR_OK ? IMPORT_PAUSE_NS : 2 * stream->import_pause_ns;
    stream->import_pause_ns = pause_ns < IMPORT_PAUSE_MAX_NS ? pause_ns : IMPORT_PAUSE_MAX_NS;
    stream->import_next_ns = engine_now(engine) + stream->import_pause_ns;
    stream->import_error = error;
    if (stream->import_next_ns < engine->import_next_ns) {
        engine->import_next_ns = stream->import_next_ns;
        timer_streams(engine, stream->import_next_ns);
    }
    return WEIR_EINPROGRESS;
}

/* Of an inbox of this engine's own: its memory is where it is. */
static int import_own(const weir_engine *engine, struct stream *stream) {
    for (uint32_t i = 0; i < engine->inboxes_used; i++) {
        const struct inbox_entry *entry = &engine->inboxes[i];
        if (!entry_is_made(entry) || !entry->open || entry->number != stream->inbox)
            continue;
        stream->rmr = (struct weir_rmr){.raddr = (uint64_t)(uintptr_t)entry->mr.base};
        stream->imported = true;
        return WEIR_OK;
    }
    return WEIR_ESTALE; /* CLOSED is about to be heard */
}

int stream_import(weir_engine *engine, struct stream *stream) {
    const struct wire_descriptor *memory = &stream->memory;
    if (stream->imported)
        return WEIR_OK;
    if (peer_at(engine, stream->peer)->loop)
        return import_own(engine, stream);
    if (memcmp(memory->device, engine->caps.name, sizeof(memory->device)) != 0 ||
        memcmp(memory->fabric, engine->caps.fabric, sizeof(memory->fabric)) != 0)
        return WEIR_ENOTSUP;
    if ((memory->access & WEIR_ACCESS_REMOTE_WRITE) == 0)
        return WEIR_EACCESS;
    if (stream->import_error != WEIR_OK && engine_now(engine) < stream->import_next_ns)
        return WEIR_EINPROGRESS;
    uint32_t wait_ms = stream->import_waited ? 0 : IMPORT_WAIT_MS;
    int rc = engine->device_ops->mr_import(engine->device, memory->blob, memory->blob_length,
                                           memory->length, memory->access, wait_ms, &stream->rmr);
    stream->imported = rc == WEIR_OK;
    stream->import_waited = rc == WEIR_EINPROGRESS;
    if (import_may_pass(rc))
        return import_later(engine, stream, rc == WEIR_EINPROGRESS ? WEIR_EAGAIN : rc);
    stream->import_error = WEIR_OK;
    return rc;
}

void streams_look(weir_engine *engine) {
    uint64_t now = engine_now(engine), next_ns = UINT64_MAX;
    for (uint32_t s = 0; s < engine->streams_used; s++) {
        struct stream *stream = &engine->streams[s];
        if (stream->waiting.head == NONE)
            stream->import_error = WEIR_OK; /* the next message is the first to try */
        if (!stream->used || stream->import_error == WEIR_OK)
            continue;
        struct peer *peer = peer_at(engine, stream->peer);
        if (stream->import_next_ns > now && stream->import_next_ns < next_ns)
            next_ns = stream->import_next_ns;
        else if (stream->import_next_ns <= now && peer->live != NONE)
            run_later(engine, peer);
    }
    engine->import_next_ns = next_ns;
    timer_streams(engine, next_ns);
}

void streams_free(weir_engine *engine, struct peer *peer) {
    struct stream *stream = stream_first(engine, peer);
    while (stream != NULL) {
        struct stream *next = stream_next(engine, stream);
        stream_reset(engine, stream);
        stream->used = false;
        stream->next = engine->stream_free;
        engine->stream_free = stream_index(engine, stream) + 1;
        stream = next;
    }
    peer->streams = STREAM_NONE;
}

void streams_tell(weir_engine *engine, struct peer *peer) {
    peer->talk.due = true;
    if (peer->live != NONE)
        run_later(engine, peer);
}

const char *streams_verify(const weir_engine *engine, const struct peer *peer) {
    uint32_t waits = 0;
    for (uint32_t s = peer->streams; s != STREAM_NONE; s = engine->streams[s - 1].next) {
        const struct stream *stream = &engine->streams[s - 1];
        const char *wrong = outbox_verify(&stream->outbox);
        uint64_t bytes = 0, turn = 0;
        uint32_t count = 0;
        if (wrong != NULL)
            return wrong;
        for (uint32_t i = stream->waiting.head; i != NONE; i = engine->transfers[i].next) {
            const struct transfer *transfer = &engine->transfers[i];
            if (transfer->list != LIST_ROOM || transfer->put || transfer->stream != s - 1)
                return "stream: a message waits for room elsewhere";
            if (count > 0 && transfer->turn <= turn)
                return "stream: messages wait in another order than they were sent";
            turn = transfer->turn;
            bytes += room_bytes(transfer->message_length);
            count++;
        }
        if (count != stream->waiting.count || bytes != stream->waiting_bytes)
            return "stream: messages that wait are not counted";
        waits += count;
    }
    return waits == peer->room_waits ? NULL : "peer: messages that wait are not counted";
}
