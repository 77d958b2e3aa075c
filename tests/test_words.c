/* SPDX-License-Identifier: Apache-2.0 */
/* test_words.c: every word of a stream survives the trip, and nothing else decodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "words.h"

/* A word of this kind with every field at its largest. */
static struct word largest(enum word_kind kind) {
    struct word word;

    memset(&word, 0, sizeof(word));
    word.kind = kind;
    word.inbox = UINT32_MAX;
    word.life = kind == WORD_ABSENT ? 0 : UINT64_MAX;
    if (kind == WORD_WANT) {
        word.want.grants = UINT64_MAX;
        word.want.again = true;
    } else if (kind == WORD_TOLD) {
        word.told = (struct room_told){UINT64_MAX, ROOM_CHUNKS_MAX - 1, 0xffffffc0, true};
    } else if (kind == WORD_MEET) {
        struct wire_descriptor *d = &word.meet.memory;
        word.meet.chunk_bytes = ROOM_LENGTH_MAX + ROOM_LINE;
        word.meet.message_bytes_max = ROOM_LENGTH_MAX;
        memset(d->instance, 0x17, sizeof(d->instance));
        d->memory_id = d->length = UINT64_MAX;
        d->access = WEIR_ACCESS_ALL;
        memset(d->device, 'd', sizeof(d->device) - 1);
        memset(d->fabric, 0xfa, sizeof(d->fabric));
        d->blob_length = WEIR_MR_BLOB_MAX;
        memset(d->blob, 0xb1, sizeof(d->blob));
    } else if (kind == WORD_GRANTS) {
        word.grants.count = WORD_GRANTS_MAX;
        word.grants.last = true;
        for (uint32_t i = 0; i < WORD_GRANTS_MAX; i++)
            word.grants.list[i] = (struct room_grant){.place = UINT64_MAX - WORD_GRANTS_MAX + i,
                                                      .secret = UINT64_MAX - i,
                                                      .chunk = ROOM_CHUNKS_MAX - 1 - i,
                                                      .end = 0xffffffc0,
                                                      .keep = i % 2 == 0,
                                                      .called = i % 3 == 0};
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
        assert_true(back.life == word.life);
        assert_int_equal(encoded(&back, again), length);
        assert_memory_equal(again, bytes, length);
        assert_string_not_equal(word_kind_name((enum word_kind)kind), "?");
    }
    assert_string_equal(word_kind_name(WORD_KIND_END), "?");
    assert_string_equal(word_kind_name((enum word_kind)0), "?");
}

static void test_fields_arrive_where_they_belong(void **state) {
    const struct word told = {
        .kind = WORD_TOLD, .inbox = 0x01020304, .life = 5, .told = {6, 7, 128, true}};
    const uint8_t expected[] = {2, 1, 32, 0, 4, 3, 2, 1, 5, 0, 0, 0, 0,   0, 0, 0,
                                6, 0, 0,  0, 0, 0, 0, 0, 7, 0, 0, 0, 128, 0, 0, 0};
    uint8_t bytes[WORD_SIZE_MAX];
    struct word back;
    uint32_t length;

    (void)state;
    assert_int_equal(encoded(&told, bytes), sizeof(expected));
    assert_memory_equal(bytes, expected, sizeof(expected));
    struct word grants = {
        .kind = WORD_GRANTS,
        .life = 1,
        .grants = {.list = {{.place = 1, .secret = 2, .chunk = 3, .end = 64, .called = true},
                            {.place = 9, .secret = 8, .chunk = 7, .end = 0, .keep = true}},
                   .count = 2}};
    length = encoded(&grants, bytes);
    assert_int_equal(word_decode(bytes, length, &back, &length), WEIR_OK);
    assert_int_equal(back.grants.count, 2);
    assert_false(back.grants.last);
    for (uint32_t i = 0; i < 2; i++) {
        const struct room_grant *is = &back.grants.list[i], *was = &grants.grants.list[i];
        assert_true(is->place == was->place && is->secret == was->secret && is->end == was->end);
        assert_true(is->chunk == was->chunk && is->keep == was->keep && is->called == was->called);
    }
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
        uint8_t bytes[WORD_SIZE_MAX + WORD_GRANT_BYTES] = {0};
        uint32_t length = encoded(&word, bytes), other;

        for (uint32_t cut = 0; cut < length; cut++) {
            assert_int_equal(word_decode(bytes, cut, &back, &other), WEIR_EINVAL);
            assert_int_equal(word_encode(&word, bytes, cut, &other), WEIR_ETOOBIG);
        }
        /* Nor when the word itself claims another length. */
        for (int off = -1; off <= 1; off += 2) {
            bytes[2] = (uint8_t)((int)length + off);
            bytes[3] = (uint8_t)(((int)length + off) >> 8);
            assert_int_equal(word_decode(bytes, sizeof(bytes), &back, &other), WEIR_EINVAL);
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
    for (int kind = WORD_TOLD; kind < WORD_KIND_END; kind++) { /* WANT may not know the life */
        struct word word = largest((enum word_kind)kind);
        word.life = kind == WORD_ABSENT;
        refused(&word);
    }
    struct word want = largest(WORD_WANT);
    want.life = 0; /* but it cannot ask again then */
    refused(&want);
    struct word none = largest(WORD_CLOSED);
    none.kind = WORD_KIND_END;
    refused(&none);

    struct word told = largest(WORD_TOLD);
    told.told.place = 0;
    refused(&told);
    told = largest(WORD_TOLD);
    told.told.end++;
    refused(&told);
    told = largest(WORD_TOLD);
    told.told.chunk++;
    refused(&told);

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

    struct word grants = largest(WORD_GRANTS);
    grants.grants.count++;
    refused(&grants);
    grants = largest(WORD_GRANTS);
    grants.grants.list[1].place = grants.grants.list[0].place;
    refused(&grants);
    grants = largest(WORD_GRANTS);
    grants.grants.list[3].chunk = ROOM_CHUNKS_MAX;
    refused(&grants);
    grants = largest(WORD_GRANTS);
    grants.grants.list[3].end--;
    refused(&grants);
    grants = largest(WORD_GRANTS);
    grants.grants.count = 0; /* says nothing */
    grants.grants.last = false;
    refused(&grants);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_survives_the_trip),
        cmocka_unit_test(test_fields_arrive_where_they_belong),
        cmocka_unit_test(test_words_follow_each_other),
        cmocka_unit_test(test_every_truncation_and_extension_is_refused),
        cmocka_unit_test(test_every_byte_flip_is_refused_or_canonical),
        cmocka_unit_test(test_values_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
