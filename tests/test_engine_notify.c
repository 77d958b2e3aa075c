/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_notify.c: notifications: every size, their order, that they follow the
 * data, and that an application that takes none pushes back (M2, M3, M5). */
#include "engine_side.h"

#include <string.h>

static weir_transfer_options note(uint64_t tag, const void *payload, uint32_t length) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag;
    options.notify_payload = payload;
    options.notify_length = length;
    return options;
}

static weir_notification take(struct side *b, struct side *a) {
    weir_notification got;

    STEP_UNTIL(a, b, weir_notification_take(b->engine, &got) == WEIR_OK);
    return got;
}

static void test_M2_every_payload_size(void **state) {
    uint8_t payload[WEIR_NOTIFY_MAX];
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    for (uint32_t length = 0; length <= WEIR_NOTIFY_MAX; length++) {
        weir_segment one = segment_of(&a, 0, 0, 32);
        weir_transfer_options options = note(UINT64_MAX - length, payload, length);
        weir_notification got;

        fill_pattern(payload, length, length);
        fill_pattern(a.bytes, 32, length);
        size_t count = length % 2; /* with data and without */
        assert_int_equal(write_now(&a, &b, &one, count, &options), WEIR_OK);
        memset(&got, 0x77, sizeof(got));
        STEP_UNTIL(&a, &b, weir_notification_take(b.engine, &got) == WEIR_OK);
        assert_int_equal(got.tag, UINT64_MAX - length);
        assert_int_equal(got.length, length);
        assert_memory_equal(got.payload, payload, length);
        for (uint32_t i = length; i < WEIR_NOTIFY_MAX; i++)
            assert_int_equal(got.payload[i], 0x77);
        assert_int_equal(got.from.id, b.peer.id);
        if (count > 0)
            assert_memory_equal(b.bytes, a.bytes, 32);
    }
    pair_close(&a, &b);
}

static void test_M2_after_a_read(void **state) {
    struct side a, b;

    (void)state;
    pair_open(&a, &b, NULL);
    fill_pattern(b.bytes, 1000, 8);
    weir_segment one = segment_of(&a, 0, 0, 1000);
    weir_transfer_options options = note(5, "read", 4);
    assert_int_equal(read_now(&a, &b, &one, 1, &options), WEIR_OK);
    assert_memory_equal(a.bytes, b.bytes, 1000);
    assert_int_equal(take(&b, &a).tag, 5);
    pair_close(&a, &b);
}

/* The target looks only at what it was told of, with the data spread over QPs. */
static void test_M2_data_is_there_before_its_notification(void **state) {
    (void)state;
    for (uint32_t qps = 1; qps <= WEIR_QPS_MAX; qps *= 4) {
        enum { SEGMENTS = 500, BYTES = 16, ROUNDS = 60 };
        weir_engine_options limits = side_options();
        static weir_segment many[SEGMENTS];
        weir_transfer transfer;
        struct side a, b;

        limits.qp_count = qps;
        limits.sq_depth = 8;
        pair_open(&a, &b, &limits);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            weir_transfer_options options = note(round, NULL, 0);
            if (round % 2 == 0)
                options.flags |= WEIR_TRANSFER_ONCE;
            fill_pattern(a.bytes, SEGMENTS * BYTES, round);
            for (uint64_t i = 0; i < SEGMENTS; i++)
                many[i] = segment_of(&a, i * BYTES, i * BYTES, BYTES);
            assert_int_equal(weir_write(a.engine, a.peer, many, SEGMENTS, &options, &transfer),
                             WEIR_OK);
            assert_int_equal(take(&b, &a).tag, round);
            assert_memory_equal(a.bytes, b.bytes, SEGMENTS * BYTES);
            assert_int_equal(finish(&a, &b, transfer), WEIR_OK);
        }
        assert_int_equal(stats_of(&b).notifications_duplicate, 0);
        pair_close(&a, &b);
    }
}

/* Sends `total` while the target's application takes `at_once` at a time, now and then. */
static void push_back(const weir_engine_options *limits, uint64_t total, uint32_t at_once) {
    weir_transfer transfer;
    weir_notification got;
    uint64_t sent = 0;
    uint64_t taken = 0;
    struct side a, b;

    pair_open(&a, &b, limits);
    uint64_t end = now_ns() + PATIENCE_NS;
    while (taken < total) {
        assert_true(now_ns() < end);
        for (int i = 0; i < 1000 && sent < total; i++) {
            weir_transfer_options options = note(sent, &sent, sizeof(sent));
            int rc = weir_write(a.engine, a.peer, NULL, 0, &options, &transfer);
            if (rc == WEIR_EAGAIN)
                break;
            assert_int_equal(rc, WEIR_OK);
            assert_int_equal(weir_transfer_release(a.engine, transfer), WEIR_OK);
            sent++;
        }
        for (int i = 0; i < 5; i++)
            step(&a, &b);
        for (uint32_t i = 0; i < at_once && weir_notification_take(b.engine, &got) == WEIR_OK;
             i++) {
            assert_int_equal(got.tag, taken); /* one QP: in order */
            assert_int_equal(got.length, sizeof(taken));
            assert_memory_equal(got.payload, &taken, sizeof(taken));
            taken++;
        }
    }
    for (int i = 0; i < 20; i++)
        step(&a, &b);
    assert_int_equal(weir_notification_take(b.engine, &got), WEIR_EAGAIN);
    assert_int_equal(stats_of(&b).notifications_received, total);
    assert_int_equal(stats_of(&b).notifications_duplicate, 0);
    assert_int_equal(stats_of(&a).sessions_up, 1); /* pushed back, not broken */
    assert_int_equal(stats_of(&a).sessions_failed + stats_of(&b).sessions_failed, 0);
    assert_int_equal(stats_of(&b).data_malformed, 0);
    pair_close(&a, &b);
}

static void test_M5_an_application_that_is_slow_pushes_back(void **state) {
    static const uint32_t credits[] = {1, 2, 3, 4, 5, 64};
    static const uint32_t rooms[] = {1, 2, 7, 64};

    (void)state;
    for (size_t c = 0; c < sizeof(credits) / sizeof(credits[0]); c++) {
        for (size_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++) {
            weir_engine_options limits = side_options();
            limits.recv_credits = credits[c];
            limits.notifications_max = rooms[r];
            push_back(&limits, 300, 1 + rooms[r] / 2);
        }
    }
}

static void test_M2_as_many_credits_as_there_can_be(void **state) {
    static const uint32_t credits[] = {509, 510, 511, 512};

    (void)state;
    for (size_t c = 0; c < sizeof(credits) / sizeof(credits[0]); c++) {
        weir_engine_options limits = side_options();
        limits.peers_max = 1;
        limits.recv_credits = credits[c];
        limits.notifications_max = 16384;
        push_back(&limits, 20000, 16384);
    }
}

/* `count` notifications from one to the other, as fast as they go. */
static void send_all(struct side *from, struct side *to, uint32_t count) {
    weir_notification got;
    weir_transfer transfer;
    uint32_t sent = 0, taken = 0;

    while (taken < count) {
        weir_transfer_options options = note(sent, NULL, 0);
        int rc = sent < count ? weir_write(from->engine, from->peer, NULL, 0, &options, &transfer)
                              : WEIR_EAGAIN;
        if (rc == WEIR_OK) {
            assert_int_equal(weir_transfer_release(from->engine, transfer), WEIR_OK);
            sent++;
            continue;
        }
        assert_int_equal(rc, WEIR_EAGAIN);
        STEP_UNTIL(from, to, weir_notification_take(to->engine, &got) == WEIR_OK);
        assert_int_equal(got.tag, taken); /* one QP: in order */
        taken++;
    }
}

/* Each side has its own number of credits, and nothing else goes the other way. */
static void test_M3_unequal_credits_never_deadlock(void **state) {
    static const uint32_t pairs[][2] = {{1, 64}, {2, 64}, {3, 8}, {64, 128}, {64, 512}, {1, 512}};

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        for (int turned = 0; turned < 2; turned++) {
            weir_engine_options one = side_options(), other = side_options();
            struct side a, b;

            one.peers_max = other.peers_max = 2;
            one.recv_credits = pairs[i][turned];
            other.recv_credits = pairs[i][!turned];
            side_open(&a, &one);
            side_open(&b, &other);
            side_join(&a, &b);
            side_join(&b, &a);
            connect_now(&a, &b);
            connect_now(&b, &a);
            send_all(&a, &b, 600);
            send_all(&b, &a, 600);
            assert_int_equal(stats_of(&a).sessions_up, 1);
            pair_close(&a, &b);
        }
    }
}

/* Nobody takes any: the sender waits for credits, says so, and plain data still flows. */
static void test_M5_nobody_takes_any(void **state) {
    weir_engine_options limits = side_options();
    weir_transfer transfers[40];
    uint32_t waiting = 0;
    struct side a, b;

    (void)state;
    limits.recv_credits = 4;
    limits.notifications_max = 2;
    pair_open(&a, &b, &limits);
    for (uint64_t i = 0; i < 40; i++) {
        weir_transfer_options options = note(i, NULL, 0);
        assert_int_equal(weir_write(a.engine, a.peer, NULL, 0, &options, &transfers[i]), WEIR_OK);
    }
    for (int i = 0; i < 200; i++)
        step(&a, &b);
    for (int i = 0; i < 40; i++)
        waiting += weir_transfer_status(a.engine, transfers[i]) == WEIR_EINPROGRESS;
    assert_true(waiting >= 40 - 2 - 4 && waiting <= 40);
    assert_int_equal(weir_transfer_waiting_for(a.engine, transfers[40 - waiting]),
                     WEIR_WAITING_CREDITS);
    assert_true(stats_of(&a).credit_waits > 0);
    weir_segment one = segment_of(&a, 0, 0, 64);
    memset(a.bytes, 3, 64);
    for (int i = 0; i < 50; i++) { /* S4: reads and writes pass those that wait */
        assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
        assert_int_equal(read_now(&a, &b, &one, 1, NULL), WEIR_OK);
    }
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(take(&b, &a).tag, i);
    for (int i = 0; i < 40; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    pair_close(&a, &b);
}

/* Both directions at once, each side slow: credits ride on notifications. */
static void test_M3_both_directions_never_deadlock(void **state) {
    (void)state;
    for (uint32_t credits = 1; credits <= 5; credits++) {
        enum { TOTAL = 500 };
        weir_engine_options limits = side_options();
        uint64_t sent[2] = {0, 0};
        uint64_t taken[2] = {0, 0};
        struct side sides[2];

        limits.recv_credits = credits;
        limits.notifications_max = 2;
        pair_open(&sides[0], &sides[1], &limits);
        uint64_t end = now_ns() + PATIENCE_NS;
        while (taken[0] < TOTAL || taken[1] < TOTAL) {
            assert_true(now_ns() < end);
            for (int s = 0; s < 2; s++) {
                weir_transfer transfer;
                weir_notification got;
                weir_transfer_options options = note(sent[s], NULL, 0);
                for (int i = 0; i < 20 && sent[s] < TOTAL; i++) {
                    options.notify_tag = sent[s];
                    if (weir_write(sides[s].engine, sides[s].peer, NULL, 0, &options, &transfer) !=
                        WEIR_OK)
                        break;
                    weir_transfer_release(sides[s].engine, transfer);
                    sent[s]++;
                }
                step(&sides[0], &sides[1]);
                if (weir_notification_take(sides[s].engine, &got) == WEIR_OK)
                    assert_int_equal(got.tag, taken[s]++);
            }
        }
        assert_int_equal(stats_of(&sides[0]).sessions_failed, 0);
        assert_int_equal(stats_of(&sides[1]).data_malformed, 0);
        pair_close(&sides[0], &sides[1]);
    }
}

/* More numbers than the window has, with the receiver's application asleep. */
static void test_S9_more_than_a_window_of_numbers(void **state) {
    weir_engine_options limits = side_options();

    (void)state;
    limits.transfers_max = 4096;
    limits.recv_credits = 512;
    limits.notifications_max = 8;
    limits.peers_max = 1;
    push_back(&limits, 5000, 3);
}

/* Notifications have no order of their own: notifications of short transfers pass that of a long
 * one. An application that needs an order counts in its tags; each comes once. */
static void test_S4_an_order_of_notifications_is_that_of_their_tags(void **state) {
    enum { SEGMENTS = 256, PIECE = 1 << 16, SHORT = 8 };
    static weir_segment segments[SEGMENTS];
    struct side a, b;
    weir_transfer transfers[SHORT + 1];
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_notification got;
    uint64_t tags[SHORT + 1];
    uint32_t count = 0, seen = 0;
    (void)state;
    side_open_bytes(&a, NULL, (uint64_t)SEGMENTS * PIECE);
    side_open_bytes(&b, NULL, (uint64_t)SEGMENTS * PIECE);
    side_join(&a, &b);
    connect_now(&a, &b);
    for (uint64_t i = 0; i < SEGMENTS; i++)
        segments[i] = segment_of(&a, i * PIECE, i * PIECE, PIECE);
    options.flags = WEIR_TRANSFER_NOTIFY;
    for (uint64_t tag = 0; tag <= SHORT; tag++) {
        options.notify_tag = tag;
        assert_int_equal(weir_write(a.engine, a.peer, segments, tag == 0 ? SEGMENTS : 1, &options,
                                    &transfers[tag]),
                         WEIR_OK);
    }
    for (uint32_t i = 0; i <= SHORT; i++)
        assert_int_equal(finish(&a, &b, transfers[i]), WEIR_OK);
    STEP_UNTIL(&a, &b, stats_of(&b).notifications_received == SHORT + 1);
    while (weir_notification_take(b.engine, &got) == WEIR_OK) {
        assert_true(count <= SHORT && got.tag <= SHORT);
        tags[count++] = got.tag;
        seen |= 1u << got.tag;
    }
    assert_int_equal(count, SHORT + 1);
    assert_int_equal(seen, (1u << (SHORT + 1)) - 1);
    assert_int_not_equal(tags[0], 0); /* it was submitted first */
    pair_close(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M2_every_payload_size),
        cmocka_unit_test(test_M2_after_a_read),
        cmocka_unit_test(test_M2_data_is_there_before_its_notification),
        cmocka_unit_test(test_M5_an_application_that_is_slow_pushes_back),
        cmocka_unit_test(test_M2_as_many_credits_as_there_can_be),
        cmocka_unit_test(test_M5_nobody_takes_any),
        cmocka_unit_test(test_M3_unequal_credits_never_deadlock),
        cmocka_unit_test(test_M3_both_directions_never_deadlock),
        cmocka_unit_test(test_S9_more_than_a_window_of_numbers),
        cmocka_unit_test(test_S4_an_order_of_notifications_is_that_of_their_tags),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
