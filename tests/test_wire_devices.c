/* SPDX-License-Identifier: Apache-2.0 */
/* test_wire_devices.c: the lists of devices in control messages: what is known survives the trip,
 * what is not known yet is skipped, and what is neither is refused (H13, H15). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cursor.h"
#include "wire.h"
#include "wire_data.h"

enum { LIST = WIRE_HEADER_SIZE + 8 + 16 }; /* where HELLO has its list */

static struct wire_device device(const char *name, uint8_t fabric) {
    struct wire_device d;

    memset(&d, 0, sizeof(d));
    memcpy(d.name, name, strnlen(name, sizeof(d.name) - 1)); /* cut like any that is too long */
    memset(d.fabric, fabric, sizeof(d.fabric));
    return d;
}

static struct wire_qp_set set_of(const char *name, uint8_t fabric) {
    struct wire_qp_set set;

    memset(&set, 0, sizeof(set));
    snprintf(set.device, sizeof(set.device), "%s", name);
    memset(set.fabric, fabric, sizeof(set.fabric));
    set.recv_credits = 64;
    set.recv_bytes_max = WIRE_DATA_SIZE + WEIR_NOTIFY_MAX;
    set.pass = 7;
    set.life = 9;
    set.qp_count = 1;
    set.qps[0].psn = 0x030201;
    set.qps[0].blob_length = 2;
    memcpy(set.qps[0].blob, "qp", 2);
    return set;
}

static struct wire_message hello(void) {
    struct wire_message m;

    memset(&m, 0, sizeof(m));
    m.type = WIRE_HELLO;
    m.epoch = 1;
    m.qps = set_of("shm", 0xa);
    memset(m.from, 1, sizeof(m.from));
    memset(m.to, 2, sizeof(m.to));
    return m;
}

static uint32_t encoded(const struct wire_message *m, uint8_t *bytes) {
    uint32_t length = 0;

    assert_int_equal(wire_encode(m, bytes, WEIR_CONTROL_MESSAGE_MAX, &length), WEIR_OK);
    return length;
}

/* ---- lists that nobody here would write --------------------------------- */

/* A HELLO whose list comes by hand. */
struct raw {
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    struct writer w;
};

static void raw_begin(struct raw *raw, uint8_t version, uint8_t count) {
    struct wire_message m = hello();

    encoded(&m, raw->bytes);
    raw->w = (struct writer){.out = raw->bytes, .size = sizeof(raw->bytes), .used = LIST};
    put_uint(&raw->w, version, 1);
    put_uint(&raw->w, count, 1);
}

/* more: bytes of the entry that nobody knows. */
static void raw_entry(struct raw *raw, uint8_t kind, uint8_t flags, const char *name,
                      uint8_t fabric, const void *set, size_t set_length, size_t more) {
    const struct wire_device d = device(name, fabric);
    size_t name_length = strlen(name);

    put_uint(&raw->w, 1 + 1 + 1 + name_length + 16 + 2 + set_length + more, 2);
    put_uint(&raw->w, kind, 1);
    put_uint(&raw->w, flags, 1);
    put_uint(&raw->w, name_length, 1);
    put_bytes(&raw->w, name, name_length);
    put_bytes(&raw->w, d.fabric, sizeof(d.fabric));
    put_uint(&raw->w, set_length, 2);
    if (set_length > 0) /* memcpy(3) takes no NULL */
        put_bytes(&raw->w, set, set_length);
    for (size_t i = 0; i < more; i++)
        put_uint(&raw->w, 0xee, 1);
}

/* A QP set with one QP, and so many bytes that nobody knows; its length. */
static size_t raw_set(uint8_t *out, uint32_t psn, uint8_t flags, size_t more) {
    struct writer w = {.out = out, .size = 256};

    put_uint(&w, 4096, 4);
    put_uint(&w, 16, 4);
    put_uint(&w, 64, 4);
    put_uint(&w, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, 4);
    put_uint(&w, flags, 1);
    put_uint(&w, 1, 1);
    put_uint(&w, psn, 3);
    put_uint(&w, 0, 1);
    for (size_t i = 0; i < more; i++)
        put_uint(&w, 0xdd, 1);
    return w.used;
}

static int raw_decode(struct raw *raw, const struct wire_device *own, struct wire_message *back) {
    size_t used = raw->w.used;

    assert_false(raw->w.full);
    raw->w.used = 8;
    put_uint(&raw->w, used, 4);
    raw->w.used = used;
    memset(back, 0xee, sizeof(*back));
    return wire_decode_for(raw->bytes, used, own, back);
}

/* ---- what is known ------------------------------------------------------- */

static void test_H15_a_list_arrives_as_it_was_said(void **state) {
    struct wire_message m = hello(), back;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];

    (void)state;
    m.devices.count = 2;
    m.devices.entries[0] = device("verbs", 0);
    m.devices.entries[0].untried = true;
    m.devices.entries[1] = device("ofi", 0xb);
    m.devices.entries[1].used = true;
    assert_int_equal(wire_decode(bytes, encoded(&m, bytes), &back), WEIR_OK);
    assert_int_equal(back.qps.pass, 7);
    assert_int_equal(back.qps.life, 9);
    assert_string_equal(back.qps.device, "shm");
    assert_memory_equal(back.qps.fabric, m.qps.fabric, sizeof(m.qps.fabric));
    assert_int_equal(back.qps.qps[0].psn, 0x030201);
    assert_int_equal(back.devices.count, 2);
    assert_string_equal(back.devices.entries[0].name, "verbs");
    assert_true(back.devices.entries[0].untried);
    assert_false(back.devices.entries[0].used);
    assert_string_equal(back.devices.entries[1].name, "ofi");
    assert_false(back.devices.entries[1].untried);
    assert_true(back.devices.entries[1].used);
    assert_memory_equal(back.devices.entries[1].fabric, m.devices.entries[1].fabric, 16);
    /* At the documented places: the list, the first entry, the set, the next entry. */
    assert_memory_equal(bytes + LIST, "\x01\x03\x30\x00\x01\x01\x03shm\x0a", 11);
    assert_memory_equal(bytes + LIST + 26, "\x18\x00\0\0\0\0\0\0\0\0\x40\0\0\0", 14);
    assert_memory_equal(bytes + LIST + 44, "\0\x01\x01\x02\x03\x02qp\x1a\x00\x01\x02\x05verbs", 18);
}

static void test_H15_a_refusal_has_a_list(void **state) {
    struct wire_message m = hello(), back;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];

    (void)state;
    m.type = WIRE_REFUSE;
    m.echo = 3;
    m.reason = WEIR_EREFUSED;
    m.devices.count = 1;
    m.devices.entries[0] = device("efa", 0xc);
    m.devices.entries[0].used = true;
    assert_int_equal(wire_decode(bytes, encoded(&m, bytes), &back), WEIR_OK);
    assert_int_equal(back.reason, WEIR_EREFUSED);
    assert_int_equal(back.devices.count, 1);
    assert_string_equal(back.devices.entries[0].name, "efa");
    assert_true(back.devices.entries[0].used);
    m.devices.count = 0;
    assert_int_equal(encoded(&m, bytes), WIRE_HEADER_SIZE + 8 + 4 + 2);
}

static struct wire_message full(enum wire_type type, uint32_t others) {
    static const char longest[] = "0123456789012345678901234567890";
    struct wire_message m = hello();

    m.type = type;
    m.echo = 1;
    m.reason = WEIR_EREFUSED;
    if (type != WIRE_REFUSE) {
        m.qps = set_of(longest, 1);
        m.qps.qp_count = WEIR_QPS_MAX;
        for (uint32_t i = 0; i < WEIR_QPS_MAX; i++)
            m.qps.qps[i].blob_length = WEIR_QP_BLOB_MAX;
    }
    m.devices.count = others;
    for (uint32_t i = 0; i < others; i++)
        m.devices.entries[i] = device(longest, (uint8_t)i);
    return m;
}

static void test_H15_the_bounds_are_those_of_the_longest(void **state) {
    struct wire_message m = full(WIRE_HELLO, WIRE_DEVICES_MAX - 1);
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length = 0;

    (void)state;
    assert_int_equal(encoded(&m, bytes), WIRE_HELLO_SIZE_MAX);
    m.devices.count = WIRE_DEVICES_MAX; /* and one with the set */
    assert_int_equal(wire_encode(&m, bytes, sizeof(bytes), &length), WEIR_EINVAL);
    m = full(WIRE_HELLO_ACK, 0);
    assert_int_equal(encoded(&m, bytes), WIRE_HELLO_ACK_SIZE_MAX);
    m = full(WIRE_REFUSE, WIRE_DEVICES_MAX);
    assert_int_equal(encoded(&m, bytes), WIRE_REFUSE_SIZE_MAX);
    m.devices.count = WIRE_DEVICES_MAX + 1;
    assert_int_equal(wire_encode(&m, bytes, sizeof(bytes), &length), WEIR_EINVAL);
    m = full(WIRE_REFUSE, 1);
    m.devices.entries[0].name[3] = ' ';
    assert_int_equal(wire_encode(&m, bytes, sizeof(bytes), &length), WEIR_EINVAL);
    m.devices.entries[0].name[0] = '\0';
    assert_int_equal(wire_encode(&m, bytes, sizeof(bytes), &length), WEIR_EINVAL);
}

/* ---- what is not known yet ----------------------------------------------- */

static void test_H15_what_is_not_known_is_skipped(void **state) {
    struct raw raw;
    struct wire_message back;
    uint8_t set[256];

    (void)state;
    raw_begin(&raw, 1, 4);
    raw_entry(&raw, 2, 0xff, "later", 9, "whatever", 8, 3); /* another kind */
    raw_entry(&raw, 1, 0xfc, "efa", 0xc, NULL, 0, 40);      /* other flags, more bytes */
    raw_entry(&raw, 1, 1, "shm", 0xa, set, raw_set(set, 5, 0xfe, 11), 7); /* in the set as well */
    put_uint(&raw.w, 1, 2); /* another kind, and nothing else */
    put_uint(&raw.w, 77, 1);
    assert_int_equal(raw_decode(&raw, NULL, &back), WEIR_OK);
    assert_string_equal(back.qps.device, "shm");
    assert_int_equal(back.qps.qp_count, 1);
    assert_int_equal(back.qps.qps[0].psn, 5);
    assert_int_equal(back.qps.mtu, 4096);
    assert_false(back.qps.ordered);
    assert_int_equal(back.devices.count, 1);
    assert_string_equal(back.devices.entries[0].name, "efa");
    assert_false(back.devices.entries[0].used);
    assert_false(back.devices.entries[0].untried);
    for (uint32_t i = 1; i < WIRE_DEVICES_MAX; i++)
        assert_int_equal(back.devices.entries[i].name[0], 0);
}

static void test_H15_a_later_version_of_the_list_is_read_likewise(void **state) {
    struct raw raw;
    struct wire_message back;
    uint8_t set[256];

    (void)state;
    for (int version = 1; version < 256; version++) {
        raw_begin(&raw, (uint8_t)version, 1);
        raw_entry(&raw, 1, 1, "shm", 0xa, set, raw_set(set, 5, 1, 0), 0);
        assert_int_equal(raw_decode(&raw, NULL, &back), WEIR_OK);
        assert_true(back.qps.ordered);
    }
}

/* An engine with several devices offers QPs on each. */
static void test_H15_of_several_QP_sets_ones_own_is_read(void **state) {
    const struct wire_device exact = device("verbs", 2), elsewhere = device("verbs", 9),
                             none = device("sim", 2);
    struct raw raw;
    struct wire_message back;
    uint8_t set[256];

    (void)state;
    raw_begin(&raw, 1, 3);
    raw_entry(&raw, 1, 1, "shm", 2, set, raw_set(set, 1, 0, 0), 0);
    raw_entry(&raw, 1, 1, "verbs", 1, set, raw_set(set, 2, 0, 0), 0);
    raw_entry(&raw, 1, 1, "verbs", 2, set, raw_set(set, 3, 0, 0), 0);
    assert_int_equal(raw_decode(&raw, &exact, &back), WEIR_OK);
    assert_int_equal(back.qps.qps[0].psn, 3);
    assert_int_equal(back.qps.pass, 7);
    assert_int_equal(back.devices.count, 2);
    assert_string_equal(back.devices.entries[0].name, "shm");
    assert_string_equal(back.devices.entries[1].name, "verbs");
    assert_true(back.devices.entries[1].used);
    assert_int_equal(back.devices.entries[1].fabric[0], 1);
    assert_int_equal(raw_decode(&raw, &elsewhere, &back), WEIR_OK);
    assert_int_equal(back.qps.qps[0].psn, 2);
    assert_int_equal(raw_decode(&raw, &none, &back), WEIR_OK);
    assert_int_equal(back.qps.qps[0].psn, 1);
    assert_int_equal(raw_decode(&raw, NULL, &back), WEIR_OK);
    assert_int_equal(back.qps.qps[0].psn, 1);
}

/* A later engine may have more QPs on a device that is not ours, or longer blobs, and names that
 * one first: it is as if it had none there. On ours that is an error. */
static void test_H15_a_QP_set_of_a_later_engine(void **state) {
    const struct wire_device own = device("shm", 2);
    enum { QP_COUNT = 17, BLOB_LENGTH = 21 }; /* where they stand in a set of one QP */
    static const struct {
        uint8_t at, value;
        size_t more;
    } cases[] = {{QP_COUNT, WEIR_QPS_MAX + 1, 100},
                 {QP_COUNT, 0, 0},
                 {BLOB_LENGTH, WEIR_QP_BLOB_MAX + 1, 100}};
    struct raw raw;
    struct wire_message back;
    uint8_t set[256], ours[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t length = raw_set(set, 1, 0, cases[i].more);
        set[cases[i].at] = cases[i].value;
        for (int last = 0; last < 2; last++) {
            raw_begin(&raw, 1, 2);
            if (last)
                raw_entry(&raw, 1, 1, "shm", 2, ours, raw_set(ours, 3, 0, 0), 0);
            raw_entry(&raw, 1, 1, "later", 1, set, length, 0);
            if (!last)
                raw_entry(&raw, 1, 1, "shm", 2, ours, raw_set(ours, 3, 0, 0), 0);
            assert_int_equal(raw_decode(&raw, &own, &back), WEIR_OK);
            assert_int_equal(back.qps.qps[0].psn, 3);
            assert_int_equal(back.devices.count, 1);
            assert_string_equal(back.devices.entries[0].name, "later");
        }
        raw_begin(&raw, 1, 1);
        raw_entry(&raw, 1, 1, "later", 1, set, length, 0);
        assert_int_equal(raw_decode(&raw, &own, &back), WEIR_OK);
        assert_int_equal(back.qps.qp_count, 0);
        assert_int_equal(back.qps.pass, 7);
        assert_int_equal(back.devices.count, 1);
        raw_begin(&raw, 1, 1);
        raw_entry(&raw, 1, 1, "shm", 1, set, length, 0);
        assert_int_equal(raw_decode(&raw, &own, &back), WEIR_EINVAL);
    }
}

static void test_H15_a_list_without_a_QP_set_has_nothing_in_common(void **state) {
    struct wire_qp_set ours = set_of("shm", 0xa);
    struct wire_agreed agreed;
    struct raw raw;
    struct wire_message back;
    uint8_t again[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;

    (void)state;
    for (uint8_t count = 0; count < 2; count++) {
        raw_begin(&raw, 1, count);
        if (count == 1)
            raw_entry(&raw, 1, 1, "shm", 0xa, NULL, 0, 0);
        assert_int_equal(raw_decode(&raw, NULL, &back), WEIR_OK);
        assert_int_equal(back.qps.qp_count, 0);
        assert_int_equal(back.qps.pass, 7);
        assert_int_equal(back.devices.count, count);
        assert_int_equal(wire_qp_set_negotiate(&ours, &back.qps, &agreed), WEIR_EREFUSED);
        assert_int_equal(wire_encode(&back, again, sizeof(again), &length), WEIR_EINVAL);
    }
}

/* ---- what is wrong ------------------------------------------------------- */

/* By an engine on shm. */
static void refused(struct raw *raw) {
    const struct wire_device own = device("shm", 0);
    struct wire_message back;

    assert_int_equal(raw_decode(raw, &own, &back), WEIR_EINVAL);
}

static void test_H13_a_list_that_cannot_be_is_refused(void **state) {
    static const char name[] = "01234567890123456789012345678901"; /* without a terminator */
    struct raw raw;
    uint8_t set[256];

    (void)state;
    raw_begin(&raw, 0, 0); /* of no version */
    refused(&raw);
    raw_begin(&raw, 1, WIRE_DEVICES_MAX + 1);
    for (int i = 0; i < WIRE_DEVICES_MAX + 1; i++)
        raw_entry(&raw, 1, 0, "x", 0, NULL, 0, 0);
    refused(&raw);
    raw_begin(&raw, 1, 2); /* fewer entries than it says */
    raw_entry(&raw, 1, 0, "x", 0, NULL, 0, 0);
    refused(&raw);
    raw_begin(&raw, 1, 1); /* more */
    raw_entry(&raw, 1, 0, "x", 0, NULL, 0, 0);
    raw_entry(&raw, 1, 0, "x", 0, NULL, 0, 0);
    refused(&raw);
    raw_begin(&raw, 1, 1);
    raw_entry(&raw, 1, 0, name, 0, NULL, 0, 0);
    refused(&raw);
    raw_begin(&raw, 1, 1);
    raw_entry(&raw, 1, 0, "", 0, NULL, 0, 0);
    refused(&raw);
    raw_begin(&raw, 1, 1);
    raw_entry(&raw, 1, 0, "a\nb", 0, NULL, 0, 0);
    refused(&raw);
    raw_begin(&raw, 1, 1); /* without even a kind */
    put_uint(&raw.w, 0, 2);
    refused(&raw);
    raw_begin(&raw, 1, 1); /* a QP too few for what it says */
    raw_entry(&raw, 1, 0, "shm", 0, set, raw_set(set, 1, 0, 0) - 1, 0);
    refused(&raw);
}

/* Of an entry that ends in the middle of what a device has, and one that is longer than the rest.
 */
static void test_H13_an_entry_of_another_length_is_refused(void **state) {
    struct raw raw;
    uint8_t set[256];

    (void)state;
    raw_begin(&raw, 1, 1);
    raw_entry(&raw, 1, 1, "shm", 0, set, raw_set(set, 1, 0, 0), 0);
    uint32_t whole = (uint32_t)(raw.w.used - LIST - 4);
    for (uint32_t length = 0; length < 65536; length += length < 300 ? 1 : 977) {
        if (length == whole)
            continue;
        raw.bytes[LIST + 2] = (uint8_t)length;
        raw.bytes[LIST + 3] = (uint8_t)(length >> 8);
        refused(&raw);
    }
}

static void test_H13_a_QP_set_of_other_numbers_is_refused(void **state) {
    struct raw raw;
    struct wire_message back;
    uint8_t set[256];
    size_t length = raw_set(set, 1, 0, 0);
    static const struct {
        uint32_t at;
        uint8_t value;
    } wrong[] = {
        {8, 0} /* recv_credits */, {11, 1}, {17, 0} /* QPs */, {17, 2}, {17, 17}, {17, 255},
        {21, 1} /* blob */,        {21, 65}};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint8_t was = set[wrong[i].at];
        set[wrong[i].at] = wrong[i].value;
        raw_begin(&raw, 1, 1);
        raw_entry(&raw, 1, 1, "shm", 0, set, length, 0);
        refused(&raw);
        set[wrong[i].at] = was;
    }
    raw_begin(&raw, 1, 1);
    raw_entry(&raw, 1, 1, "shm", 0, set, length, 0);
    assert_int_equal(raw_decode(&raw, NULL, &back), WEIR_OK);
}

/* Whatever is done to a list, what decodes can be encoded, and means the same then. */
static void test_H13_a_damaged_list_is_refused_or_means_one_thing(void **state) {
    struct raw raw;
    struct wire_message back;
    uint8_t set[256], once[WEIR_CONTROL_MESSAGE_MAX], twice[WEIR_CONTROL_MESSAGE_MAX];
    uint64_t random = 1;

    (void)state;
    for (int run = 0; run < 50000; run++) {
        raw_begin(&raw, 1, 3);
        raw_entry(&raw, 1, 1, "shm", 2, set, raw_set(set, 1, 0, 3), 5);
        raw_entry(&raw, 3, 1, "later", 1, NULL, 0, 9);
        raw_entry(&raw, 1, 2, "verbs", 0, set, raw_set(set, 2, 0, 0), 0);
        for (int i = 0; i < 1 + run % 3; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            raw.bytes[LIST + (random >> 33) % (raw.w.used - LIST)] = (uint8_t)(random >> 24);
        }
        if (raw_decode(&raw, NULL, &back) != WEIR_OK || back.qps.qp_count == 0)
            continue;
        uint32_t length = encoded(&back, once);
        assert_true(length <= WIRE_HELLO_SIZE_MAX);
        assert_int_equal(wire_decode(once, length, &back), WEIR_OK);
        assert_int_equal(encoded(&back, twice), length);
        assert_memory_equal(twice, once, length);
    }
}

/* ---- what both have ------------------------------------------------------ */

static void add(struct wire_devices *list, const char *name, uint8_t fabric, bool untried) {
    struct wire_device *entry = &list->entries[list->count++];

    *entry = device(name, fabric);
    entry->untried = untried;
}

static void test_H15_what_both_have_is_found(void **state) {
    struct wire_devices a, b;
    const struct wire_device *theirs;

    (void)state;
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    assert_null(wire_devices_common(&a, &b, &theirs));
    assert_null(wire_devices_used(&a));
    add(&a, "shm", 1, false);
    add(&a, "verbs", 0, true);
    add(&a, "ofi", 3, false);
    add(&b, "efa", 4, false);
    add(&b, "shm", 2, false); /* on another host */
    assert_null(wire_devices_common(&a, &b, &theirs));
    add(&b, "verbs", 7, false); /* untried here: perhaps */
    assert_ptr_equal(wire_devices_common(&a, &b, &theirs), &a.entries[1]);
    assert_ptr_equal(theirs, &b.entries[2]);
    add(&b, "ofi", 3, false); /* for certain */
    assert_ptr_equal(wire_devices_common(&a, &b, &theirs), &a.entries[2]);
    assert_ptr_equal(theirs, &b.entries[3]);
    b.entries[2].used = true;
    assert_ptr_equal(wire_devices_used(&b), &b.entries[2]);
}

/* ---- versions ------------------------------------------------------------ */

static void test_H15_the_version_of_any_message_is_known(void **state) {
    struct wire_message m = hello();
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length = encoded(&m, bytes);

    (void)state;
    assert_int_equal(wire_version_of(bytes, length), WIRE_VERSION);
    bytes[4] = 0x34;
    bytes[5] = 0x12;
    bytes[6] = 0xff; /* any type */
    memset(bytes + 28, 0xee, sizeof(bytes) - 28);
    assert_int_equal(wire_version_of(bytes, length), 0x1234);
    assert_int_equal(wire_version_of(bytes, length - 1), 0);
    bytes[8] = 28;
    bytes[9] = 0;
    assert_int_equal(wire_version_of(bytes, 28), 0x1234);
    bytes[8] = 27;
    assert_int_equal(wire_version_of(bytes, 27), 0);
    bytes[8] = 28;
    bytes[0] = 'w';
    assert_int_equal(wire_version_of(bytes, 28), 0);
    assert_int_equal(wire_version_of(bytes, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H15_a_list_arrives_as_it_was_said),
        cmocka_unit_test(test_H15_a_refusal_has_a_list),
        cmocka_unit_test(test_H15_the_bounds_are_those_of_the_longest),
        cmocka_unit_test(test_H15_what_is_not_known_is_skipped),
        cmocka_unit_test(test_H15_a_later_version_of_the_list_is_read_likewise),
        cmocka_unit_test(test_H15_of_several_QP_sets_ones_own_is_read),
        cmocka_unit_test(test_H15_a_QP_set_of_a_later_engine),
        cmocka_unit_test(test_H15_a_list_without_a_QP_set_has_nothing_in_common),
        cmocka_unit_test(test_H13_a_list_that_cannot_be_is_refused),
        cmocka_unit_test(test_H13_an_entry_of_another_length_is_refused),
        cmocka_unit_test(test_H13_a_QP_set_of_other_numbers_is_refused),
        cmocka_unit_test(test_H13_a_damaged_list_is_refused_or_means_one_thing),
        cmocka_unit_test(test_H15_what_both_have_is_found),
        cmocka_unit_test(test_H15_the_version_of_any_message_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
