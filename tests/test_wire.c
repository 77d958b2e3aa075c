/* SPDX-License-Identifier: Apache-2.0 */
/* test_wire.c: tests of the codec: every message survives the trip, and nothing else decodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire.h"
#include "wire_data.h"

static void largest_devices(struct wire_devices *devices, uint32_t count) {
    devices->count = count;
    for (uint32_t i = 0; i < count; i++) {
        memset(devices->entries[i].name, 'a' + (int)i, WEIR_DEVICE_NAME_MAX - 1);
        memset(devices->entries[i].fabric, 0xfb, WEIR_FABRIC_ID_SIZE);
        devices->entries[i].used = devices->entries[i].untried = true;
    }
}

/* Whether messages of this type have a list of devices, of which some is skipped. */
static bool has_list(int type) {
    return type == WIRE_HELLO || type == WIRE_HELLO_ACK || type == WIRE_REFUSE;
}

/* A message of this type with every field at its largest. */
static struct wire_message largest(enum wire_type type) {
    struct wire_message m;

    memset(&m, 0, sizeof(m));
    m.type = type;
    memset(m.from, 0xf1, sizeof(m.from));
    if (type != WIRE_WHO)
        memset(m.to, 0x2e, sizeof(m.to));
    m.epoch = UINT64_MAX;
    m.echo = UINT64_MAX - 1;
    m.reason = WIRE_REASON_MIN;
    m.pass = UINT64_MAX - 2;
    if (type == WIRE_WHO || type == WIRE_IAM) {
        memset(m.address, 'a', sizeof(m.address) - 1);
    } else if (type == WIRE_SETTLED) {
        m.settled.base = UINT64_MAX;
        memset(m.settled.bits, 0xa5, sizeof(m.settled.bits));
        m.settled.broke = UINT64_MAX - 3;
        m.settled.reason = WIRE_REASON_MIN;
    } else if (type == WIRE_REFUSE) {
        largest_devices(&m.devices, WIRE_DEVICES_MAX);
    } else if (type == WIRE_STATE) {
        memset(&m.state, 0xff, sizeof(m.state));
        m.state.thread = true;
        m.state.inbox_count = WIRE_STATE_INBOXES;
    } else if (type == WIRE_HELLO || type == WIRE_HELLO_ACK) {
        largest_devices(&m.devices, WIRE_DEVICES_MAX - 1);
        memset(m.qps.device, 'd', sizeof(m.qps.device) - 1);
        memset(m.qps.fabric, 0xfa, sizeof(m.qps.fabric));
        m.qps.mtu = m.qps.rd_atomic = m.qps.recv_bytes_max = UINT32_MAX;
        m.qps.recv_credits = WIRE_CREDITS_MAX;
        m.qps.pass = UINT64_MAX;
        m.qps.life = UINT64_MAX - 4;
        m.qps.ordered = true;
        m.qps.qp_count = WEIR_QPS_MAX;
        for (uint32_t i = 0; i < WEIR_QPS_MAX; i++) {
            m.qps.qps[i].psn = 0xffffff - i;
            m.qps.qps[i].blob_length = WEIR_QP_BLOB_MAX;
            memset(m.qps.qps[i].blob, (int)i, WEIR_QP_BLOB_MAX);
        }
    }
    return m;
}

static uint32_t encoded(const struct wire_message *m, uint8_t *bytes) {
    uint32_t length = 0;

    assert_int_equal(wire_encode(m, bytes, WEIR_CONTROL_MESSAGE_MAX, &length), WEIR_OK);
    return length;
}

static void assert_encodes_to(const struct wire_message *m, const uint8_t *bytes, uint32_t length) {
    uint8_t again[WEIR_CONTROL_MESSAGE_MAX];

    assert_int_equal(encoded(m, again), length);
    assert_memory_equal(again, bytes, length);
}

/* A message that was decoded. One that has no QP set is not encoded here. */
static void assert_means_one_thing(const struct wire_message *m) {
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    struct wire_message back;
    uint32_t length;

    if (m->type != WIRE_REFUSE && m->qps.qp_count == 0)
        return;
    length = encoded(m, bytes);
    assert_int_equal(wire_decode(bytes, length, &back), WEIR_OK);
    assert_encodes_to(&back, bytes, length);
}

static struct wire_descriptor largest_descriptor(void) {
    struct wire_descriptor d;

    memset(&d, 0, sizeof(d));
    memset(d.instance, 0x17, sizeof(d.instance));
    d.memory_id = UINT64_MAX;
    d.length = UINT64_MAX;
    d.access = WEIR_ACCESS_ALL;
    memset(d.device, 'd', sizeof(d.device) - 1);
    memset(d.fabric, 0xfa, sizeof(d.fabric));
    d.blob_length = WEIR_MR_BLOB_MAX;
    memset(d.blob, 0xb1, sizeof(d.blob));
    return d;
}

static void test_every_type_survives_the_trip(void **state) {
    (void)state;
    for (int type = WIRE_WHO; type < WIRE_TYPE_END; type++) {
        struct wire_message m = largest((enum wire_type)type), back;
        uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX], again[WEIR_CONTROL_MESSAGE_MAX];
        uint32_t length = encoded(&m, bytes);

        memset(&back, 0xee, sizeof(back));
        assert_int_equal(wire_decode(bytes, length, &back), WEIR_OK);
        assert_int_equal(back.type, type);
        assert_memory_equal(back.from, m.from, sizeof(m.from));
        assert_memory_equal(back.to, m.to, sizeof(m.to));
        assert_int_equal(encoded(&back, again), length);
        assert_memory_equal(again, bytes, length);
        assert_string_not_equal(wire_type_name((enum wire_type)type), "?");
    }
    assert_string_equal(wire_type_name(WIRE_TYPE_END), "?");
}

static void test_fields_arrive_where_they_belong(void **state) {
    struct wire_message m = largest(WIRE_HELLO_ACK), back;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];

    (void)state;
    m.epoch = 0x0102030405060708;
    m.echo = 9;
    m.qps.mtu = 4096;
    m.qps.rd_atomic = 16;
    m.qps.recv_credits = 64;
    m.qps.recv_bytes_max = 288;
    m.qps.pass = 0x1122334455667788;
    m.qps.life = 0x2122334455667789;
    m.qps.ordered = false;
    m.qps.qp_count = 2;
    m.qps.qps[1].psn = 0x030201;
    m.qps.qps[1].blob_length = 0;
    assert_int_equal(wire_decode(bytes, encoded(&m, bytes), &back), WEIR_OK);
    assert_int_equal(back.epoch, m.epoch);
    assert_int_equal(back.echo, 9);
    assert_string_equal(back.qps.device, m.qps.device);
    assert_int_equal(back.qps.mtu, 4096);
    assert_int_equal(back.qps.rd_atomic, 16);
    assert_int_equal(back.qps.recv_credits, 64);
    assert_int_equal(back.qps.recv_bytes_max, 288);
    assert_int_equal(back.qps.pass, 0x1122334455667788);
    assert_int_equal(back.qps.life, 0x2122334455667789);
    assert_false(back.qps.ordered);
    assert_int_equal(back.qps.qp_count, 2);
    assert_int_equal(back.qps.qps[0].psn, m.qps.qps[0].psn);
    assert_memory_equal(back.qps.qps[0].blob, m.qps.qps[0].blob, WEIR_QP_BLOB_MAX);
    assert_int_equal(back.qps.qps[1].psn, 0x030201);
    assert_int_equal(back.qps.qps[1].blob_length, 0);
    /* Little-endian, at the documented places. */
    assert_memory_equal(bytes, "WEIR\x0a\x00\x04\x00", 8);
    assert_memory_equal(bytes + WIRE_HEADER_SIZE, "\x08\x07\x06\x05\x04\x03\x02\x01\x09", 9);
    assert_memory_equal(bytes + WIRE_HEADER_SIZE + 16,
                        "\x88\x77\x66\x55\x44\x33\x22\x11\x89\x77\x66\x55\x44\x33\x22\x21", 16);
}

static void test_H13_a_state_arrives_as_it_was_told(void **state) {
    struct wire_message m = {.type = WIRE_STATE, .echo = 5}, back;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];

    (void)state;
    memset(m.from, 1, sizeof(m.from));
    memset(m.to, 2, sizeof(m.to));
    memset(&m.state, 0, sizeof(m.state));
    m.state.away_ns = 0x0102030405060708;
    m.state.session = 9;
    m.state.notifications = 10;
    m.state.thread = true;
    m.state.inbox_count = 2;
    m.state.inboxes[0] = (struct wire_state_inbox){11, 12, 13};
    m.state.inboxes[1] = (struct wire_state_inbox){14, 15, 16};
    uint32_t length = encoded(&m, bytes);
    assert_int_equal(length, WIRE_STATE_SIZE - (WIRE_STATE_INBOXES - 2) * 12);
    memset(&back, 0xee, sizeof(back));
    assert_int_equal(wire_decode(bytes, length, &back), WEIR_OK);
    assert_int_equal(back.echo, 5);
    assert_int_equal(back.state.away_ns, m.state.away_ns);
    assert_int_equal(back.state.session, 9);
    assert_int_equal(back.state.notifications, 10);
    assert_true(back.state.thread);
    assert_int_equal(back.state.inbox_count, 2);
    assert_memory_equal(back.state.inboxes, m.state.inboxes, sizeof(m.state.inboxes));
    assert_memory_equal(bytes + WIRE_HEADER_SIZE + 8, "\x08\x07\x06\x05\x04\x03\x02\x01\x09", 9);
    assert_memory_equal(bytes + WIRE_HEADER_SIZE + 24, "\x0a\0\0\0\x01\x02\0\0\x0b\0\0\0\x0c", 13);
    /* More inboxes than there may be, another flag, something where zeros have to be. */
    for (uint32_t at = 28; at < 32; at++) {
        uint8_t was = bytes[WIRE_HEADER_SIZE + at];
        bytes[WIRE_HEADER_SIZE + at] = at == 29 ? WIRE_STATE_INBOXES + 1 : 2;
        assert_int_equal(wire_decode(bytes, length, &back), WEIR_EINVAL);
        bytes[WIRE_HEADER_SIZE + at] = was;
    }
}

static void test_H13_every_truncation_and_extension_is_refused(void **state) {
    (void)state;
    for (int type = WIRE_WHO; type < WIRE_TYPE_END; type++) {
        struct wire_message m = largest((enum wire_type)type), back;
        uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX] = {0};
        uint32_t length = encoded(&m, bytes), short_length;

        for (uint32_t cut = 0; cut < length; cut++) {
            assert_int_equal(wire_decode(bytes, cut, &back), WEIR_EINVAL);
            assert_int_equal(wire_encode(&m, bytes, cut, &short_length), WEIR_ETOOBIG);
        }
        encoded(&m, bytes);
        assert_int_equal(wire_decode(bytes, length + 1, &back), WEIR_EINVAL);
        /* ...also when the message itself claims the length. */
        bytes[8] = (uint8_t)(length + 1);
        bytes[9] = (uint8_t)((length + 1) >> 8);
        assert_int_equal(wire_decode(bytes, length + 1, &back), WEIR_EINVAL);
        bytes[8] = (uint8_t)(length - 1);
        bytes[9] = (uint8_t)((length - 1) >> 8);
        assert_int_equal(wire_decode(bytes, length - 1, &back), WEIR_EINVAL);
    }
}

/* Whatever one changed byte does, what decodes encodes to the same bytes; where something may have
 * been skipped, to bytes that mean the same. */
static void test_H13_every_byte_flip_is_refused_or_canonical(void **state) {
    (void)state;
    for (int type = WIRE_WHO; type < WIRE_TYPE_END; type++) {
        struct wire_message m = largest((enum wire_type)type), back;
        uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
        uint32_t length = encoded(&m, bytes);

        for (uint32_t at = 0; at < length; at++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                bytes[at] = (uint8_t)(bytes[at] ^ 1u << bit);
                if (wire_decode(bytes, length, &back) == WEIR_OK) {
                    assert_true(at >= 12); /* never in magic, version, type, length */
                    if (has_list(type))
                        assert_means_one_thing(&back);
                    else
                        assert_encodes_to(&back, bytes, length);
                }
                bytes[at] = (uint8_t)(bytes[at] ^ 1u << bit);
            }
        }
    }
}

static void refused(struct wire_message m) {
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length = 7;

    assert_int_equal(wire_encode(&m, bytes, sizeof(bytes), &length), WEIR_EINVAL);
    assert_int_equal(length, 7);
}

static void test_H13_values_out_of_range_are_refused(void **state) {
    struct wire_message m;

    (void)state;
#define REFUSED(type, change)                                                                      \
    m = largest(type);                                                                             \
    change;                                                                                        \
    refused(m)
    REFUSED(WIRE_HELLO, m.epoch = 0);
    REFUSED(WIRE_READY, m.echo = 0);
    REFUSED(WIRE_BYE, memset(m.from, 0, sizeof(m.from)));
    REFUSED(WIRE_BYE, memset(m.to, 0, sizeof(m.to)));
    REFUSED(WIRE_WHO, m.to[3] = 1);
    REFUSED(WIRE_WHO, memset(m.address, 'a', sizeof(m.address)));
    REFUSED(WIRE_IAM, m.address[5] = '\n');
    REFUSED(WIRE_IAM, m.address[5] = (char)0x80);
    REFUSED(WIRE_REFUSE, m.reason = 0);
    REFUSED(WIRE_REFUSE, m.reason = 1);
    REFUSED(WIRE_REFUSE, m.reason = WIRE_REASON_MIN - 1);
    REFUSED(WIRE_ASK, m.epoch = 0);
    REFUSED(WIRE_STATE, m.echo = 0);
    REFUSED(WIRE_STATE, m.state.inbox_count = WIRE_STATE_INBOXES + 1);
    REFUSED(WIRE_SETTLED, m.settled.reason = 0);
    REFUSED(WIRE_SETTLED, m.settled.broke = 0);
    REFUSED(WIRE_SETTLED, m.settled.reason = 1);
    REFUSED(WIRE_SETTLED, m.settled.reason = WIRE_REASON_MIN - 1);
    REFUSED(WIRE_HELLO, m.qps.qp_count = 0);
    REFUSED(WIRE_HELLO, m.qps.qp_count = WEIR_QPS_MAX + 1);
    REFUSED(WIRE_HELLO, m.qps.recv_credits = 0);
    REFUSED(WIRE_HELLO, m.qps.recv_credits = WIRE_CREDITS_MAX + 1);
    REFUSED(WIRE_HELLO, m.qps.pass = 0);
    REFUSED(WIRE_HELLO, m.qps.life = 0);
    REFUSED(WIRE_HELLO_ACK, m.qps.life = 0);
    REFUSED(WIRE_HELLO, m.qps.device[0] = '\0');
    REFUSED(WIRE_HELLO, memset(m.qps.device, 'd', sizeof(m.qps.device)));
    REFUSED(WIRE_HELLO, m.qps.qps[15].psn = 0x1000000);
    REFUSED(WIRE_HELLO, m.qps.qps[15].blob_length = WEIR_QP_BLOB_MAX + 1);
    REFUSED(WIRE_TYPE_END, (void)0);
    REFUSED((enum wire_type)0, (void)0);
#undef REFUSED
}

/* Nobody would encode those, but anybody may send them. */
static void test_H13_a_life_of_nothing_is_refused(void **state) {
    (void)state;
    for (int type = WIRE_HELLO; type <= WIRE_HELLO_ACK; type++) {
        struct wire_message m = largest((enum wire_type)type), back;
        uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
        uint32_t length = encoded(&m, bytes);
        uint32_t numbers = type == WIRE_HELLO ? 8 : 16; /* epoch, and echo */
        uint8_t *life = bytes + WIRE_HEADER_SIZE + numbers + 8;

        assert_memory_equal(life, "\xfb\xff\xff\xff\xff\xff\xff\xff", 8);
        memset(life, 0, 8);
        assert_int_equal(wire_decode(bytes, length, &back), WEIR_EINVAL);
        life[7] = 1;
        assert_int_equal(wire_decode(bytes, length, &back), WEIR_OK);
        assert_int_equal(back.qps.life, UINT64_C(1) << 56);
    }
}

/* One of the version before, or behind, is none. */
static void test_H13_other_versions_are_refused(void **state) {
    (void)state;
    for (int type = WIRE_WHO; type < WIRE_TYPE_END; type++) {
        struct wire_message m = largest((enum wire_type)type), back;
        uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
        uint32_t length = encoded(&m, bytes);

        for (uint32_t version = 0; version < 256; version++) {
            bytes[4] = (uint8_t)version;
            assert_int_equal(wire_decode(bytes, length, &back),
                             version == WIRE_VERSION ? WEIR_OK : WEIR_EINVAL);
        }
    }
}

static void test_H13_second_encodings_are_refused(void **state) {
    struct wire_message m = largest(WIRE_IAM), back;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;

    (void)state;
    /* An address that ends before its length says. */
    strcpy(m.address, "host:1");
    length = encoded(&m, bytes);
    bytes[WIRE_HEADER_SIZE + 2 + 4] = '\0';
    assert_int_equal(wire_decode(bytes, length, &back), WEIR_EINVAL);
    /* A device name with something behind its terminator. */
    m = largest(WIRE_HELLO);
    memset(m.qps.device, 0, sizeof(m.qps.device));
    strcpy(m.qps.device, "shm");
    length = encoded(&m, bytes);
    assert_memory_equal(bytes + WIRE_HEADER_SIZE + 24 + 7, "shm", 3);
    bytes[WIRE_HEADER_SIZE + 24 + 8] = '\0';
    assert_int_equal(wire_decode(bytes, length, &back), WEIR_EINVAL);
}

static struct wire_qp_set plain_set(void) {
    struct wire_qp_set set;

    memset(&set, 0, sizeof(set));
    strcpy(set.device, "sim");
    set.mtu = 4096;
    set.rd_atomic = 16;
    set.recv_credits = 64;
    set.recv_bytes_max = WIRE_DATA_SIZE + WEIR_NOTIFY_MAX;
    set.pass = 7;
    set.life = 9;
    set.ordered = true;
    set.qp_count = 4;
    return set;
}

static void test_H9_negotiate_takes_what_both_have(void **state) {
    struct wire_qp_set a = plain_set(), b = plain_set();
    struct wire_agreed agreed;

    (void)state;
    b.mtu = 1024;
    b.rd_atomic = 0; /* does not matter there */
    b.qp_count = 7;
    b.ordered = false;
    assert_int_equal(wire_qp_set_negotiate(&a, &b, &agreed), WEIR_OK);
    assert_int_equal(agreed.mtu, 1024);
    assert_int_equal(agreed.rd_atomic, 16);
    assert_int_equal(agreed.qp_count, 4);
    assert_false(agreed.ordered);
}

static void test_H9_negotiate_refuses_what_cannot_work(void **state) {
    struct wire_qp_set a = plain_set(), b = plain_set();
    struct wire_agreed agreed;

    (void)state;
    strcpy(b.device, "shm");
    assert_int_equal(wire_qp_set_negotiate(&a, &b, &agreed), WEIR_EREFUSED);
    b = plain_set();
    b.fabric[15] = 1;
    assert_int_equal(wire_qp_set_negotiate(&a, &b, &agreed), WEIR_EREFUSED);
    b = plain_set();
    b.recv_bytes_max--;
    assert_int_equal(wire_qp_set_negotiate(&a, &b, &agreed), WEIR_EREFUSED);
}

static void test_descriptor_survives_the_trip(void **state) {
    struct wire_descriptor d = largest_descriptor(), back;
    uint8_t bytes[WEIR_DESCRIPTOR_MAX], again[WEIR_DESCRIPTOR_MAX];
    uint32_t length, length_again;

    (void)state;
    assert_int_equal(wire_descriptor_encode(&d, bytes, sizeof(bytes), &length), WEIR_OK);
    assert_int_equal(length, WIRE_DESCRIPTOR_SIZE_MAX);
    assert_int_equal(wire_descriptor_decode(bytes, length, &back), WEIR_OK);
    assert_memory_equal(back.instance, d.instance, sizeof(d.instance));
    assert_int_equal(back.memory_id, d.memory_id);
    assert_int_equal(back.length, d.length);
    assert_int_equal(back.access, d.access);
    assert_string_equal(back.device, d.device);
    assert_memory_equal(back.fabric, d.fabric, sizeof(d.fabric));
    assert_int_equal(back.blob_length, d.blob_length);
    assert_memory_equal(back.blob, d.blob, sizeof(d.blob));
    assert_int_equal(wire_descriptor_encode(&back, again, sizeof(again), &length_again), WEIR_OK);
    assert_int_equal(length_again, length);
    assert_memory_equal(again, bytes, length);
}

static void test_H13_damaged_descriptors_are_refused(void **state) {
    struct wire_descriptor d = largest_descriptor(), back;
    uint8_t bytes[WEIR_DESCRIPTOR_MAX + 1] = {0};
    uint32_t length, short_length;

    (void)state;
    strcpy(d.device, "shm");
    d.blob_length = 20;
    assert_int_equal(wire_descriptor_encode(&d, bytes, sizeof(bytes), &length), WEIR_OK);
    for (uint32_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        assert_int_equal(wire_descriptor_decode(bytes, length, &back), WEIR_EINVAL);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
    }
    assert_int_equal(wire_descriptor_decode(bytes, length + 1, &back), WEIR_EINVAL);
    for (uint32_t cut = 0; cut < length; cut++)
        assert_int_equal(wire_descriptor_decode(bytes, cut, &back), WEIR_EINVAL);
    for (uint32_t cut = 0; cut < length; cut++)
        assert_int_equal(wire_descriptor_encode(&d, bytes, cut, &short_length), WEIR_ETOOBIG);
}

static void test_descriptor_values_out_of_range_are_refused(void **state) {
    struct wire_descriptor d;
    uint8_t bytes[WEIR_DESCRIPTOR_MAX];
    uint32_t length;

    (void)state;
#define REFUSED(change)                                                                            \
    d = largest_descriptor();                                                                      \
    change;                                                                                        \
    assert_int_equal(wire_descriptor_encode(&d, bytes, sizeof(bytes), &length), WEIR_EINVAL)
    REFUSED(memset(d.instance, 0, sizeof(d.instance)));
    REFUSED(d.length = 0);
    REFUSED(d.access = 0);
    REFUSED(d.access = WEIR_ACCESS_ALL + 1);
    REFUSED(d.device[0] = '\0');
    REFUSED(d.device[1] = ' ');
    REFUSED(d.blob_length = WEIR_MR_BLOB_MAX + 1);
#undef REFUSED
}

static void assert_same(const struct wire_data *data, const struct wire_data *other) {
    assert_int_equal(data->kind, other->kind);
    assert_int_equal(data->parts, other->parts);
    assert_int_equal(data->payload_length, other->payload_length);
    assert_int_equal(data->credit, other->credit);
    assert_int_equal(data->number, other->number);
    assert_int_equal(data->tag, other->tag);
    assert_int_equal(data->base, other->base);
}

static void test_data_header_survives_the_trip(void **state) {
    const struct wire_data notify = {.kind = WIRE_NOTIFY,
                                     .parts = WEIR_QPS_MAX,
                                     .payload_length = WEIR_NOTIFY_MAX,
                                     .credit =
                                         0xfffefffd01020304, /* of words above that of notes */
                                     .number = UINT64_MAX,
                                     .tag = 0x1122334455667788,
                                     .base = UINT64_MAX - WIRE_WINDOW_SIZE};
    const struct wire_data credit = {.kind = WIRE_CREDIT, .credit = 7};
    struct wire_data words = notify, message = notify;
    struct wire_data back;
    uint8_t bytes[WIRE_DATA_SIZE];

    (void)state;
    wire_data_encode(&notify, bytes);
    assert_memory_equal(bytes, "\x01\x10\x00\x01\xfd\xff\xfe\xff", 8);
    assert_memory_equal(bytes + 24, "\x00\x04\x00\x00\x04\x03\x02\x01", 8);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, &back), WEIR_OK);
    assert_same(&back, &notify);
    wire_data_encode(&credit, bytes);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE, &back), WEIR_OK);
    assert_same(&back, &credit);
    words.kind = WIRE_WORDS;
    words.parts = 1;
    wire_data_encode(&words, bytes);
    assert_memory_equal(bytes, "\x03\x01\x00\x01\xfd\xff\xfe\xff", 8);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, &back), WEIR_OK);
    assert_same(&back, &words);
    message.kind = WIRE_MESSAGE;
    wire_data_encode(&message, bytes);
    assert_memory_equal(bytes, "\x04\x10\x00\x01\xfd\xff\xfe\xff", 8);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, &back), WEIR_OK);
    assert_same(&back, &message);
    message.kind = WIRE_NOTES;
    message.parts = 1;
    wire_data_encode(&message, bytes);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, &back),
                     message.tag == 0 ? WEIR_OK : WEIR_EINVAL); /* each note has its own */
    message.tag = 0;
    wire_data_encode(&message, bytes);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, &back), WEIR_OK);
    assert_same(&back, &message);
    message.parts = 2;
    wire_data_encode(&message, bytes);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, &back), WEIR_EINVAL);
}

static void test_M3_the_class_of_each_kind(void **state) {
    (void)state;
    assert_int_equal(wire_data_class(WIRE_NOTIFY), CREDIT_NOTES);
    assert_int_equal(wire_data_class(WIRE_WORDS), CREDIT_WORDS);
    assert_int_equal(wire_data_class(WIRE_MESSAGE), CREDIT_WORDS);
    assert_int_equal(wire_data_class(WIRE_NOTES), CREDIT_WORDS);
    assert_int_equal(wire_data_class(WIRE_CREDIT), CREDIT_CLASSES); /* it takes none */
    assert_int_equal(WIRE_DATA_KINDS, WIRE_NOTES + 1);
}

static void test_H13_data_headers_out_of_range_are_refused(void **state) {
    const struct wire_data good = {
        .kind = WIRE_NOTIFY, .parts = 1, .payload_length = 3, .number = 6, .base = 5};
    struct wire_data data, back;
    uint8_t bytes[WIRE_DATA_SIZE];

    (void)state;
    wire_data_encode(&good, bytes);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + 3, &back), WEIR_OK);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + 2, &back), WEIR_EINVAL);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE + 4, &back), WEIR_EINVAL);
    assert_int_equal(wire_data_decode(bytes, WIRE_DATA_SIZE - 1, &back), WEIR_EINVAL);
    assert_int_equal(wire_data_decode(bytes, 0, &back), WEIR_EINVAL);
#define REFUSED(kind_, change)                                                                     \
    data = good;                                                                                   \
    data.kind = (kind_);                                                                           \
    change;                                                                                        \
    wire_data_encode(&data, bytes);                                                                \
    assert_int_equal(                                                                              \
        wire_data_decode(bytes, WIRE_DATA_SIZE + (uint32_t)data.payload_length, &back),            \
        WEIR_EINVAL)
    REFUSED(0, (void)0);
    for (uint8_t kind = WIRE_DATA_KINDS; kind != 0; kind++) { /* up to 255 */
        REFUSED(kind, (void)0);
    }
    for (uint8_t kind = WIRE_NOTIFY; kind < WIRE_DATA_KINDS; kind++) {
        if (kind == WIRE_CREDIT)
            continue;
        REFUSED(kind, data.parts = 0);
        REFUSED(kind, data.parts = WEIR_QPS_MAX + 1);
        REFUSED(kind, data.payload_length = WEIR_NOTIFY_MAX + 1);
        REFUSED(kind, data.number = 5);
        REFUSED(kind, data.number = 5 + WIRE_WINDOW_SIZE + 1);
        REFUSED(kind, (data.number = 0, data.base = 0));
    }
    REFUSED(WIRE_WORDS, data.parts = 2);
    REFUSED(WIRE_WORDS, data.parts = WEIR_QPS_MAX);
    REFUSED(WIRE_CREDIT, (void)0);
    REFUSED(WIRE_CREDIT, (data = (struct wire_data){.kind = WIRE_CREDIT, .tag = 1}));
    REFUSED(WIRE_CREDIT, (data = (struct wire_data){.kind = WIRE_CREDIT, .number = 1}));
    REFUSED(WIRE_CREDIT, (data = (struct wire_data){.kind = WIRE_CREDIT, .base = 1}));
    REFUSED(WIRE_CREDIT, (data = (struct wire_data){.kind = WIRE_CREDIT, .parts = 1}));
    REFUSED(WIRE_CREDIT, (data = (struct wire_data){.kind = WIRE_CREDIT, .payload_length = 1}));
#undef REFUSED
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_survives_the_trip),
        cmocka_unit_test(test_fields_arrive_where_they_belong),
        cmocka_unit_test(test_H13_a_state_arrives_as_it_was_told),
        cmocka_unit_test(test_H13_every_truncation_and_extension_is_refused),
        cmocka_unit_test(test_H13_every_byte_flip_is_refused_or_canonical),
        cmocka_unit_test(test_H13_values_out_of_range_are_refused),
        cmocka_unit_test(test_H13_a_life_of_nothing_is_refused),
        cmocka_unit_test(test_H13_other_versions_are_refused),
        cmocka_unit_test(test_H13_second_encodings_are_refused),
        cmocka_unit_test(test_H9_negotiate_takes_what_both_have),
        cmocka_unit_test(test_H9_negotiate_refuses_what_cannot_work),
        cmocka_unit_test(test_descriptor_survives_the_trip),
        cmocka_unit_test(test_H13_damaged_descriptors_are_refused),
        cmocka_unit_test(test_descriptor_values_out_of_range_are_refused),
        cmocka_unit_test(test_data_header_survives_the_trip),
        cmocka_unit_test(test_M3_the_class_of_each_kind),
        cmocka_unit_test(test_H13_data_headers_out_of_range_are_refused),
    };

    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
