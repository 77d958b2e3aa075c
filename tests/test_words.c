/* SPDX-License-Identifier: Apache-2.0 */
/* test_words.c: every word about messages, and every note, survives the trip, and nothing else
 * decodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loans.h"
#include "words.h"

static struct wire_descriptor largest_memory(void) {
    struct wire_descriptor d;

    memset(&d, 0, sizeof(d));
    memset(d.instance, 0x17, sizeof(d.instance));
    d.memory_id = d.length = UINT64_MAX;
    d.access = WEIR_ACCESS_ALL;
    memset(d.device, 'd', sizeof(d.device) - 1);
    memset(d.fabric, 0xfa, sizeof(d.fabric));
    d.blob_length = WEIR_MR_BLOB_MAX;
    memset(d.blob, 0xb1, sizeof(d.blob));
    return d;
}

static struct word_named largest_of_names(enum word_kind kind) {
    struct word_named named = {0};
    if (kind == WORD_LIST || kind == WORD_LISTED)
        named.place = UINT64_MAX;
    if (kind == WORD_VALUE)
        named.version = UINT64_MAX;
    if (kind == WORD_LISTED) {
        named.kind = NAME_MEMORY;
        named.size = UINT64_MAX;
    }
    if (kind == WORD_LOOKUP || kind == WORD_VALUE || kind == WORD_LISTED) {
        named.length = kind == WORD_VALUE ? WEIR_VALUE_MAX : WEIR_NAME_MAX - 1;
        memset(named.bytes, 0xff, named.length);
    }
    return named;
}

/* A word of this kind with every field at its largest. */
static struct word largest(enum word_kind kind) {
    struct word word;

    memset(&word, 0, sizeof(word));
    word.kind = kind;
    word.inbox = kind == WORD_OPENED || word_is_of_names(kind) ? 0 : UINT32_MAX;
    if (kind == WORD_WANT) {
        word.grants = UINT64_MAX;
    } else if (kind == WORD_SHUT) {
        word.shut = (struct room_shut){UINT64_MAX, ROOM_CHUNKS_MAX - 1, 0xffffffc0};
    } else if (kind == WORD_MEET) {
        word.meet.chunk_bytes = ROOM_LENGTH_MAX + ROOM_LINE;
        word.meet.message_bytes_max = ROOM_LENGTH_MAX;
        word.meet.memory = largest_memory();
    } else if (kind == WORD_POOL) {
        word.pool = largest_memory();
    } else if (kind == WORD_MAPPED) {
        word.mapped = WORD_MAPPED_NEVER;
    } else if (kind == WORD_GRANT) {
        word.grant = (struct room_grant){UINT64_MAX, UINT64_MAX, ROOM_CHUNKS_MAX - 1, true};
    } else if (kind == WORD_CALL) {
        word.place = UINT64_MAX;
    } else if (kind == WORD_NOW || kind == WORD_FULL) {
        word.number = UINT64_MAX;
    } else if (kind == WORD_NAMED) {
        word.memory.version = UINT64_MAX;
        word.memory.memory = largest_memory();
    } else if (kind == WORD_CHANGED) {
        word.hash = UINT64_MAX;
    } else if (word_is_of_names(kind)) {
        word.named = largest_of_names(kind);
    }
    return word;
}

static uint32_t encoded(const struct word *word, uint8_t *bytes) {
    uint32_t length = 0;

    assert_int_equal(word_encode(word, bytes, WORD_SIZE_MAX, &length), WEIR_OK);
    return length;
}

static void test_every_kind_survives_the_trip(void **state) {
    (void)state;
    for (int kind = WORD_WANT; kind < WORD_KIND_END; kind++) {
        struct word word = largest((enum word_kind)kind), back;
        uint8_t bytes[WORD_SIZE_MAX], again[WORD_SIZE_MAX];
        uint32_t length = encoded(&word, bytes), read = 0;

        assert_int_equal(word_decode(bytes, length, &back, &read), WEIR_OK);
        assert_int_equal(read, length);
        assert_int_equal(back.kind, word.kind);
        assert_int_equal(back.inbox, word.inbox);
        assert_int_equal(encoded(&back, again), length);
        assert_memory_equal(again, bytes, length);
        assert_string_not_equal(word_kind_name((enum word_kind)kind), "?");
    }
    assert_string_equal(word_kind_name(WORD_KIND_END), "?");
    assert_string_equal(word_kind_name((enum word_kind)0), "?");
}

static void test_fields_arrive_where_they_belong(void **state) {
    const struct word shut = {.kind = WORD_SHUT, .inbox = 0x01020304, .shut = {6, 7, 128}};
    const uint8_t shut_bytes[] = {2, 0, 24, 0, 4, 3, 2, 1, 6,   0, 0, 0,
                                  0, 0, 0,  0, 7, 0, 0, 0, 128, 0, 0, 0};
    const struct word grant = {.kind = WORD_GRANT, .inbox = 1, .grant = {6, 9, 7, true}};
    const uint8_t grant_bytes[] = {9, 0, 28, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0,
                                   0, 0, 9,  0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 128};
    const struct word look = {.kind = WORD_LOOK, .inbox = 0xfffefdfc};
    const uint8_t look_bytes[] = {4, 0, 8, 0, 0xfc, 0xfd, 0xfe, 0xff};
    const struct word opened = {.kind = WORD_OPENED};
    const uint8_t opened_bytes[] = {12, 0, 8, 0, 0, 0, 0, 0};
    uint8_t bytes[WORD_SIZE_MAX];
    struct word back;
    uint32_t length;

    (void)state;
    assert_int_equal(encoded(&shut, bytes), sizeof(shut_bytes));
    assert_memory_equal(bytes, shut_bytes, sizeof(shut_bytes));
    assert_int_equal(encoded(&grant, bytes), sizeof(grant_bytes));
    assert_memory_equal(bytes, grant_bytes, sizeof(grant_bytes));
    assert_int_equal(word_decode(bytes, sizeof(grant_bytes), &back, &length), WEIR_OK);
    assert_true(back.grant.place == 6 && back.grant.secret == 9);
    assert_true(back.grant.chunk == 7 && back.grant.keep);
    assert_int_equal(encoded(&look, bytes), sizeof(look_bytes));
    assert_memory_equal(bytes, look_bytes, sizeof(look_bytes));
    assert_int_equal(word_decode(bytes, sizeof(look_bytes), &back, &length), WEIR_OK);
    assert_true(back.kind == WORD_LOOK && back.inbox == 0xfffefdfc);
    assert_string_equal(word_kind_name(WORD_LOOK), "LOOK");
    assert_int_equal(encoded(&opened, bytes), sizeof(opened_bytes));
    assert_memory_equal(bytes, opened_bytes, sizeof(opened_bytes));
}

static void test_words_follow_each_other(void **state) {
    uint8_t bytes[WORD_KIND_END * WORD_SIZE_MAX];
    uint32_t used = 0, at = 0;

    (void)state;
    for (int kind = WORD_WANT; kind < WORD_KIND_END; kind++) {
        struct word word = largest((enum word_kind)kind);
        used += encoded(&word, bytes + used);
    }
    for (int kind = WORD_WANT; kind < WORD_KIND_END; kind++) {
        struct word back;
        uint32_t length;
        assert_int_equal(word_decode(bytes + at, used - at, &back, &length), WEIR_OK);
        assert_int_equal(back.kind, kind);
        at += length;
    }
    assert_int_equal(at, used);
}

static void test_every_truncation_and_extension_is_refused(void **state) {
    (void)state;
    for (int kind = WORD_WANT; kind < WORD_KIND_END; kind++) {
        struct word word = largest((enum word_kind)kind), back;
        uint8_t bytes[WORD_SIZE_MAX + 1] = {0};
        uint32_t length = encoded(&word, bytes), other;

        for (uint32_t cut = 0; cut < length; cut++) {
            assert_int_equal(word_decode(bytes, cut, &back, &other), WEIR_EINVAL);
            assert_int_equal(word_encode(&word, bytes, cut, &other), WEIR_ETOOBIG);
        }
        /* Nor when the word itself claims another length. */
        for (int off = -1; off <= 1; off += 2) {
            bytes[2] = (uint8_t)((int)length + off);
            bytes[3] = (uint8_t)(((int)length + off) >> 8);
            /* a text may be shorter by itself */
            bool text = kind == WORD_LOOKUP || kind == WORD_VALUE || kind == WORD_LISTED;
            assert_int_equal(word_decode(bytes, sizeof(bytes), &back, &other),
                             text && off < 0 ? WEIR_OK : WEIR_EINVAL);
        }
    }
}

/* Whatever one changed byte does, what decodes encodes to the same bytes. */
static void test_every_byte_flip_is_refused_or_canonical(void **state) {
    (void)state;
    for (int kind = WORD_WANT; kind < WORD_KIND_END; kind++) {
        struct word word = largest((enum word_kind)kind), back;
        uint8_t bytes[WORD_SIZE_MAX], again[WORD_SIZE_MAX];
        uint32_t length = encoded(&word, bytes), read;

        for (uint32_t at = 0; at < length; at++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                bytes[at] = (uint8_t)(bytes[at] ^ 1u << bit);
                if (word_decode(bytes, length, &back, &read) == WEIR_OK) {
                    assert_int_equal(encoded(&back, again), read);
                    assert_memory_equal(again, bytes, read);
                }
                bytes[at] = (uint8_t)(bytes[at] ^ 1u << bit);
            }
        }
    }
}

static void refused(const struct word *word) {
    uint8_t bytes[WORD_SIZE_MAX];
    uint32_t length;

    assert_int_equal(word_encode(word, bytes, sizeof(bytes), &length), WEIR_EINVAL);
}

static void test_values_out_of_range_are_refused(void **state) {
    (void)state;
    struct word none = largest(WORD_CLOSED);
    none.kind = WORD_KIND_END;
    refused(&none);

    struct word opened = largest(WORD_OPENED);
    opened.inbox = 1;
    refused(&opened);

    struct word full = largest(WORD_FULL);
    full.number = 0;
    refused(&full);
    full.kind = WORD_NOW;
    refused(&full);

    struct word shut = largest(WORD_SHUT);
    shut.shut.place = 0;
    refused(&shut);
    shut = largest(WORD_SHUT);
    shut.shut.end++;
    refused(&shut);
    shut = largest(WORD_SHUT);
    shut.shut.chunk++;
    refused(&shut);

    struct word meet = largest(WORD_MEET);
    meet.meet.message_bytes_max++;
    refused(&meet);
    meet = largest(WORD_MEET);
    meet.meet.chunk_bytes -= ROOM_LINE; /* the longest message does not fit */
    refused(&meet);
    meet = largest(WORD_MEET);
    meet.meet.chunk_bytes++;
    refused(&meet);
    meet = largest(WORD_MEET);
    meet.meet.memory.length = 0;
    refused(&meet);

    struct word grant = largest(WORD_GRANT);
    grant.grant.place = 0;
    refused(&grant);
    grant = largest(WORD_GRANT);
    grant.grant.chunk = ROOM_CHUNKS_MAX;
    refused(&grant);
    grant.grant.chunk = WORD_KEEP;
    refused(&grant);

    struct word call = largest(WORD_CALL);
    call.place = 0;
    refused(&call);

    struct word pool = largest(WORD_POOL);
    pool.pool.length = LOANS_HEAD; /* no room for a loan */
    refused(&pool);
    struct word mapped = largest(WORD_MAPPED);
    mapped.mapped++;
    refused(&mapped);
}

static void test_names_out_of_range_are_refused(void **state) {
    (void)state;
    for (int kind = WORD_LOOKUP; kind < WORD_KIND_END; kind++) {
        struct word word = largest((enum word_kind)kind);
        word.inbox = 1; /* names are of no inbox */
        refused(&word);
    }
    struct word lookup = largest(WORD_LOOKUP);
    lookup.named.length++; /* no room for its terminator */
    refused(&lookup);
    lookup = largest(WORD_LOOKUP);
    lookup.named.length = 0;
    refused(&lookup);
    lookup = largest(WORD_LOOKUP);
    lookup.named.bytes[3] = 0;
    refused(&lookup);

    struct word value = largest(WORD_VALUE);
    value.named.version = 0;
    refused(&value);
    struct word memory = largest(WORD_NAMED);
    memory.memory.version = 0;
    refused(&memory);

    struct word listed = largest(WORD_LISTED);
    listed.named.place = 0; /* the end of the list has no name */
    refused(&listed);
    listed = largest(WORD_LISTED);
    listed.named.kind = NAME_NOTHING;
    refused(&listed);
    listed.named.kind = NAME_VALUE + 1;
    refused(&listed);
    listed.named.kind = NAME_VALUE; /* no value is as long as that */
    refused(&listed);
    listed = largest(WORD_LISTED);
    listed.named.size = 0; /* nor memory as short */
    refused(&listed);
}

/* LOOK says nothing but where. */
static void test_look_carries_nothing(void **state) {
    uint8_t bytes[16] = {WORD_LOOK, 0, 8, 0, 7, 0, 0, 0};
    struct word word;
    uint32_t length;
    (void)state;
    assert_int_equal(word_decode(bytes, sizeof(bytes), &word, &length), WEIR_OK);
    assert_int_equal(length, WORD_HEAD);
    for (uint32_t size = 0; size <= sizeof(bytes); size++) {
        bytes[2] = (uint8_t)size;
        assert_int_equal(word_decode(bytes, sizeof(bytes), &word, &length),
                         size == WORD_HEAD ? WEIR_OK : WEIR_EINVAL);
    }
    bytes[2] = WORD_HEAD;
    bytes[1] = 1;
    assert_int_equal(word_decode(bytes, sizeof(bytes), &word, &length), WEIR_EINVAL);
}

/* Bytes without a sense: hardly any are words, and those encode to the same bytes. */
static void test_junk_is_refused_or_canonical(void **state) {
    uint64_t seed = 7;
    uint32_t words = 0, notes = 0;
    (void)state;
    for (uint32_t round = 0; round < 200000; round++) {
        uint8_t bytes[32], again[WORD_SIZE_MAX];
        for (size_t i = 0; i < sizeof(bytes); i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            /* small numbers, and many zeros: more get past the first checks */
            bytes[i] = seed >> 62 != 0 ? 0 : (uint8_t)(seed >> 54 & (seed >> 53 & 1 ? 0xff : 0x1f));
        }
        struct word word;
        struct room_note note;
        uint32_t length;
        if (word_decode(bytes, sizeof(bytes), &word, &length) == WEIR_OK) {
            words++;
            assert_int_equal(encoded(&word, again), length);
            assert_memory_equal(again, bytes, length);
        }
        if (word_note_decode(bytes, WORD_NOTE_SIZE, &note) == WEIR_OK) {
            notes++;
            word_note_encode(&note, again);
            assert_memory_equal(again, bytes, WORD_NOTE_SIZE);
        }
    }
    assert_true(words > 0 && notes > 0);
}

/* ---- notes ---- */

static const struct room_note longest = {.place = UINT64_MAX,
                                         .inbox = UINT32_MAX,
                                         .chunk = ROOM_CHUNKS_MAX - 1,
                                         .offset = 0xffffffc0,
                                         .length = ROOM_LENGTH_MAX};

static void test_notes_survive_the_trip(void **state) {
    const struct room_note notes[] = {
        longest,
        {.place = 1},
        {.place = 0x0102030405060708, .inbox = 9, .chunk = 2, .offset = 64, .length = 3},
        {.place = 5, .length = 100, .skip = true},
        {.place = 5, .skip = true},
    };
    uint8_t bytes[WORD_NOTE_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        struct room_note note;
        word_note_encode(&notes[i], bytes);
        assert_int_equal(word_note_decode(bytes, sizeof(bytes), &note), WEIR_OK);
        assert_true(note.place == notes[i].place && note.inbox == notes[i].inbox);
        assert_true(note.chunk == notes[i].chunk && note.offset == notes[i].offset);
        assert_true(note.length == notes[i].length && note.skip == notes[i].skip);
    }
    const uint8_t expected[] = {8,  7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0,
                                64, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0};
    word_note_encode(&notes[2], bytes);
    assert_memory_equal(bytes, expected, sizeof(expected));
    word_note_encode(&notes[3], bytes);
    assert_int_equal(bytes[19], 128); /* WORD_SKIP */
}

/* With a note comes the whole payload, or nothing, and with a skip nothing. */
static void test_payloads_come_whole_or_not_at_all(void **state) {
    uint8_t bytes[WORD_NOTE_SIZE + WORD_PAYLOAD_MAX] = {0};
    struct room_note note = {.place = 1, .length = WORD_PAYLOAD_MAX}, back;
    (void)state;
    word_note_encode(&note, bytes);
    for (size_t length = 0; length < sizeof(bytes); length++)
        assert_int_equal(word_note_decode(bytes, length, &back),
                         length == WORD_NOTE_SIZE ? WEIR_OK : WEIR_EINVAL);
    assert_int_equal(word_note_decode(bytes, sizeof(bytes), &back), WEIR_OK);
    assert_int_equal(back.length, WORD_PAYLOAD_MAX);
    note.length = 8;
    word_note_encode(&note, bytes);
    assert_int_equal(word_note_decode(bytes, WORD_NOTE_SIZE + 9, &back), WEIR_EINVAL);
    assert_int_equal(word_note_decode(bytes, WORD_NOTE_SIZE + 8, &back), WEIR_OK);
    note.skip = true;
    word_note_encode(&note, bytes);
    assert_int_equal(word_note_decode(bytes, WORD_NOTE_SIZE + 8, &back), WEIR_EINVAL);
    assert_int_equal(word_note_decode(bytes, WORD_NOTE_SIZE, &back), WEIR_OK);
}

/* Notes that share a SEND come out as they went in, and nothing does that is not whole. */
static void test_shared_notes_survive_the_trip(void **state) {
    uint8_t note[WORD_NOTE_SIZE + 5], bytes[WEIR_NOTIFY_MAX];
    struct word_shared shared = {.note = note}, back;
    uint32_t at = 0, ends[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < sizeof(note); i++)
        note[i] = (uint8_t)(i + 1);
    for (uint32_t i = 0; i < 3; i++) {
        shared.tag = UINT64_C(0x0102030405060708) * (i + 1);
        shared.length = WORD_NOTE_SIZE + 2 * i;
        at += word_shared_put(&shared, bytes + at);
        ends[i + 1] = at;
    }
    assert_memory_equal(bytes, "\x18\x00\x08\x07\x06\x05\x04\x03\x02\x01\x01\x02", 12);
    for (uint32_t whole = 0; whole <= at; whole++) {
        const uint8_t *in = bytes;
        uint32_t left = whole, i = 0;
        while (word_shared_take(&in, &left, &back)) {
            assert_int_equal(back.tag, UINT64_C(0x0102030405060708) * (i + 1));
            assert_int_equal(back.length, WORD_NOTE_SIZE + 2 * i);
            assert_memory_equal(back.note, note, back.length);
            assert_ptr_equal(in, bytes + ends[++i]);
            assert_int_equal(left, whole - ends[i]);
        }
        assert_true(ends[i] <= whole && (i == 3 || whole < ends[i + 1]));
    }
    const uint8_t *in = bytes;
    bytes[0] = WORD_NOTE_SIZE - 1; /* shorter than any note */
    assert_false(word_shared_take(&in, &at, &back));
}

static void test_every_flip_of_a_note_is_refused_or_canonical(void **state) {
    uint8_t bytes[WORD_NOTE_SIZE], again[WORD_NOTE_SIZE];
    struct room_note note;
    (void)state;
    word_note_encode(&longest, bytes);
    for (uint32_t bit = 0; bit < 8 * WORD_NOTE_SIZE; bit++) {
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        if (word_note_decode(bytes, sizeof(bytes), &note) == WEIR_OK) {
            word_note_encode(&note, again);
            assert_memory_equal(again, bytes, sizeof(bytes));
        }
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
    }
}

static void note_refused(struct room_note note) {
    uint8_t bytes[WORD_NOTE_SIZE];
    word_note_encode(&note, bytes);
    assert_int_equal(word_note_decode(bytes, sizeof(bytes), &note), WEIR_EINVAL);
}

static void test_notes_out_of_range_are_refused(void **state) {
    struct room_note note = longest;
    (void)state;
    note.place = 0;
    note_refused(note);
    note = longest;
    note.chunk++;
    note_refused(note);
    note = longest;
    note.offset++;
    note_refused(note);
    note = longest;
    note.length++;
    note_refused(note);
    note.skip = true;
    note_refused(note);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_survives_the_trip),
        cmocka_unit_test(test_fields_arrive_where_they_belong),
        cmocka_unit_test(test_words_follow_each_other),
        cmocka_unit_test(test_every_truncation_and_extension_is_refused),
        cmocka_unit_test(test_every_byte_flip_is_refused_or_canonical),
        cmocka_unit_test(test_values_out_of_range_are_refused),
        cmocka_unit_test(test_names_out_of_range_are_refused),
        cmocka_unit_test(test_look_carries_nothing),
        cmocka_unit_test(test_junk_is_refused_or_canonical),
        cmocka_unit_test(test_notes_survive_the_trip),
        cmocka_unit_test(test_payloads_come_whole_or_not_at_all),
        cmocka_unit_test(test_shared_notes_survive_the_trip),
        cmocka_unit_test(test_every_flip_of_a_note_is_refused_or_canonical),
        cmocka_unit_test(test_notes_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
