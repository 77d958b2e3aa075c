/* SPDX-License-Identifier: Apache-2.0 */
/* test_verbs_memory.c: the memory regions of the verbs backend over the provider of
 * verbs_fake.h: the table of them, what a dma-buf that cannot be registered gives, and
 * registering while others do other things. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "verbs_fake.h"

#include "device.h"
#include "memlock.h"
#include "os.h"

static uint8_t bytes[64];

static struct weir_device *start(void) {
    fake_reset();
    return device_open();
}

static struct weir_mr add(struct weir_device *device) {
    struct weir_mr mr;
    assert_int_equal(verbs_mr_register(device, bytes, sizeof bytes, 3, &mr), 0);
    return mr;
}

/* ---- the table ---- */

/* CPU time of releasing two and registering two again, many times. */
static clock_t churn(struct weir_device *device, struct weir_mr *one, struct weir_mr *two) {
    enum { ROUNDS = 100000 };
    clock_t before = clock();
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(verbs_mr_release(device, two), 0);
        assert_int_equal(verbs_mr_release(device, one), 0);
        *one = add(device);
        *two = add(device);
        assert_int_not_equal(one->cookie, two->cookie);
    }
    return clock() - before;
}

/* Every entry is given once, and the full table is EAGAIN and leaves nothing behind. */
static void test_M6_regions_are_bounded(void **state) {
    (void)state;
    struct weir_device *device = start();
    struct weir_mr *mrs = calloc(VERBS_MRS_MAX, sizeof *mrs), more;
    bool *taken = calloc(VERBS_MRS_MAX, sizeof *taken);
    assert_true(mrs != NULL && taken != NULL);
    mrs[0] = add(device);
    mrs[1] = add(device);
    clock_t with_two = churn(device, &mrs[0], &mrs[1]);
    for (uint32_t i = 0; i < VERBS_MRS_MAX; i++) {
        if (i > 1)
            mrs[i] = add(device);
        assert_true(mrs[i].cookie < VERBS_MRS_MAX && !taken[mrs[i].cookie]);
        taken[mrs[i].cookie] = true;
    }
    assert_int_equal(verbs_mr_register(device, bytes, sizeof bytes, 3, &more), WEIR_EAGAIN);
    assert_int_equal(fake.mrs, VERBS_MRS_MAX);
    /* A free entry is found, not looked for: a search makes this a thousand times as long. */
    clock_t with_all = churn(device, &mrs[0], &mrs[VERBS_MRS_MAX - 1]);
    assert_true(with_all < 50 * with_two + CLOCKS_PER_SEC / 10);
    for (uint32_t i = 0; i < VERBS_MRS_MAX; i++)
        assert_int_equal(verbs_mr_release(device, &mrs[i]), 0);
    free(mrs);
    free(taken);
    device_close(device);
}

/* Registered and released at random: what is live has an entry of its own, what is exported is
 * its own key, and the table does not grow beyond what was live at once. */
static void test_T3_released_regions_are_used_again(void **state) {
    (void)state;
    enum { LIVE = 1500, STEPS = 50000 };
    struct weir_device *device = start();
    static struct weir_mr mrs[LIVE];
    static bool live[LIVE];
    uint32_t seed = 1, owner[2 * VERBS_MR_CHUNK];
    memset(live, 0, sizeof live);
    memset(owner, 0xff, sizeof owner);
    for (uint32_t step = 0; step < STEPS; step++) {
        seed = seed * 1664525 + 1013904223;
        uint32_t i = (seed >> 8) % LIVE;
        if (live[i]) {
            uint8_t blob[WEIR_MR_BLOB_MAX];
            uint32_t length;
            struct verbs_region region;
            assert_int_equal(owner[mrs[i].cookie], i);
            assert_int_equal(verbs_mr_export(device, &mrs[i], blob, &length), 0);
            assert_int_equal(blob_read_region(blob, length, &region), 0);
            assert_int_equal(region.rkey, mrs[i].lkey); /* the provider's are alike */
            assert_int_equal(verbs_mr_release(device, &mrs[i]), 0);
            owner[mrs[i].cookie] = UINT32_MAX;
        } else {
            mrs[i] = add(device);
            assert_true(mrs[i].cookie < 2 * VERBS_MR_CHUNK);
            assert_int_equal(owner[mrs[i].cookie], UINT32_MAX);
            owner[mrs[i].cookie] = i;
        }
        live[i] = !live[i];
    }
    for (uint32_t i = 0; i < LIVE; i++) {
        if (live[i])
            assert_int_equal(verbs_mr_release(device, &mrs[i]), 0);
    }
    device_close(device);
}

/* ---- dma-bufs ---- */

static void test_dmabuf_errors(void **state) {
    (void)state;
    static const struct {
        int error, expected;
    } cases[] = {
        {EBADF, WEIR_EINVAL},            /* not open */
        {EINVAL, WEIR_EINVAL},           /* no dma-buf, or not so long */
        {EOPNOTSUPP, WEIR_ENOTSUP},      /* the driver */
        {EPROTONOSUPPORT, WEIR_ENOTSUP}, /* a kernel without this call */
        {ENOTTY, WEIR_ENOTSUP},          /* a kernel without calls of this kind */
        {ENOSYS, WEIR_ENOTSUP},
        {ENOMEM, WEIR_ENOMEM},
        {EIO, WEIR_EDEVICE},
    };
    struct weir_device *device = start();
    struct weir_mr mr = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake.dmabuf_error = cases[i].error;
        assert_int_equal(verbs_mr_register_dmabuf(device, 3, 0, 64, 4096, 3, &mr),
                         cases[i].expected);
    }
    fake.dmabuf_error = 0;
    assert_int_equal(verbs_mr_register_dmabuf(device, -1, 0, 64, 4096, 3, &mr), WEIR_EINVAL);
    assert_int_equal(verbs_mr_register_dmabuf(device, 3, 0, 0, 4096, 3, &mr), WEIR_EINVAL);
    assert_int_equal(verbs_mr_register_dmabuf(device, 3, 0, 64, 4097, 3, &mr), WEIR_EINVAL);
    assert_int_equal(verbs_mr_register_dmabuf(device, 3, 1, 64, 4096, 3, &mr), WEIR_EINVAL);
    assert_int_equal(verbs_mr_register_dmabuf(device, 3, 0, 64, 4096, 4, &mr), WEIR_EINVAL);
    device->choice.attr.max_mr_size = 63;
    assert_int_equal(verbs_mr_register_dmabuf(device, 3, 0, 64, 4096, 3, &mr), WEIR_EINVAL);
    device->choice.attr.max_mr_size = 64;
    assert_int_equal(verbs_mr_register_dmabuf(device, 3, 8193, 64, 4097, 3, &mr), 0);
    assert_ptr_equal(mr.base, (void *)4097);
    assert_int_equal(verbs_mr_release(device, &mr), 0);
    device_close(device);
}

/* ---- while others do other things ---- */

enum { THREADS = 3, PASSES = 2000 };

static void *register_and_release(void *argument) {
    struct weir_device *device = argument;
    struct weir_mr mrs[8];
    intptr_t failures = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int i = 0; i < 8; i++)
            failures += verbs_mr_register(device, bytes, sizeof bytes, 3, &mrs[i]) != 0;
        for (int i = 0; i < 8; i++)
            failures += verbs_mr_release(device, &mrs[i]) != 0;
    }
    return (void *)failures;
}

/* The port is looked at anew, QPs come and go (for ThreadSanitizer to see). */
static void test_H10_registering_while_the_port_changes(void **state) {
    (void)state;
    struct weir_device *device = start();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, register_and_release, device), 0);
    for (int i = 0; i < PASSES; i++) {
        struct weir_async event;
        struct weir_qp_granted granted;
        fake_event(IBV_EVENT_GID_CHANGE, NULL);
        assert_int_equal(verbs_events(device, &event, 1), 0);
        assert_true(device->port_changed);
        struct weir_qp *qp = qp_create(device, 1, &granted);
        assert_false(device->port_changed);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failures;
        assert_int_equal(pthread_join(threads[i], &failures), 0);
        assert_null(failures);
    }
    device_close(device);
}

/* ---- RLIMIT_MEMLOCK ---- */

static void test_W10_how_much_may_be_pinned(void **state) {
    static const struct {
        uint64_t limit;
        const char *status, *uid_map;
        uint64_t left;
    } cases[] = {
        {UINT64_MAX, "", "", UINT64_MAX},
        {65536, "Name:\tx\nVmPin:\t       0 kB\nCapEff:\t0000000000000000\n", "", 65536},
        {65536, "Name:\tx\nVmPin:\t      16 kB\nCapEff:\t0000000000000000\n", "", 49152},
        {65536, "Name:\tx\nVmPin:\t     640 kB\nCapEff:\t0000000000000000\n", "", 0},
        {65536, "\nCapEff:\t0000000000004000\n", "         0          0 4294967295\n", UINT64_MAX},
        {65536, "\nCapEff:\t000001ffffffbfff\n", "         0          0 4294967295\n", 65536},
        /* root of a namespace of its own */
        {65536, "\nCapEff:\t000001ffffffffff\n", "         0       1000          1\n", 65536},
        {65536, "", "", 65536}, /* no /proc here */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(memlock_left_of(cases[i].limit, cases[i].status, cases[i].uid_map) ==
                    cases[i].left);
}

static void drop_lock(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    struct rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    assert_int_equal(syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    assert_int_equal(syscall(SYS_capset, &header, data), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

/* In a process of its own, which has 64 KiB and no right to more. */
static void test_W7_W10_what_the_limit_does_not_allow_is_named(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct weir_device_caps caps = {0};
        struct weir_mr mr;
        static uint8_t many[1 << 20];
        drop_lock();
        fake_reset();
        assert_int_equal(verbs_device_ops.probe(NULL, &caps), 0);
        assert_true(caps.pins && caps.pin_bytes_left <= 65536);
        struct weir_device *device = device_open();
        fake.forbidden_access = IBV_ACCESS_LOCAL_WRITE;
        fake.forbidden_error = ENOMEM;
        assert_int_equal(verbs_mr_register(device, many, sizeof many, 0, &mr), WEIR_EMEMLOCK);
        assert_int_equal(verbs_mr_allocate(device, 1 << 20, 0, &mr), WEIR_EMEMLOCK);
        assert_int_equal(verbs_mr_register(device, many, 4096, 0, &mr), WEIR_ENOMEM);
        fake.forbidden_access = 0;
        device_close(device);
        struct weir_env env;
        assert_int_equal(os_env_init(&env), 0);
        fake.cqs_most = 1;
        fake.cqs = 1; /* the provider gives none */
        assert_int_equal(verbs_device_ops.open(&env, &device), WEIR_EMEMLOCK);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W10_how_much_may_be_pinned),
        cmocka_unit_test(test_W7_W10_what_the_limit_does_not_allow_is_named),
        cmocka_unit_test(test_M6_regions_are_bounded),
        cmocka_unit_test(test_T3_released_regions_are_used_again),
        cmocka_unit_test(test_dmabuf_errors),
        cmocka_unit_test(test_H10_registering_while_the_port_changes),
    };
    return cmocka_run_group_tests_name("verbs_memory", tests, NULL, NULL);
}
