/* SPDX-License-Identifier: Apache-2.0 */
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

/* ---- credit messages that may be overtaken ------------------------------- */

enum { FLYING_MAX = 128 };

struct flying {
    bool credit; /* a credit message */
    uint32_t tells;
};

/* A QP whose ends are driven in any order. Messages that fly to side i arrive in any order too,
 * unless ordered; what has arrived is read in the order of its arrival. */
struct pair {
    bool ordered;
    uint64_t random;
    uint32_t windows[2];
    struct credit sides[2];
    struct flying flying[2][FLYING_MAX], arrived[2][FLYING_MAX];
    uint32_t flying_count[2], arrived_count[2];
    uint32_t held[2];            /* notifications that were read, and not yet taken up */
    uint32_t credits_unread[2];  /* flying ones too */
    uint32_t notifies_unread[2]; /* held ones too */
    bool completed[2]; /* the credit message of side i arrived, it has yet to hear of it */
    uint32_t most_credits;
    uint64_t taken;
};

static uint32_t draw(struct pair *pair, uint32_t below) {
    pair->random ^= pair->random << 13;
    pair->random ^= pair->random >> 7;
    pair->random ^= pair->random << 17;
    return (uint32_t)((pair->random >> 32) % below);
}

static void launch(struct pair *pair, int from, bool credit) {
    struct credit *side = &pair->sides[from];
    int to = !from;

    assert_true(pair->flying_count[to] < FLYING_MAX);
    pair->flying[to][pair->flying_count[to]++] = (struct flying){credit, credit_to_tell(side)};
    if (credit) {
        if (!pair->ordered)
            credit_launched(side, 0);
        assert_true(++pair->credits_unread[to] <= CREDIT_RESERVE); /* M2 */
        if (pair->credits_unread[to] > pair->most_credits)
            pair->most_credits = pair->credits_unread[to];
    } else {
        side->sent++;
        assert_true(++pair->notifies_unread[to] <= pair->windows[to]);
    }
    credit_told(side);
}

static void arrive(struct pair *pair, int at) {
    uint32_t index = pair->ordered ? 0 : draw(pair, pair->flying_count[at]);
    struct flying *flying = &pair->flying[at][index];

    pair->arrived[at][pair->arrived_count[at]++] = *flying;
    if (flying->credit)
        pair->completed[!at] = true;
    pair->flying_count[at]--;
    memmove(flying, flying + 1, (pair->flying_count[at] - index) * sizeof(*flying));
}

static void take_in(struct pair *pair, int at) {
    struct flying first = pair->arrived[at][0];

    pair->arrived_count[at]--;
    memmove(pair->arrived[at], pair->arrived[at] + 1, pair->arrived_count[at] * sizeof(first));
    assert_true(credit_hear(&pair->sides[at], first.tells));
    if (first.credit) {
        pair->credits_unread[at]--;
        return;
    }
    assert_true(credit_arrived(&pair->sides[at]));
    pair->held[at]++;
}

enum { ACT_NOTIFY, ACT_CREDIT, ACT_ARRIVE, ACT_COMPLETE, ACT_READ, ACT_TAKE, ACTS };

/* One thing at one side, if it can be done there. */
static bool act(struct pair *pair, int side, int what) {
    struct credit *credit = &pair->sides[side];

    if (what == ACT_NOTIFY && credit_available(credit)) {
        launch(pair, side, false);
    } else if (what == ACT_CREDIT && credit_owed(credit) && !credit->under_way) {
        launch(pair, side, true);
    } else if (what == ACT_ARRIVE && pair->flying_count[side] > 0) {
        arrive(pair, side);
    } else if (what == ACT_COMPLETE && pair->completed[side]) {
        pair->completed[side] = false;
        credit_landed(credit);
    } else if (what == ACT_READ && pair->arrived_count[side] > 0) {
        take_in(pair, side);
    } else if (what == ACT_TAKE && pair->held[side] > 0) {
        pair->held[side]--;
        pair->notifies_unread[side]--;
        credit->taken++;
        pair->taken++;
    } else {
        return false;
    }
    return true;
}

/* Until nothing is left but to send notifications. */
static void settle(struct pair *pair) {
    bool again = true;

    while (again) {
        again = false;
        for (int s = 0; s < 2; s++) {
            for (int what = ACT_CREDIT; what < ACTS; what++)
                again |= act(pair, s, what);
        }
    }
}

/* Returns how many credit messages were unread at most. */
static uint32_t drive(uint64_t seed, bool ordered) {
    static struct pair pair;
    uint32_t rare[2][ACTS]; /* each act of each side has a pace of its own */

    pair = (struct pair){.ordered = ordered, .random = seed * 0x9e3779b97f4a7c15u};
    for (int s = 0; s < 2; s++) {
        pair.windows[s] = 1 + draw(&pair, draw(&pair, 2) == 0 ? 4 : 40);
        for (int what = 0; what < ACTS; what++)
            rare[s][what] = 1 + draw(&pair, draw(&pair, 2) == 0 ? 2 : 30);
    }
    for (int s = 0; s < 2; s++)
        credit_init(&pair.sides[s], pair.windows[s], pair.windows[!s]);
    for (int step = 0; step < 3000; step++) {
        int s = (int)draw(&pair, 2);
        int what = (int)draw(&pair, ACTS);

        if (draw(&pair, rare[s][what]) == 0)
            act(&pair, s, what);
    }
    for (int round = 0; round < 10; round++) { /* M3: nobody waits for ever */
        uint64_t before = pair.taken;

        settle(&pair);
        assert_true(act(&pair, 0, ACT_NOTIFY));
        assert_true(act(&pair, 1, ACT_NOTIFY));
        settle(&pair);
        assert_true(pair.taken >= before + 2);
    }
    return pair.most_credits;
}

static void test_M2_credit_messages_find_buffers(void **state) {
    uint32_t most = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint32_t unread = drive(seed, true);
        most = unread > most ? unread : most;
    }
    assert_int_equal(most, CREDIT_RESERVE); /* and none of them is too many */
}

static void test_M2_overtaken_credit_messages_find_buffers(void **state) {
    uint32_t most = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint32_t unread = drive(seed, false);
        most = unread > most ? unread : most;
    }
    assert_int_equal(most, CREDIT_RESERVE);
}

/* While a credit message may be overtaken, what overtakes it tells nothing new. */
static void test_M2_nothing_newer_overtakes_a_credit_message(void **state) {
    struct credit credit;

    (void)state;
    credit_init(&credit, 4, 4);
    credit.taken = 2;
    assert_true(credit_owed(&credit));
    assert_int_equal(credit_to_tell(&credit), 2);
    credit_launched(&credit, 7);
    credit_told(&credit);
    assert_int_equal(credit.under_way_seq, 7);
    assert_int_equal(credit.told, 2);
    assert_false(credit_owed(&credit));
    credit.taken = 3;
    assert_int_equal(credit_to_tell(&credit), 0); /* a notification */
    credit_told(&credit);
    assert_int_equal(credit.told, 2);
    credit.taken = 4;
    assert_true(credit_owed(&credit)); /* as soon as it may be said */
    assert_int_equal(credit_to_tell(&credit), 0);
    credit_landed(&credit);
    assert_int_equal(credit_to_tell(&credit), 4);
    credit_told(&credit);
    assert_int_equal(credit.told, 4);
    assert_false(credit_owed(&credit));
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
    static const uint32_t slots[] = {0, 1, 64999, ROUTE_QP_SRQ};
    static const enum route_kind kinds[] = {ROUTE_RUN, ROUTE_BEACON, ROUTE_RECV};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        for (size_t s = 0; s < 4; s++) {
            for (size_t q = 0; q < 3; q++) {
                uint64_t id = route_id(kinds[k], slots[s], seqs[q]);
                assert_int_equal(route_kind(id), kinds[k]);
                assert_int_equal(route_qp(id), slots[s]);
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
        cmocka_unit_test(test_M2_credit_messages_find_buffers),
        cmocka_unit_test(test_M2_overtaken_credit_messages_find_buffers),
        cmocka_unit_test(test_M2_nothing_newer_overtakes_a_credit_message),
        cmocka_unit_test(test_S14_handles),
        cmocka_unit_test(test_S14_wr_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
