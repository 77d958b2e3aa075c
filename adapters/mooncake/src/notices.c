/* SPDX-License-Identifier: Apache-2.0 */
/* notices.c: notifications: two strings, as a notification of weir's, or, where they are longer
 * than WEIR_NOTIFY_MAX, as a message to an inbox that each engine has for them.
 *
 *     payload: length of the first string, 4 bytes, little-endian | first | second
 *
 * All that came are taken into a list at once, so that an application which never asks stalls
 * nobody; when the list is full they stay with weir, and senders wait. */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

int notice_encode(const notify_msg_t *notify, uint8_t **payload_out, uint32_t *length_out) {
    if (notify->name == NULL || notify->msg == NULL)
        return MC_EINVALID;
    size_t first = strlen(notify->name), second = strlen(notify->msg);
    if (first > NOTIFY_BYTES_MAX || second > NOTIFY_BYTES_MAX - first)
        return MC_EINVALID;
    uint8_t *payload = malloc(NOTICE_HEAD + first + second);
    if (payload == NULL)
        return MC_EMEMORY;
    for (size_t i = 0; i < NOTICE_HEAD; i++)
        payload[i] = (uint8_t)(first >> 8 * i);
    memcpy(payload + NOTICE_HEAD, notify->name, first);
    memcpy(payload + NOTICE_HEAD + first, notify->msg, second);
    *payload_out = payload;
    *length_out = (uint32_t)(NOTICE_HEAD + first + second);
    return 0;
}

/* ---- sending --------------------------------------------------------------- */

static weir_peer peer_of(struct segment *segment) {
    pthread_rwlock_rdlock(&segment->lock);
    weir_peer peer = segment->peer;
    pthread_rwlock_unlock(&segment->lock);
    return peer;
}

/* A long one is sent from memory of its own, which lasts until its end. */
static int post_long(struct mc_engine *engine, struct notice *notice, weir_peer peer,
                     const weir_transfer_options *options, weir_transfer *transfer) {
    void *base;
    int rc = weir_memory_allocate(engine->weir, notice->length, 0, &notice->bounce, &base);
    if (rc != WEIR_OK)
        return rc;
    memcpy(base, notice->payload, notice->length);
    weir_part part = {.local = notice->bounce, .length = notice->length};
    rc = weir_message_send(engine->weir, peer, NOTICE_INBOX, &part, 1, options, transfer);
    if (rc != WEIR_OK) {
        weir_memory_release(engine->weir, notice->bounce);
        notice->bounce.id = 0;
    }
    return rc;
}

static int post(struct mc_engine *engine, struct notice *notice, weir_transfer_options *options,
                weir_transfer *transfer) {
    weir_peer peer = peer_of(notice->target);
    options->notify_tag = NOTICE_TAG;
    if (notice->length > WEIR_NOTIFY_MAX)
        return post_long(engine, notice, peer, options, transfer);
    options->flags |= WEIR_TRANSFER_NOTIFY;
    options->notify_payload = notice->payload;
    options->notify_length = notice->length;
    return weir_write(engine->weir, peer, NULL, 0, options, transfer);
}

int notice_post(struct mc_engine *engine, struct notice *notice, uint64_t timeout_ns,
                uint64_t work) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = work;
    options.timeout_ns = timeout_ns;
    return post(engine, notice, &options, NULL);
}

/* In the thread that calls: until the peer's engine has it. */
static int send_and_wait(struct mc_engine *engine, struct notice *notice) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.timeout_ns = engine->timeout_ns;
    options.flags = WEIR_TRANSFER_BLOCK;
    int rc = post(engine, notice, &options, &transfer);
    if (rc != WEIR_OK)
        return rc;
    rc = weir_transfer_wait(engine->weir, transfer, UINT64_MAX);
    weir_transfer_release(engine->weir, transfer);
    if (notice->bounce.id != 0)
        weir_memory_release(engine->weir, notice->bounce);
    return rc;
}

/* A segment that a metadata server names may be elsewhere by now, and a peer that was given up may
 * be back. */
static void look_where(struct mc_engine *engine, struct segment *segment) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    bool connected =
        segment->id == LOCAL_SEGMENT ||
        (weir_peer_query(engine->weir, peer_of(segment), &info) == WEIR_OK && info.connected != 0);
    if (!connected && (engine->store != NULL || !atomic_load(&segment->is_peer_open)))
        refresh_segment(engine, segment, mc_now_ns() + engine->timeout_ns, true);
}

int notice_send(struct mc_engine *engine, const notify_msg_t *notify, int64_t target) {
    struct notice notice = {.target = segment_at(engine, target)};
    if (notice.target == NULL)
        return MC_EINVALID;
    int rc = notice_encode(notify, &notice.payload, &notice.length);
    if (rc != 0)
        return rc;
    look_where(engine, notice.target);
    rc = send_and_wait(engine, &notice);
    if (rc != WEIR_OK)
        mc_log("a notification to %s did not arrive: %s", notice.target->name, weir_strerror(rc));
    free(notice.payload);
    return rc == WEIR_OK ? 0 : rc == WEIR_ENOMEM ? MC_EMEMORY : MC_EENDPOINT;
}

int notice_probe(struct mc_engine *engine, int64_t target) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    struct segment *segment = segment_at(engine, target);
    if (segment == NULL)
        return MC_EINVALID;
    look_where(engine, segment);
    options.flags = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_BLOCK;
    options.notify_tag = SILENT_TAG;
    options.timeout_ns = engine->timeout_ns;
    int rc = weir_write(engine->weir, peer_of(segment), NULL, 0, &options, &transfer);
    if (rc != WEIR_OK)
        return MC_EENDPOINT;
    rc = weir_transfer_wait(engine->weir, transfer, UINT64_MAX);
    weir_transfer_release(engine->weir, transfer);
    return rc == WEIR_OK ? 0 : MC_EENDPOINT;
}

/* ---- receiving ---------------------------------------------------------------- */

static char *copy_string(const uint8_t *bytes, size_t length) {
    char *copy = malloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, bytes, length);
        copy[length] = '\0';
    }
    return copy;
}

/* Under notices_lock, and there is room. One that does not parse is dropped. */
static void store_notice(struct mc_engine *engine, uint64_t tag, const uint8_t *payload,
                         size_t length) {
    size_t first = 0;
    for (size_t i = 0; i < NOTICE_HEAD && i < length; i++)
        first |= (size_t)payload[i] << 8 * i;
    if (tag != NOTICE_TAG || length < NOTICE_HEAD || first > length - NOTICE_HEAD)
        return;
    notify_msg_t *notice = &engine->notices[engine->notice_count];
    notice->name = copy_string(payload + NOTICE_HEAD, first);
    notice->msg = copy_string(payload + NOTICE_HEAD + first, length - NOTICE_HEAD - first);
    if (notice->name != NULL && notice->msg != NULL) {
        engine->notice_count++;
        engine->notice_bytes += length;
        return;
    }
    mc_log("a notification was dropped: out of memory");
    free(notice->name);
    free(notice->msg);
}

/* Room for one more. */
static bool make_room(struct mc_engine *engine) {
    if (engine->notice_bytes >= NOTICES_BYTES_MAX)
        return false;
    if (engine->notice_count < engine->notice_room)
        return true;
    size_t room = engine->notice_room > 0 ? 2 * engine->notice_room : 64;
    notify_msg_t *notices = engine->notice_count < NOTICES_MAX
                                ? realloc(engine->notices, room * sizeof(*notices))
                                : NULL;
    if (notices == NULL)
        return false;
    engine->notices = notices;
    engine->notice_room = room;
    return true;
}

bool notices_take(struct mc_engine *engine) {
    weir_notification note;
    weir_message message;
    pthread_mutex_lock(&engine->notices_lock);
    bool has_room;
    while ((has_room = make_room(engine)) && weir_notification_take(engine->weir, &note) == WEIR_OK)
        store_notice(engine, note.tag, note.payload, note.length);
    while (has_room && (has_room = make_room(engine)) &&
           weir_message_take(engine->weir, engine->inbox, &message) == WEIR_OK) {
        store_notice(engine, message.tag, message.data, message.length);
        weir_message_give_back(engine->weir, &message);
    }
    pthread_mutex_unlock(&engine->notices_lock);
    return has_room;
}

notify_msg_t *notices_give(struct mc_engine *engine, int *count) {
    notices_take(engine);
    pthread_mutex_lock(&engine->notices_lock);
    notify_msg_t *notices = engine->notice_count > 0 ? engine->notices : NULL;
    *count = (int)engine->notice_count;
    if (notices != NULL) {
        engine->notices = NULL;
        engine->notice_count = engine->notice_room = engine->notice_bytes = 0;
    }
    pthread_mutex_unlock(&engine->notices_lock);
    return notices;
}

void notices_free(notify_msg_t *notices, size_t count) {
    for (size_t i = 0; notices != NULL && i < count; i++) {
        free(notices[i].name);
        free(notices[i].msg);
    }
    free(notices);
}
