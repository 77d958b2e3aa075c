/* SPDX-License-Identifier: Apache-2.0 */
/* test_lending.c: memory that is lent in pieces (M12): random takers, givers and receivers against
 * a model that knows each byte's owner; and what a sender may say of a loan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loans.h"
#include "seeds.h"

enum { LONGEST = 5000, ROUNDS = 3000, SEEDS = 12 };

static uint32_t random_state;
static uint32_t below(uint32_t bound) {
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % bound;
}

static uint8_t *memory_of(uint64_t bytes) {
    uint8_t *memory = aligned_alloc(ROOM_LINE, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

static void campaign(uint32_t seed) {
    uint64_t bytes = loans_memory(LONGEST), round = 0;
    uint8_t *memory = memory_of(bytes), owner[LOANS_MAX] = {0};
    struct loans loans;
    uint32_t refused = 0;

    random_state = seed;
    loans_init(&loans, memory, bytes);
    for (int n = 0; n < ROUNDS; n++) {
        uint32_t i = below(LOANS_MAX), length = below(3) == 0 ? below(LONGEST + 1) : below(300);
        struct loan *loan = &loans.at[i];
        switch (below(4)) {
        case 0:
        case 1:
            i = loans_take(&loans, length, ++round);
            if (i == LOANS_NONE) {
                refused++;
                break;
            }
            loan = &loans.at[i];
            assert_int_equal(loan->state, LOAN_HELD);
            assert_int_equal(loan->offset % ROOM_LINE, 0);
            assert_true(loan->offset >= LOANS_HEAD && loan->offset + length <= bytes);
            owner[i] = (uint8_t)(1 + below(255));
            memset(memory + loan->offset, owner[i], length);
            break;
        case 2: /* returned, or read by its receiver, which gives it back some time */
            if (loan->state == LOAN_HELD && below(2) == 0)
                loans_give(&loans, i);
            else if (loan->state == LOAN_HELD)
                loan->state = LOAN_LENT;
            break;
        default:
            if (loan->state == LOAN_LENT) {
                struct room_loan where = {loan->offset, loan->round, i};
                assert_true(loans_hold(bytes, &where, loan->length));
                loans_wait(&loans, below(2) == 0);
                bool waits = memory[LOANS_BELL] != 0;
                assert_int_equal(loans_give_back(memory, &where, below(2) == 0), waits);
                assert_true(loans_look(&loans));
                assert_int_equal(loan->state, LOAN_FREE);
            }
            assert_false(loans_look(&loans));
        }
        assert_null(loans_verify(&loans));
        for (i = 0; n % 50 == 0 && i < LOANS_MAX; i++) { /* nobody wrote over another's */
            loan = &loans.at[i];
            for (uint32_t b = 0; loan->state != LOAN_FREE && b < loan->length; b++)
                assert_int_equal(memory[loan->offset + b], owner[i]);
        }
    }
    assert_true(refused > 0 && round - refused > ROUNDS / 10);
    free(memory);
}

static void test_M12_pieces_are_one_owners(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= seeds_asked(SEEDS); seed++)
        campaign(seed);
}

/* Four of the longest, 64 KiB at least; 64 MiB are enough, unless one is longer. */
static void test_M12_sizes(void **state) {
    (void)state;
    assert_int_equal(loans_longest(loans_memory(0)), 65536);
    assert_int_equal(loans_longest(loans_memory(16384)), 65536);
    assert_int_equal(loans_longest(loans_memory(16385)), 4 * 16448);
    assert_int_equal(loans_longest(loans_memory(16 << 20)), 64 << 20);
    assert_int_equal(loans_longest(loans_memory(17 << 20)), 64 << 20);
    assert_int_equal(loans_longest(loans_memory(ROOM_LENGTH_MAX)), ROOM_LENGTH_MAX);
    assert_int_equal(loans_longest(10), 0);
}

/* A sender's word about a loan may be anything. */
static void test_M12_a_loan_is_in_its_memory(void **state) {
    static const struct {
        struct room_loan loan;
        uint32_t length;
        bool holds;
    } cases[] = {
        {{LOANS_HEAD, 1, 0}, 0, true},
        {{LOANS_HEAD, 1, 0}, 10000, true},
        {{LOANS_HEAD, 1, 0}, 10001, false},
        {{LOANS_HEAD + 9984, 1, LOANS_MAX - 1}, 16, true},
        {{LOANS_HEAD + 9984, 1, 0}, 17, false},
        {{LOANS_HEAD + 10048, 1, 0}, 0, false},
        {{LOANS_HEAD + 8, 1, 0}, 1, false},
        {{LOANS_HEAD - 1, 1, 0}, 1, false},
        {{0, 1, 0}, 1, false},
        {{UINT64_MAX, 1, 0}, 1, false},
        {{UINT64_MAX - 5, 1, 0}, UINT32_MAX, false},
        {{LOANS_HEAD, 0, 0}, 1, false},
        {{LOANS_HEAD, 1, LOANS_MAX}, 1, false},
        {{LOANS_HEAD, 1, UINT32_MAX}, 1, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (loans_hold(LOANS_HEAD + 10000, &cases[i].loan, cases[i].length) != cases[i].holds)
            fail_msg("case %u", (unsigned)i);
    }
    assert_false(loans_hold(0, &cases[0].loan, 0));
}

/* A round that is not the loan's gives nothing back. */
static void test_M12_old_rounds(void **state) {
    (void)state;
    uint64_t bytes = loans_memory(100);
    uint8_t *memory = memory_of(bytes);
    struct loans loans;
    loans_init(&loans, memory, bytes);
    uint32_t i = loans_take(&loans, 100, 7);
    loans.at[i].state = LOAN_LENT;
    for (uint64_t round = 1; round < 10; round++) {
        struct room_loan where = {loans.at[i].offset, round, i};
        loans_give_back(memory, &where, round % 2 == 0);
        assert_int_equal(loans_look(&loans), round == 7);
    }
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M12_pieces_are_one_owners),
        cmocka_unit_test(test_M12_sizes),
        cmocka_unit_test(test_M12_a_loan_is_in_its_memory),
        cmocka_unit_test(test_M12_old_rounds),
    };
    return cmocka_run_group_tests_name("lending", tests, NULL, NULL);
}
