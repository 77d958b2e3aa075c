/* SPDX-License-Identifier: Apache-2.0 */
/* test_region.c: when a segment may be used (S15, and H6 for incarnations). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "region.h"

enum { LOCALS = 4, REMOTES = 4, PEER = 5, OTHER_PEER = 6 };
enum { LOCAL_BYTES = 4096, REMOTE_BYTES = 1000 };
enum { INDEX_UNSET = 77 };

static struct region_local locals[LOCALS];
static struct region_remote remotes[REMOTES];
static struct regions regions;

static uint64_t party(void) {
    return region_party(PEER, 3);
}

static void begin(void) {
    memset(locals, 0, sizeof(locals));
    memset(remotes, 0, sizeof(remotes));
    regions = (struct regions){.version = 9,
                               .locals = locals,
                               .remotes = remotes,
                               .local_count = LOCALS,
                               .remote_count = REMOTES};
    locals[1].id = handle_first(1);
    locals[1].base = 0x10000;
    locals[1].length = LOCAL_BYTES;
    locals[1].lkey = 11;
    locals[1].live = true;
    remotes[2].id = handle_first(2);
    remotes[2].party = party();
    remotes[2].raddr = 0x900000;
    remotes[2].length = REMOTE_BYTES;
    remotes[2].rkey = 22;
    remotes[2].access = WEIR_ACCESS_ALL;
    remotes[2].live = true;
}

static weir_segment segment(uint64_t local_offset, uint64_t remote_offset, uint64_t length) {
    return (weir_segment){.local = {handle_first(1)},
                          .remote = {handle_first(2)},
                          .local_offset = local_offset,
                          .remote_offset = remote_offset,
                          .length = length};
}

/* Checks every segment, with the pair of the one before it at hand, as a submit does; 0 or the
 * first error, its index in *index_out. */
static int check_segments(uint64_t of, uint32_t access, const weir_segment *segments, size_t count,
                          size_t *index_out) {
    struct region_pair pair = REGION_PAIR_NONE;
    for (size_t i = 0; i < count; i++) {
        if (!region_pair_names(&pair, &segments[i])) {
            int rc = region_pair(&regions, of, access, segments[i].local.id, segments[i].remote.id,
                                 &pair);
            if (rc != WEIR_OK) {
                *index_out = i;
                return rc;
            }
        }
        if (!region_pair_holds(&pair, &segments[i])) {
            *index_out = i;
            return WEIR_EBOUNDS;
        }
    }
    return WEIR_OK;
}

static int check(const weir_segment *one) {
    size_t index = INDEX_UNSET;
    int rc = check_segments(party(), WEIR_ACCESS_REMOTE_WRITE, one, 1, &index);

    assert_int_equal(index, rc == WEIR_OK ? INDEX_UNSET : 0);
    return rc;
}

static int check_at(uint64_t local_offset, uint64_t remote_offset, uint64_t length) {
    weir_segment one = segment(local_offset, remote_offset, length);

    return check(&one);
}

static void test_S15_inside(void **state) {
    (void)state;
    begin();
    assert_int_equal(check_at(0, 0, 1), WEIR_OK);
    assert_int_equal(check_at(0, 0, REMOTE_BYTES), WEIR_OK);
    assert_int_equal(check_at(LOCAL_BYTES - REMOTE_BYTES, 0, REMOTE_BYTES), WEIR_OK);
    assert_int_equal(check_at(LOCAL_BYTES - 1, REMOTE_BYTES - 1, 1), WEIR_OK);
}

static void test_S15_one_byte_outside(void **state) {
    (void)state;
    begin();
    assert_int_equal(check_at(0, 0, REMOTE_BYTES + 1), WEIR_EBOUNDS);
    assert_int_equal(check_at(0, 1, REMOTE_BYTES), WEIR_EBOUNDS);
    assert_int_equal(check_at(LOCAL_BYTES - REMOTE_BYTES + 1, 0, REMOTE_BYTES), WEIR_EBOUNDS);
    assert_int_equal(check_at(LOCAL_BYTES, 0, 1), WEIR_EBOUNDS);
    assert_int_equal(check_at(0, REMOTE_BYTES, 1), WEIR_EBOUNDS);
}

/* The shorter memory is the local one. */
static void test_S15_the_other_way_round(void **state) {
    (void)state;
    begin();
    remotes[2].length = LOCAL_BYTES;
    locals[1].length = REMOTE_BYTES;
    assert_int_equal(check_at(0, 0, REMOTE_BYTES), WEIR_OK);
    assert_int_equal(check_at(0, 0, REMOTE_BYTES + 1), WEIR_EBOUNDS);
    assert_int_equal(check_at(1, 0, REMOTE_BYTES), WEIR_EBOUNDS);
    assert_int_equal(check_at(0, LOCAL_BYTES - REMOTE_BYTES, REMOTE_BYTES), WEIR_OK);
    assert_int_equal(check_at(0, LOCAL_BYTES - REMOTE_BYTES + 1, REMOTE_BYTES), WEIR_EBOUNDS);
}

static void test_S15_offsets_near_the_top_do_not_wrap(void **state) {
    static const uint64_t wide[] = {UINT64_MAX,
                                    UINT64_MAX - 1,
                                    UINT64_MAX - LOCAL_BYTES,
                                    UINT64_MAX - LOCAL_BYTES + 1,
                                    UINT64_MAX - REMOTE_BYTES,
                                    UINT64_MAX - REMOTE_BYTES + 1,
                                    UINT64_C(1) << 63,
                                    (UINT64_C(1) << 63) - 1,
                                    UINT64_C(1) << 32};
    static const uint64_t lengths[] = {0, 1, 2, REMOTE_BYTES, LOCAL_BYTES, LOCAL_BYTES + 1};

    (void)state;
    begin();
    for (size_t w = 0; w < sizeof(wide) / sizeof(wide[0]); w++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            assert_int_equal(check_at(wide[w], 0, lengths[l]), WEIR_EBOUNDS);
            assert_int_equal(check_at(0, wide[w], lengths[l]), WEIR_EBOUNDS);
            assert_int_equal(check_at(wide[w], wide[w], lengths[l]), WEIR_EBOUNDS);
            assert_int_equal(check_at(0, 0, wide[w]), WEIR_EBOUNDS);
            assert_int_equal(check_at(wide[w], 0, 0 - wide[w]), WEIR_EBOUNDS);
            assert_int_equal(check_at(0, wide[w], 0 - wide[w]), WEIR_EBOUNDS);
        }
    }
    /* Memory that ends at the very top of the address space. */
    locals[1].base = UINT64_MAX - LOCAL_BYTES;
    remotes[2].length = UINT64_MAX;
    assert_int_equal(check_at(0, UINT64_MAX - LOCAL_BYTES, LOCAL_BYTES), WEIR_OK);
    assert_int_equal(check_at(0, UINT64_MAX - LOCAL_BYTES + 1, LOCAL_BYTES), WEIR_EBOUNDS);
    assert_int_equal(check_at(1, 0, LOCAL_BYTES), WEIR_EBOUNDS);
    locals[1].length = UINT64_MAX;
    assert_int_equal(check_at(0, 0, UINT64_MAX), WEIR_OK);
    assert_int_equal(check_at(1, 0, UINT64_MAX), WEIR_EBOUNDS);
    assert_int_equal(check_at(0, 1, UINT64_MAX), WEIR_EBOUNDS);
}

static void test_S15_zero_length(void **state) {
    (void)state;
    begin();
    assert_int_equal(check_at(0, 0, 0), WEIR_OK);
    assert_int_equal(check_at(LOCAL_BYTES, REMOTE_BYTES, 0), WEIR_OK);
    assert_int_equal(check_at(LOCAL_BYTES + 1, 0, 0), WEIR_EBOUNDS);
    assert_int_equal(check_at(0, REMOTE_BYTES + 1, 0), WEIR_EBOUNDS);
}

static void test_S15_wrong_peer(void **state) {
    size_t index = INDEX_UNSET;
    weir_segment one = segment(0, 0, 1);

    (void)state;
    begin();
    assert_int_equal(
        check_segments(region_party(OTHER_PEER, 3), WEIR_ACCESS_REMOTE_WRITE, &one, 1, &index),
        WEIR_EINVAL);
    assert_int_equal(index, 0);
}

static void test_H6_memory_of_an_older_incarnation(void **state) {
    size_t index = INDEX_UNSET;
    weir_segment one = segment(0, 0, 1);

    (void)state;
    begin();
    assert_true(region_party(PEER, 3) != region_party(PEER, 4));
    assert_true(region_party(0, 0) != 0);
    assert_true(region_party(0, UINT32_MAX - 1) != 0);
    assert_int_equal(
        check_segments(region_party(PEER, 4), WEIR_ACCESS_REMOTE_WRITE, &one, 1, &index),
        WEIR_ESTALE);
    remotes[2].party = 0; /* the engine marked it */
    assert_int_equal(check(&one), WEIR_ESTALE);
}

static void test_S15_stale_generation_and_unknown_handles(void **state) {
    weir_segment one = segment(0, 0, 1);
    static const uint64_t ids[] = {0, UINT64_MAX, LOCALS, HANDLE_INDEX_MASK, 1, 2};

    (void)state;
    begin();
    one.local.id = handle_next(one.local.id);
    assert_int_equal(check(&one), WEIR_ESTALE);
    one = segment(0, 0, 1);
    one.remote.id = handle_next(one.remote.id);
    assert_int_equal(check(&one), WEIR_ESTALE);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        one = segment(0, 0, 1);
        one.local.id = ids[i];
        assert_int_equal(check(&one), WEIR_ESTALE);
        one = segment(0, 0, 1);
        one.remote.id = ids[i];
        assert_int_equal(check(&one), WEIR_ESTALE);
    }
    one = segment(0, 0, 1);
    locals[1].live = false;
    assert_int_equal(check(&one), WEIR_ESTALE);
    locals[1].live = true;
    remotes[2].live = false;
    assert_int_equal(check(&one), WEIR_ESTALE);
    /* A slot never used has id 0; index 0 with generation 0 is not its handle. */
    locals[0].live = true;
    one = segment(0, 0, 1);
    one.local.id = handle_first(0);
    assert_int_equal(check(&one), WEIR_ESTALE);
}

static void test_S15_rights(void **state) {
    size_t index = INDEX_UNSET;
    weir_segment one = segment(0, 0, 1);
    static const uint32_t wanted[] = {WEIR_ACCESS_REMOTE_READ, WEIR_ACCESS_REMOTE_WRITE};

    (void)state;
    begin();
    for (uint32_t granted = 0; granted <= WEIR_ACCESS_ALL; granted++) {
        remotes[2].access = granted;
        for (size_t w = 0; w < 2; w++)
            assert_int_equal(check_segments(party(), wanted[w], &one, 1, &index),
                             (granted & wanted[w]) != 0 ? WEIR_OK : WEIR_EACCESS);
    }
}

static void test_S15_the_first_bad_segment_is_named(void **state) {
    weir_segment many[50];
    size_t index = INDEX_UNSET;

    (void)state;
    begin();
    for (size_t bad = 0; bad < 50; bad++) {
        for (size_t i = 0; i < 50; i++)
            many[i] = segment(i, i, i);
        assert_int_equal(check_segments(party(), WEIR_ACCESS_REMOTE_READ, many, 50, &index),
                         WEIR_OK);
        many[bad].length = REMOTE_BYTES;
        many[bad].remote_offset = 1;
        many[49].remote.id = 0;
        assert_int_equal(check_segments(party(), WEIR_ACCESS_REMOTE_READ, many, 50, &index),
                         bad == 49 ? WEIR_ESTALE : WEIR_EBOUNDS);
        assert_int_equal(index, bad);
    }
    assert_int_equal(check_segments(party(), WEIR_ACCESS_REMOTE_READ, many, 0, &index), WEIR_OK);
}

static void test_S15_a_pair_is_what_was_looked_up(void **state) {
    struct region_pair pair = REGION_PAIR_NONE;
    weir_segment one = segment(1, 2, 3);

    (void)state;
    begin();
    one.local.id = 0;
    assert_false(region_pair_names(&pair, &one));
    one = segment(1, 2, 3);
    assert_int_equal(
        region_pair(&regions, party(), WEIR_ACCESS_REMOTE_READ, one.local.id, one.remote.id, &pair),
        WEIR_OK);
    assert_true(region_pair_names(&pair, &one));
    assert_int_equal(pair.version, 9);
    assert_int_equal(pair.length_max, REMOTE_BYTES);
    assert_int_equal(pair.span.laddr, 0x10000);
    assert_int_equal(pair.span.raddr, 0x900000);
    assert_int_equal(pair.span.lkey, 11);
    assert_int_equal(pair.span.rkey, 22);
    assert_int_equal(pair.span.opcode, WEIR_OP_READ);
    struct region_pair before = pair;
    assert_int_equal(region_pair(&regions, party(), WEIR_ACCESS_REMOTE_WRITE, 1, 2, &pair),
                     WEIR_ESTALE);
    assert_memory_equal(&before, &pair, sizeof(pair)); /* written only on success */
    assert_int_equal(region_pair(&regions, party(), WEIR_ACCESS_REMOTE_WRITE, one.local.id,
                                 one.remote.id, &pair),
                     WEIR_OK);
    assert_int_equal(pair.span.opcode, WEIR_OP_WRITE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S15_inside),
        cmocka_unit_test(test_S15_one_byte_outside),
        cmocka_unit_test(test_S15_the_other_way_round),
        cmocka_unit_test(test_S15_offsets_near_the_top_do_not_wrap),
        cmocka_unit_test(test_S15_zero_length),
        cmocka_unit_test(test_S15_wrong_peer),
        cmocka_unit_test(test_H6_memory_of_an_older_incarnation),
        cmocka_unit_test(test_S15_stale_generation_and_unknown_handles),
        cmocka_unit_test(test_S15_rights),
        cmocka_unit_test(test_S15_the_first_bad_segment_is_named),
        cmocka_unit_test(test_S15_a_pair_is_what_was_looked_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
