/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine.c: every public function's documented errors, and handles after their
 * release. Over the shm device, through weir.h only. */
#include "engine_side.h"

#include <stdio.h>
#include <string.h>

static int open_with(const weir_engine_options *options) {
    weir_engine *engine = NULL;
    int rc = weir_engine_open(options, &engine);

    assert_int_equal(rc == WEIR_OK, engine != NULL);
    weir_engine_close(engine);
    return rc;
}

/* ---- names ---- */

static void test_E6_every_error_has_a_name_a_text_and_a_class(void **state) {
    static const int values[] = {WEIR_OK,
#define VALUE(name, value, class_, text) name,
                                 WEIR_ERRORS(VALUE)
#undef VALUE
    };

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        assert_int_equal(strncmp(weir_error_name(values[i]), "WEIR_", 5), 0);
        assert_true(strlen(weir_strerror(values[i])) > 3);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(weir_error_name(values[i]), weir_error_name(values[j]));
    }
    assert_string_equal(weir_error_name(WEIR_EAGAIN), "WEIR_EAGAIN");
    assert_int_equal(weir_error_class(WEIR_OK), WEIR_CLASS_OK);
    assert_int_equal(weir_error_class(WEIR_EAGAIN), WEIR_CLASS_RETRY);
    assert_int_equal(weir_error_class(WEIR_ENOTREADY), WEIR_CLASS_RETRY);
    assert_int_equal(weir_error_class(WEIR_EBOUNDS), WEIR_CLASS_TRANSFER);
    assert_int_equal(weir_error_class(WEIR_EPEER), WEIR_CLASS_ENDPOINT);
    static const int unknown[] = {-9999, -4, 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_string_equal(weir_error_name(unknown[i]), "WEIR_E?");
        assert_non_null(weir_strerror(unknown[i]));
        weir_error_class(unknown[i]);
    }
    for (int i = -3; i < 12; i++)
        assert_non_null(weir_waiting_name(i));
    assert_string_equal(weir_waiting_name(WEIR_WAITING_CREDITS), "credits");
    for (int i = WEIR_EVENT_UP; i <= WEIR_EVENT_NAME; i++) {
        assert_string_not_equal(weir_event_name(i), "?");
        for (int j = WEIR_EVENT_UP; j < i; j++)
            assert_string_not_equal(weir_event_name(i), weir_event_name(j));
    }
    assert_string_equal(weir_event_name(WEIR_EVENT_DEVICE_FAILED), "device_failed");
    static const int no_events[] = {0, WEIR_EVENT_NAME + 1, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(no_events) / sizeof(no_events[0]); i++)
        assert_string_equal(weir_event_name(no_events[i]), "?");
}

/* The tree's file has one line, the version. */
static void test_E7_version(void **state) {
    char line[32] = "";
    FILE *file = fopen(WEIR_HEADERS "/../VERSION", "r");

    (void)state;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(weir_version(), line);
}

static void test_E6_devices(void **state) {
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    size_t count = 0;
    bool shm = false;

    (void)state;
    while (weir_device_query(count, &info) == WEIR_OK) {
        count++;
        if (strcmp(info.name, "shm") == 0) {
            shm = true;
            assert_int_equal(info.available, 0);
            assert_int_equal(info.completes_inline, 1);
            assert_true(info.message_bytes_max >= 1 << 20);
            assert_true(info.engine_bytes > 0);
        }
    }
    assert_true(shm);
    assert_int_equal(weir_device_query(count, &info), WEIR_EINVAL);
    assert_int_equal(weir_device_query(SIZE_MAX, &info), WEIR_EINVAL);
    assert_int_equal(weir_device_query(0, NULL), WEIR_EINVAL);
    info.size = 0;
    assert_int_equal(weir_device_query(0, &info), WEIR_EINVAL);
    struct {
        weir_device_info info;
        uint8_t behind;
    } old;
    memset(&old, 0x5a, sizeof(old));
    old.info.size = offsetof(weir_device_info, message_bytes_max);
    assert_int_equal(weir_device_query(0, &old.info), WEIR_OK);
    assert_int_equal(old.info.size, offsetof(weir_device_info, message_bytes_max));
    assert_int_equal(old.info.engine_bytes, 0x5a5a5a5a5a5a5a5a); /* an old caller's stack */
}

/* ---- engine ---- */

static void test_E6_open_refuses_limits_out_of_range(void **state) {
    weir_engine_options options;

    (void)state;
    assert_int_equal(weir_engine_open(NULL, NULL), WEIR_EINVAL);
#define REFUSED(field, value)                                                                      \
    options = side_options();                                                                      \
    options.field = (value);                                                                       \
    assert_int_equal(open_with(&options), WEIR_EINVAL)
    REFUSED(size, 0);
    REFUSED(size, 8);
    REFUSED(size, 1 << 20);
    REFUSED(flags, WEIR_ENGINE_THREAD | WEIR_ENGINE_SERIAL);
    REFUSED(flags, 0x4);
    REFUSED(flags, 0x80000001u);
    REFUSED(transfers_max, (1 << 20) + 1);
    REFUSED(peers_max, 65536);
    REFUSED(memories_max, 65536);
    REFUSED(remotes_max, (1 << 20) + 1);
    REFUSED(qp_count, WEIR_QPS_MAX + 1);
    REFUSED(sq_depth, 1);
    REFUSED(sq_depth, 65537);
    REFUSED(segments_max, UINT32_MAX);
    REFUSED(recv_credits, UINT32_MAX);
    REFUSED(notifications_max, UINT32_MAX);
    REFUSED(connect_timeout_ns, UINT64_MAX);
    REFUSED(retransmit_ns, UINT64_MAX);
    REFUSED(teardown_timeout_ns, UINT64_MAX);
    REFUSED(settle_grace_ns, UINT64_MAX);
    REFUSED(backoff_timeout_ns, UINT64_MAX);
#undef REFUSED
}

static void test_E6_open_takes_the_least_and_old_structs(void **state) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    (void)state;
    options.transfers_max = 2;
    options.segments_max = options.peers_max = options.memories_max = options.remotes_max = 1;
    options.qp_count = options.chain_max = options.recv_credits = options.notifications_max = 1;
    options.sq_depth = 2;
    assert_int_equal(open_with(&options), WEIR_OK);
    options = side_options();
    options.size = offsetof(weir_engine_options, transfers_max);
    memset(&options.transfers_max, 0xff, sizeof(options) - options.size); /* not looked at */
    assert_int_equal(open_with(&options), WEIR_OK);
    assert_int_equal(open_with(NULL), WEIR_OK);
    weir_engine_close(NULL);
}

static void test_E6_open_says_what_is_missing(void **state) {
    static const char *const bad[] = {"",
                                      "nonsense",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      ":1",
                                      "127.0.0.1:70000",
                                      "192.0.2.1:0",
                                      "[::1:0",
                                      "127.0.0.1:-1",
                                      "[::1]",
                                      "no.such.host.invalid:0"};
    weir_engine_options options = side_options();
    struct side side;

    (void)state;
    options.device = "no such device";
    assert_int_equal(open_with(&options), WEIR_ENODEVICE);
    options.device = "";
    assert_int_equal(open_with(&options), WEIR_ENODEVICE);
    options.device = "shm";
    assert_int_equal(open_with(&options), WEIR_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        options.listen = bad[i];
        assert_int_equal(open_with(&options), WEIR_EADDRESS);
    }
    side_open(&side, NULL);
    options.listen = side.address; /* taken */
    assert_int_equal(open_with(&options), WEIR_EADDRESS);
    side_close(&side);
}

static void test_E6_address(void **state) {
    weir_engine_options options = side_options();
    char address[WEIR_ADDRESS_MAX];
    struct side side;

    (void)state;
    side_open(&side, NULL);
    size_t length = strlen(side.address) + 1;
    assert_int_equal(strncmp(side.address, "127.0.0.1:", 10), 0);
    assert_int_equal(weir_engine_address(side.engine, address, length - 1), WEIR_ETOOBIG);
    assert_int_equal(weir_engine_address(side.engine, address, 0), WEIR_ETOOBIG);
    assert_int_equal(weir_engine_address(side.engine, address, length), WEIR_OK);
    assert_string_equal(address, side.address);
    side_close(&side);
    options.listen = "none";
    side_open(&side, &options);
    assert_int_equal(weir_engine_address(side.engine, address, sizeof(address)), WEIR_ENOTSUP);
    side_close(&side);
}

static void test_E6_an_idle_engine(void **state) {
    struct side side;
    weir_completion completion;
    weir_notification notification;
    weir_event event;
    weir_engine_info stats = {0};
    uint64_t timeout;

    (void)state;
    side_open(&side, NULL);
    while (weir_engine_progress(side.engine) > 0)
        continue;
    assert_int_equal(weir_engine_progress(side.engine), 0);
    uint64_t start = now_ns();
    assert_int_equal(weir_engine_wait(side.engine, 0), WEIR_EINPROGRESS);
    assert_int_equal(weir_engine_wait(side.engine, 5 * MS), WEIR_EINPROGRESS);
    assert_true(now_ns() - start >= 5 * MS);
    assert_true(weir_engine_fd(side.engine) >= 0);
    assert_int_equal(weir_engine_arm(side.engine, NULL), WEIR_EINVAL);
    assert_int_equal(weir_engine_arm(side.engine, &timeout), WEIR_OK);
    assert_true(timeout == UINT64_MAX); /* nothing is due */
    assert_int_equal(weir_completion_take(side.engine, &completion), WEIR_EAGAIN);
    assert_int_equal(weir_notification_take(side.engine, &notification), WEIR_EAGAIN);
    assert_int_equal(weir_event_take(side.engine, &event), WEIR_EAGAIN);
    assert_int_equal(weir_engine_query(side.engine, NULL), WEIR_EINVAL);
    assert_int_equal(weir_engine_query(side.engine, &stats), WEIR_EINVAL); /* size 0 */
    stats.size = offsetof(weir_engine_info, transfers_failed);
    stats.transfers_failed = 77;
    assert_int_equal(weir_engine_query(side.engine, &stats), WEIR_OK);
    assert_int_equal(stats.transfers_ok, 0);
    assert_int_equal(stats.transfers_failed, 77);
    side_close(&side);
}

/* ---- memory ---- */

static void test_E6_register_errors(void **state) {
    static uint8_t bytes[64];
    weir_memory memory = {12345};
    void *base = bytes;
    struct side side;

    (void)state;
    side_open(&side, NULL);
    weir_engine *e = side.engine;
    assert_int_equal(weir_memory_register(e, NULL, 1, 0, &memory), WEIR_EINVAL);
    assert_int_equal(weir_memory_register(e, bytes, 0, 0, &memory), WEIR_EINVAL);
    assert_int_equal(weir_memory_register(e, bytes, UINT64_MAX, 0, &memory), WEIR_EINVAL);
    assert_int_equal(weir_memory_register(e, bytes, 64, 0x4, &memory), WEIR_EINVAL);
    assert_int_equal(weir_memory_register(e, bytes, 64, 0, NULL), WEIR_EINVAL);
    assert_int_equal(weir_memory_allocate(e, 0, 0, &memory, &base), WEIR_EINVAL);
    assert_int_equal(weir_memory_allocate(e, 64, 0xf0, &memory, &base), WEIR_EINVAL);
    assert_int_equal(weir_memory_allocate(e, 64, 0, NULL, &base), WEIR_EINVAL);
    assert_int_equal(weir_memory_allocate(e, 64, 0, &memory, NULL), WEIR_EINVAL);
    int rc = weir_memory_allocate(e, UINT64_C(1) << 60, 0, &memory, &base);
    assert_int_equal(rc, WEIR_ENOMEM);
    rc = weir_memory_allocate(e, UINT64_MAX, 0, &memory, &base);
    assert_int_equal(rc, WEIR_ENOMEM);
    assert_int_equal(memory.id, 12345); /* written only on success */
    assert_ptr_equal(base, bytes);
    side_close(&side);
}

static void test_E6_memories_max(void **state) {
    weir_engine_options options = side_options();
    static uint8_t bytes[64];
    weir_memory memories[3];
    weir_memory one_more = {9};
    struct side side;

    (void)state;
    options.memories_max = 4;
    side_open(&side, &options); /* takes one */
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_memory_register(side.engine, bytes, 64, 0, &memories[i]), WEIR_OK);
    assert_int_equal(weir_memory_register(side.engine, bytes, 64, 0, &one_more), WEIR_EAGAIN);
    assert_int_equal(one_more.id, 9);
    for (int round = 0; round < 1000; round++) { /* a released handle is never good again */
        weir_memory old = memories[round % 3];
        assert_int_equal(weir_memory_release(side.engine, old), WEIR_OK);
        assert_int_equal(weir_memory_register(side.engine, bytes, 64, 0, &memories[round % 3]),
                         WEIR_OK);
        assert_true(memories[round % 3].id != old.id);
        assert_int_equal(weir_memory_release(side.engine, old), WEIR_ESTALE);
        assert_int_equal(weir_memory_query(side.engine, old, NULL, NULL), WEIR_ESTALE);
    }
    side_close(&side);
}

static void test_E6_memory_info_and_release(void **state) {
    static const uint64_t ids[] = {0, 1, UINT64_MAX, UINT64_C(1) << 20, (UINT64_C(1) << 20) + 100};
    void *base = NULL;
    uint64_t length = 0;
    struct side side;

    (void)state;
    side_open(&side, NULL);
    assert_int_equal(weir_memory_query(side.engine, side.memory, &base, &length), WEIR_OK);
    assert_ptr_equal(base, side.bytes);
    assert_int_equal(length, SIDE_BYTES);
    for (uint64_t i = 0; i < length; i++)
        assert_int_equal(side.bytes[i], 0);
    assert_int_equal((uintptr_t)side.bytes % 4096, 0);
    assert_int_equal(weir_memory_query(side.engine, side.memory, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_memory_release(side.engine, side.memory), WEIR_OK);
    assert_int_equal(weir_memory_release(side.engine, side.memory), WEIR_ESTALE);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        weir_memory memory = {ids[i]};
        weir_remote remote = {ids[i]};
        uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
        size_t size = sizeof(descriptor);
        assert_int_equal(weir_memory_query(side.engine, memory, &base, NULL), WEIR_ESTALE);
        assert_int_equal(weir_memory_release(side.engine, memory), WEIR_ESTALE);
        assert_int_equal(weir_memory_export(side.engine, memory, descriptor, &size), WEIR_ESTALE);
        assert_int_equal(weir_remote_query(side.engine, remote, &length, NULL), WEIR_ESTALE);
        assert_int_equal(weir_remote_release(side.engine, remote), WEIR_ESTALE);
    }
    side_close(&side);
}

static void test_E6_export_errors(void **state) {
    static uint8_t bytes[64];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory local;
    struct side side;

    (void)state;
    side_open(&side, NULL);
    assert_int_equal(weir_memory_export(side.engine, side.memory, NULL, &length), WEIR_EINVAL);
    assert_int_equal(weir_memory_export(side.engine, side.memory, descriptor, NULL), WEIR_EINVAL);
    assert_int_equal(weir_memory_export(side.engine, side.memory, descriptor, &length), WEIR_OK);
    assert_true(length > 0 && length <= WEIR_DESCRIPTOR_MAX);
    for (size_t size = 0; size < length; size++) {
        size_t given = size;
        assert_int_equal(weir_memory_export(side.engine, side.memory, descriptor, &given),
                         WEIR_ETOOBIG);
    }
    assert_int_equal(weir_memory_register(side.engine, bytes, 64, 0, &local), WEIR_OK);
    length = sizeof(descriptor);
    assert_int_equal(weir_memory_export(side.engine, local, descriptor, &length), WEIR_EACCESS);
    side_close(&side);
}

static void test_E6_import_refuses_what_is_no_descriptor(void **state) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_remote remote = {55};
    struct side a, b;

    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    side_join(&a, &b);
    assert_int_equal(weir_memory_export(b.engine, b.memory, descriptor, &length), WEIR_OK);
    assert_int_equal(weir_memory_import(a.engine, a.peer, NULL, length, &remote), WEIR_EINVAL);
    assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, NULL), WEIR_EINVAL);
    for (size_t size = 0; size < length; size++)
        assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, size, &remote),
                         WEIR_EINVAL);
    for (size_t at = 0; at < length * 8; at++) { /* any bit */
        descriptor[at / 8] ^= (uint8_t)(1u << at % 8);
        assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &remote),
                         WEIR_EINVAL);
        descriptor[at / 8] ^= (uint8_t)(1u << at % 8);
    }
    assert_int_equal(remote.id, 55);
    assert_int_equal(weir_memory_import(a.engine, (weir_peer){0}, descriptor, length, &remote),
                     WEIR_ESTALE);
    assert_int_equal(
        weir_memory_import(a.engine, (weir_peer){UINT64_MAX}, descriptor, length, &remote),
        WEIR_ESTALE);
    assert_int_equal(weir_memory_release(b.engine, b.memory), WEIR_OK);
    assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &remote),
                     WEIR_ESTALE); /* of something that is gone */
    assert_int_equal(remote.id, 55);
    side_close(&a);
    side_close(&b);
}

static void test_E6_remotes_max_info_release(void **state) {
    weir_engine_options options = side_options();
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_remote remotes[2];
    weir_remote one_more = {1};
    uint64_t bytes = 0;
    uint32_t access = 0;
    struct side a, b;

    (void)state;
    options.remotes_max = 3;
    side_open(&a, &options);
    side_open(&b, NULL);
    side_join(&a, &b);
    assert_int_equal(weir_memory_export(b.engine, b.memory, descriptor, &length), WEIR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &remotes[i]),
                         WEIR_OK);
    assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &one_more),
                     WEIR_EAGAIN);
    assert_int_equal(weir_remote_query(a.engine, remotes[0], &bytes, &access), WEIR_OK);
    assert_int_equal(bytes, SIDE_BYTES);
    assert_int_equal(access, WEIR_ACCESS_ALL);
    assert_int_equal(weir_remote_query(a.engine, remotes[0], NULL, NULL), WEIR_OK);
    for (int round = 0; round < 1000; round++) {
        weir_remote old = remotes[round % 2];
        assert_int_equal(weir_remote_release(a.engine, old), WEIR_OK);
        assert_int_equal(weir_remote_release(a.engine, old), WEIR_ESTALE);
        assert_int_equal(
            weir_memory_import(a.engine, a.peer, descriptor, length, &remotes[round % 2]), WEIR_OK);
        assert_int_equal(weir_remote_query(a.engine, old, NULL, NULL), WEIR_ESTALE);
    }
    side_close(&a);
    side_close(&b);
}

/* ---- peers ---- */

static void test_E6_peer_open_errors(void **state) {
    static const char *const bad[] = {"nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                                      "[::1:5",   "::1:5",     ":5",         "127.0.0.1:5x"};
    weir_peer peers[4];
    weir_peer peer = {3};
    char text[WEIR_ADDRESS_MAX + 64];
    struct side side;

    (void)state;
    side_open(&side, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(weir_peer_open(side.engine, bad[i], &peer), WEIR_EADDRESS);
    memset(text, 'a', sizeof(text));
    memcpy(text + sizeof(text) - 4, ":80", 4);
    assert_int_equal(weir_peer_open(side.engine, text, &peer), WEIR_EADDRESS);
    int rc = weir_peer_open(side.engine, NULL, &peer);
    assert_true(rc == WEIR_EADDRESS || rc == WEIR_EINVAL);
    rc = weir_peer_open(side.engine, "", &peer);
    assert_true(rc == WEIR_EADDRESS || rc == WEIR_EINVAL);
    assert_int_equal(weir_peer_open(side.engine, "127.0.0.1:5", NULL), WEIR_EINVAL);
    assert_int_equal(peer.id, 3);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "127.0.0.1:%d", i + 1);
        assert_int_equal(weir_peer_open(side.engine, text, &peers[i]), WEIR_OK);
    }
    assert_int_equal(weir_peer_open(side.engine, "127.0.0.1:99", &peer), WEIR_EAGAIN);
    assert_int_equal(weir_peer_close(side.engine, peers[2]), WEIR_OK);
    assert_int_equal(weir_peer_open(side.engine, "127.0.0.1:99", &peer), WEIR_OK);
    side_close(&side);
}

static void test_E6_peer_handles(void **state) {
    static const uint64_t ids[] = {0, 2, UINT64_MAX, UINT64_C(1) << 20, (UINT64_C(9) << 20) + 1};
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_peer first, second;
    struct side side;

    (void)state;
    side_open(&side, NULL);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        weir_peer peer = {ids[i]};
        assert_int_equal(weir_peer_close(side.engine, peer), WEIR_ESTALE);
        assert_int_equal(weir_peer_connect(side.engine, peer), WEIR_ESTALE);
        assert_int_equal(weir_peer_query(side.engine, peer, &info), WEIR_ESTALE);
    }
    assert_int_equal(weir_peer_open(side.engine, "127.0.0.1:1", &first), WEIR_OK);
    assert_int_equal(weir_peer_open(side.engine, "127.0.0.1:1", &second), WEIR_OK);
    assert_int_equal(first.id, second.id);
    assert_int_equal(weir_peer_query(side.engine, first, NULL), WEIR_EINVAL);
    assert_int_equal(weir_peer_query(side.engine, first, &info), WEIR_OK);
    assert_string_equal(info.address, "127.0.0.1:1");
    assert_int_equal(info.connected, 0);
    assert_int_equal(info.qp_count, 0);
    assert_int_equal(weir_peer_close(side.engine, first), WEIR_OK);
    assert_int_equal(weir_peer_query(side.engine, first, &info), WEIR_OK); /* one reference left */
    assert_int_equal(weir_peer_close(side.engine, first), WEIR_OK);
    assert_int_equal(weir_peer_close(side.engine, first), WEIR_ESTALE);
    assert_int_equal(weir_peer_query(side.engine, first, &info), WEIR_ESTALE);
    assert_int_equal(weir_peer_open(side.engine, "127.0.0.1:1", &second), WEIR_OK);
    assert_true(first.id != second.id);
    side_close(&side);
}

/* Where an engine listens at all addresses of the host, it names one that a peer can open; and one
 * that listens at a single one names that. */
static void test_W10_an_engine_that_listens_everywhere_can_be_opened_by_its_address(void **state) {
    static const char *const wildcards[] = {"0.0.0.0:0", "[::]:0"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_engine_options options = side_options();
        struct side a, b;
        options.listen = wildcards[i];
        side_open(&b, &options);
        side_open(&a, NULL);
        assert_non_null(strrchr(b.address, ':'));
        assert_string_not_equal(strrchr(b.address, ':'), ":0");
        assert_true(strncmp(b.address, "0.0.0.0:", 8) != 0 && strncmp(b.address, "[::]:", 5) != 0);
        side_join(&a, &b);
        connect_now(&a, &b);
        pair_close(&a, &b);
    }
    struct side one;
    side_open(&one, NULL);
    assert_int_equal(strncmp(one.address, "127.0.0.1:", 10), 0);
    side_close(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_E6_every_error_has_a_name_a_text_and_a_class),
        cmocka_unit_test(test_E7_version),
        cmocka_unit_test(test_E6_devices),
        cmocka_unit_test(test_E6_open_refuses_limits_out_of_range),
        cmocka_unit_test(test_E6_open_takes_the_least_and_old_structs),
        cmocka_unit_test(test_E6_open_says_what_is_missing),
        cmocka_unit_test(test_E6_address),
        cmocka_unit_test(test_E6_an_idle_engine),
        cmocka_unit_test(test_E6_register_errors),
        cmocka_unit_test(test_E6_memories_max),
        cmocka_unit_test(test_E6_memory_info_and_release),
        cmocka_unit_test(test_E6_export_errors),
        cmocka_unit_test(test_E6_import_refuses_what_is_no_descriptor),
        cmocka_unit_test(test_E6_remotes_max_info_release),
        cmocka_unit_test(test_E6_peer_open_errors),
        cmocka_unit_test(test_E6_peer_handles),
        cmocka_unit_test(test_W10_an_engine_that_listens_everywhere_can_be_opened_by_its_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
