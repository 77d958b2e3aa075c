/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: what two plug-ins say to each other: notifications.
 *
 * Each is a notification of weir's, which comes with the data of a transfer, or with none where it
 * was said by itself. A text that has no room in that goes before it, as messages to the inbox
 * `inbox_number`. Numbers are little endian; behind each field stand its bytes.
 *
 * A notification:
 *
 *  - tag: of one that was said, its number in the stream, from 1; of one that came with a transfer,
 *    how many were said in the stream before it;
 *  - payload: version (1), kind (1), length of the name (1), stream (8), name, text; without name
 *    and text where these are in messages.
 *
 * A message:
 *
 *  - tag: the number of the notification that it is a part of;
 *  - bytes: version (1), flags (1), stream (8), a part of the whole: length of the name (4), name,
 *    text.
 *
 * A stream is a random number, of one target of one engine. Notifications said in it come in the
 * order of their numbers. One that comes with a transfer has a place behind the ones said before
 * it; and since weir's notifications come in the order in which they became complete, before the
 * ones said when the transfer was over. */
#ifndef WEIR_NIXL_WORDS_H
#define WEIR_NIXL_WORDS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir_nixl {

const uint32_t inbox_number = 0x4e49584c; /* "NIXL" */
const size_t message_bytes_max = 8192;
const size_t name_bytes_max = 4096; /* of an agent's name */
const size_t text_bytes_max = size_t(1) << 30;

enum class How : uint8_t { with_transfer = 0, said = 1, in_messages = 2 };

/* Of a message. */
const uint8_t first_part = 1, last_part = 2;
const size_t part_head = 10;

struct Note { /* as it came */
    How how = How::said;
    uint64_t stream = 0;
    std::string name, text;
};
struct Part {
    uint8_t flags;
    uint64_t stream;
    const char *bytes;
    size_t length;
};

/* Empty: too long for a notification of weir's. */
std::string note_write(How how, uint64_t stream, const std::string &name, const std::string &text);
bool note_read(const void *payload, size_t length, Note &note);

/* The head of a message into 10 bytes. */
void part_write_head(char *out, uint8_t flags, uint64_t stream);
bool part_read(const void *data, size_t length, Part &part);

/* The whole that messages are parts of. */
std::string whole_write(const std::string &name, const std::string &text);
/* Where the text begins, behind the name; 0: it is none. */
size_t whole_read(const std::string &whole, std::string &name);

} // namespace weir_nixl

#endif
