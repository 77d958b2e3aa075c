/* SPDX-License-Identifier: Apache-2.0 */
/* cursor.h: ways along bytes that are written to others, or read from them.
 *
 * A cursor never passes the end: a writer that runs out of room, or a reader that runs out of
 * bytes, remembers it and becomes inert, so that one check at the end is enough. Integers are
 * little-endian, of any width up to 8 bytes. */
#ifndef WEIR_CURSOR_H
#define WEIR_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct writer {
    uint8_t *out;
    size_t size;
    size_t used;
    bool full;
};

static inline void put_bytes(struct writer *w, const void *bytes, size_t length) {
    if (w->full || w->size - w->used < length) {
        w->full = true;
        return;
    }
    memcpy(w->out + w->used, bytes, length);
    w->used += length;
}

static inline void put_uint(struct writer *w, uint64_t value, size_t width) {
    uint8_t bytes[8];

    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    put_bytes(w, bytes, width);
}

struct reader {
    const uint8_t *in;
    size_t left;
    bool bad; /* ran out of bytes, or met a value out of range */
};

static inline void get_bytes(struct reader *r, void *out, size_t length) {
    if (r->bad || r->left < length) {
        r->bad = true;
        memset(out, 0, length);
        return;
    }
    memcpy(out, r->in, length);
    r->in += length;
    r->left -= length;
}

static inline uint64_t get_uint(struct reader *r, size_t width) {
    uint8_t bytes[8];
    uint64_t value = 0;

    get_bytes(r, bytes, width);
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static inline void expect_bytes(struct reader *r, const void *bytes, size_t length) {
    if (r->bad || r->left < length || memcmp(r->in, bytes, length) != 0) {
        r->bad = true;
        return;
    }
    r->in += length;
    r->left -= length;
}

#endif
