/* SPDX-License-Identifier: Apache-2.0 */
/* test_endpoint_devices.c: stories about two endpoints whose devices do not go together: each is
 * told what the other one has, and what both have. See test_endpoint.c for how to read a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "endpoint_pair.h"

enum { A = 0, B = 1 };

#define EXPECT(p, text) assert_string_equal(pair_trace(p), (text))

static struct pair pair;

static void has(struct pair *p, uint32_t node, const char *name, uint8_t fabric, bool untried) {
    struct pair_node *n = &p->nodes[node];
    struct wire_device *device = &n->devices.entries[n->devices.count++];

    snprintf(device->name, sizeof(device->name), "%s", name);
    memset(device->fabric, fabric, sizeof(device->fabric));
    device->untried = untried;
    device->used = n->devices.count == 1;
    if (!device->used)
        return;
    memcpy(n->set.device, device->name, sizeof(n->set.device));
    memcpy(n->set.fabric, device->fabric, sizeof(n->set.fabric));
}

/* A uses shm and has ofi, perhaps; B, elsewhere, uses efa and has tried ofi. */
static struct pair *start(void) {
    struct pair *p = &pair;

    pair_init(p, 1);
    has(p, A, "shm", 1, false);
    has(p, A, "verbs", 0, true);
    has(p, A, "ofi", 0, true);
    has(p, B, "efa", 3, false);
    has(p, B, "ofi", 4, false);
    has(p, B, "shm", 2, false);
    return p;
}

static void assert_mismatch(const struct pair *p, uint32_t node, const char *theirs,
                            const char *both, bool tried_here, bool tried_there) {
    const struct ep_mismatch *mismatch = endpoint_mismatch(&p->nodes[node].ep);

    assert_non_null(mismatch);
    assert_string_equal(mismatch->theirs, theirs);
    assert_string_equal(mismatch->both, both);
    assert_int_equal(mismatch->tried_here, tried_here);
    assert_int_equal(mismatch->tried_there, tried_there);
}

static void test_W9_both_sides_learn_what_the_other_one_has(void **state) {
    struct pair *p = start();

    (void)state;
    assert_null(endpoint_mismatch(&p->nodes[A].ep));
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B>REFUSE(1,final) B.retire(1,1) B.refused(-32) "
              "A.retire(1,0) A.failed(-32)");
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EREFUSED);
    assert_mismatch(p, A, "efa", "ofi", false, true);
    assert_mismatch(p, B, "shm", "ofi", true, false);
}

/* The refusal was lost: the HELLO comes again, and so does the list. */
static void test_W9_a_refusal_that_comes_again_has_the_list_again(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    pair_inject(p, &hello);
    pair_lose(p, B);
    pair_inject(p, &hello);
    pair_flush(p);
    EXPECT(p, "A.create(1) A>HELLO(1) B.create(1) B>REFUSE(1,final) B.retire(1,1) B.refused(-32) "
              "B>REFUSE(1,final) A.retire(1,0) A.failed(-32)");
    assert_mismatch(p, A, "efa", "ofi", false, true);
}

static void test_W9_wishes_that_cross_end_on_both_sides(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_event(p, B, EP_EV_WANT);
    pair_flush(p);
    assert_int_equal(p->nodes[A].fails, 1);
    assert_int_equal(p->nodes[B].fails, 1);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EREFUSED);
    assert_int_equal(endpoint_reason(&p->nodes[B].ep), WEIR_EREFUSED);
    assert_mismatch(p, A, "efa", "ofi", false, true);
    assert_mismatch(p, B, "shm", "ofi", true, false);
}

static void test_W9_one_device_in_two_places_is_a_mismatch(void **state) {
    struct pair *p = &pair;

    (void)state;
    pair_init(p, 1);
    has(p, A, "shm", 1, false);
    has(p, B, "shm", 2, false);
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    assert_mismatch(p, A, "shm", "", false, false);
    assert_mismatch(p, B, "shm", "", false, false);
}

/* Both could use what one of them uses. */
static void test_W9_what_one_uses_may_be_what_both_have(void **state) {
    struct pair *p = &pair;

    (void)state;
    pair_init(p, 1);
    has(p, A, "shm", 1, false);
    has(p, B, "ofi", 4, false);
    has(p, B, "shm", 1, false);
    pair_event(p, B, EP_EV_WANT);
    pair_flush(p);
    assert_mismatch(p, A, "ofi", "shm", true, true);
    assert_mismatch(p, B, "shm", "shm", true, true);
}

/* Not for want of a device: the longest SEND does not fit. */
static void test_W9_two_devices_that_meet_are_no_mismatch(void **state) {
    struct pair *p = &pair;

    (void)state;
    pair_init(p, 1);
    has(p, A, "shm", 1, false);
    has(p, B, "shm", 1, false);
    p->nodes[A].set.recv_bytes_max = 1;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EREFUSED);
    assert_null(endpoint_mismatch(&p->nodes[A].ep));
    assert_null(endpoint_mismatch(&p->nodes[B].ep));
}

static void test_W9_a_mismatch_lasts_until_the_next_wish_or_session(void **state) {
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    pair_flush(p);
    pair_drain(p, A);
    pair_drain(p, B);
    /* B is another engine in all but its name: it has our device now. */
    p->nodes[B].devices.count = 0;
    has(p, B, "shm", 1, false);
    pair_event(p, A, EP_EV_WANT);
    assert_null(endpoint_mismatch(&p->nodes[A].ep));
    assert_mismatch(p, B, "shm", "ofi", true, false);
    pair_flush(p);
    assert_true(pair_matched(p));
    assert_null(endpoint_mismatch(&p->nodes[B].ep));
}

/* A message of B to A, whose HELLO is out. */
static void refuse(struct pair *p, struct wire_message *message) {
    struct pair_message out = {.from = B};

    message->type = WIRE_REFUSE;
    message->echo = 1;
    memcpy(message->from, p->nodes[B].instance, WIRE_INSTANCE_SIZE);
    memcpy(message->to, p->nodes[A].instance, WIRE_INSTANCE_SIZE);
    assert_int_equal(wire_encode(message, out.bytes, sizeof(out.bytes), &out.length), WEIR_OK);
    pair_event(p, A, EP_EV_WANT);
    pair_inject(p, &out);
}

static void test_W9_a_list_without_a_device_in_use_says_nothing(void **state) {
    struct wire_message message = {.reason = WEIR_EREFUSED, .devices = {.count = 1}};
    struct pair *p = start();

    (void)state;
    strcpy(message.devices.entries[0].name, "ofi");
    refuse(p, &message);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EREFUSED);
    assert_null(endpoint_mismatch(&p->nodes[A].ep));
}

static void test_W9_a_list_beside_another_reason_is_no_mismatch(void **state) {
    struct wire_message message = {.reason = WEIR_EDEVICE, .devices = {.count = 1}};
    struct pair *p = start();

    (void)state;
    strcpy(message.devices.entries[0].name, "ofi");
    message.devices.entries[0].used = true;
    refuse(p, &message);
    assert_int_equal(endpoint_reason(&p->nodes[A].ep), WEIR_EDEVICE);
    assert_null(endpoint_mismatch(&p->nodes[A].ep));
}

/* An answer is one of its device. A HELLO tells of all, in the order of the list. */
static void test_H15_HELLO_tells_of_all_devices_and_its_answer_of_one(void **state) {
    struct wire_message m;
    struct pair *p = start();

    (void)state;
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    assert_int_equal(wire_decode(hello.bytes, hello.length, &m), WEIR_OK);
    assert_string_equal(m.qps.device, "shm");
    assert_int_equal(m.devices.count, 2);
    assert_string_equal(m.devices.entries[0].name, "verbs");
    assert_true(m.devices.entries[1].untried);
    p->nodes[B].devices.count = 0;
    has(p, B, "shm", 1, false);
    has(p, B, "ofi", 4, false);
    pair_inject(p, &hello);
    struct pair_message ack = pair_take(p, B);
    assert_int_equal(wire_decode(ack.bytes, ack.length, &m), WEIR_OK);
    assert_int_equal(m.type, WIRE_HELLO_ACK);
    assert_string_equal(m.qps.device, "shm");
    assert_int_equal(m.devices.count, 0);
}

/* The longest lists, in a refusal that says SETTLE besides, have room. */
static void test_H15_the_longest_lists_have_room(void **state) {
    static const char *const names[] = {"0123456789012345678901234567890",
                                        "a123456789012345678901234567890"};
    struct pair *p = &pair;

    (void)state;
    pair_init(p, 1);
    for (uint32_t node = A; node <= B; node++) {
        for (uint8_t i = 0; i < WIRE_DEVICES_MAX; i++)
            has(p, node, names[node], i, false);
        p->nodes[node].set.qp_count = WEIR_QPS_MAX;
        for (uint32_t i = 0; i < WEIR_QPS_MAX; i++)
            p->nodes[node].set.qps[i].blob_length = WEIR_QP_BLOB_MAX;
    }
    pair_event(p, A, EP_EV_WANT);
    struct pair_message hello = pair_take(p, A);
    assert_int_equal(hello.length, WIRE_HELLO_SIZE_MAX);
    pair_inject(p, &hello);
    struct pair_message answer = pair_take(p, B);
    assert_int_equal(answer.length, WIRE_REFUSE_SIZE_MAX);
    pair_inject(p, &answer);
    assert_mismatch(p, A, names[B], "", false, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W9_both_sides_learn_what_the_other_one_has),
        cmocka_unit_test(test_W9_a_refusal_that_comes_again_has_the_list_again),
        cmocka_unit_test(test_W9_wishes_that_cross_end_on_both_sides),
        cmocka_unit_test(test_W9_one_device_in_two_places_is_a_mismatch),
        cmocka_unit_test(test_W9_what_one_uses_may_be_what_both_have),
        cmocka_unit_test(test_W9_two_devices_that_meet_are_no_mismatch),
        cmocka_unit_test(test_W9_a_mismatch_lasts_until_the_next_wish_or_session),
        cmocka_unit_test(test_W9_a_list_without_a_device_in_use_says_nothing),
        cmocka_unit_test(test_W9_a_list_beside_another_reason_is_no_mismatch),
        cmocka_unit_test(test_H15_HELLO_tells_of_all_devices_and_its_answer_of_one),
        cmocka_unit_test(test_H15_the_longest_lists_have_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
