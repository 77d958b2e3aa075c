/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_wire.c: hostile bytes at everything that parses them.
 *
 * The first byte of an input chooses: a control message, a memory descriptor, a
 * data-path header, a conversation: messages, each behind a 16-bit length, that
 * go to a living endpoint; words about messages, one behind the other; or the note of a message.
 * Whatever is accepted must encode to the same bytes, and the endpoint must keep its invariants.
 *
 * Build and run:
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc/ports -Isrc/core \
 *       tests/fuzz_wire.c src/core/wire.c src/core/words.c src/core/endpoint*.c src/core/rtt.c \
 *       -o fuzz_wire
 *   ./fuzz_wire -max_len=8192 -max_total_time=60 new_corpus tests/corpus/wire
 * The seeds in tests/corpus/wire are from: make_wire_corpus <directory>.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "wire.h"
#include "wire_data.h"
#include "words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fuzz_wire: %s\n", what);
    abort();
}

/* Of what was encoded here nothing is skipped. */
static void fuzz_again(const uint8_t *data, uint32_t size) {
    struct wire_message message;
    uint8_t again[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;

    check(wire_decode(data, size, &message) == WEIR_OK, "what is encoded does not decode");
    check(wire_encode(&message, again, sizeof(again), &length) == WEIR_OK && length == size &&
              memcmp(again, data, size) == 0,
          "encodes to bytes that mean something else");
}

static void fuzz_message(const uint8_t *data, size_t size) {
    struct wire_message message;
    uint8_t again[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;

    (void)wire_version_of(data, size);
    if (wire_decode(data, size, &message) != WEIR_OK)
        return;
    /* Of a list of devices some may have been skipped, with the only QP set. */
    bool lists = message.type == WIRE_HELLO || message.type == WIRE_HELLO_ACK;
    if (lists && message.qps.qp_count == 0)
        return;
    check(wire_encode(&message, again, sizeof(again), &length) == WEIR_OK, "does not encode");
    if (lists || message.type == WIRE_REFUSE)
        fuzz_again(again, length);
    else
        check(length == size && memcmp(again, data, size) == 0, "encodes to other bytes");
}

static void fuzz_descriptor(const uint8_t *data, size_t size) {
    struct wire_descriptor descriptor;
    uint8_t again[WEIR_DESCRIPTOR_MAX];
    uint32_t length;

    if (wire_descriptor_decode(data, size, &descriptor) != WEIR_OK)
        return;
    check(wire_descriptor_encode(&descriptor, again, sizeof(again), &length) == WEIR_OK,
          "descriptor does not encode");
    check(length == size && memcmp(again, data, size) == 0, "descriptor encodes to other bytes");
}

static void fuzz_data(const uint8_t *data, size_t size) {
    struct wire_data header;
    uint8_t again[WIRE_DATA_SIZE];

    if (size > UINT32_MAX || wire_data_decode(data, (uint32_t)size, &header) != WEIR_OK)
        return;
    wire_data_encode(&header, again);
    check(memcmp(again, data, sizeof(again)) == 0, "data header encodes to other bytes");
}

static void fuzz_words(const uint8_t *data, size_t size) {
    static struct word word;
    uint8_t again[WORD_SIZE_MAX];
    uint32_t length, written;

    for (; word_decode(data, size, &word, &length) == WEIR_OK; data += length, size -= length) {
        check(word_encode(&word, again, sizeof(again), &written) == WEIR_OK,
              "a word does not encode");
        check(written == length && memcmp(again, data, length) == 0,
              "a word encodes to other bytes");
    }
}

static void fuzz_note(const uint8_t *data, size_t size) {
    struct room_note note;
    uint8_t again[WORD_NOTE_SIZE];

    if (word_note_decode(data, size, &note) != WEIR_OK)
        return;
    word_note_encode(&note, again);
    check(memcmp(again, data, sizeof(again)) == 0, "a note encodes to other bytes");
    size_t with = size - sizeof(again);
    check(with == 0 || (with == note.length && !note.skip), "a payload that is not the note's");
}

/* ---- a conversation ---------------------------------------------------- */

static void settled_of(void *self, uint64_t epoch, struct wire_settled *out) {
    (void)self;
    (void)epoch;
    memset(out, 0, sizeof(*out));
}

static void local_set(struct wire_qp_set *set) {
    memset(set, 0, sizeof(*set));
    memcpy(set->device, "shm", 4);
    set->recv_credits = 64;
    set->recv_bytes_max = WIRE_DATA_SIZE + WEIR_NOTIFY_MAX;
    set->pass = 7;
    set->life = 8;
    set->qp_count = 2;
}

/* One event and the answers that it asks for. */
static void step(struct endpoint *ep, struct ep_event event, uint64_t now_ns) {
    struct ep_effect effects[EP_EFFECTS_MAX];
    struct wire_message sent;
    struct wire_qp_set local;
    bool answer = true;

    local_set(&local);
    for (uint32_t bound = 0; answer; bound++) {
        uint32_t count = endpoint_step(ep, &event, now_ns, effects);

        answer = false;
        check(bound < 16, "no end of effects");
        check(count <= EP_EFFECTS_MAX, "too many effects");
        check(endpoint_verify(ep) == NULL, "an invariant of the endpoint does not hold");
        for (uint32_t i = 0; i < count; i++) {
            check(!answer, "something behind CREATE or CONNECT");
            answer = effects[i].type == EP_DO_CREATE || effects[i].type == EP_DO_CONNECT;
            if (effects[i].type == EP_DO_SEND)
                check(wire_decode(effects[i].data, effects[i].length, &sent) == WEIR_OK,
                      "the endpoint sends what it would not accept");
        }
        if (answer)
            event = (struct ep_event){
                .type = effects[count - 1].type == EP_DO_CREATE ? EP_EV_QPS_READY : EP_EV_CONNECTED,
                .session = effects[count - 1].session,
                .local = &local};
    }
}

static void drain(struct endpoint *ep, uint64_t now_ns) {
    for (uint32_t session = 0; session < EP_SESSIONS; session++) {
        if (ep->sessions[session].state == EP_SESSION_RETIRED)
            step(ep, (struct ep_event){.type = EP_EV_DRAINED, .session = session}, now_ns);
    }
}

/* The length's upper four bits are what happens here before the message: 1 a wish
 * for a session, 2 the timer, 4 retired sessions drain, 8 a session breaks. */
static void fuzz_conversation(const uint8_t *data, size_t size) {
    static struct endpoint ep;
    static _Alignas(8) uint8_t papers[2][EP_PAPERS_BYTES(WEIR_QPS_MAX)];
    struct ep_pile pile = {.papers = papers, .count = 2, .qps = WEIR_QPS_MAX};
    struct rtt rtt = {0};
    static struct wire_message message;
    static const struct wire_devices devices = {
        .count = 2, .entries = {{.name = "shm", .used = true}, {.name = "verbs", .untried = true}}};
    uint64_t epochs = 0, now_ns = 0;
    struct ep_options options = {.epoch_counter = &epochs,
                                 .connect_timeout_ns = 100,
                                 .retransmit_ns = 2,
                                 .rtt = &rtt,
                                 .pile = &pile,
                                 .devices = &devices,
                                 .settled = settled_of};

    memset(options.instance_local, 'l', WIRE_INSTANCE_SIZE);
    memset(options.instance_remote, 'r', WIRE_INSTANCE_SIZE);
    endpoint_init(&ep, &options);
    while (size >= 2) {
        size_t length = (size_t)data[0] | (size_t)(data[1] & 0x0f) << 8;
        uint32_t own = data[1] >> 4;

        data += 2;
        size -= 2;
        now_ns++;
        if (own & 1)
            step(&ep, (struct ep_event){.type = EP_EV_WANT}, now_ns);
        if (own & 2)
            step(&ep, (struct ep_event){.type = EP_EV_TIMER}, now_ns);
        if (own & 4)
            drain(&ep, now_ns);
        if (own & 8)
            step(&ep, (struct ep_event){.type = EP_EV_BROKEN, .session = length % EP_SESSIONS},
                 now_ns);
        if (length > size)
            length = size;
        if (wire_decode(data, length, &message) == WEIR_OK) {
            /* Found by no mutation, and not what this is about. */
            memset(message.from, 'r', WIRE_INSTANCE_SIZE);
            memset(message.to, 'l', WIRE_INSTANCE_SIZE);
            step(&ep, (struct ep_event){.type = EP_EV_MESSAGE, .message = &message}, now_ns);
        }
        data += length;
        size -= length;
    }
    step(&ep, (struct ep_event){.type = EP_EV_CLOSE}, now_ns);
    drain(&ep, now_ns);
    check(endpoint_at_rest(&ep), "a closed endpoint keeps a session");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    switch (data[0] % 6) {
    case 0:
        fuzz_message(data + 1, size - 1);
        break;
    case 1:
        fuzz_descriptor(data + 1, size - 1);
        break;
    case 2:
        fuzz_data(data + 1, size - 1);
        break;
    case 4:
        fuzz_words(data + 1, size - 1);
        break;
    case 5:
        fuzz_note(data + 1, size - 1);
        break;
    default:
        fuzz_conversation(data + 1, size - 1);
        break;
    }
    return 0;
}
