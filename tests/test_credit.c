/* test_credit.c: end-to-end credits of one QP (M2, M3), and the two encodings of
 * numbers into ids (S14). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "credit.h"
#include "handle.h"

static void test_M2_no_send_without_a_buffer(void **state) {
    struct credit credit;

    (void)state;
    credit_init(&credit, 8, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(credit_available(&credit));
        credit.sent++;
    }
    assert_false(credit_available(&credit));
    assert_true(credit_hear(&credit, 1));
    assert_true(credit_available(&credit));
    credit_init(&credit, 8, 0); /* the other side posted none */
    assert_false(credit_available(&credit));
}

static void test_M3_owed_at_half_of_the_window(void **state) {
    static const uint32_t windows[] = {1, 2, 3, 4, 5, 64, CREDIT_WINDOW_MAX};

    (void)state;
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
        struct credit credit;
        uint32_t half = windows[w] / 2; /* of an odd window: either side of it */

        credit_init(&credit, windows[w], 1);
        assert_false(credit_owed(&credit));
        for (uint32_t i = 1; i <= windows[w]; i++) {
            credit.taken++;
            if (i < half)
                assert_false(credit_owed(&credit));
            else if (i > half)
                assert_true(credit_owed(&credit));
        }
        credit.told = credit.taken;
        assert_false(credit_owed(&credit));
    }
}

static void test_M3_more_than_was_sent_is_a_lie(void **state) {
    struct credit credit;

    (void)state;
    credit_init(&credit, 8, 8);
    assert_false(credit_hear(&credit, 1));
    assert_false(credit_hear(&credit, INT32_MAX));
    assert_int_equal(credit.acked, 0);
    credit.sent = 5;
    assert_true(credit_hear(&credit, 5));
    assert_false(credit_hear(&credit, 6));
    assert_int_equal(credit.acked, 5);
    assert_true(credit_hear(&credit, 3)); /* old news, overtaken */
    assert_int_equal(credit.acked, 5);
}

static void test_M3_counts_wrap(void **state) {
    struct credit credit;

    (void)state;
    credit_init(&credit, 4, 4);
    credit.sent = credit.acked = UINT32_MAX - 1;
    credit.taken = credit.told = UINT32_MAX;
    for (int i = 0; i < 4; i++) {
        assert_true(credit_available(&credit));
        credit.sent++;
    }
    assert_false(credit_available(&credit));
    assert_int_equal(credit.sent, 2);
    assert_false(credit_hear(&credit, 3));
    assert_true(credit_hear(&credit, 1));
    assert_int_equal(credit.acked, 1);
    assert_true(credit_hear(&credit, UINT32_MAX)); /* older */
    assert_int_equal(credit.acked, 1);
    credit.taken += 2;
    assert_true(credit_owed(&credit));
}

/* Both sides send as much as they may and answer only with credit messages, over a
 * channel that keeps order: neither ever stands still, and never more buffers are
 * in use than were posted. */
static void test_M3_credits_never_deadlock_on_credits(void **state) {
    (void)state;
    for (uint32_t window = 1; window <= 40; window++) {
        struct credit sides[2];
        uint32_t unread_messages[2] = {0, 0}; /* at side i */
        uint32_t unread_credits[2][64];
        uint32_t credits[2] = {0, 0};
        uint64_t delivered = 0;

        credit_init(&sides[0], window, window);
        credit_init(&sides[1], window, window);
        for (uint32_t round = 0; round < 200; round++) {
            for (int s = 0; s < 2; s++) {
                while (credit_available(&sides[s])) {
                    sides[s].sent++;
                    unread_messages[!s]++;
                }
                assert_true(unread_messages[!s] <= window);
            }
            for (int s = 0; s < 2; s++) {
                while (unread_messages[s] > 0) {
                    unread_messages[s]--;
                    sides[s].taken++;
                    delivered++;
                    if (credit_owed(&sides[s])) {
                        sides[s].told = sides[s].taken;
                        unread_credits[!s][credits[!s]++] = sides[s].taken;
                        assert_true(credits[!s] <= CREDIT_RESERVE);
                    }
                }
            }
            for (int s = 0; s < 2; s++) {
                for (uint32_t i = 0; i < credits[s]; i++)
                    assert_true(credit_hear(&sides[s], unread_credits[s][i]));
                credits[s] = 0;
            }
        }
        assert_true(delivered >= 200);
    }
}

static void test_S14_handles(void **state) {
    static const uint32_t indices[] = {0, 1, 4095, HANDLE_INDEX_MASK};

    (void)state;
    for (size_t i = 0; i < sizeof(indices) / sizeof(indices[0]); i++) {
        uint64_t id = handle_first(indices[i]);
        assert_true(id != 0);
        for (int n = 0; n < 1000; n++) {
            assert_int_equal(handle_index(id), indices[i]);
            assert_true(handle_next(id) > id);
            id = handle_next(id);
        }
        /* The last generation is followed by the first, never by 0. */
        id = (UINT64_MAX & ~(uint64_t)HANDLE_INDEX_MASK) | indices[i];
        assert_true(handle_next(id) == handle_first(indices[i]));
    }
}

static void test_S14_wr_ids(void **state) {
    static const uint64_t seqs[] = {0, 1, ROUTE_SEQ_MASK};
    static const uint32_t slots[] = {0, 1, 64999, ROUTE_SLOT_SRQ};
    static const enum route_kind kinds[] = {ROUTE_RUN, ROUTE_BEACON, ROUTE_RECV};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        for (size_t s = 0; s < 4; s++) {
            for (size_t q = 0; q < 3; q++) {
                uint64_t id = route_id(kinds[k], slots[s], seqs[q]);
                assert_int_equal(route_kind(id), kinds[k]);
                assert_int_equal(route_slot(id), slots[s]);
                assert_true(route_seq(id) == seqs[q]);
            }
        }
    }
    /* A sequence that is too long does not spill into the slot. */
    assert_true(route_id(ROUTE_RUN, 1, ROUTE_SEQ_MASK + 1) == route_id(ROUTE_RUN, 1, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M2_no_send_without_a_buffer),
        cmocka_unit_test(test_M3_owed_at_half_of_the_window),
        cmocka_unit_test(test_M3_more_than_was_sent_is_a_lie),
        cmocka_unit_test(test_M3_counts_wrap),
        cmocka_unit_test(test_M3_credits_never_deadlock_on_credits),
        cmocka_unit_test(test_S14_handles),
        cmocka_unit_test(test_S14_wr_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
