/* SPDX-License-Identifier: Apache-2.0 */
/* test_ledger.c: the holders of send-queue slots (S1, S2, S6, S7, S14).
 *
 * The edges by hand, then random schedules on ordered and unordered QPs against a
 * model that keeps every run in a plain array and recounts everything each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ledger.h"

enum { DEPTH_MAX = 64, RUNS_MAX = 4000 };

static struct ledger_run ring[2 * DEPTH_MAX];

static void begin(struct ledger *ledger, uint32_t depth, uint64_t first_seq) {
    memset(ring, 0xa5, sizeof(ring));
    assert_true(ledger_ring_size(depth) <= sizeof(ring) / sizeof(ring[0]));
    ledger_init(ledger, ring, depth, first_seq);
}

static void assert_sound(const struct ledger *ledger) {
    const char *wrong = ledger_verify(ledger);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

/* ---- by hand ---- */

static void test_S1_ring_holds_a_run_a_slot(void **state) {
    (void)state;
    assert_int_equal(ledger_ring_size(1), 1);
    assert_int_equal(ledger_ring_size(2), 2);
    assert_int_equal(ledger_ring_size(3), 4);
    assert_int_equal(ledger_ring_size(7), 8);
    assert_int_equal(ledger_ring_size(8), 8);
    assert_int_equal(ledger_ring_size(65535), 65536);
    assert_int_equal(ledger_ring_size(65536), 65536);
}

static void test_S1_taken_slots_come_back_once(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    begin(&ledger, 7, 1);
    assert_int_equal(ledger_free(&ledger), 7);
    uint64_t seq = ledger_take(&ledger, 3, 7, 2, 0);
    assert_int_equal(ledger_free(&ledger), 0);
    assert_int_equal(ledger.high_water, 7);
    assert_false(ledger_pop(&ledger, &run, &healed));
    assert_true(ledger_complete(&ledger, seq, true));
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(run.transfer, 3);
    assert_int_equal(run.count, 7);
    assert_int_equal(run.sends, 2);
    assert_int_equal(run.state, LEDGER_DONE);
    assert_false(healed);
    assert_false(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(ledger_free(&ledger), 7);
    assert_int_equal(ledger.high_water, 7);
    assert_sound(&ledger);
}

static void test_S14_stale_and_repeated_completions_change_nothing(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    begin(&ledger, 4, 1000);
    assert_false(ledger_complete(&ledger, 0, true));
    assert_false(ledger_complete(&ledger, 999, true));
    assert_false(ledger_complete(&ledger, 1000, true)); /* not taken yet */
    assert_null(ledger_peek(&ledger, 1000));
    uint64_t first = ledger_take(&ledger, 1, 1, 0, 0);
    assert_int_equal(first, 1000);
    assert_non_null(ledger_peek(&ledger, first));
    assert_false(ledger_complete(&ledger, first + ledger_ring_size(4), true)); /* same place */
    assert_false(ledger_complete(&ledger, UINT64_MAX, true));
    assert_true(ledger_complete(&ledger, first, true));
    assert_false(ledger_complete(&ledger, first, true));
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_false(ledger_complete(&ledger, first, true));
    assert_null(ledger_peek(&ledger, first));
    assert_sound(&ledger);

    /* The slot's next life: numbers go on, old ones are unknown. */
    begin(&ledger, 4, first + 1);
    uint64_t next = ledger_take(&ledger, 1, 4, 0, 0);
    assert_true(next > first);
    assert_false(ledger_complete(&ledger, first, false));
    assert_int_equal(ledger_free(&ledger), 0);
}

static void test_S6_partial_post_every_index(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    for (uint32_t count = 1; count <= 16; count++) {
        for (uint32_t accepted = 0; accepted < count; accepted++) {
            begin(&ledger, 16, 1);
            uint64_t seq = ledger_take(&ledger, 5, count, 1, 0);
            ledger_trim(&ledger, seq, accepted, 0, 0);
            assert_int_equal(ledger_free(&ledger), 16 - accepted);
            assert_sound(&ledger);
            assert_int_equal(ledger.orphans, accepted > 0);
            assert_int_equal(ledger.open, accepted > 0);
            if (accepted == 0) {
                assert_null(ledger_peek(&ledger, seq));
                assert_int_equal(ledger_take(&ledger, 6, 1, 0, 0), seq); /* never was posted */
                continue;
            }
            /* It has no signalled tail: nothing can complete it directly. */
            assert_false(ledger_complete(&ledger, seq, false));
            assert_false(ledger_pop(&ledger, &run, &healed));
            if (ledger_free(&ledger) == 0)
                continue;
            uint64_t closer = ledger_take(&ledger, LEDGER_NO_TRANSFER, 1, 0, 0);
            ledger_cover(&ledger);
            assert_false(ledger.open);
            assert_true(ledger_complete(&ledger, closer, true));
            assert_true(ledger_pop(&ledger, &run, &healed));
            assert_true(healed);
            assert_int_equal(run.transfer, 5);
            assert_int_equal(run.count, accepted);
            assert_int_equal(run.sends, 0);
            assert_int_equal(run.state, LEDGER_DONE);
            assert_true(ledger_pop(&ledger, &run, &healed));
            assert_false(healed);
            assert_int_equal(run.transfer, LEDGER_NO_TRANSFER);
            assert_int_equal(ledger_free(&ledger), 16);
            assert_int_equal(ledger.orphans, 0);
        }
    }
}

static void test_S7_one_signalled_run_closes_all_orphans_before_it(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    begin(&ledger, 32, 1);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t seq = ledger_take(&ledger, i, 4, 0, 0);
        ledger_trim(&ledger, seq, 3, 0, 0);
    }
    assert_int_equal(ledger.orphans, 5);
    uint64_t closer = ledger_take(&ledger, 9, 1, 0, 0);
    ledger_cover(&ledger);
    uint64_t late = ledger_take(&ledger, 10, 4, 0, 0);
    ledger_trim(&ledger, late, 2, 0, 0); /* behind it: stays open */
    assert_true(ledger.open);
    assert_true(ledger_complete(&ledger, closer, true));
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(ledger_pop(&ledger, &run, &healed));
        assert_true(healed);
        assert_int_equal(run.transfer, i);
    }
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(run.transfer, 9);
    assert_false(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(ledger.orphans, 1);
    assert_int_equal(ledger.used, 2);
    assert_sound(&ledger);
}

static void test_S7_unordered_completion_speaks_for_itself_only(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    begin(&ledger, 8, 1);
    uint64_t a = ledger_take(&ledger, 1, 2, 0, 0);
    uint64_t b = ledger_take(&ledger, 2, 2, 0, 0);
    assert_true(ledger_complete(&ledger, b, false));
    assert_false(ledger_complete(&ledger, b, false));
    assert_false(ledger_pop(&ledger, &run, &healed)); /* a is older and not done */
    assert_true(ledger_complete(&ledger, a, false));
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(run.transfer, 1);
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(run.transfer, 2);
    assert_int_equal(ledger_free(&ledger), 8);
}

/* On a device that isolates failures: one run is lost, once, and the others go on. */
static void test_S9_one_run_fails(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    begin(&ledger, 8, 1);
    uint64_t a = ledger_take(&ledger, 1, 2, 0, 64);
    uint64_t b = ledger_take(&ledger, 2, 2, 0, 64);
    assert_false(ledger_fail(&ledger, a - 1));
    assert_false(ledger_fail(&ledger, b + 1));
    assert_true(ledger_fail(&ledger, b));
    assert_false(ledger_fail(&ledger, b));
    assert_false(ledger_complete(&ledger, b, false));
    assert_false(ledger_pop(&ledger, &run, &healed)); /* a is older and not done */
    assert_true(ledger_complete(&ledger, a, false));
    assert_false(ledger_fail(&ledger, a));
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(run.state, LEDGER_DONE);
    assert_true(ledger_pop(&ledger, &run, &healed));
    assert_int_equal(run.state, LEDGER_FLUSHED);
    assert_int_equal(run.transfer, 2);
    assert_int_equal(ledger_free(&ledger), 8);
    assert_sound(&ledger);
}

static void test_S1_flush_ends_what_is_outstanding(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;
    static const uint32_t expect[] = {LEDGER_DONE, LEDGER_FLUSHED, LEDGER_FLUSHED};

    (void)state;
    begin(&ledger, 16, 77);
    uint64_t done = ledger_take(&ledger, 0, 2, 0, 0);
    uint64_t orphan = ledger_take(&ledger, 1, 4, 0, 0);
    ledger_trim(&ledger, orphan, 1, 0, 0);
    ledger_take(&ledger, 2, 3, 0, 0);
    assert_true(ledger_complete(&ledger, done, true));
    ledger_flush(&ledger);
    assert_int_equal(ledger.orphans, 0);
    assert_false(ledger.open);
    assert_sound(&ledger);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(ledger_pop(&ledger, &run, &healed));
        assert_int_equal(run.transfer, i);
        assert_int_equal(run.state, expect[i]);
        assert_false(healed);
    }
    assert_false(ledger_complete(&ledger, orphan, true));
    assert_int_equal(ledger_free(&ledger), 16);
    ledger_flush(&ledger); /* of nothing */
    assert_int_equal(ledger_free(&ledger), 16);
}

/* ---- against a model ---- */

struct model_run {
    uint32_t owner, count, sends;
    uint64_t bytes;
    enum { M_POSTED, M_ORPHAN, M_DONE, M_HEALED, M_FLUSHED, M_POPPED } state;
};
struct model {
    struct model_run runs[RUNS_MAX];
    uint64_t first;
    uint32_t count;
    uint32_t oldest;
    uint32_t covered; /* runs before this one are signalled, or have one behind that is */
    uint32_t depth;
};

static struct model model;

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

static uint32_t model_used(void) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < model.count; i++)
        used += model.runs[i].state != M_POPPED ? model.runs[i].count : 0;
    return used;
}

static uint64_t model_bytes(void) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model.count; i++)
        bytes += model.runs[i].state != M_POPPED ? model.runs[i].bytes : 0;
    return bytes;
}

static bool model_complete(uint64_t seq, bool ordered) {
    if (seq < model.first || seq - model.first >= model.count ||
        model.runs[seq - model.first].state != M_POSTED)
        return false;
    uint32_t at = (uint32_t)(seq - model.first);
    for (uint32_t i = ordered ? 0 : at; i <= at; i++) {
        if (model.runs[i].state == M_POSTED)
            model.runs[i].state = M_DONE;
        else if (model.runs[i].state == M_ORPHAN)
            model.runs[i].state = M_HEALED;
    }
    return true;
}

/* A post that was complete at once, and what it says of those before it. */
static void pass_one(struct ledger *ledger) {
    if (ledger_free(ledger) == 0)
        return;
    uint64_t seq = ledger_take(ledger, 1, 1 + draw(ledger_free(ledger)), 0, draw(1 << 20));
    bool passed = ledger_pass(ledger, seq);
    uint32_t from = model.covered > model.oldest ? model.covered : model.oldest;
    assert_int_equal(passed, from < model.count);
    for (uint32_t i = from; i < model.count; i++) {
        if (model.runs[i].state == M_POSTED)
            model.runs[i].state = M_DONE;
        else if (model.runs[i].state == M_ORPHAN)
            model.runs[i].state = M_HEALED;
    }
    model.covered = model.count;
    ledger_trim(ledger, seq, 0, 0, 0);
    assert_false(ledger_due(ledger));
    assert_false(ledger->open);
}

static void pop_all(struct ledger *ledger) {
    struct ledger_run run;
    bool healed;

    while (ledger_pop(ledger, &run, &healed)) {
        assert_true(model.oldest < model.count);
        struct model_run *expected = &model.runs[model.oldest++];
        assert_int_equal(run.transfer, expected->owner);
        assert_int_equal(run.count, expected->count);
        assert_int_equal(run.sends, expected->sends);
        assert_int_equal(run.bytes, expected->bytes);
        assert_int_equal(healed, expected->state == M_HEALED);
        assert_true(expected->state == M_DONE || expected->state == M_HEALED ||
                    expected->state == M_FLUSHED);
        assert_int_equal(run.state, expected->state == M_FLUSHED ? LEDGER_FLUSHED : LEDGER_DONE);
        expected->state = M_POPPED;
    }
    if (model.oldest < model.count)
        assert_true(model.runs[model.oldest].state == M_POSTED ||
                    model.runs[model.oldest].state == M_ORPHAN);
}

static void post_one(struct ledger *ledger) {
    if (ledger_free(ledger) == 0 || model.count == RUNS_MAX)
        return;
    uint32_t count = 1 + draw(ledger_free(ledger));
    uint32_t sends = draw(2);
    uint32_t owner = draw(100);
    uint64_t bytes = (uint64_t)draw(1 << 20) << draw(40);
    uint64_t seq = ledger_take(ledger, owner, count, sends, bytes);
    assert_int_equal(seq, model.first + model.count);
    if (draw(3) != 0) {
        ledger_cover(ledger);
        model.runs[model.count++] = (struct model_run){owner, count, sends, bytes, M_POSTED};
        model.covered = model.count;
        return;
    }
    uint32_t accepted = draw(count);
    bytes = accepted > 0 ? bytes / (1 + draw(4)) : 0;
    ledger_trim(ledger, seq, accepted, 0, bytes);
    if (accepted > 0)
        model.runs[model.count++] = (struct model_run){owner, accepted, 0, bytes, M_ORPHAN};
}

static void one_schedule(uint64_t seed, uint32_t depth, bool ordered) {
    struct ledger ledger;

    random_state = seed * 2654435761u + 88172645463325252u;
    memset(&model, 0, sizeof(model));
    model.depth = depth;
    model.first = seed * 1000003;
    begin(&ledger, depth, model.first);
    for (uint32_t turn = 0; turn < 1500; turn++) {
        switch (draw(8)) {
        case 0:
        case 1:
        case 2:
            post_one(&ledger);
            break;
        case 3:
            if (ordered)
                pass_one(&ledger);
            break;
        case 7:
            if (draw(40) == 0) { /* the QP dies */
                ledger_flush(&ledger);
                model.covered = model.count;
                for (uint32_t i = 0; i < model.count; i++) {
                    if (model.runs[i].state == M_POSTED || model.runs[i].state == M_ORPHAN)
                        model.runs[i].state = M_FLUSHED;
                }
            }
            break;
        default: { /* of anything: early, stale, orphaned, repeated too */
            uint64_t seq = model.first + draw(model.count + 3) - 1;
            if (draw(2) == 0 && model.oldest < model.count)
                seq = model.first + model.oldest + draw(model.count - model.oldest);
            assert_int_equal(ledger_complete(&ledger, seq, ordered), model_complete(seq, ordered));
        }
        }
        if (draw(2) == 0)
            pop_all(&ledger);
        assert_sound(&ledger);
        assert_int_equal(ledger.used, model_used());
        assert_int_equal(ledger_inflight(&ledger), model_bytes());
    }
    ledger_flush(&ledger);
    for (uint32_t i = 0; i < model.count; i++) {
        if (model.runs[i].state == M_POSTED || model.runs[i].state == M_ORPHAN)
            model.runs[i].state = M_FLUSHED;
    }
    pop_all(&ledger);
    assert_int_equal(ledger_free(&ledger), depth); /* S1 */
    assert_int_equal(model.oldest, model.count);
}

/* ---- the quiet tail ---- */

/* Takes a run as the engine does. True: it was left unsignalled. */
static bool post_like_the_engine(struct ledger *ledger, uint32_t count, uint64_t *seq_out) {
    bool quiet = ledger_may_be_quiet(ledger, count);
    *seq_out = ledger_take(ledger, 1, count, 0, 0);
    if (quiet)
        ledger_leave_quiet(ledger, count);
    else
        ledger_cover(ledger);
    assert_sound(ledger);
    return quiet;
}

static uint32_t pop_count(struct ledger *ledger) {
    struct ledger_run run;
    bool healed;
    uint32_t count = 0;

    while (ledger_pop(ledger, &run, &healed))
        count++;
    return count;
}

static void test_S3_a_run_on_an_idle_queue_is_signalled(void **state) {
    struct ledger ledger;
    uint64_t seq;

    (void)state;
    for (uint32_t depth = 1; depth <= 64; depth++) {
        begin(&ledger, depth, 1);
        for (uint32_t lap = 0; lap < 100; lap++) {
            assert_false(post_like_the_engine(&ledger, 1 + lap % depth, &seq));
            assert_true(ledger_complete(&ledger, seq, true));
            assert_int_equal(pop_count(&ledger), 1);
            assert_false(ledger_due(&ledger));
        }
    }
}

static void test_S3_the_quiet_tail_is_bounded_and_can_be_closed(void **state) {
    struct ledger ledger;
    uint64_t seq, last = 0;

    (void)state;
    for (uint32_t depth = 1; depth <= 64; depth++) {
        for (uint32_t posts = 1; posts <= depth; posts++) {
            uint32_t quiet = 0;
            begin(&ledger, depth, 1);
            for (uint32_t i = 0; i < posts; i++) {
                if (post_like_the_engine(&ledger, 1, &seq)) {
                    quiet++;
                } else {
                    last = seq;
                    quiet = 0;
                }
                assert_true(quiet * LEDGER_QUIET_PART <= depth);
                assert_false(ledger_due(&ledger)); /* something signalled is outstanding */
            }
            /* All that is signalled completes, and nothing more is posted. */
            assert_true(ledger_complete(&ledger, last, true));
            assert_int_equal(pop_count(&ledger), posts - quiet);
            assert_int_equal(ledger_due(&ledger), quiet > 0);
            assert_int_equal(ledger.used, quiet);
            if (quiet == 0)
                continue;
            assert_true(ledger_free(&ledger) > 0);
            assert_false(ledger_may_be_quiet(&ledger, 1)); /* the next post closes it */
            seq = ledger_take(&ledger, LEDGER_NO_TRANSFER, 1, 0, 0);
            ledger_cover(&ledger);
            assert_false(ledger_due(&ledger));
            assert_true(ledger_complete(&ledger, seq, true));
            assert_int_equal(pop_count(&ledger), quiet + 1);
            assert_int_equal(ledger_free(&ledger), depth);
        }
    }
}

/* A limit of the application's goes below the quarter, never above it. */
static void test_S3_the_quiet_tail_has_the_limit_that_was_set(void **state) {
    struct ledger ledger;
    uint64_t seq;

    (void)state;
    for (uint32_t depth = 1; depth <= 64; depth++) {
        for (uint32_t limit = 0; limit <= 20; limit++) {
            uint32_t most = 0;
            begin(&ledger, depth, 1);
            ledger_limit_quiet(&ledger, limit);
            ledger_limit_quiet(&ledger, UINT32_MAX);
            for (uint32_t i = 0; i < depth; i++) {
                post_like_the_engine(&ledger, 1, &seq);
                most = ledger.quiet > most ? ledger.quiet : most;
            }
            assert_true(most <= limit && most <= depth / LEDGER_QUIET_PART);
            if (limit * 2 * LEDGER_QUIET_PART <= depth)
                assert_int_equal(most, limit);
        }
    }
}

static void test_S6_an_orphan_is_closed_before_anything_is_left_quiet(void **state) {
    struct ledger ledger;
    uint64_t seq;

    (void)state;
    begin(&ledger, 64, 1);
    for (uint32_t i = 0; i < 40; i++)
        post_like_the_engine(&ledger, 1, &seq);
    seq = ledger_take(&ledger, 1, 4, 0, 0);
    ledger_trim(&ledger, seq, 2, 0, 0);
    assert_sound(&ledger);
    assert_false(ledger_may_be_quiet(&ledger, 1));
    ledger_flush(&ledger);
    assert_int_equal(pop_count(&ledger), 41);
    assert_false(ledger_due(&ledger));
    assert_sound(&ledger);
}

static void test_S3_what_a_finished_post_passes_is_done(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    uint64_t seq, last = 0;
    bool healed;

    (void)state;
    begin(&ledger, 64, 1);
    for (uint32_t i = 0; i < 9; i++) {
        if (!post_like_the_engine(&ledger, 1, &seq))
            last = seq;
    }
    assert_true(ledger.quiet > 0);
    seq = ledger_take(&ledger, 1, 4, 0, 0); /* an orphan behind the quiet tail */
    ledger_trim(&ledger, seq, 2, 0, 0);
    seq = ledger_take(&ledger, LEDGER_NO_TRANSFER, 1, 0, 0);
    assert_true(ledger_pass(&ledger, seq));
    ledger_trim(&ledger, seq, 0, 0, 0);
    assert_sound(&ledger);
    assert_int_equal(ledger.orphans, 0);
    /* Signalled ones wait for their completions. */
    assert_false(ledger_pop(&ledger, &run, &healed));
    assert_true(ledger_complete(&ledger, last, true));
    assert_int_equal(pop_count(&ledger), 10);
    assert_int_equal(ledger_free(&ledger), 64);
    seq = ledger_take(&ledger, LEDGER_NO_TRANSFER, 1, 0, 0);
    assert_false(ledger_pass(&ledger, seq)); /* nothing is left to pass */
    ledger_trim(&ledger, seq, 0, 0, 0);
    assert_sound(&ledger);
}

static void test_S1_random_schedules_agree_with_a_model(void **state) {
    static const uint32_t depths[] = {1, 2, 3, 7, 8, 31, 64};

    (void)state;
    for (uint64_t seed = 1; seed <= 15; seed++) {
        for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
            one_schedule(seed, depths[d], true);
            one_schedule(seed, depths[d], false);
        }
    }
}

static void test_S2_ten_thousand_laps_of_every_depth(void **state) {
    struct ledger ledger;
    struct ledger_run run;
    bool healed;

    (void)state;
    for (uint32_t depth = 1; depth <= 9; depth++) {
        begin(&ledger, depth, UINT64_C(1) << 43);
        uint64_t popped = 0;
        for (uint32_t lap = 0; lap < 10000; lap++) {
            uint32_t count = 1 + lap % depth;
            uint64_t seq = ledger_take(&ledger, lap, count, 0, 0);
            assert_true(ledger_complete(&ledger, seq, true));
            while (ledger_pop(&ledger, &run, &healed))
                popped++;
            assert_int_equal(ledger_free(&ledger), depth);
        }
        assert_int_equal(popped, 10000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S1_ring_holds_a_run_a_slot),
        cmocka_unit_test(test_S1_taken_slots_come_back_once),
        cmocka_unit_test(test_S14_stale_and_repeated_completions_change_nothing),
        cmocka_unit_test(test_S6_partial_post_every_index),
        cmocka_unit_test(test_S7_one_signalled_run_closes_all_orphans_before_it),
        cmocka_unit_test(test_S7_unordered_completion_speaks_for_itself_only),
        cmocka_unit_test(test_S9_one_run_fails),
        cmocka_unit_test(test_S1_flush_ends_what_is_outstanding),
        cmocka_unit_test(test_S3_a_run_on_an_idle_queue_is_signalled),
        cmocka_unit_test(test_S3_the_quiet_tail_is_bounded_and_can_be_closed),
        cmocka_unit_test(test_S3_the_quiet_tail_has_the_limit_that_was_set),
        cmocka_unit_test(test_S6_an_orphan_is_closed_before_anything_is_left_quiet),
        cmocka_unit_test(test_S3_what_a_finished_post_passes_is_done),
        cmocka_unit_test(test_S1_random_schedules_agree_with_a_model),
        cmocka_unit_test(test_S2_ten_thousand_laps_of_every_depth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
