/* SPDX-License-Identifier: Apache-2.0 */
/* test_tool_units.c: the tool's pure parts: histogram, content, trace generator, paces, lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "content.h"
#include "fold.h"
#include "histogram.h"
#include "host.h"
#include "pace.h"
#include "trace.h"

/* Every value reads back at most 1/32 above what it was, never below, over all magnitudes. */
static void test_B4_histogram_error_bound(void **state) {
    struct histogram *h = malloc(sizeof(*h));

    (void)state;
    assert_non_null(h);
    for (unsigned shift = 0; shift < 64; shift++) {
        for (uint64_t low = 0; low < 97; low += 3) {
            uint64_t value = (UINT64_C(1) << shift) + (shift > 7 ? low << (shift - 7) : 0), back;
            memset(h, 0, sizeof(*h));
            histogram_add(h, value);
            histogram_add(h, UINT64_MAX); /* or the maximum would cap the answer */
            back = histogram_quantile(h, 5000);
            assert_true(back >= value);
            assert_true(back - value <= value / 32);
        }
    }
    free(h);
}

static void test_B4_histogram_quantiles(void **state) {
    struct histogram *h = calloc(2, sizeof(*h));

    (void)state;
    assert_non_null(h);
    assert_int_equal(histogram_quantile(h, 5000), 0);
    for (uint64_t i = 1; i <= 50; i++)
        histogram_add(&h[i % 2], i); /* exact below 64 */
    histogram_merge(&h[0], &h[1]);
    assert_int_equal(h[0].count, 50);
    assert_int_equal(histogram_quantile(h, 0), 1);
    assert_int_equal(histogram_quantile(h, 5000), 25);
    assert_int_equal(histogram_quantile(h, 9900), 50);
    assert_int_equal(histogram_quantile(h, 10000), 50);
    histogram_add(h, 1000003);
    assert_int_equal(histogram_quantile(h, 10000), 1000003);
    free(h);
}

/* Any single wrong byte is found, at any length, and counted as one. */
static void test_content_every_byte_counts(void **state) {
    unsigned char block[1100];

    (void)state;
    for (uint64_t length = 1; length <= 1100; length += length < 20 ? 1 : 77) {
        content_fill(block, length, content_key(1, 2));
        assert_int_equal(content_wrong(block, length, content_key(1, 2)), 0);
        for (uint64_t at = 0; at < length; at++) {
            block[at] ^= 0x10;
            assert_int_equal(content_wrong(block, length, content_key(1, 2)), 1);
            block[at] ^= 0x10;
        }
    }
}

/* Words of other blocks, and of other places in the same block, are wrong. */
static void test_content_misplaced_words_differ(void **state) {
    unsigned char a[4096], b[4096];

    (void)state;
    content_fill(a, sizeof(a), content_key(7, 1));
    content_fill(b, sizeof(b), content_key(7, 2));
    for (unsigned at = 0; at < sizeof(a); at += 8) {
        assert_memory_not_equal(a + at, b + at, 8);
        if (at > 0)
            assert_memory_not_equal(a, a + at, 8);
    }
}

static void test_trace_same_seed_same_trace(void **state) {
    struct trace a, b, c;

    (void)state;
    assert_int_equal(trace_generate(400, 5, &a), 0);
    assert_int_equal(trace_generate(400, 5, &b), 0);
    assert_int_equal(trace_generate(400, 6, &c), 0);
    assert_int_equal(a.request_count, 400);
    assert_int_equal(a.id_count, b.id_count);
    assert_memory_equal(a.requests, b.requests, 400 * sizeof(*a.requests));
    assert_memory_equal(a.ids, b.ids, a.id_count * sizeof(*a.ids));
    assert_memory_not_equal(a.requests, c.requests, 400 * sizeof(*a.requests));
    for (uint64_t i = 0; i < a.request_count; i++) {
        const struct trace_request *r = &a.requests[i];
        assert_int_equal(r->block_count,
                         (r->input_length + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS);
        assert_int_equal(a.ids[r->first_id], 0);
    }
    trace_free(&a);
    trace_free(&b);
    trace_free(&c);
}

/* Of a period that is no whole number of ns: the millionth operation is due when it should be. */
static void test_B2_due_times_do_not_drift(void **state) {
    struct pace pace = pace_plan(8, 3e9, 1);

    (void)state;
    assert_int_equal(pace.count, 375000000);
    for (uint64_t k = 0; k <= pace.count; k += 75000000)
        assert_int_equal(pace_due(&pace, k), k * 8 / 3);
    assert_int_equal(pace_length(&pace), NS_PER_S);
    for (uint64_t k = 1; k < 1000; k++)
        assert_in_range(pace_due(&pace, k) - pace_due(&pace, k - 1), 2, 3);
}

static void test_B2_a_slow_load_has_some_operations(void **state) {
    struct pace pace = pace_plan(1 << 20, 1 << 20, 0.5);

    (void)state;
    assert_int_equal(pace.count, PACE_LEAST);
    assert_int_equal(pace_length(&pace), PACE_LEAST * NS_PER_S);
}

static void test_B2_loads_are_shares_or_rates(void **state) {
    struct pace_target targets[PACE_TARGETS_MAX];
    unsigned count = 0;
    const char *bad;
    int length;

    (void)state;
    assert_null(pace_parse("1,2.5%,100,10G,1.5K,3M,1T", targets, &count, &bad, &length));
    assert_int_equal(count, 7);
    assert_true(targets[0].percent == 1 && targets[0].bytes_per_s == 0);
    assert_true(targets[1].percent == 2.5 && targets[2].percent == 100);
    assert_true(targets[3].percent == 0 && targets[3].bytes_per_s == 1e10);
    assert_true(targets[4].bytes_per_s == 1500 && targets[5].bytes_per_s == 3e6);
    assert_true(targets[6].bytes_per_s == 1e12);
    assert_null(pace_parse(PACE_LIST, targets, &count, &bad, &length));
    assert_int_equal(count, 7);
}

static void test_B2_wrong_loads_are_pointed_at(void **state) {
    static const char *const wrong[] = {"",   "0",   "101",   "-1",  "x",      "1x",  "1G%",
                                        "%",  "G",   ".",     "1e1", "0K",     "0x1", "1 ",
                                        " 1", "nan", "1.2.3", "1GB", "0.0001K"};
    struct pace_target targets[PACE_TARGETS_MAX];
    char list[2 * PACE_TARGETS_MAX + 2] = "";
    unsigned count = 99;
    const char *bad;
    int length;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[32];
        snprintf(text, sizeof(text), "50,%s,20", wrong[i]);
        assert_non_null(pace_parse(text, targets, &count, &bad, &length));
        assert_ptr_equal(bad, text + 3);
        assert_int_equal(length, strlen(wrong[i]));
    }
    for (unsigned i = 0; i <= PACE_TARGETS_MAX; i++)
        strcat(list, i == 0 ? "1" : ",1");
    assert_non_null(pace_parse(list, targets, &count, &bad, &length));
    assert_ptr_equal(bad, list + 2 * PACE_TARGETS_MAX);
    assert_int_equal(count, 99); /* nothing is said of a wrong list */
}

static void expect_folded(const char *text, const char *expected) {
    char got[1024] = "";
    FILE *out = fmemopen(got, sizeof(got), "w");
    assert_non_null(out);
    fold_print(out, text);
    fclose(out);
    assert_string_equal(got, expected);
}

static void test_lines_fit_a_terminal(void **state) {
#define TEN     "123456789 "
#define SEVENTY TEN TEN TEN TEN TEN TEN TEN
    (void)state;
    expect_folded("", "\n");
    expect_folded("  a line", "  a line\n");
    expect_folded("  " SEVENTY "12345678", "  " SEVENTY "12345678\n"); /* 80 */
    expect_folded("  " SEVENTY "123456789",
                  "  " TEN TEN TEN TEN TEN TEN "123456789\n    123456789\n"); /* 81 */
    expect_folded(
        "  limit: share of vector copy of 4.88 KiB, in turn through 29.62 KiB, all threads",
        "  limit: share of vector copy of 4.88 KiB, in turn through 29.62 KiB, all\n"
        "    threads\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B4_histogram_error_bound),
        cmocka_unit_test(test_B4_histogram_quantiles),
        cmocka_unit_test(test_content_every_byte_counts),
        cmocka_unit_test(test_content_misplaced_words_differ),
        cmocka_unit_test(test_B2_due_times_do_not_drift),
        cmocka_unit_test(test_B2_a_slow_load_has_some_operations),
        cmocka_unit_test(test_B2_loads_are_shares_or_rates),
        cmocka_unit_test(test_B2_wrong_loads_are_pointed_at),
        cmocka_unit_test(test_trace_same_seed_same_trace),
        cmocka_unit_test(test_lines_fit_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
