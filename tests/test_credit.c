/* SPDX-License-Identifier: Apache-2.0 */
/* test_credit.c: end-to-end credits of one QP (M2, M3), of both classes, and the two encodings of
 * numbers into ids (S14). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "credit.h"
#include "handle.h"

/* The credits that are told: of notifications, and of words. */
static uint64_t tells(uint32_t notes, uint32_t words) {
    return notes | (uint64_t)words << 32;
}

static void test_M2_no_send_without_a_buffer(void **state) {
    (void)state;
    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
        struct credit credit;

        credit_init(&credit, 3);
        uint16_t window = c == CREDIT_NOTES ? 3 : CREDIT_WORDS_WINDOW;
        for (uint32_t i = 0; i < window; i++) {
            assert_true(credit_available(&credit, c));
            credit.sent[c]++;
        }
        assert_false(credit_available(&credit, c));
        assert_true(credit_available(&credit, !c)); /* the other's are their own */
        assert_true(credit_hear(&credit, c == CREDIT_NOTES ? tells(1, 0) : tells(0, 1)));
        assert_true(credit_available(&credit, c));
        credit_init(&credit, 3);
        credit.window_remote[c] = 0; /* the device here takes no receives: recv.c */
        assert_false(credit_available(&credit, c));
    }
}

static void test_M3_owed_at_half_of_the_window(void **state) {
    static const uint16_t windows[] = {1, 2, 3, 4, 5, CREDIT_WORDS_WINDOW, 64, CREDIT_WINDOW_MAX};

    (void)state;
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
            struct credit credit;
            uint32_t half = (windows[w] + 1u) / 2;

            credit_init(&credit, 1);
            credit.window_local[c] = windows[w];
            assert_false(credit_owed(&credit));
            for (uint32_t i = 1; i <= windows[w]; i++) {
                credit.taken[c]++;
                assert_int_equal(credit_owed(&credit), i >= half);
                assert_int_equal(credit_owed_of(&credit, c), i >= half);
                assert_false(credit_owed_of(&credit, !c));
            }
            credit_told(&credit);
            assert_false(credit_owed(&credit));
        }
    }
}

/* One message tells of both. */
static void test_M3_what_is_told_of_each_class(void **state) {
    struct credit credit, other;

    (void)state;
    credit_init(&credit, 8);
    credit_init(&other, 8);
    other.sent[CREDIT_NOTES] = 5;
    other.sent[CREDIT_WORDS] = 9;
    credit.taken[CREDIT_NOTES] = 3;
    credit.taken[CREDIT_WORDS] = 8;
    assert_int_equal(credit_to_tell(&credit), tells(3, 8));
    credit_told(&credit);
    assert_int_equal(credit.told[CREDIT_NOTES], 3);
    assert_int_equal(credit.told[CREDIT_WORDS], 8);
    assert_true(credit_hear(&other, credit_to_tell(&credit)));
    assert_int_equal(other.acked[CREDIT_NOTES], 3);
    assert_int_equal(other.acked[CREDIT_WORDS], 8);
}

static void test_M3_more_than_was_sent_is_a_lie(void **state) {
    struct credit credit;

    (void)state;
    credit_init(&credit, 8);
    assert_false(credit_hear(&credit, tells(1, 0)));
    assert_false(credit_hear(&credit, tells(0, 1)));
    assert_false(credit_hear(&credit, tells(INT32_MAX, 0)));
    assert_false(credit_hear(&credit, tells(0, INT32_MAX)));
    assert_int_equal(credit.acked[CREDIT_NOTES], 0);
    assert_int_equal(credit.acked[CREDIT_WORDS], 0);
    credit.sent[CREDIT_NOTES] = 5;
    credit.sent[CREDIT_WORDS] = 7;
    assert_true(credit_hear(&credit, tells(5, 7)));
    assert_false(credit_hear(&credit, tells(6, 7)));
    assert_false(credit_hear(&credit, tells(5, 8)));
    assert_false(credit_hear(&credit, tells(7, 5))); /* each of its own class alone */
    assert_int_equal(credit.acked[CREDIT_NOTES], 5);
    assert_int_equal(credit.acked[CREDIT_WORDS], 7);
    assert_true(credit_hear(&credit, tells(3, 6))); /* old news, overtaken */
    assert_int_equal(credit.acked[CREDIT_NOTES], 5);
    assert_int_equal(credit.acked[CREDIT_WORDS], 7);
}

/* So far above what was heard last, when five more were sent. */
static void hear_number(enum credit_class c, uint32_t above) {
    const uint32_t acked = UINT32_MAX - 2, sent = 2;
    struct credit credit;

    credit_init(&credit, 8);
    credit.sent[c] = sent;
    credit.acked[c] = acked;
    bool heard = credit_hear_of(&credit, c, acked + above);
    assert_int_equal(heard, above <= 5 || above >= UINT32_C(1) << 31);
    assert_int_equal(credit.acked[c], above <= 5 ? acked + above : acked);
}

/* Of 2^32 numbers the half that is below is old news; all others are above what was sent. */
static void test_M3_every_number_is_true_old_or_a_lie(void **state) {
    (void)state;
    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
        for (uint32_t i = 0; i < 1u << 16; i++) {
            hear_number(c, i);
            hear_number(c, 0 - i);
            hear_number(c, (UINT32_C(1) << 31) - 100 + i);
            hear_number(c, i << 16 | (i * 40503 & UINT16_MAX));
        }
    }
}

/* A SEND that 100,000 others of its QP overtook tells old numbers, and nothing is wrong. */
static void test_M3_old_news_however_late(void **state) {
    struct credit from, to;
    uint64_t late;

    (void)state;
    credit_init(&from, 4);
    credit_init(&to, 4);
    late = credit_to_tell(&to);
    for (uint32_t turn = 0; turn < 100000; turn++) {
        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
            assert_true(credit_available(&from, c));
            from.sent[c]++;
            assert_true(credit_arrived(&to, c));
            to.taken[c]++;
        }
        assert_true(credit_hear(&from, credit_to_tell(&to)));
        credit_told(&to);
        uint32_t before = from.acked[CREDIT_NOTES];
        assert_true(credit_hear(&from, late));
        assert_int_equal(from.acked[CREDIT_NOTES], before);
    }
}

/* A message that cannot have had a credit. */
static void test_M2_more_than_the_window_is_a_lie(void **state) {
    (void)state;
    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
        struct credit credit;

        credit_init(&credit, 4);
        for (uint32_t i = 0; i < credit.window_local[c]; i++)
            assert_true(credit_arrived(&credit, c));
        assert_true(credit_arrived(&credit, !c));
        assert_false(credit_arrived(&credit, c));
        credit.told[c] += 2; /* for it and one more */
        assert_true(credit_arrived(&credit, c));
        assert_false(credit_arrived(&credit, c));
    }
}

/* Every count passes 2^32, at other times. */
static void test_M3_counts_wrap(void **state) {
    const uint32_t begin[] = {UINT32_MAX - 12345, UINT32_MAX - 200000};
    (void)state;
    struct credit from, to;

    credit_init(&from, 5);
    credit_init(&to, 5);
    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
        from.sent[c] = from.acked[c] = begin[c];
        to.arrived[c] = to.taken[c] = to.told[c] = begin[c];
    }
    for (uint32_t turn = 0; turn < 100000; turn++) {
        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
            uint32_t take = c == CREDIT_NOTES ? 3 : 1 + turn % CREDIT_WORDS_WINDOW;
            while (credit_available(&from, c)) {
                from.sent[c]++;
                assert_true(credit_arrived(&to, c));
            }
            assert_int_equal(credit_between(from.sent[c], to.taken[c]), from.window_remote[c]);
            assert_false(credit_hear_of(&from, c, from.sent[c] + 1));
            to.taken[c] += take;
            assert_int_equal(credit_owed_of(&to, c), take >= (from.window_remote[c] + 1u) / 2);
        }
        assert_true(credit_hear(&from, credit_to_tell(&to)));
        credit_told(&to);
        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
            assert_true(credit_hear_of(&from, c, to.told[c] - 2)); /* older */
            assert_int_equal(from.acked[c], to.taken[c]);
        }
    }
    assert_int_equal(from.acked[CREDIT_NOTES], begin[CREDIT_NOTES] + 3 * 100000);
}

/* Both sides send as much as they may of both classes and answer only with credit messages, over a
 * channel that keeps order: neither ever stands still, and never more buffers are
 * in use than were posted. */
static void test_M3_credits_never_deadlock_on_credits(void **state) {
    (void)state;
    for (uint16_t window = 1; window <= 40; window++) {
        struct credit sides[2];
        uint32_t unread_messages[2][CREDIT_CLASSES] = {{0}}; /* at side i */
        uint64_t unread_credits[2][CREDIT_RESERVE];
        uint32_t credits[2] = {0, 0};
        uint64_t delivered[CREDIT_CLASSES] = {0};

        credit_init(&sides[0], window);
        credit_init(&sides[1], window);
        for (uint32_t round = 0; round < 200; round++) {
            for (int s = 0; s < 2; s++) {
                for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
                    while (credit_available(&sides[s], c)) {
                        sides[s].sent[c]++;
                        unread_messages[!s][c]++;
                    }
                    assert_true(unread_messages[!s][c] <= sides[!s].window_local[c]);
                }
            }
            for (int s = 0; s < 2; s++) {
                for (uint32_t i = 0; unread_messages[s][0] + unread_messages[s][1] > 0; i++) {
                    enum credit_class c = (i + round) % 3 == 0 ? CREDIT_WORDS : CREDIT_NOTES;
                    if (unread_messages[s][c] == 0)
                        continue;
                    unread_messages[s][c]--;
                    sides[s].taken[c]++;
                    delivered[c]++;
                    if (credit_owed(&sides[s])) {
                        assert_true(credits[!s] < CREDIT_RESERVE);
                        unread_credits[!s][credits[!s]++] = credit_to_tell(&sides[s]);
                        credit_told(&sides[s]);
                    }
                }
            }
            for (int s = 0; s < 2; s++) {
                for (uint32_t i = 0; i < credits[s]; i++)
                    assert_true(credit_hear(&sides[s], unread_credits[s][i]));
                credits[s] = 0;
            }
        }
        assert_true(delivered[CREDIT_NOTES] >= 200);
        assert_true(delivered[CREDIT_WORDS] >= 200);
    }
}

/* ---- any order, and credit messages that may be overtaken ---------------- */

enum { FLYING_MAX = 128, SAKE_MAX = CREDIT_RESERVE / CREDIT_CLASSES };

struct flying {
    enum credit_class class; /* CREDIT_CLASSES: a credit message */
    bool sake[CREDIT_CLASSES];
    uint64_t tells;
};

/* A QP whose ends are driven in any order. Messages that fly to side i arrive in any order too,
 * unless ordered; what has arrived is read in the order of its arrival, and taken up in any. */
struct pair {
    bool ordered;
    uint64_t random;
    struct credit sides[2];
    struct flying flying[2][FLYING_MAX], arrived[2][FLYING_MAX];
    uint32_t flying_count[2], arrived_count[2];
    uint32_t held[2][CREDIT_CLASSES];   /* that were read, and not yet taken up */
    uint32_t unread[2][CREDIT_CLASSES]; /* flying ones too, and those that are held */
    uint32_t credits_unread[2];         /* flying ones too */
    uint32_t sakes_unread[2][CREDIT_CLASSES];
    bool completed[2]; /* the credit message of side i arrived, it has yet to hear of it */
    uint32_t most_credits, most_for[CREDIT_CLASSES];
    uint64_t taken[2][CREDIT_CLASSES];
};

static uint32_t draw(struct pair *pair, uint32_t below) {
    pair->random ^= pair->random << 13;
    pair->random ^= pair->random >> 7;
    pair->random ^= pair->random << 17;
    return (uint32_t)((pair->random >> 32) % below);
}

static void set_most(uint32_t *most, uint32_t now) {
    if (now > *most)
        *most = now;
}

/* M2: at most two credit messages for the sake of each class, and never more than buffers. */
static void check_unread(struct pair *pair, int at) {
    const struct credit *side = &pair->sides[at];

    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
        assert_true(pair->unread[at][c] <= side->window_local[c]);
        assert_true(pair->sakes_unread[at][c] <= SAKE_MAX);
        set_most(&pair->most_for[c], pair->sakes_unread[at][c]);
    }
    assert_true(pair->credits_unread[at] <= CREDIT_RESERVE);
    set_most(&pair->most_credits, pair->credits_unread[at]);
}

/* class: CREDIT_CLASSES: a credit message. */
static void launch(struct pair *pair, int from, enum credit_class class) {
    struct credit *side = &pair->sides[from];
    struct flying message = {.class = class, .tells = credit_to_tell(side)};
    int to = !from;

    if (class == CREDIT_CLASSES) {
        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
            message.sake[c] = credit_owed_of(side, c);
            pair->sakes_unread[to][c] += message.sake[c];
        }
        pair->credits_unread[to]++;
        if (!pair->ordered)
            credit_launched(side, 0);
    } else {
        side->sent[class]++;
        pair->unread[to][class]++;
    }
    credit_told(side);
    check_unread(pair, to);
    assert_true(pair->flying_count[to] < FLYING_MAX);
    pair->flying[to][pair->flying_count[to]++] = message;
}

static void arrive(struct pair *pair, int at) {
    uint32_t index = pair->ordered ? 0 : draw(pair, pair->flying_count[at]);
    struct flying *flying = &pair->flying[at][index];

    pair->arrived[at][pair->arrived_count[at]++] = *flying;
    if (flying->class == CREDIT_CLASSES)
        pair->completed[!at] = true;
    pair->flying_count[at]--;
    memmove(flying, flying + 1, (pair->flying_count[at] - index) * sizeof(*flying));
}

static void take_in(struct pair *pair, int at) {
    struct flying first = pair->arrived[at][0];

    pair->arrived_count[at]--;
    memmove(pair->arrived[at], pair->arrived[at] + 1, pair->arrived_count[at] * sizeof(first));
    assert_true(credit_hear(&pair->sides[at], first.tells));
    if (first.class == CREDIT_CLASSES) {
        pair->credits_unread[at]--;
        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++)
            pair->sakes_unread[at][c] -= first.sake[c];
        return;
    }
    assert_true(credit_arrived(&pair->sides[at], first.class));
    pair->held[at][first.class]++;
}

static void take_up(struct pair *pair, int at, enum credit_class class) {
    pair->held[at][class]--;
    pair->unread[at][class]--;
    pair->sides[at].taken[class]++;
    pair->taken[at][class]++;
}

enum {
    ACT_NOTE,
    ACT_WORD,
    ACT_CREDIT,
    ACT_ARRIVE,
    ACT_COMPLETE,
    ACT_READ,
    ACT_TAKE_WORD,
    ACT_TAKE_NOTE,
    ACTS
};

/* One thing at one side, if it can be done there. */
static bool act(struct pair *pair, int side, int what) {
    struct credit *credit = &pair->sides[side];

    if (what == ACT_NOTE && credit_available(credit, CREDIT_NOTES)) {
        launch(pair, side, CREDIT_NOTES);
    } else if (what == ACT_WORD && credit_available(credit, CREDIT_WORDS)) {
        launch(pair, side, CREDIT_WORDS);
    } else if (what == ACT_CREDIT && credit_owed(credit) && !credit->under_way) {
        launch(pair, side, CREDIT_CLASSES);
    } else if (what == ACT_ARRIVE && pair->flying_count[side] > 0) {
        arrive(pair, side);
    } else if (what == ACT_COMPLETE && pair->completed[side]) {
        pair->completed[side] = false;
        credit_landed(credit);
    } else if (what == ACT_READ && pair->arrived_count[side] > 0) {
        take_in(pair, side);
    } else if (what == ACT_TAKE_WORD && pair->held[side][CREDIT_WORDS] > 0) {
        take_up(pair, side, CREDIT_WORDS);
    } else if (what == ACT_TAKE_NOTE && pair->held[side][CREDIT_NOTES] > 0) {
        take_up(pair, side, CREDIT_NOTES);
    } else {
        return false;
    }
    return true;
}

/* Until nothing is left but to send messages, and the acts from `acts` on. */
static void settle(struct pair *pair, int acts) {
    bool again = true;

    while (again) {
        again = false;
        for (int s = 0; s < 2; s++) {
            for (int what = ACT_CREDIT; what < acts; what++)
                again |= act(pair, s, what);
        }
    }
}

/* The two ends, with these windows for each class of what comes there, and counts that begin near
 * where they pass 2^32, or anywhere. */
static void pair_begin(struct pair *pair, uint16_t windows[2][CREDIT_CLASSES]) {
    for (int s = 0; s < 2; s++)
        credit_init(&pair->sides[s], 1);
    for (int s = 0; s < 2; s++) {
        struct credit *to = &pair->sides[s], *from = &pair->sides[!s];

        for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
            uint32_t begin = draw(pair, 2) == 0 ? 0 - draw(pair, 50) : draw(pair, UINT32_MAX);

            to->window_local[c] = from->window_remote[c] = windows[s][c];
            to->arrived[c] = to->taken[c] = to->told[c] = begin;
            from->sent[c] = from->acked[c] = begin;
        }
    }
}

/* M3: nobody waits for ever; and while nobody takes notifications, only those wait. */
static void go_on(struct pair *pair) {
    for (int round = 0; round < 10; round++) {
        settle(pair, ACTS);
        for (int s = 0; s < 2; s++) {
            for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
                uint64_t before = pair->taken[!s][c];

                assert_true(act(pair, s, c == CREDIT_NOTES ? ACT_NOTE : ACT_WORD));
                settle(pair, ACTS);
                assert_int_equal(pair->taken[!s][c], before + 1);
            }
        }
    }
    for (int round = 0; round < 100; round++) {
        for (int s = 0; s < 2; s++) {
            while (act(pair, s, ACT_NOTE))
                ;
            assert_true(act(pair, s, ACT_WORD));
        }
        settle(pair, ACT_TAKE_NOTE);
    }
    for (int s = 0; s < 2; s++)
        assert_int_equal(pair->held[s][CREDIT_NOTES], pair->sides[s].window_local[CREDIT_NOTES]);
}

/* Adds how many credit messages were unread at most. */
static void drive(uint64_t seed, bool ordered, struct pair *most) {
    static struct pair pair;
    uint16_t windows[2][CREDIT_CLASSES];
    uint32_t rare[2][ACTS]; /* each act of each side has a pace of its own */

    pair = (struct pair){.ordered = ordered, .random = seed * 0x9e3779b97f4a7c15u};
    for (int s = 0; s < 2; s++) {
        uint32_t few = 1 + draw(&pair, 6);

        windows[s][CREDIT_NOTES] = (uint16_t)(1 + draw(&pair, draw(&pair, 2) == 0 ? 4 : 40));
        windows[s][CREDIT_WORDS] = draw(&pair, 2) == 0 ? CREDIT_WORDS_WINDOW : (uint16_t)few;
        for (int what = 0; what < ACTS; what++)
            rare[s][what] = 1 + draw(&pair, draw(&pair, 2) == 0 ? 2 : 30);
    }
    pair_begin(&pair, windows);
    for (int step = 0; step < 4000; step++) {
        int s = (int)draw(&pair, 2);
        int what = (int)draw(&pair, ACTS);

        if (draw(&pair, rare[s][what]) == 0)
            act(&pair, s, what);
    }
    go_on(&pair);
    set_most(&most->most_credits, pair.most_credits);
    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++)
        set_most(&most->most_for[c], pair.most_for[c]);
}

static void drive_all(uint64_t seeds, bool ordered) {
    static struct pair most;

    most = (struct pair){0};
    for (uint64_t seed = 1; seed <= seeds; seed++)
        drive(seed, ordered, &most);
    assert_int_equal(most.most_credits, CREDIT_RESERVE); /* and none of them is too many */
    assert_int_equal(most.most_for[CREDIT_NOTES], SAKE_MAX);
    assert_int_equal(most.most_for[CREDIT_WORDS], SAKE_MAX);
}

static void test_M2_credit_messages_find_buffers(void **state) {
    (void)state;
    drive_all(1000, true);
}

static void test_M2_overtaken_credit_messages_find_buffers(void **state) {
    (void)state;
    drive_all(3000, false);
}

/* While a credit message may be overtaken, what overtakes it tells nothing new, of either class. */
static void test_M2_nothing_newer_overtakes_a_credit_message(void **state) {
    (void)state;
    for (enum credit_class c = CREDIT_NOTES; c < CREDIT_CLASSES; c++) {
        struct credit credit;

        credit_init(&credit, 4);
        credit.window_local[CREDIT_WORDS] = 4;
        credit.taken[c] = 2;
        credit.taken[!c] = 1;
        assert_true(credit_owed(&credit));
        uint64_t first = credit_to_tell(&credit);
        credit_launched(&credit, 7);
        credit_told(&credit);
        assert_int_equal(credit.under_way_seq, 7);
        assert_int_equal(credit.told[c], 2);
        assert_int_equal(credit.told[!c], 1);
        assert_false(credit_owed(&credit));
        credit.taken[c] = 3;
        credit.taken[!c] = 2;
        assert_int_equal(credit_to_tell(&credit), 0); /* another message */
        credit_told(&credit);
        assert_int_equal(credit.told[c], 2);
        credit.taken[c] = 4;
        assert_true(credit_owed(&credit)); /* as soon as it may be said */
        assert_int_equal(credit_to_tell(&credit), 0);
        credit_landed(&credit);
        assert_int_equal(credit_to_tell(&credit), c == CREDIT_NOTES ? tells(4, 2) : tells(2, 4));
        assert_int_not_equal(credit_to_tell(&credit), first);
        credit_told(&credit);
        assert_int_equal(credit.told[c], 4);
        assert_int_equal(credit.told[!c], 2);
        assert_false(credit_owed(&credit));
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
        cmocka_unit_test(test_M3_what_is_told_of_each_class),
        cmocka_unit_test(test_M3_more_than_was_sent_is_a_lie),
        cmocka_unit_test(test_M3_old_news_however_late),
        cmocka_unit_test(test_M3_every_number_is_true_old_or_a_lie),
        cmocka_unit_test(test_M2_more_than_the_window_is_a_lie),
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
