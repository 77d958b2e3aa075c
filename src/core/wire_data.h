/* SPDX-License-Identifier: Apache-2.0 */
/* wire_data.h: the header in front of every SEND on the data path.
 *
 * Owns its 32 bytes, little-endian:
 *
 *      0  kind 1, parts 1, payload length 2, credit of words 4 (credit.h)
 *      8  number 8
 *     16  tag 8
 *     24  number less base 4: all of the sender's numbers <= base are finished (window.h)
 *     28  credit of notes 4
 *
 * and the checks that need no context. The meaning of a number or a credit is the receiver's
 * business (window.h, credit.h). Inline, because a notification pays for it twice. */
#ifndef WEIR_WIRE_DATA_H
#define WEIR_WIRE_DATA_H

#include <string.h>

#include "credit.h"
#include "wire.h"

enum { WIRE_DATA_SIZE = 32 };

enum wire_data_kind {
    WIRE_NOTIFY = 1,  /* one part of a notification; the payload follows the header */
    WIRE_CREDIT = 2,  /* only returns credits: all but credit is 0 */
    WIRE_WORDS = 3,   /* words about messages follow (words.h); in one part */
    WIRE_MESSAGE = 4, /* one part of the note of a message; the note, and perhaps the message,
                       * follow */
    WIRE_NOTES = 5,   /* the notes of several messages, each as in WIRE_MESSAGE (words.h); in one
                       * part. The first has this number, and the others have those behind it */
    WIRE_DATA_KINDS
};

struct wire_data {
    uint8_t kind;
    uint8_t parts;           /* of this one, 1..WEIR_QPS_MAX */
    uint16_t payload_length; /* <= WEIR_NOTIFY_MAX */
    uint64_t credit;         /* taken up so far on this QP: credit_to_tell */
    uint64_t number;         /* above base, by at most WIRE_WINDOW_SIZE */
    uint64_t tag;
    uint64_t base;
};

static inline uint64_t wire_data_le64(uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(value);
#else
    return value;
#endif
}

/* The class whose credit a message of this kind takes; of WIRE_CREDIT CREDIT_CLASSES. */
static inline enum credit_class wire_data_class(uint8_t kind) {
    return kind == WIRE_NOTIFY ? CREDIT_NOTES : kind == WIRE_CREDIT ? CREDIT_CLASSES : CREDIT_WORDS;
}

/* Writes WIRE_DATA_SIZE bytes. Fields must be in range. */
static inline void wire_data_encode(const struct wire_data *data, uint8_t *out) {
    const uint64_t words[4] = {
        wire_data_le64((uint64_t)data->kind | (uint64_t)data->parts << 8 |
                       (uint64_t)data->payload_length << 16 | data->credit >> 32 << 32),
        wire_data_le64(data->number), wire_data_le64(data->tag),
        wire_data_le64((uint32_t)(data->number - data->base) | data->credit << 32)};

    memcpy(out, words, sizeof(words));
}

/* The length of the message that begins here, as it says itself. */
static inline uint32_t wire_data_length(const uint8_t *in) {
    uint64_t word;

    memcpy(&word, in, sizeof(word));
    return WIRE_DATA_SIZE + (uint16_t)(wire_data_le64(word) >> 16);
}

/* Reads a received message of `length` bytes, payload included; the payload is
 * at in + WIRE_DATA_SIZE. 0 or EINVAL; *data_out is written only on success. */
static inline int wire_data_decode(const uint8_t *in, uint32_t length, struct wire_data *data_out) {
    uint64_t words[4];
    struct wire_data data;

    if (length < WIRE_DATA_SIZE)
        return WEIR_EINVAL;
    memcpy(words, in, sizeof(words));
    words[0] = wire_data_le64(words[0]);
    data.kind = (uint8_t)words[0];
    data.parts = (uint8_t)(words[0] >> 8);
    data.payload_length = (uint16_t)(words[0] >> 16);
    words[3] = wire_data_le64(words[3]);
    data.credit = words[0] >> 32 << 32 | words[3] >> 32;
    data.number = wire_data_le64(words[1]);
    data.tag = wire_data_le64(words[2]);
    data.base = data.number - (uint32_t)words[3];
    if (length - WIRE_DATA_SIZE != data.payload_length)
        return WEIR_EINVAL;
    if (data.kind >= WIRE_NOTIFY && data.kind < WIRE_DATA_KINDS && data.kind != WIRE_CREDIT) {
        if (data.parts < 1 || data.parts > WEIR_QPS_MAX || data.number <= data.base ||
            data.number - data.base > WIRE_WINDOW_SIZE || data.payload_length > WEIR_NOTIFY_MAX ||
            (data.kind == WIRE_WORDS && data.parts != 1) ||
            (data.kind == WIRE_NOTES && (data.parts != 1 || data.tag != 0)))
            return WEIR_EINVAL;
    } else if (data.kind != WIRE_CREDIT || data.parts != 0 || data.payload_length != 0 ||
               data.number != 0 || data.tag != 0 || data.base != 0) {
        return WEIR_EINVAL;
    }
    *data_out = data;
    return WEIR_OK;
}

#endif
