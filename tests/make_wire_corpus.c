/* SPDX-License-Identifier: Apache-2.0 */
/* make_wire_corpus.c: writes the seeds of fuzz_wire.c: one file for each type of
 * message, a descriptor, both data headers, words and notes of messages, and conversations that
 * reach every state of the endpoint. Usage: make_wire_corpus <existing directory> */
#include <stdio.h>
#include <string.h>

#include "wire.h"
#include "wire_data.h"
#include "words.h"

static const char *directory;
static int failures;

static void save(const char *name, const uint8_t *bytes, size_t length) {
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length) {
        perror(path);
        failures++;
    }
    if (file != NULL && fclose(file) != 0)
        failures++;
}

static uint32_t message(enum wire_type type, uint64_t epoch, uint64_t echo, uint8_t *out) {
    struct wire_message m;
    uint32_t length = 0;

    memset(&m, 0, sizeof(m));
    m.type = type;
    m.epoch = epoch;
    m.echo = echo;
    m.reason = WEIR_ESTALE;
    m.pass = 0x70617373;
    memset(m.from, 'r', sizeof(m.from));
    if (type != WIRE_WHO)
        memset(m.to, 'l', sizeof(m.to));
    if (type == WIRE_WHO || type == WIRE_IAM) {
        strcpy(m.address, "[::1]:4711");
    } else if (type == WIRE_SETTLED) {
        m.settled.base = 5;
        m.settled.bits[0] = 6;
        m.settled.broke = echo;
        m.settled.reason = WEIR_EREMOTE;
    } else if (type == WIRE_STATE) {
        m.state.away_ns = 1000000;
        m.state.notifications = 3;
        m.state.thread = true;
        m.state.inbox_count = 1;
        m.state.inboxes[0] = (struct wire_state_inbox){7, 2, 1};
    } else if (type == WIRE_REFUSE) {
        m.devices.count = 1;
        strcpy(m.devices.entries[0].name, "efa");
        m.devices.entries[0].used = true;
    } else if (type == WIRE_HELLO || type == WIRE_HELLO_ACK) {
        m.devices.count = 1;
        strcpy(m.devices.entries[0].name, "verbs");
        m.devices.entries[0].untried = true;
        strcpy(m.qps.device, "shm");
        m.qps.recv_credits = 64;
        m.qps.recv_bytes_max = WIRE_DATA_SIZE + WEIR_NOTIFY_MAX;
        m.qps.pass = 0x70617373;
        m.qps.life = 0x6c696665;
        m.qps.qp_count = 2;
        m.qps.qps[0].psn = 0x123456;
        m.qps.qps[1].blob_length = 4;
    }
    if (wire_encode(&m, out, WEIR_CONTROL_MESSAGE_MAX, &length) != WEIR_OK)
        failures++;
    return length;
}

/* HELLO as a later version may say it: behind the device with the QP set another one with one, an
 * entry of a kind to come, and bytes that nobody knows. */
static void save_later(void) {
    static const uint8_t more[] = {5, 0, 99, 'x', 'y', 'z', 'z'};
    uint8_t bytes[1 + WEIR_CONTROL_MESSAGE_MAX] = {0}, *message_bytes = bytes + 1;
    uint32_t length = message(WIRE_HELLO, 2, 0, message_bytes);
    uint8_t *list = message_bytes + WIRE_HEADER_SIZE + 24, *entry = list + 2;
    uint32_t size = 2u + entry[0], known = length - (uint32_t)(entry - message_bytes);

    memcpy(entry + known, entry, size);
    memcpy(entry + known + 5, "efa", 3);
    memcpy(entry + known + size, "??", 2); /* of this entry, too */
    entry[known] = (uint8_t)(entry[known] + 2);
    memcpy(entry + known + size + 2, more, sizeof(more));
    length += size + 2 + (uint32_t)sizeof(more);
    list[0] = 2;
    list[1] = 4;
    message_bytes[8] = (uint8_t)length;
    message_bytes[9] = (uint8_t)(length >> 8);
    struct wire_message back;
    if (wire_decode(message_bytes, length, &back) != WEIR_OK || back.devices.count != 2)
        failures++;
    save("HELLO_later", bytes, 1 + length);
}

struct line {
    uint8_t own; /* see fuzz_conversation */
    enum wire_type type;
    uint64_t epoch, echo;
};

static void conversation(const char *name, const struct line *lines, size_t count) {
    uint8_t bytes[16 * WEIR_CONTROL_MESSAGE_MAX] = {3};
    size_t used = 1;

    for (size_t i = 0; i < count; i++) {
        uint32_t length = message(lines[i].type, lines[i].epoch, lines[i].echo, bytes + used + 2);

        bytes[used] = (uint8_t)length;
        bytes[used + 1] = (uint8_t)(length >> 8 | (uint32_t)lines[i].own << 4);
        used += 2 + length;
    }
    save(name, bytes, used);
}

#define CONVERSATION(name, ...)                                                                    \
    conversation(name, (const struct line[]){__VA_ARGS__},                                         \
                 sizeof((const struct line[]){__VA_ARGS__}) / sizeof(struct line))

static void save_conversations(void) {
    CONVERSATION("talk_open", {1, WIRE_HELLO_ACK, 1, 1}, {0, WIRE_HELLO_ACK, 1, 1});
    CONVERSATION("talk_accept", {0, WIRE_HELLO, 1, 0}, {0, WIRE_HELLO, 1, 0}, {0, WIRE_READY, 1, 1},
                 {0, WIRE_HELLO, 1, 0});
    CONVERSATION("talk_cross", {1, WIRE_HELLO, 1, 0}, {0, WIRE_HELLO_ACK, 1, 1},
                 {0, WIRE_HELLO, 2, 0}, {0, WIRE_READY, 2, 2}, {4, WIRE_SETTLED, 0, 1});
    CONVERSATION("talk_renew", {0, WIRE_HELLO, 1, 0}, {2, WIRE_HELLO, 2, 0}, {0, WIRE_HELLO, 1, 0},
                 {0, WIRE_SETTLE, 1, 0}, {4, WIRE_READY, 2, 2}, {0, WIRE_SETTLE, 2, 0},
                 {4, WIRE_BYE, 0, 0});
    CONVERSATION("talk_differ", {1, WIRE_HELLO, 1, 0}, {0, WIRE_HELLO_ACK, 2, 1},
                 {2, WIRE_REFUSE, 0, 2}, {7, WIRE_HELLO_ACK, 3, 3});
    CONVERSATION("talk_break", {0, WIRE_HELLO, 1, 0}, {0, WIRE_READY, 1, 1},
                 {8, WIRE_HELLO_ACK, 2, 2}, {4, WIRE_SETTLED, 0, 1});
}

static void save_words(const struct wire_descriptor *descriptor) {
    struct wire_descriptor memory = *descriptor;

    memory.length = room_memory(4096, 1); /* one chunk, and its watch */
    const struct word words[] = {
        {.kind = WORD_WANT, .inbox = 7, .grants = 2},
        {.kind = WORD_SHUT, .inbox = 7, .shut = {3, 4, 128}},
        {.kind = WORD_LEFT, .inbox = 7},
        {.kind = WORD_LOOK, .inbox = 7},
        {.kind = WORD_AHEAD, .inbox = 7},
        {.kind = WORD_MEET,
         .inbox = 7,
         .meet = {.chunk_bytes = 4096, .message_bytes_max = 1024, .memory = memory}},
        {.kind = WORD_GRANT, .inbox = 7, .grant = {3, 5, 4, true}},
        {.kind = WORD_CALL, .inbox = 7, .place = 3},
        {.kind = WORD_ABSENT, .inbox = 7},
        {.kind = WORD_OPENED},
        {.kind = WORD_CLOSED, .inbox = 7},
        {.kind = WORD_NOW, .inbox = 7, .number = 9},
        {.kind = WORD_FULL, .inbox = 7, .number = 9},
        {.kind = WORD_LOOKUP, .named = {.length = 4, .bytes = "name"}},
        {.kind = WORD_LIST, .named = {.place = 5}},
        {.kind = WORD_NAMED, .memory = {.version = 6, .memory = memory}},
        {.kind = WORD_VALUE, .named = {.version = 6, .length = 5, .bytes = "value"}},
        {.kind = WORD_NOTHING},
        {.kind = WORD_LISTED,
         .named = {.place = 6, .size = 5, .kind = NAME_VALUE, .length = 4, .bytes = "name"}},
        {.kind = WORD_LISTED},
        {.kind = WORD_CHANGED, .hash = 7},
    };
    uint8_t bytes[1 + WORD_KIND_END * WORD_SIZE_MAX] = {4};
    size_t used = 1;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        uint32_t length = 0;
        if (word_encode(&words[i], bytes + used, sizeof(bytes) - used, &length) != WEIR_OK)
            failures++;
        used += length;
    }
    save("words", bytes, used);
}

static void save_notes(void) {
    const struct room_note with = {.place = 3, .inbox = 7, .chunk = 4, .offset = 128, .length = 10};
    const struct room_note skip = {.place = 3, .inbox = 7, .length = 5000, .skip = true};
    uint8_t bytes[1 + WORD_NOTE_SIZE + 10] = {5};

    word_note_encode(&with, bytes + 1);
    save("note", bytes, sizeof(bytes));
    word_note_encode(&skip, bytes + 1);
    save("note_skip", bytes, 1 + WORD_NOTE_SIZE);
}

int main(int argc, char **argv) {
    uint8_t bytes[1 + WEIR_CONTROL_MESSAGE_MAX];
    struct wire_descriptor d;
    const struct wire_data notify = {
        .kind = WIRE_NOTIFY, .parts = 2, .payload_length = 3, .credit = 9, .number = 4, .tag = 7};
    const struct wire_data credit = {.kind = WIRE_CREDIT, .credit = 9};
    uint32_t length = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: make_wire_corpus <directory>\n");
        return 2;
    }
    directory = argv[1];
    for (int type = WIRE_WHO; type < WIRE_TYPE_END; type++) {
        bytes[0] = 0;
        length = message((enum wire_type)type, 2, 1, bytes + 1);
        save(wire_type_name((enum wire_type)type), bytes, 1 + length);
    }
    save_later();
    memset(&d, 0, sizeof(d));
    memset(d.instance, 'r', sizeof(d.instance));
    d.memory_id = 1;
    d.length = 4096;
    d.access = WEIR_ACCESS_ALL;
    strcpy(d.device, "shm");
    d.blob_length = 24;
    bytes[0] = 1;
    if (wire_descriptor_encode(&d, bytes + 1, WEIR_DESCRIPTOR_MAX, &length) != WEIR_OK)
        failures++;
    save("descriptor", bytes, 1 + length);
    save_words(&d);
    save_notes();
    memset(bytes, 0, sizeof(bytes));
    bytes[0] = 2;
    wire_data_encode(&notify, bytes + 1);
    save("data_notify", bytes, 1 + WIRE_DATA_SIZE + notify.payload_length);
    wire_data_encode(&credit, bytes + 1);
    save("data_credit", bytes, 1 + WIRE_DATA_SIZE);
    save_conversations();
    return failures == 0 ? 0 : 1;
}
