/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_explain.c: why an engine did not open: weir_open_explain says it in a sentence that
 * names what is wrong, for each way in which weir_engine_open fails here (W9, W10). */
#include "engine_side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Opening fails with this error, and the sentence has each of these words. */
static void explained(const weir_engine_options *options, int error, const char *first,
                      const char *second) {
    char note[WEIR_OPEN_NOTE_MAX] = "";
    weir_engine *engine = NULL;
    int rc = weir_engine_open(options, &engine);
    if (rc != error)
        fail_msg("%s, not %s", weir_error_name(rc), weir_error_name(error));
    assert_int_equal(weir_open_explain(options, rc, note, sizeof(note)), WEIR_OK);
    if (strstr(note, first) == NULL || strstr(note, second) == NULL)
        fail_msg("\"%s\" says nothing of \"%s\" and \"%s\"", note, first, second);
    assert_null(strchr(note, '\n'));
    assert_int_not_equal(note[strlen(note) - 1], '.');
}

static void test_W9_what_is_wrong_in_options_is_named(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    (void)state;
    options.sq_depth = 1;
    explained(&options, WEIR_EINVAL, "sq_depth of the options is 1", "from 2 to 65536");
    options = (weir_engine_options)WEIR_ENGINE_OPTIONS_INIT;
    options.flags = 0x40;
    explained(&options, WEIR_EINVAL, "flags", "0x40 is unknown");
    options.flags = WEIR_ENGINE_SERIAL | WEIR_ENGINE_THREAD;
    explained(&options, WEIR_EINVAL, "WEIR_ENGINE_SERIAL", "WEIR_ENGINE_THREAD");
    options.size = 3;
    explained(&options, WEIR_EINVAL, "size of the options is 3", "WEIR_ENGINE_OPTIONS_INIT");
    setenv("WEIR_PEERS_MAX", "many", 1);
    explained(NULL, WEIR_EINVAL, "WEIR_PEERS_MAX=many", "from 1 to 65535");
    unsetenv("WEIR_PEERS_MAX");
}

static void test_W9_a_device_that_is_not_there_is_named(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    (void)state;
    options.device = "tin cans";
    explained(&options, WEIR_ENODEVICE, "tin cans: not built in", "shm");
    options.device = ":no name";
    explained(&options, WEIR_ENODEVICE, "device :no name: not built in", "shm");
    for (size_t i = 0; weir_device_query(i, &device) == WEIR_OK; i++) {
        if (device.available == WEIR_OK)
            continue;
        options.device = device.name;
        explained(&options, device.available, device.name, device.note);
    }
}

static void test_W9_an_address_that_nobody_can_listen_at_is_named(void **state) {
    struct side side;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    (void)state;
    side_open(&side, NULL);
    options.listen = side.address;
    explained(&options, WEIR_EADDRESS, side.address, strerror(EADDRINUSE));
    side_close(&side);
    options.listen = "192.0.2.1:0"; /* TEST-NET-1, RFC 5737 */
    explained(&options, WEIR_EADDRESS, options.listen, strerror(EADDRNOTAVAIL));
    options.listen = "::1:7000";
    explained(&options, WEIR_EADDRESS, options.listen, "not HOST:PORT");
    options.listen = "[::1]:65536";
    explained(&options, WEIR_EADDRESS, options.listen, "port 65536 is not in");
    options.listen = "here";
    explained(&options, WEIR_EADDRESS, options.listen, "not HOST:PORT");
    options.listen = "nowhere.invalid:7000"; /* RFC 6761 */
    explained(&options, WEIR_EADDRESS, options.listen, ": ");
}

/* Opens with a limit that is too small; the sentence, and what opening failed with. */
static int opened_with(int resource, rlim_t most, char note[WEIR_OPEN_NOTE_MAX]) {
    struct rlimit before, few;
    weir_engine *engine;
    assert_int_equal(getrlimit(resource, &before), 0);
    few = before;
    few.rlim_cur = most;
    assert_int_equal(setrlimit(resource, &few), 0);
    int rc = weir_engine_open(NULL, &engine);
    int explains = weir_open_explain(NULL, rc, note, WEIR_OPEN_NOTE_MAX);
    assert_int_equal(setrlimit(resource, &before), 0);
    assert_true(rc < 0);
    assert_int_equal(explains, WEIR_OK);
    return rc;
}

static void test_W10_descriptors_that_are_short_are_named(void **state) {
    char note[WEIR_OPEN_NOTE_MAX] = "";
    (void)state;
    opened_with(RLIMIT_NOFILE, 8, note);
    assert_non_null(strstr(note, "descriptors are left of 8 (ulimit -n)"));
}

/* An error, and no SIGXFSZ. */
static void test_W10_files_that_may_not_be_long_are_named(void **state) {
    char note[WEIR_OPEN_NOTE_MAX] = "";
    (void)state;
    assert_int_equal(opened_with(RLIMIT_FSIZE, 64000, note), WEIR_ENOMEM);
    assert_non_null(strstr(note, "more than 64 KB (ulimit -f)"));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SHADOWED = 1 }; /* terabytes of address space are taken by others */
#else
enum { SHADOWED = 0 };
#endif

static void test_W10_address_space_that_is_short_is_named(void **state) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    char note[WEIR_OPEN_NOTE_MAX] = "";
    (void)state;
    if (SHADOWED)
        skip();
    assert_int_equal(weir_device_query(0, &device), WEIR_OK);
    assert_true(device.address_bytes > device.engine_bytes);
    assert_int_equal(opened_with(RLIMIT_AS, device.address_bytes, note), WEIR_ENOMEM);
    assert_non_null(strstr(note, "MB of address space"));
    assert_non_null(strstr(note, "(ulimit -v)"));
}

static uint64_t mapped_pages(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%llu", &pages), 1);
    fclose(file);
    return pages;
}

/* weir_device_info.address_bytes is what an engine takes, within a few pages and stacks. */
static void test_W10_address_space_is_as_much_as_it_says(void **state) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_engine *engine;
    (void)state;
    if (SHADOWED)
        skip();
    assert_int_equal(weir_device_query(0, &device), WEIR_OK);
    uint64_t before = mapped_pages();
    assert_int_equal(weir_engine_open(NULL, &engine), WEIR_OK);
    uint64_t taken = (mapped_pages() - before) * (uint64_t)sysconf(_SC_PAGESIZE);
    weir_engine_close(engine);
    assert_in_range(taken, device.address_bytes - (8 << 20), device.address_bytes + (16 << 20));
}

static void test_W9_a_sentence_is_cut_and_always_one(void **state) {
    char note[8];
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    (void)state;
    assert_int_equal(weir_open_explain(NULL, WEIR_EDEVICE, note, sizeof(note)), WEIR_OK);
    assert_int_equal(strlen(note), sizeof(note) - 1);
    assert_int_equal(weir_open_explain(&options, WEIR_EDEVICE, note, 1), WEIR_OK);
    assert_string_equal(note, "");
    assert_int_equal(weir_open_explain(NULL, WEIR_OK, note, sizeof(note)), WEIR_EINVAL);
    assert_int_equal(weir_open_explain(NULL, WEIR_EDEVICE, NULL, sizeof(note)), WEIR_EINVAL);
    assert_int_equal(weir_open_explain(NULL, WEIR_EDEVICE, note, 0), WEIR_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W9_what_is_wrong_in_options_is_named),
        cmocka_unit_test(test_W9_a_device_that_is_not_there_is_named),
        cmocka_unit_test(test_W9_an_address_that_nobody_can_listen_at_is_named),
        cmocka_unit_test(test_W10_descriptors_that_are_short_are_named),
        cmocka_unit_test(test_W10_files_that_may_not_be_long_are_named),
        cmocka_unit_test(test_W10_address_space_that_is_short_is_named),
        cmocka_unit_test(test_W10_address_space_is_as_much_as_it_says),
        cmocka_unit_test(test_W9_a_sentence_is_cut_and_always_one),
    };
    return cmocka_run_group_tests_name("engine_explain", tests, NULL, NULL);
}
