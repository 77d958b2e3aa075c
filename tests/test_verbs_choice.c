/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_choice.c: which port, address and partition key the verbs backend uses, what it
 * says of itself, and what a QP connects from, over the provider of verbs_fake.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_fake.h"

#include "device.h"
#include "os.h"

#define LINK_LOCAL UINT64_C(0x80fe) /* fe80::/64, as it lies in a GID */

static void set_ipv4(uint32_t index, uint8_t last) {
    fake.gids[index] = (struct ibv_gid_entry){
        .gid.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = last},
        .gid_type = IBV_GID_TYPE_ROCE_V2};
}

static void set_infiniband(uint64_t prefix) {
    fake.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    fake.port.lid = 17;
    memset(fake.gids, 0, sizeof fake.gids);
    fake.gids[0].gid.global.subnet_prefix = prefix;
    fake.gids[0].gid.global.interface_id = 99;
}

static void port_event(struct weir_device *device, enum ibv_event_type type) {
    struct weir_async event;
    fake_event(type, NULL);
    assert_int_equal(verbs_events(device, &event, 1), 0);
}

static struct verbs_address said(const struct weir_qp_granted *granted) {
    struct verbs_address address;
    assert_int_equal(blob_read_address(granted->blob, granted->blob_length, &address), 0);
    return address;
}

/* The route of a QP that connects to where `there` says. */
static struct ibv_ah_attr route(struct weir_device *device, struct weir_qp *qp,
                                const struct weir_qp_granted *there) {
    qp_begin_to(qp, there);
    assert_int_equal(connected(device, qp->tag), 0);
    return fake_qp_of(qp)->rtr.ah_attr;
}

/* The index that a QP has which is made now. */
static uint16_t pkey_index_used(struct weir_device *device) {
    struct weir_qp_granted granted;
    struct weir_qp *qp = qp_create(device, 1, &granted);
    uint16_t index = fake_qp_of(qp)->init.pkey_index;
    assert_int_equal(verbs_qp_destroy(qp), 0);
    return index;
}

/* ---- what a QP connects from ---- */

/* The address changes after a QP's blob was handed out: it is connected from the old one, which
 * its peer was told; those that are made later have the new one. */
static void test_H9_a_qp_connects_from_what_its_blob_says(void **state) {
    (void)state;
    fake_reset();
    fake.numbers_grow = true;
    struct weir_device *device = device_open();
    struct weir_qp_granted of_old, of_new;
    struct weir_qp *old = qp_create(device, 1, &of_old);
    memset(&fake.gids[1], 0, sizeof fake.gids[1]);
    set_ipv4(3, 9);
    port_event(device, IBV_EVENT_GID_CHANGE);
    struct weir_qp *new = qp_create(device, 2, &of_new);
    assert_int_equal(said(&of_old).gid.raw[15], 1);
    assert_int_equal(said(&of_new).gid.raw[15], 9);
    struct ibv_ah_attr from_old = route(device, old, &of_new);
    struct ibv_ah_attr from_new = route(device, new, &of_old);
    assert_int_equal(from_old.is_global, 1);
    assert_int_equal(from_old.grh.sgid_index, 1);
    assert_int_equal(from_old.grh.dgid.raw[15], 9);
    assert_int_equal(from_new.grh.sgid_index, 3);
    assert_int_equal(from_new.grh.dgid.raw[15], 1);
    assert_int_equal(verbs_qp_destroy(old), 0);
    assert_int_equal(verbs_qp_destroy(new), 0);
    device_close(device);
}

/* InfiniBand: whether the peer is on the same subnet is asked of the prefix it was told. */
static void test_H9_subnet_is_that_of_the_blob(void **state) {
    (void)state;
    fake_reset();
    fake.numbers_grow = true;
    set_infiniband(LINK_LOCAL);
    struct weir_device *device = device_open();
    struct weir_qp_granted of_old, of_same, of_new;
    struct weir_qp *old = qp_create(device, 1, &of_old);
    struct weir_qp *same = qp_create(device, 2, &of_same);
    set_infiniband(1234);
    fake.port.lid = 18;
    port_event(device, IBV_EVENT_LID_CHANGE);
    struct weir_qp *new = qp_create(device, 3, &of_new);
    assert_int_equal(said(&of_old).lid, 17);
    assert_int_equal(said(&of_new).lid, 18);
    assert_int_equal(route(device, old, &of_same).is_global, 0);
    struct ibv_ah_attr across = route(device, same, &of_new);
    assert_int_equal(across.is_global, 1);
    assert_int_equal(across.dlid, 18);
    assert_int_equal(route(device, new, &of_new).is_global, 0);
    assert_int_equal(verbs_qp_destroy(old), 0);
    assert_int_equal(verbs_qp_destroy(same), 0);
    assert_int_equal(verbs_qp_destroy(new), 0);
    device_close(device);
}

/* ibv_query_port(3): IBV_QPF_GRH_REQUIRED. */
static void test_H9_ports_that_require_a_grh(void **state) {
    (void)state;
    for (int required = 0; required < 2; required++) {
        fake_reset();
        set_infiniband(LINK_LOCAL);
        fake.port.flags = required ? IBV_QPF_GRH_REQUIRED : 0;
        struct weir_device *device = device_open();
        struct weir_qp_granted granted;
        struct weir_qp *qp = qp_create(device, 1, &granted);
        fake.port.flags = required ? 0 : IBV_QPF_GRH_REQUIRED; /* too late for this one */
        port_event(device, IBV_EVENT_PORT_ACTIVE);
        pkey_index_used(device); /* of another QP */
        struct ibv_ah_attr to_itself = route(device, qp, &granted);
        assert_int_equal(to_itself.is_global, required);
        assert_int_equal(to_itself.dlid, 17);
        if (required) {
            assert_int_equal(to_itself.grh.sgid_index, 0);
            assert_int_equal(to_itself.grh.dgid.global.interface_id, 99);
            assert_in_range(to_itself.grh.hop_limit, 1, 255);
        }
        assert_int_equal(verbs_qp_destroy(qp), 0);
        device_close(device);
    }
}

/* A device that is gone says nothing of its link. */
static void test_M10_whether_the_link_is_down(void **state) {
    (void)state;
    fake_reset();
    struct weir_device *device = device_open();
    assert_false(verbs_link_is_down(device));
    fake.port.state = IBV_PORT_DOWN;
    assert_true(verbs_link_is_down(device));
    fake.port_error = ENODEV;
    assert_false(verbs_link_is_down(device));
    fake.port_error = 0;
    fake.port.state = IBV_PORT_ACTIVE;
    assert_false(verbs_link_is_down(device));
    device_close(device);
}

/* A file of the port, in a tree such as sysfs has. */
static void put_count(const char *root, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "%s/ports/1/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* What the drivers name differently is one figure; what is not there is none. */
static void test_M10_what_the_device_counts(void **state) {
    (void)state;
    static const char *const dirs[] = {"", "/ports", "/ports/1", "/ports/1/counters",
                                       "/ports/1/hw_counters"};
    char root[64] = "/tmp/weir-counts-XXXXXX", path[128], command[96];
    struct weir_device_counts counts;
    fake_reset();
    assert_non_null(mkdtemp(root));
    struct weir_device *device = device_open();
    assert_false(verbs_counts(device, &counts)); /* it has no such tree */
    snprintf(fake_device_of()->ibdev_path, sizeof(fake_device_of()->ibdev_path), "%s", root);
    assert_false(verbs_counts(device, &counts));
    for (size_t i = 1; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", root, dirs[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_false(verbs_counts(device, &counts));
    put_count(root, "rate", "100 Gb/sec (4X EDR)\n");
    put_count(root, "hw_counters/rnr_nak_retry_err", "no number\n");
    assert_false(verbs_counts(device, &counts));
    put_count(root, "hw_counters/rnr_nak_retry_err", "41\n");
    put_count(root, "hw_counters/local_ack_timeout_err", "3\n");
    put_count(root, "hw_counters/packet_seq_err", "4\n");
    assert_true(verbs_counts(device, &counts));
    assert_int_equal(counts.not_ready, 41);
    assert_int_equal(counts.repeats, 7);
    assert_int_equal(counts.sent, 0);
    assert_int_equal(counts.bytes_per_s, 0); /* it says nothing without the bytes */
    put_count(root, "counters/port_xmit_data", "1000000000000\n");
    put_count(root, "counters/port_rcv_data", "7\n");
    assert_true(verbs_counts(device, &counts));
    assert_int_equal(counts.sent, UINT64_C(4000000000000));
    assert_int_equal(counts.received, 28);
    assert_int_equal(counts.bytes_per_s, UINT64_C(12500000000));
    put_count(root, "rate", "2.5 Gb/sec (1X SDR)\n");
    assert_true(verbs_counts(device, &counts));
    assert_int_equal(counts.bytes_per_s, 312500000);
    /* What is there and cannot be read fails the reading. */
    snprintf(path, sizeof(path), "%s/ports/1/hw_counters/to_retransmits", root);
    assert_int_equal(symlink(path, path), 0);
    assert_false(verbs_counts(device, &counts));
    assert_int_equal(unlink(path), 0);
    put_count(root, "rate", "?\n");
    assert_true(verbs_counts(device, &counts));
    assert_int_equal(counts.bytes_per_s, 0);
    device_close(device);
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* The word given of the port cannot be taken back: until it is so again, QPs are not made. */
static void test_H9_a_port_that_is_less_than_was_said(void **state) {
    (void)state;
    fake_reset();
    struct weir_device *device = device_open();
    struct ibv_port_attr before = fake.port;
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    for (int i = 0; i < 3; i++) {
        if (i == 0)
            fake.port.active_mtu = IBV_MTU_512;
        if (i == 1)
            fake.port.state = IBV_PORT_DOWN;
        if (i == 2)
            set_infiniband(LINK_LOCAL);
        port_event(device, IBV_EVENT_PORT_ERR);
        assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), WEIR_EAGAIN);
        fake.port = before;
        set_ipv4(1, 1);
        qp = qp_create(device, 1, &granted); /* it is looked at again without an event */
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    fake.port.active_mtu = IBV_MTU_4096; /* more is no better: peers were told */
    port_event(device, IBV_EVENT_PORT_ACTIVE);
    qp = qp_create(device, 1, &granted);
    struct weir_qp_path path = {
        .mtu = 2048, .rd_atomic = 1, .blob_length = granted.blob_length, .blob = granted.blob};
    assert_int_equal(verbs_qp_connect(qp, &path), WEIR_EINVAL);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_close(device);
}

/* Drivers older than the field say nothing of the link layer of InfiniBand. */
static void test_H9_link_layer_that_is_not_said(void **state) {
    (void)state;
    fake_reset();
    set_infiniband(LINK_LOCAL);
    fake.port.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
    struct weir_device *device = device_open();
    struct weir_qp_granted granted;
    struct weir_qp *qp = qp_create(device, 1, &granted);
    assert_int_equal(said(&granted).fabric, FABRIC_INFINIBAND);
    assert_int_equal(route(device, qp, &granted).dlid, 17);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_close(device);
}

/* ---- partition keys ---- */

static void test_H9_the_default_partition_is_found(void **state) {
    (void)state;
    static const struct {
        uint16_t pkeys[FAKE_ENTRIES];
        uint16_t length, expected;
        bool unreadable;
    } cases[] = {
        {{0xffff}, 8, 0, false},
        {{0x8001, 0xffff}, 8, 1, false},
        {{0x7fff, 0x8001, 0xffff}, 8, 2, false},         /* full membership goes before */
        {{0x8001, 0x7fff, 0x8002}, 8, 1, false},         /* limited, but the default one */
        {{0, 0, 0, 0, 0, 0, 0, 0xffff}, 8, 7, false},    /* the last */
        {{0x8001, 0, 0, 0xffff}, 3, 0, false},           /* behind the end of the table */
        {{0, 0x8000, 0x8001, 0x8002}, 8, 2, false},      /* empty entries are no choice */
        {{0}, 8, 0, false},                              /* nothing there */
        {{0x8001, 0xffff, 0x7fff}, 8, 0, true},          /* cannot be read */
        {{0xffff}, 0, 0, false},                         /* no table */
        {{0x7fff, 0x7fff, 0xffff, 0xffff}, 8, 2, false}, /* the first of them */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_reset();
        memcpy(fake.pkeys, cases[i].pkeys, sizeof fake.pkeys);
        fake.port.pkey_tbl_len = cases[i].length;
        fake.pkeys_unreadable = cases[i].unreadable;
        struct weir_device *device = device_open();
        assert_int_equal(pkey_index_used(device), cases[i].expected);
        device_close(device);
    }
}

/* A subnet manager moves it: QPs that are made later have it where it is. */
static void test_H9_the_partition_table_changes(void **state) {
    (void)state;
    fake_reset();
    struct weir_device *device = device_open();
    assert_int_equal(pkey_index_used(device), 0);
    fake.pkeys[0] = 0x8001;
    fake.pkeys[5] = 0xffff;
    assert_int_equal(pkey_index_used(device), 0); /* nobody said so */
    port_event(device, IBV_EVENT_PKEY_CHANGE);
    assert_int_equal(pkey_index_used(device), 5);
    device_close(device);
}

static void test_settings_pkey_index(void **state) {
    (void)state;
    struct weir_device_caps caps = {0};
    fake_reset();
    fake.pkeys[3] = 0x8123;
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), 0);
    assert_non_null(strstr(caps.note, ", P_Key 0"));
    setenv("WEIR_VERBS_PKEY_INDEX", "3", 1);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), 0);
    assert_non_null(strstr(caps.note, ", P_Key 3"));
    struct weir_device *device = device_open();
    assert_int_equal(pkey_index_used(device), 3);
    device_close(device);
    setenv("WEIR_VERBS_PKEY_INDEX", "2", 1);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_EINVAL);
    assert_string_equal(caps.note, "WEIR_VERBS_PKEY_INDEX=2: fake0 port 1 has no P_Key there");
    setenv("WEIR_VERBS_PKEY_INDEX", "8", 1);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_EINVAL);
    assert_string_equal(caps.note, "WEIR_VERBS_PKEY_INDEX=8: fake0 port 1 has 8");
    setenv("WEIR_VERBS_PKEY_INDEX", "65536", 1);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_EINVAL);
    assert_non_null(strstr(caps.note, "not a number from 0 to 65535"));
    unsetenv("WEIR_VERBS_PKEY_INDEX");
    assert_true(fake.closed);
}

/* ---- what the application names ---- */

static int probe_named(const char *device, const char *port, struct weir_device_caps *caps) {
    struct weir_device_wishes wishes = {.nic = {.count = 2}};
    *caps = (struct weir_device_caps){.note = ""};
    for (int i = 0; i < 2; i++) {
        wishes.nic.parts[i].form = verbs_device_ops.nic[i];
        snprintf(wishes.nic.parts[i].text, sizeof wishes.nic.parts[i].text, "%s",
                 i == 0 ? device : port);
    }
    return verbs_device_ops.probe(&wishes, caps);
}

static void test_W11_the_device_and_the_port_that_are_named(void **state) {
    (void)state;
    struct weir_device_caps caps;
    fake_reset();
    setenv("WEIR_VERBS_DEVICE", "nowhere", 1);
    setenv("WEIR_VERBS_PORT", "9", 1);
    assert_int_equal(probe_named("fake0", "", &caps), 0); /* nor is the port looked at */
    assert_non_null(strstr(caps.note, "fake0 port 1"));
    assert_int_equal(probe_named("fake0", "1", &caps), 0);
    unsetenv("WEIR_VERBS_DEVICE");
    unsetenv("WEIR_VERBS_PORT");
    assert_int_equal(probe_named("fake0", "2", &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "fake0: no port 2 (its last one is 1)");
    assert_int_equal(probe_named("mlx5_9", "", &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "no RDMA device mlx5_9 (there are: fake0)");
    assert_int_equal(probe_named("fake0", "256", &caps), WEIR_EINVAL);
    assert_string_equal(caps.note, "port=256: not a number from 1 to 255");
    fake.absent = true;
    assert_int_equal(probe_named("mlx5_9", "", &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "no RDMA device mlx5_9");
    assert_true(fake.closed);
}

/* ---- what it says of itself ---- */

/* The probe's word on a shared receive queue is what opening gives. */
static void test_probe_knows_of_the_shared_receive_queue(void **state) {
    (void)state;
    for (int setting = 0; setting < 2; setting++) {
        for (int has = 0; has < 3; has++) { /* none, one without room, one */
            struct weir_device_caps probed = {0}, opened = {0};
            fake_reset();
            fake.attr.max_srq = has > 0;
            fake.attr.max_srq_wr = has > 1 ? 1024 : 0;
            setenv("WEIR_VERBS_SRQ", setting != 0 ? "1" : "0", 1);
            assert_int_equal(verbs_device_ops.probe(NULL, &probed), 0);
            struct weir_device *device = device_open();
            verbs_device_ops.query(device, &opened);
            bool expected = setting != 0 && has > 1;
            assert_int_equal(probed.srq, expected);
            assert_int_equal(opened.srq, expected);
            assert_int_equal(probed.last_wqe, expected);
            assert_int_equal(opened.last_wqe, expected);
            device_close(device);
        }
    }
    unsetenv("WEIR_VERBS_SRQ");
}

static void test_devices_that_cannot_read_are_refused(void **state) {
    (void)state;
    struct weir_device_caps caps = {0};
    fake_reset();
    fake.attr.max_qp_init_rd_atom = 0;
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "fake0: does no RDMA reads");
    fake.absent = true;
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "no RDMA device (is its driver loaded?)");
}

/* The longest note has room for all that it says. */
static void test_note_is_whole(void **state) {
    (void)state;
    struct weir_device_caps caps = {0};
    fake_reset();
    memset(fake.gids, 0, sizeof fake.gids);
    for (int i = 0; i < 16; i++)
        fake.gids[7].gid.raw[i] = (uint8_t)(i == 0 ? 0x20 : 0xee);
    fake.gids[7].gid_type = IBV_GID_TYPE_ROCE_V2;
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), 0);
    assert_string_equal(caps.note, "fake0 port 1, RoCE v2, GID 7 "
                                   "20ee:eeee:eeee:eeee:eeee:eeee:eeee:eeee, MTU 1024, P_Key 0");
}

/* ---- what an application asks for ---- */

static struct weir_device *open_wishing(uint32_t inline_bytes, uint32_t cq_depth) {
    struct weir_env env;
    struct weir_device *device = NULL;
    fake_reset();
    fake.inline_most = 200;
    assert_int_equal(os_env_init(&env), 0);
    env.wishes = (struct weir_device_wishes){.inline_bytes = inline_bytes, .cq_depth = cq_depth};
    assert_int_equal(verbs_device_ops.open(&env, &device), 0);
    return device;
}

static void test_inline_bytes_are_those_asked_for(void **state) {
    static const struct {
        uint32_t wish, expected;
    } cases[] = {{0, 128}, {1, 1}, {64, 64}, {200, 200}, {4096, 200}, {WEIR_INLINE_NONE, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_device *device = open_wishing(cases[i].wish, 0);
        struct weir_device_caps caps;
        verbs_device_ops.query(device, &caps);
        assert_int_equal(caps.inline_bytes_max, cases[i].expected);
        device_close(device);
    }
}

/* Never more than the device has (4096 here); and what settings.c lets through as the least is
 * enough for a QP: sends as deep as asked for, and the receives that go with it. */
static void test_M6_cq_depth_is_what_was_asked_for(void **state) {
    static const struct {
        uint32_t wish, capacity, sq_depth_max, srq_depth;
    } cases[] = {{0, 4096, 1024, 1024},    {100000, 4096, 1024, 1024},
                 {2048, 2048, 768, 512},   {4 * 256, 1024, 384, 256},
                 {4 * 100, 400, 150, 100}, {4 * 16, 64, 32, 0}}; /* too few for a shared queue */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_device *device = open_wishing(0, cases[i].wish);
        struct weir_device_caps caps;
        verbs_device_ops.query(device, &caps);
        assert_int_equal(caps.cq_capacity, cases[i].capacity);
        assert_int_equal(caps.sq_depth_max, cases[i].sq_depth_max);
        assert_int_equal(device->srq_depth, cases[i].srq_depth);
        assert_int_equal(caps.srq, cases[i].srq_depth > 0);
        device_close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H9_a_qp_connects_from_what_its_blob_says),
        cmocka_unit_test(test_H9_subnet_is_that_of_the_blob),
        cmocka_unit_test(test_H9_ports_that_require_a_grh),
        cmocka_unit_test(test_H9_a_port_that_is_less_than_was_said),
        cmocka_unit_test(test_M10_whether_the_link_is_down),
        cmocka_unit_test(test_M10_what_the_device_counts),
        cmocka_unit_test(test_H9_link_layer_that_is_not_said),
        cmocka_unit_test(test_H9_the_default_partition_is_found),
        cmocka_unit_test(test_H9_the_partition_table_changes),
        cmocka_unit_test(test_settings_pkey_index),
        cmocka_unit_test(test_W11_the_device_and_the_port_that_are_named),
        cmocka_unit_test(test_probe_knows_of_the_shared_receive_queue),
        cmocka_unit_test(test_devices_that_cannot_read_are_refused),
        cmocka_unit_test(test_note_is_whole),
        cmocka_unit_test(test_inline_bytes_are_those_asked_for),
        cmocka_unit_test(test_M6_cq_depth_is_what_was_asked_for),
    };
    return cmocka_run_group_tests_name("verbs_choice", tests, NULL, NULL);
}
