/* SPDX-License-Identifier: Apache-2.0 */
/* test_names.c: the tables of published names and of those that were asked for (N1 to N4), by hand
 * and against plain lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asked.h"
#include "published.h"

enum { MAX = 24, NAMES = 40, PEERS = 5, STEPS = 200000 };

static uint64_t draw_state = 1;

static uint32_t draw(uint32_t below) {
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(draw_state >> 33) % below;
}

static void *published_new(struct published *published, uint32_t max) {
    void *memory = calloc(1, published_bytes(max));
    published_init(published, memory, max, 7);
    return memory;
}

static void *asked_new(struct asked *asked, uint32_t max) {
    void *memory = calloc(1, asked_bytes(max, PEERS));
    asked_init(asked, memory, max, PEERS, 7);
    return memory;
}

/* ---- published ---- */

static void test_N1_names_are_texts_of_1_to_127_bytes(void **state) {
    char name[WEIR_NAME_MAX + 1];
    (void)state;
    memset(name, 'n', sizeof(name));
    assert_false(published_is_name(""));
    assert_true(published_is_name("n"));
    assert_false(published_is_name(name)); /* looks at no more than there may be */
    name[WEIR_NAME_MAX - 1] = '\0';
    assert_true(published_is_name(name));
    assert_int_not_equal(published_hash("a", 1), published_hash("b", 1));
}

static void test_N1_a_name_is_of_what_it_was_given_last(void **state) {
    struct published published;
    void *memory = published_new(&published, 2);
    uint32_t i;
    (void)state;
    assert_int_equal(published_find(&published, "a", 1), GROUPS_NONE);
    assert_int_equal(published_memory(&published, "a", 70), WEIR_OK);
    i = published_find(&published, "a", 1);
    assert_int_equal(published.entries[i].memory, 70);
    assert_int_equal(published.entries[i].version, 1);
    assert_int_equal(published_memory(&published, "a", 70), WEIR_OK); /* no change */
    assert_int_equal(published.version, 1);
    assert_int_equal(published_value(&published, "a", "xyz", 3), WEIR_OK);
    assert_int_equal(published_find(&published, "a", 1), i);
    assert_int_equal(published.entries[i].kind, NAME_VALUE);
    assert_memory_equal(published.entries[i].value, "xyz", 3);
    assert_int_equal(published_value(&published, "a", "xyz", 3), WEIR_OK);
    assert_int_equal(published.version, 2);
    assert_int_equal(published_value(&published, "a", "xyz", 2), WEIR_OK); /* a shorter one */
    assert_int_equal(published.version, 3);
    assert_int_equal(published_value(&published, "b", NULL, 0), WEIR_OK);
    assert_int_equal(published_value(&published, "c", NULL, 0), WEIR_EAGAIN);
    assert_int_equal(published_find(&published, "c", 1), GROUPS_NONE);
    assert_true(published_withdraw(&published, "a"));
    assert_false(published_withdraw(&published, "a"));
    assert_int_equal(published_find(&published, "a", 1), GROUPS_NONE);
    assert_int_equal(published_memory(&published, "c", 9), WEIR_OK); /* in the place of that */
    assert_int_equal(published_find(&published, "a", 1), GROUPS_NONE);
    assert_null(published_verify(&published));
    free(memory);
}

static void test_N1_memory_that_goes_takes_all_of_its_names(void **state) {
    struct published published;
    void *memory = published_new(&published, MAX);
    (void)state;
    assert_int_equal(published_memory(&published, "a", 70), WEIR_OK);
    assert_int_equal(published_memory(&published, "b", 71), WEIR_OK);
    assert_int_equal(published_memory(&published, "c", 70), WEIR_OK);
    assert_int_equal(published_withdraw_memory(&published, 72), 0);
    assert_int_equal(published_withdraw_memory(&published, 70), 2);
    assert_int_equal(published.count, 1);
    assert_int_not_equal(published_find(&published, "b", 1), GROUPS_NONE);
    free(memory);
}

/* A reader of news that keeps a copy by it has what there is, however seldom it reads. */
struct reader {
    uint64_t told;
    uint64_t versions[NAMES]; /* 0: none */
};

static void name_of(uint32_t number, char out[8]) {
    snprintf(out, 8, "n%u", number);
}

static uint64_t version_of(const struct published *published, uint32_t number) {
    char name[8];
    name_of(number, name);
    uint32_t i = published_find(published, name, strlen(name));
    return i == GROUPS_NONE ? 0 : published->entries[i].version;
}

static void read_one(const struct published *published, struct reader *reader) {
    uint32_t entry;
    switch (published_news(published, reader->told, &entry)) {
    case PUBLISHED_QUIET:
        for (uint32_t n = 0; n < NAMES; n++)
            assert_int_equal(reader->versions[n], version_of(published, n));
        break;
    case PUBLISHED_ONE:
        assert_true(published->entries[entry].version > reader->told);
        reader->told = published->entries[entry].version;
        uint32_t number = (uint32_t)atoi(published->entries[entry].name + 1);
        reader->versions[number] = version_of(published, number);
        break;
    case PUBLISHED_ALL:
        reader->told = published->version;
        for (uint32_t n = 0; n < NAMES; n++)
            reader->versions[n] = version_of(published, n);
        break;
    }
}

static void test_N2_news_in_any_order_and_at_any_pace(void **state) {
    struct published published;
    struct reader readers[3] = {{0}};
    void *memory = published_new(&published, MAX);
    uint32_t all = 0, full = 0;
    (void)state;
    for (uint32_t step = 0; step < STEPS; step++) {
        char name[8];
        uint32_t number = draw(NAMES), kind = draw(8), value = draw(3);
        uint64_t before = published.version;
        name_of(number, name);
        int rc = WEIR_OK;
        if (kind < 3)
            rc = published_memory(&published, name, 1 + draw(3));
        else if (kind < 5)
            rc = published_value(&published, name, &value, 1 + draw(2));
        else if (kind < 7)
            published_withdraw(&published, name);
        else if (draw(20) == 0)
            published_withdraw_memory(&published, 1 + draw(3));
        full += rc == WEIR_EAGAIN;
        assert_true(rc == WEIR_OK || (published.count == MAX && published.version == before));
        static const uint32_t paces[3] = {1, 9, 500};
        for (uint32_t r = 0; r < 3; r++) {
            uint32_t entry;
            if (draw(paces[r]) != 0)
                continue;
            all += published_news(&published, readers[r].told, &entry) == PUBLISHED_ALL;
            read_one(&published, &readers[r]);
        }
        if (step % 500 == 0)
            assert_null(published_verify(&published));
    }
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < 4 * MAX; i++)
            read_one(&published, &readers[r]);
        assert_int_equal(readers[r].told, published.version);
    }
    assert_true(all > 0 && full > 0);
    free(memory);
}

static void test_N3_a_list_goes_through_all_that_stay(void **state) {
    struct published published;
    void *memory = published_new(&published, MAX);
    uint32_t seen = 0;
    (void)state;
    for (uint32_t n = 0; n < MAX; n++) {
        char name[8];
        name_of(n, name);
        assert_int_equal(published_memory(&published, name, 1), WEIR_OK);
    }
    published_withdraw(&published, "n0");
    published_withdraw(&published, "n7");
    for (uint64_t place = 0;; seen++) {
        uint32_t i = published_from(&published, place);
        if (i == GROUPS_NONE)
            break;
        place = (uint64_t)i + 1;
    }
    assert_int_equal(seen, MAX - 2);
    assert_int_equal(published_from(&published, UINT64_MAX), GROUPS_NONE);
    free(memory);
}

/* ---- asked ---- */

static uint32_t ask(struct asked *asked, uint32_t peer, const char *name) {
    struct asked_question question = {.name = name, .length = (uint8_t)strlen(name)};
    return asked_open(asked, peer, &question, &(struct asked_entry){0});
}

static struct asked_turn answer(struct asked *asked, uint32_t i, uint8_t kind, uint64_t version) {
    struct asked_answer answer = {.kind = kind, .version = version};
    return asked_answered(asked, i, &answer);
}

static void test_N2_an_answer_is_told_to_those_that_wait_or_have_another(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, MAX);
    (void)state;
    uint32_t i = ask(&asked, 2, "a");
    assert_int_equal(ask(&asked, 2, "a"), i);
    assert_int_not_equal(ask(&asked, 3, "a"), i);
    struct asked_entry *entry = &asked.entries[i];
    entry->awaited = true;
    asked_again(&asked, i);
    asked_again(&asked, i);
    assert_int_equal(asked_next(&asked, 2), i);
    asked_said(&asked, i);
    assert_int_equal(asked_next(&asked, 2), GROUPS_NONE);
    struct asked_turn turn = answer(&asked, i, NAME_NOTHING, 0);
    assert_false(turn.tell || turn.stale);
    assert_true(entry->awaited && entry->known);
    asked_changed(&asked, 3, 0); /* another peer's */
    assert_int_equal(asked_next(&asked, 2), GROUPS_NONE);
    asked_changed(&asked, 2, published_hash("b", 1));
    assert_int_equal(asked_next(&asked, 2), GROUPS_NONE);
    asked_changed(&asked, 2, published_hash("a", 1));
    assert_int_equal(asked_next(&asked, 2), i);
    asked_said(&asked, i);
    asked_changed(&asked, 2, 0); /* while it is asked: asked once more, behind the answer */
    turn = answer(&asked, i, NAME_VALUE, 5);
    assert_true(turn.tell && turn.stale);
    assert_false(entry->awaited);
    assert_int_equal(asked_next(&asked, 2), i);
    entry->given = true;
    asked_said(&asked, i);
    turn = answer(&asked, i, NAME_VALUE, 5);
    assert_false(turn.tell || turn.stale);
    assert_true(entry->given);
    asked_again(&asked, i);
    asked_said(&asked, i);
    turn = answer(&asked, i, NAME_NOTHING, 0); /* it was withdrawn */
    assert_true(turn.tell && turn.stale);
    assert_false(entry->given);
    assert_null(asked_verify(&asked));
    free(memory);
}

static void test_N4_what_is_used_stays_and_the_oldest_goes(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, 3);
    (void)state;
    uint32_t a = ask(&asked, 0, "a"), b = ask(&asked, 0, "b"), c = ask(&asked, 0, "c");
    uint64_t id = asked.entries[b].id;
    asked.entries[a].users = 1;
    (void)ask(&asked, 0, "c");
    assert_int_equal(ask(&asked, 1, "d"), b);
    assert_null(asked_at(&asked, id));
    assert_int_equal(ask(&asked, 1, "e"), c);
    asked.entries[b].users = asked.entries[c].users = 1;
    assert_int_equal(ask(&asked, 1, "f"), GROUPS_NONE);
    asked.entries[b].users = 0;
    asked_again(&asked, b);
    asked_said(&asked, b); /* its answer is to come */
    assert_int_equal(ask(&asked, 1, "f"), GROUPS_NONE);
    (void)answer(&asked, b, NAME_VALUE, 1);
    assert_int_equal(ask(&asked, 1, "f"), b);
    assert_null(asked_verify(&asked));
    free(memory);
}

/* One that the application waits for makes room only when no other can, and that is said. */
static void test_N4_what_is_waited_for_goes_last(void **state) {
    struct asked asked;
    struct asked_entry gone;
    struct asked_question question = {.name = "d", .length = 1};
    void *memory = asked_new(&asked, 2);
    (void)state;
    uint32_t a = ask(&asked, 0, "a"), b = ask(&asked, 1, "b");
    asked.entries[a].awaited = true;
    assert_int_equal(asked_open(&asked, 1, &question, &gone), b);
    assert_true(gone.used && !gone.awaited && gone.peer == 1);
    asked.entries[b].users = 1;
    question.name = "e";
    assert_int_equal(asked_open(&asked, 1, &question, &gone), a);
    assert_true(gone.used && gone.awaited && gone.peer == 0);
    assert_int_equal(gone.hash, published_hash("a", 1));
    assert_int_equal(asked_open(&asked, 1, &question, &gone), a);
    assert_false(gone.used);
    assert_null(asked_verify(&asked));
    free(memory);
}

/* No answer: the question is asked again. Nobody there: nobody waits any more. */
static void test_N5_questions_without_an_answer(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, 3);
    (void)state;
    uint32_t a = ask(&asked, 0, "a"), b = ask(&asked, 0, "b");
    asked_again(&asked, a);
    asked_said(&asked, a);
    asked_unsaid(&asked, a);
    assert_int_equal(asked_next(&asked, 0), a);
    asked.entries[b].awaited = true;
    assert_false(asked_failed(&asked, 1));
    assert_true(asked_failed(&asked, 0));
    assert_false(asked_failed(&asked, 0));
    assert_null(asked_verify(&asked));
    free(memory);
}

/* Any number that are asked again by themselves keep none waiting that the application waits for.
 */
static void test_N5_what_is_waited_for_is_asked_first(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, MAX);
    uint32_t kept[6];
    char name[8];
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        kept[i] = ask(&asked, 0, name);
    }
    asked.entries[kept[3]].awaited = true;
    asked_changed(&asked, 0, 0);
    assert_int_equal(asked_next(&asked, 0), kept[3]);
    uint32_t late = ask(&asked, 0, "late");
    asked_again(&asked, late);
    asked.entries[late].users = 1;
    asked_again(&asked, late); /* it is in the line */
    asked.entries[kept[5]].users = 1;
    asked_again(&asked, kept[5]);
    assert_null(asked_verify(&asked));
    const uint32_t order[] = {kept[3], late, kept[5], kept[0], kept[1], kept[2], kept[4]};
    for (uint32_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        assert_int_equal(asked_next(&asked, 0), order[i]);
        asked_said(&asked, order[i]);
        (void)answer(&asked, order[i], NAME_VALUE, 5);
    }
    assert_int_equal(asked_next(&asked, 0), GROUPS_NONE);
    assert_int_equal(asked_next(&asked, 1), GROUPS_NONE);
    assert_null(asked_verify(&asked));
    free(memory);
}

/* A name in use that changes without end: the others have their turn all the same. */
static void test_N5_none_waits_for_ever(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, MAX);
    uint32_t said[MAX] = {0};
    (void)state;
    uint32_t used = ask(&asked, 0, "used"), one = ask(&asked, 0, "one"),
             two = ask(&asked, 0, "two");
    asked.entries[used].users = 1;
    for (uint32_t turn = 1; turn <= 4 * (ASKED_PASSED_MAX + 1); turn++) {
        asked_changed(&asked, 0, 0); /* behind those in the line; one that is there stays */
        uint32_t i = asked_next(&asked, 0);
        said[i]++;
        asked_said(&asked, i);
        (void)answer(&asked, i, NAME_VALUE, turn);
        assert_int_equal(said[one] + said[two], turn / (ASKED_PASSED_MAX + 1));
    }
    assert_true(said[one] == 2 && said[two] == 2);
    while (asked.entries[one].passed < ASKED_PASSED_MAX) { /* its turn is next */
        asked_changed(&asked, 0, 0);
        asked_said(&asked, used);
        (void)answer(&asked, used, NAME_VALUE, 100);
    }
    asked_changed(&asked, 0, 0);
    asked.entries[one].users = 1;
    asked_again(&asked, one); /* it goes first now, behind what did before */
    assert_int_equal(asked_next(&asked, 0), used);
    asked_forget(&asked, 0);
    assert_int_equal(asked_next(&asked, 0), GROUPS_NONE);
    assert_null(asked_verify(&asked));
    free(memory);
}

static void test_N2_a_new_life_asks_for_what_is_used(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, MAX);
    (void)state;
    uint32_t used = ask(&asked, 0, "used"), idle = ask(&asked, 0, "idle");
    uint32_t said = ask(&asked, 0, "said");
    asked_again(&asked, used);
    asked_said(&asked, used);
    (void)answer(&asked, used, NAME_MEMORY, 4);
    asked_again(&asked, idle);
    asked_said(&asked, idle);
    (void)answer(&asked, idle, NAME_VALUE, 5);
    asked_again(&asked, said);
    asked_said(&asked, said);
    asked.entries[used].users = 1;
    uint64_t idle_id = asked.entries[idle].id;
    asked_new_life(&asked, 0, true);
    assert_null(asked_at(&asked, idle_id));
    assert_int_equal(asked_next(&asked, 0), used);
    assert_false(asked.entries[used].known);
    asked_said(&asked, used);
    assert_int_equal(asked_next(&asked, 0), said);
    assert_false(answer(&asked, used, NAME_MEMORY, 4).stale); /* it is what it was */
    asked_new_life(&asked, 0, false);
    asked_said(&asked, used);
    assert_true(answer(&asked, used, NAME_MEMORY, 4).stale); /* of another engine */
    asked_forget(&asked, 0);
    assert_int_equal(asked_next(&asked, 0), GROUPS_NONE);
    assert_null(asked_verify(&asked));
    free(memory);
}

static void test_N2_two_names_of_a_peer_become_one(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, MAX);
    (void)state;
    uint32_t both = ask(&asked, 0, "both"), one = ask(&asked, 0, "one");
    uint32_t there = ask(&asked, 1, "both");
    asked.entries[both].awaited = true;
    uint64_t gone = asked.entries[both].id;
    asked_move(&asked, 0, 1);
    assert_null(asked_at(&asked, gone));
    assert_true(asked.entries[there].awaited);
    assert_int_equal(ask(&asked, 1, "one"), one);
    assert_int_equal(asked_next(&asked, 1), there);
    assert_null(asked_verify(&asked));
    free(memory);
}

/* Peers of random habits: questions, answers, changes, lives, users, forgetting. */
static void random_step(struct asked *asked, uint64_t said[PEERS], uint64_t users[8]) {
    char name[8];
    uint32_t peer = draw(PEERS), i;
    name_of(draw(NAMES), name);
    struct asked_question listing = {.listing = true, .place = draw(6)};
    struct asked_entry *entry = asked_at(asked, said[peer]);
    switch (draw(12)) {
    case 0:
    case 1:
    case 2:
        i = draw(6) == 0 ? asked_open(asked, peer, &listing, &(struct asked_entry){0})
                         : ask(asked, peer, name);
        if (i == GROUPS_NONE)
            break;
        asked->entries[i].awaited |= draw(2) == 0;
        if (!asked->entries[i].known)
            asked_again(asked, i);
        uint32_t user = draw(8);
        if (asked_at(asked, users[user]) == NULL) {
            users[user] = asked->entries[i].id;
            asked->entries[i].users++;
        }
        break;
    case 3:
    case 4:
    case 5:
        i = asked_next(asked, peer);
        if (entry == NULL && i != GROUPS_NONE) {
            asked_said(asked, i);
            said[peer] = asked->entries[i].id;
        }
        break;
    case 6:
    case 7:
        if (entry == NULL)
            break;
        assert_int_equal(entry->state, ASKED_SAID);
        i = (uint32_t)(entry - asked->entries);
        uint32_t kind = draw(3);
        uint64_t before = entry->version, version = kind == NAME_NOTHING ? 0 : 1 + draw(3);
        assert_int_equal(answer(asked, i, (uint8_t)kind, version).stale, before != version);
        said[peer] = 0;
        break;
    case 8:
        asked_changed(asked, peer, draw(3) == 0 ? 0 : published_hash(name, strlen(name)));
        break;
    case 9:
        user = draw(8);
        entry = asked_at(asked, users[user]);
        if (entry != NULL)
            entry->users--;
        users[user] = 0;
        break;
    case 10:
        if (draw(40) == 0) {
            asked_new_life(asked, peer, draw(2) == 0);
            said[peer] = 0;
        }
        break;
    default:
        if (draw(400) == 0) {
            asked_forget(asked, peer);
            said[peer] = 0;
        } else if (draw(400) == 0 && said[peer] == 0) {
            uint32_t to = (peer + 1) % PEERS;
            asked_move(asked, peer, to);
        }
    }
}

static void test_N4_any_order_of_questions_and_answers(void **state) {
    struct asked asked;
    void *memory = asked_new(&asked, MAX);
    uint64_t said[PEERS] = {0}, users[8] = {0};
    (void)state;
    for (uint32_t step = 0; step < STEPS; step++) {
        random_step(&asked, said, users);
        for (uint32_t p = 0; p < PEERS; p++)
            assert_true(said[p] == 0 || asked_at(&asked, said[p]) != NULL);
        if (step % 64 == 0)
            assert_null(asked_verify(&asked));
    }
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_N1_names_are_texts_of_1_to_127_bytes),
        cmocka_unit_test(test_N1_a_name_is_of_what_it_was_given_last),
        cmocka_unit_test(test_N1_memory_that_goes_takes_all_of_its_names),
        cmocka_unit_test(test_N2_news_in_any_order_and_at_any_pace),
        cmocka_unit_test(test_N3_a_list_goes_through_all_that_stay),
        cmocka_unit_test(test_N2_an_answer_is_told_to_those_that_wait_or_have_another),
        cmocka_unit_test(test_N4_what_is_used_stays_and_the_oldest_goes),
        cmocka_unit_test(test_N4_what_is_waited_for_goes_last),
        cmocka_unit_test(test_N5_questions_without_an_answer),
        cmocka_unit_test(test_N5_what_is_waited_for_is_asked_first),
        cmocka_unit_test(test_N5_none_waits_for_ever),
        cmocka_unit_test(test_N2_a_new_life_asks_for_what_is_used),
        cmocka_unit_test(test_N2_two_names_of_a_peer_become_one),
        cmocka_unit_test(test_N4_any_order_of_questions_and_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
