/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_options.c: the settings of an engine: every number of weir_engine_options and its
 * environment variable at its bounds and beyond, who goes before whom, and what is said of one that
 * is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "settings.h"
#include "state.h"

#define AUTO WEIR_SETTING_AUTO
#define HOUR UINT64_C(3600000)

/* The promises, once more; the rest is as it is by default. */
struct promise {
    const char *name;
    size_t offset, bytes;
    const char *variable;
    uint64_t scale, least, most, fallback;
};
#define ROW(name)                                                                                  \
#name, offsetof(weir_engine_options, name), sizeof(((weir_engine_options *)0)->name)
static const struct promise promises[] = {
    {ROW(sq_depth), "WEIR_SQ_DEPTH", 1, 2, 65536, 256},
    {ROW(qp_count), "WEIR_QP_COUNT", 1, 1, 16, 1},
    {ROW(chain_max), "WEIR_CHAIN_MAX", 1, 1, 65536, 512},
    {ROW(signal_interval), "WEIR_SIGNAL_INTERVAL", 1, 1, 65536, AUTO},
    {ROW(inline_bytes), "WEIR_INLINE_BYTES", 1, 0, 4096, AUTO},
    {ROW(recv_credits), "WEIR_RECV_CREDITS", 1, 1, 512, 64},
    {ROW(cq_depth), "WEIR_CQ_DEPTH", 1, 1024, 4194304, AUTO},
    {ROW(poll_budget), "WEIR_POLL_BUDGET", 1, 1, 65536, 256},
    {ROW(inflight_bytes_max), "WEIR_INFLIGHT_BYTES_MAX", 1, 1, UINT64_C(1) << 36, 256 << 20},
    {ROW(transfers_max), "WEIR_TRANSFERS_MAX", 1, 1, 1048575, 4096},
    {ROW(segments_max), "WEIR_SEGMENTS_MAX", 1, 1, 268435456, 262144},
    {ROW(peers_max), "WEIR_PEERS_MAX", 1, 1, 65535, 1024},
    {ROW(memories_max), "WEIR_MEMORIES_MAX", 1, 1, 65535, 4096},
    {ROW(remotes_max), "WEIR_REMOTES_MAX", 1, 1, 1048576, 65536},
    {ROW(names_max), "WEIR_NAMES_MAX", 1, 1, 65535, 4096},
    {ROW(notifications_max), "WEIR_NOTIFICATIONS_MAX", 1, 1, 1048576, 4096},
    {ROW(connect_timeout_ns), "WEIR_CONNECT_TIMEOUT_MS", 1000000, 1, HOUR, 10000},
    {ROW(retransmit_ns), "WEIR_RETRANSMIT_MS", 1000000, 1, HOUR, 20},
    {ROW(teardown_timeout_ns), "WEIR_TEARDOWN_TIMEOUT_MS", 1000000, 1, HOUR, 4000},
    {ROW(settle_grace_ns), "WEIR_SETTLE_GRACE_MS", 1000000, 1, HOUR, 100},
    {ROW(stall_timeout_ns), "WEIR_STALL_TIMEOUT_MS", 1000000, 1, HOUR, 10000},
    {ROW(watchdog_ns), "WEIR_WATCHDOG_MS", 1000000, 0, HOUR, 1000},
    {ROW(backoff_timeout_ns), "WEIR_SQ_BACKOFF_TIMEOUT_US", 1000, 1, HOUR * 1000, 10000},
};
enum { PROMISES = sizeof(promises) / sizeof(promises[0]) };

static const char *const junk[] = {
    "",    " ",   "x",    "-1",  "-0",      "+2",     " 2", "2 ",  "2x",
    "0x2", "2.0", "2e1",  "2,0", "2\n",     "\n2",    "2K", "two", "99999999999999999999",
    "ff",  "2 3", "\xc3", "'2'", "2\x1b[m", "--help",
};
enum { JUNK = sizeof(junk) / sizeof(junk[0]) };

/* ---- an environment ---- */

static const char *set_name[2];
static char set_value[2][64];

static char *get(const char *name) {
    for (int i = 0; i < 2; i++) {
        if (set_name[i] != NULL && strcmp(set_name[i], name) == 0)
            return set_value[i];
    }
    return NULL;
}

static void set(int i, const char *name, const char *value) {
    set_name[i] = name;
    snprintf(set_value[i], sizeof(set_value[i]), "%s", value != NULL ? value : "");
}

static void set_number(int i, const char *name, uint64_t value) {
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    set(i, name, text);
}

static int clear(void **state) {
    (void)state;
    set(0, NULL, NULL);
    set(1, NULL, NULL);
    for (size_t i = 0; i < PROMISES; i++)
        unsetenv(promises[i].variable);
    return 0;
}

static uint64_t field(const struct promise *promise, const weir_engine_options *options) {
    uint64_t wide;
    uint32_t narrow;
    const char *at = (const char *)options + promise->offset;
    memcpy(&wide, at, promise->bytes == 8 ? 8 : 4);
    memcpy(&narrow, at, 4);
    return promise->bytes == 8 ? wide : narrow;
}

static void field_set(const struct promise *promise, weir_engine_options *options, uint64_t value) {
    uint32_t narrow = (uint32_t)value;
    char *at = (char *)options + promise->offset;
    if (promise->bytes == 8)
        memcpy(at, &value, 8);
    else
        memcpy(at, &narrow, 4);
}

/* The value of an option in force, where it is set to this. */
static uint64_t in_force(const struct promise *promise, uint64_t value) {
    if (value == AUTO)
        return 0;
    if (value == 0)
        return promise->bytes == 8 ? WEIR_WATCHDOG_NONE : WEIR_INLINE_NONE;
    if (strcmp(promise->name, "chain_max") == 0 && value > 512)
        return 512;
    return value * promise->scale;
}

/* ---- the table ---- */

static void assert_environment(const struct promise *promise, uint64_t value, bool good) {
    weir_engine_options out;
    set_number(0, promise->variable, value);
    assert_int_equal(settings_resolve(NULL, get, &out, NULL), good ? WEIR_OK : WEIR_EINVAL);
    if (good)
        assert_int_equal(field(promise, &out), in_force(promise, value));
    clear(NULL);
}

static void test_every_variable_at_its_bounds(void **state) {
    weir_engine_options out;
    (void)state;
    assert_int_equal(settings_count, PROMISES);
    for (size_t i = 0; i < PROMISES; i++) {
        const struct promise *promise = &promises[i];
        assert_int_equal(settings_resolve(NULL, get, &out, NULL), WEIR_OK);
        assert_int_equal(field(promise, &out), in_force(promise, promise->fallback));
        if (promise->offset != offsetof(weir_engine_options, qp_count) &&
            promise->offset != offsetof(weir_engine_options, recv_credits)) {
            assert_environment(promise, promise->most, true);
        }
        assert_environment(promise, promise->least, true);
        assert_environment(promise, promise->most + 1, false);
        if (promise->least > 0)
            assert_environment(promise, promise->least - 1, false);
        assert_environment(promise, UINT64_MAX, false);
        if (promise->most >= UINT64_C(1) << 32)
            continue;
        assert_environment(promise, UINT64_C(1) << 32, false);
        assert_environment(promise, (UINT64_C(1) << 32) + promise->least, false);
    }
    assert_environment(&promises[1], 8, true); /* at 16 the default of recv_credits is less */
    assert_environment(&promises[1], 16, true);
    assert_environment(&promises[5], 512, true);
}

static void test_every_option_at_its_bounds(void **state) {
    (void)state;
    for (size_t i = 0; i < PROMISES; i++) {
        const struct promise *promise = &promises[i];
        weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT, out, again;
        field_set(promise, &in, promise->most * promise->scale);
        assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_OK);
        assert_int_equal(field(promise, &out), in_force(promise, promise->most));
        assert_int_equal(settings_resolve(&out, get, &again, NULL), WEIR_OK);
        assert_memory_equal(&out, &again, sizeof(out)); /* it is complete */
        if (promise->least > 0) {
            field_set(promise, &in, promise->scale > 1 ? 1 : promise->least);
            assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_OK);
            assert_int_equal(field(promise, &out), promise->scale > 1 ? 1 : promise->least);
        }
        field_set(promise, &in, promise->most * promise->scale + 1);
        assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_EINVAL);
        field_set(promise, &in, (promise->bytes == 8 ? UINT64_MAX : UINT32_MAX) - 1);
        assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_EINVAL);
        if (promise->scale == 1 && promise->least > 1) {
            field_set(promise, &in, promise->least - 1);
            assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_EINVAL);
        }
        weir_engine *engine;
        assert_int_equal(weir_engine_open(&in, &engine), WEIR_EINVAL);
    }
}

static void test_inline_none_is_zero(void **state) {
    weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT, out;
    struct setting_report reports[SETTINGS_MAX];
    (void)state;
    in.inline_bytes = WEIR_INLINE_NONE;
    set_number(0, "WEIR_INLINE_BYTES", 64);
    assert_int_equal(settings_resolve(&in, get, &out, reports), WEIR_OK);
    assert_int_equal(out.inline_bytes, WEIR_INLINE_NONE);
    assert_int_equal(reports[4].value, 0);
    assert_int_equal(reports[4].source, WEIR_SETTING_OPTION);
    for (size_t i = 0; i < PROMISES; i++) { /* of the others it is only a large number */
        weir_engine_options other = WEIR_ENGINE_OPTIONS_INIT;
        if (promises[i].bytes == 8 || strcmp(promises[i].name, "inline_bytes") == 0)
            continue;
        field_set(&promises[i], &other, UINT32_MAX);
        assert_int_equal(settings_resolve(&other, NULL, &out, NULL), WEIR_EINVAL);
    }
}

static void test_junk_is_refused_with_variable_value_and_range(void **state) {
    weir_engine_options out;
    struct setting_report reports[SETTINGS_MAX];
    char range[64];
    (void)state;
    for (size_t i = 0; i < PROMISES; i++) {
        for (size_t k = 0; k < JUNK; k++) {
            set(0, promises[i].variable, junk[k]);
            assert_int_equal(settings_resolve(NULL, get, &out, reports), WEIR_EINVAL);
            for (size_t r = 0; r < PROMISES; r++)
                assert_int_equal(reports[r].status, r == i ? WEIR_EINVAL : WEIR_OK);
            snprintf(range, sizeof(range), "from %llu to %llu",
                     (unsigned long long)promises[i].least, (unsigned long long)promises[i].most);
            assert_non_null(strstr(reports[i].note, range));
            size_t length = strlen(promises[i].variable);
            assert_memory_equal(reports[i].note, promises[i].variable, length);
            assert_int_equal(reports[i].note[length], '=');
            for (const char *c = reports[i].note; *c != '\0'; c++)
                assert_in_range(*c, ' ', '~'); /* one line, whatever was in it */
            assert_int_equal(reports[i].value, promises[i].fallback);
            assert_int_equal(field(&promises[i], &out),
                             in_force(&promises[i], promises[i].fallback));
        }
    }
}

static void test_leading_zeros_are_digits(void **state) {
    weir_engine_options out;
    (void)state;
    set(0, "WEIR_SQ_DEPTH", "000512");
    assert_int_equal(settings_resolve(NULL, get, &out, NULL), WEIR_OK);
    assert_int_equal(out.sq_depth, 512);
}

/* ---- what follows from others ---- */

static void test_credits_of_many_qps(void **state) {
    weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT, out;
    struct setting_report reports[SETTINGS_MAX];
    (void)state;
    set_number(0, "WEIR_QP_COUNT", 16);
    assert_int_equal(settings_resolve(NULL, get, &out, NULL), WEIR_OK);
    assert_int_equal(out.recv_credits, 32);
    set_number(1, "WEIR_RECV_CREDITS", 32);
    assert_int_equal(settings_resolve(NULL, get, &out, NULL), WEIR_OK);
    set_number(1, "WEIR_RECV_CREDITS", 33);
    assert_int_equal(settings_resolve(NULL, get, &out, reports), WEIR_EINVAL);
    assert_string_equal(reports[5].note,
                        "WEIR_RECV_CREDITS=33: not a whole number from 1 to 32 (512 / qp_count)");
    in.qp_count = 15;
    assert_int_equal(settings_resolve(&in, get, &out, NULL), WEIR_OK);
    assert_int_equal(out.recv_credits, 33);
}

/* A CQ that the QPs of one endpoint do not fit in is of no use to anybody. */
static void test_M6_a_cq_holds_an_endpoint(void **state) {
    weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT, out;
    struct setting_report reports[SETTINGS_MAX];
    (void)state;
    in.qp_count = 4;
    in.sq_depth = 512;
    in.cq_depth = 4 * 4 * 512;
    assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_OK);
    in.cq_depth--;
    assert_int_equal(settings_resolve(&in, NULL, &out, reports), WEIR_EINVAL);
    assert_string_equal(reports[6].note,
                        "cq_depth of the options is 8191: not from 8192 to 4194304 (4 * qp_count * "
                        "the larger of sq_depth and recv_credits + 20)");
    in.sq_depth = 2; /* then the receives are more */
    in.recv_credits = 100;
    in.cq_depth = 4 * 4 * 120;
    assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_OK);
    in.cq_depth--;
    assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_EINVAL);
    in = (weir_engine_options)WEIR_ENGINE_OPTIONS_INIT;
    in.qp_count = 16;
    in.sq_depth = 65536;
    in.cq_depth = 4194304;
    assert_int_equal(settings_resolve(&in, NULL, &out, NULL), WEIR_OK);
}

/* ---- who goes first ---- */

static void test_option_before_environment_before_default(void **state) {
    (void)state;
    for (size_t i = 0; i < PROMISES; i++) {
        const struct promise *promise = &promises[i];
        uint64_t mine = promise->fallback == AUTO ? promise->most : promise->fallback + 1;
        if (strcmp(promise->name, "qp_count") == 0)
            mine = 2;
        weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT, out;
        struct setting_report reports[SETTINGS_MAX];
        assert_int_equal(settings_resolve(&in, get, &out, reports), WEIR_OK);
        assert_int_equal(reports[i].source, WEIR_SETTING_DEFAULT);
        assert_int_equal(reports[i].value, promise->fallback);
        set_number(0, promise->variable, promise->least);
        assert_int_equal(settings_resolve(&in, get, &out, reports), WEIR_OK);
        assert_int_equal(reports[i].source, WEIR_SETTING_ENVIRONMENT);
        assert_int_equal(reports[i].value, promise->least);
        assert_int_equal(field(promise, &out), in_force(promise, promise->least));
        field_set(promise, &in, mine * promise->scale);
        assert_int_equal(settings_resolve(&in, get, &out, reports), WEIR_OK);
        assert_int_equal(reports[i].source, WEIR_SETTING_OPTION);
        assert_int_equal(field(promise, &out), in_force(promise, mine));
        set(0, promise->variable, "junk"); /* nobody asked it */
        assert_int_equal(settings_resolve(&in, get, &out, reports), WEIR_OK);
        assert_int_equal(field(promise, &out), in_force(promise, mine));
        in.size = promise->offset; /* of an older weir.h, which has no such option */
        assert_int_equal(settings_resolve(&in, get, &out, reports),
                         in.size < offsetof(weir_engine_options, transfers_max) ? WEIR_OK
                                                                                : WEIR_EINVAL);
        clear(NULL);
    }
}

/* A device, say of the simulator, that is no business of the environment's. */
static void test_no_environment_is_no_environment(void **state) {
    weir_engine_options out;
    (void)state;
    setenv("WEIR_SQ_DEPTH", "junk", 1);
    assert_int_equal(settings_resolve(NULL, NULL, &out, NULL), WEIR_OK);
    assert_int_equal(out.sq_depth, 256);
    clear(NULL);
}

/* ---- by the library ---- */

static void test_engines_open_at_every_least(void **state) {
    (void)state;
    for (size_t i = 0; i < PROMISES; i++) {
        weir_engine *engine;
        weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT;
        char text[32];
        in.peers_max = strcmp(promises[i].name, "peers_max") == 0 ? 0 : 4;
        snprintf(text, sizeof(text), "%llu", (unsigned long long)promises[i].least);
        setenv(promises[i].variable, text, 1);
        assert_int_equal(weir_engine_open(&in, &engine), WEIR_OK);
        assert_int_equal(field(&promises[i], &engine->options) -
                             (strcmp(promises[i].name, "transfers_max") == 0),
                         in_force(&promises[i], promises[i].least));
        if (strcmp(promises[i].name, "inline_bytes") == 0)
            assert_int_equal(engine->caps.inline_bytes_max, 0);
        else
            assert_true(engine->caps.inline_bytes_max > 0);
        weir_engine_close(engine);
        setenv(promises[i].variable, "", 1);
        assert_int_equal(weir_engine_open(&in, &engine), WEIR_EINVAL);
        setenv(promises[i].variable, "1x", 1);
        assert_int_equal(weir_engine_open(NULL, &engine), WEIR_EINVAL);
        clear(NULL);
    }
}

/* A device takes no more inline than is asked of it, and an engine takes no more than it has. */
static void test_inline_bytes_of_a_device(void **state) {
    weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;
    (void)state;
    in.peers_max = 4;
    assert_int_equal(weir_engine_open(&in, &engine), WEIR_OK);
    uint32_t has = engine->caps.inline_bytes_max;
    weir_engine_close(engine);
    in.inline_bytes = 4096;
    assert_int_equal(weir_engine_open(&in, &engine), WEIR_OK);
    assert_int_equal(engine->caps.inline_bytes_max, has);
    weir_engine_close(engine);
    in.inline_bytes = 17;
    assert_int_equal(weir_engine_open(&in, &engine), WEIR_OK);
    assert_int_equal(engine->caps.inline_bytes_max, 17);
    weir_engine_close(engine);
}

static void test_query_says_what_open_would_do(void **state) {
    weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT;
    weir_setting_info info = WEIR_SETTING_INFO_INIT;
    weir_engine *engine;
    (void)state;
    for (size_t i = 0; i < PROMISES; i++) {
        assert_int_equal(weir_setting_query(NULL, i, &info), WEIR_OK);
        assert_string_equal(info.name, promises[i].name);
        assert_string_equal(info.variable, promises[i].variable);
        assert_int_equal(info.value, promises[i].fallback);
        assert_int_equal(info.fallback, promises[i].fallback);
        assert_int_equal(info.least, promises[i].least);
        assert_int_equal(info.most, promises[i].most);
        assert_int_equal(info.source, WEIR_SETTING_DEFAULT);
        assert_int_equal(info.status, 0);
        bool is_cut = strcmp(info.name, "chain_max") == 0;
        assert_int_equal(info.in_force, is_cut ? 63 : promises[i].fallback);
        assert_string_equal(
            info.note,
            is_cut ? "cut to 63: a quarter of sq_depth 256 without the teardown's slot" : "");
        assert_true(strlen(info.what) > 4);
        const char *unit = promises[i].scale == 1000000 ? "ms"
                           : promises[i].scale == 1000  ? "us"
                           : i == 4 || i == 8           ? "B"
                                                        : "";
        assert_string_equal(info.unit, unit);
    }
    assert_int_equal(weir_setting_query(NULL, PROMISES, &info), WEIR_EINVAL);
    assert_int_equal(weir_setting_query(NULL, SIZE_MAX, &info), WEIR_EINVAL);
    assert_int_equal(weir_setting_query(NULL, 0, NULL), WEIR_EINVAL);
    setenv("WEIR_SQ_DEPTH", "65537", 1);
    assert_int_equal(weir_setting_query(NULL, 0, &info), WEIR_OK);
    assert_int_equal(info.status, WEIR_EINVAL);
    assert_int_equal(info.source, WEIR_SETTING_ENVIRONMENT);
    assert_int_equal(info.value, 256);
    assert_string_equal(info.note, "WEIR_SQ_DEPTH=65537: not a whole number from 2 to 65536");
    in.sq_depth = 100000;
    in.connect_timeout_ns = 1500000;
    assert_int_equal(weir_engine_open(&in, &engine), WEIR_EINVAL);
    assert_int_equal(weir_setting_query(&in, 0, &info), WEIR_OK);
    assert_int_equal(info.source, WEIR_SETTING_OPTION);
    assert_string_equal(info.note, "sq_depth of the options is 100000: not from 2 to 65536");
    assert_int_equal(weir_setting_query(&in, 16, &info), WEIR_OK);
    assert_int_equal(info.value, 2); /* rounded up */
    assert_int_equal(info.status, 0);
    in.flags = 0x80; /* no setting */
    assert_int_equal(weir_setting_query(&in, 16, &info), WEIR_OK);
    in.size = 4;
    assert_int_equal(weir_setting_query(&in, 16, &info), WEIR_EINVAL);
}

/* The value of chain_max once it is cut to a quarter of the queue's depth. */
static void test_S3_chain_max_in_force(void **state) {
    static const struct {
        uint32_t depth, asked;
        uint64_t value, in_force;
    } rows[] = {
        {256, 0, 512, 63}, {256, 64, 64, 63},  {256, 63, 63, 63},       {2, 0, 512, 1},
        {8, 2, 2, 1},      {9, 2, 2, 2},       {65536, 0, 512, 512},    {65536, 600, 512, 512},
        {512, 1, 1, 1},    {5, 65536, 512, 1}, {2052, 65536, 512, 512}, {2048, 0, 512, 511},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        weir_engine_options in = WEIR_ENGINE_OPTIONS_INIT;
        weir_setting_info info = WEIR_SETTING_INFO_INIT;
        in.sq_depth = rows[i].depth;
        in.chain_max = rows[i].asked;
        assert_int_equal(weir_setting_query(&in, 2, &info), WEIR_OK);
        assert_int_equal(info.value, rows[i].value);
        assert_int_equal(info.in_force, rows[i].in_force);
        assert_int_equal(strncmp(info.note, "cut to ", 7) == 0, rows[i].in_force < rows[i].value);
    }
}

/* ---- variables that are none of ours ---- */

static void assert_stray(const char *entry, const char *note) {
    char *const environment[] = {(char *)(uintptr_t) "PATH=/bin", (char *)(uintptr_t)entry,
                                 (char *)(uintptr_t) "WEIR_SQ_DEPTH=8", NULL};
    weir_stray_info info = WEIR_STRAY_INFO_INIT;
    int rc = settings_stray(environment, 0, &info);
    if (note == NULL) {
        assert_int_equal(rc, WEIR_EINVAL);
        return;
    }
    assert_int_equal(rc, WEIR_OK);
    assert_string_equal(info.note, note);
    assert_int_equal(strncmp(info.note, info.name, strlen(info.name)), 0);
    assert_int_equal(settings_stray(environment, 1, &info), WEIR_EINVAL);
}

static void test_stray_variables(void **state) {
    char text[80];
    (void)state;
#define NO " no setting of this name"
    assert_stray("WEIR_SQ_DEPHT=9", "WEIR_SQ_DEPHT:" NO "; did you mean WEIR_SQ_DEPTH?");
    assert_stray("WEIR_SQDEPTH=", "WEIR_SQDEPTH:" NO "; did you mean WEIR_SQ_DEPTH?");
    assert_stray("WEIR_sq_depth=x", "WEIR_sq_depth:" NO "; did you mean WEIR_SQ_DEPTH?");
    assert_stray("WEIR_CONNECT_TIMEOUT=1",
                 "WEIR_CONNECT_TIMEOUT:" NO "; did you mean WEIR_CONNECT_TIMEOUT_MS?");
    assert_stray("WEIR_QP_COUNTS=1", "WEIR_QP_COUNTS:" NO "; did you mean WEIR_QP_COUNT?");
    assert_stray("WEIR_CQ_DEPT=1", "WEIR_CQ_DEPT:" NO "; did you mean WEIR_CQ_DEPTH?");
    assert_stray("WEIR_=1", "WEIR_:" NO);
    assert_stray("WEIR_X", "WEIR_X:" NO);
    assert_stray("WEIR_HOME=/opt/weir", "WEIR_HOME:" NO);
    assert_stray("WEIR_\x1b[m\xc3=1", "WEIR_?[m?:" NO);
    /* None of ours, and nobody said so. */
    assert_stray("WEIRD=1", NULL);
    assert_stray("WEIR=1", NULL);
    assert_stray("weir_SQ_DEPTH=1", NULL);
    assert_stray("XWEIR_SQ_DEPTH=1", NULL);
    assert_stray("", NULL);
    assert_stray("=", NULL);
    for (size_t i = 0; i < PROMISES; i++) {
        snprintf(text, sizeof(text), "%s=no matter what", promises[i].variable);
        assert_stray(text, NULL);
        text[strlen(promises[i].variable) - 1] = '=';
        char note[200];
        snprintf(note, sizeof(note), "%.*s:" NO "; did you mean %s?",
                 (int)strlen(promises[i].variable) - 1, text, promises[i].variable);
        assert_stray(text, note);
    }
    /* Longer than there is room for. */
    char endless[600] = "WEIR_";
    weir_stray_info info = WEIR_STRAY_INFO_INIT;
    char *const environment[] = {endless, NULL};
    memset(endless + 5, 'A', sizeof(endless) - 6);
    assert_int_equal(settings_stray(environment, 0, &info), WEIR_OK);
    assert_int_equal(strlen(info.name), WEIR_VARIABLE_MAX - 1);
    assert_null(info.nearest);
    assert_int_equal(settings_stray(NULL, 0, &info), WEIR_EINVAL);
}

/* The variables of a device are known where the device is built in; where not, that is said. */
static void test_stray_variables_of_a_device(void **state) {
    bool verbs = false, ofi = false;
    (void)state;
    for (size_t i = 0; i < device_table_count; i++) {
        verbs |= strcmp(device_table[i]->name, "verbs") == 0;
        ofi |= strcmp(device_table[i]->name, "ofi") == 0;
    }
    assert_stray("WEIR_SHM_DIRECTORY=/tmp", NULL);
    if (!ofi)
        assert_stray("WEIR_OFI_DOMAIN=eth0",
                     "WEIR_OFI_DOMAIN: this library was built without the device ofi");
    else
        assert_stray("WEIR_OFI_ADRESS=10.0.0.1",
                     "WEIR_OFI_ADRESS:" NO "; did you mean WEIR_OFI_ADDRESS?");
    if (!verbs) {
        assert_stray("WEIR_VERBS_SRQ=0",
                     "WEIR_VERBS_SRQ: this library was built without the device verbs");
        return;
    }
    for (size_t i = 0; device_variable(i) != NULL; i++)
        assert_stray(device_variable(i), NULL);
    assert_stray("WEIR_VERBS_DEVICE=mlx5_0", NULL);
    assert_stray("WEIR_VERBS_SRQ=0", NULL);
    assert_stray("WEIR_VERBS_MIN_RNR_TIMER=12", NULL);
    assert_stray("WEIR_VERBS_GID_IDX=3",
                 "WEIR_VERBS_GID_IDX:" NO "; did you mean WEIR_VERBS_GID_INDEX?");
}

/* The device that a name means: of "auto", the first that there is, and shm last. */
static void test_W10_the_device_of_a_name(void **state) {
    const struct weir_device_ops *best = device_table[0];
    struct weir_device_caps caps;
    (void)state;
    for (size_t i = device_table_count - 1; i > 0; i--) {
        if (device_table[i]->probe(NULL, &caps) == WEIR_OK)
            best = device_table[i];
    }
    assert_ptr_equal(device_find("auto"), best);
    assert_ptr_equal(device_find(NULL), device_table[0]);
    assert_string_equal(device_table[0]->name, "shm");
    for (size_t i = 0; i < device_table_count; i++)
        assert_ptr_equal(device_find(device_table[i]->name), device_table[i]);
    assert_null(device_find("nonsense"));
    assert_null(device_find(""));
}

/* What is named behind the colon, in parts; each part stands for a variable that is read. */
static void test_W11_a_nic_in_its_parts(void **state) {
    static const struct {
        const char *name, *first, *second;
    } cases[] = {{"verbs:mlx5_0", "mlx5_0", ""},
                 {"verbs:mlx5_0/2", "mlx5_0", "2"},
                 {"verbs:mlx5_0/2/3", "mlx5_0", "2/3"},
                 {"efa:rdmap0s6-rdm", "rdmap0s6-rdm", ""},
                 {"efa:rdmap0s6-rdm/efa-direct", "rdmap0s6-rdm", "efa-direct"},
                 {"ofi:eth0", "eth0", ""},
                 {"ofi:eth0/::1", "eth0", "::1"},
                 {"shm:/run/weir", "/run/weir", NULL}};
    const struct weir_device_ops *ops;
    struct weir_device_nic nic;
    char note[WEIR_DEVICE_NOTE_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (device_choose(cases[i].name, &ops, &nic, note) == WEIR_ENODEVICE)
            continue; /* not built in */
        assert_int_equal(strncmp(cases[i].name, ops->name, strlen(ops->name)), 0);
        assert_int_equal(nic.count, cases[i].second != NULL ? 2 : 1);
        assert_string_equal(nic.parts[0].text, cases[i].first);
        if (cases[i].second != NULL)
            assert_string_equal(nic.parts[1].text, cases[i].second);
        for (uint32_t p = 0; p < nic.count; p++) {
            size_t v = 0;
            while (device_variable(v) != NULL &&
                   strcmp(device_variable(v), nic.parts[p].form.variable) != 0)
                v++;
            assert_non_null(device_variable(v));
        }
    }
    for (size_t i = 0; i < device_table_count; i++) {
        assert_int_equal(device_choose(device_table[i]->name, &ops, &nic, note), WEIR_OK);
        assert_ptr_equal(ops, device_table[i]);
        assert_int_equal(nic.count, 0);
    }
    assert_int_equal(device_choose(NULL, &ops, &nic, note), WEIR_OK);
    assert_ptr_equal(ops, device_table[0]);
}

static void test_stray_query(void **state) {
    weir_stray_info info = WEIR_STRAY_INFO_INIT;
    (void)state;
    assert_int_equal(weir_stray_query(0, NULL), WEIR_EINVAL);
    setenv("WEIR_SQ_DEPHT", "512", 1);
    setenv("WEIR_NONSENSE", "", 1);
    size_t found = 0;
    for (size_t i = 0; weir_stray_query(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, "WEIR_SQ_DEPHT") == 0) {
            assert_string_equal(info.nearest, "WEIR_SQ_DEPTH");
            found++;
        } else if (strcmp(info.name, "WEIR_NONSENSE") == 0) {
            assert_null(info.nearest);
            found++;
        }
    }
    assert_int_equal(found, 2);
    /* An info of an older weir.h is written as far as it goes. */
    memset(&info, 0x5a, sizeof(info));
    info.size = offsetof(weir_stray_info, note);
    assert_int_equal(weir_stray_query(0, &info), WEIR_OK);
    assert_int_equal(info.note[0], 0x5a);
    info.size = sizeof(size_t) - 1;
    assert_int_equal(weir_stray_query(0, &info), WEIR_EINVAL);
    unsetenv("WEIR_SQ_DEPHT");
    unsetenv("WEIR_NONSENSE");
}

/* The settings of devices: what the build has, as the environment has it. */
static void test_query_of_devices(void **state) {
    weir_setting_info info = WEIR_SETTING_INFO_INIT;
    (void)state;
    size_t count = 0, shm_count = 0, ofi_count = 0, efa_count = 0;
    setenv("WEIR_VERBS_TIMEOUT", "20", 1);
    setenv("WEIR_VERBS_SRQ", "2", 1);
    setenv("WEIR_VERBS_DEVICE", "mlx5_0", 1);
    setenv("WEIR_SHM_GROUP", "100", 1);
    for (; weir_device_setting_query(count, &info) == WEIR_OK; count++) {
        bool timeout = strcmp(info.variable, "WEIR_VERBS_TIMEOUT") == 0;
        bool srq = strcmp(info.variable, "WEIR_VERBS_SRQ") == 0;
        bool device = strcmp(info.variable, "WEIR_VERBS_DEVICE") == 0;
        bool group = strcmp(info.variable, "WEIR_SHM_GROUP") == 0;
        bool shm = strncmp(info.variable, "WEIR_SHM_", 9) == 0;
        bool ofi = strncmp(info.variable, "WEIR_OFI_", 9) == 0;
        bool efa = strncmp(info.variable, "WEIR_EFA_", 9) == 0;
        bool provider = strcmp(info.variable, "WEIR_OFI_PROVIDER") == 0;
        shm_count += shm;
        efa_count += efa;
        ofi_count += ofi;
        assert_string_equal(info.name, shm ? "shm" : ofi ? "ofi" : efa ? "efa" : "verbs");
        assert_int_equal(info.size, sizeof(info));
        assert_int_equal(info.in_force, info.value);
        assert_int_equal(info.source, timeout || srq || device || group ? WEIR_SETTING_ENVIRONMENT
                                                                        : WEIR_SETTING_DEFAULT);
        assert_int_equal(info.status, srq ? WEIR_EINVAL : WEIR_OK);
        assert_string_equal(info.note, srq ? "WEIR_VERBS_SRQ=2: not a number from 0 to 1" : "");
        assert_string_equal(info.text, device ? "mlx5_0" : group ? "100" : provider ? "tcp" : "");
        assert_int_equal(info.value, timeout ? 20 : info.fallback);
    }
    assert_non_null(device_variable(0));
    assert_int_equal(shm_count, 3);
    assert_true(ofi_count == 0 || ofi_count == 3);
    assert_int_equal(efa_count, ofi_count == 0 ? 0 : 2);
    count -= shm_count + ofi_count + efa_count;
    assert_true(count == 0 || count == 12);
    assert_int_equal(weir_device_setting_query(SIZE_MAX, &info), WEIR_EINVAL);
    assert_int_equal(weir_device_setting_query(0, NULL), WEIR_EINVAL);
    unsetenv("WEIR_VERBS_TIMEOUT");
    unsetenv("WEIR_VERBS_SRQ");
    unsetenv("WEIR_VERBS_DEVICE");
    unsetenv("WEIR_SHM_GROUP");
}

/* An info of an older weir.h is written as far as it goes. */
static void test_query_writes_what_there_is_room_for(void **state) {
    weir_setting_info info;
    (void)state;
    memset(&info, 0x5a, sizeof(info));
    info.size = offsetof(weir_setting_info, value);
    assert_int_equal(weir_setting_query(NULL, 1, &info), WEIR_OK);
    assert_string_equal(info.variable, "WEIR_QP_COUNT");
    assert_int_equal(info.size, offsetof(weir_setting_info, value));
    assert_int_equal(info.value, UINT64_C(0x5a5a5a5a5a5a5a5a));
    info.size = sizeof(size_t) - 1;
    assert_int_equal(weir_setting_query(NULL, 1, &info), WEIR_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_variable_at_its_bounds, clear),
        cmocka_unit_test_setup(test_every_option_at_its_bounds, clear),
        cmocka_unit_test_setup(test_inline_none_is_zero, clear),
        cmocka_unit_test_setup(test_junk_is_refused_with_variable_value_and_range, clear),
        cmocka_unit_test_setup(test_leading_zeros_are_digits, clear),
        cmocka_unit_test_setup(test_credits_of_many_qps, clear),
        cmocka_unit_test_setup(test_M6_a_cq_holds_an_endpoint, clear),
        cmocka_unit_test_setup(test_option_before_environment_before_default, clear),
        cmocka_unit_test_setup(test_no_environment_is_no_environment, clear),
        cmocka_unit_test_setup(test_engines_open_at_every_least, clear),
        cmocka_unit_test_setup(test_inline_bytes_of_a_device, clear),
        cmocka_unit_test_setup(test_query_says_what_open_would_do, clear),
        cmocka_unit_test_setup(test_query_writes_what_there_is_room_for, clear),
        cmocka_unit_test_setup(test_query_of_devices, clear),
        cmocka_unit_test_setup(test_S3_chain_max_in_force, clear),
        cmocka_unit_test_setup(test_stray_variables, clear),
        cmocka_unit_test_setup(test_stray_variables_of_a_device, clear),
        cmocka_unit_test_setup(test_W10_the_device_of_a_name, clear),
        cmocka_unit_test_setup(test_W11_a_nic_in_its_parts, clear),
        cmocka_unit_test_setup(test_stray_query, clear),
    };
    return cmocka_run_group_tests_name("engine options", tests, clear, NULL);
}
