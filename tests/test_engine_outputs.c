/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_outputs.c: `*_out` parameters, and structures that a call fills, are written on
 * success only: every public function that has one fails here in each way that can be brought
 * about through weir.h, and leaves what it was given as it was. No function of weir.h is missing:
 * the last test compares. */
#include "engine_side.h"
#include "weir_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES_MAX = 64, FILL = 0xa5 };

/* Everything that any of them may write, side by side: a write beyond its own is seen. */
struct outputs {
    weir_engine *engine;
    weir_memory memory;
    void *base;
    uint64_t number;
    uint32_t access;
    size_t length;
    weir_remote remote;
    weir_peer peer;
    weir_transfer transfer;
    weir_completion completion;
    weir_notification notification;
    weir_event event;
    weir_peer_info peer_info;
    weir_qp_info qp_info;
    weir_stall_info stall_info;
    weir_engine_info stats;
    weir_device_info device;
    weir_setting_info setting;
    weir_stray_info stray;
    weir_inbox inbox;
    weir_inbox_info inbox_info;
    weir_message message;
    weir_loan loan;
    weir_name_info name;
    unsigned char descriptor[WEIR_DESCRIPTOR_MAX];
    char address[WEIR_ADDRESS_MAX];
    char text[64];
};

static struct outputs o, before;
static char seen[NAMES_MAX][64]; /* functions that failed here */
static uint32_t seen_count;

static void prepare(void) {
    memset(&o, FILL, sizeof(o));
    o.length = sizeof(o.descriptor);
    o.peer_info.size = sizeof(o.peer_info);
    o.qp_info.size = sizeof(o.qp_info);
    o.stall_info.size = sizeof(o.stall_info);
    o.stats.size = sizeof(o.stats);
    o.device.size = sizeof(o.device);
    o.setting.size = sizeof(o.setting);
    o.stray.size = sizeof(o.stray);
    o.inbox_info.size = sizeof(o.inbox_info);
    o.name.size = sizeof(o.name);
}

static void note(const char *call) {
    size_t length = strcspn(call, "(");
    assert_true(length < sizeof(seen[0]));
    for (uint32_t i = 0; i < seen_count; i++) {
        if (strncmp(seen[i], call, length) == 0 && seen[i][length] == '\0')
            return;
    }
    assert_true(seen_count < NAMES_MAX);
    memcpy(seen[seen_count++], call, length);
}

/* `first` is done to the outputs before: a size that is wrong, say. */
#define FAILS_AFTER(first, error, call)                                                            \
    do {                                                                                           \
        prepare();                                                                                 \
        first;                                                                                     \
        memcpy(&before, &o, sizeof(o));                                                            \
        int fails_rc = (call);                                                                     \
        if (fails_rc != (error))                                                                   \
            fail_msg("%s:%d: %s is %s, not %s", __FILE__, __LINE__, #call,                         \
                     weir_error_name(fails_rc), #error);                                           \
        if (memcmp(&before, &o, sizeof(o)) != 0)                                                   \
            fail_msg("%s:%d: %s is %s, and has written", __FILE__, __LINE__, #call, #error);       \
        note(#call);                                                                               \
    } while (0)
#define FAILS(error, call) FAILS_AFTER((void)0, error, call)

static void test_W9_engine_calls_that_fail_write_nothing(void **state) {
    struct side a;
    weir_engine *no_listener;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    (void)state;
    side_open(&a, NULL);
    FAILS(WEIR_EINVAL, weir_engine_open(NULL, NULL));
    options.flags = ~0u;
    FAILS(WEIR_EINVAL, weir_engine_open(&options, &o.engine));
    options = side_options();
    options.size = 1;
    FAILS(WEIR_EINVAL, weir_engine_open(&options, &o.engine));
    options = side_options();
    options.sq_depth = 1;
    FAILS(WEIR_EINVAL, weir_engine_open(&options, &o.engine));
    options = side_options();
    options.device = "tin cans";
    FAILS(WEIR_ENODEVICE, weir_engine_open(&options, &o.engine));
    options = side_options();
    options.listen = "127.0.0.1:7x";
    FAILS(WEIR_EADDRESS, weir_engine_open(&options, &o.engine));
    options.listen = a.address;
    FAILS(WEIR_EADDRESS, weir_engine_open(&options, &o.engine));

    FAILS(WEIR_EINVAL, weir_open_explain(NULL, WEIR_OK, o.address, sizeof(o.address)));
    FAILS(WEIR_EINVAL, weir_open_explain(NULL, WEIR_EDEVICE, o.address, 0));
    FAILS(WEIR_EINVAL, weir_engine_address(NULL, o.address, sizeof(o.address)));
    for (size_t size = 0; size <= strlen(a.address); size++)
        FAILS(WEIR_ETOOBIG, weir_engine_address(a.engine, o.address, size));
    options.listen = "none";
    assert_int_equal(weir_engine_open(&options, &no_listener), WEIR_OK);
    FAILS(WEIR_ENOTSUP, weir_engine_address(no_listener, o.address, sizeof(o.address)));
    weir_engine_close(no_listener);

    FAILS(WEIR_EINVAL, weir_engine_arm(NULL, &o.number));
    FAILS(WEIR_EINVAL, weir_engine_query(NULL, &o.stats));
    FAILS_AFTER(o.stats.size = 1, WEIR_EINVAL, weir_engine_query(a.engine, &o.stats));
    const uint32_t plain = WEIR_METRICS_PROMETHEUS;
    FAILS(WEIR_EINVAL, weir_engine_metrics(NULL, plain, o.text, sizeof(o.text), &o.length));
    FAILS(WEIR_EINVAL, weir_engine_metrics(a.engine, 2, o.text, sizeof(o.text), &o.length));
    FAILS(WEIR_EINVAL, weir_engine_metrics(a.engine, plain, o.text, sizeof(o.text), NULL));
    FAILS(WEIR_ETOOBIG, weir_engine_metrics(a.engine, plain, o.text, sizeof(o.text), &o.length));
    FAILS(WEIR_ETOOBIG, weir_engine_metrics(a.engine, plain, o.text, 0, &o.length));
    FAILS(WEIR_EINVAL, weir_engine_trace(NULL, 0, o.text, sizeof(o.text), &o.length));
    FAILS(WEIR_EINVAL, weir_engine_trace(a.engine, 2, o.text, sizeof(o.text), &o.length));
    FAILS(WEIR_EINVAL, weir_engine_trace(a.engine, 0, o.text, WEIR_TRACE_MIN - 1, &o.length));
    FAILS(WEIR_EINVAL, weir_process_trace(0, 0, 0, o.text, WEIR_TRACE_MIN - 1, &o.length));
    FAILS(WEIR_EPEER, weir_process_trace(INT64_MAX, 0, 0, NULL, 0, &o.length));
    side_close(&a);
}

static void test_W9_queries_that_fail_write_nothing(void **state) {
    weir_engine_options options = side_options();
    (void)state;
    FAILS(WEIR_EINVAL, weir_device_query(1000, &o.device));
    FAILS_AFTER(o.device.size = 1, WEIR_EINVAL, weir_device_query(0, &o.device));
    FAILS(WEIR_EINVAL, weir_setting_query(NULL, 1000, &o.setting));
    FAILS_AFTER(o.setting.size = 1, WEIR_EINVAL, weir_setting_query(NULL, 0, &o.setting));
    options.size = 1;
    FAILS(WEIR_EINVAL, weir_setting_query(&options, 0, &o.setting));
    FAILS(WEIR_EINVAL, weir_device_choose(&options, &o.device));
    FAILS(WEIR_EINVAL, weir_engine_setting_query(&options, 0, &o.setting));
    options = side_options();
    FAILS_AFTER(o.device.size = 1, WEIR_EINVAL, weir_device_choose(&options, &o.device));
    FAILS_AFTER(o.setting.size = 1, WEIR_EINVAL,
                weir_engine_setting_query(&options, 0, &o.setting));
    FAILS(WEIR_EINVAL, weir_engine_setting_query(&options, 1000, &o.setting));
    options.device = "nonsense";
    FAILS(WEIR_ENODEVICE, weir_device_choose(&options, &o.device));
    FAILS(WEIR_ENODEVICE, weir_engine_setting_query(&options, 0, &o.setting));
    FAILS(WEIR_EINVAL, weir_device_setting_query(1000, &o.setting));
    FAILS_AFTER(o.setting.size = 1, WEIR_EINVAL, weir_device_setting_query(0, &o.setting));
    FAILS(WEIR_EINVAL, weir_stray_query(100000, &o.stray));
    FAILS_AFTER(o.stray.size = 1, WEIR_EINVAL, weir_stray_query(0, &o.stray));
}

/* ---- memory ---- */

static void test_W9_registrations_that_fail_write_nothing(void **state) {
    struct side a;
    weir_engine_options options = side_options();
    static char own[4096];
    weir_memory local;
    (void)state;
    options.memories_max = 2;
    side_open(&a, &options);
    weir_engine *e = a.engine;
    FAILS(WEIR_EINVAL, weir_memory_register(NULL, own, 1, 0, &o.memory));
    FAILS(WEIR_EINVAL, weir_memory_register(e, NULL, 1, 0, &o.memory));
    FAILS(WEIR_EINVAL, weir_memory_register(e, own, 0, 0, &o.memory));
    FAILS(WEIR_EINVAL, weir_memory_register(e, own, UINT64_MAX, 0, &o.memory));
    FAILS(WEIR_EINVAL, weir_memory_register(e, own, 1, ~0u, &o.memory));
    FAILS(WEIR_EINVAL, weir_memory_allocate(NULL, 1, 0, &o.memory, &o.base));
    FAILS(WEIR_EINVAL, weir_memory_allocate(e, 0, 0, &o.memory, &o.base));
    FAILS(WEIR_EINVAL, weir_memory_allocate(e, 1, ~0u, &o.memory, &o.base));
    FAILS(WEIR_EINVAL, weir_memory_allocate(e, 1, 0, NULL, &o.base));
    FAILS(WEIR_EINVAL, weir_memory_allocate(e, 1, 0, &o.memory, NULL));
    FAILS(WEIR_ENOMEM, weir_memory_allocate(e, UINT64_C(1) << 60, 0, &o.memory, &o.base));
    FAILS(WEIR_EINVAL, weir_memory_register_dmabuf(NULL, 0, 0, 1, 0, 0, &o.memory));
    FAILS(WEIR_EINVAL, weir_memory_register_dmabuf(e, -1, 0, 1, 0, 0, &o.memory));
    FAILS(WEIR_ENOTSUP, weir_memory_register_dmabuf(e, 0, 0, 1, 0, 0, &o.memory));
    assert_int_equal(weir_memory_register(e, own, sizeof(own), 0, &local), WEIR_OK);
    FAILS(WEIR_EAGAIN, weir_memory_register(e, own, 1, 0, &o.memory));
    FAILS(WEIR_EAGAIN, weir_memory_allocate(e, 1, 0, &o.memory, &o.base));
    FAILS(WEIR_EAGAIN, weir_memory_register_dmabuf(e, 0, 0, 1, 0, 0, &o.memory));
    side_close(&a);
}

/* A descriptor has no byte in a buffer that is too small for all of it, however small. */
static void test_W9_exports_that_fail_write_nothing(void **state) {
    struct side a;
    weir_memory local;
    static char own[4096];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    (void)state;
    side_open(&a, NULL);
    weir_engine *e = a.engine;
    assert_int_equal(weir_memory_export(e, a.memory, descriptor, &length), WEIR_OK);
    for (size_t size = 0; size < length; size++)
        FAILS_AFTER(o.length = size, WEIR_ETOOBIG,
                    weir_memory_export(e, a.memory, o.descriptor, &o.length));
    FAILS(WEIR_EINVAL, weir_memory_export(NULL, a.memory, o.descriptor, &o.length));
    FAILS(WEIR_EINVAL, weir_memory_export(e, a.memory, NULL, &o.length));
    FAILS(WEIR_EINVAL, weir_memory_export(e, a.memory, o.descriptor, NULL));
    assert_int_equal(weir_memory_register(e, own, sizeof(own), 0, &local), WEIR_OK);
    FAILS(WEIR_EACCESS, weir_memory_export(e, local, o.descriptor, &o.length));
    assert_int_equal(weir_memory_release(e, local), WEIR_OK);
    FAILS(WEIR_ESTALE, weir_memory_export(e, local, o.descriptor, &o.length));
    FAILS(WEIR_EINVAL, weir_memory_query(NULL, local, &o.base, &o.number));
    FAILS(WEIR_ESTALE, weir_memory_query(e, local, &o.base, &o.number));
    side_close(&a);
}

/* An export of a process that is dead now. */
static size_t export_of_the_dead(uint8_t *descriptor) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct side dead;
        size_t length = WEIR_DESCRIPTOR_MAX;
        side_open(&dead, NULL);
        int rc = weir_memory_export(dead.engine, dead.memory, descriptor, &length);
        _exit(rc == WEIR_OK && write(ends[1], descriptor, length) == (ssize_t)length ? 0 : 1);
    }
    close(ends[1]);
    ssize_t length = read(ends[0], descriptor, WEIR_DESCRIPTOR_MAX);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(length > 0);
    close(ends[0]);
    return (size_t)length;
}

static void test_W9_imports_that_fail_write_nothing(void **state) {
    struct side a, b;
    weir_engine_options options = side_options();
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX], dead[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor), dead_length = export_of_the_dead(dead);
    weir_peer closed, unmet;
    weir_memory released;
    void *base;
    (void)state;
    options.remotes_max = 1;
    side_open(&a, &options);
    side_open(&b, NULL);
    weir_engine *e = a.engine;
    assert_int_equal(weir_memory_export(b.engine, b.memory, descriptor, &length), WEIR_OK);
    assert_int_equal(weir_peer_open(e, "127.0.0.1:1", &closed), WEIR_OK);
    assert_int_equal(weir_peer_close(e, closed), WEIR_OK);
    assert_int_equal(weir_peer_open(e, "127.0.0.1:2", &unmet), WEIR_OK);
    FAILS(WEIR_EINVAL, weir_memory_import(NULL, unmet, descriptor, length, &o.remote));
    FAILS(WEIR_EINVAL, weir_memory_import(e, unmet, NULL, length, &o.remote));
    FAILS(WEIR_EINVAL, weir_memory_import(e, unmet, descriptor, length, NULL));
    for (size_t part = 0; part < length; part++)
        FAILS(WEIR_EINVAL, weir_memory_import(e, unmet, descriptor, part, &o.remote));
    FAILS(WEIR_ESTALE, weir_memory_import(e, closed, descriptor, length, &o.remote));
    FAILS(WEIR_EPEER, weir_memory_import(e, unmet, dead, dead_length, &o.remote));
    side_join(&a, &b);
    FAILS(WEIR_EAGAIN, weir_memory_import(e, unmet, descriptor, length, &o.remote));
    assert_int_equal(weir_remote_release(e, a.remote), WEIR_OK);
    FAILS(WEIR_EINVAL, weir_remote_query(NULL, a.remote, &o.number, &o.access));
    FAILS(WEIR_ESTALE, weir_remote_query(e, a.remote, &o.number, &o.access));
    connect_now(&a, &b);
    FAILS(WEIR_ESTALE, weir_memory_import(e, a.peer, dead, dead_length, &o.remote));
    assert_int_equal(weir_memory_allocate(b.engine, 4096, WEIR_ACCESS_ALL, &released, &base), 0);
    length = sizeof(descriptor);
    assert_int_equal(weir_memory_export(b.engine, released, descriptor, &length), WEIR_OK);
    assert_int_equal(weir_memory_release(b.engine, released), WEIR_OK);
    FAILS(WEIR_ESTALE, weir_memory_import(e, a.peer, descriptor, length, &o.remote));
    pair_close(&a, &b);
}

/* ---- names ---- */

static void test_W9_calls_about_names_that_fail_write_nothing(void **state) {
    struct side a, b;
    weir_remote remote = {0};
    char value[WEIR_VALUE_MAX];
    size_t length;
    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    weir_engine *e = a.engine;
    weir_peer closed;
    assert_int_equal(weir_peer_open(e, "127.0.0.1:1", &closed), WEIR_OK);
    assert_int_equal(weir_peer_close(e, closed), WEIR_OK);
    assert_int_equal(weir_memory_publish(NULL, a.memory, "m"), WEIR_EINVAL);
    assert_int_equal(weir_value_publish(NULL, "v", "", 0), WEIR_EINVAL);
    assert_int_equal(weir_name_withdraw(NULL, "v"), WEIR_EINVAL);
    FAILS(WEIR_EINVAL, weir_remote_open(NULL, closed, "m", 0, &o.remote));
    FAILS(WEIR_EINVAL, weir_remote_open(e, closed, "m", 0, NULL));
    FAILS(WEIR_EINVAL, weir_remote_open(e, closed, "", 0, &o.remote));
    FAILS(WEIR_ESTALE, weir_remote_open(e, closed, "m", 0, &o.remote));
    FAILS(WEIR_EINVAL, weir_peer_value(NULL, closed, "v", 0, o.text, &o.length));
    FAILS(WEIR_EINVAL, weir_peer_value(e, closed, "v", 0, NULL, &o.length));
    FAILS(WEIR_EINVAL, weir_peer_value(e, closed, "v", 0, o.text, NULL));
    FAILS(WEIR_ESTALE, weir_peer_value(e, closed, "v", 0, o.text, &o.length));
    FAILS(WEIR_EINVAL, weir_peer_name(NULL, closed, &o.number, 0, &o.name));
    FAILS(WEIR_EINVAL, weir_peer_name(e, closed, NULL, 0, &o.name));
    FAILS(WEIR_EINVAL, weir_peer_name(e, closed, &o.number, 0, NULL));
    FAILS_AFTER(o.name.size = 0, WEIR_EINVAL, weir_peer_name(e, closed, &o.number, 0, &o.name));
    FAILS(WEIR_ESTALE, weir_peer_name(e, closed, &o.number, 0, &o.name));
    side_join(&a, &b);
    connect_now(&a, &b);
    assert_int_equal(weir_value_publish(b.engine, "v", "value", 5), WEIR_OK);
    assert_int_equal(weir_memory_publish(b.engine, b.memory, "m"), WEIR_OK);
    FAILS(WEIR_ENOTREADY, weir_remote_open(e, a.peer, "none", 0, &o.remote));
    FAILS(WEIR_ENOTREADY, weir_peer_value(e, a.peer, "v", 0, o.text, &o.length));
    STEP_UNTIL(
        &a, &b,
        (length = sizeof(value), weir_peer_value(e, a.peer, "v", 0, value, &length) == WEIR_OK));
    STEP_UNTIL(&a, &b, weir_remote_open(e, a.peer, "m", 0, &remote) == WEIR_OK);
    FAILS(WEIR_EACCESS, weir_remote_open(e, a.peer, "v", 0, &o.remote));
    FAILS(WEIR_EACCESS, weir_peer_value(e, a.peer, "m", 0, o.text, &o.length));
    FAILS_AFTER(o.length = 4, WEIR_ETOOBIG, weir_peer_value(e, a.peer, "v", 0, o.text, &o.length));
    FAILS(WEIR_ENOTREADY, weir_peer_name(e, a.peer, &o.number, 0, &o.name));
    pair_close(&a, &b);
}

/* ---- peers ---- */

static void test_W9_calls_about_peers_that_fail_write_nothing(void **state) {
    struct side a;
    weir_peer closed, kept;
    char address[32], longer[WEIR_ADDRESS_MAX + 1];
    int rc = WEIR_OK;
    (void)state;
    side_open(&a, NULL);
    weir_engine *e = a.engine;
    memset(longer, '1', sizeof(longer));
    longer[WEIR_ADDRESS_MAX] = '\0';
    FAILS(WEIR_EINVAL, weir_peer_open(NULL, "127.0.0.1:1", &o.peer));
    FAILS(WEIR_EINVAL, weir_peer_open(e, NULL, &o.peer));
    FAILS(WEIR_EINVAL, weir_peer_open(e, "", &o.peer));
    FAILS(WEIR_EINVAL, weir_peer_open(e, "127.0.0.1:1", NULL));
    FAILS(WEIR_EADDRESS, weir_peer_open(e, "nowhere", &o.peer));
    FAILS(WEIR_EADDRESS, weir_peer_open(e, longer, &o.peer));
    assert_int_equal(weir_peer_open(e, "127.0.0.1:1", &closed), WEIR_OK);
    assert_int_equal(weir_peer_close(e, closed), WEIR_OK);
    FAILS(WEIR_EINVAL, weir_peer_query(NULL, closed, &o.peer_info));
    FAILS(WEIR_EINVAL, weir_peer_query(e, closed, NULL));
    FAILS(WEIR_ESTALE, weir_peer_query(e, closed, &o.peer_info));
    FAILS(WEIR_EINVAL, weir_qp_query(NULL, closed, 0, &o.qp_info));
    FAILS(WEIR_ESTALE, weir_qp_query(e, closed, 0, &o.qp_info));
    FAILS(WEIR_EINVAL, weir_stall_query(NULL, closed, &o.stall_info));
    FAILS(WEIR_ESTALE, weir_stall_query(e, closed, &o.stall_info));
    FAILS(WEIR_EINVAL, weir_stall_text(e, closed, o.text, 0));
    FAILS(WEIR_ESTALE, weir_stall_text(e, closed, o.text, sizeof(o.text)));
    FAILS(WEIR_EINVAL, weir_refusal_text(e, closed, o.text, 0));
    FAILS(WEIR_ESTALE, weir_refusal_text(e, closed, o.text, sizeof(o.text)));
    for (int port = 1; rc == WEIR_OK; port++) { /* until there is no room */
        snprintf(address, sizeof(address), "127.0.0.1:%d", port);
        rc = weir_peer_open(e, address, &kept);
    }
    assert_int_equal(rc, WEIR_EAGAIN);
    FAILS(WEIR_EAGAIN, weir_peer_open(e, address, &o.peer));
    FAILS(WEIR_EAGAIN, weir_peer_self(e, &o.peer));
    FAILS_AFTER(o.peer_info.size = 1, WEIR_EINVAL, weir_peer_query(e, kept, &o.peer_info));
    FAILS_AFTER(o.stall_info.size = 1, WEIR_EINVAL, weir_stall_query(e, kept, &o.stall_info));
    FAILS_AFTER(o.qp_info.size = 1, WEIR_EINVAL, weir_qp_query(e, kept, 0, &o.qp_info));
    FAILS(WEIR_EINVAL, weir_qp_query(e, kept, 1, &o.qp_info));
    side_close(&a);
}

/* ---- transfers ---- */

static void bad_segments(struct side *a, struct side *b) {
    weir_engine *e = a->engine;
    weir_memory local, readable, writable;
    weir_segment s = segment_of(a, 0, 0, 8);
    void *base;
    (void)b;
    FAILS(WEIR_EINVAL, weir_write(NULL, a->peer, &s, 1, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_write(e, a->peer, NULL, 1, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_write(e, a->peer, &s, 0, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_write(e, a->peer, &s, 1, NULL, NULL));
    FAILS(WEIR_ETOOBIG, weir_write(e, a->peer, &s, SIZE_MAX, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_read(NULL, a->peer, &s, 1, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_read(e, a->peer, &s, 0, NULL, &o.transfer));
    s.local_offset = UINT64_MAX;
    FAILS(WEIR_EBOUNDS, weir_write(e, a->peer, &s, 1, NULL, &o.transfer));
    s = segment_of(a, 0, SIDE_BYTES, 1);
    FAILS(WEIR_EBOUNDS, weir_read(e, a->peer, &s, 1, NULL, &o.transfer));
    assert_int_equal(weir_memory_allocate(e, 64, 0, &local, &base), WEIR_OK);
    assert_int_equal(weir_memory_release(e, local), WEIR_OK);
    s = segment_of(a, 0, 0, 8);
    s.local = local;
    FAILS(WEIR_ESTALE, weir_write(e, a->peer, &s, 1, NULL, &o.transfer));
    assert_int_equal(weir_memory_allocate(b->engine, 64, WEIR_ACCESS_REMOTE_READ, &readable, &base),
                     WEIR_OK);
    assert_int_equal(
        weir_memory_allocate(b->engine, 64, WEIR_ACCESS_REMOTE_WRITE, &writable, &base), WEIR_OK);
    s = segment_of(a, 0, 0, 8);
    s.remote = side_import(a, a->peer, b, readable);
    FAILS(WEIR_EACCESS, weir_write(e, a->peer, &s, 1, NULL, &o.transfer));
    s.remote = side_import(a, a->peer, b, writable);
    FAILS(WEIR_EACCESS, weir_read(e, a->peer, &s, 1, NULL, &o.transfer));
    assert_int_equal(weir_remote_release(e, s.remote), WEIR_OK);
    FAILS(WEIR_ESTALE, weir_write(e, a->peer, &s, 1, NULL, &o.transfer));
}

static void bad_options(struct side *a) {
    weir_engine *e = a->engine;
    weir_segment s = segment_of(a, 0, 0, 8);
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = ~0u;
    FAILS(WEIR_EINVAL, weir_write(e, a->peer, &s, 1, &options, &o.transfer));
    options.flags = 0;
    options.size = 1;
    FAILS(WEIR_EINVAL, weir_write(e, a->peer, &s, 1, &options, &o.transfer));
    options.size = sizeof(options);
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_length = 1;
    FAILS(WEIR_EINVAL, weir_read(e, a->peer, &s, 1, &options, &o.transfer));
    options.notify_payload = &s;
    options.notify_length = WEIR_NOTIFY_MAX + 1;
    FAILS(WEIR_ETOOBIG, weir_write(e, a->peer, &s, 1, &options, &o.transfer));
}

/* To a peer that nobody is: handles stay live until there are no more. */
static void full_pools(struct side *a, struct side *b) {
    weir_transfer transfer;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_peer nobody, closed;
    int rc;
    assert_int_equal(weir_peer_open(a->engine, "127.0.0.1:2", &nobody), WEIR_OK);
    weir_segment s = segment_of(a, 0, 0, 8);
    FAILS(WEIR_EINVAL, weir_write(a->engine, nobody, &s, 1, NULL, &o.transfer)); /* b's memory */
    s.remote = side_import(a, nobody, b, b->memory);
    while ((rc = weir_write(a->engine, nobody, &s, 1, NULL, &transfer)) == WEIR_OK)
        continue;
    assert_int_equal(rc, WEIR_EAGAIN);
    FAILS(WEIR_EAGAIN, weir_write(a->engine, nobody, &s, 1, NULL, &o.transfer));
    options.flags = WEIR_TRANSFER_BLOCK;
    FAILS(WEIR_EAGAIN, weir_read(a->engine, nobody, &s, 1, &options, &o.transfer));
    assert_int_equal(weir_peer_open(a->engine, "127.0.0.1:3", &closed), WEIR_OK);
    assert_int_equal(weir_peer_close(a->engine, closed), WEIR_OK);
    FAILS(WEIR_ESTALE, weir_write(a->engine, closed, &s, 1, NULL, &o.transfer));
}

static void test_W9_submits_that_fail_write_nothing(void **state) {
    struct side a, b;
    (void)state;
    pair_open(&a, &b, NULL);
    bad_segments(&a, &b);
    bad_options(&a);
    full_pools(&a, &b);
    pair_close(&a, &b);
}

static void test_W9_takes_that_fail_write_nothing(void **state) {
    struct side a, b;
    weir_event event;
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    (void)state;
    pair_open(&a, &b, NULL);
    FAILS(WEIR_EINVAL, weir_completion_take(NULL, &o.completion));
    FAILS(WEIR_EAGAIN, weir_completion_take(a.engine, &o.completion));
    FAILS(WEIR_EINVAL, weir_notification_take(NULL, &o.notification));
    FAILS(WEIR_EAGAIN, weir_notification_take(a.engine, &o.notification));
    while (weir_event_take(a.engine, &event) == WEIR_OK)
        continue;
    FAILS(WEIR_EINVAL, weir_event_take(NULL, &o.event));
    FAILS(WEIR_EAGAIN, weir_event_take(a.engine, &o.event));
    weir_segment s = segment_of(&a, 0, 0, 8);
    options.flags = WEIR_TRANSFER_QUEUE;
    assert_int_equal(weir_write(a.engine, a.peer, &s, 1, &options, NULL), WEIR_OK);
    STEP_UNTIL(&a, &b, stats_of(&a).transfers_ok > 0);
    FAILS(WEIR_EAGAIN, weir_engine_arm(a.engine, &o.number)); /* a completion waits */
    pair_close(&a, &b);
}

/* ---- messages ---- */

static void test_W9_inboxes_that_fail_write_nothing(void **state) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox, closed;
    struct side a;
    (void)state;
    side_open(&a, NULL);
    weir_engine *e = a.engine;
    options.message_bytes_max = 64;
    options.number = 1;
    assert_int_equal(weir_inbox_open(e, &options, &closed), WEIR_OK);
    assert_int_equal(weir_inbox_close(e, closed), WEIR_OK);
    assert_int_equal(weir_inbox_open(e, &options, &inbox), WEIR_OK);
    FAILS(WEIR_EBUSY, weir_inbox_open(e, &options, &o.inbox));
    options.number = 2;
    FAILS(WEIR_EINVAL, weir_inbox_open(NULL, &options, &o.inbox));
    FAILS(WEIR_EINVAL, weir_inbox_open(e, NULL, &o.inbox));
    FAILS(WEIR_EINVAL, weir_inbox_open(e, &options, NULL));
    options.reserved = 1;
    FAILS(WEIR_EINVAL, weir_inbox_open(e, &options, &o.inbox));
    options.reserved = 0;
    options.message_bytes_max = UINT64_MAX;
    FAILS(WEIR_ETOOBIG, weir_inbox_open(e, &options, &o.inbox));
    FAILS(WEIR_EINVAL, weir_inbox_query(NULL, inbox, &o.inbox_info));
    FAILS(WEIR_EINVAL, weir_inbox_query(e, inbox, NULL));
    FAILS(WEIR_ESTALE, weir_inbox_query(e, closed, &o.inbox_info));
    FAILS(WEIR_EINVAL, weir_message_take(NULL, inbox, &o.message));
    FAILS(WEIR_EINVAL, weir_message_take(e, inbox, NULL));
    FAILS(WEIR_EAGAIN, weir_message_take(e, inbox, &o.message));
    FAILS(WEIR_ESTALE, weir_message_take(e, closed, &o.message));
    FAILS(WEIR_EINVAL, weir_message_take_many(NULL, inbox, &o.message, 1, &o.length));
    FAILS(WEIR_EINVAL, weir_message_take_many(e, inbox, NULL, 1, &o.length));
    FAILS(WEIR_EINVAL, weir_message_take_many(e, inbox, &o.message, 0, &o.length));
    FAILS(WEIR_EINVAL, weir_message_take_many(e, inbox, &o.message, 1, NULL));
    FAILS(WEIR_EAGAIN, weir_message_take_many(e, inbox, &o.message, 1, &o.length));
    FAILS(WEIR_ESTALE, weir_message_take_many(e, closed, &o.message, 1, &o.length));
    side_close(&a);
}

static void test_W9_messages_that_fail_write_nothing(void **state) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    struct side a, b;
    (void)state;
    pair_open(&a, &b, NULL);
    weir_engine *e = a.engine;
    weir_part part = {.base = a.bytes, .length = WEIR_MESSAGE_COPY_MAX + 1};
    FAILS(WEIR_EINVAL, weir_message_send(e, a.peer, 1, &part, 1, NULL, &o.transfer));
    part.length = 8;
    FAILS(WEIR_EINVAL, weir_message_send(NULL, a.peer, 1, &part, 1, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_message_send(e, a.peer, 1, NULL, 1, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_message_send(e, a.peer, 1, &part, 1, NULL, NULL));
    FAILS(WEIR_ETOOBIG, weir_message_send(e, a.peer, 1, &part, SIZE_MAX, NULL, &o.transfer));
    FAILS(WEIR_ESTALE, weir_message_send(e, (weir_peer){0}, 1, &part, 1, NULL, &o.transfer));
    options.flags = ~0u;
    FAILS(WEIR_EINVAL, weir_message_send(e, a.peer, 1, &part, 1, &options, &o.transfer));
    part = (weir_part){.local = a.memory, .offset = SIDE_BYTES, .length = 8};
    FAILS(WEIR_EBOUNDS, weir_message_send(e, a.peer, 1, &part, 1, NULL, &o.transfer));
    part = (weir_part){.local = {UINT64_MAX}, .length = 8};
    FAILS(WEIR_ESTALE, weir_message_send(e, a.peer, 1, &part, 1, NULL, &o.transfer));
    weir_outgoing out = {&part, 1, 0};
    const weir_outgoing *first = &out;
    weir_peer to = a.peer;
    FAILS(WEIR_ESTALE, weir_message_send_many(e, to, 1, first, 1, NULL, &o.transfer, &o.length));
    part = (weir_part){.local = a.memory, .offset = SIDE_BYTES, .length = 8};
    FAILS(WEIR_EBOUNDS, weir_message_send_many(e, to, 1, first, 1, NULL, &o.transfer, &o.length));
    part = (weir_part){.base = a.bytes, .length = 8};
    FAILS(WEIR_EINVAL, weir_message_send_many(NULL, to, 1, first, 1, NULL, &o.transfer, &o.length));
    FAILS(WEIR_EINVAL, weir_message_send_many(e, to, 1, NULL, 1, NULL, &o.transfer, &o.length));
    FAILS(WEIR_EINVAL, weir_message_send_many(e, to, 1, first, 0, NULL, &o.transfer, &o.length));
    FAILS(WEIR_EINVAL, weir_message_send_many(e, to, 1, first, 1, NULL, NULL, &o.length));
    FAILS(WEIR_EINVAL, weir_message_send_many(e, to, 1, first, 1, NULL, &o.transfer, NULL));
    FAILS(WEIR_EINVAL,
          weir_message_send_many(e, to, 1, first, 1, &options, &o.transfer, &o.length));
    out.part_count = SIZE_MAX;
    FAILS(WEIR_ETOOBIG, weir_message_send_many(e, to, 1, first, 1, NULL, &o.transfer, &o.length));
    out = (weir_outgoing){NULL, 1, 0};
    FAILS(WEIR_EINVAL, weir_message_send_many(e, to, 1, first, 1, NULL, &o.transfer, &o.length));
    const weir_loan none = {.length = 8};
    FAILS(WEIR_EINVAL, weir_message_loan(NULL, a.peer, 1, 8, &o.loan));
    FAILS(WEIR_ETOOBIG, weir_message_loan(e, a.peer, 1, UINT64_MAX, &o.loan));
    FAILS(WEIR_ESTALE, weir_message_loan(e, (weir_peer){77}, 1, 8, &o.loan));
    FAILS(WEIR_ESTALE, weir_loan_send(e, &none, NULL, &o.transfer));
    FAILS(WEIR_EINVAL, weir_loan_send(NULL, &none, NULL, &o.transfer));
    pair_close(&a, &b);
}

/* ---- all of them ---- */

static bool was_seen(const char *name, size_t length) {
    for (uint32_t i = 0; i < seen_count; i++) {
        if (strncmp(seen[i], name, length) == 0 && seen[i][length] == '\0')
            return true;
    }
    return false;
}

/* A declaration of weir.h with a parameter that is written: *_out, info, stats, length. */
static bool writes(const char *declaration, size_t length) {
    static const char *const written[] = {"_out", " *info", " *stats", "size_t *length"};
    char text[1024];
    assert_true(length < sizeof(text));
    memcpy(text, declaration, length);
    text[length] = '\0';
    for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++) {
        if (strstr(text, written[i]) != NULL)
            return true;
    }
    return false;
}

/* How many functions of a public header have an output. */
static uint32_t count_outputs(const char *path) {
    static char header[1 << 17];
    uint32_t count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(header, 1, sizeof(header) - 1, file);
    fclose(file);
    assert_true(length > 0 && length < sizeof(header) - 1);
    header[length] = '\0';
    for (const char *at = header; (at = strstr(at, "WEIR_API int weir_")) != NULL; at++) {
        const char *name = at + strlen("WEIR_API int "), *end = strstr(at, ");");
        assert_non_null(end);
        if (!writes(name, (size_t)(end - name)))
            continue;
        count++;
        if (!was_seen(name, strcspn(name, "(")))
            fail_msg("%.*s fails nowhere above", (int)strcspn(name, "("), name);
    }
    return count;
}

static void test_W9_no_function_with_an_output_is_missing_above(void **state) {
    (void)state;
    assert_int_equal(count_outputs(WEIR_HEADERS "/weir.h") +
                         count_outputs(WEIR_HEADERS "/weir_settings.h"),
                     seen_count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W9_engine_calls_that_fail_write_nothing),
        cmocka_unit_test(test_W9_queries_that_fail_write_nothing),
        cmocka_unit_test(test_W9_registrations_that_fail_write_nothing),
        cmocka_unit_test(test_W9_exports_that_fail_write_nothing),
        cmocka_unit_test(test_W9_imports_that_fail_write_nothing),
        cmocka_unit_test(test_W9_calls_about_names_that_fail_write_nothing),
        cmocka_unit_test(test_W9_calls_about_peers_that_fail_write_nothing),
        cmocka_unit_test(test_W9_submits_that_fail_write_nothing),
        cmocka_unit_test(test_W9_takes_that_fail_write_nothing),
        cmocka_unit_test(test_W9_inboxes_that_fail_write_nothing),
        cmocka_unit_test(test_W9_messages_that_fail_write_nothing),
        cmocka_unit_test(test_W9_no_function_with_an_output_is_missing_above),
    };
    return cmocka_run_group_tests_name("engine_outputs", tests, NULL, NULL);
}
