/* SPDX-License-Identifier: Apache-2.0 */
/* words.cpp: notifications as bytes. */
#include "words.h"

#include "weir.h"

namespace weir_nixl {

namespace {

const char version = 1;
const size_t note_head = 11;

void put(char *out, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        out[i] = static_cast<char>(value >> (8 * i) & 0xff);
}

uint64_t get(const char *in, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | static_cast<unsigned char>(in[i]);
    return value;
}

} // namespace

std::string note_write(How how, uint64_t stream, const std::string &name, const std::string &text) {
    if (name.size() > UINT8_MAX || text.size() > WEIR_NOTIFY_MAX ||
        note_head + name.size() + text.size() > WEIR_NOTIFY_MAX)
        return "";
    std::string payload(note_head, '\0');
    payload[0] = version;
    put(&payload[1], static_cast<uint8_t>(how), 1);
    put(&payload[2], name.size(), 1);
    put(&payload[3], stream, 8);
    return payload + name + text;
}

bool note_read(const void *payload, size_t length, Note &note) {
    const char *bytes = static_cast<const char *>(payload);
    if (length < note_head || bytes[0] != version || get(bytes + 1, 1) > 2)
        return false;
    size_t name = get(bytes + 2, 1);
    if (name > length - note_head)
        return false;
    note.how = static_cast<How>(bytes[1]);
    note.stream = get(bytes + 3, 8);
    note.name.assign(bytes + note_head, name);
    note.text.assign(bytes + note_head + name, length - note_head - name);
    return true;
}

void part_write_head(char *out, uint8_t flags, uint64_t stream) {
    out[0] = version;
    put(out + 1, flags, 1);
    put(out + 2, stream, 8);
}

bool part_read(const void *data, size_t length, Part &part) {
    const char *bytes = static_cast<const char *>(data);
    if (length < part_head || bytes[0] != version)
        return false;
    part.flags = static_cast<uint8_t>(bytes[1]);
    part.stream = get(bytes + 2, 8);
    part.bytes = bytes + part_head;
    part.length = length - part_head;
    return true;
}

std::string whole_write(const std::string &name, const std::string &text) {
    std::string whole(4, '\0');
    put(&whole[0], name.size(), 4);
    return whole + name + text;
}

size_t whole_read(const std::string &whole, std::string &name) {
    if (whole.size() < 4)
        return 0;
    size_t length = get(whole.data(), 4);
    if (length > whole.size() - 4)
        return 0;
    name = whole.substr(4, length);
    return 4 + length;
}

} // namespace weir_nixl
