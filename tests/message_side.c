/* SPDX-License-Identifier: Apache-2.0 */
/* message_side.c: see message_side.h. */
#include "message_side.h"

#include <string.h>

int try_inbox(struct side *side, uint32_t number, uint64_t longest, uint32_t of_peer, uint32_t all,
              weir_inbox *inbox) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;

    options.number = number;
    options.message_bytes_max = longest;
    options.peer_messages = of_peer;
    options.messages = all;
    return weir_inbox_open(side->engine, &options, inbox);
}

weir_inbox inbox_of(struct side *side, uint32_t number, uint64_t longest, uint32_t count) {
    weir_inbox inbox = {0};

    assert_int_equal(try_inbox(side, number, longest, count, count, &inbox), WEIR_OK);
    assert_true(inbox.id != 0);
    return inbox;
}

weir_transfer_options tagged(uint64_t tag, uint32_t flags) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = flags;
    options.notify_tag = options.user_data = tag;
    return options;
}

/* What a message with this tag consists of. */
static const uint8_t *content_of(uint64_t tag, uint64_t length) {
    static uint8_t of_short[WEIR_MESSAGE_COPY_MAX], of_long[MIB];
    static bool filled;

    assert_true(length <= sizeof(of_long));
    if (length <= sizeof(of_short)) {
        fill_pattern(of_short, length, tag);
        return of_short;
    }
    if (!filled)
        fill_pattern(of_long, sizeof(of_long), 0);
    filled = true;
    return of_long;
}

int try_send(struct side *from, weir_peer peer, uint32_t inbox, uint64_t length,
             const weir_transfer_options *options, weir_transfer *transfer) {
    uint8_t bytes[WEIR_MESSAGE_COPY_MAX];
    weir_part part = {.base = bytes, .length = length};

    if (length > sizeof(bytes)) {
        part = (weir_part){.local = from->memory, .length = length};
    } else {
        fill_pattern(bytes, length, options->notify_tag);
    }
    int rc = weir_message_send(from->engine, peer, inbox, &part, 1, options, transfer);
    memset(bytes, 0x5a, sizeof(bytes)); /* it is copied by now */
    return rc;
}

weir_transfer send_with(struct side *from, uint32_t inbox, uint64_t length,
                        const weir_transfer_options *options) {
    weir_transfer transfer = {0};

    assert_int_equal(try_send(from, from->peer, inbox, length, options, &transfer), WEIR_OK);
    return transfer;
}

weir_transfer send_one(struct side *from, uint32_t inbox, uint64_t tag, uint64_t length) {
    weir_transfer_options options = tagged(tag, 0);

    return send_with(from, inbox, length, &options);
}

void assert_content(const weir_message *message, uint64_t length) {
    assert_int_equal(message->length, length);
    assert_int_equal((uintptr_t)message->data % 8, 0);
    if (memcmp(message->data, content_of(message->tag, length), length) != 0)
        fail_msg("message %d of %d bytes", (int)message->tag, (int)length);
}

weir_message take(struct side *to, struct side *from, weir_inbox inbox, uint64_t tag,
                  uint64_t length) {
    weir_message got = {0};

    STEP_UNTIL(from, to, weir_message_take(to->engine, inbox, &got) == WEIR_OK);
    assert_int_equal(got.tag, tag);
    assert_int_equal(got.inbox.id, inbox.id);
    if (to->peer.id != 0)
        assert_int_equal(got.from.id, to->peer.id);
    assert_content(&got, length);
    return got;
}

void give_back(struct side *to, const weir_message *message) {
    assert_int_equal(weir_message_give_back(to->engine, message), WEIR_OK);
}

void take_and_give_back(struct side *to, struct side *from, weir_inbox inbox, uint64_t tag,
                        uint64_t length) {
    weir_message got = take(to, from, inbox, tag, length);

    give_back(to, &got);
}

void assert_none(struct side *to, weir_inbox inbox) {
    weir_message got;

    assert_int_equal(weir_message_take(to->engine, inbox, &got), WEIR_EAGAIN);
}

void some_steps(struct side *a, struct side *b) {
    for (int i = 0; i < 200; i++)
        step(a, b);
}

int status_of(struct side *side, weir_transfer transfer) {
    return weir_transfer_status(side->engine, transfer);
}

weir_inbox_info look(struct side *side, weir_inbox inbox) {
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;

    assert_int_equal(weir_inbox_query(side->engine, inbox, &info), WEIR_OK);
    return info;
}

void open_pair(struct side *a, struct side *b) {
    pair_open(a, b, NULL);
    fill_pattern(a->bytes, a->length, 0);
    fill_pattern(b->bytes, b->length, 0);
}

void open_three(struct side *a, struct side *b, struct side *c) {
    open_pair(a, b);
    side_open(c, NULL);
    fill_pattern(c->bytes, c->length, 0);
    side_join(c, b);
    connect_now(c, b);
    b->peer.id = 0; /* messages are of both */
}
