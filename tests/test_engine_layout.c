/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_layout.c: which threads write which cache lines of an engine (S17). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "state.h"

/* The writers of a member: threads that want the engine, submitters that found it taken, threads
 * that sleep or take what was received, and its owner. */
enum writer { WANTS, SUBMITS, SLEEPS, OWNS };

#define MEMBER(name, who)                                                                          \
    { #name, offsetof(struct weir_engine, name), sizeof(((struct weir_engine *)0)->name), who }

static const struct {
    const char *name;
    size_t offset, bytes;
    enum writer writer;
} members[] = {
    MEMBER(owner, WANTS),
    MEMBER(submitted, WANTS),
    MEMBER(tables_lock, SUBMITS),
    MEMBER(completions_reserved, SUBMITS),
    MEMBER(transfer_pool, SUBMITS),
    MEMBER(block_pool, SUBMITS),
    MEMBER(blocked, SUBMITS),
    MEMBER(crowded_ns, SUBMITS),
    MEMBER(vain_waits, SUBMITS),
    MEMBER(news, SLEEPS),
    MEMBER(room, SLEEPS),
    MEMBER(followers, SLEEPS),
    MEMBER(armed, SLEEPS),
    MEMBER(attention, SLEEPS),
    MEMBER(held_some, SLEEPS),
    MEMBER(events_lost, SLEEPS),
    /* The members that a transfer that ends in its call reads and counts. */
    MEMBER(device_ops, OWNS),
    MEMBER(regions, OWNS),
    MEMBER(peers, OWNS),
    MEMBER(fast_bytes_end, OWNS),
    MEMBER(fast, OWNS),
    MEMBER(stats, OWNS),
    MEMBER(worked, OWNS),
    MEMBER(run_head, OWNS),
    MEMBER(notifications.tail, OWNS),
    MEMBER(completions.tail, OWNS),
    MEMBER(events.tail, OWNS),
};

enum { MEMBERS = sizeof(members) / sizeof(members[0]) };

static void test_S17_writers_share_no_line(void **state) {
    (void)state;
    assert_int_equal(_Alignof(struct weir_engine) % LINE_BYTES, 0);
    for (size_t a = 0; a < MEMBERS; a++) {
        for (size_t b = 0; b < MEMBERS; b++) {
            if (members[a].writer == members[b].writer)
                continue;
            size_t first = members[a].offset / LINE_BYTES;
            size_t last = (members[a].offset + members[a].bytes - 1) / LINE_BYTES;
            size_t other = members[b].offset / LINE_BYTES;
            if (first <= other && other <= last)
                fail_msg("%s and %s share a cache line", members[a].name, members[b].name);
        }
    }
}

/* Takers' words apart from the owner's, in every queue. */
static void test_S17_queues_have_two_sides(void **state) {
    (void)state;
    size_t tail = offsetof(struct queue, tail) / LINE_BYTES;
    assert_true(offsetof(struct queue, entries) / LINE_BYTES < tail);
    assert_true(offsetof(struct queue, head) / LINE_BYTES > tail);
    assert_true(offsetof(struct queue, taking) / LINE_BYTES ==
                offsetof(struct queue, head) / LINE_BYTES);
    assert_int_equal(sizeof(struct queue) % LINE_BYTES, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S17_writers_share_no_line),
        cmocka_unit_test(test_S17_queues_have_two_sides),
    };
    return cmocka_run_group_tests_name("engine layout", tests, NULL, NULL);
}
