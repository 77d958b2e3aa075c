/* SPDX-License-Identifier: Apache-2.0 */
/* test_sendqueue_batches.c: batches of 1 to 100,000 segments against send queues of 1 to 1,024
 * slots through weir.h, on any device (S1, S2): in `make check` on shm, in the VM on rxe.
 *
 * A depth of 2 is asked for the least queue: one slot is kept for the teardown. Plain
 * batches on shm, which are done in the submit, are in test_engine_data.c as well; here they
 * go with records, notifications, as completions and from memory of the application's, too.
 * On a device that is emulated the larger batches take fewer ways, and the largest one does
 * not meet the least queues, unless LONG is set.
 */
#include "sendqueue_sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 100000, UNIT = 8 };

static const size_t counts[] = {1, 2, 3, 7, 10, 100, 1000, 10000, BATCH_MAX};
static const uint32_t depths[] = {2, 3, 7, 8, 64, 1024};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static weir_segment batch[BATCH_MAX];
static struct side a, b;

/* Segment i is between place i here and place (i * 11 + 3) mod count there: one to one. */
static size_t place(size_t i, size_t count) {
    return (i * 11 + 3) % count;
}

static void assert_moved(size_t count, bool read) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *here = a.bytes + i * UNIT;
        const uint8_t *there = b.bytes + place(i, count) * UNIT;
        uint64_t at = (read ? place(i, count) : i) * UNIT;
        for (uint64_t k = 0; k < UNIT; k++) {
            if (here[k] != there[k] || here[k] != pattern(count + read, at + k))
                fail_msg("segment %zu of %zu", i, count);
        }
    }
}

/* Sleeps when there is nothing to do: a driver may need this very processor. */
static void patient_step(void) {
    int done = weir_engine_progress(a.engine) + weir_engine_progress(b.engine);

    if (done == 0)
        weir_engine_wait(a.engine, sides_on_shm() ? 20 * 1000 : MS);
}

#define PATIENTLY(condition)                                                                       \
    do {                                                                                           \
        uint64_t patiently_end = now_ns() + sides_patience_ns();                                   \
        while (!(condition)) {                                                                     \
            if (now_ns() > patiently_end)                                                          \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);                      \
            patient_step();                                                                        \
        }                                                                                          \
    } while (0)

static void move(size_t count, bool read, uint32_t flags) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};
    weir_notification got;

    options.flags = flags;
    options.notify_tag = count;
    fill_pattern((read ? b : a).bytes, count * UNIT, count + read);
    memset((read ? a : b).bytes, 0, count * UNIT);
    int rc = (read ? weir_read : weir_write)(a.engine, a.peer, batch, count,
                                             flags != 0 ? &options : NULL, &transfer);
    assert_int_equal(rc, WEIR_OK);
    if ((flags & WEIR_TRANSFER_QUEUE) != 0) {
        weir_completion done;
        PATIENTLY(weir_completion_take(a.engine, &done) == WEIR_OK);
        assert_int_equal(done.status, WEIR_OK);
    } else {
        PATIENTLY(weir_transfer_status(a.engine, transfer) != WEIR_EINPROGRESS);
        assert_int_equal(weir_transfer_status(a.engine, transfer), WEIR_OK);
        assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
    }
    assert_moved(count, read);
    if ((flags & WEIR_TRANSFER_NOTIFY) != 0) {
        PATIENTLY(weir_notification_take(b.engine, &got) == WEIR_OK);
        assert_int_equal(got.tag, count);
    }
}

static void open_pair(uint32_t depth, bool registered) {
    static uint8_t ours[2][BATCH_MAX * UNIT];
    weir_engine_options options = sides_options();
    struct side *const sides[] = {&a, &b};

    options.sq_depth = depth;
    options.segments_max = BATCH_MAX;
    sides_near();
    side_open_bytes(&a, &options, (uint64_t)BATCH_MAX * UNIT);
    sides_far();
    side_open_bytes(&b, &options, (uint64_t)BATCH_MAX * UNIT);
    for (int i = 0; registered && i < 2; i++) {
        assert_int_equal(weir_memory_release(sides[i]->engine, sides[i]->memory), WEIR_OK);
        assert_int_equal(weir_memory_register(sides[i]->engine, ours[i], sizeof(ours[i]),
                                              WEIR_ACCESS_ALL, &sides[i]->memory),
                         WEIR_OK);
        sides[i]->bytes = ours[i];
    }
    side_join(&a, &b);
    side_join(&b, &a);
    assert_int_equal(weir_peer_connect(a.engine, a.peer), WEIR_ENOTREADY);
    PATIENTLY(is_connected(&a));
}

/* Which of the ways, of writes and reads in turn, a batch goes. */
static bool goes(size_t count, uint32_t depth, uint32_t way) {
    if (count < 1000)
        return true;
    if (sides_long())
        return count < 10000 || way == 2 || way == 5;
    if (count == BATCH_MAX && depth < 7) /* a WR or two at a time, and a wait after each */
        return false;
    if (way == 0)
        return true;
    return way == 5 && (count == 1000 || depth == 8 || depth == 64);
}

static void test_S2_batches(void **state) {
    static const uint32_t ways[] = {0, WEIR_TRANSFER_ONCE, WEIR_TRANSFER_NOTIFY,
                                    WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE};
    uint32_t depth = *(const uint32_t *)*state;
    uint64_t moved = 0, begin = now_ns();

    for (int registered = 0; registered < 2; registered++) {
        if (registered && !sides_on_shm()) /* all memory is alike to other devices */
            break;
        open_pair(depth, registered == 1);
        moved = 0;
        for (size_t c = 0; c < LENGTH(counts); c++) {
            size_t count = counts[c];
            for (size_t i = 0; i < count; i++)
                batch[i] = segment_of(&a, i * UNIT, place(i, count) * UNIT, UNIT);
            for (uint32_t way = 0; way < 2 * LENGTH(ways); way++) {
                if (!goes(count, depth, way))
                    continue;
                move(count, way % 2 == 1, ways[way / 2]);
                moved++;
            }
        }
        PATIENTLY(info_of(&a).sq_used == 0); /* S1 */
        weir_peer_info info = info_of(&a);
        assert_int_equal(info.pending, 0);
        assert_true(info.sq_high_water <= info.sq_depth);
        assert_int_equal(info.sessions, 1);
        assert_int_equal(stats_of(&a).transfers_ok, moved);
        assert_int_equal(stats_of(&a).transfers_failed, 0);
        printf("# depth %u, granted %u: %u batches, at most %u slots taken, %.1f s\n", depth,
               info.sq_depth, (unsigned)moved, info.sq_high_water,
               (double)(now_ns() - begin) / SECOND);
        pair_close(&a, &b);
    }
}

int main(void) {
#define DEPTH(index, name)                                                                         \
    {                                                                                              \
        "test_S2_batches_at_depth_" name, test_S2_batches, NULL, NULL,                             \
            (void *)(uintptr_t)&depths[index]                                                      \
    }
    const struct CMUnitTest tests[] = {
        DEPTH(0, "2"), DEPTH(1, "3"),  DEPTH(2, "7"),
        DEPTH(3, "8"), DEPTH(4, "64"), DEPTH(5, "1024"),
    };
    int missing = sides_missing();

    setvbuf(stdout, NULL, _IOLBF, 0);
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
