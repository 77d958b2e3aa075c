/* SPDX-License-Identifier: Apache-2.0 */
/* target_inbox.c: a target's side of sessions of messages: an inbox for each, see proto.h.
 *
 * All that a message says is a stranger's: anybody may send to an inbox. Tags choose a seat, which
 * is checked, and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "target.h"

#define BATCH 256 /* messages taken before looking at anything else, */
#define CALL  32  /* and by one call */

int inbox_open(struct target *target, struct served *served) {
    const struct proto_open *open = &served->open;
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;

    served->due = calloc(open->seats, sizeof(*served->due));
    served->held = calloc(open->hold + 1, sizeof(*served->held));
    if (served->due == NULL || served->held == NULL)
        return WEIR_ENOMEM;
    options.number = served->index + 1;
    options.message_bytes_max = open->message_bytes;
    options.peer_messages = (uint32_t)proto_peer_messages(open);
    if (!proto_has_crowds(open))
        options.messages = options.peer_messages;
    return weir_inbox_open(target->engine, &options, &served->inbox);
}

void inbox_shut(struct target *target, struct served *served) {
    uint64_t hold = served->open.hold;

    if (served->inbox.id == 0)
        return;
    for (uint64_t i = served->kept > hold ? served->kept - hold : 0; i < served->kept; i++)
        (void)weir_message_give_back(target->engine, &served->held[i % hold]);
    served->kept = 0;
    (void)weir_inbox_close(target->engine, served->inbox);
    served->inbox.id = 0;
}

void inbox_free(struct served *served) {
    free(served->due);
    free(served->held);
    served->due = NULL;
    served->held = NULL;
}

int inbox_name(struct target *target, struct served *served) {
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;
    struct proto_inbox name = {.number = served->index + 1};
    int rc =
        inbox_is_of(served) ? weir_inbox_query(target->engine, served->inbox, &info) : WEIR_EINVAL;

    if (rc != 0)
        return rc;
    name.chunks = info.chunks;
    name.chunk_bytes = info.chunk_bytes;
    return target_send(target, served, proto_tag(PROTO_NUMBER, 0), &name, sizeof(name), NULL, 0);
}

/* Answers DRAIN, as soon as all that it asks for was taken. */
static int answer_drain(struct target *target, struct served *served) {
    if (served->drain_at == 0 || served->drained.taken < served->drain_at)
        return 0;
    served->drain_at = 0;
    return target_send(target, served, proto_tag(PROTO_DRAINED, 0), &served->drained,
                       sizeof(served->drained), NULL, 0);
}

int inbox_drain(struct target *target, struct served *served, const weir_notification *message) {
    struct proto_count count;

    if (!inbox_is_of(served) || message->length != sizeof(count) || served->drain_at != 0)
        return WEIR_EINVAL;
    memcpy(&count, message->payload, sizeof(count));
    if (count.count == 0)
        return WEIR_EINVAL;
    served->drain_at = count.count;
    return answer_drain(target, served);
}

/* Counts a message, and compares it where that was asked for. */
static void count_message(struct served *served, const weir_message *message) {
    const struct proto_open *open = &served->open;
    struct proto_drained *drained = &served->drained;
    uint64_t seat = message->tag >> PROTO_SEAT_SHIFT;
    bool placed = seat < open->seats && message->length == open->message_bytes &&
                  message->tag == proto_message_tag(seat, served->due[seat]);

    if (seat < open->seats)
        served->due[seat]++;
    drained->taken++;
    drained->misplaced += !placed;
    if (open->verify == 0)
        return;
    drained->checked_bytes += message->length;
    drained->wrong_bytes +=
        content_wrong(message->data, message->length, content_key(open->seed, message->tag));
}

/* Messages that are given back together. */
struct back {
    weir_message messages[CALL];
    size_t count;
};

/* Keeps the message, and has the one given back that was kept for longest, if there are enough. */
static void keep(struct served *served, const weir_message *message, struct back *back) {
    uint64_t hold = served->open.hold;
    weir_message oldest = *message;
    bool full = served->kept >= hold;

    if (hold != 0) {
        oldest = served->held[served->kept % hold];
        served->held[served->kept % hold] = *message;
        served->kept++;
    }
    if (full)
        back->messages[back->count++] = oldest;
}

static int take_one(struct target *target, struct served *served, const weir_message *message,
                    struct back *back) {
    weir_part part = {.local = served->scratch, .length = served->open.message_bytes};
    int rc = 0;

    if (served->open.crowd == 0 && message->from.id != served->peer.id) {
        back->messages[back->count++] = *message;
        return 0;
    }
    count_message(served, message);
    if (served->open.kind >= PROTO_KIND_SEND_PING)
        rc = target_post(target, served, served->open.answers, message->tag, &part);
    keep(served, message, back);
    return rc == 0 ? answer_drain(target, served) : rc;
}

int inbox_take(struct target *target, struct served *served) {
    weir_message messages[CALL];
    size_t count;
    int taken = 0, rc = 0;

    while (rc == 0 && taken < BATCH &&
           weir_message_take_many(target->engine, served->inbox, messages, CALL, &count) == 0) {
        struct back back = {.count = 0};
        for (size_t i = 0; i < count; i++) {
            if (rc == 0)
                rc = take_one(target, served, &messages[i], &back);
            else
                back.messages[back.count++] = messages[i];
        }
        int given = weir_message_give_back_many(target->engine, back.messages, back.count);
        rc = rc != 0 ? rc : given;
        taken += (int)count;
    }
    return rc == 0 ? taken : rc;
}
