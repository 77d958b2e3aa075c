/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs.c: the parts of the verbs backend that need no device: settings, blobs, the ranking of
 * addresses, and what it says without a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "verbs.h"

/* ---- settings ---- */

static const char *fake_name;
static char fake_value[128];

static char *fake_getenv(const char *name) {
    return fake_name != NULL && strcmp(name, fake_name) == 0 ? fake_value : NULL;
}

static const struct setting_source fake_source = {.get = fake_getenv};

static int read_with(const char *name, const char *value, struct verbs_settings *settings,
                     char *note) {
    fake_name = name;
    snprintf(fake_value, sizeof fake_value, "%s", value);
    note[0] = '\0';
    return settings_read(&fake_source, settings, note);
}

static void test_M4_defaults_are_finite(void **state) {
    (void)state;
    struct verbs_settings settings;
    char note[VERBS_NOTE_MAX];
    assert_int_equal(read_with(NULL, "", &settings, note), 0);
    assert_string_equal(settings.device, "");
    assert_int_equal(settings.port, VERBS_UNSET);
    assert_int_equal(settings.gid_index, VERBS_UNSET);
    assert_int_equal(settings.pkey_index, VERBS_UNSET);
    assert_int_equal(settings.mtu, VERBS_UNSET);
    assert_in_range(settings.timeout, 1, 31);
    assert_in_range(settings.retry_cnt, 1, 7);
    assert_in_range(settings.rnr_retry, 1, 6);
    assert_in_range(settings.min_rnr_timer, 1, 31);
}

/* The description of each variable: as settings_read has it. */
static void test_settings_are_described(void **state) {
    struct weir_device_setting setting;
    (void)state;
    fake_name = NULL;
    uint32_t count = 0;
    for (; verbs_setting(count, &fake_source, &setting); count++) {
        assert_string_equal(setting.device, "verbs");
        assert_int_equal(strncmp(setting.variable, "WEIR_VERBS_", 11), 0);
        assert_true(strlen(setting.what) > 4);
        assert_int_equal(setting.value, setting.fallback);
        assert_true(setting.fallback == UINT64_MAX ||
                    (setting.fallback >= setting.least && setting.fallback <= setting.most));
        assert_false(setting.is_set);
        assert_int_equal(setting.status, WEIR_OK);
        assert_string_equal(setting.note, "");
        assert_string_equal(setting.text, "");
    }
    assert_int_equal(count, 12);
    assert_false(verbs_setting(SIZE_MAX, &fake_source, &setting));
    fake_name = "WEIR_VERBS_MTU";
    strcpy(fake_value, "1024");
    assert_true(verbs_setting(3, &fake_source, &setting));
    assert_string_equal(setting.variable, fake_name);
    assert_true(setting.is_set && setting.value == 1024 && setting.fallback == UINT64_MAX);
    assert_true(setting.least == 256 && setting.most == 4096);
    strcpy(fake_value, "1500");
    assert_true(verbs_setting(3, &fake_source, &setting));
    assert_int_equal(setting.status, WEIR_EINVAL);
    assert_int_equal(setting.value, UINT64_MAX);
    assert_string_equal(setting.note, "WEIR_VERBS_MTU=1500: not 256, 512, 1024, 2048 or 4096");
    strcpy(fake_value, "\xff\nWEIR_FAKE");
    assert_true(verbs_setting(3, &fake_source, &setting));
    assert_string_equal(setting.note,
                        "WEIR_VERBS_MTU=??WEIR_FAKE: not 256, 512, 1024, 2048 or 4096");
    fake_name = "WEIR_VERBS_DEVICE";
    strcpy(fake_value, "rxe\n\xff_0");
    assert_true(verbs_setting(11, &fake_source, &setting));
    assert_string_equal(setting.variable, fake_name);
    assert_string_equal(setting.text, "rxe??_0");
    assert_int_equal(setting.most, 0);
}

static void test_settings_are_validated(void **state) {
    (void)state;
    static const struct {
        const char *name, *low, *high, *below, *above;
    } cases[] = {
        {"WEIR_VERBS_PORT", "1", "255", "0", "256"},
        {"WEIR_VERBS_GID_INDEX", "0", "255", "-1", "256"},
        {"WEIR_VERBS_PKEY_INDEX", "0", "65535", "-1", "65536"},
        {"WEIR_VERBS_MTU", "256", "4096", "255", "4097"},
        {"WEIR_VERBS_TRAFFIC_CLASS", "0", "255", "-1", "256"},
        {"WEIR_VERBS_SERVICE_LEVEL", "0", "15", "-1", "16"},
        {"WEIR_VERBS_TIMEOUT", "1", "31", "0", "32"},
        {"WEIR_VERBS_RETRY_CNT", "0", "7", "-1", "8"},
        {"WEIR_VERBS_RNR_RETRY", "0", "6", "-1", "7"},
        {"WEIR_VERBS_MIN_RNR_TIMER", "1", "31", "0", "32"},
        {"WEIR_VERBS_SRQ", "0", "1", "-1", "2"},
    };
    struct verbs_settings settings;
    char note[VERBS_NOTE_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(read_with(NULL, "", &settings, note), 0);
        assert_int_equal(read_with(cases[i].name, cases[i].low, &settings, note), 0);
        assert_int_equal(read_with(cases[i].name, cases[i].high, &settings, note), 0);
        const char *bad[] = {cases[i].below, cases[i].above,        "x", "1x", "", " 1", "0x1",
                             "+1",           "99999999999999999999"};
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            assert_int_equal(read_with(cases[i].name, bad[k], &settings, note), WEIR_EINVAL);
            assert_non_null(strstr(note, cases[i].name));
        }
    }
    assert_int_equal(read_with("WEIR_VERBS_MTU", "1500", &settings, note), WEIR_EINVAL);
    assert_int_equal(read_with("WEIR_VERBS_DEVICE", "mlx5_0", &settings, note), 0);
    assert_string_equal(settings.device, "mlx5_0");
    char name[100];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(read_with("WEIR_VERBS_DEVICE", name, &settings, note), WEIR_EINVAL);
}

/* ---- blobs ---- */

static const struct verbs_address roce = {
    .qpn = 17,
    .fabric = FABRIC_ROCE,
    .gid.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [14] = 0, [15] = 1}};
static const struct verbs_address infiniband = {
    .qpn = 0xfffffe, .lid = 0xbfff, .fabric = FABRIC_INFINIBAND};

static int read_back(struct verbs_address address) {
    uint8_t blob[WEIR_QP_BLOB_MAX];
    struct verbs_address back;
    uint32_t length = blob_write_address(&address, blob);
    int rc = blob_read_address(blob, length, &back);
    if (rc == 0) {
        assert_int_equal(back.qpn, address.qpn);
        assert_int_equal(back.lid, address.lid);
        assert_int_equal(back.fabric, address.fabric);
        assert_memory_equal(back.gid.raw, address.gid.raw, 16);
    }
    return rc;
}

static void test_H13_addresses_are_checked(void **state) {
    (void)state;
    assert_int_equal(read_back(roce), 0);
    assert_int_equal(read_back(infiniband), 0);
    struct verbs_address bad = roce;
    static const uint32_t numbers[] = {0, 1, 0xffffff, 0x1000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        bad.qpn = numbers[i];
        assert_int_equal(read_back(bad), WEIR_EINVAL);
    }
    bad = roce;
    memset(bad.gid.raw, 0, 16);
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    bad.gid.raw[0] = 0xff;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    bad = infiniband;
    bad.lid = 0;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    bad.lid = 0xc000;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    bad = roce;
    bad.fabric = FABRIC_IWARP;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
}

static const struct verbs_address iwarp = {
    .fabric = FABRIC_IWARP,
    .gid.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [14] = 0, [15] = 1},
    .tcp_port = 0x8001,
    .cookie = UINT64_C(0xfedcba9876543210),
    .fence = UINT64_C(0x7fff123456789008),
    .fence_key = UINT32_MAX};

/* On memory of just that length. */
static int read_exactly(const uint8_t *blob, uint32_t length, struct verbs_address *address_out) {
    uint8_t *exact = malloc(length > 0 ? length : 1);
    assert_non_null(exact);
    memcpy(exact, blob, length);
    int rc = blob_read_address(exact, length, address_out);
    free(exact);
    return rc;
}

static void test_H13_iwarp_addresses_are_checked(void **state) {
    (void)state;
    uint8_t blob[WEIR_QP_BLOB_MAX] = {0};
    struct verbs_address back;
    uint32_t length = blob_write_address(&iwarp, blob);
    for (uint32_t cut = 0; cut <= WEIR_QP_BLOB_MAX; cut++)
        assert_int_equal(read_exactly(blob, cut, &back), cut == length ? 0 : WEIR_EINVAL);
    assert_int_equal(read_exactly(blob, length, &back), 0);
    assert_int_equal(back.fabric, FABRIC_IWARP);
    assert_memory_equal(back.gid.raw, iwarp.gid.raw, 16);
    assert_int_equal(back.tcp_port, iwarp.tcp_port);
    assert_int_equal(back.cookie, iwarp.cookie);
    assert_int_equal(back.fence, iwarp.fence);
    assert_int_equal(back.fence_key, iwarp.fence_key);
    struct verbs_address bad = iwarp;
    bad.cookie = 0;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    bad = iwarp;
    bad.tcp_port = 0;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    bad = iwarp;
    bad.gid.raw[12] = 224;
    assert_int_equal(read_back(bad), WEIR_EINVAL);
    memset(bad.gid.raw, 0, 16);
    assert_int_equal(read_back(bad), WEIR_EINVAL);
}

/* Any byte wrong: it is refused, or it says something else that is possible, all of it. */
static void test_H13_iwarp_addresses_with_a_wrong_byte(void **state) {
    (void)state;
    uint8_t good[WEIR_QP_BLOB_MAX], blob[WEIR_QP_BLOB_MAX], again[WEIR_QP_BLOB_MAX];
    uint32_t length = blob_write_address(&iwarp, good), taken = 0;
    for (uint32_t at = 0; at < length; at++) {
        for (unsigned change = 1; change < 256; change++) {
            struct verbs_address back;
            memcpy(blob, good, length);
            blob[at] ^= (uint8_t)change;
            if (read_exactly(blob, length, &back) != 0)
                continue;
            assert_true(at >= 4); /* the magic */
            assert_int_equal(back.fabric, FABRIC_IWARP);
            assert_true(back.cookie != 0 && back.tcp_port != 0);
            assert_int_not_equal(gid_rank(&back.gid), GID_UNUSABLE);
            assert_int_equal(blob_write_address(&back, again), length);
            assert_memory_equal(again, blob, length);
            taken++;
        }
    }
    assert_true(taken > 0);
}

static void test_H13_regions_are_checked(void **state) {
    (void)state;
    struct verbs_region region = {.base = 4096, .length = 100, .rkey = 5, .access = 3}, back;
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t length = blob_write_region(&region, blob);
    assert_int_equal(blob_read_region(blob, length, &back), 0);
    assert_int_equal(back.base, 4096);
    assert_int_equal(back.length, 100);
    assert_int_equal(back.rkey, 5);
    assert_int_equal(back.access, 3);
    for (uint32_t cut = 0; cut < length; cut++)
        assert_int_equal(blob_read_region(blob, cut, &back), WEIR_EINVAL);
    assert_int_equal(blob_read_address(blob, length, &(struct verbs_address){0}), WEIR_EINVAL);
    region.length = UINT64_MAX - 4095;
    blob_write_region(&region, blob);
    assert_int_equal(blob_read_region(blob, length, &back), WEIR_EINVAL);
    region.length = 0;
    blob_write_region(&region, blob);
    assert_int_equal(blob_read_region(blob, length, &back), WEIR_EINVAL);
    region = (struct verbs_region){.base = 4096, .length = 100, .access = 4};
    blob_write_region(&region, blob);
    assert_int_equal(blob_read_region(blob, length, &back), WEIR_EINVAL);
}

/* ---- addresses ---- */

static int rank_of(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = a, [13] = b, [14] = c, [15] = d}};
    return gid_rank(&gid);
}

static void test_gids_are_ranked(void **state) {
    (void)state;
    assert_int_equal(rank_of(10, 77, 0, 1), GID_IPV4);
    assert_int_equal(rank_of(192, 168, 0, 1), GID_IPV4);
    assert_int_equal(rank_of(169, 254, 3, 4), GID_LINK_LOCAL);
    assert_int_equal(rank_of(0, 0, 0, 1), GID_UNUSABLE);
    assert_int_equal(rank_of(224, 0, 0, 1), GID_UNUSABLE);
    union ibv_gid gid = {.raw = {0x20, 0x01, [15] = 1}};
    assert_int_equal(gid_rank(&gid), GID_GLOBAL);
    gid.raw[0] = 0xfd; /* unique local */
    assert_int_equal(gid_rank(&gid), GID_GLOBAL);
    gid.raw[0] = 0xfe;
    gid.raw[1] = 0x80;
    assert_int_equal(gid_rank(&gid), GID_LINK_LOCAL);
    gid.raw[1] = 0xbf;
    assert_int_equal(gid_rank(&gid), GID_LINK_LOCAL);
    assert_true(GID_IPV4 > GID_GLOBAL && GID_GLOBAL > GID_LINK_LOCAL);
}

static void test_mtu_codes(void **state) {
    (void)state;
    for (uint32_t bytes = 0; bytes <= 5000; bytes++) {
        bool is_mtu = bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) == 0;
        assert_int_equal(mtu_code(bytes) != 0, is_mtu);
        if (is_mtu)
            assert_int_equal(128u << mtu_code(bytes), bytes);
    }
}

/* ---- without the device that is asked for ---- */

static void test_probe_says_why(void **state) {
    (void)state;
    struct weir_device_caps caps = {0};
    setenv("WEIR_VERBS_DEVICE", "no_such_device", 1);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_ENODEVICE);
    assert_string_equal(caps.note, "no RDMA device no_such_device");
    setenv("WEIR_VERBS_TIMEOUT", "soon", 1);
    assert_int_equal(verbs_device_ops.probe(NULL, &caps), WEIR_EINVAL);
    assert_non_null(strstr(caps.note, "WEIR_VERBS_TIMEOUT=soon"));
    struct weir_device *device = NULL;
    const struct weir_env env = {.ops = NULL};
    assert_int_equal(verbs_device_ops.open(&env, &device), WEIR_EINVAL);
    unsetenv("WEIR_VERBS_TIMEOUT");
    assert_int_equal(verbs_device_ops.open(&env, &device), WEIR_ENODEVICE);
    assert_null(device);
    unsetenv("WEIR_VERBS_DEVICE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M4_defaults_are_finite),
        cmocka_unit_test(test_settings_are_described),
        cmocka_unit_test(test_settings_are_validated),
        cmocka_unit_test(test_H13_addresses_are_checked),
        cmocka_unit_test(test_H13_iwarp_addresses_are_checked),
        cmocka_unit_test(test_H13_iwarp_addresses_with_a_wrong_byte),
        cmocka_unit_test(test_H13_regions_are_checked),
        cmocka_unit_test(test_gids_are_ranked),
        cmocka_unit_test(test_mtu_codes),
        cmocka_unit_test(test_probe_says_why),
    };
    return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
