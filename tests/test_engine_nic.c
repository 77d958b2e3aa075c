/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_nic.c: engines of one process on NICs that their options name (W11), through weir.h:
 * the name goes before the environment, each engine has its own, and what is wrong is said. The
 * NICs are those that each Linux has: directories of shm, and interfaces of ofi. */
#define _POSIX_C_SOURCE 200809L
#include "engine_side.h"
#include "weir_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 3 };
static char places[PLACES][32], names[PLACES][64];

static int make_places(void **state) {
    (void)state;
    for (int i = 0; i < PLACES; i++) {
        snprintf(places[i], sizeof(places[i]), "/tmp/weir-nic-XXXXXX");
        if (mkdtemp(places[i]) == NULL)
            return -1;
        snprintf(names[i], sizeof(names[i]), "shm:%.31s", places[i]);
    }
    return 0;
}

static int remove_places(void **state) {
    (void)state;
    for (int i = 0; i < PLACES; i++)
        rmdir(places[i]);
    return 0;
}

static void open_at(struct side *side, const char *device) {
    weir_engine_options options = side_options();
    options.device = device;
    side_open(side, &options);
}

static bool has_device(const char *name) {
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    for (size_t i = 0; weir_device_query(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, name) == 0)
            return info.available == WEIR_OK;
    }
    return false;
}

static weir_device_info chosen(const char *device) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    options.device = device;
    assert_int_equal(weir_device_choose(&options, &info), WEIR_OK);
    return info;
}

/* Two at one place meet, and one at another does not, all in one process. */
static void test_W11_each_engine_has_its_nic(void **state) {
    struct side a, b, c;

    (void)state;
    setenv("WEIR_SHM_DIRECTORY", places[2], 1);
    open_at(&a, names[0]);
    open_at(&b, names[0]);
    open_at(&c, names[1]);
    unsetenv("WEIR_SHM_DIRECTORY");
    side_join(&a, &b);
    weir_segment one = segment_of(&a, 0, 64, 64);
    fill_pattern(a.bytes, 64, 5);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(b.bytes + 64, a.bytes, 64);
    assert_int_equal(weir_peer_open(a.engine, c.address, &a.peer), WEIR_OK);
    weir_peer_connect(a.engine, a.peer);
    weir_event gone = next_event(&a, &c, WEIR_EVENT_GONE);
    assert_int_equal(gone.error, WEIR_EREFUSED);
    pair_close(&a, &b);
    side_close(&c);
}

/* A name is of no other device, and the environment is looked at where nothing is named. */
static void test_W11_the_name_goes_before_the_environment(void **state) {
    (void)state;
    setenv("WEIR_SHM_DIRECTORY", places[2], 1);
    assert_non_null(strstr(chosen("shm").note, places[2]));
    assert_non_null(strstr(chosen(NULL).note, places[2]));
    assert_non_null(strstr(chosen(names[0]).note, places[0]));
    setenv("WEIR_SHM_DIRECTORY", "nonsense", 1);
    assert_int_equal(chosen("shm").available, WEIR_EINVAL);
    assert_int_equal(chosen(names[0]).available, WEIR_OK);
    unsetenv("WEIR_SHM_DIRECTORY");
    assert_null(strstr(chosen("shm").note, places[0]));
}

/* A query's answer about the settings: the value, and whence it is. */
static void test_W11_settings_say_what_is_named(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_setting_info info = WEIR_SETTING_INFO_INIT;
    size_t count = 0;

    (void)state;
    setenv("WEIR_SHM_DIRECTORY", places[2], 1);
    setenv("WEIR_SHM_GROUP", "100", 1);
    options.device = names[1];
    for (; weir_engine_setting_query(&options, count, &info) == WEIR_OK; count++) {
        assert_string_equal(info.name, "shm");
        bool directory = strcmp(info.variable, "WEIR_SHM_DIRECTORY") == 0;
        bool group = strcmp(info.variable, "WEIR_SHM_GROUP") == 0;
        assert_string_equal(info.text, directory ? places[1] : group ? "100" : "");
        assert_int_equal(info.source, directory ? WEIR_SETTING_OPTION
                                      : group   ? WEIR_SETTING_ENVIRONMENT
                                                : WEIR_SETTING_DEFAULT);
        assert_int_equal(info.status, WEIR_OK);
    }
    assert_int_equal(count, 3);
    options.device = "shm:relative";
    assert_int_equal(weir_engine_setting_query(&options, 0, &info), WEIR_OK);
    assert_int_equal(info.status, WEIR_EINVAL);
    assert_string_equal(info.note, "directory=relative: is not an absolute path");
    options.device = "shm:";
    assert_int_equal(weir_engine_setting_query(&options, 0, &info), WEIR_EINVAL);
    options.device = "nonsense:0";
    assert_int_equal(weir_engine_setting_query(&options, 0, &info), WEIR_ENODEVICE);
    assert_int_equal(weir_engine_setting_query(&options, 0, NULL), WEIR_EINVAL);
    options.size = 3;
    assert_int_equal(weir_engine_setting_query(&options, 0, &info), WEIR_EINVAL);
    assert_int_equal(weir_engine_setting_query(NULL, 0, &info), WEIR_OK);
    assert_string_equal(info.text, places[2]); /* the default device */
    unsetenv("WEIR_SHM_DIRECTORY");
    unsetenv("WEIR_SHM_GROUP");
}

static void test_W11_the_choice_has_the_limits_of_the_options(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_device_info small = WEIR_DEVICE_INFO_INIT, usual = WEIR_DEVICE_INFO_INIT;

    (void)state;
    assert_int_equal(weir_device_query(0, &usual), WEIR_OK);
    options.peers_max = 2;
    assert_int_equal(weir_device_choose(&options, &small), WEIR_OK);
    assert_string_equal(small.name, usual.name);
    assert_true(small.engine_bytes < usual.engine_bytes);
    assert_int_equal(weir_device_choose(NULL, &small), WEIR_OK);
    assert_int_equal(small.engine_bytes, usual.engine_bytes);
    assert_int_equal(weir_device_choose(NULL, NULL), WEIR_EINVAL);
    options.size = 3;
    assert_int_equal(weir_device_choose(&options, &small), WEIR_EINVAL);
    options = (weir_engine_options)WEIR_ENGINE_OPTIONS_INIT;
    options.device = "nonsense";
    assert_int_equal(weir_device_choose(&options, &small), WEIR_ENODEVICE);
    weir_device_info best = chosen("auto");
    assert_int_equal(best.available, WEIR_OK);
}

/* Opening fails with this error, and the line is this one. */
static void refused(const char *device, int error, const char *says) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine = NULL;
    char note[WEIR_OPEN_NOTE_MAX] = "";

    options.device = device;
    int rc = weir_engine_open(&options, &engine);
    if (rc != error)
        fail_msg("%s: %s, not %s", device, weir_error_name(rc), weir_error_name(error));
    assert_int_equal(weir_open_explain(&options, rc, note, sizeof(note)), WEIR_OK);
    if (strstr(note, says) == NULL)
        fail_msg("%s: \"%s\" says nothing of \"%s\"", device, note, says);
    assert_null(strchr(note, '\n'));
    if (rc == WEIR_ENODEVICE && strncmp(device, "nonsense", 8) == 0)
        return;
    weir_device_info info = chosen(device);
    assert_int_equal(info.available, error);
    assert_non_null(strstr(note, info.note));
}

static void test_W11_what_is_wrong_is_one_line(void **state) {
    char longest[100];

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    memcpy(longest, "shm:/", 5);
    refused("shm:", WEIR_EINVAL, "device shm:: invalid argument: no directory is named behind");
    refused("shm:here", WEIR_EINVAL, "directory=here: is not an absolute path");
    refused("shm:/nowhere", WEIR_EINVAL, "directory=/nowhere: No such file or directory");
    refused("shm:/proc/self/stat", WEIR_EINVAL, "is no directory");
    refused("shm:/proc", WEIR_ENODEVICE, "directory=/proc: user");
    refused(longest, WEIR_EINVAL, "the directory is longer than 63 characters");
    refused("auto:eth0", WEIR_EINVAL, "device auto:eth0: invalid argument: what it takes");
    refused("nonsense:eth0", WEIR_ENODEVICE, "device nonsense: not built in; there is shm");
}

static void test_W11_ofi_takes_the_interface_that_is_named(void **state) {
    struct side a, b;

    (void)state;
    if (!has_device("ofi"))
        skip();
    refused("ofi:", WEIR_EINVAL, "no domain is named behind the colon");
    refused("ofi:lo/", WEIR_EINVAL, "no address is named behind the slash");
    refused("ofi:nowhere0", WEIR_ENODEVICE, "no domain nowhere0 (there are: ");
    refused("ofi:lo/localhost", WEIR_EINVAL, "address=localhost is no IP address");
    refused("ofi:lo/203.0.113.77", WEIR_ENODEVICE, "no address 203.0.113.77 (there are: ");
    setenv("WEIR_OFI_DOMAIN", "nowhere0", 1);
    setenv("WEIR_OFI_ADDRESS", "203.0.113.77", 1);
    assert_non_null(strstr(chosen("ofi:lo").note, "tcp on lo, address "));
    assert_non_null(strstr(chosen("ofi:lo/127.0.0.1").note, "tcp on lo, address 127.0.0.1"));
    open_at(&a, "ofi:lo");
    open_at(&b, "ofi:lo/127.0.0.1");
    unsetenv("WEIR_OFI_DOMAIN");
    unsetenv("WEIR_OFI_ADDRESS");
    side_join(&a, &b);
    weir_segment one = segment_of(&a, 0, 0, 100);
    fill_pattern(a.bytes, 100, 6);
    assert_int_equal(write_now(&a, &b, &one, 1, NULL), WEIR_OK);
    assert_memory_equal(b.bytes, a.bytes, 100);
    pair_close(&a, &b);
}

static void test_W11_verbs_says_what_there_is(void **state) {
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    bool built = false;

    (void)state;
    for (size_t i = 0; weir_device_query(i, &info) == WEIR_OK; i++)
        built |= strcmp(info.name, "verbs") == 0;
    if (!built)
        skip();
    refused("verbs:none_9", WEIR_ENODEVICE, "no RDMA device none_9");
    refused("verbs:mlx5_0/many", WEIR_EINVAL, "port=many: not a number from 1 to 255");
    refused("verbs:mlx5_0/1/2", WEIR_EINVAL, "port=1/2: not a number from 1 to 255");
    refused("verbs:mlx5_0/", WEIR_EINVAL, "no port is named behind the slash");
    refused("verbs:/1", WEIR_EINVAL, "no device is named behind the colon");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W11_each_engine_has_its_nic),
        cmocka_unit_test(test_W11_the_name_goes_before_the_environment),
        cmocka_unit_test(test_W11_settings_say_what_is_named),
        cmocka_unit_test(test_W11_the_choice_has_the_limits_of_the_options),
        cmocka_unit_test(test_W11_what_is_wrong_is_one_line),
        cmocka_unit_test(test_W11_ofi_takes_the_interface_that_is_named),
        cmocka_unit_test(test_W11_verbs_says_what_there_is),
    };
    return cmocka_run_group_tests(tests, make_places, remove_places);
}
