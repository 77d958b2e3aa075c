/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: the public calls about inboxes, and the messages that are taken from them.
 *
 * They own no state: inboxes.c has the table. Sending is submit.c's. */
#include "deliver.h"
#include "effects.h"
#include "inboxes.h"
#include "own.h"
#include "step.h"
#include "tables.h"

enum { TURN = 32 }; /* messages for which the engine is had at once, at most */

static int read_options(const weir_inbox_options *in, weir_inbox_options *out) {
    *out = (weir_inbox_options){.size = sizeof(*out)};
    if (in == NULL || in->size < offsetof(weir_inbox_options, peer_messages) || in->size > 4096)
        return WEIR_EINVAL;
    memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
    if (out->reserved != 0)
        return WEIR_EINVAL;
    if (out->message_bytes_max > ROOM_LENGTH_MAX)
        return WEIR_ETOOBIG;
    if (out->peer_messages == 0)
        out->peer_messages = room_usual((uint32_t)out->message_bytes_max);
    uint32_t peers = room_usual_peers((uint32_t)out->message_bytes_max, out->peer_messages);
    if (out->messages == 0 && out->peer_messages <= UINT32_MAX / peers)
        out->messages = peers * out->peer_messages;
    return out->messages != 0 ? WEIR_OK : WEIR_ETOOBIG;
}

static void order(void *self) {
    weir_engine *engine = ((struct inbox_entry *)self)->engine;
    if (engine->device_ops->direct_order != NULL)
        engine->device_ops->direct_order(engine->device);
}

static void stream_over(void *self, uint32_t stream) {
    struct inbox_entry *entry = self;
    inboxes_stream_over(entry->engine, entry, stream);
}

/* The inbox's memory and tables. The entry is the caller's alone, so the engine is let go meanwhile
 * where the device allows it. */
static int make(weir_engine *engine, struct inbox_entry *entry, const struct room_shape *shape) {
    const struct weir_env *env = &engine->ports.env;
    uint64_t bytes = room_memory(shape->chunk_bytes, shape->chunk_count);
    size_t inbox = inbox_bytes(shape, engine->peers_max);
    if (inbox == 0)
        return WEIR_ETOOBIG;
    entry->table_bytes = inbox + inbox_streams(shape, engine->peers_max) * sizeof(*entry->lents);
    if (env->ops->room != NULL && bytes > env->ops->room(env->self))
        return WEIR_ENOMEM;
    void *tables = env->ops->alloc(env->self, entry->table_bytes);
    if (tables == NULL)
        return WEIR_ENOMEM;
    if (engine->caps.mr_anywhere)
        own_leave(engine);
    int rc = engine->device_ops->mr_allocate(engine->device, bytes, WEIR_ACCESS_REMOTE_WRITE,
                                             &entry->mr);
    if (engine->caps.mr_anywhere)
        own_enter(engine);
    if (rc != WEIR_OK) {
        env->ops->free(env->self, tables, entry->table_bytes);
        return rc;
    }
    entry->tables = tables;
    entry->lents = (struct lent *)(void *)((uint8_t *)tables + inbox);
    entry->descriptor = (struct wire_descriptor){
        .memory_id = entry->id, .length = bytes, .access = WEIR_ACCESS_REMOTE_WRITE};
    memcpy(entry->descriptor.instance, engine->instance, sizeof(engine->instance));
    memcpy(entry->descriptor.device, engine->caps.name, sizeof(entry->descriptor.device));
    memcpy(entry->descriptor.fabric, engine->caps.fabric, sizeof(entry->descriptor.fabric));
    inbox_init(&entry->inbox, tables, entry->mr.base, shape, engine->peers_max,
               engine->device_ops->post_direct != NULL, engine->places);
    entry->engine = engine;
    entry->inbox.order = order;
    entry->inbox.stream_over = stream_over;
    entry->inbox.self = entry;
    rc = engine->device_ops->mr_export(engine->device, &entry->mr, entry->descriptor.blob,
                                       &entry->descriptor.blob_length);
    if (rc != WEIR_OK) {
        inbox_close(&entry->inbox); /* inboxes_look releases it */
        return rc;
    }
    inboxes_begin(engine, entry);
    return WEIR_OK;
}

static int inbox_open(weir_engine *engine, const weir_inbox_options *options,
                      weir_inbox *inbox_out) {
    struct room_shape shape;
    if (engine->closing)
        return WEIR_ECLOSED;
    if (!room_shape((uint32_t)options->message_bytes_max, options->peer_messages, options->messages,
                    &shape))
        return WEIR_ETOOBIG;
    for (uint32_t i = 0; i < engine->inboxes_used; i++) { /* also one that is just being made */
        const struct inbox_entry *other = &engine->inboxes[i];
        if (other->used && other->number == options->number &&
            (other->open || !entry_is_made(other)))
            return WEIR_EBUSY;
    }
    struct inbox_entry *entry = inboxes_take(engine);
    if (entry == NULL)
        return WEIR_EAGAIN;
    entry->number = options->number;
    entry->options = *options;
    int rc = make(engine, entry, &shape);
    if (rc == WEIR_OK)
        inbox_out->id = entry->id;
    else if (entry->inbox.chunks == NULL)
        inboxes_drop(entry);
    else
        inboxes_look(engine);
    return rc;
}

int weir_inbox_open(weir_engine *engine, const weir_inbox_options *options, weir_inbox *inbox_out) {
    weir_inbox_options full;
    if (engine == NULL || inbox_out == NULL)
        return WEIR_EINVAL;
    int rc = read_options(options, &full);
    if (rc != WEIR_OK)
        return rc;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    rc = inbox_open(engine, &full, inbox_out);
    own_leave(engine);
    return rc;
}

int weir_inbox_close(weir_engine *engine, weir_inbox inbox) {
    if (engine == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    struct inbox_entry *entry = inboxes_find(engine, inbox.id);
    bool is_open = entry != NULL && entry->open;
    if (is_open)
        inboxes_close(engine, entry);
    own_leave(engine);
    return is_open ? WEIR_OK : WEIR_ESTALE;
}

int weir_inbox_query(weir_engine *engine, weir_inbox inbox, weir_inbox_info *info) {
    if (engine == NULL || info == NULL || info->size < sizeof(size_t))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    weir_inbox_info full = WEIR_INBOX_INFO_INIT;
    own_enter(engine);
    const struct inbox_entry *entry = inboxes_find(engine, inbox.id);
    bool is_open = entry != NULL && entry->open;
    if (is_open) {
        full.number = entry->number;
        full.senders = entry->inbox.met.used;
        full.message_bytes_max = entry->options.message_bytes_max;
        full.chunk_bytes = entry->inbox.shape.chunk_bytes;
        full.chunks = entry->inbox.shape.chunk_count;
        full.bytes = room_memory(entry->inbox.shape.chunk_bytes, entry->inbox.shape.chunk_count);
        full.chunks_free = entry->inbox.free_count;
        full.held = entry->inbox.held_count;
        full.waiting = entry->inbox.line.used;
        full.taken = entry->taken;
        full.spoiled = entry->spoiled;
    }
    own_leave(engine);
    if (!is_open)
        return WEIR_ESTALE;
    full.size = info->size;
    memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
    return WEIR_OK;
}

/* Room came free: the peers that get it are told at once. */
static void go_on(weir_engine *engine) {
    if (engine->run_head != NONE)
        engine_step(engine, false);
}

/* Where the payload is. NULL: in no memory of its sender's, who gets it back. */
static const uint8_t *payload_of(struct inbox_entry *entry, const struct inbox_message *message) {
    const uint8_t *chunk =
        (const uint8_t *)entry->mr.base + (size_t)message->chunk * entry->inbox.shape.chunk_bytes;
    if (!message->is_loan)
        return chunk + message->payload;
    const uint8_t *loan = inboxes_loan(entry, message, message->length);
    if (loan == NULL)
        inbox_give_back(&entry->inbox, message->chunk, message->place, message->offset);
    return loan;
}

/* The handle that a sender is known by. */
static uint64_t handle_of(weir_engine *engine, uint32_t index) {
    struct peer *peer = peer_at(engine, index);
    /* The application may have closed the handle since the message came, or since UP. */
    if (!standing_is_up(&peer->standing))
        deliver_tell(engine, peer, peer->live == NONE);
    peer_told(peer);
    return peer->handle;
}

/* Messages of which nobody knew but their sender, up to max; 0: take finds out. */
static inline uint32_t take_direct(weir_engine *engine, struct inbox_entry *entry,
                                   weir_message *out, uint32_t max) {
    uint32_t stream = inbox_next_direct(&entry->inbox);
    uint32_t peer = stream == INBOX_NONE ? INBOX_NONE : inbox_sender(&entry->inbox, stream);
    if (peer == INBOX_NONE)
        return 0;
    uint32_t count = inbox_take_direct(&entry->inbox, stream, (weir_peer){handle_of(engine, peer)},
                                       (weir_inbox){entry->id}, out, max);
    inboxes_changed(engine, entry);
    return count;
}

/* The next message, and those right behind it, up to max; or a WEIR_E*. */
static __attribute__((noinline)) int take(weir_engine *engine, struct inbox_entry *entry,
                                          weir_message *out, uint32_t max) {
    struct inbox_message found, *message = &found;
    const uint8_t *payload = NULL;
    enum inbox_taken taken;
    if (entry->ready)
        inboxes_watch(engine, entry); /* other streams have their turns, too */
    if (!entry->ready && entry->watched == 0)
        return WEIR_EAGAIN;
    while ((taken = inbox_take(&entry->inbox, message)) == INBOX_BAD ||
           (taken == INBOX_MESSAGE && (payload = payload_of(entry, message)) == NULL))
        entry->spoiled++;
    inboxes_changed(engine, entry);
    if (entry->inbox.line.used > 0)
        inboxes_grant(engine, entry); /* for what was skipped */
    if (taken != INBOX_MESSAGE)
        return WEIR_EAGAIN;
    *out = (weir_message){
        .from = {message->peer == INBOX_NONE ? message->from : handle_of(engine, message->peer)},
        .inbox = {entry->id},
        .tag = message->tag,
        .data = payload,
        .length = message->length,
        .place = message->place,
        .spot = inbox_spot(message->chunk, message->offset),
    };
    uint32_t count = 1;
    if (max > 1) {
        count += inbox_take_next(&entry->inbox, out, max - 1);
        inboxes_changed(engine, entry);
    }
    return (int)count;
}

/* One turn of the inbox: messages of one stream, `max` at most. Returns how many; none: a WEIR_E*.
 */
static __attribute__((noinline)) int take_turn(weir_engine *engine, weir_inbox inbox,
                                               weir_message *out, size_t max) {
    uint32_t most = max < TURN ? (uint32_t)max : TURN;
    own_enter(engine);
    struct inbox_entry *entry = inboxes_find(engine, inbox.id);
    int rc = WEIR_ESTALE;
    if (entry != NULL && entry->open) {
        rc = entry->ready ? 0 : (int)take_direct(engine, entry, out, most);
        rc = rc > 0 ? rc : take(engine, entry, out, most);
    }
    if (rc > 0) {
        entry->taken += (uint32_t)rc;
        engine->stats.messages_taken += (uint32_t)rc;
    }
    own_leave(engine);
    return rc;
}

int weir_message_take(weir_engine *engine, weir_inbox inbox, weir_message *message_out) {
    if (engine == NULL || message_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    int rc = take_turn(engine, inbox, message_out, 1);
    return rc > 0 ? WEIR_OK : rc;
}

int weir_message_take_many(weir_engine *engine, weir_inbox inbox, weir_message *messages_out,
                           size_t max, size_t *count_out) {
    if (engine == NULL || messages_out == NULL || max == 0 || count_out == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    size_t count = 0;
    int rc = 1;
    while (count < max && rc > 0) {
        rc = take_turn(engine, inbox, messages_out + count, max - count);
        if (rc > 0)
            count += (size_t)rc;
    }
    if (count == 0)
        return rc;
    *count_out = count;
    return WEIR_OK;
}

/* The inbox of messages that are given back; NULL: it is over. */
static inline struct inbox_entry *find_made(weir_engine *engine, uint64_t id) {
    struct inbox_entry *entry = inboxes_find(engine, id);
    return entry != NULL && entry_is_made(entry) ? entry : NULL;
}

/* Messages of the inbox were given back. */
static inline void given_back(weir_engine *engine, struct inbox_entry *entry) {
    if (entry->inbox.line.used > 0)
        inboxes_grant(engine, entry);
    inboxes_changed(engine, entry);
    if (!entry->open)
        inboxes_look(engine);
}

/* False: it is not held. */
static inline bool give_back(weir_engine *engine, struct inbox_entry *entry,
                             const weir_message *message) {
    struct inbox_message loan;
    uint32_t chunk = inbox_spot_chunk(message->spot), offset = inbox_spot_offset(message->spot);
    if (entry == NULL)
        return false;
    if (entry->maps > 0 && inbox_loan(&entry->inbox, chunk, message->place, offset, &loan))
        inboxes_loan_back(engine, entry, &loan);
    if (!inbox_give_back(&entry->inbox, chunk, message->place, offset))
        return false;
    given_back(engine, entry);
    return true;
}

/* Messages from the front that are of one grant, and so of one inbox, or one; how many. *given_io:
 * false if one of them is not held. */
static uint32_t give_back_some(weir_engine *engine, const weir_message *messages, uint32_t count,
                               bool *given_io) {
    struct inbox_entry *entry = find_made(engine, messages->inbox.id);
    uint32_t given = 0;
    if (entry != NULL && entry->maps == 0) {
        given = inbox_give_back_many(&entry->inbox, messages, count);
        if (given > 0)
            given_back(engine, entry);
    }
    if (given == 0) {
        *given_io &= give_back(engine, entry, messages);
        given = 1;
    }
    return given;
}

int weir_message_give_back(weir_engine *engine, const weir_message *message) {
    if (engine == NULL || message == NULL)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    own_enter(engine);
    bool given = give_back(engine, find_made(engine, message->inbox.id), message);
    go_on(engine);
    own_leave(engine);
    return given ? WEIR_OK : WEIR_ESTALE;
}

int weir_message_give_back_many(weir_engine *engine, const weir_message *messages, size_t count) {
    if (engine == NULL || (messages == NULL && count > 0))
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    bool given = true;
    while (count > 0) {
        uint32_t turn = count < TURN ? (uint32_t)count : TURN;
        count -= turn;
        own_enter(engine);
        while (turn > 0) {
            uint32_t some = give_back_some(engine, messages, turn, &given);
            messages += some;
            turn -= some;
        }
        go_on(engine);
        own_leave(engine);
    }
    return given ? WEIR_OK : WEIR_ESTALE;
}
