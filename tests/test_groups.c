/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups.c: numbered things in groups, hash tables of them, and sets of numbers (W8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bits.h"
#include "groups.h"

enum { GROUPS = 7, MEMBERS = 40, STEPS = 20000 };

static uint64_t draw_state = 1;

static uint32_t draw(uint32_t below) {
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(draw_state >> 33) % below;
}

static void test_W8_members_come_in_the_order_in_which_they_joined(void **state) {
    struct groups groups;
    void *memory = calloc(1, groups_bytes(GROUPS, MEMBERS));

    (void)state;
    groups_init(&groups, memory, GROUPS, MEMBERS);
    assert_int_equal(groups_first(&groups, 3), GROUPS_NONE);
    assert_int_equal(groups_of(&groups, 5), GROUPS_NONE);
    groups_leave(&groups, 5); /* it is in none */
    groups_join(&groups, 5, 3);
    groups_join(&groups, 0, 3);
    groups_join(&groups, MEMBERS - 1, 3);
    groups_join(&groups, 5, 3); /* it is there: it keeps its place */
    assert_int_equal(groups_first(&groups, 3), 5);
    assert_int_equal(groups_next(&groups, 5), 0);
    assert_int_equal(groups_next(&groups, 0), MEMBERS - 1);
    assert_int_equal(groups_next(&groups, MEMBERS - 1), GROUPS_NONE);
    groups_join(&groups, 0, 4); /* it moves */
    assert_int_equal(groups_next(&groups, 5), MEMBERS - 1);
    assert_int_equal(groups_of(&groups, 0), 4);
    assert_int_equal(groups.used, 3);
    assert_null(groups_verify(&groups));
    free(memory);
}

/* Against an array of who is where, and since when. */
static void test_W8_any_order_of_joins_and_leaves(void **state) {
    struct groups groups;
    void *memory = calloc(1, groups_bytes(GROUPS, MEMBERS));
    uint32_t where[MEMBERS];
    uint64_t since[MEMBERS] = {0};

    (void)state;
    memset(where, 0xff, sizeof(where));
    groups_init(&groups, memory, GROUPS, MEMBERS);
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint32_t member = draw(MEMBERS), group = draw(GROUPS + 3);
        if (group >= GROUPS) {
            groups_leave(&groups, member);
            where[member] = GROUPS_NONE;
        } else {
            groups_join(&groups, member, group);
            since[member] = where[member] == group ? since[member] : step;
            where[member] = group;
        }
        if (step % 16 != 0)
            continue;
        assert_null(groups_verify(&groups));
        uint32_t in_some = 0;
        for (uint32_t g = 0; g < GROUPS; g++) {
            uint64_t before = 0;
            for (uint32_t m = groups_first(&groups, g); m != GROUPS_NONE;
                 m = groups_next(&groups, m)) {
                assert_int_equal(where[m], g);
                assert_true(since[m] > before);
                before = since[m];
                in_some++;
            }
        }
        for (uint32_t m = 0; m < MEMBERS; m++) {
            assert_int_equal(groups_of(&groups, m), where[m]);
            in_some -= where[m] != GROUPS_NONE;
        }
        assert_int_equal(in_some, 0);
    }
    free(memory);
}

static void test_W8_broken_links_are_seen(void **state) {
    struct groups groups;
    void *memory = calloc(1, groups_bytes(GROUPS, MEMBERS));

    (void)state;
    groups_init(&groups, memory, GROUPS, MEMBERS);
    for (uint32_t m = 0; m < 3; m++)
        groups_join(&groups, m, 1);
    groups.links[1].prev = 0;
    assert_non_null(groups_verify(&groups));
    groups.links[1].prev = 1;
    assert_null(groups_verify(&groups));
    groups.links[2].next = 1; /* a circle */
    assert_non_null(groups_verify(&groups));
    groups.links[2].next = 0;
    groups.heads[1].tail = 2;
    assert_non_null(groups_verify(&groups));
    groups.heads[1].tail = 3;
    groups.links[1].group = 1;
    assert_non_null(groups_verify(&groups));
    groups.links[1].group = 2;
    groups.used = 4;
    assert_non_null(groups_verify(&groups));
    free(memory);
}

/* A stranger that does not know the seed cannot choose keys that all come to lie in one bucket. */
static void test_W8_a_hash_depends_on_its_seed(void **state) {
    uint32_t same = 0;

    (void)state;
    for (uint64_t key = 0; key < 1000; key++)
        same += groups_hash(&key, sizeof(key), 1) % 64 == groups_hash(&key, sizeof(key), 2) % 64;
    assert_in_range(same, 1, 100); /* one of 64 by chance */
}

static void test_W8_a_set_of_numbers_in_order(void **state) {
    static const uint32_t sizes[] = {1, 63, 64, 65, 4096, 5000, BITS_MAX};

    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct bits bits;
        void *memory = calloc(1, bits_bytes(sizes[s]));
        bool *has = calloc(sizes[s], sizeof(*has));
        bits_init(&bits, memory, sizes[s]);
        assert_int_equal(bits_next(&bits, 0), BITS_NONE);
        assert_int_equal(bits_next(&bits, sizes[s]), BITS_NONE);
        for (uint32_t step = 0; step < 300; step++) {
            uint32_t number = step % 7 == 0 ? sizes[s] - 1 : draw(sizes[s]);
            has[number] = draw(3) > 0;
            if (has[number])
                bits_add(&bits, number);
            else
                bits_drop(&bits, number);
        }
        uint32_t count = 0, next = bits_next(&bits, 0);
        for (uint32_t i = 0; i < sizes[s]; i++) {
            assert_int_equal(bits_has(&bits, i), has[i]);
            assert_true(next >= i);
            count += has[i];
            if (!has[i])
                continue;
            assert_int_equal(next, i);
            next = bits_next(&bits, i + 1);
        }
        assert_int_equal(next, BITS_NONE);
        assert_int_equal(bits.count, count);
        free(has);
        free(memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W8_members_come_in_the_order_in_which_they_joined),
        cmocka_unit_test(test_W8_any_order_of_joins_and_leaves),
        cmocka_unit_test(test_W8_broken_links_are_seen),
        cmocka_unit_test(test_W8_a_hash_depends_on_its_seed),
        cmocka_unit_test(test_W8_a_set_of_numbers_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
