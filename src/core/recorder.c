/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.c: see recorder.h.
 *
 * The writer of record n finds n - RECORDER_RECORDS in its place. Each word is written behind the
 * count of the records before it, and the count behind all of them: so a reader that has read
 * record i, and then finds a count of at most i + RECORDER_RECORDS - 1, has read nothing of a later
 * one. */
#include "recorder.h"
#include "handle.h"

#include <string.h>

#define MAGIC UINT64_C(0x3165636172747277) /* "wrtrace1" */

enum { WORDS = 5 };

struct slot {
    _Atomic uint64_t words[WORDS];
};

enum { NAME_WORDS = RECORDER_NAME / 8 };

struct name {
    _Atomic uint64_t version; /* odd: it is being written */
    _Atomic uint64_t handle;  /* 0: none */
    _Atomic uint64_t text[NAME_WORDS];
};
_Static_assert(sizeof(struct name) == 64, "a line");

struct recorder_memory {
    _Atomic uint64_t magic; /* written last; 0 before */
    uint64_t records;       /* RECORDER_RECORDS, and the sizes of both kinds of entry: the layout */
    uint64_t sizes;
    uint64_t names_max;
    struct recorder_owner owner;
    _Atomic uint64_t written;
    struct slot slots[RECORDER_RECORDS];
    struct name names[];
};

#define SIZES ((uint64_t)sizeof(struct slot) << 32 | sizeof(struct name))

size_t recorder_bytes(uint32_t names_max) {
    return sizeof(struct recorder_memory) + (size_t)names_max * sizeof(struct name);
}

/* Cut to its room, with a terminator. */
static void text_copy(char *out, const char *text, size_t size) {
    size_t length = 0;
    for (; length < size - 1 && text[length] != '\0'; length++)
        out[length] = text[length];
    out[length] = '\0';
}

void recorder_begin(struct recorder *recorder, void *memory, size_t bytes,
                    const struct recorder_owner *owner) {
    struct recorder_memory *begun = memory;
    uint32_t names_max = (uint32_t)((bytes - sizeof(*begun)) / sizeof(struct name));
    *recorder = (struct recorder){.memory = begun, .names_max = names_max};
    begun->records = RECORDER_RECORDS;
    begun->sizes = SIZES;
    begun->names_max = names_max;
    begun->owner = *owner;
    atomic_store_explicit(&begun->magic, MAGIC, memory_order_release);
}

void recorder_add(struct recorder *recorder, const struct record *record) {
    struct recorder_memory *memory = recorder->memory;
    if (memory == NULL)
        return;
    struct slot *slot = &memory->slots[recorder->written % RECORDER_RECORDS];
    const uint64_t words[WORDS] = {record->ns, record->handle,
                                   (uint64_t)(uint32_t)record->error << 32 | record->kind,
                                   record->a, record->b};
    for (int i = 0; i < WORDS; i++)
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    atomic_store_explicit(&memory->written, ++recorder->written, memory_order_release);
}

/* The text of an entry as it is now; whole if nobody writes it. */
static void name_load(const struct name *name, char text_out[RECORDER_NAME]) {
    uint64_t words[NAME_WORDS];
    for (int i = 0; i < NAME_WORDS; i++)
        words[i] = atomic_load_explicit(&name->text[i], memory_order_acquire);
    memcpy(text_out, words, RECORDER_NAME);
    text_out[RECORDER_NAME - 1] = '\0';
}

void recorder_name(struct recorder *recorder, uint64_t handle, const char *text) {
    uint32_t index = handle_index(handle);
    if (recorder->memory == NULL || index >= recorder->names_max)
        return;
    struct name *name = &recorder->memory->names[index];
    char cut[RECORDER_NAME] = "", now[RECORDER_NAME];
    text_copy(cut, text, sizeof(cut));
    name_load(name, now);
    if (atomic_load_explicit(&name->handle, memory_order_relaxed) == handle &&
        memcmp(now, cut, sizeof(cut)) == 0)
        return;
    uint64_t words[NAME_WORDS];
    uint64_t version = atomic_load_explicit(&name->version, memory_order_relaxed);
    memcpy(words, cut, sizeof(words));
    atomic_store_explicit(&name->version, version | 1, memory_order_release);
    atomic_store_explicit(&name->handle, handle, memory_order_release);
    for (int i = 0; i < NAME_WORDS; i++)
        atomic_store_explicit(&name->text[i], words[i], memory_order_release);
    atomic_store_explicit(&name->version, (version | 1) + 1, memory_order_release);
}

/* ---- reading ---- */

bool recorder_is_begun(const void *memory, size_t bytes) {
    const struct recorder_memory *read = memory;
    return bytes >= sizeof(read->magic) &&
           atomic_load_explicit(&read->magic, memory_order_acquire) != 0;
}

bool recorder_is_one(const void *memory, size_t bytes) {
    const struct recorder_memory *read = memory;
    return bytes >= sizeof(*read) && read->magic == MAGIC && read->records == RECORDER_RECORDS &&
           read->sizes == SIZES;
}

void recorder_read_owner(const void *memory, struct recorder_owner *owner_out) {
    *owner_out = ((const struct recorder_memory *)memory)->owner;
    owner_out->device[RECORDER_TEXT - 1] = '\0';
    owner_out->address[RECORDER_NAME - 1] = '\0';
}

void recorder_range(const void *memory, uint64_t *first_out, uint64_t *end_out) {
    const struct recorder_memory *read = memory;
    uint64_t end = atomic_load_explicit(&read->written, memory_order_acquire);
    *end_out = end;
    *first_out = end < RECORDER_RECORDS ? 0 : end - (RECORDER_RECORDS - 1);
}

bool recorder_read(const void *memory, uint64_t number, struct record *record_out) {
    const struct recorder_memory *read = memory;
    const struct slot *slot = &read->slots[number % RECORDER_RECORDS];
    uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
    uint64_t written = atomic_load_explicit(&read->written, memory_order_acquire);
    if (number >= written || written - number > RECORDER_RECORDS - 1)
        return false;
    *record_out = (struct record){.ns = words[0],
                                  .handle = words[1],
                                  .kind = (uint32_t)words[2],
                                  .error = (int32_t)(uint32_t)(words[2] >> 32),
                                  .a = words[3],
                                  .b = words[4]};
    return true;
}

void recorder_read_name(const void *memory, size_t bytes, uint64_t handle,
                        char name_out[RECORDER_NAME]) {
    const struct recorder_memory *read = memory;
    uint32_t index = handle_index(handle);
    uint64_t names = (bytes - sizeof(*read)) / sizeof(struct name);
    name_out[0] = '\0';
    if (handle == 0 || index >= names)
        return;
    const struct name *name = &read->names[index];
    uint64_t version = atomic_load_explicit(&name->version, memory_order_acquire);
    char text[RECORDER_NAME];
    if (version % 2 != 0 || atomic_load_explicit(&name->handle, memory_order_acquire) != handle)
        return;
    name_load(name, text);
    if (atomic_load_explicit(&name->version, memory_order_acquire) == version)
        memcpy(name_out, text, RECORDER_NAME);
}
